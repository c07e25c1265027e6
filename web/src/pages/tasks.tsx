import { named, plain, usd } from '../format';
import { byName, topic } from '../live/client';
import { Graph } from '../plots/graph';
import { get, set } from '../route';
import { type Column, Heads, ordered } from '../table';
import { Age, Empty, Glyph, Panel, TaskLink, useTopics } from '../ui';
import { type At, type Head, type Row, STATES } from '../views';

const COLUMNS: At[] = ['waiting', 'working', 'needs', 'review', 'landing', 'landed', 'failed'];
const BOARD = 150;
const LIST = 200;

export function matches(it: Row, words: string, at: string, mission: string): boolean {
  if (at && it.at !== at) return false;
  if (mission && it.mission !== mission) return false;
  const text = `${it.id} ${it.subject} ${it.agent ?? ''} ${it.text}`.toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

function Line({ it }: { it: Row }) {
  return (
    <tr data-row tabIndex={0}>
      <td class={`mark at-${it.at}`}>
        <i aria-hidden="true">{STATES[it.at].glyph}</i> {it.word}
      </td>
      <td>
        <TaskLink id={it.id} />
      </td>
      <td class="subject" title={plain(it.subject, 200)}>
        {plain(it.subject, 200)}
      </td>
      <td class="who" title={it.agent ?? ''}>
        {named(it.agent ?? '')}
      </td>
      <td class="dim" title={plain(it.text, 400)}>
        {plain(it.text, 140)}
      </td>
      <td class="right">{it.micro_usd === undefined ? '' : usd(it.micro_usd)}</td>
      <td class="right">
        <Age since={it.since_wall} />
      </td>
    </tr>
  );
}

const HEADS: Column<Row>[] = [
  { name: 'at', head: 'State', of: (it) => STATES[it.at].rank },
  { name: 'id', head: 'Task', of: (it) => it.id },
  { name: 'subject', head: 'Subject', of: (it) => it.subject },
  { name: 'agent', head: 'Agent', of: (it) => it.agent },
  { name: 'why', head: 'Why' },
  { name: 'cost', head: 'Cost', of: (it) => it.micro_usd, right: true },
  { name: 'since', head: 'For', of: (it) => -it.since_wall, right: true },
];

/** A button that shows more of something; how much is in the address. */
function More({ name, value, words }: { name: string; value: string; words: string }) {
  return (
    <button type="button" class="do" onClick={() => set(name, value)}>
      {words}
    </button>
  );
}

function List({ rows, missions }: { rows: Row[]; missions: Map<string, string> }) {
  const most = Math.max(LIST, Number(get('most')) || 0);
  const groups = new Map<string, Row[]>();
  for (const it of rows.slice(0, most)) groups.set(it.mission ?? '', [...(groups.get(it.mission ?? '') ?? []), it]);
  return (
    <div class="scroll">
      <table class="list tasks">
        <Heads columns={HEADS} />
        {[...groups].map(([mission, of]) => (
          <tbody key={mission}>
            <tr class="group">
              <th colSpan={HEADS.length} scope="rowgroup">
                {mission ? (
                  <>
                    <a href={`/tasks?mission=${mission}`}>
                      {mission} {plain(missions.get(mission) ?? '', 120)}
                    </a>{' '}
                    · {rows.filter((it) => it.mission === mission).length} · <a href={`/tasks?mission=${mission}&view=graph`}>graph</a> · <a href={`/replay?mission=${mission}`}>replay</a>
                  </>
                ) : (
                  `no mission · ${rows.filter((it) => !it.mission).length}`
                )}
              </th>
            </tr>
            {of.map((it) => (
              <Line key={it.id} it={it} />
            ))}
          </tbody>
        ))}
      </table>
      {rows.length > most && (
        <p class="row">
          <More name="most" value={String(most + LIST)} words={`Show ${Math.min(LIST, rows.length - most)} more`} /> <span class="dim">{rows.length - most} are not shown; a filter narrows them down</span>
        </p>
      )}
    </div>
  );
}

const PILE = 50;

function Board({ rows }: { rows: Row[] }) {
  return (
    <div class="board">
      {COLUMNS.map((at) => {
        const of = rows.filter((it) => it.at === at);
        const whole = get('whole') === at;
        if (of.length === 0 && (at === 'failed' || at === 'needs' || at === 'review')) return null;
        return (
          <section key={at} aria-label={STATES[at].word}>
            <h3>
              <Glyph at={at} /> {STATES[at].word} {of.length}
            </h3>
            {of.slice(0, whole ? BOARD : PILE).map((it) => (
              <a key={it.id} class={`tile edge-${at}`} href={`/t/${it.id}`} data-row>
                <b>{it.id}</b> {plain(it.subject, 80)}
                <small>
                  {named(it.agent ?? '')} {plain(it.text, 70)}
                </small>
              </a>
            ))}
            {of.length > PILE && !whole && <More name="whole" value={at} words={`Show ${of.length - PILE} more`} />}
          </section>
        );
      })}
    </div>
  );
}

export function Tasks() {
  useTopics('tasks', 'head');
  const head = topic('head').one<Head>('head');
  const missions = new Map(head?.missions.map((it) => [it.id, it.title]) ?? []);
  const all = topic('tasks').all<Row>();
  const [words, at, mission] = [get('q'), get('at'), get('mission')];
  const found = all.filter((it) => matches(it, words, at, mission)).sort((a, b) => STATES[a.at].rank - STATES[b.at].rank || byName(a.id, b.id));
  const rows = ordered(found, HEADS, get('sort'));
  const asked = get('view');
  const view = asked === 'board' && rows.length > BOARD ? 'list' : asked || 'list';
  // The daemon sends the open tasks and the latest that ended.
  const older = Math.max(0, (head?.tasks ?? 0) - all.length);
  const counts = COLUMNS.map((it) => [it, all.filter((row) => row.at === it && (!mission || row.mission === mission)).length] as const);
  return (
    <Panel
      title={older > 0 ? `${rows.length} of ${all.length + older} tasks` : `${rows.length} task${rows.length === 1 ? '' : 's'}`}
      aside={
        <span class="filters">
          <input id="filter" type="search" aria-label="Filter" placeholder="filter  /" value={words} onInput={(it) => set('q', it.currentTarget.value)} />
          {counts.map(([it, many]) => (
            <button key={it} type="button" class="chip" aria-pressed={at === it} onClick={() => set('at', at === it ? null : it, true)}>
              <Glyph at={it} /> {STATES[it].word} {many}
            </button>
          ))}
          {mission && (
            <button type="button" class="chip" aria-pressed="true" onClick={() => set('mission', null, true)}>
              {mission} ✕
            </button>
          )}
          <span class="tabs" role="group" aria-label="View">
            {['list', 'board', 'graph'].map((it) => (
              <button key={it} type="button" class="chip" aria-pressed={view === it} onClick={() => set('view', it === 'list' ? null : it, true)}>
                {it}
              </button>
            ))}
          </span>
        </span>
      }
    >
      {older > 0 && <p class="dim">{older} older tasks are not listed: regatta task list --all</p>}
      {asked === 'board' && view === 'list' && <p class="empty">A board shows up to {BOARD} tasks; this is the list.</p>}
      {view === 'graph' ? (
        <Graph of={get('around') || mission} fits={words || at ? (id) => rows.some((it) => it.id === id) : null} />
      ) : rows.length === 0 ? (
        <Empty known={topic('tasks').known.value}>{all.length === 0 ? 'There is no task yet: regatta add "…", or regatta demo' : older > 0 ? 'None of the tasks listed here matches.' : 'No task matches.'}</Empty>
      ) : view === 'board' ? (
        <Board rows={rows} />
      ) : (
        <List rows={rows} missions={missions} />
      )}
    </Panel>
  );
}
