//! The command line as a whole: exit codes, completion, previews, the manual, and leftovers of
//! commands.

use std::process::Command;

use serde_json::json;

use crate::world::{TEST_TIMEOUT, World, is_alive, kill_process, run_command, wait_until};

/// A team launch that does not complete in time exits with 124.
#[test]
fn a_team_launch_that_is_not_done_in_time_exits_with_124() {
    let world = World::with_project();
    world.write_file(
        "team.toml",
        "name = \"harbour\"\n[lead]\nname = \"amy\"\nprovider = \"codex\"\nbackend \
        = \"scripted\"\nscript = '[{\"hang\": true}]'\n",
    );
    world.run_ok(&["team", "create"]);
    let output = world.run(&["team", "launch", "harbour", "--wait", "1s"]);
    assert_eq!(output.exit_code, 124, "{output:?}");
    world.run_ok(&["team", "stop", "harbour"]);
}

/// `team stop --wait` that times out fails and names the members that still run. The stop itself
/// goes on.
#[test]
fn a_team_stop_that_times_out_fails_and_goes_on() {
    let world = World::with_project();
    world.run_ok(&["config", "set", "shutdown_timeout", "30s"]);
    let script = "[{\"run\": \"trap : TERM INT; while [ ! -e gone ]; do sleep 0.1; done\"}]";
    world.write_file(
        "team.toml",
        &format!(
            "name = \"harbour\"\n[lead]\nname = \"amy\"\nprovider = \"codex\"\nbackend \
            = \"scripted\"\nscript = '{script}'\n"
        ),
    );
    world.run_ok(&["team", "create"]);
    world.run(&["team", "launch", "harbour", "--wait", "1s"]);
    assert!(
        wait_until(TEST_TIMEOUT, || !world.foreign_processes().is_empty()),
        "{}",
        world.run_ok(&["team", "show", "harbour"])
    );
    let shims: Vec<u32> = world.foreign_processes();
    shims.iter().for_each(|pid| send_signal(*pid, "-STOP"));
    let error = world.run_refused(&["team", "stop", "harbour", "--wait", "1ms"], 1);
    assert!(
        error["code"] == "still_running" && error["message"].as_str().unwrap().contains("amy"),
        "{error}"
    );
    shims.iter().for_each(|pid| send_signal(*pid, "-CONT"));
    let stopped = world.run_ok(&["team", "stop", "harbour", "--wait", "60s"]);
    assert!(stopped.starts_with("harbour: "), "{stopped}");
    assert_eq!(
        world.foreign_processes(),
        Vec::<u32>::new(),
        "a program of the team still runs"
    );
}

fn send_signal(pid: u32, name: &str) {
    let mut kill = Command::new("kill");
    kill.args([name, &pid.to_string()]);
    run_command(kill, None);
}

/// `queue hold` with a name is refused and holds nothing.
#[test]
fn queue_hold_refuses_a_name() {
    let world = World::with_project();
    for word in ["nope", "T5"] {
        let error = world.run_refused(&["queue", "hold", word], 2);
        assert!(
            error["hint"].as_str().unwrap().contains("regatta pause T5"),
            "{error}"
        );
    }
    let queue_hold = |world: &World| world.run_json(&["queue"])[0]["held"].clone();
    assert_eq!(queue_hold(&world), json!(null));
    world.run_ok(&["queue", "hold", "--because", "releasing by hand"]);
    assert!(
        queue_hold(&world).to_string().contains("releasing by hand"),
        "{}",
        queue_hold(&world)
    );
}

