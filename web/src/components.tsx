// Components of several pages that the first page does not need. They are loaded with the page that uses them.

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { plain } from './format';
import { perform, toast } from './ui';

/** A command for a shell, with a button that copies it. */
export function ShellLine({ line }: { line: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line);
      setCopied(true);
      setTimeout(() => setCopied(false), 2_000);
    } catch {
      toast(false, 'The browser does not allow this page to copy. Select the command and copy it.', line);
    }
  };
  return (
    <span class="shell">
      <code>{plain(line, 400)}</code>
      <button type="button" onClick={copy} aria-label={`Copy: ${plain(line, 200)}`}>
        {copied ? '✓ copied' : 'Copy'}
      </button>
    </span>
  );
}

/** An empty page: what the page is for in one sentence, then one button or command. */
export function EmptyState({ title, text, children }: { title: string; text: string; children?: ComponentChildren }) {
  return (
    <div class="empty-state">
      <h3>{title}</h3>
      <p>{text}</p>
      {children}
    </div>
  );
}

/** A sentence that needs attention. */
export function Callout({ tone, children }: { tone: 'note' | 'warning' | 'problem'; children: ComponentChildren }) {
  return <div class={`callout ${tone}`}>{children}</div>;
}

export interface FigureProps {
  name: string;
  value: string;
  more?: string;
  isBad?: boolean;
}

/** Figures with their names, such as the cost per landed task. */
export function Figures({ figures }: { figures: FigureProps[] }) {
  return (
    <dl class="figures">
      {figures.map((figure) => (
        <div key={figure.name} class="figure">
          <dt>{figure.name}</dt>
          <dd class={figure.isBad ? 'bad' : ''}>{figure.value}</dd>
          {figure.more && <dd class="more">{figure.more}</dd>}
        </div>
      ))}
    </dl>
  );
}

/** The used part of a limit as a bar. The text beside it has the figures. */
export function GaugeBar({ share, label }: { share: number; label: string }) {
  return (
    <svg class={`gauge-bar ${share >= 1 ? 'over' : ''}`} viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label={label}>
      <rect width={Math.max(0, Math.min(100, share * 100))} height={8} />
    </svg>
  );
}

/** The providers with a colour of their own, by the names that agents and programs use. */
const KNOWN_SERIES: Record<string, number> = { claude: 1, anthropic: 1, codex: 2, openai: 2, gemini: 3, google: 3, opencode: 4 };
const FIRST_OTHER_SERIES = 5;
const OTHER_SERIES_COUNT = 2;

/** Returns the class with the colour of a provider. A provider has the same colour in all plots and tables. */
export function seriesClass(name: string): string {
  const known = KNOWN_SERIES[name];
  if (known) return `series-${known}`;
  let sum = 0;
  for (const character of name) sum += character.codePointAt(0) ?? 0;
  return `series-${FIRST_OTHER_SERIES + (sum % OTHER_SERIES_COUNT)}`;
}

export interface FieldProps {
  label: string;
  help?: string;
  value: string;
  set: (value: string) => void;
  /** The values to choose from, with their texts. Without them the field is for typing. */
  options?: [value: string, text: string][];
  type?: 'text' | 'number';
  placeholder?: string;
  required?: boolean;
  min?: number;
  step?: number | 'any';
  pattern?: string;
}

let lastFieldId = 0;

export function Field({ label, help, value, set, options, type = 'text', placeholder, required, min, step, pattern }: FieldProps) {
  const [id] = useState(() => `field-${(lastFieldId += 1)}`);
  const kind = type === 'number' ? ({ type, min, step } as const) : ({ type, pattern } as const);
  const describedBy = help ? `${id}-help` : undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {options ? (
        <select id={id} value={value} required={required} aria-describedby={describedBy} onChange={(event) => set(event.currentTarget.value)}>
          {options.map(([option, text]) => (
            <option key={option} value={option}>
              {plain(text, 100)}
            </option>
          ))}
        </select>
      ) : (
        <input id={id} {...kind} value={value} required={required} placeholder={placeholder} aria-describedby={describedBy} autocomplete="off" onInput={(event) => set(event.currentTarget.value)} />
      )}
      {help && <small id={describedBy}>{help}</small>}
    </div>
  );
}

export interface VerbFormProps {
  /** The text of the button. */
  label: string;
  verb: string;
  input: Record<string, unknown>;
  /** The shell command that does the same. */
  cli: string;
  children: ComponentChildren;
  onDone?: (result: unknown) => void;
}

/** A form that calls a verb, with the shell command that does the same. */
export function VerbForm({ label, verb, input, cli, children, onDone }: VerbFormProps) {
  const send = async (event: Event) => {
    event.preventDefault();
    await perform({ label, verb, input, cli, first: true, grave: false, after: onDone });
  };
  return (
    <form class="form" onSubmit={send}>
      <div class="fields">{children}</div>
      <div class="row">
        <button type="submit" class="do first">
          {label}
        </button>
        <ShellLine line={cli} />
      </div>
    </form>
  );
}
