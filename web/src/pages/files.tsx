import { clockTime, plain } from '../format';
import { topic } from '../live/client';
import { get, set } from '../route';
import { Age, Empty, Panel, TaskLink, useTopics } from '../ui';
import type { Files as View, Folder, Share, Spot } from '../views';

/** How many folders and how many files of one are drawn. */
const FOLDERS = 300;
const FILES = 60;

/** Until when somebody holds it. */
export function until(it: { until_wall?: number; until?: string }): string {
  return it.until_wall ? `until ${clockTime(it.until_wall, false)}` : (it.until ?? '');
}

/** The folders with something that matches, and only that in them. */
export function matching(folders: Folder[], words: string): Folder[] {
  if (!words) return folders;
  const has = (it: Spot) => it.path.toLowerCase().includes(words) || it.held.some((one) => `${one.agent ?? one.owner} ${one.task ?? ''}`.toLowerCase().includes(words)) || it.wanted.some((one) => one.toLowerCase() === words);
  return folders.flatMap((it) => {
    const own = it.own.filter(has);
    return own.length > 0 ? [{ ...it, own, depth: 0 }] : [];
  });
}

/** How hot it is: 0 to 4, twice as much each. */
export function heat(hot: number): number {
  return hot === 0 ? 0 : Math.min(4, 1 + Math.floor(Math.log2(hot)));
}

function Heat({ hot }: { hot: number }) {
  return (
    <span class={`heat heat-${heat(hot)}`} title={`${hot} changes landed today`}>
      {hot > 0 ? hot : ''}
      <span class="sr">{hot === 1 ? ' change landed today' : ' changes landed today'}</span>
    </span>
  );
}

/** One bar: whose how much of a folder is, what is only waited for, and where two meet. */
function Bar({ of, most }: { of: Folder; most: number }) {
  const held = of.held.reduce((sum, it) => sum + it.spots, 0);
  const waits = Math.max(0, Math.min(of.wanted, of.spots - held));
  const wide = (many: number) => `${(100 * many) / Math.max(1, most)}%`;
  return (
    <div class={`hold ${of.clashes ? 'clash' : ''}`} aria-hidden="true">
      {of.held.slice(0, 12).map((it, nth) => (
        <i key={`${it.holder}${it.task}`} class={`held held-${nth % 3}`} style={{ width: wide(it.spots) }} title={`${it.holder} ${it.task ?? ''} ${until(it)}`} />
      ))}
      {waits > 0 && <i class="waits" style={{ width: wide(waits) }} title={`${waits} waited for`} />}
    </div>
  );
}

function Holder({ it }: { it: Share }) {
  return (
    <span class="holder">
      {it.task ? <TaskLink id={it.task} /> : null}
      {plain(it.holder, 40)} <span class="dim">{until(it)}</span>
    </span>
  );
}

/** Where two meet: both, and the way to why. */
function Meet({ tasks }: { tasks: string[] }) {
  if (tasks.length === 0) return null;
  return (
    <span class="meet" title={`${tasks.join(' and ')} want it, and nothing says who goes first`}>
      <b class="bad">✕ </b>
      {tasks.slice(0, 6).map((id, nth) => (
        <span key={id}>
          {nth > 0 && ' and '}
          <a class="id" href={`/t/${id}#why`} title={`regatta why ${id}`}>
            {id}
          </a>
        </span>
      ))}
      {tasks.length > 6 && ` and ${tasks.length - 6} more`}
    </span>
  );
}

function One({ it, depth }: { it: Spot; depth: number }) {
  return (
    <tr class={`spot ${it.clash.length > 0 ? 'clash' : ''}`} data-row tabIndex={0}>
      <td class="mono" style={{ paddingLeft: `${28 + 14 * Math.min(8, depth)}px` }}>
        {plain(it.path, 200)}
      </td>
      <td>
        {it.held.map((one) => (
          <span key={one.owner} class="holder">
            {one.task && <TaskLink id={one.task} />}
            {plain(one.agent ?? one.owner, 40)} <span class="dim">{until(one)}</span> <Age since={one.since_wall} /> {plain(one.memo, 80)}
          </span>
        ))}
        {it.wanted.length > 0 && (
          <span class="holder dim">
            wanted by{' '}
            {it.wanted.slice(0, 6).map((one) => (
              <TaskLink key={one} id={one} />
            ))}
            {it.wanted.length > 6 && `and ${it.wanted.length - 6} more`}
          </span>
        )}
      </td>
      <td>
        <Meet tasks={it.clash} />
      </td>
      <td class="right">
        <Heat hot={it.hot} />
      </td>
    </tr>
  );
}

