//! The HTTP API under load: real HTTP on loopback, the real server and the real store. Git and
//! agents are fakes, so that the way from a caller to the store and back is measured.

pub(crate) mod bus; // the message bus
pub(crate) mod lists; // the cost of a page of a long list
pub(crate) mod polls; // polls per second and their latency
pub(crate) mod readers; // the cost of a thousand readers of events
pub(crate) mod runners; // many runners and tasks
pub(crate) mod wake_latency; // the delay from a new task to a waiting runner

mod baseline_server;
pub(crate) mod connection; // a connection that stays open
mod load_generator; // many callers on one thread // the baseline: a server of the usual kind

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use regatta_engine::Engine;
use regatta_server::tokens::TokenStore;
use regatta_server::{ServerConfig, serve};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::bench_engine::{self, REPO_PATH, StoreCounts, StoreKind};
use connection::HttpConnection;

/// The daemon's own token, which has no rate limit.
const TOKEN: &str = "0123456789012345678901234567890123456789012345678901234567890123";

/// A server on loopback with its engine.
struct BenchServer {
    engine: Engine,
    counts: Arc<StoreCounts>,
    address: SocketAddr,
    shutdown: Option<oneshot::Sender<()>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl BenchServer {
    /// Starts a server with an engine on a new store in `dir`, with one project.
    fn start(dir: &Path) -> anyhow::Result<BenchServer> {
        let (engine, counts) = bench_engine::start_engine(StoreKind::Sqlite, dir)?;
        // The same number of threads as in the daemon.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("doors")
            .enable_all()
            .build()?;
        let tcp = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
        let address = tcp.local_addr()?;
        let (end, ended) = oneshot::channel::<()>();
        let doors = ServerConfig {
            engine: engine.clone(),
            git_server: None,
            tokens: TokenStore::open(dir, TOKEN.into())?,
            loopback_listener: tcp,
            public_listener: None,
            unix_listener: None,
            data_dir: dir.to_owned(),
            trace_collector: None,
            web_dir: None,
            recovery_notice: None,
            bridges: None,
            doctor: std::sync::Arc::new(|_| Default::default()),
            parse_plan: std::sync::Arc::new(|_| Ok(Default::default())),
            apply_config: std::sync::Arc::new(Vec::new),
        };
        runtime.spawn(async move {
            let signal = async move {
                let _dropped = ended.await;
            };
            if let Err(error) = serve(doors, signal).await {
                eprintln!("the server ended: {error}");
            }
        });
        let server = BenchServer {
            engine,
            counts,
            address,
            shutdown: Some(end),
            runtime: Some(runtime),
        };
        let mut line = server.connect()?;
        line.call_verb(
            "project.add",
            &json!({ "path": REPO_PATH, "name": "lake", "trunk": "main" }),
        )?;
        line.call_verb("limits.set", &json!({ "max_attempts": 10_000 }))?;
        Ok(server)
    }

    fn connect(&self) -> anyhow::Result<HttpConnection> {
        HttpConnection::open(self.address, TOKEN)
    }

    fn add_agents(&self, count: usize, max_tasks: u32) -> anyhow::Result<()> {
        let mut line = self.connect()?;
        for nth in 0..count {
            let agent = json!({ "name": format!("agent-{nth}"), "runtime": "outside", "max_tasks": max_tasks });
            line.call_verb("agent.add", &agent)?;
        }
        Ok(())
    }
}

/// Returns a task without work.
fn report_task(nth: usize) -> Value {
    json!({ "project": "lake", "subject": format!("Task {nth}"), "issue_type": "chore", "expects": "report" })
}

/// Adds tasks over many connections, so that the writer can group the commands.
fn add_tasks(address: SocketAddr, count: usize) -> anyhow::Result<()> {
    let callers = 32.min(count.max(1));
    std::thread::scope(|scope| {
        let adding: Vec<_> = (0..callers)
            .map(|first| {
                scope.spawn(move || -> anyhow::Result<()> {
                    let mut line = HttpConnection::open(address, TOKEN)?;
                    for nth in (first..count).step_by(callers) {
                        line.call_verb("task.add", &report_task(nth))?;
                    }
                    Ok(())
                })
            })
            .collect();
        adding.into_iter().try_for_each(|scoped_join_handle| {
            scoped_join_handle
                .join()
                .map_err(|_| anyhow::anyhow!("a caller panicked"))?
        })
    })
}

/// Finishes a granted task.
fn finish_task(line: &mut HttpConnection, granted: &Value) -> anyhow::Result<()> {
    let input = json!({
        "task": granted["task"]["id"], "attempt": granted["attempt"], "token": granted["token"], "output": "done",
    });
    line.call_verb("task.finish", &input).map(|_| ())
}

/// Returns the thread of this process with this name.
fn thread_named(name: &str) -> anyhow::Result<PathBuf> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        let comm = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        if comm.trim() == name {
            return Ok(task);
        }
    }
    anyhow::bail!("no thread has the name {name}")
}

/// Returns the processor time of a thread in nanoseconds.
fn cpu_ns(thread: &Path) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(thread.join("schedstat"))?;
    stat.split(' ')
        .next()
        .and_then(|stat| stat.parse().ok())
        .context("schedstat says nothing")
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        drop(self.shutdown.take());
        self.engine.shutdown();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(std::time::Duration::from_secs(5));
        }
    }
}

/// Waits until all finished work was checked.
fn wait_until_judged(server: &BenchServer) -> anyhow::Result<()> {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !server.engine.board().attempts.is_empty() {
        ensure!(
            std::time::Instant::now() < patience,
            "attempts are still open"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}
