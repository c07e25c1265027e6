//! Reads facts about the user's repository. Nothing in this module changes the repository.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use regatta_core::ids::{BranchName, CommitId};
use regatta_engine::ports::git::{CheckoutGit, GitError, ProjectRepo, RepoFacts};

use crate::git_command::{GitOutput, path_from_bytes, path_to_text, split_nul};
use crate::{GitAdapter, errors};

const MAX_NAMED_DIRTY_FILES: usize = 10;
/// The largest number of `.gitattributes` files that are read to find out whether LFS is used.
const MAX_ATTRIBUTE_FILES: usize = 100;

/// The directories and properties of the user's repository.
#[derive(Clone, Debug)]
pub(crate) struct UserRepo {
    /// The top of the working tree, or the repository's directory if it is bare.
    pub(crate) top: PathBuf,
    /// The git directory of this checkout. It contains files that belong to this checkout alone,
    /// such as HEAD and the index.
    pub(crate) git_dir: PathBuf,
    /// The git directory that all checkouts of the repository share. It contains the refs and the
    /// objects.
    pub(crate) common_dir: PathBuf,
    pub(crate) is_bare: bool,
    /// True if the user's file system treats names that differ only in case as equal.
    pub(crate) folds_case: bool,
}

/// A tracked file whose content differs between HEAD, the index and the working tree.
#[derive(Debug)]
pub(crate) struct ModifiedFile {
    pub(crate) path: Vec<u8>,
    /// True if the file in the index differs from the file in HEAD.
    pub(crate) is_staged: bool,
    /// True if the file in the working tree differs from the file in the index.
    pub(crate) is_edited: bool,
    /// True if a merge left the file with unresolved conflicts.
    pub(crate) is_unmerged: bool,
}

