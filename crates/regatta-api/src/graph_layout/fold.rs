//! Lets tasks share boxes of the drawing ("folds" them) until there are few enough boxes to read.

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::ids::TaskId;

use super::{LayoutTask, MAX_BOXES, TaskProgress, assign_columns};

/// The boxes of a drawing, each with its tasks, the boxes on which it depends, and its column. The
/// rows are not known yet.
pub(super) struct FoldedGraph {
    /// For each box, the tasks in it, as indices of [`FoldInput::tasks`] in ascending order.
    pub(super) members: Vec<Vec<usize>>,
    pub(super) needs: Vec<Vec<usize>>,
    pub(super) columns: Vec<u32>,
}

impl FoldedGraph {
    /// Joins all boxes with the same key into one box; a box without a key stays as it is. The
    /// caller ensures that no joined box depends on another joined box through a third box, because
    /// that would form a cycle.
    fn join_equal<K: Ord>(self, key: impl Fn(&FoldedGraph, usize) -> Option<K>) -> FoldedGraph {
        let mut by_key: BTreeMap<K, usize> = BTreeMap::new();
        let mut box_of: Vec<usize> = Vec::new();
        let mut members: Vec<Vec<usize>> = Vec::new();
        for index in 0..self.members.len() {
            let target = match key(&self, index) {
                Some(key) => *by_key.entry(key).or_insert(members.len()),
                None => members.len(),
            };
            if target == members.len() {
                members.push(vec![]);
            }
            members[target].extend(&self.members[index]);
            box_of.push(target);
        }
        let mut needs = vec![vec![]; members.len()];
        for (index, needs_of_box) in self.needs.iter().enumerate() {
            needs[box_of[index]].extend(
                needs_of_box
                    .iter()
                    .map(|need| box_of[*need])
                    .filter(|need| *need != box_of[index]),
            );
        }
        for tasks in &mut members {
            tasks.sort_unstable();
        }
        let (needs, columns) = assign_columns(needs);
        FoldedGraph {
            members,
            needs,
            columns,
        }
    }

    /// Returns the number of boxes in the drawing.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns, for each box, whether another box depends on it.
    fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.len()];
        self.needs
            .iter()
            .flatten()
            .for_each(|need| needed[*need] = true);
        needed
    }
}

/// The input for folding, which joins tasks into shared boxes of a drawing: all tasks, the task
/// that must stay visible, and the critical path (the longest chain of open tasks).
pub(super) struct FoldInput<'a> {
    pub(super) tasks: &'a [LayoutTask<'a>],
    pub(super) keep: Option<TaskId>,
    pub(super) critical_path: BTreeSet<usize>,
}

