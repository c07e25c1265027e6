//! Lets one worker of a pool that the foreign program `gc` manages work on an attempt's task.
//!
//! gc starts, scales and ends its workers itself, and their sessions persist. An attempt of such an
//! agent therefore runs this helper program. The helper sends the prompt to the worker with a nudge
//! (gc's word for a message that wakes a worker). The helper then prints the worker's output, and
//! ends when the worker is idle again. The worker makes no git commits and stays in the workspace
//! that the nudge names. Regatta finds its work from the changed files, as with every agent.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use serde_json::Value;

/// The interval at which the state of the gc worker (a worker of the foreign program gc) is read.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The number of readings in a row that may show an idle worker after a nudge (a message that wakes
/// the worker). After that number the worker is nudged a second time, and after as many idle
/// readings again the task fails.
const MAX_IDLE_POLLS: u32 = 15;

/// The state of one worker of the foreign program gc, as `gc status --json` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Worker {
    state: String,
    last_activity: String,
}

/// Returns whether the output of `gc status --json` shows that gc (a foreign program that manages a
/// pool of workers) runs its controller, which means that a pool exists.
pub fn is_controller_running(status: &str) -> bool {
    serde_json::from_str::<Value>(status)
        .is_ok_and(|status| status["controller"]["state"] == "running")
}

fn find_worker(status: &str, alias: &str) -> Option<Worker> {
    let status: Value = serde_json::from_str(status).ok()?;
    let session = status["sessions"]
        .as_array()?
        .iter()
        .find(|session| session["alias"] == alias)?;
    let text_of = |name: &str| match &session[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    Some(Worker {
        state: text_of("state"),
        last_activity: text_of("last_activity"),
    })
}

/// The next action for a gc worker (a worker that the foreign program gc manages), according to the
/// state that was just read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum NextAction {
    KeepWatching,
    NudgeAgain,
    Done,
    Failed(&'static str),
}

/// The progress of a gc worker since it was nudged (woken by a message): its state before the
/// nudge, and the number of idle readings in a row.
#[derive(Debug)]
struct WorkerProgress {
    initial: Worker,
    has_worked: bool,
    idle_polls: u32,
    was_nudged_again: bool,
}

impl WorkerProgress {
    fn new(initial: Worker) -> WorkerProgress {
        WorkerProgress {
            initial,
            has_worked: false,
            idle_polls: 0,
            was_nudged_again: false,
        }
    }

    fn update(&mut self, now: Option<&Worker>) -> NextAction {
        let Some(now) = now else {
            return NextAction::Failed("The gc pool no longer has the worker.");
        };
        match now.state.as_str() {
            "stopped" | "dead" | "failed" | "exited" | "crashed" => {
                return NextAction::Failed("The session of the gc worker has ended.");
            }
            "idle" | "ready" | "waiting" => {}
            _ => {
                self.has_worked = true;
                self.idle_polls = 0;
                return NextAction::KeepWatching;
            }
        }
        // A task that took less than one polling interval shows only in the worker's time of last
        // activity, so a changed time counts as work too.
        if self.has_worked || now.last_activity != self.initial.last_activity {
            self.idle_polls += 1;
            // Require two idle readings of the worker's state in a row, because a worker may look
            // idle between two steps.
            return if self.idle_polls >= 2 {
                NextAction::Done
            } else {
                NextAction::KeepWatching
            };
        }
        self.idle_polls += 1;
        match (self.idle_polls, self.was_nudged_again) {
            (MAX_IDLE_POLLS.., false) => {
                self.was_nudged_again = true;
                self.idle_polls = 0;
                NextAction::NudgeAgain
            }
            (MAX_IDLE_POLLS.., true) => NextAction::Failed(
                "The gc worker did not react to two messages that should wake it.",
            ),
            _ => NextAction::KeepWatching,
        }
    }
}

/// Returns the lines of the output `new` that were not in the earlier output `old`. Each output
/// holds the last lines of the terminal of a gc worker (a worker that the foreign program gc
/// manages).
fn new_lines<'a>(old: &str, new: &'a str) -> Vec<&'a str> {
    let new: Vec<&str> = new.lines().collect();
    let old: Vec<&str> = old.lines().collect();
    // Find the longest end of the old lines that is also the beginning of the new lines. The lines
    // after that common part are new.
    let overlap = (0..=old.len().min(new.len()))
        .rev()
        .find(|n| old[old.len() - n..] == new[..*n])
        .unwrap_or(0);
    new[overlap..].to_vec()
}

