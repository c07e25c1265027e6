//! The command `upgrade`: explains how this copy of the program was installed, and how to update it.
//!
//! The program never replaces itself and asks no server for new releases. The package manager or
//! installer that installed the program does both.

use std::path::{Path, PathBuf};

use clap::Args;
use regatta_core::shell_quote::quote;
use serde::Serialize;

use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, own_executable};
use crate::version;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("upgrade", &["regatta upgrade --check"])];

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
    Pipx,
    Uv,
    /// The program was installed by pip.
    Python,
    Debian,
    InstallScript,
    /// The program is part of the image of a container.
    Container,
    /// Nothing records the installation: the program was unpacked from a release or copied.
    Archive,
}

impl InstallMethod {
    fn describe(self) -> &'static str {
        match self {
            InstallMethod::Checkout => "built in a checkout of the source",
            InstallMethod::Cargo => "installed by cargo",
            InstallMethod::Npm => "installed by npm",
            InstallMethod::Pipx => "installed by pipx",
            InstallMethod::Uv => "installed by uv",
            InstallMethod::Python => "installed by pip",
            InstallMethod::Debian => "installed by the Debian package",
            InstallMethod::InstallScript => "installed by the install script",
            InstallMethod::Container => "part of the image of this container",
            InstallMethod::Archive => "unpacked from a release, or copied",
        }
    }
}

/// The way in which a copy of the program was installed, and how a person updates the copy.
#[derive(Debug)]
struct Installation {
    method: InstallMethod,
    update: String,
    /// What the person must do or know before the command. Empty if the command is enough.
    before: String,
}

impl Installation {
    fn new(method: InstallMethod, update: impl Into<String>) -> Installation {
        Installation {
            method,
            update: update.into(),
            before: String::new(),
        }
    }

    fn after(mut self, before: impl Into<String>) -> Installation {
        self.before = before.into();
        self
    }
}

/// The answer of `upgrade`, for `--json`.
#[derive(Serialize)]
struct UpgradeAdvice {
    version: String,
    path: PathBuf,
    method: InstallMethod,
    update: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    before: String,
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
    let found = find_installation(&path, Path::new("/"));
    let advice = UpgradeAdvice {
        version: version::text().to_owned(),
        shadowed_by: first_on_path().filter(|first| *first != path),
        path,
        method: found.method,
        update: found.update,
        before: found.before,
    };
    let restart = "regatta up --restart";
    let next = [advice.update.clone(), restart.to_owned()];
    app.output.print_answer("upgrade", &advice, &next, |_| {
        let mut text = format!(
            "regatta {}\npath    {}\nsource  {}\n",
            advice.version,
            advice.path.display(),
            advice.method.describe()
        );
        if let Some(other) = &advice.shadowed_by {
            text += &format!(
                "note    the command `regatta` starts another program: {}\n",
                other.display()
            );
        }
        if !advice.before.is_empty() {
            text += &format!("first   {}\n", advice.before);
        }
        text + &format!(
            "update  {}\nthen    {restart}   restarts the daemon; its agents keep running\n\
             Regatta does not replace itself and asks no server for new releases.\n",
            advice.update
        )
    })
}

/// Returns how a program was installed, concluded from the program's path and the files that
/// installers leave around it. `root` is the root of the file system.
fn find_installation(program: &Path, root: &Path) -> Installation {
    let dir = program.parent().unwrap_or(program);
    let prefix = dir.parent().unwrap_or(dir);
    npm_installation(program)
        .or_else(|| python_installation(program, prefix))
        .or_else(|| cargo_installation(prefix))
        .or_else(|| checkout_installation(prefix))
        .unwrap_or_else(|| release_installation(program, prefix, root))
}

/// npm keeps packages in `lib/node_modules` (global), in `node_modules` of a project, or in the
/// cache of npx.
fn npm_installation(program: &Path) -> Option<Installation> {
    let modules = program
        .ancestors()
        .find(|dir| dir.ends_with("node_modules"))?;
    let owner = modules.parent()?;
    if owner.parent().is_some_and(|dir| dir.ends_with("_npx")) {
        let update = "npx regatta@latest version";
        return Some(
            Installation::new(InstallMethod::Npm, update).after(FILE_INSTEAD_OF_NPM_REGISTRY),
        );
    }
    let place = if owner.ends_with("lib") {
        "--global".to_owned()
    } else {
        format!("--prefix {}", quote(&owner.to_string_lossy()))
    };
    let update = format!("npm install {place} regatta@latest");
    Some(Installation::new(InstallMethod::Npm, update).after(FILE_INSTEAD_OF_NPM_REGISTRY))
}

