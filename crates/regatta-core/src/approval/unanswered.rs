//! Questions that nobody has answered yet. A question outlives the attempt that asked it: it stays
//! open until somebody answers it or its task is over.
//!
//! - While the agent waits for the answer, its attempt goes on.
//! - An agent that continues without an answer states an assumption. When its work is finished,
//!   the setting `[landing] unanswered` decides: the work waits for the answer, or it lands with a
//!   warning.
//! - A later answer is sent to the attempt that works on the task now, or to the next one.
//!
//! Not here: permission requests. A permission request concerns one tool call of a running program,
//! and ends with that program.

use crate::agent_protocol::{RequestAnswer, RequestContent};
use crate::agent_texts;
use crate::attempt::Attempt;
use crate::board::{Board, Draft};
use crate::command::Actor;
use crate::event::Event;
use crate::ids::{ApprovalId, AttemptId, Now, TaskId};
use crate::intervention;
use crate::landing;
use crate::lead;
use crate::project::UnansweredPolicy;
use crate::refusal::Refusal;
use crate::task::{self, Purpose, Task, TaskStatus};

use super::{Approval, ApprovalHeard, ApprovalKept, ApprovalWithdrawn, find};

/// Prefix of the ids of requests that agents made with one of Regatta's own tools.
const TOOL_REQUEST_PREFIX: &str = "tool-";

/// Maximum size of an assumption (the answer on which an agent continues until a person answers),
/// in bytes.
const MAX_ASSUMPTION_BYTES: usize = 4 * 1024;

impl Approval {
    /// Returns whether the request is a question, as opposed to a permission request.
    pub fn is_question(&self) -> bool {
        matches!(self.request.content, RequestContent::Question { .. })
    }

    /// Returns whether the agent that asked is still waiting for the answer. An agent that
    /// continues on an assumption, or whose attempt is over, is not waiting.
    pub fn is_awaited(&self) -> bool {
        self.is_open() && !self.is_kept_for_task
    }

    /// Returns whether the agent must fetch the answer with one of Regatta's own tools. An agent
    /// that asked with such a tool must also fetch the answer with a tool, because its program's
    /// protocol cannot deliver the answer.
    fn must_be_fetched(&self) -> bool {
        self.is_question() && self.request.id.starts_with(TOOL_REQUEST_PREFIX)
    }

    /// Returns whether the request has an answer that no agent has read yet.
    fn has_unread_answer(&self) -> bool {
        self.decision.is_some()
            && !self.is_answer_read
            && (self.must_be_fetched() || (self.is_kept_for_task && self.is_question()))
    }

    /// Returns whether finished work needs no change after this answer: the answer equals the
    /// agent's assumption, or the person left the decision to the agent.
    fn answer_confirms_work(&self, answer: &RequestAnswer) -> bool {
        match answer {
            RequestAnswer::Text { text } => self
                .assumed
                .as_ref()
                .is_some_and(|assumed| assumed.trim().eq_ignore_ascii_case(text.trim())),
            RequestAnswer::Allow | RequestAnswer::Deny { .. } | RequestAnswer::Cancelled => true,
        }
    }
}

/// Returns whether a question of this task stays open after the end of the attempt that asked it. A
/// question in a conversation does not stay open, because the person's next message answers it. The
/// same holds for the session of a team's member.
fn keeps_questions(board: &Board, id: TaskId) -> bool {
    board.tasks.get(&id).is_some_and(|task| {
        let has_questions = task.is_polled() || task.purpose == Purpose::Lead;
        has_questions && task.session_of().is_none() && !task.status.is_terminal()
    })
}

/// Returns the questions of a task that nobody has answered yet, oldest first.
fn open_questions(board: &Board, task: TaskId) -> impl Iterator<Item = &Approval> {
    let all = board.approvals.values().map(|approval| &**approval);
    all.filter(move |approval| {
        approval.task == task && approval.is_open() && approval.is_question()
    })
}

/// Returns the oldest question of a task that nobody has answered.
pub fn open_question(board: &Board, task: TaskId) -> Option<&Approval> {
    open_questions(board, task).next()
}

/// Returns whether an attempt is waiting for the answer to a question that it asked with Regatta's
/// own tool.
pub(crate) fn awaits_answer(board: &Board, attempt: &Attempt) -> bool {
    let waits_for = |asked: &Approval| {
        asked.attempt == attempt.id && asked.is_awaited() && asked.must_be_fetched()
    };
    attempt.accepts_prompts() && board.approvals.values().any(|asked| waits_for(asked))
}

