//! The cost of a landing without its validation, compared with `git rebase` and `git merge
//! --ff-only`.
//!
//! Both sides land the same one-file change in the same repository of 10,000 files on the same file
//! system, and wait until everything is on disk. A landing here consists of everything that the
//! queue does with git: read the trunk, trial merge, staging directory, validation (`true`), trunk
//! move. The queue validates waiting landings as one tree. Its cost per landing is therefore that
//! of a batch, as large as the queue makes it without known failures, divided by the number of
//! landings. The cost of a single landing is reported too.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use regatta_core::ids::{AttemptId, BranchName, ProjectName};
use regatta_core::landing::plan;
use regatta_core::project::Style;
use regatta_engine::ports::git::{Authorship, Git, Move, Repo, Trial, TrunkPermit};
use regatta_git::GitAdapter;
use serde_json::json;

use crate::args::Args;
use crate::report::{Report, Times, ms};

pub(crate) const FILES: usize = 10_000;
const FOLDERS: usize = 100;
/// Landings before the measured ones: a branch that needs no rebase yet, and helpers that have to
/// start.
const WARM: usize = 2;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runs: usize = args.number::<usize>("runs", 12)?.max(3);
    let batch = plan::batch_for(0, 0);
    let scratch = args.scratch()?;
    let mut report = Report::new("landing", args);
    report.say(format!("{FILES} files, {runs} landings of one changed file each, {}", version()?));
    let plain = Plain::new(&scratch.path().join("plain"), runs)?;
    let apart = Queue::new(&scratch.path().join("apart"), runs * (1 + batch), false)?;
    let along = Queue::new(&scratch.path().join("along"), runs * (1 + batch), true)?;
    let mut theirs = Times::default();
    let (mut alone, mut together) = (Kind::default(), Kind::default());
    let (mut alone_along, mut together_along) = (Kind::default(), Kind::default());
    // The sides take turns, so that other load on the machine affects all alike.
    for nth in 0..runs {
        let time = plain.land(nth)?;
        let (one, many) = (nth..nth + 1, runs + nth * batch..runs + (nth + 1) * batch);
        let parts = [
            (&mut alone, apart.land(one.clone())?),
            (&mut together, apart.land(many.clone())?),
            (&mut alone_along, along.land(one)?),
            (&mut together_along, along.land(many)?),
        ];
        if nth >= WARM {
            theirs.add(time);
            parts.into_iter().for_each(|(kind, (spent, processes))| kind.add(spent, processes));
        }
    }
    let baseline = theirs.at(0.5);
    report.say(format!("  git rebase + git merge --ff-only, linked worktree    {:>10}   median", ms(baseline)));
    let mut values = serde_json::Map::new();
    values.insert("baseline_ms".into(), json!(baseline.as_secs_f64() * 1e3));
    let mut tell = |name: &str, key: &str, kind: &mut Kind, landings: usize| {
        let whole = kind.whole.at(0.5);
        let each = whole / landings as u32;
        let ratio = each.as_secs_f64() / baseline.as_secs_f64();
        report.say(format!("  {name:<52} {:>10}   {ratio:.3}   {} git processes", ms(each), kind.processes));
        for (step, times) in STEPS.iter().zip(&mut kind.steps) {
            report.say(format!("      {step:<48} {:>10}", ms(times.at(0.5) / landings as u32)));
        }
        values.insert(
            key.into(),
            json!({ "landings": landings, "ms_each": each.as_secs_f64() * 1e3, "ratio": ratio, "processes": kind.processes }),
        );
        ratio
    };
    let several = format!("each of {batch} landings, trunk checked out nowhere");
    let share = tell(&several, "batch", &mut together, batch);
    tell("a landing alone, trunk checked out nowhere", "alone", &mut alone, 1);
    tell(&format!("each of {batch}, with a clean checkout to update"), "batch_along", &mut together_along, batch);
    tell("a landing alone, with a clean checkout to update", "alone_along", &mut alone_along, 1);
    report.value("landing", serde_json::Value::Object(values));
    report.target(share <= 0.1, format!("{share:.3} of the baseline (target at most 0.100)"));
    report.end()
}

const STEPS: [&str; 4] = ["where the trunk is, trial merge", "directory for validation", "`true`", "move of the trunk"];

/// The times of landings of one kind.
#[derive(Default)]
struct Kind {
    whole: Times,
    steps: [Times; 4],
    processes: u64,
}

impl Kind {
    fn add(&mut self, spent: [Duration; 4], processes: u64) {
        self.whole.add(spent.iter().sum());
        self.steps.iter_mut().zip(spent).for_each(|(times, spent)| times.add(spent));
        self.processes = self.processes.max(processes);
    }
}

/// Returns the processor seconds of this process and of the processes that it has waited for.
pub(crate) fn cpu() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The fields after the process name: fields 12 to 15 are ticks, a hundred per second on Linux.
    let rest = stat.rsplit_once(')').context("a process has a name")?.1;
    let ticks: Vec<f64> = rest.split_whitespace().skip(11).take(4).filter_map(|it| it.parse().ok()).collect();
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

fn version() -> anyhow::Result<String> {
    Ok(format!("git {}", regatta_git::version()?.0))
}

/// Returns a git command with a person's settings that waits for the disk, as Regatta does.
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

/// Creates a repository with many files, checked out on `main`.
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

/// Regatta's side of the comparison.
struct Queue {
    git: GitAdapter,
    repo: Repo,
    captured: Vec<regatta_core::ids::CommitId>,
}

impl Queue {
    fn new(dir: &Path, changes: usize, checked_out: bool) -> anyhow::Result<Queue> {
        let path = dir.join("repo");
        repository(&path)?;
        if !checked_out {
            git(&path, &["checkout", "-q", "--detach"])?;
        }
        let adapter = GitAdapter::new(dir.join("data"));
        let (project, trunk) = (ProjectName::new("shop")?, BranchName::new("main")?);
        let repo = Repo { project, path, trunk, update_checkout: true, workspace: Default::default() };
        let attempt = AttemptId(1);
        let space = adapter.prepare(&repo, attempt, &BranchName::new(&format!("regatta/{attempt}"))?)?;
        let mut captured = Vec::new();
        for nth in 0..changes {
            let changed = file(&space.path, nth * 7);
            let before = std::fs::read(&changed)?;
            change(&space.path, nth)?;
            captured.push(adapter.capture(&repo, attempt, &by(nth))?.commit);
            std::fs::write(changed, before)?;
        }
        Ok(Queue { git: adapter, repo, captured })
    }

    /// Lands these changes together. Returns the time of each step and the number of git processes.
    fn land(&self, which: Range<usize>) -> anyhow::Result<([Duration; 4], u64)> {
        let (git, repo) = (&self.git, &self.repo);
        let before = git.processes();
        let mut at = Instant::now();
        let mut spent = || std::mem::replace(&mut at, Instant::now()).elapsed();
        let tip = git.tip(repo)?;
        let changes: Vec<_> = which.map(|nth| (self.captured[nth].clone(), by(nth))).collect();
        let trials = git.trial_merges(repo, &tip, &changes, Style::Squash)?;
        let Some(Trial::Clean(new)) = trials.last().filter(|_| trials.len() == changes.len()).cloned() else {
            bail!("a change does not merge: {trials:?}");
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
