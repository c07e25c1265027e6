//! Merges without a working copy.
//!
//! Every merge here has three trees: the base of the change, the trunk's side and the change's
//! side. Git gets them as two commits made for the purpose, children of the base. (`merge-tree
//! --merge-base` does the same, but is newer than the oldest supported git.) Ancestry plays no
//! part, so a trunk that somebody rewrote does not get its dropped commits back, and no foreign
//! history is added.

use std::collections::BTreeMap;
use std::path::Path;

use regatta_core::ids::CommitId;
use regatta_core::project::Style;
use regatta_core::task::Conflict;
use regatta_engine::ports::git::{Authorship, Dropped, GitError, Repo, Settled, Side, Trial};

use crate::casing::refuse_same_names;
use crate::conflicts::{self, Conflicts};
use crate::difference::Difference;
use crate::odb::{Commit, Odb};
use crate::run::text_of;
use crate::special::is_covered_by;
use crate::weave::weave;
use crate::{GitAdapter, words};

/// The largest number of own commits in one attempt above which they become one commit.
pub(crate) const MOST_OWN_COMMITS: usize = 200;

/// The result of merging three trees.
pub(crate) enum Merged {
    Clean(CommitId),
    /// The tree with conflict markers in the files, and the conflicts.
    Conflict(CommitId, Conflicts),
}

/// The three sides of a merge.
pub(crate) struct Sides<'a> {
    /// A commit: the base of both sides.
    pub(crate) base: &'a CommitId,
    /// A tree: the trunk's side.
    pub(crate) ours: &'a CommitId,
    /// A tree: the change's side.
    pub(crate) theirs: &'a CommitId,
}

impl GitAdapter {
    /// Merges the changes one after the other, up to the first that conflicts. If all merge, the
    /// new objects become the vault's and are on disk, with a single wait.
    pub(crate) fn merge_all_onto(
        &self,
        repo: &Repo,
        tip: &CommitId,
        changes: &[(CommitId, Authorship)],
        style: Style,
    ) -> Result<Vec<Trial>, GitError> {
        let mut vault = self.vault_with(repo, tip)?;
        for (commit, _) in changes {
            vault = self.vault_with(repo, commit)?;
        }
        let mixes_names = self.discover_at(&repo.path)?.mixes_names();
        self.with_odb(&vault, |odb| {
            let mut at = tip.clone();
            let mut found = Vec::with_capacity(changes.len());
            for change in changes {
                let trial = self.merge_next(odb, &vault, &at, change, style)?;
                if let Trial::Clean(next) = &trial {
                    if mixes_names {
                        refuse_same_names(odb, &at, next)?;
                    }
                    at = next.clone();
                }
                let conflicts = matches!(trial, Trial::Conflict(_));
                found.push(trial);
                if conflicts {
                    return Ok(found);
                }
            }
            odb.adopt()?;
            Ok(found)
        })
    }

    /// Merges one change. Its objects belong to the vault only after they are adopted.
    fn merge_next(
        &self,
        odb: &mut Odb,
        vault: &Path,
        tip: &CommitId,
        (commit, authorship): &(CommitId, Authorship),
        style: Style,
    ) -> Result<Trial, GitError> {
        // The trunk can contain a capture itself only under this style. Under other styles it has a
        // new commit for it.
        if style == Style::Merge && self.contains_in(odb, vault, tip, commit)? {
            return Ok(Trial::Empty);
        }
        let (tip_tree, change) = (odb.commit(tip)?.tree, odb.commit(commit)?);
        // A commit without a parent is no change, but a whole tree.
        let Some(base) = change.parents.first() else { return Ok(Trial::Empty) };
        let sides = Sides { base, ours: &tip_tree, theirs: &change.tree };
        let merged = match self.merge_trees(odb, vault, &sides)? {
            Merged::Clean(tree) if tree == tip_tree => return Ok(Trial::Empty),
            Merged::Clean(tree) => tree,
            Merged::Conflict(_, found) => return Ok(Trial::Conflict(found.names())),
        };
        let landed = match style {
            // One parent: the attempt's own commits are kept under its keep-ref, and the trunk
            // stays linear.
            Style::Squash => odb.write_commit(&merged, &[tip], authorship)?,
            Style::Merge => odb.write_commit(&merged, &[tip, commit], authorship)?,
            Style::Rebase => self.replay(odb, vault, (tip, &tip_tree), &change, (&merged, authorship))?,
        };
        Ok(Trial::Clean(landed))
    }

