//! Every view shows the same counts, and the same state of each task and agent (W2). Random boards
//! are made through the API of a daemon: with missions, work in review and in the merge queue, and
//! spending. On each board the API, MCP and the page's data are compared field by field, and on
//! some boards the command line and `regatta watch` in a real terminal too.
//!
//! `REGATTA_COUNTS_SEED=…` repeats a run.

use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::kills::SeededRng;
use crate::pages::{entity, read_live_stream};
use crate::terminal::TmuxTerminal;
use crate::world::{TEST_TIMEOUT, World, wait_until};

const BOARDS: usize = 500;
/// Every so many boards, the printed output of `status` and the screen of `watch` are compared.
/// Each takes a process, so they are not compared on all boards.
const PRINTED_EVERY: usize = 10;
const AGENTS: [&str; 3] = ["ann", "bob", "eve"];
/// A scripted agent, which works without the test and reports what its work cost.
const PAID_AGENT: &str = "robot";
const MAX_MISSIONS: usize = 6;
const MAX_PAID_TASKS: usize = 8;
/// The kinds of steps that [`RandomBoards::step`] takes.
const STEP_KINDS: usize = 18;

/// An attempt that an outside agent works on.
struct LiveAttempt {
    task: String,
    fields: Value,
    workspace: std::path::PathBuf,
    /// The file that the task may change.
    file: String,
}

struct RandomBoards<'a> {
    world: &'a World,
    api: ApiClient,
    dice: SeededRng,
    tasks: Vec<String>,
    attempts: Vec<LiveAttempt>,
    is_queue_held: bool,
    /// How often each kind of step succeeded.
    taken: [usize; STEP_KINDS],
}

