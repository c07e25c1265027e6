//! Leads and their missions, and the router with its questions.

use regatta_core::agent_protocol::{AgentEvent, RequestAnswer, RequestContent, ToolCall, ToolKind};
use regatta_core::approval::AnswerScope;
use regatta_core::attempt::{AttemptCause, ProgramExit, WorkFindings, WorkResult};
use regatta_core::bus::{Message, PostMessage};
use regatta_core::claim::{ClaimMode, ClaimOwner};
use regatta_core::command::{Actor, Command, CommandOutcome};
use regatta_core::event::Event;
use regatta_core::ids::{AgentName, ChannelName, Label, MessageId, MissionId, TaskId};
use regatta_core::lead::{self, Lead, LeadRequest};
use regatta_core::limits::MachineLimits;
use regatta_core::mission::MissionState;
use regatta_core::project::{Millis, ProjectSettings, TriagePolicy};
use regatta_core::schedule::{PollGrant, PollRequest, WaitKind};
use regatta_core::start_gates::StartFacts;
use regatta_core::task::{AssignMode, Task, TaskDuty, TaskStatus};

use crate::world::{
    HOUR_MS, MINUTE_MS, SECOND_MS, World, acquire, agent, poll_of, shop, task_to_add, uri,
};

/// Returns a world with the project `shop`, which `ada` leads, its router, and this many leads at
/// most.
fn world_with_lead(max_leads: u32, set: impl FnOnce(&mut ProjectSettings)) -> World {
    let mut world = World::with_agents(&[("ada", 2)]);
    let mut ask = world.project("shop", &["cargo test"]);
    ask.settings.leads.max_leads = max_leads;
    ask.settings.leads.agent = Some(agent("ada"));
    ask.settings.leads.max_workers = 2;
    ask.settings.landing.mode = regatta_core::project::QueueMode::Serial;
    set(&mut ask.settings);
    world.ask("ann", Command::AddProject(ask));
    world
}

fn message_of(world: &World, id: MessageId) -> Message {
    let posted = world.log.iter().find_map(|event| match &event.event {
        Event::MessagePosted(message_posted) if message_posted.message().id == id => {
            Some(message_posted.message().clone())
        }
        _ => None,
    });
    posted.unwrap_or_else(|| panic!("{id} was not posted"))
}

/// Posts in the project's channel and routes the message, as the router's hook does.
fn post_and_route(
    world: &mut World,
    who: &str,
    text: &str,
    reply_to: Option<MessageId>,
) -> MessageId {
    let channel = ChannelName::new("shop").unwrap();
    let post = PostMessage {
        channel,
        text: text.into(),
        labels: vec![],
        reply_to,
    };
    let CommandOutcome::Message(id) = world.ask(who, Command::Post(post)) else {
        panic!()
    };
    deliver_to_router(world, id);
    id
}

fn deliver_to_router(world: &mut World, id: MessageId) {
    let message = Box::new(message_of(world, id));
    world.ask(
        "regatta",
        Command::Route {
            project: shop(),
            message,
        },
    );
}

/// Returns the messages after a message.
fn messages_after(world: &World, id: MessageId) -> Vec<Message> {
    let posted = world.log.iter().filter_map(|event| match &event.event {
        Event::MessagePosted(message_posted) if message_posted.message().id > id => {
            Some(message_posted.message().clone())
        }
        _ => None,
    });
    posted.collect()
}

fn has_label(message: &Message, label: &str) -> bool {
    message.labels.iter().any(|item| item.as_str() == label)
}

fn lead_of_mission(world: &World, id: u64) -> Lead {
    world.board.missions[&MissionId(id)].lead.clone().unwrap()
}

fn lead_name(world: &World, id: u64) -> AgentName {
    lead_of_mission(world, id).name.unwrap()
}

fn missions_at_work(world: &World) -> Vec<u64> {
    lead::led_missions(&world.board, &shop())
        .map(|mission| mission.id.0)
        .collect()
}

/// Polls for one task, as the daemon does for leads and answers.
fn begin_attempt(world: &mut World, task: TaskId) -> PollGrant {
    let of = world.task(task).assignee.clone().unwrap();
    let poll = PollRequest {
        task: Some(task),
        ..poll_of(of.as_str())
    };
    let command = Command::PollSupervised {
        poll,
        facts: Box::<StartFacts>::default(),
    };
    match world.ask("regatta", command) {
        CommandOutcome::Polled(Some(grant)) => grant,
        other => panic!(
            "{task} did not start: {other:?} {:?}",
            world.wait_kinds(task)
        ),
    }
}

