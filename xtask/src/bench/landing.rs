//! What a landing costs, beside its validation, against `git rebase` and `git merge --ff-only`.
//!
//! The same change of one file on the same repository of 10,000 files on the same file system, with everything waited
//! for on both sides. A landing here is all that the queue asks of git: where the trunk is, the trial merge, the
//! validation's directory, the validation (`true`), the move of the trunk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use regatta_core::ids::{AttemptId, BranchName, ProjectName};
use regatta_core::project::Style;
use regatta_engine::ports::git::{Authorship, Git, Move, Repo, Trial, TrunkPermit};
use regatta_git::GitAdapter;
use serde_json::json;

use crate::args::Args;
use crate::report::{Report, Times, ms};

pub(crate) const FILES: usize = 10_000;
const FOLDERS: usize = 100;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runs: usize = args.number::<usize>("runs", 12)?.max(3);
    let scratch = args.scratch()?;
    let mut report = Report::new("landing", args);
    report.say(format!("{FILES} files, {runs} landings of one changed file each, {}", version()?));
    let plain = Plain::new(&scratch.path().join("plain"), runs)?;
    let apart = Queue::new(&scratch.path().join("apart"), runs, false)?;
    let along = Queue::new(&scratch.path().join("along"), runs, true)?;
    let (mut theirs, mut ours, mut with_checkout) = (Times::default(), Times::default(), Times::default());
    let mut steps: [Times; 4] = Default::default();
    let (mut processes, mut processes_along) = (0, 0);
    // In turns, so that whatever else the machine does falls on all alike.
    let mut burnt = [0.0; 3];
    for nth in 0..runs {
        let start = cpu()?;
        let time = plain.land(nth)?;
        let second = cpu()?;
        let (spent, count) = apart.land(nth)?;
        let third = cpu()?;
        let (spent_along, count_along) = along.land(nth)?;
        let parts = [second - start, third - second, cpu()? - third];
        if nth < 2 {
            continue; // a branch that needs no rebase yet, and helpers that start
        }
        burnt.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part * 1e3 / (runs - 2) as f64);
        theirs.add(time);
        ours.add(spent.iter().sum());
        with_checkout.add(spent_along.iter().sum());
        processes = processes.max(count);
        processes_along = processes_along.max(count_along);
        steps.iter_mut().zip(spent).for_each(|(times, spent)| times.add(spent));
    }
    let (theirs, ours, along) = (theirs.at(0.5), ours.at(0.5), with_checkout.at(0.5));
    let share = |it: Duration| it.as_secs_f64() / theirs.as_secs_f64();
    report.say(format!("  git rebase + git merge --ff-only, linked worktree   {:>10}   median", ms(theirs)));
    report.say(format!(
        "  a landing, trunk checked out nowhere                {:>10}   {processes} git processes",
        ms(ours)
    ));
    for (name, times) in ["where the trunk is, trial merge", "directory for validation", "`true`", "move of the trunk"]
        .iter()
        .zip(&mut steps)
    {
        report.say(format!("      {name:<32}                {:>10}", ms(times.at(0.5))));
    }
    report.say(format!(
        "  a landing, clean checkout of the trunk brought along {:>9}   {processes_along} git processes",
        ms(along)
    ));
    report.say(format!(
        "  {:.0} landings a second against {:.1}",
        1.0 / ours.as_secs_f64(),
        1.0 / theirs.as_secs_f64()
    ));
    report.value(
        "landing",
        json!({ "baseline_ms": theirs.as_secs_f64() * 1e3, "ms": ours.as_secs_f64() * 1e3, "processes": processes,
                "ratio": share(ours), "with_checkout_ms": along.as_secs_f64() * 1e3,
                "with_checkout_processes": processes_along, "with_checkout_ratio": share(along) }),
    );
    report.say(format!(
        "  processor time a landing: {:.0} ms by hand, {:.0} ms here, {:.0} ms with a checkout",
        burnt[0], burnt[1], burnt[2]
    ));
    let (merged, moved) = (steps[0].at(0.5), steps[3].at(0.5));
    report.say(format!("         {:.3} of the baseline without the directory for validation", share(merged + moved)));
    report.target(share(ours) <= 0.1, format!("{:.3} of the baseline (target at most 0.100)", share(ours)));
    report.say(format!("         {:.3} of the baseline with a checkout brought along", share(along)));
    report.end()
}

/// Seconds of processor time that this process and those it has waited for have used.
pub(crate) fn cpu() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // After the name, which may hold anything: the 12th to 15th words are ticks, a hundred a second on Linux.
    let rest = stat.rsplit_once(')').context("a process has a name")?.1;
    let ticks: Vec<f64> = rest.split_whitespace().skip(11).take(4).filter_map(|it| it.parse().ok()).collect();
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

fn version() -> anyhow::Result<String> {
    Ok(format!("git {}", regatta_git::version()?.0))
}

