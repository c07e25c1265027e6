//! Agents' programs in memory. Each program is a closure of the test and outlives the engine, as
//! real programs do under shims.
//!
//! A program works on its workspace in [`FakeGit`]. It can wait for a signal of the test, and it
//! can hang until it is stopped. The double counts started programs, and records when two programs
//! run for one task (J2) or one attempt is started twice. [`FakeAgents::assert_lawful`] then fails
//! the test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use regatta_core::agent::Runtime;
use regatta_core::ids::AttemptId;
use regatta_core::session::{Class, Said, Usage};
use regatta_engine::ports::agents::{
    AgentError, Agents, Check, CheckResult, Desk, Exit, Launch, Line, Problem, ProcessIdentity, ProcessState, Resolved,
    Started, Verdict, Wanted, Wishes,
};

use crate::fake_git::{FakeGit, Files};
use crate::steps::{Life, PATIENCE};

type Script = Arc<dyn Fn(&Program) -> Exit + Send + Sync>;
type Judge = Arc<dyn Fn(&str, &Files) -> Result<(), String> + Send + Sync>;

/// The adapter for programs in tests. Clones and handles of other lives share the programs.
#[derive(Clone)]
pub struct FakeAgents {
    world: Arc<World>,
    git: FakeGit,
    life: Life,
}

struct World {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    script: Script,
    judge: Judge,
    runs: BTreeMap<AttemptId, Run>,
    open: BTreeSet<String>,
    /// The results of commands that run only once, by name.
    once: BTreeMap<String, CheckResult>,
    unlawful: Vec<String>,
}

struct Run {
    task: String,
    /// How often the port was asked to start the program.
    asked: usize,
    started: bool,
    told_to_stop: bool,
    exit: Option<Exit>,
    /// The program's reports in order. `class` is set if the program reported a failure.
    said: Vec<Said>,
    class: Option<Class>,
    /// The usage of each session, reported when the program ends.
    usage: Vec<(Option<String>, Usage)>,
    /// The engine's current instructions.
    wishes: Wishes,
}

impl Run {
    fn new(task: &str) -> Run {
        Run {
            task: task.to_owned(),
            asked: 0,
            started: false,
            told_to_stop: false,
            exit: None,
            said: vec![],
            class: None,
            usage: vec![],
            wishes: Wishes::default(),
        }
    }
}

impl FakeAgents {
    /// Returns an adapter whose programs run `script` on the workspaces of `git`.
    pub fn new(git: &FakeGit, script: impl Fn(&Program) -> Exit + Send + Sync + 'static) -> FakeAgents {
        let state = State {
            script: Arc::new(script),
            judge: Arc::new(|_, _| Ok(())),
            runs: BTreeMap::new(),
            open: BTreeSet::new(),
            once: BTreeMap::new(),
            unlawful: vec![],
        };
        let world = Arc::new(World { state: Mutex::new(state), changed: Condvar::new() });
        FakeAgents { world, git: git.in_life(&Life::new()), life: Life::new() }
    }

    /// Returns a handle for one life of the engine. Its calls are named `agents.<method>`.
    pub fn in_life(&self, life: &Life) -> FakeAgents {
        FakeAgents { life: life.clone(), ..self.clone() }
    }

    /// Sets the function that decides whether a check passes. `Err` is the output of a failed
    /// check.
    pub fn judge_by(&self, judge: impl Fn(&str, &Files) -> Result<(), String> + Send + Sync + 'static) {
        self.world.lock().judge = Arc::new(judge);
    }

    /// Releases every program that waits for `signal`, now or later.
    pub fn let_go(&self, signal: &str) {
        self.world.lock().open.insert(signal.to_owned());
        self.world.changed.notify_all();
    }

    /// Ends a program without an exit record, as a power cut does.
    pub fn lose(&self, attempt: AttemptId) {
        self.world.end(attempt, Exit::Lost);
    }

    /// Waits until a program of this attempt was started.
    pub fn until_started(&self, attempt: AttemptId) {
        self.world.until("a program is started", |state| state.runs.get(&attempt).is_some_and(|it| it.started));
    }

    /// Returns the attempts whose programs run.
    pub fn running(&self) -> Vec<AttemptId> {
        self.world.lock().runs.iter().filter(|it| it.1.started && it.1.exit.is_none()).map(|it| *it.0).collect()
    }

