//! The requests of the page for transcripts: entries by number, lines of an entry, a search, and
//! the raw lines.
//!
//! A request builds the index of its transcript if nobody has asked for it before. Until the index
//! is complete, the page gets the last entries, which are read from the end of the journal.

use std::io;
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_api::live_view::{
    TranscriptEntryView, TranscriptHitView, TranscriptLinesView, TranscriptSearchView,
    TranscriptWindowView,
};
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{Agents, JournalStream};
use serde::Deserialize;

use super::sanitize::strip_terminal_sequences;
use super::transcript_html::{
    MAX_LINES_PER_REQUEST, body_html, entry_class, entry_html, is_open_at_first, lines_html,
};
use super::transcript_index::TranscriptIndex;
use crate::authenticated::Authenticated;
use crate::{ProblemResponse, ServerState, request_limits, verbs};

/// Maximum number of entries that one request returns.
const MAX_ENTRIES_PER_REQUEST: usize = 200;
/// The size of the HTML after which a request returns no further entry, in bytes.
const MAX_HTML_BYTES: usize = 1024 * 1024;
/// Maximum number of failed entries whose numbers are sent.
const MAX_FAILURES: usize = 1_000;
/// Maximum number of lines that a search returns. All lines are counted.
const MAX_HITS: usize = 2_000;
/// The number of journal records that are added to an index in one step.
const RECORDS_PER_STEP: usize = 200;
/// The number of steps that a request makes itself if few records are missing. Otherwise a thread in
/// the background makes them.
const STEPS_PER_REQUEST: usize = 10;
/// The number of bytes at the end of a journal that are read before its index is complete.
const PREVIEW_BYTES: u64 = 128 * 1024;
/// The number of entries that are shown before the index is complete.
const PREVIEW_ENTRIES: usize = 60;
/// The number of transcripts whose indexes are kept. The least recently used one is dropped.
const MAX_INDEXES: usize = 8;
/// The number of raw lines that are read at a time.
const RAW_RECORDS: usize = 500;

/// The indexes of transcripts that were shown lately, the last one first.
#[derive(Default)]
pub(super) struct TranscriptCache(Mutex<Vec<(AttemptId, Arc<SharedIndex>)>>);

struct SharedIndex {
    index: Mutex<TranscriptIndex>,
    /// True while a thread in the background adds records.
    is_building: AtomicBool,
    /// True once the index had all records. Afterwards it is at most a moment behind.
    has_been_complete: AtomicBool,
    records: AtomicU64,
}

impl TranscriptCache {
    fn get(&self, attempt: AttemptId, dir: &FilePath) -> io::Result<Arc<SharedIndex>> {
        let mut indexes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = indexes.iter().position(|(known, _)| *known == attempt);
        let entry = match place {
            Some(place) => indexes.remove(place),
            None => {
                let index = Mutex::new(TranscriptIndex::new(dir)?);
                let shared = SharedIndex {
                    index,
                    is_building: AtomicBool::new(false),
                    has_been_complete: AtomicBool::new(false),
                    records: AtomicU64::new(0),
                };
                (attempt, Arc::new(shared))
            }
        };
        let shared = entry.1.clone();
        indexes.insert(0, entry);
        indexes.truncate(MAX_INDEXES);
        Ok(shared)
    }
}

impl SharedIndex {
    fn lock(&self) -> MutexGuard<'_, TranscriptIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the next records to the index. Returns false if there are no more records.
    fn step(&self, agents: &dyn Agents, attempt: AttemptId) -> Result<bool, Problem> {
        let mut index = self.lock();
        let lines = agents
            .complete_transcript(attempt, index.next_record, RECORDS_PER_STEP)
            .map_err(|error| Problem::new(500, "io", error.message, error.hint))?;
        for line in &lines {
            index.push_line(line).map_err(index_problem)?;
        }
        self.records.store(index.next_record - 1, Ordering::Relaxed);
        if lines.is_empty() {
            self.has_been_complete.store(true, Ordering::SeqCst);
        }
        Ok(!lines.is_empty())
    }

    /// Brings the index up to date. A long transcript is read by a thread in the background.
    /// Returns whether the index can be shown.
    fn update(
        self: &Arc<Self>,
        agents: &Arc<dyn Agents>,
        attempt: AttemptId,
    ) -> Result<bool, Problem> {
        let can_be_shown = self.has_been_complete.load(Ordering::SeqCst);
        if self.is_building.load(Ordering::SeqCst) {
            return Ok(can_be_shown);
        }
        // The end of a short transcript is all of it.
        let is_short = can_be_shown
            || agents
                .transcript_end(attempt, PREVIEW_BYTES)
                .map_err(|error| Problem::new(500, "io", error.message, error.hint))?
                .is_whole;
        for _ in 0..if is_short { STEPS_PER_REQUEST } else { 0 } {
            if !self.step(&**agents, attempt)? {
                return Ok(true);
            }
        }
        if self.is_building.swap(true, Ordering::SeqCst) {
            return Ok(can_be_shown);
        }
        let (shared, agents) = (self.clone(), agents.clone());
        let thread = std::thread::Builder::new().name("transcript".into());
        let spawned = thread.spawn(move || {
            let result = loop {
                match shared.step(&*agents, attempt) {
                    Ok(true) => {}
                    other => break other,
                }
            };
            shared.is_building.store(false, Ordering::SeqCst);
            if let Err(problem) = result {
                tracing::warn!(
                    "could not read the transcript of {attempt}: {}",
                    problem.message
                );
            }
        });
        if let Err(error) = spawned {
            self.is_building.store(false, Ordering::SeqCst);
            return Err(index_problem(error));
        }
        Ok(can_be_shown)
    }
}

