//! Programs in memory: what each does is a function of the test's, and all outlive the engine, as under shims.
//!
//! A program works on its workspace in [`FakeGit`], may wait until the test lets it go on, and may hang until it is
//! stopped. The world counts what was started and notes when two programs run for one task (J2) or one attempt is
//! started twice; [`FakeAgents::assert_lawful`] fails the test then.

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

/// Programs for tests. Clones and handles of other lives share them.
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
    /// What commands said that run once, by name.
    once: BTreeMap<String, CheckResult>,
    unlawful: Vec<String>,
}

struct Run {
    task: String,
    /// How often the port was asked to start it.
    asked: usize,
    started: bool,
    told_to_stop: bool,
    exit: Option<Exit>,
    /// What it said, in order, and how it failed if it says so.
    said: Vec<Said>,
    class: Option<Class>,
    /// What it says at its end that each of its sessions used.
    usage: Vec<(Option<String>, Usage)>,
    /// What was last wanted of it.
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
    /// Programs that do `script` on the workspaces of `git`.
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

    /// A handle for one life of the engine; its calls are named `agents.<method>`.
    pub fn in_life(&self, life: &Life) -> FakeAgents {
        FakeAgents { life: life.clone(), ..self.clone() }
    }

    /// Judges directories by their content: `Err` is what the command prints before it fails.
    pub fn judge_by(&self, judge: impl Fn(&str, &Files) -> Result<(), String> + Send + Sync + 'static) {
        self.world.lock().judge = Arc::new(judge);
    }

    /// Lets every program go on that waits for `signal`, now or later.
    pub fn let_go(&self, signal: &str) {
        self.world.lock().open.insert(signal.to_owned());
        self.world.changed.notify_all();
    }

    /// Takes a program away without a word, as a power cut does.
    pub fn lose(&self, attempt: AttemptId) {
        self.world.end(attempt, Exit::Lost);
    }

    /// Waits until a program of this attempt runs or ran.
    pub fn until_started(&self, attempt: AttemptId) {
        self.world.until("a program is started", |state| state.runs.get(&attempt).is_some_and(|it| it.started));
    }

    /// The attempts whose programs run.
    pub fn running(&self) -> Vec<AttemptId> {
        self.world.lock().runs.iter().filter(|it| it.1.started && it.1.exit.is_none()).map(|it| *it.0).collect()
    }

    /// How many programs were started for each task.
    pub fn programs(&self) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        for run in self.world.lock().runs.values().filter(|it| it.started) {
            *found.entry(run.task.clone()).or_default() += 1;
        }
        found
    }

    /// How often the port was asked to start an attempt's program, over all lives.
    pub fn asked(&self, attempt: AttemptId) -> usize {
        self.world.lock().runs.get(&attempt).map_or(0, |it| it.asked)
    }

    /// Fails if two programs ever ran for one task at once (J2), or a program panicked.
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

    /// Writes the one exit record; a second one changes nothing.
    fn end(&self, attempt: AttemptId, exit: Exit) {
        if let Some(run) = self.lock().runs.get_mut(&attempt) {
            run.exit.get_or_insert(exit);
        }
        self.changed.notify_all();
    }
}

/// A program that runs, as its script sees it.
pub struct Program {
    world: Arc<World>,
    git: FakeGit,
    launch: Launch,
    task: String,
    nth: usize,
}

impl Program {
    /// The attempt it works for.
    pub fn attempt(&self) -> AttemptId {
        self.launch.attempt
    }

    /// Its task's number, as a person types it.
    pub fn task(&self) -> &str {
        &self.task
    }

    /// Which program of its task it is, counting from 1.
    pub fn nth(&self) -> usize {
        self.nth
    }

    /// How it was launched.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// The repositories, for what else happens while it works.
    pub fn git(&self) -> &FakeGit {
        &self.git
    }

    /// Reads a file of its workspace; empty if there is none.
    pub fn read(&self, path: &str) -> String {
        self.git.look_into(&self.launch.workspace).and_then(|it| it.get(path).cloned()).unwrap_or_default()
    }

