//! Land: `land`, `queue`, `diff`, `revise`, `drop`, `undo`.

use std::collections::BTreeSet;

use regatta_api::view::{DiffView, QueueView, TaskView};
use regatta_api::{Call, input};
use regatta_core::ids::{ClaimId, TaskId};
use regatta_core::landing::join::Unpushed;

use super::App;
use crate::args::QueueWord;
use crate::client::Got;
use crate::follow;
use crate::out::{Failed, Said, ago, line, plain, table};

pub(super) fn land(app: &App, id: TaskId, wait: bool, first: bool) -> Said {
    let client = app.client()?;
    let got: Got<TaskView> =
        client.call(&Call::Land(input::Land { id: id.to_string(), first, claim: None, token: None }))?;
    let last = if wait { follow::until_landed(&client, id, got.revision, app.timeout())? } else { Some(got.data) };
    told(app, "land", last, wait)
}

/// Lands a workspace under a claim on the trunk that is held by hand.
pub(super) fn land_now(app: &App, workspace: String, claim: Option<ClaimId>, token: Option<u64>) -> Said {
    let client = app.client()?;
    // A path is the daemon's to understand, wherever that was started.
    let there = std::path::Path::new(&workspace).canonicalize().ok().filter(|it| it.is_dir());
    let id = there.map_or(workspace, |it| it.to_string_lossy().into_owned());
    let got: Got<TaskView> = client.call(&Call::Land(input::Land { id, first: true, claim, token }))?;
    let last = follow::until_landed(&client, got.data.task.id, got.revision, app.timeout())?;
    told(app, "land", last, true)
}

/// Says where a task is on its way, and ends with the code that a script tests.
fn told(app: &App, word: &str, task: Option<TaskView>, waited: bool) -> Said {
    let Some(task) = task else { return Err(Failed::Code(124)) };
    let id = task.task.id;
    app.out.answer(word, &task, &["regatta queue".into()], |out| match &task.task.landed {
        Some(commit) => format!("landed {id} as {}\n", &commit.as_str()[..10]),
        None => {
            let reason =
                task.waits.first().map_or_else(|| task.task.reason.clone().unwrap_or_default(), |it| it.text.clone());
            format!("{id} {}  {}\n", out.state(&task.word), line(&reason))
        }
    })?;
    match task.word.as_str() {
        "landed" | "done" | "landing" if !waited || task.task.landed.is_some() || task.word == "done" => Ok(()),
        "needs you" | "review" | "landing" => Err(Failed::Code(3)),
        _ if !waited => Ok(()),
        _ => Err(Failed::Code(1)),
    }
}

pub(super) fn queue(app: &App, word: Option<QueueWord>, all: bool) -> Said {
    let client = app.client()?;
    let project = app.project(&client)?;
    match word {
        Some(QueueWord::Hold { words }) => {
            let ask = input::QueueHold { project, reason: words.join(" ") };
            let got: Got<serde_json::Value> = client.call(&Call::QueueHold(ask))?;
            app.out.answer("queue", &got.data, &["regatta queue release".into()], |_| {
                "the queue is held: what is being tried is tried to its end, and nothing more is begun or moved\n"
                    .into()
            })
        }
        Some(QueueWord::Release) => {
            let got: Got<serde_json::Value> = client.call(&Call::QueueRelease(input::Scope { project }))?;
            app.out.answer("queue", &got.data, &["regatta queue".into()], |_| "the queue goes on\n".into())
        }
        None => {
            let got: Got<Vec<QueueView>> = client.call(&Call::Queue(input::Scope { project }))?;
            app.out.answer("queue", &got.data, &[], |_| {
                let text: String = got.data.iter().map(|it| if all { merges(it) } else { drawn(it) }).collect();
                if got.data.is_empty() { "no project yet\n".into() } else { text }
            })
        }
    }
}

/// The merge status of a project's branches: each once, as it is or as it last ended.
fn merges(it: &QueueView) -> String {
    let mut seen = BTreeSet::new();
    let latest = it.queue.iter().chain(&it.recent).filter(|it| seen.insert(it.task));
    let rows = latest.map(|it| Merge {
        branch: it.branch.clone(),
        status: if it.state == "landed" { "merged".into() } else { it.state.clone() },
        conflicts: it.conflicts,
        fixups: it.fixups,
    });
    format!("{} → {}\n{}", it.project, it.trunk, Merge::table(&rows.collect::<Vec<_>>()))
}

/// One branch of the merge status table.
pub(super) struct Merge {
    pub(super) branch: String,
    pub(super) status: String,
    pub(super) conflicts: usize,
    pub(super) fixups: u32,
}

