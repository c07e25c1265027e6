//! Looking at finished work, and sending it back.

use std::str::FromStr;

use clap::Args;
use regatta_core::ids::TaskId;

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The task; or an attempt, for all that it left, also what did not land
    pub(crate) id: String,
    /// Show only what changed since you last sent it back
    #[arg(long)]
    pub(crate) since_review: bool,
    /// Show only how many lines of which files changed
    #[arg(long)]
    pub(crate) stat: bool,
    /// Open each file before and after in a program: COMMAND, $REGATTA_DIFF_TOOL, or an editor that is here
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, require_equals = true, conflicts_with = "stat")]
    pub(crate) tool: Option<Option<String>>,
    /// Print it all at once, also on a terminal; REGATTA_PAGER, GIT_PAGER and PAGER name what shows pages
    #[arg(long)]
    pub(crate) no_pager: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Revise {
    /// The task
    pub(crate) id: TaskId,
    /// What is to be different
    #[arg(value_name = "TEXT", required_unless_present_any = ["message", "comment"])]
    pub(crate) words: Vec<String>,
    /// The same; may be given again for another paragraph
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Vec<String>,
    /// A word about one line of it as it is now, PATH:LINE:TEXT; may be given again
    #[arg(long, value_name = "PATH:LINE:TEXT")]
    pub(crate) comment: Vec<Comment>,
}

/// A word about one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Comment {
    pub(crate) path: String,
    pub(crate) line: u32,
    pub(crate) text: String,
}

impl FromStr for Comment {
    type Err = String;

    /// A path may have colons, so the first number between two of them is the line.
    fn from_str(text: &str) -> Result<Comment, String> {
        let wrong = |what: &str| format!("{what}; write PATH:LINE:TEXT, such as src/a.rs:41:\"shorter\"");
        let ends = text.match_indices(':').map(|it| it.0);
        for colon in ends {
            let (path, rest) = (&text[..colon], &text[colon + 1..]);
            let Some((line, said)) = rest.split_once(':') else { break };
            let Ok(line) = line.trim().parse::<u32>() else { continue };
            let (path, said) = (path.trim().trim_start_matches("./"), said.trim());
            return match (path.is_empty(), line, said.is_empty()) {
                (true, ..) => Err(wrong("the path is missing")),
                (_, 0, _) => Err(wrong("lines are counted from 1")),
                (.., true) => Err(wrong("nothing is said about the line")),
                _ => Ok(Comment { path: path.into(), line, text: said.into() }),
            };
        }
        Err(wrong("there is no line number in it"))
    }
}

impl std::fmt::Display for Comment {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}:{}: {}", self.path, self.line, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_has_a_path_a_line_and_words() {
        for (text, wanted) in [
            ("src/a.rs:41:use a token bucket", "src/a.rs:41: use a token bucket"),
            ("src/a.rs:41: use a: b", "src/a.rs:41: use a: b"),
            ("./a.rs:1:x", "a.rs:1: x"),
            ("odd:name.rs:7:x", "odd:name.rs:7: x"),
            ("a.rs:7:see line 8:9", "a.rs:7: see line 8:9"),
        ] {
            assert_eq!(text.parse::<Comment>().map(|it| it.to_string()), Ok(wanted.to_owned()), "{text}");
        }
        for (text, why) in [
            ("just words", "no line number"),
            ("a.rs:x:y", "no line number"),
            ("a.rs:7", "no line number"),
            (":7:x", "path is missing"),
            ("a.rs:0:x", "counted from 1"),
            ("a.rs:7: ", "nothing is said"),
        ] {
            let said = text.parse::<Comment>().unwrap_err();
            assert!(said.contains(why) && said.contains("PATH:LINE:TEXT"), "{text}: {said}");
        }
    }
}
