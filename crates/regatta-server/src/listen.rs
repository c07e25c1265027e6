//! Connections: accepting them, their time limits, and their origins.
//!
//! Each connection is served independently. It has a time limit for the head of a request, and one
//! for the peer to read the answer: a peer that stops reading is disconnected, so that no unbounded
//! data is kept for it. A reader of events can continue from the last revision it received.

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
use crate::{Ended, Shared};

/// Time limit of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time limit for the head of a request, which also ends idle connections.
const HEAD: Duration = Duration::from_secs(60);
/// Time after which a peer that reads nothing is disconnected.
pub(crate) const STALL: Duration = Duration::from_secs(30);
/// Maximum size of a request's head, in bytes.
const LARGEST_HEAD: usize = 64 * 1024;
/// Maximum number of connections. Each costs memory before its caller is authenticated.
const MOST: usize = 8_192;

/// The origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From `peer`, at our address `at`.
    Address {
        peer: SocketAddr,
        at: SocketAddr,
        /// Set if the connection uses TLS.
        secure: bool,
    },
    /// Over the unix socket, from the process that the kernel reports.
    Socket { uid: u32, pid: Option<i32> },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Address { peer, secure: false, .. } => write!(f, "{peer}"),
            Origin::Address { peer, secure: true, .. } => write!(f, "{peer} (tls)"),
            Origin::Socket { uid, pid: Some(pid) } => write!(f, "unix uid={uid} pid={pid}"),
            Origin::Socket { uid, pid: None } => write!(f, "unix uid={uid}"),
        }
    }
}

/// The state that all connections share.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) shared: Arc<Shared>,
    /// Handles everything but the calls of verbs.
    pub(crate) router: Router,
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) ended: watch::Receiver<Option<Ended>>,
}

/// Serves TCP connections until the server ends, then waits for the requests under way.
pub(crate) async fn over_tcp(listener: TcpListener, tls: Option<Tls>, line: Line) {
    let mut closing = line.ended.clone();
    let mut under_way = tokio::task::JoinSet::new();
    loop {
        while under_way.try_join_next().is_some() {}
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    pause(&error).await;
                    continue;
                }
            },
            () = crate::ended(&mut closing) => break,
        };
        // Nagle's algorithm would hold small answers back for 40 ms.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("could not set TCP_NODELAY: {error}");
        }
        let Ok(at) = stream.local_addr() else { continue }; // the peer is gone
        let (origin, line) = (Origin::Address { peer, at, secure: tls.is_some() }, line.clone());
        match tls.clone() {
            None => under_way.spawn(attend(stream, origin, line)),
            Some(tls) => under_way.spawn(async move {
                match tokio::time::timeout(HANDSHAKE, tls.acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => attend(stream, origin, line).await,
                    Ok(Err(error)) => tracing::debug!(from = %origin, "the TLS handshake failed: {error}"),
                    Err(_) => tracing::debug!(from = %origin, "the TLS handshake timed out"),
                }
            }),
        };
    }
    drop(listener);
    while under_way.join_next().await.is_some() {}
}

/// Serves connections of the unix socket until the server ends, then waits for the requests under
/// way.
pub(crate) async fn over_unix(listener: UnixListener, line: Line) {
    let mut closing = line.ended.clone();
    let mut under_way = tokio::task::JoinSet::new();
    loop {
        while under_way.try_join_next().is_some() {}
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    pause(&error).await;
                    continue;
                }
            },
            () = crate::ended(&mut closing) => break,
        };
        let origin = who(&stream);
        under_way.spawn(attend(stream, origin, line.clone()));
    }
    drop(listener);
    while under_way.join_next().await.is_some() {}
}

fn who(stream: &UnixStream) -> Origin {
    match stream.peer_cred() {
        Ok(peer) => Origin::Socket { uid: peer.uid(), pid: peer.pid() },
        Err(_) => Origin::Socket { uid: u32::MAX, pid: None },
    }
}

/// Waits a moment after an error such as too many open files. A peer that disconnected again is no
/// reason to wait.
async fn pause(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!("could not accept a connection: {error}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Counts a connection while it exists.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Serves one connection until it ends.
async fn attend<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, origin: Origin, line: Line) {
    let Line { shared, router, open, mut ended } = line;
    let before = open.fetch_add(1, Relaxed);
    let _counted = Counted(open);
    if before >= MOST {
        tracing::warn!(from = %origin, "refused a connection because {MOST} are open");
        return;
    }
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (shared, router) = (shared.clone(), router.clone());
        // Boxed, so that an idle connection reserves no space for it.
        let answer = Box::pin(crate::answer(shared, router, origin, request.map(Body::new)));
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LARGEST_HEAD).half_close(false);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(Patient::new(stream)), service));
    tokio::select! {
        served = connection.as_mut() => return note(origin, served),
        () = crate::ended(&mut ended) => connection.as_mut().graceful_shutdown(),
    }
    note(origin, connection.await);
}

fn note(origin: Origin, served: hyper::Result<()>) {
    if let Err(error) = served {
        tracing::debug!(from = %origin, "a connection ended with an error: {error}");
    }
}

/// A stream whose peer must read written data within a time limit.
struct Patient<S> {
    stream: S,
    limit: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<S> Patient<S> {
    fn new(stream: S) -> Patient<S> {
        Patient { stream, limit: Box::pin(tokio::time::sleep(STALL)), waiting: false }
    }

    /// Returns the result of an attempt to write, or an error if the peer has read nothing for too
    /// long.
    fn judge<T>(&mut self, cx: &mut Context<'_>, came: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if came.is_ready() {
            self.waiting = false;
            return came;
        }
        if !self.waiting {
            self.waiting = true;
            self.limit.as_mut().reset(Instant::now() + STALL);
        }
        ready!(self.limit.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer reads nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, came)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, came)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let came = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, came)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let came = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.judge(cx, came)
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
        let mut near = Patient::new(near);
        let slow = tokio::spawn(async move {
            for _ in 0..8 {
                tokio::time::sleep(STALL / 2).await;
                tokio::io::AsyncReadExt::read_exact(&mut far, &mut [0; 16]).await.unwrap();
            }
            std::future::pending::<()>().await; // keeps its end open
        });
        near.write_all(&[7; 16 * 9]).await.unwrap();
        let began = Instant::now();
        let error = near.write_all(&[7; 16]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), STALL.as_secs());
        slow.abort();
    }
}
