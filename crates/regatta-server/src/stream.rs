//! Events as a stream: everything after a revision, then whatever is committed, until the caller hangs up.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_api::view::EventView;
use regatta_core::event::Recorded;
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;

use crate::entered::Entered;
use crate::{Shared, problem};

/// How many events are read from the history at once: memory stays bounded however far back a caller starts.
const PAGE: usize = 500;

#[derive(Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    after: Option<u64>,
    /// `false` ends the stream with the last event there is.
    #[serde(default = "yes")]
    follow: bool,
}

fn yes() -> bool {
    true
}

pub(crate) async fn events(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<Asked>,
    entered: Entered,
) -> Response {
    let visitor = &entered.visitor;
    if !visitor.scope().sees_all() {
        return problem(&Problem::new(
            403,
            "wrong_scope",
            format!("a token with the scope {} cannot read the events", visitor.scope()),
            "wait for messages of your channels instead: msg.wait",
        ));
    }
    let resumed = entered.header("last-event-id").and_then(|it| it.parse().ok());
    // With nothing asked, only what comes: a reader of old events says from where.
    let after = resumed.or(asked.after).unwrap_or_else(|| shared.engine.board().revision);
    if after > shared.engine.board().revision {
        return problem(&Problem::new(
            400,
            "no_such_revision",
            "that revision has not happened yet",
            "start from one you have seen, or from 0",
        ));
    }
    let stream = async_stream::stream! {
        let mut sent = after;
        let mut live = shared.engine.events();
        let mut down = shared.down.subscribe();
        loop {
            // From the history until nothing is left, then from the live channel; a gap goes back to the history.
            loop {
                let history = shared.engine.history().clone();
                let page = tokio::task::spawn_blocking(move || history.events(sent, PAGE)).await;
                let Ok(Ok(page)) = page else {
                    tracing::error!("a reader of events was let go: the history could not be read");
                    return;
                };
                let full = page.len() == PAGE;
                for recorded in &page {
                    sent = recorded.revision;
                    yield Ok::<Event, Infallible>(draw(recorded));
                }
                if !full { break }
            }
            if !asked.follow { return }
            loop {
                let next = tokio::select! {
                    next = live.recv() => next,
                    _ = down.changed() => return,
                };
                match next {
                    Ok(batch) if batch.first().is_some_and(|it| it.revision <= sent + 1) => {
                        for recorded in batch.iter() {
                            if recorded.revision > sent {
                                sent = recorded.revision;
                                yield Ok(draw(recorded));
                            }
                        }
                    }
                    // A gap, or too slow for the channel: the history has it all.
                    Ok(_) | Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return,
                }
            }
        }
    };
    Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

fn draw(recorded: &Recorded) -> Event {
    let view = EventView::of(recorded, rfc3339(recorded.now.wall));
    let data = serde_json::to_string(&view).unwrap_or_default();
    Event::default().id(view.revision.to_string()).event(view.kind).data(data)
}

/// A date people and programs can read.
pub(crate) fn rfc3339(wall_ms: u64) -> String {
    jiff::Timestamp::from_millisecond(i64::try_from(wall_ms).unwrap_or(0)).map(|it| it.to_string()).unwrap_or_default()
}