/// An unknown id of any kind gives exit code 1.
#[test]
fn unknown_ids_have_the_same_exit_code_in_every_command() {
    let world = World::with_project();
    for line in [
        "show T999",
        "why T999",
        "why Q99",
        "edit T999 --priority 1",
        "land T999",
        "diff T999",
        "drop T999",
        "retry T999",
        "tell T999 hello",
        "pause T999",
        "stop T999",
        "logs A99",
        "allow Q99",
        "deny Q99",
        "answer Q99 yes",
        "inbox snooze Q99 1h",
        "stop M99",
        "mission show M99",
        "replay M99",
        "show ghost",
        "agent show ghost",
        "agent rm ghost",
        "team show ghost",
        "team launch ghost",
        "hook rm H99",
        "hook pause H99",
        "policy rm R99",
        "runner rm ghost",
        "bridge show V99",
        "bridge close V99",
        "token rm ghost",
        "claim release C99 --token 1",
        "inbox snooze budget:day 1h",
        "msg attachment B99",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = world.run(&words);
        assert_eq!(output.exit_code, 1, "{line}: {output:?}");
    }
}

/// A preview fails when the start of the plan would fail.
#[test]
fn a_preview_applies_the_checks_of_a_start() {
    let world = World::with_project();
    let plan = world.write_plan("[[task]]\nsubject = \"x\"\nfiles = [\"x\"]\nagent = \"ghost\"\n");
    for more in [&["--agents", "scripted", "--yes"][..], &["--plan-only"]] {
        let error = world.run_refused(&[&["run", plan.as_str()], more].concat(), 1);
        assert_eq!(error["code"], "no_such_agent", "{more:?}: {error}");
    }
    let fine = world.write_plan("[[task]]\nsubject = \"x\"\nfiles = [\"x\"]\n");
    world.run_refused(&["run", &fine, "--plan-only", "--agents", "ghost"], 1);
    assert_eq!(
        world
            .run(&["run", &fine, "--plan-only", "--max-workers", "0"])
            .exit_code,
        2
    );
    world.run_ok(&["run", &fine, "--plan-only"]);
    assert_eq!(world.run_json(&["task", "list", "--all"]), json!([]));
}

/// Completion offers existing ids, also in the shell's own script, and no internal command.
#[test]
fn completion_offers_existing_ids() {
    let world = World::with_project();
    world.run_ok(&["add", "Fix the login form", "--backlog", "--files", "a.txt"]);
    assert_eq!(
        world.run_ok(&["complete", "--", "show", "T"]),
        "T1\tFix the login form\n"
    );
    assert_eq!(world.run_ok(&["complete", "--", "fail"]), "");
    // Each kind of id, also behind options and in lists.
    world.run_ok(&["agent", "add", "ann", "--runtime", "scripted"]);
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    let plan = world
        .write_plan("[[task]]\nsubject = \"Hang\"\nfiles = [\"h\"]\nscript = [{ hang = true }]\n");
    world.run_ok(&["run", &plan, "--agents", "ann"]);
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T2"])["attempt"]
            == "A1"),
        "{}",
        world.run_ok(&["why", "T2"])
    );
    world.write_file(
        "team.toml",
        "name = \"harbour\"\n[lead]\nname = \"amy\"\nprovider = \"codex\"\n",
    );
    world.run_ok(&["team", "create"]);
    world.run_ok(&["policy", "add", "deny", "--tool", "execute"]);
    for (words, expected) in [
        (&["agent", "show", ""][..], &["ann", "bob"][..]),
        (&["assign", "T1", "a"], &["ann"]),
        (&["run", "--agents", "ann,b"], &["ann,bob"]),
        (&["mission", "show", "M"], &["M1"]),
        (&["stop", "M"], &["M1"]),
        (&["logs", "A"], &["A1"]),
        (&["project", "rm", ""], &["shop"]),
        (&["--project", "s"], &["shop"]),
        (&["team", "show", ""], &["harbour"]),
        (&["claim", "release", "C"], &["C1"]),
        (&["policy", "rm", ""], &["R1"]),
        (&["hook", "rm", ""], &["H1"]),
        (&["runner", "drain", ""], &[]),
        (&["agent", "add", "a"], &[]),
    ] {
        let line: Vec<&str> = ["complete", "--"].iter().chain(words).copied().collect();
        let offered = world.run_ok(&line);
        let found: Vec<&str> = offered
            .lines()
            .filter_map(|line| line.split('\t').next())
            .collect();
        assert_eq!(found, expected, "{words:?}: {offered}");
    }
    let script = format!(
        "regatta() {{ {:?} \"$@\"; }}\n{}\nCOMP_WORDS=(regatta land \
        T)\nCOMP_CWORD=2\n_regatta\necho \"${{COMPREPLY[@]}}\"\n",
        env!("CARGO_BIN_EXE_regatta"),
        world.run_ok(&["completions", "bash"])
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(&world.repo);
    world.clean_environment(&mut bash);
    let output = run_command(bash, None);
    assert_eq!(
        (output.stdout.as_str(), output.stderr.as_str()),
        ("T1 T2\n", "")
    );
    for shell in ["elvish", "powershell"] {
        let script = world.run_ok(&["completions", shell]);
        assert!(
            script.contains("takeover") && !script.contains("failpoints"),
            "{shell}"
        );
    }
}

