//! The 27 known dangers of mixed teams, one test each, under the number that `docs/teams.md` gives
//! them. That page also says which fault was planted to see each test fail.

use std::collections::BTreeMap;

use regatta_core::agent::{SecretSource, SecretVariable};
use regatta_core::agent_protocol::FailureClass;
use regatta_core::attempt::ProgramExit;
use regatta_core::bus::PostMessage;
use regatta_core::command::{Command, Report};
use regatta_core::ids::{ChannelName, LaunchId};
use regatta_core::lane::{LaneKind, LaneRule, LaneSettings, StoreScope};
use regatta_core::launch::recovery::{self, LaneKnowledge, RecordSide};
use regatta_core::launch::{
    self, LaunchEntry, LaunchOutcome, LaunchPhase, MAX_SUMMARY_BYTES, MemberCauseKind, MemberState,
    TeamLaunch,
};
use regatta_core::refusal::Refusal;
use regatta_core::team::{
    CreateTeam, EditTeam, Team, TeamBackup, TeamCommand, TeamEnvironment, TeamMember,
};
use regatta_core::unknown_fields::ExtraValue;

use crate::teams::*;
use crate::world::{HOUR_MS, World, agent};

/// Returns the record as a version without lanes would have written it.
fn without_lanes(launch: &TeamLaunch) -> TeamLaunch {
    let members = launch
        .members
        .iter()
        .map(|launch| LaunchEntry {
            lane: None,
            ..launch.clone()
        })
        .collect();
    TeamLaunch {
        lanes: vec![],
        bootstrap_expected_members: vec![],
        members,
        ..launch.clone()
    }
}

fn stopped_team() -> World {
    let mut world = running_mixed_team();
    stop_team(&mut world);
    for name in ["tom", "amy", "alice"] {
        end_session(&mut world, name, ProgramExit::Lost);
    }
    world
}

fn state_labels(world: &World) -> Vec<&'static str> {
    member_states(world)
        .iter()
        .map(|member_state| member_state.1)
        .collect()
}

fn edit_team(
    world: &mut World,
    edit: EditTeam,
) -> Result<regatta_core::command::CommandOutcome, Refusal> {
    world.try_ask(
        "ann",
        team_command(TeamCommand::Edit {
            team: team_name(),
            edit,
        }),
    )
}

/// A member's lane follows from the policy, not from its model or effort.
#[test]
fn danger_01_lanes_do_not_depend_on_models_or_effort() {
    let mut request = team_settings(
        "codex",
        &[("alice", "codex"), ("bob", "codex"), ("eve", "gemini")],
    );
    for (nth, member) in request.members.iter_mut().enumerate() {
        (member.model, member.effort) =
            (Some(format!("model-{nth}")), Some(format!("effort-{nth}")));
    }
    let mut world = World::with_agents(&[]);
    create_team(&mut world, request);
    launch_team(&mut world);
    assert_eq!(launch_record(&world).lanes.len(), 1);
    assert_eq!(launch_record(&world).bootstrap_expected_members.len(), 4);
}

/// A report of a lane concerns its own member. The roster comes from the team alone.
#[test]
fn danger_02_a_side_lane_does_not_change_the_roster() {
    let mut world = launched_world("codex", &[("tom", "opencode")]);
    let launch = launch_record(&world).id;
    world.report(Report::TeamResolved {
        launch,
        found: vec![
            resolution_found("mallory"),
            resolution_found("amy"),
            resolution_found("tom"),
        ],
    });
    bring_up(&mut world, "amy");
    crash_session(&mut world, "tom", FailureClass::Crashed);
    assert_eq!(
        launch_record(&world).expected_members,
        [member_name("amy"), member_name("tom")]
    );
    assert!(
        launch_record(&world)
            .lead()
            .is_some_and(|launch| launch.state == MemberState::Alive),
        "the failure of tom changed the lead"
    );
    assert!(!world.board.agents.contains_key(&agent("harbour/mallory")));
}

