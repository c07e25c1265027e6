//! Test cases that every implementation of the git interface must pass: the fake in memory as well
//! as the adapter that runs git.
//!
//! The tests of an implementation implement [`GitHarness`], and
//! `regatta_testkit::git_suite!(make_harness)` creates one `#[test]` for each case. The cases use
//! files of one line, because the fake merges whole files.

use std::collections::BTreeMap;

use regatta_core::ids::{AttemptId, BranchName, CommitId, LandingId};
use regatta_core::project::CommitStyle;
use regatta_core::task::{ConflictKind, Fixup};
use regatta_engine::ports::git::{
    AuthoredChange, Authorship, Capture, CommitRange, Git, GitError, MergeSide, ProjectRepo,
    RebaseResult, TrialMerge, TrunkMoveResult, TrunkPermit, Workspace, WorkspaceCollision,
};

/// A git adapter under test, together with a user's repository. The repository has the files
/// `a.txt` ("one") and `b.txt` ("two") on its trunk `main`.
pub trait GitHarness {
    fn git(&self) -> &dyn Git;
    fn repo(&self) -> &ProjectRepo;
    /// Writes a file in an attempt's workspace, or removes the file if `content` is `None`.
    fn write(&self, attempt: AttemptId, path: &str, content: Option<&str>);
    /// Adds a commit to the trunk, as a person does.
    fn commit_as_person(&self, path: &str, content: &str) -> CommitId;
    /// Moves the trunk of the remote `origin` to a new commit on top of `parent`, and returns that
    /// commit.
    fn commit_on_remote(&self, parent: &CommitId, path: &str, content: &str) -> CommitId;
    /// Returns a permit to move the trunk of the repository's project.
    fn permit(&self) -> TrunkPermit;
}

