//! The 27 known dangers of mixed teams, one test each, under the number that `docs/teams.md` gives
//! them. That page also says which fault was planted to see each test fail.

use std::collections::BTreeMap;

use regatta_core::agent::{Key, KeySource};
use regatta_core::attempt::Exited;
use regatta_core::bus::Post;
use regatta_core::command::Command;
use regatta_core::extra::Value;
use regatta_core::ids::{ChannelName, LaunchId};
use regatta_core::lane::{Kind, Lanes, Rule, Scope};
use regatta_core::launch::{self, Entry, LARGEST_SUMMARY, Launch, Outcome, Phase, State, Why};
use regatta_core::reconcile::{self, Side, Truth};
use regatta_core::refusal::Refusal;
use regatta_core::session::Class;
use regatta_core::team::{Ask, Backup, Create, Edit, Environment, Member, Team};

use crate::teams::*;
use crate::world::{HOUR, World, agent};

/// Returns the record as a version without lanes would have written it.
fn without_lanes(launch: &Launch) -> Launch {
    let members = launch.members.iter().map(|it| Entry { lane: None, ..it.clone() }).collect();
    Launch { lanes: vec![], bootstrap_expected_members: vec![], members, ..launch.clone() }
}

fn stopped() -> World {
    let mut world = mixed_and_up();
    stop(&mut world);
    for who in ["tom", "amy", "alice"] {
        ends(&mut world, who, Exited::Lost);
    }
    world
}

fn words(world: &World) -> Vec<&'static str> {
    states(world).iter().map(|it| it.1).collect()
}

fn edit(world: &mut World, edit: Edit) -> Result<regatta_core::command::Outcome, Refusal> {
    world.try_ask("ann", asks(Ask::Edit { team: harbour(), edit }))
}

/// A member's lane follows from the policy, not from its model or effort.
#[test]
fn danger_01_lanes_do_not_depend_on_models_or_effort() {
    let mut ask = wanted("codex", &[("alice", "codex"), ("bob", "codex"), ("eve", "gemini")]);
    for (nth, member) in ask.members.iter_mut().enumerate() {
        (member.model, member.effort) = (Some(format!("model-{nth}")), Some(format!("effort-{nth}")));
    }
    let mut world = World::with(&[]);
    create(&mut world, ask);
    launch_it(&mut world);
    assert_eq!(record(&world).lanes.len(), 1);
    assert_eq!(record(&world).bootstrap_expected_members.len(), 4);
}

/// A report of a lane concerns its own member. The roster comes from the team alone.
#[test]
fn danger_02_a_side_lane_does_not_change_the_roster() {
    let mut world = launched("codex", &[("tom", "opencode")]);
    let launch = record(&world).id;
    world.ask("regatta", Command::ReportResolved { launch, found: vec![found("mallory"), found("amy"), found("tom")] });
    comes_up(&mut world, "amy");
    crashes(&mut world, "tom", Class::Crashed);
    assert_eq!(record(&world).expected_members, [name("amy"), name("tom")]);
    assert!(record(&world).lead().is_some_and(|it| it.state == State::Alive), "the failure of tom changed the lead");
    assert!(!world.board.agents.contains_key(&agent("harbour/mallory")));
}

/// Starts, failures and retries of a side lane do not change the entries of the primary lane.
#[test]
fn danger_03_a_side_lane_does_not_change_the_primary_lanes_entries() {
    let mut world = mixed_and_up();
    let own = |world: &World| vec![entry(world, "amy"), entry(world, "alice")];
    let before = own(&world);
    crashes(&mut world, "tom", Class::Crashed);
    world.ask("ann", asks(Ask::Retry { team: harbour(), member: name("tom") }));
    resolve(&mut world, &["tom"]);
    world.ask("ann", asks(Ask::Retry { team: harbour(), member: name("tom") }));
    resolve(&mut world, &[]);
    comes_up(&mut world, "tom");
    assert_eq!(own(&world), before);
}

/// A team is launched only by a request.
#[test]
fn danger_04_a_team_is_launched_only_on_request() {
    let mut world = World::with(&[]);
    create(&mut world, wanted("codex", &[("tom", "opencode")]));
    world.advance(100 * 24 * HOUR);
    world.restart();
    assert!(world.board.launches.is_empty() && world.board.attempts.is_empty());
}

