//! The model of `regatta watch`: the data that the screen shows, and the person's position in it.
//! Nothing here draws or blocks.

use std::collections::BTreeMap;

use regatta_api::live_view::{
    AgentLaneView, ConversationPage, FleetSummaryView, InboxItemView, LaneBarsView, PageAction,
    ProjectFilesView, QueuePage, TaskPage, TaskRowView, TeamPage,
};
use regatta_api::view::CostView;
use regatta_core::ids::{ProjectName, TaskId};
use regatta_core::natural_sort::compare;
use serde::Deserialize;
use serde_json::Value;

use super::diff::{DiffPane, DiffViewOptions, DraftReview};
use super::list_pages::{EventsPage, SetupPage};
use super::transcript::LogPane;

/// A page of `regatta watch`. One page is open at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScreenPage {
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
pub(super) const PAGES: [(char, ScreenPage, &str); 10] = [
    ('n', ScreenPage::Now, "Now"),
    ('t', ScreenPage::Tasks, "Tasks"),
    ('q', ScreenPage::Queue, "Queue"),
    ('f', ScreenPage::Files, "Files"),
    ('c', ScreenPage::Cost, "Cost"),
    ('a', ScreenPage::Agents, "Agents"),
    ('m', ScreenPage::Team, "Team"),
    ('v', ScreenPage::Conversations, "Conversations"),
    ('e', ScreenPage::Events, "Events"),
    ('s', ScreenPage::Setup, "Setup"),
];

impl ScreenPage {
    /// Returns the topic (kind of data) of the live stream that only this page needs, if there is
    /// such a topic.
    fn topic(self) -> Option<String> {
        match self {
            ScreenPage::Cost => Some("cost".into()),
            ScreenPage::Files => Some("files".into()),
            ScreenPage::Team => Some("teams".into()),
            ScreenPage::Conversations => Some("conversations".into()),
            ScreenPage::Task(id) => Some(id.to_string()),
            _ => None,
        }
    }
}

/// The list that has the focus: the keys select a row in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListFocus {
    Inbox,
    Lanes,
    Tasks,
    Queue,
}

/// The pane of a task's page that has the focus: the keys scroll it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskPane {
    Log,
    Diff,
}

/// The state of the connection to the daemon. Only in the state `Live` is the data on the screen
/// current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// No data has arrived yet.
    Connecting,
    Live,
    /// The connection to the daemon was lost, for this reason.
    Disconnected(String),
}

/// A dialog on top of the page.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Dialog {
    Help,
    /// Asks for the text that an action needs, such as the instructions for the action Revise.
    /// `group` contains the action once for each item to which it applies.
    ActionText {
        action: Box<PageAction>,
        group: Vec<PageAction>,
        text: String,
    },
    /// Asks for a comment on the work: on a line of the diff (path and number), or on the whole if
    /// `place` is `None`. The comment is a draft until the work is sent back.
    Comment {
        place: Option<(String, usize)>,
        text: String,
    },
    /// Asks the person to confirm an action that cannot be undone.
    Confirm {
        action: Box<PageAction>,
        group: Vec<PageAction>,
    },
    /// Asks for the text by which tasks are filtered. `previous` is the filter to return to on
    /// Escape.
    Filter {
        previous: String,
    },
}

/// Work that the thread of the screen must do after a key press, such as reading a diff.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ScreenRequest {
    Quit,
    /// Perform an action, or the same action for several items that ask for the same thing.
    Perform(Vec<PageAction>),
    /// Subscribe to the topics of the live stream that the open page needs.
    SubscribeTopics,
    /// Read the log of the agent's program that works on the open task.
    ReadLog,
    /// Read the diff of the open task's work.
    ReadDiff,
    /// Read the events that the page Events shows.
    ReadEvents,
    /// Read the checks, bridges and policy rules that the page Setup shows.
    ReadSetup,
}

/// One changed piece of data in a frame: its topic (such as `tasks`), its key in the topic, and its
/// new value.
#[derive(Debug, Deserialize)]
struct FrameEntity {
    #[serde(rename = "t")]
    topic: String,
    #[serde(rename = "k")]
    key: String,
    #[serde(rename = "v")]
    value: Value,
}

