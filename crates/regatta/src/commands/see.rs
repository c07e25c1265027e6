//! The commands `status`, `show`, `why`, `events` and `open`.

use regatta_api::Call;
use regatta_api::input;
use regatta_api::live_view::{MissionProgress, SignInView};
use regatta_api::view::{
    AgentView, AgentWhyView, BudgetsView, EventView, InboxView, MissionView, StatusView,
    TaskHistoryView, TaskView, WhyView,
};
use regatta_core::agent_protocol::{RequestAnswer, RequestContent};
use regatta_core::approval::Approval;
use regatta_core::attempt::Attempt;
use regatta_core::ids::{MissionId, TaskId};
use regatta_core::schedule::{WaitKind, WaitReason};
use regatta_core::scope_escape::EscapeSource;
use regatta_core::start_gates::GateVerdict;
use regatta_core::task::TaskStatus;
use regatta_core::task_timeline::{Activity, ActivityTotal, TaskTimeline};

use crate::args::EventsArgs;
use crate::client::{CallReply, EventStreamItem};
use crate::output::{
    CommandError, CommandResult, Output, command_error, first_line, format_age, format_table,
    sanitize, short_duration,
};

use super::CommandContext;
use super::task::task_rows;

/// Prints an address that signs a browser in. The part after the `#` is a code that works once.
pub(super) fn print_sign_in_url(app: &CommandContext) -> CommandResult {
    let got: CallReply<SignInView> = app.call(&Call::Open(input::EmptyInput {}))?;
    let mut sign_in = got.data;
    // The daemon knows its own address, but not the one that reaches it from here.
    if let Some(server) = &app.global.server {
        sign_in.url = format!("{}/#{}", server.trim_end_matches('/'), sign_in.code);
    }
    app.output
        .print_answer("open", &sign_in, &[], |_| format!("{}\n", sign_in.url))
}

