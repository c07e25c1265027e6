//! Tests of a runner that fetches a project, works on it and pushes captures.

use std::fs;
use std::path::Path;

use regatta_core::ids::{AttemptId, CommitId};
use regatta_core::task::Fixup;
use regatta_engine::ports::git::parts::*;
use regatta_engine::ports::git::{ProjectRepo, TrialMerge};
use regatta_git::GitAdapter;

use crate::git_server::{Server, TOKEN, fsck_findings};
use crate::world::{
    A1, A2, SingleMerge, World, authorship, change_of, commit_all, git, init, read, temp_dir, write,
};

/// Creates a runner's own world, whose repository is the mirror.
pub(crate) fn runner(server: &Server) -> World {
    let home = temp_dir();
    let git = GitAdapter::new(home.path().join("data dir"));
    let path = git.mirror_path(&server.world.repo.project);
    World {
        repo: ProjectRepo {
            path,
            ..server.world.repo.clone()
        },
        git,
        home,
    }
}

fn fetch_project(runner: &World, server: &Server) {
    runner
        .git
        .fetch_project(&runner.repo, &server.remote(), &[])
        .unwrap();
}

#[test]
fn runner_fetches_a_project_and_pushes_its_work() {
    let server = Server::new(World::new(), &[A1]);
    let runner = runner(&server);
    fetch_project(&runner, &server);
    assert_eq!(runner.tip(), server.world.tip());
    assert_eq!(
        runner.git.paths_at_tip(&runner.repo).unwrap(),
        server.world.git.paths_at_tip(&server.world.repo).unwrap()
    );
    assert_eq!(
        runner.git.trunk_facts(&runner.repo).unwrap().commits_behind,
        0
    );
    let workspace = runner.prepare(A1);
    assert_eq!(read(workspace.path.join("src/lib.rs")), "fn main() {}\n");
    write(workspace.path.join("src/lib.rs"), "fn main() { work() }\n");
    write(workspace.path.join("new.txt"), "new\n");
    let captured = runner.capture(A1);
    assert_eq!(runner.uncaptured_paths(A1), [""; 0]);
    runner
        .git
        .push_capture(&runner.repo, &server.remote(), A1)
        .unwrap();
    // The server determines the capture from the objects that it received.
    assert_eq!(
        server.world.git.captured(&server.world.repo, A1).unwrap(),
        Some(captured.clone())
    );
    let (old, new) = (
        server.world.tip(),
        server.world.clean_trial(&captured.commit),
    );
    server.world.land(&old, &new);
    assert_eq!(read(server.world.user().join("new.txt")), "new\n");
    fetch_project(&runner, &server);
    assert_eq!(runner.tip(), new);
    assert_eq!(runner.prepare(A2).base, new);
    runner.remove_workspace(A1);
    for vault in [
        runner.vault(),
        server.world.vault(),
        runner.repo.path.clone(),
    ] {
        assert_eq!(fsck_findings(&vault), "");
    }
}

/// J8: after a lost answer the outcome of a transfer is unknown, so every transfer can be repeated.
#[test]
fn j8_fetching_and_pushing_can_be_repeated() {
    let server = Server::new(World::new(), &[A1]);
    let runner = runner(&server);
    for round in 0..3 {
        fetch_project(&runner, &server);
        fetch_project(&runner, &server);
        write(
            runner.prepare(A1).path.join("new.txt"),
            format!("{round}\n"),
        );
        let captured = runner.capture(A1);
        for _ in 0..2 {
            runner
                .git
                .push_capture(&runner.repo, &server.remote(), A1)
                .unwrap();
            assert_eq!(
                server
                    .world
                    .git
                    .captured(&server.world.repo, A1)
                    .unwrap()
                    .unwrap(),
                captured
            );
        }
    }
    let before = runner.git.started_processes();
    fetch_project(&runner, &server);
    assert_eq!(
        runner.git.started_processes() - before,
        1,
        "a fetch without changes starts one git process"
    );
    // Every capture was pushed, including earlier ones (Q3).
    let keep_refs = |world: &World| git(&world.vault(), &["for-each-ref", "refs/regatta/keep/"]);
    assert_eq!(keep_refs(&server.world), keep_refs(&runner));
    assert_eq!(keep_refs(&runner).lines().count(), 3);
    runner
        .git
        .push_capture(&runner.repo, &server.remote(), A2)
        .unwrap();
    assert_eq!(
        keep_refs(&server.world),
        keep_refs(&runner),
        "an attempt without a capture pushes nothing"
    );
}

