//! The state in which people see a task, an agent, a team's member or a landing.
//!
//! Every view shows the states, labels and counts that this module computes, so that two views of
//! one board never disagree. The views are the command line, the page, `regatta watch`, notices,
//! bridges (connections to outside services), the MCP tools and the prompts of agents. A view
//! chooses only how to draw a state.
//!
//! Not here: the reasons why a task waits (see [`wait_reasons`](crate::schedule::wait_reasons)) and
//! the inbox.

mod actions; // the actions on a task
mod agents; // the state of each agent
mod summary; // the counts of a fleet

use serde::{Deserialize, Serialize};

use crate::agent_protocol::RequestContent;
use crate::approval::{self, Approval};
use crate::attempt::{Attempt, AttemptPhase};
use crate::board::Board;
use crate::conversation::{Conversation, TurnState};
use crate::ids::Now;
use crate::landing::batches::{self, LandingProgress};
use crate::landing::{Landing, LandingEnd};
use crate::launch::{self, MemberActivity, MemberState};
use crate::schedule::{self, WaitKind};
use crate::task::{Task, TaskStatus};
use crate::task_timeline::Activity;

pub use actions::{TaskAction, possible_actions};
pub use agents::{
    AgentAvailability, AgentDisplay, agent_availability, agent_display, agent_displays,
    offline_reason, provider_or_runtime,
};
pub use summary::{
    EndedCounts, FleetSummary, MissionSummary, TaskCounts, fleet_summary, mission_state_counts,
    state_counts,
};

/// The state of a task, an agent, a team's member, a landing or a conversation as people see it. The variants are
/// in the order of urgency, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DisplayState {
    /// The item ended without success, or cannot continue.
    Failed,
    /// The item needs a person.
    Needs,
    /// The task's finished work waits for a review.
    Review,
    /// The task's change is in the merge queue.
    Landing,
    /// An agent works on the task, or the task's work is being checked.
    Working,
    /// The item waits for something that happens without a person, such as the end of another task.
    Waiting,
    /// An agent or a session without work.
    Idle,
    /// A task that is kept for later, so Regatta does not start it.
    Backlog,
    /// An agent that cannot be reached.
    Offline,
    /// The item ended with success.
    Landed,
}

/// The meaning of a state's colour. Each view chooses its own colour for each meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourRole {
    Bad,
    Attention,
    Waiting,
    Checking,
    Active,
    Good,
    Quiet,
}

impl DisplayState {
    pub const ALL: [DisplayState; 10] = [
        DisplayState::Failed,
        DisplayState::Needs,
        DisplayState::Review,
        DisplayState::Landing,
        DisplayState::Working,
        DisplayState::Waiting,
        DisplayState::Idle,
        DisplayState::Backlog,
        DisplayState::Offline,
        DisplayState::Landed,
    ];

    /// Returns the state's name in the API.
    pub fn name(self) -> &'static str {
        match self {
            DisplayState::Failed => "failed",
            DisplayState::Needs => "needs",
            DisplayState::Waiting => "waiting",
            DisplayState::Landing => "landing",
            DisplayState::Review => "review",
            DisplayState::Working => "working",
            DisplayState::Idle => "idle",
            DisplayState::Backlog => "backlog",
            DisplayState::Offline => "offline",
            DisplayState::Landed => "landed",
        }
    }

    /// Returns the word that people see for the state, unless the item has a more specific word.
    pub fn label(self) -> &'static str {
        match self {
            DisplayState::Needs => "needs you",
            other => other.name(),
        }
    }

    /// Returns the sign that is shown before the state's label, by which people can tell the states
    /// apart without colours.
    pub fn glyph(self) -> &'static str {
        match self {
            DisplayState::Failed => "✕",
            DisplayState::Needs => "!",
            DisplayState::Waiting => "‖",
            DisplayState::Landing => "⇢",
            DisplayState::Review => "◇",
            DisplayState::Working => "▶",
            DisplayState::Idle => "·",
            DisplayState::Backlog => "…",
            DisplayState::Offline => "○",
            DisplayState::Landed => "✓",
        }
    }

    /// Returns the sign that is shown before the state's label on a terminal without Unicode.
    pub fn ascii_glyph(self) -> &'static str {
        match self {
            DisplayState::Failed => "x",
            DisplayState::Needs => "!",
            DisplayState::Waiting => "=",
            DisplayState::Landing => "-",
            DisplayState::Review => "?",
            DisplayState::Working => ">",
            DisplayState::Idle => ".",
            DisplayState::Backlog => "_",
            DisplayState::Offline => "o",
            DisplayState::Landed => "+",
        }
    }

    /// Returns the state's position in the order of urgency, from 0 for the most urgent state.
    pub fn rank(self) -> usize {
        self as usize
    }

    /// Returns the meaning that the colour of this state must show.
    pub fn colour(self) -> ColourRole {
        match self {
            DisplayState::Failed => ColourRole::Bad,
            DisplayState::Needs => ColourRole::Attention,
            DisplayState::Waiting => ColourRole::Waiting,
            DisplayState::Landing | DisplayState::Review => ColourRole::Checking,
            DisplayState::Working => ColourRole::Active,
            DisplayState::Landed => ColourRole::Good,
            DisplayState::Idle | DisplayState::Backlog | DisplayState::Offline => ColourRole::Quiet,
        }
    }
}

