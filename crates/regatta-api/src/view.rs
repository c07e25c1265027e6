//! The data that interfaces display. An interface shows a view as it is and computes no status from
//! it.

mod answers; // answers with several kinds, or with a few facts
mod attempt; // attempts: grant, requests, briefing, checks, journal
mod bridge; // conversations and bridges
mod budgets; // budgets, and the amounts spent
mod claim; // claims
mod cost; // cost, and the work that it paid for
mod graph; // dependency graphs with their layout
mod inbox; // the inbox
mod inbox_group; // inbox items with the same cause
mod messages; // messages and hooks
mod mission; // missions
mod queue; // the landing queue and its batches
mod replay; // replays of missions
mod why; // why something waits, and its history

use regatta_core::agent::{self, Agent, Capacity};
use regatta_core::attempt::Attempt;
use regatta_core::board::Board;
use regatta_core::bus::Message;
use regatta_core::display::{
    self, AgentAvailability, AgentDisplay, DisplayState, FleetSummary, ProgramActivity,
};
use regatta_core::event::Recorded;
use regatta_core::ids::{
    AgentName, ApprovalId, AttemptId, CommitId, MissionId, Now, ProjectName, TaskId,
};
use regatta_core::project::{RuleAction, StandingRule};
use regatta_core::schedule::{self, WaitReason};
use regatta_core::scope_escape::{self, ScopeEscape};
use regatta_core::start_gates::{self, GateResult, GateVerdict};
use regatta_core::task::Task;
use regatta_core::task_timeline::TaskTimeline;
use regatta_core::{approval, provider_outage};
use serde::{Deserialize, Serialize};

use crate::json;
use crate::problem::Problem;
use crate::verb::{AnswerData, TokenScope};

pub use answers::{
    InboxDecisionView, NameAnswer, ResumeAnswer, RunnerCallView, ShowAnswer, StopAnswer, TellView,
    WhyAnswer,
};
pub use attempt::{
    AttemptRequestView, BriefingView, CheckResultView, GrantedAttempt, JournalRecordView,
    SiblingAttemptView, TaskBriefView, without_token,
};
pub use bridge::{BridgeHealthView, BridgeView, ConversationLineView};
pub use budgets::{BudgetView, BudgetsView};
pub use claim::{
    ClaimCheckView, ClaimView, ClaimWaitView, ClaimsView, GrantedClaim, WorkClaimView,
};
pub use cost::{
    CostRow, CostTable, CostView, LandedLinesView, SpendResultsView, forecast_text, price_text,
};
pub use graph::{GraphEdgeView, GraphNodeView, GraphView};
pub use inbox::{InboxChoice, InboxView};
pub use inbox_group::InboxGroup;
pub use messages::*;
pub use mission::{GuideView, MissionLineView, MissionView};
pub use queue::{BatchView, LandingView, QueueView};
pub use replay::{MissionFiguresView, ReplayMarkView, ReplayView};
pub use why::{AgentWhyView, TaskHistoryView, WhyView, short_duration};

/// The answer to a call: the data, and the revision (number of the last event) at which the data
/// was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerbAnswer<T> {
    pub revision: u64,
    pub data: T,
    /// The cursor of the next page. Only set if the data is a page of a list and there are more
    /// entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> VerbAnswer<T> {
    /// Converts the data of the answer.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> VerbAnswer<U> {
        VerbAnswer {
            revision: self.revision,
            data: convert(self.data),
            next: self.next,
        }
    }
}

impl VerbAnswer<AnswerData> {
    /// Converts the answer to the JSON text that callers get.
    pub fn to_json(&self) -> Result<Vec<u8>, Problem> {
        let encode = || {
            let next = self.next.as_ref().map(serde_json::to_string).transpose()?;
            let mut text = format!("{{\"revision\":{},\"data\":", self.revision).into_bytes();
            text.extend(self.data.to_json()?);
            if let Some(next) = next {
                text.extend(b",\"next\":");
                text.extend(next.into_bytes());
            }
            text.push(b'}');
            Ok(text)
        };
        encode().map_err(|error: serde_json::Error| not_encoded(&error))
    }

