// The design system: every colour, size and component of the page, in the present theme. Contributors use it to choose
// a component, and to check a change of style.css.

import { useState } from 'preact/hooks';
import { Callout, EmptyState, Field, Figures, GaugeBar, ShellLine, VerbForm, seriesClass } from '../components';
import { FREE_AGENT_STATES, STATES, TASK_STATES } from '../states';
import { Glyph, Mark, Panel, Table, TaskLink, toast } from '../ui';
import type { DisplayState } from '../api';
import './design.css';

const SURFACES = ['ground', 'panel', 'sunk', 'line', 'ink', 'dim', 'accent', 'first', 'focus', 'hot', 'hatch'];
const SERIES = [1, 2, 3, 4, 5, 6];
const SIZES: [name: string, use: string][] = [
  ['text-s', 'Small print: captions, help below a field, heads of tables'],
  ['text-m', 'Text of the page, cells of tables, buttons'],
  ['text-l', 'Headings of panels'],
  ['text-xl', 'Titles of pages'],
  ['text-figure', '1,284 figures'],
];
const PROVIDERS = ['anthropic', 'codex', 'gemini', 'opencode', 'goose', 'qwen'];
const DISTANCES = ['space-1', 'space-2', 'space-3', 'space-4', 'space-6', 'radius'];
const ALL_STATES = [...TASK_STATES, ...FREE_AGENT_STATES];

function Tint({ name }: { name: string }) {
  return (
    <li>
      <span class="tint" aria-hidden="true" style={{ background: `var(--${name})` }} />
      <code>--{name}</code>
    </li>
  );
}

