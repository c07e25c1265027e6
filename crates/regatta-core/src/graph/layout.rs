//! The layout of the task graph for drawing, on a page and in a terminal alike. Waves are columns,
//! the layout has few crossings, the critical path through the open tasks is marked, and if there
//! are too many tasks to read, the least interesting ones are folded into one box.
//!
//! Positions are cells of a grid, counted from 0. An edge that is longer than one column has a cell
//! of its own in each column between, so no line runs through a box. All edges out of one box share
//! those cells.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::TaskId;
use crate::task::TaskStatus;

use super::waves;

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

/// Boxes with their dependencies, before they have rows.
struct FoldedGraph {
    /// The tasks in each box, in order.
    members: Vec<Vec<usize>>,
    needs: Vec<Vec<usize>>,
    columns: Vec<u32>,
}

impl FoldedGraph {
    /// Joins the boxes with equal keys. The caller ensures that no two of them depend on each other
    /// through a third.
    fn join_equal<K: Ord>(self, key: impl Fn(&FoldedGraph, usize) -> Option<K>) -> FoldedGraph {
        let (mut by_key, mut into): (BTreeMap<K, usize>, Vec<usize>) =
            (BTreeMap::new(), Vec::new());
        let mut members: Vec<Vec<usize>> = Vec::new();
        for at in 0..self.members.len() {
            let place = match key(&self, at) {
                Some(key) => *by_key.entry(key).or_insert(members.len()),
                None => members.len(),
            };
            if place == members.len() {
                members.push(vec![]);
            }
            members[place].extend(&self.members[at]);
            into.push(place);
        }
        let mut needs = vec![vec![]; members.len()];
        for (at, of) in self.needs.iter().enumerate() {
            needs[into[at]].extend(of.iter().map(|of| into[*of]).filter(|of| *of != into[at]));
        }
        members
            .iter_mut()
            .for_each(|members| members.sort_unstable());
        let (needs, columns) = assign_columns(needs);
        FoldedGraph {
            members,
            needs,
            columns,
        }
    }

    fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns for each box whether another box depends on it.
    fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.len()];
        self.needs
            .iter()
            .flatten()
            .for_each(|need| needed[*need] = true);
        needed
    }
}

/// The input of folding: the tasks, the task to keep visible, and the critical path.
struct FoldInput<'a> {
    tasks: &'a [LayoutTask<'a>],
    keep: Option<TaskId>,
    critical_path: BTreeSet<usize>,
}

