//! Measures the store: claims per commit, with and without the disk's sync; opening with many open
//! tasks; and messages. `cargo run --release -p regatta-store --example figures [DIRECTORY]`.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement talks to the person who runs it"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regatta_core::board::Board;
use regatta_core::bus::PostMessage;
use regatta_core::claim::{Acquire, Acquired, ClaimMode, ClaimOwner};
use regatta_core::command::{Actor, Command, CommandOutcome, Request, decide};
use regatta_core::ids::{AgentName, BranchName, ChannelName, Label, Now, ProjectName};
use regatta_core::pattern::{PathPattern, Uri};
use regatta_core::project;
use regatta_core::task::{AddTask, AssignMode};
use regatta_engine::ports::store::{MessageFilter, Store, StoreBatch, TaskFilter};
use regatta_store::SqliteStore;

struct World {
    board: Board,
    now: Now,
    by: Actor,
}

impl World {
    fn decide_into(&mut self, batch: &mut StoreBatch, command: Command) -> CommandOutcome {
        self.now.fleet_ms += 1;
        let commit = decide(
            &self.board,
            Request {
                by: self.by.clone(),
                key: None,
                command,
            },
            self.now,
        )
        .unwrap();
        self.board = commit.board;
        batch.meta = self.board.meta();
        batch.events.extend(commit.events);
        batch.rows.extend(commit.rows);
        batch.effects.extend(commit.effects);
        commit.outcome
    }

    fn batch(&self) -> StoreBatch {
        StoreBatch {
            base_revision: self.board.revision,
            meta: self.board.meta(),
            ..StoreBatch::default()
        }
    }
}

fn main() {
    let directory_argument = std::env::args().nth(1).map(PathBuf::from);
    let synced = tempfile::tempdir_in(
        directory_argument
            .clone()
            .unwrap_or_else(std::env::temp_dir),
    )
    .unwrap();
    for (disk_name, directory) in [
        (
            "memory file system",
            tempfile::tempdir_in("/dev/shm").unwrap(),
        ),
        ("disk", synced),
    ] {
        for size in [1, 64, 256, 512] {
            measure_claims(
                disk_name,
                &directory.path().join(format!("claims-{size}.db")),
                size,
            );
        }
    }
    let directory =
        tempfile::tempdir_in(directory_argument.unwrap_or_else(std::env::temp_dir)).unwrap();
    measure_tasks(&directory.path().join("tasks.db"));
    measure_messages(&directory.path().join("messages.db"));
}

/// Measures commits in which half of the operations are grants and half are releases of earlier
/// grants.
fn measure_claims(disk_name: &str, path: &Path, size: usize) {
    let mut store = SqliteStore::open(path).unwrap();
    let by = Actor::Agent(AgentName::new("shop-dev/worker-1").unwrap());
    let mut world = World {
        board: Board::default(),
        now: Now {
            fleet_ms: 1,
            unix_ms: 1_700_000_000_000,
        },
        by,
    };
    let operations = if size == 1 { 2_000 } else { 60_000 };
    let mut claims = std::collections::VecDeque::new();
    let (mut storing, mut deciding, mut count) = (Duration::ZERO, Duration::ZERO, 0);
    while count < operations {
        let began = Instant::now();
        let mut batch = world.batch();
        for _ in 0..size {
            count += 1;
            if claims.len() > 600 {
                let (claim, token) = claims.pop_front().unwrap();
                world.decide_into(&mut batch, Command::Release { claim, token });
            } else {
                let uris =
                    vec![Uri::new(&format!("file://shop/src/module-{}/file.rs", count)).unwrap()];
                let owner = ClaimOwner::Agent(AgentName::new("shop-dev/worker-1").unwrap());
                let acquire = Acquire {
                    owner,
                    uris,
                    mode: ClaimMode::Exclusive,
                    ttl_ms: 60_000,
                    wait_ms: 0,
                    memo: "editing".into(),
                };
                let CommandOutcome::Claim(Acquired::Granted { claim, token, .. }) =
                    world.decide_into(&mut batch, Command::Acquire(acquire))
                else {
                    panic!()
                };
                claims.push_back((claim, token));
            }
        }
        deciding += began.elapsed();
        let began = Instant::now();
        store.commit(&batch).unwrap();
        storing += began.elapsed();
    }
    let per_claim_us = |duration: Duration| duration.as_secs_f64() * 1e6 / count as f64;
    println!(
        "{disk_name}: batches of {size:>3}: {:6.2} µs per claim stored, {:5.2} µs decided",
        per_claim_us(storing),
        per_claim_us(deciding)
    );
}

