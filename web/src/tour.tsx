// The tour: four steps over the real page. It is offered once, and the help and the palette start it again.

import './tour.css';
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { useFocusRestore } from './focus-restore';
import { overlay } from './navigation';
import { navigate, route } from './route';
import { tourSeen } from './tour-offer';

interface TourStep {
  title: string;
  text: string;
  /** Finds the part of the page that the step describes. */
  selector: string;
}

const isPhone = matchMedia('(max-width: 760px)').matches;

const STEPS: TourStep[] = [
  { title: 'Say what to do', text: 'Type a goal here and press Plan. An agent makes a plan; nothing starts until you approve it.', selector: '.composer' },
  { title: 'Answer what needs you', text: 'Questions, permissions and reviews wait here. The first press of a digit chooses a card, the second answers it.', selector: '#inbox' },
  { title: 'See what everybody does', text: 'A row per agent, with time to the left. A hatched bar waits, and its text says for what.', selector: '.lanes' },
  isPhone
    ? { title: 'Reach everything', text: 'The bar has the pages that you need most. More has the others, and the search for tasks and actions.', selector: '.tab-bar' }
    : { title: 'Reach everything by key', text: 'Ctrl-K finds each page, task and action. ? shows all keys. Every button shows the shell command that does the same.', selector: '.top .right-side' },
];

export function Tour() {
  useFocusRestore();
  const index = useSignal(0);
  const next = useRef<HTMLButtonElement>(null);
  const step = STEPS[index.value] as TourStep;
  const isLast = index.value === STEPS.length - 1;
  const end = () => {
    tourSeen.value = true;
    overlay.value = null;
  };
  useEffect(() => {
    if (route.peek().path !== '/') navigate('/');
  }, []);
  useEffect(() => {
    next.current?.focus();
    const found = [...document.querySelectorAll<HTMLElement>(step.selector)].find((element) => element.checkVisibility?.() !== false);
    found?.classList.add('in-tour');
    found?.scrollIntoView?.({ block: 'nearest' });
    return () => found?.classList.remove('in-tour');
  }, [index.value, route.value.path]);
  return (
    <section class="tour" role="dialog" aria-label="Tour of the page" onKeyDown={(event) => event.key === 'Escape' && (tourSeen.value = true)}>
      <p class="dim">
        {index.value + 1} of {STEPS.length}
      </p>
      <h2>{step.title}</h2>
      <p aria-live="polite">{step.text}</p>
      <div class="row">
        <button type="button" class="do" onClick={end}>
          {isLast ? 'Close' : 'Skip the tour'}
        </button>
        {index.value > 0 && (
          <button type="button" class="do" onClick={() => (index.value -= 1)}>
            Back
          </button>
        )}
        <button ref={next} type="button" class="do first" onClick={() => (isLast ? end() : (index.value += 1))}>
          {isLast ? 'Done' : 'Next'}
        </button>
      </div>
    </section>
  );
}
