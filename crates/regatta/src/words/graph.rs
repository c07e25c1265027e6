//! `graph` and `cost`: what waits for what, and what was spent on what.

use std::collections::{BTreeMap, BTreeSet};

use regatta_api::view::{AgentView, BudgetsView, MissionLineView, MissionView, TaskView};
use regatta_api::{Call, input};
use regatta_core::budget::{self, Spend};
use regatta_core::ids::TaskId;
use serde::Serialize;

use crate::args::{CostBy, Graph};
use crate::client::{Client, Got};
use crate::follow::tokens;
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

/// What was spent on one thing.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    spent: Spend,
}

/// What was spent, and of what.
#[derive(Debug, Serialize)]
struct Cost {
    by: &'static str,
    rows: Vec<Row>,
    total: Spend,
    /// Today's ceiling in millionths of a dollar.
    cap: Option<u64>,
    /// How many days before today are in it.
    days: u32,
    /// What an hour costs now, in millionths of a dollar, where that can be told.
    per_hour: Option<u64>,
}

pub(super) fn cost(app: &App, by: CostBy, since: Option<u32>) -> Said {
    if since.is_some() && by == CostBy::Mission {
        return Err(usage(
            "what a mission cost is counted as a whole, and not by the day",
            "leave --since out, or sum it up --by agent or --by provider",
        ));
    }
    let client = app.client()?;
    let budgets: Got<BudgetsView> = client.call(&Call::BudgetList(input::Spent { days: since.unwrap_or(0) }))?;
    let day = budgets.data.budgets.iter().find(|it| it.scope == budget::Scope::Day);
    let cap = day.and_then(|it| it.ceiling.micro_usd);
    let (by, rows) = match by {
        CostBy::Agent => ("agent", by_name(budgets.data.by_agent.iter().map(|it| (it.0.to_string(), it.1)))),
        CostBy::Provider => {
            let agents: Got<Vec<AgentView>> = client.call(&Call::AgentList(input::Nothing {}))?;
            let provider = |name: &regatta_core::ids::AgentName| {
                let agent = agents.data.iter().find(|it| it.agent.name == *name);
                agent.and_then(|it| it.agent.provider.clone()).unwrap_or_else(|| name.to_string())
            };
            ("provider", by_name(budgets.data.by_agent.iter().map(|it| (provider(&it.0), it.1))))
        }
        CostBy::Mission => {
            let scope = input::Scope { project: app.project(&client)? };
            let missions: Got<Vec<MissionLineView>> = client.call(&Call::MissionList(scope))?;
            let name = |it: &MissionLineView| format!("{} {}", it.id, line(&it.title));
            ("mission", missions.data.iter().map(|it| Row { name: name(it), spent: it.spent }).collect())
        }
    };
    let days = since.unwrap_or(0);
    // A ceiling is a day's.
    let cost = Cost {
        by,
        rows,
        total: budgets.data.spent,
        cap: cap.filter(|_| days == 0),
        days,
        per_hour: budgets.data.per_hour,
    };
    app.out.answer("cost", &cost, &["regatta budget list".into()], |_| draw_cost(&cost))
}

fn by_name(all: impl Iterator<Item = (String, Spend)>) -> Vec<Row> {
    let mut sums: BTreeMap<String, Spend> = BTreeMap::new();
    for (name, spend) in all {
        let sum = sums.entry(name).or_default();
        *sum = sum.plus(&spend);
    }
    sums.into_iter().map(|(name, spent)| Row { name, spent }).collect()
}

/// A price that nobody reported is not nothing.
fn price(spent: &Spend) -> String {
    match spent.usage.micro_usd {
        Some(micro) => format!("${:.2}", micro as f64 / 1e6),
        None if spent.usage.tokens() == 0 => "-".into(),
        None => "no price reported".into(),
    }
}

