//! Collects the sentences of the source that people read: comments, log lines, errors and help
//! texts.

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

/// One sentence or comment.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) kind: SampleKind,
    pub(super) text: String,
    /// The item that a comment documents, or the line after it.
    pub(super) item: Option<String>,
}

/// Starts of log lines.
const LOG_MACROS: [&str; 4] = [
    "tracing::error!(",
    "tracing::warn!(",
    "tracing::info!(",
    "tracing::debug!(",
];

/// Functions whose arguments are sentences of an error.
const ERROR_CALLS: [&str; 7] = [
    "failed(",
    "usage(",
    "Problem::new(",
    "Refusal::invalid(",
    "Refusal::conflict(",
    "refuse(",
    "GitError::new(",
];

/// Paths below which doc comments are help texts.
const HELP_FILES: [&str; 2] = ["crates/regatta/src/args.rs", "crates/regatta/src/commands"];

/// Collects every sample of the program's own code. Tests and benches are left out.
pub(super) fn collect(files: &[SourceFile]) -> Vec<Sample> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_program(&file.path)) {
        collect_comments(file, &mut found);
        for (at, line) in file.lines.iter().enumerate() {
            let SourceLine::Code(code) = line else {
                continue;
            };
            let kind = if LOG_MACROS.iter().any(|start| code.contains(start)) {
                SampleKind::Log
            } else if ERROR_CALLS.iter().any(|start| code.contains(start)) {
                SampleKind::Error
            } else {
                continue;
            };
            if let Some(text) = first_sentence(&file.lines[at..]) {
                found.push(Sample {
                    kind,
                    text,
                    item: None,
                });
            }
        }
    }
    found
}

fn is_program(path: &str) -> bool {
    path.contains("/src/") && !path.contains("tests") && !path.starts_with("xtask")
}

fn collect_comments(file: &SourceFile, found: &mut Vec<Sample>) {
    let is_help = HELP_FILES.iter().any(|start| file.path.starts_with(start));
    let mut text: Vec<&str> = Vec::new();
    for line in &file.lines {
        match line {
            SourceLine::Comment(comment) => text.push(comment),
            SourceLine::Blank => text.clear(),
            SourceLine::Code(code) if text.is_empty() || code.trim_start().starts_with("#[") => {}
            SourceLine::Code(code) => {
                let kind = if is_help {
                    SampleKind::Help
                } else {
                    SampleKind::Comment
                };
                found.push(Sample {
                    kind,
                    text: text.join(" "),
                    item: Some(code.trim().to_owned()),
                });
                text.clear();
            }
        }
    }
}

/// Returns the first text in quotes that has a space, from a line or the three after it.
fn first_sentence(lines: &[SourceLine]) -> Option<String> {
    let code = lines.iter().take(4).filter_map(|line| match line {
        SourceLine::Code(code) => Some(code.as_str()),
        _ => None,
    });
    let text: String = code.collect::<Vec<_>>().join(" ");
    text.split('"')
        .skip(1)
        .step_by(2)
        .find(|quoted| quoted.contains(' '))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_each_kind_are_found() {
        let text = "\
/// Returns the doors.
#[must_use]
fn doors() -> usize {
    tracing::warn!(
        %error,
        \"could not open a door\"
    );
    failed(\"io\", \"the door is locked\", \"bring a key\")
}
";
        let found = collect(&[SourceFile::parse("crates/x/src/a.rs", text)]);
        let texts: Vec<(SampleKind, &str)> = found
            .iter()
            .map(|sample| (sample.kind, sample.text.as_str()))
            .collect();
        let expected = [
            (SampleKind::Comment, "Returns the doors."),
            (SampleKind::Log, "could not open a door"),
            (SampleKind::Error, "the door is locked"),
        ];
        assert_eq!(texts, expected);
        assert_eq!(found[0].item.as_deref(), Some("fn doors() -> usize {"));
        assert!(collect(&[SourceFile::parse("crates/x/tests/a.rs", text)]).is_empty());
        let help = collect(&[SourceFile::parse(
            "crates/regatta/src/commands/task.rs",
            "/// Add a task\nAdd,\n",
        )]);
        assert_eq!(help[0].kind, SampleKind::Help);
    }
}