/// Starts, failures and retries of a side lane do not change the entries of the primary lane.
#[test]
fn danger_03_a_side_lane_does_not_change_the_primary_lanes_entries() {
    let mut world = running_mixed_team();
    let primary_entries =
        |world: &World| vec![launch_entry(world, "amy"), launch_entry(world, "alice")];
    let before = primary_entries(&world);
    crash_session(&mut world, "tom", FailureClass::Crashed);
    world.ask(
        "ann",
        team_command(TeamCommand::Retry {
            team: team_name(),
            member: member_name("tom"),
        }),
    );
    report_resolutions(&mut world, &["tom"]);
    world.ask(
        "ann",
        team_command(TeamCommand::Retry {
            team: team_name(),
            member: member_name("tom"),
        }),
    );
    report_resolutions(&mut world, &[]);
    bring_up(&mut world, "tom");
    assert_eq!(primary_entries(&world), before);
}

/// A team is launched only by a request.
#[test]
fn danger_04_a_team_is_launched_only_on_request() {
    let mut world = World::with_agents(&[]);
    create_team(&mut world, team_settings("codex", &[("tom", "opencode")]));
    world.advance(100 * 24 * HOUR_MS);
    world.restart();
    assert!(world.board.launches.is_empty() && world.board.attempts.is_empty());
}

#[test]
fn danger_05_a_secondary_lane_has_one_member() {
    let world = launched_world(
        "codex",
        &[("tom", "opencode"), ("bob", "opencode"), ("eve", "goose")],
    );
    let aside: Vec<_> = launch_record(&world)
        .lanes
        .into_iter()
        .filter(|lane| lane.kind == LaneKind::Secondary)
        .collect();
    assert_eq!(
        aside
            .iter()
            .map(|lane| lane.id.as_str())
            .collect::<Vec<_>>(),
        ["opencode:tom", "opencode:bob", "goose:eve"]
    );
    assert!(aside.iter().all(|lane| lane.members.len() == 1));
}

/// The primary lane waits for its own members, and the launch waits for all members.
#[test]
fn danger_06_the_primary_lane_waits_for_its_own_members_only() {
    let mut world = launched_world("codex", &[("alice", "codex"), ("tom", "opencode")]);
    report_resolutions(&mut world, &[]);
    assert!(
        launch_entry(&world, "tom").attempt.is_none(),
        "the primary lane's start includes tom"
    );
    bring_up(&mut world, "amy");
    bring_up(&mut world, "alice");
    let launch = launch_record(&world);
    assert!(
        launch
            .bootstrap_expected_members
            .iter()
            .all(|member| launch.entry(member).unwrap().state == MemberState::Alive)
    );
    assert_eq!(
        (launch.phase(), launch.outcome()),
        (LaunchPhase::Active, LaunchOutcome::PartialPending)
    );
    assert_eq!(launch.expected_members.len(), 3);
}

#[test]
fn danger_07_a_running_member_cannot_move_between_lanes() {
    let mut world = running_mixed_team();
    for (name, provider) in [("tom", "codex"), ("alice", "opencode")] {
        let members = team(&world).members.into_iter().map(|team_member| {
            if team_member.name == member_name(name) {
                member(name, provider)
            } else {
                team_member
            }
        });
        let refusal = edit_team(
            &mut world,
            EditTeam {
                members: Some(members.collect()),
                ..EditTeam::default()
            },
        )
        .unwrap_err();
        assert!(
            refusal.message().contains(&format!("move {name} from ")),
            "{}",
            refusal.message()
        );
    }
    // A retry keeps the member's lane.
    crash_session(&mut world, "tom", FailureClass::Crashed);
    let before = launch_entry(&world, "tom").lane;
    world.ask(
        "ann",
        team_command(TeamCommand::Retry {
            team: team_name(),
            member: member_name("tom"),
        }),
    );
    assert_eq!(launch_entry(&world, "tom").lane, before);
}

