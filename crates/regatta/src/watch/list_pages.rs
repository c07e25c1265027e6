//! The pages that are lists of lines: files, teams, conversations, events and setup. They use the
//! text of the corresponding command where there is one.

use ratatui::style::{Color, Modifier, Style};
use regatta_api::live_view::{CheckLevel, DoctorCheck, DoctorView, ProjectFilesView};
use regatta_api::view::EventView;
use regatta_core::file_map::{FileCell, FolderCell, HolderShare, PathHolder};
use regatta_core::ids::TaskId;

use super::model::{ScreenModel, ScreenPage};
use crate::commands::{self, event_line, format_time_to_second};
use crate::output::{format_table_for, sanitize_cell};

/// The largest number of events that are kept.
const MAX_EVENTS: usize = 1_000;
/// How many past events are read when the page is opened.
const INITIAL_EVENTS: u64 = 400;

/// The events that were read so far.
#[derive(Debug, Default)]
pub(super) struct EventsPage {
    /// Newest first.
    lines: Vec<String>,
    /// The last revision that was read.
    pub(super) last_revision: Option<u64>,
    problem: Option<String>,
}

impl EventsPage {
    /// Returns the revision after which to read.
    pub(super) fn read_after(&self, seq: u64) -> u64 {
        self.last_revision
            .unwrap_or(seq.saturating_sub(INITIAL_EVENTS))
    }

    pub(super) fn append(&mut self, read: Result<(u64, Vec<EventView>), String>) {
        let (after, events) = match read {
            Ok(read) => read,
            Err(why) => return self.problem = Some(why),
        };
        if self.last_revision.is_some_and(|it| after < it) {
            return; // the answer to an earlier request
        }
        (self.last_revision, self.problem) = (Some(after), None);
        let new: Vec<String> = events
            .iter()
            .rev()
            .filter_map(event_line)
            .map(|it| sanitize_cell(it.trim_end()))
            .collect();
        self.lines.splice(0..0, new);
        self.lines.truncate(MAX_EVENTS);
    }
}

/// The setup of the daemon's machine, once it was read.
#[derive(Debug, Default)]
pub(super) struct SetupPage {
    pub(super) info: Option<SetupInfo>,
    pub(super) problem: Option<String>,
}