impl RandomBoards<'_> {
    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.dice.below(count.max(1) as u64)).unwrap()
    }

    fn random_task(&mut self) -> String {
        let nth = self.pick(self.tasks.len());
        self.tasks.get(nth).cloned().unwrap_or("T1".into())
    }

    /// Calls a verb that the daemon may refuse. Returns its answer if it was accepted.
    fn try_call(&self, verb: &str, input: &Value) -> Option<Value> {
        let reply = self.api.call(verb, input, None).unwrap();
        assert!(reply.status < 500, "{verb} {input}: {:?}", reply.json());
        (reply.status == 200).then(|| reply.json())
    }

    /// Calls a verb in the name of a random live attempt.
    fn try_attempt_call(&mut self, verb: &str, more: &Value) -> bool {
        if self.attempts.is_empty() {
            return false;
        }
        let nth = self.pick(self.attempts.len());
        let mut input = self.attempts[nth].fields.clone();
        let more = more.as_object().unwrap().clone();
        input.as_object_mut().unwrap().extend(more);
        let is_accepted = self.try_call(verb, &input).is_some();
        if is_accepted && matches!(verb, "task.finish" | "task.fail") {
            self.attempts.remove(nth);
        }
        is_accepted
    }

    /// Takes one random step. Steps that the daemon refuses change nothing.
    fn step(&mut self, nth: usize) {
        let kind = self.pick(self.taken.len());
        let is_taken = match kind {
            0..=2 => {
                let blocked_by = if !self.tasks.is_empty() && self.pick(4) == 0 {
                    vec![self.random_task()]
                } else {
                    vec![]
                };
                let add = json!({
                    "subject": format!("Work {nth}"), "files": [format!("f{nth}.txt")],
                    "backlog": self.pick(3) == 0, "blocked_by": blocked_by,
                    "validation": { "tests": ["true"] },
                });
                let added = self.try_call("task.add", &add);
                let id = added
                    .as_ref()
                    .and_then(|added| added["data"]["id"].as_str());
                self.tasks.extend(id.map(str::to_owned));
                id.is_some()
            }
            3 | 4 => {
                let agent = AGENTS[self.pick(AGENTS.len())];
                let granted = self.try_call("task.poll", &json!({ "agent": agent }));
                let granted = granted.map(|granted| granted["data"].clone());
                match granted.filter(|granted| granted["attempt"].is_string()) {
                    Some(granted) => {
                        let task = granted["task"]["id"].as_str().unwrap().to_owned();
                        let fields = json!({
                            "task": task, "attempt": granted["attempt"], "token": granted["token"],
                        });
                        let workspace = granted["workspace"].as_str().unwrap_or_default();
                        let file = granted["task"]["files"][0].as_str().unwrap();
                        self.attempts.push(LiveAttempt {
                            task,
                            fields,
                            workspace: workspace.into(),
                            file: file.to_owned(),
                        });
                        true
                    }
                    None => false,
                }
            }
            5 => self.try_attempt_call("attempt.ask", &json!({ "question": "Which?" })),
            6 => self.try_attempt_call("task.progress", &json!({ "text": format!("step {nth}") })),
            7 => self.try_attempt_call("task.fail", &json!({ "reason": "it does not work" })),
            8 => self.try_attempt_call(
                "task.finish",
                &json!({ "not_needed": true, "output": "somebody else did it" }),
            ),
            9 => {
                let task = self.random_task();
                let edit = json!({ "backlog": self.pick(2) == 0 });
                let input = json!({ "task": task, "edit": edit });
                self.try_call("task.set", &input).is_some()
            }
            10 => {
                let task = self.random_task();
                self.attempts.retain(|attempt| attempt.task != task);
                let input = json!({ "task": task, "reason": "not wanted" });
                self.try_call("task.cancel", &input).is_some()
            }
            11 => self.answer_or_snooze(),
            12 => self.taken[12] < MAX_MISSIONS && self.start_mission(nth),
            13 | 14 => self.finish_with_work(),
            15 => {
                let verb = if self.is_queue_held {
                    "queue.release"
                } else {
                    "queue.hold"
                };
                self.is_queue_held = !self.is_queue_held;
                let input = json!({ "reason": "a pause" });
                let input = if self.is_queue_held { input } else { json!({}) };
                self.try_call(verb, &input).is_some()
            }
            16 => self.land_reviewed_task(),
            _ => self.taken[17] < MAX_PAID_TASKS && self.add_paid_task(nth),
        };
        self.taken[kind] += usize::from(is_taken);
    }

    /// Starts a mission with two tasks, of which the second waits for the first.
    fn start_mission(&mut self, nth: usize) -> bool {
        let task = |name: &str, after: Value| {
            let task = json!({
                "subject": format!("{name} {nth}"), "files": [format!("m{nth}-{name}.txt")],
                "validation": { "tests": ["true"] }, "priority": 0,
            });
            json!({ "task": task, "after": after })
        };
        let input = json!({
            "title": format!("Mission {nth}"), "agents": ["ann", "bob"],
            "tasks": [task("one", json!([])), task("two", json!([0]))],
        });
        let Some(started) = self.try_call("mission.start", &input) else {
            return false;
        };
        let tasks = started["data"]["tasks"].as_array().unwrap();
        let ids = tasks.iter().map(|task| task["id"].as_str().unwrap());
        self.tasks.extend(ids.map(str::to_owned));
        true
    }

    /// Adds a task for the scripted agent, whose work has a price.
    fn add_paid_task(&mut self, nth: usize) -> bool {
        let file = format!("paid{nth}.txt");
        let add = json!({
            "subject": format!("Paid work {nth}"), "files": [file], "assign": PAID_AGENT,
            "validation": { "tests": ["true"] },
            "script": [
                { "usage": { "input": 1_000, "output": 200, "cost": 0.05 } },
                { "write": { "path": file, "text": "paid\n" } },
            ],
        });
        let added = self.try_call("task.add", &add);
        let id = added
            .as_ref()
            .and_then(|added| added["data"]["id"].as_str());
        self.tasks.extend(id.map(str::to_owned));
        id.is_some()
    }

    /// Writes the file of a random live attempt and finishes the attempt.
    fn finish_with_work(&mut self) -> bool {
        if self.attempts.is_empty() {
            return false;
        }
        let nth = self.pick(self.attempts.len());
        let attempt = &self.attempts[nth];
        if !attempt.workspace.is_dir() {
            return false;
        }
        std::fs::write(attempt.workspace.join(&attempt.file), "done\n").unwrap();
        let is_accepted = self.try_call("task.finish", &attempt.fields).is_some();
        self.attempts.remove(nth);
        is_accepted
    }

    /// Lands the work of a random task that waits for a review.
    fn land_reviewed_task(&mut self) -> bool {
        let status = self.api.call_ok("status", json!({}));
        let tasks = status["tasks"].as_array().unwrap();
        let reviewed: Vec<&Value> = tasks.iter().filter(|task| task["at"] == "review").collect();
        if reviewed.is_empty() {
            return false;
        }
        let task = &reviewed[self.pick(reviewed.len())]["id"];
        self.try_call("land", &json!({ "id": task })).is_some()
    }

    /// Answers or snoozes a random item of the inbox.
    fn answer_or_snooze(&mut self) -> bool {
        let items = self.api.call_ok("inbox.list", json!({}));
        let ids: Vec<String> = items
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect();
        if ids.is_empty() {
            return false;
        }
        let id = &ids[self.pick(ids.len())];
        let answer = json!({ "id": id, "answer": { "say": "text", "text": "the first" } });
        if self.pick(2) == 0 {
            self.try_call("inbox.snooze", &json!({ "id": id, "ms": 3_600_000 }))
        } else {
            self.try_call("inbox.answer", &answer)
        }
        .is_some()
    }

    /// Returns the status that the tools of MCP return.
    fn mcp_status(&self) -> Value {
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "status", "arguments": {} },
        });
        let headers = [
            ("host", self.api.address()),
            ("authorization", format!("Bearer {}", self.api.token)),
            ("content-type", "application/json".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
        ];
        let reply =
            self.api
                .request_over_tcp("POST", "/mcp", &headers, body.to_string().as_bytes());
        assert_eq!(reply.status, 200, "{reply:?}");
        let content = reply.json()["result"]["structuredContent"].clone();
        content.get("data").unwrap_or(&content).clone()
    }

    /// Compares all views on the present board. Effects may change the board meanwhile, so the
    /// views are read again until all show one revision.
    fn compare(&self, is_printed: bool) -> Value {
        for _ in 0..1_000 {
            let status = self.api.call_ok("status", json!({}));
            let (_, frames) = read_live_stream(&self.api, "head,tasks,lanes");
            let head = entity(&frames, "head");
            let mcp = self.mcp_status();
            let printed = is_printed.then(|| self.world.run_json(&["status"]));
            let printed = printed.as_ref().unwrap_or(&status);
            // The last status shows that nothing changed while the views were read.
            let last = self.api.call_ok("status", json!({}));
            let summary = &status["summary"];
            let revisions = [
                &summary["revision"],
                &head["summary"]["revision"],
                &mcp["summary"]["revision"],
                &printed["summary"]["revision"],
                &last["summary"]["revision"],
            ];
            if revisions.iter().any(|revision| *revision != revisions[0]) {
                continue;
            }
            assert_eq!(*summary, head["summary"], "W2: the page's head");
            assert_eq!(*summary, mcp["summary"], "W2: MCP");
            assert_eq!(*summary, printed["summary"], "W2: the command line");
            check_sentence(summary, &head);
            check_items(summary, &status, &frames);
            for (name, view) in [("MCP", &mcp), ("the command line", printed)] {
                for kind in ["tasks", "agents"] {
                    let (shown, expected) = (states_of(view, kind), states_of(&status, kind));
                    assert_eq!(shown, expected, "W2: the states of {kind} in {name}");
                }
            }
            check_agents(&status, &frames);
            if is_printed {
                let printed = self.world.run_ok(&["status"]);
                let after = self.api.call_ok("status", json!({}));
                if after["summary"] != *summary {
                    continue;
                }
                check_printed(summary, &printed);
            }
            return summary.clone();
        }
        panic!("the board never rested");
    }
}

