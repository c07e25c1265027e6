//! Runs one worker of a pool that the program `gc` manages, as a program of the `command` runtime.
//!
//! gc starts, scales and ends its workers itself, and their sessions persist. An attempt therefore
//! runs this program: it nudges the worker with the prompt, prints the worker's output, and ends
//! when the worker is idle again. The worker commits nothing and stays in the workspace that the
//! nudge names. Regatta finds its work from the changed files, as with every agent.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use serde_json::Value;

/// The interval at which the worker's state is read.
const ROUND: Duration = Duration::from_secs(2);

/// The number of rounds for which a worker may be idle after a nudge. Then it is nudged again, and
/// after the same number it is given up.
const IDLE_ROUNDS: u32 = 15;

/// The state of one worker, as the pool reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Worker {
    state: String,
    last_activity: String,
}

/// Returns whether the output of `gc status --json` shows a running controller, by which a pool is
/// detected.
pub fn controller_runs(status: &str) -> bool {
    serde_json::from_str::<Value>(status).is_ok_and(|it| it["controller"]["state"] == "running")
}

fn worker(status: &str, alias: &str) -> Option<Worker> {
    let status: Value = serde_json::from_str(status).ok()?;
    let found = status["sessions"].as_array()?.iter().find(|it| it["alias"] == alias)?;
    let word = |name: &str| match &found[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    Some(Worker { state: word("state"), last_activity: word("last_activity") })
}

/// The next action after reading the worker's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Verdict {
    GoOn,
    NudgeAgain,
    Done,
    Failed(&'static str),
}

/// The progress of one worker on its task.
#[derive(Debug)]
struct Watch {
    before: Worker,
    worked: bool,
    idle: u32,
    nudged_again: bool,
}

impl Watch {
    fn new(before: Worker) -> Watch {
        Watch { before, worked: false, idle: 0, nudged_again: false }
    }

    fn look(&mut self, now: Option<&Worker>) -> Verdict {
        let Some(now) = now else { return Verdict::Failed("The pool no longer knows the worker.") };
        match now.state.as_str() {
            "stopped" | "dead" | "failed" | "exited" | "crashed" => {
                return Verdict::Failed("The worker's session has ended.");
            }
            "idle" | "ready" | "waiting" => {}
            _ => {
                self.worked = true;
                self.idle = 0;
                return Verdict::GoOn;
            }
        }
        // If a task took less than a round, only the time of the last activity shows it.
        if self.worked || now.last_activity != self.before.last_activity {
            self.idle += 1;
            // The worker must be idle twice in a row, because it may look idle once between two
            // steps.
            return if self.idle >= 2 { Verdict::Done } else { Verdict::GoOn };
        }
        self.idle += 1;
        match (self.idle, self.nudged_again) {
            (IDLE_ROUNDS.., false) => {
                self.nudged_again = true;
                self.idle = 0;
                Verdict::NudgeAgain
            }
            (IDLE_ROUNDS.., true) => Verdict::Failed("The worker does not react to nudges."),
            _ => Verdict::GoOn,
        }
    }
}

/// Returns the lines of a peek that were not in the last peek.
fn news<'a>(old: &str, new: &'a str) -> Vec<&'a str> {
    let new: Vec<&str> = new.lines().collect();
    let old: Vec<&str> = old.lines().collect();
    // The overlap is the longest end of the old lines with which the new lines begin.
    let overlap = (0..=old.len().min(new.len())).rev().find(|it| old[old.len() - it..] == new[..*it]).unwrap_or(0);
    new[overlap..].to_vec()
}

/// Nudges the worker `alias` with the prompt from `input` and watches it until it is done.
pub fn main(gc: &str, alias: &str, input: &mut dyn Read, out: &mut dyn Write) -> ExitCode {
    let mut prompt = String::new();
    let done = input
        .read_to_string(&mut prompt)
        .map_err(|error| format!("Could not read the prompt: {error}."))
        .and_then(|_| Pool { gc: PathBuf::from(gc), alias, round: ROUND }.work(&prompt, out));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            drop(writeln!(io::stderr(), "{why}"));
            ExitCode::FAILURE
        }
    }
}

/// Returns the text of the nudge. The worker's session has none of the attempt's variables, so the
/// text names the path of the result.
fn nudge(dir: &Path, result: Option<&str>, prompt: &str) -> String {
    let result = result.map(|path| format!(" REGATTA_RESULT is the file {path}.")).unwrap_or_default();
    format!("Work in the directory {} and nowhere else; do not commit.{result}\n\n{prompt}", dir.display())
}

struct Pool<'a> {
    gc: PathBuf,
    alias: &'a str,
    round: Duration,
}

