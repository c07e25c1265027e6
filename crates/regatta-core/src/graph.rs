//! The graph of tasks and the tasks that block them: finds cycles, and computes the steps in which
//! a plan can run. Not here: starting the tasks of a step (see [`schedule`](crate::schedule)).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::ids::TaskId;

/// Returns the cycle of tasks that would block each other if `task` got these `blockers`, or `None`
/// if there would be no cycle.
pub fn cycle_with(board: &Board, task: TaskId, blockers: &[TaskId]) -> Option<Vec<TaskId>> {
    let mut paths: Vec<Vec<TaskId>> = blockers.iter().map(|id| vec![task, *id]).collect();
    let mut seen = BTreeSet::new();
    while let Some(path) = paths.pop() {
        let last = *path.last()?;
        if last == task {
            return Some(path);
        }
        if seen.insert(last)
            && let Some(next) = board.tasks.get(&last)
        {
            paths.extend(
                next.blocked_by
                    .iter()
                    .map(|id| path.iter().copied().chain([*id]).collect::<Vec<_>>()),
            );
        }
    }
    None
}

/// The position of a task in a plan that runs step by step. `wave` is the layer: all tasks of a
/// wave depend only on earlier waves. `sub` separates tasks of one wave that need the same files.
/// Both count from 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanStep {
    pub wave: u32,
    pub sub: u32,
}

impl PlanStep {
    /// Stands for any step, in missions that do not run step by step. This value is greater than
    /// every real step.
    pub(crate) const ANY: PlanStep = PlanStep {
        wave: u32::MAX,
        sub: u32::MAX,
    };
}

impl std::fmt::Display for PlanStep {
    /// Formats the step as people count, from 1: `2`, or `2.3` for the third part of wave 2.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.sub {
            0 => write!(f, "{}", self.wave + 1),
            sub => write!(f, "{}.{}", self.wave + 1, sub + 1),
        }
    }
}

/// Assigns items to steps, so that each item comes after the items on which it depends. Returns
/// `Err` with the items of a cycle, in order, if the dependencies form a cycle.
///
/// A step is a wave (a group of items that can run at the same time), or a sub-wave if the wave
/// must be split. `colliding` returns the items that must not run together with a given item. Of
/// two such items in one wave, the later one moves to the next free sub-wave.
pub fn steps(
    depends_on: &[Vec<usize>],
    mut colliding: impl FnMut(usize) -> Vec<usize>,
) -> Result<Vec<PlanStep>, Vec<usize>> {
    let mut steps: Vec<PlanStep> = waves(depends_on)?
        .into_iter()
        .map(|wave| PlanStep { wave, sub: 0 })
        .collect();
    let mut placed = vec![false; steps.len()];
    for item in 0..steps.len() {
        let others = colliding(item);
        let taken: BTreeSet<u32> = others
            .into_iter()
            .filter(|other| placed[*other] && steps[*other].wave == steps[item].wave)
            .map(|other| steps[other].sub)
            .collect();
        // Take the first sub-wave (a part of a wave) that contains no colliding item.
        steps[item].sub = (0..)
            .zip(&taken)
            .find(|(free, n)| free != *n)
            .map_or(taken.len() as u32, |(free, _)| free);
        placed[item] = true;
    }
    Ok(steps)
}

/// Returns for each item the number of its step, from 0 in the order in which the steps run. The
/// steps are those of [`steps`]: waves (groups of items that can run at the same time) and their
/// parts.
pub fn layers(
    count: usize,
    depends_on: &[Vec<usize>],
    collide: impl Fn(usize, usize) -> bool,
) -> Result<Vec<u32>, Vec<usize>> {
    let steps = steps(&depends_on[..count], |item| {
        (0..item).filter(|other| collide(*other, item)).collect()
    })?;
    let order: Vec<PlanStep> = steps
        .iter()
        .copied()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    Ok(steps
        .iter()
        .map(|step| order.partition_point(|other| other < step) as u32)
        .collect())
}