impl FoldInput<'_> {
    /// Folds boxes until the drawing can be read, the least interesting ones first.
    fn fold(&self, all: FoldedGraph) -> FoldedGraph {
        type FoldStep<'a> = &'a dyn Fn(FoldedGraph) -> FoldedGraph;
        let steps: [FoldStep<'_>; 5] = [
            &|folded_graph| self.fold_ended(folded_graph),
            &|folded_graph| self.fold_leaves(folded_graph),
            &|folded_graph| self.fold_columns(folded_graph, |at| self.needs_no_attention(at)),
            &|folded_graph| self.fold_columns(folded_graph, |at| self.excludes_kept_task(at)),
            &|folded_graph| self.fold_tail(folded_graph),
        ];
        steps.iter().fold(all, |folded_graph, step| {
            if folded_graph.len() > MAX_BOXES {
                step(folded_graph)
            } else {
                folded_graph
            }
        })
    }

    /// Returns whether a box does not contain the task to keep visible.
    fn excludes_kept_task(&self, at: &[usize]) -> bool {
        at.iter().all(|at| Some(self.tasks[*at].id) != self.keep)
    }

    /// Returns whether nothing in a box needs attention.
    fn needs_no_attention(&self, at: &[usize]) -> bool {
        self.excludes_kept_task(at)
            && at.iter().all(|at| {
                self.tasks[*at].progress != TaskProgress::Active && !self.critical_path.contains(at)
            })
    }

    /// Returns the status word of a box.
    fn label_of(&self, at: &[usize]) -> &str {
        at.first().map_or("", |at| self.tasks[*at].label)
    }

    /// Folds tasks that are over and whose dependencies are over. Each connected piece becomes one
    /// box, and all pieces that no open task waits for share one box.
    fn fold_ended(&self, folded_graph: FoldedGraph) -> FoldedGraph {
        let mut order: Vec<usize> = (0..folded_graph.len()).collect();
        order.sort_by_key(|at| folded_graph.columns[*at]);
        let mut over = vec![false; folded_graph.len()];
        for at in order {
            let ended = folded_graph.members[at]
                .iter()
                .all(|member| self.tasks[*member].progress == TaskProgress::Ended);
            over[at] = ended
                && self.excludes_kept_task(&folded_graph.members[at])
                && folded_graph.needs[at].iter().all(|need| over[*need]);
        }
        let mut pieces = UnionFind::new(folded_graph.len());
        let links = || {
            folded_graph
                .needs
                .iter()
                .enumerate()
                .flat_map(|(at, needs)| needs.iter().map(move |need| (*need, at)))
        };
        links()
            .filter(|(_, at)| over[*at])
            .for_each(|(need, at)| pieces.union(need, at));
        let piece: Vec<usize> = (0..folded_graph.len()).map(|at| pieces.root(at)).collect();
        let waited: BTreeSet<usize> = links()
            .filter(|(_, at)| !over[*at])
            .map(|(need, _)| piece[need])
            .collect();
        folded_graph
            .join_equal(|_, at| over[at].then(|| Some(piece[at]).filter(|n| waited.contains(n))))
    }

    /// Folds tasks with equal dependencies and the same status word for which no task waits.
    fn fold_leaves(&self, folded_graph: FoldedGraph) -> FoldedGraph {
        let needed = folded_graph.needed();
        let leaf = |folded_graph: &FoldedGraph, at: usize| {
            let whole = !needed[at] && self.needs_no_attention(&folded_graph.members[at]);
            whole.then(|| {
                (
                    folded_graph.needs[at].clone(),
                    self.label_of(&folded_graph.members[at]),
                )
            })
        };
        folded_graph.join_equal(leaf)
    }

    /// Folds the tasks of one wave that have the same status word.
    fn fold_columns(
        &self,
        folded_graph: FoldedGraph,
        may: impl Fn(&[usize]) -> bool,
    ) -> FoldedGraph {
        folded_graph.join_equal(|folded_graph, at| {
            let of = &folded_graph.members[at];
            may(of).then(|| (folded_graph.columns[at], self.label_of(of)))
        })
    }

    /// Folds everything after as many waves as can be read. Around one task nothing is that far
    /// away, except tasks before it, and then all of them are drawn.
    fn fold_tail(&self, folded_graph: FoldedGraph) -> FoldedGraph {
        let mut last: Vec<u32> = folded_graph.columns.clone();
        last.sort_unstable();
        match last.get(MAX_BOXES - 1) {
            Some(from) if self.keep.is_none() => folded_graph
                .join_equal(|folded_graph, at| (folded_graph.columns[at] >= *from).then_some(())),
            _ => folded_graph,
        }
    }
}

/// Connected components, as a union-find structure.
struct UnionFind(Vec<usize>);

impl UnionFind {
    fn new(many: usize) -> UnionFind {
        UnionFind((0..many).collect())
    }

    /// Returns the representative of an item's component: its smallest member.
    fn root(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn union(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one.max(other)] = one.min(other);
    }
}

