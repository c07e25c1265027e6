//! The data that the screen shows, and the position of the person. Nothing here draws or blocks.

use std::collections::BTreeMap;

use regatta_api::page::{
    Action, At, BarsView, ConversationPage, FilesView, HeadView, ItemView, LaneView, RowView, TaskPage, TeamPage,
    TrainView,
};
use regatta_api::view::CostView;
use regatta_core::ids::{ProjectName, TaskId};
use regatta_core::order::natural;
use serde::Deserialize;
use serde_json::Value;

use super::change::{Diff, Drafts, How};
use super::pane::Log;
use super::texts::{Events, Setup};

/// A page of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Now,
    Tasks,
    Queue,
    Files,
    Cost,
    Agents,
    Team,
    Conversations,
    Events,
    Setup,
    Task(TaskId),
}

/// The pages with their names and the keys that open them after `g`, as on the web page.
pub(super) const PAGES: [(char, Page, &str); 10] = [
    ('n', Page::Now, "Now"),
    ('t', Page::Tasks, "Tasks"),
    ('q', Page::Queue, "Queue"),
    ('f', Page::Files, "Files"),
    ('c', Page::Cost, "Cost"),
    ('a', Page::Agents, "Agents"),
    ('m', Page::Team, "Team"),
    ('v', Page::Conversations, "Conversations"),
    ('e', Page::Events, "Events"),
    ('s', Page::Setup, "Setup"),
];

impl Page {
    /// Returns the topic of the live stream that only this page needs.
    fn topic(self) -> Option<String> {
        match self {
            Page::Cost => Some("cost".into()),
            Page::Files => Some("files".into()),
            Page::Team => Some("teams".into()),
            Page::Conversations => Some("conversations".into()),
            Page::Task(id) => Some(id.to_string()),
            _ => None,
        }
    }
}

/// The list of a page that receives the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    Inbox,
    Lanes,
    Tasks,
    Queue,
}

/// The pane of a task's page that receives the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Log,
    Diff,
}

/// The state of the connection, which tells whether the data is current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// No data has arrived yet.
    Opening,
    Live,
    /// There is no connection to the daemon, for this reason.
    Away(String),
}

/// A dialog on top of the page.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Over {
    Help,
    /// Asks for a text that goes with an action.
    Words {
        action: Box<Action>,
        group: Vec<Action>,
        text: String,
    },
    /// A comment on a line of the diff, or on the whole. It is a draft until the work is sent back.
    Comment {
        place: Option<(String, usize)>,
        text: String,
    },
    /// Asks to confirm an action that cannot be undone.
    Sure {
        action: Box<Action>,
        group: Vec<Action>,
    },
    /// Asks for the text by which tasks are filtered.
    Filter {
        before: String,
    },
}

/// Work that a key press requests from the thread of the screen.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wish {
    Quit,
    /// Perform an action, or the same action for several equal requests.
    Do(Vec<Action>),
    /// Subscribe to other topics.
    Topics,
    /// Read a task's log or its diff.
    Log,
    Diff,
    /// Read events, or how the daemon's machine is set up.
    Events,
    Setup,
}

/// An entity in a frame: topic, key and value.
#[derive(Debug, Deserialize)]
struct Part {
    t: String,
    k: String,
    v: Value,
}

/// Entities that arrived together over the stream.
#[derive(Debug, Deserialize)]
pub(super) struct Frame {
    seq: u64,
    /// The daemon's date.
    at: u64,
    p: Vec<Part>,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) page: Page,
    pub(super) focus: Focus,
    pub(super) side: Side,
    pub(super) link: Link,
    /// The daemon's date of the data on the screen.
    pub(super) data_wall: Option<u64>,
    /// This machine's date, from which ages are computed.
    pub(super) now_wall: u64,
    pub(super) seq: u64,
    pub(super) head: Option<HeadView>,
    pub(super) items: BTreeMap<String, ItemView>,
    pub(super) lanes: BTreeMap<String, LaneView>,
    pub(super) bars: BTreeMap<String, BarsView>,
    pub(super) trains: BTreeMap<String, TrainView>,
    /// The project whose repository contains the current directory.
    pub(super) own_project: Option<ProjectName>,
    pub(super) rows: BTreeMap<String, RowView>,
    pub(super) cost: Option<CostView>,
    pub(super) files: BTreeMap<String, FilesView>,
    pub(super) teams: BTreeMap<String, TeamPage>,
    pub(super) talks: BTreeMap<String, ConversationPage>,
    pub(super) events: Events,
    pub(super) setup: Setup,
    pub(super) task: Option<TaskPage>,
    /// The group key of the selected inbox card.
    pub(super) chosen: Option<String>,
    /// The selected task.
    pub(super) row: Option<TaskId>,
    /// The scroll position of the focused list, if it has no selection.
    pub(super) scroll: usize,
    pub(super) filter: String,
    pub(super) over: Option<Over>,
    pub(super) toast: Option<(bool, String)>,
    /// Whether `g` was pressed, so that the next key selects a page.
    pub(super) going: bool,
    /// Frames that wait while the person has paused updates.
    pub(super) paused: Option<Vec<Frame>>,
    pub(super) log: Log,
    pub(super) diff: Diff,
    pub(super) how: How,
    /// Draft comments on each task's work.
    pub(super) drafts: BTreeMap<TaskId, Drafts>,
    pub(super) unicode: bool,
    pub(super) colour: bool,
}

