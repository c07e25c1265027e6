//! The errors that this crate returns, each with a message and a hint for people.

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
        "Regatta found no program `git` in the directories of PATH.".into(),
        format!(
            "install git {} or newer, then try again: apt-get install git",
            min_version()
        ),
    )
}

/// Returns the error for an installed git that lacks commands which Regatta needs.
pub(crate) fn git_too_old(found: &str) -> GitError {
    git_error(
        "git_too_old",
        format!(
            "git {found} is too old for Regatta, which merges with commands that need git {}",
            min_version()
        ),
        install_hint(),
    )
}

fn min_version() -> String {
    let (major, minor) = crate::MIN_GIT_VERSION;
    format!("{major}.{minor}")
}

fn install_hint() -> String {
    format!(
        "install git {} or newer, then try again; docs/platforms.md says where old systems get it",
        min_version()
    )
}

pub(crate) fn io_error(operation: &str, path: &Path, cause: &io::Error) -> GitError {
    let hint = match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "The disk or your quota is full: free some disk space, then try again."
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

/// Turns the output of a failed git process into an error. Each cause that a person can fix has its
/// own error code and hint.
pub(crate) fn git_failed(operation: &str, printed: &str) -> GitError {
    let reason = first_error_line(printed);
    let message = format!("Git could not {operation}: {reason}.");
    if printed.contains("dubious ownership") {
        return git_error(
            "unsafe_repository",
            message,
            "The repository belongs to another user. If you trust this user, run `git config --global \
            --add safe.directory PATH`.",
        );
    }
    if printed.contains(".lock': File exists") {
        return git_error(
            "busy",
            message,
            "Another git program uses the repository. Wait until that program has ended. If no git \
            program is running, remove the `.lock` file that the message names, then try again.",
        );
    }
    if ["BOM is required", "BOM is prohibited", "failed to encode"]
        .iter()
        .any(|words| printed.contains(words))
    {
        return git_error(
            "unencodable",
            message,
            "The attribute `working-tree-encoding` in .gitattributes does not fit the file's \
            contents: correct the attribute or the file, then try again.",
        );
    }
    if printed.contains("No space left on device") {
        return git_error(
            "git_failed",
            message,
            "The disk is full: free some disk space, then try again.",
        );
    }
    git_error(
        "git_failed",
        message,
        "Run `git fsck` in the repository to see whether it is damaged, then try again.",
    )
}

pub(crate) fn not_started(operation: &str, cause: &io::Error) -> GitError {
    git_error(
        "git_failed",
        format!("Regatta could not run git to {operation}: {cause}."),
        "Try again. If it fails again, check that the machine has free memory and can start more \
        processes.",
    )
}

pub(crate) fn too_much_output(operation: &str, limit: usize) -> GitError {
    git_error(
        "git_failed",
        format!(
            "Git was started to {operation}, but printed more than {} MiB, so Regatta stopped git.",
            limit >> 20
        ),
        "The repository is too large for Regatta. Report this as a bug, with the number of files in \
        the repository.",
    )
}

pub(crate) fn unexpected(operation: &str) -> GitError {
    git_error(
        "git_failed",
        format!("Git was started to {operation}, but Regatta does not understand git's output."),
        format!(
            "Check that `git --version` prints {} or newer. If it does, report this as a bug in \
             Regatta.",
            min_version()
        ),
    )
}

pub(crate) fn not_a_repository(path: &Path) -> GitError {
    git_error(
        "not_a_repository",
        format!(
            "There is no git repository in the directory {}.",
            path.display()
        ),
        "Run `git init` in this directory, or name another directory with `regatta -C PATH`.",
    )
}

pub(crate) fn inside_git_directory(path: &Path) -> GitError {
    git_error(
        "not_a_repository",
        format!(
            "The directory {} is inside a `.git` directory, not in a working tree.",
            path.display()
        ),
        "Go to the repository's working tree, or name it with `regatta -C PATH`.",
    )
}

pub(crate) fn unborn_branch(trunk: &BranchName, path: &Path) -> GitError {
    git_error(
        "unborn_branch",
        format!(
            "The branch {trunk} of the repository {} has no commit yet.",
            path.display()
        ),
        "Make a first commit in the repository: `git commit --allow-empty -m start`.",
    )
}

pub(crate) fn no_such_branch(trunk: &BranchName, path: &Path) -> GitError {
    git_error(
        "no_such_branch",
        format!("The repository {} has no branch {trunk}.", path.display()),
        format!(
            "Create the branch with `git branch {trunk}`, or choose another trunk for the project."
        ),
    )
}

pub(crate) fn no_such_commit(commit: &CommitId) -> GitError {
    git_error(
        "no_such_commit",
        format!(
            "The commit {commit} is neither on the trunk nor in the vault (Regatta's own \
            repository of the project)."
        ),
        "The trunk was probably rewritten. Submit the work again.",
    )
}

pub(crate) fn no_such_object(id: &CommitId) -> GitError {
    git_error(
        "no_such_object",
        format!(
            "The git object {id} is missing from the vault (Regatta's own repository of the \
            project), which is therefore damaged."
        ),
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
        "Start a new attempt on the task: `regatta retry TASK`.",
    )
}

pub(crate) fn isolation_failed(path: &Path) -> GitError {
    git_error(
        "isolation_failed",
        format!(
            "In the workspace {}, git would use the git directory of another repository, so the \
            workspace was not created.",
            path.display()
        ),
        "Check whether a directory above the data directory contains a `.git` or is a symbolic link, \
        then try again.",
    )
}

pub(crate) fn bad_sparse(text: &str, reason: &str) -> GitError {
    git_error(
        "bad_sparse",
        format!("The setting `workspace.sparse` contains {text:?}, but {reason}."),
        "Name directories relative to the repository's top in regatta.toml, for example `sparse = \
        [\"server\"]`.",
    )
}

pub(crate) fn too_much_to_copy(files: u64, bytes: u64, max_files: u64, max_bytes: u64) -> GitError {
    git_error(
        "too_much_to_copy",
        format!(
            "The setting `workspace.copy` matches {files} files with {} MiB in total. At most \
            {max_files} files and {} MiB can be copied into a workspace.",
            bytes >> 20,
            max_bytes >> 20
        ),
        "Match fewer files in the setting `copy` in regatta.toml. Name only files that a new clone \
        lacks and that take long to create again.",
    )
}

pub(crate) fn took_too_long(operation: &str, limit: Duration) -> GitError {
    git_error(
        "git_slow",
        format!(
            "Git was started to {operation}, but did not end within {} seconds, so Regatta stopped git.",
            limit.as_secs()
        ),
        "Check that the disk and the other machine respond, then try again.",
    )
}

pub(crate) fn no_file(path: &Path) -> GitError {
    git_error(
        "no_file",
        format!(
            "{} is a pipe, a socket or a device, so git cannot read it as a file.",
            path.display()
        ),
        "Do nothing: Regatta removes the pipe, socket or device when the attempt ends.",
    )
}

pub(crate) fn unreadable(path: &Path, printed: &str) -> GitError {
    git_error(
        "unreadable",
        format!(
            "Some files in the workspace {} cannot be read: {}.",
            path.display(),
            first_error_line(printed)
        ),
        "Make the files readable with `chmod -R u+rwX PATH`, then try again.",
    )
}

/// Returns the error for a file whose path is too long for git. The message shows only the
/// beginning and the end of the path.
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
            "A file in the workspace {} has a path of {} bytes or more, which cannot be stored: {}…{}.",
            workspace.display(),
            path.len(),
            to_text(beginning),
            to_text(end)
        ),
        "Move or remove that file, then try again.",
    )
}

