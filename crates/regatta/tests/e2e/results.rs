//! Results of workers: result files, changes outside the manifest, failed checks, ratchets and
//! standing rules.

use serde_json::{Value, json};

use crate::world::{TEST_TIMEOUT, World, wait_until};

fn run_plan(world: &World, tasks: &Value) -> (Value, i32) {
    let path = world.root.join("plan.json");
    std::fs::write(&path, json!({ "task": tasks }).to_string()).unwrap();
    let (data, ran) = world.run_json_any_exit(&[
        "run",
        path.to_str().unwrap(),
        "--agents",
        "scripted",
        "--wait",
    ]);
    (data, ran.exit_code)
}

fn write_step(path: &str, text: &str) -> Value {
    json!({ "write": { "path": path, "text": text } })
}

/// Returns a step that writes a result.
fn result_step(value: &Value) -> Value {
    json!({ "run": format!("cat > \"$REGATTA_RESULT\" <<'EOF'\n{value}\nEOF") })
}

fn show_task(world: &World, id: &str) -> Value {
    world.run_json(&["show", id])
}

/// A result is read with both spellings of a field. Its copy goes into the checkout only where git
/// ignores it, and otherwise under the data directory.
#[test]
fn a_result_is_read_in_both_spellings_and_the_checkout_stays_clean() {
    let world = World::with_project();
    let task = |id: &str, name: &str| {
        let completion = json!({ "type": "completion", "issue_id": id, "status": "done", "detail": format!("made {id}"),
            "artifacts": [format!("{id}.txt")], name: "/somewhere", "learnings": ["tokens expire at noon"] });
        json!({ "id": id, "subject": format!("Write {id}"), "files": [format!("{id}.txt")],
            "script": [write_step(&format!("{id}.txt"), "x\n"), result_step(&completion)] })
    };
    let (mission, code) = run_plan(
        &world,
        &json!([task("a1", "worktreePath"), task("a2", "worktree_path")]),
    );
    assert_eq!(code, 0, "{mission}");
    for (id, alias) in [("T1", "a1"), ("T2", "a2")] {
        let shown = show_task(&world, id);
        assert_eq!(shown["output"], format!("made {alias}"));
        let result = &shown["attempts"][0]["result"];
        assert_eq!(
            (&result["worktree_path"], &result["status"]),
            (&json!("/somewhere"), &json!("done"))
        );
        let path = result["kept_at"].as_str().unwrap();
        assert!(
            !path.starts_with(world.repo.to_str().unwrap()),
            "git does not ignore results in the checkout: {path}"
        );
        let read: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(read["detail"], format!("made {alias}"));
        let warnings = shown["warnings"].as_array().unwrap();
        assert!(
            warnings
                .iter()
                .any(|warning| warning.as_str().unwrap().contains("/somewhere")),
            "{warnings:?}"
        );
    }
    assert_eq!(world.git(&["status", "--porcelain"]), "");

    world.write_file(".gitignore", ".agents/\n");
    world.commit_all("ignore what agents leave");
    let (mission, code) = run_plan(&world, &json!([task("a3", "worktree_path")]));
    assert_eq!(code, 0, "{mission}");
    let content: Value =
        serde_json::from_str(&world.read_file(".agents/swarm/results/T3.json")).unwrap();
    assert_eq!(content["detail"], "made a3");
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    // Learnings are passed to the next attempt in a file that is not part of its work.
    let look = json!({ "id": "b", "subject": "When do tokens expire", "files": ["b.txt"],
        "script": [{ "run": "cp .regatta/briefing.md b.txt && git status --porcelain >> b.txt" }] });
    let (mission, code) = run_plan(&world, &json!([look]));
    assert_eq!(code, 0, "{mission}");
    let briefing = world.read_file("b.txt");
    for section in [
        "## GOALS",
        "## HISTORY",
        "## INTEL",
        "## TASK",
        "## PROTOCOL",
        "tokens expire at noon",
    ] {
        assert!(briefing.contains(section), "{section}: {briefing}");
    }
    assert!(!briefing.contains("?? .regatta"), "{briefing}");
}