/// Git as a person uses it, waiting for the disk as Regatta does.
pub(crate) fn git(dir: &Path, args: &[&str]) -> anyhow::Result<()> {
    let done = Command::new("git")
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@b"), ("GIT_COMMITTER_NAME", "a")])
        .env("GIT_COMMITTER_EMAIL", "a@b")
        .current_dir(dir)
        .args(["-c", "core.fsync=loose-object,pack,pack-metadata,reference,index", "-c", "gc.auto=0"])
        .args(args)
        .output()?;
    ensure!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// Makes a repository of many files, checked out on `main`.
pub(crate) fn repository(path: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(path)?;
    git(path, &["init", "-q", "-b", "main"])?;
    for number in 0..FILES {
        let file = file(path, number);
        std::fs::create_dir_all(file.parent().context("a file has a folder")?)?;
        let lines: String = (0..20).map(|line| format!("line {line} of {number}\n")).collect();
        std::fs::write(file, lines)?;
    }
    git(path, &["add", "-A"])?;
    git(path, &["commit", "-q", "-m", "start"])
}

pub(crate) fn file(top: &Path, number: usize) -> PathBuf {
    top.join("src").join(format!("m{}", number % FOLDERS)).join(format!("f{number}.txt"))
}

fn change(top: &Path, nth: usize) -> anyhow::Result<()> {
    Ok(std::fs::write(file(top, nth * 7), format!("changed by {nth}\n"))?)
}

/// The baseline: a linked worktree for each branch.
struct Plain {
    main: PathBuf,
    trees: Vec<PathBuf>,
}

impl Plain {
    fn new(dir: &Path, runs: usize) -> anyhow::Result<Plain> {
        let main = dir.join("repo");
        repository(&main)?;
        let mut trees = Vec::new();
        for nth in 0..runs {
            let tree = dir.join(format!("w{nth}"));
            let path = tree.to_str().context("a path is UTF-8")?;
            git(&main, &["worktree", "add", "-q", path, "-b", &format!("b{nth}"), "main"])?;
            change(&tree, nth)?;
            git(&tree, &["commit", "-q", "-a", "-m", "change"])?;
            trees.push(tree);
        }
        Ok(Plain { main, trees })
    }

    fn land(&self, nth: usize) -> anyhow::Result<Duration> {
        let began = Instant::now();
        git(&self.trees[nth], &["rebase", "-q", "main"])?;
        git(&self.main, &["merge", "-q", "--ff-only", &format!("b{nth}")])?;
        Ok(began.elapsed())
    }
}

/// Regatta's side of it.
struct Queue {
    git: GitAdapter,
    repo: Repo,
    captured: Vec<regatta_core::ids::CommitId>,
}

impl Queue {
    fn new(dir: &Path, runs: usize, checked_out: bool) -> anyhow::Result<Queue> {
        let path = dir.join("repo");
        repository(&path)?;
        if !checked_out {
            git(&path, &["checkout", "-q", "--detach"])?;
        }
        let adapter = GitAdapter::new(dir.join("data"));
        let (project, trunk) = (ProjectName::new("shop")?, BranchName::new("main")?);
        let repo = Repo { project, path, trunk, update_checkout: true, workspace: Default::default() };
        let mut captured = Vec::new();
        for nth in 0..runs {
            let attempt = AttemptId(nth as u64 + 1);
            let space = adapter.prepare(&repo, attempt, &BranchName::new(&format!("regatta/{attempt}"))?)?;
            change(&space.path, nth)?;
            captured.push(adapter.capture(&repo, attempt, &by(nth))?.commit);
        }
        Ok(Queue { git: adapter, repo, captured })
    }

    /// Lands one: how long each step took, and how many git processes there were.
    fn land(&self, nth: usize) -> anyhow::Result<([Duration; 4], u64)> {
        let (git, repo) = (&self.git, &self.repo);
        let before = git.processes();
        let mut at = Instant::now();
        let mut spent = || std::mem::replace(&mut at, Instant::now()).elapsed();
        let tip = git.tip(repo)?;
        let Trial::Clean(new) = git.trial_merge(repo, &tip, &self.captured[nth], &by(nth), Style::Squash)? else {
            bail!("the {nth}th change does not merge");
        };
        let merged = spent();
        let stage = git.stage(repo, 0, &new)?;
        let staged = spent();
        ensure!(Command::new("true").current_dir(&stage).status()?.success(), "`true` failed");
        let validated = spent();
        let permit = TrunkPermit::for_tests(repo.project.clone());
        let moved = git.move_trunk(&permit, repo, &tip, &new)?;
        ensure!(moved == Move::Moved, "{moved:?}");
        Ok(([merged, staged, validated, spent()], git.processes() - before))
    }
}

fn by(nth: usize) -> Authorship {
    Authorship { name: "a".into(), email: "a@b".into(), message: format!("change {nth}\n"), seconds: nth as u64 }
}
