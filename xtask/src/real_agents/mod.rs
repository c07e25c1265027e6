//! `cargo xtask real-agents`: real coding agents against the scripted model server.
//!
//! Installs pinned versions of the programs from the npm registry into the build directory, and
//! runs each as an unprivileged user, with a home of its own, without key and network. There are
//! two layers: `straight` connects a program to its driver with a plain pipe, and `regatta` uses
//! the real binary. Two more layers use the real binary: `team` with mixed teams, and `thread` with
//! two agents in one Slack thread. Each layer writes its part of `docs/real-programs.md`.

mod account; // the programs' account, and leftover processes
mod bench; // the environment of the scenarios
mod cell; // cells and columns of the table
mod desk; // the real binary on one repository
mod install; // installation of the programs
mod page; // `docs/real-programs.md`
mod pipe; // a program on a plain pipe
mod programs; // the programs and their settings
mod straight; // the scenarios on a plain pipe
mod table; // the report
mod teams; // mixed teams of programs
mod thread; // two programs in one Slack thread
mod through; // the scenarios with the real binary

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use regatta_testkit::models::ModelServer;

use crate::args::Args;
use account::Account;
use bench::{Bench, chosen};
use cell::{Cell, Scenario};
use install::Installed;
use programs::{Program, ROWS, Row};
use table::Table;

/// Runs the selected layers. Returns whether every cell passed or has an explanation.
pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let target = target()?;
    let wanted = args.text("programs");
    let layer = args.text("layer").unwrap_or("all");
    let known = ["straight", "regatta", "all"].into_iter().chain(ASIDE.iter().map(|it| it.name));
    ensure!(known.clone().any(|it| it == layer), "--layer is one of {}", known.collect::<Vec<_>>().join(", "));
    if let Some(it) = ASIDE.iter().find(|it| it.name == layer) {
        return aside(it, args, &target);
    }
    let rows: Vec<Row> = ROWS.into_iter().filter(|it| named(wanted, it.program.name)).collect();
    ensure!(!rows.is_empty(), "no program is called {}", wanted.unwrap_or_default());
    let programs: Vec<&'static Program> = rows.iter().map(|it| it.program).collect();
    let installed = install::install(&target.join("real-agents"), &programs)?;
    if args.flag("install-only") {
        return Ok(installed.missing.is_empty());
    }
    let account = Account::choose()?;
    account.must_reach(&programs::NODE.entry(&installed.dir))?;
    let regatta = if layer == "straight" { None } else { Some(through::binary(&target, args.text("binary"))?) };
    let runs = target.join("real-agents-runs");
    std::fs::create_dir_all(&runs)?;
    let mut tables = vec![];
    type Layer = fn(&Bench<'_>, &Row, Scenario) -> Cell;
    let layers: [(&str, (&str, &str), Layer); 2] = [
        ("regatta", ("Through Regatta", through::ABOUT), through::run),
        ("straight", ("Straight to the driver, on a plain pipe", straight::ABOUT), straight::run),
    ];
    for (name, (title, about), run) in layers.into_iter().filter(|it| layer == "all" || it.0 == layer) {
        let mut table = Table::new(title, about);
        for row in &rows {
            let cells = Scenario::ALL.map(|scenario| {
                if let Some(why) = installed.missing.get(row.program.name) {
                    return Cell::NotRun(why.clone());
                }
                if !chosen(args.text("scenarios"), scenario) {
                    return Cell::NotRun(String::new());
                }
                // Each run has its own server, so that a fault in one story does not count for the
                // next.
                let cell = match ModelServer::start([]) {
                    Ok(models) => {
                        let bench = Bench {
                            installed: &installed,
                            account,
                            models: &models,
                            runs: runs.join(name),
                            regatta: regatta.clone(),
                        };
                        run(&bench, row, scenario)
                    }
                    Err(error) => Cell::failed(format!("could not start the model server: {error}")),
                };
                eprintln!("{name} {} {} {}: {}", row.program.name, row.drive.name(), scenario.word(), cell.text());
                cell
            });
            table.add(row, cells);
        }
        tables.push(table);
    }
    let report = table::report((TITLE, "real-agents"), &tables, &installed, account.name());
    println!("{report}");
    // Store only complete tables.
    if wanted.is_none() && args.text("scenarios").is_none() && layer == "all" {
        page::write_part(TITLE, &report)?;
    }
    let mut good = tables.iter().all(Table::is_good) && installed.missing.is_empty();
    if layer == "all" && wanted.is_none() {
        for it in &ASIDE {
            good &= aside(it, args, &target)?;
        }
    }
    Ok(good)
}

/// Creates the table of a layer, from the installed programs, the account, the directory of runs
/// and the binary, and the selected programs.
type Make = fn(&Installed, Account, (&Path, &Path), Option<&str>) -> anyhow::Result<Table>;

/// The title of the page's part with the layers `regatta` and `straight`.
const TITLE: &str = "Single agents";

/// A layer with its own part of the page.
struct Aside {
    name: &'static str,
    title: &'static str,
    programs: fn() -> Vec<&'static Program>,
    table: Make,
}

const ASIDE: [Aside; 2] = [
    Aside { name: "team", title: "Teams", programs: teams::programs, table: teams::table },
    Aside { name: "thread", title: "A conversation", programs: thread::programs, table: thread::table },
];

/// Runs a layer with its own part of the page, and stores the part if all programs were selected.
fn aside(layer: &Aside, args: &Args, target: &Path) -> anyhow::Result<bool> {
    let installed = install::install(&target.join("real-agents"), &(layer.programs)())?;
    if args.flag("install-only") {
        return Ok(installed.missing.is_empty());
    }
    let account = Account::choose()?;
    account.must_reach(&programs::NODE.entry(&installed.dir))?;
    let regatta = through::binary(target, args.text("binary"))?;
    let runs = target.join("real-agents-runs").join(layer.name);
    std::fs::create_dir_all(&runs)?;
    let wanted = args.text("programs");
    let table = (layer.table)(&installed, account, (&runs, &regatta), wanted)?;
    let good = table.is_good();
    let command = format!("real-agents --layer {}", layer.name);
    let report = table::report((layer.title, &command), &[table], &installed, account.name());
    println!("{report}");
    if wanted.is_none() {
        page::write_part(layer.title, &report)?;
    }
    Ok(good && installed.missing.is_empty())
}

fn named(wanted: Option<&str>, name: &str) -> bool {
    wanted.is_none_or(|it| it.split(',').any(|it| it == name))
}

/// Returns the build directory of this program.
fn target() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).context("this program is not in a build directory")?;
    Ok(target.to_owned())
}
