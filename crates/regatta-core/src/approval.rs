//! Approvals: permission requests and questions of agents that somebody must answer. A request
//! stays open until somebody answers it. Waiting never turns a request into a yes.
//!
//! The first answer counts. A second answer is refused with the name of the person who answered
//! first. When an attempt ends, its open permission requests are withdrawn. The questions of an
//! ended attempt stay open until the task is over.
//!
//! Not here: the rules that answer permission requests automatically (see [`policy`]).

mod state; // the states of a request and their changes
mod unanswered; // questions that outlive their attempt

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent;
use crate::agent_protocol::{AgentRequest, RequestAnswer, RequestContent, ToolCall};
use crate::agent_texts;
use crate::attempt::{Attempt, AttemptPhase};
use crate::board::{Board, Draft};
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::ids::{AgentName, ApprovalId, AttemptId, MissionId, Now, ProjectName, TaskId};
use crate::inbox::Snooze;
use crate::intervention;
use crate::policy::{self, RuleEffect, RuleScope, RuleSubject};
use crate::refusal::Refusal;

pub use state::{ApprovalChange, ApprovalState};
pub(crate) use unanswered::{
    QuestionGate, awaits_answer, check_finish, close_requests, deliver_answer, on_program_withdrew,
    on_task_ended, question_gate, send_unread_answers, warn_unanswered,
};
pub use unanswered::{
    continue_without_answer, mark_answer_read, open_question, question_blocking_work,
};

/// The requests to which an answer applies: only this request, or also similar requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AnswerScope {
    /// The answer applies to this request only.
    #[default]
    Once,
    /// The answer also applies to every similar request in this task, now and later.
    Task,
    Mission,
    /// The answer also applies to every similar request by this agent from now on. Regatta adds a
    /// rule to the permission policy for this.
    Always,
}

/// The answer to a request, with the time and the person, lead agent or policy rule that gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalDecision {
    pub answer: RequestAnswer,
    pub by: Actor,
    #[serde(rename = "wall")]
    pub unix_ms: u64,
    /// The rule of the permission policy that decided the request, or that this decision added.
    /// Empty if a person's answer applies only to this request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<String>,
}

/// A permission request or a question that an agent has asked, with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Approval {
    pub id: ApprovalId,
    pub attempt: AttemptId,
    pub task: TaskId,
    pub project: ProjectName,
    pub mission: Option<MissionId>,
    pub agent: AgentName,
    #[serde(rename = "ask")]
    pub request: AgentRequest,
    #[serde(rename = "asked_wall")]
    pub asked_unix_ms: u64,
    /// The time at which Regatta announces the request once more if it is still open, in
    /// milliseconds of Regatta's own clock (the fleet clock).
    #[serde(rename = "escalate_at")]
    pub escalate_fleet_ms: Option<u64>,
    pub escalated: bool,
    /// Set while a person has hidden the request from the inbox for some time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed: Option<Snooze>,
    pub decision: Option<ApprovalDecision>,
    /// True if the question now belongs to the task, because the program that asked no longer waits
    /// for the answer. Regatta then sends the answer to the task's current or next attempt as a
    /// prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "kept")]
    pub is_kept_for_task: bool,
    /// The assumption on which the agent continues its work, if it does not wait for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed: Option<String>,
    /// True if the agent has read the answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "heard")]
    pub is_answer_read: bool,
    /// True if nobody needs to answer the request any more, because its attempt ended or withdrew
    /// the request.
    pub closed: bool,
}

impl Approval {
    /// Returns whether the request still needs an answer.
    pub fn is_open(&self) -> bool {
        self.decision.is_none() && !self.closed
    }

    /// Returns one line that shows what the agent asks: the command or tool, or the first line of
    /// the question.
    pub fn subject(&self) -> String {
        match &self.request.content {
            RequestContent::Permission { tool, .. } => tool.describe(),
            RequestContent::Question { text, .. } => {
                text.lines().next().unwrap_or_default().to_owned()
            }
        }
    }
}