/// Refuses an agent's report of finished work if the agent's question is still open and the agent
/// has stated no assumption.
pub(crate) fn check_finish(board: &Board, attempt: AttemptId) -> Result<(), Refusal> {
    let open = board.approvals.values().find(|asked| {
        asked.attempt == attempt
            && asked.is_awaited()
            && asked.must_be_fetched()
            && keeps_questions(board, asked.task)
    });
    let Some(question) = open else { return Ok(()) };
    Err(Refusal::invalid(
        format!(
            "nobody has answered the question {} yet, so the work cannot be finished",
            question.id
        ),
        format!(
            "call the tool `ask` again: with the id {0} to wait for the answer, or with the id {0} \
            and `assume` to go on with an assumption",
            question.id
        ),
    ))
}

/// Records that the agent continues without an answer, on the assumption `assumed`.
pub fn continue_without_answer(
    draft: &mut Draft,
    attempt: AttemptId,
    id: ApprovalId,
    assumed: String,
) -> Result<(), Refusal> {
    let approval = find(draft.board(), id)?;
    let is_own = draft
        .board()
        .attempts
        .get(&attempt)
        .is_some_and(|live| live.task == approval.task);
    if !is_own || !approval.is_question() {
        return Err(Refusal::invalid(
            format!("{id} is not a question of the attempt {attempt}"),
            "use an id that the tool `ask` returned; a request for permission needs a person's answer",
        ));
    }
    if let Some(decision) = &approval.decision {
        return Err(Refusal::AlreadyAnswered {
            approval: id,
            by: decision.by.display_name().to_owned(),
        });
    }
    if assumed.trim().is_empty() || assumed.len() > MAX_ASSUMPTION_BYTES {
        return Err(Refusal::invalid(
            format!("an assumption must have 1 to {MAX_ASSUMPTION_BYTES} bytes"),
            "state in one or two sentences what you will do without an answer",
        ));
    }
    if approval.assumed.as_deref() != Some(assumed.trim()) {
        draft.record(Event::ApprovalKept(ApprovalKept {
            approval: id,
            assumed: Some(assumed.trim().to_owned()),
        }));
    }
    Ok(())
}

/// Records that an agent has read the answer to a question of its task.
pub fn mark_answer_read(draft: &mut Draft, attempt: AttemptId, id: ApprovalId) {
    let is_news = draft.board().approvals.get(&id).is_some_and(|approval| {
        let task = draft.board().attempts.get(&attempt).map(|live| live.task);
        approval.decision.is_some() && !approval.is_answer_read && task == Some(approval.task)
    });
    if is_news {
        draft.record(Event::ApprovalHeard(ApprovalHeard { approval: id }));
    }
}

/// Closes the open requests of an attempt when its turn ends, or when the attempt itself ends
/// (`is_over`). If the task continues, its questions stay open.
pub(crate) fn close_requests(draft: &mut Draft, id: AttemptId, reason: &str, is_over: bool) {
    let approvals: Vec<_> = draft
        .board()
        .approvals
        .values()
        .filter(|approval| approval.attempt == id)
        .cloned()
        .collect();
    for approval in approvals.iter().filter(|approval| approval.is_open()) {
        let is_kept = approval.is_question() && keeps_questions(draft.board(), approval.task);
        // A worker that asked with Regatta's tool `ask` waits for the answer, so its question is
        // not given to the task yet. A lead (an agent that splits a mission into tasks) never
        // waits, because it gets the answers at the start of its next turn.
        let is_lead = draft
            .board()
            .tasks
            .get(&approval.task)
            .is_some_and(|task| task.purpose == Purpose::Lead);
        let agent_waits = approval.must_be_fetched() && !is_over && !is_lead;
        if !is_kept {
            draft.record(Event::ApprovalWithdrawn(ApprovalWithdrawn {
                approval: approval.id,
                reason: reason.to_owned(),
            }));
        } else if !approval.is_kept_for_task && !agent_waits {
            draft.record(Event::ApprovalKept(ApprovalKept {
                approval: approval.id,
                assumed: None,
            }));
        }
    }
    let task = draft.board().attempts.get(&id).map(|attempt| attempt.task);
    if let Some(task) = task.filter(|_| is_over) {
        leave_unread_answers(draft, task);
    }
}

/// Adds the unread answers to the task as notes, which its next attempt gets in its prompt.
fn leave_unread_answers(draft: &mut Draft, task: TaskId) {
    for (asked, answer) in unread_answers(draft.board(), task) {
        draft.record(Event::ApprovalHeard(ApprovalHeard { approval: asked.id }));
        if !asked.answer_confirms_work(&answer) {
            intervention::leave_note(
                draft,
                task,
                agent_texts::answer_to_question(&asked, &answer),
            );
        }
    }
}

