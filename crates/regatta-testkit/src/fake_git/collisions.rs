//! Finds workspaces that conflict with each other or with the trunk.

use super::*;

pub(super) fn between(world: &mut World, attempts: &[AttemptId], tip: &CommitId) -> Result<Vec<Collision>, GitError> {
    let mut found = Vec::new();
    let spaces: Vec<(AttemptId, Space)> =
        attempts.iter().filter_map(|it| Some((*it, world.spaces.get(it)?.clone()))).collect();
    for (nth, (one, mine)) in spaces.iter().enumerate() {
        let base = world.files(&mine.base);
        for (other, theirs) in &spaces[nth + 1..] {
            if let Err(paths) = merge(&base, &mine.files, &theirs.files) {
                found.push(Collision { one: *one, other: Some(*other), paths });
            }
        }
        if let Err(paths) = merge(&base, &world.files(tip), &mine.files) {
            found.push(Collision { one: *one, other: None, paths });
        }
    }
    Ok(found)
}
