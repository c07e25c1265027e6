//! The command `why`, which explains why a task or an agent waits, and which commands help.

use clap::Args;
use regatta_api::view::{AgentWhyView, InboxView, TaskHistoryView, TaskView, WhyAnswer};
use regatta_api::{call, input};
use regatta_core::display;
use regatta_core::ids::TaskId;
use regatta_core::inbox::InboxKind;
use regatta_core::schedule::{self, WaitKind, WaitReason};
use regatta_core::start_gates::GateVerdict;
use regatta_core::task_timeline::TaskTimeline;

use crate::commands::takeover::is_taken_over;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandResult, first_line, format_age, format_table, format_time_to_second,
    format_wrapped_table, short_duration, window_width,
};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("why", &["regatta why T7", "regatta why claude-1"])];

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Id of the thing to explain: a task (T21), a request (Q7) or landing (L3) of a task, or an
    /// agent's name
    pub(crate) id: String,
}

/// Runs `regatta why`.
pub(crate) fn why(app: &CommandContext, id: &str) -> CommandResult {
    let why = match app.call(call::Why(input::IdInput { id: id.into() }))?.data {
        WhyAnswer::Agent(agent) => return print_agent_why(app, &agent),
        WhyAnswer::Task(why) => *why,
    };
    let inbox: Vec<InboxView> = app
        .call(call::InboxList(input::ProjectFilter { project: None }))?
        .data;
    let request = inbox
        .iter()
        .find(|item| item.is_shown() && item.task == Some(why.task.task.id));
    let steps = remedies(&why.task, &why.past, request);
    // In the text, the lines `try` have these commands with an explanation of each.
    let mut next: Vec<String> = if app.output.is_json {
        steps.iter().map(|(command, _)| command.clone()).collect()
    } else {
        vec![]
    };
    next.push(format!("regatta show {}", why.task.task.id));
    if why.task.task.status.is_terminal() {
        next.push("regatta status".into());
    }
    app.output.print_answer("why", &why, &next, |out| {
        let task = &why.task.task;
        let life = why.task.life.as_ref();
        let last = life
            .and_then(|task_timeline| task_timeline.intervals.last())
            .filter(|activity_interval| activity_interval.to_unix_ms.is_none());
        let since = last.map_or(String::new(), |activity_interval| {
            format!(" {}", format_age(activity_interval.from_unix_ms))
        });
        let mut text = format!(
            "{} \"{}\"   {}{since}\n",
            task.id,
            first_line(&task.subject),
            out.format_state(why.task.at, &why.task.word)
        );
        let mut facts = Vec::new();
        if let Some(by) = why.task.undone_by {
            facts.push(vec![
                why_label("now"),
                "reverted".into(),
                format!("{by} reverted the landed work"),
            ]);
        }
        if why.task.waits.is_empty()
            && let Some(last) = last
        {
            facts.push(vec![
                why_label("now"),
                display::activity_display(last.activity).label.into(),
                first_line(&last.text),
            ]);
        }
        for (nth, reason) in why.task.waits.iter().enumerate() {
            let when = if nth == 0 { "now" } else { "then" };
            facts.push(vec![
                why_label(when),
                reason.kind.name().into(),
                first_line(&reason.text),
            ]);
        }
        for command in &why.commands {
            facts.push(vec![
                why_label("runs"),
                "command".into(),
                first_line(command),
            ]);
        }
        // Print only the gates (conditions for the start of a task) that warn. Gates that block the
        // task are already among the wait reasons.
        for gate in why
            .task
            .gates
            .iter()
            .filter(|gate_result| gate_result.verdict == GateVerdict::Warn)
        {
            facts.push(vec![
                why_label("gate"),
                gate.gate.name().into(),
                first_line(&gate.reason),
            ]);
        }
        let window = window_width();
        text += &format_wrapped_table(&facts, window);
        if !why.clear.is_empty() {
            let clear: Vec<String> = why
                .clear
                .iter()
                .map(|wait_reason| {
                    format!(
                        "{} {}",
                        wait_reason.kind.name(),
                        first_line(&wait_reason.text)
                    )
                })
                .collect();
            text += &format!("clear  {}\n", clear.join(" · "));
        }
        text += &format_table(&life.map(past_rows).unwrap_or_default());
        let tried = |task_history: &TaskHistoryView| {
            vec![
                why_label("tried"),
                format!("{} ago", format_age(task_history.wall)),
                first_line(&task_history.text),
            ]
        };
        let tried: Vec<Vec<String>> = why.past.iter().map(tried).collect();
        text += &format_wrapped_table(&tried, window);
        let steps: Vec<Vec<String>> = steps
            .iter()
            .map(|(step, what)| vec![why_label("try"), out.command(step), (*what).into()])
            .collect();
        text += &format_table(&steps);
        text
    })
}

