//! Applies the `regatta.toml` of every project as soon as it is saved.
//!
//! The daemon checks the files once a second, and before it answers calls that depend on them. It
//! reads a file only when the file, the user's own settings or the checked-out branch has changed.
//! An invalid file changes nothing: the previous settings stay in force, and `regatta status` shows
//! the error.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use regatta_api::view::ConfigFault;
use regatta_core::command::{Actor, Command, Request};
use regatta_core::ids::{BranchName, ProjectName};
use regatta_core::project::{self, Project};
use regatta_engine::Engine;
use regatta_engine::ports::git::Repo;

use crate::out::{Failed, failed, line};
use crate::settings;

const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct ProjectFiles {
    engine: Engine,
    seen: Mutex<BTreeMap<ProjectName, Seen>>,
}

/// The versions of a project's files that were read last, and their error, if any.
struct Seen {
    stamps: Vec<Option<Stamp>>,
    fault: Option<String>,
}

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed_ns: i128,
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let found = std::fs::metadata(path).ok()?;
        let changed_ns = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
        Some(Stamp { inode: found.ino(), size: found.size(), changed_ns })
    }
}

impl ProjectFiles {
    pub(crate) fn new(engine: Engine) -> ProjectFiles {
        ProjectFiles { engine, seen: Mutex::default() }
    }

    /// Applies changed files, until the daemon ends.
    pub(crate) async fn watch(self: std::sync::Arc<Self>) {
        let mut round = tokio::time::interval(INTERVAL);
        round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            round.tick().await;
            let files = self.clone();
            if tokio::task::spawn_blocking(move || files.apply()).await.is_err() {
                tracing::error!("could not read the settings files of the projects: the task panicked");
            }
        }
    }

    /// Applies the files that have changed. Returns the files that cannot be applied.
    pub(crate) fn apply(&self) -> Vec<ConfigFault> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let board = self.engine.board();
        seen.retain(|name, _| board.projects.contains_key(name));
        for (name, known) in &board.projects {
            let stamps = stamps(Path::new(&known.location));
            if seen.get(name).is_some_and(|it| it.stamps == stamps) {
                continue;
            }
            let applied = self.apply_to(known);
            let fault = applied.err().map(|error| in_one_line(&error.words()));
            if let Some(fault) = &fault {
                tracing::warn!(project = %name, "could not apply regatta.toml; the previous settings stay in force: {fault}");
            }
            seen.insert(name.clone(), Seen { stamps, fault });
        }
        let fault = |(project, seen): (&ProjectName, &Seen)| {
            Some(ConfigFault { project: project.clone(), why: seen.fault.clone()? })
        };
        seen.iter().filter_map(fault).collect()
    }

    fn apply_to(&self, known: &Project) -> Result<(), Failed> {
        let Some(add) = read(known)? else { return Ok(()) };
        let git = self.engine.git();
        let of_git = |error: regatta_engine::ports::git::GitError| failed(error.code, error.what, error.hint);
        // Another branch may have an old version of the file, so only the file on the trunk is
        // applied.
        let branch = git.inspect(Path::new(&known.location)).map_err(of_git)?.branch;
        if branch.is_none_or(|branch| branch != known.trunk && branch != add.trunk) {
            return Ok(());
        }
        if add.trunk != known.trunk {
            git.tip(&Repo { trunk: add.trunk.clone(), ..Repo::of(known) }).map_err(of_git)?;
        }
        let request = Request { by: Actor::Regatta, key: None, command: Command::ChangeProject(add) };
        let applied = self.engine.submit(request);
        applied.map(|_| ()).map_err(|error| failed("bad_config", error.to_string(), "fix regatta.toml"))
    }
}

/// Shortens a TOML error to one line with place and cause. The lines in between only quote the
/// file.
pub(crate) fn in_one_line(report: &str) -> String {
    let mut lines = report.lines().map(str::trim).filter(|text| !text.is_empty());
    let first = lines.next().unwrap_or_default();
    match lines.next_back() {
        Some(cause) => line(&format!("{first}: {cause}")),
        None => line(first),
    }
}

fn stamps(location: &Path) -> Vec<Option<Stamp>> {
    let head = location.join(".git/HEAD");
    let files = settings::nearest(location).into_iter().chain(settings::user_file()).chain([head]);
    files.map(|path| Stamp::of(&path)).collect()
}

/// Reads the current settings of a project from its files. Settings that only the command line or
/// the environment of `regatta init` gave stay as they are.
fn read(known: &Project) -> Result<Option<project::Add>, Failed> {
    let location = Path::new(&known.location);
    let Some(path) = settings::nearest(location) else { return Ok(None) };
    let Some(file) = settings::read(&path)? else { return Ok(None) };
    let bad = |what: String| failed("bad_config", what, "fix regatta.toml");
    let trunk = match &file.project.trunk {
        Some(name) => BranchName::new(name).map_err(|error| bad(error.to_string()))?,
        None => known.trunk.clone(),
    };
    let timeout = file.validation.timeout.as_deref().map(settings::duration_ms).transpose().map_err(bad)?;
    let mut found = settings::project(location)?;
    if !settings::names(location, "landing.checkout")? && std::env::var_os("REGATTA_CHECKOUT").is_none() {
        found.landing.checkout = known.settings.landing.checkout;
    }
    Ok(Some(project::Add {
        name: known.name.clone(),
        location: known.location.clone(),
        trunk,
        validation: file.validation.commands.unwrap_or_else(|| known.validation.clone()),
        validation_timeout_ms: timeout.unwrap_or(known.validation_timeout_ms),
        settings: found,
    }))
}