/// Returns the id or name of each task or agent in a status, with its state in all its forms.
fn states_of(status: &Value, kind: &str) -> Vec<[Value; 4]> {
    let row = |item: &Value| {
        let id = item.get("id").unwrap_or(&item["name"]);
        [id, &item["at"], &item["word"], &item["availability"]].map(Clone::clone)
    };
    let mut states: Vec<_> = status[kind].as_array().unwrap().iter().map(row).collect();
    states.sort_by_key(|state| state[0].to_string());
    states
}

/// The page's lanes show the states of the agents that the status lists.
fn check_agents(status: &Value, frames: &[Value]) {
    for agent in status["agents"].as_array().unwrap() {
        let lane = entity(frames, &format!("lane/{}", agent["name"].as_str().unwrap()));
        assert_eq!(
            (&lane["at"], &lane["word"]),
            (&agent["at"], &agent["word"]),
            "W2: the lane of {}",
            agent["name"]
        );
    }
}

fn number(summary: &Value, name: &str) -> u64 {
    summary[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {summary}"))
}

/// The sentence of the page and of `watch` has the numbers of the summary.
fn check_sentence(summary: &Value, head: &Value) {
    let sentence = sentence_parts(head).join(" · ");
    for (name, words) in [("working", "working"), ("waiting", "waiting")] {
        let part = format!("{} {words}", number(summary, name));
        assert!(sentence.contains(&part), "W2: {part} in {sentence}");
    }
    let needs = format!("{} need", number(summary, "needs_you"));
    assert!(sentence.contains(&needs), "W2: {needs} in {sentence}");
    assert_eq!(head["needs_you"], summary["needs_you"]);
    assert_eq!(head["running"], summary["running"]);
}

fn sentence_parts(head: &Value) -> Vec<String> {
    let parts = head["sentence"].as_array().unwrap();
    let text = |part: &Value| part["text"].as_str().unwrap().to_owned();
    parts.iter().map(text).collect()
}

/// The rows that the command line and the page list have the states that the summary counts.
fn check_items(summary: &Value, status: &Value, frames: &[Value]) {
    let listed = |state: &str| -> u64 {
        let tasks = status["tasks"].as_array().unwrap();
        tasks.iter().filter(|task| task["at"] == state).count() as u64
    };
    for (name, state) in [
        ("working", "working"),
        ("waiting", "waiting"),
        ("backlog", "backlog"),
        ("blocked_on_person", "needs"),
        ("review", "review"),
        ("landing", "landing"),
    ] {
        assert_eq!(number(summary, name), listed(state), "W2: {state}");
    }
    for task in status["tasks"].as_array().unwrap() {
        let row = entity(frames, &format!("task/{}", task["id"].as_str().unwrap()));
        assert_eq!(
            (&row["at"], &row["word"]),
            (&task["at"], &task["word"]),
            "W2: the page's row of {}",
            task["id"]
        );
    }
}

/// The first line that `regatta status` prints has the numbers of the summary.
fn check_printed(summary: &Value, printed: &str) {
    let first = printed.lines().next().unwrap_or_default();
    let needs_you = if number(summary, "needs_you") == 1 {
        "needs you"
    } else {
        "need you"
    };
    for (name, words) in [
        ("working", "working"),
        ("waiting", "waiting"),
        ("needs_you", needs_you),
    ] {
        let part = format!("{} {words}", number(summary, name));
        assert!(first.contains(&part), "W2: {part} in {first}");
    }
    let queue = format!("queue {}", number(summary, "landing"));
    assert!(first.contains(&queue), "W2: {queue} in {first}");
}

#[test]
fn w2_every_view_shows_the_same_counts_on_random_boards() {
    let world = World::with_project();
    let settings = world.read_file("regatta.toml");
    world.write_file(
        "regatta.toml",
        &format!("{settings}\n[landing]\nreview = \"human\"\n"),
    );
    world.commit_all("Review all work");
    world.run_ok(&["up"]);
    world.run_ok(&["init", "--yes"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    for name in AGENTS {
        api.call_ok(
            "agent.add",
            json!({ "name": name, "runtime": "outside", "max_tasks": 3 }),
        );
    }
    api.call_ok(
        "agent.add",
        json!({ "name": PAID_AGENT, "runtime": "scripted" }),
    );
    world.run_ok(&["budget", "set", "day", "--usd", "40"]);
    let seed = std::env::var("REGATTA_COUNTS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(26);
    let mut boards = RandomBoards {
        world: &world,
        api,
        dice: SeededRng(seed),
        tasks: vec![],
        attempts: vec![],
        is_queue_held: false,
        taken: [0; STEP_KINDS],
    };
    let terminal = TmuxTerminal::open(&world, 160, 40);
    if let Some(terminal) = &terminal {
        terminal.start_watch();
    }
    let mut seen_states = std::collections::BTreeSet::new();
    for nth in 0..BOARDS {
        boards.step(nth);
        let is_printed = nth % PRINTED_EVERY == 0;
        let summary = boards.compare(is_printed);
        for name in [
            "working",
            "waiting",
            "backlog",
            "blocked_on_person",
            "needs_you",
            "review",
            "landing",
            "completed",
            "failed",
        ] {
            if number(&summary, name) > 0 {
                seen_states.insert(name);
            }
        }
        let missions = summary["missions"].as_array().unwrap();
        if missions.iter().any(|mission| mission["landed"] != 0) {
            seen_states.insert("missions");
        }
        if summary["spent_today_micro_usd"].is_u64() {
            seen_states.insert("spent_today_micro_usd");
        }
        if let Some(terminal) = terminal.as_ref().filter(|_| is_printed) {
            let text = format!(
                "{} working · {} waiting · {} need",
                number(&summary, "working"),
                number(&summary, "waiting"),
                number(&summary, "needs_you")
            );
            terminal.wait_for_text(&text);
        }
    }
    assert!(
        boards.taken.iter().all(|taken| *taken > 0),
        "each kind of step must succeed at least once: {:?} with seed {seed}",
        boards.taken
    );
    assert_eq!(seen_states.len(), 11, "{seen_states:?} with seed {seed}");
    if let Some(terminal) = &terminal {
        terminal.press_key("q");
    }
}

const TEAM_FILE: &str = r#"
name = "harbour"

[lead]
name = "amy"
provider = "codex"
backend = "scripted"

[[member]]
name = "tom"
provider = "opencode"
backend = "scripted"
script = '[{"say": "here"}, {"end_turn": true}, {"hang": true}]'
"#;

/// W2: a session whose program writes nothing any more is hung in the status, on the page, in the
/// team's view and for MCP.
#[test]
fn w2_a_hung_session_is_hung_in_every_view() {
    let world = World::with_project();
    world.write_file("team.toml", TEAM_FILE);
    world.commit_all("A team");
    world.run_ok(&["team", "create"]);
    world.run_ok(&["config", "set", "silence", "40s"]);
    world.run_ok(&["team", "launch", "harbour", "--wait", "60s"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let state_of = |of: &str, live: &str| {
        let team = world.run_json(&["team", "show", "harbour"]);
        let members = team[of].as_array().or(team[of]["members"].as_array());
        let tom = members
            .unwrap()
            .iter()
            .find(|member| member["name"] == "tom");
        tom.map_or(Value::Null, |tom| tom[live].clone())
    };
    let is_alive = || state_of("resolved", "state") == "alive";
    assert!(
        wait_until(TEST_TIMEOUT, is_alive),
        "{}",
        world.run_ok(&["team", "show", "harbour"])
    );
    let resolved = world.run_json(&["team", "show", "harbour"])["resolved"].clone();
    let members = resolved["members"].as_array().unwrap();
    let tom = members
        .iter()
        .find(|member| member["name"] == "tom")
        .unwrap();
    let task = tom["task"].as_str().unwrap();
    world.run_ok(&["tell", task, "look at the tests"]);
    let is_hung = || state_of("live", "live") == "hung";
    assert!(
        wait_until(TEST_TIMEOUT, is_hung),
        "{}",
        world.run_ok(&["team", "show", "harbour"])
    );
    let hung = (&json!("failed"), &json!("hung"));
    let status = api.call_ok("status", json!({}));
    let (_, frames) = read_live_stream(&api, &format!("tasks,lanes,teams,{task}"));
    let find = |kind: &str, key: &str, name: &str| {
        let all = status[kind].as_array().unwrap();
        all.iter().find(|item| item[key] == name).unwrap().clone()
    };
    let views = [
        ("status", find("tasks", "id", task)),
        ("agent", find("agents", "name", "harbour/tom")),
        ("page row", entity(&frames, &format!("task/{task}"))),
        ("page of the task", entity(&frames, task)),
        ("lane", entity(&frames, "lane/harbour/tom")),
        ("show", world.run_json(&["show", task])),
    ];
    for (name, view) in &views {
        assert_eq!((&view["at"], &view["word"]), hung, "W2: {name}: {view}");
    }
    let bars = views[3].1["time"].as_array().unwrap();
    assert_eq!(bars.last().unwrap()["at"], "failed", "W2: {bars:?}");
}
