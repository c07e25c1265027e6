//! The landing guard finds changes that a person must see before they are merged into the trunk,
//! and changes that are never merged (Q13).
//!
//! A file on the trunk can run code on a person's machine although the person only does something
//! harmless: opening the folder in an editor, starting an agent, entering the directory,
//! committing. The task's manifest (its list of permitted files) is no protection, because an agent
//! may have written it. So the rules here look only at the change itself.
//!
//! Paths are compared after folding, which removes differences of case and ignored characters. Some
//! file systems ignore case, invisible characters or trailing dots. On such a file system, a
//! program that asks for `.claude/settings.json` opens `.Claude/Settings.json`.
//!
//! Not here: the check that an actor may approve a guarded change. See `operator.rs`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::pattern::PathPattern;
use crate::task::Submission;

/// The kind of a path in a git tree: plain file, executable, link and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    Plain,
    Executable,
    Symlink,
    Submodule,
    /// A folder whose contents look like a git directory, so git would use it as a repository with
    /// its own configuration.
    GitDirectory,
}

/// A changed path that is not a plain file before the change, after it, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpecialFile {
    pub path: String,
    /// Kind of the path before the change; `None` if the path did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<FileKind>,
    /// Kind of the path after the change; `None` if the change removes the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FileKind>,
    /// Target of a symbolic link, or commit of a submodule: the value after the change, or the
    /// value before the change if the path was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Set if a submodule moves to a commit that may be missing on the submodule's remote.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpublished: bool,
}

impl SpecialFile {
    /// Returns the change with before and after swapped, for a landing that undoes the change.
    pub(super) fn reversed(&self) -> SpecialFile {
        SpecialFile {
            before: self.after,
            after: self.before,
            unpublished: false,
            ..self.clone()
        }
    }
}

/// Names of guarded files of one kind. Only a person may approve a change to such files. All names
/// are in folded form (see [`fold_name`]).
struct GuardedNames {
    /// Description of these files, which is shown to people in the sentence "it changes PATH (…)".
    description: &'static str,
    /// A file or folder is guarded if it has exactly one of these names, in any folder of the
    /// project.
    anywhere: &'static [&'static str],
    /// A file is guarded if its name begins with one of these texts, in any folder of the project.
    prefixes: &'static [&'static str],
    /// A file is guarded if its name ends with one of these texts, such as an extension, in any
    /// folder of the project.
    suffixes: &'static [&'static str],
    /// Guarded files or folders, as paths relative to the top of the project.
    at_top: &'static [&'static str],
}

