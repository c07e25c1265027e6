//! Finds out which sandbox mechanisms work on this machine by trying them.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use regatta_core::agent::Level;

use super::stage::{FAILED, VERIFY, failure};
use super::{Confine, Limits, Mechanism, Network, bubblewrap, engage, rules, search_path};

/// The result for one mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub mechanism: Mechanism,
    /// The version of the mechanism, if it has one.
    pub version: Option<String>,
    /// The reason, as a sentence, if the mechanism does not work.
    pub broken: Option<String>,
}

/// The results for all mechanisms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns the preferred mechanism that works.
    pub fn best(&self) -> Option<Mechanism> {
        self.findings.iter().find(|it| it.broken.is_none()).map(|it| it.mechanism)
    }

    /// Returns the result for one mechanism.
    pub fn finding(&self, mechanism: Mechanism) -> Option<&Finding> {
        self.findings.iter().find(|it| it.mechanism == mechanism)
    }

    /// Returns the reasons of the mechanisms that do not work, as sentences.
    pub fn reasons(&self) -> Vec<String> {
        let reason = |it: &Finding| it.broken.as_ref().map(|why| format!("{}: {why}", it.mechanism));
        self.findings.iter().filter_map(reason).collect()
    }
}

/// The cached reports, by program and PATH.
type Known = HashMap<(PathBuf, Option<OsString>), Report>;

/// Tries every mechanism once, without starting a program, and returns the results.
///
/// The results are cached for the life of this process, per program and PATH, because both can
/// change what works. The checks before every start run in any case.
pub fn available(exe: &Path) -> Report {
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    let key = (exe.to_owned(), std::env::var_os("PATH"));
    // The lock is held during the trial, so that many simultaneous starts try only once.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(key).or_insert_with(|| Report { findings: Mechanism::ALL.map(|it| find_out(it, exe)).to_vec() }).clone()
}

fn find_out(mechanism: Mechanism, exe: &Path) -> Finding {
    let mut version = None;
    let broken = match mechanism {
        Mechanism::Bubblewrap => match bubblewrap::find(&search_path()) {
            None => Some("it is not installed; install the package `bubblewrap`.".to_owned()),
            Some(program) => {
                version = Command::new(&program)
                    .arg("--version")
                    .output()
                    .ok()
                    .and_then(|it| String::from_utf8(it.stdout).ok()?.split_whitespace().last().map(str::to_owned));
                trial(mechanism, exe).err()
            }
        },
        Mechanism::Namespaces => trial(mechanism, exe).err(),
        Mechanism::Landlock => {
            let known = rules::version();
            version = (known > 0).then(|| format!("ABI {known}{}", if known == 6 { " or later" } else { "" }));
            trial(mechanism, exe).err()
        }
    };
    Finding { mechanism, version, broken }
}

/// Prepares a sandbox in a directory of its own and runs its checks without a program.
fn trial(mechanism: Mechanism, exe: &Path) -> Result<(), String> {
    let mark = crate::rundir::fresh_mark().map_err(|error| format!("it could not be tried: {error}."))?;
    let place = std::env::temp_dir().join(format!("regatta-trial-{mark}"));
    let result = trial_in(&place, mechanism, exe);
    drop(fs::remove_dir_all(&place));
    result
}

fn trial_in(place: &Path, mechanism: Mechanism, exe: &Path) -> Result<(), String> {
    let make = |name: &str| -> Result<PathBuf, String> {
        let dir = place.join(name);
        fs::create_dir_all(&dir).map_err(|error| format!("it could not be tried: {error}."))?;
        Ok(dir)
    };
    let confine = Confine {
        level: Level::Strict,
        asked: true,
        mechanism: Some(mechanism),
        network: Network::None,
        tools: None,
        limits: Limits::default(),
        program: VERIFY.to_owned(),
        path: vec![],
        held: false,
        exe: exe.to_owned(),
        data_dir: make("data")?,
        run_dir: make("data/run")?,
        workspace: make("data/workspace")?,
        begins: None,
        home: make("data/home")?,
        tmp: make("data/tmp")?,
        outbox: make("data/outbox")?,
        vault_objects: Some(make("data/vault")?),
        inputs: vec![],
        real_homes: vec![],
        hidden: vec![],
        read: vec![],
        write: vec![],
    };
    let prepared = engage(&confine, mechanism).map_err(|error| error.what)?;
    let (program, arguments) = prepared.argv_prefix.split_first().ok_or("it has no command line.")?;
    try_stage(program, arguments)
}

/// Runs the sandbox's command prefix with a placeholder instead of a program. Returns the reason if
/// that fails.
pub(super) fn try_stage(program: &OsStr, arguments: &[OsString]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).arg(VERIFY).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{} could not be started: {error}.", Path::new(program).display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or("it printed nothing");
    Err(match failure(output.status.code().unwrap_or(i32::from(FAILED)), last) {
        Some(why) => why,
        None => format!("it ended with {}: {last}.", output.status),
    })
}
