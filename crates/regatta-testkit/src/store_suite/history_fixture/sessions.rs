//! The part of the test history about sessions of agents' programs: events, requests, limits, and
//! answers that come late.

use super::*;

/// Adds to the test history an agent's program that reports everything that a program can report,
/// has to wait, costs money and reaches a limit.
pub(super) fn add_sessions(history: &mut HistoryBuilder) {
    let subject = policy::RuleSubject {
        command: Some("rm *".into()),
        ..policy::RuleSubject::default()
    };
    history.run_as_ann(Command::AddRule {
        scope: policy::RuleScope::All,
        effect: policy::RuleEffect::Deny,
        subject,
    });
    let ceiling = budget::Ceiling {
        tokens: Some(1_000),
        ..budget::Ceiling::default()
    };
    history.run_as_ann(Command::SetBudget {
        scope: budget::BudgetScope::Attempt,
        ceiling,
    });
    history.run_as_ann(Command::SetBudget {
        scope: budget::BudgetScope::Day,
        ceiling: budget::Ceiling {
            turns: Some(500),
            wall_ms: Some(u64::MAX / 2),
            ..ceiling
        },
    });
    history.run_as_ann(Command::AddTask {
        task: new_task("shop", "Talk", "x/talk"),
        assign: Some(agent_named("bob")),
        how: AssignMode::Direct,
    });
    let task = TaskId(history.board.counters.task);
    history.run_as_ann(Command::Tell {
        task,
        text: "before it begins".into(),
    });
    let grant = history.poll("bob", true);
    let mut n = 0;
    let mut report_event = |history: &mut HistoryBuilder, grant: &PollGrant, event: AgentEvent| {
        n += 1;
        history.report(Report::AgentEvent {
            attempt: grant.attempt,
            token: grant.token,
            n,
            event,
        });
    };
    let (sandbox, warnings) = (Some("in a box".to_owned()), vec!["a small one".to_owned()]);
    history.report(Report::Launched {
        attempt: grant.attempt,
        token: grant.token,
        sandbox,
        warnings,
    });
    let taken = history.board.attempts[&grant.attempt].ports.clone();
    history.report(Report::PortsTaken {
        attempt: grant.attempt,
        token: grant.token,
        taken,
    });
    let output = Some("what it did".to_owned());
    history.run_as_ann(Command::Finish {
        task,
        attempt: grant.attempt,
        token: grant.token,
        output,
        not_needed: false,
        learnings: vec![],
    });
    report_event(
        history,
        &grant,
        AgentEvent::Started {
            session: Some("s-1".into()),
            model: None,
        },
    );
    report_event(history, &grant, AgentEvent::TurnStarted { n: 0 });
    let usage = Usage {
        input: 800,
        output: 50,
        micro_usd: Some(1_234),
        ..Usage::default()
    };
    report_event(
        history,
        &grant,
        AgentEvent::Usage {
            session: None,
            usage,
        },
    );
    for (id, path) in [("1", "/etc/x"), ("2", "/etc/y"), ("3", "src/z")] {
        let tool = ToolCall {
            kind: ToolKind::Execute,
            command: Some("cp a b".into()),
            paths: vec![path.into()],
            ..ToolCall::default()
        };
        report_event(
            history,
            &grant,
            AgentEvent::RequestMade(AgentRequest {
                id: id.into(),
                content: RequestContent::Permission {
                    tool,
                    options: vec![],
                },
            }),
        );
    }
    history.advance(61 * 60_000); // the requests are escalated, and one is snoozed
    history.report(Report::Tick);
    history.run_as_ann(Command::Snooze {
        item: InboxItem::Approval(ApprovalId(1)),
        ms: Some(60_000),
    });
    history.run_as_ann(Command::Decide {
        approval: ApprovalId(1),
        answer: RequestAnswer::Deny { reason: None },
        scope: AnswerScope::Once,
        also: vec![],
    });
    report_event(
        history,
        &grant,
        AgentEvent::RequestWithdrawn {
            request: "2".into(),
        },
    );
    history.run_as_ann(Command::Tell {
        task,
        text: "and then this".into(),
    });
    history.run_as_ann(Command::PauseTask {
        task,
        reason: "a moment".into(),
    });
    history.run_as_ann(Command::ResumeTask { task });
    let end = |class| AgentEvent::TurnEnded {
        stop: StopReason::Error,
        class,
        detail: "it broke".into(),
    };
    report_event(history, &grant, end(Some(FailureClass::RateLimit)));
    let failed = |class| ProgramExit::Failed {
        reason: "a limit".into(),
        class: Some(class),
    };
    history.report(Report::Exited {
        attempt: grant.attempt,
        token: grant.token,
        exit: failed(FailureClass::RateLimit),
    });
    history.advance(61_000);
    history.report(Report::Tick);
    // The program's session continues until its context is nearly full. It then writes a summary
    // and is replaced by a new session.
    let grant = history.poll("bob", true);
    report_event(
        history,
        &grant,
        AgentEvent::Started {
            session: Some("s-2".into()),
            model: None,
        },
    );
    report_event(history, &grant, AgentEvent::TurnStarted { n: 0 });
    history.run_as_ann(Command::Tell {
        task,
        text: "one thing more".into(),
    });
    report_event(
        history,
        &grant,
        AgentEvent::Context {
            used: 90,
            size: 100,
        },
    );
    report_event(
        history,
        &grant,
        AgentEvent::TurnEnded {
            stop: StopReason::EndTurn,
            class: None,
            detail: String::new(),
        },
    );
    report_event(history, &grant, AgentEvent::TurnStarted { n: 1 });
    report_event(
        history,
        &grant,
        AgentEvent::TurnEnded {
            stop: StopReason::EndTurn,
            class: None,
            detail: "so far".into(),
        },
    );
    history.report(Report::Exited {
        attempt: grant.attempt,
        token: grant.token,
        exit: ProgramExit::Lost,
    });
    // The new session ends because the provider is overloaded, and the task is tried again later.
    // After that, the task gets its own rule and its own budget.
    let grant = history.poll("bob", true);
    history.report(Report::Exited {
        attempt: grant.attempt,
        token: grant.token,
        exit: failed(FailureClass::Overloaded),
    });
    history.advance(2_001);
    history.report(Report::Tick);
    let subject = policy::RuleSubject {
        path: Some("/tmp/*".into()),
        ..policy::RuleSubject::default()
    };
    history.run_as_ann(Command::AddRule {
        scope: policy::RuleScope::Task(task),
        effect: policy::RuleEffect::Allow,
        subject,
    });
    history.run_as_ann(Command::SetBudget {
        scope: budget::BudgetScope::Task(task),
        ceiling,
    });
    history.run_as_ann(Command::CancelTask {
        task,
        reason: "enough".into(),
    });
}

