//! Implements the engine's git interface for [`FakeGit`]. A test can make most methods fail, or
//! simulate a crash of the engine while a method runs.

use super::*;

impl Git for FakeGit {
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
                operation_in_progress: None,
                submodules: vec![],
                has_lfs: false,
            })
        })
    }

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
        let mut next = Some(tip.clone());
        while let Some(ancestor) = next {
            if ancestor == *commit {
                return Ok(true);
            }
            next = repos
                .commits
                .get(&ancestor)
                .and_then(|commit| commit.parent.clone());
        }
        Ok(false)
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

    fn workspace_path(&self, _: &ProjectRepo, attempt: AttemptId) -> PathBuf {
        PathBuf::from(format!("/nowhere/workspaces/{attempt}"))
    }

    fn prepare_workspace(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
    ) -> Result<Workspace, GitError> {
        self.call("git.prepare", |repos| {
            let tip = repos.trunk(repo)?.tip.clone();
            let files = repos.files_of(&tip);
            let workspace = repos
                .workspaces
                .entry(attempt)
                .or_insert_with(|| FakeWorkspace {
                    branch: branch.clone(),
                    base: tip,
                    files,
                    foreign_files: FakeTree::new(),
                    is_ready: false,
                });
            let path = PathBuf::from(format!("/nowhere/workspaces/{attempt}"));
            Ok(Workspace {
                path,
                branch: workspace.branch.clone(),
                base: workspace.base.clone(),
                objects: None,
            })
        })
    }

    fn prepare_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
        fixup: &Fixup,
        authorship: &Authorship,
    ) -> Result<Workspace, GitError> {
        self.call("git.prepare_fixup", |repos| {
            workspaces::prepare(repos, (repo, attempt), branch, fixup, authorship)
        })
    }

    fn squash_fixup(
        &self,
        _: &ProjectRepo,
        attempt: AttemptId,
        capture: Capture,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.call("git.as_change", |repos| {
            workspaces::squash(repos, attempt, capture, authorship)
        })
    }

    fn copy_untracked(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<CopiedFiles, GitError> {
        self.call("git.bring", |repos| {
            let tracked = repos.files_of(&repos.workspace(attempt)?.base);
            let all = repos
                .untracked_files
                .get(&repo.path)
                .cloned()
                .unwrap_or_default();
            let is_listed = |path: &String| {
                repo.workspace
                    .copy
                    .iter()
                    .any(|pattern| pattern.matches(path))
            };
            let found: FakeTree = all
                .into_iter()
                .filter(|(path, _)| is_listed(path) && !tracked.contains_key(path))
                .collect();
            let workspace = repos
                .workspaces
                .get_mut(&attempt)
                .ok_or_else(|| git_error("no_workspace", &format!("{attempt} has no workspace")))?;
            let copied = CopiedFiles {
                files: found.len() as u64,
                bytes: found.values().map(|content| content.len() as u64).sum(),
                skipped: vec![],
            };
            for (path, content) in found {
                let in_manifest = manifest.iter().any(|pattern| pattern.matches(&path));
                let target = if in_manifest {
                    &mut workspace.files
                } else {
                    &mut workspace.foreign_files
                };
                target.entry(path).or_insert(content);
            }
            Ok(copied)
        })
    }

    fn is_ready(&self, _: &ProjectRepo, attempt: AttemptId) -> bool {
        self.lock()
            .workspaces
            .get(&attempt)
            .is_some_and(|workspace| workspace.is_ready)
    }

    fn mark_ready(
        &self,
        _: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<(), GitError> {
        self.call("git.settle", |repos| {
            let tracked = repos.files_of(&repos.workspace(attempt)?.base);
            let workspace = repos
                .workspaces
                .get_mut(&attempt)
                .ok_or_else(|| git_error("no_workspace", &format!("{attempt} has no workspace")))?;
            let is_foreign = |path: &String| {
                !tracked.contains_key(path) && !manifest.iter().any(|pattern| pattern.matches(path))
            };
            let (foreign, files) = std::mem::take(&mut workspace.files)
                .into_iter()
                .partition(|(path, _)| is_foreign(path));
            workspace.files = files;
            workspace.foreign_files.extend::<FakeTree>(foreign);
            workspace.is_ready = true;
            Ok(())
        })
    }

    fn capture(
        &self,
        _: &ProjectRepo,
        attempt: AttemptId,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.call("git.capture", |repos| {
            let FakeWorkspace { base, files, .. } = repos.workspace(attempt)?.clone();
            let before = repos.files_of(&base);
            let paths: BTreeSet<&String> = before.keys().chain(files.keys()).collect();
            let changed = paths
                .into_iter()
                .filter(|path| before.get(*path) != files.get(*path))
                .cloned()
                .collect();
            let commit = repos.commit(
                Some(base.clone()),
                files,
                &authorship.message,
                authorship.unix_seconds,
            );
            repos.keep(attempt, &commit);
            Ok(Capture {
                commit,
                base,
                changed,
            })
        })
    }

    fn restrict(
        &self,
        _: &ProjectRepo,
        attempt: AttemptId,
        (capture, paths): (&Capture, &[String]),
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.call("git.restrict", |repos| {
            let mut files = repos.files_of(&capture.base);
            let captured = repos.files_of(&capture.commit);
            let changed: Vec<String> = capture
                .changed
                .iter()
                .filter(|path| paths.contains(path))
                .cloned()
                .collect();
            for path in &changed {
                match captured.get(path) {
                    Some(content) => drop(files.insert(path.clone(), content.clone())),
                    None => drop(files.remove(path)),
                }
            }
            let base = capture.base.clone();
            if changed.is_empty() {
                return Ok(Capture {
                    commit: base.clone(),
                    base,
                    changed,
                });
            }
            let commit = repos.commit(
                Some(base.clone()),
                files,
                &authorship.message,
                authorship.unix_seconds,
            );
            repos.keep(attempt, &commit);
            Ok(Capture {
                commit,
                base,
                changed,
            })
        })
    }

    fn changed_files(
        &self,
        _: &ProjectRepo,
        capture: &Capture,
        lines: bool,
    ) -> Result<Vec<FileChange>, GitError> {
        self.call("git.changed_files", |repos| {
            let before = repos.files_of(&capture.base);
            let after = repos.files_of(&capture.commit);
            let change = |path: &String| {
                let old = before.get(path);
                let old_lines: Vec<&str> = old.iter().flat_map(|content| content.lines()).collect();
                let added = after
                    .get(path)
                    .into_iter()
                    .flat_map(|content| content.lines())
                    .filter(|line| !old_lines.contains(line));
                let added = if lines {
                    added.map(str::to_owned).collect()
                } else {
                    vec![]
                };
                FileChange {
                    path: path.clone(),
                    is_new: old.is_none(),
                    added_lines: added,
                }
            };
            Ok(capture.changed.iter().map(change).collect())
        })
    }

    fn special_files(
        &self,
        _: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<Vec<SpecialFile>, GitError> {
        self.call("git.special_files", |repos| {
            let (before, after) = (repos.files_of(base), repos.files_of(commit));
            let is_changed = |file: &&SpecialFile| before.get(&file.path) != after.get(&file.path);
            Ok(repos
                .special_files
                .iter()
                .filter(is_changed)
                .cloned()
                .collect())
        })
    }

    fn is_ignored(&self, _: &ProjectRepo, _: &str) -> Result<bool, GitError> {
        Ok(false)
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

    fn trial_merge(
        &self,
        _: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
        style: CommitStyle,
    ) -> Result<TrialMerge, GitError> {
        self.call("git.trial_merge", |repos| {
            let ours = repos.files_of(tip);
            Ok(match repos.merge_onto(tip, commit)? {
                Err(paths) => TrialMerge::Conflict(paths),
                Ok(merged) if merged == ours => TrialMerge::Empty,
                Ok(merged) => {
                    let new = repos.commit(
                        Some(tip.clone()),
                        merged,
                        &authorship.message,
                        authorship.unix_seconds,
                    );
                    if style == CommitStyle::Merge {
                        repos.commits.get_mut(&new).unwrap().merged_parent = Some(commit.clone());
                    }
                    TrialMerge::Clean(new)
                }
            })
        })
    }

    fn merge_with_ownership(
        &self,
        _: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        sides: &BTreeMap<String, MergeSide>,
        authorship: &Authorship,
    ) -> Result<OwnershipMerge, GitError> {
        self.call("git.merge_with_ownership", |repos| {
            let (ours, theirs) = (repos.files_of(tip), repos.find_commit(commit)?.files);
            let conflicts = repos.merge_onto(tip, commit)?.err().unwrap_or_default();
            let open: Vec<String> = conflicts
                .iter()
                .filter(|path| !sides.contains_key(*path))
                .cloned()
                .collect();
            if !open.is_empty() {
                return Ok(OwnershipMerge {
                    trial: TrialMerge::Conflict(open),
                    dropped: None,
                });
            }
            // First merge all paths except the conflicting ones. This merge has no conflict.
            let mut base = repos.files_of(repos.find_commit(commit)?.parent.as_ref().unwrap());
            let (mut our_rest, mut their_rest) = (ours.clone(), theirs.clone());
            for files in [&mut base, &mut our_rest, &mut their_rest] {
                files.retain(|path, _| !conflicts.contains(path));
            }
            let merged = merge_trees(&base, &our_rest, &their_rest).unwrap();
            // Adds the conflicting paths to the merge. With `true`, adds the version of the side
            // that owns the file, and with `false`, the version of the other side.
            let resolve = |owner_wins: bool| {
                let mut files = merged.clone();
                for path in &conflicts {
                    let trunk_wins = (sides[path] == MergeSide::Trunk) == owner_wins;
                    let side = if trunk_wins { &ours } else { &theirs };
                    files.extend(
                        side.get(path)
                            .map(|content| (path.clone(), content.clone())),
                    );
                }
                files
            };
            let (resolved, losing) = (resolve(true), resolve(false));
            if resolved == ours && conflicts.is_empty() {
                return Ok(OwnershipMerge {
                    trial: TrialMerge::Empty,
                    dropped: None,
                });
            }
            let new = repos.commit(
                Some(tip.clone()),
                resolved,
                &authorship.message,
                authorship.unix_seconds,
            );
            let mut dropped = None;
            if !conflicts.is_empty() {
                let kept = repos.commit(
                    Some(new.clone()),
                    losing,
                    "dropped",
                    authorship.unix_seconds,
                );
                let reference = format!("refs/regatta/dropped/{new}");
                repos.dropped_sides.insert(reference.clone(), kept.clone());
                dropped = Some(DroppedVersions {
                    reference,
                    commit: kept,
                    paths: conflicts,
                });
            }
            Ok(OwnershipMerge {
                trial: TrialMerge::Clean(new),
                dropped,
            })
        })
    }

    fn squash_range(
        &self,
        _: &ProjectRepo,
        onto: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<CommitId, GitError> {
        self.call("git.fold", |repos| {
            let files = repos.find_commit(commit)?.files;
            Ok(repos.commit(
                Some(onto.clone()),
                files,
                &authorship.message,
                authorship.unix_seconds,
            ))
        })
    }

    fn revert(
        &self,
        _: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<TrialMerge, GitError> {
        self.call("git.revert", |repos| {
            let Commit { parent, files, .. } = repos.find_commit(commit)?;
            let ours = repos.files_of(tip);
            let before = parent.map(|id| repos.files_of(&id)).unwrap_or_default();
            Ok(match merge_trees(&files, &ours, &before) {
                Err(paths) => TrialMerge::Conflict(paths),
                Ok(merged) if merged == ours => TrialMerge::Empty,
                Ok(merged) => TrialMerge::Clean(repos.commit(
                    Some(tip.clone()),
                    merged,
                    &authorship.message,
                    authorship.unix_seconds,
                )),
            })
        })
    }

    fn file_at(
        &self,
        _: &ProjectRepo,
        commit: &CommitId,
        path: &str,
    ) -> Result<Option<Vec<u8>>, GitError> {
        self.call("git.file_at", |repos| {
            Ok(repos
                .find_commit(commit)?
                .files
                .get(path)
                .map(|content| content.clone().into_bytes()))
        })
    }

    /// Returns false, because nobody edits files in the checkout of this fake.
    fn is_edited(&self, _: &ProjectRepo, _: &str, _: &[u8]) -> Result<bool, GitError> {
        self.call("git.is_edited", |_| Ok(false))
    }

    fn tree_of(&self, _: &ProjectRepo, commit: &CommitId) -> Result<CommitId, GitError> {
        self.call("git.tree", |repos| {
            repos.find_commit(commit)?;
            Ok(commit.clone())
        })
    }

    fn diff(
        &self,
        _: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<String, GitError> {
        self.call("git.diff", |repos| {
            let before = repos.find_commit(base)?.files;
            let after = repos.find_commit(commit)?.files;
            let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            let mut patch = String::new();
            for path in paths
                .into_iter()
                .filter(|path| before.get(*path) != after.get(*path))
            {
                patch += &format!("diff --git a/{path} b/{path}\n");
                for (sign, files) in [('-', &before), ('+', &after)] {
                    let content = files.get(path).map(String::as_str).unwrap_or_default();
                    for line in content.lines() {
                        patch += &format!("{sign}{line}\n");
                    }
                }
            }
            Ok(patch)
        })
    }

    fn stage(&self, repo: &ProjectRepo, slot: u32, commit: &CommitId) -> Result<PathBuf, GitError> {
        self.call("git.stage", |repos| {
            repos.find_commit(commit)?;
            repos
                .staged_commits
                .insert((repo.project.clone(), slot), commit.clone());
            repos.ever_staged.insert(commit.clone());
            Ok(PathBuf::from(format!(
                "/nowhere/staging/{}/{slot}",
                repo.project
            )))
        })
    }

    fn unstage(&self, repo: &ProjectRepo, first_slot: u32) -> Result<(), GitError> {
        self.call("git.unstage", |repos| {
            repos
                .staged_commits
                .retain(|(project, slot), _| *project != repo.project || *slot < first_slot);
            Ok(())
        })
    }

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

    fn collisions(
        &self,
        _: &ProjectRepo,
        attempts: &[AttemptId],
        tip: &CommitId,
    ) -> Result<Vec<WorkspaceCollision>, GitError> {
        self.call("git.collisions", |repos| {
            collisions::collisions_between(repos, attempts, tip)
        })
    }

    fn uncaptured_paths(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Vec<String>, GitError> {
        self.call("git.unkept", |repos| repos.uncaptured_paths(repo, attempt))
    }

    fn remove_workspace(
        &self,
        proof: &ReachabilityProof,
        repo: &ProjectRepo,
    ) -> Result<(), GitError> {
        self.call("git.remove_workspace", |repos| {
            let lost = repos.uncaptured_paths(repo, proof.attempt())?;
            if !lost.is_empty() {
                repos.violations.push(format!(
                    "Q5: the workspace of {} was removed with {lost:?} in it",
                    proof.attempt()
                ));
            }
            if repos.workspaces.remove(&proof.attempt()).is_some()
                && repos.pool_size < repo.workspace.pool
            {
                repos.pool_size += 1;
            }
            Ok(())
        })
    }

    fn kept_work(&self, _: &ProjectRepo, attempt: AttemptId) -> Result<Option<KeptWork>, GitError> {
        self.call("git.kept_work", |repos| {
            let kept = repos.keep_refs.get(&attempt);
            let Some((oldest, newest)) = kept.and_then(|kept| kept.first().zip(kept.last())) else {
                return Ok(None);
            };
            let (whole, commit) = (oldest.clone(), newest.clone());
            Ok(Some(KeptWork {
                base: repos.workspace(attempt)?.base.clone(),
                commit,
                whole,
            }))
        })
    }

    fn kept_attempts(&self, _: &ProjectRepo) -> Result<Vec<AttemptId>, GitError> {
        self.call("git.kept_attempts", |repos| {
            Ok(repos.keep_refs.keys().copied().collect())
        })
    }

    fn forget_dropped(&self, proof: &DroppedProof, _: &ProjectRepo) -> Result<(), GitError> {
        self.call("git.forget_dropped", |repos| {
            repos.keep_refs.remove(&proof.attempt());
            Ok(())
        })
    }

    fn collect_garbage(
        &self,
        _: &ProjectRepo,
        _: &[CommitId],
        _: Duration,
    ) -> Result<(), GitError> {
        self.call("git.collect_garbage", |_| Ok(()))
    }

    fn disk_use(&self, _: &ProjectRepo) -> Result<DiskUse, GitError> {
        self.call("git.disk_use", |repos| {
            let size = |files: &FakeTree| {
                files
                    .values()
                    .map(|content| content.len() as u64)
                    .sum::<u64>()
            };
            let live_bytes = repos
                .workspaces
                .values()
                .map(|workspace| size(&workspace.files) + size(&workspace.foreign_files))
                .sum();
            Ok(DiskUse {
                live_bytes,
                pooled_bytes: u64::from(repos.pool_size),
            })
        })
    }

    fn shrink_pool(&self, _: &ProjectRepo, max_workspaces: u64) -> Result<(), GitError> {
        self.call("git.shrink_pool", |repos| {
            repos.pool_size = repos
                .pool_size
                .min(u32::try_from(max_workspaces).unwrap_or(u32::MAX));
            Ok(())
        })
    }
}
