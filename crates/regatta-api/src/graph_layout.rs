//! Computes the position of each task in a drawing of a graph of tasks, for the web page and the
//! terminal alike.
//!
//! Each column is a wave (tasks that can run at the same time). Within the columns, tasks are
//! ordered so that few lines cross. The critical path, which is the longest chain of open tasks, is
//! marked. If there are too many tasks to read, the least interesting ones share one box. Not here:
//! the drawing itself.
//!
//! Positions are cells of a grid, counted from 0. A line that spans more than one column has a cell
//! of its own in each column between, so no line runs through a box. All lines from one box share
//! the cells in between.

mod fold; // tasks that share a box
mod grid; // the order and the rows of the cells
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::display::TaskProgress;
use regatta_core::graph::waves;
use regatta_core::ids::TaskId;

use fold::{FoldInput, FoldedGraph};
use grid::LayoutGrid;

/// The maximum number of boxes in a drawing. If there are more tasks, several tasks share one box.
pub const MAX_BOXES: usize = 60;
/// The maximum distance of the tasks that are drawn around one task.
pub const MAX_HOPS: usize = 2;
/// The maximum number of passes that reorder the columns.
const MAX_SWEEPS: usize = 8;

/// The data of a task that a drawing needs.
#[derive(Clone, Copy, Debug)]
pub struct LayoutTask<'a> {
    pub id: TaskId,
    pub needs: &'a [TaskId],
    /// The status word that people see. Except for tasks that are over, only tasks with the same
    /// word can share a box.
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
    /// waits for another open task.
    pub critical: Vec<TaskId>,
}

/// A box: one task or several folded tasks, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutNode {
    pub column: u32,
    pub row: u32,
    /// Tasks in the box, by number.
    pub tasks: Vec<TaskId>,
    /// True if the box is on the critical path.
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
    let mut found = BTreeSet::from([task]);
    for _ in 0..MAX_HOPS {
        let mut neighbours = Vec::new();
        for candidate in all {
            if found.contains(&candidate.id) {
                neighbours.extend(candidate.needs);
            }
            if candidate.needs.iter().any(|need| found.contains(need)) {
                neighbours.push(candidate.id);
            }
        }
        found.extend(neighbours);
    }
    all.iter()
        .filter(|candidate| found.contains(&candidate.id))
        .copied()
        .collect()
}

/// Computes the layout of a drawing of tasks. The task `keep` always has its own box, because
/// somebody asked about this task.
pub fn lay_out(tasks: &[LayoutTask<'_>], keep: Option<TaskId>) -> GraphLayout {
    // A task that is named twice is drawn once.
    let by_id: BTreeMap<TaskId, LayoutTask<'_>> =
        tasks.iter().map(|task| (task.id, *task)).collect();
    let tasks: Vec<LayoutTask<'_>> = by_id.values().copied().collect();
    let index_of: BTreeMap<TaskId, usize> = by_id
        .keys()
        .enumerate()
        .map(|(index, id)| (*id, index))
        .collect();
    let needs = |task: &LayoutTask<'_>| {
        task.needs
            .iter()
            .filter_map(|need| index_of.get(need).copied())
            .collect()
    };
    let (needs, columns) = assign_columns(tasks.iter().map(needs).collect());
    let critical_path_indices = critical_path(&tasks, &needs, &columns);
    let fold_input = FoldInput {
        tasks: &tasks,
        keep,
        critical_path: critical_path_indices.iter().copied().collect(),
    };
    let folded = fold_input.fold(FoldedGraph {
        members: (0..tasks.len()).map(|index| vec![index]).collect(),
        needs,
        columns,
    });
    compute_layout(&tasks, &folded, &critical_path_indices)
}

/// Removes duplicate and cyclic dependencies, and returns each item's column, which comes after the
/// columns of its dependencies. The daemon accepts no cycles, but a layout must terminate for any
/// input.
fn assign_columns(mut needs: Vec<Vec<usize>>) -> (Vec<Vec<usize>>, Vec<u32>) {
    for dependencies in &mut needs {
        dependencies.sort_unstable();
        dependencies.dedup();
    }
    loop {
        match waves(&needs) {
            Ok(columns) => return (needs, columns),
            Err(cycle) => match cycle[..] {
                [first, next, ..] => needs[first].retain(|need| *need != next),
                _ => needs.iter_mut().for_each(Vec::clear),
            },
        }
    }
}

