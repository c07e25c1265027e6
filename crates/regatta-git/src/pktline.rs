//! Reads and checks the beginning of a push (the list of refs to change) before git reads it.
//!
//! A push comes from another machine, so its contents are not trusted. This module parses the
//! beginning of the push and writes it anew for git, so that git never gets the original bytes.

use std::io::Read;

use regatta_core::ids::CommitId;

/// The largest number of refs in one push. A runner pushes one ref for each stored state of an
/// attempt's work.
const MAX_REF_UPDATES: usize = 1000;
/// The largest number of commits at which the sender's history may end if the sender's repository
/// is a shallow clone.
const MAX_SHALLOW_COMMITS: usize = 10_000;
/// The longest line of git's protocol in bytes, including the four digits in front that contain the
/// line's length.
const MAX_LINE_BYTES: usize = 65520;
/// The largest size in bytes of a packet in git's side-band protocol, which transfers several
/// streams over one connection.
const SIDE_BAND_BYTES: usize = 65515;
/// The protocol capabilities that a client may request. All other capabilities in a request are
/// ignored.
const ACCEPTED_CAPABILITIES: [&str; 6] = [
    "report-status",
    "report-status-v2",
    "side-band-64k",
    "quiet",
    "atomic",
    "ofs-delta",
];

/// A ref that a push requests to create or to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefUpdate {
    /// The commit that the client expects the ref to name before the push. `None` for a new ref.
    pub(crate) old: Option<CommitId>,
    pub(crate) new: CommitId,
    pub(crate) reference: String,
}

/// The beginning of a push: everything before the git objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PushHead {
    pub(crate) updates: Vec<RefUpdate>,
    shallow: Vec<CommitId>,
    capabilities: Vec<String>,
}

/// The reason why the beginning of a push is invalid, as a clause for an error message.
pub(crate) type PushHeadError = &'static str;

impl PushHead {
    /// Reads the beginning of a push, exactly up to the end of the list of refs.
    pub(crate) fn read(request: &mut dyn Read) -> Result<PushHead, PushHeadError> {
        let mut head = PushHead::default();
        while let Some(line) = read_line(request)? {
            let line = std::str::from_utf8(&line).map_err(|_| "a line is not text")?;
            let line = line.strip_suffix('\n').unwrap_or(line);
            if let Some(id) = line.strip_prefix("shallow ") {
                if head.shallow.len() == MAX_SHALLOW_COMMITS {
                    return Err("it names too many shallow commits");
                }
                head.shallow
                    .push(CommitId::new(id).map_err(|_| "a shallow commit has no id")?);
                continue;
            }
            let (line, requested) = match line.split_once('\0') {
                Some((line, requested)) => (line, Some(requested)),
                None => (line, None),
            };
            match requested {
                Some(requested) if head.updates.is_empty() => {
                    head.capabilities = accepted_capabilities(requested)?
                }
                Some(_) => return Err("a line after the first one lists capabilities"),
                None => {}
            }
            if head.updates.len() == MAX_REF_UPDATES {
                return Err("it names too many refs");
            }
            let update = parse_update(line)?;
            if head
                .updates
                .iter()
                .any(|known| known.reference == update.reference)
            {
                return Err("it names a ref twice");
            }
            head.updates.push(update);
        }
        Ok(head)
    }

    pub(crate) fn has_capability(&self, name: &str) -> bool {
        self.capabilities
            .iter()
            .any(|capability| capability == name)
    }

    /// Returns the beginning of the push as bytes in the format that git reads.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for id in &self.shallow {
            append_line(&mut text, format!("shallow {id}\n").as_bytes());
        }
        let mut capabilities = format!("\0{}", self.capabilities.join(" "));
        for update in &self.updates {
            let zero = "0".repeat(update.new.as_str().len());
            let old = update.old.as_ref().map_or(zero.as_str(), CommitId::as_str);
            let line = format!(
                "{old} {} {}{}",
                update.new,
                update.reference,
                std::mem::take(&mut capabilities)
            );
            append_line(&mut text, line.as_bytes());
        }
        text.extend(b"0000");
        text
    }

    /// Returns the answer that refuses every ref of the push. `reason_for` returns the reason for
    /// each ref.
    pub(crate) fn refusal(&self, reason_for: impl Fn(&RefUpdate) -> &'static str) -> Vec<u8> {
        if !self.has_capability("report-status") && !self.has_capability("report-status-v2") {
            return Vec::new();
        }
        let mut report = Vec::new();
        append_line(&mut report, b"unpack ok\n");
        for update in &self.updates {
            append_line(
                &mut report,
                format!("ng {} {}\n", update.reference, reason_for(update)).as_bytes(),
            );
        }
        report.extend(b"0000");
        if !self.has_capability("side-band-64k") {
            return report;
        }
        let mut packets = Vec::new();
        for part in report.chunks(SIDE_BAND_BYTES) {
            append_line(&mut packets, &[b"\x01", part].concat());
        }
        packets.extend(b"0000");
        packets
    }
}

