//! The page's list of tasks: which tasks match a query, how many there are in each state, and in
//! which order.
//!
//! The page shows a window of the list, because a project can have a hundred thousand tasks. The
//! caller gives the facts about every task ([`ListedTask`]); [`select_window`] counts the matching
//! tasks and returns the ids of the window. All counts are exact, whatever the size of the window.
//!
//! Not here: the rows of the window, which the server builds.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use regatta_core::display::DisplayState;
use regatta_core::ids::{MissionId, Now, TaskId};
use regatta_core::natural_sort;
use regatta_core::project::Millis;
use serde::{Deserialize, Serialize};

use crate::live_view::TaskRowView;
use crate::problem::Problem;

/// Number of rows in a window if the query does not say it, and the maximum.
const DEFAULT_LIMIT: usize = 60;
const MAX_LIMIT: usize = 300;
/// The name that selects the tasks about which the inbox asks a person.
const NEEDS_YOU: &str = "needs-you";
/// The names by which the list can be sorted. A minus sign before a name reverses the order.
const SORT_NAMES: [&str; 7] = [
    "state", "id", "subject", "agent", "mission", "cost", "since",
];

/// A window of the page's list of tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskWindow {
    /// The number of the last event that the window includes.
    pub revision: u64,
    /// Number of tasks that match the query.
    pub total: usize,
    /// Number of all tasks, without a query.
    pub all: usize,
    /// Number of tasks in each state that match the query without its condition on the state.
    pub counts: Vec<StateCount>,
    /// Number of tasks that match the query without its condition on the state, and about which the
    /// inbox asks a person.
    pub needs_you: usize,
    /// The cost of all matching tasks in millionths of a dollar; left out if no task has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
    /// Position of the first row in the list.
    pub offset: usize,
    pub rows: Vec<TaskListRow>,
    /// The titles of the missions to which the rows belong.
    pub missions: Vec<MissionTitle>,
    /// Number of tasks that ended so long ago that the list does not contain them.
    pub unlisted: u64,
    /// True while the changed lines of some rows are being counted, so that the same request
    /// returns them soon.
    pub is_counting: bool,
}

/// A number of tasks or agents in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateCount {
    pub at: DisplayState,
    pub count: usize,
}

/// A mission with its title.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionTitle {
    pub id: MissionId,
    pub title: String,
}

/// A row of the page's list of tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskListRow {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub row: TaskRowView,
    /// The commit with which the task's work landed, abbreviated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Number of lines that the landed work added. `removed` is the number of removed lines. Both
    /// are left out until they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}

/// The query of the page's list of tasks, as it stands in the address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskListQuery {
    /// Words that all occur in the task, and conditions such as `agent:codex-1`, `mission:M3`,
    /// `file:src/auth`, `is:failed`, `newer:2h` and `older:1d`.
    pub text: String,
    /// Names of states, separated by commas, or `needs-you`.
    pub at: String,
    pub agent: String,
    pub mission: String,
    /// Part of the path of a file that the task may change or has changed.
    pub file: String,
    /// Time since the task's last change: `<2h` or `>1d`.
    pub age: String,
    /// The column by which the list is sorted, with a minus sign for the reverse order.
    pub sort: String,
    pub offset: usize,
    pub limit: Option<usize>,
}

/// The facts about a task by which the list selects and sorts.
#[derive(Clone, Debug)]
pub struct ListedTask {
    pub id: TaskId,
    pub mission: Option<MissionId>,
    pub agent: Option<Arc<str>>,
    pub state: DisplayState,
    /// Whether the inbox asks a person about the task.
    pub needs_you: bool,
    /// Whether nobody has to do anything about the task any more. A failed task is over when a
    /// person has decided about it.
    pub is_over: bool,
    pub since_unix_ms: u64,
    pub micro_usd: Option<u64>,
    /// The subject, the id, the agent and other texts in lower case, the subject first. Tasks are
    /// sorted by this text when they are sorted by subject.
    pub text: Box<str>,
    /// The files that the task may change or has changed.
    pub files: Box<[Arc<str>]>,
}

