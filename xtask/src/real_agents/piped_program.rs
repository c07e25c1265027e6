//! Runs a program on a plain pipe with its driver, without shim and daemon.
//!
//! Input and output are recorded as the shim would record them, so that a second driver can read
//! the journal and continue, as after a restart of the daemon.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use regatta_agents::driver::{Driver, ExitAssessment, InputAction, JournalRecord, JournalStream};
use regatta_agents::drivers::{self, DriverSetup};
use regatta_core::agent_protocol::{AgentEvent, RequestAnswer};
use regatta_engine::ports::agents::{Exit, SessionInput};

use super::sandbox_user::{MARK_VARIABLE, SandboxUser, kill_all_with_mark};

/// The answer to every permission request.
#[derive(Clone, Debug)]
pub(crate) enum PermissionReply {
    Allow,
    Deny,
}

/// Where and under which account a program runs.
#[derive(Clone, Debug)]
pub(crate) struct ProgramSetting {
    pub(crate) account: SandboxUser,
    pub(crate) home: PathBuf,
    pub(crate) mark: String,
    /// The program's key: the variable and a worthless value.
    pub(crate) key: (&'static str, &'static str),
}

/// A running program with its driver.
pub(crate) struct PipedProgram {
    setting: ProgramSetting,
    setup: DriverSetup,
    child: Child,
    input: Option<ChildStdin>,
    incoming: Receiver<(JournalStream, String)>,
    driver: Box<dyn Driver>,
    journal: Vec<JournalRecord>,
    reply: PermissionReply,
    pub(crate) session_input: SessionInput,
    pub(crate) events: Vec<AgentEvent>,
    exit: Option<Exit>,
}

impl PipedProgram {
    /// Starts the program with its first prompt.
    pub(crate) fn start(
        stage: &ProgramSetting,
        setup: DriverSetup,
        prompt: &str,
        policy: PermissionReply,
    ) -> anyhow::Result<PipedProgram> {
        for (path, content) in drivers::home_files(&setup) {
            let path = stage.home.join(path);
            if !path.exists() {
                std::fs::create_dir_all(path.parent().unwrap_or(&stage.home))?;
                std::fs::write(path, content)?;
            }
        }
        stage.account.give_ownership(&stage.home)?;
        let line = drivers::command_line(&setup, prompt, Path::new("regatta"));
        let (program, args) = line
            .split_first()
            .context("the driver returned no command line")?;
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(&setup.workspace)
            .env_clear()
            .env("HOME", &stage.home)
            .env("LANG", "C.UTF-8")
            .env("TMPDIR", stage.home.join("tmp"))
            .env(MARK_VARIABLE, &stage.mark)
            .env(stage.key.0, stage.key.1)
            .envs(drivers::environment(&setup))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        stage.account.apply(&mut command);
        let mut child = command
            .spawn()
            .with_context(|| format!("could not start {program}"))?;
        let (tell, incoming) = channel();
        spawn_reader(child.stdout.take(), JournalStream::Out, tell.clone());
        spawn_reader(child.stderr.take(), JournalStream::Err, tell);
        let wishes = SessionInput {
            prompts: vec![prompt.to_owned()],
            ..SessionInput::default()
        };
        Ok(PipedProgram {
            setting: stage.clone(),
            input: child.stdin.take(),
            child,
            incoming,
            driver: drivers::new_driver(&setup),
            setup,
            journal: vec![],
            reply: policy,
            session_input: wishes,
            events: vec![],
            exit: None,
        })
    }

