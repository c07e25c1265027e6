//! Views of the inbox (the list of what needs a person), and the choices that a person has for each
//! item.

use regatta_core::agent_protocol::{AgentRequest, RequestContent};
use regatta_core::board::Board;
use regatta_core::budget::{self, Ceiling};
use regatta_core::ids::{AgentName, Now, ProjectName, TaskId};
use regatta_core::inbox::{self, InboxCause, InboxItem, InboxKind, OpenItem};
use regatta_core::plural;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An item of the inbox: something that a person must decide or do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InboxView {
    /// The id of the item: a request such as `Q7`, a task `T9`, an attempt `A5`, `budget:day`,
    /// `agent:NAME`, `bridge:SERVICE:AGENT`, or the id of a conversation that somebody wants to
    /// begin.
    pub id: String,
    pub kind: InboxKind,
    /// The task that the item is about; empty if the item is not about a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The project that the item is about; empty if the item concerns all projects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
    pub agent: Option<AgentName>,
    /// The question or report of the item, in one line.
    pub subject: String,
    /// The reason why a person must decide about this item.
    pub why: String,
    /// The answers from which the person can choose; empty if any text is allowed.
    pub choices: Vec<String>,
    /// The choices with the API calls that carry them out. Empty for a request of an agent, because
    /// all such requests are answered with the verb `inbox.answer`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<InboxChoice>,
    pub since_wall: u64,
    pub escalated: bool,
    /// The time until which the item is hidden, in milliseconds since 1970; empty if the item is
    /// not hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed_until_wall: Option<u64>,
    /// The complete request, if the item is a request of an agent; otherwise empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<AgentRequest>,
    /// The cause of the item. Items with the same kind and cause are one group with one answer.
    /// Empty if no other item can have the same cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<InboxCause>,
}

/// A choice that a person has for an inbox item, with the API call that carries out the choice. All
/// interfaces make the same call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InboxChoice {
    pub choice: String,
    /// The verb (API operation) that carries out the choice. `input` is its input.
    pub verb: String,
    pub input: Value,
    /// JSON pointer to the place in `input` where a text of the person is inserted; empty if the
    /// verb accepts no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// The shell command that carries out the same choice.
    pub line: String,
    /// True if the choice cannot be undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grave: bool,
}

/// The time for which the choice `leave` hides an item, in milliseconds. The choice `wait` hides an
/// item for the shorter time `WAIT_SNOOZE_MS`.
const LEAVE_SNOOZE_MS: u64 = 24 * 3_600_000;
const WAIT_SNOOZE_MS: u64 = 15 * 60_000;

impl InboxView {
    /// Returns all open inbox items, the longest waiting first and hidden items last. With
    /// `project`, returns only the items of that project and the items that concern all projects.
    pub fn list(board: &Board, project: Option<&ProjectName>, now: Now) -> Vec<InboxView> {
        InboxView::selected(board, project, now)
            .map(|open_item| InboxView::new(board, open_item))
            .collect()
    }

    /// Returns the items that [`InboxView::list`] shows, in the same order.
    pub fn selected(
        board: &Board,
        project: Option<&ProjectName>,
        now: Now,
    ) -> impl Iterator<Item = OpenItem> {
        let all = inbox::open_items(board, now).into_iter();
        // Items that belong to no project, such as an exhausted budget, are shown in every project.
        let is_selected = move |open_item: &OpenItem| {
            open_item.project.is_none()
                || project.is_none_or(|only| open_item.project.as_ref() == Some(only))
        };
        all.filter(is_selected)
    }

