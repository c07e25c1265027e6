//! The command `agent test`: starts an agent's program like an attempt, waits for a short answer,
//! and stops it.
//!
//! The test runs in this process and not in the daemon. It denies every permission request of the
//! program. `trials` makes sure that a test that is killed leaves no program and no directory
//! behind.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::AgentView;
use regatta_core::agent::{Key, KeySource, Runtime};
use regatta_core::ids::{AgentName, AttemptId};
use regatta_core::session::{Answer, Class, Said as Spoken};
use regatta_engine::ports::agents::{Agents, Desk, Exit, Launch, Wishes};

use crate::client::Got;
use crate::interrupt::EndSignals;
use crate::out::{Failed, Out, Said, failed, plain, span};
use crate::trials::{self, Trial};

use super::App;

const PROMPT: &str =
    "This is a test of the connection. Reply with the one word READY. Use no tools and change nothing.";

/// The time limit of a test without `--timeout`.
const PATIENCE: Duration = Duration::from_secs(90);

/// Time between two lines that say that the test is still waiting.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Follows one turn of the program. It denies all permission requests, prints progress, and stops
/// when a signal asks this process to end.
struct Listener<'a> {
    out: &'a Out,
    signals: &'a EndSignals,
    began: Instant,
    patience: Duration,
    noted: Cell<Duration>,
    session: RefCell<Option<String>>,
    model: RefCell<Option<String>>,
    words: RefCell<String>,
    tokens: Cell<u64>,
    opened: Cell<Option<Duration>>,
    asked: RefCell<Vec<String>>,
    over: Cell<bool>,
}

impl Listener<'_> {
    /// Prints every few seconds what the test is waiting for.
    fn note_progress(&self) {
        let passed = self.began.elapsed();
        if passed < self.noted.get() + PROGRESS_INTERVAL {
            return;
        }
        self.noted.set(passed);
        let what = if self.opened.get().is_some() { "its answer" } else { "its session" };
        let (passed, most) = (passed.as_secs(), self.patience.as_secs());
        self.out.note(&format!("waiting for {what}: {passed} s of at most {most} s"));
    }
}

impl Desk for Listener<'_> {
    fn heard(&self, _: u64, said: Spoken) {
        match said {
            Spoken::Started { session, model } => {
                if self.opened.get().is_none() {
                    self.opened.set(Some(self.began.elapsed()));
                    self.out.note("its session is open; waiting for its answer");
                }
                self.session.replace(session);
                self.model.replace(model);
            }
            Spoken::Message { text } if self.words.borrow().len() < 2_000 => self.words.borrow_mut().push_str(&text),
            Spoken::Usage { usage, .. } => self.tokens.set(usage.tokens()),
            Spoken::Asked(ask) => self.asked.borrow_mut().push(ask.id),
            Spoken::TurnEnded { .. } => self.over.set(true),
            _ => {}
        }
    }

    fn silent(&self, _: Option<Duration>) {}

    fn wishes(&self) -> Wishes {
        let late = self.began.elapsed() > self.patience;
        let no = Answer::Deny { words: Some("this is only a test".into()) };
        Wishes {
            prompts: vec![PROMPT.to_owned()],
            answers: self.asked.borrow().iter().map(|it| (it.clone(), no.clone())).collect(),
            cancels: u32::from(late),
            hold: false,
            end: self.over.get() || late,
        }
    }

    fn goes_on(&self) -> bool {
        self.note_progress();
        self.signals.came().is_none() && self.began.elapsed() < self.patience + Duration::from_secs(5)
    }
}

