//! Transfers commits between a runner and the server, on the runner's side: fetches a project from
//! the server, and pushes agents' work to it.
//!
//! The runner's vault (Regatta's own repository) stores all git objects. In place of the user's
//! repository, a runner has a mirror. It is a bare repository that contains the trunk and borrows
//! all objects from the vault, which never deletes an object. The mirror's trunk always follows the
//! server's trunk.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use regatta_core::ids::{AttemptId, CommitId, ProjectName};
use regatta_engine::ports::git::{
    GitError, GitRemote, MirrorGit, ProjectRepo, attempt_of_keep_ref,
};

use crate::layout::LockKey;
use crate::submodules::{Submodule, module_ref};
use crate::vault::{FETCH_OPTIONS, TRUNK_REF, object_format};
use crate::{GitAdapter, disk, errors};

/// The ref that names the newest fetched commit of the server's trunk.
const FETCHED_TRUNK_REF: &str = "refs/regatta/taken";

impl MirrorGit for GitAdapter {
    fn mirror_path(&self, project: &ProjectName) -> PathBuf {
        self.layout.mirror(project)
    }

    fn fetch_project(
        &self,
        repo: &ProjectRepo,
        from: &GitRemote,
        wants: &[CommitId],
    ) -> Result<(), GitError> {
        check_remote_address(from)?;
        // This function moves the mirror's trunk by force, but must never move the trunk of a
        // user's repository by force. Therefore check that the path is the path of the mirror.
        if repo.path != self.layout.mirror(&repo.project) {
            return Err(errors::not_a_mirror(&repo.path));
        }
        self.locks
            .with_lock(LockKey::Mirror(repo.project.clone()), || {
                let vault = self.layout.vault(&repo.project);
                if vault.is_dir() {
                    // The transfer runs without the lock on the vault (Regatta's own repository),
                    // so that other threads can use the vault while the server sends.
                    self.fetch_from_server(&vault, repo, from, wants)?;
                    disk::sync_objects(&vault)?;
                } else {
                    let tip = self.query_server_trunk(repo, from)?;
                    self.locks
                        .with_lock(LockKey::Vault(repo.project.clone()), || {
                            self.make_vault(repo, &tip, |new| {
                                self.fetch_from_server(new, repo, from, wants)
                            })
                        })?;
                }
                self.locks
                    .with_lock(LockKey::Vault(repo.project.clone()), || {
                        self.update_mirror_trunk(repo, &vault)
                    })?;
                let tip = self.find_object(&vault, FETCHED_TRUNK_REF)?;
                tip.iter()
                    .chain(wants)
                    .try_for_each(|commit| self.fetch_submodule_commits(&vault, from, commit))
            })
    }

    fn push_capture(
        &self,
        repo: &ProjectRepo,
        to: &GitRemote,
        attempt: AttemptId,
    ) -> Result<(), GitError> {
        const OPERATION: &str = "push work to the server";
        check_remote_address(to)?;
        let vault = self.vault(repo)?;
        let listed = self.git.in_vault(&vault, "list the refs of stored work");
        let listed = listed
            .args([
                "for-each-ref",
                "--format=%(objectname):%(refname)",
                "refs/regatta/keep/",
            ])
            .run_for_line()?;
        // The commits are pushed by their ids, because another thread could move a ref in the
        // meantime.
        let kept: Vec<&str> = listed
            .lines()
            .filter(|line| {
                line.split_once(':')
                    .is_some_and(|(_, name)| attempt_of_keep_ref(name) == Some(attempt))
            })
            .collect();
        if kept.is_empty() {
            return Ok(());
        }
        let mut call = self
            .git
            .in_vault_online(&vault, to, OPERATION)
            .args(ATOMIC_PUSH_OPTIONS)
            .arg(&to.url);
        // The refs on the server may be moved by force, because the server protects the old commit
        // of each ref with another ref.
        call = kept
            .iter()
            .fold(call, |call, commit| call.arg(format!("+{commit}")));
        let output = call.run()?;
        if output.status == Some(0) {
            return Ok(());
        }
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let refused = printed
            .lines()
            .find(|line| line.starts_with("!\t") && line.contains("[remote rejected]"));
        Err(match refused {
            Some(line) => errors::push_refused(attempt, line),
            None => errors::remote_failed(OPERATION, &to.url, &output.stderr),
        })
    }

    fn forget_attempt(&self, repo: &ProjectRepo, attempt: AttemptId) -> Result<(), GitError> {
        // On a runner, the server has stored the pushed work. On any other machine, only these refs
        // protect the work (invariant Q3), so refuse unless the repository is a runner's mirror.
        if repo.path != self.layout.mirror(&repo.project) {
            return Err(errors::not_a_mirror(&repo.path));
        }
        let vault = self.vault(repo)?;
        let listed = self.git.in_vault(&vault, "list the refs of stored work");
        let listed = listed
            .args([
                "for-each-ref",
                "--format=%(objectname) %(refname)",
                "refs/regatta/keep/",
            ])
            .run_for_line()?;
        let is_own = |name: &str| attempt_of_keep_ref(name) == Some(attempt);
        let deletions: String = listed
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(_, name)| is_own(name))
            .map(|(id, name)| format!("delete {name} {id}\n"))
            .collect();
        if deletions.is_empty() {
            Ok(())
        } else {
            self.update_refs(&vault, deletions)
        }
    }
}

