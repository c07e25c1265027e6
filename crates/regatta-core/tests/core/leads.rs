//! Leads and their missions, and the router with its questions.

use regatta_core::approval::Reach;
use regatta_core::attempt::{Cause, Exited, Findings, WorkResult};
use regatta_core::bus::{Message, Post};
use regatta_core::claim::{Mode, Owner};
use regatta_core::command::{Actor, Command, Outcome};
use regatta_core::event::Event;
use regatta_core::fleet::Limits;
use regatta_core::gates::Facts;
use regatta_core::ids::{AgentName, ChannelName, Label, MessageId, MissionId, TaskId};
use regatta_core::lead::{self, Ask, Lead};
use regatta_core::mission::State;
use regatta_core::project::{Settings, Span, Triage};
use regatta_core::schedule::{Grant, Poll, WaitKind};
use regatta_core::session::{Answer, Said, Tool, ToolKind, Want};
use regatta_core::task::{Duty, How, Status, Task};

use crate::world::{HOUR, MINUTE, SECOND, World, acquire, agent, polls, shop, uri, work};

/// Returns a world with the project `shop`, which `ada` leads, its router, and this many leads at
/// most.
fn led(max_leads: u32, set: impl FnOnce(&mut Settings)) -> World {
    let mut world = World::with(&[("ada", 2)]);
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
    let posted = world.log.iter().find_map(|it| match &it.event {
        Event::MessagePosted(it) if it.message().id == id => Some(it.message().clone()),
        _ => None,
    });
    posted.unwrap_or_else(|| panic!("{id} was not posted"))
}

/// Posts in the project's channel and routes the message, as the router's hook does.
fn says(world: &mut World, who: &str, text: &str, reply_to: Option<MessageId>) -> MessageId {
    let channel = ChannelName::new("shop").unwrap();
    let post = Post { channel, text: text.into(), labels: vec![], reply_to };
    let Outcome::Message(id) = world.ask(who, Command::Post(post)) else { panic!() };
    deliver(world, id);
    id
}

fn deliver(world: &mut World, id: MessageId) {
    let message = Box::new(message_of(world, id));
    world.ask("regatta", Command::Route { project: shop(), message });
}

/// Returns the messages after a message.
fn after(world: &World, id: MessageId) -> Vec<Message> {
    let posted = world.log.iter().filter_map(|it| match &it.event {
        Event::MessagePosted(it) if it.message().id > id => Some(it.message().clone()),
        _ => None,
    });
    posted.collect()
}

fn has(message: &Message, label: &str) -> bool {
    message.labels.iter().any(|it| it.as_str() == label)
}

fn lead(world: &World, id: u64) -> Lead {
    world.board.missions[&MissionId(id)].lead.clone().unwrap()
}

fn name(world: &World, id: u64) -> AgentName {
    lead(world, id).name.unwrap()
}

fn working(world: &World) -> Vec<u64> {
    lead::at_work(&world.board, &shop()).map(|it| it.id.0).collect()
}

/// Polls for one task, as the daemon does for leads and answers.
fn begin(world: &mut World, task: TaskId) -> Grant {
    let of = world.task(task).assignee.clone().unwrap();
    let poll = Poll { task: Some(task), ..polls(of.as_str()) };
    let command = Command::PollSupervised { poll, facts: Box::<Facts>::default() };
    match world.ask("regatta", command) {
        Outcome::Polled(Some(grant)) => grant,
        other => panic!("{task} did not start: {other:?} {:?}", world.reasons(task)),
    }
}

/// Ends a turn or an answer with this text.
fn end(world: &mut World, grant: &Grant, detail: &str) {
    let Grant { attempt, token, .. } = *grant;
    world.ask("regatta", Command::ReportExited { attempt, token, how: Exited::Done { output: None } });
    let result = Some(WorkResult { detail: detail.into(), ..WorkResult::default() });
    let findings = Findings { result, ..Findings::default() };
    let verdict = crate::world::passed(&[]);
    world.ask("regatta", Command::ReportJudged { attempt, token, verdict, findings });
}

fn turn(world: &mut World, mission: u64) -> Grant {
    let task = lead(world, mission).task.unwrap();
    begin(world, task)
}

/// Adds a child task to a mission, as the lead's tool does.
fn child(world: &mut World, mission: u64, subject: &str, manifest: &[&str]) -> TaskId {
    let by = name(world, mission);
    let add = Command::AddChild {
        mission: MissionId(mission),
        task: work(subject, manifest),
        assign: None,
        how: How::Direct,
    };
    match world.ask(by.as_str(), add) {
        Outcome::Task(id) => id,
        other => panic!("{other:?}"),
    }
}

