//! A program on a plain pipe, driven by its driver: no shim, no daemon.
//!
//! What was said and heard is kept as the shim would keep it, so that a second driver can be shown the journal and go
//! on, as after a restart of the daemon.

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

/// What is answered when the program asks.
#[derive(Clone, Debug)]
pub(crate) enum Policy {
    Allow,
    Deny,
}

/// Where and as whom a program runs.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) account: Account,
    pub(crate) home: PathBuf,
    pub(crate) mark: String,
    /// Its key: the variable and a value that means nothing.
    pub(crate) key: (&'static str, &'static str),
}

/// A program that runs, with its driver.
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
        let (program, args) = line.split_first().context("the driver gives no command line")?;
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
        let mut child = command.spawn().with_context(|| format!("{program} does not start"))?;
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

    /// Goes on until this holds; `false` when the time is up or the program has ended first.
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
            // What the model server saw may be waited for as well, so this looks up now and then.
            match self.incoming.recv_timeout(left.min(Duration::from_millis(100))) {
                Ok((stream, line)) => self.note(stream, line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.reap(left)?,
            }
        }
    }

    /// Says what the driver wants said.
    fn say(&mut self) -> anyhow::Result<()> {
        while let Some(say) = self.driver.next(&self.wishes) {
            match say {
                Say::Line(line) => {
                    if let Some(input) = &mut self.input {
                        // A program that has ended does not listen; its end says so.
                        let _heard = input.write_all(format!("{line}\n").as_bytes()).and_then(|()| input.flush());
                    }
                    self.note(Stream::In, line);
                }
                Say::Close => {
                    self.input = None;
                    self.note(Stream::InEnd, String::new());
                }
            }
            anyhow::ensure!(self.journal.len() < 100_000, "the driver never stops talking");
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

    /// Both outputs are closed: the program ends, or is about to.
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

    /// Takes a fresh driver and shows it the journal, as a daemon does that starts anew. Says how many records it saw.
    pub(crate) fn start_anew(&mut self) -> usize {
        self.driver = drivers::of(&self.setup);
        self.said = self.journal.iter().flat_map(|it| self.driver.saw(it)).collect();
        self.journal.len()
    }

    /// Ends the program at once and everything it started; gives the names of what outlived it.
    pub(crate) fn kill(&mut self) -> anyhow::Result<Vec<String>> {
        self.child.kill()?;
        self.child.wait()?;
        self.exit = Some(Exit::Signal(9));
        Ok(sweep(&self.stage.mark))
    }

    /// Wishes no more of it and waits for its end.
    pub(crate) fn finish(&mut self, patience: Duration) -> anyhow::Result<Judgement> {
        self.wishes.end = true;
        let ended = self.until(patience, |it| it.exit.is_some())?;
        anyhow::ensure!(ended || self.exit.is_some(), "it did not end within {patience:?} of being told to");
        self.judge()
    }

    /// What its end means.
    pub(crate) fn judge(&self) -> anyhow::Result<Judgement> {
        Ok(self.driver.judge(self.exit.as_ref().context("it has not ended")?))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.exit.is_some()
    }

    /// The native session, once it is open.
    pub(crate) fn session(&self) -> Option<String> {
        self.said.iter().find_map(|it| match it {
            Said::Started { session, .. } => session.clone(),
            _ => None,
        })
    }

    /// How many turns have ended.
    pub(crate) fn turns_ended(&self) -> usize {
        self.said.iter().filter(|it| matches!(it, Said::TurnEnded { .. })).count()
    }

    /// The journal as text, for a report of what went wrong.
    pub(crate) fn transcript(&self) -> String {
        let lines = self.journal.iter().map(|it| format!("{:>5} {:?} {}\n", it.n, it.stream, it.line));
        lines.collect()
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // Whatever a scenario left: nothing of it may run on.
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