/// Handles a program's message that withdraws one of its permission requests or questions. A
/// program also sends such a message when Regatta stops or pauses it. In that case, a question
/// stays open for the task.
pub(crate) fn on_program_withdrew(draft: &mut Draft, attempt: &Attempt, request_id: &str) {
    let found = draft.board().approvals.values().find(|approval| {
        approval.attempt == attempt.id && approval.request.id == request_id && approval.is_open()
    });
    let Some(asked) = found.cloned() else { return };
    let is_cut_short = attempt.stopping.is_some() || attempt.session.hold_reason.is_some();
    if is_cut_short && asked.is_question() && keeps_questions(draft.board(), asked.task) {
        if !asked.is_kept_for_task {
            draft.record(Event::ApprovalKept(ApprovalKept {
                approval: asked.id,
                assumed: None,
            }));
        }
    } else {
        super::withdraw(draft, attempt.id, Some(request_id), "its agent withdrew it");
    }
}

/// Closes the permission requests and questions of a task that is over, because nobody needs the
/// answers any more.
pub(crate) fn on_task_ended(draft: &mut Draft, id: TaskId, reason: &str) {
    let asked: Vec<(ApprovalId, AttemptId)> = draft
        .board()
        .approvals
        .values()
        .filter(|approval| approval.task == id)
        .map(|approval| (approval.id, approval.attempt))
        .collect();
    for (approval, attempt) in asked {
        // Skip the requests of an attempt that is still live, because the end of the attempt closes
        // these requests.
        if !draft.board().attempts.contains_key(&attempt) {
            draft.record(Event::ApprovalWithdrawn(ApprovalWithdrawn {
                approval,
                reason: reason.to_owned(),
            }));
        }
    }
}

/// Sends an attempt all answers that no agent of its task has read. Each answer becomes a prompt,
/// which the agent gets between two turns.
pub(crate) fn send_unread_answers(draft: &mut Draft, attempt: &Attempt) {
    for (asked, answer) in unread_answers(draft.board(), attempt.task) {
        draft.record(Event::ApprovalHeard(ApprovalHeard { approval: asked.id }));
        intervention::send_prompt(
            draft,
            attempt.id,
            agent_texts::answer_to_question(&asked, &answer),
        );
    }
}

/// Returns the requests of a task that have an answer which no agent has read yet, with these
/// answers.
fn unread_answers(board: &Board, task: TaskId) -> Vec<(Approval, RequestAnswer)> {
    if !keeps_questions(board, task) {
        return vec![];
    }
    let all = board
        .approvals
        .values()
        .filter(|asked| asked.task == task && asked.has_unread_answer());
    all.filter_map(|asked| {
        let decision = asked.decision.as_ref()?;
        Some((Approval::clone(asked), decision.answer.clone()))
    })
    .collect()
}

/// Delivers a new answer: to the running attempt as a prompt, to finished work that waited for the
/// answer, or as a note for the next attempt. Does nothing if the program receives the answer
/// through its own protocol.
pub(crate) fn deliver_answer(
    draft: &mut Draft,
    id: ApprovalId,
    by: &Actor,
    now: Now,
) -> Result<(), Refusal> {
    let Some(asked) = draft
        .board()
        .approvals
        .get(&id)
        .cloned()
        .filter(|asked| asked.has_unread_answer())
    else {
        return Ok(());
    };
    let Some(decision) = &asked.decision else {
        return Ok(());
    };
    let answer = decision.answer.clone();
    let Some(task) = draft.board().tasks.get(&asked.task).cloned() else {
        return Ok(());
    };
    let attempt = task
        .attempt
        .and_then(|id| draft.board().attempts.get(&id))
        .cloned();
    if let Some(attempt) = attempt.filter(|attempt| attempt.stopping.is_none()) {
        // Send the answer as a prompt, unless the agent gets it in another way. An agent that waits
        // in the middle of a turn fetches the answer with Regatta's tool `ask`. An agent whose
        // program accepts no further prompts gets the answer when it reports that it has finished.
        if attempt.accepts_prompts() && (asked.is_kept_for_task || !attempt.session.in_turn) {
            send_unread_answers(draft, &attempt);
        }
        return Ok(());
    }
    match task.status {
        TaskStatus::InReview if asked.answer_confirms_work(&answer) => {
            draft.record(Event::ApprovalHeard(ApprovalHeard { approval: id }));
            release_finished_work(draft, &task, by, now)
        }
        TaskStatus::Landing if asked.answer_confirms_work(&answer) => {
            draft.record(Event::ApprovalHeard(ApprovalHeard { approval: id }));
            Ok(())
        }
        TaskStatus::InReview | TaskStatus::Landing => {
            draft.record(Event::ApprovalHeard(ApprovalHeard { approval: id }));
            if landing::revise(
                draft,
                task.id,
                agent_texts::answer_to_question(&asked, &answer),
            )
            .is_err()
            {
                let text = format!(
                    "{id} was answered while the work was landing: {}",
                    answer.phrase()
                );
                task::warn(draft, task.id, text);
            }
            Ok(())
        }
        _ if task.purpose == Purpose::Lead => {
            draft.record(Event::ApprovalHeard(ApprovalHeard { approval: id }));
            if let Some(mission) = task.mission {
                lead::add_news(
                    draft,
                    mission,
                    &agent_texts::answer_to_question(&asked, &answer).replace('\n', " "),
                    true,
                );
            }
            Ok(())
        }
        _ => {
            leave_unread_answers(draft, task.id);
            Ok(())
        }
    }
}

