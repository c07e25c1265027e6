//! The board: everything that Regatta currently knows in memory (open tasks, running attempts,
//! claims, the landing queue and so on), and [`Draft`], the only way to change it.
//!
//! The maps are persistent (a copy shares its unchanged parts with the original), so a draft of a
//! board with 100,000 tasks costs microseconds. A task, attempt or landing that has ended leaves
//! the board and stays in the store. The maps marked "derived" are indexes that are computed from
//! the stored rows when these are loaded, so they cannot disagree with the rows.
//!
//! Not here: the checks of commands (in the module of each subject, such as [`task`](crate::task)),
//! and reading or writing the rows (in the store).

mod apply_attempt; // applies events about attempts
mod apply_inbox; // changes of snoozed items, failed tasks, budgets and outages
mod apply_landing; // applies events about the landing queue
mod apply_task; // applies events about tasks
mod draft; // a change in progress
mod fold; // applies any event
mod index; // rows of the board, and its derived indexes
mod loader; // a board from its stored rows
mod put_rows; // rows of missions, approvals, runners, hooks, teams and spending
mod ready_index; // ready tasks, grouped by the pattern that blocks them

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::approval::Approval;
use crate::attempt::Attempt;
use crate::budget::{Budget, BudgetScope, DaySpend, Spend};
use crate::bus::{Message, ReadCursor};
use crate::claim::{Claim, ClaimOwner, ClaimWait};
use crate::conversation::{Conversation, DeliveryRecord};
use crate::graph::PlanStep;
use crate::hook::{Firing, Hook};
use crate::idempotency::StoredAnswer;
use crate::ids::{
    AgentName, ApprovalId, AttemptId, ChannelName, ClaimId, ConversationId, FiringId, HookId,
    LandingId, LaunchId, MessageId, MissionId, Now, ProjectName, RequestKey, RuleId, RunnerName,
    TaskId, TeamName, WaitId,
};
use crate::inbox::InboxItem;
use crate::landing::Landing;
use crate::launch::TeamLaunch;
use crate::limits::MachineLimits;
use crate::mission::Mission;
use crate::pattern::PatternIndex;
use crate::policy::PolicyRule;
use crate::project::Project;
use crate::provider_outage::ProviderOutage;
use crate::runner::Runner;
use crate::task::{Task, TaskStatus};
use crate::team::Team;

pub use draft::Draft;
pub use loader::BoardLoader;
pub(crate) use ready_index::ReadyIndex;

/// For each kind of id, the last number that was given out. The next id gets the number after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdCounters {
    pub task: u64,
    pub attempt: u64,
    pub claim: u64,
    pub wait: u64,
    pub landing: u64,
    pub mission: u64,
    pub message: u64,
    pub approval: u64,
    pub rule: u64,
    pub hook: u64,
    pub firing: u64,
    pub launch: u64,
    pub conversation: u64,
}

/// State of the board that belongs to no single object: the number of the last event, the clock,
/// the last used ids and the machine's limits. Stored as one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoardMeta {
    pub revision: u64,
    /// The fleet clock (milliseconds during which a daemon was running) at the last event. After a
    /// restart the clock continues from here.
    #[serde(rename = "at")]
    pub fleet_ms: u64,
    pub counters: IdCounters,
    pub limits: MachineLimits,
}

/// The agents that may take a ready task: one agent, a mission's agents, or any agent of the
/// project. Each value identifies one list of ready tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadyFor {
    Offered(AgentName),
    Agent(AgentName),
    Mission(MissionId),
    /// The tasks of one step of a mission whose steps run one after the other.
    Step(MissionId, PlanStep),
    Pool(ProjectName),
}

