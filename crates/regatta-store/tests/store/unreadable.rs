//! D11: a row that cannot be read is set aside and reported, and everything else works.

use regatta_core::board::Board;
use regatta_core::command::{Actor, BoardInput, Command, Report, Request, decide};
use regatta_core::event::Event;
use regatta_core::ids::{AgentName, Now, TaskId};
use regatta_core::schedule::PollRequest;
use regatta_engine::ports::store::{MessageFilter, Store, TaskFilter};
use regatta_store::{DeferralLimits, SqliteStore, restore};
use regatta_testkit::store_suite::history_fixture::{CommitStep, all_steps};
use rusqlite::Connection;

use crate::support::{StoreFile, commit_all};

/// The tables with the board's rows, the key of each, and the condition for the rows that the board
/// needs.
const TABLES: [(&str, &str, &str); 23] = [
    ("projects", "name", "1"),
    ("agents", "name", "1"),
    ("missions", "id", "live = 1"),
    (
        "tasks",
        "id",
        "live = 1 AND status NOT IN ('completed', 'cancelled')",
    ),
    ("attempts", "id", "live = 1"),
    ("claims", "id", "1"),
    ("waits", "id", "1"),
    ("landings", "id", "live = 1"),
    ("cursors", "agent", "1"),
    ("answers", "request", "1"),
    ("approvals", "id", "live = 1"),
    ("rules", "id", "1"),
    ("budgets", "scope", "1"),
    ("days", "day", "1"),
    ("parked", "name", "1"),
    ("runners", "name", "1"),
    ("hooks", "id", "1"),
    ("firings", "id", "live = 1"),
    ("teams", "name", "1"),
    ("launches", "id", "live = 1"),
    ("conversations", "id", "live = 1"),
    ("deliveries", "key", "1"),
    ("outbox", "revision", "1"),
];

/// Does with a board what a daemon does after a start: it resumes, time passes, and agents poll.
fn run_daemon_start(board: &Board, case: &str) {
    let mut board = board.clone();
    let mut now = Now {
        fleet_ms: board.fleet_ms + 1,
        unix_ms: 1_800_000_000_000,
    };
    let polls = ["ann", "bob"].map(|name| {
        let agent = AgentName::new(name).unwrap();
        BoardInput::from(Request {
            by: Actor::Regatta,
            key: None,
            command: Command::Poll(PollRequest::new(agent)),
        })
    });
    let inputs = [Report::DaemonStarted { pid: 3 }, Report::Tick]
        .map(BoardInput::from)
        .into_iter()
        .chain(polls);
    for input in inputs.chain((0..3).map(|_| Report::Tick.into())) {
        now = Now {
            fleet_ms: now.fleet_ms + 3_600_000,
            unix_ms: now.unix_ms + 3_600_000,
        };
        let decided = std::panic::catch_unwind(|| decide(&board, input.clone(), now));
        let decided = decided.unwrap_or_else(|_| panic!("{case}: {input:?} panicked"));
        if let Ok(commit) = decided {
            board = commit.board;
        }
    }
}

