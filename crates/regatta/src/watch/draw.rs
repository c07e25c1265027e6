//! Draws the model on a screen of any size. All functions are pure.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use regatta_api::live_view::{AgentLaneView, DisplayState, InboxItemView, LaneBar, TaskRowView};

use super::diff::{DiffRowKind, DiffViewLine, DraftReview};
use super::keys::KEY_HELP;
use super::list_pages;
use super::model::{ConnectionState, Dialog, ListFocus, PAGES, ScreenModel, ScreenPage, TaskPane};
use crate::output::format_time_to_second;
use crate::output::{
    cut_to_width, display_width as columns, pad_or_cut, sanitize_cell, short_duration, wrap,
};

/// The width from which a task's log and diff are shown side by side.
const SPLIT_MIN_WIDTH: u16 = 110;

pub(super) fn draw_screen(model: &ScreenModel, frame: &mut Frame<'_>) {
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_top_bar(model, frame, head);
    match model.page {
        ScreenPage::Now => draw_now_page(model, frame, body),
        ScreenPage::Tasks => draw_tasks(model, frame, body, true),
        ScreenPage::Queue => draw_queue(model, frame, body, true),
        ScreenPage::Cost => draw_cost(model, frame, body),
        ScreenPage::Agents => draw_lanes(model, frame, body, true),
        ScreenPage::Files
        | ScreenPage::Team
        | ScreenPage::Conversations
        | ScreenPage::Events
        | ScreenPage::Setup => draw_text_page(model, frame, body),
        ScreenPage::Task(_) => draw_task_page(model, frame, body),
    }
    draw_bottom_bar(model, frame, foot);
    if let Some(over) = &model.dialog {
        draw_dialog(model, over, frame);
    }
    if !model.is_unicode {
        fold_to_ascii(frame.buffer_mut());
    }
}

/// Replaces all other symbols by ASCII, for a terminal without Unicode.
fn fold_to_ascii(buffer: &mut ratatui::buffer::Buffer) {
    for cell in &mut buffer.content {
        let sign = match cell.symbol() {
            s if s.is_ascii() => continue,
            "·" => "|",
            "…" => ".",
            "×" => "x",
            "“" | "”" => "\"",
            _ => "?",
        };
        cell.set_symbol(sign);
    }
}

/// Returns the first line of a text, safe to draw.
fn safe_line(text: &str) -> String {
    sanitize_cell(text.lines().next().unwrap_or_default())
}

/// Returns a line of the given width. Both ends are complete; the text between them is cut with an
/// ellipsis.
fn line_with_ends<'a>(mut left: Vec<Span<'a>>, text: &str, right: &str, room: usize) -> Line<'a> {
    let taken: usize = left.iter().map(Span::width).sum();
    let right = if right.is_empty() {
        String::new()
    } else {
        format!(" {right}")
    };
    let room = room.saturating_sub(taken + columns(&right));
    left.push(Span::raw(format!(
        "{}{right}",
        cut_to_width(&safe_line(text), room)
    )));
    Line::from(left)
}

/// Returns the number of hidden rows, for the title of a list.
fn hidden_count(many: usize, room: usize) -> String {
    if many > room {
        format!("· {} more: j k ", many - room)
    } else {
        String::new()
    }
}

fn state_style(model: &ScreenModel, at: DisplayState) -> Style {
    let plain = Style::default();
    if !model.has_colour {
        return match at {
            DisplayState::Needs | DisplayState::Failed => plain.add_modifier(Modifier::BOLD),
            _ => plain,
        };
    }
    match at {
        DisplayState::Failed => plain.fg(Color::Red),
        DisplayState::Needs => plain.fg(Color::Magenta).add_modifier(Modifier::BOLD),
        DisplayState::Waiting => plain.fg(Color::Yellow),
        DisplayState::Landing | DisplayState::Review => plain.fg(Color::Cyan),
        DisplayState::Working => plain.fg(Color::Blue),
        DisplayState::Landed => plain.fg(Color::Green),
        DisplayState::Idle | DisplayState::Offline => plain.add_modifier(Modifier::DIM),
    }
}

