//! Extracts the caller, the origin and the relevant headers from an authenticated request.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use regatta_api::Problem;
use regatta_api::pagination::Paging;
use regatta_api::verb::TokenScope;
use regatta_core::command::Actor;
use regatta_core::ids::{AgentName, RequestKey};

use crate::ProblemResponse;
use crate::listen::ConnectionOrigin;
use crate::tokens::Principal;
use crate::verbs::RequestContext;

/// The parts of a request that every handler needs: who sent it, from where, and its headers.
#[derive(Clone, Debug)]
pub(crate) struct Authenticated {
    pub(crate) principal: Principal,
    pub(crate) origin: ConnectionOrigin,
    pub(crate) headers: HeaderMap,
}

impl<S: Sync> FromRequestParts<S> for Authenticated {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &S,
    ) -> Result<Authenticated, ProblemResponse> {
        // The authentication layer and the connection have set these extensions. A request without
        // them is refused.
        let principal = parts
            .extensions
            .get::<Principal>()
            .cloned()
            .ok_or_else(crate::tokens::no_token)?;
        let origin = parts
            .extensions
            .get::<ConnectionOrigin>()
            .copied()
            .ok_or_else(crate::tokens::no_token)?;
        Ok(Authenticated {
            principal,
            origin,
            headers: parts.headers.clone(),
        })
    }
}

impl Authenticated {
    /// Returns the value of a header, if the header exists and is plain text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the name under which the caller's changes are recorded, and the request's
    /// idempotency key (with which a client can safely repeat a request). Only a caller who can
    /// read the data directory may choose the person's name; for all others, the access token
    /// determines the name.
    pub(crate) fn request_context(&self) -> Result<RequestContext, Problem> {
        let actor = match &self.principal {
            Principal::Owner => self
                .header("x-regatta-person")
                .filter(|name| name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_graphic()))
                .map_or(Actor::Person("operator".into()), |name| {
                    Actor::Person(name.into())
                }),
            Principal::Named {
                name,
                scope: TokenScope::Runner,
            } => Actor::Agent(AgentName::new(&format!("runner/{name}")).map_err(|_| bad_key())?),
            Principal::Named { name, .. } => Actor::Person(name.clone()),
            Principal::Attempt { agent, .. } | Principal::Firing { agent, .. } => {
                Actor::Agent(agent.clone())
            }
        };
        let idempotency_key = match self.headers.get("idempotency-key") {
            None => None,
            Some(value) => {
                let text = value.to_str().map_err(|_| bad_key())?;
                // The caller's access token becomes part of the idempotency key, so that nobody can
                // read or block another caller's answers by sending the same key.
                let qualified = match &self.principal {
                    Principal::Owner => text.to_owned(),
                    principal => format!("{}/{text}", principal.label()),
                };
                Some(RequestKey::new(&qualified).map_err(|_| bad_key())?)
            }
        };
        let trace_parent = crate::otlp::parse_traceparent(&self.headers);
        let expected_revision = match self.headers.get("if-match") {
            None => None,
            Some(value) => value
                .to_str()
                .ok()
                .map(|text| text.trim().trim_matches('"'))
                .map(parse_revision)
                .transpose()?
                .flatten(),
        };
        Ok(RequestContext {
            principal: self.principal.clone(),
            origin: self.origin,
            actor,
            idempotency_key,
            trace_parent,
            expected_revision,
            paging: Paging::default(),
        })
    }
}

/// Parses the header If-Match, which holds a revision (the number of an event). A star means that
/// the request has no condition.
fn parse_revision(text: &str) -> Result<Option<u64>, Problem> {
    if text == "*" {
        return Ok(None);
    }
    let invalid = |_| {
        Problem::new(
            400,
            "bad_condition",
            "the header If-Match is not a revision of this daemon",
            "send the ETag of an answer, such as If-Match: \"42\"",
        )
    };
    text.parse().map(Some).map_err(invalid)
}

fn bad_key() -> Problem {
    Problem::new(
        400,
        "bad_key",
        "the header Idempotency-Key is empty, too long, or has characters that are not allowed",
        "send 1 to 200 printable ASCII characters",
    )
}
