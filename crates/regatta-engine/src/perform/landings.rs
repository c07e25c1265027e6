//! Performs the landing queue's effects: merges a landing onto the trunk's tip behind the landings
//! before it, validates exactly that tree, and moves the trunk.
//!
//! The order of the queue and the composition of trials are decided in `regatta_core::landing`.

mod after; // after-landing commands and releases
mod checkout; // watches the checkout's files that block a landing
mod join; // brings remote commits in
mod ownership; // resolves conflicts by the owner of the file
mod push; // pushes the trunk and branches
mod release; // runs one release at a time
mod trunk_check; // compares the trunk with the board
mod validate; // runs the checks on a merged tree
mod watch; // cancels a trial that no longer counts
mod waves; // one commit for the landings of a wave

use std::sync::Arc;

use regatta_core::board::Board;
use regatta_core::command::Command;
use regatta_core::effect::EffectKey;
use regatta_core::ids::{CommitId, LandingId};
use regatta_core::landing::{self, Carried, Landing, Moved, NothingNew, State, Tried, guard, wave};
use regatta_core::project::{Project, QueueMode, Style, Verify};
use regatta_core::task::{Conflict, Task};

use crate::Engine;
use crate::contract::Broken;
use crate::failpoint;
use crate::ports::git::{Authorship, GitError, Move, Repo, Trial, TrunkPermit};

use super::{authorship, report};
pub(super) use after::{Landed, after_landing};
use checkout::Watched;
pub(crate) use ownership::landed_since;
pub(crate) use push::Pushes;
pub(super) use push::{push_branch, push_trunk};
pub(crate) use release::Releases;
pub(crate) use trunk_check::{compare, compare_all, compare_with};
pub(super) use validate::Alone;
pub(crate) use validate::Bench;
use watch::Watch;

/// One landing of a trial.
struct Member {
    landing: Arc<Landing>,
    task: Task,
}

/// The landings of a trial. The landing that the trial is named after is the last.
struct Train {
    members: Vec<Member>,
    project: Arc<Project>,
    /// The project with the checks that the trunk's own `regatta.toml` names.
    checked: Project,
    repo: Repo,
}

impl Train {
    /// Returns the landing whose tree is validated instead of this one's, if this landing's own
    /// tree is not validated.
    fn tip_for(&self, id: LandingId) -> Option<LandingId> {
        let landing = self.members.last().map(|last| &last.landing)?;
        let State::Trying { unverified, .. } = &landing.state else { return None };
        if !unverified.contains(&id) {
            return None;
        }
        let after = self.members.iter().map(|member| member.landing.id).skip_while(|it| *it != id);
        Some(after.into_iter().find(|it| !unverified.contains(it)).unwrap_or(landing.id))
    }
}

/// Returns the commit of the trunk that names a landing. Such a commit moved the trunk without
/// being recorded.
fn landed_as(engine: &Engine, train: &Train, id: LandingId) -> Result<Option<CommitId>, Tried> {
    let found = engine.shared.git.landed_as(&train.repo, id);
    found.map_err(|error| Tried::Held { at: Some(id), reason: error.to_string() })
}

/// Returns the trial of a landing, or `None` when one of its landings has left the queue.
fn train_of(engine: &Engine, id: LandingId) -> Option<Train> {
    let board = engine.board();
    let landing = board.landings.get(&id)?;
    let project = board.projects.get(&landing.project)?.clone();
    let repo = Repo::of(&project);
    let member = |id: LandingId| {
        let landing = board.landings.get(&id)?.clone();
        let task = Task::clone(board.tasks.get(&landing.task)?);
        Some(Member { landing, task })
    };
    let members = landing.train().into_iter().map(member).collect::<Option<Vec<_>>>()?;
    let checked = Project::clone(&project);
    Some(Train { members, project, checked, repo })
}

/// Performs `Effect::TryLanding`: tries a landing with the landings ahead of it, and reports the
/// result.
pub(super) fn try_landing(engine: &Engine, key: EffectKey, id: LandingId) {
    let Some(mut train) = train_of(engine, id) else {
        // The trial no longer counts. The report lets the landing back into the queue.
        let found = Tried::Held { at: None, reason: "another landing of its trial has left the queue".into() };
        return report(engine, key, Command::ReportTried { landing: id, found });
    };
    failpoint::at("trial.begin");
    let found = try_train(engine, &mut train).unwrap_or_else(|held| held);
    failpoint::at("trial.validated");
    report(engine, key, Command::ReportTried { landing: id, found });
    failpoint::at("trial.recorded");
}

