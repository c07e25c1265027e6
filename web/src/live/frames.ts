// Frames of the live stream: parsing them, and a cache with the newest version of each entity.

import type { Change } from './changes';

export interface Frame {
  seq: number;
  at: number;
  p: Change[];
}

export type StreamEvent = { kind: 'frame'; frame: Frame } | { kind: 'reset'; topics: string[] };

/** Parses server-sent events from chunks of text, which may end anywhere. */
export class EventReader {
  #buffer = '';

  feed(text: string): StreamEvent[] {
    this.#buffer += text;
    const events: StreamEvent[] = [];
    for (let end = this.#buffer.indexOf('\n\n'); end >= 0; end = this.#buffer.indexOf('\n\n')) {
      const event = parseEvent(this.#buffer.slice(0, end));
      this.#buffer = this.#buffer.slice(end + 2);
      if (event) events.push(event);
    }
    return events;
  }
}

function parseEvent(block: string): StreamEvent | null {
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
export class EntityCache {
  readonly #topics = new Map<string, Map<string, unknown>>();
  /** The revision up to which each topic is known. */
  readonly revisions = new Map<string, number>();

  reset(topics: string[]): void {
    for (const topic of topics) this.#topics.set(topic, new Map());
  }

  apply(frame: Frame, followedTopics: Iterable<string>): void {
    for (const { t, k, v } of frame.p) {
      let topic = this.#topics.get(t);
      if (!topic) this.#topics.set(t, (topic = new Map()));
      if (v === null) topic.delete(k);
      else topic.set(k, v);
    }
    for (const name of followedTopics) this.revisions.set(name, frame.seq);
  }

  forget(topic: string): void {
    this.#topics.delete(topic);
    this.revisions.delete(topic);
  }

  /** Returns all entities of a topic, for a tab that subscribes to it. */
  snapshot(topic: string): Change[] {
    return [...(this.#topics.get(topic) ?? [])].map(([k, v]) => ({ t: topic, k, v }));
  }
}
