//! Tests that wrongly stored data of older programs is repaired when a store is opened or restored.

use std::fs;

use regatta_core::board::Board;
use regatta_core::claim::ClaimMode;
use regatta_core::command::{Actor, Command, CommandOutcome, Report};
use regatta_core::event::Recorded;
use regatta_core::ids::{AgentName, BranchName, Now, ProjectName, TaskId};
use regatta_core::pattern::{PathPattern, Uri};
use regatta_core::schedule::PollRequest;
use regatta_core::task::{self, AssignMode};
use regatta_core::{agent, claim, project};
use regatta_engine::ports::store::Store;
use regatta_store::{SqliteStore, restore};
use regatta_testkit::store_suite::history_fixture::HistoryBuilder;

use crate::support::{StoreFile, commit_all};

const FILES: [&str; 4] = ["web/50% off/index.html", "docs/100%.md", "%61.txt", "a.txt"];

/// Returns a story of four running tasks on files with percent signs in their names, and an agent's
/// own claim.
fn percent_story() -> HistoryBuilder {
    let mut builder = HistoryBuilder::default();
    builder.now = Now {
        fleet_ms: 1_000,
        unix_ms: 1_700_000_000_000,
    };
    let (ann, bob) = (Actor::Person("ann".into()), AgentName::new("bob").unwrap());
    let shop = ProjectName::new("shop").unwrap();
    builder.report(Report::DaemonStarted { pid: 1 });
    let added = project::AddProject {
        name: shop.clone(),
        location: "/src/shop".into(),
        trunk: BranchName::new("main").unwrap(),
        validation: vec!["make test".to_owned()],
        validation_timeout_ms: 60_000,
        settings: project::ProjectSettings::default(),
    };
    builder.run(&ann, None, Command::AddProject(added));
    let register = agent::RegisterAgent {
        name: bob.clone(),
        runtime: agent::Runtime::Outside,
        role: agent::Role::Worker,
        provider: None,
        profile: agent::Profile::default(),
        description: String::new(),
        max_tasks: 9,
    };
    builder.run(&ann, None, Command::RegisterAgent(register));
    for file in FILES {
        let task = task::AddTask {
            files: vec![PathPattern::new(file).unwrap()],
            validation: task::Validation {
                tests: vec!["make test".into()],
                ..task::Validation::default()
            },
            ..serde_json::from_value(serde_json::json!({ "project": "shop", "subject": file }))
                .unwrap()
        };
        builder.run(
            &ann,
            None,
            Command::AddTask {
                task,
                assign: None,
                how: AssignMode::Direct,
            },
        );
    }
    for _ in FILES {
        let poll = PollRequest::new(bob.clone());
        let polled = builder.run(&Actor::Agent(bob.clone()), None, Command::Poll(poll));
        assert!(
            matches!(polled, CommandOutcome::Polled(Some(_))),
            "{polled:?}"
        );
    }
    let acquire = claim::Acquire {
        owner: claim::ClaimOwner::Agent(bob.clone()),
        uris: vec![Uri::new("file://shop/with%2Fslash").unwrap()],
        mode: ClaimMode::Exclusive,
        ttl_ms: 60_000,
        wait_ms: 0,
        memo: "50% file://shop/x".into(),
    };
    builder.run(&Actor::Agent(bob), None, Command::Acquire(acquire));
    builder
}

/// Turns a store into one that a program of schema 8 would have written, with unescaped percent
/// signs of manifests.
fn rewrite_as_schema_8(store_file: &StoreFile) {
    let raw = store_file.raw_connection();
    for table in ["claims", "events"] {
        let changed = raw
            .execute(
                &format!("UPDATE {table} SET body = replace(body, '%25', '%')"),
                [],
            )
            .unwrap();
        assert!(changed > 0);
    }
    raw.execute_batch("DROP TABLE identity").unwrap();
    raw.pragma_update(None, "user_version", 8).unwrap();
    fs::remove_file(store_file.file_path("regatta.db.mark")).unwrap();
}

fn assert_complete(store: &mut SqliteStore, builder: &HistoryBuilder) {
    let loaded = store.load().unwrap();
    assert_eq!(loaded.unreadable_rows, []);
    assert!(loaded.board == builder.board, "the board has changed");
    let recorded: Vec<Recorded> = builder
        .steps
        .iter()
        .flat_map(|step| step.batch.events.clone())
        .collect();
    let read = store.history().events(0, usize::MAX).unwrap();
    assert!(read == recorded, "the events have changed");
    let mut folded = Board::default();
    read.iter().for_each(|event| folded.fold(event));
    assert!(folded == loaded.board);
    store.check().unwrap();
}

/// D9: a store with claims that an older program could write but not read is repaired, after it is
/// backed up.
#[test]
fn d9_a_store_with_raw_percent_signs_is_repaired_when_it_is_opened() {
    let builder = percent_story();
    let manifests: Vec<&str> = builder
        .board
        .claims
        .values()
        .flat_map(|claim| &claim.uris)
        .map(Uri::as_str)
        .collect();
    for uri in [
        "file://shop/%2561.txt",
        "file://shop/a.txt",
        "file://shop/docs/100%25.md",
    ] {
        assert!(manifests.contains(&uri), "{manifests:?}");
    }
    let store_file = StoreFile::with_commits(&builder.steps);
    rewrite_as_schema_8(&store_file);
    let copy = store_file.file_path("old.db");
    fs::copy(store_file.path(), &copy).unwrap();
    assert_complete(&mut store_file.store(), &builder);
    assert_complete(&mut store_file.store(), &builder); // the repair runs only once
    assert!(store_file.file_path("backups/before-schema-10.db").exists());

    // L1: two files are still two files, and neither is claimed twice.
    let board = store_file.store().load().unwrap().board;
    for (file, task) in FILES.iter().zip(1..) {
        let uri = Uri::for_file(
            &ProjectName::new("shop").unwrap(),
            &PathPattern::new(file).unwrap(),
        );
        let holders: Vec<_> = board
            .claims
            .values()
            .filter(|claim| claim.uris.contains(&uri))
            .collect();
        let attempt = board
            .attempts
            .values()
            .find(|attempt| attempt.task == TaskId(task))
            .unwrap();
        assert_eq!(holders.len(), 1, "{uri}");
        assert_eq!(holders[0].owner, claim::ClaimOwner::Attempt(attempt.id));
    }

    // A backup from that time can be restored too.
    let other_file = StoreFile::new();
    assert_eq!(restore(&copy, &other_file.path()).unwrap(), []);
    assert_eq!(
        other_file.store().load().unwrap().board.claims,
        builder.board.claims
    );
}

/// The store was killed with deferred rows. Its events are applied only after the repair.
#[test]
fn d9_a_store_with_deferred_rows_is_repaired_before_its_events_are_applied() {
    let builder = percent_story();
    let (store_file, crashed) = (
        StoreFile::with_limits(regatta_store::DeferralLimits {
            min_rows_to_defer: 0,
            max_deferred_rows: usize::MAX,
        }),
        StoreFile::new(),
    );
    let mut store = store_file.store();
    commit_all(&mut store, &builder.steps);
    assert!(store.has_deferred_rows());
    store.backup(&crashed.path()).unwrap();
    crashed
        .raw_connection()
        .execute("UPDATE events SET body = replace(body, '%25', '%')", [])
        .unwrap();
    crashed
        .raw_connection()
        .execute_batch("DROP TABLE identity; PRAGMA user_version = 8")
        .unwrap();
    assert_complete(&mut crashed.store(), &builder);
}
