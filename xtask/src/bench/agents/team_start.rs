//! A team of twelve launched at once, compared with twelve launches one by one: the time until all
//! are alive.
//!
//! Every member answers after the same time as a real model, by its script. If a launch takes as
//! long as its slowest member and not the sum, twelve members take little longer than one.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::json;

use super::fixture::BenchFixture;
use crate::args::Args;
use crate::bench::start::program_path;
use crate::report::{Report, format_ms};

/// The required ratio of twelve one by one to twelve at once.
const MIN_SPEEDUP: f64 = 4.0;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let (agents, rounds): (usize, usize) = (args.number("agents", 12)?, args.number("rounds", 3)?);
    let answer_ms: u64 = args.number("answer-ms", 1_000)?;
    ensure!(agents > 1, "a team needs more than one member");
    let binary = program_path(args)?;
    let fixture = BenchFixture::new(args, &binary)?;
    let mut report = Report::new("team", args);
    let daemon = fixture.start_daemon()?;
    fixture.run_command(&["init", "--yes", "--validate", "true"])?;
    let script = json!([{ "sleep": format!("{answer_ms}ms") }, { "say": "here" }]).to_string();
    let member = |name: &str, provider: &str| {
        format!(
            "name = \"{name}\"\nprovider = \"{provider}\"\nbackend = \"scripted\"\nscript = \
            '{script}'\n"
        )
    };
    // Half of the members are on the primary lane. The others have lanes of their own, which start
    // when the lead has answered.
    let others = |nth: usize| {
        member(
            &format!("m{nth}"),
            if nth.is_multiple_of(2) {
                "opencode"
            } else {
                "codex"
            },
        )
    };
    let whole: String = (1..agents)
        .map(|nth| format!("[[member]]\n{}", others(nth)))
        .collect();
    let make = |name: &str, text: String| -> anyhow::Result<()> {
        let file = fixture.root.join(format!("{name}.toml"));
        std::fs::write(&file, text)?;
        fixture
            .run_command(&["team", "create", name, "--file", &file.to_string_lossy()])
            .map(drop)
    };
    make(
        "together",
        format!("[lead]\n{}{whole}", member("lead", "codex")),
    )?;
    for nth in 0..agents {
        make(
            &format!("alone-{nth}"),
            format!("[lead]\n{}", member("lead", "codex")),
        )?;
    }
    let launch = |name: &str, expected: usize| -> anyhow::Result<Duration> {
        let began = Instant::now();
        let view = fixture.run_command(&["team", "launch", name, "--wait", "5m"])?;
        let took = began.elapsed();
        ensure!(
            view["summary"]["alive"] == expected,
            "{name}: {}",
            view["summary"]
        );
        Ok(took)
    };
    let (mut together, mut alone) = (vec![], vec![]);
    for _ in 0..rounds {
        together.push(launch("together", agents)?);
        fixture.run_command(&["team", "stop", "together"])?;
        let mut sum = Duration::ZERO;
        for nth in 0..agents {
            sum += launch(&format!("alone-{nth}"), 1)?;
        }
        for nth in 0..agents {
            fixture.run_command(&["team", "stop", &format!("alone-{nth}")])?;
        }
        alone.push(sum);
    }
    fixture.stop_daemon(daemon)?;
    together.sort_unstable();
    alone.sort_unstable();
    let (together, alone) = (together[rounds / 2], alone[rounds / 2]);
    let ratio = alone.as_secs_f64() / together.as_secs_f64();
    report.add_line(format!(
        "  {agents} members that answer after {answer_ms} ms: {} together, {} one by one (medians \
        of {rounds}): {ratio:.1} to 1",
        format_ms(together),
        format_ms(alone)
    ));
    report.set_value(
        "team",
        json!({ "agents": agents, "together_ms": together.as_secs_f64() * 1e3, "alone_ms": alone.as_secs_f64() * 1e3, "ratio": ratio }),
    );
    report.check_target(
        ratio >= MIN_SPEEDUP,
        "all members are alive at least four times sooner than one by one",
    );
    report.finish()
}
