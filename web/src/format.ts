// Formatting of durations, costs and untrusted text.

/** Formats a duration: `2m`, `3h`, `12s`. */
export function age(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m}m`;
  const h = Math.floor(m / 60);
  if (h < 24) return m % 60 && h < 10 ? `${h}h ${m % 60}m` : `${h}h`;
  return `${Math.floor(h / 24)}d`;
}

/** Formats a time of day in the browser's time zone: `14:21:07`. */
export function clockTime(wall: number, seconds = true): string {
  return new Date(wall).toLocaleTimeString('en-GB', seconds ? {} : { hour: '2-digit', minute: '2-digit' });
}

/** Formats a cost. An unknown cost is a dash, never $0.00. */
export function usd(micro: number | null | undefined): string {
  if (micro === null || micro === undefined) return '–';
  return `$${(micro / 1e6).toFixed(2)}`;
}

/** Shortens a long name to its end, which distinguishes it from others: `…amber-reef/worker-frost`. */
export function shortName(name: string, maxLength = 24): string {
  return name.length > maxLength ? `…${name.slice(1 - maxLength)}` : name;
}

/** Shortens a text in the middle, so that its end stays readable. */
export function clipMiddle(text: string, maxLength: number): string {
  return text.length > maxLength ? `${text.slice(0, maxLength - 46).trimEnd()}…${text.slice(-45)}` : text;
}

export function tokens(n: number): string {
  if (n >= 1e6) return `${(n / 1e6).toFixed(1)} M`;
  if (n >= 1e3) return `${Math.round(n / 1e3)} k`;
  return String(n);
}

// Characters that are invisible or change the direction of text.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|\udb40[\udc00-\udfff]/g;

/** Makes untrusted text safe to show: invisible characters become visible, and long text is cut (S12). */
export function plain(text: string, maxLength = 2_000): string {
  const suffix = maxLength < 1_000 ? '…' : ` … ${text.length - maxLength} more characters`;
  const cut = text.length > maxLength ? `${text.slice(0, maxLength).trimEnd()}${suffix}` : text;
  return cut.replace(INVISIBLE, (character) => `⟨${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`);
}