impl ListedTask {
    /// Returns the position of the task's state in the default order: tasks that need a person,
    /// failed tasks, running and waiting tasks, and then the tasks that are over.
    fn urgency(&self) -> u8 {
        match self.state {
            _ if self.is_over => 8,
            DisplayState::Needs => 0,
            DisplayState::Review => 1,
            DisplayState::Failed => 2,
            DisplayState::Working => 3,
            DisplayState::Landing => 4,
            DisplayState::Waiting | DisplayState::Idle => 5,
            DisplayState::Offline => 6,
            DisplayState::Backlog => 7,
            DisplayState::Landed => 8,
        }
    }

    /// Compares two tasks in the default order. Within a state, open tasks are sorted by id, and
    /// tasks that are over by the time of their end, the newest first.
    fn compare_urgency(&self, other: &ListedTask) -> Ordering {
        let newest_first = |task: &ListedTask| Reverse(task.is_over.then_some(task.since_unix_ms));
        self.urgency()
            .cmp(&other.urgency())
            .then_with(|| newest_first(self).cmp(&newest_first(other)))
            .then_with(|| self.id.cmp(&other.id))
    }
}

/// The states that a query selects.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StateFilter {
    All,
    NeedsYou,
    States(BTreeSet<DisplayState>),
}

/// A query of the list of tasks, after parsing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskListFilter {
    /// Words in lower case, which must all occur in the task's text.
    words: Vec<String>,
    states: StateFilter,
    agent: Option<String>,
    mission: Option<MissionId>,
    file: Option<String>,
    /// Tasks that changed at or after `since_unix_ms` and at or before `until_unix_ms`.
    since_unix_ms: u64,
    until_unix_ms: u64,
    sort: &'static str,
    is_descending: bool,
    pub offset: usize,
    pub limit: usize,
}

fn bad_query(what: String, hint: &str) -> Problem {
    Problem::new(400, "bad_input", what, hint)
}

impl TaskListQuery {
    /// Parses the query. Returns an error for a condition that cannot be understood.
    pub fn parse(&self, now: Now) -> Result<TaskListFilter, Problem> {
        let descending = self.sort.strip_prefix('-');
        let name = descending.unwrap_or(&self.sort);
        let sort = SORT_NAMES.into_iter().find(|known| *known == name);
        if sort.is_none() && !name.is_empty() {
            let names = SORT_NAMES.join(", ");
            let what = format!("the list of tasks cannot be sorted by {name:?}");
            return Err(bad_query(what, &format!("sort by one of {names}")));
        }
        let mut filter = TaskListFilter {
            words: vec![],
            states: StateFilter::All,
            agent: None,
            mission: None,
            file: None,
            since_unix_ms: 0,
            until_unix_ms: u64::MAX,
            sort: sort.unwrap_or("state"),
            is_descending: descending.is_some(),
            offset: self.offset,
            limit: self.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT),
        };
        let age = match self.age.split_at_checked(1) {
            Some(("<", age)) => ("newer", age),
            Some((">", age)) => ("older", age),
            Some(_) => {
                let what = format!("{:?} is not an age", self.age);
                return Err(bad_query(what, "write <2h or >1d"));
            }
            None => ("age", ""),
        };
        let parameters = [
            ("is", &*self.at),
            ("agent", &self.agent),
            ("mission", &self.mission),
            ("file", &self.file),
            age,
        ];
        for (name, value) in parameters
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
        {
            filter.add_condition(name, value, now)?;
        }
        for word in self.text.split_whitespace() {
            let is_known = match word.split_once(':').filter(|(_, value)| !value.is_empty()) {
                Some((name, value)) => filter.add_condition(name, value, now)?,
                None => false,
            };
            if !is_known {
                filter.words.push(word.to_lowercase());
            }
        }
        Ok(filter)
    }
}

