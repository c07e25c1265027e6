//! Tests that journals keep the output of programs complete, in order and within the limits.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use regatta_agents::{AgentsAdapter, PrunedJournals, ShimLimits};
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{Agents, Exit, JournalStream};

use crate::support::{A1, TEST_TIMEOUT, World, adapter, eventually, printed_output};

/// Creates a world with limits.
fn world_with_limits(limits: ShimLimits) -> World {
    let mut world = World::new();
    world.adapter = world.adapter.clone().with_limits(limits);
    world
}

fn mark_texts(world: &World) -> Vec<String> {
    world
        .records()
        .iter()
        .filter(|record| record.stream == JournalStream::Mark)
        .filter_map(regatta_agents::record_text)
        .collect()
}

#[test]
fn p2_binary_output_is_kept_as_text_and_the_last_line_needs_no_newline() {
    let world = World::new();
    let script =
        r"printf 'a\000b\n\377\376\n\n\033[31mred\r\n'; printf 'no newline' >&2; printf 'the end'";
    assert_eq!(world.run(script), Exit::Code(0));
    assert_eq!(
        world.lines(JournalStream::Out),
        ["a\0b", "\u{fffd}\u{fffd}", "", "\u{1b}[31mred\r", "the end"]
    );
    assert_eq!(world.lines(JournalStream::Err), ["no newline"]);
    let noise = World::new();
    assert_eq!(
        noise.run("head -c 3000000 /dev/urandom | tee noise"),
        Exit::Code(0)
    );
    let raw = fs::read(noise.workspace.join("noise")).unwrap();
    let expected: Vec<String> = raw
        .split(|byte| *byte == b'\n')
        .map(|raw| String::from_utf8_lossy(raw).into_owned())
        .collect();
    let found = noise.lines(JournalStream::Out);
    assert_eq!(
        found.len(),
        expected.len() - usize::from(raw.ends_with(b"\n"))
    );
    assert!(
        found
            .iter()
            .zip(&expected)
            .all(|(found, expected)| found == expected)
    );
}

#[test]
fn p2_a_long_line_is_cut_and_the_missing_bytes_are_counted() {
    let world = world_with_limits(ShimLimits {
        line_bytes: 1000,
        ..ShimLimits::default()
    });
    assert_eq!(
        world.run("head -c 5000 /dev/zero | tr '\\0' x; echo; echo short"),
        Exit::Code(0)
    );
    assert_eq!(
        world.lines(JournalStream::Out),
        ["x".repeat(1000), "short".to_owned()]
    );
    assert_eq!(
        mark_texts(&world),
        ["[4000 more bytes of this line were cut]"]
    );
    let order: Vec<JournalStream> = world.records().iter().map(|record| record.stream).collect();
    assert_eq!(
        order,
        [
            JournalStream::InEnd,
            JournalStream::Out,
            JournalStream::Mark,
            JournalStream::Out
        ],
        "the mark follows its line"
    );
}

#[test]
fn p2_a_full_journal_counts_dropped_lines_and_the_program_continues() {
    let world = world_with_limits(ShimLimits {
        journal_bytes: 50_000,
        segment_bytes: 8_000,
        ..ShimLimits::default()
    });
    assert_eq!(world.run("seq 1 100000"), Exit::Code(0));
    let lines = world.lines(JournalStream::Out);
    let expected: Vec<String> = (1..=100_000).map(|n: u32| n.to_string()).collect();
    assert!(lines.len() > 100 && lines.len() < 2000, "{}", lines.len());
    assert_eq!(lines, expected[..lines.len()]);
    let dropped = &expected[lines.len()..];
    let bytes: usize = dropped.iter().map(|dropped| dropped.len() + 1).sum();
    let last = format!("[{} lines, {bytes} bytes, were dropped]", dropped.len());
    assert_eq!(mark_texts(&world)[1..], [last]);
    let size: u64 = journal_files(&world)
        .iter()
        .map(|path| path.metadata().unwrap().len())
        .sum();
    assert!(size < 60_000, "{size} bytes");
    assert!(journal_files(&world).len() > 3);
}

