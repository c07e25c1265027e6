//! No file that a run leaves contains a secret (S4).

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::world::{TEST_TIMEOUT, World, path_text, wait_until};

/// Returns the files below a directory that contain these words. The store, the workspaces and the
/// vaults are left out, because a plan is stored as a person typed it and files of the repository
/// are not changed.
fn files_containing(dir: &Path, text: &str) -> Vec<PathBuf> {
    let (mut found, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let (path, name) = (
                entry.path(),
                entry.file_name().to_string_lossy().into_owned(),
            );
            let is_left_out = name.starts_with("regatta.db")
                || ["workspaces", "vaults", "staging"].contains(&&*name);
            if path.is_dir() && !is_left_out {
                dirs.push(path);
            } else if path.is_file() && !is_left_out {
                let content = std::fs::read(&path).unwrap_or_default();
                found.extend(
                    String::from_utf8_lossy(&content)
                        .contains(text)
                        .then_some(path),
                );
            }
        }
    }
    found
}

/// S4: secrets that a program, a check or a hook printed, or that a plan contains, are in no
/// prompt, briefing, journal, log or event.
#[test]
fn s4_no_file_and_no_event_of_a_run_has_a_secret() {
    let world = World::with_repo();
    // The script is written so that its source does not contain its output.
    world.write_file(
        "test.sh",
        "#!/bin/sh\n[ ! -e a.md ] || { \
            echo \"pass\"\"word=hunter2\"\"check is wrong\"; exit 1; }\n",
    );
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Check it so");
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    let hook = world.root.join("hook.sh");
    std::fs::write(&hook, "echo \"hooked: pass\"\"word=hunter2\"\"hook\"\n").unwrap();
    world.run_ok(&[
        "hook",
        "add",
        "--channel",
        "dev",
        "--prefix",
        "!go",
        "--",
        "sh",
        path_text(&hook),
    ]);
    world.run_ok(&["msg", "send", "dev", "!go password=hunter2message"]);
    let script = json!([
        { "run": "echo \"pass\"\"word=hunter2\"\"printed\"" },
        { "write": { "path": "a.md", "text": "x\n" } },
        { "permission": { "what": "go on", "default": "deny" } },
    ]);
    world.run_ok(&[
        "add",
        "Rotate password=hunter2plan",
        "--description",
        "It was password=hunter2plan.",
        "--files",
        "a.md",
        "--script",
        &script.to_string(),
    ]);
    world.run_ok(&["run", "--agents", "bob", "--yes"]);
    let asked = || {
        let items = world.run_json(&["inbox"]);
        let item = items
            .as_array()?
            .iter()
            .find(|item| item["subject"] == "go on")?;
        Some(item["id"].as_str()?.to_owned())
    };
    assert!(
        wait_until(TEST_TIMEOUT, || asked().is_some()),
        "{}",
        world.run_ok(&["status"])
    );
    let workspace = PathBuf::from(
        world.run_json(&["show", "T1"])["workspace"]
            .as_str()
            .unwrap(),
    );
    let briefing = std::fs::read_to_string(workspace.join(".regatta/briefing.md")).unwrap();
    assert!(
        briefing.contains("password=[redacted]") && !briefing.contains("hunter2"),
        "{briefing}"
    );
    let prompt = std::fs::read_to_string(world.data_dir.join("attempts/A1/prompt.md")).unwrap();
    assert!(prompt.contains("It was password=[redacted]"), "{prompt}");
    world.run_ok(&["allow", &asked().unwrap()]);
    let reason = || {
        world.run_json(&["show", "T1"])["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(
        wait_until(TEST_TIMEOUT, || reason()
            .contains("password=[redacted] is wrong")),
        "{}",
        reason()
    );
    let fired = || {
        world
            .run_ok(&["hook", "log", "--json"])
            .contains("hooked: password=[redacted]")
    };
    assert!(
        wait_until(TEST_TIMEOUT, fired),
        "{}",
        world.run_ok(&["hook", "log", "--json"])
    );
    world.run_ok(&["down"]);
    for secret in ["plan", "message", "printed", "check", "hook"].map(|end| format!("hunter2{end}"))
    {
        assert_eq!(
            files_containing(&world.data_dir, &secret),
            [] as [PathBuf; 0],
            "{secret}"
        );
    }
    assert_ne!(
        files_containing(&world.data_dir, "password=[redacted]"),
        [] as [PathBuf; 0]
    );
    world.run_ok(&["up"]);
    let events = world.run_ok(&["events", "--json"]);
    for secret in [
        "hunter2check",
        "hunter2hook",
        "hunter2message",
        "hunter2printed",
    ] {
        assert!(!events.contains(secret), "{secret}");
    }
}

/// S4: a secret in a worker's result reaches neither the board nor the copy of the result.
#[test]
fn s4_a_result_brings_no_secret_to_the_board() {
    let world = World::with_project();
    let task = |id: &str, status: &str| {
        // The parts of each secret are joined only in the output.
        let secret = |end: &str| format!("pass' 'word=hunter2' '{end}");
        let result = format!(
            "printf %s '{{\"status\":\"{status}\",\"detail\":\"{}\",\"learnings\":[\"{}\"],\"scope_escapes\":\
             [{{\"finding\":\"{}\",\"suggested_files\":[\"z\"]}}]}}' > \"$REGATTA_RESULT\"",
            secret("detail"),
            secret("learned"),
            secret("found")
        );
        json!({ "id": id, "subject": format!("Write {id}"), "files": [id],
            "script": [{ "write": { "path": id, "text": "x\n" } }, { "run": result }] })
    };
    let path = world.root.join("plan.json");
    std::fs::write(
        &path,
        json!([task("a", "done"), task("b", "blocked")]).to_string(),
    )
    .unwrap();
    world.run(&[
        "run",
        path_text(&path),
        "--agents",
        "scripted",
        "--yes",
        "--wait",
    ]);
    assert_eq!(
        world.run_json(&["show", "T2"])["status"],
        "needs_human",
        "{}",
        world.run_ok(&["status"])
    );
    let shown = world.run_ok(&["show", "T1", "--json"])
        + &world.run_ok(&["show", "T2", "--json"])
        + &world.run_ok(&["scope"]);
    assert!(
        shown.contains("it says it is blocked: password=[redacted]"),
        "{shown}"
    );
    let events = world.run_ok(&["events", "--json"]);
    let kept = world.run_json(&["show", "T1"])["attempts"][0]["result"]["kept_at"]
        .as_str()
        .unwrap()
        .to_owned();
    let kept = std::fs::read_to_string(kept).unwrap();
    for (name, written) in [
        ("events", &events),
        ("show and scope", &shown),
        ("the copy of the result", &kept),
    ] {
        assert!(written.contains("password=[redacted]"), "{name}: {written}");
        for secret in ["hunter2detail", "hunter2learned", "hunter2found"] {
            assert!(!written.contains(secret), "{secret} is in {name}");
        }
    }
}
