//! The doors: HTTP on loopback, on a unix socket and, if wished, for other machines, with a token always, and events
//! as a stream.
//!
//! [`guard`] decides who gets in; [`calls`] carries out the verbs of `regatta-api`'s table on the engine;
//! [`stream`] sends events from any revision on. Nothing here decides a rule or computes a status.

mod attachments; // files that go with messages
mod audit; // who asked for which change
mod bounds; // how large, how long
mod calls; // one arm per verb
mod entered; // a request that passed the guard
mod git; // a vault over HTTP, for runners
mod guard; // token, Host, Origin
mod health; // how the daemon is
mod hub; // events for many readers
mod limit; // how much each caller may ask
mod listen; // connections and where they come from
mod mcp; // the verbs as tools
mod meters; // what is measured
mod page; // lists in pages
mod pages; // what the web page is given
mod seed; // the surface that older clients know
mod spent; // what was spent, from the log
mod stream; // events as they are committed
pub mod tls; // for callers from other machines
pub mod tokens; // who a caller is
pub mod trace; // spans for a collector
mod web; // the page's files, and a browser's way in

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

/// What the doors need.
pub struct Doors {
    pub engine: Engine,
    /// What callers must show.
    pub keyring: Keyring,
    /// On loopback, for this machine's own programs.
    pub tcp: TcpListener,
    /// For everybody else, if there is such a door.
    pub outside: Option<Outside>,
    pub unix: Option<UnixListener>,
    /// The data directory, where who asked for what is written down.
    pub dir: PathBuf,
    /// Where traces go, if anywhere.
    pub traces: Option<Collector>,
    /// Where the web page is served from, if not from this program.
    pub web_dir: Option<PathBuf>,
    /// What this daemon took over from one that did not end well, in words.
    pub recovered: Option<String>,
    /// Conversations in outside services, if there are such.
    pub bridges: Option<Box<dyn Bridges>>,
    /// Looks at this machine.
    pub doctor: Doctor,
    /// Reads plans.
    pub plans: Plans,
    /// Applies the settings files of projects.
    pub config: Config,
}

/// What the doors need of the bridges.
pub trait Bridges: Send + Sync {
    /// Every pair of agent and service, on or off.
    fn list(&self) -> Vec<regatta_api::view::BridgeView>;
    /// Stops or lets go on what an agent hears and says; says how many pairs that are.
    fn pause(&self, agent: &AgentName, service: Option<Service>, paused: bool) -> usize;
    /// Where deliveries come in, below `/webhooks/`. A signature is what lets somebody in there.
    fn router(&self) -> Router;
}

/// Looks at this machine for the sake of what the daemon has.
pub type Doctor = Arc<dyn Fn(&Patient) -> DoctorView + Send + Sync>;

/// What a doctor looks at.
#[derive(Debug, Default)]
pub struct Patient {
    pub agents: Vec<AgentView>,
    /// Each project, and where its repository is.
    pub projects: Vec<(regatta_core::ids::ProjectName, PathBuf)>,
    pub bridges: Vec<regatta_api::view::BridgeView>,
}

/// Applies the settings files of projects that have changed, and returns the files that cannot be applied.
pub type Config = Arc<dyn Fn() -> Vec<regatta_api::view::ConfigFault> + Send + Sync>;

/// Reads the plan in what an agent said, or says what is wrong with it.
pub type Plans = Arc<dyn Fn(&str) -> Result<PlanRead, String> + Send + Sync>;

/// A plan that could be read.
#[derive(Debug, Default)]
pub struct PlanRead {
    pub tasks: Vec<regatta_api::input::PlannedTask>,
    /// What would keep a task from starting.
    pub warnings: Vec<String>,
}

