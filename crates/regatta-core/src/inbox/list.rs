//! Computes the contents of the inbox from the board: every question, review, failure and broken
//! setting that needs a person. Not here: hiding an item for some time (see
//! [`snooze`](super::snooze)).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::agent_protocol::{AgentRequest, RequestContent};
use crate::approval::{self, Approval};
use crate::attempt::Attempt;
use crate::board::Board;
use crate::bridge_health::{self, Bridge};
use crate::budget::{self, NearLimit};
use crate::ids::{AgentName, Now, ProjectName, TaskId};
use crate::landing::Landing;
use crate::plural;
use crate::policy;
use crate::provider_outage::ProviderOutage;
use crate::task::{Task, TaskStatus};

use super::{CauseClass, InboxCause, InboxItem, Snooze, cause};

/// The kind of help that an inbox item needs from a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum InboxKind {
    /// An agent asks for permission to do something.
    Permission,
    /// An agent asks a question.
    Question,
    /// Finished work waits for a review.
    Review,
    /// A task cannot continue until a person decides or changes something.
    Task,
    /// Finished work cannot be merged until a person changes something in their checkout or in the
    /// remote repository.
    Landing,
    /// A task failed, and Regatta does not retry the task automatically.
    Failed,
    /// An agent at work on a task has written nothing for too long.
    Stuck,
    /// A budget is nearly or wholly used up.
    Budget,
    /// An agent is not signed in, or its credential for an outside service does not work.
    Credential,
    /// An agent's program is missing, or its settings cannot work.
    Settings,
    /// Somebody who is not on the list of permitted people started a conversation in an outside
    /// service.
    Request,
}

impl InboxKind {
    pub const ALL: [InboxKind; 11] = [
        InboxKind::Permission,
        InboxKind::Question,
        InboxKind::Review,
        InboxKind::Task,
        InboxKind::Landing,
        InboxKind::Failed,
        InboxKind::Stuck,
        InboxKind::Budget,
        InboxKind::Credential,
        InboxKind::Settings,
        InboxKind::Request,
    ];

    /// Returns the kind as one lower-case word, for display and for JSON.
    pub fn name(self) -> &'static str {
        match self {
            InboxKind::Permission => "permission",
            InboxKind::Question => "question",
            InboxKind::Review => "review",
            InboxKind::Task => "task",
            InboxKind::Landing => "landing",
            InboxKind::Failed => "failed",
            InboxKind::Stuck => "stuck",
            InboxKind::Budget => "budget",
            InboxKind::Credential => "credential",
            InboxKind::Settings => "settings",
            InboxKind::Request => "request",
        }
    }
}

impl fmt::Display for InboxKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One entry of the inbox as the command line, the page and the API show it.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenItem {
    pub item: InboxItem,
    pub kind: InboxKind,
    pub task: Option<TaskId>,
    /// Project of the item; `None` if the item concerns the whole fleet, as an agent or a fleet
    /// budget does.
    pub project: Option<ProjectName>,
    pub agent: Option<AgentName>,
    /// The request or problem in one line, for people.
    pub subject: String,
    /// Reason why a person is needed.
    pub why: String,
    pub since_unix_ms: u64,
    pub is_escalated: bool,
    pub snoozed: Option<Snooze>,
    /// The agent's permission request or question with all details; `None` for items of other
    /// kinds.
    pub request: Option<AgentRequest>,
    /// The cause that other items of this kind can share; `None` if a person must look at this item
    /// on its own.
    pub cause: Option<InboxCause>,
}

impl OpenItem {
    /// Returns whether the item is to be shown now, because nobody has snoozed it.
    pub fn is_shown(&self) -> bool {
        self.snoozed.is_none()
    }
}

