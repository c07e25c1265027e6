//! A project with a submodule, from `init` to the checkout after a landing. Also LFS content.

use serde_json::{Value, json};

use crate::world::{TEST_TIMEOUT, World, wait_until};

/// The options with which git adds a submodule from a path.
const SUBMODULE_ADD: [&str; 5] = [
    "-c",
    "protocol.file.allow=always",
    "submodule",
    "--quiet",
    "add",
];

/// Creates a repository whose check needs the files of its submodule `lib`, and an agent.
fn world_with_submodule() -> World {
    let world = World::with_repo();
    let library = world.root.join("library");
    std::fs::create_dir(&library).unwrap();
    world.git_in(&library, &["init", "-q", "-b", "main", "."]);
    std::fs::write(library.join("inner"), "one\n").unwrap();
    world.git_in(&library, &["add", "-A"]);
    world.git_in(&library, &["commit", "-q", "-m", "The library"]);
    world.git(&[&SUBMODULE_ADD[..], &[library.to_str().unwrap(), "lib"]].concat());
    world.write_file("test.sh", "#!/bin/sh\nset -e\ncat lib/inner\n");
    world.commit_all("Use the library");
    let output = world.run_ok(&["init", "--yes"]);
    assert!(
        output
            .contains("submodules: copied into workspaces and validation from your checkout: lib"),
        "{output}"
    );
    world.commit_all("Use regatta");
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    world
}

/// Lets the agent run a command in its workspace, as the task with this number.
fn start_task(world: &World, number: u32, files: &str, command: &str) -> String {
    let script = json!([{ "run": command }]).to_string();
    world.run_ok(&["add", "Work", "--files", files, "--script", &script]);
    world.run_ok(&["run", "--agents", "bob", "--yes"]);
    format!("T{number}")
}

#[track_caller]
fn wait_for_state(world: &World, task: &str, word: &str) -> Value {
    let is = wait_until(TEST_TIMEOUT, || {
        world.run_json(&["show", task])["word"] == word
    });
    assert!(is, "{task} is not {word}: {}", world.run_ok(&["why", task]));
    world.run_json(&["show", task])
}

#[track_caller]
fn wait_until_needs_person(world: &World, task: &str) -> String {
    let is = wait_until(TEST_TIMEOUT, || {
        world.run_json(&["show", task])["status"] == "needs_human"
    });
    assert!(
        is,
        "{task} does not need a person: {}",
        world.run_ok(&["why", task])
    );
    let shown = world.run_json(&["show", task]);
    assert_eq!(shown["failures"].as_u64().unwrap_or(0), 0, "{shown}");
    assert_eq!(
        shown["attempts"].as_array().map(Vec::len),
        Some(1),
        "the task was retried by itself: {shown}"
    );
    world.run_ok(&["why", task])
}

#[test]
fn a_check_can_use_a_submodule_and_a_moved_submodule_needs_a_review() {
    let world = world_with_submodule();
    let task = start_task(&world, 1, "out.txt", "cp lib/inner out.txt");
    wait_for_state(&world, &task, "landed");
    assert_eq!(
        (
            world.read_file("out.txt").as_str(),
            world.git(&["status", "--porcelain"]).as_str()
        ),
        ("one\n", "")
    );

    // A commit in the submodule moves its pointer. The task waits for a review, which names the
    // command that publishes the commit.
    let commit = "cd lib && echo two > inner && git commit -q -a -m two";
    let task = start_task(&world, 2, "lib/**", commit);
    wait_for_state(&world, &task, "review");
    let explanation = world.run_ok(&["why", &task]);
    assert!(
        explanation.contains("lib (a submodule, moved to ")
            && explanation.contains("git -C lib push origin "),
        "{explanation}"
    );
    let copy = world.repo.join("lib");
    let offered = world.git_in(
        &copy,
        &[
            "for-each-ref",
            "--format=%(objectname)",
            "refs/regatta/keep/",
        ],
    );
    assert!(
        explanation.contains(&format!("push origin {}:", &offered[..10])),
        "{explanation}"
    );
    world.git_in(
        &copy,
        &["push", "-q", "origin", &format!("{offered}:refs/heads/two")],
    );
    world.run_ok(&["land", &task]);
    wait_for_state(&world, &task, "landed");
    assert_eq!(world.git(&["rev-parse", "main:lib"]), offered);

    // The submodule in the user's checkout does not move, and that delays nothing.
    assert_eq!(world.git(&["status", "--porcelain"]), " M lib");
    let task = start_task(&world, 3, "out.txt", "cp lib/inner out.txt");
    wait_for_state(&world, &task, "landed");
    assert_eq!(world.read_file("out.txt"), "two\n");
}

#[test]
fn uncommitted_edits_in_a_submodule_need_a_person_and_are_no_failure() {
    let world = world_with_submodule();
    let before = world.trunk_commits();
    let task = start_task(
        &world,
        1,
        "lib/**",
        "echo edited > lib/inner && echo new > lib/new",
    );
    let reason = wait_until_needs_person(&world, &task);
    assert!(
        reason.contains("lib/inner, lib/new")
            && reason.contains("without committing the edits in the submodule"),
        "{reason}"
    );
    assert_eq!(world.trunk_commits(), before);
}

#[test]
fn a_missing_submodule_commit_needs_a_person_and_an_unused_submodule_does_not() {
    let world = world_with_submodule();
    let missing = "1".repeat(40);
    world.git(&[
        "update-index",
        "--cacheinfo",
        &format!("160000,{missing},lib"),
    ]);
    world.git(&["commit", "-q", "-m", "Nobody has this commit"]);
    let task = start_task(&world, 1, "out.txt", "echo hello > out.txt");
    let reason = wait_until_needs_person(&world, &task);
    assert!(
        reason.contains("needs commit 1111111111 of the submodule lib"),
        "{reason}"
    );
    assert!(
        reason.contains("git submodule update --init --recursive lib"),
        "{reason}"
    );

    // A submodule that the user does not check out stays empty in workspaces, and `doctor` reports
    // that.
    world.git(&["submodule", "--quiet", "deinit", "--force", "lib"]);
    world.write_file("test.sh", "#!/bin/sh\n");
    world.git(&["commit", "-q", "-m", "No need for it", "test.sh"]);
    let doctor = world.run(&["doctor", "--json"]).stdout;
    assert!(
        doctor.contains("so empty in workspaces and validation: lib"),
        "{doctor}"
    );
    assert!(
        world
            .run_ok(&["init", "--yes"])
            .contains("git submodule update --init --recursive")
    );
    let task = start_task(
        &world,
        2,
        "out.txt",
        "ls lib > out.txt; echo hello >> out.txt",
    );
    wait_for_state(&world, &task, "landed");
    assert_eq!(world.read_file("out.txt"), "hello\n");
}

#[test]
fn init_and_doctor_report_that_lfs_content_is_not_copied() {
    let world = World::with_repo();
    assert!(!world.run_ok(&["init", "--yes"]).contains("LFS"));
    world.write_file(
        "assets/.gitattributes",
        "*.png filter=lfs diff=lfs merge=lfs -text\n",
    );
    world.commit_all("Store pictures with LFS");
    for words in [&["init", "--yes"][..], &["doctor", "--json"]] {
        let output = world.run(words).stdout;
        assert!(
            output.contains("LFS content is not copied"),
            "{words:?}: {output}"
        );
    }
}
