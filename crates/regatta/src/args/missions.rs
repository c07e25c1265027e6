//! What may be typed about missions with a lead, and how an agent's day goes.

use clap::{Args, Subcommand, ValueEnum};
use regatta_core::ids::{AgentName, MessageId, MissionId, TaskId};

#[derive(Debug, Subcommand)]
pub(crate) enum MissionWord {
    /// Ask for a mission: a lead breaks the goal into tasks and reports
    Start {
        /// What is to be reached
        #[arg(required_unless_present = "task")]
        goal: Option<String>,
        /// Have this agent's program lead; as regatta.toml says ([leads] agent) if not given
        #[arg(long, value_name = "NAME")]
        agent: Option<AgentName>,
        /// It is about a task that is there already
        #[arg(long, value_name = "TASK")]
        task: Option<TaskId>,
    },
    /// List the missions: who leads them, and who waits for a lead
    List,
    /// Show a mission: goal, lead, tasks, budget, progress, result
    Show {
        /// M3
        id: String,
    },
    /// Start nothing new of a mission; what runs goes on
    Pause {
        /// M3
        id: String,
    },
    /// Let a mission go on
    Resume {
        /// M3
        id: String,
    },
    /// End a mission: its processes stop, what they did is kept
    Cancel {
        /// M3
        id: String,
        /// Why, for whoever asked for it
        #[arg(long, default_value = "")]
        because: String,
    },
    /// Give a mission another lead
    Handover {
        /// M3
        id: String,
        /// Have this agent's program lead; the same if not given
        #[arg(long, value_name = "NAME")]
        to: Option<AgentName>,
    },
    /// As a lead: take a task that nobody has into your mission
    Adopt {
        /// T7
        task: TaskId,
        /// The mission; your own if you lead one
        #[arg(long, value_name = "MISSION")]
        mission: Option<String>,
    },
    /// As a lead: say that your mission is done
    Finish {
        /// What was reached, and what was not
        report: String,
    },
    /// Have a message routed that was not; one that was does nothing
    Route {
        /// The message's number
        message: MessageId,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Take back what was changed the last time
    #[arg(long)]
    pub(crate) undo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The mission
    pub(crate) mission: MissionId,
    /// Show it as it stood at that revision; without it, what happened in it and how it stands now
    #[arg(long, value_name = "REVISION", conflicts_with = "step")]
    pub(crate) at: Option<u64>,
    /// Show it at each thing that happened, one after the other
    #[arg(long)]
    pub(crate) step: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Graph {
    /// A mission, or a task with what is around it; all that is open here if not given
    pub(crate) id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostBy {
    Agent,
    Provider,
    Mission,
}
