//! Tests of reading, writing and repairing journals.

use super::*;

const SEGMENT_BYTES: u64 = 1024;

fn writer(dir: &Path) -> JournalWriter {
    JournalWriter::new(dir.to_owned(), SEGMENT_BYTES, |_| false)
}

fn read_all(dir: &Path) -> Vec<JournalRecord> {
    let mut reader = JournalReader::new(dir);
    std::iter::from_fn(|| reader.next_record().unwrap()).collect()
}

fn sample_lines() -> Vec<String> {
    let mut lines: Vec<String> = (0..100)
        .map(|n| format!("line {n} of \"many\" with \\ and \t and ä🦀"))
        .collect();
    lines.extend([
        "".to_owned(),
        "\u{1}\u{1f}\u{7f}\r\n".to_owned(),
        "x\"".repeat(3 * WRITE_CHUNK_BYTES),
    ]);
    lines.extend((0..100).map(|n| n.to_string()));
    lines
}

fn written_lines(dir: &Path) -> Vec<String> {
    write_lines(dir, sample_lines())
}

fn write_lines(dir: &Path, lines: Vec<String>) -> Vec<String> {
    let mut writer = writer(dir);
    for (at, line) in (1..).zip(&lines) {
        let stream = if at % 3 == 0 {
            JournalStream::Err
        } else {
            JournalStream::Out
        };
        writer.append(at, stream, line).unwrap();
    }
    writer.sync().unwrap();
    lines
}

#[test]
fn written_records_are_read_back_across_segments_and_from_any_record() {
    let directory = tempfile::tempdir().unwrap();
    let lines = written_lines(directory.path());
    assert!(list_segments(directory.path()).unwrap().len() > 5);
    let records = read_all(directory.path());
    assert_eq!(
        records
            .iter()
            .map(|record| record.line.as_str())
            .collect::<Vec<_>>(),
        lines
    );
    assert!((1..).zip(&records).all(|(n, record)| record.position == n
        && record.written_unix_ms == n
        && (record.stream == JournalStream::Err) == (n % 3 == 0)));
    for from in [
        0,
        1,
        50,
        103,
        150,
        records.len() as u64,
        records.len() as u64 + 1,
    ] {
        let mut reader = JournalReader::from_record(directory.path(), from).unwrap();
        let rest: Vec<JournalRecord> =
            std::iter::from_fn(|| reader.next_record().unwrap()).collect();
        assert_eq!(
            rest,
            records[(from.max(1) as usize - 1).min(records.len())..],
            "from {from}"
        );
    }
}

#[test]
fn reader_follows_a_writer_into_new_segments() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, mut reader) = (
        writer(directory.path()),
        JournalReader::new(directory.path()),
    );
    for (n, line) in (1..).zip(sample_lines()) {
        assert_eq!(reader.next_record().unwrap(), None);
        writer.append(n, JournalStream::Out, &line).unwrap();
        writer.flush().unwrap();
        assert_eq!(
            reader
                .next_record()
                .unwrap()
                .map(|record| (record.position, record.line)),
            Some((n, line))
        );
    }
}

/// Damages the last segment in every possible way. A reader must return a prefix of the written
/// lines.
#[test]
fn d8_a_damaged_end_is_never_read_as_records() {
    let directory = tempfile::tempdir().unwrap();
    let lines = write_lines(
        directory.path(),
        (0..18).map(|n| format!("line \"{n}\"")).collect(),
    );
    let (first, path) = list_segments(directory.path()).unwrap().pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let older_segment = fs::read(directory.path().join(segment_name(1))).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..whole.len()).map(|n| whole[..n].to_vec()).collect();
    // The end is filled with zeros, replaced by a block of an older file, or has a flipped bit.
    for position in 0..whole.len() {
        let mut zeroed = whole.clone();
        zeroed[position..].fill(0);
        let mut overwritten = whole[..position].to_vec();
        overwritten.extend(
            older_segment
                .iter()
                .cycle()
                .skip(position)
                .take(whole.len() - position),
        );
        let mut flipped = whole.clone();
        flipped[position] ^= 1;
        damaged.extend([zeroed, overwritten, flipped]);
    }
    for bytes in damaged {
        fs::write(&path, &bytes).unwrap();
        let lines_read: Vec<String> = read_all(directory.path())
            .into_iter()
            .map(|record| record.line)
            .collect();
        assert!(
            lines_read.len() as u64 >= first - 1
                && lines_read.len() < lines.len() + usize::from(bytes == whole)
        );
        assert_eq!(lines_read, lines[..lines_read.len()]);
    }
}

