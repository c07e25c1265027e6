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
use regatta_core::landing::speculation;
use regatta_core::project::CommitStyle;
use regatta_engine::ports::git::parts::*;
use regatta_engine::ports::git::{
    AuthoredChange, Authorship, ProjectRepo, TrialMerge, TrunkMoveResult, TrunkPermit,
};
use regatta_git::GitAdapter;
use serde_json::json;

use crate::args::Args;
use crate::report::{Report, Times, format_ms};

pub(crate) const FILE_COUNT: usize = 10_000;
const FOLDER_COUNT: usize = 100;
/// Landings before the measured ones: a branch that needs no rebase yet, and helpers that have to
/// start.
const WARM_UP_LANDINGS: usize = 2;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runs: usize = args.number::<usize>("runs", 12)?.max(3);
    let batch = speculation::batch_size_for(0, 0);
    let scratch = args.scratch_dir()?;
    let mut report = Report::new("landing", args);
    report.add_line(format!(
        "{FILE_COUNT} files, {runs} landings of one changed file each, {}",
        git_version()?
    ));
    let plain = WorktreeBaseline::new(&scratch.path().join("plain"), runs)?;
    let apart = RegattaQueue::new(&scratch.path().join("apart"), runs * (1 + batch), false)?;
    let along = RegattaQueue::new(&scratch.path().join("along"), runs * (1 + batch), true)?;
    let mut theirs = Times::default();
    let (mut alone, mut together) = (KindTimes::default(), KindTimes::default());
    let (mut alone_along, mut together_along) = (KindTimes::default(), KindTimes::default());
    // The sides take turns, so that other load on the machine affects all alike.
    for nth in 0..runs {
        let time = plain.land(nth)?;
        let (one, many) = (nth..nth + 1, runs + nth * batch..runs + (nth + 1) * batch);
        let parts = [
            (&mut alone, apart.land_batch(one.clone())?),
            (&mut together, apart.land_batch(many.clone())?),
            (&mut alone_along, along.land_batch(one)?),
            (&mut together_along, along.land_batch(many)?),
        ];
        if nth >= WARM_UP_LANDINGS {
            theirs.add(time);
            parts
                .into_iter()
                .for_each(|(kind, (spent, processes))| kind.add(spent, processes));
        }
    }
    let baseline = theirs.percentile(0.5);
    report.add_line(format!(
        "  git rebase + git merge --ff-only, linked worktree    {:>10}   median",
        format_ms(baseline)
    ));
    let mut values = serde_json::Map::new();
    values.insert("baseline_ms".into(), json!(baseline.as_secs_f64() * 1e3));
    let mut tell = |name: &str, key: &str, kind: &mut KindTimes, landings: usize| {
        let whole = kind.total.percentile(0.5);
        let each = whole / landings as u32;
        let ratio = each.as_secs_f64() / baseline.as_secs_f64();
        report.add_line(format!(
            "  {name:<52} {:>10}   {ratio:.3}   {} git processes",
            format_ms(each),
            kind.processes
        ));
        for (step, times) in STEP_NAMES.iter().zip(&mut kind.steps) {
            report.add_line(format!(
                "      {step:<48} {:>10}",
                format_ms(times.percentile(0.5) / landings as u32)
            ));
        }
        values.insert(
            key.into(),
            json!({ "landings": landings, "ms_each": each.as_secs_f64() * 1e3, "ratio": ratio, "processes": kind.processes }),
        );
        ratio
    };
    let several = format!("each of {batch} landings, trunk checked out nowhere");
    let share = tell(&several, "batch", &mut together, batch);
    tell(
        "a landing alone, trunk checked out nowhere",
        "alone",
        &mut alone,
        1,
    );
    tell(
        &format!("each of {batch}, with a clean checkout to update"),
        "batch_along",
        &mut together_along,
        batch,
    );
    tell(
        "a landing alone, with a clean checkout to update",
        "alone_along",
        &mut alone_along,
        1,
    );
    report.set_value("landing", serde_json::Value::Object(values));
    report.check_target(
        share <= 0.1,
        format!("{share:.3} of the baseline (target at most 0.100)"),
    );
    report.finish()
}

const STEP_NAMES: [&str; 4] = [
    "where the trunk is, trial merge",
    "directory for validation",
    "`true`",
    "move of the trunk",
];

/// The times of landings of one kind.
#[derive(Default)]
struct KindTimes {
    total: Times,
    steps: [Times; 4],
    processes: u64,
}

impl KindTimes {
    fn add(&mut self, spent: [Duration; 4], processes: u64) {
        self.total.add(spent.iter().sum());
        self.steps
            .iter_mut()
            .zip(spent)
            .for_each(|(times, spent)| times.add(spent));
        self.processes = self.processes.max(processes);
    }
}

/// Returns the processor seconds of this process and of the processes that it has waited for.
pub(crate) fn cpu_seconds() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The fields after the process name: fields 12 to 15 are ticks, a hundred per second on Linux.
    let rest = stat.rsplit_once(')').context("a process has a name")?.1;
    let ticks: Vec<f64> = rest
        .split_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|rest| rest.parse().ok())
        .collect();
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

fn git_version() -> anyhow::Result<String> {
    Ok(format!("git {}", regatta_git::version()?.0))
}

/// Returns a git command with a person's settings that waits for the disk, as Regatta does.
pub(crate) fn run_git(dir: &Path, args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("git")
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@b"),
            ("GIT_COMMITTER_NAME", "a"),
        ])
        .env("GIT_COMMITTER_EMAIL", "a@b")
        .current_dir(dir)
        .args([
            "-c",
            "core.fsync=loose-object,pack,pack-metadata,reference,index",
            "-c",
            "gc.auto=0",
        ])
        .args(args)
        .output()?;
    ensure!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Creates a repository with many files, checked out on `main`.
