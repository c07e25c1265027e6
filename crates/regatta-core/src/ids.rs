//! Names and ids: the types that identify tasks, agents, projects and other objects, and the rules
//! for their text.
//!
//! Ids are numbers that the board gives out in order. An id is written with a letter (`T21`, `A5`),
//! so that a person can type it. Names are chosen by people and checked here before other code sees
//! them. Not here: the choice of the object that a person means if an id fits several objects (see
//! [`reference`](crate::reference)).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The error for a text that is not a valid name or id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}: {why}")]
pub struct BadName {
    what: &'static str,
    text: String,
    why: Cow<'static, str>,
}

impl BadName {
    pub(crate) fn new(
        what: &'static str,
        text: &str,
        why: impl Into<Cow<'static, str>>,
    ) -> BadName {
        // Cut the text, so that a hostile name cannot flood the error message.
        BadName {
            what,
            text: text.chars().take(80).collect(),
            why: why.into(),
        }
    }
}

/// Implements the JSON schema of a name or id. In JSON, a name or id is a string.
macro_rules! described {
    ($name:ident, $what:expr) => {
        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "description": $what })
            }
        }
    };
}
pub(crate) use described;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $letter:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(pub u64);

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> { to.collect_str(self) }
        }

        described!($name, $what);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadName;
            /// Reads an id with or without its letter, in upper or lower case: `T21`, `t21` or
            /// `21`.
            fn from_str(text: &str) -> Result<$name, BadName> {
                let digits = text.strip_prefix($letter).or_else(|| text.strip_prefix($letter.to_ascii_lowercase())).unwrap_or(text);
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(BadName::new($what, text, concat!("write ", $letter, " and a number")));
                }
                digits.parse().map($name).map_err(|_| BadName::new($what, text, "the number is too large"))
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String { id.to_string() }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;
            fn try_from(text: String) -> Result<$name, BadName> { text.parse() }
        }
    };
}

number!(/// The id of a task, `T21`.
    TaskId, 'T', "a task id");
number!(/// The id of an attempt, one run of one agent on one task, `A5`.
    AttemptId, 'A', "an attempt id");
number!(/// The id of a claim, `C7`.
    ClaimId, 'C', "a claim id");
number!(/// The id of a wait for a claim, `W3`.
    WaitId, 'W', "a wait id");
number!(/// The id of a landing, `L4`.
    LandingId, 'L', "a landing id");
number!(/// The id of a mission, `M3`.
    MissionId, 'M', "a mission id");
number!(/// The id of a permission request or question, `Q7`.
    ApprovalId, 'Q', "an inbox item");
number!(/// The id of a policy rule, `R2`.
    RuleId, 'R', "a rule id");
number!(/// The id of a message on the bus, `B12`.
    MessageId, 'B', "a message id");
number!(/// The id of a hook, `H3`.
    HookId, 'H', "a hook id");
number!(/// The id of one firing of a hook, `F12`.
    FiringId, 'F', "a firing id");
number!(/// The id of a launch of a team, `N4`.
    LaunchId, 'N', "a launch id");
number!(/// The id of a conversation, `V7`.
    ConversationId, 'V', "a conversation id");

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl Serialize for $name {
            /// Writes the name without copying it, because each claim and event has several names.
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> { to.serialize_str(&self.0) }
        }

        described!($name, concat!("a checked name: ", stringify!($name)));

        impl $name {
            /// Returns `text` as a name, or an error if it breaks the rules for such a name.
            pub fn new(text: &str) -> Result<$name, BadName> {
                let check: fn(&str) -> Result<(), BadName> = $check;
                check(text).map(|()| $name(text.into()))
            }
            /// Returns the name as text.
            pub fn as_str(&self) -> &str { &self.0 }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }

        impl FromStr for $name {
            type Err = BadName;
            fn from_str(text: &str) -> Result<$name, BadName> { $name::new(text) }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String { name.0.to_string() }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;
            fn try_from(text: String) -> Result<$name, BadName> { $name::new(&text) }
        }
    };
}

name!(/// A git repository under management, such as `shop`.
    ProjectName, |text| check_slug("a project name", text, 64));
name!(/// A named identity that can do work, such as `shop-dev/lead-amber-reef`; `/` separates parent from child.
AgentName, |text| {
    const WHAT: &str = "an agent name";
    if text.len() > 200 {
        return Err(BadName::new(WHAT, text, "it is longer than 200 characters"));
    }
    text.split('/').try_for_each(|part| check_slug(WHAT, part, 64))
});
name!(/// A lead and its members, such as `harbour`.
    TeamName, |text| check_slug("a team name", text, 64));
name!(/// A member of a team, such as `tom`; as an agent it is `harbour/tom`.
    MemberName, |text| check_slug("a member's name", text, 64));
name!(/// A process on some machine that executes attempts, such as `build-box`.
    RunnerName, |text| check_slug("a runner name", text, 64));
