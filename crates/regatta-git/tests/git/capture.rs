//! Tests of capturing the work in a workspace.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::world::*;

/// Configures `dir`'s repository to run a command at every opportunity.
fn configure_hostile_repo(dir: &Path, canary: &Path) {
    let touch = format!("touch '{}'; cat", canary.display());
    let script = dir.join(".git/evil");
    write(&script, format!("#!/bin/sh\n{touch}\n"));
    make_executable(&script);
    let script = script.to_str().unwrap().to_owned();
    for key in [
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "core.editor",
        "core.alternateRefsCommand",
    ] {
        git(dir, &["config", key, &script]);
    }
    for key in [
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "diff.evil.textconv",
    ] {
        git(dir, &["config", key, &touch]);
    }
    git(dir, &["config", "filter.evil.required", "true"]);
    for hook in [
        "pre-commit",
        "post-index-change",
        "reference-transaction",
        "post-checkout",
    ] {
        let hook = dir.join(".git/hooks").join(hook);
        write(&hook, format!("#!/bin/sh\n{touch}\n"));
        make_executable(&hook);
    }
    write(dir.join(".gitattributes"), "* filter=evil diff=evil\n");
}

#[test]
fn s5_no_command_from_the_agents_git_configuration_runs() {
    let world = World::new();
    let canary = world.home.path().join("canary");
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "work\n");
    configure_hostile_repo(&workspace, &canary);
    // The agent's own git runs the command, so the trap works.
    try_git(&workspace, ["status"]);
    assert!(canary.exists());
    fs::remove_file(&canary).unwrap();

    let capture = world.capture(A1);
    assert_eq!(capture.changed, [".gitattributes", "a.txt"]);
    world.uncaptured_paths(A1);
    let old = world.tip();
    let new = world.clean_trial(&capture.commit);
    world.git.stage(&world.repo, SLOT, &new).unwrap();
    world.land(&old, &new);
    world.prepare(A2);
    world.remove_workspace(A1);
    assert!(!canary.exists());
    assert_eq!(world.read_from_vault(&capture.commit, "a.txt"), "work");
}

#[test]
fn s5_a_hostile_submodule_runs_nothing_and_stays_a_submodule() {
    let world = World::new();
    let sub = world.user().join("sub");
    init(&sub, &[]);
    write(sub.join("inner"), "x\n");
    commit_all(&sub, "in the submodule");
    for other_name in ["empty", "emptied", "plain"] {
        init(&world.user().join(other_name), &[]);
        commit_all(&world.user().join(other_name), "x");
    }
    commit_all(world.user(), "with submodules");
    let workspace = world.prepare(A1).path;
    assert_eq!(world.capture(A1).changed, Vec::<String>::new());

    let canary = world.home.path().join("canary");
    let theirs = workspace.join("sub");
    git(&workspace, &["clone", "-q", sub.to_str().unwrap(), "sub"]);
    configure_hostile_repo(&theirs, &canary);
    write(theirs.join("inner"), "y\n");
    // Uncommitted edits do not land. They are named and kept.
    let error = world
        .git
        .capture(&world.repo, A1, &authorship("work"))
        .unwrap_err();
    assert_eq!(error.code, "submodule_edited", "{error}");
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    assert!(!canary.exists());
    write(theirs.join("inner"), "x\n");
    let _poison = fs::remove_file(theirs.join(".gitattributes"));
    fs::remove_dir(workspace.join("emptied")).unwrap();
    write(workspace.join("plain/file"), "x\n");
    let capture = world.capture(A1);
    assert!(!canary.exists());
    assert_eq!(capture.changed, ["emptied", "plain", "plain/file"]);
    let entry = git(&world.vault(), &["ls-tree", capture.commit.as_str(), "sub"]);
    assert!(entry.starts_with("160000 commit"), "{entry}");
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    assert!(!canary.exists());
}

