//! The HTTP server of the daemon. It listens on loopback, on a unix socket and, if configured, for
//! other machines. With few exceptions, each request needs an access token.
//!
//! [`auth`] authenticates callers, [`verbs`] runs the verbs of `regatta-api` (such as `task.add`)
//! on the engine, and [`event_stream`] sends events.
//!
//! This crate leaves the rules of Regatta, and the status of tasks, to `regatta-core`.

mod attachments; // attachments of messages
mod audit; // the audit log of all writes
mod auth; // authentication: token, Host, Origin
mod authenticated; // an authenticated request
mod cost_index; // cost, computed from the event log
mod event_fanout; // fan-out of events to many readers
mod event_stream; // the stream of events
mod fleet_summary; // the counts of a fleet
mod git; // a vault over HTTP, for runners
mod health; // health checks and metrics
mod legacy_api; // the API of older clients
mod listen; // connections and their origins
mod live; // the data of the web page
mod mcp; // the verbs as MCP tools
mod metrics; // metrics in the format of Prometheus
pub mod otlp; // spans for an OTLP collector
mod rate_limit; // rate limits per caller
mod request_limits; // limits of requests
mod task_index; // the page's list of tasks
pub mod tls; // TLS for callers on other machines
pub mod tokens; // tokens and the callers they identify
mod verbs; // the implementation of the verbs
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
use regatta_api::live_view::DoctorView;
use regatta_api::pagination::Paging;
use regatta_api::verb::Verb;
use regatta_api::view::AgentView;
use regatta_core::conversation::Service;
use regatta_core::ids::AgentName;
use regatta_engine::Engine;
use regatta_engine::ports::git::ServeGit;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tower_service::Service as _;

use audit::AuditLog;
use authenticated::Authenticated;
use event_fanout::EventFanout;
use listen::{ConnectionContext, ConnectionOrigin};
use metrics::Metrics;
use otlp::{TraceCollector, Tracer};
use rate_limit::RequestLimiter;
use tls::Tls;
use tokens::TokenStore;

/// The parameters with which the server is started.
pub struct ServerConfig {
    pub engine: Engine,
    /// Serves projects to runners on other machines with git's protocol; `None` if this server has
    /// no runners.
    pub git_server: Option<Arc<dyn ServeGit>>,
    /// The access tokens that callers must present.
    pub tokens: TokenStore,
    /// The TCP listener on loopback, for programs on this machine.
    pub loopback_listener: TcpListener,
    /// The listener for callers on other machines; `None` if only this machine may call.
    pub public_listener: Option<PublicListener>,
    pub unix_listener: Option<UnixListener>,
    /// The data directory, which holds the audit log.
    pub data_dir: PathBuf,
    /// The OpenTelemetry collector that gets traces, if one is configured.
    pub trace_collector: Option<TraceCollector>,
    /// A directory with the files of the web page, used instead of the built-in page; for
    /// developers of the page.
    pub web_dir: Option<PathBuf>,
    /// A text for people about the recovery after a crash, if the previous daemon crashed.
    pub recovery_notice: Option<String>,
    /// The bridges to chat services, if any are configured.
    pub bridges: Option<Box<dyn BridgeControl>>,
    /// The function behind `regatta doctor`, which checks this machine.
    pub doctor: Doctor,
    /// The function that parses the plan (a list of tasks) in an agent's answer.
    pub parse_plan: ParsePlan,
    /// The function that applies changed settings files of projects.
    pub apply_config: ApplyConfig,
}

/// The operations on bridges (connections to chat services) that the server needs.
pub trait BridgeControl: Send + Sync {
    /// Returns all configured bridges (connections to chat services). For a bridge that does not
    /// run, includes the reason.
    fn list(&self) -> Vec<regatta_api::view::BridgeView>;
    /// Pauses or resumes an agent's bridge to one service, or to all. Returns the number of bridges
    /// that were paused or resumed.
    fn pause(&self, agent: &AgentName, service: Option<Service>, paused: bool) -> usize;
    /// Returns the HTTP router for webhook deliveries of the services, below `/webhooks/`. Their
    /// signatures authenticate them.
    fn router(&self) -> Router;
}

/// A function that checks whether this machine has everything that agents, projects and bridges
/// (connections to chat services) need.
pub type Doctor = Arc<dyn Fn(&DoctorInput) -> DoctorView + Send + Sync>;

/// The input of the checks that `regatta doctor` shows.
#[derive(Debug, Default)]
pub struct DoctorInput {
    pub agents: Vec<AgentView>,
    /// Each project, with the path of its git repository.
    pub projects: Vec<(regatta_core::ids::ProjectName, PathBuf)>,
    pub bridges: Vec<regatta_api::view::BridgeView>,
}

