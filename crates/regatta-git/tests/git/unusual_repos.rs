//! Tests of unusual repositories. Each works, or is refused before anything moves.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{ProjectRepo, PushResult, TrialMerge, TrunkMoveResult};
use regatta_git::GitAdapter;

use crate::world::*;

/// Returns every file below a directory except `.git`, with its kind, mode and content.
fn all_files(top: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut files = BTreeMap::new();
    let mut pending = vec![top.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().to_path_buf();
            if name.ends_with(".git") {
                continue;
            }
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                pending.push(path);
                continue;
            }
            let content = if metadata.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            files.insert(name, (metadata.permissions().mode() & 0o170_111, content));
        }
    }
    files
}

/// Returns the files that git itself checks out of a commit, without any configuration.
fn checked_out_by_git(world: &World, commit: &CommitId) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let dir = world.home.path().join("by git");
    fs::create_dir_all(&dir).unwrap();
    let (vault, tree) = (world.vault(), dir.to_str().unwrap().to_owned());
    let index = world.home.path().join("by git.index");
    let index = format!("--git-dir={}", vault.display()) + "\0" + index.to_str().unwrap();
    let (git_dir, index) = index.split_once('\0').unwrap();
    let output = std::process::Command::new("git")
        .env("GIT_INDEX_FILE", index)
        .args([
            git_dir,
            "--work-tree",
            &tree,
            "read-tree",
            "--reset",
            "-u",
            commit.as_str(),
        ])
        .current_dir(&dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let files = all_files(&dir);
    fs::remove_dir_all(&dir).unwrap();
    fs::remove_file(index).unwrap();
    files
}

/// Takes a change from a workspace to the trunk, and checks it at every stage.
fn land_and_verify(world: &World, attempt: u64, edit: impl FnOnce(&Path)) -> CommitId {
    let old = world.tip();
    let workspace = world.prepare(AttemptId(attempt)).path;
    edit(&workspace);
    let capture = world.capture(AttemptId(attempt));
    let new = world.clean_trial(&capture.commit);
    let stage = world.git.stage(&world.repo, SLOT, &new).unwrap();
    assert_eq!(all_files(&stage), checked_out_by_git(world, &new));
    assert_eq!(git(&stage, &["status", "--porcelain"]), "");
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(world.tip(), new);
    git(world.user(), &["fsck", "--strict", "--no-dangling"]);
    if git(world.user(), &["rev-parse", "--is-bare-repository"]) == "false" {
        assert_eq!(world.status(), "");
    }
    assert_eq!(
        world.uncaptured_paths(AttemptId(attempt)),
        Vec::<String>::new()
    );
    world.remove_workspace(AttemptId(attempt));
    new
}

#[test]
fn submodules_lfs_pointers_large_files_modes_and_links_land_unchanged() {
    let world = World::new();
    let library = world.home.path().join("library");
    init(&library, &[]);
    commit_all(&library, "library");
    git(
        world.user(),
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            "../library",
            "lib",
        ],
    );
    let pointer = "version https://git-lfs.github.com/spec/v1\noid \
        sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
    write(
        world.user().join(".gitattributes"),
        "*.bin filter=lfs diff=lfs merge=lfs -text\n",
    );
    write(world.user().join("model.bin"), pointer);
    write(
        world.user().join("A.txt"),
        "differs from a.txt by case alone\n",
    );
    commit_all(world.user(), "odd things");

    let large: Vec<u8> = (0..24_u32 << 20)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let new = land_and_verify(&world, 1, |workspace| {
        assert_eq!(read(workspace.join("model.bin")), pointer);
        write(
            workspace.join("model.bin"),
            pointer.replace("12345", "54321"),
        );
        write(workspace.join("large"), &large);
        write(workspace.join("binary"), b"\0\x01\xff\r\n\0");
        write(workspace.join("empty"), "");
        make_executable(&workspace.join("a.txt"));
        fs::set_permissions(workspace.join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
        symlink("a.txt", workspace.join("link")).unwrap();
        write(workspace.join("A.txt"), "changed alone\n");
    });
    assert!(git(world.user(), &["ls-tree", new.as_str(), "lib"]).starts_with("160000 commit"));
    assert!(read(world.user().join("model.bin")).contains("54321"));
    assert!(fs::read(world.user().join("large")).unwrap() == large);
    // The same directory is staged again, with files that become directories and links, and the
    // reverse.
    land_and_verify(&world, 2, |workspace| {
        fs::remove_file(workspace.join("link")).unwrap();
        write(workspace.join("link/inner"), "a directory now\n");
        fs::remove_dir_all(workspace.join("src")).unwrap();
        symlink("nowhere", workspace.join("src")).unwrap();
        fs::remove_file(workspace.join("large")).unwrap();
    });
    assert!(git(world.user(), &["submodule", "status"]).contains("lib"));
}

