// The dialog before an action: it asks for text, for the fields of an agent's form, or for a confirmation.

import { type Signal, useSignal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { useFocusRestore } from './focus-restore';
import { plain } from './format';
import { pending, perform, press } from './ui';
import type { Action } from './action';

/** The restricted JSON Schema that agents send. */
interface Form {
  properties?: Record<string, { type?: string; title?: string; description?: string; enum?: string[]; oneOf?: { const: string; title?: string }[]; default?: unknown }>;
  required?: string[];
}

/** Returns a form's values as a JSON object. Empty fields are left out. */
export function formJson(form: Form, values: Record<string, string>): string {
  const result: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(form.properties ?? {})) {
    const text = values[name] ?? (field.default === undefined ? '' : String(field.default));
    if (field.type === 'boolean') result[name] = text === 'true';
    else if (text === '') continue;
    else result[name] = field.type === 'number' || field.type === 'integer' ? Number(text) : text;
  }
  return JSON.stringify(result);
}

function Fields({ form, values }: { form: Form; values: Signal<Record<string, string>> }) {
  const set = (name: string, text: string) => (values.value = { ...values.peek(), [name]: text });
  return (
    <>
      {Object.entries(form.properties ?? {}).map(([name, field]) => {
        const value = values.value[name] ?? (field.default === undefined ? '' : String(field.default));
        const choices = field.enum?.map((value) => ({ const: value, title: value })) ?? field.oneOf;
        const required = form.required?.includes(name) ?? false;
        return (
          <label key={name} class="field">
            {plain(field.title ?? name, 100)}
            {required && ' *'}
            {field.description && <small>{plain(field.description, 300)}</small>}
            {choices ? (
              <select required={required} value={value} onChange={(event) => set(name, event.currentTarget.value)}>
                <option value="" />
                {choices.map((choice) => (
                  <option key={choice.const} value={choice.const}>
                    {plain(choice.title ?? choice.const, 100)}
                  </option>
                ))}
              </select>
            ) : field.type === 'boolean' ? (
              <input type="checkbox" checked={value === 'true'} onChange={(event) => set(name, String(event.currentTarget.checked))} />
            ) : field.type === 'number' || field.type === 'integer' ? (
              <input type="number" step={field.type === 'integer' ? 1 : 'any'} required={required} value={value} onInput={(event) => set(name, event.currentTarget.value)} />
            ) : (
              <input type="text" required={required} value={value} onInput={(event) => set(name, event.currentTarget.value)} />
            )}
          </label>
        );
      })}
    </>
  );
}

/** Whether the action asks for a name, such as that of a model, and not for a message. */
const isOneLine = (action: Action) => action.words !== undefined && !/\/(text|reason|goal|subject)$/.test(action.words);

function sendOnCtrlEnter(event: KeyboardEvent & { currentTarget: HTMLTextAreaElement }): void {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) event.currentTarget.form?.requestSubmit();
}

/** The dialog for the pending action. Esc closes it without performing the action. */
export function ConfirmDialog() {
  useFocusRestore();
  const action = pending.value;
  const dialog = useRef<HTMLDialogElement>(null);
  const text = useSignal('');
  const values = useSignal<Record<string, string>>({});
  useLayoutEffect(() => {
    text.value = '';
    values.value = {};
    if (action && !dialog.current?.open) dialog.current?.showModal();
    if (!action && dialog.current?.open) dialog.current.close();
  }, [action]);
  const send = async (event: Event) => {
    event.preventDefault();
    const action = pending.peek();
    if (!action) return;
    if (action.question && action.question.proceed === null) return;
    const answer = action.form ? formJson(action.form as Form, values.peek()) : text.peek().trim();
    if (action.words !== undefined && !answer) return;
    pending.value = null;
    await perform(action, answer);
  };
  const choose = (other: Action) => {
    pending.value = null;
    press(other);
  };
  return (
    <dialog ref={dialog} class="ask" aria-label={action?.label ?? 'Question'} onClose={() => (pending.value = null)}>
      {action && (
        <form onSubmit={send}>
          <h2>{plain(action.question?.title ?? action.label, 120)}</h2>
          {action.question ? (
            <p>{plain(action.question.text, 500)}</p>
          ) : action.form ? (
            <Fields form={action.form as Form} values={values} />
          ) : isOneLine(action) ? (
            <input type="text" class="wide" aria-label="Text" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} autofocus />
          ) : action.words !== undefined ? (
            <textarea aria-label="Text" rows={4} value={text.value} onKeyDown={sendOnCtrlEnter} onInput={(event) => (text.value = event.currentTarget.value)} autofocus />
          ) : (
            <p>Are you sure? This cannot be undone with one click.</p>
          )}
          {action.question?.proceed !== null && (
            <p class="cli">
              same from a shell: <code>{plain(action.cli, 300)}</code>
            </p>
          )}
          <div class="row">
            {action.question?.instead.map((other, index) => (
              <button key={other.label} type="button" class={`do ${other.first ? 'first' : ''} ${other.grave ? 'grave' : ''}`} autofocus={index === 0} onClick={() => choose(other)}>
                {plain(other.label, 80)}
              </button>
            ))}
            {action.question?.proceed !== null && (
              <button type="submit" class={`do ${action.question ? '' : 'first'} ${action.grave || action.question?.instead.length ? 'grave' : ''}`}>
                {plain((action.question?.proceed ?? action.label).replace('…', ''), 80)}
              </button>
            )}
            {/* Focus Close, so that a stray Enter does not confirm an action that cannot be undone. */}
            <button type="button" class="do" autofocus={(action.grave && action.words === undefined) || action.question?.instead.length === 0} onClick={() => (pending.value = null)}>
              Close <kbd>Esc</kbd>
            </button>
          </div>
        </form>
      )}
    </dialog>
  );
}
