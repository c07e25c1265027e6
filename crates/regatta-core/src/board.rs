//! The board: all live state, and [`Draft`], the only way to change it.
//!
//! All live state is in persistent maps, so a draft of a board with 100,000 tasks costs
//! microseconds. A task, attempt or landing that has ended leaves the board and stays in the store.
//! The maps marked "derived" are indexes. They follow from the rows and are rebuilt when the rows
//! are loaded, so they can never disagree with the rows.

mod apply_inbox; // snoozed items and failed tasks
mod apply_landing;
mod fold; // the change that each event makes
// ready tasks, grouped by the pattern that blocks them // the changes that events of the landing
// queue make
mod ready_index;

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::approval::Approval;
use crate::attempt::{Attempt, AttemptPhase};
use crate::budget::{Budget, BudgetScope, DaySpend, Spend};
use crate::bus::{Message, ReadCursor};
use crate::claim::{Claim, ClaimMode, ClaimOwner, ClaimWait};
use crate::command::Actor;
use crate::conversation::{Conversation, DeliveryRecord};
use crate::event::Event;
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
use crate::project_rules;
use crate::provider_outage::ProviderOutage;
use crate::runner::Runner;
use crate::task::{Task, TaskStatus};
use crate::team::Team;
use crate::{manifest, mission, schedule};
pub(crate) use ready_index::ReadyIndex;

/// The last number that each kind of id used.
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

/// State that belongs to no noun: the position in the log, and the numbers that are used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoardMeta {
    pub revision: u64,
    /// The fleet clock at the last event. The clock continues from here after a restart.
    #[serde(rename = "at")]
    pub fleet_ms: u64,
    pub counters: IdCounters,
    pub limits: MachineLimits,
}

/// The agents that a ready task is for. Each value names one list of ready tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadyFor {
    Offered(AgentName),
    Agent(AgentName),
    Mission(MissionId),
    /// The tasks of one step of a mission in waves.
    Step(MissionId, PlanStep),
    Pool(ProjectName),
}

/// An item with a deadline on the fleet clock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deadline {
    Claim(ClaimId),
    Wait(WaitId),
    Offer(TaskId),
    Attempt(AttemptId),
    Landing(LandingId),
    Answer(RequestKey),
    /// A supervised attempt's deadline, the deadline of its session, or its next check against a
    /// budget.
    AttemptTimer(AttemptId),
    /// A task that starts no earlier than a time.
    Task(TaskId),
    Approval(ApprovalId),
    /// A snoozed item of the inbox.
    Snooze(InboxItem),
    Provider(String),
    Runner(RunnerName),
    /// The next summary or the deadline of a mission's lead.
    Mission(MissionId),
    Conversation(ConversationId),
    Delivery(String),
}

/// All live state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Board {
    pub revision: u64,
    /// The fleet clock at the last event.
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
    /// Approvals that an attempt asked for and that are not closed.
    pub approvals: OrdMap<ApprovalId, Arc<Approval>>,
    pub rules: OrdMap<RuleId, Arc<PolicyRule>>,
    pub budgets: OrdMap<BudgetScope, Arc<Budget>>,
    /// The spending of each day, for the whole fleet and by agent.
    pub ledger: OrdMap<(u64, Option<AgentName>), Spend>,
    /// Providers and agents that are given no work.
    pub parked: OrdMap<String, Arc<ProviderOutage>>,
    pub runners: OrdMap<RunnerName, Arc<Runner>>,
    pub hooks: OrdMap<HookId, Arc<Hook>>,
    /// Firings of hooks whose command is running.
    pub firings: OrdMap<FiringId, Arc<Firing>>,
    /// Desired state of every team, including deleted teams.
    pub teams: OrdMap<TeamName, Arc<Team>>,
    /// The last launch of each team.
    pub launches: OrdMap<LaunchId, Arc<TeamLaunch>>,
    pub conversations: OrdMap<ConversationId, Arc<Conversation>>,
    /// Keys of accepted deliveries from outside services, with the time at which each key is
    /// forgotten.
    pub deliveries: OrdMap<String, u64>,
    /// Failed tasks that nobody has dealt with yet.
    pub failed: OrdMap<TaskId, Arc<Task>>,
    /// Tasks that ended without completing. A number that was handed out and that is neither open
    /// nor here belongs to a completed task.
    ended_statuses: OrdMap<TaskId, TaskStatus>,

    // Derived.
    pub(crate) held_patterns: PatternIndex,
    pub(crate) awaited_patterns: PatternIndex,
    /// The number of live attempts of each agent.
    pub(crate) running_by_agent: OrdMap<AgentName, u32>,
    /// The number of live attempts that take no slot of the machine.
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

