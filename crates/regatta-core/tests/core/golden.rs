//! Golden scenarios: commands on a virtual clock, and the resulting events and effects, stored as
//! text that a person can review.
//!
//! `UPDATE_GOLDEN=1 cargo test -p regatta-core` writes the files again. Read the difference
//! before you keep it.

use regatta_core::attempt::ProgramExit;
use regatta_core::claim::{Acquire, ClaimOwner};
use regatta_core::command::{BoardInput, Command, CommandOutcome, Commit, PlannedTask};
use regatta_core::ids::{Now, TaskId};
use regatta_core::landing::TrialOutcome;
use regatta_core::mission::{StartMission, StartMode};
use regatta_core::refusal::Refusal;
use regatta_core::task::TaskStatus;
use serde_json::Value;

use crate::world::{MINUTE_MS, SECOND_MS, World, acquire, agent, exit_report, shop, task_to_add};

pub(crate) fn input_line(input: &BoardInput, now: Now) -> String {
    let mut value = match input {
        BoardInput::Request(request) => serde_json::to_value(&request.command).unwrap(),
        BoardInput::Report(report) => serde_json::to_value(report).unwrap(),
    };
    let name = value
        .as_object_mut()
        .and_then(|object| object.remove("command"))
        .unwrap();
    format!(
        "\n{} {}: {}{}",
        clock(now),
        input.actor().to_string().trim_end_matches(':'),
        name.as_str().unwrap_or_default(),
        brief_fields(&value)
    )
}

pub(crate) fn refusal_line(refusal: &Refusal) -> String {
    format!(
        "  refused {}: {}. Next: {}",
        refusal.code(),
        refusal.message(),
        refusal.hint()
    )
}

pub(crate) fn commit_lines(done: &Commit) -> Vec<String> {
    let mut lines = Vec::new();
    for recorded in &done.events {
        let value = serde_json::to_value(&recorded.event).unwrap();
        let (kind, subject) = (recorded.event.kind(), recorded.event.subject());
        lines.push(format!(
            "  {:>3} {kind} {subject}{}",
            recorded.revision,
            brief_fields(&value["data"])
        ));
        for (key, effect) in done
            .effects
            .iter()
            .filter(|effect| effect.0.revision == recorded.revision)
        {
            let mut value = serde_json::to_value(effect).unwrap();
            let name = value
                .as_object_mut()
                .and_then(|object| object.remove("do"))
                .unwrap();
            lines.push(format!(
                "      do {key} {}{}",
                name.as_str().unwrap_or_default(),
                brief_fields(&value)
            ));
        }
    }
    if done.outcome != CommandOutcome::Done {
        lines.push(format!(
            "  ={}",
            brief_fields(&serde_json::to_value(&done.outcome).unwrap())
        ));
    }
    lines
}

fn clock(now: Now) -> String {
    format!(
        "{:>3}:{:02}.{:03}",
        now.fleet_ms / MINUTE_MS,
        now.fleet_ms / SECOND_MS % 60,
        now.fleet_ms % SECOND_MS
    )
}

/// Returns the fields of a value that are not empty, without the dates.
fn brief_fields(value: &Value) -> String {
    let mut out = String::new();
    let Value::Object(fields) = value else {
        return plain_value(value).map_or(out, |text| format!(" {text}"));
    };
    for (name, value) in fields {
        if name.ends_with("wall") {
            continue;
        }
        match value {
            Value::Object(_) => {
                let inner = brief_fields(value);
                if !inner.is_empty() {
                    out.push_str(&format!(" {name}({})", inner.trim_start()));
                }
            }
            _ => {
                if let Some(text) = plain_value(value) {
                    out.push_str(&format!(" {name}={text}"));
                }
            }
        }
    }
    out
}

fn plain_value(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) if items.is_empty() => None,
        Value::String(text) if text.contains(' ') => Some(format!("{text:?}")),
        Value::String(text) if text.len() == 40 => Some(format!("…{}", &text[36..])),
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let texts: Vec<String> = items
                .iter()
                .map(|item| brief_fields(item).trim_start().to_owned())
                .collect();
            Some(format!("[{}]", texts.join(", ")))
        }
        Value::Object(_) => Some(brief_fields(value)),
        other => Some(other.to_string()),
    }
}

/// Compares the transcript with the stored file.
fn check_golden(name: &str, world: &World) {
    let found = world
        .transcript
        .join("\n")
        .trim_start_matches('\n')
        .to_owned()
        + "\n";
    let path = format!(
        "{}/tests/core/golden/{name}.txt",
        env!("CARGO_MANIFEST_DIR")
    );
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &found).unwrap();
        return;
    }
    let content = std::fs::read_to_string(&path).unwrap_or_default();
    if content != found {
        let same = content
            .lines()
            .zip(found.lines())
            .take_while(|(content, found)| content == found)
            .count();
        let (want, got) = (content.lines().nth(same), found.lines().nth(same));
        panic!(
            "{path}:{}\n kept {want:?}\nfound {got:?}\nUPDATE_GOLDEN=1 writes it again",
            same + 1
        );
    }
}

#[test]
fn one_task_from_add_to_trunk() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.add_task("word list", &["src/words.rs"]);
    world.advance(SECOND_MS);
    let grant = world.take_supervised_task("ada");
    world.advance(30 * SECOND_MS);
    world.report(exit_report(
        &grant,
        ProgramExit::Done {
            output: Some("It reads the list.".into()),
        },
    ));
    world.advance(2 * SECOND_MS);
    let verdict = crate::world::passed_verdict(&["src/words.rs"]);
    let landing = world.report_verdict(&grant, verdict).unwrap();
    world.advance(SECOND_MS);
    world.move_and_land(landing);
    check_golden("one_task", &world);
}

