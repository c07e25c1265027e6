//! Draws the page of one task: its details, the log of its agent's program, and its diff.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use regatta_api::live_view::DisplayState;

use crate::output::{cut_to_width, pad_or_cut, short_duration};
use crate::watch::diff::{DiffRowKind, DiffViewLine};
use crate::watch::draw::inbox::{answer_labels, pack_lines};
use crate::watch::draw::{SPLIT_MIN_WIDTH, safe_line, state_glyph, state_style, titled_block};
use crate::watch::model::{ScreenModel, ScreenPage, TaskPane};
use regatta_core::plural;

pub(super) fn draw_task_page(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let facts_height = if area.height < 26 { 5 } else { 9 };
    let [facts, panes] =
        Layout::vertical([Constraint::Length(facts_height), Constraint::Min(0)]).areas(area);
    draw_task_details(model, frame, facts);
    if area.width >= SPLIT_MIN_WIDTH {
        let [left, right] =
            Layout::horizontal([Constraint::Percentage(50), Constraint::Min(0)]).areas(panes);
        draw_log(model, frame, left);
        draw_diff(model, frame, right);
    } else {
        match model.pane {
            TaskPane::Log => draw_log(model, frame, panes),
            TaskPane::Diff => draw_diff(model, frame, panes),
        }
    }
}

