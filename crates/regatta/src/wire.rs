//! The only place that names adapters: which store, which version control, which way to run programs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use regatta_agents::AgentsAdapter;
use regatta_agents::strays::RunningShim;
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::Agents;
use regatta_engine::ports::git::Git;
use regatta_engine::ports::store::UnreadableRow;
use regatta_engine::timer::MachineClock;
use regatta_engine::{Ports, Redact, Settings, Tools};
use regatta_git::GitAdapter;
use regatta_store::SqliteStore;

use crate::out::{Failed, failed};

/// The store's file in a data directory.
pub(crate) const STORE: &str = "regatta.db";

/// The daemon's unix socket in a data directory.
pub(crate) const SOCKET: &str = "daemon.sock";

/// Opens the world for the engine.
pub(crate) fn ports(data_dir: &Path, tools: Tools) -> Result<(Ports, Settings), Failed> {
    let exe = std::env::current_exe()
        .map_err(|it| failed("io", format!("this program cannot find itself: {it}"), "start it by its full path"))?;
    refuse_lost_store(data_dir)?;
    let store = SqliteStore::open(&data_dir.join(STORE)).map_err(from_store)?;
    let agents = AgentsAdapter::new(data_dir.to_owned(), exe).with_relay(&tools.server, data_dir.join(SOCKET));
    // No check of this daemon runs yet, so whatever is there was left by another one.
    if let Err(error) = agents.sweep_checks() {
        tracing::warn!("what earlier checks left stays: {error}");
    }
    let ports = Ports {
        store: Box::new(store),
        git: Arc::new(GitAdapter::new(data_dir.to_owned())),
        agents: Arc::new(agents),
        clock: Arc::new(MachineClock),
    };
    let attempt_env = attempt_env();
    let redact = Redact(Arc::new(redact));
    let settings = Settings {
        attempt_env,
        data_dir: Some(data_dir.to_owned()),
        redact,
        read_checks: Some(crate::settings::checks),
        tools: Some(tools),
        prices: crate::settings::prices()?,
        ..Settings::default()
    };
    Ok((ports, settings))
}

/// Where an agent's own program finds its login and its tools.
pub(crate) const HOMES: [&str; 5] = ["HOME", "CARGO_HOME", "RUSTUP_HOME", "GOPATH", "NVM_DIR"];

/// They are where the user has them; nothing else leaks (S3).
pub(crate) fn attempt_env() -> Vec<(String, String)> {
    HOMES.iter().filter_map(|it| Some(((*it).to_owned(), std::env::var(it).ok()?))).collect()
}

/// Version control and programs.
pub(crate) type Works = (Arc<dyn Git>, Arc<dyn Agents>);

/// What a runner works with.
pub(crate) fn for_runner(data_dir: &Path) -> Result<Works, Failed> {
    let exe = std::env::current_exe()
        .map_err(|it| failed("io", format!("this program cannot find itself: {it}"), "start it by its full path"))?;
    let fence = Duration::from_millis(regatta_core::runner::FENCE_MS);
    let agents = AgentsAdapter::new(data_dir.to_owned(), exe).with_leash(data_dir.join(LEASH), fence);
    Ok((Arc::new(git(data_dir)), Arc::new(agents)))
}

/// Where a runner notes when it last heard of the daemon.
const LEASH: &str = "leash";

/// Notes that the daemon was heard of: the programs of this runner go on.
pub(crate) fn in_contact(data_dir: &Path) {
    if let Err(error) = regatta_agents::leash::note(&data_dir.join(LEASH)) {
        tracing::error!("that the daemon was heard of cannot be noted, and what runs here will end: {error}");
    }
}

/// How a person takes up a session of an agent's program in a terminal, if that is known.
pub(crate) fn takes_up(agent: &regatta_core::agent::Agent, session: &str) -> Option<Vec<String>> {
    regatta_agents::presets::of(agent)?.takes_up(session)
}

/// The home of an agent that is shut in.
pub(crate) fn home_of(data_dir: &Path, agent: &regatta_core::ids::AgentName) -> PathBuf {
    regatta_agents::home::place(data_dir, agent)
}

