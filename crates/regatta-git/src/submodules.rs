//! Checks out submodules in workspaces and staging directories.
//!
//! The objects of submodules are in the project's vault (Regatta's own repository), together with
//! the project's own objects, and the submodules of a workspace borrow them from there. One
//! repository can hold the objects of several, because an object's id always names the same
//! content. The ref `refs/regatta/modules/<commit>` protects each imported commit, and everything
//! that the commit needs, from deletion.
//!
//! Regatta reads a submodule's commit from the user's own copy of the submodule, otherwise from the
//! remote that this copy names. Anybody who makes a commit can write `.gitmodules`. Therefore
//! Regatta reads only the names of submodules from that file, and uses a name only to find a
//! directory below `.git/modules` in the user's repository.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{GitError, ProjectRepo, SubmoduleFacts};

use crate::git_command::{path_from_bytes, path_to_text, split_nul};
use crate::gitdir::{self, HeadTarget};
use crate::layout::LockKey;
use crate::object_store::GITLINK;
use crate::tree_diff::TreeDiff;
use crate::user_repo::UserRepo;
use crate::vault::FETCH_OPTIONS;
use crate::workspace::NewTree;
use crate::{GitAdapter, disk, errors};

/// The largest nesting depth at which submodules are checked out. The directories of submodules at
/// a greater depth stay empty.
pub(crate) const MAX_SUBMODULE_DEPTH: usize = 8;

/// The largest number of submodules in one checkout. Without a limit, a few commits that contain
/// each other as submodules could make millions.
const MAX_SUBMODULES: usize = 1_000;

/// Returns the ref in the vault (Regatta's own repository) that protects a submodule's commit from
/// deletion.
pub(crate) fn module_ref(commit: &CommitId) -> String {
    format!("refs/regatta/modules/{commit}")
}

/// A submodule, as a commit of the repository that contains the submodule describes it.
#[derive(Debug)]
pub(crate) struct Submodule {
    /// The path of the submodule, relative to the top of the repository that contains the
    /// submodule.
    pub(crate) path: Vec<u8>,
    pub(crate) commit: CommitId,
    /// The submodule's name in `.gitmodules`. `None` if the file does not list the submodule.
    pub(crate) name: Option<String>,
}

/// The copies of one repository (the project or one of its submodules) that the user has on this
/// machine: their git directories and, if there is one, the working tree.
#[derive(Debug, Default)]
pub(crate) struct UserCopies {
    tree: Option<PathBuf>,
    git_dirs: Vec<PathBuf>,
    /// True if the remotes of these copies must not be contacted.
    is_offline: bool,
}

impl UserCopies {
    pub(crate) fn of_project(user: &UserRepo) -> UserCopies {
        let tree = (!user.is_bare).then(|| user.top.clone());
        let mut git_dirs = vec![user.git_dir.clone(), user.common_dir.clone()];
        git_dirs.dedup();
        UserCopies {
            tree,
            git_dirs,
            is_offline: false,
        }
    }

    /// Returns the user's copies of a submodule of this repository. `path` is the submodule's path
    /// in the repository, and `name` its name in `.gitmodules`.
    pub(crate) fn of_submodule(&self, path: &[u8], name: Option<&str>) -> UserCopies {
        let tree = self
            .tree
            .as_ref()
            .map(|tree| tree.join(path_from_bytes(path)));
        let mut git_dirs: Vec<PathBuf> = tree.iter().filter_map(|tree| git_dir_in(tree)).collect();
        if let Some(name) = name.filter(|name| is_plain_name(name)) {
            git_dirs.extend(
                self.git_dirs
                    .iter()
                    .map(|dir| dir.join("modules").join(name)),
            );
        }
        git_dirs.retain(|dir| dir.join("HEAD").is_file() && dir.join("objects").is_dir());
        git_dirs.dedup();
        UserCopies {
            tree,
            git_dirs,
            is_offline: self.is_offline,
        }
    }

    pub(crate) fn is_checked_out(&self) -> bool {
        self.tree
            .as_ref()
            .is_some_and(|tree| disk::is_occupied(&tree.join(".git")))
    }

    pub(crate) fn any_exist(&self) -> bool {
        !self.git_dirs.is_empty()
    }
}

