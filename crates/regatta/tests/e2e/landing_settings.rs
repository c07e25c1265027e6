//! The settings of `[landing]`: ownership settles conflicts, and a release command runs when a
//! release is due.
//!
//! Checked with planted faults: ownership that settles nothing, and a release that does not wait
//! for `release://shop`.

use std::path::Path;

use crate::world::{TEST_TIMEOUT, World, is_alive, kill_process, wait_until};

/// Creates a world with these lines in `[landing]` and an outside agent.
fn world_with_landing(lines: &str) -> World {
    let world = World::with_project();
    let settings = world.read_file("regatta.toml");
    let content: String = settings
        .lines()
        .take_while(|setting| !setting.starts_with("[landing]"))
        .map(|setting| format!("{setting}\n"))
        .collect();
    world.write_file("regatta.toml", &format!("{content}[landing]\n{lines}"));
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Say how to land");
    world.run_ok(&[
        "agent",
        "add",
        "zoe",
        "--runtime",
        "outside",
        "--max-tasks",
        "4",
    ]);
    world
}

/// Lands a task of this type that writes a file. `meanwhile` runs while the task is in progress.
fn land_task(
    world: &World,
    kind: &str,
    (path, text): (&str, &str),
    meanwhile: impl FnOnce(),
) -> String {
    world.run_ok(&[
        "task",
        "add",
        path,
        "--type",
        kind,
        "--files",
        path,
        "--validate",
        "true",
    ]);
    let grant = world.run_json(&["task", "poll", "--as", "zoe", "--wait", "60s"]);
    let task = grant["task"]["id"].as_str().unwrap().to_owned();
    std::fs::write(
        Path::new(grant["workspace"].as_str().unwrap()).join(path),
        text,
    )
    .unwrap();
    meanwhile();
    let (attempt, token) = (
        grant["attempt"].as_str().unwrap(),
        grant["token"].to_string(),
    );
    world.run_ok(&[
        "task",
        "finish",
        &task,
        "--attempt",
        attempt,
        "--token",
        &token,
    ]);
    let landed = wait_until(TEST_TIMEOUT, || {
        world.run_json(&["show", &task])["word"] == "landed"
    });
    assert!(landed, "{}", world.run_ok(&["why", &task]));
    task
}

/// Q6: under `on_conflict = "ownership"` the branch's version of its own file lands. The other side
/// is kept under a ref, and a follow-up task asks to check it.
#[test]
fn q6_ownership_takes_one_side_and_keeps_the_other() {
    let world = world_with_landing("on_conflict = \"ownership\"\n");
    let task = land_task(&world, "chore", ("a.txt", "zoe's\n"), || {
        world.write_file("a.txt", "ann's\n");
        world.commit_all("Ann's line");
    });
    assert_eq!(world.read_file("a.txt"), "zoe's\n");
    let tasks = world.run_json(&["task", "list"]);
    let tasks = tasks
        .as_array()
        .or_else(|| tasks["tasks"].as_array())
        .unwrap_or_else(|| panic!("{tasks}"));
    let follow_up = tasks.iter().find(|task| {
        task["subject"]
            .as_str()
            .is_some_and(|text| text.contains("dropped"))
    });
    let id = follow_up
        .unwrap_or_else(|| panic!("no task about the side that {task} dropped: {tasks:?}"))["id"]
        .as_str()
        .unwrap();
    let description = world.run_json(&["show", id])["description"]
        .as_str()
        .unwrap()
        .to_owned();
    let kept = description
        .split_whitespace()
        .find(|description| description.len() == 40)
        .unwrap_or_else(|| panic!("{description}"));
    let vaults = world.data_dir.join("vaults");
    let vault = std::fs::read_dir(&vaults)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let vault = vault
        .into_iter()
        .find(|path| path.extension().is_some_and(|name| name == "git"))
        .unwrap();
    assert_eq!(
        world
            .git_in(&vault, &["show", &format!("{kept}:a.txt")])
            .trim_end(),
        "ann's"
    );
    let refs = world.git_in(
        &vault,
        &[
            "for-each-ref",
            "--format=%(objectname)",
            "refs/regatta/dropped",
        ],
    );
    assert!(refs.contains(kept), "{kept} is under no ref: {refs}");
    world.assert_green_everywhere();
}

