//! Hooks: the triggers that fire them, their claims and limits, and the end of a cycle of hooks.

use regatta_core::bus::{Extra, Post};
use regatta_core::command::{Actor, Command, Outcome};
use regatta_core::effect::Effect;
use regatta_core::hook::{Action, Add, Conditions, DEEPEST, Ended, Firing, MAX_WAITING, MOST_IN_SPAN, Trigger};
use regatta_core::ids::{ChannelName, FiringId, HookId, Label};

use crate::world::{SECOND, World, agent, shop, uri};

fn channel(name: &str) -> ChannelName {
    ChannelName::new(name).unwrap()
}

fn label(name: &str) -> Label {
    Label::new(name).unwrap()
}

fn in_channel(name: &str) -> Trigger {
    Trigger::Message { channel: Some(channel(name)), label: None, mention: None, prefix: None }
}

fn on(trigger: Trigger) -> Add {
    Add {
        project: Some(shop()),
        agent: None,
        trigger,
        when: Conditions::default(),
        action: Action::Run { argv: vec!["answer".into()], cwd: "/".into() },
        priority: 2,
        timeout_ms: None,
        sandbox: None,
    }
}

impl World {
    fn hook(&mut self, ask: Add) -> HookId {
        match self.ask("ann", Command::AddHook(Box::new(ask))) {
            Outcome::Hook(id) => id,
            other => panic!("{other:?}"),
        }
    }

    fn says(&mut self, who: &str, where_to: &str, text: &str) {
        self.says_with(who, where_to, text, &[]);
    }

    fn says_with(&mut self, who: &str, where_to: &str, text: &str, labels: &[&str]) {
        let labels = labels.iter().map(|it| label(it)).collect();
        let post = Post { channel: channel(where_to), text: text.into(), labels, reply_to: None };
        self.ask(who, Command::Post(post));
    }

    /// Returns the firings of a hook whose commands have not ended.
    fn live(&self, hook: HookId) -> Vec<Firing> {
        self.board.firings.values().filter(|it| it.hook == hook).map(|it| Firing::clone(it)).collect()
    }

    fn fired(&self, hook: HookId) -> u64 {
        self.board.hooks[&hook].fired
    }

    fn end(&mut self, firing: FiringId) {
        let (ended, output) = (Ended::Exited(0), "done\n".to_owned());
        self.report(Command::ReportHook { firing, ended, output, shut_in: None });
    }

    fn end_all(&mut self) {
        let live: Vec<FiringId> = self.board.firings.keys().copied().collect();
        live.into_iter().for_each(|it| self.end(it));
    }

    fn report(&mut self, command: Command) {
        self.ask("regatta", command);
    }
}

/// Adds hooks that hold claims, for tests that are not about hooks.
pub(crate) fn some(world: &mut World) {
    let when = |claim: &str| Conditions { claim: Some(uri(claim)), ..Conditions::default() };
    world.hook(Add { when: when("file://shop/a"), ..on(in_channel("shop")) });
    world.hook(Add { when: when("port://1"), ..on(Trigger::Event { kind: "attempt.ended".into() }) });
    world.hook(on(Trigger::Free { uri: uri("port://1") }));
    world.hook(Add { when: when("workspace://shop/default"), ..on(Trigger::Event { kind: "task.added".into() }) });
}

/// Each message fires a hook once, with one effect, in the same commit.
#[test]
fn a_message_fires_a_hook_once() {
    let mut world = World::with(&[("ada", 1)]);
    let hook = world.hook(on(in_channel("shop")));
    world.says("eve", "shop", "hello");
    world.says("eve", "else", "hello");
    assert_eq!(world.fired(hook), 1);
    let firing = world.live(hook).remove(0);
    assert_eq!((firing.depth, firing.agent.as_str()), (1, "hook/H1"));
    assert_eq!(world.outbox.values().filter(|it| matches!(it, Effect::RunHook { .. })).count(), 1);
    world.restart();
    assert_eq!(world.live(hook).len(), 1, "a restart lost or repeated the firing");
    world.end(firing.id);
    world.end(firing.id);
    assert!(world.live(hook).is_empty());
    assert_eq!(world.count("hook.ended"), 1);
}

