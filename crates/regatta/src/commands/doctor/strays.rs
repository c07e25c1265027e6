//! The check of `regatta doctor` for leftover processes and directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regatta_agents::leftovers::RunningShim;
use regatta_api::live_view::{CheckLevel, DoctorCheck};
use regatta_core::plural;

use super::{DoctorArgs, check_line};
use crate::composition::Strays;
use crate::{composition, daemon};

/// The command that removes the leftovers that no daemon can find again.
const CLEAN_COMMAND: &str = "regatta doctor --clean";

/// Reports leftover processes and directories. Removes those that no daemon can find again only
/// with `--clean`. Agents' programs keep running by design while their daemon is down, so this
/// function ends them only with `--end-strays`.
pub(super) fn check_strays(own_data_dir: &Path, args: &DoctorArgs) -> Vec<DoctorCheck> {
    let lost = if args.clean {
        composition::sweep_strays(own_data_dir).map(|removed| {
            let line = |what| check_line("strays", CheckLevel::Ok, what, "");
            removed.into_iter().map(line).collect()
        })
    } else {
        composition::find_strays(own_data_dir).map(|strays| describe_strays(&strays))
    };
    let mut checks = lost.unwrap_or_else(|error| {
        let what = format!("could not search for leftover processes: {error}");
        vec![check_line("strays", CheckLevel::Warn, what, "")]
    });
    checks.extend(check_unsupervised(args.end_strays));
    checks
}

/// Describes the leftovers that no daemon can find again.
fn describe_strays(strays: &Strays) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    if strays.agent_tests > 0 {
        let what = format!(
            "directories of {} are left over",
            plural::count(strays.agent_tests, "interrupted agent test")
        );
        checks.push(check_line("strays", CheckLevel::Warn, what, CLEAN_COMMAND));
    }
    for shim in &strays.shims {
        let what = format!(
            "the shim {} of the deleted directory {} still runs",
            shim.pid(),
            shim.run_dir().display()
        );
        checks.push(check_line("strays", CheckLevel::Warn, what, CLEAN_COMMAND));
    }
    if strays.control_groups > 0 {
        // An empty control group costs nothing, so it is no warning.
        let what = format!(
            "{} left over",
            plural::count(strays.control_groups, "empty control group")
        );
        checks.push(check_line("strays", CheckLevel::Ok, what, CLEAN_COMMAND));
    }
    checks
}

/// Reports agents' programs of any data directory that run without a daemon. Ends them if
/// `end_strays` is set.
fn check_unsupervised(end_strays: bool) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    let mut unsupervised: BTreeMap<PathBuf, Vec<RunningShim>> = BTreeMap::new();
    for shim in composition::running_shims().unwrap_or_default() {
        let Some(data_dir) = shim.data_dir().map(Path::to_path_buf) else {
            continue;
        };
        if !shim.is_abandoned() && !daemon::DataDir::new(&data_dir).is_supervised() {
            unsupervised.entry(data_dir).or_default().push(shim);
        }
    }
    for (data_dir, shims) in unsupervised {
        let dir = data_dir.display();
        let pids: Vec<String> = shims.iter().map(|shim| shim.pid().to_string()).collect();
        let what = format!(
            "attempts of {dir} run without a daemon: {} (pid {})",
            shims.len(),
            pids.join(", ")
        );
        if !end_strays {
            let fix = format!(
                "to start their daemon: REGATTA_DATA_DIR={dir} regatta up; to end them: regatta \
                doctor --end-strays"
            );
            checks.push(check_line("strays", CheckLevel::Warn, what, fix));
            continue;
        }
        let failures: Vec<String> = shims
            .iter()
            .filter_map(|shim| shim.end().err())
            .map(|error| error.to_string())
            .collect();
        checks.push(if failures.is_empty() {
            check_line("strays", CheckLevel::Ok, format!("ended: {what}"), "")
        } else {
            check_line(
                "strays",
                CheckLevel::Bad,
                failures.join(" "),
                "try again: regatta doctor --end-strays",
            )
        });
    }
    checks
}
