// `regatta watch` as a picture: a real terminal (tmux), its colours as a page draws them.

import { execFileSync } from 'node:child_process';

const escaped = (text) => text.replace(/[&<>]/g, (it) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[it]);
const BASE = ['#3b3f46', '#f87171', '#4ade80', '#facc15', '#60a5fa', '#c084fc', '#22d3ee', '#d4d4d8', '#8b8f98', '#fca5a5', '#86efac', '#fde047', '#93c5fd', '#d8b4fe', '#67e8f9', '#ffffff'];

function indexed(n) {
  if (n < 16) return BASE[n];
  if (n > 231) return `rgb(${[0, 0, 0].map(() => 8 + 10 * (n - 232)).join()})`;
  const part = (it) => (it === 0 ? 0 : 55 + 40 * it);
  return `rgb(${[Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6].map(part).join()})`;
}

/** Spans of what a pane shows, from its SGR sequences. */
export function drawn(text) {
  let [fg, bg, bold, dim, turned] = ['', '', false, false, false];
  let made = '';
  for (const [nth, piece] of text.split(/\x1b\[([0-9;]*)m/).entries()) {
    if (nth % 2 === 0) {
      const [ink, ground] = turned ? [bg || '#16181d', fg || '#d4d4d8'] : [fg, bg];
      const style = `${ink ? `color:${ink};` : ''}${ground ? `background:${ground};` : ''}${bold ? 'font-weight:700;' : ''}${dim ? 'opacity:.65;' : ''}`;
      made += style && piece ? `<span style="${style}">${escaped(piece)}</span>` : escaped(piece);
      continue;
    }
    const codes = piece.split(';').map(Number);
    for (let at = 0; at < codes.length; at += 1) {
      const it = codes[at];
      if (it === 0) [fg, bg, bold, dim, turned] = ['', '', false, false, false];
      else if (it === 1) bold = true;
      else if (it === 2) dim = true;
      else if (it === 22) [bold, dim] = [false, false];
      else if (it === 7) turned = true;
      else if (it === 27) turned = false;
      else if (it === 39) fg = '';
      else if (it === 49) bg = '';
      else if (it === 38 || it === 48) {
        const colour = codes[at + 1] === 5 ? indexed(codes[at + 2]) : `rgb(${codes.slice(at + 2, at + 5).join()})`;
        at += codes[at + 1] === 5 ? 2 : 4;
        if (it === 38) fg = colour;
        else bg = colour;
      } else if (it >= 30 && it <= 37) fg = BASE[it - 30];
      else if (it >= 40 && it <= 47) bg = BASE[it - 40];
      else if (it >= 90 && it <= 97) fg = BASE[it - 82];
      else if (it >= 100 && it <= 107) bg = BASE[it - 92];
    }
  }
  return made;
}

/** Watches a world in a terminal, and takes the picture when it shows what is awaited. */
export async function pictured({ world, browser, until, check, path, shows }) {
  const name = `regatta-watch-${process.pid}`;
  const tmux = (...args) => execFileSync('tmux', ['-L', name, ...args], { encoding: 'utf8', env: { ...world.env, NO_COLOR: undefined, TERM: 'xterm-256color', LANG: 'C.UTF-8', COLORTERM: 'truecolor' }, cwd: world.repo });
  tmux('-f', '/dev/null', 'new-session', '-d', '-s', 'w', '-x', '132', '-y', '38', `env -u NO_COLOR TERM=screen-256color '${world.binary}' watch`);
  try {
    await until('the terminal', () => shows.every((it) => tmux('capture-pane', '-p', '-t', 'w').includes(it)));
    // Down to the first item, whose answers are then shown.
    tmux('send-keys', '-t', 'w', 'j');
    await until('its answers', () => /1 \S+.* 2 \S+/.test(tmux('capture-pane', '-p', '-t', 'w')));
    check(true, '`regatta watch` shows the same in a terminal');
    if (!path) return;
    const page = await browser.newPage({ viewport: { width: 1160, height: 700 } });
    const html = drawn(tmux('capture-pane', '-e', '-p', '-t', 'w').trimEnd());
    await page.setContent(`<body style="margin:0;background:#16181d"><pre style="margin:0;padding:12px;display:inline-block;color:#d4d4d8;font:14px/1.25 'DejaVu Sans Mono',monospace">${html}</pre>`);
    await page.locator('pre').screenshot({ path });
    await page.close();
  } finally {
    tmux('kill-session', '-t', 'w');
  }
}
