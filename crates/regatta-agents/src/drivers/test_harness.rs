//! Helpers for the drivers' tests: a driver setup, a conversation that records a journal as the
//! shim (supervisor process) does, and a check that every driver must pass.

use regatta_core::agent::{Profile, Runtime};
use regatta_core::agent_protocol::AgentEvent;
use regatta_engine::ports::agents::{Exit, SessionInput};

use super::{DriverSetup, new_driver};
use crate::driver::{Driver, ExitAssessment, InputAction, JournalRecord, JournalStream};

pub(super) fn setup(runtime: Runtime) -> DriverSetup {
    DriverSetup {
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

/// Simulates the program and the supervisor process for a driver under test, and records the
/// journal.
pub(super) struct DriverHarness {
    pub(super) setup: DriverSetup,
    pub(super) driver: Box<dyn Driver>,
    pub(super) input: SessionInput,
    pub(super) journal: Vec<JournalRecord>,
    pub(super) events: Vec<AgentEvent>,
    /// Each change of the requested session input, with the number of journal records at that time.
    input_history: Vec<(usize, SessionInput)>,
}

impl DriverHarness {
    pub(super) fn new(setup: DriverSetup) -> DriverHarness {
        let driver = new_driver(&setup);
        DriverHarness {
            setup,
            driver,
            input: SessionInput::default(),
            journal: vec![],
            events: vec![],
            input_history: vec![],
        }
    }

    pub(super) fn update_input(&mut self, change: impl FnOnce(&mut SessionInput)) {
        change(&mut self.input);
        self.input_history
            .push((self.journal.len(), self.input.clone()));
    }

    fn record(&mut self, stream: JournalStream, line: &str) -> Vec<AgentEvent> {
        let position = self.journal.len() as u64 + 1;
        let record = JournalRecord {
            position,
            written_unix_ms: 1_763_200_000_000 + position,
            stream,
            line: line.to_owned(),
        };
        self.journal.push(record.clone());
        let events = self.driver.on_record(&record);
        self.events.extend(events.clone());
        events
    }

    /// Gives the driver a line as if the program had printed it on standard output, and returns the
    /// driver's events.
    pub(super) fn output(&mut self, line: impl ToString) -> Vec<AgentEvent> {
        self.record(JournalStream::Out, &line.to_string())
    }

    /// Gives the driver a line as if the program had printed it on standard error, and returns the
    /// driver's events.
    pub(super) fn error_output(&mut self, line: &str) -> Vec<AgentEvent> {
        self.record(JournalStream::Err, line)
    }

    /// Asks the driver for inputs until the driver has no more, records the inputs as sent, and
    /// returns them.
    pub(super) fn send_inputs(&mut self) -> Vec<InputAction> {
        let mut sent = Vec::new();
        while let Some(action) = self.driver.next_input(&self.input) {
            assert!(sent.len() < 50, "the driver never stops sending: {sent:?}");
            match &action {
                // Redact the word "secret", as the supervisor process redacts secrets in the
                // recorded input.
                InputAction::Line(line) => {
                    drop(self.record(JournalStream::In, &line.replace("secret", "[redacted]")))
                }
                InputAction::Close => drop(self.record(JournalStream::InEnd, "")),
            }
            sent.push(action);
        }
        sent
    }

    /// Like [`DriverHarness::send_inputs`], but returns the lines as JSON. Panics if the driver
    /// closes the input.
    pub(super) fn send_lines(&mut self) -> Vec<serde_json::Value> {
        let json = |input_action: InputAction| match input_action {
            InputAction::Line(line) => serde_json::from_str(&line).expect("the line is JSON"),
            InputAction::Close => panic!("the driver closed the input"),
        };
        self.send_inputs().into_iter().map(json).collect()
    }

    pub(super) fn assess_exit(&self, exit: &Exit) -> ExitAssessment {
        self.driver.assess_exit(exit)
    }

    /// Checks that a new driver can continue after a restart at any position of the journal. The
    /// new driver first replays the journal up to that position. Then it must send the same input,
    /// report the same events and judge the end in the same way as the first driver.
    pub(super) fn check_replay(&self) {
        let mut original = new_driver(&self.setup);
        for cut in 0..=self.journal.len() {
            if let Some(last) = cut.checked_sub(1) {
                original.on_record(&self.journal[last]);
            }
            let mut fresh = new_driver(&self.setup);
            self.journal[..cut]
                .iter()
                .for_each(|record| drop(fresh.on_record(record)));
            for (_, desired) in &self.input_history {
                let (from_original, from_fresh) =
                    (original.next_input(desired), fresh.next_input(desired));
                assert_eq!(from_original, from_fresh, "after {cut} records");
                assert_eq!(
                    from_original,
                    original.next_input(desired),
                    "asking changed something after {cut} records"
                );
            }
            for exit in [Exit::Code(0), Exit::Code(1), Exit::Signal(9), Exit::Lost] {
                assert_eq!(
                    original.assess_exit(&exit),
                    fresh.assess_exit(&exit),
                    "after {cut} records"
                );
            }
            let rest: Vec<AgentEvent> = self.journal[cut..]
                .iter()
                .flat_map(|record| fresh.on_record(record))
                .collect();
            assert!(
                self.events.ends_with(&rest),
                "the events after {cut} records differ"
            );
        }
        // Check that all requests of the driver have different ids, whichever field of the protocol
        // holds the id.
        let mut ids = Vec::new();
        for record in self
            .journal
            .iter()
            .filter(|record| record.stream == JournalStream::In)
        {
            let Ok(message) = serde_json::from_str::<serde_json::Value>(&record.line) else {
                continue;
            };
            let id = if message["method"].is_string() {
                &message["id"]
            } else {
                &message["request_id"]
            };
            if !id.is_null() {
                assert!(!ids.contains(id), "{id} is used twice");
                ids.push(id.clone());
            }
        }
        // Check that nothing is sent twice or out of order. Replay the journal to a new driver. At
        // each recorded line that was sent to the program, the new driver must send the same line.
        let mut fresh = new_driver(&self.setup);
        for (index, record) in self.journal.iter().enumerate() {
            let desired = self
                .input_history
                .iter()
                .rev()
                .find(|(records, _)| *records <= index)
                .map(|(_, input)| input.clone())
                .unwrap_or_default();
            let next = fresh.next_input(&desired);
            match (record.stream, next) {
                (JournalStream::In, Some(InputAction::Line(line))) => {
                    assert_eq!(line.replace("secret", "[redacted]"), record.line)
                }
                (JournalStream::InEnd, Some(InputAction::Close))
                | (JournalStream::Out | JournalStream::Err | JournalStream::Mark, _) => {}
                (stream, next) => {
                    panic!("record {index} is {stream:?}, but the driver wants {next:?}")
                }
            }
            fresh.on_record(record);
        }
    }
}
