//! Handles the results of trials (a trial merges queued landings on top of the trunk and runs the
//! checks). Not here: the results of moves of the trunk, which are in `trunk_move.rs`.

use serde::{Deserialize, Serialize};

use crate::attempt::first_few;
use crate::board::{Board, Draft};
use crate::bus;
use crate::claim::{self, ClaimOwner};
use crate::event::Event;
use crate::ids::{CommitId, Label, LandingId, Now, ProjectName};
use crate::pattern::Uri;
use crate::project::ConflictPolicy;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::scope_escape::{EscapeSource, ScopeEscape};
use crate::task::{Conflict, Fixup, NextAttempt, SettledPath};
use crate::{collision_forecast, task};

use super::trunk_move::land_all;
use super::{
    CarriedLanding, Landing, LandingDeferred, LandingEnded, LandingHeld, LandingRed,
    LandingReturned, LandingSquashed, LandingState, LandingValidated, NothingNew, QueueOvertaken,
    fault, find, remote_sync, trial_start, wave_commit,
};

/// The result of a trial merge: of merging its landings and running the checks on the merged files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TrialOutcome {
    /// The checks passed on exactly the files of commit `new`, which is based on the trunk commit
    /// `old`. `carries` has the commit that was made of each landing.
    Passed {
        old: CommitId,
        new: CommitId,
        carries: Vec<CarriedLanding>,
    },
    /// The trunk already contains everything that the trial merge would add. `landed_as` has the
    /// trunk's commits whose messages name these landings, if there are any.
    #[serde(rename = "already_there")]
    AlreadyOnTrunk {
        tip: CommitId,
        #[serde(default)]
        landed_as: Vec<(LandingId, CommitId)>,
    },
    /// The landing `at` of the trial merge could not be merged, because it conflicts in `paths`.
    Conflict {
        #[serde(rename = "at")]
        landing: LandingId,
        paths: Vec<String>,
        /// Kind of each conflict, such as "deleted on one side". Filled only for a conflict with
        /// the trunk itself.
        #[serde(default)]
        kinds: Vec<Conflict>,
    },
    /// The merge succeeded, but a check failed on the merged files. `output` is the relevant part
    /// of the failed check's output.
    #[serde(rename = "red")]
    Failed {
        reason: String,
        #[serde(default)]
        output: Option<String>,
        /// Conflicts of this merge that were resolved by taking the version of the task that owns
        /// the file.
        #[serde(default)]
        settled: Vec<SettledPath>,
    },
    /// One of the commits on the last landing's branch fails the checks by itself. This can happen
    /// only with `style = "rebase"`, which keeps the branch's commits.
    #[serde(rename = "red_step")]
    CommitFailed { reason: String },
    /// Somebody outside Regatta moved the trunk, so the results of all trial merges are outdated.
    #[serde(rename = "elsewhere")]
    TrunkMoved,
    /// The trial merge could not run and will be repeated. `at` is the landing that caused the
    /// problem, if a single landing did.
    Held {
        #[serde(rename = "at")]
        landing: Option<LandingId>,
        reason: String,
    },
}

