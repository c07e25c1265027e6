//! Runs the common test suite on both stores. The SQLite store is tested with the default limits for
//! deferred rows, with few deferred rows, and with all rows deferred.

mod sqlite {
    regatta_testkit::store_suite!(crate::support::Place::new());
}

mod sqlite_with_rows_behind {
    use regatta_store::Lag;
    regatta_testkit::store_suite!(crate::support::Place::behind(Lag { few: 1, most: 9 }));
}

mod sqlite_with_rows_far_behind {
    use regatta_store::Lag;
    regatta_testkit::store_suite!(crate::support::Place::behind(Lag { few: 1, most: usize::MAX }));
}

mod memory {
    use std::path::{Path, PathBuf};

    use regatta_engine::ports::store::{Store, StoreError};
    use regatta_testkit::memory::{Fault, MemoryStore};
    use regatta_testkit::store_suite::Harness;
    use regatta_testkit::store_suite::story::everything;

    #[derive(Default)]
    struct Memory(MemoryStore);

    impl Harness for Memory {
        fn open(&mut self) -> Box<dyn Store> {
            Box::new(self.0.clone())
        }
        fn after_crash(&mut self) -> Box<dyn Store> {
            Box::new(self.0.snapshot())
        }
        fn backup_path(&mut self) -> PathBuf {
            "/nowhere/backup.db".into()
        }
        fn open_backup(&mut self, path: &Path) -> Box<dyn Store> {
            Box::new(self.0.open_backup(path).unwrap())
        }
        fn while_broken(&mut self, during: &mut dyn FnMut()) {
            self.0.fail_next(Fault::Before(full()));
            during();
        }
    }

    fn full() -> StoreError {
        StoreError { code: "disk_full", what: "the disk is full".into(), hint: "free some space".into() }
    }

    regatta_testkit::store_suite!(Memory::default());

    #[test]
    fn fault_before_a_commit_drops_it_and_fault_after_a_commit_keeps_it() {
        let steps = everything();
        let mut store = MemoryStore::new();
        store.fail_after(1, Fault::Before(full()));
        store.commit(&steps[0].batch).unwrap();
        assert_eq!(store.commit(&steps[1].batch), Err(full()));
        assert_eq!(store.load().unwrap().board.revision, steps[0].board.revision);
        store.fail_next(Fault::After(full()));
        assert_eq!(store.commit(&steps[1].batch), Err(full()));
        assert!(store.clone().load().unwrap().board == steps[1].board);
        store.commit(&steps[2].batch).unwrap();
        assert_eq!(store.commits(), 3);
    }
}
