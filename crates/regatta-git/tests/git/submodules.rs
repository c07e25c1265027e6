//! Tests of submodules. Every checkout contains them, and an agent's work in them is kept or named.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::parts::*;
use regatta_engine::ports::git::{CommitRange, TrunkMoveResult};

use crate::git_server::Server;
use crate::world::{
    A1, A2, SLOT, World, authorship, branch, commit_all, git, init, read, try_git, write,
};

/// The setting with which git fetches a submodule from a path.
const ALLOW_FILE_TRANSPORT: [&str; 2] = ["-c", "protocol.file.allow=always"];

fn git_with_file_transport(dir: &Path, args: &[&str]) -> String {
    git(dir, &[&ALLOW_FILE_TRANSPORT, args].concat())
}

/// Creates a project whose submodule `lib` has a submodule `deep`, all checked out. Also returns
/// the path of the library.
fn with_library() -> (World, PathBuf) {
    let world = World::new();
    let (library, deep) = (
        world.home.path().join("library"),
        world.home.path().join("deep"),
    );
    for (dir, text) in [(&deep, "deep\n"), (&library, "one\n")] {
        init(dir, &[]);
        write(dir.join("inner"), text);
        write(dir.join(".gitignore"), "*.o\n");
        commit_all(dir, "first");
    }
    git_with_file_transport(
        &library,
        &[
            "submodule",
            "--quiet",
            "add",
            deep.to_str().unwrap(),
            "deep",
        ],
    );
    commit_all(&library, "nested");
    git_with_file_transport(
        world.user(),
        &[
            "submodule",
            "--quiet",
            "add",
            library.to_str().unwrap(),
            "lib",
        ],
    );
    git_with_file_transport(
        world.user(),
        &["submodule", "--quiet", "update", "--init", "--recursive"],
    );
    commit_all(world.user(), "with a library");
    (world, library)
}

/// Returns every file below a directory with its content and its mode.
fn all_files(dir: &Path) -> Vec<(PathBuf, Vec<u8>, fs::Permissions)> {
    let mut files = Vec::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                pending.push(path)
            } else {
                files.push((
                    path.clone(),
                    fs::read(&path).unwrap(),
                    entry.metadata().unwrap().permissions(),
                ))
            }
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

/// Returns the submodule's commit in a commit of the vault.
fn pointer(world: &World, commit: &CommitId) -> String {
    git(&world.vault(), &["rev-parse", &format!("{commit}:lib")])
}

fn unpublished(world: &World, base: &CommitId, commit: &CommitId) -> Vec<String> {
    world
        .git
        .unpublished_submodules(&world.repo, CommitRange { base, commit })
        .unwrap()
}

/// Asserts that a checkout has the library and its nested submodule, and nothing else.
#[track_caller]
fn assert_has_library(dir: &Path) {
    assert_eq!(read(dir.join("lib/inner")), "one\n");
    assert_eq!(read(dir.join("lib/deep/inner")), "deep\n");
    assert_eq!(git(dir, &["status", "--porcelain", "--ignored"]), "");
    assert_eq!(
        git(&dir.join("lib"), &["status", "--porcelain", "--ignored"]),
        ""
    );
    assert_eq!(
        git(
            &dir.join("lib/deep"),
            &["status", "--porcelain", "--ignored"]
        ),
        ""
    );
}

#[test]
fn workspaces_and_staging_directories_have_nested_submodules() {
    let (mut world, _) = with_library();
    world.repo.workspace.pool = 1;
    let modules = world.user().join(".git/modules");
    let before = all_files(&modules);
    let workspace = world.prepare(A1).path;
    assert_has_library(&workspace);
    let stage = world.git.stage(&world.repo, SLOT, &world.tip()).unwrap();
    assert_has_library(&stage);

    // A check leaves files behind, changes files and moves the pointer. The next staging removes
    // all of that.
    write(stage.join("lib/inner"), "changed\n");
    write(stage.join("lib/left.o"), "ignored\n");
    write(stage.join("lib/deep/left"), "left\n");
    commit_all(&stage.join("lib"), "moved");
    world.git.stage(&world.repo, SLOT, &world.tip()).unwrap();
    assert_has_library(&stage);

    // The attempt changed nothing, and a reused workspace equals a new one.
    assert_eq!(world.capture(A1).changed, Vec::<String>::new());
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    write(workspace.join("lib/left.o"), "ignored\n");
    world.remove_workspace(A1);
    assert_has_library(&world.prepare(A2).path);
    assert!(
        all_files(&modules) == before,
        "the user's own modules were changed"
    );
}