    /// Converts the data to a JSON value, for callers that change or copy parts of it.
    pub fn data_to_value(&self) -> Result<serde_json::Value, Problem> {
        let text = self.data.to_json().map_err(|error| not_encoded(&error))?;
        serde_json::from_slice(&text).map_err(|error| not_encoded(&error))
    }
}

fn not_encoded(error: &serde_json::Error) -> Problem {
    Problem::new(
        500,
        "bug",
        format!("could not encode the daemon's answer as JSON: {error}"),
        "this is a bug in Regatta; report it with this message and logs/daemon.log",
    )
}

/// A task with its status in one word and the reasons why it waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskView {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub task: Task,
    /// The task's status, one of: backlog, waiting, working, review, landing, landed, done, needs
    /// you, failed, cancelled. For the session of a team's member also: starting, idle, hung,
    /// stopping.
    pub word: String,
    /// The state of the task for programs. `word` is the status as a word for people.
    pub at: DisplayState,
    /// The position of the task in lists, the most urgent first. Tasks of the same urgency have the
    /// same position.
    #[serde(default)]
    pub rank: usize,
    pub waits: Vec<WaitReason>,
    /// The present activity of the program of the task's running attempt, in words; empty if
    /// Regatta does not run that program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<String>,
    /// The present activity of the task's running attempt for programs; empty if no attempt runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<ProgramActivity>,
    /// The time when the suspiciously long silence of the task's program began, in milliseconds
    /// since 1970; empty if the program is not silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_wall: Option<u64>,
    /// The request of the task's agent that nobody has answered yet. The agent waits for the
    /// answer, or continues without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<ApprovalId>,
    /// The time when the task's program last wrote or received something, in milliseconds since
    /// 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_wall: Option<u64>,
    /// The results of the conditions that are checked before the task starts. If an attempt is
    /// running, these are the results at its start. Otherwise, they are the results for a start
    /// now. Only set when one task is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateResult>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// The path on the daemon's machine of the workspace with the task's unfinished work, if there
    /// is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The commit that now contains the landed work, if the trunk was rebased onto the trunk of the
    /// remote repository after the landing. Only set when one task is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now_as: Option<CommitId>,
    /// The task whose landed work reverted this task's landed work; empty if nothing reverted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_by: Option<TaskId>,
    /// The task's activities since it was created, with their times. Only set when one task is
    /// shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<TaskTimeline>,
}

impl TaskView {
    /// Builds the view of a task from the board (the current state of everything), without the
    /// fields that are only set when one task is shown.
    pub fn new(board: &Board, task: &Task, now: Now) -> TaskView {
        let attempt = task.attempt.and_then(|id| board.attempts.get(&id));
        let shown = display::task_display(board, task);
        TaskView {
            task: task.clone(),
            word: shown.label.into(),
            at: shown.state,
            rank: display::task_rank(board, task),
            waits: schedule::wait_reasons(board, task, now),
            live: attempt
                .filter(|attempt| attempt.supervised || attempt.by_hand)
                .map(|attempt| display::program_activity_text(board, attempt)),
            activity: attempt.map(|attempt| display::program_activity(board, attempt)),
            quiet_wall: attempt.and_then(|attempt| attempt.quiet_since_unix_ms),
            asks: attempt
                .and_then(|attempt| approval::open_request_of(board, attempt))
                .or_else(|| approval::open_question(board, task.id))
                .map(|approval| approval.id),
            heard_wall: None,
            gates: vec![],
            attempts: vec![],
            workspace: None,
            now_as: None,
            undone_by: board
                .projects
                .get(&task.project)
                .and_then(|project| project.queue.undone.get(&task.id).copied()),
            life: None,
        }
    }

    /// Adds the results of the conditions that are checked before a task starts. If an attempt is
    /// running, these are the results at its start. Otherwise, they are the results for a start
    /// now.
    pub fn with_gates(mut self, board: &Board, now: Now) -> TaskView {
        let live = self.task.attempt.and_then(|id| board.attempts.get(&id));
        self.gates = match live {
            Some(attempt) => start_gates::restore_results(&attempt.gates),
            None if self.task.status.is_waiting() => {
                let blocking = self
                    .task
                    .mission
                    .and_then(|id| board.missions.get(&id))
                    .map_or(&[][..], |mission| &mission.blocking_gates);
                let held = |gate| {
                    blocking
                        .iter()
                        .find(|gate_result| gate_result.gate == gate)
                        .cloned()
                };
                let results = start_gates::evaluate(
                    board,
                    &self.task,
                    &start_gates::StartFacts::default(),
                    now,
                );
                results
                    .into_iter()
                    .map(|gate_result| {
                        held(gate_result.gate)
                            .filter(|_| gate_result.verdict != GateVerdict::Block)
                            .unwrap_or(gate_result)
                    })
                    .collect()
            }
            None => vec![],
        };
        self
    }