/// Adds to the test history an agent that continues without an answer, states its assumption, and
/// reads the answer later.
pub(super) fn add_assumption(history: &mut HistoryBuilder) {
    let task = new_task("shop", "Assumes", "x/assumes");
    history.run_as_ann(Command::AddTask {
        task,
        assign: Some(agent_named("ann")),
        how: AssignMode::Direct,
    });
    let PollGrant {
        task,
        attempt,
        token,
        ..
    } = history.poll("ann", true);
    let content = RequestContent::Question {
        text: "Tea?".into(),
        choices: vec![],
        schema: None,
    };
    let event = AgentEvent::RequestMade(AgentRequest {
        id: "tea".into(),
        content,
    });
    history.report(Report::AgentEvent {
        attempt,
        token,
        n: 1,
        event,
    });
    let approval = ApprovalId(history.board.counters.approval);
    history.run_as_ann(Command::ContinueWithoutAnswer {
        task,
        attempt,
        token,
        approval,
        assumed: "coffee".into(),
    });
    let answer = RequestAnswer::Text { text: "tea".into() };
    history.run_as_ann(Command::Decide {
        approval,
        answer,
        scope: AnswerScope::Once,
        also: vec![],
    });
    history.run_as_ann(Command::MarkAnswerRead { attempt, approval });
    history.run_as_ann(Command::CancelTask {
        task,
        reason: "a story".into(),
    });
}
