//! Reviews by agents: with the setting `review = "agent"`, another agent must approve finished work
//! before it lands.
//!
//! A review is a task of its own that expects a report: approve, or revise with the reason.
//! Meanwhile the reviewed work waits, and a person may also approve it or send it back. Work that
//! only a person may approve is not given to an agent.

use std::sync::Arc;

use crate::agent_texts;
use crate::attempt::WorkResult;
use crate::board::{Board, Draft};
use crate::command::Actor;
use crate::ids::{AgentName, CommitId, Now, TaskId};
use crate::project::ReviewPolicy;
use crate::refusal::Refusal;
use crate::task::{self, AddTask, AssignMode, EditTask, Purpose, Task, TaskStatus};

use super::queue::regatta_agent_name;
use super::{announce, operator};

/// Returns the agent that should review `author`'s work on a task: the reviewer of the settings, or
/// else another agent of the mission. `None` if the project has no reviews by agents or no other
/// agent is available.
pub(super) fn reviewer(
    board: &Board,
    task: &Task,
    author: Option<&AgentName>,
) -> Option<AgentName> {
    let settings = &board.projects.get(&task.project)?.settings.landing;
    if settings.review != ReviewPolicy::Agent {
        return None;
    }
    let may_review =
        |agent: &&AgentName| Some(*agent) != author && board.agents.contains_key(*agent);
    if let Some(reviewer) = settings.reviewer.iter().find(may_review) {
        return Some(reviewer.clone());
    }
    let mission = board.missions.get(&task.mission?)?;
    mission.agents.iter().find(may_review).cloned()
}

/// Adds the review task for a task's finished work, or updates an existing review task that has not
/// started. `finished` is a review task that is ending and therefore does not count as existing.
pub(super) fn begin(
    draft: &mut Draft,
    id: TaskId,
    author: &AgentName,
    finished: Option<TaskId>,
    now: Now,
) -> Result<(), Refusal> {
    let reviewed = task::find(draft.board(), id)?;
    let Some(submission) = reviewed.submission.clone() else {
        return Ok(());
    };
    if !operator::guarded_parts(draft.board(), &reviewed, &submission).is_empty() {
        return Ok(());
    }
    let Some(reviewer) = reviewer(draft.board(), &reviewed, Some(author)) else {
        return Ok(());
    };
    let text = agent_texts::review_task(&reviewed, &submission, author);
    let is_open = |review: &&Arc<Task>| {
        let reviews_this = matches!(review.purpose, Purpose::Review { task, .. } if task == id);
        reviews_this && Some(review.id) != finished
    };
    let purpose = Purpose::Review {
        task: id,
        commit: Some(submission.commit),
    };
    if let Some(open_review) = draft.board().tasks.values().find(is_open).cloned() {
        // The review has not started, so it gets the newer work. A review that is in progress
        // examines the older work, so the newer work is reviewed after it ends.
        if open_review.status.is_waiting() {
            task::edit(
                draft,
                open_review.id,
                EditTask {
                    description: Some(text.description),
                    ..EditTask::default()
                },
            )?;
            let resume = open_review.resume.clone();
            task::set_purpose(draft, open_review.id, purpose, resume)?;
        }
        return Ok(());
    }
    let request = AddTask {
        priority: reviewed.priority,
        ..AddTask::new_report(reviewed.project.clone(), text)
    };
    let review = task::add(draft, request, None, now)?;
    task::set_purpose(draft, review, purpose, None)?;
    // The review joins the mission only if the reviewer is one of the mission's agents. An agent
    // outside the mission polls for its tasks itself.
    let mission = reviewed.mission.filter(|id| {
        draft
            .board()
            .missions
            .get(id)
            .is_some_and(|mission| mission.agents.contains(&reviewer))
    });
    if let Some(mission) = mission {
        let step = (mission, reviewed.step());
        task::adopt(draft, review, step, &reviewed.project)?;
    }
    task::assign(draft, review, Some(reviewer), AssignMode::Queue, now)
}

