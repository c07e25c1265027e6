//! Captures an agent's work: stores the files that the agent left in its workspace as a commit.
//!
//! No git runs with the workspace's `.git`, because the agent may have put hooks, filters, a file
//! or a link there (invariant S5: Regatta never runs git with configuration that an agent can
//! write). Git reads the files with the vault (Regatta's own repository) as its git directory and
//! with an index of Regatta's own. For each capture this index starts as the index of the
//! workspace's base commit, so that the result depends on the files alone.
//!
//! - Ignored files are left out, according to the `.gitignore` files in the tree. Files that the
//!   base commit tracks are never left out.
//! - A repository that the agent made inside the workspace is captured as plain files, because git
//!   would record only the id of a commit that nobody else has. Its own history is not kept.
//! - For a submodule, the id of one commit is captured: the commit that is checked out in the
//!   submodule, otherwise the commit that the agent's index or own commits name, otherwise the
//!   commit that the workspace's base commit names. If the agent deleted the submodule or replaced
//!   it by plain files, the deletion or the files are captured, and the check for guarded files
//!   refuses the plain files later. `submodule_work.rs` handles files inside a checked-out
//!   submodule.
//! - Files that were in the workspace before the attempt's work (`untracked_files.rs`) are left
//!   out, whatever `.gitignore` says now.
//! - If a file cannot be read, or has a name that git does not store, the error names the file and
//!   nothing is captured, because a partial capture would look complete.
//! - A pipe, a socket or a device has no content. A pipe, socket or device is removed where git
//!   would read it as a file and block for ever.
//! - In a sparse checkout, a file that is not checked out stays as in the base commit, unless the
//!   agent wrote a file at the same path.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{Authorship, Capture, CaptureGit, GitError, ProjectRepo};

use crate::git_command::{
    GitCommand, GitOutput, join_nul, path_from_bytes, path_to_text, split_nul,
};
use crate::gitdir::SparseDirs;
use crate::layout::LockKey;
use crate::special_files::NonRegularFiles;
use crate::submodule_work::SubmoduleWork;
use crate::vault::{base_ref, keep_ref};
use crate::{GitAdapter, agent_commits, disk, errors};

/// The maximum length in bytes of a new file's path, relative to the top of the repository. The
/// operating system allows 4,096 bytes for the whole path, so the rest is left for the path of the
/// directory into which the repository is checked out.
const MAX_PATH_BYTES: usize = 3072;

/// Finds in git's error messages a path that git could not open because the path is too long. Git
/// cuts such a message off before the reason, so this function recognises the reason by the path's
/// length.
fn overlong_path(messages: &str) -> Option<&str> {
    let quoted = messages
        .lines()
        .filter_map(|line| line.split_once('\''))
        .map(|(_, rest)| rest);
    quoted
        .map(|rest| rest.split('\'').next().unwrap_or(rest))
        .find(|path| path.len() > MAX_PATH_BYTES)
}

/// The maximum size in bytes of an agent's git index. Regatta ignores a larger index.
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// The state of a workspace's files at one moment: a git tree in the vault (Regatta's own
/// repository), and the workspace's submodules.
pub(crate) struct Snapshot {
    pub(crate) tree: CommitId,
    /// The submodules in the workspace. The tree contains only their commit ids and not their
    /// files.
    pub(crate) submodules: Vec<SubmodulePointer>,
}

/// A submodule in a workspace, and the commit that is recorded for it.
#[derive(Debug)]
pub(crate) struct SubmodulePointer {
    /// The submodule's path, relative to the top of the working tree.
    pub(crate) path: Vec<u8>,
    /// The submodule's commit that counts as the agent's work.
    pub(crate) commit: CommitId,
    /// True if the base commit of the workspace names a different commit for the submodule.
    pub(crate) is_moved: bool,
    /// True if the submodule's repository is checked out. If false, the submodule's directory is
    /// empty.
    pub(crate) is_checked_out: bool,
}

