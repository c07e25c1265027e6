//! The part of the test history about claims (leases), messages, and hooks (rules that run a
//! command).

use super::*;

pub(super) fn add_claims(history: &mut HistoryBuilder) {
    let acquired = history.acquire("ann", "file://docs/**", 0);
    let Acquired::Granted { claim, token, .. } = acquired else {
        panic!()
    };
    history.run_as_ann(Command::Renew { claim, token });
    history.acquire("bob", "file://docs/a.md", 5_000);
    history.run_as_daemon(Command::CancelWait { wait: WaitId(1) });
    history.acquire("bob", "file://docs/b.md", 5_000);
    history.release(&acquired);
    history.acquire("ann", "port://8080", 0);
    history.acquire("bob", "port://8080", 3_600_000);
}

pub(super) fn add_messages(history: &mut HistoryBuilder) {
    let bob = || Actor::Agent(agent_named("bob"));
    history.post(person("ann"), "general", "Hello @bob, and you, @ann", &[]);
    history.post(bob(), "general", "@ann yes", &["task", "coord:merge"]);
    history.post(bob(), "@ann", "a word in private", &["task"]);
    history.post(
        Actor::Regatta,
        "shop",
        "It is late, @bob.",
        &["task", "task"],
    );
    for nth in 0..5 {
        history.post(
            person("ann"),
            "shop",
            &format!("number {nth}, ümlaut \u{1F6A3} \0 @bob"),
            &["count"],
        );
    }
    let (channel, read) = (
        ChannelName::new("general").unwrap(),
        regatta_core::ids::MessageId(2),
    );
    history.run(
        &bob(),
        None,
        Command::MarkRead {
            agent: agent_named("bob"),
            channel,
            read,
        },
    );
    // Post a thread in which every reply has a file: two replies to the first message, and a reply
    // to the first of these two replies.
    let first = MessageId(1);
    for (reply_to, text) in [
        (first, "hello yourself"),
        (first, "the NUMBER is yes"),
        (MessageId(10), "so be it"),
    ] {
        let channel = ChannelName::new("general").unwrap();
        let post = PostMessage {
            channel,
            text: text.into(),
            labels: vec![],
            reply_to: Some(reply_to),
        };
        let file = Attachment {
            name: "a.txt".into(),
            bytes: 3,
            sha256: "0".repeat(64),
        };
        let extra = PostContext {
            thread: Some(first),
            attachments: vec![file],
            firing: None,
        };
        history.run(&bob(), None, Command::PostWith { post, extra });
    }
}

/// Adds to the test history a hook (a rule that runs a command) that is triggered, waits for its
/// claim, is paused and is removed. Another hook remains, with a running command.
pub(super) fn add_hooks(history: &mut HistoryBuilder) {
    let add = |prefix: &str, claim: Option<&str>| hook::AddHook {
        project: Some(project_named("shop")),
        agent: None,
        trigger: hook::HookTrigger::Message {
            channel: Some(ChannelName::new("shop").unwrap()),
            label: None,
            mention: None,
            prefix: Some(prefix.into()),
        },
        when: hook::HookConditions {
            claim: claim.map(|claim| Uri::new(claim).unwrap()),
            ..hook::HookConditions::default()
        },
        action: hook::HookAction::Run {
            argv: vec!["echo".into(), "hi".into()],
            cwd: "/".into(),
        },
        priority: 2,
        timeout_ms: None,
        sandbox: None,
    };
    history.run_as_ann(Command::AddHook(Box::new(add(
        "!go",
        Some("respond://shop-dev"),
    ))));
    history.post(person("ann"), "shop", "!go once", &[]);
    history.post(person("ann"), "shop", "!go twice", &[]);
    let firing = *history.board.firings.keys().next().expect("it fired");
    let (ended, output) = (hook::FiringEnd::Exited(0), "hi\n".to_owned());
    history.report(Report::HookEnded {
        firing,
        ended: ended.clone(),
        output: output.clone(),
        sandbox_description: None,
    });
    let firing = *history
        .board
        .firings
        .keys()
        .next()
        .expect("the hook fired for the waiting message");
    history.report(Report::HookEnded {
        firing,
        ended,
        output,
        sandbox_description: None,
    });
    history.run_as_ann(Command::PauseHook {
        hook: HookId(1),
        reason: "for now".into(),
    });
    history.run_as_ann(Command::ResumeHook { hook: HookId(1) });
    let mut stays = add("!stay", None);
    stays.when.cooldown_ms = Some(60_000);
    history.run_as_ann(Command::AddHook(Box::new(stays)));
    history.post(person("ann"), "shop", "!stay", &[]);
    history.post(person("ann"), "shop", "!stay again", &[]);
    history.run_as_ann(Command::RemoveHook { hook: HookId(1) });
}
