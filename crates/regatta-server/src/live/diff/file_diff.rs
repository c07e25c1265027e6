//! Parses a patch into files and lines.
//!
//! The input is git's patch format. If the caller wants it, lines that differ only in whitespace
//! are treated as equal. The text of the patch is untrusted and is returned without changes; the
//! module `rows` escapes the text.

/// One file of a patch, with its changed lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileDiff {
    pub(super) path: String,
    /// The file's previous path, if the change renamed it.
    pub(super) renamed_from: Option<String>,
    pub(super) note: String,
    pub(super) lines: Vec<(char, String)>,
}

/// Parses a patch in git's format into its files.
pub(super) fn parse_patch(patch: &str) -> Vec<FileDiff> {
    let mut files: Vec<FileDiff> = Vec::new();
    let mut is_in_hunk = false;
    for line in patch.split('\n') {
        if let Some(rest) = line.strip_prefix("diff --git ") {
            files.push(FileDiff {
                path: name_in(rest),
                ..FileDiff::default()
            });
            is_in_hunk = false;
            continue;
        }
        let Some(file) = files.last_mut() else {
            continue;
        };
        if line.starts_with("@@") {
            is_in_hunk = true;
            file.lines.push(('@', line.to_owned()));
        } else if is_in_hunk {
            let mut rest = line.chars();
            match rest.next() {
                Some(sign @ ('+' | '-' | ' ')) => file.lines.push((sign, rest.as_str().to_owned())),
                Some('\\') => file.lines.push(('\\', rest.as_str().trim().to_owned())),
                _ => {}
            }
        } else if let Some(path) = line.strip_prefix("+++ b/") {
            file.path = plain_name(path);
        } else if let Some(path) = line.strip_prefix("rename from ") {
            file.renamed_from = Some(plain_name(path));
        } else if let Some(path) = line.strip_prefix("rename to ") {
            file.path = plain_name(path);
        } else if line.starts_with("new file") {
            file.note = "new".into();
        } else if line.starts_with("deleted file") {
            file.note = "deleted".into();
        } else if line.starts_with("Binary files") {
            file.note = "binary".into();
        }
    }
    files
}

/// Returns the path `x` from `a/x b/x`, the end of a patch's header line. The two paths differ only
/// if the file was renamed, and then a later line of the header has the new path.
fn name_in(both: &str) -> String {
    let half = both.len() / 2;
    let name = both.get(half..).unwrap_or(both).trim_start();
    plain_name(name.strip_prefix("b/").unwrap_or(name))
}

/// Returns a path without the tab that git appends to paths with spaces.
fn plain_name(name: &str) -> String {
    name.trim_end_matches(['\t', '\r'])
        .trim_matches('"')
        .to_owned()
}

/// Returns a copy of a file's change that ignores whitespace. A removed line and an added line that
/// differ only in whitespace become one unchanged line, with the whitespace of the added one.
pub(super) fn without_spaces(file: &FileDiff) -> FileDiff {
    let mut lines = Vec::with_capacity(file.lines.len());
    let mut at = 0;
    while at < file.lines.len() {
        let end = at
            + file.lines[at..]
                .iter()
                .take_while(|(sign, _)| matches!(sign, '+' | '-'))
                .count();
        if end == at {
            lines.push(file.lines[at].clone());
            at += 1;
            continue;
        }
        let lines_with = |sign: char| {
            file.lines[at..end]
                .iter()
                .filter(|(line_sign, _)| *line_sign == sign)
                .map(|(_, text)| text.as_str())
                .collect()
        };
        let (removed, added): (Vec<&str>, Vec<&str>) = (lines_with('-'), lines_with('+'));
        let (mut old, mut new) = (0, 0);
        for (removed_line, added_line) in pairs_equal_but_spaces(&removed, &added) {
            lines.extend(
                removed[old..removed_line]
                    .iter()
                    .map(|text| ('-', (*text).to_owned())),
            );
            lines.extend(
                added[new..added_line]
                    .iter()
                    .map(|text| ('+', (*text).to_owned())),
            );
            lines.push((' ', added[added_line].to_owned()));
            (old, new) = (removed_line + 1, added_line + 1);
        }
        lines.extend(removed[old..].iter().map(|text| ('-', (*text).to_owned())));
        lines.extend(added[new..].iter().map(|text| ('+', (*text).to_owned())));
        at = end;
    }
    FileDiff {
        lines,
        ..file.clone()
    }
}

/// Pairs removed lines with added lines that are equal except for whitespace, in order. Finds as
/// many pairs as possible. In a very large block, pairs only lines at the same position, because
/// the search would take too long.
fn pairs_equal_but_spaces(removed: &[&str], added: &[&str]) -> Vec<(usize, usize)> {
    const MAX_COMPARISONS: usize = 250_000;
    let bare = |s: &&str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let (removed_bare, added_bare): (Vec<String>, Vec<String>) = (
        removed.iter().map(bare).collect(),
        added.iter().map(bare).collect(),
    );
    if removed_bare.len() * added_bare.len() > MAX_COMPARISONS {
        return (0..removed_bare.len().min(added_bare.len()))
            .filter(|i| removed_bare[*i] == added_bare[*i])
            .map(|i| (i, i))
            .collect();
    }
    let width = added_bare.len() + 1;
    let mut longest = vec![0_u32; (removed_bare.len() + 1) * width];
    for i in (0..removed_bare.len()).rev() {
        for j in (0..added_bare.len()).rev() {
            longest[i * width + j] = if removed_bare[i] == added_bare[j] {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < removed_bare.len() && j < added_bare.len() {
        if removed_bare[i] == added_bare[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}
