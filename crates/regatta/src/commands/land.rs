//! The commands `land`, `queue`, `drop` and `undo`.

use std::collections::BTreeSet;

use regatta_api::view::{BatchView, LandingView, QueueView, TaskView};
use regatta_api::{Call, input};
use regatta_core::ids::{ClaimId, TaskId};
use regatta_core::landing::remote_sync::Unpushed;
use regatta_core::scope_escape;

use super::CommandContext;
use crate::args::QueueCommand;
use crate::client::{CallReply, Client};
use crate::output::{
    CommandError, CommandResult, first_line, format_age, format_table, short_duration, usage_error,
};
use crate::run_progress;

/// Runs `regatta land`.
pub(super) fn land(app: &CommandContext, id: TaskId, wait: bool, first: bool) -> CommandResult {
    let client = app.client()?;
    let got: CallReply<TaskView> = client.call(&Call::Land(input::LandInput {
        id: id.to_string(),
        first,
        claim: None,
        token: None,
    }))?;
    let last = if wait {
        run_progress::wait_until_landed(&client, id, got.revision, app.timeout())?
    } else {
        Some(got.data)
    };
    print_landing_state(app, "land", last, wait)
}

/// Lands a workspace under a claim on the trunk that the caller holds.
pub(super) fn land_now(
    app: &CommandContext,
    workspace: String,
    claim: Option<ClaimId>,
    token: Option<u64>,
) -> CommandResult {
    let client = app.client()?;
    // The daemon may run in another directory, so a path is made absolute.
    let there = std::path::Path::new(&workspace)
        .canonicalize()
        .ok()
        .filter(|path| path.is_dir());
    let id = there.map_or(workspace, |path| path.to_string_lossy().into_owned());
    let got: CallReply<TaskView> = client.call(&Call::Land(input::LandInput {
        id,
        first: true,
        claim,
        token,
    }))?;
    let last =
        run_progress::wait_until_landed(&client, got.data.task.id, got.revision, app.timeout())?;
    print_landing_state(app, "land", last, true)
}

/// Prints the state of a landing. The exit code tells scripts whether the task has landed.
fn print_landing_state(
    app: &CommandContext,
    word: &str,
    task: Option<TaskView>,
    waited: bool,
) -> CommandResult {
    let Some(task) = task else {
        return Err(CommandError::Exit(124));
    };
    let id = task.task.id;
    let project = Some(task.task.project.clone());
    let queues: CallReply<Vec<QueueView>> =
        app.call(&Call::Queue(input::ProjectFilter { project }))?;
    let next = match (task.word.as_str(), waited) {
        ("landed", _) => vec![format!("regatta undo {id}"), "regatta status".to_owned()],
        ("landing", false) => vec![
            "regatta queue".to_owned(),
            format!("regatta land {id} --wait"),
        ],
        ("review", _) => vec![format!("regatta diff {id}"), format!("regatta land {id}")],
        _ => vec![format!("regatta why {id}")],
    };
    app.output
        .print_answer(word, &task, &next, |out| match &task.task.landed {
            Some(commit)
                if task
                    .task
                    .submission
                    .as_ref()
                    .is_some_and(|work| work.undoes.is_some()) =>
            {
                let undone = task.task.submission.as_ref().and_then(|work| work.undoes);
                let undone = undone.map_or(String::new(), |undone| undone.to_string());
                let short = &commit.as_str()[..10];
                format!(
                    "reverted {undone}: {id} landed the revert as {short} · regatta undo {id} \
                restores {undone}\n"
                )
            }
            Some(commit) => {
                let trunk = queues
                    .data
                    .first()
                    .map_or("the trunk", |queue| queue.trunk.as_str());
                let short = &commit.as_str()[..10];
                let by = task.task.submission.as_ref().map(|work| work.attempt);
                let note =
                    by.and_then(|attempt| scope_escape::files_left_out_note(&task.task, attempt));
                let note = note.map_or(String::new(), |note| format!("{}\n", first_line(&note)));
                format!(
                    "landed {id} as {short} on {trunk} · to add a revert: regatta undo \
                {id}\n{note}"
                )
            }
            None => {
                let queued = queues
                    .data
                    .iter()
                    .find_map(|queue| queue_position_text(queue, id));
                let reason = || match task.waits.first() {
                    Some(wait_reason) => first_line(&wait_reason.text),
                    None => first_line(task.task.reason.as_deref().unwrap_or_default()),
                };
                queued.unwrap_or_else(|| {
                    format!("{id} {}  {}\n", out.format_state(&task.word), reason())
                })
            }
        })?;
    match task.word.as_str() {
        "landed" | "done" | "landing"
            if !waited || task.task.landed.is_some() || task.word == "done" =>
        {
            Ok(())
        }
        "needs you" | "review" | "landing" => Err(CommandError::Exit(3)),
        _ if !waited => Ok(()),
        _ => Err(CommandError::Exit(1)),
    }
}

