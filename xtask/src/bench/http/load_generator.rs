//! Many callers on one thread. The load generator must cost as little as possible, and the same for
//! both sides.
//!
//! Each caller has a connection that stays open. A request is one write, and an answer is usually
//! one read. Answers are not parsed; only the values for the next request are extracted.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::TOKEN;
use crate::report::Times;

/// The server that a caller talks to.
#[derive(Clone, Copy)]
pub(super) enum LoadTarget {
    Regatta(SocketAddr),
    Baseline(SocketAddr),
}

/// The load: the number of callers and tasks per caller, without pauses or on a schedule.
#[derive(Clone, Copy)]
pub(super) struct LoadPlan {
    pub(super) callers: usize,
    pub(super) tasks_per_caller: usize,
    pub(super) interval: Option<Duration>,
}

struct LoadCaller {
    stream: TcpStream,
    head: String,
    text: Vec<u8>,
    answer: Vec<u8>,
}

impl LoadCaller {
    async fn open(at: SocketAddr) -> anyhow::Result<LoadCaller> {
        let stream = TcpStream::connect(at)
            .await
            .context("could not connect to the server")?;
        stream.set_nodelay(true)?;
        let head = format!(
            "host: {at}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n"
        );
        Ok(LoadCaller {
            stream,
            head,
            text: Vec::new(),
            answer: Vec::with_capacity(8 * 1024),
        })
    }

    /// Sends a request and returns the body of its answer.
    async fn send(&mut self, path: &str, body: &str) -> anyhow::Result<&str> {
        use std::io::Write as _;
        self.text.clear();
        write!(
            self.text,
            "POST {path} HTTP/1.1\r\n{}content-length: {}\r\n\r\n{body}",
            self.head,
            body.len()
        )?;
        self.stream.write_all(&self.text).await?;
        self.answer.clear();
        loop {
            ensure!(
                self.stream.read_buf(&mut self.answer).await? > 0,
                "the server closed the connection"
            );
            let Some((head, start)) = head_of(&self.answer) else {
                continue;
            };
            let length = head
                .split("content-length: ")
                .nth(1)
                .and_then(|head| head.split("\r\n").next());
            let length: usize = length.context("an answer without a length")?.parse()?;
            if self.answer.len() < start + length {
                continue;
            }
            let whole = head.starts_with("HTTP/1.1 200");
            let body = std::str::from_utf8(&self.answer[start..start + length])?;
            if !whole {
                bail!("{path}: {body}");
            }
            return Ok(body);
        }
    }
}

fn head_of(answer: &[u8]) -> Option<(&str, usize)> {
    let end = answer.windows(4).position(|answer| answer == b"\r\n\r\n")?;
    Some((std::str::from_utf8(&answer[..end]).ok()?, end + 4))
}

/// Returns the text of the first field with this name in an answer.
fn value_after<'a>(answer: &'a str, name: &str) -> anyhow::Result<&'a str> {
    let rest = answer
        .split_once(&format!("\"{name}\":"))
        .context("the answer has no task")?
        .1;
    Ok(&rest[..rest.find([',', '}']).unwrap_or(rest.len())])
}

impl LoadTarget {
    fn address(self) -> SocketAddr {
        match self {
            LoadTarget::Regatta(at) | LoadTarget::Baseline(at) => at,
        }
    }

    /// Polls a task. Returns the request that finishes it.
    async fn poll_task(self, caller: &mut LoadCaller, agent: &str) -> anyhow::Result<String> {
        // The usual server has no workspaces, so none is requested.
        let input = format!("{{\"agent\":\"{agent}\",\"workspace\":false}}");
        match self {
            LoadTarget::Regatta(_) => {
                let granted = caller.send("/api/v1/task.poll", &input).await?;
                let (attempt, token) = (
                    value_after(granted, "attempt")?,
                    value_after(granted, "token")?,
                );
                let task =
                    value_after(granted.split_once("\"task\":").context("no task")?.1, "id")?;
                Ok(format!(
                    "{{\"task\":{task},\"attempt\":{attempt},\"token\":{token},\"output\":\"done\"}}"
                ))
            }
            LoadTarget::Baseline(_) => {
                let granted = caller.send("/poll", &input).await?;
                ensure!(granted.starts_with('{'), "the answer has no task");
                Ok(granted.to_owned())
            }
        }
    }

