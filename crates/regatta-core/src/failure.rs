//! Failures: the part of a failed check's output that tells why it failed.
//!
//! The last lines of an output are often the least useful ones: a stack trace ends in the runtime's own frames, and a
//! test runner in its totals. This module finds the first line that states an error and the place it is about, and
//! shortens a long output so that its beginning, that line and its end stay.
//!
//! Not here: running checks, and redacting their output.

/// The most characters of a summary that people read in one line.
const MAX_SUMMARY_CHARS: usize = 600;
/// How many of the last lines a summary has.
const SUMMARY_LINES: usize = 5;
/// How far from an error line its place is searched for.
const MAX_LINES_TO_PLACE: usize = 12;

/// The first error of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstError {
    pub text: String,
    /// The file and line that the error is about, as it was printed.
    pub place: Option<String>,
    /// The number of its line, counting from 0.
    line: usize,
}

/// Finds the first line that states an error. Most outputs have warnings and other lines before it.
pub fn first_error(output: &str) -> Option<FirstError> {
    let lines: Vec<&str> = output.lines().collect();
    let line = lines.iter().position(|line| states_error(line))?;
    let own = place_in(lines[line]);
    let after = || lines[line + 1..].iter().take(MAX_LINES_TO_PLACE).find_map(|line| place_in(line));
    let before = || lines[..line].iter().rev().take(MAX_LINES_TO_PLACE).find_map(|line| place_in(line));
    // Python prints the place before the error, other languages after it.
    let place = if lines[..line].iter().rev().take(MAX_LINES_TO_PLACE).any(|line| line.starts_with("Traceback")) {
        own.or_else(before)
    } else {
        own.or_else(after).or_else(before)
    };
    Some(FirstError { text: lines[line].trim().to_owned(), place, line })
}

fn states_error(line: &str) -> bool {
    const BEGINNINGS: [&str; 18] = [
        "error:",
        "error[",
        "error -",
        "fatal:",
        "fatal error",
        "fail:",
        "failed:",
        "panic:",
        "--- fail",
        "not ok ",
        "npm err!",
        "err:",
        "cannot find ",
        "exception in thread",
        "uncaught ",
        "assertion failed",
        "e   ",
        "✕ ",
    ];
    const INSIDE: [&str; 9] = [
        ": error:",
        ": error ",
        ": fatal error",
        "panicked at",
        "undefined reference",
        "): error",
        "command not found",
        "no such file or directory",
        "permission denied",
    ];
    let line = line.trim_start_matches(|letter: char| letter.is_whitespace() || "|>*".contains(letter));
    let lower = line.to_lowercase();
    let is_note = lower.starts_with("warning") || lower.starts_with("note") || lower.starts_with("error: test failed");
    if is_note || lower.is_empty() {
        return false;
    }
    BEGINNINGS.iter().any(|start| lower.starts_with(start))
        || INSIDE.iter().any(|part| lower.contains(part))
        || names_exception(line)
}

/// Whether a line begins with the name of an exception: `TypeError: …`, `java.lang.IllegalStateException: …`.
fn names_exception(line: &str) -> bool {
    let name = line.split([':', ' ']).next().unwrap_or_default();
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_name = last.len() > 5 && last.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let ends = ["Error", "Exception", "Failure"].iter().any(|end| last.ends_with(end));
    is_name && ends && (line.len() == name.len() || line[name.len()..].starts_with(':'))
}