/// Ends a turn or an answer with this text.
fn end_attempt(world: &mut World, grant: &PollGrant, detail: &str) {
    let PollGrant { attempt, token, .. } = *grant;
    world.ask(
        "regatta",
        Command::ReportExited {
            attempt,
            token,
            exit: ProgramExit::Done { output: None },
        },
    );
    let result = Some(WorkResult {
        detail: detail.into(),
        ..WorkResult::default()
    });
    let findings = WorkFindings {
        result,
        ..WorkFindings::default()
    };
    let verdict = crate::world::passed_verdict(&[]);
    world.ask(
        "regatta",
        Command::ReportWorkVerdict {
            attempt,
            token,
            verdict,
            findings,
        },
    );
}

fn begin_turn(world: &mut World, mission: u64) -> PollGrant {
    let task = lead_of_mission(world, mission).task.unwrap();
    begin_attempt(world, task)
}

/// Adds a child task to a mission, as the lead's tool does.
fn add_child(world: &mut World, mission: u64, subject: &str, manifest: &[&str]) -> TaskId {
    let by = lead_name(world, mission);
    let add = Command::AddChild {
        mission: MissionId(mission),
        task: task_to_add(subject, manifest),
        assign: None,
        how: AssignMode::Direct,
    };
    match world.ask(by.as_str(), add) {
        CommandOutcome::Task(id) => id,
        other => panic!("{other:?}"),
    }
}

/// Lets a worker of a mission take its next task.
fn take_next_task(world: &mut World, mission: u64) -> PollGrant {
    let workers = world.board.missions[&MissionId(mission)].agents.clone();
    let free = workers
        .iter()
        .find_map(|agent| world.poll_supervised(agent.as_str()));
    free.expect("a worker gets a task")
}

/// A worker's program ends, and its work lands.
fn finish_and_land(world: &mut World, grant: &PollGrant) {
    let PollGrant {
        attempt,
        token,
        task,
        ..
    } = *grant;
    world.ask(
        "regatta",
        Command::ReportExited {
            attempt,
            token,
            exit: ProgramExit::Done { output: None },
        },
    );
    let changed: Vec<String> = world
        .task(task)
        .files
        .iter()
        .map(ToString::to_string)
        .collect();
    let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
    let landing = world
        .report_verdict(grant, crate::world::passed_verdict(&changed))
        .unwrap();
    world.move_and_land(landing);
}

fn answer_tasks(world: &World) -> Vec<TaskId> {
    let asks = |task: &Task| {
        matches!(
            task.duty,
            Some(TaskDuty::Answer { .. } | TaskDuty::Triage { .. })
        )
    };
    world
        .board
        .tasks
        .values()
        .filter(|task| asks(task))
        .map(|task| task.id)
        .collect()
}

#[test]
fn of_five_missions_three_start_two_wait_and_repeated_messages_add_none() {
    let mut world = world_with_lead(3, |_| {});
    let mut asked = Vec::new();
    for nth in 1..=5 {
        asked.push(post_and_route(
            &mut world,
            "ann",
            &format!("!dev do thing {nth}"),
            None,
        ));
    }
    assert_eq!(missions_at_work(&world), [1, 2, 3]);
    deliver_to_router(&mut world, asked[1]);
    deliver_to_router(&mut world, asked[4]);
    assert_eq!(
        world.board.missions.len(),
        5,
        "a message that was delivered twice started a mission"
    );
    let acks: Vec<String> = messages_after(&world, MessageId(0))
        .into_iter()
        .filter(|message| has_label(message, "spawn-ack"))
        .map(|message| message.text)
        .collect();
    assert_eq!(acks.len(), 5, "{acks:?}");
    assert!(
        acks[3].contains("M4 waits for a lead: it is number 1 in the queue, and 3 of 3"),
        "{}",
        acks[3]
    );
    assert!(acks[4].contains("number 2"), "{}", acks[4]);
    let names: std::collections::BTreeSet<_> = (1..=3).map(|n| lead_name(&world, n)).collect();
    assert_eq!(names.len(), 3);
    for id in 1..=3 {
        let name = lead_name(&world, id);
        assert!(name.as_str().starts_with("shop-dev/lead-"), "{name}");
        let own = uri(&format!("agent://{name}"));
        assert!(
            world
                .board
                .claims
                .values()
                .any(|claim| claim.uris.contains(&own)),
            "{name} does not hold its name"
        );
    }

    // When a mission ends, the first waiting one starts without a message.
    let grant = begin_turn(&mut world, 2);
    end_attempt(&mut world, &grant, "all done");
    assert_eq!(missions_at_work(&world), [1, 3, 4]);
    assert_eq!(lead::queue_position(&world.board, MissionId(5)), Some(1));
    let grant = begin_turn(&mut world, 1);
    end_attempt(&mut world, &grant, "done, too");
    assert_eq!(missions_at_work(&world), [3, 4, 5]);
    assert!(
        !world
            .board
            .agents
            .keys()
            .any(|agent| names.contains(agent) && *agent != lead_name(&world, 3)),
        "the agents of ended missions are removed"
    );
}