/// The grid's cells: the boxes first, then the cells of long edges.
struct LayoutGrid {
    /// Cells of each column, from top to bottom.
    columns: Vec<Vec<usize>>,
    /// Links of each cell to the previous and to the next column.
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
    /// Links on the critical path. They have more weight.
    critical_links: BTreeSet<(usize, usize)>,
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

impl LayoutGrid {
    /// Puts boxes into their columns, component by component. Returns the grid with the cells of
    /// each edge, from its first box to its last.
    fn from_folded(
        folded: &FoldedGraph,
        steps: &BTreeSet<(usize, usize)>,
    ) -> (LayoutGrid, Vec<Vec<usize>>) {
        let wide = folded
            .columns
            .iter()
            .max()
            .map_or(0, |column| *column as usize + 1);
        let mut pieces = UnionFind::new(folded.len());
        let mut alone = vec![true; folded.len()];
        for (at, needs) in folded.needs.iter().enumerate() {
            for need in needs {
                pieces.union(at, *need);
                (alone[at], alone[*need]) = (false, false);
            }
        }
        // Connected boxes stay together, and isolated boxes come last.
        let mut order: Vec<usize> = (0..folded.len()).collect();
        order.sort_by_key(|order| (alone[*order], pieces.root(*order), *order));
        let mut rank = vec![0; order.len()];
        order
            .iter()
            .enumerate()
            .for_each(|(nth, order)| rank[*order] = nth);
        let mut grid = LayoutGrid {
            columns: vec![vec![]; wide],
            before: vec![vec![]; folded.len()],
            after: vec![vec![]; folded.len()],
            critical_links: BTreeSet::new(),
        };
        order
            .iter()
            .for_each(|order| grid.columns[folded.columns[*order] as usize].push(*order));
        // All edges out of one box share their cells.
        let mut cells: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut paths = Vec::new();
        for to in order {
            for from in &folded.needs[to] {
                let mut path = vec![*from];
                for column in folded.columns[*from] as usize + 1..folded.columns[to] as usize {
                    let cell = *cells
                        .entry((*from, column))
                        .or_insert_with(|| grid.add_cell(column, &mut rank, *from));
                    path.push(cell);
                }
                path.push(to);
                path.windows(2)
                    .for_each(|path| grid.link(path[0], path[1], steps.contains(&(*from, to))));
                paths.push(path);
            }
        }
        (grid, paths)
    }

    /// Adds a cell for a long edge, next to the place that its first box would have in the column.
    fn add_cell(&mut self, column: usize, rank: &mut Vec<usize>, from: usize) -> usize {
        let cell = self.before.len();
        rank.push(rank[from]);
        self.before.push(vec![]);
        self.after.push(vec![]);
        let place = self.columns[column].partition_point(|column| rank[*column] <= rank[from]);
        self.columns[column].insert(place, cell);
        cell
    }

    fn link(&mut self, from: usize, to: usize, heavy: bool) {
        if !self.after[from].contains(&to) {
            self.after[from].push(to);
            self.before[to].push(from);
        }
        if heavy {
            self.critical_links.insert((from, to));
        }
    }

    /// Reorders each column by the average position of the linked cells, back and forth, and keeps
    /// the order with the fewest crossings. Of several the first wins, so that a small change of
    /// the graph moves little.
    fn sort(&mut self) {
        let mut places = vec![0; self.before.len()];
        let mut best = (self.crossings(&mut places), self.columns.clone());
        for sweep in 0..MAX_SWEEPS {
            if best.0 == 0 {
                break;
            }
            let wide = self.columns.len();
            for nth in 1..wide {
                let (at, by) = if sweep % 2 == 0 {
                    (nth, nth - 1)
                } else {
                    (wide - 1 - nth, wide - nth)
                };
                self.record_positions(by, &mut places);
                let links = if sweep % 2 == 0 {
                    &self.before
                } else {
                    &self.after
                };
                let middle = |place: usize, of: &[usize]| match of.len() {
                    0 => place * 100,
                    many => of.iter().map(|of| places[*of]).sum::<usize>() * 100 / many,
                };
                let cells = self.columns[at].iter().enumerate();
                let mut keyed: Vec<(usize, usize)> = cells
                    .map(|(nth, cell)| (middle(nth, &links[*cell]), *cell))
                    .collect();
                keyed.sort_by_key(|keyed| keyed.0);
                self.columns[at] = keyed.into_iter().map(|keyed| keyed.1).collect();
            }
            let crossings = self.crossings(&mut places);
            if crossings < best.0 {
                best = (crossings, self.columns.clone());
            }
        }
        self.columns = best.1;
    }

    /// Records the position of each cell within its column.
    fn record_positions(&self, column: usize, places: &mut [usize]) {
        self.columns[column]
            .iter()
            .enumerate()
            .for_each(|(nth, cell)| places[*cell] = nth);
    }