#[test]
fn two_overlapping_tasks_run_one_after_the_other() {
    let mut world = World::with_agents(&[("ada", 1), ("bob", 1)]);
    let first = world.add_task("settings", &["src/settings.go", "src/a.go"]);
    let second = world.add_task("more settings", &["src/settings.*"]);
    let grant = world.take_task("ada");
    assert_eq!(grant.task, first);
    assert_eq!(world.poll("bob"), None);
    world.finish_and_land(&grant);
    let grant = world.take_task("bob");
    assert_eq!(grant.task, second);
    world.finish_and_land(&grant);
    check_golden("two_overlapping_tasks", &world);
}

#[test]
fn an_expired_claim_goes_to_the_next_wait() {
    let mut world = World::with_agents(&[]);
    let trunk = &["workspace://shop/default"];
    let claim = world.hold_claim("ada", trunk);
    let wait = world.wait_for("bob", trunk, MINUTE_MS);
    world.advance(30 * SECOND_MS);
    let next = world.claim_from_wait(wait).unwrap();
    world.ask_refused(
        "ada",
        Command::Renew {
            claim: claim.claim,
            token: claim.token,
        },
    );
    world.ask_refused(
        "ada",
        Command::Release {
            claim: claim.claim,
            token: claim.token,
        },
    );
    world.release("bob", next);
    check_golden("claim_hand_over", &world);
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
        .map(|(subject, file, after)| PlannedTask {
            task: task_to_add(subject, &[file]),
            after: after.to_vec(),
            assign: None,
        })
        .collect()
}

#[test]
fn a_mission_runs_in_waves() {
    let mut world = World::with_agents(&[("ada", 2), ("bob", 2)]);
    let mission = StartMission {
        project: shop(),
        title: "sign in".into(),
        agents: vec![agent("ada"), agent("bob")],
        team: None,
        max_workers: 4,
        mode: StartMode::Waves,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    world.ask(
        "ann",
        Command::StartMission {
            mission,
            tasks: auth_plan(),
            adopt: vec![],
        },
    );
    let mut waves: Vec<Vec<u64>> = Vec::new();
    while !world.board.tasks.is_empty() {
        let mut wave = Vec::new();
        for name in ["ada", "bob", "ada", "bob"] {
            wave.extend(world.poll(name));
        }
        waves.push(wave.iter().map(|poll_grant| poll_grant.task.0).collect());
        for grant in &wave {
            world.finish_and_land(grant);
        }
    }
    assert_eq!(waves, [vec![1], vec![2, 3], vec![4], vec![5]]);
    check_golden("mission_in_waves", &world);
}

#[test]
fn a_restart_after_a_crash_keeps_claims_and_ends_waits() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.add_task("word list", &["src/words.rs"]);
    let running = world.take_supervised_task("ada");
    let claim = world.hold_claim("bob", &["port://8080"]);
    let wait = world.wait_for("eve", &["port://8080"], MINUTE_MS);
    world.advance(20 * SECOND_MS);
    world.restart();
    assert!(
        world.board.waits.is_empty(),
        "{wait} survived the restart although its caller is gone"
    );
    // The lease had 10 s left and has 30 s again, because nobody could renew it during the restart.
    world.advance(29 * SECOND_MS);
    assert!(world.board.claims.contains_key(&claim.claim));
    world.advance(SECOND_MS);
    assert!(!world.board.claims.contains_key(&claim.claim));
    world.report(exit_report(&running, ProgramExit::Lost));
    assert_eq!(
        world.task(running.task).failures,
        0,
        "the crash counts as a failed attempt"
    );
    world.take_supervised_task("ada");
    check_golden("crash_and_resume", &world);
}

#[test]
fn a_conflict_is_fixed_up_and_lands() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("word list", &["src/**"]);
    let first = world.take_task("ada");
    let landing = world.submit(&first);
    world.report_trial(
        landing,
        TrialOutcome::Conflict {
            landing,
            paths: vec!["src/words.rs".into()],
            kinds: vec![],
        },
    );
    assert_eq!(
        (world.status(task), world.task(task).fixups),
        (TaskStatus::Unassigned, 1)
    );
    let second = world.take_task("ada");
    assert_eq!(second.task, TaskId(1));
    world.finish_and_land(&second);
    check_golden("conflict_then_retry", &world);
}

/// All refusals have this form, so one is kept here as a person sees it.
#[test]
fn a_refused_claim_names_its_holder_and_the_remaining_time() {
    let mut world = World::with_agents(&[]);
    let request = Acquire {
        memo: "merging".into(),
        ..acquire(
            ClaimOwner::Agent(agent("ada")),
            &["workspace://shop/default"],
        )
    };
    world.hold_requested_claim("ada", request);
    let refusal = world.ask_refused(
        "bob",
        Command::Acquire(acquire(
            ClaimOwner::Agent(agent("bob")),
            &["workspace://shop/*"],
        )),
    );
    assert_eq!(
        refusal.message(),
        "workspace://shop/default is held by ada (merging), for 30 s more unless renewed"
    );
    assert_eq!(refusal.code(), "claim_held");
}
