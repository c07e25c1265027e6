//! Prepares the pages of `regatta watch` that are lists of text lines: files, teams, conversations,
//! events and setup. If a command prints the same information, the page shows the text of that
//! command.

use ratatui::style::{Color, Modifier, Style};
use regatta_api::file_map::{FileCell, FolderCell, HolderShare, PathHolder};
use regatta_api::live_view::{CheckLevel, DoctorCheck, DoctorView, ProjectFilesView};
use regatta_api::view::EventView;
use regatta_core::ids::TaskId;
use regatta_core::plural;

use super::model::{ScreenModel, ScreenPage};
use crate::commands;
use crate::commands::events::event_line;
use crate::output::format_time_to_second;
use crate::output::{format_table_for, sanitize_cell};

/// The maximum number of events that the page Events keeps in memory.
const MAX_EVENTS: usize = 1_000;
/// The number of past revisions that are read when the page Events is opened.
const INITIAL_EVENTS: u64 = 400;

/// The page Events: the events that were read so far, as lines.
#[derive(Debug, Default)]
pub(super) struct EventsPage {
    /// The text lines of the events that were read, newest first.
    lines: Vec<String>,
    /// The revision of the last event that was read; `None` before the first answer.
    pub(super) last_revision: Option<u64>,
    problem: Option<String>,
}

impl EventsPage {
    /// Returns the revision after which the next events are to be read. `seq` is the revision of
    /// the data on the screen.
    pub(super) fn read_after(&self, seq: u64) -> u64 {
        self.last_revision
            .unwrap_or(seq.saturating_sub(INITIAL_EVENTS))
    }

    pub(super) fn append(&mut self, read: Result<(u64, Vec<EventView>), String>) {
        let (after, events) = match read {
            Ok(read) => read,
            Err(why) => return self.problem = Some(why),
        };
        if self
            .last_revision
            .is_some_and(|last_revision| after < last_revision)
        {
            return; // the answer to an earlier request
        }
        (self.last_revision, self.problem) = (Some(after), None);
        let new: Vec<String> = events
            .iter()
            .rev()
            .filter_map(event_line)
            .map(|event| sanitize_cell(event.trim_end()))
            .collect();
        self.lines.splice(0..0, new);
        self.lines.truncate(MAX_EVENTS);
    }
}

/// The page Setup: the facts about the daemon's machine, after they were read.
#[derive(Debug, Default)]
pub(super) struct SetupPage {
    pub(super) info: Option<SetupInfo>,
    pub(super) problem: Option<String>,
}