#[test]
fn danger_08_primary_members_inherit_backend_and_fast_mode_with_a_note() {
    let with_own_backend = |team_member: TeamMember| TeamMember {
        backend: Some("special".into()),
        fast_mode: Some(true),
        ..team_member
    };
    let mut request = team_settings(
        "codex",
        &[("alice", "codex"), ("eve", "gemini"), ("tom", "opencode")],
    );
    request.lead = TeamMember {
        backend: Some("codex-native".into()),
        fast_mode: Some(false),
        ..request.lead
    };
    request.members = request.members.into_iter().map(with_own_backend).collect();
    let mut world = World::with_agents(&[]);
    create_team(&mut world, request);
    launch_team(&mut world);
    let got = |name: &str| {
        (
            launch_entry(&world, name).effective.backend,
            launch_entry(&world, name).effective.fast_mode,
        )
    };
    assert_eq!(got("alice"), (Some("codex-native".into()), Some(false)));
    assert_eq!(
        got("eve"),
        (Some("special".into()), Some(false)),
        "eve has another provider, so the lead's backend does not fit"
    );
    assert_eq!(
        got("tom"),
        (Some("special".into()), Some(true)),
        "a member with its own lane keeps its own settings"
    );
    assert_eq!(
        launch_entry(&world, "alice").requested.backend.as_deref(),
        Some("special"),
        "the requested backend is kept in the record"
    );
    let backend = "members of the primary lane use the lead's backend: codex-native".to_owned();
    let fast = "members of the primary lane use the lead's fast mode: off".to_owned();
    assert_eq!(launch_entry(&world, "alice").notes, [backend, fast.clone()]);
    assert_eq!(
        launch_entry(&world, "eve").notes,
        [fast],
        "eve has a note about a setting that she did not inherit"
    );
    assert_eq!(launch_entry(&world, "tom").notes, Vec::<String>::new());
}

/// T3: a failure in a lane is recorded for its own member only.
#[test]
fn danger_09_t3_a_failure_is_recorded_for_its_own_member_only() {
    let others = [
        ("alice", "codex"),
        ("tom", "opencode"),
        ("bob", "opencode"),
        ("eve", "opencode"),
    ];
    for name in ["tom", "bob", "eve", "alice"] {
        let mut world = launched_world("codex", &others);
        report_resolutions(&mut world, &[]);
        bring_up(&mut world, "amy");
        crash_session(&mut world, name, FailureClass::BadConfig);
        for entry in launch_record(&world).members {
            assert_eq!(
                entry.cause.is_some(),
                entry.name == member_name(name),
                "{} has the failure of {name}",
                entry.name
            );
            assert_eq!(
                entry.state == MemberState::FailedToStart,
                entry.name == member_name(name)
            );
        }
    }
}

/// The registered agents do not decide who is in the team.
#[test]
fn danger_10_registered_agents_do_not_change_the_roster() {
    let mut world = stopped_team();
    world.register("harbour/eve", 1);
    world.ask(
        "ann",
        Command::RemoveAgent {
            agent: agent("harbour/tom"),
        },
    );
    assert_eq!(
        launch_record(&world).expected_members,
        [member_name("amy"), member_name("alice"), member_name("tom")]
    );
    launch_team(&mut world);
    assert_eq!(
        launch_record(&world).expected_members,
        [member_name("amy"), member_name("alice"), member_name("tom")]
    );
}

/// Only the coordinator starts members. A message of the lead does not.
#[test]
fn danger_11_no_message_of_the_lead_starts_a_side_lane() {
    let mut world = running_mixed_team();
    crash_session(&mut world, "tom", FailureClass::Crashed);
    let before = world.board.attempts.len();
    for (channel, text) in [
        ("@harbour/tom", "start again"),
        ("harbour", "@harbour/tom spawn opencode teammate"),
    ] {
        let channel = ChannelName::new(channel).unwrap();
        world.ask(
            "harbour/amy",
            Command::Post(PostMessage {
                channel,
                text: text.into(),
                labels: vec![],
                reply_to: None,
            }),
        );
    }
    assert_eq!(
        (world.board.attempts.len(), member_state(&world, "tom")),
        (before, MemberState::Degraded)
    );
}

