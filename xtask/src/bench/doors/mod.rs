//! The doors under load: real HTTP on loopback, the real server, the real store; git and agents are fakes, so that what
//! is measured is the way from a caller to the store and back.

pub(crate) mod bus; // a million messages, and many who talk
pub(crate) mod polls; // polls per second and their latency, against a server of the usual kind
pub(crate) mod readers; // what a thousand readers of events cost the writer
pub(crate) mod runners; // five hundred runners and fifty thousand tasks
pub(crate) mod wake; // from a task that is added to the runner that waits for it

pub(crate) mod line; // one connection, kept open
mod many; // many callers on one thread
mod usual; // a server of the usual kind

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

/// The daemon's own token: whoever shows it is not held back.
const TOKEN: &str = "0123456789012345678901234567890123456789012345678901234567890123";

/// A server on loopback, with its engine.
struct Server {
    engine: Engine,
    counts: Arc<Counts>,
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Server {
    /// Serves an engine on a new store in `dir`, with one project.
    fn start(dir: &Path) -> anyhow::Result<Server> {
        let (engine, counts) = world::engine(Kind::Sqlite, dir)?;
        // As many threads as the daemon has.
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

/// A task that nothing has to be done for.
fn report(nth: usize) -> Value {
    json!({ "project": "lake", "subject": format!("Task {nth}"), "issue_type": "chore", "expects": "report" })
}

/// Adds tasks over many connections, as commands that wait together are kept together.
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
        adding.into_iter().try_for_each(|it| it.join().map_err(|_| anyhow::anyhow!("a caller broke down"))?)
    })
}

/// Finishes what was granted.
fn finish(line: &mut Line, granted: &Value) -> anyhow::Result<()> {
    let input = json!({
        "task": granted["task"]["id"], "attempt": granted["attempt"], "token": granted["token"], "output": "done",
    });
    line.ask("task.finish", &input).map(|_| ())
}

/// The thread of this process that has this name; there must be one.
fn thread_called(name: &str) -> anyhow::Result<PathBuf> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        let comm = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        if comm.trim() == name {
            return Ok(task);
        }
    }
    anyhow::bail!("there is no thread called {name}")
}

/// How long a thread was on a processor, in nanoseconds.
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

/// Waits until all that was finished has been judged.
fn settle(server: &Server) -> anyhow::Result<()> {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !server.engine.board().attempts.is_empty() {
        ensure!(std::time::Instant::now() < patience, "attempts are left over");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}