fn measure_tasks(path: &Path) {
    let mut store = SqliteStore::open(path).unwrap();
    let mut world = World {
        board: Board::default(),
        now: Now {
            fleet_ms: 1,
            unix_ms: 1_700_000_000_000,
        },
        by: Actor::Person("ann".into()),
    };
    let mut batch = world.batch();
    let add = project::AddProject {
        name: ProjectName::new("shop").unwrap(),
        location: "/src/shop".into(),
        trunk: BranchName::new("main").unwrap(),
        validation: vec!["make test".into()],
        validation_timeout_ms: 60_000,
        settings: project::ProjectSettings::default(),
    };
    world.decide_into(&mut batch, Command::AddProject(add));
    store.commit(&batch).unwrap();
    for hundreds in 0..1_000 {
        let mut batch = world.batch();
        for nth in 0..100 {
            let number = hundreds * 100 + nth;
            let task = AddTask {
                project: ProjectName::new("shop").unwrap(),
                subject: format!("Make part {number} of the shop work"),
                description:
                    "As a customer I want this part to work, so that I can buy what it sells. "
                        .repeat(4),
                issue_type: Default::default(),
                files: vec![PathPattern::new(&format!("src/part-{number}/**")).unwrap()],
                validation: Default::default(),
                blocked_by: vec![],
                priority: 2,
                expects: Default::default(),
                effort: None,
                model: None,
                provider: None,
                script: None,
                ratchet: None,
                alias: None,
                backlog: false,
            };
            world.decide_into(
                &mut batch,
                Command::AddTask {
                    task,
                    assign: None,
                    how: AssignMode::Direct,
                },
            );
        }
        store.commit(&batch).unwrap();
    }
    drop(store);
    let mebibytes = path.metadata().unwrap().len() as f64 / (1024.0 * 1024.0);
    let began = Instant::now();
    let mut store = SqliteStore::open(path).unwrap();
    let opened = began.elapsed();
    let loaded = store.load().unwrap();
    println!(
        "100,000 open tasks: {mebibytes:.0} MiB; opened in {opened:?}, opened and loaded in {:?}",
        began.elapsed()
    );
    assert!(loaded.board == world.board);
    let connection = rusqlite::Connection::open(path).unwrap();
    let began = Instant::now();
    connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
        .unwrap();
    println!("  quick_check {:?}", began.elapsed());
    let began = Instant::now();
    store.check().unwrap();
    println!("  check {:?}", began.elapsed());
    let began = Instant::now();
    store.backup(&path.with_extension("copy")).unwrap();
    println!("  backup {:?}", began.elapsed());
    let began = Instant::now();
    let filter = TaskFilter {
        statuses: vec![regatta_core::task::TaskStatus::Unassigned],
        limit: 50,
        ..TaskFilter::default()
    };
    assert_eq!(store.history().tasks(&filter).unwrap().len(), 50);
    println!("  50 unassigned tasks {:?}", began.elapsed());
}

fn measure_messages(path: &Path) {
    let mut store = SqliteStore::open(path).unwrap();
    let mut world = World {
        board: Board::default(),
        now: Now {
            fleet_ms: 1,
            unix_ms: 1_700_000_000_000,
        },
        by: Actor::Person("ann".into()),
    };
    let label = |name: &str| Label::new(name).unwrap();
    let mut number = 0;
    for _ in 0..1_000 {
        let mut batch = world.batch();
        for _ in 0..1_000 {
            number += 1;
            let mut labels = vec![label("common")];
            if number % 100_000 == 7 {
                labels.push(label("rare"));
            }
            let channel = ChannelName::new(if number % 50_000 == 3 {
                "quiet"
            } else {
                "general"
            })
            .unwrap();
            let text = format!(
                "Message {number} says something of a usual length to @worker-{}.",
                number % 100
            );
            world.decide_into(
                &mut batch,
                Command::Post(PostMessage {
                    channel,
                    text,
                    labels,
                    reply_to: None,
                }),
            );
        }
        store.commit(&batch).unwrap();
    }
    println!(
        "1,000,000 messages: {:.0} MiB",
        path.metadata().unwrap().len() as f64 / (1024.0 * 1024.0)
    );
    let history = store.history();
    let any = MessageFilter {
        limit: 50,
        ..MessageFilter::default()
    };
    let channel = |name: &str| Some(ChannelName::new(name).unwrap());
    let mention = Some(AgentName::new("worker-7").unwrap());
    for (description, filter) in [
        ("newest", any.clone()),
        (
            "of a channel",
            MessageFilter {
                channel: channel("general"),
                ..any.clone()
            },
        ),
        (
            "of a quiet channel and a common label",
            MessageFilter {
                channel: channel("quiet"),
                label: Some(label("common")),
                ..any.clone()
            },
        ),
        (
            "of a rare label in a loud channel",
            MessageFilter {
                channel: channel("general"),
                label: Some(label("rare")),
                ..any.clone()
            },
        ),
        (
            "of a mention and a sender",
            MessageFilter {
                mention: mention.clone(),
                from: Some("person:ann".into()),
                ..any.clone()
            },
        ),
        (
            "of a mention and a rare label",
            MessageFilter {
                mention,
                label: Some(label("rare")),
                ..any.clone()
            },
        ),
        (
            "of nobody",
            MessageFilter {
                channel: channel("general"),
                from: Some("nobody".into()),
                ..any
            },
        ),
    ] {
        history.messages(&filter).unwrap();
        let began = Instant::now();
        let found = history.messages(&filter).unwrap().len();
        println!("  {found:>2} {description}: {:?}", began.elapsed());
    }
    let began = Instant::now();
    let count = history
        .count_messages(&ChannelName::new("general").unwrap(), Default::default())
        .unwrap();
    println!("  counting {count}: {:?}", began.elapsed());
}
