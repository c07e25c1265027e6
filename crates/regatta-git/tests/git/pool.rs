//! Tests of finished workspaces that are pooled for later attempts.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use regatta_core::ids::AttemptId;

use crate::world::*;

impl World {
    fn pooled(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.data().join("pool/shop"))
            .map(|entries| {
                entries
                    .map(|result| result.unwrap().file_name().into_string().unwrap())
                    .collect()
            })
            .unwrap_or_default();
        names.sort();
        names
    }
    fn finish_workspace(&self, attempt: AttemptId) {
        self.capture(attempt);
        assert_eq!(self.uncaptured_paths(attempt), Vec::<String>::new());
        self.remove_workspace(attempt);
    }
}

/// Returns every path below `top` except `.git`, with its type, mode and content.
fn listing(top: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut entries = Vec::new();
    let mut pending = vec![top.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let inner = path.strip_prefix(top).unwrap().to_owned();
            if inner == Path::new(".git") {
                continue;
            }
            let content = match () {
                () if about.is_dir() => Vec::new(),
                () if about.is_symlink() => fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes(),
                () => fs::read(&path).unwrap(),
            };
            entries.push((inner, about.mode(), content));
            if about.is_dir() {
                pending.push(path);
            }
        }
    }
    entries.sort();
    entries
}

/// Returns every file of a git directory with its content. The index is listed by its entries.
fn git_dir(top: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut entries = listing(&top.join(".git"));
    for (path, _, content) in &mut entries {
        if path == Path::new("index") {
            *content = git(top, &["ls-files", "--stage", "-t"]).into_bytes();
        }
    }
    entries
}

#[test]
fn finished_workspace_is_reused_and_only_changed_files_are_written() {
    let world = World::new();
    let first = world.prepare(A1).path;
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let (kept, edited) = (
        inode(&first.join("src/lib.rs")),
        inode(&first.join("run.sh")),
    );
    write(first.join("a.txt"), "work\n");
    fs::remove_file(first.join("run.sh")).unwrap();
    write(first.join("new.txt"), "new\n");
    world.finish_workspace(A1);
    assert_eq!(world.pooled(), ["A1"]);

    write(world.user().join("later.txt"), "later\n");
    let tip = commit_all(world.user(), "later");
    let second = world.prepare(A2);
    assert_eq!((world.pooled().len(), &second.base), (0, &tip));
    assert_eq!(
        inode(&second.path.join("src/lib.rs")),
        kept,
        "an unchanged file is not written again"
    );
    assert_ne!(inode(&second.path.join("run.sh")), edited);
    assert_eq!(read(second.path.join("a.txt")), "one\n");
    assert_eq!(read(second.path.join("later.txt")), "later\n");
    assert!(!second.path.join("new.txt").exists());
    assert_eq!(
        git(
            &second.path,
            &["status", "--porcelain", "--branch", "--ignored"]
        ),
        "## regatta/A2"
    );
    assert_eq!(world.capture(A2).changed, Vec::<String>::new());
    write(second.path.join("src/lib.rs"), "fn other() {}\n");
    assert_eq!(world.capture(A2).changed, ["src/lib.rs"]);
}

/// A change that an attempt makes in its workspace, given a directory outside it.
type WorkspaceEdit = fn(&Path, &Path);