/// Returns the first `file:line` of a line of output.
fn place_in(line: &str) -> Option<String> {
    // Python: File "a/b.py", line 3
    if let Some((_, rest)) = line.split_once("File \"")
        && let Some((file, rest)) = rest.split_once("\", line ")
    {
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        return Some(format!("{file}:{number}")).filter(|_| !is_foreign(file));
    }
    let separates = |letter: char| letter.is_whitespace() || "()[]{}\"'`,;<>".contains(letter);
    let words: Vec<&str> = line.split(separates).filter(|word| !word.is_empty()).collect();
    for (nth, word) in words.iter().enumerate() {
        let word = word.trim_end_matches([':', '.']);
        let mut parts = word.split(':');
        let file = parts.next().unwrap_or_default();
        let number = parts.next().filter(|part| is_number(part));
        let column = parts.next().filter(|part| is_number(part));
        let is_file = is_file_name(file) && !is_foreign(word);
        match (is_file, number, column) {
            (true, Some(number), Some(column)) => return Some(format!("{file}:{number}:{column}")),
            (true, Some(number), None) => return Some(format!("{file}:{number}")),
            // TypeScript: a.ts(3,5)
            (true, None, _) if file == word => {
                let next = words.get(nth + 1).filter(|next| is_number(next));
                if let Some(next) = next.filter(|_| line.contains(&format!("{file}("))) {
                    return Some(format!("{file}:{next}"));
                }
            }
            _ => {}
        }
    }
    // Node's require stack: - /work/src/a.js
    let file = line.trim().strip_prefix("- ")?;
    (file.contains('/') && is_file_name(file) && !is_foreign(file)).then(|| file.to_owned())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() < 8 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_file_name(text: &str) -> bool {
    let name = text.rsplit('/').next().unwrap_or_default();
    let Some((stem, extension)) = name.rsplit_once('.') else { return name == "Makefile" || name == "Dockerfile" };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-+.@~/".contains(&byte) || byte >= 0x80;
    !stem.is_empty()
        && (1..=8).contains(&extension.len())
        && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && extension.bytes().any(|byte| byte.is_ascii_alphabetic())
        && text.bytes().all(is_plain)
}

/// Whether a place belongs to a language's runtime and not to the project.
fn is_foreign(text: &str) -> bool {
    ["node:", "/rustc/", "/usr/lib/", "internal/", "site-packages/", "node_modules/"]
        .iter()
        .any(|part| text.contains(part))
}

/// Returns an output for people to read in one line: its first error with the place, and its last lines.
pub fn summary(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(SUMMARY_LINES)..];
    let tail = last.join(" / ");
    let first = first_error(output).filter(|first| !last.iter().any(|line| line.trim() == first.text));
    match first {
        None => last_chars(&tail, MAX_SUMMARY_CHARS),
        Some(first) => {
            let head: String = first.text.chars().take(MAX_SUMMARY_CHARS / 2).collect();
            let place = first.place.filter(|place| !head.contains(place.as_str()));
            let place = place.map_or(String::new(), |place| format!(" ({place})"));
            let room = MAX_SUMMARY_CHARS.saturating_sub(head.chars().count() + place.chars().count() + 5);
            format!("{head}{place} / … / {}", last_chars(&tail, room.min(MAX_SUMMARY_CHARS / 3)))
        }
    }
}

/// Shortens an output to about `max` bytes. Its beginning, the lines around its first error and its end stay, and each
/// gap says how much was left out.
pub fn excerpt(output: &str, max: usize) -> String {
    let output = output.trim_end();
    if output.len() <= max {
        return output.to_owned();
    }
    let end_of_head = line_end(output, max / 4);
    let mut start_of_tail = line_start(output, output.len() - max / 2);
    if start_of_tail <= end_of_head {
        start_of_tail = end_of_head;
    }
    let error = first_error(output).map(|first| {
        let lines = output.split_inclusive('\n').take(first.line.saturating_sub(1));
        lines.map(str::len).sum::<usize>()
    });
    let mut pieces = vec![(0, end_of_head)];
    if let Some(at) = error.filter(|at| *at >= end_of_head && *at < start_of_tail) {
        pieces.push((at, line_end(output, at + max / 4).min(start_of_tail)));
    }
    pieces.push((start_of_tail, output.len()));
    let mut text = String::new();
    let mut last_end = 0;
    for (start, end) in pieces {
        if start > last_end {
            text += &format!("[… {} bytes left out …]\n", start - last_end);
        }
        text += &output[start..end];
        if !text.ends_with('\n') {
            text.push('\n');
        }
        last_end = end;
    }
    text.trim_end().to_owned()
}

/// Returns the end of the last line that ends at `at` or before it; `at` itself if there is none.
fn line_end(text: &str, at: usize) -> usize {
    let at = boundary(text, at);
    text[..at].rfind('\n').map_or(at, |end| end + 1)
}

/// Returns the start of the first line that starts at `at` or after it; `at` itself if there is none.
fn line_start(text: &str, at: usize) -> usize {
    let at = boundary(text, at);
    text[at..].find('\n').map_or(at, |end| at + end + 1).min(text.len())
}

