//! Teams: launched, watched, relaunched, recovered and stopped as a unit. The laws are checked
//! after every command.

use regatta_core::agent::{Register, Runtime};
use regatta_core::attempt::Exited;
use regatta_core::bus::Post;
use regatta_core::command::{Command, Outcome, PlannedTask};
use regatta_core::effect::Effect;
use regatta_core::extra::{Extra, Value};
use regatta_core::ids::{AttemptId, ChannelName, LaunchId, MemberName, ProjectName, TeamName};
use regatta_core::lane::{Kind, Lanes};
use regatta_core::launch::{self, Cause, Entry, Launch, Live, Phase, Program, Resolution, State, Summary, Why};
use regatta_core::mission::{Mode, Start};
use regatta_core::refusal::Refusal;
use regatta_core::session::{Class, Said, Stop};
use regatta_core::task::{How, IssueType};
use regatta_core::team::{Ask, Create, Edit, Environment, Member, Team, workers};

use crate::world::{World, agent, registers, shop, work};

pub(crate) fn harbour() -> TeamName {
    TeamName::new("harbour").unwrap()
}

pub(crate) fn name(text: &str) -> MemberName {
    MemberName::new(text).unwrap()
}

pub(crate) fn member(text: &str, provider: &str) -> Member {
    Member { provider: Some(provider.to_owned()), ..Member::named(name(text)) }
}

/// Returns a request for the team `harbour` with the lead `amy`.
pub(crate) fn wanted(lead: &str, members: &[(&str, &str)]) -> Create {
    Create {
        name: harbour(),
        project: shop(),
        lead: member("amy", lead),
        members: members.iter().map(|(text, provider)| member(text, provider)).collect(),
        environments: Default::default(),
        extra: Default::default(),
    }
}

pub(crate) fn asks(ask: Ask) -> Command {
    Command::Team(Box::new(ask))
}

pub(crate) fn create(world: &mut World, ask: Create) {
    world.ask("ann", asks(Ask::Create(ask)));
}

/// Returns a world in which the team was launched, but its programs were not resolved yet.
pub(crate) fn launched(lead: &str, members: &[(&str, &str)]) -> World {
    let mut world = World::with(&[]);
    create(&mut world, wanted(lead, members));
    launch_it(&mut world);
    world
}