/// Something for which Regatta must act at a certain time of the fleet clock, for example because a
/// lease expires.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deadline {
    Claim(ClaimId),
    Wait(WaitId),
    Offer(TaskId),
    Attempt(AttemptId),
    Landing(LandingId),
    Answer(RequestKey),
    /// A supervised attempt (an attempt whose program Regatta runs): its time limit, the time by
    /// which its program must open a session, or its next budget check.
    AttemptTimer(AttemptId),
    /// A task that may not start before a certain time, for example because it is retried later.
    Task(TaskId),
    Approval(ApprovalId),
    /// An inbox item that a person has hidden until a certain time.
    Snooze(InboxItem),
    Provider(String),
    Runner(RunnerName),
    /// A mission whose lead agent is due for its next summary of events, or which reaches its
    /// deadline.
    Mission(MissionId),
    Conversation(ConversationId),
    Delivery(String),
}

/// All live state of one daemon. A `Board` changes only through a [`Draft`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Board {
    pub revision: u64,
    /// The fleet clock (milliseconds during which a daemon was running) at the last event.
    pub fleet_ms: u64,
    pub counters: IdCounters,
    pub limits: MachineLimits,
    pub projects: OrdMap<ProjectName, Arc<Project>>,
    pub agents: OrdMap<AgentName, Arc<Agent>>,
    pub missions: OrdMap<MissionId, Arc<Mission>>,
    pub tasks: OrdMap<TaskId, Arc<Task>>,
    pub attempts: OrdMap<AttemptId, Arc<Attempt>>,
    pub claims: OrdMap<ClaimId, Arc<Claim>>,
    pub waits: OrdMap<WaitId, Arc<ClaimWait>>,
    pub landings: OrdMap<LandingId, Arc<Landing>>,
    pub cursors: OrdMap<(AgentName, ChannelName), MessageId>,
    pub answers: OrdMap<RequestKey, Arc<StoredAnswer>>,
    /// Permission requests and questions of agents that are not closed yet, whether answered or
    /// not.
    pub approvals: OrdMap<ApprovalId, Arc<Approval>>,
    pub rules: OrdMap<RuleId, Arc<PolicyRule>>,
    pub budgets: OrdMap<BudgetScope, Arc<Budget>>,
    /// The spending by day (days since 1970) and agent. `None` instead of an agent is the total of
    /// all agents.
    pub ledger: OrdMap<(u64, Option<AgentName>), Spend>,
    /// Names of providers, agents and bridges that cannot work at present, such as
    /// `agent:claude-1`, with the reason.
    pub parked: OrdMap<String, Arc<ProviderOutage>>,
    pub runners: OrdMap<RunnerName, Arc<Runner>>,
    pub hooks: OrdMap<HookId, Arc<Hook>>,
    /// Runs of hooks whose command has not finished yet.
    pub firings: OrdMap<FiringId, Arc<Firing>>,
    /// The settings of every team, including deleted teams.
    pub teams: OrdMap<TeamName, Arc<Team>>,
    /// The latest launch (start of all members) of each team.
    pub launches: OrdMap<LaunchId, Arc<TeamLaunch>>,
    pub conversations: OrdMap<ConversationId, Arc<Conversation>>,
    /// Keys of webhook deliveries that were already accepted from outside services, each with the
    /// time at which Regatta forgets the key. A repeated delivery is recognised by its key.
    pub deliveries: OrdMap<String, u64>,
    /// Failed tasks that stay in the inbox, because nobody has retried or dismissed them yet.
    pub failed: OrdMap<TaskId, Arc<Task>>,
    /// Final statuses of the tasks that ended without completing. A task number that was given out
    /// and is neither here nor in `tasks` belongs to a completed task, so completed tasks need no
    /// entry.
    ended_statuses: OrdMap<TaskId, TaskStatus>,

    // The fields below are derived: they are indexes of the maps above and are not stored.
    pub(crate) held_patterns: PatternIndex,
    pub(crate) awaited_patterns: PatternIndex,
    /// The number of live attempts of each agent that count towards the agent's limit.
    pub(crate) running_by_agent: OrdMap<AgentName, u32>,
    /// The number of live attempts that do not count towards the machine's limit.
    pub(crate) attempts_without_slot: usize,
    claims_by_owner: OrdSet<(ClaimOwner, ClaimId)>,
    waits_by_owner: OrdSet<(ClaimOwner, WaitId)>,
    ready_tasks: OrdSet<(ReadyFor, u8, TaskId)>,
    pub(crate) ready_index: ReadyIndex,
    dependents: OrdSet<(TaskId, TaskId)>,
    tasks_by_mission: OrdSet<(MissionId, PlanStep, TaskId)>,
    landing_queue: OrdSet<(ProjectName, u8, LandingId)>,
    timers: OrdSet<(u64, Deadline)>,
}

