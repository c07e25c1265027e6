//! The inbox: every kind of item, found from the board alone, and snoozing items for a limited
//! time.

use regatta_core::approval::Reach;
use regatta_core::attempt::Exited;
use regatta_core::board::Board;
use regatta_core::budget::{Ceiling, Scope};
use regatta_core::command::Command;
use regatta_core::ids::{ApprovalId, Now, TaskId};
use regatta_core::inbox::{self, Item, Kind, LONGEST_MS, Open, Snooze};
use regatta_core::landing::Moved;
use regatta_core::project::Review;
use regatta_core::refusal::Refusal;
use regatta_core::session::{Answer, Ask, Class, Said, Tool, ToolKind, Usage, Want};
use regatta_core::task::Status;

use crate::world::{SECOND, World, agent, exits, passed};

const Q1: Item = Item::Approval(ApprovalId(1));

/// Returns a world in which an agent has asked a question.
fn asked() -> World {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    let grant = world.poll("ada").unwrap();
    let want = Want::Question { text: "Which?".into(), choices: vec![], schema: None };
    let ask = Ask { id: "1".into(), want };
    world.ask("ada", Command::Ask { task, attempt: grant.attempt, token: grant.token, ask });
    world
}

fn snoozed(world: &World) -> bool {
    world.board.approvals[&ApprovalId(1)].snoozed.is_some()
}

#[test]
fn a_snoozed_item_comes_back_by_itself_and_undecided() {
    let mut world = asked();
    world.ask("ann", Command::Snooze { item: Q1, ms: Some(60 * SECOND) });
    assert!(snoozed(&world));
    let until = Snooze { until_at: world.now.at + 60 * SECOND, until_wall: world.now.wall + 60 * SECOND };
    assert_eq!(
        world.board.approvals[&ApprovalId(1)].snoozed,
        Some(until),
        "the end is kept as a date and on the fleet clock"
    );
    world.advance(59 * SECOND);
    assert!(snoozed(&world), "the snooze ended too early");
    world.advance(SECOND);
    assert!(!snoozed(&world), "the snooze did not end");
    assert!(world.board.approvals[&ApprovalId(1)].is_open(), "the snooze decided the request");
    // A new snooze replaces the old one, whether it is longer, shorter or an end.
    world.ask("ann", Command::Snooze { item: Q1, ms: Some(3_600 * SECOND) });
    world.ask("ann", Command::Snooze { item: Q1, ms: Some(2 * SECOND) });
    world.advance(2 * SECOND);
    assert!(!snoozed(&world));
    world.ask("ann", Command::Snooze { item: Q1, ms: Some(3_600 * SECOND) });
    world.restart();
    assert!(snoozed(&world), "a restart ended the snooze");
    world.ask("ann", Command::Snooze { item: Q1, ms: None });
    assert!(!snoozed(&world));
    let before = world.log.len();
    world.ask("ann", Command::Snooze { item: Q1, ms: None });
    assert_eq!(world.log.len(), before, "ending a snooze twice changed something");
}

#[test]
fn only_open_items_can_be_snoozed_and_only_for_a_limited_time() {
    let mut world = asked();
    for ms in [0, 999, LONGEST_MS + 1, u64::MAX] {
        assert!(
            matches!(world.refused("ann", Command::Snooze { item: Q1, ms: Some(ms) }), Refusal::Invalid { .. }),
            "{ms}"
        );
    }
    let nothing = Item::Approval(ApprovalId(9));
    world.refused("ann", Command::Snooze { item: nothing, ms: Some(SECOND) });
    let task = world.board.tasks.keys().next().copied().unwrap();
    world.refused("ann", Command::Snooze { item: Item::Task(task), ms: Some(SECOND) });
    // An answer ends the snooze.
    world.ask("ann", Command::Snooze { item: Q1, ms: Some(60 * SECOND) });
    let answer = Answer::Text { text: "this".into() };
    world.ask("ann", Command::Decide { approval: ApprovalId(1), answer, reach: Reach::Once, also: vec![] });
    let late = world.refused("ann", Command::Snooze { item: Q1, ms: Some(SECOND) });
    assert!(matches!(late, Refusal::AlreadyAnswered { .. }), "{late:?}");
    world.advance(120 * SECOND);
}