/// Runs `regatta status`.
pub(super) fn status(app: &CommandContext) -> CommandResult {
    let client = app.client()?;
    let project = app.project(&client)?;
    let scope = project.clone();
    let got: CallReply<StatusView> = client.call(&Call::Status(input::ProjectFilter {
        project: project.clone(),
    }))?;
    let status = &got.data;
    let asked: Vec<InboxView> = client
        .call(&Call::InboxList(input::ProjectFilter { project: scope }))?
        .data;
    let asked: Vec<InboxView> = asked.into_iter().filter(InboxView::is_shown).collect();
    let mut next: Vec<String> = match &asked[..] {
        [] => vec![],
        [one] => super::inbox::answer_commands(one, false)
            .into_iter()
            .take(1)
            .collect(),
        _ => vec!["regatta inbox".to_owned()],
    };
    let elsewhere = if project.is_none() && !status.projects.is_empty() {
        app.current_repository()?
    } else {
        None
    };
    if elsewhere.is_some() {
        next.push("regatta init".into());
    }
    let is_quiet = status.working + status.waiting + status.needs_you + status.landing == 0;
    match (
        status.projects.is_empty(),
        is_quiet && status.completed + status.failed == 0,
    ) {
        (true, _) => next.extend(["regatta init".to_owned(), "regatta demo".to_owned()]),
        (false, true) => next.extend(first_steps(&client)?),
        (false, false) => next.extend(["regatta watch".to_owned(), "regatta open".to_owned()]),
    }
    let budgets: CallReply<BudgetsView> =
        client.call(&Call::BudgetList(input::BudgetListInput { days: 0 }))?;
    let spent = spend_text(&budgets.data);
    if !status.unreadable.is_empty() {
        next.insert(0, "regatta doctor".into());
    }
    if is_quiet && status.completed + status.failed > 0 {
        next.push("regatta down".into());
    }
    app.output.print_answer("status", status, &next, |out| {
        let several = status.projects.len() > 1;
        let tip = |project: &regatta_api::view::ProjectView| {
            let name = if several {
                format!("{} ", project.name)
            } else {
                String::new()
            };
            format!(
                "{name}{} {}",
                project.trunk,
                project.tip.as_ref().map_or("-", |tip| &tip.as_str()[..10])
            )
        };
        let tips: Vec<String> = status.projects.iter().map(tip).collect();
        let failed = if status.failed == 0 {
            String::new()
        } else {
            format!("{} failed · ", status.failed)
        };
        let mut text = format!(
            "{} working · {} waiting · {} need you · queue {} · {} done · {failed}{spent}{}\n",
            status.working,
            status.waiting,
            status.needs_you,
            status.landing,
            status.completed,
            if tips.is_empty() {
                "no project yet".into()
            } else {
                tips.join(" · ")
            }
        );
        if let Some(repository) = &elsewhere {
            text += &format!(
                "! {} is not under management, so this shows all projects; to add it: regatta \
                init\n",
                first_line(&repository.display().to_string())
            );
        }
        for row in &status.unreadable {
            text += &format!(
                "! row {} of table {} in the store is unreadable and was left out: {}\n",
                first_line(&row.id),
                row.table,
                first_line(&row.why)
            );
        }
        for fault in &status.config_faults {
            text += &format!(
                "! the new settings of {} are ignored, because regatta.toml is not valid: {}\n",
                fault.project,
                first_line(&fault.why)
            );
        }
        for forecast_collision in status
            .projects
            .iter()
            .flat_map(|project| &project.radar.collisions)
        {
            let other = forecast_collision
                .other
                .map_or_else(|| "the trunk".to_owned(), |id| id.to_string());
            text += &format!(
                "! {} and {other} will collide in {}\n",
                forecast_collision.one,
                forecast_collision.paths.join(", ")
            );
        }
        for project in &status.projects {
            if let Some(held) = &project.held {
                text += &format!(
                    "! the queue of {} is held by {}: {}\n",
                    project.name,
                    first_line(&held.by),
                    first_line(&held.reason)
                );
            }
            text += &super::land::unpushed_text(project.unpushed.as_ref());
            text += &super::land::trunk_difference_text(project.trunk_differs.as_deref());
        }
        text += &draw_by_mission(out, status, &asked);
        text
    })
}

/// Returns the first commands for a project without any work.
fn first_steps(client: &crate::client::Client) -> Result<[String; 2], CommandError> {
    let agents: CallReply<Vec<AgentView>> = client.call(&Call::AgentList(input::EmptyInput {}))?;
    Ok(match agents.data.is_empty() {
        true => [
            "regatta provider".to_owned(),
            "regatta agent add --help".to_owned(),
        ],
        false => ["regatta run --help".to_owned(), "regatta watch".to_owned()],
    })
}

/// Returns today's spending and its cap for the first line of `status`, or an empty text without
/// spending.
fn spend_text(budgets: &BudgetsView) -> String {
    let usd = |micro: u64| format!("${:.2}", micro as f64 / 1e6);
    let cap = budgets
        .budgets
        .iter()
        .find(|budget| budget.scope == regatta_core::budget::BudgetScope::Day);
    let cap = cap
        .and_then(|budget| budget.ceiling.micro_usd)
        .map_or(String::new(), |cap| format!(" of {}", usd(cap)));
    match budgets.today.usage.micro_usd {
        Some(micro) => format!("{}{cap} · ", usd(micro)),
        None if budgets.today.usage.tokens() > 0 => "no price reported · ".into(),
        None => String::new(),
    }
}

/// Returns the sort key of a task: tasks that need a person come first.
fn urgency(task: &TaskView) -> u8 {
    match task.word.as_str() {
        _ if task.asks.is_some() => 0,
        "needs you" => 0,
        "review" => 1,
        "working" => 2,
        "landing" => 3,
        _ => 4,
    }
}

