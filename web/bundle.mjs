// Builds the page into the crate that embeds it, so that Cargo's build needs no Node.
//
//   node bundle.mjs          writes ../crates/regatta-server/page and page.lock
//   node bundle.mjs --check  builds into a temporary directory and fails if the committed page differs
//
// page.lock contains two hashes: of the page's sources and of the built page. A Rust test (xtask/tests/page.rs) computes
// both without Node, so `cargo test` finds a built page that does not match its sources.

import { createHash } from 'node:crypto';
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';

const web = fileURLToPath(new URL('.', import.meta.url));
const page = join(web, '../crates/regatta-server/page');
const lock = join(web, '../crates/regatta-server/page.lock');

/** Everything that the built page depends on. Test files are excluded below. */
const SOURCES = ['index.html', 'package.json', 'package-lock.json', 'tsconfig.json', 'vite.config.ts', 'public', 'src'];

function filesOf(path) {
  try {
    return readdirSync(path, { withFileTypes: true }).flatMap((entry) => filesOf(join(path, entry.name)));
  } catch (error) {
    if (error.code === 'ENOTDIR') return [path];
    throw error;
  }
}

/** Hashes files together with their paths relative to `top`, sorted by the bytes of these paths. */
function hashOf(top, paths) {
  const named = paths.map((path) => [relative(top, path).split(sep).join('/'), path]);
  named.sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  const all = createHash('sha256');
  for (const [name, path] of named) {
    all.update(`${name}\n${createHash('sha256').update(readFileSync(path)).digest('hex')}\n`);
  }
  return all.digest('hex');
}

const isTest = (path) => /\.test\.tsx?$/.test(path);
const sources = SOURCES.flatMap((name) => filesOf(join(web, name))).filter((path) => !isTest(path));
const fresh = mkdtempSync(join(tmpdir(), 'regatta-page-'));
try {
  await build({ root: web, logLevel: 'warn', build: { outDir: fresh, emptyOutDir: true } });
  if (process.argv.includes('--check')) {
    if (hashOf(fresh, filesOf(fresh)) !== hashOf(page, filesOf(page))) {
      console.error('the committed page does not match its sources: run `cargo xtask web --build`');
      process.exitCode = 1;
    }
  } else {
    rmSync(page, { recursive: true, force: true });
    cpSync(fresh, page, { recursive: true });
    const header = '# Written by `cargo xtask web --build`. Do not edit; a conflict is resolved by running that again.\n';
    writeFileSync(lock, `${header}sources ${hashOf(web, sources)}\npage ${hashOf(page, filesOf(page))}\n`);
  }
} finally {
  rmSync(fresh, { recursive: true, force: true });
}