/// Lets a worker of a mission take its next task.
fn works(world: &mut World, mission: u64) -> Grant {
    let workers = world.board.missions[&MissionId(mission)].agents.clone();
    let free = workers.iter().find_map(|it| world.poll_supervised(it.as_str()));
    free.expect("a worker gets a task")
}

/// A worker's program ends, and its work lands.
fn lands(world: &mut World, grant: &Grant) {
    let Grant { attempt, token, task, .. } = *grant;
    world.ask("regatta", Command::ReportExited { attempt, token, how: Exited::Done { output: None } });
    let changed: Vec<String> = world.task(task).files.iter().map(ToString::to_string).collect();
    let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
    let landing = world.judge(grant, crate::world::passed(&changed)).unwrap();
    world.land(landing);
}

fn answers(world: &World) -> Vec<TaskId> {
    let asks = |it: &Task| matches!(it.duty, Some(Duty::Answer { .. } | Duty::Triage { .. }));
    world.board.tasks.values().filter(|it| asks(it)).map(|it| it.id).collect()
}

#[test]
fn of_five_missions_three_start_two_wait_and_repeated_messages_add_none() {
    let mut world = led(3, |_| {});
    let mut asked = Vec::new();
    for nth in 1..=5 {
        asked.push(says(&mut world, "ann", &format!("!dev do thing {nth}"), None));
    }
    assert_eq!(working(&world), [1, 2, 3]);
    deliver(&mut world, asked[1]);
    deliver(&mut world, asked[4]);
    assert_eq!(world.board.missions.len(), 5, "a message that was delivered twice started a mission");
    let acks: Vec<String> =
        after(&world, MessageId(0)).into_iter().filter(|it| has(it, "spawn-ack")).map(|it| it.text).collect();
    assert_eq!(acks.len(), 5, "{acks:?}");
    assert!(acks[3].contains("M4 waits for a lead: it is number 1 in the queue, and 3 of 3"), "{}", acks[3]);
    assert!(acks[4].contains("number 2"), "{}", acks[4]);
    let names: std::collections::BTreeSet<_> = (1..=3).map(|it| name(&world, it)).collect();
    assert_eq!(names.len(), 3);
    for id in 1..=3 {
        let name = name(&world, id);
        assert!(name.as_str().starts_with("shop-dev/lead-"), "{name}");
        let own = uri(&format!("agent://{name}"));
        assert!(world.board.claims.values().any(|it| it.uris.contains(&own)), "{name} does not hold its name");
    }

    // When a mission ends, the first waiting one starts without a message.
    let grant = turn(&mut world, 2);
    end(&mut world, &grant, "all done");
    assert_eq!(working(&world), [1, 3, 4]);
    assert_eq!(lead::place(&world.board, MissionId(5)), Some(1));
    let grant = turn(&mut world, 1);
    end(&mut world, &grant, "done, too");
    assert_eq!(working(&world), [3, 4, 5]);
    assert!(
        !world.board.agents.keys().any(|it| names.contains(it) && *it != name(&world, 3)),
        "the agents of ended missions are removed"
    );
}

#[test]
fn a_second_mission_waits_while_the_limit_is_one_lead() {
    let mut world = led(1, |_| {});
    says(&mut world, "ann", "!mission one", None);
    says(&mut world, "ann", "!mission two", None);
    assert_eq!(working(&world), [1]);
    assert_eq!(world.board.missions[&MissionId(2)].state, State::Queued);
    // A higher limit is used at once.
    let mut ask = world.project("shop", &["cargo test"]);
    ask.settings = world.board.projects[&shop()].settings.clone();
    ask.settings.leads.max_leads = 2;
    world.ask("ann", Command::AddProject(ask));
    assert_eq!(working(&world), [1, 2]);
}

