//! Plans with waves, shared files, missing manifests and a stale base, and large random plans. The
//! large plans are checked from the event log alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::world::World;

/// A scripted task that writes its files.
fn scripted_task(id: &str, files: &[&str], after: &[&str]) -> Value {
    let script: Vec<Value> = files
        .iter()
        .map(|file| json!({ "write": { "path": file, "text": format!("{id}\n") } }))
        .collect();
    json!({ "id": id, "subject": format!("Do {id}"), "files": files, "blocked_by": after, "script": script })
}

fn plan_file(world: &World, tasks: &[Value]) -> String {
    let path = world.root.join("plan.json");
    std::fs::write(&path, json!(tasks).to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn run_plan(world: &World, tasks: &[Value], flags: &[&str]) -> (Value, i32) {
    let plan = plan_file(world, tasks);
    let (mission, ran) =
        world.run_json_any_exit(&[&["run", &plan, "--wait", "--timeout", "300s"], flags].concat());
    (mission, ran.exit_code)
}

const WAVE_OPTIONS: [&str; 4] = ["--agents", "scripted", "--mode", "waves"];

fn task_by_alias<'a>(mission: &'a Value, alias: &str) -> &'a Value {
    mission["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|mission| mission["alias"] == alias)
        .unwrap()
}

/// Returns the starts and completions of tasks in the order of their events, by alias.
fn task_events(world: &World, mission: &Value) -> Vec<(String, String)> {
    let alias: BTreeMap<&str, &str> = mission["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mission| {
            (
                mission["id"].as_str().unwrap(),
                mission["alias"].as_str().unwrap(),
            )
        })
        .collect();
    let task_event = |value: &Value| {
        let kind = value["kind"].as_str()?.to_owned();
        let name = alias.get(value["subject"].as_str()?)?;
        ["task.started", "task.completed"]
            .contains(&kind.as_str())
            .then(|| (kind, (*name).to_owned()))
    };
    world.events().iter().filter_map(task_event).collect()
}

/// Task 1 is the first wave, tasks 2 and 3 are the second, task 4 the third and task 5 the fourth.
#[test]
fn five_dependent_tasks_run_in_four_waves() {
    let world = World::with_project();
    let plan = [
        scripted_task("1", &["src/models/user.go"], &[]),
        scripted_task("2", &["src/auth/hash.go"], &["1"]),
        scripted_task("3", &["src/auth/login.go"], &["1"]),
        scripted_task("4", &["src/auth/jwt.go"], &["3"]),
        scripted_task("5", &["tests/auth_flow.go"], &["2", "4"]),
    ];
    let shown = world.run_ok(&[
        "run",
        &plan_file(&world, &plan),
        "--plan-only",
        "--mode",
        "waves",
    ]);
    assert!(
        shown.contains("5 tasks · 4 waves with a barrier"),
        "{shown}"
    );
    let (mission, code) = run_plan(&world, &plan, &WAVE_OPTIONS);
    assert_eq!(code, 0, "{mission}");
    let waves: Vec<u64> = ["1", "2", "3", "4", "5"]
        .map(|alias| task_by_alias(&mission, alias)["wave"].as_u64().unwrap())
        .into();
    assert_eq!(waves, [0, 1, 1, 2, 3]);
    let story = task_events(&world, &mission);
    let position = |kind: &str, name: &str| {
        story
            .iter()
            .position(|story| story.0 == kind && story.1 == name)
            .unwrap()
    };
    for (earlier, later) in [("1", "2"), ("1", "3"), ("2", "4"), ("3", "4"), ("4", "5")] {
        assert!(
            position("task.completed", earlier) < position("task.started", later),
            "{earlier} before {later}: {story:?}"
        );
    }
}

