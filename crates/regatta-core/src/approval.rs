//! Approvals: permission requests and questions that an agent may not decide alone. A request is
//! open until somebody answers it, and it never becomes a yes by itself.
//!
//! The first answer counts. A second answer is refused with the name of the person who answered
//! first. When an attempt ends, its open permission requests are withdrawn. Its open questions stay
//! until the task is over.

mod unanswered; // questions that outlive their attempt

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent;
use crate::attempt::Attempt;
use crate::board::{Board, Draft};
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::ids::{AgentName, ApprovalId, AttemptId, MissionId, Now, ProjectName, TaskId};
use crate::inbox::Snooze;
use crate::policy::{self, Effect, Matter, Scope};
use crate::refusal::Refusal;
use crate::session::{Answer, Ask, Tool, Want};
use crate::steer;

pub(crate) use unanswered::{
    Gate, awaits_answer, check_finish, deliver, end_task, gate, part, take_back, tell_unread, warn_unanswered,
};
pub use unanswered::{go_on, note_heard, open_question, work_waits_for};

/// The range of requests that an answer covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// This request only.
    #[default]
    Once,
    /// Every similar request in this task.
    Task,
    Mission,
    /// Every similar request by this agent from now on, through a rule of the policy.
    Always,
}

/// The answer to a request, and the actor who gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Decision {
    pub answer: Answer,
    pub by: Actor,
    pub wall: u64,
    /// The rule that decided the request, or the rule that this decision created.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<String>,
}

/// A permission request or a question of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Approval {
    pub id: ApprovalId,
    pub attempt: AttemptId,
    pub task: TaskId,
    pub project: ProjectName,
    pub mission: Option<MissionId>,
    pub agent: AgentName,
    pub ask: Ask,
    pub asked_wall: u64,
    /// The time at which the request is escalated once, on the fleet clock.
    pub escalate_at: Option<u64>,
    pub escalated: bool,
    /// A person's snooze of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed: Option<Snooze>,
    pub decision: Option<Decision>,
    /// The program that asked no longer waits for the answer, so the task's attempts get the answer
    /// as a prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// The agent's assumption, if it goes on without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed: Option<String>,
    /// The agent has read the answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heard: bool,
    /// The attempt is over, or withdrew the request.
    pub closed: bool,
}

impl Approval {
    /// Returns whether somebody must still answer the request.
    pub fn is_open(&self) -> bool {
        self.decision.is_none() && !self.closed
    }

    /// Returns the request's content in one line.
    pub fn subject(&self) -> String {
        match &self.ask.want {
            Want::Permission { tool, .. } => tool.describe(),
            Want::Question { text, .. } => text.lines().next().unwrap_or_default().to_owned(),
        }
    }
}

facts! {
    Asked { approval: Arc<Approval> }
    Decided { approval: ApprovalId, decision: Decision }
    Escalated { approval: ApprovalId }
    /// The question stays open, although its agent goes on or its attempt is over.
    Kept { approval: ApprovalId, assumed: Option<String> }
    /// The agent has read the answer.
    Heard { approval: ApprovalId }
    /// Nobody needs to answer the request any more.
    Withdrawn { approval: ApprovalId, reason: String }
}

