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
        for it in all {
            if near.contains(&it.id) {
                more.extend(it.needs);
            }
            if it.needs.iter().any(|need| near.contains(need)) {
                more.push(it.id);
            }
        }
        near.extend(more);
    }
    all.iter()
        .filter(|it| near.contains(&it.id))
        .copied()
        .collect()
}

/// Lays tasks out. `keep` is never folded, because somebody asked about this task.
pub fn lay_out(tasks: &[LayoutTask<'_>], keep: Option<TaskId>) -> GraphLayout {
    // A task that is named twice is drawn once.
    let by_id: BTreeMap<TaskId, LayoutTask<'_>> = tasks.iter().map(|it| (it.id, *it)).collect();
    let tasks: Vec<LayoutTask<'_>> = by_id.values().copied().collect();
    let places: BTreeMap<TaskId, usize> =
        by_id.keys().enumerate().map(|(at, id)| (*id, at)).collect();
    let needs = |it: &LayoutTask<'_>| {
        it.needs
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
        members: (0..tasks.len()).map(|it| vec![it]).collect(),
        needs,
        columns,
    });
    compute_layout(&tasks, &folded, &way)
}

/// Removes duplicate and cyclic dependencies, and returns each item's column, which comes after the
/// columns of its dependencies. The daemon accepts no cycles, but a layout must terminate for any
/// input.
fn assign_columns(mut needs: Vec<Vec<usize>>) -> (Vec<Vec<usize>>, Vec<u32>) {
    for it in &mut needs {
        it.sort_unstable();
        it.dedup();
    }
    loop {
        match waves(&needs) {
            Ok(columns) => return (needs, columns),
            Err(circle) => match circle[..] {
                [one, next, ..] => needs[one].retain(|it| *it != next),
                _ => needs.iter_mut().for_each(Vec::clear),
            },
        }
    }
}