/// Handles the report of a trial merge's result: records it, sends conflicting work back to an
/// agent, or repeats the trial. Then advances the queue. `id` is the last landing of the trial.
pub fn on_trial_result(
    draft: &mut Draft,
    id: LandingId,
    found: TrialOutcome,
    now: Now,
) -> Result<(), Refusal> {
    let landing = find(draft.board(), id)?;
    let LandingState::Trying {
        base,
        unverified,
        void,
        ..
    } = landing.state.clone()
    else {
        return Err(Refusal::StaleLanding { landing: id });
    };
    let project = landing.project.clone();
    let trial = landing.trial_landings();
    // While the trunk is being moved to a landing, only the report of that move may change the
    // landing. Until then, the results of trial merges do not change it (Q12).
    let is_moving = |id: &LandingId| fault::carrying_move(draft.board(), *id).is_some();
    match found {
        _ if void => requeue(draft, id, "another landing of its trial has left the queue"),
        TrialOutcome::Passed { old, new, carries }
            if is_based_on(&old, &carries, base.as_ref()) =>
        {
            let mut carries: Vec<CarriedLanding> = trial
                .iter()
                .filter_map(|id| carried_commit(&carries, *id, &new))
                .collect();
            for carried in &mut carries {
                carried.unverified = unverified.contains(&carried.landing);
            }
            // Some landings ahead may have landed since the trial merge began. The trunk is then at
            // their commit `base`, which is part of this trial.
            let old = base.unwrap_or(old);
            draft.record(Event::LandingValidated(LandingValidated {
                landing: id,
                old,
                new,
                carries: Some(carries),
            }));
        }
        TrialOutcome::Passed { .. } => requeue(
            draft,
            id,
            "the landings ahead of it landed as other commits; merging again",
        ),
        TrialOutcome::Failed { .. } | TrialOutcome::CommitFailed { .. } if is_moving(&id) => {
            requeue(draft, id, MOVE_UNDER_WAY)
        }
        // Every commit that lands must pass the checks (Q1), so this landing's commits are combined
        // into a single commit for the next trial merge.
        TrialOutcome::CommitFailed { reason } => {
            draft.record(Event::LandingSquashed(LandingSquashed {
                landing: id,
                reason,
            }))
        }
        TrialOutcome::AlreadyOnTrunk { .. } if trial.iter().any(is_moving) => {
            requeue(draft, id, MOVE_UNDER_WAY)
        }
        TrialOutcome::Failed {
            reason,
            output,
            settled,
        } => {
            let settled = Some(settled).filter(|settled| !settled.is_empty());
            draft.record(Event::LandingRed(LandingRed {
                landing: id,
                reason,
                output,
                settled,
            }));
        }
        TrialOutcome::AlreadyOnTrunk { tip, landed_as } => {
            let known = |id| {
                landed_as
                    .iter()
                    .find(|(landing, _)| *landing == id)
                    .map(|(_, commit)| commit.clone())
            };
            let carries: Vec<CarriedLanding> = trial
                .iter()
                .map(|id| CarriedLanding {
                    nothing_new: Some(NothingNew {
                        landed_as: known(*id),
                    }),
                    ..CarriedLanding::new(*id, tip.clone())
                })
                .collect();
            land_all(draft, &carries, &tip, now)?;
        }
        TrialOutcome::Conflict {
            landing: conflicting,
            paths,
            kinds,
        } => {
            let position = trial.iter().position(|id| *id == conflicting);
            let position = position.filter(|_| !is_moving(&conflicting));
            let is_alone = position == Some(0) && conflicting == id;
            if !is_alone {
                requeue(draft, id, "another landing of its trial conflicts");
            }
            match position {
                None => {}
                Some(0) => on_conflict(draft, conflicting, paths, kinds, now)?,
                Some(position) => {
                    let behind = conflicting_landings(draft.board(), &trial[..position], &paths);
                    draft.record(Event::LandingDeferred(LandingDeferred {
                        landing: conflicting,
                        behind,
                        paths,
                    }));
                }
            }
        }
        TrialOutcome::TrunkMoved => {
            requeue(draft, id, "somebody else moved the trunk; merging again");
            draft.record(Event::QueueOvertaken(QueueOvertaken {
                project: project.clone(),
            }));
        }
        TrialOutcome::Held {
            landing: cause,
            reason,
        } => {
            let cause = cause.filter(|id| trial.contains(id)).unwrap_or(id);
            let may_hold = !is_moving(&cause);
            requeue(draft, id, &reason);
            if may_hold {
                hold_with_backoff(draft, cause, reason, now)?;
            }
        }
    }
    trial_start::advance(draft, &project, now)
}

const MOVE_UNDER_WAY: &str =
    "a move of the trunk includes this landing, and the report of that move decides";

/// Returns whether a trial merge on top of the trunk commit `old` can still be used. If some of its
/// landings have landed since the trial began, the trunk is at the commit `base`. In that case the
/// trial can be used only if `base` is one of its own commits.
fn is_based_on(old: &CommitId, carries: &[CarriedLanding], base: Option<&CommitId>) -> bool {
    base.is_none_or(|base| base == old || carries.iter().any(|carried| carried.commit == *base))
}

/// Returns the commit that a trial merge made of `landing`. `carries` lists the commits of the
/// trial, and `new` is its last commit.
fn carried_commit(
    carries: &[CarriedLanding],
    landing: LandingId,
    new: &CommitId,
) -> Option<CarriedLanding> {
    let known = carries
        .iter()
        .find(|carried| carried.landing == landing)
        .cloned();
    // A report without a list of commits (`carries`) is about a trial merge of one landing. The
    // commit of this landing is the trial's last commit.
    known.or_else(|| {
        carries
            .is_empty()
            .then(|| CarriedLanding::new(landing, new.clone()))
    })
}

