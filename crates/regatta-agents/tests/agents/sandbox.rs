//! Tests of sandboxed programs, with every mechanism that works on this machine (S6, S11).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use regatta_agents::sandbox::{
    self, NetworkAccess, PreparedSandbox, ResourceLimits, SandboxMechanism, SandboxSpec,
};
use regatta_core::agent::SandboxLevel;
use tempfile::TempDir;

/// A data directory, a user's home and repository, and the directories of one agent.
struct World {
    directory: TempDir,
}

impl World {
    fn new() -> World {
        let world = World {
            directory: tempfile::Builder::new()
                .prefix("regatta-confine-")
                .tempdir()
                .unwrap(),
        };
        for dir in [
            "data/run",
            "data/homes/tester",
            "data/run/tmp",
            "data/run/outbox",
            "home/.ssh",
            "home/listed",
            "repo",
        ] {
            fs::create_dir_all(world.path(dir)).unwrap();
        }
        fs::write(world.path("data/regatta.db"), "the database").unwrap();
        fs::write(world.path("home/.ssh/id_ed25519"), "the ssh key").unwrap();
        fs::write(world.path("home/listed/file"), "a listed file").unwrap();
        fs::write(world.path("data/run/prompt.md"), "the prompt").unwrap();
        // The files are as git would create them, for the tests that do not use git.
        for dir in [
            "data/vaults/shop.git/objects",
            "data/workspaces/shop/A1/.git",
            "data/workspaces/shop/A2/.git",
        ] {
            fs::create_dir_all(world.path(dir)).unwrap();
        }
        for file in [
            "data/workspaces/shop/A2/a.txt",
            "data/workspaces/shop/A2/.git/HEAD",
            "data/vaults/shop.git/config",
            "repo/a.txt",
        ] {
            fs::write(world.path(file), "hello").unwrap();
        }
        world
    }

    fn with_git() -> World {
        let world = World::new();
        world.run_shell("rm -rf repo/* data/vaults/* data/workspaces/*");
        world.run_shell("git init -q --bare data/vaults/shop.git");
        world.run_shell(
            "git init -q repo && echo hello > repo/a.txt && cd repo && git add . && git \
            -c user.name=x -c user.email=x@x commit -qm first && git push -q \
            ../data/vaults/shop.git HEAD:refs/heads/main",
        );
        for name in ["A1", "A2"] {
            world.run_shell(&format!(
                "git init -q data/workspaces/shop/{name} && cd data/workspaces/shop/{name} && \
                echo $OLDPWD/data/vaults/shop.git/objects > .git/objects/info/alternates && git \
                update-ref HEAD $(git -C ../../../vaults/shop.git rev-parse main) && git reset -q \
                --hard && git config user.name tester && git config user.email t@t"
            ));
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.directory.path()).unwrap().join(name)
    }

