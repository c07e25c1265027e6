//! The words for the states of missions, runners and activities, and for the progress of a task in
//! a drawing of the task graph.

use crate::board::Board;
use crate::launch::{LaunchEntry, MemberCauseKind, MemberState};
use crate::mission::{Mission, MissionEndKind, MissionState};
use crate::runner::RunnerState;
use crate::schedule::{self, WaitKind};
use crate::task::TaskStatus;
use crate::task_timeline::Activity;

use super::program::CHECKING;
use super::{DisplayState, ItemDisplay};

/// The label of a member of a side lane that has not joined its team yet.
pub const ATTACHING: &str = "still attaching";

/// Returns the state in which people see an activity of a task, such as a wait for a review.
pub fn activity_display(activity: Activity) -> ItemDisplay {
    let (state, label) = match activity {
        Activity::Working => (DisplayState::Working, DisplayState::Working.label()),
        Activity::Checking => (DisplayState::Working, CHECKING),
        Activity::Waiting(kind) => {
            let state = match kind {
                WaitKind::Permission | WaitKind::Question => DisplayState::Needs,
                WaitKind::Review => DisplayState::Review,
                WaitKind::Queue => DisplayState::Landing,
                _ => DisplayState::Waiting,
            };
            (state, kind.name())
        }
    };
    ItemDisplay::new(state, label)
}

/// Returns the state in which people see a runner.
pub fn runner_display(state: RunnerState) -> ItemDisplay {
    let (state, label) = match state {
        RunnerState::Up => (DisplayState::Landed, "up"),
        RunnerState::Draining => (DisplayState::Waiting, "draining"),
        RunnerState::Offline => (DisplayState::Offline, DisplayState::Offline.label()),
        RunnerState::Lost => (DisplayState::Failed, "lost"),
    };
    ItemDisplay::new(state, label)
}

/// Describes the state of a mission in a few words. `queue_position` is the mission's position
/// among the missions that wait for a lead.
pub fn mission_text(
    state: MissionState,
    has_lost_lead: bool,
    queue_position: Option<usize>,
) -> String {
    match (state, queue_position) {
        _ if has_lost_lead => "without a lead".into(),
        (MissionState::Queued, Some(position)) => format!("queued, position {position}"),
        (MissionState::Queued, None) => "queued".into(),
        (MissionState::Active, _) => "active".into(),
        (MissionState::Draining, _) => "paused".into(),
    }
}

/// Returns the state in which people see a mission, whether it runs or has ended.
pub fn mission_display(board: &Board, mission: &Mission) -> ItemDisplay {
    let is_running = board.missions.contains_key(&mission.id);
    let has_lost_lead = mission
        .lead
        .as_ref()
        .is_some_and(|lead| lead.lost_reason.is_some());
    let needs_person = || {
        let outlook = schedule::outlook(board, mission.id);
        outlook.open > 0 && outlook.is_settled()
    };
    let (state, label) = match (&mission.result, mission.state) {
        (Some(end), _) if end.how == MissionEndKind::Cancelled => {
            (DisplayState::Failed, "cancelled")
        }
        _ if !is_running => (DisplayState::Landed, "done"),
        _ if has_lost_lead => (DisplayState::Needs, "without a lead"),
        (_, MissionState::Queued) => (DisplayState::Waiting, "queued"),
        (_, MissionState::Draining) => (DisplayState::Waiting, "paused"),
        (_, MissionState::Active) if needs_person() => {
            (DisplayState::Needs, DisplayState::Needs.label())
        }
        (_, MissionState::Active) => (DisplayState::Working, "running"),
    };
    ItemDisplay::new(state, label)
}

/// Returns the state in which people see a member's entry in a launch of its team, which says how
/// far the start of the member got. Use [`launch_entry_display`] for an entry on the board.
pub fn member_entry_display(entry: MemberState) -> ItemDisplay {
    let (state, label) = match entry {
        MemberState::Queued => (DisplayState::Waiting, "waiting to start"),
        MemberState::Starting => (DisplayState::Working, "starting"),
        MemberState::PendingBootstrap => (DisplayState::Working, "joining"),
        MemberState::PendingPermission => (DisplayState::Needs, DisplayState::Needs.label()),
        MemberState::Alive => (DisplayState::Landed, "alive"),
        MemberState::FailedToStart => (DisplayState::Failed, "did not start"),
        MemberState::Skipped => (DisplayState::Offline, "left out"),
        MemberState::Degraded => (DisplayState::Failed, "down"),
        MemberState::Stopped => (DisplayState::Offline, "stopped"),
    };
    ItemDisplay::new(state, label)
}

