//! The first steps of a person who knows Regatta only from its README: what each command prints
//! about checks, the daemon, stopped work, settings and an old git.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::world::{CommandOutput, TEST_TIMEOUT, World, run_command, wait_until};

/// A plan with one task, which writes a file.
const ONE_TASK_PLAN: &str = "[[task]]\nsubject = \"Write b\"\nfiles = [\"b.txt\"]\n\
    script = [{ write = { path = \"b.txt\", text = \"b\\n\" } }]\n";

/// A plan with a task that never ends, and a task that waits for it. The subject of the first is
/// longer than a line of a terminal.
const HANGING_PLAN: &str = "[[task]]\nid = \"a\"\nsubject = \"A subject that says at such length \
    what has to be done in this task that no terminal can show it in one line, however wide\"\n\
    files = [\"a.md\"]\nscript = [{ hang = true }]\n\
    [[task]]\nsubject = \"Second\"\nfiles = [\"b.md\"]\nblocked_by = [\"a\"]\n\
    script = [{ write = { path = \"b.md\", text = \"x\" } }]\n";

/// Creates a project without any check.
fn world_without_check() -> World {
    let world = World::with_repo();
    world.git(&["mv", "test.sh", "other.sh"]);
    world.commit_all("Hide the test");
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Use regatta");
    world
}

fn start_scripted(world: &World, plan: &str) {
    let plan = world.write_plan(plan);
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes"]);
}

#[track_caller]
fn wait_for_word(world: &World, task: &str, word: &str) {
    let is_there = || world.run_json(&["show", task])["word"] == word;
    assert!(
        wait_until(TEST_TIMEOUT, is_there),
        "{task} is not {word}: {}",
        world.run_ok(&["why", task])
    );
}

/// Tasks that wait for a check say which command starts them, and `init` names the tasks that start.
#[test]
fn a_new_check_starts_waiting_tasks_and_init_names_them() {
    let world = world_without_check();
    start_scripted(&world, ONE_TASK_PLAN);
    let waiting = world.run_ok(&["status"]);
    assert!(
        waiting.contains("it starts when its project gets one: regatta init --validate 'CMD'"),
        "{waiting}"
    );
    let set = world.run_ok(&["init", "--validate", "true"]);
    assert!(
        set.contains("starts  T1, because it waited for a check\n"),
        "{set}"
    );
    wait_for_word(&world, "T1", "landed");
    let again = world.run_ok(&["init", "--validate", "true"]);
    assert!(!again.contains("starts"), "{again}");
}

/// `doctor` asks the project for its checks, so it warns also if `regatta.toml` says nothing about
/// them or is gone, whether the daemon runs or not.
#[test]
fn doctor_warns_of_a_project_without_checks() {
    let world = world_without_check();
    let warning = "none, so tasks that change files do not start  regatta init --validate";
    let assert_warns = |is_expected: bool| {
        for stops_before in [false, true] {
            if stops_before {
                world.run_ok(&["down"]);
            }
            let output = world.run(&["doctor"]);
            assert_eq!(output.stdout.contains(warning), is_expected, "{output:?}");
        }
        world.run_ok(&["up"]);
    };
    assert_warns(true);
    std::fs::write(
        world.repo.join("regatta.toml"),
        "[project]\nname = \"shop\"\n",
    )
    .unwrap();
    assert_warns(true);
    std::fs::remove_file(world.repo.join("regatta.toml")).unwrap();
    assert_warns(true);
    world.run_ok(&["init", "--validate", "true"]);
    assert_warns(false);
}

/// Commands that Regatta prints begin with `regatta`, so `doctor` warns if the shell does not find
/// this copy.
#[test]
fn doctor_warns_if_the_program_is_not_on_the_path() {
    let world = World::with_repo();
    let warning = "the shell does not find `regatta`";
    assert!(world.run(&["doctor"]).stdout.contains(warning));
    let output = world.run_on_path(&["doctor"]);
    assert!(!output.stdout.contains("! path"), "{output:?}");
}

