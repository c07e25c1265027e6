//! Builds the history on the page of one mission: the questions and permission requests of its agents
//! with their answers, and the attempts of its agents over time.
//!
//! Answered requests and ended attempts no longer change, so they are cached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use regatta_api::live_view::{DisplayState, LaneBar, MissionDecision, MissionLane};
use regatta_core::agent_protocol::RequestContent;
use regatta_core::approval::Approval;
use regatta_core::attempt::Attempt;
use regatta_core::display;
use regatta_core::ids::{AgentName, ApprovalId, AttemptId, TaskId};
use regatta_core::mission::Mission;
use regatta_core::task::Task;
use regatta_engine::ports::store::StoreError;

use super::topics::TopicContext;

/// Number of requests on a mission's page.
const MAX_DECISIONS: usize = 20;
/// Maximum number of requests that are read to find the requests of one mission.
const MAX_READ_REQUESTS: u64 = 10_000;
/// Maximum number of agents whose attempts the page draws, and of attempts that it draws for one
/// agent.
const MAX_LANES: usize = 40;
const MAX_BARS_PER_LANE: usize = 100;
/// Maximum number of tasks whose attempts are drawn, the last changed tasks first.
const MAX_LANE_TASKS: usize = 1_000;

/// The parts of a mission's page that no longer change.
#[derive(Clone, Default)]
pub(super) struct PageCache {
    /// The name of the person or agent who started the mission, once it was read from the log.
    pub(super) asked_by: Option<String>,
    /// The newest request that was read. `open` and `closed` are the mission's requests up to it.
    read_until: ApprovalId,
    open: BTreeSet<ApprovalId>,
    closed: BTreeMap<ApprovalId, MissionDecision>,
    /// The attempts of each task, with the version of the task for which they were read.
    attempts: BTreeMap<TaskId, (TaskVersion, Vec<AttemptBar>)>,
}

/// The facts of a task that change whenever one of its attempts begins or ends.
type TaskVersion = (Option<AttemptId>, u64);

#[derive(Clone)]
struct AttemptBar {
    agent: AgentName,
    is_running: bool,
    bar: LaneBar,
}