fn print_agent_why(app: &CommandContext, agent_why: &AgentWhyView) -> CommandResult {
    let next: Vec<String> = agent_why
        .agent
        .tasks
        .iter()
        .chain(&agent_why.line)
        .take(2)
        .map(|id| format!("regatta why {id}"))
        .collect();
    app.output
        .print_answer("agent.why", agent_why, &next, |out| {
            let tasks: Vec<String> = agent_why
                .agent
                .tasks
                .iter()
                .map(ToString::to_string)
                .collect();
            let mut text = format!(
                "{}   {} {}\n",
                agent_why.agent.agent.name,
                out.format_state(agent_why.agent.at, &agent_why.agent.word),
                tasks.join(" ")
            );
            text = text.trim_end().to_owned() + "\n";
            let fact = |(nth, wait_reason): (usize, &WaitReason)| {
                vec![
                    if nth == 0 { "now" } else { "then" }.to_owned(),
                    wait_reason.kind.name().into(),
                    first_line(&wait_reason.text),
                ]
            };
            let facts: Vec<Vec<String>> = agent_why.waits.iter().enumerate().map(fact).collect();
            text += &format_wrapped_table(&facts, window_width());
            if !agent_why.line.is_empty() {
                let names: Vec<String> = agent_why.line.iter().map(ToString::to_string).collect();
                text += &format!("queued  {}\n", names.join(" "));
            }
            text
        })
}

/// Returns the word in the first column of a line of `why`, padded so that the second columns are
/// aligned.
fn why_label(word: &str) -> String {
    format!("{word:<5}")
}

/// The maximum number of past periods of a task that `why` prints.
const MAX_PAST_PERIODS: usize = 12;

/// Returns the rows about a task's past: each period of work or waiting, with its times and its
/// duration.
fn past_rows(life: &TaskTimeline) -> Vec<Vec<String>> {
    let over: Vec<_> = life
        .intervals
        .iter()
        .filter(|activity_interval| activity_interval.to_unix_ms.is_some())
        .collect();
    let skipped = over.len().saturating_sub(MAX_PAST_PERIODS);
    let mut rows = Vec::new();
    let earlier = life.omitted_count + skipped as u64;
    if earlier > 0 {
        rows.push(vec![
            why_label("past"),
            format!("{earlier} earlier periods"),
            String::new(),
            "see --json".into(),
        ]);
    }
    for activity_interval in &over[skipped..] {
        let to = activity_interval
            .to_unix_ms
            .unwrap_or(activity_interval.from_unix_ms);
        let hours = format!(
            "{}-{}",
            format_time_to_second(activity_interval.from_unix_ms),
            format_time_to_second(to)
        );
        let what = format!(
            "{} {}",
            display::activity_display(activity_interval.activity).label,
            format_short_duration(to - activity_interval.from_unix_ms)
        );
        rows.push(vec![
            why_label("past"),
            hours,
            what,
            first_line(&activity_interval.text),
        ]);
    }
    rows
}

/// Formats a duration; below one second in milliseconds, such as `250ms`.
pub(crate) fn format_short_duration(ms: u64) -> String {
    if ms < 1_000 {
        format!("{ms}ms")
    } else {
        short_duration(ms)
    }
}

/// Returns true if a wait reason names a claim on a file.
fn mentions_file(reason: &str) -> bool {
    reason
        .split_whitespace()
        .any(|word| word.starts_with("file://"))
}

