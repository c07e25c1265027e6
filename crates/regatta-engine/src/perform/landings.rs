//! Performs the effects of the landing queue: merges finished work onto the trunk behind the work
//! ahead of it in the queue, checks exactly the merged tree, and moves the trunk.
//!
//! `regatta_core::landing` decides the order of the queue and which landings (finished work of one
//! task each) are tried together.

mod after_landing; // commands and releases after a landing
mod cancel; // cancels a trial merge whose result is no longer needed
mod checkout; // watches the checkout's files that block a landing
mod ownership; // resolves conflicts by the owner of the file
mod push; // pushes the trunk and branches
mod release; // runs one release at a time
mod remote_sync; // brings in commits of the remote
mod trunk_check; // compares the trunk with the board
mod validate; // runs the checks on a merged tree
mod wave_commit; // one commit for all tasks of a wave

use std::sync::Arc;

use regatta_core::board::Board;
use regatta_core::command::Report;
use regatta_core::effect::EffectKey;
use regatta_core::ids::{CommitId, LandingId};
use regatta_core::landing::{
    self, CarriedLanding, Landing, LandingState, MoveOutcome, NothingNew, TrialOutcome, guard,
    wave_commit as core_wave_commit,
};
use regatta_core::project::{CommitStyle, Project, QueueMode, VerifyMode};
use regatta_core::task::{Conflict, Task};

use crate::Engine;
use crate::failpoint;
use crate::ports::git::{
    AuthoredChange, Authorship, CommitGit, CommitRange, GitError, MergeGit, ProjectRepo,
    TrialMerge, TrunkMoveResult, TrunkPermit,
};
use crate::validation::FailedCheck;

use super::{authorship, report_effect};
pub(super) use after_landing::{LandedTask, after_landing};
use cancel::TrialWatch;
use checkout::WatchedFiles;
pub(crate) use ownership::landed_since;
pub(crate) use push::LatestPushes;
pub(super) use push::{push_branch, push_trunk};
pub(crate) use release::Releases;
pub(crate) use trunk_check::{compare_all_trunks, compare_project_trunk, compare_trunk_with};
pub(super) use validate::StagedCommit;
pub(crate) use validate::ValidationSlots;

/// One landing (finished work of one task) in a trial (a merge that is tested before the trunk
/// moves), with its task.
struct TrialMember {
    landing: Arc<Landing>,
    task: Task,
}

/// A trial: landings that are merged together on top of the trunk and checked before the trunk
/// moves. A trial is run for its last landing. The landings before it are ahead of it in the queue.
struct TrialBatch {
    members: Vec<TrialMember>,
    project: Arc<Project>,
    /// The project, but with the checks that the `regatta.toml` on the trunk names.
    project_with_trunk_checks: Project,
    repo: ProjectRepo,
}

impl TrialBatch {
    /// Returns the later landing (finished work of one task) whose merged tree is checked on behalf
    /// of landing `id`. Returns `None` if the tree of `id` itself is checked.
    fn validated_landing_for(&self, id: LandingId) -> Option<LandingId> {
        let landing = self.members.last().map(|last| &last.landing)?;
        let LandingState::Trying { unverified, .. } = &landing.state else {
            return None;
        };
        if !unverified.contains(&id) {
            return None;
        }
        let following = self
            .members
            .iter()
            .map(|member| member.landing.id)
            .skip_while(|landing_id| *landing_id != id);
        Some(
            following
                .into_iter()
                .find(|id| !unverified.contains(id))
                .unwrap_or(landing.id),
        )
    }
}

/// Returns the commit of the trunk whose message names landing `id`. Such a commit exists if the
/// trunk moved but the move was not recorded.
fn find_landed_commit(
    engine: &Engine,
    batch: &TrialBatch,
    id: LandingId,
) -> Result<Option<CommitId>, TrialOutcome> {
    let landing_commit = engine.shared.git.find_landing(&batch.repo, id);
    landing_commit.map_err(|error| TrialOutcome::Held {
        landing: Some(id),
        reason: error.to_string(),
    })
}

/// Returns the trial (a merge that is tested before the trunk moves) that belongs to landing `id`,
/// or `None` when one of its landings has left the queue.
fn trial_batch_of(engine: &Engine, id: LandingId) -> Option<TrialBatch> {
    let board = engine.board();
    let landing = board.landings.get(&id)?;
    let project = board.projects.get(&landing.project)?.clone();
    let repo = ProjectRepo::from_project(&project);
    let member = |id: LandingId| {
        let landing = board.landings.get(&id)?.clone();
        let task = Task::clone(board.tasks.get(&landing.task)?);
        Some(TrialMember { landing, task })
    };
    let members = landing
        .trial_landings()
        .into_iter()
        .map(member)
        .collect::<Option<Vec<_>>>()?;
    let checked = Project::clone(&project);
    Some(TrialBatch {
        members,
        project,
        project_with_trunk_checks: checked,
        repo,
    })
}

