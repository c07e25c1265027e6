//! Output for people: golden files, colours, widths, glyphs and quiet modes.

use crate::golden::{assert_golden, normalize};
use crate::world::{TEST_TIMEOUT, World, run_command, wait_until};

/// Creates a board with some of everything.
fn sample_world() -> World {
    let world = World::with_project();
    world.run_ok(&[
        "agent",
        "add",
        "zoe",
        "--runtime",
        "outside",
        "--max-tasks",
        "2",
    ]);
    world.run_ok(&[
        "agent",
        "add",
        "echo-1",
        "--runtime",
        "command",
        "--command",
        "echo {prompt}",
    ]);
    let plan = world.write_plan(
        "title = \"A small shop\"\n\
         [[task]]\nid = \"good\"\nsubject = \"Write the shelf\"\nfiles = [\"shelf.txt\"]\n\
         script = [{ write = { path = \"shelf.txt\", text = \"x\\n\" } }]\n\
         [[task]]\nid = \"bad\"\nsubject = \"Break the shop\"\nfiles = [\"bad\"]\n\
         script = [{ write = { path = \"bad\", text = \"x\\n\" } }]\nblocked_by = [\"good\"]\n",
    );
    assert_eq!(
        world
            .run(&["run", &plan, "--agents", "scripted", "--wait"])
            .exit_code,
        8
    );
    world.run_ok(&[
        "task",
        "add",
        "Paint the door",
        "--files",
        "door/**",
        "--priority",
        "1",
    ]);
    world.run_ok(&[
        "task",
        "add",
        "Hang the sign",
        "--files",
        "sign.txt",
        "--blocked-by",
        "T3",
    ]);
    world.run_ok(&[
        "task",
        "add",
        "Count the till",
        "--files",
        "till.txt",
        "--backlog",
        "-d",
        "Before noon.",
    ]);
    world.run_ok(&[
        "claim",
        "acquire",
        "file://shop/cellar/**",
        "--as",
        "ann",
        "--ttl",
        "10m",
        "-m",
        "by hand",
    ]);
    assert_eq!(
        world.run_json(&["task", "poll", "--as", "zoe"])["task"]["id"],
        "T3"
    );
    world
}

/// Compares commands' output with golden files. `UPDATE_GOLDEN=1` rewrites the files; check the
/// difference before you commit it.
#[test]
fn output_for_people_matches_the_golden_files() {
    let world = sample_world();
    assert_golden("help.txt", &world.run_ok(&["--help"]));
    assert_golden("help_run.txt", &world.run_ok(&["run", "--help"]));
    assert_golden("exit_codes.txt", &world.run_ok(&["help", "exit-codes"]));
    for (name, args) in [
        ("status.txt", &["status"][..]),
        ("task_list.txt", &["task", "list", "--all"]),
        ("why_waits.txt", &["why", "T4"]),
        ("why_failed.txt", &["why", "T2"]),
        ("show_task.txt", &["show", "T2"]),
        ("show_backlog.txt", &["show", "T5"]),
        ("show_mission.txt", &["show", "M1"]),
        ("queue.txt", &["queue"]),
        ("claim_list.txt", &["claim", "list"]),
        ("agent_list.txt", &["agent", "list"]),
        ("project_list.txt", &["project", "list"]),
    ] {
        assert_golden(name, &normalize(&world.run_ok(args), &world.root));
    }
    let doctor = world.run_on_path(&["doctor"]);
    assert_eq!(doctor.exit_code, 0, "{doctor:?}");
    assert_golden("doctor.txt", &normalize(&doctor.stdout, &world.root));
    let error = world.run(&["claim", "acquire", "file://shop/cellar/wine", "--as", "zoe"]);
    assert_eq!(error.exit_code, 5);
    assert_golden("error.txt", &normalize(&error.stderr, &world.root));
    let missing = world.run(&["show", "T99"]);
    assert_golden(
        "error_missing.txt",
        &normalize(&missing.stderr, &world.root),
    );
}