    /// Replays the agent's own commits onto `tip`, then its uncommitted changes, and ends at the
    /// tree `merged`.
    ///
    /// A commit that conflicts on its own is combined with the next one. The final tree is the
    /// merge of the whole change, which has no conflict.
    fn replay(
        &self,
        odb: &mut Odb,
        vault: &Path,
        (tip, tip_tree): (&CommitId, &CommitId),
        change: &Commit,
        (merged, by): (&CommitId, &Authorship),
    ) -> Result<CommitId, GitError> {
        let mut tree = tip_tree.clone();
        let mut steps: Vec<(CommitId, Vec<String>)> = Vec::new();
        let mut waiting: Vec<String> = Vec::new();
        for own in own_commits(odb, change)? {
            let Some(parent) = own.parents.first() else { continue };
            waiting.push(own.message);
            let sides = Sides { base: parent, ours: &tree, theirs: &own.tree };
            let Merged::Clean(next) = self.merge_trees(odb, vault, &sides)? else { continue };
            if next == tree {
                waiting.clear();
                continue;
            }
            steps.push((next.clone(), std::mem::take(&mut waiting)));
            tree = next;
        }
        if tree != *merged {
            steps.push((merged.clone(), vec![]));
        }
        let (mut at, count) = (tip.clone(), steps.len());
        for (nth, (tree, messages)) in steps.into_iter().enumerate() {
            let is_last = nth + 1 == count;
            let message = if is_last {
                with_trailers(&messages, &by.message)
            } else {
                with_trailers(&messages, &step_message(&by.message))
            };
            at = odb.write_commit(&tree, &[&at], &Authorship { message, ..by.clone() })?;
        }
        Ok(at)
    }

    /// Returns whether the history of `tip` contains `commit`.
    pub(crate) fn contains(&self, vault: &Path, tip: &CommitId, commit: &CommitId) -> Result<bool, GitError> {
        let asked = self.git.ours(vault, "look for a commit on the trunk");
        asked.args(["merge-base", "--is-ancestor", commit.as_str(), tip.as_str()]).yes()
    }

    /// Returns the same where the tip may not have been adopted yet.
    fn contains_in(&self, odb: &Odb, vault: &Path, tip: &CommitId, commit: &CommitId) -> Result<bool, GitError> {
        let asked = odb.writing(self.git.ours(vault, "look for a commit on the trunk"));
        asked.args(["merge-base", "--is-ancestor", commit.as_str(), tip.as_str()]).yes()
    }

    /// Merges three trees. Its objects belong to the vault only after they are adopted.
    pub(crate) fn merge_trees(&self, odb: &mut Odb, vault: &Path, sides: &Sides<'_>) -> Result<Merged, GitError> {
        const DOING: &str = "merge the change onto the trunk";
        let base = odb.commit(sides.base)?.tree;
        if let Some(tree) = weave(odb, &base, sides.ours, sides.theirs)? {
            return Ok(Merged::Clean(tree));
        }
        let ours = odb.write_passing(sides.ours, &[sides.base])?;
        let theirs = odb.write_passing(sides.theirs, &[sides.base])?;
        let call = self.git.ours(vault, DOING).unhurried();
        let call = call.args(["merge-tree", "--write-tree", "-z", "--messages", "--end-of-options"]);
        let said = odb.writing(call.args([ours.as_str(), theirs.as_str()])).run()?;
        let fields: Vec<&[u8]> = said.stdout.split(|byte| *byte == 0).collect();
        match (said.status, fields.split_first()) {
            (Some(clean @ (0 | 1)), Some((tree, rest))) => {
                let tree = CommitId::new(text_of(tree).trim()).map_err(|_| words::unexpected(DOING))?;
                Ok(if clean == 0 { Merged::Clean(tree) } else { Merged::Conflict(tree, conflicts::read(rest)) })
            }
            _ => Err(words::git_failed(DOING, &said.stderr)),
        }
    }

