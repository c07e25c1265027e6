//! The arguments of `run` and `plan`.

use clap::{Args, Subcommand};
use regatta_core::ids::{AgentName, TeamName};

use super::*;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Plan file (TOML or JSON), - for standard input, or a goal in words that an agent turns into
    /// a plan first; omit it to run the waiting tasks (asks first, or needs --yes)
    #[arg(value_name = "PLAN|GOAL")]
    pub(crate) plan: Option<PathBuf>,
    /// Plan file, like PLAN; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "from_wave", "resume"])]
    pub(crate) from: Option<PathBuf>,
    /// Give the tasks to the workers of this team; launch the team if it does not run
    #[arg(long, value_name = "NAME", conflicts_with_all = ["agents", "resume"])]
    pub(crate) team: Option<TeamName>,
    /// Limit the cost in US dollars, such as 2.50; at the limit nothing more starts and the inbox
    /// shows it
    #[arg(long, value_name = "DOLLARS", value_parser = super::agents::parse_dollars, conflicts_with = "resume")]
    pub(crate) budget: Option<u64>,
    /// Agent that turns a goal into a plan (default: the first of the agents)
    #[arg(long, value_name = "NAME")]
    pub(crate) planner: Option<AgentName>,
    /// Steps for a scripted planner
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) planner_script: Option<PathBuf>,
    /// Run a wave of quests: the JSON file that `ol hero hunt` writes
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    pub(crate) from_wave: Option<PathBuf>,
    /// Quest of the wave (default: the common prefix of its ids)
    #[arg(long, requires = "from_wave")]
    pub(crate) quest: Option<String>,
    /// Command to run when a bead's work has passed; {id} and {quest} are replaced
    #[arg(long, value_name = "CMD", requires = "from_wave")]
    pub(crate) ratchet: Option<String>,
    /// Wait until nothing more can happen without a person; the exit code is the outcome
    #[arg(long)]
    pub(crate) wait: bool,
    /// Start each task as soon as it is ready (flow, the default), or layer by layer (waves);
    /// regatta.toml can change the default
    #[arg(long, value_enum)]
    pub(crate) mode: Option<RunModeArg>,
    /// Maximum number of attempts at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_workers: Option<u32>,
    /// Run tasks that touch the same files at the same time; the landing queue merges their work
    #[arg(long, alias = "worktrees", overrides_with = "no_worktrees")]
    pub(crate) isolate: bool,
    /// Run tasks that touch the same files one after the other (the default)
    #[arg(long, alias = "no-isolate", hide = true, overrides_with = "isolate")]
    pub(crate) no_worktrees: bool,
    /// Land each wave as one commit when all its tasks have passed; implies --mode waves
    #[arg(long, overrides_with = "per_task_commits")]
    pub(crate) wave_commits: bool,
    /// Land each task as its own commit (the default unless the plan or regatta.toml changes it)
    #[arg(long, overrides_with = "wave_commits")]
    pub(crate) per_task_commits: bool,
    /// First let agents find the files of tasks that list none; otherwise such tasks do not start
    #[arg(long, conflicts_with_all = ["plan_only", "resume"])]
    pub(crate) fill_manifests: bool,
    /// Agents to use; the agent "scripted" always exists
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub(crate) agents: Vec<AgentName>,
    /// Wait, and print each event as a line of JSON before the result
    #[arg(long, requires = "json")]
    pub(crate) events: bool,
    /// Print the plan and start nothing
    #[arg(long)]
    pub(crate) plan_only: bool,
    /// Resume a stopped mission
    #[arg(long, value_name = "MISSION", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["plan", "from_wave"])]
    pub(crate) resume: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunModeArg {
    Flow,
    Waves,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Check a plan and report problems by line and column, without starting it
    Check {
        /// Plan file (TOML or JSON); - reads standard input
        file: PathBuf,
    },
}