/// Refuses to begin with an empty store where a fleet's repositories and workspaces are: its store was lost (D10).
fn refuse_lost_store(data_dir: &Path) -> Result<(), Failed> {
    let store = data_dir.join(STORE);
    let has = |folder: &str, end: &str| {
        let entries = std::fs::read_dir(data_dir.join(folder)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).any(|name| name.ends_with(end))
    };
    if store.exists() || !(has("vaults", ".git") || has("workspaces", "")) {
        return Ok(());
    }
    Err(failed(
        "store_behind",
        format!("the store {} is gone, and the vaults and workspaces of its fleet are still there", store.display()),
        format!(
            "put it back with its log, or put a backup back: regatta restore FILE; to begin anew, move {} away",
            data_dir.display()
        ),
    ))
}

/// The attempts of which something was ever started here.
pub(crate) fn attempts_here(data_dir: &Path) -> Vec<AttemptId> {
    let entries = std::fs::read_dir(data_dir.join("attempts")).into_iter().flatten().flatten();
    entries.filter_map(|it| it.file_name().to_str()?.parse().ok()).collect()
}

/// How long the journals of ended attempts are kept, and after how long they are compressed.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
const PLAIN: Duration = Duration::from_secs(24 * 3600);

/// Returns the date by which it is judged how old stored things are, in milliseconds since 1970. Without it nothing is
/// removed.
pub(crate) fn retention_date(data_dir: &Path) -> Option<u64> {
    let date = regatta_engine::retention_date(data_dir, &MachineClock);
    date.inspect_err(|error| tracing::warn!("nothing old is removed: the retention date cannot be kept: {error}")).ok()
}

/// Clears up behind attempts that ended long ago; behind commands, too, once the daemon has `settled` what another one
/// left: until then it may ask how one of them ended. `today_unix_ms` is the date by which ages are judged.
pub(crate) fn clear_up(data_dir: &Path, settled: bool, today_unix_ms: u64) {
    let today = UNIX_EPOCH + Duration::from_millis(today_unix_ms);
    let agents = AgentsAdapter::new(data_dir.to_owned(), PathBuf::from("regatta"));
    match agents.prune(KEPT, PLAIN, today) {
        Ok(it) if it.compressed.is_empty() && it.removed.is_empty() => {}
        Ok(it) => tracing::info!("{} journals compressed, {} removed", it.compressed.len(), it.removed.len()),
        Err(error) => tracing::warn!("old journals stay: {error}"),
    }
    if !settled {
        return;
    }
    match agents.prune_commands(KEPT, today) {
        Ok(0) => {}
        Ok(many) => tracing::info!("the records of {many} commands removed"),
        Err(error) => tracing::warn!("old records of commands stay: {error}"),
    }
    match regatta_engine::prune_evidence(data_dir, KEPT, today) {
        Ok(0) => {}
        Ok(many) => tracing::info!("what the checks of {many} attempts said removed"),
        Err(error) => tracing::warn!("what old checks said stays: {error}"),
    }
}

/// Which ways there are to shut a program in here: the best first, each with what keeps it from working.
pub(crate) fn sandboxes() -> Vec<(String, Option<String>)> {
    let exe = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("regatta"));
    let found = regatta_agents::confine::available(&exe).findings;
    let name = |it: &regatta_agents::confine::Finding| match &it.version {
        Some(version) => format!("{} {version}", it.mechanism),
        None => it.mechanism.to_string(),
    };
    found.iter().map(|it| (name(it), it.broken.clone())).collect()
}

/// Version control without a daemon, for looking.
pub(crate) fn git(data_dir: &Path) -> impl regatta_engine::ports::git::Git + use<> {
    GitAdapter::new(data_dir.to_owned())
}

/// Programs without a daemon: to try one out, and to read what others said.
pub(crate) fn agents(data_dir: &Path) -> Result<impl regatta_engine::ports::agents::Agents + use<>, Failed> {
    let exe = std::env::current_exe()
        .map_err(|it| failed("io", format!("this program cannot find itself: {it}"), "start it by its full path"))?;
    Ok(AgentsAdapter::new(data_dir.to_owned(), exe))
}

