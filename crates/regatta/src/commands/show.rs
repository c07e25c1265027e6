//! The command `show`, which draws one task, attempt, agent, mission or request.

use clap::Args;
use regatta_api::view::{MissionView, ShowAnswer, TaskView};
use regatta_api::{call, input};
use regatta_core::agent_protocol::{RequestAnswer, RequestContent};
use regatta_core::approval::Approval;
use regatta_core::attempt::Attempt;
use regatta_core::display::{self, DisplayState};
use regatta_core::schedule::WaitReason;
use regatta_core::scope_escape::EscapeSource;
use regatta_core::task_timeline::{ActivityTotal, TaskTimeline};

use crate::commands::task::task_rows;
use crate::commands::why::format_short_duration;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, Output, first_line, format_age, format_table, sanitize};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("show", &["regatta show T7", "regatta show claude-1"])];

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Id of the thing to show: a task (T21), an attempt (A5), a mission (M3), a request (Q7) or an
    /// agent's name
    pub(crate) id: String,
}

/// Runs `regatta show`.
pub(crate) fn show(app: &CommandContext, id: &str) -> CommandResult {
    let out = &app.output;
    match app.call(call::Show(input::IdInput { id: id.into() }))?.data {
        ShowAnswer::Request(approval) => {
            let next = [format!("regatta why {}", approval.id)];
            out.print_answer("request.show", &approval, &next, |_| {
                draw_request(&approval)
            })
        }
        ShowAnswer::Task(task) => {
            let mut next = vec![format!("regatta why {}", task.task.id)];
            next.extend(task.undone_by.map(|by| format!("regatta undo {by}")));
            out.print_answer("task.show", &task, &next, |out| draw_task(out, &task))
        }
        ShowAnswer::Agent(agent) => {
            let next = [format!("regatta why {}", agent.agent.name)];
            out.print_answer("agent.show", &agent, &next, |out| {
                crate::commands::agent::draw_agents(out, std::slice::from_ref(&*agent))
            })
        }
        ShowAnswer::Mission(mission) => {
            let id = mission.mission.id;
            let next = [
                format!("regatta graph {id}"),
                format!("regatta replay {id}"),
            ];
            out.print_answer("mission.show", &mission, &next, |out| {
                draw_mission(out, &mission)
            })
        }
        ShowAnswer::Attempt(attempt) => {
            let next = [format!("regatta logs {}", attempt.id)];
            out.print_answer("attempt.show", &attempt, &next, |_| draw_attempt(&attempt))
        }
    }
}

fn draw_task(out: &Output, view: &TaskView) -> String {
    let task = &view.task;
    let mut facts: Vec<Vec<String>> = Vec::new();
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            facts.push(vec![name.into(), value]);
        }
    };
    let list = |items: &[String]| items.join(" ");
    fact(
        "state",
        format!(
            "{} ({})",
            out.format_state(view.at, &view.word),
            task.status
        ),
    );
    let last_output = view.heard_wall.map_or(String::new(), |heard_wall| {
        format!(", last output {} ago", format_age(heard_wall))
    });
    fact(
        "now",
        view.live
            .as_deref()
            .map(|live| first_line(live) + &last_output)
            .unwrap_or_default(),
    );
    fact("project", task.project.to_string());
    fact(
        "agent",
        task.agent
            .as_ref()
            .or(task.assignee.as_ref())
            .map(ToString::to_string)
            .unwrap_or_default(),
    );
    fact(
        "type",
        format!("{:?}, priority {}", task.issue_type, task.priority).to_lowercase(),
    );
    fact(
        "files",
        list(
            &task
                .files
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
        ),
    );
    fact(
        "needs",
        list(
            &task
                .blocked_by
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
        ),
    );
    fact(
        "checks",
        sanitize(
            &task
                .validation
                .lint
                .iter()
                .chain(&task.validation.tests)
                .cloned()
                .collect::<Vec<_>>()
                .join(" · "),
        ),
    );
    if !task.spent.usage.is_nothing() {
        fact("spent", crate::commands::budget::spend_text(&task.spent));
    }
    fact(
        "landed",
        view.now_as
            .as_ref()
            .or(task.landed.as_ref())
            .map(ToString::to_string)
            .unwrap_or_default(),
    );
    if let (Some(_), Some(first)) = (&view.now_as, &task.landed) {
        fact(
            "first as",
            format!("{first}, before the trunk was rebased onto its remote"),
        );
    }
    if let Some(by) = view.undone_by {
        fact("reverted", format!("by {by}"));
    }
    fact(
        "reason",
        first_line(task.reason.as_deref().unwrap_or_default()),
    );
    fact(
        "output",
        first_line(task.output.as_deref().unwrap_or_default()),
    );
    let result = view
        .attempts
        .iter()
        .rev()
        .find_map(|attempt| attempt.result.as_ref());
    fact(
        "result",
        result
            .and_then(|work_result| work_result.copy_path.as_deref())
            .map(first_line)
            .unwrap_or_default(),
    );
    for (nth, escape) in task.escapes.iter().enumerate() {
        let name = regatta_core::scope_escape::escape_name(task.id, nth);
        fact(
            "outside",
            format!(
                "{name} {} ({})",
                first_line(&escape.finding),
                first_line(&escape.suggested_files.join(" "))
            ),
        );
        if escape.source == EscapeSource::Diff {
            let attempt = escape.attempt;
            fact(
                "",
                format!(
                    "left out of the landed work, but kept in {attempt}: regatta diff {attempt}"
                ),
            );
        }
    }
    for warning in &task.warnings {
        fact("warning", first_line(warning));
    }
    // The reason of a task that needs a person is also why the task waits.
    let is_new = |reason: &&WaitReason| task.reason.as_deref() != Some(&reason.text);
    for reason in view.waits.iter().filter(is_new) {
        fact("waits", first_line(&reason.text));
    }
    fact(
        "time",
        view.life.as_ref().map(time_spent_text).unwrap_or_default(),
    );
    for attempt in &view.attempts {
        fact("attempt", draw_attempt(attempt).trim_end().to_owned());
    }
    format!(
        "{} \"{}\"\n{}{}",
        task.id,
        first_line(&task.subject),
        format_table(&facts),
        if task.description.is_empty() {
            String::new()
        } else {
            format!("\n{}\n", sanitize(&task.description))
        }
    )
}

