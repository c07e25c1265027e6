//! Reads the user's repository without changing it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use regatta_core::ids::{BranchName, CommitId};
use regatta_engine::ports::git::{GitError, Repo, RepoFacts};

use crate::run::{Said, text_of};
use crate::{GitAdapter, words};

const MOST_DIRTY_NAMED: usize = 10;
/// The largest number of `.gitattributes` files that are read to find out whether LFS is used.
const MAX_ATTRIBUTE_FILES: usize = 100;

/// The user's repository as found on disk.
#[derive(Clone, Debug)]
pub(crate) struct UserRepo {
    /// The working tree's top, or the bare repository itself.
    pub(crate) top: PathBuf,
    /// The part of this checkout: HEAD, the index.
    pub(crate) git_dir: PathBuf,
    /// The part that all linked worktrees share: refs and objects.
    pub(crate) common: PathBuf,
    pub(crate) bare: bool,
    /// True if its file system treats names that differ by case as equal.
    pub(crate) folds_case: bool,
}

/// A tracked file that differs from HEAD or from the index.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) path: Vec<u8>,
    /// The index differs from HEAD.
    pub(crate) staged: bool,
    /// The working tree differs from the index.
    pub(crate) edited: bool,
    /// A merge left the file unmerged.
    pub(crate) unmerged: bool,
}

impl GitAdapter {
    /// Reads the facts about the repository that contains `path`.
    pub(crate) fn facts(&self, path: &Path) -> Result<RepoFacts, GitError> {
        let user = self.discover(path, false)?;
        let head = self.head_branch(&user)?;
        let born = self
            .git
            .users(&user.top, "read HEAD")
            .args(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
            .object_if_any()?
            .is_some();
        let mut dirty = Vec::new();
        let submodules = self.submodules_of(&user)?;
        let has_lfs = self.uses_lfs(&user)?;
        if !user.bare {
            let changes = self.changes(&user.top)?;
            dirty = changes.iter().map(|it| text_of(&it.path)).take(MOST_DIRTY_NAMED).collect();
        }
        Ok(RepoFacts {
            unborn: !born && head.is_some(),
            // A branch name that is not accepted counts as none, because nothing can land on it.
            branch: head.filter(|_| born).and_then(|it| BranchName::new(it.strip_prefix("refs/heads/")?).ok()),
            bare: user.bare,
            dirty,
            in_progress: in_progress(&user.git_dir),
            submodules,
            has_lfs,
            top: user.top,
        })
    }

    /// Returns whether a `.gitattributes` file of the checkout assigns files to Git LFS.
    fn uses_lfs(&self, user: &UserRepo) -> Result<bool, GitError> {
        if user.bare {
            return Ok(false);
        }
        let call = self.git.users(&user.top, "list your .gitattributes");
        let listed = call.args(["ls-files", "-z", "--", ":(glob)**/.gitattributes"]).list()?;
        let has_rule = |path: &Vec<u8>| fs::read(user.top.join(path_from(path))).is_ok_and(|rules| names_lfs(&rules));
        Ok(listed.iter().take(MAX_ATTRIBUTE_FILES).any(has_rule))
    }

    /// Finds the repository whose top is `path`, from the cache if it is unchanged.
    pub(crate) fn discover_at(&self, path: &Path) -> Result<UserRepo, GitError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        if let Some((user, sign)) = known
            && sign_of(path, &user) == Some(sign)
        {
            return Ok(user);
        }
        let user = self.discover(path, true)?;
        if let Some(sign) = sign_of(path, &user) {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(path.to_path_buf(), (user.clone(), sign));
        }
        Ok(user)
    }