/// The name of a row in the store.
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

/// A whole row, as the store keeps it.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    Meta(BoardMeta),
    Project(Arc<Project>),
    Agent(Arc<Agent>),
    /// The flag is `true` while the mission runs.
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
    /// Returns whether the board needs the row. All other rows are history.
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
            // The row is needed as long as its attempt may still have to receive the answer.
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

/// Changed rows of a commit. `None` means that the row is deleted.
pub type Rows = BTreeMap<RowKey, Option<Row>>;

impl Board {
    /// Restores a board from its live rows, in any order.
    pub fn from_rows(rows: impl IntoIterator<Item = Row>) -> Board {
        let mut loading = BoardLoader::default();
        rows.into_iter().for_each(|row| loading.put(row));
        loading.finish()
    }

    /// Returns the final status of a task. `None` for open tasks and for numbers that were never
    /// handed out.
    pub fn ended_status(&self, id: TaskId) -> Option<TaskStatus> {
        if id.0 == 0 || id.0 > self.counters.task || self.tasks.contains_key(&id) {
            None
        } else {
            Some(
                self.ended_statuses
                    .get(&id)
                    .copied()
                    .unwrap_or(TaskStatus::Completed),
            )
        }
    }

    /// Returns the claims of an owner, oldest first.
    pub fn claims_of(&self, owner: &ClaimOwner) -> Vec<ClaimId> {
        self.claims_by_owner
            .range((owner.clone(), ClaimId(0))..=(owner.clone(), ClaimId(u64::MAX)))
            .map(|claims_by_owner| claims_by_owner.1)
            .collect()
    }

    /// Returns the waits of an owner, oldest first.
    pub fn waits_of(&self, owner: &ClaimOwner) -> Vec<WaitId> {
        self.waits_by_owner
            .range((owner.clone(), WaitId(0))..=(owner.clone(), WaitId(u64::MAX)))
            .map(|waits_by_owner| waits_by_owner.1)
            .collect()
    }

    /// Returns the number of ready tasks, over all lists.
    pub fn ready_count(&self) -> usize {
        self.ready_tasks.len()
    }

    /// Returns the ready tasks of one list, first to last.
    pub fn ready_for(&self, line: &ReadyFor) -> impl Iterator<Item = TaskId> {
        self.ready_tasks
            .range((line.clone(), 0, TaskId(0))..=(line.clone(), u8::MAX, TaskId(u64::MAX)))
            .map(|ready_task| ready_task.2)
    }

    /// Returns the open tasks of a mission with their steps, in the order of the steps.
    pub fn open_tasks_of(&self, mission: MissionId) -> impl Iterator<Item = (PlanStep, TaskId)> {
        let (first, last) = (
            PlanStep::default(),
            PlanStep {
                wave: u32::MAX,
                sub: u32::MAX,
            },
        );
        self.tasks_by_mission
            .range((mission, first, TaskId(0))..=(mission, last, TaskId(u64::MAX)))
            .map(|tasks_by_mission| (tasks_by_mission.1, tasks_by_mission.2))
    }

    /// Returns a project's landings by rank, age and number (Q10). `landing::queue` decides which
    /// of them is tried when.
    pub fn queue_of(&self, project: &ProjectName) -> impl Iterator<Item = &Arc<Landing>> {
        self.landing_queue
            .range(
                (project.clone(), 0, LandingId(0))
                    ..=(project.clone(), u8::MAX, LandingId(u64::MAX)),
            )
            .filter_map(|landing_queue| self.landings.get(&landing_queue.2))
    }

