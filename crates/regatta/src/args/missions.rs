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
    /// A mission, or a task with what is around it; what is open here and what ended lately if not given
    pub(crate) id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostBy {
    Provider,
    Mission,
    Agent,
    Model,
}

/// How many days before today something begins: `today`, `yesterday`, `7d`, `2w`, or a date (UTC).
pub(crate) fn days_since(text: &str) -> Result<u32, String> {
    days_before(text, jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date())
}

fn days_before(text: &str, today: jiff::civil::Date) -> Result<u32, String> {
    let many =
        |it: &str, days: u32| it.parse::<u32>().ok().and_then(|it| it.checked_mul(days)).filter(|it| *it < 36_500);
    let found = match text {
        "today" => Some(0),
        "yesterday" => Some(1),
        _ => match (text.strip_suffix('d'), text.strip_suffix('w')) {
            (Some(days), _) => many(days, 1),
            (_, Some(weeks)) => many(weeks, 7),
            _ => {
                let since = text.parse::<jiff::civil::Date>().ok();
                since.and_then(|it| u32::try_from(it.until(today).ok()?.get_days()).ok())
            }
        },
    };
    found.ok_or_else(|| "say today, yesterday, 7d, 2w or a date that has been, such as 2026-07-01".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_when_is_said_in_days() {
        let today = jiff::civil::date(2026, 3, 2);
        for (text, days) in
            [("today", 0), ("yesterday", 1), ("7d", 7), ("2w", 14), ("2026-03-02", 0), ("2026-02-27", 3)]
        {
            assert_eq!(days_before(text, today), Ok(days), "{text}");
        }
        for bad in ["", "d", "-1d", "2026-03-03", "7", "tomorrow", "99999999d", "2026-13-01"] {
            assert!(days_before(bad, today).is_err(), "{bad}");
        }
    }
}
