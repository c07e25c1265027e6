//! `cargo xtask web`: builds and tests the web page, and uses it in a real browser.
//!
//! `--build` only renews the built page that is committed in `crates/regatta-server/page`. Needs
//! Node 20 or later.
//!
//! Without `--build` it installs the packages from the lock file, builds the page, runs its tests,
//! and then drives Chromium against the real program: 3, 30 and 300 agents, answers by key, a lost
//! connection, output of a hostile program, axe on every page, the first steps of a new user, and
//! the costs.
//! `--write` stores the screenshots in `docs/screens`, `--both` takes each in both themes,
//! `--minutes 10` watches the heap and the daemon's memory for that long, and `--only
//! walk,fleet300` runs a part. Chromium is installed with apt if it is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::args::Args;
use crate::bench::start::program_path;
use crate::browser;

/// Installs the page's packages exactly as the lock file lists them.
const INSTALL_PACKAGES: &[&str] = &["ci", "--no-audit", "--no-fund"];

fn web_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is inside the workspace")
        .to_owned()
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let web = web_dir().join("web");
    require_node()?;
    if args.flag("build") {
        run_npm(&web, &[INSTALL_PACKAGES, &["run", "bundle"]])?;
        return Ok(true);
    }
    run_npm(&web, &[INSTALL_PACKAGES, &["run", "build"], &["test"]])?;
    let chromium = browser::install()?;
    let chromium = if Path::new(&chromium).is_absolute() {
        chromium
    } else {
        format!("/usr/bin/{chromium}")
    };
    let mut test = Command::new("node");
    test.arg("browser/run.mjs")
        .arg(program_path(args)?)
        .current_dir(&web)
        .env("CHROMIUM", chromium);
    test.args(["--minutes", args.text("minutes").unwrap_or("0.5")]);
    if let Some(only) = args.text("only") {
        test.args(["--only", only]);
    }
    if args.flag("both") {
        test.arg("--both");
    }
    if args.flag("write") {
        test.arg("--screens").arg(web_dir().join("docs/screens"));
    }
    Ok(test.status().context("could not start node")?.success())
}

/// Fails if Node is missing or too old for the page's tools.
fn require_node() -> anyhow::Result<()> {
    let node = Command::new("node")
        .arg("--version")
        .output()
        .context("the page needs Node 20 or later")?;
    let version = String::from_utf8_lossy(&node.stdout)
        .trim()
        .trim_start_matches('v')
        .to_owned();
    let major: u32 = version
        .split('.')
        .next()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0);
    ensure!(
        major >= 20,
        "the page needs Node 20 or later, this is {version}"
    );
    Ok(())
}

/// Runs `npm` in the page's directory once for each list of arguments.
fn run_npm(web: &Path, steps: &[&[&str]]) -> anyhow::Result<()> {
    for step in steps {
        let status = Command::new("npm")
            .args(*step)
            .current_dir(web)
            .status()
            .context("could not start npm")?;
        ensure!(status.success(), "npm {} failed", step.join(" "));
    }
    Ok(())
}
