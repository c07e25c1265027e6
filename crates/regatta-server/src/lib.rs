//! The HTTP server: on loopback, on a unix socket and, if configured, for other machines. Every
//! request needs a token, with few exceptions.
//!
//! [`guard`] authenticates callers, [`calls`] carries out the verbs of `regatta-api` on the engine,
//! and [`stream`] sends events from any revision on.
//!
//! Not here: rules and status. They come from regatta-core.

mod attachments; // attachments of messages
mod audit; // the audit log of all writes
mod bounds; // limits of requests
mod calls; // the implementation of the verbs
mod entered; // an authenticated request
mod git; // a vault over HTTP, for runners
mod guard; // authentication: token, Host, Origin
mod health; // health checks and metrics
mod hub; // fan-out of events to many readers
mod limit; // rate limits per caller
mod listen; // connections and their origins
mod mcp; // the verbs as MCP tools
mod meters; // metrics
mod page; // pagination
mod pages; // the data of the web page
mod seed; // the API of older clients
mod spent; // cost, computed from the event log
mod stream; // the stream of events
pub mod tls; // TLS for callers on other machines
pub mod tokens; // tokens and the callers they identify
pub mod trace; // spans for an OTLP collector
mod web; // the page's files, and the sign-in of browsers

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use regatta_api::Problem;
use regatta_api::page::DoctorView;
use regatta_api::verb::Verb;
use regatta_api::view::AgentView;
use regatta_core::conversation::Service;
use regatta_core::ids::AgentName;
use regatta_engine::Engine;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tower_service::Service as _;

use audit::Audit;
use entered::Entered;
use hub::Hub;
use limit::Limiter;
use listen::{Line, Origin};
use meters::Meters;
use page::Paging;
use tls::Tls;
use tokens::Keyring;
use trace::{Collector, Tracer};

/// The configuration of the server.
pub struct Doors {
    pub engine: Engine,
    /// The tokens that callers must present.
    pub keyring: Keyring,
    /// The listener on loopback, for programs on this machine.
    pub tcp: TcpListener,
    /// The listener for other machines, if there is one.
    pub outside: Option<Outside>,
    pub unix: Option<UnixListener>,
    /// The data directory, which holds the audit log.
    pub dir: PathBuf,
    /// The collector of traces, if there is one.
    pub traces: Option<Collector>,
    /// The directory to serve the web page from, instead of the built-in page.
    pub web_dir: Option<PathBuf>,
    /// A text about the recovery from a daemon that crashed.
    pub recovered: Option<String>,
    /// Conversations in outside services, if bridges are configured.
    pub bridges: Option<Box<dyn Bridges>>,
    /// Checks this machine.
    pub doctor: Doctor,
    /// Reads plans.
    pub plans: Plans,
    /// Applies the settings files of projects.
    pub config: Config,
}

/// The operations that the server needs from the bridges.
pub trait Bridges: Send + Sync {
    /// Returns all pairs of agent and service, on or off.
    fn list(&self) -> Vec<regatta_api::view::BridgeView>;
    /// Pauses or resumes an agent's bridges. Returns the number of bridges.
    fn pause(&self, agent: &AgentName, service: Option<Service>, paused: bool) -> usize;
    /// Returns the router for deliveries below `/webhooks/`. Deliveries are authenticated by their
    /// signatures.
    fn router(&self) -> Router;
}

/// Checks this machine for the needs of the daemon's agents, projects and bridges.
pub type Doctor = Arc<dyn Fn(&Patient) -> DoctorView + Send + Sync>;

/// The input of a doctor.
#[derive(Debug, Default)]
pub struct Patient {
    pub agents: Vec<AgentView>,
    /// Each project, with the path of its repository.
    pub projects: Vec<(regatta_core::ids::ProjectName, PathBuf)>,
    pub bridges: Vec<regatta_api::view::BridgeView>,
}

/// Applies the settings files of projects that have changed, and returns the files that cannot be applied.
pub type Config = Arc<dyn Fn() -> Vec<regatta_api::view::ConfigFault> + Send + Sync>;

/// Parses the plan in an agent's answer, or returns the error in it.
pub type Plans = Arc<dyn Fn(&str) -> Result<PlanRead, String> + Send + Sync>;

/// A parsed plan.
#[derive(Debug, Default)]
pub struct PlanRead {
    pub tasks: Vec<regatta_api::input::PlannedTask>,
    /// Problems that would prevent a task from starting.
    pub warnings: Vec<String>,
}

/// A listener for callers on other machines.
pub struct Outside {
    pub tcp: TcpListener,
    /// Without TLS, everybody on the network path can read along.
    pub tls: Option<Tls>,
    /// The names that callers may use for it besides its addresses.
    pub hosts: Vec<String>,
}

