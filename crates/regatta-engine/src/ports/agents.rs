//! What the engine needs to run programs: agents, and the checks that judge their work.

use std::path::PathBuf;
use std::time::Duration;

use regatta_core::agent::{Level, Profile, Runtime};
use regatta_core::ids::{AgentName, AttemptId, ProjectName};
use regatta_core::session::{Answer, Class, Said, Usage};

/// A program to start for an attempt.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Launch {
    /// The attempt it works for; at most one program ever runs for an attempt.
    pub attempt: AttemptId,
    /// Whose name it works in: its home-like directory is that agent's.
    pub agent: AgentName,
    /// How the program is driven, and which it is. `{prompt}` in an argument is replaced by the prompt.
    pub runtime: Runtime,
    /// How it is set up and shut in.
    pub profile: Profile,
    /// The native session to go on with, if an earlier attempt of this task left one.
    pub resume: Option<String>,
    /// Where the program finds Regatta's tools, if this daemon serves them.
    pub mcp: Option<McpServer>,
    /// What the books already have for that session.
    pub used: Usage,
    /// Where it works.
    pub workspace: PathBuf,
    /// What git reads from outside the workspace there.
    pub objects: Option<PathBuf>,
    /// What it must not see, wherever that is: the user's own repository.
    pub hidden: Vec<PathBuf>,
    /// What it is asked to do; also on its standard input and in the file `REGATTA_PROMPT_FILE` names.
    pub prompt: String,
    /// The steps of the scripted agent, as a JSON array, if the task has them (`REGATTA_SCRIPT_FILE`).
    pub script: Option<String>,
    /// Variables on top of the allow-list.
    pub env: Vec<(String, String)>,
}

/// What a start engaged.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Started {
    /// How the program is shut in, in a sentence; nothing when it is not.
    pub sandbox: Option<String>,
    /// What a person should know about it.
    pub warnings: Vec<String>,
}

/// Regatta's own tools, as an agent reaches them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct McpServer {
    pub url: String,
    /// The attempt's own token: a secret.
    pub token: String,
}

/// What is wanted of a program that runs, all of it, every time: whoever drives it compares this with what was
/// already said to it, so that nothing is said twice and a restart in between changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Wishes {
    /// The prompts in their order; the first is the brief. One is said when the turn before it has ended.
    pub prompts: Vec<String>,
    /// Answers to what it asked, by its own id for the request.
    pub answers: Vec<(String, Answer)>,
    /// How many times its turn was to be cancelled since it started.
    pub cancels: u32,
    /// No prompt is said for now, though some may be left.
    pub hold: bool,
    /// Nothing more will come: once its turn has ended, its input is closed.
    pub end: bool,
}

/// How an attended program ended, judged by its driver: an exit code or a stop reason alone is not success.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Verdict {
    pub exit: Exit,
    /// `None` when it did what it was asked, as far as its stream tells.
    pub class: Option<Class>,
    /// What it said last, or what went wrong, in a few lines.
    pub detail: String,
    /// What it used, by native session, cumulative.
    pub usage: Vec<(Option<String>, Usage)>,
}

/// Which stream a record of a journal is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Said to the program. An empty line with no newline cannot be said, so the end of input is its own stream.
    In,
    /// Its input was closed.
    InEnd,
    Out,
    Err,
    /// The shim's own word: so much was cut here, or the like.
    Mark,
}

/// One line of an attempt's journal.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// Its place, from 1, without gaps.
    pub n: u64,
    /// When the shim wrote it, as a date in milliseconds.
    pub at: u64,
    pub stream: Stream,
    /// The line, without its newline; secrets are redacted, bytes that are no UTF-8 replaced.
    pub line: String,
}

/// One record of a transcript, and what it meant to the program's driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub record: Record,
    pub said: Vec<Said>,
}

/// What an attendant tells the engine, and asks of it. It is called from the attendant's thread.
pub trait Desk {
    /// The program said something, at this place of its journal. After a restart everything is told again from the
    /// beginning; who has heard it knows by the place.
    fn heard(&self, n: u64, said: Said);
    /// The program has been silent since that long, or speaks again (`None`).
    fn silent(&self, since: Option<Duration>);
    /// What is wanted of it now.
    fn wishes(&self) -> Wishes;
    /// After how long without a word [`Desk::silent`] is told.
    fn silence(&self) -> Duration {
        Duration::from_secs(15 * 60)
    }
    /// Whether to go on attending; on `false` the program goes on alone.
    fn goes_on(&self) -> bool;
}

/// A process as no other can be mistaken for it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// When it started, in the kernel's clock ticks since boot.
    pub start_ticks: u64,
    /// Which boot of the machine that was.
    pub boot_id: String,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It could not be started.
    NotStarted(String),
    /// Its supervisor vanished without an exit record (power cut, kill -9 of the shim).
    Lost,
}