facts! {
    ApprovalAsked { approval: Arc<Approval> }
    ApprovalDecided { approval: ApprovalId, decision: ApprovalDecision }
    ApprovalEscalated { approval: ApprovalId }
    /// The question stays open for its task, although no program waits for the answer any more.
    /// Either the attempt that asked has ended, or the agent continues on the assumption `assumed`.
    ApprovalKept { approval: ApprovalId, assumed: Option<String> }
    /// The answer to a question needs no further delivery: the agent has read the answer or gets it
    /// in a prompt, or its finished work already agrees with the answer.
    ApprovalHeard { approval: ApprovalId }
    /// A permission request or question was closed without an answer, because nobody needs the
    /// answer any more.
    ApprovalWithdrawn { approval: ApprovalId, reason: String }
}

/// Handles a request that an agent's program sends in its own protocol. The permission policy
/// answers the request if a rule matches. Otherwise the request stays open for a person.
pub(crate) fn on_agent_request(
    draft: &mut Draft,
    attempt: &Attempt,
    request: AgentRequest,
    now: Now,
) -> Result<(), Refusal> {
    // Ignore a request that is already known: after a restart, Regatta reads the program's journal
    // (its recorded output) again, so the same request can arrive twice.
    if draft
        .board()
        .approvals
        .values()
        .any(|approval| approval.attempt == attempt.id && approval.request.id == request.id)
    {
        return Ok(());
    }
    let agent = agent::find(draft.board(), &attempt.agent)?.clone();
    let (effect, rule) = match &request.content {
        RequestContent::Permission { tool, .. } => {
            policy::decide(draft.board(), attempt, &agent, tool)
        }
        RequestContent::Question { .. } => (RuleEffect::Ask, String::new()),
    };
    let (undecidable_reason, title) = match &request.content {
        RequestContent::Permission { tool, .. } => (tool.undecidable_reason(), tool.describe()),
        RequestContent::Question { .. } => (None, String::new()),
    };
    let id = ApprovalId(draft.board().counters.approval + 1);
    let is_for_person = effect == RuleEffect::Ask && undecidable_reason.is_none();
    let escalate_fleet_ms = is_for_person.then(|| now.fleet_ms + draft.board().limits.escalate_ms);
    let approval = Approval {
        id,
        attempt: attempt.id,
        task: attempt.task,
        project: attempt.project.clone(),
        mission: attempt.mission,
        agent: attempt.agent.clone(),
        request,
        asked_unix_ms: now.unix_ms,
        escalate_fleet_ms,
        escalated: false,
        snoozed: None,
        decision: None,
        is_kept_for_task: false,
        assumed: None,
        is_answer_read: false,
        closed: false,
    };
    draft.record(Event::ApprovalAsked(ApprovalAsked {
        approval: approval.into(),
    }));
    let (answer, rule) = match (effect, undecidable_reason) {
        (RuleEffect::Allow, _) => (RequestAnswer::Allow, rule),
        (RuleEffect::Deny, _) => (
            RequestAnswer::Deny {
                reason: Some(format!("Regatta's policy forbids it ({rule})")),
            },
            rule,
        ),
        // A person can only judge what the request shows. A request that does not show its command,
        // file or address is therefore denied without asking a person (S13).
        (RuleEffect::Ask, Some(reason)) => {
            let text = format!(
                "Regatta denied it because {reason}. Ask again and name the command, file or \
                address."
            );
            send_denial_reason(draft, attempt, &title, &text);
            (RequestAnswer::Deny { reason: Some(text) }, reason)
        }
        (RuleEffect::Ask, None) => return Ok(()),
    };
    let decision = ApprovalDecision {
        answer,
        by: Actor::Regatta,
        unix_ms: now.unix_ms,
        rule: Some(rule),
    };
    draft.record(Event::ApprovalDecided(ApprovalDecided {
        approval: id,
        decision,
    }));
    Ok(())
}