#[test]
fn a_lead_sleeps_between_turns_and_its_next_turn_lists_what_happened() {
    let mut world = led(3, |_| {});
    says(&mut world, "ann", "!mission Add limits", None);
    let grant = turn(&mut world, 1);
    let task = child(&mut world, 1, "limit logins", &["src/login.rs"]);
    end(&mut world, &grant, "I planned one task");
    let own = lead(&world, 1).task.unwrap();
    assert!(world.task(own).asleep);
    assert_eq!(world.reasons(own)[0], WaitKind::Lead, "W1: a sleeping lead has a wait reason");
    assert_eq!(world.board.missions[&MissionId(1)].state, State::Active);

    let work = works(&mut world, 1);
    assert_eq!(work.task, task);
    let worker = world.board.attempts[&work.attempt].agent.clone();
    assert!(worker.as_str().starts_with(&format!("{}/worker-", name(&world, 1))), "{worker}");
    lands(&mut world, &work);
    assert_eq!(world.status(task), Status::Completed);
    assert!(!world.task(own).asleep, "a landing did not wake the lead");
    let grant = turn(&mut world, 1);
    let notes = &world.board.attempts[&grant.attempt].notes;
    assert!(notes[0].contains("What happened since your last turn") && notes[0].contains("limit logins"), "{notes:?}");
    let Grant { task: own, attempt, token, .. } = grant;
    world.ask("regatta", Command::FinishMission { task: own, attempt, token, report: "Logins are limited.".into() });
    end(&mut world, &grant, "bye");
    assert!(world.board.missions.is_empty());
    let said = after(&world, MessageId(0)).into_iter().rfind(|it| has(it, "mission:done")).unwrap();
    assert!(said.text.contains("Logins are limited."), "{}", said.text);
    let merged = after(&world, MessageId(0)).into_iter().find(|message| has(message, "coord:merge")).unwrap();
    let of_lead = said.labels.iter().find(|label| label.as_str().starts_with("lead:")).unwrap();
    assert!(has(&merged, "M1") && merged.labels.contains(of_lead), "{:?}", merged.labels);
    assert!(world.board.agents.keys().all(|it| it.as_str() == "ada"), "an agent of the ended mission is left");
    assert!(world.board.claims.is_empty());
}

#[test]
fn a_lead_cannot_finish_with_open_tasks_or_exceed_max_children() {
    let mut world = led(3, |it| it.leads.max_children = 2);
    says(&mut world, "ann", "!mission x", None);
    let grant = turn(&mut world, 1);
    child(&mut world, 1, "one", &["a"]);
    world.add(work("of nobody", &["c"]));
    let Grant { task, attempt, token, .. } = grant;
    let finish = Command::FinishMission { task, attempt, token, report: "done".into() };
    assert!(world.refused("regatta", finish).message().contains("open"));
    let pool = world.board.tasks.values().find(|it| it.subject == "of nobody").unwrap().id;
    world.ask("ann", Command::AdoptTask { mission: MissionId(1), task: pool });
    let more = Command::AddChild { mission: MissionId(1), task: work("three", &["d"]), assign: None, how: How::Direct };
    assert!(world.refused("ann", more).message().contains("2 of at most 2"));
    says(&mut world, "ann", "!mission y", None);
    let other = world.refused("ann", Command::AdoptTask { mission: MissionId(2), task: pool });
    assert_eq!(other.code(), "in_use", "a task was adopted by two missions");
}

#[test]
fn a_question_is_answered_although_all_leads_and_slots_are_busy() {
    let mut world = led(1, |_| {});
    world.ask("ann", Command::SetLimits { limits: Limits { max_attempts: 1, ..world.board.limits } });
    says(&mut world, "ann", "!mission long", None);
    turn(&mut world, 1);
    child(&mut world, 1, "one", &["a"]);
    let busy = works(&mut world, 1);
    let asked = says(&mut world, "ann", "!qq where is the login?", None);
    let [task] = answers(&world)[..] else { panic!() };
    assert_eq!(world.task(task).effort.as_deref(), Some("medium"));
    assert_eq!(world.task(task).assignee, Some(agent("shop-dev")));
    let grant = begin(&mut world, task);
    end(&mut world, &grant, "in src/login.rs");
    let [answer] = &after(&world, asked)[..] else { panic!() };
    assert_eq!((answer.text.as_str(), answer.reply_to), ("in src/login.rs", Some(asked)));
    assert_eq!(answer.sender, Actor::Agent(agent("shop-dev")));
    assert!(world.board.attempts.contains_key(&busy.attempt));
}

