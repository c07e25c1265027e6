//! Merges commits without checking out files.
//!
//! Every merge in this module merges three trees: the base of the change, the trunk's side and the
//! change's side. Git gets each side as a temporary commit whose parent is the base. (`git
//! merge-tree --merge-base` would do the same, but is newer than the oldest supported git.) Git
//! therefore does not look at the real history. If somebody removed commits from the trunk, a merge
//! does not bring these commits back, and no unrelated history is added.

use std::collections::BTreeMap;
use std::path::Path;

use regatta_core::ids::CommitId;
use regatta_core::project::CommitStyle;
use regatta_core::task::Conflict;
use regatta_engine::ports::git::{
    AuthoredChange, Authorship, DroppedVersions, GitError, MergeGit, MergeSide, OwnershipMerge,
    ProjectRepo, TrialMerge,
};

use crate::case_collisions::refuse_case_collisions;
use crate::changed_special_files::is_covered_by;
use crate::conflicts::{self, MergeConflicts};
use crate::git_command::path_to_text;
use crate::object_store::{CommitObject, ObjectStore};
use crate::tree_diff::TreeDiff;
use crate::tree_merge::merge_by_entry;
use crate::{GitAdapter, errors};

/// The largest number of an agent's own commits that can land one by one. If the agent made more
/// commits, they are combined into one commit.
pub(crate) const MAX_OWN_COMMITS: usize = 200;

/// The tree that results from merging three trees, with or without conflicts.
pub(crate) enum MergedTree {
    Clean(CommitId),
    /// The merge has conflicts. The tree has conflict markers in the conflicting files, and the
    /// second value lists the conflicts.
    Conflict(CommitId, MergeConflicts),
}

/// The base and the two sides of a merge.
pub(crate) struct MergeSides<'a> {
    /// The id of the commit from which the trunk's side and the change's side started.
    pub(crate) base: &'a CommitId,
    /// The id of the git tree on the trunk's side of the merge.
    pub(crate) ours: &'a CommitId,
    /// The id of the git tree on the change's side of the merge.
    pub(crate) theirs: &'a CommitId,
}

impl MergeGit for GitAdapter {
    /// Merges the changes one after the other, up to the first one that conflicts. If all of them
    /// merge, moves the new objects into the vault (Regatta's own repository) and waits for the
    /// disk only once.
    fn trial_merges(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        changes: &[AuthoredChange],
        style: CommitStyle,
    ) -> Result<Vec<TrialMerge>, GitError> {
        let mut vault = self.vault_with(repo, tip)?;
        for change in changes {
            vault = self.vault_with(repo, &change.commit)?;
        }
        let confuses_case = self.discover_at(&repo.path)?.confuses_case();
        self.with_object_store(&vault, |odb| {
            let mut tip = tip.clone();
            let mut merges = Vec::with_capacity(changes.len());
            for change in changes {
                let trial = self.merge_next(odb, &vault, &tip, change, style)?;
                if let TrialMerge::Clean(next) = &trial {
                    if confuses_case {
                        refuse_case_collisions(odb, &tip, next)?;
                    }
                    tip = next.clone();
                }
                let conflicts = matches!(trial, TrialMerge::Conflict(_));
                merges.push(trial);
                if conflicts {
                    return Ok(merges);
                }
            }
            odb.adopt()?;
            Ok(merges)
        })
    }

