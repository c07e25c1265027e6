//! Tests of sandboxed programs, with every mechanism that works on this machine (S6, S11).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use regatta_agents::confine::{self, Confine, Limits, Mechanism, Network, Prepared};
use regatta_core::agent::Level;
use tempfile::TempDir;

/// A data directory, a user's home and repository, and the directories of one agent.
struct World {
    directory: TempDir,
}

impl World {
    fn new() -> World {
        let it = World { directory: tempfile::Builder::new().prefix("regatta-confine-").tempdir().unwrap() };
        for dir in
            ["data/run", "data/homes/tester", "data/run/tmp", "data/run/outbox", "home/.ssh", "home/listed", "repo"]
        {
            fs::create_dir_all(it.path(dir)).unwrap();
        }
        fs::write(it.path("data/regatta.db"), "the database").unwrap();
        fs::write(it.path("home/.ssh/id_ed25519"), "the ssh key").unwrap();
        fs::write(it.path("home/listed/file"), "a listed file").unwrap();
        fs::write(it.path("data/run/prompt.md"), "the prompt").unwrap();
        // The files are as git would create them, for the tests that do not use git.
        for dir in ["data/vaults/shop.git/objects", "data/workspaces/shop/A1/.git", "data/workspaces/shop/A2/.git"] {
            fs::create_dir_all(it.path(dir)).unwrap();
        }
        for file in [
            "data/workspaces/shop/A2/a.txt",
            "data/workspaces/shop/A2/.git/HEAD",
            "data/vaults/shop.git/config",
            "repo/a.txt",
        ] {
            fs::write(it.path(file), "hello").unwrap();
        }
        it
    }

    fn with_git() -> World {
        let it = World::new();
        it.sh("rm -rf repo/* data/vaults/* data/workspaces/*");
        it.sh("git init -q --bare data/vaults/shop.git");
        it.sh("git init -q repo && echo hello > repo/a.txt && cd repo && git add . && git -c user.name=x -c user.email=x@x commit -qm first && git push -q ../data/vaults/shop.git HEAD:refs/heads/main");
        for name in ["A1", "A2"] {
            it.sh(&format!(
                "git init -q data/workspaces/shop/{name} && cd data/workspaces/shop/{name} && echo $OLDPWD/data/vaults/shop.git/objects > .git/objects/info/alternates && git update-ref HEAD $(git -C ../../../vaults/shop.git rev-parse main) && git reset -q --hard && git config user.name tester && git config user.email t@t"
            ));
        }
        it
    }

    fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.directory.path()).unwrap().join(name)
    }

    fn sh(&self, script: &str) {
        let done =
            Command::new("sh").args(["-ec", script]).current_dir(self.path("")).env("HOME", self.path("")).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn confine(&self, level: Level, mechanism: Mechanism) -> Confine {
        Confine {
            level,
            asked: true,
            mechanism: Some(mechanism),
            network: Network::of(level, None, &[]),
            tools: None,
            limits: Limits::default(),
            program: "sh".to_owned(),
            path: ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from).to_vec(),
            held: false,
            exe: exe(),
            data_dir: self.path("data"),
            run_dir: self.path("data/run"),
            workspace: self.path("data/workspaces/shop/A1"),
            begins: None,
            home: self.path("data/homes/tester"),
            tmp: self.path("data/run/tmp"),
            outbox: self.path("data/run/outbox"),
            vault_objects: Some(self.path("data/vaults/shop.git/objects")),
            inputs: vec![self.path("data/run/prompt.md")],
            real_homes: vec![self.path("home")],
            hidden: vec![self.path("repo")],
            read: vec![self.path("home/listed")],
            write: vec![],
        }
    }

    /// Runs a shell script in the sandbox.
    fn run(&self, prepared: &Prepared, script: &str) -> Output {
        let (program, arguments) = prepared.argv_prefix.split_first().expect("the program is sandboxed");
        let mut command = Command::new(program);
        command.args(arguments).args(["sh", "-c", script]).env_clear().stdin(Stdio::null());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.path("data/homes/tester"));
        command.env("TMPDIR", self.path("data/run/tmp")).env("W", self.path("")).env("LC_ALL", "C");
        command.current_dir(self.path("data/run")).output().unwrap()
    }
}

