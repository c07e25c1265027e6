//! Describes mistakes in files that people write, such as plans: the position, what is wrong, and
//! how to fix it.

use serde::Serialize;

use crate::output::{CommandError, usage_error};

/// The text of a file, and the name by which error messages call it, usually its path.
#[derive(Clone, Debug)]
pub(crate) struct SourceText {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// One mistake in a file. Lines and columns count from 1; columns count characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Diagnostic {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) what: String,
    pub(crate) fix: String,
}

/// The maximum number of mistakes that one error message lists.
const MAX_LISTED: usize = 20;

impl SourceText {
    pub(crate) fn new(name: impl Into<String>, text: impl Into<String>) -> SourceText {
        SourceText {
            name: name.into(),
            text: text.into(),
        }
    }

    /// Returns a mistake at a byte offset of the text, with its line and column.
    pub(crate) fn diagnostic(
        &self,
        offset: usize,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Diagnostic {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        Diagnostic {
            line,
            column,
            what: what.into(),
            fix: fix.into(),
        }
    }

    /// Formats a mistake as one line: `plan.toml:3:9: what; fix`.
    pub(crate) fn format_line(&self, diagnostic: &Diagnostic) -> String {
        format!(
            "{}:{}:{}: {}; {}",
            self.name, diagnostic.line, diagnostic.column, diagnostic.what, diagnostic.fix
        )
    }

    /// Returns the error of a command that lists these mistakes; the command ends with exit code 2.
    pub(crate) fn error_for(&self, faults: &[Diagnostic]) -> CommandError {
        let mut lines: Vec<String> = faults
            .iter()
            .take(MAX_LISTED)
            .map(|diagnostic| self.format_line(diagnostic))
            .collect();
        if faults.len() > MAX_LISTED {
            lines.push(format!("and {} more", faults.len() - MAX_LISTED));
        }
        let hint = match faults {
            [fault] => format!(
                "fix {}:{} and try again; nothing was created",
                self.name, fault.line
            ),
            many => format!(
                "fix these {} places and try again; nothing was created",
                many.len()
            ),
        };
        usage_error(lines.join("\n"), hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_from_one() {
        let source = SourceText::new("p", "ab\nü = x\n");
        let at = source.text.find('x').unwrap();
        let fault = source.diagnostic(at, "what", "fix");
        assert_eq!(source.format_line(&fault), "p:2:5: what; fix");
        assert_eq!(source.diagnostic(999, "", "").line, 3);
    }
}