    fn merge_with_ownership(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        change: &AuthoredChange,
        sides: &BTreeMap<String, MergeSide>,
    ) -> Result<OwnershipMerge, GitError> {
        let AuthoredChange { commit, authorship } = change;
        let conflicting = match self
            .trial_merges(repo, tip, std::slice::from_ref(change), CommitStyle::Squash)?
            .pop()
        {
            Some(TrialMerge::Conflict(paths)) => paths,
            Some(trial) => {
                return Ok(OwnershipMerge {
                    trial,
                    dropped: None,
                });
            }
            None => return Err(errors::no_such_commit(commit)),
        };
        let without_side: Vec<String> = conflicting
            .iter()
            .filter(|path| !sides.contains_key(*path))
            .cloned()
            .collect();
        if !without_side.is_empty() {
            return Ok(OwnershipMerge {
                trial: TrialMerge::Conflict(without_side),
                dropped: None,
            });
        }
        let vault = self.vault_with(repo, commit)?;
        let base = self
            .find_object(&vault, &format!("{commit}^1"))?
            .ok_or_else(|| errors::no_such_commit(commit))?;
        let (ours, theirs) = (
            self.tree_of_commit(&vault, tip)?,
            self.tree_of_commit(&vault, commit)?,
        );
        // All three trees get the same version of each conflicting path. As a result these paths
        // can no longer conflict, and the other paths are merged as before.
        let merge_taking = |trunk_side: MergeSide| -> Result<CommitId, GitError> {
            let version = |path: &str| {
                let chosen = sides.get(path).copied().unwrap_or(MergeSide::Trunk);
                let is_trunk = (chosen == MergeSide::Trunk) == (trunk_side == MergeSide::Trunk);
                if is_trunk { &ours } else { &theirs }
            };
            let replaced =
                |tree: &CommitId| self.replace_paths(repo, &vault, tree, &conflicting, &version);
            let (base_tree, ours, theirs) = (
                replaced(&self.tree_of_commit(&vault, &base)?)?,
                replaced(&ours)?,
                replaced(&theirs)?,
            );
            self.with_object_store(&vault, |odb| {
                let base = odb.write_merge_only_commit(&base_tree, &[])?;
                match self.merge_trees(
                    odb,
                    &vault,
                    &MergeSides {
                        base: &base,
                        ours: &ours,
                        theirs: &theirs,
                    },
                )? {
                    MergedTree::Clean(tree) => {
                        odb.adopt()?;
                        Ok(tree)
                    }
                    MergedTree::Conflict(_, conflicts) => {
                        Err(errors::still_conflicts(&conflicts.path_names()))
                    }
                }
            })
        };
        let taken_tree = merge_taking(MergeSide::Trunk)?;
        let other_tree = merge_taking(MergeSide::Change)?;
        let merged = self.commit_tree(&vault, &taken_tree, &[tip], authorship)?;
        let dropped_authorship = Authorship {
            message: errors::dropped_message(&conflicting),
            ..authorship.clone()
        };
        // The commit of the change becomes the second parent, so that git never deletes a part of
        // the change.
        let dropped_commit =
            self.commit_tree(&vault, &other_tree, &[&merged, commit], &dropped_authorship)?;
        let reference = format!("refs/regatta/dropped/{merged}");
        self.update_refs(&vault, format!("update {reference} {dropped_commit}\n"))?;
        let trial = if taken_tree == ours {
            TrialMerge::Empty
        } else {
            TrialMerge::Clean(merged)
        };
        Ok(OwnershipMerge {
            trial,
            dropped: Some(DroppedVersions {
                reference,
                commit: dropped_commit,
                paths: conflicting,
            }),
        })
    }

    fn conflicts(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        change: &CommitId,
    ) -> Result<Vec<Conflict>, GitError> {
        self.vault_with(repo, tip)?;
        let vault = self.vault_with(repo, change)?;
        self.with_object_store(&vault, |odb| {
            let (ours, change) = (odb.commit(tip)?.tree, odb.commit(change)?);
            let Some(base) = change.parents.first() else {
                return Ok(vec![]);
            };
            let sides = MergeSides {
                base,
                ours: &ours,
                theirs: &change.tree,
            };
            Ok(match self.merge_trees(odb, &vault, &sides)? {
                MergedTree::Clean(_) => vec![],
                MergedTree::Conflict(_, conflicts) => conflicts.conflicts,
            })
        })
    }

    fn squash_range(
        &self,
        repo: &ProjectRepo,
        onto: &CommitId,
        AuthoredChange { commit, authorship }: &AuthoredChange,
    ) -> Result<CommitId, GitError> {
        self.vault_with(repo, onto)?;
        let vault = self.vault_with(repo, commit)?;
        let tree = self.tree_of_commit(&vault, commit)?;
        self.commit_tree(&vault, &tree, &[onto], authorship)
    }

