//! Random teams of real processes: some members crash, fail, hang or have no program, some are
//! killed, and the daemon is killed at random moments. After each launch the summary matches the
//! members (T2), no member is blamed for another (T3), every reader shows the same summary (T6),
//! and a stop leaves no process (P3, P10).
//!
//! Every run of the tests makes a few launches. `REGATTA_TEAM_LAUNCHES=300` sets the number, and
//! `REGATTA_TEAM_SEED=…` repeats a run.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::kills::SeededRng;
use crate::world::{TEST_TIMEOUT, World, is_alive, kill_process, wait_until};

/// How a member ends up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberFate {
    StaysAlive,
    /// Its program exits before it answers.
    Crashes,
    /// Its program gives up.
    Fails,
    /// Its program never answers.
    Hangs,
    /// Its program is not installed.
    ProgramMissing,
    /// The test kills its program once it is alive.
    Killed,
}

impl MemberFate {
    fn random(dice: &mut SeededRng, aside: bool) -> MemberFate {
        match dice.below(12) {
            0 => MemberFate::Crashes,
            1 => MemberFate::Fails,
            2 => MemberFate::Hangs,
            // A member of the primary lane uses the lead's program.
            3 if aside => MemberFate::ProgramMissing,
            4 => MemberFate::Killed,
            _ => MemberFate::StaysAlive,
        }
    }

    fn script(self, dice: &mut SeededRng) -> String {
        let rest = json!({ "sleep": format!("{}ms", dice.below(300)) });
        match self {
            MemberFate::Crashes => json!([rest, { "crash": true }]),
            MemberFate::Fails => json!([rest, { "fail": "it will not" }]),
            MemberFate::Hangs => json!([{ "hang": true }]),
            MemberFate::StaysAlive | MemberFate::ProgramMissing | MemberFate::Killed => {
                json!([rest, { "say": "here" }])
            }
        }
        .to_string()
    }

    fn becomes_alive(self) -> bool {
        matches!(self, MemberFate::StaysAlive | MemberFate::Killed)
    }
}

struct PlannedTestMember {
    name: String,
    has_own_lane: bool,
    fate: MemberFate,
}

/// Returns a random team of one to twelve members, the lead first, and its definition.
fn random_team(dice: &mut SeededRng, team: &str) -> (Vec<PlannedTestMember>, Value) {
    let lead = ["codex", "anthropic", "gemini"][usize::try_from(dice.below(3)).unwrap()];
    let mut roster = vec![];
    let mut wanted = vec![];
    for nth in 0..=dice.below(12) {
        let provider = match nth {
            0 => lead,
            _ => [
                "codex",
                "anthropic",
                "gemini",
                "opencode",
                "goose",
                "opencode",
            ][usize::try_from(dice.below(6)).unwrap()],
        };
        let aside = ["opencode", "goose"].contains(&provider);
        // Most leads are fine, because a team without its lead shows little.
        let fate = if nth == 0 && dice.below(3) > 0 {
            MemberFate::StaysAlive
        } else {
            MemberFate::random(dice, aside)
        };
        let name = if nth == 0 {
            "lead".to_owned()
        } else {
            format!("m{nth}")
        };
        let backend = if fate == MemberFate::ProgramMissing {
            "no-such-program"
        } else {
            "scripted"
        };
        wanted.push(json!({ "name": name, "provider": provider, "backend": backend, "script": fate.script(dice) }));
        roster.push(PlannedTestMember {
            name,
            has_own_lane: aside,
            fate,
        });
    }
    let lead = wanted.remove(0);
    (
        roster,
        json!({ "name": team, "project": "shop", "lead": lead, "members": wanted }),
    )
}

/// Returns the processes of a member, or without a name those of the whole team.
fn member_processes(world: &World, team: &str, member: Option<&str>) -> Vec<u32> {
    let mark = format!("REGATTA_AGENT={team}/{}", member.unwrap_or_default());
    let is = |bytes: &[u8]| match member {
        // The whole name must match, so that m1 does not match m11.
        Some(_) => bytes == mark.as_bytes(),
        None => bytes.starts_with(mark.as_bytes()),
    };
    let named = |pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(is)
    };
    world.processes().into_iter().filter(named).collect()
}

fn kill_daemon(world: &World) {
    let pid = u32::try_from(world.daemon_info().unwrap()["pid"].as_u64().unwrap()).unwrap();
    kill_process(pid);
    assert!(
        wait_until(TEST_TIMEOUT, || !is_alive(pid)),
        "P7: {pid} does not end"
    );
    world.run_ok(&["up"]);
}

