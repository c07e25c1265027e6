// Pictures made small: a page has few colours, so 256 are enough, and packing takes its time.

import { readFileSync, writeFileSync } from 'node:fs';
import { deflateSync, inflateSync } from 'node:zlib';

const HEAD = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);

// Node has one of its own, but not the oldest that builds the page.
const REMAINDERS = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit++) rest = rest & 1 ? (rest >>> 1) ^ 0xedb88320 : rest >>> 1;
  return rest;
});

function crc32(bytes) {
  let rest = 0xffffffff;
  for (const byte of bytes) rest = (rest >>> 8) ^ REMAINDERS[(rest ^ byte) & 255];
  return (rest ^ 0xffffffff) >>> 0;
}

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

/** How far apart two colours are. */
const apart = (a, b) => ((a >> 16) - (b >> 16)) ** 2 + (((a >> 8) & 255) - ((b >> 8) & 255)) ** 2 + ((a & 255) - (b & 255)) ** 2;

/** A picture of at most 256 colours: those that are used most and those that are most unlike them; each of the others becomes the nearest of them. */
export function small(file) {
  const { width, height, rgb } = pixels(file);
  const used = new Map();
  for (const it of rgb) used.set(it, (used.get(it) ?? 0) + 1);
  const sorted = [...used].sort((a, b) => b[1] - a[1]).map((it) => it[0]);
  const palette = sorted.slice(0, 128);
  // The other half: whatever is least like what is there already, so that a small swatch keeps its colour.
  const rest = sorted.slice(128).map((it) => ({ it, far: Math.min(...palette.map((of) => apart(of, it))) }));
  while (palette.length < 256 && rest.length > 0) {
    const next = rest.reduce((most, one) => (one.far * Math.sqrt(used.get(one.it)) > most.far * Math.sqrt(used.get(most.it)) ? one : most));
    if (next.far === 0) break;
    palette.push(next.it);
    for (const one of rest) one.far = Math.min(one.far, apart(next.it, one.it));
  }
  const place = new Map(palette.map((it, nth) => [it, nth]));
  for (const it of used.keys()) {
    if (place.has(it)) continue;
    let [best, least] = [0, Infinity];
    palette.forEach((of, nth) => {
      const now = apart(of, it);
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
