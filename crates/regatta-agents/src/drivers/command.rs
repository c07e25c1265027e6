//! The driver for any other program: the program gets a prompt and prints lines, and its exit code
//! tells whether it succeeded.
//!
//! The program gets only the first prompt of its session. Later prompts need a new attempt, because
//! a program that has read its input to the end accepts no more.

use regatta_core::agent_protocol::{AgentEvent, FailureClass};
use regatta_engine::ports::agents::{Exit, SessionInput};

use super::common::{TextTail, UsageTotal, early_exit_failure};
use super::{DriverSetup, PROMPT_PLACEHOLDER};
use crate::driver::{Driver, ExitAssessment, InputAction, JournalRecord, JournalStream};

pub(super) struct CommandDriver {
    /// True if the prompt is among the program's arguments, so that its standard input stays empty.
    has_prompt_argument: bool,
    has_started: bool,
    is_input_closed: bool,
    output: TextTail,
    errors: TextTail,
}

impl CommandDriver {
    pub(super) fn new(setup: &DriverSetup) -> CommandDriver {
        let argv = setup.runtime.argv().unwrap_or_default();
        let has_prompt_argument = argv
            .iter()
            .chain(&setup.profile.args)
            .any(|argument| argument.contains(PROMPT_PLACEHOLDER));
        CommandDriver {
            has_prompt_argument,
            has_started: false,
            is_input_closed: false,
            output: TextTail::for_answer(),
            errors: TextTail::default(),
        }
    }

    fn on_started(&mut self) -> Vec<AgentEvent> {
        if std::mem::replace(&mut self.has_started, true) {
            return vec![];
        }
        vec![
            AgentEvent::Started {
                session: None,
                model: None,
            },
            AgentEvent::TurnStarted { n: 0 },
        ]
    }
}

impl Driver for CommandDriver {
    fn on_record(&mut self, record: &JournalRecord) -> Vec<AgentEvent> {
        match record.stream {
            JournalStream::In => self.on_started(),
            JournalStream::InEnd => {
                self.is_input_closed = true;
                self.on_started() // the shim may have given the program the prompt itself
            }
            JournalStream::Out => {
                self.output.add_line(&record.line);
                vec![AgentEvent::Message {
                    text: format!("{}\n", record.line),
                }]
            }
            JournalStream::Err | JournalStream::Mark => self.errors.on_error_or_mark(record),
        }
    }

    fn next_input(&self, desired: &SessionInput) -> Option<InputAction> {
        if self.is_input_closed {
            return None;
        }
        if self.has_prompt_argument || self.has_started {
            return Some(InputAction::Close);
        }
        match desired.prompts.first() {
            Some(prompt) if !desired.should_hold_prompts => Some(InputAction::Line(prompt.clone())),
            _ if desired.should_close_input => Some(InputAction::Close),
            _ => None,
        }
    }

    fn assess_exit(&self, exit: &Exit) -> ExitAssessment {
        let usage_total = UsageTotal::default();
        match exit {
            Exit::Code(0) => usage_total.assessment(None, self.output.text()),
            _ => {
                let last_lines = if self.errors.text().is_empty() {
                    &self.output
                } else {
                    &self.errors
                };
                let failure = early_exit_failure(exit, last_lines, "before it had done its work");
                // Do not classify the failure by the printed text, because any program may print
                // text that looks like a provider's error.
                let class = if failure.class == FailureClass::BadConfig {
                    FailureClass::BadConfig
                } else {
                    FailureClass::Crashed
                };
                usage_total.assessment(Some(class), failure.detail)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::test_harness::{DriverHarness, setup};
    use regatta_core::agent::Runtime;

    fn command_harness(argv: &[&str]) -> DriverHarness {
        DriverHarness::new(setup(Runtime::Command {
            argv: argv.iter().map(|argv| (*argv).to_owned()).collect(),
        }))
    }

    #[test]
    fn prompt_is_sent_once_and_then_the_input_is_closed() {
        let mut harness = command_harness(&["cat"]);
        assert_eq!(harness.send_inputs(), vec![], "there is no prompt yet");
        harness.update_input(|input| {
            input.prompts = vec!["Do it.\nPlease.".to_owned(), "And more.".to_owned()]
        });
        assert_eq!(
            harness.send_inputs(),
            vec![
                InputAction::Line("Do it.\nPlease.".to_owned()),
                InputAction::Close
            ]
        );
        harness.output("Done.");
        harness.error_output("careful");
        assert!(harness.events.contains(&AgentEvent::TurnStarted { n: 0 }));
        assert!(harness.events.contains(&AgentEvent::Message {
            text: "Done.\n".to_owned()
        }));
        assert_eq!(
            (
                harness.assess_exit(&Exit::Code(0)).class,
                harness.assess_exit(&Exit::Code(0)).detail.as_str()
            ),
            (None, "Done.")
        );
        let failed = harness.assess_exit(&Exit::Code(3));
        assert_eq!(failed.class, Some(FailureClass::Crashed));
        assert!(
            failed.detail.contains("exit code 3") && failed.detail.contains("careful"),
            "{}",
            failed.detail
        );
        assert_eq!(
            harness.assess_exit(&Exit::Code(127)).class,
            Some(FailureClass::BadConfig)
        );
        harness.check_replay();
    }

    #[test]
    fn input_is_closed_if_the_prompt_is_an_argument() {
        let mut harness = command_harness(&["aider", "--message", "{prompt}"]);
        harness.update_input(|input| input.prompts = vec!["Do it.".to_owned()]);
        assert_eq!(harness.send_inputs(), vec![InputAction::Close]);
        assert!(harness.events.contains(&AgentEvent::TurnStarted { n: 0 }));
        harness.check_replay();
    }
}
