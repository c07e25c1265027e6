//! `review = "agent"`: another agent reviews work before it lands.

use regatta_core::command::Command;
use regatta_core::ids::TaskId;
use regatta_core::project::ReviewPolicy;
use regatta_core::schedule::PollGrant;
use regatta_core::task::{Expects, Purpose, Task, TaskStatus};

use crate::world::{World, agent, commit, files};

/// Returns a world with finished work of ada on a file, in a project with this reviewer.
fn world_with_reviewer(reviewer: Option<&str>, path: &str) -> (World, TaskId) {
    let mut world = World::with_serial_queue(&[("ada", 1), ("eve", 1)]);
    let mut project = world.project("shop", &["cargo test"]);
    project.settings.landing.review = ReviewPolicy::Agent;
    project.settings.landing.reviewer = reviewer.map(agent);
    world.ask("ann", Command::AddProject(project));
    let task = world.add_task("careful", &[path]);
    submit_change(&mut world, path);
    (world, task)
}

/// Returns the task whose work a task reviews.
fn reviewed_task(review: &Task) -> Option<TaskId> {
    match review.purpose {
        Purpose::Review { task, .. } => Some(task),
        _ => None,
    }
}

fn submit_change(world: &mut World, path: &str) {
    let grant = world.take_task("ada");
    world.finish(&grant);
    let changed = vec![path.to_owned()];
    let verdict = regatta_core::attempt::WorkVerdict::Passed {
        commit: commit(0x50 + grant.attempt.0),
        base: commit(4),
        changed,
    };
    assert_eq!(
        world.report_verdict(&grant, verdict),
        None,
        "the work was queued without a review"
    );
}

fn answer_review(world: &mut World, review: &PollGrant, text: &str) {
    let PollGrant {
        task,
        attempt,
        token,
        ..
    } = *review;
    world.ask(
        "eve",
        Command::Finish {
            task,
            attempt,
            token,
            output: Some(text.into()),
            not_needed: false,
            learnings: vec![],
        },
    );
    let verdict = regatta_core::attempt::WorkVerdict::Passed {
        commit: commit(4),
        base: commit(4),
        changed: vec![],
    };
    assert_eq!(world.report_verdict(review, verdict), None);
}

#[test]
fn an_approval_of_the_reviewing_agent_lands_the_work() {
    let (mut world, task) = world_with_reviewer(Some("eve"), "src/a.rs");
    assert_eq!(world.status(task), TaskStatus::InReview);
    assert!(world.poll("ada").is_none(), "an agent reviews its own work");
    let review = world.take_task("eve");
    let asked = world.task(review.task);
    assert_eq!(
        (reviewed_task(asked), asked.expects()),
        (Some(task), Expects::Report)
    );
    assert!(
        asked.description.contains(commit(0x51).as_str()),
        "{}",
        asked.description
    );
    answer_review(&mut world, &review, "approve");
    assert_eq!(
        (world.status(review.task), world.status(task)),
        (TaskStatus::Completed, TaskStatus::Landing)
    );
    let landing = world.task(task).landing.unwrap();
    assert_eq!(
        world.board.landings[&landing].approved.as_deref(),
        Some("eve")
    );
    world.move_and_land(landing);
    assert_eq!(world.status(task), TaskStatus::Completed);
}

#[test]
fn a_rejection_sends_the_work_back_with_its_text_and_is_followed_by_a_new_review() {
    let (mut world, task) = world_with_reviewer(Some("eve"), "src/a.rs");
    let review = world.take_task("eve");
    answer_review(&mut world, &review, "revise: the name is wrong");
    assert!(world.status(task).is_waiting(), "{}", world.status(task));
    assert!(
        world.task(task).notes[0].contains("the name is wrong"),
        "{:?}",
        world.task(task).notes
    );
    submit_change(&mut world, "src/a.rs");
    let again = world.take_task("eve");
    assert_ne!(again.task, review.task);
    assert!(
        world
            .task(again.task)
            .description
            .contains(commit(0x50 + 3).as_str()),
        "the new review is about the new work"
    );
    answer_review(&mut world, &again, "Approved.");
    assert_eq!(world.status(task), TaskStatus::Landing);
}

/// A review that neither approves nor rejects is not an approval. The review is requested again.
#[test]
fn an_unclear_review_lands_nothing() {
    let (mut world, task) = world_with_reviewer(Some("eve"), "src/a.rs");
    let review = world.take_task("eve");
    answer_review(&mut world, &review, "I like it");
    assert_eq!(world.status(task), TaskStatus::InReview);
    assert!(
        world.status(review.task).is_waiting(),
        "{}",
        world.status(review.task)
    );
}

#[test]
fn protected_work_or_work_without_another_reviewer_waits_for_a_person() {
    for (reviewer, path) in [
        (Some("eve"), "regatta.toml"),
        (Some("ada"), "src/a.rs"),
        (None, "src/a.rs"),
    ] {
        let (mut world, task) = world_with_reviewer(reviewer, path);
        assert_eq!(world.status(task), TaskStatus::InReview);
        assert!(
            world.poll("eve").is_none() && world.poll("ada").is_none(),
            "{reviewer:?} {path}"
        );
        world.ask("ann", Command::Land { task, first: false });
        assert_eq!(world.status(task), TaskStatus::Landing);
    }
}

/// A person who landed the work before the review ends has decided.
#[test]
fn a_late_review_changes_nothing() {
    let (mut world, task) = world_with_reviewer(Some("eve"), "src/a.rs");
    let review = world.take_task("eve");
    world.ask("ann", Command::Land { task, first: false });
    answer_review(&mut world, &review, "revise: no");
    assert_eq!(
        (world.status(review.task), world.status(task)),
        (TaskStatus::Completed, TaskStatus::Landing)
    );
}

/// Approved work whose files are claimed by then stays in review, and a message is posted.
#[test]
fn approved_work_whose_files_are_claimed_waits_and_posts_a_message() {
    let (mut world, task) = world_with_reviewer(Some("eve"), "src/a.rs");
    let review = world.take_task("eve");
    world.hold_claim("bob", &["file://shop/src/a.rs"]);
    let count = world.count("message.posted");
    answer_review(&mut world, &review, "approve");
    assert_eq!(
        (world.status(review.task), world.status(task)),
        (TaskStatus::Completed, TaskStatus::InReview)
    );
    assert_eq!(world.count("message.posted"), count + 1);
    assert_eq!(world.task(task).files, files(&["src/a.rs"]));
}