/// Returns the git directory of a working tree of the user, or `None` if there is none.
fn git_dir_in(tree: &Path) -> Option<PathBuf> {
    let dot_git = tree.join(".git");
    if disk::is_real_dir(&dot_git) {
        return Some(dot_git);
    }
    let text = fs::read_to_string(&dot_git).ok()?;
    let git_dir = tree.join(text.strip_prefix("gitdir: ")?.trim_end());
    git_dir.canonicalize().ok()
}

/// Returns whether a submodule's name, used as a path, stays inside the directory in which it is
/// looked up.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(['\\', '\0'])
        && Path::new(name)
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}

/// A checked-out repository in which submodules are to be checked out.
struct ParentRepo<'a> {
    dir: &'a Path,
    commit: &'a CommitId,
    /// The path of the repository relative to the project's top, followed by a slash. Empty for the
    /// project itself.
    prefix: Vec<u8>,
    copies: UserCopies,
    depth: usize,
}

impl GitAdapter {
    /// Checks out the submodules of a working tree into which git has just checked out the
    /// project's files.
    pub(crate) fn check_out_submodules(
        &self,
        repo: &ProjectRepo,
        tree: &NewTree<'_>,
    ) -> Result<(), GitError> {
        let NewTree {
            vault,
            dir,
            commit,
            sparse,
            ..
        } = *tree;
        let mut submodules = self.submodules_at(vault, commit)?;
        submodules.retain(|submodule| sparse.is_none_or(|sparse| sparse.includes(&submodule.path)));
        if submodules.is_empty() {
            return Ok(());
        }
        let copies = UserCopies::of_project(&self.discover_at(&repo.path)?);
        let parent = ParentRepo {
            dir,
            commit,
            prefix: vec![],
            copies,
            depth: 0,
        };
        self.check_out_submodules_of(repo, vault, &parent, submodules, &mut 0)
    }

    fn check_out_submodules_of(
        &self,
        repo: &ProjectRepo,
        vault: &Path,
        parent: &ParentRepo<'_>,
        submodules: Vec<Submodule>,
        count: &mut usize,
    ) -> Result<(), GitError> {
        let top = fs::canonicalize(parent.dir)
            .map_err(|cause| errors::io_error("find the directory", parent.dir, &cause))?;
        for Submodule { path, commit, name } in submodules {
            let copies = parent.copies.of_submodule(&path, name.as_deref());
            let full_path = [parent.prefix.as_slice(), &path].concat();
            if !self.fetch_submodule(repo, vault, &copies, (&full_path, &commit))? {
                continue;
            }
            *count += 1;
            if *count > MAX_SUBMODULES {
                return Err(errors::too_many_submodules(
                    &path_to_text(&full_path),
                    MAX_SUBMODULES,
                ));
            }
            let dir = top.join(path_from_bytes(&path));
            if !disk::is_occupied(&dir) {
                disk::make_dirs(&dir)?;
            }
            // Git has just written the working tree, so the path should not lead through a symbolic
            // link. If it does, the submodule is not checked out, because its files could be
            // written outside the tree.
            if fs::canonicalize(&dir).ok().as_ref() != Some(&dir) || !disk::is_real_dir(&dir) {
                continue;
            }
            let git_dir = dir.join(".git");
            disk::remove_tree(&git_dir)?;
            gitdir::make_git_dir(&git_dir, vault, &commit, &HeadTarget::Detached, None)?;
            self.check_out(&dir, &git_dir, &git_dir.join("index"), &commit)?;
            if parent.depth < MAX_SUBMODULE_DEPTH {
                let prefix = [full_path.as_slice(), b"/"].concat();
                let inner = ParentRepo {
                    dir: &dir,
                    commit: &commit,
                    prefix,
                    copies,
                    depth: parent.depth + 1,
                };
                let nested = self.submodules_at(vault, inner.commit)?;
                self.check_out_submodules_of(repo, vault, &inner, nested, count)?;
            }
        }
        Ok(())
    }

