//! Resolves the ids that people type: finds the task, attempt, mission, agent or commit that a text
//! names.
//!
//! The forms of ids are defined in `regatta_core::reference`. This module knows which kinds of ids
//! each API verb accepts, and looks up in the board (the daemon's state in memory) and in the store
//! which things exist.

use regatta_core::ids::ApprovalId;
use regatta_core::reference::{self, Reference, ReferenceKind, UnclearReference};
use regatta_core::refusal::Refusal;

use super::*;

/// Maximum number of ended landings (merges of tasks' work) that are read to find a git commit.
const MAX_LANDINGS_SEARCHED: usize = 10_000;

/// The kinds of ids that one API verb accepts.
pub(super) struct AcceptedIds {
    /// The command that hints show for this API verb, such as `show` in `regatta show T1`.
    pub(super) verb: &'static str,
    pub(super) kinds: &'static [ReferenceKind],
    /// The kinds of ids whose first letter a person may omit, as in `7` for `T7`.
    pub(super) letter_optional: &'static [ReferenceKind],
    /// True if the id may also name an ended task or attempt, or a finished mission.
    pub(super) includes_ended: bool,
}

pub(super) const SHOW: AcceptedIds = AcceptedIds {
    verb: "show",
    kinds: &[
        ReferenceKind::Task,
        ReferenceKind::Attempt,
        ReferenceKind::Mission,
        ReferenceKind::Approval,
        ReferenceKind::Agent,
    ],
    letter_optional: &[ReferenceKind::Task],
    includes_ended: true,
};
pub(super) const WHY: AcceptedIds = AcceptedIds {
    verb: "why",
    kinds: &[
        ReferenceKind::Task,
        ReferenceKind::Approval,
        ReferenceKind::Landing,
        ReferenceKind::Attempt,
        ReferenceKind::Agent,
    ],
    letter_optional: &[ReferenceKind::Task],
    includes_ended: true,
};
pub(super) const GRAPH: AcceptedIds = AcceptedIds {
    verb: "graph",
    kinds: &[
        ReferenceKind::Task,
        ReferenceKind::Mission,
        ReferenceKind::Approval,
        ReferenceKind::Landing,
        ReferenceKind::Attempt,
    ],
    letter_optional: &[ReferenceKind::Task, ReferenceKind::Mission],
    includes_ended: false,
};
pub(super) const TELL: AcceptedIds = AcceptedIds {
    verb: "tell",
    kinds: &[
        ReferenceKind::Task,
        ReferenceKind::Attempt,
        ReferenceKind::Agent,
    ],
    letter_optional: &[ReferenceKind::Task],
    includes_ended: false,
};
pub(super) const PAUSE: AcceptedIds = AcceptedIds {
    verb: "pause",
    ..TELL
};
pub(super) const RESUME: AcceptedIds = AcceptedIds {
    verb: "resume",
    kinds: &[
        ReferenceKind::Task,
        ReferenceKind::Mission,
        ReferenceKind::Attempt,
        ReferenceKind::Agent,
    ],
    letter_optional: &[ReferenceKind::Task, ReferenceKind::Mission],
    includes_ended: false,
};
pub(super) const STOP: AcceptedIds = AcceptedIds {
    verb: "stop",
    kinds: &[
        ReferenceKind::Task,
        ReferenceKind::Mission,
        ReferenceKind::Attempt,
        ReferenceKind::Firing,
        ReferenceKind::Agent,
    ],
    ..RESUME
};
const UNDO: AcceptedIds = AcceptedIds {
    verb: "undo",
    kinds: &[ReferenceKind::Task, ReferenceKind::Commit],
    letter_optional: &[ReferenceKind::Task],
    includes_ended: true,
};

