//! Questions that nobody has answered yet. A question outlives the attempt that asked it: it stays
//! open until somebody answers it or its task is over.
//!
//! - While the agent waits for the answer, its attempt goes on.
//! - An agent that goes on without an answer states an assumption. Its work then waits in front of
//!   the queue for the answer, or lands with a warning, depending on `[landing] unanswered`.
//! - A later answer is sent to the attempt that works on the task now, or to the next one.
//!
//! Not here: permission requests. They concern one call of one program and end with it.

use crate::attempt::Attempt;
use crate::board::{Board, Draft};
use crate::command::Actor;
use crate::event::Event;
use crate::ids::{ApprovalId, AttemptId, Now, TaskId};
use crate::landing;
use crate::lead;
use crate::project::Unanswered;
use crate::refusal::Refusal;
use crate::session::{Answer, Want};
use crate::steer;
use crate::task::{self, Duty, Status, Task};

use super::{Approval, Heard, Kept, Withdrawn, find};

/// The prefix of the ids of requests that came through Regatta's own tools.
const OWN_TOOL: &str = "tool-";

/// The largest assumption, in bytes.
const MAX_ASSUMPTION_BYTES: usize = 4 * 1024;

impl Approval {
    /// Returns whether the request is a question, as opposed to a permission request.
    pub fn is_question(&self) -> bool {
        matches!(self.ask.want, Want::Question { .. })
    }

    /// Returns whether an agent waits for the answer before it goes on.
    pub fn is_awaited(&self) -> bool {
        self.is_open() && !self.kept
    }

    /// Returns whether the agent must fetch the answer with a tool, because its program's own
    /// protocol cannot carry it.
    fn is_fetched(&self) -> bool {
        self.is_question() && self.ask.id.starts_with(OWN_TOOL)
    }

    /// Returns whether the request was answered and no agent has read the answer.
    fn is_unread(&self) -> bool {
        self.decision.is_some() && !self.heard && (self.is_fetched() || (self.kept && self.is_question()))
    }

    /// Returns whether the work can stay as it is after this answer: the answer equals the
    /// assumption, or nobody wants to decide.
    fn agrees(&self, answer: &Answer) -> bool {
        match answer {
            Answer::Text { text } => {
                self.assumed.as_ref().is_some_and(|assumed| assumed.trim().eq_ignore_ascii_case(text.trim()))
            }
            Answer::Allow | Answer::Deny { .. } | Answer::Cancelled => true,
        }
    }

    /// Formats the question and its answer as a text for an agent.
    fn in_words(&self, answer: &Answer) -> String {
        let question = match &self.ask.want {
            Want::Question { text, .. } => text.trim(),
            Want::Permission { tool, .. } => tool.title.as_str(),
        };
        let answer = match answer {
            Answer::Text { text } => format!("The answer: {}", text.trim()),
            Answer::Deny { words: Some(words) } => format!("Nobody will answer it, because: {}", words.trim()),
            Answer::Allow | Answer::Deny { words: None } | Answer::Cancelled => {
                "Nobody will answer it. Decide yourself.".to_owned()
            }
        };
        let assumed = self.assumed.as_ref().map_or(String::new(), |text| format!("\nYou had assumed: {}", text.trim()));
        format!("You asked ({}): {question}{assumed}\n{answer}", self.id)
    }
}

/// Returns whether questions of a task outlive the attempt that asked them. Those of a conversation
/// do not, because there the next message is the answer.
fn keeps(board: &Board, id: TaskId) -> bool {
    board.tasks.get(&id).is_some_and(|task| {
        let is_kind = task.is_work() || task.duty == Some(Duty::Lead);
        is_kind && task.standing.is_none() && !task.status.is_terminal()
    })
}

fn open_questions(board: &Board, task: TaskId) -> impl Iterator<Item = &Approval> {
    let all = board.approvals.values().map(|approval| &**approval);
    all.filter(move |approval| approval.task == task && approval.is_open() && approval.is_question())
}