/// Where the user's file system ignores case, a file whose name differs from another one by case
/// alone is refused before anything moves, and other changes land. On a case-sensitive file system
/// such a file lands too.
#[test]
fn names_that_differ_by_case_alone_are_refused_where_case_is_ignored() {
    let cases: [&[(&str, &str)]; 4] = [
        &[("A.txt", "beside a.txt\n")],
        &[("SRC/other.rs", "beside src/lib.rs\n")],
        &[("src/Lib.rs/inner", "a directory beside a file\n")],
        &[("new/\u{dc}ber.txt", "1\n"), ("new/\u{fc}ber.txt", "2\n")],
    ];
    for files in cases {
        let world = World::new();
        git(world.user(), &["config", "core.ignorecase", "true"]);
        let old = world.tip();
        // The workspace is on a case-sensitive file system, as an agent's machine may be.
        let workspace = world.prepare(A1);
        for (path, text) in files {
            write(workspace.path.join(path), text);
        }
        let commit = world.capture(A1).commit;
        let before = git(world.user(), &["rev-parse", "HEAD", "main"]);
        let refused = world
            .git
            .trial_merge(
                &world.repo,
                &old,
                &change_of(&commit, "land it"),
                CommitStyle::Squash,
            )
            .unwrap_err();
        assert!(
            refused.code == "same_names" && refused.message.contains("by case alone"),
            "{files:?}: {refused:?}"
        );
        // The move refuses the change too, and nothing moves.
        git(world.user(), &["config", "core.ignorecase", "false"]);
        let new = world.clean_trial(&commit);
        git(world.user(), &["config", "core.ignorecase", "true"]);
        let refused = world
            .git
            .move_trunk(&world.permit(), &world.repo, &old, &new)
            .unwrap_err();
        assert_eq!(
            (refused.code, world.status().as_str()),
            ("same_names", ""),
            "{files:?}"
        );
        assert_eq!(
            git(world.user(), &["rev-parse", "HEAD", "main"]),
            before,
            "{files:?}"
        );
        // A change without such a name is not affected.
        write(world.prepare(A2).path.join("a.txt"), "two\n");
        let plain_merge = world.clean_trial(&world.capture(A2).commit);
        assert_eq!(world.land(&old, &plain_merge), TrunkMoveResult::Moved);
        // On a case-sensitive file system both changes land.
        git(world.user(), &["config", "core.ignorecase", "false"]);
        let both = world.clean_trial(&commit);
        assert_eq!(
            (world.land(&plain_merge, &both), world.status().as_str()),
            (TrunkMoveResult::Moved, ""),
            "{files:?}"
        );
    }
}

/// The two names are one file on a file system that ignores case, so they do not clash.
#[test]
fn rename_by_case_alone_lands_where_case_is_ignored() {
    let world = World::new();
    git(world.user(), &["config", "core.ignorecase", "true"]);
    let old = world.tip();
    let workspace = world.prepare(A1).path;
    fs::rename(workspace.join("a.txt"), workspace.join("A.txt")).unwrap();
    let new = world.clean_trial(&world.capture(A1).commit);
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(
        git(
            world.user(),
            &["ls-tree", "--name-only", "main", "a.txt", "A.txt"]
        ),
        "A.txt"
    );
}

#[test]
fn edit_on_the_trunk_follows_a_rename_in_the_change() {
    let world = World::new();
    let lines: String = (0..40).map(|number| format!("line {number}\n")).collect();
    write(world.user().join("old name.txt"), &lines);
    commit_all(world.user(), "a long file");
    let workspace = world.prepare(A1).path;
    fs::rename(
        workspace.join("old name.txt"),
        workspace.join("new name.txt"),
    )
    .unwrap();
    let capture = world.capture(A1);
    write(
        world.user().join("old name.txt"),
        lines.replace("line 7\n", "line seven\n"),
    );
    commit_all(world.user(), "an edit");
    let new = world.clean_trial(&capture.commit);
    assert!(
        world
            .read_from_vault(&new, "new name.txt")
            .contains("line seven")
    );
    assert_eq!(
        world
            .git
            .file_at(&world.repo, &new, "old name.txt")
            .unwrap(),
        None
    );
}