/// Sends the agent the reason of a denial as an extra prompt, if the protocol of the agent's
/// program has no place for the reason.
fn send_denial_reason(draft: &mut Draft, attempt: &Attempt, request: &str, reason: &str) {
    let runtime = draft
        .board()
        .agents
        .get(&attempt.agent)
        .map(|agent| agent.runtime.clone());
    if attempt.accepts_prompts() && runtime.is_some_and(|runtime| !runtime.carries_denial_reasons())
    {
        intervention::send_prompt(
            draft,
            attempt.id,
            agent_texts::denial_reason(request, reason),
        );
    }
}

/// Maximum size of a question or permission request, in bytes.
const MAX_QUESTION_BYTES: usize = 8 * 1024;
/// Maximum number of choices of a question, and maximum number of paths and addresses of a
/// permission request.
const MAX_REQUEST_ITEMS: usize = 100;
/// Maximum size of an answer to a permission request or question, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Maximum number of unanswered permission requests and questions of one attempt.
const MAX_OPEN_REQUESTS: usize = 10;

/// Handles a request that an agent makes with one of Regatta's own tools, such as `ask`. Regatta
/// then treats the request like a request in the program's own protocol.
pub fn on_tool_request(
    draft: &mut Draft,
    attempt: AttemptId,
    request: AgentRequest,
    now: Now,
) -> Result<ApprovalId, Refusal> {
    let found = draft.board().attempts.get(&attempt).cloned();
    let is_working = |attempt: &Arc<Attempt>| {
        attempt.stopping.is_none() && attempt.phase == AttemptPhase::Working
    };
    let Some(live) = found.filter(is_working) else {
        return Err(Refusal::invalid(
            format!("the attempt {attempt} is over, so it cannot ask anything"),
            "stop working, because nobody can answer the request any more",
        ));
    };
    let find_known = |board: &Board| {
        board
            .approvals
            .values()
            .find(|approval| approval.attempt == attempt && approval.request.id == request.id)
            .map(|approval| approval.id)
    };
    if let Some(known) = find_known(draft.board()) {
        return Ok(known);
    }
    // If an earlier attempt at the task asked the same question and that question is still open,
    // reuse it, so that people do not see the question twice.
    let asked_before = draft.board().approvals.values().find(|asked| {
        asked.task == live.task
            && asked.is_kept_for_task
            && asked.is_open()
            && asked.request.content == request.content
    });
    if let Some(asked_before) = asked_before {
        return Ok(asked_before.id);
    }
    let (text_bytes, items) = match &request.content {
        RequestContent::Permission { tool, .. } => {
            let texts = tool
                .paths
                .iter()
                .chain(&tool.urls)
                .chain(&tool.command)
                .chain(&tool.arguments);
            (
                texts.map(String::len).sum::<usize>() + tool.title.len(),
                tool.paths.len() + tool.urls.len(),
            )
        }
        RequestContent::Question { text, choices, .. } => (
            text.len() + choices.iter().map(String::len).sum::<usize>(),
            choices.len(),
        ),
    };
    if text_bytes == 0
        || text_bytes > MAX_QUESTION_BYTES
        || items > MAX_REQUEST_ITEMS
        || request.id.len() > 200
    {
        return Err(Refusal::invalid(
            format!(
                "a request must have 1 to {MAX_QUESTION_BYTES} bytes and at most \
                {MAX_REQUEST_ITEMS} choices or paths"
            ),
            "shorten the request, or put the text into a file of your workspace and name the file",
        ));
    }
    if draft
        .board()
        .approvals
        .values()
        .filter(|approval| approval.attempt == attempt && approval.is_open())
        .count()
        >= MAX_OPEN_REQUESTS
    {
        return Err(Refusal::invalid(
            format!("the attempt {attempt} already has {MAX_OPEN_REQUESTS} open requests"),
            "wait until some of them are answered, then ask again",
        ));
    }
    on_agent_request(draft, &live, request.clone(), now)?;
    find_known(draft.board()).ok_or_else(|| {
        Refusal::invalid(
            format!("the request of the attempt {attempt} was not stored"),
            "make the request again",
        )
    })
}

