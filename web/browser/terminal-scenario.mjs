// `regatta watch` in a real terminal (tmux), and a screenshot of it, rendered as HTML.

import { execFileSync } from 'node:child_process';

const escaped = (text) => text.replace(/[&<>]/g, (character) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[character]);
const BASE = ['#3b3f46', '#f87171', '#4ade80', '#facc15', '#60a5fa', '#c084fc', '#22d3ee', '#d4d4d8', '#8b8f98', '#fca5a5', '#86efac', '#fde047', '#93c5fd', '#d8b4fe', '#67e8f9', '#ffffff'];

function paletteColour(n) {
  if (n < 16) return BASE[n];
  if (n > 231) return `rgb(${[0, 0, 0].map(() => 8 + 10 * (n - 232)).join()})`;
  const part = (level) => (level === 0 ? 0 : 55 + 40 * level);
  return `rgb(${[Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6].map(part).join()})`;
}

/** Converts text with SGR escape sequences to HTML. */
export function toHtml(text) {
  let [fg, bg, bold, dim, isInverse] = ['', '', false, false, false];
  let html = '';
  for (const [index, piece] of text.split(/\x1b\[([0-9;]*)m/).entries()) {
    if (index % 2 === 0) {
      const [textColour, backColour] = isInverse ? [bg || '#16181d', fg || '#d4d4d8'] : [fg, bg];
      const style = `${textColour ? `color:${textColour};` : ''}${backColour ? `background:${backColour};` : ''}${bold ? 'font-weight:700;' : ''}${dim ? 'opacity:.65;' : ''}`;
      html += style && piece ? `<span style="${style}">${escaped(piece)}</span>` : escaped(piece);
      continue;
    }
    const codes = piece.split(';').map(Number);
    for (let at = 0; at < codes.length; at += 1) {
      const code = codes[at];
      if (code === 0) [fg, bg, bold, dim, isInverse] = ['', '', false, false, false];
      else if (code === 1) bold = true;
      else if (code === 2) dim = true;
      else if (code === 22) [bold, dim] = [false, false];
      else if (code === 7) isInverse = true;
      else if (code === 27) isInverse = false;
      else if (code === 39) fg = '';
      else if (code === 49) bg = '';
      else if (code === 38 || code === 48) {
        const colour = codes[at + 1] === 5 ? paletteColour(codes[at + 2]) : `rgb(${codes.slice(at + 2, at + 5).join()})`;
        at += codes[at + 1] === 5 ? 2 : 4;
        if (code === 38) fg = colour;
        else bg = colour;
      } else if (code >= 30 && code <= 37) fg = BASE[code - 30];
      else if (code >= 40 && code <= 47) bg = BASE[code - 40];
      else if (code >= 90 && code <= 97) fg = BASE[code - 82];
      else if (code >= 100 && code <= 107) bg = BASE[code - 92];
    }
  }
  return html;
}

/** Runs `regatta watch`, waits for the expected texts, and takes a screenshot if `path` is set. */
export async function terminalScenario({ world, browser, until, check, path, shows }) {
  const name = `regatta-watch-${process.pid}`;
  const tmux = (...args) => execFileSync('tmux', ['-L', name, ...args], { encoding: 'utf8', env: { ...world.env, NO_COLOR: undefined, TERM: 'xterm-256color', LANG: 'C.UTF-8', COLORTERM: 'truecolor' }, cwd: world.repo });
  tmux('-f', '/dev/null', 'new-session', '-d', '-s', 'w', '-x', '132', '-y', '38', `env -u NO_COLOR TERM=screen-256color '${world.binary}' watch`);
  try {
    await until('the terminal', () => shows.every((expected) => tmux('capture-pane', '-p', '-t', 'w').includes(expected)));
    // Select the first item, so that its answers are shown.
    tmux('send-keys', '-t', 'w', 'j');
    await until('the answers of the item', () => /1 \S+.* 2 \S+/.test(tmux('capture-pane', '-p', '-t', 'w')));
    check(true, '`regatta watch` shows the same inbox in a terminal');
    if (!path) return;
    const page = await browser.newPage({ viewport: { width: 1160, height: 700 } });
    const html = toHtml(tmux('capture-pane', '-e', '-p', '-t', 'w').trimEnd());
    await page.setContent(`<body style="margin:0;background:#16181d"><pre style="margin:0;padding:12px;display:inline-block;color:#d4d4d8;font:14px/1.25 'DejaVu Sans Mono',monospace">${html}</pre>`);
    await page.locator('pre').screenshot({ path });
    await page.close();
  } finally {
    tmux('kill-session', '-t', 'w');
  }
}
