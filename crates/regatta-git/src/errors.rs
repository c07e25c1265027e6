//! The errors of this crate with their messages for people.

use std::io;
use std::path::Path;
use std::time::Duration;

use regatta_core::ids::{AttemptId, BranchName, CommitId};
use regatta_engine::ports::git::GitError;

fn git_error(code: &'static str, message: String, hint: impl Into<String>) -> GitError {
    GitError {
        code,
        message,
        hint: hint.into(),
    }
}

pub(crate) fn git_missing() -> GitError {
    git_error(
        "git_missing",
        "The program `git` was not found on the PATH.".into(),
        "Install git 2.39 or newer, for example with `apt install git`, then try again.",
    )
}

pub(crate) fn io_error(operation: &str, path: &Path, cause: &io::Error) -> GitError {
    let hint = match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "Free some disk space, then try again."
        }
        io::ErrorKind::PermissionDenied => {
            "Give the user who runs Regatta access to that path, then try again."
        }
        _ => "Check that path, then try again.",
    };
    git_error(
        "io",
        format!("Regatta could not {operation} {}: {cause}.", path.display()),
        hint,
    )
}

/// Turns git's output into an error, with a code of its own where a person can fix the cause.
pub(crate) fn git_failed(operation: &str, printed: &str) -> GitError {
    let reason = first_error_line(printed);
    let message = format!("Git could not {operation}: {reason}.");
    if printed.contains("dubious ownership") {
        return git_error(
            "unsafe_repository",
            message,
            "The repository belongs to another user. If you trust it, run `git config --global \
            --add safe.directory PATH`.",
        );
    }
    if printed.contains(".lock': File exists") {
        return git_error(
            "busy",
            message,
            "Another git program is running there. If none is, remove the lock file named above, \
            then try again.",
        );
    }
    if ["BOM is required", "BOM is prohibited", "failed to encode"]
        .iter()
        .any(|words| printed.contains(words))
    {
        return git_error(
            "unencodable",
            message,
            "The working-tree-encoding in .gitattributes does not fit the file: correct the \
            attribute or the file, then retry.",
        );
    }
    if printed.contains("No space left on device") {
        return git_error(
            "git_failed",
            message,
            "Free some disk space, then try again.",
        );
    }
    git_error(
        "git_failed",
        message,
        "Run `git fsck` in the repository to see whether it is sound, then try again.",
    )
}

pub(crate) fn not_started(operation: &str, cause: &io::Error) -> GitError {
    git_error(
        "git_failed",
        format!("Git could not {operation}: {cause}."),
        "Try again.",
    )
}

pub(crate) fn too_much_output(operation: &str, limit: usize) -> GitError {
    git_error(
        "git_failed",
        format!(
            "Git printed more than {} MiB when asked to {operation}.",
            limit >> 20
        ),
        "The repository has more files than Regatta can handle; please report it.",
    )
}

pub(crate) fn unexpected(operation: &str) -> GitError {
    git_error(
        "git_failed",
        format!("Git gave an unexpected answer when asked to {operation}."),
        "Check that `git --version` says 2.39 or newer.",
    )
}

pub(crate) fn not_a_repository(path: &Path) -> GitError {
    git_error(
        "not_a_repository",
        format!("There is no git repository at {}.", path.display()),
        "Run `git init` there, or name another directory with `regatta -C PATH`.",
    )
}

pub(crate) fn inside_git_directory(path: &Path) -> GitError {
    git_error(
        "not_a_repository",
        format!(
            "{} is inside a `.git` directory, not in a working tree.",
            path.display()
        ),
        "Go to the working tree, or name it with `regatta -C PATH`.",
    )
}

pub(crate) fn unborn_branch(trunk: &BranchName, path: &Path) -> GitError {
    git_error(
        "unborn_branch",
        format!(
            "The branch {trunk} in {} has no commit yet.",
            path.display()
        ),
        "Make a first commit there: `git commit --allow-empty -m start`.",
    )
}

