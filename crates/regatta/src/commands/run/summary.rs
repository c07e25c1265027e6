//! Prints the summary at the end of `run --wait`: landed and failed tasks, time, tokens and cost.
//! Also chooses the exit code.

use regatta_api::view::{MissionView, TaskView};
use regatta_api::{call, input};
use regatta_core::budget::format_dollars;
use regatta_core::display::{self, DisplayState};
use regatta_core::ids::MissionId;
use regatta_core::plural;
use regatta_core::schedule::WaitKind;
use serde::Serialize;

use crate::client::{CallReply, Client};
use crate::commands::CommandContext;
use crate::commands::queue::MergeRow;
use crate::output::{CommandError, CommandResult, Output, format_table, short_duration};
use crate::run_progress::{FollowEnd, format_tokens};

/// The summary of a run, which `--json` prints too.
#[derive(Debug, PartialEq, Serialize)]
struct RunSummary {
    tasks: usize,
    landed: usize,
    failed: usize,
    /// The number of tasks that cannot continue without a person.
    escalated: usize,
    waiting: usize,
    /// The milliseconds from the start of the run to its last change.
    wall_ms: u64,
    /// The sum of the working times of all attempts in milliseconds: the time that the work would
    /// have taken one task after the other.
    work_ms: u64,
    tokens: u64,
    /// The cost in millionths of a US dollar; `None` if no task has a known cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    micro_usd: Option<u64>,
    /// The tasks with a ratchet command (a command that must accept the work), divided into tasks
    /// whose work the command has accepted and all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratchet: Option<RatchetSummary>,
}

#[derive(Debug, PartialEq, Serialize)]
struct RatchetSummary {
    ratcheted: Vec<String>,
    not: Vec<String>,
}

#[derive(Serialize)]
struct SummaryAnswer<'a> {
    #[serde(flatten)]
    mission: &'a MissionView,
    summary: &'a RunSummary,
}

impl RunSummary {
    /// Computes the summary of a mission from its tasks.
    fn from_mission(mission: &MissionView, now_unix_ms: u64) -> RunSummary {
        let counts = display::count_each(mission.tasks.iter().map(|task| task.at));
        let count = |state| counts.get(&state).copied().unwrap_or_default();
        let landed = count(DisplayState::Landed);
        let failed = count(DisplayState::Failed);
        let needs_person =
            |task: &&TaskView| matches!(task.at, DisplayState::Needs | DisplayState::Review);
        // Count tasks with an open question (`asks`) too, because an agent may continue its work
        // while its question is open.
        let with_person = mission
            .tasks
            .iter()
            .filter(|task| needs_person(task) || task.asks.is_some())
            .count();
        // A task that waits for a parked provider (a company whose agents get no work at present)
        // needs a person if the rest of the mission has come to rest.
        let is_parked = |task: &&TaskView| {
            // Look only at the first reason for waiting: a task that first waits for another task
            // is not stuck by itself.
            let first = task.waits.first().map(|wait| wait.kind);
            mission.settled && task.at == DisplayState::Waiting && first == Some(WaitKind::Provider)
        };
        let parked = mission.tasks.iter().filter(is_parked).count();
        let escalated = with_person + mission.outlook.held + parked;
        let last_change_unix_ms = mission
            .tasks
            .iter()
            .map(|task| task.task.updated_unix_ms)
            .max()
            .unwrap_or(0);
        let is_over = mission
            .tasks
            .iter()
            .all(|task| task.task.status.is_terminal());
        let sum = |value_of: fn(&TaskView) -> u64| mission.tasks.iter().map(value_of).sum();
        let costs: Vec<u64> = mission
            .tasks
            .iter()
            .filter_map(|task| task.task.spent.usage.micro_usd)
            .collect();
        RunSummary {
            tasks: mission.tasks.len(),
            landed,
            failed,
            escalated,
            waiting: mission
                .tasks
                .len()
                .saturating_sub(landed + failed + escalated),
            wall_ms: duration_ms(
                mission.mission.created_unix_ms,
                last_change_unix_ms,
                (!is_over).then_some(now_unix_ms),
            ),
            work_ms: sum(|task| task.task.spent.wall_ms),
            tokens: sum(|task| task.task.spent.usage.tokens()),
            micro_usd: (!costs.is_empty()).then(|| costs.iter().sum()),
            ratchet: RatchetSummary::from_tasks(&mission.tasks),
        }
    }

