//! Compares output for people with the files in `golden`. To rewrite the files, run the tests with
//! `UPDATE_GOLDEN=1`.

use std::path::Path;

/// Compares a text with the golden file of that name.
#[track_caller]
pub(crate) fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/e2e/golden")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|name| name == "1") {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let content = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        content == text,
        "{name} has changed (UPDATE_GOLDEN=1 accepts it).\n--- kept\n{content}\n--- now\n{text}"
    );
}

/// Replaces everything that differs from run to run: paths of the test, commits, ages, times, ports
/// and process ids. Columns are aligned only where their content is fixed, so runs of spaces become
/// two.
pub(crate) fn normalize(text: &str, root: &Path) -> String {
    let text = text.replace(root.to_str().unwrap(), "ROOT");
    let mut lines = Vec::new();
    for line in text.lines() {
        let cells: Vec<String> = line
            .trim_end()
            .split("  ")
            .filter(|line| !line.is_empty())
            .map(normalize_cell)
            .collect();
        // Durations depend on the machine, and very short phases may be missing.
        if let Some(name) = cells
            .first()
            .filter(|cell| ["past", "time"].contains(&cell.as_str()))
        {
            let name = format!("{}\n", name.to_uppercase());
            if lines.last() != Some(&name) {
                lines.push(name);
            }
            continue;
        }
        // The kind of sandbox depends on the machine.
        if cells.first().is_some_and(|cell| cell.ends_with(" sandbox")) {
            lines.push("SANDBOX\n".to_owned());
            continue;
        }
        // The installed agents depend on the machine: one line for all that are missing, and one
        // for each that is installed.
        if let Some(first) = cells
            .first()
            .filter(|cell| cell.ends_with(" provider") || cell.ends_with(" providers"))
        {
            lines.extend(first.ends_with('s').then(|| "PROVIDERS\n".to_owned()));
            continue;
        }
        // The number of parallel trees depends on the machine.
        if let Some((head, slots)) = line.rsplit_once(" · ")
            && (slots.ends_with(" trees at once") || slots == "one tree at a time")
        {
            lines.push(format!("{} · SLOTS\n", normalize_cell(head)));
            continue;
        }
        let indent = if line.starts_with("  ") { "  " } else { "" };
        lines.push(format!("{indent}{}\n", cells.join("  ")));
    }
    lines.concat()
}

fn normalize_cell(cell: &str) -> String {
    cell.trim()
        .split(' ')
        .map(normalize_word)
        .collect::<Vec<_>>()
        .join(" ")
}

fn normalize_word(word: &str) -> String {
    let core = word
        .trim_start_matches('(')
        .trim_end_matches([',', ':', ')']);
    let prefix_length = word.len() - word.trim_start_matches('(').len();
    let (head, tail) = (&word[..prefix_length], &word[prefix_length + core.len()..]);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let shown = if core.len() >= 10 && core.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        "COMMIT"
    } else if core
        .strip_suffix("ms")
        .or_else(|| core.strip_suffix(['s', 'm']))
        .is_some_and(digits)
    {
        "AGE"
    } else if core.len() == 17
        && core.split([':', '-']).count() == 6
        && core.split([':', '-']).all(digits)
    {
        "HOURS"
    } else if core.starts_with("http://127.0.0.1:") {
        "URL"
    } else if core.len() > 2 && digits(core) {
        "N" // a process id, or free space
    } else if core.split('.').count() == 3 && core.split('.').all(digits) {
        "VERSION"
    } else {
        core
    };
    format!("{head}{shown}{tail}")
}