#[test]
fn line_endings_and_encodings_are_converted_as_git_does() {
    for rules in [
        "*.txt text eol=crlf\n",
        "*.txt text=auto\n* -crlf\n",
        "*.txt ident\n",
        "e.txt working-tree-encoding=UTF-16LE\n",
    ] {
        let world = World::new();
        write(world.user().join(".gitattributes"), rules);
        write(world.user().join("win.txt"), "$Id$ one\r\ntwo\r\n");
        git(world.user(), &["add", "-A"]);
        git(world.user(), &["commit", "-q", "-m", "rules"]);
        git(world.user(), &["checkout", "-q", "HEAD", "."]);
        for attempt in 1..=3 {
            land_and_verify(&world, attempt, |workspace| {
                write(workspace.join(format!("b{attempt}.txt")), "x\r\ny\r\n");
                write(workspace.join("e.txt"), [b'0' + attempt as u8, 0, b'\n', 0]);
            });
        }
    }
}

#[test]
fn repositories_with_data_in_unusual_places_work() {
    // The repository borrows its objects from another repository, which is then removed.
    let source = World::new();
    git(
        source.home.path(),
        &["clone", "-q", "--shared", "user's repo", "borrower"],
    );
    let path = source.home.path().join("borrower");
    let world = World::with_repo_at(source.home, path);
    land_and_verify(&world, 1, |workspace| {
        write(workspace.join("a.txt"), "two\n")
    });
    world.prepare(A2);
    fs::rename(
        world.home.path().join("user's repo"),
        world.home.path().join("gone"),
    )
    .unwrap();
    write(world.prepare(A2).path.join("a.txt"), "three\n");
    assert_eq!(
        world.read_from_vault(&world.capture(A2).commit, "a.txt"),
        "three"
    );

    // The repository has its git directory apart from the working tree, packed refs, a
    // configuration that includes another one, and a file system monitor.
    let home = temp_dir();
    let path = home.path().join("tree");
    init(&path, &["--separate-git-dir=../apart.git"]);
    write(path.join("a.txt"), "one\n");
    commit_all(&path, "start");
    git(&path, &["pack-refs", "--all"]);
    write(
        home.path().join("more"),
        "[core]\n\tfsmonitor = true\n\tuntrackedCache = true\n",
    );
    git(
        &path,
        &[
            "config",
            "includeIf.gitdir:**/apart.git.path",
            home.path().join("more").to_str().unwrap(),
        ],
    );
    let world = World::with_repo_at(home, path);
    land_and_verify(&world, 1, |workspace| {
        write(workspace.join("a.txt"), "two\n")
    });
    land_and_verify(&world, 2, |workspace| {
        write(workspace.join("a.txt"), "three\n")
    });

    // The repository is shared by a group, so git gives new files the group's rights.
    let world = World::with_init_args(&["--shared=group"]);
    land_and_verify(&world, 1, |workspace| {
        write(workspace.join("new/b.txt"), "two\n")
    });
    for folder in fs::read_dir(world.user().join(".git/objects"))
        .unwrap()
        .flatten()
    {
        assert_eq!(
            folder.metadata().unwrap().permissions().mode() & 0o2770,
            0o2770,
            "{folder:?}"
        );
    }

    // The repository keeps its refs in tables, where git supports that.
    let home = temp_dir();
    let path = home.path().join("tables");
    fs::create_dir_all(&path).unwrap();
    if try_git(&path, ["init", "-q", "-b", "main", "--ref-format=reftable"])
        .status
        .success()
    {
        write(path.join("a.txt"), "one\n");
        commit_all(&path, "start");
        let world = World::with_repo_at(home, path);
        land_and_verify(&world, 1, |workspace| {
            write(workspace.join("a.txt"), "two\n")
        });
    }
}

