//! Finds the workspaces in the fake git that conflict with each other or with the trunk.

use super::*;

/// Returns the conflicts of each workspace with the later workspaces in the list and with the
/// trunk.
pub(super) fn collisions_between(
    repos: &mut FakeRepos,
    attempts: &[AttemptId],
    tip: &CommitId,
) -> Result<Vec<WorkspaceCollision>, GitError> {
    let mut found = Vec::new();
    let workspaces: Vec<(AttemptId, FakeWorkspace)> = attempts
        .iter()
        .filter_map(|id| Some((*id, repos.workspaces.get(id)?.clone())))
        .collect();
    for (index, (attempt, workspace)) in workspaces.iter().enumerate() {
        let base = repos.files_of(&workspace.base);
        for (other_attempt, other) in &workspaces[index + 1..] {
            if let Err(paths) = merge_trees(&base, &workspace.files, &other.files) {
                found.push(WorkspaceCollision {
                    attempt: *attempt,
                    other_attempt: Some(*other_attempt),
                    paths,
                });
            }
        }
        if let Err(paths) = merge_trees(&base, &repos.files_of(tip), &workspace.files) {
            found.push(WorkspaceCollision {
                attempt: *attempt,
                other_attempt: None,
                paths,
            });
        }
    }
    Ok(found)
}