pub(crate) fn no_such_branch(trunk: &BranchName, path: &Path) -> GitError {
    git_error(
        "no_such_branch",
        format!("There is no branch {trunk} in {}.", path.display()),
        format!("Create it with `git branch {trunk}`, or choose another trunk for the project."),
    )
}

pub(crate) fn no_such_commit(commit: &CommitId) -> GitError {
    git_error(
        "no_such_commit",
        format!("The commit {commit} is neither in the vault nor on the trunk."),
        "The trunk may have been rewritten: submit the work again.",
    )
}

pub(crate) fn no_such_object(id: &CommitId) -> GitError {
    git_error(
        "no_such_object",
        format!("The object {id} is missing from the vault."),
        "Run `git fsck` in the project's vault to see what else is missing, and restore the data \
        directory from a backup.",
    )
}

pub(crate) fn no_workspace(attempt: AttemptId, path: &Path) -> GitError {
    git_error(
        "no_workspace",
        format!(
            "The attempt {attempt} has no workspace at {}.",
            path.display()
        ),
        "Start a new attempt on the task.",
    )
}

pub(crate) fn isolation_failed(path: &Path) -> GitError {
    git_error(
        "isolation_failed",
        format!(
            "The workspace {} would share a git directory with another repository.",
            path.display()
        ),
        "Look for a `.git` or a symbolic link above the data directory, then try again.",
    )
}

pub(crate) fn bad_sparse(text: &str, reason: &str) -> GitError {
    git_error(
        "bad_sparse",
        format!("`workspace.sparse` contains {text:?}, but {reason}."),
        "Name directories relative to the repository's top in regatta.toml, for example `sparse = \
        [\"server\"]`.",
    )
}

pub(crate) fn too_much_to_copy(files: u64, bytes: u64, max_files: u64, max_bytes: u64) -> GitError {
    git_error(
        "too_much_to_copy",
        format!(
            "`workspace.copy` matches {files} files with {} MiB; a workspace gets at most \
            {max_files} files and {} MiB.",
            bytes >> 20,
            max_bytes >> 20
        ),
        "Name less in regatta.toml: only what a fresh clone lacks and cannot make quickly.",
    )
}

pub(crate) fn took_too_long(operation: &str, limit: Duration) -> GitError {
    git_error(
        "git_slow",
        format!(
            "Git did not {operation} within {} s, so Regatta ended it.",
            limit.as_secs()
        ),
        "Check that the disk and the other machine respond, then try again.",
    )
}

pub(crate) fn no_file(path: &Path) -> GitError {
    git_error(
        "no_file",
        format!(
            "{} is a pipe, a socket or a device where git reads a file.",
            path.display()
        ),
        "Nothing needs to be done: Regatta removes it when the work is captured.",
    )
}

pub(crate) fn unreadable(path: &Path, printed: &str) -> GitError {
    git_error(
        "unreadable",
        format!(
            "Some files in {} cannot be read: {}.",
            path.display(),
            first_error_line(printed)
        ),
        "Make them readable with `chmod -R u+rwX`, then try again.",
    )
}

/// Names the beginning and the end of a path that is too long to show.
pub(crate) fn path_too_long(workspace: &Path, path: &str) -> GitError {
    const SHOWN: usize = 60;
    let letters: Vec<char> = path.trim_end_matches('/').chars().collect();
    let (beginning, end) = (
        &letters[..letters.len().min(SHOWN)],
        &letters[letters.len().saturating_sub(SHOWN)..],
    );
    let to_text = |letters: &[char]| letters.iter().collect::<String>();
    git_error(
        "path_too_long",
        format!(
            "A file in {} has a path of {} bytes or more, which cannot be stored: {}…{}.",
            workspace.display(),
            path.len(),
            to_text(beginning),
            to_text(end)
        ),
        "Move or remove it, then try again.",
    )
}

pub(crate) fn grafted(user: &Path, cause: &GitError) -> GitError {
    git_error(
        "grafted",
        format!(
            "{} has grafts in info/grafts, which cannot be copied. {}",
            user.display(),
            cause.message
        ),
        "Turn them into replacements with `git replace --convert-graft-file`, or remove the file, \
        then retry.",
    )
}