/// Tasks 1 and 3 both change settings.go, so task 3 moves to the second sub-wave. The run prints
/// this before it starts.
#[test]
fn a_task_that_shares_a_file_moves_to_a_second_sub_wave() {
    let world = World::with_project();
    let plan = [
        scripted_task(
            "1",
            &["src/auth/middleware.go", "src/config/settings.go"],
            &[],
        ),
        scripted_task("2", &["src/limit.go"], &[]),
        scripted_task("3", &["src/config/settings.go"], &[]),
    ];
    let path = plan_file(&world, &plan);
    let output = world.run(&[
        "run",
        &path,
        "--agents",
        "scripted",
        "--mode",
        "waves",
        "--wait",
        "--timeout",
        "120s",
    ]);
    assert_eq!(output.exit_code, 0, "{output:?}");
    let line = output
        .stderr
        .lines()
        .find(|stderr| stderr.contains("settings.go"))
        .unwrap_or_else(|| panic!("{}", output.stderr));
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        words,
        ["src/config/settings.go", "1", "1", "3", "in", "wave", "1.2"],
        "{}",
        output.stderr
    );
    let mission = world.run_json(&["show", "M1"]);
    let story = task_events(&world, &mission);
    let position = |kind: &str, name: &str| {
        story
            .iter()
            .position(|story| story.0 == kind && story.1 == name)
            .unwrap()
    };
    for first in ["1", "2"] {
        assert!(
            position("task.completed", first) < position("task.started", "3"),
            "{story:?}"
        );
    }
    assert_eq!(world.read_file("src/config/settings.go"), "3\n");
}

/// A wave lands as one commit whose trailers name every task. A single task of the wave can still
/// be undone.
#[test]
fn a_wave_lands_as_one_commit_that_names_its_tasks() {
    let world = World::with_project();
    let tasks = [
        scripted_task("a", &["letters/a"], &[]),
        scripted_task("b", &["letters/b"], &[]),
        scripted_task("c", &["letters/c"], &["a", "b"]),
    ];
    let plan = world.root.join("waves.json");
    let text = json!({ "title": "Letters", "commits": "wave", "task": tasks }).to_string();
    std::fs::write(&plan, text).unwrap();
    let plan = plan.to_str().unwrap();
    let before = world.trunk_commits().len();
    let shown = world.run_ok(&["run", plan, "--plan-only"]);
    assert!(
        shown.contains("2 waves with a barrier, each one commit"),
        "{shown}"
    );
    let error = world.run_refused(&["run", plan, "--mode", "flow"], 2);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("with --mode flow there are no waves"),
        "{error}"
    );
    let (mission, ran) = world.run_json_any_exit(&[
        "run",
        plan,
        "--agents",
        "scripted",
        "--wait",
        "--timeout",
        "300s",
    ]);
    assert_eq!(ran.exit_code, 0, "{mission}");
    assert_eq!(world.trunk_commits().len(), before + 2);
    let message = world.git(&["log", "-1", "--format=%B", "HEAD~1"]);
    assert!(
        message.starts_with("Letters: wave 1 of M1\n\n- T1: Do a\n- T2: Do b\n"),
        "{message}"
    );
    let trailers = world.git(&[
        "log",
        "-1",
        "--format=%(trailers:key=Regatta-Task,valueonly)",
        "HEAD~1",
    ]);
    assert_eq!(
        trailers.split_whitespace().collect::<Vec<_>>(),
        ["T1", "T2"]
    );
    assert_eq!(
        world.git(&["log", "-1", "--format=%s", "HEAD"]),
        "Do c",
        "a wave of one is its task's commit"
    );
    world.run_ok(&["undo", "T1", "--wait"]);
    assert_eq!(
        (
            world.read_file("letters/b"),
            world.repo.join("letters/a").exists()
        ),
        ("b\n".into(), false)
    );
    // A flag on the command line overrides the plan's setting.
    let shown = world.run_ok(&["run", plan, "--per-task-commits", "--plan-only"]);
    assert!(!shown.contains("one commit"), "{shown}");
}

/// One task of a wave fails validation after the merge. The other tasks land as one commit, and the
/// failed task lands after them once it is fixed.
#[test]
fn q9_a_task_that_fails_validation_leaves_its_wave_and_lands_once_fixed() {
    let world = World::with_repo();
    // The checks pass for each task alone and fail for limit.txt and b.txt together.
    let check = "! { [ -f limit.txt ] && grep -q too-much b.txt 2>/dev/null; }";
    world.write_file(
        "regatta.toml",
        &format!("[project]\nname = \"shop\"\n[validation]\ncommands = [{check:?}]\n"),
    );
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Use regatta");
    let script = world.root.join("worker.sh");
    let body = "case $REGATTA_TASK in T1) echo x > limit.txt;; T3) echo x > c.txt;; \
                T2) if [ -f limit.txt ]; then echo little > b.txt; else echo too-much > b.txt; \
                fi;; esac";
    std::fs::write(&script, body).unwrap();
    let command = format!("sh {}", script.display());
    world.run_json(&[
        "agent",
        "add",
        "ann",
        "--runtime",
        "command",
        "--max-tasks",
        "3",
        "--command",
        &command,
    ]);
    let plain = |id: &str, file: &str, priority: u8| json!({ "id": id, "subject": format!("Do {id}"), "files": [file], "priority": priority });
    let plan = [
        plain("a", "limit.txt", 0),
        plain("b", "b.txt", 2),
        plain("c", "c.txt", 1),
    ];
    let before = world.trunk_commits().len();
    let (mission, code) = run_plan(&world, &plan, &["--agents", "ann", "--wave-commits"]);
    assert_eq!(code, 0, "{mission}");
    assert_eq!(world.read_file("b.txt"), "little\n");
    let subjects = world.git(&["log", "--reverse", "--format=%s", "-2"]);
    assert_eq!(world.trunk_commits().len(), before + 2, "{subjects}");
    assert_eq!(subjects, "plan: wave 1 of M1\nDo b");
    let trailers = world.git(&[
        "log",
        "-1",
        "--format=%(trailers:key=Regatta-Task,valueonly)",
        "HEAD~1",
    ]);
    assert_eq!(
        trailers.split_whitespace().collect::<Vec<_>>(),
        ["T1", "T3"]
    );
}

