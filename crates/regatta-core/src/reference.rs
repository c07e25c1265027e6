//! Finds the meaning of an id that a person typed, such as `T5`.
//!
//! Several commands accept ids of different kinds: `undo` takes a task or a commit, `stop` takes a
//! task, an attempt, a mission or an agent. One text can have several meanings: `35312334` is task
//! T35312334 or the beginning of a commit, and `a5` is attempt A5 or an agent with that name.
//! [`readings`] lists the possible meanings, and [`choose`] picks the only meaning that exists, or
//! reports all existing meanings. A prefix such as `task:` or `agent:` forces one kind, so that
//! everything can be named.
//!
//! Not here: checking whether a commit or an ended task exists. The caller does that.

use std::fmt;

use crate::board::Board;
use crate::ids::{
    AgentName, ApprovalId, AttemptId, BadName, FiringId, LandingId, MissionId, TaskId,
};

/// Minimum length of an abbreviated commit id.
const MIN_COMMIT_PREFIX: usize = 4;
/// Maximum length of a commit id, which is that of a SHA-256 id.
const MAX_COMMIT_PREFIX: usize = 64;

/// A kind of thing whose id a command can accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceKind {
    Task,
    Attempt,
    Mission,
    Approval,
    Landing,
    Firing,
    Agent,
    Commit,
}

impl ReferenceKind {
    /// Returns the word with which a person forces this kind, as `task` in `task:T5`.
    fn prefix(self) -> &'static str {
        match self {
            ReferenceKind::Task => "task",
            ReferenceKind::Attempt => "attempt",
            ReferenceKind::Mission => "mission",
            ReferenceKind::Approval => "request",
            ReferenceKind::Landing => "landing",
            ReferenceKind::Firing => "firing",
            ReferenceKind::Agent => "agent",
            ReferenceKind::Commit => "commit",
        }
    }

    /// Returns the letter with which ids of this kind begin, as in `T5`, or `None` for kinds
    /// without one.
    fn letter(self) -> Option<char> {
        match self {
            ReferenceKind::Task => Some('T'),
            ReferenceKind::Attempt => Some('A'),
            ReferenceKind::Mission => Some('M'),
            ReferenceKind::Approval => Some('Q'),
            ReferenceKind::Landing => Some('L'),
            ReferenceKind::Firing => Some('F'),
            ReferenceKind::Agent | ReferenceKind::Commit => None,
        }
    }

    /// Parses a text as an id of this kind, without checking whether it exists.
    fn parse(self, text: &str) -> Result<Reference, BadName> {
        match self {
            ReferenceKind::Task => text.parse().map(Reference::Task),
            ReferenceKind::Attempt => text.parse().map(Reference::Attempt),
            ReferenceKind::Mission => text.parse().map(Reference::Mission),
            ReferenceKind::Approval => text.parse().map(Reference::Approval),
            ReferenceKind::Landing => text.parse().map(Reference::Landing),
            ReferenceKind::Firing => text.parse().map(Reference::Firing),
            ReferenceKind::Agent => AgentName::new(text).map(Reference::Agent),
            ReferenceKind::Commit if is_commit_prefix(text) => {
                Ok(Reference::Commit(text.to_ascii_lowercase()))
            }
            ReferenceKind::Commit => {
                Err(BadName::new("a commit id", text, "use 4 to 64 hex digits"))
            }
        }
    }
}

/// One possible meaning of an id that a person typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    Task(TaskId),
    Attempt(AttemptId),
    Mission(MissionId),
    Approval(ApprovalId),
    Landing(LandingId),
    /// One run of a hook (a rule that starts a command).
    Firing(FiringId),
    Agent(AgentName),
    /// A commit, by the beginning of its id in lower case.
    Commit(String),
}

impl Reference {
    /// Returns the kind of thing that this id names.
    fn kind(&self) -> ReferenceKind {
        match self {
            Reference::Task(_) => ReferenceKind::Task,
            Reference::Attempt(_) => ReferenceKind::Attempt,
            Reference::Mission(_) => ReferenceKind::Mission,
            Reference::Approval(_) => ReferenceKind::Approval,
            Reference::Landing(_) => ReferenceKind::Landing,
            Reference::Firing(_) => ReferenceKind::Firing,
            Reference::Agent(_) => ReferenceKind::Agent,
            Reference::Commit(_) => ReferenceKind::Commit,
        }
    }

