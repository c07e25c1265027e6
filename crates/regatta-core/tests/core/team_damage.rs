//! Teams whose stored records are damaged: running sessions are found from the attempts, shown, and
//! stopped (T7).

use std::collections::BTreeMap;
use std::sync::Arc;

use regatta_core::attempt::Exited;
use regatta_core::board::{Row, RowKey};
use regatta_core::command::Command;
use regatta_core::ids::{AttemptId, LaunchId};
use regatta_core::launch::{self, Launch, Outcome, State};
use regatta_core::team::{Ask, Team};

use crate::teams::{asks, harbour, mixed_and_up, name, record, states, stop, summary, team};
use crate::world::World;

type Rows = BTreeMap<RowKey, Row>;
type Damage = fn(&mut Rows, LaunchId);

fn change_launch(rows: &mut Rows, id: LaunchId, change: impl FnOnce(&mut Launch)) {
    let Some(Row::Launch(launch)) = rows.get(&RowKey::Launch(id)) else { panic!("there is no {id}") };
    let mut launch = Launch::clone(launch);
    change(&mut launch);
    rows.insert(RowKey::Launch(launch.id), Row::Launch(Arc::new(launch)));
}

fn change_team(rows: &mut Rows, change: impl FnOnce(&mut Team)) {
    let Some(Row::Team(team)) = rows.get(&RowKey::Team(harbour())) else { panic!("there is no team") };
    let mut team = Team::clone(team);
    change(&mut team);
    rows.insert(RowKey::Team(harbour()), Row::Team(Arc::new(team)));
}

/// Each kind of damage that was seen in practice.
const DAMAGES: [(&str, Damage); 7] = [
    ("record missing", |rows, id| _ = rows.remove(&RowKey::Launch(id))),
    ("pointer missing", |rows, _| change_team(rows, |team| team.launch = None)),
    ("record and pointer missing", |rows, id| {
        rows.remove(&RowKey::Launch(id));
        change_team(rows, |team| team.launch = None);
    }),
    ("entry missing", |rows, id| {
        change_launch(rows, id, |launch| launch.members.retain(|entry| entry.name != name("tom")));
    }),
    ("entry and expectation missing", |rows, id| {
        change_launch(rows, id, |launch| {
            launch.members.retain(|entry| entry.name != name("tom"));
            launch.expected_members.retain(|member| *member != name("tom"));
        });
    }),
    ("session not named", |rows, id| {
        change_launch(rows, id, |launch| launch.members.iter_mut().for_each(|entry| entry.attempt = None));
    }),
    ("poorer record is newer", |rows, id| {
        change_launch(rows, id, |launch| {
            launch.id = LaunchId(id.0 + 1);
            launch.updated_wall += 1;
            launch.lanes.clear();
            for entry in &mut launch.members {
                (entry.lane, entry.attempt, entry.state) = (None, None, State::Stopped);
            }
        });
        change_team(rows, |team| team.launch = Some(LaunchId(id.0 + 1)));
    }),
];

/// Returns the running sessions. They are known from the attempts, whatever damage the team's
/// records have.
fn sessions(world: &World) -> Vec<AttemptId> {
    world.board.attempts.keys().copied().collect()
}

/// T7: with any damage, all running members are shown, the team can be neither launched again nor
/// deleted, and a stop ends all sessions before it counts as complete (P10).
#[test]
fn t7_running_members_are_found_with_any_damage_to_the_record() {
    for (what, damage) in DAMAGES {
        let mut world = mixed_and_up();
        let launch = record(&world).id;
        let running = sessions(&world);
        world.damage(|rows| damage(rows, launch));
        assert_eq!(sessions(&world), running, "{what}: the running sessions changed");
        let alive: Vec<_> = states(&world).into_iter().filter(|it| it.1 == "alive").collect();
        assert_eq!(alive.len(), 3, "{what}: {:?}", states(&world));
        let shown = summary(&world);
        assert_eq!((shown.alive, shown.expected), (3, 3), "{what}: {shown:?}");
        assert!(!shown.said.contains("never launched"), "{what}: {shown:?}");
        for refused in [Ask::Delete { team: harbour() }, Ask::Launch { team: harbour(), left_out: vec![] }] {
            assert_eq!(world.refused("ann", asks(refused)).code(), "team_runs", "{what}");
        }
        stop(&mut world);
        assert!(launch::is_up(&world.board, &team(&world)), "{what}: no session has ended yet");
        let ending = |world: &World| world.board.attempts.values().find(|it| it.stopping.is_some()).cloned();
        while let Some(session) = ending(&world) {
            let (attempt, token) = (session.id, session.token);
            assert!(launch::is_up(&world.board, &team(&world)), "{what}: {attempt} still runs");
            world.ask("regatta", Command::ReportExited { attempt, token, how: Exited::Lost });
        }
        assert_eq!(sessions(&world), [], "{what}: a session is still running");
        assert!(!launch::is_up(&world.board, &team(&world)), "{what}");
        world.ask("ann", asks(Ask::Delete { team: harbour() }));
    }
}

/// T4: the lane of a lost record is not guessed. The team is degraded until it is launched again.
#[test]
fn t4_a_lost_record_puts_no_member_on_the_primary_lane() {
    for (what, damage) in &DAMAGES[..1] {
        let mut world = mixed_and_up();
        let launch = record(&world).id;
        world.damage(|rows| damage(rows, launch));
        assert!(record(&world).members.iter().all(|entry| entry.lane.is_none()), "{what}");
        assert!(summary(&world).degraded.is_some(), "{what}: {:?}", summary(&world));
    }
}

/// T2: a damaged record is never a clean success, even if all of its remaining entries are.
#[test]
fn t2_a_degraded_team_is_not_a_clean_success() {
    let mut would_be_clean = 0;
    for (what, damage) in DAMAGES {
        let mut world = mixed_and_up();
        let launch = record(&world).id;
        world.damage(|rows| damage(rows, launch));
        let seen = summary(&world);
        let folded = team(&world).launch.and_then(|id| world.board.launches.get(&id)).map(|launch| launch.outcome());
        if seen.degraded.is_some() {
            would_be_clean += usize::from(folded == Some(Outcome::CleanSuccess));
            assert_ne!(seen.outcome, Some(Outcome::CleanSuccess), "{what}: {seen:?}");
        }
    }
    assert!(would_be_clean > 0, "no damage leaves entries that would be a clean success, so this test checks nothing");
}

/// J11: a restart changes nothing in an undamaged record.
#[test]
fn j11_a_restart_changes_nothing_in_an_undamaged_record() {
    let mut world = mixed_and_up();
    let (before, events) = (record(&world), world.log.len());
    world.damage(|_| {});
    let after = record(&world);
    assert_eq!((after.members, after.lanes), (before.members, before.lanes));
    let kinds: Vec<&str> = world.log[events..].iter().map(|it| it.event.kind()).collect();
    assert!(kinds.iter().all(|kind| !kind.starts_with("launch.moved") && !kind.starts_with("team.")), "{kinds:?}");
}
