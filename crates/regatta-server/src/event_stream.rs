//! The stream of events: all events after a revision, then each new commit, until the caller hangs
//! up.
//!
//! The server keeps only the position of a reader. Missed events are read from the history, a page
//! at a time, and a reader that reads nothing for half a minute is disconnected. Every frame has
//! its revision, so that a reader can continue (`Last-Event-ID`). A heartbeat has it too, so that a
//! reader of few kinds does not have to start far back.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;

use crate::authenticated::Authenticated;
use crate::event_fanout::EventFrame;
use crate::{ProblemResponse, ServerState, request_limits};

/// Number of events that are read from the history at once, which bounds the memory however far
/// back a caller starts.
const EVENTS_PER_PAGE: usize = 500;
/// Interval of heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
pub(crate) struct EventStreamParams {
    #[serde(default)]
    after: Option<u64>,
    /// `false` ends the stream after the last existing event.
    #[serde(default = "default_true")]
    follow: bool,
    /// Only these kinds: `task.completed,claim.*`.
    #[serde(default)]
    kind: String,
    /// Only events about this.
    #[serde(default)]
    about: Option<String>,
    /// Only events of this actor.
    #[serde(default)]
    by: Option<String>,
}

fn default_true() -> bool {
    true
}

/// The filter of a stream.
struct EventFilter {
    kinds: Vec<String>,
    about: Option<String>,
    actor: Option<String>,
}

impl EventFilter {
    fn from_params(params: &EventStreamParams) -> EventFilter {
        let kinds = params
            .kind
            .split(',')
            .map(str::trim)
            .filter(|kind| !kind.is_empty())
            .map(str::to_owned)
            .collect();
        EventFilter {
            kinds,
            about: params.about.clone(),
            actor: params.by.clone(),
        }
    }

    fn matches(&self, frame: &EventFrame) -> bool {
        let matches_kind = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => frame.kind.starts_with(prefix),
            None => frame.kind == pattern,
        };
        (self.kinds.is_empty() || self.kinds.iter().any(matches_kind))
            && self
                .about
                .as_ref()
                .is_none_or(|about| frame.subject == *about)
            && self
                .actor
                .as_ref()
                .is_none_or(|actor| frame.actor == *actor)
    }
}

pub(crate) async fn events(
    State(shared): State<Arc<ServerState>>,
    request_limits::QueryParams(params): request_limits::QueryParams<EventStreamParams>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    crate::verbs::require_read_all(
        &authenticated.principal,
        "read the events",
        "wait for messages of your channels instead: msg.wait",
    )?;
    let last_event_id = authenticated
        .header("last-event-id")
        .and_then(|id| id.parse().ok());
    // Without a start, only new events are sent.
    let after = last_event_id
        .or(params.after)
        .unwrap_or_else(|| shared.engine.board().revision);
    if after > shared.engine.board().revision {
        return Err(Problem::new(
            400,
            "no_such_revision",
            "the requested start revision is newer than the daemon's newest event",
            "start after the id of an event that you have received, or from 0",
        )
        .into());
    }
    let body = Body::from_stream(frames(
        shared,
        EventFilter::from_params(&params),
        after,
        params.follow,
    ));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, body).into_response())
}

fn frames(
    shared: Arc<ServerState>,
    filter: EventFilter,
    after: u64,
    follow: bool,
) -> impl tokio_stream::Stream<Item = Result<Bytes, Infallible>> {
    async_stream::stream! {
        let mut sent = after;
        // Subscribe before reading the history, so that no commit is missed in between.
        let mut live = follow.then(|| shared.event_fanout.subscribe());
        let mut down = shared.shutdown.subscribe();
        loop {
            // Read the history until it is exhausted, then the live channel. After a gap, read the
            // history again.
            loop {
                let (history, from) = (shared.engine.history().clone(), sent);
                let page = tokio::task::spawn_blocking(move || {
                    history.events(from, EVENTS_PER_PAGE).map(|events| events.iter().map(EventFrame::from_recorded).collect::<Vec<_>>())
                });
                let Ok(Ok(page)) = page.await else {
                    tracing::error!("could not read the event log for a client that follows the events; its stream ends \
                        after revision {from}");
                    return;
                };
                let is_full = page.len() == EVENTS_PER_PAGE;
                for frame in page {
                    sent = frame.revision;
                    if filter.matches(&frame) {
                        yield Ok::<Bytes, Infallible>(frame.text);
                    }
                }
                if !is_full { break }
            }
            let Some(live) = &mut live else { return };
            loop {
                let next = tokio::select! {
                    next = live.recv() => next,
                    () = tokio::time::sleep(HEARTBEAT_INTERVAL) => {
                        yield Ok(format!(": still here\nid: {sent}\n\n").into());
                        continue;
                    }
                    _ = down.changed() => return,
                };
                match next {
                    Ok(batch) if batch.frames.first().is_some_and(|frame| frame.revision <= sent + 1) => {
                        let matches = |frame: &EventFrame| frame.revision > sent && filter.matches(frame);
                        let last = batch.frames.last().map_or(sent, |frame| frame.revision.max(sent));
                        if batch.frames.iter().all(matches) {
                            sent = last;
                            yield Ok(batch.text.clone());
                            continue;
                        }
                        let fitting: Vec<Bytes> = batch.frames.iter().filter(|frame| matches(frame)).map(|frame| frame.text.clone()).collect();
                        sent = last;
                        for text in fitting {
                            yield Ok(text);
                        }
                    }
                    // A gap, or the reader is too slow for the channel. The history has all events.
                    Ok(_) | Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return,
                }
            }
        }
    }
}

/// Returns a date in RFC 3339.
pub(crate) fn rfc3339(wall_ms: u64) -> String {
    jiff::Timestamp::from_millisecond(i64::try_from(wall_ms).unwrap_or(0))
        .map(|time| time.to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_gets_only_events_that_match_its_filter() {
        let frame = EventFrame {
            revision: 7,
            kind: "task.added",
            subject: "T3".into(),
            actor: "person:ann".into(),
            text: Bytes::new(),
        };
        let matches = |kind: &str, about: Option<&str>, by: Option<&str>| {
            let (about, by) = (about.map(str::to_owned), by.map(str::to_owned));
            EventFilter::from_params(&EventStreamParams {
                after: None,
                follow: true,
                kind: kind.into(),
                about,
                by,
            })
            .matches(&frame)
        };
        assert!(
            matches("", None, None)
                && matches("task.added", None, None)
                && matches("claim.*, task.*", None, None)
        );
        assert!(matches("task.*", Some("T3"), Some("person:ann")));
        assert!(!matches("task", None, None) && !matches("claim.*", None, None));
        assert!(!matches("", Some("T33"), None) && !matches("", None, Some("ann")));
    }
}