/// Colours appear only when they are wanted and glyphs only where the locale has them. The words
/// are always there.
#[test]
fn colours_and_glyphs_follow_the_terminal() {
    let world = World::with_project();
    world.run_ok(&["task", "add", "Paint the door", "--files", "door/**"]);
    let list = |env: &[(&str, &str)], flags: &[&str]| {
        let mut command = world.command(&[&["task", "list"], flags].concat());
        command.envs(env.iter().copied());
        let output = run_command(command, None);
        assert_eq!(output.exit_code, 0, "{output:?}");
        assert!(
            output.stdout.contains("waiting"),
            "the word is always there: {output:?}"
        );
        output.stdout
    };
    let coloured = |text: &str| text.contains("\x1b[");
    assert!(!coloured(&list(&[], &[])), "no colours without a terminal");
    assert!(coloured(&list(&[], &["--color", "always"])));
    assert!(coloured(&list(&[("CLICOLOR_FORCE", "1")], &[])));
    assert!(!coloured(&list(
        &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")],
        &[]
    )));
    assert!(!coloured(&list(
        &[("CLICOLOR_FORCE", "1")],
        &["--color", "never"]
    )));
    assert!(
        coloured(&list(&[("NO_COLOR", "1")], &["--color", "always"])),
        "a flag overrides the environment"
    );
    assert!(list(&[], &[]).contains("‖ waiting"));
    for plain in [
        ("LC_ALL", "C"),
        ("LC_ALL", "POSIX"),
        ("LANG", "en_US.ISO-8859-1"),
    ] {
        let text = list(&[plain], &[]);
        assert!(
            text.contains("= waiting") && text.is_ascii(),
            "{plain:?}: {text}"
        );
    }
    let json = list(&[("CLICOLOR_FORCE", "1")], &["--json", "--color", "always"]);
    assert!(!coloured(&json), "{json}");
    // All output is ASCII in an ASCII locale, errors and tables alike.
    for args in [
        &["status"][..],
        &["queue"],
        &["doctor"],
        &["agent", "list"],
        &["project", "list"],
        &["why", "T1"],
    ] {
        let mut command = world.command(args);
        command.env("LC_ALL", "C");
        let output = run_command(command, None);
        assert!(
            output.stdout.is_ascii() && output.stderr.is_ascii(),
            "{args:?}: {output:?}"
        );
    }
}

/// On a terminal of 60 columns no row takes two lines. Hints are printed unless `--no-hint` turns
/// them off.
#[test]
fn a_narrow_terminal_gets_one_line_per_row() {
    let world = World::with_project();
    for subject in [
        "Short",
        "A subject that is much longer than sixty columns could ever be, on any terminal at all",
    ] {
        world.run_ok(&["task", "add", subject, "--files", "door/**"]);
    }
    // `script` runs the command in a pseudo-terminal.
    let on_terminal = |line: &str, env: &[(&str, &str)]| {
        let mut command = std::process::Command::new("script");
        world.clean_environment(&mut command);
        command.envs(env.iter().copied());
        let binary = env!("CARGO_BIN_EXE_regatta");
        command
            .args([
                "-qec",
                &format!("stty cols 60; {binary} {line}"),
                "/dev/null",
            ])
            .current_dir(&world.repo);
        command
            .stdin(std::process::Stdio::null())
            .env("TERM", "xterm");
        let output = run_command(command, None);
        assert_eq!(output.exit_code, 0, "{output:?}");
        output.stdout.replace('\r', "")
    };
    let shown = on_terminal("task list", &[]);
    assert!(
        shown.contains("\x1b["),
        "a terminal gets colours: {shown:?}"
    );
    for line in strip_escapes(&shown).lines() {
        assert!(
            line.chars().count() <= 60,
            "{} columns: {line:?}",
            line.chars().count()
        );
    }
    assert_eq!(
        strip_escapes(&shown)
            .lines()
            .filter(|strip_escape| strip_escape.starts_with('T'))
            .count(),
        2,
        "{shown:?}"
    );
    let status = strip_escapes(&on_terminal("status", &[]));
    assert!(status.contains("next: "), "{status}");
    assert!(!strip_escapes(&on_terminal("status --no-hint", &[])).contains("next: "));
    assert!(!strip_escapes(&on_terminal("status -q", &[])).contains("next: "));
    // An agent on a terminal is treated as a program, without hints, colours and cut rows.
    for agent in ["REGATTA_AGENT", "CLAUDECODE", "GEMINI_CLI"] {
        let shown = on_terminal("task list", &[(agent, "1")]);
        assert!(
            !shown.contains("next: ") && !shown.contains("\x1b[") && !shown.contains('…'),
            "{agent}: {shown:?}"
        );
    }
    assert!(!on_terminal("status", &[("NO_COLOR", "1")]).contains("\x1b["));
}

