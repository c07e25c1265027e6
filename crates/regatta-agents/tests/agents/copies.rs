//! Tests of journal copies, for programs that run on another machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use regatta_agents::{AgentsAdapter, ShimLimits};
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{Agents, Exit, JournalRecord, JournalStream, ProcessState};

use crate::support::{A1, World, adapter};

/// Returns the adapter of the machine that keeps the copies, in a directory of this world.
fn copying_adapter(world: &World) -> AgentsAdapter {
    adapter(&world.data().join("elsewhere"))
}

fn copy_dir(world: &World) -> PathBuf {
    world.data().join("elsewhere/attempts/A1")
}

fn record(position: u64) -> JournalRecord {
    let stream = [
        JournalStream::Out,
        JournalStream::Err,
        JournalStream::In,
        JournalStream::Mark,
    ][position as usize % 4];
    JournalRecord {
        position,
        written_unix_ms: 1_700_000_000_000 + position,
        stream,
        line: format!("line \"{position}\" \u{1f980}\n\t"),
    }
}

fn numbered_records(places: impl IntoIterator<Item = u64>) -> Vec<JournalRecord> {
    places.into_iter().map(record).collect()
}

fn read_records(adapter: &AgentsAdapter) -> Vec<JournalRecord> {
    adapter
        .transcript(A1, 1, usize::MAX)
        .unwrap()
        .into_iter()
        .map(|line| line.record)
        .collect()
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(dir)
        .unwrap()
        .map(|result| result.unwrap().path());
    let mut found: Vec<PathBuf> = all
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("journal-")
        })
        .collect();
    found.sort();
    found
}

#[test]
fn copy_reads_like_the_original_journal() {
    let world = World::new();
    assert_eq!(
        world.run("echo one; echo two >&2; seq 1 500; echo '\u{1b}[1mend'"),
        Exit::Code(0)
    );
    let (here, there) = (&world.adapter, copying_adapter(&world));
    there
        .store_heading(A1, &here.journal_heading(A1).unwrap().unwrap())
        .unwrap();
    // The records are sent as by a runner, which begins after the last known number and sends
    // some records twice.
    let (mut calls, mut last) = (0, there.last_copied_position(A1).unwrap());
    while let records @ [_, ..] = here.records(A1, last + 1, 100).unwrap().as_slice() {
        assert_eq!(
            there.append_copy(A1, records),
            Ok(last + records.len() as u64)
        );
        assert_eq!(
            there.append_copy(A1, records),
            Ok(last + records.len() as u64),
            "repeated records are ignored"
        );
        (calls, last) = (calls + 1, there.last_copied_position(A1).unwrap());
    }
    assert!(calls > 5);
    assert_eq!(
        here.last_copied_position(A1).unwrap(),
        last,
        "a local journal reports its last record too"
    );
    let transcript = here.transcript(A1, 1, usize::MAX).unwrap();
    assert!(
        transcript.iter().any(|line| !line.events.is_empty()),
        "the records have events"
    );
    assert_eq!(there.transcript(A1, 1, usize::MAX).unwrap(), transcript);
    assert_eq!(there.transcript(A1, 300, 10).unwrap(), transcript[299..309]);
    assert_eq!(there.tail(A1, 100).unwrap(), here.tail(A1, 100).unwrap());
    assert!(there.last_record_unix_ms(A1).is_some());
    // A daemon that restarts reads the same.
    assert_eq!(
        copying_adapter(&world)
            .transcript(A1, 1, usize::MAX)
            .unwrap(),
        transcript
    );
    assert_eq!(copying_adapter(&world).last_copied_position(A1), Ok(last));
}