/// The reason why [`serve`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A caller requested it.
    Down,
    /// The caller's own signal arrived.
    Signalled,
}

/// The state that all handlers share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) keyring: Keyring,
    pub(crate) limiter: Limiter,
    pub(crate) audit: Audit,
    pub(crate) meters: Meters,
    pub(crate) hub: Hub,
    pub(crate) tracer: Option<Tracer>,
    pub(crate) address: SocketAddr,
    /// Additional host names of this server.
    pub(crate) hosts: Vec<String>,
    pub(crate) down: watch::Sender<Option<Ended>>,
    /// The data directory.
    pub(crate) dir: PathBuf,
    /// Number of requests for generated names.
    pub(crate) names: std::sync::atomic::AtomicU64,
    pub(crate) web: web::Source,
    pub(crate) codes: web::enter::Codes,
    /// Permits to run git for another machine.
    pub(crate) git_turns: Arc<Semaphore>,
    pub(crate) pages: pages::Pages,
    /// The part of the event log that was read so far.
    pub(crate) past: regatta_engine::past::Past,
    pub(crate) spent: spent::Spent,
    pub(crate) recovered: Option<String>,
    pub(crate) bridges: Option<Box<dyn Bridges>>,
    pub(crate) doctor: Doctor,
    pub(crate) plans: Plans,
    pub(crate) config: Config,
}

