//! The line to the daemon: the live stream on a thread of its own, found again when it breaks, and never started.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::client::{Client, Message};
use crate::out::Failed;

use super::News;

/// How long nothing at all may come before the line counts as broken: the daemon says every five seconds that it lives.
const SILENCE: Duration = Duration::from_secs(12);
/// How long until it is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// What the screen wants to look at; the thread looks at it between two messages.
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

/// Reads the stream for ever; whoever hears it may be gone, and then it ends.
pub(super) fn listen(client: &Client, wanted: &Wanted, to: &Sender<News>) {
    loop {
        let why = match stream(client, wanted, to) {
            Ok(End::Gone) => return,
            Ok(End::Other) => continue,
            Ok(End::Closed) => "it ended the stream".to_owned(),
            Ok(End::Silent) => "it says nothing any more".to_owned(),
            Err(failed) => failed.words(),
        };
        if to.send(News::Lost(why)).is_err() {
            return;
        }
        std::thread::sleep(AGAIN);
    }
}

enum End {
    /// Nobody listens any more.
    Gone,
    /// Something else is wanted.
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
