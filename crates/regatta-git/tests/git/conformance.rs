//! Runs the test cases for git adapters with the adapter that runs git.

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{Git, ProjectRepo, TrunkPermit};
use regatta_testkit::git_suite::GitHarness;

use crate::world::*;

struct RealWorld(World);

impl RealWorld {
    fn new() -> RealWorld {
        let home = temp_dir();
        let path = home.path().join("user's repo");
        init(&path, &[]);
        write(path.join("a.txt"), "one\n");
        write(path.join("b.txt"), "two\n");
        commit_all(&path, "start");
        RealWorld(World::with_repo_at(home, path))
    }
}

impl GitHarness for RealWorld {
    fn git(&self) -> &dyn Git {
        &self.0.git
    }
    fn repo(&self) -> &ProjectRepo {
        &self.0.repo
    }
    fn write(&self, attempt: AttemptId, path: &str, content: Option<&str>) {
        let file = self.0.git.workspace_path(&self.0.repo, attempt).join(path);
        match content {
            Some(content) => write(file, content),
            None => std::fs::remove_file(file).unwrap(),
        }
    }
    fn commit_as_person(&self, path: &str, content: &str) -> CommitId {
        write(self.0.user().join(path), content);
        commit_all(self.0.user(), "a person's")
    }
    fn commit_on_remote(&self, parent: &CommitId, path: &str, content: &str) -> CommitId {
        let remote = self.0.home.path().join("remote");
        let user = self.0.user().to_str().unwrap();
        if !remote.exists() {
            git(
                self.0.home.path(),
                &["clone", "-q", user, remote.to_str().unwrap()],
            );
            git(
                self.0.user(),
                &["remote", "add", "origin", remote.to_str().unwrap()],
            );
        }
        git(&remote, &["reset", "-q", "--hard", parent.as_str()]);
        write(remote.join(path), content);
        commit_all(&remote, "another person's")
    }
    fn permit(&self) -> TrunkPermit {
        TrunkPermit::for_tests(self.0.repo.project.clone())
    }
}

regatta_testkit::git_suite!(RealWorld::new());