/// A function that applies the settings files of projects that have changed. It returns the files
/// that cannot be applied.
pub type ApplyConfig = Arc<dyn Fn() -> Vec<regatta_api::view::SettingsFileFault> + Send + Sync>;

/// A function that parses the plan in an agent's answer, or returns the error in the plan.
pub type ParsePlan = Arc<dyn Fn(&str) -> Result<ParsedPlan, String> + Send + Sync>;

/// A plan (a list of tasks) that an agent wrote, after parsing.
#[derive(Debug, Default)]
pub struct ParsedPlan {
    pub tasks: Vec<regatta_api::input::PlannedTask>,
    /// Problems in the plan that would keep a task from starting.
    pub warnings: Vec<String>,
}

/// The listener for callers on other machines, with its TLS settings.
pub struct PublicListener {
    pub tcp: TcpListener,
    /// The TLS settings. `None` means that connections are not encrypted, so everybody on the
    /// network path can read them.
    pub tls: Option<Tls>,
    /// The host names that callers may use for the daemon, in addition to the listener's addresses.
    pub hosts: Vec<String>,
}

/// The reason why the server has shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownCause {
    /// A caller of the API requested the shutdown.
    Requested,
    /// The code that called [`serve`] signalled the shutdown.
    Signal,
}

/// The state that all handlers of requests share.
pub(crate) struct ServerState {
    pub(crate) engine: Engine,
    pub(crate) tokens: TokenStore,
    pub(crate) request_limiter: RequestLimiter,
    pub(crate) audit: AuditLog,
    pub(crate) metrics: Metrics,
    pub(crate) event_fanout: EventFanout,
    pub(crate) tracer: Option<Tracer>,
    pub(crate) address: SocketAddr,
    /// Host names that callers may use for the daemon, in addition to its addresses.
    pub(crate) hosts: Vec<String>,
    pub(crate) shutdown: watch::Sender<Option<ShutdownCause>>,
    /// The data directory, which holds the audit log and attachments.
    pub(crate) data_dir: PathBuf,
    /// Number of requests for unused names since the daemon started. Each request generates names
    /// from a different number, so that simultaneous callers get different names.
    pub(crate) name_requests: std::sync::atomic::AtomicU64,
    pub(crate) web_source: web::WebSource,
    pub(crate) sign_in_codes: web::login::SignInCodes,
    /// Serves projects to runners on other machines with git's protocol; `None` if this server has
    /// no runners.
    pub(crate) git_server: Option<Arc<dyn ServeGit>>,
    /// Permits to run git for other machines. Each git process needs a permit, which limits the
    /// number of simultaneous processes.
    pub(crate) git_permits: Arc<Semaphore>,
    pub(crate) live_caches: live::LiveCaches,
    pub(crate) ended_counts: fleet_summary::EndedCountsCache,
    /// Reads from the event log how long each task has waited, and the reasons. Events stay in
    /// memory after they were read.
    pub(crate) timeline_reader: regatta_engine::timeline_reader::TimelineReader,
    pub(crate) cost_index: cost_index::CostIndex,
    pub(crate) task_index: task_index::TaskIndex,
    pub(crate) recovery_notice: Option<String>,
    pub(crate) bridges: Option<Box<dyn BridgeControl>>,
    pub(crate) doctor: Doctor,
    pub(crate) parse_plan: ParsePlan,
    pub(crate) apply_config: ApplyConfig,
}

