//! Changes that a conversation makes: how they are offered, reviewed, landed and proposed as pull
//! requests.

use super::*;

/// Returns a pull request on GitHub, from the branch of the first task.
fn pull_request(number: u64) -> ConversationPull {
    let thread = Some(format!("github:acme/shop:{number}"));
    ConversationPull {
        number,
        url: format!("https://x/{number}"),
        thread,
        branch: Some("regatta/T1-fix-it".into()),
    }
}

#[test]
fn changes_wait_for_the_land_command_and_a_follow_up_continues_them() {
    let mut world = world_with_agents();
    send_message(
        &mut world,
        slack_message("claude", "1", "fix the login bug"),
    );
    let first = begin_attempt(&mut world, TaskId(1));
    open_session(&mut world, &first, "s-1");
    end_turn(&mut world, &first, "Fixed it.", &["src/login.rs"]);
    let work = conversation_with_id(&world, 1).turns[0]
        .work
        .clone()
        .expect("the turn has work");
    assert_eq!(
        (work.changed_count, work.checks.as_deref()),
        (1, Some("all 2 checks pass"))
    );
    assert_eq!(world.status(TaskId(1)), TaskStatus::InReview);
    let workspace_is_removed = |world: &World| {
        world
            .outbox
            .values()
            .any(|effect| matches!(effect, Effect::RemoveWorkspace { .. }))
    };
    assert!(
        !workspace_is_removed(&world),
        "the workspace is removed while the conversation goes on"
    );
    send_message(&mut world, slack_message("claude", "2", "rename it"));
    let second = begin_attempt(&mut world, TaskId(1));
    assert_eq!(
        world.board.attempts[&second.attempt].resumed_session(),
        Some("s-1")
    );
    end_turn(&mut world, &second, "Renamed.", &["src/login.rs"]);
    send_message(&mut world, slack_message("claude", "3", "Land it."));
    assert_eq!(world.status(TaskId(1)), TaskStatus::Landing);
    // Messages that arrive during the landing wait until it ends.
    send_message(&mut world, slack_message("claude", "4", "now the docs"));
    assert_eq!(conversation_with_id(&world, 1).queued_count(), 1);
    let landing = world.task(TaskId(1)).landing.unwrap();
    world.move_and_land(landing);
    let now = conversation_with_id(&world, 1);
    assert!(
        notes(now)
            .iter()
            .any(|(tone, text)| *tone == NoteTone::Good && text.contains("T1 has landed")),
        "{now:?}"
    );
    assert_eq!(
        (now.task, now.turns.last().unwrap().state),
        (Some(TaskId(2)), TurnState::Working)
    );
    let third = begin_attempt(&mut world, TaskId(2));
    let notes = world.board.attempts[&third.attempt].notes.concat();
    assert!(
        notes.contains("Renamed.") && notes.contains("now the docs"),
        "{notes}"
    );
}

#[test]
fn a_review_gets_the_other_agents_work_and_its_own_changes_are_not_offered() {
    let mut world = world_with_agents();
    send_message(
        &mut world,
        slack_message("claude", "1", "fix the login bug"),
    );
    let first = begin_attempt(&mut world, TaskId(1));
    end_turn(&mut world, &first, "Done.", &["src/login.rs"]);
    let work = conversation_with_id(&world, 1).turns[0]
        .work
        .clone()
        .unwrap();
    report_conversation(
        &mut world,
        ConversationReport::PullRequest {
            conversation: ConversationId(1),
            pull: pull_request(42),
        },
    );
    let elsewhere = |n: &str, text: &str| ThreadMessage {
        thread: "slack:T1:C9:99.1".into(),
        key: "slack:T1:C9:99.1:codex".into(),
        ..slack_message("codex", n, text)
    };
    for (n, text, sees) in [
        ("2", "review PR #41", false),
        ("3", "look at PR #42", false),
        ("4", "review PR #42 and check the edges", true),
    ] {
        send_message(&mut world, elsewhere(n, text));
        // A pull request that no conversation knows starts no turn.
        let looks = conversation_with_id(&world, 2)
            .turns
            .last()
            .and_then(|turn| turn.reviewed_work.clone());
        assert_eq!(
            looks,
            sees.then(|| (work.commit.clone(), work.base.clone())),
            "{text}"
        );
    }
    // In the same thread a review needs no number.
    send_message(&mut world, slack_message("codex", "5", "review it"));
    assert_eq!(
        conversation_with_id(&world, 3).turns[0].reviewed_work,
        Some((work.commit.clone(), work.base))
    );
    let own_task = task_of_conversation(&world, 3);
    let grant = begin_attempt(&mut world, own_task);
    assert!(
        world.board.attempts[&grant.attempt]
            .notes
            .concat()
            .contains(work.commit.as_str())
    );
    end_turn(&mut world, &grant, "Two issues.", &["src/scratch.rs"]);
    assert_eq!(
        conversation_with_id(&world, 3).turns[0].work,
        None,
        "the reviewer's changes are offered as work"
    );
    assert!(world.task(own_task).resting);
    // When the reviewer is asked to fix its findings, its changes count as work.
    send_message(&mut world, slack_message("codex", "6", "now mend both"));
    let grant = begin_attempt(&mut world, own_task);
    end_turn(&mut world, &grant, "Mended.", &["src/login.rs"]);
    assert_eq!(
        conversation_with_id(&world, 3).turns[1]
            .work
            .as_ref()
            .map(|turn_work| turn_work.changed_count),
        Some(1)
    );
}

