//! Distributes events to all readers of the event stream. Each event is formatted once, and all
//! readers share the bytes.
//!
//! The engine's writer thread, which stores all changes, has only this one listener, however many
//! readers there are. The listener formats each event and passes it on, so that a reader costs only
//! a pointer and a write to its connection. The more readers there are, the more events are
//! collected before they are sent, because a thousand writes for each stored change would take
//! processor time from the writer. A reader that falls behind is notified, and reads the missed
//! events from the stored event log.
//!
//! This module also wakes callers that wait for a change of the board (the daemon's state in
//! memory). So the writer wakes one task instead of a thousand. Agents that poll for work are woken
//! only when tasks are ready, at most one per ready task, because the others would get no task.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use regatta_api::view::EventView;
use regatta_core::board::Board;
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::TaskId;
use regatta_core::schedule::{self, PollRequest};
use regatta_engine::Engine;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::ServerState;
use crate::event_stream::rfc3339;

/// Number of event batches that may wait for a slow reader of the event stream. A reader that is
/// further behind must read the missed events from the stored event log.
const MAX_BACKLOG_BATCHES: usize = 256;
/// Maximum number of readers to which new events are sent immediately. With more readers, events
/// are collected before they are sent: for `DELAY_PER_READER` times the number of readers, but at
/// most for `MAX_BATCH_DELAY`.
const MAX_IMMEDIATE_READERS: usize = 16;
const DELAY_PER_READER: Duration = Duration::from_micros(50);
const MAX_BATCH_DELAY: Duration = Duration::from_millis(100);
/// Number of recently ended tasks that are remembered. When the daemon starts, such tasks are read
/// from the last `MAX_EVENTS_SEARCHED` events.
const MAX_FINISHED_TASKS: usize = 1_000;
const MAX_EVENTS_SEARCHED: u64 = 5_000;

/// An event, formatted as a frame of the event stream.
#[derive(Clone, Debug)]
pub(crate) struct EventFrame {
    pub(crate) revision: u64,
    pub(crate) kind: &'static str,
    pub(crate) subject: String,
    pub(crate) actor: String,
    pub(crate) text: Bytes,
}

impl EventFrame {
    pub(crate) fn from_recorded(recorded: &Recorded) -> EventFrame {
        let view = EventView::new(recorded, rfc3339(recorded.now.unix_ms));
        let data = serde_json::to_string(&view).unwrap_or_default();
        let (revision, kind) = (recorded.revision, recorded.event.kind());
        let text = format!("id: {revision}\nevent: {kind}\ndata: {data}\n\n").into();
        EventFrame {
            revision,
            kind,
            subject: view.subject,
            actor: view.by,
            text,
        }
    }
}

/// Formatted events that are sent together to all readers of the event stream.
#[derive(Debug)]
pub(crate) struct EventBatch {
    pub(crate) frames: Vec<EventFrame>,
    /// The concatenated text of all events in the batch.
    pub(crate) text: Bytes,
}

impl EventBatch {
    fn from_frames(mut frames: Vec<EventFrame>) -> EventBatch {
        let text: Bytes = match &*frames {
            [frame] => frame.text.clone(),
            many => many
                .iter()
                .flat_map(|frame| frame.text.iter().copied())
                .collect::<Vec<u8>>()
                .into(),
        };
        // The text of each event becomes a slice of the concatenated text, so that the bytes are
        // stored only once.
        let mut start = 0;
        for frame in &mut frames {
            let end = start + frame.text.len();
            frame.text = text.slice(start..end);
            start = end;
        }
        EventBatch { frames, text }
    }
}

/// Returns how long events are collected before they are sent together, for this number of readers.
fn batch_delay(readers: usize) -> Duration {
    match readers {
        0..=MAX_IMMEDIATE_READERS => Duration::ZERO,
        many => (DELAY_PER_READER * u32::try_from(many).unwrap_or(u32::MAX)).min(MAX_BATCH_DELAY),
    }
}

/// A task that ended recently, with the time of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinishedTask {
    pub(crate) task: TaskId,
    pub(crate) ended_unix_ms: u64,
}

/// Passes the engine's events to everybody who has subscribed: readers of the event stream, and
/// callers that wait for a change.
pub(crate) struct EventFanout {
    batches: broadcast::Sender<Arc<EventBatch>>,
    finished: Mutex<VecDeque<FinishedTask>>,
    /// Wakes waiting callers after a change of the board (the daemon's state in memory). The signal
    /// does not contain the board, because a slow caller would then work with an old one.
    board_changed: watch::Sender<()>,
    /// Wakes waiting callers after a change of the board (the daemon's state in memory), but only
    /// while tasks are ready to start.
    work_ready: watch::Sender<()>,
    /// Wakes waiting callers after an event about a runner (another machine that executes
    /// attempts).
    runner_changed: watch::Sender<()>,
    woken_pollers: Mutex<WokenPollers>,
}

