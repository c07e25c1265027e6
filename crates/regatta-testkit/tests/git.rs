//! Runs the test cases for git adapters with the fake of git.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a panic is the right failure"
)]

use std::path::PathBuf;

use regatta_core::ids::{AttemptId, BranchName, CommitId, ProjectName};
use regatta_engine::ports::git::{Git, ProjectRepo, TrunkPermit};
use regatta_testkit::fake_git::FakeGit;
use regatta_testkit::git_suite::GitHarness;

struct FakeWorld {
    git: FakeGit,
    repo: ProjectRepo,
}

impl FakeWorld {
    fn new() -> FakeWorld {
        let (git, path) = (FakeGit::new(), PathBuf::from("/nowhere/shop"));
        git.create_repo(&path, &[("a.txt", "one\n"), ("b.txt", "two\n")]);
        let repo = ProjectRepo {
            project: ProjectName::new("shop").unwrap(),
            path,
            trunk: BranchName::new("main").unwrap(),
            should_update_checkout: true,
            workspace: Default::default(),
        };
        FakeWorld { git, repo }
    }
}

impl GitHarness for FakeWorld {
    fn git(&self) -> &dyn Git {
        &self.git
    }
    fn repo(&self) -> &ProjectRepo {
        &self.repo
    }
    fn write(&self, attempt: AttemptId, path: &str, content: Option<&str>) {
        let is_edited = self.git.edit_workspace(attempt, |files| {
            match content {
                Some(content) => files.insert(path.to_owned(), content.to_owned()),
                None => files.remove(path),
            };
        });
        assert!(is_edited, "{attempt} has a workspace");
    }
    fn commit_as_person(&self, path: &str, content: &str) -> CommitId {
        self.git.commit_as_person(&self.repo.path, path, content)
    }
    fn commit_on_remote(&self, parent: &CommitId, path: &str, content: &str) -> CommitId {
        let commit = self.git.commit_on(parent, path, content);
        self.git.set_remote_tip("origin", &commit);
        commit
    }
    fn permit(&self) -> TrunkPermit {
        TrunkPermit::for_tests(self.repo.project.clone())
    }
}

regatta_testkit::git_suite!(FakeWorld::new());