#[test]
fn danger_05_a_secondary_lane_has_one_member() {
    let world = launched("codex", &[("tom", "opencode"), ("bob", "opencode"), ("eve", "goose")]);
    let aside: Vec<_> = record(&world).lanes.into_iter().filter(|it| it.kind == Kind::Secondary).collect();
    assert_eq!(
        aside.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(),
        ["opencode:tom", "opencode:bob", "goose:eve"]
    );
    assert!(aside.iter().all(|it| it.members.len() == 1));
}

/// The primary lane waits for its own members, and the launch waits for all members.
#[test]
fn danger_06_the_primary_lane_waits_for_its_own_members_only() {
    let mut world = launched("codex", &[("alice", "codex"), ("tom", "opencode")]);
    resolve(&mut world, &[]);
    assert!(entry(&world, "tom").attempt.is_none(), "the primary lane's start includes tom");
    comes_up(&mut world, "amy");
    comes_up(&mut world, "alice");
    let launch = record(&world);
    assert!(launch.bootstrap_expected_members.iter().all(|it| launch.entry(it).unwrap().state == State::Alive));
    assert_eq!((launch.phase(), launch.outcome()), (Phase::Active, Outcome::PartialPending));
    assert_eq!(launch.expected_members.len(), 3);
}

#[test]
fn danger_07_a_running_member_cannot_move_between_lanes() {
    let mut world = mixed_and_up();
    for (who, provider) in [("tom", "codex"), ("alice", "opencode")] {
        let members = team(&world).members.into_iter().map(|it| match it.name == name(who) {
            true => member(who, provider),
            false => it,
        });
        let refusal = edit(&mut world, Edit { members: Some(members.collect()), ..Edit::default() }).unwrap_err();
        assert!(refusal.message().contains(&format!("move {who} from ")), "{}", refusal.message());
    }
    // A retry keeps the member's lane.
    crashes(&mut world, "tom", Class::Crashed);
    let before = entry(&world, "tom").lane;
    world.ask("ann", asks(Ask::Retry { team: harbour(), member: name("tom") }));
    assert_eq!(entry(&world, "tom").lane, before);
}

#[test]
fn danger_08_primary_members_inherit_backend_and_fast_mode_with_a_note() {
    let own = |it: Member| Member { backend: Some("special".into()), fast_mode: Some(true), ..it };
    let mut ask = wanted("codex", &[("alice", "codex"), ("eve", "gemini"), ("tom", "opencode")]);
    ask.lead = Member { backend: Some("codex-native".into()), fast_mode: Some(false), ..ask.lead };
    ask.members = ask.members.into_iter().map(own).collect();
    let mut world = World::with(&[]);
    create(&mut world, ask);
    launch_it(&mut world);
    let got = |who: &str| (entry(&world, who).got.backend, entry(&world, who).got.fast_mode);
    assert_eq!(got("alice"), (Some("codex-native".into()), Some(false)));
    assert_eq!(
        got("eve"),
        (Some("special".into()), Some(false)),
        "eve has another provider, so the lead's backend does not fit"
    );
    assert_eq!(got("tom"), (Some("special".into()), Some(true)), "a member with its own lane keeps its own settings");
    assert_eq!(
        entry(&world, "alice").asked.backend.as_deref(),
        Some("special"),
        "the requested backend is kept in the record"
    );
    let backend = "backend is the lead's on the primary lane: codex-native".to_owned();
    let fast = "fast mode is the lead's on the primary lane: off".to_owned();
    assert_eq!(entry(&world, "alice").notes, [backend, fast.clone()]);
    assert_eq!(entry(&world, "eve").notes, [fast], "eve has a note about a setting that she did not inherit");
    assert_eq!(entry(&world, "tom").notes, Vec::<String>::new());
}