/// Returns a text without its escape sequences.
fn strip_escapes(text: &str) -> String {
    let mut plain = String::new();
    let mut escaped = false;
    for c in text.chars() {
        match (escaped, c) {
            (false, '\x1b') => escaped = true,
            (true, c) => escaped = !c.is_ascii_alphabetic(),
            (false, c) => plain.push(c),
        }
    }
    plain
}

/// `-q` prints only the answer and `-qq` nothing. The exit code tells the rest.
#[test]
fn quiet_flags_limit_the_output() {
    let world = World::with_project();
    let plan = world.write_plan(
        "[[task]]\nsubject = \"x\"\nfiles = [\"x\"]\nscript = [{ write = { path \
            = \"x\", text = \"x\" } }]\n",
    );
    let output = world.run(&["run", &plan, "--agents", "scripted", "--wait", "-q"]);
    assert_eq!(
        (output.exit_code, output.stderr.as_str()),
        (0, ""),
        "{output:?}"
    );
    assert!(output.stdout.contains("1 of 1 landed"), "{output:?}");
    let output = world.run(&["status", "-qq"]);
    assert_eq!(
        (
            output.exit_code,
            output.stdout.as_str(),
            output.stderr.as_str()
        ),
        (0, "", ""),
        "{output:?}"
    );
    let output = world.run(&["show", "T99", "-q"]);
    assert!(
        output.exit_code == 1 && output.stderr.starts_with("error: "),
        "{output:?}"
    );
    let output = world.run(&["show", "T99", "-qq"]);
    assert_eq!(
        (
            output.exit_code,
            output.stdout.as_str(),
            output.stderr.as_str()
        ),
        (1, "", ""),
        "{output:?}"
    );
}

/// Every command has help, a typo gets one suggestion, and no command at all prints the start text.
#[test]
fn every_command_has_help_and_a_typo_gets_one_suggestion() {
    let world = World::new();
    let help = world.run_ok(&["--help"]);
    assert_eq!(world.run_ok(&["-h"]), help);
    assert_eq!(world.run_ok(&["help"]), help);
    let words: Vec<&str> = help
        .lines()
        .skip_while(|help| !help.starts_with("Start"))
        .take_while(|help| !help.starts_with("Options"))
        .flat_map(|help| {
            help.get(10..21)
                .unwrap_or_default()
                .split([',', ' '])
                .filter(|line| !line.is_empty())
        })
        .filter(|help| help.chars().all(|c| c.is_ascii_lowercase()))
        .collect();
    for word in [
        "init", "demo", "doctor", "up", "down", "run", "status", "land", "queue", "stop", "agent",
        "config",
    ] {
        assert!(words.contains(&word), "{word} is in the help: {words:?}");
        let page = world.run_ok(&["help", word]);
        assert!(page.contains("Usage: regatta"), "{word}: {page}");
        assert!(
            world.run_ok(&[word, "--help"]).contains("Usage: regatta"),
            "{word}"
        );
    }
    assert!(
        world
            .run_ok(&["help", "exit-codes"])
            .contains("124  timed out")
    );
    let output = world.run(&["statsu"]);
    assert_eq!(output.exit_code, 2, "{output:?}");
    assert_eq!(
        output.stderr.matches("'status'").count(),
        1,
        "one suggestion: {output:?}"
    );
    let error = world.run_refused(&["statsu"], 2);
    assert!(
        error["hint"].as_str().unwrap().contains("status"),
        "{error}"
    );
    let start = world.run_ok(&[]);
    assert!(
        start.contains("is not in a git repository\nnext   regatta demo\n"),
        "{start}"
    );
    world.git(&["init", "--quiet"]);
    let start = world.run_ok(&[]);
    assert!(
        start.contains("does not manage yet\nnext   regatta init\n"),
        "{start}"
    );
    // A colleague's clone: the repository has the settings, but this machine does not know it yet.
    world.write_file("regatta.toml", "");
    let start = world.run_ok(&[]);
    assert!(
        start.contains("does not manage yet\nnext   regatta init\n"),
        "{start}"
    );
    assert!(!world.data_dir.exists(), "help must not start a daemon");
    let world = World::with_project();
    assert!(
        world.run_ok(&[]).contains("0 working"),
        "inside a project the start text is the status"
    );
    world.run_ok(&["down"]);
    let start = world.run_ok(&[]);
    assert!(
        start.contains("the daemon is not running\nnext   regatta up\n"),
        "{start}"
    );
    std::fs::remove_file(world.repo.join("regatta.toml")).unwrap();
    assert_eq!(world.run_ok(&[]), start, "the store knows the project");
}

