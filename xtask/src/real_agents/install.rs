//! Getting the programs: pinned, from the npm registry, into the build directory, nothing global.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::programs::{self, NODE, Program};

/// What is there, and what could not be had and why.
pub(crate) struct Installed {
    pub(crate) dir: PathBuf,
    /// Those that were wanted, in the order of the table.
    pub(crate) programs: Vec<&'static Program>,
    pub(crate) missing: BTreeMap<&'static str, String>,
    /// What `node --version` says.
    pub(crate) node: String,
}

/// Installs what is missing. A program that cannot be had is named with the reason; without Node nothing works.
pub(crate) fn install(dir: &Path, wanted: &[&'static Program]) -> anyhow::Result<Installed> {
    std::fs::create_dir_all(dir)?;
    get(dir, &NODE).context("node@22 could not be installed; see that `npm` works here")?;
    let node = said(&NODE.entry(dir)).context("the installed node does not run")?;
    let mut missing = BTreeMap::new();
    let is_wanted = |it: &&'static Program| wanted.iter().any(|wanted| wanted.name == it.name);
    let programs: Vec<&'static Program> = programs::ALL.into_iter().filter(is_wanted).collect();
    for program in &programs {
        if let Err(error) = get(dir, program) {
            eprintln!("{} {} could not be installed: {error:#}", program.name, program.version);
            missing.insert(program.name, format!("could not be installed: {error:#}"));
        }
    }
    Ok(Installed { dir: dir.to_owned(), programs, missing, node })
}

/// Installs one program, unless this version is there.
fn get(dir: &Path, program: &Program) -> anyhow::Result<()> {
    let (home, entry) = (program.home(dir), program.entry(dir));
    let stamp = home.join(".installed");
    let pinned = format!("{}@{}", program.package, program.version);
    if std::fs::read_to_string(&stamp).is_ok_and(|it| it == pinned) && entry.exists() {
        return Ok(());
    }
    eprintln!("installing {pinned} …");
    std::fs::create_dir_all(&home)?;
    std::fs::write(home.join("package.json"), "{\"private\":true}\n")?;
    // npm takes the newest version that fits the Node it runs under, whatever was asked for: so it runs under ours.
    let node = NODE.entry(dir);
    let mut path = node.parent().map(Path::as_os_str).unwrap_or_default().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let ran = Command::new("npm")
        .args(["install", "--no-save", "--no-fund", "--no-audit", "--no-update-notifier", "--loglevel=error"])
        .arg(&pinned)
        .current_dir(&home)
        .env("PATH", path)
        .env("npm_config_cache", dir.join("npm-cache"))
        .stdin(Stdio::null())
        .output()
        .context("npm could not be started")?;
    let words = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success(), "npm install {pinned}: {}", last_lines(&words));
    ensure!(entry.exists(), "npm installed {pinned}, but what it should start is not there");
    let manifest = home.join("node_modules").join(program.package).join("package.json");
    let got: serde_json::Value = serde_json::from_slice(&std::fs::read(&manifest)?)?;
    let version = got["version"].as_str().unwrap_or_default();
    let exact = version == program.version || version.starts_with(&format!("{}.", program.version));
    ensure!(exact, "npm gave {} {version} instead of {}", program.package, program.version);
    std::fs::write(stamp, pinned)?;
    Ok(())
}

fn last_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().filter(|it| !it.trim().is_empty()).rev().take(3).collect();
    lines.reverse();
    lines.join(" / ")
}

fn said(program: &Path) -> anyhow::Result<String> {
    let ran = Command::new(program).arg("--version").stdin(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}
