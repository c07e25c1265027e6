//! The page's list of agents: which agents match a query, how many there are in each state and of
//! each provider, and in which order.
//!
//! As with tasks, the page shows a window of the list, and all counts are exact.

use std::cmp::Ordering;

use regatta_core::display::{DisplayState, count_each};
use regatta_core::ids::AttemptId;
use regatta_core::natural_sort;
use serde::{Deserialize, Serialize};

use crate::live_view::AgentLaneView;
use crate::problem::Problem;
use crate::task_list::StateCount;

/// Number of rows in a window if the query does not say it, and the maximum.
const DEFAULT_LIMIT: usize = 60;
const MAX_LIMIT: usize = 300;
/// Used part of a context, in percent, from which the next instructions should be short, and from
/// which the program will soon compact its context.
const FILLING_PERCENT: u32 = 60;
const FULL_PERCENT: u32 = 80;
/// The names by which the list can be sorted. A minus sign before a name reverses the order.
const SORT_NAMES: [&str; 7] = [
    "at", "name", "provider", "since", "slots", "context", "today",
];

/// A window of the page's list of agents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentWindow {
    /// The number of the last event that the window includes.
    pub revision: u64,
    /// Number of agents that match the query.
    pub total: usize,
    /// Number of all agents, without a query.
    pub all: usize,
    /// Number of agents in each state that match the query without its condition on the state.
    pub counts: Vec<StateCount>,
    /// Number of agents of each provider that match the query without its condition on the provider.
    pub providers: Vec<ProviderCount>,
    /// Position of the first row in the list.
    pub offset: usize,
    pub rows: Vec<AgentListRow>,
}

/// A number of agents of one provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderCount {
    pub provider: String,
    pub count: usize,
}

/// How full the context of an agent's model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ContextBand {
    Free,
    Filling,
    Full,
}

impl ContextBand {
    /// Returns the band of a used part in percent.
    pub fn from_percent(percent: u32) -> ContextBand {
        match percent {
            FULL_PERCENT.. => ContextBand::Full,
            FILLING_PERCENT.. => ContextBand::Filling,
            _ => ContextBand::Free,
        }
    }

    /// Returns what a person should do; empty if there is nothing to do.
    pub fn advice(self) -> &'static str {
        match self {
            ContextBand::Free => "",
            ContextBand::Filling => "filling up: keep the next instructions short",
            ContextBand::Full => "nearly full: a new task is better than more instructions",
        }
    }
}

/// A row of the page's list of agents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentListRow {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub lane: AgentLaneView,
    /// The tool that the agent's program uses now or used last, with its command or file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// The time when the agent's program last sent output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_wall: Option<u64>,
    /// The attempt that the agent works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<ContextBand>,
    /// What a person should do about the agent's context; empty if there is nothing to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

/// The query of the page's list of agents, as it stands in the address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentListQuery {
    /// Words that all occur in the agent's name, provider, model, task or activity.
    pub text: String,
    /// Names of states, separated by commas.
    pub at: String,
    pub provider: String,
    /// The exact name of the only agent.
    pub name: String,
    /// The column by which the list is sorted, with a minus sign for the reverse order.
    pub sort: String,
    pub offset: usize,
    pub limit: Option<usize>,
}

/// The agents of a window, with the counts of the whole list.
#[derive(Debug)]
pub struct AgentSelection {
    pub lanes: Vec<AgentLaneView>,
    pub total: usize,
    pub all: usize,
    pub counts: Vec<StateCount>,
    pub providers: Vec<ProviderCount>,
}

fn has_words(lane: &AgentLaneView, words: &[String]) -> bool {
    let task = lane.task.map(|id| id.to_string()).unwrap_or_default();
    let texts = [
        lane.agent.as_str(),
        &lane.provider,
        &lane.wanted,
        &lane.running,
        &task,
        &lane.word,
        &lane.text,
        &lane.subject,
    ];
    let text = texts.join(" ").to_lowercase();
    words.iter().all(|word| text.contains(&**word))
}

/// Compares two agents by a column. Agents whose value is unknown come last.
fn compare_by(sort: &str, a: &AgentLaneView, b: &AgentLaneView) -> Ordering {
    let known_first =
        |a: Option<u64>, b: Option<u64>| b.is_some().cmp(&a.is_some()).then_with(|| a.cmp(&b));
    match sort {
        "name" => natural_sort::compare(a.agent.as_str(), b.agent.as_str()),
        "provider" => a
            .provider
            .cmp(&b.provider)
            .then_with(|| a.wanted.cmp(&b.wanted)),
        "since" => b.since_wall.cmp(&a.since_wall),
        "slots" => a.capacity.current.cmp(&b.capacity.current),
        "context" => known_first(a.context.map(u64::from), b.context.map(u64::from)),
        "today" => known_first(a.micro_usd, b.micro_usd),
        _ => a.at.rank().cmp(&b.at.rank()),
    }
}

