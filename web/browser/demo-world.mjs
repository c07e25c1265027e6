// A running `regatta demo --serve`, the first command of the README, with its page.

import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { World } from './world.mjs';

export class DemoWorld extends World {
  constructor(binary, dist, size) {
    super(binary, dist);
    this.text = '';
    this.env = { ...this.env, TMPDIR: mkdtempSync(join(tmpdir(), 'regatta-played-')), ...(dist ? { REGATTA_WEB_DIR: dist } : {}) };
    this.child = spawn(binary, ['demo', '--serve', '--size', String(size)], { cwd: this.dir, env: this.env, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const pipe of [this.child.stdout, this.child.stderr]) pipe.on('data', (chunk) => (this.text += chunk));
    this.over = new Promise((done) => this.child.on('exit', done));
  }

  /** Waits until the demo prints text that matches `shape`, and returns the first group. */
  async printed(shape, ms = 60_000) {
    const end = Date.now() + ms;
    for (;;) {
      const found = shape.exec(this.text);
      if (found) return found[1];
      if (Date.now() > end) throw new Error(`the demo printed no ${shape}: ${this.text}`);
      await new Promise((done) => setTimeout(done, 20));
    }
  }

  /** Returns the address of the page with its sign-in code. After this, `call` works. */
  async page() {
    const url = await this.printed(/^web +(http\S+)/m);
    this.repo = await this.printed(/^repo +(\S+)/m);
    this.env.REGATTA_DATA_DIR = join(this.repo, '..', 'data');
    this.url = new URL(url).origin;
    this.token = readFileSync(join(this.env.REGATTA_DATA_DIR, 'token'), 'utf8').trim();
    this.pid = JSON.parse(readFileSync(join(this.env.REGATTA_DATA_DIR, 'daemon.json'), 'utf8')).pid;
    return url;
  }

  async end() {
    try {
      if (this.token) this.run('down');
    } finally {
      this.child.kill();
      await this.over;
      // A check that ran when the daemon ended is stopped by its shim a moment later, so retry the removal.
      rmSync(this.env.TMPDIR, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
      rmSync(this.dir, { recursive: true, force: true });
    }
  }
}
