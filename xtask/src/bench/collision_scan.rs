//! The cost of looking for merge conflicts (`landing.radar`): twenty workspaces of a repository
//! with 10,000 files, of which two change per interval.

use std::time::{Duration, Instant};

use regatta_core::ids::{AttemptId, BranchName, ProjectName};
use regatta_engine::ports::git::ProjectRepo;
use regatta_engine::ports::git::parts::*;
use regatta_git::GitAdapter;
use serde_json::json;

use super::landing::{cpu_seconds, create_repository, file_path};
use crate::args::Args;
use crate::report::{Report, Times, format_ms};

const WORKSPACE_COUNT: usize = 20;
/// The default of `landing.radar`.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runs: usize = args.number("runs", 5)?;
    let scratch = args.scratch_dir()?;
    let mut report = Report::new("radar", args);
    let path = scratch.path().join("repo");
    create_repository(&path)?;
    let git = GitAdapter::new(scratch.path().join("data"));
    let (project, trunk) = (ProjectName::new("shop")?, BranchName::new("main")?);
    let repo = ProjectRepo {
        project,
        path,
        trunk,
        should_update_checkout: true,
        workspace: Default::default(),
    };
    let attempts: Vec<AttemptId> = (1..=WORKSPACE_COUNT as u64).map(AttemptId).collect();
    let mut spaces = Vec::new();
    for attempt in &attempts {
        spaces.push(
            git.prepare_workspace(
                &repo,
                *attempt,
                &BranchName::new(&format!("regatta/{attempt}"))?,
            )?
            .path,
        );
    }
    let tip = git.tip(&repo)?;
    git.collisions(&repo, &attempts, &tip)?;
    let (mut quiet, mut busy) = (Times::default(), Times::default());
    let (mut quiet_cpu, mut busy_cpu) = (0.0, 0.0);
    let mut processes = 0;
    for round in 0..runs {
        let (began, burnt) = (Instant::now(), cpu_seconds()?);
        git.collisions(&repo, &attempts, &tip)?;
        quiet.add(began.elapsed());
        quiet_cpu += cpu_seconds()? - burnt;
        // Both change the same file, so that there is something to merge.
        for space in [
            &spaces[round % WORKSPACE_COUNT],
            &spaces[(round + 1) % WORKSPACE_COUNT],
        ] {
            std::fs::write(
                file_path(space, round),
                format!("{round} in {}\n", space.display()),
            )?;
        }
        let before = git.started_processes();
        let (began, burnt) = (Instant::now(), cpu_seconds()?);
        let found = git.collisions(&repo, &attempts, &tip)?;
        busy.add(began.elapsed());
        busy_cpu += cpu_seconds()? - burnt;
        processes = git.started_processes() - before;
        anyhow::ensure!(!found.is_empty(), "the conflict was not found");
    }
    let share = busy_cpu / runs as f64 / SCAN_INTERVAL.as_secs_f64();
    report.add_line(format!(
        "{WORKSPACE_COUNT} workspaces of 10,000 files, {runs} rounds"
    ));
    report.add_line(format!(
        "  nothing changed    {:>10} median, {:.0} ms of processor",
        format_ms(quiet.percentile(0.5)),
        quiet_cpu * 1e3 / runs as f64
    ));
    report.add_line(format!(
        "  two changed        {:>10} median, {:.0} ms of processor, {processes} git processes",
        format_ms(busy.percentile(0.5)),
        busy_cpu * 1e3 / runs as f64
    ));
    report.set_value(
        "radar",
        json!({ "share_of_a_core": share, "processes": processes }),
    );
    report.check_target(
        share < 0.05,
        format!(
            "{:.1} % of one core with one round per 30 s (target < 5 %)",
            share * 100.0
        ),
    );
    report.finish()
}