/// J8: records that are sent again after a lost reply, in any grouping, are stored once.
#[test]
fn j8_a_gap_is_refused_and_repeated_records_are_stored_once() {
    let world = World::new();
    let there = copying_adapter(&world);
    assert_eq!(there.last_copied_position(A1), Ok(0));
    assert_eq!(there.append_copy(A1, &[]), Ok(0));
    assert!(there.append_copy(A1, &numbered_records([2])).is_err());
    assert_eq!(there.append_copy(A1, &numbered_records(1..=3)), Ok(3));
    for (bad, why) in [
        (numbered_records([5]), "a gap before"),
        (numbered_records([4, 6]), "a gap within"),
        (numbered_records([4, 5, 5]), "one twice"),
        (numbered_records([5, 4]), "out of order"),
    ] {
        let error = there.append_copy(A1, &bad).unwrap_err();
        assert!(error.message.contains("continues at"), "{why}: {error}");
        assert_eq!(
            (read_records(&there), there.last_copied_position(A1)),
            (numbered_records(1..=3), Ok(3)),
            "{why}"
        );
    }
    assert_eq!(there.append_copy(A1, &numbered_records(1..=2)), Ok(3));
    assert_eq!(
        there.append_copy(A1, &numbered_records(2..=5)),
        Ok(5),
        "new records after repeated ones are added"
    );
    assert_eq!(read_records(&there), numbered_records(1..=5));
}

