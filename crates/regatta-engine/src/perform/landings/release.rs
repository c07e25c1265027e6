//! Makes releases: one at a time per project, protected by the claim (a lease)
//! `release://<project>`. No requested release is dropped.
//!
//! A landing that needs a release waits until the claim is free, however long that takes. The
//! request for the release stays stored in the meantime, so a daemon that is killed tries again
//! after its restart. Each waiting release has its own owner name (`regatta/release-T5`), because
//! an owner cannot hold a claim twice, and waiting for a claim of the same owner would be a
//! deadlock.
//!
//! A release covers everything that landed before it. When several releases wait, only the release
//! for the newest landing is made, and a message in the channel says which landings it covers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use regatta_core::claim::{Acquire, Acquired, ClaimMode, ClaimOwner};
use regatta_core::command::{Actor, Command, CommandOutcome, Request};
use regatta_core::effect::EffectKey;
use regatta_core::ids::{AgentName, ClaimId, ProjectName, TaskId};
use regatta_core::pattern::Uri;
use regatta_core::project::Project;

use crate::{CommandFailure, Engine};

use super::super::block_on_until;
use super::after_landing::{
    CommandEnd, LandedTask, is_release_due, post_message, post_warning, run_command_once,
};

/// The longest wait for the claim (a lease) in one request. After this time the claim is requested
/// again.
const CLAIM_WAIT: Duration = Duration::from_secs(600);
/// The pause before the claim (a lease) is requested again after a request that did not get it.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A landing (a task whose work reached the trunk) that needs a release: the key of its effect and
/// its task. A later landing compares as greater.
type ReleaseEntry = (EffectKey, TaskId);

/// The releases of each project that wait, are being made, or were made since this daemon started.
#[derive(Default)]
pub(crate) struct Releases {
    by_project: Mutex<BTreeMap<ProjectName, ProjectReleases>>,
}

#[derive(Default)]
struct ProjectReleases {
    /// The landings (tasks whose work reached the trunk) whose release waits for its turn or is
    /// being made.
    pending: BTreeSet<ReleaseEntry>,
    /// The newest landing (a task whose work reached the trunk) after which a release was made.
    last_made: Option<ReleaseEntry>,
}

impl Releases {
    fn with_project<T>(
        &self,
        project: &ProjectName,
        act: impl FnOnce(&mut ProjectReleases) -> T,
    ) -> T {
        let mut by_project = self
            .by_project
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        act(by_project.entry(project.clone()).or_default())
    }

    /// Returns the task of the newest landing that waits for its release or has got one, if that
    /// landing is newer than `entry`, because its release includes `entry`. Returns `None` if
    /// `entry` itself is the newest.
    fn covering_task(&self, project: &ProjectName, entry: ReleaseEntry) -> Option<TaskId> {
        let newest = self.with_project(project, |releases| {
            releases.pending.last().copied().max(releases.last_made)
        });
        let (_, newest_task) = newest.filter(|newest| *newest > entry)?;
        Some(newest_task)
    }
}

/// Makes the release that a landing needs, unless the release of a newer landing includes it.
/// Returns `false` if the daemon stops first; the daemon then tries again after its next start.
#[must_use]
pub(super) fn release(
    engine: &Engine,
    project: &Arc<Project>,
    landed: &LandedTask,
    key: EffectKey,
    command: &str,
) -> bool {
    let releases = &engine.shared.releases;
    let entry = (key, landed.task);
    releases.with_project(&project.name, |releases| releases.pending.insert(entry));
    let is_settled = release_in_turn(engine, project, landed, key, command);
    releases.with_project(&project.name, |releases| releases.pending.remove(&entry));
    is_settled
}

