// Shrinks screenshots. Pages have few colours, so a palette of 256 is enough, with the best compression.

import { readFileSync, writeFileSync } from 'node:fs';
import { deflateSync, inflateSync } from 'node:zlib';

const SIGNATURE = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);

// node:zlib has crc32 only in newer versions than the oldest one that can build the page.
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let remainder = byte;
  for (let bit = 0; bit < 8; bit++) remainder = remainder & 1 ? (remainder >>> 1) ^ 0xedb88320 : remainder >>> 1;
  return remainder;
});

function crc32(bytes) {
  let remainder = 0xffffffff;
  for (const byte of bytes) remainder = (remainder >>> 8) ^ CRC_TABLE[(remainder ^ byte) & 255];
  return (remainder ^ 0xffffffff) >>> 0;
}

function chunk(kind, data) {
  const body = Buffer.concat([Buffer.from(kind, 'latin1'), data]);
  const bytes = Buffer.alloc(body.length + 8);
  bytes.writeUInt32BE(data.length);
  body.copy(bytes, 4);
  bytes.writeUInt32BE(crc32(body), body.length + 4);
  return bytes;
}

/** Decodes a PNG as browsers write it: eight bits per channel, RGB or RGBA. */
export function pixels(file) {
  let [width, height, bytesPerPixel] = [0, 0, 3];
  const parts = [];
  for (let at = 8; at < file.length; ) {
    const length = file.readUInt32BE(at);
    const kind = file.toString('latin1', at + 4, at + 8);
    const data = file.subarray(at + 8, at + 8 + length);
    if (kind === 'IHDR') [width, height, bytesPerPixel] = [data.readUInt32BE(0), data.readUInt32BE(4), data[9] === 6 ? 4 : 3];
    if (kind === 'IDAT') parts.push(data);
    at += length + 12;
  }
  const raw = inflateSync(Buffer.concat(parts));
  const rowBytes = width * bytesPerPixel;
  const rgb = new Uint32Array(width * height);
  let previous = new Uint8Array(rowBytes);
  for (let y = 0; y < height; y += 1) {
    const filter = raw[y * (rowBytes + 1)];
    const current = new Uint8Array(raw.subarray(y * (rowBytes + 1) + 1, (y + 1) * (rowBytes + 1)));
    for (let x = 0; x < rowBytes; x += 1) {
      const [a, b, c] = [x >= bytesPerPixel ? current[x - bytesPerPixel] : 0, previous[x], x >= bytesPerPixel ? previous[x - bytesPerPixel] : 0];
      const p = a + b - c;
      const paeth = Math.abs(p - a) <= Math.abs(p - b) && Math.abs(p - a) <= Math.abs(p - c) ? a : Math.abs(p - b) <= Math.abs(p - c) ? b : c;
      current[x] += [0, a, b, (a + b) >> 1, paeth][filter];
    }
    for (let x = 0; x < width; x += 1) rgb[y * width + x] = (current[x * bytesPerPixel] << 16) | (current[x * bytesPerPixel + 1] << 8) | current[x * bytesPerPixel + 2];
    previous = current;
  }
  return { width, height, rgb };
}

/** Returns the squared distance of two colours. */
const colourDistance = (a, b) => ((a >> 16) - (b >> 16)) ** 2 + (((a >> 8) & 255) - ((b >> 8) & 255)) ** 2 + ((a & 255) - (b & 255)) ** 2;

/** Encodes a PNG with at most 256 colours. Each pixel gets the nearest colour of the palette. */
export function quantize(file) {
  const { width, height, rgb } = pixels(file);
  const used = new Map();
  for (const colour of rgb) used.set(colour, (used.get(colour) ?? 0) + 1);
  const sorted = [...used].sort((a, b) => b[1] - a[1]).map((entry) => entry[0]);
  const palette = sorted.slice(0, 128);
  // Half of the palette are the most frequent colours. The other half are the colours that differ most from them, so that
  // small areas keep their colour.
  const others = sorted.slice(128).map((colour) => ({ colour, distance: Math.min(...palette.map((chosen) => colourDistance(chosen, colour))) }));
  while (palette.length < 256 && others.length > 0) {
    const weight = (entry) => entry.distance * Math.sqrt(used.get(entry.colour));
    const next = others.reduce((best, entry) => (weight(entry) > weight(best) ? entry : best));
    if (next.distance === 0) break;
    palette.push(next.colour);
    for (const entry of others) entry.distance = Math.min(entry.distance, colourDistance(next.colour, entry.colour));
  }
  const paletteIndex = new Map(palette.map((colour, index) => [colour, index]));
  for (const colour of used.keys()) {
    if (paletteIndex.has(colour)) continue;
    let [best, least] = [0, Infinity];
    palette.forEach((candidate, index) => {
      const current = colourDistance(candidate, colour);
      if (current < least) [best, least] = [index, current];
    });
    paletteIndex.set(colour, best);
  }
  const scanlines = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) scanlines[y * (width + 1) + 1 + x] = paletteIndex.get(rgb[y * width + x]);
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width);
  header.writeUInt32BE(height, 4);
  header.set([8, 3, 0, 0, 0], 8);
  const colours = Buffer.from(palette.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]));
  return Buffer.concat([SIGNATURE, chunk('IHDR', header), chunk('PLTE', colours), chunk('IDAT', deflateSync(scanlines, { level: 9 })), chunk('IEND', Buffer.alloc(0))]);
}

export function shrink(path) {
  const previous = readFileSync(path);
  const after = quantize(previous);
  if (after.length < previous.length) writeFileSync(path, after);
}
