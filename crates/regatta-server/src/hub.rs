//! Fan-out of events: each event is formatted once and shared by all readers.
//!
//! The engine's writer has one listener, this one, however many readers there are. It formats each
//! event as a frame of the stream and passes it on; a reader costs a clone of a pointer and a write
//! to its connection. The more readers there are, the more frames are sent together, because a
//! thousand writes per commit would take processors and caches from the writer. A reader that falls
//! behind is notified and continues from the history.
//!
//! It also wakes the callers that wait for a change of the board, so that the writer wakes one task
//! and not a thousand. Pollers are woken only when tasks are ready, at most one poller per ready
//! task, because the others would get no task.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use regatta_api::view::EventView;
use regatta_core::board::Board;
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::TaskId;
use regatta_core::schedule::{self, Poll};
use regatta_engine::Engine;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::Shared;
use crate::stream::rfc3339;

/// Number of batches that a reader can be behind before it has to read the history.
const BACKLOG: usize = 256;
/// Number of readers up to which every commit is sent at once; above it, the delay per reader, and
/// the longest delay.
const FEW: usize = 16;
const EACH: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(100);
/// Number of ended tasks that are remembered, and of events that are searched for them at the
/// start.
const ENDED: usize = 1_000;
const LOOK_BACK: u64 = 5_000;

/// An event in the format of the stream.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) revision: u64,
    pub(crate) kind: &'static str,
    pub(crate) subject: String,
    pub(crate) by: String,
    pub(crate) text: Bytes,
}

impl Frame {
    pub(crate) fn of(recorded: &Recorded) -> Frame {
        let view = EventView::of(recorded, rfc3339(recorded.now.wall));
        let data = serde_json::to_string(&view).unwrap_or_default();
        let (revision, kind) = (recorded.revision, recorded.event.kind());
        let text = format!("id: {revision}\nevent: {kind}\ndata: {data}\n\n").into();
        Frame { revision, kind, subject: view.subject, by: view.by, text }
    }
}

/// Frames that are sent together.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) frames: Vec<Frame>,
    /// The text of all frames, concatenated.
    pub(crate) text: Bytes,
}

impl Told {
    fn of(mut frames: Vec<Frame>) -> Told {
        let text: Bytes = match &*frames {
            [one] => one.text.clone(),
            many => many.iter().flat_map(|it| it.text.iter().copied()).collect::<Vec<u8>>().into(),
        };
        // The frames' texts are slices of it, so the bytes are stored once.
        let mut at = 0;
        for frame in &mut frames {
            let end = at + frame.text.len();
            frame.text = text.slice(at..end);
            at = end;
        }
        Told { frames, text }
    }
}

/// Returns how long frames are collected before they are sent together.
fn pace(readers: usize) -> Duration {
    match readers {
        0..=FEW => Duration::ZERO,
        many => (EACH * u32::try_from(many).unwrap_or(u32::MAX)).min(LONGEST),
    }
}

/// An ended task with the date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finish {
    pub(crate) task: TaskId,
    pub(crate) wall: u64,
}

/// The channels that all readers share.
pub(crate) struct Hub {
    frames: broadcast::Sender<Arc<Told>>,
    finished: Mutex<VecDeque<Finish>>,
    /// Signals a change of the board. The signal carries no board, so that nobody sees an old one.
    bell: watch::Sender<()>,
    /// The same, only while tasks are ready.
    work: watch::Sender<()>,
    /// The same, only after an event of a runner.
    runners: watch::Sender<()>,
    /// The latest revision, and the number of pollers that were woken at it.
    let_through: Mutex<(u64, usize)>,
}

/// A caller that waits for a task, with its deadline.
pub(crate) struct Waiting<'a> {
    pub(crate) bell: watch::Receiver<()>,
    pub(crate) engine: &'a Engine,
    pub(crate) poll: Poll,
    pub(crate) until: tokio::time::Instant,
}

