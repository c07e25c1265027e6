//! Every view shows the same counts, and the same state of each task and agent (W2). Random boards
//! with two projects are made through the API of a daemon: with missions, work in review and in the
//! merge queue, and spending. On each board the API, MCP, the page's data and the screens of
//! `regatta watch` are compared field by field, for the whole fleet and for each project, and so are
//! the windows of the page's lists. On some
//! boards, the printed output of `regatta status` is compared too.
//!
//! `REGATTA_COUNTS_SEED=…` repeats a run.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use regatta_core::budget::format_dollars;
use regatta_core::display::DisplayState;
use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::kills::SeededRng;
use crate::list_counts::{ListWindows, ListedByApi};
use crate::pages::{entity, read_live_stream};
use crate::world::{TEST_TIMEOUT, World, path_text, wait_until};

const BOARDS: usize = 500;
/// Every so many boards, the printed output of `status` is compared. Each takes a process, so it is
/// not compared on all boards. The whole fleet and the projects take turns.
const PRINTED_EVERY: usize = 10;
const PROJECTS: [&str; 2] = ["shop", "other"];
const DAILY_LIMIT_USD: u64 = 40;
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

/// A process that draws the screens of `regatta watch` from frames of the live stream.
struct ScreenDrawer {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl ScreenDrawer {
    fn start(world: &World) -> ScreenDrawer {
        let mut process = world
            .command(&["draw-frames"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        ScreenDrawer {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    /// Returns the lines of the pages Tasks and Agents.
    fn draw(&mut self, frames: &[Value]) -> Vec<String> {
        writeln!(self.input, "{}", Value::from(frames)).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Ends the process, which ends at the end of its input.
    fn finish(self) {
        let ScreenDrawer {
            mut process, input, ..
        } = self;
        drop(input);
        assert!(process.wait().unwrap().success());
    }
}

struct RandomBoards<'a> {
    world: &'a World,
    api: ApiClient,
    screens: ScreenDrawer,
    dice: SeededRng,
    tasks: Vec<String>,
    attempts: Vec<LiveAttempt>,
    /// Whether the queue of each project is held.
    is_queue_held: [bool; PROJECTS.len()],
    /// How often each kind of step succeeded.
    taken: [usize; STEP_KINDS],
}

impl RandomBoards<'_> {
    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.dice.below(count.max(1) as u64)).unwrap()
    }

    fn random_project(&mut self) -> &'static str {
        // Most work is in the first project, in which all work is reviewed.
        PROJECTS[self.pick(4) / 3]
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
                    "project": self.random_project(),
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
                let nth = self.pick(PROJECTS.len());
                let is_held = &mut self.is_queue_held[nth];
                *is_held = !*is_held;
                let project = PROJECTS[nth];
                let (verb, input) = if *is_held {
                    let hold = json!({ "project": project, "reason": "a pause" });
                    ("queue.hold", hold)
                } else {
                    ("queue.release", json!({ "project": project }))
                };
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
            "project": self.random_project(),
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
            "project": self.random_project(),
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

    /// Returns the status that the tools of MCP return for a project, or for the whole fleet.
    fn mcp_status(&self, project: Option<&str>) -> Value {
        let scope = project.map_or(json!({}), |project| json!({ "project": project }));
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "status", "arguments": scope },
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
    /// views are read again until all show one revision. `scope` is the scope of the status
    /// in MCP and of the printed status: 0 for the whole fleet, or the number of a project.
    fn compare(&mut self, scope: usize, is_printed: bool) -> Value {
        for _ in 0..1_000 {
            let status = self.api.call_ok("status", json!({}));
            let (_, frames) = read_live_stream(&self.api, "head,tasks,lanes");
            let head = entity(&frames, "head");
            let project = scope.checked_sub(1).map(|nth| PROJECTS[nth]);
            let mcp = self.mcp_status(project);
            let projects =
                PROJECTS.map(|project| self.api.call_ok("status", json!({ "project": project })));
            let printed = is_printed.then(|| self.printed_status(project));
            // The last status shows that nothing changed while the views were read.
            // These dice are not those of the steps, because the number of reads varies.
            let mut dice = SeededRng(number(&status["summary"], "revision"));
            let windows = ListWindows::read(&self.api, &mut dice, &AGENTS);
            let listed = ListedByApi::read(&self.api, &status);
            let last = self.api.call_ok("status", json!({}));
            let summary = &status["summary"];
            let mut revisions = vec![
                &head["summary"]["revision"],
                &mcp["summary"]["revision"],
                &last["summary"]["revision"],
            ];
            revisions.extend(projects.iter().map(|of| &of["summary"]["revision"]));
            revisions.extend(windows.revisions());
            if revisions.iter().any(|other| **other != summary["revision"]) {
                continue;
            }
            assert_eq!(*summary, head["summary"], "W2: the page's head");
            let of = scope.checked_sub(1).map_or(&status, |nth| &projects[nth]);
            assert_eq!(status_fields(of), status_fields(&mcp), "W2: MCP");
            check_sentence(summary, &head);
            check_items(summary, &status, &frames);
            check_agents(&status, &frames);
            let screens = self.screens.draw(&frames);
            check_screens(&status, &screens);
            check_projects(&status, &projects);
            windows.check(&listed, summary);
            if let Some(printed) = &printed {
                check_printed(of, printed);
            }
            return summary.clone();
        }
        panic!("the board never rested");
    }

    /// Returns the output of `regatta status` for the whole fleet or for a project: as text, and
    /// the data of the answer.
    fn printed_status(&self, project: Option<&str>) -> (String, Value) {
        let place = match project {
            None => std::path::PathBuf::from("/"),
            Some(project) => self.world.root.join(project),
        };
        let args = ["status", "-C", path_text(&place)];
        (self.world.run_ok(&args), self.world.run_json(&args))
    }
}

/// Returns the parts of a status that all views show: the summary, and the state of each task and
/// agent.
fn status_fields(status: &Value) -> (Value, Vec<[Value; 4]>, Vec<[Value; 4]>) {
    let states = ["tasks", "agents"].map(|kind| states_of(status, kind));
    let [tasks, agents] = states;
    (status["summary"].clone(), tasks, agents)
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

/// Returns today's costs as every view must show them, or `None` if nothing was spent.
fn spend_part(summary: &Value) -> Option<String> {
    let micro_usd = summary["spent_today_micro_usd"].as_u64()?;
    Some(format!(
        "{} of ${DAILY_LIMIT_USD}.00 today",
        format_dollars(micro_usd)
    ))
}

/// Returns the progress of a mission as every view must show it.
fn progress_text(mission: &Value) -> String {
    match number(mission, "tasks") {
        0 => "no task yet".into(),
        tasks => format!("{} of {tasks} landed", number(mission, "landed")),
    }
}

/// Returns the sentence of the page and of `watch`, composed from the summary alone.
fn expected_sentence(summary: &Value) -> Vec<String> {
    let count = |name: &str, words: &str| format!("{} {words}", number(summary, name));
    let needs = ["need you", "needs you"][usize::from(number(summary, "needs_you") == 1)];
    let mut parts = vec![
        count("working", "working"),
        count("waiting", "waiting"),
        count("needs_you", needs),
    ];
    for (name, words) in [("landing", "landing"), ("backlog", "in the backlog")] {
        parts.extend((number(summary, name) > 0).then(|| count(name, words)));
    }
    parts.extend(spend_part(summary));
    let missions = summary["missions"].as_array().unwrap();
    parts.extend(missions.iter().rev().take(2).map(|mission| {
        let title = mission["title"].as_str().unwrap();
        format!("“{title}” {}", progress_text(mission))
    }));
    match missions.len().saturating_sub(2) {
        0 => {}
        1 => parts.push("1 more mission".into()),
        more => parts.push(format!("{more} more missions")),
    }
    parts
}

/// The sentence of the page has the numbers of the summary.
fn check_sentence(summary: &Value, head: &Value) {
    let parts = head["sentence"].as_array().unwrap();
    let text = |part: &Value| part["text"].as_str().unwrap().to_owned();
    let sentence: Vec<String> = parts.iter().map(text).collect();
    assert_eq!(sentence, expected_sentence(summary), "W2: the sentence");
    for name in ["needs_you", "running", "slots", "agents"] {
        assert_eq!(head[name], summary[name], "W2: {name}");
    }
}

/// The screens of `watch` show the numbers of the summary, and the state of each task and agent.
fn check_screens(status: &Value, screens: &[String]) {
    let summary = &status["summary"];
    let sentence = expected_sentence(summary).join(" · ");
    let slots = format!(
        "  slots {}/{}",
        number(summary, "running"),
        number(summary, "slots")
    );
    assert_eq!(screens[1], sentence + &slots, "W2: the top of the screen");
    let sign = |item: &Value| {
        let state: DisplayState = serde_json::from_value(item["at"].clone()).unwrap();
        state.glyph()
    };
    let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
    let mut rows: Vec<String> = Vec::new();
    for task in status["tasks"].as_array().unwrap() {
        let (id, word) = (text(task, "id"), text(task, "word"));
        rows.push(format!("{id:<5}{} {word} ", sign(task)));
    }
    for agent in status["agents"].as_array().unwrap() {
        rows.push(format!("{} {} ", sign(agent), text(agent, "name")));
    }
    for row in rows {
        let is_drawn = screens.iter().any(|line| line.contains(&row));
        assert!(is_drawn, "W2: {row:?} in {screens:#?}");
    }
}

/// The summaries of the projects add up to the summary of the fleet, except for the figures that
/// always belong to the fleet.
fn check_projects(status: &Value, projects: &[Value]) {
    let fleet = &status["summary"];
    assert!(fleet["project"].is_null(), "W2: {fleet}");
    for (name, project) in PROJECTS.iter().zip(projects) {
        let summary = &project["summary"];
        assert_eq!(summary["project"], *name, "W2: the scope");
        for figure in [
            "slots",
            "agents",
            "spent_today_micro_usd",
            "spent_today_tokens",
            "daily_limit_micro_usd",
        ] {
            assert_eq!(summary[figure], fleet[figure], "W2: {figure} of {name}");
        }
        for task in project["tasks"].as_array().unwrap() {
            assert_eq!(task["project"], *name, "W2: the tasks of {name}");
        }
    }
    for figure in [
        "working",
        "waiting",
        "backlog",
        "blocked_on_person",
        "review",
        "landing",
        "completed",
        "failed",
        "needs_you",
        "running",
    ] {
        let of_projects = projects.iter().map(|of| number(&of["summary"], figure));
        let sum: u64 = of_projects.sum();
        assert_eq!(sum, number(fleet, figure), "W2: {figure} of all projects");
    }
    let missions = |status: &Value| status["summary"]["missions"].as_array().unwrap().clone();
    let mut of_projects: Vec<Value> = projects.iter().flat_map(missions).collect();
    of_projects.sort_by_key(|mission| {
        let id = mission["id"].as_str().unwrap();
        id[1..].parse::<u64>().unwrap()
    });
    assert_eq!(of_projects, missions(status), "W2: the missions");
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

/// `regatta status` prints the numbers of the summary, the missions and the state of each task.
fn check_printed(status: &Value, (printed, data): &(String, Value)) {
    let summary = &status["summary"];
    assert_eq!(
        status_fields(data),
        status_fields(status),
        "W2: status --json"
    );
    let count = |name: &str, words: &str| format!("{} {words}", number(summary, name));
    let if_any = |name: &str, words: &str| (number(summary, name) > 0).then(|| count(name, words));
    let needs = ["need you", "needs you"][usize::from(number(summary, "needs_you") == 1)];
    let mut parts = vec![count("working", "working"), count("waiting", "waiting")];
    parts.extend(if_any("backlog", "in the backlog"));
    parts.push(count("needs_you", needs));
    parts.push(format!("queue {}", number(summary, "landing")));
    parts.push(count("completed", "done"));
    parts.extend(if_any("failed", "failed"));
    parts.extend(spend_part(summary));
    let tips = status["projects"].as_array().unwrap();
    let has_several = tips.len() > 1;
    parts.extend(tips.iter().map(|project| {
        let tip = &project["tip"].as_str().unwrap()[..10];
        if has_several {
            format!("{} main {tip}", project["name"].as_str().unwrap())
        } else {
            format!("main {tip}")
        }
    }));
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some(&*parts.join(" · ")), "W2: {printed}");
    let lines: Vec<&str> = lines.map(str::trim).collect();
    let tasks = status["tasks"].as_array().unwrap();
    for mission in summary["missions"].as_array().unwrap() {
        let [id, title] = ["id", "title"].map(|name| mission[name].as_str().unwrap());
        let head = format!("{id} {title}   {}", progress_text(mission));
        let is_listed = tasks.iter().any(|task| task["mission"] == id);
        assert!(
            !is_listed || lines.contains(&&*head),
            "W2: {head} in {printed}"
        );
    }
    for task in tasks {
        let state: DisplayState = serde_json::from_value(task["at"].clone()).unwrap();
        let [id, word] = ["id", "word"].map(|name| task[name].as_str().unwrap());
        let shown = format!("{} {word} ", state.glyph());
        let row = lines.iter().find(|line| line.split(' ').next() == Some(id));
        let is_shown = row.is_some_and(|row| row[id.len()..].trim_start().starts_with(&shown));
        assert!(is_shown, "W2: {id} {shown} in {printed}");
    }
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
    let other = world.root.join("other");
    std::fs::create_dir(&other).unwrap();
    world.git_in(&other, &["init", "-q", "-b", "main", "."]);
    world.git_in(&other, &["commit", "-q", "--allow-empty", "-m", "Start"]);
    world.run_ok(&["init", "--yes", "-C", path_text(&other)]);
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
    let limit = DAILY_LIMIT_USD.to_string();
    world.run_ok(&["budget", "set", "day", "--usd", &limit]);
    let seed = std::env::var("REGATTA_COUNTS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(26);
    let mut boards = RandomBoards {
        world: &world,
        api,
        screens: ScreenDrawer::start(&world),
        dice: SeededRng(seed),
        tasks: vec![],
        attempts: vec![],
        is_queue_held: [false; PROJECTS.len()],
        taken: [0; STEP_KINDS],
    };
    let mut seen_states = std::collections::BTreeSet::new();
    for nth in 0..BOARDS {
        boards.step(nth);
        let is_printed = nth % PRINTED_EVERY == 0;
        let scope = nth % (PROJECTS.len() + 1);
        let summary = boards.compare(scope, is_printed);
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
    }
    assert!(
        boards.taken.iter().all(|taken| *taken > 0),
        "each kind of step must succeed at least once: {:?} with seed {seed}",
        boards.taken
    );
    assert_eq!(seen_states.len(), 11, "{seen_states:?} with seed {seed}");
    boards.screens.finish();
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
