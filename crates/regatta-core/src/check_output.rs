//! Finds the part of a failed check's output that tells why the check failed.
//!
//! The last lines of an output are often the least useful: a stack trace ends in the language's own
//! functions, and a test runner prints totals. This module finds the first line that states an
//! error and the file and line that the error is about. The module also shortens a long output so
//! that the beginning, the error and the end of the output remain.
//!
//! Not here: running the checks, and removing secrets from their output.

mod missing_command; // commands that the machine lacks

use std::borrow::Cow;
use std::fmt;

pub use missing_command::missing_command;

/// Maximum length of a one-line summary, in characters.
const MAX_SUMMARY_CHARS: usize = 400;
/// Number of lines at the end of the output that form the summary if no line states an error.
const SUMMARY_LINES: usize = 5;
/// Number of lines before and after an error line that are searched for the file and the reason of
/// the error.
const MAX_LINES_TO_PLACE: usize = 12;

/// The first error that the output of a check states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstError {
    pub text: String,
    /// The file and line that the error is about, as the tool printed them. `None` if the tool
    /// printed no file.
    pub place: Option<String>,
    /// The number of the output's line that states the error, counting from 0.
    line: usize,
}

impl fmt::Display for FirstError {
    /// Writes the error with its file and line number as one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = self.text.chars().take(MAX_SUMMARY_CHARS).collect();
        f.write_str(&text)?;
        if text.len() < self.text.len() {
            f.write_str("…")?;
        }
        match &self.place {
            Some(place) if !text.contains(place.as_str()) => write!(f, " ({place})"),
            _ => Ok(()),
        }
    }
}

/// Finds the first line that states an error, skipping warnings and other lines before it. Returns
/// `None` if there is no such line.
pub fn first_error(output: &str) -> Option<FirstError> {
    let plain = without_colours(output);
    let lines: Vec<&str> = plain.lines().collect();
    let line = lines
        .iter()
        .position(|line| states_error(line))
        .or_else(|| {
            // Some tools print only that something failed. So if no line clearly states an error,
            // accept a line that mentions a failure.
            lines.iter().position(|line| mentions_error(line))
        })?;
    let following_lines = &lines[line + 1..lines.len().min(line + 1 + MAX_LINES_TO_PLACE)];
    let own_place = place_in(lines[line]).or_else(|| lint_place(&lines, line));
    let place_after = || following_lines.iter().find_map(|line| place_in(line));
    let place_before = || {
        lines[..line]
            .iter()
            .rev()
            .take(MAX_LINES_TO_PLACE)
            .find_map(|line| place_in(line))
    };
    // A Python traceback names the file before the error, so search only the lines before the
    // error. Most other tools name the file after the error.
    let place = if lines[..line]
        .iter()
        .rev()
        .take(MAX_LINES_TO_PLACE)
        .any(|line| line.starts_with("Traceback"))
    {
        own_place.or_else(place_before)
    } else {
        own_place.or_else(place_after).or_else(place_before)
    };
    Some(FirstError {
        text: with_reason(lines[line], following_lines),
        place,
        line,
    })
}

/// Returns an error line together with the reason of the error, if the tool prints the reason on
/// another line.
fn with_reason(line: &str, following_lines: &[&str]) -> String {
    let line = line.trim();
    // After a line such as "thread 'a' panicked at src/lib.rs:12:9:", Rust prints the reason on the
    // next line.
    if line.contains("panicked at") && line.ends_with(':') {
        let message = following_lines
            .first()
            .map(|message| message.trim())
            .unwrap_or_default();
        return format!("{line} {message}").trim_end().to_owned();
    }
    // pytest marks the error with an E: E       assert 0 == 1
    if let Some(text) = line.strip_prefix("E  ") {
        return text.trim().to_owned();
    }
    const TEST_FAILURE_HEADINGS: [&str; 6] =
        ["--- FAIL", "FAIL:", "ERROR: test", "not ok ", "● ", "✕ "];
    if !TEST_FAILURE_HEADINGS
        .iter()
        .any(|heading| line.starts_with(heading))
    {
        return line.to_owned();
    }
    let is_reason = |line: &&&str| {
        let line = line.trim();
        names_exception(line) || line.starts_with("expect(") || is_go_message(line)
    };
    match following_lines.iter().find(is_reason) {
        Some(reason) => format!("{line}: {}", reason.trim()),
        None => line.to_owned(),
    }
}