/// T3: a failure in a lane is recorded for its own member only.
#[test]
fn danger_09_t3_a_failure_is_recorded_for_its_own_member_only() {
    let others = [("alice", "codex"), ("tom", "opencode"), ("bob", "opencode"), ("eve", "opencode")];
    for who in ["tom", "bob", "eve", "alice"] {
        let mut world = launched("codex", &others);
        resolve(&mut world, &[]);
        comes_up(&mut world, "amy");
        crashes(&mut world, who, Class::BadConfig);
        for entry in record(&world).members {
            assert_eq!(entry.cause.is_some(), entry.name == name(who), "{} has the failure of {who}", entry.name);
            assert_eq!(entry.state == State::FailedToStart, entry.name == name(who));
        }
    }
}

/// The registered agents do not decide who is in the team.
#[test]
fn danger_10_registered_agents_do_not_change_the_roster() {
    let mut world = stopped();
    world.register("harbour/eve", 1);
    world.ask("ann", Command::RemoveAgent { agent: agent("harbour/tom") });
    assert_eq!(record(&world).expected_members, [name("amy"), name("alice"), name("tom")]);
    launch_it(&mut world);
    assert_eq!(record(&world).expected_members, [name("amy"), name("alice"), name("tom")]);
}

/// Only the coordinator starts members. A message of the lead does not.
#[test]
fn danger_11_no_message_of_the_lead_starts_a_side_lane() {
    let mut world = mixed_and_up();
    crashes(&mut world, "tom", Class::Crashed);
    let before = world.board.attempts.len();
    for (channel, text) in [("@harbour/tom", "start again"), ("harbour", "@harbour/tom spawn opencode teammate")] {
        let channel = ChannelName::new(channel).unwrap();
        world.ask("harbour/amy", Command::Post(Post { channel, text: text.into(), labels: vec![], reply_to: None }));
    }
    assert_eq!((world.board.attempts.len(), state(&world, "tom")), (before, State::Degraded));
}

/// T4: a record without lanes is not completed by guessing.
#[test]
fn danger_12_missing_lanes_are_not_guessed() {
    let mut world = stopped();
    let backup = Backup {
        team: Team { name: regatta_core::ids::TeamName::new("quay").unwrap(), launch: None, ..team(&world) },
        launch: Some(without_lanes(&record(&world))),
        extra: BTreeMap::new(),
    };
    let up = |it: &Entry| Entry { state: State::Alive, ..it.clone() };
    let launch = backup.launch.map(|it| Launch { members: it.members.iter().map(up).collect(), ..it });
    world.ask("ann", asks(Ask::Restore { backup: Backup { launch, ..backup } }));
    let quay = Team::clone(&world.board.teams[&regatta_core::ids::TeamName::new("quay").unwrap()]);
    let found = launch::of(&world.board, &quay).unwrap().clone();
    assert!(found.members.iter().all(|it| it.lane.is_none()), "T4: a lane was guessed");
    assert!(found.members.iter().all(|it| it.cause.as_ref().is_some_and(|it| it.kind == Why::LaneUnknown)));
    let said = launch::summary(&world.board, &quay);
    assert!(said.degraded.is_some() && said.said.contains("relaunch"), "{}", said.said);
    let retry = asks(Ask::Retry { team: quay.name.clone(), member: name("tom") });
    assert!(world.refused("ann", retry).hint().contains("relaunch"));
    // An old team without a member that needs its own lane had only the primary lane.
    let plain = Team { members: vec![member("alice", "codex")], ..quay.clone() };
    let members = found.members.iter().filter(|it| it.name != name("tom")).cloned().collect();
    let old = Launch { expected_members: vec![name("amy"), name("alice")], members, ..Launch::clone(&found) };
    assert_eq!(reconcile::truth(&plain, &old, &Lanes::default()), Truth::Primary);
}