/// J8: a runner that reconnects may send while its old connection still sends.
#[test]
fn j8_simultaneous_senders_store_each_record_once() {
    let world = World::new();
    let there = copying_adapter(&world);
    std::thread::scope(|scope| {
        for step in [1, 3, 7, 10] {
            // One of the senders uses its own adapter, like another process.
            let (there, other) = (&there, copying_adapter(&world));
            scope.spawn(move || {
                let sender = if step == 7 { &other } else { there };
                let mut last = 0;
                while last < 200 {
                    // Another sender may have been faster, which is not a gap.
                    last = sender
                        .append_copy(A1, &numbered_records(last + 1..=(last + step).min(200)))
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(read_records(&there), numbered_records(1..=200));
}

/// D8 and D2: a copy that is cut at any byte, with any garbage after the cut, is a prefix of the
/// sent records, and the rest can be sent again.
#[test]
fn d8_d2_a_copy_that_is_cut_at_any_byte_continues() {
    let world = World::new();
    let all = numbered_records(1..=6);
    copying_adapter(&world).append_copy(A1, &all).unwrap();
    let path = segments(&copy_dir(&world)).pop().unwrap();
    let bytes = fs::read(&path).unwrap();
    let ends: Vec<usize> = (0..bytes.len())
        .filter(|index| bytes[*index] == b'\n')
        .collect();
    for cut in 0..=bytes.len() {
        let complete = ends.iter().filter(|end| **end < cut).count();
        let old_half = [b"x", &bytes[..bytes.len() / 2]].concat();
        for garbage in [&b""[..], &[0; 50], &old_half, b"{\"n\":1}\n"] {
            fs::write(&path, [&bytes[..cut], garbage].concat()).unwrap();
            let there = copying_adapter(&world);
            // A reader reads before the repair and continues afterwards.
            assert_eq!(read_records(&there), all[..complete], "at {cut}");
            assert_eq!(
                there.last_copied_position(A1),
                Ok(complete as u64),
                "at {cut} of {}",
                bytes.len()
            );
            assert_eq!(there.append_copy(A1, &all), Ok(6));
            assert_eq!(
                there.transcript(A1, complete as u64 + 1, 10).unwrap().len(),
                6 - complete,
                "at {cut}"
            );
            assert_eq!(fs::read(&path).unwrap(), bytes, "at {cut}");
        }
    }
}

/// D8: after a hole in the middle of many segments, the records behind the hole are sent again.
#[test]
fn d8_records_after_a_hole_are_dropped_and_can_be_sent_again() {
    let world = World::new();
    let small = || {
        copying_adapter(&world).with_limits(ShimLimits {
            segment_bytes: 300,
            ..ShimLimits::default()
        })
    };
    let all = numbered_records(1..=40);
    assert_eq!(small().append_copy(A1, &all), Ok(40));
    let before = segments(&copy_dir(&world));
    assert!(before.len() > 5);
    let torn = File::options().write(true).open(&before[2]).unwrap();
    torn.set_len(torn.metadata().unwrap().len() - 5).unwrap();
    let there = small();
    let last = there.last_copied_position(A1).unwrap();
    assert!(last > 3 && last < 20, "{last}");
    assert_eq!(read_records(&there), all[..last as usize]);
    assert_eq!(segments(&copy_dir(&world)).len(), 3);
    assert_eq!(there.append_copy(A1, &all), Ok(40));
    assert_eq!(read_records(&there), all);
    // The same holds for a whole missing segment.
    fs::remove_file(&segments(&copy_dir(&world))[0]).unwrap();
    assert_eq!(small().last_copied_position(A1), Ok(0));
    assert_eq!(small().append_copy(A1, &all), Ok(40));
}

/// J2: the journal of a local program is not a copy, and a copied program runs elsewhere.
#[test]
fn j2_an_attempt_runs_on_one_machine_only() {
    let world = World::new();
    world.start("echo mine; exec sleep 600");
    crate::support::eventually("the program prints", || world.output() == "mine\n");
    let before = world.records();
    for _ in 0..2 {
        let error = world
            .adapter
            .append_copy(A1, &numbered_records(1..=50))
            .unwrap_err();
        assert!(error.message.contains("on this machine"), "{error}");
        assert!(
            world
                .adapter
                .store_heading(A1, &world.adapter.journal_heading(A1).unwrap().unwrap())
                .is_err()
        );
        assert_eq!(world.records(), before);
        // The same holds after the program's end.
        world.adapter.stop(A1, Duration::ZERO).unwrap();
    }
    let there = copying_adapter(&world);
    there.append_copy(A1, &numbered_records(1..=3)).unwrap();
    let error = there
        .start(&world.launch(&["touch", "started"]))
        .unwrap_err();
    assert!(error.message.contains("another machine"), "{error}");
    // P10: an adapter that cannot stop the program does not report it as stopped.
    assert!(there.stop(A1, Duration::ZERO).is_err());
    assert_eq!(there.state(A1), Ok(ProcessState::NotStarted));
    assert!(!world.workspace.join("started").exists());
    assert_eq!(there.append_copy(A1, &numbered_records(4..=4)), Ok(4));
}

#[test]
fn heading_of_another_attempt_is_refused() {
    let world = World::new();
    let mut launch = world.launch(&["true"]);
    launch.env.push(("KEY".into(), "hunter2-hunter2".into()));
    world.adapter.start(&launch).unwrap();
    world.wait();
    let (heading, there) = (
        world.adapter.journal_heading(A1).unwrap().unwrap(),
        copying_adapter(&world),
    );
    assert_eq!(there.journal_heading(A1), Ok(None));
    assert!(
        !heading.contains("hunter2"),
        "the launch's variables are not in the heading"
    );
    for bad in [
        "",
        "{}",
        "null",
        &heading[..heading.len() - 1],
        &" ".repeat(2 << 20),
    ] {
        assert!(there.store_heading(A1, bad).is_err());
    }
    assert!(there.store_heading(AttemptId(2), &heading).is_err());
    // Records may come before the heading, which then adds their events for readers that have
    // already begun.
    there.append_copy(A1, &world.records()).unwrap();
    assert!(
        there
            .transcript(A1, 1, 100)
            .unwrap()
            .iter()
            .all(|line| line.events.is_empty())
    );
    there.store_heading(A1, &heading).unwrap();
    there.store_heading(A1, &heading).unwrap();
    assert_eq!(
        there.transcript(A1, 1, 100).unwrap(),
        world.adapter.transcript(A1, 1, 100).unwrap()
    );
}

#[test]
fn old_copy_is_compressed_and_later_removed() {
    let world = World::new();
    let there = copying_adapter(&world);
    there.append_copy(A1, &numbered_records(1..=100)).unwrap();
    let path = segments(&copy_dir(&world)).pop().unwrap();
    let old_time = fs::metadata(&path).unwrap().modified().unwrap() - Duration::from_secs(1000);
    let older = || {
        File::options()
            .append(true)
            .open(segments(&copy_dir(&world)).pop().unwrap())
            .unwrap()
            .set_modified(old_time)
            .unwrap()
    };
    let prune = |older, compress| {
        there
            .prune(
                Duration::from_secs(older),
                Duration::from_secs(compress),
                std::time::SystemTime::now(),
            )
            .unwrap()
    };
    assert!(
        prune(9000, 500).compressed.is_empty(),
        "the copy is too young"
    );
    older();
    let last_record_ms = there.last_record_unix_ms(A1);
    assert_eq!(prune(9000, 500).compressed, [A1]);
    assert!(
        segments(&copy_dir(&world))[0]
            .to_string_lossy()
            .ends_with(".gz")
    );
    assert_eq!(
        there.last_record_unix_ms(A1),
        last_record_ms,
        "compressing does not change the time of the last record"
    );
    assert_eq!(read_records(&there), numbered_records(1..=100));
    // More records can still be added, also by a daemon that restarts.
    assert_eq!(there.append_copy(A1, &numbered_records(99..=110)), Ok(110));
    assert_eq!(
        copying_adapter(&world).append_copy(A1, &numbered_records(105..=120)),
        Ok(120)
    );
    assert_eq!(
        there.append_copy(A1, &numbered_records(110..=130)),
        Ok(130),
        "an adapter that did not see the other records can add records too"
    );
    assert_eq!(read_records(&there), numbered_records(1..=130));
    older();
    assert_eq!(prune(500, 100).removed, [A1]);
    assert_eq!(
        (read_records(&there), there.last_copied_position(A1)),
        (vec![], Ok(0))
    );
}

#[test]
fn copy_has_the_limits_of_a_journal() {
    let world = World::new();
    let there = copying_adapter(&world).with_limits(ShimLimits {
        journal_bytes: 1000,
        ..ShimLimits::default()
    });
    let long_record = |position: u64, bytes: usize| JournalRecord {
        line: "\u{1}".repeat(bytes),
        ..record(position)
    };
    assert!(
        there
            .append_copy(A1, &[long_record(1, 11 << 20)])
            .unwrap_err()
            .message
            .contains("longer than a journal allows")
    );
    assert_eq!(there.last_copied_position(A1), Ok(0));
    // A record of the maximum length can be read again.
    assert_eq!(there.append_copy(A1, &[long_record(1, 10 << 20)]), Ok(1));
    assert_eq!(read_records(&there), [long_record(1, 10 << 20)]);
    assert!(
        there
            .append_copy(A1, &[long_record(2, 10 << 20)])
            .unwrap_err()
            .message
            .contains("its size limit")
    );
    assert_eq!(there.last_copied_position(A1), Ok(1));
}

/// A sender reads in order, and a bounded part each time.
#[test]
fn records_are_read_in_bounded_parts() {
    let world = World::new();
    let there = copying_adapter(&world);
    let all: Vec<JournalRecord> = (1..=20)
        .map(|position| JournalRecord {
            line: "x".repeat(1 << 20),
            ..record(position)
        })
        .collect();
    there.append_copy(A1, &all).unwrap();
    let (mut from, mut parts) = (1, Vec::new());
    loop {
        let part = there.records(A1, from, 100).unwrap();
        let Some(last) = part.last() else { break };
        from = last.position + 1;
        parts.push(part.len());
    }
    assert_eq!((from, parts.iter().sum::<usize>()), (21, 20));
    assert!(parts.iter().all(|part| *part <= 4), "{parts:?}");
    assert_eq!(there.records(A1, 3, 2).unwrap(), all[2..4]);
    assert_eq!(there.records(A1, 21, 2), Ok(vec![]));
    there.append_copy(A1, &numbered_records([21])).unwrap();
    assert_eq!(
        there.records(A1, 21, 2),
        Ok(numbered_records([21])),
        "new records are read too"
    );
}