/// A task that needs a person can be snoozed, too. The snooze ends when the task moves on.
#[test]
fn a_snooze_of_a_task_ends_when_the_task_moves_on() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    for _ in 0..3 {
        let grant = world.poll_supervised("ada").unwrap();
        world.ask("regatta", exits(&grant, Exited::Done { output: None }));
        world.judge(&grant, passed(&[]));
        world.advance(3_600 * SECOND);
    }
    let Some(it) = world.board.tasks.get(&task).filter(|it| it.status == Status::NeedsHuman).cloned() else {
        panic!("the task does not need a person: {:?}", world.board.tasks.get(&task))
    };
    world.ask("ann", Command::Snooze { item: Item::Task(task), ms: Some(60 * SECOND) });
    let put_off = world.board.tasks[&task].clone();
    assert!(put_off.snoozed.is_some());
    assert_eq!(put_off.updated_wall, it.updated_wall, "the snooze changed since when the task needs a person");
    world.ask("ann", Command::RetryTask { task, failed: None });
    assert_eq!(world.board.tasks[&task].snoozed, None, "the task no longer needs a person");
    world.advance(120 * SECOND);
}

/// Returns the items that are in the inbox now.
fn open(world: &World) -> Vec<Open> {
    inbox::open(&world.board, world.now)
}

fn says(world: &mut World, grant: &regatta_core::schedule::Grant, n: u64, said: Said) {
    let (attempt, token) = (grant.attempt, grant.token);
    world.ask("regatta", Command::ReportSaid { attempt, token, n, said });
}