pub(crate) fn create_repository(path: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(path)?;
    run_git(path, &["init", "-q", "-b", "main"])?;
    for number in 0..FILE_COUNT {
        let file = file_path(path, number);
        std::fs::create_dir_all(file.parent().context("a file has a folder")?)?;
        let lines: String = (0..20)
            .map(|line| format!("line {line} of {number}\n"))
            .collect();
        std::fs::write(file, lines)?;
    }
    run_git(path, &["add", "-A"])?;
    run_git(path, &["commit", "-q", "-m", "start"])
}

pub(crate) fn file_path(top: &Path, number: usize) -> PathBuf {
    top.join("src")
        .join(format!("m{}", number % FOLDER_COUNT))
        .join(format!("f{number}.txt"))
}

fn change_file(top: &Path, nth: usize) -> anyhow::Result<()> {
    Ok(std::fs::write(
        file_path(top, nth * 7),
        format!("changed by {nth}\n"),
    )?)
}

/// The baseline: a linked worktree for each branch.
struct WorktreeBaseline {
    main: PathBuf,
    worktrees: Vec<PathBuf>,
}

impl WorktreeBaseline {
    fn new(dir: &Path, runs: usize) -> anyhow::Result<WorktreeBaseline> {
        let main = dir.join("repo");
        create_repository(&main)?;
        let mut trees = Vec::new();
        for nth in 0..runs {
            let tree = dir.join(format!("w{nth}"));
            let path = tree.to_str().context("a path is UTF-8")?;
            run_git(
                &main,
                &[
                    "worktree",
                    "add",
                    "-q",
                    path,
                    "-b",
                    &format!("b{nth}"),
                    "main",
                ],
            )?;
            change_file(&tree, nth)?;
            run_git(&tree, &["commit", "-q", "-a", "-m", "change"])?;
            trees.push(tree);
        }
        Ok(WorktreeBaseline {
            main,
            worktrees: trees,
        })
    }

    fn land(&self, nth: usize) -> anyhow::Result<Duration> {
        let began = Instant::now();
        run_git(&self.worktrees[nth], &["rebase", "-q", "main"])?;
        run_git(
            &self.main,
            &["merge", "-q", "--ff-only", &format!("b{nth}")],
        )?;
        Ok(began.elapsed())
    }
}

/// Regatta's side of the comparison.
struct RegattaQueue {
    git: GitAdapter,
    repo: ProjectRepo,
    captured: Vec<regatta_core::ids::CommitId>,
}

impl RegattaQueue {
    fn new(dir: &Path, changes: usize, checked_out: bool) -> anyhow::Result<RegattaQueue> {
        let path = dir.join("repo");
        create_repository(&path)?;
        if !checked_out {
            run_git(&path, &["checkout", "-q", "--detach"])?;
        }
        let adapter = GitAdapter::new(dir.join("data"));
        let (project, trunk) = (ProjectName::new("shop")?, BranchName::new("main")?);
        let repo = ProjectRepo {
            project,
            path,
            trunk,
            should_update_checkout: true,
            workspace: Default::default(),
        };
        let attempt = AttemptId(1);
        let space = adapter.prepare_workspace(
            &repo,
            attempt,
            &BranchName::new(&format!("regatta/{attempt}"))?,
        )?;
        let mut captured = Vec::new();
        for nth in 0..changes {
            let changed = file_path(&space.path, nth * 7);
            let before = std::fs::read(&changed)?;
            change_file(&space.path, nth)?;
            captured.push(adapter.capture(&repo, attempt, &authorship(nth))?.commit);
            std::fs::write(changed, before)?;
        }
        Ok(RegattaQueue {
            git: adapter,
            repo,
            captured,
        })
    }

    /// Lands these changes together. Returns the time of each step and the number of git processes.
    fn land_batch(&self, which: Range<usize>) -> anyhow::Result<([Duration; 4], u64)> {
        let (git, repo) = (&self.git, &self.repo);
        let before = git.started_processes();
        let mut step_start = Instant::now();
        let mut spent = || std::mem::replace(&mut step_start, Instant::now()).elapsed();
        let tip = git.tip(repo)?;
        let changes: Vec<_> = which
            .map(|nth| AuthoredChange {
                commit: self.captured[nth].clone(),
                authorship: authorship(nth),
            })
            .collect();
        let trials = git.trial_merges(repo, &tip, &changes, CommitStyle::Squash)?;
        let Some(TrialMerge::Clean(new)) = trials
            .last()
            .filter(|_| trials.len() == changes.len())
            .cloned()
        else {
            bail!("a change does not merge: {trials:?}");
        };
        let merged = spent();
        let stage = git.stage(repo, 0, &new)?;
        let staged = spent();
        ensure!(
            Command::new("true").current_dir(&stage).status()?.success(),
            "`true` failed"
        );
        let validated = spent();
        let permit = TrunkPermit::for_tests(repo.project.clone());
        let moved = git.move_trunk(&permit, repo, &tip, &new)?;
        ensure!(moved == TrunkMoveResult::Moved, "{moved:?}");
        Ok((
            [merged, staged, validated, spent()],
            git.started_processes() - before,
        ))
    }
}

fn authorship(nth: usize) -> Authorship {
    Authorship {
        name: "a".into(),
        email: "a@b".into(),
        message: format!("change {nth}\n"),
        unix_seconds: nth as u64,
    }
}