/// Describes a task's place in the queue: its position, the landing before it, and the estimated
/// time until it lands.
fn queue_position_text(queue: &QueueView, id: TaskId) -> Option<String> {
    let at = queue.queue.iter().position(|landing| landing.task == id)?;
    let landing = &queue.queue[at];
    let ahead = at.checked_sub(1).map(|at| &queue.queue[at]);
    let ahead = ahead.map_or(String::new(), |landing| {
        format!(", after {} ({})", landing.task, landing.state)
    });
    let detail = if landing.detail.is_empty() {
        String::new()
    } else {
        format!(" · {}", first_line(&landing.detail))
    };
    let when = time_left_text(queue, landing).map_or(String::new(), |s| format!(" · {s}"));
    Some(format!(
        "{} {id} at {} of {}{ahead}{detail}{when}\n",
        landing.state,
        at + 1,
        queue.queue.len()
    ))
}

/// Estimates when a landing will be done, from the usual time. Returns `None` if that time is
/// unknown or already over.
fn time_left_text(queue: &QueueView, landing: &LandingView) -> Option<String> {
    let usual = queue
        .usual_ms
        .filter(|_| queue.held.is_none() && landing.state != "held")?;
    let due = landing.queued_wall + usual;
    let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    (due > now).then(|| format!("lands in about {}", short_duration((due - now).max(1_000))))
}

/// Runs `regatta queue`.
pub(super) fn queue(app: &CommandContext, word: Option<QueueCommand>, all: bool) -> CommandResult {
    if let Some(QueueCommand::Hold { unexpected, .. }) = &word
        && let Some(first) = unexpected.first()
    {
        return Err(usage_error(
            format!(
                "queue hold takes no name, because it holds the whole queue; {first:?} was not \
                expected"
            ),
            "give the reason with --because 'REASON'; to hold one task: regatta pause T5",
        ));
    }
    let client = app.client()?;
    let project = app.project(&client)?;
    match word {
        Some(QueueCommand::Hold { because, .. }) => {
            let ask = input::QueueHold {
                project,
                reason: because,
            };
            let got: CallReply<serde_json::Value> = client.call(&Call::QueueHold(ask))?;
            app.output.print_answer(
                "queue",
                &got.data,
                &["regatta queue release".into()],
                |_| {
                    "the queue is held: running trials finish, and nothing new starts or lands\n"
                        .into()
                },
            )
        }
        Some(QueueCommand::Accept) => {
            let got: CallReply<serde_json::Value> =
                client.call(&Call::QueueAccept(input::ProjectFilter { project }))?;
            app.output
                .print_answer("queue", &got.data, &["regatta queue".into()], |_| {
                    "the trunk is accepted as it is\n".into()
                })
        }
        Some(QueueCommand::Release) => {
            let got: CallReply<serde_json::Value> =
                client.call(&Call::QueueRelease(input::ProjectFilter { project }))?;
            app.output
                .print_answer("queue", &got.data, &["regatta queue".into()], |_| {
                    "the queue is released\n".into()
                })
        }
        None => {
            let got: CallReply<Vec<QueueView>> =
                client.call(&Call::Queue(input::ProjectFilter { project }))?;
            let first =
                |of: fn(&QueueView) -> &Vec<LandingView>| got.data.iter().flat_map(of).next();
            let out = got
                .data
                .iter()
                .flat_map(|queue| &queue.recent)
                .find(|landing| landing.state == "out");
            let next: Vec<String> = match (
                first(|queue| &queue.queue),
                out,
                first(|queue| &queue.recent),
            ) {
                (Some(landing), ..) => vec![
                    format!("regatta why {}", landing.task),
                    "regatta watch".into(),
                ],
                (None, Some(landing), _) => {
                    vec![
                        format!("regatta why {}", landing.task),
                        "regatta status".into(),
                    ]
                }
                (None, None, Some(landing)) => {
                    vec![
                        format!("regatta diff {}", landing.task),
                        "regatta undo".into(),
                    ]
                }
                (None, None, None) => vec!["regatta status".into()],
            };
            app.output.print_answer("queue", &got.data, &next, |out| {
                let text: String = got
                    .data
                    .iter()
                    .map(|queue| {
                        if all {
                            draw_merges(queue)
                        } else {
                            draw_queue(queue, out.is_unicode)
                        }
                    })
                    .collect();
                if got.data.is_empty() {
                    "no project yet\n".into()
                } else {
                    text
                }
            })
        }
    }
}