/// An answer to one or more requests, the requests that it covers, and the person or lead agent
/// that gave it.
#[derive(Clone, Debug)]
pub struct ApprovalAnswer {
    pub answer: RequestAnswer,
    pub scope: AnswerScope,
    pub by: Actor,
}

/// Answers the request `first` with `answer`, and also every request of `also` that is still open.
/// Returns all requests that were answered.
///
/// The first answer can add a policy rule that answers some requests of `also`; the result includes
/// these requests. A request of `also` is skipped if somebody else has answered it or its attempt
/// has ended. If a request cannot be answered for any other reason, the whole call is refused.
pub fn decide_all(
    draft: &mut Draft,
    first: ApprovalId,
    also: &[ApprovalId],
    answer: &ApprovalAnswer,
    now: Now,
) -> Result<Vec<ApprovalId>, Refusal> {
    let mut answered = decide(draft, first, answer, now)?;
    for id in also {
        if draft
            .board()
            .approvals
            .get(id)
            .is_some_and(|approval| approval.is_open())
        {
            answered.extend(decide(draft, *id, answer, now)?);
        }
    }
    Ok(answered)
}

/// Answers a permission request or question. If `given.scope` is wider than this request, also
/// answers every open request that the scope covers. Returns all answered requests.
pub fn decide(
    draft: &mut Draft,
    id: ApprovalId,
    given: &ApprovalAnswer,
    now: Now,
) -> Result<Vec<ApprovalId>, Refusal> {
    let ApprovalAnswer { answer, scope, by } = given.clone();
    let approval = find(draft.board(), id)?;
    if let Some(decision) = &approval.decision {
        return Err(Refusal::AlreadyAnswered {
            approval: id,
            by: decision.by.display_name().to_owned(),
        });
    }
    if approval.closed {
        return Err(Refusal::AlreadyAnswered {
            approval: id,
            by: "its agent, which withdrew it".into(),
        });
    }
    // Refuse an agent's answer to its own request. A name such as `claude/helper` counts as the
    // agent `claude` itself.
    if let Actor::Agent(name) = &by
        && (*name == approval.agent || name.as_str().starts_with(&format!("{}/", approval.agent)))
    {
        return Err(Refusal::invalid(
            format!("the agent {name} cannot answer its own request"),
            format!(
                "a person or the agent's lead must answer it: regatta answer {id} or regatta \
                allow {id}"
            ),
        ));
    }
    // Only a person may decide a permission request. An agent, even a lead (an agent that splits a
    // mission into tasks), may answer only questions. The commands of hooks also act in the name of
    // agents, and they process text from strangers.
    if let (Actor::Agent(name), RequestContent::Permission { .. }) =
        (&by, &approval.request.content)
    {
        return Err(Refusal::invalid(
            format!("{name} is an agent, and only a person can decide a permission request"),
            format!("ask a person to run: regatta allow {id}, or regatta deny {id}"),
        ));
    }
    check_answer(&approval, &answer)?;
    let mut decision = ApprovalDecision {
        answer,
        by,
        unix_ms: now.unix_ms,
        rule: None,
    };
    let mut answered = vec![id];
    if let (RequestContent::Permission { tool, .. }, true) =
        (&approval.request.content, scope != AnswerScope::Once)
    {
        let rule_scope = match (scope, approval.mission) {
            (AnswerScope::Mission, Some(mission)) => RuleScope::Mission(mission),
            (AnswerScope::Mission, None) => {
                return Err(Refusal::invalid(
                    format!(
                        "the task {} belongs to no mission, so the answer to {id} cannot apply to a \
                        mission",
                        approval.task
                    ),
                    "let the answer apply to the task: add --for task",
                ));
            }
            (AnswerScope::Always, _) => RuleScope::Agent(approval.agent.clone()),
            _ => RuleScope::Task(approval.task),
        };
        let effect = if decision.answer == RequestAnswer::Allow {
            RuleEffect::Allow
        } else {
            RuleEffect::Deny
        };
        let Some(subject) = rule_for_similar(tool) else {
            return Err(Refusal::invalid(
                format!(
                    "the answer to {id} cannot apply to similar requests, because {id} has no \
                    single command, file or address to match"
                ),
                format!("answer only this request: regatta allow {id}"),
            ));
        };
        // Do not add a rule for a task or mission that is already over, because the rule would
        // never match.
        let is_scope_over = match &rule_scope {
            RuleScope::Task(id) => !draft.board().tasks.contains_key(id),
            RuleScope::Mission(id) => !draft.board().missions.contains_key(id),
            _ => false,
        };
        if !is_scope_over {
            let rule = policy::add(draft, rule_scope, effect, subject)?;
            decision.rule = draft
                .board()
                .rules
                .get(&rule)
                .map(|known| format!("{rule}: {}", known.describe()));
            let others = draft
                .board()
                .approvals
                .values()
                .filter(|approval| approval.is_open() && approval.id != id);
            answered.extend(
                others
                    .filter(|approval| is_covered_by_policy(draft.board(), approval, effect))
                    .map(|approval| approval.id),
            );
        }
    }
    if let (
        RequestAnswer::Deny {
            reason: Some(words),
        },
        RequestContent::Permission { tool, .. },
    ) = (&decision.answer, &approval.request.content)
        && let Some(attempt) = draft.board().attempts.get(&approval.attempt).cloned()
    {
        send_denial_reason(
            draft,
            &attempt,
            &tool.describe(),
            &format!("It was denied: {words}"),
        );
    }
    let by = decision.by.clone();
    for approval in &answered {
        draft.record(Event::ApprovalDecided(ApprovalDecided {
            approval: *approval,
            decision: decision.clone(),
        }));
    }
    deliver_answer(draft, id, &by, now)?;
    Ok(answered)
}

