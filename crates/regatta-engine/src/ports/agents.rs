//! The port to programs: agents, and the checks that judge their work.

use std::path::PathBuf;
use std::time::Duration;

use regatta_core::agent::{Profile, Runtime, SandboxLevel};
use regatta_core::agent_protocol::{AgentEvent, FailureClass, RequestAnswer, Usage};
use regatta_core::ids::{AgentName, AttemptId, ProjectName};

/// A program to start for an attempt.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProgramLaunch {
    /// The attempt; at most one program ever runs for an attempt.
    pub attempt: AttemptId,
    /// The agent as which the program runs; the program gets this agent's home-like directory.
    pub agent: AgentName,
    /// The program and the way it is driven. `{prompt}` in an argument is replaced by the prompt.
    pub runtime: Runtime,
    /// The settings of the program and of its sandbox.
    pub profile: Profile,
    /// The native session to continue, if an earlier attempt of this task left one.
    pub resume: Option<String>,
    /// The server of Regatta's tools, if this daemon has one.
    pub mcp: Option<McpServer>,
    /// The use of that session that is already recorded.
    #[serde(rename = "used")]
    pub recorded_usage: Usage,
    /// The program's working directory.
    pub workspace: PathBuf,
    /// The directory outside the workspace from which git reads objects.
    pub objects: Option<PathBuf>,
    /// Directories that the program must not see: the user's own repository.
    pub hidden: Vec<PathBuf>,
    /// The prompt. It is also on the program's standard input and in the file that
    /// `REGATTA_PROMPT_FILE` names.
    pub prompt: String,
    /// The steps of the scripted agent as a JSON array, if the task has them
    /// (`REGATTA_SCRIPT_FILE`).
    pub script: Option<String>,
    /// Environment variables in addition to the allow-list.
    pub env: Vec<(String, String)>,
}

/// The outcome of a start.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StartOutcome {
    /// A sentence about the sandbox of the program, or nothing when it has none.
    pub sandbox: Option<String>,
    /// Warnings about the start, for people.
    pub warnings: Vec<String>,
}

/// The server of Regatta's own tools.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct McpServer {
    pub url: String,
    /// The attempt's own access token, which is a secret.
    pub token: String,
}

/// The complete input that is wanted for a running program, stated in full every time. The driver
/// compares it with the input it has already sent, so nothing is sent twice and a restart in
/// between changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SessionInput {
    /// The prompts in their order; the first is the brief. A prompt is sent when the turn before it
    /// has ended.
    pub prompts: Vec<String>,
    /// Answers to the program's requests, by its own ids for them.
    pub answers: Vec<(String, RequestAnswer)>,
    /// The number of times a turn should have been cancelled since the start.
    pub cancels: u32,
    /// No prompt is sent for now, even if some are left.
    #[serde(rename = "hold")]
    pub should_hold_prompts: bool,
    /// No further input will come. The program's input is closed when its turn has ended.
    #[serde(rename = "end")]
    pub should_close_input: bool,
}

/// The end of an attended program as its driver judges it. An exit code or a stop reason alone does
/// not prove success.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DriverVerdict {
    pub exit: Exit,
    /// The class of the failure, or `None` if the program's stream shows that it did its work.
    pub class: Option<FailureClass>,
    /// The program's last output, or a description of the failure, in a few lines.
    pub detail: String,
    /// The use by native session, cumulative.
    pub usage: Vec<(Option<String>, Usage)>,
}

/// The stream to which a record of a journal belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalStream {
    /// Sent to the program. The end of input is a stream of its own, because an empty line without
    /// a newline cannot be recorded here.
    In,
    /// The program's input was closed.
    InEnd,
    Out,
    Err,
    /// A note of the shim itself, for example that output was cut here.
    Mark,
}

