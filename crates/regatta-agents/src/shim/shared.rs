//! The state that the threads of a shim share: the queued input, the marks to write, and the
//! journal's progress.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::journal::Mark;
use crate::socket::Reply;

/// An input that waits to be sent to the program.
pub(super) enum Word {
    Line(String),
    /// The end of the input.
    End,
}

#[derive(Default)]
struct Input {
    /// The number of the last accepted input.
    accepted: u64,
    /// Set once no more input is accepted.
    closed: bool,
    queue: VecDeque<Word>,
    bytes: usize,
}

/// The number of marks that may wait to be written. Their authors count those that do not fit.
const MOST_MARKS: usize = 64;

pub(super) struct Shared {
    input: Mutex<Input>,
    /// Marks of other threads that the journal writer has to record.
    marks: Mutex<Vec<Mark>>,
    /// The number of bytes that may wait for the program to read them.
    most: usize,
    /// The number of the last record that readers can see.
    written: AtomicU64,
    /// Set while a daemon waits for the journal to grow.
    awaited: AtomicBool,
    /// Set once the program has ended. Other processes of its tree may be left.
    program_ended: AtomicBool,
    /// Set once no process of the tree is left.
    finishing: AtomicBool,
    /// Wakes the journal writer.
    pub(super) scribe: Bell,
    /// Wakes the thread that receives commands and ends processes.
    pub(super) porter: Bell,
}

impl Shared {
    pub(super) fn new(most: usize, input_closed: bool) -> io::Result<Shared> {
        let input = Input { closed: input_closed, accepted: u64::from(input_closed), ..Input::default() };
        Ok(Shared {
            input: Mutex::new(input),
            marks: Mutex::default(),
            most,
            written: AtomicU64::new(0),
            awaited: AtomicBool::new(false),
            program_ended: AtomicBool::new(false),
            finishing: AtomicBool::new(false),
            scribe: Bell::new()?,
            porter: Bell::new()?,
        })
    }

    fn input(&self) -> MutexGuard<'_, Input> {
        // No thread panics while it holds the lock, and the state is consistent after every step.
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an input for the program, unless its number was accepted before.
    pub(super) fn accept(&self, k: u64, word: Word) -> Reply {
        let mut input = self.input();
        let length = match &word {
            Word::Line(line) => line.len(),
            Word::End => 0,
        };
        if k <= input.accepted {
            return Reply::Ok;
        }
        if input.closed {
            return Reply::Closed;
        }
        if k != input.accepted + 1 {
            return Reply::Refused { why: format!("input {k} does not follow input {}", input.accepted) };
        }
        if matches!(&word, Word::Line(line) if line.contains('\n')) {
            return Reply::Refused { why: "the line contains a newline".to_owned() };
        }
        if length > self.most {
            return Reply::Refused {
                why: format!("the line has {length} bytes, more than the limit of {}", self.most),
            };
        }
        if input.bytes + length > self.most {
            return Reply::Busy;
        }
        input.accepted = k;
        input.closed = matches!(word, Word::End);
        input.bytes += length;
        input.queue.push_back(word);
        drop(input);
        self.scribe.ring();
        Reply::Ok
    }

    /// Returns the next input to send. Its bytes count as waiting until [`Shared::said`].
    pub(super) fn next_word(&self) -> Option<Word> {
        self.input().queue.pop_front()
    }

    pub(super) fn has_words(&self) -> bool {
        !self.input().queue.is_empty()
    }

    /// Frees the bytes of an input that was sent completely.
    pub(super) fn said(&self, bytes: usize) {
        let mut input = self.input();
        input.bytes = input.bytes.saturating_sub(bytes);
        if input.queue.is_empty() {
            input.queue = VecDeque::new();
        }
    }

    /// Accepts no more input, and returns the number of queued lines that will never be sent.
    pub(super) fn close(&self) -> u64 {
        let mut input = self.input();
        input.closed = true;
        let lines = input.queue.iter().filter(|it| matches!(it, Word::Line(_))).count();
        input.queue = VecDeque::new();
        lines as u64
    }

    /// Passes a mark to the journal writer. When too many marks wait, the mark is dropped.
    pub(super) fn mark(&self, mark: Mark) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.len() < MOST_MARKS {
            marks.push(mark);
        }
        drop(marks);
        self.scribe.ring();
    }

    pub(super) fn take_marks(&self) -> Vec<Mark> {
        std::mem::take(&mut *self.marks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes the number of the last visible record, and wakes the control thread if a daemon
    /// waits for it.
    pub(super) fn grew(&self, n: u64) {
        if self.written.swap(n, Ordering::SeqCst) != n && self.awaited.swap(false, Ordering::SeqCst) {
            self.porter.ring();
        }
    }

    /// Returns the number of the last visible record, and requests a wake-up when it changes.
    pub(super) fn await_growth(&self) -> u64 {
        self.awaited.store(true, Ordering::SeqCst);
        self.written.load(Ordering::SeqCst)
    }

    pub(super) fn program_has_ended(&self) {
        self.program_ended.store(true, Ordering::SeqCst);
        self.porter.ring();
    }

    pub(super) fn has_program_ended(&self) -> bool {
        self.program_ended.load(Ordering::SeqCst)
    }

    pub(super) fn finish(&self) {
        self.finishing.store(true, Ordering::SeqCst);
        self.scribe.ring();
    }

    pub(super) fn is_finishing(&self) -> bool {
        self.finishing.load(Ordering::SeqCst)
    }
}

/// An eventfd that wakes a polling thread.
pub(crate) struct Bell(pub(crate) OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        // The write fails only when the bell is ringing already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Word {
        Word::Line(text.to_owned())
    }

    #[test]
    fn input_is_accepted_once_and_in_order() {
        let shared = Shared::new(10, false).unwrap();
        assert_eq!(shared.accept(1, line("one")), Reply::Ok);
        assert_eq!(shared.accept(1, line("one")), Reply::Ok, "the same input again");
        assert!(matches!(shared.accept(3, line("three")), Reply::Refused { .. }));
        assert!(matches!(shared.accept(2, line("a\nb")), Reply::Refused { .. }));
        assert!(matches!(shared.accept(2, line("eleven bytes")), Reply::Refused { .. }));
        assert_eq!(shared.accept(2, line("eightbyt")), Reply::Busy);
        assert!(matches!(shared.next_word(), Some(Word::Line(it)) if it == "one"));
        shared.said(3);
        assert_eq!(shared.accept(2, line("eightbyt")), Reply::Ok);
        assert_eq!(shared.accept(3, Word::End), Reply::Ok);
        assert_eq!(shared.accept(4, line("x")), Reply::Closed);
        assert_eq!(shared.accept(3, Word::End), Reply::Ok);
        assert_eq!(shared.close(), 1, "one line was not written yet");
        assert!(shared.next_word().is_none());
    }
}
