//! The command `status`, which shows the present state of all agents and tasks, and the program
//! `regatta` without a command.

use regatta_api::view::{AgentView, InboxGroup, InboxView, StatusView, TaskView};
use regatta_api::{call, input};
use regatta_core::agent::Runtime;
use regatta_core::attempt;
use regatta_core::display::{DisplayState, MissionSummary};
use regatta_core::ids::MissionId;
use regatta_core::inbox::InboxKind;
use regatta_core::schedule::{self, WaitKind};

use crate::client::{CallReply, Client};
use crate::commands::task::task_rows;
use crate::commands::{CommandContext, CommandExamples, doctor, provider, starter_agents};
use crate::composition;
use crate::output::{
    CommandError, CommandResult, Output, cut_to_width, first_line, format_age, format_table_for,
    window_width,
};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("status", &["regatta status", "regatta status --json"])];

/// The kind of directory in which `regatta` was started, if the directory belongs to no project of
/// a running daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum StartingPoint {
    /// The directory is outside of any git repository.
    NoRepository,
    /// The directory is in a git repository that is not a project of Regatta yet.
    NewRepository,
    /// The directory is in a project, but no daemon runs.
    StoppedDaemon,
}

impl StartingPoint {
    fn describe(self, directory: &std::path::Path) -> String {
        let place = first_line(&directory.display().to_string());
        match self {
            StartingPoint::NoRepository => format!("{place} is not in a git repository"),
            StartingPoint::NewRepository => {
                format!("{place} is a git repository that Regatta does not manage yet")
            }
            StartingPoint::StoppedDaemon => {
                format!("{place} is a project of Regatta, and the daemon is not running")
            }
        }
    }

    fn next_command(self) -> &'static str {
        match self {
            StartingPoint::NoRepository => "regatta demo",
            StartingPoint::NewRepository => "regatta init",
            StartingPoint::StoppedDaemon => "regatta up",
        }
    }
}

/// The number of commands that the status suggests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suggestions {
    All,
    /// The one command that a person should type next.
    One,
}

/// Runs `regatta` without a command: prints the status inside a project, and elsewhere the kind of
/// directory. Suggests one command to type next.
pub(crate) fn run_without_command(app: &CommandContext) -> CommandResult {
    // With --server or --project the command is about what these options name, and not about this
    // directory.
    if app.global.server.is_some() || app.global.project.is_some() {
        return print_status(app, Suggestions::One);
    }
    let data_dir = app.data_dir()?;
    let client = Client::find(&data_dir, app.timeout())?;
    if let Some(client) = &client
        && app.project(client)?.is_some()
    {
        return print_status(app, Suggestions::One);
    }
    let here = app.working_dir()?;
    let repository = app.enclosing_repository()?;
    let point = match &repository {
        None => StartingPoint::NoRepository,
        Some(_) if client.is_none() && is_in_stored_project(app, &data_dir)? => {
            StartingPoint::StoppedDaemon
        }
        Some(_) => StartingPoint::NewRepository,
    };
    let next = point.next_command();
    let answer = serde_json::json!({ "state": point, "next": next });
    app.output.print_answer("start", &answer, &[], |out| {
        let place = point.describe(repository.as_deref().unwrap_or(&here));
        let others = [
            (
                "regatta demo",
                "see a whole run in a few seconds, on a throw-away repository",
            ),
            ("regatta doctor", "find problems in the setup"),
            ("regatta --help", "all commands"),
        ];
        let others = others.map(|(command, what)| vec![out.command(command), what.to_owned()]);
        format!(
            "{place}\nnext   {}\n\n{}",
            out.command(next),
            format_table_for(&others, None)
        )
    })
}

/// Returns true if the store of the stopped daemon has the project that contains the current
/// directory. A fresh clone of a repository with a `regatta.toml` is in no store yet, so it needs
/// `regatta init` on this machine. A store that cannot be read counts as well, because
/// `regatta up` reports why.
fn is_in_stored_project(
    app: &CommandContext,
    data_dir: &std::path::Path,
) -> Result<bool, CommandError> {
    let store = data_dir.join(composition::STORE_FILE);
    match regatta_store::examine(&store) {
        Ok(Some(state)) => {
            let projects = state.board.projects.values();
            let places: Vec<_> = projects
                .map(|project| (project.name.clone(), project.location.clone()))
                .collect();
            Ok(app.containing_project(&places)?.is_some())
        }
        Ok(None) => Ok(store.exists()),
        Err(_) => Ok(true),
    }
}

