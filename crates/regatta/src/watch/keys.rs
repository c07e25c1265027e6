//! The keyboard, with the keys of the web page.
//!
//! No key decides by accident: Escape only closes, Enter only opens or sends a text that was typed,
//! and an action that cannot be undone asks for confirmation.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use regatta_api::page::Action;
use regatta_api::view::CostView;
use regatta_core::ids::TaskId;

use super::change::Diff;
use super::model::{Focus, Model, Over, PAGES, Page, Side, Wish};
use super::pane::Log;
use super::texts;

/// The keys with their descriptions, for the help.
pub(super) const HELP: [(&str, &str); 20] = [
    ("j k", "move in the list or the diff, or scroll the log"),
    ("Tab", "go to the next list or pane"),
    ("1-9", "answer the selected request, or that of the open task"),
    ("r", "reply to the request in your own words"),
    ("z", "snooze the request for an hour"),
    ("Enter", "open the selected task"),
    ("g n t q f c", "go to Now, Tasks, Queue, Files, Cost"),
    ("g a m v e s", "go to Agents, Team, Conversations, Events, Setup"),
    ("L R X", "on a task: land, revise or tell, drop or cancel"),
    ("T", "on a task: show how to take over"),
    ("l d", "on a task: show its log, its diff"),
    ("n p", "on a task: next and previous file of the diff"),
    ("c", "on a task: comment on the line; Revise sends it"),
    ("u s i", "on a task: side by side, ignore spaces, since review"),
    ("f w", "on a task: follow the log, show the raw log"),
    ("/", "filter tasks by text"),
    (".", "pause updates; press again to continue"),
    ("Esc", "close a dialog or go back; never answers anything"),
    ("?", "show this help"),
    ("q Ctrl-C", "quit; the agents keep working"),
];

/// Handles a key press and returns the work that it requests.
pub(super) fn press(model: &mut Model, key: KeyEvent) -> Vec<Wish> {
    if key.kind == KeyEventKind::Release {
        return vec![];
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c' | 'd')) {
        return vec![Wish::Quit];
    }
    if model.over.is_some() {
        return over(model, key);
    }
    if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        return vec![];
    }
    if std::mem::take(&mut model.going) {
        return go(model, key.code);
    }
    model.toast = None;
    match key.code {
        KeyCode::Char('q') => vec![Wish::Quit],
        KeyCode::Char('?') => {
            model.over = Some(Over::Help);
            vec![]
        }
        KeyCode::Char('g') => {
            model.going = true;
            vec![]
        }
        KeyCode::Char('.') => {
            match model.paused {
                Some(_) => model.unpause(),
                None => model.paused = Some(vec![]),
            }
            vec![]
        }
        KeyCode::Char('/') => {
            model.over = Some(Over::Filter { before: model.filter.clone() });
            if !matches!(model.page, Page::Now | Page::Tasks) {
                return go(model, KeyCode::Char('t'));
            }
            model.focus = Focus::Tasks;
            vec![]
        }
        KeyCode::Esc => match model.page {
            Page::Task(_) => go(model, KeyCode::Char('n')),
            _ => {
                model.filter.clear();
                vec![]
            }
        },
        KeyCode::Tab | KeyCode::BackTab => {
            turn(model, key.code == KeyCode::BackTab);
            vec![]
        }
        KeyCode::Char('j') | KeyCode::Down => step(model, 1),
        KeyCode::Char('k') | KeyCode::Up => step(model, -1),
        KeyCode::PageDown => step(model, 10),
        KeyCode::PageUp => step(model, -10),
        code => match model.page {
            Page::Task(id) => on_task(model, id, code),
            _ => on_lists(model, code),
        },
    }
}