/// After `init`, `regatta` and `doctor` remind of the settings file until it is committed.
#[test]
fn an_uncommitted_settings_file_is_named_with_the_command_that_commits_it() {
    let world = World::with_repo();
    let init = world.run_ok(&["init", "--validate", "true"]);
    let project = init.find("project ").unwrap();
    assert!(project < init.find("wrote ").unwrap(), "{init}");
    let command = "git add regatta.toml && git commit -m 'Use Regatta'";
    let where_you_stand = world.run_ok(&[]);
    assert!(
        where_you_stand.ends_with(&format!("next   {command}\n")),
        "{where_you_stand}"
    );
    let doctor = world.run(&["doctor"]).stdout;
    assert!(
        doctor.contains("regatta.toml is not committed") && doctor.contains(command),
        "{doctor}"
    );
    world.commit_all("Use Regatta");
    assert!(!world.run_ok(&[]).contains("git add"));
    let doctor = world.run(&["doctor"]).stdout;
    assert!(doctor.contains("clean, on main"), "{doctor}");
}

/// An agent whose program is missing is not resumed, and `why` gives that reason.
#[test]
fn an_agent_that_cannot_be_started_is_not_resumed() {
    let world = World::with_project();
    let add = [
        "agent",
        "add",
        "claude-1",
        "--preset",
        "claude-native",
        "--anyway",
    ];
    world.run_ok(&add);
    let refused = world.run_refused(&["resume", "claude-1"], 4);
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.starts_with("claude-1 cannot be started: ") && message.contains("not installed"),
        "{refused}"
    );
    let why = world.run_ok(&["why", "claude-1"]);
    assert!(
        why.contains("provider  The program `claude`") && why.contains("npm install -g"),
        "{why}"
    );
}

/// Without work to do, `regatta` names the command that continues a stopped mission, and `status`
/// marks the mission.
#[test]
fn after_stop_regatta_names_the_command_that_continues() {
    let world = World::with_project();
    start_scripted(&world, HANGING_PLAN);
    wait_for_word(&world, "T1", "working");
    world.run_ok(&["stop"]);
    wait_for_word(&world, "T1", "waiting");
    let text = world.run_ok(&[]);
    assert!(text.ends_with("next   regatta run --resume M1\n"), "{text}");
    assert!(text.contains("0 of 2 landed · stopped\n"), "{text}");
}

/// A check whose command the machine lacks says nothing about the work. The first attempt ends with
/// one inbox item that names the command, and no attempt counts as failed.
#[test]
fn a_missing_check_command_is_one_inbox_item_and_costs_no_attempt() {
    let world = world_without_check();
    let locked = world.root.join("locked-check");
    std::fs::write(&locked, "#!/bin/sh\n").unwrap();
    let locked = locked.display().to_string();
    let checks = [
        ("no-such-check --all".to_owned(), "no-such-check"),
        (locked.clone(), locked.as_str()),
    ];
    for (nth, (check, name)) in checks.iter().enumerate() {
        world.run_ok(&["init", "--validate", check]);
        world.commit_all("Set a check");
        let path = format!("f{nth}.txt");
        start_scripted(&world, &ONE_TASK_PLAN.replace("b.txt", &path));
        let task = format!("T{}", nth + 1);
        wait_for_word(&world, &task, "needs you");
        let view = world.run_json(&["show", &task]);
        assert_eq!(
            (&view["failures"], view["attempts"].as_array().map(Vec::len)),
            (&0.into(), Some(1)),
            "{view}"
        );
        let inbox = world.run_json(&["inbox"]);
        let own: Vec<&Value> = inbox
            .as_array()
            .unwrap()
            .iter()
            .filter(|item| item["task"] == task.as_str())
            .collect();
        assert_eq!(own.len(), 1, "{inbox}");
        let why = own[0]["why"].as_str().unwrap();
        assert!(
            why.contains(&format!("this machine cannot run the command {name}"))
                && why.contains(&format!("regatta retry {task}")),
            "{why}"
        );
    }
    // With a check that can run, the same work lands.
    world.run_ok(&["init", "--validate", "true"]);
    world.commit_all("Set a check that can run");
    world.run_ok(&["retry", "T1"]);
    wait_for_word(&world, "T1", "landed");
}