impl CheckoutGit for GitAdapter {
    fn inspect(&self, path: &Path) -> Result<RepoFacts, GitError> {
        let user = self.discover(path, false)?;
        let head = self.head_branch(&user)?;
        let has_commit = self
            .git
            .in_checkout(&user.top, "read HEAD")
            .args(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
            .run_for_optional_object()?
            .is_some();
        let mut dirty = Vec::new();
        let submodules = self.checkout_submodules(&user)?;
        let has_lfs = self.uses_lfs(&user)?;
        if !user.is_bare {
            let changes = self.modified_files(&user.top)?;
            dirty = changes
                .iter()
                .map(|file| path_to_text(&file.path))
                .take(MAX_NAMED_DIRTY_FILES)
                .collect();
        }
        Ok(RepoFacts {
            is_unborn: !has_commit && head.is_some(),
            // If HEAD names a branch whose name Regatta does not accept, the repository counts as
            // having no branch, because no work can land on such a branch.
            branch: head
                .filter(|_| has_commit)
                .and_then(|head| BranchName::new(head.strip_prefix("refs/heads/")?).ok()),
            is_bare: user.is_bare,
            dirty_files: dirty,
            has_untracked_settings: !user.is_bare && self.has_untracked_settings(&user.top)?,
            operation_in_progress: operation_in_progress(&user.git_dir),
            submodules,
            has_lfs,
            top: user.top,
        })
    }

    fn is_ignored(&self, repo: &ProjectRepo, path: &str) -> Result<bool, GitError> {
        const OPERATION: &str = "find out which files are ignored";
        let user = self.discover_at(&repo.path)?;
        if user.is_bare {
            return Ok(false);
        }
        // Add the prefix `./`, because git interprets a name that starts with `:` as a pattern.
        let input = format!("./{path}\0").into_bytes();
        let output = self
            .git
            .in_checkout(&user.top, OPERATION)
            .args(["check-ignore", "-z", "--stdin"])
            .input(input)
            .run()?;
        match output.status {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(errors::git_failed(OPERATION, &output.stderr)),
        }
    }

    /// Returns whether a file in the checkout of the trunk has an edit that is not staged.
    /// `committed` is the content that the file should have.
    ///
    /// A staged change does not count. Whenever work lands, the index is older than the trunk for a
    /// moment, which looks like a staged change.
    fn is_edited(
        &self,
        repo: &ProjectRepo,
        path: &str,
        committed: &[u8],
    ) -> Result<bool, GitError> {
        const OPERATION: &str = "look for an edit in the checkout";
        match fs::read(repo.path.join(path)) {
            Ok(saved) if saved != committed => {}
            _ => return Ok(false),
        }
        let head = self
            .git
            .in_checkout(&repo.path, OPERATION)
            .args(["symbolic-ref", "--quiet", "HEAD"])
            .run()?;
        if String::from_utf8_lossy(&head.stdout).trim_end() != format!("refs/heads/{}", repo.trunk)
        {
            return Ok(false);
        }
        let listed = self.git.in_checkout(&repo.path, OPERATION).args([
            "status",
            "--porcelain=v1",
            "-z",
            "--untracked-files=no",
            "--no-renames",
            "--",
            path,
        ]);
        // In git's short status, the second letter describes the file in the working tree.
        Ok(listed
            .run_for_list()?
            .iter()
            .any(|entry| entry.get(1).is_some_and(|letter| *letter != b' ')))
    }

    fn checkout_marks(&self, repo: &ProjectRepo) -> Result<Vec<(String, String)>, GitError> {
        let user = self.discover_at(&repo.path)?;
        if user.is_bare {
            return Ok(vec![]);
        }
        let output = self
            .git
            .in_checkout(&user.top, "read the state of the checkout")
            .args([
                "status",
                "--porcelain=v1",
                "-z",
                "--untracked-files=normal",
                "--no-renames",
            ])
            .arg("--ignore-submodules=all")
            .run_expecting_success()?;
        let mark = |entry: Vec<u8>| {
            let (state, path) = entry.split_at_checked(3)?;
            let metadata = std::fs::symlink_metadata(user.top.join(path_from_bytes(path))).ok();
            let stamp = metadata.map(|metadata| {
                (
                    metadata.size(),
                    metadata.mtime(),
                    metadata.mtime_nsec(),
                    metadata.ino(),
                )
            });
            Some((
                path_to_text(path),
                format!("{}{stamp:?}", path_to_text(state)),
            ))
        };
        Ok(split_nul(&output.stdout)
            .into_iter()
            .filter_map(mark)
            .collect())
    }
}

impl GitAdapter {
    /// Returns whether a `.gitattributes` file in the checkout assigns files to Git LFS.
    fn uses_lfs(&self, user: &UserRepo) -> Result<bool, GitError> {
        if user.is_bare {
            return Ok(false);
        }
        let call = self.git.in_checkout(
            &user.top,
            "list the .gitattributes files of your repository",
        );
        let listed = call
            .args(["ls-files", "-z", "--", ":(glob)**/.gitattributes"])
            .run_for_list()?;
        let has_rule = |path: &Vec<u8>| {
            fs::read(user.top.join(path_from_line(path))).is_ok_and(|rules| uses_lfs_filter(&rules))
        };
        Ok(listed.iter().take(MAX_ATTRIBUTE_FILES).any(has_rule))
    }

    /// Finds the repository whose working tree begins at `path`. Uses the result of an earlier call
    /// if the repository has not changed.
    pub(crate) fn discover_at(&self, path: &Path) -> Result<UserRepo, GitError> {
        let cached = self
            .known_repos
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(path)
            .cloned();
        if let Some((user, fingerprint)) = cached
            && repo_fingerprint(path, &user) == Some(fingerprint)
        {
            return Ok(user);
        }
        let user = self.discover(path, true)?;
        if let Some(fingerprint) = repo_fingerprint(path, &user) {
            let mut cached = self
                .known_repos
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            cached.insert(path.to_path_buf(), (user.clone(), fingerprint));
        }
        Ok(user)
    }

