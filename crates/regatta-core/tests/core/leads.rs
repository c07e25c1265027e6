//! Leads and their missions, and the router with its questions.

mod answers;
mod handovers;
mod routing;

use regatta_core::agent_protocol::{AgentEvent, RequestAnswer, RequestContent, ToolCall, ToolKind};
use regatta_core::approval::AnswerScope;
use regatta_core::attempt::{AttemptCause, ProgramExit, WorkFindings, WorkResult};
use regatta_core::bus::{Message, PostMessage};
use regatta_core::claim::{ClaimMode, ClaimOwner};
use regatta_core::command::{Actor, Command, CommandOutcome, Report};
use regatta_core::event::Event;
use regatta_core::ids::{AgentName, ChannelName, Label, MessageId, MissionId, TaskId};
use regatta_core::lead::{self, Lead, LeadRequest};
use regatta_core::limits::MachineLimits;
use regatta_core::mission::MissionState;
use regatta_core::project::{Millis, ProjectSettings, TriagePolicy};
use regatta_core::schedule::{PollGrant, PollRequest, WaitKind};
use regatta_core::start_gates::StartFacts;
use regatta_core::task::{AssignMode, Purpose, Task, TaskStatus};

use crate::world::{
    HOUR_MS, MINUTE_MS, SECOND_MS, World, acquire, agent, poll_of, shop, task_to_add, uri,
};