impl Pool<'_> {
    fn call(&self, arguments: &[&str]) -> Result<String, String> {
        let shown =
            || format!("`{} {}`", Path::new(&self.gc).display(), arguments.first().copied().unwrap_or_default());
        let output = Command::new(&self.gc)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("Could not run {}: {error}.", shown()))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} failed: {}. {}", shown(), output.status, words.trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn status(&self) -> Result<String, String> {
        self.call(&["status", "--json"])
    }

    fn work(&self, prompt: &str, out: &mut dyn Write) -> Result<(), String> {
        let status = self.status()?;
        if !controller_runs(&status) {
            return Err("The controller of gc is not running; start it, then try again.".to_owned());
        }
        let before = worker(&status, self.alias)
            .ok_or_else(|| format!("The pool has no worker {}; see `gc status --json`.", self.alias))?;
        let dir =
            std::env::current_dir().map_err(|error| format!("The working directory could not be read: {error}."))?;
        let result = std::env::var("REGATTA_RESULT").ok();
        let prompt = nudge(&dir, result.as_deref(), prompt);
        self.call(&["session", "nudge", self.alias, &prompt])?;
        let mut watch = Watch::new(before);
        let mut seen = String::new();
        loop {
            std::thread::sleep(self.round);
            // A failed peek is ignored, because the status decides.
            if let Ok(view) = self.call(&["session", "peek", self.alias, "--lines", "50"]) {
                for line in news(&seen, &view) {
                    writeln!(out, "{line}").map_err(|error| format!("Could not print: {error}."))?;
                }
                seen = view;
            }
            match watch.look(worker(&self.status()?, self.alias).as_ref()) {
                Verdict::GoOn => {}
                Verdict::NudgeAgain => drop(self.call(&["session", "nudge", self.alias, &prompt])?),
                Verdict::Done => return Ok(()),
                Verdict::Failed(why) => return Err(why.to_owned()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn at(state: &str, last_activity: &str) -> Worker {
        Worker { state: state.to_owned(), last_activity: last_activity.to_owned() }
    }

    #[test]
    fn pool_is_detected_by_its_running_controller() {
        assert!(controller_runs(r#"{"controller":{"state":"running"},"sessions":[]}"#));
        assert!(!controller_runs(r#"{"controller":{"state":"stopped"}}"#));
        assert!(!controller_runs("gc: command not found"));
    }

    #[test]
    fn worker_is_done_when_idle_after_work_and_fails_when_it_ignores_the_nudge() {
        let mut watch = Watch::new(at("idle", "1"));
        assert_eq!(watch.look(Some(&at("idle", "1"))), Verdict::GoOn);
        assert_eq!(watch.look(Some(&at("running", "2"))), Verdict::GoOn);
        assert_eq!(watch.look(Some(&at("idle", "3"))), Verdict::GoOn);
        assert_eq!(watch.look(Some(&at("running", "4"))), Verdict::GoOn);
        assert_eq!(watch.look(Some(&at("idle", "5"))), Verdict::GoOn);
        assert_eq!(watch.look(Some(&at("idle", "5"))), Verdict::Done);

        let mut quick = Watch::new(at("idle", "1"));
        assert_eq!(quick.look(Some(&at("idle", "2"))), Verdict::GoOn);
        assert_eq!(quick.look(Some(&at("idle", "2"))), Verdict::Done);

        let mut deaf = Watch::new(at("idle", "1"));
        let verdicts: Vec<Verdict> = (0..2 * IDLE_ROUNDS).map(|_| deaf.look(Some(&at("idle", "1")))).collect();
        assert_eq!(verdicts.iter().filter(|it| **it == Verdict::NudgeAgain).count(), 1);
        assert!(matches!(verdicts.last(), Some(Verdict::Failed(_))));
        assert!(matches!(Watch::new(at("idle", "1")).look(Some(&at("dead", "1"))), Verdict::Failed(_)));
        assert!(matches!(Watch::new(at("idle", "1")).look(None), Verdict::Failed(_)));
    }

    #[test]
    fn only_new_lines_of_the_output_are_shown() {
        assert_eq!(news("", "a\nb"), ["a", "b"]);
        assert_eq!(news("a\nb", "b\nc"), ["c"]);
        assert_eq!(news("a\nb", "a\nb"), Vec::<&str>::new());
        assert_eq!(news("a", "x\ny"), ["x", "y"]);
    }

    #[test]
    fn nudge_names_the_result_file_and_the_directory() {
        let told = nudge(Path::new("/w"), Some("/data/attempts/A1/result.json"), "Do it.");
        assert!(told.contains("in the directory /w and nowhere else"), "{told}");
        assert!(told.contains("REGATTA_RESULT is the file /data/attempts/A1/result.json."), "{told}");
        assert!(told.ends_with("\n\nDo it."), "{told}");
        assert!(!nudge(Path::new("/w"), None, "Do it.").contains("REGATTA_RESULT"));
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
        let pool = |alias| Pool { gc: gc.clone(), alias, round: Duration::from_millis(1) };
        pool("w1").work("Do it.", &mut out).unwrap();
        assert!(fs::read_to_string(dir.path().join("nudged")).unwrap().contains("Do it."));
        assert!(String::from_utf8(out).unwrap().starts_with("working\n"));
        let error = pool("w2").work("Do it.", &mut Vec::new()).unwrap_err();
        assert!(error.contains("no worker w2"), "{error}");
    }
}