    fn revert(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        AuthoredChange { commit, authorship }: &AuthoredChange,
    ) -> Result<TrialMerge, GitError> {
        self.vault_with(repo, tip)?;
        let vault = self.vault_with(repo, commit)?;
        self.with_object_store(&vault, |odb| {
            // If the commit is a merge, its first parent is the trunk's previous commit.
            let before = odb
                .commit(commit)?
                .parents
                .into_iter()
                .next()
                .ok_or_else(|| errors::cannot_replay_first_commit(commit))?;
            let (ours, theirs) = (odb.commit(tip)?.tree, odb.commit(&before)?.tree);
            match self.merge_trees(
                odb,
                &vault,
                &MergeSides {
                    base: commit,
                    ours: &ours,
                    theirs: &theirs,
                },
            )? {
                MergedTree::Conflict(_, conflicts) => {
                    Ok(TrialMerge::Conflict(conflicts.path_names()))
                }
                MergedTree::Clean(tree) if tree == ours => Ok(TrialMerge::Empty),
                MergedTree::Clean(tree) => {
                    let reverted = odb.write_commit(&tree, &[tip], authorship)?;
                    odb.adopt()?;
                    Ok(TrialMerge::Clean(reverted))
                }
            }
        })
    }
}

impl GitAdapter {
    /// Merges one change onto `tip`. The new objects stay in the scratch directory of `odb` until
    /// [`ObjectStore::adopt`] moves them into the vault (Regatta's own repository).
    fn merge_next(
        &self,
        odb: &mut ObjectStore,
        vault: &Path,
        tip: &CommitId,
        AuthoredChange { commit, authorship }: &AuthoredChange,
        style: CommitStyle,
    ) -> Result<TrialMerge, GitError> {
        // Only with the style `Merge` can the trunk contain the commit of the work itself. With the
        // other styles, the trunk gets new commits.
        if style == CommitStyle::Merge
            && self.unadopted_history_contains(odb, vault, tip, commit)?
        {
            return Ok(TrialMerge::Empty);
        }
        let (tip_tree, change) = (odb.commit(tip)?.tree, odb.commit(commit)?);
        // A commit without a parent is not a change of anything, so it cannot be merged.
        let Some(base) = change.parents.first() else {
            return Ok(TrialMerge::Empty);
        };
        let sides = MergeSides {
            base,
            ours: &tip_tree,
            theirs: &change.tree,
        };
        let merged = match self.merge_trees(odb, vault, &sides)? {
            MergedTree::Clean(tree) if tree == tip_tree => return Ok(TrialMerge::Empty),
            MergedTree::Clean(tree) => tree,
            MergedTree::Conflict(_, conflicts) => {
                return Ok(TrialMerge::Conflict(conflicts.path_names()));
            }
        };
        let landed = match style {
            // The new commit has one parent, so that the trunk's history is a line. The agent's own
            // commits stay reachable, because another ref protects the commit of the work.
            CommitStyle::Squash => odb.write_commit(&merged, &[tip], authorship)?,
            CommitStyle::Merge => odb.write_commit(&merged, &[tip, commit], authorship)?,
            CommitStyle::Rebase => {
                self.replay(odb, vault, (tip, &tip_tree), &change, (&merged, authorship))?
            }
        };
        Ok(TrialMerge::Clean(landed))
    }

    /// Replays the agent's own commits onto `tip`, followed by its uncommitted changes. The last
    /// commit has the tree `merged`.
    ///
    /// A commit that conflicts is combined with the next commit. `merged` is the result of merging
    /// the whole change, which has no conflict.
    fn replay(
        &self,
        odb: &mut ObjectStore,
        vault: &Path,
        (tip, tip_tree): (&CommitId, &CommitId),
        change: &CommitObject,
        (merged, authorship): (&CommitId, &Authorship),
    ) -> Result<CommitId, GitError> {
        let mut tree = tip_tree.clone();
        let mut steps: Vec<(CommitId, Vec<String>)> = Vec::new();
        let mut pending_messages: Vec<String> = Vec::new();
        for own in own_commits(odb, change)? {
            let Some(parent) = own.parents.first() else {
                continue;
            };
            pending_messages.push(own.message);
            let sides = MergeSides {
                base: parent,
                ours: &tree,
                theirs: &own.tree,
            };
            let MergedTree::Clean(next) = self.merge_trees(odb, vault, &sides)? else {
                continue;
            };
            if next == tree {
                pending_messages.clear();
                continue;
            }
            steps.push((next.clone(), std::mem::take(&mut pending_messages)));
            tree = next;
        }
        if tree != *merged {
            steps.push((merged.clone(), vec![]));
        }
        let (mut tip, count) = (tip.clone(), steps.len());
        for (nth, (tree, messages)) in steps.into_iter().enumerate() {
            let is_last = nth + 1 == count;
            let message = if is_last {
                with_trailers(&messages, &authorship.message)
            } else {
                with_trailers(&messages, &intermediate_message(&authorship.message))
            };
            tip = odb.write_commit(
                &tree,
                &[&tip],
                &Authorship {
                    message,
                    ..authorship.clone()
                },
            )?;
        }
        Ok(tip)
    }

