//! Stores the work of an agent inside the submodules of its workspace.
//!
//! A commit that the agent made in a submodule is imported into the vault (Regatta's own
//! repository) and stored like the rest of the agent's work. Uncommitted edits in a submodule
//! cannot land, because the project's git tree contains only the id of the submodule's commit. Such
//! edits are stored in a separate commit, and an error then names the edited files.
//!
//! Regatta never runs git with a git directory that the agent can write.

use std::collections::HashSet;
use std::path::Path;

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{Authorship, GitError, ProjectRepo, attempt_of_keep_ref};

use crate::capture::{Snapshot, SubmodulePointer, WorkspaceReader};
use crate::git_command::{path_from_bytes, path_to_text};
use crate::submodules::{MAX_SUBMODULE_DEPTH, UserCopies, module_ref};
use crate::vault::keep_ref;
use crate::{GitAdapter, agent_commits, disk, errors};

/// The workspace whose submodules are examined, and the vault (Regatta's own repository) of its
/// project.
pub(crate) struct SubmoduleWork<'a> {
    pub(crate) repo: &'a ProjectRepo,
    pub(crate) vault: &'a Path,
    pub(crate) attempt: AttemptId,
    pub(crate) workspace: &'a Path,
    /// The paths of files that were in the workspace before the attempt began.
    pub(crate) foreign: &'a HashSet<Vec<u8>>,
}

/// The state of the files in a checked-out submodule.
struct SubmoduleFiles {
    snapshot: Snapshot,
    /// The paths whose content differs from the submodule's commit, relative to the top of the
    /// workspace.
    edited: Vec<Vec<u8>>,
}

/// A repository in the workspace, with the submodules that lie directly in it. The repository is
/// the workspace itself or one of its submodules.
struct SubmoduleLevel {
    /// The path of the repository that contains the submodules, followed by a slash. Empty for the
    /// workspace itself.
    prefix: Vec<u8>,
    /// The commit of the containing repository. The `.gitmodules` file in this commit names the
    /// submodules.
    commit: CommitId,
    pointers: Vec<SubmodulePointer>,
    copies: UserCopies,
    depth: usize,
}

impl SubmoduleWork<'_> {
    /// Returns the commit of a submodule with which the files of the checked-out submodule are
    /// compared to find edits.
    fn compared_commit(&self, path: &[u8], pointer: &SubmodulePointer) -> CommitId {
        let head = agent_commits::submodule_head(
            self.workspace,
            &self.workspace.join(path_from_bytes(path)),
        );
        head.unwrap_or_else(|| pointer.commit.clone())
    }
}

impl GitAdapter {
    /// Stores the commits and the uncommitted edits in an attempt's submodules. Returns an error if
    /// a submodule has uncommitted edits, or if the agent moved a submodule to a commit that cannot
    /// be found.
    pub(crate) fn keep_submodules(
        &self,
        work: &SubmoduleWork<'_>,
        base: &CommitId,
        pointers: Vec<SubmodulePointer>,
        authorship: &Authorship,
    ) -> Result<(), GitError> {
        if pointers.is_empty() {
            return Ok(());
        }
        let copies = UserCopies::of_project(&self.discover_at(&work.repo.path)?);
        let mut levels = vec![SubmoduleLevel {
            prefix: vec![],
            commit: base.clone(),
            pointers,
            copies,
            depth: 0,
        }];
        let (mut edited, mut missing) = (Vec::new(), None);
        while let Some(level) = levels.pop() {
            let mut names = self.submodule_names(work.vault, &level.commit)?;
            for pointer in level.pointers {
                let copies = level
                    .copies
                    .of_submodule(&pointer.path, names.remove(&pointer.path).as_deref());
                let path = [level.prefix.as_slice(), &pointer.path].concat();
                let git_dir = if pointer.is_checked_out {
                    agent_commits::git_dir_of(
                        work.workspace,
                        &work.workspace.join(path_from_bytes(&path)),
                    )
                } else {
                    None
                };
                let keep = |commit: &CommitId| {
                    self.keep_commit(work, &copies, git_dir.as_deref(), (&path, commit))
                };
                if !keep(&pointer.commit)?
                    && pointer.is_moved
                    && (copies.any_exist() || git_dir.is_some())
                {
                    missing.get_or_insert_with(|| {
                        errors::submodule_commit_missing(&path_to_text(&path), &pointer.commit)
                    });
                }
                let head = work.compared_commit(&path, &pointer);
                if !pointer.is_checked_out || !keep(&head)? {
                    continue;
                }
                let files = self.read_submodule(work, &path, &head)?;
                if !files.edited.is_empty() {
                    let commit =
                        self.commit_tree(work.vault, &files.snapshot.tree, &[&head], authorship)?;
                    self.pin_beside_capture(work.vault, work.attempt, &commit)?;
                    edited.extend(files.edited);
                }
                if level.depth < MAX_SUBMODULE_DEPTH {
                    let prefix = [path.as_slice(), b"/"].concat();
                    let (pointers, depth) = (files.snapshot.submodules, level.depth + 1);
                    levels.push(SubmoduleLevel {
                        prefix,
                        commit: head,
                        pointers,
                        copies,
                        depth,
                    });
                }
            }
        }
        disk::sync_objects(work.vault)?;
        match missing {
            Some(error) => Err(error),
            None if edited.is_empty() => Ok(()),
            None => Err(errors::submodule_edited(
                &edited
                    .iter()
                    .map(|path| path_to_text(path))
                    .collect::<Vec<_>>(),
            )),
        }
    }