impl VerbHandler<'_> {
    /// Finds the thing that `id` names. An id can have several meanings, for example a task or an
    /// agent, so only things that exist count. If nothing with this id exists, returns the most
    /// likely meaning, so that the caller can report which thing is missing.
    pub(super) fn resolve_reference(
        &self,
        id: &str,
        accepts: &AcceptedIds,
    ) -> Result<Reference, Problem> {
        let board = self.board();
        let exists = |found: &Reference| {
            if accepts.includes_ended {
                found.exists(&board)
            } else {
                found.is_live(&board)
            }
        };
        let by_alias = || {
            let task = board
                .tasks
                .values()
                .find(|task| task.alias.as_deref() == Some(id))
                .map(|task| task.id);
            task.filter(|_| accepts.kinds.contains(&ReferenceKind::Task))
                .map(Reference::Task)
        };
        let readings = match parse_references(id, accepts) {
            Ok(readings) => readings,
            Err(problem) => return by_alias().ok_or(problem),
        };
        match reference::choose(readings, exists) {
            Ok(found) => Ok(found),
            // The id may come from another issue tracker. In that case a task has this id as its
            // alias (second name).
            Err(UnclearReference::Missing(found)) => match by_alias() {
                Some(task) => Ok(task),
                None => match wrong_kind(id, &found, accepts) {
                    Some(problem) => Err(problem),
                    None => Ok(found),
                },
            },
            Err(UnclearReference::Ambiguous(found)) => Err(ambiguous(id, accepts.verb, &found)),
        }
    }

    /// Finds the task that `undo` reverts. `id` is a task's id, or the commit of its landed work.
    pub(super) async fn resolve_undo_target(&self, id: &str) -> Result<TaskId, Problem> {
        let found = parse_references(id, &UNDO)?;
        let mut landed = Vec::new();
        for reading in &found {
            if let Reference::Commit(prefix) = reading {
                landed = self.tasks_landed_as(prefix).await?;
            }
        }
        let board = self.board();
        let exists = |reading: &Reference| match reading {
            Reference::Commit(_) => !landed.is_empty(),
            other => other.exists(&board),
        };
        let missing_commit = |prefix: &str, tasks: &str| {
            let what = format!("{tasks}no task landed as commit {prefix}");
            Problem::new(
                404,
                "no_such_commit",
                what,
                "list the work that landed: regatta undo",
            )
        };
        let is_task_or_commit = found
            .iter()
            .any(|reference| matches!(reference, Reference::Commit(_)))
            && found
                .iter()
                .any(|reference| matches!(reference, Reference::Task(_)));
        match reference::choose(found, exists) {
            Ok(Reference::Task(task)) => Ok(task),
            Ok(Reference::Commit(prefix)) => match landed[..] {
                [task] => Ok(task),
                _ => {
                    let names: Vec<String> = landed.iter().map(ToString::to_string).collect();
                    let what = format!("{} landed as commit {prefix}", names.join(" and "));
                    Err(Problem::new(
                        400,
                        "ambiguous",
                        what,
                        format!(
                            "several tasks landed as this commit, so name the task: regatta undo {}",
                            names[0]
                        ),
                    ))
                }
            },
            // The text can be read as the id of a task and as the id of a commit, but both mean the
            // same task. So the text is not ambiguous.
            Err(UnclearReference::Ambiguous(found)) => match (&found[0], &landed[..]) {
                (Reference::Task(task), [landed_task]) if task == landed_task => Ok(*task),
                _ => Err(ambiguous(id, UNDO.verb, &found)),
            },
            Err(UnclearReference::Missing(Reference::Task(task))) if is_task_or_commit => Err(
                missing_commit(id, &format!("there is no task {task}, and ")),
            ),
            Err(UnclearReference::Missing(Reference::Commit(prefix))) => {
                Err(missing_commit(&prefix, ""))
            }
            Err(UnclearReference::Missing(Reference::Task(task))) => {
                Err(Problem::from(&Refusal::NoSuchTask { task }))
            }
            Ok(other) | Err(UnclearReference::Missing(other)) => {
                Err(unsupported_kind(&other, UNDO.verb))
            }
        }
    }

    /// Returns the tasks whose work landed as a commit with an id that begins with `prefix`.
    async fn tasks_landed_as(&self, prefix: &str) -> Result<Vec<TaskId>, Problem> {
        let (names, prefix) = (
            self.board().projects.keys().cloned().collect::<Vec<_>>(),
            prefix.to_owned(),
        );
        let mut found = self
            .read_history(move |history| {
                let mut found = Vec::new();
                for name in &names {
                    let landed = history.landings(name, MAX_LANDINGS_SEARCHED)?.into_iter().filter(|landing| {
                        matches!(&landing.end, Some(LandingEnd::Landed { commit, .. }) if commit.as_str().starts_with(&prefix))
                    });
                    found.extend(landed.map(|landing| landing.task));
                }
                Ok(found)
            })
            .await?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Finds a task that can receive a message or be paused. `id` names the task itself, its
    /// attempt, or an agent that works on only one task.
    pub(super) fn resolve_active_task(
        &self,
        id: &str,
        accepts: &AcceptedIds,
    ) -> Result<TaskId, Problem> {
        match self.resolve_reference(id, accepts)? {
            Reference::Task(task) => Ok(task),
            Reference::Attempt(attempt) => self.task_of_live_attempt(attempt),
            Reference::Agent(agent) => self.task_of_agent(&agent),
            other => Err(unsupported_kind(&other, accepts.verb)),
        }
    }

    /// Returns the task that a running attempt works on, or an error if the attempt does not run.
    pub(super) fn task_of_live_attempt(&self, attempt: AttemptId) -> Result<TaskId, Problem> {
        let found = self.board().attempts.get(&attempt).map(|live| live.task);
        let missing = || {
            let what = format!("the attempt {attempt} is not running");
            Problem::new(
                404,
                "no_such_attempt",
                what,
                "see the running attempts: regatta status",
            )
        };
        found.ok_or_else(missing)
    }

    /// Returns the task that an agent works on, or an error if the agent works on no task or on
    /// several tasks.
    fn task_of_agent(&self, agent: &AgentName) -> Result<TaskId, Problem> {
        let board = self.board();
        agent::find(&board, agent).map_err(|refusal| Problem::from(&refusal))?;
        let attempts = board
            .attempts
            .values()
            .filter(|attempt| attempt.agent == *agent);
        let tasks: Vec<TaskId> = attempts.map(|attempt| attempt.task).collect();
        match tasks.as_slice() {
            [task] => Ok(*task),
            [] => Err(Problem::new(
                409,
                "idle",
                format!("the agent {agent} works on no task at present"),
                "see the running attempts: regatta status",
            )),
            _ => {
                let names: Vec<String> = tasks.iter().map(ToString::to_string).collect();
                let what = format!("{agent} works on several tasks: {}", names.join(", "));
                Err(Problem::new(
                    409,
                    "which_task",
                    what,
                    "give the id of one of these tasks instead of the agent's name",
                ))
            }
        }
    }

    /// Returns the task to which a reference (a resolved id) belongs: the task itself, or the task
    /// of a request, a landing (merge) or an attempt.
    pub(super) async fn task_of_reference(
        &self,
        found: &Reference,
        verb: &str,
    ) -> Result<TaskId, Problem> {
        let board = self.board();
        match found {
            Reference::Task(task) => Ok(*task),
            Reference::Approval(id) => self.task_of_request(*id).await,
            Reference::Landing(id) => match board.landings.get(id) {
                Some(landing) => Ok(landing.task),
                None => {
                    let what = format!("{id} is not in the landing queue");
                    Err(Problem::new(
                        404,
                        "no_such_landing",
                        what,
                        "see the landing queue and the latest landed work: regatta queue",
                    ))
                }
            },
            Reference::Attempt(id) => {
                let attempt = *id;
                let stored = self
                    .read_history(move |history| history.attempt(attempt))
                    .await?;
                stored
                    .map(|attempt| attempt.task)
                    .ok_or_else(|| no_such_attempt(attempt))
            }
            other => Err(unsupported_kind(other, verb)),
        }
    }

    async fn task_of_request(&self, id: ApprovalId) -> Result<TaskId, Problem> {
        let stored = self
            .read_history(move |history| history.approval(id))
            .await?;
        stored
            .map(|approval| approval.task)
            .ok_or_else(|| no_such_request(id))
    }
}