/// Each kind of message against each kind of hook.
#[test]
fn a_hook_fires_only_for_matching_messages() {
    let message = |label: Option<&str>, mention: Option<&str>, prefix: Option<&str>| Trigger::Message {
        channel: None,
        label: label.map(|it| Label::new(it).unwrap()),
        mention: mention.map(agent),
        prefix: prefix.map(str::to_owned),
    };
    type Case<'a> = (Trigger, &'a str, &'a str, &'a str, &'a [&'a str], bool);
    let table: &[Case] = &[
        (in_channel("shop"), "eve", "shop", "hello", &[], true),
        (in_channel("shop"), "eve", "shop", "hello !nohooks", &[], false),
        (in_channel("shop"), "eve", "shop", "hello !nochanhooks", &[], false),
        (in_channel("shop"), "eve", "shop", "hello !noathooks", &[], true),
        (in_channel("shop"), "hook/H1", "shop", "my own words", &[], false),
        (in_channel("shop"), "hook/H1/child", "shop", "my child's words", &[], false),
        (in_channel("shop"), "hook/H12", "shop", "another's words", &[], true),
        (in_channel("@ann"), "eve", "@ann", "psst", &[], true),
        (message(Some("x"), None, None), "eve", "any", "hello", &["x"], true),
        (message(Some("x"), None, None), "eve", "any", "hello", &["y"], false),
        (message(Some("x"), None, None), "eve", "@ann", "hello", &["x"], false),
        (message(None, Some("bob"), None), "eve", "any", "hello @bob", &[], true),
        (message(None, Some("bob"), None), "eve", "any", "hello @bobby", &[], false),
        (message(None, Some("bob"), None), "eve", "any", "@bob !noathooks", &[], false),
        (message(None, Some("bob"), None), "eve", "any", "@bob !nochanhooks", &[], true),
        (message(None, None, Some("!x")), "eve", "any", " !X go", &[], true),
        (message(None, None, Some("!x")), "eve", "any", "go !x", &[], false),
        (message(Some("x"), None, Some("!x")), "eve", "any", "!x", &["y"], false),
    ];
    for (trigger, who, where_to, text, labels, fires) in table {
        let mut world = World::with(&[("ada", 1)]);
        let hook = world.hook(on(trigger.clone()));
        world.says_with(who, where_to, text, labels);
        assert_eq!(world.fired(hook) == 1, *fires, "{trigger:?} {who} {text}");
        assert_eq!(world.board.hooks[&hook].skipped, 0, "a message that does not match is not recorded");
    }
    // Messages of Regatta fire nothing, and neither do messages of the hook's own agent.
    let mut world = World::with(&[("ada", 1)]);
    let hook = world.hook(Add { agent: Some(agent("ada")), ..on(in_channel("shop")) });
    let post = Post { channel: channel("shop"), text: "landed".into(), labels: vec![], reply_to: None };
    world.report(Command::Post(post));
    world.says("ada", "shop", "my own words");
    assert_eq!(world.fired(hook), 0);
    world.says("ada2", "shop", "another's");
    assert_eq!(world.fired(hook), 1);
}