/// Draws the merge status of a project's branches, each branch once with its latest landing.
fn draw_merges(queue: &QueueView) -> String {
    let mut seen = BTreeSet::new();
    let latest = queue
        .queue
        .iter()
        .chain(&queue.recent)
        .filter(|landing| seen.insert(landing.task));
    let rows = latest.map(|landing| MergeRow {
        branch: landing.branch.clone(),
        status: if landing.state == "landed" {
            "merged".into()
        } else {
            landing.state.clone()
        },
        conflicts: landing.conflicts,
        settled_by_ownership: landing.settled,
        fixups: landing.fixups,
    });
    format!(
        "{} → {}\n{}",
        queue.project,
        queue.trunk,
        MergeRow::draw_table(&rows.collect::<Vec<_>>())
    )
}

/// One branch of the merge status table.
pub(super) struct MergeRow {
    pub(super) branch: String,
    pub(super) status: String,
    pub(super) conflicts: usize,
    /// The number of conflicts that were resolved by file ownership.
    pub(super) settled_by_ownership: usize,
    pub(super) fixups: u32,
}

impl MergeRow {
    /// Returns the number of conflicting files, and how they were resolved: by ownership (auto) or
    /// by a fix-up.
    fn conflict_column(&self) -> String {
        let mended = if self.fixups > 0 {
            self.conflicts - self.settled_by_ownership.min(self.conflicts)
        } else {
            0
        };
        match (self.conflicts, self.settled_by_ownership, mended) {
            (0, ..) => "0".to_owned(),
            (all, 0, 0) => all.to_string(),
            (all, 0, _) => format!("{all} (fixup)"),
            (all, _, 0) => format!("{all} (auto)"),
            (all, settled, mended) => format!("{all} ({settled} auto, {mended} fixup)"),
        }
    }

    /// Draws the merge status table.
    pub(super) fn draw_table(merges: &[MergeRow]) -> String {
        let head = ["BRANCH", "STATUS", "CONFLICTS", "FIX-UPS"]
            .map(str::to_owned)
            .to_vec();
        let rows = merges.iter().map(|merge| {
            vec![
                first_line(&merge.branch),
                first_line(&merge.status),
                merge.conflict_column(),
                merge.fixups.to_string(),
            ]
        });
        format_table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
    }
}

/// Returns a line about a commit that could not be pushed.
pub(super) fn unpushed_text(unpushed: Option<&Unpushed>) -> String {
    let Some(unpushed) = unpushed else {
        return String::new();
    };
    let commit = &unpushed.commit.as_str()[..10];
    format!(
        "! {commit} is not on {} for {}: {}\n",
        first_line(&unpushed.remote),
        format_age(unpushed.since_unix_ms),
        first_line(&unpushed.reason)
    )
}

/// Returns a line that tells how the trunk differs from the board.
pub(super) fn trunk_difference_text(sentence: Option<&str>) -> String {
    sentence.map_or_else(String::new, |sentence| {
        format!("! {}\n", first_line(sentence))
    })
}

/// Returns the sign before each landing of a queue. Brackets connect the landings of one batch; a
/// cross marks a failed batch.
pub(crate) fn batch_signs(queue: &QueueView, unicode: bool) -> Vec<&'static str> {
    let sign = |batch: &BatchView, nth: usize| match (batch.cars.len(), nth + 1, unicode) {
        _ if batch.failed.is_some() => {
            if unicode {
                "✕"
            } else {
                "x"
            }
        }
        (0 | 1, _, _) => " ",
        (_, 1, true) => "┌",
        (_, 1, false) => "/",
        (all, last, true) if last == all => "└",
        (all, last, false) if last == all => "\\",
        (_, _, true) => "│",
        (_, _, false) => "|",
    };
    queue
        .batches
        .iter()
        .flat_map(|batch| (0..batch.cars.len()).map(move |nth| sign(batch, nth)))
        .collect()
}

