//! Teams whose stored records are damaged: running sessions are found from the attempts, shown, and
//! stopped (T7).

use std::collections::BTreeMap;
use std::sync::Arc;

use regatta_core::attempt::ProgramExit;
use regatta_core::board::{Row, RowKey};
use regatta_core::command::Report;
use regatta_core::ids::{AttemptId, LaunchId};
use regatta_core::launch::{self, LaunchOutcome, MemberState, TeamLaunch};
use regatta_core::team::{Team, TeamCommand};

use crate::teams::{
    launch_record, member_name, member_states, running_mixed_team, stop_team, team, team_command,
    team_name, team_summary,
};
use crate::world::World;

type StoredRows = BTreeMap<RowKey, Row>;
type Damage = fn(&mut StoredRows, LaunchId);

fn change_launch(rows: &mut StoredRows, id: LaunchId, change: impl FnOnce(&mut TeamLaunch)) {
    let Some(Row::Launch(launch)) = rows.get(&RowKey::Launch(id)) else {
        panic!("there is no {id}")
    };
    let mut launch = TeamLaunch::clone(launch);
    change(&mut launch);
    rows.insert(RowKey::Launch(launch.id), Row::Launch(Arc::new(launch)));
}

fn change_team(rows: &mut StoredRows, change: impl FnOnce(&mut Team)) {
    let Some(Row::Team(team)) = rows.get(&RowKey::Team(team_name())) else {
        panic!("there is no team")
    };
    let mut team = Team::clone(team);
    change(&mut team);
    rows.insert(RowKey::Team(team_name()), Row::Team(Arc::new(team)));
}

/// Each kind of damage that was seen in practice.
const DAMAGES: [(&str, Damage); 7] = [
    ("record missing", |rows, id| {
        _ = rows.remove(&RowKey::Launch(id))
    }),
    ("pointer missing", |rows, _| {
        change_team(rows, |team| team.launch = None)
    }),
    ("record and pointer missing", |rows, id| {
        rows.remove(&RowKey::Launch(id));
        change_team(rows, |team| team.launch = None);
    }),
    ("entry missing", |rows, id| {
        change_launch(rows, id, |launch| {
            launch
                .members
                .retain(|entry| entry.name != member_name("tom"))
        });
    }),
    ("entry and expectation missing", |rows, id| {
        change_launch(rows, id, |launch| {
            launch
                .members
                .retain(|entry| entry.name != member_name("tom"));
            launch
                .expected_members
                .retain(|member| *member != member_name("tom"));
        });
    }),
    ("session not named", |rows, id| {
        change_launch(rows, id, |launch| {
            launch
                .members
                .iter_mut()
                .for_each(|entry| entry.attempt = None)
        });
    }),
    ("poorer record is newer", |rows, id| {
        change_launch(rows, id, |launch| {
            launch.id = LaunchId(id.0 + 1);
            launch.updated_unix_ms += 1;
            launch.lanes.clear();
            for entry in &mut launch.members {
                (entry.lane, entry.attempt, entry.state) = (None, None, MemberState::Stopped);
            }
        });
        change_team(rows, |team| team.launch = Some(LaunchId(id.0 + 1)));
    }),
];

/// Returns the running sessions. They are known from the attempts, whatever damage the team's
/// records have.
fn running_sessions(world: &World) -> Vec<AttemptId> {
    world.board.attempts.keys().copied().collect()
}