    /// Returns the id without the word for its kind: `T5` and not `task:T5`.
    pub fn id(&self) -> String {
        match self {
            Reference::Task(id) => id.to_string(),
            Reference::Attempt(id) => id.to_string(),
            Reference::Mission(id) => id.to_string(),
            Reference::Approval(id) => id.to_string(),
            Reference::Landing(id) => id.to_string(),
            Reference::Firing(id) => id.to_string(),
            Reference::Agent(name) => name.to_string(),
            Reference::Commit(prefix) => prefix.clone(),
        }
    }

    /// Returns a text that a person can type and that can mean nothing else, such as `task:T5`.
    pub fn unambiguous(&self) -> String {
        format!("{}:{}", self.kind().prefix(), self.id())
    }

    /// Returns whether this id names something that exists or has ended. The result is always
    /// `false` for commits, because they are not on the board (the state of all live work).
    pub fn exists(&self, board: &Board) -> bool {
        let was_assigned = |number: u64, highest: u64| number > 0 && number <= highest;
        match self {
            Reference::Task(id) => was_assigned(id.0, board.counters.task),
            Reference::Attempt(id) => was_assigned(id.0, board.counters.attempt),
            Reference::Mission(id) => was_assigned(id.0, board.counters.mission),
            Reference::Approval(id) => was_assigned(id.0, board.counters.approval),
            Reference::Landing(id) => was_assigned(id.0, board.counters.landing),
            Reference::Firing(id) => was_assigned(id.0, board.counters.firing),
            Reference::Agent(name) => board.agents.contains_key(name),
            Reference::Commit(_) => false,
        }
    }

    /// Returns whether this id names something that has not ended. A request for permission has
    /// ended only when its answer was delivered or is no longer needed.
    pub fn is_live(&self, board: &Board) -> bool {
        match self {
            Reference::Task(id) => board.tasks.contains_key(id),
            Reference::Attempt(id) => board.attempts.contains_key(id),
            Reference::Mission(id) => board.missions.contains_key(id),
            Reference::Approval(id) => board.approvals.contains_key(id),
            Reference::Landing(id) => board.landings.contains_key(id),
            Reference::Firing(id) => board.firings.contains_key(id),
            Reference::Agent(name) => board.agents.contains_key(name),
            Reference::Commit(_) => false,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind().prefix(), self.id())
    }
}

/// The reason why an id that a person typed could not be resolved to one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnclearReference {
    /// The text can mean several things that exist.
    Ambiguous(Vec<Reference>),
    /// The text has a valid form, but none of its possible meanings exists. Contains the most
    /// likely meaning.
    Missing(Reference),
}

