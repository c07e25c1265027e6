//! Hooks: the triggers that fire them, their claims and limits, and the end of a cycle of hooks.

use regatta_core::bus::{PostContext, PostMessage};
use regatta_core::command::{Actor, Command, CommandOutcome, Report};
use regatta_core::effect::Effect;
use regatta_core::hook::{
    AddHook, Firing, FiringEnd, HookAction, HookConditions, HookTrigger, MAX_CHAIN_LENGTH,
    MAX_FIRINGS_PER_WINDOW, MAX_WAITING,
};
use regatta_core::ids::{ChannelName, FiringId, HookId, Label};

use crate::world::{SECOND_MS, World, agent, shop, uri};

fn channel(name: &str) -> ChannelName {
    ChannelName::new(name).unwrap()
}

fn label(name: &str) -> Label {
    Label::new(name).unwrap()
}

fn channel_trigger(name: &str) -> HookTrigger {
    HookTrigger::Message {
        channel: Some(channel(name)),
        label: None,
        mention: None,
        prefix: None,
    }
}

fn hook_on(trigger: HookTrigger) -> AddHook {
    AddHook {
        project: Some(shop()),
        agent: None,
        trigger,
        when: HookConditions::default(),
        action: HookAction::Run {
            argv: vec!["answer".into()],
            cwd: "/".into(),
        },
        priority: 2,
        timeout_ms: None,
        sandbox: None,
    }
}

impl World {
    fn add_hook(&mut self, request: AddHook) -> HookId {
        match self.ask("ann", Command::AddHook(Box::new(request))) {
            CommandOutcome::Hook(id) => id,
            other => panic!("{other:?}"),
        }
    }

    fn post_message(&mut self, agent: &str, where_to: &str, text: &str) {
        self.post_with_labels(agent, where_to, text, &[]);
    }

    fn post_with_labels(&mut self, agent: &str, where_to: &str, text: &str, labels: &[&str]) {
        let labels = labels.iter().map(|text| label(text)).collect();
        let post = PostMessage {
            channel: channel(where_to),
            text: text.into(),
            labels,
            reply_to: None,
        };
        self.ask(agent, Command::Post(post));
    }

    /// Returns the firings of a hook whose commands have not ended.
    fn live_firings(&self, hook: HookId) -> Vec<Firing> {
        self.board
            .firings
            .values()
            .filter(|firing| firing.hook == hook)
            .map(|firing| Firing::clone(firing))
            .collect()
    }

    fn fired_count(&self, hook: HookId) -> u64 {
        self.board.hooks[&hook].fired_count
    }

    fn end_firing(&mut self, firing: FiringId) {
        let (ended, output) = (FiringEnd::Exited(0), "done\n".to_owned());
        self.report(Report::HookEnded {
            firing,
            ended,
            output,
            sandbox_description: None,
        });
    }

    fn end_all_firings(&mut self) {
        let live: Vec<FiringId> = self.board.firings.keys().copied().collect();
        live.into_iter().for_each(|id| self.end_firing(id));
    }
}

/// Adds hooks that hold claims, for tests that are not about hooks.
pub(crate) fn add_various_hooks(world: &mut World) {
    let when = |claim: &str| HookConditions {
        claim: Some(uri(claim)),
        ..HookConditions::default()
    };
    world.add_hook(AddHook {
        when: when("file://shop/a"),
        ..hook_on(channel_trigger("shop"))
    });
    world.add_hook(AddHook {
        when: when("port://1"),
        ..hook_on(HookTrigger::Event {
            kind: "attempt.ended".into(),
        })
    });
    world.add_hook(hook_on(HookTrigger::Free {
        uri: uri("port://1"),
    }));
    world.add_hook(AddHook {
        when: when("workspace://shop/default"),
        ..hook_on(HookTrigger::Event {
            kind: "task.added".into(),
        })
    });
}

