//! The interface through which the engine runs programs: the programs of agents, and the commands
//! that check their work.

use std::path::PathBuf;
use std::time::Duration;

use regatta_core::agent::{Profile, Runtime, SandboxLevel};
use regatta_core::agent_protocol::{AgentEvent, FailureClass, RequestAnswer, Usage};
use regatta_core::ids::{AgentName, AttemptId, ProjectName};

/// Everything that is needed to start the program of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProgramLaunch {
    /// The attempt for which the agent's program runs. At most one program is ever started for an
    /// attempt.
    pub attempt: AttemptId,
    /// The agent in whose name the program runs. This program gets a home directory of this agent.
    pub agent: AgentName,
    /// The command line of the agent's program and the way in which Regatta talks to it. `{prompt}`
    /// in an argument is replaced by the prompt.
    pub runtime: Runtime,
    /// The agent's settings for its program and for the program's sandbox.
    pub profile: Profile,
    /// The id of the session to continue, as the agent's program names that session. `None` starts
    /// a new session.
    pub resume: Option<String>,
    /// The server whose tools the agent's program can call, or `None` if this daemon has no such
    /// server.
    pub mcp: Option<McpServer>,
    /// The tokens and cost that were already recorded for the session in `resume`, so that they are
    /// not counted twice.
    #[serde(rename = "used")]
    pub recorded_usage: Usage,
    /// The working directory of the agent's program, which is the attempt's workspace.
    pub workspace: PathBuf,
    /// A directory outside the workspace from which git must be able to read objects. `None` if
    /// there is no such directory.
    pub objects: Option<PathBuf>,
    /// Directories that the sandbox hides from the agent's program, such as the user's own
    /// repository.
    pub hidden: Vec<PathBuf>,
    /// The text of the prompt. The agent's program gets this text on its standard input and in the
    /// file that `REGATTA_PROMPT_FILE` names.
    pub prompt: String,
    /// The steps that the built-in scripted agent follows, as a JSON array, if the task has such
    /// steps. The agent's program reads them from the file that `REGATTA_SCRIPT_FILE` names.
    pub script: Option<String>,
    /// Environment variables that the agent's program gets in addition to the few variables that it
    /// inherits.
    pub env: Vec<(String, String)>,
}

/// Facts about a program that has just been started.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StartOutcome {
    /// A sentence that describes the sandbox of the agent's program, or `None` if the program has
    /// no sandbox.
    pub sandbox: Option<String>,
    /// Warnings for people about the way in which the agent's program was started.
    pub warnings: Vec<String>,
}

/// The address of the server whose tools an agent's program can call, and the access token for that
/// server.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct McpServer {
    pub url: String,
    /// The access token of this attempt, which is a secret.
    pub token: String,
}

/// The complete input that the program of an agent should have received by now. The driver (the
/// code that talks to the program) sends only the part that it has not sent yet, so no input is
/// sent twice, even after a restart of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SessionInput {
    /// All prompts in order, where the first prompt describes the task. Each further prompt is sent
    /// when the agent's program has finished its turn on the previous prompt.
    pub prompts: Vec<String>,
    /// The answers to the questions and permission requests of the agent's program, each with the
    /// program's own id of the request.
    pub answers: Vec<(String, RequestAnswer)>,
    /// The number of requests to cancel the current turn of the agent's program, counted since the
    /// program started.
    pub cancels: u32,
    /// If true, no prompt is sent for now, even if some have not been sent.
    #[serde(rename = "hold")]
    pub should_hold_prompts: bool,
    /// If true, the agent's program gets no further input. The driver (the code that talks to the
    /// program) closes the program's input when the current turn has ended.
    #[serde(rename = "end")]
    pub should_close_input: bool,
}

/// The judgement of a program's driver (the code that understands the program's output) about how
/// the program ended. An exit code alone does not prove success.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DriverVerdict {
    pub exit: Exit,
    /// The kind of failure, or `None` if the output of the agent's program shows that the program
    /// did its work.
    pub class: Option<FailureClass>,
    /// A few lines: the last output of the agent's program, or a description of its failure.
    pub detail: String,
    /// The tokens and cost of each session of the agent's program, by the program's own session id.
    /// The numbers count from the beginning of the session.
    pub usage: Vec<(Option<String>, Usage)>,
}