fn draw_cost(it: &Cost) -> String {
    let head = [it.by, "attempts", "in", "out", "cache", "cost"].map(str::to_owned).to_vec();
    let row = |name: &str, spent: &Spend| {
        let usage = &spent.usage;
        let all = usage.input + usage.cached_input + usage.cache_write;
        let cache = if usage.cached_input == 0 { "-".into() } else { format!("{} %", usage.cached_input * 100 / all) };
        vec![line(name), spent.attempts.to_string(), tokens(all), tokens(usage.output), cache, price(spent)]
    };
    let mut rows = vec![head];
    rows.extend(it.rows.iter().map(|it| row(&it.name, &it.spent)));
    let first = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let first = first.saturating_sub(jiff::Span::new().days(it.days));
    let name = if it.days == 0 { "today".to_owned() } else { format!("since {first}") };
    let mut total = row(&name, &it.total);
    if let (Some(cap), Some(last)) = (it.cap, total.last_mut()) {
        *last += &format!(" of ${:.2}", cap as f64 / 1e6);
    }
    rows.push(total);
    let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    table(&rows) + &forecast(it, now)
}

/// What an hour costs now, and when the cap is reached at that rate; nothing where that cannot be told.
fn forecast(it: &Cost, now: u64) -> String {
    let Some(rate) = it.per_hour.filter(|it| *it > 0) else { return String::new() };
    let mut text = format!("now    ${:.2} an hour", rate as f64 / 1e6);
    if let (Some(cap), Some(spent)) = (it.cap, it.total.usage.micro_usd) {
        let left = u128::from(cap.saturating_sub(spent)) * 3_600_000 / u128::from(rate);
        text += &match u64::try_from(left) {
            Ok(0) => " · the cap is reached: nothing new is started today".to_owned(),
            Ok(ms) if ms < 86_400_000 => {
                format!(" · the cap is reached about {} at this rate", &super::see::hour(now + ms)[..5])
            }
            _ => String::new(),
        };
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// J6: an hour's price, and when the cap is reached; nothing is foretold of what is not known.
    #[test]
    fn a_rate_foretells_the_cap() {
        let cost = |per_hour, cap, spent| {
            let mut total = Spend::default();
            total.usage.micro_usd = spent;
            Cost { by: "agent", rows: vec![], total, cap, days: 0, per_hour }
        };
        assert_eq!(forecast(&cost(None, Some(5), Some(1)), 0), "");
        assert_eq!(forecast(&cost(Some(1_100_000), None, Some(1)), 0), "now    $1.10 an hour\n");
        let text = forecast(&cost(Some(1_000_000), Some(3_000_000), Some(1_000_000)), 0);
        let due = &crate::words::hour(7_200_000)[..5];
        assert_eq!(text, format!("now    $1.00 an hour · the cap is reached about {due} at this rate\n"));
        let over = forecast(&cost(Some(1_000_000), Some(1), Some(2)), 0);
        assert!(over.contains("the cap is reached: nothing new"), "{over}");
        let far = forecast(&cost(Some(1), Some(9_000_000), Some(1)), 0);
        assert!(!far.contains("cap"), "days ahead is no forecast: {far}");
    }

    #[test]
    fn unknown_prices_are_not_nothing() {
        let spend = |input: u64, micro_usd: Option<u64>| {
            let mut it = Spend::default();
            (it.usage.input, it.usage.micro_usd) = (input, micro_usd);
            it
        };
        assert_eq!(price(&spend(0, None)), "-");
        assert_eq!(price(&spend(10, None)), "no price reported");
        assert_eq!(price(&spend(10, Some(0))), "$0.00", "a program that says that it cost nothing is believed");
        assert_eq!(price(&spend(10, Some(2_840_000))), "$2.84");
        let rows = by_name(
            [
                ("a".to_owned(), spend(1, Some(5))),
                ("b".to_owned(), spend(2, None)),
                ("a".to_owned(), spend(3, Some(7))),
            ]
            .into_iter(),
        );
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].spent.usage.input, rows[0].spent.usage.micro_usd), (4, Some(12)));
    }
}
