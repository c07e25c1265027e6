//! What the web page is given: topics of whole entities, drawn from the board and the history.
//!
//! [`live`] sends what changed of the topics a browser looks at; [`lanes`] remembers what the agents were at; [`markup`]
//! makes agents' text harmless; [`diff`] and [`log`] draw what is long. Every status comes from the views of
//! `regatta-api`.

mod act; // what may be done, and how it is typed
mod diff; // a change, file by file
mod draw; // one function for each topic
mod graph; // what waits for what
mod lanes; // what the agents were at
mod live; // what changed, to browsers
mod log; // what a program said
mod markup; // text of others, made harmless
mod task; // one task

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

/// How many changes of each file landed.
type Heat = BTreeMap<String, u32>;

/// What is kept for the pages.
#[derive(Default)]
pub(crate) struct Pages {
    lanes: lanes::Lanes,
    topics: live::Topics,
    patches: diff::Patches,
    /// Tasks that ended, by when.
    ended: Mutex<BTreeMap<TaskId, (u64, Arc<Task>)>>,
    /// The tasks of missions that ended.
    over: Mutex<BTreeMap<MissionId, graph::Over>>,
    landings: Mutex<BTreeMap<ProjectName, (draw::EndedKey, draw::Ended)>>,
    /// How many changes of each file landed today.
    heat: Mutex<BTreeMap<ProjectName, (draw::EndedKey, Heat)>>,
    /// How many browsers look.
    looking: AtomicUsize,
}

/// The addresses of the pages' own data.
pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/v1/live", get(live::live))
        .route("/api/v1/page/diff/{task}", get(diff::list))
        .route("/api/v1/page/diff/{task}/{file}", get(diff::one))
        .route("/api/v1/page/log/{attempt}", get(log::log))
}

/// Looks at the lanes whenever the board changes, as long as the daemon is up.
pub(crate) async fn watch(shared: Arc<Shared>) {
    lanes::watch(shared).await;
}
