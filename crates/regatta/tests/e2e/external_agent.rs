//! An outside agent on the command line: it polls, works in the workspace and finishes, and the
//! queue lands its work.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::world::{TEST_TIMEOUT, World, wait_until};

fn poll_task(world: &World, name: &str) -> Value {
    world.run_json(&["task", "poll", "--as", name])
}

fn attempt_arguments<'a>(word: &'a str, grant: &'a Value, token: &'a str) -> Vec<&'a str> {
    let (task, attempt) = (
        grant["task"]["id"].as_str().unwrap(),
        grant["attempt"].as_str().unwrap(),
    );
    vec!["task", word, task, "--attempt", attempt, "--token", token]
}

fn token_of(grant: &Value) -> String {
    grant["token"].to_string()
}

/// An outside agent's work from the poll to the trunk.
#[test]
fn an_outside_agent_polls_works_and_lands() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world.run_ok(&[
        "task",
        "add",
        "Say hello",
        "--files",
        "hello.txt,docs/**",
        "--validate",
        "test -s hello.txt",
    ]);
    assert_eq!(poll_task(&world, "zoe")["task"]["id"], "T1");
    assert_eq!(
        poll_task(&world, "zoe"),
        Value::Null,
        "one slot, one task (J4)"
    );
    let shown = world.run_json(&["show", "T1"]);
    assert_eq!(
        shown["attempts"][0]["token"], 0,
        "the token must be hidden: {shown}"
    );

    let world = World::with_project();
    world.run_ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    // A poll can wait for a task.
    std::thread::scope(|threads| {
        let waiting =
            threads.spawn(|| world.run_json(&["task", "poll", "--as", "zoe", "--wait", "60s"]));
        world.run_ok(&[
            "task",
            "add",
            "Say hello",
            "--files",
            "hello.txt,docs/**",
            "--validate",
            "test -s hello.txt",
        ]);
        let grant = waiting.join().unwrap();
        let place = PathBuf::from(grant["workspace"].as_str().unwrap());
        assert!(
            place.starts_with(&world.data_dir) && place.join("test.sh").is_file(),
            "{grant}"
        );
        assert!(
            world
                .git_in(&place, &["symbolic-ref", "--short", "HEAD"])
                .starts_with("regatta/T1-"),
            "{grant}"
        );
        std::fs::write(place.join("hello.txt"), "hello\n").unwrap();
        std::fs::create_dir(place.join("docs")).unwrap();
        std::fs::write(place.join("docs/hello.md"), "# Hello\n").unwrap();
        let token = token_of(&grant);
        let mut progress = attempt_arguments("progress", &grant, &token);
        progress.push("writing the docs");
        world.run_json(&progress);
        assert!(world.run_ok(&["status"]).contains("writing the docs"));
        let finished = world.run_json(
            &[
                attempt_arguments("finish", &grant, &token),
                vec!["--output", "said hello"],
            ]
            .concat(),
        );
        assert!(
            ["working", "landing", "landed"].contains(&finished["word"].as_str().unwrap()),
            "{finished}"
        );
        let landed = wait_until(TEST_TIMEOUT, || {
            world.run_json(&["show", "T1"])["word"] == "landed"
        });
        assert!(landed, "{}", world.run_ok(&["why", "T1"]));
        assert_eq!(world.read_file("hello.txt"), "hello\n");
        assert_eq!(world.run_json(&["show", "T1"])["output"], "said hello");
        assert!(world.git(&["log", "-1", "--format=%an"]).starts_with("zoe"));
        // J7: a completed task is final. Another report on it is refused.
        let error = world.run_refused(&attempt_arguments("fail", &grant, &token), 1);
        assert_eq!(error["code"], "already_finished", "{error}");
        assert!(
            wait_until(TEST_TIMEOUT, || !Path::new(&place).exists()),
            "the workspace is removed after its landing"
        );
    });
}

/// J3: only the live attempt's token has an effect. A stale token changes nothing and gives exit
/// code 5.
#[test]
fn a_stale_attempt_changes_nothing() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world.run_ok(&["agent", "add", "yan", "--runtime", "outside"]);
    world.run_ok(&["task", "add", "Say hello", "--files", "hello.txt"]);
    let old = poll_task(&world, "zoe");
    let revision = world.events().len();
    for word in ["finish", "fail", "progress"] {
        let error = world.run_refused(&attempt_arguments(word, &old, "999999"), 5);
        assert_eq!(error["code"], "stale_attempt", "{word}: {error}");
    }
    assert_eq!(world.events().len(), revision, "nothing was changed");
    world.run_json(&["stop", "T1"]);
    assert!(
        world.run_json(&["task", "poll", "--as", "yan"]).is_null(),
        "a task that a person stopped must not be granted"
    );
    world.run_json(&["edit", "T1", "--ready"]);
    let new = poll_task(&world, "yan");
    assert_ne!(new["attempt"], old["attempt"]);
    assert!(
        new["token"].as_u64() > old["token"].as_u64(),
        "tokens only rise (L2): {old} {new}"
    );
    let error = world.run_refused(&attempt_arguments("finish", &old, &token_of(&old)), 5);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains(new["attempt"].as_str().unwrap()),
        "the error names the live attempt: {error}"
    );
    assert_eq!(
        error["hint"],
        "stop working on it and poll again: regatta task poll"
    );
    assert_eq!(world.run_json(&["show", "T1"])["agent"], "yan");
}