/// Runs `regatta agent test`.
pub(super) fn test(app: &App, name: &AgentName) -> Said {
    let got: Got<AgentView> = app.call(&Call::Show(input::Id { id: name.to_string() }))?;
    let agent = &got.data.agent;
    if agent.runtime == Runtime::Outside {
        return Err(failed(
            "outside",
            format!("Regatta does not start {name}, so it cannot test it"),
            "test it where it runs",
        ));
    }
    // In attempts the daemon starts the program, so the problems that the daemon found come first.
    if let Some(problem) = got.data.problems.first() {
        return Err(failed("not_started", problem.what.clone(), problem.hint.clone()));
    }
    let lacks = |key: &&Key| matches!(&key.from, KeySource::Env(name) if std::env::var_os(name).is_none());
    if let Some(Key { from: KeySource::Env(name), .. }) = agent.profile.keys.iter().find(lacks) {
        let what = format!("the daemon has {name}, but this shell does not, so {name} cannot be tested from here");
        return Err(failed(
            "not_started",
            what,
            format!("set it for the test: {name}=… regatta agent test {}", agent.name),
        ));
    }
    let data_dir = app.data_dir()?;
    if let Err(error) = trials::sweep(&data_dir) {
        tracing::warn!("could not remove the leftovers of earlier tests: {error}");
    }
    // From here on a signal ends the test instead of this process, so that the test can clean up.
    let signals = EndSignals::listen()?;
    let trial = Trial::begin(&data_dir)?;
    let workspace = trial.place().join("workspace");
    std::fs::create_dir(&workspace).map_err(|it| {
        failed("io", format!("could not create a directory for the test: {it}"), "check the directory in TMPDIR")
    })?;
    let agents = crate::wire::agents_on_leash(&trial.place().join("data"), trial.leash(), trials::LEASH)?;
    let attempt = AttemptId(1);
    let launch = Launch {
        attempt,
        agent: name.clone(),
        runtime: agent.runtime.clone(),
        profile: agent.profile.clone(),
        resume: None,
        mcp: None,
        used: Default::default(),
        workspace,
        objects: None,
        // The data directory contains the daemon's token.
        hidden: vec![data_dir],
        prompt: PROMPT.to_owned(),
        script: Some(r#"[{"say": "READY"}]"#.to_owned()),
        env: vec![],
    };
    let patience = app.timeout().unwrap_or(PATIENCE);
    app.out.note(&format!("starting {name}; time limit {} s (--timeout)", patience.as_secs()));
    let began = Instant::now();
    let started = agents.start(&launch).map_err(|it| failed("not_started", it.what, it.hint))?;
    let listener = Listener {
        out: &app.out,
        signals: &signals,
        began,
        patience,
        noted: Cell::new(Duration::ZERO),
        session: RefCell::default(),
        model: RefCell::default(),
        words: RefCell::default(),
        tokens: Cell::new(0),
        opened: Cell::new(None),
        asked: RefCell::default(),
        over: Cell::new(false),
    };
    let attended = agents.attend(attempt, &listener);
    // The program must stop in any case.
    let stopped = agents.stop(attempt, Duration::from_secs(2));
    if let Some(number) = signals.came() {
        stopped.map_err(|error| failed("not_stopped", error.what, error.hint))?;
        app.out.note(&format!("interrupted; stopped {name}"));
        return Err(Failed::Code(128 + number));
    }
    let verdict = attended.map_err(|it| failed("not_attended", it.what, it.hint))?;
    stopped.map_err(|it| failed("not_stopped", it.what, it.hint))?;
    let took = span(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    let class = match &verdict {
        None => Some(Class::Timeout),
        Some(it) if it.class == Some(Class::Cancelled) => Some(Class::Timeout),
        Some(it) => it.class,
    };
    let detail = match &verdict {
        Some(it) => match &it.exit {
            Exit::NotStarted(reason) => reason.clone(),
            _ => it.detail.clone(),
        },
        None => "it did not answer in time".into(),
    };
    let words = plain(listener.words.borrow().trim());
    let data = serde_json::json!({
        "agent": name,
        "class": class.map(Class::name),
        "detail": detail,
        "words": words,
        "session": *listener.session.borrow(),
        "model": *listener.model.borrow(),
        "tokens": listener.tokens.get(),
        "sandbox": started.sandbox,
        "warnings": started.warnings,
    });
    app.out.answer("agent.test", &data, &[], |_| {
        let mut text = String::new();
        for warning in &started.warnings {
            text += &format!("! {}\n", plain(warning));
        }
        let sandbox = started.sandbox.as_deref().map_or("none".to_owned(), plain);
        text += &format!("sandbox  {sandbox}\n");
        if let Some(opened) = listener.opened.get() {
            let model = listener.model.borrow().as_deref().map_or(String::new(), |it| format!(" · {}", plain(it)));
            text += &format!("session  opened after {}{model}\n", span(opened.as_millis() as u64));
        }
        if !words.is_empty() {
            text += &format!("answer   {words}\n");
        }
        match class {
            None => text + &format!("{name} works · {} tokens · {took}\n", listener.tokens.get()),
            Some(class) => text + &format!("{name} does not work ({class}): {}\n", plain(detail.trim())),
        }
    })?;
    match class {
        None => Ok(()),
        Some(Class::Auth) => Err(Failed::Code(4)),
        Some(_) => Err(Failed::Code(1)),
    }
}
