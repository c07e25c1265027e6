//! A mistake in a file that a person wrote: its place, a message and the fix.

use serde::Serialize;

use crate::output::{CommandError, usage_error};

/// A text and its name in error messages.
#[derive(Clone, Debug)]
pub(crate) struct SourceText {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// One mistake. Lines and columns count from 1; columns count characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Diagnostic {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) what: String,
    pub(crate) fix: String,
}

/// The largest number of mistakes that one error lists.
const MAX_LISTED: usize = 20;

impl SourceText {
    pub(crate) fn new(name: impl Into<String>, text: impl Into<String>) -> SourceText {
        SourceText {
            name: name.into(),
            text: text.into(),
        }
    }

    /// Returns a mistake at an offset of the text.
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

    /// Returns the error with exit code 2 that lists the mistakes.
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