impl TaskListFilter {
    /// Adds a condition such as `agent:codex-1`. Returns false if there is no such condition, so
    /// that the text is a plain word with a colon.
    fn add_condition(&mut self, name: &str, value: &str, now: Now) -> Result<bool, Problem> {
        let age = || match Millis::parse(value) {
            Ok(age) => Ok(now.unix_ms.saturating_sub(age.ms())),
            Err(what) => Err(bad_query(what, "write newer:2h or older:1d")),
        };
        match name {
            "is" => self.states = parse_states(value)?,
            "agent" => self.agent = Some(value.to_lowercase()),
            "file" => self.file = Some(value.to_lowercase()),
            "mission" => match value.to_uppercase().parse() {
                Ok(mission) => self.mission = Some(mission),
                Err(_) => {
                    let what = format!("{value:?} is not the id of a mission");
                    return Err(bad_query(what, "write an id such as mission:M3"));
                }
            },
            "newer" => self.since_unix_ms = age()?,
            "older" => self.until_unix_ms = age()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns whether a task meets all conditions except the one on the state.
    fn matches_without_state(&self, task: &ListedTask) -> bool {
        let has_agent = |wanted: &String| {
            let agent = task.agent.as_deref().unwrap_or_default();
            agent.eq_ignore_ascii_case(wanted)
        };
        let has_file = |wanted: &String| {
            let mut files = task.files.iter();
            files.any(|file| file.to_lowercase().contains(&**wanted))
        };
        (self.since_unix_ms..=self.until_unix_ms).contains(&task.since_unix_ms)
            && self
                .mission
                .is_none_or(|mission| task.mission == Some(mission))
            && self.agent.as_ref().is_none_or(has_agent)
            && self.words.iter().all(|word| task.text.contains(&**word))
            && self.file.as_ref().is_none_or(has_file)
    }

    fn matches_state(&self, task: &ListedTask) -> bool {
        match &self.states {
            StateFilter::All => true,
            StateFilter::NeedsYou => task.needs_you,
            StateFilter::States(states) => states.contains(&task.state),
        }
    }

    /// Compares two tasks in the requested order. Tasks whose value is unknown come last in either
    /// direction.
    fn compare(&self, a: &MatchingTask<'_>, b: &MatchingTask<'_>) -> Ordering {
        let direct = |order: Ordering| {
            if self.is_descending {
                order.reverse()
            } else {
                order
            }
        };
        let known = |a: bool, b: bool| b.cmp(&a);
        let (agent_ranks, a, b) = ((a.agent_rank, b.agent_rank), a.task, b.task);
        let order = match self.sort {
            "id" => direct(a.id.cmp(&b.id)),
            "subject" => direct(a.text.cmp(&b.text)),
            "agent" => known(a.agent.is_some(), b.agent.is_some())
                .then_with(|| direct(agent_ranks.0.cmp(&agent_ranks.1))),
            "mission" => known(a.mission.is_some(), b.mission.is_some())
                .then_with(|| direct(a.mission.cmp(&b.mission))),
            "cost" => known(a.micro_usd.is_some(), b.micro_usd.is_some())
                .then_with(|| direct(a.micro_usd.cmp(&b.micro_usd))),
            "since" => direct(b.since_unix_ms.cmp(&a.since_unix_ms)),
            _ => direct(a.urgency().cmp(&b.urgency())),
        };
        order.then_with(|| a.compare_urgency(b))
    }
}

/// A task that matches a query.
struct MatchingTask<'a> {
    task: &'a ListedTask,
    /// The position of the task's agent in the natural order of the agents' names, if the list is
    /// sorted by agent. Comparing the names of every pair of tasks would take seconds.
    agent_rank: usize,
}

/// Sets the position of each task's agent among the agents of all these tasks.
fn rank_agents(tasks: &mut [MatchingTask<'_>]) {
    let names = tasks.iter().filter_map(|found| found.task.agent.as_deref());
    let mut names: Vec<&str> = names.collect::<HashSet<&str>>().into_iter().collect();
    natural_sort::sort(&mut names, |name| name);
    let ranks: HashMap<&str, usize> = names.into_iter().zip(0..).collect();
    for found in tasks {
        let agent = found.task.agent.as_deref();
        found.agent_rank = agent.and_then(|name| ranks.get(name).copied()).unwrap_or(0);
    }
}

fn parse_states(text: &str) -> Result<StateFilter, Problem> {
    if text == NEEDS_YOU {
        return Ok(StateFilter::NeedsYou);
    }
    let state = |name: &str| {
        let mut states = DisplayState::ALL.into_iter();
        states.find(|state| state.name() == name).ok_or_else(|| {
            let names = DisplayState::OF_TASKS.map(DisplayState::name).join(", ");
            let hint = format!("name one of {names}, or {NEEDS_YOU}");
            bad_query(format!("{name:?} is not a state of tasks"), &hint)
        })
    };
    let states: BTreeSet<DisplayState> = text.split(',').map(state).collect::<Result<_, _>>()?;
    Ok(StateFilter::States(states))
}

/// The tasks of a window, with the counts of the whole list.
#[derive(Debug, PartialEq, Eq)]
pub struct WindowSelection {
    pub ids: Vec<TaskId>,
    pub total: usize,
    pub all: usize,
    pub counts: Vec<StateCount>,
    pub needs_you: usize,
    pub micro_usd: Option<u64>,
}

/// Selects the tasks of a window, in order, and counts all tasks that match.
pub fn select_window<'a>(
    tasks: impl Iterator<Item = &'a ListedTask>,
    filter: &TaskListFilter,
) -> WindowSelection {
    let mut counts = DisplayState::OF_TASKS.map(|at| StateCount { at, count: 0 });
    let (mut all, mut needs_you, mut matching) = (0, 0, Vec::new());
    for task in tasks {
        all += 1;
        if !filter.matches_without_state(task) {
            continue;
        }
        needs_you += usize::from(task.needs_you);
        if let Some(state_count) = counts.iter_mut().find(|entry| entry.at == task.state) {
            state_count.count += 1;
        }
        if filter.matches_state(task) {
            matching.push(MatchingTask {
                task,
                agent_rank: 0,
            });
        }
    }
    let total = matching.len();
    let priced = matching.iter().filter_map(|found| found.task.micro_usd);
    let micro_usd = priced.reduce(u64::saturating_add);
    // Sort only the window, because sorting a long list takes much longer than finding its parts.
    let (start, end) = (
        filter.offset.min(total),
        filter.offset.saturating_add(filter.limit).min(total),
    );
    if filter.sort == "agent" {
        rank_agents(&mut matching);
    }
    let compare = |a: &MatchingTask<'_>, b: &MatchingTask<'_>| filter.compare(a, b);
    if end < total {
        matching.select_nth_unstable_by(end, compare);
        matching.truncate(end);
    }
    if start > 0 && start < end {
        matching.select_nth_unstable_by(start, compare);
    }
    let mut window = matching.split_off(start);
    window.sort_unstable_by(compare);
    WindowSelection {
        ids: window.into_iter().map(|found| found.task.id).collect(),
        total,
        all,
        counts: counts.to_vec(),
        needs_you,
        micro_usd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;
    const NOW: Now = Now {
        fleet_ms: 0,
        unix_ms: 100 * HOUR_MS,
    };

    fn task(id: u64, state: DisplayState) -> ListedTask {
        ListedTask {
            id: TaskId(id),
            mission: None,
            agent: None,
            state,
            needs_you: state == DisplayState::Needs,
            is_over: state == DisplayState::Landed,
            since_unix_ms: id * HOUR_MS,
            micro_usd: None,
            text: format!("work {id}\nt{id}").into(),
            files: Box::default(),
        }
    }

    /// One task in each state, in an order that is not the order of the list.
    fn one_of_each() -> Vec<ListedTask> {
        let mut tasks: Vec<ListedTask> = DisplayState::OF_TASKS
            .into_iter()
            .enumerate()
            .map(|(nth, state)| task(nth as u64 + 1, state))
            .collect();
        tasks[3].agent = Some("codex-1".into());
        tasks[3].mission = Some(MissionId(2));
        tasks[3].micro_usd = Some(5);
        tasks[3].files = [Arc::from("src/Auth/login.rs")].into();
        tasks[5].agent = Some("codex-10".into());
        tasks[5].micro_usd = Some(9);
        tasks[6].agent = Some("codex-2".into());
        tasks
    }

    fn select(tasks: &[ListedTask], query: &TaskListQuery) -> WindowSelection {
        select_window(tasks.iter(), &query.parse(NOW).expect("a valid query"))
    }

    fn ids(tasks: &[ListedTask], text: &str) -> Vec<u64> {
        let query = TaskListQuery {
            text: text.into(),
            ..TaskListQuery::default()
        };
        let found = select(tasks, &query);
        assert_eq!(found.total, found.ids.len());
        found.ids.into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn tasks_that_need_a_person_come_first_and_landed_tasks_last_with_the_newest_first() {
        let mut tasks = one_of_each();
        tasks.push(task(9, DisplayState::Landed));
        let mut dismissed = task(10, DisplayState::Failed);
        dismissed.is_over = true;
        tasks.push(dismissed);
        // Backlog 1, waiting 2, working 3, needs 4, review 5, landing 6, landed 7 and 9, failed 8,
        // and 10 failed and was dismissed.
        assert_eq!(ids(&tasks, ""), [4, 5, 8, 3, 6, 2, 1, 10, 9, 7]);
    }

    #[test]
    fn conditions_select_tasks() {
        let tasks = one_of_each();
        for (text, expected) in [
            ("work 4", vec![4]),
            ("T4", vec![4]),
            ("t4 nothing", vec![]),
            ("WORK agent:Codex-1", vec![4]),
            ("agent:codex", vec![]),
            ("mission:m2", vec![4]),
            ("file:auth/", vec![4]),
            ("is:needs", vec![4]),
            ("is:needs-you", vec![4]),
            ("is:landing,landed", vec![6, 7]),
            ("newer:93h", vec![8, 7]),
            ("older:99h", vec![1]),
            ("note:4", vec![]),
        ] {
            assert_eq!(ids(&tasks, text), expected, "{text}");
        }
    }

    #[test]
    fn parameters_of_the_address_mean_the_same_as_conditions_in_the_text() {
        let tasks = one_of_each();
        let query = |name: &str, value: &str| -> TaskListQuery {
            let fields = serde_json::json!({ name: value });
            serde_json::from_value(fields).expect("a query")
        };
        for (name, value, expected) in [
            ("at", "needs", vec![4]),
            ("agent", "codex-1", vec![4]),
            ("mission", "M2", vec![4]),
            ("file", "login", vec![4]),
            ("age", ">99h", vec![1]),
            ("sort", "-id", vec![8, 7, 6, 5, 4, 3, 2, 1]),
            ("sort", "agent", vec![4, 7, 6, 5, 8, 3, 2, 1]),
            ("sort", "-cost", vec![6, 4, 5, 8, 3, 2, 1, 7]),
            ("sort", "since", vec![8, 7, 6, 5, 4, 3, 2, 1]),
        ] {
            let found = select(&tasks, &query(name, value));
            let found: Vec<u64> = found.ids.iter().map(|id| id.0).collect();
            assert_eq!(found, expected, "{name}={value}");
        }
        for (name, value) in [
            ("at", "sleeping"),
            ("mission", "three"),
            ("age", "2h"),
            ("text", "newer:soon"),
            ("sort", "colour"),
        ] {
            let problem = query(name, value).parse(NOW).expect_err(value);
            assert_eq!(problem.status, 400, "{name}={value}");
        }
    }

    /// The counts are those of all matching tasks, and a condition on the state does not change
    /// them, so that a person sees how many tasks another state has.
    #[test]
    fn counts_are_exact_for_every_window_and_windows_join_without_gaps() {
        let tasks: Vec<ListedTask> = (1..=1_000)
            .map(|id| task(id, DisplayState::OF_TASKS[(id * 7 % 8) as usize]))
            .collect();
        for sort in ["", "subject", "-since"] {
            let mut joined = Vec::new();
            for offset in (0..1_100).step_by(90) {
                let query = TaskListQuery {
                    at: "waiting,landed,needs".into(),
                    sort: sort.into(),
                    offset,
                    limit: Some(90),
                    ..TaskListQuery::default()
                };
                let found = select(&tasks, &query);
                assert_eq!((found.total, found.all, found.needs_you), (375, 1_000, 125));
                assert!(found.counts.iter().all(|entry| entry.count == 125));
                joined.extend(found.ids);
            }
            let unique: BTreeSet<TaskId> = joined.iter().copied().collect();
            assert_eq!((joined.len(), unique.len()), (375, 375), "{sort}");
            let whole = TaskListQuery {
                at: "waiting,landed,needs".into(),
                sort: sort.into(),
                limit: Some(MAX_LIMIT),
                ..TaskListQuery::default()
            };
            assert_eq!(select(&tasks, &whole).ids, joined[..MAX_LIMIT], "{sort}");
        }
    }
}
