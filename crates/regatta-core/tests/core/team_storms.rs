//! Three hundred launches of random teams, with failures, hangs and kills of the daemon at random
//! points.
//! // The laws are checked after every command (T1, T2, T4). This test checks two more rules that
//! need the whole run: a failure is recorded only for a member that failed (T3), and a stop leaves
//! nothing behind (P10).

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;
use regatta_core::attempt::Exited;
use regatta_core::command::Command;
use regatta_core::launch::{self, Phase, State, Why};
use regatta_core::session::Class;
use regatta_core::team::{Ask, Create};

use crate::teams::*;
use crate::world::World;

const PROVIDERS: [&str; 4] = ["codex", "anthropic", "opencode", "goose"];

/// A step of a random run: something that happens to one member or to the team.
#[derive(Clone, Debug)]
enum Step {
    /// The programs are resolved. The programs of these members are missing.
    Resolve(BTreeSet<usize>),
    ComesUp(Index),
    Starts(Index),
    Crashes(Index, u8),
    Vanishes(Index),
    Hangs(Index),
    /// The daemon is killed and restarted.
    Kill,
    Retry(Index),
    Stop,
    Relaunch,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => prop::collection::btree_set(0..13_usize, 0..3).prop_map(Step::Resolve),
        8 => any::<Index>().prop_map(Step::ComesUp),
        2 => any::<Index>().prop_map(Step::Starts),
        2 => (any::<Index>(), 0..5_u8).prop_map(|(who, how)| Step::Crashes(who, how)),
        1 => any::<Index>().prop_map(Step::Vanishes),
        1 => any::<Index>().prop_map(Step::Hangs),
        2 => Just(Step::Kill),
        1 => any::<Index>().prop_map(Step::Retry),
        1 => Just(Step::Stop),
        1 => Just(Step::Relaunch),
    ]
}

/// Returns the members that have a session, or only those of them that are still starting.
fn with_session(world: &World, coming: bool) -> Vec<String> {
    let of = record(world).members.into_iter();
    let of = of.filter(|it| it.attempt.is_some() && (!coming || it.state == State::Starting));
    of.map(|it| it.name.to_string()).collect()
}

fn chosen(names: &[String], which: &Index) -> Option<String> {
    (!names.is_empty()).then(|| which.get(names).clone())
}

/// Takes one step. Returns the members that failed because of it.
fn take(world: &mut World, step: &Step) -> Vec<String> {
    match step {
        Step::Resolve(missing) => {
            let names: Vec<String> = record(world).members.iter().map(|it| it.name.to_string()).collect();
            let waits = record(world).members.into_iter().filter(|it| it.state == State::Queued && !it.prepared);
            let waits: BTreeSet<String> = waits.map(|it| it.name.to_string()).collect();
            let gone: Vec<&str> = missing.iter().filter_map(|it| names.get(*it)).map(String::as_str).collect();
            resolve(world, &gone);
            return gone.into_iter().filter(|it| waits.contains(*it)).map(str::to_owned).collect();
        }
        Step::ComesUp(which) => {
            if let Some(who) = chosen(&with_session(world, true), which).filter(|it| !is_stopping(world, it)) {
                comes_up(world, &who);
            }
        }
        Step::Starts(which) => {
            if let Some(who) = chosen(&with_session(world, true), which) {
                let (attempt, token) = session(world, &who);
                world.ask("regatta", Command::ReportLaunched { attempt, token, sandbox: None, warnings: vec![] });
            }
        }
        Step::Crashes(which, how) => {
            if let Some(who) = chosen(&with_session(world, false), which) {
                let stopping = is_stopping(world, &who);
                let class = [Class::Crashed, Class::Auth, Class::RateLimit, Class::BadConfig, Class::Refused];
                crashes(world, &who, class[usize::from(*how)]);
                return if stopping { vec![] } else { vec![who] };
            }
        }
        Step::Vanishes(which) => {
            if let Some(who) = chosen(&with_session(world, false), which) {
                let stopping = is_stopping(world, &who);
                ends(world, &who, Exited::Lost);
                return if stopping { vec![] } else { vec![who] };
            }
        }
        Step::Hangs(which) => {
            if let Some(who) = chosen(&with_session(world, true), which).filter(|it| !is_stopping(world, it)) {
                starts(world, &who);
                let (attempt, token) = session(world, &who);
                let since_ms = Some(world.board.limits.silence_ms);
                world.ask("regatta", Command::ReportSilent { attempt, token, since_ms });
                return vec![who];
            }
        }
        Step::Kill => world.restart(),
        Step::Retry(which) => {
            let all: Vec<String> = record(world).members.iter().map(|it| it.name.to_string()).collect();
            if let Some(who) = chosen(&all, which) {
                let _may_be_refused = world.try_ask("ann", asks(Ask::Retry { team: harbour(), member: name(&who) }));
            }
        }
        Step::Stop => stop(world),
        Step::Relaunch => {
            world.ask("ann", asks(Ask::Relaunch { team: harbour() }));
        }
    }
    vec![]
}

/// Reports the end of every session that is being stopped, until the team is down.
fn wind_down(world: &mut World) {
    while launch::is_up(&world.board, &team(world)) {
        let going: Vec<String> = with_session(world, false).into_iter().filter(|it| is_stopping(world, it)).collect();
        assert!(!going.is_empty(), "P10: the team is up, but no session is being stopped: {:?}", states(world));
        for who in going {
            ends(world, &who, Exited::Lost);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// T3: a failure is recorded only for a member that failed. P10: after a stop nothing of the
    /// team is on the board.
    #[test]
    fn t3_in_300_random_launches_only_members_that_failed_have_a_failure(
        lead in 0..2_usize,
        others in prop::collection::vec(0..PROVIDERS.len(), 0..12),
        story in prop::collection::vec(steps(), 1..40),
    ) {
        let members: Vec<(String, &str)> =
            others.iter().enumerate().map(|(nth, it)| (format!("m{nth}"), PROVIDERS[*it])).collect();
        let mut world = World::with(&[]);
        let ask: Create = wanted(PROVIDERS[lead], &members.iter().map(|it| (it.0.as_str(), it.1)).collect::<Vec<_>>());
        create(&mut world, ask);
        let mut launch = launch_it(&mut world);
        let mut guilty: BTreeSet<String> = BTreeSet::new();
        for step in &story {
            let failed = take(&mut world, step);
            if record(&world).id != launch {
                launch = record(&world).id;
                guilty.clear();
            }
            guilty.extend(failed);
            // A provider's limit keeps its other members from starting. Their recorded cause is the
            // provider.
            let bears = |it: &launch::Entry| matches!(it.state, State::FailedToStart | State::Degraded);
            for entry in record(&world).members.iter().filter(|it| bears(it)) {
                let shared = entry.cause.as_ref().is_some_and(|it| it.kind == Why::Provider) && entry.started_wall.is_none();
                let own = guilty.contains(entry.name.as_str());
                prop_assert!(own || shared, "T3: {} has a failure but did not fail: {:?}", entry.name, entry.cause);
            }
        }
        stop(&mut world);
        wind_down(&mut world);
        prop_assert_eq!(record(&world).phase(), Phase::Reconciled);
        prop_assert!(world.board.attempts.is_empty(), "P10: the team still has attempts");
        prop_assert!(world.board.tasks.is_empty(), "a standing task is left without its session");
    }
}
