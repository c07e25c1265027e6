//! Connections to the server, and statements that are sent together.
//!
//! All work runs on one small runtime of the store, so that the store's interface can be blocking.
//! Statements name the types of their values and are never prepared by name, because a connection
//! pooler may give each transaction another connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use regatta_engine::ports::store::StoreError;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Row};

use super::faults;
use super::settings::PostgresSettings;

/// The largest number of statements in one flight, so that they are sent in their order.
const MAX_STATEMENTS: usize = 28;
/// The largest number of idle connections that are kept for later readers.
const MAX_IDLE_READERS: usize = 4;
/// Time limit for connecting, including all addresses.
const TOTAL_CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// A value of a statement, with its type.
#[derive(Clone, Debug)]
pub(super) enum Param {
    Text(String),
    Number(i64),
    Texts(Vec<String>),
    OptionalTexts(Vec<Option<String>>),
    Numbers(Vec<i64>),
    OptionalNumbers(Vec<Option<i64>>),
    Bools(Vec<bool>),
}

impl Param {
    fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Param::Text(value) => (value, Type::TEXT),
            Param::Number(value) => (value, Type::INT8),
            Param::Texts(values) => (values, Type::TEXT_ARRAY),
            Param::OptionalTexts(values) => (values, Type::TEXT_ARRAY),
            Param::Numbers(values) => (values, Type::INT8_ARRAY),
            Param::OptionalNumbers(values) => (values, Type::INT8_ARRAY),
            Param::Bools(values) => (values, Type::BOOL_ARRAY),
        }
    }
}

impl From<&str> for Param {
    fn from(text: &str) -> Param {
        Param::Text(text.to_owned())
    }
}

impl From<i64> for Param {
    fn from(number: i64) -> Param {
        Param::Number(number)
    }
}

/// An SQL statement with its values.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) params: Vec<Param>,
}

impl Statement {
    pub(super) fn new(sql: impl Into<String>, params: Vec<Param>) -> Statement {
        Statement {
            sql: sql.into(),
            params,
        }
    }
}

/// Runs one statement and returns its rows.
pub(super) async fn run(
    client: &Client,
    statement: &Statement,
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let params: Vec<(&(dyn ToSql + Sync), Type)> =
        statement.params.iter().map(Param::typed).collect();
    client.query_typed(&statement.sql, &params).await
}

/// Runs the statements in one transaction that begins with `begin`, and sends all of them before
/// the first answer. Returns the rows of each statement, or the first error, after which nothing is
/// stored.
///
/// The result of `COMMIT` alone proves nothing: after a failed statement the server answers it with
/// a rollback and without an error. So the answer of each statement is checked.
pub(super) async fn run_transaction(
    client: &Client,
    begin: &str,
    statements: &[Statement],
) -> Result<Vec<Vec<Row>>, tokio_postgres::Error> {
    debug_assert!(statements.len() <= MAX_STATEMENTS);
    let simple = |sql: &str| -> BoxFuture<'_, Result<Vec<Row>, tokio_postgres::Error>> {
        let sql = sql.to_owned();
        Box::pin(async move { client.batch_execute(&sql).await.map(|()| Vec::new()) })
    };
    let mut flight = vec![simple(begin)];
    for statement in statements {
        flight.push(Box::pin(run(client, statement)));
    }
    flight.push(simple("COMMIT"));
    // The futures are polled in their order, and each sends its statement when it is first polled.
    let mut answers = join_all(flight)
        .await
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    answers.pop();
    answers.remove(0);
    Ok(answers)
}

/// The database of one store, with the runtime on which all work runs.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) settings: PostgresSettings,
    runtime: Option<Runtime>,
    idle_readers: std::sync::Mutex<Vec<Client>>,
}

impl Database {
    pub(super) fn new(settings: PostgresSettings) -> Result<Arc<Database>, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("postgres")
            .enable_all()
            .build()
            .map_err(|error| faults::no_threads(&settings, &error))?;
        Ok(Arc::new(Database {
            settings,
            runtime: Some(runtime),
            idle_readers: std::sync::Mutex::default(),
        }))
    }

    /// Starts work on the store's runtime that goes on in the background.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(work);
        }
    }

    /// Runs work on the store's runtime and waits for it. May be called from any thread, also from
    /// one that belongs to another runtime.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.spawn(async move {
            // Nobody waits for the answer any more if the receiver is gone.
            let _unsent = sender.send(work.await);
        });
        receiver
            .recv()
            .unwrap_or_else(|_| Err(faults::interrupted(&self.settings)))
    }

    /// Opens a connection.
    pub(super) async fn connect(&self) -> Result<Client, StoreError> {
        let connecting = async {
            match &self.settings.tls {
                None => {
                    let (client, driver) = self.settings.config.connect(NoTls).await?;
                    self.spawn(async move { log_end(driver.await) });
                    Ok(client)
                }
                Some(tls) => {
                    let connector = VerifiedTls(tokio_rustls::TlsConnector::from(tls.clone()));
                    let (client, driver) = self.settings.config.connect(connector).await?;
                    self.spawn(async move { log_end(driver.await) });
                    Ok(client)
                }
            }
        };
        match tokio::time::timeout(TOTAL_CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map_err(|error| faults::database(&self.settings, &error)),
            Err(_) => Err(faults::no_answer(&self.settings, TOTAL_CONNECT_TIMEOUT)),
        }
    }

    /// Takes an idle connection for reading, or opens one.
    pub(super) async fn reader(&self) -> Result<Client, StoreError> {
        let idle = loop {
            let next = lock(&self.idle_readers).pop();
            match next {
                Some(client) if client.is_closed() => {}
                other => break other,
            }
        };
        match idle {
            Some(client) => Ok(client),
            None => self.connect().await,
        }
    }

    /// Keeps a connection for later readers. A connection that failed must not be returned.
    pub(super) fn return_reader(&self, client: Client) {
        let mut idle = lock(&self.idle_readers);
        if idle.len() < MAX_IDLE_READERS && !client.is_closed() {
            idle.push(client);
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The last owner may be a task of another runtime, where waiting is not allowed.
            runtime.shutdown_background();
        }
    }
}

pub(super) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn log_end(ended: Result<(), tokio_postgres::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the PostgreSQL store ended; the next use opens another");
    }
}

/// Makes TLS connections whose server is verified.
#[derive(Clone)]
struct VerifiedTls(tokio_rustls::TlsConnector);

impl<S> MakeTlsConnect<S> for VerifiedTls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = VerifiedStream<S>;
    type TlsConnect = VerifiedConnect;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<VerifiedConnect, Self::Error> {
        Ok(VerifiedConnect {
            connector: self.0.clone(),
            server: ServerName::try_from(domain)?.to_owned(),
        })
    }
}

struct VerifiedConnect {
    connector: tokio_rustls::TlsConnector,
    server: ServerName<'static>,
}

impl<S> TlsConnect<S> for VerifiedConnect
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = VerifiedStream<S>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<VerifiedStream<S>, std::io::Error>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let stream = self.connector.connect(self.server, stream).await?;
            Ok(VerifiedStream(stream))
        })
    }
}

/// A TLS connection as the client library needs it.
struct VerifiedStream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for VerifiedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for VerifiedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for VerifiedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