fn journal_files(world: &World) -> Vec<std::path::PathBuf> {
    let all = fs::read_dir(world.run_dir())
        .unwrap()
        .map(|result| result.unwrap().path());
    all.filter(|path| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("journal-")
    })
    .collect()
}

/// P8, P2: a program that prints without end is read slowly, and nothing is cut.
#[test]
fn p8_a_flooding_program_is_slowed_down_and_loses_nothing() {
    let limits = ShimLimits {
        bytes_per_second: 1 << 20,
        burst_bytes: 1 << 20,
        ..ShimLimits::default()
    };
    let world = world_with_limits(limits);
    world.start("exec yes flood");
    eventually("the program floods", || world.records().len() > 2000);
    let (before, counted) = (Instant::now(), world.records().len());
    eventually("more output comes", || {
        world.records().len() > counted + 20_000
    });
    let size: u64 = journal_files(&world)
        .iter()
        .map(|path| path.metadata().unwrap().len())
        .sum();
    let allowed = (2 << 20) + (before.elapsed().as_secs() + 20) * (1 << 20);
    assert!(size < allowed, "{size} bytes are more than {allowed}");
    assert!(
        world
            .lines(JournalStream::Out)
            .iter()
            .all(|line| line == "flood")
    );
    assert_eq!(
        world.adapter.stop(A1, Duration::from_secs(5)),
        Ok(Exit::Signal(15))
    );
    world.assert_nothing_runs();
}

/// P8: the test counts lines and measures no time.
#[test]
fn p8_a_flooding_program_does_not_slow_down_others() {
    let world = World::new();
    let limits = ShimLimits {
        bytes_per_second: 1 << 20,
        burst_bytes: 1 << 20,
        ..ShimLimits::default()
    };
    let flooded = adapter(&world.data()).with_limits(limits);
    let mut flood = world.launch(&["yes", "flood"]);
    flood.attempt = AttemptId(2);
    flooded.start(&flood).unwrap();
    // The flooding program has used up its burst and is slow now.
    eventually("the program floods", || {
        flooded.read_journal(AttemptId(2), 1, 5000).unwrap().len() == 5000
    });
    assert_eq!(world.run("seq 1 50000"), Exit::Code(0));
    assert_eq!(world.lines(JournalStream::Out).len(), 50_000);
    let (lines_of_other, all) = (
        world.lines(JournalStream::Out).len(),
        flooded.read_journal(AttemptId(2), 1, usize::MAX).unwrap(),
    );
    flooded.stop(AttemptId(2), Duration::ZERO).unwrap();
    assert!(
        all.len() < 40 * lines_of_other,
        "{} lines of the flood, {lines_of_other} of the other",
        all.len()
    );
}

#[test]
fn p2_thirty_simultaneous_programs_lose_no_output() {
    let world = World::new();
    let attempts: Vec<AttemptId> = (1..=30).map(AttemptId).collect();
    std::thread::scope(|scope| {
        for attempt in &attempts {
            let world = &world;
            scope.spawn(move || {
                let mut launch = world.launch(&["sh", "-c", "seq 1 2000; seq 2001 2100 >&2"]);
                launch.attempt = *attempt;
                world.adapter.start(&launch).unwrap();
                assert_eq!(
                    world.adapter.wait(*attempt, TEST_TIMEOUT).unwrap(),
                    Some(Exit::Code(0))
                );
            });
        }
    });
    let expected: Vec<String> = (1..=2100).map(|n: u32| n.to_string()).collect();
    for attempt in attempts {
        let records = world.adapter.read_journal(attempt, 1, usize::MAX).unwrap();
        let lines_of = |stream| {
            records
                .iter()
                .filter(move |record| record.stream == stream)
                .map(|record| record.line.as_str())
        };
        assert_eq!(
            lines_of(JournalStream::Out)
                .chain(lines_of(JournalStream::Err))
                .collect::<Vec<_>>(),
            expected
        );
    }
}

