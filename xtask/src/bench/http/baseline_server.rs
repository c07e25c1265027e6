//! The baseline: a server of the usual kind with axum, a pool of SQLite connections, `BEGIN
//! IMMEDIATE`, a busy timeout, WAL and FULL.
//!
//! It is written as well as this design allows: prepared statements, indexes for both queries of a
//! poll, one transaction per request, and work on threads that may block.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

const SCHEMA: &str = "\
CREATE TABLE tasks (id INTEGER PRIMARY KEY, status TEXT NOT NULL, priority INTEGER NOT NULL, agent TEXT, subject TEXT NOT NULL) STRICT;
CREATE INDEX ready ON tasks (status, priority, id);
CREATE TABLE attempts (id INTEGER PRIMARY KEY, task INTEGER NOT NULL, agent TEXT NOT NULL, ended INTEGER NOT NULL) STRICT;
CREATE INDEX running ON attempts (agent) WHERE ended = 0;
CREATE TABLE events (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, task INTEGER NOT NULL, agent TEXT) STRICT;";
/// The number of connections in the pool. [`LOCK_TIMEOUT`] is the longest wait for the lock.
pub(super) const POOL_SIZE: usize = 8;
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

struct Pool {
    free: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

pub(super) struct BaselineServer {
    pub(super) address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for BaselineServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

impl BaselineServer {
    pub(super) fn start(dir: &Path) -> anyhow::Result<BaselineServer> {
        let path = dir.join("usual.db");
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(&path)?;
            connection.busy_timeout(LOCK_TIMEOUT)?;
            connection.pragma_update_and_check(None, "journal_mode", "wal", |row| {
                row.get::<_, String>(0)
            })?;
            connection.pragma_update(None, "synchronous", "full")?;
            Ok(connection)
        };
        let first = open()?;
        first.execute_batch(SCHEMA)?;
        let mut free = vec![first];
        for _ in 1..POOL_SIZE {
            free.push(open()?);
        }
        let pool = Arc::new(Pool {
            free: Mutex::new(free),
            permits: Semaphore::new(POOL_SIZE),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("usual")
            .enable_all()
            .build()?;
        let tcp = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
        let address = tcp.local_addr()?;
        let router = axum::Router::new()
            .route(
                "/add",
                post(|pool, body| run_on_pool(pool, body, add_tasks)),
            )
            .route(
                "/poll",
                post(|pool, body| run_on_pool(pool, body, poll_task)),
            )
            .route(
                "/finish",
                post(|pool, body| run_on_pool(pool, body, finish_task)),
            )
            .with_state(pool);
        let tcp = axum::serve::ListenerExt::tap_io(tcp, |stream| {
            let _as_it_is = stream.set_nodelay(true);
        });
        runtime.spawn(async move {
            if let Err(error) = axum::serve(tcp, router).await {
                eprintln!("the usual server ended: {error}");
            }
        });
        Ok(BaselineServer {
            address,
            runtime: Some(runtime),
        })
    }
}

type Handler = fn(&mut Connection, &Value) -> rusqlite::Result<Value>;

async fn run_on_pool(State(pool): State<Arc<Pool>>, body: Bytes, work: Handler) -> Response {
    let Ok(_place) = pool.permits.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let input: Value = serde_json::from_slice(&body).unwrap_or_default();
    let lent = pool.clone();
    let done = tokio::task::spawn_blocking(move || {
        let taken = lent
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let Some(mut connection) = taken else {
            return Err(rusqlite::Error::InvalidQuery);
        };
        let done = work(&mut connection, &input);
        lent.free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        done
    });
    match done.await {
        Ok(Ok(answer)) => axum::Json(answer).into_response(),
        other => (StatusCode::INTERNAL_SERVER_ERROR, format!("{other:?}")).into_response(),
    }
}

fn add_tasks(connection: &mut Connection, input: &Value) -> rusqlite::Result<Value> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    change
        .prepare_cached("INSERT INTO tasks (status, priority, subject) VALUES ('pending', 2, ?1)")?
        .execute([input["subject"].as_str().unwrap_or_default()])?;
    let id = change.last_insert_rowid();
    change
        .prepare_cached("INSERT INTO events (kind, task) VALUES ('added', ?1)")?
        .execute([id])?;
    change.commit()?;
    Ok(json!({ "id": id }))
}

fn poll_task(connection: &mut Connection, input: &Value) -> rusqlite::Result<Value> {
    let agent = input["agent"].as_str().unwrap_or_default();
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let running: i64 = change
        .prepare_cached("SELECT count(*) FROM attempts WHERE agent = ?1 AND ended = 0")?
        .query_row([agent], |row| row.get(0))?;
    let next = "SELECT id FROM tasks WHERE status = 'pending' ORDER BY priority, id LIMIT 1";
    let next: Option<i64> = change
        .prepare_cached(next)?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(task) = next.filter(|_| running < 20) else {
        return Ok(Value::Null);
    };
    change
        .prepare_cached("UPDATE tasks SET status = 'in_progress', agent = ?2 WHERE id = ?1")?
        .execute((task, agent))?;
    change
        .prepare_cached("INSERT INTO attempts (task, agent, ended) VALUES (?1, ?2, 0)")?
        .execute((task, agent))?;
    let attempt = change.last_insert_rowid();
    change
        .prepare_cached("INSERT INTO events (kind, task, agent) VALUES ('started', ?1, ?2)")?
        .execute((task, agent))?;
    change.commit()?;
    Ok(json!({ "task": task, "attempt": attempt }))
}

fn finish_task(connection: &mut Connection, input: &Value) -> rusqlite::Result<Value> {
    let (task, attempt) = (input["task"].as_i64(), input["attempt"].as_i64());
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    change
        .prepare_cached("UPDATE attempts SET ended = 1 WHERE id = ?1")?
        .execute([attempt])?;
    change
        .prepare_cached("UPDATE tasks SET status = 'completed' WHERE id = ?1")?
        .execute([task])?;
    change
        .prepare_cached("INSERT INTO events (kind, task) VALUES ('completed', ?1)")?
        .execute([task])?;
    change.commit()?;
    Ok(json!({ "done": true }))
}