/// Merges and validates a trial. `Err` is the reason why the result could not be determined.
fn try_train(engine: &Engine, train: &mut Train) -> Result<Tried, Tried> {
    if let Some(remote) = train.members.last().and_then(|it| it.landing.submission.joins.clone()) {
        return join::try_joining(engine, train, &remote);
    }
    let git = &engine.shared.git;
    let held = |at: Option<LandingId>| move |error: GitError| Tried::Held { at, reason: error.to_string() };
    let old = git.tip(&train.repo).map_err(held(None))?;
    failpoint::at("trial.tip");
    validate::read_checks(engine, train, &old).map_err(|reason| Tried::Held { at: None, reason })?;
    let train = &*train;
    let board = engine.board();
    let mut new = old.clone();
    let mut carries = Vec::with_capacity(train.members.len());
    let mut left = train.members.as_slice();
    let mut open = waves::Open::default();
    let mut settled = Vec::new();
    while let Some(first) = left.first() {
        let id = first.landing.id;
        new = open.next(engine, (train, &board), &mut carries, new)?;
        let is_one_commit = open.is_in_one() || first.landing.is_squashed;
        let style = if is_one_commit { Style::Squash } else { train.project.settings.landing.style };
        let wave = wave::of(&board, &first.landing);
        let is_alike = |other: &&Member| {
            wave::of(&board, &other.landing) == wave && other.landing.is_squashed == first.landing.is_squashed
        };
        let alike = left.iter().take_while(is_alike).count();
        // Merges as many landings at once as possible, because a merge waits for the disk once per
        // call.
        let trials = merge(engine, train, &left[..alike], (&new, style)).map_err(held(Some(id)))?;
        if trials.is_empty() {
            return Err(Tried::Held { at: Some(id), reason: "git merged none of the trial's landings".into() });
        }
        let (now, later) = left.split_at(trials.len().min(left.len()));
        for (member, mut trial) in now.iter().zip(trials) {
            let id = member.landing.id;
            let (mut dropped, mut nothing_new) = (None, None);
            // A conflict with a landing that is only in the queue waits until that landing has
            // landed. Ownership decides conflicts with the trunk only.
            if let Trial::Conflict(paths) = &trial
                && new == old
            {
                let found = ownership::settle(engine, train, member, (&new, paths));
                if let Some(found) = found.map_err(|reason| Tried::Held { at: Some(id), reason })? {
                    (trial, dropped, settled) = (found.trial, found.dropped, found.sides);
                }
            }
            match trial {
                Trial::Clean(commit) => new = commit,
                // A landing before it, or the trunk, already contains its changes. It counts as
                // landed with that one (Q7).
                Trial::Empty => nothing_new = Some(NothingNew { landed_as: landed_as(engine, train, id)? }),
                Trial::Conflict(paths) => {
                    // A conflict with a landing that is only in the queue waits its turn, and no
                    // fix-up starts yet.
                    let is_mended = new == old && !member.landing.reverts;
                    let kinds = if is_mended { kinds(engine, train, member, &new) } else { vec![] };
                    return Ok(Tried::Conflict { at: id, paths, kinds });
                }
            }
            carries.push(Carried { dropped, nothing_new, ..Carried::new(id, new.clone()) });
        }
        left = later;
    }
    new = open.close(engine, (train, &board), &mut carries, new)?;
    if new == old {
        let known = |it: &Carried| Some((it.landing, it.nothing_new.as_ref()?.landed_as.clone()?));
        return Ok(Tried::AlreadyThere { tip: old, landed_as: carries.iter().filter_map(known).collect() });
    }
    failpoint::at("trial.merged");
    // Conflicts are resolved for the first landing only, and a fix-up starts only for a landing
    // that is alone in its trial.
    let settled = if train.members.len() == 1 { settled } else { vec![] };
    if let Some(reason) = never_lands(engine, train, &old, &carries)? {
        return Ok(Tried::Red { reason, output: None, settled });
    }
    let tasks: Vec<&Task> = train.members.iter().map(|it| &it.task).collect();
    let tips: Vec<CommitId> = carries.iter().map(|it| it.commit.clone()).chain([old.clone()]).collect();
    if validates_steps(train, &board)
        && let Some(reason) = broken_step(engine, train, (&old, &carries), &tips)?
    {
        return Ok(Tried::RedStep { reason });
    }
    match judged(engine, train, &tasks, &new, tips)? {
        None => Ok(Tried::Passed { old, new, carries }),
        Some(Broken { reason, output }) => Ok(Tried::Red { reason, output: Some(engine.redact(&output)), settled }),
    }
}