/// A check that calls a file of the work which the work lacks is a fault of the work.
#[test]
fn a_check_file_that_the_work_lacks_counts_as_a_failed_attempt() {
    let world = World::with_project();
    world.run_ok(&["init", "--validate", "./not-there.sh"]);
    world.commit_all("Set a check");
    start_scripted(&world, ONE_TASK_PLAN);
    wait_for_word(&world, "T1", "failed");
    let attempts = world.run_json(&["show", "T1"])["attempts"].clone();
    assert_eq!(attempts.as_array().map(Vec::len), Some(3), "{attempts}");
}

/// A command that starts the daemon says so on standard error, but not with `--json`.
#[test]
fn a_command_that_starts_the_daemon_says_so() {
    let world = World::with_repo();
    let first = world.run(&["init", "--yes"]);
    assert!(
        first
            .stderr
            .contains("started the daemon, which was not running; to stop it: regatta down"),
        "{first:?}"
    );
    world.commit_all("Use regatta");
    let later = world.run(&["status"]);
    assert!(!later.stderr.contains("started the daemon"), "{later:?}");
    let plan = world.write_plan(ONE_TASK_PLAN);
    let run = ["run", plan.as_str(), "--agents", "scripted", "--yes"];
    for args in [&["stop"][..], &run, &["agent", "rm", "nobody"]] {
        world.run_ok(&["down"]);
        let output = world.run(args);
        assert_eq!(
            output
                .stderr
                .matches("started the daemon, which somebody had stopped")
                .count(),
            1,
            "{args:?}: {output:?}"
        );
    }
    world.run_ok(&["down"]);
    let silent = world.run(&["stop", "--json"]);
    assert_eq!((silent.exit_code, silent.stderr.as_str()), (0, ""));
}

/// A daemon that somebody stopped is a state: `status` prints it with the command to start, and the
/// exit code of a daemon that cannot be reached.
#[test]
fn status_of_a_stopped_daemon_is_an_answer() {
    let world = World::with_project();
    world.run_ok(&["down"]);
    let output = world.run(&["status"]);
    assert_eq!(output.exit_code, 6, "{output:?}");
    assert_eq!(
        output.stdout,
        "the daemon is stopped, because somebody ran regatta down; all work is kept\n\
         hint  start the daemon and its agents: regatta up\n"
    );
    assert_eq!(output.stderr, "");
    assert_eq!(world.run_refused(&["status"], 6)["code"], "down");
    let codes = world.run_ok(&["help", "exit-codes"]);
    assert!(codes.contains("6  the daemon cannot be reached, or somebody stopped it"));
}

/// `config show` prints the limits that `config set` has changed, and a restart keeps them.
#[test]
fn config_show_prints_what_config_set_has_set() {
    let world = World::with_project();
    let value_of = |name: &str| {
        let settings = world.run_json(&["config", "show"]);
        let known = settings.as_array().unwrap();
        let setting = known.iter().find(|setting| setting["name"] == name);
        setting.map(|setting| setting["value"].as_str().unwrap().to_owned())
    };
    assert_eq!(value_of("daemon.silence").as_deref(), Some("15m"));
    for (name, value) in [
        ("max_attempts", "3"),
        ("silence", "90s"),
        ("attempt_disk", "64"),
    ] {
        world.run_ok(&["config", "set", name, value]);
        assert_eq!(
            value_of(&format!("daemon.{name}")).as_deref(),
            Some(value),
            "{name}"
        );
        // Every name that is shown is accepted.
        world.run_ok(&["config", "set", &format!("daemon.{name}"), value]);
    }
    let table = world.run_ok(&["config", "show", "--origin"]);
    assert!(
        table
            .lines()
            .any(|line| line.split_whitespace().collect::<Vec<_>>()
                == ["daemon.max_attempts", "3", "the", "running", "daemon"]),
        "{table}"
    );
    world.run_ok(&["down"]);
    world.run_ok(&["up"]);
    assert_eq!(value_of("daemon.silence").as_deref(), Some("90s"));
    // Without a daemon, only the files count, and nothing is started.
    world.run_ok(&["down"]);
    assert_eq!(value_of("daemon.max_attempts").as_deref(), Some("8"));
    assert_eq!(value_of("daemon.silence"), None);
    assert!(world.processes().is_empty(), "{:?}", world.processes());
}

fn next_of(world: &World, args: &[&str]) -> Vec<String> {
    let output = world.run(&[args, &["--json"]].concat());
    let answer: Value = serde_json::from_str(&output.stdout).unwrap();
    let next = answer["next"].as_array().cloned().unwrap_or_default();
    next.iter()
        .map(|command| command.as_str().unwrap().to_owned())
        .collect()
}

