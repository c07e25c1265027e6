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
use regatta_agents::driver::{Driver, Judgement, Record, Say, Stream};
use regatta_agents::drivers::{self, Setup};
use regatta_core::session::{Answer, Said};
use regatta_engine::ports::agents::{Exit, Wishes};

use super::account::{Account, MARK, sweep};

/// The answer to every permission request.
#[derive(Clone, Debug)]
pub(crate) enum Policy {
    Allow,
    Deny,
}

/// Where and under which account a program runs.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) account: Account,
    pub(crate) home: PathBuf,
    pub(crate) mark: String,
    /// The program's key: the variable and a worthless value.
    pub(crate) key: (&'static str, &'static str),
}

/// A running program with its driver.
pub(crate) struct Piped {
    stage: Stage,
    setup: Setup,
    child: Child,
    input: Option<ChildStdin>,
    incoming: Receiver<(Stream, String)>,
    driver: Box<dyn Driver>,
    journal: Vec<Record>,
    policy: Policy,
    pub(crate) wishes: Wishes,
    pub(crate) said: Vec<Said>,
    exit: Option<Exit>,
}

impl Piped {
    /// Starts the program with its first prompt.
    pub(crate) fn start(stage: &Stage, setup: Setup, prompt: &str, policy: Policy) -> anyhow::Result<Piped> {
        for (path, content) in drivers::files(&setup) {
            let path = stage.home.join(path);
            if !path.exists() {
                std::fs::create_dir_all(path.parent().unwrap_or(&stage.home))?;
                std::fs::write(path, content)?;
            }
        }
        stage.account.give(&stage.home)?;
        let line = drivers::command_line(&setup, prompt, Path::new("regatta"));
        let (program, args) = line.split_first().context("the driver returned no command line")?;
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(&setup.workspace)
            .env_clear()
            .env("HOME", &stage.home)
            .env("LANG", "C.UTF-8")
            .env("TMPDIR", stage.home.join("tmp"))
            .env(MARK, &stage.mark)
            .env(stage.key.0, stage.key.1)
            .envs(drivers::environment(&setup))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        stage.account.apply(&mut command);
        let mut child = command.spawn().with_context(|| format!("could not start {program}"))?;
        let (tell, incoming) = channel();
        read_aside(child.stdout.take(), Stream::Out, tell.clone());
        read_aside(child.stderr.take(), Stream::Err, tell);
        let wishes = Wishes { prompts: vec![prompt.to_owned()], ..Wishes::default() };
        Ok(Piped {
            stage: stage.clone(),
            input: child.stdin.take(),
            child,
            incoming,
            driver: drivers::of(&setup),
            setup,
            journal: vec![],
            policy,
            wishes,
            said: vec![],
            exit: None,
        })
    }

    /// Runs until the condition holds. Returns false if the time runs out or the program ends
    /// first.
    pub(crate) fn until(&mut self, patience: Duration, holds: impl Fn(&Piped) -> bool) -> anyhow::Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            self.say()?;
            if holds(self) {
                return Ok(true);
            }
            if self.exit.is_some() {
                return Ok(false);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            // The condition may depend on the model server, so check it from time to time.
            match self.incoming.recv_timeout(left.min(Duration::from_millis(100))) {
                Ok((stream, line)) => self.note(stream, line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.reap(left)?,
            }
        }
    }

    /// Sends the driver's inputs to the program.
    fn say(&mut self) -> anyhow::Result<()> {
        while let Some(say) = self.driver.next(&self.wishes) {
            match say {
                Say::Line(line) => {
                    if let Some(input) = &mut self.input {
                        // A program that has ended does not read its input; its exit is handled
                        // elsewhere.
                        let _heard = input.write_all(format!("{line}\n").as_bytes()).and_then(|()| input.flush());
                    }
                    self.note(Stream::In, line);
                }
                Say::Close => {
                    self.input = None;
                    self.note(Stream::InEnd, String::new());
                }
            }
            anyhow::ensure!(self.journal.len() < 100_000, "the driver sends inputs without end");
        }
        Ok(())
    }

    fn note(&mut self, stream: Stream, line: String) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_millis() as u64);
        let record = Record { n: self.journal.len() as u64 + 1, at, stream, line };
        for said in self.driver.saw(&record) {
            if let Said::Asked(ask) = &said {
                let answer = match self.policy {
                    Policy::Allow => Answer::Allow,
                    Policy::Deny => Answer::Deny { words: Some("not this".into()) },
                };
                self.wishes.answers.push((ask.id.clone(), answer));
            }
            self.said.push(said);
        }
        self.journal.push(record);
    }

    /// Waits for the end of the program, after both its outputs were closed.
    fn reap(&mut self, patience: Duration) -> anyhow::Result<()> {
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
    pub(crate) fn start_anew(&mut self) -> usize {
        self.driver = drivers::of(&self.setup);
        self.said = self.journal.iter().flat_map(|it| self.driver.saw(it)).collect();
        self.journal.len()
    }

    /// Kills the program and everything that it started. Returns the names of the processes that
    /// outlived it.
    pub(crate) fn kill(&mut self) -> anyhow::Result<Vec<String>> {
        self.child.kill()?;
        self.child.wait()?;
        self.exit = Some(Exit::Signal(9));
        Ok(sweep(&self.stage.mark))
    }

    /// Ends the session and waits for the end of the program.
    pub(crate) fn finish(&mut self, patience: Duration) -> anyhow::Result<Judgement> {
        self.wishes.end = true;
        let ended = self.until(patience, |it| it.exit.is_some())?;
        anyhow::ensure!(ended || self.exit.is_some(), "the program did not end within {patience:?} after the request");
        self.judge()
    }

    /// Returns the driver's judgement of the program's end.
    pub(crate) fn judge(&self) -> anyhow::Result<Judgement> {
        Ok(self.driver.judge(self.exit.as_ref().context("the program has not ended")?))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.exit.is_some()
    }

    /// Returns the native session, once it is open.
    pub(crate) fn session(&self) -> Option<String> {
        self.said.iter().find_map(|it| match it {
            Said::Started { session, .. } => session.clone(),
            _ => None,
        })
    }

    /// Returns the number of ended turns.
    pub(crate) fn turns_ended(&self) -> usize {
        self.said.iter().filter(|it| matches!(it, Said::TurnEnded { .. })).count()
    }

    /// Formats the journal for a report about a failure.
    pub(crate) fn transcript(&self) -> String {
        let lines = self.journal.iter().map(|it| format!("{:>5} {:?} {}\n", it.n, it.stream, it.line));
        lines.collect()
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // Nothing may keep running after a scenario.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
        sweep(&self.stage.mark);
    }
}

fn read_aside(from: Option<impl Read + Send + 'static>, stream: Stream, tell: Sender<(Stream, String)>) {
    let Some(from) = from else { return };
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = vec![];
        while reader.read_until(b'\n', &mut line).is_ok_and(|it| it > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            if tell.send((stream, text)).is_err() {
                return;
            }
            line.clear();
        }
    });
}
