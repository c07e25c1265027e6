//! Handles the keys of `regatta watch`, which are the same as those of the web page.
//!
//! No key answers anything by accident: Escape only closes, Enter only opens an item or sends a
//! typed text, and an action that cannot be undone asks for confirmation.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use regatta_api::live_view::PageAction;
use regatta_api::view::CostView;
use regatta_core::ids::TaskId;

use super::diff::DiffPane;
use super::list_pages;
use super::model::{Dialog, ListFocus, PAGES, ScreenModel, ScreenPage, ScreenRequest, TaskPane};
use super::transcript::LogPane;

/// The keys and their effects, for the help dialog.
pub(super) const KEY_HELP: [(&str, &str); 20] = [
    ("j k", "move in the list or the diff, or scroll the log"),
    ("Tab", "go to the next list or pane"),
    (
        "1-9",
        "answer the selected request, or that of the open task",
    ),
    ("r", "reply to the request in your own words"),
    ("z", "snooze the request for an hour"),
    ("Enter", "open the selected task"),
    ("g n t q f c", "go to Now, Tasks, Queue, Files, Cost"),
    (
        "g a m v e s",
        "go to Agents, Team, Conversations, Events, Setup",
    ),
    ("L R X", "on a task: land, revise or tell, drop or cancel"),
    ("T", "on a task: show how to take over"),
    ("l d", "on a task: show its log, its diff"),
    ("n p", "on a task: next and previous file of the diff"),
    ("c", "on a task: comment on the line; Revise sends it"),
    (
        "u s i",
        "on a task: side by side, ignore spaces, since review",
    ),
    (
        "f o w",
        "on a task: follow the log, open all outputs, show it raw",
    ),
    ("/", "filter tasks by text"),
    (".", "pause updates; press again to continue"),
    ("Esc", "close a dialog or go back; never answers anything"),
    ("?", "show this help"),
    ("q Ctrl-C", "quit; the agents keep working"),
];