/// Reads the files of one workspace, or of a submodule in it. Git runs with the git directory of
/// the vault (Regatta's own repository) and not with the workspace's `.git`, which the agent can
/// write.
pub(crate) struct WorkspaceReader<'a> {
    pub(crate) adapter: &'a GitAdapter,
    pub(crate) vault: &'a Path,
    pub(crate) workspace: &'a Path,
    pub(crate) tree: &'a Path,
    pub(crate) index: &'a Path,
    /// The directory into which git writes new objects. `None` means the vault (Regatta's own
    /// repository).
    pub(crate) objects: Option<&'a Path>,
    /// The files that were in the workspace before the attempt began, and are therefore not part of
    /// the agent's work.
    pub(crate) foreign: HashSet<Vec<u8>>,
    /// The agent's newest own commit, if it was imported into the vault (Regatta's own repository).
    pub(crate) own_commit: Option<CommitId>,
}

/// An entry of the base commit for which the workspace has no plain file on disk.
enum SpecialEntry {
    /// A submodule: the id of its commit, and its path.
    Submodule(String, Vec<u8>),
    /// A file that is not on disk, because the checkout is sparse. The value is its path.
    Absent(Vec<u8>),
}

impl WorkspaceReader<'_> {
    pub(crate) fn command(&self, operation: &'static str) -> GitCommand {
        let call = self
            .adapter
            .git
            .in_vault(self.vault, operation)
            .work_tree(self.tree)
            .index(self.index);
        match self.objects {
            Some(objects) => call
                .without_sync()
                .object_dirs(objects, &self.vault.join("objects")),
            None => call,
        }
    }

    /// Runs a git command that reads the workspace's files. If git skipped a file, returns an error
    /// that says why.
    fn run_reading(&self, call: GitCommand) -> Result<GitOutput, GitError> {
        let output = call.run_expecting_success();
        let messages = match &output {
            Ok(output) => &output.stderr,
            Err(error) => &error.message,
        };
        if let Some(path) = overlong_path(messages) {
            return Err(errors::path_too_long(self.tree, path));
        }
        if messages.contains("Permission denied") || messages.contains("could not open directory") {
            return Err(errors::unreadable(self.tree, messages));
        }
        if messages.contains("Ignoring path") {
            return Err(errors::unstorable(self.tree, messages));
        }
        output
    }

    /// Returns the entries of the base commit for which the workspace has no plain file on disk.
    fn special_entries(&self) -> Result<Vec<SpecialEntry>, GitError> {
        let entries = self
            .command("list the files of the base commit")
            .args(["ls-files", "-t", "--stage", "-z"])
            .run_for_list()?;
        let parse_entry = |bytes: Vec<u8>| {
            let tab = bytes.iter().position(|byte| *byte == b'\t')?;
            let (info, path) = (&bytes[..tab], bytes[tab + 1..].to_vec());
            if info.starts_with(b"S ") {
                return Some(SpecialEntry::Absent(path));
            }
            let commit = info
                .get(2..)?
                .strip_prefix(b"160000 ")?
                .split(|byte| *byte == b' ')
                .next()?;
            Some(SpecialEntry::Submodule(path_to_text(commit), path))
        };
        Ok(entries.into_iter().filter_map(parse_entry).collect())
    }

    /// In a new index, marks the base commit's files that were never checked out, so that git does
    /// not treat these files as deleted.
    fn mark_absent(&self, sparse: &SparseDirs) -> Result<(), GitError> {
        let files = self
            .command("list the files of the base commit")
            .args(["ls-files", "-z"])
            .run_for_list()?;
        let is_absent = |bytes: &&Vec<u8>| {
            !sparse.includes(bytes) && !disk::is_occupied(&self.tree.join(path_from_bytes(bytes)))
        };
        self.update_index(
            &["--skip-worktree", "--stdin"],
            join_nul(files.iter().filter(is_absent).map(Vec::as_slice)),
        )
    }

    /// Returns the new files that git does not ignore, including those in nested repositories.
    /// Leaves out files in the given `submodules`.
    pub(crate) fn untracked_paths(&self, submodules: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, GitError> {
        // Leave out the directory `.regatta` of the workspace, because it belongs to Regatta and is
        // not part of the agent's work.
        let list = || {
            let call = self.command("list new files").args([
                "ls-files",
                "--others",
                "--exclude-standard",
                "-z",
            ]);
            call.arg("--exclude=/.regatta/")
        };
        let listed = split_nul(&self.run_reading(list())?.stdout);
        // Git lists a nested repository as one path that ends with a slash, and does not list the
        // files in the nested repository.
        let (mut nested, mut files): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|path| path.ends_with(b"/"));
        nested.retain(|path| !submodules.contains(path));
        let mut inner_files = Vec::new();
        let missing_index = self.index.with_extension("nothing");
        while let Some(top) = nested.pop() {
            let listed = self.run_reading(
                list()
                    .work_tree(&self.tree.join(path_from_bytes(&top)))
                    .index(&missing_index),
            )?;
            for path in split_nul(&listed.stdout) {
                let path = [top.as_slice(), &path].concat();
                if path.ends_with(b"/") {
                    nested.push(path)
                } else {
                    inner_files.push(path)
                }
            }
        }
        if !inner_files.is_empty() {
            // Git listed the files of each nested repository on their own, so the ignore rules of
            // the directories above must still be applied to these files.
            let ignored = self.ignored_paths(&inner_files)?;
            files.extend(
                inner_files
                    .into_iter()
                    .filter(|path| !ignored.contains(path)),
            );
        }
        files.retain(|path| !self.foreign.contains(path));
        match files.iter().find(|path| path.len() > MAX_PATH_BYTES) {
            Some(path) => Err(errors::path_too_long(self.tree, &path_to_text(path))),
            None => Ok(files),
        }
    }

    /// Returns those of `paths` that git ignores.
    fn ignored_paths(&self, paths: &[Vec<u8>]) -> Result<HashSet<Vec<u8>>, GitError> {
        const OPERATION: &str = "find out which files are ignored";
        // Add the prefix `./`, because git interprets a name that starts with `:` as a pattern.
        let prefixed: Vec<_> = paths
            .iter()
            .map(|path| [b"./", path.as_slice()].concat())
            .collect();
        let call = self
            .command(OPERATION)
            .args(["check-ignore", "-z", "--stdin"]);
        let output = call
            .input(join_nul(prefixed.iter().map(Vec::as_slice)))
            .run()?;
        if !matches!(output.status, Some(0 | 1)) {
            return Err(errors::git_failed(OPERATION, &output.stderr));
        }
        Ok(split_nul(&output.stdout)
            .iter()
            .filter_map(|bytes| bytes.strip_prefix(b"./").map(<[u8]>::to_vec))
            .collect())
    }

    /// Returns the pipes, sockets and devices in the workspace that would block git. These are
    /// files that git opens by name, and files at the path of a file of the base commit.
    fn blocking_files(&self) -> Result<Vec<PathBuf>, GitError> {
        let list = || {
            self.command("list the files of the base commit")
                .args(["ls-files", "-z"])
                .run_for_list()
        };
        NonRegularFiles::find_in_tree(self.tree)?
            .blocking(self.tree, || Ok(list()?.into_iter().collect()))
    }

    /// Removes the pipes, sockets and devices that would block git. Such files have no content.
    /// Must be called only after the attempt's programs have ended.
    pub(crate) fn remove_blocking_files(&self) -> Result<(), GitError> {
        for path in self.blocking_files()? {
            disk::remove_tree(&path)?;
        }
        Ok(())
    }

    fn update_index(&self, flags: &[&str], input: Vec<u8>) -> Result<(), GitError> {
        if input.is_empty() {
            return Ok(());
        }
        let call = self
            .command("read the workspace's files")
            .args(["update-index", "-z"]);
        let call = flags.iter().fold(call, |call, flag| call.arg(flag));
        self.run_reading(call.input(input)).map(drop)
    }

    /// Returns the submodules in the agent's newest own commit: their paths and commit ids.
    fn own_submodules(&self) -> Result<BTreeMap<Vec<u8>, String>, GitError> {
        let Some(own_commit) = &self.own_commit else {
            return Ok(BTreeMap::new());
        };
        let call = self
            .adapter
            .git
            .in_vault(self.vault, "list the agent's submodules");
        let entries = call
            .args(["ls-tree", "-r", "-z", "--full-tree", own_commit.as_str()])
            .run_for_list()?;
        let parse_entry = |entry: Vec<u8>| {
            let tab = entry.iter().position(|byte| *byte == b'\t')?;
            let commit = entry[..tab].strip_prefix(b"160000 commit ")?;
            Some((entry[tab + 1..].to_vec(), path_to_text(commit)))
        };
        Ok(entries.into_iter().filter_map(parse_entry).collect())
    }

    /// Returns the submodules in the agent's index: their paths and commit ids. Returns an empty
    /// map if git cannot read the agent's index.
    fn staged_submodules(&self) -> Result<BTreeMap<Vec<u8>, String>, GitError> {
        let index = agent_commits::git_dir_of(self.workspace, self.tree)
            .map(|git_dir| git_dir.join("index"));
        let Some(bytes) =
            index.and_then(|index| agent_commits::read_plain_file(&index, MAX_INDEX_BYTES))
        else {
            return Ok(BTreeMap::new());
        };
        // Git reads a copy of the agent's index, at a path that the agent cannot write.
        let copy = self.index.with_extension("staged");
        disk::write_unsynced(&copy, &bytes)?;
        let call = self
            .adapter
            .git
            .in_vault(self.vault, "list the agent's submodules")
            .index(&copy);
        let output = call.args(["ls-files", "--stage", "-z"]).run();
        disk::remove_tree(&copy)?;
        let parse_entry = |entry: Vec<u8>| {
            let tab = entry.iter().position(|byte| *byte == b'\t')?;
            let commit = entry[..tab].strip_prefix(b"160000 ")?.strip_suffix(b" 0")?;
            Some((entry[tab + 1..].to_vec(), path_to_text(commit)))
        };
        Ok(split_nul(&output?.stdout)
            .into_iter()
            .filter_map(parse_entry)
            .collect())
    }

    /// Returns the submodules of the base commit whose repository is checked out in the workspace.
    pub(crate) fn checked_out_submodules(&self) -> Result<Vec<Vec<u8>>, GitError> {
        let path_of = |entry| match entry {
            SpecialEntry::Submodule(_, path_of) => Some(path_of),
            SpecialEntry::Absent(_) => None,
        };
        let is_repository = |path: &Vec<u8>| is_repository(&self.tree.join(path_from_bytes(path)));
        Ok(self
            .special_entries()?
            .into_iter()
            .filter_map(path_of)
            .filter(is_repository)
            .collect())
    }

    pub(crate) fn snapshot(&self) -> Result<Snapshot, GitError> {
        let (mut base_submodules, mut existing_absent) = (Vec::new(), Vec::new());
        for entry in self.special_entries()? {
            match entry {
                SpecialEntry::Submodule(commit, path) => base_submodules.push((commit, path)),
                SpecialEntry::Absent(path)
                    if disk::is_occupied(&self.tree.join(path_from_bytes(&path))) =>
                {
                    existing_absent.push(path)
                }
                SpecialEntry::Absent(_) => {}
            }
        }
        self.update_index(
            &["--no-skip-worktree", "--stdin"],
            join_nul(existing_absent.iter().map(Vec::as_slice)),
        )?;
        // Submodules are removed from the index, because otherwise git would run `git status`
        // inside them with the agent's configuration.
        self.update_index(
            &["--force-remove", "--stdin"],
            join_nul(base_submodules.iter().map(|(_, path)| path.as_slice())),
        )?;
        self.run_reading(
            self.command("read the workspace's files")
                .args(["add", "--update"]),
        )?;
        let mut own_submodules = self.own_submodules()?;
        let mut staged = if base_submodules.is_empty() {
            BTreeMap::new()
        } else {
            self.staged_submodules()?
        };
        let mut candidates = Vec::new();
        for (base, path) in base_submodules {
            let is_moved = |commit: &String| *commit != base;
            let committed = own_submodules.remove(&path).filter(is_moved);
            let moved = staged.remove(&path).filter(is_moved).or(committed);
            candidates.push((Some(base), moved, path));
        }
        // A repository at a path that is new counts as a submodule only if the agent committed it
        // as a submodule. Otherwise the files in this repository are stored as plain files.
        candidates.extend(
            own_submodules
                .into_iter()
                .map(|(path, commit)| (None, Some(commit), path)),
        );
        let (mut submodules, mut index_info) = (Vec::new(), Vec::new());
        for (base, moved, path) in candidates {
            let dir = self.tree.join(path_from_bytes(&path));
            let is_checked_out = is_repository(&dir);
            let is_empty = disk::is_real_dir(&dir)
                && dir
                    .read_dir()
                    .is_ok_and(|mut entries| entries.next().is_none());
            if !is_checked_out && !is_empty {
                continue;
            }
            let Some(known) = base.as_ref().or(moved.as_ref()) else {
                continue;
            };
            let checked_out = agent_commits::submodule_head(self.workspace, &dir)
                .map(|commit| commit.to_string());
            let checked_out = checked_out
                .filter(|commit| is_checked_out && commit != known && commit.len() == known.len());
            let commit = checked_out
                .or(moved)
                .or_else(|| base.clone())
                .unwrap_or_default();
            index_info.extend_from_slice(format!("160000 {commit} 0\t").as_bytes());
            index_info.extend_from_slice(&path);
            index_info.push(0);
            let is_moved = base.as_ref() != Some(&commit);
            let commit = CommitId::new(&commit)
                .map_err(|_| errors::unexpected("read the workspace's submodules"))?;
            submodules.push(SubmodulePointer {
                path,
                commit,
                is_moved,
                is_checked_out,
            });
        }
        let repositories = submodules.iter().filter(|pointer| pointer.is_checked_out);
        let repositories: Vec<Vec<u8>> = repositories
            .map(|pointer| [pointer.path.as_slice(), b"/"].concat())
            .collect();
        let files = self.untracked_paths(&repositories)?;
        let files = join_nul(files.iter().map(Vec::as_slice));
        self.update_index(&["--add", "--remove", "--replace", "--stdin"], files)?;
        self.update_index(&["--index-info"], index_info)?;
        let tree = self
            .command("write the captured tree")
            .arg("write-tree")
            .run_for_object()?;
        Ok(Snapshot { tree, submodules })
    }
}