/// T5: the environment, keys and arguments of a side lane are its own, or empty.
#[test]
fn danger_13_t5_a_side_lane_does_not_inherit_the_leads_environment() {
    let environment = |text: &str| Environment {
        env: [("WHOSE".to_owned(), text.to_owned())].into(),
        keys: vec![Key { name: "KEY".into(), from: KeySource::Env(format!("{text}_KEY")) }],
        args: vec![format!("--{text}")],
        ..Environment::default()
    };
    let mut ask = wanted("codex", &[("alice", "codex"), ("eve", "gemini"), ("tom", "opencode"), ("bob", "opencode")]);
    ask.environments = ["lead", "own"].map(|it| (it.to_owned(), environment(it))).into();
    ask.lead.environment = Some("lead".into());
    ask.members[2].environment = Some("own".into());
    let mut world = World::with(&[]);
    create(&mut world, ask);
    launch_it(&mut world);
    resolve(&mut world, &[]);
    let whose = |who: &str| {
        let profile = &world.board.agents[&agent(&format!("harbour/{who}"))].profile;
        let env = profile.env.first().map_or("none", |it| it.1.as_str()).to_owned();
        (env, profile.keys.len(), profile.args.join(" "))
    };
    assert_eq!(whose("amy"), ("lead".into(), 1, "--lead".into()));
    assert_eq!(
        whose("alice"),
        ("lead".into(), 1, "--lead".into()),
        "a member with the lead's provider and lane has the lead's environment"
    );
    assert_eq!(whose("eve"), ("none".into(), 0, String::new()), "another provider does not get the lead's key");
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
    let mut world = mixed_and_up();
    crashes(&mut world, "tom", Class::Crashed);
    let said = summary(&world);
    let lines: Vec<_> = said.members.iter().map(|it| (it.name.as_str(), it.lead, it.lane, it.state)).collect();
    assert_eq!(
        lines,
        [
            ("amy", true, Some(Kind::Primary), Some(State::Alive)),
            ("alice", false, Some(Kind::Primary), Some(State::Alive)),
            ("tom", false, Some(Kind::Secondary), Some(State::Degraded)),
        ]
    );
    assert_eq!(said.members[2].provider, "opencode");
    // A record that lost its lead, and a team that was never launched.
    let mut sparse = World::with(&[]);
    create(&mut sparse, wanted("codex", &[("tom", "opencode")]));
    assert!(summary(&sparse).members[0].lead);
    let launch = record(&world);
    let members = launch.members.iter().filter(|it| !it.lead).cloned().collect();
    let backup = Backup { team: team(&sparse), launch: Some(Launch { members, ..launch }), extra: BTreeMap::new() };
    sparse.unjudged = true; // the laws reject such a record
    sparse.ask("ann", asks(Ask::Restore { backup }));
    assert!(summary(&sparse).members[0].lead);
}

/// Fields of a newer version survive reading, editing and writing, in every row that people or
/// versions share.
#[test]
fn danger_15_fields_of_a_newer_version_survive() {
    let text = r#"{"name":"harbour","project":"shop","colour":"teal","lead":{"name":"amy","provider":"codex","mood":[1,-2,0.5,null,{"a":true}]},
        "members":[{"name":"tom","provider":"opencode","since":7}],"environments":{"own":{"env":{},"vault":"v"}}}"#;
    let ask: Create = serde_json::from_str(text).unwrap();
    let mut world = World::with(&[]);
    create(&mut world, ask);
    let lead = Member { role: Some("leads".into()), ..team(&world).lead };
    edit(&mut world, Edit { lead: Some(lead), ..Edit::default() }).unwrap();
    world.restart();
    let written = serde_json::to_value(team(&world)).unwrap();
    assert_eq!(written["colour"], "teal");
    assert_eq!(written["lead"]["mood"], serde_json::json!([1, -2, 0.5, null, { "a": true }]));
    assert_eq!(written["members"][0]["since"], 7);
    assert_eq!(written["environments"]["own"]["vault"], "v");
    // The same for the record of a launch, also where an entry is rewritten.
    launch_it(&mut world);
    let tomorrow = |launch: Launch| {
        let mut value = serde_json::to_value(launch).unwrap();
        value["weather"] = "fair".into();
        value["members"][1]["seat"] = 4.into();
        serde_json::from_value::<Launch>(value).unwrap()
    };
    let mut kept = record(&world);
    kept = tomorrow(kept);
    assert_eq!(kept.extra["weather"], Value::Text("fair".into()));
    stop(&mut world);
    let backup =
        Backup { team: team(&world), launch: Some(Launch { updated_wall: u64::MAX, ..kept }), extra: BTreeMap::new() };
    world.ask("ann", asks(Ask::Restore { backup }));
    world.ask("ann", asks(Ask::Retry { team: harbour(), member: name("amy") }));
    let written = serde_json::to_value(record(&world)).unwrap();
    assert_eq!((&written["weather"], &written["members"][1]["seat"]), (&"fair".into(), &4.into()));
}