name!(/// A channel of the bus: a plain name, or `@name` for messages to one agent.
ChannelName, |text| {
    let plain = text.strip_prefix(['#', '@']).unwrap_or(text);
    if text.starts_with('@') { AgentName::new(plain).map(|_| ()) } else { check_slug("a channel name", text, 100) }
});
name!(/// A label on a message, such as `coord:merge`.
Label, |text| {
    const WHAT: &str = "a label";
    if text.is_empty() || text.len() > 100 {
        return Err(BadName::new(WHAT, text, "use 1 to 100 characters"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte)) {
        return Err(BadName::new(WHAT, text, "use only letters, digits and - _ . : /"));
    }
    Ok(())
});
name!(/// A caller's key for one request, so that a repeated request is done once (J9).
RequestKey, |text| {
    if text.is_empty() || text.len() > 200 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BadName::new("a request key", text, "use 1 to 200 printable ASCII characters"));
    }
    Ok(())
});
name!(/// A git object id, in full: 40 or 64 lower-case hex digits.
CommitId, |text| {
    if !matches!(text.len(), 40 | 64) || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(BadName::new("a full commit id", text, "use 40 or 64 lower-case hex digits"));
    }
    Ok(())
});
name!(/// A branch name that git accepts and that no program can mistake for an option.
BranchName, |text| {
    const WHAT: &str = "a branch name";
    let bad = |why| Err(BadName::new(WHAT, text, why));
    if text.is_empty() || text.len() > 200 {
        return bad("use 1 to 200 characters");
    }
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return bad("begin with a letter or a digit");
    }
    if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte)) {
        return bad("use only letters, digits and - _ . /");
    }
    if text.contains("..") || text.contains("//") || text.ends_with('/') || text.ends_with('.')
        || text.split('/').any(|part| part.starts_with('.') || part.ends_with(".lock"))
    {
        return bad("git does not accept it");
    }
    Ok(())
});

/// Checks that a text has 1 to `longest` characters, has only letters, digits, `-`, `_` and `.`, and
/// begins with a letter or a digit.
fn check_slug(what: &'static str, text: &str, longest: usize) -> Result<(), BadName> {
    if text.is_empty() || text.len() > longest {
        return Err(BadName::new(
            what,
            text,
            format!("use 1 to {longest} characters"),
        ));
    }
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(BadName::new(what, text, "begin with a letter or a digit"));
    }
    if !text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    {
        return Err(BadName::new(
            what,
            text,
            "use only letters, digits and - _ .",
        ));
    }
    Ok(())
}

/// The time at which something is decided. Callers always pass the time as an argument, because
/// this crate never reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Milliseconds of the fleet clock. This clock only rises, counts only while a daemon runs, and
    /// ignores changes of the machine's date. All deadlines use the fleet clock.
    #[serde(rename = "at")]
    pub fleet_ms: u64,
    /// Milliseconds since 1970, to show to people. No decision depends on this time.
    #[serde(rename = "wall")]
    pub unix_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_with_or_without_its_letter() {
        assert_eq!("T21".parse(), Ok(TaskId(21)));
        assert_eq!("t21".parse(), Ok(TaskId(21)));
        assert_eq!("21".parse(), Ok(TaskId(21)));
        for bad in [
            "",
            "T",
            "T-1",
            "T+1",
            "A1",
            "T 1",
            "T1x",
            "99999999999999999999",
        ] {
            assert!(bad.parse::<TaskId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_that_could_be_paths_or_options_are_refused() {
        for good in ["shop", "a", "x-1.2_3"] {
            assert!(ProjectName::new(good).is_ok(), "{good:?}");
        }
        for bad in [
            "",
            "-rf",
            ".git",
            "a/b",
            "..",
            "a b",
            "ä",
            "a\n",
            "a\0",
            &"x".repeat(65),
        ] {
            assert!(ProjectName::new(bad).is_err(), "{bad:?}");
        }
        // The error names the limit of the kind of name.
        let too_long = ChannelName::new(&"x".repeat(101)).unwrap_err();
        assert!(
            too_long.to_string().ends_with("use 1 to 100 characters"),
            "{too_long}"
        );
        assert!(AgentName::new("shop-dev/lead-amber-reef/worker-frost").is_ok());
        for bad in ["", "/a", "a/", "a//b", "../b", "@a"] {
            assert!(AgentName::new(bad).is_err(), "{bad:?}");
        }
        for good in ["main", "regatta/T1-word-list", "release-1.2"] {
            assert!(BranchName::new(good).is_ok(), "{good:?}");
        }
        for bad in [
            "", "-x", "a..b", "a.lock", "x/.y", "a//b", "a/", "a~1", "a:b", "HEAD^", "a b",
        ] {
            assert!(BranchName::new(bad).is_err(), "{bad:?}");
        }
    }
}
