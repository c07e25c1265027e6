//! The contents of the inbox: derives everything that needs a person from the board.

use crate::approval::{self, Approval};
use crate::attempt::Attempt;
use crate::board::Board;
use crate::bridge::{self, Bridge};
use crate::budget::{self, Short};
use crate::ids::{AgentName, Now, ProjectName, TaskId};
use crate::landing::Landing;
use crate::policy;
use crate::provider::Parked;
use crate::session::{Ask, Want};
use crate::task::{Status, Task};

use super::{Item, Snooze};

/// The kind of an inbox item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An agent asks for permission to do something.
    Permission,
    /// An agent asks a question.
    Question,
    /// Finished work waits for a review.
    Review,
    /// A task cannot continue without a person.
    Task,
    /// A landing waits until a person has done something to the checkout or the remote.
    Landing,
    /// A task failed for good.
    Failed,
    /// An attempt is silent for too long.
    Stuck,
    /// A budget is nearly or wholly used up.
    Budget,
    /// An agent is not signed in, or an outside service rejects its credential.
    Credential,
    /// An agent's program is missing, or its settings cannot work.
    Setup,
    /// Somebody outside who is on no list makes a request.
    Request,
}

impl Kind {
    pub const ALL: [Kind; 11] = [
        Kind::Permission,
        Kind::Question,
        Kind::Review,
        Kind::Task,
        Kind::Landing,
        Kind::Failed,
        Kind::Stuck,
        Kind::Budget,
        Kind::Credential,
        Kind::Setup,
        Kind::Request,
    ];

    /// Returns the word that people and programs see.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Permission => "permission",
            Kind::Question => "question",
            Kind::Review => "review",
            Kind::Task => "task",
            Kind::Landing => "landing",
            Kind::Failed => "failed",
            Kind::Stuck => "stuck",
            Kind::Budget => "budget",
            Kind::Credential => "credential",
            Kind::Setup => "setup",
            Kind::Request => "request",
        }
    }
}

/// An open inbox item.
#[derive(Clone, Debug, PartialEq)]
pub struct Open {
    pub item: Item,
    pub kind: Kind,
    pub task: Option<TaskId>,
    /// `None` if it concerns the whole fleet.
    pub project: Option<ProjectName>,
    pub agent: Option<AgentName>,
    /// The request or problem in one line.
    pub subject: String,
    /// Reason why a person must decide.
    pub why: String,
    pub since_wall: u64,
    pub escalated: bool,
    pub snoozed: Option<Snooze>,
    /// The whole request, if it comes from an agent.
    pub ask: Option<Ask>,
}

/// Returns everything that needs a person, the longest waiting first and postponed items last.
pub fn open(board: &Board, now: Now) -> Vec<Open> {
    let asked = board.approvals.values().filter(|it| it.is_open()).map(|it| asked(board, it));
    let tasks = board.tasks.values().filter_map(|it| of_task(board, it));
    let failed = board.failed.values().map(|it| about(Kind::Failed, it, "it failed without a reason"));
    let stuck = board.attempts.values().filter_map(|it| {
        let since_wall = it.quiet_wall.filter(|_| is_stuck(it))?;
        let task = board.tasks.get(&it.task)?;
        let most = crate::refusal::seconds(board.limits.silence_ms);
        Some(Open {
            item: Item::Attempt(it.id),
            agent: Some(it.agent.clone()),
            why: format!("{} has been silent for long; after {most} it is stopped automatically", it.id),
            since_wall,
            snoozed: it.snoozed,
            ..about(Kind::Stuck, task, "")
        })
    });
    let budgets = budget::short(board, now).into_iter().filter_map(|it| of_budget(board, it, now));
    let credentials = board.agents.keys().filter_map(|name| Some(of_agent(name, broken(board, name)?)));
    let bridges = bridge::broken(board).map(|(bridge, it)| of_bridge(bridge, it));
    let requests = board.conversations.values().filter_map(|it| {
        let first = it.held.first()?;
        let more = it.held.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        Some(Open {
            item: Item::Request(it.id),
            kind: Kind::Request,
            task: it.task,
            project: Some(it.project.clone()),
            agent: Some(it.agent.clone()),
            subject: format!("{}{more}", first.text.lines().next().unwrap_or_default()),
            why: format!(
                "{} ({}:{}) asks in {} and is not on the list of people who may",
                first.by.name, it.service, first.by.id, it.title
            ),
            since_wall: first.wall,
            escalated: false,
            snoozed: None,
            ask: None,
        })
    });
    let all = asked.chain(tasks).chain(failed).chain(stuck).chain(budgets).chain(credentials).chain(bridges);
    let all = all.chain(requests);
    let mut all: Vec<Open> = all.collect();
    all.sort_by_key(|it| (it.snoozed.is_some(), it.since_wall));
    all
}