function Branch({ of, scale, open, toggle }: { of: Folder; scale: number; open: boolean; toggle: () => void }) {
  const name = of.path === '' ? 'top of the repository' : `${of.path}/`;
  return (
    <tbody>
      <tr class={`folder ${of.clashes ? 'clash' : ''}`} data-row>
        <td style={{ paddingLeft: `${8 + 14 * Math.min(8, of.depth)}px` }}>
          <button type="button" class="plain mono" aria-expanded={open} disabled={of.own.length === 0} onClick={toggle}>
            {of.own.length === 0 ? '·' : open ? '▾' : '▸'} {plain(name, 120)}
          </button>
          <Bar of={of} most={scale} />
        </td>
        <td>
          {of.held.slice(0, 3).map((it) => (
            <Holder key={`${it.holder}${it.task}`} it={it} />
          ))}
          {of.held.length > 3 && <span class="holder dim">and {of.held.length - 3} more</span>}
          {of.wanted > 0 && <span class="holder dim">{of.wanted} wanted</span>}
          {of.held.length === 0 && of.wanted === 0 && <span class="dim">free</span>}
        </td>
        <td>
          <Meet tasks={of.clash} />
        </td>
        <td class="right">
          <Heat hot={of.hot} />
        </td>
      </tr>
      {open && of.own.slice(0, FILES).map((it) => <One key={it.path} it={it} depth={of.depth} />)}
      {open && of.own.length > FILES && (
        <tr>
          <td colSpan={4} class="dim">
            and {of.own.length - FILES} more
          </td>
        </tr>
      )}
    </tbody>
  );
}

/** Which folders are open: those where two meet by themselves, the others as somebody says. */
export function isOpen(of: Folder, said: string, words: string): boolean {
  const asked = said.split(',').filter(Boolean);
  if (asked.includes(of.path || '.')) return true;
  if (asked.includes(`-${of.path || '.'}`)) return false;
  return words !== '' || of.own.some((it) => it.clash.length > 0);
}

export function Files() {
  useTopics('files');
  const views = topic('files').all<View>();
  const words = get('q').toLowerCase();
  const said = get('open');
  if (views.length === 0) {
    return (
      <Panel title="Files">
        <Empty known={topic('files').known.value}>No project yet: regatta init</Empty>
      </Panel>
    );
  }
  const toggle = (of: Folder) => {
    const name = of.path || '.';
    const others = said.split(',').filter((it) => it && it !== name && it !== `-${name}`);
    set('open', [...others, isOpen(of, said, words) ? `-${name}` : name].join(','));
  };
  return (
    <>
      {views.map((view) => {
        const folders = matching(view.folders, words);
        const top = Math.max(1, ...view.folders.map((it) => it.spots));
        return (
          <Panel
            key={view.project}
            title={`Files of ${view.project}`}
            aside={
              <span class="filters">
                <span class="aside">{view.text}</span>
                <input id="filter" type="search" aria-label="Filter" placeholder="filter  /" value={get('q')} onInput={(it) => set('q', it.currentTarget.value)} />
                <code class="aside">regatta claim list</code>
                <ul class="legend">
                  <li>
                    <i class="key-held held-0" aria-hidden="true" /> held
                  </li>
                  <li>
                    <i class="key-held waits" aria-hidden="true" /> waited for
                  </li>
                  <li>
                    <b class="bad">✕</b> two meet
                  </li>
                  <li>
                    <i class="heat heat-3" aria-hidden="true" /> changes landed today
                  </li>
                </ul>
              </span>
            }
          >
            {view.radar.collisions.length > 0 && (
              <section class="radar">
                <h3>Will collide</h3>
                <ul class="spans">
                  {view.radar.collisions.map((it) => (
                    <li key={`${it.one}${it.other}`} class="bad">
                      ✕ <TaskLink id={it.one} /> and {it.other ? <TaskLink id={it.other} /> : 'the trunk'} in <code>{it.paths.map((one) => plain(one, 120)).join(' ')}</code> <Age since={it.since_wall} />
                    </li>
                  ))}
                </ul>
              </section>
            )}
            {folders.length === 0 ? (
              <p class="empty">{words ? 'No file that matches is held, wanted or changed today.' : 'Nobody holds or wants a file, and none changed today.'}</p>
            ) : (
              <div class="scroll">
                <table class="list files">
                  <thead>
                    <tr>
                      <th>Folder</th>
                      <th>Held by, until</th>
                      <th>Two meet</th>
                      <th class="right">Changes today</th>
                    </tr>
                  </thead>
                  {folders.slice(0, FOLDERS).map((it) => (
                    <Branch key={it.path} of={it} scale={top} open={isOpen(it, said, words)} toggle={() => toggle(it)} />
                  ))}
                </table>
                {folders.length > FOLDERS && <p class="empty">and {folders.length - FOLDERS} more folders: filter them</p>}
              </div>
            )}
            <p class="aside">
              The radar warned {view.radar.warned} times: {view.radar.proved} came true, {view.radar.lapsed} did not.
            </p>
          </Panel>
        );
      })}
    </>
  );
}
