//! Known ways to lose work, each as a test. Finished work is on the trunk once, or is kept and
//! reported.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::world::{TEST_TIMEOUT, World, is_alive, path_text, run_command, wait_until};

/// Creates a world with an outside agent.
pub(crate) fn world_with_outside_agent() -> World {
    let world = World::with_project();
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

/// A task that an outside agent has started.
pub(crate) struct StartedTask {
    pub(crate) task: String,
    attempt: String,
    token: String,
    pub(crate) workspace: PathBuf,
}

impl StartedTask {
    pub(crate) fn start(world: &World, subject: &str, files: &str) -> StartedTask {
        world.run_ok(&[
            "task",
            "add",
            subject,
            "--files",
            files,
            "--validate",
            "true",
        ]);
        StartedTask::take_next(world)
    }

    /// Takes the next task.
    #[track_caller]
    pub(crate) fn take_next(world: &World) -> StartedTask {
        let grant = world.run_json(&["task", "poll", "--as", "zoe", "--wait", "60s"]);
        let text_of = |value: &Value| {
            value
                .as_str()
                .unwrap_or_else(|| panic!("no task was granted: {grant}"))
                .to_owned()
        };
        let (task, attempt) = (text_of(&grant["task"]["id"]), text_of(&grant["attempt"]));
        StartedTask {
            task,
            attempt,
            token: grant["token"].to_string(),
            workspace: text_of(&grant["workspace"]).into(),
        }
    }

    pub(crate) fn write_file(&self, path: &str, text: &str) {
        std::fs::write(self.workspace.join(path), text).unwrap();
    }

    pub(crate) fn read_file(&self, path: &str) -> String {
        std::fs::read_to_string(self.workspace.join(path)).unwrap()
    }

    pub(crate) fn finish(&self, world: &World) {
        world.run_ok(&[
            "task",
            "finish",
            &self.task,
            "--attempt",
            &self.attempt,
            "--token",
            &self.token,
        ]);
    }

    /// Waits until `show` prints this word for the task.
    #[track_caller]
    pub(crate) fn wait_for_state(&self, world: &World, word: &str) {
        let is = wait_until(TEST_TIMEOUT, || {
            world.run_json(&["show", &self.task])["word"] == word
        });
        assert!(
            is,
            "{} is not {word}: {}",
            self.task,
            world.run_ok(&["why", &self.task])
        );
    }
}

/// Returns how many commits of the trunk name the task.
fn times_on_trunk(world: &World, task: &str) -> usize {
    let log = world.git(&[
        "log",
        "--format=%(trailers:key=Regatta-Task,valueonly)",
        "main",
    ]);
    log.split_whitespace().filter(|log| *log == task).count()
}

fn assert_linear_trunk(world: &World) {
    assert_eq!(
        world.git(&["rev-list", "--min-parents=2", "main"]),
        "",
        "the trunk's history is not linear"
    );
    assert_eq!(
        world.git(&["status", "--porcelain"]),
        "",
        "the checkout does not follow the trunk"
    );
}

/// Q4, Q5, Q6: submitted work is kept elsewhere, so its workspace may be removed before it lands.
#[test]
fn q6_a_workspace_that_is_removed_before_its_landing_loses_nothing() {
    let world = world_with_outside_agent();
    let work = StartedTask::start(&world, "Say hello", "hello.txt");
    work.write_file("hello.txt", "hello\n");
    world.run_ok(&["queue", "hold", "--because", "not yet"]);
    work.finish(&world);
    work.wait_for_state(&world, "landing");
    let _may_be_gone_already = std::fs::remove_dir_all(&work.workspace);
    world.run_ok(&["queue", "release"]);
    work.wait_for_state(&world, "landed");
    assert_eq!(
        (
            world.read_file("hello.txt").as_str(),
            times_on_trunk(&world, &work.task)
        ),
        ("hello\n", 1)
    );
    assert_linear_trunk(&world);
}

/// Q4, J7: files on disk land, committed or not. A finish without any change is never "done".
#[test]
fn q4_uncommitted_work_lands_and_a_finish_without_changes_does_not() {
    let world = world_with_outside_agent();
    let work = StartedTask::start(&world, "Say hello", "hello.txt,a.txt");
    work.write_file("hello.txt", "hello\n");
    std::fs::remove_file(work.workspace.join("a.txt")).unwrap();
    assert!(
        world
            .git_in(&work.workspace, &["log", "-1", "--format=%an"])
            .starts_with("Ann"),
        "the agent made no commit"
    );
    work.finish(&world);
    work.wait_for_state(&world, "landed");
    assert!(world.read_file("hello.txt") == "hello\n" && !world.repo.join("a.txt").exists());
    assert_eq!(times_on_trunk(&world, &work.task), 1);

    let before = world.trunk_commits();
    let idle = StartedTask::start(&world, "Say nothing", "b.txt");
    idle.finish(&world);
    let reason = || {
        world.run_json(&["show", &idle.task])["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(
        wait_until(TEST_TIMEOUT, || reason().contains("nothing had changed")),
        "{}",
        reason()
    );
    assert_eq!(world.trunk_commits(), before, "Q2");
    assert_linear_trunk(&world);
}

/// Q12: a person resets the trunk to before work that landed. `status` and `queue` report it, also
/// after a restart and after the next landing, until the work is back or the trunk is accepted.
#[test]
fn q12_landed_work_missing_from_the_trunk_is_reported() {
    let world = world_with_outside_agent();
    let start = world.git(&["rev-parse", "main"]);
    let land = |subject: &str, file: &str| {
        let work = StartedTask::start(&world, subject, file);
        work.write_file(file, "hello\n");
        work.finish(&world);
        work.wait_for_state(&world, "landed");
        work.task
    };
    let lost = land("Say hello", "hello.txt");
    let landed = world.git(&["rev-parse", "main"]);
    assert!(!world.run_ok(&["status"]).contains("no longer contains"));
    world.git(&["reset", "-q", "--hard", &start]);
    world.run_ok(&["up", "--restart"]);
    let is_told = || {
        world.run_ok(&["status"]).contains(&format!(
            "no longer contains work that landed: {}",
            &landed[..10]
        ))
    };
    assert!(
        wait_until(TEST_TIMEOUT, is_told),
        "a start must compare the trunk: {}",
        world.run_ok(&["status"])
    );

    land("Say bye", "bye.txt");
    let queue = world.run_ok(&["queue"]);
    assert!(
        queue.contains(&format!("({lost})")) && queue.contains("regatta queue accept"),
        "{queue}"
    );
    world.git(&["cherry-pick", &landed]);
    land("Say it again", "again.txt");
    assert!(
        wait_until(TEST_TIMEOUT, || !world
            .run_ok(&["status"])
            .contains("no longer contains")),
        "the work is back on the trunk"
    );

    world.git(&["reset", "-q", "--hard", &start]);
    world.run_ok(&["up", "--restart"]);
    assert!(wait_until(TEST_TIMEOUT, || world
        .run_ok(&["queue"])
        .contains("no longer contains")));
    world.run_ok(&["queue", "accept"]);
    assert!(!world.run_ok(&["queue"]).contains("no longer contains"));
    land("Say hello once more", "hello.txt");
    assert!(!world.run_ok(&["queue"]).contains("no longer contains"));
}

/// Q1, Q14: with `style = "rebase"` an agent's own commits land one by one, each validated. If one
/// of them fails alone, all land as one commit.
#[test]
fn q1_commits_of_an_agent_are_squashed_if_one_of_them_fails_alone() {
    // A serial queue validates every commit, whatever `verify` says.
    for settings in ["", "mode = \"serial\"\nverify = \"tip\"\n"] {
        assert_landing_survives_crashes(settings);
    }
}

fn assert_landing_survives_crashes(settings: &str) {
    let world = world_with_outside_agent();
    let content = world.read_file("regatta.toml");
    let content: String = content
        .lines()
        .take_while(|line| !line.starts_with("[landing]"))
        .map(|line| format!("{line}\n"))
        .collect();
    world.write_file(
        "regatta.toml",
        &format!("{content}[landing]\nstyle = \"rebase\"\n{settings}"),
    );
    world.write_file("test.sh", "#!/bin/sh\n! grep -qs broken three.txt\n");
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Keep the agents' commits");
    let start = world.git(&["rev-parse", "main"]);
    let commit = |work: &StartedTask, message: &str| {
        world.git_in(&work.workspace, &["add", "-A"]);
        world.git_in(&work.workspace, &["commit", "-q", "-m", message]);
    };
    let good = StartedTask::start(&world, "Two good steps", "one.txt,two.txt");
    good.write_file("one.txt", "1\n");
    commit(&good, "First step");
    good.write_file("two.txt", "2\n");
    commit(&good, "Second step");
    good.finish(&world);
    good.wait_for_state(&world, "landed");
    let log = || {
        let format = "--format=%s|%(trailers:key=Regatta-Validation-Tip,valueonly,separator=%x20)";
        world.git(&["log", "--reverse", format, &format!("{start}..main")])
    };
    assert_eq!(
        log(),
        "First step|L1\nSecond step|",
        "the first commit names the validated landing"
    );

    let red = StartedTask::start(&world, "Broken in between", "three.txt");
    red.write_file("three.txt", "broken\n");
    commit(&red, "Break it");
    red.write_file("three.txt", "3\n");
    commit(&red, "Mend it");
    red.finish(&world);
    red.wait_for_state(&world, "landed");
    assert_eq!(log(), "First step|L1\nSecond step|\nBroken in between|");
    let events = world.events();
    let squashed: Vec<&Value> = events
        .iter()
        .filter(|event| event["kind"] == "landing.squashed")
        .collect();
    assert!(
        squashed.len() == 1 && squashed[0].to_string().contains("fails by itself"),
        "{squashed:?}"
    );
    world.assert_green_everywhere();
}

/// Q14: in a batch that is validated as one tree only the last commit claims the validation. The
/// others name the last landing.
#[test]
fn q14_only_the_tip_of_a_batch_claims_a_validation() {
    let world = world_with_outside_agent();
    let content = world.read_file("regatta.toml");
    let content: String = content
        .lines()
        .take_while(|line| !line.starts_with("[landing]"))
        .map(|line| format!("{line}\n"))
        .collect();
    world.write_file(
        "regatta.toml",
        &format!("{content}[landing]\nverify = \"tip\"\nbatch = 2\nslots = 1\n"),
    );
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Validate batches");
    let start = world.git(&["rev-parse", "main"]);
    world.run_ok(&["queue", "hold", "--because", "until both are there"]);
    let works = ["one.txt", "two.txt"].map(|file| {
        let work = StartedTask::start(&world, &format!("Write {file}"), file);
        work.write_file(file, "x\n");
        work.finish(&world);
        work.wait_for_state(&world, "landing");
        work
    });
    world.run_ok(&["queue", "release"]);
    works
        .iter()
        .for_each(|work| work.wait_for_state(&world, "landed"));
    let format = "--format=%(trailers:key=Regatta-Validation,valueonly,separator=%x20)|\
                  %(trailers:key=Regatta-Validation-Tip,valueonly,separator=%x20)";
    let log = world.git(&["log", "--reverse", format, &format!("{start}..main")]);
    let claims: Vec<(bool, &str)> = log
        .lines()
        .filter_map(|line| line.split_once('|'))
        .map(|(own, tip)| (!own.is_empty(), tip))
        .collect();
    assert_eq!(claims, [(false, "L2"), (true, "")], "{log}");
}

/// Creates a conflict in one line. The person's version is on the trunk, and zoe's version comes
/// after it.
fn task_with_conflict(world: &World) -> StartedTask {
    let work = StartedTask::start(world, "Change the first line", "a.txt,b.txt");
    work.write_file(
        "a.txt",
        "zoe's\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n",
    );
    work.write_file("b.txt", "zoe's\n");
    world.write_file(
        "a.txt",
        "ann's\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n",
    );
    world.commit_all("Ann's line");
    work.finish(world);
    work
}

/// Q6, Q3: a conflict becomes a fix-up. Its workspace has the merge with both sides in the
/// conflicting file, and only the conflicting files may change. `queue --all` counts the fix-up.
#[test]
fn q6_a_fixup_changes_only_the_files_that_conflict() {
    let world = world_with_outside_agent();
    let first = task_with_conflict(&world);
    let fixup = StartedTask::take_next(&world);
    assert_eq!(fixup.task, first.task);
    let marked = fixup.read_file("a.txt");
    let sides = ["<<<<<<< ", "ann's\n=======\nzoe's\n", ">>>>>>> "];
    assert!(
        sides.iter().all(|side| marked.contains(side))
            && marked.ends_with("two\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"),
        "{marked}"
    );
    assert_eq!(
        fixup.read_file("b.txt"),
        "zoe's\n",
        "files without a conflict are merged"
    );
    assert_eq!(
        world.git_in(&fixup.workspace, &["status", "--porcelain"]),
        ""
    );
    fixup.write_file(
        "a.txt",
        "ann's and zoe's\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n",
    );
    fixup.write_file("b.txt", "something else\n");
    fixup.finish(&world);
    fixup.wait_for_state(&world, "landed");
    assert!(
        world
            .read_file("a.txt")
            .starts_with("ann's and zoe's\ntwo\n"),
        "{}",
        world.read_file("a.txt")
    );
    assert_eq!(
        world.read_file("b.txt"),
        "zoe's\n",
        "Q3: only the conflicting file may change"
    );
    assert_eq!(times_on_trunk(&world, &first.task), 1);
    let table = world.run_ok(&["queue", "--all"]);
    let row: Vec<&str> = table
        .lines()
        .find(|table| table.starts_with("regatta/"))
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(&row[1..], ["merged", "1", "(fixup)", "1"], "{table}");
    assert_linear_trunk(&world);
    world.assert_green_everywhere();
}

/// Q6, Q8: a conflict that three fix-ups do not settle needs a person. The work is kept, never
/// lands with conflict marks, and does not block other work.
#[test]
fn q6_conflict_marks_never_land_and_need_a_person_after_three_fixups() {
    let world = world_with_outside_agent();
    let first = task_with_conflict(&world);
    let before = world.trunk_commits();
    for round in 1..=3 {
        let fixup = StartedTask::take_next(&world);
        assert_eq!(fixup.task, first.task, "round {round}");
        fixup.finish(&world); // the conflict marks are still in the file
        let reason_names_file = || {
            world.run_json(&["show", &first.task])["reason"]
                .as_str()
                .unwrap_or_default()
                .contains("a.txt still has")
        };
        assert!(
            wait_until(TEST_TIMEOUT, reason_names_file),
            "round {round}: {}",
            world.run_ok(&["why", &first.task])
        );
    }
    first.wait_for_state(&world, "needs you");
    assert_eq!(
        world.trunk_commits(),
        before,
        "Q2: the conflict reached the trunk"
    );
    assert!(
        world.run_ok(&["why", &first.task]).contains("3 fix-ups"),
        "{}",
        world.run_ok(&["why", &first.task])
    );
    assert!(
        world.run_ok(&["diff", &first.task]).contains("+zoe's"),
        "the work is kept"
    );
    let other = StartedTask::start(&world, "Something else", "c.txt");
    other.write_file("c.txt", "c\n");
    other.finish(&world);
    other.wait_for_state(&world, "landed");
    assert_linear_trunk(&world);
}

/// Q4, J1, J8: a submit is captured, validated and recorded. A daemon that is killed between any
/// two of these steps loses nothing.
#[test]
fn q4_a_submit_that_is_interrupted_between_its_steps_lands_once() {
    let world = world_with_outside_agent();
    let points = world.run_json(&["failpoints"]);
    let points: Vec<&str> = points
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let steps: Vec<&str> = points
        .into_iter()
        .filter(|point| point.starts_with("submit."))
        .collect();
    assert!(steps.len() >= 4, "{steps:?}");
    for step in steps {
        let file = format!("{step}.txt");
        let work = StartedTask::start(&world, &format!("Survive {step}"), &file);
        work.write_file(&file, step);
        world.run_ok(&["down", "--keep-agents"]);
        let mut up = world.command(&["up", "--json"]);
        up.env("REGATTA_FAILPOINT", format!("{step}:1"));
        let output = run_command(up, None);
        assert_eq!(output.exit_code, 0, "{output:?}");
        let pid = serde_json::from_str::<Value>(&output.stdout).unwrap()["data"]["pid"]
            .as_u64()
            .unwrap();
        let _cut_off = world.run(&[
            "task",
            "finish",
            &work.task,
            "--attempt",
            &work.attempt,
            "--token",
            &work.token,
        ]);
        assert!(
            wait_until(TEST_TIMEOUT, || !is_alive(pid as u32)),
            "{step} was never reached"
        );
        world.run_ok(&["up"]);
        work.wait_for_state(&world, "landed");
        assert_eq!(
            (
                world.read_file(&file).as_str(),
                times_on_trunk(&world, &work.task)
            ),
            (step, 1),
            "{step}"
        );
    }
    assert_linear_trunk(&world);
    world.assert_green_everywhere();
}

/// Claims the trunk for a person. Returns the claim and its token.
fn take_trunk(world: &World, ttl: &str) -> (String, String) {
    let got = world.run_json(&[
        "claim",
        "acquire",
        "workspace://shop/default",
        "--ttl",
        ttl,
        "--as",
        "ann",
    ]);
    (
        got["claim"].as_str().unwrap().to_owned(),
        got["token"].to_string(),
    )
}

/// L6, L8: the holder of the trunk's claim can land a workspace under it. The queue waits for that
/// claim and for nothing else.
#[test]
fn l6_a_lead_lands_its_workspace_under_its_own_claim() {
    let world = world_with_outside_agent();
    let (claim, token) = take_trunk(&world, "60s");
    let (hers, other) = (
        StartedTask::start(&world, "Hers", "hers.txt"),
        StartedTask::start(&world, "Another's", "other.txt"),
    );
    for (work, file) in [(&other, "other.txt"), (&hers, "hers.txt")] {
        work.write_file(file, "x\n");
        work.finish(&world);
        work.wait_for_state(&world, "landing");
    }
    let trunk_is_held = || {
        world
            .run_ok(&["why", &other.task])
            .contains("workspace://shop/default is held by")
    };
    assert!(
        wait_until(TEST_TIMEOUT, trunk_is_held),
        "{}",
        world.run_ok(&["why", &other.task])
    );
    let explanation = world.run_ok(&["why", &other.task]);
    assert!(
        explanation.contains("regatta claim list") && !explanation.contains("list only files"),
        "a smaller manifest would not free the trunk: {explanation}"
    );
    let before = world.trunk_commits();
    let error = world.run_refused(
        &[
            "land", "--now", &hers.task, "--claim", &claim, "--token", "1",
        ],
        5,
    );
    assert_eq!(
        (error["code"].as_str().unwrap(), world.trunk_commits()),
        ("stale_token", before),
        "{error}"
    );
    // The path of the workspace names the attempt as well, while the workspace exists.
    let place = hers
        .workspace
        .is_dir()
        .then(|| path_text(&hers.workspace).to_owned());
    let named = place.unwrap_or_else(|| hers.attempt.clone());
    let landed = world.run_json(&[
        "land", "--now", &named, "--claim", &claim, "--token", &token,
    ]);
    assert_eq!(landed["word"], "landed", "{landed}");
    assert_eq!(world.read_file("hers.txt"), "x\n");
    world.run_ok(&["claim", "release", &claim, "--token", &token]);
    other.wait_for_state(&world, "landed");
    assert_linear_trunk(&world);
}

/// L5, L6: the token of a lead whose claim expired is refused, and moves nothing.
#[test]
fn l6_a_lead_whose_claim_expired_cannot_move_the_trunk() {
    let world = world_with_outside_agent();
    let work = StartedTask::start(&world, "Say hello", "hello.txt");
    work.write_file("hello.txt", "hello\n");
    let (claim, token) = take_trunk(&world, "300ms");
    // The queue is held, so that only the lead could move the trunk.
    world.run_ok(&["queue", "hold", "--because", "for the test"]);
    work.finish(&world);
    work.wait_for_state(&world, "landing");
    let claim_is_released = || {
        !world.run_json(&["claim", "list"])["held"]
            .to_string()
            .contains("workspace://shop/default")
    };
    assert!(
        wait_until(TEST_TIMEOUT, claim_is_released),
        "the claim must expire"
    );
    let before = world.trunk_commits();
    let error = world.run_refused(
        &[
            "land", "--now", &work.task, "--claim", &claim, "--token", &token,
        ],
        5,
    );
    assert!(
        ["claim_ended", "stale_token"].contains(&error["code"].as_str().unwrap()),
        "{error}"
    );
    // A person holds a new claim by now. The old token does not work for the new claim either.
    let (new, _) = take_trunk(&world, "60s");
    let error = world.run_refused(
        &[
            "land", "--now", &work.task, "--claim", &new, "--token", &token,
        ],
        5,
    );
    assert_eq!(
        (error["code"].as_str().unwrap(), world.trunk_commits()),
        ("stale_token", before),
        "{error}"
    );
    assert_eq!(
        world.run_json(&["show", &work.task])["word"],
        "landing",
        "the work stays in the queue"
    );
    assert_linear_trunk(&world);
}

/// Q1, Q2, Q7: a person commits to the trunk while a merge is validated. The work is merged and
/// validated again on that commit.
#[test]
fn q2_work_is_merged_again_if_the_trunk_moves_during_its_validation() {
    let world = World::with_repo();
    let (begun, go) = (world.root.join("begun"), world.root.join("go"));
    // The check waits only in the queue's staging directory, not in a workspace.
    let slow = format!(
        "#!/bin/sh\ncase $PWD in */staging*) touch {}; while [ ! -e {} ]; do sleep 0.02; done;; \
        esac\n[ ! -e bad ]\n",
        begun.display(),
        go.display()
    );
    world.write_file("test.sh", &slow);
    // The test controls the check through files outside, which a sandboxed check could not see.
    let checks = "[validation]\ncommands = [\"sh ./test.sh\"]\n[run]\nsandbox = \"off\"\n";
    world.write_file(
        "regatta.toml",
        &format!("[project]\nname = \"shop\"\n{checks}"),
    );
    world.commit_all("Slow");
    world.run_ok(&["init", "--yes"]);
    world.run_ok(&[
        "agent",
        "add",
        "zoe",
        "--runtime",
        "outside",
        "--max-tasks",
        "4",
    ]);
    let work = StartedTask::start(&world, "Say hello", "hello.txt");
    work.write_file("hello.txt", "hello\n");
    work.finish(&world);
    assert!(
        wait_until(TEST_TIMEOUT, || Path::new(&begun).exists()),
        "it is validated: {}",
        world.run_ok(&["why", &work.task])
    );
    world.write_file("ann.txt", "ann's\n");
    world.commit_all("Ann's own");
    let anns = world.git(&["rev-parse", "main"]);
    std::fs::write(&go, "").unwrap();
    work.wait_for_state(&world, "landed");
    assert_eq!(
        world.git(&["rev-parse", "main^"]),
        anns,
        "the work must be on top of Ann's commit"
    );
    assert_eq!(
        (
            world.read_file("ann.txt").as_str(),
            world.read_file("hello.txt").as_str()
        ),
        ("ann's\n", "hello\n")
    );
    assert_eq!(times_on_trunk(&world, &work.task), 1);
    assert_linear_trunk(&world);
    world.assert_green_everywhere();
}

/// Creates a world with a serial queue whose check runs this script on merged trees.
fn world_with_check(test: &str) -> World {
    let world = World::with_repo();
    world.write_file(
        "test.sh",
        &format!("#!/bin/sh\ncase $PWD in */staging*) {test};; esac\n[ ! -e bad ]\n"),
    );
    let settings = "[validation]\ncommands = [\"sh ./test.sh\"]\n[landing]\nmode \
        = \"serial\"\n[run]\nsandbox = \"off\"\n";
    world.write_file(
        "regatta.toml",
        &format!("[project]\nname = \"shop\"\n{settings}"),
    );
    world.commit_all("Say how to check");
    world.run_ok(&["init", "--yes"]);
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

/// Q9, P3: work that is dropped during its validation frees its slot at once, and all processes of
/// its checks end.
#[test]
fn q9_a_dropped_branch_frees_its_slot_at_once() {
    let world = world_with_check(
        "[ ! -e slow.txt ] || { setsid sleep 86399 & touch ../begun; sleep 86398; }",
    );
    let slow = StartedTask::start(&world, "Be slow", "slow.txt");
    slow.write_file("slow.txt", "slow\n");
    slow.finish(&world);
    let begun = || world.data_dir.join("staging/shop/begun").exists();
    assert!(
        wait_until(TEST_TIMEOUT, begun),
        "it is validated: {}",
        world.run_ok(&["why", &slow.task])
    );
    let next = StartedTask::start(&world, "Be next", "next.txt");
    next.write_file("next.txt", "next\n");
    next.finish(&world);
    let queued = || {
        world.run_json(&["queue"])[0]["queue"]
            .as_array()
            .is_some_and(|world| world.len() == 2)
    };
    assert!(
        wait_until(TEST_TIMEOUT, queued),
        "{}",
        world.run_ok(&["queue"])
    );
    world.run_ok(&["drop", &slow.task, "--because", "too slow"]);
    next.wait_for_state(&world, "landed");
    let sleeps = || crate::world::processes_of(&world.data_dir.join("staging")).len();
    assert!(
        wait_until(TEST_TIMEOUT, || sleeps() == 0),
        "{:?}",
        crate::world::processes_of(&world.data_dir.join("staging"))
    );
}

/// Q2: a person commits to the trunk while a merge is validated. The checks of the outdated merge
/// are ended.
#[test]
fn q2_checks_on_an_outdated_trunk_do_not_delay_the_landing() {
    let world = world_with_check("while [ ! -e ann.txt ]; do touch ../begun; sleep 0.1; done");
    let work = StartedTask::start(&world, "Say hello", "hello.txt");
    work.write_file("hello.txt", "hello\n");
    work.finish(&world);
    let begun = || world.data_dir.join("staging/shop/begun").exists();
    assert!(
        wait_until(TEST_TIMEOUT, begun),
        "it is validated: {}",
        world.run_ok(&["why", &work.task])
    );
    world.write_file("ann.txt", "ann's\n");
    world.commit_all("Ann's own");
    work.wait_for_state(&world, "landed");
    assert_eq!(times_on_trunk(&world, &work.task), 1);
}