/// Returns a world with the project `shop`, which `ada` leads, its router, and this many leads at
/// most.
fn world_with_lead(max_leads: u32, set: impl FnOnce(&mut ProjectSettings)) -> World {
    let mut world = World::with_agents(&[("ada", 2)]);
    let mut request = world.project("shop", &["cargo test"]);
    request.settings.leads.max_leads = max_leads;
    request.settings.leads.agent = Some(agent("ada"));
    request.settings.leads.max_workers = 2;
    request.settings.landing.mode = regatta_core::project::QueueMode::Serial;
    set(&mut request.settings);
    world.ask("ann", Command::AddProject(request));
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
    agent: &str,
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
    let CommandOutcome::Message(id) = world.ask(agent, Command::Post(post)) else {
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
    message
        .labels
        .iter()
        .any(|candidate| candidate.as_str() == label)
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
    let agent = world.task(task).assignee.clone().unwrap();
    let poll = PollRequest {
        task: Some(task),
        ..poll_of(agent.as_str())
    };
    let command = Report::PollSupervised {
        poll,
        facts: Box::<StartFacts>::default(),
    };
    match world.report(command) {
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
    world.report(Report::Exited {
        attempt,
        token,
        exit: ProgramExit::Done { output: None },
    });
    let result = Some(WorkResult {
        detail: detail.into(),
        ..WorkResult::default()
    });
    let findings = WorkFindings {
        result,
        ..WorkFindings::default()
    };
    let verdict = crate::world::passed_verdict(&[]);
    world.report(Report::WorkVerdict {
        attempt,
        token,
        verdict,
        findings,
    });
}

fn begin_turn(world: &mut World, mission: u64) -> PollGrant {
    let task = lead_of_mission(world, mission).task.unwrap();
    begin_attempt(world, task)
}

/// Adds a child task to a mission, as the lead's tool does.
fn add_child(world: &mut World, mission: u64, subject: &str, manifest: &[&str]) -> TaskId {
    let lead = lead_name(world, mission);
    let add = Command::AddChild {
        mission: MissionId(mission),
        task: task_to_add(subject, manifest),
        assign: None,
        how: AssignMode::Direct,
    };
    match world.ask(lead.as_str(), add) {
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
    world.report(Report::Exited {
        attempt,
        token,
        exit: ProgramExit::Done { output: None },
    });
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
            task.purpose,
            Purpose::Answer { .. } | Purpose::Triage { .. }
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
    let names: std::collections::BTreeSet<_> =
        (1..=3).map(|mission| lead_name(&world, mission)).collect();
    assert_eq!(names.len(), 3);
    for id in 1..=3 {
        let name = lead_name(&world, id);
        assert!(name.as_str().starts_with("shop-dev/lead-"), "{name}");
        let claimed_uri = uri(&format!("agent://{name}"));
        assert!(
            world
                .board
                .claims
                .values()
                .any(|claim| claim.uris.contains(&claimed_uri)),
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
    let mut project = world.project("shop", &["cargo test"]);
    project.settings = world.board.projects[&shop()].settings.clone();
    project.settings.leads.max_leads = 2;
    world.ask("ann", Command::AddProject(project));
    assert_eq!(missions_at_work(&world), [1, 2]);
}

#[test]
fn a_lead_sleeps_between_turns_and_its_next_turn_lists_what_happened() {
    let mut world = world_with_lead(3, |_| {});
    post_and_route(&mut world, "ann", "!mission Add limits", None);
    let grant = begin_turn(&mut world, 1);
    let task = add_child(&mut world, 1, "limit logins", &["src/login.rs"]);
    end_attempt(&mut world, &grant, "I planned one task");
    let lead_task = lead_of_mission(&world, 1).task.unwrap();
    assert!(world.task(lead_task).resting);
    assert_eq!(
        world.wait_kinds(lead_task)[0],
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
    assert!(
        !world.task(lead_task).resting,
        "a landing did not wake the lead"
    );
    let grant = begin_turn(&mut world, 1);
    let notes = &world.board.attempts[&grant.attempt].notes;
    assert!(
        notes[0].contains("What happened since your last turn")
            && notes[0].contains("limit logins"),
        "{notes:?}"
    );
    let PollGrant {
        task: lead_task,
        attempt,
        token,
        ..
    } = grant;
    world.ask(
        "regatta",
        Command::FinishMission {
            task: lead_task,
            attempt,
            token,
            report: "Logins are limited.".into(),
        },
    );
    end_attempt(&mut world, &grant, "bye");
    assert!(world.board.missions.is_empty());
    let messages = messages_after(&world, MessageId(0))
        .into_iter()
        .rfind(|message| has_label(message, "mission:done"))
        .unwrap();
    assert!(
        messages.text.contains("Logins are limited."),
        "{}",
        messages.text
    );
    let merged = messages_after(&world, MessageId(0))
        .into_iter()
        .find(|message| has_label(message, "coord:merge"))
        .unwrap();
    let of_lead = messages
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
            .contains("unfinished")
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
    let messages = messages_after(&world, MessageId(0))
        .into_iter()
        .rfind(|message| has_label(message, "feedback"))
        .unwrap();
    assert!(
        has_label(&messages, "M1")
            && has_label(&messages, &format!("lead:{}", lead_name(&world, 1))),
        "{:?}",
        messages.labels
    );
    assert!(messages.text.contains("1 waiting"), "{}", messages.text);
    world.advance(3 * HOUR_MS);
    assert!(
        lead_of_mission(&world, 1)
            .lost_reason
            .unwrap()
            .contains("time limit for leads has passed")
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
    let lead_task = lead_of_mission(&world, 1).task.unwrap();
    assert!(
        lead_of_mission(&world, 1)
            .news
            .iter()
            .any(|new| new.contains("leads M2")),
        "{:?}",
        lead_of_mission(&world, 1).news
    );
    assert!(
        world.task(lead_task).resting,
        "a new lead woke another lead"
    );
    let name = lead_name(&world, 1);
    post_and_route(&mut world, "bob", &format!("@{name} look here"), None);
    assert!(
        !world.task(lead_task).resting,
        "a mention did not wake the lead"
    );
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
    assert!(world.task(lead_task).resting);
    let siblings = lead::siblings(&world.board, &shop(), Some(MissionId(2)));
    assert_eq!(
        (siblings.len(), &siblings[0].lead, siblings[0].tasks.len()),
        (1, &name, 1)
    );
}

#[test]
fn a_mission_without_one_possible_lead_is_refused_with_the_reason() {
    let mut world = World::with_agents(&[]);
    let start_mission = |agent: Option<&str>| {
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
            .ask_refused("ann", start_mission(None))
            .message()
            .contains("no agent")
    );
    world.register("ada", 1);
    world.ask("ann", start_mission(None));
    world.register("bob", 1);
    assert!(
        world
            .ask_refused("ann", start_mission(None))
            .message()
            .contains("several")
    );
    world.ask("ann", start_mission(Some("bob")));
    let derived = lead_name(&world, 1);
    assert!(
        world
            .ask_refused("ann", start_mission(Some(derived.as_str())))
            .message()
            .contains("made for one mission")
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
        let event = AgentEvent::RequestMade(regatta_core::agent_protocol::AgentRequest {
            id: "1".into(),
            content: want,
        });
        world.report(Report::AgentEvent {
            attempt,
            token,
            n: 1,
            event,
        });
        let end = if cancel {
            Command::CancelMission {
                mission: MissionId(1),
                reason: "no".into(),
            }
        } else {
            Command::CancelTask {
                task,
                reason: "no".into(),
            }
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
        let event = AgentEvent::RequestMade(regatta_core::agent_protocol::AgentRequest {
            id: n.to_string(),
            content: want,
        });
        world.report(Report::AgentEvent {
            attempt,
            token,
            n,
            event,
        });
    }
    let [permission, question] = world.board.approvals.keys().copied().collect::<Vec<_>>()[..]
    else {
        panic!()
    };
    let lead = lead_name(&world, 1);
    for name in [lead.as_str(), "hook/H1", "ada"] {
        for answer in [RequestAnswer::Allow, RequestAnswer::Deny { reason: None }] {
            let refusal = world.ask_refused(
                name,
                Command::Decide {
                    approval: permission,
                    answer,
                    scope: AnswerScope::Once,
                    also: vec![],
                },
            );
            assert!(
                refusal.message().contains("only a person can decide"),
                "{name}: {}",
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
    world.report(Report::Exited {
        attempt,
        token,
        exit: ProgramExit::Done { output: None },
    });
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
    world.report(Report::Exited {
        attempt,
        token,
        exit: ProgramExit::Done { output: None },
    });
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
