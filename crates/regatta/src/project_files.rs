//! Applies the `regatta.toml` of every project as soon as it is saved.
//!
//! The daemon checks the files once a second, and before it answers calls that depend on the files.
//! The daemon reads a file only when the file, the user's own settings or the checked-out branch
//! has changed. An invalid file changes nothing: the previous settings stay in force, and `regatta
//! status` shows the error.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use regatta_api::view::SettingsFileFault;
use regatta_core::command::{Actor, Command, Request};
use regatta_core::ids::{BranchName, ProjectName};
use regatta_core::project::{self, Project};
use regatta_engine::Engine;
use regatta_engine::ports::git::ProjectRepo;

use crate::output::{CommandError, command_error, first_line};
use crate::settings::{self, FileKind};

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct ProjectFiles {
    engine: Engine,
    last_read: Mutex<BTreeMap<ProjectName, LastRead>>,
}

/// The versions of a project's settings files that were read last, and the error in the files, if
/// there is one.
struct LastRead {
    stamps: Vec<Option<FileStamp>>,
    error: Option<String>,
}

/// Values of a file that change when somebody writes the file. If any of them differs, the file is
/// read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    size: u64,
    changed_ns: i128,
}

impl FileStamp {
    fn from_path(path: &Path) -> Option<FileStamp> {
        let found = std::fs::metadata(path).ok()?;
        let changed_ns = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
        Some(FileStamp {
            inode: found.ino(),
            size: found.size(),
            changed_ns,
        })
    }
}

impl ProjectFiles {
    pub(crate) fn new(engine: Engine) -> ProjectFiles {
        ProjectFiles {
            engine,
            last_read: Mutex::default(),
        }
    }

    /// Checks the settings files every second and applies changed ones, until the daemon ends.
    pub(crate) async fn apply_until_daemon_ends(self: std::sync::Arc<Self>) {
        let mut round = tokio::time::interval(CHECK_INTERVAL);
        round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            round.tick().await;
            let files = self.clone();
            if tokio::task::spawn_blocking(move || files.apply_changed())
                .await
                .is_err()
            {
                tracing::error!(
                    "could not check the settings files of the projects because of a crash in the \
                     daemon, trying again in {} s",
                    CHECK_INTERVAL.as_secs()
                );
            }
        }
    }

    /// Applies the settings files that have changed since the last call. Returns an error for each
    /// project whose file cannot be applied.
    pub(crate) fn apply_changed(&self) -> Vec<SettingsFileFault> {
        let mut last_reads = self
            .last_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let board = self.engine.board();
        last_reads.retain(|name, _| board.projects.contains_key(name));
        for (name, project) in &board.projects {
            let stamps = file_stamps(Path::new(&project.location));
            if last_reads
                .get(name)
                .is_some_and(|last_read| last_read.stamps == stamps)
            {
                continue;
            }
            let applied = self.apply_to(project);
            let fault = applied.err().map(|error| in_one_line(&error.message()));
            if let Some(fault) = &fault {
                tracing::warn!(project = %name, "could not apply the regatta.toml of {name}; its \
                    previous settings stay in force: {fault}");
            }
            last_reads.insert(
                name.clone(),
                LastRead {
                    stamps,
                    error: fault,
                },
            );
        }
        let fault = |(project, last_reads): (&ProjectName, &LastRead)| {
            Some(SettingsFileFault {
                project: project.clone(),
                why: last_reads.error.clone()?,
            })
        };
        last_reads.iter().filter_map(fault).collect()
    }

    fn apply_to(&self, known: &Project) -> Result<(), CommandError> {
        let Some(add) = read_project_settings(known, settings::user_file())? else {
            return Ok(());
        };
        let git = self.engine.git();
        let of_git = |error: regatta_engine::ports::git::GitError| {
            command_error(error.code, error.message, error.hint)
        };
        // Apply the file only while the trunk is checked out, because another branch may have an
        // old version of the file.
        let branch = git
            .inspect(Path::new(&known.location))
            .map_err(of_git)?
            .branch;
        if branch.is_none_or(|branch| branch != known.trunk && branch != add.trunk) {
            return Ok(());
        }
        if add.trunk != known.trunk {
            git.tip(&ProjectRepo {
                trunk: add.trunk.clone(),
                ..ProjectRepo::from_project(known)
            })
            .map_err(of_git)?;
        }
        let request = Request {
            by: Actor::Regatta,
            key: None,
            command: Command::ChangeProject(add),
        };
        let applied = self.engine.submit(request);
        applied.map(|_| ()).map_err(|error| {
            command_error(
                "bad_config",
                error.to_string(),
                "correct the value in regatta.toml; docs/settings.md lists all settings",
            )
        })
    }
}

/// Shortens the message of a TOML error to one line: the first line (the position) and the last one
/// (the cause). The lines in between only quote the file.
pub(crate) fn in_one_line(report: &str) -> String {
    let mut lines = report
        .lines()
        .map(str::trim)
        .filter(|text| !text.is_empty());
    let first = lines.next().unwrap_or_default();
    match lines.next_back() {
        Some(cause) => first_line(&format!("{first}: {cause}")),
        None => first_line(first),
    }
}

fn file_stamps(location: &Path) -> Vec<Option<FileStamp>> {
    let head = location.join(".git/HEAD");
    let files = settings::nearest_file(location)
        .into_iter()
        .chain(settings::user_file())
        .chain([head]);
    files.map(|path| FileStamp::from_path(&path)).collect()
}

/// Reads the current settings of a project from its files. Settings that are not in the files,
/// because `regatta init` got them as options or from the environment, stay as they are. Returns
/// `None` if the project has no `regatta.toml`.
pub(crate) fn read_project_settings(
    known: &Project,
    user_file: Option<PathBuf>,
) -> Result<Option<project::AddProject>, CommandError> {
    let location = Path::new(&known.location);
    let Some(path) = settings::nearest_file(location) else {
        return Ok(None);
    };
    let Some(file) = settings::read_file(&path, FileKind::Repository)? else {
        return Ok(None);
    };
    let layers = settings::read_layers(location, user_file)?;
    let bad = |what: String| {
        command_error(
            "bad_config",
            what,
            "correct the value in regatta.toml; docs/settings.md lists all settings",
        )
    };
    let trunk = match &file.project.trunk {
        Some(name) => BranchName::new(name).map_err(|error| bad(error.to_string()))?,
        None => known.trunk.clone(),
    };
    let timeout = settings::merge_layers(&layers)?
        .validation
        .timeout
        .as_deref()
        .map(settings::duration_ms)
        .transpose()
        .map_err(bad)?;
    let mut found = settings::project_settings_of(&layers)?;
    if !settings::is_set_in(&layers, "landing.checkout")
        && std::env::var_os("REGATTA_CHECKOUT").is_none()
    {
        found.landing.checkout = known.settings.landing.checkout;
    }
    Ok(Some(project::AddProject {
        name: known.name.clone(),
        location: known.location.clone(),
        trunk,
        validation: file
            .validation
            .commands
            .unwrap_or_else(|| known.validation.clone()),
        validation_timeout_ms: timeout.unwrap_or(known.validation_timeout_ms),
        settings: found,
    }))
}