impl Merge {
    pub(super) fn table(merges: &[Merge]) -> String {
        let head = ["BRANCH", "STATUS", "CONFLICTS", "FIX-UPS"].map(str::to_owned).to_vec();
        let rows = merges
            .iter()
            .map(|it| vec![line(&it.branch), line(&it.status), it.conflicts.to_string(), it.fixups.to_string()]);
        table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
    }
}

/// What could not be pushed, in a line.
pub(super) fn unpushed(it: Option<&Unpushed>) -> String {
    let Some(it) = it else { return String::new() };
    let commit = &it.commit.as_str()[..10];
    format!("! {commit} is not on {} for {}: {}\n", line(&it.remote), ago(it.since_wall), line(&it.reason))
}

fn drawn(it: &QueueView) -> String {
    let slots = if it.slots == 1 { "one tree at a time".into() } else { format!("up to {} trees at once", it.slots) };
    let mut text = format!("{} → {} · {slots}\n", it.project, it.trunk);
    if let Some(held) = &it.held {
        text += &format!("held by {}: {}\n", line(&held.by), line(&held.reason));
    }
    text += &unpushed(it.unpushed.as_ref());
    let waiting = it.queue.iter().map(|it| {
        vec![
            it.position.map_or(String::new(), |it| it.to_string()),
            it.task.to_string(),
            it.state.clone(),
            line(&it.subject),
            line(&it.detail),
        ]
    });
    let recent = it.recent.iter().take(10).map(|it| {
        let what = it.commit.as_ref().map_or_else(|| line(&it.detail), |it| it.as_str()[..10].to_owned());
        vec![
            if it.state == "landed" { "✓".into() } else { "✕".into() },
            it.task.to_string(),
            it.state.clone(),
            line(&it.subject),
            what,
        ]
    });
    text + &table(&waiting.chain(recent).collect::<Vec<_>>())
}

pub(super) fn diff(app: &App, id: TaskId, since_review: bool, stat: bool) -> Said {
    let got: Got<DiffView> = app.call(&Call::Diff(input::Diff { id: id.to_string(), since_review }))?;
    app.out.answer("diff", &got.data, &[format!("regatta land {id}")], |_| {
        if stat {
            return table(&counted(&got.data.patch));
        }
        // An agent's text: nothing in it may steer the terminal. Tabs are part of what is shown.
        got.data.patch.lines().map(|it| it.split('\t').map(plain).collect::<Vec<_>>().join("\t") + "\n").collect()
    })
}

/// A row for each file of a patch: its path, and how many lines came and went.
fn counted(patch: &str) -> Vec<Vec<String>> {
    let mut files: Vec<(String, usize, usize)> = Vec::new();
    let mut inside = false;
    for it in patch.lines() {
        if let Some(names) = it.strip_prefix("diff --git ") {
            let name = names.rsplit(" b/").next().unwrap_or(names);
            files.push((plain(name), 0, 0));
            inside = false;
            continue;
        }
        inside |= it.starts_with("@@");
        let Some(file) = files.last_mut().filter(|_| inside) else { continue };
        match it.bytes().next() {
            Some(b'+') => file.1 += 1,
            Some(b'-') => file.2 += 1,
            _ => {}
        }
    }
    files.into_iter().map(|(name, added, gone)| vec![name, format!("+{added}"), format!("-{gone}")]).collect()
}

pub(super) fn revise(app: &App, id: TaskId, words: &[String], comments: &[String]) -> Said {
    let words = Some(words.join(" ")).filter(|it| !it.is_empty());
    let text = words.into_iter().chain(comments.iter().cloned()).collect::<Vec<_>>().join("\n");
    let got: Got<TaskView> = app.call(&Call::Revise(input::Said { id: id.to_string(), text }))?;
    app.out.answer("revise", &got.data, &[format!("regatta why {id}")], |_| format!("{id} goes back with your words\n"))
}

pub(super) fn drop_work(app: &App, id: TaskId, because: String) -> Said {
    let got: Got<TaskView> = app.call(&Call::Drop(input::Said { id: id.to_string(), text: because }))?;
    let kept = got.data.task.submission.as_ref().map(|it| it.commit.as_str()[..10].to_owned()).unwrap_or_default();
    app.out.answer("drop", &got.data, &[], |_| format!("dropped {id}; its work is kept for thirty days as {kept}\n"))
}

pub(super) fn undo(app: &App, id: TaskId, wait: bool) -> Said {
    let client = app.client()?;
    let got: Got<TaskView> = client.call(&Call::Undo(input::Id { id: id.to_string() }))?;
    let undoing = got.data.task.id;
    let last = if wait { follow::until_landed(&client, undoing, got.revision, app.timeout())? } else { Some(got.data) };
    told(app, "undo", last, wait)
}