/// Returns the glyph of a state. Glyph and word are enough to tell states apart without colours.
fn state_glyph(model: &ScreenModel, at: DisplayState) -> &'static str {
    let (sign, plain) = match at {
        DisplayState::Failed => ("✕", "x"),
        DisplayState::Needs => ("!", "!"),
        DisplayState::Waiting => ("‖", "="),
        DisplayState::Landing => ("⇢", "-"),
        DisplayState::Review => ("◇", "?"),
        DisplayState::Working => ("▶", ">"),
        DisplayState::Idle => ("·", "."),
        DisplayState::Offline => ("○", "o"),
        DisplayState::Landed => ("✓", "+"),
    };
    if model.is_unicode { sign } else { plain }
}

fn state_label(at: DisplayState) -> &'static str {
    match at {
        DisplayState::Failed => "failed",
        DisplayState::Needs => "needs you",
        DisplayState::Waiting => "waiting",
        DisplayState::Landing => "landing",
        DisplayState::Review => "review",
        DisplayState::Working => "working",
        DisplayState::Idle => "idle",
        DisplayState::Offline => "offline",
        DisplayState::Landed => "landed",
    }
}

fn titled_block<'a>(model: &ScreenModel, title: String, focused: bool) -> Block<'a> {
    let style = match (focused, model.has_colour) {
        (true, true) => Style::default().fg(Color::Cyan),
        (true, false) => Style::default().add_modifier(Modifier::BOLD),
        (false, _) => Style::default().add_modifier(Modifier::DIM),
    };
    let set = if model.is_unicode {
        ratatui::symbols::border::PLAIN
    } else {
        ASCII_BORDER
    };
    Block::bordered()
        .border_set(set)
        .border_style(style)
        .title(title)
}

const ASCII_BORDER: ratatui::symbols::border::Set<'static> = ratatui::symbols::border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// Returns the index of the first visible row, so that the selected row is visible.
fn first_visible_row(chosen: Option<usize>, room: usize, many: usize) -> usize {
    let at = chosen.unwrap_or(0);
    if at < room {
        0
    } else {
        (at + 1 - room).min(many.saturating_sub(room))
    }
}

/// Returns the text about the connection, and whether the data is current. Old data is always
/// marked with its time.
pub(super) fn link_text(model: &ScreenModel) -> (String, bool) {
    let from = model.data_unix_ms.map_or_else(
        || "none yet".to_owned(),
        |data_unix_m| format!("from {}", format_time_to_second(data_unix_m)),
    );
    match &model.connection {
        ConnectionState::Connecting => ("connecting".into(), false),
        ConnectionState::Live if model.paused_frames.is_some() => {
            (format!("updates paused, data {from}"), false)
        }
        ConnectionState::Live => ("live".into(), true),
        ConnectionState::Disconnected(_) => (format!("reconnecting, data {from}"), false),
    }
}

fn draw_top_bar(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let [one_line, two] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(area);
    let bold = Style::default().add_modifier(Modifier::BOLD);
    let (text, good) = link_text(model);
    let state = match (good, model.has_colour) {
        (true, true) => Style::default().fg(Color::Green),
        (false, true) => Style::default()
            .fg(Color::Yellow)
            .add_modifier(Modifier::BOLD),
        (true, false) => Style::default(),
        (false, false) => Style::default().add_modifier(Modifier::REVERSED),
    };
    let sign = match (good, model.is_unicode) {
        (true, true) => "●",
        (false, true) => "○",
        (true, false) => "*",
        (false, false) => "o",
    };
    let right = format!(" {sign} {text} ");
    let width = u16::try_from(right.chars().count())
        .unwrap_or(u16::MAX)
        .min(one_line.width);
    let [left, status] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(width)]).areas(one_line);
    let mut spans = vec![Span::styled("regatta ", bold)];
    if let Some(head) = &model.head {
        let places: Vec<String> = head
            .projects
            .iter()
            .take(3)
            .map(|project_summary| format!("{}·{}", project_summary.name, project_summary.trunk))
            .collect();
        spans.push(Span::raw(format!("{}  ", safe_line(&places.join(" ")))));
    }
    let taken: usize = spans.iter().map(Span::width).sum();
    for (name, here) in page_names(model.page, usize::from(left.width).saturating_sub(taken)) {
        let style = if here {
            bold.add_modifier(Modifier::UNDERLINED)
        } else {
            Style::default()
        };
        spans.extend([Span::styled(name, style), Span::raw(" ")]);
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), left);
    frame.render_widget(Paragraph::new(Span::styled(right, state)), status);
    let mut sentence = Vec::new();
    match &model.head {
        Some(head) => {
            for (nth, part) in head.sentence.iter().enumerate() {
                let dot = if model.is_unicode { " · " } else { " | " };
                sentence.push(Span::raw(if nth == 0 { "" } else { dot }));
                let style = if part.strong { bold } else { Style::default() };
                sentence.push(Span::styled(safe_line(&part.text), style));
            }
            let slots = format!("  slots {}/{}", head.running, head.slots);
            let taken: usize = sentence.iter().map(Span::width).sum();
            // Leave the number out rather than cut it, because a part of a number is wrong.
            if taken + slots.len() <= usize::from(two.width) {
                sentence.push(Span::raw(slots));
            }
        }
        None => {
            let text = match &model.connection {
                ConnectionState::Disconnected(why) => format!(
                    "no connection to the daemon: {} · start it: regatta up",
                    safe_line(why)
                ),
                _ => "loading".into(),
            };
            sentence.push(Span::raw(text));
        }
    }
    frame.render_widget(Paragraph::new(Line::from(sentence)), two);
}