/// Returns whether the last landing of a trial brings its own commits, which are validated one by
/// one.
fn validates_steps(train: &Train, board: &Board) -> bool {
    let settings = &train.project.settings.landing;
    let Some(last) = train.members.last().map(|member| &member.landing) else { return false };
    let verifies_every = settings.verify == Verify::Every || settings.mode == QueueMode::Serial;
    let is_one_commit = last.is_squashed || last.reverts || wave::of(board, last).is_some();
    settings.style == Style::Rebase && verifies_every && !is_one_commit
}

/// Returns why one of the last landing's own commits fails, if one does. The last of these commits
/// is the trial's own tree.
///
/// A commit is checked with the project's commands and the contracts of the landings ahead of it.
/// The task's own contract applies to the finished work only.
fn broken_step(
    engine: &Engine,
    train: &Train,
    (old, carries): (&CommitId, &[Carried]),
    tips: &[CommitId],
) -> Result<Option<String>, Tried> {
    let (Some((tip, ahead)), Some((last, others))) = (carries.split_last(), train.members.split_last()) else {
        return Ok(None);
    };
    let from = ahead.last().map_or(old, |carried| &carried.commit);
    let held = |error: GitError| Tried::Held { at: Some(last.landing.id), reason: error.to_string() };
    let steps = engine.shared.git.commits_between(&train.repo, from, &tip.commit).map_err(held)?;
    let unfinished = Task { validation: Default::default(), ..last.task.clone() };
    let tasks: Vec<&Task> = others.iter().map(|member| &member.task).chain([&unfinished]).collect();
    for step in steps {
        if let Some(Broken { reason, .. }) = judged(engine, train, &tasks, &step, tips.to_vec())? {
            return Ok(Some(format!("its commit {} fails by itself: {reason}", &step.as_str()[..10])));
        }
    }
    Ok(None)
}

/// Returns why a merged tree may never land, if so. Two harmless changes can make a git directory
/// together (Q13).
fn never_lands(engine: &Engine, train: &Train, old: &CommitId, carries: &[Carried]) -> Result<Option<String>, Tried> {
    let git = &engine.shared.git;
    let submissions = train.members.iter().map(|member| &member.landing.submission);
    let changed: Vec<String> = submissions.flat_map(|work| &work.changed).cloned().collect();
    let mut before = old;
    for (carried, member) in carries.iter().zip(&train.members) {
        let id = carried.landing;
        // A revert restores an earlier state of the trunk, and a person asked for it where such
        // files are guarded.
        if carried.commit != *before && !member.landing.reverts {
            let special = git.special_files(&train.repo, before, &carried.commit);
            let special = special.map_err(|error| Tried::Held { at: Some(id), reason: error.to_string() })?;
            if let Some(reason) = guard::never_lands(&changed, &special) {
                return Ok(Some(format!("merged with what landed since, {reason}")));
            }
        }
        before = &carried.commit;
    }
    Ok(None)
}

/// Returns the kind of each conflict with the trunk. On an error it returns none, because a fix-up
/// whose prompt lacks the kinds is better than no fix-up.
fn kinds(engine: &Engine, train: &Train, member: &Member, tip: &CommitId) -> Vec<Conflict> {
    let commit = &member.landing.submission.commit;
    engine.shared.git.conflicts(&train.repo, tip, commit).unwrap_or_else(|error| {
        tracing::warn!(landing = %member.landing.id, %error, "could not find out how the paths conflict");
        vec![]
    })
}

/// Returns the first check that fails on the tree of a trial. Stops the checks when the trial no
/// longer counts, for example when the trunk is at none of these `tips`.
fn judged(
    engine: &Engine,
    train: &Train,
    tasks: &[&Task],
    new: &CommitId,
    tips: Vec<CommitId>,
) -> Result<Option<Broken>, Tried> {
    let Some(last) = train.members.last() else {
        return Err(Tried::Held { at: None, reason: "the trial has no landings".into() });
    };
    let watch = Watch::new(engine, &train.repo, last.landing.id, tips);
    validate::broken(engine, train, tasks, new, &watch)
        .map_err(|reason| if watch.is_elsewhere() { Tried::Elsewhere } else { Tried::Held { at: None, reason } })
}

