//! The check of `regatta doctor` for leftover processes and directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regatta_agents::leftovers::RunningShim;
use regatta_api::live_view::{CheckLevel, DoctorCheck};

use super::check_line;
use crate::{composition, daemon};

/// Ends processes that no daemon can find again, and removes their files. Agents' programs keep
/// running by design while their daemon is down, so such programs are only reported, unless
/// `end_strays` is set.
pub(super) fn check_strays(own_data_dir: &Path, end_strays: bool) -> Vec<DoctorCheck> {
    let mut checks = match composition::sweep_strays(own_data_dir) {
        Ok(ended) => ended
            .into_iter()
            .map(|what| check_line("strays", CheckLevel::Ok, what, ""))
            .collect(),
        Err(error) => vec![check_line(
            "strays",
            CheckLevel::Warn,
            format!("could not search for stray processes: {error}"),
            "",
        )],
    };
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
