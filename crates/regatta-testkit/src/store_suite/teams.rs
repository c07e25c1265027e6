//! The part of the test history about teams. A team is launched, but only some members start. It is
//! launched again and archived. Another team stays active.

use std::collections::BTreeMap;

use regatta_core::agent::Runtime;
use regatta_core::agent_protocol::{AgentEvent, StopReason};
use regatta_core::attempt::ProgramExit;
use regatta_core::board::Row;
use regatta_core::command::{Command, CommandOutcome, Report};
use regatta_core::ids::{LaunchId, MemberName, TeamName};
use regatta_core::launch::{MemberResolution, ProgramFacts, TeamLaunch};
use regatta_core::team::{CreateTeam, Team, TeamBackup, TeamCommand, TeamEnvironment, TeamMember};
use regatta_core::unknown_fields::ExtraValue;

use super::history_fixture::{HistoryBuilder, all_steps, project_named};
use super::{StoreHarness, commit_all, last_rows};

fn team_name(text: &str) -> TeamName {
    TeamName::new(text).unwrap()
}

fn new_member(text: &str, provider: &str) -> TeamMember {
    let extra = BTreeMap::from([(
        "from_tomorrow".to_owned(),
        ExtraValue::List(vec![ExtraValue::U64(1), ExtraValue::Null(())]),
    )]);
    let of = Some(provider.to_owned());
    TeamMember {
        provider: of,
        environment: Some("own".into()),
        extra,
        ..TeamMember::named(MemberName::new(text).unwrap())
    }
}

fn run_team_command(history: &mut HistoryBuilder, command: TeamCommand) -> CommandOutcome {
    history.run_as_ann(Command::Team(Box::new(command)))
}

fn create_team(history: &mut HistoryBuilder, team: &str) {
    let environment = TeamEnvironment {
        env: [("A".to_owned(), "1".to_owned())].into(),
        ..TeamEnvironment::default()
    };
    run_team_command(
        history,
        TeamCommand::Create(CreateTeam {
            name: team_name(team),
            project: project_named("shop"),
            lead: new_member("amy", "codex"),
            members: vec![new_member("tom", "opencode")],
            environments: [("own".to_owned(), environment)].into(),
            extra: BTreeMap::from([("motto".to_owned(), ExtraValue::String("on".into()))]),
        }),
    );
}

fn team_and_launch(history: &HistoryBuilder, team: &str) -> (Team, TeamLaunch) {
    let team = Team::clone(&history.board.teams[&team_name(team)]);
    let launch =
        TeamLaunch::clone(&history.board.launches[&team.launch.expect("the team was launched")]);
    (team, launch)
}

/// Launches a team. The programs of all members are found, but only the members in `up` start.
fn launch_team(history: &mut HistoryBuilder, team: &str, up: &[&str]) -> LaunchId {
    let CommandOutcome::Launched(Some(id)) = run_team_command(
        history,
        TeamCommand::Launch {
            team: team_name(team),
            left_out: vec![],
        },
    ) else {
        panic!("{team} was not launched")
    };
    let found = ["amy", "tom"].map(|name| MemberResolution {
        member: MemberName::new(name).unwrap(),
        runtime: Some(Runtime::Scripted),
        backend: None,
        program: ProgramFacts {
            path: Some("/bin/agent".into()),
            ..ProgramFacts::default()
        },
        keys: vec![],
        files: vec![],
        fast_mode: None,
        notes: vec!["found".into()],
        problem: None,
    });
    history.report(Report::TeamResolved {
        launch: id,
        found: found.to_vec(),
    });
    for who in up {
        let (attempt, token) = session_of(history, team, who);
        history.report(Report::Launched {
            attempt,
            token,
            sandbox: None,
            warnings: vec![],
        });
        for (n, said) in (1..).zip([
            AgentEvent::Started {
                session: Some("s".into()),
                model: Some("m".into()),
            },
            AgentEvent::TurnStarted { n: 0 },
            AgentEvent::TurnEnded {
                stop: StopReason::EndTurn,
                class: None,
                detail: "here".into(),
            },
        ]) {
            history.report(Report::AgentEvent {
                attempt,
                token,
                n,
                event: said,
            });
        }
    }
    id
}

fn session_of(
    history: &HistoryBuilder,
    team: &str,
    agent: &str,
) -> (regatta_core::ids::AttemptId, u64) {
    let entry = team_and_launch(history, team)
        .1
        .entry(&MemberName::new(agent).unwrap())
        .cloned();
    let attempt = entry
        .and_then(|launch| launch.attempt)
        .expect("the member has a session");
    (attempt, history.board.attempts[&attempt].token)
}

/// Adds commands about teams to the test history.
pub(super) fn add_teams(history: &mut HistoryBuilder) {
    for team in ["harbour", "quay"] {
        create_team(history, team);
        launch_team(history, team, &["amy", "tom"]);
        run_team_command(
            history,
            TeamCommand::Stop {
                team: team_name(team),
                reason: "enough".into(),
            },
        );
        for name in ["tom", "amy"] {
            let (attempt, token) = session_of(history, team, name);
            history.report(Report::Exited {
                attempt,
                token,
                exit: ProgramExit::Lost,
            });
        }
        launch_team(history, team, &["amy"]);
    }
    run_team_command(
        history,
        TeamCommand::Stop {
            team: team_name("quay"),
            reason: "enough".into(),
        },
    );
    for name in ["tom", "amy"] {
        let (attempt, token) = session_of(history, "quay", name);
        history.report(Report::Exited {
            attempt,
            token,
            exit: ProgramExit::Lost,
        });
    }
    let (team, launch) = team_and_launch(history, "quay");
    run_team_command(
        history,
        TeamCommand::Restore {
            backup: TeamBackup {
                team,
                launch: Some(launch),
                extra: BTreeMap::new(),
            },
        },
    );
    run_team_command(
        history,
        TeamCommand::Delete {
            team: team_name("quay"),
        },
    );
}

pub fn j12_launches_are_found_newest_first(harness: &mut dyn StoreHarness) {
    let steps = all_steps();
    let mut store = harness.open();
    commit_all(&mut *store, &steps);
    let history = store.history();
    for team in ["harbour", "quay", "nobody"] {
        let mut expected: Vec<TeamLaunch> = last_rows(&steps)
            .into_values()
            .filter_map(|row| {
                if let Row::Launch(team_launch) = row {
                    Some(TeamLaunch::clone(&team_launch))
                } else {
                    None
                }
            })
            .filter(|team_launch| team_launch.team == team_name(team))
            .collect();
        expected.sort_by_key(|team_launch| std::cmp::Reverse(team_launch.id));
        assert_eq!(
            expected.len() >= 2,
            team != "nobody",
            "the story launches {team} {} times",
            expected.len()
        );
        for limit in [0, 1, 2, 9] {
            let found = history.launches(&team_name(team), limit).unwrap();
            assert_eq!(
                found,
                expected[..limit.min(expected.len())],
                "{team}, at most {limit}"
            );
        }
    }
}