    /// Builds the view of an item, with the choices that a person has.
    pub fn new(board: &Board, open_item: OpenItem) -> InboxView {
        let ways = item_choices(board, &open_item);
        let choices = match open_item
            .request
            .as_ref()
            .map(|agent_request| &agent_request.content)
        {
            Some(RequestContent::Permission { .. }) => vec!["allow".to_owned(), "deny".to_owned()],
            Some(RequestContent::Question { choices, .. }) => choices.clone(),
            None => ways
                .iter()
                .map(|inbox_choice| inbox_choice.choice.clone())
                .collect(),
        };
        InboxView {
            id: open_item.item.to_string(),
            kind: open_item.kind,
            task: open_item.task,
            project: open_item.project,
            agent: open_item.agent,
            subject: open_item.subject,
            why: open_item.why,
            choices,
            ways,
            since_wall: open_item.since_unix_ms,
            escalated: open_item.is_escalated,
            snoozed_until_wall: open_item.snoozed.map(|snooze| snooze.deadline_unix_ms),
            ask: open_item.request,
            cause: open_item.cause,
        }
    }

    /// Returns true if the item is not hidden at present.
    pub fn is_shown(&self) -> bool {
        self.snoozed_until_wall.is_none()
    }

    /// Returns whether work is blocked until somebody answers this item.
    pub fn is_blocking(&self) -> bool {
        matches!(
            self.kind,
            InboxKind::Permission | InboxKind::Question | InboxKind::Review | InboxKind::Task
        )
    }

    /// Returns the key of the item's group, which is its kind with its cause. Items of one group can
    /// be answered together, such as identical requests, or agents that cannot work for the same
    /// reason.
    pub fn group_key(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{} {:?} {}", self.kind, cause.class, cause.detail),
            None => self.id.clone(),
        }
    }

    /// Returns the choice that a person typed. `word` is the choice's name, its first word, or its
    /// number.
    pub fn find_choice(&self, word: &str) -> Option<&InboxChoice> {
        let nth = word
            .parse::<usize>()
            .ok()
            .and_then(|parse| self.ways.get(parse.checked_sub(1)?));
        let named = || {
            self.ways
                .iter()
                .find(|inbox_choice| inbox_choice.choice.eq_ignore_ascii_case(word))
        };
        let begins = |inbox_choice: &&InboxChoice| {
            !word.is_empty() && inbox_choice.choice.split(' ').next() == Some(word)
        };
        nth.or_else(named).or_else(|| self.ways.iter().find(begins))
    }
}

fn new_choice(choice: &str, verb: &str, input: Value, line: String) -> InboxChoice {
    InboxChoice {
        choice: choice.into(),
        verb: verb.into(),
        input,
        words: None,
        line,
        grave: false,
    }
}