impl FoldInput<'_> {
    /// Joins boxes, the least interesting ones first, until the drawing is small enough to read.
    pub(super) fn fold(&self, all: FoldedGraph) -> FoldedGraph {
        type FoldStep<'a> = &'a dyn Fn(FoldedGraph) -> FoldedGraph;
        let steps: [FoldStep<'_>; 5] = [
            &|graph| self.fold_ended(graph),
            &|graph| self.fold_leaves(graph),
            &|graph| self.fold_columns(graph, |at| self.needs_no_attention(at)),
            &|graph| self.fold_columns(graph, |at| self.excludes_kept_task(at)),
            &|graph| self.fold_tail(graph),
        ];
        steps.iter().fold(all, |graph, step| {
            if graph.len() > MAX_BOXES {
                step(graph)
            } else {
                graph
            }
        })
    }

    /// Returns whether a box does not contain the task that must stay visible.
    fn excludes_kept_task(&self, members: &[usize]) -> bool {
        members
            .iter()
            .all(|task| Some(self.tasks[*task].id) != self.keep)
    }

    /// Returns whether a box has no task that people want to see separately: a running task, a task
    /// on the critical path, or the task that must stay visible.
    fn needs_no_attention(&self, members: &[usize]) -> bool {
        self.excludes_kept_task(members)
            && members.iter().all(|task| {
                self.tasks[*task].progress != TaskProgress::Active
                    && !self.critical_path.contains(task)
            })
    }

    /// Returns the word that shows the status of a box: the status of the box's first task.
    fn label_of(&self, members: &[usize]) -> &str {
        members.first().map_or("", |task| self.tasks[*task].label)
    }

    /// Joins tasks that have ended and whose dependencies have ended. Tasks that are connected
    /// share one box. All groups on which no open task depends share one further box.
    fn fold_ended(&self, graph: FoldedGraph) -> FoldedGraph {
        let mut order: Vec<usize> = (0..graph.len()).collect();
        order.sort_by_key(|index| graph.columns[*index]);
        let mut is_over = vec![false; graph.len()];
        for index in order {
            let has_ended = graph.members[index]
                .iter()
                .all(|member| self.tasks[*member].progress == TaskProgress::Ended);
            is_over[index] = has_ended
                && self.excludes_kept_task(&graph.members[index])
                && graph.needs[index].iter().all(|need| is_over[*need]);
        }
        let mut pieces = UnionFind::new(graph.len());
        let links = || {
            graph
                .needs
                .iter()
                .enumerate()
                .flat_map(|(index, needs)| needs.iter().map(move |need| (*need, index)))
        };
        links()
            .filter(|(_, index)| is_over[*index])
            .for_each(|(need, index)| pieces.union(need, index));
        let piece_of: Vec<usize> = (0..graph.len()).map(|index| pieces.root(index)).collect();
        let awaited_pieces: BTreeSet<usize> = links()
            .filter(|(_, index)| !is_over[*index])
            .map(|(need, _)| piece_of[need])
            .collect();
        graph.join_equal(|_, index| {
            is_over[index]
                .then(|| Some(piece_of[index]).filter(|piece| awaited_pieces.contains(piece)))
        })
    }

    /// Joins tasks that have the same dependencies and the same status and for which no other task
    /// waits.
    fn fold_leaves(&self, graph: FoldedGraph) -> FoldedGraph {
        let needed = graph.needed();
        let leaf_key = |graph: &FoldedGraph, index: usize| {
            let can_fold = !needed[index] && self.needs_no_attention(&graph.members[index]);
            can_fold.then(|| {
                (
                    graph.needs[index].clone(),
                    self.label_of(&graph.members[index]),
                )
            })
        };
        graph.join_equal(leaf_key)
    }

    /// Joins tasks of one wave (a column of tasks that can run at the same time) that have the same
    /// status, if `can_fold` accepts these tasks.
    fn fold_columns(&self, graph: FoldedGraph, can_fold: impl Fn(&[usize]) -> bool) -> FoldedGraph {
        graph.join_equal(|graph, index| {
            let members = &graph.members[index];
            can_fold(members).then(|| (graph.columns[index], self.label_of(members)))
        })
    }

    /// Joins all boxes after the last readable wave (a column of tasks that can run at the same
    /// time) into one box. If one task must stay visible, the drawing shows only the surroundings
    /// of that task, so nothing is joined here.
    fn fold_tail(&self, graph: FoldedGraph) -> FoldedGraph {
        let mut columns_in_order: Vec<u32> = graph.columns.clone();
        columns_in_order.sort_unstable();
        match columns_in_order.get(MAX_BOXES - 1) {
            Some(from) if self.keep.is_none() => {
                graph.join_equal(|graph, index| (graph.columns[index] >= *from).then_some(()))
            }
            _ => graph,
        }
    }
}

/// Groups of connected items, as a union-find structure.
pub(super) struct UnionFind(Vec<usize>);

impl UnionFind {
    pub(super) fn new(count: usize) -> UnionFind {
        UnionFind((0..count).collect())
    }

    /// Returns the smallest item of the group that contains the item `at`. This item stands for the
    /// group.
    pub(super) fn root(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    pub(super) fn union(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one.max(other)] = one.min(other);
    }
}