/// One line of an attempt's journal.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct JournalRecord {
    /// The record's place in the journal, from 1, without gaps.
    #[serde(rename = "n")]
    pub position: u64,
    /// The date at which the shim wrote the record, in milliseconds.
    #[serde(rename = "at")]
    pub written_unix_ms: u64,
    pub stream: JournalStream,
    /// The line without its newline. Secrets are redacted, and invalid UTF-8 is replaced.
    pub line: String,
}

/// One record of a transcript, with the events that the program's driver read from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptLine {
    pub record: JournalRecord,
    pub events: Vec<AgentEvent>,
}

/// The engine's side of a program's session. The attendant calls it from its own thread.
pub trait SessionSink {
    /// Receives an event of the program, with its place in the journal. After a restart all events
    /// come again from the beginning; the receiver recognises known ones by their place.
    fn on_event(&self, position: u64, event: AgentEvent);
    /// Receives the time for which the program has been silent, or `None` when it became active
    /// again.
    fn on_silence(&self, since: Option<Duration>);
    /// Returns the input that is wanted now.
    fn desired_input(&self) -> SessionInput;
    /// Returns the time without output after which [`SessionSink::on_silence`] is called.
    fn silence_threshold(&self) -> Duration {
        Duration::from_secs(15 * 60)
    }
    /// Returns whether to continue attending. On `false` the program goes on alone.
    fn should_continue(&self) -> bool;
}

/// The identity of a process, which no other process shares.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessIdentity {
    /// The process id.
    pub pid: u32,
    /// The start time of the process, in the kernel's clock ticks since boot.
    pub start_ticks: u64,
    /// The id of the machine's boot.
    pub boot_id: String,
}

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Exit {
    /// The program returned this exit code.
    Code(i32),
    /// This signal ended the program.
    Signal(i32),
    /// The program could not be started.
    NotStarted(String),
    /// The program's supervisor vanished without an exit record (power cut, kill -9 of the shim).
    Lost,
}

/// The state of an attempt's program.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ProcessState {
    /// Nothing was ever started for this attempt.
    NotStarted,
    /// The program's supervisor is alive.
    Running(ProcessIdentity),
    /// The program has ended.
    Exited(Exit),
}

/// A command that judges a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckCommand {
    /// A shell command line of the user, run by `sh -c`.
    pub command: String,
    /// The working directory.
    pub dir: PathBuf,
    /// Environment variables in addition to the allow-list.
    pub env: Vec<(String, String)>,
    /// The time limit.
    pub timeout: Duration,
    /// A name under which the command runs only once in the life of the fleet, for commands that
    /// must not be repeated. Such a command outlives the daemon. A second check with this name
    /// joins the running command or reads its exit record. Letters, digits, `-`, `_` and `.`.
    pub once_name: Option<String>,
    /// The sandbox of the command, or nothing when it has none.
    pub sandbox: Option<CommandSandbox>,
}

/// The sandbox of a user's command that runs code which an agent wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSandbox {
    /// The project whose commands share a home directory.
    pub project: ProjectName,
    /// The requested level. If nobody requested one, `workspace` where the machine supports it.
    pub level: Option<SandboxLevel>,
    /// The directory outside the working directory from which git reads objects.
    pub objects: Option<PathBuf>,
    /// Directories that the command must not see: the user's own repository.
    pub hidden: Vec<PathBuf>,
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// The end of the command.
    pub exit: Exit,
    /// The command was stopped because its time ran out.
    pub has_timed_out: bool,
    /// The beginning and the end of its output (both streams), at most 16 KiB, valid UTF-8.
    pub output: String,
    /// A sentence about the sandbox of the command, or nothing when it had none.
    pub sandbox: Option<String>,
}

impl CheckResult {
    /// Returns whether the check passed.
    pub fn passed(&self) -> bool {
        !self.has_timed_out && self.exit == Exit::Code(0)
    }
}

