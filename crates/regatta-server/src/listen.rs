//! Connections: how they are accepted, how long they may take, and where they come from.
//!
//! Each connection is served by itself, with a time for its head and a time in which what is written must be taken:
//! whoever stops reading is let go of, so that nothing is kept for it without bound. A reader of events goes on from the
//! last revision it saw.

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

/// How long TLS may take to begin.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the head of a request may take, which also ends connections that rest.
const HEAD: Duration = Duration::from_secs(60);
/// How long nothing may be taken of what is written.
pub(crate) const STALL: Duration = Duration::from_secs(30);
/// The longest head of a request.
const LARGEST_HEAD: usize = 64 * 1024;
/// How many connections there may be at once: each costs memory before anybody has shown a token.
const MOST: usize = 8_192;

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From `peer`, at our own address `at`.
    Address {
        peer: SocketAddr,
        at: SocketAddr,
        /// Over TLS.
        secure: bool,
    },
    /// Over the unix socket; whose process, as the kernel says.
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

/// What every connection shares.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) shared: Arc<Shared>,
    /// Everything but the verbs.
    pub(crate) router: Router,
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) ended: watch::Receiver<Option<Ended>>,
}

/// Serves what comes over TCP until the doors close; then waits for what is under way.
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
            tracing::debug!("no-delay was not set: {error}");
        }
        let Ok(at) = stream.local_addr() else { continue }; // it went away again
        let (origin, line) = (Origin::Address { peer, at, secure: tls.is_some() }, line.clone());
        match tls.clone() {
            None => under_way.spawn(attend(stream, origin, line)),
            Some(tls) => under_way.spawn(async move {
                match tokio::time::timeout(HANDSHAKE, tls.acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => attend(stream, origin, line).await,
                    Ok(Err(error)) => tracing::debug!(from = %origin, "no TLS: {error}"),
                    Err(_) => tracing::debug!(from = %origin, "no TLS in time"),
                }
            }),
        };
    }
    drop(listener);
    while under_way.join_next().await.is_some() {}
}

/// The same over the unix socket.
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

/// A caller that went away again is nothing; too many open files is worth a moment's rest.
async fn pause(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!("no connection can be accepted: {error}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// One more connection, while it lasts.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Serves one connection to its end.
async fn attend<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, origin: Origin, line: Line) {
    let Line { shared, router, open, mut ended } = line;
    let before = open.fetch_add(1, Relaxed);
    let _counted = Counted(open);
    if before >= MOST {
        tracing::warn!(from = %origin, "turned away: {MOST} connections are open");
        return;
    }
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (shared, router) = (shared.clone(), router.clone());
        // In a box, so that a connection that rests holds no room for it.
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
        tracing::debug!(from = %origin, "a connection broke off: {error}");
    }
}

/// A stream whose other end must take what is written within a time.
struct Patient<S> {
    stream: S,
    limit: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<S> Patient<S> {
    fn new(stream: S) -> Patient<S> {
        Patient { stream, limit: Box::pin(tokio::time::sleep(STALL)), waiting: false }
    }

    /// What came of an attempt to write; if nothing, for how long already.
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
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other end takes nothing")))
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

    /// Who takes nothing is let go of in the end, and who takes a little now and then is not.
    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stops_is_let_go_of() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Patient::new(near);
        let slow = tokio::spawn(async move {
            for _ in 0..8 {
                tokio::time::sleep(STALL / 2).await;
                tokio::io::AsyncReadExt::read_exact(&mut far, &mut [0; 16]).await.unwrap();
            }
            std::future::pending::<()>().await; // holds its end open
        });
        near.write_all(&[7; 16 * 9]).await.unwrap();
        let began = Instant::now();
        let error = near.write_all(&[7; 16]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), STALL.as_secs());
        slow.abort();
    }
}
