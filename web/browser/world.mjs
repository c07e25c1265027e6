// A test world: a daemon with a repository, agents and tasks. Also the tasks of the scenarios.

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const PROVIDERS = ['claude', 'codex', 'gemini', 'opencode'];

export const HOSTILE = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1"> \u001b[31mred\u001b[0m\u001b]0;title\u0007 \u202eevil\u202c [click](javascript:window.hacked=1)';

const TEAM = `name = "harbour"

[lead]
name = "amy"
provider = "codex"
backend = "scripted"

[[member]]
name = "alice"
provider = "codex"

[[member]]
name = "tom"
provider = "opencode"
backend = "scripted"
script = '[{"say": "here"}]'

[[member]]
name = "bob"
provider = "opencode"
backend = "no-such-program"
`;

export class World {
  constructor(binary, dist) {
    this.binary = binary;
    this.dir = mkdtempSync(join(tmpdir(), 'regatta-web-'));
    this.dist = dist;
    this.env = { ...process.env, REGATTA_DATA_DIR: join(this.dir, 'data'), HOME: this.dir, NO_COLOR: '1' };
  }

  run(...args) {
    return this.runExpecting(0, ...args);
  }

  /** Runs a command and returns its output. Throws if it ends with another exit code than `code`. */
  runExpecting(code, ...args) {
    const done = spawnSync(this.binary, args, { cwd: this.repo ?? this.dir, env: this.env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
    if (done.status !== code) throw new Error(`regatta ${args.join(' ')} ended with ${done.status}: ${done.error ?? ''}${done.stdout}${done.stderr}`);
    return done.stdout;
  }

  /** Starts the daemon, on the same port as before if it was started before. */
  up() {
    const listen = this.port ? `127.0.0.1:${this.port}` : '127.0.0.1:0';
    this.run('up', '--listen', listen, ...(this.dist ? ['--web-dir', this.dist] : []));
    const daemon = JSON.parse(readFileSync(join(this.dir, 'data/daemon.json'), 'utf8'));
    this.url = daemon.url.replace(/\/$/, '');
    this.port = new URL(this.url).port;
    this.token = readFileSync(join(this.dir, 'data/token'), 'utf8').trim();
  }

  write(path, text) {
    mkdirSync(dirname(join(this.repo, path)), { recursive: true });
    writeFileSync(join(this.repo, path), text);
  }

  /** Creates the repository and the agents. `outside` agents have no process, so the test calls the API for them. */
  async setup({ agents, runtime = 'scripted' }) {
    this.repo = join(this.dir, 'webapp');
    mkdirSync(this.repo);
    const git = (...args) => execFileSync('git', ['-c', 'user.name=Ann', '-c', 'user.email=ann@example.com', ...args], { cwd: this.repo, stdio: 'ignore' });
    git('init', '-b', 'main');
    this.write('src/login.rs', 'pub fn login(form: &Form) -> bool {\n    let user = find(&form.email);\n    if user.password == form.password {\n        return true;\n    }\n    false\n}\n');
    this.write('test.sh', '#!/bin/sh\ntest -f src/login.rs\n');
    this.write('regatta.toml', '[project]\nname = "webapp"\ntrunk = "main"\n\n[validation]\ncommands = ["sh ./test.sh"]\n\n[landing]\nprotected = ["auth/**"]\n');
    git('add', '-A');
    git('commit', '-m', 'start');
    this.run('init', '--yes');
    this.agents = [];
    for (let index = 0; index < agents; index += 1) {
      const provider = PROVIDERS[index % PROVIDERS.length];
      const name = `${provider}-${Math.floor(index / PROVIDERS.length) + 1}`;
      await this.call('agent.add', runtime === 'outside' ? { name, runtime, provider } : { name, runtime, provider, profile: { model: 'scripted-big' } });
      this.agents.push(name);
    }
    await this.call('limits.set', { max_attempts: Math.max(1, agents) });
  }

  async call(verb, input = {}) {
    const answer = await fetch(`${this.url}/api/v1/${verb}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' },
      body: JSON.stringify(input),
    });
    const body = await answer.json();
    if (!answer.ok) throw new Error(`${verb}: ${JSON.stringify(body)}`);
    return body.data;
  }

  /** Starts tasks: `[{ subject, files, script, after, agent }]`. */
  async start(title, tasks) {
    const planned = tasks.map((task) => ({
      task: {
        subject: task.subject,
        description: task.description ?? '',
        issue_type: 'docs',
        files: task.files ?? [],
        script: task.script ?? [],
        priority: task.priority ?? 2,
        assign: task.agent ?? null,
      },
      after: task.after ?? [],
    }));
    return this.call('mission.start', { title, agents: this.agents, max_workers: this.agents.length, tasks: planned });
  }

  /** A mixed team that is launched, stopped and launched again. One member's program does not exist, so each launch fails. */
  async team() {
    writeFileSync(join(this.dir, 'team.toml'), TEAM);
    this.run('team', 'create', '--file', join(this.dir, 'team.toml'));
    this.runExpecting(1, 'team', 'launch', 'harbour', '--wait', '4m');
    this.run('team', 'stop', 'harbour');
    this.runExpecting(1, 'team', 'launch', 'harbour', '--wait', '4m');
  }

  open() {
    return this.run('open').trim();
  }

  down() {
    try {
      this.run('down');
    } finally {
      rmSync(this.dir, { recursive: true, force: true });
    }
  }
}

const edit = (path, text) => ({ write: { path, text } });

/** Tasks for a small team: a question, a permission request, a review, blocked tasks and landings. */
export function smallTeam() {
  return [
    { subject: 'Add a user model', files: ['src/model.rs'], agent: 'claude-1', script: [{ say: 'reading the code' }, { usage: { input: 52000, output: 4100, cached: 31000, cost: 0.42, used: 130000, size: 200000 } }, edit('src/model.rs', 'pub struct User;\n'), { run: 'echo checking && sh ./test.sh' }] },
    {
      subject: 'Check passwords in constant time',
      files: ['auth/verify.rs', 'src/login.rs'],
      agent: 'gemini-1',
      after: [0],
      script: [
        { think: 'the comparison leaks how many characters match' },
        { replace: { path: 'src/login.rs', from: 'if user.password == form.password {', to: 'if verify(&form.password, &user.hash)? {\n        sessions.start(&user)?;' } },
        edit('auth/verify.rs', '// constant time\npub fn verify(given: &str, kept: &str) -> bool {\n    given.len() == kept.len()\n}\n'),
        { usage: { input: 22000, output: 2100, cost: 0.21 } },
      ],
    },
    { subject: 'Add a rate limit to the login', files: ['src/limit.rs'], agent: 'codex-1', after: [0], script: [{ say: 'I need a package' }, { permission: 'npm install zod@4' }, edit('src/limit.rs', 'pub const LIMIT: u32 = 5;\n')] },
    { subject: 'Old endpoint', files: ['src/v1.rs'], agent: 'claude-1', after: [0], script: [{ ask: { question: 'Keep the v1 endpoint for old clients, or return 410?', choices: ['Keep v1', '410 Gone'] } }, edit('src/v1.rs', '// kept\n')] },
    { subject: 'Describe the login', files: ['docs/login.md'], after: [1, 2], script: [edit('docs/login.md', '# Login\n')] },
    { subject: 'Note the change', files: ['CHANGELOG.md'], after: [3], script: [edit('CHANGELOG.md', '# Changes\n')] },
  ];
}

/** A change of ten thousand lines in twenty files. */
export function largeTask() {
  const lines = Array.from({ length: 500 }, (_, index) => `fn line_${index}(given: usize) -> usize { given + ${index} }`).join('\n');
  const files = Array.from({ length: 20 }, (_, index) => `auth/large/file-${String(index).padStart(2, '0')}.rs`);
  return [{ subject: 'A large change', files, agent: 'codex-1', script: files.map((path) => edit(path, `${lines}\n`)) }];
}

/** Tasks whose program outputs and writes hostile content. */
export function hostileTasks() {
  return [
    {
      subject: `Hostile ${HOSTILE}`,
      description: HOSTILE,
      files: ['src/evil.html', 'auth/evil.html'],
      agent: 'claude-1',
      script: [
        { say: HOSTILE },
        { say: '\u001b[31m'.repeat(20000) },
        { think: HOSTILE },
        { tool: { title: HOSTILE } },
        { run: "head -c 300000 /dev/zero | tr '\\0' x" },
        edit('src/evil.html', `${HOSTILE}\n${'y'.repeat(200000)}\n`),
        { run: "head -c 10000000 /dev/zero | tr '\\0' z >> src/evil.html" },
        edit('auth/evil.html', `${HOSTILE}\n`),
        { ask: { question: `Hostile ${HOSTILE}`, choices: [HOSTILE.slice(0, 60), 'no'] } },
      ],
    },
  ];
}

/** Tasks for a fleet of scripted agents: long, short, failing, and some with equal requests. */
export function fleetTasks(agents, { seconds = 600 } = {}) {
  const tasks = [];
  agents.forEach((agent, index) => {
    const file = `notes/${index}.md`;
    if (index % 10 === 3) tasks.push({ subject: `Check package ${index}`, files: [file], agent, script: [{ permission: 'npm install zod@4' }, edit(file, 'x\n')] });
    else if (index % 10 === 7) tasks.push({ subject: `Quick note ${index}`, files: [file], agent, script: [{ sleep: 1 + (index % 7) }, edit(file, 'x\n')] });
    else if (index % 15 === 5) tasks.push({ subject: `Broken ${index}`, files: [file], agent, script: [{ sleep: 1 }, { fail: 'the tests do not pass' }] });
    else tasks.push({ subject: `Long work ${index}`, files: [file], agent, script: [{ say: `working on ${index}` }, { usage: { input: 1000 * index, output: 50 * index, cost: 0.01 * index } }, { sleep: seconds }, edit(file, 'x\n')] });
  });
  return tasks;
}

/** Starts tasks for outside agents. Most take their task, and some ask. Returns the attempts that did not ask. */
export async function outsideAgents(world, { asks = 45, review = 20 } = {}) {
  const tasks = world.agents.map((agent, index) => ({ subject: `Work ${index}`, files: [`notes/${index}.md`], agent }));
  await world.start('Add login and rate limits', tasks);
  const attempts = [];
  for (const [index, agent] of world.agents.entries()) {
    if (index % 10 === 9) continue; // some stay idle
    const grant = await world.call('task.poll', { agent, lease_ms: 3_600_000 });
    if (!grant) continue;
    const attempt = { task: grant.task.id, attempt: grant.attempt, token: grant.token };
    if (index % 7 === 3 && asks > 0) {
      asks -= 1;
      const permission = { title: 'npm install zod@4', kind: 'execute', command: index % 2 ? 'npm install zod@4' : 'cargo test' };
      await world.call('attempt.ask', { ...attempt, permission });
    } else if (index % 11 === 5 && review > 0) {
      review -= 1;
      await world.call('attempt.ask', { ...attempt, question: `Keep endpoint ${index}?`, choices: ['Keep', 'Drop'] });
    } else attempts.push(attempt);
  }
  return attempts;
}
