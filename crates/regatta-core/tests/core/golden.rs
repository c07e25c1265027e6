//! Golden scenarios: commands on a virtual clock, and the resulting events and effects, stored as
//! text that a person can review.
//! // `UPDATE_GOLDEN=1 cargo test -p regatta-core` writes the files again. Read the difference
//! before you keep it.

use regatta_core::attempt::Exited;
use regatta_core::claim::{Acquire, Owner};
use regatta_core::command::{Command, Commit, Outcome, PlannedTask, Request};
use regatta_core::ids::{Now, TaskId};
use regatta_core::landing::Tried;
use regatta_core::mission::{Mode, Start};
use regatta_core::refusal::Refusal;
use regatta_core::task::Status;
use serde_json::Value;

use crate::world::{MINUTE, SECOND, World, acquire, agent, exits, shop, work};

pub(crate) fn command_line(request: &Request, now: Now) -> String {
    let mut value = serde_json::to_value(&request.command).unwrap();
    let name = value.as_object_mut().and_then(|it| it.remove("command")).unwrap();
    format!(
        "\n{} {}: {}{}",
        clock(now),
        request.by.to_string().trim_end_matches(':'),
        name.as_str().unwrap_or_default(),
        brief(&value)
    )
}

pub(crate) fn refusal_line(refusal: &Refusal) -> String {
    format!("  refused {}: {}. Next: {}", refusal.code(), refusal.message(), refusal.hint())
}

pub(crate) fn commit_lines(done: &Commit) -> Vec<String> {
    let mut lines = Vec::new();
    for recorded in &done.events {
        let value = serde_json::to_value(&recorded.event).unwrap();
        let (kind, subject) = (recorded.event.kind(), recorded.event.subject());
        lines.push(format!("  {:>3} {kind} {subject}{}", recorded.revision, brief(&value["data"])));
        for (key, effect) in done.effects.iter().filter(|it| it.0.revision == recorded.revision) {
            let mut value = serde_json::to_value(effect).unwrap();
            let name = value.as_object_mut().and_then(|it| it.remove("do")).unwrap();
            lines.push(format!("      do {key} {}{}", name.as_str().unwrap_or_default(), brief(&value)));
        }
    }
    if done.outcome != Outcome::Done {
        lines.push(format!("  ={}", brief(&serde_json::to_value(&done.outcome).unwrap())));
    }
    lines
}

fn clock(now: Now) -> String {
    format!("{:>3}:{:02}.{:03}", now.at / MINUTE, now.at / SECOND % 60, now.at % SECOND)
}

/// Returns the fields of a value that are not empty, without the dates.
fn brief(value: &Value) -> String {
    let mut out = String::new();
    let Value::Object(fields) = value else { return plain(value).map_or(out, |it| format!(" {it}")) };
    for (name, value) in fields {
        if name.ends_with("wall") {
            continue;
        }
        match value {
            Value::Object(_) => {
                let inner = brief(value);
                if !inner.is_empty() {
                    out.push_str(&format!(" {name}({})", inner.trim_start()));
                }
            }
            _ => {
                if let Some(text) = plain(value) {
                    out.push_str(&format!(" {name}={text}"));
                }
            }
        }
    }
    out
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) if items.is_empty() => None,
        Value::String(text) if text.contains(' ') => Some(format!("{text:?}")),
        Value::String(text) if text.len() == 40 => Some(format!("…{}", &text[36..])),
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let texts: Vec<String> = items.iter().map(|it| brief(it).trim_start().to_owned()).collect();
            Some(format!("[{}]", texts.join(", ")))
        }
        Value::Object(_) => Some(brief(value)),
        other => Some(other.to_string()),
    }
}

/// Compares the transcript with the stored file.
fn check(name: &str, world: &World) {
    let found = world.transcript.join("\n").trim_start_matches('\n').to_owned() + "\n";
    let path = format!("{}/tests/core/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &found).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept != found {
        let same = kept.lines().zip(found.lines()).take_while(|(kept, found)| kept == found).count();
        let (want, got) = (kept.lines().nth(same), found.lines().nth(same));
        panic!("{path}:{}\n kept {want:?}\nfound {got:?}\nUPDATE_GOLDEN=1 writes it again", same + 1);
    }
}

#[test]
fn one_task_from_add_to_trunk() {
    let mut world = World::with(&[("ada", 1)]);
    world.add_task("word list", &["src/words.rs"]);
    world.advance(SECOND);
    let grant = world.take_supervised("ada");
    world.advance(30 * SECOND);
    world.ask("regatta", exits(&grant, Exited::Done { output: Some("It reads the list.".into()) }));
    world.advance(2 * SECOND);
    let verdict = crate::world::passed(&["src/words.rs"]);
    let landing = world.judge(&grant, verdict).unwrap();
    world.advance(SECOND);
    world.land(landing);
    check("one_task", &world);
}

