// Calls of the setup page: a verb's result, which is fetched again after a change.

import { useEffect, useState } from 'preact/hooks';
import { call } from '../session';
import type { Verbs } from '../api';

export interface Fetched<T> {
  data: T | null;
  problem: string;
  reload: () => void;
}

/** Calls a verb and returns its result or its error text. `reload` calls the verb again. */
export function useCall<Verb extends keyof Verbs>(verb: Verb): Fetched<Verbs[Verb]['answer']> {
  const [answer, setAnswer] = useState<{ data: Verbs[Verb]['answer'] | null; problem: string }>({ data: null, problem: '' });
  const [version, setVersion] = useState(0);
  useEffect(() => {
    let cancelled = false;
    call(verb, {} as Verbs[Verb]['input']).then(
      (data) => !cancelled && setAnswer({ data, problem: '' }),
      (error: Error) => !cancelled && setAnswer((last) => ({ data: last.data, problem: error.message })),
    );
    return () => {
      cancelled = true;
    };
  }, [verb, version]);
  return { ...answer, reload: () => setVersion((last) => last + 1) };
}