fn boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn last_chars(text: &str, max: usize) -> String {
    text.chars().skip(text.chars().count().saturating_sub(max)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of each language's tools, with the error and the place that must be found in it.
    const OUTPUTS: &[(&str, &str, &str, &str)] = &[
        (
            "node",
            "node:internal/modules/cjs/loader:1143\n  throw err;\n  ^\n\nError: Cannot find module '../_baseAggregator'\nRequire stack:\n- /work/src/groupBy.js\n- /work/check.js\n    at Module._resolveFilename (node:internal/modules/cjs/loader:1140:15)\n  code: 'MODULE_NOT_FOUND',\n  requireStack: [\n    '/work/check.js'\n  ]\n}\n\nNode.js v20.20.2\n",
            "Error: Cannot find module '../_baseAggregator'",
            "/work/src/groupBy.js",
        ),
        (
            "python",
            "Traceback (most recent call last):\n  File \"/usr/lib/python3/runpy.py\", line 9, in <module>\n  File \"src/shop/cart.py\", line 31, in total\n    return rate * x\nNameError: name 'rate' is not defined\n",
            "NameError: name 'rate' is not defined",
            "src/shop/cart.py:31",
        ),
        (
            "pytest",
            "=== FAILURES ===\n___ test_total ___\n    def test_total():\n>       assert total([]) == 1\nE       assert 0 == 1\n\ntests/test_cart.py:7: AssertionError\n=== 1 failed in 0.02s ===\n",
            "E       assert 0 == 1",
            "tests/test_cart.py:7",
        ),
        (
            "rust",
            "warning: unused variable: `x`\n --> src/a.rs:1:1\nerror[E0425]: cannot find function `total` in this scope\n --> src/main.rs:3:5\n  |\nerror: aborting due to 1 previous error\n",
            "error[E0425]: cannot find function `total` in this scope",
            "src/main.rs:3:5",
        ),
        (
            "cargo test",
            "running 2 tests\ntest a ... ok\n\nthread 'b' (123) panicked at src/lib.rs:12:9:\nassertion `left == right` failed\n  left: 1\n right: 2\nstack backtrace:\n   0: rust_begin_unwind\n             at /rustc/abc/library/std/src/panicking.rs:689:5\nerror: test failed, to rerun pass `--lib`\n",
            "thread 'b' (123) panicked at src/lib.rs:12:9:",
            "src/lib.rs:12:9",
        ),
        (
            "java",
            "Exception in thread \"main\" java.lang.IllegalStateException: closed\n\tat shop.Cart.total(Cart.java:31)\n\tat shop.Main.main(Main.java:4)\n",
            "Exception in thread \"main\" java.lang.IllegalStateException: closed",
            "Cart.java:31",
        ),
        (
            "go",
            "# shop\n./cart.go:12:9: undefined: rate\n--- FAIL: TestTotal (0.00s)\n    cart_test.go:8: got 0\nFAIL\n",
            "--- FAIL: TestTotal (0.00s)",
            "cart_test.go:8",
        ),
        (
            "typescript",
            "src/cart.ts(12,5): error TS2304: Cannot find name 'rate'.\n",
            "src/cart.ts(12,5): error TS2304: Cannot find name 'rate'.",
            "src/cart.ts:12",
        ),
        (
            "gcc",
            "In file included from a.c:1:\nsrc/cart.c:12:9: error: 'rate' undeclared\n   12 | return rate;\n",
            "src/cart.c:12:9: error: 'rate' undeclared",
            "src/cart.c:12:9",
        ),
        (
            "shell",
            "./check.sh: line 3: frobnicate: command not found\n",
            "./check.sh: line 3: frobnicate: command not found",
            "",
        ),
        ("tap", "ok 1 - a\nnot ok 2 - total\n  ---\n  at: test/cart.js:9:3\n", "not ok 2 - total", "test/cart.js:9:3"),
    ];

    #[test]
    fn the_first_error_and_its_place_are_found_in_every_language() {
        for (name, output, text, place) in OUTPUTS {
            let found = first_error(output).unwrap_or_else(|| panic!("{name}: nothing found"));
            assert_eq!(found.text, *text, "{name}");
            assert_eq!(found.place.as_deref().unwrap_or_default(), *place, "{name}");
        }
        for quiet in ["", "\n\n", "all 12 tests passed\n", "warning: error: nothing of the kind\n", "42 != 43\n"] {
            assert_eq!(first_error(quiet), None, "{quiet:?}");
        }
    }

    #[test]
    fn a_summary_has_the_error_that_the_last_lines_have_not() {
        let node = OUTPUTS[0].1;
        let told = summary(node);
        assert!(
            told.starts_with("Error: Cannot find module '../_baseAggregator' (/work/src/groupBy.js) / … / "),
            "{told}"
        );
        assert!(told.ends_with("Node.js v20.20.2"), "{told}");
        assert_eq!(summary("one\ntwo\n\nthree\n"), "one / two / three", "a short output is itself");
        assert_eq!(summary("FAILED\nerror: it broke\n"), "FAILED / error: it broke");
        let long = format!("Error: {}\n{}", "x".repeat(2_000), "line\n".repeat(2_000));
        assert!(summary(&long).chars().count() <= MAX_SUMMARY_CHARS, "{}", summary(&long).len());
    }

    #[test]
    fn an_excerpt_keeps_the_beginning_the_error_and_the_end() {
        let noise = |name: &str| (0..400).map(|n| format!("{name} line {n}\n")).collect::<String>();
        let output = format!(
            "compiling\n{}Error: lost in the middle\n    at src/a.js:3:4\n{}total: 1 failed\n",
            noise("a"),
            noise("b")
        );
        let told = excerpt(&output, 2_000);
        for part in ["compiling", "Error: lost in the middle", "src/a.js:3:4", "total: 1 failed", "bytes left out"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(told.len() <= 2_200, "{}", told.len());
        assert_eq!(excerpt("short\n", 2_000), "short");
        // Cuts fall between characters, and lines of any length are cut.
        for text in ["ä".repeat(5_000), "🦀\n".repeat(5_000), "x".repeat(50_000)] {
            assert!(excerpt(&text, 1_000).len() <= 1_200);
        }
    }
}
