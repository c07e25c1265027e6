//! S5: tests of traps, which are commands that an agent can configure in its workspace, or that a
//! repository can contain. Each trap leaves a mark when it runs.

use std::fs;
use std::path::{Path, PathBuf};

use regatta_engine::ports::git::{CommitRange, TrialMerge, TrunkMoveResult};

use crate::world::*;

/// The directory in which every triggered trap leaves its name.
struct Traps {
    marks_dir: PathBuf,
}

impl Traps {
    fn new(world: &World) -> Traps {
        let marks_dir = world.home.path().join("marks");
        fs::create_dir_all(&marks_dir).unwrap();
        Traps { marks_dir }
    }

    /// Returns a command that leaves a mark and then behaves normally.
    fn script(&self, name: &str, command: &str) -> String {
        let path = self.marks_dir.with_file_name(format!("trap-{name}"));
        write(
            &path,
            format!(
                "#!/bin/sh\n: > '{}'\n{command}\n",
                self.marks_dir.join(name).display()
            ),
        );
        make_executable(&path);
        path.to_str().unwrap().to_owned()
    }

    fn triggered(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.marks_dir)
            .unwrap()
            .map(|result| result.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Sets every trap that a configuration can contain.
    fn set_all_in(&self, dir: &Path) {
        let set = |key: &str, value: &str| drop(git(dir, &["config", key, value]));
        for (key, name, then) in [
            ("core.fsmonitor", "fsmonitor", "printf 'token\\0/\\0'"),
            ("filter.evil.clean", "clean", "cat"),
            ("filter.evil.smudge", "smudge", "cat"),
            ("filter.proc.process", "process", "exit 1"),
            ("diff.evil.textconv", "textconv", "cat \"$1\""),
            ("diff.evil.command", "external-diff", "true"),
            ("diff.external", "external-diff-all", "true"),
            ("merge.evil.driver", "merge-driver", "true"),
            ("core.sshCommand", "ssh", "exit 1"),
            ("credential.helper", "credential", "true"),
            ("core.askPass", "askpass", "true"),
            ("core.pager", "pager", "cat"),
            ("core.editor", "editor", "true"),
            ("sequence.editor", "sequence-editor", "true"),
            ("gpg.program", "gpg", "exit 1"),
            ("core.alternateRefsCommand", "alternate-refs", "true"),
            (
                "uploadpack.packObjectsHook",
                "pack-objects-hook",
                "exec \"$@\"",
            ),
            ("core.gitProxy", "proxy", "exit 1"),
        ] {
            set(key, &self.script(name, then));
        }
        for alias in [
            "status",
            "fetch",
            "diff-tree",
            "merge-tree",
            "update-ref",
            "cat-file",
            "hash-object",
            "visit",
        ] {
            set(
                &format!("alias.{alias}"),
                &format!("!{}", self.script("alias", "true")),
            );
        }
        set(
            "submodule.lib.update",
            &format!("!{}", self.script("submodule-update", "true")),
        );
        set("commit.gpgSign", "true");
        set("log.showSignature", "true");
        set("filter.evil.required", "true");
        let hooks = self.marks_dir.with_file_name("hooks");
        fs::create_dir_all(&hooks).unwrap();
        for hook in [
            "pre-commit",
            "post-commit",
            "post-checkout",
            "post-index-change",
            "reference-transaction",
            "pre-push",
            "post-merge",
            "pre-receive",
            "update",
            "post-receive",
            "pre-auto-gc",
            "post-rewrite",
        ] {
            let script = self.script(&format!("hook-{hook}"), "true");
            for dir_path in [&hooks, &dir.join(".git/hooks")] {
                fs::create_dir_all(dir_path).unwrap();
                let _ = fs::remove_file(dir_path.join(hook));
                std::os::unix::fs::symlink(&script, dir_path.join(hook)).unwrap();
            }
        }
        set("core.hooksPath", hooks.to_str().unwrap());
    }
}

const RULES: &str =
    "*.txt filter=evil diff=evil merge=evil\n*.rs filter=proc diff=evil merge=evil\n";

/// Runs everything that the queue asks of git, for one workspace.
fn every_operation(world: &World) {
    world.git.inspect(world.user()).unwrap();
    let old = world.tip();
    world.prepare(A1);
    let capture = world.capture(A1);
    world.uncaptured_paths(A1);
    for style in [CommitStyle::Rebase, CommitStyle::Merge, CommitStyle::Squash] {
        world
            .git
            .trial_merge(&world.repo, &old, &change_of(&capture.commit, "x"), style)
            .unwrap();
    }
    let TrialMerge::Clean(new) = world.trial(&capture.commit) else {
        panic!("the change must merge")
    };
    let range = CommitRange {
        base: &old,
        commit: &new,
    };
    world.git.diff(&world.repo, range).unwrap();
    world.git.file_at(&world.repo, &new, "a.txt").unwrap();
    world.git.stage(&world.repo, SLOT, &new).unwrap();
    world.git.stage(&world.repo, SLOT, &old).unwrap();
    world
        .git
        .revert(&world.repo, &new, &change_of(&new, "undo"))
        .unwrap();
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    world.uncaptured_paths(A1);
    world.git.unstage(&world.repo, SLOT).unwrap();
}

#[test]
fn s5_no_trap_in_a_workspace_runs() {
    let world = World::new();
    let traps = Traps::new(&world);
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "agent's\n");
    write(workspace.join("b.txt"), "agent's\n");
    // Git reads an unchanged file only when it is as young as the index.
    write(workspace.join("c.rs"), "agent's\n");
    traps.set_all_in(&workspace);
    // Plain git triggers the traps, so they work.
    let output = try_git(&workspace, ["commit", "--allow-empty", "-m", "x"]);
    assert!(!output.status.success(), "{output:?}");
    git(
        &workspace,
        &[
            "-c",
            "commit.gpgSign=false",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "x",
        ],
    );
    write(workspace.join(".gitattributes"), RULES);
    try_git(&workspace, ["add", "-A"]);
    try_git(&workspace, ["status"]);
    try_git(&workspace, ["-c", "filter.proc.process=", "diff", "HEAD"]);
    try_git(&workspace, ["visit"]);
    try_git(&workspace, ["fetch", "ssh://localhost/x"]);
    let sprung = traps.triggered();
    for name in [
        "alias",
        "clean",
        "fsmonitor",
        "gpg",
        "hook-pre-commit",
        "process",
        "ssh",
    ] {
        assert!(
            sprung.iter().any(|sprung| sprung == name),
            "the trap {name} was not triggered: {sprung:?} {output:?}"
        );
    }
    assert!(
        sprung
            .iter()
            .any(|sprung| sprung.starts_with("external-diff")),
        "{sprung:?}"
    );
    for mark in sprung {
        fs::remove_file(traps.marks_dir.join(mark)).unwrap();
    }
    // The agent's index marks a changed file as unchanged.
    try_git(&workspace, ["update-index", "--assume-unchanged", "a.txt"]);
    write(workspace.join("a.txt"), "agent's again\n");
    let _ = fs::remove_dir_all(&traps.marks_dir);
    fs::create_dir_all(&traps.marks_dir).unwrap();