/// A frame: changed data that arrived together over the live stream. `seq` is the revision that the
/// data reflects.
#[derive(Debug, Deserialize)]
pub(super) struct LiveFrame {
    seq: u64,
    /// The time at which the daemon sent the frame, by the daemon's clock.
    #[serde(rename = "at")]
    sent_unix_ms: u64,
    #[serde(rename = "p")]
    entities: Vec<FrameEntity>,
}

#[derive(Debug)]
pub(super) struct ScreenModel {
    pub(super) page: ScreenPage,
    pub(super) focus: ListFocus,
    pub(super) pane: TaskPane,
    pub(super) connection: ConnectionState,
    /// The time at which the daemon sent the data on the screen, by the daemon's clock; `None`
    /// before the first data.
    pub(super) data_unix_ms: Option<u64>,
    /// The current time of this machine, from which ages are computed.
    pub(super) now_unix_ms: u64,
    pub(super) seq: u64,
    pub(super) head: Option<FleetSummaryView>,
    pub(super) items: BTreeMap<String, InboxItemView>,
    pub(super) lanes: BTreeMap<String, AgentLaneView>,
    pub(super) lane_bars: BTreeMap<String, LaneBarsView>,
    pub(super) queues: BTreeMap<String, QueuePage>,
    /// The project whose repository contains the current directory, if there is one.
    pub(super) own_project: Option<ProjectName>,
    pub(super) task_rows: BTreeMap<String, TaskRowView>,
    pub(super) cost: Option<CostView>,
    pub(super) files: BTreeMap<String, ProjectFilesView>,
    pub(super) teams: BTreeMap<String, TeamPage>,
    pub(super) conversations: BTreeMap<String, ConversationPage>,
    pub(super) events: EventsPage,
    pub(super) setup: SetupPage,
    pub(super) task: Option<TaskPage>,
    /// The key of the selected group of inbox items.
    pub(super) selected_group_key: Option<String>,
    /// The selected task in the list of tasks.
    pub(super) selected_task: Option<TaskId>,
    /// The scroll position of the focused list, if it has no selection.
    pub(super) scroll: usize,
    pub(super) filter: String,
    pub(super) dialog: Option<Dialog>,
    pub(super) toast: Option<(bool, String)>,
    /// True if `g` was pressed, so that the next key selects a page.
    pub(super) is_choosing_page: bool,
    /// The frames (changed data) that arrived while the person has paused updates; `None` if
    /// updates are not paused.
    pub(super) paused_frames: Option<Vec<LiveFrame>>,
    pub(super) log: LogPane,
    pub(super) diff: DiffPane,
    pub(super) diff_options: DiffViewOptions,
    /// The person's draft comments, by the task whose work they are about.
    pub(super) drafts: BTreeMap<TaskId, DraftReview>,
    pub(super) is_unicode: bool,
    pub(super) has_colour: bool,
}

/// The maximum number of frames (changed data that arrived together) that wait during a pause. At
/// this number the pause ends by itself.
const MAX_PAUSED_FRAMES: usize = 500;

/// Inbox items that ask for the same thing, so that one answer is enough. The longest waiting item
/// is first.
pub(super) struct InboxGroup<'a> {
    pub(super) key: &'a str,
    pub(super) items: Vec<&'a InboxItemView>,
}

impl ScreenModel {
    pub(super) fn new(is_unicode: bool, has_colour: bool) -> ScreenModel {
        ScreenModel {
            page: ScreenPage::Now,
            focus: ListFocus::Inbox,
            pane: TaskPane::Log,
            connection: ConnectionState::Connecting,
            data_unix_ms: None,
            now_unix_ms: 0,
            seq: 0,
            head: None,
            items: BTreeMap::new(),
            lanes: BTreeMap::new(),
            lane_bars: BTreeMap::new(),
            queues: BTreeMap::new(),
            own_project: None,
            task_rows: BTreeMap::new(),
            cost: None,
            files: BTreeMap::new(),
            teams: BTreeMap::new(),
            conversations: BTreeMap::new(),
            events: EventsPage::default(),
            setup: SetupPage::default(),
            task: None,
            selected_group_key: None,
            selected_task: None,
            scroll: 0,
            filter: String::new(),
            dialog: None,
            toast: None,
            is_choosing_page: false,
            paused_frames: None,
            log: LogPane::default(),
            diff: DiffPane::default(),
            diff_options: DiffViewOptions::default(),
            drafts: BTreeMap::new(),
            is_unicode,
            has_colour,
        }
    }