/// S5: a pooled workspace equals a fresh one, regardless of the changes by its former attempt.
#[test]
fn s5_a_pooled_workspace_keeps_nothing_of_its_former_attempt() {
    let world = World::new();
    write(world.user().join("deep/er/file.txt"), "deep\n");
    symlink("a.txt", world.user().join("link")).unwrap();
    commit_all(world.user(), "more");
    let outside = world.home.path().join("outside");
    write(outside.join("precious"), "x");
    let plants: [(&str, WorkspaceEdit); 9] = [
        (
            "hooks, configuration, refs, reflogs, stashes and alternates",
            |dir, outside| {
                let hook = dir.join(".git/hooks/post-checkout");
                write(
                    &hook,
                    format!("#!/bin/sh\ntouch '{}/hooked'\n", outside.display()),
                );
                make_executable(&hook);
                git(dir, &["config", "core.hooksPath", ".git/hooks"]);
                git(dir, &["config", "core.fsmonitor", "touch x"]);
                git(dir, &["config", "filter.evil.smudge", "touch x"]);
                git(dir, &["config", "core.worktree", "/"]);
                git(dir, &["config", "--unset", "core.worktree"]);
                write(dir.join("a.txt"), "agent\n");
                git(dir, &["commit", "-qam", "agent's"]);
                git(dir, &["branch", "left-behind"]);
                git(dir, &["tag", "left-behind"]);
                write(dir.join("a.txt"), "stashed\n");
                git(dir, &["stash"]);
                write(
                    dir.join(".git/objects/info/alternates"),
                    format!("{}\n", outside.display()),
                );
                write(dir.join(".git/info/attributes"), "* filter=evil\n");
                write(dir.join(".git/info/grafts"), "x");
            },
        ),
        ("a .git file that points elsewhere", |dir, outside| {
            fs::remove_dir_all(dir.join(".git")).unwrap();
            init(&outside.join("other"), &[]);
            write(
                dir.join(".git"),
                format!("gitdir: {}/other/.git\n", outside.display()),
            );
        }),
        ("a .git link that points elsewhere", |dir, outside| {
            fs::remove_dir_all(dir.join(".git")).unwrap();
            symlink(outside, dir.join(".git")).unwrap();
        }),
        (
            "ignored files, empty and read-only directories, and odd names",
            |dir, _| {
                write(dir.join("target/build/x.o"), "x");
                write(dir.join(".env"), "SECRET");
                write(dir.join("left.log"), "x");
                fs::create_dir_all(dir.join("empty/er")).unwrap();
                write(dir.join("locked/in/file"), "x");
                fs::set_permissions(dir.join("locked/in"), fs::Permissions::from_mode(0o500))
                    .unwrap();
                fs::set_permissions(dir.join("locked"), fs::Permissions::from_mode(0o500)).unwrap();
                for name in ["-rf", "a\nb", ":(top)x", "*", "..x", "\u{202e}txt", " "] {
                    write(dir.join(name), "x");
                }
                write(dir.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), "x");
            },
        ),
        (
            "links where files and directories were, and the other way round",
            |dir, outside| {
                fs::remove_dir_all(dir.join("deep")).unwrap();
                symlink(outside, dir.join("deep")).unwrap();
                fs::remove_file(dir.join("a.txt")).unwrap();
                fs::create_dir_all(dir.join("a.txt/in")).unwrap();
                fs::remove_file(dir.join("link")).unwrap();
                symlink(outside.join("precious"), dir.join("link")).unwrap();
                fs::remove_dir_all(dir.join("src")).unwrap();
                write(dir.join("src"), "a file");
            },
        ),
        (
            "modes of files and directories, and hard links",
            |dir, outside| {
                fs::set_permissions(dir.join("a.txt"), fs::Permissions::from_mode(0o777)).unwrap();
                fs::set_permissions(dir.join("run.sh"), fs::Permissions::from_mode(0o444)).unwrap();
                fs::set_permissions(dir.join("deep/er"), fs::Permissions::from_mode(0o2777))
                    .unwrap();
                fs::set_permissions(dir.join("deep"), fs::Permissions::from_mode(0o500)).unwrap();
                fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
                let _again = fs::remove_file(outside.join("lib.rs"));
                fs::hard_link(dir.join("src/lib.rs"), outside.join("lib.rs")).unwrap();
            },
        ),
        ("the same size and time", |dir, _| {
            let path = dir.join("a.txt");
            let time = fs::metadata(&path).unwrap().modified().unwrap();
            fs::write(&path, "two\n").unwrap();
            fs::File::options()
                .append(true)
                .open(&path)
                .unwrap()
                .set_modified(time)
                .unwrap();
        }),
        ("a very deep directory", |dir, _| {
            // Deeper than a path may be long, and than files may be open.
            use rustix::fs::{Mode, OFlags};
            let open_child = |parent: &std::os::fd::OwnedFd| {
                rustix::fs::mkdirat(parent, "deeper and deeper", Mode::from(0o755)).unwrap();
                rustix::fs::openat(
                    parent,
                    "deeper and deeper",
                    OFlags::DIRECTORY,
                    Mode::empty(),
                )
                .unwrap()
            };
            let mut parent = std::os::fd::OwnedFd::from(fs::File::open(dir).unwrap());
            for _ in 0..3000 {
                parent = open_child(&parent);
            }
        }),
        ("a nested repository", |dir, _| {
            init(&dir.join("nested"), &[]);
            write(dir.join("nested/x"), "x");
            init(&dir.join("deep/er"), &[]);
        }),
    ];
    let mut number = 10;
    for (what, plant) in plants {
        let attempt = AttemptId(number);
        let dir = world.prepare(attempt).path;
        let fresh = (listing(&dir), fs::metadata(&dir).unwrap().mode());
        let fresh_git = git_dir(&dir);
        plant(&dir, &outside);
        // The engine creates the proof. For this test only the directory matters.
        world.remove_workspace(attempt);
        assert_eq!(world.pooled(), [attempt.to_string()], "{what}");
        let next = AttemptId(number + 1);
        let warm = world
            .git
            .prepare_workspace(&world.repo, next, &branch(&format!("regatta/{attempt}")))
            .unwrap()
            .path;
        assert_eq!(world.pooled(), Vec::<String>::new(), "{what}");
        assert_eq!(
            (listing(&warm), fs::metadata(&warm).unwrap().mode()),
            fresh,
            "{what}"
        );
        assert_eq!(git_dir(&warm), fresh_git, "{what}");
        assert_eq!(
            git(&warm, &["status", "--porcelain", "--ignored"]),
            "",
            "{what}"
        );
        assert_eq!(git(&warm, &["reflog"]), "", "{what}");
        assert!(!outside.join("hooked").exists(), "{what}");
        if outside.join("lib.rs").exists() {
            // A file with a second hard link outside was written again as another file.
            fs::write(outside.join("lib.rs"), "tampered").unwrap();
            assert_eq!(read(warm.join("src/lib.rs")), "fn main() {}\n", "{what}");
        }
        assert_eq!(read(outside.join("precious")), "x", "{what}");
        world.finish_workspace(next);
        number += 2;
    }
}