pub(crate) fn grafted(user: &Path, cause: &GitError) -> GitError {
    git_error(
        "grafted",
        format!(
            "The repository {} replaces the parents of commits in the git file info/grafts. Regatta \
            cannot copy such commits. {}",
            user.display(),
            cause.message
        ),
        "Convert the file info/grafts with `git replace --convert-graft-file`, or remove the file, \
        then try again.",
    )
}

pub(crate) fn unstorable(path: &Path, printed: &str) -> GitError {
    git_error(
        "unstorable",
        format!(
            "Some files in the workspace {} have names that git does not store: {}.",
            path.display(),
            first_error_line(printed)
        ),
        "Rename or remove these files, then try again.",
    )
}

pub(crate) fn submodule_missing(path: &str, commit: &CommitId, printed: &str) -> GitError {
    let (short, reason) = (&commit.as_str()[..10], first_error_line(printed));
    git_error(
        "submodule_missing",
        format!(
            "The project needs commit {short} of the submodule {path}. Your copy of the submodule \
            does not have this commit, and fetching it from the submodule's remote failed: {reason}."
        ),
        format!(
            "Fetch the commit with `git submodule update --init --recursive {path}`, then try again."
        ),
    )
}

pub(crate) fn too_many_submodules(path: &str, max_submodules: usize) -> GitError {
    git_error(
        "too_many_submodules",
        format!(
            "The checkout has more than {max_submodules} submodules, which is the largest number that \
            Regatta allows, nested submodules included. The first submodule above the limit is \
            {path}."
        ),
        "Set the submodule to a commit with fewer nested submodules, then try again.",
    )
}