    /// Lists the submodules of a commit. The list is empty if the commit has no `.gitmodules`.
    pub(crate) fn submodules_at(
        &self,
        vault: &Path,
        commit: &CommitId,
    ) -> Result<Vec<Submodule>, GitError> {
        let has_any = self.with_object_store(vault, |odb| {
            let tree = odb.commit(commit)?.tree;
            Ok(odb
                .tree(&tree)?
                .iter()
                .any(|entry| entry.name == b".gitmodules"))
        })?;
        if !has_any {
            return Ok(vec![]);
        }
        let call = self.git.in_vault(vault, "list the submodules");
        let entries = call
            .args(["ls-tree", "-r", "-z", "--full-tree", commit.as_str()])
            .run_for_list()?;
        let mut names = self.submodule_names(vault, commit)?;
        let mut submodules = Vec::new();
        for entry in entries {
            let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else {
                continue;
            };
            let Some(id) = entry[..tab].strip_prefix(b"160000 commit ") else {
                continue;
            };
            let Ok(commit) = CommitId::new(&path_to_text(id)) else {
                continue;
            };
            let path = entry[tab + 1..].to_vec();
            let name = names.remove(&path);
            submodules.push(Submodule { path, commit, name });
        }
        Ok(submodules)
    }

    /// Reads the names of submodules from the `.gitmodules` of a commit, by path. Returns an empty
    /// map if git cannot read that file.
    pub(crate) fn submodule_names(
        &self,
        vault: &Path,
        commit: &CommitId,
    ) -> Result<HashMap<Vec<u8>, String>, GitError> {
        let call = self
            .git
            .in_vault(vault, "read the names of the submodules")
            .args(["config", "-z", "--blob"]);
        let call = call
            .arg(format!("{commit}:.gitmodules"))
            .args(["--get-regexp", r"^submodule\..*\.path$"]);
        let mut names = HashMap::new();
        for entry in split_nul(&call.run()?.stdout) {
            let Some(end) = entry.iter().position(|byte| *byte == b'\n') else {
                continue;
            };
            let key = path_to_text(&entry[..end]);
            let name = key
                .strip_prefix("submodule.")
                .and_then(|key| key.strip_suffix(".path"));
            if let Some(name) = name {
                names
                    .entry(entry[end + 1..].to_vec())
                    .or_insert_with(|| name.to_owned());
            }
        }
        Ok(names)
    }

    /// Fetches a submodule's commit into the vault (Regatta's own repository) if the vault lacks
    /// it. Returns `false` if the user has not checked out the submodule.
    pub(crate) fn fetch_submodule(
        &self,
        repo: &ProjectRepo,
        vault: &Path,
        copies: &UserCopies,
        (path, commit): (&[u8], &CommitId),
    ) -> Result<bool, GitError> {
        const OPERATION: &str = "fetch a submodule";
        let keep = module_ref(commit);
        self.locks
            .with_lock(LockKey::Submodules(repo.project.clone()), || {
                if self.find_object(vault, &keep)?.is_some() {
                    return Ok(true);
                }
                let spec = format!("+{commit}:{keep}");
                let mut reason = String::new();
                for copy in &copies.git_dirs {
                    let output = self
                        .git
                        .in_vault(vault, OPERATION)
                        .args(FETCH_OPTIONS)
                        .arg(copy)
                        .arg(&spec)
                        .run()?;
                    if output.status == Some(0) {
                        disk::sync_objects(vault)?;
                        return Ok(true);
                    }
                    reason = output.stderr;
                }
                // The vault (Regatta's own repository) already has the commit, for example because
                // an agent made it. A ref already protects the commit.
                if self
                    .find_object(vault, &format!("{commit}^{{commit}}"))?
                    .is_some()
                {
                    return Ok(true);
                }
                for copy in copies.git_dirs.iter().filter(|_| !copies.is_offline) {
                    let Some(url) = self.submodule_remote(copy)? else {
                        continue;
                    };
                    let call = self
                        .git
                        .in_submodule_online(vault, self.allows_file_transport(copy)?, OPERATION)
                        .args(FETCH_OPTIONS);
                    let output = call.arg(url).arg(&spec).run()?;
                    if output.status == Some(0) {
                        disk::sync_objects(vault)?;
                        return Ok(true);
                    }
                    reason = output.stderr;
                }
                if copies.is_checked_out() {
                    return Err(errors::submodule_missing(
                        &path_to_text(path),
                        commit,
                        &reason,
                    ));
                }
                Ok(false)
            })
    }

