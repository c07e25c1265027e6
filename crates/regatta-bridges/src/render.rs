//! Renders the text of posts from the board (the daemon's state in memory). The text is CommonMark.
//! The code for each chat service converts it to the markup of the service.

use std::collections::VecDeque;
use std::fmt::Write;

use regatta_core::agent_protocol::{AgentEvent, PlanEntry, RequestContent, ToolStatus};
use regatta_core::board::Board;
use regatta_core::budget::format_dollars;
use regatta_core::conversation::{
    ChangeDestination, Conversation, ConversationTurn, NoteTone, PostContent, ThreadPost, TurnState,
};
use regatta_core::display::{self, DisplayState};

use crate::service::{CardButton, CardTone, PostCard};

/// Progress of the turn in which the agent works now. The progress is read from the transcript of
/// the agent's program, because the board (the daemon's state) does not contain it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TurnProgress {
    /// Number of the last transcript record that was read.
    pub(crate) last_record: u64,
    /// The most recent tool calls of the agent's program, one text each.
    pub(crate) recent_tools: VecDeque<String>,
    pub(crate) tool_count: usize,
    /// The last part of the text that the agent has written.
    pub(crate) text: String,
    pub(crate) plan: Vec<PlanEntry>,
}

const MAX_TOOLS: usize = 3;
const MAX_TEXT_CHARS: usize = 500;

impl TurnProgress {
    /// Adds an event from the transcript of the agent's program.
    pub(crate) fn on_event(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::Message { text } => {
                self.text.push_str(text);
                let excess = self.text.chars().count().saturating_sub(MAX_TEXT_CHARS);
                if excess > 0 {
                    self.text = self.text.chars().skip(excess).collect();
                }
            }
            AgentEvent::Tool(tool)
                if tool.status != ToolStatus::Pending || !tool.title.is_empty() =>
            {
                let line = one_line(&tool.describe(), 120);
                if !line.is_empty() && self.recent_tools.back() != Some(&line) {
                    self.recent_tools.push_back(line);
                    self.tool_count += 1;
                    while self.recent_tools.len() > MAX_TOOLS {
                        self.recent_tools.pop_front();
                    }
                }
            }
            AgentEvent::Plan { entries } => self.plan = entries.clone(),
            _ => {}
        }
    }
}

/// Returns the current content of a post, or `None` if the post need not be shown any more.
pub(crate) fn render_post(
    board: &Board,
    conversation: &Conversation,
    post: &ThreadPost,
    progress: Option<&TurnProgress>,
    dashboard: Option<&str>,
) -> Option<PostCard> {
    match &post.content {
        PostContent::Seen { .. } | PostContent::Pull => None,
        PostContent::Queued { turn, ahead } => {
            let is_queued = conversation
                .turns
                .iter()
                .any(|known| known.number == *turn && known.state == TurnState::Queued);
            let earlier_messages = if *ahead == 1 {
                "one message".to_owned()
            } else {
                format!("{ahead} messages")
            };
            let text = format!(
                "I will get to this next: {earlier_messages} before it. Say `stop` to end the current work."
            );
            if is_queued {
                return Some(PostCard {
                    tone: CardTone::Waiting,
                    text,
                    ..PostCard::default()
                });
            }
            // The post that announces the queued request was never shown, so the service shows
            // nothing that must be updated.
            if !post.begun && post.refs.is_empty() {
                return None;
            }
            let state = conversation
                .turns
                .iter()
                .find(|known| known.number == *turn)
                .map(|turn| turn.state);
            let text = match state {
                Some(TurnState::Stopped) => "This message was dropped from the queue.",
                _ => "This message is no longer in the queue.",
            };
            Some(PostCard {
                tone: CardTone::Answered,
                text: text.into(),
                ..PostCard::default()
            })
        }
        PostContent::Note { tone, text } => {
            let tone = if *tone == NoteTone::Trouble {
                CardTone::Failed
            } else {
                CardTone::Note
            };
            Some(PostCard {
                tone,
                text: text.clone(),
                ..PostCard::default()
            })
        }
        PostContent::Ask { approval } => Some(request_card(board, post, *approval)),
        PostContent::Turn { turn } => {
            let turn = conversation
                .turns
                .iter()
                .find(|known| known.number == *turn)?;
            Some(match turn.state {
                TurnState::Working | TurnState::Queued => {
                    working_card(board, conversation, progress)
                }
                TurnState::Done | TurnState::Failed | TurnState::Stopped => {
                    ended_card(board, conversation, turn, dashboard)
                }
            })
        }
    }
}