const FILE_INSTEAD_OF_NPM_REGISTRY: &str = "if this copy came from a file and not from the npm \
     registry, write ./regatta-VERSION.tgz of the new release instead of regatta@latest";

const WHEEL_INSTEAD_OF_PYPI: &str = "if this copy came from a file and not from PyPI, write the \
     .whl file of the new release instead of regatta-fleet";

fn python_installation(program: &Path, prefix: &Path) -> Option<Installation> {
    // pipx and uv record the source of a tool, so their commands also update a copy that came from
    // a file, when the file was replaced.
    if prefix.join("uv-receipt.toml").exists() {
        return Some(Installation::new(
            InstallMethod::Uv,
            "uv tool upgrade regatta-fleet",
        ));
    }
    if prefix.join("pipx_metadata.json").exists() {
        return Some(Installation::new(
            InstallMethod::Pipx,
            "pipx upgrade regatta-fleet",
        ));
    }
    let environment = std::fs::read_to_string(prefix.join("pyvenv.cfg")).ok();
    let has_part = |name: &str| program.iter().any(|part| part == name);
    let is_uv = environment
        .iter()
        .flat_map(|text| text.lines())
        .any(|line| line.split('=').next().is_some_and(|key| key.trim() == "uv"));
    let (method, update) = match environment {
        Some(_) if is_uv && (has_part("archive-v0") || has_part("environments-v2")) => (
            InstallMethod::Uv,
            "uvx --from regatta-fleet@latest regatta version".to_owned(),
        ),
        Some(_) if is_uv => (
            InstallMethod::Uv,
            format!(
                "uv pip install --python {} --upgrade regatta-fleet",
                quote(&prefix.to_string_lossy())
            ),
        ),
        Some(_) => (
            InstallMethod::Python,
            format!(
                "{} -m pip install --upgrade regatta-fleet",
                quote(&prefix.join("bin/python").to_string_lossy())
            ),
        ),
        None if has_part("site-packages") || has_wheel(prefix) => (
            InstallMethod::Python,
            "python3 -m pip install --upgrade regatta-fleet".to_owned(),
        ),
        None => return None,
    };
    Some(Installation::new(method, update).after(WHEEL_INSTEAD_OF_PYPI))
}

/// Returns true if pip installed the wheel below `prefix` without a virtual environment.
fn has_wheel(prefix: &Path) -> bool {
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries(&prefix.join("lib"))
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .flat_map(|python| ["site-packages", "dist-packages"].map(|dir| python.path().join(dir)))
        .flat_map(|packages| entries(&packages).collect::<Vec<_>>())
        .any(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.starts_with("regatta_fleet-") && name.ends_with(".dist-info")
        })
}

/// Reads from cargo's record of installed crates where this program's source came from. Never
/// concludes from the directory alone that a registry has the crate, because somebody else can
/// register the name there, and cargo would build and run that person's code.
fn cargo_installation(prefix: &Path) -> Option<Installation> {
    let text = std::fs::read_to_string(prefix.join(".crates.toml")).ok()?;
    let record: toml::Table = text.parse().ok()?;
    let source = record
        .get("v1")?
        .as_table()?
        .keys()
        .find_map(|package| crate_source(package))?;
    let (kind, place) = source.split_once('+')?;
    let url = place.split(['?', '#']).next().unwrap_or(place);
    let found = |update: String| Installation::new(InstallMethod::Cargo, update);
    match kind {
        "path" => {
            let path = percent_decode(url.strip_prefix("file://").unwrap_or(url));
            let is_gone = !Path::new(&path).exists();
            let path = quote(&path);
            let found = found(format!(
                "git -C {path} pull && cargo install --locked --path {path}"
            ));
            Some(if is_gone {
                found.after(format!(
                    "the checkout at {path} is gone; clone it there again"
                ))
            } else {
                found
            })
        }
        "git" => Some(found(format!(
            "cargo install --locked --git {} regatta",
            quote(url)
        ))),
        "registry" | "sparse" => Some(found("cargo install --locked regatta".to_owned())),
        _ => None,
    }
}

