//! Records the states of agents over time, for the timeline on the web page. A lane is the row of
//! one agent, and a bar is a time span in which the agent was in one state.
//!
//! The state of an agent is derived from the board alone, by
//! [`agent_displays`](display::agent_displays). A bar ends when the state changes. The time before
//! the daemon started is filled in from past attempts in the event log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regatta_api::live_view::{DisplayState, LaneBar};
use regatta_core::board::Board;
use regatta_core::display::{self, AgentDisplay};
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::{AgentName, AttemptId, Now, TaskId};

use crate::ServerState;

/// Minimum time between two recordings of the agents' states while a browser is connected. Without
/// a browser, `IDLE_RECORD_INTERVAL` applies.
const RECORD_INTERVAL: Duration = Duration::from_millis(100);
const IDLE_RECORD_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of bars (periods in one state) that are kept for each agent. Bars that ended more
/// than `MAX_BAR_AGE_MS` milliseconds ago are removed.
const MAX_BARS: usize = 120;
const MAX_BAR_AGE_MS: u64 = 24 * 3_600_000;
/// Number of past minutes for which the number of agents in each state is kept.
const MAX_SHARE_MINUTES: usize = 60;
const MINUTE_MS: u64 = 60_000;

/// A list of minutes (since 1970), each with the number of agents in each state.
pub(super) type SharesByMinute = Vec<(u64, Vec<u32>)>;

/// A state of an agent, and the time when the state began.
struct StateStart {
    state: DisplayState,
    task: Option<TaskId>,
    unix_ms: u64,
}

impl StateStart {
    fn has_state(&self, lane_state: &AgentDisplay) -> bool {
        self.state == lane_state.state && self.task == lane_state.task
    }
}

#[derive(Default)]
struct LaneRecords {
    revision: u64,
    /// The states of all agents at the time of `revision` (the number of the last event).
    states: BTreeMap<AgentName, AgentDisplay>,
    /// The time when each agent's present state began. Contains idle agents too, although idle time
    /// is not drawn as a bar.
    since: BTreeMap<AgentName, StateStart>,
    bars: BTreeMap<AgentName, VecDeque<LaneBar>>,
    shares: BTreeMap<String, VecDeque<(u64, Vec<u32>)>>,
}

/// The recorded states of all agents over time.
#[derive(Default)]
pub(super) struct LaneHistory {
    records: Mutex<LaneRecords>,
}