    /// Draws the summary as text: the time, the tokens and cost, and the numbers of tasks.
    fn draw(&self, id: MissionId) -> String {
        let mut parts = vec![format!("took {}", format_seconds(self.wall_ms))];
        if self.work_ms > 0 {
            // Do not mention a speed-up below 5 %.
            let gain = self.work_ms as f64 / self.wall_ms.max(1) as f64;
            let speed_up = if gain < 1.05 {
                String::new()
            } else {
                format!(", {gain:.1} times as fast as one by one")
            };
            parts.push(format!(
                "{} of work{speed_up}",
                format_seconds(self.work_ms)
            ));
        }
        if self.tokens > 0 {
            parts.push(format!("{} tokens", format_tokens(self.tokens)));
            parts.push(
                self.micro_usd
                    .map_or("no price reported".into(), |micro_usd| {
                        format_dollars(micro_usd)
                    }),
            );
        }
        let mut text = format!("{}\n", parts.join(" · "));
        let waiting = if self.waiting > 0 {
            format!(", {} waiting", self.waiting)
        } else {
            String::new()
        };
        text += &format!(
            "{id}: {} of {} landed, {} failed, {} {} you{waiting}\n",
            self.landed,
            self.tasks,
            self.failed,
            self.escalated,
            plural::choose(self.escalated, "needs", "need")
        );
        if let Some(ratchet_summary) = &self.ratchet {
            text += &format!(
                "{}/{} beads ratcheted\n",
                ratchet_summary.ratcheted.len(),
                ratchet_summary.ratcheted.len() + ratchet_summary.not.len()
            );
        }
        text
    }
}

impl RatchetSummary {
    /// Lists the tasks with a ratchet command (a command that must accept the work). Work enters
    /// the landing queue only after its ratchet command has succeeded, so submitted or landed work
    /// has passed. Returns `None` if no task has such a command.
    fn from_tasks(tasks: &[TaskView]) -> Option<RatchetSummary> {
        let name = |task: &&TaskView| {
            task.task
                .alias
                .clone()
                .unwrap_or_else(|| task.task.id.to_string())
        };
        let (passed, not): (Vec<&TaskView>, Vec<&TaskView>) = tasks
            .iter()
            .filter(|task| task.task.ratchet.is_some())
            .partition(|task| task.task.submission.is_some() || task.at == DisplayState::Landed);
        if passed.is_empty() && not.is_empty() {
            return None;
        }
        Some(RatchetSummary {
            ratcheted: passed.iter().map(name).collect(),
            not: not.iter().map(name).collect(),
        })
    }
}

/// Returns the rows of the task table at the end of a run. The fifth column contains the working
/// time, as in the table that a person sees during the run.
pub(crate) fn task_rows(out: &Output, tasks: &[TaskView]) -> Vec<Vec<String>> {
    let mut rows = crate::commands::task::task_rows(out, tasks);
    for (row, task) in rows.iter_mut().zip(tasks) {
        row[4] = match task.task.spent.wall_ms {
            0 => "-".into(),
            worked_ms => short_duration(worked_ms),
        };
    }
    rows
}

/// Draws the table of the merge status of all finished work.
fn draw_merges(tasks: &[TaskView]) -> String {
    let merge = |task: &TaskView| MergeRow {
        branch: task.task.branch().to_string(),
        status: if task.task.landed.is_some() {
            "merged".into()
        } else {
            task.word.clone()
        },
        conflicts: task.task.conflicts.len(),
        settled_by_ownership: task.task.settled_conflicts.len(),
        fixups: task.task.fixups,
    };
    let submitted = tasks.iter().filter(|task| task.task.submission.is_some());
    let merges: Vec<MergeRow> = submitted.map(merge).collect();
    if merges.is_empty() {
        String::new()
    } else {
        MergeRow::draw_table(&merges)
    }
}

