//! The layout of the task graph for drawing, on a page and in a terminal alike. Waves are columns,
//! the layout has few crossings, the critical path through the open tasks is marked, and if there
//! are too many tasks to read, the least interesting ones are folded into one box.
//!
//! Positions are cells of a grid, counted from 0. An edge that is longer than one column has a cell
//! of its own in each column between, so no line runs through a box. All edges out of one box share
//! those cells.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::TaskId;
use crate::task::Status;

use super::waves;

/// Maximum number of boxes in a drawing. Beyond that, tasks are folded.
pub const MOST: usize = 60;
/// Maximum distance of the tasks that are drawn around one task.
pub const HOPS: usize = 2;
/// Maximum number of passes that reorder the columns.
const SWEEPS: usize = 8;

/// The progress of a task, as far as a drawing needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stand {
    /// The task is over.
    Over,
    /// The task has not begun.
    Waits,
    /// The task is in progress, or somebody must look at it.
    Moves,
}

impl Stand {
    /// Returns the progress for a status. A failed task is not over, because others may wait for
    /// its retry.
    pub fn of(status: Status) -> Stand {
        match status {
            Status::Completed | Status::Cancelled => Stand::Over,
            Status::Backlog | Status::Unassigned | Status::Offered | Status::Pending => Stand::Waits,
            Status::InProgress
            | Status::Validating
            | Status::InReview
            | Status::Landing
            | Status::Failed
            | Status::NeedsHuman => Stand::Moves,
        }
    }
}

/// A task as far as a drawing needs it.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    pub id: TaskId,
    pub needs: &'a [TaskId],
    /// The status word that people see. Except for tasks that are over, only tasks with the same
    /// word are folded together.
    pub word: &'a str,
    pub stand: Stand,
}

/// A finished layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub columns: u32,
    pub rows: u32,
    /// Boxes, by column and then by row.
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    /// The critical path: the longest path through the open tasks, in order. Empty if no open task
    /// waits for another.
    pub critical: Vec<TaskId>,
}

/// A box: one task or several folded tasks, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub column: u32,
    pub row: u32,
    /// Tasks in the box, by number.
    pub tasks: Vec<TaskId>,
    /// The box is on the critical path.
    pub critical: bool,
}

/// A line from a box to a box that depends on it. `from` and `to` are indices of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    /// Cells of the line as `(column, row)`, one in each column from its first box to its last.
    pub through: Vec<(u32, u32)>,
    pub critical: bool,
}

/// Returns the tasks within [`HOPS`] dependencies of one task, in either direction, in their
/// original order.
pub fn around<'a>(task: TaskId, all: &[Item<'a>]) -> Vec<Item<'a>> {
    let mut near = BTreeSet::from([task]);
    for _ in 0..HOPS {
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
    all.iter().filter(|it| near.contains(&it.id)).copied().collect()
}

