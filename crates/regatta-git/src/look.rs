//! How the trunk stands: what is in it, where it is against its upstream, what it contains.

use regatta_core::ids::{CommitId, LandingId};
use regatta_engine::ports::git::{GitError, Repo, TrunkFacts};

use crate::run::text_of;
use crate::{GitAdapter, words};

/// How often a commit may have been replayed.
const MOST_TIMES: usize = 100;

/// How many commits of the trunk are searched for a landing.
const MAX_SEARCHED_COMMITS: u32 = 1_000;

impl GitAdapter {
    /// Returns the newest commit of the trunk's own line whose trailer names this landing. Only the last paragraph of a
    /// message has trailers, so a description cannot pretend to be one.
    pub(crate) fn find_landing(&self, repo: &Repo, landing: LandingId) -> Result<Option<CommitId>, GitError> {
        const DOING: &str = "look for a landing on the trunk";
        let user = self.discover_at(&repo.path)?;
        let tip = self.trunk_tip(&user, repo)?;
        let listed = self
            .git
            .ours(&user.common, DOING)
            .args(["log", "--first-parent", "-z"])
            .arg(format!("--max-count={MAX_SEARCHED_COMMITS}"))
            .arg("--format=%H %(trailers:key=Regatta-Landing,valueonly,separator=%x20)")
            .args(["--end-of-options", tip.as_str()])
            .list()?;
        let named = landing.to_string();
        for line in listed.iter().map(|line| text_of(line)) {
            let mut parts = line.split_whitespace();
            let Some(commit) = parts.next() else { continue };
            if parts.any(|part| part == named) {
                return CommitId::new(commit).map(Some).map_err(|_| words::unexpected(DOING));
            }
        }
        Ok(None)
    }

    /// Every path of the trunk's tip. What is no text cannot be named in a manifest and is told approximately.
    pub(crate) fn tip_paths(&self, repo: &Repo) -> Result<Vec<String>, GitError> {
        let user = self.discover_at(&repo.path)?;
        let tip = self.trunk_tip(&user, repo)?;
        let list = self
            .git
            .ours(&user.common, "list the trunk's files")
            .args(["ls-tree", "-r", "--name-only", "-z", "--full-tree", "--end-of-options"])
            .arg(tip.as_str())
            .list()?;
        Ok(list.iter().map(|it| text_of(it)).collect())
    }

    /// The trunk's tip and its upstream, as far as this machine knows it: nothing is fetched.
    pub(crate) fn look_at_trunk(&self, repo: &Repo) -> Result<TrunkFacts, GitError> {
        const DOING: &str = "compare the trunk with its upstream";
        let user = self.discover_at(&repo.path)?;
        let tip = self.trunk_tip(&user, repo)?;
        let said = self
            .git
            .ours(&user.common, DOING)
            .args(["for-each-ref", "--format=%(upstream:short)%00%(upstream:track,nobracket)"])
            .arg(format!("refs/heads/{}", repo.trunk))
            .line()?;
        let (upstream, track) = said.split_once('\0').ok_or_else(|| words::unexpected(DOING))?;
        let behind = track.split(", ").find_map(|it| it.strip_prefix("behind ")?.parse().ok()).unwrap_or(0);
        Ok(TrunkFacts { tip, upstream: (!upstream.is_empty()).then(|| upstream.to_owned()), behind })
    }

    /// As which commit the history of `tip` has this one: itself, or what it became when the trunk was brought onto a
    /// remote's.
    pub(crate) fn found_as(
        &self,
        repo: &Repo,
        tip: &CommitId,
        commit: &CommitId,
    ) -> Result<Option<CommitId>, GitError> {
        let mut at = commit.clone();
        for _ in 0..MOST_TIMES {
            if self.is_ancestor(repo, tip, &at)? {
                return Ok(Some(at));
            }
            match self.became(repo, &at)? {
                Some(next) => at = next,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Whether `commit` is in the trunk's history up to `tip`. One that the repository no longer has is not.
    pub(crate) fn is_ancestor(&self, repo: &Repo, tip: &CommitId, commit: &CommitId) -> Result<bool, GitError> {
        const DOING: &str = "look for a commit in the trunk";
        let user = self.discover_at(&repo.path)?;
        let call = self.git.ours(&user.common, DOING).args(["merge-base", "--is-ancestor"]);
        let said = call.arg(commit.as_str()).arg(tip.as_str()).run()?;
        match said.status {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            Some(128) if said.stderr.contains("Not a valid commit name") => Ok(false),
            _ => Err(words::git_failed(DOING, &said.stderr)),
        }
    }
}
