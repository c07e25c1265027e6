//! Captures the work of an agent inside the submodules of its workspace.
//!
//! A commit that the agent made in a submodule is imported into the vault and kept like the rest of
//! its work. Uncommitted edits cannot land, because the project's tree contains nothing of a
//! submodule but the id of a commit. They are kept as a commit beside the capture, and the capture
//! fails with their names.
//!
//! As in `capture.rs`, no git runs with a git directory of the agent.

use std::collections::HashSet;
use std::path::Path;

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{Authorship, GitError, Repo, keeps_for};

use crate::capture::{Lens, Pointer, Snapshot};
use crate::run::{path_of, text_of};
use crate::submodules::{MAX_DEPTH, UserCopies, module_ref};
use crate::vault::keep_ref;
use crate::{GitAdapter, disk, history, words};

/// The workspace whose submodules are examined.
pub(crate) struct SubmoduleWork<'a> {
    pub(crate) repo: &'a Repo,
    pub(crate) vault: &'a Path,
    pub(crate) attempt: AttemptId,
    pub(crate) workspace: &'a Path,
    /// The paths from before the attempt.
    pub(crate) foreign: &'a HashSet<Vec<u8>>,
}

/// The files of a checked-out submodule.
struct Inside {
    snapshot: Snapshot,
    /// The paths that differ from the submodule's commit, from the workspace's top.
    edited: Vec<Vec<u8>>,
}

/// The submodules of one repository in the workspace.
struct Level {
    /// The path of the repository, with a slash at its end unless it is the workspace itself.
    prefix: Vec<u8>,
    /// The commit whose `.gitmodules` names the submodules.
    commit: CommitId,
    pointers: Vec<Pointer>,
    copies: UserCopies,
    depth: usize,
}

impl SubmoduleWork<'_> {
    /// Returns the commit with which the files of a checked-out submodule are compared.
    fn head(&self, path: &[u8], pointer: &Pointer) -> CommitId {
        let head = history::checked_out(self.workspace, &self.workspace.join(path_of(path)));
        head.unwrap_or_else(|| pointer.commit.clone())
    }
}

impl GitAdapter {
    /// Keeps the commits and the edits in an attempt's submodules. Fails if there are edits, or if
    /// a submodule was moved to a commit that is nowhere to be found.
    pub(crate) fn keep_submodules(
        &self,
        work: &SubmoduleWork<'_>,
        base: &CommitId,
        pointers: Vec<Pointer>,
        authorship: &Authorship,
    ) -> Result<(), GitError> {
        if pointers.is_empty() {
            return Ok(());
        }
        let copies = UserCopies::of_project(&self.discover_at(&work.repo.path)?);
        let mut levels = vec![Level { prefix: vec![], commit: base.clone(), pointers, copies, depth: 0 }];
        let (mut edited, mut missing) = (Vec::new(), None);
        while let Some(level) = levels.pop() {
            let mut names = self.submodule_names(work.vault, &level.commit)?;
            for pointer in level.pointers {
                let copies = level.copies.of_submodule(&pointer.path, names.remove(&pointer.path).as_deref());
                let path = [level.prefix.as_slice(), &pointer.path].concat();
                let git_dir = if pointer.is_checked_out {
                    history::git_dir_of(work.workspace, &work.workspace.join(path_of(&path)))
                } else {
                    None
                };
                let keep = |commit: &CommitId| self.keep_commit(work, &copies, git_dir.as_deref(), (&path, commit));
                if !keep(&pointer.commit)? && pointer.is_moved && (copies.exist() || git_dir.is_some()) {
                    missing.get_or_insert_with(|| words::submodule_commit_missing(&text_of(&path), &pointer.commit));
                }
                let head = work.head(&path, &pointer);
                if !pointer.is_checked_out || !keep(&head)? {
                    continue;
                }
                let inside = self.look_into(work, &path, &head)?;
                if !inside.edited.is_empty() {
                    let commit = self.commit_tree(work.vault, &inside.snapshot.tree, &[&head], authorship)?;
                    self.pin_beside(work.vault, work.attempt, &commit)?;
                    edited.extend(inside.edited);
                }
                if level.depth < MAX_DEPTH {
                    let prefix = [path.as_slice(), b"/"].concat();
                    let (pointers, depth) = (inside.snapshot.submodules, level.depth + 1);
                    levels.push(Level { prefix, commit: head, pointers, copies, depth });
                }
            }
        }
        disk::sync_objects(work.vault)?;
        match missing {
            Some(error) => Err(error),
            None if edited.is_empty() => Ok(()),
            None => Err(words::submodule_edited(&edited.iter().map(|path| text_of(path)).collect::<Vec<_>>())),
        }
    }

    /// Keeps a submodule's commit. Returns `false` if the commit is nowhere to be found.
    fn keep_commit(
        &self,
        work: &SubmoduleWork<'_>,
        copies: &UserCopies,
        git_dir: Option<&Path>,
        (path, commit): (&[u8], &CommitId),
    ) -> Result<bool, GitError> {
        let vault = work.vault;
        if self.find(vault, &module_ref(commit))?.is_some() {
            return Ok(true);
        }
        let is_here = self.find(vault, &format!("{commit}^{{commit}}"))?.is_some();
        let take = |git_dir| self.take_submodule(vault, git_dir, commit);
        if is_here || git_dir.map_or(Ok(false), take)? {
            self.pin_beside(vault, work.attempt, commit)?;
            return Ok(true);
        }
        match self.fetch_submodule(work.repo, vault, copies, (path, commit)) {
            Err(error) if error.code == "submodule_missing" => Ok(false),
            found => found,
        }
    }