    /// Stores the commit of a submodule in the vault (Regatta's own repository), and creates a ref
    /// that protects it. Returns `false` if the commit cannot be found.
    fn keep_commit(
        &self,
        work: &SubmoduleWork<'_>,
        copies: &UserCopies,
        git_dir: Option<&Path>,
        (path, commit): (&[u8], &CommitId),
    ) -> Result<bool, GitError> {
        let vault = work.vault;
        if self.find_object(vault, &module_ref(commit))?.is_some() {
            return Ok(true);
        }
        let is_here = self
            .find_object(vault, &format!("{commit}^{{commit}}"))?
            .is_some();
        let import = |git_dir| self.import_submodule_commit(vault, git_dir, commit);
        if is_here || git_dir.map_or(Ok(false), import)? {
            self.pin_beside_capture(vault, work.attempt, commit)?;
            return Ok(true);
        }
        match self.fetch_submodule(work.repo, vault, copies, (path, commit)) {
            Err(error) if error.code == "submodule_missing" => Ok(false),
            result => result,
        }
    }

    /// Creates an additional ref of the attempt that protects `commit` from deletion. The ref of
    /// the attempt's captured work stays unchanged.
    fn pin_beside_capture(
        &self,
        vault: &Path,
        attempt: AttemptId,
        commit: &CommitId,
    ) -> Result<(), GitError> {
        let keep = format!("{}-{}", keep_ref(attempt), &commit.as_str()[..12]);
        match self.find_object(vault, &keep)? {
            Some(_) => Ok(()),
            None => self.update_refs(vault, format!("create {keep} {commit}\n")),
        }
    }

    /// Compares the files of a checked-out submodule with the submodule's commit `head`. The vault
    /// (Regatta's own repository) must have this commit.
    fn read_submodule(
        &self,
        work: &SubmoduleWork<'_>,
        path: &[u8],
        head: &CommitId,
    ) -> Result<SubmoduleFiles, GitError> {
        let prefix = [path, b"/"].concat();
        let inside_path = |file: &Vec<u8>| file.strip_prefix(prefix.as_slice()).map(<[u8]>::to_vec);
        let index = self.layout.scratch(&work.repo.project);
        let reader = WorkspaceReader {
            adapter: self,
            vault: work.vault,
            workspace: work.workspace,
            tree: &work.workspace.join(path_from_bytes(path)),
            index: index.path(),
            objects: None,
            foreign: work.foreign.iter().filter_map(inside_path).collect(),
            own_commit: None,
        };
        reader
            .command("read the commit of a submodule")
            .args(["read-tree", head.as_str()])
            .run_expecting_success()?;
        reader.remove_blocking_files()?;
        let snapshot = reader.snapshot()?;
        let tree = self.tree_of_commit(work.vault, head)?;
        if snapshot.tree == tree {
            return Ok(SubmoduleFiles {
                snapshot,
                edited: vec![],
            });
        }
        let call = self
            .git
            .in_vault(work.vault, "compare a submodule with its commit");
        let call = call.args([
            "diff-tree",
            "-r",
            "--name-only",
            "-z",
            "--no-renames",
            tree.as_str(),
        ]);
        let edited = call.arg(snapshot.tree.as_str()).run_for_list()?;
        let edited = edited
            .iter()
            .map(|file| [prefix.as_slice(), file].concat())
            .collect();
        Ok(SubmoduleFiles { snapshot, edited })
    }

