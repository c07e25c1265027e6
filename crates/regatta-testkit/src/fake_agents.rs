//! A fake of agents' programs. Instead of a process, each program is a function that the test
//! provides. The function runs in a thread, and keeps running when the engine "crashes", as a real
//! program does.
//!
//! A program changes the files of its workspace in [`FakeGit`]. It can wait for a signal of the
//! test, and it can hang until it is stopped. The fake counts started programs. If two programs run
//! for one task at the same time (J2), or one attempt is started twice, the fake records a
//! violation, and [`FakeAgents::assert_no_violations`] fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use regatta_core::agent::Runtime;
use regatta_core::agent_protocol::{AgentEvent, FailureClass, Usage};
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{
    AgentError, AgentSpec, Agents, CheckCommand, CheckResult, DriverVerdict, Exit, LaunchProblem,
    ProcessIdentity, ProcessState, ProgramLaunch, ResolvedAgent, SessionInput, SessionSink,
    StartOutcome, TranscriptLine,
};

use crate::crash_points::{EngineLife, TEST_TIMEOUT};
use crate::fake_git::{FakeGit, FakeTree};

type ProgramScript = Arc<dyn Fn(&FakeProgram) -> Exit + Send + Sync>;
type ContentCheck = Arc<dyn Fn(&str, &FakeTree) -> Result<(), String> + Send + Sync>;

/// The fake of agents' programs. Clones, and handles for other lives of the engine, share the
/// programs.
#[derive(Clone)]
pub struct FakeAgents {
    processes: Arc<ProcessTable>,
    git: FakeGit,
    life: EngineLife,
}

struct ProcessTable {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    script: ProgramScript,
    content_check: ContentCheck,
    runs: BTreeMap<AttemptId, ProgramRun>,
    open_signals: BTreeSet<String>,
    /// The results of commands that must run only once, by name.
    once_results: BTreeMap<String, CheckResult>,
    violations: Vec<String>,
}

struct ProgramRun {
    task: String,
    /// The number of times that the engine asked to start the program, even if it was already
    /// running.
    start_requests: usize,
    is_started: bool,
    is_stop_requested: bool,
    exit: Option<Exit>,
    /// The events that the program reported, in order.
    events: Vec<AgentEvent>,
    failure_class: Option<FailureClass>,
    /// The usage (tokens and cost) of each session. The usage is reported when the program ends.
    usage: Vec<(Option<String>, Usage)>,
    /// The latest prompts and answers that the engine has sent to the program.
    input: SessionInput,
}

impl ProgramRun {
    fn new(task: &str) -> ProgramRun {
        ProgramRun {
            task: task.to_owned(),
            start_requests: 0,
            is_started: false,
            is_stop_requested: false,
            exit: None,
            events: vec![],
            failure_class: None,
            usage: vec![],
            input: SessionInput::default(),
        }
    }
}