/// Merges the first of these members and the members behind it that merge in the same way, up to
/// the first conflict.
fn merge(
    engine: &Engine,
    train: &Train,
    members: &[Member],
    (tip, style): (&CommitId, Style),
) -> Result<Vec<Trial>, GitError> {
    let git = &engine.shared.git;
    if let Some(first) = members.first().filter(|it| it.landing.reverts) {
        return git
            .revert(&train.repo, tip, &first.landing.submission.commit, &signed(train, first))
            .map(|it| vec![it]);
    }
    let alike = members.iter().take_while(|it| !it.landing.reverts);
    let changes: Vec<_> = alike.map(|it| (it.landing.submission.commit.clone(), signed(train, it))).collect();
    match git.trial_merges(&train.repo, tip, &changes, style) {
        // One of the changes causes an error. Merging one at a time finds it, so that the error is
        // reported for that landing.
        Err(_) if changes.len() > 1 => git.trial_merges(&train.repo, tip, &changes[..1], style),
        found => found,
    }
}

/// Returns the author and the message of the trunk's commit. The same landing always gives the same
/// text, so a trial that is repeated after a crash gives the same commits.
fn signed(train: &Train, member: &Member) -> Authorship {
    let landing = &member.landing;
    let mut signed = authorship(&member.task, landing.agent.as_str(), landing.queued_wall);
    signed.message += &format!("Regatta-Landing: {}\n", landing.id);
    signed.message += &match train.tip_for(landing.id) {
        // A commit claims only the validation of its own tree (Q14).
        Some(tip) => format!("Regatta-Validation-Tip: {tip}\n"),
        None => format!("Regatta-Validation: {}\n", validate::id(&train.checked, &member.task)),
    };
    if let Some(by) = &landing.approved {
        signed.message += &format!("Regatta-Approved-By: {}\n", by.trim_start_matches("person:"));
    }
    // This trailer lets code hosts show the author, and all authors of a wave's commit.
    signed.message += &format!("Co-authored-by: {} <{}>\n", signed.name, signed.email);
    signed
}

/// Returns whether the claim with this token still exists: the queue's own, or one that a person
/// lent.
fn is_held(board: &Board, fence: u64) -> bool {
    board.claims.values().any(|it| it.token == fence)
}

/// Performs `Effect::MoveTrunk`: moves the trunk's ref to a validated commit, and reports the
/// result.
pub(super) fn move_trunk(engine: &Engine, key: EffectKey, id: LandingId, fence: u64) {
    failpoint::at("move.begin");
    let board = engine.board();
    let scene = board.landings.get(&id).and_then(|it| Some((it.clone(), board.projects.get(&it.project)?.clone())));
    let Some((landing, project)) = scene else {
        return report(engine, key, Command::ReportPerformed);
    };
    // The fence is compared with the board at the last moment before the ref moves.
    let (old, new) = match landing.state.clone() {
        landing::State::Moving { old, new, fence: live, .. } if live == fence && is_held(&board, fence) => (old, new),
        _ => return report(engine, key, Command::ReportPerformed),
    };
    failpoint::at("move.fenced");
    let permit = TrunkPermit::mint(landing.project.clone(), id, fence);
    let permit = if landing.submission.joins.is_some() { permit.replanting() } else { permit };
    let repo = Repo::of(&project);
    let found = match engine.shared.git.move_trunk(&permit, &repo, &old, &new) {
        Ok(Move::Moved) => Moved::Moved,
        Ok(Move::Elsewhere(_)) => Moved::Elsewhere,
        Ok(Move::Dirty(paths)) => Moved::Dirty { paths },
        Err(error) => Moved::Held { reason: error.to_string() },
    };
    failpoint::at("move.moved");
    let watched = match &found {
        Moved::Dirty { paths } => Some(Watched::new(&repo.path, paths)),
        _ => None,
    };
    report(engine, key, Command::ReportMoved { landing: id, fence, found });
    failpoint::at("move.recorded");
    if let Some(watched) = watched {
        checkout::watch(engine, landing.train(), watched);
    }
    trunk_check::compare(engine, &project.name);
}