/// Returns the names of the pages that fit, always with the open page, and an ellipsis if names are
/// left out.
fn page_names(page: ScreenPage, room: usize) -> Vec<(&'static str, bool)> {
    let all = || {
        PAGES
            .into_iter()
            .map(|(_, screen_page, name)| (name, screen_page == page))
    };
    if all().map(|pair| pair.0.len() + 1).sum::<usize>() <= room {
        return all().collect();
    }
    let open = all().find(|pair| pair.1).map_or(0, |pair| pair.0.len() + 1);
    let (mut left, mut names) = (room.saturating_sub(open + 2), Vec::new());
    for (name, here) in all() {
        if here {
            names.push((name, true));
        } else if let Some(rest) = left.checked_sub(name.len() + 1) {
            left = rest;
            names.push((name, false));
        } else {
            left = 0;
        }
    }
    names.push(("…", false));
    names
}

fn draw_bottom_bar(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let (text, style) = match (&model.toast, model.is_choosing_page) {
        (_, true) => {
            let names = PAGES.map(|(key, _, name)| format!("{key} {}", name.to_lowercase()));
            let (long, short) = (
                names.join("  "),
                names.join(" ").replace("conversations", "talks"),
            );
            let room = usize::from(area.width);
            let text = if long.len() + 7 <= room {
                format!("go to: {long}")
            } else {
                short
            };
            (text, Style::default())
        }
        (Some((good, text)), _) => {
            let colour = if *good { Color::Green } else { Color::Red };
            (
                safe_line(text),
                if model.has_colour {
                    Style::default().fg(colour)
                } else {
                    Style::default()
                },
            )
        }
        (None, _) => {
            let keys = match model.page {
                ScreenPage::Now => {
                    "j k select  1-9 answer  r reply  Tab next  Enter open  g go  ? help  q quit"
                }
                ScreenPage::Task(id) if model.request_of_task(id).is_some() => {
                    "1-9 answer  r reply  z snooze  T take over  l log  d diff  Esc back  ? help"
                }
                ScreenPage::Task(id) => match model.drafts.get(&id).map_or(0, DraftReview::count) {
                    0 => "L land  R revise  X drop  T take over  l log  d diff  c comment  ? help",
                    _ => {
                        "R sends your drafts  c comment  j k line  n p file  L land  Esc back  ? \
                        help"
                    }
                },
                ScreenPage::Files
                | ScreenPage::Team
                | ScreenPage::Conversations
                | ScreenPage::Events
                | ScreenPage::Setup => "j k move  g go  . pause updates  ? help  q quit",
                _ => "j k move  Enter open  / filter  g go  . pause updates  ? help  q quit",
            };
            (
                keys.to_owned(),
                Style::default().add_modifier(Modifier::DIM),
            )
        }
    };
    frame.render_widget(
        Paragraph::new(Span::styled(
            cut_to_width(&text, usize::from(area.width)),
            style,
        )),
        area,
    );
}

fn draw_now_page(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let low = area.height < 30;
    let waiting: usize = model
        .queues
        .values()
        .map(|queue_page| queue_page.queue.queue.len())
        .sum();
    let line = u16::try_from(waiting)
        .unwrap_or(u16::MAX)
        .saturating_add(3)
        .min(if low { 4 } else { 8 });
    let [upper, list, train] = Layout::vertical([
        Constraint::Percentage(50),
        Constraint::Min(3),
        Constraint::Length(line),
    ])
    .areas(area);
    let share = if area.width >= SPLIT_MIN_WIDTH {
        40
    } else {
        48
    };
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(share), Constraint::Min(0)]).areas(upper);
    draw_inbox(model, frame, left);
    draw_lanes(model, frame, right, false);
    draw_tasks(model, frame, list, false);
    draw_queue(model, frame, train, false);
}

