//! The command `agent test`: starts an agent's program as for a task, waits for a short answer, and
//! stops the program.
//!
//! The test runs in this process and not in the daemon. The test denies every permission request of
//! the program. If the test itself is killed, `agent_test_dirs` makes sure that no program and no
//! directory is left behind.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use regatta_core::agent::{Runtime, SecretSource, SecretVariable};
use regatta_core::agent_protocol::{AgentEvent as Spoken, FailureClass, RequestAnswer};
use regatta_core::ids::{AgentName, AttemptId};
use regatta_engine::ports::agents::{Agents, Exit, ProgramLaunch, SessionInput, SessionSink};

use crate::agent_test_dirs::{self, AgentTestDir};
use crate::commands::CommandContext;
use crate::interrupt::TerminationSignals;
use crate::output::{CommandError, CommandResult, Output, command_error, sanitize, short_duration};

const TEST_PROMPT: &str = "This is a test of the connection. Reply with the one word READY. Use \
    no tools and change nothing.";

/// The time limit of `regatta agent test` without `--timeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(90);

/// The interval at which `regatta agent test` prints that it is still waiting for the program.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Handles the events of the tested program, which gets one prompt: denies all permission requests,
/// prints progress, and stops the test when a signal asks this process to end.
struct AgentTestSink<'a> {
    output: &'a Output,
    signals: &'a TerminationSignals,
    began: Instant,
    timeout: Duration,
    last_progress: Cell<Duration>,
    session: RefCell<Option<String>>,
    model: RefCell<Option<String>>,
    reply_text: RefCell<String>,
    tokens: Cell<u64>,
    session_opened_after: Cell<Option<Duration>>,
    denied_requests: RefCell<Vec<String>>,
    is_over: Cell<bool>,
}

impl AgentTestSink<'_> {
    /// Prints every few seconds the step for which the test is waiting.
    fn print_progress(&self) {
        let passed = self.began.elapsed();
        if passed < self.last_progress.get() + PROGRESS_INTERVAL {
            return;
        }
        self.last_progress.set(passed);
        let what = if self.session_opened_after.get().is_some() {
            "its answer"
        } else {
            "its session"
        };
        let (passed, most) = (passed.as_secs(), self.timeout.as_secs());
        self.output.print_note(&format!(
            "waiting for {what}: {passed} s of at most {most} s"
        ));
    }
}

impl SessionSink for AgentTestSink<'_> {
    fn on_event(&self, _: u64, event: Spoken) {
        match event {
            Spoken::Started { session, model } => {
                if self.session_opened_after.get().is_none() {
                    self.session_opened_after.set(Some(self.began.elapsed()));
                    self.output
                        .print_note("its session is open; waiting for its answer");
                }
                self.session.replace(session);
                self.model.replace(model);
            }
            Spoken::Message { text } if self.reply_text.borrow().len() < 2_000 => {
                self.reply_text.borrow_mut().push_str(&text)
            }
            Spoken::Usage { usage, .. } => self.tokens.set(usage.tokens()),
            Spoken::RequestMade(request) => self.denied_requests.borrow_mut().push(request.id),
            Spoken::TurnEnded { .. } => self.is_over.set(true),
            _ => {}
        }
    }

    fn on_silence(&self, _: Option<Duration>) {}

    fn desired_input(&self) -> SessionInput {
        let late = self.began.elapsed() > self.timeout;
        let no = RequestAnswer::Deny {
            reason: Some("this is only a test".into()),
        };
        SessionInput {
            prompts: vec![TEST_PROMPT.to_owned()],
            answers: self
                .denied_requests
                .borrow()
                .iter()
                .map(|denied_request| (denied_request.clone(), no.clone()))
                .collect(),
            cancels: u32::from(late),
            should_hold_prompts: false,
            should_close_input: self.is_over.get() || late,
        }
    }

    fn should_continue(&self) -> bool {
        self.print_progress();
        self.signals.received().is_none()
            && self.began.elapsed() < self.timeout + Duration::from_secs(5)
    }
}

