//! Reads facts about the trunk: its files, the landings (merged finished work) in its history, its
//! upstream branch, and the presence of certain commits.

use std::collections::BTreeSet;
use std::path::Path;

use regatta_core::ids::{CommitId, LandingId};
use regatta_core::landing::trunk_check::{TrunkCommit, TrunkSeen};
use regatta_engine::ports::git::{GitError, ProjectRepo, TrunkFacts, TrunkGit, UnreleasedCommit};

use crate::git_command::path_to_text;
use crate::{GitAdapter, errors};

/// The largest number of times that a commit may have been replaced by rebases of the trunk.
/// Further replacements are not followed.
const MAX_REPLACEMENTS: usize = 100;

/// The number of the trunk's newest commits among which the commit of a landing (finished work of
/// one task) is searched. Older commits are not searched.
const MAX_SEARCHED_COMMITS: u32 = 1_000;

impl TrunkGit for GitAdapter {
    fn tip(&self, repo: &ProjectRepo) -> Result<CommitId, GitError> {
        let user = self.discover_at(&repo.path)?;
        self.trunk_tip(&user, repo)
    }

    /// Returns the path of every file in the trunk's newest commit. In a path that is not UTF-8,
    /// invalid bytes are replaced. A task's file patterns cannot match such a path.
    fn paths_at_tip(&self, repo: &ProjectRepo) -> Result<Vec<String>, GitError> {
        let user = self.discover_at(&repo.path)?;
        let tip = self.trunk_tip(&user, repo)?;
        let list = self
            .git
            .in_vault(&user.common_dir, "list the trunk's files")
            .args([
                "ls-tree",
                "-r",
                "--name-only",
                "-z",
                "--full-tree",
                "--end-of-options",
            ])
            .arg(tip.as_str())
            .run_for_list()?;
        Ok(list.iter().map(|path| path_to_text(path)).collect())
    }

    fn trunk_facts(&self, repo: &ProjectRepo) -> Result<TrunkFacts, GitError> {
        const OPERATION: &str = "compare the trunk with its upstream";
        let user = self.discover_at(&repo.path)?;
        let tip = self.trunk_tip(&user, repo)?;
        let output = self
            .git
            .in_vault(&user.common_dir, OPERATION)
            .args([
                "for-each-ref",
                "--format=%(upstream:short)%00%(upstream:track,nobracket)",
            ])
            .arg(format!("refs/heads/{}", repo.trunk))
            .run_for_line()?;
        let (upstream, track) = output
            .split_once('\0')
            .ok_or_else(|| errors::unexpected(OPERATION))?;
        let behind = track
            .split(", ")
            .find_map(|part| part.strip_prefix("behind ")?.parse().ok())
            .unwrap_or(0);
        Ok(TrunkFacts {
            tip,
            upstream: (!upstream.is_empty()).then(|| upstream.to_owned()),
            commits_behind: behind,
        })
    }

    fn contains(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
    ) -> Result<bool, GitError> {
        Ok(self.current_form_of(repo, tip, commit)?.is_some())
    }

    /// Returns those of `commits` that the history of `tip` does not contain. A commit also counts
    /// as contained if the history contains a commit that replaced it in a rebase. Usually one call
    /// of git suffices, because only commits that seem to be missing are examined one by one.
    fn missing_commits(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commits: &[CommitId],
    ) -> Result<Vec<CommitId>, GitError> {
        const OPERATION: &str = "look for landed commits in the trunk";
        if commits.iter().all(|commit| commit == tip) {
            return Ok(vec![]);
        }
        let user = self.discover_at(&repo.path)?;
        let input: String = commits
            .iter()
            .map(|commit| format!("{commit}\n"))
            .chain([format!("^{tip}\n")])
            .collect();
        let output = self
            .git
            .in_vault(&user.common_dir, OPERATION)
            .args(["rev-list", "--stdin"])
            .input(input.into())
            .run()?;
        let listed = path_to_text(&output.stdout);
        let unreached: BTreeSet<&str> = listed.lines().collect();
        // If one of the commits does not exist, git answers the whole query with an error. In this
        // case every commit is examined separately.
        let is_doubtful =
            |commit: &CommitId| output.status != Some(0) || unreached.contains(commit.as_str());
        let mut missing = Vec::new();
        for commit in commits.iter().filter(|commit| is_doubtful(commit)) {
            if self.current_form_of(repo, tip, commit)?.is_none() {
                missing.push(commit.clone());
            }
        }
        Ok(missing)
    }