#[test]
fn a_second_mission_waits_while_the_limit_is_one_lead() {
    let mut world = world_with_lead(1, |_| {});
    post_and_route(&mut world, "ann", "!mission one", None);
    post_and_route(&mut world, "ann", "!mission two", None);
    assert_eq!(missions_at_work(&world), [1]);
    assert_eq!(
        world.board.missions[&MissionId(2)].state,
        MissionState::Queued
    );
    // A higher limit is used at once.
    let mut ask = world.project("shop", &["cargo test"]);
    ask.settings = world.board.projects[&shop()].settings.clone();
    ask.settings.leads.max_leads = 2;
    world.ask("ann", Command::AddProject(ask));
    assert_eq!(missions_at_work(&world), [1, 2]);
}

#[test]
fn a_lead_sleeps_between_turns_and_its_next_turn_lists_what_happened() {
    let mut world = world_with_lead(3, |_| {});
    post_and_route(&mut world, "ann", "!mission Add limits", None);
    let grant = begin_turn(&mut world, 1);
    let task = add_child(&mut world, 1, "limit logins", &["src/login.rs"]);
    end_attempt(&mut world, &grant, "I planned one task");
    let own = lead_of_mission(&world, 1).task.unwrap();
    assert!(world.task(own).resting);
    assert_eq!(
        world.wait_kinds(own)[0],
        WaitKind::Lead,
        "W1: a sleeping lead has a wait reason"
    );
    assert_eq!(
        world.board.missions[&MissionId(1)].state,
        MissionState::Active
    );

    let work = take_next_task(&mut world, 1);
    assert_eq!(work.task, task);
    let worker = world.board.attempts[&work.attempt].agent.clone();
    assert!(
        worker
            .as_str()
            .starts_with(&format!("{}/worker-", lead_name(&world, 1))),
        "{worker}"
    );
    finish_and_land(&mut world, &work);
    assert_eq!(world.status(task), TaskStatus::Completed);
    assert!(!world.task(own).resting, "a landing did not wake the lead");
    let grant = begin_turn(&mut world, 1);
    let notes = &world.board.attempts[&grant.attempt].notes;
    assert!(
        notes[0].contains("What happened since your last turn")
            && notes[0].contains("limit logins"),
        "{notes:?}"
    );
    let PollGrant {
        task: own,
        attempt,
        token,
        ..
    } = grant;
    world.ask(
        "regatta",
        Command::FinishMission {
            task: own,
            attempt,
            token,
            report: "Logins are limited.".into(),
        },
    );
    end_attempt(&mut world, &grant, "bye");
    assert!(world.board.missions.is_empty());
    let said = messages_after(&world, MessageId(0))
        .into_iter()
        .rfind(|message| has_label(message, "mission:done"))
        .unwrap();
    assert!(said.text.contains("Logins are limited."), "{}", said.text);
    let merged = messages_after(&world, MessageId(0))
        .into_iter()
        .find(|message| has_label(message, "coord:merge"))
        .unwrap();
    let of_lead = said
        .labels
        .iter()
        .find(|label| label.as_str().starts_with("lead:"))
        .unwrap();
    assert!(
        has_label(&merged, "M1") && merged.labels.contains(of_lead),
        "{:?}",
        merged.labels
    );
    assert!(
        world
            .board
            .agents
            .keys()
            .all(|agent| agent.as_str() == "ada"),
        "an agent of the ended mission is left"
    );
    assert!(world.board.claims.is_empty());
}