/// Lays tasks out. `keep` is never folded, because somebody asked about this task.
pub fn lay_out(tasks: &[Item<'_>], keep: Option<TaskId>) -> Layout {
    // A task that is named twice is drawn once.
    let by_id: BTreeMap<TaskId, Item<'_>> = tasks.iter().map(|it| (it.id, *it)).collect();
    let tasks: Vec<Item<'_>> = by_id.values().copied().collect();
    let places: BTreeMap<TaskId, usize> = by_id.keys().enumerate().map(|(at, id)| (*id, at)).collect();
    let needs = |it: &Item<'_>| it.needs.iter().filter_map(|need| places.get(need).copied()).collect();
    let (needs, columns) = in_order(tasks.iter().map(needs).collect());
    let way = longest(&tasks, &needs, &columns);
    let folding = Folding { tasks: &tasks, keep, way: way.iter().copied().collect() };
    let folded = folding.fold(Folded { members: (0..tasks.len()).map(|it| vec![it]).collect(), needs, columns });
    draw(&tasks, &folded, &way)
}

/// Removes duplicate and cyclic dependencies, and returns each item's column, which comes after the
/// columns of its dependencies. The daemon accepts no cycles, but a layout must terminate for any
/// input.
fn in_order(mut needs: Vec<Vec<usize>>) -> (Vec<Vec<usize>>, Vec<u32>) {
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
fn longest(tasks: &[Item<'_>], needs: &[Vec<usize>], columns: &[u32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|it| columns[*it]);
    let mut ways: Vec<(u32, Option<usize>)> = vec![(0, None); tasks.len()];
    let first = |one: &usize, other: &usize| other.cmp(one);
    for at in order {
        let before = needs[at].iter().copied().max_by(|a, b| ways[*a].0.cmp(&ways[*b].0).then(first(a, b)));
        let open = u32::from(tasks[at].stand != Stand::Over);
        ways[at] = (before.map_or(0, |it| ways[it].0) + open, before);
    }
    let mut at = (0..tasks.len()).max_by(|a, b| ways[*a].0.cmp(&ways[*b].0).then(first(a, b)));
    let mut way = Vec::new();
    while let Some(it) = at {
        way.extend((tasks[it].stand != Stand::Over).then_some(it));
        at = ways[it].1;
    }
    way.reverse();
    if way.len() > 1 { way } else { vec![] }
}

/// Boxes with their dependencies, before they have rows.
struct Folded {
    /// The tasks in each box, in order.
    members: Vec<Vec<usize>>,
    needs: Vec<Vec<usize>>,
    columns: Vec<u32>,
}

impl Folded {
    /// Joins the boxes with equal keys. The caller ensures that no two of them depend on each other
    /// through a third.
    fn join<K: Ord>(self, key: impl Fn(&Folded, usize) -> Option<K>) -> Folded {
        let (mut by_key, mut into): (BTreeMap<K, usize>, Vec<usize>) = (BTreeMap::new(), Vec::new());
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
        let (needs, columns) = in_order(needs);
        Folded { members, needs, columns }
    }

    fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns for each box whether another box depends on it.
    fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.len()];
        self.needs.iter().flatten().for_each(|it| needed[*it] = true);
        needed
    }
}

/// The input of folding: the tasks, the task to keep visible, and the critical path.
struct Folding<'a> {
    tasks: &'a [Item<'a>],
    keep: Option<TaskId>,
    way: BTreeSet<usize>,
}

impl Folding<'_> {
    /// Folds boxes until the drawing can be read, the least interesting ones first.
    fn fold(&self, all: Folded) -> Folded {
        type Step<'a> = &'a dyn Fn(Folded) -> Folded;
        let steps: [Step<'_>; 5] = [
            &|it| self.landed(it),
            &|it| self.leaves(it),
            &|it| self.by_column(it, |at| self.quiet(at)),
            &|it| self.by_column(it, |at| self.others(at)),
            &|it| self.tail(it),
        ];
        steps.iter().fold(all, |it, step| if it.len() > MOST { step(it) } else { it })
    }

    /// Returns whether a box does not contain the task to keep visible.
    fn others(&self, at: &[usize]) -> bool {
        at.iter().all(|it| Some(self.tasks[*it].id) != self.keep)
    }

    /// Returns whether nothing in a box needs attention.
    fn quiet(&self, at: &[usize]) -> bool {
        self.others(at) && at.iter().all(|it| self.tasks[*it].stand != Stand::Moves && !self.way.contains(it))
    }

    /// Returns the status word of a box.
    fn word(&self, at: &[usize]) -> &str {
        at.first().map_or("", |it| self.tasks[*it].word)
    }

    /// Folds tasks that are over and whose dependencies are over. Each connected piece becomes one
    /// box, and all pieces that no open task waits for share one box.
    fn landed(&self, it: Folded) -> Folded {
        let mut order: Vec<usize> = (0..it.len()).collect();
        order.sort_by_key(|at| it.columns[*at]);
        let mut over = vec![false; it.len()];
        for at in order {
            let ended = it.members[at].iter().all(|it| self.tasks[*it].stand == Stand::Over);
            over[at] = ended && self.others(&it.members[at]) && it.needs[at].iter().all(|need| over[*need]);
        }
        let mut pieces = Pieces::of(it.len());
        let links = || it.needs.iter().enumerate().flat_map(|(at, needs)| needs.iter().map(move |need| (*need, at)));
        links().filter(|(_, at)| over[*at]).for_each(|(need, at)| pieces.join(need, at));
        let piece: Vec<usize> = (0..it.len()).map(|at| pieces.root(at)).collect();
        let waited: BTreeSet<usize> = links().filter(|(_, at)| !over[*at]).map(|(need, _)| piece[need]).collect();
        it.join(|_, at| over[at].then(|| Some(piece[at]).filter(|it| waited.contains(it))))
    }

    /// Folds tasks with equal dependencies and the same status word for which no task waits.
    fn leaves(&self, it: Folded) -> Folded {
        let needed = it.needed();
        let leaf = |it: &Folded, at: usize| {
            let whole = !needed[at] && self.quiet(&it.members[at]);
            whole.then(|| (it.needs[at].clone(), self.word(&it.members[at])))
        };
        it.join(leaf)
    }

    /// Folds the tasks of one wave that have the same status word.
    fn by_column(&self, it: Folded, may: impl Fn(&[usize]) -> bool) -> Folded {
        it.join(|it, at| {
            let of = &it.members[at];
            may(of).then(|| (it.columns[at], self.word(of)))
        })
    }

    /// Folds everything after as many waves as can be read. Around one task nothing is that far
    /// away, except tasks before it, and then all of them are drawn.
    fn tail(&self, it: Folded) -> Folded {
        let mut last: Vec<u32> = it.columns.clone();
        last.sort_unstable();
        match last.get(MOST - 1) {
            Some(from) if self.keep.is_none() => it.join(|it, at| (it.columns[at] >= *from).then_some(())),
            _ => it,
        }
    }
}