/// Q13: a conversation's work passes the same guard as a landing, whether it lands or goes out as a
/// pull request.
#[test]
fn q13_guarded_work_of_a_conversation_waits_and_a_link_out_of_the_tree_never_lands() {
    let link = |target: &str| SpecialFile {
        path: "a".into(),
        before: None,
        after: Some(FileKind::Symlink),
        target: Some(target.into()),
        unpublished: false,
    };
    for (deliver, target, may_land) in [
        (ChangeDestination::Land, "b", true),
        (ChangeDestination::Land, "/etc", false),
        (ChangeDestination::Pull, "/etc", false),
        (ChangeDestination::Review, "/etc", false),
    ] {
        let mut world = world_with_agents();
        send_message(
            &mut world,
            ThreadMessage {
                deliver,
                ..slack_message("claude", "1", "fix it")
            },
        );
        let PollGrant { attempt, token, .. } = begin_attempt(&mut world, TaskId(1));
        world.report(Report::Exited {
            attempt,
            token,
            exit: ProgramExit::Done { output: None },
        });
        let findings = WorkFindings {
            special: vec![link(target)],
            ..WorkFindings::default()
        };
        world.report(Report::WorkVerdict {
            attempt,
            token,
            verdict: passed_verdict(&["a"]),
            findings,
        });
        assert_eq!(
            world.status(TaskId(1)),
            TaskStatus::InReview,
            "{deliver:?} {target}"
        );
        assert!(
            !world
                .outbox
                .values()
                .any(|effect| matches!(effect, Effect::PushBranch { .. })),
            "{deliver:?}"
        );
        assert_eq!(
            notes(conversation_with_id(&world, 1))
                .iter()
                .any(|note| note.1.contains("cannot land")),
            !may_land
        );
        let landed = world.try_ask(
            "ann",
            Command::Land {
                task: TaskId(1),
                first: false,
            },
        );
        assert_eq!(landed.is_ok(), may_land, "{deliver:?} {target}: {landed:?}");
    }
}

#[test]
fn a_successful_push_opens_one_pull_request() {
    let mut world = world_with_agents();
    send_message(
        &mut world,
        ThreadMessage {
            deliver: ChangeDestination::Pull,
            ..slack_message("claude", "1", "fix it")
        },
    );
    let grant = begin_attempt(&mut world, TaskId(1));
    end_turn(&mut world, &grant, "Done.", &["a"]);
    let pushes = |world: &World| {
        world
            .outbox
            .values()
            .filter(|effect| matches!(effect, Effect::PushBranch { .. }))
            .count()
    };
    assert_eq!(pushes(&world), 1);
    let push = |trouble: Option<&str>| ConversationReport::Pushed {
        conversation: ConversationId(1),
        pushed: PushedWork {
            commit: commit(1),
            failure: trouble.map(str::to_owned),
        },
    };
    report_conversation(&mut world, push(Some("no such remote")));
    assert!(
        notes(conversation_with_id(&world, 1))
            .iter()
            .any(|note| note.1.contains("no such remote"))
    );
    let pulls = |world: &World| {
        conversation_with_id(world, 1)
            .posts
            .iter()
            .filter(|thread_post| thread_post.content == PostContent::Pull)
            .count()
    };
    assert_eq!(pulls(&world), 0);
    report_conversation(&mut world, push(None));
    report_conversation(&mut world, push(None));
    assert_eq!(pulls(&world), 1);
    let pull = pull_request(7);
    report_conversation(
        &mut world,
        ConversationReport::PullRequest {
            conversation: ConversationId(1),
            pull,
        },
    );
    report_conversation(&mut world, push(None));
    assert_eq!(pulls(&world), 1);
    assert!(
        conversation_with_id(&world, 1)
            .unshown_posts()
            .any(|thread_post| matches!(thread_post.content, PostContent::Turn { .. })),
        "the turn's answer names the pull request"
    );
}