/// Identifies one row in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKey {
    Meta,
    Project(ProjectName),
    Agent(AgentName),
    Mission(MissionId),
    Task(TaskId),
    Attempt(AttemptId),
    Claim(ClaimId),
    Wait(WaitId),
    Landing(LandingId),
    Cursor(AgentName, ChannelName),
    Answer(RequestKey),
    Message(MessageId),
    Approval(ApprovalId),
    Rule(RuleId),
    Budget(BudgetScope),
    Day(u64, Option<AgentName>),
    Parked(String),
    Runner(RunnerName),
    Hook(HookId),
    Firing(FiringId),
    Team(TeamName),
    Launch(LaunchId),
    Conversation(ConversationId),
    Delivery(String),
}

/// One row of the store with its content.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    Meta(BoardMeta),
    Project(Arc<Project>),
    Agent(Arc<Agent>),
    /// A mission. The flag is `true` while the mission is running.
    Mission(Arc<Mission>, bool),
    Task(Arc<Task>),
    Attempt(Arc<Attempt>),
    Claim(Arc<Claim>),
    Wait(Arc<ClaimWait>),
    Landing(Arc<Landing>),
    Cursor(ReadCursor),
    Answer(Arc<StoredAnswer>),
    Message(Arc<Message>),
    Approval(Arc<Approval>),
    Rule(Arc<PolicyRule>),
    Budget(Arc<Budget>),
    Day(DaySpend),
    Parked(Arc<ProviderOutage>),
    Runner(Arc<Runner>),
    Hook(Arc<Hook>),
    Firing(Arc<Firing>),
    Team(Arc<Team>),
    Launch(Arc<TeamLaunch>),
    Conversation(Arc<Conversation>),
    Delivery(DeliveryRecord),
}

impl Row {
    /// Returns whether the row belongs on the board. All other rows describe ended work, which only
    /// the store keeps.
    pub fn is_live(&self) -> bool {
        match self {
            Row::Mission(_, running) => *running,
            Row::Task(task) => task.status.is_live(),
            Row::Attempt(attempt) => attempt.end.is_none(),
            Row::Landing(landing) => landing.end.is_none(),
            Row::Message(_) => false,
            Row::Firing(firing) => firing.ended.is_none(),
            Row::Launch(team_launch) => !team_launch.superseded,
            Row::Conversation(conversation) => !conversation.closed,
            // An answered request stays on the board until it is closed, because its answer may
            // still have to be delivered.
            Row::Approval(approval) => !approval.closed,
            Row::Rule(_)
            | Row::Budget(_)
            | Row::Day(_)
            | Row::Parked(_)
            | Row::Runner(_)
            | Row::Hook(_) => true,
            Row::Meta(_)
            | Row::Project(_)
            | Row::Agent(_)
            | Row::Claim(_)
            | Row::Wait(_)
            | Row::Cursor(_)
            | Row::Team(_)
            | Row::Delivery(_)
            | Row::Answer(_) => true,
        }
    }
}

/// The rows that one transaction of the store changes. `None` deletes the row.
pub type Rows = BTreeMap<RowKey, Option<Row>>;

impl Board {
    /// Builds a board from the stored rows, which may come in any order.
    pub fn from_rows(rows: impl IntoIterator<Item = Row>) -> Board {
        let mut loader = BoardLoader::default();
        rows.into_iter().for_each(|row| loader.put(row));
        loader.finish()
    }

    /// Returns the final status of an ended task. `None` for an open task, and for an id that was
    /// never given out.
    pub fn ended_status(&self, id: TaskId) -> Option<TaskStatus> {
        if id.0 == 0 || id.0 > self.counters.task || self.tasks.contains_key(&id) {
            return None;
        }
        let status = self.ended_statuses.get(&id).copied();
        Some(status.unwrap_or(TaskStatus::Completed))
    }