fn draw_task_details(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let Some(task_page) = &model.task else {
        let ScreenPage::Task(id) = model.page else {
            return;
        };
        frame.render_widget(titled_block(model, format!(" {id} "), false), area);
        return;
    };
    let task = &task_page.task.task;
    let title = format!(" {} {} ", task.id, safe_line(&task.subject));
    let frame_of = titled_block(model, title, false);
    let inner = frame_of.inner(area);
    frame.render_widget(frame_of, area);
    let agent = task
        .agent
        .as_ref()
        .or(task.assignee.as_ref())
        .map_or_else(|| "-".into(), ToString::to_string);
    let word = &task_page.task.word;
    let mut lines = vec![Line::from(vec![
        Span::styled(
            format!(
                "{} {} ",
                state_glyph(model, task_page.task.at),
                safe_line(word)
            ),
            state_style(model, task_page.task.at),
        ),
        Span::raw(format!("{agent}  {}", safe_line(&task_page.branch))),
    ])];
    if let Some(request) = model.request_of_task(task.id) {
        let room = usize::from(inner.width);
        let subject = format!("{} {}", request.item.id, safe_line(&request.item.subject));
        lines.push(Line::styled(
            cut_to_width(&subject, room),
            state_style(model, DisplayState::Needs),
        ));
        lines.extend(
            pack_lines(answer_labels(request), room)
                .into_iter()
                .map(Line::raw),
        );
    } else if let Some(reason) = task_page.task.waits.first() {
        let text = format!("{}  {}", reason.kind.name(), safe_line(&reason.text));
        lines.push(Line::raw(cut_to_width(&text, usize::from(inner.width))));
    } else if let Some(live) = &task_page.task.live {
        lines.push(Line::raw(cut_to_width(
            &safe_line(live),
            usize::from(inner.width),
        )));
    }
    if !task_page.time.is_empty() {
        let mut spans = vec![Span::raw("time  ")];
        for bar in task_page.time.iter().rev().take(12).rev() {
            let long = short_duration(
                bar.to
                    .unwrap_or(model.current_unix_ms())
                    .saturating_sub(bar.from),
            );
            spans.push(Span::styled(
                format!("{}{long} ", state_glyph(model, bar.at)),
                state_style(model, bar.at),
            ));
        }
        lines.push(Line::from(spans));
    }
    for check in &task_page.checklist {
        let (sign, plain) = match check.good {
            Some(true) => ("✓", "+"),
            Some(false) => ("✕", "x"),
            None => ("·", "."),
        };
        let text = format!(
            "{} {}",
            if model.is_unicode { sign } else { plain },
            safe_line(&check.text)
        );
        lines.push(Line::raw(cut_to_width(&text, usize::from(inner.width))));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

fn draw_log(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let new = if model.log.is_following {
        String::new()
    } else {
        format!("· {} more below ", model.log.lines_below)
    };
    let name = model
        .log
        .attempt
        .map_or_else(String::new, |id| format!("{id} "));
    let raw = if model.log.is_raw { "raw " } else { "" };
    let frame_of = titled_block(
        model,
        format!(" Log {name}{raw}{new}"),
        model.pane == TaskPane::Log,
    );
    let inner = frame_of.inner(area);
    frame.render_widget(frame_of, area);
    if let Some(problem) = &model.log.problem {
        frame.render_widget(
            Paragraph::new(safe_line(problem)).wrap(Wrap { trim: false }),
            inner,
        );
        return;
    }
    let empty = if model.log.attempt.is_some() {
        "no output yet"
    } else {
        "no attempt yet"
    };
    let lines: Vec<Line<'_>> = if model.log.lines.is_empty() {
        vec![Line::raw(empty)]
    } else {
        model
            .log
            .rows(usize::from(inner.width), usize::from(inner.height))
            .into_iter()
            .map(|row| {
                let style = log_row_style(model, &row);
                Line::styled(row, style)
            })
            .collect()
    };
    frame.render_widget(Paragraph::new(lines), inner);
}

/// Returns the style of a row of the log: the first row of a tool call's group has the style of the
/// call's state, and the rows of its output are dim.
fn log_row_style(model: &ScreenModel, row: &str) -> Style {
    match row.chars().next() {
        Some('✕') => state_style(model, DisplayState::Failed),
        Some('▸') => state_style(model, DisplayState::Working),
        Some(' ' | '·') => Style::default().add_modifier(Modifier::DIM),
        _ => Style::default(),
    }
}

fn draw_diff(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let ScreenPage::Task(id) = model.page else {
        return;
    };
    let (files, drafts) = (model.diff.files.len(), model.drafts.get(&id));
    let mut title = vec![if files == 0 {
        "Diff".into()
    } else {
        format!("Diff · {}", plural::count(files, "file"))
    }];
    title.extend(drafts.map(|draft_review| plural::count(draft_review.count(), "draft")));
    title.extend(
        model
            .diff_options
            .is_since_review
            .then(|| "since your review".into()),
    );
    title.extend(
        model
            .diff_options
            .ignores_whitespace
            .then(|| "without spaces".into()),
    );
    let frame_of = titled_block(
        model,
        format!(" {} ", title.join(" · ")),
        model.pane == TaskPane::Diff,
    );
    let inner = frame_of.inner(area);
    frame.render_widget(frame_of, area);
    if let Some(problem) = &model.diff.problem {
        frame.render_widget(
            Paragraph::new(safe_line(problem)).wrap(Wrap { trim: false }),
            inner,
        );
        return;
    }
    if model.diff.task.is_none() {
        frame.render_widget(Paragraph::new("press d to load the diff"), inner);
        return;
    }
    let (width, height) = (usize::from(inner.width), usize::from(inner.height));
    let words = drafts
        .filter(|draft_review| !draft_review.overall.is_empty())
        .map(|draft_review| draft_line(model, &draft_review.overall, width));
    let height = height.saturating_sub(usize::from(words.is_some()));
    let view = model.diff.view(drafts, model.diff_options.is_split, height);
    let lines: Vec<Line<'_>> = words
        .into_iter()
        .chain(
            view.iter()
                .map(|diff_view_line| diff_line(model, diff_view_line, width)),
        )
        .collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

fn draft_line<'a>(model: &ScreenModel, text: &str, width: usize) -> Line<'a> {
    let text = cut_to_width(&safe_line(text), width.saturating_sub(30));
    Line::styled(
        cut_to_width(&format!("   You: {text} (draft, goes with Revise)"), width),
        state_style(model, DisplayState::Review),
    )
}

/// Draws one line of the diff, with a mark if the person is at this line.
fn diff_line<'a>(model: &ScreenModel, diff_view_line: &DiffViewLine<'_>, width: usize) -> Line<'a> {
    let colour = |kind: DiffRowKind| match kind {
        _ if !model.has_colour => Style::default(),
        DiffRowKind::Added => Style::default().fg(Color::Green),
        DiffRowKind::Removed => Style::default().fg(Color::Red),
        DiffRowKind::Hunk => Style::default().fg(Color::Cyan),
        DiffRowKind::Header => Style::default().add_modifier(Modifier::BOLD),
        DiffRowKind::Context => Style::default(),
    };
    let is_selected =
        diff_view_line.contains_row(model.diff.cursor) && model.pane == TaskPane::Diff;
    let mark = Span::raw(if is_selected { ">" } else { " " });
    let line = match diff_view_line {
        DiffViewLine::Single(_, row) => {
            let text = cut_to_width(&row.text, width.saturating_sub(1));
            Line::from(vec![mark, Span::styled(text, colour(row.kind))])
        }
        DiffViewLine::Pair(left, right) => {
            let half = width.saturating_sub(2) / 2;
            let side = |pair: &Option<(usize, &crate::watch::diff::DiffRow)>, kind: DiffRowKind| {
                let text = pair.map_or("", |pair| pair.1.text.as_str());
                Span::styled(pad_or_cut(text, half), colour(kind))
            };
            let bar = Span::raw(if model.is_unicode { "│" } else { "|" });
            Line::from(vec![
                mark,
                side(left, DiffRowKind::Removed),
                bar,
                side(right, DiffRowKind::Added),
            ])
        }
        DiffViewLine::Draft(text) => draft_line(model, text, width),
    };
    if is_selected {
        line.style(Style::default().add_modifier(Modifier::BOLD))
    } else {
        line
    }
}
