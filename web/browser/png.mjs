// Pictures made small: a page has few colours, so the most used 256 are enough, and packing takes its time.

import { readFileSync, writeFileSync } from 'node:fs';
import { crc32, deflateSync, inflateSync } from 'node:zlib';

const HEAD = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);

function chunk(kind, data) {
  const body = Buffer.concat([Buffer.from(kind, 'latin1'), data]);
  const made = Buffer.alloc(body.length + 8);
  made.writeUInt32BE(data.length);
  body.copy(made, 4);
  made.writeUInt32BE(crc32(body), body.length + 4);
  return made;
}

/** The pixels of a picture as browsers write it: eight bits, RGB or RGBA. */
export function pixels(file) {
  let [width, height, each] = [0, 0, 3];
  const parts = [];
  for (let at = 8; at < file.length; ) {
    const long = file.readUInt32BE(at);
    const kind = file.toString('latin1', at + 4, at + 8);
    const data = file.subarray(at + 8, at + 8 + long);
    if (kind === 'IHDR') [width, height, each] = [data.readUInt32BE(0), data.readUInt32BE(4), data[9] === 6 ? 4 : 3];
    if (kind === 'IDAT') parts.push(data);
    at += long + 12;
  }
  const raw = inflateSync(Buffer.concat(parts));
  const line = width * each;
  const rgb = new Uint32Array(width * height);
  let before = new Uint8Array(line);
  for (let y = 0; y < height; y += 1) {
    const filter = raw[y * (line + 1)];
    const now = new Uint8Array(raw.subarray(y * (line + 1) + 1, (y + 1) * (line + 1)));
    for (let x = 0; x < line; x += 1) {
      const [a, b, c] = [x >= each ? now[x - each] : 0, before[x], x >= each ? before[x - each] : 0];
      const p = a + b - c;
      const paeth = Math.abs(p - a) <= Math.abs(p - b) && Math.abs(p - a) <= Math.abs(p - c) ? a : Math.abs(p - b) <= Math.abs(p - c) ? b : c;
      now[x] += [0, a, b, (a + b) >> 1, paeth][filter];
    }
    for (let x = 0; x < width; x += 1) rgb[y * width + x] = (now[x * each] << 16) | (now[x * each + 1] << 8) | now[x * each + 2];
    before = now;
  }
  return { width, height, rgb };
}

/** A picture of at most 256 colours: those that are used most; each of the others becomes the nearest of them. */
export function small(file) {
  const { width, height, rgb } = pixels(file);
  const used = new Map();
  for (const it of rgb) used.set(it, (used.get(it) ?? 0) + 1);
  const palette = [...used].sort((a, b) => b[1] - a[1]).slice(0, 256).map((it) => it[0]);
  const place = new Map(palette.map((it, nth) => [it, nth]));
  for (const it of used.keys()) {
    if (place.has(it)) continue;
    const far = (of) => ((of >> 16) - (it >> 16)) ** 2 + (((of >> 8) & 255) - ((it >> 8) & 255)) ** 2 + ((of & 255) - (it & 255)) ** 2;
    let [best, least] = [0, Infinity];
    palette.forEach((of, nth) => {
      const now = far(of);
      if (now < least) [best, least] = [nth, now];
    });
    place.set(it, best);
  }
  const lines = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) lines[y * (width + 1) + 1 + x] = place.get(rgb[y * width + x]);
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width);
  head.writeUInt32BE(height, 4);
  head.set([8, 3, 0, 0, 0], 8);
  const colours = Buffer.from(palette.flatMap((it) => [it >> 16, (it >> 8) & 255, it & 255]));
  return Buffer.concat([HEAD, chunk('IHDR', head), chunk('PLTE', colours), chunk('IDAT', deflateSync(lines, { level: 9 })), chunk('IEND', Buffer.alloc(0))]);
}

export function shrink(path) {
  const before = readFileSync(path);
  const after = small(before);
  if (after.length < before.length) writeFileSync(path, after);
}