    /// Returns the number of pairs of links that cross.
    fn crossings(&self, places: &mut [usize]) -> usize {
        let mut crossed = 0;
        for column in 1..self.columns.len() {
            self.record_positions(column, places);
            // Links by their first end, from top to bottom. Each link crosses the earlier links
            // that end below it.
            let mut ends = vec![0; self.columns[column].len() + 1];
            for cell in &self.columns[column - 1] {
                let to = || self.after[*cell].iter().map(|after| places[*after]);
                for place in to() {
                    // A Fenwick tree gives the number of ends at `place` and above.
                    let (mut at, mut above) = (place + 1, 0);
                    while at > 0 {
                        above += ends[at];
                        at &= at - 1;
                    }
                    crossed += ends[0] - above;
                }
                for place in to() {
                    ends[0] += 1;
                    let mut at = place + 1;
                    while at < ends.len() {
                        ends[at] += 1;
                        at += at & at.wrapping_neg();
                    }
                }
            }
        }
        crossed
    }

    /// Gives each cell a row close to its linked cells, in the order of its column, with at most
    /// one cell per place. Empty rows are left out.
    fn assign_rows(&self) -> Vec<u32> {
        let mut rows = vec![0_i64; self.before.len()];
        for column in &self.columns {
            column
                .iter()
                .enumerate()
                .for_each(|(nth, column)| rows[*column] = nth as i64);
        }
        // First align with the previous column, then with the next one, then with both.
        let wide = self.columns.len();
        (1..wide).for_each(|n| self.move_to_preferred_rows(n, (true, false), &mut rows));
        (0..wide)
            .rev()
            .for_each(|n| self.move_to_preferred_rows(n, (false, true), &mut rows));
        (0..wide)
            .chain((0..wide).rev())
            .for_each(|n| self.move_to_preferred_rows(n, (true, true), &mut rows));
        let used: Vec<i64> = rows
            .iter()
            .copied()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        rows.iter()
            .map(|row| used.partition_point(|other| other < row) as u32)
            .collect()
    }

    /// Moves the cells of a column to their wished rows, as close as their order allows. Neighbours
    /// with conflicting wishes meet in the middle.
    fn move_to_preferred_rows(&self, column: usize, sides: (bool, bool), rows: &mut [i64]) {
        // Each run has the weighted sum of its cells' wished rows minus their positions, the
        // weight, and the count.
        let mut runs: Vec<(i64, i64, usize)> = Vec::new();
        for (nth, cell) in self.columns[column].iter().enumerate() {
            let (wish, weight) = self.preferred_row(*cell, sides, rows);
            let mut run = ((wish - nth as i64) * weight, weight, 1);
            while let Some(last) = runs.last().copied()
                && last.0 * run.1 >= run.0 * last.1
            {
                runs.pop();
                run = (run.0 + last.0, run.1 + last.1, run.2 + last.2);
            }
            runs.push(run);
        }
        let mut cells = self.columns[column].iter().enumerate();
        for (sum, weight, many) in runs {
            let shift = (2 * sum + weight).div_euclid(2 * weight);
            cells
                .by_ref()
                .take(many)
                .for_each(|(nth, cell)| rows[*cell] = shift + nth as i64);
        }
    }