fn age_text(model: &ScreenModel, since: u64) -> String {
    short_duration(model.current_unix_ms().saturating_sub(since))
}

fn draw_inbox(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let groups = model.groups();
    let many: usize = groups
        .iter()
        .map(|inbox_group| inbox_group.items.len())
        .sum();
    let inner = Block::bordered().inner(area);
    let more = hidden_count(groups.len(), usize::from(inner.height) / 2);
    frame.render_widget(
        titled_block(
            model,
            format!(" Needs you ({many}) {more}"),
            model.focus == ListFocus::Inbox,
        ),
        area,
    );
    if groups.is_empty() {
        let text = if model.head.is_some() {
            "nothing needs you"
        } else {
            ""
        };
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), inner);
        return;
    }
    let only = groups.len() == 1;
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut chosen_at = 0;
    for group in &groups {
        let Some(inbox_item) = group.items.first() else {
            continue;
        };
        let chosen = only || model.selected_group_key.as_deref() == Some(group.key);
        if chosen {
            chosen_at = lines.len();
        }
        lines.extend(inbox_card(
            model,
            inbox_item,
            (group.items.len(), usize::from(inner.width)),
            chosen,
        ));
    }
    // Scroll so that the selected card and its answers are visible.
    let room = usize::from(inner.height);
    let from = chosen_at.min(lines.len().saturating_sub(room));
    let shown: Vec<Line<'_>> = lines.into_iter().skip(from).take(room).collect();
    frame.render_widget(Paragraph::new(shown), inner);
}

/// Joins short texts into as few lines as possible without breaking a text.
fn pack_lines(texts: impl Iterator<Item = String>, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for text in texts {
        match lines
            .last_mut()
            .filter(|s| columns(s) + 2 + columns(&text) <= room)
        {
            Some(last) => *last += &format!("  {text}"),
            None => lines.push(format!("  {text}")),
        }
    }
    lines
}

/// The largest number of lines that a question takes in its card.
const MAX_QUESTION_LINES: usize = 4;

fn inbox_card<'a>(
    model: &ScreenModel,
    inbox_item: &InboxItemView,
    (many, room): (usize, usize),
    chosen: bool,
) -> Vec<Line<'a>> {
    let bold = Style::default().add_modifier(Modifier::BOLD);
    let mark = if chosen { ">" } else { " " };
    let agent = inbox_item
        .item
        .agent
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let times = if many > 1 {
        format!(" × {many}")
    } else {
        String::new()
    };
    let late = if inbox_item.item.escalated {
        " waits long"
    } else {
        ""
    };
    // An item whose id is the task's id shows it once.
    let task = inbox_item
        .item
        .task
        .map(|id| id.to_string())
        .filter(|task| *task != inbox_item.item.id)
        .unwrap_or_default();
    let names = format!("{} {task}", inbox_item.item.kind);
    let head = Span::raw(format!(
        "{mark}{}{times}{late} {} ",
        safe_line(&inbox_item.item.id),
        safe_line(names.trim_end())
    ));
    let style = if chosen {
        state_style(model, DisplayState::Needs)
    } else {
        Style::default()
    };
    let mut lines = vec![
        line_with_ends(
            vec![head],
            &agent,
            &age_text(model, inbox_item.item.since_wall),
            room,
        )
        .style(style),
    ];
    let inside = room.saturating_sub(2);
    if !chosen {
        lines.push(Line::styled(
            format!(
                "  {}",
                cut_to_width(&safe_line(&inbox_item.item.subject), inside)
            ),
            bold,
        ));
        return lines;
    }
    let subject = wrap(
        &safe_line(&inbox_item.item.subject),
        inside,
        MAX_QUESTION_LINES,
    );
    lines.extend(
        subject
            .into_iter()
            .map(|subject| Line::styled(format!("  {subject}"), bold)),
    );
    if !inbox_item.item.why.is_empty() {
        let dim = Style::default().add_modifier(Modifier::DIM);
        let why = wrap(&safe_line(&inbox_item.item.why), inside, 2);
        lines.extend(
            why.into_iter()
                .map(|why| Line::styled(format!("  {why}"), dim)),
        );
    }
    lines.extend(
        pack_lines(answer_labels(inbox_item), room)
            .into_iter()
            .map(Line::raw),
    );
    lines
}