/// Returns a message on GitHub, on an issue or pull request of this number.
fn github_message(agent: &str, delivery: &str, number: u64, text: &str) -> ThreadMessage {
    let thread = format!("github:acme/shop:{number}");
    ThreadMessage {
        service: Service::Github,
        key: format!("{thread}:{agent}"),
        thread,
        address: BTreeMap::from([
            ("repo".into(), "acme/shop".into()),
            ("number".into(), number.to_string()),
        ]),
        source: format!("comment:{delivery}"),
        deliver: ChangeDestination::Pull,
        ..slack_message(agent, delivery, text)
    }
}

/// On the pull request that an agent opened, the agent continues its own work, and another agent
/// that is asked to review there gets that work. Each is answered where it was asked.
#[test]
fn a_pull_request_continues_the_conversation_of_the_agent_that_opened_it() {
    let mut world = world_with_agents();
    send_message(&mut world, github_message("claude", "1", 7, "fix it"));
    let grant = begin_attempt(&mut world, TaskId(1));
    open_session(&mut world, &grant, "s-1");
    end_turn(&mut world, &grant, "Done.", &["a"]);
    report_conversation(
        &mut world,
        ConversationReport::PullRequest {
            conversation: ConversationId(1),
            pull: pull_request(8),
        },
    );
    send_message(
        &mut world,
        github_message("claude", "2", 8, "and the tests?"),
    );
    assert_eq!(
        (
            world.board.conversations.len(),
            conversation_with_id(&world, 1).turn_count
        ),
        (1, 2)
    );
    let again = begin_attempt(&mut world, TaskId(1));
    assert_eq!(
        world.board.attempts[&again.attempt].resumed_session(),
        Some("s-1")
    );
    let number =
        |turn: usize| conversation_with_id(&world, 1).turns[turn].address["number"].clone();
    assert_eq!(
        [number(0), number(1)],
        ["7", "8"],
        "an answer goes to the wrong thread"
    );
    send_message(&mut world, github_message("codex", "3", 8, "review this"));
    let work = conversation_with_id(&world, 1).turns[0]
        .work
        .clone()
        .unwrap();
    assert_eq!(
        conversation_with_id(&world, 2).turns[0].reviewed_work,
        Some((work.commit, work.base))
    );
    // Two agents are in this thread now, so neither takes a message without a mention. In the
    // issue's thread the first agent is still alone.
    for name in ["claude", "codex"] {
        let plain = ThreadMessage {
            mentions_agent: false,
            ..github_message(name, "4", 8, "hm")
        };
        assert_eq!(
            send_message(&mut world, plain),
            ThreadMessageOutcome::Ignored,
            "{name}"
        );
    }
    let plain = ThreadMessage {
        mentions_agent: false,
        ..github_message("claude", "5", 7, "thanks")
    };
    assert!(matches!(
        send_message(&mut world, plain),
        ThreadMessageOutcome::Prompted { .. }
    ));
    // Another agent in the same thread has its own conversation.
    send_message(&mut world, github_message("codex", "6", 7, "hello"));
    assert_eq!(world.board.conversations.len(), 3);
}

/// When the work of a pull request has landed, the next work gets its own branch and pull request.
#[test]
fn work_after_a_landing_gets_its_own_pull_request() {
    let mut world = world_with_agents();
    send_message(&mut world, github_message("claude", "1", 7, "fix it"));
    let pulls = |world: &World| {
        conversation_with_id(world, 1)
            .posts
            .iter()
            .filter(|thread_post| thread_post.content == PostContent::Pull)
            .count()
    };
    let turn = |world: &mut World, number: u64| {
        let id = task_of_conversation(world, 1);
        let grant = begin_attempt(world, id);
        end_turn(world, &grant, "Done.", &["a"]);
        let work = conversation_with_id(world, 1)
            .turns
            .last()
            .unwrap()
            .work
            .clone()
            .unwrap();
        let pushed = PushedWork {
            commit: work.commit,
            failure: None,
        };
        report_conversation(
            world,
            ConversationReport::Pushed {
                conversation: ConversationId(1),
                pushed,
            },
        );
        let due = pulls(world);
        let due_post = conversation_with_id(world, 1)
            .posts
            .iter()
            .find(|thread_post| thread_post.content == PostContent::Pull && thread_post.is_due())
            .map(|thread_post| thread_post.number);
        if let Some(post) = due_post {
            show_post(world, 1, post, 1);
            let pull = ConversationPull {
                branch: Some(work.branch),
                ..pull_request(number)
            };
            report_conversation(
                world,
                ConversationReport::PullRequest {
                    conversation: ConversationId(1),
                    pull,
                },
            );
        }
        due
    };
    assert_eq!(turn(&mut world, 8), 1);
    send_message(&mut world, github_message("claude", "2", 7, "better"));
    assert_eq!(
        turn(&mut world, 9),
        1,
        "a second pull request for the same branch"
    );
    send_message(&mut world, github_message("claude", "3", 7, "land"));
    let landing = world.task(TaskId(1)).landing.unwrap();
    world.move_and_land(landing);
    send_message(&mut world, github_message("claude", "4", 7, "now the docs"));
    assert_eq!(turn(&mut world, 10), 2);
    assert_eq!(
        conversation_with_id(&world, 1)
            .pull
            .as_ref()
            .map(|conversation_pull| conversation_pull.number),
        Some(10)
    );
}

