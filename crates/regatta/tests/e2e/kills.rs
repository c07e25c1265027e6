//! `kill -9` at any moment loses nothing, leaves no orphan and runs nothing twice. The daemon is
//! killed two hundred times under load.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{ApiClient, HttpReply};
use crate::world::{TEST_TIMEOUT, World, is_alive, kill_process, wait_until};

/// A small random number generator (splitmix64). The same seed gives the same numbers.
pub(crate) struct SeededRng(pub(crate) u64);

impl SeededRng {
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut n = self.0;
        n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        n ^ (n >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }
}

const KILL_CYCLES: u64 = 200;
const MISSION_TASKS: usize = 16;

/// Everything that the daemon acknowledged and that must never be lost.
#[derive(Default)]
struct AcknowledgedWork {
    /// The URI and the token of each claim that was granted and not released.
    claims: BTreeMap<String, (String, u64)>,
    /// Subjects of tasks, by id.
    tasks: BTreeMap<String, String>,
    /// Texts of messages, by id.
    messages: BTreeMap<String, String>,
}

struct DaemonLoad<'a> {
    api: &'a ApiClient,
    acknowledged: &'a Mutex<AcknowledgedWork>,
    /// The largest token that the daemon granted.
    highest_token: &'a AtomicU64,
    is_over: &'a AtomicBool,
    /// The number of requests that were repeated because their answer was lost.
    repeated_requests: &'a AtomicU64,
}

