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
use crate::watch::model::{InboxGroup, ListFocus, ScreenModel};

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
    let room = usize::from(inner.height);
    let width = usize::from(inner.width);
    let cards = fitting_cards(model, &groups, width, room);
    let selected = cards.iter().position(|card| card.is_selected);
    // Scroll the list so that the selected card is visible with all its answers.
    let before = &cards[..selected.unwrap_or(0)];
    let selected_row: usize = before.iter().map(|card| card.lines.len()).sum();
    let lines: Vec<Line<'_>> = cards.into_iter().flat_map(|card| card.lines).collect();
    let from = selected_row.min(lines.len().saturating_sub(room));
    let visible: Vec<Line<'_>> = lines.into_iter().skip(from).take(room).collect();
    frame.render_widget(Paragraph::new(visible), inner);
}

/// A group of inbox items, drawn as lines.
struct Card<'a> {
    is_selected: bool,
    lines: Vec<Line<'a>>,
}

/// The amount of text on a card.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CardDetail {
    /// The names and the subject, each in one line.
    Brief,
    /// Also the reason and the answers.
    Full,
}

/// Draws all groups: the selected one in full, and from the top as many others in full as there is
/// room for.
fn fitting_cards<'a>(
    model: &ScreenModel,
    groups: &[InboxGroup<'_>],
    width: usize,
    room: usize,
) -> Vec<Card<'a>> {
    let is_only = groups.len() == 1;
    let draw = |group: &InboxGroup<'_>, is_selected: bool, detail: CardDetail| Card {
        is_selected,
        lines: inbox_card(model, group, width, is_selected, detail),
    };
    let mut cards: Vec<Card<'a>> = Vec::with_capacity(groups.len());
    for group in groups {
        let is_selected = is_only || model.selected_group_key.as_deref() == Some(group.key);
        let detail = if is_selected {
            CardDetail::Full
        } else {
            CardDetail::Brief
        };
        cards.push(draw(group, is_selected, detail));
    }
    let used: usize = cards.iter().map(|card| card.lines.len()).sum();
    let mut free = room.saturating_sub(used);
    for (card, group) in cards.iter_mut().zip(groups) {
        if card.is_selected || free == 0 {
            continue;
        }
        let full = draw(group, false, CardDetail::Full);
        let extra = full.lines.len() - card.lines.len();
        if extra > free {
            break;
        }
        free -= extra;
        *card = full;
    }
    cards
}

/// Returns the number of lines that the inbox takes in a list of `width` columns, if it shows all
/// groups in full.
pub(super) fn full_height(model: &ScreenModel, width: usize) -> usize {
    let groups = model.groups();
    // More lines than this never fit into half of a screen, so do not format more cards.
    let first = groups.iter().take(60);
    first
        .map(|group| inbox_card(model, group, width, true, CardDetail::Full).len())
        .sum()
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

/// Draws a group of items that ask for the same thing. Only the selected card shows the digits that
/// give its answers.
fn inbox_card<'a>(
    model: &ScreenModel,
    group: &InboxGroup<'_>,
    room: usize,
    is_selected: bool,
    detail: CardDetail,
) -> Vec<Line<'a>> {
    let Some(inbox_item) = group.items.first() else {
        return vec![];
    };
    let bold = Style::default().add_modifier(Modifier::BOLD);
    let mark = if is_selected { ">" } else { " " };
    let count = group.items.len();
    let times = if count > 1 {
        format!(" × {count}")
    } else {
        String::new()
    };
    let head = Span::raw(format!("{mark}{}{times} ", safe_line(&inbox_item.item.id)));
    let style = if is_selected {
        state_style(model, DisplayState::Needs)
    } else {
        Style::default()
    };
    let mut lines = vec![
        line_with_ends(
            vec![head],
            &card_names(group),
            &age_text(model, inbox_item.item.since_wall),
            room,
        )
        .style(style),
    ];
    let inside = room.saturating_sub(2);
    if detail == CardDetail::Brief {
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
    let dim = Style::default().add_modifier(Modifier::DIM);
    if !inbox_item.item.why.is_empty() {
        let why = wrap(&safe_line(&inbox_item.item.why), inside, 2);
        lines.extend(
            why.into_iter()
                .map(|why| Line::styled(format!("  {why}"), dim)),
        );
    }
    if is_selected {
        let answers = pack_lines(answer_labels(inbox_item), room);
        lines.extend(answers.into_iter().map(Line::raw));
    } else {
        let labels = inbox_item.actions.iter().take(9);
        let labels = pack_lines(labels.map(|action| safe_line(&action.label)), room);
        lines.extend(labels.into_iter().map(|line| Line::styled(line, dim)));
    }
    lines
}

/// Returns the text of a card: the cause that several items share, or the item's own text.
fn headline(inbox_item: &InboxItemView, count: usize) -> String {
    match &inbox_item.item.cause {
        Some(cause) if count > 1 && cause.class != CauseClass::Request => cause.headline(count),
        _ => inbox_item.item.subject.clone(),
    }
}

/// Returns the names in a card's first line, the most helpful first, because the end may be cut: the
/// agents that ask, the kind of the item, its task, and whether it has waited long.
fn card_names(group: &InboxGroup<'_>) -> String {
    let Some(first) = group.items.first() else {
        return String::new();
    };
    let mut agents: Vec<String> = Vec::new();
    for name in group
        .items
        .iter()
        .filter_map(|item| item.item.agent.as_ref())
    {
        let name = name.to_string();
        if !agents.contains(&name) {
            agents.push(name);
        }
    }
    let others = agents.len().saturating_sub(1);
    let mut names: Vec<String> = agents.into_iter().take(1).collect();
    if others > 0 {
        names.push(format!("+{others}"));
    }
    names.push(first.item.kind.to_string());
    // Show the task's id only if it differs from the id of the inbox item.
    let task = first.item.task.map(|id| id.to_string());
    names.extend(task.filter(|task| *task != first.item.id));
    if first.item.escalated {
        names.push("waits long".into());
    }
    names.join(" ")
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
