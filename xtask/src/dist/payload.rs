//! Gathers the files of a release as they lie below a prefix such as `/usr` or `~/.local`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::archive::Entry;
use super::components::{self, Component};
use super::tools::{output, run};
use super::{licenses, sbom};

/// The files of a release by their paths below the prefix, and what some packages need apart.
pub(crate) struct Payload {
    pub(crate) program: Vec<u8>,
    /// Everything but the program and the systemd unit: manual, completions, licences, SBOM.
    pub(crate) shared: Vec<Entry>,
    /// The systemd unit, with `@PROGRAM@` for the path of the program.
    pub(crate) unit: String,
    pub(crate) sbom: String,
    pub(crate) third_party: String,
}

/// Runs the program for its manual and completions, and reads the rest from the repository.
pub(crate) fn gather(root: &Path, binary: &Path, version: &str) -> anyhow::Result<Payload> {
    let components: BTreeMap<String, Component> = components::find(root)?;
    let directories = components::source_directories(root)?;
    let kept = root.join("packaging/licenses");
    let (third_party, without) = licenses::collect(&components, &directories, &kept)?;
    let sbom = sbom::cyclonedx(&components, version)?;
    println!(
        "{} components, {without} without a licence text of their own",
        components.len()
    );

    let mut shared = Vec::new();
    let home = tempfile::tempdir()?;
    for (name, bytes) in manual(binary, home.path())? {
        shared.push(Entry::file(format!("share/man/man1/{name}"), bytes));
    }
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/regatta"),
        ("zsh", "share/zsh/site-functions/_regatta"),
        ("fish", "share/fish/vendor_completions.d/regatta.fish"),
    ] {
        let script = output(program(binary, home.path()).args(["completions", shell]))?;
        ensure!(
            !script.is_empty(),
            "the completion script for {shell} is empty"
        );
        shared.push(Entry::file(path, script));
    }
    for name in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        let bytes = std::fs::read(root.join(name)).with_context(|| name.to_owned())?;
        shared.push(Entry::file(format!("share/doc/regatta/{name}"), bytes));
    }
    shared.push(Entry::file(
        "share/doc/regatta/THIRD-PARTY.txt",
        third_party.as_bytes(),
    ));
    shared.push(Entry::file(
        "share/doc/regatta/sbom.cdx.json",
        sbom.as_bytes(),
    ));
    Ok(Payload {
        program: std::fs::read(binary)?,
        shared,
        unit: std::fs::read_to_string(root.join("packaging/systemd/regatta.service"))?,
        sbom,
        third_party,
    })
}

impl Payload {
    /// Returns all files as they lie below `~/.local`.
    pub(crate) fn files(&self) -> Vec<Entry> {
        let mut files = self.shared.clone();
        files.push(Entry::program("bin/regatta", self.program.as_slice()));
        let unit = self.unit_for("%h/.local/bin/regatta");
        files.push(Entry::file("share/systemd/user/regatta.service", unit));
        files
    }

    /// Returns the systemd unit for a program at this path. A unit finds no program by its PATH.
    pub(crate) fn unit_for(&self, program: &str) -> String {
        self.unit.replace("@PROGRAM@", program)
    }
}

/// Returns the pages of the manual, compressed, by their file names.
fn manual(binary: &Path, home: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let directory = home.join("man");
    run(program(binary, home)
        .args(["man", "--out"])
        .arg(&directory)
        .stdout(std::process::Stdio::null()))?;
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(&directory)? {
        let entry = entry?;
        let name = format!("{}.gz", entry.file_name().to_string_lossy());
        pages.push((name, super::archive::gzip(&std::fs::read(entry.path())?)?));
    }
    pages.sort();
    ensure!(pages.len() > 1, "the manual has {} pages", pages.len());
    Ok(pages)
}

/// Starts the program with an empty environment, so that no setting of this machine matters.
fn program(binary: &Path, home: &Path) -> Command {
    let mut command = Command::new(binary);
    command
        .env_clear()
        .env("HOME", home)
        .env("REGATTA_DATA_DIR", home.join("data"));
    command
}
