//! The cost of looking for merge conflicts (`landing.radar`): twenty workspaces of a repository
//! with 10,000 files, of which two change per interval.

use std::time::{Duration, Instant};

use regatta_core::ids::{AttemptId, BranchName, ProjectName};
use regatta_engine::ports::git::{Git, Repo};
use regatta_git::GitAdapter;
use serde_json::json;

use super::landing::{cpu, file, repository};
use crate::args::Args;
use crate::report::{Report, Times, ms};

const WORKSPACES: usize = 20;
/// The default of `landing.radar`.
const INTERVAL: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runs: usize = args.number("runs", 5)?;
    let scratch = args.scratch()?;
    let mut report = Report::new("radar", args);
    let path = scratch.path().join("repo");
    repository(&path)?;
    let git = GitAdapter::new(scratch.path().join("data"));
    let (project, trunk) = (ProjectName::new("shop")?, BranchName::new("main")?);
    let repo = Repo { project, path, trunk, update_checkout: true, workspace: Default::default() };
    let attempts: Vec<AttemptId> = (1..=WORKSPACES as u64).map(AttemptId).collect();
    let mut spaces = Vec::new();
    for attempt in &attempts {
        spaces.push(git.prepare(&repo, *attempt, &BranchName::new(&format!("regatta/{attempt}"))?)?.path);
    }
    let tip = git.tip(&repo)?;
    git.collisions(&repo, &attempts, &tip)?;
    let (mut quiet, mut busy) = (Times::default(), Times::default());
    let (mut quiet_cpu, mut busy_cpu) = (0.0, 0.0);
    let mut processes = 0;
    for round in 0..runs {
        let (began, burnt) = (Instant::now(), cpu()?);
        git.collisions(&repo, &attempts, &tip)?;
        quiet.add(began.elapsed());
        quiet_cpu += cpu()? - burnt;
        // Both change the same file, so that there is something to merge.
        for space in [&spaces[round % WORKSPACES], &spaces[(round + 1) % WORKSPACES]] {
            std::fs::write(file(space, round), format!("{round} in {}\n", space.display()))?;
        }
        let before = git.processes();
        let (began, burnt) = (Instant::now(), cpu()?);
        let found = git.collisions(&repo, &attempts, &tip)?;
        busy.add(began.elapsed());
        busy_cpu += cpu()? - burnt;
        processes = git.processes() - before;
        anyhow::ensure!(!found.is_empty(), "the conflict was not found");
    }
    let share = busy_cpu / runs as f64 / INTERVAL.as_secs_f64();
    report.say(format!("{WORKSPACES} workspaces of 10,000 files, {runs} rounds"));
    report.say(format!(
        "  nothing changed    {:>10} median, {:.0} ms of processor",
        ms(quiet.at(0.5)),
        quiet_cpu * 1e3 / runs as f64
    ));
    report.say(format!(
        "  two changed        {:>10} median, {:.0} ms of processor, {processes} git processes",
        ms(busy.at(0.5)),
        busy_cpu * 1e3 / runs as f64
    ));
    report.value("radar", json!({ "share_of_a_core": share, "processes": processes }));
    report.target(share < 0.05, format!("{:.1} % of one core with one round per 30 s (target < 5 %)", share * 100.0));
    report.end()
}
