//! What needs a person.

use regatta_core::approval::Approval;
use regatta_core::board::Board;
use regatta_core::ids::{AgentName, ProjectName, TaskId};
use regatta_core::policy;
use regatta_core::session::{Ask, Want};
use regatta_core::task::{Status, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that needs a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InboxView {
    /// `Q7`, the task itself when it is the task that waits, or a conversation that somebody wants to begin.
    pub id: String,
    /// permission, question, review, task or request.
    pub kind: String,
    /// Nothing when it is about no task yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    pub project: ProjectName,
    pub agent: Option<AgentName>,
    /// What is asked, in one line.
    pub subject: String,
    /// Why a person must decide it.
    pub why: String,
    /// What may be answered.
    pub choices: Vec<String>,
    pub since_wall: u64,
    pub escalated: bool,
    /// Until when somebody put it off: it comes back by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed_until_wall: Option<u64>,
    /// The whole request, where it is an agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
}

impl InboxView {
    /// Everything open, longest waiting first.
    pub fn all(board: &Board, project: Option<&ProjectName>) -> Vec<InboxView> {
        let asked = board.approvals.values().filter(|it| it.is_open()).map(|it| {
            let (kind, choices) = match &it.ask.want {
                Want::Permission { .. } => ("permission", vec!["allow".to_owned(), "deny".to_owned()]),
                Want::Question { choices, .. } => ("question", choices.clone()),
            };
            InboxView {
                id: it.id.to_string(),
                kind: kind.into(),
                task: Some(it.task),
                project: it.project.clone(),
                agent: Some(it.agent.clone()),
                subject: it.subject(),
                why: why(board, it),
                choices,
                since_wall: it.asked_wall,
                escalated: it.escalated,
                snoozed_until_wall: it.snoozed.map(|it| it.until_wall),
                ask: Some(it.ask.clone()),
            }
        });
        let tasks = board.tasks.values().filter(|it| it.status == Status::NeedsHuman).map(|it| InboxView {
            id: it.id.to_string(),
            kind: "task".into(),
            task: Some(it.id),
            project: it.project.clone(),
            agent: it.agent.clone(),
            subject: it.subject.clone(),
            why: it.reason.clone().unwrap_or_default(),
            choices: vec!["retry".into(), "cancel".into()],
            since_wall: it.updated_wall,
            escalated: false,
            snoozed_until_wall: it.snoozed.map(|it| it.until_wall),
            ask: None,
        });
        let reviews = board.tasks.values().filter(|it| it.status == Status::InReview).map(|it| review(it));
        let mut all: Vec<InboxView> = asked
            .chain(tasks)
            .chain(reviews)
            .chain(super::bridge::held(board))
            .filter(|it| project.is_none_or(|only| *only == it.project))
            .collect();
        all.sort_by_key(|it| (it.snoozed_until_wall.is_some(), it.since_wall));
        all
    }

    /// Whether it is to be shown now: nobody put it off.
    pub fn is_awake(&self) -> bool {
        self.snoozed_until_wall.is_none()
    }

    /// What it asks: those with the same one can be answered at once.
    pub fn group(&self) -> String {
        if self.ask.is_some() { format!("{} {}", self.kind, self.subject) } else { self.id.clone() }
    }
}

/// Finished work that somebody must look at before it lands.
fn review(task: &Task) -> InboxView {
    let files = task.submission.as_ref().map_or(0, |it| it.changed.len());
    InboxView {
        id: task.id.to_string(),
        kind: "review".into(),
        task: Some(task.id),
        project: task.project.clone(),
        agent: task.agent.clone(),
        subject: format!("{} · {files} file{} changed", task.subject, if files == 1 { "" } else { "s" }),
        why: task.reason.clone().unwrap_or_else(|| "somebody must review it".into()),
        choices: vec!["land".into(), "revise".into()],
        since_wall: task.updated_wall,
        escalated: false,
        snoozed_until_wall: task.snoozed.map(|it| it.until_wall),
        ask: None,
    }
}

fn why(board: &Board, it: &Approval) -> String {
    match (&it.ask.want, board.attempts.get(&it.attempt), board.agents.get(&it.agent)) {
        (Want::Permission { tool, .. }, Some(attempt), Some(agent)) => policy::judge(board, attempt, agent, tool).1,
        _ => "only a person can answer it".into(),
    }
}
