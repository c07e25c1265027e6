//! Collects metrics and returns them in the text format of Prometheus.
//!
//! The counters of calls and events are kept in this module. All other values are read from the
//! board (the daemon's state in memory) and the engine when somebody requests the metrics.
//!
//! The module `health` checks the access token of such requests.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regatta_core::attempt::Attempt;
use regatta_core::board::Board;
use regatta_core::display;
use regatta_core::event::{Event, Recorded};
use regatta_core::landing::LandingState;
use regatta_core::task::TaskStatus;
use regatta_engine::metrics::{BUCKET_BOUNDS_US, Histogram};

use crate::ServerState;

/// API verbs that wait for something. The durations of their calls are left out of the metrics,
/// because they do not show how fast the daemon is.
const WAITING_VERBS: [&str; 5] = [
    "task.poll",
    "msg.wait",
    "claim.acquire",
    "attempt.ask",
    "attempt.answer",
];

/// Counters of calls and events since the daemon started.
#[derive(Default)]
pub(crate) struct Metrics {
    calls: Mutex<BTreeMap<(&'static str, u16), u64>>,
    call_durations: Histogram,
    rejected_requests: Mutex<BTreeMap<String, u64>>,
    events: Mutex<BTreeMap<&'static str, u64>>,
    input_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    output_tokens: AtomicU64,
    micro_usd: AtomicU64,
    /// Number of calls of `task.poll` that are waiting for a task now.
    pub(crate) waiting_polls: AtomicUsize,
    pub(crate) open_connections: Arc<AtomicUsize>,
}

impl Metrics {
    /// Counts a call of an API verb by its HTTP status, and adds its duration to the metrics.
    pub(crate) fn record_call(&self, verb: &'static str, status: u16, took: Duration) {
        *self
            .calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry((verb, status))
            .or_default() += 1;
        if !WAITING_VERBS.contains(&verb) {
            self.call_durations.observe(took);
        }
    }

    /// Counts a request that was refused because its authentication failed. The requests are
    /// counted by the code of the error.
    pub(crate) fn record_rejection(&self, code: &str) {
        let mut all = self
            .rejected_requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(code) {
            Some(count) => *count += 1,
            None => _ = all.insert(code.to_owned(), 1),
        }
    }

    /// Counts an event by its kind.
    pub(crate) fn record_event(&self, recorded: &Recorded) {
        *self
            .events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(recorded.event.kind())
            .or_default() += 1;
        if let Event::BudgetSpent(budget_spent) = &recorded.event {
            let usage = &budget_spent.spend().usage;
            self.input_tokens
                .fetch_add(usage.input + usage.cache_write, Relaxed);
            self.cached_tokens.fetch_add(usage.cached_input, Relaxed);
            self.output_tokens.fetch_add(usage.output, Relaxed);
            self.micro_usd
                .fetch_add(usage.micro_usd.unwrap_or(0), Relaxed);
        }
    }
}

/// The text of the metrics while it is built.
#[derive(Default)]
struct MetricsText(String);

impl MetricsText {
    fn header(&mut self, name: &str, kind: &str, help: &str) {
        let _fits = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (nth, (label, text)) in labels.iter().enumerate() {
            let text = text
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _fits = write!(
                self.0,
                "{}{label}=\"{text}\"",
                if nth == 0 { "{" } else { "," }
            );
        }
        let _fits = writeln!(
            self.0,
            "{} {value}",
            if labels.is_empty() { "" } else { "}" }
        );
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.header(name, kind, help);
        self.value(name, &[], value);
    }

