//! Tests of the timeline reader: the board at any revision, and the timeline of each task.

use regatta_core::ids::TaskId;
use regatta_core::task_timeline::TaskTimeline;
use regatta_engine::ports::store::Store;
use regatta_engine::timeline_reader::TimelineReader;
use regatta_testkit::fake_store::FakeStore;
use regatta_testkit::store_suite::history_fixture;

/// D4: the board at a revision is the board that was committed then, for any order of queries.
#[test]
fn d4_the_board_at_any_revision_is_the_committed_one() {
    let steps = history_fixture::all_steps();
    let mut store = FakeStore::new();
    store.load().unwrap();
    steps
        .iter()
        .for_each(|commit_step| store.commit(&commit_step.batch).unwrap());
    let (history, past) = (store.history(), TimelineReader::default());
    assert!(
        steps.len() > 50,
        "the scenario is too short to test anything: {}",
        steps.len()
    );
    for commit_step in steps.iter().rev().step_by(7).chain(steps.iter().step_by(5)) {
        let found = past
            .board_at(&*history, commit_step.board.revision)
            .unwrap();
        assert!(
            found == commit_step.board,
            "D4: another board at {}",
            commit_step.board.revision
        );
    }
}

/// W1: a timeline that is read repeatedly at rising revisions equals a timeline that is read once
/// at the end.
#[test]
fn w1_a_timeline_read_step_by_step_equals_one_read_at_once() {
    let steps = history_fixture::all_steps();
    let mut store = FakeStore::new();
    store.load().unwrap();
    let history = store.history();
    let slowly = TimelineReader::default();
    let last = steps
        .last()
        .map(|commit_step| commit_step.board.clone())
        .unwrap();
    let tasks: Vec<TaskId> = (1..=last.counters.task).map(TaskId).collect();
    let mut lives: Vec<TaskTimeline> = Vec::new();
    for commit_step in &steps {
        store.commit(&commit_step.batch).unwrap();
        lives = tasks
            .iter()
            .map(|id| {
                slowly
                    .timeline(&*history, *id, commit_step.board.revision)
                    .unwrap()
            })
            .collect();
    }
    for (id, seen) in tasks.iter().zip(&lives) {
        let told = TimelineReader::default()
            .timeline(&*history, *id, last.revision)
            .unwrap();
        assert_eq!(told, *seen, "{id}");
        let lasts = told
            .intervals
            .last()
            .is_some_and(|activity_interval| activity_interval.to_unix_ms.is_none());
        assert_eq!(lasts, last.tasks.contains_key(id), "W1: {id} {told:?}");
    }
    assert!(
        lives
            .iter()
            .any(|task_timeline| task_timeline.intervals.len() > 2),
        "no task both waited and worked"
    );
}
