//! Makes the runner's API calls to the daemon. Each call opens its own connection.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use regatta_api::verb::TypedCall;
use regatta_api::view::VerbAnswer;
use regatta_api::{Call, Problem};
use regatta_engine::ports::git::GitRemote;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::output::CommandError;

/// The timeout of a call. It is longer than the maximum time for which the daemon lets a call wait
/// until something happens.
const CALL_TIMEOUT: Duration = Duration::from_secs(75);

/// The reason why a call to the daemon failed.
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
        self.call_as(&call.into_call())
    }

    fn call_as<T: DeserializeOwned>(&self, call: &Call) -> Result<T, DaemonCallError> {
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
                // The daemon is stopping, cannot store anything now or has too many requests. All
                // three problems are temporary, so the call can be repeated.
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