    /// Returns the open tasks that `id` blocks.
    pub fn dependents_of(&self, id: TaskId) -> Vec<TaskId> {
        self.dependents
            .range((id, TaskId(0))..=(id, TaskId(u64::MAX)))
            .map(|dependent| dependent.1)
            .collect()
    }

    /// Returns the time of the next deadline after `now`, on the fleet clock. An item that is
    /// already due and could not be processed waits for a change of the board, not for the clock.
    pub fn next_deadline(&self, now: Now) -> Option<u64> {
        let floor = (now.fleet_ms + 1, Deadline::Claim(ClaimId(0)));
        self.timers.range(floor..).next().map(|timer| timer.0)
    }

    /// Returns the items whose deadline has passed, oldest first.
    pub fn expired_timers(&self, now: Now) -> Vec<Deadline> {
        self.timers
            .iter()
            .take_while(|timer| timer.0 <= now.fleet_ms)
            .map(|timer| timer.1.clone())
            .collect()
    }

    /// Returns the part of the board that the store keeps in its own row.
    pub fn meta(&self) -> BoardMeta {
        BoardMeta {
            revision: self.revision,
            fleet_ms: self.fleet_ms,
            counters: self.counters,
            limits: self.limits,
        }
    }

    fn index_task(&mut self, task: &Task) {
        for blocker in &task.blocked_by {
            self.dependents.insert((*blocker, task.id));
        }
        if let Some(mission) = task.mission {
            self.tasks_by_mission
                .insert((mission, task.step(), task.id));
        }
        if let Some(line) = self.ready_list_of(task) {
            let shared = manifest::claim_mode(self, task) == ClaimMode::Shared;
            let uris = manifest::claims_of_task(self, task);
            self.ready_index.insert(&line, task, &uris, shared);
            self.ready_tasks.insert((line, task.priority, task.id));
        }
        if let Some(at) = task.offer_until_fleet_ms {
            self.timers.insert((at, Deadline::Offer(task.id)));
        }
        if let Some(at) = task.not_before_fleet_ms {
            self.timers.insert((at, Deadline::Task(task.id)));
        }
        if let Some(snooze) = task.snoozed {
            self.timers.insert((
                snooze.deadline_fleet_ms,
                Deadline::Snooze(InboxItem::Task(task.id)),
            ));
        }
    }

    fn unindex_task(&mut self, task: &Task) {
        for blocker in &task.blocked_by {
            self.dependents.remove(&(*blocker, task.id));
        }
        if let Some(mission) = task.mission {
            self.tasks_by_mission
                .remove(&(mission, task.step(), task.id));
        }
        let place = (self.ready_list(task), task.priority, task.id);
        if self.ready_tasks.remove(&place).is_some() {
            let uris = manifest::claims_of_task(self, task);
            self.ready_index.remove(&place.0, task, &uris);
        }
        if let Some(at) = task.offer_until_fleet_ms {
            self.timers.remove(&(at, Deadline::Offer(task.id)));
        }
        if let Some(at) = task.not_before_fleet_ms {
            self.timers.remove(&(at, Deadline::Task(task.id)));
        }
        if let Some(snooze) = task.snoozed {
            self.timers.remove(&(
                snooze.deadline_fleet_ms,
                Deadline::Snooze(InboxItem::Task(task.id)),
            ));
        }
    }

    /// Returns the list of a task that can start as soon as claims, slots and its mission's pace
    /// allow it; `None` for other tasks.
    fn ready_list_of(&self, task: &Task) -> Option<ReadyFor> {
        let ready = task.status.is_waiting()
            && task.session_of.is_none()
            && task.paused.is_none()
            && task.not_before_fleet_ms.is_none()
            && !task.resting
            && task.attempt.is_none()
            && task
                .blocked_by
                .iter()
                .all(|id| self.ended_status(*id) == Some(TaskStatus::Completed))
            && schedule::missing_contract_part(self, task).is_none()
            && project_rules::blocking_rule(self, task).is_none();
        if !ready {
            return None;
        }
        Some(self.ready_list(task))
    }