/// Performs `Effect::TryLanding`: merges and checks a landing together with the landings ahead of
/// it, and reports the result.
pub(super) fn try_landing(engine: &Engine, key: EffectKey, id: LandingId) {
    let Some(mut batch) = trial_batch_of(engine, id) else {
        // The trial (a merge that is tested before the trunk moves) is void, because one of its
        // landings has left the queue. This report puts the landing back into the queue.
        let outcome = TrialOutcome::Held {
            landing: None,
            reason: "another landing of its trial has left the queue".into(),
        };
        return report_effect(
            engine,
            key,
            Report::Trial {
                landing: id,
                outcome,
            },
        );
    };
    failpoint::hit("trial.begin");
    let outcome = run_trial(engine, &mut batch).unwrap_or_else(|held| held);
    failpoint::hit("trial.validated");
    report_effect(
        engine,
        key,
        Report::Trial {
            landing: id,
            outcome,
        },
    );
    failpoint::hit("trial.recorded");
}

/// Merges and checks the landings of a trial (a merge that is tested before the trunk moves). `Err`
/// is an outcome that says why the result could not be determined.
fn run_trial(engine: &Engine, batch: &mut TrialBatch) -> Result<TrialOutcome, TrialOutcome> {
    if let Some(remote) = batch.members.last().and_then(|member| {
        landing::merged_remote(&engine.board(), &member.landing).map(str::to_owned)
    }) {
        return remote_sync::try_remote_sync(engine, batch, &remote);
    }
    let git = &*engine.shared.git;
    let held = |landing: Option<LandingId>| {
        move |error: GitError| TrialOutcome::Held {
            landing,
            reason: error.to_string(),
        }
    };
    let old = git.tip(&batch.repo).map_err(held(None))?;
    failpoint::hit("trial.tip");
    validate::read_trunk_checks(engine, batch, &old).map_err(|reason| TrialOutcome::Held {
        landing: None,
        reason,
    })?;
    let batch = &*batch;
    let board = engine.board();
    let mut new = old.clone();
    let mut carries = Vec::with_capacity(batch.members.len());
    let mut remaining = batch.members.as_slice();
    let mut wave = wave_commit::OpenWave::default();
    let mut settled = Vec::new();
    while let Some(first) = remaining.first() {
        let id = first.landing.id;
        new = wave.begin_member(engine, (batch, &board), &mut carries, new)?;
        let is_one_commit = wave.is_in_wave() || first.landing.is_squashed;
        let style = if is_one_commit {
            CommitStyle::Squash
        } else {
            batch.project.settings.landing.style
        };
        let wave = core_wave_commit::wave_of(&board, &first.landing);
        let is_alike = |other: &&TrialMember| {
            core_wave_commit::wave_of(&board, &other.landing) == wave
                && other.landing.is_squashed == first.landing.is_squashed
        };
        let alike = remaining.iter().take_while(is_alike).count();
        // One call merges as many landings as possible, because each call waits for the disk once.
        let trials = merge_members(git, batch, &remaining[..alike], (&new, style))
            .map_err(held(Some(id)))?;
        if trials.is_empty() {
            return Err(TrialOutcome::Held {
                landing: Some(id),
                reason: "git merged none of the trial's landings".into(),
            });
        }
        let (merged, later) = remaining.split_at(trials.len().min(remaining.len()));
        for (member, mut trial) in merged.iter().zip(trials) {
            let landing_id = member.landing.id;
            let (mut dropped, mut nothing_new) = (None, None);
            // Only a conflict with the trunk is resolved by ownership of the files. A conflict with
            // a landing ahead in the queue waits until that landing has landed.
            if let TrialMerge::Conflict(paths) = &trial
                && new == old
            {
                let resolved =
                    ownership::resolve_by_ownership(engine, batch, member, (&new, paths));
                if let Some(resolved) = resolved.map_err(|reason| TrialOutcome::Held {
                    landing: Some(landing_id),
                    reason,
                })? {
                    (trial, dropped, settled) = (resolved.trial, resolved.dropped, resolved.sides);
                }
            }
            match trial {
                TrialMerge::Clean(commit) => new = commit,
                // The trunk, or a landing ahead in the queue, already contains the changes of this
                // landing, so this landing counts as landed too (Q7).
                TrialMerge::Empty => {
                    nothing_new = Some(NothingNew {
                        landed_as: find_landed_commit(engine, batch, landing_id)?,
                    })
                }
                TrialMerge::Conflict(paths) => {
                    // A fix-up (an attempt that repairs the landing) starts only for a conflict
                    // with the trunk. A conflict with a landing ahead in the queue waits until that
                    // landing has landed.
                    let can_start_fixup = new == old && !member.landing.reverts;
                    let kinds = if can_start_fixup {
                        conflict_kinds(git, batch, member, &new)
                    } else {
                        vec![]
                    };
                    return Ok(TrialOutcome::Conflict {
                        landing: landing_id,
                        paths,
                        kinds,
                    });
                }
            }
            carries.push(CarriedLanding {
                dropped,
                nothing_new,
                ..CarriedLanding::new(landing_id, new.clone())
            });
        }
        remaining = later;
    }
    new = wave.close(engine, (batch, &board), &mut carries, new)?;
    if new == old {
        let landed_as_of = |carried: &CarriedLanding| {
            Some((
                carried.landing,
                carried.nothing_new.as_ref()?.landed_as.clone()?,
            ))
        };
        return Ok(TrialOutcome::AlreadyOnTrunk {
            tip: old,
            landed_as: carries.iter().filter_map(landed_as_of).collect(),
        });
    }
    failpoint::hit("trial.merged");
    // Conflicts are resolved by file ownership for the first landing only. A fix-up (an attempt
    // that repairs the landing) starts only for a landing that is alone in its trial, the merge
    // that is tested before the trunk moves.
    let settled = if batch.members.len() == 1 {
        settled
    } else {
        vec![]
    };
    if let Some(reason) = permanent_rejection(git, batch, &old, &carries)? {
        return Ok(TrialOutcome::Failed {
            reason,
            output: None,
            settled,
        });
    }
    let tasks: Vec<&Task> = batch.members.iter().map(|member| &member.task).collect();
    let tips: Vec<CommitId> = carries
        .iter()
        .map(|carried| carried.commit.clone())
        .chain([old.clone()])
        .collect();
    if validates_each_commit(batch, &board)
        && let Some(reason) = failing_commit(engine, batch, (&old, &carries), &tips)?
    {
        return Ok(TrialOutcome::CommitFailed { reason });
    }
    match first_failed_check(engine, batch, &tasks, &new, tips)? {
        None => Ok(TrialOutcome::Passed { old, new, carries }),
        Some(FailedCheck { reason, output }) => Ok(TrialOutcome::Failed {
            reason,
            output: Some(engine.redact(&output)),
            settled,
        }),
    }
}