/// Draws the tasks under their missions, with each mission's progress. Tasks without a mission come
/// last.
fn draw_by_mission(out: &Output, status: &StatusView, asked: &[InboxView]) -> String {
    let of = |mission: Option<MissionId>| -> Vec<TaskView> {
        let mut tasks: Vec<TaskView> = status
            .tasks
            .iter()
            .filter(|task| task.task.mission == mission)
            .cloned()
            .collect();
        tasks.sort_by_key(urgency);
        tasks
    };
    let head = |mission_progress: &MissionProgress| {
        format!(
            "{} {}   {}",
            mission_progress.id,
            first_line(&mission_progress.title),
            mission_progress.progress_text()
        )
    };
    let mut groups: Vec<(String, Vec<TaskView>)> = status
        .progress
        .iter()
        .map(|mission_progress| (head(mission_progress), of(Some(mission_progress.id))))
        .collect();
    groups.push(("without a mission".into(), of(None)));
    // A mission that waits for its lead has no task yet, but it is shown too.
    let waiting: Vec<String> = status
        .progress
        .iter()
        .filter(|mission| mission.place.is_some())
        .map(head)
        .collect();
    groups.retain(|group| !group.1.is_empty() || waiting.contains(&group.0));
    let tasks: Vec<TaskView> = groups.iter().flat_map(|group| group.1.clone()).collect();
    // One table for all groups keeps the columns aligned.
    let mut rows = task_rows(out, &tasks);
    for (row, task) in rows.iter_mut().zip(&tasks) {
        // The question itself says more than the state "needs you".
        if let (Some(inbox), Some(doing)) = (
            asked.iter().find(|inbox| inbox.task == Some(task.task.id)),
            row.last_mut(),
        ) {
            *doing = inbox_line(inbox);
        }
    }
    // Inbox items that belong to no open task: a failed task, a budget, an agent that is not signed
    // in.
    let others: Vec<&InboxView> = asked
        .iter()
        .filter(|inbox| !tasks.iter().any(|task| inbox.task == Some(task.task.id)))
        .collect();
    let is_first = |nth: usize| {
        others[..nth]
            .iter()
            .all(|other| other.group_key() != others[nth].group_key())
    };
    let firsts: Vec<&InboxView> = (0..others.len())
        .filter(|nth| is_first(*nth))
        .map(|nth| others[nth])
        .collect();
    rows.extend(firsts.iter().map(|inbox| {
        let agent = inbox.agent.as_ref().map_or("-".into(), ToString::to_string);
        let state = out.format_state(if inbox.kind == "failed" {
            "failed"
        } else {
            "needs you"
        });
        let alike = others
            .iter()
            .filter(|other| other.group_key() == inbox.group_key())
            .count();
        let times = if alike > 1 {
            format!(" × {alike}")
        } else {
            String::new()
        };
        vec![
            inbox.id.clone(),
            state,
            first_line(&inbox.subject) + &times,
            agent,
            format_age(inbox.since_wall),
            first_line(&inbox.why),
        ]
    }));
    let table = format_table(&rows);
    if status.progress.is_empty() {
        return table;
    }
    let mut lines = table.lines();
    let mut text = String::new();
    for (head, tasks) in &groups {
        text += &format!("{head}\n");
        text.extend(lines.by_ref().take(tasks.len()).map(|s| format!("  {s}\n")));
    }
    if !others.is_empty() {
        text += "other items that need you\n";
        text.extend(lines.map(|s| format!("  {s}\n")));
    }
    text
}

/// Describes an inbox item in one line, with its id if that differs from the task's.
fn inbox_line(inbox: &InboxView) -> String {
    let number = if inbox.task.is_some_and(|task| task.to_string() == inbox.id) {
        String::new()
    } else {
        format!("{} ", inbox.id)
    };
    match inbox.kind.as_str() {
        "permission" | "question" => {
            format!("{number}{}: {}", inbox.kind, first_line(&inbox.subject))
        }
        _ => format!("{number}{}", first_line(&inbox.why)),
    }
}

