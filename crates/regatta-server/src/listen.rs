//! Accepts connections, limits their time, and records where they come from.
//!
//! Connections are independent of each other. There is one time limit for the head of a request,
//! and another for the client to read the answer. A client that stops reading is disconnected, so
//! that the data that waits for the client cannot grow without bound. A reader of events can
//! continue later from the last revision that it received.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use crate::tls::Tls;
use crate::{ServerState, ShutdownCause};

/// Time limit for a client to finish its TLS handshake.
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the head (first line and headers) of a request. A connection that is idle for
/// this time is closed too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after which a client that does not read its answer is disconnected.
pub(crate) const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a request's head (its first line and headers), in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Maximum number of open connections, because each needs memory even before its caller is
/// authenticated.
const MAX_CONNECTIONS: usize = 8_192;

/// The origin of a request: a network address, or a process on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionOrigin {
    /// The request came over TCP from the address `peer` to the daemon's address `local`.
    Address {
        peer: SocketAddr,
        local: SocketAddr,
        /// True if the connection is encrypted with TLS.
        is_secure: bool,
    },
    /// The request came over the unix socket. The kernel reports the user and the process of the
    /// caller.
    Socket { uid: u32, pid: Option<i32> },
}

impl fmt::Display for ConnectionOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionOrigin::Address {
                peer,
                is_secure: false,
                ..
            } => write!(f, "{peer}"),
            ConnectionOrigin::Address {
                peer,
                is_secure: true,
                ..
            } => write!(f, "{peer} (tls)"),
            ConnectionOrigin::Socket {
                uid,
                pid: Some(pid),
            } => write!(f, "unix uid={uid} pid={pid}"),
            ConnectionOrigin::Socket { uid, pid: None } => write!(f, "unix uid={uid}"),
        }
    }
}

/// The parts of the server that the code for each connection uses, such as the router.
#[derive(Clone)]
pub(crate) struct ConnectionContext {
    pub(crate) shared: Arc<ServerState>,
    /// The router for all HTTP requests except calls of API verbs.
    pub(crate) router: Router,
    pub(crate) open_connections: Arc<AtomicUsize>,
    pub(crate) shutdown: watch::Receiver<Option<ShutdownCause>>,
}

/// Accepts and serves TCP connections until the server shuts down, then waits until the requests
/// under way are finished.
pub(crate) async fn serve_tcp(listener: TcpListener, tls: Option<Tls>, context: ConnectionContext) {
    let mut shutdown = context.shutdown.clone();
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    pause_after_error(&error).await;
                    continue;
                }
            },
            () = crate::wait_for_shutdown(&mut shutdown) => break,
        };
        // Turn off Nagle's algorithm, because with it the kernel may delay small answers by 40 ms.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(
                "could not set TCP_NODELAY on a connection, so its small answers may be late: {error}"
            );
        }
        let Ok(local) = stream.local_addr() else {
            continue; // the peer is gone
        };
        let origin = ConnectionOrigin::Address {
            peer,
            local,
            is_secure: tls.is_some(),
        };
        let context = context.clone();
        match tls.clone() {
            None => connections.spawn(handle_connection(stream, origin, context)),
            Some(tls) => connections.spawn(async move {
                match tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, tls.acceptor.accept(stream)).await
                {
                    Ok(Ok(stream)) => handle_connection(stream, origin, context).await,
                    Ok(Err(error)) => {
                        tracing::debug!(from = %origin, "the TLS handshake with a client failed; its connection was closed: {error}")
                    }
                    Err(_) => tracing::debug!(from = %origin, "a client did not finish its TLS handshake in time; its connection was closed"),
                }
            }),
        };
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Accepts and serves connections of the unix socket until the server shuts down, then waits until
/// the requests under way are finished.
pub(crate) async fn serve_unix(listener: UnixListener, context: ConnectionContext) {
    let mut shutdown = context.shutdown.clone();
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    pause_after_error(&error).await;
                    continue;
                }
            },
            () = crate::wait_for_shutdown(&mut shutdown) => break,
        };
        let origin = unix_peer(&stream);
        connections.spawn(handle_connection(stream, origin, context.clone()));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