/// T4: a record without lanes is not completed by guessing.
#[test]
fn danger_12_missing_lanes_are_not_guessed() {
    let mut world = stopped_team();
    let backup = TeamBackup {
        team: Team {
            name: regatta_core::ids::TeamName::new("quay").unwrap(),
            launch: None,
            ..team(&world)
        },
        launch: Some(without_lanes(&launch_record(&world))),
        extra: BTreeMap::new(),
    };
    let up = |launch: &LaunchEntry| LaunchEntry {
        state: MemberState::Alive,
        ..launch.clone()
    };
    let launch = backup.launch.map(|team_launch| TeamLaunch {
        members: team_launch.members.iter().map(up).collect(),
        ..team_launch
    });
    world.ask(
        "ann",
        team_command(TeamCommand::Restore {
            backup: TeamBackup { launch, ..backup },
        }),
    );
    let quay = Team::clone(&world.board.teams[&regatta_core::ids::TeamName::new("quay").unwrap()]);
    let found = launch::latest_launch(&world.board, &quay).unwrap().clone();
    assert!(
        found.members.iter().all(|launch| launch.lane.is_none()),
        "T4: a lane was guessed"
    );
    assert!(found.members.iter().all(|launch| {
        launch
            .cause
            .as_ref()
            .is_some_and(|member_cause| member_cause.kind == MemberCauseKind::LaneUnknown)
    }));
    let summary = launch::summary(&world.board, &quay);
    assert!(
        summary.degraded.is_some() && summary.headline.contains("relaunch"),
        "{}",
        summary.headline
    );
    let retry = team_command(TeamCommand::Retry {
        team: quay.name.clone(),
        member: member_name("tom"),
    });
    assert!(world.ask_refused("ann", retry).hint().contains("relaunch"));
    // An old team without a member that needs its own lane had only the primary lane.
    let plain = Team {
        members: vec![member("alice", "codex")],
        ..quay.clone()
    };
    let members = found
        .members
        .iter()
        .filter(|launch| launch.name != member_name("tom"))
        .cloned()
        .collect();
    let old = TeamLaunch {
        expected_members: vec![member_name("amy"), member_name("alice")],
        members,
        ..TeamLaunch::clone(&found)
    };
    assert_eq!(
        recovery::lane_knowledge(&plain, &old, &LaneSettings::default()),
        LaneKnowledge::OnlyPrimary
    );
}

/// T5: the environment, keys and arguments of a side lane are its own, or empty.
#[test]
fn danger_13_t5_a_side_lane_does_not_inherit_the_leads_environment() {
    let environment = |text: &str| TeamEnvironment {
        env: [("WHOSE".to_owned(), text.to_owned())].into(),
        keys: vec![SecretVariable {
            name: "KEY".into(),
            from: SecretSource::Env(format!("{text}_KEY")),
        }],
        args: vec![format!("--{text}")],
        ..TeamEnvironment::default()
    };
    let mut request = team_settings(
        "codex",
        &[
            ("alice", "codex"),
            ("eve", "gemini"),
            ("tom", "opencode"),
            ("bob", "opencode"),
        ],
    );
    request.environments = ["lead", "own"]
        .map(|member| (member.to_owned(), environment(member)))
        .into();
    request.lead.environment = Some("lead".into());
    request.members[2].environment = Some("own".into());
    let mut world = World::with_agents(&[]);
    create_team(&mut world, request);
    launch_team(&mut world);
    report_resolutions(&mut world, &[]);
    let whose = |name: &str| {
        let profile = &world.board.agents[&agent(&format!("harbour/{name}"))].profile;
        let env = profile
            .env
            .first()
            .map_or("none", |env| env.1.as_str())
            .to_owned();
        (env, profile.keys.len(), profile.args.join(" "))
    };
    assert_eq!(whose("amy"), ("lead".into(), 1, "--lead".into()));
    assert_eq!(
        whose("alice"),
        ("lead".into(), 1, "--lead".into()),
        "a member with the lead's provider and lane has the lead's environment"
    );
    assert_eq!(
        whose("eve"),
        ("none".into(), 0, String::new()),
        "another provider does not get the lead's key"
    );
    assert_eq!(whose("tom"), ("own".into(), 1, "--own".into()));
    assert_eq!(
        whose("bob"),
        ("none".into(), 0, String::new()),
        "T5: a side lane without an environment got another one"
    );
}