/// Handles a request of an agent's program: the policy answers it, or it is put to a person.
pub(crate) fn ask(draft: &mut Draft, attempt: &Attempt, ask: Ask, now: Now) -> Result<(), Refusal> {
    // The request is known already when a journal is read again.
    if draft.board().approvals.values().any(|it| it.attempt == attempt.id && it.ask.id == ask.id) {
        return Ok(());
    }
    let agent = agent::find(draft.board(), &attempt.agent)?.clone();
    let policy = match &ask.want {
        Want::Permission { tool, .. } => policy::judge(draft.board(), attempt, &agent, tool),
        Want::Question { .. } => (Effect::Ask, String::new()),
    };
    let (hidden, title) = match &ask.want {
        Want::Permission { tool, .. } => (tool.hides_its_object(), tool.describe()),
        Want::Question { .. } => (None, String::new()),
    };
    let id = ApprovalId(draft.board().counters.approval + 1);
    let escalate_at = (policy.0 == Effect::Ask && hidden.is_none()).then(|| now.at + draft.board().limits.escalate_ms);
    let approval = Approval {
        id,
        attempt: attempt.id,
        task: attempt.task,
        project: attempt.project.clone(),
        mission: attempt.mission,
        agent: attempt.agent.clone(),
        ask,
        asked_wall: now.wall,
        escalate_at,
        escalated: false,
        snoozed: None,
        decision: None,
        kept: false,
        assumed: None,
        heard: false,
        closed: false,
    };
    draft.record(Event::ApprovalAsked(Asked { approval: approval.into() }));
    let (answer, rule) = match (policy.0, hidden) {
        (Effect::Allow, _) => (Answer::Allow, policy.1),
        (Effect::Deny, _) => {
            (Answer::Deny { words: Some(format!("Regatta's policy forbids it ({})", policy.1)) }, policy.1)
        }
        // A person decides on the content shown, so a request without content is denied and not
        // shown (S13).
        (Effect::Ask, Some(reason)) => {
            let words = format!("Regatta denied it because {reason}. Ask again and name the command, file or address.");
            tell_reason(draft, attempt, &title, &words);
            (Answer::Deny { words: Some(words) }, reason)
        }
        (Effect::Ask, None) => return Ok(()),
    };
    let decision = Decision { answer, by: Actor::Regatta, wall: now.wall, rule: Some(rule) };
    draft.record(Event::ApprovalDecided(Decided { approval: id, decision }));
    Ok(())
}

/// Sends an agent the reason of a denial as a follow-up prompt, if its own protocol cannot carry
/// the reason.
fn tell_reason(draft: &mut Draft, attempt: &Attempt, what: &str, words: &str) {
    let runtime = draft.board().agents.get(&attempt.agent).map(|agent| agent.runtime.clone());
    if attempt.takes_words() && runtime.is_some_and(|runtime| !runtime.carries_reasons()) {
        steer::say(draft, attempt.id, format!("You asked to do this: {what}\n{words}"));
    }
}

/// The largest question, in bytes.
const LONGEST_QUESTION: usize = 8 * 1024;
/// The largest number of open requests of one attempt.
const MOST_OPEN: usize = 10;

/// Handles a request that came through Regatta's own tools, like a request in the program's own
/// protocol.
pub fn request(draft: &mut Draft, attempt: AttemptId, ask: Ask, now: Now) -> Result<ApprovalId, Refusal> {
    let live = draft.board().attempts.get(&attempt).cloned();
    let Some(live) = live.filter(|it| it.stopping.is_none() && it.phase == crate::attempt::Phase::Working) else {
        return Err(Refusal::invalid(
            format!("{attempt} is over"),
            "stop working, because nobody can answer the request any more",
        ));
    };
    let of = |board: &Board| {
        board.approvals.values().find(|it| it.attempt == attempt && it.ask.id == ask.id).map(|it| it.id)
    };
    if let Some(known) = of(draft.board()) {
        return Ok(known);
    }
    // An earlier attempt's identical question that is still open is not asked twice.
    let again = draft
        .board()
        .approvals
        .values()
        .find(|asked| asked.task == live.task && asked.kept && asked.is_open() && asked.ask.want == ask.want);
    if let Some(again) = again {
        return Ok(again.id);
    }
    let (text, lines) = match &ask.want {
        Want::Permission { tool, .. } => {
            let named = tool.paths.iter().chain(&tool.urls).chain(&tool.command).chain(&tool.arguments);
            (named.map(String::len).sum::<usize>() + tool.title.len(), tool.paths.len() + tool.urls.len())
        }
        Want::Question { text, choices, .. } => {
            (text.len() + choices.iter().map(String::len).sum::<usize>(), choices.len())
        }
    };
    if text == 0 || text > LONGEST_QUESTION || lines > 100 || ask.id.len() > 200 {
        return Err(Refusal::invalid(
            format!("a request must have 1 to {LONGEST_QUESTION} bytes and at most 100 choices or paths"),
            "shorten it, or put the text into a file of your workspace",
        ));
    }
    if draft.board().approvals.values().filter(|it| it.attempt == attempt && it.is_open()).count() >= MOST_OPEN {
        return Err(Refusal::invalid(
            format!("{attempt} already has {MOST_OPEN} open requests"),
            "wait for their answers first",
        ));
    }
    self::ask(draft, &live, ask.clone(), now)?;
    of(draft.board()).ok_or_else(|| Refusal::invalid("the request was not stored", "ask again"))
}