struct TeamStorm<'a> {
    world: &'a World,
    api: ApiClient,
    team: String,
    roster: Vec<PlannedTestMember>,
}

impl TeamStorm<'_> {
    fn show_team(&self) -> Value {
        self.api.call_ok("team.show", json!({ "team": self.team }))
    }

    fn member_states(view: &Value) -> Vec<(String, String)> {
        let to_text = |value: &Value| value.as_str().unwrap().to_owned();
        let members = view["resolved"]["members"].as_array().unwrap();
        members
            .iter()
            .map(|member| (to_text(&member["name"]), to_text(&member["state"])))
            .collect()
    }

    /// Returns each member's final state. `died` says whether the test has already killed its
    /// victims.
    fn expected_states(&self, died: bool) -> Vec<(String, &'static str)> {
        let lead = self.roster[0].fate;
        let state = |planned_test_member: &PlannedTestMember| match (
            planned_test_member.fate,
            planned_test_member.has_own_lane,
        ) {
            (MemberFate::ProgramMissing, _) => "failed_to_start",
            (_, true) if lead == MemberFate::Hangs => "queued",
            (_, true) if !lead.becomes_alive() => "skipped",
            (MemberFate::StaysAlive, _) => "alive",
            (MemberFate::Killed, _) if died => "degraded",
            (MemberFate::Killed, _) => "alive",
            (MemberFate::Crashes | MemberFate::Fails, _) => "failed_to_start",
            (MemberFate::Hangs, _) => "pending_bootstrap",
        };
        self.roster
            .iter()
            .map(|planned_test_member| {
                (planned_test_member.name.clone(), state(planned_test_member))
            })
            .collect()
    }

    /// Waits until every member is in its final state, and checks the causes and the summary.
    fn assert_settles(&self, died: bool, seed: &str) {
        let expected = self.expected_states(died);
        let same = |view: &Value| {
            let states = TeamStorm::member_states(view);
            states
                .iter()
                .map(|state| (&state.0, state.1.as_str()))
                .eq(expected.iter().map(|expected| (&expected.0, expected.1)))
        };
        let mut view = self.show_team();
        wait_until(TEST_TIMEOUT, || {
            view = self.show_team();
            same(&view)
        });
        assert!(
            same(&view),
            "T3: {seed}: {:?} instead of {expected:?}: {view}",
            TeamStorm::member_states(&view)
        );
        self.assert_summary_matches(&view, seed);
        for member in view["resolved"]["members"].as_array().unwrap() {
            let failed = ["failed_to_start", "degraded", "skipped"]
                .contains(&member["state"].as_str().unwrap());
            assert_eq!(
                member["cause"].is_object(),
                failed,
                "T3: {seed}: a cause must exist exactly for failures: {member}"
            );
        }
    }

    /// T2: checks that the summary follows from the members. T6: checks that the list shows the
    /// same.
    fn assert_summary_matches(&self, view: &Value, seed: &str) {
        let states = TeamStorm::member_states(view);
        let any = |words: &[&str]| states.iter().any(|state| words.contains(&state.1.as_str()));
        let pending = any(&[
            "queued",
            "starting",
            "pending_bootstrap",
            "pending_permission",
        ]);
        let never_up = view["resolved"]["members"]
            .as_array()
            .unwrap()
            .iter()
            .any(|member| member["state"] == "stopped" && member["alive_wall"].is_null());
        let outcome = if pending {
            "partial_pending"
        } else if any(&["failed_to_start", "degraded"]) {
            "partial_failure"
        } else if any(&["skipped"]) || never_up {
            "partial_skipped"
        } else {
            "clean_success"
        };
        let summary = &view["summary"];
        assert_eq!(summary["outcome"], outcome, "T2: {seed}: {states:?}");
        assert_eq!(
            summary["phase"] == "active",
            pending,
            "T2: {seed}: {states:?}"
        );
        assert_eq!(
            summary["alive"],
            states.iter().filter(|state| state.1 == "alive").count(),
            "T2: {seed}"
        );
        assert_eq!(summary["expected"], self.roster.len(), "T1: {seed}");
        // A hanging member may still change state, so both views must have the same revision.
        let mut seen = (Value::Null, Value::Null);
        wait_until(TEST_TIMEOUT, || {
            let listed = self.api.call_ok("team.list", json!({}));
            let listed = listed
                .as_array()
                .unwrap()
                .iter()
                .find(|listed| listed["team"] == self.team.as_str());
            seen = (listed.unwrap().clone(), self.show_team()["summary"].clone());
            seen.0["revision"] == seen.1["revision"]
        });
        assert_eq!(seen.0, seen.1, "T6: {seed}: the list and the detail differ");
    }

    fn kill_victims(&self, seed: &str) {
        let lead = self.roster[0].fate;
        for planned_test_member in self.roster.iter().filter(|planned_test_member| {
            planned_test_member.fate == MemberFate::Killed
                && (!planned_test_member.has_own_lane || lead.becomes_alive())
        }) {
            let programs =
                member_processes(self.world, &self.team, Some(&planned_test_member.name));
            let is_program = |pid: &&u32| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains("scripted-agent")
            };
            let found = programs.iter().find(is_program);
            kill_process(*found.unwrap_or_else(|| {
                panic!(
                    "{seed}: {} is alive and has no program: {programs:?}",
                    planned_test_member.name
                )
            }));
        }
    }

    /// P10: checks that no process lives after a stop that succeeded.
    fn assert_stops(&self, cut: Option<u64>, seed: &str) {
        if let Some(after) = cut {
            self.api.call_ok("team.stop", json!({ "team": self.team }));
            std::thread::sleep(Duration::from_millis(after));
            kill_daemon(self.world);
        }
        let view = self.api.call_ok(
            "team.stop",
            json!({ "team": self.team, "wait_ms": 280_000 }),
        );
        let processes = member_processes(self.world, &self.team, None);
        assert!(
            processes.is_empty(),
            "P10: {seed}: the team has stopped, and {processes:?} live"
        );
        self.assert_summary_matches(&view, seed);
        for (name, state) in TeamStorm::member_states(&view) {
            let was = self
                .roster
                .iter()
                .find(|planned_test_member| planned_test_member.name == name)
                .unwrap()
                .fate;
            // A member that was to be killed but was skipped, or that never started, did not fail
            // either.
            let may: &[&str] = match was {
                MemberFate::StaysAlive | MemberFate::Hangs => &["stopped", "skipped"],
                MemberFate::Killed => &["stopped", "skipped", "degraded"],
                MemberFate::ProgramMissing => &["failed_to_start"],
                MemberFate::Crashes | MemberFate::Fails => {
                    &["failed_to_start", "skipped", "stopped"]
                }
            };
            assert!(
                may.contains(&state.as_str()),
                "T3: {seed}: {name} was {was:?} and is {state}: {view}"
            );
        }
        self.api
            .call_ok("team.delete", json!({ "team": self.team }));
    }
}