#[test]
fn landing_works_with_a_data_directory_on_another_file_system() {
    let other_dir = tempfile::tempdir().unwrap();
    let mut world = World::new();
    world.git = GitAdapter::new(other_dir.path().join("data"));
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n"), ("deep/er/file", "x\n")]);
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    git(world.user(), &["fsck", "--strict", "--no-dangling"]);
    assert_eq!(world.status(), "");
}

#[test]
fn object_missing_in_the_users_repository_is_sent_again() {
    let world = World::new();
    // The vault has this blob from its fetch, and the user's repository loses it.
    write(world.user().join("a.txt"), "once\n");
    commit_all(world.user(), "a version");
    world.prepare(A1);
    git(world.user(), &["reset", "-q", "--hard", "HEAD^"]);
    git(world.user(), &["reflog", "expire", "--expire=now", "--all"]);
    git(world.user(), &["gc", "-q", "--prune=now"]);
    let old = world.tip();
    write(world.prepare(A2).path.join("a.txt"), "once\n");
    let new = world.clean_trial(&world.capture(A2).commit);
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    git(world.user(), &["fsck", "--strict", "--no-dangling"]);
    assert_eq!(read(world.user().join("a.txt")), "once\n");
}

#[test]
fn unborn_or_missing_trunk_is_refused() {
    let home = temp_dir();
    let path = home.path().join("unborn");
    init(&path, &[]);
    let mut world = World::with_repo_at(home, path);
    let prepare_error = |world: &World| {
        world
            .git
            .prepare_workspace(&world.repo, A1, &branch("regatta/x"))
            .unwrap_err()
            .code
    };
    assert_eq!(
        (
            world.git.tip(&world.repo).unwrap_err().code,
            prepare_error(&world)
        ),
        ("unborn_branch", "unborn_branch")
    );
    commit_all(world.user(), "born");
    world.repo.trunk = branch("release");
    assert_eq!(prepare_error(&world), "no_such_branch");
    world.repo.trunk = branch("main");
    world.prepare(A1);
    // After the repository is replaced by something else, the cached answer is not used.
    fs::remove_dir_all(world.user()).unwrap();
    assert_eq!(
        world.git.tip(&world.repo).unwrap_err().code,
        "not_a_repository"
    );
    fs::create_dir_all(world.user()).unwrap();
    assert_eq!(
        world.git.tip(&world.repo).unwrap_err().code,
        "not_a_repository"
    );
}

#[test]
fn bisect_stash_and_empty_commits_of_the_user_do_not_stop_a_landing() {
    let world = World::new();
    let first = world.tip();
    for number in 0..3 {
        commit_all(world.user(), &format!("empty {number}"));
    }
    write(world.user().join("a.txt"), "stashed\n");
    git(world.user(), &["stash", "-q"]);
    git(world.user(), &["bisect", "start", "HEAD", first.as_str()]);
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n")]);
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(
        git(world.user(), &["rev-parse", "refs/bisect/bad"]),
        old.as_str()
    );
    assert_eq!(world.tip(), new);
}

