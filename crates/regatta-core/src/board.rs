//! The board: all live state, and [`Draft`], the only way to change it.
//!
//! All live state is in persistent maps, so a draft of a board with 100,000 tasks costs microseconds. A task,
//! attempt or landing that has ended leaves the board and stays in the store. The maps marked "derived" are
//! indexes. They follow from the rows and are rebuilt when the rows are loaded, so they can never disagree with the
//! rows.

mod apply; // the change that each event makes
mod inbox; // snoozed items and failed tasks
mod lots; // ready tasks, grouped by the pattern that blocks them
mod queue; // the changes that events of the landing queue make

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::approval::Approval;
use crate::attempt::{Attempt, Phase};
use crate::budget::{Budget, DaySpend, Scope, Spend};
use crate::bus::{Cursor, Message};
use crate::claim::{Claim, Mode, Owner, Wait};
use crate::command::Actor;
use crate::conversation::{Conversation, Delivery};
use crate::event::Event;
use crate::fleet::{Answer, Limits};
use crate::graph::Step;
use crate::hook::{Firing, Hook};
use crate::ids::{
    AgentName, ApprovalId, AttemptId, ChannelName, ClaimId, ConversationId, FiringId, HookId, LandingId, LaunchId,
    MessageId, MissionId, Now, ProjectName, RequestKey, RuleId, RunnerName, TaskId, TeamName, WaitId,
};
use crate::inbox::Item;
use crate::landing::Landing;
use crate::launch::Launch;
use crate::mission::Mission;
use crate::pattern::PatternIndex;
use crate::policy::Rule;
use crate::project::Project;
use crate::provider::Parked;
use crate::runner::Runner;
use crate::standing;
use crate::task::{Status, Task};
use crate::team::Team;
use crate::{manifest, mission, schedule};
pub(crate) use lots::Lots;

/// The last number that each kind of id used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
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
pub struct Meta {
    pub revision: u64,
    /// The fleet clock at the last event. The clock continues from here after a restart.
    pub at: u64,
    pub counters: Counters,
    pub limits: Limits,
}

/// The agents that a ready task is for. Each value names one list of ready tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadyFor {
    Offered(AgentName),
    Agent(AgentName),
    Mission(MissionId),
    /// The tasks of one step of a mission in waves.
    Step(MissionId, Step),
    Pool(ProjectName),
}

