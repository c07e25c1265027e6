//! Draws the lists of agents, of tasks, and of finished work in the landing queues.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};
use regatta_api::live_view::{AgentLaneView, DisplayState, LaneBar, TaskRowView};

use crate::output::{cut_to_width, display_width as columns, pad_or_cut};
use crate::watch::draw::{
    age_text, first_visible_row, hidden_count, line_with_ends, safe_line, state_glyph, state_style,
    titled_block,
};
use crate::watch::model::{ListFocus, ScreenModel};
use regatta_core::budget::format_dollars;
use regatta_core::plural;

pub(super) fn draw_lanes(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect, is_page: bool) {
    let all = model.visible_lanes();
    let is_focused = is_page || model.focus == ListFocus::Lanes;
    let inner = Block::bordered().inner(area);
    let room = usize::from(inner.height);
    let title = format!(
        " {} {}",
        plural::count(all.len(), "agent"),
        hidden_count(all.len(), room)
    );
    frame.render_widget(titled_block(model, title, is_focused), area);
    if all.is_empty() {
        let text = if model.head.is_some() {
            "no agent yet: regatta provider, or regatta agent add"
        } else {
            ""
        };
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), inner);
        return;
    }
    let first_row = if is_focused { model.scroll } else { 0 };
    let from = first_visible_row(Some(first_row), room, all.len());
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
        let mark = if is_focused && nth == first_row {
            ">"
        } else {
            " "
        };
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
            safe_line(&agent_lane.word)
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

/// Draws the states of an agent in the last hour, or since the oldest data, with one symbol per
/// time slot.
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
    let sign = |at: DisplayState| {
        if model.is_unicode {
            at.bar_glyph()
        } else {
            at.ascii_bar_glyph()
        }
    };
    let cell = |nth: usize| {
        let (from, to) = (
            begin + span * nth as u64 / width as u64,
            begin + span * (nth as u64 + 1) / width as u64,
        );
        let inside = bars
            .iter()
            .filter(|lane_bar| lane_bar.from < to && lane_bar.to.unwrap_or(now.max(to)) > from);
        // If an agent had several states in a time slot, show the most urgent state.
        match inside.map(|lane_bar| lane_bar.at).min() {
            Some(at) => Span::styled(sign(at), state_style(model, at)),
            None => Span::raw(" "),
        }
    };
    (0..width).map(cell).collect()
}

pub(super) fn draw_tasks(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect, is_page: bool) {
    let rows = model.visible_rows();
    let filter = if model.filter.is_empty() {
        String::new()
    } else {
        format!("· /{} ", safe_line(&model.filter))
    };
    let is_focused = is_page || model.focus == ListFocus::Tasks;
    // Take the number of tasks from the daemon's summary, because the daemon sends only open tasks
    // and the latest ended ones.
    let all = model
        .head
        .as_ref()
        .map_or(0, |head| head.tasks as usize)
        .max(model.task_rows.len());
    let total_text = if rows.len() == all {
        String::new()
    } else {
        format!(" of {all}")
    };
    let inner = Block::bordered().inner(area);
    let more = hidden_count(rows.len(), usize::from(inner.height));
    let title = format!(
        " {}{total_text} {} {filter}{more}",
        rows.len(),
        plural::choose(all, "task", "tasks")
    );
    frame.render_widget(titled_block(model, title, is_focused), area);
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
    let selected_row = model
        .selected_task
        .and_then(|id| rows.iter().position(|task_row| task_row.id == id));
    let from = first_visible_row(selected_row, room, rows.len());
    let subject = usize::from(inner.width).saturating_sub(60).clamp(12, 48);
    let row = |task_row: &&TaskRowView| {
        let chosen = model.selected_task == Some(task_row.id);
        let mark = if chosen && is_focused { ">" } else { " " };
        let agent = task_row
            .agent
            .as_ref()
            .map_or_else(|| "-".into(), ToString::to_string);
        let cost = task_row.micro_usd.map_or(String::new(), |micro_usd| {
            format!(" {}", format_dollars(micro_usd))
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
        if chosen && is_focused {
            line.style(Style::default().add_modifier(Modifier::BOLD))
        } else {
            line
        }
    };
    let lines: Vec<Line<'_>> = rows.iter().skip(from).take(room).map(row).collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

pub(super) fn draw_queue(model: &ScreenModel, frame: &mut Frame<'_>, area: Rect, is_page: bool) {
    let is_focused = is_page || model.focus == ListFocus::Queue;
    let waiting: usize = model
        .queues
        .values()
        .map(|queue_page| queue_page.queue.queue.len())
        .sum();
    let inner = Block::bordered().inner(area);
    let mut lines: Vec<Line<'_>> = Vec::new();
    let queues = if is_page {
        model.visible_queues()
    } else {
        model.queues_in_brief()
    };
    for queue_page in queues {
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
        for (nth, landing) in queue_page.queue.queue.iter().enumerate() {
            let sign = signs.get(nth).unwrap_or(&" ");
            let position = landing
                .position
                .map_or("  ".into(), |landing| format!("{landing:>2}"));
            let what = format!(
                "{position} {:<4} {}",
                landing.task.to_string(),
                safe_line(&landing.state)
            );
            let text = format!(
                "{sign}{what}  {} {}",
                safe_line(&landing.subject),
                safe_line(&landing.detail)
            );
            lines.push(Line::styled(
                cut_to_width(&text, room),
                state_style(model, landing.at),
            ));
        }
        if is_page {
            for landing in &queue_page.queue.recent {
                let text = format!(
                    "   {:<4} {}  {} {}",
                    landing.task.to_string(),
                    safe_line(&landing.state),
                    safe_line(&landing.subject),
                    safe_line(&landing.detail)
                );
                lines.push(Line::styled(
                    cut_to_width(&text, room),
                    state_style(model, landing.at),
                ));
            }
        }
    }
    let room = usize::from(inner.height);
    let title = format!(
        " Landing queue · {waiting} queued {}",
        hidden_count(lines.len(), room)
    );
    frame.render_widget(titled_block(model, title, is_focused), area);
    let from = if is_focused {
        model.scroll.min(lines.len().saturating_sub(room))
    } else {
        0
    };
    frame.render_widget(
        Paragraph::new(lines.into_iter().skip(from).take(room).collect::<Vec<_>>()),
        inner,
    );
}
