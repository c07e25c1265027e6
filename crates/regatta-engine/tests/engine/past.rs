//! Tests of the timeline reader: the board at any revision, and the timeline of each task.

use regatta_core::ids::TaskId;
use regatta_core::life::Life;
use regatta_engine::past::Past;
use regatta_engine::ports::store::Store;
use regatta_testkit::memory::MemoryStore;
use regatta_testkit::store_suite::story;

/// D4: the board at a revision is the board that was committed then, for any order of queries.
#[test]
fn d4_the_board_at_any_revision_is_the_committed_one() {
    let steps = story::everything();
    let mut store = MemoryStore::new();
    store.load().unwrap();
    steps.iter().for_each(|it| store.commit(&it.batch).unwrap());
    let (history, past) = (store.history(), Past::default());
    assert!(steps.len() > 50, "the scenario is too short to test anything: {}", steps.len());
    for it in steps.iter().rev().step_by(7).chain(steps.iter().step_by(5)) {
        let found = past.board_at(&*history, it.board.revision).unwrap();
        assert!(found == it.board, "D4: another board at {}", it.board.revision);
    }
}

/// W1: a timeline that is read repeatedly at rising revisions equals a timeline that is read once
/// at the end.
#[test]
fn w1_a_timeline_read_step_by_step_equals_one_read_at_once() {
    let steps = story::everything();
    let mut store = MemoryStore::new();
    store.load().unwrap();
    let history = store.history();
    let slowly = Past::default();
    let last = steps.last().map(|it| it.board.clone()).unwrap();
    let tasks: Vec<TaskId> = (1..=last.counters.task).map(TaskId).collect();
    let mut lives: Vec<Life> = Vec::new();
    for it in &steps {
        store.commit(&it.batch).unwrap();
        lives = tasks.iter().map(|id| slowly.life(&*history, *id, it.board.revision).unwrap()).collect();
    }
    for (id, seen) in tasks.iter().zip(&lives) {
        let told = Past::default().life(&*history, *id, last.revision).unwrap();
        assert_eq!(told, *seen, "{id}");
        let lasts = told.stretches.last().is_some_and(|it| it.to_wall.is_none());
        assert_eq!(lasts, last.tasks.contains_key(id), "W1: {id} {told:?}");
    }
    assert!(lives.iter().any(|it| it.stretches.len() > 2), "no task both waited and worked");
}