/// Returns whether a text has the form of a commit id or of the beginning of one.
fn is_commit_prefix(text: &str) -> bool {
    (MIN_COMMIT_PREFIX..=MAX_COMMIT_PREFIX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns every possible meaning of `text` among `kinds`, the most likely first.
///
/// A number without a letter can mean only the kinds in `bare`. For example, `stop 5` may mean a
/// task or a mission, but `show 5` means only the task, because with more kinds a number would
/// nearly always be ambiguous.
pub fn readings(
    text: &str,
    kinds: &[ReferenceKind],
    bare: &[ReferenceKind],
) -> Result<Vec<Reference>, BadName> {
    if let Some((prefix, rest)) = text.split_once(':')
        && let Some(kind) = kinds.iter().find(|kind| kind.prefix() == prefix)
    {
        return kind.parse(rest).map(|reference| vec![reference]);
    }
    let first = text
        .chars()
        .next()
        .map(|letter| letter.to_ascii_uppercase());
    let allowed = |kind: &&ReferenceKind| match kind.letter() {
        None => true,
        Some(letter) => first == Some(letter) || bare.contains(kind),
    };
    let found: Vec<Reference> = kinds
        .iter()
        .filter(allowed)
        .filter_map(|kind| kind.parse(text).ok())
        .collect();
    // A text of digits is not taken for an agent's name where a number is expected. An agent with
    // such a name needs the prefix `agent:`.
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_only_agent = is_number
        && !bare.is_empty()
        && found
            .iter()
            .all(|found| matches!(found, Reference::Agent(_)));
    if found.is_empty() || is_only_agent {
        // Report the error for the kind of id whose letter the text begins with, because this error
        // is the most helpful.
        let kind_of_letter = kinds
            .iter()
            .find(|kind| kind.letter().is_some() && kind.letter() == first);
        let kind = kind_of_letter
            .or(kinds.first())
            .copied()
            .unwrap_or(ReferenceKind::Task);
        kind.parse(text)?;
        return Err(BadName::new(
            "an id",
            text,
            "write the letter and the number, such as T21",
        ));
    }
    Ok(found)
}

/// Picks the only meaning for which `exists` is true, or reports that no meaning or more than one
/// meaning exists.
pub fn choose(
    readings: Vec<Reference>,
    exists: impl Fn(&Reference) -> bool,
) -> Result<Reference, UnclearReference> {
    let likeliest = readings.first().cloned();
    let mut found: Vec<Reference> = readings.into_iter().filter(exists).collect();
    match (found.len(), likeliest) {
        (1, _) => Ok(found.remove(0)),
        (0, Some(likeliest)) => Err(UnclearReference::Missing(likeliest)),
        _ => Err(UnclearReference::Ambiguous(found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNDO: &[ReferenceKind] = &[ReferenceKind::Task, ReferenceKind::Commit];
    const STOP: &[ReferenceKind] = &[
        ReferenceKind::Task,
        ReferenceKind::Mission,
        ReferenceKind::Attempt,
        ReferenceKind::Agent,
    ];

    fn task(id: u64) -> Reference {
        Reference::Task(TaskId(id))
    }

    fn commit(prefix: &str) -> Reference {
        Reference::Commit(prefix.into())
    }

    fn agent(name: &str) -> Reference {
        Reference::Agent(AgentName::new(name).expect("a valid name"))
    }

    #[test]
    fn a_text_is_read_as_every_kind_of_id_that_it_can_be() {
        let undo = |text: &str| readings(text, UNDO, &[ReferenceKind::Task]).ok();
        assert_eq!(undo("T12"), Some(vec![task(12)]));
        assert_eq!(undo("t12"), Some(vec![task(12)]));
        assert_eq!(
            undo("12"),
            Some(vec![task(12)]),
            "two digits are too few for a commit"
        );
        assert_eq!(
            undo("35312334"),
            Some(vec![task(35_312_334), commit("35312334")])
        );
        assert_eq!(
            undo("00001234"),
            Some(vec![task(1_234), commit("00001234")])
        );
        assert_eq!(undo("ABCDEF12"), Some(vec![commit("abcdef12")]));
        assert_eq!(undo("task:35312334"), Some(vec![task(35_312_334)]));
        assert_eq!(undo("commit:35312334"), Some(vec![commit("35312334")]));
        let long = "1".repeat(40);
        assert_eq!(
            undo(&long),
            Some(vec![commit(&long)]),
            "no task has so high a number"
        );
        for bad in [
            "",
            "nonsense",
            "T",
            "commit:12",
            "commit:xyz1",
            "task:abcd",
            "agent:bob",
            "-1",
        ] {
            assert_eq!(undo(bad), None, "{bad:?}");
        }
        let stop = |text: &str| {
            readings(text, STOP, &[ReferenceKind::Task, ReferenceKind::Mission])
                .expect("a valid id")
        };
        assert_eq!(
            stop("5"),
            [task(5), Reference::Mission(MissionId(5)), agent("5")]
        );
        assert_eq!(stop("m5"), [Reference::Mission(MissionId(5)), agent("m5")]);
        assert_eq!(stop("A5"), [Reference::Attempt(AttemptId(5)), agent("A5")]);
        assert_eq!(
            stop("amber"),
            [agent("amber")],
            "a letter alone does not make an attempt id"
        );
        assert_eq!(stop("agent:T5"), [agent("T5")]);
    }

    /// Every reading has a text that is read as nothing else.
    #[test]
    fn every_reading_has_an_unambiguous_spelling() {
        for text in [
            "5",
            "T5",
            "A5",
            "M5",
            "Q5",
            "L5",
            "abcd",
            "12345678",
            "shop-dev/lead",
        ] {
            let kinds = &[
                ReferenceKind::Task,
                ReferenceKind::Attempt,
                ReferenceKind::Mission,
                ReferenceKind::Approval,
                ReferenceKind::Landing,
                ReferenceKind::Agent,
                ReferenceKind::Commit,
            ];
            for reading in readings(text, kinds, kinds).expect("a valid id") {
                assert_eq!(
                    readings(&reading.unambiguous(), kinds, kinds),
                    Ok(vec![reading]),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn the_reading_that_exists_is_chosen_and_two_are_ambiguous() {
        let both = || vec![task(35_312_334), commit("35312334")];
        assert_eq!(
            choose(both(), |reading| matches!(reading, Reference::Commit(_))),
            Ok(commit("35312334"))
        );
        assert_eq!(
            choose(both(), |reading| matches!(reading, Reference::Task(_))),
            Ok(task(35_312_334))
        );
        assert_eq!(
            choose(both(), |_| true),
            Err(UnclearReference::Ambiguous(both()))
        );
        assert_eq!(
            choose(both(), |_| false),
            Err(UnclearReference::Missing(task(35_312_334)))
        );
    }
}