#[test]
fn replies_in_a_thread_continue_its_session_one_at_a_time() {
    let mut world = led(1, |_| {});
    let asked = says(&mut world, "ann", "!q(opus) why?", None);
    let [first] = answers(&world)[..] else { panic!() };
    assert_eq!(world.task(first).model.as_deref(), Some("opus"));
    let grant = begin(&mut world, first);
    let Grant { attempt, token, .. } = grant;
    let said = Said::Started { session: Some("s-1".into()), model: None };
    world.ask("regatta", Command::ReportSaid { attempt, token, n: 1, said });
    // Two more questions before the answer wait for their turn.
    says(&mut world, "ann", "and when?", Some(asked));
    says(&mut world, "ann", "and who?", Some(asked));
    let [_, second, third] = answers(&world)[..] else { panic!("{:?}", answers(&world)) };
    assert_eq!((world.reasons(second)[0], world.reasons(third)[0]), (WaitKind::Dep, WaitKind::Dep));
    end(&mut world, &grant, "because");
    let grant = begin(&mut world, second);
    let resumed = world.board.attempts[&grant.attempt].resumed_session().map(str::to_owned);
    assert_eq!(resumed.as_deref(), Some("s-1"), "the second answer did not resume the session");
    end(&mut world, &grant, "tomorrow");
    let answer = after(&world, asked).into_iter().rfind(|it| it.text == "tomorrow").unwrap();
    let grant = begin(&mut world, third);
    end(&mut world, &grant, "you");
    // A reply to an answer continues the thread. A reply to a one-shot question does not.
    says(&mut world, "ann", "thanks, and where?", Some(answer.id));
    let [fourth] = answers(&world)[..] else { panic!() };
    assert!(matches!(world.task(fourth).duty, Some(Duty::Answer { root, .. }) if root == asked));

    let once = says(&mut world, "ann", "!oneshot quickly?", None);
    says(&mut world, "ann", "more?", Some(once));
    let duties: Vec<_> = answers(&world).iter().map(|it| world.task(*it).duty.clone().unwrap()).collect();
    assert!(matches!(duties[2], Duty::Triage { .. }), "a one-shot question continues no thread: {duties:?}");
}

#[test]
fn a_question_without_an_answer_gets_a_failure_message() {
    let mut world = led(1, |_| {});
    let asked = says(&mut world, "ann", "!q why?", None);
    let [task] = answers(&world)[..] else { panic!() };
    for _ in 0..3 {
        let grant = begin(&mut world, task);
        end(&mut world, &grant, " ");
    }
    let [said] = &after(&world, asked)[..] else { panic!() };
    assert!(has(said, "answer:failed") && said.text.contains("no answer"), "{}", said.text);
    assert_eq!(said.reply_to, Some(asked));
}

/// W1: a question in a thread is answered even if the question before it failed or was cancelled.
#[test]
fn w1_a_failed_answer_does_not_hold_up_the_next_question() {
    for cancelled in [false, true] {
        let mut world = led(1, |_| {});
        let asked = says(&mut world, "ann", "!q why?", None);
        says(&mut world, "ann", "and when?", Some(asked));
        let [first, second] = answers(&world)[..] else { panic!() };
        assert_eq!(world.reasons(second)[0], WaitKind::Dep);
        if cancelled {
            world.ask("ann", Command::CancelTask { task: first, reason: "never mind".into() });
        } else {
            for _ in 0..3 {
                let grant = begin(&mut world, first);
                end(&mut world, &grant, " ");
            }
        }
        let grant = begin(&mut world, second);
        end(&mut world, &grant, "tomorrow");
        assert!(after(&world, asked).iter().any(|it| it.text == "tomorrow"));
        says(&mut world, "ann", "and who?", Some(asked));
        let third = *answers(&world).last().unwrap();
        let grant = begin(&mut world, third);
        end(&mut world, &grant, "you");
    }
}

#[test]
fn triage_answers_adds_a_task_or_starts_a_lead() {
    let mut world = led(1, |_| {});
    let cases = ["answer: no", "task: Fix it\nsoon", "lead: rework it all", "nothing"];
    for said in cases {
        says(&mut world, "ann", "something is odd", None);
        let [task] = answers(&world)[..] else { panic!() };
        let grant = begin(&mut world, task);
        end(&mut world, &grant, said);
    }
    assert_eq!(working(&world), [1]);
    assert_eq!(world.board.missions[&MissionId(1)].goal.as_deref(), Some("rework it all"));
    let backlog: Vec<_> = world.board.tasks.values().filter(|it| it.status == Status::Backlog).collect();
    assert_eq!((backlog.len(), backlog[0].subject.as_str(), backlog[0].description.as_str()), (1, "Fix it", "soon"));

    for (triage, made) in [(Triage::Task, 2), (Triage::Off, 2)] {
        let mut ask = world.project("shop", &["cargo test"]);
        ask.settings = world.board.projects[&shop()].settings.clone();
        ask.settings.router.triage = triage;
        world.ask("ann", Command::AddProject(ask));
        says(&mut world, "ann", "plain words", None);
        let backlog = world.board.tasks.values().filter(|it| it.status == Status::Backlog).count();
        assert_eq!((backlog, answers(&world).len()), (made, 0), "{triage:?}");
    }
}

