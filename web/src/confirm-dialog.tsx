// What must be said or thought over before something is done: words, a form of an agent's, or a plain second look.

import { type Signal, useSignal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { useBack } from './focus-restore';
import { plain } from './format';
import { pending, perform } from './ui';
import type { Form } from './views';

/** What a form's fields say, as the text of a JSON object; fields that nobody filled are left out. */
export function filled(form: Form, given: Record<string, string>): string {
  const made: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(form.properties ?? {})) {
    const text = given[name] ?? (field.default === undefined ? '' : String(field.default));
    if (field.type === 'boolean') made[name] = text === 'true';
    else if (text === '') continue;
    else made[name] = field.type === 'number' || field.type === 'integer' ? Number(text) : text;
  }
  return JSON.stringify(made);
}

function Fields({ form, given }: { form: Form; given: Signal<Record<string, string>> }) {
  const set = (name: string, text: string) => (given.value = { ...given.peek(), [name]: text });
  return (
    <>
      {Object.entries(form.properties ?? {}).map(([name, field]) => {
        const value = given.value[name] ?? (field.default === undefined ? '' : String(field.default));
        const choices = field.enum?.map((it) => ({ const: it, title: it })) ?? field.oneOf;
        const must = form.required?.includes(name) ?? false;
        return (
          <label key={name} class="field">
            {plain(field.title ?? name, 100)}
            {must && ' *'}
            {field.description && <small>{plain(field.description, 300)}</small>}
            {choices ? (
              <select required={must} value={value} onChange={(it) => set(name, it.currentTarget.value)}>
                <option value="" />
                {choices.map((it) => (
                  <option key={it.const} value={it.const}>
                    {plain(it.title ?? it.const, 100)}
                  </option>
                ))}
              </select>
            ) : field.type === 'boolean' ? (
              <input type="checkbox" checked={value === 'true'} onChange={(it) => set(name, String(it.currentTarget.checked))} />
            ) : field.type === 'number' || field.type === 'integer' ? (
              <input type="number" step={field.type === 'integer' ? 1 : 'any'} required={must} value={value} onInput={(it) => set(name, it.currentTarget.value)} />
            ) : (
              <input type="text" required={must} value={value} onInput={(it) => set(name, it.currentTarget.value)} />
            )}
          </label>
        );
      })}
    </>
  );
}

/** Asks for words, or once more, in a dialog that Esc closes. Nothing is decided by Esc, and nothing by a stray key. */
export function Ask() {
  useBack();
  const it = pending.value;
  const place = useRef<HTMLDialogElement>(null);
  const words = useSignal('');
  const given = useSignal<Record<string, string>>({});
  useLayoutEffect(() => {
    words.value = '';
    given.value = {};
    if (it && !place.current?.open) place.current?.showModal();
    if (!it && place.current?.open) place.current.close();
  }, [it]);
  const send = async (event: Event) => {
    event.preventDefault();
    const action = pending.peek();
    if (!action) return;
    const said = action.form ? filled(action.form, given.peek()) : words.peek().trim();
    if (action.words !== undefined && !said) return;
    pending.value = null;
    await perform(action, said);
  };
  return (
    <dialog ref={place} class="ask" aria-label={it?.label ?? 'Question'} onClose={() => (pending.value = null)}>
      {it && (
        <form onSubmit={send}>
          <h2>{plain(it.label, 80)}</h2>
          {it.form ? (
            <Fields form={it.form} given={given} />
          ) : it.words !== undefined ? (
            <textarea aria-label="Words" rows={4} value={words.value} onInput={(event) => (words.value = event.currentTarget.value)} autofocus />
          ) : (
            <p>Is that meant? It cannot be taken back with one click.</p>
          )}
          <p class="cli">
            same from a shell: <code>{plain(it.cli, 300)}</code>
          </p>
          <div class="row">
            <button type="submit" class={`do first ${it.grave ? 'grave' : ''}`}>
              {plain(it.label.replace('…', ''), 80)}
            </button>
            {/* What cannot be taken back is not under an Enter that was meant for something else. */}
            <button type="button" class="do" autofocus={it.grave && it.words === undefined} onClick={() => (pending.value = null)}>
              Close <kbd>Esc</kbd>
            </button>
          </div>
        </form>
      )}
    </dialog>
  );
}