function Colours() {
  return (
    <Panel title="Colours">
      <h3>Surfaces, lines and text</h3>
      <ul class="specimens">
        {SURFACES.map((name) => (
          <Tint key={name} name={name} />
        ))}
      </ul>
      <h3>States. No other meaning uses these colours, and a state always has a glyph and a word.</h3>
      <ul class="specimens">
        {ALL_STATES.map((at: DisplayState) => (
          <li key={at}>
            <span class={`tint swatch at-${at}`} aria-hidden="true" /> <Mark at={at} />
          </li>
        ))}
      </ul>
      <h3>Series of plots: providers, and others without a state</h3>
      <ul class="specimens">
        {SERIES.map((index) => (
          <Tint key={index} name={`series-${index}`} />
        ))}
      </ul>
      <h3>A provider has the same colour in all plots and tables</h3>
      <ul class="legend">
        {PROVIDERS.map((name) => (
          <li key={name}>
            <span class={`swatch ${seriesClass(name)}`} aria-hidden="true" /> {name}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Type() {
  return (
    <Panel title="Type and distances">
      <dl class="type-scale">
        {SIZES.map(([name, use]) => (
          <div key={name}>
            <dt>
              <code>--{name}</code>
            </dt>
            <dd style={{ fontSize: `var(--${name})` }}>{use}</dd>
          </div>
        ))}
        {DISTANCES.map((name) => (
          <div key={name}>
            <dt>
              <code>--{name}</code>
            </dt>
            <dd>
              <svg width="40" height="12" aria-hidden="true">
                <rect height="12" style={{ width: `var(--${name})`, fill: 'var(--hatch)' }} />
              </svg>
            </dd>
          </div>
        ))}
      </dl>
    </Panel>
  );
}

function Controls() {
  const [tab, setTab] = useState('list');
  const [only, setOnly] = useState(true);
  return (
    <Panel title="Buttons, chips, badges, tabs" aside={<span class="aside">a panel has a heading, and figures or filters beside it</span>}>
      <div class="row">
        <button type="button" class="do first" onClick={() => toast(true, 'Land: done', 'regatta land T9')}>
          Default choice <kbd>L</kbd>
        </button>
        <button type="button" class="do">
          Other choice <kbd>R</kbd>
        </button>
        <button type="button" class="do grave" onClick={() => toast(false, 'T9 has already landed', 'regatta undo T9')}>
          Cannot be undone <kbd>X</kbd>
        </button>
        <button type="button" class="do" disabled>
          Not possible now
        </button>
        <button type="button" class="plain">
          Button like a link
        </button>
        <button type="button" class="key">
          ?
        </button>
      </div>
      <h3>Chips choose a filter; badges count; tabs choose a view</h3>
      <div class="row">
        <button type="button" class="chip" aria-pressed={only} onClick={() => setOnly(!only)}>
          <Glyph at="working" /> working 4
        </button>
        <button type="button" class="chip" aria-pressed={!only} onClick={() => setOnly(!only)}>
          <Glyph at="review" /> review 1
        </button>
        <span class="badge hot">2 need you</span>
        <span class="badge">slots 3/4</span>
        <span class="tabs" role="group" aria-label="View">
          {['list', 'board', 'graph'].map((name) => (
            <button key={name} type="button" class="chip" aria-pressed={tab === name} onClick={() => setTab(name)}>
              {name}
            </button>
          ))}
        </span>
      </div>
      <h3>A command for a shell</h3>
      <ShellLine line="regatta land T9" />
    </Panel>
  );
}

function Content() {
  return (
    <>
      <Panel title="Table" aside={<span class="aside">numbers are right-aligned; names are sorted as people count</span>}>
        <Table heads={['Task', 'Subject', 'State', '>Cost', '>Age']}>
          {ALL_STATES.slice(0, 6).map((at, index) => (
            <tr key={at} data-row tabIndex={0}>
              <td>
                <TaskLink id={`T${index + 5}`} />
              </td>
              <td class="subject">Check passwords in constant time</td>
              <td>
                <Mark at={at} />
              </td>
              <td class="right">{index === 2 ? <span class="dim">not reported</span> : `$${(0.42 * (index + 1)).toFixed(2)}`}</td>
              <td class="right">{index * 3}m</td>
            </tr>
          ))}
        </Table>
      </Panel>
      <Panel title="Figures and limits">
        <Figures
          figures={[
            { name: 'Cost per landed task', value: '$0.31', more: '61 tasks landed' },
            { name: 'Wasted', value: '$1.20', more: '3 failed attempts', isBad: true },
            { name: 'Tokens per landed line', value: 'not reported', more: 'two programs report no tokens' },
          ]}
        />
        <h3>A limit of which 62 % is used, and one that is reached</h3>
        <GaugeBar share={0.62} label="62 % used" />
        <p />
        <GaugeBar share={1} label="all used" />
      </Panel>
      <Panel title="Card">
        <article class="card active">
          <header>
            <span class="kind">permission</span>
            <TaskLink id="T31" />
            <span class="agent">codex-1</span>
            <time>2m</time>
          </header>
          <pre class="what">npm install zod@4</pre>
          <p class="why">outside the allow list: network</p>
          <div class="row">
            <button type="button" class="do first">
              Allow once <kbd>1</kbd>
            </button>
            <button type="button" class="do">
              Deny <kbd>2</kbd>
            </button>
          </div>
        </article>
      </Panel>
      <Panel title="Messages">
        <Callout tone="problem">
          <p>A problem: what happened, why, and the next step.</p>
        </Callout>
        <Callout tone="warning">
          <p>A warning: work goes on, but a person should look.</p>
        </Callout>
        <Callout tone="note">
          <p>A fact to know before you act.</p>
        </Callout>
        <p class="error">The error of a form or a request.</p>
        <h3>Toasts</h3>
        <div class="toasts design-toast">
          <div class="toast">
            Land: done<code>regatta land T9</code>
          </div>
          <div class="toast bad">
            T9 has already landed<code>regatta undo T9</code>
          </div>
        </div>
      </Panel>
      <Panel title="Empty page">
        <EmptyState title="No teams yet" text="A team is a group of agents that start together and share a lead.">
          <ShellLine line="regatta team create --file team.toml" />
        </EmptyState>
      </Panel>
    </>
  );
}

function Forms() {
  const [name, setName] = useState('claude-1');
  const [preset, setPreset] = useState('claude');
  return (
    <Panel title="Form">
      <VerbForm label="Check the fleet" verb="check" input={{}} cli="regatta check">
        <Field label="Name" value={name} set={setName} required help="Letters, digits and hyphens" />
        <Field
          label="Preset"
          value={preset}
          set={setPreset}
          options={[
            ['claude', 'claude'],
            ['codex', 'codex'],
          ]}
        />
        <Field label="Slots" type="number" min={1} value="1" set={() => undefined} help="Tasks at the same time" />
      </VerbForm>
    </Panel>
  );
}

export function Design() {
  return (
    <>
      <p class="sentence">{Object.keys(STATES).length} states, 6 series, and the components that the pages share, in the present theme.</p>
      <Colours />
      <Type />
      <Controls />
      <Forms />
      <Content />
    </>
  );
}