/// T1, T2, T3, T6, P1, P3, P10: random teams of real processes.
#[test]
fn t3_p10_random_teams_with_kills_blame_no_other_member_and_stop_completely() {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let launches = number("REGATTA_TEAM_LAUNCHES").unwrap_or(6);
    let first = number("REGATTA_TEAM_SEED").unwrap_or(20_261_116);
    println!("REGATTA_TEAM_SEED={first}");
    let (began, world) = (Instant::now(), World::with_project());
    let (mut members, mut kills, mut fates) =
        (0, 0, std::collections::BTreeMap::<String, u32>::new());
    for nth in 0..launches {
        // Each launch has its own seed, so that a failed launch can be repeated alone.
        let seed = format!("REGATTA_TEAM_SEED={} REGATTA_TEAM_LAUNCHES=1", first + nth);
        let mut dice = SeededRng(first + nth);
        let team = format!("team-{nth}");
        let (roster, wanted) = random_team(&mut dice, &team);
        members += roster.len();
        roster.iter().for_each(|planned_test_member| {
            *fates
                .entry(format!("{:?}", planned_test_member.fate))
                .or_default() += 1
        });
        let storm = TeamStorm {
            world: &world,
            api: ApiClient::for_data_dir(&world.data_dir),
            team,
            roster,
        };
        storm.api.call_ok("team.create", wanted);
        storm
            .api
            .call_ok("team.launch", json!({ "team": storm.team }));
        for _ in 0..dice.below(3) {
            std::thread::sleep(Duration::from_millis(dice.below(600)));
            kill_daemon(&world);
            kills += 1;
        }
        storm.assert_settles(false, &seed);
        storm.kill_victims(&seed);
        storm.assert_settles(true, &seed);
        let cut = (dice.below(3) == 0).then(|| dice.below(200));
        kills += u64::from(cut.is_some());
        storm.assert_stops(cut, &seed);
    }
    assert_eq!(world.describe_foreign_processes(), [""; 0], "P3");
    println!(
        "{launches} launches, {members} members, {kills} kills of Regatta, {fates:?}, {:?}",
        began.elapsed()
    );
}
