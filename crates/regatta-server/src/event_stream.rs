//! The event stream of the API: sends all events after a revision (number of an event), then each
//! new event, until the caller disconnects.
//!
//! The server keeps only the position of a reader. It reads missed events from the event log, a
//! page at a time, and disconnects a reader that takes no data for half a minute. Each frame
//! contains the revision of its event, so that a reader can continue from there (`Last-Event-ID`).
//! A heartbeat also contains the current revision. So a reader that wants only rare events can
//! continue from that revision, and not from its last event, which may be long ago.

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

/// Maximum number of events that one read of the event log returns. This limit bounds the memory
/// that a caller can use, even if the caller starts to read far in the past.
const EVENTS_PER_PAGE: usize = 500;
/// Interval of heartbeats, which keep the connection open and contain the current revision (number
/// of the last event).
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
pub(crate) struct EventStreamParams {
    #[serde(default)]
    after: Option<u64>,
    /// Keep the stream open for new events. With `false`, the stream ends after the last event that
    /// exists now.
    #[serde(default = "default_true")]
    follow: bool,
    /// Send only events of these kinds, such as `task.completed,claim.*`.
    #[serde(default)]
    kind: String,
    /// Send only events about this task, agent or other thing, such as `T7`.
    #[serde(default)]
    about: Option<String>,
    /// Send only events that this actor caused, such as `person:ann`.
    #[serde(default)]
    by: Option<String>,
}

fn default_true() -> bool {
    true
}

/// The conditions that an event must meet to be sent to one reader.
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
    // If the caller does not say where to start, send only new events.
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
        // Subscribe to new events before reading the event log, so that no event is missed in
        // between.
        let mut live = follow.then(|| shared.event_fanout.subscribe());
        let mut down = shared.shutdown.subscribe();
        loop {
            // First read the event log to its end, then receive new events. If a received event is
            // not the next one, read the event log again.
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
                    // Some events were missed, because the reader was too slow. The event log has
                    // all of them, so read the log again.
                    Ok(_) | Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return,
                }
            }
        }
    }
}

/// Formats a time (milliseconds since 1970) as RFC 3339, such as `2026-11-15T20:00:00Z`.
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
