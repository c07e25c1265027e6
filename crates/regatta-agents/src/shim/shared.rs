//! What the threads of a shim share: what is to be said to the program, and how far the journal is.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::journal::Mark;
use crate::socket::Reply;

/// A word that waits to be said.
pub(super) enum Word {
    Line(String),
    /// The end of the input.
    End,
}

#[derive(Default)]
struct Input {
    /// The ordinal of the last word that was accepted.
    accepted: u64,
    /// Nothing more is accepted.
    closed: bool,
    queue: VecDeque<Word>,
    bytes: usize,
}

/// How many marks may wait to be written; their author counts what it could not tell.
const MOST_MARKS: usize = 64;

pub(super) struct Shared {
    input: Mutex<Input>,
    /// What other threads have to put down.
    marks: Mutex<Vec<Mark>>,
    /// How many bytes may wait for the program to read them.
    most: usize,
    /// The place of the last record that readers can see.
    written: AtomicU64,
    /// Somebody waits for the journal to grow.
    awaited: AtomicBool,
    /// The program has ended; others of its tree may be left.
    program_ended: AtomicBool,
    /// Nobody of the tree is left.
    finishing: AtomicBool,
    /// Wakes the thread that writes.
    pub(super) scribe: Bell,
    /// Wakes the thread that listens and ends.
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
        // No thread panics while it holds this; and what is there is whole after any step.
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a word to be said, unless it was taken before.
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
            return Reply::Refused { why: format!("{k} does not follow on {}", input.accepted) };
        }
        if matches!(&word, Word::Line(line) if line.contains('\n')) {
            return Reply::Refused { why: "a line holds no newline".to_owned() };
        }
        if length > self.most {
            return Reply::Refused { why: format!("{length} bytes are more than a line may have ({})", self.most) };
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

    /// The next word to say. Its bytes count as waiting until [`Shared::said`].
    pub(super) fn next_word(&self) -> Option<Word> {
        self.input().queue.pop_front()
    }

    pub(super) fn has_words(&self) -> bool {
        !self.input().queue.is_empty()
    }

    pub(super) fn said(&self, bytes: usize) {
        let mut input = self.input();
        input.bytes = input.bytes.saturating_sub(bytes);
        if input.queue.is_empty() {
            input.queue = VecDeque::new();
        }
    }

    /// Takes nothing more; returns how many lines will never be said.
    pub(super) fn close(&self) -> u64 {
        let mut input = self.input();
        input.closed = true;
        let lines = input.queue.iter().filter(|it| matches!(it, Word::Line(_))).count();
        input.queue = VecDeque::new();
        lines as u64
    }

    /// Has the scribe put this down. A flood of them is cut: they are told one by one only as fast as they are written.
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

    /// Tells whoever waits that the journal has come this far.
    pub(super) fn grew(&self, n: u64) {
        if self.written.swap(n, Ordering::SeqCst) != n && self.awaited.swap(false, Ordering::SeqCst) {
            self.porter.ring();
        }
    }

    /// How far the journal is, and a promise to ring when it has gone further.
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

/// Wakes a thread that polls.
pub(crate) struct Bell(pub(crate) OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        // It fails only when it rings already.
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
    fn a_word_is_taken_once_and_in_its_turn() {
        let shared = Shared::new(10, false).unwrap();
        assert_eq!(shared.accept(1, line("one")), Reply::Ok);
        assert_eq!(shared.accept(1, line("one")), Reply::Ok, "said again");
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
        assert_eq!(shared.close(), 1, "a line was never said");
        assert!(shared.next_word().is_none());
    }
}