/// Returns the possible answers to an item, each with its digit.
fn answer_labels(inbox_item: &InboxItemView) -> impl Iterator<Item = String> {
    inbox_item
        .actions
        .iter()
        .take(9)
        .enumerate()
        .map(|(nth, action)| format!("{} {}", nth + 1, safe_line(&action.label)))
}

fn draw_lanes(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect, whole: bool) {
    let all = model.visible_lanes();
    let focused = whole || model.focus == ListFocus::Lanes;
    let inner = Block::bordered().inner(area);
    let room = usize::from(inner.height);
    let title = format!(
        " {} agent{} {}",
        all.len(),
        plural_ending(all.len()),
        hidden_count(all.len(), room)
    );
    frame.render_widget(titled_block(model, title, focused), area);
    if all.is_empty() {
        let text = if model.head.is_some() {
            "no agent yet: regatta provider, or regatta agent add"
        } else {
            ""
        };
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), inner);
        return;
    }
    let at = if focused { model.scroll } else { 0 };
    let from = first_visible_row(Some(at), room, all.len());
    let timeline = if inner.width >= 90 {
        usize::from(inner.width) / 3
    } else {
        0
    };
    let names = all
        .iter()
        .map(|agent_lane| columns(&agent_lane.agent.to_string()))
        .max()
        .unwrap_or(8)
        .min(20);
    let row = |(nth, agent_lane): (usize, &&AgentLaneView)| {
        let task = agent_lane.task.map(|id| id.to_string()).unwrap_or_default();
        let mark = if focused && nth == at { ">" } else { " " };
        let mut spans = vec![
            Span::styled(
                format!("{mark}{} ", state_glyph(model, agent_lane.at)),
                state_style(model, agent_lane.at),
            ),
            Span::raw(format!(
                "{} ",
                pad_or_cut(&safe_line(&agent_lane.agent.to_string()), names)
            )),
        ];
        if timeline > 0 {
            let bars = model
                .lane_bars
                .get(&format!("bars/{}", agent_lane.agent))
                .map_or(&[][..], |lane_bars| &lane_bars.bars[..]);
            spans.extend(lane_timeline(model, bars, timeline));
            spans.push(Span::raw(" "));
        }
        let text = if agent_lane.text.is_empty() {
            state_label(agent_lane.at).to_owned()
        } else {
            agent_lane.text.clone()
        };
        spans.push(Span::styled(
            format!("{task:<4} "),
            state_style(model, agent_lane.at),
        ));
        line_with_ends(
            spans,
            &text,
            &age_text(model, agent_lane.since_wall),
            usize::from(inner.width),
        )
    };
    let lines: Vec<Line<'_>> = all
        .iter()
        .enumerate()
        .skip(from)
        .take(room)
        .map(row)
        .collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

/// Draws the last hour of a lane, or less if the data is younger, with one symbol per time slot.
fn lane_timeline<'a>(model: &ScreenModel, bars: &[LaneBar], width: usize) -> Vec<Span<'a>> {
    let now = model.current_unix_ms();
    let oldest = model
        .lane_bars
        .values()
        .flat_map(|lane_bars| &lane_bars.bars)
        .map(|lane_bar| lane_bar.from)
        .min()
        .unwrap_or(now);
    let span = (now.saturating_sub(oldest)).clamp(10_000, 3_600_000);
    let begin = now.saturating_sub(span);
    let sign = |at: DisplayState| match (at, model.is_unicode) {
        (DisplayState::Working, true) => "▇",
        (DisplayState::Waiting, true) => "░",
        (DisplayState::Working, false) => "#",
        (DisplayState::Waiting, false) => "-",
        (other, _) => state_glyph(model, other),
    };
    let cell = |nth: usize| {
        let (from, to) = (
            begin + span * nth as u64 / width as u64,
            begin + span * (nth as u64 + 1) / width as u64,
        );
        let inside = bars
            .iter()
            .filter(|lane_bar| lane_bar.from < to && lane_bar.to.unwrap_or(now.max(to)) > from);
        // Show the most urgent state of each time slot.
        match inside.map(|lane_bar| lane_bar.at).min() {
            Some(at) => Span::styled(sign(at), state_style(model, at)),
            None => Span::raw(" "),
        }
    };
    (0..width).map(cell).collect()
}