/// A person's answer to one or more requests.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub answer: Answer,
    pub reach: Reach,
    pub by: Actor,
}

/// Answers `first` and every request of `also` that is still open. Returns all requests that the answer settled.
///
/// A rule that the first answer adds can settle some of `also`; those count as answered by this call. A request of
/// `also` that somebody else has answered, or whose attempt has ended, is skipped. Any other refusal refuses the whole
/// call.
pub fn decide_all(
    draft: &mut Draft,
    first: ApprovalId,
    also: &[ApprovalId],
    verdict: &Verdict,
    now: Now,
) -> Result<Vec<ApprovalId>, Refusal> {
    let mut settled = decide(draft, first, verdict, now)?;
    for id in also {
        if draft.board().approvals.get(id).is_some_and(|approval| approval.is_open()) {
            settled.extend(decide(draft, *id, verdict, now)?);
        }
    }
    Ok(settled)
}

/// Answers a request, and with it every open similar request within reach.
pub fn decide(draft: &mut Draft, id: ApprovalId, verdict: &Verdict, now: Now) -> Result<Vec<ApprovalId>, Refusal> {
    let Verdict { answer, reach, by } = verdict.clone();
    let approval = find(draft.board(), id)?;
    if let Some(decision) = &approval.decision {
        return Err(Refusal::AlreadyAnswered { approval: id, by: decision.by.who().to_owned() });
    }
    if approval.closed {
        return Err(Refusal::AlreadyAnswered { approval: id, by: "its agent, which withdrew it".into() });
    }
    // No agent may permit itself something.
    if let Actor::Agent(name) = &by
        && (*name == approval.agent || name.as_str().starts_with(&format!("{}/", approval.agent)))
    {
        return Err(Refusal::invalid(
            format!("{name} cannot answer its own request"),
            "a person or the agent's lead must answer it",
        ));
    }
    // A lead may answer its workers' questions. Only a person may decide permissions. The commands
    // of hooks act as agents too, and they read texts of strangers.
    if let (Actor::Agent(name), Want::Permission { .. }) = (&by, &approval.ask.want) {
        return Err(Refusal::invalid(
            format!("{name} is an agent, and only a person can decide a permission request"),
            format!("ask a person to run: regatta allow {id}, or regatta deny {id}"),
        ));
    }
    check_answer(&approval, &answer)?;
    let mut decision = Decision { answer, by, wall: now.wall, rule: None };
    let mut alike = vec![id];
    if let (Want::Permission { tool, .. }, true) = (&approval.ask.want, reach != Reach::Once) {
        let scope = match (reach, approval.mission) {
            (Reach::Mission, Some(mission)) => Scope::Mission(mission),
            (Reach::Mission, None) => {
                return Err(Refusal::invalid(
                    format!("{} belongs to no mission", approval.task),
                    "answer it for the task: --for task",
                ));
            }
            (Reach::Always, _) => Scope::Agent(approval.agent.clone()),
            _ => Scope::Task(approval.task),
        };
        let effect = if decision.answer == Answer::Allow { Effect::Allow } else { Effect::Deny };
        let Some(matter) = like_it(tool) else {
            return Err(Refusal::invalid(
                format!(
                    "{id} cannot be answered for similar requests: it has no single command, file or address to match"
                ),
                format!("answer it once: regatta allow {id}"),
            ));
        };
        // A rule for a task or mission that is already over would have no effect.
        let over = match &scope {
            Scope::Task(it) => !draft.board().tasks.contains_key(it),
            Scope::Mission(it) => !draft.board().missions.contains_key(it),
            _ => false,
        };
        if !over {
            let rule = policy::add(draft, scope, effect, matter)?;
            decision.rule = draft.board().rules.get(&rule).map(|it| format!("{rule}: {}", it.describe()));
            let others = draft.board().approvals.values().filter(|it| it.is_open() && it.id != id);
            alike.extend(others.filter(|it| falls_under(draft.board(), it, effect)).map(|it| it.id));
        }
    }
    if let (Answer::Deny { words: Some(words) }, Want::Permission { tool, .. }) = (&decision.answer, &approval.ask.want)
        && let Some(attempt) = draft.board().attempts.get(&approval.attempt).cloned()
    {
        tell_reason(draft, &attempt, &tool.describe(), &format!("It was denied: {words}"));
    }
    let by = decision.by.clone();
    for approval in &alike {
        draft.record(Event::ApprovalDecided(Decided { approval: *approval, decision: decision.clone() }));
    }
    deliver(draft, id, &by, now)?;
    Ok(alike)
}

