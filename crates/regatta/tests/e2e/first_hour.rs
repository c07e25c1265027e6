//! The first hour on a machine without an agent's program. No message misleads, and each suggested
//! command works.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::{CommandOutput, TEST_TIMEOUT, World, run_command, wait_until};

/// The programs of a machine without agents.
const BASE_TOOLS: [&str; 5] = ["git", "sh", "env", "cat", "make"];

/// Returns the path of a tool of this machine.
fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

/// A machine on which only these agent programs are installed. Each program only prints its
/// version.
struct FreshMachine<'w> {
    world: &'w World,
    path: PathBuf,
}

impl FreshMachine<'_> {
    fn new<'w>(world: &'w World, programs: &[&str]) -> FreshMachine<'w> {
        let path = world.root.join("bin");
        std::fs::create_dir(&path).unwrap();
        for name in BASE_TOOLS {
            if let Some(program) = find_tool(name) {
                symlink(program, path.join(name)).unwrap();
            }
        }
        for name in programs {
            std::fs::write(path.join(name), "#!/bin/sh\necho 1.2.3\n").unwrap();
            std::fs::set_permissions(path.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        }
        FreshMachine { world, path }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.world.command(args);
        command.env("PATH", &self.path);
        command
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        run_command(self.command(args), None)
    }

    #[track_caller]
    fn run_ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.exit_code, 0, "{args:?}: {output:?}");
        output.stdout
    }
}

/// Returns a section of the README.
fn readme_section(section: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(file).unwrap();
    let (_, rest) = text.split_once(&format!("## {section}\n")).unwrap();
    rest.split("\n## ").next().unwrap().to_owned()
}

/// Returns the text between `cat > NAME <<'PLAN'` and `PLAN` in the README's first five minutes.
fn readme_plan(name: &str) -> String {
    let text = readme_section("Five minutes");
    let (_, plan) = text
        .split_once(&format!("cat > {name} <<'PLAN'\n"))
        .unwrap();
    plan.split("\nPLAN\n").next().unwrap().to_owned() + "\n"
}

/// Without any agent program the messages name the commands that install one, and the demo that
/// needs none.
#[test]
fn without_agent_programs_messages_name_the_installation_and_the_demo() {
    let world = World::with_repo();
    let machine = FreshMachine::new(&world, &[]);
    let output = machine.run_ok(&["init"]);
    assert!(
        !output.contains("router") && !output.contains("chat"),
        "{output}"
    );
    let output = machine.run_ok(&["provider"]);
    let first = "not installed; each can be installed with:\n  claude          npm install -g \
        @agentclientprotocol/";
    assert!(output.starts_with(first), "{output}");

    let result = machine.run(&[
        "agent",
        "add",
        "claude-1",
        "--preset",
        "claude",
        "--max-tasks",
        "2",
    ]);
    let expected = "error: The program `claude-agent-acp` of claude is not installed.\n  \
                    hint Install it: npm install -g @agentclientprotocol/claude-agent-acp\n       \
                    Or watch a rehearsal that needs no program: regatta demo\n       \
                    Or register it all the same, with --anyway\n";
    assert_eq!((result.exit_code, result.stderr.as_str()), (4, expected));

    let plan = world.write_plan(&readme_plan("plan.toml"));
    let result = machine.run(&["run", &plan, "--wait"]);
    assert_eq!(result.exit_code, 4);
    assert!(
        result.stderr.contains(
            "regatta provider\n       or watch scripted agents that need no program: regatta demo\n"
        ),
        "{}",
        result.stderr
    );

    let result = machine.run(&["doctor"]);
    assert_eq!(result.exit_code, 0);
    assert!(
        result
            .stdout
            .contains("! providers  no agent program is installed"),
        "{}",
        result.stdout
    );
    assert!(!result.stdout.contains("no problems"), "{}", result.stdout);
}