#[test]
fn mirror_follows_a_rewritten_trunk() {
    let server = Server::new(World::new(), &[]);
    let runner = runner(&server);
    write(server.world.user().join("a.txt"), "two\n");
    commit_all(server.world.user(), "two");
    fetch_project(&runner, &server);
    git(server.world.user(), &["reset", "-q", "--hard", "HEAD~1"]);
    write(server.world.user().join("a.txt"), "three\n");
    let rewritten = commit_all(server.world.user(), "three");
    fetch_project(&runner, &server);
    assert_eq!(runner.tip(), rewritten);
    assert_eq!(read(runner.prepare(A1).path.join("a.txt")), "three\n");
}

/// A fix-up is based on a commit that is on no branch.
#[test]
fn commits_on_no_branch_are_fetched_by_their_ids() {
    let server = Server::new(World::new(), &[A2]);
    write(server.world.prepare(A1).path.join("a.txt"), "theirs\n");
    let change = server.world.capture(A1).commit;
    write(server.world.user().join("a.txt"), "ours\n");
    commit_all(server.world.user(), "ours");
    assert!(matches!(
        server.world.trial(&change),
        TrialMerge::Conflict(_)
    ));
    let runner = runner(&server);
    runner
        .git
        .fetch_project(
            &runner.repo,
            &server.remote(),
            std::slice::from_ref(&change),
        )
        .unwrap();
    let branch = crate::world::branch("regatta/fix");
    let workspace = runner
        .git
        .prepare_fixup(
            &runner.repo,
            A2,
            &branch,
            &Fixup::new(change.clone()),
            &authorship("merged"),
        )
        .unwrap();
    assert!(read(workspace.path.join("a.txt")).contains("<<<<<<<"));
    write(workspace.path.join("a.txt"), "both\n");
    let capture = runner.capture(A2);
    let resolution = runner
        .git
        .squash_fixup(&runner.repo, A2, capture, &authorship("mended"))
        .unwrap();
    runner
        .git
        .push_capture(&runner.repo, &server.remote(), A2)
        .unwrap();
    assert_eq!(
        server.world.git.captured(&server.world.repo, A2).unwrap(),
        Some(resolution.clone())
    );
    assert!(matches!(
        server.world.trial(&resolution.commit),
        TrialMerge::Clean(_)
    ));
    let nowhere = CommitId::new(&"a".repeat(40)).unwrap();
    let error = runner
        .git
        .fetch_project(&runner.repo, &server.remote(), &[nowhere])
        .unwrap_err();
    assert_eq!(error.code, "no_such_commit", "{error}");
}

/// S6: only the mirror's trunk is ever moved by force.
#[test]
fn s6_a_fetch_into_a_users_repository_is_refused() {
    let server = Server::new(World::new(), &[]);
    let other_world = World::new();
    write(other_world.user().join("a.txt"), "precious\n");
    let tip = commit_all(other_world.user(), "precious");
    let error = other_world
        .git
        .fetch_project(&other_world.repo, &server.remote(), &[])
        .unwrap_err();
    assert_eq!(error.code, "not_a_mirror");
    assert_eq!(
        (other_world.tip(), other_world.status().as_str()),
        (tip, "")
    );
    assert!(
        server.log.lock().unwrap().is_empty(),
        "the server got no request"
    );
}

