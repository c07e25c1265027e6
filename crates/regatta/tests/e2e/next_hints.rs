//! Suggested next commands: each `next:` line works as printed. Finished work can be reviewed, sent
//! back, landed and undone from a shell.
//!
//! Checked with planted faults: a `why` that suggests a blocker that has landed, a plan whose
//! suggestion lacks its agents, comments that do not reach the agent, an undo that knows no
//! commits, and a pager in a pipe.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::world::{TEST_TIMEOUT, World, wait_until};

/// Creates a world in which a person reviews everything before it lands.
pub(crate) fn world_with_reviews() -> World {
    let world = World::with_project();
    let settings = world.read_file("regatta.toml");
    world.write_file(
        "regatta.toml",
        &format!("{settings}\n[landing]\nreview = \"human\"\n"),
    );
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Look at everything");
    world
}

fn task_state(world: &World, task: &str) -> Value {
    world.run_json(&["show", task])["word"].clone()
}

/// Returns the next commands that an answer suggests.
fn suggested_commands(world: &World, args: &[&str]) -> Vec<String> {
    let output = world.run(&[args, &["--json"]].concat());
    let answer: Value = serde_json::from_str(&output.stdout)
        .unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"));
    let next = answer["next"].as_array().cloned().unwrap_or_default();
    next.iter()
        .map(|hint| hint.as_str().unwrap().to_owned())
        .collect()
}

const TWO_TASK_PLAN: &str = r#"
title = "A bit of everything"
[[task]]
id = "asks"
subject = "Ask something"
files = ["q.txt"]
script = [{ ask = { question = "Which?", choices = ["one", "two"] } }, { write = { path = "q.txt", text = "q\n" } }]
[[task]]
id = "wants"
subject = "Want something"
files = ["w.txt"]
script = [{ permission = { what = "npm install zod", default = "deny" } }, { write = { path = "w.txt", text = "w\n" } }]
[[task]]
id = "good"
subject = "Write b"
files = ["b.txt"]
script = [{ write = { path = "b.txt", text = "one\ntwo\n" } }]
[[task]]
id = "bad"
subject = "Break it"
files = ["bad"]
script = [{ write = { path = "bad", text = "x\n" } }]
[[task]]
id = "after"
subject = "What follows"
files = ["c.txt"]
blocked_by = ["good", "asks"]
script = [{ write = { path = "c.txt", text = "c\n" } }]
"#;

/// Commands that only read, so that following them changes nothing.
const READ_ONLY_COMMANDS: [&str; 14] = [
    "status", "why", "show", "queue", "diff", "inbox", "graph", "cost", "replay", "compare",
    "budget", "policy", "agent", "provider",
];

