// The frame around every page: where one can go, how the fleet is, and whether what is seen is true now.

import { useSignal } from '@preact/signals';
import { Component, type ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { clipped, clockTime, plain } from './format';
import { Inbox } from './inbox';
import { PAGES, over, pause } from './keys';
import { later } from './lazy';
import { link, paused, topic, waiting } from './live/client';
import { Now } from './pages/now';
import { follow, place } from './route';
import { theme } from './theme';
import { hinted, pending, toasts, useTopics } from './ui';
import type { Head } from './views';

const Task = later<{ id: string }>(() => import('./pages/task').then((it) => it.Task));
const PlanPage = later<{ id: string }>(() => import('./pages/plan').then((it) => it.PlanPage));
const Tasks = later(() => import('./pages/tasks').then((it) => it.Tasks));
const Queue = later(() => import('./pages/queue').then((it) => it.Queue));
const Files = later(() => import('./pages/files').then((it) => it.Files));
const Cost = later(() => import('./pages/cost').then((it) => it.Cost));
const Agents = later<{ only?: string }>(() => import('./pages/agents').then((it) => it.Agents));
const Team = later(() => import('./pages/team').then((it) => it.Team));
const Conversations = later(() => import('./pages/conversations').then((it) => it.Conversations));
const Replay = later(() => import('./pages/replay').then((it) => it.Replay));
const Events = later(() => import('./pages/events').then((it) => it.Events));
const Ask = later(() => import('./confirm-dialog').then((it) => it.Ask));
const Palette = later(() => import('./palette').then((it) => it.Palette));
const Help = later(() => import('./palette').then((it) => it.Help));
const Setup = later(() => import('./pages/setup').then((it) => it.Setup));

function Page({ path }: { path: string }) {
  if (path.startsWith('/t/')) return <Task key={path} id={decodeURIComponent(path.slice(3))} />;
  if (path.startsWith('/plan/')) return <PlanPage key={path} id={decodeURIComponent(path.slice(6))} />;
  if (path.startsWith('/agents/')) return <Agents key={path} only={decodeURIComponent(path.slice(8))} />;
  switch (path) {
    case '/':
      return <Now />;
    case '/inbox':
      return <Inbox most={200} open={200} />;
    case '/tasks':
      return <Tasks />;
    case '/queue':
      return <Queue />;
    case '/files':
      return <Files />;
    case '/cost':
      return <Cost />;
    case '/agents':
      return <Agents />;
    case '/team':
      return <Team />;
    case '/conversations':
      return <Conversations />;
    case '/replay':
      return <Replay />;
    case '/events':
      return <Events />;
    case '/setup':
      return <Setup />;
    default:
      return (
        <p class="empty">
          There is no such page. <a href="/">Go to Now</a>
        </p>
      );
  }
}

/** Whether what is seen is true now. */
function Link() {
  const it = link.value;
  if (paused.value) {
    return (
      <button type="button" class="link held" onClick={pause}>
        ‖ held back, {waiting.value} changes wait
      </button>
    );
  }
  switch (it.state) {
    case 'live':
      return (
        <button type="button" class="link live" onClick={pause} title="Hold back updates: .">
          ● live
        </button>
      );
    case 'lost':
      return <span class="link lost">○ reconnecting{it.since ? `, data from ${clockTime(it.since)}` : ''}</span>;
    default:
      return <span class="link">○ connecting</span>;
  }
}

function Top({ head }: { head: Head | undefined }) {
  const path = place.value.path;
  const needs = head?.needs_you ?? 0;
  return (
    <header class="top">
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <b class="brand">regatta</b>
      <span class="mono where">{head?.projects.length === 1 ? `${head.projects[0]?.name} · ${head.projects[0]?.trunk}` : head ? `${head.projects.length} projects` : ''}</span>
      <nav aria-label="Pages">
        {PAGES.map(([key, to, name]) => (
          <a key={to} href={to} aria-current={path === to || (to === '/tasks' && path.startsWith('/t/')) || (to === '/agents' && path.startsWith('/agents/')) ? 'page' : undefined} title={`g ${key}`}>
            {name}
          </a>
        ))}
      </nav>
      <span class="right-side">
        <a href="/inbox" class={`badge ${needs > 0 ? 'hot' : ''}`}>
          {needs} need{needs === 1 ? 's' : ''} you
        </a>
        {head && (
          <span class="badge slots">
            slots {head.running}/{head.slots}
          </span>
        )}
        <button type="button" class="key" onClick={() => (over.value = 'palette')} aria-label="⌘K: commands, also Ctrl-K">
          ⌘K
        </button>
        <button type="button" class="key" onClick={() => (over.value = 'help')} aria-label="? Keys">
          ?
        </button>
        <button type="button" class="key" onClick={theme.turn} aria-label="◐ light or dark">
          ◐
        </button>
        <Link />
      </span>
    </header>
  );
}

function Sentence({ head }: { head: Head | undefined }) {
  if (!head) return <p class="sentence">asking the daemon…</p>;
  return (
    <p class="sentence">
      {head.sentence.map((it, nth) => {
        const words = plain(clipped(it.text, 120));
        const text = it.strong ? <b>{words}</b> : words;
        return (
          <span key={it.text}>
            {nth > 0 && ' · '}
            {it.to ? <a href={it.to}>{text}</a> : text}
          </span>
        );
      })}
    </p>
  );
}

/** What goes wrong in one part of the page is said there, not shown as nothing. */
class Guard extends Component<{ children: ComponentChildren }, { error: string }> {
  override state = { error: '' };

  override componentDidCatch(error: Error): void {
    this.setState({ error: error.message });
  }

  render() {
    return this.state.error ? <p class="error">This page broke: {this.state.error}. Load it again, and please report it.</p> : this.props.children;
  }
}

export function App() {
  useTopics('head', 'inbox');
  void topic('head').changed.value;
  const head = topic('head').one<Head>('head');
  const path = place.value.path;
  useEffect(() => {
    const needs = head?.needs_you ?? 0;
    const name = PAGES.find((it) => it[1] === path)?.[2] ?? decodeURIComponent(path.split('/').pop() ?? '');
    document.title = `${needs > 0 ? `(${needs}) ` : ''}${name || 'Now'} · Regatta`;
  }, [path, head?.needs_you]);
  return (
    <div onClick={follow}>
      <Top head={head} />
      <main id="main" tabIndex={-1} class={link.value.state === 'lost' ? 'stale' : ''}>
        {!path.startsWith('/t/') && (
          <>
            <h1 class="sr">{PAGES.find((it) => it[1] === path)?.[2] ?? 'Regatta'}</h1>
            <Sentence head={head} />
          </>
        )}
        <Guard key={path}>
          <Page path={path} />
        </Guard>
      </main>
      <div class="toasts" role="status" aria-live="polite">
        {toasts.value.map((it) => (
          <div key={it.id} class={`toast ${it.good ? '' : 'bad'}`}>
            {plain(it.text, 300)}
            {it.hint && <code>{plain(it.hint, 300)}</code>}
          </div>
        ))}
      </div>
      {hinted.value && !/^\/(t|plan)\//.test(path) && (
        <p class="hinted cli" aria-hidden="true">
          same from a shell: <code>{plain(hinted.value, 200)}</code>
        </p>
      )}
      <Announce needs={head?.needs_you ?? 0} />
      {pending.value && <Ask />}
      {over.value === 'palette' && <Palette />}
      {over.value === 'help' && <Help />}
    </div>
  );
}

/** Says it aloud when somebody new waits. */
function Announce({ needs }: { needs: number }) {
  const before = useSignal(needs);
  const words = useSignal('');
  useEffect(() => {
    if (needs > before.peek()) words.value = `${needs} need you`;
    before.value = needs;
  }, [needs]);
  return (
    <div class="sr" role="alert" aria-live="assertive">
      {words.value}
    </div>
  );
}