/// Returns whether an open task needs a person before it can continue.
pub(super) fn needs_somebody(board: &Board, task: &Task) -> bool {
    match task.status {
        Status::NeedsHuman | Status::InReview => true,
        Status::Landing => hindered(board, task).is_some(),
        _ => false,
    }
}

/// Returns a task's landing if it waits for a person, even while a retry checks if the person has
/// acted.
fn hindered<'a>(board: &'a Board, task: &Task) -> Option<&'a Landing> {
    let landing = board.landings.get(&task.landing?).map(|it| &**it);
    landing.filter(|it| it.held.is_some() || it.hindered.is_some())
}

/// Returns whether an attempt has been silent for long and is not being stopped.
pub(super) fn is_stuck(it: &Attempt) -> bool {
    it.quiet_wall.is_some() && it.stopping.is_none()
}

/// Returns the problem that keeps an agent from working until a person fixes it, if there is one.
pub(super) fn broken<'a>(board: &'a Board, agent: &AgentName) -> Option<&'a Parked> {
    board.parked.get(&format!("agent:{agent}")).map(|it| &**it).filter(|it| it.until_at.is_none() && !it.over)
}

/// Returns the item of a permission request or question.
fn asked(board: &Board, it: &Approval) -> Open {
    let (kind, why) = match (&it.ask.want, board.attempts.get(&it.attempt), board.agents.get(&it.agent)) {
        (Want::Permission { tool, .. }, Some(attempt), Some(agent)) => {
            (Kind::Permission, policy::judge(board, attempt, agent, tool).1)
        }
        (Want::Permission { .. }, ..) => (Kind::Permission, "only a person can answer it".into()),
        (Want::Question { .. }, ..) => {
            let why = match (&it.assumed, it.kept) {
                (Some(assumed), _) => format!("it went on and assumed: {assumed}"),
                (None, true) => "its attempt has ended; the next attempt gets the answer".into(),
                (None, false) => "only a person can answer it".into(),
            };
            (Kind::Question, why)
        }
    };
    Open {
        item: Item::Approval(it.id),
        kind,
        task: Some(it.task),
        project: Some(it.project.clone()),
        agent: Some(it.agent.clone()),
        subject: it.subject(),
        why,
        since_wall: it.asked_wall,
        escalated: it.escalated,
        snoozed: it.snoozed,
        ask: Some(it.ask.clone()),
    }
}

/// Returns the item of an open task, if it needs a person.
fn of_task(board: &Board, it: &Task) -> Option<Open> {
    match it.status {
        Status::NeedsHuman => Some(about(Kind::Task, it, "")),
        // The question has an item of its own.
        Status::InReview if approval::work_waits_for(board, it).is_some() => None,
        Status::InReview => {
            let files = it.submission.as_ref().map_or(0, |it| it.changed.len());
            let subject = format!("{} · {files} file{} changed", it.subject, if files == 1 { "" } else { "s" });
            Some(Open { subject, ..about(Kind::Review, it, "somebody must review it") })
        }
        Status::Landing => {
            let landing = hindered(board, it)?;
            let why = match (&landing.held, &landing.hindered) {
                (None, Some(before)) => format!("it is being tried again; before: {}", before.reason),
                (held, _) => held.clone().unwrap_or_default(),
            };
            let since_wall = landing.hindered.as_ref().map_or(it.updated_wall, |it| it.since_wall);
            Some(Open { why, since_wall, ..about(Kind::Landing, it, "") })
        }
        _ => None,
    }
}

