// Changes to the drawn rows of a log: folded lines and marks of found text.

import { setHtml } from '../trusted';

const HIGHLIGHT = 'log-hit';

function highlights(): HighlightRegistry | undefined {
  return (globalThis.CSS as { highlights?: HighlightRegistry } | undefined)?.highlights;
}

export function clearMatches(): void {
  highlights()?.delete(HIGHLIGHT);
}

/** Marks a text wherever it occurs, without changing the elements. An old browser shows no marks. */
export function markMatches(list: Element, query: string): void {
  const registry = highlights();
  if (!registry) return;
  const ranges: Range[] = [];
  const walker = document.createTreeWalker(list, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = (node.nodeValue ?? '').toLowerCase();
    for (let at = text.indexOf(query); at >= 0; at = text.indexOf(query, at + query.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, Math.min(at + query.length, node.nodeValue?.length ?? 0));
      ranges.push(range);
    }
  }
  registry.set(HIGHLIGHT, new Highlight(...ranges));
}

function setFold(fold: HTMLElement, from: number, to: number): void {
  fold.dataset.from = String(from);
  fold.dataset.to = String(to);
  fold.textContent = `show ${(to + 1 - from).toLocaleString('en')} more ${from === to ? 'line' : 'lines'}`;
}

/** Returns the button for the folded lines that contain `line`. */
export function foldOf(row: Element, line: number): HTMLElement | undefined {
  return [...row.querySelectorAll<HTMLElement>('.fold')].find((fold) => Number(fold.dataset.from) <= line && line <= Number(fold.dataset.to));
}

/** Replaces the lines from `from` to `to` of a folded range by their HTML. The rest stays folded. */
export function replaceFold(fold: HTMLElement, html: string, from: number, to: number): void {
  const [first, last] = [Number(fold.dataset.from), Number(fold.dataset.to)];
  const chunk = document.createElement('div');
  setHtml(chunk, html);
  const before = fold.cloneNode() as HTMLElement;
  const after = fold.cloneNode() as HTMLElement;
  setFold(before, first, from - 1);
  setFold(after, to + 1, last);
  const hadFocus = document.activeElement === fold;
  fold.replaceWith(...(first < from ? [before] : []), ...chunk.childNodes, ...(to < last ? [after] : []));
  if (hadFocus && to < last) after.focus({ preventScroll: true });
}

/** Updates the first line of an open row, and leaves its output as it is, with a button for the new output. Returns
 * false if the row shows no output. */
export function updateHead(row: Element, html: string): boolean {
  const details = row.querySelector('details');
  const body = details?.querySelector('.body');
  const summary = details?.querySelector('summary');
  if (!details?.open || !body || !summary || !body.querySelector('.ln')) return false;
  const fresh = document.createElement('div');
  setHtml(fresh, html);
  const freshDetails = fresh.querySelector('details');
  const freshSummary = freshDetails?.querySelector('summary');
  if (!freshDetails || !freshSummary) return false;
  details.className = freshDetails.className;
  summary.replaceChildren(...freshSummary.childNodes);
  if (!body.querySelector('.renew')) {
    const renew = document.createElement('button');
    renew.type = 'button';
    renew.className = 'fold renew';
    renew.textContent = 'show new output';
    body.append(renew);
  }
  return true;
}

/** Creates the buttons of an entry. They are not part of the row that opens and closes. */
export function entryTools(number: number): HTMLElement {
  const tools = document.createElement('div');
  tools.className = 'entry-tools';
  const labels = [
    ['link-entry', 'link', `link to entry ${number + 1}`],
    ['copy', 'copy', `copy entry ${number + 1}`],
  ] as const;
  for (const [name, text, label] of labels) {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = name;
    button.textContent = text;
    button.setAttribute('aria-label', label);
    tools.append(button);
  }
  return tools;
}

/** Copies a text, and shows the result on the button for a moment. */
export async function writeClipboard(text: string, button: HTMLElement, label: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'copied';
  } catch {
    button.textContent = 'no access to the clipboard';
  }
  setTimeout(() => (button.textContent = label), 2_000);
}
