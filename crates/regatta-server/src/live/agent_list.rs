//! Answers the page's requests for a window of the list of agents, with the tool that each agent
//! uses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_api::agent_list::{
    AgentListQuery, AgentListRow, AgentWindow, ContextBand, select_agents,
};
use regatta_api::live_view::AgentLaneView;
use regatta_core::agent_protocol::{AgentEvent, ToolCall};
use regatta_core::attempt::Attempt;
use regatta_core::ids::{AgentName, AttemptId};
use regatta_engine::ports::agents::Agents;

use super::topics::TopicContext;
use crate::authenticated::Authenticated;
use crate::verbs::run_blocking;
use crate::{ProblemResponse, ServerState, request_limits, verbs};

/// Number of records that one read of a transcript returns, and the maximum for one request. If
/// transcripts are longer, the next requests continue.
const RECORDS_PER_READ: usize = 500;
const MAX_RECORDS_PER_REQUEST: usize = 10_000;
/// Number of components of a path that a row shows, from the end.
const SHOWN_PATH_PARTS: usize = 3;
/// Maximum length of the description of a tool, in characters.
const MAX_TOOL_CHARS: usize = 120;

/// The tool that the program of each live attempt used last.
#[derive(Default)]
pub(super) struct LastTools {
    by_attempt: Mutex<BTreeMap<AttemptId, LastTool>>,
}

/// The tool that a program used last, and the number of the record at which reading continues.
#[derive(Default)]
struct LastTool {
    next_record: u64,
    text: Option<String>,
}

impl LastTool {
    /// Reads the records since the last call, at most `max_records`. Returns the number of records.
    fn read_on(&mut self, agents: &dyn Agents, attempt: AttemptId, max_records: usize) -> usize {
        let mut count = 0;
        while count < max_records {
            let lines = match agents.transcript(attempt, self.next_record, RECORDS_PER_READ) {
                Ok(lines) => lines,
                Err(error) => {
                    tracing::debug!("could not read the tools of {attempt}: {error}");
                    break;
                }
            };
            let Some(last) = lines.last() else { break };
            self.next_record = last.record.position + 1;
            count += lines.len();
            for event in lines.iter().flat_map(|line| &line.events) {
                match event {
                    AgentEvent::Tool(tool) => self.text = Some(tool_text(tool)),
                    AgentEvent::TurnStarted { .. } => self.text = None,
                    _ => {}
                }
            }
        }
        count
    }
}

impl LastTools {
    /// Returns the last tool of each of these attempts, and forgets all other attempts.
    fn read(
        &self,
        agents: &dyn Agents,
        attempts: &[AttemptId],
        is_live: impl Fn(&AttemptId) -> bool,
    ) -> BTreeMap<AttemptId, String> {
        let mut tools = self
            .by_attempt
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        tools.retain(|attempt, _| is_live(attempt));
        let (mut found, mut remaining) = (BTreeMap::new(), MAX_RECORDS_PER_REQUEST);
        for attempt in attempts {
            let tool = tools.entry(*attempt).or_default();
            remaining = remaining.saturating_sub(tool.read_on(agents, *attempt, remaining));
            found.extend(tool.text.clone().map(|text| (*attempt, text)));
        }
        found
    }
}

/// Describes a tool call in a few words: its command, its first file, or its title.
fn tool_text(tool: &ToolCall) -> String {
    let kind = serde_json::to_value(tool.kind).ok();
    let kind = kind
        .as_ref()
        .and_then(|kind| kind.as_str())
        .unwrap_or("use");
    let text = match (&tool.command, tool.paths.first(), tool.urls.first()) {
        (Some(command), _, _) => command.clone(),
        (None, Some(path), _) => format!("{kind} {}", end_of_path(path)),
        (None, None, Some(url)) => format!("{kind} {url}"),
        (None, None, None) => tool.title.clone(),
    };
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(MAX_TOOL_CHARS).collect()
}

/// Returns the last parts of a path, because the path of a workspace is the same for all files.
fn end_of_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    parts[parts.len().saturating_sub(SHOWN_PATH_PARTS)..].join("/")
}

/// Handles `GET /api/v1/page/agents?text=codex&at=needs&sort=-context&offset=60`: returns a window
/// of the list of agents, with the number of matching agents in each state and of each provider.
pub(super) async fn agent_window(
    State(shared): State<Arc<ServerState>>,
    request_limits::QueryParams(query): request_limits::QueryParams<AgentListQuery>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    verbs::require_read_pages(&authenticated.principal)?;
    let window = run_blocking(move || build_window(&shared, &query)).await??;
    Ok(axum::Json(window).into_response())
}

fn build_window(shared: &ServerState, query: &AgentListQuery) -> Result<AgentWindow, Problem> {
    let (board, now) = (shared.engine.board(), shared.engine.now());
    shared.live_caches.lanes.record(&board, now);
    let context = TopicContext {
        board: &board,
        now,
        shared,
        history: &**shared.engine.history(),
    };
    let found = select_agents(context.lanes(), query)?;
    let mut working: BTreeMap<&AgentName, &Arc<Attempt>> = BTreeMap::new();
    for attempt in board.attempts.values() {
        working.entry(&attempt.agent).or_insert(attempt);
    }
    let attempt_of = |lane: &AgentLaneView| working.get(&lane.agent).copied();
    let supervised: Vec<AttemptId> = found
        .lanes
        .iter()
        .filter_map(attempt_of)
        .filter(|attempt| attempt.supervised)
        .map(|attempt| attempt.id)
        .collect();
    let agents = &**shared.engine.agents();
    let is_live = |attempt: &AttemptId| board.attempts.contains_key(attempt);
    let tools = shared
        .live_caches
        .last_tools
        .read(agents, &supervised, is_live);
    let row = |lane: AgentLaneView| {
        let attempt = attempt_of(&lane).map(|attempt| attempt.id);
        let band = lane.context.map(ContextBand::from_percent);
        AgentListRow {
            doing: attempt.and_then(|id| tools.get(&id).cloned()),
            heard_wall: attempt.and_then(|id| agents.last_record_unix_ms(id)),
            attempt,
            band,
            advice: band.map(ContextBand::advice).unwrap_or_default().to_owned(),
            lane,
        }
    };
    Ok(AgentWindow {
        revision: board.revision,
        total: found.total,
        all: found.all,
        counts: found.counts,
        providers: found.providers,
        offset: query.offset,
        rows: found.lanes.into_iter().map(row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use regatta_core::agent_protocol::ToolKind;

    use super::*;

    #[test]
    fn a_tool_is_described_by_its_command_or_the_end_of_its_path() {
        let tool = |command: Option<&str>, path: Option<&str>| ToolCall {
            title: "Some tool".into(),
            kind: ToolKind::Edit,
            command: command.map(str::to_owned),
            paths: path.map(str::to_owned).into_iter().collect(),
            ..ToolCall::default()
        };
        for (command, path, text) in [
            (Some("cargo test\n--all"), Some("/a"), "cargo test"),
            (
                None,
                Some("/data/A5/src/auth/login.rs"),
                "edit src/auth/login.rs",
            ),
            (None, Some("login.rs"), "edit login.rs"),
            (None, None, "Some tool"),
        ] {
            assert_eq!(tool_text(&tool(command, path)), text);
        }
    }
}