fn check_answer(approval: &Approval, answer: &Answer) -> Result<(), Refusal> {
    match (&approval.ask.want, answer) {
        (Want::Permission { .. }, Answer::Text { .. }) => Err(Refusal::invalid(
            format!("{} asks for permission, not for text", approval.id),
            format!("regatta allow {0}, or regatta deny {0} --because '…'", approval.id),
        )),
        (Want::Question { .. }, Answer::Allow) => Err(Refusal::invalid(
            format!("{} is a question", approval.id),
            format!("regatta answer {} 'your answer'", approval.id),
        )),
        (_, Answer::Cancelled) => Err(Refusal::invalid("an approval cannot be cancelled", "deny it, or stop its task")),
        (_, Answer::Text { text }) if text.len() > 64 * 1024 => {
            Err(Refusal::invalid("an answer is limited to 64 KiB", "shorten it, or write it to a file"))
        }
        _ => Ok(()),
    }
}

/// Returns whether the current policy decides an open request with this effect.
fn falls_under(board: &Board, approval: &Approval, effect: Effect) -> bool {
    let Want::Permission { tool, .. } = &approval.ask.want else { return false };
    let (Some(attempt), Some(agent)) = (board.attempts.get(&approval.attempt), board.agents.get(&approval.agent))
    else {
        return false;
    };
    policy::judge(board, attempt, agent, tool).0 == effect
}

/// Programs that run other programs given as arguments. For these, only the identical line is
/// similar.
const RUNNERS: [&str; 22] = [
    "sh", "bash", "zsh", "dash", "fish", "env", "sudo", "doas", "su", "nohup", "xargs", "time", "timeout", "nice",
    "python", "python3", "node", "perl", "ruby", "eval", "exec", "ssh",
];