fn damage(db: &Connection, table: &str, condition: &str) -> Vec<i64> {
    let sql = format!("SELECT row_number() OVER () FROM {table} WHERE {condition}");
    let mut statement = db.prepare(&sql).unwrap();
    statement
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

/// Damages every row of every table, one at a time.
fn damage_each_row(steps: &[CommitStep]) -> usize {
    let (store_file, mut damaged_rows) = (StoreFile::with_commits(steps), 0);
    let complete = store_file.store().load().unwrap();
    for (table, key, condition) in TABLES {
        for nth in damage(&store_file.raw_connection(), table, condition) {
            let this = format!(
                "(SELECT body FROM {table} WHERE {condition} LIMIT 1 OFFSET {})",
                nth - 1
            );
            let (id, body): (String, String) = store_file
                .raw_connection()
                .query_row(
                    &format!("SELECT CAST({key} AS TEXT), body FROM {table} WHERE body = {this}"),
                    [],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .unwrap();
            let case = format!("row {id} of {table}");
            let swap = |from: &str, to: &str| {
                store_file
                    .raw_connection()
                    .execute(
                        &format!("UPDATE {table} SET body = ?2 WHERE body = ?1"),
                        [from, to],
                    )
                    .unwrap()
            };
            if swap(&body, "{\"id\": \"spoilt\"") != 1 {
                // several rows have the same body, so they cannot be told apart
                swap("{\"id\": \"spoilt\"", &body);
                continue;
            }
            damaged_rows += 1;
            let mut store = store_file.store();
            let loaded = store.load().unwrap();
            assert_eq!(
                loaded.unreadable_rows.len(),
                1,
                "{case}: {:?}",
                loaded.unreadable_rows
            );
            assert_eq!(
                (
                    loaded.unreadable_rows[0].table,
                    &loaded.unreadable_rows[0].id
                ),
                (table, &id)
            );
            assert_eq!(loaded.board.revision, complete.board.revision);
            run_daemon_start(&loaded.board, &case);
            let why = store.check().unwrap_err();
            assert!(
                why.code == "corrupt"
                    && why
                        .message
                        .contains(&format!("row {id} of its table {table}")),
                "{why:?}"
            );
            drop(store);
            assert_eq!(
                swap("{\"id\": \"spoilt\"", &body),
                1,
                "the unreadable row was moved"
            );
        }
    }
    assert!(store_file.store().load().unwrap().board == complete.board);
    damaged_rows
}

#[test]
fn d11_any_unreadable_row_is_set_aside_and_the_rest_is_loaded() {
    let steps = all_steps();
    let mut spoilt = damage_each_row(&steps);
    // At an earlier step other rows are live.
    for nth in (20..steps.len()).step_by(steps.len() / 6) {
        spoilt += damage_each_row(&steps[..nth]);
    }
    assert!(spoilt > 200, "only {spoilt} rows were damaged");
}

/// D11: an event that cannot be read keeps its place, and the log, the check, a backup and a
/// restore continue past it.
#[test]
fn d11_an_unreadable_event_hides_no_other() {
    let steps = all_steps();
    let store_file = StoreFile::with_commits(&steps);
    store_file
        .raw_connection()
        .execute_batch("UPDATE events SET body = '{\"kind\":\"x\"}' WHERE revision = 3")
        .unwrap();
    let mut store = store_file.store();
    assert!(
        store.load().unwrap().board == steps.last().unwrap().board,
        "the rows are complete"
    );
    let recorded: Vec<_> = steps
        .iter()
        .flat_map(|step| step.batch.events.clone())
        .collect();
    let read = store.history().events(0, usize::MAX).unwrap();
    assert_eq!(read.len(), recorded.len());
    for (read, recorded) in read.iter().zip(&recorded) {
        assert!(
            read == recorded
                || read.revision == 3 && matches!(read.event, Event::EventUnreadable(_))
        );
    }
    let why = store.check().unwrap_err();
    assert!(
        why.message
            .contains("row 3 of its table events cannot be read"),
        "{why:?}"
    );
    let backup = store_file.file_path("copy.db");
    store.backup(&backup).unwrap();
    drop(store);
    let unreadable = restore(&backup, &store_file.path()).unwrap();
    assert_eq!(unreadable.len(), 1);
    assert_eq!((unreadable[0].table, &*unreadable[0].id), ("events", "3"));
    let mut store = store_file.store();
    assert!(store.load().unwrap().board.tasks == steps.last().unwrap().board.tasks);
    assert_eq!(
        store.history().events(0, usize::MAX).unwrap().len(),
        recorded.len()
    );
}

/// D11: the rows are behind the events, and an event among them cannot be read. Later events are
/// applied.
#[test]
fn d11_a_store_with_deferred_rows_continues_past_an_unreadable_event() {
    let steps = all_steps();
    let (store_file, crashed) = (
        StoreFile::with_limits(DeferralLimits {
            min_rows_to_defer: 0,
            max_deferred_rows: usize::MAX,
        }),
        StoreFile::new(),
    );
    let mut store = store_file.store();
    commit_all(&mut store, &steps);
    assert!(store.has_deferred_rows());
    store.backup(&crashed.path()).unwrap();
    crashed
        .raw_connection()
        .execute_batch(
            "UPDATE events SET body = '[[' WHERE revision = (SELECT max(revision) FROM events) - 1",
        )
        .unwrap();
    let mut recovered = SqliteStore::open(&crashed.path()).unwrap();
    let board = recovered.load().unwrap().board;
    assert_eq!(
        board.revision,
        steps.last().unwrap().board.revision,
        "a number would be assigned twice (L2)"
    );
    run_daemon_start(&board, "without an event");
}

/// D11: a bad row does not hide the other rows of a list, and reading it alone is an error.
#[test]
fn d11_lists_omit_unreadable_rows_and_reading_one_alone_is_an_error() {
    let store_file = StoreFile::with_commits(&all_steps());
    store_file
        .raw_connection()
        .execute_batch("UPDATE messages SET body = substr(body, 1, 20) WHERE id = 2")
        .unwrap();
    store_file
        .raw_connection()
        .execute_batch("UPDATE tasks SET body = 'x' WHERE id = 2")
        .unwrap();
    let store = store_file.store();
    let history = store.history();
    let count = |table: &str| -> usize {
        store_file
            .raw_connection()
            .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
                row.get::<_, i64>(0)
            })
            .unwrap() as usize
    };
    let messages = MessageFilter {
        limit: 1_000,
        ..MessageFilter::default()
    };
    assert_eq!(
        history.messages(&messages).unwrap().len(),
        count("messages") - 1
    );
    let since = MessageFilter {
        since_unix_ms: Some(1),
        ..messages
    };
    assert_eq!(
        history.messages(&since).unwrap().len(),
        count("messages") - 1
    );
    assert_eq!(
        history.tasks(&TaskFilter::default()).unwrap().len(),
        count("tasks") - 1
    );
    let why = history.task(TaskId(2)).unwrap_err();
    assert!(
        why.code == "corrupt" && why.message.contains("row 2 of its table tasks"),
        "{why:?}"
    );
}