#[test]
fn commit_in_a_submodule_is_kept_validated_and_sent_to_the_users_copy() {
    let (world, library) = with_library();
    let workspace = world.prepare(A1).path;
    write(workspace.join("lib/inner"), "two\n");
    let commit = commit_all(&workspace.join("lib"), "two");
    let capture = world.capture(A1);
    assert_eq!(capture.changed, ["lib"]);
    assert_eq!(pointer(&world, &capture.commit), commit.as_str());
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    world.remove_workspace(A1);
    world
        .git
        .collect_garbage(&world.repo, &[], Duration::ZERO)
        .unwrap();

    let new = world.clean_trial(&capture.commit);
    let stage = world.git.stage(&world.repo, SLOT, &new).unwrap();
    assert_eq!(read(stage.join("lib/inner")), "two\n");
    assert_eq!(read(stage.join("lib/deep/inner")), "deep\n");

    // Nobody else can fetch the commit until it is pushed from the user's own copy.
    assert_eq!(unpublished(&world, &capture.base, &capture.commit), ["lib"]);
    let copy = world.user().join("lib");
    git(
        &copy,
        &[
            "push",
            "-q",
            library.to_str().unwrap(),
            &format!("{commit}:refs/heads/two"),
        ],
    );
    assert_eq!(
        unpublished(&world, &capture.base, &capture.commit),
        ["lib"],
        "git does not read a remote that is a path by default"
    );
    git(&copy, &["config", "protocol.file.allow", "always"]);
    assert_eq!(
        unpublished(&world, &capture.base, &capture.commit),
        Vec::<String>::new()
    );

    // The checkout gets the pointer and keeps its own submodule, which does not stop the next
    // landing.
    assert_eq!(world.land(&capture.base, &new), TrunkMoveResult::Moved);
    assert_eq!(world.status(), " M lib");
    assert_eq!(read(copy.join("inner")), "one\n");
    let next = world.change_ready_to_land(A2, &[("a.txt", "two\n")]);
    assert_eq!(world.land(&new, &next), TrunkMoveResult::Moved);
    git_with_file_transport(
        world.user(),
        &["submodule", "--quiet", "update", "--no-fetch"],
    );
    assert_eq!(
        (read(copy.join("inner")).as_str(), world.status().as_str()),
        ("two\n", "")
    );
}

#[test]
fn commit_in_a_nested_submodule_is_kept() {
    let (world, _) = with_library();
    let workspace = world.prepare(A1).path;
    write(workspace.join("lib/deep/inner"), "deeper\n");
    let deepest = commit_all(&workspace.join("lib/deep"), "deeper");
    assert_eq!(
        world
            .git
            .capture(&world.repo, A1, &authorship("work"))
            .unwrap_err()
            .code,
        "submodule_edited"
    );
    commit_all(&workspace.join("lib"), "with the deeper one");
    let capture = world.capture(A1);
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    world.remove_workspace(A1);
    world
        .git
        .collect_garbage(&world.repo, &[], Duration::ZERO)
        .unwrap();
    let stage = world
        .git
        .stage(&world.repo, SLOT, &world.clean_trial(&capture.commit))
        .unwrap();
    assert_eq!(read(stage.join("lib/deep/inner")), "deeper\n");
    assert_eq!(
        unpublished(&world, &capture.base, &capture.commit),
        ["lib", "lib/deep"]
    );
    git(
        &world.user().join("lib/deep"),
        &["cat-file", "-e", deepest.as_str()],
    );
}