/// Each message fires a hook once, with one effect, in the same commit.
#[test]
fn a_message_fires_a_hook_once() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let hook = world.add_hook(hook_on(channel_trigger("shop")));
    world.post_message("eve", "shop", "hello");
    world.post_message("eve", "else", "hello");
    assert_eq!(world.fired_count(hook), 1);
    let firing = world.live_firings(hook).remove(0);
    assert_eq!((firing.depth, firing.agent.as_str()), (1, "hook/H1"));
    assert_eq!(
        world
            .outbox
            .values()
            .filter(|effect| matches!(effect, Effect::RunHook { .. }))
            .count(),
        1
    );
    world.restart();
    assert_eq!(
        world.live_firings(hook).len(),
        1,
        "a restart lost or repeated the firing"
    );
    world.end_firing(firing.id);
    world.end_firing(firing.id);
    assert!(world.live_firings(hook).is_empty());
    assert_eq!(world.count("hook.ended"), 1);
}

/// Each kind of message against each kind of hook.
#[test]
fn a_hook_fires_only_for_matching_messages() {
    let message =
        |label: Option<&str>, mention: Option<&str>, prefix: Option<&str>| HookTrigger::Message {
            channel: None,
            label: label.map(|label| Label::new(label).unwrap()),
            mention: mention.map(agent),
            prefix: prefix.map(str::to_owned),
        };
    type Case<'a> = (HookTrigger, &'a str, &'a str, &'a str, &'a [&'a str], bool);
    let table: &[Case] = &[
        (channel_trigger("shop"), "eve", "shop", "hello", &[], true),
        (
            channel_trigger("shop"),
            "eve",
            "shop",
            "hello !nohooks",
            &[],
            false,
        ),
        (
            channel_trigger("shop"),
            "eve",
            "shop",
            "hello !nochanhooks",
            &[],
            false,
        ),
        (
            channel_trigger("shop"),
            "eve",
            "shop",
            "hello !noathooks",
            &[],
            true,
        ),
        (
            channel_trigger("shop"),
            "hook/H1",
            "shop",
            "my own words",
            &[],
            false,
        ),
        (
            channel_trigger("shop"),
            "hook/H1/child",
            "shop",
            "my child's words",
            &[],
            false,
        ),
        (
            channel_trigger("shop"),
            "hook/H12",
            "shop",
            "another's words",
            &[],
            true,
        ),
        (channel_trigger("@ann"), "eve", "@ann", "psst", &[], true),
        (
            message(Some("x"), None, None),
            "eve",
            "any",
            "hello",
            &["x"],
            true,
        ),
        (
            message(Some("x"), None, None),
            "eve",
            "any",
            "hello",
            &["y"],
            false,
        ),
        (
            message(Some("x"), None, None),
            "eve",
            "@ann",
            "hello",
            &["x"],
            false,
        ),
        (
            message(None, Some("bob"), None),
            "eve",
            "any",
            "hello @bob",
            &[],
            true,
        ),
        (
            message(None, Some("bob"), None),
            "eve",
            "any",
            "hello @bobby",
            &[],
            false,
        ),
        (
            message(None, Some("bob"), None),
            "eve",
            "any",
            "@bob !noathooks",
            &[],
            false,
        ),
        (
            message(None, Some("bob"), None),
            "eve",
            "any",
            "@bob !nochanhooks",
            &[],
            true,
        ),
        (
            message(None, None, Some("!x")),
            "eve",
            "any",
            " !X go",
            &[],
            true,
        ),
        (
            message(None, None, Some("!x")),
            "eve",
            "any",
            "go !x",
            &[],
            false,
        ),
        (
            message(Some("x"), None, Some("!x")),
            "eve",
            "any",
            "!x",
            &["y"],
            false,
        ),
    ];
    for (trigger, who, where_to, text, labels, fires) in table {
        let mut world = World::with_agents(&[("ada", 1)]);
        let hook = world.add_hook(hook_on(trigger.clone()));
        world.post_with_labels(who, where_to, text, labels);
        assert_eq!(
            world.fired_count(hook) == 1,
            *fires,
            "{trigger:?} {who} {text}"
        );
        assert_eq!(
            world.board.hooks[&hook].skipped_count, 0,
            "a message that does not match is not recorded"
        );
    }
    // Messages of Regatta fire nothing, and neither do messages of the hook's own agent.
    let mut world = World::with_agents(&[("ada", 1)]);
    let hook = world.add_hook(AddHook {
        agent: Some(agent("ada")),
        ..hook_on(channel_trigger("shop"))
    });
    let post = PostMessage {
        channel: channel("shop"),
        text: "landed".into(),
        labels: vec![],
        reply_to: None,
    };
    world.ask("regatta", Command::Post(post));
    world.post_message("ada", "shop", "my own words");
    assert_eq!(world.fired_count(hook), 0);
    world.post_message("ada2", "shop", "another's");
    assert_eq!(world.fired_count(hook), 1);
}

