//! The inputs of the API verbs for runners (machines that work for the daemon).

use regatta_core::attempt::SetupFault;
use regatta_core::ids::{AttemptId, RunnerName};
use serde::{Deserialize, Serialize};

use super::{default_wait_ms, inputs};

inputs! {
    /// Selects a runner (a machine that works for the daemon) by its name.
    RunnerNameInput {
        /// The name of the runner.
        name: RunnerName,
    }
    /// Identifies a runner (a machine that works for the daemon), with the session number that the
    /// runner got when it registered.
    RunnerSession {
        /// The name of the runner.
        runner: RunnerName,
        /// The number of the session, which `runner.register` returned.
        session: u64,
    }
    /// Asks for the calls (requests of the daemon to a runner) that came after the call with number
    /// `after`.
    RunnerCalls {
        /// The name of the runner.
        runner: RunnerName,
        /// The number of the session, which `runner.register` returned.
        session: u64,
        /// The number of the last call that the runner has received.
        #[serde(default)] after: u64,
        /// The time in milliseconds to wait while there is no call, at most a minute.
        #[serde(default = "default_wait_ms")] wait_ms: u64,
    }
    /// The answer of a runner (a machine that works for the daemon) to a call of the daemon: the
    /// result, or the error that prevented it.
    RunnerCallResult {
        /// The name of the runner.
        runner: RunnerName,
        /// The number of the session, which `runner.register` returned.
        session: u64,
        /// The number of the call that is answered.
        call: u64,
        /// The result of the call, if the call succeeded.
        #[serde(default)] gave: serde_json::Value,
        /// The reason why the call failed. If omitted, the call succeeded.
        #[serde(default)] error: Option<String>,
        /// Set if a person must correct something before the call can succeed. The value is the
        /// agent if its program or an API key is missing, or the task if git cannot create the
        /// task's workspace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<SetupFault>,
    }
    /// Output of an attempt's program that runs on a runner (a machine that works for the daemon).
    RunnerOutput {
        /// The name of the runner.
        runner: RunnerName,
        /// The number of the session, which `runner.register` returned.
        session: u64,
        /// The id of the attempt, such as `A5`.
        attempt: AttemptId,
        /// The events of the program, in the form that runners and the daemon share.
        words: serde_json::Value,
    }
    /// Journal records (recorded input and output) of a program that runs on a runner. If the list
    /// is empty, the call only asks how many records the daemon already has.
    JournalCopy {
        /// The name of the runner.
        runner: RunnerName,
        /// The number of the session, which `runner.register` returned.
        session: u64,
        /// The id of the attempt, such as `A5`.
        attempt: AttemptId,
        /// The heading of the transcript: how the program was started.
        #[serde(default)] heading: Option<String>,
        /// The records, in order.
        #[serde(default)] records: Vec<serde_json::Value>,
    }
}