    /// Returns the topics (kinds of data) of the live stream that the open page needs, separated by
    /// commas.
    pub(super) fn topics(&self) -> String {
        let page_topic = self
            .page
            .topic()
            .map_or(String::new(), |page| format!(",{page}"));
        format!("head,inbox,lanes,bars,queue,tasks{page_topic}")
    }

    /// Applies a frame (changed data that arrived together), or keeps the frame while updates are
    /// paused.
    pub(super) fn on_frame(&mut self, frame: LiveFrame) {
        self.connection = ConnectionState::Live;
        match &mut self.paused_frames {
            Some(waiting) => {
                if waiting.len() >= MAX_PAUSED_FRAMES {
                    // End the pause of updates instead of using more and more memory for waiting
                    // frames.
                    self.resume_updates();
                    self.apply_frame(frame);
                } else {
                    waiting.push(frame);
                }
            }
            None => self.apply_frame(frame),
        }
    }

    pub(super) fn resume_updates(&mut self) {
        for frame in self.paused_frames.take().unwrap_or_default() {
            self.apply_frame(frame);
        }
    }

    /// Deletes the data of a topic, because the daemon is about to send all data of the topic
    /// again.
    pub(super) fn clear_topic(&mut self, topic: &str) {
        match topic {
            "inbox" => self.items.clear(),
            "lanes" => self.lanes.clear(),
            "bars" => self.lane_bars.clear(),
            "queue" => self.queues.clear(),
            "tasks" => self.task_rows.clear(),
            "head" => self.head = None,
            "cost" => self.cost = None,
            "files" => self.files.clear(),
            "teams" => self.teams.clear(),
            "conversations" => self.conversations.clear(),
            _ => self.task = None,
        }
    }

    fn apply_frame(&mut self, frame: LiveFrame) {
        (self.seq, self.data_unix_ms) = (frame.seq, Some(frame.sent_unix_ms));
        for FrameEntity { topic, key, value } in frame.entities {
            match topic.as_str() {
                "head" => self.head = parse_value(value),
                "cost" => self.cost = parse_value(value),
                "inbox" => insert_parsed(&mut self.items, key, value),
                "lanes" => insert_parsed(&mut self.lanes, key, value),
                "bars" => insert_parsed(&mut self.lane_bars, key, value),
                "queue" => insert_parsed(&mut self.queues, key, value),
                "tasks" => insert_parsed(&mut self.task_rows, key, value),
                "files" => insert_parsed(&mut self.files, key, value),
                "teams" => insert_parsed(&mut self.teams, key, value),
                "conversations" => insert_parsed(&mut self.conversations, key, value),
                _ => self.task = parse_value(value),
            }
        }
        if self
            .selected_group_key
            .as_ref()
            .is_some_and(|selected_group_key| {
                !self
                    .items
                    .values()
                    .any(|item| item.group == *selected_group_key)
            })
        {
            self.selected_group_key = None;
        }
    }

    /// Removes the draft comments that these successful actions have sent.
    pub(super) fn remove_sent_drafts(&mut self, actions: &[PageAction]) {
        for page_action in actions
            .iter()
            .filter(|page_action| page_action.verb == "revise")
        {
            let id = page_action
                .input
                .get("id")
                .and_then(Value::as_str)
                .and_then(|input| input.parse().ok());
            let text = page_action.input.get("text").and_then(Value::as_str);
            if let Some(id) = id
                && self
                    .drafts
                    .get(&id)
                    .is_some_and(|draft_review| Some(draft_review.message().as_str()) == text)
            {
                self.drafts.remove(&id);
            }
        }
    }

    /// Records that the connection was lost. The old data stays on the screen, marked with its
    /// time.
    pub(super) fn on_disconnected(&mut self, why: String) {
        self.connection = ConnectionState::Disconnected(why);
    }