/// T1: the expected members are the whole roster, whichever members start, fail or are left out.
#[test]
fn danger_16_t1_the_expected_members_are_always_the_whole_roster() {
    let everybody = [name("amy"), name("alice"), name("tom")];
    let mut world = World::with(&[]);
    create(&mut world, wanted("codex", &[("alice", "codex"), ("tom", "opencode")]));
    world.ask("ann", asks(Ask::Launch { team: harbour(), left_out: vec![name("alice")] }));
    let check = |world: &World| {
        assert_eq!(record(world).expected_members, everybody);
        assert_eq!(
            record(world).bootstrap_expected_members,
            everybody[..2],
            "the primary lane's members have their own field"
        );
        assert_eq!(summary(world).expected, 3);
    };
    check(&world);
    resolve(&mut world, &["tom"]);
    check(&world);
    comes_up(&mut world, "amy");
    stop(&mut world);
    ends(&mut world, "amy", Exited::Lost);
    check(&world);
}

#[test]
fn danger_17_a_richer_record_is_preferred_to_a_newer_one() {
    let mut world = stopped();
    let rich = record(&world);
    let poor = Launch { updated_wall: rich.updated_wall + HOUR, ..without_lanes(&rich) };
    assert_eq!(reconcile::prefer(&rich, &poor), Side::Left);
    assert_eq!(reconcile::prefer(&poor, &rich), Side::Right);
    let later = Launch { updated_wall: rich.updated_wall + 1, ..rich.clone() };
    assert_eq!(reconcile::prefer(&rich, &later), Side::Right, "of two equally rich records the newer one is preferred");
    // Restoring the poorer record from a file changes nothing.
    let backup = |launch: Launch| Backup { team: team(&world), launch: Some(launch), extra: BTreeMap::new() };
    let (poorer, richer) = (backup(poor), backup(later));
    world.ask("ann", asks(Ask::Restore { backup: poorer }));
    assert_eq!(record(&world).id, rich.id);
    assert!(record(&world).members.iter().all(|it| it.lane.is_some()));
    world.ask("ann", asks(Ask::Restore { backup: richer }));
    assert_ne!(record(&world).id, rich.id);
}

/// The size of a summary has a limit, also with a hundred members.
#[test]
fn danger_18_a_summary_of_100_members_stays_within_its_size_limit() {
    let long = |nth: usize| format!("{nth:03}{}", "x".repeat(61));
    let provider = "p".repeat(32);
    let mut ask = wanted("codex", &[]);
    ask.members = (0..100).map(|nth| member(&long(nth), &provider)).collect();
    let mut world = World::with(&[]);
    let mut project = world.project("shop", &["cargo test"]);
    project.settings.lanes.policy.insert(provider, Rule::SECONDARY);
    world.ask("ann", Command::AddProject(project));
    create(&mut world, ask);
    launch_it(&mut world);
    let launch = record(&world).id;
    let mut all: Vec<_> = (0..100).map(|nth| missing(&long(nth))).collect();
    for it in &mut all {
        it.problem.as_mut().unwrap().text = "\"\\\n\u{1}\u{fffd}é".repeat(500);
    }
    world.ask("regatta", Command::ReportResolved { launch, found: all });
    let text = serde_json::to_vec(&summary(&world)).unwrap();
    assert!(text.len() < LARGEST_SUMMARY, "{} bytes", text.len());
    assert_eq!(summary(&world).members.len(), 101, "a member is missing from the summary");
}

