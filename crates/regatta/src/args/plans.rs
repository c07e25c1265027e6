//! What may be typed of runs and plans.

use clap::{Args, Subcommand};
use regatta_core::ids::{AgentName, TeamName};

use super::*;

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The plan, in TOML or JSON, or a goal in words, of which an agent makes a plan first; - reads standard input; none takes the tasks that wait on the board (asks first, or needs --yes)
    #[arg(value_name = "PLAN|GOAL")]
    pub(crate) plan: Option<PathBuf>,
    /// The same as a plan's name: a file of tasks; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "from_wave", "resume"])]
    pub(crate) from: Option<PathBuf>,
    /// Have the members of this team do it, as far as they do tasks; it is launched if it is not
    #[arg(long, value_name = "NAME", conflicts_with_all = ["agents", "resume"])]
    pub(crate) team: Option<TeamName>,
    /// Let it cost at most so many US dollars, such as 2.50: then nothing of it starts, and the inbox says so
    #[arg(long, value_name = "DOLLARS", value_parser = super::agents::dollars, conflicts_with = "resume")]
    pub(crate) budget: Option<u64>,
    /// Have this agent make the plan of a goal; the first of the agents if not given
    #[arg(long, value_name = "NAME")]
    pub(crate) planner: Option<AgentName>,
    /// Let a scripted planner follow these steps
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) planner_script: Option<PathBuf>,
    /// Run a wave of quests instead: the JSON that `ol hero hunt` writes
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    pub(crate) from_wave: Option<PathBuf>,
    /// The quest of the wave; what its ids begin with if not given
    #[arg(long, requires = "from_wave")]
    pub(crate) quest: Option<String>,
    /// Run this when a bead's work has passed; {id} and {quest} stand for its own
    #[arg(long, value_name = "CMD", requires = "from_wave")]
    pub(crate) ratchet: Option<String>,
    /// Wait until nothing more happens by itself; the exit code tells the outcome
    #[arg(long)]
    pub(crate) wait: bool,
    /// Start each task as soon as it is ready (flow, unless regatta.toml says otherwise), or layer by layer
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Run at most that many at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_workers: Option<u32>,
    /// Let tasks that touch the same files run at once; the landing queue merges their work
    #[arg(long, alias = "worktrees", overrides_with = "no_worktrees")]
    pub(crate) isolate: bool,
    /// Let tasks that touch the same files take turns, as they do unless --isolate is given
    #[arg(long, alias = "no-isolate", hide = true, overrides_with = "isolate")]
    pub(crate) no_worktrees: bool,
    /// Land what each wave made as one commit, when all of it has passed; runs in waves
    #[arg(long, overrides_with = "per_task_commits")]
    pub(crate) wave_commits: bool,
    /// Land what each task made as a commit of its own (unless the plan or regatta.toml says otherwise)
    #[arg(long, overrides_with = "wave_commits")]
    pub(crate) per_task_commits: bool,
    /// Have agents find the files of tasks that name none, at low effort, and wait for that before anything starts; without it such a task is not given to anybody
    #[arg(long, conflicts_with_all = ["plan_only", "resume"])]
    pub(crate) fill_manifests: bool,
    /// Use these agents; "scripted" is always there
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub(crate) agents: Vec<AgentName>,
    /// Wait, and print each event as a line of JSON before the answer
    #[arg(long, requires = "json")]
    pub(crate) events: bool,
    /// Show the plan and start nothing
    #[arg(long)]
    pub(crate) plan_only: bool,
    /// Let a stopped mission go on
    #[arg(long, value_name = "MISSION", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["plan", "from_wave"])]
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
