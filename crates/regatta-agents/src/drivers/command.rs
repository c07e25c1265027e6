//! The driver for any program: it gets a prompt and prints lines, and its exit code is the result.
//!
//! It gets only the first prompt. Later prompts need a new attempt, because a program that has read
//! its input to the end accepts no more.

use regatta_core::session::{Class, Said};
use regatta_engine::ports::agents::{Exit, Wishes};

use super::common::{Ledger, Tail, broke_off};
use super::{PROMPT, Setup};
use crate::driver::{Driver, Judgement, Record, Say, Stream};

pub(super) struct AnyProgram {
    /// Set if the prompt is among the arguments, so that the input is empty.
    by_argument: bool,
    said: bool,
    closed: bool,
    output: Tail,
    errors: Tail,
}

impl AnyProgram {
    pub(super) fn new(setup: &Setup) -> AnyProgram {
        let argv = setup.runtime.argv().unwrap_or_default();
        let by_argument = argv.iter().chain(&setup.profile.args).any(|it| it.contains(PROMPT));
        AnyProgram { by_argument, said: false, closed: false, output: Tail::of_answer(), errors: Tail::default() }
    }

    fn started(&mut self) -> Vec<Said> {
        if std::mem::replace(&mut self.said, true) {
            return vec![];
        }
        vec![Said::Started { session: None, model: None }, Said::TurnStarted { n: 0 }]
    }
}

impl Driver for AnyProgram {
    fn saw(&mut self, record: &Record) -> Vec<Said> {
        match record.stream {
            Stream::In => self.started(),
            Stream::InEnd => {
                self.closed = true;
                self.started() // the shim may have given the program the prompt itself
            }
            Stream::Out => {
                self.output.add_line(&record.line);
                vec![Said::Message { text: format!("{}\n", record.line) }]
            }
            Stream::Err | Stream::Mark => self.errors.aside(record),
        }
    }

    fn next(&self, wishes: &Wishes) -> Option<Say> {
        if self.closed {
            return None;
        }
        if self.by_argument || self.said {
            return Some(Say::Close);
        }
        match wishes.prompts.first() {
            Some(prompt) if !wishes.hold => Some(Say::Line(prompt.clone())),
            _ if wishes.end => Some(Say::Close),
            _ => None,
        }
    }

    fn judge(&self, exit: &Exit) -> Judgement {
        let books = Ledger::default();
        match exit {
            Exit::Code(0) => books.judged(None, self.output.text()),
            _ => {
                let words = if self.errors.text().is_empty() { &self.output } else { &self.errors };
                let trouble = broke_off(exit, words, "before it had done its work");
                // Any program may print text that looks like a provider's error, so such text
                // proves nothing here.
                let class = if trouble.class == Class::BadConfig { Class::BadConfig } else { Class::Crashed };
                books.judged(Some(class), trouble.detail)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::replay::{Stage, setup};
    use regatta_core::agent::Runtime;

    fn stage(argv: &[&str]) -> Stage {
        Stage::new(setup(Runtime::Command { argv: argv.iter().map(|it| (*it).to_owned()).collect() }))
    }

    #[test]
    fn prompt_is_sent_once_and_then_the_input_is_closed() {
        let mut stage = stage(&["cat"]);
        assert_eq!(stage.say(), vec![], "there is no prompt yet");
        stage.wish(|it| it.prompts = vec!["Do it.\nPlease.".to_owned(), "And more.".to_owned()]);
        assert_eq!(stage.say(), vec![Say::Line("Do it.\nPlease.".to_owned()), Say::Close]);
        stage.out("Done.");
        stage.err("careful");
        assert!(stage.said.contains(&Said::TurnStarted { n: 0 }));
        assert!(stage.said.contains(&Said::Message { text: "Done.\n".to_owned() }));
        assert_eq!((stage.judge(&Exit::Code(0)).class, stage.judge(&Exit::Code(0)).detail.as_str()), (None, "Done."));
        let failed = stage.judge(&Exit::Code(3));
        assert_eq!(failed.class, Some(Class::Crashed));
        assert!(failed.detail.contains("exit code 3") && failed.detail.contains("careful"), "{}", failed.detail);
        assert_eq!(stage.judge(&Exit::Code(127)).class, Some(Class::BadConfig));
        stage.check_replay();
    }

    #[test]
    fn input_is_closed_if_the_prompt_is_an_argument() {
        let mut stage = stage(&["aider", "--message", "{prompt}"]);
        stage.wish(|it| it.prompts = vec!["Do it.".to_owned()]);
        assert_eq!(stage.say(), vec![Say::Close]);
        assert!(stage.said.contains(&Said::TurnStarted { n: 0 }));
        stage.check_replay();
    }
}