/// Sends finished work that waited for answers to its review or to the landing queue, if no
/// question is open any more.
fn release_finished_work(
    draft: &mut Draft,
    task: &Task,
    by: &Actor,
    now: Now,
) -> Result<(), Refusal> {
    let (None, Some(submission)) = (open_question(draft.board(), task.id), &task.submission) else {
        return Ok(());
    };
    // No answer can move this work out of review, because the work contains changes that Regatta
    // never lands.
    if landing::guard::never_lands_reason(&submission.changed, &submission.special).is_some() {
        return Ok(());
    }
    if let Some(reason) = landing::person_needed_reason(draft.board(), task, submission) {
        task::change_review_reason(draft, task, submission.clone(), reason);
        return landing::begin_review(draft, task, now);
    }
    // While another attempt holds a claim on the files of this work, the work stays in review, and
    // a person must land it later.
    if !landing::is_free_to_land(draft, task, now) {
        let reason = format!(
            "the question is answered, but somebody else holds the files: regatta land {}",
            task.id
        );
        task::change_review_reason(draft, task, submission.clone(), reason);
        return Ok(());
    }
    landing::land(draft, task.id, false, by, now).map(|_| ())
}

/// Returns the open question that keeps a task's finished work in review, or `None` if the work is
/// not in review or has no open question.
pub fn question_blocking_work<'a>(board: &'a Board, task: &Task) -> Option<&'a Approval> {
    if task.status == TaskStatus::InReview {
        open_question(board, task.id)
    } else {
        None
    }
}

/// Adds a warning to the task for each of its unanswered questions: the work was accepted although
/// nobody has answered the question.
pub(crate) fn warn_unanswered(draft: &mut Draft, task: TaskId) {
    let open: Vec<String> = open_questions(draft.board(), task)
        .map(|asked| {
            let assumed = asked
                .assumed
                .as_ref()
                .map_or(String::new(), |text| format!("; the agent assumed: {text}"));
            format!(
                "nobody answered {} ({}){assumed}",
                asked.id,
                asked.subject()
            )
        })
        .collect();
    for text in open {
        task::warn(draft, task, text);
    }
}

/// The decision about finished work, given the questions of its task: continue to review or
/// landing, wait, or go back to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuestionGate {
    /// The work may continue: no question is open, or the project lets work land on an assumption.
    Pass,
    /// The work must wait for an answer. Contains the reason, as a text for people.
    Wait(String),
    /// The question was answered, but the agent has not read the answer. The work goes back to the
    /// agent with this text.
    ReturnWork(String),
}

/// Decides whether a task's finished work may go on to its review or landing, or must first wait
/// for the answer to one of the task's questions.
pub(crate) fn question_gate(board: &Board, task: &Task) -> QuestionGate {
    if !keeps_questions(board, task.id) {
        return QuestionGate::Pass;
    }
    if let Some((asked, answer)) = unread_answers(board, task.id)
        .into_iter()
        .find(|(asked, answer)| !asked.answer_confirms_work(answer))
    {
        return QuestionGate::ReturnWork(agent_texts::answer_to_question(&asked, &answer));
    }
    let policy = board
        .projects
        .get(&task.project)
        .map(|project| project.settings.landing.unanswered)
        .unwrap_or_default();
    let blocks_work =
        |asked: &&Approval| asked.assumed.is_none() || policy == UnansweredPolicy::Wait;
    let blocking = open_questions(board, task.id).find(blocks_work);
    let Some(question) = blocking else {
        return QuestionGate::Pass;
    };
    let assumption = question
        .assumed
        .as_ref()
        .map_or(String::new(), |text| format!("; the agent assumed: {text}"));
    QuestionGate::Wait(format!(
        "the work waits for the answer to {}{assumption}",
        question.id
    ))
}
