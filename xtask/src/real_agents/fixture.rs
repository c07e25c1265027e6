//! Runs the real binary on one repository, under the account. All scenarios that use the binary
//! share this.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::bench::{AgentBench, FAKE_KEY, ScenarioRun};
use super::programs::{NODE, ProgramDriver, ProgramRow, ProgramSettings};
use super::sandbox_user::{
    MARK_VARIABLE, kill_all_with_mark, kill_pid, process_name, processes_with_mark, wait_until,
};
use super::scenario::ScenarioResult;

/// The daemon's variable from which agents' keys are read.
pub(crate) const KEY_VARIABLE: &str = "REAL_AGENTS_KEY";

/// A data directory and a repository, with the binary to run on them.
pub(crate) struct DaemonFixture<'a> {
    pub(crate) bench: &'a AgentBench<'a>,
    pub(crate) dir: PathBuf,
    pub(crate) work_dir: PathBuf,
    pub(crate) data_dir: PathBuf,
    /// The directory in which programs are found by name.
    pub(crate) bin_dir: PathBuf,
    /// Additional variables for the daemon.
    pub(crate) env: Vec<(String, String)>,
    home: PathBuf,
    binary: PathBuf,
}

impl<'a> DaemonFixture<'a> {
    /// Creates the directories. Nothing runs yet.
    pub(crate) fn new(
        bench: &'a AgentBench<'a>,
        run: &ScenarioRun,
    ) -> anyhow::Result<DaemonFixture<'a>> {
        let binary = bench
            .regatta_binary
            .clone()
            .context("there is no regatta binary")?;
        bench.user.require_access(&binary)?;
        let dir = run.dir.clone();
        let (data, bin) = (dir.join("data"), dir.join("bin"));
        let (work, home) = (run.work_dir.clone(), run.home.clone());
        Ok(DaemonFixture {
            bench,
            dir,
            work_dir: work,
            data_dir: data,
            bin_dir: bin,
            env: vec![],
            home,
            binary,
        })
    }

    /// Sets up the repository as a careful user would.
    pub(crate) fn set_up(&self) -> anyhow::Result<()> {
        self.run_command(&["init", "--yes", "--validate", "test -e README"])?;
        self.bench.git(&self.work_dir, &["add", "-A"])?;
        self.bench
            .git(&self.work_dir, &["commit", "-q", "-m", "Use regatta"])?;
        Ok(())
    }

    /// Returns a command that runs the binary in the repository, under the account, without the
    /// caller's environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let node = NODE.entry(&self.bench.installed.dir);
        let node = node.parent().unwrap_or(Path::new("/"));
        let mut command = Command::new(&self.binary);
        command
            .args(args)
            .current_dir(&self.work_dir)
            .env_clear()
            .env(
                "PATH",
                format!(
                    "{}:{}:/usr/local/bin:/usr/bin:/bin",
                    self.bin_dir.display(),
                    node.display()
                ),
            )
            .env("HOME", &self.home)
            .env("TMPDIR", self.home.join("tmp"))
            .env("LANG", "C.UTF-8")
            .env("USER", "ann")
            .env("REGATTA_DATA_DIR", &self.data_dir)
            .env("REGATTA_LISTEN", "127.0.0.1:0")
            .env(KEY_VARIABLE, FAKE_KEY)
            .envs(self.env.iter().map(|env| (&env.0, &env.1)))
            .stdin(Stdio::null());
        self.bench.user.apply(&mut command);
        command
    }

    /// Runs a command of the binary and returns the data of its answer.
    pub(crate) fn run_command(&self, args: &[&str]) -> anyhow::Result<Value> {
        let output = self.command(&[args, &["--json"]].concat()).output()?;
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        ensure!(
            output.status.success(),
            "regatta {}: {} {}",
            args.join(" "),
            out.trim(),
            err.trim()
        );
        let answer: Value = serde_json::from_str(&out)
            .with_context(|| format!("regatta {} said {out:?}", args[0]))?;
        Ok(answer["data"].clone())
    }

    /// Registers a program under a name, with its variables and its key. Only the program's own
    /// sandbox applies.
    pub(crate) fn add_agent(
        &self,
        name: &str,
        row: &ProgramRow,
        outfit: &ProgramSettings,
        mark: &str,
    ) -> anyhow::Result<()> {
        let runtime = match row.driver {
            ProgramDriver::Acp => "acp",
            ProgramDriver::Claude => "claude",
            ProgramDriver::CodexExec => "codex",
            ProgramDriver::CodexServer => "codex-server",
        };
        let command = outfit
            .argv
            .iter()
            .map(|argv| quoted(argv))
            .collect::<Vec<_>>()
            .join(" ");
        let mut args: Vec<String> = ["agent", "add", name, "--runtime", runtime, "--command"]
            .map(str::to_owned)
            .into();
        args.push(command);
        args.extend(["--confine".into(), "off".into()]);
        args.extend([
            "--key".into(),
            format!("{}=env:{KEY_VARIABLE}", outfit.key_variable),
        ]);
        // Programs that are scripts all have the process name `node`; the preset tells them apart.
        args.extend(["--preset".into(), row.preset.into()]);
        if let Some(mode) = outfit.mode {
            args.extend(["--mode".into(), mode.into()]);
        }
        for (name, value) in outfit
            .env
            .iter()
            .chain([&(MARK_VARIABLE.to_owned(), mark.to_owned())])
        {
            args.extend(["--env".into(), format!("{name}={value}")]);
        }
        self.run_command(&args.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(())
    }

    /// Returns the daemon's process id.
    pub(crate) fn daemon_pid(&self) -> anyhow::Result<u32> {
        let card: Value =
            serde_json::from_slice(&std::fs::read(self.data_dir.join("daemon.json"))?)?;
        let pid = card["pid"]
            .as_u64()
            .and_then(|card| u32::try_from(card).ok());
        pid.context("the daemon's card has no process number")
    }

    /// Stops everything. Fails if a process with one of the marks lives longer than `patience`
    /// (P3), or if the key was written to a file (S4). In any case all processes are killed.
    pub(crate) fn stop_everything(
        &self,
        marks: &[String],
        patience: Duration,
    ) -> anyhow::Result<()> {
        let down = self.run_command(&["down", "--timeout", "40s"]);
        let living = || {
            marks
                .iter()
                .flat_map(|mark| processes_with_mark(mark))
                .collect::<Vec<u32>>()
        };
        wait_until(patience, || living().is_empty());
        let processes: Vec<String> = living().into_iter().map(process_name).collect();
        for mark in marks {
            kill_all_with_mark(mark);
        }
        if down.is_err()
            && let Ok(daemon) = self.daemon_pid()
        {
            kill_pid(daemon);
        }
        down.context("`regatta down` failed")?;
        ensure!(
            processes.is_empty(),
            "P3: `regatta down` left {} running",
            processes.join(", ")
        );
        if let Some(file) = file_containing(&self.data_dir, FAKE_KEY.as_bytes())? {
            bail!(
                "S4: the key is in {}",
                file.strip_prefix(&self.dir).unwrap_or(&file).display()
            );
        }
        Ok(())
    }
}