pub(crate) fn submodule_commit_missing(path: &str, commit: &CommitId) -> GitError {
    let short = &commit.as_str()[..10];
    git_error(
        "submodule_commit_missing",
        format!(
            "The attempt moved the submodule {path} to commit {short}, which exists neither in the \
             attempt's workspace nor in your copy of the submodule nor at the submodule's remote."
        ),
        "Fetch that commit into your copy of the submodule, or tell the agent to set the submodule \
        to a commit that exists, then try again.",
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
            "The attempt edited files in a submodule without committing the edits in the submodule, \
            so these files cannot land: {named}{more}."
        ),
        "Tell the agent to commit the changes inside the submodule or to undo them, then try \
        again. Regatta has stored the edited files.",
    )
}

pub(crate) fn wrong_permit(permitted: &str, requested: &str) -> GitError {
    git_error(
        "wrong_permit",
        format!(
            "Regatta did not move the trunk of project {requested}, because its permission to move a \
            trunk was issued for project {permitted}."
        ),
        "This is a bug in Regatta: report it with this message and the daemon's log.",
    )
}

pub(crate) fn case_collision(new: &str, other: &str) -> GitError {
    git_error(
        "same_names",
        format!(
            "The work adds {new}, which differs from {other} by case alone, but your file system \
            treats both names as one file (core.ignorecase). Rename the file with `regatta \
            revise`, or drop the work with `regatta drop`."
        ),
        "Tell the agent to rename the file with `regatta revise`, or drop the work with `regatta \
        drop`.",
    )
}

pub(crate) fn not_a_descendant(old: &CommitId, new: &CommitId) -> GitError {
    git_error(
        "not_a_descendant",
        format!(
            "The trunk was not moved, because it would lose commits: the new commit {new} does not \
            descend from the trunk's commit {old}."
        ),
        "This is a bug in Regatta: report it with this message and the daemon's log.",
    )
}

pub(crate) fn workspace_in_use(attempt: AttemptId, path: &Path) -> GitError {
    git_error(
        "busy",
        format!(
            "The stored work of attempt {attempt} cannot be deleted yet, because the attempt's \
            workspace {} still exists.",
            path.display()
        ),
        "Do nothing: Regatta removes the workspace and then the stored work by itself.",
    )
}

pub(crate) fn index_locked(lock: &Path) -> GitError {
    git_error(
        "busy",
        format!(
            "Regatta cannot update the checkout, because another git program has locked it with the \
            file {}.",
            lock.display()
        ),
        "Wait until the other git program has ended. If no git program is running, remove the lock \
        file. Regatta then continues by itself.",
    )
}