/// The release command runs after a feature or a fix since the last tag, and after nothing else.
#[test]
fn a_release_is_made_after_a_feature_or_a_fix() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let world = world_with_landing(&format!(
        "release = \"git tag r-$REGATTA_TASK && echo $REGATTA_TASK >> {}\"\n",
        notes.path().display()
    ));
    world.git(&["tag", "v1"]);
    let notes_text = || std::fs::read_to_string(notes.path()).unwrap();
    land_task(&world, "chore", ("one.txt", "1\n"), || {});
    let feature = land_task(&world, "feature", ("two.txt", "2\n"), || {});
    assert!(
        wait_until(TEST_TIMEOUT, || notes_text() == format!("{feature}\n")),
        "{}",
        notes_text()
    );
    let chore = land_task(&world, "chore", ("three.txt", "3\n"), || {});
    let fixed = land_task(&world, "chore", ("four.txt", "4\n"), || {
        std::fs::write(world.repo.join("five.txt"), "5\n").unwrap();
        world.commit_all("fix: five");
    });
    assert!(
        wait_until(TEST_TIMEOUT, || notes_text()
            == format!("{feature}\n{fixed}\n")),
        "after {chore} and {fixed}: {}",
        notes_text()
    );
}

/// A landed commit names its author, its task, its landing and the checks that validated it. The
/// same checks have the same name.
#[test]
fn a_landed_commit_names_its_author_task_landing_and_checks() {
    let world = world_with_landing("");
    let trailers = |task: &str| {
        let commit = world.run_json(&["show", task])["landed"]
            .as_str()
            .unwrap()
            .to_owned();
        let text = world.git(&[
            "log",
            "-1",
            "--format=%an%n%(trailers:only,unfold)",
            &commit,
        ]);
        text.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let value = |lines: &[String], key: &str| {
        let trailer_value =
            |line: &String| line.strip_prefix(&format!("{key}: ")).map(str::to_owned);
        lines
            .iter()
            .find_map(trailer_value)
            .unwrap_or_else(|| panic!("no {key} in {lines:?}"))
    };
    let one = land_task(&world, "chore", ("one.txt", "1\n"), || {});
    let two = land_task(&world, "chore", ("two.txt", "2\n"), || {});
    let (first, second) = (trailers(&one), trailers(&two));
    assert_eq!(
        (first[0].as_str(), value(&first, "Regatta-Task")),
        ("zoe", one)
    );
    assert_eq!(value(&first, "Co-authored-by"), "zoe <zoe@regatta.invalid>");
    assert!(value(&first, "Regatta-Landing").starts_with('L'));
    assert_eq!(
        value(&first, "Regatta-Validation"),
        value(&second, "Regatta-Validation")
    );
    let checks = world.read_file("regatta.toml");
    let commands = checks
        .lines()
        .find(|check| check.starts_with("commands = "))
        .unwrap()
        .to_owned();
    world.write_file(
        "regatta.toml",
        &checks.replace(&commands, "commands = [\"test -e two.txt\"]"),
    );
    world.commit_all("Check otherwise");
    let three = land_task(&world, "chore", ("three.txt", "3\n"), || {});
    assert_ne!(
        value(&trailers(&three), "Regatta-Validation"),
        value(&first, "Regatta-Validation")
    );
}

/// A release waits for the claim on `release://shop`, and the queue does not wait for the release.
#[test]
fn a_release_waits_for_its_own_claim_and_the_queue_does_not() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let world = world_with_landing(&format!(
        "release = \"echo $REGATTA_TASK >> {}\"\n",
        notes.path().display()
    ));
    let held = world.run_json(&[
        "claim",
        "acquire",
        "release://shop",
        "--ttl",
        "300s",
        "--as",
        "ann",
    ]);
    let (claim, token) = (
        held["claim"].as_str().unwrap().to_owned(),
        held["token"].to_string(),
    );
    let feature = land_task(&world, "feature", ("one.txt", "1\n"), || {});
    assert!(
        wait_until(TEST_TIMEOUT, || waiting_releases(&world) == 1),
        "the release is queued: {}",
        world.run_json(&["claim", "list"])
    );
    let chore = land_task(&world, "chore", ("two.txt", "2\n"), || {});
    assert!(
        wait_until(TEST_TIMEOUT, || waiting_releases(&world) == 2),
        "both releases are queued: {}",
        world.run_json(&["claim", "list"])
    );
    assert_eq!(
        std::fs::read_to_string(notes.path()).unwrap(),
        "",
        "no release runs while its claim is held"
    );
    world.run_ok(&["claim", "release", &claim, "--token", &token]);
    assert!(
        wait_until(TEST_TIMEOUT, || releases_in(notes.path())
            == [chore.clone()]),
        "{:?}",
        releases_in(notes.path())
    );
    assert!(
        wait_until(TEST_TIMEOUT, || is_release_covered(
            &world, &feature, &chore
        )),
        "the channel says which release covers {feature}"
    );
}