/// Returns an item about a task, with the task's reason or else `otherwise`.
fn about(kind: Kind, it: &Task, otherwise: &str) -> Open {
    Open {
        item: Item::Task(it.id),
        kind,
        task: Some(it.id),
        project: Some(it.project.clone()),
        agent: it.agent.clone(),
        subject: it.subject.clone(),
        why: it.reason.clone().unwrap_or_else(|| otherwise.into()),
        since_wall: it.updated_wall,
        escalated: false,
        snoozed: it.snoozed,
        ask: None,
    }
}

/// Returns the item of a budget that is nearly or wholly used up.
fn of_budget(board: &Board, it: Short, now: Now) -> Option<Open> {
    let budget = board.budgets.get(&it.scope)?;
    let (mut task, mut agent, mut project) = (None, None, None);
    match &it.scope {
        budget::Scope::Task(id) => task = Some(*id),
        budget::Scope::Agent(name) => agent = Some(name.clone()),
        budget::Scope::Mission(id) => project = board.missions.get(id).map(|it| it.project.clone()),
        budget::Scope::Attempt | budget::Scope::EachTask | budget::Scope::Day => {}
    }
    project = project.or_else(|| task.and_then(|it| board.tasks.get(&it)).map(|it| it.project.clone()));
    let whose = it.whose.map_or(String::new(), |whose| format!("{whose}: "));
    let follows = match (it.empty, &it.scope) {
        (true, budget::Scope::Attempt) => "it is used up: the attempt is stopped",
        (true, _) => "it is used up: no work under this budget starts until it is raised",
        (false, _) => "80 % of it is used",
    };
    Some(Open {
        subject: format!("the budget of {}: {whose}{}", budget::name(&it.scope), it.text),
        item: Item::Budget(it.scope),
        kind: Kind::Budget,
        task,
        project,
        agent,
        why: follows.into(),
        since_wall: budget.warned_wall.unwrap_or(budget::day_of(now) * 86_400_000),
        escalated: false,
        snoozed: budget.snoozed,
        ask: None,
    })
}

/// Returns the item of an agent that cannot work.
fn of_agent(name: &AgentName, it: &Parked) -> Open {
    let signs_in = it.class == crate::session::Class::Auth;
    let what = crate::provider::obstacle(it.class);
    Open {
        item: Item::Agent(name.clone()),
        kind: if signs_in { Kind::Credential } else { Kind::Setup },
        task: None,
        project: None,
        agent: Some(name.clone()),
        subject: format!("{name} {what}: {}", it.reason.lines().next().unwrap_or_default()),
        why: format!("regatta doctor says how to fix it; then: regatta resume {name}"),
        since_wall: it.since_wall,
        escalated: false,
        snoozed: it.snoozed,
        ask: None,
    }
}

/// Returns the item of a bridge that does not work.
fn of_bridge(bridge: Bridge, it: &Parked) -> Open {
    let why = it.reason.lines().next().unwrap_or_default();
    Open {
        kind: Kind::Credential,
        task: None,
        project: None,
        agent: bridge.agent().cloned(),
        subject: match &bridge {
            Bridge::At { service, agent } => format!("{service} rejects the credential of {agent}: {why}"),
            Bridge::Webhook { webhook } => format!("{webhook} receives no events: {why}"),
            Bridge::Setting { .. } => why.to_owned(),
        },
        why: match &bridge {
            Bridge::At { .. } => {
                "Regatta receives and answers no messages there until the credential is fixed; then: regatta up \
                 --restart, and regatta bridge test"
            }
            Bridge::Webhook { .. } => "events are kept and sent once its secret is set; then: regatta up --restart",
            Bridge::Setting { .. } => {
                "the bridges that depend on this setting are off; correct it, then: regatta up --restart, and regatta \
                 bridge test"
            }
        }
        .into(),
        since_wall: it.since_wall,
        escalated: false,
        snoozed: it.snoozed,
        ask: None,
        item: Item::Bridge(bridge),
    }
}
