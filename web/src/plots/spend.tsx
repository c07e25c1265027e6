// What today cost, as a line with its cap.

import { clockTime, usd } from '../format';
import { topic } from '../live/client';
import { Panel, clock, useTopics } from '../ui';
import type { Spending } from '../views';

const WIDTH = 800;

/** The line of a day's spend, stepping up at each moment it was known to. */
export function stepped(line: [number, number][], now: number, top: number, height: number): string {
  const first = line[0];
  if (!first) return '';
  const from = Math.min(first[0], now - 60_000);
  const x = (wall: number) => ((wall - from) / Math.max(1, now - from)) * WIDTH;
  const y = (micro: number) => height - 4 - (micro / Math.max(1, top)) * (height - 12);
  let path = `M0 ${y(first[1]).toFixed(1)}`;
  for (const [wall, micro] of line) path += `H${x(wall).toFixed(1)}V${y(micro).toFixed(1)}`;
  return `${path}H${WIDTH}`;
}

export function SpendLine({ height = 90 }: { height?: number }) {
  useTopics('spend');
  const it = topic('spend').one<Spending>('spend');
  void topic('spend').changed.value;
  const now = clock.value;
  const most = it ? Math.max(it.cap ?? 0, ...it.line.map((one) => one[1])) : 0;
  const cap = it?.cap ? height - 4 - (it.cap / Math.max(1, most)) * (height - 12) : null;
  return (
    <Panel title={<a href="/cost">Spend today</a>} aside={<span class="aside">{it?.text ?? ''}</span>}>
      {it && most > 0 ? (
        <div class="spend-box">
          {it.cap && <small class="cap-label" style={{ top: `${cap ?? 0}px` }}>cap {usd(it.cap)}</small>}
        <svg class="spend" viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" height={height} role="img" aria-label={`Spend today: ${it.text}; from ${clockTime(it.line[0]?.[0] ?? now, false)} until now, ${usd(it.today.usage.micro_usd)}`}>
          {cap !== null && <line class="cap" x1={0} x2={WIDTH} y1={cap} y2={cap} />}
          <path d={stepped(it.line, now, most, height)} />
        </svg>
        </div>
      ) : (
        <p class="empty">{it ? 'No agent reported a price today.' : 'asking the daemon…'}</p>
      )}
    </Panel>
  );
}
