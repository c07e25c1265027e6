//! The HTTP API under load: real HTTP on loopback, the real server and the real store. Git and
//! agents are fakes, so that the way from a caller to the store and back is measured.

pub(crate) mod bus; // the message bus
pub(crate) mod polls; // polls per second and their latency
pub(crate) mod readers; // the cost of a thousand readers of events
pub(crate) mod runners; // many runners and tasks
pub(crate) mod wake; // the delay from a new task to a waiting runner

pub(crate) mod line; // a connection that stays open
mod many; // many callers on one thread
mod usual; // the baseline: a server of the usual kind

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use regatta_engine::Engine;
use regatta_server::tokens::Keyring;
use regatta_server::{Doors, serve};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::world::{self, Counts, Kind, PLACE};
use line::Line;

/// The daemon's own token, which has no rate limit.
const TOKEN: &str = "0123456789012345678901234567890123456789012345678901234567890123";

/// A server on loopback with its engine.
struct Server {
    engine: Engine,
    counts: Arc<Counts>,
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Server {
    /// Starts a server with an engine on a new store in `dir`, with one project.
    fn start(dir: &Path) -> anyhow::Result<Server> {
        let (engine, counts) = world::engine(Kind::Sqlite, dir)?;
        // The same number of threads as in the daemon.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("doors").enable_all().build()?;
        let tcp = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
        let address = tcp.local_addr()?;
        let (end, ended) = oneshot::channel::<()>();
        let doors = Doors {
            engine: engine.clone(),
            keyring: Keyring::open(dir, TOKEN.into())?,
            tcp,
            outside: None,
            unix: None,
            dir: dir.to_owned(),
            traces: None,
            web_dir: None,
            recovered: None,
            bridges: None,
            doctor: std::sync::Arc::new(|_| Default::default()),
            plans: std::sync::Arc::new(|_| Ok(Default::default())),
            config: std::sync::Arc::new(Vec::new),
        };
        runtime.spawn(async move {
            let signal = async move {
                let _dropped = ended.await;
            };
            if let Err(error) = serve(doors, signal).await {
                eprintln!("the server ended: {error}");
            }
        });
        let server = Server { engine, counts, address, end: Some(end), runtime: Some(runtime) };
        let mut line = server.line()?;
        line.ask("project.add", &json!({ "path": PLACE, "name": "lake", "trunk": "main" }))?;
        line.ask("limits.set", &json!({ "max_attempts": 10_000 }))?;
        Ok(server)
    }

    fn line(&self) -> anyhow::Result<Line> {
        Line::open(self.address, TOKEN)
    }

    fn add_agents(&self, count: usize, max_tasks: u32) -> anyhow::Result<()> {
        let mut line = self.line()?;
        for nth in 0..count {
            let agent = json!({ "name": format!("agent-{nth}"), "runtime": "outside", "max_tasks": max_tasks });
            line.ask("agent.add", &agent)?;
        }
        Ok(())
    }
}

/// Returns a task without work.
fn report(nth: usize) -> Value {
    json!({ "project": "lake", "subject": format!("Task {nth}"), "issue_type": "chore", "expects": "report" })
}

/// Adds tasks over many connections, so that the writer can group the commands.
fn add_tasks(address: SocketAddr, count: usize) -> anyhow::Result<()> {
    let callers = 32.min(count.max(1));
    std::thread::scope(|scope| {
        let adding: Vec<_> = (0..callers)
            .map(|first| {
                scope.spawn(move || -> anyhow::Result<()> {
                    let mut line = Line::open(address, TOKEN)?;
                    for nth in (first..count).step_by(callers) {
                        line.ask("task.add", &report(nth))?;
                    }
                    Ok(())
                })
            })
            .collect();
        adding.into_iter().try_for_each(|it| it.join().map_err(|_| anyhow::anyhow!("a caller panicked"))?)
    })
}

/// Finishes a granted task.
fn finish(line: &mut Line, granted: &Value) -> anyhow::Result<()> {
    let input = json!({
        "task": granted["task"]["id"], "attempt": granted["attempt"], "token": granted["token"], "output": "done",
    });
    line.ask("task.finish", &input).map(|_| ())
}

/// Returns the thread of this process with this name.
fn thread_called(name: &str) -> anyhow::Result<PathBuf> {
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
fn on_cpu(thread: &Path) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(thread.join("schedstat"))?;
    stat.split(' ').next().and_then(|it| it.parse().ok()).context("schedstat says nothing")
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
        self.engine.shutdown();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(std::time::Duration::from_secs(5));
        }
    }
}

/// Waits until all finished work was checked.
fn settle(server: &Server) -> anyhow::Result<()> {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !server.engine.board().attempts.is_empty() {
        ensure!(std::time::Instant::now() < patience, "attempts are still open");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}
