//! The part of the story about conversations.

use std::collections::BTreeMap;

use regatta_core::agent::{Profile, Register, Role, Runtime};
use regatta_core::command::Command;
use regatta_core::conversation::{Ask, Author, Deliver, FollowUps, Hear, Service, Shown};
use regatta_core::gates::Facts;
use regatta_core::ids::{ConversationId, Now};
use regatta_core::schedule::Poll;

use super::story::{Teller, agent, project};

fn hear(delivery: &str, text: &str) -> Command {
    let hear = Hear {
        delivery: delivery.into(),
        service: Service::Slack,
        agent: agent("vera"),
        project: project("shop"),
        key: format!("slack:T1:C1:{delivery}:vera"),
        thread: format!("slack:T1:C1:{delivery}"),
        place: BTreeMap::from([("channel".to_owned(), "C1".to_owned())]),
        title: "#dev".into(),
        url: Some("https://example.invalid/1".into()),
        author: Author { id: "U1".into(), name: "Ann".into() },
        may: true,
        refuse_aloud: false,
        text: text.into(),
        source: delivery.into(),
        called: true,
        calls_another: false,
        follow_ups: FollowUps::Mention,
        deliver: Deliver::Pull,
        prompt: Some("Be brief.".into()),
        context: None,
        attachments: vec![],
        pull: None,
        idle_ms: 3_600_000,
    };
    Command::Converse(Box::new(Ask::Hear(hear)))
}

/// Adds the commands about conversations.
pub(super) fn conversations(it: &mut Teller) {
    it.shell(Command::RegisterAgent(Register {
        name: agent("vera"),
        runtime: Runtime::Scripted,
        role: Role::Worker,
        provider: None,
        profile: Profile::default(),
        description: String::new(),
        max_tasks: 2,
    }));
    it.shell(hear("1.1", "fix the login bug"));
    let id = ConversationId(it.board.counters.conversation);
    let task = it.board.conversations[&id].task.expect("the conversation was prompted");
    let poll = Poll { task: Some(task), ..Poll::of(agent("vera")) };
    it.shell(Command::PollSupervised { poll, facts: Box::<Facts>::default() });
    let attempt = it.board.tasks[&task].attempt.expect("it started");
    let token = it.board.attempts[&attempt].token;
    let how = regatta_core::attempt::Exited::Done { output: Some("Fixed.".into()) };
    it.shell(Command::ReportExited { attempt, token, how });
    let (verdict, findings) = (super::story::passed(&["x/login"]), Default::default());
    it.shell(Command::ReportJudged { attempt, token, verdict, findings });
    let shown = Shown::As { stage: 1, refs: vec!["17.1".into()] };
    it.shell(Command::Converse(Box::new(Ask::Show { conversation: id, post: 1, shown })));
    // After more than a week without messages, the conversation releases its resources and the
    // delivery is forgotten.
    it.now = Now { at: it.now.at + 9 * 24 * 3_600_000, ..it.now };
    it.shell(Command::Tick);
    it.shell(hear("2.1", "and another"));
    let last = ConversationId(it.board.counters.conversation);
    it.shell(Command::Converse(Box::new(Ask::Close { conversation: last })));
    it.shell(hear("3.1", "one that stays"));
}