/// Each run of a plan has its own task ids, so an earlier run's results stay and `show_task` names
/// the right ones.
#[test]
fn a_second_run_of_a_plan_keeps_the_results_of_the_first() {
    let world = World::with_project();
    for (run, id) in [("first", "T1"), ("second", "T2")] {
        let completion =
            json!({ "type": "completion", "issue_id": id, "status": "done", "detail": run });
        let task = json!({ "id": "a", "subject": "Write a", "files": ["a2.txt"],
            "script": [write_step("a2.txt", run), result_step(&completion)] });
        let (mission, code) = run_plan(&world, &json!([task]));
        assert_eq!(code, 0, "{mission}");
    }
    for (run, id) in [("first", "T1"), ("second", "T2")] {
        let kept = show_task(&world, id)["attempts"][0]["result"]["kept_at"]
            .as_str()
            .unwrap()
            .to_owned();
        let read: Value = serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap();
        assert_eq!(read["detail"], run, "{kept}");
        assert!(world.run_ok(&["show", id]).contains(&kept), "{kept}");
    }
}

/// Five or more tasks share one schema file of results. Fewer tasks have the schema in their
/// prompts.
#[test]
fn a_result_schema_of_five_tasks_is_named_by_path() {
    for (many, by_path) in [(5, true), (4, false)] {
        let world = World::with_project();
        let task = |nth: usize| {
            let look = format!(
                "cat \"$REGATTA_PROMPT_FILE\" > p{nth}; cp .regatta/result.schema.json s{nth}"
            );
            json!({ "subject": format!("Look {nth}"), "files": [format!("p{nth}"), format!("s{nth}")],
                "script": [{ "run": look }] })
        };
        let plan: Vec<Value> = (0..many).map(task).collect();
        let (mission, code) = run_plan(&world, &json!(plan));
        assert_eq!(code, 0, "{mission}");
        let prompt = world.read_file("p0");
        assert_eq!(
            prompt.contains(".regatta/result.schema.json"),
            by_path,
            "{prompt}"
        );
        assert_eq!(prompt.contains("\"artifacts\": []"), !by_path, "{prompt}");
        assert!(world.read_file("s0").contains("\"scope_escapes\""));
    }
}

/// A result "blocked" needs a person. A result "failed" is retried, whatever changed.
#[test]
fn a_result_of_blocked_or_failed_is_not_a_success() {
    let world = World::with_project();
    let task = |id: &str, status: &str| {
        json!({ "id": id, "subject": format!("Write {id}"), "files": [format!("{id}.txt")],
            "script": [write_step(&format!("{id}.txt"), "x\n"), result_step(&json!({ "status": status, "detail": "no key" }))] })
    };
    let (mission, _) = run_plan(&world, &json!([task("a", "blocked"), task("b", "failed")]));
    let tasks = mission["tasks"].as_array().unwrap();
    assert_eq!(tasks[0]["word"], "needs you", "{mission}");
    assert!(
        tasks[0]["reason"]
            .as_str()
            .unwrap()
            .contains("blocked: no key")
    );
    // The first attempt at the second task fails although it changed its file, and the next attempt
    // continues from its work.
    let attempts = show_task(&world, "T2")["attempts"].clone();
    let (first, second) = (&attempts[0], &attempts[1]);
    assert_eq!(first["ended"]["cause"], "invalid", "{attempts}");
    assert!(
        first["ended"]["detail"]
            .as_str()
            .unwrap()
            .contains("failed: no key")
    );
    assert_eq!(second["resumes"]["workspace"], first["id"]);
    assert_eq!(tasks[1]["failures"], 1);
}

