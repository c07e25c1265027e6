//! The states and counts that people see agree with each other and with the board (W2).

use std::sync::Arc;

use regatta_core::board::Board;
use regatta_core::display::{self, DisplayState, EndedCounts, ItemDisplay};
use regatta_core::ids::Now;
use regatta_core::task::Task;
use regatta_core::{inbox, schedule};

/// W2: the counts add up to the tasks, and a task that needs a person is in the inbox.
pub(super) fn check_display(board: &Board, now: Now) {
    let summary = display::fleet_summary(board, None, &EndedCounts::default(), now);
    let counted = summary.working
        + summary.waiting
        + summary.backlog
        + summary.blocked_on_person
        + summary.review
        + summary.landing;
    let shown = board
        .tasks
        .values()
        .filter(|task| task.session_of().is_none())
        .count();
    assert_eq!(counted, shown, "W2: {summary:?}");
    let ended = EndedCounts::default();
    let of_projects = board
        .projects
        .keys()
        .map(|project| display::fleet_summary(board, Some(project), &ended, now).running);
    assert_eq!(
        of_projects.sum::<usize>(),
        summary.running,
        "W2: {summary:?}"
    );
    for id in board.missions.keys() {
        let outlook = schedule::outlook(board, *id);
        let shown = |state: DisplayState| {
            let tasks = board
                .tasks
                .values()
                .filter(|task| task.mission == Some(*id));
            let in_state = |task: &&Arc<Task>| display::task_display(board, task).state == state;
            tasks.filter(in_state).count()
        };
        assert_eq!(
            (outlook.running, outlook.landing),
            (shown(DisplayState::Working), shown(DisplayState::Landing)),
            "W2: {id}: {outlook:?}"
        );
    }
    let items = inbox::open_items(board, now);
    for task in board
        .tasks
        .values()
        .filter(|task| task.session_of().is_none())
    {
        let ItemDisplay { state, label } = display::task_display(board, task);
        let brief = display::state_text(board, task, now);
        assert!(
            brief == label || brief.starts_with(&format!("{label}: ")),
            "W2: a lead's brief describes {} as {brief:?} and not as {label}",
            task.id
        );
        let needs_person = matches!(state, DisplayState::Needs | DisplayState::Review);
        let is_in_inbox = items.iter().any(|item| item.task == Some(task.id));
        assert!(
            is_in_inbox || !needs_person,
            "W2: {} is {state:?} and not in the inbox",
            task.id
        );
        let has_reason = board
            .attempts
            .values()
            .any(|attempt| attempt.task == task.id && attempt.stopping.is_none());
        assert!(
            has_reason || state != DisplayState::Working,
            "W2: {} is working without a live attempt",
            task.id
        );
    }
}
