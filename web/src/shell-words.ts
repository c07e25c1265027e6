// Shell commands that the page shows beside its forms.

/** Quotes a word for a POSIX shell, if it needs quotes. */
export function quoteWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Returns a command with its options. Options without a value are left out. */
export function shellCommand(words: string[], options: [flag: string, value: string][] = []): string {
  const given = options.filter(([, value]) => value !== '').flatMap(([flag, value]) => [flag, quoteWord(value)]);
  return ['regatta', ...words.map(quoteWord), ...given].join(' ');
}
