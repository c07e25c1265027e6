// Changes of entities. This is separate from frames.ts, so that the page does not load the parser at the start.

/** A new version of one entity: topic, key and value. The value is `null` when the entity was removed. */
export interface Change {
  t: string;
  k: string;
  v: unknown;
}

/** Merges the changes of several frames: only the last version of each entity remains. */
export function mergeChanges(changes: Change[]): Change[] {
  const last = new Map<string, Change>();
  for (const change of changes) last.set(`${change.t} ${change.k}`, change);
  return [...last.values()];
}
