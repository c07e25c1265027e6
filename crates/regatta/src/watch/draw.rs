//! Draws the screen of `regatta watch` from the model, for a terminal of any size. The functions
//! only read the model.

mod dialog;
mod inbox;
mod lists;
mod task_page;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};
use regatta_core::display::{ColourRole, DisplayState};

use crate::output::{
    cut_to_width, display_width as columns, format_time_to_second, pad_or_cut, sanitize_cell,
    short_duration,
};
use crate::watch::diff::DraftReview;
use crate::watch::draw::dialog::draw_dialog;
use crate::watch::draw::inbox::draw_inbox;
use crate::watch::draw::lists::{draw_lanes, draw_queue, draw_tasks};
use crate::watch::draw::task_page::draw_task_page;
use crate::watch::list_pages;
use crate::watch::model::{ConnectionState, PAGES, ScreenModel, ScreenPage};

/// The minimum width of the terminal, in columns, at which a task's log and diff are shown side by
/// side.
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

/// Replaces all symbols outside of ASCII in the drawn screen, for a terminal without Unicode.
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

/// Returns the first line of a text, without characters that could control the terminal.
fn safe_line(text: &str) -> String {
    sanitize_cell(text.lines().next().unwrap_or_default())
}

/// Returns a line of `room` columns: `right` in full at its end, before that `left`, and `text`
/// between them, cut to fit. If `left` does not fit either, its end is cut.
fn line_with_ends<'a>(left: Vec<Span<'a>>, text: &str, right: &str, room: usize) -> Line<'a> {
    let right = if right.is_empty() {
        String::new()
    } else {
        format!(" {right}")
    };
    let mut free = room.saturating_sub(columns(&right));
    let mut spans = Vec::with_capacity(left.len() + 1);
    for span in left {
        let cut = cut_to_width(&span.content, free);
        free = free.saturating_sub(columns(&cut));
        spans.push(Span::styled(cut, span.style));
    }
    let text = pad_or_cut(&safe_line(text), free);
    spans.push(Span::raw(format!("{text}{right}")));
    Line::from(spans)
}

/// Returns a note for the title of a list about the rows that do not fit, and the keys that scroll
/// to them. Returns an empty text if all rows fit.
fn hidden_count(many: usize, room: usize) -> String {
    if many > room {
        format!("· {} more: j k ", many - room)
    } else {
        String::new()
    }
}

fn state_style(model: &ScreenModel, state: DisplayState) -> Style {
    let plain = Style::default();
    if !model.has_colour {
        return match state {
            DisplayState::Needs | DisplayState::Failed => plain.add_modifier(Modifier::BOLD),
            _ => plain,
        };
    }
    match state.colour() {
        ColourRole::Bad => plain.fg(Color::Red),
        ColourRole::Attention => plain.fg(Color::Magenta).add_modifier(Modifier::BOLD),
        ColourRole::Waiting => plain.fg(Color::Yellow),
        ColourRole::Checking => plain.fg(Color::Cyan),
        ColourRole::Active => plain.fg(Color::Blue),
        ColourRole::Good => plain.fg(Color::Green),
        ColourRole::Quiet => plain.add_modifier(Modifier::DIM),
    }
}

/// Returns the glyph of a state. Each state has its own glyph and word, so that states differ also
/// without colours.
fn state_glyph(model: &ScreenModel, state: DisplayState) -> &'static str {
    if model.is_unicode {
        state.glyph()
    } else {
        state.ascii_glyph()
    }
}

