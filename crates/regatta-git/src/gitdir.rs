//! Creates the disposable `.git` directory of an agent's working tree.
//!
//! This module writes the directory file by file and does not run `git init`. So the directory
//! contains nothing from a template, from an earlier owner or from the machine's configuration
//! (invariant S5), and creating a workspace needs two processes fewer. As soon as an agent gets the
//! working tree, the agent may change its `.git`, so Regatta never trusts this `.git` again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use regatta_core::ids::{BranchName, CommitId};
use regatta_engine::ports::git::GitError;

use crate::{disk, errors};

/// The branch or commit that HEAD of a new git directory names.
pub(crate) enum HeadTarget<'a> {
    /// HEAD names the workspace's own branch. A branch with the trunk's name exists too, so that
    /// the agent can run `git diff main`.
    Branch {
        name: &'a BranchName,
        trunk: &'a BranchName,
    },
    /// HEAD names a commit and no branch (a "detached HEAD").
    Detached,
}

/// Creates the git directory `git_dir` with HEAD at `commit`. Git reads the objects from the vault,
/// Regatta's own repository.
pub(crate) fn make_git_dir(
    git_dir: &Path,
    vault: &Path,
    commit: &CommitId,
    head: &HeadTarget<'_>,
    sparse: Option<&SparseDirs>,
) -> Result<(), GitError> {
    for folder in [
        "info",
        "objects/info",
        "objects/pack",
        "refs/heads",
        "refs/tags",
    ] {
        disk::make_dirs(&git_dir.join(folder))?;
    }
    let write = |name: &str, bytes: &[u8]| disk::write_unsynced(&git_dir.join(name), bytes);
    let mut alternates = vault.join("objects").as_os_str().as_bytes().to_vec();
    alternates.push(b'\n');
    write("objects/info/alternates", &alternates)?;
    write("info/exclude", b".regatta/\n")?;
    let is_sha256 = commit.as_str().len() == 64;
    let mut config = format!(
        "[core]\n\trepositoryformatversion = {}\n\tfilemode = true\n\tbare = \
        false\n\tlogallrefupdates = true\n",
        u8::from(is_sha256)
    );
    if let Some(sparse) = sparse {
        config += "\tsparseCheckout = true\n\tsparseCheckoutCone = true\n";
        write("info/sparse-checkout", sparse.cone_patterns().as_bytes())?;
    }
    if is_sha256 {
        config += "[extensions]\n\tobjectFormat = sha256\n";
    }
    write("config", (config + WORKSPACE_CONFIG).as_bytes())?;
    let shallow = vault.join("shallow");
    if shallow.exists() {
        fs::copy(&shallow, git_dir.join("shallow"))
            .map_err(|cause| errors::io_error("copy the file", &shallow, &cause))?;
    }
    match head {
        HeadTarget::Detached => write("HEAD", format!("{commit}\n").as_bytes()),
        HeadTarget::Branch { name, trunk } => {
            write("HEAD", format!("ref: refs/heads/{name}\n").as_bytes())?;
            let is_inside =
                |a: &BranchName, b: &BranchName| a.as_str().starts_with(&format!("{b}/"));
            for branch in [*name, *trunk] {
                // Git cannot have a branch `a` together with a branch `a/b`. If the names of the
                // trunk and of the workspace's branch collide in this way, the trunk's branch is
                // not created.
                if branch == *name || !(is_inside(name, trunk) || is_inside(trunk, name)) {
                    let path = git_dir.join("refs/heads").join(branch.as_str());
                    path.parent().map_or(Ok(()), disk::make_dirs)?;
                    disk::write_unsynced(&path, format!("{commit}\n").as_bytes())?;
                }
            }
            Ok(())
        }
    }
}

/// The git configuration of a new workspace, so that the agent can run `git commit` in it. The
/// agent may change this configuration.
const WORKSPACE_CONFIG: &str = "[user]\n\tname = Regatta agent\n\temail = \
    agent@regatta.invalid\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[commit]\n\tgpgSign = \
    false\n";

/// The directories of a sparse checkout. Git checks out all files in and below these directories,
/// and also the files that lie directly in a directory above one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SparseDirs(Vec<String>);