/// Returns the critical path: the path with the most open tasks. If several paths have the same
/// number of tasks, the path with the smaller ids wins.
fn critical_path(tasks: &[LayoutTask<'_>], needs: &[Vec<usize>], columns: &[u32]) -> Vec<usize> {
    let mut order_by_column: Vec<usize> = (0..tasks.len()).collect();
    order_by_column.sort_by_key(|task| columns[*task]);
    let mut best_paths: Vec<(u32, Option<usize>)> = vec![(0, None); tasks.len()];
    let smaller_id_wins = |a: &usize, b: &usize| b.cmp(a);
    for task in order_by_column {
        let best_predecessor = needs[task].iter().copied().max_by(|a, b| {
            best_paths[*a]
                .0
                .cmp(&best_paths[*b].0)
                .then(smaller_id_wins(a, b))
        });
        let own_count = u32::from(tasks[task].progress != TaskProgress::Ended);
        best_paths[task] = (
            best_predecessor.map_or(0, |before| best_paths[before].0) + own_count,
            best_predecessor,
        );
    }
    let mut task = (0..tasks.len()).max_by(|a, b| {
        best_paths[*a]
            .0
            .cmp(&best_paths[*b].0)
            .then(smaller_id_wins(a, b))
    });
    let mut path = Vec::new();
    while let Some(index) = task {
        path.extend((tasks[index].progress != TaskProgress::Ended).then_some(index));
        task = best_paths[index].1;
    }
    path.reverse();
    if path.len() > 1 { path } else { vec![] }
}

/// Computes the grid of the folded boxes and returns the finished layout.
fn compute_layout(
    tasks: &[LayoutTask<'_>],
    folded: &FoldedGraph,
    path_tasks: &[usize],
) -> GraphLayout {
    let mut box_of = vec![0; tasks.len()];
    for (index, members) in folded.members.iter().enumerate() {
        members.iter().for_each(|member| box_of[*member] = index);
    }
    let critical_steps: BTreeSet<(usize, usize)> = path_tasks
        .windows(2)
        .map(|pair| (box_of[pair[0]], box_of[pair[1]]))
        .filter(|(from, to)| from != to)
        .collect();
    let (mut grid, paths) = LayoutGrid::from_folded(folded, &critical_steps);
    grid.sort();
    let rows = grid.assign_rows();
    let mut positions: Vec<(u32, u32)> = rows.iter().map(|row| (0, *row)).collect();
    for (column, cells) in (0..).zip(&grid.columns) {
        cells.iter().for_each(|cell| positions[*cell].0 = column);
    }
    let mut order: Vec<usize> = (0..folded.len()).collect();
    order.sort_by_key(|index| positions[*index]);
    let critical: BTreeSet<usize> = path_tasks.iter().map(|task| box_of[*task]).collect();
    let node = |index: &usize| LayoutNode {
        column: positions[*index].0,
        row: positions[*index].1,
        tasks: folded.members[*index]
            .iter()
            .map(|member| tasks[*member].id)
            .collect(),
        is_critical: critical.contains(index),
    };
    let mut node_index = vec![0; order.len()];
    order
        .iter()
        .enumerate()
        .for_each(|(nth, index)| node_index[*index] = nth);
    let edge = |path: Vec<usize>| {
        let ends = (*path.first()?, *path.last()?);
        let through = path.iter().map(|cell| positions[*cell]).collect();
        Some(LayoutEdge {
            from: node_index[ends.0],
            to: node_index[ends.1],
            through,
            is_critical: critical_steps.contains(&ends),
        })
    };
    let mut edges: Vec<LayoutEdge> = paths.into_iter().filter_map(edge).collect();
    edges.sort_by_key(|edge| (edge.from, edge.to));
    GraphLayout {
        columns: grid.columns.len() as u32,
        rows: rows.iter().max().map_or(0, |row| row + 1),
        nodes: order.iter().map(node).collect(),
        edges,
        critical: path_tasks.iter().map(|task| tasks[*task].id).collect(),
    }
}