/// Where an attempt's program is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ProcessState {
    /// Nothing was ever started for this attempt.
    NotStarted,
    /// Its supervisor is alive.
    Running(ProcessIdentity),
    /// It has ended.
    Exited(Exit),
}

/// A command that judges a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// A shell command line of the user's, run by `sh -c`.
    pub command: String,
    /// Where it runs.
    pub dir: PathBuf,
    /// Variables on top of the allow-list.
    pub env: Vec<(String, String)>,
    /// How long it may take.
    pub timeout: Duration,
    /// A name under which it is run once in the life of the fleet, for a command of the user's that must not be repeated:
    /// it outlives the daemon, and asked again under this name it is joined, or its exit record is read (§3.5 of the
    /// design). Letters, digits, `-`, `_` and `.`.
    pub once: Option<String>,
    /// How it is shut in; nothing when it is not.
    pub shut_in: Option<ShutIn>,
}

/// How far a command of the user's is shut in that runs what an agent wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutIn {
    /// Whose commands share a home.
    pub project: ProjectName,
    /// What somebody asked for; `workspace` where it can be had, if nobody did.
    pub level: Option<Level>,
    /// What git reads from outside the directory there.
    pub objects: Option<PathBuf>,
    /// What it must not see, wherever that is: the user's own repository.
    pub hidden: Vec<PathBuf>,
}

/// What a check said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// How it ended.
    pub exit: Exit,
    /// It was stopped because its time ran out.
    pub timed_out: bool,
    /// The beginning and the end of what it printed (both streams), at most 16 KiB, valid UTF-8.
    pub output: String,
    /// How it was shut in, in a sentence; nothing when it was not.
    pub sandbox: Option<String>,
}

impl CheckResult {
    /// Whether it passed.
    pub fn passed(&self) -> bool {
        !self.timed_out && self.exit == Exit::Code(0)
    }
}

/// Which agent is wanted, before it is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// anthropic, codex, …
    pub provider: String,
    /// Which of its programs, by its preset's name; the usual one, when not given.
    pub backend: Option<String>,
    pub fast_mode: bool,
    /// Which model, if one is asked for.
    pub model: Option<String>,
    /// The variables that it will be given: a program may read from them which models it has.
    pub env: Vec<(String, String)>,
    /// The names of the secrets that it will be given.
    pub keys: Vec<String>,
}

/// What kind of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is no such program.
    Missing,
    /// Nobody is signed in, or a key is missing.
    SignIn,
}

/// What was found of an agent that is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// How its program is driven.
    pub runtime: Option<Runtime>,
    /// Its preset's name.
    pub backend: Option<String>,
    pub program: Option<PathBuf>,
    pub version: Option<String>,
    /// How somebody is signed in, by the signs there are.
    pub sign_in: Option<String>,
    /// The variables of this machine from which it can take a key.
    pub keys: Vec<String>,
    /// The files, under `~`, by which its user is signed in.
    pub files: Vec<String>,
    /// Whether it has the fast mode that was asked for; nothing when none was.
    pub fast_mode: Option<bool>,
    /// The models that its program says it has, where it can say so without a session.
    pub models: Option<Vec<String>>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Why it cannot be started.
    pub problem: Option<(Problem, AgentError)>,
}

/// A program that could not be run, in words for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct AgentError {
    /// What happened and why, one sentence.
    pub what: String,
    /// What to do next.
    pub hint: String,
}

impl AgentError {
    /// What a port answers that keeps nothing of programs elsewhere.
    fn keeps_no_copies() -> AgentError {
        AgentError {
            what: "No copies of other machines' journals are kept here.".to_owned(),
            hint: "Read the transcript on the machine where the program runs.".to_owned(),
        }
    }
}

