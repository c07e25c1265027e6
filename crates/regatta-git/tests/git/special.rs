//! Tests that the guard gets every fact about a change besides its text (Q13).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use regatta_core::ids::CommitId;
use regatta_core::landing::guard::{self, FileKind, SpecialFile};
use regatta_core::project::CommitStyle;
use regatta_engine::ports::git::parts::*;
use regatta_engine::ports::git::{CommitRange, TrialMerge};

use crate::world::{
    A1, A2, SingleMerge, World, change_of, commit_all, git, make_executable, write,
};

/// A change that an agent makes in its workspace.
type WorkspaceEdit<'a> = &'a dyn Fn(&Path);

fn special_files(world: &World, base: &CommitId, commit: &CommitId) -> Vec<SpecialFile> {
    world
        .git
        .special_files(&world.repo, CommitRange { base, commit })
        .unwrap()
}

fn special_file(
    path: &str,
    before: Option<FileKind>,
    after: Option<FileKind>,
    target: Option<&str>,
) -> SpecialFile {
    SpecialFile {
        path: path.into(),
        before,
        after,
        target: target.map(str::to_owned),
        unpublished: false,
    }
}

#[test]
fn q13_changed_links_and_executables_are_reported() {
    use FileKind::{Executable, Plain, Symlink};
    let world = World::new();
    write(world.user().join("tool"), "#!/bin/sh\n");
    make_executable(&world.user().join("tool"));
    symlink("a.txt", world.user().join("old")).unwrap();
    symlink("a.txt", world.user().join("moved")).unwrap();
    commit_all(world.user(), "more");
    let workspace = world.prepare(A1).path;
    write(workspace.join("plain.txt"), "plain\n");
    write(workspace.join("tool"), "#!/bin/sh\necho edited\n");
    write(workspace.join("new tool"), "#!/bin/sh\n");
    make_executable(&workspace.join("new tool"));
    make_executable(&workspace.join("a.txt"));
    fs::set_permissions(workspace.join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(workspace.join("old")).unwrap();
    fs::remove_file(workspace.join("moved")).unwrap();
    symlink("../outside", workspace.join("moved")).unwrap();
    fs::remove_dir_all(workspace.join("src")).unwrap();
    symlink("/etc", workspace.join("src")).unwrap();
    let capture = world.capture(A1);
    let special = special_files(&world, &capture.base, &capture.commit);
    let expected = [
        special_file("a.txt", Some(Plain), Some(Executable), None),
        special_file("moved", Some(Symlink), Some(Symlink), Some("../outside")),
        special_file("new tool", None, Some(Executable), None),
        special_file("old", Some(Symlink), None, Some("a.txt")),
        special_file("run.sh", Some(Executable), Some(Plain), None),
        special_file("src", None, Some(Symlink), Some("/etc")),
    ];
    assert_eq!(special, expected);
    assert!(guard::never_lands_reason(&capture.changed, &special).is_some());
}

/// Git runs the commands in the configuration of such a folder as soon as somebody runs git there.
#[test]
fn q13_a_folder_in_which_git_finds_a_repository_is_reported() {
    let layouts: [&[&str]; 4] = [
        &["b/HEAD", "b/config", "b/objects/x", "b/refs/x"],
        &["deep/er/b/Head", "deep/er/b/OBJECTS/x", "deep/er/b/Refs"],
        &["b/HEAD", "b/commondir"],
        &["HEAD", "objects/x", "refs/x"],
    ];
    for (nth, layout) in layouts.into_iter().enumerate() {
        let world = World::new();
        let workspace = world.prepare(A1).path;
        for path in layout {
            write(workspace.join(path), "ref: refs/heads/x\n");
        }
        let capture = world.capture(A1);
        let special = special_files(&world, &capture.base, &capture.commit);
        let folder = layout[0].rsplit_once('/').map_or("", |(folder, _)| folder);
        assert_eq!(
            special,
            [special_file(
                folder,
                None,
                Some(FileKind::GitDirectory),
                None
            )],
            "{nth}"
        );
    }
    let world = World::new();
    let workspace = world.prepare(A1).path;
    for path in [
        "b/HEAD",
        "b/objects/x",
        "c/refs/x",
        "d/HEAD/x",
        "d/objects",
        "d/refs",
    ] {
        write(workspace.join(path), "x\n");
    }
    let capture = world.capture(A1);
    assert_eq!(special_files(&world, &capture.base, &capture.commit), []);
}

/// Each change is harmless, but their merge is not.
#[test]
fn q13_a_git_directory_made_by_two_changes_together_is_reported_for_the_merge() {
    let world = World::new();
    let (first_dir, second_dir) = (world.prepare(A1).path, world.prepare(A2).path);
    write(first_dir.join("b/HEAD"), "ref: refs/heads/x\n");
    write(
        first_dir.join("b/config"),
        "[core]\n\tfsmonitor = touch /tmp/x\n",
    );
    write(second_dir.join("b/objects/x"), "x");
    write(second_dir.join("b/refs/x"), "x");
    let (first, second) = (world.capture(A1).commit, world.capture(A2).commit);
    let tip = world.tip();
    assert_eq!(
        (
            special_files(&world, &tip, &first),
            special_files(&world, &tip, &second)
        ),
        (vec![], vec![])
    );
    let changes = [change_of(&first, "one"), change_of(&second, "two")];
    let merges = world
        .git
        .trial_merges(&world.repo, &tip, &changes, CommitStyle::Squash)
        .unwrap();
    let [TrialMerge::Clean(first), TrialMerge::Clean(both)] = merges.as_slice() else {
        panic!("{merges:?}")
    };
    assert_eq!(special_files(&world, &tip, first), []);
    assert_eq!(
        special_files(&world, first, both),
        [special_file("b", None, Some(FileKind::GitDirectory), None)]
    );
}

/// With `style = "rebase"` an agent's own commits would land one by one, but only the whole change
/// was checked.
#[test]
fn q13_a_rebase_squashes_commits_with_files_that_the_whole_change_does_not_show() {
    let steps: [(&str, WorkspaceEdit<'_>); 3] = [
        ("a file that is gone in the end", &|dir| {
            write(dir.join(".claude/settings.json"), "{}")
        }),
        ("a mode that is another in the end", &|dir| {
            make_executable(&dir.join("mine.txt"))
        }),
        ("a link that is a file in the end", &|dir| {
            fs::remove_file(dir.join("mine.txt")).unwrap();
            symlink("/etc/passwd", dir.join("mine.txt")).unwrap();
        }),
    ];
    for (what, step) in steps {
        let world = World::new();
        let dir = world.prepare(A1).path;
        write(dir.join("mine.txt"), "one\n");
        step(&dir);
        commit_all(&dir, "first of mine");
        let _ = fs::remove_dir_all(dir.join(".claude"));
        fs::remove_file(dir.join("mine.txt")).unwrap();
        write(dir.join("mine.txt"), "two\n");
        commit_all(&dir, "second of mine");
        let capture = world.capture(A1);
        assert_eq!(capture.changed, ["mine.txt"], "{what}");
        let tip = world.tip();
        let special = world
            .git
            .trial_merge(
                &world.repo,
                &tip,
                &change_of(&capture.commit, "T"),
                CommitStyle::Rebase,
            )
            .unwrap();
        let TrialMerge::Clean(new) = special else {
            panic!("{what}: {special:?}")
        };
        let count = git(
            &world.vault(),
            &["rev-list", "--count", &format!("{tip}..{new}")],
        );
        assert_eq!(count, "1", "{what}");
    }
}
