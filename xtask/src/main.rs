//! Tools for developers: measurements, evaluations and generated documents.
//!
//! `cargo xtask bench NAME` runs a measurement; each report is printed and stored in
//! `target/bench/NAME.txt`. `cargo xtask real-agents` installs real coding agents and runs them;
//! its tables are in `docs/real-programs.md`. The checks of style are a normal test
//! (`tests/tidy.rs`), so that `cargo test` runs them.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this program talks to the developer who runs it"
)]

// The allocator of the shipped program, so that the measurements apply to it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod args; // the command line
mod bench; // the measurements
mod bench_engine; // an engine without git and agents, and stores that count
mod browser; // an attacker's pages in a real browser
mod cast; // the moving picture of the README
mod codegen; // generated files of the web page
mod dist; // the files of a release
mod eval; // runs that are scored
mod prose; // the language of the source, measured
mod real_agents; // real agents' programs against the scripted model server
mod reference; // the pages of docs/reference
mod report; // reports on the terminal and in files
mod rng; // reproducible random numbers
mod schemathesis; // the OpenAPI document against the server
mod site; // the documentation site
mod web; // the web page, built and used in a real browser

use std::process::ExitCode;

use args::Args;

const USAGE: &str = "\
cargo xtask bench claims        [--steps 100] [--callers 64] [--rounds 3] [--threads] [--store sqlite|memory] [--side engine|baseline]
cargo xtask bench linearizable  [--ops 1000000] [--agents 500] [--seed 1] [--plant NAME]
cargo xtask bench decide        [--samples 20000]
cargo xtask bench schedule      [--samples 500]
cargo xtask bench runners       [--agents 500] [--runs 50000]
cargo xtask bench polls         [--callers 64] [--steps 40]
cargo xtask bench wake          [--samples 500] [--agents 500] [--binary PATH]
cargo xtask bench bus           [--ops 1000000] [--samples 200] [--agents 50] [--steps 200]
cargo xtask bench lists         [--runs 100000] [--rounds 5]
cargo xtask bench readers       [--agents 1000] [--steps 2000] [--rounds 5]
cargo xtask bench start         [--binary PATH] [--runs 5]
cargo xtask bench landing       [--runs 12]
cargo xtask bench workspace     [--runs 12]
cargo xtask bench next-start    [--binary PATH] [--runs 40]
cargo xtask bench thousand      [--binary PATH] [--runs 1000]
cargo xtask bench queue         [--binary PATH] [--runs 200] [--validation-ms 2000]
cargo xtask bench radar         [--runs 5]
cargo xtask bench sandbox       [--write] (docs/sandbox.md)
cargo xtask bench stops         [--binary PATH] [--runs 1000]
cargo xtask bench chatty        [--binary PATH] [--agents 200]
cargo xtask bench reattach      [--binary PATH] [--agents 20] [--runs 10] [--restart]
cargo xtask bench team          [--binary PATH] [--agents 12] [--rounds 3] [--answer-ms 1000]
cargo xtask bench overhead      [--binary PATH] [--runs 50]
cargo xtask bench all
cargo xtask eval multi-lead     [--binary PATH]
cargo xtask schemathesis        [--samples 30] [--seed 1] [--binary PATH]
cargo xtask browser             [--binary PATH]
cargo xtask cast                [--binary PATH] (docs/screens/demo.svg)
cargo xtask codegen             (web/src/api.ts, web/src/states.ts)
cargo xtask prose               [--samples 30] [--seed 7] [--under crates/regatta-core]
cargo xtask reference           [--binary PATH] [--write] (docs/reference)
cargo xtask site                [--binary MDBOOK] [--repository URL] (docs, into target/site)
cargo xtask web                 --build (crates/regatta-server/page)
cargo xtask web                 [--binary PATH] [--minutes 0.5] [--only team,fleet300] [--write [--both]] (docs/screens)
cargo xtask dist                [--help] (the files of a release)
cargo xtask real-agents         [--programs goose,codex,…] [--scenarios write,cancel,…] [--layer straight|regatta|team|thread|all] [--binary PATH] [--install-only]
Everywhere: --check (exit 1 if a target is missed), --json, --dir PATH (where the stores go)";

fn main() -> ExitCode {
    // The sandbox measurement starts this program again, as the stage of the sandbox and as a
    // probe.
    let typed: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    match typed.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["confine", ..] => return regatta_agents::sandbox::main(std::env::args_os().skip(2)),
        ["confine-try", kind, what] => return bench::sandbox::run_probe(kind, what),
        ["dist", ..] => return dist::main(std::env::args().skip(2)),
        _ => {}
    }
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs a command. Returns whether all its demands hold.
fn run() -> anyhow::Result<bool> {
    let args = Args::parse(std::env::args().skip(1))?;
    let names: Vec<&str> = args.words.iter().map(String::as_str).collect();
    match names[..] {
        ["bench", "claims"] => bench::claims::run(&args),
        ["bench", "linearizable"] => bench::linearizable::run(&args),
        ["bench", "decide"] => bench::decide::run(&args),
        ["bench", "runners"] => bench::http::runners::run(&args),
        ["bench", "polls"] => bench::http::polls::run(&args),
        ["bench", "bus"] => bench::http::bus::run(&args),
        ["bench", "lists"] => bench::http::lists::run(&args),
        ["bench", "wake"] => bench::http::wake_latency::run(&args),
        ["bench", "readers"] => bench::http::readers::run(&args),
        ["bench", "landing"] => bench::landing::run(&args),
        ["bench", "workspace"] => bench::workspace::run(&args),
        ["bench", "next-start"] => bench::agents::next_start::run(&args),
        ["bench", "thousand"] => bench::agents::leak_check::run(&args),
        ["bench", "schedule"] => bench::schedule::run(&args),
        ["bench", "queue"] => bench::agents::queue::run(&args),
        ["bench", "radar"] => bench::collision_scan::run(&args),
        ["bench", "start"] => bench::start::run(&args),
        ["bench", "sandbox"] => bench::sandbox::run(&args),
        ["bench", "stops"] => bench::agents::stop_times::run(&args),
        ["bench", "chatty"] => bench::agents::output_flood::run(&args),
        ["bench", "reattach"] => bench::agents::reattach::run(&args),
        // started by `bench reattach`
        ["bench", "attendant"] => bench::agents::reattach::run_attendant(&args),
        ["bench", "team"] => bench::agents::team_start::run(&args),
        ["bench", "overhead"] => bench::agents::overhead::run(&args),
        ["bench", "all"] => {
            let all = [
                bench::claims::run,
                bench::decide::run,
                bench::schedule::run,
                bench::linearizable::run,
                bench::start::run,
            ];
            let mut good = true;
            for bench in all {
                good &= bench(&args)?;
            }
            Ok(good)
        }
        ["eval", "multi-lead"] => eval::run(&args),
        ["schemathesis"] => schemathesis::run(&args),
        ["browser"] => browser::run(&args),
        ["cast"] => cast::run(&args),
        ["codegen"] => codegen::run().map(|()| true),
        ["prose"] => prose::run(&args),
        ["reference"] => reference::run(&args),
        ["site"] => site::run(&args),
        ["web"] => web::run(&args),
        ["real-agents"] => real_agents::run(&args),
        _ => anyhow::bail!("usage:\n{USAGE}"),
    }
}