impl GitAdapter {
    /// Fetches the commits of the submodules that `commit` contains, if the server has these
    /// commits.
    fn fetch_submodule_commits(
        &self,
        vault: &Path,
        from: &GitRemote,
        commit: &CommitId,
    ) -> Result<(), GitError> {
        let (mut pending, mut seen) = (vec![self.submodules_at(vault, commit)?], HashSet::new());
        while let Some(submodules) = pending.pop() {
            for Submodule { commit, .. } in submodules {
                let keep = module_ref(&commit);
                if !seen.insert(commit.clone()) {
                    continue;
                }
                if self.find_object(vault, &keep)?.is_none() {
                    let fetched = self
                        .git
                        .in_vault_online(vault, from, "fetch a submodule from the server")
                        .args(FETCH_OPTIONS)
                        .arg(&from.url)
                        .arg(format!("+{commit}:{keep}"))
                        .run()?;
                    if fetched.status != Some(0) {
                        continue; // the user has not checked this submodule out
                    }
                    disk::sync_objects(vault)?;
                }
                pending.push(self.submodules_at(vault, &commit)?);
            }
        }
        Ok(())
    }

    /// Returns the newest commit of the server's trunk. Works even if this machine has no
    /// repository of the project yet.
    fn query_server_trunk(
        &self,
        repo: &ProjectRepo,
        from: &GitRemote,
    ) -> Result<CommitId, GitError> {
        const OPERATION: &str = "read the server's trunk";
        let dir = self.layout.data_dir();
        disk::make_dirs(dir)?;
        // The directory `dir` is not a repository. Git does not search for a repository in the
        // directories above `dir`.
        let call = self.git.in_vault_online(dir, from, OPERATION);
        let output = call
            .args(["ls-remote", "--quiet", "--end-of-options", &from.url])
            .arg(trunk_ref(repo))
            .run()?;
        if output.status != Some(0) {
            return Err(errors::remote_failed(OPERATION, &from.url, &output.stderr));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let tip = text
            .split_whitespace()
            .next()
            .ok_or_else(|| errors::remote_trunk_missing(&repo.trunk, &from.url))?;
        CommitId::new(tip).map_err(|_| errors::unexpected(OPERATION))
    }

    fn fetch_from_server(
        &self,
        vault: &Path,
        repo: &ProjectRepo,
        from: &GitRemote,
        wants: &[CommitId],
    ) -> Result<(), GitError> {
        const OPERATION: &str = "fetch the project from the server";
        let mut call = self
            .git
            .in_vault_online(vault, from, OPERATION)
            .args(FETCH_OPTIONS);
        call = call
            .arg(&from.url)
            .arg(format!("+{}:{FETCHED_TRUNK_REF}", trunk_ref(repo)));
        // Git itself finds out which of the wanted commits this machine already has completely.
        call = wants.iter().fold(call, |call, id| call.arg(id.as_str()));
        let output = call.run()?;
        if output.status == Some(0) {
            Ok(())
        } else {
            Err(errors::remote_failed(OPERATION, &from.url, &output.stderr))
        }
    }

    /// Moves the trunk to the commit that was fetched last, both in the mirror (a bare repository
    /// on the runner) and in the vault, Regatta's own repository.
    fn update_mirror_trunk(&self, repo: &ProjectRepo, vault: &Path) -> Result<(), GitError> {
        let (mirror, branch) = (self.layout.mirror(&repo.project), trunk_ref(repo));
        let tip = self
            .find_object(vault, FETCHED_TRUNK_REF)?
            .ok_or_else(|| errors::unexpected("fetch the project from the server"))?;
        if !mirror.is_dir() {
            self.make_mirror(repo, &mirror, &tip)?;
        }
        // The vault (Regatta's own repository) may be a shallow clone. The mirror uses the vault's
        // objects, so the mirror's history must end at the same commits.
        let (shallow, mirror_shallow) = (vault.join("shallow"), mirror.join("shallow"));
        match fs::read(&shallow) {
            Ok(shallow_commits)
                if fs::read(&mirror_shallow).is_ok_and(|bytes| bytes == shallow_commits) => {}
            Ok(shallow_commits) => {
                let temporary = disk::hidden_sibling(&mirror_shallow, ".new");
                disk::write_synced(&temporary, &shallow_commits)?;
                disk::rename_synced(&temporary, &mirror_shallow)?;
            }
            Err(_) => disk::remove_tree(&mirror_shallow)?,
        }
        // If the trunk has not moved, which is the usual case, no git process is started. This
        // saves time, because an attempt is waiting to start.
        if !fs::read_to_string(mirror.join(&branch))
            .is_ok_and(|text| text.trim_end() == tip.as_str())
        {
            self.update_refs(&mirror, format!("update {branch} {tip}\n"))?;
        }
        let head = fs::read_to_string(mirror.join("HEAD")).unwrap_or_default();
        if head.trim_end().strip_prefix("ref: ") != Some(&branch) {
            self.git
                .in_vault(&mirror, "set the branch that the mirror's HEAD names")
                .args(["symbolic-ref", "HEAD", &branch])
                .run_expecting_success()?;
        }
        if self.find_object(vault, TRUNK_REF)?.as_ref() == Some(&tip) {
            return Ok(());
        }
        self.update_refs(vault, format!("update {TRUNK_REF} {tip}\n"))
    }

    fn make_mirror(
        &self,
        repo: &ProjectRepo,
        mirror: &Path,
        tip: &CommitId,
    ) -> Result<(), GitError> {
        let temporary = disk::hidden_sibling(mirror, ".new");
        disk::remove_tree(&temporary)?;
        disk::make_dirs(&temporary)?;
        let init = self.git.in_dir(&temporary, "create the mirror").args([
            "init",
            "--quiet",
            "--bare",
            "--template=",
        ]);
        init.arg(object_format(tip))
            .arg(format!("--initial-branch={}", repo.trunk))
            .run_expecting_success()?;
        let info = temporary.join("objects").join("info");
        disk::make_dirs(&info)?;
        // The path is relative, so that the data directory can be moved or renamed.
        let objects = format!("../../../vaults/{}.git/objects\n", repo.project);
        disk::write_synced(&info.join("alternates"), objects.as_bytes())?;
        disk::rename_synced(&temporary, mirror)
    }
}

/// The options for a push that moves either all refs or no ref, and changes nothing else.
const ATOMIC_PUSH_OPTIONS: [&str; 8] = [
    "push",
    "--porcelain",
    "--atomic",
    "--no-verify",
    "--no-follow-tags",
    "--no-recurse-submodules",
    "--no-signed",
    "--end-of-options",
];

/// Returns the name of the trunk's ref, which is the same on the server and in the runner's mirror.
fn trunk_ref(repo: &ProjectRepo) -> String {
    format!("refs/heads/{}", repo.trunk)
}

/// Checks the server's address and the token. Refuses values that git or the server could
/// misinterpret, for example as an option.
fn check_remote_address(remote: &GitRemote) -> Result<(), GitError> {
    let rest = remote
        .url
        .strip_prefix("http://")
        .or_else(|| remote.url.strip_prefix("https://"));
    let host = rest
        .and_then(|rest| rest.split('/').next())
        .unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"'<>\\^`{|}#?".contains(&byte);
    if host.is_empty()
        || host.contains('@')
        || remote.url.len() > 2000
        || !remote.url.bytes().all(is_plain)
    {
        return Err(errors::bad_remote(
            "the server's address must be http(s)://HOST[:PORT]/PATH without a user name or password",
        ));
    }
    if remote.token.is_empty()
        || remote.token.len() > 4000
        || !remote.token.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(errors::bad_remote(
            "the token must consist of 1 to 4000 printable characters",
        ));
    }
    match &remote.ca {
        Some(ca) if !ca.is_file() => Err(errors::ca_missing(ca)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s7_an_invalid_url_or_token_is_refused() {
        let remote = |url: &str, token: &str| GitRemote {
            url: url.into(),
            token: token.into(),
            ca: None,
        };
        assert_eq!(
            check_remote_address(&remote("http://127.0.0.1:7/git/shop", "rt_x")),
            Ok(())
        );
        assert_eq!(
            check_remote_address(&remote("https://[::1]:7/git/shop", "rt_x")),
            Ok(())
        );
        for url in [
            "",
            "--upload-pack=x",
            "ext::sh -c x",
            "file:///etc",
            "ssh://host/x",
            "http://",
            "http:///x",
            "http://user:password@host/x",
            "http://host/x y",
            "http://host/x\ny",
            "http://host/\u{e4}",
            "https://host/?x",
            "-http://host",
        ] {
            assert_eq!(
                check_remote_address(&remote(url, "x")).unwrap_err().code,
                "bad_remote",
                "{url:?}"
            );
        }
        for token in ["", "a b", "a\r\nHost: other", "\0", "\u{e4}"] {
            assert_eq!(
                check_remote_address(&remote("http://host/x", token))
                    .unwrap_err()
                    .code,
                "bad_remote",
                "{token:?}"
            );
        }
        let ca = Some("/nonexistent/ca.pem".into());
        assert_eq!(
            check_remote_address(&GitRemote {
                ca,
                ..remote("https://host/x", "x")
            })
            .unwrap_err()
            .code,
            "bad_remote"
        );
    }
}