impl FakeAgents {
    /// Returns a fake whose programs run the function `script` on the workspaces of `git`.
    pub fn new(
        git: &FakeGit,
        script: impl Fn(&FakeProgram) -> Exit + Send + Sync + 'static,
    ) -> FakeAgents {
        let state = State {
            script: Arc::new(script),
            content_check: Arc::new(|_, _| Ok(())),
            runs: BTreeMap::new(),
            open_signals: BTreeSet::new(),
            once_results: BTreeMap::new(),
            violations: vec![],
        };
        let processes = Arc::new(ProcessTable {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        FakeAgents {
            processes,
            git: git.with_life(&EngineLife::new()),
            life: EngineLife::new(),
        }
    }

    /// Returns a handle on the same programs for one life of the engine, the time until its
    /// end or simulated crash. The calls through this handle are named `agents.<method>`.
    pub fn with_life(&self, life: &EngineLife) -> FakeAgents {
        FakeAgents {
            life: life.clone(),
            ..self.clone()
        }
    }

    /// Sets the function that decides whether a check passes. The function gets the check's command
    /// and the files, and returns the output of a failed check as `Err`.
    pub fn check_content_with(
        &self,
        judge: impl Fn(&str, &FakeTree) -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.processes.lock().content_check = Arc::new(judge);
    }

    /// Sends a signal to the programs. Every program that waits for `signal`, now or later,
    /// continues.
    pub fn release(&self, signal: &str) {
        self.processes.lock().open_signals.insert(signal.to_owned());
        self.processes.changed.notify_all();
    }

    /// Ends a program without recording how the program ended, as a power cut does.
    pub fn cut_power(&self, attempt: AttemptId) {
        self.processes.record_exit(attempt, Exit::Lost);
    }

    /// Waits until the program of this attempt has been started.
    pub fn wait_until_started(&self, attempt: AttemptId) {
        self.processes.wait_until("a program is started", |state| {
            state
                .runs
                .get(&attempt)
                .is_some_and(|program_run| program_run.is_started)
        });
    }

    /// Returns the attempts whose programs are running.
    pub fn running(&self) -> Vec<AttemptId> {
        self.processes
            .lock()
            .runs
            .iter()
            .filter(|run| run.1.is_started && run.1.exit.is_none())
            .map(|run| *run.0)
            .collect()
    }

    /// Returns how many programs were started for each task.
    pub fn program_counts(&self) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        for run in self
            .processes
            .lock()
            .runs
            .values()
            .filter(|program_run| program_run.is_started)
        {
            *found.entry(run.task.clone()).or_default() += 1;
        }
        found
    }

    /// Returns how often the engine asked to start an attempt's program, in all its lives.
    pub fn start_requests(&self, attempt: AttemptId) -> usize {
        self.processes
            .lock()
            .runs
            .get(&attempt)
            .map_or(0, |program_run| program_run.start_requests)
    }

    /// Fails the test if two programs ever ran for one task at the same time (J2), or if a program
    /// panicked.
    pub fn assert_no_violations(&self) {
        let state = self.processes.lock();
        assert!(state.violations.is_empty(), "{:?}", state.violations);
    }

    fn wait_for_end(&self, attempt: AttemptId, patience: Duration) -> Option<Exit> {
        let deadline = Instant::now() + patience;
        let mut state = self.processes.lock();
        loop {
            if let Some(exit) = state
                .runs
                .get(&attempt)
                .and_then(|program_run| program_run.exit.clone())
            {
                return Some(exit);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return None;
            }
            state = self
                .processes
                .changed
                .wait_timeout(state, remaining)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

fn agent_error(description: String) -> AgentError {
    AgentError {
        message: description,
        hint: "see the test".into(),
    }
}

impl ProcessTable {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, description: &str, holds: impl Fn(&State) -> bool) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        let mut state = self.lock();
        while !holds(&state) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            assert!(!remaining.is_zero(), "it took too long until {description}");
            state = self
                .changed
                .wait_timeout(state, remaining)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Records how a program ended. Only the first record counts.
    fn record_exit(&self, attempt: AttemptId, exit: Exit) {
        if let Some(run) = self.lock().runs.get_mut(&attempt) {
            run.exit.get_or_insert(exit);
        }
        self.changed.notify_all();
    }
}

/// A running program. The test's function gets this value and acts as the program through it.
pub struct FakeProgram {
    processes: Arc<ProcessTable>,
    git: FakeGit,
    launch: ProgramLaunch,
    task: String,
    run_number: usize,
}

impl FakeProgram {
    /// Returns the attempt to which the program belongs.
    pub fn attempt(&self) -> AttemptId {
        self.launch.attempt
    }

    /// Returns the id of the program's task.
    pub fn task(&self) -> &str {
        &self.task
    }

    /// Returns the number of this program among all programs that were started for the task,
    /// counting from 1.
    pub fn run_number(&self) -> usize {
        self.run_number
    }

    /// Returns the settings with which the engine started the program.
    pub fn launch(&self) -> &ProgramLaunch {
        &self.launch
    }

    /// Returns the fake git, with which the program can change files outside its workspace.
    pub fn git(&self) -> &FakeGit {
        &self.git
    }

    /// Reads a file of the program's workspace. Returns an empty text if the file does not exist.
    pub fn read(&self, path: &str) -> String {
        self.git
            .files_in(&self.launch.workspace)
            .and_then(|map| map.get(path).cloned())
            .unwrap_or_default()
    }

    /// Returns the attempt for which the workspace was created. This is an earlier attempt if the
    /// program's own attempt continues the work of that attempt.
    fn workspace_attempt(&self) -> AttemptId {
        let name = self
            .launch
            .workspace
            .file_name()
            .and_then(|name| name.to_str());
        name.and_then(|name| name.parse().ok())
            .expect("the engine uses a workspace of the fake git")
    }

    /// Writes a file of the program's workspace, unless the program has already ended.
    pub fn write(&self, path: &str, content: &str) {
        let state = self.processes.lock();
        if state
            .runs
            .get(&self.attempt())
            .is_some_and(|program_run| program_run.exit.is_none())
        {
            self.git.edit_workspace(self.workspace_attempt(), |files| {
                _ = files.insert(path.to_owned(), content.to_owned())
            });
        }
    }

    /// Appends a text to a file of the program's workspace. If the program repeats an action, the
    /// test sees the text twice.
    pub fn append(&self, path: &str, text: &str) {
        self.write(path, &(self.read(path) + text));
    }

    /// Waits until the test gives a signal. If the program is stopped first, returns `Err` with its
    /// exit.
    pub fn wait_for(&self, signal: &str) -> Result<(), Exit> {
        let over = |state: &State| {
            state.runs.get(&self.attempt()).is_none_or(|program_run| {
                program_run.is_stop_requested || program_run.exit.is_some()
            })
        };
        self.processes
            .wait_until("a waiting program is released", |state| {
                state.open_signals.contains(signal) || over(state)
            });
        let state = self.processes.lock();
        if over(&state) {
            Err(Exit::Signal(15))
        } else {
            Ok(())
        }
    }

    /// Reports an event of the program, as the driver of a real program would.
    pub fn emit(&self, event: AgentEvent) {
        if let Some(run) = self.processes.lock().runs.get_mut(&self.attempt()) {
            run.events.push(event);
        }
        self.processes.changed.notify_all();
    }

    /// Sets the usage (tokens and cost) of a session. The usage is reported when the program ends.
    pub fn report_usage(&self, session: &str, usage: Usage) {
        if let Some(run) = self.processes.lock().runs.get_mut(&self.attempt()) {
            run.usage.push((Some(session.to_owned()), usage));
        }
    }

    /// Marks the program as failed for this reason, and returns the exit with which the script must
    /// end.
    pub fn end_with_error(&self, class: FailureClass) -> Exit {
        if let Some(run) = self.processes.lock().runs.get_mut(&self.attempt()) {
            run.failure_class = Some(class);
        }
        Exit::Code(1)
    }

    /// Waits until `enough` returns true for the engine's prompts and answers to the program, and
    /// returns these prompts and answers. If the program is stopped first, returns `Err` with its
    /// exit.
    pub fn wait_for_input(
        &self,
        enough: impl Fn(&SessionInput) -> bool,
    ) -> Result<SessionInput, Exit> {
        let over = |state: &State| {
            state.runs.get(&self.attempt()).is_none_or(|program_run| {
                program_run.is_stop_requested || program_run.exit.is_some()
            })
        };
        let wished = |state: &State| {
            state
                .runs
                .get(&self.attempt())
                .is_some_and(|program_run| enough(&program_run.input))
        };
        self.processes
            .wait_until("a program receives instructions", |state| {
                wished(state) || over(state)
            });
        let state = self.processes.lock();
        match state
            .runs
            .get(&self.attempt())
            .filter(|program_run| enough(&program_run.input))
        {
            Some(run) => Ok(run.input.clone()),
            None => Err(Exit::Signal(15)),
        }
    }

    /// Makes the program do nothing until the engine stops it.
    pub fn hang_until_stopped(&self) -> Exit {
        self.wait_for("nothing lets this go on")
            .err()
            .unwrap_or(Exit::Lost)
    }

    /// Makes the program do nothing, ignore the request to stop, and end only when the engine kills
    /// it.
    pub fn hang_until_killed(&self) -> Exit {
        self.processes
            .wait_until("a stubborn program is killed", |state| {
                state
                    .runs
                    .get(&self.attempt())
                    .is_none_or(|program_run| program_run.exit.is_some())
            });
        Exit::Signal(9)
    }
}

impl Agents for FakeAgents {
    /// Returns a program for every provider except `nobody`. The program of `nobody` counts as not
    /// installed.
    fn resolve(&self, wanted: &AgentSpec) -> ResolvedAgent {
        if wanted.provider == "nobody" {
            let error = AgentError {
                message: "It is not installed.".into(),
                hint: "Install it.".into(),
            };
            return ResolvedAgent {
                problem: Some((LaunchProblem::ProgramMissing, error)),
                ..ResolvedAgent::default()
            };
        }
        ResolvedAgent {
            runtime: Some(Runtime::Scripted),
            backend: Some(wanted.provider.clone()),
            ..ResolvedAgent::default()
        }
    }

    fn start(&self, launch: &ProgramLaunch) -> Result<StartOutcome, AgentError> {
        let starts = || {
            let task = launch
                .env
                .iter()
                .find(|env| env.0 == "REGATTA_TASK")
                .map(|env| env.1.clone())
                .unwrap_or_default();
            let mut state = self.processes.lock();
            let nth = state
                .runs
                .values()
                .filter(|program_run| program_run.is_started && program_run.task == task)
                .count()
                + 1;
            let run = state
                .runs
                .entry(launch.attempt)
                .or_insert_with(|| ProgramRun::new(&task));
            (run.start_requests, run.task) = (run.start_requests + 1, task.clone());
            if run.is_started || run.exit.is_some() {
                return;
            }
            run.is_started = true;
            let other = state.runs.iter().find(|run| {
                run.1.task == task
                    && *run.0 != launch.attempt
                    && run.1.is_started
                    && run.1.exit.is_none()
            });
            if let Some((other, _)) = other {
                let note = format!(
                    "J2: {} was started for {task} while {other} runs",
                    launch.attempt
                );
                state.violations.push(note);
            }
            let program = FakeProgram {
                processes: self.processes.clone(),
                git: self.git.clone(),
                launch: launch.clone(),
                task,
                run_number: nth,
            };
            let script = state.script.clone();
            drop(state);
            self.processes.changed.notify_all();
            std::thread::spawn(move || run_program(&program, &script));
        };
        self.life
            .call("agents.start", starts)
            .map_err(agent_error)?;
        // Report every program as sandboxed, because tests with this fake do not test the sandbox.
        Ok(StartOutcome {
            sandbox: Some("in memory".into()),
            warnings: vec![],
        })
    }

    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError> {
        let look = || match self.processes.lock().runs.get(&attempt) {
            None => ProcessState::NotStarted,
            Some(ProgramRun {
                exit: Some(exit), ..
            }) => ProcessState::Exited(exit.clone()),
            Some(_) => ProcessState::Running(ProcessIdentity {
                pid: attempt.0 as u32,
                start_ticks: attempt.0,
                boot_id: "in memory".into(),
            }),
        };
        self.life.call("agents.state", look).map_err(agent_error)
    }

    fn attend(
        &self,
        attempt: AttemptId,
        desk: &dyn SessionSink,
    ) -> Result<Option<DriverVerdict>, AgentError> {
        self.life
            .before_effect("agents.attend")
            .map_err(agent_error)?;
        if !self.processes.lock().runs.contains_key(&attempt) {
            return Err(agent_error(format!(
                "the program of attempt {attempt} was never started"
            )));
        }
        // Report all events from the beginning, because a real program's journal is also read from
        // its beginning after a restart.
        let mut told = 0;
        while desk.should_continue() {
            let fresh: Vec<AgentEvent> = match self.processes.lock().runs.get(&attempt) {
                Some(run) => run.events[told..].to_vec(),
                None => vec![],
            };
            for said in fresh {
                told += 1;
                desk.on_event(told as u64, said);
            }
            let wishes = desk.desired_input();
            let mut state = self.processes.lock();
            let Some(run) = state.runs.get_mut(&attempt) else {
                break;
            };
            if run.input != wishes {
                run.input = wishes;
                self.processes.changed.notify_all();
            }
            if run.events.len() > told {
                continue;
            }
            if let Some(exit) = run.exit.clone() {
                let class = run
                    .failure_class
                    .or((exit != Exit::Code(0)).then_some(FailureClass::Crashed));
                let usage = run.usage.clone();
                drop(state);
                self.life
                    .after_effect("agents.attend")
                    .map_err(agent_error)?;
                return Ok(Some(DriverVerdict {
                    exit,
                    class,
                    detail: String::new(),
                    usage,
                }));
            }
            let waited = self
                .processes
                .changed
                .wait_timeout(state, Duration::from_millis(20));
            drop(waited);
        }
        Ok(None)
    }

    fn refresh_input(&self, _attempt: AttemptId) {
        self.processes.changed.notify_all();
    }

    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError> {
        self.life
            .before_effect("agents.stop")
            .map_err(agent_error)?;
        let told = self.life.run_effect(|| {
            let mut state = self.processes.lock();
            match state.runs.get_mut(&attempt) {
                Some(run) => run.is_stop_requested = true,
                None => {
                    // If the engine starts the program later, it finds this record and starts
                    // nothing.
                    let exit = Some(Exit::NotStarted(
                        "the program was stopped before it started".into(),
                    ));
                    state.runs.insert(
                        attempt,
                        ProgramRun {
                            is_stop_requested: true,
                            exit,
                            ..ProgramRun::new("")
                        },
                    );
                }
            }
            self.processes.changed.notify_all();
        });
        told.map_err(agent_error)?;
        let exit = self.wait_for_end(attempt, grace).map_or_else(
            || {
                self.life
                    .run_effect(|| self.processes.record_exit(attempt, Exit::Signal(9)))?;
                Ok(Exit::Signal(9))
            },
            Ok,
        );
        self.life.after_effect("agents.stop").map_err(agent_error)?;
        exit.map_err(agent_error)
    }

    fn run_check(&self, check: &CheckCommand) -> Result<CheckResult, AgentError> {
        let checks = || {
            let known = check
                .once_name
                .as_ref()
                .and_then(|name| self.processes.lock().once_results.get(name).cloned());
            if let Some(known) = known {
                return Ok(known);
            }
            let files = self.git.files_in(&check.dir).ok_or_else(|| {
                agent_error(format!(
                    "the directory of the check does not exist: {}",
                    check.dir.display()
                ))
            })?;
            let judge = self.processes.lock().content_check.clone();
            let verdict = judge(&check.command, &files);
            if verdict.is_ok() {
                self.git.record_passed_check(&check.dir, &check.command);
            }
            let exit = Exit::Code(if verdict.is_ok() { 0 } else { 1 });
            let result = CheckResult {
                exit,
                has_timed_out: false,
                output: verdict.err().unwrap_or_default(),
                sandbox: None,
            };
            if let Some(name) = &check.once_name {
                self.processes
                    .lock()
                    .once_results
                    .insert(name.clone(), result.clone());
            }
            Ok(result)
        };
        self.life
            .call("agents.check", checks)
            .map_err(agent_error)?
    }

    fn transcript(
        &self,
        _attempt: AttemptId,
        _from: u64,
        _limit: usize,
    ) -> Result<Vec<TranscriptLine>, AgentError> {
        Ok(vec![])
    }

    fn tail(&self, _attempt: AttemptId, _bytes: usize) -> Result<String, AgentError> {
        Ok(String::new())
    }

    fn last_record_unix_ms(&self, _attempt: AttemptId) -> Option<u64> {
        None // no journal is kept
    }

    fn result_file(&self, attempt: AttemptId) -> PathBuf {
        Path::new("/nowhere/runs")
            .join(attempt.to_string())
            .join("result.json")
    }
}

/// Runs a program in its own thread, which continues when the engine ends.
fn run_program(program: &FakeProgram, script: &ProgramScript) {
    let attempt = program.attempt();
    let did = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| script(program)));
    let exit = did.unwrap_or_else(|_| {
        program
            .processes
            .lock()
            .violations
            .push(format!("the program of {attempt} panicked"));
        Exit::Code(101)
    });
    program.processes.record_exit(attempt, exit);
}
