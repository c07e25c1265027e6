//! Tests of describing a repository.

use std::fs;
use std::path::Path;

use regatta_engine::ports::git::RepoFacts;
use regatta_git::GitAdapter;

use crate::world::*;

fn repo_facts(path: &Path) -> RepoFacts {
    GitAdapter::new("/nonexistent".into())
        .inspect(path)
        .unwrap()
}

#[test]
fn inspecting_any_directory_of_a_repository_describes_the_repository() {
    let world = World::new();
    let facts = repo_facts(world.user());
    let expected = RepoFacts {
        top: fs::canonicalize(world.user()).unwrap(),
        branch: Some(branch("main")),
        is_unborn: false,
        is_bare: false,
        dirty_files: vec![],
        has_untracked_settings: false,
        operation_in_progress: None,
        submodules: vec![],
        has_lfs: false,
    };
    assert_eq!(facts, expected);
    assert_eq!(repo_facts(&world.user().join("src")), expected);

    write(world.user().join("regatta.toml"), "[project]\n");
    assert!(repo_facts(&world.user().join("src")).has_untracked_settings);
    write(world.user().join(".git/info/exclude"), "regatta.toml\n");
    assert!(!repo_facts(world.user()).has_untracked_settings);

    write(world.user().join("a.txt"), "edited\n");
    write(world.user().join("untracked"), "x");
    let index = fs::read(world.user().join(".git/index")).unwrap();
    assert_eq!(repo_facts(&world.user().join("src")).dirty_files, ["a.txt"]);
    assert_eq!(
        fs::read(world.user().join(".git/index")).unwrap(),
        index,
        "inspecting does not write the index"
    );
    git(world.user(), &["checkout", "-q", "--detach"]);
    assert_eq!(
        (
            repo_facts(world.user()).branch,
            repo_facts(world.user()).is_unborn
        ),
        (None, false)
    );

    let linked = world.home.path().join("linked");
    git(
        world.user(),
        &["worktree", "add", "-q", linked.to_str().unwrap(), "main"],
    );
    let facts = repo_facts(&linked);
    assert_eq!(
        (facts.branch, facts.top),
        (Some(branch("main")), fs::canonicalize(&linked).unwrap())
    );

    for number in 0..30 {
        write(world.user().join(format!("many/{number}")), "x");
    }
    git(world.user(), &["add", "-A"]);
    assert_eq!(repo_facts(world.user()).dirty_files.len(), 10);
}

#[test]
fn unfinished_operation_is_named() {
    let world = World::new();
    for (sign, name) in [
        ("rebase-merge/done", "a rebase"),
        ("rebase-apply/applying", "applying patches"),
        ("rebase-apply/next", "a rebase"),
        ("MERGE_HEAD", "a merge"),
        ("CHERRY_PICK_HEAD", "a cherry-pick"),
        ("REVERT_HEAD", "a revert"),
        ("BISECT_LOG", "a bisect"),
    ] {
        let path = world.user().join(".git").join(sign);
        write(&path, world.tip().as_str());
        assert_eq!(repo_facts(world.user()).operation_in_progress, Some(name));
        fs::remove_file(&path).unwrap();
        let _ = fs::remove_dir(path.parent().unwrap());
    }
}

#[test]
fn unusable_repository_is_refused_with_a_hint() {
    let home = temp_dir();
    let adapter = GitAdapter::new(home.path().join("data"));
    let error = adapter.inspect(home.path()).unwrap_err();
    assert_eq!(error.code, "not_a_repository");
    assert!(error.hint.contains("git init") && error.hint.contains("regatta -C PATH"));
    assert_eq!(
        adapter
            .inspect(&home.path().join("absent"))
            .unwrap_err()
            .code,
        "not_a_repository"
    );

    let path = home.path().join("fresh");
    init(&path, &[]);
    let facts = repo_facts(&path);
    assert_eq!((facts.branch, facts.is_unborn), (None, true));
    assert_eq!(
        adapter.inspect(&path.join(".git")).unwrap_err().code,
        "not_a_repository"
    );
    let world = World::with_repo_at(home, path.clone());
    assert_eq!(
        world.git.tip(&world.repo).unwrap_err().code,
        "unborn_branch"
    );
    assert_eq!(
        world
            .git
            .prepare_workspace(&world.repo, A1, &branch("x"))
            .unwrap_err()
            .code,
        "unborn_branch"
    );
    assert!(!world.vault().exists());

    commit_all(&path, "first");
    git(&path, &["branch", "-q", "-M", "trunk"]);
    assert_eq!(
        world.git.tip(&world.repo).unwrap_err().code,
        "no_such_branch"
    );

    git(
        world.home.path(),
        &["clone", "-q", "--bare", "fresh", "bare.git"],
    );
    let facts = repo_facts(&world.home.path().join("bare.git"));
    assert_eq!((facts.is_bare, facts.branch), (true, Some(branch("trunk"))));
    assert_eq!(
        facts.top,
        fs::canonicalize(world.home.path().join("bare.git")).unwrap()
    );

    // A registered repository that is gone is not replaced by one in a directory above.
    let mut inner = World::with_repo_at(world.home, path.join("inner"));
    fs::create_dir(inner.user()).unwrap();
    inner.repo.trunk = branch("trunk");
    assert_eq!(
        inner.git.tip(&inner.repo).unwrap_err().code,
        "not_a_repository"
    );
}