/// Serves requests until a caller calls the API verb `down` or `signal` completes. Then finishes
/// the requests that are under way, and returns.
pub async fn serve(
    config: ServerConfig,
    signal: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<ShutdownCause> {
    let address = config.loopback_listener.local_addr()?;
    let (shutdown_sender, mut shutdown) = watch::channel(None);
    let shared = Arc::new(ServerState {
        engine: config.engine,
        tokens: config.tokens,
        request_limiter: RequestLimiter::default(),
        audit: AuditLog::open(&config.data_dir)?,
        metrics: Metrics::default(),
        event_fanout: EventFanout::new(),
        tracer: config.trace_collector.map(Tracer::new).transpose()?,
        address,
        hosts: config
            .public_listener
            .as_ref()
            .map(|listener| listener.hosts.clone())
            .unwrap_or_default(),
        shutdown: shutdown_sender.clone(),
        data_dir: config.data_dir,
        name_requests: std::sync::atomic::AtomicU64::default(),
        web_source: web::WebSource::from_dir(config.web_dir),
        sign_in_codes: web::login::SignInCodes::default(),
        git_server: config.git_server,
        git_permits: Arc::new(Semaphore::new(git::MAX_GIT_PROCESSES)),
        live_caches: live::LiveCaches::default(),
        ended_counts: fleet_summary::EndedCountsCache::default(),
        timeline_reader: regatta_engine::timeline_reader::TimelineReader::default(),
        cost_index: cost_index::CostIndex::default(),
        task_index: task_index::TaskIndex::default(),
        recovery_notice: config.recovery_notice,
        bridges: config.bridges,
        doctor: config.doctor,
        parse_plan: config.parse_plan,
        apply_config: config.apply_config,
    });
    let router = router(shared.clone());
    tokio::spawn(async move {
        signal.await;
        shutdown_sender.send_if_modified(|shutdown_cause| {
            let is_first = shutdown_cause.is_none();
            shutdown_cause.get_or_insert(ShutdownCause::Signal);
            is_first
        });
    });
    let background = [
        tokio::spawn(run_event_fanout(shared.clone())),
        tokio::spawn(run_tracer(shared.clone())),
        tokio::spawn(run_audit_sync(shared.clone())),
        tokio::spawn(live::record_lanes(shared.clone())),
    ];
    let context = ConnectionContext {
        shared: shared.clone(),
        router,
        open_connections: shared.metrics.open_connections.clone(),
        shutdown: shutdown.clone(),
    };
    let loopback_connections = listen::serve_tcp(config.loopback_listener, None, context.clone());
    let public_connections = async {
        if let Some(listener) = config.public_listener {
            listen::serve_tcp(listener.tcp, listener.tls, context.clone()).await;
        }
    };
    let unix_connections = async {
        if let Some(listener) = config.unix_listener {
            listen::serve_unix(listener, context.clone()).await;
        }
    };
    // Streams and long polls may never end by themselves. At a shutdown they are ended here, so
    // that they do not keep the daemon running.
    let mut shutdown_started = shutdown.clone();
    let shutdown_timeout = async {
        wait_for_shutdown(&mut shutdown_started).await;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    };
    tokio::select! {
        _all = async { tokio::join!(loopback_connections, public_connections, unix_connections) } => {}
        () = shutdown_timeout => {}
    }
    background.iter().for_each(tokio::task::JoinHandle::abort);
    shared.audit.sync().await;
    if let Some(tracer) = &shared.tracer {
        let _cut =
            tokio::time::timeout(std::time::Duration::from_secs(1), tracer.send_all(true)).await;
    }
    let cause = *shutdown.borrow_and_update();
    Ok(cause.unwrap_or(ShutdownCause::Signal))
}

async fn run_event_fanout(shared: Arc<ServerState>) {
    shared.event_fanout.run(&shared).await;
}

async fn run_audit_sync(shared: Arc<ServerState>) {
    shared.audit.run_sync().await;
}

async fn run_tracer(shared: Arc<ServerState>) {
    if let Some(tracer) = &shared.tracer {
        tracer.run().await;
    }
}

/// Returns the descriptions of the MCP tools that an attempt may call although they are not listed.
/// The reference in `docs` has them.
pub fn unlisted_tools() -> Vec<serde_json::Value> {
    mcp::unlisted_tools()
}

/// Waits until the server starts to shut down.
pub(crate) async fn wait_for_shutdown(shutdown: &mut watch::Receiver<Option<ShutdownCause>>) {
    let _sender_gone = shutdown.wait_for(Option::is_some).await;
}

fn router(shared: Arc<ServerState>) -> Router {
    // Requests of git bypass the general limits for bodies and have limits of their own, because
    // their bodies may be large and are streamed.
    let git = Router::new()
        .route("/git/{project}/info/refs", get(git::info_refs))
        .route("/git/{project}/{service}", post(git::serve));
    // Webhook deliveries bypass the general limits for bodies and have limits of their own, because
    // the signature of a delivery covers its raw body.
    let deliveries = shared.bridges.as_ref().map(|bridges| bridges.router());
    let deliveries = deliveries.map_or_else(Router::new, |router| {
        Router::new().nest_service("/webhooks", router)
    });
    Router::new()
        .route("/api/v1/events", get(event_stream::events))
        .route("/api/v1/{verb}", post(call_verb_by_name))
        .route("/api/v1/openapi.json", get(openapi_document))
        .route(
            "/api/v1/",
            get(|| async { axum::response::Html(regatta_api::openapi::html_page()) }),
        )
        .route(
            "/api/agents",
            get(legacy_api::agents).post(legacy_api::register),
        )
        .route("/me", get(legacy_api::me))
        .route("/api/poll", get(legacy_api::poll).post(legacy_api::poll))
        .route("/close", post(legacy_api::close))
        .route("/ping", post(legacy_api::ping))
        .route("/api/tasks", post(legacy_api::add_task))
        .route("/api/tasks/{id}/{what}", post(legacy_api::report_task))
        .route("/mcp", post(mcp::post).fallback(mcp::no_stream))
        .route("/enter", post(web::login::sign_in))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .merge(live::routes())
        .fallback(|| async {
            problem_response(&Problem::new(
                404,
                "no_such_page",
                "there is nothing at this address",
                "call a verb with POST /api/v1/VERB; list the verbs: regatta schema",
            ))
        })
        .method_not_allowed_fallback(request_limits::method_not_allowed)
        // The body is read before the handler runs, so a handler gets only bodies that are complete
        // and small enough.
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn(request_limits::buffer_body))
        .merge(git)
        .merge(deliveries)
        .layer(axum::middleware::from_fn_with_state(
            shared.clone(),
            web::serve,
        ))
        .with_state(shared)
}

