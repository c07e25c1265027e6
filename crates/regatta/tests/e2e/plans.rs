//! Plan files: checks without a daemon, refused plans that change nothing, wave files, and issues
//! of beads.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::world::{CommandOutput, World, path_text, run_command};

const INVALID_PLAN: &str = "[[task]]\nid = \"a\"\nsubject = \"x\"\nblocked_by = [\"b\"]\nfiles = \
                   [\"/etc\"]\n\n\
                   [[task]]\nid = \"b\"\nsubjct = \"y\"\nblocked_by = [\"a\"]\n";

/// `plan check` needs no daemon and no repository, reports all faults at once, and creates nothing.
#[test]
fn plan_check_reports_every_fault_with_its_place_and_creates_nothing() {
    let world = World::new();
    let path = world.write_plan(INVALID_PLAN);
    let ran = world.run(&["plan", "check", &path]);
    assert_eq!((ran.exit_code, ran.stderr.as_str()), (2, ""), "{ran:?}");
    for line in [
        format!(
            "error: {path}:4:15: these tasks wait for each other forever: a → b → a; remove one"
        ),
        format!("error: {path}:5:10: "),
        format!("error: {path}:9:1: unknown field `subjct` in a task; write `subject`"),
    ] {
        assert!(ran.stdout.contains(&line), "{line} in {}", ran.stdout);
    }
    assert!(
        ran.stdout.ends_with(": 3 errors; nothing was created\n"),
        "{}",
        ran.stdout
    );
    let (found, ran) = world.run_json_any_exit(&["plan", "check", &path]);
    assert_eq!(ran.exit_code, 2);
    let places: Vec<(&Value, &Value)> = found["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| (&found["line"], &found["column"]))
        .collect();
    assert_eq!(json!(places), json!([[4, 15], [5, 10], [9, 1]]), "{found}");

    let good =
        world.write_plan("[[task]]\nsubject = \"x\"\nfiles = [\"a\"]\n[[task]]\nsubject = \"y\"\n");
    let found = world.run_json(&["plan", "check", &good]);
    assert_eq!(
        (&found["tasks"], &found["problems"]),
        (&json!(2), &json!([]))
    );
    assert_eq!(
        found["warnings"][0]["line"], 4,
        "a task without files will not start: {found}"
    );
    let from_input = world.run_with_input(&["plan", "check", "-"], INVALID_PLAN);
    assert!(
        from_input.exit_code == 2 && from_input.stdout.contains("standard input:9:1: "),
        "{from_input:?}"
    );
    assert!(
        !world.data_dir.exists(),
        "no daemon was started and nothing was stored"
    );
    assert_eq!(
        world.run_refused(&["plan", "check", "/nowhere.toml"], 2)["code"],
        "usage"
    );
}

/// A refused plan changes neither the board nor the event log.
#[test]
fn a_refused_plan_leaves_the_board_as_it_was() {
    let world = World::with_project();
    world.run_ok(&["task", "add", "stay", "--files", "s"]);
    let (board, history) = (world.run_json(&["task", "list", "--all"]), world.events());
    let path = world.write_plan(INVALID_PLAN);
    for flags in [
        vec!["--yes"],
        vec!["--wait"],
        vec!["--mode", "waves"],
        vec!["--plan-only"],
    ] {
        let error = world.run_refused(
            &[&["run", &path, "--agents", "scripted"], &flags[..]].concat(),
            2,
        );
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains(":9:1: unknown field"),
            "{error}"
        );
        assert!(
            error["hint"]
                .as_str()
                .unwrap()
                .contains("nothing was created"),
            "{error}"
        );
    }
    let bytes = world.root.join("bytes.json");
    std::fs::write(&bytes, b"[{\"subject\": \"\xff\"}]").unwrap();
    world.run_refused(&["run", path_text(&bytes), "--agents", "scripted"], 2);
    assert_eq!(
        (world.run_json(&["task", "list", "--all"]), world.events()),
        (board, history)
    );
}

/// Writes a program into a directory of the test, and returns a PATH with that directory.
fn write_program(world: &World, name: &str, script: &str) -> String {
    let dir = world.root.join("bin");
    std::fs::create_dir_all(&dir).unwrap();
    write_executable(&dir.join(name), script);
    format!("{}:{}", path_text(&dir), std::env::var("PATH").unwrap())
}