/// The latest revision of the board (the daemon's state in memory), and the number of polling
/// agents that were woken at that revision.
#[derive(Default)]
struct WokenPollers {
    revision: u64,
    count: usize,
}

/// An agent's poll that waits for a task, with its deadline.
pub(crate) struct WaitingPoller<'a> {
    pub(crate) changes: watch::Receiver<()>,
    pub(crate) engine: &'a Engine,
    pub(crate) poll: PollRequest,
    pub(crate) deadline: tokio::time::Instant,
}

/// The permission for one poll to look for a ready task. If the poll ends without using its
/// permission, the next waiting poll gets it.
pub(crate) struct PollPermit<'a> {
    fanout: &'a EventFanout,
    revision: u64,
    is_used: bool,
}

impl PollPermit<'_> {
    pub(crate) fn mark_used(mut self) {
        self.is_used = true;
    }
}

impl Drop for PollPermit<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            let mut woken = self
                .fanout
                .woken_pollers
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if woken.revision == self.revision {
                woken.count = woken.count.saturating_sub(1);
            }
            drop(woken);
            self.fanout.board_changed.send_replace(()); // nothing changed, but the permit is free
            self.fanout.work_ready.send_replace(());
        }
    }
}

impl EventFanout {
    pub(crate) fn new() -> EventFanout {
        EventFanout {
            batches: broadcast::channel(MAX_BACKLOG_BATCHES).0,
            finished: Mutex::default(),
            board_changed: watch::channel(()).0,
            work_ready: watch::channel(()).0,
            runner_changed: watch::channel(()).0,
            woken_pollers: Mutex::default(),
        }
    }

    /// Returns a receiver that is signalled after each change of the board (the daemon's state in
    /// memory).
    pub(crate) fn watch_board(&self) -> watch::Receiver<()> {
        self.board_changed.subscribe()
    }

    /// Returns a receiver that is signalled after each change of the board (the daemon's state in
    /// memory), but only while a task is ready to start.
    pub(crate) fn watch_work(&self) -> watch::Receiver<()> {
        self.work_ready.subscribe()
    }

    /// Returns a receiver that is signalled after each event about a runner (another machine that
    /// executes attempts).
    pub(crate) fn watch_runners(&self) -> watch::Receiver<()> {
        self.runner_changed.subscribe()
    }

    fn signal_change(&self, board: &Board, runners: bool) {
        self.board_changed.send_replace(());
        if board.ready_count() > 0 {
            self.work_ready.send_replace(());
        }
        if runners {
            self.runner_changed.send_replace(());
        }
    }