/// The summary shows the record of each member, and always includes the lead.
#[test]
fn danger_14_the_summary_shows_each_lane_and_state_and_always_the_lead() {
    let mut world = running_mixed_team();
    crash_session(&mut world, "tom", FailureClass::Crashed);
    let summary = team_summary(&world);
    let lines: Vec<_> = summary
        .members
        .iter()
        .map(|member_summary| {
            (
                member_summary.name.as_str(),
                member_summary.lead,
                member_summary.lane,
                member_summary.state,
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            (
                "amy",
                true,
                Some(LaneKind::Primary),
                Some(MemberState::Alive)
            ),
            (
                "alice",
                false,
                Some(LaneKind::Primary),
                Some(MemberState::Alive)
            ),
            (
                "tom",
                false,
                Some(LaneKind::Secondary),
                Some(MemberState::Degraded)
            ),
        ]
    );
    assert_eq!(summary.members[2].provider, "opencode");
    // A record that lost its lead, and a team that was never launched.
    let mut sparse = World::with_agents(&[]);
    create_team(&mut sparse, team_settings("codex", &[("tom", "opencode")]));
    assert!(team_summary(&sparse).members[0].lead);
    let launch = launch_record(&world);
    let members = launch
        .members
        .iter()
        .filter(|launch| !launch.lead)
        .cloned()
        .collect();
    let backup = TeamBackup {
        team: team(&sparse),
        launch: Some(TeamLaunch { members, ..launch }),
        extra: BTreeMap::new(),
    };
    sparse.skips_invariants = true; // the laws reject such a record
    sparse.ask("ann", team_command(TeamCommand::Restore { backup }));
    assert!(team_summary(&sparse).members[0].lead);
}

/// Fields of a newer version survive reading, editing and writing, in every row that people or
/// versions share.
#[test]
fn danger_15_fields_of_a_newer_version_survive() {
    let text = r#"{"name":"harbour","project":"shop","colour":"teal","lead":{"name":"amy","provider":"codex","mood":[1,-2,0.5,null,{"a":true}]},
        "members":[{"name":"tom","provider":"opencode","since":7}],"environments":{"own":{"env":{},"vault":"v"}}}"#;
    let request: CreateTeam = serde_json::from_str(text).unwrap();
    let mut world = World::with_agents(&[]);
    create_team(&mut world, request);
    let lead = TeamMember {
        role: Some("leads".into()),
        ..team(&world).lead
    };
    edit_team(
        &mut world,
        EditTeam {
            lead: Some(lead),
            ..EditTeam::default()
        },
    )
    .unwrap();
    world.restart();
    let written = serde_json::to_value(team(&world)).unwrap();
    assert_eq!(written["colour"], "teal");
    assert_eq!(
        written["lead"]["mood"],
        serde_json::json!([1, -2, 0.5, null, { "a": true }])
    );
    assert_eq!(written["members"][0]["since"], 7);
    assert_eq!(written["environments"]["own"]["vault"], "v");
    // The same for the record of a launch, also where an entry is rewritten.
    launch_team(&mut world);
    let tomorrow = |launch: TeamLaunch| {
        let mut value = serde_json::to_value(launch).unwrap();
        value["weather"] = "fair".into();
        value["members"][1]["seat"] = 4.into();
        serde_json::from_value::<TeamLaunch>(value).unwrap()
    };
    let mut stored = launch_record(&world);
    stored = tomorrow(stored);
    assert_eq!(stored.extra["weather"], ExtraValue::String("fair".into()));
    stop_team(&mut world);
    let backup = TeamBackup {
        team: team(&world),
        launch: Some(TeamLaunch {
            updated_unix_ms: u64::MAX,
            ..stored
        }),
        extra: BTreeMap::new(),
    };
    world.ask("ann", team_command(TeamCommand::Restore { backup }));
    world.ask(
        "ann",
        team_command(TeamCommand::Retry {
            team: team_name(),
            member: member_name("amy"),
        }),
    );
    let written = serde_json::to_value(launch_record(&world)).unwrap();
    assert_eq!(
        (&written["weather"], &written["members"][1]["seat"]),
        (&"fair".into(), &4.into())
    );
}

/// T1: the expected members are the whole roster, whichever members start, fail or are left out.
#[test]
fn danger_16_t1_the_expected_members_are_always_the_whole_roster() {
    let everybody = [member_name("amy"), member_name("alice"), member_name("tom")];
    let mut world = World::with_agents(&[]);
    create_team(
        &mut world,
        team_settings("codex", &[("alice", "codex"), ("tom", "opencode")]),
    );
    world.ask(
        "ann",
        team_command(TeamCommand::Launch {
            team: team_name(),
            left_out: vec![member_name("alice")],
        }),
    );
    let check = |world: &World| {
        assert_eq!(launch_record(world).expected_members, everybody);
        assert_eq!(
            launch_record(world).bootstrap_expected_members,
            everybody[..2],
            "the primary lane's members have their own field"
        );
        assert_eq!(team_summary(world).expected, 3);
    };
    check(&world);
    report_resolutions(&mut world, &["tom"]);
    check(&world);
    bring_up(&mut world, "amy");
    stop_team(&mut world);
    end_session(&mut world, "amy", ProgramExit::Lost);
    check(&world);
}