    /// Adds the time when the task's program last wrote something, if Regatta runs that program.
    pub fn with_last_output(mut self, heard_wall: Option<u64>) -> TaskView {
        self.heard_wall = heard_wall.filter(|_| self.live.is_some());
        self
    }
}

/// A scope escape: a change that an agent made, or work that it found necessary, outside the files
/// that its task may change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EscapeView {
    /// The id of the escape, such as `T3.1`: the task's id and a number.
    pub id: String,
    pub task: TaskId,
    pub project: ProjectName,
    pub subject: String,
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub escape: ScopeEscape,
    /// The follow-up task that was created from the escape, if there is one.
    pub follow_up: Option<TaskId>,
}

impl EscapeView {
    /// Builds the views of all scope escapes of these tasks (changes outside the files that a task
    /// may change), oldest first.
    pub fn list(tasks: &[Task]) -> Vec<EscapeView> {
        let escapes = EscapeView::positions(tasks).into_iter();
        escapes
            .map(|(task, nth)| EscapeView::new(task, nth, tasks))
            .collect()
    }

    /// Returns all scope escapes of these tasks, oldest first, each as its task and its position
    /// among the escapes of the task.
    pub fn positions(tasks: &[Task]) -> Vec<(&Task, usize)> {
        let mut all: Vec<(&Task, usize)> = tasks
            .iter()
            .flat_map(|task| (0..task.escapes.len()).map(move |nth| (task, nth)))
            .collect();
        all.sort_by_key(|(task, nth)| task.escapes[*nth].unix_ms);
        all
    }

    /// Builds the view of a task's scope escape. The follow-up task of the escape is one of `tasks`.
    pub fn new(task: &Task, nth: usize, tasks: &[Task]) -> EscapeView {
        let id = scope_escape::escape_name(task.id, nth);
        let follow_up = tasks
            .iter()
            .find(|task| task.alias.as_deref() == Some(&id))
            .map(|task| task.id);
        EscapeView {
            id,
            task: task.id,
            project: task.project.clone(),
            subject: task.subject.clone(),
            escape: task.escapes[nth].clone(),
            follow_up,
        }
    }
}

/// A standing rule (a rule of a project for all its work), with its project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleView {
    pub project: ProjectName,
    #[serde(flatten)]
    pub rule: StandingRule,
}

/// A standing rule (a rule of a project for all its work) that applies to a tested task or change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleMatchView {
    /// The time at which the rule is checked: `start` means before a task starts, and `landing`
    /// means before its work lands.
    pub before: String,
    pub action: RuleAction,
    pub words: String,
}

/// An agent with its state, its tasks, and the number of tasks that it can take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentView {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub agent: Agent,
    pub capacity: Capacity,
    /// Whether the agent could take work. `at` is the state that all views show.
    pub availability: AgentAvailability,
    /// The same as `availability`.
    pub state: String,
    /// The state of the agent for programs. `word` is the same state as a word for people, and
    /// `text` describes it in a few words.
    pub at: DisplayState,
    pub word: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    pub tasks: Vec<TaskId>,
    /// The reason why the agent gets no work at present; empty if it gets work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<String>,
    /// The time when the agent's program last wrote something, in milliseconds since 1970; empty if
    /// no program runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_wall: Option<u64>,
    /// The problems because of which the daemon cannot start the agent, each with a fix; empty if
    /// the daemon can start the agent. Only set when one agent is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<AgentProblem>,
}

/// A problem because of which the daemon cannot start an agent, with a hint that says how to fix
/// the problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentProblem {
    pub what: String,
    pub hint: String,
}

impl AgentView {
    /// Builds the views of all agents from the board (the current state of everything).
    pub fn list(board: &Board, now: Now) -> Vec<AgentView> {
        AgentView::list_of(board, board.agents.keys(), now)
    }