/// The hook's claim is held while its command runs, and free afterwards.
#[test]
fn a_claim_is_held_until_the_command_ends() {
    let mut world = World::with(&[("ada", 1)]);
    let claim = Some(uri("respond://shop-dev"));
    let when = Conditions { claim: claim.clone(), ttl_ms: Some(60 * SECOND), ..Conditions::default() };
    let hook = world.hook(Add { when: when.clone(), ..on(in_channel("shop")) });
    world.says("eve", "shop", "one");
    let firing = world.live(hook).remove(0);
    assert!(firing.claim.is_some());
    world.says("eve", "shop", "two");
    assert_eq!((world.fired(hook), world.board.hooks[&hook].skipped), (1, 0));
    let waiting = world.board.hooks[&hook].waiting.clone();
    assert!(waiting[0].cause.to_string().starts_with("B2 "), "{waiting:?}");
    let mine = crate::world::acquire(regatta_core::claim::Owner::Agent(agent("eve")), &["respond://shop-dev"]);
    assert_eq!(world.refused("eve", Command::Acquire(mine.clone())).code(), "claim_held");
    world.end(firing.id);
    assert_eq!(world.fired(hook), 2, "the hook fires for the waiting message");
    assert!(world.board.hooks[&hook].waiting.is_empty());
    // The claim also ends at its TTL while the command runs. The end of the command then releases
    // no claim of others (L6).
    world.advance(61 * SECOND);
    world.ask("eve", Command::Acquire(mine));
    world.end_all();
    assert_eq!(world.board.claims.len(), 1);
    // Of two hooks with the same claim, the one with the lower priority number gets it.
    let mut world = World::with(&[("ada", 1)]);
    let last = world.hook(Add { when: when.clone(), priority: 5, ..on(in_channel("shop")) });
    let first = world.hook(Add { when, priority: 1, ..on(in_channel("shop")) });
    world.says("eve", "shop", "one");
    assert_eq!((world.fired(first), world.fired(last)), (1, 0));
    world.end_all();
    assert_eq!((world.fired(first), world.fired(last)), (1, 1), "the other hook fires next");
}

/// Messages that arrive while the claim is held wait and are handled in order, whoever holds the
/// claim.
#[test]
fn messages_wait_for_the_claim_in_order() {
    let mut world = World::with(&[("ada", 1)]);
    let when = Conditions { claim: Some(uri("respond://shop-dev")), ..Conditions::default() };
    let hook = world.hook(Add { when, ..on(in_channel("shop")) });
    let mine = crate::world::acquire(regatta_core::claim::Owner::Agent(agent("eve")), &["respond://shop-dev"]);
    world.ask("eve", Command::Acquire(mine));
    for text in ["one", "two", "three"] {
        world.says("eve", "shop", text);
    }
    assert_eq!((world.fired(hook), world.board.hooks[&hook].waiting.len()), (0, 3));
    let held = world.board.claims.values().next().cloned().unwrap();
    world.ask("eve", Command::Release { claim: held.id, token: held.token });
    let mut causes = vec![];
    for _ in 0..3 {
        let firing = world.live(hook).remove(0);
        causes.push(firing.cause.to_string().split(' ').next().unwrap().to_owned());
        world.end(firing.id);
    }
    assert_eq!(causes, ["B1", "B2", "B3"]);
    assert!(world.live(hook).is_empty());
    // A paused hook keeps its waiting messages and continues with them.
    world.says("eve", "shop", "four");
    world.says("eve", "shop", "five");
    world.ask("ann", Command::PauseHook { hook, reason: "enough".into() });
    world.end_all();
    assert_eq!((world.fired(hook), world.board.hooks[&hook].waiting.len()), (4, 1));
    world.ask("ann", Command::ResumeHook { hook });
    assert_eq!((world.fired(hook), world.board.hooks[&hook].waiting.len()), (5, 0));
    world.end_all();
}

/// A hook keeps a limited number of triggers that wait for its claim. Further ones are skipped,
/// with the reason.
#[test]
fn a_hook_keeps_a_limited_number_of_waiting_triggers() {
    let mut world = World::with(&[("ada", 1)]);
    world.unjudged = true;
    let when = Conditions { claim: Some(uri("respond://shop-dev")), ..Conditions::default() };
    let hook = world.hook(Add { when, ..on(in_channel("shop")) });
    let mine = crate::world::acquire(regatta_core::claim::Owner::Agent(agent("eve")), &["respond://shop-dev"]);
    world.ask("eve", Command::Acquire(mine));
    for nth in 0..=MAX_WAITING {
        world.says("eve", "shop", &format!("message {nth}"));
    }
    assert_eq!(world.board.hooks[&hook].waiting.len(), MAX_WAITING);
    let (_, why) = world.board.hooks[&hook].last_skip.clone().expect("a trigger was skipped");
    assert!(world.board.hooks[&hook].skipped == 1 && why.contains("already wait for it"), "{why}");
}