    fn run_shell(&self, script: &str) {
        let done = Command::new("sh")
            .args(["-ec", script])
            .current_dir(self.path(""))
            .env("HOME", self.path(""))
            .output();
        let done = done.unwrap();
        assert!(
            done.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    fn sandbox_spec(&self, level: SandboxLevel, mechanism: SandboxMechanism) -> SandboxSpec {
        SandboxSpec {
            level,
            is_requested: true,
            mechanism: Some(mechanism),
            network: NetworkAccess::from_profile(level, None, &[]),
            tools_url: None,
            limits: ResourceLimits::default(),
            program: "sh".to_owned(),
            search_path: ["/usr/local/bin", "/usr/bin", "/bin"]
                .map(PathBuf::from)
                .to_vec(),
            waits_for_shim: false,
            regatta_exe: fixture_exe(),
            data_dir: self.path("data"),
            run_dir: self.path("data/run"),
            workspace: self.path("data/workspaces/shop/A1"),
            start_dir: None,
            home: self.path("data/homes/tester"),
            tmp: self.path("data/run/tmp"),
            outbox: self.path("data/run/outbox"),
            vault_objects: Some(self.path("data/vaults/shop.git/objects")),
            input_files: vec![self.path("data/run/prompt.md")],
            user_homes: vec![self.path("home")],
            hidden_paths: vec![self.path("repo")],
            read_paths: vec![self.path("home/listed")],
            write_paths: vec![],
        }
    }

    /// Runs a shell script in the sandbox.
    fn run_sandboxed(&self, prepared: &PreparedSandbox, script: &str) -> Output {
        let (program, arguments) = prepared
            .argv_prefix
            .split_first()
            .expect("the program is sandboxed");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args(["sh", "-c", script])
            .env_clear()
            .stdin(Stdio::null());
        command
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("data/homes/tester"));
        command
            .env("TMPDIR", self.path("data/run/tmp"))
            .env("W", self.path(""))
            .env("LC_ALL", "C");
        command.current_dir(self.path("data/run")).output().unwrap()
    }
}

fn fixture_exe() -> PathBuf {
    env!("CARGO_BIN_EXE_agents-fixture").into()
}

/// Returns the mechanisms that work on this machine, of which there must be at least one.
fn working_mechanisms() -> Vec<SandboxMechanism> {
    let report = sandbox::detect_mechanisms(&fixture_exe());
    let works = |sandbox_mechanism: &SandboxMechanism| {
        report
            .finding(*sandbox_mechanism)
            .is_some_and(|mechanism_finding| mechanism_finding.problem.is_none())
    };
    let working: Vec<_> = SandboxMechanism::ALL.into_iter().filter(works).collect();
    assert!(
        !working.is_empty(),
        "no sandbox mechanism works on this machine: {:?}",
        report.problems()
    );
    working
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the scripts one after the other in a sandbox of each mechanism and level. All must succeed,
/// or all must fail.
fn check_scripts(world: fn() -> World, levels: &[SandboxLevel], possible: bool, scripts: &[&str]) {
    let all_scripts: String = scripts
        .iter()
        .map(|script| format!("( {script}\n) >&2; echo $?\n"))
        .collect();
    for mechanism in working_mechanisms() {
        for level in levels {
            let world = world();
            let prepared = sandbox::prepare(&world.sandbox_spec(*level, mechanism)).unwrap();
            let output = world.run_sandboxed(&prepared, &all_scripts);
            let errors = text(&output.stderr);
            let codes = text(&output.stdout);
            assert_eq!(
                codes.lines().count(),
                scripts.len(),
                "{mechanism} {level:?}: {errors}"
            );
            for (script, code) in scripts.iter().zip(codes.lines()) {
                assert_eq!(
                    code == "0",
                    possible,
                    "{mechanism} {level:?} {script:?}: {errors}"
                );
            }
        }
    }
}

const SANDBOXED_LEVELS: [SandboxLevel; 2] = [SandboxLevel::Workspace, SandboxLevel::Strict];

#[test]
fn sandboxed_agent_can_work_in_its_workspace_with_git() {
    check_scripts(
        World::with_git,
        &SANDBOXED_LEVELS,
        true,
        &[
            "test \"$(pwd)\" = \"$W/data/workspaces/shop/A1\" || test \"$(pwd -P)\" \
            = \"${W%/}/data/workspaces/shop/A1\"",
            "git status --short && echo more >> a.txt && git diff --quiet; test $? = 1",
            "git add -A && git commit -qm second && git log --oneline | grep -q first && git \
            checkout -q -b mine",
            "echo hi > $HOME/x && echo hi > $TMPDIR/x && mktemp && echo hi > \
            $W/data/run/outbox/r.tmp && mv $W/data/run/outbox/r.tmp \
            $W/data/run/outbox/result.json",
            "grep -q prompt $W/data/run/prompt.md && grep -q listed $W/home/listed/file",
            "mkdir -p d && mv a.txt d/ && ln d/a.txt b.txt && chmod 600 b.txt && rm -r d",
            "echo x > /dev/null && head -c 4 /dev/urandom >/dev/null && cat /proc/self/status \
            >/dev/null && sh -c 'exit 0' | cat",
        ],
    );
}

#[test]
fn s6_a_sandboxed_program_cannot_read_other_files() {
    check_scripts(
        World::new,
        &SANDBOXED_LEVELS,
        false,
        &[
            "cat $W/data/regatta.db",
            "cat $W/home/.ssh/id_ed25519",
            "ls $W/home | grep -v listed | grep .",
            "cat $W/data/workspaces/shop/A2/a.txt",
            "ls $W/data/workspaces/shop/A2/.git",
            "cat $W/repo/a.txt",
            "cat $W/data/vaults/shop.git/config",
            "cat $W/data/run/tmp/.regatta-confine.json && test ! -e /proc/self/root/nonexistent \
            && exit 1",
            "ls /root /home | grep -v : | grep .",
        ],
    );
}

#[test]
fn s6_protected_files_stay_closed_when_a_directory_around_them_is_listed() {
    for mechanism in working_mechanisms() {
        let world = World::new();
        fs::write(world.path("beside"), "beside").unwrap();
        let mut spec = world.sandbox_spec(SandboxLevel::Workspace, mechanism);
        spec.write_paths = vec![world.path("")];
        let script = "cat $W/beside $W/home/listed/file; cat $W/data/regatta.db $W/repo/a.txt \
            $W/home/.ssh/id_ed25519 $W/data/workspaces/shop/A2/a.txt; for d in data repo home \
            data/vaults/shop.git/objects; do echo x > $W/$d/evil; done; echo x > w";
        let output = world.run_sandboxed(&sandbox::prepare(&spec).unwrap(), script);
        assert_eq!(
            text(&output.stdout),
            "besidea listed file",
            "{mechanism}: {}",
            text(&output.stderr)
        );
        let evil = [
            "data/evil",
            "repo/evil",
            "home/evil",
            "data/vaults/shop.git/objects/evil",
        ];
        assert!(
            evil.iter().all(|evil| !world.path(evil).exists()),
            "{mechanism}"
        );
        assert!(
            spec.workspace.join("w").exists(),
            "{mechanism}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn s6_a_sandboxed_program_cannot_write_other_files() {
    check_scripts(
        World::new,
        &SANDBOXED_LEVELS,
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
    for mechanism in working_mechanisms() {
        let world = World::with_git();
        let before = list_files(&world.path("data/vaults"));
        let prepared =
            sandbox::prepare(&world.sandbox_spec(SandboxLevel::Workspace, mechanism)).unwrap();
        let script = "git commit -q --allow-empty -m x; git gc -q --prune=now; rm -rf \
            $W/data/vaults; find $W/data/vaults -type f -exec truncate -s 0 {} +";
        world.run_sandboxed(&prepared, script);
        assert_eq!(
            list_files(&world.path("data/vaults")),
            before,
            "{mechanism}"
        );
    }
}

fn list_files(dir: &Path) -> String {
    let found = Command::new("find")
        .arg(dir)
        .args(["-type", "f", "-printf", "%p %s %T@\\n"])
        .output()
        .unwrap();
    assert!(found.status.success());
    let mut lines: Vec<_> = text(&found.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines.join("\n")
}

#[test]
fn s11_a_sandbox_without_network_allows_no_connection() {
    for mechanism in working_mechanisms() {
        let world = World::new();
        let mut spec = world.sandbox_spec(SandboxLevel::Workspace, mechanism);
        spec.network = NetworkAccess::None;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        let ask = format!("bash -c '{script}'");
        let closed = world.run_sandboxed(&sandbox::prepare(&spec).unwrap(), &ask);
        assert!(
            !closed.status.success(),
            "{mechanism}: {}",
            text(&closed.stderr)
        );
        spec.network = NetworkAccess::Allowed;
        let open = world.run_sandboxed(&sandbox::prepare(&spec).unwrap(), &ask);
        assert!(open.status.success(), "{mechanism}: {}", text(&open.stderr));
    }
}

#[test]
fn s11_every_mechanism_allows_only_the_listed_hosts_or_refuses_the_list() {
    use regatta_agents::egress::EgressGate;
    for mechanism in working_mechanisms() {
        let world = World::new();
        let mut spec = world.sandbox_spec(SandboxLevel::Workspace, mechanism);
        let listed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let unlisted = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (listed, unlisted) = (listed.local_addr().unwrap(), unlisted.local_addr().unwrap());
        spec.network = NetworkAccess::Only(vec![listed.to_string()]);
        if mechanism == SandboxMechanism::Landlock {
            assert!(
                sandbox::prepare(&spec)
                    .unwrap_err()
                    .message
                    .contains("Landlock cannot enforce")
            );
            continue;
        }
        let prepared = sandbox::prepare(&spec).unwrap();
        sandbox::verify(&prepared).unwrap();
        let connect_through = |to| {
            format!(
                "bash -c 'exec 3<>/dev/tcp/127.0.0.1/61080; printf \"CONNECT {to} \
                HTTP/1.1\\r\\n\\r\\n\" >&3; head -1 <&3'\n"
            )
        };
        let connect_directly = format!(
            "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{}' || echo closed\n",
            listed.port()
        );
        // Without a gate that takes the sockets, the program does not start.
        let unattended = world.run_sandboxed(&prepared, "echo started");
        assert_eq!(text(&unattended.stdout), "", "{mechanism}");
        assert!(
            text(&unattended.stderr)
                .contains("the supervisor process outside the sandbox is not reachable"),
            "{}",
            text(&unattended.stderr)
        );

        let gate = EgressGate::open(&spec.tmp, prepared.egress_routes.clone().unwrap()).unwrap();
        let (sender, refusals) = std::sync::mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let server = std::thread::spawn(move || {
            gate.serve_any(std::sync::Arc::new(move |refused| {
                drop(sender.lock().unwrap().send(refused))
            }))
        });
        let output = world.run_sandboxed(
            &prepared,
            &format!(
                "{}{}{connect_directly}",
                connect_through(listed),
                connect_through(unlisted)
            ),
        );
        server.join().unwrap().unwrap();
        let answers = text(&output.stdout).replace('\r', "");
        assert_eq!(
            answers,
            "HTTP/1.1 200 Connection established\nHTTP/1.1 403 Forbidden\nclosed\n",
            "{mechanism}: {}",
            text(&output.stderr)
        );
        assert_eq!(
            refusals
                .try_iter()
                .map(|refused| refused.to)
                .collect::<Vec<_>>(),
            [unlisted.to_string()],
            "{mechanism}"
        );
    }
}

#[test]
fn s11_a_sandbox_that_fails_its_own_check_stops_the_start() {
    for mechanism in working_mechanisms() {
        let world = World::new();
        let prepared =
            sandbox::prepare(&world.sandbox_spec(SandboxLevel::Workspace, mechanism)).unwrap();
        sandbox::verify(&prepared).unwrap();
        // The test changes the settings so that a readable file must be closed.
        let file = world.path("data/run/tmp/.regatta-confine.json");
        let order = fs::read_to_string(&file).unwrap();
        let mut order: serde_json::Value = serde_json::from_str(&order).unwrap();
        let closed = order["checks"]["closed"].as_array_mut().unwrap();
        assert!(
            closed
                .iter()
                .any(|closed| closed.as_str().unwrap().ends_with("regatta.db")),
            "{closed:?}"
        );
        closed.push(world.path("home/listed/file").to_str().unwrap().into());
        fs::write(&file, order.to_string()).unwrap();
        let output = world.run_sandboxed(&prepared, "echo started");
        assert_eq!(text(&output.stdout), "", "{mechanism}");
        let stderr = text(&output.stderr);
        let reason = sandbox::failure_reason(
            output.status.code().unwrap(),
            stderr.lines().last().unwrap(),
        )
        .unwrap();
        assert!(
            reason.contains("home/listed/file could still be read"),
            "{mechanism}: {reason}"
        );
        let error = sandbox::verify(&prepared).unwrap_err();
        assert!(
            error.message.contains("could not be set up") && error.message.contains("listed/file"),
            "{}",
            error.message
        );
    }
}

#[test]
fn held_program_starts_only_after_its_shim_releases_it() {
    use regatta_agents::egress::{EgressGate, EgressRoutes};
    for mechanism in working_mechanisms()
        .into_iter()
        .filter(|sandbox_mechanism| *sandbox_mechanism != SandboxMechanism::Landlock)
    {
        let world = World::new();
        let mut spec = world.sandbox_spec(SandboxLevel::Workspace, mechanism);
        spec.waits_for_shim = true;
        let start = || {
            let prepared = sandbox::prepare(&spec).unwrap();
            assert!(prepared.waits_for_shim && prepared.egress_routes.is_none());
            world.run_sandboxed(&prepared, "echo started")
        };
        let alone = start();
        assert_eq!(text(&alone.stdout), "", "{mechanism}");
        assert!(
            text(&alone.stderr)
                .contains("the supervisor process outside the sandbox is not reachable"),
            "{}",
            text(&alone.stderr)
        );
        // The settings file is removed, because it is not for the program.
        assert!(
            !spec.tmp.join(".regatta-confine.json").exists(),
            "{mechanism}"
        );

        let gate = EgressGate::open(&spec.tmp, EgressRoutes::default()).unwrap();
        let attend = std::thread::spawn(move || gate.serve_any(std::sync::Arc::new(drop)));
        let output = start();
        attend.join().unwrap().unwrap();
        assert_eq!(
            text(&output.stdout),
            "started\n",
            "{mechanism}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn s11_a_sandbox_that_is_not_available_is_refused_with_the_reason() {
    let world = World::new();
    let mut spec = world.sandbox_spec(SandboxLevel::Strict, SandboxMechanism::Landlock);
    spec.network = NetworkAccess::Only(vec!["api.example.com".to_owned()]);
    assert!(
        sandbox::prepare(&spec)
            .unwrap_err()
            .message
            .contains("Landlock cannot enforce")
    );

    // An init process that cannot be started makes the mechanism fail.
    let mut spec = world.sandbox_spec(SandboxLevel::Strict, SandboxMechanism::Namespaces);
    spec.regatta_exe = "/bin/false".into();
    let error = sandbox::prepare(&spec).unwrap_err();
    assert!(
        error.message.contains("own namespaces was requested"),
        "{}",
        error.message
    );
    spec.mechanism = None;
    let error = sandbox::prepare(&spec).unwrap_err();
    assert!(
        error
            .message
            .contains("cannot sandbox a program at level `strict`"),
        "{}",
        error.message
    );
    // A default level that is not available becomes no sandbox with a warning.
    spec.is_requested = false;
    let prepared = sandbox::prepare(&spec).unwrap();
    assert!(
        prepared.argv_prefix.is_empty() && prepared.warnings[0].contains("cannot sandbox"),
        "{prepared:?}"
    );

    let mut spec = world.sandbox_spec(SandboxLevel::Workspace, working_mechanisms()[0]);
    spec.read_paths.push(world.path("data/workspaces"));
    let error = sandbox::prepare(&spec).unwrap_err();
    assert!(
        error.message.contains("closed to every sandboxed agent"),
        "{}",
        error.message
    );
    spec.read_paths = vec![world.path("nowhere")];
    assert!(
        sandbox::prepare(&spec)
            .unwrap_err()
            .message
            .contains("is not accessible")
    );
}

#[test]
fn level_off_has_no_sandbox_and_a_warning() {
    let world = World::new();
    let prepared =
        sandbox::prepare(&world.sandbox_spec(SandboxLevel::Off, SandboxMechanism::Landlock))
            .unwrap();
    assert!(prepared.argv_prefix.is_empty() && prepared.warnings[0].contains("has no sandbox"));
}

#[test]
fn limits_are_in_force_and_the_programs_exit_code_is_kept() {
    for mechanism in working_mechanisms() {
        let world = World::new();
        let mut spec = world.sandbox_spec(SandboxLevel::Workspace, mechanism);
        spec.limits = ResourceLimits {
            processes: Some(64),
            memory: Some(256 << 20),
            file_size: Some(1 << 20),
        };
        let prepared = sandbox::prepare(&spec).unwrap();
        let output = world.run_sandboxed(
            &prepared,
            "ulimit -c; ulimit -d; ulimit -f; head -c 2000000 /dev/zero > big; exit 7",
        );
        assert_eq!(
            output.status.code(),
            Some(7),
            "{mechanism}: {}",
            text(&output.stderr)
        );
        assert_eq!(text(&output.stdout), "0\n262144\n2048\n", "{mechanism}");
        assert_eq!(
            fs::metadata(spec.workspace.join("big")).unwrap().len(),
            1 << 20,
            "{mechanism}"
        );
        // Root is exempt from the limit, and `prepare` warns about that.
        let exempt = rustix::process::getuid().is_root();
        assert_eq!(
            prepared
                .warnings
                .iter()
                .any(|warning| warning.contains("limit of processes")),
            exempt
        );
        if !exempt {
            let storm = "i=0; while [ $i -lt 400 ]; do sleep 1 & i=$((i+1)); done; wait";
            let output = world.run_sandboxed(&prepared, storm);
            let stderr = text(&output.stderr);
            assert!(stderr.contains("fork"), "{mechanism}: {stderr}");
        }
    }
}

#[test]
fn sandboxed_program_cannot_signal_or_inspect_other_processes() {
    for mechanism in working_mechanisms() {
        let world = World::new();
        let prepared =
            sandbox::prepare(&world.sandbox_spec(SandboxLevel::Workspace, mechanism)).unwrap();
        let mut victim = Command::new("sleep")
            .arg("60")
            .env("SECRET", "s3cret")
            .spawn()
            .unwrap();
        let pid = victim.id();
        let output = world.run_sandboxed(
            &prepared,
            &format!("cat /proc/{pid}/environ; ls /proc/{pid}/fd; kill -9 {pid}"),
        );
        let alive = victim.try_wait().unwrap().is_none();
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert!(!text(&output.stdout).contains("s3cret"), "{mechanism}");
        let closed = !prepared
            .warnings
            .iter()
            .any(|warning| warning.contains("Signals"));
        assert!(alive || !closed, "{mechanism}: {}", text(&output.stderr));
    }
}

#[test]
fn program_that_does_not_exist_in_the_sandbox_is_named() {
    for mechanism in working_mechanisms() {
        let world = World::new();
        let prepared =
            sandbox::prepare(&world.sandbox_spec(SandboxLevel::Workspace, mechanism)).unwrap();
        let (program, arguments) = prepared.argv_prefix.split_first().unwrap();
        let output = Command::new(program)
            .args(arguments)
            .arg("no-such-agent")
            .output()
            .unwrap();
        let stderr = text(&output.stderr);
        let reason = sandbox::failure_reason(
            output.status.code().unwrap(),
            stderr.lines().last().unwrap(),
        )
        .unwrap();
        assert!(
            reason.contains("no-such-agent could not be started"),
            "{mechanism}: {reason}"
        );
    }
}