impl SparseDirs {
    /// Parses the setting `workspace.sparse`. Returns `None` if the setting is empty or includes
    /// the whole repository.
    pub(crate) fn parse(setting: &[String]) -> Result<Option<SparseDirs>, GitError> {
        let mut dirs = Vec::new();
        for text in setting {
            let refuse = |why| Err(errors::bad_sparse(text, why));
            if text.starts_with('/') {
                return refuse("the path of a directory must be relative to the repository's top");
            }
            let dir = text.strip_suffix("/**").unwrap_or(text);
            if dir.contains(['*', '?', '\0', '\n', '\r']) {
                return refuse("each entry must name one directory, without wildcards");
            }
            let names: Vec<&str> = dir
                .split('/')
                .filter(|name| !name.is_empty() && *name != ".")
                .collect();
            if names
                .iter()
                .any(|name| *name == ".." || name.eq_ignore_ascii_case(".git"))
            {
                return refuse("the path of a directory must not contain `..` or `.git`");
            }
            if names.is_empty() {
                return Ok(None); // the top directory means everything
            }
            dirs.push(names.join("/"));
        }
        dirs.sort();
        dirs.dedup();
        let all_dirs = dirs.clone();
        dirs.retain(|dir| {
            !all_dirs
                .iter()
                .any(|other| dir.starts_with(&format!("{other}/")))
        });
        Ok((!dirs.is_empty()).then_some(SparseDirs(dirs)))
    }

    /// Returns the directories in the format of git's cone mode for sparse checkouts.
    fn cone_patterns(&self) -> String {
        let mut lines: BTreeMap<&str, bool> = BTreeMap::new();
        for dir in &self.0 {
            lines.extend(
                dir.match_indices('/')
                    .map(|(slash, _)| (&dir[..slash], false)),
            );
            lines.insert(dir, true);
        }
        let mut text = "/*\n!/*/\n".to_owned();
        for (dir, is_whole) in lines {
            let dir = dir.replace('\\', "\\\\").replace('[', "\\[");
            text += &if is_whole {
                format!("/{dir}/\n")
            } else {
                format!("/{dir}/\n!/{dir}/*/\n")
            };
        }
        text
    }

    /// Returns whether a tracked file is checked out: the file is in or below one of the
    /// directories, or directly in a directory above one of them.
    pub(crate) fn includes(&self, path: &[u8]) -> bool {
        let parent = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(&[][..], |slash| &path[..slash]);
        let contains = |outer: &[u8], inner: &[u8]| {
            inner
                .strip_prefix(outer)
                .is_some_and(|inner| matches!(inner, [] | [b'/', ..]))
        };
        parent.is_empty()
            || self
                .0
                .iter()
                .any(|dir| contains(dir.as_bytes(), parent) || contains(parent, dir.as_bytes()))
    }

    /// Returns a text that is the same for two sparse checkouts exactly if both contain the same
    /// directories.
    pub(crate) fn fingerprint(sparse: Option<&SparseDirs>) -> String {
        sparse.map_or(String::new(), |dirs| dirs.0.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sparse_dirs(dirs: &[&str]) -> Result<Option<SparseDirs>, GitError> {
        SparseDirs::parse(&dirs.iter().map(|dir| (*dir).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn sparse_directories_are_normalised() {
        assert_eq!(sparse_dirs(&[]).unwrap(), None);
        assert_eq!(sparse_dirs(&["src", "."]).unwrap(), None);
        assert_eq!(
            sparse_dirs(&["./b//c/", "b/c/d", "a/**"]).unwrap(),
            Some(SparseDirs(vec!["a".into(), "b/c".into()]))
        );
        assert_eq!(
            sparse_dirs(&["a/b/c"]).unwrap().unwrap().cone_patterns(),
            "/*\n!/*/\n/a/\n!/a/*/\n/a/b/\n!/a/b/*/\n/a/b/c/\n"
        );
        assert_eq!(
            sparse_dirs(&["app/[id]"]).unwrap().unwrap().cone_patterns(),
            "/*\n!/*/\n/app/\n!/app/*/\n/app/\\[id]/\n"
        );
    }

    #[test]
    fn files_in_parent_directories_are_checked_out_too() {
        let sparse = sparse_dirs(&["a/b"]).unwrap().unwrap();
        for (path, is_included) in [
            ("x", true),
            ("a/x", true),
            ("a/b/x", true),
            ("a/b/c/x", true),
            ("a/bc/x", false),
            ("b/x", false),
        ] {
            assert_eq!(sparse.includes(path.as_bytes()), is_included, "{path}");
        }
    }

    #[test]
    fn s6_a_sparse_directory_outside_the_repository_is_refused() {
        for bad in [
            "/etc",
            "../x",
            "a/../../b",
            ".git",
            "a/.GIT/x",
            "a/*",
            "a\nb",
        ] {
            assert_eq!(sparse_dirs(&[bad]).unwrap_err().code, "bad_sparse", "{bad}");
        }
    }
}