/// The checks of `regatta doctor`, and lists of bridges and rules.
#[derive(Debug)]
pub(super) struct SetupInfo {
    pub(super) doctor: DoctorView,
    /// Titles with the lines of each list.
    pub(super) lists: Vec<(&'static str, String)>,
}

/// Returns the title of a page and its styled lines.
pub(super) fn list_page(model: &ScreenModel, width: usize) -> (String, Vec<(String, Style)>) {
    let (title, lines) = match model.page {
        ScreenPage::Files => files_page(model, width),
        ScreenPage::Team => {
            let text = model
                .teams
                .values()
                .map(|it| commands::team_text(&it.team, Some(width)))
                .collect::<Vec<_>>();
            let none = "no team yet: regatta team add --help";
            (
                format!("{} team{}", text.len(), plural_ending(text.len())),
                text_blocks(&text, model, none),
            )
        }
        ScreenPage::Conversations => {
            let all: Vec<_> = model
                .conversations
                .values()
                .map(|it| it.line.clone())
                .collect();
            let text = commands::conversations_text(&all, Some(width));
            let title = format!("{} conversation{}", all.len(), plural_ending(all.len()));
            (title, text_blocks(&[text], model, ""))
        }
        ScreenPage::Events => {
            let problem = model.events.problem.iter().map(|it| error_line(model, it));
            let lines = model
                .events
                .lines
                .iter()
                .map(|it| (it.clone(), Style::default()));
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

fn plural_ending(many: usize) -> &'static str {
    if many == 1 { "" } else { "s" }
}

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

/// Returns the lines of several texts, each with its first line in bold.
fn text_blocks(texts: &[String], model: &ScreenModel, none: &str) -> StyledLines {
    let lines = texts.iter().flat_map(|text| {
        text.lines().enumerate().map(|(nth, it)| {
            (
                it.to_owned(),
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
        .flat_map(|it| file_lines(model, it, width));
    (
        format!(
            "Files of {} project{}",
            model.files.len(),
            plural_ending(model.files.len())
        ),
        or_placeholder(all.collect(), "loading"),
    )
}

fn file_lines(model: &ScreenModel, it: &ProjectFilesView, width: usize) -> StyledLines {
    let mut lines = vec![(format!("{}  {}", it.project, it.text), bold())];
    for one in &it.radar.collisions {
        let other = one
            .other
            .map_or_else(|| "the trunk".to_owned(), |it| it.to_string());
        let text = format!(
            "{} {} and {other} will collide in {}",
            conflict_mark(model),
            one.one,
            one.paths.join(" ")
        );
        lines.push(error_line(model, &text));
    }
    let mut rows = Vec::new();
    for folder in &it.folders {
        rows.push((folder_row(model, folder), !folder.clashing_tasks.is_empty()));
        rows.extend(folder.own_cells.iter().map(|it| {
            (
                file_row(model, it, folder.depth),
                !it.clashing_tasks.is_empty(),
            )
        }));
    }
    if rows.is_empty() {
        lines.push((
            "no file is claimed or wanted, and nothing landed today".into(),
            Style::default(),
        ));
    }
    let cells: Vec<Vec<String>> = rows.iter().map(|it| it.0.clone()).collect();
    let text = format_table_for(&cells, Some(width));
    let drawn = text.lines().zip(&rows);
    lines.extend(drawn.map(|(text, (_, meet))| {
        if *meet {
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

/// Returns the cells of a folder: name, conflicting tasks, changes today, holders.
fn folder_row(model: &ScreenModel, it: &FolderCell) -> Vec<String> {
    let name = if it.path.is_empty() {
        "top of the repository".into()
    } else {
        format!("{}/", it.path)
    };
    let holds = |it: &HolderShare| holder_text(&it.holder, it.task, it.deadline_unix_ms, &it.until);
    let held: Vec<String> = it.held.iter().map(holds).collect();
    let wanted = if it.wanted > 0 {
        format!("{} wanted", it.wanted)
    } else {
        String::new()
    };
    ownership_row(
        model,
        it.depth,
        &name,
        (&it.clashing_tasks, it.changes_today),
        (held, wanted),
    )
}

fn file_row(model: &ScreenModel, it: &FileCell, depth: usize) -> Vec<String> {
    let holds = |it: &PathHolder| {
        let holder = it
            .agent
            .as_ref()
            .map_or_else(|| it.owner.clone(), ToString::to_string);
        holder_text(&holder, it.task, it.deadline_unix_ms, &it.until)
    };
    let held: Vec<String> = it.held.iter().map(holds).collect();
    let wanted = if it.wanted.is_empty() {
        String::new()
    } else {
        format!("wanted by {}", task_names(&it.wanted))
    };
    ownership_row(
        model,
        depth + 1,
        &it.path,
        (&it.clashing_tasks, it.changes_today),
        (held, wanted),
    )
}

fn ownership_row(
    model: &ScreenModel,
    depth: usize,
    name: &str,
    (clash, hot): (&[TaskId], u32),
    (mut held, wanted): (Vec<String>, String),
) -> Vec<String> {
    let meet = if clash.is_empty() {
        String::new()
    } else {
        format!("{} {} meet", conflict_mark(model), task_names(clash))
    };
    let hot = if hot == 0 {
        String::new()
    } else {
        format!("{hot} today")
    };
    held.extend(Some(wanted).filter(|it| !it.is_empty()));
    let held = if held.is_empty() {
        "free".into()
    } else {
        held.join(", ")
    };
    vec![
        format!("{}{name}", "  ".repeat(depth.min(8))),
        meet,
        hot,
        held,
    ]
}

fn task_names(tasks: &[TaskId]) -> String {
    let shown: Vec<String> = tasks.iter().take(6).map(ToString::to_string).collect();
    let more = tasks.len().saturating_sub(6);
    shown.join(" and ")
        + &if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        }
}

fn holder_text(holder: &str, task: Option<TaskId>, until_wall: Option<u64>, until: &str) -> String {
    let task = task.map_or(String::new(), |it| format!("{it} "));
    let until = until_wall.map_or_else(
        || until.to_owned(),
        |it| format!("until {}", format_time_to_second(it)),
    );
    format!("{task}{holder} {until}").trim_end().to_owned()
}

fn setup_lines(model: &ScreenModel, width: usize) -> StyledLines {
    let mut lines: StyledLines = model
        .setup
        .problem
        .iter()
        .map(|it| error_line(model, it))
        .collect();
    let Some(found) = &model.setup.info else {
        return or_placeholder(lines, "checking the setup");
    };
    let doctor = &found.doctor;
    let rank = |it: &DoctorCheck| match it.level {
        CheckLevel::Bad => 0,
        CheckLevel::Warn => 1,
        CheckLevel::Ok => 2,
    };
    let mut checks: Vec<&DoctorCheck> = doctor.checks.iter().collect();
    checks.sort_by_key(|it| rank(it));
    let sign = |it: &DoctorCheck| match (it.level, model.is_unicode) {
        (CheckLevel::Ok, true) => "✓ ok",
        (CheckLevel::Ok, false) => "+ ok",
        (CheckLevel::Warn, _) => "! warning",
        (CheckLevel::Bad, true) => "✕ error",
        (CheckLevel::Bad, false) => "x error",
    };
    let check = |it: &&DoctorCheck| {
        let fix = if it.fix.is_empty() {
            String::new()
        } else {
            format!(" · {}", it.fix)
        };
        vec![
            sign(it).to_owned(),
            it.id.clone(),
            format!("{}{fix}", it.text),
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
        .filter(|it| it.program.is_some())
        .map(|it| {
            let version = it.version.clone().unwrap_or_else(|| "installed".into());
            let next = it
                .fix
                .clone()
                .unwrap_or_else(|| format!("regatta agent add {0} --preset {0}", it.preset));
            vec![
                it.preset.clone(),
                it.provider.clone(),
                version,
                it.signed_in.clone(),
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
        lines.extend(text.lines().map(|it| (it.to_owned(), Style::default())));
    }
    lines
}

fn table_lines(rows: &[Vec<String>], width: usize) -> StyledLines {
    format_table_for(rows, Some(width))
        .lines()
        .map(|it| (it.to_owned(), Style::default()))
        .collect()
}