    /// Builds the views of the registered agents with these names, in the order of the names.
    pub fn list_of<'a>(
        board: &Board,
        names: impl IntoIterator<Item = &'a AgentName>,
        now: Now,
    ) -> Vec<AgentView> {
        let mut displays = display::agent_displays(board, now);
        let view = |name: &AgentName| {
            let shown = displays.remove(name)?;
            let agent = board.agents.get(name)?;
            Some(AgentView::from_display(board, agent, shown, now))
        };
        names.into_iter().filter_map(view).collect()
    }

    /// Builds the view of a registered agent from the board (the current state of everything).
    pub fn new(board: &Board, agent: &Agent, now: Now) -> AgentView {
        let shown = display::agent_display(board, &agent.name, now).unwrap_or_default();
        AgentView::from_display(board, agent, shown, now)
    }

    fn from_display(board: &Board, agent: &Agent, shown: AgentDisplay, now: Now) -> AgentView {
        let capacity = agent::capacity(board, agent);
        let tasks = board
            .attempts
            .values()
            .filter(|attempt| attempt.agent == agent.name)
            .map(|attempt| attempt.task)
            .collect();
        let parked = provider_outage::find_parked(board, agent)
            .map(|provider_outage| provider_outage::describe(provider_outage, now));
        let offline = display::offline_reason(board, agent);
        let availability = display::agent_availability(board, agent);
        let agent = Agent {
            offline,
            ..agent.clone()
        };
        AgentView {
            agent,
            capacity,
            availability,
            state: availability.name().into(),
            at: shown.state,
            word: shown.label.into(),
            text: shown.text,
            tasks,
            parked,
            heard_wall: None,
            problems: vec![],
        }
    }
}

/// One line of the audit log: a change that somebody requested, and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditLineView {
    /// The number of the line in the audit log.
    pub n: u64,
    pub time: String,
    pub verb: String,
    /// The id of the thing that the request was about, such as a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The person or agent under whose name the request was made.
    pub by: String,
    /// The name of the access token that was used; `owner` is the token of the daemon's own user.
    pub token: String,
    pub scope: TokenScope,
    /// The origin of the request: a network address, or the process at the unix socket.
    pub from: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The attempt whose program made the request, if the request came from an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<regatta_core::ids::AttemptId>,
    /// The revision (number of the last event) after the change; empty if the request did not
    /// succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The reason why the request was refused; empty if it succeeded. If `revision` is empty too,
    /// the caller disconnected before the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// An access token as a list shows it. Its secret is not stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenView {
    pub name: String,
    pub scope: TokenScope,
    pub made_wall: u64,
    /// The time when the token becomes invalid, in milliseconds since 1970; empty if the token does
    /// not expire.
    pub expires_wall: Option<u64>,
    pub expired: bool,
}

/// A new access token, with its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewTokenView {
    #[serde(flatten)]
    pub view: TokenView,
    /// The secret that callers send to authenticate. Only this answer contains the secret.
    pub token: String,
}

/// The change of files that a task's work makes, as a diff.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffView {
    pub task: TaskId,
    pub base: CommitId,
    pub commit: CommitId,
    pub files: Vec<String>,
    /// The attempt that made this change; empty if the change is the work that the task has landed
    /// or is about to land.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// Files that the attempt changed although its task may not change them. The diff does not
    /// contain these changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    pub patch: String,
}

/// A summary of everything that the daemon manages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusView {
    /// The counts of everything that the daemon manages, such as the number of working tasks. The
    /// counts below, `missions` and `progress` are copied from the summary.
    pub summary: FleetSummary,
    pub working: usize,
    pub waiting: usize,
    pub landing: usize,
    pub needs_you: usize,
    pub completed: u64,
    pub failed: u64,
    pub projects: Vec<ProjectView>,
    pub missions: Vec<MissionId>,
    /// The title of each mission in `missions`, with the number of its tasks that have landed.
    #[serde(default)]
    pub progress: Vec<crate::live_view::MissionProgress>,
    pub tasks: Vec<TaskView>,
    pub agents: Vec<AgentView>,
    pub url: String,
    /// Rows of the database that cannot be read. Everything else in this view is computed without
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRowView>,
    /// Projects whose settings file contains an error. Their previous settings stay in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_faults: Vec<SettingsFileFault>,
}