/// Returns the oldest question of a task that nobody has answered.
pub fn open_question(board: &Board, task: TaskId) -> Option<&Approval> {
    open_questions(board, task).next()
}

/// Returns whether an attempt waits for the answer to a question that it asked with a tool.
pub(crate) fn awaits_answer(board: &Board, attempt: &Attempt) -> bool {
    let waits_for = |asked: &Approval| asked.attempt == attempt.id && asked.is_awaited() && asked.is_fetched();
    attempt.takes_words() && board.approvals.values().any(|asked| waits_for(asked))
}

/// Refuses to finish work while a question is open and the agent has not stated an assumption.
pub(crate) fn check_finish(board: &Board, attempt: AttemptId) -> Result<(), Refusal> {
    let open = board
        .approvals
        .values()
        .find(|asked| asked.attempt == attempt && asked.is_awaited() && asked.is_fetched() && keeps(board, asked.task));
    open.map_or(Ok(()), |asked| {
        Err(Refusal::invalid(
            format!("nobody has answered {} yet", asked.id),
            format!(
                "wait for the answer: ask with id {0}; or go on with an assumption: ask with id {0} and assume",
                asked.id
            ),
        ))
    })
}

/// Records that an agent goes on without an answer, and with which assumption.
pub fn go_on(draft: &mut Draft, attempt: AttemptId, id: ApprovalId, assumed: String) -> Result<(), Refusal> {
    let approval = find(draft.board(), id)?;
    let is_own = draft.board().attempts.get(&attempt).is_some_and(|live| live.task == approval.task);
    if !is_own || !approval.is_question() {
        return Err(Refusal::invalid(
            format!("{id} is not a question of {attempt}"),
            "use the id that ask returned; a permission cannot be assumed",
        ));
    }
    if let Some(decision) = &approval.decision {
        return Err(Refusal::AlreadyAnswered { approval: id, by: decision.by.who().to_owned() });
    }
    if assumed.trim().is_empty() || assumed.len() > MAX_ASSUMPTION_BYTES {
        return Err(Refusal::invalid(
            format!("an assumption must have 1 to {MAX_ASSUMPTION_BYTES} bytes"),
            "say in a sentence or two what you will do without an answer",
        ));
    }
    if approval.assumed.as_deref() != Some(assumed.trim()) {
        draft.record(Event::ApprovalKept(Kept { approval: id, assumed: Some(assumed.trim().to_owned()) }));
    }
    Ok(())
}

/// Records that an agent has read the answer.
pub fn note_heard(draft: &mut Draft, attempt: AttemptId, id: ApprovalId) {
    let is_news = draft.board().approvals.get(&id).is_some_and(|approval| {
        let task = draft.board().attempts.get(&attempt).map(|live| live.task);
        approval.decision.is_some() && !approval.heard && task == Some(approval.task)
    });
    if is_news {
        draft.record(Event::ApprovalHeard(Heard { approval: id }));
    }
}

/// Closes the open requests of an attempt when its turn or the attempt itself is over. Questions of
/// a task that goes on stay open.
pub(crate) fn part(draft: &mut Draft, id: AttemptId, reason: &str, is_over: bool) {
    let asked: Vec<_> = draft.board().approvals.values().filter(|asked| asked.attempt == id).cloned().collect();
    for asked in asked.iter().filter(|asked| asked.is_open()) {
        let is_kept = asked.is_question() && keeps(draft.board(), asked.task);
        // A lead rests between its turns, so it does not wait. A worker waits for the answer to a
        // question that it asked with a tool.
        let is_lead = draft.board().tasks.get(&asked.task).is_some_and(|task| task.duty == Some(Duty::Lead));
        let waits_on = asked.is_fetched() && !is_over && !is_lead;
        if !is_kept {
            draft.record(Event::ApprovalWithdrawn(Withdrawn { approval: asked.id, reason: reason.to_owned() }));
        } else if !asked.kept && !waits_on {
            draft.record(Event::ApprovalKept(Kept { approval: asked.id, assumed: None }));
        }
    }
    let task = draft.board().attempts.get(&id).map(|attempt| attempt.task);
    if let Some(task) = task.filter(|_| is_over) {
        leave_unread(draft, task);
    }
}

