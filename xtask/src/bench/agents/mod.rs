//! The supervision of agents: stops, floods, restarts, and the cost of a start.

pub(crate) mod leak_check;
pub(crate) mod next_start; // from a landing to the start of its dependant
pub(crate) mod output_flood; // many agents that print a lot at once
pub(crate) mod overhead; // from a start to the first byte
pub(crate) mod queue; // the landing queue as a whole
pub(crate) mod reattach; // killed daemons, and agents that keep running
pub(crate) mod stop_times; // process trees that resist a stop
// a launch of twelve members at once and one by one // leftovers of many tasks
pub(crate) mod team_start;

pub(crate) mod fixture; // a repository, a data directory and a daemon

use std::path::Path;

use anyhow::Context;
use regatta_core::agent::{Profile, Runtime};
use regatta_core::ids::{AgentName, AttemptId};
use regatta_engine::ports::agents::ProgramLaunch;

/// Returns a launch of a shell script. `token` marks all processes that it starts.
fn shell_launch(
    attempt: AttemptId,
    workspace: &Path,
    token: &str,
    script: &str,
) -> anyhow::Result<ProgramLaunch> {
    Ok(ProgramLaunch {
        attempt,
        agent: AgentName::new("bench")?,
        runtime: Runtime::Command {
            argv: vec!["sh".into(), "-c".into(), script.into()],
        },
        profile: Profile {
            sandbox: Some(regatta_core::agent::SandboxLevel::Off),
            ..Profile::default()
        },
        resume: None,
        mcp: None,
        recorded_usage: Default::default(),
        objects: None,
        hidden: vec![],
        workspace: workspace.to_owned(),
        prompt: String::new(),
        script: None,
        env: vec![("TOKEN".to_owned(), token.to_owned())],
    })
}

/// Returns the live processes with this word in their environment or command line.
fn processes_with(token: &str) -> Vec<u32> {
    let has = |file: String| {
        std::fs::read(file).is_ok_and(|bytes| {
            bytes
                .windows(token.len())
                .any(|bytes| bytes == token.as_bytes())
        })
    };
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| has(format!("/proc/{pid}/environ")) || has(format!("/proc/{pid}/cmdline")))
        .filter(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
        })
        .collect()
}

/// Returns the memory in kB that a process does not share.
fn private_kb(pid: u32) -> anyhow::Result<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let number = |line: &str| {
        line.split_ascii_whitespace()
            .nth(1)
            .and_then(|line| line.parse::<u64>().ok())
    };
    let private = rollup.lines().filter(|rollup| {
        rollup.starts_with("Private_Dirty") || rollup.starts_with("Private_Clean")
    });
    private
        .map(|private| number(private).context("a line of smaps_rollup"))
        .sum()
}