/// Returns the landings among `ahead` that change one of the conflicting paths. If no landing does,
/// for example after a rename, returns all of `ahead`, because each of them may be the cause.
fn conflicting_landings(board: &Board, ahead: &[LandingId], paths: &[String]) -> Vec<LandingId> {
    let changes = |id: &&LandingId| {
        let landing = board.landings.get(*id);
        landing.is_some_and(|landing| {
            landing
                .submission
                .changed
                .iter()
                .any(|path| paths.contains(path))
        })
    };
    let found: Vec<LandingId> = ahead.iter().filter(changes).copied().collect();
    if found.is_empty() {
        ahead.to_vec()
    } else {
        found
    }
}

/// Takes a landing that conflicts with the trunk out of the queue, and describes the conflicts to
/// the agent that will resolve them.
fn on_conflict(
    draft: &mut Draft,
    id: LandingId,
    paths: Vec<String>,
    conflicts: Vec<Conflict>,
    now: Now,
) -> Result<(), Refusal> {
    let Some(first) = draft.board().landings.get(&id).cloned() else {
        return Ok(());
    };
    let described: Vec<String> = paths
        .iter()
        .map(|path| describe_conflict(path, &conflicts))
        .collect();
    let names: Vec<&str> = described.iter().map(String::as_str).collect();
    let reason = format!(
        "it conflicts with work that landed since in {}",
        first_few(&names)
    );
    collision_forecast::mark_proved(draft, &first.project, first.task);
    let fixup = Fixup {
        paths,
        conflicts,
        ..Fixup::new(first.submission.commit.clone())
    };
    eject(draft, &first, fixup, &reason, now)
}

/// Returns the path of a conflict, followed by the kind of the conflict. The kind is left out if it
/// is the usual one, where both sides changed the content.
fn describe_conflict(path: &str, conflicts: &[Conflict]) -> String {
    let found = conflicts.iter().find(|conflict| conflict.path == path);
    match found.and_then(|conflict| conflict.kind.description()) {
        Some(description) => format!("{path} ({description})"),
        None => path.to_owned(),
    }
}

/// Ends the trial merge or the move of a landing (queue entry) without blaming the landing. The
/// landing is queued as before and will be tried again.
pub(super) fn requeue(draft: &mut Draft, id: LandingId, reason: &str) {
    draft.record(Event::LandingReturned(LandingReturned {
        landing: id,
        reason: reason.to_owned(),
    }));
}

/// Posts a message from Regatta with this label to the project's message channel.
pub(crate) fn announce(
    draft: &mut Draft,
    project: &ProjectName,
    label: &str,
    text: String,
    now: Now,
) -> Result<(), Refusal> {
    announce_with(draft, project, label, vec![], text, now)
}

/// Like [`announce`], but adds the labels `more`.
pub(super) fn announce_with(
    draft: &mut Draft,
    project: &ProjectName,
    label: &str,
    more: Vec<Label>,
    text: String,
    now: Now,
) -> Result<(), Refusal> {
    let label = Label::new(label).expect("our own labels are well formed");
    let labels = std::iter::once(label).chain(more).collect();
    bus::post_as_regatta(draft, bus::channel_of(project), text, (labels, None), now).map(|_| ())
}

/// Announces in the project's channel that an agent stopped waiting for the claim on the trunk.
/// People learn from the message that the agent's merge is postponed.
pub(crate) fn on_wait_timeout(
    draft: &mut Draft,
    wait: &claim::ClaimWait,
    now: Now,
) -> Result<(), Refusal> {
    if !matches!(wait.owner, ClaimOwner::Agent(_)) {
        return Ok(());
    }
    let names: Vec<ProjectName> = claim::trunk_projects(draft.board(), &wait.uris)
        .map(|project| project.name.clone())
        .collect();
    for name in names {
        let uri = [Uri::for_trunk(&name)];
        let holders =
            claim::conflicting_holders(draft, &uri, claim::ClaimMode::Exclusive, None, now);
        let holder = holders.first().map_or(String::new(), |holder| {
            format!(", which {} holds", holder.owner)
        });
        let waited_seconds = now.unix_ms.saturating_sub(wait.since_unix_ms) / 1_000;
        let text = format!(
            "{} waited {waited_seconds} s for the trunk of {name}{holder}; its merge is \
            postponed, and it continues with other work",
            wait.owner
        );
        announce(draft, &name, "coord:wait", text, now)?;
    }
    Ok(())
}

