//! Splits the body of an HTTP answer into server-sent events.

use reqwest::Response;

use crate::client::unreachable_error;
use crate::output::CommandError;

/// A stream of server-sent events.
pub(crate) struct MessageStream {
    response: Response,
    /// The received text that [`MessageStream::next_message`] has not returned yet.
    text: Vec<u8>,
    /// Length of the beginning of `text` that contains no end of a message. A long message arrives
    /// in many pieces, and only the new piece is searched.
    searched: usize,
}

impl MessageStream {
    pub(crate) fn new(response: Response) -> MessageStream {
        MessageStream {
            response,
            text: Vec::new(),
            searched: 0,
        }
    }

    /// Returns the next complete message, or `None` at the end of the stream. Loses nothing if the
    /// caller stops waiting.
    pub(crate) async fn next_message(&mut self) -> Result<Option<Vec<u8>>, CommandError> {
        loop {
            let new_text = &self.text[self.searched..];
            if let Some(end) = new_text.windows(2).position(|pair| pair == b"\n\n") {
                let message = self.text.drain(..self.searched + end + 2).collect();
                self.searched = 0;
                return Ok(Some(message));
            }
            self.searched = self.text.len().saturating_sub(1);
            let piece = self.response.chunk().await;
            match piece.map_err(|_| unreachable_error())? {
                Some(piece) => self.text.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }
}