    /// Returns whether the history of `tip` contains `commit`.
    pub(crate) fn history_contains(
        &self,
        vault: &Path,
        tip: &CommitId,
        commit: &CommitId,
    ) -> Result<bool, GitError> {
        let call = self.git.in_vault(vault, "look for a commit on the trunk");
        call.args(["merge-base", "--is-ancestor", commit.as_str(), tip.as_str()])
            .run_yes_or_no()
    }

    /// Like [`Self::history_contains`], but also works if the commit `tip` is still in the scratch
    /// directory of `odb` and not yet in the vault (Regatta's own repository).
    fn unadopted_history_contains(
        &self,
        odb: &ObjectStore,
        vault: &Path,
        tip: &CommitId,
        commit: &CommitId,
    ) -> Result<bool, GitError> {
        let call = odb.write_to_scratch(self.git.in_vault(vault, "look for a commit on the trunk"));
        call.args(["merge-base", "--is-ancestor", commit.as_str(), tip.as_str()])
            .run_yes_or_no()
    }

    /// Merges three git trees (the base and both sides). The new objects stay in the scratch
    /// directory of `odb` until [`ObjectStore::adopt`] moves them into the vault (Regatta's own
    /// repository).
    pub(crate) fn merge_trees(
        &self,
        odb: &mut ObjectStore,
        vault: &Path,
        sides: &MergeSides<'_>,
    ) -> Result<MergedTree, GitError> {
        const OPERATION: &str = "merge the change onto the trunk";
        let base = odb.commit(sides.base)?.tree;
        if let Some(tree) = merge_by_entry(odb, &base, sides.ours, sides.theirs)? {
            return Ok(MergedTree::Clean(tree));
        }
        let ours = odb.write_merge_only_commit(sides.ours, &[sides.base])?;
        let theirs = odb.write_merge_only_commit(sides.theirs, &[sides.base])?;
        let call = self.git.in_vault(vault, OPERATION).without_sync();
        let call = call.args([
            "merge-tree",
            "--write-tree",
            "-z",
            "--messages",
            "--end-of-options",
        ]);
        let output = odb
            .write_to_scratch(call.args([ours.as_str(), theirs.as_str()]))
            .run()?;
        let fields: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
        match (output.status, fields.split_first()) {
            (Some(clean @ (0 | 1)), Some((tree, rest))) => {
                let tree = CommitId::new(path_to_text(tree).trim())
                    .map_err(|_| errors::unexpected(OPERATION))?;
                Ok(if clean == 0 {
                    MergedTree::Clean(tree)
                } else {
                    MergedTree::Conflict(tree, conflicts::parse_conflicts(rest))
                })
            }
            _ => Err(errors::git_failed(OPERATION, &output.stderr)),
        }
    }

    /// Returns a copy of the git tree `tree`. In the copy, the content of each path in `paths`
    /// comes from the tree that `version` returns for this path.
    pub(crate) fn replace_paths<'t>(
        &self,
        repo: &ProjectRepo,
        vault: &Path,
        tree: &CommitId,
        paths: &[String],
        version: &dyn Fn(&str) -> &'t CommitId,
    ) -> Result<CommitId, GitError> {
        let index = self.layout.scratch(&repo.project);
        let git = |operation| self.git.in_vault(vault, operation).index(index.path());
        git("read the files of one side of the merge")
            .args(["read-tree", tree.as_str()])
            .run_expecting_success()?;
        let mut changes = Vec::new();
        for path in paths {
            let zero = "0".repeat(tree.as_str().len());
            changes.extend_from_slice(format!("0 {zero}\t{path}\0").as_bytes());
            let listed = self
                .git
                .in_vault(vault, "read the files of one side of the merge");
            let listed =
                listed.args(["ls-tree", "-z", "--full-tree", version(path).as_str(), "--"]);
            for entry in listed.arg(format!(":(literal){path}")).run_for_list()? {
                // If the chosen version has a directory at this path, the path is only removed,
                // because the files below the directory are listed as separate paths.
                if !entry.starts_with(b"040000 ") {
                    changes.extend_from_slice(&entry);
                    changes.push(0);
                }
            }
        }
        git("choose a side of a conflict")
            .args(["update-index", "--replace", "-z", "--index-info"])
            .input(changes)
            .run_expecting_success()?;
        git("write the merged tree")
            .arg("write-tree")
            .run_for_object()
    }
}