fn go(model: &mut Model, code: KeyCode) -> Vec<Wish> {
    let Some((_, page, _)) = PAGES.into_iter().find(|it| KeyCode::Char(it.0) == code) else { return vec![] };
    let focus = match page {
        Page::Now => Focus::Inbox,
        Page::Tasks => Focus::Tasks,
        Page::Agents => Focus::Lanes,
        _ => Focus::Queue,
    };
    (model.page, model.focus, model.scroll) = (page, focus, 0);
    match page {
        Page::Events => vec![Wish::Topics, Wish::Events],
        Page::Setup => vec![Wish::Topics, Wish::Setup],
        _ => vec![Wish::Topics],
    }
}

fn open(model: &mut Model, id: TaskId) -> Vec<Wish> {
    (model.page, model.side, model.scroll, model.task) = (Page::Task(id), Side::Log, 0, None);
    (model.log, model.diff, model.row) = (Log::default(), Diff::default(), Some(id));
    model.how.since_review = false;
    vec![Wish::Topics, Wish::Log]
}

fn turn(model: &mut Model, back: bool) {
    if let Page::Task(_) = model.page {
        model.side = if model.side == Side::Log { Side::Diff } else { Side::Log };
        return;
    }
    if model.page != Page::Now {
        return;
    }
    let round = [Focus::Inbox, Focus::Lanes, Focus::Tasks, Focus::Queue];
    let at = round.iter().position(|it| *it == model.focus).unwrap_or(0);
    model.focus = round[(at + if back { round.len() - 1 } else { 1 }) % round.len()];
    model.scroll = 0;
}

fn step(model: &mut Model, by: isize) -> Vec<Wish> {
    if let Page::Task(_) = model.page {
        match model.side {
            Side::Log => model.log.scroll(by),
            Side::Diff => model.diff.scroll(by),
        }
        return vec![];
    }
    let moved = |many: usize, at: Option<usize>| {
        let first = if at.is_none() { 0 } else { by };
        at.unwrap_or(0).saturating_add_signed(first).min(many.saturating_sub(1))
    };
    match model.focus {
        Focus::Inbox => {
            let keys: Vec<String> = model.groups().iter().map(|it| it.key.to_owned()).collect();
            let at = keys.iter().position(|it| Some(it) == model.chosen.as_ref());
            model.chosen = keys.get(moved(keys.len(), at)).cloned();
        }
        Focus::Tasks => {
            let ids: Vec<TaskId> = model.shown_rows().iter().map(|it| it.id).collect();
            let at = ids.iter().position(|it| Some(*it) == model.row);
            model.row = ids.get(moved(ids.len(), at)).copied();
        }
        Focus::Lanes => {
            model.scroll = model.scroll.saturating_add_signed(by).min(model.lanes.len().saturating_sub(1));
        }
        Focus::Queue => {
            let trains = || model.trains.values().map(|it| 2 + it.queue.queue.len() + it.queue.recent.len()).sum();
            let tables = |it: &CostView| it.tables.iter().map(|it| 2 + it.rows.len()).sum::<usize>() + 3;
            let many: usize = match (&model.cost, &model.page) {
                (Some(cost), Page::Cost) => tables(cost),
                (_, Page::Now | Page::Queue) => trains(),
                _ => texts::page(model, usize::MAX).1.len(),
            };
            model.scroll = model.scroll.saturating_add_signed(by).min(many.saturating_sub(1));
        }
    }
    vec![]
}