#[test]
fn danger_17_a_richer_record_is_preferred_to_a_newer_one() {
    let mut world = stopped_team();
    let rich = launch_record(&world);
    let poor = TeamLaunch {
        updated_unix_ms: rich.updated_unix_ms + HOUR_MS,
        ..without_lanes(&rich)
    };
    assert_eq!(recovery::preferred_side(&rich, &poor), RecordSide::Left);
    assert_eq!(recovery::preferred_side(&poor, &rich), RecordSide::Right);
    let later = TeamLaunch {
        updated_unix_ms: rich.updated_unix_ms + 1,
        ..rich.clone()
    };
    assert_eq!(
        recovery::preferred_side(&rich, &later),
        RecordSide::Right,
        "of two equally rich records the newer one is preferred"
    );
    // Restoring the poorer record from a file changes nothing.
    let backup = |launch: TeamLaunch| TeamBackup {
        team: team(&world),
        launch: Some(launch),
        extra: BTreeMap::new(),
    };
    let (poorer, richer) = (backup(poor), backup(later));
    world.ask("ann", team_command(TeamCommand::Restore { backup: poorer }));
    assert_eq!(launch_record(&world).id, rich.id);
    assert!(
        launch_record(&world)
            .members
            .iter()
            .all(|launch| launch.lane.is_some())
    );
    world.ask("ann", team_command(TeamCommand::Restore { backup: richer }));
    assert_ne!(launch_record(&world).id, rich.id);
}

/// The size of a summary has a limit, also with a hundred members.
#[test]
fn danger_18_a_summary_of_100_members_stays_within_its_size_limit() {
    let long = |nth: usize| format!("{nth:03}{}", "x".repeat(61));
    let provider = "p".repeat(32);
    let mut request = team_settings("codex", &[]);
    request.members = (0..100).map(|nth| member(&long(nth), &provider)).collect();
    let mut world = World::with_agents(&[]);
    let mut project = world.project("shop", &["cargo test"]);
    project
        .settings
        .lanes
        .policy
        .insert(provider, LaneRule::SECONDARY);
    world.ask("ann", Command::AddProject(project));
    create_team(&mut world, request);
    launch_team(&mut world);
    let launch = launch_record(&world).id;
    let mut all: Vec<_> = (0..100).map(|nth| resolution_missing(&long(nth))).collect();
    for member_resolution in &mut all {
        member_resolution.problem.as_mut().unwrap().text = "\"\\\n\u{1}\u{fffd}é".repeat(500);
    }
    world.report(Report::TeamResolved { launch, found: all });
    let text = serde_json::to_vec(&team_summary(&world)).unwrap();
    assert!(text.len() < MAX_SUMMARY_BYTES, "{} bytes", text.len());
    assert_eq!(
        team_summary(&world).members.len(),
        101,
        "a member is missing from the summary"
    );
}

/// T6: memory, store and log give the same summary, also later, as long as the record is the same.
/// `same_summary` of the end-to-end tests checks the same for the command line, the API, the page
/// and the bus.
#[test]
fn danger_19_t6_every_reader_derives_the_same_summary() {
    let mut world = launched_world("codex", &[("alice", "codex"), ("tom", "opencode")]);
    let check = |world: &mut World| {
        let of =
            |board: &regatta_core::board::Board| launch::summary(board, &board.teams[&team_name()]);
        let told = of(&world.board);
        assert_eq!(of(&world.reloaded()), told);
        world.register("somebody-else", 1);
        assert_eq!(
            of(&world.board),
            told,
            "a change outside of the record changed the summary"
        );
    };
    check(&mut world);
    report_resolutions(&mut world, &[]);
    check(&mut world);
    start_session(&mut world, "amy");
    check(&mut world);
    end_turn(&mut world, "amy", 3);
    crash_session(&mut world, "alice", FailureClass::Auth);
    check(&mut world);
    stop_team(&mut world);
    check(&mut world);
}

