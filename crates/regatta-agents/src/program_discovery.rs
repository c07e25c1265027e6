//! Finds out which of the known coding agents' programs (the presets) are installed on this
//! machine, in which versions, and whether they are signed in. Also finds the commands that fix
//! problems.
//!
//! This module installs nothing, uses no network and reads no secret. A key counts as present if
//! its environment variable is set, and a sign-in if its file exists.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::presets::{Preset, VersionSource};

/// The time that a program may take to print its version. Some programs take six seconds on a busy
/// machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The maximum number of bytes that are read from a program's output.
const MAX_OUTPUT_BYTES: u64 = 1024 * 1024;

/// The time that a program may take to end by itself after it has answered. After this time the
/// program is killed.
const EXIT_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// The facts about this machine that are used to find programs. Tests provide other facts.
#[derive(Clone, Debug)]
pub struct MachineFacts {
    /// The value of `PATH`: the directories in which programs are searched.
    pub path: OsString,
    pub home: PathBuf,
    /// The names of the environment variables that are set. The values may be secret and are not
    /// stored.
    pub variables: Vec<String>,
}

impl MachineFacts {
    /// Returns the facts about the machine on which this process runs, with the PATH and the
    /// environment variables of this process.
    pub fn this_machine() -> MachineFacts {
        let non_empty = std::env::vars_os().filter(|(_, value)| !value.is_empty());
        MachineFacts {
            path: std::env::var_os("PATH").unwrap_or_default(),
            home: std::env::home_dir().unwrap_or_default(),
            variables: non_empty
                .filter_map(|(name, _)| name.into_string().ok())
                .collect(),
        }
    }

    fn find_on_path(&self, name: &str) -> Option<PathBuf> {
        let is_executable = |path: &PathBuf| {
            path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
        };
        std::env::split_paths(&self.path)
            .filter(|path| path.is_absolute())
            .map(|path| path.join(name))
            .find(is_executable)
    }
}

/// The way in which a program is signed in to its provider, as far as it can be seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignIn {
    /// The program is signed in by an API key, because this environment variable is set.
    Key(String),
    /// The program is signed in by a login, because this file exists.
    File(PathBuf),
    /// The program needs no sign-in.
    NotNeeded,
    /// No sign of a sign-in was found. The program may still be signed in.
    None,
}

/// The findings on this machine about one preset (a known agent program).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProgram {
    pub preset: &'static Preset,
    /// The path of the program, or `None` if it is not installed.
    pub program: Option<PathBuf>,
    pub version: Option<String>,
    pub sign_in: SignIn,
    /// The name of an outdated predecessor of the program that is installed in place of the program
    /// or beside it, if any.
    pub obsolete_program: Option<String>,
    /// A command or sentence that tells how to fix the installation, or `None` if the program
    /// should work.
    pub fix: Option<String>,
}

/// Looks for the programs of several presets (known coding agents) and returns the findings in the
/// same order. The programs print their versions in parallel, because each may take seconds to
/// start.
pub fn discover_all(presets: &[&'static Preset], machine: &MachineFacts) -> Vec<FoundProgram> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = presets
            .iter()
            .map(|preset| scope.spawn(|| discover(preset, machine)))
            .collect();
        let results = threads.into_iter().zip(presets);
        results
            .map(|(thread, preset)| thread.join().unwrap_or_else(|_| discover(preset, machine)))
            .collect()
    })
}

/// Looks for the program of one preset (a known coding agent), its version and its sign-in.
pub fn discover(preset: &'static Preset, machine: &MachineFacts) -> FoundProgram {
    let program = preset
        .programs
        .iter()
        .find_map(|program| machine.find_on_path(program));
    let missing = preset
        .required_program
        .filter(|program| machine.find_on_path(program).is_none());
    let version = program.as_ref().and_then(|path| match preset.version {
        // If the program does not print its version in time, use the version of its package.
        VersionSource::Flag(flag) => query_version(path, flag, machine)
            .or_else(|| read_package(path).and_then(|(_, version)| version)),
        VersionSource::Package => read_package(path).and_then(|(_, version)| version),
    });
    let sign_in = sign_in(preset, machine);
    let obsolete_program = obsolete_program(preset, program.as_deref(), machine);
    let fix = match (&program, missing, &sign_in) {
        (None, ..) => Some(preset.install.to_owned()),
        (_, Some(needed), _) => Some(format!("{} (`{needed}` is missing)", preset.install)),
        _ if obsolete_program.is_some() => Some(preset.install.to_owned()),
        (_, _, SignIn::None) if !preset.sign_in.is_empty() => {
            let keys = preset.key_variables.join(" or ");
            Some(format!(
                "sign in with `{}`, or give the agent a key in {keys}",
                preset.sign_in
            ))
        }
        (_, _, SignIn::None) => Some(format!(
            "give the agent a key in {}",
            preset.key_variables.join(" or ")
        )),
        _ => None,
    };
    FoundProgram {
        preset,
        program,
        version,
        sign_in,
        obsolete_program,
        fix,
    }
}

