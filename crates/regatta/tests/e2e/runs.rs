//! Runs of plans on the user's own repository, with the scripted agent and with arbitrary commands
//! as agents.

use std::process::Stdio;

use serde_json::Value;

use crate::world::{TEST_TIMEOUT, World, path_text, run_command, wait_for_child, wait_until};

/// Returns a scripted task that writes one file.
fn scripted_task(id: &str, path: &str, content: &str, more: &str) -> String {
    format!(
        "[[task]]\nid = \"{id}\"\nsubject = \"Write {path}\"\nfiles = [\"{path}\"]\n\
         script = [{{ write = {{ path = \"{path}\", text = \"{content}\\n\" }} }}]\n{more}\n"
    )
}

/// Runs a plan with the scripted agent and waits. Returns the mission and the exit code.
fn run_plan(world: &World, plan: &str, flags: &[&str]) -> (Value, i32) {
    let path = world.write_plan(plan);
    let (data, ran) = world
        .run_json_any_exit(&[&["run", &path, "--agents", "scripted", "--wait"], flags].concat());
    (data, ran.exit_code)
}

fn task_by_alias<'a>(mission: &'a Value, alias: &str) -> &'a Value {
    mission["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|mission| mission["alias"] == alias)
        .unwrap()
}

/// `init` writes one file with the detected settings. A second `init` changes nothing.
#[test]
fn init_detects_settings_and_a_second_init_changes_nothing() {
    let world = World::with_repo();
    let first = world.run_json(&["init", "--yes"]);
    assert_eq!(first["project"]["name"], "shop");
    assert_eq!(first["project"]["trunk"], "main");
    assert_eq!(
        first["project"]["validation"],
        serde_json::json!(["sh ./test.sh"]),
        "the detected check"
    );
    let file = world.read_file("regatta.toml");
    assert_eq!(first["wrote"], path_text(&world.repo.join("regatta.toml")));
    assert_eq!(file.lines().count(), 15, "{file}");
    let settings: toml::Table = file.parse().unwrap();
    assert_eq!(settings["project"]["name"].as_str(), Some("shop"));
    assert_eq!(settings["project"]["trunk"].as_str(), Some("main"));
    assert_eq!(
        settings["validation"]["commands"].as_array().unwrap().len(),
        1
    );
    assert_eq!(
        world.git(&["status", "--porcelain"]),
        "?? regatta.toml",
        "init changed other files"
    );

    let revision = world.events().len();
    let second = world.run_json(&["init", "--yes"]);
    assert_eq!(second["project"], first["project"]);
    assert_eq!(second["wrote"], Value::Null);
    assert_eq!(world.read_file("regatta.toml"), file);
    assert_eq!(
        world
            .run_json(&["project", "list"])
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let kinds: Vec<Value> = world.events()[revision..]
        .iter()
        .map(|event| event["kind"].clone())
        .collect();
    assert!(
        !kinds
            .iter()
            .any(|kind| kind.as_str().unwrap().starts_with("project.")),
        "nothing changed: {kinds:?}"
    );

    // Settings of the file apply, and a flag overrides them.
    world.write_file(
        "regatta.toml",
        "[project]\nname = \"shop\"\n[validation]\ncommands = [\"true\"]\n",
    );
    assert_eq!(
        world.run_json(&["init", "--yes"])["project"]["validation"],
        serde_json::json!(["true"])
    );
    let flagged = world.run_json(&[
        "init",
        "--yes",
        "--validate",
        "sh ./test.sh",
        "--validate",
        "true",
    ]);
    assert_eq!(
        flagged["project"]["validation"],
        serde_json::json!(["sh ./test.sh", "true"])
    );
    let printed = world.run_ok(&["init", "--print"]);
    assert!(printed.parse::<toml::Table>().is_ok(), "{printed}");
}

/// When everything lands, the exit code is 0, each task is one commit by its agent, and the
/// checkout is clean. Every commit passes the checks.
#[test]
fn a_plan_lands_as_commits_by_its_agents() {
    let world = World::with_project();
    let plan = scripted_task("b", "b.txt", "b", "description = \"Say b.\"")
        + &scripted_task(
            "c",
            "src/c.txt",
            "c",
            "blocked_by = [\"b\"]\nvalidation = { files_exist = [\"b.txt\"] }",
        )
        + &scripted_task("d", "d.txt", "d", "priority = 1");
    let (mission, code) = run_plan(&world, &plan, &[]);
    assert_eq!(code, 0, "{mission}");
    assert_eq!(world.trunk_commits().len(), 2 + 3);
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    assert_eq!(
        (world.read_file("b.txt"), world.read_file("src/c.txt")),
        ("b\n".into(), "c\n".into())
    );
    world.assert_green_everywhere();
    let landed = task_by_alias(&mission, "b")["landed"].as_str().unwrap();
    let shown = world.git(&["show", "-s", "--format=%an <%ae>%n%B", landed]);
    let (words, rest) = shown.trim_end().split_once("\nRegatta-Landing: L").unwrap();
    let (landing, rest) = rest.split_once("\nRegatta-Validation: ").unwrap();
    let (validation, author) = rest.split_once("\nCo-authored-by: ").unwrap();
    assert!(
        landing.parse::<u64>().is_ok() && u64::from_str_radix(validation, 16).is_ok(),
        "{shown}"
    );
    assert_eq!(author, "scripted <scripted@regatta.invalid>");
    assert_eq!(
        words,
        "scripted <scripted@regatta.invalid>\nWrite b.txt\n\nSay b.\n\nRegatta-Task: \
        T1\nRegatta-Agent: scripted"
    );
    assert_eq!(
        world.git(&["show", "--name-only", "--format=", landed]),
        "b.txt"
    );
    // The user's repository has no other refs or worktrees.
    assert_eq!(
        world.git(&["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main"
    );
    assert_eq!(world.git(&["worktree", "list"]).lines().count(), 1);
    let messages = world.run_json(&["msg", "history", "shop", "-L", "coord:merge"]);
    assert_eq!(
        messages.as_array().unwrap().len(),
        3,
        "each landing is announced: {messages}"
    );
}

/// A plan can be TOML or JSON, a bare list, and come from a file or standard input.
#[test]
fn a_plan_may_be_toml_or_json_from_a_file_or_standard_input() {
    let world = World::with_project();
    let toml = scripted_task(
        "b",
        "b.txt",
        "b",
        "validation = { tests = \"test -e b.txt\" }",
    );
    let json = |id: &str| {
        serde_json::json!([{ "id": id, "subject": format!("Write {id}"), "files": [format!("{id}.txt")],
            "script": [{ "write": { "path": format!("{id}.txt"), "text": "x\n" } }] }])
    };
    let file = |name: &str, text: &str| {
        let path = world.root.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let read = |args: &[&str], input: &str| {
        let output = world.run_with_input(&[args, &["--json"]].concat(), input);
        assert_eq!(output.exit_code, 0, "{args:?}: {output:?}");
        serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone()
    };
    for (args, input) in [
        (
            vec!["run", &file("p.toml", &toml), "--plan-only"],
            String::new(),
        ),
        (vec!["run", "-", "--plan-only"], toml.clone()),
        (
            vec![
                "run",
                &file(
                    "p.json",
                    &serde_json::json!({ "task": json("b") }).to_string(),
                ),
                "--plan-only",
            ],
            String::new(),
        ),
        (vec!["run", "-", "--plan-only"], json("b").to_string()),
    ] {
        let plan = read(&args, &input);
        assert_eq!(
            plan[0]["task"]["files"],
            serde_json::json!(["b.txt"]),
            "{args:?}: {plan}"
        );
    }
    let flow = world.run_ok(&["run", &file("p.toml", &toml), "--plan-only"]);
    assert!(
        flow.contains("1 task · each starts when it is ready") && !flow.contains("wave"),
        "{flow}"
    );
    let waves = world.run_ok(&[
        "run",
        &file("p.toml", &toml),
        "--plan-only",
        "--mode",
        "waves",
    ]);
    assert!(
        waves.contains("1 task · 1 wave\n") && waves.contains("wave 1"),
        "{waves}"
    );
    let two = serde_json::json!([
        { "id": "a", "subject": "A", "files": ["b.txt"] },
        { "id": "b", "subject": "B", "files": ["b.txt"] },
    ]);
    let two = file("two.json", &two.to_string());
    for (flag, words) in [
        (
            "--worktrees",
            "b at the same time; the queue merges\n1 conflict, merged by the landing queue\n",
        ),
        (
            "--no-worktrees",
            "b after a\n1 conflict, resolved one task after the other\n",
        ),
    ] {
        let drawn = world.run_ok(&["run", &two, "--plan-only", flag]);
        assert!(drawn.contains(words), "{flag}: {drawn}");
    }
    assert_eq!(
        world.run_json(&["task", "list"]),
        serde_json::json!([]),
        "--plan-only creates nothing"
    );
    let mission = read(
        &["run", "-", "--agents", "scripted", "--wait"],
        &serde_json::json!({ "title": "From a pipe", "tasks": json("c") }).to_string(),
    );
    assert_eq!(
        (&mission["title"], &mission["tasks"][0]["word"]),
        (&"From a pipe".into(), &"landed".into())
    );
}

/// The exit code is 3 if a task needs a person and 1 if nothing landed. Tasks that did not land
/// show their evidence, and the trunk passes its checks.
#[test]
fn failed_work_gets_at_most_three_attempts_and_shows_its_evidence() {
    let world = World::with_project();
    let failing = scripted_task("red", "bad", "x", "")
        + &scripted_task("escape", "elsewhere.txt", "x", "")
            .replace("files = [\"elsewhere.txt\"]", "files = [\"mine.txt\"]")
        + "[[task]]\nid = \"idle\"\nsubject = \"Say it is done\"\nfiles = [\"idle.txt\"]\nscript \
            = [{ say = \"all done!\" }]\n"
        + "[[task]]\nid = \"quits\"\nsubject = \"Give up\"\nfiles = [\"quits.txt\"]\nscript = [{ \
            fail = \"no idea\" }]\n"
        + &scripted_task("after", "after.txt", "x", "blocked_by = [\"red\"]");
    let plan = scripted_task("good", "good.txt", "x", "") + &failing;
    let (mission, code) = run_plan(&world, &plan, &[]);
    assert_eq!(code, 3, "some tasks need a person: {mission}");
    assert_eq!(task_by_alias(&mission, "good")["word"], "landed");
    assert_eq!(
        task_by_alias(&mission, "after")["word"],
        "waiting",
        "its blocker has failed"
    );
    assert!(
        task_by_alias(&mission, "after")["waits"][0]["text"]
            .as_str()
            .unwrap()
            .contains("which has failed")
    );
    for (alias, word, attempts, evidence) in [
        ("red", "failed", 3, "bad is here"),
        (
            "escape",
            "needs you",
            3,
            "outside its manifest: elsewhere.txt",
        ),
        (
            "idle",
            "needs you",
            1,
            "nothing had changed; its checks pass without a change",
        ),
        ("quits", "needs you", 3, "no idea"),
    ] {
        let value = task_by_alias(&mission, alias);
        let reason = value["reason"].as_str().unwrap();
        assert_eq!(value["word"], word, "{value}");
        assert!(reason.contains(evidence), "{alias}: {reason}");
        assert_eq!(
            reason.contains("3 attempts failed"),
            attempts == 3,
            "{alias}: {reason}"
        );
        let shown = world.run_json(&["show", value["id"].as_str().unwrap()]);
        assert_eq!(
            shown["attempts"].as_array().unwrap().len(),
            attempts,
            "{alias}"
        );
        let text = world.run_ok(&["why", value["id"].as_str().unwrap()]);
        assert!(text.contains(evidence), "{alias}: {text}");
    }
    assert_eq!(world.trunk_commits().len(), 3);
    assert!(!world.repo.join("bad").exists() && !world.repo.join("elsewhere.txt").exists());
    world.assert_green_everywhere();
    let status = world.run_ok(&["status"]);
    assert!(
        status.contains("1 done · 1 failed · main"),
        "the failed task is counted: {status}"
    );
    let plan = world.write_plan(
        &(scripted_task("red", "bad", "x", "")
            + &scripted_task("after", "after.txt", "x", "blocked_by = [\"red\"]")),
    );
    let output = world.run(&["run", &plan, "--agents", "scripted", "--wait"]);
    assert_eq!(output.exit_code, 1, "{output:?}");
    assert!(
        output
            .stdout
            .ends_with("0 of 2 landed, 1 failed, 0 need you, 1 waiting\n"),
        "the counts: {output:?}"
    );
}

/// No task of a later wave starts before the earlier waves have landed.
#[test]
fn waves_have_a_barrier_between_them() {
    let world = World::with_project();
    let plan = scripted_task("one", "one.txt", "x", "")
        + &scripted_task("two", "two.txt", "x", "")
        + &scripted_task("three", "three.txt", "x", "blocked_by = [\"one\"]")
        + &scripted_task("four", "one.txt", "y", "");
    let (mission, code) = run_plan(&world, &plan, &["--mode", "waves", "--max-workers", "2"]);
    assert_eq!(code, 0, "{mission}");
    let wave = |id: &Value| {
        let value = mission["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|mission| mission["id"] == *id)
            .unwrap();
        match (
            value["wave"].as_u64().unwrap(),
            value["sub_wave"].as_u64().unwrap_or(0),
        ) {
            (0, 0) => 0,
            (0, 1) => 1,
            (1, 0) => 2,
            other => panic!("{other:?}"),
        }
    };
    let mut completed = [0; 3];
    let (mut running, mut most) = (0, 0);
    for event in world.events() {
        match event["kind"].as_str().unwrap() {
            "task.started" => {
                let own_wave = wave(&event["subject"]);
                let sizes = [2, 1, 1]; // "four" shares a file with "one", so it is in a second sub-wave
                for before in 0..own_wave {
                    assert_eq!(
                        completed[before], sizes[before],
                        "step {own_wave} started early"
                    );
                }
            }
            "attempt.started" => running += 1,
            "attempt.ended" => running -= 1,
            "task.completed" => completed[wave(&event["subject"])] += 1,
            _ => {}
        }
        most = most.max(running);
    }
    assert!(most <= 2, "--max-workers 2 holds: {most}");
    assert_eq!(world.read_file("one.txt"), "y\n");
}

/// A run that times out exits with 124 and leaves its agent running. `stop` ends the agent and
/// keeps the task.
#[test]
fn a_run_that_times_out_exits_with_124_and_stop_ends_its_agent() {
    let world = World::with_project();
    let plan = "[[task]]\nid = \"h\"\nsubject = \"Hang\"\nfiles = [\"h.txt\"]\nscript = [{ write \
        = { path = \"h.txt\", text = \"x\" } }, { hang = true }]\n";
    let (mission, code) = run_plan(&world, plan, &["--timeout", "2s"]);
    assert_eq!(
        (code, &mission["tasks"][0]["word"]),
        (124, &"working".into()),
        "{mission}"
    );
    // Drains first, because an active mission would restart the task at once.
    world.run_json(&["stop", "M1", "--drain"]);
    world.run_json(&["stop", "T1", "--now"]);
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])["attempts"]
            [0]["ended"]
            .is_object()),
        "the attempt did not end"
    );
    assert_eq!(world.trunk_commits().len(), 2);
    let task = world.run_json(&["task", "list"])[0].clone();
    assert_eq!(
        task["word"], "waiting",
        "J10: draining starts nothing: {task}"
    );
}

/// Any command can be an agent. It gets the prompt as an argument or on standard input.
#[test]
fn any_command_can_be_an_agent() {
    let world = World::with_project();
    let script = |name: &str, prompt: &str| {
        let path = world.root.join(name);
        // The program follows the description: "write: FILE=TEXT".
        let text = format!(
            "{prompt} | sed -n 's/^write: \\(.*\\)=\\(.*\\)$/\\1 \\2/p' | while read file text; \
             do\n\
             echo \"writing $file\"; printf '%s\\n' \"$text\" > \"$file\"; done\n\
             env | sort > \"$REGATTA_RESULT.env\"\n\
             printf '{{\"type\":\"completion\",\"status\":\"done\",\"detail\":\"wrote it\"}}' > \
             \"$REGATTA_RESULT\"\n"
        );
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let by_argument = script("argument.sh", "printf '%s\\n' \"$1\"");
    let by_input = script("input.sh", "cat");
    world.run_json(&[
        "agent",
        "add",
        "arg-1",
        "--runtime",
        "command",
        "--command",
        &format!("sh {by_argument} {{prompt}}"),
    ]);
    world.run_json(&[
        "agent",
        "add",
        "in-1",
        "--runtime",
        "command",
        "--command",
        &format!("sh '{by_input}'"),
    ]);
    let plan = world.write_plan(
        "[[task]]\nsubject = \"By argument\"\nfiles = [\"x.txt\"]\ndescription = \"write: \
         x.txt=ex\"\nagent = \"arg-1\"\n\
         [[task]]\nsubject = \"By input\"\nfiles = [\"y.txt\"]\ndescription = \"write: y.txt=why \
         $HOME `id` 'q'\"\nagent = \"in-1\"\n",
    );
    let mut restart = world.command(&["up", "--restart"]);
    restart.env("SECRET_KEY", "SECRET");
    assert_eq!(run_command(restart, None).exit_code, 0);
    let (mission, ran) = world.run_json_any_exit(&["run", &plan, "--wait"]);
    assert_eq!(ran.exit_code, 0, "{mission}");
    assert_eq!(
        (world.read_file("x.txt"), world.read_file("y.txt")),
        ("ex\n".into(), "why $HOME `id` 'q'\n".into())
    );
    assert_eq!(
        mission["tasks"][0]["output"], "wrote it",
        "the result file is read: {mission}"
    );
    let authors = world.git(&["log", "-2", "--format=%an"]);
    let mut authors: Vec<&str> = authors.lines().collect();
    authors.sort_unstable();
    assert_eq!(authors, ["arg-1", "in-1"]);
    assert!(world.run_ok(&["logs", "T1"]).contains("writing x.txt"));
    // S3: a program's environment is built from nothing, so the daemon's own variables do not leak.
    let attempts = std::fs::read_dir(world.data_dir.join("attempts"))
        .unwrap()
        .flatten();
    let seen: Vec<String> = attempts
        .flat_map(|entry| {
            std::fs::read_dir(entry.path().join("outbox"))
                .unwrap()
                .flatten()
                .map(|entry| entry.path())
                .collect::<Vec<_>>()
        })
        .filter(|path| path.extension().is_some_and(|name| name == "env"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    assert_eq!(seen.len(), 2);
    for environment in &seen {
        assert!(
            !environment.contains("SECRET") && !environment.contains("REGATTA_DATA_DIR"),
            "{environment}"
        );
        assert!(
            environment.contains("REGATTA_TASK=T") && environment.contains("\nPATH="),
            "{environment}"
        );
    }
}

/// A run without an agent exits with 4 and names the flag to add.
#[test]
fn without_an_agent_the_exit_code_is_4() {
    let world = World::with_project();
    let plan = world.write_plan(&scripted_task("b", "b.txt", "b", ""));
    let error = world.run_refused(&["run", &plan, "--wait"], 4);
    assert_eq!(error["code"], "no_provider");
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("--agents scripted"),
        "{error}"
    );
}

/// A person's changes are never overwritten. The landing waits, names the reason, and goes on when
/// the changes are out of the way.
#[test]
fn a_dirty_checkout_needs_a_person_and_loses_nothing() {
    let world = World::with_project();
    let dirty = world.read_file("a.txt").replace("one\n", "ONE, by hand\n");
    world.write_file("a.txt", &dirty);
    world.write_file("mine.txt", "untracked and mine\n");
    let plan = "[[task]]\nid = \"a\"\nsubject = \"Change a\"\nfiles = [\"a.txt\"]\n\
                script = [{ replace = { path = \"a.txt\", from = \"nine\", to = \"NINE\" } }]\n"
        .to_owned()
        + &scripted_task("m", "mine.txt", "theirs", "");
    let (mission, code) = run_plan(&world, &plan, &[]);
    assert_eq!(code, 3, "{mission}");
    assert_eq!(
        (world.read_file("a.txt"), world.read_file("mine.txt")),
        (dirty.clone(), "untracked and mine\n".to_owned())
    );
    assert_eq!(
        world.trunk_commits().len(),
        2,
        "the trunk must not move without the checkout"
    );
    let waits = task_by_alias(&mission, "a")["waits"][0]["text"]
        .as_str()
        .unwrap();
    assert!(
        waits.contains("commit, stash or move them") && waits.contains("a.txt"),
        "{waits}"
    );
    // `status` shortens the reason and names the command that prints it whole.
    let status = world.run_ok(&["status"]);
    assert!(status.contains("regatta why T1"), "{status}");
    assert!(
        world
            .run_ok(&["why", "T1"])
            .contains("commit, stash or move them")
    );

    world.git(&["commit", "-q", "-am", "By hand"]);
    let landed = world.run(&["land", "T1", "--wait", "--timeout", "60s"]);
    assert_eq!(landed.exit_code, 0, "{landed:?}");
    assert!(landed.stdout.starts_with("landed T1 as "), "{landed:?}");
    let text = world.read_file("a.txt");
    assert!(
        text.starts_with("ONE, by hand\n") && text.ends_with("NINE\n"),
        "both changes are there: {text}"
    );
    // The untracked file blocks the other task and is not changed.
    let output = world.run(&["land", "T2", "--wait", "--timeout", "60s"]);
    assert_eq!(output.exit_code, 3, "{output:?}");
    assert!(output.stdout.contains("mine.txt"), "{output:?}");
    assert_eq!(world.read_file("mine.txt"), "untracked and mine\n");
    std::fs::rename(world.repo.join("mine.txt"), world.root.join("mine.txt")).unwrap();
    assert_eq!(
        world
            .run(&["land", "T2", "--wait", "--timeout", "60s"])
            .exit_code,
        0
    );
    assert_eq!(world.read_file("mine.txt"), "theirs\n");
    assert_eq!(world.git(&["status", "--porcelain"]), "");
}

/// A person's edits in other files delay no landing and stay. Edits in the same file delay the
/// landing until they are gone.
#[test]
fn only_edits_in_the_same_files_delay_a_landing() {
    let world = World::with_project();
    let dirty = world.read_file("a.txt") + "by hand\n";
    world.write_file("a.txt", &dirty);
    world.write_file("scratch/note.txt", "mine\n");
    let (mission, code) = run_plan(&world, &scripted_task("b", "b.txt", "b", ""), &[]);
    assert_eq!(code, 0, "{mission}");
    assert_eq!(
        (world.read_file("a.txt"), world.read_file("b.txt")),
        (dirty.clone(), "b\n".to_owned())
    );
    assert_eq!(
        world.git(&["status", "--porcelain"]),
        " M a.txt\n?? scratch/"
    );

    let (mission, code) = run_plan(&world, &scripted_task("a", "a.txt", "a", ""), &[]);
    assert_eq!(code, 3, "{mission}");
    let id = task_by_alias(&mission, "a")["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        task_by_alias(&mission, "a")["waits"][0]["text"]
            .as_str()
            .unwrap()
            .contains("changes in a.txt"),
        "{mission}"
    );
    assert_eq!(world.read_file("a.txt"), dirty);
    // The landing resumes by itself when the edits are gone, without a command, although its next
    // retry is minutes away.
    let tries = |kind: &str| {
        world
            .events()
            .iter()
            .filter(|event| event["kind"] == kind)
            .count()
    };
    for _ in 0..4 {
        let held_count = tries("landing.held");
        world.run_ok(&["land", &id]);
        assert!(
            wait_until(TEST_TIMEOUT, || tries("landing.held") > held_count),
            "{}",
            world.run_ok(&["why", &id])
        );
    }
    let asked = tries("landing.asked");
    world.git(&["stash", "-q"]);
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", &id])["status"]
            == "completed"),
        "{}",
        world.run_ok(&["why", &id])
    );
    assert!(
        tries("landing.asked") > asked,
        "the change of the checkout was noticed"
    );
    assert_eq!(world.read_file("a.txt"), "a\n");
}

/// With a detached HEAD the trunk moves, and the user's checkout does not.
#[test]
fn a_detached_head_does_not_move() {
    let world = World::with_project();
    world.git(&["checkout", "-q", "--detach", "HEAD~1"]);
    let before = world.git(&["rev-parse", "HEAD"]);
    let (mission, code) = run_plan(&world, &scripted_task("b", "b.txt", "b", ""), &[]);
    assert_eq!(code, 0, "{mission}");
    assert_eq!(world.git(&["rev-parse", "HEAD"]), before);
    assert!(!world.repo.join("b.txt").exists());
    assert_eq!(world.git(&["show", "main:b.txt"]), "b");
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    // `init` with a detached HEAD asks for the trunk's name, and accepts it as a flag.
    let fresh = World::with_repo();
    fresh.git(&["checkout", "-q", "--detach"]);
    let error = fresh.run_refused(&["init", "--yes"], 1);
    assert_eq!(error["code"], "no_branch");
    assert!(
        error["hint"].as_str().unwrap().contains("--trunk main"),
        "{error}"
    );
    assert_eq!(
        fresh.run_json(&["init", "--yes", "--trunk", "main"])["project"]["trunk"],
        "main"
    );
}

/// Subdirectories and linked worktrees belong to the same project.
#[test]
fn commands_work_in_subdirectories_and_linked_worktrees() {
    let world = World::with_project();
    std::fs::create_dir(world.repo.join("deep")).unwrap();
    let plan = world.write_plan(&scripted_task("b", "b.txt", "b", ""));
    let mut command = world.command(&["run", &plan, "--agents", "scripted", "--wait"]);
    command.current_dir(world.repo.join("deep"));
    let output = run_command(command, None);
    assert_eq!(output.exit_code, 0, "{output:?}");
    // `-C` works from anywhere, also after the command.
    let mut command = world.command(&["status", "-C", path_text(&world.repo)]);
    command.current_dir("/");
    let output = run_command(command, None);
    assert!(
        output.exit_code == 0 && output.stdout.contains("1 done"),
        "{output:?}"
    );

    let linked = world.root.join("linked");
    world.git(&["worktree", "add", "-q", "-b", "feature", path_text(&linked)]);
    let plan = world.write_plan(&scripted_task("c", "c.txt", "c", ""));
    let mut command = world.command(&["run", &plan, "--agents", "scripted", "--wait"]);
    command.current_dir(&linked);
    let output = run_command(command, None);
    assert_eq!(output.exit_code, 0, "{output:?}");
    assert_eq!(world.git(&["show", "main:c.txt"]), "c");
    assert!(
        !linked.join("c.txt").exists(),
        "the user's other branch must not change"
    );
    assert_eq!(
        world.read_file("c.txt"),
        "c\n",
        "the checkout of the trunk follows"
    );

    // `init` in the worktree finds the existing project and writes nothing into the worktree.
    let mut command = world.command(&["init", "--yes"]);
    command.current_dir(&linked);
    let output = run_command(command, None);
    assert!(
        output.exit_code == 0 && output.stderr.contains("is a worktree of"),
        "{output:?}"
    );
    let projects = world.run_json(&["project", "list"]);
    assert_eq!(
        (projects.as_array().unwrap().len(), &projects[0]["trunk"]),
        (1, &"main".into()),
        "{projects}"
    );
    assert_eq!(world.git_in(&linked, &["status", "--porcelain"]), "");
}

/// `status` counts only the tasks of its project.
#[test]
fn a_status_counts_its_own_project_only() {
    let world = World::with_project();
    let plan = world.write_plan(
        &(scripted_task("a", "a.txt", "a", "")
            + &scripted_task("f", "f.txt", "f", "validation = { tests = \"false\" }")),
    );
    assert_eq!(
        world
            .run(&["run", &plan, "--agents", "scripted", "--wait"])
            .exit_code,
        8
    );
    let other = world.root.join("other");
    std::fs::create_dir(&other).unwrap();
    world.git_in(&other, &["init", "-q", "-b", "main", "."]);
    world.git_in(&other, &["commit", "-q", "--allow-empty", "-m", "Start"]);
    world.run_ok(&["init", "--yes", "-C", path_text(&other)]);
    let counts = |place: &std::path::Path| {
        let status = world.run_json(&["status", "-C", path_text(place)]);
        (status["completed"].clone(), status["failed"].clone())
    };
    assert_eq!(counts(&world.repo), (1.into(), 1.into()));
    assert_eq!(counts(&other), (0.into(), 0.into()));
    assert_eq!(
        counts(std::path::Path::new("/")),
        (1.into(), 1.into()),
        "the whole fleet outside of any project"
    );
    let explanation = world.run_ok(&["why", "T2"]);
    assert!(
        explanation.contains("try    regatta logs T2") && explanation.contains("regatta retry T2"),
        "{explanation}"
    );
}

/// Ctrl-C detaches. The agents keep working, and the work lands without a watcher.
#[test]
fn an_interrupt_detaches_and_the_work_goes_on() {
    let world = World::with_project();
    let plan = world.write_plan(
        &scripted_task("b", "b.txt", "b", "")
            .replace("script = [", "script = [{ sleep = \"1500ms\" }, "),
    );
    let mut command = world.command(&["run", &plan, "--agents", "scripted", "--wait"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(wait_until(TEST_TIMEOUT, || world
        .run(&["task", "list", "--status", "in_progress"])
        .stdout
        .contains("T1")));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = wait_for_child(child, TEST_TIMEOUT).unwrap();
    assert_eq!(output.exit_code, 130, "{output:?}");
    assert!(
        output.stderr.contains("detached; the agents keep working"),
        "{output:?}"
    );
    let answer = world.run_json(&["msg", "wait", "shop", "--after", "B0", "--timeout", "60s"]);
    assert!(
        answer["text"]
            .as_str()
            .unwrap()
            .starts_with("Merged regatta/"),
        "{answer}"
    );
    assert_eq!(world.read_file("b.txt"), "b\n");
}

/// P1: a restart of the daemon ends no agent. `down` ends all of them (P3), and the next start
/// resumes the work.
#[test]
fn agents_outlive_a_restart_and_end_with_down() {
    let world = World::with_project();
    let starts = world.root.join("starts");
    let slow = |id: &str| {
        let first = format!(
            "script = [{{ run = \"echo {id} >> {}\" }}, {{ sleep = \"1500ms\" }}, ",
            path_text(&starts)
        );
        scripted_task(id, &format!("{id}.txt"), "x", "").replace("script = [", &first)
    };
    let begun = || std::fs::read_to_string(&starts).unwrap_or_default();
    let plan = world.write_plan(&slow("b"));
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes"]);
    assert!(wait_until(TEST_TIMEOUT, || begun() == "b\n"));
    for _ in 0..3 {
        world.run_ok(&["up", "--restart"]);
    }
    world.run_ok(&[
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
    assert_eq!(begun(), "b\n", "the same program went on");
    let task = world.run_json(&["show", "T1"]);
    assert_eq!(
        (task["attempts"].as_array().unwrap().len(), &task["word"]),
        (1, &"landed".into()),
        "{task}"
    );

    let plan = world.write_plan(&slow("c"));
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes"]);
    assert!(wait_until(TEST_TIMEOUT, || begun().ends_with("c\n")));
    world.run_ok(&["down"]);
    assert_eq!(world.processes(), [] as [u32; 0], "P3");
    world.run_ok(&["up"]);
    world.run_ok(&[
        "msg",
        "wait",
        "shop",
        "-L",
        "coord:merge",
        "--after",
        "B1",
        "--timeout",
        "60s",
    ]);
    assert_eq!(
        begun(),
        "b\nc\nc\n",
        "the program was ended and started again"
    );
    world.assert_green_everywhere();
}

/// The base-ancestry gate checks every landing of a mission, not only the last one. A dependent of
/// work that was removed from the trunk does not start until the work is back, whatever landed
/// since.
#[test]
fn a_wave_waits_until_every_earlier_landing_is_on_the_trunk() {
    let world = World::with_project();
    let gate = world.root.join("gate");
    let plan = world.write_plan(&format!(
        "[[task]]\nid = \"one\"\nsubject = \"One\"\nfiles = [\"one.txt\"]\n\
         script = [{{ write = {{ path = \"one.txt\", text = \"1\\n\" }} }}]\n\
         [[task]]\nid = \"two\"\nsubject = \"Two\"\nfiles = [\"two.txt\"]\n\
         script = [{{ write = {{ path = \"two.txt\", text = \"2\\n\" }} }}, \
         {{ run = \"while [ ! -e {} ]; do sleep 0.02; done\" }}]\n\
         [[task]]\nid = \"three\"\nsubject = \"Three\"\nfiles = [\"three.txt\"]\nblocked_by = \
         [\"one\", \"two\"]\n\
         script = [{{ write = {{ path = \"three.txt\", text = \"3\\n\" }} }}]\n",
        gate.display()
    ));
    world.run_json(&["run", &plan, "--agents", "scripted", "--mode", "waves"]);
    let is_landed = |task: &str| world.run_json(&["show", task])["word"] == "landed";
    assert!(
        wait_until(TEST_TIMEOUT, || is_landed("T1")),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let first = world.run_json(&["show", "T1"])["landed"]
        .as_str()
        .unwrap()
        .to_owned();
    world.git(&["reset", "-q", "--hard", "HEAD~1"]);
    std::fs::write(&gate, "").unwrap();
    assert!(
        wait_until(TEST_TIMEOUT, || is_landed("T2")),
        "{}",
        world.run_ok(&["why", "T2"])
    );
    let reason = format!("the trunk no longer contains {} of T1", &first[..10]);
    let waits = || world.run_ok(&["why", "T3"]).contains(&reason);
    assert!(
        wait_until(TEST_TIMEOUT, waits),
        "{}",
        world.run_ok(&["why", "T3"])
    );
    let has_started = || {
        world
            .events()
            .iter()
            .any(|event| event["kind"] == "task.started" && event["subject"] == "T3")
    };
    assert!(
        !has_started(),
        "it started without its blocker on the trunk"
    );
    world.git(&["merge", "-q", "--no-edit", &first]);
    assert!(
        wait_until(TEST_TIMEOUT, || is_landed("T3")),
        "{}",
        world.run_ok(&["why", "T3"])
    );
    assert_eq!(
        (world.read_file("one.txt"), world.read_file("three.txt")),
        ("1\n".into(), "3\n".into())
    );
}

/// Creates a world in which T1 has landed and T2, which depends on T1, is paused. Returns the world
/// and T1's commit.
fn world_with_landed_blocker() -> (World, String) {
    let world = World::with_project();
    let gate = world.root.join("gate");
    let plan = world.write_plan(&format!(
        "[[task]]\nid = \"one\"\nsubject = \"One\"\nfiles = [\"one.txt\"]\n\
         script = [{{ write = {{ path = \"one.txt\", text = \"1\\n\" }} }}, \
         {{ run = \"while [ ! -e {} ]; do sleep 0.02; done\" }}]\n\
         [[task]]\nid = \"two\"\nsubject = \"Two\"\nfiles = [\"two.txt\"]\nblocked_by = [\"one\"]\n\
         script = [{{ write = {{ path = \"two.txt\", text = \"2\\n\" }} }}]\n",
        gate.display()
    ));
    world.run_json(&["run", &plan, "--agents", "scripted"]);
    world.run_ok(&["pause", "T2"]);
    std::fs::write(&gate, "").unwrap();
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])["word"]
            == "landed"),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let landed = world.run_json(&["show", "T1"])["landed"]
        .as_str()
        .unwrap()
        .to_owned();
    (world, landed)
}

fn has_started(world: &World, task: &str) -> bool {
    world
        .events()
        .iter()
        .any(|event| event["kind"] == "task.started" && event["subject"] == task)
}

/// A blocker that was removed from the trunk stops its dependent until a person accepts the trunk
/// without it.
#[test]
fn a_dependant_starts_when_the_trunk_is_accepted_without_its_blocker() {
    let (world, landed) = world_with_landed_blocker();
    world.git(&["reset", "-q", "--hard", "HEAD~1"]);
    // A restart compares the trunk again, however recent the last comparison was.
    world.run_ok(&["up", "--restart"]);
    world.run_ok(&["resume", "T2"]);
    let reason = format!("the trunk no longer contains {} of T1", &landed[..10]);
    let waits = || world.run_ok(&["why", "T2"]).contains(&reason);
    assert!(
        wait_until(TEST_TIMEOUT, waits),
        "{}",
        world.run_ok(&["why", "T2"])
    );
    let explanation = world.run_ok(&["why", "T2"]);
    assert!(
        explanation.contains("regatta queue accept"),
        "why names the command: {explanation}"
    );
    let is_told = || world.run_ok(&["queue"]).contains("no longer contains");
    assert!(
        wait_until(TEST_TIMEOUT, is_told),
        "the queue reports the same: {}",
        world.run_ok(&["queue"])
    );
    assert!(
        !has_started(&world, "T2"),
        "it started without its blocker on the trunk"
    );

    world.run_ok(&["queue", "accept"]);
    assert!(!world.run_ok(&["queue"]).contains("no longer contains"));
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T2"])["word"]
            == "landed"),
        "{}",
        world.run_ok(&["why", "T2"])
    );
    assert!(world.read_file("two.txt") == "2\n" && !world.repo.join("one.txt").exists());
    assert!(
        !world.run_ok(&["queue"]).contains("no longer contains"),
        "the accepted loss is reported again"
    );
}

/// A person who rebases or amends the trunk keeps landed work as another commit, so nothing is
/// missing and nothing waits.
#[test]
fn a_landing_that_was_rewritten_does_not_stop_its_dependant() {
    let (world, landed) = world_with_landed_blocker();
    world.write_file("ann.txt", "ann's\n");
    world.git(&["add", "-A"]);
    world.git(&["commit", "-q", "--amend", "--no-edit"]);
    assert_ne!(
        world.git(&["rev-parse", "main"]),
        landed,
        "the commit did not change"
    );
    world.run_ok(&["up", "--restart"]);
    world.run_ok(&["resume", "T2"]);
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T2"])["word"]
            == "landed"),
        "{}",
        world.run_ok(&["why", "T2"])
    );
    assert!(
        !world.run_ok(&["queue"]).contains("no longer contains"),
        "{}",
        world.run_ok(&["queue"])
    );
    let shown = world.run_ok(&["show", "T2"]);
    assert!(
        !shown.contains("no longer contains"),
        "a gate gave a warning: {shown}"
    );
}