/// An agent's row is derived from its member. The next launch uses the member's settings, not the
/// agent's.
#[test]
fn danger_20_a_launch_ignores_changes_of_a_members_agent() {
    let mut world = stopped_team();
    let mut row = crate::world::registration("harbour/tom", 5);
    (row.provider, row.profile.model) = (Some("codex".into()), Some("another".into()));
    world.ask("ann", Command::RegisterAgent(row));
    launch_team(&mut world);
    let tom = launch_entry(&world, "tom");
    assert_eq!(
        (tom.effective.provider.as_str(), tom.effective.model),
        ("opencode", None)
    );
    assert!(
        tom.lane
            .is_some_and(|lane_ref| lane_ref.kind == LaneKind::Secondary),
        "T4"
    );
}

#[test]
fn danger_21_the_roster_of_a_running_mixed_team_does_not_change() {
    let mut world = running_mixed_team();
    let with = |members: Vec<TeamMember>| EditTeam {
        members: Some(members),
        ..EditTeam::default()
    };
    let (alice, tom, eve) = (
        member("alice", "codex"),
        member("tom", "opencode"),
        member("eve", "codex"),
    );
    let changed = TeamMember {
        model: Some("other".into()),
        ..tom.clone()
    };
    for (roster, word) in [
        (vec![alice.clone(), tom.clone(), eve.clone()], "add eve"),
        (vec![tom.clone()], "remove alice"),
        (vec![alice.clone(), eve], "remove tom"),
        (vec![alice.clone(), changed], "change how tom runs"),
    ] {
        let refusal = edit_team(&mut world, with(roster)).unwrap_err();
        assert!(refusal.message().contains(word), "{}", refusal.message());
        let hint = refusal.hint();
        let order = ["team stop", "team edit", "team relaunch"].map(|command| hint.find(command));
        assert!(
            order[0].is_some() && order.is_sorted() && order[2].is_some(),
            "{hint}"
        );
    }
    // The description of a member may be changed while the team runs.
    let words = TeamMember {
        role: Some("tests".into()),
        ..tom
    };
    edit_team(&mut world, with(vec![alice, words])).unwrap();
    assert_eq!(launch_record(&world).members.len(), 3);
}

/// Each lane's program has its own store, because each member is an agent with its own home
/// directory.
#[test]
fn danger_22_two_lanes_share_no_store() {
    let world = launched_world("codex", &[("tom", "opencode"), ("bob", "opencode")]);
    let agents: std::collections::BTreeSet<_> = launch_record(&world)
        .members
        .iter()
        .map(|launch| launch.agent.clone())
        .collect();
    assert_eq!(agents.len(), 3);
    // A provider whose members must share one store can have one member only.
    let mut world = World::with_agents(&[]);
    let mut project = world.project("shop", &["cargo test"]);
    project.settings.lanes.policy.insert(
        "opencode".into(),
        LaneRule {
            store: StoreScope::Team,
            ..LaneRule::SECONDARY
        },
    );
    world.ask("ann", Command::AddProject(project));
    let two = team_settings("codex", &[("tom", "opencode"), ("bob", "opencode")]);
    let refusal = world.ask_refused("ann", team_command(TeamCommand::Create(two)));
    assert!(
        refusal.message().contains("at most one opencode member"),
        "{}",
        refusal.message()
    );
    assert!(world.board.teams.is_empty(), "the refused team was stored");
    create_team(&mut world, team_settings("codex", &[("tom", "opencode")]));
}

#[test]
fn danger_23_each_lane_has_its_own_model() {
    let mut request = team_settings("codex", &[("tom", "opencode"), ("bob", "opencode")]);
    (request.members[0].model, request.members[1].model) =
        (Some("small".into()), Some("big".into()));
    let mut world = World::with_agents(&[]);
    create_team(&mut world, request);
    launch_team(&mut world);
    report_resolutions(&mut world, &[]);
    let model = |name: &str| {
        world.board.agents[&agent(&format!("harbour/{name}"))]
            .profile
            .model
            .clone()
    };
    assert_eq!(
        (model("tom"), model("bob")),
        (Some("small".into()), Some("big".into()))
    );
}