/// The state of an item, with the word that people see. The word may be more specific than the
/// state's own word: a cancelled task is in the state `failed` and labelled "cancelled".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemDisplay {
    pub state: DisplayState,
    pub label: &'static str,
}

impl ItemDisplay {
    fn new(state: DisplayState, label: &'static str) -> ItemDisplay {
        ItemDisplay { state, label }
    }
}

impl From<DisplayState> for ItemDisplay {
    fn from(state: DisplayState) -> ItemDisplay {
        ItemDisplay::new(state, state.label())
    }
}

/// Returns the request that a person must answer before work on the task continues: a request of
/// the task's attempt, or a question that was kept for the next attempt. If the agent continues
/// without the answer to a question, the question is not returned and is only in the inbox.
fn blocking_request<'a>(board: &'a Board, task: &Task) -> Option<&'a Approval> {
    match task.attempt.and_then(|id| board.attempts.get(&id)) {
        Some(attempt) => approval::open_request_of(board, attempt),
        None => approval::open_question(board, task.id),
    }
}

/// Returns the state in which people see a task.
pub fn task_display(board: &Board, task: &Task) -> ItemDisplay {
    if task.status.is_terminal() {
        return status_display(task);
    }
    if blocking_request(board, task).is_some() {
        return DisplayState::Needs.into();
    }
    // The task of a team member's session is shown with the state of that member.
    match launch::activity_of_task(board, task) {
        Some(activity) => member_display(activity),
        None => status_display(task),
    }
}

/// Returns the position of a task in lists, the most urgent first. A failed task about which a
/// person has decided is over, so it has the position of a landed task.
pub fn task_rank(board: &Board, task: &Task) -> usize {
    match task_display(board, task).state {
        DisplayState::Failed
            if task.status.is_terminal() && !board.failed.contains_key(&task.id) =>
        {
            DisplayState::Landed.rank()
        }
        state => state.rank(),
    }
}

/// Returns the state that follows from the task's status alone. Use [`task_display`] for a task on
/// the board.
pub fn status_display(task: &Task) -> ItemDisplay {
    let state = match task.status {
        TaskStatus::Backlog => DisplayState::Backlog,
        TaskStatus::Unassigned | TaskStatus::Offered | TaskStatus::Pending => DisplayState::Waiting,
        TaskStatus::InProgress | TaskStatus::Validating => DisplayState::Working,
        TaskStatus::InReview => DisplayState::Review,
        TaskStatus::Landing => DisplayState::Landing,
        TaskStatus::Completed => DisplayState::Landed,
        TaskStatus::Failed | TaskStatus::Cancelled => DisplayState::Failed,
        TaskStatus::NeedsHuman => DisplayState::Needs,
    };
    let has_landed = task.status == TaskStatus::Completed && task.landed.is_some();
    let label = if has_landed {
        state.label()
    } else {
        task.status.label()
    };
    ItemDisplay::new(state, label)
}

