//! Q13: guarded changes do not land without a person, however they enter the queue.

use regatta_core::attempt::{
    AttemptCause, Capture, CheckedWork, NextCheck, WorkVerdict, next_check,
};
use regatta_core::command::{Command, CommandOutcome, Report};
use regatta_core::ids::TaskId;
use regatta_core::landing::TrialOutcome;
use regatta_core::landing::guard::{FileKind, SpecialFile};
use regatta_core::project::ReviewPolicy;
use regatta_core::schedule::PollGrant;
use regatta_core::task::TaskStatus;

use crate::world::{World, agent, commit, shop};

fn special_file(path: &str, after: FileKind, target: Option<&str>) -> SpecialFile {
    SpecialFile {
        path: path.into(),
        before: None,
        after: Some(after),
        target: target.map(str::to_owned),
        unpublished: false,
    }
}

/// Ends an attempt that changed `path` and has no checks. `file` describes a path that is not a
/// plain file.
fn submit(world: &mut World, grant: &PollGrant, path: &str, file: Option<SpecialFile>) {
    world.finish(grant);
    let PollGrant { attempt, token, .. } = *grant;
    let work = Capture {
        commit: commit(0x50 + attempt.0),
        base: commit(4),
        changed: vec![path.to_owned()],
    };
    let checked = CheckedWork {
        kept: Some(work.clone()),
        conflicted: Some(vec![]),
        work: Some(work.clone()),
        special: Some(file.into_iter().collect()),
        misnamed_tests: Some(vec![]),
        evidence: Some(vec![]),
        ..CheckedWork::new(attempt, work)
    };
    let (task, project) = (world.task(grant.task), &world.board.projects[&shop()]);
    let NextCheck::Verdict(verdict) = next_check(task, project, &checked) else {
        panic!("the facts about {path} give no verdict")
    };
    let findings = checked.findings(task, project);
    world.report(Report::WorkVerdict {
        attempt,
        token,
        verdict,
        findings,
    });
}

fn world_with_finished_work(path: &str, file: Option<SpecialFile>) -> (World, TaskId) {
    let mut world = World::with_serial_queue(&[("ada", 1), ("eve", 1)]);
    let task = world.add_task("careful", &[path]);
    let grant = world.take_task("ada");
    submit(&mut world, &grant, path, file);
    (world, task)
}

#[test]
fn q13_guarded_work_waits_for_a_person_although_its_manifest_names_it() {
    let guarded = [
        (
            ".claude/settings.json",
            None,
            "agent settings or instructions",
        ),
        ("sub/AGENTS.md", None, "agent settings or instructions"),
        (".Mcp.json", None, "agent settings or instructions"),
        (".vscode/tasks.json", None, "editor tasks or settings"),
        (".envrc", None, "environment or toolchain settings"),
        (
            "tools/run",
            Some(special_file("tools/run", FileKind::Executable, None)),
            "a new executable file",
        ),
        (
            "src",
            Some(special_file("src", FileKind::Symlink, Some("lib"))),
            "a symbolic link to lib",
        ),
        (
            "vendor/sub",
            Some(special_file("vendor/sub", FileKind::Submodule, None)),
            "a submodule",
        ),
    ];
    for (path, file, why) in guarded {
        let (mut world, task) = world_with_finished_work(path, file);
        assert_eq!(world.status(task), TaskStatus::InReview, "{path}");
        let reason = world.task(task).reason.clone().unwrap_or_default();
        assert!(
            reason.contains(path) && reason.contains(why) && reason.contains("regatta diff T1"),
            "{reason}"
        );
        assert_eq!(
            world
                .ask_refused("eve", Command::Land { task, first: false })
                .code(),
            "person_needed"
        );
        let CommandOutcome::Queued(place) = world.ask("ann", Command::Land { task, first: false })
        else {
            panic!()
        };
        world.move_and_land(place.landing);
        assert_eq!(world.status(task), TaskStatus::Completed);
    }
}