/// Returns the choices for an item that is not a request of an agent, with the API call of each.
fn item_choices(board: &Board, open_item: &OpenItem) -> Vec<InboxChoice> {
    let id = &open_item.item;
    let id_input = || json!({ "id": id });
    let text_input = || json!({ "id": id, "text": "" });
    let with_text = |inbox_choice: InboxChoice| InboxChoice {
        words: Some("/text".into()),
        ..inbox_choice
    };
    let irreversible = |inbox_choice: InboxChoice| InboxChoice {
        grave: true,
        ..inbox_choice
    };
    let hide = |choice: &str, ms: u64| {
        let time = if ms == LEAVE_SNOOZE_MS { "24h" } else { "15m" };
        new_choice(
            choice,
            "inbox.snooze",
            json!({ "id": id, "ms": ms }),
            format!("regatta inbox snooze {id} {time}"),
        )
    };
    let task = match open_item.item {
        InboxItem::Task(task) => board.tasks.get(&task).or_else(|| board.failed.get(&task)),
        _ => None,
    };
    match open_item.kind {
        InboxKind::Permission | InboxKind::Question => vec![],
        InboxKind::Review => vec![
            new_choice("land", "land", id_input(), format!("regatta land {id}")),
            with_text(new_choice(
                "revise",
                "revise",
                text_input(),
                format!("regatta revise {id} '…'"),
            )),
            irreversible(new_choice(
                "drop",
                "drop",
                text_input(),
                format!("regatta drop {id}"),
            )),
        ],
        InboxKind::Task => {
            let mut all = vec![new_choice(
                "retry",
                "retry",
                id_input(),
                format!("regatta retry {id}"),
            )];
            if task.is_some_and(|task| task.submission.is_some()) {
                all.push(new_choice(
                    "land",
                    "land",
                    id_input(),
                    format!("regatta land {id}"),
                ));
            }
            all.push(with_text(new_choice(
                "tell",
                "tell",
                text_input(),
                format!("regatta tell {id} '…'"),
            )));
            let cancel = new_choice(
                "cancel",
                "task.cancel",
                json!({ "task": id }),
                format!("regatta task cancel {id}"),
            );
            all.push(irreversible(cancel));
            all
        }
        InboxKind::Landing => vec![
            new_choice("land", "land", id_input(), format!("regatta land {id}")),
            irreversible(new_choice(
                "drop",
                "drop",
                text_input(),
                format!("regatta drop {id}"),
            )),
        ],
        InboxKind::Failed => {
            let drop = new_choice("drop", "drop", text_input(), format!("regatta drop {id}"));
            // Offer a retry only for ordinary tasks. The work of a lead is started again from its
            // mission instead, and the work in a conversation from its thread.
            let can_retry = task.is_none_or(|task| task.is_polled());
            let retry = new_choice("retry", "retry", id_input(), format!("regatta retry {id}"));
            if can_retry {
                vec![retry, drop]
            } else {
                vec![drop]
            }
        }
        InboxKind::Stuck => vec![
            hide("wait", WAIT_SNOOZE_MS),
            with_text(new_choice(
                "tell",
                "tell",
                text_input(),
                format!("regatta tell {id} '…'"),
            )),
            new_choice("stop", "stop", id_input(), format!("regatta stop {id}")),
        ],
        InboxKind::Budget => {
            let InboxItem::Budget(scope) = &open_item.item else {
                return vec![];
            };
            let doubled = board
                .budgets
                .get(scope)
                .map(|budget| doubled_ceiling(&budget.ceiling))
                .unwrap_or_default();
            let (words, flags) = ceiling_texts(&doubled);
            let line = format!("regatta budget set {scope}{flags}");
            let input = json!({ "scope": scope, "ceiling": doubled });
            vec![
                new_choice(&format!("raise to {words}"), "budget.set", input, line),
                hide("leave", LEAVE_SNOOZE_MS),
            ]
        }
        InboxKind::Credential if matches!(open_item.item, InboxItem::Bridge(_)) => {
            vec![hide("leave", LEAVE_SNOOZE_MS)]
        }
        InboxKind::Credential | InboxKind::Settings => {
            let Some(agent) = &open_item.agent else {
                return vec![];
            };
            vec![new_choice(
                "resume",
                "resume",
                json!({ "id": agent }),
                format!("regatta resume {agent}"),
            )]
        }
        InboxKind::Request => {
            let id_input = || json!({ "conversation": id });
            vec![
                new_choice(
                    "accept",
                    "conversation.accept",
                    id_input(),
                    format!("regatta bridge accept {id}"),
                ),
                new_choice(
                    "refuse",
                    "conversation.refuse",
                    id_input(),
                    format!("regatta bridge refuse {id}"),
                ),
            ]
        }
    }
}

/// Returns a budget's limits, each doubled.
fn doubled_ceiling(ceiling: &Ceiling) -> Ceiling {
    let twice = |n: Option<u64>| n.map(|n| n.saturating_mul(2));
    Ceiling {
        tokens: twice(ceiling.tokens),
        micro_usd: twice(ceiling.micro_usd),
        turns: twice(ceiling.turns),
        attempts: twice(ceiling.attempts),
        wall_ms: twice(ceiling.wall_ms),
    }
}

