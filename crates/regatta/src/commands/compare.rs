//! The command `compare`, which shows the figures of several missions side by side.

use clap::Args;
use regatta_api::view::MissionFiguresView;
use regatta_api::{call, input};
use regatta_core::budget::format_dollars;
use regatta_core::display;
use regatta_core::ids::MissionId;
use regatta_core::task_timeline::Activity;

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, first_line, format_exact_duration, format_table, usage_error};
use crate::run_progress::format_tokens;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("compare", &["regatta compare M3 M4"])];

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Missions to compare, such as M3 M5
    #[arg(required = true, num_args = 1..=8, value_name = "MISSION")]
    pub(crate) ids: Vec<MissionId>,
}

/// Runs `regatta compare`.
pub(crate) fn compare(app: &CommandContext, ids: &[MissionId]) -> CommandResult {
    if let [only] = ids {
        let hint = format!("add another mission: regatta compare {only} M2");
        return Err(usage_error(
            "regatta compare needs at least two missions",
            hint,
        ));
    }
    let reply: CallReply<Vec<MissionFiguresView>> =
        app.call(call::MissionCompare(input::MissionCompare {
            ids: ids.to_vec(),
        }))?;
    let all = reply.data;
    let next: Vec<String> = ids
        .iter()
        .take(2)
        .map(|id| format!("regatta replay {id}"))
        .collect();
    app.output
        .print_answer("mission.compare", &all, &next, |_| draw_comparison(&all))
}

/// Draws a table with a column per mission and a row per figure.
fn draw_comparison(all: &[MissionFiguresView]) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, of: &dyn Fn(&MissionFiguresView) -> String| {
        rows.push(
            std::iter::once(name.to_owned())
                .chain(all.iter().map(of))
                .collect(),
        );
    };
    row("", &|mission_figures| {
        format!(
            "{} {}",
            mission_figures.mission,
            first_line(&mission_figures.title)
        )
    });
    row("state", &|mission_figures| {
        if mission_figures.running {
            "running".into()
        } else {
            "ended".into()
        }
    });
    row("landed", &|mission_figures| {
        format!("{} of {}", mission_figures.landed, mission_figures.tasks)
    });
    row("failed", &|mission_figures| {
        mission_figures.failed.to_string()
    });
    row("time", &|mission_figures| {
        format_exact_duration(mission_figures.wall_ms)
    });
    row("work", &|mission_figures| {
        format_exact_duration(mission_figures.work_ms)
    });
    row("agents", &|mission_figures| {
        mission_figures.agents.to_string()
    });
    row("retries", &|mission_figures| {
        mission_figures.retries.to_string()
    });
    row("fix-ups", &|mission_figures| {
        mission_figures.fixups.to_string()
    });
    row("conflicts", &|mission_figures| {
        mission_figures.conflicts.to_string()
    });
    row("tokens", &|mission_figures| {
        format_tokens(mission_figures.spent.usage.tokens())
    });
    // Without a known price, print a text, because $0.00 would be wrong.
    row(
        "cost",
        &|mission_figures| match mission_figures.spent.usage.micro_usd {
            Some(micro) => format_dollars(micro),
            None => "no price reported".into(),
        },
    );
    let mut kinds: Vec<Activity> = all
        .iter()
        .flat_map(|mission_figures| {
            mission_figures
                .time
                .iter()
                .map(|activity_total| activity_total.activity)
        })
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let name = format!("  {}", display::activity_display(kind).label);
        row(&name, &|mission_figures| {
            mission_figures
                .time
                .iter()
                .find(|sum| sum.activity == kind)
                .map_or("-".into(), |activity_total| {
                    format_exact_duration(activity_total.ms)
                })
        });
    }
    format_table(&rows)
}