/// Applies the answer of a finished review of task `id`: lands the reviewed work or sends it back.
/// If newer work has been submitted since, the answer does not count and a new review begins. The
/// inner `Err` is the reason why the answer cannot be understood or why `by` may not review the
/// task.
pub(crate) fn finish(
    draft: &mut Draft,
    review: &Task,
    (id, commit): (TaskId, Option<&CommitId>),
    (by, result): (&AgentName, Option<&WorkResult>),
    now: Now,
) -> Result<Result<(), String>, Refusal> {
    let detail = result
        .map(|result| result.detail.as_str())
        .filter(|detail| !detail.trim().is_empty());
    let answer = detail.or(review.output.as_deref()).unwrap_or_default();
    let verdict = match parse_verdict(answer) {
        Ok(verdict) => verdict,
        Err(reason) => return Ok(Err(reason)),
    };
    // If the reviewed task is no longer in review, a person has already decided or the work was
    // withdrawn. The answer then has no effect.
    let Some(reviewed) = draft
        .board()
        .tasks
        .get(&id)
        .filter(|task| task.status == TaskStatus::InReview)
        .cloned()
    else {
        return Ok(Ok(()));
    };
    let author = reviewed.agent.clone();
    if author.as_ref() == Some(by) {
        return Ok(Err(format!("{by} made {id} and cannot review it")));
    }
    // An approval counts only for the commit that was reviewed, never for a later one (Q13).
    let latest = reviewed.submission.as_ref().map(|work| &work.commit);
    if commit.is_some() && commit != latest {
        begin(
            draft,
            id,
            &author.unwrap_or_else(regatta_agent_name),
            Some(review.id),
            now,
        )?;
        return Ok(Ok(()));
    }
    match verdict {
        Some(changes) => operator::revise(
            draft,
            id,
            format!("{by} reviewed it and asks for changes: {changes}"),
        )?,
        None => match operator::approve(draft, &reviewed, false, &Actor::Agent(by.clone()), now) {
            Ok(_) => {}
            // The work was approved, but it cannot be queued, for example because somebody else
            // claimed its files during the review. The message tells people how to land it later.
            Err(refusal) => {
                let text = format!(
                    "{by} approved {id}, but it cannot land yet: {}. regatta land {id}",
                    refusal.message()
                );
                announce(draft, &reviewed.project, "coord:review", text, now)?;
            }
        },
    }
    Ok(Ok(()))
}

/// Parses a reviewer's answer, "approve" or "revise: …". Returns the requested changes, or `None`
/// for an approval.
fn parse_verdict(answer: &str) -> Result<Option<String>, String> {
    let answer = answer.trim();
    let lower = answer.to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix("approve") {
        // Accept "approved", "approve." and "approve: well done", but not "approve only if …".
        let rest = rest.strip_prefix('d').unwrap_or(rest);
        if rest.is_empty() || rest.starts_with(['.', ':', '!', ',', '\n']) {
            return Ok(None);
        }
    }
    let Some(rest) = lower.strip_prefix("revise") else {
        return Err("the answer must be \"approve\", or \"revise: \" and the changes".into());
    };
    let changes = answer[answer.len() - rest.len()..]
        .trim_start_matches(':')
        .trim();
    if changes.is_empty() {
        return Err("it asks for changes without naming them".into());
    }
    Ok(Some(changes.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_approval_or_rejection_is_read_as_a_review() {
        for approval in [
            "approve",
            " Approved.",
            "APPROVE: good work",
            "approve\nbecause",
        ] {
            assert_eq!(parse_verdict(approval), Ok(None), "{approval}");
        }
        assert_eq!(
            parse_verdict("revise: the Name"),
            Ok(Some("the Name".into()))
        );
        assert_eq!(
            parse_verdict("Revise the name"),
            Ok(Some("the name".into()))
        );
        for unclear in [
            "",
            "revise",
            "revise: ",
            "I approve",
            "approve only if the name changes",
            "looks fine",
        ] {
            assert!(parse_verdict(unclear).is_err(), "{unclear}");
        }
    }
}