/// Returns commands that can help a waiting or failed task, each with an explanation.
fn remedies(
    view: &TaskView,
    past: &[TaskHistoryView],
    request: Option<&InboxView>,
) -> Vec<(String, &'static str)> {
    let task = &view.task;
    let mut remedies = Vec::new();
    // The wait reason shows only the first error of a failed check, so offer the whole output.
    if past.last().is_some_and(|attempt| attempt.failed_check)
        || task
            .fixup
            .as_ref()
            .is_some_and(|fixup| fixup.output.is_some())
    {
        remedies.push((
            format!("regatta logs {} --check", task.id),
            "see the whole output of the failed check",
        ));
    }
    if let Some(request) = request.filter(|inbox| {
        matches!(
            inbox.kind,
            InboxKind::Permission | InboxKind::Question | InboxKind::Stuck
        )
    }) {
        let what = |step: &str| match step.split(' ').nth(1) {
            Some("allow") => "allow it once",
            Some("deny") => "refuse it",
            _ => "answer it",
        };
        let steps = crate::commands::inbox::answer_commands(request, false).into_iter();
        remedies.splice(0..0, steps.map(|step| (step.clone(), what(&step))));
        if request.kind == InboxKind::Permission {
            remedies.insert(
                1.min(remedies.len()),
                (
                    format!("regatta allow {} --for task", request.id),
                    "allow this and similar requests for this task",
                ),
            );
        }
        return remedies;
    }
    if let Some(by) = view.undone_by {
        remedies.push((format!("regatta undo {by}"), "bring the landed work back"));
        return remedies;
    }
    if !task.status.is_unsuccessful() {
        let first = view.waits.first().map(|wait_reason| wait_reason.kind);
        match first {
            Some(WaitKind::Dependency) => {
                // Suggest to look only at the blockers for which the task still waits.
                let is_blocking = |id: &&TaskId| {
                    let names = |wait_reason: &WaitReason| {
                        wait_reason
                            .text
                            .split(|c: char| !c.is_alphanumeric())
                            .any(|text| text == id.to_string())
                    };
                    view.waits.iter().any(|wait_reason| {
                        wait_reason.kind == WaitKind::Dependency && names(wait_reason)
                    })
                };
                let open_blockers = task.blocked_by.iter().filter(is_blocking).take(3);
                remedies.extend(
                    open_blockers
                        .map(|id| (format!("regatta why {id}"), "see why that task waits")),
                );
            }
            Some(WaitKind::Claim) => {
                // Suggest to list fewer files only if the task waits for files that another task
                // has claimed. A wait for the trunk, or for files at the landing, would not become
                // shorter.
                let is_files = view
                    .waits
                    .iter()
                    .any(|wait| wait.kind == WaitKind::Claim && mentions_file(&wait.text));
                if is_files && !task.status.is_landing() {
                    remedies.push((
                        format!("regatta edit {} --files …", task.id),
                        "list only files that are free now",
                    ));
                }
                remedies.push((
                    "regatta claim list".into(),
                    "see the claims, their holders and when they end",
                ));
            }
            Some(WaitKind::Slot | WaitKind::Runner) if task.assignee.is_some() => {
                remedies.push((
                    format!("regatta assign {} NAME", task.id),
                    "assign it to an agent with a free slot",
                ));
            }
            Some(WaitKind::Conflict) if task.status.needs_person() => match &task.submission {
                Some(work) if work.reverts => {
                    let commit = &work.commit.as_str()[..10];
                    remedies.push((
                        format!("git revert {commit}"),
                        "revert it in your checkout, and resolve the conflict",
                    ));
                    remedies.push((
                        format!("regatta drop {}", task.id),
                        "cancel the undo, and keep the landed work",
                    ));
                }
                _ => {
                    remedies.push((
                        format!("regatta takeover {}", task.id),
                        "resolve the conflict by hand in a workspace",
                    ));
                    remedies.push((format!("regatta diff {}", task.id), "see its changes"));
                    remedies.push((
                        format!("regatta retry {}", task.id),
                        "let an agent try again",
                    ));
                }
            },
            Some(WaitKind::Paused) => remedies
                .extend(schedule::resume_command(task).map(|command| (command, "let it continue"))),
            Some(WaitKind::Backoff) => {
                remedies.push((format!("regatta retry {}", task.id), "try again now"))
            }
            Some(WaitKind::Review | WaitKind::Runner)
                if task.status.needs_person() && task.submission.is_none() =>
            {
                if !past.is_empty() {
                    remedies.push((
                        format!("regatta logs {}", task.id),
                        "see the output of its last attempt",
                    ));
                }
                remedies.push((
                    format!("regatta retry {}", task.id),
                    "let an agent try again",
                ));
                remedies.push((format!("regatta task cancel {}", task.id), "cancel it"));
            }
            Some(WaitKind::Review) => {
                remedies.push((format!("regatta diff {}", task.id), "see its changes"));
                remedies.push((format!("regatta land {}", task.id), "land it"));
            }
            Some(WaitKind::Policy) if task.status.is_landing() => {
                remedies.push((
                    format!("regatta land {} --wait", task.id),
                    "try again to land it, after you have done this",
                ));
                remedies.push((format!("regatta drop {}", task.id), "do not land it"));
            }
            Some(WaitKind::Queue) => {
                remedies.push((
                    format!("regatta land {} --first", task.id),
                    "move it to the front of the queue",
                ));
                remedies.push(("regatta queue".into(), "see the whole queue"));
            }
            Some(WaitKind::Runner) if task.mission.is_none() => {
                remedies.push(("regatta run --yes".into(), "start all waiting tasks"));
            }
            None if is_taken_over(view) => {
                remedies.push((
                    format!("regatta takeover {}", task.id),
                    "open a shell in its workspace",
                ));
                remedies.push((
                    format!("regatta land {}", task.id),
                    "check your work and land it",
                ));
                remedies.push((
                    format!("regatta retry {}", task.id),
                    "give the task back to an agent",
                ));
            }
            None if task.attempt.is_some() => remedies.push((
                format!("regatta logs {} -f", task.id),
                "follow the output of its agent",
            )),
            Some(WaitKind::Budget) => remedies.push((
                "regatta budget list".into(),
                "see the budgets and the spending",
            )),
            _ => {}
        }
        return remedies;
    }
    if !past.is_empty() {
        remedies.push((
            format!("regatta logs {}", task.id),
            "see the output of its last attempt",
        ));
    }
    remedies.push((
        format!("regatta retry {}", task.id),
        "try the same work as a new task that knows how this one ended",
    ));
    remedies
}
