//! The arguments of `mission`, `migrate`, `replay`, `graph` and `cost`.

use clap::{Args, Subcommand, ValueEnum};
use regatta_core::ids::{AgentName, MessageId, MissionId, TaskId};

#[derive(Debug, Subcommand)]
pub(crate) enum MissionCommand {
    /// Start a mission: a lead breaks the goal into tasks and reports at the end
    Start {
        /// Goal of the mission
        #[arg(required_unless_present = "task")]
        goal: Option<String>,
        /// Agent that leads (default: [leads] agent in regatta.toml)
        #[arg(long, value_name = "NAME")]
        agent: Option<AgentName>,
        /// Start the mission for an existing task
        #[arg(long, value_name = "TASK")]
        task: Option<TaskId>,
    },
    /// List missions with their leads, and missions that wait for a lead
    List,
    /// Show a mission: goal, lead, tasks, budget, progress, result
    Show {
        /// Mission, such as M3
        id: String,
    },
    /// Pause a mission: running attempts continue, nothing new starts
    Pause {
        /// Mission, such as M3
        id: String,
    },
    /// Resume a paused mission
    Resume {
        /// Mission, such as M3
        id: String,
    },
    /// Cancel a mission: its processes stop, their work is kept
    Cancel {
        /// Mission, such as M3
        id: String,
        /// Reason to send to the person who started it
        #[arg(long, value_name = "REASON", default_value = "")]
        because: String,
    },
    /// Give a mission another lead
    Handover {
        /// Mission, such as M3
        id: String,
        /// Agent that leads from now on (default: the same agent)
        #[arg(long, value_name = "NAME")]
        to: Option<AgentName>,
    },
    /// As a lead: add a task without a mission to your mission
    Adopt {
        /// Task to adopt, such as T7
        task: TaskId,
        /// Mission to add it to (default: the mission that you lead)
        #[arg(long, value_name = "MISSION")]
        mission: Option<String>,
    },
    /// As a lead: finish your mission with a report
    Finish {
        /// Report about achieved and missed goals
        report: String,
    },
    /// Route a message that the router missed; a routed message is ignored
    Route {
        /// Message to route, such as B7
        message: MessageId,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Undo the last migration
    #[arg(long)]
    pub(crate) undo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Mission to show, such as M3
    pub(crate) mission: MissionId,
    /// Show the mission as it was at this revision (default: its history and its present state)
    #[arg(long, value_name = "REVISION", conflicts_with = "step")]
    pub(crate) at: Option<u64>,
    /// Show the mission at each of its events, one after the other
    #[arg(long)]
    pub(crate) step: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// Mission, or task with its neighbours (default: open and recently ended tasks of the project)
    pub(crate) id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostByArg {
    Provider,
    Mission,
    Agent,
    Model,
}

/// Parses the value of `--since` and returns how many days ago that was. Dates are in UTC.
pub(crate) fn parse_days_since(text: &str) -> Result<u32, String> {
    days_between(
        text,
        jiff::Timestamp::now()
            .to_zoned(jiff::tz::TimeZone::UTC)
            .date(),
    )
}

fn days_between(text: &str, today: jiff::civil::Date) -> Result<u32, String> {
    let many = |s: &str, days: u32| {
        s.parse::<u32>()
            .ok()
            .and_then(|parse| parse.checked_mul(days))
            .filter(|parse| *parse < 36_500)
    };
    let found = match text {
        "today" => Some(0),
        "yesterday" => Some(1),
        _ => match (text.strip_suffix('d'), text.strip_suffix('w')) {
            (Some(days), _) => many(days, 1),
            (_, Some(weeks)) => many(weeks, 7),
            _ => {
                let since = text.parse::<jiff::civil::Date>().ok();
                since.and_then(|date| u32::try_from(date.until(today).ok()?.get_days()).ok())
            }
        },
    };
    found.ok_or_else(|| {
        "write today, yesterday, 7d, 2w or a date in the past, such as 2026-07-01".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_accepts_names_durations_and_past_dates() {
        let today = jiff::civil::date(2026, 3, 2);
        for (text, days) in [
            ("today", 0),
            ("yesterday", 1),
            ("7d", 7),
            ("2w", 14),
            ("2026-03-02", 0),
            ("2026-02-27", 3),
        ] {
            assert_eq!(days_between(text, today), Ok(days), "{text}");
        }
        for bad in [
            "",
            "d",
            "-1d",
            "2026-03-03",
            "7",
            "tomorrow",
            "99999999d",
            "2026-13-01",
        ] {
            assert!(days_between(bad, today).is_err(), "{bad}");
        }
    }
}