    /// Runs until the condition holds. Returns false if the time runs out or the program ends
    /// first.
    pub(crate) fn run_until(
        &mut self,
        patience: Duration,
        holds: impl Fn(&PipedProgram) -> bool,
    ) -> anyhow::Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            self.send_input()?;
            if holds(self) {
                return Ok(true);
            }
            if self.exit.is_some() {
                return Ok(false);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(false);
            }
            // The condition may depend on the model server, so check it from time to time.
            match self
                .incoming
                .recv_timeout(remaining.min(Duration::from_millis(100)))
            {
                Ok((stream, line)) => self.on_line(stream, line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.wait_for_exit(remaining)?,
            }
        }
    }

    /// Sends the driver's inputs to the program.
    fn send_input(&mut self) -> anyhow::Result<()> {
        while let Some(say) = self.driver.next_input(&self.session_input) {
            match say {
                InputAction::Line(line) => {
                    if let Some(input) = &mut self.input {
                        // A program that has ended does not read its input; its exit is handled
                        // elsewhere.
                        let _heard = input
                            .write_all(format!("{line}\n").as_bytes())
                            .and_then(|()| input.flush());
                    }
                    self.on_line(JournalStream::In, line);
                }
                InputAction::Close => {
                    self.input = None;
                    self.on_line(JournalStream::InEnd, String::new());
                }
            }
            anyhow::ensure!(
                self.journal.len() < 100_000,
                "the driver sends inputs without end"
            );
        }
        Ok(())
    }

    fn on_line(&mut self, stream: JournalStream, line: String) {
        let unix_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |duration| duration.as_millis() as u64);
        let record = JournalRecord {
            position: self.journal.len() as u64 + 1,
            written_unix_ms: unix_ms,
            stream,
            line,
        };
        for said in self.driver.on_record(&record) {
            if let AgentEvent::RequestMade(ask) = &said {
                let answer = match self.reply {
                    PermissionReply::Allow => RequestAnswer::Allow,
                    PermissionReply::Deny => RequestAnswer::Deny {
                        reason: Some("not this".into()),
                    },
                };
                self.session_input.answers.push((ask.id.clone(), answer));
            }
            self.events.push(said);
        }
        self.journal.push(record);
    }

    /// Waits for the end of the program, after both its outputs were closed.
    fn wait_for_exit(&mut self, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                use std::os::unix::process::ExitStatusExt;
                self.exit = Some(match (status.code(), status.signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    (None, None) => Exit::Lost,
                });
                return Ok(());
            }
            if Instant::now() > deadline {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Replaces the driver by a new one that reads the journal, as a restarted daemon does. Returns
    /// the number of records.
    pub(crate) fn replay_journal(&mut self) -> usize {
        self.driver = drivers::new_driver(&self.setup);
        self.events = self
            .journal
            .iter()
            .flat_map(|journal| self.driver.on_record(journal))
            .collect();
        self.journal.len()
    }

    /// Kills the program and everything that it started. Returns the names of the processes that
    /// outlived it.
    pub(crate) fn kill(&mut self) -> anyhow::Result<Vec<String>> {
        self.child.kill()?;
        self.child.wait()?;
        self.exit = Some(Exit::Signal(9));
        Ok(kill_all_with_mark(&self.setting.mark))
    }

    /// Ends the session and waits for the end of the program.
    pub(crate) fn finish_session(&mut self, patience: Duration) -> anyhow::Result<ExitAssessment> {
        self.session_input.should_close_input = true;
        let ended = self.run_until(patience, |piped_program| piped_program.exit.is_some())?;
        anyhow::ensure!(
            ended || self.exit.is_some(),
            "the program did not end within {patience:?} after the request"
        );
        self.judge_end()
    }

    /// Returns the driver's judgement of the program's end.
    pub(crate) fn judge_end(&self) -> anyhow::Result<ExitAssessment> {
        Ok(self
            .driver
            .assess_exit(self.exit.as_ref().context("the program has not ended")?))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.exit.is_some()
    }

    /// Returns the native session, once it is open.
    pub(crate) fn native_session(&self) -> Option<String> {
        self.events
            .iter()
            .find_map(|agent_event| match agent_event {
                AgentEvent::Started { session, .. } => session.clone(),
                _ => None,
            })
    }

    /// Returns the number of ended turns.
    pub(crate) fn ended_turns(&self) -> usize {
        self.events
            .iter()
            .filter(|agent_event| matches!(agent_event, AgentEvent::TurnEnded { .. }))
            .count()
    }

    /// Formats the journal for a report about a failure.
    pub(crate) fn journal_text(&self) -> String {
        let lines = self.journal.iter().map(|journal| {
            format!(
                "{:>5} {:?} {}\n",
                journal.position, journal.stream, journal.line
            )
        });
        lines.collect()
    }
}

impl Drop for PipedProgram {
    fn drop(&mut self) {
        // Nothing may keep running after a scenario.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
        kill_all_with_mark(&self.setting.mark);
    }
}

fn spawn_reader(
    from: Option<impl Read + Send + 'static>,
    stream: JournalStream,
    tell: Sender<(JournalStream, String)>,
) {
    let Some(from) = from else { return };
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = vec![];
        while reader
            .read_until(b'\n', &mut line)
            .is_ok_and(|reader| reader > 0)
        {
            let text = String::from_utf8_lossy(&line)
                .trim_end_matches(['\n', '\r'])
                .to_owned();
            if tell.send((stream, text)).is_err() {
                return;
            }
            line.clear();
        }
    });
}
