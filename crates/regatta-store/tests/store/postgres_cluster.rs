//! A private PostgreSQL server for the tests, with one database for each test.
//!
//! The server listens on a Unix socket in a temporary directory, runs as an unprivileged user, and
//! ends with the tests, also when they are killed: a small shell process waits for the end of the
//! test process and then stops the server and removes the directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The user "nobody", which owns the files if the tests run as root. PostgreSQL refuses to run as
/// root.
const UNPRIVILEGED: u32 = 65_534;

/// A running server.
pub(crate) struct PostgresCluster {
    programs: PathBuf,
    directory: PathBuf,
    /// The shell ends when this pipe is closed.
    _watchdog: ChildStdin,
}

/// Returns the server of this test process, or `None` if PostgreSQL is not installed. Then the test
/// reports that it was skipped, and `REGATTA_TEST_POSTGRES=needed` makes it fail.
#[allow(clippy::print_stderr, reason = "a skipped test must say so")]
pub(crate) fn cluster(test: &str) -> Option<&'static PostgresCluster> {
    static CLUSTER: OnceLock<Option<PostgresCluster>> = OnceLock::new();
    let found = CLUSTER.get_or_init(|| find_programs().map(PostgresCluster::start));
    if found.is_none() {
        let is_needed = std::env::var("REGATTA_TEST_POSTGRES").is_ok_and(|value| value == "needed");
        assert!(!is_needed, "PostgreSQL's server programs are not installed");
        eprintln!("SKIPPED {test}: PostgreSQL's server programs are not installed");
    }
    found.as_ref()
}

/// Returns the directory with `initdb` and `postgres`: the one in `REGATTA_POSTGRES_BIN`, or the
/// newest of Debian's directories.
fn find_programs() -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os("REGATTA_POSTGRES_BIN") {
        return Some(chosen.into());
    }
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    versions
        .map(|version| version.path().join("bin"))
        .filter(|programs| programs.join("initdb").exists())
        .max()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl PostgresCluster {
    fn start(programs: PathBuf) -> PostgresCluster {
        let parent = if Path::new("/dev/shm").is_dir() {
            PathBuf::from("/dev/shm")
        } else {
            std::env::temp_dir()
        };
        let directory = tempfile::Builder::new()
            .prefix("regatta-pg-")
            .tempdir_in(parent)
            .unwrap()
            .keep();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        if is_root() {
            chown(&directory, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
        let data = directory.join("data");
        let initialised = as_unprivileged(&programs.join("initdb"))
            .args([
                "--no-sync",
                "--locale=C",
                "--encoding=UTF8",
                "--auth=trust",
                "--username=regatta",
            ])
            .arg(&data)
            .current_dir(&directory)
            .output()
            .unwrap();
        assert!(
            initialised.status.success(),
            "{}",
            String::from_utf8_lossy(&initialised.stderr)
        );
        let mut server = as_unprivileged(&programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses="])
            .args([
                "-c",
                &format!("unix_socket_directories={}", directory.display()),
            ])
            // A killed process loses nothing without these syncs, and the tests do not cut power.
            .args(["-c", "fsync=off", "-c", "max_connections=200"])
            .current_dir(&directory)
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.join("server.log")).unwrap())
            .spawn()
            .unwrap();
        let script = format!(
            "read ignored; kill -INT {pid}; while kill -0 {pid} 2>/dev/null; do sleep 0.1; done; \
            rm -rf '{directory}'",
            pid = server.id(),
            directory = directory.display()
        );
        // The shell ends after the test process, so nobody can wait for it.
        #[allow(clippy::zombie_processes, reason = "the shell outlives this process")]
        let watchdog = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let cluster = PostgresCluster {
            programs,
            directory,
            _watchdog: watchdog.stdin.unwrap(),
        };
        cluster.wait_until_ready(&mut server);
        cluster
    }

    /// Waits until the server accepts connections. The server itself says when: it writes the word
    /// "ready" into the last line of its lock file.
    fn wait_until_ready(&self, server: &mut std::process::Child) {
        let lock_file = self.directory.join("data/postmaster.pid");
        loop {
            let is_ready = fs::read_to_string(&lock_file).is_ok_and(|text| {
                text.lines()
                    .nth(7)
                    .is_some_and(|line| line.trim() == "ready")
            });
            if is_ready {
                return;
            }
            if let Some(status) = server.try_wait().unwrap() {
                let log = fs::read_to_string(self.directory.join("server.log"));
                panic!(
                    "the server ended with {status}: {}",
                    log.unwrap_or_default()
                );
            }
            std::thread::yield_now();
        }
    }

    /// Creates an empty database and returns its address.
    pub(crate) fn new_database(&self) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.address(&name)
    }

    /// Returns the address of a database.
    pub(crate) fn address(&self, database: &str) -> String {
        let host = self.directory.display().to_string().replace('/', "%2F");
        format!("postgres://regatta@{host}/{database}")
    }

    /// Runs SQL in a database of this server, outside of the store.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> Vec<String> {
        let address = self.address(database);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (client, driver) = tokio_postgres::connect(&address, tokio_postgres::NoTls)
                .await
                .unwrap();
            let driving = tokio::spawn(driver);
            let answers = client.simple_query(sql).await.unwrap();
            drop(client);
            driving.await.unwrap().unwrap();
            let value = |message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => {
                    Some(row.get(0).unwrap_or_default().to_owned())
                }
                _ => None,
            };
            answers.into_iter().filter_map(value).collect()
        })
    }

    pub(crate) fn version(&self) -> String {
        let output = Command::new(self.programs.join("postgres"))
            .arg("--version")
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

/// Returns a command that runs as an unprivileged user if the tests run as root.
fn as_unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let id = UNPRIVILEGED.to_string();
    command
        .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        .arg(program);
    command
}