fn request_card(board: &Board, post: &ThreadPost, id: regatta_core::ids::ApprovalId) -> PostCard {
    let button = |label: &str, value: String, is_dangerous| CardButton {
        label: label.into(),
        value,
        is_dangerous,
    };
    let approval = board.approvals.get(&id);
    let Some(approval) = approval.filter(|_| post.answer.is_none()) else {
        let outcome = post.answer.as_deref().unwrap_or("no longer needed");
        return PostCard {
            tone: CardTone::Answered,
            text: format!("{id}: {outcome}"),
            ..PostCard::default()
        };
    };
    let (text, buttons) = match &approval.request.content {
        RequestContent::Permission { tool, .. } => {
            let text = format!(
                "May I do this? ({id})\n\n{}\n\nSay `allow` or `deny`.",
                code_block(&tool.describe())
            );
            let buttons = vec![
                button("Allow", format!("allow:{id}"), false),
                button("Always in this task", format!("always:{id}"), false),
                button("Deny", format!("deny:{id}"), true),
            ];
            (text, buttons)
        }
        RequestContent::Question { text, choices, .. } => {
            let buttons = choices.iter().take(10).enumerate();
            let buttons = buttons.map(|(index, choice)| {
                button(&one_line(choice, 60), format!("choice-{index}:{id}"), false)
            });
            (
                format!("{text}\n\nAnswer here, in your own words ({id})."),
                buttons.collect(),
            )
        }
    };
    PostCard {
        tone: CardTone::Question,
        text,
        buttons,
        ..PostCard::default()
    }
}

fn working_card(
    board: &Board,
    conversation: &Conversation,
    progress: Option<&TurnProgress>,
) -> PostCard {
    let task = conversation.task.and_then(|id| board.tasks.get(&id));
    let attempt = task
        .and_then(|task| task.attempt)
        .and_then(|id| board.attempts.get(&id));
    let plan: Vec<PlanEntry> = match (
        progress.filter(|progress| !progress.plan.is_empty()),
        attempt,
    ) {
        (Some(progress), _) => progress.plan.clone(),
        (None, Some(attempt)) => attempt.session.plan.clone(),
        (None, None) => vec![],
    };
    let mut text = String::new();
    let now = regatta_core::ids::Now {
        fleet_ms: board.fleet_ms,
        unix_ms: 0,
    };
    let activity = match task {
        Some(task) => one_line(&display::activity_text(board, task, now), 200),
        None => display::conversation_display(conversation).label.to_owned(),
    };
    if let Some(progress) = progress {
        let shown_tools = progress.recent_tools.len();
        if progress.tool_count > shown_tools {
            let _ = writeln!(
                text,
                "- … {} earlier steps",
                progress.tool_count - shown_tools
            );
        }
        for tool in &progress.recent_tools {
            let _ = writeln!(text, "- {}", inline_code(tool));
        }
        let message = progress.text.trim();
        if !message.is_empty() {
            let _ = writeln!(text, "\n> {}", message.replace('\n', "\n> "));
        }
    }
    PostCard {
        tone: CardTone::Working,
        text: text.trim().to_owned(),
        plan: plan
            .into_iter()
            .map(|plan| (plan.text, plan.status))
            .collect(),
        activity: Some(activity),
        buttons: vec![CardButton {
            label: "Stop".into(),
            value: format!("stop:{}", conversation.id),
            is_dangerous: true,
        }],
        links: vec![],
    }
}

