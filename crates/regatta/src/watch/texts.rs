//! The pages that are lists of lines: files, teams, conversations, events and setup. They use the
//! text of the corresponding command where there is one.

use ratatui::style::{Color, Modifier, Style};
use regatta_api::page::{CheckLine, DoctorView, FilesView, Level};
use regatta_api::view::EventView;
use regatta_core::ids::TaskId;
use regatta_core::map::{Folder, Held, Share, Spot};

use super::model::{Model, Page};
use crate::out::{fit, inert};
use crate::words::{self, hour, plain_events};

/// The largest number of events that are kept.
const MOST_EVENTS: usize = 1_000;
/// How many past events are read when the page is opened.
const EVENTS_BEFORE: u64 = 400;

/// The events that were read so far.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Newest first.
    lines: Vec<String>,
    /// The last revision that was read.
    pub(super) after: Option<u64>,
    problem: Option<String>,
}

impl Events {
    /// Returns the revision after which to read.
    pub(super) fn from(&self, seq: u64) -> u64 {
        self.after.unwrap_or(seq.saturating_sub(EVENTS_BEFORE))
    }

    pub(super) fn take(&mut self, read: Result<(u64, Vec<EventView>), String>) {
        let (after, events) = match read {
            Ok(read) => read,
            Err(why) => return self.problem = Some(why),
        };
        if self.after.is_some_and(|it| after < it) {
            return; // the answer to an earlier request
        }
        (self.after, self.problem) = (Some(after), None);
        let new: Vec<String> = events.iter().rev().filter_map(plain_events).map(|it| inert(it.trim_end())).collect();
        self.lines.splice(0..0, new);
        self.lines.truncate(MOST_EVENTS);
    }
}

/// The setup of the daemon's machine, once it was read.
#[derive(Debug, Default)]
pub(super) struct Setup {
    pub(super) found: Option<Found>,
    pub(super) problem: Option<String>,
}

/// The checks of `regatta doctor`, and lists of bridges and rules.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) doctor: DoctorView,
    /// Titles with the lines of each list.
    pub(super) lists: Vec<(&'static str, String)>,
}

/// Returns the title of a page and its styled lines.
pub(super) fn page(model: &Model, width: usize) -> (String, Vec<(String, Style)>) {
    let (title, lines) = match model.page {
        Page::Files => files(model, width),
        Page::Team => {
            let text = model.teams.values().map(|it| words::team_text(&it.team, Some(width))).collect::<Vec<_>>();
            let none = "no team yet: regatta team add --help";
            (format!("{} team{}", text.len(), plural(text.len())), blocks(&text, model, none))
        }
        Page::Conversations => {
            let all: Vec<_> = model.talks.values().map(|it| it.line.clone()).collect();
            let text = words::conversations_text(&all, Some(width));
            let title = format!("{} conversation{}", all.len(), plural(all.len()));
            (title, blocks(&[text], model, ""))
        }
        Page::Events => {
            let problem = model.events.problem.iter().map(|it| bad(model, it));
            let lines = model.events.lines.iter().map(|it| (it.clone(), Style::default()));
            let lines: Vec<_> = problem.chain(lines).collect();
            let none = if model.events.after.is_some() { "nothing has happened yet" } else { "loading" };
            ("Events, newest first".into(), or_none(lines, none))
        }
        Page::Setup => ("Setup".into(), setup(model, width)),
        _ => (String::new(), vec![]),
    };
    (title, lines.into_iter().map(|(text, style)| (crate::out::cut(&inert(&text), width), style)).collect())
}

type Lines = Vec<(String, Style)>;

fn plural(many: usize) -> &'static str {
    if many == 1 { "" } else { "s" }
}

fn bold() -> Style {
    Style::default().add_modifier(Modifier::BOLD)
}

fn bad(model: &Model, text: &str) -> (String, Style) {
    (text.to_owned(), if model.colour { Style::default().fg(Color::Red) } else { bold() })
}

fn or_none(lines: Lines, none: &str) -> Lines {
    if lines.is_empty() { vec![(none.to_owned(), Style::default())] } else { lines }
}

/// Returns the lines of several texts, each with its first line in bold.
fn blocks(texts: &[String], model: &Model, none: &str) -> Lines {
    let lines = texts.iter().flat_map(|text| {
        text.lines().enumerate().map(|(nth, it)| (it.to_owned(), if nth == 0 { bold() } else { Style::default() }))
    });
    or_none(lines.collect(), if model.head.is_some() { none } else { "loading" })
}

fn files(model: &Model, width: usize) -> (String, Lines) {
    let all = model.files.values().flat_map(|it| files_of(model, it, width));
    (format!("Files of {} project{}", model.files.len(), plural(model.files.len())), or_none(all.collect(), "loading"))
}

fn files_of(model: &Model, it: &FilesView, width: usize) -> Lines {
    let mut lines = vec![(format!("{}  {}", it.project, it.text), bold())];
    for one in &it.radar.collisions {
        let other = one.other.map_or_else(|| "the trunk".to_owned(), |it| it.to_string());
        let text = format!("{} {} and {other} will collide in {}", cross(model), one.one, one.paths.join(" "));
        lines.push(bad(model, &text));
    }
    let mut rows = Vec::new();
    for folder in &it.folders {
        rows.push((of_folder(model, folder), !folder.clash.is_empty()));
        rows.extend(folder.own.iter().map(|it| (of_spot(model, it, folder.depth), !it.clash.is_empty())));
    }
    if rows.is_empty() {
        lines.push(("no file is claimed or wanted, and nothing landed today".into(), Style::default()));
    }
    let cells: Vec<Vec<String>> = rows.iter().map(|it| it.0.clone()).collect();
    let text = fit(&cells, Some(width));
    let drawn = text.lines().zip(&rows);
    lines.extend(
        drawn.map(|(text, (_, meet))| if *meet { bad(model, text) } else { (text.to_owned(), Style::default()) }),
    );
    lines
}