/// Returns whether the last landing of a trial (a merge that is tested before the trunk moves)
/// keeps its own commits on the trunk. In that case each of these commits must pass the checks.
fn validates_each_commit(batch: &TrialBatch, board: &Board) -> bool {
    let settings = &batch.project.settings.landing;
    let Some(last) = batch.members.last().map(|member| &member.landing) else {
        return false;
    };
    let verifies_every = settings.verify == VerifyMode::Every || settings.mode == QueueMode::Serial;
    let is_one_commit =
        last.is_squashed || last.reverts || core_wave_commit::wave_of(board, last).is_some();
    settings.style == CommitStyle::Rebase && verifies_every && !is_one_commit
}

/// Returns the reason why one of the commits of the trial's last landing fails its checks, or
/// `None` if all of these commits pass. A trial is a merge that is tested before the trunk moves.
/// The tree of the last commit is also the merged tree of the whole trial.
///
/// Each commit must pass the project's check commands and the requirements of the tasks ahead in
/// the queue. The requirements of the landing's own task apply only to the finished work, not to
/// each commit.
fn failing_commit(
    engine: &Engine,
    batch: &TrialBatch,
    (old, carries): (&CommitId, &[CarriedLanding]),
    tips: &[CommitId],
) -> Result<Option<String>, TrialOutcome> {
    let (Some((tip, ahead)), Some((last, earlier))) =
        (carries.split_last(), batch.members.split_last())
    else {
        return Ok(None);
    };
    let from = ahead.last().map_or(old, |carried| &carried.commit);
    let held = |error: GitError| TrialOutcome::Held {
        landing: Some(last.landing.id),
        reason: error.to_string(),
    };
    let steps = engine
        .shared
        .git
        .commits_between(&batch.repo, from, &tip.commit)
        .map_err(held)?;
    let unfinished = Task {
        validation: Default::default(),
        ..last.task.clone()
    };
    let tasks: Vec<&Task> = earlier
        .iter()
        .map(|member| &member.task)
        .chain([&unfinished])
        .collect();
    for step in steps {
        if let Some(FailedCheck { reason, .. }) =
            first_failed_check(engine, batch, &tasks, &step, tips.to_vec())?
        {
            return Ok(Some(format!(
                "its commit {} fails by itself: {reason}",
                &step.as_str()[..10]
            )));
        }
    }
    Ok(None)
}