fn ended_card(
    board: &Board,
    conversation: &Conversation,
    turn: &ConversationTurn,
    dashboard: Option<&str>,
) -> PostCard {
    let mut links = Vec::new();
    if let Some(pull) = &conversation.pull {
        links.push((format!("PR #{}", pull.number), pull.url.clone()));
    }
    if let (Some(dashboard_url), Some(task)) = (dashboard, conversation.task) {
        links.push((
            task.to_string(),
            format!("{}/t/{task}", dashboard_url.trim_end_matches('/')),
        ));
    }
    let reason = turn.reason.as_deref().unwrap_or("no reason was given");
    match turn.state {
        TurnState::Stopped => {
            let text =
                format!("Stopped: {reason}. The work so far is kept; write again to continue.");
            PostCard {
                tone: CardTone::Stopped,
                text,
                links,
                ..PostCard::default()
            }
        }
        TurnState::Failed => {
            let details = conversation.task.map_or(String::new(), |id| {
                format!(" For details: `regatta why {id}`.")
            });
            let text = format!("This did not work: {reason}\n\nWrite again to retry.{details}");
            PostCard {
                tone: CardTone::Failed,
                text,
                links,
                ..PostCard::default()
            }
        }
        _ => {
            let mut text = turn.answer.clone().unwrap_or_default();
            let facts = turn_facts(conversation, turn);
            if !facts.is_empty() {
                text += &format!("\n\n{facts}");
            }
            let is_in_review = conversation
                .task
                .and_then(|id| board.tasks.get(&id))
                .is_some_and(|task| {
                    display::task_display(board, task).state == DisplayState::Review
                });
            let is_last_with_work = conversation
                .turns
                .iter()
                .rev()
                .find(|known| known.work.is_some())
                .is_some_and(|newest| newest.number == turn.number);
            let offers_landing = is_in_review
                && is_last_with_work
                && conversation.deliver != ChangeDestination::Land;
            let land_button = CardButton {
                label: "Land".into(),
                value: format!("land:{}", conversation.id),
                is_dangerous: false,
            };
            PostCard {
                tone: CardTone::Done,
                text,
                links,
                buttons: offers_landing.then_some(land_button).into_iter().collect(),
                ..PostCard::default()
            }
        }
    }
}