    /// Returns the number of started programs for each task.
    pub fn programs(&self) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        for run in self.world.lock().runs.values().filter(|it| it.started) {
            *found.entry(run.task.clone()).or_default() += 1;
        }
        found
    }

    /// Returns how often the port was asked to start an attempt's program, in all lives.
    pub fn asked(&self, attempt: AttemptId) -> usize {
        self.world.lock().runs.get(&attempt).map_or(0, |it| it.asked)
    }

    /// Fails the test if two programs ever ran for one task at once (J2), or if a program panicked.
    pub fn assert_lawful(&self) {
        let state = self.world.lock();
        assert!(state.unlawful.is_empty(), "{:?}", state.unlawful);
    }

    fn wait_for_end(&self, attempt: AttemptId, patience: Duration) -> Option<Exit> {
        let deadline = Instant::now() + patience;
        let mut state = self.world.lock();
        loop {
            if let Some(exit) = state.runs.get(&attempt).and_then(|it| it.exit.clone()) {
                return Some(exit);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.world.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn error(what: String) -> AgentError {
    AgentError { what, hint: "see the test".into() }
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.lock();
        while !holds(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it took too long until {what}");
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes the exit record. A second call changes nothing.
    fn end(&self, attempt: AttemptId, exit: Exit) {
        if let Some(run) = self.lock().runs.get_mut(&attempt) {
            run.exit.get_or_insert(exit);
        }
        self.changed.notify_all();
    }
}

/// A running program, as its script sees it.
pub struct Program {
    world: Arc<World>,
    git: FakeGit,
    launch: Launch,
    task: String,
    nth: usize,
}

impl Program {
    /// Returns the attempt of the program.
    pub fn attempt(&self) -> AttemptId {
        self.launch.attempt
    }

    /// Returns the id of the program's task.
    pub fn task(&self) -> &str {
        &self.task
    }

    /// Returns the number of this program among those of its task, from 1.
    pub fn nth(&self) -> usize {
        self.nth
    }

    /// Returns the launch that started the program.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Returns the repositories, for other changes during the program's work.
    pub fn git(&self) -> &FakeGit {
        &self.git
    }

    /// Reads a file of the workspace; returns an empty text if it does not exist.
    pub fn read(&self, path: &str) -> String {
        self.git.look_into(&self.launch.workspace).and_then(|it| it.get(path).cloned()).unwrap_or_default()
    }

    /// Returns the attempt that owns the workspace: an earlier attempt if its work is continued.
    fn space(&self) -> AttemptId {
        let name = self.launch.workspace.file_name().and_then(|it| it.to_str());
        name.and_then(|it| it.parse().ok()).expect("the engine uses a workspace of the fake git")
    }

    /// Writes a file of the workspace, unless the program has ended in the meantime.
    pub fn write(&self, path: &str, content: &str) {
        let state = self.world.lock();
        if state.runs.get(&self.attempt()).is_some_and(|it| it.exit.is_none()) {
            self.git.edit(self.space(), |files| _ = files.insert(path.to_owned(), content.to_owned()));
        }
    }

    /// Appends to a file, so that a repeated action is visible.
    pub fn append(&self, path: &str, text: &str) {
        self.write(path, &(self.read(path) + text));
    }

    /// Waits for a signal of the test. `Err` is the program's exit if it is stopped first.
    pub fn wait_for(&self, signal: &str) -> Result<(), Exit> {
        let over =
            |state: &State| state.runs.get(&self.attempt()).is_none_or(|it| it.told_to_stop || it.exit.is_some());
        self.world.until("a waiting program is released", |state| state.open.contains(signal) || over(state));
        let state = self.world.lock();
        if over(&state) { Err(Exit::Signal(15)) } else { Ok(()) }
    }

    /// Adds a report, in the vocabulary of drivers.
    pub fn say(&self, said: Said) {
        if let Some(run) = self.world.lock().runs.get_mut(&self.attempt()) {
            run.said.push(said);
        }
        self.world.changed.notify_all();
    }

    /// Reports the usage of a session when the program ends.
    pub fn settle(&self, session: &str, usage: Usage) {
        if let Some(run) = self.world.lock().runs.get_mut(&self.attempt()) {
            run.usage.push((Some(session.to_owned()), usage));
        }
    }

    /// Marks the program as failed with this class and returns its exit.
    pub fn fail(&self, class: Class) -> Exit {
        if let Some(run) = self.world.lock().runs.get_mut(&self.attempt()) {
            run.class = Some(class);
        }
        Exit::Code(1)
    }

    /// Waits until the engine's instructions satisfy `enough`, and returns them. `Err` is the
    /// program's exit if it is stopped first.
    pub fn until_wished(&self, enough: impl Fn(&Wishes) -> bool) -> Result<Wishes, Exit> {
        let over =
            |state: &State| state.runs.get(&self.attempt()).is_none_or(|it| it.told_to_stop || it.exit.is_some());
        let wished = |state: &State| state.runs.get(&self.attempt()).is_some_and(|it| enough(&it.wishes));
        self.world.until("a program receives instructions", |state| wished(state) || over(state));
        let state = self.world.lock();
        match state.runs.get(&self.attempt()).filter(|it| enough(&it.wishes)) {
            Some(run) => Ok(run.wishes.clone()),
            None => Err(Exit::Signal(15)),
        }
    }

    /// Hangs until the program is stopped.
    pub fn hang(&self) -> Exit {
        self.wait_for("nothing lets this go on").err().unwrap_or(Exit::Lost)
    }

    /// Hangs, ignores the request to stop, and ends only when it is killed.
    pub fn hang_stubbornly(&self) -> Exit {
        self.world.until("a stubborn program is killed", |state| {
            state.runs.get(&self.attempt()).is_none_or(|it| it.exit.is_some())
        });
        Exit::Signal(9)
    }
}

impl Agents for FakeAgents {
    /// Resolves every provider except `nobody`.
    fn resolve(&self, wanted: &Wanted) -> Resolved {
        if wanted.provider == "nobody" {
            let error = AgentError { what: "It is not installed.".into(), hint: "Install it.".into() };
            return Resolved { problem: Some((Problem::Missing, error)), ..Resolved::default() };
        }
        Resolved { runtime: Some(Runtime::Scripted), backend: Some(wanted.provider.clone()), ..Resolved::default() }
    }

    fn start(&self, launch: &Launch) -> Result<Started, AgentError> {
        let starts = || {
            let task = launch.env.iter().find(|it| it.0 == "REGATTA_TASK").map(|it| it.1.clone()).unwrap_or_default();
            let mut state = self.world.lock();
            let nth = state.runs.values().filter(|it| it.started && it.task == task).count() + 1;
            let run = state.runs.entry(launch.attempt).or_insert_with(|| Run::new(&task));
            (run.asked, run.task) = (run.asked + 1, task.clone());
            if run.started || run.exit.is_some() {
                return;
            }
            run.started = true;
            let other = state
                .runs
                .iter()
                .find(|it| it.1.task == task && *it.0 != launch.attempt && it.1.started && it.1.exit.is_none());
            if let Some((other, _)) = other {
                let note = format!("J2: {} was started for {task} while {other} runs", launch.attempt);
                state.unlawful.push(note);
            }
            let program =
                Program { world: self.world.clone(), git: self.git.clone(), launch: launch.clone(), task, nth };
            let script = state.script.clone();
            drop(state);
            self.world.changed.notify_all();
            std::thread::spawn(move || live(&program, &script));
        };
        self.life.call("agents.start", starts).map_err(error)?;
        // Every program counts as sandboxed, because the tests are about something else.
        Ok(Started { sandbox: Some("in memory".into()), warnings: vec![] })
    }

    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError> {
        let look = || match self.world.lock().runs.get(&attempt) {
            None => ProcessState::NotStarted,
            Some(Run { exit: Some(exit), .. }) => ProcessState::Exited(exit.clone()),
            Some(_) => ProcessState::Running(ProcessIdentity {
                pid: attempt.0 as u32,
                start_ticks: attempt.0,
                boot_id: "in memory".into(),
            }),
        };
        self.life.call("agents.state", look).map_err(error)
    }

    fn attend(&self, attempt: AttemptId, desk: &dyn Desk) -> Result<Option<Verdict>, AgentError> {
        self.life.before("agents.attend").map_err(error)?;
        if !self.world.lock().runs.contains_key(&attempt) {
            return Err(error(format!("{attempt} was never started")));
        }
        // Report everything from the beginning, as a real program's journal does.
        let mut told = 0;
        while desk.goes_on() {
            let fresh: Vec<Said> = match self.world.lock().runs.get(&attempt) {
                Some(run) => run.said[told..].to_vec(),
                None => vec![],
            };
            for said in fresh {
                told += 1;
                desk.heard(told as u64, said);
            }
            let wishes = desk.wishes();
            let mut state = self.world.lock();
            let Some(run) = state.runs.get_mut(&attempt) else { break };
            if run.wishes != wishes {
                run.wishes = wishes;
                self.world.changed.notify_all();
            }
            if run.said.len() > told {
                continue;
            }
            if let Some(exit) = run.exit.clone() {
                let class = run.class.or((exit != Exit::Code(0)).then_some(Class::Crashed));
                let usage = run.usage.clone();
                drop(state);
                self.life.after("agents.attend").map_err(error)?;
                return Ok(Some(Verdict { exit, class, detail: String::new(), usage }));
            }
            let waited = self.world.changed.wait_timeout(state, Duration::from_millis(20));
            drop(waited);
        }
        Ok(None)
    }

    fn nudge(&self, _attempt: AttemptId) {
        self.world.changed.notify_all();
    }

    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError> {
        self.life.before("agents.stop").map_err(error)?;
        let told = self.life.effect(|| {
            let mut state = self.world.lock();
            match state.runs.get_mut(&attempt) {
                Some(run) => run.told_to_stop = true,
                None => {
                    // A later start finds this record and starts nothing.
                    let exit = Some(Exit::NotStarted("the program was stopped before it started".into()));
                    state.runs.insert(attempt, Run { told_to_stop: true, exit, ..Run::new("") });
                }
            }
            self.world.changed.notify_all();
        });
        told.map_err(error)?;
        let exit = self.wait_for_end(attempt, grace).map_or_else(
            || {
                self.life.effect(|| self.world.end(attempt, Exit::Signal(9)))?;
                Ok(Exit::Signal(9))
            },
            Ok,
        );
        self.life.after("agents.stop").map_err(error)?;
        exit.map_err(error)
    }

    fn check(&self, check: &Check) -> Result<CheckResult, AgentError> {
        let checks = || {
            let known = check.once.as_ref().and_then(|name| self.world.lock().once.get(name).cloned());
            if let Some(known) = known {
                return Ok(known);
            }
            let files =
                self.git.look_into(&check.dir).ok_or_else(|| error(format!("there is no {}", check.dir.display())))?;
            let judge = self.world.lock().judge.clone();
            let said = judge(&check.command, &files);
            if said.is_ok() {
                self.git.note_passed(&check.dir, &check.command);
            }
            let exit = Exit::Code(if said.is_ok() { 0 } else { 1 });
            let result = CheckResult { exit, timed_out: false, output: said.err().unwrap_or_default(), sandbox: None };
            if let Some(name) = &check.once {
                self.world.lock().once.insert(name.clone(), result.clone());
            }
            Ok(result)
        };
        self.life.call("agents.check", checks).map_err(error)?
    }

    fn transcript(&self, _attempt: AttemptId, _from: u64, _limit: usize) -> Result<Vec<Line>, AgentError> {
        Ok(vec![])
    }

    fn tail(&self, _attempt: AttemptId, _bytes: usize) -> Result<String, AgentError> {
        Ok(String::new())
    }

    fn last_word(&self, _attempt: AttemptId) -> Option<u64> {
        None // no journal is kept
    }

    fn result_file(&self, attempt: AttemptId) -> PathBuf {
        Path::new("/nowhere/runs").join(attempt.to_string()).join("result.json")
    }
}

/// Runs a program in a thread of its own, independent of the engine.
fn live(program: &Program, script: &Script) {
    let attempt = program.attempt();
    let did = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| script(program)));
    let exit = did.unwrap_or_else(|_| {
        program.world.lock().unlawful.push(format!("the program of {attempt} panicked"));
        Exit::Code(101)
    });
    program.world.end(attempt, exit);
}