fn index_problem(error: io::Error) -> Problem {
    Problem::new(
        500,
        "io",
        format!("could not store the entries of a log: {error}"),
        "check that the disk is not full: regatta doctor",
    )
}

fn parse_attempt(text: &str) -> Result<AttemptId, Problem> {
    text.parse().map_err(|_| {
        Problem::new(
            400,
            "bad_id",
            "the address does not contain an attempt's id",
            "see a task's attempts: regatta show T1",
        )
    })
}

#[derive(Deserialize)]
pub(super) struct WindowParams {
    /// The number of the first entry. Without it, the last entries are returned.
    from: Option<usize>,
    #[serde(default)]
    count: Option<usize>,
    /// The version of the index that the page has. Entries that have not changed since are left
    /// out.
    #[serde(default)]
    seen: u64,
    /// Return no entries while the daemon still reads the transcript, because the page shows the
    /// last entries already.
    #[serde(default)]
    has_preview: bool,
}

/// Handles `GET /api/v1/page/log/A5?from=0&count=50`: returns entries of a transcript.
pub(super) async fn log_window(
    State(shared): State<Arc<ServerState>>,
    Path(attempt): Path<String>,
    request_limits::QueryParams(params): request_limits::QueryParams<WindowParams>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    verbs::require_read_pages(&authenticated.principal)?;
    let attempt = parse_attempt(&attempt)?;
    let view = verbs::run_blocking(move || {
        let index = shared
            .live_caches
            .transcripts
            .get(attempt, &shared.data_dir)
            .map_err(index_problem)?;
        let agents = shared.engine.agents();
        if index.update(agents, attempt)? {
            return window(&index.lock(), &params);
        }
        let entries = if params.has_preview {
            vec![]
        } else {
            preview(&**agents, attempt, &shared.data_dir)?
        };
        Ok(TranscriptWindowView {
            is_complete: false,
            records: index.records.load(Ordering::Relaxed),
            total: 0,
            version: 0,
            entries,
            failures: vec![],
        })
    });
    Ok(axum::Json(view.await??).into_response())
}

/// Returns the last entries of a transcript, from the end of its journal only. Their numbers count
/// from the first one that is returned.
fn preview(
    agents: &dyn Agents,
    attempt: AttemptId,
    dir: &FilePath,
) -> Result<Vec<TranscriptEntryView>, Problem> {
    let end = agents
        .transcript_end(attempt, PREVIEW_BYTES)
        .map_err(|error| Problem::new(500, "io", error.message, error.hint))?;
    let mut index = TranscriptIndex::new(dir).map_err(index_problem)?;
    for line in &end.lines {
        index.push_line(line).map_err(index_problem)?;
    }
    let from = index.len().saturating_sub(PREVIEW_ENTRIES);
    entries(&index, from, PREVIEW_ENTRIES, 0)
}

fn window(index: &TranscriptIndex, params: &WindowParams) -> Result<TranscriptWindowView, Problem> {
    let count = params
        .count
        .unwrap_or(MAX_ENTRIES_PER_REQUEST)
        .min(MAX_ENTRIES_PER_REQUEST);
    let from = params
        .from
        .unwrap_or_else(|| index.len().saturating_sub(count));
    Ok(TranscriptWindowView {
        is_complete: true,
        records: index.next_record - 1,
        total: index.len() as u64,
        version: index.version(),
        entries: entries(index, from, count, params.seen)?,
        failures: index
            .failures()
            .iter()
            .copied()
            .take(MAX_FAILURES)
            .collect(),
    })
}

fn entries(
    index: &TranscriptIndex,
    from: usize,
    count: usize,
    seen: u64,
) -> Result<Vec<TranscriptEntryView>, Problem> {
    let (mut views, mut html_bytes) = (Vec::new(), 0);
    for number in from..index.len().min(from.saturating_add(count)) {
        if index.version_of(number) <= seen {
            continue;
        }
        let Some(entry) = index.entry(number).map_err(index_problem)? else {
            break;
        };
        let is_open = is_open_at_first(&entry);
        let html = entry_html(&entry, is_open);
        html_bytes += html.len();
        views.push(TranscriptEntryView {
            number: number as u64,
            class: entry_class(&entry).to_owned(),
            html,
            is_open,
        });
        if html_bytes > MAX_HTML_BYTES {
            break;
        }
    }
    Ok(views)
}