/// After a stop, `stop`, `status` and `why` name the same command, and that command works.
#[test]
fn stop_status_and_why_name_the_same_command() {
    let world = World::with_project();
    start_scripted(&world, HANGING_PLAN);
    wait_for_word(&world, "T1", "working");
    for (stop, command) in [
        (&["stop"][..], "regatta run --resume M1"),
        (&["stop", "M1"], "regatta run --resume M1"),
        (&["stop", "T1"], "regatta resume T1"),
        (&["stop", "scripted"], "regatta resume T1"),
    ] {
        assert_eq!(next_of(&world, stop), [command], "{stop:?}");
        let status = world.run_ok(&["status"]);
        assert!(
            status.contains(&format!("; to continue: {command}\n")),
            "{status}"
        );
        assert!(next_of(&world, &["status"]).contains(&command.to_owned()));
        assert_eq!(next_of(&world, &["why", "T1"])[0], command);
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        world.run_ok(&words);
        wait_for_word(&world, "T1", "working");
    }
    // A task of a stopped mission cannot continue alone, and `resume` says so.
    world.run_ok(&["stop", "M1"]);
    let resumed = world.run_ok(&["resume", "T1"]);
    assert_eq!(
        resumed,
        "T1 is resumed, but M1 is stopped; to continue: regatta run --resume M1\n"
    );
    // Work that does not exist yet cannot be dropped; the task can be given up.
    for task in ["T1", "T2"] {
        let refused = world.run_refused(&["drop", task], 1);
        assert_eq!(
            refused["hint"],
            format!("to give up the task itself: regatta task cancel {task}"),
            "{refused}"
        );
    }
}

/// No line of `status` is a wall of text, and a shortened line comes with the command that prints
/// the whole.
#[test]
fn status_shortens_long_texts_and_names_the_command_for_the_whole() {
    let world = World::with_project();
    start_scripted(&world, HANGING_PLAN);
    wait_for_word(&world, "T1", "working");
    let status = world.run_ok(&["status"]);
    let longest = status.lines().map(|line| line.chars().count()).max();
    assert!(longest.unwrap() <= 170, "{longest:?}: {status}");
    assert!(
        status.contains("see a shortened line whole: regatta why T1\n"),
        "{status}"
    );
    let whole = world.run_ok(&["why", "T1"]);
    assert!(whole.contains("in one line, however wide"), "{whole}");
    let waiting = world.run_ok(&["why", "T2"]);
    assert!(
        waiting.contains("needs T1 \"A subject that says at such length what…\", which is working"),
        "{waiting}"
    );
}

/// Puts a `git` first on the PATH that prints an old version.
fn run_with_old_git(world: &World, args: &[&str]) -> CommandOutput {
    let bin = world.root.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let git = bin.join("git");
    std::fs::write(&git, "#!/bin/sh\necho 'git version 2.34.1'\n").unwrap();
    std::fs::set_permissions(&git, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = world.command(args);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bin.display()));
    run_command(command, None)
}

/// With a git that is too old, every first command names the version that is needed, and starts
/// nothing. The documentation names the same version.
#[test]
fn an_old_git_is_named_before_anything_starts() {
    let world = World::with_repo();
    let (major, minor) = regatta_git::MIN_GIT_VERSION;
    let floor = format!("{major}.{minor}");
    let token = world.root.join("token");
    std::fs::write(&token, "rt_token\n").unwrap();
    let token = token.to_str().unwrap();
    let server = "http://127.0.0.1:9";
    for args in [
        &["doctor"][..],
        &["init", "--yes"],
        &["demo", "--no-input"],
        &["up"],
        &["status"],
        &["runner", "--server", server, "--token-file", token],
    ] {
        let output = run_with_old_git(&world, args);
        let text = format!("{}{}", output.stdout, output.stderr);
        assert_eq!(output.exit_code, 1, "{args:?}: {output:?}");
        assert!(
            text.contains("git 2.34.1 is too old for Regatta")
                && text.contains(&format!("install git {floor} or newer")),
            "{args:?}: {output:?}"
        );
    }
    assert!(!world.repo.join("regatta.toml").exists());
    assert!(world.processes().is_empty(), "{:?}", world.processes());
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for (file, text) in [
        ("docs/platforms.md", format!("| git | {floor} |")),
        ("docs/install.md", format!("git {floor} or later")),
        (
            "packaging/install.sh",
            format!("install git {floor} or later"),
        ),
        ("xtask/src/dist/deb.rs", format!("\"1:{floor}\"")),
    ] {
        let page = std::fs::read_to_string(format!("{root}/{file}")).unwrap();
        assert!(page.contains(&text), "{file} does not contain {text}");
    }
}

