//! The states of agents over time, recorded when the board changes.
//!
//! A lane's state is derived from the board alone, by [`all`]. A bar lasts as long as the state
//! does not change. The time before this daemon started is taken from the attempts in the history.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regatta_api::page::{At, Bar};
use regatta_api::view;
use regatta_core::agent::Agent;
use regatta_core::attempt::Attempt;
use regatta_core::board::Board;
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::{AgentName, AttemptId, Now, TaskId};
use regatta_core::task::{Status, Task};
use regatta_core::{provider, schedule};

use crate::Shared;

/// Minimum interval between two records: while a browser is connected, and while none is.
const PACE: Duration = Duration::from_millis(100);
const PACE_ALONE: Duration = Duration::from_secs(1);
/// Number of agents up to which each waiting agent shows its own reason.
const MOST_REASONS: usize = 60;
/// Number of bars per lane that are kept, and for how long.
const MOST_BARS: usize = 120;
const KEPT_MS: u64 = 24 * 3_600_000;
/// Number of minutes of shares that are kept.
const MINUTES: usize = 60;
const MINUTE_MS: u64 = 60_000;
/// Number of states of [`At`].
const STATES: usize = 9;

/// Number of lanes in each state, by the minute.
pub(super) type Minutes = Vec<(u64, Vec<u32>)>;

/// The state of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    pub(super) at: At,
    pub(super) task: Option<TaskId>,
    pub(super) text: String,
}

#[derive(Default)]
struct Kept {
    revision: u64,
    /// The states of all agents at that revision.
    stands: BTreeMap<AgentName, Stand>,
    /// Since when each agent is in its state, also for states without a bar: idle time is not
    /// drawn.
    since: BTreeMap<AgentName, (At, Option<TaskId>, u64)>,
    bars: BTreeMap<AgentName, VecDeque<Bar>>,
    /// The last task that each agent failed, until the agent does something else.
    failed: BTreeMap<AgentName, TaskId>,
    shares: BTreeMap<String, VecDeque<(u64, Vec<u32>)>>,
}

/// The recorded states.
#[derive(Default)]
pub(super) struct Lanes {
    kept: Mutex<Kept>,
}

impl Lanes {
    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bars(&self, agent: &AgentName) -> Vec<Bar> {
        self.kept().bars.get(agent).map(|it| it.iter().cloned().collect()).unwrap_or_default()
    }

    /// Returns the state of each agent, and since when it lasts.
    pub(super) fn stands(&self, board: &Board, now: Now) -> BTreeMap<AgentName, (Stand, u64)> {
        let kept = self.kept();
        let stands = if kept.revision == board.revision { kept.stands.clone() } else { all(board, &kept.failed, now) };
        let since = |name: &AgentName, it: &Stand| {
            let last = kept.bars.get(name).and_then(VecDeque::back);
            let drawn = last.filter(|bar| bar.at == it.at && bar.task == it.task).map(|bar| bar.from);
            let seen = || kept.since.get(name).filter(|one| one.0 == it.at && one.1 == it.task).map(|one| one.2);
            drawn.or_else(seen).unwrap_or(now.wall)
        };
        let with = |(name, it): (AgentName, Stand)| {
            let wall = since(&name, &it);
            (name, (it, wall))
        };
        stands.into_iter().map(with).collect()
    }

    pub(super) fn shares(&self) -> Vec<(String, Minutes)> {
        let kept = self.kept();
        kept.shares.iter().map(|(name, it)| (name.clone(), it.iter().cloned().collect())).collect()
    }