pub(crate) fn launch_it(world: &mut World) -> LaunchId {
    match world.ask("ann", asks(Ask::Launch { team: harbour(), left_out: vec![] })) {
        Outcome::Launched(Some(id)) => id,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn team(world: &World) -> Team {
    Team::clone(&world.board.teams[&harbour()])
}

pub(crate) fn record(world: &World) -> Launch {
    Launch::clone(launch::of(&world.board, &team(world)).expect("the team was launched"))
}

pub(crate) fn entry(world: &World, text: &str) -> Entry {
    record(world).entry(&name(text)).cloned().unwrap_or_else(|| panic!("{text} is not of the launch"))
}

pub(crate) fn state(world: &World, text: &str) -> State {
    entry(world, text).state
}

/// Returns each member's state, in the order of the roster.
pub(crate) fn states(world: &World) -> Vec<(String, &'static str)> {
    record(world).members.iter().map(|it| (it.name.to_string(), it.state.word())).collect()
}

pub(crate) fn summary(world: &World) -> Summary {
    launch::summary(&world.board, &team(world))
}

pub(crate) fn found(text: &str) -> Resolution {
    Resolution {
        member: name(text),
        runtime: Some(Runtime::Scripted),
        backend: Some("scripted".into()),
        program: Program { path: Some("/usr/bin/agent".into()), version: Some("1.2".into()), ..Program::default() },
        keys: vec![],
        files: vec![],
        fast_mode: None,
        notes: vec![],
        problem: None,
    }
}

pub(crate) fn missing(text: &str) -> Resolution {
    let problem = Some(Cause { kind: Why::Program, text: "opencode is not installed".into() });
    Resolution { runtime: None, backend: None, program: Program::default(), problem, ..found(text) }
}

/// Reports the programs of all queued members. The programs in `not_there` are missing.
pub(crate) fn resolve(world: &mut World, not_there: &[&str]) {
    let launch = record(world);
    let waits = launch.members.iter().filter(|it| it.state == State::Queued && !it.prepared);
    let found = waits.map(|it| it.name.to_string()).map(|it| match not_there.contains(&it.as_str()) {
        true => missing(&it),
        false => found(&it),
    });
    let found = found.collect();
    world.ask("regatta", Command::ReportResolved { launch: launch.id, found });
}

pub(crate) fn session(world: &World, text: &str) -> (AttemptId, u64) {
    let id = entry(world, text).attempt.unwrap_or_else(|| panic!("{text} has no session"));
    (id, world.board.attempts[&id].token)
}

pub(crate) fn says(world: &mut World, text: &str, n: u64, said: Said) {
    let (attempt, token) = session(world, text);
    world.ask("regatta", Command::ReportSaid { attempt, token, n, said });
}

pub(crate) fn starts(world: &mut World, text: &str) {
    let (attempt, token) = session(world, text);
    world.ask("regatta", Command::ReportLaunched { attempt, token, sandbox: None, warnings: vec![] });
    says(world, text, 1, Said::Started { session: Some(format!("s-{text}")), model: Some("m-1".into()) });
    says(world, text, 2, Said::TurnStarted { n: 0 });
}

pub(crate) fn turn_ends(world: &mut World, text: &str, n: u64) {
    says(world, text, n, Said::TurnEnded { stop: Stop::EndTurn, class: None, detail: "ready".into() });
}

pub(crate) fn comes_up(world: &mut World, text: &str) {
    starts(world, text);
    turn_ends(world, text, 3);
}

pub(crate) fn ends(world: &mut World, text: &str, how: Exited) {
    let (attempt, token) = session(world, text);
    world.ask("regatta", Command::ReportExited { attempt, token, how });
}

pub(crate) fn crashes(world: &mut World, text: &str, class: Class) {
    ends(world, text, Exited::Failed { reason: format!("{text} went wrong"), class: Some(class) });
}

pub(crate) fn is_stopping(world: &World, text: &str) -> bool {
    entry(world, text).attempt.is_some_and(|it| world.board.attempts[&it].stopping.is_some())
}

/// Returns a world in which codex leads alice, tom has a lane of his own, and all of them are
/// alive.
pub(crate) fn mixed_and_up() -> World {
    let mut world = launched("codex", &[("alice", "codex"), ("tom", "opencode")]);
    resolve(&mut world, &[]);
    comes_up(&mut world, "amy");
    comes_up(&mut world, "alice");
    comes_up(&mut world, "tom");
    world
}

pub(crate) fn stop(world: &mut World) {
    world.ask("ann", asks(Ask::Stop { team: harbour(), reason: "enough for today".into() }));
}

#[test]
fn a_team_starts_its_primary_lane_first_and_is_up_when_all_members_are_alive() {
    let mut world = launched("codex", &[("alice", "codex"), ("tom", "opencode")]);
    let launch = record(&world);
    assert_eq!(launch.expected_members, [name("amy"), name("alice"), name("tom")]);
    assert_eq!(launch.bootstrap_expected_members, [name("amy"), name("alice")]);
    assert!(world.outbox.values().any(|it| *it == Effect::ResolveTeam { launch: launch.id }));
    assert_eq!(world.board.attempts.len(), 0, "a session started before its program was resolved");

    resolve(&mut world, &[]);
    assert_eq!(states(&world).iter().map(|it| it.1).collect::<Vec<_>>(), ["starting", "starting", "queued"]);
    comes_up(&mut world, "alice");
    assert_eq!(state(&world, "tom"), State::Queued, "a side lane started before the lead was alive");
    comes_up(&mut world, "amy");
    assert_eq!(state(&world, "tom"), State::Starting);
    assert_eq!(record(&world).phase(), Phase::Active);
    comes_up(&mut world, "tom");
    assert_eq!((record(&world).phase(), record(&world).outcome()), (Phase::Finished, launch::Outcome::CleanSuccess));
    assert_eq!(summary(&world).said, "3 of 3 alive");
    let tom = entry(&world, "tom");
    assert_eq!(tom.got.model.as_deref(), Some("m-1"), "the model comes from the session's report");
    assert_eq!(tom.lane.map(|it| (it.id, it.owner)), Some(("opencode:tom".into(), "opencode".into())));
    assert!(tom.evidence.iter().any(|it| it.text.contains("found /usr/bin/agent 1.2")));
}

/// A mission can be given to a team. The members take its tasks, the lead leads, and other agents
/// get none of the tasks.
#[test]
fn the_tasks_of_a_teams_mission_go_to_its_members_only() {
    let mut world = launched("codex", &[("alice", "codex"), ("tom", "opencode")]);
    let none = |world: &World| workers(&world.board, &harbour(), &shop()).map_err(|it| it.code());
    assert_eq!(none(&world), Err("invalid"), "no member was started yet");
    let other = ProjectName::new("elsewhere").unwrap();
    assert!(workers(&world.board, &harbour(), &other).is_err_and(|it| it.message().contains("a team of shop")));
    assert!(workers(&world.board, &TeamName::new("nobody").unwrap(), &shop()).is_err());
    resolve(&mut world, &[]);
    ["alice", "amy", "tom"].into_iter().for_each(|it| comes_up(&mut world, it));
    world.ask("ann", Command::RegisterAgent(registers("ada", 2)));
    let agents = workers(&world.board, &harbour(), &shop()).unwrap();
    assert_eq!(agents, [agent("harbour/alice"), agent("harbour/tom")]);
    let mission = Start {
        project: shop(),
        title: "login".into(),
        agents: vec![agent("harbour/tom")],
        team: Some(harbour()),
        max_workers: 5,
        mode: Mode::Flow,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let tasks = [("a", "a"), ("b", "b")].map(|(subject, file)| PlannedTask {
        task: work(subject, &[file]),
        after: vec![],
        assign: None,
    });
    let start = Command::StartMission { mission, tasks: tasks.to_vec(), adopt: vec![] };
    world.ask("ann", start.clone());
    let started = world.board.missions.values().next_back().unwrap();
    assert_eq!(started.agents, [agent("harbour/tom"), agent("harbour/alice")], "an agent is listed twice");
    assert_eq!(world.poll_supervised("ada"), None, "an agent outside the team got a task");
    assert_eq!(world.poll_supervised("harbour/amy"), None, "the lead got a task");
    assert!(world.poll_supervised("harbour/alice").is_some() && world.poll_supervised("harbour/tom").is_some());
    let mut stopped = mixed_and_up();
    assert!(none(&stopped).is_ok());
    stop(&mut stopped);
    ["tom", "alice", "amy"].into_iter().for_each(|it| ends(&mut stopped, it, Exited::Lost));
    assert_eq!(none(&stopped), Err("invalid"), "the team was stopped");
    // The command itself checks whether the team is up, so an earlier answer does not matter.
    assert!(stopped.refused("ann", start).message().contains("team harbour is not up"));
    let alone = Team { members: vec![], ..team(&world) };
    assert_eq!(alone.workers(), [agent("harbour/amy")], "a lead without members works itself");
}

#[test]
fn stop_ends_side_lanes_first_and_the_team_is_stopped_when_all_sessions_have_ended() {
    let mut world = mixed_and_up();
    stop(&mut world);
    assert!(is_stopping(&world, "tom") && !is_stopping(&world, "amy") && !is_stopping(&world, "alice"));
    assert_eq!(record(&world).phase(), Phase::Active);
    ends(&mut world, "tom", Exited::Lost);
    assert_eq!(state(&world, "tom"), State::Stopped);
    assert!(is_stopping(&world, "amy") && is_stopping(&world, "alice"));
    ends(&mut world, "amy", Exited::Lost);
    assert_eq!(record(&world).phase(), Phase::Active, "alice still runs");
    assert!(launch::is_up(&world.board, &team(&world)));
    ends(&mut world, "alice", Exited::Lost);
    assert_eq!(record(&world).phase(), Phase::Reconciled);
    assert!(!launch::is_up(&world.board, &team(&world)));
    assert_eq!(summary(&world).said, "stopped");
    assert!(world.board.agents.values().all(|it| it.offline.is_some()), "a stopped team takes no work");
    // Stopping a stopped team changes nothing.
    let before = world.board.revision;
    stop(&mut world);
    assert_eq!(world.board.revision, before);
}

#[test]
fn a_team_that_is_stopped_while_it_starts_leaves_nothing() {
    let mut world = launched("codex", &[("tom", "opencode")]);
    stop(&mut world);
    assert_eq!(record(&world).phase(), Phase::Reconciled, "no session had started");
    // The report about the programs arrives after the stop and starts nothing.
    let launch = record(&world).id;
    world.ask("regatta", Command::ReportResolved { launch, found: vec![found("amy"), found("tom")] });
    assert_eq!(world.board.attempts.len(), 0);

    let mut world = launched("codex", &[("tom", "opencode")]);
    resolve(&mut world, &[]);
    stop(&mut world);
    assert_eq!(state(&world, "tom"), State::Stopped);
    ends(&mut world, "amy", Exited::Lost);
    assert_eq!(record(&world).phase(), Phase::Reconciled);
}

#[test]
fn a_relaunch_stops_the_team_first_and_launches_the_stored_members() {
    let mut world = mixed_and_up();
    let first = record(&world).id;
    assert_eq!(world.ask("ann", asks(Ask::Relaunch { team: harbour() })), Outcome::Launched(None));
    for who in ["tom", "amy", "alice"] {
        ends(&mut world, who, Exited::Lost);
    }
    let second = record(&world);
    assert_ne!(second.id, first);
    assert_eq!(states(&world).iter().map(|it| it.1).collect::<Vec<_>>(), ["queued", "queued", "queued"]);
    assert!(!team(&world).again);
    assert!(!world.board.launches.contains_key(&first), "the old launch is still on the board");
    resolve(&mut world, &[]);
    for who in ["amy", "alice", "tom"] {
        comes_up(&mut world, who);
    }
    assert_eq!(record(&world).outcome(), launch::Outcome::CleanSuccess);
    // A stop cancels a pending relaunch.
    world.ask("ann", asks(Ask::Relaunch { team: harbour() }));
    stop(&mut world);
    for who in ["tom", "amy", "alice"] {
        ends(&mut world, who, Exited::Lost);
    }
    assert_eq!((record(&world).id, record(&world).phase()), (second.id, Phase::Reconciled));
}

/// A launch that was stopped before a lane was alive did not reach everything that was requested.
#[test]
fn t2_a_launch_with_a_lane_that_never_was_alive_is_not_a_clean_success() {
    let mut world = launched("codex", &[("tom", "opencode")]);
    resolve(&mut world, &[]);
    comes_up(&mut world, "amy");
    stop(&mut world);
    for who in ["tom", "amy"] {
        ends(&mut world, who, Exited::Lost);
    }
    assert_eq!(states(&world).iter().map(|it| it.1).collect::<Vec<_>>(), ["stopped", "stopped"]);
    assert_eq!(record(&world).outcome(), launch::Outcome::PartialSkipped);
}

#[test]
fn a_retry_starts_only_the_failed_lane() {
    let mut world = launched("codex", &[("tom", "opencode"), ("bob", "opencode")]);
    resolve(&mut world, &["tom"]);
    assert_eq!(state(&world, "tom"), State::FailedToStart);
    comes_up(&mut world, "amy");
    comes_up(&mut world, "bob");
    assert_eq!(record(&world).outcome(), launch::Outcome::PartialFailure);
    let retry = |member: &str| asks(Ask::Retry { team: harbour(), member: name(member) });
    assert!(matches!(world.refused("ann", retry("bob")), Refusal::InUse { .. }));
    world.ask("ann", retry("tom"));
    assert_eq!((state(&world, "tom"), record(&world).phase()), (State::Queued, Phase::Active));
    resolve(&mut world, &[]);
    comes_up(&mut world, "tom");
    assert_eq!(record(&world).outcome(), launch::Outcome::CleanSuccess);
    assert_eq!((entry(&world, "tom").retries, entry(&world, "bob").retries), (1, 0));
}

#[test]
fn a_lead_that_fails_to_start_skips_the_side_lanes_only() {
    let mut world = launched("codex", &[("alice", "codex"), ("tom", "opencode")]);
    resolve(&mut world, &["amy"]);
    assert_eq!(
        states(&world).iter().map(|it| it.1).collect::<Vec<_>>(),
        ["failed_to_start", "starting", "skipped"],
        "a member of the primary lane starts without the lead"
    );
    assert_eq!(entry(&world, "tom").cause.map(|it| it.kind), Some(Why::NoLead));
    let refusal = world.refused("ann", asks(Ask::Retry { team: harbour(), member: name("tom") }));
    assert!(refusal.hint().contains("regatta team retry harbour amy"), "{}", refusal.hint());
}

#[test]
fn a_crash_degrades_one_member_and_records_the_cause() {
    let mut world = mixed_and_up();
    crashes(&mut world, "tom", Class::Crashed);
    assert_eq!(states(&world).iter().map(|it| it.1).collect::<Vec<_>>(), ["alive", "alive", "degraded"]);
    let tom = entry(&world, "tom");
    assert_eq!(tom.cause, Some(Cause { kind: Why::Crashed, text: "tom went wrong".into() }));
    assert_eq!(launch::live(&world.board, &tom, None), Live::Absent);
    assert_eq!(record(&world).outcome(), launch::Outcome::PartialFailure);
    assert_eq!(summary(&world).said, "2 of 3 alive; tom is down");
}

#[test]
fn a_restart_keeps_live_members_and_degrades_lost_ones() {
    let mut world = mixed_and_up();
    world.restart();
    assert_eq!(states(&world).iter().map(|it| it.1).collect::<Vec<_>>(), ["alive", "alive", "alive"]);
    ends(&mut world, "tom", Exited::Lost);
    assert_eq!(states(&world).iter().map(|it| it.1).collect::<Vec<_>>(), ["alive", "alive", "degraded"]);
    assert_eq!(entry(&world, "tom").cause.map(|it| it.kind), Some(Why::Lost));
    world.restart();
    assert_eq!(states(&world).iter().map(|it| it.1).collect::<Vec<_>>(), ["alive", "alive", "degraded"]);
}

#[test]
fn idle_working_hung_and_ending_members_are_distinguished() {
    let mut world = mixed_and_up();
    let at = |world: &World, silent| launch::live(&world.board, &entry(world, "tom"), silent);
    assert_eq!(at(&world, Some(3_600_000)), Live::Idle, "a silent member without a turn is idle");
    let task = entry(&world, "tom").task.unwrap();
    world.ask("ann", Command::Tell { task, text: "look at the tests".into() });
    says(&mut world, "tom", 4, Said::TurnStarted { n: 1 });
    assert_eq!(at(&world, Some(10)), Live::Working);
    assert_eq!(at(&world, Some(world.board.limits.silence_ms)), Live::Hung);
    let (attempt, token) = session(&world, "tom");
    let silence = world.board.limits.silence_ms;
    world.ask("regatta", Command::ReportSilent { attempt, token, since_ms: Some(silence) });
    assert_eq!(at(&world, None), Live::Ending);
    ends(&mut world, "tom", Exited::Lost);
    assert_eq!(entry(&world, "tom").cause.map(|it| it.kind), Some(Why::Hung));
    assert_eq!(state(&world, "tom"), State::Degraded);
    // Silence means nothing for a member that has no turn.
    let (attempt, token) = session(&world, "alice");
    world.ask("regatta", Command::ReportSilent { attempt, token, since_ms: Some(silence) });
    assert_eq!(state(&world, "alice"), State::Alive);
    assert!(!is_stopping(&world, "alice"));
}

/// A standing task is in progress as long as its member runs, and is working only during a turn.
#[test]
fn a_standing_task_is_idle_while_its_member_is() {
    let mut world = mixed_and_up();
    let at = |world: &World, silent| {
        let task = world.task(entry(world, "tom").task.unwrap());
        launch::at(&world.board, task, silent)
    };
    assert_eq!(at(&world, Some(3_600_000)), Some(Live::Idle));
    let other = world.add(work("one", &[]));
    assert_eq!(launch::at(&world.board, world.task(other), None), None, "an ordinary task has no member's session");
    says(&mut world, "tom", 4, Said::TurnStarted { n: 1 });
    assert_eq!(at(&world, Some(10)), Some(Live::Working));
    assert_eq!(at(&world, Some(world.board.limits.silence_ms)), Some(Live::Hung));
    turn_ends(&mut world, "tom", 5);
    assert_eq!(at(&world, None), Some(Live::Idle));
    // While a member works on another task, that task is worked on and its standing task is idle.
    let docs = regatta_core::task::Add { issue_type: IssueType::Docs, ..work("two", &[]) };
    world.add_for(docs, Some("harbour/tom"), How::Direct);
    world.take_supervised("harbour/tom");
    assert_eq!(launch::live(&world.board, &entry(&world, "tom"), None), Live::Working);
    assert_eq!(at(&world, None), Some(Live::Idle));
}

/// T6: the bus gets a message with the summary when a launch has a result and when the result
/// changes.
#[test]
fn t6_the_bus_gets_the_summary_when_it_changes() {
    let mut world = launched("codex", &[("tom", "opencode")]);
    let told = |world: &World| (world.board.counters.message, record(world).told);
    resolve(&mut world, &[]);
    comes_up(&mut world, "amy");
    assert_eq!(told(&world), (0, None), "the launch is under way");
    comes_up(&mut world, "tom");
    assert_eq!(told(&world), (1, Some(summary(&world).said)));
    world.restart();
    assert_eq!(told(&world).0, 1, "an unchanged summary was posted again");
    crashes(&mut world, "tom", Class::Crashed);
    assert_eq!(told(&world), (2, Some("1 of 2 alive; tom is down".into())));
    stop(&mut world);
    ends(&mut world, "amy", Exited::Lost);
    assert_eq!(told(&world), (3, Some(summary(&world).said)));
}

#[test]
fn a_message_reaches_the_mentioned_members_only() {
    let mut world = mixed_and_up();
    let told = |world: &World, who: &str| world.board.attempts[&entry(world, who).attempt.unwrap()].talk.tells.clone();
    let post = |channel: &str, text: &str| {
        let channel = ChannelName::new(channel).unwrap();
        Command::Post(Post { channel, text: text.into(), labels: vec![], reply_to: None })
    };
    world.ask("harbour/amy", post("@harbour/tom", "take the parser"));
    world.ask("ann", post("harbour", "@harbour/alice and @harbour/amy: lunch"));
    world.ask("harbour/tom", post("harbour", "@harbour/tom notes to myself"));
    assert_eq!(told(&world, "tom").len(), 1);
    assert!(told(&world, "tom")[0].contains("from harbour/amy") && told(&world, "tom")[0].contains("take the parser"));
    assert_eq!((told(&world, "alice").len(), told(&world, "amy").len()), (1, 1));
    // The end of a turn does not end the member's session.
    says(&mut world, "tom", 4, Said::TurnStarted { n: 1 });
    turn_ends(&mut world, "tom", 5);
    assert_eq!(state(&world, "tom"), State::Alive);
    assert!(!world.board.attempts[&session(&world, "tom").0].talk.closing);
}

#[test]
fn a_member_takes_at_most_max_tasks_besides_its_session() {
    let mut world = mixed_and_up();
    let docs = |it: &str| regatta_core::task::Add { issue_type: IssueType::Docs, ..work(it, &[]) };
    let first = world.add_for(docs("one"), Some("harbour/tom"), How::Direct);
    world.add_for(docs("two"), Some("harbour/tom"), How::Queue);
    let grant = world.take_supervised("harbour/tom");
    assert_eq!(grant.task, first);
    assert!(world.poll_supervised("harbour/tom").is_none(), "max_tasks is 1, not counting the session");
    // A stop ends the task's attempt, too, and the task waits.
    stop(&mut world);
    assert!(world.board.attempts[&grant.attempt].stopping.is_some());
    ends(&mut world, "tom", Exited::Lost);
    assert!(!is_stopping(&world, "amy"), "tom still works");
    let (attempt, token) = (grant.attempt, grant.token);
    world.ask("regatta", Command::ReportExited { attempt, token, how: Exited::Lost });
    assert!(is_stopping(&world, "amy"));
    assert_eq!(world.task(first).status, regatta_core::task::Status::Pending);
}

#[test]
fn side_lanes_start_only_as_many_at_a_time_as_configured() {
    let mut world = World::with(&[]);
    let mut ask = world.project("shop", &["cargo test"]);
    ask.settings.lanes = Lanes { concurrency: 2, ..Lanes::default() };
    world.ask("ann", Command::AddProject(ask));
    let names = ["a", "b", "c", "d", "e"];
    create(&mut world, wanted("codex", &names.map(|it| (it, "opencode"))));
    launch_it(&mut world);
    resolve(&mut world, &[]);
    comes_up(&mut world, "amy");
    let coming = |world: &World| record(world).members.iter().filter(|it| it.state == State::Starting).count();
    assert_eq!(coming(&world), 2);
    comes_up(&mut world, "a");
    assert_eq!((coming(&world), state(&world, "c")), (2, State::Starting));
    crashes(&mut world, "b", Class::Crashed);
    assert_eq!(
        (coming(&world), state(&world, "d")),
        (2, State::Starting),
        "a failed lane did not make room for the next"
    );
}

#[test]
fn a_rate_limited_provider_is_replaced_only_if_failover_is_configured() {
    let limited = |world: &mut World| {
        // A member of that provider hits the rate limit.
        crashes(world, "alice", Class::RateLimit);
        stop(world);
        for who in ["tom", "amy"] {
            ends(world, who, Exited::Lost);
        }
    };
    let mut world = mixed_and_up();
    limited(&mut world);
    launch_it(&mut world);
    assert_eq!(entry(&world, "alice").got.provider, "codex", "the member was moved without a failover rule");
    resolve(&mut world, &[]);
    assert_eq!(entry(&world, "alice").cause.map(|it| it.kind), Some(Why::Provider));

    let mut world = mixed_and_up();
    let mut ask = world.project("shop", &["cargo test"]);
    ask.settings.lanes.failover.insert("codex".into(), vec!["anthropic".into()]);
    world.ask("ann", Command::AddProject(ask));
    limited(&mut world);
    launch_it(&mut world);
    let alice = entry(&world, "alice");
    assert_eq!((alice.asked.provider.as_str(), alice.got.provider.as_str()), ("codex", "anthropic"));
    assert!(alice.notes[0].starts_with("moved from codex to anthropic"), "{:?}", alice.notes);
}

#[test]
fn a_launch_can_leave_out_a_member_but_not_the_lead() {
    let mut world = World::with(&[]);
    create(&mut world, wanted("codex", &[("tom", "opencode")]));
    let ask = |who: &str| asks(Ask::Launch { team: harbour(), left_out: vec![name(who)] });
    assert!(matches!(world.refused("ann", ask("amy")), Refusal::Invalid { .. }));
    world.ask("ann", ask("tom"));
    resolve(&mut world, &[]);
    comes_up(&mut world, "amy");
    assert_eq!(record(&world).outcome(), launch::Outcome::PartialSkipped);
    assert_eq!(record(&world).expected_members.len(), 2, "T1");
}

#[test]
fn undelete_restores_the_team_and_its_last_launch() {
    let mut world = mixed_and_up();
    let delete = asks(Ask::Delete { team: harbour() });
    assert!(matches!(world.refused("ann", delete.clone()), Refusal::TeamRuns { .. }));
    stop(&mut world);
    for who in ["tom", "amy", "alice"] {
        ends(&mut world, who, Exited::Lost);
    }
    let (before, launch) = (team(&world), record(&world));
    world.ask("ann", delete);
    assert!(matches!(
        world.refused("ann", asks(Ask::Launch { team: harbour(), left_out: vec![] })),
        Refusal::NoSuchTeam { .. }
    ));
    assert!(summary(&world).deleted);
    world.ask("ann", asks(Ask::Undelete { team: harbour() }));
    assert_eq!(Team { updated_wall: before.updated_wall, ..team(&world) }, before);
    assert_eq!(record(&world), launch);
}

#[test]
fn a_session_with_a_full_context_is_replaced_by_a_new_one() {
    let mut world = mixed_and_up();
    let first = session(&world, "tom").0;
    crashes(&mut world, "tom", Class::ContextFull);
    assert_ne!(session(&world, "tom").0, first);
    assert_eq!(state(&world, "tom"), State::Starting);
    comes_up(&mut world, "tom");
    assert_eq!(record(&world).outcome(), launch::Outcome::CleanSuccess);
}

#[test]
fn a_team_that_was_never_launched_can_be_edited() {
    let mut world = World::with(&[]);
    create(&mut world, wanted("codex", &[("tom", "opencode")]));
    let edit = Edit { members: Some(vec![member("eve", "codex")]), ..Edit::default() };
    world.ask("ann", asks(Ask::Edit { team: harbour(), edit }));
    assert_eq!(team(&world).members, [member("eve", "codex")]);
    let wrong = Edit { lead: Some(member("amy", "opencode")), ..Edit::default() };
    let refusal = world.refused("ann", asks(Ask::Edit { team: harbour(), edit: wrong }));
    assert!(refusal.message().contains("opencode cannot lead a mixed team"), "{}", refusal.message());
    assert_eq!(team(&world).lead, member("amy", "codex"), "the refused edit changed the team");
    assert!(world.board.launches.is_empty());
    assert_eq!(entry_kinds(&world), [Kind::Primary]);
}

/// Returns the kinds of the lanes that a launch would have now.
fn entry_kinds(world: &World) -> Vec<Kind> {
    let (lead, members) = team(world).seats();
    let plan = regatta_core::lane::plan(&lead, &members, &Lanes::default()).unwrap();
    plan.lanes.iter().map(|it| it.kind).collect()
}

#[test]
fn a_member_is_an_agent_with_its_own_name() {
    let world = mixed_and_up();
    let tom = &world.board.agents[&agent("harbour/tom")];
    assert_eq!((tom.provider.as_deref(), tom.max_tasks), (Some("opencode"), 1));
    assert!(tom.offline.is_none());
    assert_eq!(world.board.attempts[&session(&world, "tom").0].agent, agent("harbour/tom"));
}

/// D9: an unknown field with the name of a stored field would be written next to it, and the row
/// could not be read again. Such a field is refused, also in an edit. Other unknown fields are
/// kept.
#[test]
fn d9_an_unknown_field_with_the_name_of_a_stored_field_is_refused() {
    let stored = ["launch", "again", "deleted_wall", "created_wall", "updated_wall"];
    let extra = |name: &str| Extra::from([(name.to_owned(), Value::Whole(7))]);
    let refused = |world: &mut World, ask: Ask, field: &str| {
        let said = format!("{:?}", world.refused("ann", asks(ask)));
        assert!(said.contains(&format!("{field} cannot be set")), "{field}: {said}");
    };
    let mut world = World::with(&[]);
    for field in stored {
        refused(&mut world, Ask::Create(Create { extra: extra(field), ..wanted("codex", &[]) }), field);
    }
    create(&mut world, Create { extra: extra("colour"), ..wanted("codex", &[]) });
    for field in stored.into_iter().chain(["name", "project"]) {
        let edit = Edit { extra: extra(field), ..Edit::default() };
        refused(&mut world, Ask::Edit { team: harbour(), edit }, field);
    }
    let edit = Edit { extra: extra("weather"), ..Edit::default() };
    world.ask("ann", asks(Ask::Edit { team: harbour(), edit }));
    let kept: Vec<&String> = world.board.teams[&harbour()].extra.keys().collect();
    assert_eq!(kept, ["colour", "weather"]);
}

/// Common names of providers give the same team as the providers' own names.
#[test]
fn common_names_of_providers_make_the_same_lanes() {
    let mut world = launched("claude", &[("alice", "Codex"), ("bob", "openai"), ("tom", "OpenCode")]);
    let lanes: Vec<(String, String)> =
        record(&world).members.iter().map(|it| (it.got.provider.clone(), it.lane.clone().unwrap().id)).collect();
    let expected = [("anthropic", "primary"), ("codex", "primary"), ("codex", "primary"), ("opencode", "opencode:tom")];
    assert_eq!(lanes, expected.map(|(provider, lane)| (provider.to_owned(), lane.to_owned())));
    resolve(&mut world, &[]);
    let provider = |text: &str| world.board.agents[&team(&world).agent(&name(text))].provider.clone();
    assert_eq!((provider("amy").as_deref(), provider("tom").as_deref()), (Some("anthropic"), Some("opencode")));
}

/// Tasks and agents store the provider's own name, whichever of its names they were given.
#[test]
fn a_providers_common_name_is_stored_as_its_own_name() {
    let mut world = World::with(&[]);
    world.ask("ann", Command::RegisterAgent(Register { provider: Some("OpenAI".into()), ..registers("bob", 1) }));
    let mut ask = work("a", &["a.txt"]);
    ask.provider = Some("Codex".into());
    world.ask("ann", Command::AddTask { task: ask, assign: None, how: How::Queue });
    assert_eq!(world.board.agents[&agent("bob")].provider.as_deref(), Some("codex"));
    assert!(world.board.tasks.values().all(|task| task.provider.as_deref() == Some("codex")));
}

/// A field that is probably misspelt is refused, in a new team and in an edit. Other unknown fields
/// may come from a newer version and are kept.
#[test]
fn misspelt_fields_and_unknown_providers_are_refused_with_a_hint() {
    let mut world = World::with(&[]);
    let extra = |name: &str| Extra::from([(name.to_owned(), Value::Text("opencode".into()))]);
    let with = |field: &str| {
        let mut ask = wanted("codex", &[]);
        ask.members = vec![Member { extra: extra(field), ..Member::named(name("tom")) }];
        ask
    };
    let refusal = world.refused("ann", asks(Ask::Create(with("provder"))));
    assert_eq!(
        (refusal.message().as_str(), refusal.hint().as_str()),
        ("member tom has no field provder", "write provider")
    );
    for (provider, hint) in [("codx", "write codex"), ("acme", "[lanes.policy] acme = \"secondary\"")] {
        let refusal = world.refused("ann", asks(Ask::Create(wanted("codex", &[("tom", provider)]))));
        assert!(refusal.message().contains(&format!("the provider of tom is unknown: {provider}")), "{refusal:?}");
        assert!(refusal.hint().contains(hint), "{refusal:?}");
    }
    create(&mut world, with("x_future"));
    let edit = Edit { members: Some(with("mdel").members), ..Edit::default() };
    let refusal = world.refused("ann", asks(Ask::Edit { team: harbour(), edit }));
    assert_eq!(refusal.hint(), "write model");
}

/// The lists that the spelling check uses contain exactly the fields that are written.
#[test]
fn the_known_fields_of_a_team_file_are_the_fields_that_are_written() {
    let schema = |value: serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let text = |word: &str| Some(word.to_owned());
    let member = Member {
        role: text("a"),
        workflow: text("a"),
        isolation: Some(regatta_core::team::Isolation::Worktree),
        provider: text("a"),
        backend: text("a"),
        model: text("a"),
        effort: text("a"),
        fast_mode: Some(true),
        cwd: text("a"),
        environment: text("a"),
        max_tasks: Some(1),
        script: text("[]"),
        ..Member::named(name("tom"))
    };
    let environment = Environment {
        mode: text("a"),
        confine: Some(regatta_core::agent::Level::Off),
        egress: vec!["a".into()],
        read: vec!["a".into()],
        write: vec!["a".into()],
        ..Environment::default()
    };
    let sorted = |fields: &[&str]| {
        let mut fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        fields.sort_unstable();
        fields
    };
    assert_eq!(schema(serde_json::to_value(member).unwrap()), sorted(Member::FIELDS));
    assert_eq!(schema(serde_json::to_value(environment).unwrap()), sorted(Environment::FIELDS));
}