    /// Lists the paths in a workspace's submodules whose content is not stored anywhere else.
    pub(crate) fn uncaptured_in_submodules(
        &self,
        work: &SubmoduleWork<'_>,
        pointers: Vec<SubmodulePointer>,
    ) -> Result<Vec<Vec<u8>>, GitError> {
        let mut uncaptured = Vec::new();
        let mut levels = vec![(Vec::new(), pointers, 0)];
        while let Some((prefix, pointers, depth)) = levels.pop() {
            for pointer in pointers
                .into_iter()
                .filter(|pointer| pointer.is_checked_out)
            {
                let path = [prefix.as_slice(), &pointer.path].concat();
                let inner_prefix = [path.as_slice(), b"/"].concat();
                let head = work.compared_commit(&path, &pointer);
                if depth > MAX_SUBMODULE_DEPTH || !self.is_kept(work.vault, &head)? {
                    uncaptured.push(inner_prefix);
                    continue;
                }
                let files = self.read_submodule(work, &path, &head)?;
                if !files.edited.is_empty() && !self.has_kept_tree(work, &files.snapshot.tree)? {
                    uncaptured.extend(files.edited);
                }
                levels.push((inner_prefix, files.snapshot.submodules, depth + 1));
            }
        }
        Ok(uncaptured)
    }

    /// Returns whether the commit is protected from deletion, because one of the refs in the vault
    /// (Regatta's own repository) reaches it.
    fn is_kept(&self, vault: &Path, commit: &CommitId) -> Result<bool, GitError> {
        if self.find_object(vault, &module_ref(commit))?.is_some() {
            return Ok(true);
        }
        let call = self
            .git
            .in_vault(vault, "find the refs that contain a commit")
            .args(["for-each-ref", "--count=1"]);
        // Git fails if the vault (Regatta's own repository) does not have the commit. In this case
        // the commit counts as not stored.
        let output = call
            .arg(format!("--contains={commit}"))
            .arg("refs/regatta/")
            .run()?;
        Ok(output.status == Some(0) && !output.stdout.is_empty())
    }

    /// Returns whether one of the commits that store the attempt's work has exactly this tree.
    fn has_kept_tree(&self, work: &SubmoduleWork<'_>, tree: &CommitId) -> Result<bool, GitError> {
        let call = self
            .git
            .in_vault(work.vault, "list the refs of stored work");
        let listed = call
            .args([
                "for-each-ref",
                "--format=%(refname) %(tree)",
                "refs/regatta/keep/",
            ])
            .run_for_line()?;
        let mut kept = listed.lines().filter_map(|line| line.split_once(' '));
        Ok(kept.any(|(name, kept_tree)| {
            attempt_of_keep_ref(name) == Some(work.attempt) && kept_tree == tree.as_str()
        }))
    }

    /// Lists the new files in a checked-out submodule that git does not ignore. Includes the files
    /// in nested submodules.
    pub(crate) fn new_submodule_files(
        &self,
        repo: &ProjectRepo,
        parent_reader: &WorkspaceReader<'_>,
        path: &[u8],
    ) -> Result<Vec<Vec<u8>>, GitError> {
        let tree = parent_reader.tree.join(path_from_bytes(path));
        let Some(head) = agent_commits::submodule_head(parent_reader.workspace, &tree) else {
            return Ok(vec![]);
        };
        if self
            .find_object(parent_reader.vault, &format!("{head}^{{commit}}"))?
            .is_none()
        {
            return Ok(vec![]);
        }
        let index = self.layout.scratch(&repo.project);
        let (foreign, own_commit) = (HashSet::new(), None);
        let WorkspaceReader {
            adapter,
            vault,
            workspace,
            ..
        } = *parent_reader;
        let reader = WorkspaceReader {
            adapter,
            vault,
            workspace,
            tree: &tree,
            index: index.path(),
            objects: None,
            foreign,
            own_commit,
        };
        reader
            .command("read the commit of a submodule")
            .args(["read-tree", head.as_str()])
            .run_expecting_success()?;
        reader.remove_blocking_files()?;
        let mut files = reader.untracked_paths(&[])?;
        for nested in reader.checked_out_submodules()? {
            files.extend(self.new_submodule_files(repo, &reader, &nested)?);
        }
        Ok(files
            .iter()
            .map(|file| [path, b"/", file].concat())
            .collect())
    }
}