/// Q3: a pointer that the agent moved only in its index is captured.
#[test]
fn q3_a_submodule_pointer_moved_only_in_the_index_is_captured() {
    let (world, library) = with_library();
    write(library.join("inner"), "two\n");
    let newer = commit_all(&library, "two");
    git(&world.user().join("lib"), &["fetch", "-q"]);
    let workspace = world.prepare(A1).path;
    git(
        &workspace,
        &[
            "update-index",
            "--cacheinfo",
            &format!("160000,{newer},lib"),
        ],
    );
    let capture = world.capture(A1);
    assert_eq!(capture.changed, ["lib"]);
    assert_eq!(pointer(&world, &capture.commit), newer.as_str());
    assert_eq!(
        unpublished(&world, &capture.base, &capture.commit),
        Vec::<String>::new()
    );
    let stage = world
        .git
        .stage(&world.repo, SLOT, &world.clean_trial(&capture.commit))
        .unwrap();
    assert_eq!(read(stage.join("lib/inner")), "two\n");
}

#[test]
fn submodule_pointer_to_a_missing_commit_is_refused() {
    let (world, _) = with_library();
    let workspace = world.prepare(A1).path;
    let nowhere = "1".repeat(40);
    git(
        &workspace,
        &[
            "update-index",
            "--cacheinfo",
            &format!("160000,{nowhere},lib"),
        ],
    );
    let error = world
        .git
        .capture(&world.repo, A1, &authorship("work"))
        .unwrap_err();
    assert_eq!(error.code, "submodule_commit_missing", "{error}");
    assert!(
        error.message.contains("lib") && error.message.contains(&nowhere[..10]),
        "{error}"
    );
}

/// Q3: uncommitted edits in a submodule cannot land, but are kept.
#[test]
fn q3_uncommitted_edits_in_a_submodule_are_named_and_kept() {
    let (world, _) = with_library();
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "work\n");
    write(workspace.join("lib/inner"), "edited\n");
    write(workspace.join("lib/new"), "new\n");
    write(workspace.join("lib/built.o"), "ignored\n");
    write(workspace.join("lib/deep/inner"), "edited too\n");
    assert!(!world.uncaptured_paths(A1).is_empty());
    let error = world
        .git
        .capture(&world.repo, A1, &authorship("work"))
        .unwrap_err();
    assert_eq!(error.code, "submodule_edited", "{error}");
    for name in ["lib/inner", "lib/new", "lib/deep/inner"] {
        assert!(error.message.contains(name), "{error}");
    }
    assert!(!error.message.contains("built.o"), "{error}");
    // All of it is kept, so the workspace may be removed.
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    let keep_refs = git(
        &world.vault(),
        &[
            "for-each-ref",
            "--format=%(objectname)",
            "refs/regatta/keep/",
        ],
    );
    let holds = |path: &str, text: &str| {
        keep_refs.lines().any(|commit| {
            let output = try_git(
                &world.vault(),
                ["cat-file", "blob", &format!("{commit}:{path}")],
            );
            output.stdout == text.as_bytes()
        })
    };
    assert!(holds("a.txt", "work\n") && holds("inner", "edited\n") && holds("new", "new\n"));
    assert!(holds("inner", "edited too\n"));

    git(&workspace.join("lib/deep"), &["checkout", "-q", "."]);
    git(&workspace.join("lib"), &["checkout", "-q", "."]);
    fs::remove_file(workspace.join("lib/new")).unwrap();
    assert_eq!(world.capture(A1).changed, ["a.txt"]);
}

/// Files that a setup command leaves in a submodule are not the attempt's work.
#[test]
fn files_made_by_setup_in_a_submodule_are_left_out() {
    let (world, _) = with_library();
    let workspace = world.prepare(A1).path;
    write(workspace.join("lib/built"), "by the setup command\n");
    world.git.mark_ready(&world.repo, A1, &[]).unwrap();
    assert_eq!(world.capture(A1).changed, Vec::<String>::new());
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    write(workspace.join("lib/new"), "by the agent\n");
    let error = world
        .git
        .capture(&world.repo, A1, &authorship("work"))
        .unwrap_err();
    assert!(
        error.message.contains("lib/new") && !error.message.contains("lib/built"),
        "{error}"
    );
}

#[test]
fn submodule_that_the_user_has_not_checked_out_stays_empty() {
    let (first, _) = with_library();
    let path = first.home.path().join("clone");
    git(
        first.home.path(),
        &["clone", "-q", first.user().to_str().unwrap(), "clone"],
    );
    let home = tempfile::tempdir().unwrap();
    let world = World::with_repo_at(home, path);
    let workspace = world.prepare(A1).path;
    assert_eq!(fs::read_dir(workspace.join("lib")).unwrap().count(), 0);
    write(workspace.join("a.txt"), "work\n");
    let capture = world.capture(A1);
    assert_eq!(capture.changed, ["a.txt"]);
    world.git.stage(&world.repo, SLOT, &capture.commit).unwrap();
    let facts = world.git.inspect(world.user()).unwrap();
    assert_eq!(
        facts
            .submodules
            .iter()
            .map(|facts| (facts.path.as_str(), facts.is_checked_out))
            .collect::<Vec<_>>(),
        [("lib", false)]
    );
}