/// Serves until a caller requests `down` or `signal` completes. Requests under way are finished
/// first.
pub async fn serve(doors: Doors, signal: impl Future<Output = ()> + Send + 'static) -> std::io::Result<Ended> {
    let address = doors.tcp.local_addr()?;
    let (down, mut asked) = watch::channel(None);
    let shared = Arc::new(Shared {
        engine: doors.engine,
        keyring: doors.keyring,
        limiter: Limiter::default(),
        audit: Audit::open(&doors.dir)?,
        meters: Meters::default(),
        hub: Hub::new(),
        tracer: doors.traces.map(Tracer::new).transpose()?,
        address,
        hosts: doors.outside.as_ref().map(|it| it.hosts.clone()).unwrap_or_default(),
        down: down.clone(),
        dir: doors.dir,
        names: std::sync::atomic::AtomicU64::default(),
        web: web::Source::of(doors.web_dir),
        codes: web::enter::Codes::default(),
        git_turns: Arc::new(Semaphore::new(git::AT_ONCE)),
        pages: pages::Pages::default(),
        past: regatta_engine::past::Past::default(),
        spent: spent::Spent::default(),
        recovered: doors.recovered,
        bridges: doors.bridges,
        doctor: doors.doctor,
        plans: doors.plans,
        config: doors.config,
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
    let background = [
        tokio::spawn(tell_readers(shared.clone())),
        tokio::spawn(send_traces(shared.clone())),
        tokio::spawn(keep_audit(shared.clone())),
        tokio::spawn(pages::watch(shared.clone())),
    ];
    let line = Line { shared: shared.clone(), router, open: shared.meters.connections.clone(), ended: asked.clone() };
    let over_tcp = listen::over_tcp(doors.tcp, None, line.clone());
    let from_outside = async {
        if let Some(outside) = doors.outside {
            listen::over_tcp(outside.tcp, outside.tls, line.clone()).await;
        }
    };
    let over_unix = async {
        if let Some(unix) = doors.unix {
            listen::over_unix(unix, line.clone()).await;
        }
    };
    // A stream or a long poll that does not end must not keep the daemon from ending.
    let mut closing = asked.clone();
    let patience = async {
        ended(&mut closing).await;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    };
    tokio::select! {
        _all = async { tokio::join!(over_tcp, from_outside, over_unix) } => {}
        () = patience => {}
    }
    background.iter().for_each(tokio::task::JoinHandle::abort);
    shared.audit.sync().await;
    if let Some(tracer) = &shared.tracer {
        let _cut = tokio::time::timeout(std::time::Duration::from_secs(1), tracer.send_all(true)).await;
    }
    let ended = *asked.borrow_and_update();
    Ok(ended.unwrap_or(Ended::Signalled))
}

async fn tell_readers(shared: Arc<Shared>) {
    shared.hub.run(&shared).await;
}

async fn keep_audit(shared: Arc<Shared>) {
    shared.audit.keep_synced().await;
}

async fn send_traces(shared: Arc<Shared>) {
    if let Some(tracer) = &shared.tracer {
        tracer.run().await;
    }
}

/// Waits until the server is asked to end.
pub(crate) async fn ended(asked: &mut watch::Receiver<Option<Ended>>) {
    let _sender_gone = asked.wait_for(Option::is_some).await;
}

fn router(shared: Arc<Shared>) -> Router {
    // Requests of git have their own limits, because they may be large and are streamed.
    let git = Router::new()
        .route("/git/{project}/info/refs", get(git::refs))
        .route("/git/{project}/{service}", post(git::serve));
    // Deliveries are signed over their raw body, and have their own limits.
    let deliveries = shared.bridges.as_ref().map(|it| it.router());
    let deliveries = deliveries.map_or_else(Router::new, |it| Router::new().nest_service("/webhooks", it));
    Router::new()
        .route("/api/v1/events", get(stream::events))
        .route("/api/v1/{verb}", post(call_named))
        .route("/api/v1/openapi.json", get(document))
        .route("/api/v1/", get(|| async { axum::response::Html(regatta_api::openapi::page()) }))
        .route("/api/agents", get(seed::agents).post(seed::register))
        .route("/me", get(seed::me))
        .route("/api/poll", get(seed::poll).post(seed::poll))
        .route("/close", post(seed::close))
        .route("/ping", post(seed::ping))
        .route("/api/tasks", post(seed::add_task))
        .route("/api/tasks/{id}/{what}", post(seed::tell))
        .route("/mcp", post(mcp::post).fallback(mcp::no_stream))
        .route("/enter", post(web::enter::enter))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .merge(pages::routes())
        .fallback(|| async {
            problem(&Problem::new(
                404,
                "no_such_page",
                "there is nothing at this address",
                "call a verb with POST /api/v1/VERB",
            ))
        })
        .method_not_allowed_fallback(bounds::wrong_method)
        // A handler gets only bodies that are complete and small enough.
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn(bounds::whole))
        .merge(git)
        .merge(deliveries)
        .layer(axum::middleware::from_fn_with_state(shared.clone(), web::serve))
        .with_state(shared)
}

/// Answers one request. Calls of verbs are most of the traffic, so they bypass the router. The
/// router has everything else, including calls of verbs in unusual forms.
async fn answer(shared: Arc<Shared>, mut router: Router, origin: Origin, mut request: Request) -> Response {
    let visitor = match guard::check(&shared, origin, &mut request) {
        Ok(visitor) => visitor,
        Err(refused) => {
            shared.meters.turned_away(&refused.code);
            return problem(&refused);
        }
    };
    let named = request.uri().path().strip_prefix("/api/v1/").and_then(Verb::find);
    match (named, visitor) {
        (Some(verb), Some(visitor)) if request.method() == Method::POST => {
            let (parts, body) = request.into_parts();
            let entered = Entered { visitor, origin, headers: parts.headers };
            call(&shared, verb.name, entered, &parts.uri, body).await.unwrap_or_else(|it| problem(&it))
        }
        (_, visitor) => {
            let carried = request.extensions_mut();
            carried.insert(origin);
            if let Some(visitor) = visitor {
                carried.insert(visitor);
            }
            let Ok(answer) = router.call(request).await;
            answer
        }
    }
}

/// Returns the OpenAPI document. It is slow to build and never changes, so it is built once, on a
/// thread for blocking work.
async fn document() -> Result<Response, Refused> {
    static DRAWN: OnceLock<axum::body::Bytes> = OnceLock::new();
    let draw = || DRAWN.get_or_init(|| regatta_api::openapi::document().to_string().into()).clone();
    let text = match DRAWN.get() {
        Some(text) => text.clone(),
        None => calls::blocking(draw).await?,
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Calls a verb and builds the response.
async fn call(shared: &Arc<Shared>, verb: &str, entered: Entered, uri: &Uri, body: Body) -> Result<Response, Problem> {
    let body = bounds::read(body).await?;
    let paging: Paging = bounds::asked(uri)?;
    let answer = calls::perform(shared, entered.guest()?, verb, &body).await?;
    // The revision of the answer, which a caller can send back in If-Match.
    let tag = format!("\"{}\"", calls::revision_of(&answer).unwrap_or(0));
    let answer = paging.cut(verb, answer)?;
    let mut response = Response::new(Body::from(answer));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.extend(HeaderValue::try_from(tag).ok().map(|it| (header::ETAG, it)));
    Ok(response)
}

/// Calls a verb that does not exist, or whose name is written in an unusual form.
async fn call_named(
    State(shared): State<Arc<Shared>>,
    Path(verb): Path<String>,
    entered: Entered,
    uri: Uri,
    body: Body,
) -> Result<Response, Refused> {
    Ok(call(&shared, &verb, entered, &uri, body).await?)
}

/// A problem as the error of a handler, so that handlers can use `?`.
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

/// Returns a problem as a response (RFC 9457).
pub(crate) fn problem(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = problem.document().to_string();
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
}