/// W1: a task without files is not given to an agent. The run warns about the task before it
/// starts, the wave closes without it, and the run ends by itself.
#[test]
fn w1_a_task_without_files_is_not_started_and_delays_no_independent_task() {
    let world = World::with_project();
    let mut bare = scripted_task("bare", &[], &[]);
    bare["script"] = json!([{ "write": { "path": "bare.txt", "text": "x" } }]);
    let docs = json!({ "id": "docs", "subject": "Explain", "issue_type": "docs",
        "script": [{ "write": { "path": "README.md", "text": "words\n" } }] });
    let plan = [
        scripted_task("good", &["a.go"], &[]),
        bare,
        docs,
        scripted_task("next", &["b.go"], &["good"]),
        scripted_task("behind", &["c.go"], &["bare"]),
    ];
    let path = plan_file(&world, &plan);
    let output = world.run(
        &[
            &["run", &path, "--wait", "--timeout", "120s"],
            &WAVE_OPTIONS[..],
        ]
        .concat(),
    );
    assert_eq!(output.exit_code, 8, "partly landed: {output:?}");
    assert!(
        output
            .stderr
            .contains("warning: bare names no files and will not be given to an agent"),
        "{output:?}"
    );
    let tasks = world.run_json(&["task", "list", "--all"]);
    let state_of = |alias: &str| {
        tasks
            .as_array()
            .unwrap()
            .iter()
            .find(|task| task["alias"] == alias)
            .unwrap()["word"]
            .clone()
    };
    assert_eq!(
        ["good", "docs", "next"].map(state_of),
        ["landed"; 3].map(Value::from)
    );
    assert_eq!(
        ["bare", "behind"].map(state_of),
        ["waiting"; 2].map(Value::from)
    );
    assert!(world.run_ok(&["why", "T2"]).contains("it has no manifest"));
    assert!(
        !task_events(&world, &world.run_json(&["show", "M1"]))
            .iter()
            .any(|task_event| task_event.1 == "bare" || task_event.1 == "behind")
    );
    // A plan with an unknown issue type is refused as a whole.
    let typed = json!({ "id": "x", "subject": "Odd", "issue_type": "epic", "files": ["x"] });
    let before = world.events().len();
    let error = world.run_refused(
        &["run", &plan_file(&world, &[typed]), "--agents", "scripted"],
        2,
    );
    assert!(
        error["message"].as_str().unwrap().contains("epic"),
        "{error}"
    );
    assert_eq!(world.events().len(), before);
}

/// A program that lists files when the prompt asks for paths, and otherwise writes those files.
const FILE_FINDER: &str = r###"
case "$1" in
*"JSON array of paths"*nowhere*"## RULES"*) detail='no idea' ;;
*"JSON array of paths"*) detail='[\"found.txt\", \"more/*\"]' ;;
*) mkdir -p more; echo found > found.txt; echo more > more/a.txt; detail='wrote it' ;;
esac
printf '{"type":"completion","status":"done","detail":"%s"}' "$detail" > "$REGATTA_RESULT"
"###;