/// Answers one request. Calls of verbs (API operations) are handled directly, because most requests
/// are such calls. The router handles all other requests, and calls of verbs in unusual forms.
async fn handle_request(
    shared: Arc<ServerState>,
    mut router: Router,
    origin: ConnectionOrigin,
    mut request: Request,
) -> Response {
    let principal = match auth::authenticate(&shared, origin, &mut request) {
        Ok(principal) => principal,
        Err(problem) => {
            shared.metrics.record_rejection(&problem.code);
            return problem_response(&problem);
        }
    };
    let verb = request
        .uri()
        .path()
        .strip_prefix("/api/v1/")
        .and_then(Verb::find);
    match (verb, principal) {
        (Some(verb), Some(principal)) if request.method() == Method::POST => {
            let (parts, body) = request.into_parts();
            let authenticated = Authenticated {
                principal,
                origin,
                headers: parts.headers,
            };
            call_verb(&shared, verb.name, authenticated, &parts.uri, body)
                .await
                .unwrap_or_else(|problem| problem_response(&problem))
        }
        (_, principal) => {
            let extensions = request.extensions_mut();
            extensions.insert(origin);
            if let Some(principal) = principal {
                extensions.insert(principal);
            }
            let Ok(response) = router.call(request).await;
            response
        }
    }
}

/// Returns the OpenAPI document of the API. Building it is slow and the result never changes, so it
/// is built once, on a thread that may block.
async fn openapi_document() -> Result<Response, ProblemResponse> {
    static DOCUMENT: OnceLock<axum::body::Bytes> = OnceLock::new();
    let build = || {
        DOCUMENT
            .get_or_init(|| regatta_api::openapi::document().to_string().into())
            .clone()
    };
    let text = match DOCUMENT.get() {
        Some(text) => text.clone(),
        None => verbs::run_blocking(build).await?,
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Calls a verb (an API operation) with a request's body as input, and builds the HTTP response.
async fn call_verb(
    shared: &Arc<ServerState>,
    verb: &str,
    authenticated: Authenticated,
    uri: &Uri,
    body: Body,
) -> Result<Response, Problem> {
    let body = request_limits::read_body(body).await?;
    let paging: Paging = request_limits::parse_query(uri)?;
    let context = verbs::RequestContext {
        paging,
        ..authenticated.request_context()?
    };
    let answer = verbs::handle(shared, context, verb, &body).await?;
    // The answer's revision is sent as ETag. A caller can send this revision back in If-Match; the
    // next call then fails if somebody else has changed the thing since.
    let tag = format!("\"{}\"", answer.revision);
    let mut response = Response::new(Body::from(answer.to_json()?));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.extend(
        HeaderValue::try_from(tag)
            .ok()
            .map(|value| (header::ETAG, value)),
    );
    Ok(response)
}

/// Handles calls of verbs (API operations) that `handle_request` did not recognise, because the
/// verb does not exist or its name is written in an unusual form.
async fn call_verb_by_name(
    State(shared): State<Arc<ServerState>>,
    Path(verb): Path<String>,
    authenticated: Authenticated,
    uri: Uri,
    body: Body,
) -> Result<Response, ProblemResponse> {
    Ok(call_verb(&shared, &verb, authenticated, &uri, body).await?)
}

/// A [`Problem`] (an error for the caller) that handlers can return with `?`.
pub(crate) struct ProblemResponse(Problem);

impl From<Problem> for ProblemResponse {
    fn from(problem: Problem) -> ProblemResponse {
        ProblemResponse(problem)
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        problem_response(&self.0)
    }
}

/// Converts a problem (an error for the caller) to an HTTP response in the format of RFC 9457.
pub(crate) fn problem_response(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = problem.to_json().to_string();
    (
        status,
        [(header::CONTENT_TYPE, "application/problem+json")],
        body,
    )
        .into_response()
}