impl TopicContext<'_> {
    /// Reads the requests of the mission's agents that are newer than the cache, and the requests
    /// that were open when they were last read.
    pub(super) fn read_decisions(
        &self,
        mission: &Mission,
        cache: &mut PageCache,
    ) -> Result<(), StoreError> {
        let newest = self.board.counters.approval;
        for id in std::mem::take(&mut cache.open) {
            self.read_request(mission, id, cache)?;
        }
        let first = cache
            .read_until
            .0
            .max(newest.saturating_sub(MAX_READ_REQUESTS))
            + 1;
        for id in (first..=newest).rev().map(ApprovalId) {
            if !self.read_request(mission, id, cache)? {
                break;
            }
        }
        cache.read_until = ApprovalId(newest);
        Ok(())
    }

    /// Reads one request into the cache. Returns false if the request is older than the mission, so
    /// that earlier requests need not be read.
    fn read_request(
        &self,
        mission: &Mission,
        id: ApprovalId,
        cache: &mut PageCache,
    ) -> Result<bool, StoreError> {
        let Some(approval) = self.history.approval(id)? else {
            return Ok(true);
        };
        if approval.mission == Some(mission.id) {
            if approval.is_open() {
                cache.open.insert(id);
            } else {
                cache.closed.insert(id, decision(&approval));
            }
        }
        Ok(approval.asked_unix_ms >= mission.created_unix_ms)
    }

    pub(super) fn decisions(
        &self,
        cache: &PageCache,
    ) -> Result<(Vec<MissionDecision>, usize), StoreError> {
        let mut shown = Vec::new();
        for id in cache.open.iter().take(MAX_DECISIONS) {
            shown.extend(self.history.approval(*id)?.as_ref().map(decision));
        }
        let room = MAX_DECISIONS - shown.len();
        shown.extend(cache.closed.values().rev().take(room).cloned());
        Ok((shown, cache.open.len() + cache.closed.len()))
    }

    /// Returns the lanes of the agents that worked on the mission, busy agents first.
    pub(super) fn mission_lanes(
        &self,
        tasks: &[Arc<Task>],
        cache: &mut PageCache,
    ) -> Result<(Vec<MissionLane>, usize), StoreError> {
        let mut lanes: BTreeMap<AgentName, MissionLane> = BTreeMap::new();
        let mut known = std::mem::take(&mut cache.attempts);
        let agents: BTreeSet<&AgentName> = tasks
            .iter()
            .filter_map(|task| task.agent.as_ref())
            .collect();
        let total = agents.len();
        let mut begun: Vec<&Arc<Task>> = tasks.iter().filter(|task| task.agent.is_some()).collect();
        begun.sort_by_key(|task| std::cmp::Reverse(task.updated_unix_ms));
        for task in begun.into_iter().take(MAX_LANE_TASKS) {
            let version = (task.attempt, task.updated_unix_ms);
            let bars = match known.remove(&task.id).filter(|(at, _)| *at == version) {
                Some((_, bars)) => bars,
                None => attempt_bars(task, &self.history.attempts_of(task.id)?),
            };
            let shown = display::task_display(self.board, task);
            for attempt in &bars {
                let name = || attempt.agent.clone();
                let lane = lanes.entry(name()).or_insert_with(|| MissionLane {
                    agent: name(),
                    at: DisplayState::Idle,
                    word: DisplayState::Idle.label().into(),
                    task: None,
                    bars: vec![],
                });
                let mut bar = attempt.bar.clone();
                if attempt.is_running {
                    (lane.at, lane.word, lane.task) =
                        (shown.state, shown.label.into(), Some(task.id));
                    bar.at = shown.state;
                }
                lane.bars.push(bar);
            }
            cache.attempts.insert(task.id, (version, bars));
        }
        let total = total.max(lanes.len());
        let mut lanes: Vec<MissionLane> = lanes.into_values().collect();
        lanes.sort_by_key(|lane| (lane.at.rank(), std::cmp::Reverse(lane.bars.len())));
        lanes.truncate(MAX_LANES);
        for lane in &mut lanes {
            lane.bars.sort_by_key(|bar| bar.from);
            let excess = lane.bars.len().saturating_sub(MAX_BARS_PER_LANE);
            lane.bars.drain(..excess);
        }
        Ok((lanes, total))
    }
}

fn decision(approval: &Approval) -> MissionDecision {
    let kind = match approval.request.content {
        RequestContent::Permission { .. } => "permission",
        RequestContent::Question { .. } => "question",
    };
    let (at, answer) = match &approval.decision {
        Some(decision) => (DisplayState::Landed, decision.answer.phrase()),
        None if approval.is_open() => (DisplayState::Needs, "needs an answer".into()),
        None => (DisplayState::Offline, "withdrawn".into()),
    };
    let by = approval.decision.as_ref().map(|decision| {
        let name = decision.by.display_name();
        match &decision.rule {
            Some(rule) => format!("{name}, rule {rule}"),
            None => name.to_owned(),
        }
    });
    MissionDecision {
        id: approval.id,
        at,
        kind: kind.into(),
        task: approval.task,
        agent: approval.agent.clone(),
        subject: approval.subject(),
        answer,
        by: by.unwrap_or_default(),
        asked_wall: approval.asked_unix_ms,
        answered_wall: approval.decision.as_ref().map(|decision| decision.unix_ms),
    }
}

/// Returns a bar for each attempt at a task. An attempt that ended without success is drawn as
/// failed.
fn attempt_bars(task: &Task, attempts: &[Attempt]) -> Vec<AttemptBar> {
    let bar = |attempt: &Attempt| {
        let failed = attempt.end.as_ref().filter(|end| !end.cause.is_success());
        AttemptBar {
            agent: attempt.agent.clone(),
            is_running: attempt.end.is_none(),
            bar: LaneBar {
                from: attempt.started_unix_ms,
                to: attempt.end.as_ref().map(|end| end.unix_ms),
                at: match failed {
                    Some(_) => DisplayState::Failed,
                    None => DisplayState::Working,
                },
                task: Some(task.id),
                text: match failed {
                    Some(end) => format!("{}: {}", end.cause.label(), first_line(&end.detail)),
                    None => task.subject.clone(),
                },
            },
        }
    };
    attempts.iter().map(bar).collect()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
