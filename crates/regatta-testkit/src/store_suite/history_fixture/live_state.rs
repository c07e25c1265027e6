//! The part of the test history about runners (machines that work for the daemon). At its end, one
//! object of every kind (such as a running attempt) still exists.

use super::*;

/// Adds to the test history runners (machines that work for the daemon) that register, work, leave
/// and are forgotten. One runner remains.
fn add_runners(history: &mut HistoryBuilder) {
    for name in ["box", "big"] {
        let runner = RunnerName::new(name).unwrap();
        let labels = vec!["gpu".into()];
        let registration = runner::RegisterRunner {
            name: runner.clone(),
            identity: format!("{name}-1"),
            token: "boxes".into(),
            labels,
            agents: vec![agent_named("ann")],
            max_tasks: 4,
            version: "0.1".into(),
        };
        let CommandOutcome::Runner { session } =
            history.run_as_daemon(Command::RegisterRunner(registration))
        else {
            panic!("no session")
        };
        history.advance(1_000);
        history.run_as_daemon(Command::BeatRunner {
            runner: runner.clone(),
            session,
        });
        history.run_as_ann(Command::DrainRunner {
            runner: runner.clone(),
            reason: "an update".into(),
        });
        history.run_as_daemon(Command::LeaveRunner { runner, session });
    }
    history.run_as_ann(Command::RemoveRunner {
        runner: RunnerName::new("box").unwrap(),
    });
}

/// Adds to the test history one object of every kind (such as a running attempt) that still exists
/// at its end.
pub(super) fn add_live_state(history: &mut HistoryBuilder) {
    add_runners(history);
    super::sessions::add_assumption(history);
    history.run_as_ann(Command::AddTask {
        task: new_task("shop", "Asks", "x/asks"),
        assign: Some(agent_named("bob")),
        how: AssignMode::Direct,
    });
    let asking_grant = history.poll("bob", true);
    let question = RequestContent::Question {
        text: "Which?".into(),
        choices: vec!["a".into()],
        schema: Some("{}".into()),
    };
    let event = AgentEvent::RequestMade(AgentRequest {
        id: "q".into(),
        content: question,
    });
    history.report(Report::AgentEvent {
        attempt: asking_grant.attempt,
        token: asking_grant.token,
        n: 1,
        event,
    });
    history.run_as_ann(Command::AddTask {
        task: new_task("shop", "Broken", "x/broken"),
        assign: Some(agent_named("ann")),
        how: AssignMode::Direct,
    });
    let broken_grant = history.poll("ann", true);
    let (attempt, token) = (broken_grant.attempt, broken_grant.token);
    let half_silence_ms = history.board.limits.silence_ms / 2;
    history.report(Report::Silent {
        attempt,
        token,
        since_ms: Some(half_silence_ms),
    });
    history.run_as_ann(Command::Snooze {
        item: InboxItem::Attempt(attempt),
        ms: Some(60_000),
    });
    history.report(Report::Silent {
        attempt,
        token,
        since_ms: None,
    });
    let exit = ProgramExit::Failed {
        reason: "not signed in".into(),
        class: Some(FailureClass::Auth),
    };
    history.report(Report::Exited {
        attempt: broken_grant.attempt,
        token: broken_grant.token,
        exit,
    });
    history.run_as_ann(Command::Snooze {
        item: InboxItem::Agent(agent_named("ann")),
        ms: Some(60_000),
    });
    history.run_as_ann(Command::ResumeAgent {
        agent: agent_named("ann"),
    });
    history.run_as_ann(Command::CancelTask {
        task: broken_grant.task,
        reason: "enough".into(),
    });
    history.run_as_ann(Command::AddTask {
        task: new_task("shop", "Offered", "x/offered"),
        assign: Some(agent_named("bob")),
        how: AssignMode::Offer,
    });
    history.run_as_ann(Command::AddTask {
        task: AddTask {
            backlog: true,
            ..new_task("docs", "Someday", "x/someday")
        },
        assign: None,
        how: AssignMode::Direct,
    });
    // Add a failed task that nobody has retried or dismissed, and that a person has hidden from the
    // inbox for some time.
    history.run_as_ann(Command::AddTask {
        task: new_task("shop", "Fails", "x/f"),
        assign: Some(agent_named("ann")),
        how: AssignMode::Direct,
    });
    let PollGrant {
        task,
        attempt,
        token,
        ..
    } = history.poll("ann", false);
    history.run_as_ann(Command::GiveUp {
        task,
        attempt,
        token,
        reason: Some("too hard".into()),
    });
    history.run_as_ann(Command::Snooze {
        item: InboxItem::Task(task),
        ms: Some(3_600_000),
    });
    history.run_as_ann(Command::AddTask {
        task: new_task("shop", "Cancelled", "x/c"),
        assign: None,
        how: AssignMode::Direct,
    });
    history.run_as_ann(Command::CancelTask {
        task: TaskId(history.board.counters.task),
        reason: "never mind".into(),
    });
    history.run(
        &person("ann"),
        Some("add-2"),
        Command::AddTask {
            task: new_task("shop", "Landing", "x/l"),
            assign: Some(agent_named("ann")),
            how: AssignMode::Direct,
        },
    );
    let grant = history.poll("ann", true);
    history.submit(&grant, "x/l");
    history.poll("bob", false);
    history.acquire("ann", "port://9090", 0);
    history.acquire("bob", "port://9090", 3_600_000);
    history.report(Report::Tick);
}
