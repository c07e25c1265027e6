//! Writes zip files, the format of Python wheels, whose bytes depend only on the content.

use std::io::Write;

use anyhow::{Context, ensure};
use flate2::Compression;
use flate2::write::DeflateEncoder;

use super::archive::Entry;

/// 1 January 1980, 00:00: the first moment that a zip file can name. Wheels need no times.
const DATE: u16 = (1 << 5) | 1;
const DEFLATED: u16 = 8;
const MADE_ON_UNIX: u16 = (3 << 8) | 20;
const REGULAR_FILE: u32 = 0o100_000;

/// Writes a zip file. The entries keep their order, because a wheel's RECORD comes last.
pub(crate) fn zip(entries: &[Entry]) -> anyhow::Result<Vec<u8>> {
    let mut archive = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let offset = u32::try_from(archive.len()).context("the zip file is too large")?;
        let mut writer = DeflateEncoder::new(Vec::new(), Compression::best());
        writer.write_all(&entry.bytes)?;
        let packed = writer.finish()?;
        let mut common = Vec::new();
        for field in [20, 0, DEFLATED, 0, DATE] {
            common.extend(u16::to_le_bytes(field));
        }
        common.extend(crc32fast::hash(&entry.bytes).to_le_bytes());
        common.extend(u32::try_from(packed.len())?.to_le_bytes());
        common.extend(u32::try_from(entry.bytes.len())?.to_le_bytes());
        common.extend(u16::try_from(entry.path.len())?.to_le_bytes());
        common.extend([0, 0]); // no extra fields

        archive.extend(b"PK\x03\x04");
        archive.extend(&common);
        archive.extend(entry.path.as_bytes());
        archive.extend(&packed);

        directory.extend(b"PK\x01\x02");
        directory.extend(MADE_ON_UNIX.to_le_bytes());
        directory.extend(&common);
        directory.extend([0; 6]); // no comment, first disk, no internal attributes
        directory.extend(((REGULAR_FILE | entry.mode) << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(entry.path.as_bytes());
    }
    ensure!(
        entries.len() < usize::from(u16::MAX),
        "too many files for a zip file"
    );
    let count = u16::try_from(entries.len())?.to_le_bytes();
    let start = u32::try_from(archive.len())?.to_le_bytes();
    let size = u32::try_from(directory.len())?.to_le_bytes();
    archive.extend(directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend(count);
    archive.extend(count);
    archive.extend(size);
    archive.extend(start);
    archive.extend([0, 0]); // no comment
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_points_at_each_file() {
        let entries = [
            Entry::program("bin/tool", "#!/bin/sh\n"),
            Entry::file("RECORD", ""),
        ];
        let archive = zip(&entries).expect("it is written");
        assert_eq!(
            archive,
            zip(&entries).expect("it is written"),
            "two runs are equal"
        );
        let end = archive.len() - 22;
        assert_eq!(archive[end..end + 4], *b"PK\x05\x06");
        let number = |at: usize| u32::from_le_bytes(archive[at..at + 4].try_into().expect("4"));
        let directory = number(end + 16) as usize;
        assert_eq!(archive[directory..directory + 4], *b"PK\x01\x02");
        assert_eq!(
            number(directory + 38) >> 16,
            0o100_755,
            "a program stays one"
        );
        assert_eq!(number(directory + 42), 0, "the first file is at the start");
        let second = directory + 46 + "bin/tool".len();
        let offset = number(second + 42) as usize;
        assert_eq!(archive[offset..offset + 4], *b"PK\x03\x04");
        assert_eq!(archive[offset + 30..offset + 36], *b"RECORD");
    }
}