/// Refuses an answer of the wrong kind, such as text for a permission request, or an answer that is
/// too long.
fn check_answer(approval: &Approval, answer: &RequestAnswer) -> Result<(), Refusal> {
    match (&approval.request.content, answer) {
        (RequestContent::Permission { .. }, RequestAnswer::Text { .. }) => Err(Refusal::invalid(
            format!(
                "the request {} asks for permission, so it cannot be answered with text",
                approval.id
            ),
            format!(
                "regatta allow {0}, or regatta deny {0} --because '…'",
                approval.id
            ),
        )),
        (RequestContent::Question { .. }, RequestAnswer::Allow) => Err(Refusal::invalid(
            format!(
                "the request {} is a question, so it cannot be allowed",
                approval.id
            ),
            format!("regatta answer {} 'your answer'", approval.id),
        )),
        (_, RequestAnswer::Cancelled) => Err(Refusal::invalid(
            format!(
                "a person cannot answer the request {} with a cancellation",
                approval.id
            ),
            format!("deny it: regatta deny {}; or stop its task", approval.id),
        )),
        (_, RequestAnswer::Text { text }) if text.len() > MAX_ANSWER_BYTES => {
            Err(Refusal::invalid(
                format!(
                    "the answer has {} bytes, but an answer may have at most 64 KiB",
                    text.len()
                ),
                "shorten the answer, or write the text to a file and name the file in the answer",
            ))
        }
        _ => Ok(()),
    }
}

/// Returns whether the permission policy, as it is now, would answer this open request with
/// `effect`.
fn is_covered_by_policy(board: &Board, approval: &Approval, effect: RuleEffect) -> bool {
    let RequestContent::Permission { tool, .. } = &approval.request.content else {
        return false;
    };
    let (Some(attempt), Some(agent)) = (
        board.attempts.get(&approval.attempt),
        board.agents.get(&approval.agent),
    ) else {
        return false;
    };
    policy::decide(board, attempt, agent, tool).0 == effect
}