/// A member that is still starting has not failed, and an unknown state is not a failure.
#[test]
fn danger_24_a_starting_or_unknown_member_is_not_a_failure() {
    let mut world = launched_world("codex", &[("tom", "opencode")]);
    report_resolutions(&mut world, &[]);
    bring_up(&mut world, "amy");
    assert_eq!(
        (member_state(&world, "tom"), launch_record(&world).outcome()),
        (MemberState::Starting, LaunchOutcome::PartialPending)
    );
    assert_eq!(
        launch::outcome_of([
            (MemberState::Alive, None),
            (MemberState::Degraded, Some(MemberCauseKind::LaneUnknown))
        ]),
        LaunchOutcome::PartialPending
    );
    assert_eq!(
        launch::outcome_of([
            (MemberState::Alive, None),
            (MemberState::Degraded, Some(MemberCauseKind::Lost))
        ]),
        LaunchOutcome::PartialFailure
    );
}

#[test]
fn danger_25_the_primary_lanes_success_does_not_clear_other_failures() {
    let mut world = launched_world(
        "codex",
        &[("alice", "codex"), ("tom", "opencode"), ("bob", "opencode")],
    );
    report_resolutions(&mut world, &["bob"]);
    bring_up(&mut world, "amy");
    bring_up(&mut world, "alice");
    assert_eq!(
        state_labels(&world),
        ["alive", "alive", "starting", "failed_to_start"]
    );
    assert!(launch_entry(&world, "bob").cause.is_some());
    bring_up(&mut world, "tom");
    assert_eq!(
        (
            launch_record(&world).phase(),
            launch_record(&world).outcome()
        ),
        (LaunchPhase::Finished, LaunchOutcome::PartialFailure)
    );
}

/// The failure of the primary lane does not end members that are still attaching.
#[test]
fn danger_26_a_failed_primary_lane_does_not_fail_attaching_members() {
    let mut world = launched_world("codex", &[("alice", "codex"), ("tom", "opencode")]);
    report_resolutions(&mut world, &[]);
    bring_up(&mut world, "amy");
    crash_session(&mut world, "alice", FailureClass::Crashed);
    assert_eq!(
        state_labels(&world),
        ["alive", "failed_to_start", "starting"]
    );
    crash_session(&mut world, "amy", FailureClass::Crashed);
    assert_eq!(
        state_labels(&world),
        ["degraded", "failed_to_start", "starting"],
        "tom's start was ended"
    );
    assert_eq!(launch_record(&world).phase(), LaunchPhase::Active);
    world.restart();
    assert_eq!(
        member_state(&world, "tom"),
        MemberState::Starting,
        "a restart ended a live session"
    );
    bring_up(&mut world, "tom");
    assert_eq!(
        (member_state(&world, "tom"), launch_record(&world).phase()),
        (MemberState::Alive, LaunchPhase::Finished)
    );
}

#[test]
fn danger_27_a_side_lane_is_described_as_attaching_not_bootstrapping() {
    let mut world = launched_world("codex", &[("alice", "codex"), ("tom", "opencode")]);
    let check_texts = |world: &World| {
        let summary = team_summary(world);
        assert!(
            !summary.headline.contains("bootstrap"),
            "{}",
            summary.headline
        );
        let tom = summary
            .members
            .iter()
            .find(|member_summary| member_summary.name == member_name("tom"))
            .unwrap()
            .description
            .clone();
        assert!(!tom.contains("bootstrap"), "{tom}");
        (summary.headline, tom)
    };
    assert_eq!(
        check_texts(&world).1,
        "waiting to attach, once the lead is up"
    );
    report_resolutions(&mut world, &[]);
    bring_up(&mut world, "amy");
    bring_up(&mut world, "alice");
    assert_eq!(
        check_texts(&world),
        (
            "2 of 3 alive; tom is still attaching".into(),
            "still attaching".into()
        )
    );
    start_session(&mut world, "tom");
    assert_eq!(member_state(&world, "tom"), MemberState::PendingBootstrap);
    assert_eq!(check_texts(&world).1, "still attaching");
}

/// The ids of launches only rise, also after a restore.
#[test]
fn a_restored_launch_gets_a_new_id() {
    let mut world = stopped_team();
    let launch = launch_record(&world);
    let backup = TeamBackup {
        team: team(&world),
        launch: Some(TeamLaunch {
            id: LaunchId(1),
            updated_unix_ms: u64::MAX,
            ..launch
        }),
        extra: BTreeMap::new(),
    };
    world.ask("ann", team_command(TeamCommand::Restore { backup }));
    assert_eq!(launch_record(&world).id, LaunchId(2));
    assert_eq!(launch_team(&mut world), LaunchId(3));
}
