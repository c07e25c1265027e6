//! The part of the story about teams: launched, partly up, launched again, archived. One team stays
//! up.

use std::collections::BTreeMap;

use regatta_core::agent::Runtime;
use regatta_core::attempt::Exited;
use regatta_core::board::Row;
use regatta_core::command::{Command, Outcome};
use regatta_core::extra::Value;
use regatta_core::ids::{LaunchId, MemberName, TeamName};
use regatta_core::launch::{Launch, Program, Resolution};
use regatta_core::session::{Said, Stop};
use regatta_core::team::{Ask, Backup, Create, Environment, Member, Team};

use super::story::{Teller, everything, project};
use super::{Harness, commit_all, rows};

fn name(text: &str) -> TeamName {
    TeamName::new(text).unwrap()
}

fn member(text: &str, provider: &str) -> Member {
    let extra = BTreeMap::from([("from_tomorrow".to_owned(), Value::List(vec![Value::Whole(1), Value::Nothing(())]))]);
    let of = Some(provider.to_owned());
    Member { provider: of, environment: Some("own".into()), extra, ..Member::named(MemberName::new(text).unwrap()) }
}

fn asks(it: &mut Teller, ask: Ask) -> Outcome {
    it.ann(Command::Team(Box::new(ask)))
}

fn create(it: &mut Teller, team: &str) {
    let environment = Environment { env: [("A".to_owned(), "1".to_owned())].into(), ..Environment::default() };
    asks(
        it,
        Ask::Create(Create {
            name: name(team),
            project: project("shop"),
            lead: member("amy", "codex"),
            members: vec![member("tom", "opencode")],
            environments: [("own".to_owned(), environment)].into(),
            extra: BTreeMap::from([("motto".to_owned(), Value::Text("on".into()))]),
        }),
    );
}

fn record(it: &Teller, team: &str) -> (Team, Launch) {
    let team = Team::clone(&it.board.teams[&name(team)]);
    let launch = Launch::clone(&it.board.launches[&team.launch.expect("the team was launched")]);
    (team, launch)
}

/// Launches a team. All its programs are found, and the members in `up` come up.
fn launch(it: &mut Teller, team: &str, up: &[&str]) -> LaunchId {
    let Outcome::Launched(Some(id)) = asks(it, Ask::Launch { team: name(team), left_out: vec![] }) else {
        panic!("{team} was not launched")
    };
    let found = ["amy", "tom"].map(|it| Resolution {
        member: MemberName::new(it).unwrap(),
        runtime: Some(Runtime::Scripted),
        backend: None,
        program: Program { path: Some("/bin/agent".into()), ..Program::default() },
        keys: vec![],
        files: vec![],
        fast_mode: None,
        notes: vec!["found".into()],
        problem: None,
    });
    it.shell(Command::ReportResolved { launch: id, found: found.to_vec() });
    for who in up {
        let (attempt, token) = session(it, team, who);
        it.shell(Command::ReportLaunched { attempt, token, sandbox: None, warnings: vec![] });
        for (n, said) in (1..).zip([
            Said::Started { session: Some("s".into()), model: Some("m".into()) },
            Said::TurnStarted { n: 0 },
            Said::TurnEnded { stop: Stop::EndTurn, class: None, detail: "here".into() },
        ]) {
            it.shell(Command::ReportSaid { attempt, token, n, said });
        }
    }
    id
}

fn session(it: &Teller, team: &str, who: &str) -> (regatta_core::ids::AttemptId, u64) {
    let entry = record(it, team).1.entry(&MemberName::new(who).unwrap()).cloned();
    let attempt = entry.and_then(|it| it.attempt).expect("the member has a session");
    (attempt, it.board.attempts[&attempt].token)
}

/// Adds the commands about teams.
pub(super) fn teams(it: &mut Teller) {
    for team in ["harbour", "quay"] {
        create(it, team);
        launch(it, team, &["amy", "tom"]);
        asks(it, Ask::Stop { team: name(team), reason: "enough".into() });
        for who in ["tom", "amy"] {
            let (attempt, token) = session(it, team, who);
            it.shell(Command::ReportExited { attempt, token, how: Exited::Lost });
        }
        launch(it, team, &["amy"]);
    }
    asks(it, Ask::Stop { team: name("quay"), reason: "enough".into() });
    for who in ["tom", "amy"] {
        let (attempt, token) = session(it, "quay", who);
        it.shell(Command::ReportExited { attempt, token, how: Exited::Lost });
    }
    let (team, launch) = record(it, "quay");
    asks(it, Ask::Restore { backup: Backup { team, launch: Some(launch), extra: BTreeMap::new() } });
    asks(it, Ask::Delete { team: name("quay") });
}

pub fn j12_launches_are_found_newest_first(harness: &mut dyn Harness) {
    let steps = everything();
    let mut store = harness.open();
    commit_all(&mut *store, &steps);
    let history = store.history();
    for team in ["harbour", "quay", "nobody"] {
        let mut expected: Vec<Launch> = rows(&steps)
            .into_values()
            .filter_map(|it| if let Row::Launch(it) = it { Some(Launch::clone(&it)) } else { None })
            .filter(|it| it.team == name(team))
            .collect();
        expected.sort_by_key(|it| std::cmp::Reverse(it.id));
        assert_eq!(expected.len() >= 2, team != "nobody", "the story launches {team} {} times", expected.len());
        for limit in [0, 1, 2, 9] {
            let found = history.launches(&name(team), limit).unwrap();
            assert_eq!(found, expected[..limit.min(expected.len())], "{team}, at most {limit}");
        }
    }
}
