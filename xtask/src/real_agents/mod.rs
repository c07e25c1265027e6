//! `cargo xtask real-agents`: real coding agents against the scripted model server.
//!
//! Installs pinned versions of the programs from the npm registry into the build directory, and
//! runs each as an unprivileged user, with a home of its own, without key and network. There are
//! two layers: `direct` connects a program to its driver with a plain pipe, and `regatta` uses
//! the real binary. Two more layers use the real binary: `team` with mixed teams, and
//! `slack_thread` with two agents in one Slack thread. Each layer writes its part of `docs/real-programs.md`.

mod bench; // the environment of the scenarios
mod direct; // the scenarios on a plain pipe
mod end_to_end;
mod fixture; // the real binary on one repository
mod install; // installation of the programs
mod page; // `docs/real-programs.md`
mod piped_program; // a program on a plain pipe
mod programs; // the programs and their settings
mod sandbox_user; // the programs' account, and leftover processes
mod scenario; // cells and columns of the table
mod slack_thread; // two programs in one Slack thread
mod table; // the report
mod teams; // mixed teams of programs // the scenarios with the real binary

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use regatta_testkit::models::ModelServer;

use crate::args::Args;
use bench::{AgentBench, is_chosen};
use install::InstalledPrograms;
use programs::{NpmProgram, ProgramRow, ROWS};
use sandbox_user::SandboxUser;
use scenario::{Scenario, ScenarioResult};
use table::ReportTable;

/// Runs the selected layers. Returns whether every cell passed or has an explanation.
pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let target = target_dir()?;
    let wanted = args.text("programs");
    let layer = args.text("layer").unwrap_or("all");
    let known = ["straight", "regatta", "all"]
        .into_iter()
        .chain(PAGE_LAYERS.iter().map(|page_layer| page_layer.name));
    ensure!(
        known.clone().any(|known| known == layer),
        "--layer is one of {}",
        known.collect::<Vec<_>>().join(", ")
    );
    if let Some(page_layer) = PAGE_LAYERS
        .iter()
        .find(|page_layer| page_layer.name == layer)
    {
        return run_page_layer(page_layer, args, &target);
    }
    let rows: Vec<ProgramRow> = ROWS
        .into_iter()
        .filter(|program| is_wanted(wanted, program.program.name))
        .collect();
    ensure!(
        !rows.is_empty(),
        "no program is called {}",
        wanted.unwrap_or_default()
    );
    let programs: Vec<&'static NpmProgram> = rows.iter().map(|program| program.program).collect();
    let installed = install::install_programs(&target.join("real-agents"), &programs)?;
    if args.flag("install-only") {
        return Ok(installed.missing.is_empty());
    }
    let account = SandboxUser::new()?;
    account.require_access(&programs::NODE.entry(&installed.dir))?;
    let regatta = if layer == "straight" {
        None
    } else {
        Some(end_to_end::find_binary(&target, args.text("binary"))?)
    };
    let runs = target.join("real-agents-runs");
    std::fs::create_dir_all(&runs)?;
    let mut tables = vec![];
    type RunScenario = fn(&AgentBench<'_>, &ProgramRow, Scenario) -> ScenarioResult;
    let layers: [(&str, (&str, &str), RunScenario); 2] = [
        (
            "regatta",
            ("Through Regatta", end_to_end::ABOUT),
            end_to_end::run,
        ),
        (
            "straight",
            ("Straight to the driver, on a plain pipe", direct::ABOUT),
            direct::run,
        ),
    ];
    for (name, (title, about), run) in layers
        .into_iter()
        .filter(|row| layer == "all" || row.0 == layer)
    {
        let mut table = ReportTable::new(title, about);
        for row in &rows {
            let cells = Scenario::ALL.map(|scenario| {
                if let Some(why) = installed.missing.get(row.program.name) {
                    return ScenarioResult::NotRun(why.clone());
                }
                if !is_chosen(args.text("scenarios"), scenario) {
                    return ScenarioResult::NotRun(String::new());
                }
                // Each run has its own server, so that a fault in one story does not count for the
                // next.
                let cell = match ModelServer::start([]) {
                    Ok(models) => {
                        let bench = AgentBench {
                            installed: &installed,
                            user: account,
                            models: &models,
                            runs_dir: runs.join(name),
                            regatta_binary: regatta.clone(),
                        };
                        run(&bench, row, scenario)
                    }
                    Err(error) => {
                        ScenarioResult::failed(format!("could not start the model server: {error}"))
                    }
                };
                eprintln!(
                    "{name} {} {} {}: {}",
                    row.program.name,
                    row.driver.name(),
                    scenario.name(),
                    cell.text()
                );
                cell
            });
            table.add_program(row, cells);
        }
        tables.push(table);
    }
    let report = table::report_text((TITLE, "real-agents"), &tables, &installed, account.name());
    println!("{report}");
    // Store only complete tables.
    if wanted.is_none() && args.text("scenarios").is_none() && layer == "all" {
        page::write_part(TITLE, &report)?;
    }
    let mut good = tables.iter().all(ReportTable::is_acceptable) && installed.missing.is_empty();
    if layer == "all" && wanted.is_none() {
        for page_layer in &PAGE_LAYERS {
            good &= run_page_layer(page_layer, args, &target)?;
        }
    }
    Ok(good)
}

