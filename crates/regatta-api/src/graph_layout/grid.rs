//! Arranges the boxes of a drawing in a grid: their order within each column, and their rows.

use std::collections::{BTreeMap, BTreeSet};

use super::MAX_SWEEPS;
use super::fold::{FoldedGraph, UnionFind};

/// The cells of the grid. The boxes come first, then the cells through which long lines run.
pub(super) struct LayoutGrid {
    /// The cells of each column, from top to bottom.
    pub(super) columns: Vec<Vec<usize>>,
    /// For each cell, the cells in the previous column that a line connects with it. `after`
    /// contains the same for the next column.
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
    /// Links on the critical path (the longest chain of open tasks). These links are kept
    /// straighter than other links.
    critical_links: BTreeSet<(usize, usize)>,
}

impl LayoutGrid {
    /// Puts boxes into their columns, with connected boxes next to each other. Returns the grid,
    /// and for each line the cells through which it runs, from its first box to its last.
    pub(super) fn from_folded(
        folded: &FoldedGraph,
        critical_steps: &BTreeSet<(usize, usize)>,
    ) -> (LayoutGrid, Vec<Vec<usize>>) {
        let column_count = folded
            .columns
            .iter()
            .max()
            .map_or(0, |column| *column as usize + 1);
        let mut pieces = UnionFind::new(folded.len());
        let mut is_isolated = vec![true; folded.len()];
        for (index, needs) in folded.needs.iter().enumerate() {
            for need in needs {
                pieces.union(index, *need);
                (is_isolated[index], is_isolated[*need]) = (false, false);
            }
        }
        // Order the boxes so that connected boxes stay together and boxes without any link come
        // last.
        let mut order: Vec<usize> = (0..folded.len()).collect();
        order.sort_by_key(|index| (is_isolated[*index], pieces.root(*index), *index));
        let mut rank = vec![0; order.len()];
        order
            .iter()
            .enumerate()
            .for_each(|(nth, order)| rank[*order] = nth);
        let mut grid = LayoutGrid {
            columns: vec![vec![]; column_count],
            before: vec![vec![]; folded.len()],
            after: vec![vec![]; folded.len()],
            critical_links: BTreeSet::new(),
        };
        order
            .iter()
            .for_each(|order| grid.columns[folded.columns[*order] as usize].push(*order));
        // All lines from one box share the cells between the boxes, so that the lines look like one
        // line that branches.
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
                path.windows(2).for_each(|path| {
                    grid.link(path[0], path[1], critical_steps.contains(&(*from, to)))
                });
                paths.push(path);
            }
        }
        (grid, paths)
    }

    /// Adds a cell to `column` for a line that passes through the column. The cell is at the height
    /// of `from`, the box where the line starts.
    fn add_cell(&mut self, column: usize, rank: &mut Vec<usize>, from: usize) -> usize {
        let cell = self.before.len();
        rank.push(rank[from]);
        self.before.push(vec![]);
        self.after.push(vec![]);
        let place = self.columns[column].partition_point(|cell| rank[*cell] <= rank[from]);
        self.columns[column].insert(place, cell);
        cell
    }

    fn link(&mut self, from: usize, to: usize, is_critical: bool) {
        if !self.after[from].contains(&to) {
            self.after[from].push(to);
            self.before[to].push(from);
        }
        if is_critical {
            self.critical_links.insert((from, to));
        }
    }

    /// Orders the cells of each column so that few lines cross. Goes through the columns several
    /// times in both directions and sorts each column by the average position of the linked cells.
    /// Keeps the first order with the fewest crossings, so that a small change of the graph changes
    /// the drawing little.
    pub(super) fn sort(&mut self) {
        let mut places = vec![0; self.before.len()];
        let mut best = (self.crossings(&mut places), self.columns.clone());
        for sweep in 0..MAX_SWEEPS {
            if best.0 == 0 {
                break;
            }
            let column_count = self.columns.len();
            for nth in 1..column_count {
                let (column, neighbour) = if sweep % 2 == 0 {
                    (nth, nth - 1)
                } else {
                    (column_count - 1 - nth, column_count - nth)
                };
                self.record_positions(neighbour, &mut places);
                let links = if sweep % 2 == 0 {
                    &self.before
                } else {
                    &self.after
                };
                let average_position = |place: usize, linked: &[usize]| match linked.len() {
                    0 => place * 100,
                    count => linked.iter().map(|cell| places[*cell]).sum::<usize>() * 100 / count,
                };
                let cells = self.columns[column].iter().enumerate();
                let mut cells_by_position: Vec<(usize, usize)> = cells
                    .map(|(nth, cell)| (average_position(nth, &links[*cell]), *cell))
                    .collect();
                cells_by_position.sort_by_key(|(position, _)| *position);
                self.columns[column] = cells_by_position
                    .into_iter()
                    .map(|(_, cell)| cell)
                    .collect();
            }
            let crossings = self.crossings(&mut places);
            if crossings < best.0 {
                best = (crossings, self.columns.clone());
            }
        }
        self.columns = best.1;
    }

    /// Stores in `places`, for each cell of the column, its position in the column, counted from
    /// the top.
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
            // Go through the links from top to bottom, by their left ends. A link crosses each
            // earlier link whose right end is lower in the drawing than its own.
            let mut ends = vec![0; self.columns[column].len() + 1];
            for cell in &self.columns[column - 1] {
                let targets = || self.after[*cell].iter().map(|after| places[*after]);
                for place in targets() {
                    // The Fenwick tree `ends` counts the right ends of the earlier links. Sum up
                    // how many of them are at `place` or higher in the drawing.
                    let (mut position, mut above) = (place + 1, 0);
                    while position > 0 {
                        above += ends[position];
                        position &= position - 1;
                    }
                    crossed += ends[0] - above;
                }
                for place in targets() {
                    ends[0] += 1;
                    let mut position = place + 1;
                    while position < ends.len() {
                        ends[position] += 1;
                        position += position & position.wrapping_neg();
                    }
                }
            }
        }
        crossed
    }

    /// Gives each cell a row close to the rows of its linked cells. The order within a column
    /// stays, and no two cells of a column share a row. Rows without cells are left out.
    pub(super) fn assign_rows(&self) -> Vec<u32> {
        let mut rows = vec![0_i64; self.before.len()];
        for column in &self.columns {
            column
                .iter()
                .enumerate()
                .for_each(|(nth, cell)| rows[*cell] = nth as i64);
        }
        // Move the cells of each column towards their linked cells in the previous column, then in
        // the next column, then in both.
        let column_count = self.columns.len();
        for column in 1..column_count {
            self.move_to_preferred_rows(column, (true, false), &mut rows);
        }
        for column in (0..column_count).rev() {
            self.move_to_preferred_rows(column, (false, true), &mut rows);
        }
        for column in (0..column_count).chain((0..column_count).rev()) {
            self.move_to_preferred_rows(column, (true, true), &mut rows);
        }
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

    /// Moves the cells of a column as close to their preferred rows as their order allows. Cells
    /// that want the same rows meet in the middle.
    fn move_to_preferred_rows(&self, column: usize, sides: (bool, bool), rows: &mut [i64]) {
        // A run is a block of neighbouring cells that move together. Each entry has the weighted
        // sum of its cells' preferred rows minus their positions, the total weight, and the number
        // of cells.
        let mut runs: Vec<(i64, i64, usize)> = Vec::new();
        for (nth, cell) in self.columns[column].iter().enumerate() {
            let (preferred, weight) = self.preferred_row(*cell, sides, rows);
            let mut run = ((preferred - nth as i64) * weight, weight, 1);
            while let Some(last) = runs.last().copied()
                && last.0 * run.1 >= run.0 * last.1
            {
                runs.pop();
                run = (run.0 + last.0, run.1 + last.1, run.2 + last.2);
            }
            runs.push(run);
        }
        let mut cells = self.columns[column].iter().enumerate();
        for (sum, weight, count) in runs {
            let shift = (2 * sum + weight).div_euclid(2 * weight);
            cells
                .by_ref()
                .take(count)
                .for_each(|(nth, cell)| rows[*cell] = shift + nth as i64);
        }
    }

    /// Returns the row that suits a cell best, and the weight of this preference. The best row is
    /// the average row of the cell's links on the critical path or, if no link is on that path, of
    /// all its links.
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
        let critical_rows: Vec<i64> = linked
            .iter()
            .filter(|linked| self.critical_links.contains(&linked.1))
            .map(|linked| linked.0)
            .collect();
        let linked_rows: Vec<i64> = linked.iter().map(|linked| linked.0).collect();
        let average = |rows_of_links: &[i64]| {
            rows_of_links
                .iter()
                .sum::<i64>()
                .div_euclid(rows_of_links.len().max(1) as i64)
        };
        match (critical_rows.is_empty(), linked_rows.is_empty()) {
            (false, _) => (average(&critical_rows), 16),
            (true, false) => (average(&linked_rows), 4),
            (true, true) => (rows[cell], 1),
        }
    }
}
