//! The part of the test history about missions, leads, and an agent that works outside its
//! workspace.

use super::*;

/// Adds two missions to the test history. One of them starts no new tasks for a while, is resumed,
/// and ends with a failed task. The other mission does not end.
pub(super) fn add_missions(history: &mut HistoryBuilder) {
    for (title, mode) in [
        ("First", mission::StartMode::Flow),
        ("Second", mission::StartMode::Waves),
    ] {
        let planned = |subject: &str, after: Vec<usize>| PlannedTask {
            task: new_task("shop", subject, &format!("{title}/{subject}")),
            after,
            assign: None,
        };
        let tasks = vec![planned("one", vec![]), planned("two", vec![0])];
        let mission = mission::StartMission {
            project: project_named("shop"),
            title: title.into(),
            agents: vec![agent_named("ann"), agent_named("bob")],
            team: None,
            max_workers: 4,
            mode,
            isolate: mode == mission::StartMode::Waves,
            wave_commits: false,
            serial: vec![PathPattern::new("tests/**").unwrap()],
            budget: Default::default(),
        };
        history.run(
            &person("ann"),
            Some(title),
            Command::StartMission {
                mission,
                tasks,
                adopt: vec![],
            },
        );
    }
    let poll = PollRequest {
        agent: agent_named("ann"),
        project: None,
        mission: Some(MissionId(2)),
        task: None,
        lease_ms: None,
        no_workspace: false,
        by_hand: false,
    };
    let facts = Box::new(start_gates::StartFacts {
        disk_mb: Some(1),
        ..start_gates::StartFacts::default()
    });
    history.report(Report::PollSupervised { poll, facts });
    history.run_as_ann(Command::DrainMission {
        mission: MissionId(1),
    });
    add_isolation_breach(history);
    history.run_as_ann(Command::ResumeMission {
        mission: MissionId(1),
    });
    let grant = history.poll("ann", false);
    history.run_as_ann(Command::GiveUp {
        task: grant.task,
        attempt: grant.attempt,
        token: grant.token,
        reason: Some("too hard".into()),
    });
    history.run_as_ann(Command::Snooze {
        item: InboxItem::Task(grant.task),
        ms: Some(60_000),
    });
    history.run_as_ann(Command::Dismiss { task: grant.task });
    history.run_as_ann(Command::CancelTask {
        task: TaskId(4),
        reason: "its blocker failed".into(),
    });
    let report = AddTask {
        issue_type: IssueType::Docs,
        expects: Expects::Report,
        ..new_task("docs", "What is there?", "none")
    };
    history.run_as_ann(Command::AddTask {
        task: report,
        assign: Some(agent_named("bob")),
        how: AssignMode::Queue,
    });
    let grant = history.poll("bob", true);
    history.report(Report::Exited {
        attempt: grant.attempt,
        token: grant.token,
        exit: ProgramExit::Done {
            output: Some("Nothing.\n".into()),
        },
    });
    history.report_verdict(&grant, passed_verdict(&[]));
}

/// Adds to the test history a question and a mission that people request with messages. At first,
/// another agent holds the claim (a lease) that an agent needs to answer messages.
pub(super) fn add_leads(history: &mut HistoryBuilder) {
    let (claim, token) = match history.acquire("bob", "respond://docs-dev", 0) {
        Acquired::Granted { claim, token, .. } => (claim, token),
        other => panic!("{other:?}"),
    };
    for text in ["!q \"why\"?", "!mission Add ümlauts"] {
        let channel = ChannelName::new("docs").unwrap();
        let post = PostMessage {
            channel,
            text: text.into(),
            labels: vec![],
            reply_to: None,
        };
        history.run_as_ann(Command::Post(post));
        let events = &history.steps.last().unwrap().batch.events;
        let posted = events.iter().find_map(|event| match &event.event {
            Event::MessagePosted(message_posted) => Some(message_posted.message().clone()),
            _ => None,
        });
        history.run_as_daemon(Command::Route {
            project: project_named("docs"),
            message: Box::new(posted.unwrap()),
        });
    }
    history.run(
        &Actor::Agent(agent_named("bob")),
        None,
        Command::Release { claim, token },
    );
    assert!(history.board.missions.values().any(|mission| {
        mission
            .lead
            .as_ref()
            .is_some_and(|lead| lead.name.is_some())
    }));
}

/// Adds to the test history a mission in which two tasks share a file and one agent worked outside
/// its workspace.
fn add_isolation_breach(history: &mut HistoryBuilder) {
    let planned = |subject: &str| PlannedTask {
        task: new_task("shop", subject, "shared"),
        after: vec![],
        assign: None,
    };
    let mission = mission::StartMission {
        project: project_named("shop"),
        title: "Third".into(),
        agents: vec![agent_named("ann")],
        team: None,
        max_workers: 4,
        mode: mission::StartMode::Flow,
        isolate: true,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let tasks = vec![planned("left"), planned("right")];
    history.run(
        &person("ann"),
        Some("Third"),
        Command::StartMission {
            mission,
            tasks,
            adopt: vec![],
        },
    );
    let poll = PollRequest {
        agent: agent_named("ann"),
        project: None,
        mission: Some(MissionId(3)),
        task: None,
        lease_ms: None,
        no_workspace: false,
        by_hand: false,
    };
    let facts = Box::<start_gates::StartFacts>::default();
    let outcome = history.report(Report::PollSupervised { poll, facts });
    let CommandOutcome::Polled(Some(grant)) = outcome else {
        panic!("{outcome:?}")
    };
    let (attempt, token) = (grant.attempt, grant.token);
    history.report(Report::IsolationBreach {
        attempt,
        token,
        sign: IsolationBreach::NoWorkspace,
    });
    history.run_as_ann(Command::CancelTask {
        task: grant.task,
        reason: "enough".into(),
    });
    history.run_as_ann(Command::CancelTask {
        task: TaskId(grant.task.0 + 1),
        reason: "enough".into(),
    });
    history.report(Report::Exited {
        attempt,
        token,
        exit: ProgramExit::Lost,
    });
}