/// Delay before a held landing is tried again for the first time. The delay doubles with each
/// further try, up to sixteen times this value.
const FIRST_HOLD_MS: u64 = 5_000;

/// Holds a landing back for a time that doubles with each try, up to 80 seconds, together with the
/// other landings of its wave (tasks that land as one commit). All other landings continue.
pub(super) fn hold_with_backoff(
    draft: &mut Draft,
    id: LandingId,
    reason: String,
    now: Now,
) -> Result<(), Refusal> {
    find(draft.board(), id)?;
    let all = wave_commit::with_wave_mates(draft.board(), id);
    let tries = all
        .iter()
        .filter_map(|id| draft.board().landings.get(id))
        .map(|landing| landing.tries)
        .max()
        .unwrap_or(0);
    let retry_at = Some(now.fleet_ms + (FIRST_HOLD_MS << tries.saturating_sub(1).min(4)));
    for landing in all {
        draft.record(Event::LandingHeld(LandingHeld {
            landing,
            reason: reason.clone(),
            retry_at,
        }));
    }
    Ok(())
}

/// Removes a landing from the queue because its checks failed or its changes conflict. An agent
/// then fixes the work on top of the current trunk, at most three times. After that, or if the
/// setting `on_conflict` is `fail`, the work needs a person. The work is kept in every case (Q6).
pub(super) fn eject(
    draft: &mut Draft,
    landing: &Landing,
    fixup: Fixup,
    reason: &str,
    now: Now,
) -> Result<(), Refusal> {
    if super::merged_remote(draft.board(), landing).is_some() {
        return remote_sync::on_sync_conflict(draft, landing, &fixup, now);
    }
    let task = task::find(draft.board(), landing.task)?;
    let reason = &with_held_back_files(&task, landing, reason);
    let on_conflict = draft
        .board()
        .projects
        .get(&landing.project)
        .map(|project| project.settings.landing.on_conflict);
    let is_final = landing.reverts || on_conflict == Some(ConflictPolicy::Fail);
    let retry = task.fixups < task::MAX_FIXUPS && !is_final;
    draft.record(Event::LandingEnded(LandingEnded {
        landing: landing.id,
        task: landing.task,
        reason: reason.to_owned(),
        retry,
        fault: Some(true),
    }));
    claim::release_all(draft, &ClaimOwner::Landing(landing.id));
    if is_final {
        let kind = if fixup.paths.is_empty() {
            WaitKind::Review
        } else {
            WaitKind::Conflict
        };
        // A revert (an undo) has no work that an agent could fix, so it gets no fix-up and a person
        // must decide.
        let fixup = (!landing.reverts).then(|| Box::new(fixup));
        task::needs_human_to_fix(draft, landing.task, kind, fixup, reason)?;
    } else {
        task::send_to_fixup(
            draft,
            landing.task,
            reason,
            NextAttempt {
                fixup: Some(Box::new(fixup)),
                ..NextAttempt::default()
            },
        )?;
    }
    announce(
        draft,
        &landing.project,
        "coord:conflict",
        format!("{} is out of the queue: {reason}", landing.task),
        now,
    )
}

/// Appends to `reason` the names of files that the agent changed although its task may not. These
/// changes were left out of the landing, so the failure may be due to their absence.
fn with_held_back_files(task: &task::Task, landing: &Landing, reason: &str) -> String {
    let is_held_back = |escape: &&ScopeEscape| {
        escape.attempt == landing.submission.attempt && escape.source == EscapeSource::Diff
    };
    let names: Vec<&str> = task
        .escapes
        .iter()
        .filter(is_held_back)
        .flat_map(|escape| &escape.suggested_files)
        .map(String::as_str)
        .collect();
    match names.as_slice() {
        [] => reason.to_owned(),
        names => format!(
            "{reason}; files left out, because they are outside its manifest: {}",
            first_few(names)
        ),
    }
}