/// The same for a trial: its programs end when `leash` was not written for so long.
pub(crate) fn agents_on_leash(
    data_dir: &Path,
    leash: PathBuf,
    most: Duration,
) -> Result<impl regatta_engine::ports::agents::Agents + use<>, Failed> {
    let exe = std::env::current_exe()
        .map_err(|it| failed("io", format!("this program cannot find itself: {it}"), "start it by its full path"))?;
    Ok(AgentsAdapter::new(data_dir.to_owned(), exe).with_leash(leash, most))
}

/// Writes a leash: the programs that are held by it go on.
pub(crate) fn note_leash(file: &Path) -> std::io::Result<()> {
    regatta_agents::leash::note(file)
}

/// Lists the shims of this user on this machine, whatever their data directory is.
pub(crate) fn running_shims() -> std::io::Result<Vec<RunningShim>> {
    regatta_agents::strays::running_shims()
}

/// Ends every shim of a data directory, with the program that it supervises.
pub(crate) fn end_shims_in(data_dir: &Path) -> Result<usize, String> {
    let own = running_shims().map_err(|error| error.to_string())?.into_iter();
    let own: Vec<RunningShim> = own.filter(|shim| shim.data_dir() == Some(data_dir)).collect();
    for shim in &own {
        shim.end().map_err(|error| error.to_string())?;
    }
    Ok(own.len())
}

/// Removes what nobody looks after any more and no daemon can find again: what trials left whose process is gone, shims
/// whose directory was deleted, and empty control groups. Says what was done.
pub(crate) fn sweep_strays(data_dir: &Path) -> std::io::Result<Vec<String>> {
    let mut done = Vec::new();
    let trials = crate::trials::sweep(data_dir)?;
    if trials > 0 {
        done.push(format!("removed what {trials} interrupted agent tests left"));
    }
    for shim in running_shims()?.iter().filter(|shim| shim.is_abandoned()) {
        let what = format!("the shim {} of the deleted directory {}", shim.pid(), shim.run_dir().display());
        match shim.end() {
            Ok(()) => done.push(format!("ended {what}")),
            Err(error) => done.push(format!("could not end {what}: {error}")),
        }
    }
    let groups = regatta_agents::strays::sweep_control_groups()?;
    if groups > 0 {
        done.push(format!("removed {groups} empty control groups"));
    }
    Ok(done)
}

/// Removes what an earlier daemon of this data directory left, at a start: what [`sweep_strays`] does, directories of its
/// checks, and programs of attempts that the board does not know.
pub(crate) fn sweep_at_start(data_dir: &Path, is_live: impl Fn(AttemptId) -> bool) {
    match sweep_strays(data_dir) {
        Ok(done) => done.iter().for_each(|what| tracing::info!("{what}")),
        Err(error) => tracing::warn!("could not look for strays: {error}"),
    }
    for shim in running_shims().into_iter().flatten().filter(|shim| shim.data_dir() == Some(data_dir)) {
        let attempt = shim.run_dir().file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let Some(attempt) = attempt.filter(|attempt| !is_live(*attempt)) else { continue };
        match shim.end() {
            Ok(()) => tracing::warn!(%attempt, "ended its program, which the board does not know"),
            Err(error) => {
                tracing::error!(%attempt, "could not end its program, which the board does not know: {error}")
            }
        }
    }
}

/// Puts a copy of a store back, and returns its rows that cannot be read. The daemon must be down.
pub(crate) fn restore(from: &Path, data_dir: &Path) -> Result<Vec<UnreadableRow>, Failed> {
    regatta_store::restore(from, &data_dir.join(STORE)).map_err(from_store)
}

/// A store's error, for people.
pub(crate) fn from_store(error: regatta_engine::ports::store::StoreError) -> Failed {
    failed(error.code, error.what, error.hint)
}

/// Takes everything that looks like a secret out of a text: the one redactor of this program.
pub(crate) fn redact(text: &str) -> String {
    regatta_agents::redact::redact_text(text)
}