/// Returns all open inbox items, the longest waiting first and snoozed ones last.
pub fn open_items(board: &Board, now: Now) -> Vec<OpenItem> {
    let approvals = board
        .approvals
        .values()
        .filter(|approval| approval.is_open())
        .map(|approval| approval_item(board, approval));
    let tasks = board
        .tasks
        .values()
        .filter_map(|task| task_item(board, task));
    let failed = board
        .failed
        .values()
        .map(|task| item_about_task(InboxKind::Failed, task, "it failed without a reason"));
    let stuck = board.attempts.values().filter_map(|attempt| {
        let since_unix_ms = attempt.quiet_since_unix_ms.filter(|_| is_stuck(attempt))?;
        let task = board.tasks.get(&attempt.task)?;
        let limit = crate::refusal::seconds(board.limits.silence_ms);
        Some(OpenItem {
            item: InboxItem::Attempt(attempt.id),
            agent: Some(attempt.agent.clone()),
            why: format!(
                "{} has printed nothing for a long time; Regatta stops it after {limit} of silence",
                attempt.id
            ),
            since_unix_ms,
            snoozed: attempt.snoozed,
            cause: Some(cause::silence()),
            ..item_about_task(InboxKind::Stuck, task, "")
        })
    });
    let budgets = budget::near_limits(board, now)
        .into_iter()
        .filter_map(|near_limit| budget_item(board, near_limit, now));
    let agents = board
        .agents
        .keys()
        .filter_map(|name| Some(agent_item(board, name, agent_problem(board, name)?)));
    let bridges = bridge_health::broken_bridges(board)
        .map(|(bridge, provider_outage)| bridge_item(bridge, provider_outage));
    let requests = board.conversations.values().filter_map(|conversation| {
        let first = conversation.held.first()?;
        let more_count = conversation.held.len() - 1;
        let more = if more_count > 0 {
            format!(" (and {more_count} more)")
        } else {
            String::new()
        };
        Some(OpenItem {
            item: InboxItem::Request(conversation.id),
            kind: InboxKind::Request,
            task: conversation.task,
            project: Some(conversation.project.clone()),
            agent: Some(conversation.agent.clone()),
            subject: format!("{}{more}", first.text.lines().next().unwrap_or_default()),
            why: format!(
                "{} ({}:{}) asks for work in {}, but is not on the list of permitted people",
                first.by.name, conversation.service, first.by.id, conversation.title
            ),
            since_unix_ms: first.unix_ms,
            is_escalated: false,
            snoozed: None,
            request: None,
            cause: None,
        })
    });
    let items = approvals
        .chain(tasks)
        .chain(failed)
        .chain(stuck)
        .chain(budgets)
        .chain(agents)
        .chain(bridges);
    let items = items.chain(requests);
    let mut items: Vec<OpenItem> = items.collect();
    items.sort_by_key(|item| (item.snoozed.is_some(), item.since_unix_ms));
    items
}

/// Returns whether an unfinished task needs a person before it can continue.
pub(super) fn needs_person(board: &Board, task: &Task) -> bool {
    match task.status {
        TaskStatus::NeedsHuman | TaskStatus::InReview => true,
        TaskStatus::Landing => landing_needing_person(board, task).is_some(),
        _ => false,
    }
}

/// Returns the landing of a task's work if the landing waits in the queue for a person. It is also
/// returned while Regatta retries it to see whether the person has acted.
fn landing_needing_person<'a>(board: &'a Board, task: &Task) -> Option<&'a Landing> {
    let landing = board.landings.get(&task.landing?).map(|landing| &**landing);
    landing.filter(|landing| landing.held.is_some() || landing.hold_count.is_some())
}

/// Returns whether an attempt (an agent's run on a task) has been silent for too long and is not
/// already being stopped.
pub(crate) fn is_stuck(attempt: &Attempt) -> bool {
    attempt.quiet_since_unix_ms.is_some() && attempt.stopping.is_none()
}

/// Returns the problem, such as a missing sign-in, that keeps an agent from working until a person
/// fixes it. Returns `None` if there is no such problem.
pub(super) fn agent_problem<'a>(board: &'a Board, agent: &AgentName) -> Option<&'a ProviderOutage> {
    board
        .parked
        .get(&format!("agent:{agent}"))
        .map(|outage| &**outage)
        .filter(|outage| outage.deadline_fleet_ms.is_none() && !outage.has_resumed)
}