#[test]
fn the_router_ignores_senders_and_labels_that_may_not_start_work() {
    let mut world = led(3, |it| it.router.from = vec![agent("ops")]);
    says(&mut world, "bob", "!mission from an agent", None);
    says(&mut world, "regatta", "!mission from the system", None);
    let channel = ChannelName::new("shop").unwrap();
    for label in ["coord:merge", "status", "spawn-ack"] {
        let labels = vec![Label::new(label).unwrap()];
        let post = Post { channel: channel.clone(), text: "!mission x".into(), labels, reply_to: None };
        let Outcome::Message(id) = world.ask("ann", Command::Post(post)) else { panic!() };
        deliver(&mut world, id);
    }
    assert!(world.board.missions.is_empty());
    says(&mut world, "ops", "!mission from a listed sender", None);
    assert_eq!(world.board.missions.len(), 1);
    let before = world.board.tasks.len();
    let asked = says(&mut world, "ann", "!wat", None);
    assert!(after(&world, asked)[0].text.contains("`!wat` is not a command"));
    assert_eq!(world.board.tasks.len(), before);
}

#[test]
fn messages_wait_while_the_router_claim_is_held_and_are_routed_in_order() {
    let mut world = led(3, |_| {});
    let held = match world.ask("bob", Command::Acquire(acquire(Owner::Agent(agent("bob")), &["respond://shop-dev"]))) {
        Outcome::Claim(regatta_core::claim::Acquired::Granted { claim, token, .. }) => (claim, token),
        other => panic!("{other:?}"),
    };
    let first = says(&mut world, "ann", "!mission one", None);
    says(&mut world, "ann", "!mission two", None);
    deliver(&mut world, first);
    assert!(world.board.missions.is_empty());
    assert_eq!(world.board.projects[&shop()].intake.waiting.len(), 2);
    world.ask("bob", Command::Release { claim: held.0, token: held.1 });
    let goals: Vec<_> = world.board.missions.values().filter_map(|it| it.goal.clone()).collect();
    assert_eq!(goals, ["one", "two"]);
    deliver(&mut world, first);
    assert_eq!(world.board.missions.len(), 2);
    assert!(world.board.projects[&shop()].intake.waiting.is_empty());
    // A shared claim on the same URI counts as well. An expired claim no longer counts.
    let mut shared = acquire(Owner::Agent(agent("bob")), &["respond://shop-dev"]);
    shared.mode = Mode::Shared;
    world.ask("bob", Command::Acquire(shared));
    says(&mut world, "ann", "!mission three", None);
    assert_eq!(world.board.missions.len(), 2);
    world.advance(31 * SECOND);
    assert_eq!(world.board.missions.len(), 3);
}

#[test]
fn a_mission_that_loses_its_lead_stops_and_can_be_handed_over() {
    let mut world = led(1, |_| {});
    world.register("eve", 1);
    says(&mut world, "ann", "!mission x", None);
    says(&mut world, "ann", "!mission behind it", None);
    let grant = turn(&mut world, 1);
    let task = child(&mut world, 1, "one", &["a"]);
    let work = works(&mut world, 1);
    let lost = name(&world, 1);
    let Grant { task: own, attempt, token, .. } = grant;
    world.ask("ann", Command::GiveUp { task: own, attempt, token, reason: Some("no idea ".repeat(20_000)) });
    assert_eq!(world.board.missions[&MissionId(1)].state, State::Draining);
    assert_eq!(
        world.board.attempts[&work.attempt].stopping,
        Some(Cause::Stopped),
        "the workers of the mission are not stopped"
    );
    assert_eq!(world.status(task), Status::Unassigned, "the task of the stopped worker does not wait");
    assert_eq!(working(&world), [2], "the lost lead still counts against the limit");
    assert!(after(&world, MessageId(0)).iter().any(|it| has(it, "mission:lost") && it.text.contains("no idea")));
    assert!(world.refused("ann", Command::ResumeMission { mission: MissionId(1) }).hint().contains("handover"));
    let gone = Command::ReportExited { attempt: work.attempt, token: work.token, how: Exited::Lost };
    world.ask("regatta", gone);
    world.ask("regatta", Command::ReportExited { attempt, token, how: Exited::Lost });

    world.ask("ann", Command::HandOverMission { mission: MissionId(1), to: Some(agent("eve")) });
    assert_eq!(lead::place(&world.board, MissionId(1)), Some(1));
    let grant = turn(&mut world, 2);
    end(&mut world, &grant, "done");
    assert_eq!(working(&world), [1]);
    assert_ne!(name(&world, 1), lost);
    assert_eq!(world.board.agents[&name(&world, 1)].of, Some(agent("eve")));
    assert!(!world.board.agents.contains_key(&lost));
    let work = works(&mut world, 1);
    assert_eq!(work.task, task, "the task does not go on under the new lead");
}