fn draw_tasks(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect, whole: bool) {
    let rows = model.visible_rows();
    let filter = if model.filter.is_empty() {
        String::new()
    } else {
        format!("· /{} ", safe_line(&model.filter))
    };
    let focused = whole || model.focus == ListFocus::Tasks;
    // The daemon sends open tasks and only the latest ended ones.
    let all = model
        .head
        .as_ref()
        .map_or(0, |head| head.tasks as usize)
        .max(model.task_rows.len());
    let of = if rows.len() == all {
        String::new()
    } else {
        format!(" of {all}")
    };
    let inner = Block::bordered().inner(area);
    let more = hidden_count(rows.len(), usize::from(inner.height));
    let title = format!(
        " {}{of} task{} {filter}{more}",
        rows.len(),
        plural_ending(all)
    );
    frame.render_widget(titled_block(model, title, focused), area);
    if rows.is_empty() {
        let text = match (model.head.is_some(), model.filter.is_empty()) {
            (false, _) => "",
            (true, true) => "no task yet: regatta run, regatta add, or regatta demo",
            (true, false) if all > model.task_rows.len() => {
                "no listed task matches the filter: Esc clears it; older tasks: regatta task list \
                --all"
            }
            (true, false) => "no task matches the filter: Esc clears it",
        };
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), inner);
        return;
    }
    let room = usize::from(inner.height);
    let at = model
        .selected_task
        .and_then(|id| rows.iter().position(|task_row| task_row.id == id));
    let from = first_visible_row(at, room, rows.len());
    let subject = usize::from(inner.width).saturating_sub(60).clamp(12, 48);
    let row = |task_row: &&TaskRowView| {
        let chosen = model.selected_task == Some(task_row.id);
        let mark = if chosen && focused { ">" } else { " " };
        let agent = task_row
            .agent
            .as_ref()
            .map_or_else(|| "-".into(), ToString::to_string);
        let cost = task_row.micro_usd.map_or(String::new(), |micro_usd| {
            format!(" {}", format_usd(micro_usd))
        });
        let left = vec![
            Span::raw(format!("{mark}{:<5}", task_row.id.to_string())),
            Span::styled(
                format!(
                    "{} {} ",
                    state_glyph(model, task_row.at),
                    pad_or_cut(&safe_line(&task_row.word), 9)
                ),
                state_style(model, task_row.at),
            ),
            Span::raw(format!(
                "{} {} ",
                pad_or_cut(&safe_line(&task_row.subject), subject),
                pad_or_cut(&safe_line(&agent), 12)
            )),
        ];
        let right = format!("{}{}", age_text(model, task_row.since_wall), cost);
        let line = line_with_ends(left, &task_row.text, &right, usize::from(inner.width));
        if chosen && focused {
            line.style(Style::default().add_modifier(Modifier::BOLD))
        } else {
            line
        }
    };
    let lines: Vec<Line<'_>> = rows.iter().skip(from).take(room).map(row).collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

fn plural_ending(many: usize) -> &'static str {
    if many == 1 { "" } else { "s" }
}

fn format_usd(micro: u64) -> String {
    let cents = (micro + 5_000) / 10_000;
    format!("${}.{:02}", cents / 100, cents % 100)
}