/// A project's settings file that cannot be applied, with the error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettingsFileFault {
    pub project: ProjectName,
    pub why: String,
}

/// A row of the database that cannot be read, with the error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnreadableRowView {
    pub table: String,
    pub id: String,
    pub why: String,
}

/// A project with its trunk, its checks, and the state of its landing queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProjectView {
    pub name: ProjectName,
    pub path: String,
    pub trunk: String,
    pub tip: Option<CommitId>,
    pub validation: Vec<String>,
    pub open_tasks: usize,
    pub queue: usize,
    /// Pairs of unfinished work that are expected to conflict, and the number of earlier forecasts
    /// that came true.
    #[serde(default)]
    pub radar: regatta_core::collision_forecast::CollisionForecast,
    /// The person who stopped the project's landing queue, and the reason; empty if the queue is
    /// not stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<regatta_core::landing::QueueHold>,
    /// Landed work that Regatta could not push to the remote repository yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpushed: Option<regatta_core::landing::remote_sync::Unpushed>,
    /// A sentence about a difference between the trunk branch and what Regatta has recorded as
    /// landed; empty if they agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk_differs: Option<String>,
}

/// An event (a recorded change of something that the daemon manages), as clients receive it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventView {
    pub revision: u64,
    /// The time of the event as RFC 3339 text.
    pub time: String,
    pub kind: String,
    pub subject: String,
    pub by: String,
    pub data: serde_json::Value,
}

impl EventView {
    /// Builds the view of an event. `time` is the event's time as RFC 3339 text, which the caller
    /// formats because this crate cannot format dates.
    pub fn new(recorded: &Recorded, time: String) -> EventView {
        let data = match json::to_value(&recorded.event) {
            Ok(serde_json::Value::Object(mut object)) => object.remove("data").unwrap_or_default(),
            _ => serde_json::Value::Null,
        };
        EventView {
            revision: recorded.revision,
            time,
            kind: recorded.event.kind().into(),
            subject: recorded.event.subject(),
            by: recorded.by.to_string(),
            data: hide_tokens(data),
        }
    }
}

/// Removes fencing tokens from data that anybody may read, because a caller who knows the fencing
/// token of an attempt can act in place of the attempt.
fn hide_tokens(mut data: serde_json::Value) -> serde_json::Value {
    match &mut data {
        serde_json::Value::Object(object) => {
            object.remove("token");
            object
                .values_mut()
                .for_each(|value| *value = hide_tokens(std::mem::take(value)));
        }
        serde_json::Value::Array(items) => items
            .iter_mut()
            .for_each(|value| *value = hide_tokens(std::mem::take(value))),
        _ => {}
    }
    data
}

/// A message as clients receive it.
pub type MessageView = Message;

/// A runner: a process on another machine that executes attempts for this daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunnerView {
    pub name: regatta_core::ids::RunnerName,
    pub state: regatta_core::runner::RunnerState,
    /// The state in which people see the runner, with its word.
    pub at: DisplayState,
    pub word: String,
    pub labels: Vec<String>,
    pub agents: Vec<AgentName>,
    pub running: u32,
    pub max_tasks: u32,
    pub version: String,
    pub since_wall: u64,
    pub seen_wall: u64,
}

impl RunnerView {
    pub fn new(board: &Board, runner: &regatta_core::runner::Runner) -> RunnerView {
        let shown = display::runner_display(runner.state);
        RunnerView {
            name: runner.name.clone(),
            state: runner.state,
            at: shown.state,
            word: shown.label.into(),
            labels: runner.labels.clone(),
            agents: runner.agents.clone(),
            running: regatta_core::runner::running_attempts(board, &runner.name),
            max_tasks: runner.max_tasks,
            version: runner.version.clone(),
            since_wall: runner.since_unix_ms,
            seen_wall: runner.last_seen_unix_ms,
        }
    }
}

/// The daemon's answer to a runner that registers: its session number, and the attempts that belong
/// to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunnerSessionView {
    pub session: u64,
    /// The attempts that, for the daemon, still belong to the runner. The runner must end all other
    /// attempts.
    pub attempts: Vec<AttemptId>,
}