#[test]
fn partly_cleaned_workspace_is_never_reused() {
    let world = World::new();
    for attempt in [A1, A2] {
        world.prepare(attempt);
    }
    world.finish_workspace(A1);
    let pool = world.data().join("pool/shop");
    // These directories were left by an interrupted cleaning, reuse and removal.
    for torn in [".A7.new", ".A8.taken", ".A9.gone"] {
        write(pool.join(torn).join("tree/secret"), "of another attempt");
    }
    // The move of a directory or of its index was interrupted, so the directory cannot be trusted.
    let restarted = World {
        git: regatta_git::GitAdapter::new(world.data()),
        ..world
    };
    let workspace = restarted.prepare(AttemptId(3)).path;
    assert!(!workspace.join("secret").exists());
    assert_eq!(restarted.pooled(), Vec::<String>::new());
    assert_eq!(git(&workspace, &["status", "--porcelain", "--ignored"]), "");

    // A pooled workspace with a broken index or tree is replaced by a fresh one.
    restarted.finish_workspace(A2);
    assert_eq!(restarted.pooled(), ["A2"]);
    fs::write(restarted.data().join("pool/shop/A2/index"), "torn").unwrap();
    let workspace = restarted.prepare(AttemptId(4)).path;
    assert_eq!(git(&workspace, &["status", "--porcelain", "--ignored"]), "");
    restarted.finish_workspace(AttemptId(4));
    fs::remove_dir_all(restarted.data().join("pool/shop/A4/tree")).unwrap();
    let workspace = restarted.prepare(AttemptId(5)).path;
    assert_eq!(read(workspace.join("a.txt")), "one\n");
    assert_eq!(restarted.pooled(), Vec::<String>::new());
}

