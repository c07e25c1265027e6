import { plain } from '../format';
import { topic } from '../live/client';
import { get, set } from '../route';
import { Age, Empty, Panel, TaskLink, useTopics } from '../ui';
import type { Files as View } from '../views';

type Path = View['paths'][number];

/** Folders with what is held below them, those where two want the same first. */
export function folders(paths: Path[]): [string, Path[]][] {
  const found = new Map<string, Path[]>();
  for (const it of paths) {
    const at = it.path.lastIndexOf('/');
    const folder = at < 0 ? '.' : it.path.slice(0, at);
    found.set(folder, [...(found.get(folder) ?? []), it]);
  }
  const clashes = (of: Path[]) => of.filter((it) => it.clash).length;
  return [...found].sort((a, b) => clashes(b[1]) - clashes(a[1]) || a[0].localeCompare(b[0]));
}

export function Files() {
  useTopics('files');
  const views = topic('files').all<View>();
  const words = get('q').toLowerCase();
  if (views.length === 0) {
    return (
      <Panel title="Files">
        <Empty known={topic('files').known.value}>No project yet: regatta init</Empty>
      </Panel>
    );
  }
  return (
    <>
      {views.map((view) => {
        const paths = view.paths.filter((it) => it.path.toLowerCase().includes(words));
        return (
          <Panel
            key={view.project}
            title={`Files of ${view.project}`}
            aside={
              <span class="filters">
                <input id="filter" type="search" aria-label="Filter" placeholder="filter  /" value={get('q')} onInput={(it) => set('q', it.currentTarget.value)} />
                <code class="aside">regatta claim list</code>
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
            {paths.length === 0 ? (
              <p class="empty">Nobody holds or wants a file{words ? ' that matches' : ''}.</p>
            ) : (
              <div class="scroll">
                <table class="list">
                  <thead>
                    <tr>
                      <th>Path</th>
                      <th>Held by</th>
                      <th>Wanted by</th>
                      <th class="right">For</th>
                    </tr>
                  </thead>
                  {folders(paths)
                    .slice(0, 200)
                    .map(([folder, of]) => (
                      <tbody key={folder}>
                        <tr class="group">
                          <th colSpan={4} scope="rowgroup">
                            <span class="mono">{plain(folder, 160)}/</span> · {of.filter((it) => it.held.length > 0).length} held, {of.filter((it) => it.wanted.length > 0).length} wanted
                          </th>
                        </tr>
                        {of.slice(0, 100).map((it) => (
                          <tr key={it.path} data-row tabIndex={0}>
                            <td class="mono">
                              {it.clash && <b class="bad">✕ </b>}
                              {plain(it.path, 200)}
                            </td>
                            <td>
                              {it.held.map((one) => (
                                <span key={one.owner}>
                                  {one.agent ?? one.owner} {one.task && <TaskLink id={one.task} />} {plain(one.memo, 80)}{' '}
                                </span>
                              ))}
                            </td>
                            <td>
                              {it.wanted.slice(0, 8).map((one) => (
                                <TaskLink key={one} id={one} />
                              ))}
                              {it.wanted.length > 8 && ` + ${it.wanted.length - 8}`}
                            </td>
                            <td class="right">{it.held[0] && <Age since={it.held[0].since_wall} />}</td>
                          </tr>
                        ))}
                      </tbody>
                    ))}
                </table>
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