/// Returns the reason why a merged tree may never land, or `None` if it may. The merged tree is
/// examined because two harmless changes together can create a git directory (Q13).
fn permanent_rejection(
    git: &dyn CommitGit,
    batch: &TrialBatch,
    old: &CommitId,
    carries: &[CarriedLanding],
) -> Result<Option<String>, TrialOutcome> {
    let submissions = batch
        .members
        .iter()
        .map(|member| &member.landing.submission);
    let changed: Vec<String> = submissions
        .flat_map(|work| &work.changed)
        .cloned()
        .collect();
    let mut before = old;
    for (carried, member) in carries.iter().zip(&batch.members) {
        let id = carried.landing;
        // A landing that reverts another one is exempt, because the revert restores an earlier
        // state of the trunk. If the revert touches guarded files (files whose changes only a
        // person may let land), a person has already approved the revert.
        if carried.commit != *before && !member.landing.reverts {
            let special = git.special_files(
                &batch.repo,
                CommitRange {
                    base: before,
                    commit: &carried.commit,
                },
            );
            let special = special.map_err(|error| TrialOutcome::Held {
                landing: Some(id),
                reason: error.to_string(),
            })?;
            if let Some(reason) = guard::never_lands_reason(&changed, &special) {
                return Ok(Some(format!(
                    "merged with the work that landed since, {reason}"
                )));
            }
        }
        before = &carried.commit;
    }
    Ok(None)
}

/// Returns how each path conflicts with the trunk, for example "deleted on the trunk". On an error
/// the list is empty, because an agent can also repair a conflict without this information.
fn conflict_kinds(
    git: &dyn MergeGit,
    batch: &TrialBatch,
    member: &TrialMember,
    tip: &CommitId,
) -> Vec<Conflict> {
    let commit = &member.landing.submission.commit;
    git.conflicts(&batch.repo, tip, commit)
        .unwrap_or_else(|error| {
            tracing::warn!(landing = %member.landing.id, "could not find out how the files of \
            landing {} conflict with the trunk; the prompt for the agent that resolves the \
            conflict names the files without the kind of conflict: {error}", member.landing.id);
            vec![]
        })
}

/// Returns the first check that fails on the merged tree of a trial (a merge that is tested before
/// the trunk moves). Stops the checks when the trial becomes void, for example because the trunk is
/// at none of the commits `tips`.
fn first_failed_check(
    engine: &Engine,
    batch: &TrialBatch,
    tasks: &[&Task],
    new: &CommitId,
    tips: Vec<CommitId>,
) -> Result<Option<FailedCheck>, TrialOutcome> {
    let Some(last) = batch.members.last() else {
        return Err(TrialOutcome::Held {
            landing: None,
            reason: "the trial has no landings".into(),
        });
    };
    let watch = TrialWatch::new(engine, &batch.repo, last.landing.id, tips);
    validate::first_failed_check(engine, batch, tasks, new, &watch).map_err(|reason| {
        if watch.has_trunk_moved() {
            TrialOutcome::TrunkMoved
        } else {
            TrialOutcome::Held {
                landing: None,
                reason,
            }
        }
    })
}

/// Merges the first of these landings (finished work of one task each) and as many of the following
/// landings as one call to git can merge, up to the first conflict.
fn merge_members(
    git: &dyn MergeGit,
    batch: &TrialBatch,
    members: &[TrialMember],
    (tip, style): (&CommitId, CommitStyle),
) -> Result<Vec<TrialMerge>, GitError> {
    if let Some(first) = members.first().filter(|member| member.landing.reverts) {
        return git
            .revert(&batch.repo, tip, &authored_change(batch, first))
            .map(|merge| vec![merge]);
    }
    let changes_only = members.iter().take_while(|member| !member.landing.reverts);
    let changes: Vec<_> = changes_only
        .map(|member| authored_change(batch, member))
        .collect();
    match git.trial_merges(&batch.repo, tip, &changes, style) {
        // One of the changes causes an error. Merge only the first change: if that merge fails, the
        // error belongs to that landing, and otherwise the caller continues with the next one.
        Err(_) if changes.len() > 1 => git.trial_merges(&batch.repo, tip, &changes[..1], style),
        found => found,
    }
}

