//! Handles files that a lead changed itself. A lead should only plan and report, so its own changes
//! become a separate task of its mission.

use crate::agent_texts;
use crate::attempt::{self, Attempt};
use crate::board::Draft;
use crate::ids::{Now, TaskId};
use crate::landing;
use crate::pattern::PathPattern;
use crate::refusal::Refusal;
use crate::task::{self, AddTask, Expects, Submission, Task};

use super::{Lead, add_news, lead_of, post_about_mission, record_lead};

/// Adds a task for the files that a lead's own turn changed, and submits the changes to the landing
/// queue. Returns the task, or `None` if the lead changed nothing. A lead's changes cannot
/// reach the trunk in any other way.
pub(crate) fn adopt_edits(
    draft: &mut Draft,
    task: &Task,
    attempt: &Attempt,
    work: Submission,
    now: Now,
) -> Result<Option<TaskId>, Refusal> {
    let found = task
        .mission
        .and_then(|mission| lead_of(draft.board(), mission));
    let Some((mission, lead)) = found.filter(|(_, lead)| lead.task == Some(task.id)) else {
        return Ok(None);
    };
    if work.changed.is_empty() {
        return Ok(None);
    }
    let names: Vec<&str> = work.changed.iter().map(String::as_str).collect();
    let names = attempt::first_few(&names);
    let text = agent_texts::lead_edits_task(attempt, mission.id, &work.commit, &names);
    let request = AddTask {
        // A file name that cannot be written as a pattern is left out of the task's list of files,
        // so the task does not claim that file.
        files: work
            .changed
            .iter()
            .filter_map(|path| PathPattern::new(path).ok())
            .collect(),
        expects: Expects::Changes,
        ..AddTask::new_report(mission.project.clone(), text)
    };
    let id = task::add(draft, request, Some((mission.id, Default::default())), now)?;
    if let Some((_, lead)) = lead_of(draft.board(), mission.id) {
        record_lead(
            draft,
            mission.id,
            Lead {
                children: lead.children + 1,
                ..lead
            },
            None,
            None,
        );
    }
    let queued = landing::submit_edits(draft, id, attempt, work, now)?;
    let outcome = if queued {
        "is in the landing queue"
    } else {
        "waits for a person"
    };
    let text = agent_texts::lead_edits_news(id, &names, outcome);
    add_news(draft, mission.id, &text, false);
    let announcement = format!(
        "{} changed {names} itself; that is {id} now and {outcome}",
        attempt.agent
    );
    post_about_mission(draft, &mission, &lead, "mission:edited", announcement, now)?;
    Ok(Some(id))
}