/// A plan without scripts is refused for scripted agents before it is shown. The error has a script
/// that fits the first task and lands.
#[test]
fn a_scripted_run_without_scripts_is_refused_with_a_script_that_lands() {
    let world = World::with_repo();
    let machine = FreshMachine::new(&world, &[]);
    machine.run_ok(&["init"]);
    world.commit_all("Use regatta");
    let text = "[[task]]\nsubject = \"Add a limiter\"\nfiles = [\"src/limit.rs\"]\n";
    let plan = world.write_plan(text);
    let output = machine.run(&["run", &plan, "--agents", "scripted", "--wait"]);
    assert_eq!(
        (output.exit_code, output.stdout.as_str()),
        (4, ""),
        "{output:?}"
    );
    assert!(
        output.stderr.starts_with(
            "error: no agent can do this: \"Add a limiter\" has no script, and its agents are \
             scripted agents"
        ),
        "{}",
        output.stderr
    );
    let (_, script) = output.stderr.split_once("as in ").unwrap();
    let script = script.lines().next().unwrap();
    let plan = world.write_plan(&format!("{text}{script}\n"));
    machine.run_ok(&["run", &plan, "--agents", "scripted", "--wait"]);
    assert_eq!(world.read_file("src/limit.rs"), "Hello\n");
}

/// The rehearsal plan of the README lands unchanged.
#[test]
fn the_rehearsal_plan_of_the_readme_lands() {
    let world = World::with_repo();
    let machine = FreshMachine::new(&world, &[]);
    machine.run_ok(&["init"]);
    world.commit_all("Use regatta");
    let plan = world.write_plan(&readme_plan("rehearsal.toml"));
    let output = machine.run_ok(&["run", &plan, "--agents", "scripted", "--wait"]);
    assert!(output.contains("2 of 2 landed"), "{output}");
}

/// With only Claude Code installed, the error names the complete command that works, and `agent
/// add` reports the missing sign-in.
#[test]
fn with_only_claude_code_the_error_names_the_preset_that_works() {
    let world = World::with_repo();
    let machine = FreshMachine::new(&world, &["claude"]);
    machine.run_ok(&["init"]);
    let result = machine.run(&["agent", "add", "claude-1", "--preset", "claude"]);
    let now =
        "       Or use what is installed: regatta agent add claude-1 --preset claude-native\n";
    assert_eq!(result.exit_code, 4);
    assert!(result.stderr.contains(now), "{}", result.stderr);
    let output = machine.run_ok(&["agent", "add", "claude-1", "--preset", "claude-native"]);
    assert!(
        output.contains(
            "! claude-1 does not seem to be signed in\n  hint: sign in with claude /login\n"
        ),
        "{output}"
    );
    let key = "or add an API key: export ANTHROPIC_API_KEY=…; regatta agent add claude-1 --preset \
               claude-native; \
               regatta up --restart";
    assert!(output.contains(key), "{output}");
    let mut with_key = machine.command(&["agent", "add", "claude-1", "--preset", "claude-native"]);
    with_key.env("ANTHROPIC_API_KEY", "sk-of-a-test");
    let command_output = run_command(with_key, None);
    assert!(
        command_output
            .stdout
            .contains("ANTHROPIC_API_KEY=… regatta up --restart"),
        "the daemon lacks the variable: {command_output:?}"
    );
    let mut up = machine.command(&["up", "--restart"]);
    up.env("ANTHROPIC_API_KEY", "sk-of-a-test");
    assert_eq!(run_command(up, None).exit_code, 0);
    let output = machine.run_ok(&["agent", "show", "claude-1"]);
    assert!(!output.contains('!'), "a warning is left: {output}");
}

/// `init` reports that `make test` cannot pass in a repository without a Makefile, before it fails
/// every task.
#[test]
fn init_notes_a_check_that_cannot_pass() {
    let world = World::with_repo();
    let output = world.run_ok(&["init", "--validate", "make test"]);
    let note = "note    `make test` cannot pass: there is no Makefile here (regatta init \
        --validate 'sh ./test.sh')\n";
    assert!(output.contains(note), "{output}");
    world.write_file("Makefile", "test:\n\tsh ./test.sh\n");
    assert!(
        !world
            .run_ok(&["init", "--validate", "make test"])
            .contains("cannot pass")
    );
}

