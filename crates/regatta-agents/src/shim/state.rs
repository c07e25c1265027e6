//! The state that the threads of a shim (supervisor process) share. It holds the queued input for
//! the program, the remarks (marks) that the shim itself adds to the journal, and the journal's
//! progress.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::journal::JournalMark;
use crate::shim_protocol::ShimReply;

/// An entry in the queue of input for the program.
pub(super) enum ProgramInput {
    Line(String),
    /// The end of the program's input. The journal writer then closes the pipe.
    End,
}

#[derive(Default)]
struct InputQueue {
    /// The number of the last input that was accepted into the queue.
    last_accepted: u64,
    /// True once the queue accepts no more input.
    is_closed: bool,
    queue: VecDeque<ProgramInput>,
    queued_bytes: usize,
}

/// The maximum number of marks (remarks) that are queued for the journal. Further marks are
/// dropped. The sender of a dropped mark keeps counting, so its next mark includes the dropped
/// count.
const MAX_QUEUED_MARKS: usize = 64;

pub(super) struct ShimState {
    input: Mutex<InputQueue>,
    /// Marks (remarks) that other threads want the journal writer to record.
    marks: Mutex<Vec<JournalMark>>,
    /// The number of bytes of input that may be queued for the program.
    max_input_bytes: usize,
    /// The number of the last journal record that readers can see.
    last_visible_record: AtomicU64,
    /// True while a daemon waits for new records in the journal.
    is_growth_awaited: AtomicBool,
    /// True once the program itself has ended. Processes that it started may still run.
    program_ended: AtomicBool,
    /// True once all of the program's processes have ended, so that the journal can be completed.
    finishing: AtomicBool,
    /// Wakes the thread that writes the journal.
    pub(super) journal_wakeup: WakeupFd,
    /// Wakes the thread that receives commands and ends processes.
    pub(super) control_wakeup: WakeupFd,
}

impl ShimState {
    pub(super) fn new(max_input_bytes: usize, is_input_closed: bool) -> io::Result<ShimState> {
        let input = InputQueue {
            is_closed: is_input_closed,
            last_accepted: u64::from(is_input_closed),
            ..InputQueue::default()
        };
        Ok(ShimState {
            input: Mutex::new(input),
            marks: Mutex::default(),
            max_input_bytes,
            last_visible_record: AtomicU64::new(0),
            is_growth_awaited: AtomicBool::new(false),
            program_ended: AtomicBool::new(false),
            finishing: AtomicBool::new(false),
            journal_wakeup: WakeupFd::new()?,
            control_wakeup: WakeupFd::new()?,
        })
    }

    fn input(&self) -> MutexGuard<'_, InputQueue> {
        // Ignore a poisoned lock, because no thread panics while it holds the lock, and the state
        // is consistent after every step.
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an input for the program. Does nothing if an input with this number was accepted
    /// before.
    pub(super) fn accept_input(&self, number: u64, program_input: ProgramInput) -> ShimReply {
        let mut input = self.input();
        let length = match &program_input {
            ProgramInput::Line(line) => line.len(),
            ProgramInput::End => 0,
        };
        if number <= input.last_accepted {
            return ShimReply::Ok;
        }
        if input.is_closed {
            return ShimReply::Closed;
        }
        if number != input.last_accepted + 1 {
            return ShimReply::Refused {
                why: format!(
                    "input {number} does not follow input {}",
                    input.last_accepted
                ),
            };
        }
        if matches!(&program_input, ProgramInput::Line(line) if line.contains('\n')) {
            return ShimReply::Refused {
                why: "the line contains a newline".to_owned(),
            };
        }
        if length > self.max_input_bytes {
            return ShimReply::Refused {
                why: format!(
                    "the line has {length} bytes, more than the limit of {}",
                    self.max_input_bytes
                ),
            };
        }
        if input.queued_bytes + length > self.max_input_bytes {
            return ShimReply::Busy;
        }
        input.last_accepted = number;
        input.is_closed = matches!(program_input, ProgramInput::End);
        input.queued_bytes += length;
        input.queue.push_back(program_input);
        drop(input);
        self.journal_wakeup.wake();
        ShimReply::Ok
    }

    /// Returns the next input to send to the program. The bytes of this input count as queued until
    /// [`ShimState::on_input_sent`] is called.
    pub(super) fn next_input(&self) -> Option<ProgramInput> {
        self.input().queue.pop_front()
    }