fn on_lists(model: &mut Model, code: KeyCode) -> Vec<Wish> {
    match code {
        KeyCode::Char(digit @ '1'..='9') if model.page == Page::Now => {
            let nth = digit as usize - '1' as usize;
            let (first, all) = match model.chosen_group() {
                None if model.groups().is_empty() => return vec![],
                None => {
                    model.toast = Some((false, "select a request first with j and k".into()));
                    return vec![];
                }
                Some(group) => {
                    let nth_of = |it: &&regatta_api::page::ItemView| it.actions.get(nth).cloned();
                    (group.items.first().and_then(nth_of), group.items.iter().filter_map(nth_of).collect::<Vec<_>>())
                }
            };
            first.map_or_else(Vec::new, |action| start(model, action, all))
        }
        KeyCode::Char('r') if model.page == Page::Now => {
            let found = model.chosen_group().and_then(|it| {
                let words = |it: &&&Action| it.words.is_some();
                it.items.first().and_then(|it| it.actions.iter().find(|it| words(&it)).cloned())
            });
            found.map_or_else(Vec::new, |action| start(model, action, vec![]))
        }
        KeyCode::Char('z') if model.page == Page::Now => {
            let later = |it: &regatta_api::page::ItemView| it.actions.iter().find(|it| it.key == Some('z')).cloned();
            let all: Vec<Action> =
                model.chosen_group().map(|it| it.items.iter().filter_map(|it| later(it)).collect()).unwrap_or_default();
            if all.is_empty() { vec![] } else { vec![Wish::Do(all)] }
        }
        KeyCode::Enter => match model.focus {
            Focus::Tasks => model.row.map_or_else(Vec::new, |id| open(model, id)),
            Focus::Inbox => {
                let id = model.chosen_group().and_then(|it| it.items.first().and_then(|it| it.item.task));
                id.map_or_else(Vec::new, |id| open(model, id))
            }
            Focus::Lanes => {
                let id = model.shown_lanes().get(model.scroll).and_then(|it| it.task);
                id.map_or_else(Vec::new, |id| open(model, id))
            }
            Focus::Queue => vec![],
        },
        _ => vec![],
    }
}

fn on_task(model: &mut Model, id: TaskId, code: KeyCode) -> Vec<Wish> {
    let KeyCode::Char(key) = code else { return vec![] };
    // The request of the task's agent is visible here too, and is answered with the same keys as on
    // Now.
    if let Some(asked) = model.asked_by(id) {
        let answer = match key {
            '1'..='9' => asked.actions.get(key as usize - '1' as usize),
            'r' => asked.actions.iter().find(|it| it.words.is_some()),
            'z' => asked.actions.iter().find(|it| it.key == Some('z')),
            _ => None,
        };
        if let Some(answer) = answer.cloned() {
            return start(model, answer, vec![]);
        }
    }
    let action = model.task.as_ref().and_then(|it| it.actions.iter().find(|it| it.key == Some(key)).cloned());
    if let Some(action) = action {
        let action = with_drafts(model, id, action);
        return start(model, action, vec![]);
    }
    match key {
        'c' => return remark(model, id),
        'u' => model.how.split = !model.how.split,
        's' => {
            model.how.bare = !model.how.bare;
            return vec![Wish::Diff];
        }
        'i' => {
            let reviewed = model.task.as_ref().is_some_and(|it| it.task.task.reviewed.is_some());
            if !reviewed && !model.how.since_review {
                model.toast = Some((false, format!("{id} was never sent back, so this is the whole change")));
                return vec![];
            }
            model.how.since_review = !model.how.since_review;
            return vec![Wish::Diff];
        }
        'w' => {
            (model.side, model.log) = (Side::Log, model.log.other_way());
            return vec![Wish::Log];
        }
        'n' | 'p' => {
            model.side = Side::Diff;
            model.diff.file(if key == 'n' { 1 } else { -1 });
            return if model.diff.task == Some(id) { vec![] } else { vec![Wish::Diff] };
        }
        'd' => {
            model.side = Side::Diff;
            return vec![Wish::Diff];
        }
        'l' => {
            model.side = Side::Log;
            return vec![Wish::Log];
        }
        'f' => {
            model.side = Side::Log;
            (model.log.follow, model.log.up) = (true, 0);
        }
        'T' => {
            model.toast = Some((true, format!("to work on {id} yourself: regatta takeover {id}")));
        }
        'L' | 'R' | 'X' => {
            let word = model.task.as_ref().map_or("not loaded yet".to_owned(), |it| it.task.word.clone());
            model.toast = Some((false, format!("{id} is {word}, so that is not possible now")));
        }
        _ => {}
    }
    vec![]
}