/// `why` offers only commands that work for a task that needs a person because nothing changed.
#[test]
fn why_does_not_offer_to_land_a_task_without_changes() {
    let world = World::with_project();
    let plan = world.write_plan(
        "[[task]]\nsubject = \"Write it\"\nfiles = [\"note.txt\"]\nscript = [{ say = \"done\" }]\n",
    );
    assert_eq!(
        world
            .run(&["run", &plan, "--agents", "scripted", "--wait"])
            .exit_code,
        3
    );
    assert!(wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])
        ["word"]
        == "needs you"));
    let explanation = world.run_ok(&["why", "T1"]);
    assert!(!explanation.contains("regatta land T1"), "{explanation}");
    for way in [
        "regatta logs T1",
        "regatta retry T1",
        "regatta task cancel T1",
    ] {
        assert!(
            explanation.contains(&format!("try    {way} ")),
            "{explanation}"
        );
    }
    let diff = world.run_ok(&["diff", "T1"]);
    assert!(diff.contains("changes of A1; T1 needs you\n"), "{diff}");
    let logs = world.run_ok(&["logs", "T1"]);
    assert!(logs.ends_with("done\n"), "{logs:?}");
    let refused = world.run_refused(&["tell", "T99", "hello"], 1);
    assert!(
        refused["message"].as_str().unwrap().contains("T99"),
        "{refused}"
    );
    world.run_ok(&["task", "cancel", "T1"]);
    let refused = world.run_refused(&["tell", "T1", "hello"], 1);
    assert_eq!(refused["message"], "T1 was already cancelled");
}

/// `why` names each answer to a task's permission request, with its meaning.
#[test]
fn why_names_each_answer_to_a_permission_request() {
    let world = World::with_project();
    let plan = world.write_plan(
        "[[task]]\nsubject = \"Write it\"\nfiles = [\"note.txt\"]\n\
         script = [{ permission = { what = \"npm install zod\" } }, { write = { path = \
         \"note.txt\", text = \"x\" } }]\n",
    );
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes"]);
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["inbox"])[0]["id"] == "Q1"),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let explanation = world.run_ok(&["why", "T1"]);
    for way in [
        "regatta allow Q1 ",
        "regatta allow Q1 --for task",
        "regatta deny Q1 ",
    ] {
        assert!(
            explanation.contains(&format!("try    {way}")),
            "{way}: {explanation}"
        );
    }
    world.run_ok(&["allow", "Q1"]);
}

/// A settings file and the project agree after `init --validate`, and a project without a check is
/// named by `doctor`.
#[test]
fn init_writes_new_checks_into_an_existing_settings_file() {
    let world = World::with_repo();
    world.git(&["rm", "-q", "test.sh"]);
    let output = world.run_ok(&["init"]);
    assert!(output.contains("regatta init --validate"), "{output}");
    let doctor = world.run(&["doctor"]).stdout;
    assert!(
        doctor.contains("tasks that change files do not start"),
        "{doctor}"
    );
    world.run_ok(&["init", "--validate", "true"]);
    let file = std::fs::read_to_string(world.repo.join("regatta.toml")).unwrap();
    assert!(
        file.contains("commands = [\"true\"]   # must pass"),
        "{file}"
    );
    assert!(world.run_ok(&["init"]).contains("checks  true\n"));
    world.write_file(
        "regatta.toml",
        "[validation]\ncommands = [\n  \"true\",\n]\n",
    );
    let error = world.run_refused(&["init", "--validate", "false"], 2);
    assert!(
        error["hint"].as_str().unwrap().contains("edit `commands`"),
        "{error}"
    );
}

/// `init` proposes an agent for each program that is installed and signed in, and `--yes` adds it.
#[test]
fn init_proposes_agents_and_adds_them_on_request() {
    let world = World::with_repo();
    let machine = FreshMachine::new(&world, &["claude"]);
    let with_key = |args: &[&str]| {
        let mut command = machine.command(args);
        command.env("ANTHROPIC_API_KEY", "sk-of-a-test");
        run_command(command, None)
    };
    let proposed = with_key(&["init", "--json"]);
    assert!(!proposed.stdout.contains("\"agents\""), "{proposed:?}");
    // Without a terminal nobody can be asked, so the agents that were found are listed.
    let listed = with_key(&["init"]);
    let offer = "offer   regatta agent add claude-1 --preset claude-native\n";
    assert!(listed.stdout.contains(offer), "{listed:?}");
    let added = with_key(&["init", "--yes"]);
    assert!(added.stdout.contains("agents  claude-1\n"), "{added:?}");
    let agents = world.run_ok(&["agent", "list"]);
    assert!(agents.contains("claude-1"), "{agents}");
    let again = with_key(&["init", "--yes"]);
    assert!(!again.stdout.contains("agents  "), "{again:?}");
}