#[test]
fn submodule_commit_missing_in_the_users_copy_is_fetched_or_named() {
    let (world, library) = with_library();
    write(library.join("inner"), "two\n");
    let newer = commit_all(&library, "two");
    git(
        world.user(),
        &[
            "update-index",
            "--cacheinfo",
            &format!("160000,{newer},lib"),
        ],
    );
    git(world.user(), &["commit", "-q", "-m", "a newer library"]);
    let prepare = || {
        world
            .git
            .prepare_workspace(&world.repo, A1, &branch("regatta/a1"))
    };
    let refused = |why: &str| {
        let error = prepare().unwrap_err();
        assert_eq!(error.code, "submodule_missing", "{why}: {error}");
        assert!(
            error.message.contains("lib") && error.message.contains(&newer.as_str()[..10]),
            "{why}: {error}"
        );
        assert!(
            error
                .hint
                .contains("git submodule update --init --recursive"),
            "{why}: {error}"
        );
        assert_eq!(
            world
                .git
                .stage(&world.repo, SLOT, &world.tip())
                .unwrap_err()
                .code,
            "submodule_missing",
            "{why}"
        );
    };
    refused("git does not fetch a submodule from a path by default");
    let copy = world.user().join("lib");
    git(&copy, &["config", "protocol.file.allow", "always"]);
    let away = world.home.path().join("away");
    fs::rename(&library, &away).unwrap();
    refused("the remote is gone");
    fs::rename(&away, &library).unwrap();
    let workspace = prepare().unwrap().path;
    assert_eq!(read(workspace.join("lib/inner")), "two\n");
    assert_eq!(read(copy.join("inner")), "one\n");
    let lacks = try_git(&copy, ["cat-file", "-e", newer.as_str()]);
    assert!(!lacks.status.success(), "the user's copy was changed");
}

/// S5: a few commits that refer to each other many times would fill the disk when checked out.
#[test]
fn s5_too_many_nested_submodules_are_refused() {
    let (world, _) = with_library();
    let workspace = world.prepare(A1).path;
    let library = workspace.join("lib");
    for _ in 0..4 {
        let around = git(&library, &["rev-parse", "HEAD"]);
        for number in 0..40 {
            fs::create_dir_all(library.join(format!("again{number}"))).unwrap();
            git(
                &library,
                &[
                    "update-index",
                    "--add",
                    "--cacheinfo",
                    &format!("160000,{around},again{number}"),
                ],
            );
        }
        git(&library, &["commit", "-q", "-m", "more of the same"]);
    }
    let most = git(&library, &["rev-parse", "HEAD"]);
    let capture = world.capture(A1);
    assert_eq!(pointer(&world, &capture.commit), most);
    let error = world
        .git
        .stage(&world.repo, SLOT, &capture.commit)
        .unwrap_err();
    assert_eq!(error.code, "too_many_submodules", "{error}");
    assert_eq!(
        unpublished(&world, &capture.base, &capture.commit)[0],
        "lib"
    );
}

/// Many projects clone their submodules with `--depth 1`.
#[test]
fn shallow_clone_of_a_submodule_is_sufficient() {
    let (world, library) = with_library();
    let copy = world.user().join("lib");
    git(
        &copy,
        &[
            "fetch",
            "-q",
            "--depth=1",
            "--update-shallow",
            &format!("file://{}", library.display()),
            "main",
        ],
    );
    git(&copy, &["reflog", "expire", "--expire=now", "--all"]);
    assert_eq!(git(&copy, &["rev-list", "--count", "HEAD"]), "1");
    let workspace = world.prepare(A1).path;
    assert_has_library(&workspace);
    write(workspace.join("lib/inner"), "two\n");
    commit_all(&workspace.join("lib"), "two");
    write(workspace.join("a.txt"), "work\n");
    let capture = world.capture(A1);
    assert_eq!(capture.changed, ["a.txt", "lib"]);
    let new = world.clean_trial(&capture.commit);
    let stage = world.git.stage(&world.repo, SLOT, &new).unwrap();
    assert_eq!(read(stage.join("lib/inner")), "two\n");
    assert_eq!(unpublished(&world, &capture.base, &capture.commit), ["lib"]);
    assert_eq!(world.land(&capture.base, &new), TrunkMoveResult::Moved);
    git_with_file_transport(
        world.user(),
        &["submodule", "--quiet", "update", "--no-fetch"],
    );
    assert_eq!(read(copy.join("inner")), "two\n");
}