/// Opens a comment at the reader's position. Loads the diff first if needed.
fn remark(model: &mut Model, id: TaskId) -> Vec<Wish> {
    model.side = Side::Diff;
    if model.diff.task != Some(id) {
        model.toast = Some((true, "loading the diff; select a line with j and k, then press c".into()));
        return vec![Wish::Diff];
    }
    let place = model.diff.place();
    let text = model.drafts.get(&id).map_or("", |it| it.said_of(place.as_ref())).to_owned();
    model.over = Some(Over::Comment { place, text });
    vec![]
}

/// Returns Revise with the draft comments, so that it does not ask for a text. Other actions are
/// returned unchanged.
pub(super) fn with_drafts(model: &Model, id: TaskId, action: Action) -> Action {
    let Some(drafts) = model.drafts.get(&id).filter(|it| action.verb == "revise" && !it.is_empty()) else {
        return action;
    };
    let mut action = Action { words: None, cli: drafts.cli(id), ..action };
    action.input["text"] = serde_json::Value::String(drafts.text());
    action
}

/// Starts an action: asks for its text or for confirmation first if the action needs that.
fn start(model: &mut Model, action: Action, group: Vec<Action>) -> Vec<Wish> {
    let group = if group.is_empty() { vec![action.clone()] } else { group };
    if action.words.is_some() {
        model.over = Some(Over::Words { action: Box::new(action), group, text: String::new() });
        return vec![];
    }
    if action.grave {
        model.over = Some(Over::Sure { action: Box::new(action), group });
        return vec![];
    }
    vec![Wish::Do(group)]
}

fn over(model: &mut Model, key: KeyEvent) -> Vec<Wish> {
    let Some(mut over) = model.over.take() else { return vec![] };
    match (&mut over, key.code) {
        (Over::Filter { before }, KeyCode::Esc) => {
            model.filter = std::mem::take(before);
            return vec![];
        }
        (Over::Filter { .. }, KeyCode::Enter) => return vec![],
        (Over::Filter { .. }, KeyCode::Backspace) => _ = model.filter.pop(),
        (Over::Filter { .. }, KeyCode::Char(it)) if model.filter.len() < 200 => model.filter.push(it),
        (_, KeyCode::Esc) => return vec![],
        (Over::Help, KeyCode::Char('?' | 'q') | KeyCode::Enter) => return vec![],
        (Over::Sure { group, .. }, KeyCode::Char('y' | 'Y')) => return vec![Wish::Do(std::mem::take(group))],
        (Over::Sure { .. }, KeyCode::Char('n' | 'N')) => return vec![],
        (Over::Words { text, .. } | Over::Comment { text, .. }, KeyCode::Backspace) => _ = text.pop(),
        (Over::Words { text, .. } | Over::Comment { text, .. }, KeyCode::Char(it)) if text.len() < 4_000 => {
            text.push(it);
        }
        (Over::Comment { place, text }, KeyCode::Enter) => {
            if let Page::Task(id) = model.page {
                let drafts = model.drafts.entry(id).or_default();
                drafts.say(place.take(), text);
                if drafts.is_empty() {
                    model.drafts.remove(&id);
                }
            }
            return vec![];
        }
        (Over::Words { group, text, .. }, KeyCode::Enter) if !text.trim().is_empty() => {
            let say = |action: &Action| {
                let mut action = action.clone();
                if let Some(place) = action.words.as_ref().and_then(|it| action.input.pointer_mut(it)) {
                    *place = serde_json::Value::String(text.trim().to_owned());
                }
                action
            };
            return vec![Wish::Do(group.iter().map(say).collect())];
        }
        _ => {}
    }
    model.over = Some(over);
    vec![]
}