/// The description of an agent that somebody wants to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSpec {
    /// The provider: anthropic, codex, …
    pub provider: String,
    /// The preset of the provider's program; the usual one, if not given.
    pub backend: Option<String>,
    pub is_fast_mode: bool,
    /// The model, if one is wanted.
    pub model: Option<String>,
    /// The environment variables of the program, from which it may read its models.
    pub env: Vec<(String, String)>,
    /// The names of the program's secrets.
    pub keys: Vec<String>,
}

/// The kind of a problem that keeps a program from being started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchProblem {
    /// The program is missing.
    ProgramMissing,
    /// Nobody is signed in, or a key is missing.
    NotSignedIn,
}

/// The facts about the program of a wanted agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedAgent {
    /// The way in which the program is driven.
    pub runtime: Option<Runtime>,
    /// The name of the program's preset.
    pub backend: Option<String>,
    pub program: Option<PathBuf>,
    pub version: Option<String>,
    /// A description of the sign-in, as far as there are signs of one.
    pub sign_in: Option<String>,
    /// The environment variables of this machine from which the program can take a key.
    pub keys: Vec<String>,
    /// The files below `~` with which the program's user is signed in.
    pub files: Vec<String>,
    /// True if the program has the requested fast mode; nothing when none was requested.
    pub fast_mode: Option<bool>,
    /// The models that the program lists, if it can do so without a session.
    pub models: Option<Vec<String>>,
    /// Notes for people.
    pub notes: Vec<String>,
    /// The reason why the program cannot be started.
    pub problem: Option<(LaunchProblem, AgentError)>,
}

/// A failure to run a program, described for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    /// A sentence about what happened and why.
    pub message: String,
    /// The next thing to do.
    pub hint: String,
}

impl AgentError {
    /// Returns the error of a port that keeps no copies of journals.
    fn copies_unsupported() -> AgentError {
        AgentError {
            message: "No copies of other machines' journals are kept here.".to_owned(),
            hint: "Read the transcript on the machine where the program runs.".to_owned(),
        }
    }
}