/// Runs `regatta agent test`.
pub(crate) fn test_agent(app: &CommandContext, name: &AgentName) -> CommandResult {
    let view = app.client()?.show_agent(name)?;
    let agent = &view.agent;
    if agent.runtime == Runtime::Outside {
        return Err(command_error(
            "outside",
            format!(
                "Regatta cannot test {name}, because {name} is an outside agent, whose program \
                 Regatta does not start"
            ),
            "test the program where it runs",
        ));
    }
    // When the agent works on a task, the daemon starts the program. Therefore first report the
    // problems that the daemon has found with the agent.
    if let Some(problem) = view.problems.first() {
        return Err(command_error(
            "not_started",
            problem.what.clone(),
            problem.hint.clone(),
        ));
    }
    let is_missing = |key: &&SecretVariable| matches!(&key.from, SecretSource::Env(name) if std::env::var_os(name).is_none());
    if let Some(SecretVariable {
        from: SecretSource::Env(name),
        ..
    }) = agent.profile.keys.iter().find(is_missing)
    {
        return Err(command_error(
            "not_started",
            format!(
                "the agent cannot be tested from here, because it needs the variable {name}, which \
                 is not set in this shell"
            ),
            format!(
                "set the variable for the test: {name}=… regatta agent test {}",
                agent.name
            ),
        ));
    }
    let data_dir = app.data_dir()?;
    if let Err(error) = agent_test_dirs::sweep_abandoned(&data_dir) {
        tracing::warn!(
            "could not remove the directories of earlier agent tests; to try again, run regatta \
             doctor --clean: {error}"
        );
    }
    // From here on a signal ends the test instead of this process, so that the test can clean up.
    let signals = TerminationSignals::install()?;
    let test_dir = AgentTestDir::create(&data_dir)?;
    let workspace = test_dir.path().join("workspace");
    std::fs::create_dir(&workspace).map_err(|error| {
        command_error(
            "io",
            format!("could not create a temporary directory for the agent test: {error}"),
            "check that TMPDIR names a directory you can write",
        )
    })?;
    let agents = crate::composition::agents_adapter_with_contact_deadline(
        &test_dir.path().join("data"),
        test_dir.contact_file(),
        agent_test_dirs::CONTACT_TIMEOUT,
    )?;
    let attempt = AttemptId(1);
    let launch = ProgramLaunch {
        attempt,
        agent: name.clone(),
        runtime: agent.runtime.clone(),
        profile: agent.profile.clone(),
        resume: None,
        mcp: None,
        recorded_usage: Default::default(),
        workspace,
        objects: None,
        // Hide the data directory from the program, because it contains the daemon's token.
        hidden: vec![data_dir],
        prompt: TEST_PROMPT.to_owned(),
        script: Some(r#"[{"say": "READY"}]"#.to_owned()),
        env: vec![],
    };
    let timeout = app.timeout().unwrap_or(DEFAULT_TIMEOUT);
    app.output.print_note(&format!(
        "starting {name}; time limit {} s (--timeout)",
        timeout.as_secs()
    ));
    let began = Instant::now();
    let started = agents
        .start(&launch)
        .map_err(|error| command_error("not_started", error.message, error.hint))?;
    let sink = AgentTestSink {
        output: &app.output,
        signals: &signals,
        began,
        timeout,
        last_progress: Cell::new(Duration::ZERO),
        session: RefCell::default(),
        model: RefCell::default(),
        reply_text: RefCell::default(),
        tokens: Cell::new(0),
        session_opened_after: Cell::new(None),
        denied_requests: RefCell::default(),
        is_over: Cell::new(false),
    };
    let outcome = agents.attend(attempt, &sink);
    // Stop the program in any case, no matter how the test ended.
    let stopped = agents.stop(attempt, Duration::from_secs(2));
    if let Some(number) = signals.received() {
        stopped.map_err(|error| command_error("not_stopped", error.message, error.hint))?;
        app.output
            .print_note(&format!("interrupted; stopped {name}"));
        return Err(CommandError::Exit(128 + number));
    }
    let verdict =
        outcome.map_err(|error| command_error("not_attended", error.message, error.hint))?;
    stopped.map_err(|error| command_error("not_stopped", error.message, error.hint))?;
    let duration = short_duration(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    let class = match &verdict {
        None => Some(FailureClass::Timeout),
        Some(driver_verdict) if driver_verdict.class == Some(FailureClass::Cancelled) => {
            Some(FailureClass::Timeout)
        }
        Some(driver_verdict) => driver_verdict.class,
    };
    let detail = match &verdict {
        Some(driver_verdict) => match &driver_verdict.exit {
            Exit::NotStarted(reason) => reason.clone(),
            _ => driver_verdict.detail.clone(),
        },
        None => "it did not answer in time".into(),
    };
    let answer = sanitize(sink.reply_text.borrow().trim());
    let data = serde_json::json!({
        "agent": name,
        "class": class.map(FailureClass::name),
        "detail": detail,
        "words": answer,
        "session": *sink.session.borrow(),
        "model": *sink.model.borrow(),
        "tokens": sink.tokens.get(),
        "sandbox": started.sandbox,
        "warnings": started.warnings,
    });
    app.output.print_answer("agent.test", &data, &[], |_| {
        let mut text = String::new();
        for warning in &started.warnings {
            text += &format!("! {}\n", sanitize(warning));
        }
        let sandbox = started
            .sandbox
            .as_deref()
            .map_or("none".to_owned(), sanitize);
        text += &format!("sandbox  {sandbox}\n");
        if let Some(delay) = sink.session_opened_after.get() {
            let model = sink
                .model
                .borrow()
                .as_deref()
                .map_or(String::new(), |model| format!(" · {}", sanitize(model)));
            text += &format!(
                "session  opened after {}{model}\n",
                short_duration(delay.as_millis() as u64)
            );
        }
        if !answer.is_empty() {
            text += &format!("answer   {answer}\n");
        }
        match class {
            None => text + &format!("{name} works · {} tokens · {duration}\n", sink.tokens.get()),
            Some(class) => {
                text + &format!(
                    "{name} does not work ({class}): {}\n",
                    sanitize(detail.trim())
                )
            }
        }
    })?;
    match class {
        None => Ok(()),
        Some(FailureClass::Auth) => Err(CommandError::Exit(4)),
        Some(_) => Err(CommandError::Exit(1)),
    }
}