/// T6: memory, store and log give the same summary, also later, as long as the record is the same.
/// `same_summary` of the end-to-end tests checks the same for the command line, the API, the page
/// and the bus.
#[test]
fn danger_19_t6_every_reader_derives_the_same_summary() {
    let mut world = launched("codex", &[("alice", "codex"), ("tom", "opencode")]);
    let check = |world: &mut World| {
        let of = |board: &regatta_core::board::Board| launch::summary(board, &board.teams[&harbour()]);
        let told = of(&world.board);
        assert_eq!(of(&world.reloaded()), told);
        world.register("somebody-else", 1);
        assert_eq!(of(&world.board), told, "a change outside of the record changed the summary");
    };
    check(&mut world);
    resolve(&mut world, &[]);
    check(&mut world);
    starts(&mut world, "amy");
    check(&mut world);
    turn_ends(&mut world, "amy", 3);
    crashes(&mut world, "alice", Class::Auth);
    check(&mut world);
    stop(&mut world);
    check(&mut world);
}

/// An agent's row is derived from its member. The next launch uses the member's settings, not the
/// agent's.
#[test]
fn danger_20_a_launch_ignores_changes_of_a_members_agent() {
    let mut world = stopped();
    let mut row = crate::world::registers("harbour/tom", 5);
    (row.provider, row.profile.model) = (Some("codex".into()), Some("another".into()));
    world.ask("ann", Command::RegisterAgent(row));
    launch_it(&mut world);
    let tom = entry(&world, "tom");
    assert_eq!((tom.got.provider.as_str(), tom.got.model), ("opencode", None));
    assert!(tom.lane.is_some_and(|it| it.kind == Kind::Secondary), "T4");
}

#[test]
fn danger_21_the_roster_of_a_running_mixed_team_does_not_change() {
    let mut world = mixed_and_up();
    let with = |members: Vec<Member>| Edit { members: Some(members), ..Edit::default() };
    let (alice, tom, eve) = (member("alice", "codex"), member("tom", "opencode"), member("eve", "codex"));
    let changed = Member { model: Some("other".into()), ..tom.clone() };
    for (roster, word) in [
        (vec![alice.clone(), tom.clone(), eve.clone()], "add eve"),
        (vec![tom.clone()], "remove alice"),
        (vec![alice.clone(), eve], "remove tom"),
        (vec![alice.clone(), changed], "change how tom runs"),
    ] {
        let refusal = edit(&mut world, with(roster)).unwrap_err();
        assert!(refusal.message().contains(word), "{}", refusal.message());
        let hint = refusal.hint();
        let order = ["team stop", "team edit", "team relaunch"].map(|it| hint.find(it));
        assert!(order[0].is_some() && order.is_sorted() && order[2].is_some(), "{hint}");
    }
    // The description of a member may be changed while the team runs.
    let words = Member { role: Some("tests".into()), ..tom };
    edit(&mut world, with(vec![alice, words])).unwrap();
    assert_eq!(record(&world).members.len(), 3);
}

/// Each lane's program has its own store, because each member is an agent with its own home
/// directory.
#[test]
fn danger_22_two_lanes_share_no_store() {
    let world = launched("codex", &[("tom", "opencode"), ("bob", "opencode")]);
    let agents: std::collections::BTreeSet<_> = record(&world).members.iter().map(|it| it.agent.clone()).collect();
    assert_eq!(agents.len(), 3);
    // A provider whose members must share one store can have one member only.
    let mut world = World::with(&[]);
    let mut ask = world.project("shop", &["cargo test"]);
    ask.settings.lanes.policy.insert("opencode".into(), Rule { store: Scope::Team, ..Rule::SECONDARY });
    world.ask("ann", Command::AddProject(ask));
    let two = wanted("codex", &[("tom", "opencode"), ("bob", "opencode")]);
    let refusal = world.refused("ann", asks(Ask::Create(two)));
    assert!(refusal.message().contains("at most one opencode member"), "{}", refusal.message());
    assert!(world.board.teams.is_empty(), "the refused team was stored");
    create(&mut world, wanted("codex", &[("tom", "opencode")]));
}

#[test]
fn danger_23_each_lane_has_its_own_model() {
    let mut ask = wanted("codex", &[("tom", "opencode"), ("bob", "opencode")]);
    (ask.members[0].model, ask.members[1].model) = (Some("small".into()), Some("big".into()));
    let mut world = World::with(&[]);
    create(&mut world, ask);
    launch_it(&mut world);
    resolve(&mut world, &[]);
    let model = |who: &str| world.board.agents[&agent(&format!("harbour/{who}"))].profile.model.clone();
    assert_eq!((model("tom"), model("bob")), (Some("small".into()), Some("big".into())));
}

