// A daemon that looks after nothing yet: what to do, instead of empty pages.

import { Panel } from './ui';

const STEPS: [string, string, string][] = [
  ['See it work', 'regatta demo', 'scripted agents in a repository of their own: no account, no key, nothing leaves this machine'],
  ['Bring a repository', 'cd your-repo && regatta init', 'finds the trunk and the checks, and writes regatta.toml'],
  ['Bring an agent', 'regatta provider', 'which programs are on this machine, and how each is added'],
  ['Say what should be done', 'regatta run "Add login with rate limits"', 'a plan first; nothing starts before you say so. The same on this page, once there is a repository'],
];

export function FirstSteps() {
  return (
    <Panel title="Nothing is looked after yet">
      <ol class="first-steps">
        {STEPS.map(([title, command, explanation]) => (
          <li key={command}>
            <b>{title}</b> <code>{command}</code>
            <small>{explanation}</small>
          </li>
        ))}
      </ol>
    </Panel>
  );
}
