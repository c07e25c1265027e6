//! Answers the page's requests for a window of the list of events, newest first, and for one event
//! with all its data.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_api::event_list::{
    EventListQuery, EventRow, EventWindow, event_state, event_task, event_text,
};
use regatta_api::view::EventView;
use regatta_core::board::Board;
use regatta_core::event::Recorded;
use regatta_core::ids::{ApprovalId, AttemptId, LandingId, TaskId};
use regatta_engine::ports::store::{StoreError, StoreHistory, first_message_since};

use crate::authenticated::Authenticated;
use crate::event_stream::rfc3339;
use crate::verbs::{problem_from_store, run_blocking};
use crate::{ProblemResponse, ServerState, request_limits, verbs};

/// Number of rows in a window if the query does not say it, and the maximum.
const DEFAULT_LIMIT: usize = 60;
const MAX_LIMIT: usize = 200;
/// Number of events that are read from the event log at once, and the maximum for one request. The
/// answer says where the next request continues.
const EVENTS_PER_READ: u64 = 500;
const MAX_EVENTS_READ: u64 = 10_000;

/// Builds the rows of events, and keeps what it has read about their tasks.
struct RowBuilder<'a> {
    board: &'a Board,
    history: &'a dyn StoreHistory,
    /// The task of each attempt or question, by the id as text.
    tasks: BTreeMap<String, Option<TaskId>>,
    subjects: BTreeMap<TaskId, String>,
}

impl RowBuilder<'_> {
    fn row(&mut self, recorded: &Recorded) -> Result<EventRow, StoreError> {
        let about = recorded.event.subject();
        let task = match event_task(&recorded.event) {
            Some(task) => Some(task),
            None => self.task_of(&about)?,
        };
        let subject = match task {
            Some(task) => self.subject_of(task)?,
            None => String::new(),
        };
        Ok(EventRow {
            revision: recorded.revision,
            wall: recorded.now.unix_ms,
            kind: recorded.event.kind().into(),
            by: recorded.by.to_string().trim_end_matches(':').to_owned(),
            text: event_text(recorded),
            at: event_state(&recorded.event),
            about,
            task,
            subject,
        })
    }

    /// Returns the task to which an attempt, a question or a landing belongs.
    fn task_of(&mut self, about: &str) -> Result<Option<TaskId>, StoreError> {
        if let Some(known) = self.tasks.get(about) {
            return Ok(*known);
        }
        let task = if let Ok(id) = about.parse::<AttemptId>() {
            match self.board.attempts.get(&id) {
                Some(attempt) => Some(attempt.task),
                None => self.history.attempt(id)?.map(|attempt| attempt.task),
            }
        } else if let Ok(id) = about.parse::<ApprovalId>() {
            match self.board.approvals.get(&id) {
                Some(approval) => Some(approval.task),
                None => self.history.approval(id)?.map(|approval| approval.task),
            }
        } else if let Ok(id) = about.parse::<LandingId>() {
            self.board.landings.get(&id).map(|landing| landing.task)
        } else {
            None
        };
        self.tasks.insert(about.to_owned(), task);
        Ok(task)
    }

    fn subject_of(&mut self, id: TaskId) -> Result<String, StoreError> {
        if let Some(known) = self.subjects.get(&id) {
            return Ok(known.clone());
        }
        let subject = match self.board.tasks.get(&id) {
            Some(task) => task.subject.clone(),
            None => {
                let task = self.history.task(id)?;
                task.map(|task| task.subject).unwrap_or_default()
            }
        };
        self.subjects.insert(id, subject.clone());
        Ok(subject)
    }
}

/// Handles `GET /api/v1/page/events?kind=task.*&text=login&before=900`: returns a window of the list
/// of events.
pub(super) async fn event_window(
    State(shared): State<Arc<ServerState>>,
    request_limits::QueryParams(query): request_limits::QueryParams<EventListQuery>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    verbs::require_read_pages(&authenticated.principal)?;
    let window = run_blocking(move || build_window(&shared, &query).map_err(problem_from_store));
    Ok(axum::Json(window.await??).into_response())
}

fn build_window(shared: &ServerState, query: &EventListQuery) -> Result<EventWindow, StoreError> {
    let board = shared.engine.board();
    let history = &**shared.engine.history();
    let mut builder = RowBuilder {
        board: &board,
        history,
        tasks: BTreeMap::new(),
        subjects: BTreeMap::new(),
    };
    let newest = board.revision;
    let mut end = query.before.unwrap_or(u64::MAX).min(newest + 1);
    if let Some(until) = query.until {
        let date_of = |revision: u64| {
            let found = history.events(revision.saturating_sub(1), 1)?;
            let first = found.first();
            Ok::<_, StoreError>(first.map(|event| (event.revision, event.now.unix_ms)))
        };
        end = end.min(first_message_since(until, newest, date_of)?);
    }
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    let oldest = end.saturating_sub(MAX_EVENTS_READ).max(1);
    let mut rows = Vec::new();
    while end > oldest && rows.len() < limit {
        let start = end.saturating_sub(EVENTS_PER_READ).max(oldest);
        let count = usize::try_from(end - start).unwrap_or(usize::MAX);
        let mut page = history.events(start - 1, count)?;
        page.retain(|recorded| recorded.revision < end);
        for recorded in page.iter().rev() {
            if query.matches_kind(recorded.event.kind()) {
                let row = builder.row(recorded)?;
                rows.extend(query.matches_row(&row).then_some(row));
            }
            if rows.len() == limit {
                break;
            }
        }
        end = start;
    }
    let next = match rows.last() {
        Some(last) if rows.len() == limit => last.revision,
        _ => end,
    };
    Ok(EventWindow {
        revision: newest,
        rows,
        next_before: (next > 1).then_some(next),
    })
}

/// Handles `GET /api/v1/page/events/900`: returns one event with all its data.
pub(super) async fn event_data(
    State(shared): State<Arc<ServerState>>,
    Path(revision): Path<String>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    verbs::require_read_pages(&authenticated.principal)?;
    let history = shared.engine.history().clone();
    let wanted: u64 = revision.parse().unwrap_or(0);
    let found = run_blocking(move || history.events(wanted.saturating_sub(1), 1)).await?;
    let found = found.map_err(problem_from_store)?;
    let event = found.first().filter(|event| event.revision == wanted);
    let event = event.ok_or_else(|| {
        Problem::new(
            404,
            "no_such_revision",
            format!("the event log has no event {revision}"),
            "list the events: regatta events",
        )
    })?;
    let view = EventView::new(event, rfc3339(event.now.unix_ms));
    Ok(axum::Json(view).into_response())
}