/// Returns the source of a package of cargo's record if the package is this program, such as
/// `path+file:///src/crates/regatta` of `regatta 0.1.0 (path+file:///src/crates/regatta)`.
fn crate_source(package: &str) -> Option<&str> {
    let (_version, source) = package.strip_prefix("regatta ")?.split_once(" (")?;
    source.strip_suffix(')')
}

/// Decodes `%20` and the like in the path of a URL.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%')
            .then(|| std::str::from_utf8(tail.get(..2)?).ok())
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// cargo marks its target directory, and builds into a directory for each profile below. A copy of
/// the directory may lack the first of its marks.
fn checkout_installation(prefix: &Path) -> Option<Installation> {
    let mut marks = ["CACHEDIR.TAG", ".rustc_info.json"].iter();
    marks.any(|mark| prefix.join(mark).exists()).then(|| {
        Installation::new(InstallMethod::Checkout, "git pull && cargo build --release")
            .after("run the command in the checkout")
    })
}

/// The file in which the install script writes where it took the release from.
const SCRIPT_SOURCE_FILE: &str = "share/doc/regatta/installed-from";

fn release_installation(program: &Path, prefix: &Path, root: &Path) -> Installation {
    let mut container_marks = [".dockerenv", "run/.containerenv"].iter();
    let is_in_container = container_marks.any(|file| root.join(file).exists());
    // A copy in a home directory belongs to the person who uses the container. A copy in a
    // directory of the system came with the image.
    let mut system_dirs = ["usr", "opt", "bin"].iter();
    let is_of_system = system_dirs.any(|dir| program.starts_with(root.join(dir)));
    if is_in_container && is_of_system {
        let update = "podman build --pull --tag regatta DIRECTORY";
        return Installation::new(InstallMethod::Container, update).after(
            "on the host, with the files of the new release in DIRECTORY; then start a new \
             container from the image, with the same volumes",
        );
    }
    if program == root.join("usr/bin/regatta")
        && root.join("var/lib/dpkg/info/regatta.list").exists()
    {
        let update = "sudo apt install ./regatta_VERSION_amd64.deb";
        return Installation::new(InstallMethod::Debian, update)
            .after("download the Debian package of the new release");
    }
    let target = format!("--prefix {}", quote(&prefix.to_string_lossy()));
    if let Ok(source) = std::fs::read_to_string(prefix.join(SCRIPT_SOURCE_FILE)) {
        let source = source.trim();
        let update = if source.starts_with('/') {
            let place = quote(source);
            let script = quote(&format!("{source}/install.sh"));
            format!("sh {script} --from {place} {target}")
        } else {
            let script = quote(&format!("{source}/install.sh"));
            format!("curl -fsSL {script} | sh -s -- {target}")
        };
        return Installation::new(InstallMethod::InstallScript, update)
            .after("if the new release has another address, write that address in the command");
    }
    let method = if prefix.join("share/doc/regatta/installed-files").exists() {
        InstallMethod::InstallScript
    } else {
        InstallMethod::Archive
    };
    Installation::new(method, format!("sh install.sh {target}"))
        .after("download install.sh of the new release; nothing records where this copy came from")
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

    /// Each case has the path of the program, the files around it with their content, and the
    /// expected method and command. `ROOT` stands for the root of the file system of the case.
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], InstallMethod, &'a str);

    #[test]
    fn the_path_and_its_neighbours_tell_how_a_copy_was_installed() {
        let cases: &[Case] = &[
            (
                "usr/lib/node_modules/regatta/bin/regatta",
                &[],
                InstallMethod::Npm,
                "npm install --global regatta@latest",
            ),
            (
                "home/ann/shop/node_modules/regatta/bin/regatta",
                &[],
                InstallMethod::Npm,
                "npm install --prefix ROOT/home/ann/shop regatta@latest",
            ),
            (
                "home/ann/.npm/_npx/1f/node_modules/regatta/bin/regatta",
                &[],
                InstallMethod::Npm,
                "npx regatta@latest version",
            ),
            (
                "home/ann/venv/bin/regatta",
                &[("home/ann/venv/pyvenv.cfg", "home = /usr/bin\n")],
                InstallMethod::Python,
                "ROOT/home/ann/venv/bin/python -m pip install --upgrade regatta-fleet",
            ),
            (
                "home/ann/venv/bin/regatta",
                &[("home/ann/venv/pyvenv.cfg", "home = /usr/bin\nuv = 0.9.1\n")],
                InstallMethod::Uv,
                "uv pip install --python ROOT/home/ann/venv --upgrade regatta-fleet",
            ),
            (
                "home/ann/.cache/uv/archive-v0/x1/bin/regatta",
                &[(
                    "home/ann/.cache/uv/archive-v0/x1/pyvenv.cfg",
                    "uv = 0.9.1\n",
                )],
                InstallMethod::Uv,
                "uvx --from regatta-fleet@latest regatta version",
            ),
            (
                "home/ann/.local/bin/regatta",
                &[(
                    "home/ann/.local/lib/python3.13/site-packages/regatta_fleet-0.1.0.dist-info/METADATA",
                    "",
                )],
                InstallMethod::Python,
                "python3 -m pip install --upgrade regatta-fleet",
            ),
            (
                "home/ann/.cargo/bin/regatta",
                &[(
                    "home/ann/.cargo/.crates.toml",
                    "[v1]\n\"regatta 0.1.0 (git+https://code.example/regatta?branch=main#24a8c3)\" = [\"regatta\"]\n",
                )],
                InstallMethod::Cargo,
                "cargo install --locked --git https://code.example/regatta regatta",
            ),
            (
                "home/ann/.cargo/bin/regatta",
                &[(
                    "home/ann/.cargo/.crates.toml",
                    "[v1]\n\"regatta 0.1.0 (registry+https://github.com/rust-lang/crates.io-index)\" = [\"regatta\"]\n",
                )],
                InstallMethod::Cargo,
                "cargo install --locked regatta",
            ),
            // A copy that lies in cargo's directory, but that cargo did not install.
            (
                "home/ann/.cargo/bin/regatta",
                &[(
                    "home/ann/.cargo/.crates.toml",
                    "[v1]\n\"ripgrep 13.0.0 (registry+https://github.com/rust-lang/crates.io-index)\" = [\"rg\"]\n",
                )],
                InstallMethod::Archive,
                "sh install.sh --prefix ROOT/home/ann/.cargo",
            ),
            (
                "src/target/debug/regatta",
                &[("src/target/CACHEDIR.TAG", "")],
                InstallMethod::Checkout,
                "git pull && cargo build --release",
            ),
            (
                "usr/bin/regatta",
                &[("var/lib/dpkg/info/regatta.list", "")],
                InstallMethod::Debian,
                "sudo apt install ./regatta_VERSION_amd64.deb",
            ),
            (
                "usr/bin/regatta",
                &[("var/lib/dpkg/info/regatta.list", ""), (".dockerenv", "")],
                InstallMethod::Container,
                "podman build --pull --tag regatta DIRECTORY",
            ),
            (
                "usr/bin/regatta",
                &[("run/.containerenv", "")],
                InstallMethod::Container,
                "podman build --pull --tag regatta DIRECTORY",
            ),
            (
                "opt/regatta/bin/regatta",
                &[],
                InstallMethod::Archive,
                "sh install.sh --prefix ROOT/opt/regatta",
            ),
            (
                "home/ann/.local/bin/regatta",
                &[("home/ann/.local/share/doc/regatta/installed-files", "")],
                InstallMethod::InstallScript,
                "sh install.sh --prefix ROOT/home/ann/.local",
            ),
        ];
        for (program, files, method, update) in cases {
            let root = tempfile::tempdir().unwrap();
            for (file, text) in *files {
                let file = root.path().join(file);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, text).unwrap();
            }
            let found = find_installation(&root.path().join(program), root.path());
            let update = update.replace("ROOT", &root.path().to_string_lossy());
            assert_eq!((found.method, found.update), (*method, update), "{program}");
        }
    }
}