/// A door that is not only this machine's.
pub struct Outside {
    pub tcp: TcpListener,
    /// Without it, everybody on the way reads along.
    pub tls: Option<Tls>,
    /// The names under which callers know it, besides its addresses.
    pub hosts: Vec<String>,
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
    pub(crate) meters: Meters,
    pub(crate) hub: Hub,
    pub(crate) tracer: Option<Tracer>,
    pub(crate) address: SocketAddr,
    /// More names under which callers know us.
    pub(crate) hosts: Vec<String>,
    pub(crate) down: watch::Sender<Option<Ended>>,
    /// The data directory.
    pub(crate) dir: PathBuf,
    /// How often names were asked for.
    pub(crate) names: std::sync::atomic::AtomicU64,
    pub(crate) web: web::Source,
    pub(crate) codes: web::enter::Codes,
    /// Who may start git for another machine.
    pub(crate) git_turns: Arc<Semaphore>,
    pub(crate) pages: pages::Pages,
    /// What was read of the log so far.
    pub(crate) past: regatta_engine::past::Past,
    pub(crate) spent: spent::Spent,
    pub(crate) recovered: Option<String>,
    pub(crate) bridges: Option<Box<dyn Bridges>>,
    pub(crate) doctor: Doctor,
    pub(crate) plans: Plans,
    pub(crate) config: Config,
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
    // A stream or a long poll that does not let go must not keep the daemon from ending.
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

/// Waits until the doors close.
pub(crate) async fn ended(asked: &mut watch::Receiver<Option<Ended>>) {
    let _sender_gone = asked.wait_for(Option::is_some).await;
}

fn router(shared: Arc<Shared>) -> Router {
    // What git sends has its own bounds: it may be large, and is passed on as it comes.
    let git = Router::new()
        .route("/git/{project}/info/refs", get(git::refs))
        .route("/git/{project}/{service}", post(git::serve));
    // Deliveries are signed over their raw body, and have their own bounds.
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
                "verbs are called with POST /api/v1/VERB",
            ))
        })
        .method_not_allowed_fallback(bounds::wrong_method)
        // The body is whole and small enough before a handler sees it.
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn(bounds::whole))
        .merge(git)
        .merge(deliveries)
        .layer(axum::middleware::from_fn_with_state(shared.clone(), web::serve))
        .with_state(shared)
}

/// Answers one request. The verbs are most of what is ever asked, so they do not go through the router; it has the rest,
/// and what calls a verb in another way than it wants to be called.
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

/// The document of all verbs. It takes its time to draw and never changes, so it is drawn once, and not where everybody
/// else is answered.
async fn document() -> Result<Response, Refused> {
    static DRAWN: OnceLock<axum::body::Bytes> = OnceLock::new();
    let draw = || DRAWN.get_or_init(|| regatta_api::openapi::document().to_string().into()).clone();
    let text = match DRAWN.get() {
        Some(text) => text.clone(),
        None => calls::blocking(draw).await?,
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Carries out a verb.
async fn call(shared: &Arc<Shared>, verb: &str, entered: Entered, uri: &Uri, body: Body) -> Result<Response, Problem> {
    let body = bounds::read(body).await?;
    let paging: Paging = bounds::asked(uri)?;
    let answer = calls::perform(shared, entered.guest()?, verb, &body).await?;
    // What it was true at, to be sent back in If-Match.
    let tag = format!("\"{}\"", calls::revision_of(&answer).unwrap_or(0));
    let answer = paging.cut(verb, answer)?;
    let mut response = Response::new(Body::from(answer));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.extend(HeaderValue::try_from(tag).ok().map(|it| (header::ETAG, it)));
    Ok(response)
}

/// A verb that there is not, or whose name is written in another way.
async fn call_named(
    State(shared): State<Arc<Shared>>,
    Path(verb): Path<String>,
    entered: Entered,
    uri: Uri,
    body: Body,
) -> Result<Response, Refused> {
    Ok(call(&shared, &verb, entered, &uri, body).await?)
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
    let body = problem.document().to_string();
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
}
