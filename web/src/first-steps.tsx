// The first steps, shown while the daemon manages no project.

import { Panel } from './ui';

const STEPS: [string, string, string][] = [
  ['See it work', 'regatta demo', 'scripted agents in a temporary repository; no account, no key, nothing leaves this machine'],
  ['Add a repository', 'cd your-repo && regatta init', 'detects the trunk and the checks, and writes regatta.toml'],
  ['Add an agent', 'regatta provider', 'lists the agent programs on this machine and how to add each'],
  ['Describe the work', 'regatta run "Add login with rate limits"', 'makes a plan first; nothing starts until you approve it. With a repository, you can also do this on this page'],
];

export function FirstSteps() {
  return (
    <Panel title="No project yet">
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