/// S4: a secret of the launch is in no file, although the program prints it on both streams.
#[test]
fn s4_a_secret_is_redacted_before_it_is_written() {
    let world = World::new();
    let mut launch = world.launch(&[
        "sh",
        "-c",
        "echo key: $AGENT_KEY; echo $AGENT_KEY >&2; echo plain",
    ]);
    let file = world.workspace.join("key");
    fs::write(&file, "sk-a-secret-of-the-agent\n").unwrap();
    let from = regatta_core::agent::SecretSource::File(file.to_str().unwrap().to_owned());
    launch
        .profile
        .keys
        .push(regatta_core::agent::SecretVariable {
            name: "AGENT_KEY".to_owned(),
            from,
        });
    world.adapter.start(&launch).unwrap();
    assert_eq!(world.wait(), Exit::Code(0));
    assert!(
        world.output().contains("plain") && world.output().contains("key: [redacted"),
        "{}",
        world.output()
    );
    let found = std::process::Command::new("grep")
        .arg("-r")
        .arg("a-secret-of")
        .arg(world.data())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn shim_works_in_a_data_directory_with_a_long_path() {
    let world = World::new();
    let deep_dir = world.data().join("d".repeat(120)).join("e".repeat(120));
    let adapter: AgentsAdapter = adapter(&deep_dir);
    adapter
        .start(&world.launch(&["sh", "-c", "echo here; sleep 1000"]))
        .unwrap();
    eventually("the program prints", || {
        printed_output(&adapter, A1) == "here\n"
    });
    let socket = deep_dir.join("attempts/A1/shim.sock");
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(socket).unwrap().permissions())
            & 0o777,
        0o600
    );
    assert_eq!(
        adapter.stop(A1, Duration::from_secs(5)),
        Ok(Exit::Signal(15))
    );
}

#[test]
fn journals_of_ended_attempts_are_compressed_then_removed() {
    let world = World::new();
    assert_eq!(world.run("seq 1 5000"), Exit::Code(0));
    let mut running = world.launch(&["sh", "-c", "echo up; exec sleep 1000"]);
    running.attempt = AttemptId(2);
    world.adapter.start(&running).unwrap();
    eventually("the program runs", || {
        printed_output(&world.adapter, AttemptId(2)) == "up\n"
    });
    let prune = |older, compress| {
        world
            .adapter
            .prune(
                Duration::from_secs(older),
                Duration::from_secs(compress),
                std::time::SystemTime::now(),
            )
            .unwrap()
    };
    let (all_records, journal_size) = (world.records(), |world: &World| -> u64 {
        journal_files(world)
            .iter()
            .map(|path| path.metadata().unwrap().len())
            .sum()
    });
    let before = journal_size(&world);

    assert_eq!(
        prune(1000, 1000),
        PrunedJournals::default(),
        "the journal is too young"
    );
    // The shim holds its lock for a moment after its last record.
    eventually("the journal is compressed", || {
        prune(1000, 0).compressed == [A1]
    });
    assert!(
        journal_size(&world) < before / 3,
        "{before} became {}",
        journal_size(&world)
    );
    assert_eq!(world.records(), all_records);
    assert_eq!(
        world.adapter.transcript(A1, 4000, 2).unwrap()[1].record,
        all_records[4000]
    );
    assert!(world.adapter.tail(A1, 10).unwrap().ends_with("5000\n"));
    assert_eq!(
        prune(1000, 0),
        PrunedJournals::default(),
        "the journal is compressed already"
    );

    let removed = prune(0, 0);
    assert_eq!(
        removed,
        PrunedJournals {
            compressed: vec![],
            removed: vec![A1]
        }
    );
    assert_eq!(
        (world.records(), world.wait()),
        (vec![], Exit::Code(0)),
        "the exit is still known"
    );
    world.start("echo again > again");
    assert_eq!(world.file("again"), "", "the program is not started again");
    assert_eq!(
        printed_output(&world.adapter, AttemptId(2)),
        "up\n",
        "the running program is not changed"
    );
    // An attempt whose record has a date in the future is not changed either.
    world.adapter.stop(AttemptId(2), Duration::ZERO).unwrap();
    let record = fs::File::options()
        .append(true)
        .open(world.data().join("attempts/A2/exit.json"))
        .unwrap();
    record
        .set_modified(SystemTime::now() + Duration::from_secs(100_000))
        .unwrap();
    assert_eq!(prune(1000, 1000), PrunedJournals::default());
}