/// The port to programs.
pub trait Agents: Send + Sync {
    /// Returns what keeps an agent's program from being started here, found without starting anything: a missing
    /// program, or a key that this process's environment lacks.
    fn problems(&self, _runtime: &Runtime, _profile: &Profile) -> Vec<(Problem, AgentError)> {
        vec![]
    }
    /// How many mebibytes of memory the machine could give to more programs, if that can be known.
    fn free_memory_mb(&self) -> Option<u64> {
        None
    }
    /// Asks what is on this machine whether an agent of that kind can be started: which program, which version, whether
    /// somebody is signed in. It starts no session and changes nothing.
    fn resolve(&self, wanted: &Wanted) -> Resolved {
        let what = format!("Nothing is known here of {}.", wanted.provider);
        let error = AgentError { what, hint: "Name a provider that this machine has.".to_owned() };
        Resolved { problem: Some((Problem::Missing, error)), ..Resolved::default() }
    }
    /// Starts the attempt's program under a supervisor that outlives this process; a second call for
    /// the same attempt starts nothing.
    fn start(&self, launch: &Launch) -> Result<Started, AgentError>;
    /// Where the attempt's program is now.
    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError>;
    /// Says whether a process of the attempt is alive here. It writes nothing, so it also answers on a full disk, where
    /// the end of a program cannot be recorded.
    fn is_alive(&self, attempt: AttemptId) -> Result<bool, AgentError> {
        Ok(matches!(self.state(attempt)?, ProcessState::Running(_)))
    }
    /// Attends the attempt's program until it has ended and no process of it is left: tells `desk` what it says and
    /// says to it what `desk` wishes. `None` when the desk no longer wants to go on. At most one attendant for an
    /// attempt at a time.
    fn attend(&self, attempt: AttemptId, desk: &dyn Desk) -> Result<Option<Verdict>, AgentError>;
    /// Makes the attendant look at its desk's wishes now.
    fn nudge(&self, attempt: AttemptId);
    /// Ends the attempt's whole process tree: SIGTERM, then after `grace` SIGKILL; returns when it is gone.
    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError>;
    /// Runs a check to its end; ends its whole tree when the time is up.
    fn check(&self, check: &Check) -> Result<CheckResult, AgentError>;
    /// The same for a check that may no longer be wanted before it has ended: its whole tree is then ended at once, and
    /// nothing is said. `wanted` is asked again and again, a few times a second. Of one that runs `once` nothing is said
    /// only if it was never begun: how it was ended is its record.
    fn check_while(&self, check: &Check, wanted: &dyn Fn() -> bool) -> Result<Option<CheckResult>, AgentError> {
        if !wanted() {
            return Ok(None);
        }
        self.check(check).map(Some)
    }
    /// Ends what runs `once` for an attempt: commands whose name has the attempt's id as one of its parts between dashes,
    /// also those that an earlier daemon started. Returns when their process trees are gone.
    fn end_commands(&self, attempt: AttemptId) -> Result<(), AgentError> {
        let _ = attempt;
        Ok(())
    }
    /// Ends a command that runs `once` under this name, also one that an earlier daemon started, and forgets it: asked
    /// again, it runs again. The record of one that has ended is kept.
    fn break_off_command(&self, name: &str) -> Result<(), AgentError> {
        let _ = name;
        Ok(())
    }
    /// Forgets the record of a command that ran `once` and has ended: asked again under this name, it runs again.
    fn forget_command(&self, name: &str) -> Result<(), AgentError> {
        let _ = name;
        Ok(())
    }
    /// Ends every check that runs, and lets none begin: nobody is there any more to hear what it says. Each returns when
    /// its whole tree is gone. What runs `once` is left: its record says how it ended.
    fn rest(&self) {}
    /// Reads the attempt's transcript, also while its program runs: at most `limit` records from place `from` (the
    /// first is 1), and fewer where they are long. Empty at the end, and if nothing was ever started.
    fn transcript(&self, attempt: AttemptId, from: u64, limit: usize) -> Result<Vec<Line>, AgentError>;
    /// The last of what the attempt's program printed, at most that many bytes: for a sentence about its end.
    fn tail(&self, attempt: AttemptId, bytes: usize) -> Result<String, AgentError>;
    /// When the attempt's program last said or was told something, as a date in milliseconds: how old the evidence is
    /// on which its state is shown.
    fn last_word(&self, attempt: AttemptId) -> Option<u64>;
    /// The file in which the attempt's program may leave its result.
    fn result_file(&self, attempt: AttemptId) -> PathBuf;
    /// The attempt's records as they are: at most `limit` from place `from` (the first is 1), and about 4 MiB, but one
    /// at least when there is one. Cheap for who reads on where it stopped.
    fn records(&self, attempt: AttemptId, from: u64, limit: usize) -> Result<Vec<Record>, AgentError> {
        Ok(self.transcript(attempt, from, limit)?.into_iter().map(|it| it.record).collect())
    }
    /// What a reader of the attempt's journal must know of its launch, in this port's own words and with no secret in
    /// it: for [`Agents::copy_heading`] on another machine. `None` when nothing was started here.
    fn heading(&self, attempt: AttemptId) -> Result<Option<String>, AgentError> {
        let _ = attempt;
        Ok(None)
    }
    /// Keeps the heading of an attempt whose program runs elsewhere, so that its transcript is understood here too.
    fn copy_heading(&self, attempt: AttemptId, heading: &str) -> Result<(), AgentError> {
        let _ = (attempt, heading);
        Err(AgentError::keeps_no_copies())
    }
    /// The place of the last record that this machine has of the attempt, 0 for none.
    fn copied(&self, attempt: AttemptId) -> Result<u64, AgentError> {
        let _ = attempt;
        Err(AgentError::keeps_no_copies())
    }
    /// Puts records onto this machine's copy of the journal of an attempt whose program runs elsewhere, and waits until
    /// they are on the disk; returns the place of the last one that is there. Records that are there already are passed
    /// over; a gap, or an attempt whose program was started here, is refused and changes nothing. No program is ever
    /// started here for an attempt that has a copy.
    fn copy_in(&self, attempt: AttemptId, records: &[Record]) -> Result<u64, AgentError> {
        let _ = (attempt, records);
        Err(AgentError::keeps_no_copies())
    }
}