/// With --fill-manifests an agent first looks for the files of each task, at low effort. The run
/// prints the files before any task starts.
#[test]
fn missing_manifests_are_filled_before_the_start() {
    let world = World::with_project();
    let script = world.root.join("finder.sh");
    std::fs::write(&script, FILE_FINDER).unwrap();
    let command = format!("sh {} {{prompt}}", script.display());
    world.run_json(&[
        "agent",
        "add",
        "finder",
        "--runtime",
        "command",
        "--command",
        &command,
    ]);
    let lacks = |id: &str, subject: &str| json!({ "id": id, "subject": subject });
    let plan = [
        lacks("one", "Write what is needed"),
        json!({ "id": "two", "subject": "Explain it", "issue_type": "docs", "files": ["found.txt"], "blocked_by": ["one"],
            "expects": "report", "agent": "finder" }),
        lacks("three", "Write what is nowhere"),
    ];
    let path = plan_file(&world, &plan);
    let output = world.run(&[
        "run",
        &path,
        "--agents",
        "finder",
        "--fill-manifests",
        "--wait",
        "--timeout",
        "120s",
    ]);
    assert_eq!(output.exit_code, 8, "one task is not done: {output:?}");
    let position = |text: &str| {
        output
            .stderr
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {}", output.stderr))
    };
    assert!(
        position("finding the files of 2 tasks")
            < position("T1 \"Write what is needed\": found.txt, more/*"),
        "{output:?}"
    );
    assert!(
        position("T2 has no files yet: ") < position("plan \"plan\"  3 tasks"),
        "{output:?}"
    );
    let shown = |id: &str| world.run_json(&["show", id]);
    assert_eq!(
        (&shown("T1")["word"], &shown("T1")["files"]),
        (&json!("landed"), &json!(["found.txt", "more/*"]))
    );
    assert_eq!(
        (world.read_file("found.txt"), world.read_file("more/a.txt")),
        ("found\n".into(), "more\n".into())
    );
    let looked = shown("T4");
    assert_eq!(
        (&looked["effort"], &looked["purpose"], &looked["word"]),
        (
            &json!("low"),
            &json!({ "explore": { "task": "T1" } }),
            &json!("done")
        )
    );
    assert_eq!(
        shown("T5")["word"],
        "failed",
        "a search fails after three useless answers"
    );
    assert_eq!(
        (&shown("T2")["word"], &shown("T2")["blocked_by"]),
        (&json!("waiting"), &json!([]))
    );
    assert!(world.run_ok(&["why", "T2"]).contains("it has no manifest"));
    // No task started before all searches had ended.
    let events = world.events();
    let position = |kind: &str, id: &str| {
        events
            .iter()
            .position(|event| event["kind"] == kind && event["subject"] == id)
            .unwrap()
    };
    assert!(position("task.failed", "T5") < position("task.started", "T1"));
    // Tasks that already wait on the board get the same warning.
    world.run_json(&["add", "Write what is nowhere again"]);
    let output = world.run(&["run", "--yes", "--plan-only", "--agents", "finder"]);
    assert!(output.stderr.contains("T6 names no files"), "{output:?}");
}

/// A trunk that is behind its upstream gives a warning in the attempt's gates and stops nothing.
#[test]
fn a_stale_base_gives_a_warning_and_stops_nothing() {
    let world = World::with_project();
    let (remote, other) = (world.root.join("remote.git"), world.root.join("other"));
    let (remote_name, other_name) = (remote.to_str().unwrap(), other.to_str().unwrap());
    world.git(&["clone", "-q", "--bare", ".", remote_name]);
    world.git(&["remote", "add", "origin", remote_name]);
    world.git(&["clone", "-q", remote_name, other_name]);
    std::fs::write(other.join("theirs.txt"), "x\n").unwrap();
    world.git_in(&other, &["add", "-A"]);
    world.git_in(
        &other,
        &[
            "-c",
            "user.name=eve",
            "-c",
            "user.email=eve@example.org",
            "commit",
            "-q",
            "-m",
            "Theirs",
        ],
    );
    world.git_in(&other, &["push", "-q", "origin", "main"]);
    world.git(&["fetch", "-q", "origin"]);
    world.git(&["branch", "-q", "--set-upstream-to=origin/main", "main"]);
    let (mission, code) = run_plan(
        &world,
        &[scripted_task("a", &["a.go"], &[])],
        &["--agents", "scripted"],
    );
    assert_eq!(code, 0, "{mission}");
    let shown = world.run_json(&["show", "T1"]);
    let gates = shown["attempts"][0]["gates"].as_array().unwrap();
    let base = gates
        .iter()
        .find(|gate| gate["gate"] == "base_sync")
        .unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(base["says"], "warn", "{base}");
    assert!(
        base["reason"].as_str().unwrap().contains("origin/main"),
        "{base}"
    );
}