#[test]
fn a_mission_that_is_handed_over_keeps_its_running_workers() {
    let mut world = led(2, |_| {});
    says(&mut world, "ann", "!mission x", None);
    let grant = turn(&mut world, 1);
    child(&mut world, 1, "one", &["a"]);
    let work = works(&mut world, 1);
    let old = world.board.attempts[&work.attempt].agent.clone();
    world.ask("ann", Command::HandOverMission { mission: MissionId(1), to: None });
    assert!(world.board.attempts[&grant.attempt].stopping.is_some());
    assert_eq!(world.board.attempts[&work.attempt].stopping, None, "a worker was stopped by the handover");
    assert_eq!(working(&world), [1]);
    assert!(world.board.agents.contains_key(&old));
    lands(&mut world, &work);
    assert!(!world.board.agents.contains_key(&old), "the old worker is left after its task is done");
}

/// J1, W1: tasks of a worker that no longer works for the mission are unassigned, because nobody
/// would poll for them.
#[test]
fn j1_tasks_of_a_previous_leads_worker_are_unassigned() {
    let mut world = led(1, |_| {});
    says(&mut world, "ann", "!mission x", None);
    turn(&mut world, 1);
    let (begun, waits) = (child(&mut world, 1, "one", &["a"]), child(&mut world, 1, "two", &["b"]));
    let worker = world.board.missions[&MissionId(1)].agents[0].clone();
    for task in [begun, waits] {
        world.ask("ann", Command::AssignTask { task, to: Some(worker.clone()), how: How::Queue });
    }
    let work = world.poll_supervised(worker.as_str()).expect("the first task starts");
    world.ask("ann", Command::HandOverMission { mission: MissionId(1), to: None });
    assert!(!world.board.missions[&MissionId(1)].agents.contains(&worker), "the mission still has the old worker");
    assert_eq!(world.task(waits).assignee, None, "a task that has not started keeps the old worker");
    assert_eq!(world.status(begun), Status::InProgress, "a running task was stopped");
    // The running attempt is lost. Its task is not given to the old worker again.
    let Grant { attempt, token, .. } = work;
    world.ask("regatta", Command::ReportExited { attempt, token, how: Exited::Lost });
    assert_eq!((world.status(begun), &world.task(begun).assignee), (Status::Unassigned, &None));
    assert!(!world.board.agents.contains_key(&worker), "the old worker is still on the board");
    world.advance(HOUR);
    let taken: std::collections::BTreeSet<_> = [works(&mut world, 1), works(&mut world, 1)].map(|it| it.task).into();
    assert_eq!(taken, [begun, waits].into());
}

#[test]
fn a_cancelled_mission_cancels_all_its_tasks() {
    let mut world = led(1, |_| {});
    says(&mut world, "ann", "!mission x", None);
    says(&mut world, "ann", "!mission y", None);
    let grant = turn(&mut world, 1);
    let task = child(&mut world, 1, "one", &["a"]);
    let work = works(&mut world, 1);
    world.ask("ann", Command::CancelMission { mission: MissionId(1), reason: "not wanted".into() });
    assert_eq!(world.status(task), Status::Cancelled);
    let said = after(&world, MessageId(0));
    assert!(said.iter().any(|message| has(message, "mission:cancelled")), "{said:?}");
    assert!(!said.iter().any(|message| has(message, "mission:done")), "a cancelled mission is not done");
    for attempt in [grant.attempt, work.attempt] {
        assert!(world.board.attempts[&attempt].stopping.is_some(), "{attempt} is not stopped");
    }
    assert_eq!(working(&world), [2]);
    for Grant { attempt, token, .. } in [grant, work] {
        world.ask("regatta", Command::ReportExited { attempt, token, how: Exited::Lost });
    }
    let names: Vec<_> = world.board.agents.values().filter(|it| it.of.is_some()).map(|it| it.name.clone()).collect();
    assert!(names.iter().all(|it| it.as_str().starts_with(name(&world, 2).as_str())), "{names:?}");
    // A waiting mission can be cancelled, too, and the mission behind it moves up.
    says(&mut world, "ann", "!mission z", None);
    world.ask("ann", Command::CancelMission { mission: MissionId(3), reason: "no".into() });
    assert_eq!(world.board.missions.len(), 1);
}

#[test]
fn a_mission_posts_a_summary_after_a_change_and_ends_at_its_timeout() {
    let mut world = led(2, |it| {
        it.leads.checkpoint_interval = Span::seconds(30);
        it.leads.timeout = Span::seconds(3 * 3_600);
    });
    says(&mut world, "ann", "!mission x", None);
    turn(&mut world, 1);
    let summed = |world: &World| after(world, MessageId(0)).into_iter().filter(|it| has(it, "feedback")).count();
    world.advance(31 * SECOND);
    assert_eq!(summed(&world), 1);
    world.advance(10 * MINUTE);
    assert_eq!(summed(&world), 1, "a summary was posted without a change");
    child(&mut world, 1, "one", &["a"]);
    world.advance(31 * SECOND);
    let said = after(&world, MessageId(0)).into_iter().rfind(|it| has(it, "feedback")).unwrap();
    assert!(has(&said, "M1") && has(&said, &format!("lead:{}", name(&world, 1))), "{:?}", said.labels);
    assert!(said.text.contains("1 waiting"), "{}", said.text);
    world.advance(3 * HOUR);
    assert!(lead(&world, 1).lost.unwrap().contains("time is up"));
    assert!(working(&world).is_empty());
}

