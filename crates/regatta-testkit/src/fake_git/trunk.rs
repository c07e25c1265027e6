//! Implements for the fake git the parts of the git interface about the user's checkout, the trunk
//! and its remotes.

use super::*;

impl CheckoutGit for FakeGit {
    fn inspect(&self, path: &Path) -> Result<RepoFacts, GitError> {
        self.call("git.inspect", |repos| {
            let trunk = repos.trunks.get(path).ok_or_else(|| {
                git_error(
                    "not_a_repository",
                    &format!("there is no repository at {}", path.display()),
                )
            })?;
            let branch = BranchName::new("main").ok();
            Ok(RepoFacts {
                top: path.to_owned(),
                branch,
                is_unborn: false,
                is_bare: false,
                dirty_files: trunk.dirty_files.clone(),
                has_untracked_settings: false,
                operation_in_progress: None,
                submodules: vec![],
                has_lfs: false,
            })
        })
    }

    fn is_ignored(&self, _: &ProjectRepo, _: &str) -> Result<bool, GitError> {
        Ok(false)
    }

    /// Returns false, because nobody edits files in the checkout of this fake.
    fn is_edited(&self, _: &ProjectRepo, _: &str, _: &[u8]) -> Result<bool, GitError> {
        self.call("git.is_edited", |_| Ok(false))
    }

    fn checkout_marks(&self, repo: &ProjectRepo) -> Result<Vec<(String, String)>, GitError> {
        Ok(self
            .lock()
            .trunk(repo)?
            .dirty_files
            .iter()
            .map(|path| (path.clone(), "dirty".into()))
            .collect())
    }
}

impl TrunkGit for FakeGit {
    fn tip(&self, repo: &ProjectRepo) -> Result<CommitId, GitError> {
        self.call("git.tip", |repos| {
            repos.trunk(repo).map(|trunk| trunk.tip.clone())
        })
    }

    fn paths_at_tip(&self, repo: &ProjectRepo) -> Result<Vec<String>, GitError> {
        self.call("git.paths_at_tip", |repos| {
            let tip = repos.trunk(repo)?.tip.clone();
            Ok(repos.files_of(&tip).into_keys().collect())
        })
    }

    fn trunk_facts(&self, repo: &ProjectRepo) -> Result<TrunkFacts, GitError> {
        self.lock().trunk(repo).map(|trunk| TrunkFacts {
            tip: trunk.tip.clone(),
            upstream: None,
            commits_behind: 0,
        })
    }

    fn contains(
        &self,
        _: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
    ) -> Result<bool, GitError> {
        let repos = self.lock();
        Ok(repos.current_form_of(tip, commit).is_some())
    }

    fn missing_commits(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commits: &[CommitId],
    ) -> Result<Vec<CommitId>, GitError> {
        let mut missing = Vec::new();
        for commit in commits {
            if !self.contains(repo, tip, commit)? {
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
        let tip = self.tip(repo)?;
        Ok(self.lock().current_form_of(&tip, commit))
    }

    fn contains_exactly(&self, repo: &ProjectRepo, commit: &CommitId) -> Result<bool, GitError> {
        let tip = self.tip(repo)?;
        Ok(self.lock().is_ancestor(commit, &tip))
    }

    fn commits_between(
        &self,
        _: &ProjectRepo,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<Vec<CommitId>, GitError> {
        Ok(trunk_commits::commits_between(&self.lock(), from, to))
    }

    fn compare_trunk(
        &self,
        repo: &ProjectRepo,
        recorded: &[CommitId],
    ) -> Result<TrunkSeen, GitError> {
        trunk_commits::compare_trunk(&self.lock(), repo, recorded)
    }

    fn find_landing(
        &self,
        repo: &ProjectRepo,
        landing: LandingId,
    ) -> Result<Option<CommitId>, GitError> {
        trunk_commits::find_landing(&self.lock(), repo, landing)
    }

    /// Returns the commits since the first one, because this fake has no tags.
    fn unreleased_commits(
        &self,
        _: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Vec<UnreleasedCommit>, GitError> {
        Ok(trunk_commits::history(&self.lock(), commit))
    }
}

impl TrunkMoveGit for FakeGit {
    fn move_trunk(
        &self,
        permit: &TrunkPermit,
        repo: &ProjectRepo,
        old: &CommitId,
        new: &CommitId,
    ) -> Result<TrunkMoveResult, GitError> {
        self.call("git.move_trunk", |repos| {
            if *permit.project() != repo.project {
                return Err(git_error(
                    "wrong_permit",
                    "the permit to move a trunk belongs to another project",
                ));
            }
            let Trunk { tip, dirty_files } = repos.trunk(repo)?.clone();
            if tip == *new {
                return Ok(TrunkMoveResult::Moved);
            }
            if tip != *old {
                return Ok(TrunkMoveResult::TrunkElsewhere(tip));
            }
            if !dirty_files.is_empty() {
                return Ok(TrunkMoveResult::CheckoutDirty(dirty_files));
            }
            repos.check_trunk_move(permit, old, new);
            repos.trunk_moves.push(RecordedTrunkMove {
                project: permit.project().clone(),
                landing: permit.landing(),
                fencing_token: permit.fence(),
                old: old.clone(),
                new: new.clone(),
            });
            repos.trunks.insert(
                repo.path.clone(),
                Trunk {
                    tip: new.clone(),
                    dirty_files,
                },
            );
            Ok(TrunkMoveResult::Moved)
        })
    }
}

impl RemoteGit for FakeGit {
    fn push(
        &self,
        _: &ProjectRepo,
        remote: &str,
        commit: &CommitId,
    ) -> Result<PushResult, GitError> {
        self.call("git.push", |repos| {
            match repos.remotes.get(remote) {
                Some(remote_tip) if repos.is_ancestor(commit, remote_tip) => {
                    return Ok(PushResult::Pushed);
                }
                Some(remote_tip) if !repos.is_ancestor(remote_tip, commit) => {
                    return Ok(PushResult::NonFastForward);
                }
                _ => {}
            }
            repos.remotes.insert(remote.to_owned(), commit.clone());
            Ok(PushResult::Pushed)
        })
    }

    fn push_branch(
        &self,
        _: &ProjectRepo,
        remote: &str,
        branch: &BranchName,
        commit: &CommitId,
    ) -> Result<PushResult, GitError> {
        self.call("git.push_branch", |repos| {
            repos.find_commit(commit)?;
            repos
                .pushed_branches
                .insert((remote.to_owned(), branch.clone()), commit.clone());
            Ok(PushResult::Pushed)
        })
    }

    fn fetch_upstream(&self, repo: &ProjectRepo, remote: &str) -> Result<UpstreamTrunk, GitError> {
        self.call("git.fetch_upstream", |repos| {
            trunk_commits::fetch_upstream(repos, repo, remote)
        })
    }

    fn rebase_trunk(&self, repo: &ProjectRepo, onto: &CommitId) -> Result<RebaseResult, GitError> {
        self.call("git.rebase_trunk", |repos| {
            trunk_commits::rebase_trunk(repos, repo, onto)
        })
    }
}