/// Every suggested line is a complete command. The test follows those that only read, and none is
/// refused.
#[test]
fn every_next_line_works_as_it_is_printed() {
    let world = world_with_reviews();
    let plan = world.write_plan(TWO_TASK_PLAN);
    assert_eq!(
        suggested_commands(
            &world,
            &[
                "run",
                &plan,
                "--plan-only",
                "--agents",
                "scripted",
                "--mode",
                "waves"
            ]
        ),
        [format!("regatta run {plan} --agents scripted --mode waves")],
        "the suggestion keeps the flags"
    );
    world.run_ok(&[
        "agent",
        "add",
        "scripted",
        "--runtime",
        "scripted",
        "--max-tasks",
        "5",
    ]);
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes"]);
    let settled = || {
        let asked = world.run_json(&["inbox"]).as_array().unwrap().len();
        asked == 4 && task_state(&world, "T3") == "review" && task_state(&world, "T4") == "failed"
    };
    assert!(
        wait_until(TEST_TIMEOUT, settled),
        "{}",
        world.run_ok(&["status"])
    );
    assert_eq!(world.run_json(&["land", "T3", "--wait"])["word"], "landed");
    let mut todo: Vec<String> = [
        "status", "inbox", "queue", "graph", "cost", "undo", "why T1", "why T2", "why T4",
        "why T5", "show M1", "diff T3",
    ]
    .map(|command| format!("regatta {command}"))
    .to_vec();
    let mut seen = BTreeSet::new();
    while let Some(line) = todo.pop() {
        if !seen.insert(line.clone()) {
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[0], "regatta", "{line}");
        assert!(
            !line.contains(['…', '<']) && !line.contains("TASK") && !line.contains("PLAN"),
            "a template: {line}"
        );
        let looks = READ_ONLY_COMMANDS.contains(&words[1]) || line == "regatta undo";
        let ends = !["-f", "-i", "--help", "--step"]
            .iter()
            .any(|word| words.contains(word));
        if looks && ends {
            todo.extend(suggested_commands(&world, &words[1..]));
        } else {
            let help = world.run(&[words[1], "--help"]);
            assert_eq!(help.exit_code, 0, "{line}: {help:?}");
        }
    }
    let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
    for line in [
        "regatta answer Q1 1",
        "regatta allow Q2",
        "regatta retry T4",
        "regatta undo T3",
        "regatta watch",
    ] {
        let alike = line.replace("Q1", "Q2").replace("allow Q2", "allow Q1");
        assert!(
            seen.contains(&line) || seen.contains(&alike.as_str()),
            "{line} is never suggested: {seen:#?}"
        );
    }
    // Only blockers that are still open are suggested.
    let commands = suggested_commands(&world, &["why", "T5"]);
    assert!(
        commands.contains(&"regatta why T1".to_owned())
            && !commands.contains(&"regatta why T3".to_owned()),
        "{commands:?}"
    );
    let text = world.run_ok(&["status"]);
    assert!(
        text.contains("M1 A bit of everything   1 of 5 landed"),
        "{text}"
    );
    assert!(
        text.contains("question: Which?") && text.contains("permission: npm install zod"),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|text| text.contains("T4") && text.contains("✕ failed")),
        "the failed task is shown: {text}"
    );
    // A retry in a running mission starts by itself.
    assert_eq!(
        suggested_commands(&world, &["retry", "T4"]),
        ["regatta why T6"]
    );
}