/// Returns whether a line clearly states an error, by the forms that common tools use.
fn states_error(line: &str) -> bool {
    const ERROR_PREFIXES: [&str; 25] = [
        "error:",
        "error[",
        "error -",
        "[error]",
        "fatal:",
        "fatal error",
        "fail:",
        "failed:",
        "failure/error:",
        "panic:",
        "--- fail",
        "not ok ",
        "npm err!",
        "npm error",
        "err:",
        "cannot find ",
        "exception in thread",
        "uncaught ",
        "assertion failed",
        "php parse error",
        "php fatal error",
        "e: file:",
        "e   ",
        "✕ ",
        "● ",
    ];
    const ERROR_SUBSTRINGS: [&str; 10] = [
        ": error:",
        ": error ",
        " - error ts",
        ": fatal error",
        "panicked at",
        "undefined reference",
        "): error",
        "command not found",
        "no such file or directory",
        "permission denied",
    ];
    const NON_ERROR_PREFIXES: [&str; 6] = [
        "warning",
        "note",
        "error: test failed",
        "error: could not compile",
        "● console",
        "npm error code",
    ];
    let has_indent = line.starts_with([' ', '\t']);
    let line =
        line.trim_start_matches(|letter: char| letter.is_whitespace() || "|>*".contains(letter));
    let lower = line.to_lowercase();
    if lower.is_empty()
        || NON_ERROR_PREFIXES
            .iter()
            .any(|note| lower.starts_with(note))
    {
        return false;
    }
    ERROR_PREFIXES.iter().any(|start| lower.starts_with(start))
        || ERROR_SUBSTRINGS.iter().any(|part| lower.contains(part))
        || names_exception(line)
        || (!has_indent && is_go_message(line))
        || is_lint_error(line)
}

/// Returns whether a line contains a word such as "error" or "failed" and is not a warning or a
/// count of zero.
fn mentions_error(line: &str) -> bool {
    let lower = line.trim().to_lowercase();
    let starts_quietly = ["warning", "note", "0 ", "no "]
        .iter()
        .any(|start| lower.starts_with(start));
    let reports_no_failures = [" 0 failed", " 0 errors", " 0 error(s)"]
        .iter()
        .any(|none| lower.contains(none));
    let words = lower.split(|letter: char| !letter.is_alphanumeric());
    let mentions = words
        .into_iter()
        .any(|word| matches!(word, "error" | "errors" | "failed" | "failure" | "fail"));
    mentions && !starts_quietly && !reports_no_failures
}

/// Returns whether a line is a message of the Go tools: `./cart.go:12:9: undefined: rate`.
fn is_go_message(line: &str) -> bool {
    let Some((file, rest)) = line.split_once(".go:") else {
        return false;
    };
    let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let is_path = file
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte));
    is_path && !number.is_empty() && rest[number.len()..].starts_with(':')
}

/// Returns whether a line is an error of ESLint, such as `  3:10  error  'x' is not defined`. ESLint
/// prints the file's name on a line of its own before its errors.
fn is_lint_error(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let place = words.next().and_then(|place| place.split_once(':'));
    place.is_some_and(|(line, column)| is_number(line) && is_number(column))
        && words.next() == Some("error")
}

/// Returns the file and position of an ESLint error. ESLint prints the file's name on an earlier
/// line, and the position on the line of the error.
fn lint_place(lines: &[&str], index: usize) -> Option<String> {
    let place = lines[index]
        .split_whitespace()
        .next()
        .filter(|_| is_lint_error(lines[index]))?;
    let file = lines[..index]
        .iter()
        .rev()
        .find(|line| !line.starts_with([' ', '\t']) && is_file_name(line.trim()))?;
    Some(format!("{}:{place}", file.trim()))
}

/// Removes the escape sequences with which terminals set colours.
fn without_colours(output: &str) -> Cow<'_, str> {
    if !output.contains('\u{1b}') {
        return Cow::Borrowed(output);
    }
    let mut text = String::with_capacity(output.len());
    let mut letters = output.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            text.push(letter);
        } else if letters.next_if_eq(&'[').is_some() {
            // An escape sequence ends with a letter, as in ESC [ 1 ; 31 m
            let _sequence = letters.by_ref().find(|letter| ('@'..='~').contains(letter));
        }
    }
    Cow::Owned(text)
}

