//! `kill -9` of the daemon and of a runner at random moments. Nothing that was acknowledged is
//! lost, every attempt ends with a cause, and no task has two attempts at the same time.
//!
//! Every run of the tests makes a few kills. `REGATTA_CHAOS_KILLS=200` sets the number,
//! `REGATTA_CHAOS_SEED=…` repeats a run, and `--nocapture` shows the table.
//!
//! Checked with a planted fault: a writer that answers `task.append` 60 ms before it commits. The
//! second kill lost an acknowledged task, and its id was assigned again.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{ApiClient, HttpReply};
use crate::kills::SeededRng;
use crate::runners::add_runner_agent;
use crate::world::{TEST_TIMEOUT, World, is_alive, kill_process, wait_until};

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|s| s.parse().ok())
}

/// Everything that the daemon acknowledged and that must exist in the end.
#[derive(Default)]
struct AcknowledgedState {
    tasks: BTreeMap<String, String>,
    messages: BTreeSet<String>,
    /// Attempts that were granted to the outside agent, by the key of the poll.
    grants: BTreeMap<String, Value>,
    finished: BTreeSet<String>,
}

/// Callers that never give up. They send each request with the same key until it is answered.
struct PersistentCallers<'a> {
    api: &'a ApiClient,
    acknowledged: &'a Mutex<AcknowledgedState>,
    is_over: &'a AtomicBool,
    repeated_requests: &'a AtomicU64,
}

impl PersistentCallers<'_> {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn call_until_answered(&self, verb: &str, input: &Value, key: &str) -> Option<HttpReply> {
        loop {
            match self.api.call(verb, input, Some(key)) {
                Ok(reply) if reply.status != 503 => return Some(reply),
                // The daemon may have executed the request without answering.
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    self.repeated_requests.fetch_add(1, Ordering::Relaxed);
                }
                Ok(_) | Err(_) if self.is_over() => return None,
                Ok(_) | Err(_) => {}
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn call_ok(&self, verb: &str, input: &Value, key: &str) -> Option<Value> {
        let reply = self.call_until_answered(verb, input, key)?;
        assert_eq!(reply.status, 200, "{verb} {input}: {}", reply.json());
        Some(reply.json()["data"].clone())
    }

    fn write_tasks_and_messages(&self) {
        for nth in 0.. {
            if self.is_over() {
                return;
            }
            let subject = format!("Kept {nth}");
            let task =
                json!({ "subject": subject, "files": [format!("kept/{nth}")], "backlog": true });
            let Some(task) = self.call_ok("task.add", &task, &format!("task-{nth}")) else {
                return;
            };
            let twice = self
                .acknowledged
                .lock()
                .unwrap()
                .tasks
                .insert(task["id"].as_str().unwrap().to_owned(), subject);
            assert_eq!(twice, None, "an id was assigned twice");
            let text = format!("message {nth}");
            if self
                .call_ok(
                    "msg.send",
                    &json!({ "channel": "chaos", "text": text }),
                    &format!("text-{nth}"),
                )
                .is_none()
            {
                return;
            }
            self.acknowledged.lock().unwrap().messages.insert(text);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Plays an outside agent that polls for tasks, reports progress and finishes.
    fn run_outside_agent(&self) {
        for nth in 0.. {
            if self.is_over() {
                return;
            }
            let task = json!({ "subject": format!("Look {nth}"), "issue_type": "chore", "expects": "report",
                "assign": "out", "how": "queue" });
            if self
                .call_ok("task.add", &task, &format!("look-{nth}"))
                .is_none()
            {
                return;
            }
            let (poll, mut tries) = (json!({ "agent": "out" }), 0);
            let granted = loop {
                let key = format!("poll-{nth}-{tries}");
                let Some(granted) = self.call_ok("task.poll", &poll, &key) else {
                    return;
                };
                if granted.is_object() {
                    self.acknowledged
                        .lock()
                        .unwrap()
                        .grants
                        .insert(key, granted.clone());
                    break granted;
                }
                if self.is_over() {
                    return;
                }
                tries += 1;
                std::thread::sleep(Duration::from_millis(5));
            };
            let grant_fields = json!({ "task": granted["task"]["id"], "attempt": granted["attempt"], "token": granted["token"] });
            let mut progress = grant_fields.clone();
            progress["text"] = json!("half way");
            let mut finish = grant_fields;
            finish["output"] = json!(format!("looked {nth}"));
            for (verb, input) in [("task.progress", progress), ("task.finish", finish)] {
                if self
                    .call_ok(verb, &input, &format!("{verb}-{nth}"))
                    .is_none()
                {
                    return;
                }
            }
            self.acknowledged
                .lock()
                .unwrap()
                .finished
                .insert(granted["task"]["id"].as_str().unwrap().to_owned());
        }
    }
}

struct StopCallersOnDrop<'a>(&'a AtomicBool);

impl Drop for StopCallersOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Returns a plan for the runner. Each program writes to a file outside its workspace when it
/// begins and when it ends.
fn runner_plan(count: usize, says: &Path) -> String {
    let task = |nth: usize| {
        format!(
            "[[task]]\nid = \"t{nth}\"\nsubject = \"Write {nth}\"\nfiles = [\"out/{nth}.txt\"]\n\
             script = [{{ run = \"echo begin $REGATTA_TASK $REGATTA_ATTEMPT >> {says}\" }}, {{ \
             sleep = \"{}ms\" }}, \
             {{ write = {{ path = \"out/{nth}.txt\", text = \"{nth}\\n\" }} }}, \
             {{ run = \"echo end $REGATTA_TASK $REGATTA_ATTEMPT >> {says}\" }}]\n",
            50 + 150 * (nth % 4),
            says = says.display(),
        )
    };
    (0..count).map(task).collect()
}

struct RunnerMachine {
    child: Option<Child>,
}

impl RunnerMachine {
    fn start(&mut self, world: &World, url: &str) {
        let token = world.root.join("box.token");
        let data = world.root.join("runner-box");
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(world.root.join("box.log"))
            .unwrap();
        let args = [
            "runner",
            "--server",
            url,
            "--token-file",
            token.to_str().unwrap(),
            "--name",
            "box",
        ];
        let more = ["--labels", "far", "--max-tasks", "3"];
        let mut command = world.command(&[&args[..], &more].concat());
        command
            .env("REGATTA_DATA_DIR", data)
            .env("REGATTA_LOG", "warn")
            .stdout(Stdio::null())
            .stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            kill_process(child.id());
            child.wait().unwrap();
        }
    }
}