/// Q3: a moved submodule pointer is captured, whether the agent committed it or checked it out.
#[test]
fn q3_a_moved_submodule_pointer_is_captured_and_lands() {
    for how in [
        "checked out",
        "committed",
        "committed with a module directory",
    ] {
        let world = World::new();
        let sub = world.home.path().join("library");
        init(&sub, &[]);
        write(sub.join("inner"), "one\n");
        commit_all(&sub, "first");
        let add = [
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            sub.to_str().unwrap(),
            "lib",
        ];
        git(world.user(), &add);
        commit_all(world.user(), "with a submodule");
        write(sub.join("inner"), "two\n");
        let newer = commit_all(&sub, "second");
        let workspace = world.prepare(A1).path;
        match how {
            "checked out" => {
                git(
                    &workspace.join("lib"),
                    &["fetch", "-q", sub.to_str().unwrap()],
                );
                git(&workspace.join("lib"), &["checkout", "-q", newer.as_str()]);
            }
            "committed" => {
                git(&world.user().join("lib"), &["fetch", "-q"]);
                git(
                    &workspace,
                    &[
                        "update-index",
                        "--cacheinfo",
                        &format!("160000,{newer},lib"),
                    ],
                );
                git(&workspace, &["commit", "-q", "-m", "newer library"]);
            }
            _ => {
                fs::remove_dir_all(workspace.join("lib")).unwrap();
                let update = [
                    "-c",
                    "protocol.file.allow=always",
                    "submodule",
                    "--quiet",
                    "update",
                    "--init",
                ];
                git(&workspace, &update);
                git(&workspace.join("lib"), &["checkout", "-q", newer.as_str()]);
                assert!(
                    workspace.join("lib/.git").is_file(),
                    "git keeps the submodule's git directory elsewhere"
                );
            }
        }
        let capture = world.capture(A1);
        assert_eq!(capture.changed, ["lib"], "{how}");
        let new = world.clean_trial(&capture.commit);
        let entry = git(&world.vault(), &["ls-tree", new.as_str(), "lib"]);
        assert!(
            entry.starts_with(&format!("160000 commit {newer}")),
            "{how}: {entry}"
        );
        assert_eq!(
            world.land(&capture.base, &new),
            regatta_engine::ports::git::TrunkMoveResult::Moved,
            "{how}"
        );
    }
}

/// Q3: a repository inside the workspace that the agent did not commit as a submodule is captured
/// as plain files.
#[test]
fn q3_a_new_submodule_is_captured_as_a_submodule_only_if_committed() {
    for is_committed in [true, false] {
        let world = World::new();
        let sub = world.home.path().join("library");
        init(&sub, &[]);
        write(sub.join("inner"), "one\n");
        let first = commit_all(&sub, "first");
        let workspace = world.prepare(A1).path;
        if is_committed {
            let add = [
                "-c",
                "protocol.file.allow=always",
                "submodule",
                "--quiet",
                "add",
                sub.to_str().unwrap(),
                "lib",
            ];
            git(&workspace, &add);
            git(&workspace, &["commit", "-q", "-m", "with a library"]);
        } else {
            git(&workspace, &["clone", "-q", sub.to_str().unwrap(), "lib"]);
        }
        let capture = world.capture(A1);
        let entry = git(&world.vault(), &["ls-tree", capture.commit.as_str(), "lib"]);
        if is_committed {
            assert_eq!(capture.changed, [".gitmodules", "lib"]);
            assert!(
                entry.starts_with(&format!("160000 commit {first}")),
                "{entry}"
            );
        } else {
            assert_eq!(capture.changed, ["lib/inner"]);
        }
    }
}

/// S5: a submodule's git directory in another place is not followed.
#[test]
fn s5_a_submodules_git_file_that_points_outside_is_not_followed() {
    let world = World::new();
    let sub = world.user().join("sub");
    init(&sub, &[]);
    commit_all(&sub, "in the submodule");
    commit_all(world.user(), "with a submodule");
    let outside = world.home.path().join("elsewhere");
    init(&outside, &[]);
    commit_all(&outside, "elsewhere");
    let workspace = world.prepare(A1).path;
    write(
        workspace.join("sub/.git"),
        format!("gitdir: {}\n", outside.join(".git").display()),
    );
    assert_eq!(world.capture(A1).changed, Vec::<String>::new());
}