    /// Returns the address of the remote from which the user's copy of a submodule fetches, or
    /// `None` if the copy has no usable remote.
    fn submodule_remote(&self, copy: &Path) -> Result<Option<String>, GitError> {
        let output = self
            .git
            .in_checkout(copy, "find the remote of a submodule")
            .args(["ls-remote", "--get-url"])
            .run()?;
        // If the copy has no remote, git prints the name of the remote instead of an address. A
        // relative path is not usable as an address, because git runs in the vault (Regatta's own
        // repository), where the path would lead to a different place.
        let url = path_to_text(output.stdout.trim_ascii_end());
        Ok(Some(url)
            .filter(|url| output.status == Some(0) && (url.contains(':') || url.starts_with('/'))))
    }

    /// Returns whether the user's settings allow submodules to be fetched from a path on this
    /// machine. Git's default does not allow it.
    fn allows_file_transport(&self, copy: &Path) -> Result<bool, GitError> {
        let call = self
            .git
            .in_checkout(copy, "read the git setting protocol.file.allow");
        let output = call
            .args(["config", "--show-scope", "--get-all", "protocol.file.allow"])
            .run()?;
        let text = path_to_text(&output.stdout);
        // Ignore the setting that Regatta itself passes on the command line, so that only the
        // user's settings count.
        let mut values = text
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .filter(|(scope, _)| *scope != "command");
        Ok(values
            .next_back()
            .is_some_and(|(_, value)| value == "always"))
    }

    /// Lists the submodules for which the commits `old` and `new` of the project name different
    /// commits. Returns each submodule with the commit that `old` names.
    pub(crate) fn moved_submodules(
        &self,
        vault: &Path,
        old: Option<&CommitId>,
        new: &CommitId,
    ) -> Result<Vec<(Option<CommitId>, Submodule)>, GitError> {
        let changed = self.with_object_store(vault, |odb| {
            let old = old
                .map(|old| odb.commit(old))
                .transpose()?
                .map(|old| old.tree);
            let tree = odb.commit(new)?.tree;
            Ok(TreeDiff::between(odb, old.as_ref(), &tree)?.files)
        })?;
        let is_submodule = |file: &(u32, CommitId)| file.0 == GITLINK;
        let mut moved = Vec::new();
        for (path, (before, after)) in changed {
            if let Some((_, commit)) = after.filter(is_submodule) {
                moved.push((
                    before.filter(is_submodule).map(|(_, commit)| commit),
                    Submodule {
                        path,
                        commit,
                        name: None,
                    },
                ));
            }
        }
        if !moved.is_empty() {
            let mut names = self.submodule_names(vault, new)?;
            for (_, submodule) in &mut moved {
                submodule.name = names.remove(&submodule.path);
            }
        }
        Ok(moved)
    }

