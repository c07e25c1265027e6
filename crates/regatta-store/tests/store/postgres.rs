//! The PostgreSQL store: the common test suite, and the lease.

use std::path::{Path, PathBuf};
use std::time::Duration;

use regatta_engine::ports::store::{Store, StoreError};
use regatta_store::{LeaseLimits, PostgresSettings, PostgresStore, SqliteStore};
use regatta_testkit::store_suite::StoreHarness;
use regatta_testkit::store_suite::history_fixture::all_steps;
use tempfile::TempDir;

use crate::postgres_cluster::{PostgresCluster, cluster};
use crate::support::{commit_all, test_dir};

/// One database, and files for its backups.
struct PostgresPlace {
    cluster: &'static PostgresCluster,
    address: String,
    directory: TempDir,
    copies: usize,
}

impl PostgresPlace {
    fn new(cluster: &'static PostgresCluster) -> PostgresPlace {
        PostgresPlace {
            cluster,
            address: cluster.new_database(),
            directory: test_dir(),
            copies: 0,
        }
    }

    fn settings(&self) -> PostgresSettings {
        PostgresSettings::parse(&self.address).unwrap()
    }

    fn store(&self) -> PostgresStore {
        PostgresStore::open(self.settings(), "a test").unwrap()
    }

    fn store_with(&self, holder: &str, limits: LeaseLimits) -> PostgresStore {
        PostgresStore::open_with_limits(self.settings(), holder, limits).unwrap()
    }

    fn sql(&self, sql: &str) -> Vec<String> {
        let database = self.address.rsplit('/').next().unwrap();
        self.cluster.sql(database, sql)
    }

    fn refusal(&self) -> StoreError {
        PostgresStore::open(self.settings(), "a test")
            .map(drop)
            .unwrap_err()
    }
}

impl StoreHarness for PostgresPlace {
    fn open(&mut self) -> Box<dyn Store> {
        Box::new(self.store())
    }

    /// The server keeps its state when a daemon ends, so another connection sees what a crash of
    /// the daemon leaves.
    fn open_after_crash(&mut self) -> Box<dyn Store> {
        Box::new(self.store())
    }

    fn backup_path(&mut self) -> PathBuf {
        self.copies += 1;
        self.directory
            .path()
            .join(format!("backup-{}.db", self.copies))
    }

    fn open_backup(&mut self, path: &Path) -> Box<dyn Store> {
        Box::new(SqliteStore::open(path).unwrap())
    }

    fn with_failing_commits(&mut self, during: &mut dyn FnMut()) {
        self.sql(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
            RAISE EXCEPTION 'refused'; END $$; CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON \
            lease DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
        );
        during();
        self.sql("DROP TRIGGER refuse ON lease");
    }
}

/// Runs every case of the common suite, each with its own database.
#[test]
fn suite_of_all_stores() {
    let Some(cluster) = cluster("postgres::suite_of_all_stores") else {
        return;
    };
    eprintln!("{}", cluster.version());
    for (name, case) in regatta_testkit::store_suite::CASES {
        eprintln!("case {name}");
        case(&mut PostgresPlace::new(cluster));
    }
}

/// A lease that expires at once and is never extended.
const SHORT: LeaseLimits = LeaseLimits {
    ttl: Duration::from_millis(300),
    renewal_interval: Duration::from_secs(3_600),
};
const LONG: LeaseLimits = LeaseLimits {
    ttl: Duration::from_secs(600),
    renewal_interval: Duration::from_secs(3_600),
};

/// Waits until the lease has expired on the server's clock, which is the only clock that counts.
fn wait_until_expired(place: &PostgresPlace) {
    while place
        .sql("SELECT 1 FROM lease WHERE expires < clock_timestamp()")
        .is_empty()
    {
        std::thread::yield_now();
    }
}

/// D12: a daemon whose lease another one took over commits nothing, and learns who did.
#[test]
fn d12_a_writer_of_an_old_epoch_commits_nothing() {
    let Some(cluster) = cluster("postgres::d12_a_writer_of_an_old_epoch_commits_nothing") else {
        return;
    };
    let place = PostgresPlace::new(cluster);
    let steps = all_steps();
    let mut old = place.store_with("the old daemon", SHORT);
    commit_all(&mut old, &steps[..3]);
    wait_until_expired(&place);
    let mut new = place.store_with("the new daemon", LONG);
    commit_all(&mut new, &steps[3..5]);
    for step in &steps[3..6] {
        let refused = old.commit(&step.batch).unwrap_err();
        assert_eq!(refused.code, "second_writer", "{refused}");
    }
    assert!(new.load().unwrap().board == steps[4].board);
    assert_eq!(place.sql("SELECT epoch FROM lease"), ["2"]);
    commit_all(&mut new, &steps[5..8]);
    new.check().unwrap();
}