#[test]
fn leads_get_news_of_new_leads_and_are_woken_by_mentions() {
    let mut world = led(3, |_| {});
    says(&mut world, "ann", "!mission one", None);
    let grant = turn(&mut world, 1);
    child(&mut world, 1, "a", &["a"]);
    end(&mut world, &grant, "planned");
    says(&mut world, "ann", "!mission two", None);
    let own = lead(&world, 1).task.unwrap();
    assert!(lead(&world, 1).news.iter().any(|it| it.contains("leads M2")), "{:?}", lead(&world, 1).news);
    assert!(world.task(own).asleep, "a new lead woke another lead");
    let name = name(&world, 1);
    says(&mut world, "bob", &format!("@{name} look here"), None);
    assert!(!world.task(own).asleep, "a mention did not wake the lead");
    let grant = turn(&mut world, 1);
    let notes = world.board.attempts[&grant.attempt].notes.join("\n");
    assert!(notes.contains("leads M2") && notes.contains("look here"), "{notes}");
    // The lead's own message does not wake it.
    says(&mut world, name.as_str(), &format!("I, @{name}, am here"), None);
    end(&mut world, &grant, "seen");
    assert!(world.task(own).asleep);
    let siblings = lead::siblings(&world.board, &shop(), Some(MissionId(2)));
    assert_eq!((siblings.len(), &siblings[0].lead, siblings[0].tasks.len()), (1, &name, 1));
}

#[test]
fn a_mission_without_one_possible_lead_is_refused_with_the_reason() {
    let mut world = World::with(&[]);
    let ask = |agent: Option<&str>| {
        Command::AskMission(Ask {
            project: shop(),
            goal: "x".into(),
            about: lead::About::Goal,
            agent: agent.map(crate::world::agent),
            message: None,
            channel: None,
        })
    };
    assert!(world.refused("ann", ask(None)).message().contains("no agent"));
    world.register("ada", 1);
    world.ask("ann", ask(None));
    world.register("bob", 1);
    assert!(world.refused("ann", ask(None)).message().contains("several"));
    world.ask("ann", ask(Some("bob")));
    let derived = name(&world, 1);
    assert!(world.refused("ann", ask(Some(derived.as_str()))).message().contains("named for one mission"));
    // In a channel, the refusal is posted as an answer.
    let asked = says(&mut world, "ann", "!mission x", None);
    assert!(after(&world, asked)[0].text.contains("several agents could lead"));
    let focus = says(&mut world, "ann", "!dev T99", None);
    assert!(after(&world, focus)[0].text.contains("T99"));
}

/// An answer for a whole task or mission that has ended adds no rule, because nothing would ever
/// remove the rule.
#[test]
fn an_answer_for_an_ended_task_or_mission_adds_no_rule() {
    for (reach, cancel) in [(Reach::Task, false), (Reach::Mission, true)] {
        let mut world = led(1, |_| {});
        says(&mut world, "ann", "!mission x", None);
        turn(&mut world, 1);
        let task = child(&mut world, 1, "one", &["a"]);
        let Grant { attempt, token, .. } = works(&mut world, 1);
        let tool = Tool { kind: ToolKind::Execute, command: Some("make".into()), ..Tool::default() };
        let want = Want::Permission { tool, options: vec![] };
        let said = Said::Asked(regatta_core::session::Ask { id: "1".into(), want });
        world.ask("regatta", Command::ReportSaid { attempt, token, n: 1, said });
        let end = match cancel {
            true => Command::CancelMission { mission: MissionId(1), reason: "no".into() },
            false => Command::CancelTask { task, reason: "no".into() },
        };
        world.ask("ann", end);
        let approval = *world.board.approvals.keys().next().unwrap();
        world.ask("ann", Command::Decide { approval, answer: Answer::Allow, reach, also: vec![] });
        assert!(world.board.rules.is_empty(), "{reach:?}");
    }
}

