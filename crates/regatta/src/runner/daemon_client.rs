//! The runner's connection to the daemon. Each call uses a connection of its own and returns its
//! outcome.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use regatta_api::view::VerbAnswer;
use regatta_api::{Call, Problem};
use regatta_engine::ports::git::GitRemote;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::output::CommandError;

/// The timeout of a call: longer than the daemon keeps a call waiting.
const CALL_TIMEOUT: Duration = Duration::from_secs(75);

/// The reason why a call failed.
#[derive(Debug)]
pub(crate) enum DaemonCallError {
    /// The daemon refused the call.
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

/// The address and credentials of the daemon.
pub(crate) struct DaemonClient {
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
        Ok(DaemonClient {
            server: server.trim_end_matches('/').to_owned(),
            token: token.to_owned(),
            ca_file: ca,
        })
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Returns the daemon's repository of a project.
    pub(crate) fn repository_remote(&self, project: &str) -> GitRemote {
        GitRemote {
            url: format!("{}/git/{project}", self.server),
            token: self.token.clone(),
            ca: self.ca_file.clone(),
        }
    }

    pub(crate) fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<T, DaemonCallError> {
        let away = |error: CommandError| DaemonCallError::Unreachable(error.message());
        let client = Client::remote(&self.server, &self.token, CALL_TIMEOUT).map_err(away)?;
        let body = call
            .to_json()
            .map_err(|error| DaemonCallError::Unreachable(error.to_string()))?;
        let path = format!("/api/v1/{}", call.verb().name);
        let (status, body) = client.post_raw(&path, &[], body).map_err(away)?;
        if !(200..300).contains(&status) {
            let problem: Result<Problem, _> = serde_json::from_slice(&body);
            return Err(match problem {
                // The daemon is stopping or cannot store anything now. That is temporary.
                Ok(problem) if problem.status >= 500 || problem.status == 429 => {
                    DaemonCallError::Unreachable(problem.message)
                }
                Ok(problem) => DaemonCallError::Refused(problem),
                Err(_) => DaemonCallError::Unreachable(format!("the daemon answered {status}")),
            });
        }
        let answer: VerbAnswer<T> = serde_json::from_slice(&body).map_err(|error| {
            DaemonCallError::Unreachable(format!("could not read the daemon's answer: {error}"))
        })?;
        Ok(answer.data)
    }
}