/// Returns whether `dir` is a directory, and not a link, that has its own `.git`.
fn is_repository(dir: &Path) -> bool {
    disk::is_real_dir(dir) && disk::is_occupied(&dir.join(".git"))
}

impl CaptureGit for GitAdapter {
    fn capture(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.locks
            .with_lock(LockKey::Attempt(repo.project.clone(), attempt), || {
                let vault = self.vault(repo)?;
                let Some(base) = self.find_object(&vault, &base_ref(attempt))? else {
                    return Err(errors::no_workspace(
                        attempt,
                        &self.layout.workspace(&repo.project, attempt),
                    ));
                };
                let workspace = self.layout.workspace(&repo.project, attempt);
                let foreign = if disk::is_real_dir(&workspace) {
                    self.foreign_paths(repo, attempt)?
                } else {
                    HashSet::new()
                };
                let own_commit = self.import_own_history(&vault, &workspace, (&base, &foreign))?;
                let snapshot = self.snapshot_workspace(
                    repo,
                    attempt,
                    &vault,
                    (Some(&base), own_commit.as_ref()),
                )?;
                let commit = if snapshot.tree == self.tree_of_commit(&vault, &base)? {
                    base.clone()
                } else {
                    // The first parent of the commit is the base commit. The second parent is the
                    // agent's newest own commit, because a landing may replay the agent's commits
                    // one by one.
                    let parents: Vec<&CommitId> =
                        [&base].into_iter().chain(own_commit.as_ref()).collect();
                    self.commit_tree(&vault, &snapshot.tree, &parents, authorship)?
                };
                disk::sync_objects(&vault)?;
                self.pin(&vault, attempt, &commit)?;
                let work = SubmoduleWork {
                    repo,
                    vault: &vault,
                    attempt,
                    workspace: &workspace,
                    foreign: &foreign,
                };
                self.keep_submodules(&work, &base, snapshot.submodules, authorship)?;
                let mut changed: Vec<String> = self
                    .git
                    .in_vault(&vault, "list the captured changes")
                    .args([
                        "diff-tree",
                        "-r",
                        "--name-only",
                        "-z",
                        "--no-renames",
                        base.as_str(),
                        commit.as_str(),
                    ])
                    .run_for_list()?
                    .iter()
                    .map(|path| path_to_text(path))
                    .collect();
                changed.sort_unstable();
                Ok(Capture {
                    commit,
                    base,
                    changed,
                })
            })
    }