/// The port to programs.
pub trait Agents: Send + Sync {
    /// Returns the problems that keep an agent's program from being started on this machine: a
    /// missing program, or a key that this process's environment lacks. Starts nothing.
    fn launch_problems(
        &self,
        _runtime: &Runtime,
        _profile: &Profile,
    ) -> Vec<(LaunchProblem, AgentError)> {
        vec![]
    }
    /// Returns the mebibytes of memory that the machine could give to more programs, if that is
    /// known.
    fn free_memory_mb(&self) -> Option<u64> {
        None
    }
    /// Finds out whether an agent of this kind can be started on this machine: its program, its
    /// version, its sign-in. Starts no session and changes nothing.
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
    /// Starts the attempt's program under a supervisor that outlives this process. A second call
    /// for the same attempt starts nothing.
    fn start(&self, launch: &ProgramLaunch) -> Result<StartOutcome, AgentError>;
    /// Returns the state of the attempt's program.
    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError>;
    /// Returns whether a process of the attempt is alive on this machine. Writes nothing, so it
    /// also works on a full disk, where the end of a program cannot be recorded.
    fn is_alive(&self, attempt: AttemptId) -> Result<bool, AgentError> {
        Ok(matches!(self.state(attempt)?, ProcessState::Running(_)))
    }
    /// Attends the attempt's program until it has ended and no process of it is left: passes its
    /// events to `sink`, and sends the input that `sink` wants. Returns `None` when the sink no
    /// longer wants to continue. An attempt has at most one attendant at a time.
    fn attend(
        &self,
        attempt: AttemptId,
        sink: &dyn SessionSink,
    ) -> Result<Option<DriverVerdict>, AgentError>;
    /// Makes the attendant read its sink's desired input now.
    fn refresh_input(&self, attempt: AttemptId);
    /// Ends the attempt's whole process tree: SIGTERM, then SIGKILL after `grace`. Returns when the
    /// tree is gone.
    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError>;
    /// Runs a check to its end. Ends its whole process tree when its time is up.
    fn run_check(&self, check: &CheckCommand) -> Result<CheckResult, AgentError>;
    /// Runs a check as [`Agents::run_check`] does, but only as long as `is_wanted` returns true,
    /// which is called a few times a second. A check that is no longer wanted is ended with its
    /// whole tree, and nothing is returned. A check that runs `once_name` returns nothing only if it
    /// never began, because its end is recorded.
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
    /// Ends the commands that run `once_name` for an attempt: those whose name has the attempt's id
    /// as one of its parts between dashes, including those that an earlier daemon started. Returns
    /// when their process trees are gone.
    fn end_commands(&self, attempt: AttemptId) -> Result<(), AgentError> {
        let _ = attempt;
        Ok(())
    }
    /// Ends a running command with this `once_name` name, even if an earlier daemon started it, and
    /// deletes its record, so that the next check with this name runs again. The record of a
    /// command that has already ended is kept.
    fn abort_command(&self, name: &str) -> Result<(), AgentError> {
        let _ = name;
        Ok(())
    }
    /// Deletes the record of a command that ran `once_name` and has ended, so that the next check
    /// with this name runs again.
    fn delete_command_record(&self, name: &str) -> Result<(), AgentError> {
        let _ = name;
        Ok(())
    }
    /// Ends every running check and lets none begin, because nobody waits for results any more.
    /// Returns when the process trees are gone. Commands that run `once_name` continue, because
    /// their record keeps their end.
    fn stop_checks(&self) {}
    /// Reads the attempt's transcript, also while its program runs: at most `limit` records from
    /// place `from` (the first is 1), and fewer if they are long. Empty at the end, and if nothing
    /// was ever started.
    fn transcript(
        &self,
        attempt: AttemptId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<TranscriptLine>, AgentError>;
    /// Returns the last part of the program's output, at most `bytes` bytes, for a sentence about
    /// its end.
    fn tail(&self, attempt: AttemptId, bytes: usize) -> Result<String, AgentError>;
    /// Returns the date in milliseconds of the last record of the attempt's program, in or out: the
    /// age of the evidence for its displayed state.
    fn last_record_unix_ms(&self, attempt: AttemptId) -> Option<u64>;
    /// Returns the file in which the attempt's program may leave its result.
    fn result_file(&self, attempt: AttemptId) -> PathBuf;
    /// Returns the attempt's raw records: at most `limit` from place `from` (the first is 1) and
    /// about 4 MiB, but at least one if there is one. Cheap for a reader that continues at its last
    /// place.
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
    /// Returns the facts about a launch that a reader of the journal needs, in this port's own
    /// format and without secrets, for [`Agents::store_heading`] on another machine. `None` when
    /// nothing was started here.
    fn journal_heading(&self, attempt: AttemptId) -> Result<Option<String>, AgentError> {
        let _ = attempt;
        Ok(None)
    }
    /// Stores the heading of an attempt whose program runs on another machine, so that its
    /// transcript can be read here.
    fn store_heading(&self, attempt: AttemptId, heading: &str) -> Result<(), AgentError> {
        let _ = (attempt, heading);
        Err(AgentError::copies_unsupported())
    }
    /// Returns the place of the last record of the attempt on this machine, 0 for none.
    fn last_copied_position(&self, attempt: AttemptId) -> Result<u64, AgentError> {
        let _ = attempt;
        Err(AgentError::copies_unsupported())
    }
    /// Appends records to this machine's copy of the journal of an attempt whose program runs
    /// elsewhere, and waits until they are on the disk. Returns the place of the last record. Known
    /// records are skipped. A gap, or an attempt whose program was started here, is refused and
    /// changes nothing. No program is ever started here for an attempt that has a copy.
    fn append_copy(
        &self,
        attempt: AttemptId,
        records: &[JournalRecord],
    ) -> Result<u64, AgentError> {
        let _ = (attempt, records);
        Err(AgentError::copies_unsupported())
    }
}