#[test]
fn server_refuses_a_push_for_an_attempt_of_another_runner() {
    let server = Server::new(World::new(), &[A2]);
    let runner = runner(&server);
    fetch_project(&runner, &server);
    write(runner.prepare(A1).path.join("new.txt"), "new\n");
    runner.capture(A1);
    let before = git(&server.world.vault(), &["for-each-ref"]);
    let error = runner
        .git
        .push_capture(&runner.repo, &server.remote(), A1)
        .unwrap_err();
    assert_eq!(
        (
            error.code,
            error.message.contains("the runner may not write this ref")
        ),
        ("ref_refused", true),
        "{error}"
    );
    assert_eq!(git(&server.world.vault(), &["for-each-ref"]), before);
    server.allow(&[A1]);
    runner
        .git
        .push_capture(&runner.repo, &server.remote(), A1)
        .unwrap();
}

/// S4: the token is in no message and in no file.
#[test]
fn s4_the_token_is_in_no_error_and_no_file() {
    let server = Server::new(World::new(), &[A1]);
    let runner = runner(&server);
    fetch_project(&runner, &server);
    write(runner.prepare(A1).path.join("new.txt"), "new\n");
    runner.capture(A1);
    runner
        .git
        .push_capture(&runner.repo, &server.remote(), A1)
        .unwrap();
    let mut wrong = server.remote();
    wrong.token = "rt_wrong-one".into();
    let error = runner
        .git
        .fetch_project(&runner.repo, &wrong, &[])
        .unwrap_err();
    assert_eq!(error.code, "unauthorized", "{error}");
    assert!(!format!("{error:?}").contains("rt_wrong"));
    let mut nobody = server.remote();
    nobody.url = "http://127.0.0.1:1/git/shop".into();
    let error = runner
        .git
        .fetch_project(&runner.repo, &nobody, &[])
        .unwrap_err();
    assert_eq!(error.code, "unreachable", "{error}");
    assert!(!format!("{error:?}").contains(TOKEN));
    assert_eq!(files_with(&runner.data(), TOKEN), 0);
    assert!(
        files_with(&runner.data(), "regatta") > 0,
        "the search finds existing text"
    );
}

fn files_with(dir: &Path, text: &str) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            count += files_with(&path, text);
        } else if fs::read(&path).is_ok_and(|bytes| {
            bytes
                .windows(text.len())
                .any(|bytes| bytes == text.as_bytes())
        }) {
            count += 1;
        }
    }
    count
}

/// D2: after an interruption at any byte the vault is sound, and the next fetch completes.
#[test]
fn d2_an_interrupted_fetch_leaves_a_sound_vault_and_can_be_repeated() {
    let server = Server::new(World::new(), &[]);
    let mut cuts = 0;
    for (round, after) in [0, 1, 5, 100, 300, 500, 700, 900].into_iter().enumerate() {
        // Half of the rounds start without a vault, half with one from an earlier fetch.
        let runner = runner(&server);
        if round % 2 == 1 {
            fetch_project(&runner, &server);
            write(server.world.user().join("noise"), random_text(4000 + round));
            commit_all(server.world.user(), "noise");
        }
        server.cut_answer_after(after);
        let first = runner
            .git
            .fetch_project(&runner.repo, &server.remote(), &[]);
        cuts += usize::from(server.was_cut() && first.is_err());
        if runner.vault().is_dir() {
            assert_eq!(fsck_findings(&runner.vault()), "", "after {after} bytes");
        }
        fetch_project(&runner, &server);
        assert_eq!(
            (runner.tip(), fsck_findings(&runner.vault())),
            (server.world.tip(), String::new())
        );
        runner.prepare(A1);
    }
    assert!(cuts >= 6, "only {cuts} fetches were interrupted");
}