/// Sends the prompt from `input` to the worker `alias` of the foreign program gc, prints the
/// worker's output, and returns when the worker has finished.
pub fn main(gc: &str, alias: &str, input: &mut dyn Read, out: &mut dyn Write) -> ExitCode {
    let mut prompt = String::new();
    let result = input
        .read_to_string(&mut prompt)
        .map_err(|error| format!("Could not read the prompt: {error}."))
        .and_then(|_| {
            Pool {
                gc: PathBuf::from(gc),
                alias,
                poll_interval: POLL_INTERVAL,
            }
            .run_task(&prompt, out)
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            drop(writeln!(io::stderr(), "{reason}"));
            ExitCode::FAILURE
        }
    }
}

/// Returns the text that is sent to the worker of the foreign program gc. The worker's session does
/// not have the attempt's environment variables, so the text names the path of the result file.
fn nudge_text(dir: &Path, result_file: Option<&str>, prompt: &str) -> String {
    let result_file = result_file
        .map(|path| format!(" REGATTA_RESULT is the file {path}."))
        .unwrap_or_default();
    format!(
        "Work in the directory {} and nowhere else; do not commit.{result_file}\n\n{prompt}",
        dir.display()
    )
}

struct Pool<'a> {
    gc: PathBuf,
    alias: &'a str,
    poll_interval: Duration,
}