    async fn finish_task(self, caller: &mut LoadCaller, granted: &str) -> anyhow::Result<()> {
        let path = match self {
            LoadTarget::Regatta(_) => "/api/v1/task.finish",
            LoadTarget::Baseline(_) => "/finish",
        };
        caller.send(path, granted).await.map(|_| ())
    }

    /// Adds tasks over a few connections.
    pub(super) fn add_tasks(self, count: usize) -> anyhow::Result<()> {
        const CONNECTION_COUNT: usize = 32;
        run_callers(CONNECTION_COUNT, |nth| async move {
            let mut caller = LoadCaller::open(self.address()).await?;
            for nth in (nth..count).step_by(CONNECTION_COUNT) {
                match self {
                    LoadTarget::Regatta(_) => {
                        caller
                            .send("/api/v1/task.add", &super::report_task(nth).to_string())
                            .await?
                    }
                    LoadTarget::Baseline(_) => {
                        caller
                            .send("/add", &format!("{{\"subject\":\"Task {nth}\"}}"))
                            .await?
                    }
                };
            }
            Ok(())
        })
        .map(|_| ())
    }

    /// Makes every caller poll and finish its tasks. Returns the times of the polls, and the
    /// processor time of the callers.
    pub(super) fn run(self, load: LoadPlan) -> anyhow::Result<(Times, Duration)> {
        let began = Instant::now();
        let (times, spent) = run_callers(load.callers, |nth| async move {
            let (mut caller, agent) = (
                LoadCaller::open(self.address()).await?,
                format!("agent-{nth}"),
            );
            let mut times = Times::default();
            for step in 0..load.tasks_per_caller {
                let due_after = |duration: Duration| {
                    began
                        + duration * u32::try_from(step).unwrap_or(u32::MAX)
                        + duration * nth as u32 / load.callers as u32
                };
                let due = load.interval.map(due_after);
                if let Some(due) = due {
                    tokio::time::sleep_until(due.into()).await;
                }
                // Measured from the moment when the poll was due, even if this thread is late.
                let from = due.unwrap_or_else(Instant::now);
                let granted = self.poll_task(&mut caller, &agent).await?;
                times.add(from.elapsed());
                self.finish_task(&mut caller, &granted).await?;
            }
            Ok(times)
        })?;
        let mut all = Times::default();
        times.into_iter().for_each(|times| all.extend(times));
        Ok((all, spent))
    }
}

/// Runs callers concurrently on a thread of their own. Returns their results and the thread's
/// processor time.
fn run_callers<T, F, W>(count: usize, work: W) -> anyhow::Result<(Vec<T>, Duration)>
where
    T: Send + 'static,
    F: Future<Output = anyhow::Result<T>> + 'static,
    W: Fn(usize) -> F + Send,
{
    let drive = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let local = tokio::task::LocalSet::new();
        let callers: Vec<_> = (0..count).map(|nth| local.spawn_local(work(nth))).collect();
        runtime.block_on(local.run_until(async {
            let mut all = Vec::with_capacity(count);
            for handle in callers {
                all.push(handle.await??);
            }
            let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Ok((
                all,
                Duration::new(u64::try_from(spent.tv_sec)?, u32::try_from(spent.tv_nsec)?),
            ))
        }))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("callers".into())
            .spawn_scoped(scope, drive)?;
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("the callers panicked"))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_for_the_next_request_are_extracted() {
        let answer = r#"{"revision":7,"data":{"attempt":"A1","token":42,"bearer":"x","task":{"id":"T3","files":[]}}}"#;
        assert_eq!(value_after(answer, "attempt").unwrap(), "\"A1\"");
        assert_eq!(value_after(answer, "token").unwrap(), "42");
        assert!(value_after(answer, "nothing").is_err());
        assert_eq!(
            head_of(b"HTTP/1.1 200 OK\r\na: b\r\n\r\nbody"),
            Some(("HTTP/1.1 200 OK\r\na: b", 25))
        );
        assert_eq!(head_of(b"HTTP/1.1 200 OK\r\n"), None);
    }
}