#[test]
fn a_cooldown_and_a_required_label_hold_a_hook_back() {
    let mut world = World::with(&[("ada", 1)]);
    let when = Conditions { cooldown_ms: Some(30 * SECOND), require_label: Some(label("go")), ..Conditions::default() };
    let hook = world.hook(Add { when, ..on(in_channel("shop")) });
    world.says("eve", "shop", "without");
    assert_eq!((world.fired(hook), world.board.hooks[&hook].skipped), (0, 1));
    world.says_with("eve", "shop", "with", &["go"]);
    world.says_with("eve", "shop", "too soon", &["go"]);
    assert_eq!((world.fired(hook), world.board.hooks[&hook].skipped), (1, 2));
    world.advance(90 * SECOND);
    world.says_with("eve", "shop", "later", &["go"]);
    assert_eq!(world.fired(hook), 2);
    world.ask("ann", Command::PauseHook { hook, reason: "enough".into() });
    world.advance(90 * SECOND);
    world.says_with("eve", "shop", "paused", &["go"]);
    assert_eq!(
        (world.fired(hook), world.board.hooks[&hook].skipped),
        (2, 2),
        "a trigger of a paused hook was recorded as skipped"
    );
    world.ask("ann", Command::ResumeHook { hook });
    world.says_with("eve", "shop", "again", &["go"]);
    assert_eq!(world.fired(hook), 3);
    world.ask("ann", Command::RemoveHook { hook });
    assert_eq!(world.refused("ann", Command::RemoveHook { hook }).code(), "not_found");
    world.end_all();
}

/// Hooks on events fire for events of people and the daemon, not for events of hooks.
#[test]
fn events_and_free_claims_fire_hooks() {
    let mut world = World::with(&[("ada", 1)]);
    let added = world.hook(on(Trigger::Event { kind: "task.added".into() }));
    let granted = world.hook(on(Trigger::Event { kind: "claim.granted".into() }));
    let posted = world.hook(on(Trigger::Event { kind: "message.posted".into() }));
    world.add_task("a", &["a"]);
    assert_eq!((world.fired(added), world.fired(granted), world.fired(posted)), (1, 0, 0));
    world.says("eve", "any", "hello");
    world.says("eve", "@ann", "psst");
    assert_eq!(world.fired(posted), 1);
    let with_claim = Conditions { claim: Some(uri("message://m")), ..Conditions::default() };
    let free = world.hook(Add { when: with_claim, ..on(Trigger::Free { uri: uri("port://80") }) });
    let held = world.hold("eve", &["port://80"]);
    assert_eq!(world.fired(granted), 1);
    // The released claim goes to a waiting owner, so it was never free.
    let ask = regatta_core::claim::Acquire {
        wait_ms: 60 * SECOND,
        ..crate::world::acquire(regatta_core::claim::Owner::Agent(agent("bob")), &["port://80"])
    };
    world.ask("bob", Command::Acquire(ask));
    world.ask("eve", Command::Release { claim: held.claim, token: held.token });
    assert_eq!((world.fired(free), world.fired(granted)), (0, 2));
    let last = world.board.claims.values().next_back().cloned().unwrap();
    world.ask("bob", Command::Release { claim: last.id, token: last.token });
    assert_eq!(world.fired(free), 1);
    assert_eq!(world.fired(granted), 2, "the claim of a hook fired a hook");
    world.end_all();
    assert_eq!(world.fired(free), 1, "the release of a hook's claim fired a hook");
}

