//! The arguments of `diff` and `revise`, the commands for reviewing finished work.

use std::str::FromStr;

use clap::Args;
use regatta_core::ids::TaskId;

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Task, or an attempt to include its changes that did not land
    pub(crate) id: String,
    /// Show only the changes since you last sent the work back
    #[arg(long)]
    pub(crate) since_review: bool,
    /// Show only the number of changed lines per file
    #[arg(long)]
    pub(crate) stat: bool,
    /// Open each changed file in a diff program: COMMAND, $REGATTA_DIFF_TOOL, or an installed
    /// editor
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, require_equals = true, conflicts_with = "stat")]
    pub(crate) tool: Option<Option<String>>,
    /// Print without a pager (REGATTA_PAGER, GIT_PAGER and PAGER choose the pager)
    #[arg(long)]
    pub(crate) no_pager: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReviseArgs {
    /// Task to send back
    pub(crate) id: TaskId,
    /// Instructions for the agent
    #[arg(value_name = "TEXT", required_unless_present_any = ["message", "comment"])]
    pub(crate) words: Vec<String>,
    /// Instructions, one paragraph each; may be repeated
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Vec<String>,
    /// Comment on a line of the finished work, PATH:LINE:TEXT; may be repeated
    #[arg(long, value_name = "PATH:LINE:TEXT")]
    pub(crate) comment: Vec<CommentArg>,
}

/// A review comment on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommentArg {
    pub(crate) path: String,
    pub(crate) line: u32,
    pub(crate) text: String,
}

impl FromStr for CommentArg {
    type Err = String;

    /// Parses `PATH:LINE:TEXT`. A path may contain colons, so the first number between two colons
    /// is the line.
    fn from_str(text: &str) -> Result<CommentArg, String> {
        let wrong =
            |what: &str| format!("{what}; write PATH:LINE:TEXT, such as src/a.rs:41:\"shorter\"");
        let ends = text.match_indices(':').map(|match_indice| match_indice.0);
        for colon in ends {
            let (path, rest) = (&text[..colon], &text[colon + 1..]);
            let Some((line, said)) = rest.split_once(':') else {
                break;
            };
            let Ok(line) = line.trim().parse::<u32>() else {
                continue;
            };
            let (path, said) = (path.trim().trim_start_matches("./"), said.trim());
            return match (path.is_empty(), line, said.is_empty()) {
                (true, ..) => Err(wrong("the path is missing")),
                (_, 0, _) => Err(wrong("lines are counted from 1")),
                (.., true) => Err(wrong("the text is missing")),
                _ => Ok(CommentArg {
                    path: path.into(),
                    line,
                    text: said.into(),
                }),
            };
        }
        Err(wrong("the line number is missing"))
    }
}

impl std::fmt::Display for CommentArg {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}:{}: {}", self.path, self.line, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_needs_a_path_a_line_and_a_text() {
        for (text, wanted) in [
            (
                "src/a.rs:41:use a token bucket",
                "src/a.rs:41: use a token bucket",
            ),
            ("src/a.rs:41: use a: b", "src/a.rs:41: use a: b"),
            ("./a.rs:1:x", "a.rs:1: x"),
            ("odd:name.rs:7:x", "odd:name.rs:7: x"),
            ("a.rs:7:see line 8:9", "a.rs:7: see line 8:9"),
        ] {
            assert_eq!(
                text.parse::<CommentArg>()
                    .map(|comment_arg| comment_arg.to_string()),
                Ok(wanted.to_owned()),
                "{text}"
            );
        }
        for (text, why) in [
            ("just words", "line number is missing"),
            ("a.rs:x:y", "line number is missing"),
            ("a.rs:7", "line number is missing"),
            (":7:x", "path is missing"),
            ("a.rs:0:x", "counted from 1"),
            ("a.rs:7: ", "text is missing"),
        ] {
            let said = text.parse::<CommentArg>().unwrap_err();
            assert!(
                said.contains(why) && said.contains("PATH:LINE:TEXT"),
                "{text}: {said}"
            );
        }
    }
}