/// A change outside the manifest is found in the diff although the result does not list it. It is
/// left out, recorded, and can become a follow-up task.
#[test]
fn a_scope_escape_that_the_result_hides_is_found() {
    let world = World::with_project();
    world.write_file(".gitignore", ".agents/\n");
    world.commit_all("ignore what agents leave");
    let hides =
        json!({ "status": "done", "detail": "only a.txt, honestly", "artifacts": ["a.txt"] });
    let steps = [
        write_step("a.txt", "a\n"),
        write_step("secret/b.txt", "b\n"),
        result_step(&hides),
    ];
    let (mission, code) = run_plan(
        &world,
        &json!([{ "id": "a", "subject": "Write a", "files": ["a.txt"], "script": steps }]),
    );
    assert_eq!(code, 0, "{mission}");
    assert_eq!(world.read_file("a.txt"), "a\n");
    assert!(!world.repo.join("secret").exists(), "the escape landed");
    let note = "left out changes outside its files: secret/b.txt; kept in A1: regatta diff A1";
    let diff = world.run_ok(&["diff", "T1"]);
    assert!(
        diff.contains(note) && !diff.contains("+++ b/secret"),
        "{diff}"
    );
    let diff = world.run_ok(&["diff", "A1"]);
    assert!(
        diff.contains("+++ b/secret/b.txt") && diff.contains("+++ b/a.txt"),
        "{diff}"
    );
    assert_eq!(
        world.run_json(&["diff", "T1"])["left_out"],
        json!(["secret/b.txt"])
    );
    let shown = world.run_ok(&["show", "T1"]);
    assert!(
        shown.contains("left out of the landed work, but kept in A1: regatta diff A1"),
        "{shown}"
    );
    let landed = world.run_ok(&["land", "T1"]);
    assert!(landed.contains(note), "{landed}");
    let escapes = world.run_json(&["scope"]);
    assert_eq!(
        (&escapes[0]["id"], &escapes[0]["suggested_files"]),
        (&json!("T1.1"), &json!(["secret/b.txt"]))
    );
    let line: Value =
        serde_json::from_str(world.read_file(".agents/swarm/scope-escapes.jsonl").trim()).unwrap();
    assert_eq!(
        (&line["worker"], &line["suggested_files"]),
        (&json!("scripted"), &json!(["secret/b.txt"]))
    );
    assert!(line["timestamp"].as_str().unwrap().ends_with('Z') && line["finding"].is_string());
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    // Q3: the complete work is kept in the vault.
    let vault = world.data_dir.join("vaults/shop.git");
    let refs = world.git_in(
        &vault,
        &[
            "for-each-ref",
            "--format=%(objectname)",
            "refs/regatta/keep/",
        ],
    );
    let has_secret = |task: &str| {
        world
            .git_in(&vault, &["ls-tree", "-r", "--name-only", task])
            .contains("secret/b.txt")
    };
    assert!(refs.lines().any(has_secret), "{refs}");
    let taken = world.run_json(&["scope", "follow-up", "T1.1"]);
    assert_eq!(
        (&taken["id"], &taken["files"]),
        (&json!("T2"), &json!(["secret/b.txt"]))
    );
    world.run_refused(&["scope", "follow-up", "T1.1"], 5);
    assert_eq!(world.run_json(&["scope"])[0]["follow_up"], "T2");
}

