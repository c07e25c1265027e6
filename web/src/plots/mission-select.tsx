// A select for a mission, for graphs, replays and comparisons.

import { plain } from '../format';
import { byName, topic } from '../live/client';
import { useTopics } from '../ui';

/** A select for another mission. */
export function MissionSelect({ label, exclude, onPick }: { label: string; exclude: string[]; onPick: (id: string) => void }) {
  useTopics('missions');
  const missions = topic('missions')
    .all()
    .filter((mission) => !exclude.includes(mission.id))
    .sort((a, b) => Number(b.running) - Number(a.running) || byName(b.id, a.id));
  if (missions.length === 0) return null;
  return (
    <select class="mission-select" aria-label={label} value="" onChange={(event) => event.currentTarget.value && onPick(event.currentTarget.value)}>
      <option value="">{label}</option>
      {missions.map((mission) => (
        <option key={mission.id} value={mission.id}>
          {mission.id} {plain(mission.title, 60)} · {mission.word}
        </option>
      ))}
    </select>
  );
}