#[test]
fn capture_does_not_depend_on_the_workspaces_git_directory() {
    let world = World::new();
    let outside = world.user().join(".git");
    type Damage<'a> = (&'a str, &'a dyn Fn(&Path));
    let damages: [Damage<'_>; 6] = [
        ("committed", &|path| {
            drop(commit_all(path, "the agent's own"))
        }),
        ("deleted", &|path| {
            fs::remove_dir_all(path.join(".git")).unwrap()
        }),
        ("a file", &|path| {
            fs::remove_dir_all(path.join(".git")).unwrap();
            write(
                path.join(".git"),
                format!("gitdir: {}\n", outside.display()),
            );
        }),
        ("a link", &|path| {
            fs::remove_dir_all(path.join(".git")).unwrap();
            symlink(&outside, path.join(".git")).unwrap();
        }),
        ("torn", &|path| write(path.join(".git/HEAD"), "nonsense")),
        ("hidden files", &|path| {
            git(path, &["update-index", "--assume-unchanged", "a.txt"]);
            write(path.join(".git/info/exclude"), "*\n");
        }),
    ];
    let before = git(world.user(), &["show-ref"]);
    for (number, (name, damage)) in damages.iter().enumerate() {
        let attempt = regatta_core::ids::AttemptId(number as u64 + 1);
        let workspace = world.prepare(attempt).path;
        write(workspace.join("a.txt"), "work\n");
        write(workspace.join("new.txt"), "new\n");
        damage(&workspace);
        let capture = world.capture(attempt);
        assert_eq!(capture.changed, ["a.txt", "new.txt"], "{name}");
        assert_eq!(world.prepare(attempt).base, capture.base, "{name}");
        world.remove_workspace(attempt);
    }
    assert_eq!(git(world.user(), &["show-ref"]), before);
    assert_eq!(world.status(), "");
}

#[test]
fn q3_every_capture_stays_reachable() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    let captures: Vec<_> = ["first\n", "second\n", "third\n", "first\n"]
        .map(|text| {
            write(workspace.join("a.txt"), text);
            (text.trim(), world.capture(A1).commit)
        })
        .into();
    assert_eq!(
        captures[0].1, captures[3].1,
        "the same input gives the same commit"
    );
    world.remove_workspace(A1);
    write(world.user().join("a.txt"), "rewritten\n");
    git(
        world.user(),
        &["commit", "-q", "-a", "--amend", "-m", "rewritten"],
    );
    world.prepare(A2);
    git(&world.vault(), &["gc", "-q", "--prune=now"]);
    for (text, commit) in &captures {
        assert_eq!(world.read_from_vault(commit, "a.txt"), *text);
    }
    assert_eq!(
        git(&world.vault(), &["rev-parse", "refs/regatta/keep/A1"]),
        captures[3].1.as_str()
    );
    git(&world.vault(), &["fsck", "--strict", "--connectivity-only"]);
}

#[test]
fn capture_leaves_out_ignored_files_and_keeps_tracked_ones() {
    let world = World::new();
    write(world.user().join("tracked.log"), "x\n");
    git(world.user(), &["add", "-f", "tracked.log"]);
    commit_all(world.user(), "a tracked log");
    let workspace = world.prepare(A1).path;
    write(workspace.join("tracked.log"), "y\n");
    write(workspace.join("other.log"), "x");
    write(workspace.join(".env"), "SECRET=1");
    write(workspace.join("target/debug/big"), "x");
    write(workspace.join(".regatta/result.json"), "{}");
    write(workspace.join("sub/.gitignore"), "made/\n");
    write(workspace.join("sub/made/x"), "x");
    // A later capture starts from the base again, so a file that is ignored meanwhile is left out.
    write(workspace.join("later.tmp"), "x");
    assert_eq!(
        world.capture(A1).changed,
        ["later.tmp", "sub/.gitignore", "tracked.log"]
    );
    write(workspace.join("sub/.gitignore"), "made/\n");
    write(
        workspace.join(".gitignore"),
        "*.log\ntarget/\n.env\n*.tmp\n",
    );
    assert_eq!(
        world.capture(A1).changed,
        [".gitignore", "sub/.gitignore", "tracked.log"]
    );
}