/// Returns the critical path: the path with the most open tasks. Of several, the path with the
/// smaller ids wins.
fn critical_path(tasks: &[LayoutTask<'_>], needs: &[Vec<usize>], columns: &[u32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|it| columns[*it]);
    let mut ways: Vec<(u32, Option<usize>)> = vec![(0, None); tasks.len()];
    let first = |one: &usize, other: &usize| other.cmp(one);
    for at in order {
        let before = needs[at]
            .iter()
            .copied()
            .max_by(|a, b| ways[*a].0.cmp(&ways[*b].0).then(first(a, b)));
        let open = u32::from(tasks[at].progress != TaskProgress::Ended);
        ways[at] = (before.map_or(0, |it| ways[it].0) + open, before);
    }
    let mut at = (0..tasks.len()).max_by(|a, b| ways[*a].0.cmp(&ways[*b].0).then(first(a, b)));
    let mut way = Vec::new();
    while let Some(it) = at {
        way.extend((tasks[it].progress != TaskProgress::Ended).then_some(it));
        at = ways[it].1;
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
            needs[into[at]].extend(of.iter().map(|it| into[*it]).filter(|it| *it != into[at]));
        }
        members.iter_mut().for_each(|it| it.sort_unstable());
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
            .for_each(|it| needed[*it] = true);
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
            &|it| self.fold_ended(it),
            &|it| self.fold_leaves(it),
            &|it| self.fold_columns(it, |at| self.needs_no_attention(at)),
            &|it| self.fold_columns(it, |at| self.excludes_kept_task(at)),
            &|it| self.fold_tail(it),
        ];
        steps.iter().fold(
            all,
            |it, step| if it.len() > MAX_BOXES { step(it) } else { it },
        )
    }

    /// Returns whether a box does not contain the task to keep visible.
    fn excludes_kept_task(&self, at: &[usize]) -> bool {
        at.iter().all(|it| Some(self.tasks[*it].id) != self.keep)
    }

    /// Returns whether nothing in a box needs attention.
    fn needs_no_attention(&self, at: &[usize]) -> bool {
        self.excludes_kept_task(at)
            && at.iter().all(|it| {
                self.tasks[*it].progress != TaskProgress::Active && !self.critical_path.contains(it)
            })
    }

    /// Returns the status word of a box.
    fn label_of(&self, at: &[usize]) -> &str {
        at.first().map_or("", |it| self.tasks[*it].label)
    }

    /// Folds tasks that are over and whose dependencies are over. Each connected piece becomes one
    /// box, and all pieces that no open task waits for share one box.
    fn fold_ended(&self, it: FoldedGraph) -> FoldedGraph {
        let mut order: Vec<usize> = (0..it.len()).collect();
        order.sort_by_key(|at| it.columns[*at]);
        let mut over = vec![false; it.len()];
        for at in order {
            let ended = it.members[at]
                .iter()
                .all(|it| self.tasks[*it].progress == TaskProgress::Ended);
            over[at] = ended
                && self.excludes_kept_task(&it.members[at])
                && it.needs[at].iter().all(|need| over[*need]);
        }
        let mut pieces = UnionFind::new(it.len());
        let links = || {
            it.needs
                .iter()
                .enumerate()
                .flat_map(|(at, needs)| needs.iter().map(move |need| (*need, at)))
        };
        links()
            .filter(|(_, at)| over[*at])
            .for_each(|(need, at)| pieces.union(need, at));
        let piece: Vec<usize> = (0..it.len()).map(|at| pieces.root(at)).collect();
        let waited: BTreeSet<usize> = links()
            .filter(|(_, at)| !over[*at])
            .map(|(need, _)| piece[need])
            .collect();
        it.join_equal(|_, at| over[at].then(|| Some(piece[at]).filter(|it| waited.contains(it))))
    }

    /// Folds tasks with equal dependencies and the same status word for which no task waits.
    fn fold_leaves(&self, it: FoldedGraph) -> FoldedGraph {
        let needed = it.needed();
        let leaf = |it: &FoldedGraph, at: usize| {
            let whole = !needed[at] && self.needs_no_attention(&it.members[at]);
            whole.then(|| (it.needs[at].clone(), self.label_of(&it.members[at])))
        };
        it.join_equal(leaf)
    }

    /// Folds the tasks of one wave that have the same status word.
    fn fold_columns(&self, it: FoldedGraph, may: impl Fn(&[usize]) -> bool) -> FoldedGraph {
        it.join_equal(|it, at| {
            let of = &it.members[at];
            may(of).then(|| (it.columns[at], self.label_of(of)))
        })
    }

    /// Folds everything after as many waves as can be read. Around one task nothing is that far
    /// away, except tasks before it, and then all of them are drawn.
    fn fold_tail(&self, it: FoldedGraph) -> FoldedGraph {
        let mut last: Vec<u32> = it.columns.clone();
        last.sort_unstable();
        match last.get(MAX_BOXES - 1) {
            Some(from) if self.keep.is_none() => {
                it.join_equal(|it, at| (it.columns[at] >= *from).then_some(()))
            }
            _ => it,
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
        members.iter().for_each(|it| boxes_of[*it] = at);
    }
    let steps: BTreeSet<(usize, usize)> = way
        .windows(2)
        .map(|it| (boxes_of[it[0]], boxes_of[it[1]]))
        .filter(|it| it.0 != it.1)
        .collect();
    let (mut grid, paths) = LayoutGrid::from_folded(folded, &steps);
    grid.sort();
    let rows = grid.assign_rows();
    let mut place: Vec<(u32, u32)> = rows.iter().map(|row| (0, *row)).collect();
    for (column, cells) in (0..).zip(&grid.columns) {
        cells.iter().for_each(|it| place[*it].0 = column);
    }
    let mut order: Vec<usize> = (0..folded.len()).collect();
    order.sort_by_key(|it| place[*it]);
    let critical: BTreeSet<usize> = way.iter().map(|it| boxes_of[*it]).collect();
    let node = |at: &usize| LayoutNode {
        column: place[*at].0,
        row: place[*at].1,
        tasks: folded.members[*at].iter().map(|it| tasks[*it].id).collect(),
        is_critical: critical.contains(at),
    };
    let mut listed = vec![0; order.len()];
    order
        .iter()
        .enumerate()
        .for_each(|(nth, at)| listed[*at] = nth);
    let edge = |path: Vec<usize>| {
        let ends = (*path.first()?, *path.last()?);
        let through = path.iter().map(|it| place[*it]).collect();
        Some(LayoutEdge {
            from: listed[ends.0],
            to: listed[ends.1],
            through,
            is_critical: steps.contains(&ends),
        })
    };
    let mut edges: Vec<LayoutEdge> = paths.into_iter().filter_map(edge).collect();
    edges.sort_by_key(|it| (it.from, it.to));
    GraphLayout {
        columns: grid.columns.len() as u32,
        rows: rows.iter().max().map_or(0, |it| it + 1),
        nodes: order.iter().map(node).collect(),
        edges,
        critical: way.iter().map(|it| tasks[*it].id).collect(),
    }
}