/// The manual has the exit codes, the options of every command, and examples.
#[test]
fn the_manual_has_exit_codes_and_options() {
    let world = World::with_repo();
    let manual = world.run_ok(&["man"]);
    for words in [
        "EXIT STATUS",
        "124",
        "timed out",
        "\\-\\-json",
        "coding agents",
    ] {
        assert!(manual.contains(words), "{words}: {manual}");
    }
    assert!(
        !manual.contains("failpoints") && !manual.contains("scripted\\-agent"),
        "{manual}"
    );
    assert!(
        world
            .run_ok(&["land", "--help"])
            .contains("Examples:\n  regatta land T7 --wait\n")
    );
}

/// A daemon whose data directory was removed ends by itself, because no command can reach it.
#[test]
fn a_daemon_without_its_data_directory_ends() {
    let world = World::with_project();
    let pid = u32::try_from(world.daemon_info().unwrap()["pid"].as_u64().unwrap()).unwrap();
    std::fs::rename(&world.data_dir, world.root.join("removed")).unwrap();
    let ended = wait_until(TEST_TIMEOUT, || !is_alive(pid));
    if !ended {
        kill_process(pid);
    }
    assert!(ended, "the daemon runs on without its data directory");
}

/// Scripted runs leave nothing in the user's home.
#[test]
fn scripted_runs_leave_nothing_in_the_home() {
    let world = World::with_project();
    let script = "[{ write = { path = \"b.txt\", text = \"b\\n\" } }]";
    let plan = world.write_plan(&format!(
        "[[task]]\nsubject = \"b\"\nfiles = [\"b.txt\"]\nscript = {script}\n"
    ));
    world.run_ok(&["run", &plan, "--agents", "scripted", "--wait"]);
    let home = world.root.join("home");
    let leftover_files: Vec<_> = std::fs::read_dir(&home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(leftover_files.is_empty(), "{leftover_files:?}");
}

/// A task that was imported from another tracker can be named by its id there.
#[test]
fn an_imported_id_names_its_task() {
    let world = World::with_project();
    let file = world.root.join("issues.jsonl");
    std::fs::write(
        &file,
        "{\"id\": \"bd-2\", \"title\": \"Fix the form\", \"status\": \"open\"}\n",
    )
    .unwrap();
    world.run_ok(&["task", "import", "--beads", file.to_str().unwrap()]);
    assert_eq!(world.run_json(&["show", "bd-2"])["subject"], "Fix the form");
    assert!(world.run_ok(&["why", "bd-2"]).contains("T1"));
    world.run_ok(&["pause", "bd-2", "--because", "not yet"]);
    assert_eq!(world.run(&["why", "bd-3"]).exit_code, 1);
}

/// A preset that needs an argument is refused without it when the agent is added.
#[test]
fn the_gc_preset_needs_its_worker_argument() {
    let world = World::with_project();
    let error = world.run_refused(&["agent", "add", "pool", "--preset", "gc"], 2);
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("--preset gc --arg=ALIAS"),
        "{error}"
    );
    world.run_ok(&["agent", "add", "pool", "--preset", "gc", "--arg=w1"]);
    assert_eq!(
        world
            .run(&["runner", "--token-file", "x", "--max-tasks", "21"])
            .exit_code,
        2
    );
}