/// A change can be counted, shown, opened in a program and sent back with comments that reach its
/// agent. `--since-review` shows only the later changes.
#[test]
fn finished_work_can_be_reviewed_and_sent_back() {
    let world = world_with_reviews();
    let plan = world.write_plan(
        "[[task]]\nsubject = \"Write b\"\nfiles = [\"b.txt\", \"d/e.txt\"]\n\
         script = [{ run = \"echo $REGATTA_ATTEMPT > b.txt\" }, { write = { path = \"d/e.txt\", \
         text = \"one\\ntwo\\n\" } }]\n",
    );
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes"]);
    assert!(
        wait_until(TEST_TIMEOUT, || task_state(&world, "T1") == "review"),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let stat = world.run_ok(&["diff", "T1", "--stat"]);
    assert_eq!(stat, "b.txt    +1  -0\nd/e.txt  +2  -0\n2 files  +3  -0\n");
    let mut piped = world.command(&["diff", "T1"]);
    piped.env("REGATTA_PAGER", "touch paged");
    let text = crate::world::run_command(piped, None).stdout;
    assert!(
        text.contains("+one\n+two\n") && !text.contains('\x1b'),
        "{text}"
    );
    assert!(!world.repo.join("paged").exists(), "no pager in a pipe");
    assert_eq!(
        world.run_refused(&["diff", "T1", "--since-review"], 5)["code"],
        "never_reviewed"
    );
    // The reader's own program gets each file before and after.
    let opened = world.run_ok(&["diff", "T1", "--tool=diff -u"]);
    assert!(
        opened.contains("+two") && opened.contains("opened 2 files of T1 in diff -u"),
        "{opened}"
    );
    let missing = world.run(&["diff", "T1", "--tool=no-such-program"]);
    assert!(
        missing.exit_code == 1
            && missing
                .stderr
                .contains("could not start the diff program no-such-program"),
        "{missing:?}"
    );
    assert_eq!(world.run(&["diff", "T1", "--tool", "--stat"]).exit_code, 2);

    let bad = world.run(&["revise", "T1", "--comment", "b.txt: shorter"]);
    assert!(
        bad.exit_code == 2 && bad.stderr.contains("PATH:LINE:TEXT"),
        "{bad:?}"
    );
    assert_eq!(
        world.run(&["revise", "T1"]).exit_code,
        2,
        "a revise needs a message or comments"
    );
    let sent = world.run(&[
        "revise",
        "T1",
        "-m",
        "say less",
        "--comment",
        "d/e.txt:2:one is enough",
        "--comment",
        "z.txt:1:why not",
    ]);
    assert_eq!(sent.exit_code, 0, "{sent:?}");
    assert!(
        sent.stdout
            .contains("T1 goes back to scripted with your 2 comments"),
        "{sent:?}"
    );
    assert!(sent.stderr.contains("T1 does not change z.txt"), "{sent:?}");
    assert!(wait_until(TEST_TIMEOUT, || task_state(&world, "T1")
        == "review"
        && world.run_json(&["show", "T1"])["attempts"][1].is_object()));
    let output = world.run_ok(&["logs", "T1", "--raw"]);
    for text in ["say less", "d/e.txt:2: one is enough", "z.txt:1: why not"] {
        assert!(
            output.contains(text),
            "the agent must get {text:?}: {output}"
        );
    }
    let since = world.run_ok(&["diff", "T1", "--since-review", "--stat"]);
    assert_eq!(
        since, "b.txt  +1  -1\n",
        "only the changes since the review"
    );
    let landed = world.run_ok(&["land", "T1", "--wait"]);
    assert!(
        landed.contains(" on main · to add a revert: regatta undo T1"),
        "{landed}"
    );
}

/// Landed work is listed, and can be undone by its task or its commit. Unknown ids are refused.
#[test]
fn landed_work_can_be_undone_by_its_commit() {
    let world = World::with_project();
    assert_eq!(world.run_ok(&["undo"]), "nothing has landed yet\n");
    let plan = world.write_plan(
        "[[task]]\nsubject = \"Write b\"\nfiles = [\"b.txt\"]\nscript = \
        [{ write = { path = \"b.txt\", text = \"b\\n\" } }]\n",
    );
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes", "--wait"]);
    let list = world.run_ok(&["undo"]);
    let commit = world.git(&["rev-parse", "HEAD"]).trim().to_owned();
    assert!(
        list.starts_with("T1") && list.contains(&commit[..10]) && list.contains("Write b"),
        "{list}"
    );
    assert_eq!(
        world.run_refused(&["undo", "abcdef123"], 1)["code"],
        "no_such_commit"
    );
    assert_eq!(
        world.run_refused(&["undo", "nonsense"], 2)["code"],
        "bad_id"
    );
    let neither = world.run_refused(&["undo", "99887766"], 1);
    let message = "there is no task T99887766, and no task landed as commit 99887766";
    assert_eq!(
        (&neither["code"], &neither["message"]),
        (&json!("no_such_commit"), &json!(message))
    );
    let undone = world.run_ok(&["undo", &commit[..8].to_uppercase(), "--wait"]);
    assert!(
        undone.contains("reverted T1: T2 landed the revert as ")
            && !world.repo.join("b.txt").exists(),
        "{undone}"
    );
    // The reverted task says so, and names the command that brings its work back.
    let why = world.run_ok(&["why", "T1"]);
    assert!(
        why.contains("T2 reverted the landed work") && why.contains("regatta undo T2"),
        "{why}"
    );
    assert_eq!(world.run_json(&["show", "T1"])["undone_by"], "T2");
    assert!(world.run_ok(&["show", "T1"]).contains("by T2"));
    let diff = world.run_ok(&["diff", "T1"]);
    assert!(diff.contains("T2 reverted these changes of T1"), "{diff}");
    assert!(world.run_json(&["show", "T2"])["undone_by"].is_null());
    let queue = world.run_json(&["queue"]);
    assert!(
        queue[0]["usual_ms"].is_u64(),
        "the usual duration of a landing: {queue}"
    );
    assert_eq!(world.run_json(&["undo"])[0]["task"], json!("T2"));
    // A retry after the end of its mission starts with the suggested command.
    let plan = world.write_plan(
        "[[task]]\nsubject = \"Break it\"\nfiles = [\"bad\"]\nscript = [{ \
        write = { path = \"bad\", text = \"x\\n\" } }]\n",
    );
    assert_eq!(
        world
            .run(&["run", &plan, "--agents", "scripted", "--yes", "--wait"])
            .exit_code,
        1
    );
    assert_eq!(
        suggested_commands(&world, &["retry", "T3"]),
        ["regatta run --yes"]
    );
    assert_eq!(world.run_json(&["why", "T4"])["task"]["word"], "waiting");
    world.run_ok(&["run", "--yes"]);
    assert!(
        wait_until(TEST_TIMEOUT, || task_state(&world, "T4") == "failed"),
        "{}",
        world.run_ok(&["why", "T4"])
    );
}

/// Lands tasks until a commit id starts with digits, and undoes that commit by those digits.
#[test]
fn a_commit_prefix_of_digits_alone_is_not_taken_for_a_task() {
    let world = World::with_project();
    let is_number = |commit: &str| commit.bytes().take(4).all(|byte| byte.is_ascii_digit());
    let mut found = None;
    // A commit id starts with four digits with a chance of 15 %, so a few of these rounds of ten
    // are enough.
    for round in 0..20 {
        let task = |nth: usize| {
            let path = format!("r{round}-{nth}.txt");
            format!(
                "[[task]]\nsubject = \"Write {path}\"\nfiles = [\"{path}\"]\nscript = [{{ write = \
                {{ path = \"{path}\", text = \"x\\n\" }} }}]\n"
            )
        };
        let plan = world.write_plan(&(0..10).map(task).collect::<String>());
        world.run_ok(&["run", &plan, "--agents", "scripted", "--yes", "--wait"]);
        let landed = world.run_json(&["undo"]);
        let all = landed.as_array().unwrap().iter();
        let mut all = all.map(|hint| {
            (
                hint["task"].as_str().unwrap().to_owned(),
                hint["commit"].as_str().unwrap().to_owned(),
            )
        });
        found = all.find(|(_, commit)| is_number(commit));
        if found.is_some() {
            break;
        }
    }
    let (task, commit) = found.expect("one of two hundred commits starts with four digits");
    let digits: String = commit.chars().take_while(char::is_ascii_digit).collect();
    let undone = world.run_json(&["undo", &digits, "--wait"]);
    assert_eq!(undone["word"], "landed", "{digits} names {task}: {undone}");
    assert!(
        undone["subject"].as_str().unwrap().contains(&task),
        "{undone}"
    );
    // A number alone may mean a task or an attempt, and both exist.
    let unclear = world.run_refused(&["logs", "1"], 2);
    assert_eq!(
        unclear["message"],
        "the number 1 is ambiguous, because it can mean attempt A1 or task T1"
    );
    world.run_ok(&["agent", "add", "T1", "--runtime", "scripted"]);
    let unclear = world.run_refused(&["show", "T1"], 2);
    assert_eq!(unclear["message"], "T1 can mean task T1 or agent T1");
    assert_eq!(world.run_json(&["show", "task:T1"])["word"], "landed");
    assert_eq!(world.run_json(&["show", "agent:T1"])["name"], "T1");
}
