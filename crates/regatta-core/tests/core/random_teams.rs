//! Three hundred launches of random teams, with failures, hangs and kills of the daemon at random
//! points.
//!
//! The laws are checked after every command (T1, T2, T4). This test checks two more rules that
//! need the whole run: a failure is recorded only for a member that failed (T3), and a stop leaves
//! nothing behind (P10).

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;
use regatta_core::agent_protocol::FailureClass;
use regatta_core::attempt::ProgramExit;
use regatta_core::command::Report;
use regatta_core::launch::{self, LaunchPhase, MemberCauseKind, MemberState};
use regatta_core::team::{CreateTeam, TeamCommand};

use crate::teams::*;
use crate::world::World;

const PROVIDERS: [&str; 4] = ["codex", "anthropic", "opencode", "goose"];

/// A step of a random run: something that happens to one member or to the team.
#[derive(Clone, Debug)]
enum TeamStep {
    /// The programs are resolved. The programs of these members are missing.
    Resolve(BTreeSet<usize>),
    ComesUp(Index),
    Starts(Index),
    Crashes(Index, u8),
    Vanishes(Index),
    Hangs(Index),
    /// The daemon is killed and restarted.
    Restart,
    Retry(Index),
    Stop,
    Relaunch,
}

fn step_strategy() -> impl Strategy<Value = TeamStep> {
    prop_oneof![
        2 => prop::collection::btree_set(0..13_usize, 0..3).prop_map(TeamStep::Resolve),
        8 => any::<Index>().prop_map(TeamStep::ComesUp),
        2 => any::<Index>().prop_map(TeamStep::Starts),
        2 => (any::<Index>(), 0..5_u8).prop_map(|(who, how)| TeamStep::Crashes(who, how)),
        1 => any::<Index>().prop_map(TeamStep::Vanishes),
        1 => any::<Index>().prop_map(TeamStep::Hangs),
        2 => Just(TeamStep::Restart),
        1 => any::<Index>().prop_map(TeamStep::Retry),
        1 => Just(TeamStep::Stop),
        1 => Just(TeamStep::Relaunch),
    ]
}

/// Returns the members that have a session, or only those of them that are still starting.
fn members_with_session(world: &World, coming: bool) -> Vec<String> {
    let of = launch_record(world).members.into_iter();
    let of = of.filter(|launch| {
        launch.attempt.is_some() && (!coming || launch.state == MemberState::Starting)
    });
    of.map(|launch| launch.name.to_string()).collect()
}

fn choose_member(names: &[String], which: &Index) -> Option<String> {
    (!names.is_empty()).then(|| which.get(names).clone())
}