#[test]
fn a_lead_cannot_finish_with_open_tasks_or_exceed_max_children() {
    let mut world = world_with_lead(3, |project_settings| {
        project_settings.leads.max_children = 2
    });
    post_and_route(&mut world, "ann", "!mission x", None);
    let grant = begin_turn(&mut world, 1);
    add_child(&mut world, 1, "one", &["a"]);
    world.add(task_to_add("of nobody", &["c"]));
    let PollGrant {
        task,
        attempt,
        token,
        ..
    } = grant;
    let finish = Command::FinishMission {
        task,
        attempt,
        token,
        report: "done".into(),
    };
    assert!(
        world
            .ask_refused("regatta", finish)
            .message()
            .contains("open")
    );
    let pool = world
        .board
        .tasks
        .values()
        .find(|task| task.subject == "of nobody")
        .unwrap()
        .id;
    world.ask(
        "ann",
        Command::AdoptTask {
            mission: MissionId(1),
            task: pool,
        },
    );
    let more = Command::AddChild {
        mission: MissionId(1),
        task: task_to_add("three", &["d"]),
        assign: None,
        how: AssignMode::Direct,
    };
    assert!(
        world
            .ask_refused("ann", more)
            .message()
            .contains("2 of at most 2")
    );
    post_and_route(&mut world, "ann", "!mission y", None);
    let other = world.ask_refused(
        "ann",
        Command::AdoptTask {
            mission: MissionId(2),
            task: pool,
        },
    );
    assert_eq!(other.code(), "in_use", "a task was adopted by two missions");
}

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
    let said = AgentEvent::Started {
        session: Some("s-1".into()),
        model: None,
    };
    world.ask(
        "regatta",
        Command::ReportAgentEvent {
            attempt,
            token,
            n: 1,
            event: said,
        },
    );
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
    assert!(
        matches!(world.task(fourth).duty, Some(TaskDuty::Answer { root, .. }) if root == asked)
    );

    let once = post_and_route(&mut world, "ann", "!oneshot quickly?", None);
    post_and_route(&mut world, "ann", "more?", Some(once));
    let duties: Vec<_> = answer_tasks(&world)
        .iter()
        .map(|id| world.task(*id).duty.clone().unwrap())
        .collect();
    assert!(
        matches!(duties[2], TaskDuty::Triage { .. }),
        "a one-shot question continues no thread: {duties:?}"
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
        let mut ask = world.project("shop", &["cargo test"]);
        ask.settings = world.board.projects[&shop()].settings.clone();
        ask.settings.router.triage = triage;
        world.ask("ann", Command::AddProject(ask));
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

#[test]
fn a_mission_that_loses_its_lead_stops_and_can_be_handed_over() {
    let mut world = world_with_lead(1, |_| {});
    world.register("eve", 1);
    post_and_route(&mut world, "ann", "!mission x", None);
    post_and_route(&mut world, "ann", "!mission behind it", None);
    let grant = begin_turn(&mut world, 1);
    let task = add_child(&mut world, 1, "one", &["a"]);
    let work = take_next_task(&mut world, 1);
    let lost = lead_name(&world, 1);
    let PollGrant {
        task: own,
        attempt,
        token,
        ..
    } = grant;
    world.ask(
        "ann",
        Command::GiveUp {
            task: own,
            attempt,
            token,
            reason: Some("no idea ".repeat(20_000)),
        },
    );
    assert_eq!(
        world.board.missions[&MissionId(1)].state,
        MissionState::Draining
    );
    assert_eq!(
        world.board.attempts[&work.attempt].stopping,
        Some(AttemptCause::Stopped),
        "the workers of the mission are not stopped"
    );
    assert_eq!(
        world.status(task),
        TaskStatus::Unassigned,
        "the task of the stopped worker does not wait"
    );
    assert_eq!(
        missions_at_work(&world),
        [2],
        "the lost lead still counts against the limit"
    );
    assert!(
        messages_after(&world, MessageId(0))
            .iter()
            .any(|message| has_label(message, "mission:lost") && message.text.contains("no idea"))
    );
    assert!(
        world
            .ask_refused(
                "ann",
                Command::ResumeMission {
                    mission: MissionId(1)
                }
            )
            .hint()
            .contains("handover")
    );
    let gone = Command::ReportExited {
        attempt: work.attempt,
        token: work.token,
        exit: ProgramExit::Lost,
    };
    world.ask("regatta", gone);
    world.ask(
        "regatta",
        Command::ReportExited {
            attempt,
            token,
            exit: ProgramExit::Lost,
        },
    );

    world.ask(
        "ann",
        Command::HandOverMission {
            mission: MissionId(1),
            to: Some(agent("eve")),
        },
    );
    assert_eq!(lead::queue_position(&world.board, MissionId(1)), Some(1));
    let grant = begin_turn(&mut world, 2);
    end_attempt(&mut world, &grant, "done");
    assert_eq!(missions_at_work(&world), [1]);
    assert_ne!(lead_name(&world, 1), lost);
    assert_eq!(
        world.board.agents[&lead_name(&world, 1)].derived_from,
        Some(agent("eve"))
    );
    assert!(!world.board.agents.contains_key(&lost));
    let work = take_next_task(&mut world, 1);
    assert_eq!(
        work.task, task,
        "the task does not go on under the new lead"
    );
}

#[test]
fn a_mission_that_is_handed_over_keeps_its_running_workers() {
    let mut world = world_with_lead(2, |_| {});
    post_and_route(&mut world, "ann", "!mission x", None);
    let grant = begin_turn(&mut world, 1);
    add_child(&mut world, 1, "one", &["a"]);
    let work = take_next_task(&mut world, 1);
    let old = world.board.attempts[&work.attempt].agent.clone();
    world.ask(
        "ann",
        Command::HandOverMission {
            mission: MissionId(1),
            to: None,
        },
    );
    assert!(world.board.attempts[&grant.attempt].stopping.is_some());
    assert_eq!(
        world.board.attempts[&work.attempt].stopping, None,
        "a worker was stopped by the handover"
    );
    assert_eq!(missions_at_work(&world), [1]);
    assert!(world.board.agents.contains_key(&old));
    finish_and_land(&mut world, &work);
    assert!(
        !world.board.agents.contains_key(&old),
        "the old worker is left after its task is done"
    );
}

/// J1, W1: tasks of a worker that no longer works for the mission are unassigned, because nobody
/// would poll for them.
#[test]
fn j1_tasks_of_a_previous_leads_worker_are_unassigned() {
    let mut world = world_with_lead(1, |_| {});
    post_and_route(&mut world, "ann", "!mission x", None);
    begin_turn(&mut world, 1);
    let (begun, waits) = (
        add_child(&mut world, 1, "one", &["a"]),
        add_child(&mut world, 1, "two", &["b"]),
    );
    let worker = world.board.missions[&MissionId(1)].agents[0].clone();
    for task in [begun, waits] {
        world.ask(
            "ann",
            Command::AssignTask {
                task,
                to: Some(worker.clone()),
                how: AssignMode::Queue,
            },
        );
    }
    let work = world
        .poll_supervised(worker.as_str())
        .expect("the first task starts");
    world.ask(
        "ann",
        Command::HandOverMission {
            mission: MissionId(1),
            to: None,
        },
    );
    assert!(
        !world.board.missions[&MissionId(1)].agents.contains(&worker),
        "the mission still has the old worker"
    );
    assert_eq!(
        world.task(waits).assignee,
        None,
        "a task that has not started keeps the old worker"
    );
    assert_eq!(
        world.status(begun),
        TaskStatus::InProgress,
        "a running task was stopped"
    );
    // The running attempt is lost. Its task is not given to the old worker again.
    let PollGrant { attempt, token, .. } = work;
    world.ask(
        "regatta",
        Command::ReportExited {
            attempt,
            token,
            exit: ProgramExit::Lost,
        },
    );
    assert_eq!(
        (world.status(begun), &world.task(begun).assignee),
        (TaskStatus::Unassigned, &None)
    );
    assert!(
        !world.board.agents.contains_key(&worker),
        "the old worker is still on the board"
    );
    world.advance(HOUR_MS);
    let taken: std::collections::BTreeSet<_> =
        [take_next_task(&mut world, 1), take_next_task(&mut world, 1)]
            .map(|poll_grant| poll_grant.task)
            .into();
    assert_eq!(taken, [begun, waits].into());
}

#[test]
fn a_cancelled_mission_cancels_all_its_tasks() {
    let mut world = world_with_lead(1, |_| {});
    post_and_route(&mut world, "ann", "!mission x", None);
    post_and_route(&mut world, "ann", "!mission y", None);
    let grant = begin_turn(&mut world, 1);
    let task = add_child(&mut world, 1, "one", &["a"]);
    let work = take_next_task(&mut world, 1);
    world.ask(
        "ann",
        Command::CancelMission {
            mission: MissionId(1),
            reason: "not wanted".into(),
        },
    );
    assert_eq!(world.status(task), TaskStatus::Cancelled);
    let said = messages_after(&world, MessageId(0));
    assert!(
        said.iter()
            .any(|message| has_label(message, "mission:cancelled")),
        "{said:?}"
    );
    assert!(
        !said
            .iter()
            .any(|message| has_label(message, "mission:done")),
        "a cancelled mission is not done"
    );
    for attempt in [grant.attempt, work.attempt] {
        assert!(
            world.board.attempts[&attempt].stopping.is_some(),
            "{attempt} is not stopped"
        );
    }
    assert_eq!(missions_at_work(&world), [2]);
    for PollGrant { attempt, token, .. } in [grant, work] {
        world.ask(
            "regatta",
            Command::ReportExited {
                attempt,
                token,
                exit: ProgramExit::Lost,
            },
        );
    }
    let names: Vec<_> = world
        .board
        .agents
        .values()
        .filter(|agent| agent.derived_from.is_some())
        .map(|agent| agent.name.clone())
        .collect();
    assert!(
        names
            .iter()
            .all(|agent| agent.as_str().starts_with(lead_name(&world, 2).as_str())),
        "{names:?}"
    );
    // A waiting mission can be cancelled, too, and the mission behind it moves up.
    post_and_route(&mut world, "ann", "!mission z", None);
    world.ask(
        "ann",
        Command::CancelMission {
            mission: MissionId(3),
            reason: "no".into(),
        },
    );
    assert_eq!(world.board.missions.len(), 1);
}

#[test]
fn a_mission_posts_a_summary_after_a_change_and_ends_at_its_timeout() {
    let mut world = world_with_lead(2, |project_settings| {
        project_settings.leads.checkpoint_interval = Millis::seconds(30);
        project_settings.leads.timeout = Millis::seconds(3 * 3_600);
    });
    post_and_route(&mut world, "ann", "!mission x", None);
    begin_turn(&mut world, 1);
    let summed = |world: &World| {
        messages_after(world, MessageId(0))
            .into_iter()
            .filter(|message| has_label(message, "feedback"))
            .count()
    };
    world.advance(31 * SECOND_MS);
    assert_eq!(summed(&world), 1);
    world.advance(10 * MINUTE_MS);
    assert_eq!(summed(&world), 1, "a summary was posted without a change");
    add_child(&mut world, 1, "one", &["a"]);
    world.advance(31 * SECOND_MS);
    let said = messages_after(&world, MessageId(0))
        .into_iter()
        .rfind(|message| has_label(message, "feedback"))
        .unwrap();
    assert!(
        has_label(&said, "M1") && has_label(&said, &format!("lead:{}", lead_name(&world, 1))),
        "{:?}",
        said.labels
    );
    assert!(said.text.contains("1 waiting"), "{}", said.text);
    world.advance(3 * HOUR_MS);
    assert!(
        lead_of_mission(&world, 1)
            .lost_reason
            .unwrap()
            .contains("time is up")
    );
    assert!(missions_at_work(&world).is_empty());
}

#[test]
fn leads_get_news_of_new_leads_and_are_woken_by_mentions() {
    let mut world = world_with_lead(3, |_| {});
    post_and_route(&mut world, "ann", "!mission one", None);
    let grant = begin_turn(&mut world, 1);
    add_child(&mut world, 1, "a", &["a"]);
    end_attempt(&mut world, &grant, "planned");
    post_and_route(&mut world, "ann", "!mission two", None);
    let own = lead_of_mission(&world, 1).task.unwrap();
    assert!(
        lead_of_mission(&world, 1)
            .news
            .iter()
            .any(|new| new.contains("leads M2")),
        "{:?}",
        lead_of_mission(&world, 1).news
    );
    assert!(world.task(own).resting, "a new lead woke another lead");
    let name = lead_name(&world, 1);
    post_and_route(&mut world, "bob", &format!("@{name} look here"), None);
    assert!(!world.task(own).resting, "a mention did not wake the lead");
    let grant = begin_turn(&mut world, 1);
    let notes = world.board.attempts[&grant.attempt].notes.join("\n");
    assert!(
        notes.contains("leads M2") && notes.contains("look here"),
        "{notes}"
    );
    // The lead's own message does not wake it.
    post_and_route(
        &mut world,
        name.as_str(),
        &format!("I, @{name}, am here"),
        None,
    );
    end_attempt(&mut world, &grant, "seen");
    assert!(world.task(own).resting);
    let siblings = lead::siblings(&world.board, &shop(), Some(MissionId(2)));
    assert_eq!(
        (siblings.len(), &siblings[0].lead, siblings[0].tasks.len()),
        (1, &name, 1)
    );
}

#[test]
fn a_mission_without_one_possible_lead_is_refused_with_the_reason() {
    let mut world = World::with_agents(&[]);
    let ask = |agent: Option<&str>| {
        Command::AskMission(LeadRequest {
            project: shop(),
            goal: "x".into(),
            subject: lead::LeadSubject::Goal,
            agent: agent.map(crate::world::agent),
            message: None,
            channel: None,
        })
    };
    assert!(
        world
            .ask_refused("ann", ask(None))
            .message()
            .contains("no agent")
    );
    world.register("ada", 1);
    world.ask("ann", ask(None));
    world.register("bob", 1);
    assert!(
        world
            .ask_refused("ann", ask(None))
            .message()
            .contains("several")
    );
    world.ask("ann", ask(Some("bob")));
    let derived = lead_name(&world, 1);
    assert!(
        world
            .ask_refused("ann", ask(Some(derived.as_str())))
            .message()
            .contains("named for one mission")
    );
    // In a channel, the refusal is posted as an answer.
    let asked = post_and_route(&mut world, "ann", "!mission x", None);
    assert!(
        messages_after(&world, asked)[0]
            .text
            .contains("several agents could lead")
    );
    let focus = post_and_route(&mut world, "ann", "!dev T99", None);
    assert!(messages_after(&world, focus)[0].text.contains("T99"));
}

/// An answer for a whole task or mission that has ended adds no rule, because nothing would ever
/// remove the rule.
#[test]
fn an_answer_for_an_ended_task_or_mission_adds_no_rule() {
    for (reach, cancel) in [(AnswerScope::Task, false), (AnswerScope::Mission, true)] {
        let mut world = world_with_lead(1, |_| {});
        post_and_route(&mut world, "ann", "!mission x", None);
        begin_turn(&mut world, 1);
        let task = add_child(&mut world, 1, "one", &["a"]);
        let PollGrant { attempt, token, .. } = take_next_task(&mut world, 1);
        let tool = ToolCall {
            kind: ToolKind::Execute,
            command: Some("make".into()),
            ..ToolCall::default()
        };
        let want = RequestContent::Permission {
            tool,
            options: vec![],
        };
        let said = AgentEvent::RequestMade(regatta_core::agent_protocol::AgentRequest {
            id: "1".into(),
            content: want,
        });
        world.ask(
            "regatta",
            Command::ReportAgentEvent {
                attempt,
                token,
                n: 1,
                event: said,
            },
        );
        let end = match cancel {
            true => Command::CancelMission {
                mission: MissionId(1),
                reason: "no".into(),
            },
            false => Command::CancelTask {
                task,
                reason: "no".into(),
            },
        };
        world.ask("ann", end);
        let approval = *world.board.approvals.keys().next().unwrap();
        world.ask(
            "ann",
            Command::Decide {
                approval,
                answer: RequestAnswer::Allow,
                scope: reach,
                also: vec![],
            },
        );
        assert!(world.board.rules.is_empty(), "{reach:?}");
    }
}

/// Only a person decides requests for permission. Leads, hooks and other agents cannot. A lead can
/// answer questions of its workers.
#[test]
fn no_agent_can_decide_a_permission_request() {
    let mut world = world_with_lead(1, |_| {});
    post_and_route(&mut world, "ann", "!mission x", None);
    begin_turn(&mut world, 1);
    add_child(&mut world, 1, "one", &["a"]);
    let PollGrant { attempt, token, .. } = take_next_task(&mut world, 1);
    let tool = ToolCall {
        kind: ToolKind::Execute,
        command: Some("make".into()),
        ..ToolCall::default()
    };
    let wants = [
        RequestContent::Permission {
            tool,
            options: vec![],
        },
        RequestContent::Question {
            text: "Which?".into(),
            choices: vec![],
            schema: None,
        },
    ];
    for (n, want) in (1..).zip(wants) {
        let said = AgentEvent::RequestMade(regatta_core::agent_protocol::AgentRequest {
            id: n.to_string(),
            content: want,
        });
        world.ask(
            "regatta",
            Command::ReportAgentEvent {
                attempt,
                token,
                n,
                event: said,
            },
        );
    }
    let [permission, question] = world.board.approvals.keys().copied().collect::<Vec<_>>()[..]
    else {
        panic!()
    };
    let lead = lead_name(&world, 1);
    for who in [lead.as_str(), "hook/H1", "ada"] {
        for answer in [RequestAnswer::Allow, RequestAnswer::Deny { reason: None }] {
            let refusal = world.ask_refused(
                who,
                Command::Decide {
                    approval: permission,
                    answer,
                    scope: AnswerScope::Once,
                    also: vec![],
                },
            );
            assert!(
                refusal.message().contains("only a person can decide"),
                "{who}: {}",
                refusal.message()
            );
        }
    }
    let text = RequestAnswer::Text {
        text: "That one".into(),
    };
    world.ask(
        lead.as_str(),
        Command::Decide {
            approval: question,
            answer: text,
            scope: AnswerScope::Once,
            also: vec![],
        },
    );
    world.ask(
        "ann",
        Command::Decide {
            approval: permission,
            answer: RequestAnswer::Allow,
            scope: AnswerScope::Once,
            also: vec![],
        },
    );
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

/// When a lead edits files itself, the change becomes a task that is checked and landed, and the
/// mission is not done before.
#[test]
fn a_change_by_a_lead_itself_becomes_a_task_of_its_mission() {
    let mut world = world_with_lead(1, |_| {});
    post_and_route(&mut world, "ann", "!mission x", None);
    let grant = begin_turn(&mut world, 1);
    let PollGrant {
        attempt,
        token,
        task: own,
        ..
    } = grant;
    world.ask(
        "regatta",
        Command::ReportExited {
            attempt,
            token,
            exit: ProgramExit::Done { output: None },
        },
    );
    let landing = {
        world.report_verdict(&grant, crate::world::passed_verdict(&["triple.py"]));
        *world
            .board
            .landings
            .keys()
            .next()
            .expect("the change is queued")
    };
    assert!(
        world.board.missions.contains_key(&MissionId(1)),
        "the mission is not done"
    );
    let adopted = world.board.landings[&landing].task;
    let task = world.task(adopted).clone();
    assert_eq!(
        (task.mission, task.status),
        (Some(MissionId(1)), TaskStatus::Landing)
    );
    assert!(task.subject.contains("triple.py"), "{}", task.subject);
    assert!(
        lead_of_mission(&world, 1)
            .news
            .iter()
            .any(|news| news.contains("triple.py") && news.contains(&adopted.to_string()))
    );
    assert_eq!(
        world.task(own).resume,
        None,
        "the next turn resumes the old workspace"
    );
    world.restart();
    world.move_and_land(landing);
    // The next turn changes nothing and ends the mission.
    let grant = begin_turn(&mut world, 1);
    end_attempt(&mut world, &grant, "all is done");
    assert!(!world.board.missions.contains_key(&MissionId(1)));
    assert_eq!(
        world.count("landing.landed"),
        1,
        "the change landed more than once"
    );
}

/// Q13: a guarded change waits for a person, also when a lead made it.
#[test]
fn q13_a_guarded_change_by_a_lead_waits_for_a_person() {
    let mut world = world_with_lead(1, |_| {});
    post_and_route(&mut world, "ann", "!mission x", None);
    let grant = begin_turn(&mut world, 1);
    let PollGrant { attempt, token, .. } = grant;
    world.ask(
        "regatta",
        Command::ReportExited {
            attempt,
            token,
            exit: ProgramExit::Done { output: None },
        },
    );
    world.report_verdict(
        &grant,
        crate::world::passed_verdict(&[".github/workflows/a.yml"]),
    );
    assert!(world.board.landings.is_empty());
    let task = world
        .board
        .tasks
        .values()
        .find(|task| task.is_polled())
        .expect("the change became a task");
    assert_eq!(task.status, TaskStatus::InReview);
}