#[test]
fn q13_links_out_of_the_tree_and_git_directories_go_back_to_their_worker() {
    let refused = [
        special_file("src", FileKind::Symlink, Some("/etc")),
        special_file("a/b", FileKind::Symlink, Some("../../x")),
        special_file("b", FileKind::GitDirectory, None),
    ];
    for file in refused {
        let path = file.path.clone();
        let (world, task) = world_with_finished_work(&path, Some(file));
        let found = world.task(task);
        assert!(
            found.status.is_waiting() && found.submission.is_none(),
            "{path}: {}",
            found.status
        );
        assert_eq!(
            (found.last_cause, found.failures),
            (Some(AttemptCause::Invalid), 1)
        );
        assert!(
            found
                .reason
                .as_ref()
                .is_some_and(|reason| reason.contains(&path)),
            "{:?}",
            found.reason
        );
    }
}

/// After a fix-up the tree is another one than the approved tree.
#[test]
fn q13_an_approval_counts_for_one_submission() {
    let (mut world, task) = world_with_finished_work("CLAUDE.md", None);
    let CommandOutcome::Queued(place) = world.ask("ann", Command::Land { task, first: false })
    else {
        panic!()
    };
    world.report_trial(
        place.landing,
        TrialOutcome::Conflict {
            landing: place.landing,
            paths: vec!["CLAUDE.md".into()],
            kinds: vec![],
        },
    );
    let fixup = world.take_task("ada");
    assert_eq!(fixup.task, task);
    submit(&mut world, &fixup, "CLAUDE.md", None);
    assert_eq!(
        world.status(task),
        TaskStatus::InReview,
        "the new tree was queued without a review"
    );
    assert!(world.board.landings.is_empty());
}

#[test]
fn q13_an_agent_cannot_bring_guarded_content_back_by_an_undo() {
    for (name, allowed) in [("eve", false), ("ann", true)] {
        let (mut world, task) =
            world_with_finished_work("run", Some(special_file("run", FileKind::Executable, None)));
        let CommandOutcome::Queued(place) = world.ask("ann", Command::Land { task, first: false })
        else {
            panic!()
        };
        world.move_and_land(place.landing);
        let mut stored_task = world.stored_task(task);
        // The stored change is reversed here, as if it had removed the executable. Undoing it would
        // then add an executable.
        let work = stored_task.submission.as_mut().unwrap();
        work.special = work
            .special
            .iter()
            .map(|file| SpecialFile {
                before: file.after,
                after: None,
                ..file.clone()
            })
            .collect();
        let undone = world.try_ask(
            name,
            Command::Undo {
                done: Box::new(stored_task),
            },
        );
        assert_eq!(undone.is_ok(), allowed, "{name}: {undone:?}");
    }
}

/// The work was sent back and done again while the reviewer looked at the first version.
#[test]
fn q13_a_verdict_on_older_work_does_not_let_newer_work_land() {
    for newer in ["src/a.rs", ".claude/settings.json"] {
        let mut world = World::with_serial_queue(&[("ada", 1), ("eve", 1)]);
        let mut project = world.project("shop", &["cargo test"]);
        (
            project.settings.landing.review,
            project.settings.landing.reviewer,
        ) = (ReviewPolicy::Agent, Some(agent("eve")));
        world.ask("ann", Command::AddProject(project));
        let task = world.add_task("careful", &["src/a.rs", ".claude/**"]);
        let first = world.take_task("ada");
        submit(&mut world, &first, "src/a.rs", None);
        let review = world.take_task("eve");
        world.ask(
            "ann",
            Command::Revise {
                task,
                text: "once more".into(),
            },
        );
        let second = world.take_task("ada");
        submit(&mut world, &second, newer, None);
        let PollGrant {
            task: review_task,
            attempt,
            token,
            ..
        } = review;
        let output = Some("approve".to_owned());
        world.ask(
            "eve",
            Command::Finish {
                task: review_task,
                attempt,
                token,
                output,
                not_needed: false,
                learnings: vec![],
            },
        );
        let verdict = WorkVerdict::Passed {
            commit: commit(4),
            base: commit(4),
            changed: vec![],
        };
        assert_eq!(world.report_verdict(&review, verdict), None);
        assert_eq!(world.status(review_task), TaskStatus::Completed);
        assert_eq!(
            world.status(task),
            TaskStatus::InReview,
            "{newer}: unreviewed work was queued"
        );
        // If an agent may review the new work, a new review is requested for it.
        let again = world.poll("eve");
        assert_eq!(again.is_some(), newer == "src/a.rs");
        if let Some(again) = again {
            assert!(
                world
                    .task(again.task)
                    .description
                    .contains(commit(0x50 + second.attempt.0).as_str())
            );
        }
    }
}