/// A kind of item, its name, a function that creates the item, and a function that removes it.
type Case = (Kind, &'static str, fn(&mut World), fn(&mut World));

fn working(world: &mut World) -> regatta_core::schedule::Grant {
    world.add_task("work", &["src/a.rs"]);
    world.poll_supervised("ada").unwrap()
}

fn cases() -> Vec<Case> {
    fn silent(world: &mut World, since_ms: Option<u64>) {
        let attempt = world.board.attempts.values().next().unwrap().clone();
        world.ask("regatta", Command::ReportSilent { attempt: attempt.id, token: attempt.token, since_ms });
    }
    fn permission(world: &mut World) {
        let grant = working(world);
        let tool = Tool { kind: ToolKind::Execute, command: Some("npm install zod".into()), ..Tool::default() };
        says(world, &grant, 1, Said::Asked(Ask { id: "1".into(), want: Want::Permission { tool, options: vec![] } }));
    }
    fn answer(world: &mut World) {
        let answer = Answer::Allow;
        world.ask("ann", Command::Decide { approval: ApprovalId(1), answer, reach: Reach::Once, also: vec![] });
    }
    fn question(world: &mut World) {
        let grant = working(world);
        let want = Want::Question { text: "Which?".into(), choices: vec![], schema: None };
        says(world, &grant, 1, Said::Asked(Ask { id: "1".into(), want }));
    }
    fn say(world: &mut World) {
        let answer = Answer::Text { text: "this".into() };
        world.ask("ann", Command::Decide { approval: ApprovalId(1), answer, reach: Reach::Once, also: vec![] });
    }
    fn review(world: &mut World) {
        let mut shop = world.project("shop", &["cargo test"]);
        shop.settings.landing.review = Review::Human;
        world.ask("ann", Command::AddProject(shop));
        let grant = working(world);
        world.ask("regatta", exits(&grant, Exited::Done { output: None }));
        world.judge(&grant, passed(&["src/a.rs"]));
    }
    fn land(world: &mut World) {
        let task = *world.board.tasks.keys().next().unwrap();
        world.ask("ann", Command::Land { task, first: false });
    }
    fn exhausted(world: &mut World) {
        world.add_task("work", &["src/a.rs"]);
        for _ in 0..3 {
            let grant = world.poll_supervised("ada").unwrap();
            world.ask("regatta", exits(&grant, Exited::Done { output: None }));
            world.judge(&grant, passed(&[]));
            world.advance(3_600 * SECOND);
        }
    }
    fn retry(world: &mut World) {
        let task = *world.board.tasks.keys().next().unwrap();
        world.ask("ann", Command::RetryTask { task, failed: None });
    }
    fn dirty(world: &mut World) {
        world.add_task("work", &["src/a.rs"]);
        let grant = world.take("ada");
        let landing = world.submit(&grant);
        world.merge(landing);
        world.moved(landing, Moved::Dirty { paths: vec!["src/a.rs".into()] });
    }
    fn clean(world: &mut World) {
        let landing = *world.board.landings.keys().next().unwrap();
        land(world);
        world.land(landing);
    }
    fn failed(world: &mut World) {
        world.add_task("work", &["src/a.rs"]);
        for _ in 0..3 {
            let grant = world.take("ada");
            world.fail_once(&grant);
            world.advance(3_600 * SECOND);
        }
    }
    fn again(world: &mut World) {
        let task = *world.board.failed.keys().next().unwrap();
        let failed = Some(Box::new(world.stored(task)));
        world.ask("ann", Command::RetryTask { task, failed });
    }
    fn drop(world: &mut World) {
        let task = *world.board.failed.keys().next().unwrap();
        world.ask("ann", Command::Dismiss { task });
        assert_eq!(world.board.settled(task), Some(Status::Failed), "J7: the task does not stay failed");
        let before = world.log.len();
        world.ask("ann", Command::Dismiss { task });
        assert_eq!(world.log.len(), before, "dismissing twice changed something");
    }
    fn quiet(world: &mut World) {
        working(world);
        let half = world.board.limits.silence_ms / 2;
        silent(world, Some(half - 1));
        assert!(open(world).is_empty(), "a short silence is an item");
        silent(world, Some(half));
    }
    fn speaks(world: &mut World) {
        silent(world, None);
    }
    fn hangs(world: &mut World) {
        let most = world.board.limits.silence_ms;
        silent(world, Some(most));
    }
    fn broke(world: &mut World) {
        let ceiling = Ceiling { micro_usd: Some(1_000_000), ..Ceiling::default() };
        world.ask("ann", Command::SetBudget { scope: Scope::Day, ceiling });
        let grant = working(world);
        says(world, &grant, 1, Said::Started { session: None, model: None });
        let used = |money| Usage { micro_usd: Some(money), ..Usage::default() };
        says(world, &grant, 2, Said::Usage { session: None, usage: used(799_999) });
        assert!(open(world).is_empty(), "less than 80 % is an item");
        says(world, &grant, 3, Said::Usage { session: None, usage: used(800_000) });
    }
    fn raise(world: &mut World) {
        let ceiling = Ceiling { micro_usd: Some(2_000_000), ..Ceiling::default() };
        world.ask("ann", Command::SetBudget { scope: Scope::Day, ceiling });
    }
    fn signed_out(world: &mut World) {
        let grant = working(world);
        let how = Exited::Failed { reason: "please run login".into(), class: Some(Class::Auth) };
        world.ask("regatta", exits(&grant, how));
    }
    fn misconfigured(world: &mut World) {
        let grant = working(world);
        let how = Exited::Failed { reason: "no such model".into(), class: Some(Class::BadConfig) };
        world.ask("regatta", exits(&grant, how));
    }
    fn mended(world: &mut World) {
        world.ask("ann", Command::ResumeAgent { agent: crate::world::agent("ada") });
    }
    vec![
        (Kind::Permission, "Q1", permission, answer),
        (Kind::Question, "Q1", question, say),
        (Kind::Review, "T1", review, land),
        (Kind::Task, "T1", exhausted, retry),
        (Kind::Landing, "T1", dirty, clean),
        (Kind::Failed, "T1", failed, again),
        (Kind::Failed, "T1", failed, drop),
        (Kind::Stuck, "A1", quiet, speaks),
        (Kind::Stuck, "A1", quiet, hangs),
        (Kind::Budget, "budget:day", broke, raise),
        (Kind::Credential, "agent:ada", signed_out, mended),
        (Kind::Setup, "agent:ada", misconfigured, mended),
    ]
}

/// Each kind of item appears once, under its own name, with agent, subject and reason. It survives
/// a restart, comes back after a snooze, and disappears when its cause is gone.
#[test]
fn each_matter_that_needs_a_person_is_one_inbox_item() {
    for (kind, name, begin, end) in cases() {
        let mut world = World::with(&[("ada", 1)]);
        begin(&mut world);
        let all = open(&world);
        let [it] = &all[..] else { panic!("{kind:?}: expected one item, found {all:?}") };
        assert_eq!((it.kind, it.item.to_string().as_str()), (kind, name));
        assert_eq!(name.parse::<Item>().unwrap(), it.item, "the name is not read as the item");
        assert!(!it.subject.trim().is_empty() && !it.why.trim().is_empty(), "{kind:?}: {it:?}");
        assert!(it.agent.is_some() || it.kind == Kind::Budget, "{kind:?}: no agent: {it:?}");
        assert!(it.since_wall > 0 || world.now.wall == 0, "{kind:?}: no time");
        world.restart();
        assert_eq!(open(&world), all, "{kind:?}: a restart changed the inbox");
        world.ask("ann", Command::Snooze { item: it.item.clone(), ms: Some(2 * SECOND) });
        assert!(open(&world).iter().all(|it| it.snoozed.is_some()), "{kind:?}: the item is not snoozed");
        world.restart();
        assert!(open(&world).iter().all(|it| it.snoozed.is_some()), "{kind:?}: a restart ended the snooze");
        world.advance(2 * SECOND);
        assert_eq!(open(&world), all, "{kind:?}: the item did not come back unchanged");
        end(&mut world);
        assert_eq!(open(&world), [], "{kind:?}: the item did not disappear");
        if kind != Kind::Budget {
            world.refused("ann", Command::Snooze { item: it.item.clone(), ms: Some(SECOND) });
        }
        world.restart();
        assert_eq!(open(&world), [], "{kind:?}: the item came back after a restart");
    }
}

/// An agent in a rate limit waits until the limit ends. It needs no person and is not a credential
/// problem.
#[test]
fn a_rate_limit_is_not_in_the_inbox() {
    let mut world = World::with(&[("ada", 1)]);
    let grant = working(&mut world);
    world.ask("regatta", exits(&grant, Exited::Failed { reason: "429".into(), class: Some(Class::RateLimit) }));
    let parked = |world: &World| world.board.parked.get("agent:ada").map(|it| (it.until_at.is_some(), it.over));
    assert_eq!(parked(&world), Some((true, false)), "the agent is not parked until a time");
    assert_eq!(open(&world), []);
    world.advance(60 * SECOND);
    assert!(parked(&world).is_none_or(|it| it.1), "the agent is still parked");
    assert_eq!(open(&world), []);
}

/// An item's name is read in the form in which it is written. Numbers may have a letter in any
/// case.
#[test]
fn the_name_of_an_item_can_be_read_back() {
    for text in [
        "Q7",
        "T9",
        "A5",
        "V3",
        "budget:day",
        "budget:task",
        "budget:M3",
        "budget:agent:ada",
        "agent:a/b",
        "bridge:slack:a/b",
    ] {
        assert_eq!(text.parse::<Item>().unwrap().to_string(), text);
    }
    assert_eq!("q7".parse::<Item>().unwrap(), Item::Approval(ApprovalId(7)));
    for text in ["", "X1", "budget:", "budget:never", "agent:", "T", "A-1"] {
        assert!(text.parse::<Item>().is_err(), "{text:?}");
    }
}

/// Checks the inbox: every item has its own name that can be read back, and every task that needs a
/// person is in it.
pub(crate) fn check(board: &Board, now: Now) {
    let all = inbox::open(board, now);
    let mut names: Vec<String> = all.iter().map(|it| it.item.to_string()).collect();
    assert!(all.iter().zip(&names).all(|(it, name)| name.parse().ok().as_ref() == Some(&it.item)), "{names:?}");
    names.sort_unstable();
    let many = names.len();
    names.dedup();
    assert_eq!(names.len(), many, "two items have the same name: {names:?}");
    let there = |id: TaskId| names.binary_search(&id.to_string()).is_ok();
    for task in board.tasks.values() {
        let needs = matches!(task.status, Status::NeedsHuman | Status::InReview);
        let asks = regatta_core::approval::work_waits_for(board, task);
        let is_told = there(task.id) || asks.is_some_and(|asked| names.binary_search(&asked.id.to_string()).is_ok());
        assert!(!needs || is_told, "{} needs a person and is not in the inbox", task.id);
    }
    for task in board.failed.values() {
        assert_eq!(board.settled(task.id), Some(Status::Failed), "{} is kept as failed and has not failed", task.id);
    }
}

/// The item that waits longest is first, and snoozed items are last however long they wait.
#[test]
fn snoozed_items_are_last() {
    let mut world = World::with(&[("ada", 3)]);
    for nth in 1..=3 {
        world.add_task("work", &[&format!("src/{nth}.rs")]);
        let grant = world.poll_supervised("ada").unwrap();
        let want = Want::Question { text: "Which?".into(), choices: vec![], schema: None };
        says(&mut world, &grant, 1, Said::Asked(Ask { id: "1".into(), want }));
        world.advance(SECOND);
    }
    let names = |world: &World| open(world).iter().map(|it| it.item.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&world), ["Q1", "Q2", "Q3"]);
    world.ask("ann", Command::Snooze { item: Q1, ms: Some(60 * SECOND) });
    assert_eq!(names(&world), ["Q2", "Q3", "Q1"]);
}