fn write_executable(path: &Path, script: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/bin/sh\n{script}")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn run_with_path(world: &World, path: &str, args: &[&str]) -> CommandOutput {
    let mut command = world.command(args);
    command.env("PATH", path);
    run_command(command, None)
}

/// Writes a wave file with two ready tasks, a blocked one and a completed one, and the specs of the
/// ready tasks. Returns its path.
fn write_wave(world: &World) -> String {
    let entry = |id: &str, title: &str, priority: u32| {
        json!({ "id": id, "title": title, "priority": priority, "spec_path": format!("specs/{id}.md"),
            "script": [{ "write": { "path": format!("src/{id}.txt"), "text": "x\n" } }] })
    };
    let wave = json!({
        "wave": [entry("ol-527.2", "Fix rate limiting", 2), entry("ol-527.1", "Add auth middleware", 1)],
        "blocked": [{ "id": "ol-527.3", "title": "Integration tests", "blocked_by": ["ol-527.1", "ol-527.2"] }],
        "completed": [{ "id": "ol-527.0", "title": "Project setup" }],
    });
    for id in ["ol-527.1", "ol-527.2"] {
        let spec = format!(
            "---\nissue_type: feature\nfiles: [src/{id}.txt]\ntests: test -e \
            src/{id}.txt\n---\nDo it.\n"
        );
        world.write_file(&format!("specs/{id}.md"), &spec);
    }
    world.commit_all("Specs");
    let path = world.root.join("wave.json");
    std::fs::write(&path, wave.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A wave file gives tasks by priority with the content of their specs, and a ratchet runs after
/// each landing. Blocked and completed entries become no tasks.
#[test]
fn a_wave_file_runs_its_ready_tasks_with_a_ratchet_after_each() {
    let world = World::with_project();
    let said = world.root.join("said");
    let path = write_program(
        &world,
        "ol",
        &format!("echo \"$@\" >> {}\n", path_text(&said)),
    );
    write_executable(
        &world.repo.join("scripts/bd-cluster.sh"),
        "echo '{\"clusters\": [[\"ol-527.1\", \"ol-527.2\"]]}'\n",
    );
    let file = write_wave(&world);
    let output = run_with_path(
        &world,
        &path,
        &[
            "run",
            "--from-wave",
            &file,
            "--agents",
            "scripted",
            "--wait",
        ],
    );
    assert_eq!(output.exit_code, 0, "{output:?}");
    assert!(
        output.stdout.contains("2 of 2 landed") && output.stdout.ends_with("2/2 beads ratcheted\n"),
        "{output:?}"
    );
    assert!(
        output
            .stderr
            .contains("later  [ol-527.3] Integration tests needs ol-527.1 ol-527.2"),
        "{output:?}"
    );
    assert!(
        output
            .stderr
            .contains("advises (not applied): {\"clusters\""),
        "{output:?}"
    );
    assert!(
        output.stderr.contains("src/ol-527.1.txt  ol-527.1  -"),
        "the ownership table is printed: {output:?}"
    );
    let tasks = world.run_json(&["task", "list", "--all"]);
    assert_eq!(
        tasks.as_array().unwrap().len(),
        2,
        "blocked and completed entries are no tasks: {tasks}"
    );
    let first = world.run_json(&["show", "T1"]);
    assert_eq!(first["subject"], "[ol-527.1] Add auth middleware");
    assert_eq!(
        (&first["issue_type"], &first["alias"]),
        (&json!("feature"), &json!("ol-527.1"))
    );
    assert!(
        first["description"]
            .as_str()
            .unwrap()
            .contains("Spec: specs/ol-527.1.md"),
        "{first}"
    );
    let mut said: Vec<String> = std::fs::read_to_string(&said)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    said.sort();
    assert_eq!(
        said,
        [
            "hero ratchet ol-527.1 --quest ol-527",
            "hero ratchet ol-527.2 --quest ol-527"
        ]
    );
    world.assert_green_everywhere();
}

/// A ratchet that fails fails its task with its output, and nothing of that task lands.
#[test]
fn a_failing_ratchet_keeps_its_task_from_landing() {
    let world = World::with_project();
    let path = write_program(
        &world,
        "own",
        "case $1 in ol-527.2) echo 'spec not met' >&2; exit 1;; esac\n",
    );
    let file = write_wave(&world);
    let flags = [
        "--ratchet",
        "own {id} {quest}",
        "--quest",
        "Q9",
        "--wait",
        "--json",
    ];
    let output = run_with_path(
        &world,
        &path,
        &[
            &["run", "--from-wave", &file, "--agents", "scripted"],
            &flags[..],
        ]
        .concat(),
    );
    assert_eq!(output.exit_code, 8, "{output:?}");
    let answer: Value = serde_json::from_str(&output.stdout).unwrap();
    let summary = &answer["data"]["summary"];
    assert_eq!(
        summary["ratchet"],
        json!({ "ratcheted": ["ol-527.1"], "not": ["ol-527.2"] }),
        "{summary}"
    );
    assert_eq!(
        (&summary["landed"], &summary["failed"]),
        (&json!(1), &json!(1))
    );
    let refused = world.run_json(&["show", "T2"]);
    assert!(
        refused["reason"].as_str().unwrap().contains("spec not met"),
        "{refused}"
    );
    assert!(
        !world.repo.join("src/ol-527.2.txt").exists(),
        "work of the failed task landed"
    );
}

/// Without the program `ol` a wave starts nothing: exit code 1, no daemon, no task.
#[test]
fn a_wave_without_its_program_starts_nothing() {
    let world = World::with_repo();
    let file = write_wave(&world);
    let empty = world.root.join("empty");
    std::fs::create_dir(&empty).unwrap();
    let output = run_with_path(
        &world,
        path_text(&empty),
        &[
            "run",
            "--from-wave",
            &file,
            "--agents",
            "scripted",
            "--wait",
            "--json",
        ],
    );
    assert_eq!(
        (output.exit_code, output.stdout.as_str()),
        (1, ""),
        "{output:?}"
    );
    let error: Value = serde_json::from_str(&output.stderr).unwrap();
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("needs the program ol"),
        "{error}"
    );
    assert!(!world.data_dir.exists(), "no daemon was started");
    // An invalid wave file is refused as an invalid plan is.
    let path = write_program(&world, "ol", "exit 0\n");
    std::fs::write(&file, "{\"wave\": [{\"id\": \"a\"}]}").unwrap();
    let output = run_with_path(
        &world,
        &path,
        &["run", "--from-wave", &file, "--agents", "scripted"],
    );
    assert!(
        output.exit_code == 2
            && output
                .stderr
                .contains("wave.json:1:11: missing field `title`"),
        "{output:?}"
    );
    assert!(!world.data_dir.exists());
}

/// Issues of beads: ids and dependencies are kept and statuses mapped. Another import changes only
/// changed issues. An export writes results back into the file and keeps all its other fields.
#[test]
fn beads_issues_can_be_imported_exported_and_imported_again() {
    let world = World::with_project();
    let file = world.root.join("issues.jsonl");
    let write = |path: &str| format!(r#""script":[{{"write":{{"path":"{path}","text":"x\n"}}}}]"#);
    let lines = [
        format!(r#"{{"zeta": 1.50,"id":"bd-1","title":"One","description":"First.","status":"open","priority":1,"issue_type":"feature","labels":["x","y"],"metadata":{{"files":["one.txt"],{}}}}}"#, write("one.txt")),
        format!(r#"{{"id":"bd-2","title":"Two","status":"open","issue_type":"task","dependencies":[{{"issue_id":"bd-2","depends_on_id":"bd-1","type":"blocks","created_by":"ann"}},{{"depends_on_id":"bd-9","type":"related"}}],"metadata":{{"files":["two.txt"],{}}}}}"#, write("two.txt")),
        r#"{"id":"bd-3","title":"Three","status":"in_progress","assignee":"ben","priority":0}"#.to_owned(),
        r#"{"id":"bd-4","title":"Four","status":"closed","closed_at":"2026-01-01T00:00:00Z"}"#.to_owned(),
        r#"{"id":"bd-5","title":"Five","status":"open","dependencies":[{"depends_on_id":"bd-4","type":"blocks"}],"metadata":{"files":["five.txt"]}}"#.to_owned(),
    ];
    let store = |lines: &[String]| std::fs::write(&file, lines.join("\n") + "\n").unwrap();
    store(&lines);
    let import = || world.run_json(&["task", "import", "--beads", path_text(&file)]);
    let first = import();
    assert_eq!(
        (&first["added"], &first["closed"]),
        (&json!(["T1", "T2", "T3", "T4"]), &json!(1)),
        "{first}"
    );
    let alias = |name: &str| {
        let tasks = world.run_json(&["task", "list", "--all"]);
        tasks
            .as_array()
            .unwrap()
            .iter()
            .find(|task| task["alias"] == name)
            .cloned()
            .unwrap()
    };
    assert_eq!(alias("bd-2")["blocked_by"], json!([alias("bd-1")["id"]]));
    assert_eq!(
        (&alias("bd-1")["issue_type"], &alias("bd-1")["priority"]),
        (&json!("feature"), &json!(1))
    );
    assert_eq!(alias("bd-3")["paused"], "in beads: ben is working on it");
    assert_eq!(
        alias("bd-5")["blocked_by"],
        json!([]),
        "a closed issue blocks nothing"
    );
    // An import without changes does nothing.
    let history = world.events().len();
    let again = import();
    assert_eq!(
        (&again["added"], &again["changed"]),
        (&json!([]), &json!([])),
        "{again}"
    );
    assert_eq!(again["there"].as_array().unwrap().len(), 4);
    assert_eq!(world.events().len(), history);
    // One issue changed, one is new, one was closed, and one was unassigned.
    let mut changed = lines.to_vec();
    changed[0] = changed[0].replace("First.", "First of all.");
    changed[2] = changed[2].replace("in_progress", "open");
    changed[4] = changed[4].replace("open", "closed");
    changed.push(r#"{"id":"bd-6","title":"Six","status":"deferred"}"#.to_owned());
    store(&changed);
    let third = import();
    assert_eq!(third["added"], json!(["T5"]), "{third}");
    assert_eq!(third["changed"].as_array().unwrap().len(), 2, "{third}");
    assert_eq!(third["cancelled"], json!([alias("bd-5")["id"]]), "{third}");
    assert_eq!(alias("bd-1")["description"], "First of all.");
    assert_eq!(
        (&alias("bd-3")["paused"], &alias("bd-6")["status"]),
        (&Value::Null, &json!("backlog"))
    );
    // An invalid line is refused with its number, and nothing is created.
    let history = world.events().len();
    let mut bad = changed.clone();
    bad.insert(
        1,
        r#"{"id":"bd-7","title":"Seven","dependencies":["bd-77"]}"#.to_owned(),
    );
    bad.push("nonsense".into());
    store(&bad);
    let error = world.run_refused(&["task", "import", "--beads", path_text(&file)], 2);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("issues.jsonl:8:2: this is not JSON"),
        "{error}"
    );
    bad.pop();
    store(&bad);
    let error = world.run_refused(&["task", "import", "--beads", path_text(&file)], 2);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains(":2:46: \"bd-7\" depends on \"bd-77\""),
        "{error}"
    );
    assert_eq!(world.events().len(), history);
    // After the work the export updates the file and keeps its fields, its order and its other
    // lines.
    store(&changed);
    world.run(&[
        "run",
        "--agents",
        "scripted",
        "--yes",
        "--wait",
        "--timeout",
        "60s",
    ]);
    assert_eq!(alias("bd-2")["status"], "completed");
    let answer = world.run_json(&["task", "export", "--beads", path_text(&file)]);
    assert_eq!(
        (&answer["changed"], &answer["added"]),
        (&json!(2), &json!(0)),
        "{answer}"
    );
    let back = std::fs::read_to_string(&file).unwrap();
    let back: Vec<&str> = back.lines().collect();
    assert!(
        back[0]
            .starts_with(r#"{"zeta":1.50,"id":"bd-1","title":"One","description":"First of all.","status":"closed""#),
        "{}",
        back[0]
    );
    assert!(
        back[0].contains(r#""labels":["x","y"]"#) && back[0].contains("landed as"),
        "{}",
        back[0]
    );
    assert!(
        back[1].contains(r#""created_by":"ann""#) && back[1].contains("bd-9"),
        "{}",
        back[1]
    );
    assert_eq!(back[2..], changed[2..], "unchanged lines keep their bytes");
    let answer = world.run_json(&["task", "export", "--beads", path_text(&file)]);
    assert_eq!(
        (&answer["changed"], &answer["added"]),
        (&json!(0), &json!(0)),
        "a second export changes nothing: {answer}"
    );
    let last = import();
    assert_eq!(
        (&last["added"], &last["changed"], &last["cancelled"]),
        (&json!([]), &json!([]), &json!([])),
        "{last}"
    );
    // Without a file the issues are printed, and the output can be imported again.
    let printed = world.run_ok(&["task", "export", "--beads"]);
    assert_eq!(printed.lines().count(), 2, "two open issues: {printed}");
    std::fs::write(&file, printed).unwrap();
    assert_eq!(import()["changed"], json!([]));
}
