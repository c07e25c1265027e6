//! `cargo xtask web`: the web page from its sources to a real browser.
//!
//! Installs its packages as the lock file names them, builds it, runs its own tests, and then has Chromium do what a
//! person would with the page inside the real program: three, thirty and three hundred agents, answers by key, a cut
//! line, a hostile program's output, axe on every page, the newcomer's walk, and what it all costs. `--write` keeps the
//! pictures in `docs/screens`, `--both` takes each in both themes, `--minutes 10` watches the heap and the daemon's
//! memory that long, `--only walk,fleet300` runs a part. It needs Node 20 or later; Chromium is installed by apt if it is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::args::Args;
use crate::bench::start::binary;
use crate::browser;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is inside the workspace").to_owned()
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let web = root().join("web");
    let node = Command::new("node").arg("--version").output().context("the page needs Node 20 or later")?;
    let version = String::from_utf8_lossy(&node.stdout).trim().trim_start_matches('v').to_owned();
    let major: u32 = version.split('.').next().and_then(|it| it.parse().ok()).unwrap_or(0);
    ensure!(major >= 20, "the page needs Node 20 or later, this is {version}");
    for step in [&["ci", "--no-audit", "--no-fund"][..], &["run", "build"], &["test"]] {
        let done = Command::new("npm").args(step).current_dir(&web).status().context("npm does not start")?;
        ensure!(done.success(), "npm {} failed", step.join(" "));
    }
    let chromium = browser::install()?;
    let chromium = if Path::new(&chromium).is_absolute() { chromium } else { format!("/usr/bin/{chromium}") };
    let mut test = Command::new("node");
    test.arg("browser/run.mjs").arg(binary(args)?).current_dir(&web).env("CHROMIUM", chromium);
    test.args(["--minutes", args.text("minutes").unwrap_or("0.5")]);
    if let Some(only) = args.text("only") {
        test.args(["--only", only]);
    }
    if args.flag("both") {
        test.arg("--both");
    }
    if args.flag("write") {
        test.arg("--screens").arg(root().join("docs/screens"));
    }
    Ok(test.status().context("node does not start")?.success())
}