/// A landing that waits for a person is one item from its first hindrance on. It stays an item
/// while it is tried again, and its reason says so. Its snooze lasts, too.
#[test]
fn a_held_landing_is_one_item_while_it_is_tried_again() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    let grant = world.take("ada");
    let landing = world.submit(&grant);
    let dirty = |world: &mut World| {
        world.merge(landing);
        world.moved(landing, Moved::Dirty { paths: vec!["src/a.rs".into()] });
    };
    let only = |world: &World| {
        let all = open(world);
        assert_eq!(all.len(), 1, "{all:?}");
        (all[0].item.clone(), all[0].kind, all[0].why.clone(), all[0].since_wall)
    };
    world.merge(landing);
    assert!(open(&world).is_empty(), "a landing without a hindrance is an item");
    world.moved(landing, Moved::Dirty { paths: vec!["src/a.rs".into()] });
    let (item, kind, why, since) = only(&world);
    assert_eq!((&item, kind), (&Item::Task(task), Kind::Landing));
    for wait in [5, 10, 20] {
        world.advance(wait * SECOND);
        assert_eq!(world.landing(landing), "trying");
        let again = format!("it is being tried again; before: {why}");
        assert_eq!(only(&world), (item.clone(), kind, again, since));
        dirty(&mut world);
        assert_eq!(only(&world), (item.clone(), kind, why.clone(), since));
    }
    assert_eq!(world.board.landings[&landing].hindered.as_ref().map(|it| it.times), Some(4));
    world.ask("ann", Command::Snooze { item: item.clone(), ms: Some(3_600 * SECOND) });
    world.ask("ann", Command::Land { task, first: false });
    assert!(open(&world)[0].snoozed.is_some(), "a new trial ended the snooze");
    // A row of an older version has no record of the hindrance.
    let mut row = serde_json::to_value(&*world.board.landings[&landing]).unwrap();
    row.as_object_mut().unwrap().remove("hindered");
    assert_eq!(serde_json::from_value::<regatta_core::landing::Landing>(row).unwrap().hindered, None);
    world.land(landing);
    assert!(open(&world).is_empty());
}