pub(crate) fn operation_in_progress(current: &str, path: &Path) -> GitError {
    git_error(
        "busy",
        format!(
            "Regatta cannot update the trunk's checkout at {}, because {current} is in progress there.",
            path.display()
        ),
        "Finish or abort that git operation in the checkout. Regatta then continues by itself.",
    )
}

pub(crate) fn being_rebased(trunk: &BranchName) -> GitError {
    git_error(
        "busy",
        format!("Somebody is rebasing the branch {trunk}, so Regatta cannot move it now."),
        "Finish or abort the rebase. Regatta then continues by itself.",
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
            "The trunk moved to commit {new}, but git could not update the files of the trunk's \
            checkout at {}: {}.",
            path.display(),
            first_error_line(printed)
        ),
        // The hint must not name `git checkout` or `git reset`, because these commands would
        // overwrite the person's other local changes.
        format!(
            "Save a copy of your changed file outside the checkout, then run `git read-tree -m -u \
            {old} {new}` in the checkout."
        ),
    )
}

pub(crate) fn cannot_replay_first_commit(commit: &CommitId) -> GitError {
    git_error(
        "first_commit",
        format!(
            "The commit {commit} is the trunk's first commit, so it cannot be undone: there is no \
            earlier state to go back to."
        ),
        "Undo a later commit instead.",
    )
}