/// Returns the commits that the agent made itself, oldest first. The newest of these commits is the
/// second parent of `change`.
fn own_commits(
    odb: &mut ObjectStore,
    change: &CommitObject,
) -> Result<Vec<CommitObject>, GitError> {
    let [base, head, ..] = change.parents.as_slice() else {
        return Ok(Vec::new());
    };
    let (mut commits, mut current) = (Vec::new(), head.clone());
    while current != *base && commits.len() < MAX_OWN_COMMITS {
        let commit = odb.commit(&current)?;
        let Some(parent) = commit.parents.first() else {
            break;
        };
        current = parent.clone();
        commits.push(commit);
    }
    commits.reverse();
    // The check for guarded files examined only the whole change. If one of the agent's commits
    // touches a file that the whole change does not touch, that file was not checked, so the commit
    // does not land separately.
    let mut before = odb.commit(base)?.tree;
    let whole_change = TreeDiff::between(odb, Some(&before), &change.tree)?;
    for own in &commits {
        if !is_covered_by(
            &whole_change,
            &TreeDiff::between(odb, Some(&before), &own.tree)?,
        ) {
            return Ok(Vec::new());
        }
        before = own.tree.clone();
    }
    Ok(commits)
}

/// Converts paths to text, sorted and without duplicates.
pub(crate) fn path_names(paths: &[Vec<u8>]) -> Vec<String> {
    let mut paths: Vec<String> = paths.iter().map(|path| path_to_text(path)).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Returns the message for a commit that is not the last commit of its landing (finished work of
/// one task). Only the files of the last commit were checked, so the message names the landing and
/// does not claim that this commit was checked.
fn intermediate_message(whole: &str) -> String {
    let landing = whole
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("Regatta-Landing: "))
        .unwrap_or_default();
    let rewrite_line = |line: &str| {
        if line.starts_with("Regatta-Validation: ") {
            return format!("Regatta-Validation-Tip: {landing}\n");
        }
        format!("{line}\n")
    };
    whole.lines().map(rewrite_line).collect()
}

/// Joins commit messages. Appends the last paragraph of the message `whole` if this paragraph
/// consists of trailers such as `Regatta-Task: T3`.
fn with_trailers(messages: &[String], whole: &str) -> String {
    let own: Vec<&str> = messages
        .iter()
        .map(|message| message.trim())
        .filter(|message| !message.is_empty())
        .collect();
    let is_trailer = |line: &str| {
        line.split_once(": ")
            .is_some_and(|(name, _)| !name.contains(' ') && !name.is_empty())
    };
    let trailers = whole
        .trim_end()
        .rsplit_once("\n\n")
        .map(|(_, last_paragraph)| last_paragraph)
        .filter(|paragraph| paragraph.lines().all(is_trailer));
    match (own.is_empty(), trailers) {
        (true, _) => whole.to_owned(),
        (false, None) => format!("{}\n", own.join("\n\n")),
        (false, Some(trailers)) => format!("{}\n\n{trailers}\n", own.join("\n\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_an_agents_commit_gets_the_tasks_trailers() {
        let whole = "Add a cart\n\nLong story.\n\nRegatta-Task: T1\nRegatta-Agent: amber\n";
        let message = with_trailers(&["one\n".into(), "two".into()], whole);
        assert_eq!(
            message,
            "one\n\ntwo\n\nRegatta-Task: T1\nRegatta-Agent: amber\n"
        );
        assert_eq!(
            with_trailers(&["one".into()], "no trailers\n\nat all here\n"),
            "one\n"
        );
        assert_eq!(with_trailers(&[" ".into()], whole), whole);
    }

    /// Q14: only the last commit of a landing claims its validation.
    #[test]
    fn q14_an_intermediate_commit_names_the_validated_landing() {
        let whole = "Add\n\nRegatta-Task: T1\nRegatta-Landing: L4\nRegatta-Validation: abc\n";
        let expected = "Add\n\nRegatta-Task: T1\nRegatta-Landing: L4\nRegatta-Validation-Tip: L4\n";
        assert_eq!(intermediate_message(whole), expected);
        let unvalidated = "Add\n\nRegatta-Landing: L4\nRegatta-Validation-Tip: L5\n";
        assert_eq!(intermediate_message(unvalidated), unvalidated);
    }
}