/// An item with a deadline on the fleet clock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    Claim(ClaimId),
    Wait(WaitId),
    Offer(TaskId),
    Attempt(AttemptId),
    Landing(LandingId),
    Answer(RequestKey),
    /// A supervised attempt's deadline, the deadline of its session, or its next check against a budget.
    Time(AttemptId),
    /// A task that starts no earlier than a time.
    Task(TaskId),
    Approval(ApprovalId),
    /// A snoozed item of the inbox.
    Snooze(Item),
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
    pub at: u64,
    pub counters: Counters,
    pub limits: Limits,
    pub projects: OrdMap<ProjectName, Arc<Project>>,
    pub agents: OrdMap<AgentName, Arc<Agent>>,
    pub missions: OrdMap<MissionId, Arc<Mission>>,
    pub tasks: OrdMap<TaskId, Arc<Task>>,
    pub attempts: OrdMap<AttemptId, Arc<Attempt>>,
    pub claims: OrdMap<ClaimId, Arc<Claim>>,
    pub waits: OrdMap<WaitId, Arc<Wait>>,
    pub landings: OrdMap<LandingId, Arc<Landing>>,
    pub cursors: OrdMap<(AgentName, ChannelName), MessageId>,
    pub answers: OrdMap<RequestKey, Arc<Answer>>,
    /// Approvals that an attempt asked for and that are not closed.
    pub approvals: OrdMap<ApprovalId, Arc<Approval>>,
    pub rules: OrdMap<RuleId, Arc<Rule>>,
    pub budgets: OrdMap<Scope, Arc<Budget>>,
    /// The spending of each day, for the whole fleet and by agent.
    pub ledger: OrdMap<(u64, Option<AgentName>), Spend>,
    /// Providers and agents that are given no work.
    pub parked: OrdMap<String, Arc<Parked>>,
    pub runners: OrdMap<RunnerName, Arc<Runner>>,
    pub hooks: OrdMap<HookId, Arc<Hook>>,
    /// Firings of hooks whose command is running.
    pub firings: OrdMap<FiringId, Arc<Firing>>,
    /// Desired state of every team, including deleted teams.
    pub teams: OrdMap<TeamName, Arc<Team>>,
    /// The last launch of each team.
    pub launches: OrdMap<LaunchId, Arc<Launch>>,
    pub conversations: OrdMap<ConversationId, Arc<Conversation>>,
    /// Keys of accepted deliveries from outside services, with the time at which each key is forgotten.
    pub deliveries: OrdMap<String, u64>,
    /// Failed tasks that nobody has dealt with yet.
    pub failed: OrdMap<TaskId, Arc<Task>>,
    /// Tasks that ended without completing. A number that was handed out and that is neither open nor here belongs
    /// to a completed task.
    dead: OrdMap<TaskId, Status>,

    // Derived.
    pub(crate) held: PatternIndex,
    pub(crate) waiting: PatternIndex,
    /// The number of live attempts of each agent.
    pub(crate) running: OrdMap<AgentName, u32>,
    /// The number of live attempts that take no slot of the machine.
    pub(crate) light: usize,
    owned: OrdSet<(Owner, ClaimId)>,
    lined: OrdSet<(Owner, WaitId)>,
    ready: OrdSet<(ReadyFor, u8, TaskId)>,
    pub(crate) lots: Lots,
    dependents: OrdSet<(TaskId, TaskId)>,
    of_mission: OrdSet<(MissionId, Step, TaskId)>,
    queue: OrdSet<(ProjectName, u8, LandingId)>,
    due: OrdSet<(u64, Due)>,
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
    Budget(Scope),
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
    Meta(Meta),
    Project(Arc<Project>),
    Agent(Arc<Agent>),
    /// The flag is `true` while the mission runs.
    Mission(Arc<Mission>, bool),
    Task(Arc<Task>),
    Attempt(Arc<Attempt>),
    Claim(Arc<Claim>),
    Wait(Arc<Wait>),
    Landing(Arc<Landing>),
    Cursor(Cursor),
    Answer(Arc<Answer>),
    Message(Arc<Message>),
    Approval(Arc<Approval>),
    Rule(Arc<Rule>),
    Budget(Arc<Budget>),
    Day(DaySpend),
    Parked(Arc<Parked>),
    Runner(Arc<Runner>),
    Hook(Arc<Hook>),
    Firing(Arc<Firing>),
    Team(Arc<Team>),
    Launch(Arc<Launch>),
    Conversation(Arc<Conversation>),
    Delivery(Delivery),
}