/// Without git, every first command names the command that installs it, and starts nothing.
#[test]
fn a_missing_git_is_named_with_the_command_that_installs_it() {
    let world = World::with_repo();
    let bin = world.root.join("bin");
    std::fs::create_dir(&bin).unwrap();
    for args in [
        &["doctor"][..],
        &["init", "--yes"],
        &["demo", "--no-input"],
        &["up"],
        &["status"],
    ] {
        let mut command = world.command(args);
        command.env("PATH", &bin);
        let output = run_command(command, None);
        let text = format!("{}{}", output.stdout, output.stderr);
        assert_eq!(output.exit_code, 1, "{args:?}: {output:?}");
        assert!(
            text.contains("found no program `git`") && text.contains("apt-get install git"),
            "{args:?}: {output:?}"
        );
    }
    assert!(!world.repo.join("regatta.toml").exists());
    assert!(world.processes().is_empty(), "{:?}", world.processes());
}

/// Uncommitted changes are named with the commands that put them aside.
#[test]
fn a_dirty_checkout_is_named_with_the_git_commands() {
    let world = World::with_project();
    world.write_file("a.txt", "changed by hand\n");
    let doctor = world.run_ok(&["doctor"]);
    assert!(
        doctor.lines().any(|line| line.starts_with("! repo")
            && line.contains("changes in a.txt")
            && line.contains("git commit -a, or git stash")),
        "{doctor}"
    );
    let plan = world.write_plan(ONE_TASK_PLAN);
    let run = world.run(&["run", &plan, "--agents", "scripted", "--yes"]);
    assert!(
        run.stderr.contains("git commit -a, or git stash"),
        "{run:?}"
    );
}

/// An agent without a network is not taken for a failing agent: the task waits, no attempt counts
/// as failed, and the reason names the command that shows what the agent may reach.
#[test]
fn an_agent_that_cannot_reach_its_provider_is_named_and_tried_again() {
    let world = World::with_project();
    start_scripted(
        &world,
        "[[task]]\nsubject = \"Write b\"\nfiles = [\"b.txt\"]\nscript = [\
         { fail = { class = \"no_network\", reason = \"getaddrinfo ENOTFOUND api.example.invalid\" } }, \
         { write = { path = \"b.txt\", text = \"b\\n\" } }]\n",
    );
    wait_for_word(&world, "T1", "landed");
    let view = world.run_json(&["show", "T1"]);
    assert_eq!(view["failures"], 0, "{view}");
    let first = &view["attempts"][0];
    let text = first.to_string();
    assert!(
        text.contains("cannot reach its provider: getaddrinfo ENOTFOUND api.example.invalid")
            && text.contains("regatta agent test scripted"),
        "{view}"
    );
}

/// An agent that is not signed in is named with the command that says how to sign in.
#[test]
fn an_agent_that_is_not_signed_in_is_named_with_the_command() {
    let world = World::with_project();
    start_scripted(
        &world,
        "[[task]]\nsubject = \"Write b\"\nfiles = [\"b.txt\"]\n\
         script = [{ fail = { class = \"auth\", reason = \"please log in\" } }]\n",
    );
    let why = || world.run_ok(&["why", "T1"]);
    let fix = "sign in as regatta provider says, then: regatta resume scripted";
    assert!(
        wait_until(TEST_TIMEOUT, || why().contains(fix)),
        "{}",
        why()
    );
    let doctor = world.run_ok(&["doctor"]);
    let line = doctor.lines().find(|line| line.starts_with("! agent "));
    let names_both = |line: &str| {
        line.contains("sign in as regatta provider says")
            && line.ends_with("regatta resume scripted")
    };
    assert!(line.is_some_and(names_both), "{doctor}");
}