/// Creates the table of a layer, from the installed programs, the account, the directory of runs
/// and the binary, and the selected programs.
type MakeTable = fn(
    &InstalledPrograms,
    SandboxUser,
    (&Path, &Path),
    Option<&str>,
) -> anyhow::Result<ReportTable>;

/// The title of the page's part with the layers `regatta` and `direct`.
const TITLE: &str = "Single agents";

/// A layer with its own part of the page.
struct PageLayer {
    name: &'static str,
    title: &'static str,
    programs: fn() -> Vec<&'static NpmProgram>,
    table: MakeTable,
}

const PAGE_LAYERS: [PageLayer; 2] = [
    PageLayer {
        name: "team",
        title: "Teams",
        programs: teams::needed_programs,
        table: teams::team_table,
    },
    PageLayer {
        name: "thread",
        title: "A conversation",
        programs: slack_thread::needed_programs,
        table: slack_thread::thread_table,
    },
];

/// Runs a layer with its own part of the page, and stores the part if all programs were selected.
fn run_page_layer(layer: &PageLayer, args: &Args, target: &Path) -> anyhow::Result<bool> {
    let installed = install::install_programs(&target.join("real-agents"), &(layer.programs)())?;
    if args.flag("install-only") {
        return Ok(installed.missing.is_empty());
    }
    let account = SandboxUser::new()?;
    account.require_access(&programs::NODE.entry(&installed.dir))?;
    let regatta = end_to_end::find_binary(target, args.text("binary"))?;
    let runs = target.join("real-agents-runs").join(layer.name);
    std::fs::create_dir_all(&runs)?;
    let wanted = args.text("programs");
    let table = (layer.table)(&installed, account, (&runs, &regatta), wanted)?;
    let good = table.is_acceptable();
    let command = format!("real-agents --layer {}", layer.name);
    let report = table::report_text(
        (layer.title, &command),
        &[table],
        &installed,
        account.name(),
    );
    println!("{report}");
    if wanted.is_none() {
        page::write_part(layer.title, &report)?;
    }
    Ok(good && installed.missing.is_empty())
}

fn is_wanted(wanted: Option<&str>, name: &str) -> bool {
    wanted.is_none_or(|wanted| wanted.split(',').any(|wanted_name| wanted_name == name))
}

/// Returns the build directory of this program.
fn target_dir() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program
        .ancestors()
        .nth(2)
        .context("this program is not in a build directory")?;
    Ok(target.to_owned())
}