/// A permit to poll. If it is dropped unused, the next poller gets it.
pub(crate) struct Leave<'a> {
    hub: &'a Hub,
    revision: u64,
    used: bool,
}

impl Leave<'_> {
    pub(crate) fn used(mut self) {
        self.used = true;
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if !self.used {
            let mut let_through = self.hub.let_through.lock().unwrap_or_else(PoisonError::into_inner);
            if let_through.0 == self.revision {
                let_through.1 = let_through.1.saturating_sub(1);
            }
            drop(let_through);
            self.hub.bell.send_replace(()); // nothing changed, but the permit is free
            self.hub.work.send_replace(());
        }
    }
}

impl Hub {
    pub(crate) fn new() -> Hub {
        Hub {
            frames: broadcast::channel(BACKLOG).0,
            finished: Mutex::default(),
            bell: watch::channel(()).0,
            work: watch::channel(()).0,
            runners: watch::channel(()).0,
            let_through: Mutex::default(),
        }
    }

    /// Returns a receiver of a signal after each change of the board.
    pub(crate) fn bell(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }

    /// Returns a receiver of a signal after each change of the board that leaves a task ready.
    pub(crate) fn work_bell(&self) -> watch::Receiver<()> {
        self.work.subscribe()
    }

    /// Returns a receiver of a signal after each event of a runner.
    pub(crate) fn runners_bell(&self) -> watch::Receiver<()> {
        self.runners.subscribe()
    }

    fn ring(&self, board: &Board, runners: bool) {
        self.bell.send_replace(());
        if board.ready_count() > 0 {
            self.work.send_replace(());
        }
        if runners {
            self.runners.send_replace(());
        }
    }

