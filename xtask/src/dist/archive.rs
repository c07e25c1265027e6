//! Writes tar, ar and gzip files whose bytes depend only on the content: names are sorted, owners
//! are root, and all times are the time of the commit.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use flate2::{Compression, GzBuilder};

/// A file of a package, by its path from the package's root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Entry {
    /// Makes an ordinary file.
    pub(crate) fn file(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry {
            path: path.into(),
            mode: 0o644,
            bytes: bytes.into(),
        }
    }

    /// Makes a program.
    pub(crate) fn program(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry {
            path: path.into(),
            mode: 0o755,
            bytes: bytes.into(),
        }
    }

    /// Returns the same file below another directory.
    pub(crate) fn below(&self, directory: &str) -> Entry {
        Entry {
            path: format!("{directory}/{}", self.path),
            ..self.clone()
        }
    }
}

/// Selects whether a tar file lists the directories of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directories {
    Listed,
    Omitted,
}

/// Writes a tar file in the ustar format.
pub(crate) fn tar(
    entries: &[Entry],
    directories: Directories,
    time_unix_s: u64,
) -> anyhow::Result<Vec<u8>> {
    let mut files: Vec<&Entry> = entries.iter().collect();
    files.sort();
    for pair in files.windows(2) {
        ensure!(
            pair[0].path != pair[1].path,
            "{} is in the archive twice",
            pair[0].path
        );
    }
    let mut parents = BTreeSet::new();
    if directories == Directories::Listed {
        for file in &files {
            let above = Path::new(&file.path).ancestors().skip(1);
            let named = above
                .filter_map(Path::to_str)
                .filter(|name| !name.is_empty());
            parents.extend(
                named
                    .filter(|name| *name != ".")
                    .map(|name| format!("{name}/")),
            );
        }
    }
    let mut archive = Vec::new();
    for parent in &parents {
        archive.extend(header(parent, 0o755, 0, time_unix_s, b'5')?);
    }
    for file in &files {
        archive.extend(header(
            &file.path,
            file.mode,
            file.bytes.len(),
            time_unix_s,
            b'0',
        )?);
        archive.extend(&file.bytes);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    // Two empty blocks end the archive.
    archive.resize(archive.len() + 1024, 0);
    Ok(archive)
}

fn header(
    path: &str,
    mode: u32,
    size: usize,
    time_unix_s: u64,
    kind: u8,
) -> anyhow::Result<[u8; 512]> {
    let (prefix, name) = split_name(path).with_context(|| format!("{path} is too long for tar"))?;
    let mut block = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, format!("{time_unix_s:011o}").as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(265, b"root");
    put(297, b"root");
    put(345, prefix.as_bytes());
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

/// Splits a path into the prefix (at most 155 bytes) and the name (at most 100) of a tar header.
fn split_name(path: &str) -> Option<(&str, &str)> {
    if path.len() <= 100 {
        return Some(("", path));
    }
    let slashes = path.match_indices('/').map(|(at, _)| at);
    let mut splits = slashes.map(|at| (&path[..at], &path[at + 1..]));
    splits.find(|(prefix, name)| prefix.len() <= 155 && name.len() <= 100 && !name.is_empty())
}

/// Compresses with gzip, without a name and a time in the header.
pub(crate) fn gzip(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut writer = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}

/// Writes an ar file, the outer format of Debian packages. The members keep their order.
pub(crate) fn ar(members: &[(&str, Vec<u8>)], time_unix_s: u64) -> anyhow::Result<Vec<u8>> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        ensure!(name.len() <= 16, "{name} is too long for ar");
        let size = bytes.len();
        writeln!(
            archive,
            "{name:<16}{time_unix_s:<12}{:<6}{:<6}{:<8}{size:<10}`",
            0, 0, 100644
        )?;
        archive.extend(bytes);
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const TIME_UNIX_S: u64 = 1_795_055_918;

    fn samples() -> Vec<Entry> {
        vec![
            Entry::file("share/doc/readme", "read me\n"),
            Entry::program("bin/tool", vec![0_u8; 700]),
            Entry::file(format!("{}/long", long_directory()), ""),
        ]
    }

    /// Returns a path that does not fit into the name of a tar header.
    fn long_directory() -> String {
        format!("share/{}/{}", "d".repeat(60), "e".repeat(60))
    }

    /// Runs a program with `input` on its standard input and returns its output.
    fn pipe(program: &str, args: &[&str], input: &[u8]) -> String {
        let mut child = Command::new(program)
            .args(args)
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program is part of every Debian");
        child
            .stdin
            .take()
            .expect("it is piped")
            .write_all(input)
            .expect("it reads everything");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{program} refuses the archive");
        String::from_utf8(output.stdout).expect("it prints text")
    }

    #[test]
    fn tar_reads_the_archive() {
        let archive = tar(&samples(), Directories::Listed, TIME_UNIX_S).expect("it is written");
        let list = pipe(
            "tar",
            &["--list", "--verbose", "--numeric-owner", "--file=-"],
            &archive,
        );
        let lines: Vec<&str> = list.lines().collect();
        assert_eq!(lines.len(), 5 + 3, "{list}");
        assert!(
            lines[0].starts_with("drwxr-xr-x 0/0") && lines[0].ends_with(" bin/"),
            "{list}"
        );
        assert!(
            list.contains("-rwxr-xr-x 0/0") && list.contains(" bin/tool"),
            "{list}"
        );
        assert!(
            list.contains("-rw-r--r-- 0/0") && list.contains(" share/doc/readme"),
            "{list}"
        );
        assert!(
            list.contains(&format!(" {}/long", long_directory())),
            "{list}"
        );
        assert!(list.contains("2026-11-19"), "{list}");
        let text = pipe(
            "tar",
            &["--extract", "--to-stdout", "--file=-", "share/doc/readme"],
            &archive,
        );
        assert_eq!(text, "read me\n");
    }

    #[test]
    fn the_order_of_the_files_does_not_change_the_archive() {
        let mut turned = samples();
        turned.reverse();
        let one = tar(&samples(), Directories::Omitted, TIME_UNIX_S).expect("it is written");
        let other = tar(&turned, Directories::Omitted, TIME_UNIX_S).expect("it is written");
        assert_eq!(one, other);
        assert_eq!(
            gzip(&one).expect("it is written"),
            gzip(&other).expect("it is written")
        );
        let later = tar(&samples(), Directories::Omitted, TIME_UNIX_S + 1).expect("it is written");
        assert_ne!(one, later, "the time is part of the archive");
    }

    #[test]
    fn a_path_that_occurs_twice_or_is_too_long_is_refused() {
        let twice = [Entry::file("a", "1"), Entry::file("a", "2")];
        let error = tar(&twice, Directories::Omitted, 0).expect_err("it must be refused");
        assert_eq!(error.to_string(), "a is in the archive twice");
        let long = [Entry::file("n".repeat(101), "")];
        assert!(tar(&long, Directories::Omitted, 0).is_err());
    }

    #[test]
    fn gzip_has_no_time_and_no_name() {
        let bytes = gzip(b"text").expect("it is written");
        assert_eq!(bytes[3], 0, "no flags, so no name");
        assert_eq!(bytes[4..8], [0; 4], "no time");
    }

    #[test]
    fn members_of_ar_are_aligned() {
        let members = [
            ("debian-binary", b"2.0\n".to_vec()),
            ("odd", b"abc".to_vec()),
        ];
        let archive = ar(&members, TIME_UNIX_S).expect("it is written");
        let head = "debian-binary   1795055918  0     0     100644  4         `\n2.0\n";
        assert!(archive[8..].starts_with(head.as_bytes()));
        assert_eq!(archive.len(), 8 + 60 + 4 + 60 + 4);
        assert!(ar(&[("a-name-of-17-byte", Vec::new())], 0).is_err());
    }
}
