//! The command `queue`, which shows, holds and releases the landing queue, in which finished work
//! waits to be merged into the trunk.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use regatta_api::view::{BatchView, LandingView, QueueView};
use regatta_api::{call, input};
use regatta_core::display::DisplayState;
use regatta_core::landing::remote_sync::Unpushed;

use crate::client::CallReply;
use crate::commands::land::time_left_text;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandResult, first_line, format_age, format_table, state_glyph, usage_error,
};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    ("queue", &["regatta queue", "regatta queue --all"]),
    (
        "queue hold",
        &["regatta queue hold --because 'releasing by hand'"],
    ),
    ("queue release", &["regatta queue release"]),
    ("queue accept", &["regatta queue accept"]),
];

#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    pub(crate) command: Option<QueueCommand>,
    /// Show the merge status of every branch: merged or not, its conflicts, and the number of times
    /// that an agent had to fix them
    #[arg(long)]
    pub(crate) all: bool,
}

/// The subcommands of `regatta queue`. Without a subcommand, the queue is shown.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Hold the queue: running checks finish, but no new check starts and nothing lands
    Hold {
        /// Reason to show to the people whose work waits
        #[arg(long, value_name = "REASON", default_value = "")]
        because: String,
        /// Names are not accepted, because the command holds the whole queue and not one task
        #[arg(hide = true)]
        unexpected: Vec<String>,
    },
    /// Release the queue, so that work lands again
    Release,
    /// Accept the present trunk, although it differs from the commits that Regatta landed
    Accept,
}

/// Runs `regatta queue`.
pub(crate) fn queue(app: &CommandContext, args: QueueArgs) -> CommandResult {
    if let Some(QueueCommand::Hold { unexpected, .. }) = &args.command
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
    match args.command {
        Some(QueueCommand::Hold { because, .. }) => {
            let request = input::QueueHold {
                project,
                reason: because,
            };
            let reply = client.call(call::QueueHold(request))?;
            app.output.print_answer(
                "queue",
                &reply.data,
                &["regatta queue release".into()],
                |_| {
                    "the queue is held: running trials finish, and nothing new starts or lands\n"
                        .into()
                },
            )
        }
        Some(QueueCommand::Accept) => {
            let reply = client.call(call::QueueAccept(input::ProjectFilter { project }))?;
            app.output
                .print_answer("queue", &reply.data, &["regatta queue".into()], |_| {
                    "the trunk is accepted as it is\n".into()
                })
        }
        Some(QueueCommand::Release) => {
            let reply = client.call(call::QueueRelease(input::ProjectFilter { project }))?;
            app.output
                .print_answer("queue", &reply.data, &["regatta queue".into()], |_| {
                    "the queue is released\n".into()
                })
        }
        None => {
            let reply: CallReply<Vec<QueueView>> =
                client.call(call::Queue(input::ProjectFilter { project }))?;
            let first =
                |of: fn(&QueueView) -> &Vec<LandingView>| reply.data.iter().flat_map(of).next();
            let out = reply
                .data
                .iter()
                .flat_map(|queue| &queue.recent)
                .find(|landing| landing.at == DisplayState::Failed);
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
            app.output.print_answer("queue", &reply.data, &next, |out| {
                let text: String = reply
                    .data
                    .iter()
                    .map(|queue| {
                        if args.all {
                            draw_merges(queue)
                        } else {
                            draw_queue(queue, out.is_unicode)
                        }
                    })
                    .collect();
                if reply.data.is_empty() {
                    "no project yet\n".into()
                } else {
                    text
                }
            })
        }
    }
}

/// Draws a project's landing queue, and the work that landed or left the queue last.
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
    let waiting = queue.queue.iter().enumerate().map(|(nth, landing)| {
        let position = landing
            .position
            .map_or(String::new(), |landing| landing.to_string());
        let ahead = nth
            .checked_sub(1)
            .map(|at| format!("after {}", queue.queue[at].task));
        let detail = Some(first_line(&landing.detail))
            .filter(|text| !text.is_empty())
            .or(ahead)
            .unwrap_or_default();
        let when = time_left_text(queue, landing).map_or(String::new(), |text| format!("{text}  "));
        vec![
            format!("{} {position}", signs.get(nth).unwrap_or(&" ")),
            landing.task.to_string(),
            landing.state.clone(),
            first_line(&landing.subject),
            format_age(landing.queued_wall),
            format!("{when}{detail}"),
        ]
    });
    let recent = queue.recent.iter().take(10).map(|landing| {
        let what = landing.commit.as_ref().map_or_else(
            || first_line(&landing.detail),
            |id| id.as_str()[..10].to_owned(),
        );
        vec![
            state_glyph(landing.at, unicode).into(),
            landing.task.to_string(),
            landing.state.clone(),
            first_line(&landing.subject),
            String::new(),
            what,
        ]
    });
    text + &format_table(&waiting.chain(recent).collect::<Vec<_>>())
}

/// Draws the table of `queue --all`: the merge status of each branch, by its latest landing.
fn draw_merges(queue: &QueueView) -> String {
    let mut drawn = BTreeSet::new();
    let latest = queue
        .queue
        .iter()
        .chain(&queue.recent)
        .filter(|landing| drawn.insert(landing.task));
    let rows = latest.map(|landing| MergeRow {
        branch: landing.branch.clone(),
        status: if landing.at == DisplayState::Landed {
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

/// One row of the merge status table, which describes one branch with finished work.
pub(crate) struct MergeRow {
    pub(crate) branch: String,
    pub(crate) status: String,
    pub(crate) conflicts: usize,
    /// The number of conflicts that were resolved by file ownership: Regatta used the version of
    /// the task that owns the file.
    pub(crate) settled_by_ownership: usize,
    pub(crate) fixups: u32,
}

impl MergeRow {
    /// Returns the number of conflicting files, and how many were resolved by file ownership
    /// (`auto`) or by an agent (`fixup`).
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
    pub(crate) fn draw_table(merges: &[MergeRow]) -> String {
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

/// Returns a warning if landed commits could not be pushed to the remote, or an empty text.
pub(crate) fn unpushed_text(unpushed: Option<&Unpushed>) -> String {
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

/// Returns a warning line with `sentence`, which describes how the trunk differs from the commits
/// that Regatta landed. Returns an empty text if there is no difference.
pub(crate) fn trunk_difference_text(sentence: Option<&str>) -> String {
    sentence.map_or_else(String::new, |sentence| {
        format!("! {}\n", first_line(sentence))
    })
}

/// Returns the sign before each landing of a queue. Brackets connect the landings of one batch
/// (landings that are checked together); a cross marks a failed batch.
pub(crate) fn batch_signs(queue: &QueueView, unicode: bool) -> Vec<&'static str> {
    let sign = |batch: &BatchView, nth: usize| match (batch.cars.len(), nth + 1, unicode) {
        _ if batch.failed.is_some() => state_glyph(DisplayState::Failed, unicode),
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