    /// Returns a cell's wished row and its weight: the average row of its links, or of its links on
    /// the critical path.
    fn preferred_row(&self, cell: usize, (left, right): (bool, bool), rows: &[i64]) -> (i64, i64) {
        let before = self.before[cell]
            .iter()
            .filter(|_| left)
            .map(|before| (rows[*before], (*before, cell)));
        let after = self.after[cell]
            .iter()
            .filter(|_| right)
            .map(|after| (rows[*after], (cell, *after)));
        let linked: Vec<(i64, (usize, usize))> = before.chain(after).collect();
        let heavy: Vec<i64> = linked
            .iter()
            .filter(|linked| self.critical_links.contains(&linked.1))
            .map(|linked| linked.0)
            .collect();
        let all: Vec<i64> = linked.iter().map(|linked| linked.0).collect();
        let middle = |of: &[i64]| of.iter().sum::<i64>().div_euclid(of.len().max(1) as i64);
        match (heavy.is_empty(), all.is_empty()) {
            (false, _) => (middle(&heavy), 16),
            (true, false) => (middle(&all), 4),
            (true, true) => (rows[cell], 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type TestTask = (u64, Vec<u64>, char);

    #[test]
    fn a_tasks_state_in_the_layout_follows_from_its_status() {
        let of = |stand| {
            TaskStatus::ALL
                .into_iter()
                .filter(|task_status| TaskProgress::from_status(*task_status) == stand)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of(TaskProgress::Ended),
            [TaskStatus::Completed, TaskStatus::Cancelled]
        );
        assert_eq!(
            of(TaskProgress::Waiting),
            [
                TaskStatus::Backlog,
                TaskStatus::Unassigned,
                TaskStatus::Offered,
                TaskStatus::Pending
            ]
        );
    }

    fn status_of(state: char) -> (&'static str, TaskProgress) {
        match state {
            'l' => ("landed", TaskProgress::Ended),
            'c' => ("cancelled", TaskProgress::Ended),
            'w' => ("working", TaskProgress::Active),
            _ => ("waiting", TaskProgress::Waiting),
        }
    }

    fn layout_of(given: &[TestTask], keep: Option<u64>) -> GraphLayout {
        let needs: Vec<Vec<TaskId>> = given
            .iter()
            .map(|given| given.1.iter().map(|n| TaskId(*n)).collect())
            .collect();
        let item = |(row, needs): (&TestTask, &'static [TaskId])| LayoutTask {
            id: TaskId(row.0),
            needs,
            label: status_of(row.2).0,
            progress: status_of(row.2).1,
        };
        let needs: Vec<&'static [TaskId]> = needs.into_iter().map(|ids| &*ids.leak()).collect();
        let items: Vec<LayoutTask<'_>> = given.iter().zip(needs).map(item).collect();
        match keep {
            Some(keep) => lay_out(&neighbourhood(TaskId(keep), &items), Some(TaskId(keep))),
            None => lay_out(&items, None),
        }
    }

    /// Formats a layout as `T1@0,0 T2+3@1,0*`: first task, number of further tasks, column, row,
    /// and `*` on the critical path.
    fn format_layout(graph_layout: &GraphLayout) -> String {
        let node = |layout_node: &LayoutNode| {
            let more = if layout_node.tasks.len() > 1 {
                format!("+{}", layout_node.tasks.len() - 1)
            } else {
                String::new()
            };
            let mark = if layout_node.is_critical { "*" } else { "" };
            format!(
                "T{}{more}@{},{}{mark}",
                layout_node.tasks[0].0, layout_node.column, layout_node.row
            )
        };
        graph_layout
            .nodes
            .iter()
            .map(node)
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn format_edges(graph_layout: &GraphLayout) -> Vec<String> {
        let name = |at: usize| format!("T{}", graph_layout.nodes[at].tasks[0].0);
        let mark = |layout_edge: &LayoutEdge| if layout_edge.is_critical { "*" } else { "" };
        graph_layout
            .edges
            .iter()
            .map(|edge| format!("{}-{}{}", name(edge.from), name(edge.to), mark(edge)))
            .collect()
    }

    fn check(given: &[TestTask], expected: &str) {
        assert_eq!(
            format_layout(&layout_of(given, None)),
            expected,
            "{given:?}"
        );
    }

    #[test]
    fn waves_are_columns_and_no_two_tasks_share_a_cell() {
        check(&[], "");
        check(&[(1, vec![], '-')], "T1@0,0");
        // A chain is straight, and an isolated task is below it.
        check(
            &[
                (1, vec![], '-'),
                (2, vec![1], '-'),
                (3, vec![2], '-'),
                (4, vec![], '-'),
            ],
            "T1@0,0* T4@0,1 T2@1,0* T3@2,0*",
        );
        // Three tasks depend on one, and a fifth depends on the three.
        let fan = [
            (1, vec![], '-'),
            (2, vec![1], '-'),
            (3, vec![1], '-'),
            (4, vec![1], '-'),
            (5, vec![2, 3, 4], '-'),
        ];
        check(&fan, "T1@0,0* T2@1,0* T3@1,1 T4@1,2 T5@2,0*");
        // A long edge has its own cell in each column between, so no line crosses T2.
        let long = layout_of(
            &[(1, vec![], '-'), (2, vec![1], '-'), (3, vec![1, 2], '-')],
            None,
        );
        assert_eq!(format_layout(&long), "T1@0,1* T2@1,1* T3@2,1*");
        assert_eq!(format_edges(&long), ["T1-T2*", "T1-T3", "T2-T3*"]);
        assert_eq!(long.edges[1].through, [(0, 1), (1, 0), (2, 1)]);
        assert_eq!((long.columns, long.rows), (3, 2));
        // Connected tasks stay together, and isolated tasks come last.
        check(
            &[
                (1, vec![], 'l'),
                (2, vec![], 'l'),
                (3, vec![], 'l'),
                (4, vec![3], 'l'),
            ],
            "T3@0,0 T1@0,1 T2@0,2 T4@1,0",
        );
        let mixed = [
            (1, vec![], 'l'),
            (2, vec![], 'l'),
            (3, vec![2], 'l'),
            (4, vec![1], 'l'),
        ];
        check(&mixed, "T1@0,0 T2@0,1 T4@1,0 T3@1,1");
        // Tasks whose lines would cross change places.
        let crossed = [
            (1, vec![], 'l'),
            (2, vec![], 'l'),
            (3, vec![], 'l'),
            (4, vec![3], 'l'),
            (5, vec![1], 'l'),
        ];
        let crossed: Vec<TestTask> = crossed
            .into_iter()
            .chain([(6, vec![2], 'l'), (7, vec![4, 5, 6], 'l')])
            .collect();
        check(&crossed, "T1@0,0 T2@0,1 T3@0,2 T5@1,0 T6@1,1 T4@1,2 T7@2,1");
    }

    #[test]
    fn the_critical_path_is_the_longest_path_of_open_tasks() {
        let way = |given: &[TestTask]| {
            layout_of(given, None)
                .critical
                .iter()
                .map(|id| id.0)
                .collect::<Vec<_>>()
        };
        // T3 ends the longest path of all tasks, T5 the longest path of open tasks.
        let half = [
            (1, vec![], 'l'),
            (2, vec![1], 'l'),
            (3, vec![2], '-'),
            (4, vec![], 'w'),
            (5, vec![4], '-'),
        ];
        assert_eq!(way(&half), [4, 5]);
        // Of two equally long paths, the one with the smaller ids wins.
        assert_eq!(
            way(&[
                (4, vec![], '-'),
                (3, vec![], '-'),
                (6, vec![4], '-'),
                (5, vec![3], '-')
            ]),
            [3, 5]
        );
        // A single task is no path, and landed tasks are not counted.
        assert_eq!(
            way(&[(1, vec![], '-'), (2, vec![], '-')]),
            Vec::<u64>::new()
        );
        assert_eq!(
            way(&[(1, vec![], 'l'), (2, vec![1], 'l')]),
            Vec::<u64>::new()
        );
    }

    #[test]
    fn the_neighbourhood_of_a_task_is_two_steps_in_each_direction() {
        let chain: Vec<TestTask> = (1..=9).map(|n| (n, vec![n - 1], '-')).collect();
        let near = layout_of(&chain, Some(5));
        assert_eq!(
            format_layout(&near),
            "T3@0,0* T4@1,0* T5@2,0* T6@3,0* T7@4,0*"
        );
        assert_eq!(layout_of(&chain, Some(99)), GraphLayout::default());
    }

    /// Above sixty boxes, the least interesting tasks share a box.
    #[test]
    fn the_least_interesting_tasks_are_folded_first() {
        // Up to sixty tasks are drawn one by one, whatever their status.
        let many = |many: u64| {
            (1..=many)
                .map(|n| (n, vec![], 'l'))
                .collect::<Vec<TestTask>>()
        };
        assert_eq!(layout_of(&many(60), None).nodes.len(), 60);
        check(&many(61), "T1+60@0,0");
        // One landed chain has an open end, and no task waits for the other.
        let mut chains: Vec<TestTask> = (1..=40)
            .map(|n| (n, vec![n - 1], if n < 39 { 'l' } else { '-' }))
            .collect();
        chains.extend((41..=80).map(|n| (n, if n == 41 { vec![] } else { vec![n - 1] }, 'l')));
        check(&chains, "T1+37@0,0 T41+39@0,1 T39@1,0* T40@2,0*");
        // Pieces that no open task waits for share one box.
        chains.extend([(81, vec![], 'l'), (82, vec![81], 'l')]);
        check(&chains, "T1+37@0,0 T41+41@0,1 T39@1,0* T40@2,0*");
        chains.truncate(80);
        // A landed task that depends on an open one is not folded with earlier ones, so no cycle
        // arises.
        chains[36].2 = '-';
        check(
            &chains,
            "T1+35@0,0 T41+39@0,1 T37@1,0* T38@2,0 T39@3,0* T40@4,0*",
        );
        // Leaves with equal dependencies and status are folded; working tasks stay visible.
        let mut leaves: Vec<TestTask> = (2..=70)
            .map(|n| (n, vec![1], if n < 11 { '-' } else { 'l' }))
            .collect();
        leaves.push((1, vec![], 'w'));
        (leaves[7].2, leaves[8].2) = ('w', 'w');
        check(
            &leaves,
            "T1@0,0* T2@1,0* T3+5@1,1 T9@1,2 T10@1,3 T11+59@1,4",
        );
        // Pairs: tasks of one wave with the same status are folded, except on the critical path.
        let pairs: Vec<TestTask> = (1..=70)
            .map(|n| (n, if n % 2 == 0 { vec![n - 1] } else { vec![] }, '-'))
            .collect();
        check(&pairs, "T1@0,0* T3+33@0,1 T2@1,0* T4+33@1,1");
        // Working tasks are folded, too, if all of them work.
        let busy: Vec<TestTask> = (1..=70).map(|n| (n, vec![], 'w')).collect();
        check(&busy, "T1+69@0,0");
        // A very long chain is cut where it can no longer be read.
        let chain: Vec<TestTask> = (1..=300).map(|n| (n, vec![n - 1], '-')).collect();
        let cut = layout_of(&chain, None);
        assert_eq!(
            (
                cut.nodes.len(),
                cut.nodes[59].tasks.len(),
                cut.critical.len()
            ),
            (60, 241, 300)
        );
    }

    #[test]
    fn the_task_in_the_centre_is_never_folded() {
        let mut given: Vec<TestTask> = (2..=90).map(|n| (n, vec![1], '-')).collect();
        given.push((1, vec![], 'l'));
        let near = layout_of(&given, Some(50));
        assert_eq!(
            near.nodes
                .iter()
                .filter(|layout_node| layout_node.tasks == [TaskId(50)])
                .count(),
            1
        );
        assert!(near.nodes.len() < 5, "{}", format_layout(&near));
    }

    /// The daemon accepts no cycles. If one appeared all the same, the layout would still
    /// terminate.
    #[test]
    fn a_cycle_does_not_keep_the_layout_from_ending() {
        check(&[(1, vec![1], '-')], "T1@0,0");
        let two = layout_of(&[(1, vec![2], '-'), (2, vec![1], '-')], None);
        assert_eq!((two.nodes.len(), two.edges.len()), (2, 1));
        let third = layout_of(
            &[(1, vec![2, 3], '-'), (2, vec![1], '-'), (3, vec![], '-')],
            None,
        );
        assert!(
            format_edges(&third)
                .iter()
                .any(|format_edge| format_edge.starts_with("T3-T1")),
            "an edge outside the cycle was left out"
        );
        let all: Vec<TestTask> = (0..80).map(|n| (n, (0..80).collect(), '-')).collect();
        assert_eq!(
            layout_of(&all, None)
                .nodes
                .iter()
                .map(|layout_node| layout_node.tasks.len())
                .sum::<usize>(),
            80
        );
    }

    /// A task whose status changes keeps its position if nothing else changes.
    #[test]
    fn a_change_of_status_moves_no_task() {
        let given = |at: char| -> Vec<TestTask> {
            (1..=50)
                .map(|n| (n, vec![n / 2, n / 3], if n == 7 { at } else { 'l' }))
                .collect()
        };
        let places = |at: char| layout_of(&given(at), None).nodes;
        assert_eq!(places('l'), places('w'));
    }

    /// Checks the properties that each layout must have.
    fn check_properties(given: &[TestTask], graph_layout: &GraphLayout, keep: Option<u64>) {
        let mut drawn: Vec<u64> = graph_layout
            .nodes
            .iter()
            .flat_map(|layout_node| layout_node.tasks.iter().map(|id| id.0))
            .collect();
        drawn.sort_unstable();
        if keep.is_none() {
            let mut all: Vec<u64> = given.iter().map(|given| given.0).collect();
            all.sort_unstable();
            assert_eq!(drawn, all, "a task is in no box or in two boxes");
            assert!(
                graph_layout.nodes.len() <= MAX_BOXES.max(1),
                "{} boxes",
                graph_layout.nodes.len()
            );
        }
        let places: BTreeSet<(u32, u32)> = graph_layout
            .nodes
            .iter()
            .map(|layout_node| (layout_node.column, layout_node.row))
            .collect();
        assert_eq!(
            places.len(),
            graph_layout.nodes.len(),
            "two boxes in the same cell: {}",
            format_layout(graph_layout)
        );
        assert!(
            places
                .iter()
                .all(|place| place.0 < graph_layout.columns && place.1 < graph_layout.rows)
        );
        assert!(
            graph_layout
                .nodes
                .is_sorted_by_key(|layout_node| (layout_node.column, layout_node.row))
        );
        let mut cells: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for edge in &graph_layout.edges {
            let (from, to) = (&graph_layout.nodes[edge.from], &graph_layout.nodes[edge.to]);
            assert!(
                from.column < to.column,
                "an edge goes backwards in {}",
                format_layout(graph_layout)
            );
            let wide = to.column - from.column;
            assert_eq!(
                edge.through.len() as u32,
                wide + 1,
                "an edge does not have one cell in each column"
            );
            assert!(
                (from.column..)
                    .zip(&edge.through)
                    .all(|(column, pair)| pair.0 == column)
            );
            assert_eq!(edge.through.first(), Some(&(from.column, from.row)));
            assert_eq!(edge.through.last(), Some(&(to.column, to.row)));
            for cell in &edge.through[1..edge.through.len() - 1] {
                assert!(!places.contains(cell), "an edge runs through a box");
                assert_eq!(
                    *cells.entry(*cell).or_insert(edge.from),
                    edge.from,
                    "edges of two boxes in one cell"
                );
            }
        }
        // A task's dependencies are before it or in the same box.
        let at = |id: u64| {
            graph_layout
                .nodes
                .iter()
                .position(|layout_node| layout_node.tasks.contains(&TaskId(id)))
        };
        for (id, needs, _) in given.iter().filter(|given| drawn.contains(&given.0)) {
            for need in needs.iter().filter(|need| drawn.contains(need)) {
                let (from, to) = (at(*need), at(*id));
                let linked = graph_layout.edges.iter().any(|layout_edge| {
                    Some(layout_edge.from) == from && Some(layout_edge.to) == to
                });
                assert!(from == to || linked, "T{need}-T{id} is not drawn");
            }
        }
    }

    fn graphs() -> impl Strategy<Value = Vec<TestTask>> {
        let needs = |most: u64| proptest::collection::vec(1..=most.max(1), 0..4);
        (1..130_u64).prop_flat_map(move |many| {
            let task = move |id: u64| {
                let needs = needs(id.saturating_sub(1));
                (
                    Just(id),
                    needs,
                    proptest::sample::select(vec!['l', 'c', 'w', '-']),
                )
            };
            (1..=many).map(task).collect::<Vec<_>>()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        #[test]
        fn every_task_is_drawn_once_and_every_edge_goes_forward(given in graphs(), near in 1..130_u64) {
            let given: Vec<TestTask> = given
                .into_iter()
                .map(|(id, needs, state)| (id, needs.into_iter().filter(|need| *need < id).collect(), state))
                .collect();
            let all = layout_of(&given, None);
            check_properties(&given, &all, None);
            let mut turned = given.clone();
            turned.reverse();
            prop_assert_eq!(&layout_of(&turned, None), &all, "the layout depends on the order of \
                the tasks");
            check_properties(&given, &layout_of(&given, Some(near)), Some(near));
        }
    }
}