/// Returns the rule for "everything like this": the same kind of tool and, for a command, the same
/// program and first argument with any further arguments; for an address, the same host. Where that
/// would allow too much, the rule matches only exactly the same request.
fn like_it(tool: &Tool) -> Option<Matter> {
    let kind = Some(tool.kind);
    let Some(line) = &tool.command else {
        return match (tool.urls.as_slice(), tool.paths.as_slice()) {
            ([], [path]) => {
                Some(Matter { tool: kind, path: Some(policy::plain_path(path)), exact: true, ..Matter::default() })
            }
            (urls @ [first, ..], []) => {
                let host = policy::same_host(first);
                let is_one_host = urls.iter().all(|url| policy::same_host(url) == host);
                match (host.filter(|_| is_one_host), urls) {
                    (Some(host), _) => Some(Matter { tool: kind, url: Some(host), ..Matter::default() }),
                    (None, [url]) => {
                        let url = Some(policy::plain_url(url));
                        Some(Matter { tool: kind, url, exact: true, ..Matter::default() })
                    }
                    (None, _) => None,
                }
            }
            _ => None,
        };
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let program = words.first().map(|it| it.rsplit('/').next().unwrap_or(it)).unwrap_or_default();
    let plain = words
        .get(1)
        .is_some_and(|it| !it.starts_with('-') && it.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-'))
        && words.len() > 2
        && !RUNNERS.contains(&program)
        && !program.contains('=')
        && !line.contains(['*', '$', '\'', '"', '\\'])
        && !policy::joined(line);
    let command = if plain { format!("{} {} *", words[0], words[1]) } else { line.clone() };
    Some(Matter { tool: kind, command: Some(command), exact: !plain, ..Matter::default() })
}

/// Escalates a request that nobody answered in time. Time has no other effect on a request.
pub fn escalate(draft: &mut Draft, id: ApprovalId, now: Now) {
    let due = draft
        .board()
        .approvals
        .get(&id)
        .is_some_and(|it| it.is_open() && it.escalate_at.is_some_and(|at| at <= now.at));
    if due {
        draft.record(Event::ApprovalEscalated(Escalated { approval: id }));
    }
}

/// Withdraws open requests of an attempt: the request `ask`, or all.
pub(crate) fn withdraw(draft: &mut Draft, attempt: AttemptId, ask: Option<&str>, reason: &str) {
    let open: Vec<ApprovalId> = draft
        .board()
        .approvals
        .values()
        .filter(|it| it.attempt == attempt && it.is_open() && ask.is_none_or(|id| it.ask.id == id))
        .map(|it| it.id)
        .collect();
    for approval in open {
        draft.record(Event::ApprovalWithdrawn(Withdrawn { approval, reason: reason.to_owned() }));
    }
}

/// Returns an open request that an attempt waits for. An attempt that is being stopped waits for
/// nothing.
pub fn open_of<'a>(board: &'a Board, attempt: &Attempt) -> Option<&'a Approval> {
    let own = |it: &&Arc<Approval>| it.attempt == attempt.id && it.is_awaited();
    board.approvals.values().find(own).filter(|_| attempt.stopping.is_none()).map(|it| &**it)
}

/// Returns the approval with that number.
pub fn find(board: &Board, id: ApprovalId) -> Result<Arc<Approval>, Refusal> {
    board.approvals.get(&id).cloned().ok_or_else(|| {
        if id.0 > 0 && id.0 <= board.counters.approval {
            Refusal::AlreadyAnswered { approval: id, by: "somebody, or it ended with its task".into() }
        } else {
            Refusal::missing(format!("there is no request {id}"), "see what is open: regatta inbox")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::ToolKind;

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
            let tool = Tool { kind: ToolKind::Execute, command: Some(line.into()), ..Tool::default() };
            let found = like_it(&tool).expect("a command is similar to itself");
            assert_eq!((found.command.as_deref(), found.exact), (Some(pattern), exact), "{line}");
        }
        let edits = |paths: &[&str]| Tool {
            kind: ToolKind::Edit,
            paths: paths.iter().map(|it| (*it).into()).collect(),
            ..Tool::default()
        };
        let one = like_it(&edits(&["src/./a.rs"])).expect("one file is similar to itself");
        assert_eq!((one.path.as_deref(), one.exact), (Some("src/a.rs"), true));
        assert_eq!(like_it(&edits(&["a", "b"])), None);
        let fetches = |urls: &[&str]| Tool {
            kind: ToolKind::Fetch,
            urls: urls.iter().map(|url| (*url).into()).collect(),
            ..Tool::default()
        };
        let host = like_it(&fetches(&["https://docs.rs/tokio", "https://docs.rs/serde"]))
            .expect("addresses of one host are similar");
        assert_eq!((host.url.as_deref(), host.exact), (Some("https://docs.rs/*"), false));
        let odd = like_it(&fetches(&["https://me@docs.rs/tokio"])).expect("an address is similar to itself");
        assert_eq!((odd.url.as_deref(), odd.exact), (Some("https://me@docs.rs/tokio"), true));
        assert_eq!(like_it(&fetches(&["https://docs.rs/", "https://evil.test/"])), None);
        assert_eq!(like_it(&edits(&[])), None);
    }
}