/// Runs `regatta show`.
pub(super) fn show(app: &CommandContext, id: &str) -> CommandResult {
    let got: CallReply<serde_json::Value> =
        app.call(&Call::Show(input::IdInput { id: id.into() }))?;
    let data = got.data;
    // The fields of the answer tell which kind of thing the id names.
    if data.get("asked_wall").is_some() {
        let asked: Approval = parse_data(data.clone())?;
        app.output.print_answer(
            "request.show",
            &asked,
            &[format!("regatta why {}", asked.id)],
            |_| draw_request(&asked),
        )
    } else if data.get("subject").is_some() {
        let task: TaskView = parse_data(data.clone())?;
        app.output.print_answer(
            "task.show",
            &task,
            &[format!("regatta why {}", task.task.id)],
            |out| draw_task(out, &task),
        )
    } else if data.get("capacity").is_some() {
        let agent: AgentView = parse_data(data.clone())?;
        let next = [format!("regatta why {}", agent.agent.name)];
        app.output.print_answer("agent.show", &agent, &next, |out| {
            super::agents::draw_agents(out, std::slice::from_ref(&agent))
        })
    } else if data.get("outlook").is_some() {
        let mission: MissionView = parse_data(data.clone())?;
        let id = mission.mission.id;
        let next = [
            format!("regatta graph {id}"),
            format!("regatta replay {id}"),
        ];
        app.output
            .print_answer("mission.show", &mission, &next, |out| {
                draw_mission(out, &mission)
            })
    } else {
        let attempt: Attempt = parse_data(data.clone())?;
        app.output.print_answer(
            "attempt.show",
            &attempt,
            &[format!("regatta logs {}", attempt.id)],
            |_| draw_attempt(&attempt),
        )
    }
}

