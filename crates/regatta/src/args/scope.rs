//! The arguments of `scope` and `rule`.

use clap::{Args, Subcommand, ValueEnum};
use regatta_core::project::RuleAction;

use super::*;

#[derive(Debug, Subcommand)]
pub(crate) enum ScopeCommand {
    /// List scope escapes: changes outside the tasks' manifests
    List,
    /// Make a follow-up task from a scope escape
    FollowUp {
        /// Scope escape, such as T3.1
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RuleCommand {
    /// List the standing rules
    List,
    /// Check which standing rules apply to a task or a change
    Test(RuleTestArgs),
    /// Add a standing rule to regatta.toml and apply it to the project
    Add(Box<RuleAddArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct RuleTestArgs {
    /// Task to test, with its type and files
    pub(crate) task: Option<TaskId>,
    /// Type of the work
    #[arg(long = "type", value_enum, default_value_t = TaskTypeArg::Task)]
    pub(crate) issue_type: TaskTypeArg,
    /// Files that the work touches
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    pub(crate) files: Vec<String>,
    /// Line that the work adds to these files
    #[arg(long, value_name = "TEXT")]
    pub(crate) line: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RuleAddArgs {
    /// Name of the rule
    pub(crate) name: String,
    /// Message to the agents whose work the rule matches
    #[arg(long, value_name = "TEXT")]
    pub(crate) says: String,
    /// Match only work of these types
    #[arg(long = "type", value_enum, num_args = 1..)]
    pub(crate) types: Vec<TaskTypeArg>,
    /// Match only work on these files
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    pub(crate) files: Vec<String>,
    /// Match only changes that add a line with this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) pattern: Option<String>,
    /// Effect of a match: block refuses the work, warn reports it, leave ignores it
    #[arg(long, value_enum, default_value_t = RuleActionArg::Warn)]
    pub(crate) action: RuleActionArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuleActionArg {
    Block,
    Warn,
    Leave,
}

impl From<RuleActionArg> for RuleAction {
    fn from(rule_action_arg: RuleActionArg) -> RuleAction {
        match rule_action_arg {
            RuleActionArg::Block => RuleAction::Block,
            RuleActionArg::Warn => RuleAction::Warn,
            RuleActionArg::Leave => RuleAction::Ignore,
        }
    }
}