    fn discover(&self, path: &Path, is_top: bool) -> Result<UserRepo, GitError> {
        const OPERATION: &str = "find the repository";
        let path = std::path::absolute(path)
            .map_err(|cause| errors::io_error("find the directory", path, &cause))?;
        if !path.is_dir() {
            return Err(errors::not_a_repository(&path));
        }
        let call = || {
            let call = self.git.in_checkout(&path, OPERATION);
            let call = if is_top {
                call.ceiling_dir(&path)
            } else {
                call
            };
            call.args(["rev-parse", "--path-format=absolute"])
        };
        let output = call()
            .args([
                "--is-bare-repository",
                "--is-inside-work-tree",
                "--git-dir",
                "--git-common-dir",
            ])
            .run()?;
        if output.status != Some(0) && output.stderr.contains("not a git repository") {
            return Err(errors::not_a_repository(&path));
        }
        let lines = expect_lines(OPERATION, &output)?;
        let [is_bare_text, is_inside_text, git_dir, common] = lines.as_slice() else {
            return Err(errors::unexpected(OPERATION));
        };
        let is_bare = *is_bare_text == b"true";
        let top = if is_bare {
            path_from_line(git_dir)
        } else if *is_inside_text == b"true" {
            let output = call().arg("--show-toplevel").run()?;
            expect_single_path(OPERATION, &output)?
        } else {
            return Err(errors::inside_git_directory(&path));
        };
        let common_dir = path_from_line(common);
        let folds_case = self.repo_folds_case(&top, &common_dir)?;
        Ok(UserRepo {
            top,
            git_dir: path_from_line(git_dir),
            common_dir,
            is_bare,
            folds_case,
        })
    }

    /// Returns the ref that HEAD names, even if the ref does not exist. Returns `None` if HEAD
    /// names a commit.
    pub(crate) fn head_branch(&self, user: &UserRepo) -> Result<Option<String>, GitError> {
        if let Ok(text) = fs::read_to_string(user.git_dir.join("HEAD")) {
            match text.trim_end().strip_prefix("ref: ") {
                // In a repository that does not store refs as files, the file HEAD contains only
                // this placeholder, so git must read HEAD.
                Some("refs/heads/.invalid") => {}
                Some(name) => return Ok(Some(name.to_owned())),
                None if CommitId::new(text.trim_end()).is_ok() => return Ok(None),
                None => {}
            }
        }
        let output = self
            .git
            .in_checkout(&user.top, "read HEAD")
            .args(["symbolic-ref", "--quiet", "HEAD"])
            .run()?;
        match output.status {
            Some(0) => Ok(Some(path_to_text(output.stdout.trim_ascii_end()))),
            Some(1) => Ok(None),
            _ => Err(errors::git_failed("read HEAD", &output.stderr)),
        }
    }

    /// Returns the newest commit of the trunk in the user's repository.
    pub(crate) fn trunk_tip(
        &self,
        user: &UserRepo,
        repo: &ProjectRepo,
    ) -> Result<CommitId, GitError> {
        let name = format!("refs/heads/{}", repo.trunk);
        // If the trunk's ref is stored in a file of its own, read this file without starting git.
        // In all other cases git reads the ref.
        if let Ok(text) = fs::read_to_string(user.common_dir.join(&name))
            && let Ok(tip) = CommitId::new(text.trim_end())
        {
            return Ok(tip);
        }
        let tip = self
            .git
            .in_vault(&user.common_dir, "read the trunk")
            .args(["rev-parse", "--verify", "--quiet"])
            .arg(format!("{name}^{{commit}}"))
            .run_for_optional_object()?;
        match tip {
            Some(tip) => Ok(tip),
            None if self.head_branch(user)? == Some(name) => {
                Err(errors::unborn_branch(&repo.trunk, &user.top))
            }
            None => Err(errors::no_such_branch(&repo.trunk, &user.top)),
        }
    }

    /// Returns the tracked files of a checkout that differ from HEAD or from the index.
    ///
    /// Leaves out submodules, because a move of the trunk never changes the files in a submodule.
    /// Returns true if git neither tracks nor ignores the `regatta.toml` at the top of a working tree.
    fn has_untracked_settings(&self, top: &Path) -> Result<bool, GitError> {
        let untracked = self
            .git
            .in_checkout(top, "find an uncommitted regatta.toml")
            .args(["ls-files", "-z", "--others", "--exclude-standard", "--"])
            .args(["regatta.toml"])
            .run_for_list()?;
        Ok(!untracked.is_empty())
    }

