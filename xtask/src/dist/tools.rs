//! Installs the tools of a release from package registries into a directory of their own.
//!
//! zig and cargo-zigbuild come from PyPI into a virtual environment; cargo-auditable comes from
//! crates.io. Their versions are pinned, because another zig makes another binary.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

const ZIG: &str = "ziglang==0.17.0";
const ZIGBUILD: &str = "cargo-zigbuild==0.24.0";
const AUDITABLE: &str = "cargo-auditable@0.7.7";

/// A directory with the installed tools.
pub(crate) struct Tools {
    directory: PathBuf,
}

impl Tools {
    /// Installs the tools that are missing in `directory`.
    pub(crate) fn install(directory: &Path) -> anyhow::Result<Tools> {
        let tools = Tools {
            directory: directory.to_owned(),
        };
        std::fs::create_dir_all(directory)?;
        let python = directory.join("venv/bin/python");
        // The file is written last, so that an interrupted installation is repeated.
        let installed = directory.join("venv/installed");
        let wanted = format!("{ZIG} {ZIGBUILD}");
        if std::fs::read_to_string(&installed).ok().as_deref() != Some(wanted.as_str()) {
            println!("installing {wanted} from PyPI into {}", directory.display());
            run(Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(directory.join("venv")))
            .context("install python3 and python3-venv")?;
            run(Command::new(&python).args(["-m", "pip", "install", "--quiet", ZIG, ZIGBUILD]))?;
            std::fs::write(&installed, &wanted)?;
        }
        if !directory.join("bin/cargo-auditable").exists() {
            println!(
                "installing {AUDITABLE} from crates.io into {}",
                directory.display()
            );
            // A debug build: the tool runs for a second, and an optimised build takes a minute.
            run(Command::new("cargo")
                .args(["install", "--quiet", "--debug", "--locked", "--root"])
                .arg(directory)
                .arg(AUDITABLE)
                .env("CARGO_TARGET_DIR", directory.join("target")))?;
        }
        Ok(tools)
    }

    /// Returns the PATH on which cargo finds the tools.
    pub(crate) fn path(&self) -> anyhow::Result<OsString> {
        let own = [self.directory.join("venv/bin"), self.directory.join("bin")];
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let all = own.into_iter().chain(std::env::split_paths(&inherited));
        std::env::join_paths(all).context("a directory of the tools has a colon in its name")
    }

    /// Returns the directory in which zig keeps its compiled libraries.
    pub(crate) fn cache(&self) -> PathBuf {
        self.directory.join("cache")
    }
}

/// Runs a command to its end; a failure names the command.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("{program} does not start"))?;
    ensure!(status.success(), "{} failed: {status}", words(command));
    Ok(())
}

/// Runs a command to its end and returns its standard output.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("{program} does not start"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} failed: {}",
        words(command),
        errors.trim()
    );
    Ok(output.stdout)
}

/// Like [`output`], as text.
pub(crate) fn text(command: &mut Command) -> anyhow::Result<String> {
    let bytes = output(command)?;
    String::from_utf8(bytes).with_context(|| format!("{} printed no text", words(command)))
}

fn words(command: &Command) -> String {
    let args = command.get_args().map(|arg| arg.to_string_lossy());
    let program = command.get_program().to_string_lossy();
    std::iter::once(program)
        .chain(args)
        .collect::<Vec<_>>()
        .join(" ")
}
