//! What every scenario needs: the programs, the model server, and a fresh place for each run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use regatta_testkit::models::ModelServer;

use super::account::Account;
use super::cell::Scenario;
use super::install::Installed;
use super::programs::{Asks, Outfit, Place, Row};

/// A key that means nothing. It looks like one, so that a leak of it shows.
pub(crate) const KEY: &str = "sk-real-agents-0123456789abcdef";

/// The file that every story writes, and what is in it.
pub(crate) const FILE: &str = "hello.txt";
pub(crate) const CONTENT: &str = "hello from the script\n";

pub(crate) struct Bench<'a> {
    pub(crate) installed: &'a Installed,
    pub(crate) account: Account,
    pub(crate) models: &'a ModelServer,
    /// Where the runs' directories are.
    pub(crate) runs: PathBuf,
    /// The `regatta` to drive, for the scenarios through it.
    pub(crate) regatta: Option<PathBuf>,
}

/// A fresh place for one run.
pub(crate) struct Run {
    pub(crate) dir: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) outfit: Outfit,
    /// The word by which the model knows what to do.
    pub(crate) marker: String,
    /// The mark of all its processes.
    pub(crate) mark: String,
}

impl Bench<'_> {
    /// Makes the place for a run: home, settings, and a repository with one commit.
    pub(crate) fn place(&self, row: &Row, name: &str, asks: Asks) -> anyhow::Result<Run> {
        let short: String = row.drive.name().chars().filter(char::is_ascii_alphanumeric).collect();
        let place = format!("{}-{short}-{name}", row.program.name);
        // Programs tell the model where they work: the directory's name must not hold the marker.
        let (marker, dir) = (format!("tale-{place}"), self.runs.join(&place));
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        let (home, work, settings) = (dir.join("home"), dir.join("work"), dir.join("settings"));
        std::fs::create_dir_all(home.join("tmp"))?;
        std::fs::create_dir_all(&work)?;
        let outfit = self.outfit(row, &settings, asks)?;
        self.account.give(&dir)?;
        self.git(&work, &["init", "-q", "-b", "main"])?;
        std::fs::write(work.join("README"), "A repository to work in.\n")?;
        self.account.give(&work)?;
        self.git(&work, &["add", "-A"])?;
        self.git(&work, &["commit", "-q", "-m", "Start"])?;
        let mark = format!("{marker}-{}", std::process::id());
        Ok(Run { dir, home, work, outfit, marker, mark })
    }

    /// What a program is started with; its settings are written.
    pub(crate) fn outfit(&self, row: &Row, settings: &Path, asks: Asks) -> anyhow::Result<Outfit> {
        let models = self.models.url();
        let outfit = row.outfit(&Place { installed: &self.installed.dir, models: &models, settings }, asks);
        std::fs::create_dir_all(settings)?;
        for (path, content) in &outfit.files {
            let path = settings.join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(settings))?;
            std::fs::write(path, content)?;
        }
        Ok(outfit)
    }

    /// Runs git as the account, with nothing of the caller's settings.
    pub(crate) fn git(&self, dir: &Path, args: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("git");
        command.args(args).current_dir(dir).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", dir);
        command.env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Ann").env(format!("GIT_{who}_EMAIL"), "ann@example.invalid");
        }
        self.account.apply(&mut command);
        let ran = command.output()?;
        ensure!(ran.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&ran.stderr).trim());
        Ok(String::from_utf8_lossy(&ran.stdout).trim_end().to_owned())
    }
}

impl Run {
    /// What is asked of the program.
    pub(crate) fn prompt(&self) -> String {
        self.prompt_for(&self.marker)
    }

    pub(crate) fn prompt_for(&self, marker: &str) -> String {
        format!("Please write the file {FILE}. The word is {marker} and nothing else.")
    }

    /// The name of the story that follows the first.
    pub(crate) fn later(&self) -> String {
        format!("{}-later", self.marker)
    }

    /// Whether the file is there as the story wrote it.
    pub(crate) fn wrote(&self) -> bool {
        std::fs::read_to_string(self.work.join(FILE)).is_ok_and(|it| it == CONTENT)
    }
}

/// Whether a word names a scenario that was asked for.
pub(crate) fn chosen(wanted: Option<&str>, scenario: Scenario) -> bool {
    wanted.is_none_or(|it| it.split(',').any(|it| it == scenario.word()))
}
