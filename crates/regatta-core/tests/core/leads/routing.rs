//! The router: how messages become tasks, missions or answers, and which messages it ignores.

use super::*;

#[test]
fn triage_answers_adds_a_task_or_starts_a_lead() {
    let mut world = world_with_lead(1, |_| {});
    let cases = [
        "answer: no",
        "task: Fix it\nsoon",
        "lead: rework it all",
        "nothing",
    ];
    for said in cases {
        post_and_route(&mut world, "ann", "something is odd", None);
        let [task] = answer_tasks(&world)[..] else {
            panic!()
        };
        let grant = begin_attempt(&mut world, task);
        end_attempt(&mut world, &grant, said);
    }
    assert_eq!(missions_at_work(&world), [1]);
    assert_eq!(
        world.board.missions[&MissionId(1)].goal.as_deref(),
        Some("rework it all")
    );
    let backlog: Vec<_> = world
        .board
        .tasks
        .values()
        .filter(|task| task.status == TaskStatus::Backlog)
        .collect();
    assert_eq!(
        (
            backlog.len(),
            backlog[0].subject.as_str(),
            backlog[0].description.as_str()
        ),
        (1, "Fix it", "soon")
    );

    for (triage, made) in [(TriagePolicy::Task, 2), (TriagePolicy::Off, 2)] {
        let mut project = world.project("shop", &["cargo test"]);
        project.settings = world.board.projects[&shop()].settings.clone();
        project.settings.router.triage = triage;
        world.ask("ann", Command::AddProject(project));
        post_and_route(&mut world, "ann", "plain words", None);
        let backlog = world
            .board
            .tasks
            .values()
            .filter(|task| task.status == TaskStatus::Backlog)
            .count();
        assert_eq!(
            (backlog, answer_tasks(&world).len()),
            (made, 0),
            "{triage:?}"
        );
    }
}

#[test]
fn the_router_ignores_senders_and_labels_that_may_not_start_work() {
    let mut world = world_with_lead(3, |project_settings| {
        project_settings.router.from = vec![agent("ops")]
    });
    post_and_route(&mut world, "bob", "!mission from an agent", None);
    post_and_route(&mut world, "regatta", "!mission from the system", None);
    let channel = ChannelName::new("shop").unwrap();
    for label in ["coord:merge", "status", "spawn-ack"] {
        let labels = vec![Label::new(label).unwrap()];
        let post = PostMessage {
            channel: channel.clone(),
            text: "!mission x".into(),
            labels,
            reply_to: None,
        };
        let CommandOutcome::Message(id) = world.ask("ann", Command::Post(post)) else {
            panic!()
        };
        deliver_to_router(&mut world, id);
    }
    assert!(world.board.missions.is_empty());
    post_and_route(&mut world, "ops", "!mission from a listed sender", None);
    assert_eq!(world.board.missions.len(), 1);
    let before = world.board.tasks.len();
    let asked = post_and_route(&mut world, "ann", "!wat", None);
    assert!(
        messages_after(&world, asked)[0]
            .text
            .contains("`!wat` is not a command")
    );
    assert_eq!(world.board.tasks.len(), before);
}

#[test]
fn messages_wait_while_the_router_claim_is_held_and_are_routed_in_order() {
    let mut world = world_with_lead(3, |_| {});
    let held = match world.ask(
        "bob",
        Command::Acquire(acquire(
            ClaimOwner::Agent(agent("bob")),
            &["respond://shop-dev"],
        )),
    ) {
        CommandOutcome::Claim(regatta_core::claim::Acquired::Granted { claim, token, .. }) => {
            (claim, token)
        }
        other => panic!("{other:?}"),
    };
    let first = post_and_route(&mut world, "ann", "!mission one", None);
    post_and_route(&mut world, "ann", "!mission two", None);
    deliver_to_router(&mut world, first);
    assert!(world.board.missions.is_empty());
    assert_eq!(world.board.projects[&shop()].router_state.waiting.len(), 2);
    world.ask(
        "bob",
        Command::Release {
            claim: held.0,
            token: held.1,
        },
    );
    let goals: Vec<_> = world
        .board
        .missions
        .values()
        .filter_map(|mission| mission.goal.clone())
        .collect();
    assert_eq!(goals, ["one", "two"]);
    deliver_to_router(&mut world, first);
    assert_eq!(world.board.missions.len(), 2);
    assert!(
        world.board.projects[&shop()]
            .router_state
            .waiting
            .is_empty()
    );
    // A shared claim on the same URI counts as well. An expired claim no longer counts.
    let mut shared = acquire(ClaimOwner::Agent(agent("bob")), &["respond://shop-dev"]);
    shared.mode = ClaimMode::Shared;
    world.ask("bob", Command::Acquire(shared));
    post_and_route(&mut world, "ann", "!mission three", None);
    assert_eq!(world.board.missions.len(), 2);
    world.advance(31 * SECOND_MS);
    assert_eq!(world.board.missions.len(), 3);
}

/// A triage whose outcome is refused still completes, and the reason is posted.
#[test]
fn a_triage_whose_outcome_is_refused_posts_the_reason() {
    let mut world = world_with_lead(1, |project_settings| {
        project_settings.leads.agent = None;
        project_settings.router.agent = Some(agent("ada"));
    });
    world.register("bob", 1);
    for (said, why) in [
        ("lead: rework it", "several agents could lead"),
        ("task: \u{1}", "subject"),
    ] {
        let asked = post_and_route(&mut world, "ann", "something is odd", None);
        let [task] = answer_tasks(&world)[..] else {
            panic!()
        };
        let grant = begin_attempt(&mut world, task);
        end_attempt(&mut world, &grant, said);
        assert_eq!(world.status(task), TaskStatus::Completed, "{said}");
        assert!(
            messages_after(&world, asked)[0].text.contains(why),
            "{}",
            messages_after(&world, asked)[0].text
        );
    }
    assert!(world.board.missions.is_empty());
}