    /// Adds a metric with one line for each value of a label.
    fn per_label<K: AsRef<str>>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        label: &str,
        all: impl IntoIterator<Item = (K, u64)>,
    ) {
        self.header(name, kind, help);
        for (key, count) in all {
            self.value(name, &[(label, key.as_ref())], count);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.header(name, "histogram", help);
        let counts = histogram.cumulative();
        for (bound, count) in BUCKET_BOUNDS_US.iter().zip(&counts) {
            let bound = format!("{}", *bound as f64 / 1e6);
            self.value(&format!("{name}_bucket"), &[("le", &bound)], count);
        }
        let all = counts.last().copied().unwrap_or(0);
        self.value(&format!("{name}_bucket"), &[("le", "+Inf")], all);
        self.value(&format!("{name}_sum"), &[], histogram.sum().as_secs_f64());
        self.value(&format!("{name}_count"), &[], all);
    }
}

fn count_each<K: Ord>(all: impl IntoIterator<Item = K>) -> BTreeMap<K, u64> {
    let mut counts = BTreeMap::new();
    for value in all {
        *counts.entry(value).or_default() += 1;
    }
    counts
}

/// Returns the text of all metrics.
pub(crate) fn metrics_text(shared: &ServerState) -> String {
    let (board, metrics) = (shared.engine.board(), &shared.metrics);
    let mut page = MetricsText::default();
    add_board_metrics(&mut page, &board);
    let writer = shared.engine.metrics();
    page.histogram(
        "regatta_commit_seconds",
        "Time to store a batch of changes",
        &writer.commits,
    );
    let commands = [
        ("accepted", writer.accepted.load(Relaxed)),
        ("refused", writer.refused.load(Relaxed)),
        ("failed", writer.failed.load(Relaxed)),
    ];
    page.per_label(
        "regatta_commands_total",
        "counter",
        "Commands by outcome: accepted, refused, or failed (batches that could not be stored)",
        "outcome",
        commands,
    );
    page.single(
        "regatta_writer_queue",
        "gauge",
        "Commands waiting for the writer",
        shared.engine.queue_len(),
    );
    let events = metrics
        .events
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    page.per_label(
        "regatta_events_total",
        "counter",
        "Events by kind",
        "kind",
        events.clone(),
    );
    let landed = events.get("landing.landed").copied().unwrap_or(0);
    page.single(
        "regatta_landed_total",
        "counter",
        "Landings that moved the trunk",
        landed,
    );
    let tokens = [
        ("input", &metrics.input_tokens),
        ("cached_input", &metrics.cached_tokens),
        ("output", &metrics.output_tokens),
    ];
    page.per_label(
        "regatta_tokens_total",
        "counter",
        "Tokens of models",
        "kind",
        tokens.map(|(kind, count)| (kind, count.load(Relaxed))),
    );
    let cost = metrics.micro_usd.load(Relaxed) as f64 / 1e6;
    page.single(
        "regatta_cost_usd_total",
        "counter",
        "Cost of models, as far as reported",
        cost,
    );
    page.header("regatta_calls_total", "counter", "Calls of verbs");
    for ((verb, status), count) in metrics
        .calls
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
    {
        page.value(
            "regatta_calls_total",
            &[("verb", verb), ("status", &status.to_string())],
            count,
        );
    }
    page.histogram(
        "regatta_call_seconds",
        "Duration of calls, except calls that wait for something",
        &metrics.call_durations,
    );
    let rejected = metrics
        .rejected_requests
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    page.per_label(
        "regatta_turned_away_total",
        "counter",
        "Requests that were not authenticated",
        "code",
        rejected,
    );
    page.single(
        "regatta_event_readers",
        "gauge",
        "Readers of the stream of events",
        shared.event_fanout.reader_count(),
    );
    page.single(
        "regatta_pollers",
        "gauge",
        "Polls waiting for a task",
        metrics.waiting_polls.load(Relaxed),
    );
    page.single(
        "regatta_connections",
        "gauge",
        "Open connections",
        metrics.open_connections.load(Relaxed),
    );
    let lost = shared.audit.write_failures().0;
    page.single(
        "regatta_audit_lost_total",
        "counter",
        "Lines of the audit log that could not be written",
        lost,
    );
    page.single(
        "regatta_resident_bytes",
        "gauge",
        "Memory of the daemon",
        resident_bytes(),
    );
    page.0
}

/// Adds the metrics that are read from the board (the daemon's state in memory), such as the number
/// of tasks in each state.
fn add_board_metrics(page: &mut MetricsText, board: &Board) {
    page.header("regatta_build_info", "gauge", "Version of the program");
    page.value(
        "regatta_build_info",
        &[("version", env!("CARGO_PKG_VERSION"))],
        1,
    );
    page.single(
        "regatta_revision",
        "counter",
        "Number of events",
        board.revision,
    );
    let statuses = count_each(board.tasks.values().map(|task| task.status.to_string()));
    let open_statuses = TaskStatus::ALL
        .iter()
        .filter(|status| !status.is_terminal())
        .map(|status| status.to_string());
    let tasks = open_statuses.map(|status| {
        let count = statuses.get(&status).copied().unwrap_or(0);
        (status, count)
    });
    page.per_label("regatta_tasks", "gauge", "Open tasks", "status", tasks);
    let attempts = count_each(board.attempts.values().map(|attempt| attempt.state_name()));
    let all = Attempt::STATE_NAMES.map(|state| (state, attempts.get(state).copied().unwrap_or(0)));
    page.per_label("regatta_attempts", "gauge", "Live attempts", "state", all);
    let landings = count_each(board.landings.values().map(|landing| landing.state.name()));
    let all = LandingState::NAMES.map(|state| (state, landings.get(state).copied().unwrap_or(0)));
    page.per_label(
        "regatta_landings",
        "gauge",
        "Landings under way",
        "state",
        all,
    );
    let queues = board
        .projects
        .keys()
        .map(|project| (project.to_string(), board.queue_of(project).count() as u64));
    page.per_label(
        "regatta_landing_queue",
        "gauge",
        "Length of a project's landing queue",
        "project",
        queues,
    );
    let agents = count_each(
        board
            .agents
            .values()
            .map(|agent| display::agent_availability(board, agent).name().to_owned()),
    );
    page.per_label("regatta_agents", "gauge", "Agents", "state", agents);
    page.single(
        "regatta_missions",
        "gauge",
        "Missions under way",
        board.missions.len(),
    );
    page.single("regatta_claims", "gauge", "Held claims", board.claims.len());
    page.single(
        "regatta_claim_waits",
        "gauge",
        "Requests waiting for a claim",
        board.waits.len(),
    );
    page.single(
        "regatta_inbox",
        "gauge",
        "Requests that need a person",
        board.approvals.len(),
    );
}

/// Returns the memory that the daemon uses, in bytes; 0 if the kernel does not report it.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .map_or(0, |pages| pages * 4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_follow_the_prometheus_text_format() {
        let mut page = MetricsText::default();
        page.single("a", "gauge", "It", 1.5);
        page.per_label("b", "counter", "Them", "who", [("an \"odd\" one\n", 2)]);
        let histogram = Histogram::default();
        histogram.observe(Duration::from_micros(200));
        page.histogram("c_seconds", "Times", &histogram);
        assert!(page.0.starts_with(
            "# HELP a It\n# TYPE a gauge\na 1.5\n# HELP b Them\n# TYPE b \
            counter\nb{who=\"an \\\"odd\\\" one\\n\"} 2\n"
        ));
        for line in [
            "c_seconds_bucket{le=\"0.0001\"} 0",
            "c_seconds_bucket{le=\"0.00025\"} 1",
            "c_seconds_bucket{le=\"+Inf\"} 1",
            "c_seconds_sum 0.0002",
            "c_seconds_count 1",
        ] {
            assert!(
                page.0.lines().any(|printed| printed == line),
                "{line}\n{}",
                page.0
            );
        }
    }
}