#[test]
fn d2_an_interrupted_push_arrives_whole_or_not_at_all() {
    let server = Server::new(World::new(), &[A1]);
    let runner = runner(&server);
    fetch_project(&runner, &server);
    let mut cuts = 0;
    for (round, after) in [0, 3, 50, 200, 300, 1000, 3000, 5000]
        .into_iter()
        .enumerate()
    {
        write(
            runner.prepare(A1).path.join("noise"),
            random_text(6000 + round),
        );
        let captured = runner.capture(A1);
        let before = server.world.git.captured(&server.world.repo, A1).unwrap();
        server.cut_request_after(after);
        let first = runner.git.push_capture(&runner.repo, &server.remote(), A1);
        assert!(server.was_cut() && first.is_err(), "{after}");
        cuts += 1;
        assert_eq!(
            server.world.git.captured(&server.world.repo, A1).unwrap(),
            before
        );
        assert_eq!(fsck_findings(&server.world.vault()), "");
        // Now the push arrives, but its answer is lost.
        server.cut_answer_after(0);
        assert!(
            runner
                .git
                .push_capture(&runner.repo, &server.remote(), A1)
                .is_err()
        );
        assert!(server.was_cut());
        assert_eq!(
            server
                .world
                .git
                .captured(&server.world.repo, A1)
                .unwrap()
                .as_ref(),
            Some(&captured)
        );
        runner
            .git
            .push_capture(&runner.repo, &server.remote(), A1)
            .unwrap();
        assert_eq!(
            server.world.git.captured(&server.world.repo, A1).unwrap(),
            Some(captured)
        );
    }
    assert_eq!(cuts, 8);
    let leftovers = fs::read_dir(server.world.vault().join("objects"))
        .unwrap()
        .flatten();
    let leftovers: Vec<_> = leftovers
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with("tmp_"))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

/// Returns text that does not compress.
fn random_text(size: usize) -> Vec<u8> {
    let mut state = size as u64;
    std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    })
    .take(size)
    .collect()
}

#[test]
fn unusual_repositories_can_be_fetched_and_pushed() {
    // The repositories have a shallow history, long ids, or packed refs.
    for odd in ["shallow", "sha256", "packed"] {
        let world = match odd {
            "sha256" => World::with_init_args(&["--object-format=sha256"]),
            _ => World::new(),
        };
        for round in 0..4 {
            write(world.user().join("a.txt"), round.to_string());
            commit_all(world.user(), "more");
        }
        let world = match odd {
            "shallow" => {
                let (dir, from) = (
                    world.home.path().join("shallow"),
                    format!("file://{}", world.user().display()),
                );
                git(
                    world.home.path(),
                    &["clone", "-q", "--depth=2", &from, dir.to_str().unwrap()],
                );
                World::with_repo_at(world.home, dir)
            }
            _ => world,
        };
        if odd == "packed" {
            git(world.user(), &["pack-refs", "--all"]);
        }
        assert_survives_transfer(world, odd);
    }
    // This repository has names that need quoting, a link, a submodule and an empty file.
    let world = World::new();
    let user = world.user().to_owned();
    for name in ["-x", "a b", "\u{e4}\n\t", "--", "deep/er/\"quoted\""] {
        write(user.join(name), name);
    }
    write(user.join("empty"), "");
    std::os::unix::fs::symlink("../outside", user.join("link")).unwrap();
    let inner = world.home.path().join("inner");
    init(&inner, &[]);
    write(inner.join("x"), "x");
    commit_all(&inner, "inner");
    let inner = inner.to_str().unwrap().to_owned();
    git(
        &user,
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            &inner,
            "sub",
        ],
    );
    commit_all(&user, "odd");
    assert_survives_transfer(world, "names");
}

fn assert_survives_transfer(world: World, case: &str) {
    let server = Server::new(world, &[A1]);
    let runner = runner(&server);
    fetch_project(&runner, &server);
    assert_eq!(runner.tip(), server.world.tip(), "{case}");
    write(runner.prepare(A1).path.join("new.txt"), "new\n");
    let captured = runner.capture(A1);
    assert_eq!(captured.changed, ["new.txt"], "{case}");
    runner
        .git
        .push_capture(&runner.repo, &server.remote(), A1)
        .unwrap();
    assert_eq!(
        server.world.git.captured(&server.world.repo, A1).unwrap(),
        Some(captured.clone()),
        "{case}"
    );
    let new = server.world.clean_trial(&captured.commit);
    server.world.land(&server.world.tip(), &new);
    fetch_project(&runner, &server);
    assert_eq!(runner.tip(), new, "{case}");
}

