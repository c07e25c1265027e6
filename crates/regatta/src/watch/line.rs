//! Reads the daemon's live stream in a thread of its own. Reconnects when the stream breaks, but
//! never starts a daemon.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::client::{Client, Message};
use crate::out::Failed;

use super::News;

/// The longest silence before the connection counts as broken. The daemon sends a sign of life
/// every five seconds.
const SILENCE: Duration = Duration::from_secs(12);
/// How long to wait before reconnecting.
const AGAIN: Duration = Duration::from_millis(500);

/// The topics that the screen needs. The thread checks them between two messages.
#[derive(Clone, Default)]
pub(super) struct Wanted(Arc<Mutex<String>>);

impl Wanted {
    pub(super) fn set(&self, topics: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = topics;
    }

    fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads the stream and forwards its messages until the receiver is gone.
pub(super) fn listen(client: &Client, wanted: &Wanted, to: &Sender<News>) {
    loop {
        let why = match stream(client, wanted, to) {
            Ok(End::Gone) => return,
            Ok(End::Other) => continue,
            Ok(End::Closed) => "the daemon closed the connection".to_owned(),
            Ok(End::Silent) => "the daemon does not respond".to_owned(),
            Err(failed) => failed.words(),
        };
        if to.send(News::Lost(why)).is_err() {
            return;
        }
        std::thread::sleep(AGAIN);
    }
}

enum End {
    /// The receiver is gone.
    Gone,
    /// The screen needs other topics.
    Other,
    Closed,
    Silent,
}

fn stream(client: &Client, wanted: &Wanted, to: &Sender<News>) -> Result<End, Failed> {
    let topics = wanted.get();
    let mut heard = Instant::now();
    let mut end = End::Closed;
    client.live(&topics, |message| {
        match message {
            Message::Quiet if heard.elapsed() > SILENCE => {
                end = End::Silent;
                return false;
            }
            Message::Quiet => {}
            Message::Alive => {
                heard = Instant::now();
                if to.send(News::Alive).is_err() {
                    end = End::Gone;
                    return false;
                }
            }
            Message::Data { event, data } => {
                heard = Instant::now();
                if to.send(News::Heard { event, data }).is_err() {
                    end = End::Gone;
                    return false;
                }
            }
        }
        if wanted.get() != topics {
            end = End::Other;
            return false;
        }
        true
    })?;
    Ok(end)
}
