//! What may be typed of runs and plans.

use clap::{Args, Subcommand};
use regatta_core::ids::AgentName;

use super::*;

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The plan, in TOML or JSON; - reads standard input; none takes the tasks that wait on the board (asks first, or needs --yes)
    pub(crate) plan: Option<PathBuf>,
    /// Wait until nothing more happens by itself; the exit code tells the outcome
    #[arg(long)]
    pub(crate) wait: bool,
    /// Start each task as soon as it is ready, or layer by layer
    #[arg(long, value_enum, default_value_t = Mode::Flow)]
    pub(crate) mode: Mode,
    /// Run at most that many at once
    #[arg(long, value_name = "N")]
    pub(crate) max_workers: Option<u32>,
    /// Use these agents; "scripted" is always there
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub(crate) agents: Vec<AgentName>,
    /// Show the plan and start nothing
    #[arg(long)]
    pub(crate) plan_only: bool,
    /// Let a stopped mission go on
    #[arg(long, value_name = "MISSION", num_args = 0..=1, default_missing_value = "")]
    pub(crate) resume: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Flow,
    Waves,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanWord {
    /// Say what is wrong with a plan, by line and column; start and create nothing
    Check {
        /// The plan, in TOML or JSON; - reads standard input
        file: PathBuf,
    },
}