    /// Returns the list that a task with this assignee and mission belongs to when it is ready.
    fn ready_list(&self, task: &Task) -> ReadyFor {
        let in_waves = |id| {
            self.missions
                .get(&id)
                .is_some_and(|mission| mission.mode == mission::StartMode::Waves)
        };
        match (&task.assignee, task.mission) {
            (Some(agent), _) if task.status == TaskStatus::Offered => {
                ReadyFor::Offered(agent.clone())
            }
            (Some(agent), _) => ReadyFor::Agent(agent.clone()),
            (None, Some(mission)) if in_waves(mission) => ReadyFor::Step(mission, task.step()),
            (None, Some(mission)) => ReadyFor::Mission(mission),
            (None, None) => ReadyFor::Pool(task.project.clone()),
        }
    }

    fn put_task(&mut self, task: Arc<Task>, rows: &mut Rows) {
        if let Some(old) = self.tasks.get(&task.id).cloned() {
            self.unindex_task(&old);
        }
        if task.status.is_terminal() {
            self.tasks.remove(&task.id);
            if task.status != TaskStatus::Completed {
                self.ended_statuses.insert(task.id, task.status);
            }
            self.put_failed(&task);
            for dependent in self.dependents_of(task.id) {
                if let Some(dependent) = self.tasks.get(&dependent).cloned() {
                    self.unindex_task(&dependent);
                    self.index_task(&dependent);
                }
            }
        } else {
            self.tasks.insert(task.id, task.clone());
            self.index_task(&task);
        }
        rows.insert(RowKey::Task(task.id), Some(Row::Task(task)));
    }

    fn put_attempt(&mut self, attempt: Arc<Attempt>, rows: &mut Rows) {
        if let Some(old) = self.attempts.remove(&attempt.id) {
            if let Some(at) = old.expires_fleet_ms {
                self.timers.remove(&(at, Deadline::Attempt(old.id)));
            }
            for at in [
                old.deadline_fleet_ms,
                old.session_deadline_fleet_ms,
                old.budget_check_fleet_ms,
            ]
            .into_iter()
            .flatten()
            {
                self.timers.remove(&(at, Deadline::AttemptTimer(old.id)));
            }
            self.unindex_snooze(old.snoozed, || InboxItem::Attempt(old.id));
            self.attempts_without_slot -= usize::from(old.takes_no_slot);
            if old.session_of.is_none() {
                let left = self.running_by_agent.get(&old.agent).copied().unwrap_or(1) - 1;
                if left == 0 {
                    self.running_by_agent.remove(&old.agent)
                } else {
                    self.running_by_agent.insert(old.agent.clone(), left)
                };
            }
        }
        if attempt.end.is_none() {
            self.attempts_without_slot += usize::from(attempt.takes_no_slot);
            // The session of a team's member takes no slot of a task.
            if attempt.session_of.is_none() {
                let count = self
                    .running_by_agent
                    .get(&attempt.agent)
                    .copied()
                    .unwrap_or(0)
                    + 1;
                self.running_by_agent.insert(attempt.agent.clone(), count);
            }
            // The lease counts only while the attempt works. Afterwards Regatta itself is at work
            // on the attempt.
            if let (Some(at), AttemptPhase::Working) = (attempt.expires_fleet_ms, attempt.phase) {
                self.timers.insert((at, Deadline::Attempt(attempt.id)));
            }
            if attempt.phase == AttemptPhase::Working && attempt.stopping.is_none() {
                let opened = attempt.session.session_id.is_some() || attempt.session.turns > 0;
                let ready_by = attempt.session_deadline_fleet_ms.filter(|_| !opened);
                for at in [
                    attempt.deadline_fleet_ms,
                    ready_by,
                    attempt.budget_check_fleet_ms,
                ]
                .into_iter()
                .flatten()
                {
                    self.timers.insert((at, Deadline::AttemptTimer(attempt.id)));
                }
            }
            self.index_snooze(attempt.snoozed, || InboxItem::Attempt(attempt.id));
            self.attempts.insert(attempt.id, attempt.clone());
        }
        rows.insert(RowKey::Attempt(attempt.id), Some(Row::Attempt(attempt)));
    }