impl DaemonLoad<'_> {
    /// Sends one request with the same key until it is answered, as a careful caller does.
    fn call_until_answered(&self, verb: &str, input: &Value, key: &str) -> Option<HttpReply> {
        let mut sent = false;
        loop {
            match self.api.call(verb, input, Some(key)) {
                // The daemon is shutting down. The next daemon will answer.
                Ok(reply) if reply.status == 503 => {}
                Ok(reply) => return Some(reply),
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    self.repeated_requests
                        .fetch_add(u64::from(!sent), Ordering::Relaxed);
                    sent = true;
                }
                Err(_) => {}
            }
            if self.is_over.load(Ordering::SeqCst) && !is_daemon_up(self.api) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn call_ok(&self, verb: &str, input: &Value, key: &str) -> Option<Value> {
        let reply = self.call_until_answered(verb, input, key)?;
        assert_eq!(reply.status, 200, "{verb} {input}: {}", reply.json());
        Some(reply.json()["data"].clone())
    }

    /// Acquires claims, keeps most and releases some. Each grant's token is larger than all tokens
    /// that were known before the request (L2), and a repeated key gives the same claim (J9).
    fn run_claims(&self, me: u64, mut dice: SeededRng) {
        for nth in 0.. {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let (uri, floor) = (
                format!("port://{me}/{nth}"),
                self.highest_token.load(Ordering::SeqCst),
            );
            let input = json!({ "uris": [uri], "agent": format!("operator/agent-{me}"), "ttl_ms": 3_600_000 });
            let Some(grant) = self.call_ok("claim.acquire", &input, &format!("claim-{me}-{nth}"))
            else {
                return;
            };
            let (claim, token) = (
                grant["claim"].as_str().unwrap().to_owned(),
                grant["token"].as_u64().unwrap(),
            );
            assert!(token > floor, "L2: {token} was granted after {floor}");
            self.highest_token.fetch_max(token, Ordering::SeqCst);
            if dice.below(10) < 7 {
                self.acknowledged
                    .lock()
                    .unwrap()
                    .claims
                    .insert(claim.clone(), (uri, token));
            }
            if dice.below(10) < 3 {
                self.acknowledged.lock().unwrap().claims.remove(&claim);
                let input = json!({ "claim": claim, "token": token });
                if self
                    .call_ok("claim.release", &input, &format!("release-{me}-{nth}"))
                    .is_none()
                {
                    return;
                }
            }
        }
    }

    fn run_tasks(&self, me: u64) {
        for nth in 0.. {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let subject = format!("Task {nth} of {me}");
            let input =
                json!({ "subject": subject, "files": [format!("t/{me}/{nth}")], "backlog": true });
            let Some(task) = self.call_ok("task.add", &input, &format!("task-{me}-{nth}")) else {
                return;
            };
            let id = task["id"].as_str().unwrap().to_owned();
            let twice = self.acknowledged.lock().unwrap().tasks.insert(id, subject);
            assert_eq!(twice, None, "an id was assigned twice");
        }
    }

    fn run_messages(&self, me: u64) {
        for nth in 0.. {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let text = format!("message {nth} of {me}");
            let input = json!({ "channel": "e2e", "text": text });
            let Some(message) = self.call_ok("msg.send", &input, &format!("message-{me}-{nth}"))
            else {
                return;
            };
            let id = message["id"].as_str().unwrap().to_owned();
            let twice = self.acknowledged.lock().unwrap().messages.insert(id, text);
            assert_eq!(twice, None, "an id was assigned twice");
        }
    }

    /// Reads the claims repeatedly. Everything that was acknowledged before a read must be in it
    /// (L4, D1), and the store must be sound (D3).
    fn check_claims_repeatedly(&self, looks: &AtomicU64) {
        while !self.is_over.load(Ordering::SeqCst) {
            let known: Vec<String> = self
                .acknowledged
                .lock()
                .unwrap()
                .claims
                .keys()
                .cloned()
                .collect();
            let Ok(reply) = self.api.call("claim.list", &json!({}), None) else {
                continue;
            };
            if reply.status != 200 {
                continue;
            }
            let data = reply.json()["data"].clone();
            let held: BTreeSet<&str> = data["held"]
                .as_array()
                .unwrap()
                .iter()
                .map(|data| data["claim"].as_str().unwrap())
                .collect();
            for claim in &known {
                // The claim may have been released since.
                let lost = !held.contains(claim.as_str())
                    && self.acknowledged.lock().unwrap().claims.contains_key(claim);
                assert!(!lost, "L4: {claim} was acknowledged and is gone");
            }
            if let Ok(reply) = self.api.call("check", &json!({}), None) {
                assert!([200, 503].contains(&reply.status), "D3: {}", reply.json());
                looks.fetch_add(u64::from(reply.status == 200), Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn is_daemon_up(api: &ApiClient) -> bool {
    api.call("claim.list", &json!({}), None).is_ok()
}

/// Returns the plan of a mission for scripted agents. Each program writes a line outside its
/// workspace when it starts.
fn mission_plan(starts: &str) -> String {
    let task = |nth: usize| {
        format!(
            "[[task]]\nid = \"t{nth}\"\nsubject = \"Write {nth}\"\nfiles = [\"out/{nth}.txt\"]\n{}\
             script = [{{ run = \"echo $REGATTA_ATTEMPT >> {starts}\" }}, {{ sleep = \"{}ms\" }}, \
             {{ write = {{ path = \"out/{nth}.txt\", text = \"{nth}\\n\" }} }}]\n",
            if nth >= 4 {
                format!("blocked_by = [\"t{}\"]\n", nth - 4)
            } else {
                String::new()
            },
            20 * (nth % 5),
        )
    };
    (0..MISSION_TASKS).map(task).collect()
}

/// L2, L4, D1, D2, D3, J1, J8, P1: the daemon is killed two hundred times while claims, tasks,
/// messages and a mission go on. Everything that was acknowledged is kept, tokens only rise, no
/// repeated key acts twice, the store is sound, no agent dies with the daemon, and each task lands
/// exactly once on a green trunk.
#[test]
fn two_hundred_kills_lose_nothing() {
    let seed = std::env::var("REGATTA_KILL_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let seed = seed
        .unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 % 1_000_000);
    // The seed is shown only when the test fails. REGATTA_KILL_SEED=… repeats the run.
    println!("REGATTA_KILL_SEED={seed}");
    let mut dice = SeededRng(seed);
    let world = World::with_project();
    let starts = world.root.join("starts");
    let plan = world.write_plan(&mission_plan(starts.to_str().unwrap()));
    world.run_ok(&[
        "agent",
        "add",
        "robot",
        "--runtime",
        "scripted",
        "--max-tasks",
        "3",
    ]);
    world.run_ok(&["run", &plan, "--agents", "robot", "--yes"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let (ledger, highest) = (Mutex::new(AcknowledgedWork::default()), AtomicU64::new(0));
    let (over, repeated, looks) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let load = DaemonLoad {
        api: &api,
        acknowledged: &ledger,
        highest_token: &highest,
        is_over: &over,
        repeated_requests: &repeated,
    };
    let began = Instant::now();
    let mut killed_early = 0;
    std::thread::scope(|threads| {
        let load = &load;
        let looks = &looks;
        let mut workers = vec![threads.spawn(move || load.check_claims_repeatedly(looks))];
        for me in 0..2 {
            let dice = SeededRng(dice.next_u64());
            workers.push(threads.spawn(move || load.run_claims(me, dice)));
        }
        workers.push(threads.spawn(move || load.run_tasks(2)));
        workers.push(threads.spawn(move || load.run_messages(3)));
        let end = StopLoadOnDrop(&over); // a failing cycle must not leave the workers waiting
        for cycle in 0..KILL_CYCLES {
            assert!(
                !workers
                    .iter()
                    .any(|scoped_join_handle| scoped_join_handle.is_finished()),
                "a worker gave up in cycle {cycle}"
            );
            if dice.below(5) == 0 {
                killed_early += kill_during_start(&world, &mut dice);
            } else {
                // Most daemons live for a short time, and a few long enough for a landing to
                // complete.
                let life = if dice.below(8) == 0 {
                    200 + dice.below(300)
                } else {
                    dice.below(60)
                };
                let pid = world.run_json(&["up"])["pid"].as_u64().unwrap() as u32;
                assert!(world.processes().contains(&pid), "{pid} is not our daemon");
                std::thread::sleep(Duration::from_millis(life));
                if life >= 200 {
                    assert_eq!(api.call_ok("check", json!({})), "ok", "D3");
                    looks.fetch_add(1, Ordering::Relaxed);
                }
                kill_process(pid);
                assert!(
                    wait_until(TEST_TIMEOUT, || !is_alive(pid)),
                    "P7: {pid} does not end"
                );
            }
        }
        // One more start, so that every caller gets its outstanding answer.
        world.run_json(&["up"]);
        drop(end);
        workers
            .into_iter()
            .for_each(|scoped_join_handle| scoped_join_handle.join().unwrap());
    });
    let took = began.elapsed();
    assert_acknowledged_work_exists(
        &world,
        &api,
        &ledger.into_inner().unwrap(),
        highest.into_inner(),
    );
    assert_mission_completes(&world, &starts);
    let _shown = writeln!(
        std::io::stdout(),
        "{KILL_CYCLES} kills in {took:?}, {killed_early} of them before the daemon was ready; {} \
         requests were repeated after a \
         lost answer; {} checks found a sound store",
        repeated.into_inner(),
        looks.load(Ordering::Relaxed)
    );
    assert!(looks.into_inner() >= 5, "the store was checked too rarely");
}

/// A child that a killed daemon was about to start keeps the socket open for a moment, and the
/// daemon's card still exists. `up` must not take the dead daemon for a live one.
#[test]
fn up_does_not_take_a_socket_without_answers_for_a_daemon() {
    let world = World::new();
    world.run_ok(&["up"]);
    let dead = world.daemon_info().unwrap();
    let pid = u32::try_from(dead["pid"].as_u64().unwrap()).unwrap();
    kill_process(pid);
    assert!(
        wait_until(TEST_TIMEOUT, || !is_alive(pid)),
        "P7: {pid} does not end"
    );
    let socket = world.data_dir.join("daemon.sock");
    std::fs::remove_file(&socket).unwrap();
    let stale_socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    // This socket accepts connections and answers none. The thread ends with the test's process.
    std::thread::spawn(move || stale_socket.incoming().for_each(drop));
    assert_eq!(
        world.daemon_info(),
        Some(dead),
        "the dead daemon's card is there"
    );
    let up = world.run_json(&["up"])["pid"].as_u64().unwrap() as u32;
    assert_ne!(up, pid);
    assert!(world.processes().contains(&up), "{up} is not our daemon");
}

/// After a kill `up` prints what it recovered. After a clean stop with nothing in progress it
/// prints nothing of the kind.
#[test]
fn up_reports_recovered_work_only_after_an_unclean_stop() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world.run_ok(&["task", "add", "Say hello", "--files", "hello.txt"]);
    world.run_ok(&["task", "add", "Say goodbye", "--files", "bye.txt"]);
    world.run_ok(&["task", "poll", "--as", "zoe"]);
    let pid = u32::try_from(world.daemon_info().unwrap()["pid"].as_u64().unwrap()).unwrap();
    kill_process(pid);
    assert!(
        wait_until(TEST_TIMEOUT, || !is_alive(pid)),
        "P7: {pid} does not end"
    );
    let output = world.run_ok(&["up"]);
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0].starts_with("up at "), "{output}");
    let told = [
        "recovered after an unclean stop",
        "  agents  1 was working and continues (zoe)",
    ];
    assert_eq!(lines[1..3], told, "{output}");
    assert_eq!(
        lines[3..],
        [
            "  claims  1 held, each with its full TTL again",
            "  tasks   2 open"
        ],
        "{output}"
    );
    assert_eq!(
        world.run_ok(&["up"]).lines().count(),
        1,
        "the daemon was already up"
    );
    // An effect of the recovery may still be in progress at the first stop. The next daemon then
    // recovers it.
    let says_nothing = || {
        world.run_ok(&["down", "--keep-agents"]);
        world.run_ok(&["up"]).lines().count() == 1
    };
    assert!(
        wait_until(TEST_TIMEOUT, says_nothing),
        "a clean start reports no recovery"
    );
}

struct StopLoadOnDrop<'a>(&'a AtomicBool);

impl Drop for StopLoadOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Starts a daemon and kills it while it starts. Returns 1 if it was not ready yet.
fn kill_during_start(world: &World, dice: &mut SeededRng) -> u64 {
    let mut command = world.command(&["serve", "--json"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_micros(dice.below(40_000)));
    let ready = world
        .daemon_info()
        .is_some_and(|world| world["pid"] == child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    u64::from(!ready)
}

/// Checks that everything acknowledged exists once, with the same token.
fn assert_acknowledged_work_exists(
    world: &World,
    api: &ApiClient,
    ledger: &AcknowledgedWork,
    highest: u64,
) {
    assert!(
        ledger.claims.len() > 20 && ledger.tasks.len() > 20 && ledger.messages.len() > 20,
        "there was no load"
    );
    let claims = api.call_ok("claim.list", json!({}));
    let by_id: BTreeMap<&str, &Value> = claims["held"]
        .as_array()
        .unwrap()
        .iter()
        .map(|claim| (claim["claim"].as_str().unwrap(), claim))
        .collect();
    for (claim, (uri, token)) in &ledger.claims {
        let held = by_id
            .get(claim.as_str())
            .unwrap_or_else(|| panic!("L4: {claim} on {uri} is gone"));
        assert_eq!(held["uris"], json!([uri]));
        let stale = api
            .call(
                "claim.renew",
                &json!({ "claim": claim, "token": token + 1 }),
                None,
            )
            .unwrap();
        assert_eq!(stale.json()["code"], "stale_token", "L6");
        assert_eq!(
            api.call_ok("claim.renew", json!({ "claim": claim, "token": token }))["token"],
            *token,
            "L4"
        );
    }
    let uris: Vec<String> = claims["held"]
        .as_array()
        .unwrap()
        .iter()
        .map(|claim| claim["uris"].to_string())
        .collect();
    assert_eq!(
        uris.len(),
        uris.iter().collect::<BTreeSet<_>>().len(),
        "L1: a URI is held twice"
    );
    let last = api.call_ok(
        "claim.acquire",
        json!({ "uris": ["port://last"], "agent": "operator", "ttl_ms": 1000 }),
    );
    assert!(last["token"].as_u64().unwrap() > highest, "L2");

    let tasks = api.call_ok("task.list", json!({ "all": true }));
    let subjects = |id: &str| -> Vec<&str> {
        let found = tasks
            .as_array()
            .unwrap()
            .iter()
            .filter(|task| task["id"] == id);
        found
            .map(|found| found["subject"].as_str().unwrap())
            .collect()
    };
    for (id, subject) in &ledger.tasks {
        assert_eq!(subjects(id), [subject], "J1: {id}");
    }
    let all: Vec<&str> = tasks
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["subject"].as_str().unwrap())
        .collect();
    assert_eq!(
        all.len(),
        all.iter().collect::<BTreeSet<_>>().len(),
        "J9: a repeated key added a task twice"
    );
    assert_eq!(
        all.len(),
        ledger.tasks.len() + MISSION_TASKS,
        "a task exists that was never acknowledged"
    );

    let messages = api.call_ok("msg.history", json!({ "channel": "e2e", "limit": 10_000 }));
    let texts: Vec<&str> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["text"].as_str().unwrap())
        .collect();
    let sent: BTreeSet<&str> = ledger.messages.values().map(String::as_str).collect();
    assert_eq!(texts.iter().copied().collect::<BTreeSet<_>>(), sent, "D1");
    assert_eq!(texts.len(), sent.len(), "J9");
    assert_eq!(api.call_ok("check", json!({})), "ok", "D3");
    let doctor = world.run(&["doctor"]);
    assert_eq!(doctor.exit_code, 0, "{doctor:?}");
}

/// Checks that the mission ends, with every task landed once, and that no kill of the daemon ended
/// a program.
fn assert_mission_completes(world: &World, starts: &std::path::Path) {
    let ended = wait_until(TEST_TIMEOUT, || {
        world.run_json(&["show", "M1"])["running"] == false
    });
    let mission = world.run_json(&["show", "M1"]);
    assert!(ended, "{}", world.run_ok(&["status"]));
    for task in mission["tasks"].as_array().unwrap() {
        assert_eq!(task["word"], "landed", "J1: {task}");
    }
    let events = world.events();
    assert!(
        events
            .iter()
            .zip(1..)
            .all(|(event, nth)| event["revision"] == nth),
        "the log has a gap"
    );
    let count = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
    assert_eq!(
        count("landing.landed"),
        MISSION_TASKS,
        "Q7: each task landed once"
    );
    assert_eq!(count("task.completed"), MISSION_TASKS);
    assert_eq!(
        count("attempt.started"),
        count("attempt.ended"),
        "J6: every attempt ends"
    );
    assert!(count("fleet.resumed") as u64 > KILL_CYCLES / 2);
    for event in events
        .iter()
        .filter(|event| event["kind"] == "attempt.ended")
    {
        let cause = event["data"]["cause"].as_str();
        assert_eq!(
            cause,
            Some("submitted"),
            "P1: a daemon crash ends no agent: {event}"
        );
    }
    // Each attempt has one start, because a repeated effect joins the running program (J8).
    let started = std::fs::read_to_string(starts).unwrap();
    let mut started: Vec<&str> = started.lines().collect();
    started.sort_unstable();
    let distinct: BTreeSet<&str> = started.iter().copied().collect();
    assert_eq!(
        started.len(),
        distinct.len(),
        "J8: a program was started twice: {started:?}"
    );
    assert_eq!(started.len(), MISSION_TASKS, "P1");
    assert_eq!(world.trunk_commits().len(), 2 + MISSION_TASKS);
    let trailers = world.git(&[
        "log",
        "--format=%(trailers:key=Regatta-Task,valueonly,separator=)",
        "main",
    ]);
    let trailers: Vec<&str> = trailers
        .lines()
        .filter(|trailer| !trailer.is_empty())
        .collect();
    assert_eq!(
        trailers.iter().collect::<BTreeSet<_>>().len(),
        MISSION_TASKS,
        "each task is on the trunk once: {trailers:?}"
    );
    assert_eq!(trailers.len(), MISSION_TASKS);
    assert_eq!(
        world.git(&["status", "--porcelain"]),
        "",
        "the checkout follows the trunk"
    );
    world.assert_green_everywhere();
}