/// Builds the inbox item of an agent's permission request or question.
fn approval_item(board: &Board, approval: &Approval) -> OpenItem {
    let (kind, why) = match (
        &approval.request.content,
        board.attempts.get(&approval.attempt),
        board.agents.get(&approval.agent),
    ) {
        (RequestContent::Permission { tool, .. }, Some(attempt), Some(agent)) => (
            InboxKind::Permission,
            policy::decide(board, attempt, agent, tool).1,
        ),
        (RequestContent::Permission { .. }, ..) => {
            (InboxKind::Permission, "only a person can answer it".into())
        }
        (RequestContent::Question { .. }, ..) => {
            let why = match (&approval.assumed, approval.is_kept_for_task) {
                (Some(assumed), _) => format!("the agent went on and assumed: {assumed}"),
                (None, true) => "its attempt has ended; the next attempt gets the answer".into(),
                (None, false) => "only a person can answer it".into(),
            };
            (InboxKind::Question, why)
        }
    };
    OpenItem {
        item: InboxItem::Approval(approval.id),
        kind,
        task: Some(approval.task),
        project: Some(approval.project.clone()),
        agent: Some(approval.agent.clone()),
        subject: approval.subject(),
        why,
        since_unix_ms: approval.asked_unix_ms,
        is_escalated: approval.escalated,
        snoozed: approval.snoozed,
        request: Some(approval.request.clone()),
        cause: Some(cause::same_request(&approval.subject())),
    }
}

/// Builds the inbox item of an unfinished task; `None` if the task does not need a person.
fn task_item(board: &Board, task: &Task) -> Option<OpenItem> {
    match task.status {
        TaskStatus::NeedsHuman => Some(item_about_task(InboxKind::Task, task, "")),
        // Add no item for this work, because the agent's question that blocks it is in the inbox as
        // an item of its own.
        TaskStatus::InReview if approval::question_blocking_work(board, task).is_some() => None,
        TaskStatus::InReview => {
            let files = task
                .submission
                .as_ref()
                .map_or(0, |submission| submission.changed.len());
            let subject = format!(
                "{} · {} changed",
                task.subject,
                plural::count(files, "file")
            );
            Some(OpenItem {
                subject,
                cause: None,
                ..item_about_task(InboxKind::Review, task, "somebody must review it")
            })
        }
        TaskStatus::Landing => {
            let landing = landing_needing_person(board, task)?;
            let why = match (&landing.held, &landing.hold_count) {
                (None, Some(earlier_hold)) => {
                    format!(
                        "it is being tried again; it was held: {}",
                        earlier_hold.reason
                    )
                }
                (held, _) => held.clone().unwrap_or_default(),
            };
            let since_unix_ms = landing
                .hold_count
                .as_ref()
                .map_or(task.updated_unix_ms, |hold_count| hold_count.since_unix_ms);
            Some(OpenItem {
                cause: cause::same_reason(&why),
                why,
                since_unix_ms,
                ..item_about_task(InboxKind::Landing, task, "")
            })
        }
        _ => None,
    }
}

/// Builds an inbox item of this kind about a task. The item shows the reason that the task states,
/// or `otherwise` if the task states no reason.
fn item_about_task(kind: InboxKind, task: &Task, otherwise: &str) -> OpenItem {
    OpenItem {
        cause: task.reason.as_deref().and_then(cause::same_reason),
        item: InboxItem::Task(task.id),
        kind,
        task: Some(task.id),
        project: Some(task.project.clone()),
        agent: task.agent.clone(),
        subject: task.subject.clone(),
        why: task.reason.clone().unwrap_or_else(|| otherwise.into()),
        since_unix_ms: task.updated_unix_ms,
        is_escalated: false,
        snoozed: task.snoozed,
        request: None,
    }
}