/// The hook's claim is held while its command runs, and free afterwards.
#[test]
fn a_claim_is_held_until_the_command_ends() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let claim = Some(uri("respond://shop-dev"));
    let when = HookConditions {
        claim: claim.clone(),
        ttl_ms: Some(60 * SECOND_MS),
        ..HookConditions::default()
    };
    let hook = world.add_hook(AddHook {
        when: when.clone(),
        ..hook_on(channel_trigger("shop"))
    });
    world.post_message("eve", "shop", "one");
    let firing = world.live_firings(hook).remove(0);
    assert!(firing.claim.is_some());
    world.post_message("eve", "shop", "two");
    assert_eq!(
        (
            world.fired_count(hook),
            world.board.hooks[&hook].skipped_count
        ),
        (1, 0)
    );
    let waiting = world.board.hooks[&hook].waiting.clone();
    assert!(
        waiting[0].cause.to_string().starts_with("B2 "),
        "{waiting:?}"
    );
    let request = crate::world::acquire(
        regatta_core::claim::ClaimOwner::Agent(agent("eve")),
        &["respond://shop-dev"],
    );
    assert_eq!(
        world
            .ask_refused("eve", Command::Acquire(request.clone()))
            .code(),
        "claim_held"
    );
    world.end_firing(firing.id);
    assert_eq!(
        world.fired_count(hook),
        2,
        "the hook fires for the waiting message"
    );
    assert!(world.board.hooks[&hook].waiting.is_empty());
    // The claim also ends at its TTL while the command runs. The end of the command then releases
    // no claim of others (L6).
    world.advance(61 * SECOND_MS);
    world.ask("eve", Command::Acquire(request));
    world.end_all_firings();
    assert_eq!(world.board.claims.len(), 1);
    // Of two hooks with the same claim, the one with the lower priority number gets it.
    let mut world = World::with_agents(&[("ada", 1)]);
    let last = world.add_hook(AddHook {
        when: when.clone(),
        priority: 5,
        ..hook_on(channel_trigger("shop"))
    });
    let first = world.add_hook(AddHook {
        when,
        priority: 1,
        ..hook_on(channel_trigger("shop"))
    });
    world.post_message("eve", "shop", "one");
    assert_eq!((world.fired_count(first), world.fired_count(last)), (1, 0));
    world.end_all_firings();
    assert_eq!(
        (world.fired_count(first), world.fired_count(last)),
        (1, 1),
        "the other hook fires next"
    );
}