fn draw_attempt(attempt: &Attempt) -> String {
    let state = match &attempt.end {
        None => format!("{:?}", attempt.phase).to_lowercase(),
        Some(end) if end.detail.is_empty() => end.cause.label(),
        Some(end) => format!("{}: {}", end.cause.label(), first_line(&end.detail)),
    };
    format!(
        "{}, on {}, {} ago: {state}\n",
        attempt.label(),
        attempt.task,
        format_age(attempt.started_unix_ms)
    )
}

/// Draws a request of an agent (a question or a permission) and its answer.
fn draw_request(asked: &Approval) -> String {
    let kind = match &asked.request.content {
        RequestContent::Permission { .. } => "permission",
        RequestContent::Question { .. } => "question",
    };
    let (id, age) = (asked.id, format_age(asked.asked_unix_ms));
    let mut text = format!(
        "{id} {kind} of {} on {} by {}, {age} ago\n",
        asked.attempt, asked.task, asked.agent
    );
    let mut rows = vec![vec!["asks".to_owned(), first_line(&asked.subject())]];
    if let RequestContent::Question { choices, .. } = &asked.request.content
        && !choices.is_empty()
    {
        rows.push(vec![
            "choices".into(),
            choices
                .iter()
                .map(|choice| first_line(choice))
                .collect::<Vec<_>>()
                .join(", "),
        ]);
    }
    if let Some(assumed) = &asked.assumed {
        rows.push(vec!["assumed".into(), first_line(assumed)]);
    }
    let state = match &asked.decision {
        None if asked.closed => "closed without an answer".to_owned(),
        None => "waits for an answer".to_owned(),
        Some(decision) => format!(
            "{} by {}, {} ago",
            answer_text(&decision.answer),
            decision.by,
            format_age(decision.unix_ms)
        ),
    };
    rows.push(vec!["state".into(), state]);
    text += &format_table(&rows);
    text
}

fn answer_text(answer: &RequestAnswer) -> String {
    match answer {
        RequestAnswer::Allow => "allowed".into(),
        RequestAnswer::Deny { reason: None } => "denied".into(),
        RequestAnswer::Deny {
            reason: Some(words),
        } => format!("denied ({})", first_line(words)),
        RequestAnswer::Text { text } => format!("answered: {}", first_line(text)),
        RequestAnswer::Cancelled => "withdrawn".into(),
    }
}

/// Draws a mission and its tasks.
pub(crate) fn draw_mission(out: &Output, mission: &MissionView) -> String {
    // Leave out the task in which the lead (the planning agent) itself runs, because that task
    // lands nothing.
    let work: Vec<&TaskView> = mission
        .tasks
        .iter()
        .filter(|view| view.task.is_polled())
        .collect();
    // Tasks that end with a report land nothing, so they are counted as done.
    let shown = work
        .iter()
        .map(|view| (view.at, view.task.landed.is_some()));
    let counts = display::count_each(shown);
    let count = |has_landed| {
        let ended = counts.get(&(DisplayState::Landed, has_landed));
        ended.copied().unwrap_or_default()
    };
    let ended = match (count(true), count(false)) {
        _ if work.is_empty() && !mission.tasks.is_empty() => "no task yet".to_owned(),
        (landed, 0) => format!("{landed} of {} landed", work.len()),
        (landed, done) => format!("{landed} landed and {done} done of {}", work.len()),
    };
    let serial = mission.mission.serialised_reason.as_ref();
    let serial = serial.map_or(String::new(), |serial| {
        format!(
            "tasks that share files now run one after the other: {}\n",
            first_line(serial)
        )
    });
    format!(
        "{} {}   {ended}\n{serial}{}",
        mission.mission.id,
        first_line(&mission.mission.title),
        format_table(&task_rows(out, &mission.tasks))
    )
}

/// Describes in one line how long a task spent on each activity, the longest first.
fn time_spent_text(life: &TaskTimeline) -> String {
    let part = |activity_total: &ActivityTotal| {
        format!(
            "{} {}",
            format_short_duration(activity_total.ms),
            display::activity_display(activity_total.activity).label
        )
    };
    life.sums
        .iter()
        .filter(|activity_total| activity_total.ms > 0)
        .map(part)
        .collect::<Vec<_>>()
        .join(" · ")
}