/// Returns whether a line begins with the name of an exception, such as `TypeError: …` or
/// `java.lang.IllegalStateException: …`.
fn names_exception(line: &str) -> bool {
    let name = line.split([':', ' ']).next().unwrap_or_default();
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_name = last.len() > 5
        && last
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let ends = ["Error", "Exception", "Failure"]
        .iter()
        .any(|end| last.ends_with(end));
    let rest = &line[name.len()..];
    is_name && ends && (rest.is_empty() || rest.starts_with(':') || rest.starts_with(" ["))
}

/// Returns the first file with a line number (`src/a.rs:12`) in a line of output, in one of the
/// forms that tools use.
fn place_in(line: &str) -> Option<String> {
    // Python names a file in this form: File "a/b.py", line 3
    if let Some((_, rest)) = line.split_once("File \"")
        && let Some((file, rest)) = rest.split_once("\", line ")
    {
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        return Some(format!("{file}:{number}")).filter(|_| !is_runtime_place(file));
    }
    let separates = |letter: char| letter.is_whitespace() || "()[]{}\"'`,;<>".contains(letter);
    let words: Vec<&str> = line
        .split(separates)
        .filter(|word| !word.is_empty())
        .collect();
    for (nth, word) in words.iter().enumerate() {
        let word = word.trim_end_matches([':', '.']);
        let mut parts = word.split(':');
        let file = parts.next().unwrap_or_default();
        let number = parts.next().filter(|part| is_number(part));
        let column = parts.next().filter(|part| is_number(part));
        let is_file = is_file_name(file) && !is_runtime_place(word);
        match (is_file, number, column) {
            (true, Some(number), Some(column)) => return Some(format!("{file}:{number}:{column}")),
            (true, Some(number), None) => return Some(format!("{file}:{number}")),
            // TypeScript names a file in this form: a.ts(3,5)
            (true, None, _) if file == word => {
                let next = words.get(nth + 1).filter(|next| is_number(next));
                if let Some(next) = next.filter(|_| line.contains(&format!("{file}("))) {
                    return Some(format!("{file}:{next}"));
                }
            }
            _ => {}
        }
    }
    // Node lists files under "Require stack" in this form: - /work/src/a.js
    let file = line.trim().strip_prefix("- ")?;
    (file.contains('/') && is_file_name(file) && !is_runtime_place(file)).then(|| file.to_owned())
}

/// Returns whether a text can be the number of a line or column.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() < 8 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a text looks like the path of a file.
fn is_file_name(text: &str) -> bool {
    let name = text.rsplit('/').next().unwrap_or_default();
    let Some((stem, extension)) = name.rsplit_once('.') else {
        return name == "Makefile" || name == "Dockerfile";
    };
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"_-+.@~/".contains(&byte) || byte >= 0x80;
    !stem.is_empty()
        && (1..=8).contains(&extension.len())
        && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && extension.bytes().any(|byte| byte.is_ascii_alphabetic())
        && text.bytes().all(is_plain)
}

/// Returns whether a file belongs to a language's own library or runtime instead of the project.
fn is_runtime_place(text: &str) -> bool {
    [
        "node:",
        "/rustc/",
        "/usr/lib/",
        "internal/",
        "site-packages/",
        "node_modules/",
    ]
    .iter()
    .any(|part| text.contains(part))
}

/// Summarises the output of a failed check in one line: its first error with the file and line, or
/// else its last lines.
pub fn summary(output: &str) -> String {
    if let Some(first) = first_error(output) {
        return first.to_string();
    }
    let plain = without_colours(output);
    let lines: Vec<&str> = plain
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    let last = &lines[lines.len().saturating_sub(SUMMARY_LINES)..];
    last_chars(&last.join(" / "), MAX_SUMMARY_CHARS)
}

/// Shortens an output to about `max` bytes. Its beginning, the lines around its first error and its
/// end remain, and each gap states how many bytes are missing.
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
        let lines = output
            .split_inclusive('\n')
            .take(first.line.saturating_sub(1));
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

