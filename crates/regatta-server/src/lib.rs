//! The doors: HTTP on loopback and on a unix socket, with a token always, and events as a stream.
//!
//! [`guard`] decides who gets in; [`calls`] carries out the verbs of `regatta-api`'s table on the engine;
//! [`stream`] sends events from any revision on. Nothing here decides a rule or computes a status.

mod audit; // who asked for which change
mod calls; // one arm per verb
mod entered; // a request that passed the guard
mod git; // a vault over HTTP, for runners
mod guard; // token, Host, Origin
mod limit; // how much each caller may ask
mod listen; // connections and where they come from
mod mcp; // the verbs as tools
mod names; // readable names
mod seed; // the surface that older clients know
mod stream; // events as they are committed
pub mod tokens; // who a caller is

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use regatta_api::Problem;
use regatta_engine::Engine;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use audit::Audit;
use entered::Entered;
use limit::Limiter;
use listen::Line;
use tokens::Keyring;

/// The largest request body: a plan of a thousand tasks fits.
const LARGEST_BODY: usize = 8 * 1024 * 1024;

/// What the doors need.
pub struct Doors {
    pub engine: Engine,
    /// What callers must show.
    pub keyring: Keyring,
    pub tcp: TcpListener,
    pub unix: Option<UnixListener>,
    /// The data directory, where who asked for what is written down.
    pub dir: PathBuf,
}

/// What [`serve`] ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody asked over a door.
    Down,
    /// The caller's own signal.
    Signalled,
}

/// What every handler shares.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) keyring: Keyring,
    pub(crate) limiter: Limiter,
    pub(crate) audit: Audit,
    pub(crate) address: SocketAddr,
    pub(crate) down: watch::Sender<Option<Ended>>,
}

/// Serves until somebody asks for `down` or `signal` ends. Requests under way are finished first.
pub async fn serve(doors: Doors, signal: impl Future<Output = ()> + Send + 'static) -> std::io::Result<Ended> {
    let address = doors.tcp.local_addr()?;
    let (down, mut asked) = watch::channel(None);
    let shared = Arc::new(Shared {
        engine: doors.engine,
        keyring: doors.keyring,
        limiter: Limiter::default(),
        audit: Audit::open(&doors.dir)?,
        address,
        down: down.clone(),
    });
    let router = router(shared.clone());
    tokio::spawn(async move {
        signal.await;
        down.send_if_modified(|it| {
            let first = it.is_none();
            it.get_or_insert(Ended::Signalled);
            first
        });
    });
    let line = Line { router, open: Arc::default(), ended: asked.clone() };
    let over_tcp = listen::over_tcp(doors.tcp, line.clone());
    let over_unix = async {
        if let Some(unix) = doors.unix {
            listen::over_unix(unix, line).await;
        }
    };
    // A stream or a long poll that does not let go must not keep the daemon from ending.
    let mut closing = asked.clone();
    let patience = async {
        ended(&mut closing).await;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    };
    tokio::select! {
        _both = async { tokio::join!(over_tcp, over_unix) } => {}
        () = patience => {}
    }
    let ended = *asked.borrow_and_update();
    Ok(ended.unwrap_or(Ended::Signalled))
}

/// Waits until the doors close.
pub(crate) async fn ended(asked: &mut watch::Receiver<Option<Ended>>) {
    let _sender_gone = asked.wait_for(Option::is_some).await;
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/api/v1/events", get(stream::events))
        .route("/api/v1/{verb}", post(call))
        .route("/api/v1/openapi.json", get(|| async { axum::Json(regatta_api::openapi::document()) }))
        .route("/api/v1/", get(|| async { axum::response::Html(regatta_api::openapi::page()) }))
        .route("/api/agents", get(seed::agents).post(seed::register))
        .route("/me", get(seed::me))
        .route("/api/poll", get(seed::poll).post(seed::poll))
        .route("/api/tasks", post(seed::add_task))
        .route("/api/tasks/{id}/{what}", post(seed::tell))
        .route("/mcp", post(mcp::post).fallback(mcp::no_stream))
        .route("/git/{project}/info/refs", get(git::refs))
        .route("/git/{project}/{service}", post(git::serve))
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(|| async {
            problem(&Problem::new(
                404,
                "no_such_page",
                "there is nothing at this address",
                "verbs are called with POST /api/v1/VERB",
            ))
        })
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(axum::middleware::from_fn_with_state(shared.clone(), guard::check))
        .with_state(shared)
}

async fn call(
    State(shared): State<Arc<Shared>>,
    Path(verb): Path<String>,
    entered: Entered,
    body: axum::body::Bytes,
) -> Response {
    let answer = async { calls::perform(&shared, entered.guest()?, &verb, &body).await };
    match answer.await {
        Ok(answer) => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(error) => problem(&error),
    }
}

/// A problem as an answer, so that a handler may end with `?`.
pub(crate) struct Refused(Problem);

impl From<Problem> for Refused {
    fn from(it: Problem) -> Refused {
        Refused(it)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        problem(&self.0)
    }
}

/// A problem as a response (RFC 9457).
pub(crate) fn problem(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_vec(problem).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
}