    every_operation(&world);
    assert_eq!(traps.triggered(), Vec::<String>::new());
    assert_eq!(read(world.user().join("a.txt")), "agent's again\n");
    // The drivers in the agent's rules are configured nowhere, so later workspaces trigger nothing
    // either.
    world.prepare(A2);
    world.capture(A2);
    assert_eq!(traps.triggered(), Vec::<String>::new());
}

#[test]
fn s5_a_git_file_that_points_elsewhere_is_not_followed() {
    for kind in ["file", "link", "pipe"] {
        let world = World::new();
        let traps = Traps::new(&world);
        let outside = world.home.path().join("elsewhere");
        init(&outside, &[]);
        commit_all(&outside, "elsewhere");
        traps.set_all_in(&outside);
        let workspace = world.prepare(A1).path;
        write(workspace.join(".gitattributes"), RULES);
        write(workspace.join("a.txt"), "agent's\n");
        fs::remove_dir_all(workspace.join(".git")).unwrap();
        match kind {
            "file" => write(
                workspace.join(".git"),
                format!("gitdir: {}/.git\n", outside.display()),
            ),
            "link" => {
                std::os::unix::fs::symlink(outside.join(".git"), workspace.join(".git")).unwrap()
            }
            _ => {
                // A reader that opens these files would never return.
                let pipe = |path: PathBuf| {
                    assert!(
                        std::process::Command::new("mkfifo")
                            .arg(path)
                            .status()
                            .unwrap()
                            .success()
                    );
                };
                fs::create_dir_all(workspace.join(".git/objects/aa")).unwrap();
                pipe(workspace.join(".git/HEAD"));
                pipe(workspace.join(".git/config"));
                pipe(workspace.join(".git/index"));
                pipe(workspace.join(".git/objects/aa/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
            }
        }
        if kind != "pipe" {
            try_git(&workspace, ["status"]);
            assert!(
                traps.triggered().iter().any(|trap| trap == "fsmonitor"),
                "{kind}: {:?}",
                traps.triggered()
            );
            fs::remove_dir_all(&traps.marks_dir).unwrap();
            fs::create_dir_all(&traps.marks_dir).unwrap();
        }
        every_operation(&world);
        assert_eq!(traps.triggered(), Vec::<String>::new(), "{kind}");
        assert!(git(world.user(), &["log", "--format=%s"]).contains("land it"));
    }
}

#[test]
fn s5_traps_in_the_users_repository_do_not_run() {
    let world = World::new();
    let traps = Traps::new(&world);
    write(world.prepare(A1).path.join("a.txt"), "agent's\n");
    traps.set_all_in(world.user());
    // The user's own filters may run on the user's own checkout. No rule here names a filter.
    every_operation(&world);
    assert_eq!(traps.triggered(), Vec::<String>::new());
}