/// Returns a line with the branch, the changed files, the checks and the cost of a turn. A fact
/// that does not exist is left out.
fn turn_facts(conversation: &Conversation, turn: &ConversationTurn) -> String {
    let mut lines = Vec::new();
    if let Some(work) = &turn.work {
        let shown_files: Vec<String> = work
            .changed
            .iter()
            .take(5)
            .map(|changed| inline_code(changed))
            .collect();
        let other_files = work.changed_count.saturating_sub(shown_files.len());
        let other_files = if other_files > 0 {
            format!(" and {other_files} more")
        } else {
            String::new()
        };
        lines.push(format!("Changed: {}{other_files}", shown_files.join(", ")));
        lines.push(format!("Branch: {}", inline_code(&work.branch)));
        lines.extend(work.checks.as_ref().map(|check| format!("Checks: {check}")));
    }
    lines.extend(
        turn.micro_usd
            .map(|micro_usd| format!("Cost: {}", format_dollars(micro_usd))),
    );
    if turn.work.is_some() {
        match conversation.deliver {
            ChangeDestination::Review => lines.push("Say `land` to merge it.".into()),
            ChangeDestination::Land => lines.push("It is being added to the merge queue.".into()),
            ChangeDestination::Pull => {}
        }
    }
    lines
        .iter()
        .map(|line| format!("- {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Splits a card (the content of a post) into one card for each of `texts`. The first card shows
/// the progress, and the last card has the buttons and links.
pub(crate) fn split_card(card: &PostCard, texts: Vec<String>) -> Vec<PostCard> {
    let piece = |text| PostCard {
        tone: card.tone,
        text,
        ..PostCard::default()
    };
    let mut pieces: Vec<PostCard> = texts.into_iter().map(piece).collect();
    if let Some(first) = pieces.first_mut() {
        (first.plan, first.activity) = (card.plan.clone(), card.activity.clone());
    }
    if let Some(last) = pieces.last_mut() {
        (last.buttons, last.links) = (card.buttons.clone(), card.links.clone());
    }
    pieces
}

/// Returns the heading of a card (the content of a post). The heading names the kind of post, such
/// as a question.
pub(crate) fn card_header(card: &PostCard) -> Option<String> {
    Some(match card.tone {
        CardTone::Working => format!("⏳ {}", card.activity.as_deref().unwrap_or("working")),
        CardTone::Waiting => "🕓 In the queue".to_owned(),
        CardTone::Failed => "⚠️ Problem".to_owned(),
        CardTone::Stopped => "⏹ Stopped".to_owned(),
        CardTone::Question => "❓ A question".to_owned(),
        CardTone::Note | CardTone::Done | CardTone::Answered => return None,
    })
}

/// The format in which a service shows an agent's plan: the maximum number of lines, the maximum
/// length of a line, and the sign for each status.
pub(crate) struct PlanFormat {
    pub(crate) max_lines: usize,
    pub(crate) max_line_chars: usize,
    pub(crate) sign: fn(ToolStatus) -> &'static str,
}

impl PlanFormat {
    pub(crate) fn format_plan(&self, card: &PostCard) -> Option<String> {
        let line = |(text, status): &(String, ToolStatus)| {
            format!(
                "{} {}",
                (self.sign)(*status),
                one_line(text, self.max_line_chars)
            )
        };
        let lines: Vec<String> = card.plan.iter().take(self.max_lines).map(line).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// Returns the character that shows the status of a plan's step, for services without task lists.
pub(crate) fn status_sign(status: ToolStatus) -> &'static str {
    match status {
        ToolStatus::Completed => "✅",
        ToolStatus::InProgress => "▶️",
        ToolStatus::Failed => "❌",
        ToolStatus::Pending => "▫️",
    }
}

/// Returns the line of links below a card (the content of a post), or `None` if the card has no
/// links.
pub(crate) fn link_line(card: &PostCard) -> Option<String> {
    let links: Vec<String> = card
        .links
        .iter()
        .map(|(label, url)| format!("[{label}]({url})"))
        .collect();
    (!links.is_empty()).then(|| links.join(" · "))
}

/// Returns the complete text of a card (the content of a post) without its buttons, in CommonMark.
pub(crate) fn card_text(card: &PostCard, lines: &PlanFormat) -> String {
    let text = Some(card.text.clone()).filter(|s| !s.trim().is_empty());
    let parts: Vec<String> = [
        card_header(card),
        lines.format_plan(card),
        text,
        link_line(card),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() {
        "…".to_owned()
    } else {
        parts.join("\n\n")
    }
}

pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let cut: String = line
        .chars()
        .filter(|c| !c.is_control())
        .take(max_chars)
        .collect();
    if line.chars().count() > max_chars {
        format!("{cut}…")
    } else {
        cut
    }
}

/// Formats a text as inline code. The number of backticks is chosen so that the text cannot end the
/// code.
pub(crate) fn inline_code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    if longest > 0 {
        format!("{fence} {text} {fence}")
    } else {
        format!("`{text}`")
    }
}

fn code_block(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    format!("{fence}\n{text}\n{fence}")
}

/// Cuts a text into pieces of at most `max_chars` characters, between paragraphs or lines if
/// possible. A code block that spans pieces is closed at the end of a piece and opened again in the
/// next.
pub(crate) fn split_text(text: &str, max_chars: usize) -> Vec<String> {
    let char_count = |s: &str| s.chars().count();
    if char_count(text) <= max_chars {
        return vec![text.to_owned()];
    }
    let room = max_chars.saturating_sub(16).max(1); // for the fence
    let (mut pieces, mut piece, mut fence) = (Vec::new(), String::new(), None::<String>);
    let mut close_piece = |piece: &mut String, fence: &Option<String>| {
        if let Some(fence) = fence {
            let fence_line: String = fence
                .chars()
                .take_while(|c| *c == '`' || *c == '~')
                .collect();
            piece.push_str(&fence_line);
        }
        let finished = std::mem::take(piece);
        if !finished.trim().is_empty() {
            pieces.push(finished.trim_end().to_owned());
        }
        if let Some(fence) = fence {
            piece.push_str(fence);
            piece.push('\n');
        }
    };
    for line in text.split_inclusive('\n') {
        let mut rest = line;
        while !rest.is_empty() {
            let free_chars = room.saturating_sub(char_count(&piece));
            if char_count(rest) <= free_chars {
                piece.push_str(rest);
                break;
            }
            // Cut the line only if it does not fit into an empty piece. Otherwise move the whole
            // line to the next piece.
            let is_empty_piece = piece.trim().is_empty()
                || fence
                    .as_ref()
                    .is_some_and(|fence| piece.trim() == fence.trim());
            if !is_empty_piece {
                close_piece(&mut piece, &fence);
                continue;
            }
            let cut = rest
                .char_indices()
                .nth(free_chars.max(1))
                .map_or(rest.len(), |rest| rest.0);
            piece.push_str(&rest[..cut]);
            piece.push('\n');
            rest = &rest[cut..];
            close_piece(&mut piece, &fence);
        }
        let fence_line = line.trim_start();
        if fence_line.starts_with("```") || fence_line.starts_with("~~~") {
            fence = match fence {
                Some(_) => None,
                None => Some(fence_line.trim_end().chars().take(40).collect()),
            };
        }
    }
    let last = std::mem::take(&mut piece);
    if !last.trim().is_empty() {
        pieces.push(last.trim_end().to_owned());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_split_between_lines_and_code_blocks_stay_whole() {
        let text = format!(
            "Intro\n\n```rust\n{}```\nEnd",
            "let x = 1; // a line\n".repeat(200)
        );
        let pieces = split_text(&text, 1_000);
        assert!(pieces.len() > 4);
        for piece in &pieces {
            assert!(piece.chars().count() <= 1_000, "{}", piece.chars().count());
            assert_eq!(piece.matches("```").count() % 2, 0, "{piece}");
            assert!(
                piece.lines().all(|piece| !piece.starts_with("et x")),
                "the text was split inside a line"
            );
        }
        let lines = pieces
            .iter()
            .flat_map(|piece| piece.lines())
            .filter(|piece| piece.starts_with("let x"))
            .count();
        assert_eq!(lines, 200, "lines were lost");
        assert_eq!(split_text("short", 10), ["short"]);
    }

    #[test]
    fn too_long_line_is_split_between_characters_without_loss() {
        let text = "é".repeat(5_000);
        let pieces = split_text(&text, 512);
        assert!(pieces.iter().all(|piece| piece.chars().count() <= 512));
        assert_eq!(pieces.concat(), text);
    }

    #[test]
    fn inline_code_cannot_be_closed_from_inside() {
        assert_eq!(inline_code("a"), "`a`");
        assert_eq!(inline_code("a`b``c"), "``` a`b``c ```");
    }

    #[test]
    fn live_progress_keeps_the_last_steps_and_words() {
        let mut live = TurnProgress::default();
        for n in 0..10 {
            let tool = regatta_core::agent_protocol::ToolCall {
                title: format!("Read {n}"),
                ..Default::default()
            };
            live.on_event(&AgentEvent::Tool(tool));
            live.on_event(&AgentEvent::Message {
                text: "word ".repeat(40),
            });
        }
        assert_eq!((live.recent_tools.len(), live.tool_count), (3, 10));
        assert!(live.text.chars().count() <= 500);
    }
}
