//! Runners: processes with their own data directory that work for the daemon over HTTP.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::http;
use crate::world::{CommandOutput, TEST_TIMEOUT, World, kill_process, wait_for_child, wait_until};

/// A runner of a world. It is killed when the value is dropped.
struct RunnerFixture {
    child: Option<Child>,
    data_dir: PathBuf,
}

impl RunnerFixture {
    /// Starts a runner for the world's daemon, and waits until the daemon lists it as up.
    fn start(world: &World, name: &str, flags: &[&str]) -> RunnerFixture {
        let token = world.root.join(format!("{name}.token"));
        if !token.exists() {
            std::fs::write(
                &token,
                world.run_ok(&["token", "add", name, "--scope", "runner"]),
            )
            .unwrap();
        }
        let url = world.daemon_info().unwrap()["url"]
            .as_str()
            .unwrap()
            .to_owned();
        let data = world.root.join(format!("runner-{name}"));
        let base = [
            "runner",
            "--server",
            &url,
            "--token-file",
            token.to_str().unwrap(),
            "--name",
            name,
        ];
        let mut command = world.command(&[&base, flags].concat());
        command
            .env("REGATTA_DATA_DIR", &data)
            .env("REGATTA_LOG", "debug");
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let runner = RunnerFixture {
            child: Some(child),
            data_dir: data,
        };
        let up = || runner_state(world, name).as_deref() == Some("up");
        assert!(wait_until(TEST_TIMEOUT, up), "{}", runner.log());
        runner
    }

    fn log(&self) -> String {
        format!("the runner at {} did not come up", self.data_dir.display())
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Kills the runner itself. Its programs go on.
    fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        kill_process(child.id());
        child.wait().unwrap();
    }

    /// Terminates the runner and waits for its end.
    fn stop(mut self) -> CommandOutput {
        let child = self.child.take().unwrap();
        terminate(child.id());
        wait_for_child(child, TEST_TIMEOUT).expect("the runner did not end")
    }
}

impl Drop for RunnerFixture {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            kill_process(child.id());
            let _ended = child.wait();
        }
    }
}

