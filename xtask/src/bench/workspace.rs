//! The cost of a workspace of a repository with 10,000 files: new, and from the pool, compared with
//! `git worktree add`.
//!
//! The previous attempt changed a file, deleted a file and left new ones, and the trunk has moved
//! by ten files. Regatta waits until everything is on disk; `git worktree add` does not.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use regatta_core::ids::{AttemptId, BranchName, ProjectName};
use regatta_engine::ports::git::parts::*;
use regatta_engine::ports::git::{Authorship, ProjectRepo, ReachabilityProof};
use regatta_git::GitAdapter;
use serde_json::json;

use super::landing::{FILE_COUNT, create_repository, file_path, run_git};
use crate::args::Args;
use crate::report::{Report, Times, format_ms};

/// The number of trunk files that change between two attempts.
const CHANGED_FILES: usize = 10;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runs: usize = args.number("runs", 12)?;
    let scratch = args.scratch_dir()?;
    let root = scratch.path();
    let user = root.join("user");
    create_repository(&user)?;
    let mut report = Report::new("workspace", args);
    let place = format!(
        "{}, {}",
        file_system(root),
        if has_reflinks(root) {
            "with reflink"
        } else {
            "without reflink"
        }
    );
    report.add_line(format!(
        "{FILE_COUNT} files, {CHANGED_FILES} changed between two attempts, {runs} runs, {place}"
    ));
    let mut repo = ProjectRepo {
        project: ProjectName::new("bench")?,
        path: user.clone(),
        trunk: BranchName::new("main")?,
        should_update_checkout: true,
        workspace: Default::default(),
    };
    let adapter = GitAdapter::new(root.join("data"));
    let branch = BranchName::new("regatta/bench")?;
    let authorship = Authorship {
        name: "a".into(),
        email: "a@b".into(),
        message: "work".into(),
        unix_seconds: 1,
    };
    let (mut theirs, mut fresh, mut warm, mut parking) = (
        Times::default(),
        Times::default(),
        Times::default(),
        Times::default(),
    );
    let mut attempt = 0;
    // The sides take turns, so that other load on the machine affects all alike.
    for nth in 0..=runs {
        let counts = nth > 0; // the first run creates the vault and fills the pool
        let linked = root.join(format!("linked-{nth}"));
        let began = Instant::now();
        run_plain_git(
            &user,
            &[
                "worktree",
                "add",
                "-q",
                "--detach",
                &linked.to_string_lossy(),
                "main",
            ],
        )?;
        let took = began.elapsed();
        theirs.add_if(counts, took);
        run_git(
            &user,
            &["worktree", "remove", "--force", &linked.to_string_lossy()],
        )?;

        for (pool, times) in [(0, &mut fresh), (4, &mut warm)] {
            repo.workspace.pool = pool;
            attempt += 1;
            let began = Instant::now();
            let made = adapter.prepare_workspace(&repo, AttemptId(attempt), &branch)?;
            times.add_if(counts, began.elapsed());
            ensure!(
                made.path.join("src/m0/f0.txt").exists(),
                "the workspace does not exist"
            );
            leave_work(&made.path)?;
            adapter.capture(&repo, AttemptId(attempt), &authorship)?;
            ensure!(
                adapter
                    .uncaptured_paths(&repo, AttemptId(attempt))?
                    .is_empty(),
                "the capture is incomplete"
            );
            let began = Instant::now();
            adapter.remove_workspace(&ReachabilityProof::for_tests(AttemptId(attempt)), &repo)?;
            if pool > 0 {
                parking.add_if(counts, began.elapsed());
            }
        }
        for number in 0..CHANGED_FILES {
            std::fs::write(
                file_path(&user, (nth * CHANGED_FILES + number) * 7 % FILE_COUNT),
                format!("changed in {nth}\n"),
            )?;
        }
        run_git(&user, &["commit", "-q", "-a", "-m", "on"])?;
    }
    let [theirs, fresh, warm, parking] =
        [theirs, fresh, warm, parking].map(|mut times| times.percentile(0.5));
    report.add_line(format!(
        "  git worktree add (not synced)       {:>10}   median",
        format_ms(theirs)
    ));
    report.add_line(format!(
        "  a new workspace, on disk            {:>10}",
        format_ms(fresh)
    ));
    report.add_line(format!(
        "  a pooled one, on disk               {:>10}",
        format_ms(warm)
    ));
    report.add_line(format!(
        "  cleaning one for the pool           {:>10}   after its attempt, in the background",
        format_ms(parking)
    ));
    let times = theirs.as_secs_f64() / warm.as_secs_f64();
    report.set_value(
        "workspace",
        json!({ "worktree_add_ms": theirs.as_secs_f64() * 1e3, "fresh_ms": fresh.as_secs_f64() * 1e3,
                "warm_ms": warm.as_secs_f64() * 1e3, "parking_ms": parking.as_secs_f64() * 1e3, "times": times,
                "place": place }),
    );
    report.check_target(
        times >= 3.0,
        format!(
            "a pooled workspace is {times:.1} times as fast as git worktree add (target at least 3)"
        ),
    );
    report.finish()
}

/// Changes files as an attempt would.
fn leave_work(dir: &Path) -> anyhow::Result<()> {
    std::fs::write(file_path(dir, 1), "changed\n")?;
    std::fs::remove_file(file_path(dir, 2))?;
    std::fs::create_dir_all(dir.join("new/deep"))?;
    for number in 0..50 {
        std::fs::write(dir.join(format!("new/deep/{number}")), "new\n")?;
    }
    Ok(())
}

/// Returns a git command without the user's settings.
fn run_plain_git(dir: &Path, args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("git")
        .env("HOME", "/nonexistent")
        .current_dir(dir)
        .args(args)
        .output()?;
    ensure!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn file_system(dir: &Path) -> String {
    let said = Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(dir)
        .output();
    said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_else(|_| "?".into())
}

fn has_reflinks(dir: &Path) -> bool {
    let (from, to) = (dir.join("from"), dir.join("to"));
    let tried = std::fs::write(&from, "x").and_then(|()| {
        Command::new("cp")
            .arg("--reflink=always")
            .args([&from, &to])
            .output()
    });
    tried.is_ok_and(|output| output.status.success())
}

impl Times {
    fn add_if(&mut self, counts: bool, duration: Duration) {
        if counts {
            self.add(duration);
        }
    }
}