#[test]
fn s7_every_file_name_mode_and_symbolic_link_is_kept() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    let names: [&[u8]; 10] = [
        b"-rf",
        b"--force",
        b"with space.txt",
        "\u{fc}nic\u{f6}de \u{1F6A3}.txt".as_bytes(),
        b"new\nline",
        b":(top)magic",
        b"*",
        b"quote\"d\\path",
        b"latin-\xe4.txt",
        b"-dir/-file",
    ];
    for name in names {
        write(workspace.join(OsStr::from_bytes(name)), "x\n");
    }
    symlink("/etc/passwd", workspace.join("link")).unwrap();
    symlink("nowhere", workspace.join("dangling")).unwrap();
    fs::set_permissions(workspace.join("a.txt"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(workspace.join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    make_fifo(&workspace.join("fifo"));

    let capture = world.capture(A1);
    assert_eq!(
        capture.changed.len(),
        names.len() + 4,
        "{:?}",
        capture.changed
    );
    assert!(capture.changed.is_sorted());
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    let old = world.tip();
    let new = world.clean_trial(&capture.commit);
    let stage = world.git.stage(&world.repo, SLOT, &new).unwrap();
    assert_eq!(
        world.land(&old, &new),
        regatta_engine::ports::git::TrunkMoveResult::Moved
    );
    for checked_dir in [stage.as_path(), world.user()] {
        for name in names {
            assert_eq!(read(checked_dir.join(OsStr::from_bytes(name))), "x\n");
        }
        assert_eq!(
            fs::read_link(checked_dir.join("link")).unwrap(),
            Path::new("/etc/passwd")
        );
        assert_eq!(
            fs::read_link(checked_dir.join("dangling")).unwrap(),
            Path::new("nowhere")
        );
        let mode = |name| {
            fs::metadata(checked_dir.join(name))
                .unwrap()
                .permissions()
                .mode()
                & 0o111
        };
        assert_eq!((mode("a.txt"), mode("run.sh")), (0o111, 0));
    }
    assert_eq!(world.status(), "");
}

/// Makes a pipe, which no tree can contain.
fn make_fifo(path: &Path) {
    assert!(
        std::process::Command::new("mkfifo")
            .arg(path)
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn file_that_replaces_a_directory_and_the_reverse_are_captured() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    fs::remove_dir_all(workspace.join("src")).unwrap();
    write(workspace.join("src"), "a file now\n");
    fs::remove_file(workspace.join("a.txt")).unwrap();
    write(workspace.join("a.txt/inner"), "a directory now\n");
    let outside = world.home.path().join("outside");
    write(outside.join("secret"), "x");
    fs::remove_file(workspace.join("run.sh")).unwrap();
    symlink(&outside, workspace.join("run.sh")).unwrap();
    let capture = world.capture(A1);
    assert_eq!(
        capture.changed,
        ["a.txt", "a.txt/inner", "run.sh", "src", "src/lib.rs"]
    );
    assert_eq!(
        world.read_from_vault(&capture.commit, "run.sh"),
        outside.to_str().unwrap()
    );
}

#[test]
fn s6_a_directory_replaced_by_a_link_is_captured_as_a_link() {
    let world = World::new();
    let outside = world.home.path().join("outside");
    write(outside.join("lib.rs"), "secret\n");
    let workspace = world.prepare(A1).path;
    fs::remove_dir_all(workspace.join("src")).unwrap();
    symlink(&outside, workspace.join("src")).unwrap();
    let capture = world.capture(A1);
    assert_eq!(capture.changed, ["src", "src/lib.rs"]);
    assert_eq!(
        world.read_from_vault(&capture.commit, "src"),
        outside.to_str().unwrap()
    );

    // A link in the place of a workspace is refused.
    fs::remove_dir_all(&workspace).unwrap();
    symlink(&outside, &workspace).unwrap();
    assert_eq!(
        world
            .git
            .capture(&world.repo, A1, &authorship("x"))
            .unwrap_err()
            .code,
        "no_workspace"
    );
}

#[test]
fn repository_inside_a_workspace_is_captured_as_plain_files() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    let app = workspace.join("app dir");
    init(&app, &[]);
    write(app.join("main.rs"), "x\n");
    write(app.join(".gitignore"), "dist/\n");
    commit_all(&app, "scaffolded");
    write(app.join("dist/out"), "ignored by its own rule");
    write(app.join("target/out"), "ignored by the rule above");
    write(app.join("x.log"), "ignored by the rule above");
    init(&app.join("vendor/lib"), &[]);
    write(app.join("vendor/lib/lib.rs"), "x\n");
    init(&workspace.join("unborn"), &[]);
    // The same holds for a repository around tracked files.
    init(&workspace.join("src"), &[]);
    write(workspace.join("src/new.rs"), "x\n");
    let capture = world.capture(A1);
    assert_eq!(
        capture.changed,
        [
            "app dir/.gitignore",
            "app dir/main.rs",
            "app dir/vendor/lib/lib.rs",
            "src/new.rs"
        ]
    );
    assert!(!git(&world.vault(), &["ls-tree", "-r", capture.commit.as_str()]).contains("160000"));
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
}

#[test]
fn edit_right_after_the_checkout_is_captured() {
    let world = World::new();
    // The new text has the same size and is usually written in the same tick of the file
    // system's clock.
    for number in 1..=12 {
        let attempt = regatta_core::ids::AttemptId(number);
        let workspace = world.prepare(attempt).path;
        fs::write(workspace.join("a.txt"), "eno\n").unwrap();
        assert_eq!(world.capture(attempt).changed, ["a.txt"]);
    }
}

#[test]
fn capture_without_regattas_index_is_the_same() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "work\n");
    let capture = world.capture(A1);
    fs::remove_file(world.vault().join("regatta/A1.index")).unwrap();
    assert_eq!(world.capture(A1), capture);
}

