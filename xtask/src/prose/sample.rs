//! Collects the sentences of the source that people read: comments, log lines, errors and help
//! texts. Each comes with the signature of the item that it documents or stands in, because that is
//! where a reader meets it.

use super::scan::{SourceFile, SourceLine};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleKind {
    Comment,
    Log,
    Error,
    Help,
}

impl SampleKind {
    pub(super) const ALL: [SampleKind; 4] = [
        SampleKind::Comment,
        SampleKind::Log,
        SampleKind::Error,
        SampleKind::Help,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            SampleKind::Comment => "Comments",
            SampleKind::Log => "Log lines",
            SampleKind::Error => "Errors",
            SampleKind::Help => "Help texts",
        }
    }
}

/// One comment or message.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) kind: SampleKind,
    pub(super) text: String,
    /// The item that a comment documents, or the statement after it.
    pub(super) item: Option<String>,
    /// Signature of the function or type around the comment or message.
    pub(super) scope: Option<String>,
}

/// Starts of log lines.
const LOG_MACROS: [&str; 4] = [
    "tracing::error!(",
    "tracing::warn!(",
    "tracing::info!(",
    "tracing::debug!(",
];

/// Ends of the names of functions whose arguments are the message and the hint of an error.
const ERROR_CALLS: [&str; 13] = [
    "failed",
    "usage",
    "Problem::new",
    "Refusal::invalid",
    "Refusal::conflict",
    "Refusal::missing",
    "invalid",
    "refuse",
    "GitError::new",
    "_error",
    "bail!",
    "anyhow!",
    "#[error",
];

/// Functions of errors whose argument is an operation: their message starts with "could not".
const OPERATION_CALLS: [&str; 8] = [
    "file_error",
    "io_error",
    "kernel_error",
    "path_error",
    "git_failed",
    "into_error",
    "sqlite_error",
    "log_failure",
];

/// Collects every sample of the program's own code. Tests and benches are left out.
pub(super) fn collect(files: &[SourceFile]) -> Vec<Sample> {
    files
        .iter()
        .filter(|file| is_program(&file.path))
        .flat_map(|file| FileReader::new(file).collect())
        .collect()
}

fn is_program(path: &str) -> bool {
    path.contains("/src/") && !path.contains("tests") && !path.starts_with("xtask")
}

/// A function or type whose body is being read.
struct Scope {
    indent: usize,
    signature: String,
    /// True if clap derives the item, so that the comments in it are help texts.
    is_help: bool,
}

struct FileReader<'a> {
    file: &'a SourceFile,
    scopes: Vec<Scope>,
    comment: Vec<&'a str>,
    attributes: String,
    found: Vec<Sample>,
}

