//! Questions in a project's channel, and the tasks that answer them.

use super::*;

#[test]
fn a_question_is_answered_although_all_leads_and_slots_are_busy() {
    let mut world = world_with_lead(1, |_| {});
    world.ask(
        "ann",
        Command::SetLimits {
            limits: MachineLimits {
                max_attempts: 1,
                ..world.board.limits
            },
        },
    );
    post_and_route(&mut world, "ann", "!mission long", None);
    begin_turn(&mut world, 1);
    add_child(&mut world, 1, "one", &["a"]);
    let busy = take_next_task(&mut world, 1);
    let asked = post_and_route(&mut world, "ann", "!qq where is the login?", None);
    let [task] = answer_tasks(&world)[..] else {
        panic!()
    };
    assert_eq!(world.task(task).effort.as_deref(), Some("medium"));
    assert_eq!(world.task(task).assignee, Some(agent("shop-dev")));
    let grant = begin_attempt(&mut world, task);
    end_attempt(&mut world, &grant, "in src/login.rs");
    let [answer] = &messages_after(&world, asked)[..] else {
        panic!()
    };
    assert_eq!(
        (answer.text.as_str(), answer.reply_to),
        ("in src/login.rs", Some(asked))
    );
    assert_eq!(answer.sender, Actor::Agent(agent("shop-dev")));
    assert!(world.board.attempts.contains_key(&busy.attempt));
}

#[test]
fn replies_in_a_thread_continue_its_session_one_at_a_time() {
    let mut world = world_with_lead(1, |_| {});
    let asked = post_and_route(&mut world, "ann", "!q(opus) why?", None);
    let [first] = answer_tasks(&world)[..] else {
        panic!()
    };
    assert_eq!(world.task(first).model.as_deref(), Some("opus"));
    let grant = begin_attempt(&mut world, first);
    let PollGrant { attempt, token, .. } = grant;
    let event = AgentEvent::Started {
        session: Some("s-1".into()),
        model: None,
    };
    world.report(Report::AgentEvent {
        attempt,
        token,
        n: 1,
        event,
    });
    // Two more questions before the answer wait for their turn.
    post_and_route(&mut world, "ann", "and when?", Some(asked));
    post_and_route(&mut world, "ann", "and who?", Some(asked));
    let [_, second, third] = answer_tasks(&world)[..] else {
        panic!("{:?}", answer_tasks(&world))
    };
    assert_eq!(
        (world.wait_kinds(second)[0], world.wait_kinds(third)[0]),
        (WaitKind::Dependency, WaitKind::Dependency)
    );
    end_attempt(&mut world, &grant, "because");
    let grant = begin_attempt(&mut world, second);
    let resumed = world.board.attempts[&grant.attempt]
        .resumed_session()
        .map(str::to_owned);
    assert_eq!(
        resumed.as_deref(),
        Some("s-1"),
        "the second answer did not resume the session"
    );
    end_attempt(&mut world, &grant, "tomorrow");
    let answer = messages_after(&world, asked)
        .into_iter()
        .rfind(|message| message.text == "tomorrow")
        .unwrap();
    let grant = begin_attempt(&mut world, third);
    end_attempt(&mut world, &grant, "you");
    // A reply to an answer continues the thread. A reply to a one-shot question does not.
    post_and_route(&mut world, "ann", "thanks, and where?", Some(answer.id));
    let [fourth] = answer_tasks(&world)[..] else {
        panic!()
    };
    assert!(matches!(world.task(fourth).purpose, Purpose::Answer { root, .. } if root == asked));

    let once = post_and_route(&mut world, "ann", "!oneshot quickly?", None);
    post_and_route(&mut world, "ann", "more?", Some(once));
    let purposes: Vec<_> = answer_tasks(&world)
        .iter()
        .map(|id| world.task(*id).purpose.clone())
        .collect();
    assert!(
        matches!(purposes[2], Purpose::Triage { .. }),
        "a one-shot question continues no thread: {purposes:?}"
    );
}

#[test]
fn a_question_without_an_answer_gets_a_failure_message() {
    let mut world = world_with_lead(1, |_| {});
    let asked = post_and_route(&mut world, "ann", "!q why?", None);
    let [task] = answer_tasks(&world)[..] else {
        panic!()
    };
    for _ in 0..3 {
        let grant = begin_attempt(&mut world, task);
        end_attempt(&mut world, &grant, " ");
    }
    let [said] = &messages_after(&world, asked)[..] else {
        panic!()
    };
    assert!(
        has_label(said, "answer:failed") && said.text.contains("no answer"),
        "{}",
        said.text
    );
    assert_eq!(said.reply_to, Some(asked));
}

/// W1: a question in a thread is answered even if the question before it failed or was cancelled.
#[test]
fn w1_a_failed_answer_does_not_hold_up_the_next_question() {
    for cancelled in [false, true] {
        let mut world = world_with_lead(1, |_| {});
        let asked = post_and_route(&mut world, "ann", "!q why?", None);
        post_and_route(&mut world, "ann", "and when?", Some(asked));
        let [first, second] = answer_tasks(&world)[..] else {
            panic!()
        };
        assert_eq!(world.wait_kinds(second)[0], WaitKind::Dependency);
        if cancelled {
            world.ask(
                "ann",
                Command::CancelTask {
                    task: first,
                    reason: "never mind".into(),
                },
            );
        } else {
            for _ in 0..3 {
                let grant = begin_attempt(&mut world, first);
                end_attempt(&mut world, &grant, " ");
            }
        }
        let grant = begin_attempt(&mut world, second);
        end_attempt(&mut world, &grant, "tomorrow");
        assert!(
            messages_after(&world, asked)
                .iter()
                .any(|message| message.text == "tomorrow")
        );
        post_and_route(&mut world, "ann", "and who?", Some(asked));
        let third = *answer_tasks(&world).last().unwrap();
        let grant = begin_attempt(&mut world, third);
        end_attempt(&mut world, &grant, "you");
    }
}