/// The home of a person with a shell, and the arguments that this person uses.
fn init_in_shell(world: &World, shell: &str, package: &Path, args: &[&str]) -> CommandOutput {
    let mut command = world.command(&[&["init"], args].concat());
    command
        .env("SHELL", format!("/bin/{shell}"))
        .env("XDG_DATA_DIRS", package);
    run_command(command, None)
}

/// `init` names the completions and the manual and where they would be, and writes them only on
/// request. It never changes a file that Regatta did not write.
#[test]
fn init_offers_completions_and_the_manual() {
    let world = World::with_repo();
    let share = world.root.join("home/.local/share");
    let package = world.root.join("package");
    let files = [
        ("bash", "bash-completion/completions/regatta"),
        ("zsh", "zsh/site-functions/_regatta"),
        ("fish", "fish/vendor_completions.d/regatta.fish"),
    ];
    for (shell, file) in files {
        let file = share.join(file);
        let offered = init_in_shell(&world, shell, &package, &[]);
        let offer = format!("offer   completions for {shell} to {}", file.display());
        assert!(
            offered.exit_code == 0 && offered.stdout.contains(&offer),
            "{offered:?}"
        );
        assert!(
            offered.stdout.contains(": regatta init --yes\n"),
            "{offered:?}"
        );
        assert!(!file.exists(), "written without consent");
        let wrote = init_in_shell(&world, shell, &package, &["--yes"]);
        let line = format!("wrote   completions for {shell} to {}", file.display());
        assert!(wrote.stdout.contains(&line), "{wrote:?}");
        assert_eq!(
            wrote.stdout.contains("fpath=("),
            shell == "zsh",
            "{wrote:?}"
        );
        let written = std::fs::read_to_string(&file).unwrap();
        assert!(
            written.starts_with(&world.run_ok(&["completions", shell])),
            "{written}"
        );
        let again = init_in_shell(&world, shell, &package, &["--yes"]).stdout;
        assert!(!again.contains("completions"), "{again}");
    }
    let page = share.join("man/man1/regatta.1");
    let manual = std::fs::read_to_string(&page).unwrap();
    assert!(manual.starts_with(&world.run_ok(&["man"])), "{manual}");
    assert!(share.join("man/man1/regatta-doctor.1").is_file());

    // A file of an older version is renewed, and a file of the user stays.
    let (own, foreign) = (share.join(files[0].1), share.join(files[1].1));
    let mark = std::fs::read_to_string(&own).unwrap();
    let mark = mark.lines().last().unwrap();
    std::fs::write(&own, format!("old\n{mark}\n")).unwrap();
    std::fs::write(&foreign, "mine\n").unwrap();
    let renewed = init_in_shell(&world, "bash", &package, &["--yes", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&renewed.stdout).unwrap();
    assert_eq!(
        answer["data"]["shell_files"],
        serde_json::json!([own.to_str().unwrap()])
    );
    let kept = init_in_shell(&world, "zsh", &package, &["--yes"]).stdout;
    assert!(!kept.contains("completions"), "{kept}");
    assert_eq!(std::fs::read_to_string(&foreign).unwrap(), "mine\n");
}

/// `init` offers nothing that a package has installed, and nothing without a shell that it knows.
#[test]
fn init_offers_nothing_that_a_package_has_installed() {
    let world = World::with_repo();
    let share = world.root.join("home/.local/share");
    let package = world.root.join("package");
    for file in [
        "bash-completion/completions/regatta",
        "man/man1/regatta.1.gz",
    ] {
        let file = package.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
    }
    for shell in ["bash", "tcsh"] {
        let output = init_in_shell(&world, shell, &package, &["--yes"]);
        assert!(
            output.exit_code == 0 && !output.stdout.contains("completions"),
            "{output:?}"
        );
    }
    let only_completions = init_in_shell(&world, "fish", &package, &[]).stdout;
    assert!(
        only_completions.contains("offer   completions for fish to ")
            && !only_completions.contains("manual"),
        "{only_completions}"
    );
    assert!(!share.join("bash-completion").exists() && !share.join("man").exists());
}