#[test]
fn staging_directory_equals_the_commit_after_any_change_by_a_check() {
    let world = World::new();
    write(world.user().join("deep/er/one"), "1\n");
    write(world.user().join("deep/two"), "2\n");
    symlink("a.txt", world.user().join("link")).unwrap();
    let first = commit_all(world.user(), "more files");
    let second = world.change_ready_to_land(A1, &[("a.txt", "two\n"), ("deep/er/new", "x\n")]);
    let outside = world.home.path().join("outside");
    write(outside.join("er/one"), "outside\n");
    let stage = |commit: &CommitId| world.git.stage(&world.repo, SLOT, commit).unwrap();
    let dir = stage(&first);
    for round in 0..8 {
        let commit = if round % 2 == 0 { &second } else { &first };
        // These are changes that a check may make, and worse ones.
        write(dir.join("left over"), "x");
        write(dir.join("target/debug/ignored.log"), "x");
        write(dir.join("deep/x.log"), "x");
        // the same size, a moment later
        fs::write(dir.join("src/lib.rs"), "fn niam() {}\n").unwrap();
        match round {
            0 => fs::remove_file(dir.join("run.sh")).unwrap(),
            1 => {
                fs::set_permissions(dir.join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap()
            }
            2 => {
                fs::remove_dir_all(dir.join("deep")).unwrap();
                symlink(&outside, dir.join("deep")).unwrap();
            }
            3 => {
                fs::remove_file(dir.join("link")).unwrap();
                write(dir.join("link/inner"), "x");
            }
            4 => fs::set_permissions(dir.join("deep"), fs::Permissions::from_mode(0o000)).unwrap(),
            5 => {
                write(dir.join(".git/hooks/post-checkout"), "#!/bin/sh\n");
                git(&dir, &["config", "core.worktree", "/"]);
                fs::remove_file(dir.join(".git/index")).unwrap();
            }
            6 => init(&dir.join("deep/nested"), &[]),
            _ => {
                fs::remove_dir_all(dir.join(".git")).unwrap();
                write(dir.join(".git"), "gitdir: /nowhere\n");
            }
        }
        assert_eq!(stage(commit), dir);
        assert_eq!(
            all_files(&dir),
            checked_out_by_git(&world, commit),
            "round {round}"
        );
        assert_eq!(
            git(&dir, &["status", "--porcelain", "--ignored"]),
            "",
            "round {round}"
        );
        assert_eq!(git(&dir, &["rev-parse", "HEAD"]), commit.as_str());
        git(&dir, &["log", "-1"]);
    }
    assert_eq!(read(outside.join("er/one")), "outside\n");
    // Another process does not know the directory's content, so it checks out every file again.
    write(dir.join("left over"), "x");
    GitAdapter::new(world.data())
        .stage(&world.repo, SLOT, &first)
        .unwrap();
    assert_eq!(all_files(&dir), checked_out_by_git(&world, &first));
}

#[test]
fn push_is_never_forced_and_reports_its_outcome() {
    let world = World::new();
    let remote = world.home.path().join("remote.git");
    git(
        world.home.path(),
        &["clone", "-q", "--bare", "user's repo", "remote.git"],
    );
    git(world.user(), &["remote", "add", "origin", "../remote.git"]);
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n")]);
    world.land(&old, &new);
    let push = |repo: &ProjectRepo, name: &str, commit: &CommitId| {
        world.git.push(repo, name, commit).unwrap()
    };
    assert_eq!(push(&world.repo, "origin", &new), PushResult::Pushed);
    assert_eq!(push(&world.repo, "origin", &new), PushResult::Pushed);
    assert_eq!(git(&remote, &["rev-parse", "main"]), new.as_str());
    // Pushing a commit that the remote already contains changes nothing and is no failure.
    assert_eq!(push(&world.repo, "origin", &old), PushResult::Pushed);
    assert_eq!(git(&remote, &["rev-parse", "main"]), new.as_str());

    git(
        world.home.path(),
        &["clone", "-q", "remote.git", "colleague"],
    );
    let colleague = world.home.path().join("colleague");
    write(colleague.join("b.txt"), "theirs\n");
    let theirs = commit_all(&colleague, "theirs");
    git(&colleague, &["push", "-q"]);
    let ours = world.change_ready_to_land(A2, &[("c.txt", "ours\n")]);
    world.land(&new, &ours);
    assert_eq!(
        push(&world.repo, "origin", &ours),
        PushResult::NonFastForward
    );
    assert_eq!(git(&remote, &["rev-parse", "main"]), theirs.as_str());

    for name in [
        "nowhere",
        "../remote.git",
        "--upload-pack=touch x",
        "ext::sh -c true",
    ] {
        assert!(
            matches!(push(&world.repo, name, &ours), PushResult::Failed(why) if why.contains("no remote")),
            "{name}"
        );
    }
    fs::rename(&remote, world.home.path().join("away.git")).unwrap();
    assert!(
        matches!(push(&world.repo, "origin", &ours), PushResult::Failed(why) if why.contains("origin"))
    );
}

#[test]
fn trunk_can_move_by_two_landings_in_one_step() {
    let world = World::new();
    let old = world.tip();
    for (attempt, path) in [(A1, "one.txt"), (A2, "two.txt")] {
        write(world.prepare(attempt).path.join(path), "x\n");
    }
    let first = world.clean_trial(&world.capture(A1).commit);
    let commit = world.capture(A2).commit;
    let second = world
        .git
        .trial_merge(
            &world.repo,
            &first,
            &change_of(&commit, "second"),
            CommitStyle::Squash,
        )
        .unwrap();
    let TrialMerge::Clean(second) = second else {
        panic!("{second:?}")
    };
    assert_eq!(world.land(&old, &second), TrunkMoveResult::Moved);
    assert_eq!(world.land(&old, &second), TrunkMoveResult::Moved);
    assert_eq!(
        git(
            world.user(),
            &["rev-list", "--count", &format!("{old}..main")]
        ),
        "2"
    );
    git(world.user(), &["fsck", "--strict", "--no-dangling"]);
    assert_eq!(world.status(), "");
}

/// Makes a pipe without a writer. A reader that opens the pipe never returns.
fn make_pipe(path: impl AsRef<Path>) {
    if path.as_ref().exists() {
        fs::remove_file(path.as_ref()).unwrap();
    }
    let status = std::process::Command::new("mkfifo")
        .arg(path.as_ref())
        .status()
        .unwrap();
    assert!(status.success());
}

/// Q3: a pipe where git reads a file blocks no capture and loses nothing. Other pipes stay.
#[test]
fn q3_pipes_and_sockets_do_not_block_a_capture() {
    let world = World::new();
    let dir = world.prepare(A1).path;
    write(dir.join("new.txt"), "work\n");
    fs::create_dir_all(dir.join("deep/er")).unwrap();
    write(dir.join("deep/er/x"), "x\n");
    make_pipe(dir.join(".gitignore"));
    make_pipe(dir.join("deep/.gitattributes"));
    make_pipe(dir.join("deep/.gitmodules"));
    make_pipe(dir.join("deep/er/pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    make_pipe(dir.join("a.txt"));
    git(&dir, &["init", "-q", "within"]);
    write(dir.join("within/y"), "y\n");
    make_pipe(dir.join("within/.git/HEAD"));
    let capture = world.capture(A1);
    assert_eq!(
        capture.changed,
        [".gitignore", "a.txt", "deep/er/x", "new.txt", "within/y"],
        "two pipes replaced tracked files"
    );
    assert_eq!(world.read_from_vault(&capture.commit, "new.txt"), "work");
    assert!(
        dir.join("deep/er/pipe").exists() && dir.join("socket").exists(),
        "pipes and sockets that git does not read stay"
    );
    assert!(!dir.join(".gitignore").exists() && !dir.join("a.txt").exists());
    // Leftovers are removed in the same way.
    make_pipe(dir.join(".gitattributes"));
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    make_pipe(dir.join(".gitignore"));
    world.remove_workspace(A1);
    let next = world.prepare(A2).path;
    assert_eq!(world.capture(A2).changed, Vec::<String>::new());
    assert!(!next.join("deep").exists());
}

/// D8: a fetch that a power cut interrupted may leave a commit without its files. Such a commit is
/// not the trunk.
#[test]
fn d8_a_commit_without_its_files_is_fetched_again() {
    let world = World::new();
    world.prepare(A1);
    write(world.user().join("a.txt"), "two\n");
    let tip = commit_all(world.user(), "two");
    let (folder, name) = tip.as_str().split_at(2);
    fs::create_dir_all(world.vault().join("objects").join(folder)).unwrap();
    let object_path = Path::new("objects").join(folder).join(name);
    fs::copy(
        world.user().join(".git").join(&object_path),
        world.vault().join(&object_path),
    )
    .unwrap();
    write(world.vault().join("regatta/fetching"), "");
    let workspace = world.prepare(A2);
    assert_eq!(
        (workspace.base, read(workspace.path.join("a.txt"))),
        (tip, "two\n".to_owned())
    );
    assert!(!world.vault().join("regatta/fetching").exists());
    // This fetch was interrupted before a single object arrived.
    write(world.vault().join("regatta/fetching"), "");
    assert_eq!(world.tip(), world.prepare(AttemptId(3)).base);
}

#[test]
fn unstage_removes_the_directories_of_the_slot_and_higher_slots() {
    let world = World::new();
    let tip = world.tip();
    let dirs: Vec<_> = (0..4)
        .map(|slot| world.git.stage(&world.repo, slot, &tip).unwrap())
        .collect();
    world.git.unstage(&world.repo, 2).unwrap();
    assert_eq!(
        dirs.iter().map(|path| path.is_dir()).collect::<Vec<_>>(),
        [true, true, false, false]
    );
    // A slot that is used again is complete.
    assert_eq!(
        read(world.git.stage(&world.repo, 3, &tip).unwrap().join("a.txt")),
        "one\n"
    );
}