/// The content of the page Setup: the checks of `regatta doctor`, the bridges and the policy rules.
#[derive(Debug)]
pub(super) struct SetupInfo {
    pub(super) doctor: DoctorView,
    /// The title and the text of each list below the checks, such as the bridges.
    pub(super) lists: Vec<(&'static str, String)>,
}

/// Returns the title of the open page and its lines, each with a style and cut to `width`.
pub(super) fn list_page(model: &ScreenModel, width: usize) -> (String, Vec<(String, Style)>) {
    let (title, lines) = match model.page {
        ScreenPage::Files => files_page(model, width),
        ScreenPage::Team => {
            let text = model
                .teams
                .values()
                .map(|team_page| commands::team::draw_team(&team_page.team, Some(width)))
                .collect::<Vec<_>>();
            let none = "no team yet: regatta team add --help";
            (
                plural::count(text.len(), "team"),
                text_blocks(&text, model, none),
            )
        }
        ScreenPage::Conversations => {
            let all: Vec<_> = model
                .conversations
                .values()
                .map(|conversation_page| conversation_page.line.clone())
                .collect();
            let text = commands::bridge::draw_conversations(&all, Some(width));
            let title = plural::count(all.len(), "conversation");
            (title, text_blocks(&[text], model, ""))
        }
        ScreenPage::Events => {
            let problem = model
                .events
                .problem
                .iter()
                .map(|problem| error_line(model, problem));
            let lines = model
                .events
                .lines
                .iter()
                .map(|event| (event.clone(), Style::default()));
            let lines: Vec<_> = problem.chain(lines).collect();
            let none = if model.events.last_revision.is_some() {
                "nothing has happened yet"
            } else {
                "loading"
            };
            ("Events, newest first".into(), or_placeholder(lines, none))
        }
        ScreenPage::Setup => ("Setup".into(), setup_lines(model, width)),
        _ => (String::new(), vec![]),
    };
    (
        title,
        lines
            .into_iter()
            .map(|(text, style)| {
                (
                    crate::output::cut_to_width(&sanitize_cell(&text), width),
                    style,
                )
            })
            .collect(),
    )
}

type StyledLines = Vec<(String, Style)>;

fn bold() -> Style {
    Style::default().add_modifier(Modifier::BOLD)
}

fn error_line(model: &ScreenModel, text: &str) -> (String, Style) {
    (
        text.to_owned(),
        if model.has_colour {
            Style::default().fg(Color::Red)
        } else {
            bold()
        },
    )
}

fn or_placeholder(lines: StyledLines, none: &str) -> StyledLines {
    if lines.is_empty() {
        vec![(none.to_owned(), Style::default())]
    } else {
        lines
    }
}

/// Returns the lines of several texts; the first line of each text is bold. Without any line,
/// returns `none`.
fn text_blocks(texts: &[String], model: &ScreenModel, none: &str) -> StyledLines {
    let lines = texts.iter().flat_map(|text| {
        text.lines().enumerate().map(|(nth, text)| {
            (
                text.to_owned(),
                if nth == 0 { bold() } else { Style::default() },
            )
        })
    });
    or_placeholder(
        lines.collect(),
        if model.head.is_some() {
            none
        } else {
            "loading"
        },
    )
}

fn files_page(model: &ScreenModel, width: usize) -> (String, StyledLines) {
    let all = model
        .files
        .values()
        .flat_map(|project_files| file_lines(model, project_files, width));
    (
        format!("Files of {}", plural::count(model.files.len(), "project")),
        or_placeholder(all.collect(), "loading"),
    )
}

fn file_lines(model: &ScreenModel, project_files: &ProjectFilesView, width: usize) -> StyledLines {
    let mut lines = vec![(
        format!("{}  {}", project_files.project, project_files.text),
        bold(),
    )];
    for collision in &project_files.radar.collisions {
        let other_side = collision
            .other
            .map_or_else(|| "the trunk".to_owned(), |id| id.to_string());
        let text = format!(
            "{} {} and {other_side} will collide in {}",
            conflict_mark(model),
            collision.one,
            collision.paths.join(" ")
        );
        lines.push(error_line(model, &text));
    }
    let mut rows = Vec::new();
    for folder in &project_files.folders {
        rows.push((folder_row(model, folder), !folder.clashing_tasks.is_empty()));
        rows.extend(folder.own_cells.iter().map(|file_cell| {
            (
                file_row(model, file_cell, folder.depth),
                !file_cell.clashing_tasks.is_empty(),
            )
        }));
    }
    if rows.is_empty() {
        lines.push((
            "no file is claimed or wanted, and nothing landed today".into(),
            Style::default(),
        ));
    }
    let cells: Vec<Vec<String>> = rows.iter().map(|(cells, _)| cells.clone()).collect();
    let text = format_table_for(&cells, Some(width));
    let drawn = text.lines().zip(&rows);
    lines.extend(drawn.map(|(text, (_, clashes))| {
        if *clashes {
            error_line(model, text)
        } else {
            (text.to_owned(), Style::default())
        }
    }));
    lines
}

fn conflict_mark(model: &ScreenModel) -> &'static str {
    if model.is_unicode { "✕" } else { "x" }
}

/// Returns the cells of a folder's row: its name, conflicting tasks, today's changes, and the tasks
/// that have claimed files in the folder.
fn folder_row(model: &ScreenModel, folder_cell: &FolderCell) -> Vec<String> {
    let name = if folder_cell.path.is_empty() {
        "top of the repository".into()
    } else {
        format!("{}/", folder_cell.path)
    };
    let describe = |holder_share: &HolderShare| {
        holder_text(
            &holder_share.holder,
            holder_share.task,
            holder_share.deadline_unix_ms,
            &holder_share.until,
        )
    };
    let mut users: Vec<String> = folder_cell.held.iter().map(describe).collect();
    if folder_cell.wanted > 0 {
        users.push(format!("{} wanted", folder_cell.wanted));
    }
    ownership_row(
        model,
        folder_cell.depth,
        &name,
        &folder_cell.clashing_tasks,
        folder_cell.changes_today,
        &users,
    )
}

fn file_row(model: &ScreenModel, file_cell: &FileCell, depth: usize) -> Vec<String> {
    let describe = |path_holder: &PathHolder| {
        let holder = path_holder
            .agent
            .as_ref()
            .map_or_else(|| path_holder.owner.clone(), ToString::to_string);
        holder_text(
            &holder,
            path_holder.task,
            path_holder.deadline_unix_ms,
            &path_holder.until,
        )
    };
    let mut users: Vec<String> = file_cell.held.iter().map(describe).collect();
    if !file_cell.wanted.is_empty() {
        users.push(format!("wanted by {}", task_names(&file_cell.wanted)));
    }
    ownership_row(
        model,
        depth + 1,
        &file_cell.path,
        &file_cell.clashing_tasks,
        file_cell.changes_today,
        &users,
    )
}