impl Row {
    /// Returns whether the board needs the row. All other rows are history.
    pub fn is_live(&self) -> bool {
        match self {
            Row::Mission(_, running) => *running,
            Row::Task(it) => it.status.is_live(),
            Row::Attempt(it) => it.ended.is_none(),
            Row::Landing(it) => it.end.is_none(),
            Row::Message(_) => false,
            Row::Firing(it) => it.ended.is_none(),
            Row::Launch(it) => !it.superseded,
            Row::Conversation(it) => !it.closed,
            // The row is needed as long as its attempt may still have to receive the answer.
            Row::Approval(it) => !it.closed,
            Row::Rule(_) | Row::Budget(_) | Row::Day(_) | Row::Parked(_) | Row::Runner(_) | Row::Hook(_) => true,
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
        let mut loading = Loading::default();
        rows.into_iter().for_each(|it| loading.put(it));
        loading.done()
    }

    /// Returns the final status of a task. `None` for open tasks and for numbers that were never handed out.
    pub fn settled(&self, id: TaskId) -> Option<Status> {
        if id.0 == 0 || id.0 > self.counters.task || self.tasks.contains_key(&id) {
            None
        } else {
            Some(self.dead.get(&id).copied().unwrap_or(Status::Completed))
        }
    }

    /// Returns the claims of an owner, oldest first.
    pub fn claims_of(&self, owner: &Owner) -> Vec<ClaimId> {
        self.owned.range((owner.clone(), ClaimId(0))..=(owner.clone(), ClaimId(u64::MAX))).map(|it| it.1).collect()
    }

    /// Returns the waits of an owner, oldest first.
    pub fn waits_of(&self, owner: &Owner) -> Vec<WaitId> {
        self.lined.range((owner.clone(), WaitId(0))..=(owner.clone(), WaitId(u64::MAX))).map(|it| it.1).collect()
    }

    /// Returns the number of ready tasks, over all lists.
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Returns the ready tasks of one list, first to last.
    pub fn ready_for(&self, line: &ReadyFor) -> impl Iterator<Item = TaskId> {
        self.ready.range((line.clone(), 0, TaskId(0))..=(line.clone(), u8::MAX, TaskId(u64::MAX))).map(|it| it.2)
    }

    /// Returns the open tasks of a mission with their steps, in the order of the steps.
    pub fn open_tasks_of(&self, mission: MissionId) -> impl Iterator<Item = (Step, TaskId)> {
        let (first, last) = (Step::default(), Step { wave: u32::MAX, sub: u32::MAX });
        self.of_mission.range((mission, first, TaskId(0))..=(mission, last, TaskId(u64::MAX))).map(|it| (it.1, it.2))
    }

    /// Returns a project's landings by rank, age and number (Q10). `landing::queue` decides which of them is tried
    /// when.
    pub fn queue_of(&self, project: &ProjectName) -> impl Iterator<Item = &Arc<Landing>> {
        self.queue
            .range((project.clone(), 0, LandingId(0))..=(project.clone(), u8::MAX, LandingId(u64::MAX)))
            .filter_map(|it| self.landings.get(&it.2))
    }

    /// Returns the open tasks that `id` blocks.
    pub fn dependents_of(&self, id: TaskId) -> Vec<TaskId> {
        self.dependents.range((id, TaskId(0))..=(id, TaskId(u64::MAX))).map(|it| it.1).collect()
    }

    /// Returns the time of the next deadline after `now`, on the fleet clock. An item that is already due and could
    /// not be processed waits for a change of the board, not for the clock.
    pub fn next_deadline(&self, now: Now) -> Option<u64> {
        let floor = (now.at + 1, Due::Claim(ClaimId(0)));
        self.due.range(floor..).next().map(|it| it.0)
    }

    /// Returns the items whose deadline has passed, oldest first.
    pub fn due(&self, now: Now) -> Vec<Due> {
        self.due.iter().take_while(|it| it.0 <= now.at).map(|it| it.1.clone()).collect()
    }

    /// Returns the part of the board that the store keeps in its own row.
    pub fn meta(&self) -> Meta {
        Meta { revision: self.revision, at: self.at, counters: self.counters, limits: self.limits }
    }

    fn index_task(&mut self, task: &Task) {
        for blocker in &task.blocked_by {
            self.dependents.insert((*blocker, task.id));
        }
        if let Some(mission) = task.mission {
            self.of_mission.insert((mission, task.step(), task.id));
        }
        if let Some(line) = self.line_of(task) {
            let shared = manifest::mode(self, task) == Mode::Shared;
            let uris = manifest::claims(self, task);
            self.lots.insert(&line, task, &uris, shared);
            self.ready.insert((line, task.priority, task.id));
        }
        if let Some(at) = task.offer_until {
            self.due.insert((at, Due::Offer(task.id)));
        }
        if let Some(at) = task.not_before {
            self.due.insert((at, Due::Task(task.id)));
        }
        if let Some(it) = task.snoozed {
            self.due.insert((it.until_at, Due::Snooze(Item::Task(task.id))));
        }
    }

    fn unindex_task(&mut self, task: &Task) {
        for blocker in &task.blocked_by {
            self.dependents.remove(&(*blocker, task.id));
        }
        if let Some(mission) = task.mission {
            self.of_mission.remove(&(mission, task.step(), task.id));
        }
        let place = (self.line(task), task.priority, task.id);
        if self.ready.remove(&place).is_some() {
            let uris = manifest::claims(self, task);
            self.lots.remove(&place.0, task, &uris);
        }
        if let Some(at) = task.offer_until {
            self.due.remove(&(at, Due::Offer(task.id)));
        }
        if let Some(at) = task.not_before {
            self.due.remove(&(at, Due::Task(task.id)));
        }
        if let Some(it) = task.snoozed {
            self.due.remove(&(it.until_at, Due::Snooze(Item::Task(task.id))));
        }
    }

    /// Returns the list of a task that can start as soon as claims, slots and its mission's pace allow it; `None`
    /// for other tasks.
    fn line_of(&self, task: &Task) -> Option<ReadyFor> {
        let ready = task.status.is_waiting()
            && task.standing.is_none()
            && task.paused.is_none()
            && task.not_before.is_none()
            && !task.asleep
            && task.attempt.is_none()
            && task.blocked_by.iter().all(|it| self.settled(*it) == Some(Status::Completed))
            && schedule::gate(self, task).is_none()
            && standing::blocks(self, task).is_none();
        if !ready {
            return None;
        }
        Some(self.line(task))
    }

    /// Returns the list that a task with this assignee and mission belongs to when it is ready.
    fn line(&self, task: &Task) -> ReadyFor {
        let in_waves = |it| self.missions.get(&it).is_some_and(|it| it.mode == mission::Mode::Waves);
        match (&task.assignee, task.mission) {
            (Some(agent), _) if task.status == Status::Offered => ReadyFor::Offered(agent.clone()),
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
            if task.status != Status::Completed {
                self.dead.insert(task.id, task.status);
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
            if let Some(at) = old.expires_at {
                self.due.remove(&(at, Due::Attempt(old.id)));
            }
            for at in [old.until_at, old.ready_by, old.wall_at].into_iter().flatten() {
                self.due.remove(&(at, Due::Time(old.id)));
            }
            self.unindex_snooze(old.snoozed, || Item::Attempt(old.id));
            self.light -= usize::from(old.light);
            if old.standing.is_none() {
                let left = self.running.get(&old.agent).copied().unwrap_or(1) - 1;
                if left == 0 {
                    self.running.remove(&old.agent)
                } else {
                    self.running.insert(old.agent.clone(), left)
                };
            }
        }
        if attempt.ended.is_none() {
            self.light += usize::from(attempt.light);
            // The session of a team's member takes no slot of a task.
            if attempt.standing.is_none() {
                let count = self.running.get(&attempt.agent).copied().unwrap_or(0) + 1;
                self.running.insert(attempt.agent.clone(), count);
            }
            // The lease counts only while the attempt works. Afterwards Regatta itself is at work on the attempt.
            if let (Some(at), Phase::Working) = (attempt.expires_at, attempt.phase) {
                self.due.insert((at, Due::Attempt(attempt.id)));
            }
            if attempt.phase == Phase::Working && attempt.stopping.is_none() {
                let opened = attempt.talk.session.is_some() || attempt.talk.turns > 0;
                let ready_by = attempt.ready_by.filter(|_| !opened);
                for at in [attempt.until_at, ready_by, attempt.wall_at].into_iter().flatten() {
                    self.due.insert((at, Due::Time(attempt.id)));
                }
            }
            self.index_snooze(attempt.snoozed, || Item::Attempt(attempt.id));
            self.attempts.insert(attempt.id, attempt.clone());
        }
        rows.insert(RowKey::Attempt(attempt.id), Some(Row::Attempt(attempt)));
    }

    fn put_claim(&mut self, claim: Arc<Claim>, rows: &mut Rows) {
        let old = self.claims.insert(claim.id, claim.clone());
        // A renewal changes only the deadline, so unchanged parts are not indexed again.
        if old.as_ref().is_none_or(|it| it.uris != claim.uris) {
            if let Some(old) = &old {
                self.held.remove(claim.id.0, &old.uris);
            }
            self.held.insert(claim.id.0, &claim.uris);
        }
        if old.as_ref().is_none_or(|it| it.owner != claim.owner) {
            if let Some(old) = &old {
                self.owned.remove(&(old.owner.clone(), claim.id));
            }
            self.owned.insert((claim.owner.clone(), claim.id));
        }
        let before = old.and_then(|it| it.expires_at);
        if before != claim.expires_at {
            if let Some(at) = before {
                self.due.remove(&(at, Due::Claim(claim.id)));
            }
            if let Some(at) = claim.expires_at {
                self.due.insert((at, Due::Claim(claim.id)));
            }
        }
        rows.insert(RowKey::Claim(claim.id), Some(Row::Claim(claim)));
    }

    fn drop_claim(&mut self, id: ClaimId) {
        if let Some(old) = self.claims.remove(&id) {
            self.held.remove(id.0, &old.uris);
            self.owned.remove(&(old.owner.clone(), id));
            if let Some(at) = old.expires_at {
                self.due.remove(&(at, Due::Claim(id)));
            }
        }
    }

    fn put_wait(&mut self, wait: Arc<Wait>, rows: &mut Rows) {
        self.waiting.insert(wait.id.0, &wait.uris);
        self.lined.insert((wait.owner.clone(), wait.id));
        self.due.insert((wait.until_at, Due::Wait(wait.id)));
        self.waits.insert(wait.id, wait.clone());
        rows.insert(RowKey::Wait(wait.id), Some(Row::Wait(wait)));
    }

    fn drop_wait(&mut self, id: WaitId, rows: &mut Rows) {
        if let Some(old) = self.waits.remove(&id) {
            self.waiting.remove(id.0, &old.uris);
            self.lined.remove(&(old.owner.clone(), id));
            self.due.remove(&(old.until_at, Due::Wait(id)));
            rows.insert(RowKey::Wait(id), None);
        }
    }

    fn put_landing(&mut self, landing: Arc<Landing>, rows: &mut Rows) {
        if let Some(old) = self.landings.remove(&landing.id) {
            self.queue.remove(&(old.project.clone(), old.rank(), old.id));
            if let Some(at) = old.retry_at {
                self.due.remove(&(at, Due::Landing(old.id)));
            }
        }
        if landing.end.is_none() {
            self.queue.insert((landing.project.clone(), landing.rank(), landing.id));
            if let Some(at) = landing.retry_at {
                self.due.insert((at, Due::Landing(landing.id)));
            }
            self.landings.insert(landing.id, landing.clone());
        }
        rows.insert(RowKey::Landing(landing.id), Some(Row::Landing(landing)));
    }

    fn put_answer(&mut self, answer: Arc<Answer>, rows: &mut Rows) {
        self.due.insert((answer.until_at, Due::Answer(answer.key.clone())));
        self.answers.insert(answer.key.clone(), answer.clone());
        rows.insert(RowKey::Answer(answer.key.clone()), Some(Row::Answer(answer)));
    }

    fn put_project(&mut self, project: Arc<Project>, rows: &mut Rows) {
        // A project's checks decide if the contracts of its tasks are complete, and its settings decide which
        // claims they need. So its tasks are indexed again.
        let tasks: Vec<_> = self.tasks.values().filter(|it| it.project == project.name).cloned().collect();
        tasks.iter().for_each(|it| self.unindex_task(it));
        self.projects.insert(project.name.clone(), project.clone());
        tasks.iter().for_each(|it| self.index_task(it));
        rows.insert(RowKey::Project(project.name.clone()), Some(Row::Project(project)));
    }

    fn change_task(&mut self, id: TaskId, now: Now, rows: &mut Rows, change: impl FnOnce(&mut Task)) {
        if let Some(task) = self.tasks.get(&id) {
            let mut task = Task::clone(task);
            change(&mut task);
            task.updated_wall = now.wall;
            // Only an item that needs a person can be snoozed.
            let can_be = matches!(task.status, Status::NeedsHuman | Status::InReview | Status::Landing);
            task.snoozed = task.snoozed.filter(|_| can_be);
            if task.status.is_terminal() {
                (task.attempt, task.landing, task.offer_until) = (None, None, None);
                (task.not_before, task.resume) = (None, None);
            }
            self.put_task(Arc::new(task), rows);
        }
    }

    fn change_landing(&mut self, id: LandingId, rows: &mut Rows, change: impl FnOnce(&mut Landing)) {
        if let Some(landing) = self.landings.get(&id) {
            let mut landing = Landing::clone(landing);
            change(&mut landing);
            self.put_landing(Arc::new(landing), rows);
        }
    }

    fn change_attempt(&mut self, id: AttemptId, rows: &mut Rows, change: impl FnOnce(&mut Attempt)) {
        if let Some(attempt) = self.attempts.get(&id) {
            let mut attempt = Attempt::clone(attempt);
            change(&mut attempt);
            self.put_attempt(Arc::new(attempt), rows);
        }
    }
}

/// A board that is restored row by row, so that the reader need not hold all rows in memory.
#[derive(Debug, Default)]
pub struct Loading {
    board: Board,
    ignored: Rows,
}

impl Loading {
    /// Adds one row. Rows of ended things are skipped.
    pub fn put(&mut self, row: Row) {
        let (board, ignored) = (&mut self.board, &mut self.ignored);
        match row {
            Row::Meta(it) => {
                (board.revision, board.at, board.counters, board.limits) = (it.revision, it.at, it.counters, it.limits)
            }
            Row::Project(it) => _ = board.projects.insert(it.name.clone(), it),
            Row::Agent(it) => _ = board.agents.insert(it.name.clone(), it),
            Row::Mission(it, true) => board.put_mission(it, ignored),
            Row::Task(it) if it.status.is_terminal() => {
                board.put_failed(&it);
                self.put_ended(it.id, it.status);
            }
            Row::Task(it) => _ = board.tasks.insert(it.id, it),
            Row::Attempt(it) if it.ended.is_none() => board.put_attempt(it, ignored),
            Row::Claim(it) => board.put_claim(it, ignored),
            Row::Wait(it) => board.put_wait(it, ignored),
            Row::Landing(it) if it.end.is_none() => board.put_landing(it, ignored),
            Row::Cursor(it) => _ = board.cursors.insert((it.agent, it.channel), it.read),
            Row::Answer(it) => board.put_answer(it, ignored),
            Row::Approval(it) if !it.closed => board.put_approval(it, ignored),
            Row::Rule(it) => _ = board.rules.insert(it.id, it),
            Row::Budget(it) => board.put_budget(it, ignored),
            Row::Day(it) => _ = board.ledger.insert((it.day, it.agent), it.spend),
            Row::Runner(it) => board.put_runner(it, ignored),
            Row::Hook(it) => _ = board.hooks.insert(it.id, it),
            Row::Firing(it) if it.ended.is_none() => _ = board.firings.insert(it.id, it),
            Row::Team(it) => _ = board.teams.insert(it.name.clone(), it),
            Row::Conversation(it) if !it.closed => board.put_conversation(it, ignored),
            Row::Delivery(it) => board.put_delivery(&it, ignored),
            Row::Launch(it) if !it.superseded => _ = board.launches.insert(it.id, it),
            Row::Parked(it) => board.put_parked(it, ignored),
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

    /// Adds an open task that was just read, and frees memory that reading left unused, because there may be a
    /// hundred thousand tasks.
    pub fn put_task(&mut self, mut task: Task) {
        task.tighten();
        if let Some((name, _)) = self.board.projects.get_key_value(&task.project) {
            task.project = name.clone();
        }
        if let Some((name, _)) = task.assignee.as_ref().and_then(|it| self.board.agents.get_key_value(it)) {
            task.assignee = Some(name.clone());
        }
        self.put(Row::Task(Arc::new(task)));
    }

    /// Records the final status of an ended task. The board needs nothing else of it.
    pub fn put_ended(&mut self, id: TaskId, status: Status) {
        if status != Status::Completed {
            self.board.dead.insert(id, status);
        }
    }

    /// Returns the board. Tasks are indexed last, because a task's readiness depends on other tasks.
    pub fn done(self) -> Board {
        let mut board = self.board;
        for task in board.tasks.clone().values() {
            board.index_task(task);
        }
        board
    }
}

/// A change in progress: a copy of the board plus the events that changed it. A refused command drops its draft, so
/// it leaves no trace.
pub struct Draft {
    board: Board,
    now: Now,
    by: Actor,
    events: Vec<Event>,
    rows: Rows,
}

impl Draft {
    /// Begins a change of `board`.
    pub fn of(board: &Board, now: Now) -> Draft {
        Draft { board: board.clone(), now, by: Actor::Regatta, events: Vec::new(), rows: Rows::new() }
    }

    /// Sets the actor who asks for the change.
    pub(crate) fn asked_by(mut self, by: Actor) -> Draft {
        self.by = by;
        self
    }

    /// Returns the actor who asks for the change.
    pub(crate) fn by(&self) -> &Actor {
        &self.by
    }

    /// Returns the board with all events so far applied.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Takes the index of ready tasks out of the board, so that it can be changed while the board is read.
    /// [`Draft::put_lots`] puts it back.
    pub(crate) fn take_lots(&mut self) -> Lots {
        std::mem::take(&mut self.board.lots)
    }

    pub(crate) fn put_lots(&mut self, lots: Lots) {
        self.board.lots = lots;
    }

    /// Returns the time at which the change is made.
    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// Returns the revision of the next event. It is the fencing token of whatever that event grants.
    pub fn next_revision(&self) -> u64 {
        self.board.revision + 1
    }

    /// Records an event and applies it to the draft's board, so that later checks of the same command see it.
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
