//! The command `upgrade`: explains how this copy of the program was installed, and how to update it.
//!
//! The program never replaces itself and asks no server for new releases. The package manager or
//! installer that installed the program does both.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::commands::CommandContext;
use crate::output::{CommandResult, own_executable};
use crate::version;

#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// Only explain how to update (the command never changes anything, with or without --check)
    #[arg(long)]
    check: bool,
}

/// The way in which this copy of the program was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum InstallMethod {
    /// The program was built from a checkout of the source.
    Checkout,
    Cargo,
    Npm,
    Python,
    Debian,
    /// The program was installed by the install script, or unpacked from a release by hand.
    Archive,
}

impl InstallMethod {
    fn describe(self) -> &'static str {
        match self {
            InstallMethod::Checkout => "built in a checkout of the source",
            InstallMethod::Cargo => "installed by cargo",
            InstallMethod::Npm => "installed by npm",
            InstallMethod::Python => "installed by a Python package manager",
            InstallMethod::Debian => "installed by the Debian package",
            InstallMethod::Archive => "unpacked from a release",
        }
    }

    /// Returns the command with which a person updates a copy that was installed in this way.
    fn update_command(self) -> &'static str {
        match self {
            InstallMethod::Checkout => "git pull && cargo build --release",
            InstallMethod::Cargo => "cargo install --locked --force regatta",
            InstallMethod::Npm => "npm install --global regatta@latest",
            InstallMethod::Python => "pip install --upgrade regatta-fleet",
            InstallMethod::Debian => "sudo apt install ./regatta_VERSION_amd64.deb",
            InstallMethod::Archive => "sh install.sh",
        }
    }
}

/// The answer of `upgrade`, for `--json`.
#[derive(Serialize)]
struct UpgradeAdvice {
    version: String,
    path: PathBuf,
    method: InstallMethod,
    update: &'static str,
    /// Another program named `regatta` that a shell starts instead of this copy.
    shadowed_by: Option<PathBuf>,
}

/// Runs `regatta upgrade`.
pub(crate) fn upgrade(app: &CommandContext, args: &UpgradeArgs) -> CommandResult {
    if !args.check {
        app.output.print_note(
            "regatta upgrade changes nothing and prints the same as regatta upgrade --check",
        );
    }
    let path = own_executable()?;
    let path = path.canonicalize().unwrap_or(path);
    let method = install_method(&path, &|file: &Path| file.exists());
    let advice = UpgradeAdvice {
        version: version::text().to_owned(),
        shadowed_by: first_on_path().filter(|first| *first != path),
        update: method.update_command(),
        path,
        method,
    };
    let next = [advice.update.to_owned(), "regatta up --restart".to_owned()];
    app.output.print_answer("upgrade", &advice, &next, |_| {
        let mut text = format!(
            "regatta {}\npath    {}\nsource  {}\n",
            advice.version,
            advice.path.display(),
            method.describe()
        );
        if let Some(other) = &advice.shadowed_by {
            text += &format!(
                "note    the command `regatta` starts another program: {}\n",
                other.display()
            );
        }
        text + "Regatta does not replace itself and asks no server for new releases.\n\
                Update it, then restart the daemon; its agents keep running.\n"
    })
}

/// Returns the way in which a program was installed, concluded from the program's path and the
/// files beside it. `exists` returns true if a file exists.
fn install_method(program: &Path, exists: &dyn Fn(&Path) -> bool) -> InstallMethod {
    let has_part = |name: &str| program.iter().any(|part| part == name);
    let dir = program.parent().unwrap_or(program);
    let prefix = dir.parent().unwrap_or(dir);
    if has_part("node_modules") {
        InstallMethod::Npm
    } else if has_part("site-packages") || exists(&prefix.join("pyvenv.cfg")) {
        InstallMethod::Python
    } else if exists(&prefix.join(".crates.toml")) {
        InstallMethod::Cargo
    } else if exists(&prefix.join("CACHEDIR.TAG")) {
        InstallMethod::Checkout
    } else if dir == Path::new("/usr/bin") && exists(Path::new("/var/lib/dpkg/info/regatta.list")) {
        InstallMethod::Debian
    } else {
        InstallMethod::Archive
    }
}

/// Returns the path of the program that a shell starts for the command `regatta`.
pub(crate) fn first_on_path() -> Option<PathBuf> {
    let dirs = std::env::var_os("PATH")?;
    std::env::split_paths(&dirs)
        .map(|dir| dir.join("regatta"))
        .find(|file| is_executable(file))
        .and_then(|file| file.canonicalize().ok())
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_and_its_neighbours_tell_how_a_copy_was_installed() {
        let cases = [
            (
                "/home/ann/shop/node_modules/regatta/bin/regatta",
                "",
                InstallMethod::Npm,
            ),
            (
                "/usr/lib/python3/site-packages/bin/regatta",
                "",
                InstallMethod::Python,
            ),
            (
                "/home/ann/venv/bin/regatta",
                "/home/ann/venv/pyvenv.cfg",
                InstallMethod::Python,
            ),
            (
                "/home/ann/.cargo/bin/regatta",
                "/home/ann/.cargo/.crates.toml",
                InstallMethod::Cargo,
            ),
            (
                "/src/target/debug/regatta",
                "/src/target/CACHEDIR.TAG",
                InstallMethod::Checkout,
            ),
            (
                "/usr/bin/regatta",
                "/var/lib/dpkg/info/regatta.list",
                InstallMethod::Debian,
            ),
            ("/usr/bin/regatta", "", InstallMethod::Archive),
            ("/opt/regatta/bin/regatta", "", InstallMethod::Archive),
        ];
        for (program, existing, expected) in cases {
            let exists = |file: &Path| file == Path::new(existing);
            assert_eq!(
                install_method(Path::new(program), &exists),
                expected,
                "{program}"
            );
        }
    }
}