/// A release that somebody else made while holding the claim is not made again.
#[test]
fn a_release_that_somebody_else_made_is_not_made_again() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let world = world_with_landing(&format!(
        "release = \"echo $REGATTA_TASK >> {}\"\n",
        notes.path().display()
    ));
    let held = world.run_json(&[
        "claim",
        "acquire",
        "release://shop",
        "--ttl",
        "300s",
        "--as",
        "ann",
    ]);
    let (claim, token) = (
        held["claim"].as_str().unwrap().to_owned(),
        held["token"].to_string(),
    );
    let feature = land_task(&world, "feature", ("one.txt", "1\n"), || {});
    assert!(
        wait_until(TEST_TIMEOUT, || waiting_releases(&world) == 1),
        "the release is queued: {}",
        world.run_json(&["claim", "list"])
    );
    world.git(&["tag", "v1.0.0"]);
    world.run_ok(&["claim", "release", &claim, "--token", &token]);
    let release_messages = || world.run_ok(&["msg", "history", "shop", "-L", "coord:release"]);
    let sentence = format!("{feature} is in a release that was made in the meantime");
    assert!(
        wait_until(TEST_TIMEOUT, || release_messages().contains(&sentence)),
        "{}",
        release_messages()
    );
    assert_eq!(std::fs::read_to_string(notes.path()).unwrap(), "");
}

/// Returns how many releases are queued for their claim.
fn waiting_releases(world: &World) -> usize {
    let listed = world.run_json(&["claim", "list"]);
    let waiting = listed["waiting"].as_array().unwrap();
    waiting
        .iter()
        .filter(|wait| wait.to_string().contains("release://shop"))
        .count()
}

/// Returns the tasks whose release was made, in order.
fn releases_in(notes: &Path) -> Vec<String> {
    std::fs::read_to_string(notes)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

fn is_release_covered(world: &World, earlier: &str, later: &str) -> bool {
    let output = world.run_ok(&["msg", "history", "shop", "-L", "coord:release"]);
    output.contains(&format!("The release after {later} covers {earlier}"))
}

/// Landings that follow during a release are queued for it, the newest of them is released, and a
/// kill of the daemon loses none.
#[test]
fn queued_releases_survive_a_kill_and_the_newest_covers_the_others() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let gate = notes.path().with_extension("gate");
    let release = format!(
        "echo $REGATTA_TASK >> {}; while [ ! -e {} ]; do sleep 0.05; done",
        notes.path().display(),
        gate.display()
    );
    let world = world_with_landing(&format!("release = \"{release}\"\n"));
    let first = land_task(&world, "feature", ("one.txt", "1\n"), || {});
    assert!(
        wait_until(TEST_TIMEOUT, || releases_in(notes.path())
            == [first.clone()]),
        "the first release is being made"
    );
    let second = land_task(&world, "feature", ("two.txt", "2\n"), || {});
    let third = land_task(&world, "bug", ("three.txt", "3\n"), || {});
    assert!(
        wait_until(TEST_TIMEOUT, || waiting_releases(&world) == 2),
        "two releases are queued: {}",
        world.run_json(&["claim", "list"])
    );

    let daemon = u32::try_from(world.daemon_info().unwrap()["pid"].as_u64().unwrap()).unwrap();
    kill_process(daemon);
    assert!(wait_until(TEST_TIMEOUT, || !is_alive(daemon)));
    world.run_ok(&["up"]);
    assert!(
        wait_until(TEST_TIMEOUT, || waiting_releases(&world) == 2),
        "both releases are queued again: {}",
        world.run_json(&["claim", "list"])
    );
    std::fs::write(&gate, "").unwrap();
    assert!(
        wait_until(TEST_TIMEOUT, || releases_in(notes.path())
            == [first.clone(), third.clone()]),
        "{:?}",
        releases_in(notes.path())
    );
    assert!(
        wait_until(TEST_TIMEOUT, || is_release_covered(&world, &second, &third)),
        "the channel says which release covers {second}"
    );
    let is_idle =
        || world.run_json(&["claim", "list"]) == serde_json::json!({ "held": [], "waiting": [] });
    assert!(
        wait_until(TEST_TIMEOUT, is_idle),
        "{}",
        world.run_json(&["claim", "list"])
    );
    std::fs::remove_file(&gate).unwrap();
}