/// Draws a project's queue and its latest landings.
fn draw_queue(queue: &QueueView, unicode: bool) -> String {
    let slots = if queue.slots == 1 {
        "one tree at a time".into()
    } else {
        format!("up to {} trees at once", queue.slots)
    };
    let tip = queue
        .recent
        .iter()
        .find_map(|landing| landing.commit.as_ref());
    let tip = tip.map_or(String::new(), |id| format!(" {}", &id.as_str()[..10]));
    let mut text = format!("{} → {}{tip} · {slots}\n", queue.project, queue.trunk);
    if let Some(held) = &queue.held {
        text += &format!(
            "held by {}: {}\n",
            first_line(&held.by),
            first_line(&held.reason)
        );
    }
    text += &unpushed_text(queue.unpushed.as_ref());
    text += &trunk_difference_text(queue.trunk_differs.as_deref());
    if queue.queue.is_empty() {
        text += "the queue is empty\n";
    }
    let signs = batch_signs(queue, unicode);
    let waiting = queue.queue.iter().enumerate().map(|(nth, car)| {
        let place = car.position.map_or(String::new(), |car| car.to_string());
        let ahead = nth
            .checked_sub(1)
            .map(|at| format!("after {}", queue.queue[at].task));
        let detail = Some(first_line(&car.detail))
            .filter(|s| !s.is_empty())
            .or(ahead)
            .unwrap_or_default();
        let when = time_left_text(queue, car).map_or(String::new(), |s| format!("{s}  "));
        vec![
            format!("{} {place}", signs.get(nth).unwrap_or(&" ")),
            car.task.to_string(),
            car.state.clone(),
            first_line(&car.subject),
            format_age(car.queued_wall),
            format!("{when}{detail}"),
        ]
    });
    let recent = queue.recent.iter().take(10).map(|landing| {
        let what = landing.commit.as_ref().map_or_else(
            || first_line(&landing.detail),
            |id| id.as_str()[..10].to_owned(),
        );
        vec![
            if landing.state == "landed" {
                "✓".into()
            } else {
                "✕".into()
            },
            landing.task.to_string(),
            landing.state.clone(),
            first_line(&landing.subject),
            String::new(),
            what,
        ]
    });
    text + &format_table(&waiting.chain(recent).collect::<Vec<_>>())
}

/// Runs `regatta drop`.
pub(super) fn drop_work(app: &CommandContext, id: TaskId, because: String) -> CommandResult {
    let got: CallReply<TaskView> = app.call(&Call::Drop(input::IdWithText {
        id: id.to_string(),
        text: because,
    }))?;
    let kept = got
        .data
        .task
        .submission
        .as_ref()
        .map(|submission| submission.commit.as_str()[..10].to_owned());
    app.output.print_answer(
        "drop",
        &got.data,
        &[format!("regatta retry {id}"), "regatta status".into()],
        |_| match kept {
            Some(kept) => format!("dropped {id}; its work is kept for thirty days as {kept}\n"),
            None => format!("dropped {id}; it is no longer in the inbox\n"),
        },
    )
}

/// Reverts a landed task. Without a task, lists the work that can be reverted.
pub(super) fn undo(app: &CommandContext, id: Option<&str>, wait: bool) -> CommandResult {
    let client = app.client()?;
    let Some(id) = id else {
        return list_undoable(app, &client);
    };
    let got: CallReply<TaskView> =
        client.call(&Call::Undo(input::IdInput { id: id.to_owned() }))?;
    let undoing = got.data.task.id;
    if !wait {
        app.output
            .print_note(&format!("{undoing} reverts {id} through the same queue"));
    }
    let last = if wait {
        run_progress::wait_until_landed(&client, undoing, got.revision, app.timeout())?
    } else {
        Some(got.data)
    };
    print_landing_state(app, "undo", last, wait)
}

/// Lists the landed work that can be reverted, the latest first.
fn list_undoable(app: &CommandContext, client: &Client) -> CommandResult {
    let project = app.project(client)?;
    let got: CallReply<Vec<QueueView>> =
        client.call(&Call::Queue(input::ProjectFilter { project }))?;
    let landed: Vec<&LandingView> = got
        .data
        .iter()
        .flat_map(|queue| &queue.recent)
        .filter(|landing| landing.commit.is_some() && landing.taken_back_by.is_none())
        .collect();
    let next = landed.first().map_or_else(
        || "regatta status".to_owned(),
        |landing| format!("regatta undo {}", landing.task),
    );
    app.output.print_answer("undo.list", &landed, &[next], |_| {
        if landed.is_empty() {
            return "nothing has landed yet\n".into();
        }
        let row = |landing: &&LandingView| {
            let commit = landing
                .commit
                .as_ref()
                .map_or(String::new(), |id| id.as_str()[..10].to_owned());
            vec![
                landing.task.to_string(),
                commit,
                first_line(&landing.subject),
                landing.agent.to_string(),
            ]
        };
        format_table(&landed.iter().map(row).collect::<Vec<_>>())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_merge_table_says_how_conflicts_were_settled() {
        for (conflicts, settled, fixups, expected) in [
            (0, 0, 0, "0"),
            (0, 0, 1, "0"),
            (1, 0, 0, "1"),
            (1, 1, 0, "1 (auto)"),
            (1, 0, 1, "1 (fixup)"),
            (3, 1, 1, "3 (1 auto, 2 fixup)"),
        ] {
            let merge = MergeRow {
                branch: String::new(),
                status: String::new(),
                conflicts,
                settled_by_ownership: settled,
                fixups,
            };
            assert_eq!(merge.conflict_column(), expected);
        }
    }
}