fn terminate(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

fn runner_state(world: &World, name: &str) -> Option<String> {
    let all = world.run_json(&["runner", "list"]);
    let found = all
        .as_array()
        .unwrap()
        .iter()
        .find(|runner| runner["name"] == name)?
        .clone();
    found["state"].as_str().map(str::to_owned)
}

/// Returns a task that writes a file, reports it, and waits for a gate.
fn waiting_task(id: &str, file: &str, gate: &Path) -> String {
    format!(
        "[[task]]\nid = \"{id}\"\nsubject = \"Write {file}\"\nfiles = [\"{file}\"]\n\
         script = [{{ write = {{ path = \"{file}\", text = \"{file}\\n\" }} }}, {{ say = \"wrote \
         {file}\" }}, \
         {{ run = \"while [ ! -e {gate} ]; do sleep 0.02; done\" }}]\n",
        gate = gate.display()
    )
}

/// Adds an agent that runs only on runners.
pub(crate) fn add_runner_agent(world: &World) {
    let shape = [
        "--runtime",
        "scripted",
        "--max-tasks",
        "9",
        "--label",
        "far",
        "--confine",
        "off",
    ];
    world.run_ok(&[&["agent", "add", "far"][..], &shape].concat());
}

/// Creates a world whose agent runs only on runners, and returns the path of the gate.
fn world_with_runner_agent() -> (World, PathBuf) {
    let world = World::with_project();
    add_runner_agent(&world);
    let gate = world.root.join("gate");
    (world, gate)
}

fn start_plan(world: &World, plan: &str) -> String {
    let path = world.write_plan(plan);
    let data = world.run_json(&["run", &path, "--agents", "far"]);
    data["mission"]
        .as_str()
        .or(data["id"].as_str())
        .unwrap()
        .to_owned()
}

fn attempts(world: &World) -> Vec<Value> {
    let tasks = world.run_json(&["status"])["tasks"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    tasks
        .iter()
        .filter(|task| task["attempt"].is_string())
        .cloned()
        .collect()
}

fn transcript_contains(world: &World, attempt: &str, text: &str) -> bool {
    world.run(&["logs", attempt]).stdout.contains(text)
}

fn have_landed(world: &World, subjects: &[&str]) -> bool {
    let log = world.git(&["log", "--format=%s"]);
    subjects
        .iter()
        .all(|subject| log.lines().filter(|line| line == subject).count() == 1)
}

/// Work at a runner from start to end: fetched, done, reported, captured, checked and sent back,
/// and landed here. Nothing is left at the runner.
#[test]
fn work_at_a_runner_lands_and_leaves_nothing_there() {
    let (world, gate) = world_with_runner_agent();
    let runner = RunnerFixture::start(
        &world,
        "box",
        &["--labels", "far,linux", "--max-tasks", "3"],
    );
    std::fs::write(&gate, "").unwrap();
    let plan = format!(
        "{}{}blocked_by = [\"a\"]\n",
        waiting_task("a", "one.txt", &gate),
        waiting_task("b", "two.txt", &gate)
    );
    let path = world.write_plan(&plan);
    let (mission, ran) = world.run_json_any_exit(&["run", &path, "--agents", "far", "--wait"]);
    assert_eq!(ran.exit_code, 0, "{mission} {ran:?}");
    assert!(have_landed(&world, &["Write one.txt", "Write two.txt"]));
    assert_eq!(
        world.read_file("one.txt"),
        "one.txt\n",
        "the checkout follows the trunk"
    );
    let first = world.run_json(&["show", "A1"]);
    assert_eq!(
        (&first["runner"], &first["ended"]["cause"]),
        (&"box".into(), &"submitted".into())
    );
    assert!(
        transcript_contains(&world, "A1", "wrote one.txt"),
        "the transcript must be at the daemon"
    );
    // The runner removes its workspaces.
    let cleared = || workspaces(&runner.data_dir).is_empty();
    assert!(
        wait_until(TEST_TIMEOUT, cleared),
        "{:?}",
        workspaces(&runner.data_dir)
    );
    assert!(!world.data_dir.join("workspaces/shop/A1").exists());
    let ran = runner.stop();
    assert_eq!(
        (
            ran.exit_code,
            ran.stderr.contains("no work was left unfinished")
        ),
        (0, true),
        "{ran:?}"
    );
    assert_eq!(runner_state(&world, "box").as_deref(), Some("offline"));
}

fn workspaces(data: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(data.join("workspaces/shop"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('A'))
        .collect()
}

/// P1, J2: killing the daemon or the runner neither ends a program nor starts a second one.
#[test]
fn p1_j2_a_program_goes_on_when_the_runner_or_the_daemon_is_killed() {
    let (world, gate) = world_with_runner_agent();
    let mut runner = RunnerFixture::start(&world, "box", &["--labels", "far"]);
    start_plan(&world, &waiting_task("a", "one.txt", &gate));
    assert!(wait_until(TEST_TIMEOUT, || transcript_contains(
        &world,
        "A1",
        "wrote one.txt"
    )));

    kill_process(world.daemon_info().unwrap()["pid"].as_u64().unwrap() as u32);
    world.run_ok(&["up"]);
    runner.kill();
    let again = RunnerFixture::start(&world, "box", &["--labels", "far"]);
    kill_process(world.daemon_info().unwrap()["pid"].as_u64().unwrap() as u32);
    world.run_ok(&["up"]);

    std::fs::write(&gate, "").unwrap();
    assert!(
        wait_until(TEST_TIMEOUT, || have_landed(&world, &["Write one.txt"])),
        "{:?}",
        attempts(&world)
    );
    let started = world
        .events()
        .iter()
        .filter(|event| event["kind"] == "attempt.started")
        .count();
    assert_eq!(started, 1, "there must be one attempt");
    let output = world
        .run_ok(&["logs", "A1"])
        .matches("wrote one.txt")
        .count();
    assert_eq!(output, 1, "P2: output was lost or repeated");
    drop(again);
}

/// SIGTERM with three running attempts. With time to finish they finish. Without it they are
/// stopped, their work is kept, and their tasks wait again. The runner reports the result.
#[test]
fn sigterm_lets_three_attempts_finish_or_stops_them_and_reports_it() {
    let (world, gate) = world_with_runner_agent();
    let runner = RunnerFixture::start(&world, "box", &["--labels", "far", "--max-tasks", "3"]);
    let plan: String = ["a", "b", "c"]
        .iter()
        .map(|name| waiting_task(name, &format!("{name}.md"), &gate))
        .collect();
    start_plan(&world, &plan);
    let all = || {
        ["A1", "A2", "A3"]
            .iter()
            .all(|task| transcript_contains(&world, task, "wrote"))
    };
    assert!(wait_until(TEST_TIMEOUT, all));
    terminate(runner.pid());
    assert!(wait_until(TEST_TIMEOUT, || runner_state(&world, "box")
        .as_deref()
        == Some("draining")));
    std::fs::write(&gate, "").unwrap();
    assert!(wait_until(TEST_TIMEOUT, || have_landed(
        &world,
        &["Write a.md", "Write b.md", "Write c.md"]
    )));
    let mut runner = runner;
    let output = wait_for_child(runner.child.take().unwrap(), TEST_TIMEOUT).unwrap();
    assert!(
        output.stderr.contains("3 running attempts")
            && output.stderr.contains("no work was left unfinished"),
        "{output:?}"
    );

    // With a timeout of zero the attempts are stopped.
    std::fs::remove_file(&gate).unwrap();
    let runner = RunnerFixture::start(
        &world,
        "box",
        &[
            "--labels",
            "far",
            "--max-tasks",
            "3",
            "--shutdown-timeout",
            "0",
        ],
    );
    let plan: String = ["d", "e", "f"]
        .iter()
        .map(|name| waiting_task(name, &format!("{name}.md"), &gate))
        .collect();
    start_plan(&world, &plan);
    let all = || {
        ["A4", "A5", "A6"]
            .iter()
            .all(|task| transcript_contains(&world, task, "wrote"))
    };
    assert!(wait_until(TEST_TIMEOUT, all));
    let data = runner.data_dir.clone();
    let output = runner.stop();
    assert!(
        output
            .stderr
            .contains("3 attempts were stopped before they finished"),
        "{output:?}"
    );
    // A process that served the runner, such as git, ends when it notices the end of the runner.
    let nothing_runs = || crate::world::processes_of(&data).is_empty();
    assert!(wait_until(TEST_TIMEOUT, nothing_runs), "P3");
    for s in ["A4", "A5", "A6"] {
        let ended = world.run_json(&["show", s])["ended"].clone();
        assert_eq!(ended["cause"], "lost", "{ended}");
        let vault = world.data_dir.join("vaults/shop.git");
        let kept = world.git_in(
            &vault,
            &["ls-tree", "--name-only", &format!("refs/regatta/keep/{s}")],
        );
        assert!(
            kept.lines().any(|kept| kept.ends_with(".md")),
            "Q3: {s} is kept: {kept}"
        );
    }
    // Another runner takes over the tasks.
    std::fs::write(&gate, "").unwrap();
    let _other = RunnerFixture::start(&world, "other", &["--labels", "far", "--max-tasks", "3"]);
    assert!(wait_until(TEST_TIMEOUT, || have_landed(
        &world,
        &["Write d.md", "Write e.md", "Write f.md"]
    )));
}

/// Q11, S10: a runner's token can fetch, can push only the results of its own attempts, and cannot
/// act for another runner.
#[test]
fn q11_s10_a_runners_token_reaches_only_its_own_work() {
    let (world, gate) = world_with_runner_agent();
    let _runner = RunnerFixture::start(&world, "box", &["--labels", "far"]);
    start_plan(&world, &waiting_task("a", "one.txt", &gate));
    assert!(wait_until(TEST_TIMEOUT, || transcript_contains(
        &world,
        "A1",
        "wrote one.txt"
    )));
    let url = world.daemon_info().unwrap()["url"]
        .as_str()
        .unwrap()
        .trim_end_matches('/')
        .to_owned();
    let runner_token = std::fs::read_to_string(world.root.join("box.token")).unwrap();
    let theirs = world.run_ok(&["token", "add", "stranger", "--scope", "runner"]);
    let clone = world.root.join("clone");
    let header = |token: &str| format!("http.extraHeader=Authorization: Bearer {}", token.trim());
    let git_url = |path: &str| format!("{url}/git/{path}");
    let git = |token: &str, args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command
            .args(["-c", &header(token)])
            .args(args)
            .current_dir(&world.root);
        world.clean_environment(&mut command);
        command.env("GIT_TERMINAL_PROMPT", "0");
        crate::world::run_command(command, None)
    };
    assert_ne!(
        git("nonsense", &["clone", "-q", &git_url("shop"), "clone"]).exit_code,
        0,
        "S1"
    );
    assert_eq!(
        git(&runner_token, &["clone", "-q", &git_url("shop"), "clone"]).exit_code,
        0
    );
    world.git_in(
        &clone,
        &["commit", "-q", "--allow-empty", "-m", "Not wanted"],
    );
    let push = |token: &str, to: &str| {
        git(
            token,
            &[
                "-C",
                clone.to_str().unwrap(),
                "push",
                "-q",
                &git_url("shop"),
                to,
            ],
        )
        .exit_code
    };
    assert_ne!(push(&runner_token, "HEAD:refs/heads/main"), 0);
    assert_ne!(push(&runner_token, "HEAD:refs/heads/new"), 0);
    assert_ne!(push(&runner_token, "HEAD:refs/regatta/keep/A99"), 0);
    assert_ne!(push(&theirs, "HEAD:refs/regatta/keep/A1"), 0);
    assert_eq!(push(&runner_token, "HEAD:refs/regatta/keep/A1"), 0);
    assert_eq!(
        git(
            &runner_token,
            &["ls-remote", "--exit-code", &git_url("nowhere")]
        )
        .exit_code,
        128
    );

    let session = world
        .events()
        .iter()
        .rfind(|event| event["kind"] == "runner.registered")
        .unwrap()["data"]["runner"]["session"]
        .clone();
    let body = serde_json::json!({ "runner": "box", "session": session }).to_string();
    let beat = |token: &str| {
        let headers = [
            ("host", "localhost".into()),
            ("authorization", format!("Bearer {}", token.trim())),
        ];
        http::ApiClient::for_data_dir(&world.data_dir)
            .request_over_tcp("POST", "/api/v1/runner.beat", &headers, body.as_bytes())
            .status
    };
    assert_eq!((beat(&runner_token), beat(&theirs)), (200, 409));
    std::fs::write(&gate, "").unwrap();
    assert!(wait_until(TEST_TIMEOUT, || have_landed(
        &world,
        &["Write one.txt"]
    )));
}

/// A runner that cannot connect reports the reason and starts nothing.
#[test]
fn a_runner_that_cannot_connect_reports_why() {
    let world = World::with_project();
    let url = world.daemon_info().map_or_else(
        || {
            world.run_ok(&["up"]);
            world.daemon_info().unwrap()["url"]
                .as_str()
                .unwrap()
                .to_owned()
        },
        |world| world["url"].as_str().unwrap().to_owned(),
    );
    let file = world.root.join("token");
    std::fs::write(&file, "nonsense").unwrap();
    let file = file.to_str().unwrap();
    let data = world.root.join("other");
    let run = |args: &[&str]| {
        let mut command = world.command(args);
        command.env("REGATTA_DATA_DIR", &data);
        crate::world::run_command(command, None)
    };
    let wrong = run(&[
        "runner",
        "--server",
        &url,
        "--token-file",
        file,
        "--name",
        "box",
    ]);
    assert!(
        wrong.exit_code != 0 && wrong.stderr.contains("token"),
        "{wrong:?}"
    );
    let none = run(&[
        "runner",
        "--server",
        &url,
        "--token-file",
        "/nowhere",
        "--name",
        "box",
    ]);
    assert!(
        none.exit_code != 0 && none.stderr.contains("regatta token add"),
        "{none:?}"
    );
    assert_eq!(
        run(&[
            "runner",
            "--server",
            &url,
            "--token-file",
            file,
            "--max-tasks",
            "0"
        ])
        .exit_code,
        2
    );
    assert_eq!(
        run(&[
            "runner",
            "--server",
            &url,
            "--token-file",
            file,
            "--name",
            "a b"
        ])
        .exit_code,
        2
    );
    // Without a daemon the runner retries, and can be ended meanwhile.
    let mut command = world.command(&[
        "runner",
        "--server",
        "http://127.0.0.1:1",
        "--token-file",
        file,
        "--name",
        "box",
    ]);
    command
        .env("REGATTA_DATA_DIR", &data)
        .env("REGATTA_LOG", "warn");
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut err = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut err, &mut first).unwrap();
    assert!(first.contains("trying again"), "{first}");
    terminate(child.id());
    assert!(wait_until(Duration::from_secs(20), || child
        .try_wait()
        .unwrap()
        .is_some()));
}

/// Over TLS, calls and git both trust the authority of `REGATTA_TLS_CA`. Without it the runner
/// cannot connect.
#[test]
fn a_runner_works_over_tls() {
    let world = World::with_repo();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (world.root.join("cert.pem"), world.root.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let card = world.run_json(&[
        "up",
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        cert,
        "--tls-key",
        key,
    ]);
    let outside = card["outside"]
        .as_str()
        .unwrap_or_else(|| panic!("{card}"))
        .to_owned();
    assert!(outside.starts_with("https://127.0.0.1:"), "{card}");
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Use regatta");
    let more = ["--max-tasks", "9", "--label", "far", "--confine", "off"];
    world.run_ok(&[&["agent", "add", "far", "--runtime", "scripted"][..], &more].concat());
    let token = world.root.join("box.token");
    std::fs::write(
        &token,
        world.run_ok(&["token", "add", "box", "--scope", "runner"]),
    )
    .unwrap();
    let start = |ca: &str| {
        let args = [
            "runner",
            "--server",
            &outside,
            "--token-file",
            token.to_str().unwrap(),
            "--name",
            "box",
        ];
        let mut command = world.command(&[&args[..], &["--labels", "far"]].concat());
        command
            .env("REGATTA_DATA_DIR", world.root.join("runner-box"))
            .env("REGATTA_TLS_CA", ca);
        command
            .env("REGATTA_LOG", "warn")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    // A runner that does not know the authority never registers.
    let mut stranger = start("/dev/null");
    let mut first = String::new();
    let mut err = std::io::BufReader::new(stranger.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut err, &mut first).unwrap();
    assert!(
        first.contains("certificate") && first.contains("trying again"),
        "{first}"
    );
    assert_eq!(runner_state(&world, "box"), None);
    kill_process(stranger.id());
    stranger.wait().unwrap();

    let runner = RunnerFixture {
        child: Some(start(cert)),
        data_dir: world.root.join("runner-box"),
    };
    assert!(
        wait_until(TEST_TIMEOUT, || runner_state(&world, "box").as_deref()
            == Some("up")),
        "{}",
        runner.log()
    );
    let gate = world.root.join("gate");
    std::fs::write(&gate, "").unwrap();
    start_plan(&world, &waiting_task("a", "one.txt", &gate));
    assert!(
        wait_until(TEST_TIMEOUT, || have_landed(&world, &["Write one.txt"])),
        "{:?}",
        attempts(&world)
    );
    assert!(transcript_contains(&world, "A1", "wrote one.txt"));
    let output = runner.stop();
    assert_eq!(output.exit_code, 0, "{output:?}");
}

/// Work from a runner that conflicts with the trunk gets a fix-up at a runner. The fix-up sees the
/// conflict, and its result lands.
#[test]
fn a_fixup_runs_at_a_runner_and_lands() {
    let (world, gate) = world_with_runner_agent();
    let runner = RunnerFixture::start(&world, "box", &["--labels", "far", "--max-tasks", "3"]);
    // The program settles conflict marks if it finds any, and otherwise writes its own line.
    let script = format!(
        "[[task]]\nid = \"a\"\nsubject = \"Change one line\"\nfiles = [\"a.txt\"]\n\
         script = [{{ run = \"if grep -q '^<<<<<<<' a.txt; then printf 'both\\\\n' > a.txt; else \
         printf 'mine\\\\n' > a.txt; fi\" }}, \
         {{ say = \"wrote it\" }}, {{ run = \"while [ ! -e {gate} ]; do sleep 0.02; done\" }}]\n",
        gate = gate.display()
    );
    start_plan(&world, &script);
    assert!(
        wait_until(TEST_TIMEOUT, || transcript_contains(
            &world, "A1", "wrote it"
        )),
        "{:?}",
        attempts(&world)
    );
    // A person changes the same line in the meantime.
    world.write_file("a.txt", "theirs\n");
    world.commit_all("Ann was first");
    std::fs::write(&gate, "").unwrap();
    let landed = wait_until(TEST_TIMEOUT, || have_landed(&world, &["Change one line"]));
    assert!(
        landed,
        "{}\n{}",
        world.run_ok(&["why", "T1"]),
        world.run_ok(&["status"])
    );
    // The ref moves first, the checkout right after it.
    assert!(
        wait_until(TEST_TIMEOUT, || world.read_file("a.txt") == "both\n"),
        "{}",
        world.read_file("a.txt")
    );
    let second = world.run_json(&["show", "A2"]);
    assert_eq!(
        second["runner"], "box",
        "the fix-up ran at the runner: {second}"
    );
    // Results that were sent back are not kept at the runner.
    let vault = runner.data_dir.join("vaults/shop.git");
    let keep_refs = || world.git_in(&vault, &["for-each-ref", "refs/regatta/keep/"]);
    assert!(
        wait_until(TEST_TIMEOUT, || workspaces(&runner.data_dir).is_empty()
            && keep_refs().is_empty()),
        "{}",
        keep_refs()
    );
    let here = world.data_dir.join("vaults/shop.git");
    for s in ["A1", "A2"] {
        world.git_in(
            &here,
            &["rev-parse", "--verify", &format!("refs/regatta/keep/{s}")],
        );
    }
    runner.stop();
    // An agent whose runner has left is offline until the runner returns.
    let far = || {
        world
            .run_json(&["agent", "list"])
            .as_array()
            .unwrap()
            .iter()
            .find(|world| world["name"] == "far")
            .cloned()
            .unwrap()
    };
    assert_eq!(
        (&far()["state"], &far()["offline"]),
        (&"offline".into(), &"its runner box has left".into())
    );
    let _again = RunnerFixture::start(&world, "box", &["--labels", "far"]);
    assert_eq!(
        (&far()["state"], &far()["offline"]),
        (&"idle".into(), &Value::Null)
    );
    // Draining is logged once, however long it takes.
    let entries = world.run_json(&["audit", "--verb", "runner.drain"]);
    assert_eq!(entries.as_array().map(Vec::len), Some(1), "{entries}");
}

/// A setup fault at a runner does not count as a failure. A person is notified once, with the fix.
#[test]
fn a_git_fault_at_a_runner_is_not_counted_as_a_failure() {
    let (world, _) = world_with_runner_agent();
    world.write_file(".gitattributes", "*.utf16 working-tree-encoding=UTF-16\n");
    world.commit_all("Keep some files in another encoding");
    let _runner = RunnerFixture::start(&world, "box", &["--labels", "far"]);
    start_plan(
        &world,
        "[[task]]\nid = \"a\"\nsubject = \"Write it\"\nfiles = [\"note.utf16\"]\n\
         script = [{ write = { path = \"note.utf16\", text = \"plain\\n\" } }]\n",
    );
    let needs_person = || world.run_json(&["show", "T1"])["word"] == "needs you";
    assert!(
        wait_until(TEST_TIMEOUT, needs_person),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let task = world.run_json(&["show", "T1"]);
    assert_eq!(
        (&task["failures"], task["attempts"].as_array().map(Vec::len)),
        (&0.into(), Some(1)),
        "{task}"
    );
    let reason = task["reason"].as_str().unwrap();
    assert!(
        reason.contains("note.utf16") && reason.contains("working-tree-encoding"),
        "{reason}"
    );
    assert_eq!(world.run_json(&["show", "A1"])["runner"], "box");
}

/// A runner sees only that its fetch fails. The daemon finds the grafts in its repository and names
/// the fix.
#[test]
fn grafts_that_break_a_runners_fetch_are_not_counted_as_a_failure() {
    let (world, gate) = world_with_runner_agent();
    world.write_file("b.txt", "b\n");
    world.commit_all("Third");
    let tip = world.git(&["rev-parse", "HEAD"]);
    let info = world.repo.join(".git/info");
    std::fs::create_dir_all(&info).unwrap();
    std::fs::write(info.join("grafts"), format!("{tip} {}\n", "1".repeat(40))).unwrap();
    std::fs::write(&gate, "").unwrap();
    let _runner = RunnerFixture::start(&world, "box", &["--labels", "far"]);
    start_plan(&world, &waiting_task("a", "one.txt", &gate));
    let needs_person = || world.run_json(&["show", "T1"])["word"] == "needs you";
    assert!(
        wait_until(TEST_TIMEOUT, needs_person),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let task = world.run_json(&["show", "T1"]);
    assert_eq!(
        (&task["failures"], task["attempts"].as_array().map(Vec::len)),
        (&0.into(), Some(1)),
        "{task}"
    );
    let reason = task["reason"].as_str().unwrap();
    assert!(
        reason.contains("info/grafts") && reason.contains("git replace --convert-graft-file"),
        "{reason}"
    );
}

/// Starts a runner without extra logging, and returns the process and the file of its output.
fn start_quiet_runner(world: &World, url: &str) -> (Child, PathBuf) {
    let token = world.root.join("quiet.token");
    let text = world.run_ok(&["token", "add", "quiet", "--scope", "runner"]);
    std::fs::write(&token, text).unwrap();
    let log = world.root.join("quiet.log");
    let mut command = world.command(&[
        "runner",
        "--server",
        url,
        "--token-file",
        token.to_str().unwrap(),
        "--name",
        "quiet",
    ]);
    command
        .env("REGATTA_DATA_DIR", world.root.join("runner-quiet"))
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap());
    (command.spawn().unwrap(), log)
}

/// Without -v, a runner reports that it cannot reach its daemon, why, and that it tries again.
#[test]
fn a_runner_reports_that_it_cannot_reach_its_daemon() {
    let world = World::with_project();
    let url = world.daemon_info().unwrap()["url"]
        .as_str()
        .unwrap()
        .to_owned();
    let (mut runner, log) = start_quiet_runner(&world, &url);
    let text = || std::fs::read_to_string(&log).unwrap();
    let has = |part: &str| wait_until(TEST_TIMEOUT, || text().contains(part));
    assert!(has("the runner quiet works for"), "{}", text());
    world.run_ok(&["down"]);
    assert!(
        has("could not reach the daemon at http://127.0.0.1:"),
        "{}",
        text()
    );
    let lost = text();
    assert!(
        lost.contains("trying again until it answers: ") && !lost.contains("ERROR"),
        "{lost}"
    );
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap();
    world.run_ok(&["up", "--listen", &format!("127.0.0.1:{port}")]);
    assert!(has("reached the daemon at"), "{}", text());
    terminate(runner.id());
    runner.wait().unwrap();
    assert_eq!(text().matches("could not reach").count(), 1, "{}", text());
}

/// Draining and stopping a runner is normal, so the runner logs no error.
#[test]
fn a_drained_runner_stops_without_an_error() {
    let world = World::with_project();
    let url = world.daemon_info().unwrap()["url"]
        .as_str()
        .unwrap()
        .to_owned();
    let (mut runner, log) = start_quiet_runner(&world, &url);
    let text = || std::fs::read_to_string(&log).unwrap();
    let is_up = || runner_state(&world, "quiet").as_deref() == Some("up");
    assert!(wait_until(TEST_TIMEOUT, is_up), "{}", text());
    world.run_ok(&["runner", "drain", "quiet"]);
    terminate(runner.id());
    assert!(runner.wait().unwrap().success(), "{}", text());
    let text = text();
    assert!(
        text.contains("stopped: no work was left unfinished") && !text.contains("ERROR"),
        "{text}"
    );
}