    pub(super) fn has_input(&self) -> bool {
        !self.input().queue.is_empty()
    }

    /// Subtracts the bytes of an input that was sent completely from the queued bytes.
    pub(super) fn on_input_sent(&self, bytes: usize) {
        let mut input = self.input();
        input.queued_bytes = input.queued_bytes.saturating_sub(bytes);
        if input.queue.is_empty() {
            input.queue = VecDeque::new();
        }
    }

    /// Closes the queue of input, and returns how many queued lines will never be sent.
    pub(super) fn close_input(&self) -> u64 {
        let mut input = self.input();
        input.is_closed = true;
        let lines = input
            .queue
            .iter()
            .filter(|program_input| matches!(program_input, ProgramInput::Line(_)))
            .count();
        input.queue = VecDeque::new();
        lines as u64
    }

    /// Queues a mark for the journal writer. Drops the mark if too many are queued.
    pub(super) fn queue_mark(&self, mark: JournalMark) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.len() < MAX_QUEUED_MARKS {
            marks.push(mark);
        }
        drop(marks);
        self.journal_wakeup.wake();
    }

    pub(super) fn take_marks(&self) -> Vec<JournalMark> {
        std::mem::take(&mut *self.marks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores the number of the last record that readers can see. Wakes the control thread, which
    /// talks to the daemons, if a daemon waits for new records.
    pub(super) fn on_journal_grown(&self, last_record: u64) {
        if self.last_visible_record.swap(last_record, Ordering::SeqCst) != last_record
            && self.is_growth_awaited.swap(false, Ordering::SeqCst)
        {
            self.control_wakeup.wake();
        }
    }

    /// Returns the number of the last record that readers can see. Asks to wake the control thread,
    /// which talks to the daemons, when that number changes.
    pub(super) fn await_growth(&self) -> u64 {
        self.is_growth_awaited.store(true, Ordering::SeqCst);
        self.last_visible_record.load(Ordering::SeqCst)
    }

    pub(super) fn set_program_ended(&self) {
        self.program_ended.store(true, Ordering::SeqCst);
        self.control_wakeup.wake();
    }

    pub(super) fn has_program_ended(&self) -> bool {
        self.program_ended.load(Ordering::SeqCst)
    }

    pub(super) fn set_finishing(&self) {
        self.finishing.store(true, Ordering::SeqCst);
        self.journal_wakeup.wake();
    }

    pub(super) fn is_finishing(&self) -> bool {
        self.finishing.load(Ordering::SeqCst)
    }
}

/// An eventfd (a file descriptor for events) that wakes a thread which polls it.
pub(crate) struct WakeupFd(pub(crate) OwnedFd);

impl WakeupFd {
    pub(crate) fn new() -> io::Result<WakeupFd> {
        Ok(WakeupFd(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    pub(crate) fn wake(&self) {
        // Ignore an error, because the write fails only when a wake-up is already pending.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> ProgramInput {
        ProgramInput::Line(text.to_owned())
    }

    #[test]
    fn input_is_accepted_once_and_in_order() {
        let shared = ShimState::new(10, false).unwrap();
        assert_eq!(shared.accept_input(1, line("one")), ShimReply::Ok);
        assert_eq!(
            shared.accept_input(1, line("one")),
            ShimReply::Ok,
            "the same input again"
        );
        assert!(matches!(
            shared.accept_input(3, line("three")),
            ShimReply::Refused { .. }
        ));
        assert!(matches!(
            shared.accept_input(2, line("a\nb")),
            ShimReply::Refused { .. }
        ));
        assert!(matches!(
            shared.accept_input(2, line("eleven bytes")),
            ShimReply::Refused { .. }
        ));
        assert_eq!(shared.accept_input(2, line("eightbyt")), ShimReply::Busy);
        assert!(matches!(shared.next_input(), Some(ProgramInput::Line(s)) if s == "one"));
        shared.on_input_sent(3);
        assert_eq!(shared.accept_input(2, line("eightbyt")), ShimReply::Ok);
        assert_eq!(shared.accept_input(3, ProgramInput::End), ShimReply::Ok);
        assert_eq!(shared.accept_input(4, line("x")), ShimReply::Closed);
        assert_eq!(shared.accept_input(3, ProgramInput::End), ShimReply::Ok);
        assert_eq!(shared.close_input(), 1, "one line was not written yet");
        assert!(shared.next_input().is_none());
    }
}