    /// Records the states that the board shows now.
    pub(super) fn look(&self, board: &Board, now: Now) {
        let mut kept = self.kept();
        if kept.revision == board.revision {
            return;
        }
        kept.revision = board.revision;
        let stands = all(board, &kept.failed, now);
        kept.stands.clone_from(&stands);
        let mut counts: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (name, it) in stands {
            if !matches!(it.at, At::Idle | At::Failed) {
                kept.failed.remove(&name);
            }
            if let Some(agent) = board.agents.get(&name) {
                counts.entry(family(agent)).or_insert_with(|| vec![0; STATES])[it.at as usize] += 1;
            }
            if !kept.since.get(&name).is_some_and(|one| one.0 == it.at && one.1 == it.task) {
                kept.since.insert(name.clone(), (it.at, it.task, now.wall));
            }
            kept.bars.entry(name).or_default().note(it, now.wall);
        }
        kept.since.retain(|name, _| board.agents.contains_key(name));
        kept.bars.retain(|name, _| board.agents.contains_key(name));
        kept.shares.retain(|name, _| counts.contains_key(name));
        let minute = now.wall - now.wall % MINUTE_MS;
        for (name, counts) in counts {
            let minutes = kept.shares.entry(name).or_default();
            match minutes.back_mut().filter(|it| it.0 == minute) {
                Some(last) => last.1 = counts,
                None => minutes.push_back((minute, counts)),
            }
            while minutes.len() > MINUTES {
                minutes.pop_front();
            }
        }
    }

    /// Records a failed task, because no later board shows which agent failed it.
    fn note(&self, recorded: &Recorded, board: &Board) {
        if let Event::TaskFailed(it) = &recorded.event {
            let of = |attempt: &Arc<Attempt>| (attempt.task == *it.task()).then(|| attempt.agent.clone());
            let lane = board.attempts.values().find_map(of).or_else(|| self.last_at(*it.task()));
            if let Some(lane) = lane {
                let mut kept = self.kept();
                kept.revision = 0; // the states at this revision must be computed again
                kept.failed.insert(lane, *it.task());
            }
        }
    }

    /// Returns the agent that last worked on a task.
    fn last_at(&self, task: TaskId) -> Option<AgentName> {
        let kept = self.kept();
        let last = kept.bars.iter().filter_map(|(name, it)| {
            it.iter().rev().find(|bar| bar.task == Some(task) && bar.at == At::Working).map(|bar| (bar.from, name))
        });
        last.max().map(|it| it.1.clone())
    }

    /// Adds the work from before this daemon started.
    fn before(&self, past: &Past) {
        let mut kept = self.kept();
        for (name, bars) in &past.bars {
            let lane = kept.bars.entry(name.clone()).or_default();
            for bar in bars.iter().rev() {
                lane.push_front(bar.clone());
            }
        }
    }
}

/// Appends a state to a lane's bars, which are kept oldest first.
trait Stretches {
    fn note(&mut self, it: Stand, wall: u64);
}

impl Stretches for VecDeque<Bar> {
    fn note(&mut self, it: Stand, wall: u64) {
        if let Some(last) = self.back_mut().filter(|bar| bar.to.is_none()) {
            if last.at == it.at && last.task == it.task {
                last.text = it.text; // the state is unchanged, and its text may be newer
                return;
            }
            last.to = Some(wall.max(last.from));
        }
        // Idle time is not drawn.
        if !matches!(it.at, At::Idle | At::Offline) {
            self.push_back(Bar { from: wall, to: None, at: it.at, task: it.task, text: it.text });
        }
        let old = |bar: &Bar| bar.to.is_some_and(|to| to + KEPT_MS < wall);
        while self.len() > MOST_BARS || self.front().is_some_and(old) {
            self.pop_front();
        }
    }
}

/// Returns the provider of an agent, or its runtime if no provider is named.
pub(crate) fn family(agent: &Agent) -> String {
    agent.provider.clone().unwrap_or_else(|| agent.runtime.name().to_owned())
}