    /// Keeps a commit beside the capture of an attempt.
    fn pin_beside(&self, vault: &Path, attempt: AttemptId, commit: &CommitId) -> Result<(), GitError> {
        let keep = format!("{}-{}", keep_ref(attempt), &commit.as_str()[..12]);
        match self.find(vault, &keep)? {
            Some(_) => Ok(()),
            None => self.update_refs(vault, format!("create {keep} {commit}\n")),
        }
    }

    /// Compares the files of a checked-out submodule with its commit, which the vault has.
    fn look_into(&self, work: &SubmoduleWork<'_>, path: &[u8], head: &CommitId) -> Result<Inside, GitError> {
        let prefix = [path, b"/"].concat();
        let inside = |file: &Vec<u8>| file.strip_prefix(prefix.as_slice()).map(<[u8]>::to_vec);
        let index = self.places.scratch(&work.repo.project);
        let lens = Lens {
            adapter: self,
            vault: work.vault,
            workspace: work.workspace,
            tree: &work.workspace.join(path_of(path)),
            index: index.path(),
            objects: None,
            foreign: work.foreign.iter().filter_map(inside).collect(),
            own: None,
        };
        lens.git("read the commit of a submodule").args(["read-tree", head.as_str()]).done()?;
        lens.clear()?;
        let snapshot = lens.snapshot()?;
        let tree = self.tree_of(work.vault, head)?;
        if snapshot.tree == tree {
            return Ok(Inside { snapshot, edited: vec![] });
        }
        let call = self.git.ours(work.vault, "compare a submodule with its commit");
        let call = call.args(["diff-tree", "-r", "--name-only", "-z", "--no-renames", tree.as_str()]);
        let edited = call.arg(snapshot.tree.as_str()).list()?;
        let edited = edited.iter().map(|file| [prefix.as_slice(), file].concat()).collect();
        Ok(Inside { snapshot, edited })
    }

    /// Lists the paths in the submodules of a workspace that are kept nowhere.
    pub(crate) fn unkept_submodules(
        &self,
        work: &SubmoduleWork<'_>,
        pointers: Vec<Pointer>,
    ) -> Result<Vec<Vec<u8>>, GitError> {
        let mut unkept = Vec::new();
        let mut levels = vec![(Vec::new(), pointers, 0)];
        while let Some((prefix, pointers, depth)) = levels.pop() {
            for pointer in pointers.into_iter().filter(|pointer| pointer.is_checked_out) {
                let path = [prefix.as_slice(), &pointer.path].concat();
                let below = [path.as_slice(), b"/"].concat();
                let head = work.head(&path, &pointer);
                if depth > MAX_DEPTH || !self.is_kept(work.vault, &head)? {
                    unkept.push(below);
                    continue;
                }
                let inside = self.look_into(work, &path, &head)?;
                if !inside.edited.is_empty() && !self.keeps_tree(work, &inside.snapshot.tree)? {
                    unkept.extend(inside.edited);
                }
                levels.push((below, inside.snapshot.submodules, depth + 1));
            }
        }
        Ok(unkept)
    }

    /// Returns whether a ref of the vault reaches the commit.
    fn is_kept(&self, vault: &Path, commit: &CommitId) -> Result<bool, GitError> {
        if self.find(vault, &module_ref(commit))?.is_some() {
            return Ok(true);
        }
        let call = self.git.ours(vault, "look for what keeps a commit").args(["for-each-ref", "--count=1"]);
        // The call fails where the vault does not have the commit.
        let said = call.arg(format!("--contains={commit}")).arg("refs/regatta/").run()?;
        Ok(said.status == Some(0) && !said.stdout.is_empty())
    }

    /// Returns whether a kept commit of the attempt has exactly this tree.
    fn keeps_tree(&self, work: &SubmoduleWork<'_>, tree: &CommitId) -> Result<bool, GitError> {
        let call = self.git.ours(work.vault, "list what is kept");
        let listed = call.args(["for-each-ref", "--format=%(refname) %(tree)", "refs/regatta/keep/"]).line()?;
        let kept = listed.lines().filter_map(|line| line.split_once(' '));
        Ok(kept.into_iter().any(|(name, kept)| keeps_for(name) == Some(work.attempt) && kept == tree.as_str()))
    }

    /// Lists the new files in a checked-out submodule that are not ignored, including those of
    /// nested submodules.
    pub(crate) fn new_files_in(&self, repo: &Repo, around: &Lens<'_>, path: &[u8]) -> Result<Vec<Vec<u8>>, GitError> {
        let tree = around.tree.join(path_of(path));
        let Some(head) = history::checked_out(around.workspace, &tree) else { return Ok(vec![]) };
        if self.find(around.vault, &format!("{head}^{{commit}}"))?.is_none() {
            return Ok(vec![]);
        }
        let index = self.places.scratch(&repo.project);
        let (foreign, own) = (HashSet::new(), None);
        let Lens { adapter, vault, workspace, .. } = *around;
        let lens = Lens { adapter, vault, workspace, tree: &tree, index: index.path(), objects: None, foreign, own };
        lens.git("read the commit of a submodule").args(["read-tree", head.as_str()]).done()?;
        lens.clear()?;
        let mut found = lens.untracked(&[])?;
        for nested in lens.checked_out_submodules()? {
            found.extend(self.new_files_in(repo, &lens, &nested)?);
        }
        Ok(found.iter().map(|file| [path, b"/", file].concat()).collect())
    }
}
