//! Makes the runner's API calls to the daemon. All calls share one client and its connections.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use regatta_api::Problem;
use regatta_api::verb::TypedCall;
use regatta_api::view::VerbAnswer;
use regatta_engine::ports::git::GitRemote;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::output::CommandError;

/// The timeout of a call. It is longer than the maximum time for which the daemon lets a call wait
/// until something happens.
const CALL_TIMEOUT: Duration = Duration::from_secs(75);

/// The reason why a call to the daemon failed, which decides if the call may be repeated.
#[derive(Debug)]
pub(crate) enum DaemonCallError {
    /// The daemon received the call and refused it, so repeating it is useless.
    Refused(Problem),
    /// The daemon was unreachable, or its answer was lost. It is unknown whether the call took
    /// effect.
    Unreachable(String),
}

impl fmt::Display for DaemonCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonCallError::Refused(problem) => f.write_str(&problem.message),
            DaemonCallError::Unreachable(why) => f.write_str(why),
        }
    }
}

/// The address of the daemon, the runner's token for it, and the file with trusted certificates, if
/// any.
pub(crate) struct DaemonClient {
    client: Client,
    server: String,
    token: String,
    ca_file: Option<PathBuf>,
}

impl DaemonClient {
    pub(crate) fn new(
        server: &str,
        token: &str,
        ca: Option<PathBuf>,
    ) -> Result<DaemonClient, CommandError> {
        let server = server.trim_end_matches('/');
        Ok(DaemonClient {
            client: Client::remote(server, token, CALL_TIMEOUT)?,
            server: server.to_owned(),
            token: token.to_owned(),
            ca_file: ca,
        })
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Returns the URL and the credentials by which git fetches a project from the daemon and
    /// pushes work to it.
    pub(crate) fn repository_remote(&self, project: &str) -> GitRemote {
        GitRemote {
            url: format!("{}/git/{project}", self.server),
            token: self.token.clone(),
            ca: self.ca_file.clone(),
        }
    }

    pub(crate) fn call<C: TypedCall>(&self, call: C) -> Result<C::Output, DaemonCallError>
    where
        C::Output: DeserializeOwned,
    {
        let call = call.into_call();
        let away = |error: CommandError| DaemonCallError::Unreachable(error.message());
        let body = call
            .to_json()
            .map_err(|error| DaemonCallError::Unreachable(error.to_string()))?;
        let path = format!("/api/v1/{}", call.verb().name);
        let (status, body) = self.client.post_raw(&path, &[], body).map_err(away)?;
        if !(200..300).contains(&status) {
            let problem: Result<Problem, _> = serde_json::from_slice(&body);
            return Err(match problem {
                // The daemon is stopping, cannot store anything now or has too many requests. All
                // three problems are temporary, so the call can be repeated.
                Ok(problem) if problem.status >= 500 || problem.status == 429 => {
                    DaemonCallError::Unreachable(problem.message)
                }
                Ok(problem) => DaemonCallError::Refused(problem),
                Err(_) => DaemonCallError::Unreachable(format!("the daemon answered {status}")),
            });
        }
        let answer: VerbAnswer<C::Output> = serde_json::from_slice(&body).map_err(|error| {
            DaemonCallError::Unreachable(format!("could not read the daemon's answer: {error}"))
        })?;
        Ok(answer.data)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;

    use regatta_api::{call, input};

    use super::*;

    const REQUESTS_PER_CONNECTION: usize = 3;

    /// Answers a number of connections, and returns the number of requests on each.
    fn serve(listener: &TcpListener, connections: usize) -> Vec<usize> {
        let mut counts = vec![];
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut count = 0;
            while count < REQUESTS_PER_CONNECTION {
                let mut length = 0;
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    let line = line.trim_end().to_ascii_lowercase();
                    if let Some(value) = line.strip_prefix("content-length: ") {
                        length = value.parse().unwrap();
                    }
                    if line.is_empty() {
                        break;
                    }
                }
                reader.read_exact(&mut vec![0; length]).unwrap();
                count += 1;
                let is_last = count == REQUESTS_PER_CONNECTION;
                let connection = if is_last { "close" } else { "keep-alive" };
                let body = r#"{"revision": 1, "data": []}"#;
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nconnection: {connection}\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
                .unwrap();
            }
            counts.push(count);
        }
        counts
    }

    #[test]
    fn calls_share_a_connection_until_the_daemon_closes_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}/", listener.local_addr().unwrap());
        let daemon = std::thread::spawn(move || serve(&listener, 2));
        let client = DaemonClient::new(&server, "token", None).unwrap();
        for _ in 0..2 * REQUESTS_PER_CONNECTION {
            let agents = client.call(call::AgentList(input::EmptyInput {})).unwrap();
            assert!(agents.is_empty());
        }
        assert_eq!(daemon.join().unwrap(), [REQUESTS_PER_CONNECTION; 2]);
    }
}