macro_rules! cases {
    ($($name:ident;)*) => {
        /// Creates a `#[test]` for each test case. `$make` is an expression that creates a new
        /// [`GitHarness`].
        #[macro_export]
        macro_rules! git_suite {
            ($make:expr) => {
                $(#[test] fn $name() { $crate::git_suite::$name(&$make) })*
            };
        }
    };
}

cases! {
    the_trunk_is_read_by_commit_and_by_path;
    a_workspace_starts_at_the_tip_and_is_prepared_once;
    a_capture_has_every_change_and_is_kept;
    q5_uncaptured_paths_are_listed_until_they_are_captured;
    a_capture_is_restricted_to_paths;
    trial_merges_stack_and_end_at_a_conflict;
    conflicts_have_kinds;
    ownership_takes_one_side_and_keeps_the_other;
    a_squash_has_the_files_of_the_range_and_a_revert_undoes_it;
    commits_with_the_same_files_have_the_same_tree;
    q2_the_trunk_moves_only_from_the_expected_commit;
    a_landing_is_found_by_its_trailer;
    a_fixup_starts_with_the_merge_and_is_squashed_onto_the_tip;
    the_trunk_is_rebased_onto_a_remote;
    collisions_name_both_attempts_or_the_trunk;
}

const A1: AttemptId = AttemptId(1);
const A2: AttemptId = AttemptId(2);

fn authorship(message: &str) -> Authorship {
    Authorship {
        name: "amber".into(),
        email: "amber@regatta.invalid".into(),
        message: message.into(),
        unix_seconds: 1000,
    }
}

fn change_of(commit: &CommitId, message: &str) -> AuthoredChange {
    AuthoredChange {
        commit: commit.clone(),
        authorship: authorship(message),
    }
}

fn tip(world: &dyn GitHarness) -> CommitId {
    world.git().tip(world.repo()).unwrap()
}

fn prepare(world: &dyn GitHarness, attempt: AttemptId) -> Workspace {
    let branch = BranchName::new(&format!("regatta/{attempt}")).unwrap();
    world
        .git()
        .prepare_workspace(world.repo(), attempt, &branch)
        .unwrap()
}

/// Prepares a workspace, changes the files in it, and captures the work.
fn work(world: &dyn GitHarness, attempt: AttemptId, files: &[(&str, Option<&str>)]) -> Capture {
    prepare(world, attempt);
    for (path, content) in files {
        world.write(attempt, path, *content);
    }
    let message = authorship("work");
    world
        .git()
        .capture(world.repo(), attempt, &message)
        .unwrap()
}

fn text_at(world: &dyn GitHarness, commit: &CommitId, path: &str) -> Option<String> {
    let content = world.git().file_at(world.repo(), commit, path).unwrap();
    content.map(|bytes| String::from_utf8(bytes).unwrap())
}

fn trial(world: &dyn GitHarness, onto: &CommitId, commit: &CommitId) -> TrialMerge {
    let changes = [change_of(commit, "land it")];
    let merged = world
        .git()
        .trial_merges(world.repo(), onto, &changes, CommitStyle::Squash);
    merged.unwrap().pop().unwrap()
}

fn clean_trial(world: &dyn GitHarness, onto: &CommitId, commit: &CommitId) -> CommitId {
    match trial(world, onto, commit) {
        TrialMerge::Clean(merged) => merged,
        other => panic!("{other:?}"),
    }
}

fn move_trunk(
    world: &dyn GitHarness,
    old: &CommitId,
    new: &CommitId,
) -> Result<TrunkMoveResult, GitError> {
    world.git().stage(world.repo(), 0, new).unwrap();
    world
        .git()
        .move_trunk(&world.permit(), world.repo(), old, new)
}

pub fn the_trunk_is_read_by_commit_and_by_path(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    let first = tip(world);
    let second = world.commit_as_person("c.txt", "three\n");
    let third = world.commit_as_person("a.txt", "four\n");
    assert_eq!(tip(world), third);
    assert_eq!(git.trunk_facts(repo).unwrap().tip, third);
    assert_eq!(git.paths_at_tip(repo).unwrap(), ["a.txt", "b.txt", "c.txt"]);
    assert_eq!(text_at(world, &third, "a.txt").as_deref(), Some("four\n"));
    assert_eq!(text_at(world, &first, "c.txt"), None);
    assert!(git.contains(repo, &third, &first).unwrap());
    assert!(!git.contains(repo, &first, &third).unwrap());
    assert!(git.contains_exactly(repo, &second).unwrap());
    let all = [first.clone(), second.clone(), third.clone()];
    assert_eq!(
        git.missing_commits(repo, &second, &all).unwrap(),
        std::slice::from_ref(&third)
    );
    assert_eq!(
        git.current_commit_of(repo, &first).unwrap(),
        Some(first.clone())
    );
    assert_eq!(
        git.commits_between(repo, &first, &third).unwrap(),
        std::slice::from_ref(&second)
    );
    assert_eq!(git.unreleased_commits(repo, &third).unwrap().len(), 3);
    let seen = git
        .compare_trunk(repo, std::slice::from_ref(&second))
        .unwrap();
    let added: Vec<&CommitId> = seen.added.iter().map(|commit| &commit.commit).collect();
    assert_eq!((seen.missing.len(), added), (0, vec![&third]));
    assert!(git.inspect(&repo.path).unwrap().dirty_files.is_empty());
}

pub fn a_workspace_starts_at_the_tip_and_is_prepared_once(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    let workspace = prepare(world, A1);
    assert_eq!(workspace.base, tip(world));
    assert_eq!(workspace.path, git.workspace_path(repo, A1));
    world.commit_as_person("a.txt", "later\n");
    assert_eq!(prepare(world, A1), workspace);
    assert!(!git.is_ready(repo, A1));
    git.mark_ready(repo, A1, &[]).unwrap();
    assert!(git.is_ready(repo, A1));
}

pub fn a_capture_has_every_change_and_is_kept(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    assert_eq!(git.kept_work(repo, A1).unwrap(), None);
    assert_eq!(git.captured(repo, A1).unwrap(), None);
    let files = [
        ("a.txt", Some("changed\n")),
        ("b.txt", None),
        ("new.txt", Some("new\n")),
    ];
    let capture = work(world, A1, &files);
    assert_eq!(capture.base, tip(world));
    assert_eq!(capture.changed, ["a.txt", "b.txt", "new.txt"]);
    assert_eq!(work(world, A1, &[]), capture);
    let kept = git.kept_work(repo, A1).unwrap().unwrap();
    assert_eq!(
        (&kept.base, &kept.commit, &kept.whole),
        (&capture.base, &capture.commit, &capture.commit)
    );
    assert_eq!(git.captured(repo, A1).unwrap(), Some(capture.clone()));
    assert_eq!(git.kept_attempts(repo).unwrap(), [A1]);
    let changes = git.changed_files(repo, &capture, true).unwrap();
    let found: Vec<_> = changes
        .iter()
        .map(|change| {
            (
                change.path.as_str(),
                change.is_new,
                change.added_lines.join(","),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("a.txt", false, "changed".to_owned()),
            ("b.txt", false, String::new()),
            ("new.txt", true, "new".to_owned()),
        ]
    );
    let range = CommitRange {
        base: &capture.base,
        commit: &capture.commit,
    };
    let patch = git.diff(repo, range).unwrap();
    assert!(
        patch.contains("+changed") && patch.contains("-two"),
        "{patch}"
    );
    assert_eq!(git.special_files(repo, range).unwrap(), []);
}

pub fn q5_uncaptured_paths_are_listed_until_they_are_captured(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    prepare(world, A1);
    assert!(git.uncaptured_paths(repo, A1).unwrap().is_empty());
    world.write(A1, "a.txt", Some("changed\n"));
    assert_eq!(git.uncaptured_paths(repo, A1).unwrap(), ["a.txt"]);
    work(world, A1, &[]);
    assert!(git.uncaptured_paths(repo, A1).unwrap().is_empty());
}

pub fn a_capture_is_restricted_to_paths(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    let whole = work(world, A1, &[("a.txt", Some("changed\n")), ("b.txt", None)]);
    let inside = ["b.txt".to_owned(), "other.txt".to_owned()];
    let part = git
        .restrict(repo, A1, &whole, &inside, &authorship("part"))
        .unwrap();
    assert_eq!(part.changed, ["b.txt"]);
    assert_eq!(
        text_at(world, &part.commit, "a.txt").as_deref(),
        Some("one\n")
    );
    assert_eq!(text_at(world, &part.commit, "b.txt"), None);
    let kept = git.kept_work(repo, A1).unwrap().unwrap();
    assert_eq!((kept.commit, kept.whole), (part.commit, whole.commit));
}

pub fn trial_merges_stack_and_end_at_a_conflict(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    let old = tip(world);
    let first = work(world, A1, &[("a.txt", Some("first\n"))]);
    let second = work(world, A2, &[("b.txt", Some("second\n"))]);
    let rival = work(world, AttemptId(3), &[("a.txt", Some("rival\n"))]);
    let changes = [&first, &second, &first, &rival, &second]
        .map(|capture| change_of(&capture.commit, "land it"));
    for style in [CommitStyle::Squash, CommitStyle::Rebase, CommitStyle::Merge] {
        let merges = git.trial_merges(repo, &old, &changes, style).unwrap();
        let [
            TrialMerge::Clean(_),
            TrialMerge::Clean(_),
            TrialMerge::Empty,
            TrialMerge::Conflict(paths),
        ] = merges.as_slice()
        else {
            panic!("{style:?}: {merges:?}");
        };
        assert_eq!(paths, &["a.txt"]);
        // Merge only the first two changes, because the commits of the merges are kept only if all
        // changes merge.
        let merges = git.trial_merges(repo, &old, &changes[..2], style).unwrap();
        let [TrialMerge::Clean(one), TrialMerge::Clean(both)] = merges.as_slice() else {
            panic!("{style:?}: {merges:?}");
        };
        assert_eq!(text_at(world, one, "b.txt").as_deref(), Some("two\n"));
        assert_eq!(text_at(world, both, "a.txt").as_deref(), Some("first\n"));
        assert_eq!(text_at(world, both, "b.txt").as_deref(), Some("second\n"));
    }
}

pub fn conflicts_have_kinds(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    let both = work(
        world,
        A1,
        &[
            ("a.txt", Some("mine\n")),
            ("new.txt", Some("mine\n")),
            ("b.txt", None),
        ],
    );
    let change = work(world, A2, &[("a.txt", Some("other\n"))]);
    world.commit_as_person("a.txt", "theirs\n");
    world.commit_as_person("new.txt", "theirs\n");
    let newest = world.commit_as_person("b.txt", "theirs\n");
    let kinds = |commit: &CommitId| -> BTreeMap<String, ConflictKind> {
        let found = git.conflicts(repo, &newest, commit).unwrap();
        found
            .into_iter()
            .map(|conflict| (conflict.path, conflict.kind))
            .collect()
    };
    let expected = [
        ("a.txt", ConflictKind::Content),
        ("b.txt", ConflictKind::DeletedByTask),
        ("new.txt", ConflictKind::Added),
    ];
    let expected = expected.map(|(path, kind)| (path.to_owned(), kind));
    assert_eq!(kinds(&both.commit), BTreeMap::from(expected));
    assert_eq!(kinds(&change.commit).len(), 1);
}

pub fn ownership_takes_one_side_and_keeps_the_other(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    let capture = work(
        world,
        A1,
        &[("a.txt", Some("mine\n")), ("b.txt", Some("mine\n"))],
    );
    world.commit_as_person("a.txt", "theirs\n");
    let newest = world.commit_as_person("b.txt", "theirs\n");
    let merge = |sides: &[(&str, MergeSide)]| {
        let sides = sides
            .iter()
            .map(|(path, side)| ((*path).to_owned(), *side))
            .collect();
        let change = change_of(&capture.commit, "settled");
        git.merge_with_ownership(repo, &newest, &change, &sides)
            .unwrap()
    };
    let open = merge(&[("a.txt", MergeSide::Trunk)]);
    assert_eq!(open.trial, TrialMerge::Conflict(vec!["b.txt".into()]));
    assert_eq!(open.dropped, None);
    let settled = merge(&[("a.txt", MergeSide::Trunk), ("b.txt", MergeSide::Change)]);
    let TrialMerge::Clean(new) = &settled.trial else {
        panic!("{settled:?}");
    };
    let dropped = settled.dropped.unwrap();
    assert_eq!(dropped.paths, ["a.txt", "b.txt"]);
    let texts = |commit: &CommitId| {
        ["a.txt", "b.txt"].map(|path| text_at(world, commit, path).unwrap_or_default())
    };
    assert_eq!(texts(new), ["theirs\n", "mine\n"]);
    assert_eq!(texts(&dropped.commit), ["mine\n", "theirs\n"]);
}

pub fn a_squash_has_the_files_of_the_range_and_a_revert_undoes_it(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    let old = tip(world);
    let first = work(world, A1, &[("a.txt", Some("first\n"))]);
    let second = work(world, A2, &[("b.txt", Some("second\n"))]);
    let one = clean_trial(world, &old, &first.commit);
    let both = clean_trial(world, &one, &second.commit);
    let squashed = git
        .squash_range(repo, &old, &change_of(&both, "both"))
        .unwrap();
    let range = CommitRange {
        base: &both,
        commit: &squashed,
    };
    assert_eq!(git.diff(repo, range).unwrap(), "");
    let undo = change_of(&squashed, "undo");
    let TrialMerge::Clean(undone) = git.revert(repo, &squashed, &undo).unwrap() else {
        panic!("a commit at the tip can be reverted");
    };
    assert_eq!(text_at(world, &undone, "a.txt").as_deref(), Some("one\n"));
    assert_eq!(git.revert(repo, &undone, &undo).unwrap(), TrialMerge::Empty);
}

pub fn commits_with_the_same_files_have_the_same_tree(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    let old = tip(world);
    let capture = work(world, A1, &[("a.txt", Some("changed\n"))]);
    let merged = clean_trial(world, &old, &capture.commit);
    assert_ne!(merged, capture.commit);
    let tree = |commit| git.tree_of(repo, commit).unwrap();
    assert_eq!(tree(&merged), tree(&capture.commit));
    assert_ne!(tree(&merged), tree(&old));
}

pub fn q2_the_trunk_moves_only_from_the_expected_commit(world: &dyn GitHarness) {
    let old = tip(world);
    let capture = work(world, A1, &[("a.txt", Some("changed\n"))]);
    let new = clean_trial(world, &old, &capture.commit);
    let other = world.commit_as_person("b.txt", "theirs\n");
    assert_eq!(
        move_trunk(world, &old, &new).unwrap(),
        TrunkMoveResult::TrunkElsewhere(other.clone())
    );
    let next = clean_trial(world, &other, &capture.commit);
    for _ in 0..2 {
        assert_eq!(
            move_trunk(world, &other, &next).unwrap(),
            TrunkMoveResult::Moved
        );
    }
    assert_eq!(tip(world), next);
    let foreign = ProjectRepo {
        project: regatta_core::ids::ProjectName::new("other").unwrap(),
        ..world.repo().clone()
    };
    let refused = world
        .git()
        .move_trunk(&world.permit(), &foreign, &next, &old);
    assert_eq!(refused.unwrap_err().code, "wrong_permit");
}

pub fn a_landing_is_found_by_its_trailer(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    let old = tip(world);
    let capture = work(world, A1, &[("a.txt", Some("changed\n"))]);
    let message = "T1: change\n\nRegatta-Task: T1\nRegatta-Landing: L4\n";
    let merges = git
        .trial_merges(
            repo,
            &old,
            &[change_of(&capture.commit, message)],
            CommitStyle::Squash,
        )
        .unwrap();
    let [TrialMerge::Clean(new)] = merges.as_slice() else {
        panic!("{merges:?}");
    };
    assert_eq!(git.find_landing(repo, LandingId(4)).unwrap(), None);
    assert_eq!(
        move_trunk(world, &old, new).unwrap(),
        TrunkMoveResult::Moved
    );
    assert_eq!(
        git.find_landing(repo, LandingId(4)).unwrap(),
        Some(new.clone())
    );
    let newest = &git.unreleased_commits(repo, new).unwrap()[0];
    assert_eq!(
        (newest.subject.as_str(), newest.task.as_deref()),
        ("T1: change", Some("T1"))
    );
}

pub fn a_fixup_starts_with_the_merge_and_is_squashed_onto_the_tip(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    let finished = work(
        world,
        A1,
        &[("a.txt", Some("mine\n")), ("b.txt", Some("mine\n"))],
    );
    let newest = world.commit_as_person("a.txt", "theirs\n");
    let fixup = Fixup::new(finished.commit.clone());
    let branch = BranchName::new("regatta/A2").unwrap();
    let message = authorship("base");
    let workspace = git
        .prepare_fixup(repo, A2, &branch, &fixup, &message)
        .unwrap();
    let marked = text_at(world, &workspace.base, "a.txt").unwrap();
    assert!(marked.starts_with("<<<<<<<"), "{marked}");
    assert_eq!(
        text_at(world, &workspace.base, "b.txt").as_deref(),
        Some("mine\n")
    );
    let recognised = |base: &CommitId| git.recognise_fixup(repo, A2, base, &fixup).unwrap();
    assert!(recognised(&workspace.base));
    assert!(!recognised(&newest));
    world.write(A2, "a.txt", Some("both\n"));
    let repair = git.capture(repo, A2, &authorship("repair")).unwrap();
    assert_eq!(repair.changed, ["a.txt"]);
    let whole = git
        .squash_fixup(repo, A2, repair, &authorship("whole"))
        .unwrap();
    assert_eq!(whole.base, newest);
    assert_eq!(whole.changed, ["a.txt", "b.txt"]);
    let unchanged = git
        .squash_fixup(repo, A1, finished.clone(), &authorship("whole"))
        .unwrap();
    assert_eq!(unchanged, finished);
}

pub fn the_trunk_is_rebased_onto_a_remote(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    let shared = tip(world);
    let upstream = world.commit_on_remote(&shared, "b.txt", "theirs\n");
    let local = world.commit_as_person("a.txt", "mine\n");
    let fetched = git.fetch_upstream(repo, "origin").unwrap();
    assert_eq!(
        (&fetched.tip, fetched.changed.as_slice()),
        (&upstream, &["b.txt".to_owned()][..])
    );
    let RebaseResult::Rebased { old, new, tasks } = git.rebase_trunk(repo, &upstream).unwrap()
    else {
        panic!("the local trunk has a commit of its own");
    };
    assert_eq!((old, tasks.len()), (local.clone(), 0));
    assert_eq!(tip(world), local, "a rebase moves no trunk");
    assert_eq!(text_at(world, &new, "a.txt").as_deref(), Some("mine\n"));
    assert_eq!(text_at(world, &new, "b.txt").as_deref(), Some("theirs\n"));
    let rival = world.commit_on_remote(&shared, "a.txt", "theirs\n");
    assert_eq!(git.fetch_upstream(repo, "origin").unwrap().tip, rival);
    assert_eq!(
        git.rebase_trunk(repo, &rival).unwrap(),
        RebaseResult::Conflict {
            paths: vec!["a.txt".into()]
        }
    );
    assert_eq!(
        git.rebase_trunk(repo, &shared).unwrap(),
        RebaseResult::UpToDate { tip: local }
    );
}

pub fn collisions_name_both_attempts_or_the_trunk(world: &dyn GitHarness) {
    let (git, repo) = (world.git(), world.repo());
    for (attempt, text) in [(A1, "first\n"), (A2, "second\n")] {
        prepare(world, attempt);
        world.write(attempt, "a.txt", Some(text));
    }
    let collisions = |tip: &CommitId| {
        let mut found = git.collisions(repo, &[A1, A2], tip).unwrap();
        found.sort();
        found
    };
    let between = WorkspaceCollision {
        attempt: A1,
        other_attempt: Some(A2),
        paths: vec!["a.txt".into()],
    };
    assert_eq!(collisions(&tip(world)), [between]);
    let newest = world.commit_as_person("a.txt", "theirs\n");
    let with_trunk = |attempt| WorkspaceCollision {
        attempt,
        other_attempt: None,
        paths: vec!["a.txt".into()],
    };
    let found = collisions(&newest);
    assert!(
        found.contains(&with_trunk(A1)) && found.contains(&with_trunk(A2)),
        "{found:?}"
    );
}