/// Returns the commit with a landing's work, together with the author and the message of the commit
/// that the landing makes on the trunk.
fn authored_change(batch: &TrialBatch, member: &TrialMember) -> AuthoredChange {
    AuthoredChange {
        commit: member.landing.submission.commit.clone(),
        authorship: landing_authorship(batch, member),
    }
}

/// Returns the author and the message of the commit that a landing makes on the trunk. The same
/// landing always gives the same text, so repeating a trial (a merge that is tested before the
/// trunk moves) after a crash gives the same commits.
fn landing_authorship(batch: &TrialBatch, member: &TrialMember) -> Authorship {
    let landing = &member.landing;
    let mut authorship = authorship(&member.task, landing.agent.as_str(), landing.queued_unix_ms);
    authorship.message += &format!("Regatta-Landing: {}\n", landing.id);
    authorship.message += &match batch.validated_landing_for(landing.id) {
        // The tree of this commit is not checked by itself, so the commit's message names the
        // landing whose checked tree includes the same changes (Q14).
        Some(tip) => format!("Regatta-Validation-Tip: {tip}\n"),
        None => format!(
            "Regatta-Validation: {}\n",
            validate::validation_id(&batch.project_with_trunk_checks, &member.task)
        ),
    };
    if let Some(by) = &landing.approved {
        authorship.message += &format!(
            "Regatta-Approved-By: {}\n",
            by.trim_start_matches("person:")
        );
    }
    // This trailer (a line at the end of the commit message) makes code hosts show the author. In a
    // commit that contains a whole wave (tasks that ran at the same time), there is one such
    // trailer per author.
    authorship.message += &format!(
        "Co-authored-by: {} <{}>\n",
        authorship.name, authorship.email
    );
    authorship
}

/// Returns whether the claim (a lease on the trunk) with the fencing token `fence` still exists.
/// The fencing token is the number of the event that granted the claim. The claim belongs to the
/// landing queue, or to a person who lent the claim to the queue.
fn claim_exists(board: &Board, fence: u64) -> bool {
    board.claims.values().any(|claim| claim.token == fence)
}

/// Performs `Effect::MoveTrunk`: moves the trunk's branch to a commit that has passed its checks,
/// and reports the result. The move needs a claim (a lease) on the trunk. `fence` is the fencing
/// token of that claim (the number of the event that granted it).
pub(super) fn move_trunk(engine: &Engine, key: EffectKey, id: LandingId, fence: u64) {
    failpoint::hit("move.begin");
    let board = engine.board();
    let found_landing = board.landings.get(&id).and_then(|landing| {
        Some((
            landing.clone(),
            board.projects.get(&landing.project)?.clone(),
        ))
    });
    let Some((landing, project)) = found_landing else {
        return report_effect(engine, key, Report::Performed);
    };
    // Check right before the branch moves that the claim (a lease on the trunk) still exists, so
    // that an expired claim cannot move the trunk.
    let (old, new) = match landing.state.clone() {
        landing::LandingState::Moving {
            old,
            new,
            fence: live,
            ..
        } if live == fence && claim_exists(&board, fence) => (old, new),
        _ => return report_effect(engine, key, Report::Performed),
    };
    failpoint::hit("move.fenced");
    let permit = TrunkPermit::mint(landing.project.clone(), id, fence);
    let permit = if landing::merged_remote(&board, &landing).is_some() {
        permit.for_rebase()
    } else {
        permit
    };
    let repo = ProjectRepo::from_project(&project);
    let outcome = match engine.shared.git.move_trunk(&permit, &repo, &old, &new) {
        Ok(TrunkMoveResult::Moved) => MoveOutcome::Moved,
        Ok(TrunkMoveResult::TrunkElsewhere(_)) => MoveOutcome::TrunkMoved,
        Ok(TrunkMoveResult::CheckoutDirty(paths)) => MoveOutcome::Dirty { paths },
        Err(error) => MoveOutcome::Held {
            reason: error.to_string(),
        },
    };
    failpoint::hit("move.moved");
    let watched_files = match &outcome {
        MoveOutcome::Dirty { paths } => Some(WatchedFiles::new(&repo.path, paths)),
        _ => None,
    };
    report_effect(
        engine,
        key,
        Report::TrunkMove {
            landing: id,
            fence,
            outcome,
        },
    );
    failpoint::hit("move.recorded");
    if let Some(watched_files) = watched_files {
        checkout::watch_files(engine, landing.trial_landings(), watched_files);
    }
    trunk_check::compare_project_trunk(engine, &project.name);
}
