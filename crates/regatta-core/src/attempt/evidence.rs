//! The outcomes of the checks of an attempt's work, and what they mean: the reason of a failure, or
//! the command that the machine lacks.

use serde::{Deserialize, Serialize};

use crate::check_output;

/// The outcome of one check (a test, a linter or a built-in rule) of an attempt's work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckEvidence {
    /// The check's command line, or the name of a built-in check such as `files_exist`.
    pub check: String,
    pub passed: bool,
    /// The way in which the check ended, in a few words such as "exited with 1".
    #[serde(rename = "how")]
    pub outcome: String,
    /// The last part of the output that the check printed.
    pub output: String,
    /// The command that this machine lacks, if the check could not run because of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_command: Option<String>,
    #[serde(rename = "ms")]
    pub duration_ms: u64,
}

/// Returns a line about the first failed check in `evidence`, or `None` if all passed.
pub fn failed_check_reason(evidence: &[CheckEvidence]) -> Option<String> {
    let failed = evidence.iter().find(|check| !check.passed)?;
    let summary = check_output::summary(&failed.output);
    Some(if summary.is_empty() {
        failed.outcome.clone()
    } else {
        format!("{}: {summary}", failed.outcome)
    })
}

/// Returns a sentence about the check that could not run because this machine lacks a command. The
/// sentence ends with what a person can do. Returns `None` if there is no such check.
pub fn unrunnable_check_reason(evidence: &[CheckEvidence]) -> Option<String> {
    let failed = evidence.iter().find(|check| !check.passed)?;
    let name = failed.missing_command.as_ref()?;
    Some(format!(
        "this machine cannot run the command {name}, so the check {}: install {name} where the \
         daemon's PATH has it, or set another check with regatta init --validate 'CMD'",
        failed.outcome
    ))
}
