//! Folds tasks into shared boxes until the drawing can be read.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::TaskId;

use super::{LayoutTask, MAX_BOXES, TaskProgress, assign_columns};

/// Boxes with their dependencies, before they have rows.
pub(super) struct FoldedGraph {
    /// The tasks in each box, in order.
    pub(super) members: Vec<Vec<usize>>,
    pub(super) needs: Vec<Vec<usize>>,
    pub(super) columns: Vec<u32>,
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

    pub(super) fn len(&self) -> usize {
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
pub(super) struct FoldInput<'a> {
    pub(super) tasks: &'a [LayoutTask<'a>],
    pub(super) keep: Option<TaskId>,
    pub(super) critical_path: BTreeSet<usize>,
}

impl FoldInput<'_> {
    /// Folds boxes until the drawing can be read, the least interesting ones first.
    pub(super) fn fold(&self, all: FoldedGraph) -> FoldedGraph {
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
pub(super) struct UnionFind(Vec<usize>);

impl UnionFind {
    pub(super) fn new(many: usize) -> UnionFind {
        UnionFind((0..many).collect())
    }

    /// Returns the representative of an item's component: its smallest member.
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