/// Returns the state in which people see a member's entry in the latest launch of its team. A
/// member of a side lane attaches to a team that already runs. A member whose lane is unknown is
/// being reconciled with the record of the launch.
pub fn launch_entry_display(entry: &LaunchEntry) -> ItemDisplay {
    let shown = member_entry_display(entry.state);
    let is_lane_lost = || {
        let cause = entry.cause.as_ref();
        cause.is_some_and(|cause| cause.kind == MemberCauseKind::LaneUnknown)
    };
    let label = match entry.state {
        MemberState::Queued if entry.is_on_secondary_lane() && !entry.lead => "waiting to attach",
        MemberState::Starting | MemberState::PendingBootstrap if entry.is_on_secondary_lane() => {
            ATTACHING
        }
        MemberState::Starting | MemberState::PendingBootstrap if entry.lane.is_none() => {
            "reconciling"
        }
        MemberState::Degraded if is_lane_lost() => "reconciling",
        _ => shown.label,
    };
    ItemDisplay { label, ..shown }
}

/// The progress of a task, as coarse as a drawing of the task graph needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskProgress {
    /// The task is over.
    Ended,
    /// The task has not begun.
    Waiting,
    /// The task is in progress, or somebody must look at it.
    Active,
}

/// Returns the progress of a task with a status. A failed task is not over, because others may wait
/// for its retry.
pub fn task_progress(status: TaskStatus) -> TaskProgress {
    if status.is_terminal() && !status.has_failed() {
        TaskProgress::Ended
    } else if status.is_waiting() || status.is_in_backlog() {
        TaskProgress::Waiting
    } else {
        TaskProgress::Active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_activity_has_a_word_and_a_state() {
        let cases = [
            (Activity::Working, DisplayState::Working, "working"),
            (Activity::Checking, DisplayState::Working, "checking"),
            (
                Activity::Waiting(WaitKind::Question),
                DisplayState::Needs,
                "question",
            ),
            (
                Activity::Waiting(WaitKind::Review),
                DisplayState::Review,
                "review",
            ),
            (
                Activity::Waiting(WaitKind::Queue),
                DisplayState::Landing,
                "queue",
            ),
            (
                Activity::Waiting(WaitKind::Claim),
                DisplayState::Waiting,
                "claim",
            ),
        ];
        for (activity, state, label) in cases {
            let shown = activity_display(activity);
            assert_eq!((shown.state, shown.label), (state, label), "{activity:?}");
        }
    }

    #[test]
    fn each_runner_has_a_word_and_a_state() {
        let cases = [
            (RunnerState::Up, DisplayState::Landed, "up"),
            (RunnerState::Draining, DisplayState::Waiting, "draining"),
            (RunnerState::Offline, DisplayState::Offline, "offline"),
            (RunnerState::Lost, DisplayState::Failed, "lost"),
        ];
        for (runner, state, label) in cases {
            let shown = runner_display(runner);
            assert_eq!((shown.state, shown.label), (state, label), "{runner:?}");
        }
    }

    #[test]
    fn a_mission_without_a_lead_is_described_as_such_in_any_state() {
        let cases = [
            (MissionState::Active, false, None, "active"),
            (MissionState::Draining, false, None, "paused"),
            (MissionState::Queued, false, None, "queued"),
            (MissionState::Queued, false, Some(2), "queued, position 2"),
            (MissionState::Active, true, None, "without a lead"),
        ];
        for (state, has_lost_lead, position, text) in cases {
            assert_eq!(mission_text(state, has_lost_lead, position), text);
        }
    }

    #[test]
    fn a_failed_task_is_still_active_in_the_graph() {
        use TaskStatus::*;
        for status in TaskStatus::ALL {
            let wanted = match status {
                Completed | Cancelled => TaskProgress::Ended,
                Backlog | Unassigned | Offered | Pending => TaskProgress::Waiting,
                _ => TaskProgress::Active,
            };
            assert_eq!(task_progress(status), wanted, "{status}");
        }
    }
}
