//! Draws the inbox: a card for each item that needs a person. The selected card also shows the
//! possible answers.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};
use regatta_api::live_view::{DisplayState, InboxItemView};
use regatta_core::inbox::CauseClass;

use crate::output::{cut_to_width, display_width as columns, wrap};
use crate::watch::draw::{
    age_text, hidden_count, line_with_ends, safe_line, state_style, titled_block,
};
use crate::watch::model::{ListFocus, ScreenModel};

pub(super) fn draw_inbox(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect) {
    let groups = model.groups();
    let count: usize = groups
        .iter()
        .map(|inbox_group| inbox_group.items.len())
        .sum();
    let inner = Block::bordered().inner(area);
    let more = hidden_count(groups.len(), usize::from(inner.height) / 2);
    frame.render_widget(
        titled_block(
            model,
            format!(" Needs you ({count}) {more}"),
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
    let is_only = groups.len() == 1;
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut selected_row = 0;
    for group in &groups {
        let Some(inbox_item) = group.items.first() else {
            continue;
        };
        let is_selected = is_only || model.selected_group_key.as_deref() == Some(group.key);
        if is_selected {
            selected_row = lines.len();
        }
        lines.extend(inbox_card(
            model,
            inbox_item,
            group.items.len(),
            usize::from(inner.width),
            is_selected,
        ));
    }
    // Scroll the list so that the selected card is visible with all its answers.
    let room = usize::from(inner.height);
    let from = selected_row.min(lines.len().saturating_sub(room));
    let visible: Vec<Line<'_>> = lines.into_iter().skip(from).take(room).collect();
    frame.render_widget(Paragraph::new(visible), inner);
}

/// Joins short texts into as few lines of `room` columns as possible, without breaking any text.
pub(super) fn pack_lines(texts: impl Iterator<Item = String>, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for text in texts {
        match lines
            .last_mut()
            .filter(|line| columns(line) + 2 + columns(&text) <= room)
        {
            Some(last) => *last += &format!("  {text}"),
            None => lines.push(format!("  {text}")),
        }
    }
    lines
}

/// The maximum number of lines of an inbox item's question that its card shows.
const MAX_QUESTION_LINES: usize = 4;

fn inbox_card<'a>(
    model: &ScreenModel,
    inbox_item: &InboxItemView,
    count: usize,
    room: usize,
    is_selected: bool,
) -> Vec<Line<'a>> {
    let bold = Style::default().add_modifier(Modifier::BOLD);
    let mark = if is_selected { ">" } else { " " };
    let agent = inbox_item
        .item
        .agent
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let times = if count > 1 {
        format!(" × {count}")
    } else {
        String::new()
    };
    let late = if inbox_item.item.escalated {
        " waits long"
    } else {
        ""
    };
    // Show the task's id only if it differs from the id of the inbox item.
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
    let style = if is_selected {
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
    if !is_selected {
        lines.push(Line::styled(
            format!(
                "  {}",
                cut_to_width(&safe_line(&headline(inbox_item, count)), inside)
            ),
            bold,
        ));
        return lines;
    }
    let subject = wrap(
        &safe_line(&headline(inbox_item, count)),
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

/// Returns the text of a card: the cause that several items share, or the item's own text.
fn headline(inbox_item: &InboxItemView, count: usize) -> String {
    match &inbox_item.item.cause {
        Some(cause) if count > 1 && cause.class != CauseClass::Request => cause.headline(count),
        _ => inbox_item.item.subject.clone(),
    }
}

/// Returns the possible answers to an inbox item, each with the digit that gives it.
pub(super) fn answer_labels(inbox_item: &InboxItemView) -> impl Iterator<Item = String> {
    inbox_item
        .actions
        .iter()
        .take(9)
        .enumerate()
        .map(|(nth, action)| format!("{} {}", nth + 1, safe_line(&action.label)))
}
