//! The part of the test history about conversations in chat services.

use std::collections::BTreeMap;

use regatta_core::agent::{Profile, RegisterAgent, Role, Runtime};
use regatta_core::command::{Command, Report};
use regatta_core::conversation::{
    Author, ChangeDestination, ConversationCommand, ConversationReport, FollowUps, Service,
    ShowOutcome, ThreadMessage,
};
use regatta_core::ids::{ConversationId, Now};
use regatta_core::schedule::PollRequest;
use regatta_core::start_gates::StartFacts;

use super::history_fixture::{HistoryBuilder, agent_named, project_named};

fn thread_message(delivery: &str, text: &str) -> Command {
    let hear = ThreadMessage {
        delivery: delivery.into(),
        service: Service::Slack,
        agent: agent_named("vera"),
        project: project_named("shop"),
        key: format!("slack:T1:C1:{delivery}:vera"),
        thread: format!("slack:T1:C1:{delivery}"),
        address: BTreeMap::from([("channel".to_owned(), "C1".to_owned())]),
        title: "#dev".into(),
        url: Some("https://example.invalid/1".into()),
        author: Author {
            id: "U1".into(),
            name: "Ann".into(),
        },
        may_ask_for_work: true,
        should_reply_to_refused: false,
        text: text.into(),
        source: delivery.into(),
        mentions_agent: true,
        addresses_another: false,
        follow_ups: FollowUps::Mention,
        deliver: ChangeDestination::Pull,
        prompt: Some("Be brief.".into()),
        context: None,
        attachments: vec![],
        pull: None,
        idle_ms: 3_600_000,
    };
    Command::Converse(Box::new(ConversationCommand::HandleMessage(hear)))
}

/// Adds commands about conversations in chat services to the test history.
pub(super) fn add_conversations(history: &mut HistoryBuilder) {
    history.run_as_daemon(Command::RegisterAgent(RegisterAgent {
        name: agent_named("vera"),
        runtime: Runtime::Scripted,
        role: Role::Worker,
        provider: None,
        profile: Profile::default(),
        description: String::new(),
        max_tasks: 2,
    }));
    history.run_as_daemon(thread_message("1.1", "fix the login bug"));
    let id = ConversationId(history.board.counters.conversation);
    let task = history.board.conversations[&id]
        .task
        .expect("the conversation was prompted");
    let poll = PollRequest {
        task: Some(task),
        ..PollRequest::new(agent_named("vera"))
    };
    history.report(Report::PollSupervised {
        poll,
        facts: Box::<StartFacts>::default(),
    });
    let attempt = history.board.tasks[&task].attempt.expect("it started");
    let token = history.board.attempts[&attempt].token;
    let how = regatta_core::attempt::ProgramExit::Done {
        output: Some("Fixed.".into()),
    };
    history.report(Report::Exited {
        attempt,
        token,
        exit: how,
    });
    let (verdict, findings) = (
        super::history_fixture::passed_verdict(&["x/login"]),
        Default::default(),
    );
    history.report(Report::WorkVerdict {
        attempt,
        token,
        verdict,
        findings,
    });
    let shown = ShowOutcome::Visible {
        stage: 1,
        refs: vec!["17.1".into()],
    };
    history.report(Report::Conversation(Box::new(ConversationReport::Shown {
        conversation: id,
        post: 1,
        shown,
    })));
    // After more than a week without messages, the conversation's workspace is removed, and the key
    // of the message's delivery is forgotten.
    history.now = Now {
        fleet_ms: history.now.fleet_ms + 9 * 24 * 3_600_000,
        ..history.now
    };
    history.report(Report::Tick);
    history.run_as_daemon(thread_message("2.1", "and another"));
    let last = ConversationId(history.board.counters.conversation);
    history.run_as_daemon(Command::Converse(Box::new(ConversationCommand::Close {
        conversation: last,
    })));
    history.run_as_daemon(thread_message("3.1", "one that stays"));
}
