//! The error that every interface returns: a code for programs, a sentence and a next step for
//! people (RFC 9457).

use regatta_core::refusal::{Refusal, RefusalClass};
use serde::{Deserialize, Serialize};

use crate::json;

/// A problem: the description of an error that the API returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The HTTP status code of the answer.
    pub status: u16,
    /// The error's code, which never changes, so that scripts can test it.
    pub code: String,
    /// A sentence that says what happened and why.
    pub message: String,
    /// A hint about the next step of the caller, with the command to type.
    #[serde(default)]
    pub hint: String,
    /// True if the same request may succeed when it is repeated later.
    #[serde(default)]
    pub retryable: bool,
    /// The id of the thing that the problem is about, such as a task, if there is one.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
}

impl Problem {
    pub fn new(
        status: u16,
        code: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Problem {
        Problem {
            status,
            code: code.into(),
            message: message.into(),
            hint: hint.into(),
            retryable: false,
            about: None,
        }
    }

    /// Returns the problem as JSON for an HTTP answer. Some fields are repeated under the names of
    /// RFC 9457, for clients that know only those names.
    pub fn to_json(&self) -> serde_json::Value {
        let mut document = json::to_value(self).unwrap_or_default();
        document["type"] = format!("urn:regatta:problem:{}", self.code).into();
        document["title"] = self.code.replace('_', " ").into();
        document["detail"] = self.message.as_str().into();
        document
    }

    pub fn bad_input(verb: &str, error: &serde_json::Error) -> Problem {
        Problem::new(
            400,
            "bad_input",
            format!("could not read the input of {verb}: {error}"),
            format!("see the fields of this input: regatta schema {verb}"),
        )
    }

    pub(crate) fn not_an_object(verb: &str) -> Problem {
        Problem::new(
            400,
            "bad_input",
            format!("the input of {verb} is not a JSON object"),
            format!("see the fields of this input: regatta schema {verb}"),
        )
    }

    pub(crate) fn no_such_verb(name: &str) -> Problem {
        let name: String = name.chars().take(60).collect();
        Problem::new(
            404,
            "no_such_verb",
            format!("the API has no verb named {name:?}"),
            "list all verbs: regatta schema",
        )
    }

    /// Returns the exit code of a command that ends with this problem; see `regatta help
    /// exit-codes`.
    pub fn exit_code(&self) -> u8 {
        match (self.code.as_str(), self.status) {
            ("timed_out", _) => 124,
            ("unreachable" | "down", _) => 6,
            ("no_provider", _) => 4,
            (_, 400) => 2,
            (_, 412) => 5,
            (_, 409) if self.is_conflict() => 5,
            _ => 1,
        }
    }

    fn is_conflict(&self) -> bool {
        !matches!(
            self.code.as_str(),
            "at_capacity"
                | "no_capacity"
                | "illegal_transition"
                | "already_finished"
                | "not_offered"
                | "nothing_to_land"
        )
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Problem {
        let status = match refusal.class() {
            RefusalClass::Usage => 400,
            RefusalClass::Missing => 404,
            RefusalClass::State | RefusalClass::Conflict => 409,
            RefusalClass::Changed => 412,
            RefusalClass::Forbidden => 403,
        };
        Problem {
            status,
            code: refusal.code().into(),
            message: refusal.message(),
            hint: refusal.hint(),
            retryable: refusal.is_retryable(),
            about: refusal.subject_id(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::ids::{AgentName, ClaimId, TaskId};
    use regatta_core::task::TaskStatus;

    #[test]
    fn refusals_have_their_status_and_exit_code() {
        let code = |refusal: Refusal| {
            (
                Problem::from(&refusal).status,
                Problem::from(&refusal).exit_code(),
            )
        };
        assert_eq!(code(Refusal::ClaimHeld { holders: vec![] }), (409, 5));
        assert_eq!(
            code(Refusal::StaleClaimToken { claim: ClaimId(1) }),
            (409, 5)
        );
        assert_eq!(
            code(Refusal::AtCapacity {
                agent: AgentName::new("a").unwrap(),
                running: 3,
                max: 3
            }),
            (409, 1)
        );
        assert_eq!(code(Refusal::NoSuchTask { task: TaskId(1) }), (404, 1));
        assert_eq!(
            code(Refusal::Finished {
                task: TaskId(1),
                status: TaskStatus::Completed
            }),
            (409, 1)
        );
        assert_eq!(
            code(Refusal::Invalid {
                what: String::new(),
                hint: String::new()
            }),
            (400, 2)
        );
        let (what, hint) = (String::new(), String::new());
        assert_eq!(code(Refusal::NotYours { what, hint }), (403, 1));
        let (what, hint) = (String::new(), String::new());
        assert_eq!(code(Refusal::TooMany { what, hint }), (409, 5));
    }
}