/// Builds the inbox item of a budget that is nearly or wholly used up.
fn budget_item(board: &Board, near_limit: NearLimit, now: Now) -> Option<OpenItem> {
    let budget = board.budgets.get(&near_limit.scope)?;
    let (mut task, mut agent, mut project) = (None, None, None);
    match &near_limit.scope {
        budget::BudgetScope::Task(id) => task = Some(*id),
        budget::BudgetScope::Agent(name) => agent = Some(name.clone()),
        budget::BudgetScope::Mission(id) => {
            project = board
                .missions
                .get(id)
                .map(|mission| mission.project.clone())
        }
        budget::BudgetScope::Attempt | budget::BudgetScope::EachTask | budget::BudgetScope::Day => {
        }
    }
    project = project.or_else(|| {
        task.and_then(|id| board.tasks.get(&id))
            .map(|task| task.project.clone())
    });
    let share = near_limit
        .share_of
        .map_or(String::new(), |share| format!("{share}: "));
    let consequence = match (near_limit.is_exhausted, &near_limit.scope) {
        (true, budget::BudgetScope::Attempt) => "it is used up: the attempt is stopped",
        (true, _) => "it is used up: no work under this budget starts until it is raised",
        (false, _) => "80 % of it is used",
    };
    Some(OpenItem {
        subject: format!(
            "the budget of {}: {share}{}",
            budget::scope_name(&near_limit.scope),
            near_limit.text
        ),
        item: InboxItem::Budget(near_limit.scope),
        kind: InboxKind::Budget,
        task,
        project,
        agent,
        why: consequence.into(),
        since_unix_ms: budget
            .warned_unix_ms
            .unwrap_or(budget::day_of(now) * 86_400_000),
        is_escalated: false,
        snoozed: budget.snoozed,
        request: None,
        cause: None,
    })
}

/// Builds the inbox item of an agent that cannot work until a person fixes the `outage`.
fn agent_item(board: &Board, name: &AgentName, outage: &ProviderOutage) -> OpenItem {
    let agent = board.agents.get(name).map(|agent| &**agent);
    let cause = cause::of_outage(agent, outage);
    let reason = outage.reason.lines().next().unwrap_or_default();
    let problem = crate::provider_outage::describe_class(outage.class);
    let (subject, why) = match cause.class {
        CauseClass::Model => (
            format!("{name} cannot work: {}", cause.text),
            format!("{}; then: regatta resume {name}", cause.fix),
        ),
        _ => (
            format!("{name} {problem}: {reason}"),
            format!("see how to fix it: regatta doctor; then: regatta resume {name}"),
        ),
    };
    OpenItem {
        item: InboxItem::Agent(name.clone()),
        kind: if cause.class == CauseClass::SignIn {
            InboxKind::Credential
        } else {
            InboxKind::Settings
        },
        task: None,
        project: None,
        agent: Some(name.clone()),
        subject,
        why,
        since_unix_ms: outage.since_unix_ms,
        is_escalated: false,
        snoozed: outage.snoozed,
        request: None,
        cause: Some(cause),
    }
}

/// Builds the inbox item of a bridge (a connection to a service such as Slack) that does not work.
fn bridge_item(bridge: Bridge, outage: &ProviderOutage) -> OpenItem {
    let reason = outage.reason.lines().next().unwrap_or_default();
    OpenItem {
        kind: InboxKind::Credential,
        task: None,
        project: None,
        agent: bridge.agent().cloned(),
        subject: match &bridge {
            Bridge::AgentService { service, agent } => format!(
                "the {service} credential of {agent} does not work: {reason}"
            ),
            Bridge::Webhook { webhook } => format!("{webhook} receives no events: {reason}"),
            Bridge::Setting { .. } => reason.to_owned(),
        },
        why: match &bridge {
            Bridge::AgentService { .. } => {
                "Regatta receives and answers no messages there until you fix the credential and \
                 run: regatta up --restart; check it with: regatta bridge test"
            }
            Bridge::Webhook { .. } => {
                "events are kept, and sent after you set the webhook's secret and run: regatta up --restart"
            }
            Bridge::Setting { .. } => {
                "the bridges that depend on this setting are off until you correct it and run: \
                 regatta up --restart; check them with: regatta bridge test"
            }
        }
        .into(),
        since_unix_ms: outage.since_unix_ms,
        is_escalated: false,
        snoozed: outage.snoozed,
        request: None,
        cause: None,
        item: InboxItem::Bridge(bridge),
    }
}