/// Leaves the unread answers to the task's next attempt, as notes.
fn leave_unread(draft: &mut Draft, task: TaskId) {
    for (asked, answer) in unread(draft.board(), task) {
        draft.record(Event::ApprovalHeard(Heard { approval: asked.id }));
        if !asked.agrees(&answer) {
            steer::note(draft, task, asked.in_words(&answer));
        }
    }
}

/// Handles the program's withdrawal of a request. If somebody stopped or held the attempt, a
/// question stays open, because the agent did not change its mind.
pub(crate) fn take_back(draft: &mut Draft, attempt: &Attempt, ask: &str) {
    let found =
        draft.board().approvals.values().find(|it| it.attempt == attempt.id && it.ask.id == ask && it.is_open());
    let Some(asked) = found.cloned() else { return };
    let is_cut_short = attempt.stopping.is_some() || attempt.talk.held.is_some();
    if is_cut_short && asked.is_question() && keeps(draft.board(), asked.task) {
        if !asked.kept {
            draft.record(Event::ApprovalKept(Kept { approval: asked.id, assumed: None }));
        }
    } else {
        super::withdraw(draft, attempt.id, Some(ask), "its agent withdrew it");
    }
}

/// Withdraws the requests of a task that is over.
pub(crate) fn end_task(draft: &mut Draft, id: TaskId, reason: &str) {
    let asked: Vec<(ApprovalId, AttemptId)> =
        draft.board().approvals.values().filter(|it| it.task == id).map(|it| (it.id, it.attempt)).collect();
    for (approval, attempt) in asked {
        // A live attempt withdraws its own requests when it ends.
        if !draft.board().attempts.contains_key(&attempt) {
            draft.record(Event::ApprovalWithdrawn(Withdrawn { approval, reason: reason.to_owned() }));
        }
    }
}

/// Sends an attempt the answers that it has not read, between two of its turns.
pub(crate) fn tell_unread(draft: &mut Draft, attempt: &Attempt) {
    for (asked, answer) in unread(draft.board(), attempt.task) {
        draft.record(Event::ApprovalHeard(Heard { approval: asked.id }));
        steer::say(draft, attempt.id, asked.in_words(&answer));
    }
}

/// Returns the answered requests of a task whose answers no agent has read.
fn unread(board: &Board, task: TaskId) -> Vec<(Approval, Answer)> {
    if !keeps(board, task) {
        return vec![];
    }
    let all = board.approvals.values().filter(|asked| asked.task == task && asked.is_unread());
    all.filter_map(|asked| Some((Approval::clone(asked), asked.decision.as_ref()?.answer.clone()))).collect()
}

/// Delivers an answer to the agent that needs it, if no program waits for it in its own protocol.
pub(crate) fn deliver(draft: &mut Draft, id: ApprovalId, by: &Actor, now: Now) -> Result<(), Refusal> {
    let Some(asked) = draft.board().approvals.get(&id).cloned().filter(|asked| asked.is_unread()) else {
        return Ok(());
    };
    let Some(answer) = asked.decision.as_ref().map(|decision| decision.answer.clone()) else { return Ok(()) };
    let Some(task) = draft.board().tasks.get(&asked.task).cloned() else { return Ok(()) };
    let at_work = task.attempt.and_then(|attempt| draft.board().attempts.get(&attempt)).cloned();
    if let Some(live) = at_work.filter(|live| live.stopping.is_none()) {
        // During its turn, a waiting agent fetches the answer itself. An agent that takes no
        // prompts gets the answer when it finishes.
        if live.takes_words() && (asked.kept || !live.talk.in_turn) {
            tell_unread(draft, &live);
        }
        return Ok(());
    }
    match task.status {
        Status::InReview if asked.agrees(&answer) => {
            draft.record(Event::ApprovalHeard(Heard { approval: id }));
            release(draft, &task, by, now)
        }
        Status::Landing if asked.agrees(&answer) => {
            draft.record(Event::ApprovalHeard(Heard { approval: id }));
            Ok(())
        }
        Status::InReview | Status::Landing => {
            draft.record(Event::ApprovalHeard(Heard { approval: id }));
            if landing::revise(draft, task.id, asked.in_words(&answer)).is_err() {
                let text = format!("{id} was answered while the work was landing: {}", answer.phrase());
                task::warn(draft, task.id, text);
            }
            Ok(())
        }
        _ if task.duty == Some(Duty::Lead) => {
            draft.record(Event::ApprovalHeard(Heard { approval: id }));
            if let Some(mission) = task.mission {
                lead::stir(draft, mission, &asked.in_words(&answer).replace('\n', " "), true);
            }
            Ok(())
        }
        _ => {
            leave_unread(draft, task.id);
            Ok(())
        }
    }
}