impl Drop for RunnerMachine {
    fn drop(&mut self) {
        self.kill();
    }
}

fn daemon_url(world: &World) -> String {
    world.daemon_info().unwrap()["url"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The kills of each kind, for the table.
#[derive(Default)]
struct KillTally {
    daemon: u64,
    starting: u64,
    runner: u64,
    both: u64,
}

pub(crate) fn kill_daemon(world: &World) {
    let pid = u32::try_from(world.daemon_info().unwrap()["pid"].as_u64().unwrap()).unwrap();
    if world.processes().contains(&pid) {
        kill_process(pid);
        assert!(
            wait_until(TEST_TIMEOUT, || !is_alive(pid)),
            "P7: {pid} does not end"
        );
    }
}

/// D1, J1, J2, J6, J8, J9, P1: the daemon and its runner are killed at random while callers write,
/// an outside agent polls and finishes, and the runner works on a mission.
#[test]
fn d1_j2_j6_kills_of_the_daemon_and_its_runner_lose_nothing() {
    let kills = number_from_environment("REGATTA_CHAOS_KILLS").unwrap_or(6);
    let seed = number_from_environment("REGATTA_CHAOS_SEED").unwrap_or(20_261_115);
    println!("REGATTA_CHAOS_SEED={seed}");
    let mut dice = SeededRng(seed);
    let world = World::with_project();
    let says = world.root.join("says");
    let count = 6 + usize::try_from(kills / 4).unwrap();
    add_runner_agent(&world);
    world.run_ok(&[
        "agent",
        "add",
        "out",
        "--runtime",
        "outside",
        "--max-tasks",
        "5",
    ]);
    std::fs::write(
        world.root.join("box.token"),
        world.run_ok(&["token", "add", "box", "--scope", "runner"]),
    )
    .unwrap();
    let mut runner = RunnerMachine { child: None };
    runner.start(&world, &daemon_url(&world));
    let path = world.write_plan(&runner_plan(count, &says));
    world.run_ok(&["run", &path, "--agents", "far", "--yes"]);

    let api = ApiClient::for_data_dir(&world.data_dir);
    let (noted, over, again) = (Mutex::default(), AtomicBool::new(false), AtomicU64::new(0));
    let callers = PersistentCallers {
        api: &api,
        acknowledged: &noted,
        is_over: &over,
        repeated_requests: &again,
    };
    let (began, mut tally) = (Instant::now(), KillTally::default());
    std::thread::scope(|threads| {
        let (callers, end) = (&callers, StopCallersOnDrop(&over));
        let working = [
            threads.spawn(|| callers.write_tasks_and_messages()),
            threads.spawn(|| callers.run_outside_agent()),
        ];
        for nth in 0..kills {
            assert!(
                !working
                    .iter()
                    .any(std::thread::ScopedJoinHandle::is_finished),
                "a caller gave up before kill {nth}"
            );
            // Most kills follow soon. Some leave enough time for work to complete.
            let life = if dice.below(6) == 0 {
                400 + dice.below(1_200)
            } else {
                dice.below(300)
            };
            std::thread::sleep(Duration::from_millis(life));
            match dice.below(10) {
                0..4 => {
                    kill_daemon(&world);
                    tally.daemon += 1;
                }
                4 => {
                    // Kills the daemon also while it starts.
                    kill_daemon(&world);
                    let mut child = world
                        .command(&["serve"])
                        .stdout(Stdio::null())
                        .stderr(Stdio::null())
                        .spawn()
                        .unwrap();
                    std::thread::sleep(Duration::from_micros(dice.below(60_000)));
                    child.kill().unwrap();
                    child.wait().unwrap();
                    tally.starting += 1;
                }
                5..9 => {
                    runner.kill();
                    tally.runner += 1;
                }
                _ => {
                    kill_daemon(&world);
                    runner.kill();
                    tally.both += 1;
                }
            }
            world.run_json(&["up"]);
            if runner.child.is_none() {
                runner.start(&world, &daemon_url(&world));
            }
        }
        drop(end);
        working
            .into_iter()
            .for_each(|scoped_join_handle| scoped_join_handle.join().unwrap());
    });
    let took = began.elapsed();
    let ended = wait_until(4 * TEST_TIMEOUT, || {
        world.run_json(&["show", "M1"])["running"] == false
    });
    let log = || std::fs::read_to_string(world.root.join("box.log")).unwrap_or_default();
    assert!(ended, "{}\n{}", world.run_ok(&["status"]), log());
    let noted = noted.into_inner().unwrap();
    let judged = check_outcome(&world, &api, &noted, count, &says);
    let _shown = writeln!(
        std::io::stdout(),
        "seed {seed}: {kills} kills in {:.0} s\n\
         | what | count |\n|---|---|\n\
         | kill -9 of the running daemon | {} |\n| kill -9 of the starting daemon | {} |\n\
         | kill -9 of the runner | {} |\n| kill -9 of both | {} |\n\
         | requests repeated after a lost answer | {} |\n\
         | acknowledged tasks and messages, each stored once | {} |\n\
         | grants acknowledged to the outside agent | {} |\n| attempts, each with a cause of its \
         end | {} |\n\
         | tasks landed from the runner | {count} |\n| attempts whose program began twice | 0 |\n\
         | tasks with two attempts at one revision | 0 |\n| causes | {} |",
        took.as_secs_f64(),
        tally.daemon,
        tally.starting,
        tally.runner,
        tally.both,
        again.into_inner(),
        noted.tasks.len() + noted.messages.len(),
        noted.grants.len(),
        judged.attempts,
        judged
            .causes
            .iter()
            .map(|(cause, many)| format!("{cause} {many}"))
            .collect::<Vec<_>>()
            .join(", "),
    );
}

struct ChaosSummary {
    attempts: usize,
    causes: BTreeMap<String, usize>,
}

fn check_outcome(
    world: &World,
    api: &ApiClient,
    noted: &AcknowledgedState,
    count: usize,
    says: &Path,
) -> ChaosSummary {
    // Everything that was acknowledged exists, once.
    let tasks = api.call_ok("task.list", json!({ "all": true }));
    let tasks: Vec<&Value> = tasks.as_array().unwrap().iter().collect();
    for (id, subject) in &noted.tasks {
        let found: Vec<&&Value> = tasks
            .iter()
            .filter(|task| task["subject"] == *subject)
            .collect();
        assert!(
            found.len() == 1 && found[0]["id"] == *id,
            "D1, J9: {id} {subject}: {found:?}"
        );
    }
    let sent = api.call_ok(
        "msg.history",
        json!({ "channel": "chaos", "limit": 10_000 }),
    );
    let texts: Vec<&str> = sent
        .as_array()
        .unwrap()
        .iter()
        .map(|sent| sent["text"].as_str().unwrap())
        .collect();
    for text in &noted.messages {
        assert_eq!(
            texts.iter().filter(|other| *other == text).count(),
            1,
            "D1, J9: {text}"
        );
    }
    let done = |id: &str| {
        tasks
            .iter()
            .any(|task| task["id"] == id && task["status"] == "completed")
    };
    let all = || {
        let now = api.call_ok("task.list", json!({ "all": true }));
        noted.finished.iter().all(|id| {
            now.as_array()
                .unwrap()
                .iter()
                .any(|now| now["id"] == id.as_str() && now["status"] == "completed")
        })
    };
    assert!(
        noted.finished.iter().all(|finished| done(finished)) || wait_until(TEST_TIMEOUT, all),
        "J1: a finished task is not completed"
    );
    assert_eq!(api.call_ok("check", json!({})), "ok", "D3");

    // The log: no task has two attempts at one revision, and every ended attempt has a cause.
    let events = world.events();
    assert!(
        events
            .iter()
            .zip(1..)
            .all(|(event, nth)| event["revision"] == nth),
        "the log has a gap"
    );
    let (mut live, mut begun, mut causes) = (
        BTreeMap::new(),
        BTreeMap::new(),
        BTreeMap::<String, usize>::new(),
    );
    for event in &events {
        match event["kind"].as_str().unwrap() {
            "attempt.started" => {
                let attempt = &event["data"]["attempt"];
                let (id, task) = (
                    attempt["id"].as_str().unwrap(),
                    attempt["task"].as_str().unwrap(),
                );
                let twice = live.values().any(|live| *live == task);
                assert!(
                    !twice,
                    "J2: {task} was started as {id} while it had an attempt: {event}"
                );
                live.insert(id, task);
                begun.insert(id.to_owned(), task.to_owned());
            }
            "attempt.ended" => {
                let id = event["data"]["attempt"].as_str().unwrap();
                assert!(
                    live.remove(id).is_some(),
                    "{id} ended twice, or never started"
                );
                let cause = event["data"]["cause"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                assert!(!cause.is_empty(), "J6: {event}");
                *causes.entry(cause).or_default() += 1;
            }
            _ => {}
        }
    }
    // The attempt that the outside agent was about to finish may still be live. No attempt of the
    // runner may be.
    let leftovers: Vec<_> = live
        .iter()
        .filter(|live| noted.finished.contains(*live.1))
        .collect();
    assert!(
        leftovers.is_empty(),
        "J6: attempts without an end: {leftovers:?}"
    );
    for (key, grant) in &noted.grants {
        let (attempt, task) = (
            grant["attempt"].as_str().unwrap(),
            grant["task"]["id"].as_str().unwrap(),
        );
        assert_eq!(
            begun.get(attempt).map(String::as_str),
            Some(task),
            "D1: the grant of {key} is not in the log"
        );
    }
    let distinct: BTreeSet<&str> = noted
        .grants
        .values()
        .map(|grant| grant["attempt"].as_str().unwrap())
        .collect();
    assert_eq!(
        distinct.len(),
        noted.grants.len(),
        "an attempt was granted twice"
    );

    // The programs' own notes: none began twice, and no two programs of a task ran at the same
    // time.
    let said = std::fs::read_to_string(says).unwrap();
    let mut at_work: BTreeMap<&str, &str> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, task, attempt] = words[..] else {
            panic!("{line:?}")
        };
        if what == "begin" {
            assert!(
                seen.insert(attempt),
                "J8: the program of {attempt} began twice:\n{said}"
            );
            assert!(
                at_work.insert(task, attempt).is_none(),
                "J2: two programs of {task} ran at once:\n{said}"
            );
        } else {
            assert_eq!(at_work.remove(task), Some(attempt), "{line}:\n{said}");
        }
    }
    let mission = world.run_json(&["show", "M1"]);
    for task in mission["tasks"].as_array().unwrap() {
        assert_eq!(
            task["word"],
            "landed",
            "J1: {task}\n{}",
            world.run(&["why", task["id"].as_str().unwrap()]).stdout
        );
    }
    let landed = world.git(&["log", "--format=%s", "main"]);
    for nth in 0..count {
        assert_eq!(
            landed
                .lines()
                .filter(|landed| *landed == format!("Write {nth}"))
                .count(),
            1,
            "Q7: {nth}\n{landed}"
        );
    }
    world.assert_green_everywhere();
    ChaosSummary {
        attempts: causes.values().sum(),
        causes,
    }
}