/// A member that is still starting has not failed, and an unknown state is not a failure.
#[test]
fn danger_24_a_starting_or_unknown_member_is_not_a_failure() {
    let mut world = launched("codex", &[("tom", "opencode")]);
    resolve(&mut world, &[]);
    comes_up(&mut world, "amy");
    assert_eq!((state(&world, "tom"), record(&world).outcome()), (State::Starting, Outcome::PartialPending));
    assert_eq!(
        launch::fold([(State::Alive, None), (State::Degraded, Some(Why::LaneUnknown))]),
        Outcome::PartialPending
    );
    assert_eq!(launch::fold([(State::Alive, None), (State::Degraded, Some(Why::Lost))]), Outcome::PartialFailure);
}

#[test]
fn danger_25_the_primary_lanes_success_does_not_clear_other_failures() {
    let mut world = launched("codex", &[("alice", "codex"), ("tom", "opencode"), ("bob", "opencode")]);
    resolve(&mut world, &["bob"]);
    comes_up(&mut world, "amy");
    comes_up(&mut world, "alice");
    assert_eq!(words(&world), ["alive", "alive", "starting", "failed_to_start"]);
    assert!(entry(&world, "bob").cause.is_some());
    comes_up(&mut world, "tom");
    assert_eq!((record(&world).phase(), record(&world).outcome()), (Phase::Finished, Outcome::PartialFailure));
}

/// The failure of the primary lane does not end members that are still attaching.
#[test]
fn danger_26_a_failed_primary_lane_does_not_fail_attaching_members() {
    let mut world = launched("codex", &[("alice", "codex"), ("tom", "opencode")]);
    resolve(&mut world, &[]);
    comes_up(&mut world, "amy");
    crashes(&mut world, "alice", Class::Crashed);
    assert_eq!(words(&world), ["alive", "failed_to_start", "starting"]);
    crashes(&mut world, "amy", Class::Crashed);
    assert_eq!(words(&world), ["degraded", "failed_to_start", "starting"], "tom's start was ended");
    assert_eq!(record(&world).phase(), Phase::Active);
    world.restart();
    assert_eq!(state(&world, "tom"), State::Starting, "a restart ended a live session");
    comes_up(&mut world, "tom");
    assert_eq!((state(&world, "tom"), record(&world).phase()), (State::Alive, Phase::Finished));
}

#[test]
fn danger_27_a_side_lane_is_described_as_attaching_not_bootstrapping() {
    let mut world = launched("codex", &[("alice", "codex"), ("tom", "opencode")]);
    let told = |world: &World| {
        let said = summary(world);
        assert!(!said.said.contains("bootstrap"), "{}", said.said);
        let tom = said.members.iter().find(|it| it.name == name("tom")).unwrap().said.clone();
        assert!(!tom.contains("bootstrap"), "{tom}");
        (said.said, tom)
    };
    assert_eq!(told(&world).1, "waiting to attach, once the lead is up");
    resolve(&mut world, &[]);
    comes_up(&mut world, "amy");
    comes_up(&mut world, "alice");
    assert_eq!(told(&world), ("2 of 3 alive; tom is still attaching".into(), "still attaching".into()));
    starts(&mut world, "tom");
    assert_eq!(state(&world, "tom"), State::PendingBootstrap);
    assert_eq!(told(&world).1, "still attaching");
}

/// The ids of launches only rise, also after a restore.
#[test]
fn a_restored_launch_gets_a_new_id() {
    let mut world = stopped();
    let kept = record(&world);
    let backup = Backup {
        team: team(&world),
        launch: Some(Launch { id: LaunchId(1), updated_wall: u64::MAX, ..kept }),
        extra: BTreeMap::new(),
    };
    world.ask("ann", asks(Ask::Restore { backup }));
    assert_eq!(record(&world).id, LaunchId(2));
    assert_eq!(launch_it(&mut world), LaunchId(3));
}