fn parse_references(id: &str, accepts: &AcceptedIds) -> Result<Vec<Reference>, Problem> {
    reference::readings(id, accepts.kinds, accepts.letter_optional).map_err(|error| {
        Problem::new(
            400,
            "bad_id",
            error.to_string(),
            "see the ids of tasks and attempts: regatta status",
        )
    })
}

/// Returns the error for an id of a kind that the API verb does not accept, such as `Q7`. The
/// general error would say that no agent has this name, because any other id is taken for an
/// agent's name.
fn wrong_kind(id: &str, found: &Reference, accepts: &AcceptedIds) -> Option<Problem> {
    const KINDS_WITH_LETTER: [ReferenceKind; 6] = [
        ReferenceKind::Task,
        ReferenceKind::Attempt,
        ReferenceKind::Mission,
        ReferenceKind::Approval,
        ReferenceKind::Landing,
        ReferenceKind::Firing,
    ];
    let Reference::Agent(_) = found else {
        return None;
    };
    let intended = reference::readings(id, &KINDS_WITH_LETTER, &[])
        .ok()?
        .into_iter()
        .next()?;
    Some(unsupported_kind(&intended, accepts.verb))
}

fn ambiguous(id: &str, verb: &str, found: &[Reference]) -> Problem {
    let names: Vec<String> = found.iter().map(ToString::to_string).collect();
    let commands: Vec<String> = found
        .iter()
        .map(|reading| format!("regatta {verb} {}", reading.unambiguous()))
        .collect();
    let what = format!("{id} can mean {}", names.join(" or "));
    Problem::new(
        400,
        "ambiguous",
        what,
        format!("type one of these commands: {}", commands.join(", or ")),
    )
}

pub(super) fn no_such_attempt(attempt: AttemptId) -> Problem {
    let what = format!("there is no attempt {attempt}");
    Problem::new(
        404,
        "no_such_attempt",
        what,
        "see a task's attempts: regatta show T1",
    )
}

pub(super) fn no_such_request(id: ApprovalId) -> Problem {
    let what = format!("there is no request {id}");
    Problem::new(
        404,
        "no_such_request",
        what,
        "see the open requests: regatta inbox",
    )
}

/// Returns the error for an id of a kind (such as a mission's id) that the API verb does not
/// accept.
pub(super) fn unsupported_kind(found: &Reference, verb: &str) -> Problem {
    let hint = match found {
        Reference::Approval(_) | Reference::Landing(_) if verb != WHY.verb => {
            format!("see what it is about: regatta why {}", found.id())
        }
        _ => format!("see what it accepts: regatta {verb} --help"),
    };
    Problem::new(
        400,
        "bad_id",
        format!("regatta {verb} does not accept a {found}"),
        hint,
    )
}