/// Selects the agents of a window, in order, and counts all agents that match.
pub fn select_agents(
    lanes: Vec<AgentLaneView>,
    query: &AgentListQuery,
) -> Result<AgentSelection, Problem> {
    let descending = query.sort.strip_prefix('-');
    let sort = descending.unwrap_or(&query.sort);
    if !sort.is_empty() && !SORT_NAMES.contains(&sort) {
        let what = format!("the list of agents cannot be sorted by {sort:?}");
        let hint = format!("sort by one of {}", SORT_NAMES.join(", "));
        return Err(Problem::new(400, "bad_input", what, hint));
    }
    let words: Vec<String> = query
        .text
        .split_whitespace()
        .map(str::to_lowercase)
        .collect();
    let states: Vec<&str> = query
        .at
        .split(',')
        .filter(|name| !name.is_empty())
        .collect();
    let all = lanes.len();
    let is_named =
        |lane: &AgentLaneView| query.name.is_empty() || lane.agent.as_str() == query.name;
    let has_state = |lane: &AgentLaneView| states.is_empty() || states.contains(&lane.at.name());
    let has_provider =
        |lane: &AgentLaneView| query.provider.is_empty() || lane.provider == query.provider;
    let found: Vec<AgentLaneView> = lanes
        .into_iter()
        .filter(|lane| is_named(lane) && has_words(lane, &words))
        .collect();
    let at = found.iter().filter(|lane| has_provider(lane));
    let counted = count_each(at.map(|lane| lane.at));
    let of_providers = found.iter().filter(|lane| has_state(lane));
    let providers = count_each(of_providers.map(|lane| lane.provider.clone()));
    let mut matching: Vec<AgentLaneView> = found
        .into_iter()
        .filter(|lane| has_state(lane) && has_provider(lane))
        .collect();
    matching.sort_by(|a, b| {
        let order = compare_by(sort, a, b);
        let order = if descending.is_some() {
            order.reverse()
        } else {
            order
        };
        order
            .then_with(|| a.at.rank().cmp(&b.at.rank()))
            .then_with(|| natural_sort::compare(a.agent.as_str(), b.agent.as_str()))
    });
    let states = DisplayState::ALL.into_iter();
    let states = states.filter(|at| counted.contains_key(at));
    Ok(AgentSelection {
        total: matching.len(),
        all,
        counts: states
            .map(|at| StateCount {
                at,
                count: counted[&at],
            })
            .collect(),
        providers: providers
            .into_iter()
            .map(|(provider, count)| ProviderCount { provider, count })
            .collect(),
        lanes: matching
            .into_iter()
            .skip(query.offset)
            .take(query.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use regatta_core::agent::Capacity;

    use super::*;

    fn lane(name: &str, provider: &str, at: DisplayState) -> AgentLaneView {
        AgentLaneView {
            agent: name.parse().expect("a name"),
            provider: provider.into(),
            at,
            word: at.label().into(),
            text: "cargo test".into(),
            task: None,
            subject: String::new(),
            since_wall: 1,
            capacity: Capacity {
                current: 0,
                max: 1,
                available: 1,
            },
            wanted: String::new(),
            running: String::new(),
            context: None,
            micro_usd: None,
            actions: vec![],
        }
    }

    fn fleet() -> Vec<AgentLaneView> {
        vec![
            lane("claude-10", "claude", DisplayState::Idle),
            lane("claude-2", "claude", DisplayState::Working),
            lane("codex-1", "codex", DisplayState::Needs),
            lane("codex-3", "codex", DisplayState::Idle),
        ]
    }

    #[test]
    fn agents_are_selected_sorted_and_counted() {
        let names = |query: AgentListQuery| -> Vec<String> {
            let found = select_agents(fleet(), &query).expect("a valid query");
            let lanes = found.lanes.iter();
            lanes.map(|lane| lane.agent.to_string()).collect()
        };
        let query = AgentListQuery::default;
        assert_eq!(
            names(query()),
            ["codex-1", "claude-2", "claude-10", "codex-3"]
        );
        let idle = AgentListQuery {
            at: "idle,needs".into(),
            provider: "codex".into(),
            ..query()
        };
        assert_eq!(names(idle.clone()), ["codex-1", "codex-3"]);
        let by_name = AgentListQuery {
            sort: "-name".into(),
            text: "C cargo".into(),
            limit: Some(2),
            offset: 1,
            ..query()
        };
        assert_eq!(names(by_name), ["codex-1", "claude-10"]);
        let found = select_agents(fleet(), &idle).expect("a valid query");
        assert_eq!((found.total, found.all), (2, 4));
        let counts: Vec<(DisplayState, usize)> = found
            .counts
            .iter()
            .map(|entry| (entry.at, entry.count))
            .collect();
        assert_eq!(counts, [(DisplayState::Needs, 1), (DisplayState::Idle, 1)]);
        let providers: Vec<(&str, usize)> = found
            .providers
            .iter()
            .map(|entry| (&*entry.provider, entry.count))
            .collect();
        assert_eq!(providers, [("claude", 1), ("codex", 2)]);
    }

    #[test]
    fn a_nearly_full_context_has_advice() {
        for (percent, band) in [
            (0, ContextBand::Free),
            (59, ContextBand::Free),
            (60, ContextBand::Filling),
            (79, ContextBand::Filling),
            (80, ContextBand::Full),
            (100, ContextBand::Full),
        ] {
            assert_eq!(ContextBand::from_percent(percent), band, "{percent}");
            assert_eq!(band.advice().is_empty(), band == ContextBand::Free);
        }
    }
}