const GUARDED_NAMES: &[GuardedNames] = &[
    GuardedNames {
        description: "agent settings or instructions",
        anywhere: &[
            ".agent",
            ".agents",
            ".aiassistant",
            ".amazonq",
            ".amp",
            ".augment",
            ".augment-guidelines",
            ".claude",
            ".claude-plugin",
            ".claude.json",
            ".clinerules",
            ".codebuddy",
            ".codex",
            ".continue",
            ".copilot",
            ".crush",
            ".crush.json",
            ".cursor",
            ".cursorrules",
            ".devin",
            ".factory",
            ".gemini",
            ".goose",
            ".goosehints",
            ".iflow",
            ".junie",
            ".kilocode",
            ".kilocodemodes",
            ".kiro",
            ".mcp.json",
            ".openhands",
            ".opencode",
            ".qoder",
            ".qwen",
            ".replit",
            ".roo",
            ".roomodes",
            ".rovodev",
            ".rules",
            ".serena",
            ".tabnine",
            ".trae",
            ".windsurf",
            ".windsurfrules",
            "agent.md",
            "agents.md",
            "agents.override.md",
            "claude.local.md",
            "claude.md",
            "codebuddy.md",
            "copilot-instructions.md",
            "crush.json",
            "crush.md",
            "gemini.md",
            "iflow.md",
            "mcp.json",
            "opencode.json",
            "opencode.jsonc",
            "qwen.md",
            "skill.md",
            "warp.md",
        ],
        prefixes: &[".aider", ".roorules", ".continuerc"],
        suffixes: &[".instructions.md", ".prompt.md", ".chatmode.md"],
        at_top: &[],
    },
    GuardedNames {
        description: "editor tasks or settings",
        anywhere: &[
            ".devcontainer",
            ".devcontainer.json",
            ".dir-locals-2.el",
            ".dir-locals.el",
            ".exrc",
            ".fleet",
            ".gitpod.yml",
            ".helix",
            ".idea",
            ".lvimrc",
            ".nvim.lua",
            ".nvimrc",
            ".run",
            ".theia",
            ".vimrc",
            ".vs",
            ".vscode",
            ".zed",
        ],
        prefixes: &[],
        suffixes: &[".code-workspace", ".run.xml", ".sublime-project"],
        at_top: &[],
    },
    GuardedNames {
        description: "environment or toolchain settings",
        anywhere: &[
            ".bazelrc",
            ".bundle",
            ".bunfig.toml",
            ".cargo",
            ".condarc",
            ".envrc",
            ".gdbinit",
            ".irbrc",
            ".lldbinit",
            ".mise",
            ".mise.local.toml",
            ".mise.toml",
            ".mvn",
            ".npmrc",
            ".pnpmfile.cjs",
            ".pnpmfile.js",
            ".pryrc",
            ".pypirc",
            ".tool-versions",
            ".yarn",
            ".yarnrc",
            ".yarnrc.yml",
            "bunfig.toml",
            "mise.local.toml",
            "mise.toml",
            "pip.conf",
            "pip.ini",
            "rust-toolchain",
            "rust-toolchain.toml",
            "sitecustomize.py",
            "usercustomize.py",
            "uv.toml",
        ],
        prefixes: &[],
        suffixes: &[],
        at_top: &["gradle/wrapper", "tools/bazel"],
    },
    GuardedNames {
        description: "git settings or hooks",
        anywhere: &[
            ".git-hooks",
            ".gitattributes",
            ".gitconfig",
            ".githooks",
            ".gitmodules",
            ".hooks",
            ".husky",
            ".lefthook",
            ".lfsconfig",
            ".overcommit.yml",
            "git-hooks",
            "githooks",
            // The following names are names of git hooks. They are guarded in any folder, because
            // the setting `core.hooksPath` can name any folder.
            "applypatch-msg",
            "commit-msg",
            "fsmonitor-watchman",
            "post-applypatch",
            "post-checkout",
            "post-commit",
            "post-index-change",
            "post-merge",
            "post-receive",
            "post-rewrite",
            "post-update",
            "pre-applypatch",
            "pre-auto-gc",
            "pre-commit",
            "pre-merge-commit",
            "pre-push",
            "pre-rebase",
            "pre-receive",
            "prepare-commit-msg",
            "push-to-checkout",
            "reference-transaction",
            "sendemail-validate",
            // The following names are parts of a git directory. Each name is guarded, because
            // several harmless changes could together create a git directory.
            "commondir",
            "head",
        ],
        prefixes: &[
            ".huskyrc",
            ".lefthook",
            ".lintstagedrc",
            ".pre-commit-",
            ".simple-git-hooks.",
            "lefthook",
            "lint-staged.config.",
            "simple-git-hooks.",
        ],
        suffixes: &[],
        at_top: &[],
    },
    GuardedNames {
        description: "continuous integration",
        anywhere: &["codeowners", "jenkinsfile"],
        prefixes: &[],
        suffixes: &[],
        at_top: &[
            ".appveyor.yml",
            ".azure-pipelines",
            ".build.yml",
            ".buildkite",
            ".builds",
            ".ci",
            ".circleci",
            ".cirrus.star",
            ".cirrus.yml",
            ".drone.yml",
            ".forgejo",
            ".gitea",
            ".github",
            ".gitlab",
            ".gitlab-ci.yml",
            ".semaphore",
            ".teamcity",
            ".tekton",
            ".travis.yml",
            ".woodpecker",
            ".woodpecker.yaml",
            ".woodpecker.yml",
            ".zuul.yaml",
            "appveyor.yml",
            "azure-pipelines.yml",
            "bitbucket-pipelines.yml",
            "cloudbuild.yaml",
        ],
    },
    GuardedNames {
        description: "Regatta's own settings",
        anywhere: &["regatta.toml"],
        prefixes: &[],
        suffixes: &[],
        at_top: &[".regatta"],
    },
];