pub(crate) fn unstorable(path: &Path, printed: &str) -> GitError {
    git_error(
        "unstorable",
        format!(
            "Some files in {} have names that git does not store: {}.",
            path.display(),
            first_error_line(printed)
        ),
        "Rename or remove them, then try again.",
    )
}

pub(crate) fn submodule_missing(path: &str, commit: &CommitId, printed: &str) -> GitError {
    let (short, reason) = (&commit.as_str()[..10], first_error_line(printed));
    git_error(
        "submodule_missing",
        format!(
            "The submodule {path} is at {short}, which your copy of it does not have, and its \
            remote did not return it: {reason}."
        ),
        format!(
            "Bring it here with `git submodule update --init --recursive {path}`, then try again."
        ),
    )
}

pub(crate) fn too_many_submodules(path: &str, max_submodules: usize) -> GitError {
    git_error(
        "too_many_submodules",
        format!(
            "The checkout has more than {max_submodules} submodules, including nested ones; {path} exceeds \
            the limit."
        ),
        "Move the submodule back to a commit with fewer submodules, then try again.",
    )
}

pub(crate) fn submodule_commit_missing(path: &str, commit: &CommitId) -> GitError {
    let short = &commit.as_str()[..10];
    git_error(
        "submodule_commit_missing",
        format!(
            "The attempt moved the submodule {path} to {short}, which is not in its workspace, in \
             your copy or at the remote of the \
             submodule."
        ),
        "Fetch that commit into your copy of the submodule, or have the pointer set to a commit \
        that exists, then try again.",
    )
}

pub(crate) fn submodule_edited(paths: &[String]) -> GitError {
    const SHOWN: usize = 5;
    let hidden = paths.len().saturating_sub(SHOWN);
    let more = if hidden == 0 {
        String::new()
    } else {
        format!(" and {hidden} more")
    };
    let named = paths
        .iter()
        .take(SHOWN)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    git_error(
        "submodule_edited",
        format!(
            "The attempt edited files in a submodule without committing them there, so they \
            cannot land: {named}{more}."
        ),
        "Have them committed inside the submodule, or undone, then try again. They are kept in \
        the vault.",
    )
}

pub(crate) fn wrong_permit(permitted: &str, requested: &str) -> GitError {
    git_error(
        "wrong_permit",
        format!("The permit is for the trunk of {permitted}, not of {requested}."),
        "This is a bug in Regatta; please report it.",
    )
}

pub(crate) fn case_collision(new: &str, other: &str) -> GitError {
    git_error(
        "same_names",
        format!(
            "It adds {new}, which differs from {other} by case alone, and your file system treats \
             both as one file \
             (core.ignorecase): have it renamed with regatta revise, or drop it."
        ),
        "Have it renamed with `regatta revise`, or drop it with `regatta drop`.",
    )
}

pub(crate) fn not_a_descendant(old: &CommitId, new: &CommitId) -> GitError {
    git_error(
        "not_a_descendant",
        format!("The commit {new} does not follow {old}, so the trunk would lose commits."),
        "This is a bug in Regatta; please report it.",
    )
}

pub(crate) fn workspace_in_use(attempt: AttemptId, path: &Path) -> GitError {
    git_error(
        "busy",
        format!(
            "The captures of {attempt} cannot be deleted yet, because its workspace {} still \
            exists.",
            path.display()
        ),
        "Regatta removes the workspace by itself, and the captures after it.",
    )
}

pub(crate) fn index_locked(lock: &Path) -> GitError {
    git_error(
        "busy",
        format!("Another git program holds {}.", lock.display()),
        "Let it finish. If none is running, remove that file; Regatta then continues by itself.",
    )
}

pub(crate) fn operation_in_progress(current: &str, path: &Path) -> GitError {
    git_error(
        "busy",
        format!(
            "The checkout of the trunk at {} is in the middle of {current}.",
            path.display()
        ),
        "Finish or abort it; Regatta then continues by itself.",
    )
}

