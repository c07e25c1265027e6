//! The data of the web page: topics, each a set of whole entities, built from the board and the
//! history.
//!
//! [`live`] sends the changes of the topics that a browser watches. [`lanes`] records the states of
//! agents over time. [`markup`] makes agents' text harmless. [`diff`] and [`log`] render long
//! texts. Every status comes from the views of `regatta-api`.

mod act; // actions and their shell commands
mod diff; // diffs, file by file
mod draw; // the entities of each topic
mod graph; // dependency graphs
mod lanes; // the states of agents over time
mod live; // the stream of changes to browsers
mod log; // transcripts as HTML
mod markup; // makes untrusted text harmless
mod task; // the page of one task

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use regatta_core::ids::{MissionId, ProjectName, TaskId};
use regatta_core::task::Task;

use crate::Shared;

pub(crate) use act::who_plans;
pub(crate) use draw::{Counts, landed_of, row};
pub(crate) use graph::{Of, graph};
pub(crate) use lanes::family;

/// Number of landed changes per file.
type Heat = BTreeMap<String, u32>;

/// Caches of the pages.
#[derive(Default)]
pub(crate) struct Pages {
    lanes: lanes::Lanes,
    topics: live::Topics,
    patches: diff::Patches,
    /// Ended tasks with the date of their end.
    ended: Mutex<BTreeMap<TaskId, (u64, Arc<Task>)>>,
    /// Tasks of missions that have ended.
    over: Mutex<BTreeMap<MissionId, graph::Over>>,
    landings: Mutex<BTreeMap<ProjectName, (draw::EndedKey, draw::Ended)>>,
    /// Number of changes that landed today, per file.
    heat: Mutex<BTreeMap<ProjectName, (draw::EndedKey, Heat)>>,
    /// Number of connected browsers.
    looking: AtomicUsize,
}

/// Returns the routes of the page's own data.
pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/v1/live", get(live::live))
        .route("/api/v1/page/diff/{task}", get(diff::list))
        .route("/api/v1/page/diff/{task}/{file}", get(diff::one))
        .route("/api/v1/page/log/{attempt}", get(log::log))
}

/// Records the states of the lanes when the board changes, until the daemon ends.
pub(crate) async fn watch(shared: Arc<Shared>) {
    lanes::watch(shared).await;
}