    /// The attempt whose workspace it works in: an earlier one's, when it goes on with unfinished work.
    fn space(&self) -> AttemptId {
        let name = self.launch.workspace.file_name().and_then(|it| it.to_str());
        name.and_then(|it| it.parse().ok()).expect("the engine names a workspace of the fake git's")
    }

    /// Writes a file of its workspace, unless the program was ended meanwhile.
    pub fn write(&self, path: &str, content: &str) {
        let state = self.world.lock();
        if state.runs.get(&self.attempt()).is_some_and(|it| it.exit.is_none()) {
            self.git.edit(self.space(), |files| _ = files.insert(path.to_owned(), content.to_owned()));
        }
    }

    /// Adds to the end of a file, so that what is done twice shows.
    pub fn append(&self, path: &str, text: &str) {
        self.write(path, &(self.read(path) + text));
    }

    /// Waits until the test lets it go on; `Err` is its end when it is stopped first.
    pub fn wait_for(&self, signal: &str) -> Result<(), Exit> {
        let over =
            |state: &State| state.runs.get(&self.attempt()).is_none_or(|it| it.told_to_stop || it.exit.is_some());
        self.world.until("a program is let go", |state| state.open.contains(signal) || over(state));
        let state = self.world.lock();
        if over(&state) { Err(Exit::Signal(15)) } else { Ok(()) }
    }

    /// Says something in the vocabulary of drivers.
    pub fn say(&self, said: Said) {
        if let Some(run) = self.world.lock().runs.get_mut(&self.attempt()) {
            run.said.push(said);
        }
        self.world.changed.notify_all();
    }

    /// Says at its end, and no earlier, what a session used.
    pub fn settle(&self, session: &str, usage: Usage) {
        if let Some(run) = self.world.lock().runs.get_mut(&self.attempt()) {
            run.usage.push((Some(session.to_owned()), usage));
        }
    }

    /// Ends with an error of this class.
    pub fn fail(&self, class: Class) -> Exit {
        if let Some(run) = self.world.lock().runs.get_mut(&self.attempt()) {
            run.class = Some(class);
        }
        Exit::Code(1)
    }

    /// Waits until something is wanted of it, and returns all that is; `Err` is its end when it is stopped first.
    pub fn until_wished(&self, enough: impl Fn(&Wishes) -> bool) -> Result<Wishes, Exit> {
        let over =
            |state: &State| state.runs.get(&self.attempt()).is_none_or(|it| it.told_to_stop || it.exit.is_some());
        let wished = |state: &State| state.runs.get(&self.attempt()).is_some_and(|it| enough(&it.wishes));
        self.world.until("a program is told something", |state| wished(state) || over(state));
        let state = self.world.lock();
        match state.runs.get(&self.attempt()).filter(|it| enough(&it.wishes)) {
            Some(run) => Ok(run.wishes.clone()),
            None => Err(Exit::Signal(15)),
        }
    }

    /// Hangs until it is stopped.
    pub fn hang(&self) -> Exit {
        self.wait_for("nothing lets this go on").err().unwrap_or(Exit::Lost)
    }

    /// Hangs and does not listen when it is told to stop, until it is killed.
    pub fn hang_stubbornly(&self) -> Exit {
        self.world.until("a stubborn program is killed", |state| {
            state.runs.get(&self.attempt()).is_none_or(|it| it.exit.is_some())
        });
        Exit::Signal(9)
    }
}

impl Agents for FakeAgents {
    /// Whoever is wanted is there, but `nobody`.
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
        // As if every program were shut in: the stories are about something else.
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
        // A new attendant hears everything from the beginning, as from a journal.
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
                    // A start that comes later finds this record and starts nothing.
                    let exit = Some(Exit::NotStarted("it was stopped before it began".into()));
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
        None // nothing of it is kept
    }

    fn result_file(&self, attempt: AttemptId) -> PathBuf {
        Path::new("/nowhere/runs").join(attempt.to_string()).join("result.json")
    }
}

/// A process of its own: what it does and when it ends depends on no engine.
fn live(program: &Program, script: &Script) {
    let attempt = program.attempt();
    let did = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| script(program)));
    let exit = did.unwrap_or_else(|_| {
        program.world.lock().unlawful.push(format!("the program of {attempt} panicked"));
        Exit::Code(101)
    });
    program.world.end(attempt, exit);
}