/// The prompt and the briefing list those files of the task that the previous wave changed.
#[test]
fn the_prompt_lists_the_files_that_the_previous_wave_changed() {
    let world = World::with_project();
    let script = world.root.join("told.sh");
    let body = r#"printf '%s' "$1" > "$REGATTA_RESULT.prompt"; cp .regatta/briefing.md "$REGATTA_RESULT.brief"
echo "$REGATTA_TASK" >> shared.txt"#;
    std::fs::write(&script, body).unwrap();
    world.run_json(&[
        "agent",
        "add",
        "ann",
        "--runtime",
        "command",
        "--command",
        &format!("sh {} {{prompt}}", script.display()),
    ]);
    let plan = [
        json!({ "id": "a", "subject": "First", "files": ["shared.txt"] }),
        json!({ "id": "b", "subject": "Second", "files": ["shared.txt"], "blocked_by": ["a"] }),
    ];
    let (mission, code) = run_plan(&world, &plan, &["--agents", "ann", "--mode", "waves"]);
    assert_eq!(code, 0, "{mission}");
    let outbox_file = |attempt: &str, ending: &str| {
        let outbox = world.data_dir.join("attempts").join(attempt).join("outbox");
        let files: Vec<_> = std::fs::read_dir(&outbox)
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        let file = files
            .iter()
            .find(|path| path.extension().is_some_and(|name| name == ending))
            .unwrap();
        std::fs::read_to_string(file).unwrap()
    };
    assert!(!outbox_file("A1", "prompt").contains("CHANGED BEFORE YOU"));
    let (prompt, brief) = (outbox_file("A2", "prompt"), outbox_file("A2", "brief"));
    assert!(
        prompt.contains("## CHANGED BEFORE YOU") && prompt.contains("\n- shared.txt\n"),
        "{prompt}"
    );
    assert!(
        brief.contains("- warning: the previous wave changed shared.txt"),
        "{brief}"
    );
}

/// A landing copies files and runs the setup commands as a workspace does, so the checks may need
/// files that are not in git.
#[test]
fn a_landing_is_set_up_like_a_workspace() {
    let world = World::with_repo();
    world.write_file(".gitignore", "*.env\n");
    world.write_file(
        "regatta.toml",
        "[project]\nname = \"shop\"\n[validation]\ncommands = [\"grep -q SECRET made.env\"]\n\
        [workspace]\ncopy = [\"local.env\"]\nsetup = [\"cp local.env made.env\"]\n",
    );
    world.write_file("local.env", "SECRET=1\n");
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Use regatta");
    let (mission, code) = run_plan(
        &world,
        &[scripted_task("a", &["a.go"], &[])],
        &["--agents", "scripted"],
    );
    assert_eq!(code, 0, "{mission}");
    assert_eq!(
        world.git(&["show", "--name-only", "--format=", "HEAD"]),
        "a.go"
    );
}

/// A small random number generator. The same seed gives the same plan.
struct PlanRng(u64);

impl PlanRng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// The manifest and the blockers of a task.
struct TaskManifest {
    files: Vec<String>,
    blocked_by: Vec<usize>,
}

/// Returns sixty tasks. Each has a file of its own, some also share a file or cover a whole
/// directory, and each has up to three earlier tasks as blockers.
fn random_plan(seed: u64) -> (Vec<Value>, Vec<TaskManifest>) {
    let mut dice = PlanRng(seed);
    let (mut tasks, mut known) = (Vec::new(), Vec::new());
    for at in 0..60_usize {
        let mut files = vec![format!("own/{at}.txt")];
        let mut script = vec![json!({ "write": { "path": files[0], "text": "x\n" } })];
        match dice.below(4) {
            0 => {
                let path = format!("shared/{}.txt", dice.below(6));
                script.push(json!({ "append": { "path": path, "text": format!("{at}\n") } }));
                files.push(path);
            }
            1 => {
                let dir = dice.below(3);
                script.push(
                    json!({ "write": { "path": format!("all/{dir}/{at}.txt"), "text": "x\n" } }),
                );
                files.push(format!("all/{dir}/*"));
            }
            2 => files.push(format!("all/{}/never.txt", dice.below(3))),
            _ => {}
        }
        let links = if at == 0 { 0 } else { dice.below(4) };
        let after: BTreeSet<usize> = (0..links).map(|_| dice.below(at as u64) as usize).collect();
        let names: Vec<String> = after.iter().map(|after| format!("t{after}")).collect();
        tasks.push(json!({ "id": format!("t{at}"), "subject": format!("Do {at}"), "files": files, "blocked_by": names,
            "priority": dice.below(4), "script": script }));
        known.push(TaskManifest {
            files,
            blocked_by: after.into_iter().collect(),
        });
    }
    (tasks, known)
}