fn titled_block<'a>(model: &ScreenModel, title: String, is_focused: bool) -> Block<'a> {
    let style = match (is_focused, model.has_colour) {
        (true, true) => Style::default().fg(Color::Cyan),
        (true, false) => Style::default().add_modifier(Modifier::BOLD),
        (false, _) => Style::default().add_modifier(Modifier::DIM),
    };
    let symbols = if model.is_unicode {
        ratatui::symbols::border::PLAIN
    } else {
        ASCII_BORDER
    };
    Block::bordered()
        .border_set(symbols)
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

/// Returns the index of the first row to show, chosen so that the selected row is visible.
fn first_visible_row(selected: Option<usize>, room: usize, count: usize) -> usize {
    let row = selected.unwrap_or(0);
    if row < room {
        0
    } else {
        (row + 1 - room).min(count.saturating_sub(room))
    }
}

/// Returns the text about the connection to the daemon, and true if the data on the screen is
/// current. If the data is not current, the text contains the time of the data.
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
    let [first_line_area, second_line_area] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(area);
    let bold = Style::default().add_modifier(Modifier::BOLD);
    let (text, is_connected) = link_text(model);
    let state = match (is_connected, model.has_colour) {
        (true, true) => Style::default().fg(Color::Green),
        (false, true) => Style::default()
            .fg(Color::Yellow)
            .add_modifier(Modifier::BOLD),
        (true, false) => Style::default(),
        (false, false) => Style::default().add_modifier(Modifier::REVERSED),
    };
    let sign = match (is_connected, model.is_unicode) {
        (true, true) => "●",
        (false, true) => "○",
        (true, false) => "*",
        (false, false) => "o",
    };
    let right = format!(" {sign} {text} ");
    let width = u16::try_from(right.chars().count())
        .unwrap_or(u16::MAX)
        .min(first_line_area.width);
    let [left, status] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(width)]).areas(first_line_area);
    let mut spans = vec![Span::styled("regatta ", bold)];
    if let Some(head) = &model.head {
        let mut projects: Vec<_> = head.projects.iter().collect();
        projects.sort_by_key(|project| Some(&project.name) != model.own_project.as_ref());
        let projects: Vec<String> = projects
            .into_iter()
            .take(3)
            .map(|project_summary| format!("{}·{}", project_summary.name, project_summary.trunk))
            .collect();
        spans.push(Span::raw(format!("{}  ", safe_line(&projects.join(" ")))));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    for (name, is_current) in page_names(model.page, usize::from(left.width).saturating_sub(used)) {
        let style = if is_current {
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
            let used: usize = sentence.iter().map(Span::width).sum();
            // If the text does not fit, leave it out completely, because a reader would misread a
            // number that is cut off.
            if used + slots.len() <= usize::from(second_line_area.width) {
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
    frame.render_widget(Paragraph::new(Line::from(sentence)), second_line_area);
}

/// Returns the names of the pages for the top bar, each with true if the page is open. Names that
/// do not fit are replaced by an ellipsis, but the open page is always shown.
fn page_names(page: ScreenPage, room: usize) -> Vec<(&'static str, bool)> {
    let all = || {
        PAGES
            .into_iter()
            .map(|(_, screen_page, name)| (name, screen_page == page))
    };
    if all().map(|(name, _)| name.len() + 1).sum::<usize>() <= room {
        return all().collect();
    }
    let current_width = all()
        .find(|(_, is_current)| *is_current)
        .map_or(0, |(name, _)| name.len() + 1);
    let (mut free, mut names) = (room.saturating_sub(current_width + 2), Vec::new());
    for (name, is_current) in all() {
        if is_current {
            names.push((name, true));
        } else if let Some(rest) = free.checked_sub(name.len() + 1) {
            free = rest;
            names.push((name, false));
        } else {
            free = 0;
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

/// The height of the lists on the page Now, in lines with their borders.
#[derive(Debug, PartialEq, Eq)]
struct NowHeights {
    /// The height of the inbox and of the agents beside it.
    upper: u16,
    queue: u16,
}

/// Shares the height of the page Now: the upper lists get half of it, or less if they need less, or
/// more if the tasks leave room. The arguments are the numbers of lines that each list has.
fn share_height(height: u16, upper: usize, tasks: usize, queue: usize) -> NowHeights {
    let lines = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).saturating_add(2);
    let queue = lines(queue).min(if height < 30 { 4 } else { 8 });
    let room = height.saturating_sub(queue);
    let left_by_tasks = room.saturating_sub(lines(tasks));
    let upper = lines(upper).max(5).min(left_by_tasks.max(height / 2));
    NowHeights { upper, queue }
}

fn draw_now_page(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let share = if area.width >= SPLIT_MIN_WIDTH {
        45
    } else {
        48
    };
    let [left, _] =
        Layout::horizontal([Constraint::Percentage(share), Constraint::Min(0)]).areas(area);
    let inbox = inbox::full_height(model, usize::from(left.width.saturating_sub(2)));
    let queue = model.queues_in_brief();
    let queue_lines: usize = queue.iter().map(|page| page.queue.queue.len() + 1).sum();
    let upper = inbox.max(model.lanes.len()).max(1);
    let heights = share_height(
        area.height,
        upper,
        model.visible_rows().len().max(1),
        queue_lines.max(1),
    );
    let [upper, list, train] = Layout::vertical([
        Constraint::Length(heights.upper),
        Constraint::Min(3),
        Constraint::Length(heights.queue),
    ])
    .areas(area);
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

/// Draws a page that is only a list of text lines, such as Events and Setup.
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

#[cfg(test)]
mod tests {
    use super::{NowHeights, share_height};

    #[test]
    fn lists_on_the_page_now_share_the_height_by_their_content() {
        let heights = |height, upper, tasks, queue| {
            let NowHeights { upper, queue } = share_height(height, upper, tasks, queue);
            (upper, queue)
        };
        assert_eq!(
            heights(40, 3, 100, 1),
            (5, 3),
            "a short inbox leaves its room to the tasks"
        );
        assert_eq!(
            heights(40, 100, 100, 20),
            (20, 8),
            "long lists share the height"
        );
        assert_eq!(
            heights(40, 100, 4, 1),
            (31, 3),
            "few tasks leave their room to the inbox"
        );
        assert_eq!(heights(21, 10, 4, 2), (11, 4));
        assert_eq!(heights(0, 0, 0, 0), (0, 2));
    }
}
