//! Tests that secrets in the texts of agents, checks and plans are in nothing that the engine
//! stores or passes on (S4).

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use regatta_core::command::{Command, PlannedTask};
use regatta_core::ids::TaskId;
use regatta_core::task::{self, TaskStatus};
use regatta_engine::ports::agents::Exit;
use regatta_engine::{Engine, RedactFn};
use regatta_testkit::fake_agents::FakeProgram;

use crate::support::*;

const SECRET: &str = "hunter2secret";

/// A data directory of one test, removed when it is dropped.
struct DataDir(PathBuf);

impl DataDir {
    fn new(name: &str) -> DataDir {
        let dir =
            std::env::temp_dir().join(format!("regatta-redaction-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        DataDir(dir)
    }

    /// Returns the contents of all its files as one text.
    fn all_text(&self) -> String {
        let (mut text, mut dirs) = (String::new(), vec![self.0.clone()]);
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                if entry.path().is_dir() {
                    dirs.push(entry.path());
                } else {
                    text += &String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap());
                }
            }
        }
        text
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

/// Creates a world whose redactor knows one secret.
fn world(script: impl Fn(&FakeProgram) -> Exit + Send + Sync + 'static) -> World {
    let mut world = World::new(script);
    world.settings.redactor = RedactFn(Arc::new(|text| text.replace(SECRET, "[redacted]")));
    world
}

fn event_text(engine: &Engine) -> String {
    format!("{:?}", engine.history().events(0, usize::MAX).unwrap())
}

/// S4: requests are redacted on both ways into the writer.
#[test]
fn s4_requests_are_redacted_before_they_are_decided() {
    let world = world(append_own_name);
    let engine = world.start();
    submit(&engine, add_project());
    submit(&engine, register_outside("ann"));
    submit(&engine, post(&format!("said {SECRET}")));
    block_on(engine.submit_async(person_request(post(&format!("asked {SECRET}"))))).unwrap();
    let mut claim = acquire("ann", "port://1", 0);
    claim.memo = format!("held {SECRET}");
    block_on(engine.acquire(person(), None, claim)).unwrap();
    let events = event_text(&engine);
    for expected in ["said [redacted]", "asked [redacted]", "held [redacted]"] {
        assert!(events.contains(expected), "{expected}: {events}");
    }
    assert!(!events.contains(SECRET));
    engine.shutdown();
}

/// S4: a secret in the output of an attempt's check is in no event, no file and no later prompt,
/// and a secret of the plan is in no prompt.
#[test]
fn s4_no_secret_of_checks_or_plans_is_in_files_or_prompts() {
    let data = DataDir::new("checks");
    let prompts = Arc::new(Mutex::new(Vec::new()));
    let recorded = prompts.clone();
    let mut world = world(move |program| {
        recorded
            .lock()
            .unwrap()
            .push(program.launch().prompt.clone());
        append_own_name(program)
    });
    world.settings.data_dir = Some(data.0.clone());
    world
        .agents
        .check_content_with(|_, _| Err(format!("Error: {SECRET} is not the password")));
    let engine = world.start();
    let mut task = task_on("a", "a");
    task.description += &format!("\nThe password is {SECRET}.");
    let (_, tasks) = launch(
        &engine,
        &["ann"],
        vec![PlannedTask {
            task,
            after: vec![],
            assign: None,
        }],
    );
    wait_until(&engine, "the task has failed", |board| {
        board.ended_status(tasks[0]) == Some(TaskStatus::Failed)
    });
    let task = engine.history().task(tasks[0]).unwrap().unwrap();
    assert!(
        task.reason
            .as_ref()
            .is_some_and(|reason| reason.contains("[redacted] is not")),
        "{:?}",
        task.reason
    );
    let prompts = prompts.lock().unwrap();
    assert!(
        prompts
            .iter()
            .all(|prompt| prompt.contains("The password is [redacted].")),
        "{prompts:?}"
    );
    assert!(
        prompts[1..]
            .iter()
            .all(|prompt| prompt.contains("Error: [redacted] is not")),
        "{prompts:?}"
    );
    assert!(
        prompts.len() > 1 && !prompts.iter().any(|prompt| prompt.contains(SECRET)),
        "{prompts:?}"
    );
    let files = data.all_text();
    assert!(
        files.contains("[redacted] is not the password") && !files.contains(SECRET),
        "{files}"
    );
    engine.shutdown();
}

/// S4: the output of checks is redacted also when the work needs no change.
#[test]
fn s4_the_output_of_checks_is_redacted_if_no_change_is_needed() {
    let data = DataDir::new("unneeded");
    let mut world = world(append_own_name);
    world.settings.data_dir = Some(data.0.clone());
    world
        .agents
        .check_content_with(|_, _| Err(format!("Error: {SECRET} is not the password")));
    let engine = world.start();
    submit(&engine, add_project());
    submit(&engine, register_outside("ann"));
    submit(
        &engine,
        Command::AddTask {
            task: task_on("a", "a"),
            assign: None,
            how: task::AssignMode::Direct,
        },
    );
    let (attempt, token) = polled(&submit(&engine, poll_for("ann")));
    submit(
        &engine,
        Command::Finish {
            task: TaskId(1),
            attempt,
            token,
            output: None,
            not_needed: true,
            learnings: vec![],
        },
    );
    wait_until(&engine, "the attempt was judged", |board| {
        !board.attempts.contains_key(&attempt)
    });
    let stored_text = event_text(&engine) + &data.all_text();
    assert!(
        stored_text.contains("[redacted] is not the password") && !stored_text.contains(SECRET),
        "{stored_text}"
    );
    engine.shutdown();
}