/// Returns whether two manifests have a file in common. It understands only the patterns that
/// [`random_plan`] writes.
fn manifests_overlap(a: &TaskManifest, b: &TaskManifest) -> bool {
    let covers = |pattern: &str, file: &str| {
        pattern == file
            || pattern
                .strip_suffix('*')
                .is_some_and(|pattern| file.starts_with(pattern))
    };
    a.files
        .iter()
        .any(|x| b.files.iter().any(|y| covers(x, y) || covers(y, x)))
}

/// J5, L1: sixty tasks with eight workers, in both modes. The event log shows that every blocker
/// was completed first, that no two running tasks shared a file, that no wave began early and that
/// at most eight attempts ran.
#[test]
fn j5_sixty_random_tasks_never_start_early_or_share_files() {
    for (mode, seed) in [("flow", 7), ("waves", 8)] {
        let world = World::with_project();
        for nth in 0..8 {
            world.run_json(&["agent", "add", &format!("w{nth}"), "--runtime", "scripted"]);
        }
        let (plan, known) = random_plan(seed);
        let (mission, code) = run_plan(&world, &plan, &["--mode", mode, "--max-workers", "8"]);
        assert_eq!(code, 0, "{mode}: {}", mission["summary"]);
        let tasks = mission["tasks"].as_array().unwrap();
        let task_number = |value: &Value| {
            value["alias"].as_str().unwrap()[1..]
                .parse::<usize>()
                .unwrap()
        };
        let places: BTreeMap<&str, usize> = tasks
            .iter()
            .map(|task| (task["id"].as_str().unwrap(), task_number(task)))
            .collect();
        let step = |value: &Value| {
            (
                value["wave"].as_u64().unwrap(),
                value["sub_wave"].as_u64().unwrap_or(0),
            )
        };
        let steps: BTreeMap<usize, (u64, u64)> = tasks
            .iter()
            .map(|task| (task_number(task), step(task)))
            .collect();
        let (mut at_work, mut done): (BTreeSet<usize>, BTreeSet<usize>) = Default::default();
        let (mut attempts, mut most) = (0_usize, 0);
        for event in world.events() {
            let at = event["subject"]
                .as_str()
                .and_then(|event| places.get(event))
                .copied();
            match (event["kind"].as_str().unwrap(), at) {
                ("task.started", Some(at)) => {
                    assert!(
                        known[at]
                            .blocked_by
                            .iter()
                            .all(|blocked_by| done.contains(blocked_by)),
                        "{mode}: t{at} is early"
                    );
                    let other = at_work
                        .iter()
                        .find(|at_work| manifests_overlap(&known[at], &known[**at_work]));
                    assert_eq!(
                        other, None,
                        "{mode}: t{at} shares a file with a running task"
                    );
                    if mode == "waves" {
                        let early = steps
                            .iter()
                            .find(|step| *step.1 < steps[&at] && !done.contains(step.0));
                        assert_eq!(
                            early, None,
                            "t{at} started before the steps before {:?} were done",
                            steps[&at]
                        );
                    }
                    at_work.insert(at);
                }
                // On a slow machine an agent may return its task. It then no longer works on the
                // task.
                ("task.returned", Some(at)) => {
                    println!("{mode}: t{at} came back: {}", event["data"]["reason"]);
                    assert!(
                        at_work.remove(&at),
                        "{mode}: t{at} was returned but did not run"
                    );
                }
                // A task keeps its files until it has landed.
                ("task.completed", Some(at)) => {
                    assert!(
                        at_work.remove(&at) && done.insert(at),
                        "{mode}: t{at} completed twice or without a start"
                    );
                }
                ("attempt.started", _) => attempts += 1,
                ("attempt.ended", _) => attempts -= 1,
                _ => {}
            }
            most = most.max(attempts);
        }
        assert_eq!((done.len(), attempts), (60, 0), "{mode}");
        assert!((2..=8).contains(&most), "{mode}: {most} attempts at once");
        assert_eq!(
            world.trunk_commits().len(),
            2 + 60,
            "{mode}: one commit each"
        );
    }
}