/// Messages that arrive while the claim is held wait and are handled in order. The rule is the same
/// for every holder of the claim.
#[test]
fn messages_wait_for_the_claim_in_order() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let when = HookConditions {
        claim: Some(uri("respond://shop-dev")),
        ..HookConditions::default()
    };
    let hook = world.add_hook(AddHook {
        when,
        ..hook_on(channel_trigger("shop"))
    });
    let request = crate::world::acquire(
        regatta_core::claim::ClaimOwner::Agent(agent("eve")),
        &["respond://shop-dev"],
    );
    world.ask("eve", Command::Acquire(request));
    for text in ["one", "two", "three"] {
        world.post_message("eve", "shop", text);
    }
    assert_eq!(
        (
            world.fired_count(hook),
            world.board.hooks[&hook].waiting.len()
        ),
        (0, 3)
    );
    let claim = world.board.claims.values().next().cloned().unwrap();
    world.ask(
        "eve",
        Command::Release {
            claim: claim.id,
            token: claim.token,
        },
    );
    let mut causes = vec![];
    for _ in 0..3 {
        let firing = world.live_firings(hook).remove(0);
        causes.push(
            firing
                .cause
                .to_string()
                .split(' ')
                .next()
                .unwrap()
                .to_owned(),
        );
        world.end_firing(firing.id);
    }
    assert_eq!(causes, ["B1", "B2", "B3"]);
    assert!(world.live_firings(hook).is_empty());
    // A paused hook keeps its waiting messages and continues with them.
    world.post_message("eve", "shop", "four");
    world.post_message("eve", "shop", "five");
    world.ask(
        "ann",
        Command::PauseHook {
            hook,
            reason: "enough".into(),
        },
    );
    world.end_all_firings();
    assert_eq!(
        (
            world.fired_count(hook),
            world.board.hooks[&hook].waiting.len()
        ),
        (4, 1)
    );
    world.ask("ann", Command::ResumeHook { hook });
    assert_eq!(
        (
            world.fired_count(hook),
            world.board.hooks[&hook].waiting.len()
        ),
        (5, 0)
    );
    world.end_all_firings();
}

/// A hook keeps a limited number of triggers that wait for its claim. Further ones are skipped,
/// with the reason.
#[test]
fn a_hook_keeps_a_limited_number_of_waiting_triggers() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.skips_invariants = true;
    let when = HookConditions {
        claim: Some(uri("respond://shop-dev")),
        ..HookConditions::default()
    };
    let hook = world.add_hook(AddHook {
        when,
        ..hook_on(channel_trigger("shop"))
    });
    let request = crate::world::acquire(
        regatta_core::claim::ClaimOwner::Agent(agent("eve")),
        &["respond://shop-dev"],
    );
    world.ask("eve", Command::Acquire(request));
    for nth in 0..=MAX_WAITING {
        world.post_message("eve", "shop", &format!("message {nth}"));
    }
    assert_eq!(world.board.hooks[&hook].waiting.len(), MAX_WAITING);
    let (_, why) = world.board.hooks[&hook]
        .last_skip
        .clone()
        .expect("a trigger was skipped");
    assert!(
        world.board.hooks[&hook].skipped_count == 1 && why.contains("already wait for it"),
        "{why}"
    );
}

#[test]
fn a_cooldown_and_a_required_label_hold_a_hook_back() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let when = HookConditions {
        cooldown_ms: Some(30 * SECOND_MS),
        require_label: Some(label("go")),
        ..HookConditions::default()
    };
    let hook = world.add_hook(AddHook {
        when,
        ..hook_on(channel_trigger("shop"))
    });
    world.post_message("eve", "shop", "without");
    assert_eq!(
        (
            world.fired_count(hook),
            world.board.hooks[&hook].skipped_count
        ),
        (0, 1)
    );
    world.post_with_labels("eve", "shop", "with", &["go"]);
    world.post_with_labels("eve", "shop", "too soon", &["go"]);
    assert_eq!(
        (
            world.fired_count(hook),
            world.board.hooks[&hook].skipped_count
        ),
        (1, 2)
    );
    world.advance(90 * SECOND_MS);
    world.post_with_labels("eve", "shop", "later", &["go"]);
    assert_eq!(world.fired_count(hook), 2);
    world.ask(
        "ann",
        Command::PauseHook {
            hook,
            reason: "enough".into(),
        },
    );
    world.advance(90 * SECOND_MS);
    world.post_with_labels("eve", "shop", "paused", &["go"]);
    assert_eq!(
        (
            world.fired_count(hook),
            world.board.hooks[&hook].skipped_count
        ),
        (2, 2),
        "a trigger of a paused hook was recorded as skipped"
    );
    world.ask("ann", Command::ResumeHook { hook });
    world.post_with_labels("eve", "shop", "again", &["go"]);
    assert_eq!(world.fired_count(hook), 3);
    world.ask("ann", Command::RemoveHook { hook });
    assert_eq!(
        world
            .ask_refused("ann", Command::RemoveHook { hook })
            .code(),
        "not_found"
    );
    world.end_all_firings();
}