/// Returns the cells of one row of the page Files. `users` are the tasks that have claimed the path
/// or wait for it.
fn ownership_row(
    model: &ScreenModel,
    depth: usize,
    name: &str,
    clash: &[TaskId],
    changes_today: u32,
    users: &[String],
) -> Vec<String> {
    let clash_text = if clash.is_empty() {
        String::new()
    } else {
        format!("{} {} meet", conflict_mark(model), task_names(clash))
    };
    let changes = if changes_today == 0 {
        String::new()
    } else {
        format!("{changes_today} today")
    };
    let held = if users.is_empty() {
        "free".into()
    } else {
        users.join(", ")
    };
    vec![
        format!("{}{name}", "  ".repeat(depth.min(8))),
        clash_text,
        changes,
        held,
    ]
}

fn task_names(tasks: &[TaskId]) -> String {
    let names: Vec<String> = tasks.iter().take(6).map(ToString::to_string).collect();
    let more = tasks.len().saturating_sub(6);
    names.join(" and ")
        + &if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        }
}

fn holder_text(holder: &str, task: Option<TaskId>, until_wall: Option<u64>, until: &str) -> String {
    let task = task.map_or(String::new(), |id| format!("{id} "));
    let until = until_wall.map_or_else(
        || until.to_owned(),
        |until_wall| format!("until {}", format_time_to_second(until_wall)),
    );
    format!("{task}{holder} {until}").trim_end().to_owned()
}

fn setup_lines(model: &ScreenModel, width: usize) -> StyledLines {
    let mut lines: StyledLines = model
        .setup
        .problem
        .iter()
        .map(|problem| error_line(model, problem))
        .collect();
    let Some(found) = &model.setup.info else {
        return or_placeholder(lines, "checking the setup");
    };
    let doctor = &found.doctor;
    let rank = |doctor_check: &DoctorCheck| match doctor_check.level {
        CheckLevel::Bad => 0,
        CheckLevel::Warn => 1,
        CheckLevel::Ok => 2,
    };
    let mut checks: Vec<&DoctorCheck> = doctor.checks.iter().collect();
    checks.sort_by_key(|doctor_check| rank(doctor_check));
    let sign = |doctor_check: &DoctorCheck| match (doctor_check.level, model.is_unicode) {
        (CheckLevel::Ok, true) => "✓ ok",
        (CheckLevel::Ok, false) => "+ ok",
        (CheckLevel::Warn, _) => "! warning",
        (CheckLevel::Bad, true) => "✕ error",
        (CheckLevel::Bad, false) => "x error",
    };
    let check = |doctor_check: &&DoctorCheck| {
        let fix = if doctor_check.fix.is_empty() {
            String::new()
        } else {
            format!(" · {}", doctor_check.fix)
        };
        vec![
            sign(doctor_check).to_owned(),
            doctor_check.id.clone(),
            format!("{}{fix}", doctor_check.text),
        ]
    };
    lines.push(("Doctor".into(), bold()));
    lines.extend(table_lines(
        &checks.iter().map(check).collect::<Vec<_>>(),
        width,
    ));
    let here: Vec<Vec<String>> = doctor
        .providers
        .iter()
        .filter(|provider_program| provider_program.program.is_some())
        .map(|provider_program| {
            let version = provider_program
                .version
                .clone()
                .unwrap_or_else(|| "installed".into());
            let next = provider_program.fix.clone().unwrap_or_else(|| {
                format!(
                    "regatta agent add {0} --preset {0}",
                    provider_program.preset
                )
            });
            vec![
                provider_program.preset.clone(),
                provider_program.provider.clone(),
                version,
                provider_program.signed_in.clone(),
                next,
            ]
        })
        .collect();
    let count = format!(
        "Providers: {} of {} known programs are installed",
        here.len(),
        doctor.providers.len()
    );
    lines.push((count, bold()));
    lines.extend(table_lines(&here, width));
    for (title, text) in &found.lists {
        lines.push(((*title).to_owned(), bold()));
        lines.extend(text.lines().map(|line| (line.to_owned(), Style::default())));
    }
    lines
}

fn table_lines(rows: &[Vec<String>], width: usize) -> StyledLines {
    format_table_for(rows, Some(width))
        .lines()
        .map(|line| (line.to_owned(), Style::default()))
        .collect()
}
