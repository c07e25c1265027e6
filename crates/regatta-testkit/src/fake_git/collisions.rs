//! Finds workspaces that conflict with each other or with the trunk.

use super::*;

pub(super) fn collisions_between(
    world: &mut FakeRepos,
    attempts: &[AttemptId],
    tip: &CommitId,
) -> Result<Vec<WorkspaceCollision>, GitError> {
    let mut found = Vec::new();
    let spaces: Vec<(AttemptId, FakeWorkspace)> = attempts
        .iter()
        .filter_map(|id| Some((*id, world.workspaces.get(id)?.clone())))
        .collect();
    for (nth, (one, mine)) in spaces.iter().enumerate() {
        let base = world.files_of(&mine.base);
        for (other, theirs) in &spaces[nth + 1..] {
            if let Err(paths) = merge_trees(&base, &mine.files, &theirs.files) {
                found.push(WorkspaceCollision {
                    attempt: *one,
                    other_attempt: Some(*other),
                    paths,
                });
            }
        }
        if let Err(paths) = merge_trees(&base, &world.files_of(tip), &mine.files) {
            found.push(WorkspaceCollision {
                attempt: *one,
                other_attempt: None,
                paths,
            });
        }
    }
    Ok(found)
}