impl LaneHistory {
    fn lock(&self) -> std::sync::MutexGuard<'_, LaneRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bars(&self, agent: &AgentName) -> Vec<LaneBar> {
        self.lock()
            .bars
            .get(agent)
            .map(|lane_bars| lane_bars.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Returns the present state of each agent, and the time when the state began.
    pub(super) fn states(
        &self,
        board: &Board,
        now: Now,
    ) -> BTreeMap<AgentName, (AgentDisplay, u64)> {
        let records = self.lock();
        let states = if records.revision == board.revision {
            records.states.clone()
        } else {
            display::agent_displays(board, now)
        };
        let since = |name: &AgentName, lane_state: &AgentDisplay| {
            let last = records.bars.get(name).and_then(VecDeque::back);
            let bar_start = last
                .filter(|bar| bar.at == lane_state.state && bar.task == lane_state.task)
                .map(|bar| bar.from);
            let recorded = || {
                records
                    .since
                    .get(name)
                    .filter(|start| start.has_state(lane_state))
                    .map(|start| start.unix_ms)
            };
            bar_start.or_else(recorded).unwrap_or(now.unix_ms)
        };
        let with_date = |(name, lane_state): (AgentName, AgentDisplay)| {
            let wall = since(&name, &lane_state);
            (name, (lane_state, wall))
        };
        states.into_iter().map(with_date).collect()
    }

    pub(super) fn shares(&self) -> Vec<(String, SharesByMinute)> {
        let records = self.lock();
        records
            .shares
            .iter()
            .map(|(name, share)| (name.clone(), share.iter().cloned().collect()))
            .collect()
    }

    /// Records the states of all agents on the present board (the daemon's state in memory). If an
    /// agent's state has changed, ends the agent's last bar (period in one state).
    pub(super) fn record(&self, board: &Board, now: Now) {
        let mut records = self.lock();
        if records.revision == board.revision {
            return;
        }
        records.revision = board.revision;
        let states = display::agent_displays(board, now);
        records.states.clone_from(&states);
        let mut counts: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (name, lane_state) in states {
            if let Some(agent) = board.agents.get(&name) {
                counts
                    .entry(display::provider_or_runtime(agent))
                    .or_insert_with(|| vec![0; DisplayState::ALL.len()])
                    [lane_state.state.rank()] += 1;
            }
            if !records
                .since
                .get(&name)
                .is_some_and(|start| start.has_state(&lane_state))
            {
                records.since.insert(
                    name.clone(),
                    StateStart {
                        state: lane_state.state,
                        task: lane_state.task,
                        unix_ms: now.unix_ms,
                    },
                );
            }
            records
                .bars
                .entry(name)
                .or_default()
                .push_state(lane_state, now.unix_ms);
        }
        records
            .since
            .retain(|name, _| board.agents.contains_key(name));
        records
            .bars
            .retain(|name, _| board.agents.contains_key(name));
        records.shares.retain(|name, _| counts.contains_key(name));
        let minute = now.unix_ms - now.unix_ms % MINUTE_MS;
        for (name, counts) in counts {
            let minutes = records.shares.entry(name).or_default();
            match minutes
                .back_mut()
                .filter(|(last_minute, _)| *last_minute == minute)
            {
                Some((_, last_counts)) => *last_counts = counts,
                None => minutes.push_back((minute, counts)),
            }
            while minutes.len() > MAX_SHARE_MINUTES {
                minutes.pop_front();
            }
        }
    }

    /// Adds bars (periods in one state) for the time before the daemon started.
    fn add_history(&self, past: &PastWork) {
        let mut records = self.lock();
        for (name, bars) in &past.bars {
            let lane = records.bars.entry(name.clone()).or_default();
            for bar in bars.iter().rev() {
                lane.push_front(bar.clone());
            }
        }
    }
}

/// Methods of a list of bars (periods that an agent spent in one state), which is sorted oldest
/// first.
trait BarList {
    fn push_state(&mut self, lane_state: AgentDisplay, wall: u64);
}

impl BarList for VecDeque<LaneBar> {
    fn push_state(&mut self, lane_state: AgentDisplay, wall: u64) {
        if let Some(last) = self.back_mut().filter(|bar| bar.to.is_none()) {
            if last.at == lane_state.state && last.task == lane_state.task {
                last.text = lane_state.text; // the state is unchanged, and its text may be newer
                return;
            }
            last.to = Some(wall.max(last.from));
        }
        // Add no bar for idle and offline times, because the page leaves these times empty.
        if !matches!(lane_state.state, DisplayState::Idle | DisplayState::Offline) {
            self.push_back(LaneBar {
                from: wall,
                to: None,
                at: lane_state.state,
                task: lane_state.task,
                text: lane_state.text,
            });
        }
        let old = |bar: &LaneBar| bar.to.is_some_and(|to| to + MAX_BAR_AGE_MS < wall);
        while self.len() > MAX_BARS || self.front().is_some_and(old) {
            self.pop_front();
        }
    }
}

/// The work of each agent before the daemon started, as read from the event log.
#[derive(Default)]
struct PastWork {
    open_attempts: BTreeMap<AttemptId, (AgentName, TaskId, u64)>,
    bars: BTreeMap<AgentName, Vec<LaneBar>>,
}

impl PastWork {
    fn fold(&mut self, recorded: &Recorded) {
        match &recorded.event {
            Event::AttemptStarted(attempt_started) => {
                let attempt = attempt_started.attempt();
                self.open_attempts.insert(
                    attempt.id,
                    (attempt.agent.clone(), attempt.task, attempt.started_unix_ms),
                );
            }
            Event::AttemptEnded(attempt_ended) => {
                if let Some((agent, task, from)) =
                    self.open_attempts.remove(attempt_ended.attempt())
                {
                    let bar = LaneBar {
                        from,
                        to: Some(recorded.now.unix_ms),
                        at: DisplayState::Working,
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

/// Maximum number of past events from which the agents' earlier states are read when the daemon
/// starts.
const MAX_EVENTS_READ: u64 = 20_000;

pub(super) async fn record_lanes(shared: Arc<ServerState>) {
    let (history, until) = (
        shared.engine.history().clone(),
        shared.engine.board().revision,
    );
    let past = tokio::task::spawn_blocking(move || {
        let (mut past, mut after) = (PastWork::default(), until.saturating_sub(MAX_EVENTS_READ));
        while after < until {
            let Ok(page) = history.events(after, 500) else {
                break;
            };
            let Some(last) = page.last() else { break };
            after = last.revision;
            page.iter()
                .filter(|event| event.revision <= until)
                .for_each(|event| past.fold(event));
        }
        past
    });
    if let Ok(past) = past.await {
        shared.live_caches.lanes.add_history(&past);
    }
    let mut board_changes = shared.event_fanout.watch_board();
    loop {
        shared
            .live_caches
            .lanes
            .record(&shared.engine.board(), shared.engine.now());
        let is_watched = shared
            .live_caches
            .connected_browsers
            .load(std::sync::atomic::Ordering::Relaxed)
            > 0;
        tokio::time::sleep(if is_watched {
            RECORD_INTERVAL
        } else {
            IDLE_RECORD_INTERVAL
        })
        .await;
        if board_changes.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane_state(state: DisplayState, task: u64) -> AgentDisplay {
        AgentDisplay {
            state,
            label: state.label(),
            task: Some(TaskId(task)),
            text: format!("{state:?}"),
        }
    }

    /// A bar lasts until the state changes. The bar of the present state has no end, and idle time
    /// is not drawn.
    #[test]
    fn bar_ends_when_another_state_begins() {
        let mut lane = VecDeque::new();
        lane.push_state(lane_state(DisplayState::Working, 1), 100);
        lane.push_state(lane_state(DisplayState::Working, 1), 200);
        lane.push_state(lane_state(DisplayState::Needs, 1), 300);
        lane.push_state(lane_state(DisplayState::Working, 1), 400);
        lane.push_state(AgentDisplay::default(), 500);
        lane.push_state(lane_state(DisplayState::Working, 2), 900);
        let shape: Vec<(u64, Option<u64>, DisplayState)> = lane
            .iter()
            .map(|lane_bar| (lane_bar.from, lane_bar.to, lane_bar.at))
            .collect();
        assert_eq!(
            shape,
            [
                (100, Some(300), DisplayState::Working),
                (300, Some(400), DisplayState::Needs),
                (400, Some(500), DisplayState::Working),
                (900, None, DisplayState::Working)
            ]
        );
    }

    #[test]
    fn lanes_have_a_limited_number_and_age_of_bars() {
        let mut lane = VecDeque::new();
        for nth in 0..1_000 {
            lane.push_state(lane_state(DisplayState::Working, nth), nth);
        }
        assert_eq!(lane.len(), MAX_BARS);
        lane.push_state(lane_state(DisplayState::Working, 5), 2 * MAX_BAR_AGE_MS);
        assert!(
            lane.len() <= 2,
            "bars older than a day are dropped: {}",
            lane.len()
        );
        // A clock that was set back creates no bar whose end is before its beginning.
        lane.push_state(lane_state(DisplayState::Working, 6), 7);
        assert!(
            lane.iter()
                .all(|lane_bar| lane_bar.to.is_none_or(|to| to >= lane_bar.from))
        );
    }
}