    fn put_claim(&mut self, claim: Arc<Claim>, rows: &mut Rows) {
        let old = self.claims.insert(claim.id, claim.clone());
        // A renewal changes only the deadline, so unchanged parts are not indexed again.
        if old.as_ref().is_none_or(|old| old.uris != claim.uris) {
            if let Some(old) = &old {
                self.held_patterns.remove(claim.id.0, &old.uris);
            }
            self.held_patterns.insert(claim.id.0, &claim.uris);
        }
        if old.as_ref().is_none_or(|old| old.owner != claim.owner) {
            if let Some(old) = &old {
                self.claims_by_owner.remove(&(old.owner.clone(), claim.id));
            }
            self.claims_by_owner.insert((claim.owner.clone(), claim.id));
        }
        let before = old.and_then(|claim| claim.expires_fleet_ms);
        if before != claim.expires_fleet_ms {
            if let Some(at) = before {
                self.timers.remove(&(at, Deadline::Claim(claim.id)));
            }
            if let Some(at) = claim.expires_fleet_ms {
                self.timers.insert((at, Deadline::Claim(claim.id)));
            }
        }
        rows.insert(RowKey::Claim(claim.id), Some(Row::Claim(claim)));
    }

    fn drop_claim(&mut self, id: ClaimId) {
        if let Some(old) = self.claims.remove(&id) {
            self.held_patterns.remove(id.0, &old.uris);
            self.claims_by_owner.remove(&(old.owner.clone(), id));
            if let Some(at) = old.expires_fleet_ms {
                self.timers.remove(&(at, Deadline::Claim(id)));
            }
        }
    }

    fn put_wait(&mut self, wait: Arc<ClaimWait>, rows: &mut Rows) {
        self.awaited_patterns.insert(wait.id.0, &wait.uris);
        self.waits_by_owner.insert((wait.owner.clone(), wait.id));
        self.timers
            .insert((wait.deadline_fleet_ms, Deadline::Wait(wait.id)));
        self.waits.insert(wait.id, wait.clone());
        rows.insert(RowKey::Wait(wait.id), Some(Row::Wait(wait)));
    }

    fn drop_wait(&mut self, id: WaitId, rows: &mut Rows) {
        if let Some(old) = self.waits.remove(&id) {
            self.awaited_patterns.remove(id.0, &old.uris);
            self.waits_by_owner.remove(&(old.owner.clone(), id));
            self.timers
                .remove(&(old.deadline_fleet_ms, Deadline::Wait(id)));
            rows.insert(RowKey::Wait(id), None);
        }
    }

    fn put_landing(&mut self, landing: Arc<Landing>, rows: &mut Rows) {
        if let Some(old) = self.landings.remove(&landing.id) {
            self.landing_queue
                .remove(&(old.project.clone(), old.rank(), old.id));
            if let Some(at) = old.retry_fleet_ms {
                self.timers.remove(&(at, Deadline::Landing(old.id)));
            }
        }
        if landing.end.is_none() {
            self.landing_queue
                .insert((landing.project.clone(), landing.rank(), landing.id));
            if let Some(at) = landing.retry_fleet_ms {
                self.timers.insert((at, Deadline::Landing(landing.id)));
            }
            self.landings.insert(landing.id, landing.clone());
        }
        rows.insert(RowKey::Landing(landing.id), Some(Row::Landing(landing)));
    }

    fn put_answer(&mut self, answer: Arc<StoredAnswer>, rows: &mut Rows) {
        self.timers.insert((
            answer.deadline_fleet_ms,
            Deadline::Answer(answer.key.clone()),
        ));
        self.answers.insert(answer.key.clone(), answer.clone());
        rows.insert(
            RowKey::Answer(answer.key.clone()),
            Some(Row::Answer(answer)),
        );
    }