/// `stop` without an id ends missions, and names the tasks that it leaves running.
#[test]
fn stop_names_the_tasks_it_leaves_running() {
    let world = World::with_project();
    assert_eq!(world.run_ok(&["stop"]), "no mission is running\n");
    world.run_ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world.run_ok(&["task", "add", "Say hello", "--files", "hello.txt"]);
    poll_task(&world, "zoe");
    let output = world.run_ok(&["stop"]);
    assert!(
        output.starts_with(
            "no mission is running\nstill running, because they belong to no mission: T1 (zoe)"
        ),
        "{output}"
    );
    assert!(output.contains("regatta stop T1"), "{output}");
    assert_eq!(world.run_json(&["show", "T1"])["word"], "working");
}

/// A failed task is final and frees its slot at once.
#[test]
fn a_failed_task_frees_its_slot() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world.run_ok(&["task", "add", "First", "--files", "one.txt"]);
    world.run_ok(&[
        "task",
        "add",
        "Second",
        "--files",
        "two.txt",
        "--blocked-by",
        "T1",
    ]);
    world.run_ok(&["task", "add", "Third", "--files", "three.txt"]);
    let first = poll_task(&world, "zoe");
    assert_eq!(world.run_json(&["show", "zoe"])["capacity"]["available"], 0);
    let token = token_of(&first);
    let failed = world.run_json(
        &[
            attempt_arguments("fail", &first, &token),
            vec!["-m", "cannot be done"],
        ]
        .concat(),
    );
    assert_eq!(
        (&failed["word"], &failed["reason"]),
        (&"failed".into(), &"cannot be done".into()),
        "{failed}"
    );
    assert_eq!(world.run_json(&["show", "zoe"])["capacity"]["available"], 1);
    assert_eq!(
        world.run_json(&["claim", "list"])["held"],
        serde_json::json!([]),
        "L11: its claims must end with it"
    );
    assert_eq!(
        poll_task(&world, "zoe")["task"]["id"],
        "T3",
        "J5: the dependent task stays blocked"
    );
}

/// A conflict becomes a fix-up that starts on the new trunk and lands.
#[test]
fn a_conflict_becomes_a_fixup_that_lands() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world.run_ok(&["task", "add", "Shout five", "--files", "a.txt"]);
    let first = poll_task(&world, "zoe");
    let edit = |grant: &Value| {
        let file = Path::new(grant["workspace"].as_str().unwrap()).join("a.txt");
        let text = std::fs::read_to_string(&file).unwrap();
        // A fix-up's file already has both sides with conflict marks.
        let marks = ["<<<<<<<", "=======", ">>>>>>>", "five, said Ann"];
        let text = text
            .lines()
            .filter(|line| !marks.iter().any(|mark| line.starts_with(mark)));
        let text = text.map(|text| {
            if text.starts_with("five") {
                "FIVE\n".into()
            } else {
                format!("{text}\n")
            }
        });
        std::fs::write(file, text.collect::<String>()).unwrap();
    };
    edit(&first);
    world.write_file(
        "a.txt",
        &world.read_file("a.txt").replace("five", "five, said Ann"),
    );
    world.commit_all("Ann's own five");
    world.run_json(&attempt_arguments("finish", &first, &token_of(&first)));
    let second = world.run_json(&["task", "poll", "--as", "zoe", "--wait", "60s"]);
    assert_eq!(
        (&second["task"]["failures"], &second["task"]["fixups"]),
        (&0.into(), &1.into()),
        "{second}"
    );
    let reason = second["task"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("conflicts with work that landed since in a.txt"),
        "{reason}"
    );
    let queue = world.run_ok(&["queue"]);
    assert!(
        queue.contains("conflicts with work that landed since"),
        "{queue}"
    );
    edit(&second);
    world.run_json(&attempt_arguments("finish", &second, &token_of(&second)));
    let output = world.run(&[
        "msg",
        "wait",
        "shop",
        "-L",
        "coord:merge",
        "--after",
        "B0",
        "--timeout",
        "60s",
    ]);
    assert_eq!(output.exit_code, 0, "{output:?}");
    assert!(world.read_file("a.txt").contains("\nFIVE\n"));
    // Q6: the side that did not land is kept in the vault.
    let vault = world.data_dir.join("vaults/shop.git");
    let vault = if vault.is_dir() {
        vault
    } else {
        world.data_dir.join("vaults/shop")
    };
    let refs = world.git_in(&vault, &["for-each-ref", "--format=%(refname)"]);
    assert!(refs.lines().count() >= 2, "both attempts are kept: {refs}");
}