/// Returns the wave of each item: the length of the longest chain of dependencies that leads to it.
/// If items depend on each other in a circle, returns such a circle.
pub fn waves(depends_on: &[Vec<usize>]) -> Result<Vec<u32>, Vec<usize>> {
    let mut waves = vec![0; depends_on.len()];
    let mut open_dependencies: Vec<usize> = depends_on.iter().map(Vec::len).collect();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); depends_on.len()];
    for (item, dependencies) in depends_on.iter().enumerate() {
        for dependency in dependencies {
            dependents[*dependency].push(item);
        }
    }
    let mut ready: Vec<usize> = (0..open_dependencies.len())
        .filter(|n| open_dependencies[*n] == 0)
        .collect();
    let mut done = 0;
    while let Some(item) = ready.pop() {
        done += 1;
        for dependent in &dependents[item] {
            waves[*dependent] = waves[*dependent].max(waves[item] + 1);
            open_dependencies[*dependent] -= 1;
            if open_dependencies[*dependent] == 0 {
                ready.push(*dependent);
            }
        }
    }
    if done == waves.len() {
        Ok(waves)
    } else {
        Err(find_cycle(depends_on, &open_dependencies))
    }
}

/// Returns a cycle in the dependencies. Each item with open dependencies depends on another such
/// item, so following them must reach some item twice.
fn find_cycle(depends_on: &[Vec<usize>], open_dependencies: &[usize]) -> Vec<usize> {
    let mut path: Vec<usize> = Vec::new();
    let mut item = open_dependencies
        .iter()
        .position(|count| *count > 0)
        .unwrap_or(0);
    loop {
        if let Some(start) = path.iter().position(|visited| *visited == item) {
            path.push(item);
            return path.split_off(start);
        }
        path.push(item);
        match depends_on[item]
            .iter()
            .find(|dependency| open_dependencies[**dependency] > 0)
        {
            Some(next) => item = *next,
            None => return path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(wave: u32, sub: u32) -> PlanStep {
        PlanStep { wave, sub }
    }

    #[test]
    fn steps_follow_dependencies_and_split_collisions() {
        // Items 2 and 3 depend on 1, item 4 on 3, and item 5 on 2, 3 and 4.
        let deps = vec![vec![], vec![0], vec![0], vec![2], vec![1, 2, 3]];
        let plain = steps(&deps, |_| vec![]).unwrap();
        assert_eq!(
            plain,
            [step(0, 0), step(1, 0), step(1, 0), step(2, 0), step(3, 0)]
        );
        assert_eq!(layers(5, &deps, |_, _| false), Ok(vec![0, 1, 1, 2, 3]));
        // Of three independent tasks the first and the third collide, so the third goes to a
        // sub-wave.
        let split = steps(&[vec![], vec![], vec![], vec![1]], |step| {
            if step == 2 { vec![0] } else { vec![] }
        })
        .unwrap();
        assert_eq!(split, [step(0, 0), step(0, 0), step(0, 1), step(1, 0)]);
        assert_eq!(
            layers(4, &[vec![], vec![], vec![], vec![1]], |a, b| (a, b)
                == (0, 2)),
            Ok(vec![0, 0, 1, 2])
        );
        // Items that collide across waves need no sub-wave, because the waves separate them.
        assert_eq!(
            steps(&[vec![], vec![0]], |step| (0..step).collect()).unwrap(),
            [step(0, 0), step(1, 0)]
        );
        // The first free number is taken, not the next one.
        let star = steps(&[vec![], vec![], vec![], vec![]], |step| match step {
            1 => vec![0],
            2 => vec![1],
            3 => vec![0, 1],
            _ => vec![],
        });
        assert_eq!(
            star.unwrap(),
            [step(0, 0), step(0, 1), step(0, 0), step(0, 2)]
        );
    }

    #[test]
    fn steps_are_displayed_counting_from_one() {
        assert_eq!(
            [step(0, 0), step(1, 0), step(1, 2)].map(|step| step.to_string()),
            ["1", "2", "2.3"]
        );
    }

    #[test]
    fn a_cycle_is_named_in_full() {
        assert_eq!(
            layers(4, &[vec![], vec![3], vec![1], vec![2]], |_, _| false),
            Err(vec![1, 3, 2, 1])
        );
        assert_eq!(layers(1, &[vec![0]], |_, _| false), Err(vec![0, 0]));
        // An item that only waits for a cycle is not part of it.
        assert_eq!(
            layers(3, &[vec![1], vec![2], vec![1]], |_, _| false),
            Err(vec![1, 2, 1])
        );
    }
}
