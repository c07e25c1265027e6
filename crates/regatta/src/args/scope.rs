//! What may be typed of scope escapes and standing rules.

use clap::{Args, Subcommand, ValueEnum};
use regatta_core::project::RuleAction;

use super::*;

#[derive(Debug, Subcommand)]
pub(crate) enum ScopeWord {
    /// List what was found outside manifests
    List,
    /// Make a task of one
    FollowUp {
        /// Such as T3.1
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RuleWord {
    /// List them
    List,
    /// Say which of them a task or a change meets
    Test(RuleTest),
    /// Add one to regatta.toml and bring the project up to date
    Add(Box<RuleAdd>),
}

#[derive(Debug, Args)]
pub(crate) struct RuleTest {
    /// A task, whose type and files are taken
    pub(crate) task: Option<TaskId>,
    /// The type of the work
    #[arg(long = "type", value_enum, default_value_t = Type::Task)]
    pub(crate) issue_type: Type,
    /// The files it touches
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    pub(crate) files: Vec<String>,
    /// A line that it adds to them
    #[arg(long, value_name = "TEXT")]
    pub(crate) line: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RuleAdd {
    /// What it is called
    pub(crate) name: String,
    /// What it says to whoever it meets
    #[arg(long, value_name = "WORDS")]
    pub(crate) says: String,
    /// Only work of these types
    #[arg(long = "type", value_enum, num_args = 1..)]
    pub(crate) types: Vec<Type>,
    /// Only work on these files
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    pub(crate) files: Vec<String>,
    /// Only changes that add a line with this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) pattern: Option<String>,
    /// What it does
    #[arg(long, value_enum, default_value_t = Action::Warn)]
    pub(crate) action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Action {
    Block,
    Warn,
    Leave,
}

impl From<Action> for RuleAction {
    fn from(it: Action) -> RuleAction {
        match it {
            Action::Block => RuleAction::Block,
            Action::Warn => RuleAction::Warn,
            Action::Leave => RuleAction::Leave,
        }
    }
}