pub(crate) fn still_conflicts(paths: &[String]) -> GitError {
    git_error(
        "unsettled",
        format!(
            "The work cannot be merged: these paths conflict even when the version of one side is \
            chosen for each of them: {}.",
            paths.join(", ")
        ),
        "Merge these paths by hand. On one side a path is a file, and on the other side a directory.",
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
    with_network_hint(
        remote,
        printed,
        format!("`git push {remote}` failed: {}", reason.trim()),
    )
}

pub(crate) fn fetch_failed(remote: &str, printed: &str) -> String {
    with_network_hint(
        remote,
        printed,
        format!("`git fetch {remote}` failed: {}", first_error_line(printed)),
    )
}

/// Texts that git and ssh print when they cannot reach a remote over the network.
const NETWORK_FAILURES: [&str; 9] = [
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Failed to connect",
    "Couldn't connect to server",
    "Connection refused",
    "Connection timed out",
    "Network is unreachable",
    "No route to host",
];

/// Appends the command that tests the connection if git could not reach the remote over the network.
fn with_network_hint(remote: &str, printed: &str, failure: String) -> String {
    let is_network_failure = NETWORK_FAILURES.iter().any(|text| printed.contains(text));
    if !is_network_failure {
        return failure;
    }
    format!(
        "the remote {remote} cannot be reached over the network ({failure}); Regatta tries again; \
         to test the connection: git ls-remote {remote}"
    )
}

pub(crate) fn fetch_needed(reason: &str) -> GitError {
    git_error(
        "not_fetched",
        format!("Regatta could not fetch from the remote: {reason}."),
        "Do nothing: Regatta tries again by itself. If the error does not go away, check the network \
        and your access to the remote.",
    )
}

pub(crate) fn unrelated_histories(remote: &str, trunk: &BranchName) -> GitError {
    git_error(
        "unrelated",
        format!(
            "The local trunk {trunk} and the trunk of the remote {remote} have no commit in common."
        ),
        "Check that `landing.push` names the right remote. If it does, merge the two trunks by \
        hand.",
    )
}

pub(crate) fn too_far_apart(commits: usize, max_commits: usize) -> GitError {
    git_error(
        "too_far_apart",
        format!(
            "The local trunk has {commits} commits that the remote does not have. Regatta rebases at \
            most {max_commits} commits by itself."
        ),
        "Rebase the trunk by hand: `git pull --rebase`.",
    )
}

pub(crate) fn transfer_interrupted(operation: &str, cause: &io::Error) -> GitError {
    git_error(
        "cut",
        format!("Git was started to {operation}, but the connection to the runner broke: {cause}."),
        "Do nothing: nothing was changed, and the runner can try again.",
    )
}

pub(crate) fn bad_push(reason: &str) -> GitError {
    git_error(
        "bad_request",
        format!("The server does not accept this push: {reason}."),
        "Use a runner of the same version as the server: compare `regatta --version` on both.",
    )
}

pub(crate) fn bad_protocol() -> GitError {
    git_error(
        "bad_request",
        "The header Git-Protocol of the HTTP request has a value that git does not send.".into(),
        "Use the program `git` to fetch from this address or to push to it.",
    )
}

pub(crate) fn bad_remote(reason: &str) -> GitError {
    git_error(
        "bad_remote",
        format!("The runner cannot use this server: {reason}."),
        "Start the runner with the address that `regatta up` prints and with a token from `regatta \
        token add NAME --scope runner`.",
    )
}

pub(crate) fn ca_missing(path: &Path) -> GitError {
    git_error(
        "bad_remote",
        format!(
            "The file {} does not exist. The runner needs it as the certificate to verify the server.",
            path.display()
        ),
        "Copy the server's certificate to that path, or start the runner without the option for the \
        certificate file.",
    )
}

pub(crate) fn not_a_mirror(path: &Path) -> GitError {
    git_error(
        "not_a_mirror",
        format!(
            "Regatta did not change the repository {}, because it is not a runner's copy of a project.",
            path.display()
        ),
        "This is a bug in Regatta: report it with this message and the daemon's log.",
    )
}

pub(crate) fn remote_trunk_missing(trunk: &BranchName, url: &str) -> GitError {
    git_error(
        "no_such_branch",
        format!("The repository {url} on the server has no branch {trunk}."),
        "Check on the server that the project's trunk still exists, then try again.",
    )
}

pub(crate) fn push_refused(attempt: AttemptId, line: &str) -> GitError {
    let reason = match line.rsplit_once('(') {
        Some((_, reason)) => reason.trim_end_matches(')'),
        None => "the server gave no reason",
    };
    git_error(
        "ref_refused",
        format!("The server did not accept the work of attempt {attempt}: {reason}."),
        "If the task was given to another agent, do nothing, because the work stays stored on this \
        machine. Otherwise check the server's log.",
    )
}

/// Turns the output of a git process that could not exchange data with another machine into an
/// error. The error code and the hint depend on the cause.
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
            "The server rejects the runner's token. Create a new token on the server: `regatta \
            token add NAME --scope runner`.",
        );
    }
    if has_any(&["not our ref"]) {
        return git_error(
            "no_such_commit",
            message,
            "The server no longer has the requested commit. Start the task again with `regatta \
            retry TASK`.",
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
            "The server cannot be reached. Check the server's address and certificate and the \
            network, then try again.",
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
        return git_error(
            "cut",
            message,
            "The connection broke during the transfer. Nothing was changed, so try again.",
        );
    }
    if has_any(&["The requested URL returned error"]) {
        return git_error(
            "unreachable",
            message,
            "The server answered with an error. Check the server's log, then try again.",
        );
    }
    git_failed(operation, printed)
}

/// Returns the line of git's output that names the error, cut to 300 characters.
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
    fn an_unreachable_remote_names_the_command_that_tests_the_connection() {
        let http = "fatal: unable to access 'http://example.invalid/a.git/': Could not resolve host: \
                    example.invalid\n";
        let ssh = "ssh: connect to host example.invalid port 22: Connection refused\n\
                   fatal: Could not read from remote repository.\n";
        for printed in [http, ssh] {
            for text in [
                push_failed("origin", "", printed),
                fetch_failed("origin", printed),
            ] {
                assert!(
                    text.starts_with("the remote origin cannot be reached over the network")
                        && text.ends_with("to test the connection: git ls-remote origin"),
                    "{text}"
                );
            }
        }
        let denied = push_failed(
            "origin",
            "!\tmain:main\t[remote rejected] (hook declined)",
            "",
        );
        assert!(denied.starts_with("`git push origin` failed: "), "{denied}");
    }

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