fn sign_in(preset: &Preset, machine: &MachineFacts) -> SignIn {
    if preset.key_variables.is_empty() && preset.credential_files.is_empty() {
        return SignIn::NotNeeded;
    }
    if let Some(key) = preset
        .key_variables
        .iter()
        .find(|variable| machine.variables.iter().any(|known| known == *variable))
    {
        return SignIn::Key((*key).to_owned());
    }
    let file = preset
        .credential_files
        .iter()
        .map(|file| machine.home.join(file))
        .find(|path| path.is_file());
    file.map_or(SignIn::None, SignIn::File)
}

/// Returns the preset's outdated predecessor program if it is installed in place of the program or
/// beside it.
fn obsolete_program(
    preset: &Preset,
    program: Option<&Path>,
    machine: &MachineFacts,
) -> Option<String> {
    preset
        .obsolete_programs
        .iter()
        .find_map(|(name, old_package)| {
            let found_path = machine.find_on_path(name)?;
            let (package, _) = read_package(&found_path)?;
            // Report an old program only if it is really used. That is so if the new program is
            // missing, is this same file, or needs the old program.
            let is_in_use = program.is_none_or(|path| path == found_path)
                || preset.required_program == Some(*name);
            (package == *old_package && is_in_use).then(|| format!("{name} of {old_package}"))
        })
}

/// Returns the name and version of the npm package to which a program belongs, from the
/// `package.json` above the program's resolved path.
fn read_package(program: &Path) -> Option<(String, Option<String>)> {
    let real = program.canonicalize().ok()?;
    let file = real
        .ancestors()
        .skip(1)
        .take(5)
        .map(|path| path.join("package.json"))
        .find(|path| path.is_file())?;
    let content: serde_json::Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    Some((
        content["name"].as_str()?.to_owned(),
        content["version"].as_str().map(str::to_owned),
    ))
}

fn query_version(program: &Path, flag: &str, machine: &MachineFacts) -> Option<String> {
    let query = ProgramQuery {
        args: &[flag],
        ..ProgramQuery::default()
    };
    query
        .run(program, machine)
        .and_then(|answer| first_version(&answer))
}

/// A short run of a program that prints an answer, such as its version. The program's environment
/// contains only the variables that it needs to run and those that keep it from updating itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgramQuery<'a> {
    pub args: &'a [&'a str],
    /// The text on the program's standard input, which stays open until the program has answered.
    pub input: &'a str,
    /// Recognises the output line that is the answer. `None` means that the whole output of a
    /// successful program is the answer.
    pub is_answer: Option<fn(&str) -> bool>,
    /// Additional environment variables for the program.
    pub env: &'a [(String, String)],
}

impl ProgramQuery<'_> {
    /// Runs the program and returns its answer: the output line that `is_answer` recognises, or the
    /// whole output if `is_answer` is `None`. Returns `None` if the program failed or took too
    /// long.
    pub(crate) fn run(&self, program: &Path, machine: &MachineFacts) -> Option<String> {
        let mut child = Command::new(program)
            .args(self.args)
            .env_clear()
            .env("PATH", &machine.path)
            .env("HOME", &machine.home)
            .envs([
                ("CI", "1"),
                ("NO_COLOR", "1"),
                ("NO_UPDATE_NOTIFIER", "1"),
                ("DISABLE_AUTOUPDATER", "1"),
            ])
            .envs([
                ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
                ("AIDER_CHECK_UPDATE", "false"),
                ("PI_OFFLINE", "1"),
            ])
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(if self.input.is_empty() {
                Stdio::null()
            } else {
                Stdio::piped()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        // Ignore a failed write. A program that does not read its input is ended by the timeout.
        let mut input = child.stdin.take();
        let _ignored = input
            .as_mut()
            .map(|stdin| stdin.write_all(self.input.as_bytes()));
        let output = BufReader::new(child.stdout.take()?.take(MAX_OUTPUT_BYTES));
        let (sender, received) = channel();
        let answer = self.is_answer;
        std::thread::spawn(move || {
            let mut lines = output.lines().map_while(Result::ok);
            let text: String = match answer {
                Some(is_answer) => lines.find(|line| is_answer(line)).unwrap_or_default(),
                None => lines.fold(String::new(), |text, line| text + &line + "\n"),
            };
            drop(sender.send(text));
        });
        let received = received.recv_timeout(ANSWER_TIMEOUT);
        drop(input);
        let status = end_program(&mut child, received.is_ok())?;
        let text = received.ok()?;
        (status.success() || self.is_answer.is_some() && !text.is_empty()).then_some(text)
    }
}

/// Ends a program and its children, and returns the program's exit status. A program that has
/// answered first gets [`EXIT_GRACE_PERIOD`] to end by itself.
fn end_program(child: &mut Child, has_answered: bool) -> Option<ExitStatus> {
    let deadline = Instant::now()
        + if has_answered {
            EXIT_GRACE_PERIOD
        } else {
            Duration::ZERO
        };
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            _ => break,
        }
    }
    // The child's exit status is not collected yet, so its id cannot belong to another process.
    let group = rustix::process::Pid::from_raw(i32::try_from(child.id()).ok()?)?;
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    child.wait().ok()
}