/// The preview of a plan shows tasks of serial packages in separate sub-waves, and warns when the
/// trunk is behind its upstream.
#[test]
fn a_preview_shows_serial_packages_and_warnings() {
    let world = World::with_project();
    let plan = world.write_plan(
        "[[task]]\nid = \"a\"\nsubject = \"a\"\nfiles = [\"pkg/a.go\"]\n[[task]]\nid \
        = \"b\"\nsubject = \"b\"\nfiles = [\"pkg/b.go\"]\n",
    );
    let preview = |world: &World| {
        let output = world.run(&["run", &plan, "--plan-only", "--mode", "waves"]);
        assert_eq!(output.exit_code, 0, "{output:?}");
        output.stdout + &output.stderr
    };
    assert!(!preview(&world).contains("wave 1.2"));
    let text = world.read_file("regatta.toml").replacen(
        "[run]\n",
        "[run]\nserial_packages = [\"pkg\"]\n",
        1,
    );
    assert!(text.contains("serial_packages"), "{text}");
    world.write_file("regatta.toml", &text);
    world.write_file("pkg/old.go", "package pkg\n");
    world.commit_all("Packages");
    assert!(preview(&world).contains("wave 1.2"), "{}", preview(&world));
    // Another branch gets a commit, and the trunk has that branch as its upstream.
    world.git(&["branch", "theirs"]);
    world.git(&["branch", "-u", "theirs", "main"]);
    world.git(&["checkout", "-q", "theirs"]);
    world.write_file("theirs.txt", "x\n");
    world.commit_all("Theirs");
    world.git(&["checkout", "-q", "main"]);
    assert!(
        preview(&world).contains("warning: the trunk is 1 commit behind"),
        "{}",
        preview(&world)
    );
}

/// A project without open work can be removed and set up again. A project with open work or a team
/// cannot be removed.
#[test]
fn only_a_project_without_open_work_and_teams_can_be_removed() {
    let world = World::with_project();
    world.run_ok(&["add", "Fix the form", "--backlog", "--files", "a.txt"]);
    let error = world.run_refused(&["project", "rm", "shop"], 5);
    assert!(error["message"].as_str().unwrap().contains("T1"), "{error}");
    world.run_ok(&["task", "cancel", "T1"]);
    assert_ne!(
        world.run_json(&["hook", "list"]),
        json!([]),
        "a new project has a router"
    );
    world.write_file(
        "team.toml",
        "name = \"harbour\"\n[lead]\nname = \"amy\"\nprovider = \"codex\"\n",
    );
    world.run_ok(&["team", "create"]);
    let error = world.run_refused(&["project", "rm", "shop"], 5);
    assert!(
        error["message"].as_str().unwrap().contains("team harbour"),
        "{error}"
    );
    world.run_ok(&["team", "delete", "harbour"]);
    world.run_ok(&["project", "rm", "shop"]);
    assert_eq!(world.run_json(&["project", "list"]), json!([]));
    assert_eq!(world.run_json(&["hook", "list"]), json!([]));
    assert_eq!(world.run(&["project", "rm", "shop"]).exit_code, 1);
    world.run_ok(&["show", "T1"]);
    world.run_ok(&["up", "--restart"]);
    world.run_ok(&["init", "--yes"]);
    assert_eq!(world.run_json(&["project", "list"])[0]["name"], "shop");
}