/// D12: while a lease lasts, nobody else can acquire it, whatever revision they have.
#[test]
fn d12_a_lease_that_lasts_keeps_others_out() {
    let Some(cluster) = cluster("postgres::d12_a_lease_that_lasts_keeps_others_out") else {
        return;
    };
    let place = PostgresPlace::new(cluster);
    let steps = all_steps();
    let mut first = place.store_with("the first daemon", LONG);
    commit_all(&mut first, &steps[..3]);
    let mut second = place.store_with("the second daemon", LONG);
    let refused = second.commit(&steps[3].batch).unwrap_err();
    assert_eq!(refused.code, "second_writer");
    assert!(refused.message.contains("the first daemon"), "{refused}");
    commit_all(&mut first, &steps[3..5]);
    drop(first); // gives the lease back
    commit_all(&mut second, &steps[5..7]);
    assert!(second.load().unwrap().board == steps[6].board);
}

/// A daemon that was slow, but that nobody replaced, continues with a new epoch.
#[test]
fn an_expired_lease_that_nobody_took_is_acquired_again() {
    let Some(cluster) = cluster("postgres::an_expired_lease_that_nobody_took_is_acquired_again")
    else {
        return;
    };
    let place = PostgresPlace::new(cluster);
    let steps = all_steps();
    let mut store = place.store_with("a slow daemon", SHORT);
    commit_all(&mut store, &steps[..2]);
    wait_until_expired(&place);
    commit_all(&mut store, &steps[2..4]);
    assert!(store.load().unwrap().board == steps[3].board);
    assert!(place.sql("SELECT epoch FROM lease") != ["1"]);
}

/// An idle daemon keeps its lease.
#[test]
fn an_idle_daemon_extends_its_lease() {
    let Some(cluster) = cluster("postgres::an_idle_daemon_extends_its_lease") else {
        return;
    };
    let place = PostgresPlace::new(cluster);
    let steps = all_steps();
    let limits = LeaseLimits {
        renewal_interval: Duration::from_millis(20),
        ..LONG
    };
    let mut store = place.store_with("an idle daemon", limits);
    commit_all(&mut store, &steps[..2]);
    let expires = || place.sql("SELECT expires FROM lease");
    let before = expires();
    while expires() == before {
        std::thread::yield_now();
    }
    assert_eq!(place.sql("SELECT epoch FROM lease"), ["1"]);
}

/// J12: the connection is opened again when the server ended it, and nothing is lost.
#[test]
fn j12_a_lost_connection_is_opened_again() {
    let Some(cluster) = cluster("postgres::j12_a_lost_connection_is_opened_again") else {
        return;
    };
    let place = PostgresPlace::new(cluster);
    let steps = all_steps();
    let mut store = place.store_with("a daemon", LONG);
    commit_all(&mut store, &steps[..3]);
    place.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = \
        current_database() AND pid <> pg_backend_pid()",
    );
    // The first commit may still use the connection that the server ended. It reports that, and
    // stores nothing.
    let mut tries = 0;
    while let Err(error) = store.commit(&steps[3].batch) {
        assert_eq!(error.code, "database_away", "{error}");
        assert_eq!(store.revision().unwrap(), steps[2].board.revision);
        tries += 1;
        assert!(tries < 3);
    }
    assert!(store.load().unwrap().board == steps[3].board);
    assert_eq!(store.history().events(0, 10_000).unwrap().len(), {
        steps[..4]
            .iter()
            .map(|step| step.batch.events.len())
            .sum::<usize>()
    });
}

/// D6: a database that a newer program wrote is refused and not changed.
#[test]
fn d6_a_newer_schema_is_refused() {
    let Some(cluster) = cluster("postgres::d6_a_newer_schema_is_refused") else {
        return;
    };
    let place = PostgresPlace::new(cluster);
    drop(place.store());
    place.sql("UPDATE regatta_schema SET version = 99");
    assert_eq!(place.refusal().code, "newer_version");
    assert_eq!(place.sql("SELECT version FROM regatta_schema"), ["99"]);
}

/// D11: a damaged row is reported, and everything else is loaded.
#[test]
fn d11_a_damaged_row_is_reported_and_the_rest_is_loaded() {
    let Some(cluster) = cluster("postgres::d11_a_damaged_row_is_reported_and_the_rest_is_loaded")
    else {
        return;
    };
    let place = PostgresPlace::new(cluster);
    let mut store = place.store();
    commit_all(&mut store, &all_steps());
    let before = store.load().unwrap().board.agents.len();
    place.sql("UPDATE rows SET body = 'no json' WHERE kind = 'agents' AND name = (SELECT min(name) FROM rows WHERE kind = 'agents')");
    let loaded = store.load().unwrap();
    assert_eq!(loaded.board.agents.len(), before - 1);
    assert_eq!(loaded.unreadable_rows.len(), 1);
    assert_eq!(loaded.unreadable_rows[0].table, "agents");
    assert_eq!(store.check().unwrap_err().code, "corrupt");
}