fn draw_queue(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect, whole: bool) {
    let focused = whole || model.focus == ListFocus::Queue;
    let waiting: usize = model
        .queues
        .values()
        .map(|queue_page| queue_page.queue.queue.len())
        .sum();
    let inner = Block::bordered().inner(area);
    let mut lines: Vec<Line<'_>> = Vec::new();
    for queue_page in model.visible_queues() {
        let tip = queue_page
            .tip
            .as_ref()
            .map_or("", |id| id.as_str().get(..10).unwrap_or(id.as_str()));
        let held = queue_page
            .queue
            .held
            .as_ref()
            .map_or(String::new(), |queue_hold| {
                format!("  held by {}: {}", queue_hold.by, queue_hold.reason)
            });
        let head = format!(
            "{} {} {tip}  {}{held}",
            queue_page.queue.project, queue_page.queue.trunk, queue_page.text
        );
        let room = usize::from(inner.width);
        lines.push(Line::styled(
            cut_to_width(&safe_line(&head), room),
            Style::default().add_modifier(Modifier::BOLD),
        ));
        let signs = crate::commands::queue::batch_signs(&queue_page.queue, model.is_unicode);
        for (nth, car) in queue_page.queue.queue.iter().enumerate() {
            let sign = signs.get(nth).unwrap_or(&" ");
            let place = car.position.map_or("  ".into(), |car| format!("{car:>2}"));
            let what = format!(
                "{place} {:<4} {}",
                car.task.to_string(),
                safe_line(&car.state)
            );
            let text = format!(
                "{sign}{what}  {} {}",
                safe_line(&car.subject),
                safe_line(&car.detail)
            );
            let at = if car.state == "searching" {
                DisplayState::Failed
            } else {
                DisplayState::Landing
            };
            lines.push(Line::styled(
                cut_to_width(&text, room),
                state_style(model, at),
            ));
        }
        if whole {
            for car in &queue_page.queue.recent {
                let text = format!(
                    "   {:<4} {}  {} {}",
                    car.task.to_string(),
                    safe_line(&car.state),
                    safe_line(&car.subject),
                    safe_line(&car.detail)
                );
                let at = if car.commit.is_some() {
                    DisplayState::Landed
                } else {
                    DisplayState::Failed
                };
                lines.push(Line::styled(
                    cut_to_width(&text, room),
                    state_style(model, at),
                ));
            }
        }
    }
    let room = usize::from(inner.height);
    let title = format!(
        " Landing queue · {waiting} queued {}",
        hidden_count(lines.len(), room)
    );
    frame.render_widget(titled_block(model, title, focused), area);
    let from = if focused {
        model.scroll.min(lines.len().saturating_sub(room))
    } else {
        0
    };
    frame.render_widget(
        Paragraph::new(lines.into_iter().skip(from).take(room).collect::<Vec<_>>()),
        inner,
    );
}

/// Draws a page that is a list of lines.
fn draw_text_page(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let inner = Block::bordered().inner(area);
    let (title, lines) = list_pages::list_page(model, usize::from(inner.width));
    let room = usize::from(inner.height);
    frame.render_widget(
        titled_block(
            model,
            format!(" {title} {}", hidden_count(lines.len(), room)),
            true,
        ),
        area,
    );
    let from = model.scroll.min(lines.len().saturating_sub(room));
    let lines = lines
        .into_iter()
        .skip(from)
        .take(room)
        .map(|(text, style)| Line::styled(text, style));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inner);
}

/// Draws the tables of `regatta cost`.
fn draw_cost(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let frame_of = titled_block(model, " Spent today ".into(), true);
    let inner = frame_of.inner(area);
    frame.render_widget(frame_of, area);
    let Some(cost) = &model.cost else { return };
    let text = crate::commands::cost::draw_cost(
        cost,
        Some(usize::from(inner.width)),
        crate::output::format_time_to_minute,
    );
    let bold = Style::default().add_modifier(Modifier::BOLD);
    let line = |text: &str| {
        if text.starts_with("total ") {
            Line::styled(safe_line(text), bold)
        } else {
            Line::raw(safe_line(text))
        }
    };
    let lines: Vec<Line<'_>> = text.lines().map(line).collect();
    let room = usize::from(inner.height);
    let from = model.scroll.min(lines.len().saturating_sub(room));
    frame.render_widget(
        Paragraph::new(lines.into_iter().skip(from).take(room).collect::<Vec<_>>()),
        inner,
    );
}