    /// Waits until a poll might be granted a task and gets a permit, or until `also` holds, which
    /// needs no permit. Returns `None` at the deadline.
    pub(crate) async fn turn(
        &self,
        waiting: &mut Waiting<'_>,
        also: impl Fn(&Board) -> bool,
    ) -> Option<Option<Leave<'_>>> {
        loop {
            match tokio::time::timeout_at(waiting.until, waiting.bell.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return None,
            }
            let board = waiting.engine.board();
            if also(&board) {
                return Some(None);
            }
            if schedule::would_grant(&board, &waiting.poll, waiting.engine.now())
                && let Some(leave) = self.let_in(&board)
            {
                return Some(Some(leave));
            }
        }
    }

    fn let_in(&self, board: &Board) -> Option<Leave<'_>> {
        let mut let_through = self.let_through.lock().unwrap_or_else(PoisonError::into_inner);
        if let_through.0 < board.revision {
            *let_through = (board.revision, 0);
        }
        if let_through.0 > board.revision || let_through.1 >= board.ready_count() {
            return None;
        }
        let_through.1 += 1;
        Some(Leave { hub: self, revision: board.revision, used: false })
    }

    /// Returns a receiver of frames, starting now.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<Told>> {
        self.frames.subscribe()
    }

    /// Returns the number of readers.
    pub(crate) fn readers(&self) -> usize {
        self.frames.receiver_count()
    }

    /// Returns the tasks that ended after a date, of those that are remembered.
    pub(crate) fn finished_after(&self, wall: u64) -> Vec<Finish> {
        let all = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|it| it.wall > wall).copied().collect()
    }

    fn note(&self, recorded: &Recorded) {
        let task = match &recorded.event {
            Event::TaskCompleted(it) => *it.task(),
            Event::TaskFailed(it) => *it.task(),
            _ => return,
        };
        let mut all = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|it| it.task != task);
        if all.len() == ENDED {
            all.pop_front();
        }
        all.push_back(Finish { task, wall: recorded.now.wall });
    }

    /// Passes events on until the engine ends.
    pub(crate) async fn run(&self, shared: &Shared) {
        let engine = &shared.engine;
        let mut live = engine.events();
        let now = engine.board().revision;
        let mut seen = now.saturating_sub(LOOK_BACK);
        self.catch_up(engine, &mut seen, |recorded| self.note(recorded)).await;
        self.ring(&engine.board(), true);
        let (mut frames, mut told) = (Vec::new(), Instant::now());
        loop {
            let due = told + pace(self.readers());
            let heard = tokio::select! {
                heard = live.recv() => heard,
                () = tokio::time::sleep_until(due), if !frames.is_empty() => {
                    self.hand_on(&mut frames);
                    told = Instant::now();
                    continue;
                }
            };
            match heard {
                Ok(batch) if batch.first().is_some_and(|it| it.revision <= seen + 1) => {
                    let fresh = batch.iter().filter(|it| it.revision > seen);
                    self.take(fresh, &mut frames, shared);
                    seen = batch.last().map_or(seen, |it| it.revision.max(seen));
                }
                Ok(_) | Err(RecvError::Lagged(_)) => {
                    let mut missed = Vec::new();
                    self.catch_up(engine, &mut seen, |recorded| missed.push(recorded.clone())).await;
                    self.take(missed.iter(), &mut frames, shared);
                }
                Err(RecvError::Closed) => return self.hand_on(&mut frames),
            }
            if due <= Instant::now() {
                self.hand_on(&mut frames);
                told = Instant::now();
            }
        }
    }

    /// Records events, signals the change, and formats the events if there are readers.
    fn take<'a>(&self, events: impl Iterator<Item = &'a Recorded> + Clone, frames: &mut Vec<Frame>, shared: &Shared) {
        events.clone().for_each(|it| self.note(it));
        let runners = events.clone().any(|it| it.event.kind().starts_with("runner."));
        self.ring(&shared.engine.board(), runners);
        let listened = self.readers() > 0;
        for recorded in events {
            shared.meters.happened(recorded);
            if let Some(tracer) = &shared.tracer {
                tracer.happened(recorded);
            }
            if listened {
                frames.push(Frame::of(recorded));
            }
        }
    }

    fn hand_on(&self, frames: &mut Vec<Frame>) {
        if !frames.is_empty() {
            let _nobody_listens = self.frames.send(Arc::new(Told::of(std::mem::take(frames))));
        }
    }

    async fn catch_up(&self, engine: &Engine, seen: &mut u64, mut each: impl FnMut(&Recorded)) {
        loop {
            let (history, after) = (engine.history().clone(), *seen);
            let page = tokio::task::spawn_blocking(move || history.events(after, 500)).await;
            let Ok(Ok(page)) = page else {
                tracing::error!("could not read the history; events before this revision are not sent");
                *seen = engine.board().revision;
                return;
            };
            for recorded in &page {
                *seen = recorded.revision;
                each(recorded);
            }
            if page.len() < 500 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_readers_are_notified_at_once_and_many_in_batches() {
        assert_eq!((pace(0), pace(FEW)), (Duration::ZERO, Duration::ZERO));
        assert!(pace(FEW + 1) < Duration::from_millis(1));
        assert_eq!((pace(1_000), pace(1_000_000)), (Duration::from_millis(50), LONGEST));
    }

    #[test]
    fn batched_frames_share_the_bytes_of_their_text() {
        let frame = |revision: u64, text: &'static str| Frame {
            revision,
            kind: "task.added",
            subject: "T1".into(),
            by: "person:ann".into(),
            text: Bytes::from_static(text.as_bytes()),
        };
        let told = Told::of(vec![frame(1, "one\n\n"), frame(2, "two\n\n")]);
        assert_eq!(&told.text[..], b"one\n\ntwo\n\n");
        let texts: Vec<&[u8]> = told.frames.iter().map(|it| &it.text[..]).collect();
        assert_eq!(texts, [b"one\n\n", b"two\n\n"]);
        assert_eq!(told.frames[1].text.as_ptr(), told.text[5..].as_ptr());
    }
}
