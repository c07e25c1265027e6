//! The runner's connection to the daemon. Each call uses a connection of its own and returns its
//! outcome.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use regatta_api::view::Answer;
use regatta_api::{Call, Problem};
use regatta_engine::ports::git::Remote;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::out::Failed;

/// The timeout of a call: longer than the daemon keeps a call waiting.
const PATIENCE: Duration = Duration::from_secs(75);

/// The reason why a call failed.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The daemon refused the call.
    Refused(Problem),
    /// The daemon was unreachable, or its answer was lost. It is unknown whether the call took
    /// effect.
    Away(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Refused(problem) => f.write_str(&problem.message),
            Broken::Away(why) => f.write_str(why),
        }
    }
}

/// The address and credentials of the daemon.
pub(crate) struct Line {
    server: String,
    token: String,
    ca: Option<PathBuf>,
}

impl Line {
    pub(crate) fn new(server: &str, token: &str, ca: Option<PathBuf>) -> Result<Line, Failed> {
        Ok(Line { server: server.trim_end_matches('/').to_owned(), token: token.to_owned(), ca })
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Returns the daemon's repository of a project.
    pub(crate) fn repository(&self, project: &str) -> Remote {
        Remote { url: format!("{}/git/{project}", self.server), token: self.token.clone(), ca: self.ca.clone() }
    }

    pub(crate) fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Broken> {
        let away = |it: Failed| Broken::Away(it.words());
        let client = Client::remote(&self.server, &self.token, PATIENCE).map_err(away)?;
        let body = call.to_json().map_err(|it| Broken::Away(it.to_string()))?;
        let path = format!("/api/v1/{}", call.verb().name);
        let (status, body) = client.exchange(&path, &[], body).map_err(away)?;
        if !(200..300).contains(&status) {
            let problem: Result<Problem, _> = serde_json::from_slice(&body);
            return Err(match problem {
                // The daemon is stopping or cannot store anything now. That is temporary.
                Ok(problem) if problem.status >= 500 || problem.status == 429 => Broken::Away(problem.message),
                Ok(problem) => Broken::Refused(problem),
                Err(_) => Broken::Away(format!("the daemon answered {status}")),
            });
        }
        let answer: Answer<T> = serde_json::from_slice(&body)
            .map_err(|it| Broken::Away(format!("could not read the daemon's answer: {it}")))?;
        Ok(answer.data)
    }
}