/// Returns the states of all agents. An idle agent in a mission waits for the same as the mission's
/// next task.
fn all(board: &Board, failed: &BTreeMap<AgentName, TaskId>, now: Now) -> BTreeMap<AgentName, Stand> {
    let mut working: BTreeMap<&AgentName, &Attempt> = BTreeMap::new();
    // A team's session counts as work only during a turn, and a task counts before a session. While
    // a person works on its task, an agent is idle.
    let own = board.attempts.values().filter(|attempt| !attempt.by_hand);
    let (stand, tasks): (Vec<_>, Vec<_>) = own.partition(|attempt| attempt.standing.is_some());
    for attempt in tasks.into_iter().chain(stand.into_iter().filter(|it| it.talk.in_turn)) {
        working.entry(&attempt.agent).or_insert(attempt);
    }
    let asked: BTreeMap<AttemptId, String> = {
        let open = board.approvals.values().filter(|it| it.is_open());
        open.map(|it| (it.attempt, format!("{} {}", it.id, it.subject()))).collect()
    };
    let mut after: BTreeMap<&AgentName, Stand> = BTreeMap::new();
    let states = view::landing_states(board, now);
    for landing in board.landings.values().filter(|it| it.end.is_none()) {
        let text = states.get(&landing.id).copied().unwrap_or("queued").to_owned();
        after.entry(&landing.agent).or_insert(Stand { at: At::Landing, task: Some(landing.task), text });
    }
    // The waiting tasks of each mission; each idle agent of the mission takes the first one.
    let mut waiting: BTreeMap<regatta_core::ids::MissionId, Vec<TaskId>> = BTreeMap::new();
    for mission in board.missions.keys() {
        let open = board.open_tasks_of(*mission).map(|it| it.1).take(500);
        let waits = |id: &TaskId| board.tasks.get(id).is_some_and(|it| it.status.is_waiting());
        let mut ids: Vec<TaskId> = open.filter(waits).collect();
        ids.reverse();
        waiting.insert(*mission, ids);
    }
    let mut found = BTreeMap::new();
    for (name, agent) in &board.agents {
        let stand = match working.get(name) {
            Some(attempt) => match asked.get(&attempt.id) {
                Some(text) => Stand { at: At::Needs, task: Some(attempt.task), text: text.clone() },
                None => Stand { at: At::Working, task: Some(attempt.task), text: progress(board, attempt) },
            },
            None => resting(board, agent, after.get(name), failed.get(name)).unwrap_or_else(|| {
                let missions = board.missions.values().filter(|it| it.agents.contains(name));
                // A task that is assigned to another agent waits for that agent.
                let may_take = |id: &TaskId| {
                    let assignee = board.tasks.get(id).and_then(|task| task.assignee.as_ref());
                    assignee.is_none_or(|assignee| assignee == name)
                };
                let next = missions
                    .filter_map(|mission| {
                        let tasks = waiting.get_mut(&mission.id)?;
                        let place = tasks.iter().rposition(may_take)?;
                        Some(tasks.remove(place))
                    })
                    .next();
                let reason = |id: TaskId| first_reason(board, board.tasks.get(&id)?, now);
                let many = board.agents.len() > MOST_REASONS;
                let waits = next.and_then(|id| Some((id, if many { String::new() } else { reason(id)? })));
                match waits {
                    Some((task, text)) => Stand { at: At::Waiting, task: Some(task), text },
                    None => Stand { at: At::Idle, task: None, text: String::new() },
                }
            }),
        };
        found.insert(name.clone(), stand);
    }
    found
}

fn progress(board: &Board, attempt: &Attempt) -> String {
    let said = board.tasks.get(&attempt.task).map(|it| it.progress.clone()).unwrap_or_default();
    if said.is_empty() { view::liveness(board, attempt) } else { said.lines().next().unwrap_or_default().to_owned() }
}

fn first_reason(board: &Board, task: &Task, now: Now) -> Option<String> {
    schedule::wait_reasons(board, task, now).into_iter().next().map(|it| it.text)
}

/// Returns the state of an agent without work: offline, parked, or the result of its last task.
fn resting(board: &Board, agent: &Agent, landing: Option<&Stand>, failed: Option<&TaskId>) -> Option<Stand> {
    if let Some(text) = agent.offline.clone().or_else(|| regatta_core::runner::away(board, agent)) {
        return Some(Stand { at: At::Offline, task: None, text });
    }
    if let Some(parked) = provider::parked(board, agent) {
        // A park without an end is a failure and not a wait.
        let at = if parked.until_at.is_some() { At::Waiting } else { At::Failed };
        return Some(Stand { at, task: None, text: parked.reason.clone() });
    }
    // A failed task that was retried or dropped no longer counts for its agent.
    if let Some(task) = failed.filter(|task| board.failed.contains_key(*task)) {
        return Some(Stand { at: At::Failed, task: Some(*task), text: "failed".into() });
    }
    if let Some(landing) = landing {
        return Some(landing.clone());
    }
    let own = |it: &&Arc<Task>| it.agent.as_ref() == Some(&agent.name) || it.assignee.as_ref() == Some(&agent.name);
    let of = |status: Status| board.tasks.values().filter(own).find(|it| it.status == status);
    if board.tasks.len() > 5_000 {
        return None; // too many to search ten times a second
    }
    if let Some(task) = of(Status::NeedsHuman) {
        let text = task.reason.clone().unwrap_or_default();
        return Some(Stand { at: At::Needs, task: Some(task.id), text });
    }
    of(Status::InReview).map(|it| Stand { at: At::Review, task: Some(it.id), text: "in review".into() })
}