/// Makes nested directories with these names, and a file in the last.
fn write_nested(top: &std::path::Path, names: &[String], file: &str) {
    use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
    let is_dir = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut dir = open(top, is_dir, Mode::empty()).unwrap();
    for name in names {
        mkdirat(&dir, name.as_str(), Mode::RWXU).unwrap();
        dir = openat(&dir, name.as_str(), is_dir, Mode::empty()).unwrap();
    }
    let created = openat(
        &dir,
        file,
        OFlags::CREATE | OFlags::WRONLY,
        Mode::RUSR | Mode::WUSR,
    )
    .unwrap();
    rustix::io::write(&created, b"deep\n").unwrap();
}

/// Q3, Q5: a path that is too long for the system is named, and no partial capture is made.
#[test]
fn q3_q5_a_path_that_is_too_long_is_named_and_stops_the_capture() {
    for (depth, name) in [(20, 240), (13, 240), (1030, 3)] {
        let world = World::new();
        let workspace = world.prepare(A1).path;
        write(workspace.join("a.txt"), "two\n");
        let names: Vec<String> = (0..depth).map(|_| "d".repeat(name)).collect();
        write_nested(&workspace, &names, "the-last-file");
        let error = world
            .git
            .capture(&world.repo, A1, &authorship("x"))
            .unwrap_err();
        assert_eq!(error.code, "path_too_long", "{depth} x {name}: {error}");
        assert!(error.message.contains("ddd"), "{error}");
        assert!(
            world.git.uncaptured_paths(&world.repo, A1).is_err(),
            "without a proof the workspace cannot be removed"
        );
        std::fs::remove_dir_all(workspace.join(&names[0])).unwrap();
        assert_eq!(world.capture(A1).changed, ["a.txt"]);
    }
    let world = World::new();
    let workspace = world.prepare(A1).path;
    let names: Vec<String> = (0..12).map(|_| "d".repeat(240)).collect();
    write_nested(&workspace, &names, "f");
    let capture = world.capture(A1);
    assert_eq!(capture.changed, [format!("{}/f", names.join("/"))]);
    world.clean_trial(&capture.commit);
}

/// S6, Q3: an unreadable directory may contain work, so it is named and not skipped.
#[test]
fn q3_an_unreadable_directory_stops_the_capture() {
    if rustix::process::geteuid().is_root() {
        eprintln!("not run: root reads everything; run the tests as another user to see this");
        return;
    }
    let world = World::new();
    let workspace = world.prepare(A1).path;
    write(workspace.join("shut/mine.txt"), "x");
    fs::set_permissions(workspace.join("shut"), fs::Permissions::from_mode(0o000)).unwrap();
    let captured = world.git.capture(&world.repo, A1, &authorship("x"));
    fs::set_permissions(workspace.join("shut"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(captured.unwrap_err().code, "unreadable");
}

/// S6: a folder that some file system treats as `.git` is named on every system.
#[test]
fn s6_a_name_that_some_file_system_reads_as_git_stops_the_capture() {
    for name in [".GIT", ".git.", ".Git ", "git~1", ".g\u{200c}it"] {
        let world = World::new();
        let workspace = world.prepare(A1).path;
        write(workspace.join(name).join("config"), "x");
        let error = world
            .git
            .capture(&world.repo, A1, &authorship("x"))
            .unwrap_err();
        assert_eq!(error.code, "unstorable", "{name}: {error}");
    }
}