/// With `--server`, `REGATTA_SERVER` or `--project`, `regatta` without a command is about what these
/// name, and not about the current directory.
#[test]
fn without_a_command_the_server_and_the_project_of_the_options_count() {
    let world = World::with_project();
    let url = world.daemon_info().unwrap()["url"]
        .as_str()
        .unwrap()
        .to_owned();
    let token = world.run_ok(&["token", "add", "ann", "--scope", "operator"]);
    let elsewhere = world.root.join("tmp");
    let run = |server: &str, args: &[&str]| {
        let mut command = world.command(args);
        command
            .current_dir(&elsewhere)
            .env("REGATTA_SERVER", server)
            .env("REGATTA_TOKEN", token.trim());
        crate::world::run_command(command, None)
    };
    let output = run(&url, &[]);
    assert!(
        output.exit_code == 0 && output.stdout.contains("0 working"),
        "{output:?}"
    );
    let output = run("http://127.0.0.1:9", &[]);
    assert!(
        output.exit_code == 6 && output.stderr.contains("the daemon at http://127.0.0.1:9"),
        "{output:?}"
    );
    world.run_ok(&["down"]);
    let output = world.run(&["--project", "shop"]);
    assert!(
        !output.stdout.contains("is not in a git repository"),
        "{output:?}"
    );
}

/// `regatta` without a command suggests exactly one next command in every state of a project.
/// `regatta status` may suggest several.
#[test]
fn without_a_command_one_next_command_is_suggested() {
    let world = World::with_project();
    let next = |args: &[&str]| {
        let output = world.run(&[args, &["--json"]].concat());
        let answer: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        let next = answer["next"].as_array().cloned().unwrap_or_default();
        let words = next.iter().map(|next| next.as_str().unwrap().to_owned());
        words.collect::<Vec<String>>()
    };
    let without_agents = next(&[]);
    assert!(
        without_agents == ["regatta provider"]
            || without_agents.len() == 1 && without_agents[0].starts_with("regatta agent add "),
        "{without_agents:?}"
    );
    let command = ["--runtime", "command", "--command", "echo"];
    world.run_ok(&[&["agent", "add", "echo-1"], &command[..]].concat());
    assert_eq!(next(&[]), ["regatta run \"WHAT TO DO\""]);
    world.run_ok(&["task", "add", "Paint the door", "--files", "door/**"]);
    assert_eq!(next(&[]), ["regatta watch"]);
    assert!(next(&["status"]).len() > 1, "{:?}", next(&["status"]));
    let plan = world.write_plan(
        "[[task]]\nsubject = \"Ask\"\nfiles = [\"q.txt\"]\n\
         script = [{ ask = { question = \"Which?\", choices = [\"one\", \"two\"] } }]\n",
    );
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes"]);
    let has_item = || world.run_json(&["inbox"])[0]["id"] == "Q1";
    assert!(wait_until(TEST_TIMEOUT, has_item));
    let answer = next(&[]);
    assert!(
        answer.len() == 1 && answer[0].starts_with("regatta answer Q1"),
        "{answer:?}"
    );
    world.run_ok(&["down"]);
    assert_eq!(next(&[]), Vec::<String>::new(), "the data name the command");
    assert_eq!(world.run_json(&[])["next"], "regatta up");
}

/// JSON answers name the next commands, as output on a terminal does.
#[test]
fn json_answers_name_the_next_commands() {
    let world = World::with_project();
    let output = world.run(&["task", "add", "Paint", "--files", "door", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        answer["next"],
        serde_json::json!(["regatta show T1", "regatta why T1"])
    );
    assert!(wait_until(TEST_TIMEOUT, || world
        .run_ok(&["why", "T1"])
        .contains("now")));
}
