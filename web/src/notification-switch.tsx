// The switch for notifications of this browser. It asks for the permission only on a click.

import { useSignal } from '@preact/signals';
import { canNotify, notifies, switchOff, switchOn } from './notify';

export function NotificationSwitch() {
  const blocked = useSignal(canNotify() && Notification.permission === 'denied');
  if (!canNotify())
    return (
      <p class="dim notify-switch">
        This browser shows no notifications here: it needs https, or the daemon’s own machine. <code>notify.command</code> in regatta.toml works everywhere.
      </p>
    );
  if (notifies.value)
    return (
      <p class="notify-switch">
        <span class="good">✓</span> This browser notifies you of new items while a tab of this page is open.{' '}
        <button type="button" class="plain" onClick={switchOff}>
          Turn off
        </button>
      </p>
    );
  return (
    <p class="notify-switch">
      <button type="button" class="do" onClick={async () => (blocked.value = !(await switchOn()) && Notification.permission === 'denied')}>
        Notify me in this browser
      </button>{' '}
      <span class="dim">{blocked.value ? 'The browser blocks notifications of this page. Allow them in its settings for this site.' : 'With buttons to allow, deny and answer, while a tab of this page is open.'}</span>
    </p>
  );
}