    /// Returns the inbox items in groups of items that ask for the same thing.
    pub(super) fn groups(&self) -> Vec<InboxGroup<'_>> {
        let mut items: Vec<&InboxItemView> = self.items.values().collect();
        // The requests of the current directory's project come first, those of other projects after.
        items.sort_by_key(|inbox_item| {
            let is_foreign = self.is_foreign(inbox_item.item.project.as_ref());
            let item = &inbox_item.item;
            (is_foreign, item.since_wall, item.id.clone())
        });
        let mut groups: Vec<InboxGroup<'_>> = Vec::new();
        for inbox_item in items {
            match groups
                .iter_mut()
                .find(|group| group.key == inbox_item.group)
            {
                Some(group) => group.items.push(inbox_item),
                None => groups.push(InboxGroup {
                    key: &inbox_item.group,
                    items: vec![inbox_item],
                }),
            }
        }
        groups
    }

    /// Returns the group of inbox items that the person answers by pressing a digit: the selected
    /// group, or the only one.
    pub(super) fn selected_group(&self) -> Option<InboxGroup<'_>> {
        let mut groups = self.groups();
        match &self.selected_group_key {
            Some(key) => groups
                .into_iter()
                .find(|inbox_group| inbox_group.key == key),
            None if groups.len() == 1 => groups.pop(),
            None => None,
        }
    }

    /// Returns the oldest open request of a task's agent, if there is one.
    pub(super) fn request_of_task(&self, task: TaskId) -> Option<&InboxItemView> {
        let is_request = |inbox_item: &&InboxItemView| {
            inbox_item.item.task == Some(task) && inbox_item.item.ask.is_some()
        };
        self.items
            .values()
            .filter(is_request)
            .min_by_key(|inbox_item| (inbox_item.item.since_wall, inbox_item.item.id.clone()))
    }

    /// Returns the tasks that pass the filter, most urgent first, then those of the current
    /// directory's project, then by number.
    pub(super) fn visible_rows(&self) -> Vec<&TaskRowView> {
        let filter_text = self.filter.to_lowercase();
        let passes = |task_row: &&TaskRowView| {
            filter_text.is_empty()
                || [
                    task_row.id.to_string(),
                    task_row.subject.clone(),
                    task_row.word.clone(),
                    task_row.text.clone(),
                ]
                .iter()
                .chain(task_row.agent.as_ref().map(ToString::to_string).iter())
                .any(|part| part.to_lowercase().contains(&filter_text))
        };
        let mut rows: Vec<&TaskRowView> = self.task_rows.values().filter(passes).collect();
        rows.sort_by_key(|row| (row.rank, self.is_foreign(Some(&row.project)), row.id));
        rows
    }

    /// Returns true if something belongs to another project than the current directory's.
    fn is_foreign(&self, project: Option<&ProjectName>) -> bool {
        self.own_project.is_some() && project.is_some() && project != self.own_project.as_ref()
    }

    /// Returns the landing queues for the page Now: the queue of the current directory's project,
    /// and other queues that are not empty. If there is none of these, returns all queues.
    pub(super) fn queues_in_brief(&self) -> Vec<&QueuePage> {
        let all = self.visible_queues();
        let is_relevant = |page: &&&QueuePage| {
            Some(&page.queue.project) == self.own_project.as_ref()
                || !page.queue.queue.is_empty()
                || page.queue.held.is_some()
        };
        let relevant: Vec<&QueuePage> = all.iter().filter(is_relevant).copied().collect();
        if relevant.is_empty() { all } else { relevant }
    }

    /// Returns all landing queues: first the queue of the current directory's project, then the
    /// queues of other projects, those that are not empty first.
    pub(super) fn visible_queues(&self) -> Vec<&QueuePage> {
        let mut trains: Vec<&QueuePage> = self.queues.values().collect();
        let is_own = |train: &QueuePage| Some(&train.queue.project) == self.own_project.as_ref();
        trains.sort_by_key(|train| (!is_own(train), train.queue.queue.is_empty()));
        trains
    }

    /// Returns the lanes (one row per agent), the most urgent first.
    pub(super) fn visible_lanes(&self) -> Vec<&AgentLaneView> {
        let mut lanes: Vec<&AgentLaneView> = self.lanes.values().collect();
        lanes.sort_by(|a, b| {
            a.at.cmp(&b.at)
                .then_with(|| compare(a.agent.as_str(), b.agent.as_str()))
        });
        lanes
    }

    /// Returns the current time by this machine's clock, in Unix milliseconds.
    pub(super) fn current_unix_ms(&self) -> u64 {
        self.now_unix_ms
    }
}

fn parse_value<T: serde::de::DeserializeOwned>(value: Value) -> Option<T> {
    regatta_api::json::from_value(&value).ok()
}

fn insert_parsed<T: serde::de::DeserializeOwned>(
    into: &mut BTreeMap<String, T>,
    key: String,
    value: Value,
) {
    match parse_value(value) {
        Some(value) => into.insert(key, value),
        None => into.remove(&key),
    };
}
