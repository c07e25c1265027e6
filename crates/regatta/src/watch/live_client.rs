//! Reads the daemon's live stream (changes for the screen) in its own thread. Reconnects when the
//! stream breaks, but never starts a daemon.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::client::{Client, LiveStreamItem};
use crate::output::CommandError;

use super::ScreenEvent;

/// The time without any message after which the connection counts as broken. The daemon sends an
/// empty message every five seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(12);
/// The time to wait after a lost connection before connecting again.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// The topics (kinds of data) that the screen needs now. After each message the reading thread
/// checks whether the topics have changed.
#[derive(Clone, Default)]
pub(super) struct WantedTopics(Arc<Mutex<String>>);

impl WantedTopics {
    pub(super) fn set(&self, topics: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = topics;
    }

    fn get(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Reads the live stream and forwards its messages to the screen's thread, until that thread has
/// ended.
pub(super) fn forward_stream(client: &Client, topics: &WantedTopics, to: &Sender<ScreenEvent>) {
    loop {
        let why = match read_stream(client, topics, to) {
            Ok(StreamEnd::ReceiverGone) => return,
            Ok(StreamEnd::TopicsChanged) => continue,
            Ok(StreamEnd::Closed) => "the daemon closed the connection".to_owned(),
            Ok(StreamEnd::Silent) => "the daemon does not respond".to_owned(),
            Err(failed) => failed.message(),
        };
        if to.send(ScreenEvent::Disconnected(why)).is_err() {
            return;
        }
        std::thread::sleep(RECONNECT_DELAY);
    }
}

enum StreamEnd {
    /// The screen's thread has ended, so nobody receives the messages.
    ReceiverGone,
    /// The screen needs other topics, so the stream must be opened again.
    TopicsChanged,
    Closed,
    Silent,
}

fn read_stream(
    client: &Client,
    wanted_topics: &WantedTopics,
    to: &Sender<ScreenEvent>,
) -> Result<StreamEnd, CommandError> {
    let topics = wanted_topics.get();
    let mut last_message = Instant::now();
    let mut end = StreamEnd::Closed;
    client.stream_live(&topics, |message| {
        match message {
            LiveStreamItem::Idle if last_message.elapsed() > SILENCE_TIMEOUT => {
                end = StreamEnd::Silent;
                return false;
            }
            LiveStreamItem::Idle => {}
            LiveStreamItem::Heartbeat => {
                last_message = Instant::now();
                if to.send(ScreenEvent::Heartbeat).is_err() {
                    end = StreamEnd::ReceiverGone;
                    return false;
                }
            }
            LiveStreamItem::Data { event, data } => {
                last_message = Instant::now();
                if to.send(ScreenEvent::Message { event, data }).is_err() {
                    end = StreamEnd::ReceiverGone;
                    return false;
                }
            }
        }
        if wanted_topics.get() != topics {
            end = StreamEnd::TopicsChanged;
            return false;
        }
        true
    })?;
    Ok(end)
}
