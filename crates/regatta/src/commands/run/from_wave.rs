//! `run --from-wave`: reads a wave file of the external tool `ol` as a plan. A wave lists the tasks
//! (beads) of a quest (a larger task in `ol`) that can be worked on now.
//!
//! When the work of a bead has passed its checks, the ratchet command (an additional check) must
//! also accept the work. This module checks that the command's program exists before anything
//! starts. The module also shows the advice of the repository's own clustering program, which
//! groups related tasks, if there is such a program.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::command_line::split_command_line;
use crate::commands::CommandContext;
use crate::commands::run::RunArgs;
use crate::commands::run::work::{RunWork, work_of_plan};
use crate::output::{CommandError, command_error, sanitize};
use crate::plan::quest_wave::{self, RatchetTemplate};

/// A program that some repositories contain, and that prints which beads (issues of the wave)
/// should be done together.
const CLUSTER_PROGRAM: &str = "scripts/bd-cluster.sh";

/// The time after which the clustering program, which groups related tasks, is killed if it still
/// runs.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a wave file. Fails if the file is invalid, or if the program of the ratchet command (which
/// must accept the work of each entry) is not installed.
pub(crate) fn read_wave(
    app: &CommandContext,
    args: &RunArgs,
    file: &Path,
) -> Result<RunWork, CommandError> {
    let mut command = split_command_line(
        args.ratchet
            .as_deref()
            .unwrap_or(quest_wave::DEFAULT_RATCHET),
    )?;
    let Some(program) = command.first_mut() else {
        return Err(crate::output::usage_error(
            "--ratchet names no command",
            "name a command: --ratchet 'ol hero ratchet'",
        ));
    };
    // The daemon may have another PATH, so send the program's absolute path.
    *program = match find_executable(program, std::env::var_os("PATH").as_deref()) {
        Some(path) => path.to_string_lossy().into_owned(),
        None => {
            return Err(command_error(
                "no_such_program",
                format!(
                    "--from-wave needs the program {program}, which is not on the PATH; nothing \
                    was started"
                ),
                format!(
                    "install {program}, name another command with --ratchet, or write the tasks \
                     as a plan: regatta run PLAN.toml"
                ),
            ));
        }
    };
    let top = crate::commands::repository_top(&app.working_dir()?);
    let found = quest_wave::read_wave_file(
        file,
        &top,
        &RatchetTemplate {
            command,
            quest: args.quest.clone(),
        },
    )?;
    let mut notes = found.remarks;
    for later in &found.later_entries {
        let needs = if later.blocked_by.is_empty() {
            String::new()
        } else {
            format!(" needs {}", later.blocked_by.join(" "))
        };
        notes.push(format!(
            "later  [{}] {}{needs}",
            sanitize(&later.id),
            sanitize(&later.title)
        ));
    }
    if found.completed > 0 {
        notes.push(format!("{} already completed", found.completed));
    }
    notes.extend(cluster_advice(&top));
    let mut work = work_of_plan(args, found.plan);
    work.notes.extend(notes);
    Ok(work)
}

/// Returns the absolute path of an executable file, if it exists. `program` is a path, or a name to
/// search for in the directories of `path`.
fn find_executable(program: &str, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return std::path::absolute(program).ok().filter(runs);
    }
    std::env::split_paths(path?)
        .filter(|path| path.is_absolute())
        .map(|path| path.join(program))
        .find(runs)
}

/// Returns a line with the advice of the repository's clustering program. The advice is shown but
/// never applied, and a failure of the program does not stop the run.
fn cluster_advice(top: &Path) -> Option<String> {
    let program = top.join(CLUSTER_PROGRAM);
    if !program.is_file() {
        return None;
    }
    let mut child = Command::new(&program)
        .arg("--json")
        .current_dir(top)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut from = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // If reading fails, use the text that was read so far.
        let _broken = from.by_ref().take(64 * 1024).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let deadline = Instant::now() + CLUSTER_TIMEOUT;
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            _ => {
                let _gone = child.kill();
                let _reaped = child.wait();
                break false;
            }
        }
    };
    if !ended {
        return Some(format!("hint: {CLUSTER_PROGRAM} gave no advice"));
    }
    let text = reader.join().ok()?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let short: String = sanitize(&words.join(" ")).chars().take(400).collect();
    (!short.is_empty()).then(|| format!("hint: {CLUSTER_PROGRAM} advises (not applied): {short}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_returns_only_executable_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("ol"), "#!/bin/sh\n").unwrap();
        let search = Some(dir.path().as_os_str());
        assert_eq!(
            find_executable("ol", search),
            None,
            "the file is not executable"
        );
        std::fs::set_permissions(path("ol"), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_executable("ol", search), Some(path("ol")));
        assert_eq!(find_executable("ol", None), None);
        assert_eq!(
            find_executable(path("ol").to_str().unwrap(), None),
            Some(path("ol"))
        );
    }
}
