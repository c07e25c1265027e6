//! Speaking to the daemon: one call after another on a connection of its own, none of them lost in silence.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use regatta_api::view::Answer;
use regatta_api::{Call, Problem};
use regatta_engine::ports::git::Remote;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::out::Failed;

/// Longer than the daemon holds anybody.
const PATIENCE: Duration = Duration::from_secs(75);

/// Why a call gave nothing.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The daemon said no.
    Refused(Problem),
    /// It could not be reached, or its answer was lost: whether the call arrived is not known.
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

/// How the daemon is reached.
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

    /// A project's repository there.
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
                // It stops, or cannot keep anything just now: that passes.
                Ok(problem) if problem.status >= 500 || problem.status == 429 => Broken::Away(problem.message),
                Ok(problem) => Broken::Refused(problem),
                Err(_) => Broken::Away(format!("the daemon answered {status}")),
            });
        }
        let answer: Answer<T> = serde_json::from_slice(&body)
            .map_err(|it| Broken::Away(format!("the daemon's answer cannot be read: {it}")))?;
        Ok(answer.data)
    }
}