/// Returns whether some file systems ignore this character when they compare names.
fn is_ignorable(letter: char) -> bool {
    matches!(letter, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

/// Folds one component of a path: two names with the same folded form can be the same file on a
/// file system that ignores case, invisible characters or trailing dots.
pub fn fold_name(name: &str) -> String {
    if name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    {
        return name.to_ascii_lowercase();
    }
    let letters = name
        .chars()
        .filter(|letter| !is_ignorable(*letter))
        .flat_map(char::to_lowercase);
    // The long s (U+017F) is replaced because it stays itself in lower case, but its upper case is
    // S.
    let folded: String = letters
        .map(|letter| if letter == '\u{17f}' { 's' } else { letter })
        .collect();
    // On Windows a colon starts the name of a stream of the same file, and dots and spaces at the
    // end of a name are ignored. Remove these parts, because the name opens the same file without
    // them.
    let folded = folded.split(':').next().unwrap_or_default();
    folded.trim_end_matches([' ', '.']).to_owned()
}

/// Folds each component of a path; see [`fold_name`].
fn fold_path(path: &str) -> String {
    path.split(['/', '\\'])
        .map(fold_name)
        .collect::<Vec<_>>()
        .join("/")
}

/// Returns the description of the group of guarded files to which this path belongs, or `None` if
/// the path is not guarded.
fn guarded_kind(path: &str) -> Option<&'static str> {
    let folded = fold_path(path);
    let name = folded.rsplit('/').next().unwrap_or_default();
    let is_below = |top: &str| {
        folded
            .strip_prefix(top)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let guards = |names: &&GuardedNames| {
        folded.split('/').any(|part| names.anywhere.contains(&part))
            || names.prefixes.iter().any(|prefix| name.starts_with(prefix))
            || names.suffixes.iter().any(|suffix| name.ends_with(suffix))
            || names.at_top.iter().any(|top| is_below(top))
    };
    GUARDED_NAMES
        .iter()
        .find(guards)
        .map(|names| names.description)
}

/// Returns whether one of the project's own `protected` patterns matches this path, ignoring case.
fn is_protected(protected: &[PathPattern], path: &str) -> bool {
    let folded = fold_path(path);
    let covers = |pattern: &PathPattern| {
        let any_case = PathPattern::new(&pattern.as_str().to_lowercase());
        pattern.matches(path) || any_case.is_ok_and(|pattern| pattern.matches(&folded))
    };
    protected.iter().any(covers)
}

/// Returns the forbidden place to which a symbolic link leads, such as outside the repository. Only
/// the text of the link is examined.
fn forbidden_target(path: &str, target: &str) -> Option<&'static str> {
    const OUTSIDE_REPOSITORY: &str = "outside of the repository";
    let target = target.replace('\\', "/");
    if target.starts_with('/') || target.get(1..2) == Some(":") {
        return Some(OUTSIDE_REPOSITORY);
    }
    let mut depth = path.matches('/').count();
    let mut is_below = false;
    for part in target.split('/') {
        match part {
            "" | "." => {}
            // The name before ".." may itself be a link, so it is unknown which folder ".." leads
            // to. The target therefore counts as outside of the repository.
            ".." if is_below || depth == 0 => return Some(OUTSIDE_REPOSITORY),
            ".." => depth -= 1,
            name if matches!(fold_name(name).as_str(), ".git" | "git~1") => {
                return Some("into a git directory");
            }
            _ => is_below = true,
        }
    }
    None
}

/// Returns the reason why a change must never be merged into the trunk, not even with a person's
/// approval. Returns `None` if there is no such reason.
pub fn never_lands_reason(changed: &[String], special: &[SpecialFile]) -> Option<String> {
    special.iter().find_map(|file| {
        let SpecialFile {
            path,
            before,
            after,
            target,
            ..
        } = file;
        match (before, after) {
            (_, Some(FileKind::Symlink)) => {
                let target = target.as_deref().unwrap_or_default();
                let place = forbidden_target(path, target)?;
                Some(format!(
                    "the symbolic link {path} points {place}, to {target}; make it a file, or \
                    point it to another path inside the repository"
                ))
            }
            (Some(FileKind::GitDirectory), Some(FileKind::GitDirectory)) => None,
            (_, Some(FileKind::GitDirectory)) => Some(format!(
                "{} is a git directory (it has HEAD, objects and refs), so git would run commands \
                 from the configuration in it; remove it, or let the tests create it",
                if path.is_empty() {
                    "the top folder"
                } else {
                    path
                }
            )),
            (Some(FileKind::Submodule), after) if *after != Some(FileKind::Submodule) => {
                let inside = format!("{path}/");
                let replaced =
                    after.is_some() || changed.iter().any(|other| other.starts_with(&inside));
                replaced.then(|| {
                    format!(
                        "it puts files in the place of the submodule {path}; change the \
                        submodule's own repository instead"
                    )
                })
            }
            _ => None,
        }
    })
}

/// Describes this change for people, if the file's kind (such as executable or link) means that a
/// person must approve it.
fn describe_special(file: &SpecialFile) -> Option<String> {
    let SpecialFile {
        path,
        before,
        after,
        target,
        unpublished,
    } = file;
    let target = target.as_deref().unwrap_or_default();
    Some(match (before, after) {
        (_, Some(FileKind::Symlink)) => format!("{path} (a symbolic link to {target})"),
        (_, Some(FileKind::Submodule)) if *unpublished => {
            let commit = target.get(..10).unwrap_or(target);
            format!(
                "{path} (a submodule, moved to {commit}; this commit may be missing on the \
                 submodule's remote, and nobody else can check it out until you push it: git -C \
                 {path} push origin \
                 {commit}:refs/heads/NAME)"
            )
        }
        (Some(FileKind::Submodule), None) => format!("{path} (a submodule, which is removed)"),
        (Some(FileKind::Submodule), _) | (_, Some(FileKind::Submodule)) => {
            format!("{path} (a submodule)")
        }
        (Some(FileKind::GitDirectory), _) | (_, Some(FileKind::GitDirectory)) => {
            format!("{path} (a git directory)")
        }
        (None, Some(FileKind::Executable)) => format!("{path} (a new executable file)"),
        (Some(FileKind::Plain), Some(FileKind::Executable)) => {
            format!("{path} (which becomes executable)")
        }
        (Some(FileKind::Executable), Some(FileKind::Plain)) => {
            format!("{path} (which is no longer executable)")
        }
        (Some(FileKind::Symlink), Some(_)) => format!("{path} (which was a symbolic link)"),
        _ => return None,
    })
}

/// Returns the parts of a change that only a person may approve, each described with its reason.
pub(super) fn guarded_changes(protected: &[PathPattern], work: &Submission) -> Vec<String> {
    let mut special: BTreeMap<&str, &SpecialFile> = work
        .special
        .iter()
        .map(|file| (file.path.as_str(), file))
        .collect();
    let mut found: Vec<String> = Vec::new();
    for path in &work.changed {
        if let Some(description) = special.remove(path.as_str()).and_then(describe_special) {
            found.push(description);
        } else if let Some(kind) = guarded_kind(path) {
            found.push(format!("{path} ({kind})"));
        } else if is_protected(protected, path) {
            found.push(format!("{path} (protected by this project)"));
        }
    }
    // Add the special files that are missing in the list of changed paths, because that list
    // contains no folders, such as git directories.
    found.extend(special.into_values().filter_map(describe_special));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn special(
        path: &str,
        before: Option<FileKind>,
        after: Option<FileKind>,
        target: &str,
    ) -> SpecialFile {
        let target = Some(target.to_owned()).filter(|target| !target.is_empty());
        SpecialFile {
            path: path.into(),
            before,
            after,
            target,
            unpublished: false,
        }
    }

    #[test]
    fn q13_an_unpublished_submodule_commit_is_reported_with_the_command_to_push_it() {
        let submodule = Some(FileKind::Submodule);
        let moved = special("lib", submodule, submodule, "1a2b3c4d5e6f");
        assert_eq!(describe_special(&moved).unwrap(), "lib (a submodule)");
        let unpublished = SpecialFile {
            unpublished: true,
            ..moved
        };
        let reason = describe_special(&unpublished).unwrap();
        assert!(
            reason.contains("git -C lib push origin 1a2b3c4d5e:refs/heads/NAME"),
            "{reason}"
        );
        assert_eq!(
            describe_special(&unpublished.reversed()).unwrap(),
            "lib (a submodule)"
        );
    }

    #[test]
    fn q13_settings_that_run_code_are_guarded_at_any_depth_and_in_any_case() {
        for path in [
            ".claude/settings.json",
            ".claude/hooks/start.sh",
            "web/.claude/commands/x.md",
            ".Claude/Settings.json",
            ".CLAUDE/settings.json",
            ".cl\u{200c}aude/settings.json",
            ".claude./settings.json",
            ".claude /settings.json",
            ".claude::$INDEX_ALLOCATION/settings.json",
            ".gemini/settings.json",
            ".codex/config.toml",
            ".opencode/agent/x.md",
            "opencode.json",
            ".mcp.json",
            "packages/a/.mcp.json",
            "AGENTS.md",
            "docs/agents.md",
            "CLAUDE.md",
            "src/CLAUDE.local.md",
            "claude.MD",
            "GEMINI.md",
            ".cursor/rules/x.mdc",
            ".cursorrules",
            ".github/copilot-instructions.md",
            ".windsurfrules",
            ".aider.conf.yml",
            ".vscode/tasks.json",
            ".vscode/settings.json",
            ".v\u{17f}code/tasks.json",
            "sub/.vscode/launch.json",
            ".idea/runConfigurations/x.xml",
            "shop.code-workspace",
            ".devcontainer/devcontainer.json",
            ".envrc",
            "sub/.envrc",
            ".cargo/config.toml",
            "crates/a/.cargo/config",
            "rust-toolchain.toml",
            ".npmrc",
            ".yarnrc.yml",
            ".yarn/releases/yarn.cjs",
            ".mvn/jvm.config",
            "gradle/wrapper/gradle-wrapper.properties",
            ".pre-commit-config.yaml",
            "lefthook.yml",
            ".husky/pre-commit",
            ".githooks/x",
            "scripts/hooks/pre-push",
            "docs/.gitattributes",
            ".gitmodules",
            ".github/workflows/ci.yml",
            ".GitHub/workflows/ci.yml",
            ".gitlab-ci.yml",
            "Jenkinsfile",
            "regatta.toml",
            ".regatta/x",
            "b/HEAD",
            "b/commondir",
        ] {
            assert!(guarded_kind(path).is_some(), "{path}");
        }
        for path in [
            "src/main.rs",
            "src/hooks/use_cart.ts",
            "docs/github/ci.md",
            "claude.rs",
            "src/agents/mod.rs",
            "vscode/tasks.json",
            "cargo/config.toml",
            "head.rs",
            "src/update.rs",
            "README.md",
            "gitlab-ci.yml.md",
        ] {
            assert_eq!(guarded_kind(path), None, "{path}");
        }
    }

    #[test]
    fn q13_a_projects_protected_patterns_match_in_any_case() {
        let protected = [PathPattern::new("Infra/**").unwrap()];
        for (path, expected) in [
            ("Infra/a.tf", true),
            ("infra/a.tf", true),
            ("INFRA/x/y", true),
            ("src/infra", false),
        ] {
            assert_eq!(is_protected(&protected, path), expected, "{path}");
        }
    }

    #[test]
    fn q13_links_that_leave_the_tree_never_land() {
        let outside = [
            ("src", "/etc"),
            ("a/b", "/etc/passwd"),
            ("a", ".."),
            ("a/b", "../.."),
            ("a/b/c", "../../../x"),
            ("a", "./../x"),
            ("a/b/x", "s/../foo"),
            ("a", "C:\\Windows"),
            ("a", "..\\x"),
            ("a", "\\\\host\\share"),
            ("a", ".git/config"),
            ("a/b", "../.GIT/hooks"),
            ("a", "x/.git./hooks"),
        ];
        for (path, target) in outside {
            let link = special(path, Some(FileKind::Plain), Some(FileKind::Symlink), target);
            assert!(
                never_lands_reason(&[], &[link]).is_some(),
                "{path} -> {target}"
            );
        }
        for (path, target) in [
            ("a", "b"),
            ("a/b", "../c"),
            ("a/b/c", "../../d/e"),
            ("a", "./b"),
            ("a", ".github"),
        ] {
            let link = special(path, None, Some(FileKind::Symlink), target);
            assert_eq!(never_lands_reason(&[], &[link]), None, "{path} -> {target}");
        }
    }

    #[test]
    fn q13_a_change_of_a_files_kind_is_judged_by_both_kinds() {
        use FileKind::{Executable, GitDirectory, Plain, Submodule, Symlink};
        // Kind before, kind after, must never land, needs a person.
        let cases = [
            (None, Some(Executable), false, true),
            (Some(Plain), Some(Executable), false, true),
            (Some(Executable), Some(Plain), false, true),
            (Some(Executable), None, false, false),
            (Some(Symlink), None, false, false),
            (Some(Symlink), Some(Plain), false, true),
            (None, Some(Submodule), false, true),
            (Some(Submodule), Some(Submodule), false, true),
            (Some(Submodule), None, false, true),
            (Some(Submodule), Some(Plain), true, true),
            (Some(Plain), Some(Submodule), false, true),
            (None, Some(GitDirectory), true, true),
            (Some(GitDirectory), Some(GitDirectory), false, true),
        ];
        for (before, after, never_lands, needs_person) in cases {
            let file = special("x", before, after, "");
            let found = (
                never_lands_reason(&[], std::slice::from_ref(&file)).is_some(),
                describe_special(&file).is_some(),
            );
            assert_eq!(
                found,
                (never_lands, needs_person),
                "{before:?} -> {after:?}"
            );
        }
        let gone = special("vendor/sub", Some(Submodule), None, "");
        assert!(
            never_lands_reason(&["vendor/sub/a.txt".into()], std::slice::from_ref(&gone)).is_some()
        );
        assert_eq!(never_lands_reason(&["vendor/subtle".into()], &[gone]), None);
    }
}