/// Past work per agent, from the history.
#[derive(Default)]
struct Past {
    open: BTreeMap<AttemptId, (AgentName, TaskId, u64)>,
    bars: BTreeMap<AgentName, Vec<Bar>>,
}

impl Past {
    fn fold(&mut self, recorded: &Recorded) {
        match &recorded.event {
            Event::AttemptStarted(it) => {
                let it = it.attempt();
                self.open.insert(it.id, (it.agent.clone(), it.task, it.started_wall));
            }
            Event::AttemptEnded(it) => {
                if let Some((agent, task, from)) = self.open.remove(it.attempt()) {
                    let bar = Bar {
                        from,
                        to: Some(recorded.now.wall),
                        at: At::Working,
                        task: Some(task),
                        text: String::new(),
                    };
                    self.bars.entry(agent).or_default().push(bar);
                }
            }
            _ => {}
        }
    }
}

/// Number of past events that are read at the start.
const LOOK_BACK: u64 = 20_000;

pub(super) async fn watch(shared: Arc<Shared>) {
    let (history, until) = (shared.engine.history().clone(), shared.engine.board().revision);
    let past = tokio::task::spawn_blocking(move || {
        let (mut past, mut after) = (Past::default(), until.saturating_sub(LOOK_BACK));
        while after < until {
            let Ok(page) = history.events(after, 500) else { break };
            let Some(last) = page.last() else { break };
            after = last.revision;
            page.iter().filter(|it| it.revision <= until).for_each(|it| past.fold(it));
        }
        past
    });
    if let Ok(past) = past.await {
        shared.pages.lanes.before(&past);
    }
    let (mut bell, mut events) = (shared.hub.bell(), shared.engine.events());
    loop {
        while let Ok(batch) = events.try_recv() {
            let board = shared.engine.board();
            batch.iter().for_each(|it| shared.pages.lanes.note(it, &board));
        }
        shared.pages.lanes.look(&shared.engine.board(), shared.engine.now());
        let seen = shared.pages.looking.load(std::sync::atomic::Ordering::Relaxed) > 0;
        tokio::time::sleep(if seen { PACE } else { PACE_ALONE }).await;
        if bell.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stand(at: At, task: u64) -> Stand {
        Stand { at, task: Some(TaskId(task)), text: format!("{at:?}") }
    }

    /// A bar lasts until the state changes. The bar of the present state has no end, and idle time
    /// is not drawn.
    #[test]
    fn bar_ends_when_another_state_begins() {
        let mut lane = VecDeque::new();
        lane.note(stand(At::Working, 1), 100);
        lane.note(stand(At::Working, 1), 200);
        lane.note(stand(At::Needs, 1), 300);
        lane.note(stand(At::Working, 1), 400);
        lane.note(Stand { at: At::Idle, task: None, text: String::new() }, 500);
        lane.note(stand(At::Working, 2), 900);
        let shape: Vec<(u64, Option<u64>, At)> = lane.iter().map(|it| (it.from, it.to, it.at)).collect();
        assert_eq!(
            shape,
            [
                (100, Some(300), At::Working),
                (300, Some(400), At::Needs),
                (400, Some(500), At::Working),
                (900, None, At::Working)
            ]
        );
    }

    #[test]
    fn lanes_have_a_limited_number_and_age_of_bars() {
        let mut lane = VecDeque::new();
        for nth in 0..1_000 {
            lane.note(stand(At::Working, nth), nth);
        }
        assert_eq!(lane.len(), MOST_BARS);
        lane.note(stand(At::Working, 5), 2 * KEPT_MS);
        assert!(lane.len() <= 2, "bars older than a day are dropped: {}", lane.len());
        // A clock that was set back creates no bar whose end is before its beginning.
        lane.note(stand(At::Working, 6), 7);
        assert!(lane.iter().all(|it| it.to.is_none_or(|to| to >= it.from)));
    }
}
