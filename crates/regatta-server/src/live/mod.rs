//! The live data of the web page. The data is divided into topics, such as `inbox` or `queue`. A
//! topic is a set of entities (units of data that are sent as a whole), which are built from the
//! daemon's state in memory and from the store.
//!
//! [`stream`] sends the changes of the topics that a browser watches. [`agent_timelines`] records the states
//! of agents over time. [`sanitize`] removes dangerous markup from agents' text. [`diff`] and
//! [`transcript_routes`] render long texts. Every status comes from the views of `regatta-api`.

mod actions; // actions and their shell commands
mod agent_list; // windows of the list of agents
mod agent_timelines; // the states of agents over time
mod change_sizes; // the lines of changes in review
mod diff; // diffs, file by file
mod ended_work; // cached figures of ended work
mod event_list; // windows of the list of events
mod file_conflicts; // tasks that need the same files
mod graph; // dependency graphs
mod inbox_items; // what needs a person, with buttons
mod markdown; // Markdown of agents as HTML
mod mission; // the page of one mission, and the list of missions
mod mission_history; // decisions and agents on the page of one mission
mod queue_page; // the pages of landing queues
mod sanitize; // makes untrusted text harmless
mod stream; // the stream of changes to browsers
mod task; // the page of one task
mod task_details; // long parts of a task's page
mod task_list; // windows of the list of tasks
mod task_row; // the rows of tasks
mod texts; // figures in words
mod topics; // the entities of each topic
mod transcript_entries; // groups the events of a transcript
mod transcript_html; // entries of a transcript as HTML
mod transcript_index; // stored entries of a transcript, by number
mod transcript_routes; // the requests for transcripts

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use regatta_core::ids::{MissionId, ProjectName, TaskId};
use regatta_core::task::Task;

use crate::ServerState;

pub(crate) use actions::{new_button, planner_choice};
pub(crate) use graph::{GraphScope, build_graph};
pub(crate) use task_row::task_row;

/// For each file, the number of landed changes that touched the file.
type LandedCounts = BTreeMap<String, u32>;

/// Caches of the web page's data, shared by all browsers.
#[derive(Default)]
pub(crate) struct LiveCaches {
    lanes: agent_timelines::LaneHistory,
    change_sizes: change_sizes::ChangeSizes,
    topics: stream::TopicCache,
    patches: diff::PatchCache,
    transcripts: transcript_routes::TranscriptCache,
    /// Recently shown ended tasks, with the time of their end.
    ended_tasks: Mutex<BTreeMap<TaskId, (u64, Arc<Task>)>>,
    /// Ended tasks of recently shown missions.
    ended_mission_tasks: Mutex<BTreeMap<MissionId, graph::EndedMissionTasks>>,
    missions: mission::MissionCaches,
    ended_landings: Mutex<BTreeMap<ProjectName, (topics::EndedLandingsKey, topics::EndedLandings)>>,
    /// For each project, the number of today's landed changes that touched each file.
    landed_today: Mutex<BTreeMap<ProjectName, (topics::EndedLandingsKey, LandedCounts)>>,
    changed_lines: task_list::ChangedLines,
    last_tools: agent_list::LastTools,
    /// Number of browsers that receive live data at present.
    connected_browsers: AtomicUsize,
}

/// Returns the HTTP routes for the data that only the web page uses.
pub(crate) fn routes() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/api/v1/live", get(stream::live_stream))
        .route("/api/v1/page/tasks", get(task_list::task_window))
        .route("/api/v1/page/agents", get(agent_list::agent_window))
        .route("/api/v1/page/events", get(event_list::event_window))
        .route(
            "/api/v1/page/events/{revision}",
            get(event_list::event_data),
        )
        .route("/api/v1/page/diff/{task}", get(diff::list_files))
        .route("/api/v1/page/diff/{task}/{file}", get(diff::file_parts))
        .route(
            "/api/v1/page/diff/{task}/{file}/lines",
            get(diff::context_lines),
        )
        .route(
            "/api/v1/page/task/{task}/checks",
            get(task_details::task_checks),
        )
        .route(
            "/api/v1/page/attempt/{attempt}/result",
            get(task_details::attempt_result),
        )
        .route(
            "/api/v1/page/log/{attempt}",
            get(transcript_routes::log_window),
        )
        .route(
            "/api/v1/page/log/{attempt}/{entry}",
            get(transcript_routes::log_lines),
        )
        .route(
            "/api/v1/page/log-search/{attempt}",
            get(transcript_routes::log_search),
        )
        .route(
            "/api/v1/page/log-raw/{attempt}",
            get(transcript_routes::log_raw),
        )
}

/// Records the states of agents for the page's timeline after each change of the board (the
/// daemon's state in memory), until the daemon ends.
pub(crate) async fn record_lanes(shared: Arc<ServerState>) {
    agent_timelines::record_lanes(shared).await;
}