    pub(crate) fn modified_files(&self, top: &Path) -> Result<Vec<ModifiedFile>, GitError> {
        const OPERATION: &str = "compare the working tree with HEAD";
        let entries = self
            .git
            .in_checkout(top, OPERATION)
            .args([
                "status",
                "--porcelain=v1",
                "-z",
                "--untracked-files=no",
                "--no-renames",
                "--ignore-submodules=all",
            ])
            .run_for_list()?;
        let parse_entry = |bytes: Vec<u8>| match bytes.as_slice() {
            [staged, in_tree, b' ', path @ ..] => {
                let is_unmerged = matches!(
                    (staged, in_tree),
                    (b'U', _) | (_, b'U') | (b'D', b'D') | (b'A', b'A')
                );
                Ok(ModifiedFile {
                    is_staged: *staged != b' ',
                    is_edited: *in_tree != b' ',
                    is_unmerged,
                    path: path.to_vec(),
                })
            }
            _ => Err(errors::unexpected(OPERATION)),
        };
        entries.into_iter().map(parse_entry).collect()
    }
}

fn uses_lfs_filter(rules: &[u8]) -> bool {
    rules
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.starts_with(b"#"))
        .any(|line| {
            String::from_utf8_lossy(line)
                .split_whitespace()
                .any(|word| word == "filter=lfs")
        })
}

/// Metadata of some files and directories of a repository. The values change when the repository is
/// replaced, moved or reconfigured.
pub(crate) type RepoFingerprint = Vec<(u64, u64, i64, i64)>;

fn repo_fingerprint(path: &Path, user: &UserRepo) -> Option<RepoFingerprint> {
    let metadata = |path: &Path| fs::symlink_metadata(path).ok();
    // Of a directory only the device and the inode are compared, because changes inside the
    // directory do not matter.
    let dir_identity =
        |path: &Path| metadata(path).map(|metadata| (metadata.dev(), metadata.ino(), 0, 0));
    let file_identity = |path: &Path| {
        metadata(path).map(|metadata| {
            (
                metadata.dev(),
                metadata.ino(),
                metadata.mtime(),
                metadata.mtime_nsec(),
            )
        })
    };
    let dot_git = if user.is_bare {
        path.to_path_buf()
    } else {
        path.join(".git")
    };
    let dot_git = if metadata(&dot_git)?.is_dir() {
        dir_identity(&dot_git)?
    } else {
        file_identity(&dot_git)?
    };
    Some(vec![
        dir_identity(path)?,
        dot_git,
        dir_identity(&user.git_dir)?,
        dir_identity(&user.common_dir)?,
        file_identity(&user.common_dir.join("config"))?,
    ])
}

/// Returns the unfinished operation of a checkout, such as "a rebase" or "a merge". Returns `None`
/// if there is none.
pub(crate) fn operation_in_progress(git_dir: &Path) -> Option<&'static str> {
    const MARKERS: &[(&str, &str)] = &[
        ("rebase-merge", "a rebase"),
        ("rebase-apply/applying", "applying patches"),
        ("rebase-apply", "a rebase"),
        ("MERGE_HEAD", "a merge"),
        ("CHERRY_PICK_HEAD", "a cherry-pick"),
        ("REVERT_HEAD", "a revert"),
        ("BISECT_LOG", "a bisect"),
    ];
    MARKERS
        .iter()
        .find(|(marker, _)| git_dir.join(marker).exists())
        .map(|(_, name)| *name)
}

fn expect_lines<'a>(operation: &str, output: &'a GitOutput) -> Result<Vec<&'a [u8]>, GitError> {
    if output.status != Some(0) {
        return Err(errors::git_failed(operation, &output.stderr));
    }
    Ok(output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .collect())
}

fn expect_single_path(operation: &str, output: &GitOutput) -> Result<PathBuf, GitError> {
    match expect_lines(operation, output)?.as_slice() {
        [only] => Ok(path_from_line(only)),
        _ => Err(errors::unexpected(operation)),
    }
}

fn path_from_line(bytes: &[u8]) -> PathBuf {
    crate::git_command::path_from_bytes(bytes).to_path_buf()
}