/// The largest number of frames that wait during a pause. When it is reached, the pause ends.
const MOST_PAUSED: usize = 500;

/// Items that ask the same, longest waiting first.
pub(super) struct Group<'a> {
    pub(super) key: &'a str,
    pub(super) items: Vec<&'a ItemView>,
}

impl Model {
    pub(super) fn new(unicode: bool, colour: bool) -> Model {
        Model {
            page: Page::Now,
            focus: Focus::Inbox,
            side: Side::Log,
            link: Link::Opening,
            data_wall: None,
            now_wall: 0,
            seq: 0,
            head: None,
            items: BTreeMap::new(),
            lanes: BTreeMap::new(),
            bars: BTreeMap::new(),
            trains: BTreeMap::new(),
            own_project: None,
            rows: BTreeMap::new(),
            cost: None,
            files: BTreeMap::new(),
            teams: BTreeMap::new(),
            talks: BTreeMap::new(),
            events: Events::default(),
            setup: Setup::default(),
            task: None,
            chosen: None,
            row: None,
            scroll: 0,
            filter: String::new(),
            over: None,
            toast: None,
            going: false,
            paused: None,
            log: Log::default(),
            diff: Diff::default(),
            how: How::default(),
            drafts: BTreeMap::new(),
            unicode,
            colour,
        }
    }

    /// Returns the topics that the current page needs.
    pub(super) fn topics(&self) -> String {
        let own = self.page.topic().map_or(String::new(), |it| format!(",{it}"));
        format!("head,inbox,lanes,bars,queue,tasks{own}")
    }

    /// Applies a frame, or keeps it while updates are paused.
    pub(super) fn take(&mut self, frame: Frame) {
        self.link = Link::Live;
        match &mut self.paused {
            Some(waiting) => {
                if waiting.len() >= MOST_PAUSED {
                    // End the pause instead of using more and more memory.
                    self.unpause();
                    self.apply(frame);
                } else {
                    waiting.push(frame);
                }
            }
            None => self.apply(frame),
        }
    }

    pub(super) fn unpause(&mut self) {
        for frame in self.paused.take().unwrap_or_default() {
            self.apply(frame);
        }
    }

    /// Clears a topic before the daemon sends it again.
    pub(super) fn reset(&mut self, topic: &str) {
        match topic {
            "inbox" => self.items.clear(),
            "lanes" => self.lanes.clear(),
            "bars" => self.bars.clear(),
            "queue" => self.trains.clear(),
            "tasks" => self.rows.clear(),
            "head" => self.head = None,
            "cost" => self.cost = None,
            "files" => self.files.clear(),
            "teams" => self.teams.clear(),
            "conversations" => self.talks.clear(),
            _ => self.task = None,
        }
    }

    fn apply(&mut self, frame: Frame) {
        (self.seq, self.data_wall) = (frame.seq, Some(frame.at));
        for Part { t, k, v } in frame.p {
            match t.as_str() {
                "head" => self.head = read(v),
                "cost" => self.cost = read(v),
                "inbox" => put(&mut self.items, k, v),
                "lanes" => put(&mut self.lanes, k, v),
                "bars" => put(&mut self.bars, k, v),
                "queue" => put(&mut self.trains, k, v),
                "tasks" => put(&mut self.rows, k, v),
                "files" => put(&mut self.files, k, v),
                "teams" => put(&mut self.teams, k, v),
                "conversations" => put(&mut self.talks, k, v),
                _ => self.task = read(v),
            }
        }
        if self.chosen.as_ref().is_some_and(|it| !self.items.values().any(|item| item.group == *it)) {
            self.chosen = None;
        }
    }