#[test]
fn two_overlapping_tasks_run_one_after_the_other() {
    let mut world = World::with(&[("ada", 1), ("bob", 1)]);
    let first = world.add_task("settings", &["src/settings.go", "src/a.go"]);
    let second = world.add_task("more settings", &["src/settings.*"]);
    let grant = world.take("ada");
    assert_eq!(grant.task, first);
    assert_eq!(world.poll("bob"), None);
    world.finish_and_land(&grant);
    let grant = world.take("bob");
    assert_eq!(grant.task, second);
    world.finish_and_land(&grant);
    check("two_overlapping_tasks", &world);
}

#[test]
fn an_expired_claim_goes_to_the_next_wait() {
    let mut world = World::with(&[]);
    let trunk = &["workspace://shop/default"];
    let held = world.hold("ada", trunk);
    let wait = world.wait_for("bob", trunk, MINUTE);
    world.advance(30 * SECOND);
    let next = world.granted_from(wait).unwrap();
    world.refused("ada", Command::Renew { claim: held.claim, token: held.token });
    world.refused("ada", Command::Release { claim: held.claim, token: held.token });
    world.release("bob", next);
    check("claim_hand_over", &world);
}

/// A plan in which tasks 2 and 3 come after task 1, task 4 after task 3, and task 5 after tasks 2,
/// 3 and 4.
pub(crate) fn auth_plan() -> Vec<PlannedTask> {
    let plan: [(&str, &str, &[usize]); 5] = [
        ("auth types", "src/auth/types.rs", &[]),
        ("token store", "src/auth/store.rs", &[0]),
        ("login handler", "src/auth/login.rs", &[0]),
        ("login page", "web/login.html", &[2]),
        ("end to end test", "tests/login.rs", &[1, 2, 3]),
    ];
    plan.iter()
        .map(|(subject, file, after)| PlannedTask { task: work(subject, &[file]), after: after.to_vec(), assign: None })
        .collect()
}

#[test]
fn a_mission_runs_in_waves() {
    let mut world = World::with(&[("ada", 2), ("bob", 2)]);
    let mission = Start {
        project: shop(),
        title: "sign in".into(),
        agents: vec![agent("ada"), agent("bob")],
        team: None,
        max_workers: 4,
        mode: Mode::Waves,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    world.ask("ann", Command::StartMission { mission, tasks: auth_plan(), adopt: vec![] });
    let mut waves: Vec<Vec<u64>> = Vec::new();
    while !world.board.tasks.is_empty() {
        let mut wave = Vec::new();
        for name in ["ada", "bob", "ada", "bob"] {
            wave.extend(world.poll(name));
        }
        waves.push(wave.iter().map(|it| it.task.0).collect());
        for grant in &wave {
            world.finish_and_land(grant);
        }
    }
    assert_eq!(waves, [vec![1], vec![2, 3], vec![4], vec![5]]);
    check("mission_in_waves", &world);
}

#[test]
fn a_restart_after_a_crash_keeps_claims_and_ends_waits() {
    let mut world = World::with(&[("ada", 1)]);
    world.add_task("word list", &["src/words.rs"]);
    let running = world.take_supervised("ada");
    let held = world.hold("bob", &["port://8080"]);
    let wait = world.wait_for("eve", &["port://8080"], MINUTE);
    world.advance(20 * SECOND);
    world.restart();
    assert!(world.board.waits.is_empty(), "{wait} survived the restart although its caller is gone");
    // The lease had 10 s left and has 30 s again, because nobody could renew it during the restart.
    world.advance(29 * SECOND);
    assert!(world.board.claims.contains_key(&held.claim));
    world.advance(SECOND);
    assert!(!world.board.claims.contains_key(&held.claim));
    world.ask("regatta", exits(&running, Exited::Lost));
    assert_eq!(world.task(running.task).failures, 0, "the crash counts as a failed attempt");
    world.take_supervised("ada");
    check("crash_and_resume", &world);
}

#[test]
fn a_conflict_is_fixed_up_and_lands() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("word list", &["src/**"]);
    let first = world.take("ada");
    let landing = world.submit(&first);
    world.tried(landing, Tried::Conflict { at: landing, paths: vec!["src/words.rs".into()], kinds: vec![] });
    assert_eq!((world.status(task), world.task(task).fixups), (Status::Unassigned, 1));
    let second = world.take("ada");
    assert_eq!(second.task, TaskId(1));
    world.finish_and_land(&second);
    check("conflict_then_retry", &world);
}

/// All refusals have this form, so one is kept here as a person sees it.
#[test]
fn a_refused_claim_names_its_holder_and_the_remaining_time() {
    let mut world = World::with(&[]);
    let ask = Acquire { memo: "merging".into(), ..acquire(Owner::Agent(agent("ada")), &["workspace://shop/default"]) };
    world.hold_with("ada", ask);
    let refusal = world.refused("bob", Command::Acquire(acquire(Owner::Agent(agent("bob")), &["workspace://shop/*"])));
    assert_eq!(refusal.message(), "workspace://shop/default is held by ada (merging), for 30 s more unless renewed");
    assert_eq!(refusal.code(), "claim_held");
}