    fn uncaptured_paths(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Vec<String>, GitError> {
        self.locks
            .with_lock(LockKey::Attempt(repo.project.clone(), attempt), || {
                if !disk::is_occupied(&self.layout.workspace(&repo.project, attempt)) {
                    return Ok(Vec::new());
                }
                let vault = self.vault(repo)?;
                let base = self.find_object(&vault, &base_ref(attempt))?;
                let snapshot =
                    self.snapshot_workspace(repo, attempt, &vault, (base.as_ref(), None))?;
                let keep = keep_ref(attempt);
                let mut kept_commits = self
                    .git
                    .in_vault(&vault, "list the refs of stored work")
                    .args(["for-each-ref", "--format=%(refname)", "refs/regatta/keep/"])
                    .run_for_line()?
                    .lines()
                    .filter(|name| {
                        name.strip_prefix(&keep)
                            .is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
                    })
                    .map(str::to_owned)
                    .collect::<Vec<_>>();
                kept_commits.push(self.refresh_trunk(repo)?.to_string());
                kept_commits.extend(base.map(|id| id.to_string()));
                let mut uncaptured: Option<BTreeSet<Vec<u8>>> = None;
                for kept in kept_commits {
                    let differing: BTreeSet<Vec<u8>> = self
                        .git
                        .in_vault(&vault, "compare the workspace with the stored work")
                        .args([
                            "diff-tree",
                            "-r",
                            "--name-only",
                            "-z",
                            "--no-renames",
                            "--diff-filter=d",
                        ])
                        .args([kept.as_str(), snapshot.tree.as_str()])
                        .run_for_list()?
                        .into_iter()
                        .collect();
                    uncaptured = Some(match uncaptured {
                        Some(before) => before.intersection(&differing).cloned().collect(),
                        None => differing,
                    });
                }
                let uncaptured = uncaptured.unwrap_or_default();
                let (workspace, foreign) = (
                    self.layout.workspace(&repo.project, attempt),
                    self.foreign_paths(repo, attempt)?,
                );
                let work = SubmoduleWork {
                    repo,
                    vault: &vault,
                    attempt,
                    workspace: &workspace,
                    foreign: &foreign,
                };
                let submodules = self.uncaptured_in_submodules(&work, snapshot.submodules)?;
                Ok(uncaptured
                    .iter()
                    .chain(&submodules)
                    .map(|path| path_to_text(path))
                    .collect())
            })
    }
}

impl GitAdapter {
    /// Runs `action` with a reader of an attempt's workspace. The reader's index is a copy of the
    /// index of the workspace's base commit.
    fn with_workspace_reader<T>(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        vault: &Path,
        (base, own_commit): (Option<&CommitId>, Option<&CommitId>),
        action: impl FnOnce(&WorkspaceReader<'_>) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        let tree = self.layout.workspace(&repo.project, attempt);
        if !disk::is_real_dir(&tree) {
            return Err(errors::no_workspace(attempt, &tree));
        }
        let index = self.layout.scratch(&repo.project);
        let reader = WorkspaceReader {
            adapter: self,
            vault,
            workspace: &tree,
            tree: &tree,
            index: index.path(),
            objects: None,
            foreign: self.foreign_paths(repo, attempt)?,
            own_commit: own_commit.cloned(),
        };
        if let Some(base) = base {
            let saved_index = self.layout.base_index(&repo.project, attempt);
            // The saved index could not be copied. Without the copy, git reads every file again,
            // which is slower but gives the same result.
            if disk::copy_index(&saved_index, index.path()).is_err() {
                disk::remove_tree(index.path())?;
                reader
                    .command("read the base")
                    .args(["read-tree", base.as_str()])
                    .run_expecting_success()?;
                if let Some(sparse) = SparseDirs::parse(&repo.workspace.sparse)? {
                    reader.mark_absent(&sparse)?;
                }
            }
        }
        action(&reader)
    }

    fn snapshot_workspace(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        vault: &Path,
        base_and_own: (Option<&CommitId>, Option<&CommitId>),
    ) -> Result<Snapshot, GitError> {
        self.with_workspace_reader(repo, attempt, vault, base_and_own, |reader| {
            reader.remove_blocking_files()?;
            reader.snapshot()
        })
    }

    /// Returns the files that the agent created in an attempt's workspace and that git does not
    /// ignore.
    pub(crate) fn new_files(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        vault: &Path,
    ) -> Result<Vec<Vec<u8>>, GitError> {
        let base = self.find_object(vault, &base_ref(attempt))?;
        self.with_workspace_reader(repo, attempt, vault, (base.as_ref(), None), |reader| {
            reader.remove_blocking_files()?;
            let mut files = reader.untracked_paths(&[])?;
            for path in reader.checked_out_submodules()? {
                files.extend(self.new_submodule_files(repo, reader, &path)?);
            }
            Ok(files)
        })
    }

    /// Writes the workspace's files as a tree into the object directory `objects`. No ref protects
    /// the tree from deletion. Returns the id of a commit with this tree.
    pub(crate) fn write_scan_tree(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        vault: &Path,
        (base, objects): (&CommitId, &Path),
    ) -> Result<CommitId, GitError> {
        self.with_workspace_reader(repo, attempt, vault, (Some(base), None), |reader| {
            // The agent is still working in this workspace, so a pipe on which git would block is
            // not removed here, and the scan fails instead.
            if let Some(pipe) = reader.blocking_files()?.first() {
                return Err(errors::no_file(pipe));
            }
            let WorkspaceReader {
                adapter,
                vault,
                workspace,
                tree,
                index,
                ..
            } = *reader;
            let foreign = reader.foreign.clone();
            let own_commit = None;
            let scan_reader = WorkspaceReader {
                adapter,
                vault,
                workspace,
                tree,
                index,
                objects: Some(objects),
                foreign,
                own_commit,
            };
            scan_reader.snapshot().map(|snapshot| snapshot.tree)
        })
    }

    /// Points the attempt's ref to `commit`, so that the commit stays stored. The commit that the
    /// ref named before gets a ref of its own (invariant Q3: every captured file stays reachable).
    pub(crate) fn pin(
        &self,
        vault: &Path,
        attempt: AttemptId,
        commit: &CommitId,
    ) -> Result<(), GitError> {
        let keep = keep_ref(attempt);
        let changes = match self.find_object(vault, &keep)? {
            Some(old) if old == *commit => return Ok(()),
            Some(old) => format!(
                "update {keep}-{} {old}\nupdate {keep} {commit} {old}\n",
                &old.as_str()[..12]
            ),
            None => format!("create {keep} {commit}\n"),
        };
        self.update_refs(vault, changes)
    }
}
