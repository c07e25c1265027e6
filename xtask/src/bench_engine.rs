//! The environment of a measurement: an engine with fake git and agents, and a store that counts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use regatta_engine::ports::agents::Exit;
use regatta_engine::ports::store::{LoadedState, Store, StoreBatch, StoreError, StoreHistory};
use regatta_engine::timer::MachineClock;
use regatta_engine::{Engine, EngineSettings, Ports};
use regatta_store::SqliteStore;
use regatta_testkit::fake_agents::FakeAgents;
use regatta_testkit::fake_git::FakeGit;
use regatta_testkit::fake_store::FakeStore;

/// The kind of store under the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Sqlite,
    Memory,
}

/// The path of the repository. It does not exist on disk.
pub(crate) const REPO_PATH: &str = "/nowhere/lake";

/// Starts an engine on a new store in `dir`.
pub(crate) fn start_engine(
    kind: StoreKind,
    dir: &Path,
) -> anyhow::Result<(Engine, Arc<StoreCounts>)> {
    let inner: Box<dyn Store> = match kind {
        StoreKind::Sqlite => Box::new(SqliteStore::open(&dir.join("regatta.db"))?),
        StoreKind::Memory => Box::new(FakeStore::new()),
    };
    let counts = Arc::new(StoreCounts::default());
    let store = Box::new(CountingStore {
        inner,
        counts: counts.clone(),
    });
    // No agent is started, because only the writer and the store are measured.
    let git = FakeGit::new();
    git.create_repo(Path::new(REPO_PATH), &[]);
    let agents = Arc::new(FakeAgents::new(&git, |_| Exit::Code(0)));
    let ports = Ports {
        store,
        git: Arc::new(git),
        agents,
        clock: Arc::new(MachineClock),
    };
    let engine = Engine::start(ports, EngineSettings::default())?.engine;
    Ok((engine, counts))
}

/// The commits and events that a store received, and the time that they took.
#[derive(Debug, Default)]
pub(crate) struct StoreCounts {
    pub(crate) commits: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) nanoseconds: AtomicU64,
}

/// A store that counts its commits.
struct CountingStore {
    inner: Box<dyn Store>,
    counts: Arc<StoreCounts>,
}

impl Store for CountingStore {
    fn load(&mut self) -> Result<LoadedState, StoreError> {
        self.inner.load()
    }
    fn commit(&mut self, batch: &StoreBatch) -> Result<(), StoreError> {
        let began = Instant::now();
        let result = self.inner.commit(batch);
        self.counts
            .nanoseconds
            .fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
        self.counts.commits.fetch_add(1, Relaxed);
        self.counts
            .events
            .fetch_add(batch.events.len() as u64, Relaxed);
        result
    }
    fn revision(&mut self) -> Result<u64, StoreError> {
        self.inner.revision()
    }
    fn has_deferred_rows(&self) -> bool {
        self.inner.has_deferred_rows()
    }
    fn flush_idle(&mut self) -> Result<(), StoreError> {
        self.inner.flush_idle()
    }
    fn check(&mut self) -> Result<(), StoreError> {
        self.inner.check()
    }
    fn backup(&mut self, target: &Path) -> Result<(), StoreError> {
        self.inner.backup(target)
    }
    fn history(&self) -> Arc<dyn StoreHistory> {
        self.inner.history()
    }
}
