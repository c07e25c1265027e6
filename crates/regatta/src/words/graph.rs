//! `graph`: what waits for what.

use std::collections::{BTreeMap, BTreeSet};

use regatta_api::view::{MissionView, TaskView};
use regatta_api::{Call, input};
use regatta_core::ids::TaskId;
use serde::Serialize;

use crate::args::Graph;
use crate::client::{Client, Got};
use crate::out::{Failed, Out, Said, line, table, usage};

use super::App;
use super::run::open_tasks;

/// How many tasks are drawn one by one; beyond, what has landed is counted.
const MOST: usize = 60;
/// How far around one task is looked.
const HOPS: usize = 2;

/// A task of a graph.
#[derive(Debug, Serialize)]
struct Node {
    id: TaskId,
    subject: String,
    word: String,
    /// From 1: after all that it waits for.
    layer: u32,
    needs: Vec<TaskId>,
    /// It is on the longest way to the end of what is left.
    critical: bool,
}

pub(super) fn graph(app: &App, ask: &Graph) -> Said {
    let client = app.client()?;
    let (title, tasks) = chosen(app, &client, ask.id.as_deref())?;
    let nodes = nodes(&tasks);
    let next: Vec<String> =
        nodes.iter().find(|it| it.critical).map(|it| format!("regatta why {}", it.id)).into_iter().collect();
    app.out.answer("graph", &nodes, &next, |out| draw(out, &title, &nodes))
}

/// A mission's tasks, a task with what is around it, or all that is open in the project.
fn chosen(app: &App, client: &Client, id: Option<&str>) -> Result<(String, Vec<TaskView>), Failed> {
    match id {
        Some(id) if id.starts_with(['M', 'm']) => {
            let got: Got<MissionView> = client.call(&Call::MissionShow(input::Id { id: id.into() }))?;
            Ok((format!("{} {}", got.data.mission.id, line(&got.data.mission.title)), got.data.tasks))
        }
        Some(id) => {
            let task: TaskId = id
                .parse()
                .map_err(|it: regatta_core::ids::BadName| usage(it.to_string(), "name a mission or a task: M3, T9"))?;
            let got: Got<TaskView> = client.call(&Call::Show(input::Id { id: task.to_string() }))?;
            let project = got.data.task.project.clone();
            let filter = input::TaskList { project: Some(project), mission: None, status: vec![], all: true, limit: 0 };
            let all: Got<Vec<TaskView>> = client.call(&Call::TaskList(filter))?;
            Ok((format!("around {task}"), around(task, all.data)))
        }
        None => {
            let project = app.project(client)?;
            let all = match &project {
                Some(project) => open_tasks(client, project)?.data,
                None => {
                    let filter = input::TaskList { project: None, mission: None, status: vec![], all: false, limit: 0 };
                    client.call::<Vec<TaskView>>(&Call::TaskList(filter))?.data
                }
            };
            Ok((project.map_or_else(|| "everything open".into(), |it| format!("open in {it}")), all))
        }
    }
}

/// The tasks within two steps of one, either way.
fn around(task: TaskId, all: Vec<TaskView>) -> Vec<TaskView> {
    let mut near = BTreeSet::from([task]);
    for _ in 0..HOPS {
        let more: Vec<TaskId> = all
            .iter()
            .flat_map(|it| {
                let (id, needs) = (it.task.id, &it.task.blocked_by);
                let up = if near.contains(&id) { needs.clone() } else { Vec::default() };
                let down = needs.iter().any(|it| near.contains(it)).then_some(id);
                up.into_iter().chain(down)
            })
            .collect();
        near.extend(more);
    }
    all.into_iter().filter(|it| near.contains(&it.task.id)).collect()
}

fn is_over(word: &str) -> bool {
    matches!(word, "landed" | "done" | "cancelled")
}

/// Lays tasks out in layers and finds the longest way through what is left.
fn nodes(tasks: &[TaskView]) -> Vec<Node> {
    let known: BTreeMap<TaskId, usize> = tasks.iter().enumerate().map(|(at, it)| (it.task.id, at)).collect();
    let after: Vec<Vec<usize>> =
        tasks.iter().map(|it| it.task.blocked_by.iter().filter_map(|it| known.get(it).copied()).collect()).collect();
    // The daemon takes no circle, so there is always an order.
    let layers =
        regatta_core::graph::layers(tasks.len(), &after, |_, _| false).unwrap_or_else(|_| vec![0; tasks.len()]);
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|it| (layers[*it], *it));
    let open = |at: usize| u32::from(!is_over(&tasks[at].word));
    let mut longest: Vec<(u32, Option<usize>)> = vec![(0, None); tasks.len()];
    for at in order.iter().copied() {
        let before = after[at].iter().map(|it| (longest[*it].0, *it)).max();
        longest[at] = (before.map_or(0, |it| it.0) + open(at), before.map(|it| it.1));
    }
    let mut critical = BTreeSet::new();
    let mut at =
        (0..tasks.len()).filter(|it| longest[*it].0 > 0).max_by_key(|it| (longest[*it].0, std::cmp::Reverse(*it)));
    while let Some(it) = at {
        critical.extend((open(it) > 0).then_some(it));
        at = longest[it].1;
    }
    let node = |at: usize| {
        let it = &tasks[at];
        Node {
            id: it.task.id,
            subject: it.task.subject.clone(),
            word: it.word.clone(),
            layer: layers[at] + 1,
            needs: it.task.blocked_by.clone(),
            critical: critical.contains(&at),
        }
    };
    order.into_iter().map(node).collect()
}

fn draw(out: &Out, title: &str, nodes: &[Node]) -> String {
    if nodes.is_empty() {
        return "no task\n".into();
    }
    let arrow = if out.unicode { "←" } else { "<-" };
    let folded = nodes.len() > MOST;
    let mut text = format!("{title}   {} tasks\n", nodes.len());
    let (mut rows, mut last, mut landed) = (Vec::new(), 0, 0);
    for it in nodes {
        if folded && is_over(&it.word) {
            landed += 1;
            continue;
        }
        let layer = if it.layer == last { String::new() } else { format!("{}", it.layer) };
        last = it.layer;
        let needs: Vec<String> = it.needs.iter().map(ToString::to_string).collect();
        let needs = if needs.is_empty() { String::new() } else { format!("{arrow} {}", needs.join(" ")) };
        let mark = if it.critical { "*" } else { "" };
        rows.push(vec![layer, format!("{}{mark}", it.id), out.state(&it.word), line(&it.subject), needs]);
    }
    text += &table(&rows);
    if landed > 0 {
        text += &format!("and {landed} landed\n");
    }
    let path: Vec<String> = nodes.iter().filter(|it| it.critical).map(|it| it.id.to_string()).collect();
    if path.len() > 1 {
        text += &format!("* the longest way through what is left: {}\n", path.join(" "));
    }
    text
}