/// Appends one line of git's protocol, with its length in front.
pub(crate) fn append_line(text: &mut Vec<u8>, line: &[u8]) {
    text.extend(format!("{:04x}", line.len() + 4).as_bytes());
    text.extend(line);
}

/// Reads one line of git's protocol. Returns `None` at the end of a section.
fn read_line(request: &mut dyn Read) -> Result<Option<Vec<u8>>, PushHeadError> {
    const TRUNCATED: PushHeadError = "it ends in the middle of its refs";
    let mut length = [0; 4];
    request.read_exact(&mut length).map_err(|_| TRUNCATED)?;
    // The length must consist of hexadecimal digits only, because some parsers also accept a sign
    // or a space in a number.
    if !length.iter().all(u8::is_ascii_hexdigit) {
        return Err("the length of a line is not a number");
    }
    let length = std::str::from_utf8(&length)
        .ok()
        .and_then(|digits| usize::from_str_radix(digits, 16).ok());
    match length {
        Some(0) => Ok(None),
        Some(length @ 5..=MAX_LINE_BYTES) => {
            let mut line = vec![0; length - 4];
            request.read_exact(&mut line).map_err(|_| TRUNCATED)?;
            Ok(Some(line))
        }
        _ => Err("the length of a line is out of range"),
    }
}

/// Returns those of the requested protocol capabilities that are passed on to git. Returns an error
/// if a requested capability would change the meaning of the lines that follow in the push.
fn accepted_capabilities(requested: &str) -> Result<Vec<String>, PushHeadError> {
    let mut accepted = Vec::new();
    for name in requested.split([' ', '\0']).filter(|name| !name.is_empty()) {
        if name == "push-options" || name.starts_with("push-cert") {
            return Err("it uses push options or a push certificate");
        }
        let is_object_format = name == "object-format=sha1" || name == "object-format=sha256";
        if (is_object_format || ACCEPTED_CAPABILITIES.contains(&name))
            && !accepted.iter().any(|accepted| accepted == name)
        {
            accepted.push(name.to_owned());
        }
    }
    Ok(accepted)
}

fn parse_update(line: &str) -> Result<RefUpdate, PushHeadError> {
    const MALFORMED: PushHeadError = "a line does not name two ids and a ref";
    let mut parts = line.splitn(3, ' ');
    let (Some(old), Some(new), Some(reference)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(MALFORMED);
    };
    let (old, new) = (
        CommitId::new(old).map_err(|_| MALFORMED)?,
        CommitId::new(new).map_err(|_| MALFORMED)?,
    );
    if old.as_str().len() != new.as_str().len() {
        return Err("it mixes object ids of two lengths");
    }
    if is_zero(&new) {
        return Err("it deletes a ref, and the server never deletes refs");
    }
    if !is_plain_ref(reference) {
        return Err("the name of a ref is invalid");
    }
    Ok(RefUpdate {
        old: (!is_zero(&old)).then_some(old),
        new,
        reference: reference.to_owned(),
    })
}

fn is_zero(id: &CommitId) -> bool {
    id.as_str().bytes().all(|byte| byte == b'0')
}

