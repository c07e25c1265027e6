// The frame around every page: navigation, the state of the fleet, and the state of the connection.

import { useSignal } from '@preact/signals';
import { Component, type ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { clipMiddle, plain } from './format';
import { Header } from './header';
import { Inbox } from './inbox';
import { PAGES, overlay } from './navigation';
import { lazy } from './lazy';
import { connection, topic } from './live/client';
import { Now } from './pages/now';
import { interrupted } from './interrupted';
import { followLink, route } from './route';
import { pending, shellHint, toasts, useTopics } from './ui';
import type { FleetSummaryView } from './api';

const Task = lazy<{ id: string }>(() => import('./pages/task').then((module) => module.Task));
const missionPages = () => import('./pages/mission');
const MissionPage = lazy<{ id: string }>(() => missionPages().then((module) => module.MissionPage));
const Missions = lazy(() => missionPages().then((module) => module.Missions));
const PlanPage = lazy<{ id: string }>(() => import('./pages/plan').then((module) => module.PlanPage));
const Tasks = lazy(() => import('./pages/tasks').then((module) => module.Tasks));
const Queue = lazy(() => import('./pages/queue').then((module) => module.Queue));
const Files = lazy(() => import('./pages/files').then((module) => module.Files));
const Cost = lazy(() => import('./pages/cost').then((module) => module.Cost));
const Agents = lazy<{ onlyAgent?: string }>(() => import('./pages/agents').then((module) => module.Agents));
const Team = lazy(() => import('./pages/team').then((module) => module.Team));
const Conversations = lazy(() => import('./pages/conversations').then((module) => module.Conversations));
const Replay = lazy(() => missionPages().then((module) => module.Replay));
const Events = lazy(() => import('./pages/events').then((module) => module.Events));
const ConfirmDialog = lazy(() => import('./confirm-dialog').then((module) => module.ConfirmDialog));
const Palette = lazy(() => import('./palette').then((module) => module.Palette));
const Help = lazy(() => import('./palette').then((module) => module.Help));
const InterruptedOffer = lazy(() => import('./interrupted-offer').then((module) => module.InterruptedOffer));
const FirstSteps = lazy<{ head: FleetSummaryView }>(() => import('./first-steps').then((module) => module.FirstSteps));
const NotificationSwitch = lazy(() => import('./notification-switch').then((module) => module.NotificationSwitch));
const Tour = lazy(() => import('./tour').then((module) => module.Tour));
const TourOffer = lazy(() => import('./tour-offer').then((module) => module.TourOffer));
const Setup = lazy(() => import('./pages/setup').then((module) => module.Setup));
const Design = lazy(() => import('./pages/design').then((module) => module.Design));

/** Returns whether the daemon still needs a project or an agent. */
const isFirstRun = (head: FleetSummaryView | undefined) => head !== undefined && (head.projects.length === 0 || head.agents === 0);

/** Now, or the first steps while the daemon manages no project or has no agent. */
function Home() {
  const head = topic('head').get('head');
  if (!head || !isFirstRun(head)) return <Now />;
  return (
    <>
      <FirstSteps head={head} />
      {head.needs_you > 0 && <Inbox />}
    </>
  );
}

function Page({ path }: { path: string }) {
  if (path.startsWith('/t/')) return <Task key={path} id={decodeURIComponent(path.slice(3))} />;
  if (path.startsWith('/m/')) return <MissionPage key={path} id={decodeURIComponent(path.slice(3))} />;
  if (path.startsWith('/plan/')) return <PlanPage key={path} id={decodeURIComponent(path.slice(6))} />;
  if (path.startsWith('/agents/')) return <Agents key={path} onlyAgent={decodeURIComponent(path.slice(8))} />;
  switch (path) {
    case '/':
      return <Home />;
    case '/inbox':
      return (
        <>
          <NotificationSwitch />
          <Inbox maxCards={200} openCards={200} />
        </>
      );
    case '/missions':
      return <Missions />;
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
    case '/design':
      return <Design />;
    default:
      return (
        <p class="empty">
          This page does not exist. <a href="/">Go to Now</a>
        </p>
      );
  }
}

function StatusSentence({ head }: { head: FleetSummaryView | undefined }) {
  if (!head) return <p class="sentence">loading…</p>;
  return (
    <p class="sentence">
      {head.sentence.map((part, index) => {
        const shown = plain(clipMiddle(part.text, 120));
        const content = part.strong ? <b>{shown}</b> : shown;
        return (
          <span key={part.text}>
            {index > 0 && ' · '}
            {part.to ? <a href={part.to}>{content}</a> : content}
          </span>
        );
      })}
    </p>
  );
}

/** Shows an error of a page in its place, instead of an empty page. */
class ErrorBoundary extends Component<{ children: ComponentChildren }, { error: string }> {
  override state = { error: '' };

  override componentDidCatch(error: Error): void {
    this.setState({ error: error.message });
  }

  render() {
    return this.state.error ? <p class="error">This page failed: {this.state.error}. Reload it and report the error.</p> : this.props.children;
  }
}

export function App() {
  useTopics('head', 'inbox');
  void topic('head').changed.value;
  const head = topic('head').get('head');
  const path = route.value.path;
  useEffect(() => {
    const needs = head?.needs_you ?? 0;
    const name = PAGES.find((page) => page.to === path)?.name ?? decodeURIComponent(path.split('/').pop() ?? '');
    document.title = `${needs > 0 ? `(${needs}) ` : ''}${name || 'Now'} · Regatta`;
  }, [path, head?.needs_you]);
  return (
    <div onClick={followLink}>
      <Header head={head} />
      <main id="main" tabIndex={-1} class={connection.value.state === 'lost' ? 'stale' : ''}>
        {!/^\/[tm]\//.test(path) && (
          <>
            <h1 class="sr">{PAGES.find((page) => page.to === path)?.name ?? 'Regatta'}</h1>
            {!(path === '/' && isFirstRun(head)) && <StatusSentence head={head} />}
          </>
        )}
        {interrupted.value && <InterruptedOffer />}
        {path === '/' && head && !isFirstRun(head) && localStorage.getItem('regatta-tour') === null && <TourOffer />}
        <ErrorBoundary key={path}>
          <Page path={path} />
        </ErrorBoundary>
      </main>
      <div class="toasts" role="status" aria-live="polite">
        {toasts.value.map((toast) => (
          <div key={toast.id} class={`toast ${toast.good ? '' : 'bad'}`}>
            {plain(toast.text, 300)}
            {toast.hint && <code>{plain(toast.hint, 300)}</code>}
          </div>
        ))}
      </div>
      {shellHint.value && !/^\/(t|plan)\//.test(path) && (
        <p class="hinted cli" aria-hidden="true">
          same from a shell: <code>{plain(shellHint.value, 200)}</code>
        </p>
      )}
      <Announce needs={head?.needs_you ?? 0} />
      {pending.value && <ConfirmDialog />}
      {overlay.value === 'palette' && <Palette />}
      {overlay.value === 'help' && <Help />}
      {overlay.value === 'tour' && <Tour />}
    </div>
  );
}

/** Announces to screen readers when more items need a person. */
function Announce({ needs }: { needs: number }) {
  const before = useSignal(needs);
  const text = useSignal('');
  useEffect(() => {
    if (needs > before.peek()) text.value = `${needs} need you`;
    before.value = needs;
  }, [needs]);
  return (
    <div class="sr" role="alert" aria-live="assertive">
      {text.value}
    </div>
  );
}