#[test]
fn two_runners_fetch_and_push_at_once_while_the_trunk_moves() {
    let attempts: Vec<AttemptId> = (1..=8).map(AttemptId).collect();
    let server = Server::new(World::new(), &attempts);
    let runners = [runner(&server), runner(&server)];
    std::thread::scope(|scope| {
        for attempt in &attempts {
            let (server, runner) = (&server, &runners[attempt.0 as usize % 2]);
            scope.spawn(move || {
                fetch_project(runner, server);
                write(
                    runner.prepare(*attempt).path.join(format!("{attempt}.txt")),
                    "work\n",
                );
                let captured = runner.capture(*attempt);
                fetch_project(runner, server);
                runner
                    .git
                    .push_capture(&runner.repo, &server.remote(), *attempt)
                    .unwrap();
                assert_eq!(
                    server
                        .world
                        .git
                        .captured(&server.world.repo, *attempt)
                        .unwrap(),
                    Some(captured)
                );
            });
        }
        for round in 0..4 {
            write(server.world.user().join("a.txt"), round.to_string());
            commit_all(server.world.user(), "meanwhile");
        }
    });
    for world in runners.iter().chain([&server.world]) {
        assert_eq!(fsck_findings(&world.vault()), "");
    }
    for runner in &runners {
        fetch_project(runner, &server);
        assert_eq!(runner.tip(), server.world.tip());
    }
}

/// A fix-up from a runner is recognised, and one with a base that the runner made up is not.
#[test]
fn q11_a_runners_fixup_is_accepted_only_on_the_servers_own_base() {
    let world = World::new();
    write(
        world.prepare(A1).path.join("src/lib.rs"),
        "fn main() { theirs() }\n",
    );
    let change = world.capture(A1).commit;
    write(world.user().join("src/lib.rs"), "fn main() { ours() }\n");
    commit_all(world.user(), "ours");
    let tip = world.tip();
    let server = Server::new(world, &[A2]);
    let runner = runner(&server);
    runner
        .git
        .fetch_project(
            &runner.repo,
            &server.remote(),
            std::slice::from_ref(&change),
        )
        .unwrap();
    let branch = regatta_core::ids::BranchName::new("regatta/T2-x").unwrap();
    let workspace = runner
        .git
        .prepare_fixup(
            &runner.repo,
            A2,
            &branch,
            &Fixup::new(change.clone()),
            &authorship("merged"),
        )
        .unwrap();
    assert!(read(workspace.path.join("src/lib.rs")).contains("<<<<<<<"));
    write(
        workspace.path.join("src/lib.rs"),
        "fn main() { ours(); theirs() }\n",
    );
    runner.capture(A2);
    runner
        .git
        .push_capture(&runner.repo, &server.remote(), A2)
        .unwrap();
    let (git, repo) = (&server.world.git, &server.world.repo);
    let captured = git.captured(repo, A2).unwrap().unwrap();
    assert!(
        git.recognise_fixup(repo, A2, &captured.base, &Fixup::new(change.clone()))
            .unwrap()
    );
    let repeated = git
        .squash_fixup(repo, A2, captured, &authorship("mended"))
        .unwrap();
    assert_eq!(
        (repeated.base, repeated.changed),
        (tip.clone(), vec!["src/lib.rs".to_owned()])
    );
    assert!(matches!(
        git.trial_merge(
            repo,
            &tip,
            &change_of(&repeated.commit, "x"),
            Default::default()
        )
        .unwrap(),
        TrialMerge::Clean(_)
    ));
    // A fix-up on any other base is not recognised.
    for base in [&tip, &repeated.commit] {
        assert!(
            !git.recognise_fixup(repo, A2, base, &Fixup::new(change.clone()))
                .unwrap(),
            "{base}"
        );
    }
}
