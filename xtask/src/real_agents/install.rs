//! Installs pinned versions of the programs from the npm registry into the build directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::programs::{self, NODE, NpmProgram};

/// The installed programs, and the reasons why others are missing.
pub(crate) struct InstalledPrograms {
    pub(crate) dir: PathBuf,
    /// The wanted programs that are installed, in the order of the table.
    pub(crate) programs: Vec<&'static NpmProgram>,
    pub(crate) missing: BTreeMap<&'static str, String>,
    /// The version of Node.
    pub(crate) node: String,
}

/// Installs missing programs. A program that cannot be installed is listed with the reason. Node is
/// required.
pub(crate) fn install_programs(
    dir: &Path,
    wanted: &[&'static NpmProgram],
) -> anyhow::Result<InstalledPrograms> {
    std::fs::create_dir_all(dir)?;
    install_one(dir, &NODE).context("could not install node@22; check that `npm` works")?;
    let node = version_output(&NODE.entry(dir)).context("could not run the installed node")?;
    let mut missing = BTreeMap::new();
    let is_wanted = |npm_program: &&'static NpmProgram| {
        wanted.iter().any(|wanted| wanted.name == npm_program.name)
    };
    let programs: Vec<&'static NpmProgram> = programs::ALL_PROGRAMS
        .into_iter()
        .filter(is_wanted)
        .collect();
    for program in &programs {
        if let Err(error) = install_one(dir, program) {
            eprintln!(
                "could not install {} {}: {error:#}",
                program.name, program.version
            );
            missing.insert(program.name, format!("could not be installed: {error:#}"));
        }
    }
    Ok(InstalledPrograms {
        dir: dir.to_owned(),
        programs,
        missing,
        node,
    })
}

/// Installs one program, unless this version is already installed.
fn install_one(dir: &Path, program: &NpmProgram) -> anyhow::Result<()> {
    let (home, entry) = (program.install_dir(dir), program.entry(dir));
    let stamp = home.join(".installed");
    let pinned = format!("{}@{}", program.package, program.version);
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == pinned) && entry.exists()
    {
        return Ok(());
    }
    eprintln!("installing {pinned} …");
    std::fs::create_dir_all(&home)?;
    std::fs::write(home.join("package.json"), "{\"private\":true}\n")?;
    // npm selects the newest version that fits the Node it runs under, so run it under our Node.
    let node = NODE.entry(dir);
    let mut path = node
        .parent()
        .map(Path::as_os_str)
        .unwrap_or_default()
        .to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let output = Command::new("npm")
        .args([
            "install",
            "--no-save",
            "--no-fund",
            "--no-audit",
            "--no-update-notifier",
            "--loglevel=error",
        ])
        .arg(&pinned)
        .current_dir(&home)
        .env("PATH", path)
        .env("npm_config_cache", dir.join("npm-cache"))
        .stdin(Stdio::null())
        .output()
        .context("could not start npm")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "npm install {pinned}: {}",
        last_lines(&stderr)
    );
    ensure!(
        entry.exists(),
        "npm installed {pinned}, but its entry file is missing"
    );
    let manifest = home
        .join("node_modules")
        .join(program.package)
        .join("package.json");
    let installed: serde_json::Value = serde_json::from_slice(&std::fs::read(&manifest)?)?;
    let version = installed["version"].as_str().unwrap_or_default();
    let exact = version == program.version || version.starts_with(&format!("{}.", program.version));
    ensure!(
        exact,
        "npm installed {} {version} instead of {}",
        program.package,
        program.version
    );
    std::fs::write(stamp, pinned)?;
    Ok(())
}

fn last_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text
        .lines()
        .filter(|text| !text.trim().is_empty())
        .rev()
        .take(3)
        .collect();
    lines.reverse();
    lines.join(" / ")
}

fn version_output(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