/// Takes one step. Returns the members that failed because of it.
fn apply_step(world: &mut World, step: &TeamStep) -> Vec<String> {
    match step {
        TeamStep::Resolve(missing) => {
            let names: Vec<String> = launch_record(world)
                .members
                .iter()
                .map(|launch| launch.name.to_string())
                .collect();
            let waits = launch_record(world)
                .members
                .into_iter()
                .filter(|launch| launch.state == MemberState::Queued && !launch.prepared);
            let waits: BTreeSet<String> = waits.map(|launch| launch.name.to_string()).collect();
            let gone: Vec<&str> = missing
                .iter()
                .filter_map(|missing| names.get(*missing))
                .map(String::as_str)
                .collect();
            report_resolutions(world, &gone);
            return gone
                .into_iter()
                .filter(|gone| waits.contains(*gone))
                .map(str::to_owned)
                .collect();
        }
        TeamStep::ComesUp(which) => {
            if let Some(who) = choose_member(&members_with_session(world, true), which)
                .filter(|member| !is_stopping(world, member))
            {
                bring_up(world, &who);
            }
        }
        TeamStep::Starts(which) => {
            if let Some(who) = choose_member(&members_with_session(world, true), which) {
                let (attempt, token) = session_of(world, &who);
                world.report(Report::Launched {
                    attempt,
                    token,
                    sandbox: None,
                    warnings: vec![],
                });
            }
        }
        TeamStep::Crashes(which, how) => {
            if let Some(who) = choose_member(&members_with_session(world, false), which) {
                let stopping = is_stopping(world, &who);
                let class = [
                    FailureClass::Crashed,
                    FailureClass::Auth,
                    FailureClass::RateLimit,
                    FailureClass::BadConfig,
                    FailureClass::Refused,
                ];
                crash_session(world, &who, class[usize::from(*how)]);
                return if stopping { vec![] } else { vec![who] };
            }
        }
        TeamStep::Vanishes(which) => {
            if let Some(who) = choose_member(&members_with_session(world, false), which) {
                let stopping = is_stopping(world, &who);
                end_session(world, &who, ProgramExit::Lost);
                return if stopping { vec![] } else { vec![who] };
            }
        }
        TeamStep::Hangs(which) => {
            if let Some(who) = choose_member(&members_with_session(world, true), which)
                .filter(|member| !is_stopping(world, member))
            {
                start_session(world, &who);
                let (attempt, token) = session_of(world, &who);
                let since_ms = Some(world.board.limits.silence_ms);
                world.report(Report::Silent {
                    attempt,
                    token,
                    since_ms,
                });
                return vec![who];
            }
        }
        TeamStep::Restart => world.restart(),
        TeamStep::Retry(which) => {
            let all: Vec<String> = launch_record(world)
                .members
                .iter()
                .map(|launch| launch.name.to_string())
                .collect();
            if let Some(who) = choose_member(&all, which) {
                let _may_be_refused = world.try_ask(
                    "ann",
                    team_command(TeamCommand::Retry {
                        team: team_name(),
                        member: member_name(&who),
                    }),
                );
            }
        }
        TeamStep::Stop => stop_team(world),
        TeamStep::Relaunch => {
            world.ask(
                "ann",
                team_command(TeamCommand::Relaunch { team: team_name() }),
            );
        }
    }
    vec![]
}

/// Reports the end of every session that is being stopped, until the team is down.
fn wind_down(world: &mut World) {
    while launch::is_up(&world.board, &team(world)) {
        let going: Vec<String> = members_with_session(world, false)
            .into_iter()
            .filter(|member| is_stopping(world, member))
            .collect();
        assert!(
            !going.is_empty(),
            "P10: the team is up, but no session is being stopped: {:?}",
            member_states(world)
        );
        for who in going {
            end_session(world, &who, ProgramExit::Lost);
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
        story in prop::collection::vec(step_strategy(), 1..40),
    ) {
        let members: Vec<(String, &str)> =
            others.iter().enumerate().map(|(nth, other)| (format!("m{nth}"), PROVIDERS[*other])).collect();
        let mut world = World::with_agents(&[]);
        let request: CreateTeam = team_settings(PROVIDERS[lead], &members.iter().map(|member| (member.0.as_str(), member.1)).collect::<Vec<_>>());
        create_team(&mut world, request);
        let mut launch = launch_team(&mut world);
        let mut guilty: BTreeSet<String> = BTreeSet::new();
        for step in &story {
            let failed = apply_step(&mut world, step);
            if launch_record(&world).id != launch {
                launch = launch_record(&world).id;
                guilty.clear();
            }
            guilty.extend(failed);
            // A provider's limit keeps its other members from starting. Their recorded cause is the
            // provider.
            let bears = |launch: &launch::LaunchEntry| matches!(launch.state, MemberState::FailedToStart | MemberState::Degraded);
            for entry in launch_record(&world).members.iter().filter(|launch| bears(launch)) {
                let shared = entry.cause.as_ref().is_some_and(|member_cause| member_cause.kind == MemberCauseKind::Provider) && entry.started_unix_ms.is_none();
                let is_guilty = guilty.contains(entry.name.as_str());
                prop_assert!(is_guilty || shared, "T3: {} has a failure but did not fail: {:?}", entry.name, entry.cause);
            }
        }
        stop_team(&mut world);
        wind_down(&mut world);
        prop_assert_eq!(launch_record(&world).phase(), LaunchPhase::Reconciled);
        prop_assert!(world.board.attempts.is_empty(), "P10: the team still has attempts");
        prop_assert!(world.board.tasks.is_empty(), "a standing task is left without its session");
    }
}