/// Combines the result of a scenario, the result of its end, and the model server's faults.
pub(crate) fn combine_results(
    done: anyhow::Result<ScenarioResult>,
    ended: anyhow::Result<()>,
    bench: &AgentBench<'_>,
) -> ScenarioResult {
    let faults = bench.models.errors();
    match (done, ended) {
        (Err(error), _) => ScenarioResult::failed(format!("{error:#}")),
        (Ok(cell), _) if !cell.is_acceptable() => cell,
        (Ok(_), Err(error)) => ScenarioResult::failed(format!("{error:#}")),
        (Ok(_), Ok(())) if !faults.is_empty() => {
            ScenarioResult::failed(format!("the model server reports: {}", faults.join("; ")))
        }
        (Ok(cell), Ok(())) => cell,
    }
}

/// One step of a scenario with several steps.
pub(crate) type ScenarioStep<'w> = (&'static str, Box<dyn Fn() -> anyhow::Result<()> + 'w>);

/// Runs the steps in order. Steps after a failed one are not run. A failure at the end counts for
/// the last step.
pub(crate) fn run_steps(
    steps: &[ScenarioStep<'_>],
    end: impl FnOnce() -> anyhow::Result<()>,
    (bench, row): (&AgentBench<'_>, &str),
) -> Vec<ScenarioResult> {
    let mut cells: Vec<ScenarioResult> = vec![];
    for (name, step) in steps {
        let cell = if cells.iter().all(ScenarioResult::is_acceptable) {
            step().map_or_else(
                |error| ScenarioResult::failed(format!("{error:#}")),
                |()| ScenarioResult::passed(),
            )
        } else {
            ScenarioResult::NotRun("a step before it failed".into())
        };
        eprintln!("{row}, {name}: {}", cell.text());
        cells.push(cell);
    }
    let ended = end();
    if cells.iter().all(ScenarioResult::is_acceptable)
        && let Some(last) = cells.pop()
    {
        cells.push(combine_results(Ok(last), ended, bench));
    }
    cells
}

/// Returns the processes in the list whose parent is not in the list.
pub(crate) fn top_processes(all: &[u32]) -> Vec<u32> {
    all.iter()
        .filter(|pid| parent_pid(**pid).is_none_or(|parent| !all.contains(&parent)))
        .copied()
        .collect()
}

pub(crate) fn parent_pid(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.=@:+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns the first file below a directory that contains these bytes.
fn file_containing(dir: &Path, wanted: &[u8]) -> anyhow::Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(dir)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        let found = if kind.is_dir() {
            file_containing(&path, wanted)?
        } else if kind.is_file() {
            std::fs::read(&path)?
                .windows(wanted.len())
                .any(|bytes| bytes == wanted)
                .then_some(path)
        } else {
            None
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/a/b-c.js"), "/a/b-c.js");
        assert_eq!(quoted("it's {x}"), r"'it'\''s {x}'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn bytes_are_found_in_any_file_below() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(
            dir.path().join("a/b/log"),
            [&[0u8, 255][..], b"xx-secret-yy"].concat(),
        )
        .unwrap();
        assert_eq!(
            file_containing(dir.path(), b"secret").unwrap(),
            Some(dir.path().join("a/b/log"))
        );
        assert_eq!(file_containing(dir.path(), b"other").unwrap(), None);
    }
}