    /// Returns the paths at which a change conflicts with `tip`, with the kind of each conflict.
    pub(crate) fn conflicts_with(
        &self,
        repo: &Repo,
        tip: &CommitId,
        change: &CommitId,
    ) -> Result<Vec<Conflict>, GitError> {
        self.vault_with(repo, tip)?;
        let vault = self.vault_with(repo, change)?;
        self.with_odb(&vault, |odb| {
            let (ours, change) = (odb.commit(tip)?.tree, odb.commit(change)?);
            let Some(base) = change.parents.first() else { return Ok(vec![]) };
            let sides = Sides { base, ours: &ours, theirs: &change.tree };
            Ok(match self.merge_trees(odb, &vault, &sides)? {
                Merged::Clean(_) => vec![],
                Merged::Conflict(_, found) => found.paths,
            })
        })
    }

    /// Merges a change onto `tip` and takes the named side of every path that conflicts.
    pub(crate) fn settle(
        &self,
        repo: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        sides: &BTreeMap<String, Side>,
        authorship: &Authorship,
    ) -> Result<Settled, GitError> {
        let change = [(commit.clone(), authorship.clone())];
        let open = match self.merge_all_onto(repo, tip, &change, Style::Squash)?.pop() {
            Some(Trial::Conflict(paths)) => paths,
            Some(trial) => return Ok(Settled { trial, dropped: None }),
            None => return Err(words::no_such_commit(commit)),
        };
        let unsettled: Vec<String> = open.iter().filter(|it| !sides.contains_key(*it)).cloned().collect();
        if !unsettled.is_empty() {
            return Ok(Settled { trial: Trial::Conflict(unsettled), dropped: None });
        }
        let vault = self.vault_with(repo, commit)?;
        let base = self.find(&vault, &format!("{commit}^1"))?.ok_or_else(|| words::no_such_commit(commit))?;
        let (ours, theirs) = (self.tree_of(&vault, tip)?, self.tree_of(&vault, commit)?);
        // With the same version of these paths on all three sides, the rest merges as before.
        let take = |from: Side| -> Result<CommitId, GitError> {
            let version = |path: &str| {
                let taken = sides.get(path).copied().unwrap_or(Side::Trunk);
                let trunks = (taken == Side::Trunk) == (from == Side::Trunk);
                if trunks { &ours } else { &theirs }
            };
            let of = |tree: &CommitId| self.with_paths(repo, &vault, tree, &open, &version);
            let (base_tree, ours, theirs) = (of(&self.tree_of(&vault, &base)?)?, of(&ours)?, of(&theirs)?);
            self.with_odb(&vault, |odb| {
                let base = odb.write_passing(&base_tree, &[])?;
                match self.merge_trees(odb, &vault, &Sides { base: &base, ours: &ours, theirs: &theirs })? {
                    Merged::Clean(tree) => {
                        odb.adopt()?;
                        Ok(tree)
                    }
                    Merged::Conflict(_, found) => Err(words::still_conflicts(&found.names())),
                }
            })
        };
        let (taken, other) = (take(Side::Trunk)?, take(Side::Change)?);
        let new = self.commit_tree(&vault, &taken, &[tip], authorship)?;
        let told = Authorship { message: words::dropped_message(&open), ..authorship.clone() };
        // The change itself is a parent as well, so that none of it is ever deleted.
        let kept = self.commit_tree(&vault, &other, &[&new, commit], &told)?;
        let reference = format!("refs/regatta/dropped/{new}");
        self.update_refs(&vault, format!("update {reference} {kept}\n"))?;
        let trial = if taken == ours { Trial::Empty } else { Trial::Clean(new) };
        Ok(Settled { trial, dropped: Some(Dropped { reference, commit: kept, paths: open }) })
    }