#[derive(Deserialize)]
pub(super) struct LinesParams {
    /// The first line, counted from 1. Without it, the whole body is returned, with long output
    /// folded.
    from: Option<usize>,
    to: Option<usize>,
    /// Return the text of the entry without colours, instead of HTML.
    #[serde(default)]
    plain: bool,
}

/// Handles `GET /api/v1/page/log/A5/12?from=1&to=500`: returns lines of one entry.
pub(super) async fn log_lines(
    State(shared): State<Arc<ServerState>>,
    Path((attempt, number)): Path<(String, usize)>,
    request_limits::QueryParams(params): request_limits::QueryParams<LinesParams>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    verbs::require_read_pages(&authenticated.principal)?;
    let attempt = parse_attempt(&attempt)?;
    let is_plain = params.plain;
    let found = verbs::run_blocking(move || {
        let index = shared
            .live_caches
            .transcripts
            .get(attempt, &shared.data_dir)
            .map_err(index_problem)?;
        index.update(shared.engine.agents(), attempt)?;
        let entry = index.lock().entry(number).map_err(index_problem)?;
        entry.ok_or_else(|| {
            Problem::new(
                404,
                "no_such_entry",
                format!("the log of {attempt} has no entry {number} yet"),
                format!("print the log: regatta logs {attempt}"),
            )
        })
    });
    let entry = found.await??;
    if is_plain {
        let text = if entry.text.is_empty() {
            entry.head.title
        } else {
            entry.text
        };
        return Ok(plain_text(strip_terminal_sequences(&text).into()));
    }
    let total = entry.text.trim_end().split('\n').count();
    let html = match params.from {
        None => body_html(&entry),
        Some(from) => {
            let to = params.to.unwrap_or(total).min(total);
            let last = from.saturating_add(MAX_LINES_PER_REQUEST - 1).min(to);
            lines_html(&entry.text, from, last)
        }
    };
    let view = TranscriptLinesView {
        html,
        total: total as u64,
    };
    Ok(axum::Json(view).into_response())
}

#[derive(Deserialize)]
pub(super) struct SearchParams {
    #[serde(default)]
    q: String,
}

/// Handles `GET /api/v1/page/log-search/A5?q=error`: returns the lines that contain a text.
pub(super) async fn log_search(
    State(shared): State<Arc<ServerState>>,
    Path(attempt): Path<String>,
    request_limits::QueryParams(params): request_limits::QueryParams<SearchParams>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    verbs::require_read_pages(&authenticated.principal)?;
    let attempt = parse_attempt(&attempt)?;
    if params.q.is_empty() {
        return Err(Problem::new(
            400,
            "no_query",
            "the search has no text",
            "add it to the address: ?q=error",
        )
        .into());
    }
    let found = verbs::run_blocking(move || {
        let index = shared
            .live_caches
            .transcripts
            .get(attempt, &shared.data_dir)
            .map_err(index_problem)?;
        let is_complete = index.update(shared.engine.agents(), attempt)?;
        let snapshot = index.lock().snapshot();
        let (hits, total) = snapshot
            .search(&params.q, MAX_HITS)
            .map_err(index_problem)?;
        Ok::<_, Problem>(TranscriptSearchView {
            total: total as u64,
            is_complete,
            hits: hits
                .into_iter()
                .map(|hit| TranscriptHitView {
                    entry: hit.entry as u64,
                    line: hit.line.map(|line| line as u64),
                })
                .collect(),
        })
    });
    Ok(axum::Json(found.await??).into_response())
}

/// Handles `GET /api/v1/page/log-raw/A5`: streams the lines of the program as plain text, as
/// `regatta logs --raw` prints them.
pub(super) async fn log_raw(
    State(shared): State<Arc<ServerState>>,
    Path(attempt): Path<String>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    verbs::require_read_pages(&authenticated.principal)?;
    let attempt = parse_attempt(&attempt)?;
    let agents = shared.engine.agents().clone();
    let lines = async_stream::stream! {
        let mut from = 1;
        loop {
            let agents = agents.clone();
            let read = verbs::run_blocking(move || agents.records(attempt, from, RAW_RECORDS)).await;
            let records = match read {
                Ok(Ok(records)) => records,
                Ok(Err(error)) => {
                    yield Err(io::Error::other(error.message));
                    return;
                }
                Err(problem) => {
                    yield Err(io::Error::other(problem.message));
                    return;
                }
            };
            let Some(last) = records.last() else { return };
            from = last.position + 1;
            let mut text = String::new();
            for record in &records {
                let sign = match record.stream {
                    JournalStream::In | JournalStream::InEnd => '<',
                    JournalStream::Out => '>',
                    JournalStream::Err => '!',
                    JournalStream::Mark => '#',
                };
                text.push(sign);
                text.push(' ');
                text.push_str(&record.line);
                text.push('\n');
            }
            yield Ok(text);
        }
    };
    Ok(plain_text(axum::body::Body::from_stream(lines)))
}

fn plain_text(body: axum::body::Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}