    fn current_commit_of(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Option<CommitId>, GitError> {
        self.current_form_of(repo, &self.tip(repo)?, commit)
    }

    fn contains_exactly(&self, repo: &ProjectRepo, commit: &CommitId) -> Result<bool, GitError> {
        self.is_ancestor(repo, &self.tip(repo)?, commit)
    }

    fn commits_between(
        &self,
        repo: &ProjectRepo,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<Vec<CommitId>, GitError> {
        const OPERATION: &str = "list the commits of a change";
        let vault = self.vault_with(repo, to)?;
        let call = self.git.in_vault(&vault, OPERATION).args([
            "rev-list",
            "--first-parent",
            "--reverse",
            to.as_str(),
        ]);
        let listed = call.arg(format!("^{from}")).arg("--").run()?;
        if listed.status != Some(0) {
            return Err(errors::git_failed(OPERATION, &listed.stderr));
        }
        let text = path_to_text(&listed.stdout);
        let commits = text
            .lines()
            .filter(|line| *line != to.as_str())
            .map(CommitId::new);
        commits
            .collect::<Result<_, _>>()
            .map_err(|_| errors::unexpected(OPERATION))
    }

    fn compare_trunk(
        &self,
        repo: &ProjectRepo,
        recorded: &[CommitId],
    ) -> Result<TrunkSeen, GitError> {
        let user = self.discover_at(&repo.path)?;
        let tip = self.trunk_tip(&user, repo)?;
        // If somebody removed a commit from the trunk, the user's repository may have lost the
        // commit, but the vault (Regatta's own repository) still has it. So read the commits from
        // the vault.
        let vault = self.vault_with(repo, &tip)?;
        let missing = self.commits_without(&vault, recorded, std::slice::from_ref(&tip))?;
        // If a commit is missing, the trunk may contain a copy of it further back in its history.
        // So list the trunk's commits after the newest commit that the trunk shares with all
        // recorded commits.
        let shared = if missing.is_empty() {
            recorded.to_vec()
        } else {
            self.shared_base(&vault, &tip, recorded)?
                .into_iter()
                .collect()
        };
        let added = self.commits_without(&vault, std::slice::from_ref(&tip), &shared)?;
        Ok(TrunkSeen {
            recorded: recorded.to_vec(),
            missing,
            added,
        })
    }

    /// Returns the newest commit of the trunk whose message names `landing` in a trailer, following
    /// first parents only. Only the last paragraph of a message is searched for trailers, so the
    /// text of a task's description is never mistaken for a trailer.
    fn find_landing(
        &self,
        repo: &ProjectRepo,
        landing: LandingId,
    ) -> Result<Option<CommitId>, GitError> {
        const OPERATION: &str = "look for a landing on the trunk";
        let user = self.discover_at(&repo.path)?;
        let tip = self.trunk_tip(&user, repo)?;
        let listed = self
            .git
            .in_vault(&user.common_dir, OPERATION)
            .args(["log", "--first-parent", "-z"])
            .arg(format!("--max-count={MAX_SEARCHED_COMMITS}"))
            .arg("--format=%H %(trailers:key=Regatta-Landing,valueonly,separator=%x20)")
            .args(["--end-of-options", tip.as_str()])
            .run_for_list()?;
        let name = landing.to_string();
        for line in listed.iter().map(|line| path_to_text(line)) {
            let mut parts = line.split_whitespace();
            let Some(commit) = parts.next() else { continue };
            if parts.any(|part| part == name) {
                return CommitId::new(commit)
                    .map(Some)
                    .map_err(|_| errors::unexpected(OPERATION));
            }
        }
        Ok(None)
    }

    /// Returns the commits on the user's trunk after its last tag. If there is no tag, returns the
    /// newest commits up to a limit.
    fn unreleased_commits(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Vec<UnreleasedCommit>, GitError> {
        const OPERATION: &str = "list the unreleased commits";
        let user = self.discover_at(&repo.path)?;
        let git = || self.git.in_vault(&user.common_dir, OPERATION);
        // Git fails if the history has no tag. This case is not an error here, so the exit status
        // is examined below.
        let described = git()
            .args(["describe", "--tags", "--abbrev=0", commit.as_str()])
            .run()?;
        let tag = String::from_utf8_lossy(&described.stdout).trim().to_owned();
        let log = git().args([
            "log",
            "-z",
            "-n",
            "2000",
            "--format=%s%n%(trailers:key=Regatta-Task,valueonly)",
        ]);
        let log = log.arg("--end-of-options").arg(commit.as_str());
        let log = if described.status == Some(0) {
            log.arg(format!("^refs/tags/{tag}"))
        } else {
            log
        };
        let parse_entry = |entry: Vec<u8>| {
            let text = path_to_text(&entry);
            let mut lines = text.lines();
            let subject = lines.next().unwrap_or_default().to_owned();
            UnreleasedCommit {
                subject,
                task: lines
                    .map(str::trim)
                    .find(|line| !line.is_empty())
                    .map(str::to_owned),
            }
        };
        Ok(log.run_for_list()?.into_iter().map(parse_entry).collect())
    }
}

impl GitAdapter {
    /// Returns the newest commit that the trunk has in common with all `recorded` commits, which
    /// Regatta landed.
    fn shared_base(
        &self,
        vault: &Path,
        tip: &CommitId,
        recorded: &[CommitId],
    ) -> Result<Option<CommitId>, GitError> {
        const OPERATION: &str =
            "find the last commit that the trunk shares with the landed commits";
        let mut call =
            self.git
                .in_vault(vault, OPERATION)
                .args(["merge-base", "--octopus", tip.as_str()]);
        for commit in recorded {
            call = call.arg(commit.as_str());
        }
        let output = call.run()?;
        match (output.status, path_to_text(&output.stdout).trim()) {
            (Some(0 | 1), "") => Ok(None),
            (Some(0), base) => CommitId::new(base)
                .map(Some)
                .map_err(|_| errors::unexpected(OPERATION)),
            _ => Err(errors::git_failed(OPERATION, &output.stderr)),
        }
    }

    /// Lists the commits in the history of any commit in `from` that are not in the history of any
    /// commit in `without`, newest first. Follows first parents only.
    fn commits_without(
        &self,
        vault: &Path,
        from: &[CommitId],
        without: &[CommitId],
    ) -> Result<Vec<TrunkCommit>, GitError> {
        const OPERATION: &str = "compare the trunk with the landed commits";
        if from.is_empty() {
            return Ok(vec![]);
        }
        let mut call = self
            .git
            .in_vault(vault, OPERATION)
            .args(["log", "--first-parent", "-z"])
            .arg(format!("--max-count={MAX_SEARCHED_COMMITS}"))
            .arg(
                "--format=%H%x1f%(trailers:key=Regatta-Landing,valueonly,separator=%x20)%x1f\
                 %(trailers:key=Regatta-Task,valueonly,separator=%x20)%x1f%s",
            );
        for commit in from {
            call = call.arg(commit.as_str());
        }
        call = call.arg("--not");
        for commit in without {
            call = call.arg(commit.as_str());
        }
        let listed = call.arg("--").run_for_list()?;
        let mut commits = Vec::new();
        for line in &listed {
            let line = path_to_text(line);
            let parts: Vec<&str> = line.splitn(4, '\u{1f}').collect();
            let [commit, landings, tasks, subject] = parts[..] else {
                return Err(errors::unexpected(OPERATION));
            };
            let commit = CommitId::new(commit).map_err(|_| errors::unexpected(OPERATION))?;
            let mut tasks = tasks.split_whitespace().map(|task| task.parse().ok());
            let mut landings: Vec<_> = landings
                .split_whitespace()
                .map(|landing| landing.parse().ok())
                .collect();
            if landings.is_empty() {
                landings.push(None);
            }
            // One commit can combine the work of several tasks and then names several landings,
            // each with its task. Such a commit gives one entry for each landing.
            commits.extend(landings.into_iter().map(|landing| TrunkCommit {
                commit: commit.clone(),
                landing,
                task: tasks.next().flatten(),
                subject: subject.to_owned(),
            }));
        }
        Ok(commits)
    }

    /// Returns `commit` if the history of `tip` contains it. Otherwise returns the commit in the
    /// history of `tip` that replaced `commit` when the trunk was rebased onto a remote's trunk, or
    /// `None` if the history contains no such commit.
    pub(crate) fn current_form_of(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
    ) -> Result<Option<CommitId>, GitError> {
        let mut current = commit.clone();
        for _ in 0..MAX_REPLACEMENTS {
            if self.is_ancestor(repo, tip, &current)? {
                return Ok(Some(current));
            }
            match self.rebased_as(repo, &current)? {
                Some(next) => current = next,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns whether the trunk's history up to `tip` contains `commit`. Returns `false` for a
    /// commit that the repository no longer has.
    pub(crate) fn is_ancestor(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
    ) -> Result<bool, GitError> {
        const OPERATION: &str = "look for a commit on the trunk";
        let user = self.discover_at(&repo.path)?;
        let call = self
            .git
            .in_vault(&user.common_dir, OPERATION)
            .args(["merge-base", "--is-ancestor"]);
        let output = call.arg(commit.as_str()).arg(tip.as_str()).run()?;
        match output.status {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            Some(128) if output.stderr.contains("Not a valid commit name") => Ok(false),
            _ => Err(errors::git_failed(OPERATION, &output.stderr)),
        }
    }
}