impl Pool<'_> {
    fn run_gc(&self, arguments: &[&str]) -> Result<String, String> {
        let command_name = || {
            format!(
                "`{} {}`",
                Path::new(&self.gc).display(),
                arguments.first().copied().unwrap_or_default()
            )
        };
        let output = Command::new(&self.gc)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("Could not run {}: {error}.", command_name()))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "{} failed: {}. {}",
                command_name(),
                output.status,
                message.trim()
            ));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn status(&self) -> Result<String, String> {
        self.run_gc(&["status", "--json"])
    }

    fn run_task(&self, prompt: &str, out: &mut dyn Write) -> Result<(), String> {
        let status = self.status()?;
        if !is_controller_running(&status) {
            return Err(
                "The controller of gc is not running; start it, then try again.".to_owned(),
            );
        }
        let before = find_worker(&status, self.alias).ok_or_else(|| {
            format!(
                "The pool has no worker {}; see `gc status --json`.",
                self.alias
            )
        })?;
        let dir = std::env::current_dir()
            .map_err(|error| format!("The working directory could not be read: {error}."))?;
        let result = std::env::var("REGATTA_RESULT").ok();
        let prompt = nudge_text(&dir, result.as_deref(), prompt);
        self.run_gc(&["session", "nudge", self.alias, &prompt])?;
        let mut progress = WorkerProgress::new(before);
        let mut last_view = String::new();
        loop {
            std::thread::sleep(self.poll_interval);
            // Ignore an error while reading the gc worker's output, because only the worker's
            // status decides when the task is done.
            if let Ok(view) = self.run_gc(&["session", "peek", self.alias, "--lines", "50"]) {
                for line in new_lines(&last_view, &view) {
                    writeln!(out, "{line}")
                        .map_err(|error| format!("Could not print: {error}."))?;
                }
                last_view = view;
            }
            match progress.update(find_worker(&self.status()?, self.alias).as_ref()) {
                NextAction::KeepWatching => {}
                NextAction::NudgeAgain => {
                    drop(self.run_gc(&["session", "nudge", self.alias, &prompt])?)
                }
                NextAction::Done => return Ok(()),
                NextAction::Failed(why) => return Err(why.to_owned()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn worker_in(state: &str, last_activity: &str) -> Worker {
        Worker {
            state: state.to_owned(),
            last_activity: last_activity.to_owned(),
        }
    }

    #[test]
    fn pool_is_detected_by_its_running_controller() {
        assert!(is_controller_running(
            r#"{"controller":{"state":"running"},"sessions":[]}"#
        ));
        assert!(!is_controller_running(
            r#"{"controller":{"state":"stopped"}}"#
        ));
        assert!(!is_controller_running("gc: command not found"));
    }

    #[test]
    fn worker_is_done_when_idle_after_work_and_fails_when_it_ignores_the_nudge() {
        let mut progress = WorkerProgress::new(worker_in("idle", "1"));
        assert_eq!(
            progress.update(Some(&worker_in("idle", "1"))),
            NextAction::KeepWatching
        );
        assert_eq!(
            progress.update(Some(&worker_in("running", "2"))),
            NextAction::KeepWatching
        );
        assert_eq!(
            progress.update(Some(&worker_in("idle", "3"))),
            NextAction::KeepWatching
        );
        assert_eq!(
            progress.update(Some(&worker_in("running", "4"))),
            NextAction::KeepWatching
        );
        assert_eq!(
            progress.update(Some(&worker_in("idle", "5"))),
            NextAction::KeepWatching
        );
        assert_eq!(
            progress.update(Some(&worker_in("idle", "5"))),
            NextAction::Done
        );

        let mut fast = WorkerProgress::new(worker_in("idle", "1"));
        assert_eq!(
            fast.update(Some(&worker_in("idle", "2"))),
            NextAction::KeepWatching
        );
        assert_eq!(fast.update(Some(&worker_in("idle", "2"))), NextAction::Done);

        let mut unresponsive = WorkerProgress::new(worker_in("idle", "1"));
        let actions: Vec<NextAction> = (0..2 * MAX_IDLE_POLLS)
            .map(|_| unresponsive.update(Some(&worker_in("idle", "1"))))
            .collect();
        assert_eq!(
            actions
                .iter()
                .filter(|action| **action == NextAction::NudgeAgain)
                .count(),
            1
        );
        assert!(matches!(actions.last(), Some(NextAction::Failed(_))));
        assert!(matches!(
            WorkerProgress::new(worker_in("idle", "1")).update(Some(&worker_in("dead", "1"))),
            NextAction::Failed(_)
        ));
        assert!(matches!(
            WorkerProgress::new(worker_in("idle", "1")).update(None),
            NextAction::Failed(_)
        ));
    }

    #[test]
    fn only_new_lines_of_the_output_are_shown() {
        assert_eq!(new_lines("", "a\nb"), ["a", "b"]);
        assert_eq!(new_lines("a\nb", "b\nc"), ["c"]);
        assert_eq!(new_lines("a\nb", "a\nb"), Vec::<&str>::new());
        assert_eq!(new_lines("a", "x\ny"), ["x", "y"]);
    }

    #[test]
    fn nudge_names_the_result_file_and_the_directory() {
        let text = nudge_text(
            Path::new("/w"),
            Some("/data/attempts/A1/result.json"),
            "Do it.",
        );
        assert!(
            text.contains("in the directory /w and nowhere else"),
            "{text}"
        );
        assert!(
            text.contains("REGATTA_RESULT is the file /data/attempts/A1/result.json."),
            "{text}"
        );
        assert!(text.ends_with("\n\nDo it."), "{text}");
        assert!(!nudge_text(Path::new("/w"), None, "Do it.").contains("REGATTA_RESULT"));
    }

    #[test]
    fn pool_worker_is_nudged_and_watched_until_it_is_idle() {
        let dir = tempfile::tempdir().unwrap();
        let gc = dir.path().join("gc");
        // The pool has one worker, which works for one round and is idle afterwards.
        let script = r#"#!/bin/sh
cd "$(dirname "$0")"
case "$1 $2" in
"status --json") n=$(cat n 2>/dev/null || echo 0)
  if [ -f nudged ]; then n=$((n + 1)); echo $n > n; fi
  if [ "$n" = 1 ]; then state=running; else state=idle; fi
  echo "{\"controller\":{\"state\":\"running\"},\"sessions\":[{\"alias\":\"w1\",\"state\":\"$state\",\"last_activity\":\"$n\"}]}" ;;
"session nudge") [ "$3" = w1 ] || exit 1; echo "$4" > nudged ;;
"session peek") echo working; cat n 2>/dev/null ;;
esac
"#;
        fs::write(&gc, script).unwrap();
        fs::set_permissions(&gc, fs::Permissions::from_mode(0o755)).unwrap();
        let mut out = Vec::new();
        let pool = |alias| Pool {
            gc: gc.clone(),
            alias,
            poll_interval: Duration::from_millis(1),
        };
        pool("w1").run_task("Do it.", &mut out).unwrap();
        assert!(
            fs::read_to_string(dir.path().join("nudged"))
                .unwrap()
                .contains("Do it.")
        );
        assert!(String::from_utf8(out).unwrap().starts_with("working\n"));
        let error = pool("w2").run_task("Do it.", &mut Vec::new()).unwrap_err();
        assert!(error.contains("no worker w2"), "{error}");
    }
}