/// Formats a duration, such as `9.5s` or `41s`, or `2m 3s` if it is two minutes or longer.
fn format_seconds(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{:.1}s", ms as f64 / 1_000.0),
        10_000..120_000 => format!("{}s", ms / 1_000),
        _ => format!("{}m {}s", ms / 60_000, ms / 1_000 % 60),
    }
}

/// Returns the commands that a person may want after the run.
fn next_commands(mission: &MissionView, summary: &RunSummary, ending: FollowEnd) -> Vec<String> {
    let failed = mission
        .tasks
        .iter()
        .find(|task| task.task.status.has_failed())
        .map(|task| task.task.id);
    let landed = mission
        .tasks
        .iter()
        .rev()
        .find(|task| task.task.landed.is_some())
        .map(|task| task.task.id);
    match (summary.escalated, failed, landed) {
        (1.., _, _) => vec!["regatta inbox".to_owned(), "regatta watch".into()],
        _ if ending != FollowEnd::Settled => {
            vec!["regatta watch".to_owned(), "regatta status".into()]
        }
        (0, Some(id), _) => vec![format!("regatta why {id}"), format!("regatta retry {id}")],
        (0, None, Some(id)) => vec![format!("regatta diff {id}"), "regatta undo".into()],
        (0, None, None) => {
            let open = mission.tasks.iter().find(|task| !task.waits.is_empty());
            let why = open.map(|task| format!("regatta why {}", task.task.id));
            vec![why.unwrap_or_else(|| "regatta status".to_owned())]
        }
    }
}

/// Prints the summary of a mission. Returns an error with the exit code, unless all tasks have
/// landed.
pub(crate) fn print_ending(
    app: &CommandContext,
    client: &Client,
    id: MissionId,
    ending: FollowEnd,
) -> CommandResult {
    let reply: CallReply<MissionView> =
        client.call(call::MissionShow(input::IdInput { id: id.to_string() }))?;
    let now_unix_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    let summary = RunSummary::from_mission(&reply.data, now_unix_ms);
    let next = next_commands(&reply.data, &summary, ending);
    app.output.print_answer(
        "run",
        &SummaryAnswer {
            mission: &reply.data,
            summary: &summary,
        },
        &next,
        |out| {
            format_table(&task_rows(out, &reply.data.tasks))
                + &draw_merges(&reply.data.tasks)
                + &summary.draw(id)
        },
    )?;
    let waits_for_budget = |task: &TaskView| {
        task.waits
            .iter()
            .any(|wait_reason| wait_reason.kind == WaitKind::Budget)
    };
    match ending {
        FollowEnd::TimedOut => Err(CommandError::Exit(124)),
        FollowEnd::Detached => Err(CommandError::Exit(130)),
        FollowEnd::Settled if summary.landed == summary.tasks => Ok(()),
        FollowEnd::Settled if summary.escalated > 0 => Err(CommandError::Exit(3)),
        FollowEnd::Settled if reply.data.tasks.iter().any(waits_for_budget) => {
            Err(CommandError::Exit(7))
        }
        FollowEnd::Settled if summary.landed > 0 => Err(CommandError::Exit(8)),
        FollowEnd::Settled | FollowEnd::PersonNeeded => Err(CommandError::Exit(1)),
    }
}

/// Returns the duration of a run in milliseconds: until the last change if the run is over,
/// otherwise until now.
fn duration_ms(start_unix_ms: u64, last_change_unix_ms: u64, now_unix_ms: Option<u64>) -> u64 {
    now_unix_ms
        .unwrap_or(0)
        .max(last_change_unix_ms)
        .saturating_sub(start_unix_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_duration_of_an_open_run_grows_while_nothing_changes() {
        for (start, last, now, expected) in [
            (1_000, 7_300, None, 6_300),
            (1_000, 7_300, Some(61_000), 60_000),
            (1_000, 7_300, Some(500), 6_300),
            (1_000, 0, None, 0),
        ] {
            assert_eq!(duration_ms(start, last, now), expected);
        }
    }
}
