//! Finds out which sandbox mechanisms work on this machine by setting up a sandbox with each
//! mechanism.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use regatta_core::agent::SandboxLevel;

use super::init_process::{SANDBOX_FAILED_EXIT_CODE, VERIFY_ONLY, failure_reason};
use super::{
    NetworkAccess, ResourceLimits, SandboxMechanism, SandboxSpec, bubblewrap, landlock_rules,
    prepare_with, search_path,
};

/// The result of testing one sandbox mechanism on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MechanismFinding {
    pub mechanism: SandboxMechanism,
    /// The version of bubblewrap or Landlock, or `None` if the mechanism has no version.
    pub version: Option<String>,
    /// A sentence that tells why the mechanism does not work, or `None` if it works.
    pub problem: Option<String>,
}

/// The sandbox mechanisms, each with the result of testing it on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxReport {
    pub findings: Vec<MechanismFinding>,
}

impl SandboxReport {
    /// Returns the best mechanism that works on this machine, or `None` if none works.
    pub fn best_mechanism(&self) -> Option<SandboxMechanism> {
        self.findings
            .iter()
            .find(|finding| finding.problem.is_none())
            .map(|finding| finding.mechanism)
    }

    /// Returns the test result of one mechanism.
    pub fn finding(&self, mechanism: SandboxMechanism) -> Option<&MechanismFinding> {
        self.findings
            .iter()
            .find(|finding| finding.mechanism == mechanism)
    }

    /// Returns, for each mechanism that does not work, a sentence that tells the reason.
    pub fn problems(&self) -> Vec<String> {
        let reason = |finding: &MechanismFinding| {
            finding
                .problem
                .as_ref()
                .map(|why| format!("{}: {why}", finding.mechanism))
        };
        self.findings.iter().filter_map(reason).collect()
    }
}

/// The cached reports, by the path of the regatta program and the value of PATH.
type ReportCache = HashMap<(PathBuf, Option<OsString>), SandboxReport>;

/// Tries every mechanism once, without starting a program, and returns which mechanisms work.
///
/// The report is cached for the life of this process, per regatta program and PATH, because both
/// can change which mechanisms work. Even with a cached report, each start of a program checks its
/// own sandbox.
pub fn detect_mechanisms(exe: &Path) -> SandboxReport {
    static REPORTS: LazyLock<Mutex<ReportCache>> = LazyLock::new(Mutex::default);
    let key = (exe.to_owned(), std::env::var_os("PATH"));
    // Hold the lock while the mechanisms are tried, so that many simultaneous starts try the
    // mechanisms only once.
    let mut reports = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    reports
        .entry(key)
        .or_insert_with(|| SandboxReport {
            findings: SandboxMechanism::ALL
                .map(|mechanism| detect(mechanism, exe))
                .to_vec(),
        })
        .clone()
}

fn detect(mechanism: SandboxMechanism, exe: &Path) -> MechanismFinding {
    let mut version = None;
    let problem = match mechanism {
        SandboxMechanism::Bubblewrap => match bubblewrap::find_bubblewrap(&search_path()) {
            None => Some(
                "the program bwrap is not installed; install the package `bubblewrap`.".to_owned(),
            ),
            Some(program) => {
                version = Command::new(&program)
                    .arg("--version")
                    .output()
                    .ok()
                    .and_then(|output| {
                        String::from_utf8(output.stdout)
                            .ok()?
                            .split_whitespace()
                            .last()
                            .map(str::to_owned)
                    });
                try_sandbox(mechanism, exe).err()
            }
        },
        SandboxMechanism::Namespaces => try_sandbox(mechanism, exe).err(),
        SandboxMechanism::Landlock => {
            let known = landlock_rules::landlock_version();
            version = (known > 0)
                .then(|| format!("ABI {known}{}", if known == 6 { " or later" } else { "" }));
            try_sandbox(mechanism, exe).err()
        }
    };
    MechanismFinding {
        mechanism,
        version,
        problem,
    }
}

/// Prepares a sandbox with this mechanism in a temporary directory and runs its checks. Returns the
/// reason if that fails.
fn try_sandbox(mechanism: SandboxMechanism, exe: &Path) -> Result<(), String> {
    let mark = crate::run_dir::new_launch_mark()
        .map_err(|error| format!("the mechanism could not be tried: {error}."))?;
    let directory = std::env::temp_dir().join(format!("regatta-trial-{mark}"));
    let result = try_sandbox_in(&directory, mechanism, exe);
    drop(fs::remove_dir_all(&directory));
    result
}

fn try_sandbox_in(directory: &Path, mechanism: SandboxMechanism, exe: &Path) -> Result<(), String> {
    let make = |name: &str| -> Result<PathBuf, String> {
        let dir = directory.join(name);
        fs::create_dir_all(&dir)
            .map_err(|error| format!("the mechanism could not be tried: {error}."))?;
        Ok(dir)
    };
    let spec = SandboxSpec {
        level: SandboxLevel::Strict,
        is_requested: true,
        mechanism: Some(mechanism),
        network: NetworkAccess::None,
        tools_url: None,
        limits: ResourceLimits::default(),
        program: VERIFY_ONLY.to_owned(),
        search_path: vec![],
        waits_for_shim: false,
        regatta_exe: exe.to_owned(),
        data_dir: make("data")?,
        run_dir: make("data/run")?,
        workspace: make("data/workspace")?,
        start_dir: None,
        home: make("data/home")?,
        tmp: make("data/tmp")?,
        outbox: make("data/outbox")?,
        vault_objects: Some(make("data/vault")?),
        input_files: vec![],
        user_homes: vec![],
        hidden_paths: vec![],
        read_paths: vec![],
        write_paths: vec![],
    };
    let prepared = prepare_with(&spec, mechanism).map_err(|error| error.message)?;
    let (program, arguments) = prepared
        .argv_prefix
        .split_first()
        .ok_or("the sandbox has no command line.")?;
    run_sandbox_checks(program, arguments)
}

/// Runs the command that sets up a sandbox with a placeholder instead of a program, so that only
/// its checks run. Returns the reason if that fails.
pub(super) fn run_sandbox_checks(program: &OsStr, arguments: &[OsString]) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .arg(VERIFY_ONLY)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| {
        format!(
            "{} could not be started: {error}.",
            Path::new(program).display()
        )
    })?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors
        .lines()
        .last()
        .unwrap_or("the command printed no error");
    Err(
        match failure_reason(
            output
                .status
                .code()
                .unwrap_or(i32::from(SANDBOX_FAILED_EXIT_CODE)),
            last,
        ) {
            Some(why) => why,
            None => format!(
                "the command that sets up the sandbox ended with {}: {last}.",
                output.status
            ),
        },
    )
}