    fn discover(&self, path: &Path, exactly_here: bool) -> Result<UserRepo, GitError> {
        const DOING: &str = "find the repository";
        let path = std::path::absolute(path).map_err(|cause| words::io("find", path, &cause))?;
        if !path.is_dir() {
            return Err(words::not_a_repository(&path));
        }
        let call = || {
            let call = self.git.users(&path, DOING);
            let call = if exactly_here { call.no_higher_than(&path) } else { call };
            call.args(["rev-parse", "--path-format=absolute"])
        };
        let said =
            call().args(["--is-bare-repository", "--is-inside-work-tree", "--git-dir", "--git-common-dir"]).run()?;
        if said.status != Some(0) && said.stderr.contains("not a git repository") {
            return Err(words::not_a_repository(&path));
        }
        let lines = lines(DOING, &said)?;
        let [bare, inside, git_dir, common] = lines.as_slice() else {
            return Err(words::unexpected(DOING));
        };
        let bare = *bare == b"true";
        let top = if bare {
            path_from(git_dir)
        } else if *inside == b"true" {
            let said = call().arg("--show-toplevel").run()?;
            lines_of_one(DOING, &said)?
        } else {
            return Err(words::inside_git_directory(&path));
        };
        let common = path_from(common);
        let folds_case = self.folds_case(&top, &common)?;
        Ok(UserRepo { top, git_dir: path_from(git_dir), common, bare, folds_case })
    }

    /// Returns the ref that HEAD names, even if it does not exist.
    pub(crate) fn head_branch(&self, user: &UserRepo) -> Result<Option<String>, GitError> {
        if let Ok(text) = fs::read_to_string(user.git_dir.join("HEAD")) {
            match text.trim_end().strip_prefix("ref: ") {
                // Where refs are not files, HEAD has only this placeholder.
                Some("refs/heads/.invalid") => {}
                Some(name) => return Ok(Some(name.to_owned())),
                None if CommitId::new(text.trim_end()).is_ok() => return Ok(None),
                None => {}
            }
        }
        let said = self.git.users(&user.top, "read HEAD").args(["symbolic-ref", "--quiet", "HEAD"]).run()?;
        match said.status {
            Some(0) => Ok(Some(text_of(said.stdout.trim_ascii_end()))),
            Some(1) => Ok(None),
            _ => Err(words::git_failed("read HEAD", &said.stderr)),
        }
    }

    /// Returns the trunk's tip in the user's repository.
    pub(crate) fn trunk_tip(&self, user: &UserRepo, repo: &Repo) -> Result<CommitId, GitError> {
        let name = format!("refs/heads/{}", repo.trunk);
        // An unpacked ref in a file needs no process. Git resolves all other cases.
        if let Ok(text) = fs::read_to_string(user.common.join(&name))
            && let Ok(tip) = CommitId::new(text.trim_end())
        {
            return Ok(tip);
        }
        let tip = self
            .git
            .ours(&user.common, "read the trunk")
            .args(["rev-parse", "--verify", "--quiet"])
            .arg(format!("{name}^{{commit}}"))
            .object_if_any()?;
        match tip {
            Some(tip) => Ok(tip),
            None if self.head_branch(user)? == Some(name) => Err(words::unborn_branch(&repo.trunk, &user.top)),
            None => Err(words::no_such_branch(&repo.trunk, &user.top)),
        }
    }

    /// Returns whether a file in the checkout of the trunk has an edit that is not staged.
    ///
    /// A staged file is not examined, because the index lags behind the trunk for a moment whenever
    /// work lands.
    pub(crate) fn is_edited_by_hand(&self, repo: &Repo, path: &str, committed: &[u8]) -> Result<bool, GitError> {
        const DOING: &str = "look for an edit in the checkout";
        match fs::read(repo.path.join(path)) {
            Ok(saved) if saved != committed => {}
            _ => return Ok(false),
        }
        let head = self.git.users(&repo.path, DOING).args(["symbolic-ref", "--quiet", "HEAD"]).run()?;
        if String::from_utf8_lossy(&head.stdout).trim_end() != format!("refs/heads/{}", repo.trunk) {
            return Ok(false);
        }
        let listed = self.git.users(&repo.path, DOING).args([
            "status",
            "--porcelain=v1",
            "-z",
            "--untracked-files=no",
            "--no-renames",
            "--",
            path,
        ]);
        // The second letter is about the working tree.
        Ok(listed.list()?.iter().any(|entry| entry.get(1).is_some_and(|letter| *letter != b' ')))
    }