/// Returns a budget's limits as a text, and as options of `regatta budget set`.
fn ceiling_texts(ceiling: &Ceiling) -> (String, String) {
    let (mut words, mut flags) = (Vec::new(), String::new());
    if let Some(tokens) = ceiling.tokens {
        words.push(plural::count(tokens, "token"));
        flags += &format!(" --tokens {tokens}");
    }
    if let Some(money) = ceiling.micro_usd {
        words.push(budget::format_dollars(money));
        flags += &format!(
            " --usd {}",
            budget::format_dollars(money).trim_start_matches('$')
        );
    }
    if let Some(turns) = ceiling.turns {
        words.push(plural::count(turns, "turn"));
        flags += &format!(" --turns {turns}");
    }
    if let Some(attempts) = ceiling.attempts {
        words.push(plural::count(attempts, "attempt"));
        flags += &format!(" --attempts {attempts}");
    }
    if let Some(ms) = ceiling.wall_ms {
        words.push(regatta_core::refusal::seconds(ms));
        flags += &format!(" --time {}ms", ms);
    }
    (words.join(", "), flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::InboxGroup;
    use regatta_core::command::{Actor, Command, Request, decide};
    use regatta_core::inbox::CauseClass;

    /// Returns an open item of this kind with no further details.
    fn open(kind: InboxKind, item: &str) -> OpenItem {
        OpenItem {
            item: item.parse().unwrap(),
            kind,
            task: None,
            project: None,
            agent: AgentName::new("ada").ok(),
            subject: "what".into(),
            why: "why".into(),
            since_unix_ms: 1,
            is_escalated: false,
            snoozed: None,
            request: None,
            cause: None,
        }
    }

    /// Returns a board with a budget for the day.
    fn board_with_budget() -> Board {
        let ceiling = Ceiling {
            micro_usd: Some(2_500_000),
            wall_ms: Some(90_000),
            ..Ceiling::default()
        };
        let command = Command::SetBudget {
            scope: budget::BudgetScope::Day,
            ceiling,
        };
        let request = Request {
            by: Actor::Regatta,
            key: None,
            command,
        };
        decide(&Board::default(), request, Now::default())
            .unwrap()
            .board
    }

    /// Every choice is an existing verb with an input that it accepts, and a shell command. A
    /// choice can be selected by its name, by its first word, and by its number.
    #[test]
    fn every_choice_of_an_item_can_be_executed() {
        let board = board_with_budget();
        let items = [
            (InboxKind::Review, "T9", vec!["land", "revise", "drop"]),
            (InboxKind::Task, "T9", vec!["retry", "tell", "cancel"]),
            (InboxKind::Landing, "T9", vec!["land", "drop"]),
            (InboxKind::Failed, "T9", vec!["retry", "drop"]),
            (InboxKind::Stuck, "A5", vec!["wait", "tell", "stop"]),
            (
                InboxKind::Budget,
                "budget:day",
                vec!["raise to $5.00, 3 min", "leave"],
            ),
            (InboxKind::Credential, "agent:ada", vec!["resume"]),
            (InboxKind::Settings, "agent:ada", vec!["resume"]),
            (InboxKind::Credential, "bridge:slack:ada", vec!["leave"]),
            (InboxKind::Request, "V3", vec!["accept", "refuse"]),
            (InboxKind::Permission, "Q7", vec![]),
            (InboxKind::Question, "Q7", vec![]),
        ];
        for kind in InboxKind::ALL {
            assert!(
                items.iter().any(|(tested, ..)| *tested == kind),
                "{kind:?} is not tested"
            );
        }
        for (kind, item, choices) in items {
            let inbox = InboxView::new(&board, open(kind, item));
            assert_eq!(
                (
                    inbox
                        .ways
                        .iter()
                        .map(|inbox_choice| inbox_choice.choice.as_str())
                        .collect::<Vec<_>>(),
                    inbox.kind
                ),
                (choices, kind)
            );
            for (nth, way) in inbox.ways.iter().enumerate() {
                let mut input = way.input.clone();
                if let Some(place) = &way.words {
                    *input.pointer_mut(place).expect("words have a place") = json!("some words");
                }
                let call = crate::Call::parse(&way.verb, input.to_string().as_bytes());
                assert!(call.is_ok(), "{kind:?} {}: {:?}", way.choice, call.err());
                assert!(way.line.starts_with("regatta "), "{}", way.line);
                let word = way.choice.split(' ').next().unwrap();
                for said in [way.choice.as_str(), word, &(nth + 1).to_string()] {
                    assert_eq!(inbox.find_choice(said), Some(way), "{said}");
                }
            }
            assert_eq!(
                (
                    inbox.find_choice("nothing"),
                    inbox.find_choice(""),
                    inbox.find_choice("0"),
                    inbox.find_choice("99")
                ),
                (None, None, None, None)
            );
        }
        let raise = item_choices(&board, &open(InboxKind::Budget, "budget:day")).remove(0);
        assert_eq!(
            raise.line,
            "regatta budget set day --usd 5.00 --time 180000ms"
        );
    }

    /// Equal causes are one group. An item without a cause has its own group. A snoozed item is not
    /// awake.
    #[test]
    fn equal_causes_are_one_group_and_snoozed_items_are_not_awake() {
        let cause = |class, detail: &str| {
            Some(InboxCause {
                class,
                detail: detail.to_owned(),
                text: format!("the text of {detail}"),
                fix: String::new(),
                noun: class.noun().to_owned(),
            })
        };
        let view = |kind, id: &str, cause| {
            let open_item = OpenItem {
                cause,
                ..open(kind, id)
            };
            InboxView::new(&Board::default(), open_item)
        };
        let same = |id: &str| view(InboxKind::Question, id, cause(CauseClass::Request, "what"));
        let model =
            |id: &str, model| view(InboxKind::Settings, id, cause(CauseClass::Model, model));
        let all = [
            same("Q7"),
            model("agent:amy", "opus-5"),
            same("Q8"),
            view(
                InboxKind::Question,
                "Q9",
                cause(CauseClass::Request, "which"),
            ),
            view(
                InboxKind::Permission,
                "Q10",
                cause(CauseClass::Request, "what"),
            ),
            view(InboxKind::Review, "T8", None),
            view(InboxKind::Review, "T9", None),
            model("agent:bob", "opus-5"),
            model("agent:cid", "opus-6"),
        ];
        let groups = InboxGroup::list(&all);
        let ids: Vec<Vec<&str>> = groups
            .iter()
            .map(|group| group.items.iter().map(|item| item.id.as_str()).collect())
            .collect();
        assert_eq!(
            ids,
            [
                vec!["Q7", "Q8"],
                vec!["agent:amy", "agent:bob"],
                vec!["Q9"],
                vec!["Q10"],
                vec!["T8"],
                vec!["T9"],
                vec!["agent:cid"]
            ]
        );
        assert_eq!(groups[0].headline(), "what × 2");
        assert_eq!(groups[1].headline(), "2 agents: the text of opus-5");
        assert_eq!(groups[1].advice(), "agent:amy, agent:bob");
        assert_eq!(
            groups[1].shared_command().as_deref(),
            Some("regatta resume amy bob")
        );
        assert_eq!(
            (groups[0].shared_command(), groups[6].shared_command()),
            (None, None)
        );
        let snoozed = Some(regatta_core::inbox::Snooze {
            deadline_fleet_ms: 5,
            deadline_unix_ms: 7,
        });
        let later = OpenItem {
            snoozed,
            ..open(InboxKind::Review, "T9")
        };
        let later = InboxView::new(&Board::default(), later);
        assert_eq!(
            (
                all[0].is_shown(),
                later.is_shown(),
                later.snoozed_until_wall
            ),
            (true, false, Some(7))
        );
        for kind in InboxKind::ALL {
            let is_expected = matches!(
                kind,
                InboxKind::Permission | InboxKind::Question | InboxKind::Review | InboxKind::Task
            );
            let is_blocking = view(kind, "Q7", None).is_blocking();
            assert_eq!(is_blocking, is_expected, "{kind:?}");
        }
    }
}