/// Lets finished work go on, to its review or into the queue, when no question is open any more.
fn release(draft: &mut Draft, task: &Task, by: &Actor, now: Now) -> Result<(), Refusal> {
    let (None, Some(submission)) = (open_question(draft.board(), task.id), &task.submission) else { return Ok(()) };
    // Work that never lands stays in review after any answer.
    if landing::guard::never_lands(&submission.changed, &submission.special).is_some() {
        return Ok(());
    }
    if let Some(reason) = landing::needs_person(draft.board(), task, submission) {
        task::review_for(draft, task, submission.clone(), reason);
        return landing::begin_review(draft, task, now);
    }
    // If somebody else holds the files now, the work stays in review, and a person lands it.
    if !landing::is_free_to_land(draft, task, now) {
        let reason = format!("the question is answered, but somebody else holds the files: regatta land {}", task.id);
        task::review_for(draft, task, submission.clone(), reason);
        return Ok(());
    }
    landing::land(draft, task.id, false, by, now).map(|_| ())
}

/// Returns the question whose answer a task's finished work waits for, in review.
pub fn work_waits_for<'a>(board: &'a Board, task: &Task) -> Option<&'a Approval> {
    if task.status == Status::InReview { open_question(board, task.id) } else { None }
}

/// Warns that a task's work is accepted although its questions have no answer.
pub(crate) fn warn_unanswered(draft: &mut Draft, task: TaskId) {
    let open: Vec<String> = open_questions(draft.board(), task)
        .map(|asked| {
            let assumed = asked.assumed.as_ref().map_or(String::new(), |text| format!("; the agent assumed: {text}"));
            format!("nobody answered {} ({}){assumed}", asked.id, asked.subject())
        })
        .collect();
    for text in open {
        task::warn(draft, task, text);
    }
}

/// The decision on finished work that may have open questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// No question is open, or the project lets work land with an assumption.
    Pass,
    /// The work waits for the answer.
    Wait(String),
    /// The question was answered, and the agent has not read the answer. The work goes back with
    /// this text.
    Back(String),
}

/// Decides if a task's finished work may go on, in view of its questions.
pub(crate) fn gate(board: &Board, task: &Task) -> Gate {
    if !keeps(board, task.id) {
        return Gate::Pass;
    }
    if let Some((asked, answer)) = unread(board, task.id).into_iter().find(|(asked, answer)| !asked.agrees(answer)) {
        return Gate::Back(asked.in_words(&answer));
    }
    let policy = board.projects.get(&task.project).map(|it| it.settings.landing.unanswered).unwrap_or_default();
    let holds = |asked: &&Approval| asked.assumed.is_none() || policy == Unanswered::Wait;
    let waiting = open_questions(board, task.id).find(holds);
    match waiting.map(|asked| (asked.id, asked.assumed.as_ref())) {
        None => Gate::Pass,
        Some((id, Some(assumed))) => {
            Gate::Wait(format!("the work waits for the answer to {id}; the agent assumed: {assumed}"))
        }
        Some((id, None)) => Gate::Wait(format!("the work waits for the answer to {id}")),
    }
}
