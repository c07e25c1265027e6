//! A loopback server that serves a world's vault to real git programs, and interrupts transfers on
//! demand.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use regatta_core::ids::AttemptId;
use regatta_engine::ports::git::parts::*;
use regatta_engine::ports::git::{
    GitError, GitHttpRequest, GitRemote, GitService, PeerStreams, attempt_of_keep_ref,
};

use crate::world::World;

pub(crate) const TOKEN: &str = "rt_loopback-secret-0815";
const NOT_CUT: u64 = u64::MAX;

/// A timeout that is longer than any pause on a loaded machine. Only a failing test waits for it.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Served {
    pub(crate) world: World,
    /// The attempts whose keep-refs may be written.
    writers: Mutex<Vec<AttemptId>>,
    /// The number of bytes after which the next answer or the next request is interrupted.
    cut_answer: AtomicU64,
    cut_request: AtomicU64,
    /// The outcome of each request, by request line.
    pub(crate) log: Mutex<Vec<(String, Result<(), GitError>)>>,
    /// True if the token was seen on a command line.
    pub(crate) was_token_exposed: AtomicBool,
    is_over: AtomicBool,
}

/// A server that runs until it is dropped.
pub(crate) struct Server {
    served: Arc<Served>,
    address: String,
    thread: Option<JoinHandle<()>>,
}

impl Deref for Server {
    type Target = Served;
    fn deref(&self) -> &Served {
        &self.served
    }
}

impl Server {
    pub(crate) fn new(world: World, writers: &[AttemptId]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = Arc::new(Served {
            world,
            writers: Mutex::new(writers.to_vec()),
            cut_answer: AtomicU64::new(NOT_CUT),
            cut_request: AtomicU64::new(NOT_CUT),
            log: Mutex::default(),
            was_token_exposed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let shared = Arc::clone(&served);
        let thread = std::thread::spawn(move || {
            std::thread::scope(|scope| {
                for stream in listener.incoming().map_while(Result::ok) {
                    if shared.is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let shared = &shared;
                    scope.spawn(move || shared.handle(&stream));
                }
            });
        });
        Server {
            served,
            address,
            thread: Some(thread),
        }
    }

    pub(crate) fn remote(&self) -> GitRemote {
        GitRemote {
            url: format!("http://{}/git/shop", self.address),
            token: TOKEN.into(),
            ca: None,
        }
    }
    pub(crate) fn allow(&self, writers: &[AttemptId]) {
        *self.writers.lock().unwrap() = writers.to_vec();
    }
    pub(crate) fn cut_answer_after(&self, bytes: u64) {
        self.cut_answer.store(bytes, Ordering::SeqCst);
    }
    pub(crate) fn cut_request_after(&self, bytes: u64) {
        self.cut_request.store(bytes, Ordering::SeqCst);
    }
    /// Returns whether the interruption happened, and cancels it if not.
    pub(crate) fn was_cut(&self) -> bool {
        let answer = self.cut_answer.swap(NOT_CUT, Ordering::SeqCst) == NOT_CUT;
        self.cut_request.swap(NOT_CUT, Ordering::SeqCst) == NOT_CUT && answer
    }
    pub(crate) fn may_write(&self) -> impl Fn(&str) -> bool + use<> {
        let writers = self.writers.lock().unwrap().clone();
        move |name| attempt_of_keep_ref(name).is_some_and(|id| writers.contains(&id))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.served.is_over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(&self.address));
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl Served {
    fn handle(&self, stream: &TcpStream) {
        stream.set_read_timeout(Some(LONG_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(LONG_TIMEOUT)).unwrap();
        let mut input = BufReader::new(stream);
        let Some((line, headers)) = read_head(&mut input) else {
            return;
        };
        let mut answer = ChunkedAnswer {
            stream,
            kind: String::new(),
            has_begun: false,
            budget: None,
        };
        let outcome = self.route(&line, &headers, input, &mut answer);
        self.log.lock().unwrap().push((line, outcome.clone()));
        match outcome {
            Ok(()) => drop(answer.end()),
            Err(error) if !answer.has_begun && error.code != "cut" => drop(answer.refuse(&error)),
            Err(_) => {}
        }
        // A reset would discard data that the other side has not read yet.
        let _ = stream.shutdown(Shutdown::Write);
    }

    fn route<'a>(
        &'a self,
        line: &str,
        headers: &HashMap<String, String>,
        input: BufReader<&TcpStream>,
        answer: &mut ChunkedAnswer<'a>,
    ) -> Result<(), GitError> {
        let header = |name: &str| headers.get(name).map(String::as_str);
        // Only command lines with this server's address count, because other tests run at the same
        // time.
        if is_on_command_line(&[TOKEN, header("host").unwrap_or_default()]) {
            self.was_token_exposed.store(true, Ordering::SeqCst);
        }
        if header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return Err(error_with_code("unauthorized"));
        }
        let writers = self.writers.lock().unwrap().clone();
        let may_write =
            move |name: &str| attempt_of_keep_ref(name).is_some_and(|id| writers.contains(&id));
        let (git, repo) = (&self.world.git, &self.world.repo);
        let path = line.split(' ').nth(1).unwrap_or_default();
        let wire = |service| GitHttpRequest {
            service,
            protocol: header("git-protocol"),
            is_gzip: header("content-encoding") == Some("gzip"),
        };
        if let Some(name) = path.strip_prefix("/git/shop/info/refs?service=") {
            let service =
                GitService::from_name(name).ok_or_else(|| error_with_code("bad_request"))?;
            answer.kind = format!("{name}-advertisement");
            let refs = git.advertise(repo, &wire(service), &may_write)?;
            return answer.write_all(&refs).map_err(|_| error_with_code("cut"));
        }
        let service = path
            .strip_prefix("/git/shop/")
            .and_then(GitService::from_name)
            .ok_or_else(|| error_with_code("bad_request"))?;
        answer.kind = format!("{}-result", service.name());
        let body: Box<dyn Read + '_> = match header("transfer-encoding") {
            Some("chunked") => Box::new(ChunkedBody {
                input,
                remaining: 0,
                has_ended: false,
            }),
            _ => Box::new(
                input.take(
                    header("content-length")
                        .and_then(|text| text.parse().ok())
                        .unwrap_or(0),
                ),
            ),
        };
        let mut body = InterruptedBody {
            inner: body,
            budget: &self.cut_request,
        };
        answer.budget = Some(&self.cut_answer);
        let peer = PeerStreams {
            request: &mut body,
            answer,
        };
        git.serve(repo, &wire(service), &may_write, peer)
    }
}

fn error_with_code(code: &'static str) -> GitError {
    GitError {
        code,
        message: code.into(),
        hint: String::new(),
    }
}

fn read_head(input: &mut impl BufRead) -> Option<(String, HashMap<String, String>)> {
    let mut line = || {
        let mut text = String::new();
        input
            .read_line(&mut text)
            .ok()
            .filter(|input| *input > 0)
            .map(|_| text.trim_end().to_owned())
    };
    let first = line()?;
    let mut headers = HashMap::new();
    while let Some((name, value)) = line()?.split_once(": ") {
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    Some((first, headers))
}

/// Returns whether a process of this machine has all these words on its command line, where
/// everybody could read them.
fn is_on_command_line(arguments: &[&str]) -> bool {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let has_argument = |line: &[u8], argument: &str| {
        line.windows(argument.len().max(1))
            .any(|line| line == argument.as_bytes())
    };
    lines.into_iter().any(|line| {
        arguments
            .iter()
            .all(|argument| has_argument(&line, argument))
    })
}

/// A chunked answer. Its head is sent with its first byte, so that an earlier error can have a
/// status.
struct ChunkedAnswer<'a> {
    stream: &'a TcpStream,
    kind: String,
    has_begun: bool,
    budget: Option<&'a AtomicU64>,
}

/// Returns how much of `wanted` may still pass, or nothing when the transfer is interrupted here.
fn take_from_budget(budget: &AtomicU64, requested: usize) -> Option<usize> {
    let remaining = budget.load(Ordering::SeqCst);
    if remaining == NOT_CUT {
        return Some(requested);
    }
    let passes = requested.min(usize::try_from(remaining).unwrap());
    budget.store(
        if passes == 0 {
            NOT_CUT
        } else {
            remaining - passes as u64
        },
        Ordering::SeqCst,
    );
    (passes > 0).then_some(passes)
}

impl ChunkedAnswer<'_> {
    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        let kind = &self.kind;
        let head = "HTTP/1.1 200 OK\r\nCache-Control: no-cache\r\nTransfer-Encoding: \
            chunked\r\nConnection: close\r\n";
        write!(
            self.stream,
            "{head}Content-Type: application/x-{kind}\r\n\r\n"
        )
    }
    fn end(&mut self) -> io::Result<()> {
        self.begin()?;
        self.stream.write_all(b"0\r\n\r\n")
    }
    fn refuse(&mut self, error: &GitError) -> io::Result<()> {
        let status = match error.code {
            "unauthorized" => "401 Unauthorized",
            "bad_request" => "400 Bad Request",
            _ => "500 Internal Server Error",
        };
        let (head, text) = (
            "Content-Type: text/plain\r\nConnection: close\r\n",
            &error.message,
        );
        write!(
            self.stream,
            "HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\n\r\n{text}",
            text.len()
        )
    }
}