    /// Returns whether a task ended with success.
    pub fn is_completed(&self, id: TaskId) -> bool {
        self.ended_status(id).is_some_and(TaskStatus::is_completed)
    }

    /// Returns the number of failed and cancelled tasks.
    pub fn unsuccessful_count(&self) -> usize {
        self.ended_statuses.len()
    }

    /// Returns the claims that an owner holds, oldest first.
    pub fn claims_of(&self, owner: &ClaimOwner) -> Vec<ClaimId> {
        self.claims_by_owner
            .range((owner.clone(), ClaimId(0))..=(owner.clone(), ClaimId(u64::MAX)))
            .map(|(_, claim)| *claim)
            .collect()
    }

    /// Returns the owner's requests for claims that are still waiting, oldest first.
    pub fn waits_of(&self, owner: &ClaimOwner) -> Vec<WaitId> {
        self.waits_by_owner
            .range((owner.clone(), WaitId(0))..=(owner.clone(), WaitId(u64::MAX)))
            .map(|(_, wait)| *wait)
            .collect()
    }

    /// Returns the number of ready tasks in all lists together.
    pub fn ready_count(&self) -> usize {
        self.ready_tasks.len()
    }

    /// Returns the ready tasks of one list, by priority and then by id.
    pub fn ready_for(&self, list: &ReadyFor) -> impl Iterator<Item = TaskId> {
        self.ready_tasks
            .range((list.clone(), 0, TaskId(0))..=(list.clone(), u8::MAX, TaskId(u64::MAX)))
            .map(|(_, _, task)| *task)
    }

    /// Returns the open tasks of a mission, each with the step of the plan that it belongs to, in
    /// the order of the steps.
    pub fn open_tasks_of(&self, mission: MissionId) -> impl Iterator<Item = (PlanStep, TaskId)> {
        let (first, last) = (PlanStep::default(), PlanStep::ANY);
        self.tasks_by_mission
            .range((mission, first, TaskId(0))..=(mission, last, TaskId(u64::MAX)))
            .map(|(_, step, task)| (*step, *task))
    }

    /// Returns the landings (finished work that waits to be merged) in a project's queue, by rank
    /// and id (Q10). [`landing::queue`](crate::landing) decides which landing is tried when.
    pub fn queue_of(&self, project: &ProjectName) -> impl Iterator<Item = &Arc<Landing>> {
        self.landing_queue
            .range(
                (project.clone(), 0, LandingId(0))
                    ..=(project.clone(), u8::MAX, LandingId(u64::MAX)),
            )
            .filter_map(|(_, _, landing)| self.landings.get(landing))
    }

    /// Returns the open tasks that cannot start before task `id` is completed.
    pub fn dependents_of(&self, id: TaskId) -> Vec<TaskId> {
        self.dependents
            .range((id, TaskId(0))..=(id, TaskId(u64::MAX)))
            .map(|(_, dependent)| *dependent)
            .collect()
    }

    /// Returns the time of the next deadline after `now`, in milliseconds of Regatta's own clock
    /// (the fleet clock). Deadlines that have already passed are left out: an item that could not
    /// be processed at its deadline is tried again when the board changes, not by a timer.
    pub fn next_deadline(&self, now: Now) -> Option<u64> {
        let floor = (now.fleet_ms + 1, Deadline::Claim(ClaimId(0)));
        self.timers.range(floor..).next().map(|(at, _)| *at)
    }

    /// Returns everything on the board whose deadline has passed, earliest deadline first.
    pub fn expired_timers(&self, now: Now) -> Vec<Deadline> {
        self.timers
            .iter()
            .take_while(|(at, _)| *at <= now.fleet_ms)
            .map(|(_, deadline)| deadline.clone())
            .collect()
    }

    /// Returns the part of the board that belongs to no single object and that the store keeps in a
    /// row of its own.
    pub fn meta(&self) -> BoardMeta {
        BoardMeta {
            revision: self.revision,
            fleet_ms: self.fleet_ms,
            counters: self.counters,
            limits: self.limits,
        }
    }
}
