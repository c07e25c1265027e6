//! Tests of restricting a capture, and of reading its changed files.

use std::fs;

use crate::world::*;

/// Q3: the restricted capture is used from then on, and the whole capture stays kept.
#[test]
fn q3_a_restricted_capture_has_only_its_paths_and_the_whole_is_kept() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "mine\n");
    write(workspace.join("new/in.txt"), "new\n");
    write(workspace.join("other.txt"), "not mine\n");
    fs::remove_file(workspace.join("run.sh")).unwrap();
    fs::remove_file(workspace.join("src/lib.rs")).unwrap();
    let whole_capture = world.capture(A1);
    assert_eq!(
        whole_capture.changed,
        ["a.txt", "new/in.txt", "other.txt", "run.sh", "src/lib.rs"]
    );

    let inside: Vec<String> = ["a.txt", "new/in.txt", "run.sh"]
        .map(str::to_owned)
        .to_vec();
    let part = world
        .git
        .restrict(
            &world.repo,
            A1,
            &whole_capture,
            &inside,
            &authorship("part"),
        )
        .unwrap();
    assert_eq!(
        (part.changed.as_slice(), &part.base),
        (inside.as_slice(), &whole_capture.base)
    );
    let listed = git(
        &world.vault(),
        &["ls-tree", "-r", "--name-only", part.commit.as_str()],
    );
    assert_eq!(
        listed.lines().collect::<Vec<_>>(),
        [".gitignore", "a.txt", "new/in.txt", "src/lib.rs"]
    );
    assert_eq!(
        world
            .git
            .restrict(
                &world.repo,
                A1,
                &whole_capture,
                &inside,
                &authorship("part")
            )
            .unwrap(),
        part,
        "repeating it gives the same capture"
    );
    let refs = git(
        &world.vault(),
        &[
            "for-each-ref",
            "--format=%(objectname)",
            "refs/regatta/keep/",
        ],
    );
    for kept_commit in [&whole_capture.commit, &part.commit] {
        assert!(refs.contains(kept_commit.as_str()), "{kept_commit} is kept");
    }
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    let empty = world
        .git
        .restrict(
            &world.repo,
            A1,
            &whole_capture,
            &["x".to_owned()],
            &authorship("part"),
        )
        .unwrap();
    assert_eq!(
        (empty.commit == whole_capture.base, empty.changed.is_empty()),
        (true, true)
    );
}

#[test]
fn changed_files_have_a_mark_for_new_and_their_added_lines() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "one\ndiff --git a b\n++ x\n");
    write(workspace.join("b c\".txt"), "first\n");
    write(workspace.join("bin"), b"\0\x01");
    fs::remove_file(workspace.join("run.sh")).unwrap();
    std::os::unix::fs::symlink("a.txt", workspace.join("run.sh")).unwrap();
    let capture = world.capture(A1);
    let diff = world
        .git
        .changed_files(&world.repo, &capture, true)
        .unwrap();
    let changes: Vec<(&str, bool, Vec<&str>)> = diff
        .iter()
        .map(|change| {
            (
                change.path.as_str(),
                change.is_new,
                change.added_lines.iter().map(String::as_str).collect(),
            )
        })
        .collect();
    assert_eq!(
        changes,
        [
            ("a.txt", false, vec!["diff --git a b", "++ x"]),
            ("b c\".txt", true, vec!["first"]),
            ("bin", true, vec![]),
            ("run.sh", false, vec!["a.txt"]),
        ]
    );
    assert!(
        world
            .git
            .changed_files(&world.repo, &capture, false)
            .unwrap()
            .iter()
            .all(|change| change.added_lines.is_empty())
    );
}

#[test]
fn ignored_paths_and_marks_of_changed_files_are_read_from_the_checkout() {
    let world = World::new();
    for (path, ignored) in [
        ("x.log", true),
        ("target/deep/x.json", true),
        ("a.txt", false),
        ("new.json", false),
        (":x", false),
    ] {
        assert_eq!(
            world.git.is_ignored(&world.repo, path).unwrap(),
            ignored,
            "{path}"
        );
    }
    assert_eq!(world.git.checkout_marks(&world.repo).unwrap(), []);
    write(world.user().join("a.txt"), "two\n");
    write(world.user().join("new.txt"), "x\n");
    write(world.user().join("y.log"), "x\n");
    let marks = world.git.checkout_marks(&world.repo).unwrap();
    assert_eq!(
        marks.iter().map(|mark| mark.0.as_str()).collect::<Vec<_>>(),
        ["a.txt", "new.txt"]
    );
    assert_eq!(
        world.git.checkout_marks(&world.repo).unwrap(),
        marks,
        "reading the marks changes nothing"
    );
    write(world.user().join("new.txt"), "longer\n");
    assert_ne!(world.git.checkout_marks(&world.repo).unwrap(), marks);
}