impl Write for ChunkedAnswer<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.begin()?;
        let Some(length) = self.budget.map_or(Some(piece.len()), |atomic| {
            take_from_budget(atomic, piece.len())
        }) else {
            // The connection ends abruptly, as if its cable were unplugged.
            let _ = self.stream.shutdown(Shutdown::Both);
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        write!(self.stream, "{length:x}\r\n")?;
        self.stream.write_all(&piece[..length])?;
        self.stream.write_all(b"\r\n")?;
        Ok(length)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A chunked request body.
struct ChunkedBody<R> {
    input: R,
    remaining: u64,
    has_ended: bool,
}

impl<R: BufRead> Read for ChunkedBody<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.remaining == 0 && !self.has_ended {
            let mut line = String::new();
            self.input.read_line(&mut line)?;
            if line.trim().is_empty() {
                line.clear();
                self.input.read_line(&mut line)?;
            }
            self.remaining = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            self.has_ended = self.remaining == 0;
        }
        if self.has_ended {
            return Ok(0);
        }
        let length = (&mut self.input).take(self.remaining).read(buffer)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.remaining -= length as u64;
        Ok(length)
    }
}

/// A body that is interrupted.
struct InterruptedBody<'a, R> {
    inner: R,
    budget: &'a AtomicU64,
}

impl<R: Read> Read for InterruptedBody<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        let is_at_end = length == 0 && self.budget.load(Ordering::SeqCst) > 0;
        // Bytes after the interruption are dropped.
        if is_at_end {
            Ok(0)
        } else {
            take_from_budget(self.budget, length)
                .ok_or_else(|| io::ErrorKind::ConnectionReset.into())
        }
    }
}

/// Returns the findings of git's own check of a repository. An empty text means that it is sound.
pub(crate) fn fsck_findings(git_dir: &Path) -> String {
    let output = crate::world::try_git(
        git_dir,
        [
            "fsck",
            "--full",
            "--strict",
            "--no-dangling",
            "--no-progress",
        ],
    );
    if output.status.success() {
        String::new()
    } else {
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}
