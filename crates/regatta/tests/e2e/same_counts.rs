//! Every view shows the same counts (W2). Random boards are made through the API of a daemon; on
//! each board the command line, the API, MCP and the page's head are compared field by field, and
//! on some boards `regatta watch` in a real terminal too.
//!
//! `REGATTA_COUNTS_SEED=…` repeats a run.

use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::kills::SeededRng;
use crate::pages::{entity, read_live_stream};
use crate::terminal::TmuxTerminal;
use crate::world::World;

const BOARDS: usize = 500;
/// Every so many boards, the printed output of `status` and the screen of `watch` are compared.
/// Each takes a process, so they are not compared on all boards.
const PRINTED_EVERY: usize = 10;
const AGENTS: [&str; 3] = ["ann", "bob", "eve"];

/// An attempt that an outside agent works on.
struct LiveAttempt {
    task: String,
    fields: Value,
}

struct RandomBoards<'a> {
    world: &'a World,
    api: ApiClient,
    dice: SeededRng,
    tasks: Vec<String>,
    attempts: Vec<LiveAttempt>,
    /// How often each kind of step succeeded.
    taken: [usize; 12],
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
                        self.attempts.push(LiveAttempt { task, fields });
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
            _ => self.answer_or_snooze(),
        };
        self.taken[kind] += usize::from(is_taken);
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

    /// Returns the summary that the tools of MCP return.
    fn mcp_summary(&self) -> Value {
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
        let data = content.get("data").unwrap_or(&content);
        data["summary"].clone()
    }

    /// Compares all views on the present board. Effects may change the board meanwhile, so the
    /// views are read again until all show one revision.
    fn compare(&self, is_printed: bool) -> Value {
        for _ in 0..1_000 {
            let status = self.api.call_ok("status", json!({}));
            let (_, frames) = read_live_stream(&self.api, "head,tasks");
            let head = entity(&frames, "head");
            let mcp = self.mcp_summary();
            let summary = &status["summary"];
            let revisions = [
                &summary["revision"],
                &head["summary"]["revision"],
                &mcp["revision"],
            ];
            if revisions.iter().any(|revision| *revision != revisions[0]) {
                continue;
            }
            assert_eq!(*summary, head["summary"], "W2: the page's head");
            assert_eq!(*summary, mcp, "W2: MCP");
            check_sentence(summary, &head);
            check_items(summary, &status, &frames);
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
    world.run_ok(&["up"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    for name in AGENTS {
        api.call_ok(
            "agent.add",
            json!({ "name": name, "runtime": "outside", "max_tasks": 3 }),
        );
    }
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
        taken: [0; 12],
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
        ] {
            if number(&summary, name) > 0 {
                seen_states.insert(name);
            }
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
    assert_eq!(seen_states.len(), 5, "{seen_states:?} with seed {seed}");
    if let Some(terminal) = &terminal {
        terminal.press_key("q");
    }
}