/// Returns whether `reference` is the name of a ref without characters that are special for git, a
/// shell or a file system.
fn is_plain_ref(reference: &str) -> bool {
    let is_plain_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && !part.ends_with('.')
            && !part.ends_with(".lock")
            && !part.contains("..")
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    reference.len() <= 200
        && reference.starts_with("refs/")
        && reference.split('/').all(is_plain_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    const ZERO: &str = "0000000000000000000000000000000000000000";

    fn lines(lines: &[&str]) -> Vec<u8> {
        let mut text = Vec::new();
        lines
            .iter()
            .for_each(|line| append_line(&mut text, line.as_bytes()));
        text.extend(b"0000");
        text
    }

    fn read(mut bytes: &[u8]) -> Result<PushHead, PushHeadError> {
        PushHead::read(&mut bytes)
    }

    #[test]
    fn head_of_a_push_is_parsed_to_its_end_and_written_again() {
        let first = format!(
            "{ZERO} {A} refs/regatta/keep/A1\0 report-status side-band-64k atomic agent=git/2 x=y \
            object-format=sha1"
        );
        let mut text = lines(&[
            &format!("shallow {B}"),
            &first,
            &format!("{A} {B} refs/regatta/keep/A1-x\n"),
        ]);
        text.extend(b"PACK");
        let mut unread = text.as_slice();
        let head = PushHead::read(&mut unread).unwrap();
        assert_eq!(unread, b"PACK", "the bytes after the head are not read");
        assert_eq!(head.updates[0].old, None);
        assert_eq!(head.updates[1].reference, "refs/regatta/keep/A1-x");
        let rewritten = String::from_utf8(head.write()).unwrap();
        assert!(
            !rewritten.contains("agent") && !rewritten.contains("x=y"),
            "{rewritten}"
        );
        assert_eq!(read(rewritten.as_bytes()).unwrap(), head);
        assert_eq!(read(b"0000").unwrap(), PushHead::default());
    }

    /// S7, S6: each name contains an option, a path or a character that has a meaning for git.
    #[test]
    fn s7_s6_an_invalid_ref_name_is_refused() {
        let long = format!("refs/{}", "x".repeat(300));
        let names = [
            "--upload-pack=x",
            "-x",
            "HEAD",
            "refs",
            "refs/",
            "refs//x",
            "refs/../x",
            "refs/x..y",
            "refs/.x",
            "refs/-x",
            "refs/x.lock",
            "refs/x.lock/y",
            "refs/x ",
            "refs/x y",
            "refs/x\ny",
            "refs/x~1",
            "refs/x^",
            "refs/x:y",
            "refs/x?",
            "refs/*",
            "refs/x[",
            "refs/x\\y",
            "refs/x@{1}",
            "refs/x.",
            "/refs/x",
            "refs/x/",
            "refs/\u{e4}",
            "refs/x\u{7f}",
            "",
            long.as_str(),
        ];
        for name in names {
            assert!(
                read(&lines(&[&format!("{ZERO} {A} {name}")])).is_err(),
                "{name:?}"
            );
        }
        assert!(read(&lines(&[&format!("{ZERO} {A} refs/regatta/keep/A1")])).is_ok());
    }

    #[test]
    fn malformed_heads_are_refused_without_a_panic() {
        let plain = format!("{ZERO} {A} refs/regatta/keep/A1");
        let twice = format!("{ZERO} {B} refs/regatta/keep/A1");
        let deletes = format!("{A} {ZERO} refs/regatta/keep/A1");
        let mixed = format!("{ZERO} {} refs/regatta/keep/A1", "a".repeat(64));
        let later = format!("{A} {B} refs/regatta/keep/A2\0atomic");
        let options = format!("{plain}\0push-options");
        let certificate = format!("{plain}\0push-cert=x");
        for bad in [
            &[plain.as_str(), &twice][..],
            &[&deletes],
            &[&mixed],
            &[&plain, &later],
            &[&options],
            &[&certificate],
        ] {
            assert!(read(&lines(bad)).is_err(), "{bad:?}");
        }
        let many_updates: Vec<String> = (0..5000)
            .map(|number| format!("{ZERO} {A} refs/regatta/keep/A{number}"))
            .collect();
        assert!(
            read(&lines(
                &many_updates.iter().map(String::as_str).collect::<Vec<_>>()
            ))
            .is_err()
        );
        let shallow = vec!["shallow aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; 20_000];
        assert!(read(&lines(&shallow)).is_err());
        for bad in [
            "", "0", "000", "0001", "0002", "0003", "0004", "+005x", " 005x", "-001", "fff1",
            "ffff", "zzzz", "00\u{0}5", "0005",
        ] {
            assert!(read(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(read(&[&b"0006"[..], &[0xff, 0xfe], b"0000"].concat()).is_err());
        // Every prefix of a valid head, and every head with one changed byte, gives an error or a
        // head, but never a panic.
        let good = lines(&[
            &format!("shallow {B}"),
            &format!("{plain}\0atomic report-status"),
        ]);
        for position in 0..good.len() {
            assert!(read(&good[..position]).is_err(), "cut at {position}");
            for byte in [0, b'\n', b' ', b'0', b'f', 0xff] {
                let mut changed = good.clone();
                changed[position] = byte;
                if let Ok(head) = read(&changed) {
                    assert_eq!(read(&head.write()).as_ref(), Ok(&head));
                }
            }
        }
    }

    #[test]
    fn refusal_uses_the_requested_report_format() {
        let plain = format!("{ZERO} {A} refs/heads/main");
        let refusal = |capabilities: &str| {
            read(&lines(&[&format!("{plain}\0{capabilities}")]))
                .unwrap()
                .refusal(|_| "no")
        };
        assert_eq!(refusal(""), b"");
        assert_eq!(
            refusal("report-status"),
            b"000eunpack ok\n001ang refs/heads/main no\n0000"
        );
        assert_eq!(
            refusal("report-status-v2 side-band-64k"),
            b"0031\x01000eunpack ok\n001ang refs/heads/main no\n00000000"
        );
    }
}