/// Returns the end of the last line that ends no later than byte `at`; `at` itself if there is no
/// such line.
fn line_end(text: &str, at: usize) -> usize {
    let at = char_boundary(text, at);
    text[..at].rfind('\n').map_or(at, |end| end + 1)
}

/// Returns the start of the first line that starts no earlier than byte `at`; `at` itself if there
/// is no such line.
fn line_start(text: &str, at: usize) -> usize {
    let at = char_boundary(text, at);
    text[at..]
        .find('\n')
        .map_or(at, |end| at + end + 1)
        .min(text.len())
}

/// Returns the last position no later than byte `at` where the text can be cut without splitting a
/// character.
fn char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Returns the last `max` characters of a text.
fn last_chars(text: &str, max: usize) -> String {
    text.chars()
        .skip(text.chars().count().saturating_sub(max))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of each language's tools, with the error and the place that must be found in it.
    const OUTPUTS: &[(&str, &str, &str, &str)] = &[
        (
            "node",
            "node:internal/modules/cjs/loader:1143\n  throw err;\n  ^\n\nError: Cannot find \
            module '../_baseAggregator'\nRequire stack:\n- /work/src/groupBy.js\n- \
            /work/check.js\n    at Module._resolveFilename \
            (node:internal/modules/cjs/loader:1140:15)\n  code: 'MODULE_NOT_FOUND',\n  \
            requireStack: [\n    '/work/check.js'\n  ]\n}\n\nNode.js v20.20.2\n",
            "Error: Cannot find module '../_baseAggregator'",
            "/work/src/groupBy.js",
        ),
        (
            "python",
            "Traceback (most recent call last):\n  File \"/usr/lib/python3/runpy.py\", line 9, in \
            <module>\n  File \"src/shop/cart.py\", line 31, in total\n    return rate * \
            x\nNameError: name 'rate' is not defined\n",
            "NameError: name 'rate' is not defined",
            "src/shop/cart.py:31",
        ),
        (
            "pytest",
            "=== FAILURES ===\n___ test_total ___\n    def test_total():\n>       assert \
            total([]) == 1\nE       assert 0 == 1\n\ntests/test_cart.py:7: AssertionError\n=== 1 \
            failed in 0.02s ===\n",
            "assert 0 == 1",
            "tests/test_cart.py:7",
        ),
        (
            "rust",
            "warning: unused variable: `x`\n --> src/a.rs:1:1\nerror[E0425]: cannot find function \
            `total` in this scope\n --> src/main.rs:3:5\n  |\nerror: aborting due to 1 previous \
            error\n",
            "error[E0425]: cannot find function `total` in this scope",
            "src/main.rs:3:5",
        ),
        (
            "cargo test",
            "running 2 tests\ntest a ... ok\n\nthread 'b' (123) panicked at \
            src/lib.rs:12:9:\nassertion `left == right` failed\n  left: 1\n right: 2\nstack \
            backtrace:\n   0: rust_begin_unwind\n             at \
            /rustc/abc/library/std/src/panicking.rs:689:5\nerror: test failed, to rerun pass \
            `--lib`\n",
            "thread 'b' (123) panicked at src/lib.rs:12:9: assertion `left == right` failed",
            "src/lib.rs:12:9",
        ),
        (
            "java",
            "Exception in thread \"main\" java.lang.IllegalStateException: closed\n\tat \
            shop.Cart.total(Cart.java:31)\n\tat shop.Main.main(Main.java:4)\n",
            "Exception in thread \"main\" java.lang.IllegalStateException: closed",
            "Cart.java:31",
        ),
        (
            "go",
            "# shop\n./cart.go:12:9: undefined: rate\n./cart.go:14:2: undefined: tax\nFAIL\tshop \
            [build failed]\nFAIL\n",
            "./cart.go:12:9: undefined: rate",
            "./cart.go:12:9",
        ),
        (
            "go test",
            "=== RUN   TestTotal\n    cart_test.go:8: got 0, want 1\n--- FAIL: TestTotal \
            (0.00s)\nFAIL\nexit status 1\nFAIL\tshop\t0.002s\n",
            "--- FAIL: TestTotal (0.00s)",
            "cart_test.go:8",
        ),
        (
            "go test, quiet",
            "--- FAIL: TestTotal (0.00s)\n    cart_test.go:8: got 0, want \
            1\nFAIL\nFAIL\tshop\t0.002s\n",
            "--- FAIL: TestTotal (0.00s): cart_test.go:8: got 0, want 1",
            "cart_test.go:8",
        ),
        (
            "cargo build",
            "   Compiling strs v0.1.0 (/work/strs)\nerror: this file contains an unclosed \
            delimiter\n --> src/lib.rs:5:14\n  |\n3 | pub fn b() {\n  |            - unclosed \
            delimiter\n4 |     if true {\n  |             - unclosed delimiter\n5 |         \
            a();\n  |             ^\n\nerror: could not compile `strs` (lib) due to 1 previous \
            error\nwarning: build failed, waiting for other jobs to finish...\nerror: could not \
            compile `strs` (lib test) due to 1 previous error\n",
            "error: this file contains an unclosed delimiter",
            "src/lib.rs:5:14",
        ),
        (
            "unittest",
            "F\n======\nFAIL: test_total (__main__.T.test_total)\n------\nTraceback (most recent \
            call last):\n  File \"/work/t.py\", line 4, in test_total\n    self.assertEqual(0, \
            1)\nAssertionError: 0 != 1\n\n------\nRan 1 test in 0.000s\n\nFAILED (failures=1)\n",
            "FAIL: test_total (__main__.T.test_total): AssertionError: 0 != 1",
            "/work/t.py:4",
        ),
        (
            "jest",
            "FAIL src/sum.test.js\n  sum\n    ✓ is there (2 ms)\n\n  ● Console\n\n    \
            console.log\n      hello\n\n  ● sum › adds\n\n    expect(received).toBe(expected) // \
            Object.is equality\n\n    Expected: 4\n    Received: 3\n\n      3 | test('adds', () \
            => {\n    > 4 |   expect(sum(1, 2)).toBe(4);\n        |                     ^\n      \
            5 | });\n\n      at Object.<anonymous> (src/sum.test.js:4:21)\n\nTests:       1 \
            failed, 1 passed, 2 total\n",
            "● sum › adds: expect(received).toBe(expected) // Object.is equality",
            "src/sum.test.js:4:21",
        ),
        (
            "vitest, in colour",
            " \u{1b}[31m❯\u{1b}[39m src/sum.test.ts (1)\n\u{1b}[41m FAIL \u{1b}[49m \
            src/sum.test.ts > adds\n\u{1b}[31mAssertionError: expected 3 to be \
            4\u{1b}[39m\n \u{1b}[36m❯ src/sum.test.ts:4:21\u{1b}[39m\n",
            "AssertionError: expected 3 to be 4",
            "src/sum.test.ts:4:21",
        ),
        (
            "tsc, pretty",
            "\u{1b}[96msrc/cart.ts\u{1b}[0m:\u{1b}[93m12\u{1b}[0m:\u{1b}[93m5\u{1b}[0m \
            - \u{1b}[91merror\u{1b}[0m\u{1b}[90m TS2304: \u{1b}[0mCannot find name \
            'rate'.\n\n12     rate * 2\n       ~~~~\n\nFound 1 error in src/cart.ts:12\n",
            "src/cart.ts:12:5 - error TS2304: Cannot find name 'rate'.",
            "src/cart.ts:12:5",
        ),
        (
            "eslint",
            "\n/work/src/a.js\n  1:1   warning  Unexpected console statement  no-console\n  3:10  \
            error    'x' is not defined  no-undef\n\n✖ 2 problems (1 error, 1 warning)\n",
            "3:10  error    'x' is not defined  no-undef",
            "/work/src/a.js:3:10",
        ),
        (
            "make",
            "gcc -Wall -o a a.c\na.c: In function ‘main’:\na.c:3:10: error: ‘rate’ undeclared \
            (first use in this function)\n    3 |   return rate;\n      |          ^~~~\na.c:2:7: \
            warning: unused variable ‘x’ [-Wunused-variable]\nmake: *** [Makefile:4: a] Error 1\n",
            "a.c:3:10: error: ‘rate’ undeclared (first use in this function)",
            "a.c:3:10",
        ),
        (
            "make alone",
            "make: *** [Makefile:2: test] Error 1\n",
            "make: *** [Makefile:2: test] Error 1",
            "Makefile:2",
        ),
        (
            "maven",
            "[INFO] Compiling 3 source files\n[ERROR] /work/src/Cart.java:[12,9] cannot find \
            symbol\n[ERROR]   symbol: variable rate\n[INFO] BUILD FAILURE\n",
            "[ERROR] /work/src/Cart.java:[12,9] cannot find symbol",
            "",
        ),
        (
            "any words",
            "checking the links\n3 links failed\ndone\n",
            "3 links failed",
            "",
        ),
        (
            "typescript",
            "src/cart.ts(12,5): error TS2304: Cannot find name 'rate'.\n",
            "src/cart.ts(12,5): error TS2304: Cannot find name 'rate'.",
            "src/cart.ts:12",
        ),
        (
            "gcc",
            "In file included from a.c:1:\nsrc/cart.c:12:9: error: 'rate' undeclared\n   12 | \
            return rate;\n",
            "src/cart.c:12:9: error: 'rate' undeclared",
            "src/cart.c:12:9",
        ),
        (
            "shell",
            "./check.sh: line 3: frobnicate: command not found\n",
            "./check.sh: line 3: frobnicate: command not found",
            "",
        ),
        (
            "tap",
            "ok 1 - a\nnot ok 2 - total\n  ---\n  at: test/cart.js:9:3\n",
            "not ok 2 - total",
            "test/cart.js:9:3",
        ),
    ];

    #[test]
    fn the_first_error_and_its_place_are_found_in_every_language() {
        for (name, output, text, place) in OUTPUTS {
            let found = first_error(output).unwrap_or_else(|| panic!("{name}: nothing found"));
            assert_eq!(found.text, *text, "{name}");
            assert_eq!(found.place.as_deref().unwrap_or_default(), *place, "{name}");
        }
        for quiet in [
            "",
            "\n\n",
            "all 12 tests passed\n",
            "12 passed, 0 failed\n",
            "warning: error: nothing of the kind\n",
            "42 != 43\n",
        ] {
            assert_eq!(first_error(quiet), None, "{quiet:?}");
        }
    }

    #[test]
    fn a_summary_is_the_first_error_with_its_place() {
        let summary_of =
            |tool: &str| summary(OUTPUTS.iter().find(|(name, ..)| *name == tool).unwrap().1);
        assert_eq!(
            summary_of("node"),
            "Error: Cannot find module '../_baseAggregator' (/work/src/groupBy.js)"
        );
        assert_eq!(
            summary_of("cargo build"),
            "error: this file contains an unclosed delimiter (src/lib.rs:5:14)"
        );
        assert_eq!(
            summary_of("gcc"),
            "src/cart.c:12:9: error: 'rate' undeclared",
            "the place was added although the error contains it"
        );
        assert_eq!(
            summary("one\ntwo\n\nthree\n"),
            "one / two / three",
            "without an error, the summary is not the last lines"
        );
        assert_eq!(summary("building\nerror: it broke\n"), "error: it broke");
        let long = format!("Error: {}\n{}", "x".repeat(2_000), "line\n".repeat(2_000));
        assert!(
            summary(&long).chars().count() <= MAX_SUMMARY_CHARS + 1,
            "{}",
            summary(&long).len()
        );
    }

    #[test]
    fn an_excerpt_keeps_the_beginning_the_error_and_the_end() {
        let noise = |name: &str| {
            (0..400)
                .map(|n| format!("{name} line {n}\n"))
                .collect::<String>()
        };
        let output = format!(
            "compiling\n{}Error: lost in the middle\n    at src/a.js:3:4\n{}total: 1 failed\n",
            noise("a"),
            noise("b")
        );
        let shortened = excerpt(&output, 2_000);
        for part in [
            "compiling",
            "Error: lost in the middle",
            "src/a.js:3:4",
            "total: 1 failed",
            "bytes left out",
        ] {
            assert!(shortened.contains(part), "{part}: {shortened}");
        }
        assert!(shortened.len() <= 2_200, "{}", shortened.len());
        assert_eq!(excerpt("short\n", 2_000), "short");
        // Cuts fall between characters, and lines of any length are cut.
        for text in ["ä".repeat(5_000), "🦀\n".repeat(5_000), "x".repeat(50_000)] {
            assert!(excerpt(&text, 1_000).len() <= 1_200);
        }
    }
}