/// Hooks on events fire for events of people and the daemon, not for events of hooks.
#[test]
fn events_and_free_claims_fire_hooks() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let added = world.add_hook(hook_on(HookTrigger::Event {
        kind: "task.added".into(),
    }));
    let granted = world.add_hook(hook_on(HookTrigger::Event {
        kind: "claim.granted".into(),
    }));
    let posted = world.add_hook(hook_on(HookTrigger::Event {
        kind: "message.posted".into(),
    }));
    world.add_task("a", &["a"]);
    assert_eq!(
        (
            world.fired_count(added),
            world.fired_count(granted),
            world.fired_count(posted)
        ),
        (1, 0, 0)
    );
    world.post_message("eve", "any", "hello");
    world.post_message("eve", "@ann", "psst");
    assert_eq!(world.fired_count(posted), 1);
    let with_claim = HookConditions {
        claim: Some(uri("message://m")),
        ..HookConditions::default()
    };
    let free = world.add_hook(AddHook {
        when: with_claim,
        ..hook_on(HookTrigger::Free {
            uri: uri("port://80"),
        })
    });
    let held_claim = world.hold_claim("eve", &["port://80"]);
    assert_eq!(world.fired_count(granted), 1);
    // The released claim goes to a waiting owner, so it was never free.
    let request = regatta_core::claim::Acquire {
        wait_ms: 60 * SECOND_MS,
        ..crate::world::acquire(
            regatta_core::claim::ClaimOwner::Agent(agent("bob")),
            &["port://80"],
        )
    };
    world.ask("bob", Command::Acquire(request));
    world.ask(
        "eve",
        Command::Release {
            claim: held_claim.claim,
            token: held_claim.token,
        },
    );
    assert_eq!(
        (world.fired_count(free), world.fired_count(granted)),
        (0, 2)
    );
    let last = world.board.claims.values().next_back().cloned().unwrap();
    world.ask(
        "bob",
        Command::Release {
            claim: last.id,
            token: last.token,
        },
    );
    assert_eq!(world.fired_count(free), 1);
    assert_eq!(
        world.fired_count(granted),
        2,
        "the claim of a hook fired a hook"
    );
    world.end_all_firings();
    assert_eq!(
        world.fired_count(free),
        1,
        "the release of a hook's claim fired a hook"
    );
}

/// Two hooks that answer each other are paused when the chain is too deep, and a message is posted.
#[test]
fn a_chain_of_hooks_that_is_too_deep_is_paused() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let (ping, pong) = (
        world.add_hook(hook_on(channel_trigger("ping"))),
        world.add_hook(hook_on(channel_trigger("pong"))),
    );
    world.post_message("eve", "ping", "go");
    let mut fired = 0;
    while let Some(firing) = world
        .board
        .firings
        .values()
        .next()
        .map(|firing| Firing::clone(firing))
    {
        fired += 1;
        assert!(fired <= MAX_CHAIN_LENGTH, "the chain of hooks does not end");
        assert_eq!(firing.depth, fired);
        let other = if firing.hook == ping { "pong" } else { "ping" };
        let post = PostMessage {
            channel: channel(other),
            text: "your turn".into(),
            labels: vec![],
            reply_to: None,
        };
        let extra = PostContext {
            firing: Some(firing.id),
            ..PostContext::default()
        };
        world.ask(firing.agent.as_str(), Command::PostWith { post, extra });
        world.end_firing(firing.id);
    }
    assert_eq!(fired, MAX_CHAIN_LENGTH);
    let cut = world.board.hooks[&pong].paused.clone().unwrap();
    assert!(
        cut.contains("5 hooks triggered each other in a chain"),
        "{cut}"
    );
    assert!(world.board.hooks[&ping].paused.is_none());
    let said = world.log.iter().rev().find_map(|event| match &event.event {
        regatta_core::event::Event::MessagePosted(message_posted)
            if message_posted.message().sender == Actor::Regatta =>
        {
            Some(message_posted.message().clone())
        }
        _ => None,
    });
    let said = said.unwrap();
    assert_eq!(
        (said.channel, said.labels),
        (channel("pong"), vec![label("coord:hook")])
    );
    assert!(
        said.text.contains("regatta hook resume H2"),
        "{}",
        said.text
    );
}

