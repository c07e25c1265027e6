//! The graph of blockers: cycles, and the layers in which a plan can be worked off.

use std::collections::BTreeSet;

use crate::board::Board;
use crate::ids::TaskId;

/// The cycle that would close if `task` were blocked by `blockers`, in order.
pub fn cycle_with(board: &Board, task: TaskId, blockers: &[TaskId]) -> Option<Vec<TaskId>> {
    let mut paths: Vec<Vec<TaskId>> = blockers.iter().map(|it| vec![task, *it]).collect();
    let mut seen = BTreeSet::new();
    while let Some(path) = paths.pop() {
        let last = *path.last()?;
        if last == task {
            return Some(path);
        }
        if seen.insert(last)
            && let Some(next) = board.tasks.get(&last)
        {
            paths.extend(next.blocked_by.iter().map(|it| path.iter().copied().chain([*it]).collect::<Vec<_>>()));
        }
    }
    None
}

/// Puts `count` items into layers: an item comes after everything it depends on, and two items that collide
/// are never in one layer (the later one moves on). `Err` names a cycle, by index, in order.
pub fn layers(
    count: usize,
    depends_on: &[Vec<usize>],
    collide: impl Fn(usize, usize) -> bool,
) -> Result<Vec<u32>, Vec<usize>> {
    let mut layer: Vec<Option<u32>> = vec![None; count];
    let mut members: Vec<Vec<usize>> = Vec::new();
    let mut left = count;
    while left > 0 {
        let ready: Vec<usize> = (0..count)
            .filter(|it| layer[*it].is_none() && depends_on[*it].iter().all(|on| layer[*on].is_some()))
            .collect();
        if ready.is_empty() {
            return Err(find_cycle(count, depends_on, &layer));
        }
        for item in ready {
            let after = depends_on[item].iter().filter_map(|on| layer[*on]).max().map_or(0, |it| it as usize + 1);
            let mut at = after;
            while members.get(at).is_some_and(|others| others.iter().any(|other| collide(*other, item))) {
                at += 1;
            }
            if members.len() <= at {
                members.resize_with(at + 1, Vec::new);
            }
            members[at].push(item);
            layer[item] = Some(at as u32);
            left -= 1;
        }
    }
    Ok(layer.into_iter().flatten().collect())
}

fn find_cycle(count: usize, depends_on: &[Vec<usize>], layer: &[Option<u32>]) -> Vec<usize> {
    // Every item left depends on another item left, so walking on must meet itself.
    let mut path: Vec<usize> = Vec::new();
    let mut at = (0..count).find(|it| layer[*it].is_none()).unwrap_or(0);
    loop {
        if let Some(start) = path.iter().position(|it| *it == at) {
            path.push(at);
            return path.split_off(start);
        }
        path.push(at);
        match depends_on[at].iter().find(|on| layer[**on].is_none()) {
            Some(next) => at = *next,
            None => return path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_follow_dependencies_and_split_collisions() {
        // The seed's example: #2 and #3 after #1, #4 after #3, #5 after all.
        let deps = vec![vec![], vec![0], vec![0], vec![2], vec![1, 2, 3]];
        assert_eq!(layers(5, &deps, |_, _| false), Ok(vec![0, 1, 1, 2, 3]));
        // Three independent tasks of which the first and the third collide: the third goes to a sub-wave.
        assert_eq!(layers(3, &[vec![], vec![], vec![]], |a, b| (a, b) == (0, 2)), Ok(vec![0, 0, 1]));
    }

    #[test]
    fn a_cycle_is_named_in_full() {
        assert_eq!(layers(4, &[vec![], vec![3], vec![1], vec![2]], |_, _| false), Err(vec![1, 3, 2, 1]));
        assert_eq!(layers(1, &[vec![0]], |_, _| false), Err(vec![0, 0]));
    }
}