/// Waits until the landing holds the release claim (a lease), then makes the release unless another
/// release includes the landing.
fn release_in_turn(
    engine: &Engine,
    project: &Arc<Project>,
    landed: &LandedTask,
    key: EffectKey,
    command: &str,
) -> bool {
    let Some(turn) = wait_for_turn(engine, project, landed) else {
        return false;
    };
    let task = landed.task;
    let releases = &engine.shared.releases;
    match releases
        .covering_task(&project.name, (key, task))
        .filter(|_| !turn.has_begun)
    {
        Some(newer) => {
            let text = format!("The release after {newer} covers {task}, which landed earlier.");
            post_message(engine, project, "coord:release", &text);
        }
        None if turn.has_waited && !is_release_due(engine, project, landed) => {
            let text = format!("{task} is in a release that was made in the meantime.");
            post_message(engine, project, "coord:release", &text);
        }
        None => {
            match run_command_once(engine, project, landed, (command, format!("release-{key}"))) {
                CommandEnd::Passed => {
                    releases.with_project(&project.name, |releases| {
                        releases.last_made = releases.last_made.max(Some((key, task)))
                    });
                }
                CommandEnd::Failed | CommandEnd::Stopped => {}
                // Keep the claim (a lease), so that the daemon finds the claim after its next start
                // and knows that the release command may have been started.
                CommandEnd::Interrupted => return false,
            }
        }
    }
    let ReleaseTurn { claim, token, .. } = turn;
    let request = Request {
        by: Actor::Regatta,
        key: None,
        command: Command::Release { claim, token },
    };
    if let Err(failure) = engine.submit(request) {
        tracing::debug!(%claim, "could not give back claim {claim} after releasing project {}; \
            the next release waits until the claim expires: {failure}", project.name);
    }
    true
}

/// A landing's turn to make its release. During the turn the landing holds the claim (a lease) on
/// the project's releases, so no other release is made at the same time.
struct ReleaseTurn {
    claim: ClaimId,
    token: u64,
    /// True if another release held the claim (a lease) when this landing requested the claim. That
    /// release may have included this landing.
    has_waited: bool,
    /// True if an earlier daemon process already held the claim (a lease) for this landing. The
    /// release command may then have been started.
    has_begun: bool,
}

/// Waits until this landing holds the release claim (a lease). Returns `None` if the daemon stops
/// first.
fn wait_for_turn(
    engine: &Engine,
    project: &Arc<Project>,
    landed: &LandedTask,
) -> Option<ReleaseTurn> {
    let name = format!("regatta/release-{}", landed.task);
    let owner = ClaimOwner::Agent(AgentName::new(&name).expect("a name with a task's id is valid"));
    let board = engine.board();
    let own = board
        .claims_of(&owner)
        .into_iter()
        .find_map(|claim| board.claims.get(&claim));
    if let Some(own) = own {
        return Some(ReleaseTurn {
            claim: own.id,
            token: own.token,
            has_waited: false,
            has_begun: true,
        });
    }
    let mut has_waited = false;
    let mut has_warned = false;
    while !engine.is_stopping() {
        let acquire = Acquire {
            owner: owner.clone(),
            uris: vec![Uri::for_release(&project.name)],
            mode: ClaimMode::Exclusive,
            ttl_ms: project.validation_timeout_ms + 60_000,
            wait_ms: 0,
            memo: format!("the release after {}", landed.task),
        };
        // The first request for the claim does not wait. If it is refused, another release is being
        // made, so the next request waits for the claim.
        let wait_ms = if has_waited {
            CLAIM_WAIT.as_millis() as u64
        } else {
            0
        };
        let acquisition = engine.acquire(Actor::Regatta, None, Acquire { wait_ms, ..acquire });
        match block_on_until(
            acquisition,
            Instant::now() + CLAIM_WAIT + Duration::from_secs(5),
        ) {
            Some(Ok(reply)) => match reply.outcome {
                CommandOutcome::Claim(Acquired::Granted { claim, token, .. }) => {
                    return Some(ReleaseTurn {
                        claim,
                        token,
                        has_waited,
                        has_begun: false,
                    });
                }
                outcome => {
                    tracing::error!(task = %landed.task, "task {} has landed and its release \
                        is due, but the request for the release's claim got an unexpected answer; \
                        requesting the claim again: {outcome:?}",
                        landed.task)
                }
            },
            Some(Err(CommandFailure::Stopping)) => return None,
            Some(Err(_)) if !has_waited => {
                has_waited = true;
                continue;
            }
            Some(Err(failure)) if !has_warned => {
                let text = format!(
                    "The release after {} still waits for its claim: {failure}",
                    landed.task
                );
                post_warning(engine, project, "coord:release", &text);
                has_warned = true;
            }
            Some(Err(_)) | None => {}
        }
        std::thread::sleep(RETRY_DELAY);
    }
    None
}
