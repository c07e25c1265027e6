//! The doors: HTTP on loopback and on a unix socket, with a token always, and events as a stream.
//!
//! [`guard`] decides who gets in; [`calls`] carries out the verbs of `regatta-api`'s table on the engine;
//! [`stream`] sends events from any revision on. Nothing here decides a rule or computes a status.

mod calls; // one arm per verb
mod git; // a vault over HTTP, for runners
mod guard; // token, Host, Origin
mod limit; // how much each caller may ask
mod mcp; // the verbs as tools
mod names; // readable names
mod seed; // the surface that older clients know
mod stream; // events as they are committed
pub mod tokens; // who a caller is

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Extension, Router};
use regatta_api::verb::{Scope, Verb};
use regatta_api::{Call, Problem};
use regatta_core::command::Actor;
use regatta_core::ids::{AgentName, RequestKey};
use regatta_engine::Engine;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use calls::Guest;
use limit::Limiter;
use tokens::{Keyring, Visitor};

/// The largest request body: a plan of a thousand tasks fits.
const LARGEST_BODY: usize = 8 * 1024 * 1024;

/// What the doors need.
pub struct Doors {
    pub engine: Engine,
    /// What callers must show.
    pub keyring: Keyring,
    pub tcp: TcpListener,
    pub unix: Option<UnixListener>,
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
    // Nagle's algorithm would hold small answers back for 40 ms.
    let tcp = doors.tcp.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("no-delay was not set: {error}");
        }
    });
    let over_tcp = axum::serve(tcp, router.clone()).with_graceful_shutdown(ended(asked.clone()));
    let over_unix = async {
        match doors.unix {
            Some(unix) => axum::serve(unix, router).with_graceful_shutdown(ended(asked.clone())).await,
            None => Ok(()),
        }
    };
    let both = async { tokio::try_join!(async { over_tcp.await }, over_unix) };
    // A stream or a long poll that does not let go must not keep the daemon from ending.
    let patience = async {
        ended(asked.clone()).await;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    };
    tokio::select! {
        served = both => { served?; }
        () = patience => {}
    }
    let ended = *asked.borrow_and_update();
    Ok(ended.unwrap_or(Ended::Signalled))
}

async fn ended(mut asked: watch::Receiver<Option<Ended>>) {
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
    Extension(visitor): Extension<Visitor>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Response {
    let answer = async {
        // Who may not call it does not learn what it takes.
        if let Some(verb) = Verb::find(&verb) {
            calls::may(&visitor, verb)?;
        }
        let guest = guest(visitor, &headers)?;
        calls::carry_out(&shared, Call::parse(&verb, &body)?, guest).await
    };
    match answer.await {
        Ok(answer) => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(error) => problem(&error),
    }
}

/// What a visitor's writes are signed with, and what it calls this request. Only who can read the data directory may
/// say which person it is; everybody else is who the token says.
pub(crate) fn guest(visitor: Visitor, headers: &HeaderMap) -> Result<Guest, Problem> {
    let by = match &visitor {
        Visitor::Owner => headers
            .get("x-regatta-person")
            .and_then(|it| it.to_str().ok())
            .filter(|it| it.len() <= 64 && it.bytes().all(|it| it.is_ascii_graphic()))
            .map_or(Actor::Person("operator".into()), |it| Actor::Person(it.into())),
        Visitor::Named { name, scope: Scope::Runner } => {
            Actor::Agent(AgentName::new(&format!("runner/{name}")).map_err(|_| bad_key())?)
        }
        Visitor::Named { name, .. } => Actor::Person(name.clone()),
        Visitor::Attempt { agent, .. } => Actor::Agent(agent.clone()),
    };
    let key = match headers.get("idempotency-key") {
        None => None,
        Some(given) => {
            let given = given.to_str().map_err(|_| bad_key())?;
            // Nobody finds another's answers, or spoils them, by using the same key.
            let given = match &visitor {
                Visitor::Owner => given.to_owned(),
                other => format!("{}/{given}", other.label()),
            };
            Some(RequestKey::new(&given).map_err(|_| bad_key())?)
        }
    };
    Ok(Guest { visitor, by, key })
}

fn bad_key() -> Problem {
    Problem::new(400, "bad_key", "the Idempotency-Key cannot be used", "send 1 to 200 printable ASCII characters")
}

/// A problem as a response (RFC 9457).
pub(crate) fn problem(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_vec(problem).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
}