    /// Removes drafts that were sent with successful actions.
    pub(super) fn sent(&mut self, actions: &[Action]) {
        for it in actions.iter().filter(|it| it.verb == "revise") {
            let id = it.input.get("id").and_then(Value::as_str).and_then(|it| it.parse().ok());
            let text = it.input.get("text").and_then(Value::as_str);
            if let Some(id) = id
                && self.drafts.get(&id).is_some_and(|it| Some(it.text().as_str()) == text)
            {
                self.drafts.remove(&id);
            }
        }
    }

    /// Records that the connection was lost. The data stays, and the screen shows its time.
    pub(super) fn lost(&mut self, why: String) {
        self.link = Link::Away(why);
    }

    /// Returns the inbox, grouped by request.
    pub(super) fn groups(&self) -> Vec<Group<'_>> {
        let mut items: Vec<&ItemView> = self.items.values().collect();
        items.sort_by_key(|it| (it.item.since_wall, it.item.id.clone()));
        let mut groups: Vec<Group<'_>> = Vec::new();
        for it in items {
            match groups.iter_mut().find(|group| group.key == it.group) {
                Some(group) => group.items.push(it),
                None => groups.push(Group { key: &it.group, items: vec![it] }),
            }
        }
        groups
    }

    /// Returns the group that digits answer: the selected one, or the only one.
    pub(super) fn chosen_group(&self) -> Option<Group<'_>> {
        let mut groups = self.groups();
        match &self.chosen {
            Some(key) => groups.into_iter().find(|it| it.key == key),
            None if groups.len() == 1 => groups.pop(),
            None => None,
        }
    }

    /// Returns the open request of a task's agent, if there is one.
    pub(super) fn asked_by(&self, task: TaskId) -> Option<&ItemView> {
        let asks = |it: &&ItemView| it.item.task == Some(task) && it.item.ask.is_some();
        self.items.values().filter(asks).min_by_key(|it| (it.item.since_wall, it.item.id.clone()))
    }

    /// Returns the tasks that pass the filter, most urgent first, then by number.
    pub(super) fn shown_rows(&self) -> Vec<&RowView> {
        let wanted = self.filter.to_lowercase();
        let passes = |it: &&RowView| {
            wanted.is_empty()
                || [it.id.to_string(), it.subject.clone(), it.word.clone(), it.text.clone()]
                    .iter()
                    .chain(it.agent.as_ref().map(ToString::to_string).iter())
                    .any(|part| part.to_lowercase().contains(&wanted))
        };
        let mut rows: Vec<&RowView> = self.rows.values().filter(passes).collect();
        // A failed task that is no longer in the inbox is not urgent.
        let asks = |row: &RowView| self.items.values().any(|item| item.item.task == Some(row.id));
        let urgency = |row: &RowView| if row.at == At::Failed && !asks(row) { At::Landed } else { row.at };
        rows.sort_by_key(|row| (urgency(row), row.id));
        rows
    }

    /// Returns the landing queues: the person's own project first, then queues that are not empty.
    pub(super) fn shown_trains(&self) -> Vec<&TrainView> {
        let mut trains: Vec<&TrainView> = self.trains.values().collect();
        let is_own = |train: &TrainView| Some(&train.queue.project) == self.own_project.as_ref();
        trains.sort_by_key(|train| (!is_own(train), train.queue.queue.is_empty()));
        trains
    }

    /// Returns the lanes, most urgent first.
    pub(super) fn shown_lanes(&self) -> Vec<&LaneView> {
        let mut lanes: Vec<&LaneView> = self.lanes.values().collect();
        lanes.sort_by(|a, b| a.at.cmp(&b.at).then_with(|| natural(a.agent.as_str(), b.agent.as_str())));
        lanes
    }

    /// Returns the current date, as far as this machine knows it.
    pub(super) fn wall(&self) -> u64 {
        self.now_wall
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

fn put<T: serde::de::DeserializeOwned>(into: &mut BTreeMap<String, T>, key: String, value: Value) {
    match read(value) {
        Some(it) => into.insert(key, it),
        None => into.remove(&key),
    };
}