#[test]
fn pool_is_bounded_and_can_be_shrunk() {
    let mut world = World::new();
    world.repo.workspace.pool = 2;
    let attempts: Vec<_> = (1..=3).map(AttemptId).collect();
    for attempt in &attempts {
        world.prepare(*attempt);
    }
    let live = world.git.disk_use(&world.repo).unwrap();
    assert!(live.live_bytes > 0 && live.pooled_bytes == 0, "{live:?}");
    for attempt in &attempts {
        world.finish_workspace(*attempt);
    }
    assert_eq!(world.pooled(), ["A1", "A2"]);
    let disk_use = world.git.disk_use(&world.repo).unwrap();
    assert!(
        disk_use.live_bytes == 0 && disk_use.pooled_bytes > 0,
        "{disk_use:?}"
    );
    world
        .git
        .shrink_pool(&world.repo, disk_use.pooled_bytes)
        .unwrap();
    assert_eq!(world.pooled(), ["A1", "A2"]);
    world
        .git
        .shrink_pool(&world.repo, disk_use.pooled_bytes - 1)
        .unwrap();
    assert_eq!(world.pooled(), ["A2"], "the oldest goes first");
    world.git.shrink_pool(&world.repo, 0).unwrap();
    assert_eq!(world.pooled(), Vec::<String>::new());

    world.repo.workspace.pool = 0;
    world.prepare(A1);
    world.finish_workspace(A1);
    assert_eq!(world.pooled(), Vec::<String>::new());
}

#[test]
fn pooled_workspace_follows_a_change_of_the_sparse_directories() {
    let mut world = World::new();
    write(world.user().join("docs/d.md"), "d\n");
    commit_all(world.user(), "docs");
    world.repo.workspace.sparse = vec!["src".into()];
    let sparse = world.prepare(A1).path;
    assert!(!sparse.join("docs").exists());
    write(sparse.join("docs/d.md"), "left behind\n");
    world.finish_workspace(A1);
    // An absent file changes on the trunk, and is still absent in the reused directory.
    write(world.user().join("docs/d.md"), "newer\n");
    commit_all(world.user(), "newer docs");
    let reused = world.prepare(A2).path;
    assert_eq!(world.pooled(), Vec::<String>::new());
    assert!(!reused.join("docs").exists() && reused.join("src/lib.rs").exists());
    assert_eq!(world.capture(A2).changed, Vec::<String>::new());
    world.finish_workspace(A2);
    world.repo.workspace.sparse = vec![];
    let full = world.prepare(AttemptId(3)).path;
    assert_eq!(read(full.join("docs/d.md")), "newer\n");
    assert_eq!(world.capture(AttemptId(3)).changed, Vec::<String>::new());
}

#[test]
fn simultaneous_attempts_share_the_pool() {
    let world = World::new();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for round in 0..4 {
                    let attempt = AttemptId(100 + number * 10 + round);
                    let dir = world.prepare(attempt).path;
                    assert_eq!(git(&dir, &["status", "--porcelain", "--ignored"]), "");
                    write(dir.join(format!("{attempt}.txt")), "x");
                    write(dir.join("ignored.log"), "x");
                    assert_eq!(world.capture(attempt).changed, [format!("{attempt}.txt")]);
                    world.remove_workspace(attempt);
                }
            });
        }
    });
    assert!(
        world.pooled().len() <= 4 && world.pooled().iter().all(|world| !world.starts_with('.')),
        "{:?}",
        world.pooled()
    );
}
