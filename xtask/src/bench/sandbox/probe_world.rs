//! The world of the probes: a data directory, a user's home and repository, and foreign processes.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};
use regatta_agents::sandbox::{
    NetworkAccess, PreparedSandbox, ResourceLimits, SandboxMechanism, SandboxSpec,
};
use regatta_core::agent::SandboxLevel;

/// A data directory, a user's home and repository, and a foreign process and sockets.
pub(super) struct ProbeWorld {
    directory: tempfile::TempDir,
    shared: tempfile::TempDir,
    /// A process that does not belong to the agent.
    victim: Child,
    /// A port on this machine that does not belong to the agent.
    pub(super) tcp: TcpListener,
    abstract_name: String,
    _unix: UnixListener,
    _abstract: UnixListener,
}

impl ProbeWorld {
    pub(super) fn new() -> anyhow::Result<ProbeWorld> {
        let directory = tempfile::Builder::new()
            .prefix("regatta-sandbox-")
            .tempdir_in("/var/tmp")?;
        let shared = tempfile::Builder::new()
            .prefix("regatta-sandbox-")
            .tempdir_in("/tmp")?;
        std::fs::write(shared.path().join("secret"), "somebody else's")?;
        std::fs::create_dir_all(directory.path().join("home"))?;
        let abstract_name = directory
            .path()
            .file_name()
            .context("the directory has a name")?
            .to_string_lossy()
            .into_owned();
        let unix = UnixListener::bind(directory.path().join("home/socket"))?;
        let address = SocketAddr::from_abstract_name(abstract_name.as_bytes())?;
        let world = ProbeWorld {
            victim: Command::new("sleep")
                .arg("600")
                .env("S3CRET", "S3CRET")
                .stdin(Stdio::null())
                .spawn()?,
            tcp: TcpListener::bind("127.0.0.1:0")?,
            _unix: unix,
            _abstract: UnixListener::bind_addr(&address)?,
            directory,
            shared,
            abstract_name,
        };
        world.reset()?;
        Ok(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Restores the world for the next probe.
    pub(super) fn reset(&self) -> anyhow::Result<()> {
        let script = "
            if [ -d keep ]; then rm -rf data/vaults data/workspaces/shop/A[12] repo; cp -a keep/. .; else
            mkdir -p data/workspaces/shop data/homes/tester data/run/tmp data/run/outbox home/.ssh home/listed home/login repo
            git init -q --bare data/vaults/shop.git; git init -q repo; cd repo; echo hello > a.txt; git add .
            git -c user.name=x -c user.email=x@x commit -qm first; git push -q ../data/vaults/shop.git HEAD:refs/heads/main; cd ..
            for a in A1 A2; do git init -q data/workspaces/shop/$a; (cd data/workspaces/shop/$a
              echo $W/data/vaults/shop.git/objects > .git/objects/info/alternates
              git update-ref HEAD $(git -C $W/data/vaults/shop.git rev-parse main); git reset -q --hard
              git config user.name tester; git config user.email t@t); done
            mkdir -p keep/data/workspaces/shop; cp -a data/vaults keep/data/; cp -a data/workspaces/shop/A? keep/data/workspaces/shop/; cp -a repo keep/
            fi
            rm -rf home/evil home/listed/evil
            echo db > data/regatta.db; echo token > data/token; echo launch > data/run/launch.json; echo the prompt > data/run/prompt.md
            echo key > home/.ssh/id_ed25519; echo pass > home/.netrc; echo a listed file > home/listed/file";
        let output = Command::new("sh")
            .args(["-ec", script])
            .current_dir(self.directory.path())
            .env("W", self.directory.path())
            .output()?;
        ensure!(
            output.status.success(),
            "could not create the world: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Returns a sandbox whose workspace, home and run directory are in this world.
    pub(super) fn sandbox_spec(
        &self,
        level: SandboxLevel,
        mechanism: SandboxMechanism,
    ) -> SandboxSpec {
        SandboxSpec {
            level,
            is_requested: true,
            mechanism: Some(mechanism),
            network: NetworkAccess::from_profile(level, None, &[]),
            tools_url: None,
            limits: ResourceLimits::default(),
            program: "sh".to_owned(),
            search_path: ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
                .map(PathBuf::from)
                .to_vec(),
            waits_for_shim: false,
            regatta_exe: std::env::current_exe().unwrap_or_default(),
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
            write_paths: vec![self.path("home/login")],
        }
    }

    /// Returns a command that runs `script` in the sandbox, with the addresses of this world.
    pub(super) fn command(&self, prepared: &PreparedSandbox, script: &str) -> Command {
        let mut argv = prepared
            .argv_prefix
            .iter()
            .map(AsRef::as_ref)
            .chain([Path::new("sh").as_os_str()]);
        let mut command = Command::new(argv.next().unwrap_or_default());
        command
            .args(argv)
            .args(["-c", script])
            .env_clear()
            .current_dir(self.path("data/workspaces/shop/A1"));
        command
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("LC_ALL", "C");
        command
            .env("HOME", self.path("data/homes/tester"))
            .env("TMPDIR", self.path("data/run/tmp"));
        command
            .env("W", self.directory.path())
            .env("T", self.shared.path())
            .env("A", &self.abstract_name);
        command
            .env("P", self.victim.id().to_string())
            .env("X", std::env::current_exe().unwrap_or_default());
        command.env(
            "L",
            self.tcp
                .local_addr()
                .map(|address| address.to_string())
                .unwrap_or_default(),
        );
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }
}

impl Drop for ProbeWorld {
    fn drop(&mut self) {
        // The process is our child and not reaped yet, so its number cannot be used again.
        drop(self.victim.kill());
        drop(self.victim.wait());
    }
}
