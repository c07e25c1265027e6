//! Runs the common test suite on both stores. The SQLite store is tested with the default limits
//! for deferred rows, with few deferred rows, and with all rows deferred.

mod sqlite {
    regatta_testkit::store_suite!(crate::support::StoreFile::new());
}

mod sqlite_with_deferred_rows {
    use regatta_store::DeferralLimits;
    regatta_testkit::store_suite!(crate::support::StoreFile::with_limits(DeferralLimits {
        min_rows_to_defer: 1,
        max_deferred_rows: 9
    }));
}

mod sqlite_with_many_deferred_rows {
    use regatta_store::DeferralLimits;
    regatta_testkit::store_suite!(crate::support::StoreFile::with_limits(DeferralLimits {
        min_rows_to_defer: 1,
        max_deferred_rows: usize::MAX
    }));
}

mod memory {
    use std::path::{Path, PathBuf};

    use regatta_engine::ports::store::{Store, StoreError};
    use regatta_testkit::fake_store::{CommitFault, FakeStore};
    use regatta_testkit::store_suite::StoreHarness;
    use regatta_testkit::store_suite::history_fixture::all_steps;

    #[derive(Default)]
    struct MemoryPlace(FakeStore);

    impl StoreHarness for MemoryPlace {
        fn open(&mut self) -> Box<dyn Store> {
            Box::new(self.0.clone())
        }
        fn open_after_crash(&mut self) -> Box<dyn Store> {
            Box::new(self.0.snapshot())
        }
        fn backup_path(&mut self) -> PathBuf {
            "/nowhere/backup.db".into()
        }
        fn open_backup(&mut self, path: &Path) -> Box<dyn Store> {
            Box::new(self.0.open_backup(path).unwrap())
        }
        fn with_failing_commits(&mut self, during: &mut dyn FnMut()) {
            self.0.fail_next(CommitFault::BeforeCommit(disk_full()));
            during();
        }
    }

    fn disk_full() -> StoreError {
        StoreError {
            code: "disk_full",
            message: "the disk is full".into(),
            hint: "free some space".into(),
        }
    }

    regatta_testkit::store_suite!(MemoryPlace::default());

    #[test]
    fn fault_before_a_commit_drops_it_and_fault_after_a_commit_keeps_it() {
        let steps = all_steps();
        let mut store = FakeStore::new();
        store.fail_after(1, CommitFault::BeforeCommit(disk_full()));
        store.commit(&steps[0].batch).unwrap();
        assert_eq!(store.commit(&steps[1].batch), Err(disk_full()));
        assert_eq!(
            store.load().unwrap().board.revision,
            steps[0].board.revision
        );
        store.fail_next(CommitFault::AfterCommit(disk_full()));
        assert_eq!(store.commit(&steps[1].batch), Err(disk_full()));
        assert!(store.clone().load().unwrap().board == steps[1].board);
        store.commit(&steps[2].batch).unwrap();
        assert_eq!(store.commit_count(), 3);
    }
}
