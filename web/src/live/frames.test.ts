import { describe, expect, it } from 'vitest';
import { mergeChanges } from './changes';
import { EntityCache, EventReader } from './frames';

describe('EventReader', () => {
  it('parses events wherever the text is split', () => {
    const text = ': still here\n\nevent: reset\ndata: {"topics":["lanes"]}\n\nid: 7\ndata: {"seq":7,"at":1,"p":[{"t":"lanes","k":"a","v":{"x":"\\n\\n"}}]}\n\n';
    for (let size = 1; size < text.length; size += 1) {
      const reader = new EventReader();
      const found = [];
      for (let at = 0; at < text.length; at += size) found.push(...reader.feed(text.slice(at, at + size)));
      expect(found).toEqual([
        { kind: 'reset', topics: ['lanes'] },
        { kind: 'frame', frame: { seq: 7, at: 1, p: [{ t: 'lanes', k: 'a', v: { x: '\n\n' } }] } },
      ]);
    }
  });
});

describe('EntityCache', () => {
  it('keeps the newest version of each entity', () => {
    const cache = new EntityCache();
    cache.apply({ seq: 1, at: 0, p: [{ t: 'a', k: 'x', v: 1 }, { t: 'a', k: 'y', v: 2 }] }, ['a', 'b']);
    cache.apply({ seq: 2, at: 0, p: [{ t: 'a', k: 'x', v: 3 }, { t: 'a', k: 'y', v: null }] }, ['a', 'b']);
    expect(cache.snapshot('a')).toEqual([{ t: 'a', k: 'x', v: 3 }]);
    expect(cache.revisions.get('b')).toBe(2);
    cache.reset(['a']);
    expect(cache.snapshot('a')).toEqual([]);
  });

  it('merging frames keeps the last version of each entity', () => {
    const all = [{ t: 'a', k: 'x', v: 1 }, { t: 'a', k: 'x', v: null }, { t: 'b', k: 'x', v: 2 }];
    expect(mergeChanges(all)).toEqual([{ t: 'a', k: 'x', v: null }, { t: 'b', k: 'x', v: 2 }]);
  });
});
