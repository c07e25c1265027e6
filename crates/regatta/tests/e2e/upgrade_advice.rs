//! `regatta upgrade` reads how the copy that runs was installed, and prints a command that updates
//! exactly this copy. Each test puts the real program where an installer would put it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::world::{CommandOutput, World, run_command};

/// Directories that look as installers leave them, with the real program inside. They are beside
/// the program, because a hard link of it costs nothing there.
struct Machine {
    world: World,
    root: PathBuf,
    _directory: TempDir,
}

impl Machine {
    fn new() -> Machine {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Machine {
            world: World::new(),
            root: directory.path().canonicalize().unwrap(),
            _directory: directory,
        }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, self.with_root(text)).unwrap();
    }

    /// Replaces `ROOT` in a text by the directory.
    fn with_root(&self, text: &str) -> String {
        text.replace("ROOT", &self.root.display().to_string())
    }

    /// Puts the program at a path.
    fn install(&self, path: &str) -> InstalledCopy<'_> {
        let program = self.root.join(path);
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::hard_link(env!("CARGO_BIN_EXE_regatta"), &program).unwrap();
        InstalledCopy {
            machine: self,
            program,
        }
    }
}

struct InstalledCopy<'m> {
    machine: &'m Machine,
    program: PathBuf,
}

impl InstalledCopy<'_> {
    fn run_with_path(&self, args: &[&str], path: Option<&Path>) -> CommandOutput {
        let mut command = std::process::Command::new(&self.program);
        command.args(args).current_dir(&self.machine.root);
        self.machine.world.clean_environment(&mut command);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        run_command(command, None)
    }

    /// Returns the answer of `upgrade --check --json`, and checks that the text for people has the
    /// same command, in a pipe and without hints.
    #[track_caller]
    fn advice(&self, path: Option<&Path>) -> Value {
        let output = self.run_with_path(&["upgrade", "--check", "--json"], path);
        assert_eq!(output.exit_code, 0, "{output:?}");
        let answer: Value = serde_json::from_str(&output.stdout).unwrap();
        let line = format!("update  {}\n", answer["data"]["update"].as_str().unwrap());
        for args in [&["upgrade"][..], &["upgrade", "--check", "--no-hint"]] {
            let output = self.run_with_path(args, path);
            assert!(output.stdout.contains(&line), "{args:?}: {output:?}");
        }
        answer["data"].clone()
    }

    #[track_caller]
    fn assert_advice(&self, method: &str, update: &str) {
        let update = self.machine.with_root(update);
        let advice = self.advice(None);
        assert_eq!(advice["method"], method, "{advice}");
        assert_eq!(advice["update"], update.as_str(), "{advice}");
    }

    /// Checks what the advice names before its command.
    #[track_caller]
    fn assert_before(&self, words: &str) {
        let advice = self.advice(None);
        assert!(
            advice["before"].as_str().unwrap().contains(words),
            "{advice}"
        );
    }
}

/// The build of a checkout that runs these tests.
#[test]
fn a_build_in_a_checkout_is_updated_there() {
    let world = World::new();
    let advice = world.run_json(&["upgrade", "--check"]);
    assert_eq!(advice["method"], "checkout", "{advice}");
    assert_eq!(
        advice["update"], "git pull && cargo build --release",
        "{advice}"
    );
}

/// A copy that cargo installed from a checkout is updated from that checkout, and never from the
/// registry, where somebody else could register the name.
#[test]
fn a_copy_of_cargo_is_updated_from_its_source() {
    let machine = Machine::new();
    let copy = machine.install("cargo/bin/regatta");
    let record = |source: &str| {
        let text = format!("[v1]\n\"regatta 0.1.0 ({source})\" = [\"regatta\"]\n");
        machine.write("cargo/.crates.toml", &text);
    };
    machine.write("my src/crates/regatta/Cargo.toml", "");
    record("path+file://ROOT/my%20src/crates/regatta");
    copy.assert_advice(
        "cargo",
        "git -C 'ROOT/my src/crates/regatta' pull && cargo install --locked --path 'ROOT/my \
         src/crates/regatta'",
    );
    std::fs::remove_dir_all(machine.root.join("my src")).unwrap();
    copy.assert_before("is gone");
    record("git+https://code.example/regatta#24a8c3a1");
    copy.assert_advice(
        "cargo",
        "cargo install --locked --git https://code.example/regatta regatta",
    );
}

/// pipx and uv update only what they installed. pip cannot update it.
#[test]
fn copies_of_pipx_uv_and_pip_are_updated_by_the_same_program() {
    let machine = Machine::new();
    for (dir, mark, method, update) in [
        (
            "pipx/venvs/regatta-fleet",
            "pipx_metadata.json",
            "pipx",
            "pipx upgrade regatta-fleet",
        ),
        (
            "uv/tools/regatta-fleet",
            "uv-receipt.toml",
            "uv",
            "uv tool upgrade regatta-fleet",
        ),
        (
            "venv",
            "mark",
            "python",
            "ROOT/venv/bin/python -m pip install --upgrade regatta-fleet",
        ),
    ] {
        machine.write(&format!("{dir}/pyvenv.cfg"), "home = /usr/bin\n");
        machine.write(&format!("{dir}/{mark}"), "");
        let copy = machine.install(&format!("{dir}/bin/regatta"));
        copy.assert_advice(method, update);
    }
}

/// A copy of the install script is updated from the place of the script, also if the script came
/// through a pipe and is in no file.
#[test]
fn a_copy_of_the_install_script_names_the_place_of_the_script() {
    let machine = Machine::new();
    let copy = machine.install("home/.local/bin/regatta");
    let source = "home/.local/share/doc/regatta/installed-from";
    machine.write(source, "https://code.example/latest\n");
    copy.assert_advice(
        "install_script",
        "curl -fsSL https://code.example/latest/install.sh | sh -s -- --prefix ROOT/home/.local",
    );
    machine.write(source, "/srv/my release\n");
    copy.assert_advice(
        "install_script",
        "sh '/srv/my release/install.sh' --from '/srv/my release' --prefix ROOT/home/.local",
    );
    std::fs::remove_file(machine.root.join(source)).unwrap();
    copy.assert_advice("archive", "sh install.sh --prefix ROOT/home/.local");
    copy.assert_before("nothing records where this copy came from");
}

/// npm keeps a package in the project, or globally.
#[test]
fn a_copy_of_npm_is_updated_where_it_is() {
    let machine = Machine::new();
    let global = machine.install("npm/lib/node_modules/regatta/bin/regatta");
    global.assert_advice("npm", "npm install --global regatta@latest");
    let local = machine.install("web/node_modules/regatta/bin/regatta");
    local.assert_advice("npm", "npm install --prefix ROOT/web regatta@latest");
}

/// A program of the same name that comes first on the PATH is named.
#[test]
fn another_program_of_the_same_name_is_named() {
    let machine = Machine::new();
    let other = machine.install("other/regatta");
    let copy = machine.install("opt/bin/regatta");
    let shadowed_by = |path: &Path| copy.advice(path.parent())["shadowed_by"].clone();
    let first = shadowed_by(&other.program);
    assert_eq!(first, other.program.display().to_string());
    assert_eq!(shadowed_by(&copy.program), Value::Null);
}