/// Programs that run other programs or code given in their arguments, such as `sudo` and `python`.
/// Allowing `sudo apt …` for similar requests would allow far too much, so for these programs a
/// rule matches only the identical command line.
const WRAPPER_PROGRAMS: [&str; 22] = [
    "sh", "bash", "zsh", "dash", "fish", "env", "sudo", "doas", "su", "nohup", "xargs", "time",
    "timeout", "nice", "python", "python3", "node", "perl", "ruby", "eval", "exec", "ssh",
];

/// Returns a policy rule that answers requests similar to the tool call `tool`, or `None` if the
/// call has no single command, file or host to match.
///
/// For a command, the rule matches the same program and first argument with any further arguments.
/// For addresses, it matches the same host. Where that would allow too much, it matches only the
/// identical request.
fn rule_for_similar(tool: &ToolCall) -> Option<RuleSubject> {
    let kind = Some(tool.kind);
    let Some(line) = &tool.command else {
        return match (tool.urls.as_slice(), tool.paths.as_slice()) {
            ([], [path]) => Some(RuleSubject {
                tool: kind,
                path: Some(policy::plain_path(path)),
                exact: true,
                ..RuleSubject::default()
            }),
            (urls @ [first, ..], []) => {
                let host = policy::same_host(first);
                let is_one_host = urls.iter().all(|url| policy::same_host(url) == host);
                match (host.filter(|_| is_one_host), urls) {
                    (Some(host), _) => Some(RuleSubject {
                        tool: kind,
                        url: Some(host),
                        ..RuleSubject::default()
                    }),
                    (None, [url]) => {
                        let url = Some(policy::plain_url(url));
                        Some(RuleSubject {
                            tool: kind,
                            url,
                            exact: true,
                            ..RuleSubject::default()
                        })
                    }
                    (None, _) => None,
                }
            }
            _ => None,
        };
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let program = words
        .first()
        .map(|word| word.rsplit('/').next().unwrap_or(word))
        .unwrap_or_default();
    let is_simple = words.get(1).is_some_and(|word| {
        !word.starts_with('-')
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    }) && words.len() > 2
        && !WRAPPER_PROGRAMS.contains(&program)
        && !program.contains('=')
        && !line.contains(['*', '$', '\'', '"', '\\'])
        && !policy::is_compound(line);
    let command = if is_simple {
        format!("{} {} *", words[0], words[1])
    } else {
        line.clone()
    };
    Some(RuleSubject {
        tool: kind,
        command: Some(command),
        exact: !is_simple,
        ..RuleSubject::default()
    })
}

/// Escalates a request (announces it again, more urgently) if it is still open at its escalation
/// time. Time never answers a request.
pub fn escalate(draft: &mut Draft, id: ApprovalId, now: Now) {
    let is_due = draft.board().approvals.get(&id).is_some_and(|approval| {
        approval.is_open()
            && approval
                .escalate_fleet_ms
                .is_some_and(|at| at <= now.fleet_ms)
    });
    if is_due {
        draft.record(Event::ApprovalEscalated(ApprovalEscalated { approval: id }));
    }
}

/// Closes unanswered requests of an attempt, because nobody needs the answers any more: only the
/// request `request_id`, or all of them if `request_id` is `None`.
pub(crate) fn withdraw(
    draft: &mut Draft,
    attempt: AttemptId,
    request_id: Option<&str>,
    reason: &str,
) {
    let open: Vec<ApprovalId> = draft
        .board()
        .approvals
        .values()
        .filter(|approval| {
            approval.attempt == attempt
                && approval.is_open()
                && request_id.is_none_or(|id| approval.request.id == id)
        })
        .map(|approval| approval.id)
        .collect();
    for approval in open {
        draft.record(Event::ApprovalWithdrawn(ApprovalWithdrawn {
            approval,
            reason: reason.to_owned(),
        }));
    }
}

/// Returns an open request for which the attempt is waiting, or `None`. An attempt that is being
/// stopped waits for no request.
pub fn open_request_of<'a>(board: &'a Board, attempt: &Attempt) -> Option<&'a Approval> {
    if attempt.stopping.is_some() {
        return None;
    }
    let is_own =
        |approval: &&Arc<Approval>| approval.attempt == attempt.id && approval.is_awaited();
    let found = board.approvals.values().find(is_own)?;
    Some(&**found)
}

