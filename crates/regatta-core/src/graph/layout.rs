//! The layout of the task graph for drawing, on a page and in a terminal alike. Waves are columns,
//! the layout has few crossings, the critical path through the open tasks is marked, and if there
//! are too many tasks to read, the least interesting ones are folded into one box.
//!
//! Positions are cells of a grid, counted from 0. An edge that is longer than one column has a cell
//! of its own in each column between, so no line runs through a box. All edges out of one box share
//! those cells.

mod fold; // tasks that share a box
mod grid; // the order and the rows of the cells
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::TaskId;
use crate::task::TaskStatus;

use super::waves;
use fold::{FoldInput, FoldedGraph};
use grid::LayoutGrid;

/// Maximum number of boxes in a drawing. Beyond that, tasks are folded.
pub const MAX_BOXES: usize = 60;
/// Maximum distance of the tasks that are drawn around one task.
pub const MAX_HOPS: usize = 2;
/// Maximum number of passes that reorder the columns.
const MAX_SWEEPS: usize = 8;

/// The progress of a task, as far as a drawing needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskProgress {
    /// The task is over.
    Ended,
    /// The task has not begun.
    Waiting,
    /// The task is in progress, or somebody must look at it.
    Active,
}

impl TaskProgress {
    /// Returns the progress for a status. A failed task is not over, because others may wait for
    /// its retry.
    pub fn from_status(status: TaskStatus) -> TaskProgress {
        match status {
            TaskStatus::Completed | TaskStatus::Cancelled => TaskProgress::Ended,
            TaskStatus::Backlog
            | TaskStatus::Unassigned
            | TaskStatus::Offered
            | TaskStatus::Pending => TaskProgress::Waiting,
            TaskStatus::InProgress
            | TaskStatus::Validating
            | TaskStatus::InReview
            | TaskStatus::Landing
            | TaskStatus::Failed
            | TaskStatus::NeedsHuman => TaskProgress::Active,
        }
    }
}

/// A task as far as a drawing needs it.
#[derive(Clone, Copy, Debug)]
pub struct LayoutTask<'a> {
    pub id: TaskId,
    pub needs: &'a [TaskId],
    /// The status word that people see. Except for tasks that are over, only tasks with the same
    /// word are folded together.
    pub label: &'a str,
    pub progress: TaskProgress,
}

/// A finished layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphLayout {
    pub columns: u32,
    pub rows: u32,
    /// Boxes, by column and then by row.
    pub nodes: Vec<LayoutNode>,
    pub edges: Vec<LayoutEdge>,
    /// The critical path: the longest path through the open tasks, in order. Empty if no open task
    /// waits for another.
    pub critical: Vec<TaskId>,
}

/// A box: one task or several folded tasks, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutNode {
    pub column: u32,
    pub row: u32,
    /// Tasks in the box, by number.
    pub tasks: Vec<TaskId>,
    /// The box is on the critical path.
    pub is_critical: bool,
}

/// A line from a box to a box that depends on it. `from` and `to` are indices of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutEdge {
    pub from: usize,
    pub to: usize,
    /// Cells of the line as `(column, row)`, one in each column from its first box to its last.
    pub through: Vec<(u32, u32)>,
    pub is_critical: bool,
}

/// Returns the tasks within [`MAX_HOPS`] dependencies of one task, in either direction, in their
/// original order.
pub fn neighbourhood<'a>(task: TaskId, all: &[LayoutTask<'a>]) -> Vec<LayoutTask<'a>> {
    let mut near = BTreeSet::from([task]);
    for _ in 0..MAX_HOPS {
        let mut more = Vec::new();
        for layout_task in all {
            if near.contains(&layout_task.id) {
                more.extend(layout_task.needs);
            }
            if layout_task.needs.iter().any(|need| near.contains(need)) {
                more.push(layout_task.id);
            }
        }
        near.extend(more);
    }
    all.iter()
        .filter(|layout_task| near.contains(&layout_task.id))
        .copied()
        .collect()
}

/// Lays tasks out. `keep` is never folded, because somebody asked about this task.
pub fn lay_out(tasks: &[LayoutTask<'_>], keep: Option<TaskId>) -> GraphLayout {
    // A task that is named twice is drawn once.
    let by_id: BTreeMap<TaskId, LayoutTask<'_>> = tasks
        .iter()
        .map(|layout_task| (layout_task.id, *layout_task))
        .collect();
    let tasks: Vec<LayoutTask<'_>> = by_id.values().copied().collect();
    let places: BTreeMap<TaskId, usize> =
        by_id.keys().enumerate().map(|(at, id)| (*id, at)).collect();
    let needs = |layout_task: &LayoutTask<'_>| {
        layout_task
            .needs
            .iter()
            .filter_map(|need| places.get(need).copied())
            .collect()
    };
    let (needs, columns) = assign_columns(tasks.iter().map(needs).collect());
    let way = critical_path(&tasks, &needs, &columns);
    let folding = FoldInput {
        tasks: &tasks,
        keep,
        critical_path: way.iter().copied().collect(),
    };
    let folded = folding.fold(FoldedGraph {
        members: (0..tasks.len()).map(|n| vec![n]).collect(),
        needs,
        columns,
    });
    compute_layout(&tasks, &folded, &way)
}