/// Two hooks that answer each other are paused when the chain is too deep, and a message is posted.
#[test]
fn a_chain_of_hooks_that_is_too_deep_is_paused() {
    let mut world = World::with(&[("ada", 1)]);
    let (ping, pong) = (world.hook(on(in_channel("ping"))), world.hook(on(in_channel("pong"))));
    world.says("eve", "ping", "go");
    let mut fired = 0;
    while let Some(firing) = world.board.firings.values().next().map(|it| Firing::clone(it)) {
        fired += 1;
        assert!(fired <= DEEPEST, "the chain of hooks does not end");
        assert_eq!(firing.depth, fired);
        let other = if firing.hook == ping { "pong" } else { "ping" };
        let post = Post { channel: channel(other), text: "your turn".into(), labels: vec![], reply_to: None };
        let extra = Extra { firing: Some(firing.id), ..Extra::default() };
        world.ask(firing.agent.as_str(), Command::PostWith { post, extra });
        world.end(firing.id);
    }
    assert_eq!(fired, DEEPEST);
    let cut = world.board.hooks[&pong].paused.clone().unwrap();
    assert!(cut.contains("5 hooks led to each other"), "{cut}");
    assert!(world.board.hooks[&ping].paused.is_none());
    let said = world.log.iter().rev().find_map(|it| match &it.event {
        regatta_core::event::Event::MessagePosted(it) if it.message().sender == Actor::Regatta => {
            Some(it.message().clone())
        }
        _ => None,
    });
    let said = said.unwrap();
    assert_eq!((said.channel, said.labels), (channel("pong"), vec![label("coord:hook")]));
    assert!(said.text.contains("regatta hook resume H2"), "{}", said.text);
}

/// A hook that fires too often is paused. After it is resumed, the count begins anew.
#[test]
fn a_hook_that_fires_too_often_is_paused() {
    let mut world = World::with(&[("ada", 1)]);
    let hook = world.hook(on(in_channel("shop")));
    for nth in 0..MOST_IN_SPAN {
        world.says("eve", "shop", &format!("{nth}"));
    }
    assert!(world.board.hooks[&hook].paused.is_none());
    world.says("eve", "shop", "once more");
    world.says("eve", "shop", "and again");
    assert_eq!(world.fired(hook), MOST_IN_SPAN as u64);
    assert!(world.board.hooks[&hook].paused.as_ref().unwrap().contains("20 times within a minute"));
    world.ask("ann", Command::ResumeHook { hook });
    world.says("eve", "shop", "hello again");
    assert_eq!(world.fired(hook), MOST_IN_SPAN as u64 + 1);
    // Over a longer time it may fire more often.
    for nth in 0..60 {
        world.advance(4 * SECOND);
        world.says("eve", "shop", &format!("{nth}"));
    }
    assert!(world.board.hooks[&hook].paused.is_none());
    world.end_all();
}

#[test]
fn an_invalid_hook_is_refused() {
    let mut world = World::with(&[("ada", 1)]);
    let run = |argv: &[&str], cwd: &str| Action::Run {
        argv: argv.iter().map(|it| (*it).to_owned()).collect(),
        cwd: cwd.into(),
    };
    let claim = Conditions { ttl_ms: Some(1), ..Conditions::default() };
    for wrong in [
        on(Trigger::Message { channel: None, label: None, mention: None, prefix: None }),
        on(Trigger::Event { kind: "task.dreamt".into() }),
        on(Trigger::Event { kind: "hook.fired".into() }),
        Add { action: run(&[], "/"), ..on(in_channel("shop")) },
        Add { action: run(&[""], "/"), ..on(in_channel("shop")) },
        Add { action: run(&["a"], "relative"), ..on(in_channel("shop")) },
        Add { action: run(&["a\0b"], "/"), ..on(in_channel("shop")) },
        Add { action: Action::Route, ..on(Trigger::Event { kind: "task.added".into() }) },
        Add { action: Action::Route, project: None, ..on(in_channel("shop")) },
        Add { when: claim, ..on(in_channel("shop")) },
        Add { timeout_ms: Some(0), ..on(in_channel("shop")) },
        Add { priority: 10, ..on(in_channel("shop")) },
        Add { project: None, sandbox: Some(regatta_core::agent::Level::Strict), ..on(in_channel("shop")) },
    ] {
        assert_eq!(world.refused("ann", Command::AddHook(Box::new(wrong.clone()))).code(), "invalid", "{wrong:?}");
    }
}
