//! An authenticated request: its caller, its origin and its headers.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use regatta_api::Problem;
use regatta_api::verb::Scope;
use regatta_core::command::Actor;
use regatta_core::ids::{AgentName, RequestKey};

use crate::Refused;
use crate::calls::Guest;
use crate::listen::Origin;
use crate::tokens::Visitor;

/// The part of a request that every handler needs.
#[derive(Clone, Debug)]
pub(crate) struct Entered {
    pub(crate) visitor: Visitor,
    pub(crate) origin: Origin,
    pub(crate) headers: HeaderMap,
}

impl<S: Sync> FromRequestParts<S> for Entered {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Entered, Refused> {
        // The guard and the connection set these extensions. Without them a request is refused.
        let visitor = parts.extensions.get::<Visitor>().cloned().ok_or_else(crate::tokens::no_token)?;
        let origin = parts.extensions.get::<Origin>().copied().ok_or_else(crate::tokens::no_token)?;
        Ok(Entered { visitor, origin, headers: parts.headers.clone() })
    }
}

impl Entered {
    /// Returns a header, if it is plain text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|it| it.to_str().ok())
    }

    /// Returns the actor of the caller's writes and the idempotency key of this request. Only a
    /// caller who can read the data directory may name the person; for all others the token does.
    pub(crate) fn guest(&self) -> Result<Guest, Problem> {
        let by = match &self.visitor {
            Visitor::Owner => self
                .header("x-regatta-person")
                .filter(|it| it.len() <= 64 && it.bytes().all(|it| it.is_ascii_graphic()))
                .map_or(Actor::Person("operator".into()), |it| Actor::Person(it.into())),
            Visitor::Named { name, scope: Scope::Runner } => {
                Actor::Agent(AgentName::new(&format!("runner/{name}")).map_err(|_| bad_key())?)
            }
            Visitor::Named { name, .. } => Actor::Person(name.clone()),
            Visitor::Attempt { agent, .. } | Visitor::Firing { agent, .. } => Actor::Agent(agent.clone()),
        };
        let key = match self.headers.get("idempotency-key") {
            None => None,
            Some(given) => {
                let given = given.to_str().map_err(|_| bad_key())?;
                // The key is qualified by the caller, so that nobody can find or spoil another
                // caller's answers with the same key.
                let given = match &self.visitor {
                    Visitor::Owner => given.to_owned(),
                    other => format!("{}/{given}", other.label()),
                };
                Some(RequestKey::new(&given).map_err(|_| bad_key())?)
            }
        };
        let parent = crate::trace::parent(&self.headers);
        let unless_changed = match self.headers.get("if-match") {
            None => None,
            Some(given) => {
                given.to_str().ok().map(|it| it.trim().trim_matches('"')).map(read_tag).transpose()?.flatten()
            }
        };
        Ok(Guest { visitor: self.visitor.clone(), origin: self.origin, by, key, parent, unless_changed })
    }
}

/// Parses a revision. A star sets no condition.
fn read_tag(text: &str) -> Result<Option<u64>, Problem> {
    if text == "*" {
        return Ok(None);
    }
    let bad = |_| {
        Problem::new(
            400,
            "bad_condition",
            "If-Match must be a revision",
            "send the ETag of an answer, such as If-Match: \"42\"",
        )
    };
    text.parse().map(Some).map_err(bad)
}

fn bad_key() -> Problem {
    Problem::new(400, "bad_key", "the Idempotency-Key cannot be used", "send 1 to 200 printable ASCII characters")
}
