//! The environment of the scenarios: the programs, the model server, and a new directory for each
//! run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use regatta_testkit::models::ModelServer;

use super::install::InstalledPrograms;
use super::programs::{PermissionMode, ProgramRow, ProgramSettings, SettingsContext};
use super::sandbox_user::SandboxUser;
use super::scenario::Scenario;

/// A key without any access. It looks like a real key, so that a leak can be found.
pub(crate) const FAKE_KEY: &str = "sk-real-agents-0123456789abcdef";

/// The file that every story writes, and its content.
pub(crate) const STORY_FILE: &str = "hello.txt";
pub(crate) const STORY_CONTENT: &str = "hello from the script\n";

pub(crate) struct AgentBench<'a> {
    pub(crate) installed: &'a InstalledPrograms,
    pub(crate) user: SandboxUser,
    pub(crate) models: &'a ModelServer,
    /// The directory with the directories of the runs.
    pub(crate) runs_dir: PathBuf,
    /// The `regatta_binary` binary, for the scenarios that use it.
    pub(crate) regatta_binary: Option<PathBuf>,
}

/// The directories of one run.
pub(crate) struct ScenarioRun {
    pub(crate) dir: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) work_dir: PathBuf,
    pub(crate) outfit: ProgramSettings,
    /// The marker by which the model server finds the story.
    pub(crate) marker: String,
    /// The mark of all processes of the run.
    pub(crate) mark: String,
}

impl AgentBench<'_> {
    /// Creates the directories of a run: home, settings, and a repository with one commit.
    pub(crate) fn create_run(
        &self,
        row: &ProgramRow,
        name: &str,
        asks: PermissionMode,
    ) -> anyhow::Result<ScenarioRun> {
        let short: String = row
            .driver
            .name()
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect();
        let place = format!("{}-{short}-{name}", row.program.name);
        // Programs send their working directory to the model, so its name must not contain the
        // marker.
        let (marker, dir) = (format!("tale-{place}"), self.runs_dir.join(&place));
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        let (home, work, settings) = (dir.join("home"), dir.join("work"), dir.join("settings"));
        std::fs::create_dir_all(home.join("tmp"))?;
        std::fs::create_dir_all(&work)?;
        let outfit = self.outfit(row, &settings, asks)?;
        self.user.give_ownership(&dir)?;
        self.git(&work, &["init", "-q", "-b", "main"])?;
        std::fs::write(work.join("README"), "A repository to work in.\n")?;
        self.user.give_ownership(&work)?;
        self.git(&work, &["add", "-A"])?;
        self.git(&work, &["commit", "-q", "-m", "Start"])?;
        let mark = format!("{marker}-{}", std::process::id());
        Ok(ScenarioRun {
            dir,
            home,
            work_dir: work,
            outfit,
            marker,
            mark,
        })
    }

    /// Writes a program's settings, and returns the command and variables to start it.
    pub(crate) fn outfit(
        &self,
        row: &ProgramRow,
        settings: &Path,
        asks: PermissionMode,
    ) -> anyhow::Result<ProgramSettings> {
        let models = self.models.url();
        let outfit = row.program_settings(
            &SettingsContext {
                installed: &self.installed.dir,
                models_url: &models,
                settings_dir: settings,
            },
            asks,
        );
        std::fs::create_dir_all(settings)?;
        for (path, content) in &outfit.settings_files {
            let path = settings.join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(settings))?;
            std::fs::write(path, content)?;
        }
        Ok(outfit)
    }

    /// Runs git under the account, without the caller's settings.
    pub(crate) fn git(&self, dir: &Path, args: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("git");
        command.args(args).current_dir(dir).env_clear();
        command
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", dir);
        command.env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{who}_NAME"), "Ann")
                .env(format!("GIT_{who}_EMAIL"), "ann@example.invalid");
        }
        self.user.apply(&mut command);
        let output = command.output()?;
        ensure!(
            output.status.success(),
            "git {args:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned())
    }
}

impl ScenarioRun {
    /// Returns the prompt for the program.
    pub(crate) fn prompt(&self) -> String {
        self.prompt_for(&self.marker)
    }

    pub(crate) fn prompt_for(&self, marker: &str) -> String {
        format!("Please write the file {STORY_FILE}. The word is {marker} and nothing else.")
    }

    /// Returns the marker of the second story.
    pub(crate) fn next_marker(&self) -> String {
        format!("{}-later", self.marker)
    }

    /// Returns whether the file exists with the story's content.
    pub(crate) fn has_written(&self) -> bool {
        std::fs::read_to_string(self.work_dir.join(STORY_FILE))
            .is_ok_and(|content| content == STORY_CONTENT)
    }
}

/// Returns whether a scenario was selected on the command line.
pub(crate) fn is_chosen(wanted: Option<&str>, scenario: Scenario) -> bool {
    wanted.is_none_or(|wanted| wanted.split(',').any(|name| name == scenario.name()))
}