/// The source of a line in an attempt's journal, the file that records everything that goes in and
/// out of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalStream {
    /// A line that was sent to the agent's program. When the program's input is closed, an `InEnd`
    /// record follows.
    In,
    /// The input of the agent's program was closed at this point of the journal.
    InEnd,
    Out,
    Err,
    /// A note of the shim (the process that supervises the agent's program), for example that
    /// output was cut at this point.
    Mark,
}

/// One line of an attempt's journal, the file that records everything that goes in and out of a
/// program.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct JournalRecord {
    /// The number of the record in the attempt's journal (the file that records everything that
    /// goes in and out of the agent's program). Numbers begin at 1 and have no gaps.
    #[serde(rename = "n")]
    pub position: u64,
    /// The time at which the shim (the supervising process) wrote the record, in milliseconds since
    /// 1970.
    #[serde(rename = "at")]
    pub written_unix_ms: u64,
    pub stream: JournalStream,
    /// The text of the line without its newline. Secrets are removed, and invalid UTF-8 is
    /// replaced.
    pub line: String,
}

/// One record of an attempt's journal (the file with everything that goes in and out of its
/// program) as people read it. The events are those that the driver, the code that understands the
/// program's output, found in the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptLine {
    pub record: JournalRecord,
    pub events: Vec<AgentEvent>,
}

/// A line of a transcript together with the complete output of tool calls, of which the events have
/// only the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompleteTranscriptLine {
    pub line: TranscriptLine,
    pub outputs: Vec<OutputChange>,
}

/// A change of the output of a tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputChange {
    /// The id of the tool call, as in [`AgentEvent::Tool`].
    pub call: String,
    /// True if `text` replaces the earlier output. Otherwise `text` follows the earlier output.
    pub replaces: bool,
    pub text: String,
    /// The exit code of the command, if the program reported one.
    pub exit_code: Option<i64>,
}

/// The end of a transcript, read without reading what comes before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranscriptEnd {
    /// The last lines. Their events may lack facts from earlier lines, such as the title of a tool
    /// call.
    pub lines: Vec<CompleteTranscriptLine>,
    /// True if `lines` is the whole transcript.
    pub is_whole: bool,
}

/// Receives the events of an attempt's program and supplies its input. The thread that reads the
/// program's output calls these methods.
pub trait SessionSink {
    /// Receives an event of the agent's program with the number of the output record that contains
    /// it. After a restart all events come again from the beginning, and the receiver ignores the
    /// events whose number it has already received.
    fn on_event(&self, position: u64, event: AgentEvent);
    /// Receives the time for which the agent's program has been without output, or `None` when the
    /// program produces output again.
    fn on_silence(&self, since: Option<Duration>);
    /// Returns all input that the agent's program should have received by now.
    fn desired_input(&self) -> SessionInput;
    /// Returns how long a program must be without output before [`SessionSink::on_silence`] is
    /// called.
    fn silence_threshold(&self) -> Duration {
        Duration::from_secs(15 * 60)
    }
    /// Returns whether to go on reading the output of the agent's program. If `false`, the caller
    /// stops reading, and the program continues by itself.
    fn should_continue(&self) -> bool;
}

/// Identifies a process so that no other process is mistaken for it, not even a later process with
/// the same process id.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessIdentity {
    /// The process id that the operating system gave to the process.
    pub pid: u32,
    /// The time at which the process started, in the kernel's clock ticks since the machine booted.
    pub start_ticks: u64,
    /// The id that the kernel gave to the current boot of the machine. The id is different after
    /// every reboot.
    pub boot_id: String,
}

/// The way in which a program ended: an agent's program, or the command of a check.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Exit {
    /// The program exited by itself with this exit code.
    Code(i32),
    /// A signal ended the program. The value is the signal's number.
    Signal(i32),
    /// The program could not be started. The text is the reason.
    NotStarted(String),
    /// The way in which the program ended is unknown, because its supervising process (the shim)
    /// disappeared without recording the end, for example in a power cut.
    Lost,
}

/// The state of an attempt's program: not started, running or ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ProcessState {
    /// No program was ever started for this attempt.
    NotStarted,
    /// The process that supervises the attempt's program is alive.
    Running(ProcessIdentity),
    /// The program has ended. The value says how the program ended.
    Exited(Exit),
}