pub(crate) fn being_rebased(trunk: &BranchName) -> GitError {
    git_error(
        "busy",
        format!("The branch {trunk} is being rebased."),
        "Finish or abort the rebase; Regatta then continues by itself.",
    )
}

pub(crate) fn checkout_behind(
    path: &Path,
    old: &CommitId,
    new: &CommitId,
    printed: &str,
) -> GitError {
    git_error(
        "checkout_behind",
        format!(
            "The trunk moved to {new}, but its checkout at {} could not follow: {}.",
            path.display(),
            first_error_line(printed)
        ),
        // The hint does not name `git checkout` or `git reset`, because those would overwrite other
        // changes.
        format!(
            "Move your change to that file away, then run `git read-tree -m -u {old} {new}` there."
        ),
    )
}

pub(crate) fn cannot_replay_first_commit(commit: &CommitId) -> GitError {
    git_error(
        "first_commit",
        format!("The commit {commit} is the trunk's first, so there is nothing to go back to."),
        "Undo a later landing instead.",
    )
}

pub(crate) fn still_conflicts(paths: &[String]) -> GitError {
    git_error(
        "unsettled",
        format!(
            "These paths conflict even when one side is taken: {}.",
            paths.join(", ")
        ),
        "Merge them by hand: a file on one side is a directory on the other.",
    )
}

pub(crate) fn dropped_message(paths: &[String]) -> String {
    format!(
        "Versions that were dropped when a conflict was resolved\n\n{}\n",
        paths.join("\n")
    )
}

pub(crate) fn no_such_remote(remote: &str, path: &Path) -> String {
    format!(
        "{} has no remote `{remote}`; add it with `git remote add {remote} URL`, or change \
        `landing.push`",
        path.display()
    )
}

pub(crate) fn push_failed(remote: &str, refused_line: &str, printed: &str) -> String {
    let reason = match refused_line.rsplit_once('[') {
        Some((_, reason)) => reason.replace(']', ""),
        None => first_error_line(printed),
    };
    format!("`git push {remote}` failed: {}", reason.trim())
}

pub(crate) fn fetch_failed(remote: &str, printed: &str) -> String {
    format!("`git fetch {remote}` failed: {}", first_error_line(printed))
}

pub(crate) fn fetch_needed(reason: &str) -> GitError {
    git_error(
        "not_fetched",
        format!("Regatta could not fetch from the remote: {reason}."),
        "Regatta tries again by itself.",
    )
}

pub(crate) fn unrelated_histories(remote: &str, trunk: &BranchName) -> GitError {
    git_error(
        "unrelated",
        format!("The trunk {trunk} and that of {remote} have no commit in common."),
        "Check that `landing.push` names the right remote. If it does, merge the two trunks by \
        hand.",
    )
}

pub(crate) fn too_far_apart(commits: usize, max_commits: usize) -> GitError {
    git_error(
        "too_far_apart",
        format!(
            "{commits} commits are only here and not at the remote; Regatta rebases at most \
            {max_commits} by itself."
        ),
        "Rebase by hand: git pull --rebase.",
    )
}

pub(crate) fn transfer_interrupted(operation: &str, cause: &io::Error) -> GitError {
    git_error(
        "cut",
        format!("The connection to the other machine broke when git was to {operation}: {cause}."),
        "Nothing was changed partially; the other machine can try again.",
    )
}

pub(crate) fn bad_push(reason: &str) -> GitError {
    git_error(
        "bad_request",
        format!("This server does not accept the push: {reason}."),
        "Push with a runner of the same version.",
    )
}

pub(crate) fn bad_protocol() -> GitError {
    git_error(
        "bad_request",
        "The header Git-Protocol is invalid.".into(),
        "Use a git program to fetch and push.",
    )
}

pub(crate) fn bad_remote(reason: &str) -> GitError {
    git_error(
        "bad_remote",
        format!("The runner cannot use this server: {reason}."),
        "Start the runner with the address that `regatta up` prints, and a token of its own.",
    )
}

