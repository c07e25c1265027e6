// Ranks the entries of the command palette. Whole words come before beginnings of words, and these before other matches.

export interface PaletteEntry {
  /** Names the entry in the list of recent choices. */
  id: string;
  label: string;
  /** What the entry does, if it changes something. An entry whose subject alone matches comes after all others. */
  verb?: string;
  /** The shell command or the key that does the same. */
  hint: string;
  /** The heading under which the entry stands. Earlier kinds win when entries match equally well. */
  kind: PaletteKind;
  run(): void;
}

export const PALETTE_KINDS = ['Pages', 'Actions', 'Missions', 'Tasks', 'Agents', 'More'] as const;
export type PaletteKind = (typeof PALETTE_KINDS)[number];

/** Most entries that the list shows. */
const MAX_MATCHES = 12;
const NO_MATCH = 100;
const ONLY_SUBJECT = 20;

const wordsOf = (text: string) => text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);

/** Returns whether a word has the letters in this order and starts with the first, with at most two letters left out
 * between them. This forgives a letter that was not typed. */
function isAbbreviation(letters: string, word: string): boolean {
  if (letters.length < 3 || letters[0] !== word[0] || word.length > letters.length + 2) return false;
  let position = 0;
  for (const letter of letters) {
    position = word.indexOf(letter, position) + 1;
    if (position === 0) return false;
  }
  return true;
}

/** Returns how badly a typed word matches a text: 0 for a whole word, more for looser matches, `NO_MATCH` for none. */
function wordDistance(typed: string, text: string, words: string[]): number {
  if (words[0] === typed) return 0;
  if (words.includes(typed)) return 1;
  if (words[0]?.startsWith(typed)) return 2;
  if (words.some((word) => word.startsWith(typed))) return 3;
  if (typed.length >= 2 && text.includes(typed)) return 6;
  return words.some((word) => isAbbreviation(typed, word)) ? 8 : NO_MATCH;
}

/** Returns how badly an entry matches the query, or null if a word of the query is not in the entry. */
export function matchDistance(query: string, entry: Pick<PaletteEntry, 'label' | 'hint' | 'verb'>): number | null {
  const label = entry.label.toLowerCase();
  const labelWords = wordsOf(label);
  const hint = entry.hint.toLowerCase();
  const hintWords = wordsOf(hint);
  const typedWords = wordsOf(query);
  const verbWords = wordsOf(entry.verb ?? '');
  const namesVerb = verbWords.length === 0 || typedWords.some((typed) => verbWords.some((word) => word.startsWith(typed)) || hintWords.includes(typed));
  let sum = namesVerb || typedWords.length === 0 ? 0 : ONLY_SUBJECT;
  for (const typed of typedWords) {
    const distance = Math.min(wordDistance(typed, label, labelWords), wordDistance(typed, hint, hintWords) + 4);
    if (distance >= NO_MATCH) return null;
    sum += distance;
  }
  return sum;
}

/** Returns the entries that match best, best first. Recent choices win when entries match equally well; without a query,
 * they come first. */
export function bestMatches(all: PaletteEntry[], query: string, recent: string[]): PaletteEntry[] {
  const recency = (entry: PaletteEntry) => {
    const position = recent.indexOf(entry.id);
    return position < 0 ? recent.length : position;
  };
  return all
    .flatMap((entry) => {
      const distance = matchDistance(query, entry);
      return distance === null ? [] : [{ entry, distance, recency: recency(entry), kind: PALETTE_KINDS.indexOf(entry.kind) }];
    })
    .sort((a, b) => a.distance - b.distance || a.recency - b.recency || a.kind - b.kind)
    .slice(0, MAX_MATCHES)
    .map((match) => match.entry);
}