/// Connected components, as a union-find structure.
struct Pieces(Vec<usize>);

impl Pieces {
    fn of(many: usize) -> Pieces {
        Pieces((0..many).collect())
    }

    /// Returns the representative of an item's component: its smallest member.
    fn root(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one.max(other)] = one.min(other);
    }
}

/// The grid's cells: the boxes first, then the cells of long edges.
struct Grid {
    /// Cells of each column, from top to bottom.
    columns: Vec<Vec<usize>>,
    /// Links of each cell to the previous and to the next column.
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
    /// Links on the critical path. They have more weight.
    heavy: BTreeSet<(usize, usize)>,
}

/// Computes the grid of the folded boxes and returns the finished layout.
fn draw(tasks: &[Item<'_>], folded: &Folded, way: &[usize]) -> Layout {
    let mut boxes_of = vec![0; tasks.len()];
    for (at, members) in folded.members.iter().enumerate() {
        members.iter().for_each(|it| boxes_of[*it] = at);
    }
    let steps: BTreeSet<(usize, usize)> =
        way.windows(2).map(|it| (boxes_of[it[0]], boxes_of[it[1]])).filter(|it| it.0 != it.1).collect();
    let (mut grid, paths) = Grid::of(folded, &steps);
    grid.sort();
    let rows = grid.rows();
    let mut place: Vec<(u32, u32)> = rows.iter().map(|row| (0, *row)).collect();
    for (column, cells) in (0..).zip(&grid.columns) {
        cells.iter().for_each(|it| place[*it].0 = column);
    }
    let mut order: Vec<usize> = (0..folded.len()).collect();
    order.sort_by_key(|it| place[*it]);
    let critical: BTreeSet<usize> = way.iter().map(|it| boxes_of[*it]).collect();
    let node = |at: &usize| Node {
        column: place[*at].0,
        row: place[*at].1,
        tasks: folded.members[*at].iter().map(|it| tasks[*it].id).collect(),
        critical: critical.contains(at),
    };
    let mut listed = vec![0; order.len()];
    order.iter().enumerate().for_each(|(nth, at)| listed[*at] = nth);
    let edge = |path: Vec<usize>| {
        let ends = (*path.first()?, *path.last()?);
        let through = path.iter().map(|it| place[*it]).collect();
        Some(Edge { from: listed[ends.0], to: listed[ends.1], through, critical: steps.contains(&ends) })
    };
    let mut edges: Vec<Edge> = paths.into_iter().filter_map(edge).collect();
    edges.sort_by_key(|it| (it.from, it.to));
    Layout {
        columns: grid.columns.len() as u32,
        rows: rows.iter().max().map_or(0, |it| it + 1),
        nodes: order.iter().map(node).collect(),
        edges,
        critical: way.iter().map(|it| tasks[*it].id).collect(),
    }
}

impl Grid {
    /// Puts boxes into their columns, component by component. Returns the grid with the cells of
    /// each edge, from its first box to its last.
    fn of(folded: &Folded, steps: &BTreeSet<(usize, usize)>) -> (Grid, Vec<Vec<usize>>) {
        let wide = folded.columns.iter().max().map_or(0, |it| *it as usize + 1);
        let mut pieces = Pieces::of(folded.len());
        let mut alone = vec![true; folded.len()];
        for (at, needs) in folded.needs.iter().enumerate() {
            for need in needs {
                pieces.join(at, *need);
                (alone[at], alone[*need]) = (false, false);
            }
        }
        // Connected boxes stay together, and isolated boxes come last.
        let mut order: Vec<usize> = (0..folded.len()).collect();
        order.sort_by_key(|it| (alone[*it], pieces.root(*it), *it));
        let mut rank = vec![0; order.len()];
        order.iter().enumerate().for_each(|(nth, it)| rank[*it] = nth);
        let mut grid = Grid {
            columns: vec![vec![]; wide],
            before: vec![vec![]; folded.len()],
            after: vec![vec![]; folded.len()],
            heavy: BTreeSet::new(),
        };
        order.iter().for_each(|it| grid.columns[folded.columns[*it] as usize].push(*it));
        // All edges out of one box share their cells.
        let mut cells: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut paths = Vec::new();
        for to in order {
            for from in &folded.needs[to] {
                let mut path = vec![*from];
                for column in folded.columns[*from] as usize + 1..folded.columns[to] as usize {
                    let cell = *cells.entry((*from, column)).or_insert_with(|| grid.add(column, &mut rank, *from));
                    path.push(cell);
                }
                path.push(to);
                path.windows(2).for_each(|it| grid.link(it[0], it[1], steps.contains(&(*from, to))));
                paths.push(path);
            }
        }
        (grid, paths)
    }

    /// Adds a cell for a long edge, next to the place that its first box would have in the column.
    fn add(&mut self, column: usize, rank: &mut Vec<usize>, from: usize) -> usize {
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
            self.heavy.insert((from, to));
        }
    }

    /// Reorders each column by the average position of the linked cells, back and forth, and keeps
    /// the order with the fewest crossings. Of several the first wins, so that a small change of
    /// the graph moves little.
    fn sort(&mut self) {
        let mut places = vec![0; self.before.len()];
        let mut best = (self.crossings(&mut places), self.columns.clone());
        for sweep in 0..SWEEPS {
            if best.0 == 0 {
                break;
            }
            let wide = self.columns.len();
            for nth in 1..wide {
                let (at, by) = if sweep % 2 == 0 { (nth, nth - 1) } else { (wide - 1 - nth, wide - nth) };
                self.place(by, &mut places);
                let links = if sweep % 2 == 0 { &self.before } else { &self.after };
                let middle = |place: usize, of: &[usize]| match of.len() {
                    0 => place * 100,
                    many => of.iter().map(|it| places[*it]).sum::<usize>() * 100 / many,
                };
                let cells = self.columns[at].iter().enumerate();
                let mut keyed: Vec<(usize, usize)> = cells.map(|(nth, it)| (middle(nth, &links[*it]), *it)).collect();
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
    fn place(&self, column: usize, places: &mut [usize]) {
        self.columns[column].iter().enumerate().for_each(|(nth, cell)| places[*cell] = nth);
    }

    /// Returns the number of pairs of links that cross.
    fn crossings(&self, places: &mut [usize]) -> usize {
        let mut crossed = 0;
        for column in 1..self.columns.len() {
            self.place(column, places);
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
    fn rows(&self) -> Vec<u32> {
        let mut rows = vec![0_i64; self.before.len()];
        for column in &self.columns {
            column.iter().enumerate().for_each(|(nth, it)| rows[*it] = nth as i64);
        }
        // First align with the previous column, then with the next one, then with both.
        let wide = self.columns.len();
        (1..wide).for_each(|it| self.settle(it, (true, false), &mut rows));
        (0..wide).rev().for_each(|it| self.settle(it, (false, true), &mut rows));
        (0..wide).chain((0..wide).rev()).for_each(|it| self.settle(it, (true, true), &mut rows));
        let used: Vec<i64> = rows.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        rows.iter().map(|it| used.partition_point(|other| other < it) as u32).collect()
    }

    /// Moves the cells of a column to their wished rows, as close as their order allows. Neighbours
    /// with conflicting wishes meet in the middle.
    fn settle(&self, column: usize, sides: (bool, bool), rows: &mut [i64]) {
        // Each run has the weighted sum of its cells' wished rows minus their positions, the
        // weight, and the count.
        let mut runs: Vec<(i64, i64, usize)> = Vec::new();
        for (nth, cell) in self.columns[column].iter().enumerate() {
            let (wish, weight) = self.wish(*cell, sides, rows);
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
            cells.by_ref().take(many).for_each(|(nth, cell)| rows[*cell] = shift + nth as i64);
        }
    }

    /// Returns a cell's wished row and its weight: the average row of its links, or of its links on
    /// the critical path.
    fn wish(&self, cell: usize, (left, right): (bool, bool), rows: &[i64]) -> (i64, i64) {
        let before = self.before[cell].iter().filter(|_| left).map(|it| (rows[*it], (*it, cell)));
        let after = self.after[cell].iter().filter(|_| right).map(|it| (rows[*it], (cell, *it)));
        let linked: Vec<(i64, (usize, usize))> = before.chain(after).collect();
        let heavy: Vec<i64> = linked.iter().filter(|it| self.heavy.contains(&it.1)).map(|it| it.0).collect();
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

    type Given = (u64, Vec<u64>, char);

    #[test]
    fn a_tasks_state_in_the_layout_follows_from_its_status() {
        let of = |stand| Status::ALL.into_iter().filter(|it| Stand::of(*it) == stand).collect::<Vec<_>>();
        assert_eq!(of(Stand::Over), [Status::Completed, Status::Cancelled]);
        assert_eq!(of(Stand::Waits), [Status::Backlog, Status::Unassigned, Status::Offered, Status::Pending]);
    }

    fn word(state: char) -> (&'static str, Stand) {
        match state {
            'l' => ("landed", Stand::Over),
            'c' => ("cancelled", Stand::Over),
            'w' => ("working", Stand::Moves),
            _ => ("waiting", Stand::Waits),
        }
    }

    fn laid(given: &[Given], keep: Option<u64>) -> Layout {
        let needs: Vec<Vec<TaskId>> = given.iter().map(|it| it.1.iter().map(|it| TaskId(*it)).collect()).collect();
        let item = |(it, needs): (&Given, &'static [TaskId])| Item {
            id: TaskId(it.0),
            needs,
            word: word(it.2).0,
            stand: word(it.2).1,
        };
        let needs: Vec<&'static [TaskId]> = needs.into_iter().map(|it| &*it.leak()).collect();
        let items: Vec<Item<'_>> = given.iter().zip(needs).map(item).collect();
        match keep {
            Some(keep) => lay_out(&around(TaskId(keep), &items), Some(TaskId(keep))),
            None => lay_out(&items, None),
        }
    }

    /// Formats a layout as `T1@0,0 T2+3@1,0*`: first task, number of further tasks, column, row,
    /// and `*` on the critical path.
    fn told(it: &Layout) -> String {
        let node = |it: &Node| {
            let more = if it.tasks.len() > 1 { format!("+{}", it.tasks.len() - 1) } else { String::new() };
            let mark = if it.critical { "*" } else { "" };
            format!("T{}{more}@{},{}{mark}", it.tasks[0].0, it.column, it.row)
        };
        it.nodes.iter().map(node).collect::<Vec<_>>().join(" ")
    }

    fn lines(it: &Layout) -> Vec<String> {
        let name = |at: usize| format!("T{}", it.nodes[at].tasks[0].0);
        let mark = |it: &Edge| if it.critical { "*" } else { "" };
        it.edges.iter().map(|edge| format!("{}-{}{}", name(edge.from), name(edge.to), mark(edge))).collect()
    }

    fn check(given: &[Given], expected: &str) {
        assert_eq!(told(&laid(given, None)), expected, "{given:?}");
    }

    #[test]
    fn waves_are_columns_and_no_two_tasks_share_a_cell() {
        check(&[], "");
        check(&[(1, vec![], '-')], "T1@0,0");
        // A chain is straight, and an isolated task is below it.
        check(
            &[(1, vec![], '-'), (2, vec![1], '-'), (3, vec![2], '-'), (4, vec![], '-')],
            "T1@0,0* T4@0,1 T2@1,0* T3@2,0*",
        );
        // Three tasks depend on one, and a fifth depends on the three.
        let fan = [(1, vec![], '-'), (2, vec![1], '-'), (3, vec![1], '-'), (4, vec![1], '-'), (5, vec![2, 3, 4], '-')];
        check(&fan, "T1@0,0* T2@1,0* T3@1,1 T4@1,2 T5@2,0*");
        // A long edge has its own cell in each column between, so no line crosses T2.
        let long = laid(&[(1, vec![], '-'), (2, vec![1], '-'), (3, vec![1, 2], '-')], None);
        assert_eq!(told(&long), "T1@0,1* T2@1,1* T3@2,1*");
        assert_eq!(lines(&long), ["T1-T2*", "T1-T3", "T2-T3*"]);
        assert_eq!(long.edges[1].through, [(0, 1), (1, 0), (2, 1)]);
        assert_eq!((long.columns, long.rows), (3, 2));
        // Connected tasks stay together, and isolated tasks come last.
        check(
            &[(1, vec![], 'l'), (2, vec![], 'l'), (3, vec![], 'l'), (4, vec![3], 'l')],
            "T3@0,0 T1@0,1 T2@0,2 T4@1,0",
        );
        let mixed = [(1, vec![], 'l'), (2, vec![], 'l'), (3, vec![2], 'l'), (4, vec![1], 'l')];
        check(&mixed, "T1@0,0 T2@0,1 T4@1,0 T3@1,1");
        // Tasks whose lines would cross change places.
        let crossed = [(1, vec![], 'l'), (2, vec![], 'l'), (3, vec![], 'l'), (4, vec![3], 'l'), (5, vec![1], 'l')];
        let crossed: Vec<Given> = crossed.into_iter().chain([(6, vec![2], 'l'), (7, vec![4, 5, 6], 'l')]).collect();
        check(&crossed, "T1@0,0 T2@0,1 T3@0,2 T5@1,0 T6@1,1 T4@1,2 T7@2,1");
    }

    #[test]
    fn the_critical_path_is_the_longest_path_of_open_tasks() {
        let way = |given: &[Given]| laid(given, None).critical.iter().map(|it| it.0).collect::<Vec<_>>();
        // T3 ends the longest path of all tasks, T5 the longest path of open tasks.
        let half = [(1, vec![], 'l'), (2, vec![1], 'l'), (3, vec![2], '-'), (4, vec![], 'w'), (5, vec![4], '-')];
        assert_eq!(way(&half), [4, 5]);
        // Of two equally long paths, the one with the smaller ids wins.
        assert_eq!(way(&[(4, vec![], '-'), (3, vec![], '-'), (6, vec![4], '-'), (5, vec![3], '-')]), [3, 5]);
        // A single task is no path, and landed tasks are not counted.
        assert_eq!(way(&[(1, vec![], '-'), (2, vec![], '-')]), Vec::<u64>::new());
        assert_eq!(way(&[(1, vec![], 'l'), (2, vec![1], 'l')]), Vec::<u64>::new());
    }

    #[test]
    fn the_neighbourhood_of_a_task_is_two_steps_in_each_direction() {
        let chain: Vec<Given> = (1..=9).map(|it| (it, vec![it - 1], '-')).collect();
        let near = laid(&chain, Some(5));
        assert_eq!(told(&near), "T3@0,0* T4@1,0* T5@2,0* T6@3,0* T7@4,0*");
        assert_eq!(laid(&chain, Some(99)), Layout::default());
    }

    /// Above sixty boxes, the least interesting tasks share a box.
    #[test]
    fn the_least_interesting_tasks_are_folded_first() {
        // Up to sixty tasks are drawn one by one, whatever their status.
        let many = |many: u64| (1..=many).map(|it| (it, vec![], 'l')).collect::<Vec<Given>>();
        assert_eq!(laid(&many(60), None).nodes.len(), 60);
        check(&many(61), "T1+60@0,0");
        // One landed chain has an open end, and no task waits for the other.
        let mut chains: Vec<Given> = (1..=40).map(|it| (it, vec![it - 1], if it < 39 { 'l' } else { '-' })).collect();
        chains.extend((41..=80).map(|it| (it, if it == 41 { vec![] } else { vec![it - 1] }, 'l')));
        check(&chains, "T1+37@0,0 T41+39@0,1 T39@1,0* T40@2,0*");
        // Pieces that no open task waits for share one box.
        chains.extend([(81, vec![], 'l'), (82, vec![81], 'l')]);
        check(&chains, "T1+37@0,0 T41+41@0,1 T39@1,0* T40@2,0*");
        chains.truncate(80);
        // A landed task that depends on an open one is not folded with earlier ones, so no cycle
        // arises.
        chains[36].2 = '-';
        check(&chains, "T1+35@0,0 T41+39@0,1 T37@1,0* T38@2,0 T39@3,0* T40@4,0*");
        // Leaves with equal dependencies and status are folded; working tasks stay visible.
        let mut leaves: Vec<Given> = (2..=70).map(|it| (it, vec![1], if it < 11 { '-' } else { 'l' })).collect();
        leaves.push((1, vec![], 'w'));
        (leaves[7].2, leaves[8].2) = ('w', 'w');
        check(&leaves, "T1@0,0* T2@1,0* T3+5@1,1 T9@1,2 T10@1,3 T11+59@1,4");
        // Pairs: tasks of one wave with the same status are folded, except on the critical path.
        let pairs: Vec<Given> = (1..=70).map(|it| (it, if it % 2 == 0 { vec![it - 1] } else { vec![] }, '-')).collect();
        check(&pairs, "T1@0,0* T3+33@0,1 T2@1,0* T4+33@1,1");
        // Working tasks are folded, too, if all of them work.
        let busy: Vec<Given> = (1..=70).map(|it| (it, vec![], 'w')).collect();
        check(&busy, "T1+69@0,0");
        // A very long chain is cut where it can no longer be read.
        let chain: Vec<Given> = (1..=300).map(|it| (it, vec![it - 1], '-')).collect();
        let cut = laid(&chain, None);
        assert_eq!((cut.nodes.len(), cut.nodes[59].tasks.len(), cut.critical.len()), (60, 241, 300));
    }

    #[test]
    fn the_task_in_the_centre_is_never_folded() {
        let mut given: Vec<Given> = (2..=90).map(|it| (it, vec![1], '-')).collect();
        given.push((1, vec![], 'l'));
        let near = laid(&given, Some(50));
        assert_eq!(near.nodes.iter().filter(|it| it.tasks == [TaskId(50)]).count(), 1);
        assert!(near.nodes.len() < 5, "{}", told(&near));
    }

    /// The daemon accepts no cycles. If one appeared all the same, the layout would still
    /// terminate.
    #[test]
    fn a_cycle_does_not_keep_the_layout_from_ending() {
        check(&[(1, vec![1], '-')], "T1@0,0");
        let two = laid(&[(1, vec![2], '-'), (2, vec![1], '-')], None);
        assert_eq!((two.nodes.len(), two.edges.len()), (2, 1));
        let third = laid(&[(1, vec![2, 3], '-'), (2, vec![1], '-'), (3, vec![], '-')], None);
        assert!(lines(&third).iter().any(|it| it.starts_with("T3-T1")), "an edge outside the cycle was left out");
        let all: Vec<Given> = (0..80).map(|it| (it, (0..80).collect(), '-')).collect();
        assert_eq!(laid(&all, None).nodes.iter().map(|it| it.tasks.len()).sum::<usize>(), 80);
    }

    /// A task whose status changes keeps its position if nothing else changes.
    #[test]
    fn a_change_of_status_moves_no_task() {
        let given = |at: char| -> Vec<Given> {
            (1..=50).map(|it| (it, vec![it / 2, it / 3], if it == 7 { at } else { 'l' })).collect()
        };
        let places = |at: char| laid(&given(at), None).nodes;
        assert_eq!(places('l'), places('w'));
    }

    /// Checks the properties that each layout must have.
    fn holds(given: &[Given], it: &Layout, keep: Option<u64>) {
        let mut drawn: Vec<u64> = it.nodes.iter().flat_map(|it| it.tasks.iter().map(|it| it.0)).collect();
        drawn.sort_unstable();
        if keep.is_none() {
            let mut all: Vec<u64> = given.iter().map(|it| it.0).collect();
            all.sort_unstable();
            assert_eq!(drawn, all, "a task is in no box or in two boxes");
            assert!(it.nodes.len() <= MOST.max(1), "{} boxes", it.nodes.len());
        }
        let places: BTreeSet<(u32, u32)> = it.nodes.iter().map(|it| (it.column, it.row)).collect();
        assert_eq!(places.len(), it.nodes.len(), "two boxes in the same cell: {}", told(it));
        assert!(places.iter().all(|place| place.0 < it.columns && place.1 < it.rows));
        assert!(it.nodes.is_sorted_by_key(|it| (it.column, it.row)));
        let mut cells: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for edge in &it.edges {
            let (from, to) = (&it.nodes[edge.from], &it.nodes[edge.to]);
            assert!(from.column < to.column, "an edge goes backwards in {}", told(it));
            let wide = to.column - from.column;
            assert_eq!(edge.through.len() as u32, wide + 1, "an edge does not have one cell in each column");
            assert!((from.column..).zip(&edge.through).all(|(column, it)| it.0 == column));
            assert_eq!(edge.through.first(), Some(&(from.column, from.row)));
            assert_eq!(edge.through.last(), Some(&(to.column, to.row)));
            for cell in &edge.through[1..edge.through.len() - 1] {
                assert!(!places.contains(cell), "an edge runs through a box");
                assert_eq!(*cells.entry(*cell).or_insert(edge.from), edge.from, "edges of two boxes in one cell");
            }
        }
        // A task's dependencies are before it or in the same box.
        let at = |id: u64| it.nodes.iter().position(|it| it.tasks.contains(&TaskId(id)));
        for (id, needs, _) in given.iter().filter(|it| drawn.contains(&it.0)) {
            for need in needs.iter().filter(|it| drawn.contains(it)) {
                let (from, to) = (at(*need), at(*id));
                let linked = it.edges.iter().any(|it| Some(it.from) == from && Some(it.to) == to);
                assert!(from == to || linked, "T{need}-T{id} is not drawn");
            }
        }
    }

    fn graphs() -> impl Strategy<Value = Vec<Given>> {
        let needs = |most: u64| proptest::collection::vec(1..=most.max(1), 0..4);
        (1..130_u64).prop_flat_map(move |many| {
            let task = move |id: u64| {
                let needs = needs(id.saturating_sub(1));
                (Just(id), needs, proptest::sample::select(vec!['l', 'c', 'w', '-']))
            };
            (1..=many).map(task).collect::<Vec<_>>()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        #[test]
        fn every_task_is_drawn_once_and_every_edge_goes_forward(given in graphs(), near in 1..130_u64) {
            let given: Vec<Given> = given
                .into_iter()
                .map(|(id, needs, state)| (id, needs.into_iter().filter(|it| *it < id).collect(), state))
                .collect();
            let all = laid(&given, None);
            holds(&given, &all, None);
            let mut turned = given.clone();
            turned.reverse();
            prop_assert_eq!(&laid(&turned, None), &all, "the layout depends on the order of the tasks");
            holds(&given, &laid(&given, Some(near)), Some(near));
        }
    }
}
