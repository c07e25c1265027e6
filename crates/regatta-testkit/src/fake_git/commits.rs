//! Implements for the fake git the parts of the git interface about commits of agents' work, merges
//! and staging directories.

use super::*;

impl CaptureGit for FakeGit {
    fn capture(
        &self,
        _: &ProjectRepo,
        attempt: AttemptId,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.call("git.capture", |repos| {
            let FakeWorkspace { base, files, .. } = repos.workspace(attempt)?.clone();
            let before = repos.files_of(&base);
            let changed = changed_paths(&before, &files);
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

    fn uncaptured_paths(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Vec<String>, GitError> {
        self.call("git.unkept", |repos| repos.uncaptured_paths(repo, attempt))
    }
}

impl KeptWorkGit for FakeGit {
    fn captured(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Option<Capture>, GitError> {
        let Some(KeptWork { base, commit, .. }) = self.kept_work(repo, attempt)? else {
            return Ok(None);
        };
        let repos = self.lock();
        let changed = changed_paths(&repos.files_of(&base), &repos.files_of(&commit));
        Ok(Some(Capture {
            commit,
            base,
            changed,
        }))
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

    fn restrict(
        &self,
        _: &ProjectRepo,
        attempt: AttemptId,
        capture: &Capture,
        paths: &[String],
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
}

impl CommitGit for FakeGit {
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

    fn tree_of(&self, _: &ProjectRepo, commit: &CommitId) -> Result<CommitId, GitError> {
        self.call("git.tree", |repos| {
            let files = repos.find_commit(commit)?.files;
            let mut hasher = DefaultHasher::new();
            files.hash(&mut hasher);
            CommitId::new(&format!("{:040x}", hasher.finish()))
                .map_err(|error| git_error("io", &error.to_string()))
        })
    }

    fn diff(
        &self,
        _: &ProjectRepo,
        CommitRange { base, commit }: CommitRange<'_>,
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

    fn special_files(
        &self,
        _: &ProjectRepo,
        CommitRange { base, commit }: CommitRange<'_>,
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

    /// Returns nothing, because this fake has no submodules.
    fn unpublished_submodules(
        &self,
        _: &ProjectRepo,
        _: CommitRange<'_>,
    ) -> Result<Vec<String>, GitError> {
        Ok(vec![])
    }
}

impl MergeGit for FakeGit {
    fn trial_merges(
        &self,
        _: &ProjectRepo,
        tip: &CommitId,
        changes: &[AuthoredChange],
        style: CommitStyle,
    ) -> Result<Vec<TrialMerge>, GitError> {
        let mut tip = tip.clone();
        let mut merges = Vec::with_capacity(changes.len());
        for change in changes {
            let merge = self.call("git.trial_merge", |repos| {
                repos.trial_merge(&tip, change, style)
            })?;
            let has_conflict = matches!(merge, TrialMerge::Conflict(_));
            if let TrialMerge::Clean(next) = &merge {
                tip = next.clone();
            }
            merges.push(merge);
            if has_conflict {
                break;
            }
        }
        Ok(merges)
    }

    fn merge_with_ownership(
        &self,
        _: &ProjectRepo,
        tip: &CommitId,
        AuthoredChange { commit, authorship }: &AuthoredChange,
        sides: &BTreeMap<String, MergeSide>,
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

    fn conflicts(
        &self,
        _: &ProjectRepo,
        tip: &CommitId,
        change: &CommitId,
    ) -> Result<Vec<Conflict>, GitError> {
        let repos = self.lock();
        let paths = repos.merge_onto(tip, change)?.err().unwrap_or_default();
        let base = repos.find_commit(change)?.parent;
        let base = base.map(|id| repos.files_of(&id)).unwrap_or_default();
        let (ours, theirs) = (repos.files_of(tip), repos.files_of(change));
        let kind =
            |path: &str| repos::conflict_kind(base.get(path), ours.get(path), theirs.get(path));
        Ok(paths
            .into_iter()
            .map(|path| Conflict {
                kind: kind(&path),
                path,
            })
            .collect())
    }

    fn squash_range(
        &self,
        _: &ProjectRepo,
        onto: &CommitId,
        AuthoredChange { commit, authorship }: &AuthoredChange,
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
        AuthoredChange { commit, authorship }: &AuthoredChange,
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
}

impl StagingGit for FakeGit {
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

    fn prepare_staging(
        &self,
        repo: &ProjectRepo,
        _: u32,
        commit: &CommitId,
    ) -> Result<CopiedFiles, GitError> {
        let repos = self.lock();
        let found = repos.files_to_copy(repo, commit);
        Ok(copied_files(&found))
    }

    fn unstage(&self, repo: &ProjectRepo, first_slot: u32) -> Result<(), GitError> {
        self.call("git.unstage", |repos| {
            repos
                .staged_commits
                .retain(|(project, slot), _| *project != repo.project || *slot < first_slot);
            Ok(())
        })
    }
}