fn parse_data<T: serde::de::DeserializeOwned>(data: serde_json::Value) -> Result<T, CommandError> {
    serde_json::from_value(data).map_err(|error| {
        command_error(
            "bug",
            format!("could not read the daemon's answer: {error}"),
            "the daemon may have another version; restart it: regatta up --restart",
        )
    })
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
        format!("{} ({})", out.format_state(&view.word), task.status),
    );
    let heard = view.heard_wall.map_or(String::new(), |heard_wall| {
        format!(", last output {} ago", format_age(heard_wall))
    });
    fact(
        "now",
        view.live
            .as_deref()
            .map(|live| first_line(live) + &heard)
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
        fact("spent", super::decide::spend_text(&task.spent));
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
    for reason in &view.waits {
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
    let how = match &attempt.end {
        None => format!("{:?}", attempt.phase).to_lowercase(),
        Some(end) if end.detail.is_empty() => end.cause.label(),
        Some(end) => format!("{}: {}", end.cause.label(), first_line(&end.detail)),
    };
    format!(
        "{}, on {}, {} ago: {how}\n",
        attempt.label(),
        attempt.task,
        format_age(attempt.started_unix_ms)
    )
}

/// Draws a request of an agent and what was answered.
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
    // The task that stands for the lead's own turns lands nothing and does not count.
    let work: Vec<&TaskView> = mission
        .tasks
        .iter()
        .filter(|view| view.task.is_polled())
        .collect();
    let count = |word: &str| work.iter().filter(|view| view.word == word).count();
    // Tasks that end with a report land nothing, so they are counted as done.
    let ended = match (count("landed"), count("done")) {
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

/// Runs `regatta why`.
pub(super) fn why(app: &CommandContext, id: &str) -> CommandResult {
    let got: CallReply<serde_json::Value> =
        app.call(&Call::Why(input::IdInput { id: id.into() }))?;
    if got.data.get("capacity").is_some() {
        return print_agent_why(app, &parse_data(got.data)?);
    }
    let why: WhyView = parse_data(got.data)?;
    let asked: Vec<InboxView> = app
        .call(&Call::InboxList(input::ProjectFilter { project: None }))?
        .data;
    let asked = asked
        .iter()
        .find(|ask| ask.is_shown() && ask.task == Some(why.task.task.id));
    let ways = remedies(&why.task, &why.past, asked);
    let mut next: Vec<String> = ways.iter().map(|way| way.0.clone()).collect();
    next.push(format!("regatta show {}", why.task.task.id));
    if why.task.task.status.is_terminal() {
        next.push("regatta status".into());
    }
    app.output.print_answer("why", &why, &next, |out| {
        let task = &why.task.task;
        let word = if why.task.asks.is_some() {
            "needs you"
        } else {
            &why.task.word
        };
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
            out.format_state(word)
        );
        let mut facts = Vec::new();
        if why.task.waits.is_empty()
            && let Some(last) = last
        {
            facts.push(vec![
                why_label("now"),
                activity_label(last.activity).into(),
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
        // Blocking gates are among the wait reasons already.
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
        text += &format_table(&facts);
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
        text += &format_table(&why.past.iter().map(tried).collect::<Vec<_>>());
        let ways: Vec<Vec<String>> = ways
            .iter()
            .map(|(way, what)| vec![why_label("try"), way.clone(), (*what).into()])
            .collect();
        text += &format_table(&ways);
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
            let at: Vec<String> = agent_why
                .agent
                .tasks
                .iter()
                .map(ToString::to_string)
                .collect();
            let mut text = format!(
                "{}   {} {}\n",
                agent_why.agent.agent.name,
                out.format_state(&agent_why.agent.state),
                at.join(" ")
            );
            text = text.trim_end().to_owned() + "\n";
            let fact = |(nth, wait_reason): (usize, &WaitReason)| {
                vec![
                    if nth == 0 { "now" } else { "then" }.to_owned(),
                    wait_reason.kind.name().into(),
                    first_line(&wait_reason.text),
                ]
            };
            text += &format_table(
                &agent_why
                    .waits
                    .iter()
                    .enumerate()
                    .map(fact)
                    .collect::<Vec<_>>(),
            );
            if !agent_why.line.is_empty() {
                let names: Vec<String> = agent_why.line.iter().map(ToString::to_string).collect();
                text += &format!("queued  {}\n", names.join(" "));
            }
            text
        })
}

/// Returns the first column of a line of `why`, padded so that the second columns are aligned.
fn why_label(word: &str) -> String {
    format!("{word:<5}")
}

/// Names an activity of a task in one word.
pub(super) fn activity_label(activity: Activity) -> &'static str {
    match activity {
        Activity::Working => "working",
        Activity::Checking => "checking",
        Activity::Waiting(kind) => kind.name(),
    }
}

/// Formats the time of day in this machine's time zone, to the second.
pub(crate) fn format_time_to_second(wall: u64) -> String {
    let at = i64::try_from(wall)
        .ok()
        .and_then(|n| jiff::Timestamp::from_millisecond(n).ok());
    let zone = jiff::tz::TimeZone::system();
    at.map_or_else(
        || "?".into(),
        |time| time.to_zoned(zone).strftime("%H:%M:%S").to_string(),
    )
}

/// Formats the time of day in this machine's time zone, to the minute.
pub(crate) fn format_time_to_minute(wall: u64) -> String {
    format_time_to_second(wall).chars().take(5).collect()
}

/// The number of past periods of a task that `why` prints.
const MAX_PAST_PERIODS: usize = 12;

/// Returns the rows about a task's past: each period with its times and its duration.
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
            activity_label(activity_interval.activity),
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

/// Formats a duration, in milliseconds below one second.
fn format_short_duration(ms: u64) -> String {
    if ms < 1_000 {
        format!("{ms}ms")
    } else {
        short_duration(ms)
    }
}

/// Describes how a task's time was spent, the longest activity first.
fn time_spent_text(life: &TaskTimeline) -> String {
    let part = |activity_total: &ActivityTotal| {
        format!(
            "{} {}",
            format_short_duration(activity_total.ms),
            activity_label(activity_total.activity)
        )
    };
    life.sums
        .iter()
        .filter(|activity_total| activity_total.ms > 0)
        .map(part)
        .collect::<Vec<_>>()
        .join(" · ")
}

/// Returns true if a person has taken the task over.
pub(super) fn is_taken_over(view: &TaskView) -> bool {
    view.live.as_deref() == Some(regatta_api::view::TAKEN_OVER_TEXT)
}

/// Returns true if a wait reason names a claim on a file.
fn mentions_file(reason: &str) -> bool {
    reason
        .split_whitespace()
        .any(|word| word.starts_with("file://"))
}

/// Returns commands that help a waiting or failed task, each with an explanation.
fn remedies(
    view: &TaskView,
    past: &[TaskHistoryView],
    asked: Option<&InboxView>,
) -> Vec<(String, &'static str)> {
    let task = &view.task;
    let mut ways = Vec::new();
    // The wait reason contains only the first error of a check.
    if past.last().is_some_and(|attempt| attempt.failed_check)
        || task
            .fixup
            .as_ref()
            .is_some_and(|fixup| fixup.output.is_some())
    {
        ways.push((
            format!("regatta logs {} --check", task.id),
            "see the whole output of the failed check",
        ));
    }
    if let Some(asked) =
        asked.filter(|inbox| matches!(inbox.kind.as_str(), "permission" | "question" | "stuck"))
    {
        let what = |step: &str| match step.split(' ').nth(1) {
            Some("allow") => "allow it once",
            Some("deny") => "refuse it",
            _ => "answer it",
        };
        let steps = super::inbox::answer_commands(asked, false).into_iter();
        ways.splice(0..0, steps.map(|step| (step.clone(), what(&step))));
        if asked.kind == "permission" {
            ways.insert(
                1.min(ways.len()),
                (
                    format!("regatta allow {} --for task", asked.id),
                    "allow this and similar requests for this task",
                ),
            );
        }
        return ways;
    }
    if !matches!(task.status, TaskStatus::Failed | TaskStatus::Cancelled) {
        let first = view.waits.first().map(|wait_reason| wait_reason.kind);
        match first {
            Some(WaitKind::Dependency) => {
                // Blockers that have landed no longer matter.
                let holds = |id: &&TaskId| {
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
                let open = task.blocked_by.iter().filter(holds).take(3);
                ways.extend(
                    open.map(|id| (format!("regatta why {id}"), "see why that task waits")),
                );
            }
            Some(WaitKind::Claim) => {
                // Fewer files help only if the claim is on files, not on the trunk or the task.
                let is_files = view
                    .waits
                    .iter()
                    .any(|wait| wait.kind == WaitKind::Claim && mentions_file(&wait.text));
                if is_files && task.status != TaskStatus::Landing {
                    ways.push((
                        format!("regatta edit {} --files …", task.id),
                        "list only files that are free now",
                    ));
                }
                ways.push((
                    "regatta claim list".into(),
                    "see the claims, their holders and when they end",
                ));
            }
            Some(WaitKind::Slot | WaitKind::Runner) if task.assignee.is_some() => {
                ways.push((
                    format!("regatta assign {} NAME", task.id),
                    "assign it to an agent with a free slot",
                ));
            }
            Some(WaitKind::Conflict) if task.status == TaskStatus::NeedsHuman => {
                match &task.submission {
                    Some(work) if work.reverts => {
                        let commit = &work.commit.as_str()[..10];
                        ways.push((
                            format!("git revert {commit}"),
                            "revert it in your checkout, and resolve the conflict",
                        ));
                        ways.push((
                            format!("regatta drop {}", task.id),
                            "cancel the undo, and keep the landed work",
                        ));
                    }
                    _ => {
                        ways.push((
                            format!("regatta takeover {}", task.id),
                            "resolve the conflict by hand in a workspace",
                        ));
                        ways.push((format!("regatta diff {}", task.id), "see its changes"));
                        ways.push((
                            format!("regatta retry {}", task.id),
                            "let an agent try again",
                        ));
                    }
                }
            }
            Some(WaitKind::Paused) => {
                ways.push((format!("regatta resume {}", task.id), "resume it"))
            }
            Some(WaitKind::Backoff) => {
                ways.push((format!("regatta retry {}", task.id), "try again now"))
            }
            Some(WaitKind::Review)
                if task.status == TaskStatus::NeedsHuman && task.submission.is_none() =>
            {
                if !past.is_empty() {
                    ways.push((
                        format!("regatta logs {}", task.id),
                        "see the output of its last attempt",
                    ));
                }
                ways.push((
                    format!("regatta retry {}", task.id),
                    "let an agent try again",
                ));
                ways.push((format!("regatta task cancel {}", task.id), "cancel it"));
            }
            Some(WaitKind::Review) => {
                ways.push((format!("regatta diff {}", task.id), "see its changes"));
                ways.push((format!("regatta land {}", task.id), "land it"));
            }
            Some(WaitKind::Queue) => {
                ways.push((
                    format!("regatta land {} --first", task.id),
                    "move it to the front of the queue",
                ));
                ways.push(("regatta queue".into(), "see the whole queue"));
            }
            Some(WaitKind::Runner) if task.mission.is_none() => {
                ways.push(("regatta run --yes".into(), "start all waiting tasks"));
            }
            None if is_taken_over(view) => {
                ways.push((
                    format!("regatta takeover {}", task.id),
                    "open a shell in its workspace",
                ));
                ways.push((
                    format!("regatta land {}", task.id),
                    "check your work and land it",
                ));
                ways.push((
                    format!("regatta retry {}", task.id),
                    "give the task back to an agent",
                ));
            }
            None if task.attempt.is_some() => ways.push((
                format!("regatta logs {} -f", task.id),
                "follow the output of its agent",
            )),
            Some(WaitKind::Budget) => ways.push((
                "regatta budget list".into(),
                "see the budgets and the spending",
            )),
            _ => {}
        }
        return ways;
    }
    if !past.is_empty() {
        ways.push((
            format!("regatta logs {}", task.id),
            "see the output of its last attempt",
        ));
    }
    ways.push((
        format!("regatta retry {}", task.id),
        "try the same work as a new task that knows how this one ended",
    ));
    ways
}

/// Runs `regatta events`.
pub(super) fn events(app: &CommandContext, ask: &EventsArgs) -> CommandResult {
    let client = app.client()?;
    let out = &app.output;
    let after = ask.after.unwrap_or(0);
    client.stream_events(after, ask.follow, |seen| {
        if let EventStreamItem::Event(event) = seen {
            let text = if out.is_json {
                serde_json::to_string(&event).map_err(|error| {
                    command_error("bug", error.to_string(), "please report this")
                })? + "\n"
            } else {
                event_line(&event).unwrap_or_default()
            };
            out.print(&text)?;
        }
        Ok(true)
    })
}

/// Formats an event as a line. Returns `None` for events that only record requests.
pub(crate) fn event_line(event: &EventView) -> Option<String> {
    (!event.kind.starts_with("request.")).then(|| draw_event(event))
}

fn draw_event(event: &EventView) -> String {
    let time = event.time.get(11..19).unwrap_or(&event.time);
    let mut data = event.data.to_string();
    if data.len() > 160 {
        data = data.chars().take(159).chain(['…']).collect();
    }
    format!(
        "{:>7} {time} {:<18} {:<10} {}\n",
        event.revision,
        event.kind,
        event.subject,
        sanitize(&data)
    )
}

/// Returns the fleet's present revision.
pub(super) fn current_revision(client: &crate::client::Client) -> Result<u64, CommandError> {
    let got: CallReply<serde_json::Value> = client.call(&Call::AgentList(input::EmptyInput {}))?;
    Ok(got.revision)
}
