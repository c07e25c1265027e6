// Makes the PNG icons of the installable page from src/favicon.svg, in a browser.
//
//   node icons.mjs   writes public/assets/icon-*.png

import { mkdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { shrink } from './browser/png.mjs';

const assets = fileURLToPath(new URL('public/assets', import.meta.url));
const mark = readFileSync(new URL('src/favicon.svg', import.meta.url), 'utf8').replace(/<svg [^>]*>|<\/svg>/g, '');

/** Returns the mark on a ground. `part` is how much of the width the mark takes; a maskable icon needs a wide margin,
 * because a phone cuts its corners. */
function icon(part, corner) {
  const margin = (16 / part - 16) / 2;
  const size = 16 + 2 * margin;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="${-margin} ${-margin} ${size} ${size}"><rect x="${-margin}" y="${-margin}" width="${size}" height="${size}" rx="${corner * size}" fill="#fff"/>${mark}</svg>`;
}

const ICONS = [
  { name: 'icon-192', size: 192, part: 0.72, corner: 0.2 },
  { name: 'icon-512', size: 512, part: 0.72, corner: 0.2 },
  { name: 'icon-maskable-512', size: 512, part: 0.52, corner: 0 },
  { name: 'apple-touch-icon', size: 180, part: 0.66, corner: 0 },
  // A badge in the bar of a phone shows only the shape.
  { name: 'badge-96', size: 96, part: 0.9, corner: 0, isShape: true },
];

mkdirSync(assets, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
for (const { name, size, part, corner, isShape } of ICONS) {
  const page = await browser.newPage({ viewport: { width: size, height: size } });
  const svg = isShape ? icon(part, corner).replace('fill="#fff"', 'fill="none"').replaceAll('#2357d9', '#fff') : icon(part, corner);
  await page.setContent(`<style>body{margin:0}svg{display:block;width:${size}px;height:${size}px}</style>${svg}`);
  const path = `${assets}/${name}.png`;
  await page.screenshot({ path, omitBackground: true });
  if (!isShape && corner === 0) shrink(path);
  await page.close();
}
await browser.close();