/// A hook that fires too often is paused. After it is resumed, the count begins anew.
#[test]
fn a_hook_that_fires_too_often_is_paused() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let hook = world.add_hook(hook_on(channel_trigger("shop")));
    for nth in 0..MAX_FIRINGS_PER_WINDOW {
        world.post_message("eve", "shop", &format!("{nth}"));
    }
    assert!(world.board.hooks[&hook].paused.is_none());
    world.post_message("eve", "shop", "once more");
    world.post_message("eve", "shop", "and again");
    assert_eq!(world.fired_count(hook), MAX_FIRINGS_PER_WINDOW as u64);
    assert!(
        world.board.hooks[&hook]
            .paused
            .as_ref()
            .unwrap()
            .contains("20 times within a minute")
    );
    world.ask("ann", Command::ResumeHook { hook });
    world.post_message("eve", "shop", "hello again");
    assert_eq!(world.fired_count(hook), MAX_FIRINGS_PER_WINDOW as u64 + 1);
    // Over a longer time it may fire more often.
    for nth in 0..60 {
        world.advance(4 * SECOND_MS);
        world.post_message("eve", "shop", &format!("{nth}"));
    }
    assert!(world.board.hooks[&hook].paused.is_none());
    world.end_all_firings();
}

#[test]
fn an_invalid_hook_is_refused() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let run = |argv: &[&str], cwd: &str| HookAction::Run {
        argv: argv.iter().map(|argv| (*argv).to_owned()).collect(),
        cwd: cwd.into(),
    };
    let claim = HookConditions {
        ttl_ms: Some(1),
        ..HookConditions::default()
    };
    for wrong in [
        hook_on(HookTrigger::Message {
            channel: None,
            label: None,
            mention: None,
            prefix: None,
        }),
        hook_on(HookTrigger::Event {
            kind: "task.dreamt".into(),
        }),
        hook_on(HookTrigger::Event {
            kind: "hook.fired".into(),
        }),
        AddHook {
            action: run(&[], "/"),
            ..hook_on(channel_trigger("shop"))
        },
        AddHook {
            action: run(&[""], "/"),
            ..hook_on(channel_trigger("shop"))
        },
        AddHook {
            action: run(&["a"], "relative"),
            ..hook_on(channel_trigger("shop"))
        },
        AddHook {
            action: run(&["a\0b"], "/"),
            ..hook_on(channel_trigger("shop"))
        },
        AddHook {
            action: HookAction::Route,
            ..hook_on(HookTrigger::Event {
                kind: "task.added".into(),
            })
        },
        AddHook {
            action: HookAction::Route,
            project: None,
            ..hook_on(channel_trigger("shop"))
        },
        AddHook {
            when: claim,
            ..hook_on(channel_trigger("shop"))
        },
        AddHook {
            timeout_ms: Some(0),
            ..hook_on(channel_trigger("shop"))
        },
        AddHook {
            priority: 10,
            ..hook_on(channel_trigger("shop"))
        },
        AddHook {
            project: None,
            sandbox: Some(regatta_core::agent::SandboxLevel::Strict),
            ..hook_on(channel_trigger("shop"))
        },
    ] {
        assert_eq!(
            world
                .ask_refused("ann", Command::AddHook(Box::new(wrong.clone())))
                .code(),
            "invalid",
            "{wrong:?}"
        );
    }
}