/// T7: with any damage, all running members are shown, the team can be neither launched again nor
/// deleted, and a stop ends all sessions before it counts as complete (P10).
#[test]
fn t7_running_members_are_found_with_any_damage_to_the_record() {
    for (what, damage) in DAMAGES {
        let mut world = running_mixed_team();
        let launch = launch_record(&world).id;
        let running = running_sessions(&world);
        world.restart_damaged(|rows| damage(rows, launch));
        assert_eq!(
            running_sessions(&world),
            running,
            "{what}: the running sessions changed"
        );
        let alive: Vec<_> = member_states(&world)
            .into_iter()
            .filter(|member_state| member_state.1 == "alive")
            .collect();
        assert_eq!(alive.len(), 3, "{what}: {:?}", member_states(&world));
        let shown = team_summary(&world);
        assert_eq!((shown.alive, shown.expected), (3, 3), "{what}: {shown:?}");
        assert!(
            !shown.headline.contains("never launched"),
            "{what}: {shown:?}"
        );
        for refused in [
            TeamCommand::Delete { team: team_name() },
            TeamCommand::Launch {
                team: team_name(),
                left_out: vec![],
            },
        ] {
            assert_eq!(
                world.ask_refused("ann", team_command(refused)).code(),
                "team_runs",
                "{what}"
            );
        }
        stop_team(&mut world);
        assert!(
            launch::is_up(&world.board, &team(&world)),
            "{what}: no session has ended yet"
        );
        let ending = |world: &World| {
            world
                .board
                .attempts
                .values()
                .find(|attempt| attempt.stopping.is_some())
                .cloned()
        };
        while let Some(session) = ending(&world) {
            let (attempt, token) = (session.id, session.token);
            assert!(
                launch::is_up(&world.board, &team(&world)),
                "{what}: {attempt} still runs"
            );
            world.report(Report::Exited {
                attempt,
                token,
                exit: ProgramExit::Lost,
            });
        }
        assert_eq!(
            running_sessions(&world),
            [],
            "{what}: a session is still running"
        );
        assert!(!launch::is_up(&world.board, &team(&world)), "{what}");
        world.ask(
            "ann",
            team_command(TeamCommand::Delete { team: team_name() }),
        );
    }
}

/// T4: the lane of a lost record is not guessed. The team is degraded until it is launched again.
#[test]
fn t4_a_lost_record_puts_no_member_on_the_primary_lane() {
    for (what, damage) in &DAMAGES[..1] {
        let mut world = running_mixed_team();
        let launch = launch_record(&world).id;
        world.restart_damaged(|rows| damage(rows, launch));
        assert!(
            launch_record(&world)
                .members
                .iter()
                .all(|entry| entry.lane.is_none()),
            "{what}"
        );
        assert!(
            team_summary(&world).degraded.is_some(),
            "{what}: {:?}",
            team_summary(&world)
        );
    }
}

/// T2: a damaged record is never a clean success, even if all of its remaining entries are.
#[test]
fn t2_a_degraded_team_is_not_a_clean_success() {
    let mut would_be_clean = 0;
    for (what, damage) in DAMAGES {
        let mut world = running_mixed_team();
        let launch = launch_record(&world).id;
        world.restart_damaged(|rows| damage(rows, launch));
        let summary = team_summary(&world);
        let folded = team(&world)
            .launch
            .and_then(|id| world.board.launches.get(&id))
            .map(|launch| launch.outcome());
        if summary.degraded.is_some() {
            would_be_clean += usize::from(folded == Some(LaunchOutcome::CleanSuccess));
            assert_ne!(
                summary.outcome,
                Some(LaunchOutcome::CleanSuccess),
                "{what}: {summary:?}"
            );
        }
    }
    assert!(
        would_be_clean > 0,
        "no damage leaves entries that would be a clean success, so this test checks nothing"
    );
}

/// J11: a restart changes nothing in an undamaged record.
#[test]
fn j11_a_restart_changes_nothing_in_an_undamaged_record() {
    let mut world = running_mixed_team();
    let (before, events) = (launch_record(&world), world.log.len());
    world.restart_damaged(|_| {});
    let after = launch_record(&world);
    assert_eq!((after.members, after.lanes), (before.members, before.lanes));
    let kinds: Vec<&str> = world.log[events..]
        .iter()
        .map(|event| event.event.kind())
        .collect();
    assert!(
        kinds
            .iter()
            .all(|kind| !kind.starts_with("launch.moved") && !kind.starts_with("team.")),
        "{kinds:?}"
    );
}