fn draw_task_page(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
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
    // An agent that waits for an answer is not working.
    let word = if task_page.task.asks.is_some() {
        self::state_label(DisplayState::Needs)
    } else {
        &task_page.task.word
    };
    let mut lines = vec![Line::from(vec![
        Span::styled(
            format!("{} {} ", state_glyph(model, task_page.at), safe_line(word)),
            state_style(model, task_page.at),
        ),
        Span::raw(format!("{agent}  {}", safe_line(&task_page.branch))),
    ])];
    if let Some(asked) = model.request_of_task(task.id) {
        let room = usize::from(inner.width);
        let subject = format!("{} {}", asked.item.id, safe_line(&asked.item.subject));
        lines.push(Line::styled(
            cut_to_width(&subject, room),
            state_style(model, DisplayState::Needs),
        ));
        lines.extend(
            pack_lines(answer_labels(asked), room)
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
    let lines: Vec<Line<'_>> = match model.log.lines.is_empty() {
        true => vec![Line::raw(empty)],
        false => model
            .log
            .rows(usize::from(inner.width), usize::from(inner.height))
            .into_iter()
            .map(Line::raw)
            .collect(),
    };
    frame.render_widget(Paragraph::new(lines), inner);
}

fn draw_diff(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let ScreenPage::Task(id) = model.page else {
        return;
    };
    let (files, drafts) = (model.diff.files.len(), model.drafts.get(&id));
    let mut title = vec![if files == 0 {
        "Diff".into()
    } else {
        format!("Diff · {files} file{}", plural_ending(files))
    }];
    title.extend(drafts.map(|draft_review| {
        format!(
            "{} draft{}",
            draft_review.count(),
            plural_ending(draft_review.count())
        )
    }));
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

/// Draws one line of a diff, with a mark at the reader's position.
fn diff_line<'a>(model: &ScreenModel, diff_view_line: &DiffViewLine<'_>, width: usize) -> Line<'a> {
    let colour = |kind: DiffRowKind| match kind {
        _ if !model.has_colour => Style::default(),
        DiffRowKind::Added => Style::default().fg(Color::Green),
        DiffRowKind::Removed => Style::default().fg(Color::Red),
        DiffRowKind::Hunk => Style::default().fg(Color::Cyan),
        DiffRowKind::Header => Style::default().add_modifier(Modifier::BOLD),
        DiffRowKind::Context => Style::default(),
    };
    let here = diff_view_line.contains_row(model.diff.cursor) && model.pane == TaskPane::Diff;
    let mark = Span::raw(if here { ">" } else { " " });
    let line = match diff_view_line {
        DiffViewLine::Single(_, row) => {
            let text = cut_to_width(&row.text, width.saturating_sub(1));
            Line::from(vec![mark, Span::styled(text, colour(row.kind))])
        }
        DiffViewLine::Pair(left, right) => {
            let half = width.saturating_sub(2) / 2;
            let side = |pair: &Option<(usize, &super::diff::DiffRow)>, kind: DiffRowKind| {
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
    if here {
        line.style(Style::default().add_modifier(Modifier::BOLD))
    } else {
        line
    }
}

fn draw_dialog(model: &ScreenModel, over: &Dialog, frame: &mut Frame<'_>) {
    let (title, lines) = match over {
        Dialog::Help => {
            let row = |(keys, what): &(&str, &str)| Line::raw(format!("{keys:<12} {what}"));
            (" Keys ", KEY_HELP.iter().map(row).collect::<Vec<_>>())
        }
        Dialog::ActionText { action, text, .. } => {
            let form = action
                .form
                .as_ref()
                .map(|form| format!("the fields of this form, as JSON: {form}"));
            let mut lines = vec![Line::raw(safe_line(&action.label))];
            lines.extend(form.map(|form| Line::raw(safe_line(&form))));
            lines.extend([
                Line::raw(format!("> {}_", safe_line(text))),
                Line::raw("Enter sends, Esc cancels"),
            ]);
            (" In your own words ", lines)
        }
        Dialog::Confirm { action, group } => {
            let many = if group.len() > 1 {
                format!(" ({} times)", group.len())
            } else {
                String::new()
            };
            let what = Line::raw(format!(
                "{}{many}? This cannot be undone.",
                safe_line(&action.label)
            ));
            let cli = Line::raw(format!("same from a shell: {}", safe_line(&action.cli)));
            (
                " Sure? ",
                vec![what, cli, Line::raw("y confirms, n or Esc cancels")],
            )
        }
        Dialog::Comment { place, text } => {
            let about = place
                .as_ref()
                .map_or("the whole change".into(), |(path, line)| {
                    format!("{path} line {line}")
                });
            let lines = vec![
                Line::raw(safe_line(&about)),
                Line::raw(format!("> {}_", safe_line(text))),
                Line::raw("Enter saves a draft, R sends it; an empty comment deletes the draft"),
            ];
            (" What should be different here? ", lines)
        }
        Dialog::Filter { .. } => (
            " Filter tasks by text ",
            vec![Line::raw(format!("/{}_", safe_line(&model.filter)))],
        ),
    };
    let screen = frame.area();
    let width = screen.width.saturating_sub(4).min(72);
    let height = u16::try_from(lines.len() + 2)
        .unwrap_or(u16::MAX)
        .min(screen.height);
    let area = Rect {
        x: screen.x + (screen.width - width) / 2,
        y: screen.y + (screen.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, area);
    frame.render_widget(
        Paragraph::new(lines).block(titled_block(model, title.into(), true)),
        area,
    );
}