fn exe() -> PathBuf {
    env!("CARGO_BIN_EXE_agents-fixture").into()
}

/// Returns the mechanisms that work on this machine, of which there must be at least one.
fn working() -> Vec<Mechanism> {
    let report = confine::available(&exe());
    let works = |it: &Mechanism| report.finding(*it).is_some_and(|it| it.broken.is_none());
    let working: Vec<_> = Mechanism::ALL.into_iter().filter(works).collect();
    assert!(!working.is_empty(), "no sandbox mechanism works on this machine: {:?}", report.reasons());
    working
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the scripts one after the other in a sandbox of each mechanism and level. All must succeed,
/// or all must fail.
fn holds(world: fn() -> World, levels: &[Level], possible: bool, scripts: &[&str]) {
    let all: String = scripts.iter().map(|it| format!("( {it}\n) >&2; echo $?\n")).collect();
    for mechanism in working() {
        for level in levels {
            let world = world();
            let prepared = confine::prepare(&world.confine(*level, mechanism)).unwrap();
            let output = world.run(&prepared, &all);
            let said = text(&output.stderr);
            let codes = text(&output.stdout);
            assert_eq!(codes.lines().count(), scripts.len(), "{mechanism} {level:?}: {said}");
            for (script, code) in scripts.iter().zip(codes.lines()) {
                assert_eq!(code == "0", possible, "{mechanism} {level:?} {script:?}: {said}");
            }
        }
    }
}

const BOTH: [Level; 2] = [Level::Workspace, Level::Strict];

#[test]
fn sandboxed_agent_can_work_in_its_workspace_with_git() {
    holds(
        World::with_git,
        &BOTH,
        true,
        &[
            "test \"$(pwd)\" = \"$W/data/workspaces/shop/A1\" || test \"$(pwd -P)\" = \"${W%/}/data/workspaces/shop/A1\"",
            "git status --short && echo more >> a.txt && git diff --quiet; test $? = 1",
            "git add -A && git commit -qm second && git log --oneline | grep -q first && git checkout -q -b mine",
            "echo hi > $HOME/x && echo hi > $TMPDIR/x && mktemp && echo hi > $W/data/run/outbox/r.tmp && mv $W/data/run/outbox/r.tmp $W/data/run/outbox/result.json",
            "grep -q prompt $W/data/run/prompt.md && grep -q listed $W/home/listed/file",
            "mkdir -p d && mv a.txt d/ && ln d/a.txt b.txt && chmod 600 b.txt && rm -r d",
            "echo x > /dev/null && head -c 4 /dev/urandom >/dev/null && cat /proc/self/status >/dev/null && sh -c 'exit 0' | cat",
        ],
    );
}

#[test]
fn s6_a_sandboxed_program_cannot_read_other_files() {
    holds(
        World::new,
        &BOTH,
        false,
        &[
            "cat $W/data/regatta.db",
            "cat $W/home/.ssh/id_ed25519",
            "ls $W/home | grep -v listed | grep .",
            "cat $W/data/workspaces/shop/A2/a.txt",
            "ls $W/data/workspaces/shop/A2/.git",
            "cat $W/repo/a.txt",
            "cat $W/data/vaults/shop.git/config",
            "cat $W/data/run/tmp/.regatta-confine.json && test ! -e /proc/self/root/nonexistent && exit 1",
            "ls /root /home | grep -v : | grep .",
        ],
    );
}

#[test]
fn s6_protected_files_stay_closed_when_a_directory_around_them_is_listed() {
    for mechanism in working() {
        let world = World::new();
        fs::write(world.path("beside"), "beside").unwrap();
        let mut confine = world.confine(Level::Workspace, mechanism);
        confine.write = vec![world.path("")];
        let script = "cat $W/beside $W/home/listed/file; cat $W/data/regatta.db $W/repo/a.txt $W/home/.ssh/id_ed25519 $W/data/workspaces/shop/A2/a.txt; for d in data repo home data/vaults/shop.git/objects; do echo x > $W/$d/evil; done; echo x > w";
        let output = world.run(&confine::prepare(&confine).unwrap(), script);
        assert_eq!(text(&output.stdout), "besidea listed file", "{mechanism}: {}", text(&output.stderr));
        let evil = ["data/evil", "repo/evil", "home/evil", "data/vaults/shop.git/objects/evil"];
        assert!(evil.iter().all(|it| !world.path(it).exists()), "{mechanism}");
        assert!(confine.workspace.join("w").exists(), "{mechanism}: {}", text(&output.stderr));
    }
}

#[test]
fn s6_a_sandboxed_program_cannot_write_other_files() {
    holds(
        World::new,
        &BOTH,
        false,
        &[
            "echo x > $W/data/evil",
            "echo x >> $W/data/regatta.db",
            "echo x > $W/data/vaults/shop.git/objects/evil",
            "echo x > $W/data/workspaces/shop/A2/evil",
            "echo x > $W/home/evil",
            "echo x > $W/home/listed/evil",
            "echo x > $W/repo/evil",
            "echo x > /usr/evil",
            "echo x > /etc/evil",
            "echo x > /evil",
            "mv $W/data/workspaces/shop/A1 $W/data/workspaces/shop/A3",
            "mount -t tmpfs none $TMPDIR",
            ": >> /proc/sys/kernel/core_pattern",
            "unshare -Urm sh -c \"umount -l $W/data; umount -l $W/home; cat $W/data/regatta.db\"",
            "mknod $TMPDIR/sda b 8 0 && cat $TMPDIR/sda",
        ],
    );
}

#[test]
fn s6_a_sandboxed_program_cannot_change_the_vault() {
    for mechanism in working() {
        let world = World::with_git();
        let before = listing(&world.path("data/vaults"));
        let prepared = confine::prepare(&world.confine(Level::Workspace, mechanism)).unwrap();
        let script = "git commit -q --allow-empty -m x; git gc -q --prune=now; rm -rf $W/data/vaults; find $W/data/vaults -type f -exec truncate -s 0 {} +";
        world.run(&prepared, script);
        assert_eq!(listing(&world.path("data/vaults")), before, "{mechanism}");
    }
}

fn listing(dir: &Path) -> String {
    let found = Command::new("find").arg(dir).args(["-type", "f", "-printf", "%p %s %T@\\n"]).output().unwrap();
    assert!(found.status.success());
    let mut lines: Vec<_> = text(&found.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines.join("\n")
}

#[test]
fn s11_a_sandbox_without_network_allows_no_connection() {
    for mechanism in working() {
        let world = World::new();
        let mut confine = world.confine(Level::Workspace, mechanism);
        confine.network = Network::None;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        let ask = format!("bash -c '{script}'");
        let closed = world.run(&confine::prepare(&confine).unwrap(), &ask);
        assert!(!closed.status.success(), "{mechanism}: {}", text(&closed.stderr));
        confine.network = Network::Allowed;
        let open = world.run(&confine::prepare(&confine).unwrap(), &ask);
        assert!(open.status.success(), "{mechanism}: {}", text(&open.stderr));
    }
}

#[test]
fn s11_every_mechanism_allows_only_the_listed_hosts_or_refuses_the_list() {
    use regatta_agents::egress::Gate;
    for mechanism in working() {
        let world = World::new();
        let mut confine = world.confine(Level::Workspace, mechanism);
        let listed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (listed, other) = (listed.local_addr().unwrap(), other.local_addr().unwrap());
        confine.network = Network::Only(vec![listed.to_string()]);
        if mechanism == Mechanism::Landlock {
            assert!(confine::prepare(&confine).unwrap_err().what.contains("Landlock cannot enforce"));
            continue;
        }
        let prepared = confine::prepare(&confine).unwrap();
        confine::verify(&prepared).unwrap();
        let ask = |to| {
            format!(
                "bash -c 'exec 3<>/dev/tcp/127.0.0.1/61080; printf \"CONNECT {to} HTTP/1.1\\r\\n\\r\\n\" >&3; head -1 <&3'\n"
            )
        };
        let straight = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{}' || echo closed\n", listed.port());
        // Without a gate that takes the sockets, the program does not start.
        let unattended = world.run(&prepared, "echo started");
        assert_eq!(text(&unattended.stdout), "", "{mechanism}");
        assert!(text(&unattended.stderr).contains("its shim is not reachable"), "{}", text(&unattended.stderr));

        let gate = Gate::open(&confine.tmp, prepared.ways.clone().unwrap()).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let tell = std::sync::Mutex::new(tell);
        let attend =
            std::thread::spawn(move || gate.attend(std::sync::Arc::new(move |it| drop(tell.lock().unwrap().send(it)))));
        let output = world.run(&prepared, &format!("{}{}{straight}", ask(listed), ask(other)));
        attend.join().unwrap().unwrap();
        let said = text(&output.stdout).replace('\r', "");
        assert_eq!(
            said,
            "HTTP/1.1 200 Connection established\nHTTP/1.1 403 Forbidden\nclosed\n",
            "{mechanism}: {}",
            text(&output.stderr)
        );
        assert_eq!(told.try_iter().map(|it| it.to).collect::<Vec<_>>(), [other.to_string()], "{mechanism}");
    }
}

#[test]
fn s11_a_sandbox_that_fails_its_own_check_stops_the_start() {
    for mechanism in working() {
        let world = World::new();
        let prepared = confine::prepare(&world.confine(Level::Workspace, mechanism)).unwrap();
        confine::verify(&prepared).unwrap();
        // The test changes the settings so that a readable file must be closed.
        let file = world.path("data/run/tmp/.regatta-confine.json");
        let order = fs::read_to_string(&file).unwrap();
        let mut order: serde_json::Value = serde_json::from_str(&order).unwrap();
        let closed = order["checks"]["closed"].as_array_mut().unwrap();
        assert!(closed.iter().any(|it| it.as_str().unwrap().ends_with("regatta.db")), "{closed:?}");
        closed.push(world.path("home/listed/file").to_str().unwrap().into());
        fs::write(&file, order.to_string()).unwrap();
        let output = world.run(&prepared, "echo started");
        assert_eq!(text(&output.stdout), "", "{mechanism}");
        let stderr = text(&output.stderr);
        let why = confine::failure(output.status.code().unwrap(), stderr.lines().last().unwrap()).unwrap();
        assert!(why.contains("home/listed/file could still be read"), "{mechanism}: {why}");
        let error = confine::verify(&prepared).unwrap_err();
        assert!(error.what.contains("could not be set up") && error.what.contains("listed/file"), "{}", error.what);
    }
}

#[test]
fn held_program_starts_only_after_its_shim_releases_it() {
    use regatta_agents::egress::{Gate, Ways};
    for mechanism in working().into_iter().filter(|it| *it != Mechanism::Landlock) {
        let world = World::new();
        let mut confine = world.confine(Level::Workspace, mechanism);
        confine.held = true;
        let start = || {
            let prepared = confine::prepare(&confine).unwrap();
            assert!(prepared.held && prepared.ways.is_none());
            world.run(&prepared, "echo started")
        };
        let alone = start();
        assert_eq!(text(&alone.stdout), "", "{mechanism}");
        assert!(text(&alone.stderr).contains("its shim is not reachable"), "{}", text(&alone.stderr));
        // The settings file is removed, because it is not for the program.
        assert!(!confine.tmp.join(".regatta-confine.json").exists(), "{mechanism}");

        let gate = Gate::open(&confine.tmp, Ways::default()).unwrap();
        let attend = std::thread::spawn(move || gate.attend(std::sync::Arc::new(drop)));
        let output = start();
        attend.join().unwrap().unwrap();
        assert_eq!(text(&output.stdout), "started\n", "{mechanism}: {}", text(&output.stderr));
    }
}

#[test]
fn s11_a_sandbox_that_is_not_available_is_refused_with_the_reason() {
    let world = World::new();
    let mut confine = world.confine(Level::Strict, Mechanism::Landlock);
    confine.network = Network::Only(vec!["api.example.com".to_owned()]);
    assert!(confine::prepare(&confine).unwrap_err().what.contains("Landlock cannot enforce"));

    // An init process that cannot be started makes the mechanism fail.
    let mut confine = world.confine(Level::Strict, Mechanism::Namespaces);
    confine.exe = "/bin/false".into();
    let error = confine::prepare(&confine).unwrap_err();
    assert!(error.what.contains("own namespaces was requested"), "{}", error.what);
    confine.mechanism = None;
    let error = confine::prepare(&confine).unwrap_err();
    assert!(error.what.contains("cannot sandbox a program at level `strict`"), "{}", error.what);
    // A default level that is not available becomes no sandbox with a warning.
    confine.asked = false;
    let prepared = confine::prepare(&confine).unwrap();
    assert!(prepared.argv_prefix.is_empty() && prepared.warnings[0].contains("cannot sandbox"), "{prepared:?}");

    let mut confine = world.confine(Level::Workspace, working()[0]);
    confine.read.push(world.path("data/workspaces"));
    let error = confine::prepare(&confine).unwrap_err();
    assert!(error.what.contains("closed to every sandboxed agent"), "{}", error.what);
    confine.read = vec![world.path("nowhere")];
    assert!(confine::prepare(&confine).unwrap_err().what.contains("is not accessible"));
}

#[test]
fn level_off_has_no_sandbox_and_a_warning() {
    let world = World::new();
    let prepared = confine::prepare(&world.confine(Level::Off, Mechanism::Landlock)).unwrap();
    assert!(prepared.argv_prefix.is_empty() && prepared.warnings[0].contains("has no sandbox"));
}

#[test]
fn limits_are_in_force_and_the_programs_exit_code_is_kept() {
    for mechanism in working() {
        let world = World::new();
        let mut confine = world.confine(Level::Workspace, mechanism);
        confine.limits = Limits { processes: Some(64), memory: Some(256 << 20), file_size: Some(1 << 20) };
        let prepared = confine::prepare(&confine).unwrap();
        let output = world.run(&prepared, "ulimit -c; ulimit -d; ulimit -f; head -c 2000000 /dev/zero > big; exit 7");
        assert_eq!(output.status.code(), Some(7), "{mechanism}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "0\n262144\n2048\n", "{mechanism}");
        assert_eq!(fs::metadata(confine.workspace.join("big")).unwrap().len(), 1 << 20, "{mechanism}");
        // Root is exempt from the limit, and `prepare` warns about that.
        let exempt = rustix::process::getuid().is_root();
        assert_eq!(prepared.warnings.iter().any(|it| it.contains("limit of processes")), exempt);
        if !exempt {
            let storm = "i=0; while [ $i -lt 400 ]; do sleep 1 & i=$((i+1)); done; wait";
            let output = world.run(&prepared, storm);
            let stderr = text(&output.stderr);
            assert!(stderr.contains("fork"), "{mechanism}: {stderr}");
        }
    }
}

#[test]
fn sandboxed_program_cannot_signal_or_inspect_other_processes() {
    for mechanism in working() {
        let world = World::new();
        let prepared = confine::prepare(&world.confine(Level::Workspace, mechanism)).unwrap();
        let mut victim = Command::new("sleep").arg("60").env("SECRET", "s3cret").spawn().unwrap();
        let pid = victim.id();
        let output = world.run(&prepared, &format!("cat /proc/{pid}/environ; ls /proc/{pid}/fd; kill -9 {pid}"));
        let alive = victim.try_wait().unwrap().is_none();
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert!(!text(&output.stdout).contains("s3cret"), "{mechanism}");
        let closed = !prepared.warnings.iter().any(|it| it.contains("Signals"));
        assert!(alive || !closed, "{mechanism}: {}", text(&output.stderr));
    }
}

#[test]
fn program_that_does_not_exist_in_the_sandbox_is_named() {
    for mechanism in working() {
        let world = World::new();
        let prepared = confine::prepare(&world.confine(Level::Workspace, mechanism)).unwrap();
        let (program, arguments) = prepared.argv_prefix.split_first().unwrap();
        let output = Command::new(program).args(arguments).arg("no-such-agent").output().unwrap();
        let stderr = text(&output.stderr);
        let why = confine::failure(output.status.code().unwrap(), stderr.lines().last().unwrap()).unwrap();
        assert!(why.contains("no-such-agent could not be started"), "{mechanism}: {why}");
    }
}