    /// Returns the tree with the named paths replaced by those of the trees that `version` returns.
    pub(crate) fn with_paths<'t>(
        &self,
        repo: &Repo,
        vault: &Path,
        tree: &CommitId,
        paths: &[String],
        version: &dyn Fn(&str) -> &'t CommitId,
    ) -> Result<CommitId, GitError> {
        let index = self.places.scratch(&repo.project);
        let git = |doing| self.git.ours(vault, doing).index(index.path());
        git("read a side of the merge").args(["read-tree", tree.as_str()]).done()?;
        let mut changes = Vec::new();
        for path in paths {
            let zero = "0".repeat(tree.as_str().len());
            changes.extend_from_slice(format!("0 {zero}\t{path}\0").as_bytes());
            let listed = self.git.ours(vault, "read a side of the merge");
            let listed = listed.args(["ls-tree", "-z", "--full-tree", version(path).as_str(), "--"]);
            for entry in listed.arg(format!(":(literal){path}")).list()? {
                // A directory on that side has its own paths, so the name itself is only removed.
                if !entry.starts_with(b"040000 ") {
                    changes.extend_from_slice(&entry);
                    changes.push(0);
                }
            }
        }
        git("settle a conflict").args(["update-index", "--replace", "-z", "--index-info"]).input(changes).done()?;
        git("write the settled tree").arg("write-tree").object()
    }
}

/// Returns the commits that an agent made itself, oldest first. They are reached from the capture's
/// second parent.
fn own_commits(odb: &mut Odb, change: &Commit) -> Result<Vec<Commit>, GitError> {
    let [base, head, ..] = change.parents.as_slice() else { return Ok(Vec::new()) };
    let (mut found, mut at) = (Vec::new(), head.clone());
    while at != *base && found.len() < MOST_OWN_COMMITS {
        let commit = odb.commit(&at)?;
        let Some(parent) = commit.parents.first() else { break };
        at = parent.clone();
        found.push(commit);
    }
    found.reverse();
    // The guard examined only the whole change, so a commit that contains anything else does not
    // land separately.
    let mut before = odb.commit(base)?.tree;
    let whole = Difference::between(odb, Some(&before), &change.tree)?;
    for own in &found {
        if !is_covered_by(&whole, &Difference::between(odb, Some(&before), &own.tree)?) {
            return Ok(Vec::new());
        }
        before = own.tree.clone();
    }
    Ok(found)
}

/// Returns paths as text, sorted and without duplicates.
pub(crate) fn named(paths: &[Vec<u8>]) -> Vec<String> {
    let mut paths: Vec<String> = paths.iter().map(|it| text_of(it)).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Returns a landing's message for a commit that is not its last. The validation is of the last
/// commit's tree, so the other commits name the landing instead of claiming it (Q14).
fn step_message(whole: &str) -> String {
    let landing = whole.lines().rev().find_map(|line| line.strip_prefix("Regatta-Landing: ")).unwrap_or_default();
    let line = |line: &str| {
        if line.starts_with("Regatta-Validation: ") {
            return format!("Regatta-Validation-Tip: {landing}\n");
        }
        format!("{line}\n")
    };
    whole.lines().map(line).collect()
}

/// Joins commit messages, and appends the last paragraph of `whole` if it consists of trailers.
fn with_trailers(messages: &[String], whole: &str) -> String {
    let own: Vec<&str> = messages.iter().map(|it| it.trim()).filter(|it| !it.is_empty()).collect();
    let is_trailer = |line: &str| line.split_once(": ").is_some_and(|it| !it.0.contains(' ') && !it.0.is_empty());
    let trailers = whole.trim_end().rsplit_once("\n\n").map(|it| it.1).filter(|it| it.lines().all(is_trailer));
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
        let told = with_trailers(&["one\n".into(), "two".into()], whole);
        assert_eq!(told, "one\n\ntwo\n\nRegatta-Task: T1\nRegatta-Agent: amber\n");
        assert_eq!(with_trailers(&["one".into()], "no trailers\n\nat all here\n"), "one\n");
        assert_eq!(with_trailers(&[" ".into()], whole), whole);
    }

    /// Q14: only the last commit of a landing claims its validation.
    #[test]
    fn q14_an_intermediate_commit_names_the_validated_landing() {
        let whole = "Add\n\nRegatta-Task: T1\nRegatta-Landing: L4\nRegatta-Validation: abc\n";
        let step = "Add\n\nRegatta-Task: T1\nRegatta-Landing: L4\nRegatta-Validation-Tip: L4\n";
        assert_eq!(step_message(whole), step);
        let unvalidated = "Add\n\nRegatta-Landing: L4\nRegatta-Validation-Tip: L5\n";
        assert_eq!(step_message(unvalidated), unvalidated);
    }
}