fn unix_peer(stream: &UnixStream) -> ConnectionOrigin {
    match stream.peer_cred() {
        Ok(peer) => ConnectionOrigin::Socket {
            uid: peer.uid(),
            pid: peer.pid(),
        },
        Err(_) => ConnectionOrigin::Socket {
            uid: u32::MAX,
            pid: None,
        },
    }
}

/// Waits a second after an error such as too many open files, so that the accept loop does not
/// repeat the error without a pause. Does not wait if only the client has disconnected.
async fn pause_after_error(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    ) {
        tracing::error!(
            "could not accept a client's connection; trying again in a second: {error}"
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Counts a connection as open until this value is dropped.
struct ConnectionGuard(Arc<AtomicUsize>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Serves the requests of one connection until the connection ends. If too many connections are
/// open, closes this one at once.
async fn handle_connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    origin: ConnectionOrigin,
    context: ConnectionContext,
) {
    let ConnectionContext {
        shared,
        router,
        open_connections,
        mut shutdown,
    } = context;
    let open_before = open_connections.fetch_add(1, Relaxed);
    let _counted = ConnectionGuard(open_connections);
    if open_before >= MAX_CONNECTIONS {
        tracing::warn!(from = %origin, "closed a new connection because {MAX_CONNECTIONS} connections are already open");
        return;
    }
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (shared, router) = (shared.clone(), router.clone());
        // The future that handles a request is boxed, so that an idle connection does not reserve
        // memory for such a future.
        let answer = Box::pin(crate::handle_request(
            shared,
            router,
            origin,
            request.map(Body::new),
        ));
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .half_close(false);
    let mut connection = std::pin::pin!(
        http.serve_connection(TokioIo::new(WriteTimeoutStream::new(stream)), service)
    );
    tokio::select! {
        served = connection.as_mut() => return log_connection_end(origin, served),
        () = crate::wait_for_shutdown(&mut shutdown) => connection.as_mut().graceful_shutdown(),
    }
    log_connection_end(origin, connection.await);
}

fn log_connection_end(origin: ConnectionOrigin, served: hyper::Result<()>) {
    if let Err(error) = served {
        tracing::debug!(from = %origin, "the connection of a client ended with an error; an unfinished request on it is lost: {error}");
    }
}

/// A connection that fails if the client does not read written data within [`WRITE_STALL_TIMEOUT`].
struct WriteTimeoutStream<S> {
    stream: S,
    stall_timer: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> WriteTimeoutStream<S> {
    fn new(stream: S) -> WriteTimeoutStream<S> {
        WriteTimeoutStream {
            stream,
            stall_timer: Box::pin(tokio::time::sleep(WRITE_STALL_TIMEOUT)),
            is_waiting: false,
        }
    }

    /// Returns the result of an attempt to write, or an error if the client has not read anything
    /// for too long.
    fn check_stall<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.is_waiting = false;
            return result;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.stall_timer
                .as_mut()
                .reset(Instant::now() + WRITE_STALL_TIMEOUT);
        }
        ready!(self.stall_timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer reads nothing",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.check_stall(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.check_stall(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.check_stall(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.check_stall(cx, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    /// A peer that stops reading is disconnected after a while, and a peer that reads slowly is
    /// not.
    #[tokio::test(start_paused = true)]
    async fn peer_that_stops_reading_is_disconnected() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = WriteTimeoutStream::new(near);
        let slow = tokio::spawn(async move {
            for _ in 0..8 {
                tokio::time::sleep(WRITE_STALL_TIMEOUT / 2).await;
                tokio::io::AsyncReadExt::read_exact(&mut far, &mut [0; 16])
                    .await
                    .unwrap();
            }
            std::future::pending::<()>().await; // keeps its end open
        });
        near.write_all(&[7; 16 * 9]).await.unwrap();
        let began = Instant::now();
        let error = near.write_all(&[7; 16]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), WRITE_STALL_TIMEOUT.as_secs());
        slow.abort();
    }
}