/// Returns the first word of a text that looks like a version.
fn first_version(text: &str) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || c == '(' || c == ')' || c == ',');
    let candidates = words.map(|word| word.trim_start_matches('v'));
    let is_version =
        |word: &&str| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit());
    candidates.take(200).find(is_version).map(str::to_owned)
}

/// Returns the path of the first executable with this name on PATH.
pub fn program_on_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    MachineFacts {
        path: path.to_owned(),
        home: PathBuf::new(),
        variables: vec![],
    }
    .find_on_path(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_found_in_their_order() {
        let machine = MachineFacts {
            path: "/nowhere".into(),
            home: "/nowhere".into(),
            variables: Vec::new(),
        };
        let presets: Vec<&'static Preset> = crate::presets::PRESETS.iter().rev().collect();
        let found = discover_all(&presets, &machine);
        assert!(
            found
                .iter()
                .map(|program| program.preset.name)
                .eq(presets.iter().map(|preset| preset.name))
        );
    }
    use crate::presets;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> World {
            World(tempfile::tempdir().unwrap())
        }

        fn machine(&self, variables: &[&str]) -> MachineFacts {
            // The stand-in programs are shell scripts and need a shell.
            let path =
                std::env::join_paths([self.0.path().join("bin"), "/bin".into(), "/usr/bin".into()])
                    .unwrap();
            let variables = variables
                .iter()
                .map(|variable| (*variable).to_owned())
                .collect();
            MachineFacts {
                path,
                home: self.0.path().join("home"),
                variables,
            }
        }

        fn file(&self, path: &str, text: &str) -> PathBuf {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        }

        fn find(&self, preset: &str, variables: &[&str]) -> FoundProgram {
            discover(
                presets::find_preset(preset).unwrap().0,
                &self.machine(variables),
            )
        }
    }

    #[test]
    fn missing_program_is_reported_with_its_install_command() {
        let found = World::new().find("gemini", &[]);
        assert_eq!((found.program, found.version), (None, None));
        assert_eq!(
            found.fix.as_deref(),
            Some("npm install -g @google/gemini-cli")
        );
    }

    #[test]
    fn installed_program_is_reported_with_its_version_and_sign_in() {
        let world = World::new();
        let program = world.file("bin/codex", "#!/bin/sh\necho 'codex-cli 0.166.0'\n");
        let found = world.find("codex-native", &[]);
        assert_eq!(
            (found.program, found.version.as_deref()),
            (Some(program), Some("0.166.0"))
        );
        assert_eq!(found.sign_in, SignIn::None);
        assert!(found.fix.unwrap().contains("codex login"));
        assert_eq!(
            world.find("codex-native", &["OPENAI_API_KEY"]).sign_in,
            SignIn::Key("OPENAI_API_KEY".to_owned())
        );
        let file = world.file("home/.codex/auth.json", "{}");
        let found = world.find("codex-native", &[]);
        assert_eq!((found.sign_in, found.fix), (SignIn::File(file), None));
    }

    #[test]
    fn package_under_its_old_name_is_reported_with_its_new_name() {
        let world = World::new();
        let installed = |package: &str, version: &str| {
            let json = format!("{{\"name\":\"{package}\",\"version\":\"{version}\"}}");
            world.file(&format!("lib/{package}/package.json"), &json);
            let target = world.file(
                &format!("lib/{package}/dist/index.js"),
                "#!/bin/sh\nsleep 1000\n",
            );
            let link = world.0.path().join("bin/codex-acp");
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            drop(fs::remove_file(&link));
            symlink(target, link).unwrap();
        };
        installed("@zed-industries/codex-acp", "0.16.0");
        let found = world.find("codex", &["OPENAI_API_KEY"]);
        assert_eq!(
            found.obsolete_program.as_deref(),
            Some("codex-acp of @zed-industries/codex-acp")
        );
        assert_eq!(
            found.fix.as_deref(),
            Some("npm install -g @agentclientprotocol/codex-acp")
        );
        installed("@agentclientprotocol/codex-acp", "2.6.0");
        let found = world.find("codex", &["OPENAI_API_KEY"]);
        assert_eq!(
            (found.version.as_deref(), found.obsolete_program, found.fix),
            (Some("2.6.0"), None, None)
        );
    }

    #[test]
    fn program_whose_version_cannot_be_read_has_no_version() {
        let world = World::new();
        world.file("bin/qwen", "#!/bin/sh\necho 1.2.3; exit 1\n");
        assert_eq!(world.find("qwen", &[]).version, None);
        world.file("bin/qwen", "#!/bin/sh\necho hello there\n");
        assert_eq!(world.find("qwen", &[]).version, None);
        assert_eq!(
            first_version("2.1.197 (Claude Code)").as_deref(),
            Some("2.1.197")
        );
        assert_eq!(
            first_version("goose version v1.52.0\n").as_deref(),
            Some("1.52.0")
        );
    }
}