impl<'a> FileReader<'a> {
    fn new(file: &'a SourceFile) -> FileReader<'a> {
        FileReader {
            file,
            scopes: Vec::new(),
            comment: Vec::new(),
            attributes: String::new(),
            found: Vec::new(),
        }
    }

    fn collect(mut self) -> Vec<Sample> {
        let mut is_in_attribute = false;
        for (at, line) in self.file.lines.iter().enumerate() {
            match line {
                SourceLine::Comment(text) => self.comment.push(text),
                SourceLine::Blank => self.end_module_head(),
                SourceLine::Code(code)
                    if is_in_attribute || code.trim_start().starts_with("#[") =>
                {
                    self.add_message(at, code);
                    self.attributes.push_str(code.trim());
                    is_in_attribute = !code.trim_end().ends_with(']');
                }
                // `mod tests` is the last item of a file.
                SourceLine::Code(_) if self.attributes.contains("#[cfg(test)]") => break,
                SourceLine::Code(code) => self.add_code(at, code),
            }
        }
        self.found
    }

    /// Ends a comment that no code follows. At the top of a file it describes the module.
    fn end_module_head(&mut self) {
        if self.found.is_empty() && self.scopes.is_empty() && !self.comment.is_empty() {
            let module = format!("module {}", self.file.path);
            self.add_comment(Some(module), SampleKind::Comment);
        }
        self.comment.clear();
    }

    fn add_code(&mut self, at: usize, code: &str) {
        let indent = code.len() - code.trim_start().len();
        let is_closing = code.trim_start().starts_with(['}', ')', ']', '{']);
        if !is_closing {
            self.scopes.retain(|scope| scope.indent < indent);
        }
        let statement = join_statement(&self.file.lines[at..]);
        let is_item = starts_item(code);
        let is_help = is_item
            && ["Args", "Parser", "Subcommand", "ValueEnum"]
                .iter()
                .any(|derived| self.attributes.contains(derived));
        if !self.comment.is_empty() {
            let is_help_text = !is_item && self.scopes.last().is_some_and(|scope| scope.is_help);
            let kind = if is_help_text {
                SampleKind::Help
            } else {
                SampleKind::Comment
            };
            self.add_comment(Some(statement.clone()), kind);
            self.comment.clear();
        }
        if is_item {
            self.scopes.push(Scope {
                indent,
                signature: statement,
                is_help,
            });
        }
        self.attributes.clear();
        self.add_message(at, code);
    }

    fn add_comment(&mut self, item: Option<String>, kind: SampleKind) {
        let text = self.comment.join(" ");
        let scope = self.scopes.last().map(|scope| scope.signature.clone());
        self.found.push(Sample {
            kind,
            text,
            item,
            scope,
        });
    }

    /// Adds the message of a log line or an error that starts in a line.
    fn add_message(&mut self, at: usize, code: &str) {
        let Some((kind, start, operation)) = message_call(code) else {
            return;
        };
        let literals = literals_of_call(&self.file.lines[at..], start);
        let mut sentences = literals.iter().filter(|text| text.trim().contains(' '));
        let text = if operation {
            literals
                .first()
                .map(|text| format!("could not {text} …: …"))
        } else {
            sentences.next().cloned()
        };
        let Some(mut text) = text else { return };
        if kind == SampleKind::Error
            && !operation
            && let Some(hint) = sentences.next()
        {
            text = format!("{text} (hint: {hint})");
        }
        self.found.push(Sample {
            kind,
            text,
            item: None,
            scope: self.scopes.last().map(|scope| scope.signature.clone()),
        });
    }
}

fn starts_item(code: &str) -> bool {
    let words: Vec<&str> = code.split_whitespace().take(4).collect();
    let mut words = words
        .iter()
        .skip_while(|word| word.starts_with("pub") || ["async", "const", "unsafe"].contains(word));
    words.next().is_some_and(|word| {
        ["fn", "struct", "enum", "trait", "impl"].contains(word) || word.starts_with("impl<")
    })
}

/// Joins the lines of a signature or statement up to its body or end.
fn join_statement(lines: &[SourceLine]) -> String {
    const MAX_LINES: usize = 12;
    let mut joined = String::new();
    for line in lines.iter().take(MAX_LINES) {
        let SourceLine::Code(code) = line else {
            break;
        };
        let code = code.trim();
        joined.push_str(code);
        let is_open = joined.matches('(').count() > joined.matches(')').count();
        if !is_open && code.ends_with(['{', ';', ',', '}']) {
            break;
        }
        joined.push(' ');
    }
    joined.trim().to_owned()
}

/// Returns the kind of message that a line starts, where its arguments start, and whether they name
/// an operation.
fn message_call(code: &str) -> Option<(SampleKind, usize, bool)> {
    for start in LOG_MACROS {
        if let Some(found) = code.find(start) {
            return Some((SampleKind::Log, found + start.len(), false));
        }
    }
    if starts_item(code) {
        return None;
    }
    for (found, _) in code.match_indices('(') {
        let name = &code[..found];
        let ends_with = |end: &&str| name.ends_with(*end);
        if OPERATION_CALLS.iter().any(&ends_with) {
            return Some((SampleKind::Error, found + 1, true));
        }
        if ERROR_CALLS.iter().any(ends_with) {
            return Some((SampleKind::Error, found + 1, false));
        }
    }
    None
}

/// Returns the string literals of a call whose arguments start at `start` of the first line.
fn literals_of_call(lines: &[SourceLine], start: usize) -> Vec<String> {
    let text: Vec<&str> = lines
        .iter()
        .take(24)
        .map(|line| match line {
            SourceLine::Code(code) => code.as_str(),
            _ => "",
        })
        .collect();
    let text = text.join("\n");
    let mut literals = Vec::new();
    let mut depth = 1;
    let mut chars = text[start..].chars();
    while let Some(c) = chars.next() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            '"' => literals.push(read_literal(&mut chars)),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    literals
}

/// Reads a string literal up to its closing quote, with escapes and continued lines resolved.
fn read_literal(chars: &mut std::str::Chars<'_>) -> String {
    let mut literal = String::new();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                Some('\n') => {
                    let rest = chars.as_str().trim_start();
                    *chars = rest.chars();
                }
                Some('n') => literal.push(' '),
                Some(escaped) => literal.push(escaped),
                None => break,
            },
            c => literal.push(c),
        }
    }
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
//! Opens doors.

/// Returns the doors.
#[must_use]
fn doors(
    of: House,
) -> usize {
    // Locks are slow.
    tracing::warn!(
        %error,
        \"could not open a door; \\
         bring a key\"
    );
    usage_error(\"the door is locked\", \"bring a key\");
    io_error(\"read the lock\", path, &error)
}

#[derive(Args)]
struct DoorArgs {
    /// Door to open
    name: String,
}

#[derive(Debug)]
struct Door {
    /// Number of locks.
    locks: usize,
}
";

    #[test]
    fn samples_of_each_kind_are_found_with_their_signature() {
        let found = collect(&[SourceFile::parse("crates/x/src/a.rs", SOURCE)]);
        let texts: Vec<(SampleKind, &str, &str)> = found
            .iter()
            .map(|sample| {
                let scope = sample.scope.as_deref().unwrap_or_default();
                (sample.kind, sample.text.as_str(), scope)
            })
            .collect();
        let doors = "fn doors( of: House, ) -> usize {";
        let expected = [
            (SampleKind::Comment, "Opens doors.", ""),
            (SampleKind::Comment, "Returns the doors.", ""),
            (SampleKind::Comment, "Locks are slow.", doors),
            (SampleKind::Log, "could not open a door; bring a key", doors),
            (
                SampleKind::Error,
                "the door is locked (hint: bring a key)",
                doors,
            ),
            (SampleKind::Error, "could not read the lock …: …", doors),
            (SampleKind::Help, "Door to open", "struct DoorArgs {"),
            (SampleKind::Comment, "Number of locks.", "struct Door {"),
        ];
        assert_eq!(texts, expected);
        assert_eq!(found[1].item.as_deref(), Some(doors));
    }

    #[test]
    fn tests_are_not_sampled() {
        let source = "/// Adds.\n#[cfg(test)]\nmod tests {\n    // Two.\n    let x = 2;\n}\n";
        assert!(collect(&[SourceFile::parse("crates/x/src/a.rs", source)]).is_empty());
        assert!(collect(&[SourceFile::parse("crates/x/tests/a.rs", SOURCE)]).is_empty());
    }
}