/// Removes duplicate and cyclic dependencies, and returns each item's column, which comes after the
/// columns of its dependencies. The daemon accepts no cycles, but a layout must terminate for any
/// input.
fn assign_columns(mut needs: Vec<Vec<usize>>) -> (Vec<Vec<usize>>, Vec<u32>) {
    for items in &mut needs {
        items.sort_unstable();
        items.dedup();
    }
    loop {
        match waves(&needs) {
            Ok(columns) => return (needs, columns),
            Err(circle) => match circle[..] {
                [one, next, ..] => needs[one].retain(|need| *need != next),
                _ => needs.iter_mut().for_each(Vec::clear),
            },
        }
    }
}

/// Returns the critical path: the path with the most open tasks. Of several, the path with the
/// smaller ids wins.
fn critical_path(tasks: &[LayoutTask<'_>], needs: &[Vec<usize>], columns: &[u32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|order| columns[*order]);
    let mut ways: Vec<(u32, Option<usize>)> = vec![(0, None); tasks.len()];
    let first = |one: &usize, other: &usize| other.cmp(one);
    for at in order {
        let before = needs[at]
            .iter()
            .copied()
            .max_by(|a, b| ways[*a].0.cmp(&ways[*b].0).then(first(a, b)));
        let open = u32::from(tasks[at].progress != TaskProgress::Ended);
        ways[at] = (before.map_or(0, |before| ways[before].0) + open, before);
    }
    let mut at = (0..tasks.len()).max_by(|a, b| ways[*a].0.cmp(&ways[*b].0).then(first(a, b)));
    let mut way = Vec::new();
    while let Some(n) = at {
        way.extend((tasks[n].progress != TaskProgress::Ended).then_some(n));
        at = ways[n].1;
    }
    way.reverse();
    if way.len() > 1 { way } else { vec![] }
}

/// Computes the grid of the folded boxes and returns the finished layout.
fn compute_layout(tasks: &[LayoutTask<'_>], folded: &FoldedGraph, way: &[usize]) -> GraphLayout {
    let mut boxes_of = vec![0; tasks.len()];
    for (at, members) in folded.members.iter().enumerate() {
        members.iter().for_each(|member| boxes_of[*member] = at);
    }
    let steps: BTreeSet<(usize, usize)> = way
        .windows(2)
        .map(|way| (boxes_of[way[0]], boxes_of[way[1]]))
        .filter(|way| way.0 != way.1)
        .collect();
    let (mut grid, paths) = LayoutGrid::from_folded(folded, &steps);
    grid.sort();
    let rows = grid.assign_rows();
    let mut place: Vec<(u32, u32)> = rows.iter().map(|row| (0, *row)).collect();
    for (column, cells) in (0..).zip(&grid.columns) {
        cells.iter().for_each(|cell| place[*cell].0 = column);
    }
    let mut order: Vec<usize> = (0..folded.len()).collect();
    order.sort_by_key(|order| place[*order]);
    let critical: BTreeSet<usize> = way.iter().map(|way| boxes_of[*way]).collect();
    let node = |at: &usize| LayoutNode {
        column: place[*at].0,
        row: place[*at].1,
        tasks: folded.members[*at]
            .iter()
            .map(|member| tasks[*member].id)
            .collect(),
        is_critical: critical.contains(at),
    };
    let mut listed = vec![0; order.len()];
    order
        .iter()
        .enumerate()
        .for_each(|(nth, at)| listed[*at] = nth);
    let edge = |path: Vec<usize>| {
        let ends = (*path.first()?, *path.last()?);
        let through = path.iter().map(|path| place[*path]).collect();
        Some(LayoutEdge {
            from: listed[ends.0],
            to: listed[ends.1],
            through,
            is_critical: steps.contains(&ends),
        })
    };
    let mut edges: Vec<LayoutEdge> = paths.into_iter().filter_map(edge).collect();
    edges.sort_by_key(|layout_edge| (layout_edge.from, layout_edge.to));
    GraphLayout {
        columns: grid.columns.len() as u32,
        rows: rows.iter().max().map_or(0, |row| row + 1),
        nodes: order.iter().map(node).collect(),
        edges,
        critical: way.iter().map(|way| tasks[*way].id).collect(),
    }
}