fn cross(model: &Model) -> &'static str {
    if model.unicode { "✕" } else { "x" }
}

/// Returns the cells of a folder: name, conflicting tasks, changes today, holders.
fn of_folder(model: &Model, it: &Folder) -> Vec<String> {
    let name = if it.path.is_empty() { "top of the repository".into() } else { format!("{}/", it.path) };
    let holds = |it: &Share| who(&it.holder, it.task, it.until_wall, &it.until);
    let held: Vec<String> = it.held.iter().map(holds).collect();
    let wanted = if it.wanted > 0 { format!("{} wanted", it.wanted) } else { String::new() };
    line(model, it.depth, &name, (&it.clash, it.hot), (held, wanted))
}

fn of_spot(model: &Model, it: &Spot, depth: usize) -> Vec<String> {
    let holds = |it: &Held| {
        let holder = it.agent.as_ref().map_or_else(|| it.owner.clone(), ToString::to_string);
        who(&holder, it.task, it.until_wall, &it.until)
    };
    let held: Vec<String> = it.held.iter().map(holds).collect();
    let wanted = if it.wanted.is_empty() { String::new() } else { format!("wanted by {}", named(&it.wanted)) };
    line(model, depth + 1, &it.path, (&it.clash, it.hot), (held, wanted))
}

fn line(
    model: &Model,
    depth: usize,
    name: &str,
    (clash, hot): (&[TaskId], u32),
    (mut held, wanted): (Vec<String>, String),
) -> Vec<String> {
    let meet = if clash.is_empty() { String::new() } else { format!("{} {} meet", cross(model), named(clash)) };
    let hot = if hot == 0 { String::new() } else { format!("{hot} today") };
    held.extend(Some(wanted).filter(|it| !it.is_empty()));
    let held = if held.is_empty() { "free".into() } else { held.join(", ") };
    vec![format!("{}{name}", "  ".repeat(depth.min(8))), meet, hot, held]
}

fn named(tasks: &[TaskId]) -> String {
    let shown: Vec<String> = tasks.iter().take(6).map(ToString::to_string).collect();
    let more = tasks.len().saturating_sub(6);
    shown.join(" and ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

fn who(holder: &str, task: Option<TaskId>, until_wall: Option<u64>, until: &str) -> String {
    let task = task.map_or(String::new(), |it| format!("{it} "));
    let until = until_wall.map_or_else(|| until.to_owned(), |it| format!("until {}", hour(it)));
    format!("{task}{holder} {until}").trim_end().to_owned()
}

fn setup(model: &Model, width: usize) -> Lines {
    let mut lines: Lines = model.setup.problem.iter().map(|it| bad(model, it)).collect();
    let Some(found) = &model.setup.found else {
        return or_none(lines, "checking the setup");
    };
    let doctor = &found.doctor;
    let rank = |it: &CheckLine| match it.level {
        Level::Bad => 0,
        Level::Warn => 1,
        Level::Ok => 2,
    };
    let mut checks: Vec<&CheckLine> = doctor.checks.iter().collect();
    checks.sort_by_key(|it| rank(it));
    let sign = |it: &CheckLine| match (it.level, model.unicode) {
        (Level::Ok, true) => "✓ ok",
        (Level::Ok, false) => "+ ok",
        (Level::Warn, _) => "! warning",
        (Level::Bad, true) => "✕ error",
        (Level::Bad, false) => "x error",
    };
    let check = |it: &&CheckLine| {
        let fix = if it.fix.is_empty() { String::new() } else { format!(" · {}", it.fix) };
        vec![sign(it).to_owned(), it.id.clone(), format!("{}{fix}", it.text)]
    };
    lines.push(("Doctor".into(), bold()));
    lines.extend(rows(&checks.iter().map(check).collect::<Vec<_>>(), width));
    let here: Vec<Vec<String>> = doctor
        .providers
        .iter()
        .filter(|it| it.program.is_some())
        .map(|it| {
            let version = it.version.clone().unwrap_or_else(|| "installed".into());
            let next = it.fix.clone().unwrap_or_else(|| format!("regatta agent add {0} --preset {0}", it.preset));
            vec![it.preset.clone(), it.provider.clone(), version, it.signed_in.clone(), next]
        })
        .collect();
    let count = format!("Providers: {} of {} known programs are installed", here.len(), doctor.providers.len());
    lines.push((count, bold()));
    lines.extend(rows(&here, width));
    for (title, text) in &found.lists {
        lines.push(((*title).to_owned(), bold()));
        lines.extend(text.lines().map(|it| (it.to_owned(), Style::default())));
    }
    lines
}

fn rows(rows: &[Vec<String>], width: usize) -> Lines {
    fit(rows, Some(width)).lines().map(|it| (it.to_owned(), Style::default())).collect()
}