    fn put_project(&mut self, project: Arc<Project>, rows: &mut Rows) {
        // A project's checks decide if the contracts of its tasks are complete, and its settings
        // decide which claims they need. So its tasks are indexed again.
        let tasks: Vec<_> = self
            .tasks
            .values()
            .filter(|task| task.project == project.name)
            .cloned()
            .collect();
        tasks.iter().for_each(|task| self.unindex_task(task));
        self.projects.insert(project.name.clone(), project.clone());
        tasks.iter().for_each(|task| self.index_task(task));
        rows.insert(
            RowKey::Project(project.name.clone()),
            Some(Row::Project(project)),
        );
    }

    fn change_task(
        &mut self,
        id: TaskId,
        now: Now,
        rows: &mut Rows,
        change: impl FnOnce(&mut Task),
    ) {
        if let Some(task) = self.tasks.get(&id) {
            let mut task = Task::clone(task);
            change(&mut task);
            task.updated_unix_ms = now.unix_ms;
            // Only an item that needs a person can be snoozed.
            let can_be = matches!(
                task.status,
                TaskStatus::NeedsHuman | TaskStatus::InReview | TaskStatus::Landing
            );
            task.snoozed = task.snoozed.filter(|_| can_be);
            if task.status.is_terminal() {
                (task.attempt, task.landing, task.offer_until_fleet_ms) = (None, None, None);
                (task.not_before_fleet_ms, task.resume) = (None, None);
            }
            self.put_task(Arc::new(task), rows);
        }
    }

    fn change_landing(
        &mut self,
        id: LandingId,
        rows: &mut Rows,
        change: impl FnOnce(&mut Landing),
    ) {
        if let Some(landing) = self.landings.get(&id) {
            let mut landing = Landing::clone(landing);
            change(&mut landing);
            self.put_landing(Arc::new(landing), rows);
        }
    }

    fn change_attempt(
        &mut self,
        id: AttemptId,
        rows: &mut Rows,
        change: impl FnOnce(&mut Attempt),
    ) {
        if let Some(attempt) = self.attempts.get(&id) {
            let mut attempt = Attempt::clone(attempt);
            change(&mut attempt);
            self.put_attempt(Arc::new(attempt), rows);
        }
    }
}

/// A board that is restored row by row, so that the reader need not hold all rows in memory.
#[derive(Debug, Default)]
pub struct BoardLoader {
    board: Board,
    ignored: Rows,
}

impl BoardLoader {
    /// Adds one row. Rows of ended things are skipped.
    pub fn put(&mut self, row: Row) {
        let (board, ignored) = (&mut self.board, &mut self.ignored);
        match row {
            Row::Meta(board_meta) => {
                (board.revision, board.fleet_ms, board.counters, board.limits) = (
                    board_meta.revision,
                    board_meta.fleet_ms,
                    board_meta.counters,
                    board_meta.limits,
                )
            }
            Row::Project(project) => _ = board.projects.insert(project.name.clone(), project),
            Row::Agent(agent) => _ = board.agents.insert(agent.name.clone(), agent),
            Row::Mission(mission, true) => board.put_mission(mission, ignored),
            Row::Task(task) if task.status.is_terminal() => {
                board.put_failed(&task);
                self.put_ended(task.id, task.status);
            }
            Row::Task(task) => _ = board.tasks.insert(task.id, task),
            Row::Attempt(attempt) if attempt.end.is_none() => board.put_attempt(attempt, ignored),
            Row::Claim(claim) => board.put_claim(claim, ignored),
            Row::Wait(claim_wait) => board.put_wait(claim_wait, ignored),
            Row::Landing(landing) if landing.end.is_none() => board.put_landing(landing, ignored),
            Row::Cursor(read_cursor) => {
                _ = board
                    .cursors
                    .insert((read_cursor.agent, read_cursor.channel), read_cursor.read)
            }
            Row::Answer(stored_answer) => board.put_answer(stored_answer, ignored),
            Row::Approval(approval) if !approval.closed => board.put_approval(approval, ignored),
            Row::Rule(policy_rule) => _ = board.rules.insert(policy_rule.id, policy_rule),
            Row::Budget(budget) => board.put_budget(budget, ignored),
            Row::Day(day_spend) => {
                _ = board
                    .ledger
                    .insert((day_spend.day, day_spend.agent), day_spend.spend)
            }
            Row::Runner(runner) => board.put_runner(runner, ignored),
            Row::Hook(hook) => _ = board.hooks.insert(hook.id, hook),
            Row::Firing(firing) if firing.ended.is_none() => {
                _ = board.firings.insert(firing.id, firing)
            }
            Row::Team(team) => _ = board.teams.insert(team.name.clone(), team),
            Row::Conversation(conversation) if !conversation.closed => {
                board.put_conversation(conversation, ignored)
            }
            Row::Delivery(delivery) => board.put_delivery(&delivery, ignored),
            Row::Launch(team_launch) if !team_launch.superseded => {
                _ = board.launches.insert(team_launch.id, team_launch)
            }
            Row::Parked(provider_outage) => board.put_parked(provider_outage, ignored),
            Row::Mission(..)
            | Row::Attempt(_)
            | Row::Landing(_)
            | Row::Message(_)
            | Row::Approval(_)
            | Row::Firing(_)
            | Row::Conversation(_)
            | Row::Launch(_) => {}
        }
        self.ignored.clear();
    }