#[test]
fn runner_has_the_submodules_and_pushes_commits_made_in_them() {
    let (world, _) = with_library();
    let server = Server::new(world, &[A1]);
    let runner = crate::remote::runner(&server);
    runner
        .git
        .fetch_project(&runner.repo, &server.remote(), &[])
        .unwrap();
    let workspace = runner.prepare(A1).path;
    assert_has_library(&workspace);
    write(workspace.join("lib/inner"), "two\n");
    commit_all(&workspace.join("lib"), "two");
    let captured = runner.capture(A1);
    runner
        .git
        .push_capture(&runner.repo, &server.remote(), A1)
        .unwrap();
    let stage = server
        .world
        .git
        .stage(&server.world.repo, SLOT, &captured.commit)
        .unwrap();
    assert_eq!(read(stage.join("lib/inner")), "two\n");
    assert_eq!(
        unpublished(&server.world, &captured.base, &captured.commit),
        ["lib"]
    );
}

/// S5: no command that `.gitmodules` names runs, and no path or URL in it is followed.
#[test]
fn s5_a_hostile_gitmodules_file_has_no_effect() {
    let (world, _) = with_library();
    let canary = world.home.path().join("canary");
    let touch = format!("touch '{}'", canary.display());
    // A name with `..` would lead to a repository with a commit that no other has.
    let outside = world.user().join(".git/outside");
    git(
        world.home.path(),
        &[
            "clone",
            "-q",
            "--bare",
            "library",
            outside.to_str().unwrap(),
        ],
    );
    let only_outside = git(&outside, &["commit-tree", "HEAD^{tree}", "-m", "outside"]);
    let unknown = "2".repeat(40);
    let mut rules = String::new();
    for (name, path, url) in [
        ("update", "update", format!("ext::sh -c {touch}")),
        ("../outside", "dots", format!("--upload-pack={touch}")),
        ("/etc", "absolute", "file:///etc".into()),
        ("leaves", "../../leaves", "https://127.0.0.1:1/x".into()),
        ("git", ".git/hooks", "-oProxyCommand=x:y".into()),
    ] {
        rules += &format!(
            "[submodule \"{name}\"]\n\tpath = {path}\n\turl = \"{url}\"\n\tupdate = \"!{touch}\"\n"
        );
    }
    write(world.user().join(".gitmodules"), rules);
    git(world.user(), &["add", ".gitmodules"]);
    for (path, commit) in [
        ("update", unknown.as_str()),
        ("dots", only_outside.as_str()),
        ("absolute", unknown.as_str()),
    ] {
        git(
            world.user(),
            &[
                "update-index",
                "--add",
                "--cacheinfo",
                &format!("160000,{commit},{path}"),
            ],
        );
    }
    git(world.user(), &["commit", "-q", "-m", "hostile"]);
    let workspace = world.prepare(A1).path;
    let stage = world.git.stage(&world.repo, SLOT, &world.tip()).unwrap();
    for dir in [&workspace, &stage] {
        for empty in ["update", "dots", "absolute"] {
            assert_eq!(fs::read_dir(dir.join(empty)).unwrap().count(), 0, "{empty}");
        }
        assert_eq!(
            read(dir.join("lib/inner")),
            "one\n",
            "the user has checked out this submodule"
        );
        assert!(!dir.join(".git/hooks").exists());
        assert!(
            !dir.parent()
                .unwrap()
                .parent()
                .unwrap()
                .join("leaves")
                .exists()
        );
    }
    write(workspace.join("a.txt"), "work\n");
    world.capture(A1);
    world.uncaptured_paths(A1);
    assert!(!canary.exists());
}
