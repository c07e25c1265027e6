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
        .for_each(|step| store.commit(&step.batch).unwrap());
    let (history, reader) = (store.history(), TimelineReader::default());
    assert!(
        steps.len() > 50,
        "the scenario is too short to test anything: {}",
        steps.len()
    );
    for step in steps.iter().rev().step_by(7).chain(steps.iter().step_by(5)) {
        let found = reader.board_at(&*history, step.board.revision).unwrap();
        assert!(
            found == step.board,
            "D4: another board at {}",
            step.board.revision
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
    let reader = TimelineReader::default();
    let last = steps.last().map(|step| step.board.clone()).unwrap();
    let tasks: Vec<TaskId> = (1..=last.counters.task).map(TaskId).collect();
    let mut timelines: Vec<TaskTimeline> = Vec::new();
    for step in &steps {
        store.commit(&step.batch).unwrap();
        timelines = tasks
            .iter()
            .map(|id| {
                reader
                    .timeline(&*history, *id, step.board.revision)
                    .unwrap()
            })
            .collect();
    }
    for (id, stepwise) in tasks.iter().zip(&timelines) {
        let at_once = TimelineReader::default()
            .timeline(&*history, *id, last.revision)
            .unwrap();
        assert_eq!(at_once, *stepwise, "{id}");
        let is_open = at_once
            .intervals
            .last()
            .is_some_and(|interval| interval.to_unix_ms.is_none());
        assert_eq!(is_open, last.tasks.contains_key(id), "W1: {id} {at_once:?}");
    }
    assert!(
        timelines
            .iter()
            .any(|timeline| timeline.intervals.len() > 2),
        "no task both waited and worked"
    );
}