    /// Adds an open task that was just read, and frees memory that reading left unused, because
    /// there may be a hundred thousand tasks.
    pub fn put_task(&mut self, mut task: Task) {
        task.shrink_to_fit();
        if let Some((name, _)) = self.board.projects.get_key_value(&task.project) {
            task.project = name.clone();
        }
        if let Some((name, _)) = task
            .assignee
            .as_ref()
            .and_then(|agent| self.board.agents.get_key_value(agent))
        {
            task.assignee = Some(name.clone());
        }
        self.put(Row::Task(Arc::new(task)));
    }

    /// Records the final status of an ended task. The board needs nothing else of it.
    pub fn put_ended(&mut self, id: TaskId, status: TaskStatus) {
        if status != TaskStatus::Completed {
            self.board.ended_statuses.insert(id, status);
        }
    }

    /// Returns the board. Tasks are indexed last, because a task's readiness depends on other
    /// tasks.
    pub fn finish(self) -> Board {
        let mut board = self.board;
        for task in board.tasks.clone().values() {
            board.index_task(task);
        }
        board
    }
}

/// A change in progress: a copy of the board plus the events that changed it. A refused command
/// drops its draft, so it leaves no trace.
pub struct Draft {
    board: Board,
    now: Now,
    actor: Actor,
    events: Vec<Event>,
    rows: Rows,
}

impl Draft {
    /// Begins a change of `board`.
    pub fn new(board: &Board, now: Now) -> Draft {
        Draft {
            board: board.clone(),
            now,
            actor: Actor::Regatta,
            events: Vec::new(),
            rows: Rows::new(),
        }
    }

    /// Sets the actor who asks for the change.
    pub(crate) fn with_actor(mut self, by: Actor) -> Draft {
        self.actor = by;
        self
    }

    /// Returns the actor who asks for the change.
    pub(crate) fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Returns the board with all events so far applied.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Takes the index of ready tasks out of the board, so that it can be changed while the board
    /// is read. [`Draft::put_ready_index`] puts it back.
    pub(crate) fn take_ready_index(&mut self) -> ReadyIndex {
        std::mem::take(&mut self.board.ready_index)
    }

    pub(crate) fn put_ready_index(&mut self, lots: ReadyIndex) {
        self.board.ready_index = lots;
    }

    /// Returns the time at which the change is made.
    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// Returns the revision of the next event. It is the fencing token of whatever that event
    /// grants.
    pub fn next_revision(&self) -> u64 {
        self.board.revision + 1
    }

    /// Records an event and applies it to the draft's board, so that later checks of the same
    /// command see it.
    pub(crate) fn record(&mut self, event: Event) {
        self.board.apply(&event, self.now, &mut self.rows);
        self.events.push(event);
    }

    pub(crate) fn has_recorded(&self) -> bool {
        !self.events.is_empty()
    }

    /// Removes and returns the events since the last call, in order.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub(crate) fn into_parts(self) -> (Board, Rows) {
        (self.board, self.rows)
    }
}