/// Only a person decides requests for permission. Leads, hooks and other agents cannot. A lead can
/// answer questions of its workers.
#[test]
fn no_agent_can_decide_a_permission_request() {
    let mut world = led(1, |_| {});
    says(&mut world, "ann", "!mission x", None);
    turn(&mut world, 1);
    child(&mut world, 1, "one", &["a"]);
    let Grant { attempt, token, .. } = works(&mut world, 1);
    let tool = Tool { kind: ToolKind::Execute, command: Some("make".into()), ..Tool::default() };
    let wants = [
        Want::Permission { tool, options: vec![] },
        Want::Question { text: "Which?".into(), choices: vec![], schema: None },
    ];
    for (n, want) in (1..).zip(wants) {
        let said = Said::Asked(regatta_core::session::Ask { id: n.to_string(), want });
        world.ask("regatta", Command::ReportSaid { attempt, token, n, said });
    }
    let [permission, question] = world.board.approvals.keys().copied().collect::<Vec<_>>()[..] else { panic!() };
    let lead = name(&world, 1);
    for who in [lead.as_str(), "hook/H1", "ada"] {
        for answer in [Answer::Allow, Answer::Deny { words: None }] {
            let refusal =
                world.refused(who, Command::Decide { approval: permission, answer, reach: Reach::Once, also: vec![] });
            assert!(refusal.message().contains("only a person can decide"), "{who}: {}", refusal.message());
        }
    }
    let text = Answer::Text { text: "That one".into() };
    world.ask(lead.as_str(), Command::Decide { approval: question, answer: text, reach: Reach::Once, also: vec![] });
    world.ask("ann", Command::Decide { approval: permission, answer: Answer::Allow, reach: Reach::Once, also: vec![] });
}

/// A triage whose outcome is refused still completes, and the reason is posted.
#[test]
fn a_triage_whose_outcome_is_refused_posts_the_reason() {
    let mut world = led(1, |it| {
        it.leads.agent = None;
        it.router.agent = Some(agent("ada"));
    });
    world.register("bob", 1);
    for (said, why) in [("lead: rework it", "several agents could lead"), ("task: \u{1}", "subject")] {
        let asked = says(&mut world, "ann", "something is odd", None);
        let [task] = answers(&world)[..] else { panic!() };
        let grant = begin(&mut world, task);
        end(&mut world, &grant, said);
        assert_eq!(world.status(task), Status::Completed, "{said}");
        assert!(after(&world, asked)[0].text.contains(why), "{}", after(&world, asked)[0].text);
    }
    assert!(world.board.missions.is_empty());
}

/// When a lead edits files itself, the change becomes a task that is checked and landed, and the
/// mission is not done before.
#[test]
fn a_change_by_a_lead_itself_becomes_a_task_of_its_mission() {
    let mut world = led(1, |_| {});
    says(&mut world, "ann", "!mission x", None);
    let grant = turn(&mut world, 1);
    let Grant { attempt, token, task: own, .. } = grant;
    world.ask("regatta", Command::ReportExited { attempt, token, how: Exited::Done { output: None } });
    let landing = {
        world.judge(&grant, crate::world::passed(&["triple.py"]));
        *world.board.landings.keys().next().expect("the change is queued")
    };
    assert!(world.board.missions.contains_key(&MissionId(1)), "the mission is not done");
    let adopted = world.board.landings[&landing].task;
    let task = world.task(adopted).clone();
    assert_eq!((task.mission, task.status), (Some(MissionId(1)), Status::Landing));
    assert!(task.subject.contains("triple.py"), "{}", task.subject);
    assert!(lead(&world, 1).news.iter().any(|news| news.contains("triple.py") && news.contains(&adopted.to_string())));
    assert_eq!(world.task(own).resume, None, "the next turn resumes the old workspace");
    world.restart();
    world.land(landing);
    // The next turn changes nothing and ends the mission.
    let grant = turn(&mut world, 1);
    end(&mut world, &grant, "all is done");
    assert!(!world.board.missions.contains_key(&MissionId(1)));
    assert_eq!(world.count("landing.landed"), 1, "the change landed more than once");
}

/// Q13: a guarded change waits for a person, also when a lead made it.
#[test]
fn q13_a_guarded_change_by_a_lead_waits_for_a_person() {
    let mut world = led(1, |_| {});
    says(&mut world, "ann", "!mission x", None);
    let grant = turn(&mut world, 1);
    let Grant { attempt, token, .. } = grant;
    world.ask("regatta", Command::ReportExited { attempt, token, how: Exited::Done { output: None } });
    world.judge(&grant, crate::world::passed(&[".github/workflows/a.yml"]));
    assert!(world.board.landings.is_empty());
    let task = world.board.tasks.values().find(|task| task.is_work()).expect("the change became a task");
    assert_eq!(task.status, Status::InReview);
}