    /// Returns whether a known branch or tag of the submodule's remote contains the commit.
    pub(crate) fn is_published(
        &self,
        vault: &Path,
        copies: &UserCopies,
        commit: &CommitId,
    ) -> Result<bool, GitError> {
        for copy in &copies.git_dirs {
            let call = self
                .git
                .in_vault(copy, "look for a commit on the remote's branches");
            let call = call.args(["for-each-ref", "--count=1", "--format=%(refname)"]);
            // Git fails if the user's copy of the submodule does not have the commit. In this case
            // the commit counts as not published.
            let output = call
                .arg(format!("--contains={commit}"))
                .arg("refs/remotes/")
                .run()?;
            if output.status == Some(0) && !output.stdout.is_empty() {
                return Ok(true);
            }
        }
        for copy in &copies.git_dirs {
            let Some(url) = self.submodule_remote(copy)? else {
                continue;
            };
            let call = self.git.in_submodule_online(
                vault,
                self.allows_file_transport(copy)?,
                "ask the remote of a submodule",
            );
            let call = call.with_short_timeout().args([
                "ls-remote",
                "--quiet",
                "--heads",
                "--tags",
                "--end-of-options",
            ]);
            // If the remote does not answer, the commit counts as not published.
            let Ok(output) = call.arg(url).run() else {
                continue;
            };
            let listed = path_to_text(&output.stdout);
            for tip in listed
                .lines()
                .filter_map(|line| line.split_whitespace().next())
            {
                let call = self
                    .git
                    .in_vault(
                        vault,
                        "compare a commit with the branches of a submodule's remote",
                    )
                    .alternate_objects(&copy.join("objects"));
                let contains = || {
                    call.args(["merge-base", "--is-ancestor", commit.as_str(), tip])
                        .run()
                };
                if tip == commit.as_str() || contains()?.status == Some(0) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Copies a commit of a submodule from the vault (Regatta's own repository) into the user's
    /// copy of the submodule, so that a person can push the commit from there. If this fails, only
    /// writes a log line.
    pub(crate) fn copy_to_user(&self, vault: &Path, copies: &UserCopies, commit: &CommitId) {
        let Some(copy) = copies.git_dirs.first() else {
            return;
        };
        let call = self
            .git
            .in_vault(copy, "copy a commit into your copy of the submodule")
            .args(FETCH_OPTIONS)
            .arg(vault);
        if let Err(error) = call
            .arg(format!("+{commit}:refs/regatta/keep/{commit}"))
            .run_expecting_success()
        {
            tracing::warn!(%commit, "could not copy commit {commit} of a submodule into the user's \
                copy {} of the submodule, so the user cannot push this commit from there: {error}",
                copy.display());
        }
    }

    /// Imports into the vault (Regatta's own repository) the commit of each submodule in `commit`,
    /// so that a runner can fetch it. Skips a submodule's commit if none of the user's copies has
    /// it.
    pub(crate) fn import_submodules(
        &self,
        repo: &ProjectRepo,
        vault: &Path,
        commit: &CommitId,
    ) -> Result<(), GitError> {
        let submodules = self.submodules_at(vault, commit)?;
        if submodules.is_empty() {
            return Ok(());
        }
        let copies = UserCopies {
            is_offline: true,
            ..UserCopies::of_project(&self.discover_at(&repo.path)?)
        };
        let (mut pending, mut seen) = (vec![(copies, submodules)], HashSet::new());
        while let Some((parent_copies, submodules)) = pending.pop() {
            for Submodule { path, commit, name } in submodules {
                let copies = parent_copies.of_submodule(&path, name.as_deref());
                if !seen.insert(commit.clone()) {
                    continue;
                }
                // A commit that cannot be found is skipped. In the workspaces of a runner, the
                // submodule's directory is then empty. (In a workspace on this machine, a missing
                // commit is an error.)
                if self
                    .fetch_submodule(repo, vault, &copies, (&path, &commit))
                    .unwrap_or(false)
                {
                    pending.push((copies, self.submodules_at(vault, &commit)?));
                }
            }
        }
        Ok(())
    }

    /// Lists the submodules in the user's checkout, with the facts that Regatta shows about each.
    pub(crate) fn checkout_submodules(
        &self,
        user: &UserRepo,
    ) -> Result<Vec<SubmoduleFacts>, GitError> {
        if user.is_bare || !disk::is_occupied(&user.top.join(".gitmodules")) {
            return Ok(vec![]);
        }
        let entries = self
            .git
            .in_checkout(&user.top, "list your submodules")
            .args(["ls-files", "--stage", "-z"])
            .run_for_list()?;
        let mut submodules = Vec::new();
        for entry in entries.iter().filter(|entry| entry.starts_with(b"160000 ")) {
            let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else {
                continue;
            };
            let path = &entry[tab + 1..];
            let is_checked_out =
                disk::is_occupied(&user.top.join(path_from_bytes(path)).join(".git"));
            submodules.push(SubmoduleFacts {
                path: path_to_text(path),
                is_checked_out,
            });
        }
        Ok(submodules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s6_a_submodule_name_that_leaves_the_modules_directory_is_refused() {
        for good in ["lib", "vendor/lib", "a..b", "..."] {
            assert!(is_plain_name(good), "{good}");
        }
        for bad in ["..", "../x", "a/../../b", "/etc", "./x", "a\\..\\b", "a\0b"] {
            assert!(!is_plain_name(bad), "{bad}");
        }
    }
}