/// Handles a key press: changes the model, and returns the work that the screen's thread has to do.
pub(super) fn on_key(model: &mut ScreenModel, key: KeyEvent) -> Vec<ScreenRequest> {
    if key.kind == KeyEventKind::Release {
        return vec![];
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c' | 'd'))
    {
        return vec![ScreenRequest::Quit];
    }
    if model.dialog.is_some() {
        return on_dialog_key(model, key);
    }
    if key
        .modifiers
        .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
    {
        return vec![];
    }
    if std::mem::take(&mut model.is_choosing_page) {
        return go_to_page(model, key.code);
    }
    model.toast = None;
    match key.code {
        KeyCode::Char('q') => vec![ScreenRequest::Quit],
        KeyCode::Char('?') => {
            model.dialog = Some(Dialog::Help);
            vec![]
        }
        KeyCode::Char('g') => {
            model.is_choosing_page = true;
            vec![]
        }
        KeyCode::Char('.') => {
            match model.paused_frames {
                Some(_) => model.resume_updates(),
                None => model.paused_frames = Some(vec![]),
            }
            vec![]
        }
        KeyCode::Char('/') => {
            model.dialog = Some(Dialog::Filter {
                previous: model.filter.clone(),
            });
            if !matches!(model.page, ScreenPage::Now | ScreenPage::Tasks) {
                return go_to_page(model, KeyCode::Char('t'));
            }
            model.focus = ListFocus::Tasks;
            vec![]
        }
        KeyCode::Esc => match model.page {
            ScreenPage::Task(_) => go_to_page(model, KeyCode::Char('n')),
            _ => {
                model.filter.clear();
                vec![]
            }
        },
        KeyCode::Tab | KeyCode::BackTab => {
            cycle_focus(model, key.code == KeyCode::BackTab);
            vec![]
        }
        KeyCode::Char('j') | KeyCode::Down => move_selection(model, 1),
        KeyCode::Char('k') | KeyCode::Up => move_selection(model, -1),
        KeyCode::PageDown => move_selection(model, 10),
        KeyCode::PageUp => move_selection(model, -10),
        code => match model.page {
            ScreenPage::Task(id) => on_task_key(model, id, code),
            _ => on_list_key(model, code),
        },
    }
}

fn go_to_page(model: &mut ScreenModel, code: KeyCode) -> Vec<ScreenRequest> {
    let Some((_, page, _)) = PAGES
        .into_iter()
        .find(|(key, _, _)| KeyCode::Char(*key) == code)
    else {
        return vec![];
    };
    let focus = match page {
        ScreenPage::Now => ListFocus::Inbox,
        ScreenPage::Tasks => ListFocus::Tasks,
        ScreenPage::Agents => ListFocus::Lanes,
        _ => ListFocus::Queue,
    };
    (model.page, model.focus, model.scroll) = (page, focus, 0);
    match page {
        ScreenPage::Events => vec![ScreenRequest::SubscribeTopics, ScreenRequest::ReadEvents],
        ScreenPage::Setup => vec![ScreenRequest::SubscribeTopics, ScreenRequest::ReadSetup],
        _ => vec![ScreenRequest::SubscribeTopics],
    }
}

fn open_task(model: &mut ScreenModel, id: TaskId) -> Vec<ScreenRequest> {
    (model.page, model.pane, model.scroll, model.task) =
        (ScreenPage::Task(id), TaskPane::Log, 0, None);
    (model.log, model.diff, model.selected_task) =
        (LogPane::default(), DiffPane::default(), Some(id));
    model.diff_options.is_since_review = false;
    vec![ScreenRequest::SubscribeTopics, ScreenRequest::ReadLog]
}

fn cycle_focus(model: &mut ScreenModel, is_backwards: bool) {
    if let ScreenPage::Task(_) = model.page {
        model.pane = if model.pane == TaskPane::Log {
            TaskPane::Diff
        } else {
            TaskPane::Log
        };
        return;
    }
    if model.page != ScreenPage::Now {
        return;
    }
    let order = [
        ListFocus::Inbox,
        ListFocus::Lanes,
        ListFocus::Tasks,
        ListFocus::Queue,
    ];
    let index = order
        .iter()
        .position(|list_focus| *list_focus == model.focus)
        .unwrap_or(0);
    model.focus = order[(index + if is_backwards { order.len() - 1 } else { 1 }) % order.len()];
    model.scroll = 0;
}

fn move_selection(model: &mut ScreenModel, delta: isize) -> Vec<ScreenRequest> {
    if let ScreenPage::Task(_) = model.page {
        match model.pane {
            TaskPane::Log => model.log.scroll(delta),
            TaskPane::Diff => model.diff.scroll(delta),
        }
        return vec![];
    }
    let moved_index = |count: usize, index: Option<usize>| {
        let first = if index.is_none() { 0 } else { delta };
        index
            .unwrap_or(0)
            .saturating_add_signed(first)
            .min(count.saturating_sub(1))
    };
    match model.focus {
        ListFocus::Inbox => {
            let keys: Vec<String> = model
                .groups()
                .iter()
                .map(|inbox_group| inbox_group.key.to_owned())
                .collect();
            let index = keys
                .iter()
                .position(|key| Some(key) == model.selected_group_key.as_ref());
            model.selected_group_key = keys.get(moved_index(keys.len(), index)).cloned();
        }
        ListFocus::Tasks => {
            let ids: Vec<TaskId> = model
                .visible_rows()
                .iter()
                .map(|task_row| task_row.id)
                .collect();
            let index = ids.iter().position(|id| Some(*id) == model.selected_task);
            model.selected_task = ids.get(moved_index(ids.len(), index)).copied();
        }
        ListFocus::Lanes => {
            model.scroll = model
                .scroll
                .saturating_add_signed(delta)
                .min(model.lanes.len().saturating_sub(1));
        }
        ListFocus::Queue => {
            let queue_rows = || {
                model
                    .queues
                    .values()
                    .map(|queue_page| {
                        2 + queue_page.queue.queue.len() + queue_page.queue.recent.len()
                    })
                    .sum()
            };
            let table_rows = |cost: &CostView| {
                cost.tables
                    .iter()
                    .map(|cost_table| 2 + cost_table.rows.len())
                    .sum::<usize>()
                    + 3
            };
            let count: usize = match (&model.cost, &model.page) {
                (Some(cost), ScreenPage::Cost) => table_rows(cost),
                (_, ScreenPage::Now | ScreenPage::Queue) => queue_rows(),
                _ => list_pages::list_page(model, usize::MAX).1.len(),
            };
            model.scroll = model
                .scroll
                .saturating_add_signed(delta)
                .min(count.saturating_sub(1));
        }
    }
    vec![]
}

fn on_list_key(model: &mut ScreenModel, code: KeyCode) -> Vec<ScreenRequest> {
    match code {
        KeyCode::Char(digit @ '1'..='9') if model.page == ScreenPage::Now => {
            let nth = digit as usize - '1' as usize;
            let (first, all) = match model.selected_group() {
                None if model.groups().is_empty() => return vec![],
                None => {
                    model.toast = Some((false, "select a request first with j and k".into()));
                    return vec![];
                }
                Some(group) => {
                    let first = group.items.first();
                    let chosen = first.and_then(|item| item.actions.get(nth)).cloned();
                    // The items of a group can have different choices, so the number of the choice
                    // counts only for the first item.
                    let same = |item: &&regatta_api::live_view::InboxItemView| {
                        let chosen = chosen.as_ref()?;
                        let mut actions = item.actions.iter();
                        actions
                            .find(|other| other.verb == chosen.verb && other.label == chosen.label)
                            .cloned()
                    };
                    let all: Vec<PageAction> = group.items.iter().filter_map(same).collect();
                    (chosen, all)
                }
            };
            first.map_or_else(Vec::new, |action| start_action(model, action, all))
        }
        KeyCode::Char('r') if model.page == ScreenPage::Now => {
            let found = model.selected_group().and_then(|inbox_group| {
                let words = |page_action: &&&PageAction| page_action.words.is_some();
                inbox_group.items.first().and_then(|inbox_item| {
                    inbox_item
                        .actions
                        .iter()
                        .find(|page_action| words(&page_action))
                        .cloned()
                })
            });
            found.map_or_else(Vec::new, |action| start_action(model, action, vec![]))
        }
        KeyCode::Char('z') if model.page == ScreenPage::Now => {
            let later = |inbox_item: &regatta_api::live_view::InboxItemView| {
                inbox_item
                    .actions
                    .iter()
                    .find(|page_action| page_action.key == Some('z'))
                    .cloned()
            };
            let all: Vec<PageAction> = model
                .selected_group()
                .map(|inbox_group| {
                    inbox_group
                        .items
                        .iter()
                        .filter_map(|inbox_item| later(inbox_item))
                        .collect()
                })
                .unwrap_or_default();
            if all.is_empty() {
                vec![]
            } else {
                vec![ScreenRequest::Perform(all)]
            }
        }
        KeyCode::Enter => match model.focus {
            ListFocus::Tasks => model
                .selected_task
                .map_or_else(Vec::new, |id| open_task(model, id)),
            ListFocus::Inbox => {
                let id = model.selected_group().and_then(|inbox_group| {
                    inbox_group
                        .items
                        .first()
                        .and_then(|inbox_item| inbox_item.item.task)
                });
                id.map_or_else(Vec::new, |id| open_task(model, id))
            }
            ListFocus::Lanes => {
                let id = model
                    .visible_lanes()
                    .get(model.scroll)
                    .and_then(|agent_lane| agent_lane.task);
                id.map_or_else(Vec::new, |id| open_task(model, id))
            }
            ListFocus::Queue => vec![],
        },
        _ => vec![],
    }
}

fn on_task_key(model: &mut ScreenModel, id: TaskId, code: KeyCode) -> Vec<ScreenRequest> {
    let KeyCode::Char(key) = code else {
        return vec![];
    };
    // This page also shows the open request of the task's agent, and the same digits answer the
    // request as on the page Now.
    if let Some(request) = model.request_of_task(id) {
        let answer = match key {
            '1'..='9' => request.actions.get(key as usize - '1' as usize),
            'r' => request
                .actions
                .iter()
                .find(|page_action| page_action.words.is_some()),
            'z' => request
                .actions
                .iter()
                .find(|page_action| page_action.key == Some('z')),
            _ => None,
        };
        if let Some(answer) = answer.cloned() {
            return start_action(model, answer, vec![]);
        }
    }
    let action = model.task.as_ref().and_then(|task_page| {
        task_page
            .actions
            .iter()
            .find(|page_action| page_action.key == Some(key))
            .cloned()
    });
    if let Some(action) = action {
        let action = with_drafts(model, id, action);
        return start_action(model, action, vec![]);
    }
    match key {
        'c' => return open_comment(model, id),
        'u' => model.diff_options.is_split = !model.diff_options.is_split,
        's' => {
            model.diff_options.ignores_whitespace = !model.diff_options.ignores_whitespace;
            return vec![ScreenRequest::ReadDiff];
        }
        'i' => {
            let reviewed = model
                .task
                .as_ref()
                .is_some_and(|task_page| task_page.task.task.reviewed.is_some());
            if !reviewed && !model.diff_options.is_since_review {
                model.toast = Some((
                    false,
                    format!("{id} was never sent back, so this is the whole change"),
                ));
                return vec![];
            }
            model.diff_options.is_since_review = !model.diff_options.is_since_review;
            return vec![ScreenRequest::ReadDiff];
        }
        'w' => {
            (model.pane, model.log) = (TaskPane::Log, model.log.toggled_raw());
            return vec![ScreenRequest::ReadLog];
        }
        'n' | 'p' => {
            model.pane = TaskPane::Diff;
            model.diff.move_to_file(if key == 'n' { 1 } else { -1 });
            return if model.diff.task == Some(id) {
                vec![]
            } else {
                vec![ScreenRequest::ReadDiff]
            };
        }
        'd' => {
            model.pane = TaskPane::Diff;
            return vec![ScreenRequest::ReadDiff];
        }
        'l' => {
            model.pane = TaskPane::Log;
            return vec![ScreenRequest::ReadLog];
        }
        'f' => {
            model.pane = TaskPane::Log;
            (model.log.is_following, model.log.lines_below) = (true, 0);
        }
        'o' => {
            model.pane = TaskPane::Log;
            model.log.toggle_all_output();
        }
        'T' => {
            model.toast = Some((
                true,
                format!("to work on {id} yourself: regatta takeover {id}"),
            ));
        }
        'L' | 'R' | 'X' => {
            let word = model
                .task
                .as_ref()
                .map_or("not loaded yet".to_owned(), |task_page| {
                    task_page.task.word.clone()
                });
            model.toast = Some((
                false,
                format!("{id} is {word}, so that is not possible now"),
            ));
        }
        _ => {}
    }
    vec![]
}

/// Opens the dialog for a comment on the person's line of the diff. If the diff is not loaded yet,
/// requests it instead.
fn open_comment(model: &mut ScreenModel, id: TaskId) -> Vec<ScreenRequest> {
    model.pane = TaskPane::Diff;
    if model.diff.task != Some(id) {
        model.toast = Some((
            true,
            "loading the diff; select a line with j and k, then press c".into(),
        ));
        return vec![ScreenRequest::ReadDiff];
    }
    let place = model.diff.comment_target();
    let text = model
        .drafts
        .get(&id)
        .map_or("", |draft_review| draft_review.comment_at(place.as_ref()))
        .to_owned();
    model.dialog = Some(Dialog::Comment { place, text });
    vec![]
}

/// Returns the action Revise (send the work back) with the draft comments as its text, so that it
/// does not ask for a text. Other actions are returned unchanged.
pub(super) fn with_drafts(model: &ScreenModel, id: TaskId, action: PageAction) -> PageAction {
    let Some(drafts) = model
        .drafts
        .get(&id)
        .filter(|draft_review| action.verb == "revise" && !draft_review.is_empty())
    else {
        return action;
    };
    let mut action = PageAction {
        words: None,
        cli: drafts.command(id),
        ..action
    };
    action.input["text"] = serde_json::Value::String(drafts.message());
    action
}

/// Starts an action for all items of a group. If the action needs a text or a confirmation, opens
/// the dialog for it first.
fn start_action(
    model: &mut ScreenModel,
    action: PageAction,
    group: Vec<PageAction>,
) -> Vec<ScreenRequest> {
    let group = if group.is_empty() {
        vec![action.clone()]
    } else {
        group
    };
    // The choice opens a page of the web page, which here is the task with its change or its log.
    if action.to.is_some() {
        let id = action.input.get("id").and_then(serde_json::Value::as_str);
        let Some(id) = id.and_then(|id| id.parse().ok()) else {
            return vec![];
        };
        let mut requests = open_task(model, id);
        if action.verb == "diff" {
            model.pane = TaskPane::Diff;
            requests.push(ScreenRequest::ReadDiff);
        }
        return requests;
    }
    if action.words.is_some() {
        model.dialog = Some(Dialog::ActionText {
            action: Box::new(action),
            group,
            text: String::new(),
        });
        return vec![];
    }
    if action.grave {
        model.dialog = Some(Dialog::Confirm {
            action: Box::new(action),
            group,
        });
        return vec![];
    }
    vec![ScreenRequest::Perform(group)]
}

fn on_dialog_key(model: &mut ScreenModel, key: KeyEvent) -> Vec<ScreenRequest> {
    let Some(mut over) = model.dialog.take() else {
        return vec![];
    };
    match (&mut over, key.code) {
        (Dialog::Filter { previous: before }, KeyCode::Esc) => {
            model.filter = std::mem::take(before);
            return vec![];
        }
        (Dialog::Filter { .. }, KeyCode::Enter) => return vec![],
        (Dialog::Filter { .. }, KeyCode::Backspace) => _ = model.filter.pop(),
        (Dialog::Filter { .. }, KeyCode::Char(c)) if model.filter.len() < 200 => {
            model.filter.push(c)
        }
        (_, KeyCode::Esc) => return vec![],
        (Dialog::Help, KeyCode::Char('?' | 'q') | KeyCode::Enter) => return vec![],
        (Dialog::Confirm { group, .. }, KeyCode::Char('y' | 'Y')) => {
            return vec![ScreenRequest::Perform(std::mem::take(group))];
        }
        (Dialog::Confirm { .. }, KeyCode::Char('n' | 'N')) => return vec![],
        (Dialog::ActionText { text, .. } | Dialog::Comment { text, .. }, KeyCode::Backspace) => {
            _ = text.pop()
        }
        (Dialog::ActionText { text, .. } | Dialog::Comment { text, .. }, KeyCode::Char(c))
            if text.len() < 4_000 =>
        {
            text.push(c);
        }
        (Dialog::Comment { place, text }, KeyCode::Enter) => {
            if let ScreenPage::Task(id) = model.page {
                let drafts = model.drafts.entry(id).or_default();
                drafts.set_comment(place.take(), text);
                if drafts.is_empty() {
                    model.drafts.remove(&id);
                }
            }
            return vec![];
        }
        (Dialog::ActionText { group, text, .. }, KeyCode::Enter) if !text.trim().is_empty() => {
            let say = |action: &PageAction| {
                let mut action = action.clone();
                if let Some(place) = action
                    .words
                    .as_ref()
                    .and_then(|word| action.input.pointer_mut(word))
                {
                    *place = serde_json::Value::String(text.trim().to_owned());
                }
                action
            };
            return vec![ScreenRequest::Perform(group.iter().map(say).collect())];
        }
        _ => {}
    }
    model.dialog = Some(over);
    vec![]
}