/// Returns the permission request or question with this id, or a refusal if there is none.
pub fn find(board: &Board, id: ApprovalId) -> Result<Arc<Approval>, Refusal> {
    board.approvals.get(&id).cloned().ok_or_else(|| {
        if id.0 > 0 && id.0 <= board.counters.approval {
            Refusal::AlreadyAnswered {
                approval: id,
                by: "somebody, or it ended with its task".into(),
            }
        } else {
            Refusal::missing(
                format!("there is no request {id}"),
                "see the open requests: regatta inbox",
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_protocol::ToolKind;

    #[test]
    fn only_simple_commands_and_single_hosts_get_a_pattern_for_similar_requests() {
        for (line, pattern, exact) in [
            ("npm install zod@4", "npm install *", false),
            ("cargo test --all", "cargo test *", false),
            ("cargo test", "cargo test", true),
            ("rm -rf build", "rm -rf build", true),
            ("bash -c 'cargo test'", "bash -c 'cargo test'", true),
            ("sudo apt update -y", "sudo apt update -y", true),
            ("/usr/bin/env A=1 make", "/usr/bin/env A=1 make", true),
            ("rm build/* && ls", "rm build/* && ls", true),
            ("git log $(id) x", "git log $(id) x", true),
            ("npm install zod && ls", "npm install zod && ls", true),
            ("npm install zod; ls", "npm install zod; ls", true),
            ("cargo test a | tee log", "cargo test a | tee log", true),
            ("A=1 npm install zod", "A=1 npm install zod", true),
            ("sudo apt update now", "sudo apt update now", true),
        ] {
            let tool = ToolCall {
                kind: ToolKind::Execute,
                command: Some(line.into()),
                ..ToolCall::default()
            };
            let rule = rule_for_similar(&tool).expect("a command is similar to itself");
            assert_eq!(
                (rule.command.as_deref(), rule.exact),
                (Some(pattern), exact),
                "{line}"
            );
        }
        let edit_of = |paths: &[&str]| ToolCall {
            kind: ToolKind::Edit,
            paths: paths.iter().map(|path| (*path).into()).collect(),
            ..ToolCall::default()
        };
        let file =
            rule_for_similar(&edit_of(&["src/./a.rs"])).expect("one file is similar to itself");
        assert_eq!((file.path.as_deref(), file.exact), (Some("src/a.rs"), true));
        assert_eq!(rule_for_similar(&edit_of(&["a", "b"])), None);
        let fetch_of = |urls: &[&str]| ToolCall {
            kind: ToolKind::Fetch,
            urls: urls.iter().map(|url| (*url).into()).collect(),
            ..ToolCall::default()
        };
        let host = rule_for_similar(&fetch_of(&[
            "https://docs.rs/tokio",
            "https://docs.rs/serde",
        ]))
        .expect("addresses of one host are similar");
        assert_eq!(
            (host.url.as_deref(), host.exact),
            (Some("https://docs.rs/*"), false)
        );
        let with_user = rule_for_similar(&fetch_of(&["https://me@docs.rs/tokio"]))
            .expect("an address is similar to itself");
        assert_eq!(
            (with_user.url.as_deref(), with_user.exact),
            (Some("https://me@docs.rs/tokio"), true)
        );
        assert_eq!(
            rule_for_similar(&fetch_of(&["https://docs.rs/", "https://evil.test/"])),
            None
        );
        assert_eq!(rule_for_similar(&edit_of(&[])), None);
    }
}
