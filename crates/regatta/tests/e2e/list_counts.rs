//! The page's lists show no false number (W2): each window of tasks, agents and events is compared
//! with what the verbs of the API answer. `same_counts.rs` makes the random boards.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::kills::SeededRng;

/// The states of tasks, which the list counts.
const STATES: [&str; 8] = [
    "backlog", "waiting", "working", "needs", "review", "landing", "landed", "failed",
];
/// The largest window that the server sends.
const MAX_ROWS: usize = 300;

/// Requests a window of one of the page's lists.
fn window(api: &ApiClient, list_and_query: &str) -> Value {
    let headers = [
        ("host", api.address()),
        ("authorization", format!("Bearer {}", api.token)),
    ];
    let path = format!("/api/v1/page/{list_and_query}");
    let reply = api.request_over_tcp("GET", &path, &headers, b"");
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    reply.json()
}

fn rows(window: &Value) -> &[Value] {
    window["rows"].as_array().unwrap()
}

/// Returns the counts of a window that are not zero, by state.
fn counts(window: &Value) -> BTreeMap<String, u64> {
    let counts = window["counts"].as_array().unwrap().iter();
    counts
        .map(|entry| {
            let state = entry["at"].as_str().unwrap().to_owned();
            (state, entry["count"].as_u64().unwrap())
        })
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Counts items by state.
fn count_states<'a>(items: impl IntoIterator<Item = &'a Value>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for item in items {
        let state = item["at"].as_str().unwrap().to_owned();
        *counts.entry(state).or_default() += 1;
    }
    counts
}

/// What the verbs of the API answer about the tasks, the inbox and the agents.
pub(crate) struct ListedByApi {
    tasks: Vec<Value>,
    inbox: Vec<Value>,
    agents: Vec<Value>,
}

impl ListedByApi {
    pub(crate) fn read(api: &ApiClient, status: &Value) -> ListedByApi {
        let list = |value: Value| value.as_array().unwrap().clone();
        ListedByApi {
            tasks: list(api.call_ok("task.list", json!({ "all": true }))),
            inbox: list(api.call_ok("inbox.list", json!({}))),
            agents: list(status["agents"].clone()),
        }
    }
}

/// The windows of the page's lists on one board: those that a person sees first, and one with
/// random conditions.
pub(crate) struct ListWindows {
    all: Value,
    narrowed: Value,
    state: &'static str,
    agent: String,
    agents: Value,
    completions: Value,
}

impl ListWindows {
    pub(crate) fn read(api: &ApiClient, dice: &mut SeededRng, agents: &[&str]) -> ListWindows {
        let mut pick = |count: usize| usize::try_from(dice.below(count as u64)).unwrap();
        let (state, agent) = (STATES[pick(STATES.len())], agents[pick(agents.len())]);
        ListWindows {
            all: window(api, &format!("tasks?limit={MAX_ROWS}")),
            narrowed: window(
                api,
                &format!("tasks?agent={agent}&at={state}&limit=2&offset=1"),
            ),
            state,
            agent: agent.to_owned(),
            agents: window(api, "agents?limit=100"),
            completions: window(api, "events?kind=task.completed&limit=200"),
        }
    }

    /// Returns the revisions of the boards from which the windows were made.
    pub(crate) fn revisions(&self) -> [&Value; 4] {
        [&self.all, &self.narrowed, &self.agents, &self.completions].map(|of| &of["revision"])
    }

    /// Compares the windows with the answers of the API on the same board.
    pub(crate) fn check(&self, listed: &ListedByApi, summary: &Value) {
        self.check_tasks(listed, summary);
        self.check_narrowed_tasks(listed);
        assert_eq!(
            counts(&self.agents),
            count_states(&listed.agents),
            "W2: agents"
        );
        assert_eq!(self.agents["all"], listed.agents.len(), "W2: all agents");
        let shown = |of: &[Value], name: &str| -> BTreeSet<String> {
            let of = of.iter();
            of.map(|agent| format!("{} {} {}", agent[name], agent["at"], agent["word"]))
                .collect()
        };
        assert_eq!(
            shown(rows(&self.agents), "agent"),
            shown(&listed.agents, "name"),
            "W2: the rows of agents"
        );
        assert_eq!(
            summary["completed"],
            rows(&self.completions).len(),
            "W2: events of completed tasks"
        );
    }

    fn check_tasks(&self, listed: &ListedByApi, summary: &Value) {
        let found = counts(&self.all);
        assert_eq!(
            found,
            count_states(&listed.tasks),
            "W2: the counts of all tasks"
        );
        for (state, name) in [
            ("working", "working"),
            ("waiting", "waiting"),
            ("backlog", "backlog"),
            ("needs", "blocked_on_person"),
            ("review", "review"),
            ("landing", "landing"),
            ("landed", "completed"),
        ] {
            let count = found.get(state).copied().unwrap_or_default();
            assert_eq!(summary[name], count, "W2: {state} in the head of the page");
        }
        let total = listed.tasks.len();
        assert_eq!(self.all["total"], total, "W2: the total");
        assert_eq!(self.all["all"], total, "W2: the number of all tasks");
        assert_eq!(rows(&self.all).len(), total.min(MAX_ROWS), "W2: the rows");
        let by_id: BTreeMap<&str, &Value> = listed
            .tasks
            .iter()
            .map(|task| (task["id"].as_str().unwrap(), task))
            .collect();
        for row in rows(&self.all) {
            let task = by_id[row["id"].as_str().unwrap()];
            assert_eq!(
                (&row["at"], &row["word"]),
                (&task["at"], &task["word"]),
                "W2: the row of {}",
                row["id"]
            );
        }
        let asked: BTreeSet<&str> = listed
            .inbox
            .iter()
            .filter(|item| item["snoozed_until_wall"].is_null())
            .filter_map(|item| item["task"].as_str())
            .collect();
        assert_eq!(self.all["needs_you"], asked.len(), "W2: tasks in the inbox");
    }

    fn check_narrowed_tasks(&self, listed: &ListedByApi) {
        let is_own = |task: &&Value| {
            let agent = task["agent"].as_str().or(task["assignee"].as_str());
            agent == Some(&*self.agent)
        };
        let own: Vec<&Value> = listed.tasks.iter().filter(is_own).collect();
        assert_eq!(
            counts(&self.narrowed),
            count_states(own.iter().copied()),
            "W2: the counts of {}",
            self.agent
        );
        let total = own.iter().filter(|task| task["at"] == self.state).count();
        assert_eq!(
            self.narrowed["total"], total,
            "W2: {} of {}",
            self.state, self.agent
        );
        let shown = total.saturating_sub(1).min(2);
        assert_eq!(rows(&self.narrowed).len(), shown, "W2: a window at 1");
    }
}