/// A command that checks the files in a directory, such as a test or a linter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckCommand {
    /// The user's shell command line, which `sh -c` runs.
    pub command: String,
    /// The directory in which the check's command runs.
    pub dir: PathBuf,
    /// Environment variables that the check's command gets in addition to the few variables that it
    /// inherits.
    pub env: Vec<(String, String)>,
    /// The time after which the check's command is stopped.
    pub timeout: Duration,
    /// The name of a command that must run at most once, even across restarts of the daemon. Such a
    /// command outlives the daemon. A second check with the same name waits for the running command
    /// or reads how the command ended. The name has letters, digits, `-`, `_` and `.`. `None` runs
    /// the command each time.
    pub once_name: Option<String>,
    /// The sandbox in which the check's command runs, or `None` for no sandbox.
    pub sandbox: Option<CommandSandbox>,
}

/// The sandbox for a user's command, which is needed because the command runs code that an agent
/// wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSandbox {
    /// The project for which the sandboxed command runs. All sandboxed commands of a project share
    /// one home directory.
    pub project: ProjectName,
    /// The requested level. If `None`, the level is `workspace` where the machine supports
    /// sandboxes.
    pub level: Option<SandboxLevel>,
    /// A directory outside the working directory from which git must be able to read objects.
    /// `None` if there is no such directory.
    pub objects: Option<PathBuf>,
    /// Directories that the sandbox hides from the user's command, such as the user's own
    /// repository.
    pub hidden: Vec<PathBuf>,
}

/// The result of running a check's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// The way in which the check's command ended.
    pub exit: Exit,
    /// True if the check's command was stopped because it reached its time limit.
    pub has_timed_out: bool,
    /// The beginning and the end of the output of the check's command (both streams), at most 16
    /// KiB of valid UTF-8.
    pub output: String,
    /// A sentence that describes the sandbox in which the check's command ran, or `None` if the
    /// command ran without a sandbox.
    pub sandbox: Option<String>,
}

impl CheckResult {
    /// Returns whether the check passed: the command exited with 0 within its time limit.
    pub fn passed(&self) -> bool {
        !self.has_timed_out && self.exit == Exit::Code(0)
    }
}

/// The kind of agent that somebody wants to start: which program, with which model and secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSpec {
    /// The provider whose program the agent uses, such as `anthropic` or `codex`.
    pub provider: String,
    /// The preset (named default settings) of the provider's program. `None` uses the provider's
    /// usual preset.
    pub backend: Option<String>,
    pub is_fast_mode: bool,
    /// The model that the agent's program should use. `None` leaves the choice to the program.
    pub model: Option<String>,
    /// The environment variables that the agent's program gets. Some programs read the names of
    /// their models from such variables.
    pub env: Vec<(String, String)>,
    /// The names of the secrets that the agent's program gets.
    pub keys: Vec<String>,
}

/// The kind of problem that prevents a program from being started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchProblem {
    /// The agent's program is not installed on this machine.
    ProgramMissing,
    /// The agent's program has no credentials: its user is not signed in, or a key is missing.
    NotSignedIn,
}

/// The facts about the program of an agent that somebody wants to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedAgent {
    /// The command line of the agent's program and the way in which Regatta talks to it. `None` if
    /// the command line cannot be determined.
    pub runtime: Option<Runtime>,
    /// The name of the preset (named default settings) that was chosen for the agent's program.
    pub backend: Option<String>,
    pub program: Option<PathBuf>,
    pub version: Option<String>,
    /// A description of how the agent's program is signed in, or `None` if no sign-in was found.
    pub sign_in: Option<String>,
    /// The names of the environment variables on this machine from which the agent's program can
    /// take an API key.
    pub keys: Vec<String>,
    /// The files in the home directory that hold the sign-in for the agent's program.
    pub files: Vec<String>,
    /// True if the agent's program has the fast mode that was requested. `None` if fast mode was
    /// not requested.
    pub fast_mode: Option<bool>,
    /// The models that the agent's program offers. `None` if the program cannot list them without
    /// starting a session.
    pub models: Option<Vec<String>>,
    /// Notes about the agent's program that people may see.
    pub notes: Vec<String>,
    /// The reason why the agent's program cannot be started, or `None` if it can be started.
    pub problem: Option<(LaunchProblem, AgentError)>,
}

/// An error about running a program, worded for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    /// A sentence about what happened and why, for people.
    pub message: String,
    /// What the person can do next, for example run a command.
    pub hint: String,
}

impl AgentError {
    /// Returns the error of an adapter that keeps no copies of the journals (records of input and
    /// output) of programs on other machines.
    fn copies_unsupported() -> AgentError {
        AgentError {
            message: "This machine keeps no copies of the journals of other machines.".to_owned(),
            hint: "Read the transcript on the machine where the program runs.".to_owned(),
        }
    }
}

