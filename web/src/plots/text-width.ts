// The width of text in a plot, measured with the page's font.

let context: CanvasRenderingContext2D | null | undefined;
let font = '';
const widths = new Map<string, number>();
/** Measured texts that are kept. */
const MAX_WIDTHS = 5_000;
/** The width of a letter where nothing can be measured, as in tests without a browser. */
const LETTER_WIDTH = 6.6;

/** Returns the width of a text in pixels at the size of plots' labels. */
export function textWidth(text: string, weight = 400): number {
  if (context === undefined) {
    context = document.createElement('canvas').getContext?.('2d') ?? null;
    font = `12px ${getComputedStyle(document.body).fontFamily || 'sans-serif'}`;
  }
  if (!context) return text.length * LETTER_WIDTH;
  const key = `${weight} ${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size >= MAX_WIDTHS) widths.clear();
    context.font = `${weight} ${font}`;
    widths.set(key, (width = context.measureText(text).width));
  }
  return width;
}

/** Cuts a text at the end so that it fits into `maxWidth` pixels. */
export function fitText(text: string, maxWidth: number, weight = 400): string {
  if (textWidth(text, weight) <= maxWidth) return text;
  const letters = [...text];
  let [low, high] = [0, letters.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (textWidth(`${letters.slice(0, middle).join('').trimEnd()}…`, weight) <= maxWidth) low = middle;
    else high = middle - 1;
  }
  return low === 0 ? '' : `${letters.slice(0, low).join('').trimEnd()}…`;
}