impl LayoutGrid {
    /// Puts boxes into their columns, component by component. Returns the grid with the cells of
    /// each edge, from its first box to its last.
    fn from_folded(
        folded: &FoldedGraph,
        steps: &BTreeSet<(usize, usize)>,
    ) -> (LayoutGrid, Vec<Vec<usize>>) {
        let wide = folded.columns.iter().max().map_or(0, |it| *it as usize + 1);
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
        order.sort_by_key(|it| (alone[*it], pieces.root(*it), *it));
        let mut rank = vec![0; order.len()];
        order
            .iter()
            .enumerate()
            .for_each(|(nth, it)| rank[*it] = nth);
        let mut grid = LayoutGrid {
            columns: vec![vec![]; wide],
            before: vec![vec![]; folded.len()],
            after: vec![vec![]; folded.len()],
            critical_links: BTreeSet::new(),
        };
        order
            .iter()
            .for_each(|it| grid.columns[folded.columns[*it] as usize].push(*it));
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
                    .for_each(|it| grid.link(it[0], it[1], steps.contains(&(*from, to))));
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
        let place = self.columns[column].partition_point(|it| rank[*it] <= rank[from]);
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
                    many => of.iter().map(|it| places[*it]).sum::<usize>() * 100 / many,
                };
                let cells = self.columns[at].iter().enumerate();
                let mut keyed: Vec<(usize, usize)> = cells
                    .map(|(nth, it)| (middle(nth, &links[*it]), *it))
                    .collect();
                keyed.sort_by_key(|it| it.0);
                self.columns[at] = keyed.into_iter().map(|it| it.1).collect();
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
                let to = || self.after[*cell].iter().map(|it| places[*it]);
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
                .for_each(|(nth, it)| rows[*it] = nth as i64);
        }
        // First align with the previous column, then with the next one, then with both.
        let wide = self.columns.len();
        (1..wide).for_each(|it| self.move_to_preferred_rows(it, (true, false), &mut rows));
        (0..wide)
            .rev()
            .for_each(|it| self.move_to_preferred_rows(it, (false, true), &mut rows));
        (0..wide)
            .chain((0..wide).rev())
            .for_each(|it| self.move_to_preferred_rows(it, (true, true), &mut rows));
        let used: Vec<i64> = rows
            .iter()
            .copied()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        rows.iter()
            .map(|it| used.partition_point(|other| other < it) as u32)
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
            .map(|it| (rows[*it], (*it, cell)));
        let after = self.after[cell]
            .iter()
            .filter(|_| right)
            .map(|it| (rows[*it], (cell, *it)));
        let linked: Vec<(i64, (usize, usize))> = before.chain(after).collect();
        let heavy: Vec<i64> = linked
            .iter()
            .filter(|it| self.critical_links.contains(&it.1))
            .map(|it| it.0)
            .collect();
        let all: Vec<i64> = linked.iter().map(|it| it.0).collect();
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
                .filter(|it| TaskProgress::from_status(*it) == stand)
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
            .map(|it| it.1.iter().map(|it| TaskId(*it)).collect())
            .collect();
        let item = |(it, needs): (&TestTask, &'static [TaskId])| LayoutTask {
            id: TaskId(it.0),
            needs,
            label: status_of(it.2).0,
            progress: status_of(it.2).1,
        };
        let needs: Vec<&'static [TaskId]> = needs.into_iter().map(|it| &*it.leak()).collect();
        let items: Vec<LayoutTask<'_>> = given.iter().zip(needs).map(item).collect();
        match keep {
            Some(keep) => lay_out(&neighbourhood(TaskId(keep), &items), Some(TaskId(keep))),
            None => lay_out(&items, None),
        }
    }

    /// Formats a layout as `T1@0,0 T2+3@1,0*`: first task, number of further tasks, column, row,
    /// and `*` on the critical path.
    fn format_layout(it: &GraphLayout) -> String {
        let node = |it: &LayoutNode| {
            let more = if it.tasks.len() > 1 {
                format!("+{}", it.tasks.len() - 1)
            } else {
                String::new()
            };
            let mark = if it.is_critical { "*" } else { "" };
            format!("T{}{more}@{},{}{mark}", it.tasks[0].0, it.column, it.row)
        };
        it.nodes.iter().map(node).collect::<Vec<_>>().join(" ")
    }

    fn format_edges(it: &GraphLayout) -> Vec<String> {
        let name = |at: usize| format!("T{}", it.nodes[at].tasks[0].0);
        let mark = |it: &LayoutEdge| if it.is_critical { "*" } else { "" };
        it.edges
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
                .map(|it| it.0)
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
        let chain: Vec<TestTask> = (1..=9).map(|it| (it, vec![it - 1], '-')).collect();
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
                .map(|it| (it, vec![], 'l'))
                .collect::<Vec<TestTask>>()
        };
        assert_eq!(layout_of(&many(60), None).nodes.len(), 60);
        check(&many(61), "T1+60@0,0");
        // One landed chain has an open end, and no task waits for the other.
        let mut chains: Vec<TestTask> = (1..=40)
            .map(|it| (it, vec![it - 1], if it < 39 { 'l' } else { '-' }))
            .collect();
        chains.extend((41..=80).map(|it| (it, if it == 41 { vec![] } else { vec![it - 1] }, 'l')));
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
            .map(|it| (it, vec![1], if it < 11 { '-' } else { 'l' }))
            .collect();
        leaves.push((1, vec![], 'w'));
        (leaves[7].2, leaves[8].2) = ('w', 'w');
        check(
            &leaves,
            "T1@0,0* T2@1,0* T3+5@1,1 T9@1,2 T10@1,3 T11+59@1,4",
        );
        // Pairs: tasks of one wave with the same status are folded, except on the critical path.
        let pairs: Vec<TestTask> = (1..=70)
            .map(|it| (it, if it % 2 == 0 { vec![it - 1] } else { vec![] }, '-'))
            .collect();
        check(&pairs, "T1@0,0* T3+33@0,1 T2@1,0* T4+33@1,1");
        // Working tasks are folded, too, if all of them work.
        let busy: Vec<TestTask> = (1..=70).map(|it| (it, vec![], 'w')).collect();
        check(&busy, "T1+69@0,0");
        // A very long chain is cut where it can no longer be read.
        let chain: Vec<TestTask> = (1..=300).map(|it| (it, vec![it - 1], '-')).collect();
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
        let mut given: Vec<TestTask> = (2..=90).map(|it| (it, vec![1], '-')).collect();
        given.push((1, vec![], 'l'));
        let near = layout_of(&given, Some(50));
        assert_eq!(
            near.nodes
                .iter()
                .filter(|it| it.tasks == [TaskId(50)])
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
                .any(|it| it.starts_with("T3-T1")),
            "an edge outside the cycle was left out"
        );
        let all: Vec<TestTask> = (0..80).map(|it| (it, (0..80).collect(), '-')).collect();
        assert_eq!(
            layout_of(&all, None)
                .nodes
                .iter()
                .map(|it| it.tasks.len())
                .sum::<usize>(),
            80
        );
    }

    /// A task whose status changes keeps its position if nothing else changes.
    #[test]
    fn a_change_of_status_moves_no_task() {
        let given = |at: char| -> Vec<TestTask> {
            (1..=50)
                .map(|it| (it, vec![it / 2, it / 3], if it == 7 { at } else { 'l' }))
                .collect()
        };
        let places = |at: char| layout_of(&given(at), None).nodes;
        assert_eq!(places('l'), places('w'));
    }

    /// Checks the properties that each layout must have.
    fn check_properties(given: &[TestTask], it: &GraphLayout, keep: Option<u64>) {
        let mut drawn: Vec<u64> = it
            .nodes
            .iter()
            .flat_map(|it| it.tasks.iter().map(|it| it.0))
            .collect();
        drawn.sort_unstable();
        if keep.is_none() {
            let mut all: Vec<u64> = given.iter().map(|it| it.0).collect();
            all.sort_unstable();
            assert_eq!(drawn, all, "a task is in no box or in two boxes");
            assert!(
                it.nodes.len() <= MAX_BOXES.max(1),
                "{} boxes",
                it.nodes.len()
            );
        }
        let places: BTreeSet<(u32, u32)> = it.nodes.iter().map(|it| (it.column, it.row)).collect();
        assert_eq!(
            places.len(),
            it.nodes.len(),
            "two boxes in the same cell: {}",
            format_layout(it)
        );
        assert!(
            places
                .iter()
                .all(|place| place.0 < it.columns && place.1 < it.rows)
        );
        assert!(it.nodes.is_sorted_by_key(|it| (it.column, it.row)));
        let mut cells: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for edge in &it.edges {
            let (from, to) = (&it.nodes[edge.from], &it.nodes[edge.to]);
            assert!(
                from.column < to.column,
                "an edge goes backwards in {}",
                format_layout(it)
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
                    .all(|(column, it)| it.0 == column)
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
            it.nodes
                .iter()
                .position(|it| it.tasks.contains(&TaskId(id)))
        };
        for (id, needs, _) in given.iter().filter(|it| drawn.contains(&it.0)) {
            for need in needs.iter().filter(|it| drawn.contains(it)) {
                let (from, to) = (at(*need), at(*id));
                let linked = it
                    .edges
                    .iter()
                    .any(|it| Some(it.from) == from && Some(it.to) == to);
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
                .map(|(id, needs, state)| (id, needs.into_iter().filter(|it| *it < id).collect(), state))
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