/// A bridge whose credential is rejected is one item in the inbox until the credential works. The
/// daemon reports at its start which bridges still exist.
#[test]
fn a_bridge_with_a_rejected_credential_needs_a_person() {
    use regatta_core::bridge::{Bridge, Standing};
    let mut world = World::with(&[("ada", 1)]);
    let standing = |name: &str, broken: Option<&str>| Standing {
        bridge: name.parse::<Bridge>().unwrap(),
        broken: broken.map(str::to_owned),
    };
    let report = |world: &mut World, name: &str, broken: Option<&str>| {
        world.ask("regatta", Command::ReportBridge(standing(name, broken)));
    };
    let items = |world: &World| -> Vec<(String, Kind)> {
        let mut all: Vec<_> =
            inbox::open(&world.board, world.now).into_iter().map(|it| (it.item.to_string(), it.kind)).collect();
        all.sort();
        all
    };
    report(&mut world, "slack:ada", None);
    assert_eq!(world.count("provider.freed"), 0, "a working bridge was reported as repaired");
    for why in ["invalid_auth", "invalid_auth", "token_revoked\nand more"] {
        report(&mut world, "slack:ada", Some(why));
    }
    assert_eq!(world.count("provider.parked"), 2, "the same reason was recorded twice");
    report(&mut world, "github:eve", Some("no key"));
    let (slack, github) = ("bridge:slack:ada".to_owned(), "bridge:github:eve".to_owned());
    assert_eq!(items(&world), [(github, Kind::Credential), (slack.clone(), Kind::Credential)]);
    let first = inbox::open(&world.board, world.now).into_iter().find(|it| it.item.to_string() == slack).unwrap();
    assert_eq!(
        (first.subject.as_str(), first.agent),
        ("slack rejects the credential of ada: token_revoked", Some(agent("ada")))
    );
    // The rejected credential does not keep the agent from working on tasks.
    let task = world.add_task("Work", &["a.rs"]);
    assert_eq!(world.ready("ada"), Some(task));
    // A snoozed item stays snoozed when its reason changes, and comes back by itself.
    let item: Item = slack.parse().unwrap();
    assert_eq!(item.to_string(), slack);
    world.ask("ann", Command::Snooze { item: item.clone(), ms: Some(60 * SECOND) });
    report(&mut world, "slack:ada", Some("account_inactive"));
    assert!(inbox::open(&world.board, world.now).iter().any(|it| it.item == item && it.snoozed.is_some()));
    world.advance(61 * SECOND);
    assert!(inbox::open(&world.board, world.now).iter().all(|it| it.snoozed.is_none()));
    assert!(world.reloaded().parked.len() == 2, "a restart lost a parked bridge");
    // The daemon starts. One bridge is no longer configured, and another keeps its state until its
    // service has answered.
    let all = vec![standing("slack:ada", None), standing("linear:ada", Some("no token"))];
    world.ask("regatta", Command::ReportBridges { all });
    let names: Vec<String> = items(&world).into_iter().map(|it| it.0).filter(|it| it.starts_with("bridge:")).collect();
    assert_eq!(names, ["bridge:linear:ada".to_owned(), slack]);
    report(&mut world, "slack:ada", None);
    world.ask("regatta", Command::ReportBridges { all: vec![] });
    assert!(items(&world).is_empty(), "{:?}", items(&world));
    world.refused("ann", Command::Snooze { item, ms: Some(SECOND) });
    // A webhook without its secret is an item until a daemon starts with the secret.
    let hook = "webhook:hooks.example.com:8443";
    world.ask("regatta", Command::ReportBridges { all: vec![standing(hook, Some("HOOK is not set"))] });
    assert_eq!(items(&world), [(format!("bridge:{hook}"), Kind::Credential)]);
    let open = inbox::open(&world.board, world.now);
    assert_eq!(open[0].subject, "hooks.example.com:8443 receives no events: HOOK is not set");
    assert_eq!((open[0].agent.clone(), open[0].item.to_string().parse()), (None, Ok(open[0].item.clone())));
    // Of two webhooks at one host, the one without its secret counts, in either order.
    for all in [[Some("TWO is not set"), None], [None, Some("TWO is not set")]] {
        world.ask("regatta", Command::ReportBridges { all: all.map(|it| standing(hook, it)).to_vec() });
        let subjects: Vec<String> = inbox::open(&world.board, world.now).into_iter().map(|it| it.subject).collect();
        assert_eq!(subjects, ["hooks.example.com:8443 receives no events: TWO is not set"]);
    }
    world.ask("regatta", Command::ReportBridges { all: vec![standing(hook, None)] });
    assert!(items(&world).is_empty(), "the item did not disappear");
    for wrong in ["bridge:webhook:", "bridge:", "bridge:slack", "bridge:slack:", "bridge:irc:ada"] {
        assert!(wrong.parse::<Item>().is_err(), "{wrong}");
    }
}
