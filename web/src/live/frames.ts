// Frames of the live stream: read from text, and kept as the newest version of each entity.

/** One entity as it is now; `null` when it is gone. */
export interface Change {
  t: string;
  k: string;
  v: unknown;
}

export interface Frame {
  seq: number;
  at: number;
  p: Change[];
}

export type Said = { kind: 'frame'; frame: Frame } | { kind: 'reset'; topics: string[] };

/** Reads server-sent events out of pieces of text that may be cut anywhere. */
export class Reader {
  private rest = '';

  feed(text: string): Said[] {
    this.rest += text;
    const found: Said[] = [];
    for (let end = this.rest.indexOf('\n\n'); end >= 0; end = this.rest.indexOf('\n\n')) {
      const said = read(this.rest.slice(0, end));
      this.rest = this.rest.slice(end + 2);
      if (said) found.push(said);
    }
    return found;
  }
}

function read(block: string): Said | null {
  let event = 'message';
  let data = '';
  for (const line of block.split('\n')) {
    if (line.startsWith('event: ')) event = line.slice(7);
    else if (line.startsWith('data: ')) data += line.slice(6);
  }
  if (!data) return null; // a heartbeat
  const value: unknown = JSON.parse(data);
  if (event === 'reset') return { kind: 'reset', topics: (value as { topics: string[] }).topics };
  return { kind: 'frame', frame: value as Frame };
}

/** The newest version of every entity of every topic. */
export class Kept {
  readonly topics = new Map<string, Map<string, unknown>>();
  /** Up to which revision each topic is known. */
  readonly seen = new Map<string, number>();

  reset(topics: string[]): void {
    for (const it of topics) this.topics.set(it, new Map());
  }

  take(frame: Frame, following: Iterable<string>): void {
    for (const { t, k, v } of frame.p) {
      let topic = this.topics.get(t);
      if (!topic) this.topics.set(t, (topic = new Map()));
      if (v === null) topic.delete(k);
      else topic.set(k, v);
    }
    for (const it of following) this.seen.set(it, frame.seq);
  }

  forget(topic: string): void {
    this.topics.delete(topic);
    this.seen.delete(topic);
  }

  /** What a newcomer to a topic must be told. */
  whole(topic: string): Change[] {
    return [...(this.topics.get(topic) ?? [])].map(([k, v]) => ({ t: topic, k, v }));
  }
}

/** Several frames as one: of each entity the last version. */
export function merged(changes: Change[]): Change[] {
  const last = new Map<string, Change>();
  for (const it of changes) last.set(`${it.t} ${it.k}`, it);
  return [...last.values()];
}
