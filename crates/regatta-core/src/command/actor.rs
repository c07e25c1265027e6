//! The actor of a command: the person or agent that asks for a change, or Regatta itself.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::AgentName;

/// The person or agent that asks for a change, or Regatta itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Actor {
    /// A person, with the person's name.
    Person(String),
    Agent(AgentName),
    Regatta,
}

impl Serialize for Actor {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Actor::Agent(name) => name.serialize(to),
            Actor::Person(_) | Actor::Regatta => to.collect_str(self),
        }
    }
}

crate::ids::described!(Actor, "person:NAME, an agent's name, or regatta:");

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::Person(name) => write!(f, "person:{name}"),
            Actor::Agent(name) => write!(f, "{name}"),
            Actor::Regatta => f.write_str("regatta:"),
        }
    }
}

impl Actor {
    /// Returns the name of the person or agent, or `Regatta`, as people see it.
    pub fn display_name(&self) -> &str {
        match self {
            Actor::Person(name) => name,
            Actor::Agent(name) => name.as_str(),
            Actor::Regatta => "Regatta",
        }
    }
}

impl From<Actor> for String {
    fn from(actor: Actor) -> String {
        actor.to_string()
    }
}

impl TryFrom<String> for Actor {
    type Error = crate::ids::BadName;
    fn try_from(text: String) -> Result<Actor, crate::ids::BadName> {
        Ok(match text.strip_prefix("person:") {
            Some(name) => Actor::Person(name.to_owned()),
            None if text == "regatta:" => Actor::Regatta,
            None => Actor::Agent(AgentName::new(&text)?),
        })
    }
}