pub(crate) fn ca_missing(path: &Path) -> GitError {
    git_error(
        "bad_remote",
        format!(
            "There is no certificate file {} for the server.",
            path.display()
        ),
        "Copy the server's certificate there, or leave the option out.",
    )
}

pub(crate) fn not_a_mirror(path: &Path) -> GitError {
    git_error(
        "not_a_mirror",
        format!("{} is not a runner's mirror of a project.", path.display()),
        "This is a bug in Regatta; please report it.",
    )
}

pub(crate) fn remote_trunk_missing(trunk: &BranchName, url: &str) -> GitError {
    git_error(
        "no_such_branch",
        format!("There is no branch {trunk} at {url}."),
        "Check on the server that the project still has that trunk, then try again.",
    )
}

pub(crate) fn push_refused(attempt: AttemptId, line: &str) -> GitError {
    let reason = match line.rsplit_once('(') {
        Some((_, reason)) => reason.trim_end_matches(')'),
        None => "the server gave no reason",
    };
    git_error(
        "ref_refused",
        format!("The server did not accept the work of {attempt}: {reason}."),
        "If the attempt was given to another agent, nothing needs to be done: its captures stay \
        here.",
    )
}

/// Turns git's output about another machine into an error, with a code that tells who can fix the
/// cause.
pub(crate) fn remote_failed(operation: &str, url: &str, printed: &str) -> GitError {
    let has_any = |words: &[&str]| words.iter().any(|word| printed.contains(word));
    let message = format!(
        "Git could not {operation} ({url}): {}.",
        first_error_line(printed)
    );
    if has_any(&[
        "error: 401",
        "error: 403",
        "HTTP 401",
        "HTTP 403",
        "Authentication failed",
        "could not read Username",
        "unable to get password",
    ]) {
        return git_error(
            "unauthorized",
            message,
            "Give the runner a token that is valid: `regatta token add --scope runner`.",
        );
    }
    if has_any(&["not our ref"]) {
        return git_error(
            "no_such_commit",
            message,
            "The server no longer has that commit: ask for the work again.",
        );
    }
    if has_any(&[
        "Could not resolve",
        "Failed to connect",
        "Could not connect",
        "Connection refused",
        "SSL",
        "certificate",
    ]) {
        return git_error(
            "unreachable",
            message,
            "Check the address, the network and the server's certificate, then try again.",
        );
    }
    let broken = [
        "early EOF",
        "hung up",
        "RPC failed",
        "unexpected disconnect",
        "transfer closed",
        "Empty reply",
        "Operation too slow",
        "reset by peer",
    ];
    if has_any(&broken) {
        return git_error("cut", message, "Nothing was changed partially; try again.");
    }
    if has_any(&["The requested URL returned error"]) {
        return git_error(
            "unreachable",
            message,
            "Check the server's log, then try again.",
        );
    }
    git_failed(operation, printed)
}

/// Returns the line in which git names the error, short enough to show.
fn first_error_line(printed: &str) -> String {
    let lines = || {
        printed
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let line = lines()
        .find_map(|line| {
            line.strip_prefix("fatal: ")
                .or_else(|| line.strip_prefix("error: "))
        })
        .or_else(|| lines().next())
        .unwrap_or("git gave no reason");
    line.trim_end_matches('.').chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_error_output_becomes_one_sentence_with_a_code() {
        let error = git_failed(
            "read the trunk",
            "warning: x\nfatal: bad object HEAD.\nmore\n",
        );
        assert_eq!(
            (error.code, error.message.as_str()),
            (
                "git_failed",
                "Git could not read the trunk: bad object HEAD."
            )
        );
        assert_eq!(
            git_failed(
                "x",
                "fatal: Unable to create '/r/.git/index.lock': File exists."
            )
            .code,
            "busy"
        );
        assert_eq!(
            git_failed("x", "fatal: detected dubious ownership in repository").code,
            "unsafe_repository"
        );
        assert!(git_failed("x", &"y".repeat(9000)).message.len() < 400);
        assert!(git_failed("x", "").message.contains("git gave no reason"));
    }
}