/// `run` prints the files that were left out of the work, and the next attempt's prompt lists them.
#[test]
fn files_left_out_of_the_work_are_printed_and_in_the_next_prompt() {
    let world = World::with_project();
    let path = world.root.join("plan.json");
    let task = json!({ "id": "a", "subject": "Write a", "files": ["a.txt"],
        "script": [write_step("a.txt", "a\n"), write_step("secret/b.txt", "b\n")] });
    let text = json!({ "task": [task] }).to_string();
    std::fs::write(&path, text).unwrap();
    let settings = world.read_file("regatta.toml");
    world.write_file(
        "regatta.toml",
        &format!("{settings}\n[landing]\nreview = \"human\"\n"),
    );
    world.commit_all("Review by hand");
    let result = world.run(&[
        "run",
        path.to_str().unwrap(),
        "--agents",
        "scripted",
        "--wait",
    ]);
    assert_eq!(
        result.exit_code, 3,
        "the task waits for a review: {result:?}"
    );
    let output = format!("{}{}", result.stdout, result.stderr);
    assert!(
        output.contains("secret/b.txt")
            && output.contains("left out of its work but kept: regatta diff A1"),
        "{output}"
    );
    world.run_ok(&["revise", "T1", "say more"]);
    let prompt = world.data_dir.join("attempts/A2/prompt.md");
    assert!(
        wait_until(TEST_TIMEOUT, || prompt.exists()),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let prompt = std::fs::read_to_string(prompt).unwrap();
    assert!(
        prompt.contains("## LEFT OUT") && prompt.contains("- secret/b.txt"),
        "{prompt}"
    );
}

/// A result "done" without changes never completes a task, and needs a person at once if the checks
/// pass without a change. Three failed validations fail the task with their output.
#[test]
fn work_that_fails_validation_fails_its_task_with_the_output() {
    let world = World::with_project();
    let (mission, code) = run_plan(
        &world,
        &json!([
            { "id": "a", "subject": "Do nothing", "files": ["a.txt"], "script": [{ "say": "done" }] },
            { "id": "b", "subject": "Break it", "files": ["b.txt"], "script": [write_step("b.txt", "b\n")],
              "validation": { "tests": "echo the moon is missing; false" } },
            { "id": "c", "subject": "Cover it", "files": ["pkg/*"], "script": [write_step("pkg/cov_test.go", "package pkg\n")] },
        ]),
    );
    assert_eq!(code, 3, "{mission}");
    let tasks = mission["tasks"].as_array().unwrap();
    let states: Vec<&Value> = tasks.iter().map(|task| &task["word"]).collect();
    assert_eq!(states, ["needs you", "failed", "failed"], "{mission}");
    for (nth, states) in [
        "nothing had changed",
        "the moon is missing",
        "not a valid name for a test",
    ]
    .into_iter()
    .enumerate()
    {
        let reason = tasks[nth]["reason"].as_str().unwrap();
        assert!(reason.contains(states), "{reason}");
        assert_eq!(reason.contains("3 attempts failed"), nth > 0, "{reason}");
    }
    let attempts = show_task(&world, "T2")["attempts"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(attempts.len(), 3);
    let checks = world.run_json(&["logs", attempts[2]["id"].as_str().unwrap(), "--check"]);
    assert_eq!(
        (&checks[0]["passed"], &checks[0]["output"]),
        (&json!(false), &json!("the moon is missing\n"))
    );
    assert!(
        world
            .run_ok(&["logs", "T2", "--check"])
            .contains("the moon is missing")
    );
    assert_eq!(world.trunk_commits().len(), 2);
}

#[test]
fn a_ratchet_passes_or_fails_the_task() {
    let world = World::with_project();
    let task = |id: &str, script: &str| {
        json!({ "id": id, "subject": format!("Write {id}"), "files": [format!("{id}.txt")],
            "script": [write_step(&format!("{id}.txt"), "x\n")], "ratchet": ["sh", "-c", script, "ratchet", id] })
    };
    let log = world.root.join("ratcheted");
    let ok = format!("echo \"$1 $REGATTA_TASK\" >> '{}'", log.display());
    let (mission, code) = run_plan(
        &world,
        &json!([
            task("a", &ok),
            task("b", "echo quest is closed >&2; exit 1")
        ]),
    );
    assert_eq!(code, 8, "{mission}");
    assert_eq!(
        std::fs::read_to_string(&log).unwrap(),
        "a T1\n",
        "the ratchet ran twice"
    );
    let states: Vec<&Value> = mission["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mission| &mission["word"])
        .collect();
    assert_eq!(states, ["landed", "failed"]);
    assert!(
        mission["tasks"][1]["reason"]
            .as_str()
            .unwrap()
            .contains("quest is closed")
    );
    assert!(!world.repo.join("b.txt").exists());
}

/// A rule blocks a start by its files and a landing by its text. A warning is only noted.
#[test]
fn standing_rules_block_starts_and_landings_that_match() {
    let world = World::with_project();
    world.run_ok(&[
        "rule",
        "add",
        "frozen",
        "--says",
        "ask the owners",
        "--files",
        "db/**",
        "--action",
        "block",
    ]);
    world.run_ok(&[
        "rule",
        "add",
        "no-moon",
        "--says",
        "say sun",
        "--pattern",
        "moon",
        "--action",
        "block",
    ]);
    world.run_ok(&[
        "rule",
        "add",
        "stars",
        "--says",
        "few of them",
        "--pattern",
        "star",
    ]);
    world.git(&["add", "-A"]);
    world.commit_all("rules");
    assert_eq!(
        world.run_json(&["rule", "list"]).as_array().unwrap().len(),
        3
    );
    world.run_refused(&["rule", "add", "stars", "--says", "again"], 5);
    let met = world.run_json(&["rule", "test", "--files", "db/x.sql", "--line", "a moon"]);
    let met: Vec<(&str, &str)> = met
        .as_array()
        .unwrap()
        .iter()
        .map(|met| {
            (
                met["before"].as_str().unwrap(),
                met["action"].as_str().unwrap(),
            )
        })
        .collect();
    assert!(
        met.contains(&("start", "block")) && met.contains(&("landing", "block")),
        "{met:?}"
    );
    let task = |id: &str, path: &str, text: &str| json!({ "id": id, "subject": format!("Write {path}"), "files": [path], "script": [write_step(path, text)] });
    let (mission, _) = run_plan(
        &world,
        &json!([
            task("a", "db/x.sql", "x\n"),
            task("b", "b.txt", "a moon\n"),
            task("c", "c.txt", "a star\n")
        ]),
    );
    let states: Vec<&Value> = mission["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mission| &mission["word"])
        .collect();
    assert_eq!(states, ["waiting", "needs you", "landed"], "{mission}");
    assert!(world.run_ok(&["why", "T1"]).contains("ask the owners"));
    assert!(world.run_ok(&["why", "T2"]).contains("say sun"));
    let warnings = show_task(&world, "T3")["warnings"].clone();
    assert!(
        warnings[0].as_str().unwrap().contains("few of them"),
        "{warnings}"
    );
}
