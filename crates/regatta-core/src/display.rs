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
mod landing_text; // sentences about landings in the queue
mod program; // the activity of an attempt's program
mod state_labels;
mod summary; // the counts of a fleet // the labels of missions, runners, activities and members

use serde::{Deserialize, Serialize};

use crate::approval::{self, Approval};
use crate::board::Board;
use crate::conversation::{Conversation, TurnState};
use crate::ids::Now;
use crate::inbox;
use crate::landing::batches::{self, LandingProgress};
use crate::landing::{Landing, LandingEnd};
use crate::launch::{self, MemberActivity};
use crate::schedule;
use crate::task::{Task, TaskStatus};

pub use actions::{TaskAction, possible_actions};
pub use agents::{
    AgentAvailability, AgentDisplay, agent_availability, agent_display, agent_displays,
    offline_reason, provider_or_runtime,
};
pub use landing_text::{deferral_text, landing_detail};
pub use program::{ProgramActivity, program_activity, program_activity_text};
pub use state_labels::{
    ATTACHING, TaskProgress, activity_display, launch_entry_display, member_entry_display,
    mission_display, mission_text, runner_display, task_progress,
};
pub use summary::{
    EndedCounts, FleetSummary, MissionSummary, TaskCounts, count_each, count_states, fleet_summary,
    mission_state_counts, spend_text, state_counts,
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

    /// The states of a task, in the order of a task's life. Boards with a column per state use this
    /// order.
    pub const OF_TASKS: [DisplayState; 8] = [
        DisplayState::Backlog,
        DisplayState::Waiting,
        DisplayState::Working,
        DisplayState::Needs,
        DisplayState::Review,
        DisplayState::Landing,
        DisplayState::Landed,
        DisplayState::Failed,
    ];

    /// The states of an agent with work, in the order in which charts stack them.
    pub const OF_BUSY_AGENTS: [DisplayState; 6] = [
        DisplayState::Working,
        DisplayState::Review,
        DisplayState::Landing,
        DisplayState::Waiting,
        DisplayState::Needs,
        DisplayState::Failed,
    ];

    /// The states of an agent without work.
    pub const OF_FREE_AGENTS: [DisplayState; 2] = [DisplayState::Idle, DisplayState::Offline];

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

    /// Returns the sign that fills a bar of this state in a timeline. Bars of work and waits are
    /// filled, so that people can see their length.
    pub fn bar_glyph(self) -> &'static str {
        match self {
            DisplayState::Working => "▇",
            DisplayState::Waiting => "░",
            other => other.glyph(),
        }
    }

    /// Returns the sign that fills a bar of this state on a terminal without Unicode.
    pub fn ascii_bar_glyph(self) -> &'static str {
        match self {
            DisplayState::Working => "#",
            DisplayState::Waiting => "-",
            other => other.ascii_glyph(),
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
pub(crate) fn blocking_request<'a>(board: &'a Board, task: &Task) -> Option<&'a Approval> {
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
        None if is_quiet(board, task) => ItemDisplay::new(DisplayState::Needs, STUCK),
        None => status_display(task),
    }
}

/// The label of a task whose agent has printed nothing for a long time.
const STUCK: &str = "stuck";

/// Returns whether a person should look at the task, because its agent has printed nothing for a
/// long time. Such a task is in the inbox, so it does not also count as working. A person who
/// postpones the item in the inbox lets the agent work on.
fn is_quiet(board: &Board, task: &Task) -> bool {
    task.attempt
        .and_then(|id| board.attempts.get(&id))
        .is_some_and(|attempt| inbox::is_stuck(attempt) && attempt.snoozed.is_none())
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

/// Describes the state of a task in a few words. If the task waits, the text includes the first
/// reason.
pub fn state_text(board: &Board, task: &Task, now: Now) -> String {
    let label = task_display(board, task).label;
    match schedule::wait_reasons(board, task, now).first() {
        Some(reason) => format!("{label}: {}", reason.text),
        None => label.to_owned(),
    }
}

/// Describes what happens with a task now, in a few words: the activity of its program, the agent's
/// own report of its progress, or the reason why the task waits.
pub fn activity_text(board: &Board, task: &Task, now: Now) -> String {
    let Some(attempt) = task.attempt.and_then(|id| board.attempts.get(&id)) else {
        return state_text(board, task, now);
    };
    let is_in_turn = program_activity(board, attempt) == ProgramActivity::InTurn;
    match task.progress.lines().next().filter(|_| is_in_turn) {
        Some(line) => line.to_owned(),
        None => program_activity_text(board, attempt),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_state_has_its_own_word_and_signs() {
        let columns: [fn(DisplayState) -> &'static str; 5] = [
            DisplayState::name,
            DisplayState::label,
            DisplayState::glyph,
            DisplayState::ascii_glyph,
            DisplayState::bar_glyph,
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

    /// Each state of a task or an agent is in the list of such states exactly once.
    #[test]
    fn the_lists_of_states_are_complete() {
        let of_agents = [
            &DisplayState::OF_BUSY_AGENTS[..],
            &DisplayState::OF_FREE_AGENTS,
        ]
        .concat();
        let all_but = |missing: &[DisplayState]| -> BTreeSet<DisplayState> {
            let all = DisplayState::ALL.into_iter();
            all.filter(|state| !missing.contains(state)).collect()
        };
        let tasks = BTreeSet::from(DisplayState::OF_TASKS);
        assert_eq!(tasks, all_but(&DisplayState::OF_FREE_AGENTS));
        assert_eq!(tasks.len(), DisplayState::OF_TASKS.len());
        let agents: BTreeSet<DisplayState> = of_agents.iter().copied().collect();
        assert_eq!(agents.len(), of_agents.len());
        assert_eq!(
            agents,
            all_but(&[DisplayState::Backlog, DisplayState::Landed])
        );
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