#[test]
fn p9_a_disk_that_refuses_writes_for_a_while_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    // A missing directory also refuses writes.
    let dir = directory.path().join("later");
    let (created, mut attempts) = (dir.clone(), 0);
    let mut writer = JournalWriter::new(dir.clone(), SEGMENT_BYTES, move |_| {
        attempts += 1;
        if attempts == 3 {
            fs::create_dir(&created).unwrap();
        }
        true
    });
    writer.append(1, JournalStream::Out, "kept").unwrap();
    writer.flush().unwrap();
    assert_eq!(read_all(&dir).len(), 1);
}

#[test]
fn tail_is_the_end_of_the_printed_output() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(output_tail(directory.path(), 100).unwrap(), "");
    let mut writer = writer(directory.path());
    writer
        .append(1, JournalStream::Out, &"ä".repeat(3000))
        .unwrap();
    writer
        .append(1, JournalStream::Mark, "not printed")
        .unwrap();
    writer.append(1, JournalStream::Err, "the end").unwrap();
    writer.sync().unwrap();
    assert_eq!(output_tail(directory.path(), 8).unwrap(), "the end\n");
    assert_eq!(
        output_tail(directory.path(), 14).unwrap(),
        "ää\nthe end\n",
        "a character is never cut"
    );
    assert_eq!(
        output_tail(directory.path(), 1 << 20).unwrap().len(),
        6000 + 1 + 8
    );
}

#[test]
fn compressed_journal_reads_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let lines = written_lines(dir);
    let before: u64 = list_segments(dir)
        .unwrap()
        .iter()
        .map(|segment| segment.1.metadata().unwrap().len())
        .sum();
    // A crash during compression leaves both files, and the compressed one is incomplete.
    fs::write(dir.join(segment_name(1) + ".gz"), "half").unwrap();
    assert_eq!(read_all(dir).len(), lines.len());
    assert!(compress(dir).unwrap());
    assert!(!compress(dir).unwrap(), "the journal is compressed already");
    let after: u64 = list_segments(dir)
        .unwrap()
        .iter()
        .map(|segment| segment.1.metadata().unwrap().len())
        .sum();
    assert!(after < before / 2, "{before} became {after}");
    assert_eq!(
        read_all(dir)
            .into_iter()
            .map(|record| record.line)
            .collect::<Vec<_>>(),
        lines
    );
    let mut late = JournalReader::from_record(dir, 150).unwrap();
    assert_eq!(late.next_record().unwrap().unwrap().position, 150);
    assert!(output_tail(dir, 100).unwrap().ends_with("98\n99\n"));
    assert!(remove(dir).unwrap());
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
}

#[test]
fn reader_near_the_end_skips_the_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let all = written_lines(dir);
    let read_end = |bytes: u64| {
        let mut reader = JournalReader::near_end(dir, bytes).unwrap();
        let (mut position, mut lines) = (reader.position(), Vec::new());
        while let Some(record) = reader.next_record().unwrap() {
            assert_eq!(record.position, position);
            lines.push(record.line);
            position += 1;
        }
        lines
    };
    let total: u64 = list_segments(dir)
        .unwrap()
        .iter()
        .map(|segment| segment.1.metadata().unwrap().len())
        .sum();
    for bytes in [1, 100, 1_000, total / 2, total, 2 * total] {
        let end = read_end(bytes);
        assert!(all.ends_with(&end), "{bytes} bytes");
        assert_eq!(end.len() == all.len(), bytes >= total, "{bytes} bytes");
    }
    assert!(compress(dir).unwrap());
    let end = read_end(100);
    assert!(!end.is_empty() && all.ends_with(&end));
    assert_eq!(
        JournalReader::near_end(&dir.join("none"), 9)
            .unwrap()
            .position(),
        1
    );
}
