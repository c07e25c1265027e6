//! The port through which the engine runs programs: the programs of agents, and the commands that
//! check their work.

use std::path::PathBuf;
use std::time::Duration;

use regatta_core::agent::{Profile, Runtime, SandboxLevel};
use regatta_core::agent_protocol::{AgentEvent, FailureClass, RequestAnswer, Usage};
use regatta_core::ids::{AgentName, AttemptId, ProjectName};

/// Everything that is needed to start the program of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProgramLaunch {
    /// The attempt for which the program runs. At most one program is ever started for an attempt.
    pub attempt: AttemptId,
    /// The agent in whose name the program runs. The program gets a home directory of this agent.
    pub agent: AgentName,
    /// The program's command line and the way in which Regatta talks to it. `{prompt}` in an
    /// argument is replaced by the prompt.
    pub runtime: Runtime,
    /// The agent's settings for the program and its sandbox.
    pub profile: Profile,
    /// The program's own id of the session to continue. `None` starts a new session.
    pub resume: Option<String>,
    /// The server whose tools the program can call, or `None` if this daemon has no such server.
    pub mcp: Option<McpServer>,
    /// The tokens and cost that the board has already recorded for the session in `resume`, so that
    /// they are not counted twice.
    #[serde(rename = "used")]
    pub recorded_usage: Usage,
    /// The program's working directory, which is the attempt's workspace.
    pub workspace: PathBuf,
    /// A directory outside the workspace from which git must be able to read objects. `None` if
    /// there is none.
    pub objects: Option<PathBuf>,
    /// Directories that the sandbox hides from the program, such as the user's own repository.
    pub hidden: Vec<PathBuf>,
    /// The text of the prompt. The program also gets it on its standard input and in the file that
    /// `REGATTA_PROMPT_FILE` names.
    pub prompt: String,
    /// The steps that the built-in scripted agent follows, as a JSON array, if the task has such
    /// steps. The program reads them from the file that `REGATTA_SCRIPT_FILE` names.
    pub script: Option<String>,
    /// Environment variables that the program gets besides those on the list of inherited ones.
    pub env: Vec<(String, String)>,
}

/// Facts about a program that has just been started.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StartOutcome {
    /// A sentence that describes the program's sandbox, or `None` if it has none.
    pub sandbox: Option<String>,
    /// Warnings for people about the way the program was started.
    pub warnings: Vec<String>,
}

/// The address of the server whose tools the program can call, and the token for it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct McpServer {
    pub url: String,
    /// The access token of this attempt. It is a secret.
    pub token: String,
}

/// All input that a running program should have got so far, complete every time. The driver sends
/// only the part that it has not sent yet. So nothing is sent twice, and a restart of the daemon
/// changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SessionInput {
    /// All prompts in their order, of which the first is the task. A prompt is sent when the turn
    /// of the prompt before it has ended.
    pub prompts: Vec<String>,
    /// The answers to the program's questions and permission requests, each with the program's own
    /// id of the request.
    pub answers: Vec<(String, RequestAnswer)>,
    /// How often the program's current turn was to be cancelled, counted since the program started.
    pub cancels: u32,
    /// If true, no prompt is sent for now, even if some have not been sent.
    #[serde(rename = "hold")]
    pub should_hold_prompts: bool,
    /// If true, no further input will come. The driver closes the program's input when the current
    /// turn has ended.
    #[serde(rename = "end")]
    pub should_close_input: bool,
}

/// How a program ended in the judgement of its driver, the code that knows the program's output. An
/// exit code alone does not prove success.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DriverVerdict {
    pub exit: Exit,
    /// The kind of failure, or `None` if the program's output shows that it did its work.
    pub class: Option<FailureClass>,
    /// A few lines: the last output of the program, or a description of the failure.
    pub detail: String,
    /// The tokens and cost of each of the program's sessions, by the program's own session id. The
    /// numbers count from the beginning of the session.
    pub usage: Vec<(Option<String>, Usage)>,
}

/// The source of a line in an attempt's journal, the file that records everything that goes in and
/// out of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalStream {
    /// A line that was sent to the program. The end of the input is recorded as `InEnd`, because
    /// this stream has no line for it.
    In,
    /// The program's input was closed here.
    InEnd,
    Out,
    Err,
    /// A note of the shim (the process that supervises the program), for example that output was
    /// cut here.
    Mark,
}

/// One line of an attempt's journal, the file that records everything that goes in and out of a
/// program.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct JournalRecord {
    /// The number of the record in its journal. Numbers begin at 1 and have no gaps.
    #[serde(rename = "n")]
    pub position: u64,
    /// When the shim (the supervising process) wrote the record, in milliseconds since 1970.
    #[serde(rename = "at")]
    pub written_unix_ms: u64,
    pub stream: JournalStream,
    /// The text of the line without its newline. Secrets are removed, and invalid UTF-8 is
    /// replaced.
    pub line: String,
}

/// One record of an attempt's journal as people read it, with the events that the program's driver
/// found in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptLine {
    pub record: JournalRecord,
    pub events: Vec<AgentEvent>,
}

/// Receives the events of an attempt's program and supplies its input. The thread that reads the
/// program's journal calls these methods.
pub trait SessionSink {
    /// Receives an event of the program with the number of its journal record. After a restart all
    /// events come again from the beginning, and the receiver ignores those whose number it knows.
    fn on_event(&self, position: u64, event: AgentEvent);
    /// Receives how long the program has been without output, or `None` when it has output again.
    fn on_silence(&self, since: Option<Duration>);
    /// Returns all input that the program should have got by now.
    fn desired_input(&self) -> SessionInput;
    /// Returns how long a program must be without output before [`SessionSink::on_silence`] is
    /// called.
    fn silence_threshold(&self) -> Duration {
        Duration::from_secs(15 * 60)
    }
    /// Returns whether to go on reading the program's output. With `false` the caller returns, and
    /// the program continues by itself.
    fn should_continue(&self) -> bool;
}

/// Identifies a process so that no other process, also a later one with the same process id, is
/// mistaken for it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessIdentity {
    /// The process id that the operating system gave to the process.
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
    /// Environment variables that the command gets besides those on the list of inherited ones.
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
    /// A directory outside the working directory from which git must be able to read objects.
    /// `None` if there is none.
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
    /// A sentence that describes the sandbox in which the command ran, or `None` if it ran without
    /// one.
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