/// The interface through which the engine starts, reads and stops programs: the programs of agents,
/// and the commands that check their work.
pub trait Agents: Send + Sync {
    /// Returns the problems that prevent an agent's program from being started on this machine,
    /// such as a missing program or a key that this process's environment lacks. Starts nothing.
    fn launch_problems(
        &self,
        _runtime: &Runtime,
        _profile: &Profile,
    ) -> Vec<(LaunchProblem, AgentError)> {
        vec![]
    }
    /// Returns how many mebibytes of memory the machine could give to more programs, or `None` if
    /// that is unknown.
    fn free_memory_mb(&self) -> Option<u64> {
        None
    }
    /// Finds out whether an agent of this kind can be started on this machine, by looking for its
    /// program, the program's version and signs that its user is signed in. Starts no session and
    /// changes nothing.
    fn resolve(&self, spec: &AgentSpec) -> ResolvedAgent {
        let message = format!(
            "This machine has no program of the provider {}.",
            spec.provider
        );
        let error = AgentError {
            message,
            hint: "Name a provider that this machine has.".to_owned(),
        };
        ResolvedAgent {
            problem: Some((LaunchProblem::ProgramMissing, error)),
            ..ResolvedAgent::default()
        }
    }
    /// Starts the attempt's program under a supervising process (the shim) that outlives this
    /// process. A second call for the same attempt starts nothing.
    fn start(&self, launch: &ProgramLaunch) -> Result<StartOutcome, AgentError>;
    /// Returns the state of the attempt's program: not started, running or ended.
    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError>;
    /// Returns whether a process of the attempt is alive on this machine. This method writes
    /// nothing, so it works even on a full disk, on which the end of a program cannot be recorded.
    fn is_alive(&self, attempt: AttemptId) -> Result<bool, AgentError> {
        Ok(matches!(self.state(attempt)?, ProcessState::Running(_)))
    }
    /// Follows the attempt's program until none of its processes is left. Passes the program's
    /// events to `sink`, and sends the program the input that `sink` returns. Returns `None` when
    /// `sink` no longer wants to continue. At most one call per attempt may run at a time.
    fn attend(
        &self,
        attempt: AttemptId,
        sink: &dyn SessionSink,
    ) -> Result<Option<DriverVerdict>, AgentError>;
    /// Notifies the [`Agents::attend`] call that runs for the attempt, so that it asks its `sink`
    /// for new input at once.
    fn refresh_input(&self, attempt: AttemptId);
    /// Stops all processes of the attempt: sends SIGTERM, and SIGKILL after `grace`. Returns only
    /// when no process is left, and says how the attempt's program ended.
    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError>;
    /// Runs a check until it ends. Stops all processes of the check when the time limit is reached.
    fn run_check(&self, check: &CheckCommand) -> Result<CheckResult, AgentError>;
    /// Like [`Agents::run_check`], but calls `is_wanted` a few times a second. When `is_wanted`
    /// returns false, stops all processes of the check and returns `None`. A check with a
    /// `once_name` returns `None` only if its command never started, because the end of a started
    /// command is recorded.
    fn run_check_while(
        &self,
        check: &CheckCommand,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Option<CheckResult>, AgentError> {
        if !is_wanted() {
            return Ok(None);
        }
        self.run_check(check).map(Some)
    }
    /// Stops the commands with a `once_name` that run for an attempt, including those that an
    /// earlier daemon process started. The name of such a command contains the attempt's id as one
    /// of the parts between dashes. Returns when the processes of these commands are gone.
    fn end_commands(&self, attempt: AttemptId) -> Result<(), AgentError> {
        let _ = attempt;
        Ok(())
    }
    /// Stops the running command whose `once_name` is `name`, even if an earlier daemon process
    /// started the command. Deletes the record of the command, so that the next check with this
    /// name runs the command again. The record of a command that has already ended is kept.
    fn abort_command(&self, name: &str) -> Result<(), AgentError> {
        let _ = name;
        Ok(())
    }
    /// Deletes the record of an ended command whose `once_name` is `name`, so that the next check
    /// with this name runs the command again.
    fn delete_command_record(&self, name: &str) -> Result<(), AgentError> {
        let _ = name;
        Ok(())
    }
    /// Stops every running check and lets no check start, because the daemon is ending and nothing
    /// waits for results any more. Returns when the processes are gone. Commands with a `once_name`
    /// continue, because the way in which they end is recorded and can be read later.
    fn stop_checks(&self) {}
    /// Reads the attempt's transcript (the readable record of its program's input and output), even
    /// while the program runs. Begins with the record number `from`; the first record has number 1.
    /// Returns at most `limit` records, and fewer if the records are long. Returns an empty list if
    /// there is no such record, for example because no program was ever started.
    fn transcript(
        &self,
        attempt: AttemptId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<TranscriptLine>, AgentError>;
    /// Like [`Agents::transcript`], but also returns the complete output of tool calls.
    fn complete_transcript(
        &self,
        attempt: AttemptId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<CompleteTranscriptLine>, AgentError> {
        let lines = self.transcript(attempt, from, limit)?;
        Ok(lines
            .into_iter()
            .map(|line| CompleteTranscriptLine {
                line,
                outputs: vec![],
            })
            .collect())
    }
    /// Returns the lines in about the last `bytes` bytes of the attempt's transcript. The time does
    /// not depend on the length of the transcript.
    fn transcript_end(&self, attempt: AttemptId, bytes: u64) -> Result<TranscriptEnd, AgentError> {
        let _ = (attempt, bytes);
        Ok(TranscriptEnd::default())
    }
    /// Returns the last part of the output of the attempt's program, at most `bytes` bytes, to
    /// explain to people how the program ended.
    fn tail(&self, attempt: AttemptId, bytes: usize) -> Result<String, AgentError>;
    /// Returns the time at which the attempt's program last sent or received something, in
    /// milliseconds since 1970, or `None` if nothing was recorded. People can tell from this time
    /// how current the displayed state is.
    fn last_record_unix_ms(&self, attempt: AttemptId) -> Option<u64>;
    /// Returns the path of the file in which the attempt's program may leave its result.
    fn result_file(&self, attempt: AttemptId) -> PathBuf;
    /// Returns the first prompt of the attempt's program, without secrets. Returns `None` if the
    /// prompt is not stored on this machine.
    fn prompt(&self, _attempt: AttemptId) -> Result<Option<String>, AgentError> {
        Ok(None)
    }
    /// Returns the raw records of the attempt's journal (the file that records everything that goes
    /// in and out of the attempt's program). Begins with the record number `from`; the first record
    /// has number 1. Returns at most `limit` records and at most about 4 MiB, but at least one
    /// record if one exists. Continuing where the last call ended is cheap.
    fn records(
        &self,
        attempt: AttemptId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalRecord>, AgentError> {
        Ok(self
            .transcript(attempt, from, limit)?
            .into_iter()
            .map(|transcript_line| transcript_line.record)
            .collect())
    }
    /// Returns the facts about the attempt's launch that are needed to read its journal (the record
    /// of its program's input and output), without secrets. The text is in the format of this
    /// implementation, and [`Agents::store_heading`] on another machine accepts it. Returns `None`
    /// when no program was started here.
    fn journal_heading(&self, attempt: AttemptId) -> Result<Option<String>, AgentError> {
        let _ = attempt;
        Ok(None)
    }
    /// Stores the text of [`Agents::journal_heading`] for an attempt whose program runs on another
    /// machine, so that its transcript can be read on this machine.
    fn store_heading(&self, attempt: AttemptId, heading: &str) -> Result<(), AgentError> {
        let _ = (attempt, heading);
        Err(AgentError::copies_unsupported())
    }
    /// Returns the number of the last record in this machine's copy of an attempt's journal (the
    /// record of its program's input and output), or 0 if the copy has no records.
    fn last_copied_position(&self, attempt: AttemptId) -> Result<u64, AgentError> {
        let _ = attempt;
        Err(AgentError::copies_unsupported())
    }
    /// Appends records to this machine's copy of the journal (the record of input and output) of an
    /// attempt whose program runs on another machine, and waits until they are on the disk. Returns
    /// the number of the last record. Skips records that the copy already has. Returns an error and
    /// changes nothing if records between the copy and `records` are missing, or if the attempt's
    /// program was started on this machine. No program is ever started on this machine for an
    /// attempt that has a copy here.
    fn append_copy(
        &self,
        attempt: AttemptId,
        records: &[JournalRecord],
    ) -> Result<u64, AgentError> {
        let _ = (attempt, records);
        Err(AgentError::copies_unsupported())
    }
}
