//! Tests of sparse workspaces (`workspace.sparse`), in which only some directories are checked out.

use std::fs;

use crate::world::*;

/// Creates a world with tracked files in `top.txt`, `server/`, `web/app/`, `web/old/` and `docs/`,
/// of which `server` and `web/app` are checked out.
fn world() -> World {
    let mut world = World::new();
    for path in [
        "server/main.rs",
        "server/deep/x.rs",
        "web/app/a.ts",
        "web/old/b.ts",
        "web/index.html",
        "docs/d.md",
    ] {
        write(world.user().join(path), format!("{path}\n"));
    }
    commit_all(world.user(), "more");
    world.repo.workspace.sparse = vec!["server".into(), "web/app".into()];
    world
}

#[test]
fn sparse_workspace_has_only_the_named_directories_and_a_clean_status() {
    let world = world();
    let workspace = world.prepare(A1).path;
    for path in [
        "a.txt",
        "server/main.rs",
        "server/deep/x.rs",
        "web/app/a.ts",
        "web/index.html",
        ".gitignore",
    ] {
        assert!(workspace.join(path).exists(), "{path}");
    }
    for absent in ["docs", "web/old", "src"] {
        assert!(!workspace.join(absent).exists(), "{absent}");
    }
    assert_eq!(git(&workspace, &["status", "--porcelain"]), "");
    assert_eq!(
        world.capture(A1).changed,
        Vec::<String>::new(),
        "an absent file does not count as deleted"
    );
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    // The agent may check out more.
    git(&workspace, &["sparse-checkout", "add", "docs"]);
    assert_eq!(read(workspace.join("docs/d.md")), "docs/d.md\n");
    assert_eq!(world.capture(A1).changed, Vec::<String>::new());
}

#[test]
fn changes_inside_and_outside_the_sparse_directories_are_captured() {
    let world = world();
    let workspace = world.prepare(A1).path;
    write(workspace.join("server/main.rs"), "edited\n");
    fs::remove_file(workspace.join("server/deep/x.rs")).unwrap();
    // A rename out of the checked-out part, a new file there, and a file written over an absent
    // tracked one.
    fs::create_dir_all(workspace.join("web/old")).unwrap();
    fs::rename(
        workspace.join("web/app/a.ts"),
        workspace.join("web/old/moved.ts"),
    )
    .unwrap();
    write(workspace.join("docs/new.md"), "new\n");
    write(workspace.join("docs/d.md"), "written blindly\n");
    let changed = [
        "docs/d.md",
        "docs/new.md",
        "server/deep/x.rs",
        "server/main.rs",
        "web/app/a.ts",
        "web/old/moved.ts",
    ];
    assert_eq!(
        world.uncaptured_paths(A1),
        [
            "docs/d.md",
            "docs/new.md",
            "server/main.rs",
            "web/old/moved.ts"
        ]
    );
    let capture = world.capture(A1);
    assert_eq!(capture.changed, changed);
    assert_eq!(
        world.read_from_vault(&capture.commit, "docs/d.md"),
        "written blindly"
    );
    assert_eq!(
        world.read_from_vault(&capture.commit, "web/old/b.ts"),
        "web/old/b.ts",
        "an absent file is as in the base"
    );
    // Writing the base's own content and then removing the file are both no changes.
    write(workspace.join("docs/d.md"), "docs/d.md\n");
    assert!(!world.capture(A1).changed.contains(&"docs/d.md".to_owned()));
    fs::remove_file(workspace.join("docs/d.md")).unwrap();
    assert!(!world.capture(A1).changed.contains(&"docs/d.md".to_owned()));
}

#[test]
fn work_of_a_sparse_workspace_lands_and_absent_files_stay() {
    let world = world();
    let workspace = world.prepare(A1).path;
    write(workspace.join("server/main.rs"), "edited\n");
    // In the meantime an absent file changes on the trunk.
    write(world.user().join("docs/d.md"), "newer\n");
    commit_all(world.user(), "docs");
    let old = world.tip();
    let new = world.clean_trial(&world.capture(A1).commit);
    world.land(&old, &new);
    assert_eq!(read(world.user().join("docs/d.md")), "newer\n");
    assert_eq!(read(world.user().join("server/main.rs")), "edited\n");
    assert_eq!(read(world.user().join("web/old/b.ts")), "web/old/b.ts\n");
    assert_eq!(world.status(), "");
    // The staging directory for the validation has the whole tree.
    let staging = world.git.stage(&world.repo, 0, &new).unwrap();
    assert!(staging.join("docs/d.md").exists() && staging.join("web/old/b.ts").exists());
}

#[test]
fn sparse_capture_without_regattas_index_deletes_nothing() {
    let world = world();
    let workspace = world.prepare(A1).path;
    write(workspace.join("server/main.rs"), "edited\n");
    fs::remove_file(world.vault().join("regatta/A1.index")).unwrap();
    assert_eq!(world.capture(A1).changed, ["server/main.rs"]);
}

#[test]
fn s6_a_sparse_directory_outside_the_repository_is_refused() {
    let mut world = world();
    world.repo.workspace.sparse = vec!["../outside".into()];
    let error = world
        .git
        .prepare_workspace(&world.repo, A1, &branch("x"))
        .unwrap_err();
    assert_eq!(error.code, "bad_sparse");
    assert!(!world.data().join("workspaces/shop/A1").exists());
}