    /// Returns the tracked files of a checkout that differ from HEAD or from the index.
    ///
    /// Submodules are left out, because moving the trunk never touches their files.
    pub(crate) fn changes(&self, top: &Path) -> Result<Vec<Change>, GitError> {
        const DOING: &str = "compare the working tree with HEAD";
        let entries = self
            .git
            .users(top, DOING)
            .args(["status", "--porcelain=v1", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=all"])
            .list()?;
        let entry = |it: Vec<u8>| match it.as_slice() {
            [staged, tree, b' ', path @ ..] => {
                let unmerged = matches!((staged, tree), (b'U', _) | (_, b'U') | (b'D', b'D') | (b'A', b'A'));
                Ok(Change { staged: *staged != b' ', edited: *tree != b' ', unmerged, path: path.to_vec() })
            }
            _ => Err(words::unexpected(DOING)),
        };
        entries.into_iter().map(entry).collect()
    }
}

fn names_lfs(rules: &[u8]) -> bool {
    rules
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.starts_with(b"#"))
        .any(|line| String::from_utf8_lossy(line).split_whitespace().any(|word| word == "filter=lfs"))
}

/// The facts that change when a repository is replaced, moved or reconfigured.
pub(crate) type Sign = Vec<(u64, u64, i64, i64)>;

fn sign_of(path: &Path, user: &UserRepo) -> Option<Sign> {
    let of = |path: &Path| fs::symlink_metadata(path).ok();
    // Only the inode counts for directories, because changes inside them are irrelevant.
    let place = |path: &Path| of(path).map(|it| (it.dev(), it.ino(), 0, 0));
    let file = |path: &Path| of(path).map(|it| (it.dev(), it.ino(), it.mtime(), it.mtime_nsec()));
    let dot_git = if user.bare { path.to_path_buf() } else { path.join(".git") };
    let dot_git = if of(&dot_git)?.is_dir() { place(&dot_git)? } else { file(&dot_git)? };
    Some(vec![place(path)?, dot_git, place(&user.git_dir)?, place(&user.common)?, file(&user.common.join("config"))?])
}

/// Returns the operation that the checkout with this git directory is in the middle of.
pub(crate) fn in_progress(git_dir: &Path) -> Option<&'static str> {
    const SIGNS: &[(&str, &str)] = &[
        ("rebase-merge", "a rebase"),
        ("rebase-apply/applying", "applying patches"),
        ("rebase-apply", "a rebase"),
        ("MERGE_HEAD", "a merge"),
        ("CHERRY_PICK_HEAD", "a cherry-pick"),
        ("REVERT_HEAD", "a revert"),
        ("BISECT_LOG", "a bisect"),
    ];
    SIGNS.iter().find(|(sign, _)| git_dir.join(sign).exists()).map(|(_, what)| *what)
}

fn lines<'a>(doing: &str, said: &'a Said) -> Result<Vec<&'a [u8]>, GitError> {
    if said.status != Some(0) {
        return Err(words::git_failed(doing, &said.stderr));
    }
    Ok(said.stdout.split(|it| *it == b'\n').filter(|it| !it.is_empty()).collect())
}

fn lines_of_one(doing: &str, said: &Said) -> Result<PathBuf, GitError> {
    match lines(doing, said)?.as_slice() {
        [only] => Ok(path_from(only)),
        _ => Err(words::unexpected(doing)),
    }
}

fn path_from(bytes: &[u8]) -> PathBuf {
    crate::run::path_of(bytes).to_path_buf()
}