/// Returns the state in which people see a past activity of a task, such as a wait for a review.
pub fn activity_state(activity: Activity) -> DisplayState {
    match activity {
        Activity::Working | Activity::Checking => DisplayState::Working,
        Activity::Waiting(WaitKind::Permission | WaitKind::Question) => DisplayState::Needs,
        Activity::Waiting(WaitKind::Review) => DisplayState::Review,
        Activity::Waiting(WaitKind::Queue) => DisplayState::Landing,
        Activity::Waiting(_) => DisplayState::Waiting,
    }
}

/// Returns the state in which people see a member of a team.
pub fn member_display(activity: MemberActivity) -> ItemDisplay {
    let state = match activity {
        MemberActivity::Absent => DisplayState::Offline,
        MemberActivity::Dead | MemberActivity::Hung => DisplayState::Failed,
        MemberActivity::Starting | MemberActivity::Working | MemberActivity::Stopping => {
            DisplayState::Working
        }
        MemberActivity::Idle => DisplayState::Idle,
        MemberActivity::Waiting => DisplayState::Needs,
    };
    ItemDisplay::new(state, activity.label())
}

/// Returns the state in which people see a member's entry in a launch of its team, which says how
/// far the start of the member got.
pub fn member_entry_display(entry: MemberState) -> ItemDisplay {
    let (state, label) = match entry {
        MemberState::Queued => (DisplayState::Waiting, "queued"),
        MemberState::Starting => (DisplayState::Working, "starting"),
        MemberState::PendingBootstrap => (DisplayState::Working, "pending bootstrap"),
        MemberState::PendingPermission => (DisplayState::Needs, "pending permission"),
        MemberState::Alive => (DisplayState::Landed, "alive"),
        MemberState::FailedToStart => (DisplayState::Failed, "failed to start"),
        MemberState::Skipped => (DisplayState::Offline, "skipped"),
        MemberState::Degraded => (DisplayState::Failed, "degraded"),
        MemberState::Stopped => (DisplayState::Offline, "stopped"),
    };
    ItemDisplay::new(state, label)
}

/// Returns the state in which people see a conversation.
pub fn conversation_display(conversation: &Conversation) -> ItemDisplay {
    let is_working = || {
        conversation
            .turns
            .iter()
            .any(|turn| turn.state == TurnState::Working)
    };
    let (state, label) = if conversation.closed {
        (DisplayState::Offline, "closed")
    } else if is_working() {
        (DisplayState::Working, "working")
    } else if !conversation.held.is_empty() {
        (DisplayState::Waiting, "held")
    } else if conversation.expired {
        (DisplayState::Idle, "resting")
    } else {
        (DisplayState::Idle, "idle")
    };
    ItemDisplay::new(state, label)
}

/// Returns the state in which people see a landing that has left the queue.
pub fn ended_landing_display(end: &LandingEnd) -> ItemDisplay {
    match end {
        LandingEnd::Landed { .. } => ItemDisplay::new(DisplayState::Landed, "landed"),
        LandingEnd::Removed { .. } => ItemDisplay::new(DisplayState::Failed, "out"),
    }
}

/// Returns the state in which people see a landing, which may still be in the queue.
pub fn landing_display_in_queue(board: &Board, landing: &Landing, now: Now) -> ItemDisplay {
    if let Some(end) = &landing.end {
        return ended_landing_display(end);
    }
    let batch = batches::batches_of(board, &landing.project, now)
        .into_iter()
        .find(|batch| batch.landings.contains(&landing.id));
    landing_display(batch.map_or(LandingProgress::Queued, |batch| batch.progress))
}

/// Returns the state in which people see a landing in the queue.
pub fn landing_display(progress: LandingProgress) -> ItemDisplay {
    match progress {
        LandingProgress::Moving => ItemDisplay::new(DisplayState::Landing, "moving the trunk"),
        LandingProgress::Passed => ItemDisplay::new(DisplayState::Landing, "waiting for the trunk"),
        LandingProgress::Testing => ItemDisplay::new(DisplayState::Working, "testing"),
        LandingProgress::Searching => ItemDisplay::new(DisplayState::Working, "searching"),
        LandingProgress::Queued | LandingProgress::Deferred => {
            ItemDisplay::new(DisplayState::Waiting, "queued")
        }
        LandingProgress::Held => ItemDisplay::new(DisplayState::Needs, "held"),
    }
}