/// A landing that fails is reported in the thread and fixed by the agent, and then lands without a
/// new `move_and_land`. Messages that arrive meanwhile wait.
#[test]
fn a_landing_that_fails_is_reported_fixed_and_tried_again() {
    let mut world = world_with_agents();
    send_message(&mut world, slack_message("claude", "1", "fix it"));
    let grant = begin_attempt(&mut world, TaskId(1));
    end_turn(&mut world, &grant, "Done.", &["a"]);
    send_message(&mut world, slack_message("claude", "2", "land"));
    send_message(&mut world, slack_message("claude", "3", "now the docs"));
    let work = conversation_with_id(&world, 1).turns[0]
        .work
        .clone()
        .unwrap()
        .commit;
    let landing = world.task(TaskId(1)).landing.unwrap();
    world.fail_trials(landing, "a test fails");
    let now = conversation_with_id(&world, 1);
    assert!(
        matches!(&now.landing_end, Some(ConversationLandingEnd::Failed { work: id, .. }) if *id == work),
        "{:?}",
        now.landing_end
    );
    let tones = notes(now);
    assert!(
        tones
            .iter()
            .any(|tones| tones.0 == NoteTone::Trouble && tones.1.contains("a test fails")),
        "{tones:?}"
    );
    assert_eq!(
        (now.queued_count(), world.status(TaskId(1))),
        (1, TaskStatus::Pending),
        "the next turn started before the fix"
    );
    let mends = begin_attempt(&mut world, TaskId(1));
    end_turn(&mut world, &mends, "Mended.", &["a"]);
    assert_eq!(
        world.status(TaskId(1)),
        TaskStatus::Landing,
        "the fixed work does not land although `land` was given"
    );
    let landing = world.task(TaskId(1)).landing.unwrap();
    world.move_and_land(landing);
    let now = conversation_with_id(&world, 1);
    assert!(
        matches!(now.landing_end, Some(ConversationLandingEnd::Landed { .. })),
        "{:?}",
        now.landing_end
    );
    assert_eq!(
        now.current_turn()
            .map(|conversation_turn| conversation_turn.text.as_str()),
        Some("now the docs")
    );
    assert_eq!(world.reloaded(), world.board);
}

/// A project without fix-ups reports the failed landing once. A second `move_and_land` tries it
/// again.
#[test]
fn a_failed_landing_without_fixups_is_reported_once_and_can_be_landed_again() {
    let mut world = World::with_agents(&[("claude", 2)]);
    let mut project = world.project("shop", &[]);
    project.settings.landing.on_conflict = ConflictPolicy::Fail;
    world.ask("ann", Command::AddProject(project));
    send_message(&mut world, slack_message("claude", "1", "fix it"));
    let grant = begin_attempt(&mut world, TaskId(1));
    end_turn(&mut world, &grant, "Done.", &["a"]);
    send_message(&mut world, slack_message("claude", "2", "land"));
    let landing = world.task(TaskId(1)).landing.unwrap();
    world.fail_trials(landing, "a test fails");
    let troubles = |world: &World| {
        notes(conversation_with_id(world, 1))
            .iter()
            .filter(|note| note.0 == NoteTone::Trouble)
            .count()
    };
    assert_eq!(
        troubles(&world),
        1,
        "{:?}",
        notes(conversation_with_id(&world, 1))
    );
    assert!(matches!(
        conversation_with_id(&world, 1).landing_end,
        Some(ConversationLandingEnd::Failed { .. })
    ));
    send_message(&mut world, slack_message("claude", "3", "land"));
    assert_eq!(
        (world.status(TaskId(1)), troubles(&world)),
        (TaskStatus::Landing, 1)
    );
    let landing = world.task(TaskId(1)).landing.unwrap();
    world.move_and_land(landing);
    assert!(matches!(
        conversation_with_id(&world, 1).landing_end,
        Some(ConversationLandingEnd::Landed { .. })
    ));
}