    /// Waits until a task is ready that the caller might get, and returns a permit to poll for that
    /// task. Returns `Some(None)`, which means no permit, as soon as `is_done` returns true.
    /// Returns `None` at the deadline.
    pub(crate) async fn wait_for_poll_permit(
        &self,
        waiting: &mut WaitingPoller<'_>,
        is_done: impl Fn(&Board) -> bool,
    ) -> Option<Option<PollPermit<'_>>> {
        loop {
            match tokio::time::timeout_at(waiting.deadline, waiting.changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return None,
            }
            let board = waiting.engine.board();
            if is_done(&board) {
                return Some(None);
            }
            if schedule::would_grant(&board, &waiting.poll, waiting.engine.now())
                && let Some(permit) = self.try_poll_permit(&board)
            {
                return Some(Some(permit));
            }
        }
    }

    fn try_poll_permit(&self, board: &Board) -> Option<PollPermit<'_>> {
        let mut woken = self
            .woken_pollers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if woken.revision < board.revision {
            *woken = WokenPollers {
                revision: board.revision,
                count: 0,
            };
        }
        if woken.revision > board.revision || woken.count >= board.ready_count() {
            return None;
        }
        woken.count += 1;
        Some(PollPermit {
            fanout: self,
            revision: board.revision,
            is_used: false,
        })
    }

    /// Returns a receiver of all events from now on, formatted in batches.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<EventBatch>> {
        self.batches.subscribe()
    }

    /// Returns the number of readers of the event stream.
    pub(crate) fn reader_count(&self) -> usize {
        self.batches.receiver_count()
    }

    /// Returns the remembered tasks that ended after a time (milliseconds since 1970).
    pub(crate) fn finished_after(&self, wall: u64) -> Vec<FinishedTask> {
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        finished
            .iter()
            .filter(|finished_task| finished_task.ended_unix_ms > wall)
            .copied()
            .collect()
    }

    fn remember_finished(&self, recorded: &Recorded) {
        let task = match &recorded.event {
            Event::TaskCompleted(task_completed) => *task_completed.task(),
            Event::TaskFailed(task_failed) => *task_failed.task(),
            _ => return,
        };
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        finished.retain(|finished_task| finished_task.task != task);
        if finished.len() == MAX_FINISHED_TASKS {
            finished.pop_front();
        }
        finished.push_back(FinishedTask {
            task,
            ended_unix_ms: recorded.now.unix_ms,
        });
    }

    /// Passes the engine's events to the readers of the event stream and wakes waiting callers,
    /// until the engine ends.
    pub(crate) async fn run(&self, shared: &ServerState) {
        let engine = &shared.engine;
        let mut live = engine.subscribe_events();
        let now = engine.board().revision;
        let mut last_revision = now.saturating_sub(MAX_EVENTS_SEARCHED);
        self.catch_up(engine, &mut last_revision, |recorded| {
            self.remember_finished(recorded)
        })
        .await;
        self.signal_change(&engine.board(), true);
        let (mut frames, mut sent_at) = (Vec::new(), Instant::now());
        loop {
            let due = sent_at + batch_delay(self.reader_count());
            let received = tokio::select! {
                received = live.recv() => received,
                () = tokio::time::sleep_until(due), if !frames.is_empty() => {
                    self.send_batch(&mut frames);
                    sent_at = Instant::now();
                    continue;
                }
            };
            match received {
                Ok(batch)
                    if batch
                        .first()
                        .is_some_and(|event| event.revision <= last_revision + 1) =>
                {
                    let fresh = batch.iter().filter(|event| event.revision > last_revision);
                    self.on_events(fresh, &mut frames, shared);
                    last_revision = batch
                        .last()
                        .map_or(last_revision, |event| event.revision.max(last_revision));
                }
                Ok(_) | Err(RecvError::Lagged(_)) => {
                    let mut missed = Vec::new();
                    self.catch_up(engine, &mut last_revision, |recorded| {
                        missed.push(recorded.clone())
                    })
                    .await;
                    self.on_events(missed.iter(), &mut frames, shared);
                }
                Err(RecvError::Closed) => return self.send_batch(&mut frames),
            }
            if due <= Instant::now() {
                self.send_batch(&mut frames);
                sent_at = Instant::now();
            }
        }
    }

    /// Records ended tasks, wakes waiting callers, and formats the events if there are readers.
    fn on_events<'a>(
        &self,
        events: impl Iterator<Item = &'a Recorded> + Clone,
        frames: &mut Vec<EventFrame>,
        shared: &ServerState,
    ) {
        events
            .clone()
            .for_each(|event| self.remember_finished(event));
        let runners = events
            .clone()
            .any(|event| event.event.kind().starts_with("runner."));
        self.signal_change(&shared.engine.board(), runners);
        let has_readers = self.reader_count() > 0;
        for recorded in events {
            shared.metrics.record_event(recorded);
            if let Some(tracer) = &shared.tracer {
                tracer.record_event(recorded);
            }
            if has_readers {
                frames.push(EventFrame::from_recorded(recorded));
            }
        }
    }

    fn send_batch(&self, frames: &mut Vec<EventFrame>) {
        if !frames.is_empty() {
            let _nobody_listens = self
                .batches
                .send(Arc::new(EventBatch::from_frames(std::mem::take(frames))));
        }
    }

    async fn catch_up(
        &self,
        engine: &Engine,
        last_revision: &mut u64,
        mut handle: impl FnMut(&Recorded),
    ) {
        loop {
            let (history, after) = (engine.history().clone(), *last_revision);
            let page = tokio::task::spawn_blocking(move || history.events(after, 500)).await;
            let Ok(Ok(page)) = page else {
                tracing::error!(
                    "could not read the event log; connected readers of the event stream miss the events after revision {after}"
                );
                *last_revision = engine.board().revision;
                return;
            };
            for recorded in &page {
                *last_revision = recorded.revision;
                handle(recorded);
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
        assert_eq!(
            (batch_delay(0), batch_delay(MAX_IMMEDIATE_READERS)),
            (Duration::ZERO, Duration::ZERO)
        );
        assert!(batch_delay(MAX_IMMEDIATE_READERS + 1) < Duration::from_millis(1));
        assert_eq!(
            (batch_delay(1_000), batch_delay(1_000_000)),
            (Duration::from_millis(50), MAX_BATCH_DELAY)
        );
    }

    #[test]
    fn batched_frames_share_the_bytes_of_their_text() {
        let frame = |revision: u64, text: &'static str| EventFrame {
            revision,
            kind: "task.added",
            subject: "T1".into(),
            actor: "person:ann".into(),
            text: Bytes::from_static(text.as_bytes()),
        };
        let batch = EventBatch::from_frames(vec![frame(1, "one\n\n"), frame(2, "two\n\n")]);
        assert_eq!(&batch.text[..], b"one\n\ntwo\n\n");
        let texts: Vec<&[u8]> = batch
            .frames
            .iter()
            .map(|event_frame| &event_frame.text[..])
            .collect();
        assert_eq!(texts, [b"one\n\n", b"two\n\n"]);
        assert_eq!(batch.frames[1].text.as_ptr(), batch.text[5..].as_ptr());
    }
}
