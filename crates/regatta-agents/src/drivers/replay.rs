//! What the drivers' tests share: a setup, a conversation that is written down as the shim would, and the law that
//! holds for every driver.

use regatta_core::agent::{Profile, Runtime};
use regatta_core::session::Said;
use regatta_engine::ports::agents::{Exit, Wishes};

use super::{Setup, of};
use crate::driver::{Driver, Judgement, Record, Say, Stream};

pub(super) fn setup(runtime: Runtime) -> Setup {
    Setup {
        runtime,
        profile: Profile::default(),
        workspace: "/workspace".into(),
        resume: None,
        used: Default::default(),
        mcp_url: None,
        regatta: None,
        seed: "A1".to_owned(),
        sandboxed_root: false,
    }
}

/// A driver, what is wished of it, and the journal so far.
pub(super) struct Stage {
    pub(super) setup: Setup,
    pub(super) driver: Box<dyn Driver>,
    pub(super) wishes: Wishes,
    pub(super) journal: Vec<Record>,
    pub(super) said: Vec<Said>,
    /// What was wished when that many records were written.
    wished: Vec<(usize, Wishes)>,
}

impl Stage {
    pub(super) fn new(setup: Setup) -> Stage {
        let driver = of(&setup);
        Stage { setup, driver, wishes: Wishes::default(), journal: vec![], said: vec![], wished: vec![] }
    }

    pub(super) fn wish(&mut self, change: impl FnOnce(&mut Wishes)) {
        change(&mut self.wishes);
        self.wished.push((self.journal.len(), self.wishes.clone()));
    }

    fn record(&mut self, stream: Stream, line: &str) -> Vec<Said> {
        let n = self.journal.len() as u64 + 1;
        let record = Record { n, at: 1_763_200_000_000 + n, stream, line: line.to_owned() };
        self.journal.push(record.clone());
        let said = self.driver.saw(&record);
        self.said.extend(said.clone());
        said
    }

    /// The program prints a line.
    pub(super) fn out(&mut self, line: impl ToString) -> Vec<Said> {
        self.record(Stream::Out, &line.to_string())
    }

    pub(super) fn err(&mut self, line: &str) -> Vec<Said> {
        self.record(Stream::Err, line)
    }

    /// Says what the driver wants said, until it wants nothing; what was said.
    pub(super) fn say(&mut self) -> Vec<Say> {
        let mut all = Vec::new();
        while let Some(say) = self.driver.next(&self.wishes) {
            assert!(all.len() < 50, "the driver never stops talking: {all:?}");
            match &say {
                // The shim writes down what was said with secrets taken out.
                Say::Line(line) => drop(self.record(Stream::In, &line.replace("secret", "[redacted]"))),
                Say::Close => drop(self.record(Stream::InEnd, "")),
            }
            all.push(say);
        }
        all
    }

    /// Says all and gives the lines as JSON; fails if the input was closed.
    pub(super) fn lines(&mut self) -> Vec<serde_json::Value> {
        let json = |it: Say| match it {
            Say::Line(line) => serde_json::from_str(&line).expect("it speaks JSON"),
            Say::Close => panic!("it closed the input"),
        };
        self.say().into_iter().map(json).collect()
    }

    pub(super) fn judge(&self, exit: &Exit) -> Judgement {
        self.driver.judge(exit)
    }

    /// The law: a fresh driver that is shown the first part of a journal wants to say just what the one that lived
    /// through it wanted, hears the same afterwards, and judges the end the same way. Wherever the journal is cut.
    pub(super) fn check_replay(&self) {
        let mut lived = of(&self.setup);
        for cut in 0..=self.journal.len() {
            if let Some(last) = cut.checked_sub(1) {
                lived.saw(&self.journal[last]);
            }
            let mut fresh = of(&self.setup);
            self.journal[..cut].iter().for_each(|it| drop(fresh.saw(it)));
            for (_, wishes) in &self.wished {
                let (a, b) = (lived.next(wishes), fresh.next(wishes));
                assert_eq!(a, b, "after {cut} records");
                assert_eq!(a, lived.next(wishes), "asking changed something after {cut} records");
            }
            for exit in [Exit::Code(0), Exit::Code(1), Exit::Signal(9), Exit::Lost] {
                assert_eq!(lived.judge(&exit), fresh.judge(&exit), "after {cut} records");
            }
            let rest: Vec<Said> = self.journal[cut..].iter().flat_map(|it| fresh.saw(it)).collect();
            assert!(self.said.ends_with(&rest), "what is heard after {cut} records differs");
        }
        // No two requests of ours share an id, whatever the protocol calls it.
        let mut ids = Vec::new();
        for line in self.journal.iter().filter(|it| it.stream == Stream::In) {
            let Ok(said) = serde_json::from_str::<serde_json::Value>(&line.line) else { continue };
            let id = if said["method"].is_string() { &said["id"] } else { &said["request_id"] };
            if !id.is_null() {
                assert!(!ids.contains(id), "{id} is used twice");
                ids.push(id.clone());
            }
        }
        // What was said in life is what a driver wants to say at that place: nothing is said twice or out of turn.
        let mut fresh = of(&self.setup);
        for (place, record) in self.journal.iter().enumerate() {
            let wishes = self.wished.iter().rev().find(|it| it.0 <= place).map(|it| it.1.clone()).unwrap_or_default();
            let wants = fresh.next(&wishes);
            match (record.stream, wants) {
                (Stream::In, Some(Say::Line(line))) => assert_eq!(line.replace("secret", "[redacted]"), record.line),
                (Stream::InEnd, Some(Say::Close)) | (Stream::Out | Stream::Err | Stream::Mark, _) => {}
                (stream, wants) => panic!("record {place} is {stream:?}, but the driver wants {wants:?}"),
            }
            fresh.saw(record);
        }
    }
}