/// Describes what happens with a task now, in a few words: the activity of its program, the agent's
/// own report of its progress, or the reason why the task waits.
pub fn activity_text(board: &Board, task: &Task, now: Now) -> String {
    let Some(attempt) = task.attempt.and_then(|id| board.attempts.get(&id)) else {
        let reason = schedule::wait_reasons(board, task, now).into_iter().next();
        let shown = task_display(board, task);
        return match reason {
            Some(reason) => format!("{}: {}", shown.label, reason.text),
            None => shown.label.to_owned(),
        };
    };
    let activity = program_activity(board, attempt);
    let is_in_turn = activity == IN_TURN_TEXT;
    match task.progress.lines().next().filter(|_| is_in_turn) {
        Some(line) => line.to_owned(),
        None => activity,
    }
}

/// The text for a program that is in a turn (it works on a prompt).
pub const IN_TURN_TEXT: &str = "working";

/// The text for a program that is in a turn, but has written nothing for suspiciously long.
const HUNG_TEXT: &str = "hung";

/// The text for the program of a task that a person has taken over.
pub const TAKEN_OVER_TEXT: &str = "a person works on it";

/// Describes the activity of a supervised attempt's program, judged from the stored state of the
/// attempt.
pub fn program_activity(board: &Board, attempt: &Attempt) -> String {
    if attempt.stopping.is_some() {
        return "stopping".into();
    }
    if attempt.phase == AttemptPhase::Validating {
        return "being checked".into();
    }
    if let Some(open) = approval::open_request_of(board, attempt) {
        let what = match open.request.content {
            RequestContent::Permission { .. } => "permission",
            RequestContent::Question { .. } => "an answer",
        };
        return format!("waiting for {what} ({})", open.id);
    }
    if attempt.by_hand {
        return TAKEN_OVER_TEXT.into();
    }
    let session = &attempt.session;
    match (&session.hold_reason, attempt.accepts_follow_ups) {
        (Some(reason), _) => format!("held: {reason}"),
        (None, true) if session.session_id.is_none() && session.turns == 0 => "starting".into(),
        (None, true) if session.closing => "ending".into(),
        (None, true) if !session.in_turn => "idle".into(),
        _ if attempt.is_hung() => HUNG_TEXT.into(),
        _ => IN_TURN_TEXT.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_state_has_its_own_word_and_signs() {
        let columns: [fn(DisplayState) -> &'static str; 4] = [
            DisplayState::name,
            DisplayState::label,
            DisplayState::glyph,
            DisplayState::ascii_glyph,
        ];
        for column in columns {
            let texts: BTreeSet<&str> = DisplayState::ALL.into_iter().map(column).collect();
            assert_eq!(texts.len(), DisplayState::ALL.len(), "{texts:?}");
        }
        for (nth, state) in DisplayState::ALL.into_iter().enumerate() {
            assert_eq!(state.rank(), nth);
            assert!(state.ascii_glyph().is_ascii());
            assert_eq!(
                serde_json::to_value(state).expect("a name"),
                serde_json::json!(state.name())
            );
        }
    }

    #[test]
    fn each_landing_progress_has_a_state() {
        let cases = [
            (LandingProgress::Moving, DisplayState::Landing),
            (LandingProgress::Passed, DisplayState::Landing),
            (LandingProgress::Testing, DisplayState::Working),
            (LandingProgress::Searching, DisplayState::Working),
            (LandingProgress::Queued, DisplayState::Waiting),
            (LandingProgress::Deferred, DisplayState::Waiting),
            (LandingProgress::Held, DisplayState::Needs),
        ];
        for (progress, state) in cases {
            assert_eq!(landing_display(progress).state, state, "{progress:?}");
        }
    }
}
