//! Helpers for the drivers' tests: a setup, a conversation with a journal as a shim writes it, and
//! a check that holds for every driver.

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

/// A driver with its requested session input and the journal so far.
pub(super) struct Stage {
    pub(super) setup: Setup,
    pub(super) driver: Box<dyn Driver>,
    pub(super) wishes: Wishes,
    pub(super) journal: Vec<Record>,
    pub(super) said: Vec<Said>,
    /// The requested session input at each number of records.
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

    /// Records a line of the program's output.
    pub(super) fn out(&mut self, line: impl ToString) -> Vec<Said> {
        self.record(Stream::Out, &line.to_string())
    }

    /// Records a line of the program's standard error.
    pub(super) fn err(&mut self, line: &str) -> Vec<Said> {
        self.record(Stream::Err, line)
    }

    /// Sends the driver's inputs until it has none, and returns them.
    pub(super) fn say(&mut self) -> Vec<Say> {
        let mut all = Vec::new();
        while let Some(say) = self.driver.next(&self.wishes) {
            assert!(all.len() < 50, "the driver never stops sending: {all:?}");
            match &say {
                // The shim records input with its secrets redacted.
                Say::Line(line) => drop(self.record(Stream::In, &line.replace("secret", "[redacted]"))),
                Say::Close => drop(self.record(Stream::InEnd, "")),
            }
            all.push(say);
        }
        all
    }

    /// Sends all inputs and returns the lines as JSON. Panics if the driver closes the input.
    pub(super) fn lines(&mut self) -> Vec<serde_json::Value> {
        let json = |it: Say| match it {
            Say::Line(line) => serde_json::from_str(&line).expect("the line is JSON"),
            Say::Close => panic!("the driver closed the input"),
        };
        self.say().into_iter().map(json).collect()
    }

    pub(super) fn judge(&self, exit: &Exit) -> Judgement {
        self.driver.judge(exit)
    }

    /// Checks that a new driver that replays the first part of a journal behaves like the driver
    /// that wrote the journal. Both send the same input, report the same events afterwards and
    /// judge the end in the same way. The check cuts the journal at every position.
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
            assert!(self.said.ends_with(&rest), "the events after {cut} records differ");
        }
        // No two requests of the driver share an id, under any name of the protocol.
        let mut ids = Vec::new();
        for line in self.journal.iter().filter(|it| it.stream == Stream::In) {
            let Ok(said) = serde_json::from_str::<serde_json::Value>(&line.line) else { continue };
            let id = if said["method"].is_string() { &said["id"] } else { &said["request_id"] };
            if !id.is_null() {
                assert!(!ids.contains(id), "{id} is used twice");
                ids.push(id.clone());
            }
        }
        // At the position of each recorded input, a driver wants to send exactly this input.
        // Nothing is sent twice or out of order.
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
