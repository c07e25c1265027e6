//! `run --from-wave`: before anything starts, the program that takes the work back must be there.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::args::Run;
use crate::out::{Failed, failed, plain};
use crate::plan::wave::{self, Backflow};

use super::App;
use super::run::{Work, of_plan};
use super::setup::words_of;

/// Advice on what belongs together, if the repository has such a program.
const CLUSTER: &str = "scripts/bd-cluster.sh";
/// How long its advice is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads a wave, or says at once why it cannot be run.
pub(super) fn read(app: &App, ask: &Run, file: &Path) -> Result<Work, Failed> {
    let mut command = words_of(ask.ratchet.as_deref().unwrap_or(wave::RATCHET))?;
    let Some(program) = command.first_mut() else {
        return Err(crate::out::usage("--ratchet names no program", "name one: --ratchet 'ol hero ratchet'"));
    };
    // The daemon has a search path of its own; what was found here is what runs there.
    *program = match find(program, std::env::var_os("PATH").as_deref()) {
        Some(path) => path.to_string_lossy().into_owned(),
        None => {
            return Err(failed(
                "no_such_program",
                format!("--from-wave needs the program {program}, and it is not on the PATH; nothing was started"),
                format!("install {program}, name another with --ratchet, or run the tasks as a plan"),
            ));
        }
    };
    let top = super::top_of(&app.here()?);
    let found = wave::read(file, &top, &Backflow { command, quest: ask.quest.clone() })?;
    let mut notes = found.notes;
    for it in &found.later {
        let needs =
            if it.blocked_by.is_empty() { String::new() } else { format!(" needs {}", it.blocked_by.join(" ")) };
        notes.push(format!("later  [{}] {}{needs}", plain(&it.id), plain(&it.title)));
    }
    if found.completed > 0 {
        notes.push(format!("{} completed before", found.completed));
    }
    notes.extend(advice(&top));
    let mut work = of_plan(ask, found.plan);
    work.notes.extend(notes);
    Ok(work)
}

/// The file that a program's name stands for.
fn find(program: &str, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let runs = |it: &PathBuf| it.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return std::path::absolute(program).ok().filter(runs);
    }
    std::env::split_paths(path?).filter(|it| it.is_absolute()).map(|it| it.join(program)).find(runs)
}

/// What the repository's own program advises. It is shown and never applied, and its troubles are not ours.
fn advice(top: &Path) -> Option<String> {
    let program = top.join(CLUSTER);
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
        // What could be read is shown; advice that breaks off is still advice.
        let _broken = from.by_ref().take(64 * 1024).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let deadline = Instant::now() + PATIENCE;
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
        return Some(format!("hint: {CLUSTER} gave no advice"));
    }
    let text = reader.join().ok()?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let short: String = plain(&words.join(" ")).chars().take(400).collect();
    (!short.is_empty()).then(|| format!("hint: {CLUSTER} advises (not applied): {short}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_run_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("ol"), "#!/bin/sh\n").unwrap();
        let search = Some(dir.path().as_os_str());
        assert_eq!(find("ol", search), None, "it may not be executed");
        std::fs::set_permissions(path("ol"), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("ol", search), Some(path("ol")));
        assert_eq!(find("ol", None), None);
        assert_eq!(find(path("ol").to_str().unwrap(), None), Some(path("ol")));
    }
}