/// Runs `regatta status`.
pub(crate) fn status(app: &CommandContext) -> CommandResult {
    print_status(app, Suggestions::All)
}

fn print_status(app: &CommandContext, suggestions: Suggestions) -> CommandResult {
    let client = match app.client() {
        Err(CommandError::Problem(problem)) if problem.code == "down" && !app.output.is_json => {
            // A daemon that a person has stopped is a state and not a fault, so it is the answer.
            let hint = app.output.command(&problem.hint);
            app.output
                .print(&format!("{}\nhint  {hint}\n", problem.message))?;
            return Err(CommandError::Exit(problem.exit_code()));
        }
        client => client?,
    };
    let project = app.project(&client)?;
    let scope = project.clone();
    let reply: CallReply<StatusView> = client.call(call::Status(input::ProjectFilter {
        project: project.clone(),
    }))?;
    let status = &reply.data;
    let inbox: Vec<InboxView> = client
        .call(call::InboxList(input::ProjectFilter { project: scope }))?
        .data;
    let inbox: Vec<InboxView> = inbox.into_iter().filter(InboxView::is_shown).collect();
    let mut next: Vec<String> = match &inbox[..] {
        [] => vec![],
        [item] => crate::commands::inbox::answer_commands(item, false)
            .into_iter()
            .take(1)
            .collect(),
        _ => vec!["regatta inbox".to_owned()],
    };
    // In a narrow terminal the reason of a paused task is cut, and the command to resume the task
    // stands at the reason's end. So list that command among the next commands.
    let paused = status.tasks.iter().find(|view| {
        let reason = view.waits.first();
        reason.is_some_and(|reason| reason.kind == WaitKind::Paused)
    });
    let resume = paused.and_then(|view| schedule::resume_command(&view.task));
    let stopped = status
        .summary
        .missions
        .iter()
        .find(|mission| mission.stopped);
    let resume = resume.or_else(|| Some(format!("regatta run --resume {}", stopped?.id)));
    if suggestions == Suggestions::One && status.summary.working == 0 {
        // Nothing happens before a person resumes the work, so that command is the next one.
        next.splice(0..0, resume);
    } else {
        next.extend(resume);
    }
    let unmanaged = if project.is_none() && !status.projects.is_empty() {
        app.current_repository()?
    } else {
        None
    };
    if unmanaged.is_some() {
        next.push("regatta init".into());
    }
    let counts = &status.summary;
    let is_quiet = counts.working + counts.waiting + counts.needs_you + counts.landing == 0;
    match (
        status.projects.is_empty(),
        is_quiet && counts.completed + counts.failed == 0,
    ) {
        (true, _) => next.extend(["regatta init".to_owned(), "regatta demo".to_owned()]),
        _ if suggestions == Suggestions::One && is_quiet && next.is_empty() => {
            let settings_command = command_to_commit_settings(app);
            next.push(match settings_command {
                Some(command) => command,
                None => command_to_start_work(&client)?,
            });
        }
        (false, true) => next.extend(first_steps(&client)?),
        (false, false) => next.extend(["regatta watch".to_owned(), "regatta open".to_owned()]),
    }
    if !status.unreadable.is_empty() {
        next.insert(0, "regatta doctor".into());
    }
    if is_quiet && counts.completed + counts.failed > 0 {
        next.push("regatta down".into());
    }
    let mut only = None;
    if suggestions == Suggestions::One {
        next.truncate(1);
        if !app.output.is_json {
            only = next.pop();
        }
    }
    app.output.print_answer("status", status, &next, |out| {
        let has_several = status.projects.len() > 1;
        let tip_text = |project: &regatta_api::view::ProjectView| {
            let name = if has_several {
                format!("{} ", project.name)
            } else {
                String::new()
            };
            format!(
                "{name}{} {}",
                project.trunk,
                project
                    .tip
                    .as_ref()
                    .map_or("-", |commit| &commit.as_str()[..10])
            )
        };
        let tips: Vec<String> = status.projects.iter().map(tip_text).collect();
        let spent = if counts.has_spent() {
            format!("{} today · ", counts.spend_text())
        } else {
            String::new()
        };
        let failed = if counts.failed == 0 {
            String::new()
        } else {
            format!("{} failed · ", counts.failed)
        };
        let backlog = if counts.backlog == 0 {
            String::new()
        } else {
            format!("{} in the backlog · ", counts.backlog)
        };
        let mut text = format!(
            "{} working · {} waiting · {backlog}{} · queue {} · {} done · {failed}{spent}{}\n",
            counts.working,
            counts.waiting,
            counts.needs_you_text(),
            counts.landing,
            counts.completed,
            if tips.is_empty() {
                "no project yet".into()
            } else {
                tips.join(" · ")
            }
        );
        if let Some(repository) = &unmanaged {
            text += &format!(
                "! Regatta does not manage {} yet, so this shows all projects; to add it: {}\n",
                first_line(&repository.display().to_string()),
                out.command("regatta init")
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
            let other_side = forecast_collision
                .other
                .map_or_else(|| "the trunk".to_owned(), |id| id.to_string());
            let paths: Vec<&str> = forecast_collision
                .paths
                .iter()
                .map(String::as_str)
                .collect();
            text += &format!(
                "! {} and {other_side} will collide in {}\n",
                forecast_collision.one,
                attempt::first_few(&paths)
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
            text += &crate::commands::queue::unpushed_text(project.unpushed.as_ref());
            text +=
                &crate::commands::queue::trunk_difference_text(project.trunk_differs.as_deref());
        }
        text += &draw_by_mission(out, status, &inbox);
        // `regatta` alone prints its one command as a part of the answer, also without a terminal.
        if let Some(command) = &only {
            text += &format!("next   {}\n", out.command(command));
        }
        text
    })
}

/// Returns the commands that a person should try first in a project without any work.
fn first_steps(client: &crate::client::Client) -> Result<[String; 2], CommandError> {
    let agents: CallReply<Vec<AgentView>> = client.call(call::AgentList(input::EmptyInput {}))?;
    Ok(if agents.data.is_empty() {
        [
            "regatta provider".to_owned(),
            "regatta agent add --help".to_owned(),
        ]
    } else {
        ["regatta run --help".to_owned(), "regatta watch".to_owned()]
    })
}

/// Returns the command that commits the `regatta.toml` of this repository, if `init` has written it
/// and nobody has committed it yet. A repository that cannot be read gets no command here, because
/// `doctor` reports why.
fn command_to_commit_settings(app: &CommandContext) -> Option<String> {
    let (here, data_dir) = (app.working_dir().ok()?, app.data_dir().ok()?);
    let facts = composition::git_adapter(&data_dir).inspect(&here).ok()?;
    let is_untracked = facts.has_untracked_settings;
    is_untracked.then(|| doctor::COMMIT_SETTINGS.to_owned())
}

/// Returns the command with which a person gives agents work in a project where nothing is going
/// on. If no agent can work on a task without a script, returns the command that adds an agent.
fn command_to_start_work(client: &Client) -> Result<String, CommandError> {
    let agents: CallReply<Vec<AgentView>> = client.call(call::AgentList(input::EmptyInput {}))?;
    let is_scripted = |view: &AgentView| matches!(view.agent.runtime, Runtime::Scripted);
    if !agents.data.iter().all(is_scripted) {
        return Ok("regatta run \"WHAT TO DO\"".to_owned());
    }
    let command = starter_agents::first_command(&provider::find_presets());
    Ok(command.unwrap_or_else(|| "regatta provider".to_owned()))
}

/// Draws the tasks grouped by mission, each group with the mission's progress. Tasks without a
/// mission come last.
fn draw_by_mission(out: &Output, status: &StatusView, inbox_items: &[InboxView]) -> String {
    let tasks_of = |mission: Option<MissionId>| -> Vec<TaskView> {
        let mut tasks: Vec<TaskView> = status
            .tasks
            .iter()
            .filter(|task| task.task.mission == mission)
            .cloned()
            .collect();
        tasks.sort_by_key(|task| task.rank);
        tasks
    };
    let head = |mission: &MissionSummary| {
        format!(
            "{} {}   {}",
            mission.id,
            cut_to_width(&first_line(&mission.title), MAX_SUBJECT_WIDTH),
            mission.progress_text()
        )
    };
    let missions = &status.summary.missions;
    let mut groups: Vec<(String, Vec<TaskView>)> = missions
        .iter()
        .map(|mission| (head(mission), tasks_of(Some(mission.id))))
        .collect();
    groups.push(("without a mission".into(), tasks_of(None)));
    // Show also missions that wait for a lead, although they have no task yet.
    let waiting: Vec<String> = missions
        .iter()
        .filter(|mission| mission.queue_position.is_some())
        .map(head)
        .collect();
    groups.retain(|group| !group.1.is_empty() || waiting.contains(&group.0));
    let tasks: Vec<TaskView> = groups.iter().flat_map(|group| group.1.clone()).collect();
    // Format the rows of all groups as one table, so that their columns are aligned.
    let mut rows = task_rows(out, &tasks);
    for (row, task) in rows.iter_mut().zip(&tasks) {
        // Show the agent's question in the last column, because the question is more helpful than
        // the state "needs you".
        if let (Some(inbox), Some(doing)) = (
            inbox_items
                .iter()
                .find(|inbox| inbox.task == Some(task.task.id)),
            row.last_mut(),
        ) {
            *doing = inbox_line(inbox);
        }
    }
    // List also inbox items that belong to no open task, such as a failed task, a budget, or an
    // agent that is not signed in.
    let others = inbox_items
        .iter()
        .filter(|inbox| !tasks.iter().any(|task| inbox.task == Some(task.task.id)));
    // For each row, the number of equal requests, such as ` × 3`. It is added after the subject is
    // cut, so that the number is always visible.
    let mut times = vec![String::new(); rows.len()];
    let mut widths = vec![MAX_SUBJECT_WIDTH; rows.len()];
    for group in InboxGroup::list(others) {
        let inbox = group.first();
        let own_agent = inbox.agent.as_ref().filter(|_| group.count() == 1);
        let state = if inbox.kind == InboxKind::Failed {
            DisplayState::Failed
        } else {
            DisplayState::Needs
        };
        let state = out.format_state(state, state.label());
        let is_request = inbox.ask.is_some();
        times.push(if is_request && group.count() > 1 {
            format!(" × {}", group.count())
        } else {
            String::new()
        });
        // The headline of a group ends with the exact cause, so it is cut later than a subject.
        let (subject, width) = if is_request || group.count() == 1 {
            (first_line(&inbox.subject), MAX_SUBJECT_WIDTH)
        } else {
            (first_line(&group.headline()), MAX_REASON_WIDTH)
        };
        widths.push(width);
        rows.push(vec![
            inbox.id.clone(),
            state,
            subject,
            own_agent.map_or("-".into(), ToString::to_string),
            format_age(inbox.since_wall),
            first_line(&group.advice()),
        ]);
    }
    let whole: Vec<usize> = rows.iter().map(|row| ellipses(&row.concat())).collect();
    for ((row, times), width) in rows.iter_mut().zip(&times).zip(widths) {
        row[2] = cut_to_width(&row[2], width - times.chars().count()) + times;
        row[5] = cut_to_width(&row[5], MAX_REASON_WIDTH);
    }
    // Leave two columns free, because the rows below a mission are indented.
    let window = window_width().map(|width| width.saturating_sub(2));
    let table = format_table_for(&rows, window);
    let shortened = table
        .lines()
        .zip(&whole)
        .position(|(line, whole)| ellipses(line) > *whole);
    let hint = shortened.map_or(String::new(), |row| match tasks.get(row) {
        Some(task) => out.command(&format!(
            "see a shortened line whole: regatta why {}\n",
            task.task.id
        )),
        None => out.command("see a shortened line whole: regatta inbox\n"),
    });
    if missions.is_empty() {
        return table + &hint;
    }
    let mut lines = table.lines();
    let mut text = String::new();
    for (head, tasks) in &groups {
        text += &format!("{head}\n");
        text.extend(
            lines
                .by_ref()
                .take(tasks.len())
                .map(|line| format!("  {line}\n")),
        );
    }
    if rows.len() > tasks.len() {
        text += "other items that need you\n";
        text.extend(lines.map(|line| format!("  {line}\n")));
    }
    text + &hint
}

/// The maximum width of a subject in `status`. `why` prints the whole subject.
const MAX_SUBJECT_WIDTH: usize = 40;

/// The maximum width of the reason why a task waits. Most reasons end with a command, so they may be
/// wider than a subject. `why` prints the whole reason.
const MAX_REASON_WIDTH: usize = 90;

/// Counts the ellipses in a text, each of which shows that a part was cut off.
fn ellipses(text: &str) -> usize {
    text.matches('…').count()
}

/// Describes an inbox item in one line, with its id if that differs from the task's.
fn inbox_line(inbox: &InboxView) -> String {
    let number = if inbox.task.is_some_and(|task| task.to_string() == inbox.id) {
        String::new()
    } else {
        format!("{} ", inbox.id)
    };
    match inbox.kind {
        InboxKind::Permission | InboxKind::Question => {
            format!("{number}{}: {}", inbox.kind, first_line(&inbox.subject))
        }
        _ => format!("{number}{}", first_line(&inbox.why)),
    }
}
