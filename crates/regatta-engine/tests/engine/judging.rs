//! What becomes of an attempt's work before it is submitted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use regatta_core::attempt::Cause;
use regatta_core::command::PlannedTask;
use regatta_core::ids::TaskId;
use regatta_core::task::{self, Status};
use regatta_engine::Engine;
use regatta_testkit::steps::Life;

use crate::support::*;

fn causes(engine: &Engine, task: TaskId) -> Vec<Cause> {
    let attempts = engine.history().attempts_of(task).unwrap();
    attempts.iter().filter_map(|it| it.ended.as_ref().map(|it| it.cause)).collect()
}

fn with(task: task::Add) -> PlannedTask {
    PlannedTask { task, after: vec![], assign: None }
}

#[test]
fn a_ratchet_has_the_last_word() {
    for (says, status, cause) in
        [("goes on", Status::Completed, Cause::Submitted), ("refuses", Status::Failed, Cause::Rejected)]
    {
        let (world, life) = (World::new(append_own_name), Life::new());
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        world.agents.judge_by(move |command, files| match command {
            "test" => Ok(()),
            "ol hero 'ratchet it'" => {
                assert_eq!(files["a"], "T1\n", "it sees the work");
                count.fetch_add(1, Ordering::SeqCst);
                if says == "refuses" { Err("quest is closed".into()) } else { Ok(()) }
            }
            other => panic!("{other}"),
        });
        let engine = world.start_in(&life).unwrap();
        let ratchet = Some(vec!["ol".into(), "hero".into(), "ratchet it".into()]);
        let (_, tasks) = launch(&engine, &["ann"], vec![with(task::Add { ratchet, ..task_on("a", "a") })]);
        until_done(&engine, &life, &world);
        let task = engine.history().task(tasks[0]).unwrap().unwrap();
        assert_eq!((task.status, causes(&engine, tasks[0])), (status, vec![cause]));
        if says == "refuses" {
            assert!(task.reason.as_ref().unwrap().contains("quest is closed"), "{:?}", task.reason);
            assert!(world.git.moves().is_empty(), "nothing of it lands");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert_clean(&engine, &world);
        engine.shutdown();
    }
}
