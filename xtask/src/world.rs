//! The world of a measurement: an engine whose git and agents do nothing at once, and stores that count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use regatta_core::ids::{AttemptId, BranchName, CommitId};
use regatta_core::project::Style;
use regatta_engine::ports::agents::{
    AgentError, Agents, Check, CheckResult, Desk, Exit, Launch, Line, ProcessState, Started, Verdict,
};
use regatta_engine::ports::git::{
    Authorship, Capture, Git, GitError, Move, Push, ReachabilityProof, Repo, RepoFacts, Settled, Side, Trial,
    TrunkFacts, TrunkPermit, Workspace,
};
use regatta_engine::ports::store::{Batch, History, Loaded, Store, StoreError};
use regatta_engine::timer::MachineClock;
use regatta_engine::{Engine, Ports, Settings};
use regatta_store::SqliteStore;
use regatta_testkit::memory::MemoryStore;

/// Which store is under the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Memory,
}

/// Starts an engine on a new store in `dir`.
pub(crate) fn engine(kind: Kind, dir: &Path) -> anyhow::Result<(Engine, Arc<Counts>)> {
    let inner: Box<dyn Store> = match kind {
        Kind::Sqlite => Box::new(SqliteStore::open(&dir.join("regatta.db"))?),
        Kind::Memory => Box::new(MemoryStore::new()),
    };
    let counts = Arc::new(Counts::default());
    let store = Box::new(Counted { inner, counts: counts.clone() });
    let ports = Ports { store, git: Arc::new(Idle), agents: Arc::new(Idle), clock: Arc::new(MachineClock) };
    let (engine, _) = Engine::start(ports, Settings::default())?;
    Ok((engine, counts))
}

/// What a store was given.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) commits: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) nanoseconds: AtomicU64,
}

/// A store that counts what goes in.
struct Counted {
    inner: Box<dyn Store>,
    counts: Arc<Counts>,
}

impl Store for Counted {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.inner.load()
    }
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let began = Instant::now();
        let done = self.inner.commit(batch);
        self.counts.nanoseconds.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
        self.counts.commits.fetch_add(1, Relaxed);
        self.counts.events.fetch_add(batch.events.len() as u64, Relaxed);
        done
    }
    fn revision(&mut self) -> Result<u64, StoreError> {
        self.inner.revision()
    }
    fn check(&mut self) -> Result<(), StoreError> {
        self.inner.check()
    }
    fn backup(&mut self, to: &Path) -> Result<(), StoreError> {
        self.inner.backup(to)
    }
    fn history(&self) -> Arc<dyn History> {
        self.inner.history()
    }
}

/// Version control and programs that do nothing, at once.
struct Idle;

fn no_commit() -> CommitId {
    CommitId::new(&"0".repeat(40)).expect("forty zeros are an object id")
}

impl Git for Idle {
    fn inspect(&self, path: &Path) -> Result<RepoFacts, GitError> {
        let top = path.to_owned();
        Ok(RepoFacts { top, branch: None, unborn: false, bare: true, dirty: vec![], in_progress: None })
    }
    fn tip(&self, _: &Repo) -> Result<CommitId, GitError> {
        Ok(no_commit())
    }
    fn paths_at_tip(&self, _: &Repo) -> Result<Vec<String>, GitError> {
        Ok(vec![])
    }
    fn trunk(&self, _: &Repo) -> Result<TrunkFacts, GitError> {
        Ok(TrunkFacts { tip: no_commit(), upstream: None, behind: 0 })
    }
    fn contains(&self, _: &Repo, _: &CommitId, _: &CommitId) -> Result<bool, GitError> {
        Ok(true)
    }
    fn workspace_path(&self, repo: &Repo, _: AttemptId) -> PathBuf {
        repo.path.clone()
    }
    fn prepare(&self, repo: &Repo, _: AttemptId, branch: &BranchName) -> Result<Workspace, GitError> {
        Ok(Workspace { path: repo.path.clone(), branch: branch.clone(), base: no_commit(), objects: None })
    }
    fn capture(&self, _: &Repo, _: AttemptId, _: &Authorship) -> Result<Capture, GitError> {
        Ok(Capture { commit: no_commit(), base: no_commit(), changed: vec![] })
    }
    fn trial_merge(&self, _: &Repo, _: &CommitId, _: &CommitId, _: &Authorship, _: Style) -> Result<Trial, GitError> {
        Ok(Trial::Empty)
    }
    fn merge_with_ownership(
        &self,
        _: &Repo,
        _: &CommitId,
        _: &CommitId,
        _: &BTreeMap<String, Side>,
        _: &Authorship,
    ) -> Result<Settled, GitError> {
        Ok(Settled { trial: Trial::Empty, dropped: None })
    }
    fn revert(&self, _: &Repo, _: &CommitId, _: &CommitId, _: &Authorship) -> Result<Trial, GitError> {
        Ok(Trial::Empty)
    }
    fn file_at(&self, _: &Repo, _: &CommitId, _: &str) -> Result<Option<Vec<u8>>, GitError> {
        Ok(None)
    }
    fn diff(&self, _: &Repo, _: &CommitId, _: &CommitId) -> Result<String, GitError> {
        Ok(String::new())
    }
    fn stage(&self, repo: &Repo, _: u32, _: &CommitId) -> Result<PathBuf, GitError> {
        Ok(repo.path.clone())
    }
    fn unstage(&self, _: &Repo, _: u32) -> Result<(), GitError> {
        Ok(())
    }
    fn move_trunk(&self, _: &TrunkPermit, _: &Repo, _: &CommitId, _: &CommitId) -> Result<Move, GitError> {
        Ok(Move::Moved)
    }
    fn push(&self, _: &Repo, _: &str, _: &CommitId) -> Result<Push, GitError> {
        Ok(Push::Pushed)
    }
    fn unkept(&self, _: &Repo, _: AttemptId) -> Result<Vec<String>, GitError> {
        Ok(vec![])
    }
    fn remove_workspace(&self, _: &ReachabilityProof, _: &Repo) -> Result<(), GitError> {
        Ok(())
    }
}

impl Agents for Idle {
    fn last_word(&self, _: AttemptId) -> Option<u64> {
        None
    }
    fn start(&self, _: &Launch) -> Result<Started, AgentError> {
        Ok(Started::default())
    }
    fn state(&self, _: AttemptId) -> Result<ProcessState, AgentError> {
        Ok(ProcessState::Exited(Exit::Code(0)))
    }
    fn attend(&self, _: AttemptId, _: &dyn Desk) -> Result<Option<Verdict>, AgentError> {
        Ok(Some(Verdict { exit: Exit::Code(0), class: None, detail: String::new(), usage: vec![] }))
    }
    fn nudge(&self, _: AttemptId) {}
    fn stop(&self, _: AttemptId, _: Duration) -> Result<Exit, AgentError> {
        Ok(Exit::Code(0))
    }
    fn check(&self, _: &Check) -> Result<CheckResult, AgentError> {
        Ok(CheckResult { exit: Exit::Code(0), timed_out: false, output: String::new() })
    }
    fn transcript(&self, _: AttemptId, _: u64, _: usize) -> Result<Vec<Line>, AgentError> {
        Ok(vec![])
    }
    fn tail(&self, _: AttemptId, _: usize) -> Result<String, AgentError> {
        Ok(String::new())
    }
    fn result_file(&self, _: AttemptId) -> PathBuf {
        PathBuf::new()
    }
}
