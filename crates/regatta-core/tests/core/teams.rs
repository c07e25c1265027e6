//! Teams: launched, watched, relaunched, recovered and stopped as a unit. The laws are checked
//! after every command.

mod failures;
mod settings;

use regatta_core::agent::{RegisterAgent, Runtime};
use regatta_core::agent_protocol::{AgentEvent, FailureClass, StopReason};
use regatta_core::attempt::ProgramExit;
use regatta_core::bus::PostMessage;
use regatta_core::command::{Command, CommandOutcome, PlannedTask, Report};
use regatta_core::display::{self, DisplayState, ProgramActivity};
use regatta_core::effect::Effect;
use regatta_core::ids::{AttemptId, ChannelName, LaunchId, MemberName, ProjectName, TeamName};
use regatta_core::lane::{LaneKind, LaneSettings};
use regatta_core::launch::{
    self, LaunchEntry, LaunchPhase, MemberActivity, MemberCause, MemberCauseKind, MemberResolution,
    MemberState, ProgramFacts, TeamLaunch, TeamSummary,
};
use regatta_core::mission::{StartMission, StartMode};
use regatta_core::refusal::Refusal;
use regatta_core::task::{AssignMode, IssueType};
use regatta_core::team::{
    CreateTeam, EditTeam, Team, TeamCommand, TeamEnvironment, TeamMember, workers,
};
use regatta_core::unknown_fields::{ExtraValue, UnknownFields};

use crate::world::{World, agent, registration, shop, task_to_add};

pub(crate) fn team_name() -> TeamName {
    TeamName::new("harbour").unwrap()
}

pub(crate) fn member_name(name: &str) -> MemberName {
    MemberName::new(name).unwrap()
}

pub(crate) fn member(name: &str, provider: &str) -> TeamMember {
    TeamMember {
        provider: Some(provider.to_owned()),
        ..TeamMember::named(member_name(name))
    }
}

/// Returns a request for the team `team_name` with the lead `amy`.
pub(crate) fn team_settings(lead: &str, members: &[(&str, &str)]) -> CreateTeam {
    CreateTeam {
        name: team_name(),
        project: shop(),
        lead: member("amy", lead),
        members: members
            .iter()
            .map(|(name, provider)| member(name, provider))
            .collect(),
        environments: Default::default(),
        extra: Default::default(),
    }
}

pub(crate) fn team_command(command: TeamCommand) -> Command {
    Command::Team(Box::new(command))
}

pub(crate) fn create_team(world: &mut World, request: CreateTeam) {
    world.ask("ann", team_command(TeamCommand::Create(request)));
}

/// Returns a world in which the team was launched, but its programs were not resolved yet.
pub(crate) fn launched_world(lead: &str, members: &[(&str, &str)]) -> World {
    let mut world = World::with_agents(&[]);
    create_team(&mut world, team_settings(lead, members));
    launch_team(&mut world);
    world
}

pub(crate) fn launch_team(world: &mut World) -> LaunchId {
    match world.ask(
        "ann",
        team_command(TeamCommand::Launch {
            team: team_name(),
            left_out: vec![],
        }),
    ) {
        CommandOutcome::Launched(Some(id)) => id,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn team(world: &World) -> Team {
    Team::clone(&world.board.teams[&team_name()])
}

pub(crate) fn launch_record(world: &World) -> TeamLaunch {
    TeamLaunch::clone(
        launch::latest_launch(&world.board, &team(world)).expect("the team was launched"),
    )
}

pub(crate) fn launch_entry(world: &World, name: &str) -> LaunchEntry {
    launch_record(world)
        .entry(&member_name(name))
        .cloned()
        .unwrap_or_else(|| panic!("{name} is not in the launch"))
}

pub(crate) fn member_state(world: &World, name: &str) -> MemberState {
    launch_entry(world, name).state
}

/// Returns each member's state, in the order of the roster.
pub(crate) fn member_states(world: &World) -> Vec<(String, &'static str)> {
    launch_record(world)
        .members
        .iter()
        .map(|entry| (entry.name.to_string(), entry.state.name()))
        .collect()
}

pub(crate) fn team_summary(world: &World) -> TeamSummary {
    launch::summary(&world.board, &team(world))
}

pub(crate) fn resolution_found(name: &str) -> MemberResolution {
    MemberResolution {
        member: member_name(name),
        runtime: Some(Runtime::Scripted),
        backend: Some("scripted".into()),
        program: ProgramFacts {
            path: Some("/usr/bin/agent".into()),
            version: Some("1.2".into()),
            ..ProgramFacts::default()
        },
        keys: vec![],
        files: vec![],
        fast_mode: None,
        notes: vec![],
        problem: None,
    }
}

pub(crate) fn resolution_missing(name: &str) -> MemberResolution {
    let problem = Some(MemberCause {
        kind: MemberCauseKind::Program,
        text: "opencode is not installed".into(),
    });
    MemberResolution {
        runtime: None,
        backend: None,
        program: ProgramFacts::default(),
        problem,
        ..resolution_found(name)
    }
}

/// Reports the programs of all queued members. The programs in `missing` are missing.
pub(crate) fn report_resolutions(world: &mut World, missing: &[&str]) {
    let launch = launch_record(world);
    let queued = launch
        .members
        .iter()
        .filter(|entry| entry.state == MemberState::Queued && !entry.prepared);
    let found = queued.map(|entry| {
        let name = entry.name.to_string();
        if missing.contains(&name.as_str()) {
            resolution_missing(&name)
        } else {
            resolution_found(&name)
        }
    });
    let found = found.collect();
    world.report(Report::TeamResolved {
        launch: launch.id,
        found,
    });
}

pub(crate) fn session_of(world: &World, name: &str) -> (AttemptId, u64) {
    let id = launch_entry(world, name)
        .attempt
        .unwrap_or_else(|| panic!("{name} has no session"));
    (id, world.board.attempts[&id].token)
}

pub(crate) fn report_event(world: &mut World, name: &str, n: u64, event: AgentEvent) {
    let (attempt, token) = session_of(world, name);
    world.report(Report::AgentEvent {
        attempt,
        token,
        n,
        event,
    });
}

pub(crate) fn start_session(world: &mut World, name: &str) {
    let (attempt, token) = session_of(world, name);
    world.report(Report::Launched {
        attempt,
        token,
        sandbox: None,
        warnings: vec![],
    });
    report_event(
        world,
        name,
        1,
        AgentEvent::Started {
            session: Some(format!("s-{name}")),
            model: Some("m-1".into()),
        },
    );
    report_event(world, name, 2, AgentEvent::TurnStarted { n: 0 });
}

pub(crate) fn end_turn(world: &mut World, name: &str, n: u64) {
    report_event(
        world,
        name,
        n,
        AgentEvent::TurnEnded {
            stop: StopReason::EndTurn,
            class: None,
            detail: "ready".into(),
        },
    );
}

pub(crate) fn bring_up(world: &mut World, name: &str) {
    start_session(world, name);
    end_turn(world, name, 3);
}

pub(crate) fn end_session(world: &mut World, name: &str, exit: ProgramExit) {
    let (attempt, token) = session_of(world, name);
    world.report(Report::Exited {
        attempt,
        token,
        exit,
    });
}

pub(crate) fn crash_session(world: &mut World, name: &str, class: FailureClass) {
    end_session(
        world,
        name,
        ProgramExit::Failed {
            reason: format!("{name} went wrong"),
            class: Some(class),
        },
    );
}

pub(crate) fn is_stopping(world: &World, name: &str) -> bool {
    launch_entry(world, name)
        .attempt
        .is_some_and(|id| world.board.attempts[&id].stopping.is_some())
}

/// Returns a world in which codex leads alice, tom has a lane of his own, and all of them are
/// alive.
pub(crate) fn running_mixed_team() -> World {
    let mut world = launched_world("codex", &[("alice", "codex"), ("tom", "opencode")]);
    report_resolutions(&mut world, &[]);
    bring_up(&mut world, "amy");
    bring_up(&mut world, "alice");
    bring_up(&mut world, "tom");
    world
}

pub(crate) fn stop_team(world: &mut World) {
    world.ask(
        "ann",
        team_command(TeamCommand::Stop {
            team: team_name(),
            reason: "enough for today".into(),
        }),
    );
}

#[test]
fn a_team_starts_its_primary_lane_first_and_is_up_when_all_members_are_alive() {
    let mut world = launched_world("codex", &[("alice", "codex"), ("tom", "opencode")]);
    let launch = launch_record(&world);
    assert_eq!(
        launch.expected_members,
        [member_name("amy"), member_name("alice"), member_name("tom")]
    );
    assert_eq!(
        launch.bootstrap_expected_members,
        [member_name("amy"), member_name("alice")]
    );
    assert!(
        world
            .outbox
            .values()
            .any(|effect| *effect == Effect::ResolveTeam { launch: launch.id })
    );
    assert_eq!(
        world.board.attempts.len(),
        0,
        "a session started before its program was resolved"
    );

    report_resolutions(&mut world, &[]);
    assert_eq!(
        member_states(&world)
            .iter()
            .map(|member_state| member_state.1)
            .collect::<Vec<_>>(),
        ["starting", "starting", "queued"]
    );
    bring_up(&mut world, "alice");
    assert_eq!(
        member_state(&world, "tom"),
        MemberState::Queued,
        "a side lane started before the lead was alive"
    );
    bring_up(&mut world, "amy");
    assert_eq!(member_state(&world, "tom"), MemberState::Starting);
    assert_eq!(launch_record(&world).phase(), LaunchPhase::Active);
    bring_up(&mut world, "tom");
    assert_eq!(
        (
            launch_record(&world).phase(),
            launch_record(&world).outcome()
        ),
        (LaunchPhase::Finished, launch::LaunchOutcome::CleanSuccess)
    );
    assert_eq!(team_summary(&world).headline, "3 of 3 alive");
    let tom = launch_entry(&world, "tom");
    assert_eq!(
        tom.effective.model.as_deref(),
        Some("m-1"),
        "the model comes from the session's report"
    );
    assert_eq!(
        tom.lane.map(|lane_ref| (lane_ref.id, lane_ref.owner)),
        Some(("opencode:tom".into(), "opencode".into()))
    );
    assert!(
        tom.evidence
            .iter()
            .any(|member_evidence| member_evidence.text.contains("found /usr/bin/agent 1.2"))
    );
}

/// A mission can be given to a team. The members take its tasks, the lead leads, and other agents
/// get none of the tasks.
#[test]
fn the_tasks_of_a_teams_mission_go_to_its_members_only() {
    let mut world = launched_world("codex", &[("alice", "codex"), ("tom", "opencode")]);
    let none = |world: &World| {
        workers(&world.board, &team_name(), &shop()).map_err(|refusal| refusal.code())
    };
    assert_eq!(none(&world), Err("invalid"), "no member was started yet");
    let other = ProjectName::new("elsewhere").unwrap();
    assert!(
        workers(&world.board, &team_name(), &other)
            .is_err_and(|refusal| refusal.message().contains("belongs to project shop"))
    );
    assert!(workers(&world.board, &TeamName::new("nobody").unwrap(), &shop()).is_err());
    report_resolutions(&mut world, &[]);
    ["alice", "amy", "tom"]
        .into_iter()
        .for_each(|member| bring_up(&mut world, member));
    world.ask("ann", Command::RegisterAgent(registration("ada", 2)));
    let agents = workers(&world.board, &team_name(), &shop()).unwrap();
    assert_eq!(agents, [agent("harbour/alice"), agent("harbour/tom")]);
    let mission = StartMission {
        project: shop(),
        title: "login".into(),
        agents: vec![agent("harbour/tom")],
        team: Some(team_name()),
        max_workers: 5,
        mode: StartMode::Flow,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let tasks = [("a", "a"), ("b", "b")].map(|(subject, file)| PlannedTask {
        task: task_to_add(subject, &[file]),
        after: vec![],
        assign: None,
    });
    let start = Command::StartMission {
        mission,
        tasks: tasks.to_vec(),
        adopt: vec![],
    };
    world.ask("ann", start.clone());
    let started = world.board.missions.values().next_back().unwrap();
    assert_eq!(
        started.agents,
        [agent("harbour/tom"), agent("harbour/alice")],
        "an agent is listed twice"
    );
    assert_eq!(
        world.poll_supervised("ada"),
        None,
        "an agent outside the team got a task"
    );
    assert_eq!(
        world.poll_supervised("harbour/amy"),
        None,
        "the lead got a task"
    );
    assert!(
        world.poll_supervised("harbour/alice").is_some()
            && world.poll_supervised("harbour/tom").is_some()
    );
    let mut stopped = running_mixed_team();
    assert!(none(&stopped).is_ok());
    stop_team(&mut stopped);
    ["tom", "alice", "amy"]
        .into_iter()
        .for_each(|member| end_session(&mut stopped, member, ProgramExit::Lost));
    assert_eq!(none(&stopped), Err("invalid"), "the team was stopped");
    // The command itself checks whether the team is up, so an earlier answer does not matter.
    assert!(
        stopped
            .ask_refused("ann", start)
            .message()
            .contains("team harbour does not run")
    );
    let alone = Team {
        members: vec![],
        ..team(&world)
    };
    assert_eq!(
        alone.workers(),
        [agent("harbour/amy")],
        "a lead without members works itself"
    );
}

#[test]
fn stop_ends_side_lanes_first_and_the_team_is_stopped_when_all_sessions_have_ended() {
    let mut world = running_mixed_team();
    stop_team(&mut world);
    assert!(
        is_stopping(&world, "tom") && !is_stopping(&world, "amy") && !is_stopping(&world, "alice")
    );
    assert_eq!(launch_record(&world).phase(), LaunchPhase::Active);
    end_session(&mut world, "tom", ProgramExit::Lost);
    assert_eq!(member_state(&world, "tom"), MemberState::Stopped);
    assert!(is_stopping(&world, "amy") && is_stopping(&world, "alice"));
    end_session(&mut world, "amy", ProgramExit::Lost);
    assert_eq!(
        launch_record(&world).phase(),
        LaunchPhase::Active,
        "alice still runs"
    );
    assert!(launch::is_up(&world.board, &team(&world)));
    end_session(&mut world, "alice", ProgramExit::Lost);
    assert_eq!(launch_record(&world).phase(), LaunchPhase::Reconciled);
    assert!(!launch::is_up(&world.board, &team(&world)));
    assert_eq!(team_summary(&world).headline, "stopped");
    assert!(
        world
            .board
            .agents
            .values()
            .all(|agent| agent.offline.is_some()),
        "a stopped team takes no work"
    );
    // Stopping a stopped team changes nothing.
    let before = world.board.revision;
    stop_team(&mut world);
    assert_eq!(world.board.revision, before);
}

#[test]
fn a_team_that_is_stopped_while_it_starts_leaves_nothing() {
    let mut world = launched_world("codex", &[("tom", "opencode")]);
    stop_team(&mut world);
    assert_eq!(
        launch_record(&world).phase(),
        LaunchPhase::Reconciled,
        "no session had started"
    );
    // The report about the programs arrives after the stop and starts nothing.
    let launch = launch_record(&world).id;
    world.report(Report::TeamResolved {
        launch,
        found: vec![resolution_found("amy"), resolution_found("tom")],
    });
    assert_eq!(world.board.attempts.len(), 0);

    let mut world = launched_world("codex", &[("tom", "opencode")]);
    report_resolutions(&mut world, &[]);
    stop_team(&mut world);
    assert_eq!(member_state(&world, "tom"), MemberState::Stopped);
    end_session(&mut world, "amy", ProgramExit::Lost);
    assert_eq!(launch_record(&world).phase(), LaunchPhase::Reconciled);
}

#[test]
fn a_relaunch_stops_the_team_first_and_launches_the_stored_members() {
    let mut world = running_mixed_team();
    let first = launch_record(&world).id;
    assert_eq!(
        world.ask(
            "ann",
            team_command(TeamCommand::Relaunch { team: team_name() })
        ),
        CommandOutcome::Launched(None)
    );
    for name in ["tom", "amy", "alice"] {
        end_session(&mut world, name, ProgramExit::Lost);
    }
    let second = launch_record(&world);
    assert_ne!(second.id, first);
    assert_eq!(
        member_states(&world)
            .iter()
            .map(|member_state| member_state.1)
            .collect::<Vec<_>>(),
        ["queued", "queued", "queued"]
    );
    assert!(!team(&world).relaunch_after_stop);
    assert!(
        !world.board.launches.contains_key(&first),
        "the old launch is still on the board"
    );
    report_resolutions(&mut world, &[]);
    for name in ["amy", "alice", "tom"] {
        bring_up(&mut world, name);
    }
    assert_eq!(
        launch_record(&world).outcome(),
        launch::LaunchOutcome::CleanSuccess
    );
    // A stop cancels a pending relaunch.
    world.ask(
        "ann",
        team_command(TeamCommand::Relaunch { team: team_name() }),
    );
    stop_team(&mut world);
    for name in ["tom", "amy", "alice"] {
        end_session(&mut world, name, ProgramExit::Lost);
    }
    assert_eq!(
        (launch_record(&world).id, launch_record(&world).phase()),
        (second.id, LaunchPhase::Reconciled)
    );
}

#[test]
fn idle_working_hung_and_ending_members_are_distinguished() {
    let mut world = running_mixed_team();
    let at = |world: &World| launch::activity(&world.board, &launch_entry(world, "tom"));
    let silence = world.board.limits.silence_ms;
    report_silence(&mut world, "tom", Some(silence));
    assert_eq!(
        at(&world),
        MemberActivity::Idle,
        "a silent member without a turn is idle"
    );
    let task = launch_entry(&world, "tom").task.unwrap();
    world.ask(
        "ann",
        Command::Tell {
            task,
            text: "look at the tests".into(),
        },
    );
    report_event(&mut world, "tom", 4, AgentEvent::TurnStarted { n: 1 });
    report_silence(&mut world, "tom", Some(silence / 2 - 1));
    assert_eq!(at(&world), MemberActivity::Working);
    report_silence(&mut world, "tom", Some(silence / 2));
    assert_eq!(at(&world), MemberActivity::Hung);
    report_silence(&mut world, "tom", None);
    assert_eq!(at(&world), MemberActivity::Working);
    report_silence(&mut world, "tom", Some(silence));
    assert_eq!(at(&world), MemberActivity::Stopping);
    end_session(&mut world, "tom", ProgramExit::Lost);
    assert_eq!(
        launch_entry(&world, "tom")
            .cause
            .map(|member_cause| member_cause.kind),
        Some(MemberCauseKind::Hung)
    );
    assert_eq!(member_state(&world, "tom"), MemberState::Degraded);
    // Silence means nothing for a member that has no turn.
    report_silence(&mut world, "alice", Some(silence));
    assert_eq!(member_state(&world, "alice"), MemberState::Alive);
    assert!(!is_stopping(&world, "alice"));
}

/// Reports that a member's program has written nothing for this time, or that the program is active
/// again.
fn report_silence(world: &mut World, name: &str, since_ms: Option<u64>) {
    let (attempt, token) = session_of(world, name);
    world.report(Report::Silent {
        attempt,
        token,
        since_ms,
    });
}

/// W2: the session of a member whose program writes nothing is shown as hung in every view: the
/// task of the session, its agent, and the activity of the program.
#[test]
fn w2_a_hung_session_is_hung_in_every_view() {
    let mut world = running_mixed_team();
    report_event(&mut world, "tom", 4, AgentEvent::TurnStarted { n: 1 });
    let silence = world.board.limits.silence_ms;
    let views = |world: &World| {
        let (attempt, _) = session_of(world, "tom");
        let attempt = &world.board.attempts[&attempt];
        let task = display::task_display(&world.board, world.task(attempt.task));
        let agent = display::agent_display(&world.board, &attempt.agent, world.now)
            .expect("the agent is registered");
        let program = display::program_activity(&world.board, attempt);
        (
            (task.state, task.label),
            (agent.state, agent.label),
            program,
        )
    };
    let working = (DisplayState::Working, "working");
    assert_eq!(views(&world), (working, working, ProgramActivity::InTurn));
    report_silence(&mut world, "tom", Some(silence / 2));
    let hung = (DisplayState::Failed, "hung");
    assert_eq!(views(&world), (hung, hung, ProgramActivity::Hung));
    report_silence(&mut world, "tom", None);
    assert_eq!(views(&world), (working, working, ProgramActivity::InTurn));
}

/// A standing task is in progress as long as its member runs, and is working only during a turn.
#[test]
fn a_standing_task_is_idle_while_its_member_is() {
    let mut world = running_mixed_team();
    let at = |world: &World| {
        let task = world.task(launch_entry(world, "tom").task.unwrap());
        launch::activity_of_task(&world.board, task)
    };
    let silence = world.board.limits.silence_ms;
    report_silence(&mut world, "tom", Some(silence));
    assert_eq!(at(&world), Some(MemberActivity::Idle));
    let other = world.add(task_to_add("one", &[]));
    assert_eq!(
        launch::activity_of_task(&world.board, world.task(other)),
        None,
        "an ordinary task has no member's session"
    );
    report_event(&mut world, "tom", 4, AgentEvent::TurnStarted { n: 1 });
    assert_eq!(at(&world), Some(MemberActivity::Working));
    report_silence(&mut world, "tom", Some(silence / 2));
    assert_eq!(at(&world), Some(MemberActivity::Hung));
    end_turn(&mut world, "tom", 5);
    assert_eq!(at(&world), Some(MemberActivity::Idle));
    // While a member works on another task, that task is worked on and its standing task is idle.
    let docs = regatta_core::task::AddTask {
        issue_type: IssueType::Docs,
        ..task_to_add("two", &[])
    };
    world.add_for(docs, Some("harbour/tom"), AssignMode::Direct);
    world.take_supervised_task("harbour/tom");
    assert_eq!(
        launch::activity(&world.board, &launch_entry(&world, "tom")),
        MemberActivity::Working
    );
    assert_eq!(at(&world), Some(MemberActivity::Idle));
}

/// T6: the bus gets a message with the summary when a launch has a result and when the result
/// changes.
#[test]
fn t6_the_bus_gets_the_summary_when_it_changes() {
    let mut world = launched_world("codex", &[("tom", "opencode")]);
    let announcement =
        |world: &World| (world.board.counters.message, launch_record(world).announced);
    report_resolutions(&mut world, &[]);
    bring_up(&mut world, "amy");
    assert_eq!(announcement(&world), (0, None), "the launch is under way");
    bring_up(&mut world, "tom");
    assert_eq!(
        announcement(&world),
        (1, Some(team_summary(&world).headline))
    );
    world.restart();
    assert_eq!(
        announcement(&world).0,
        1,
        "an unchanged summary was posted again"
    );
    crash_session(&mut world, "tom", FailureClass::Crashed);
    assert_eq!(
        announcement(&world),
        (2, Some("1 of 2 alive; tom is down".into()))
    );
    stop_team(&mut world);
    end_session(&mut world, "amy", ProgramExit::Lost);
    assert_eq!(
        announcement(&world),
        (3, Some(team_summary(&world).headline))
    );
}

#[test]
fn a_message_reaches_the_mentioned_members_only() {
    let mut world = running_mixed_team();
    let follow_ups = |world: &World, name: &str| {
        world.board.attempts[&launch_entry(world, name).attempt.unwrap()]
            .session
            .follow_ups
            .clone()
    };
    let post = |channel: &str, text: &str| {
        let channel = ChannelName::new(channel).unwrap();
        Command::Post(PostMessage {
            channel,
            text: text.into(),
            labels: vec![],
            reply_to: None,
        })
    };
    world.ask("harbour/amy", post("@harbour/tom", "take the parser"));
    world.ask(
        "ann",
        post("harbour", "@harbour/alice and @harbour/amy: lunch"),
    );
    world.ask(
        "harbour/tom",
        post("harbour", "@harbour/tom notes to myself"),
    );
    assert_eq!(follow_ups(&world, "tom").len(), 1);
    assert!(
        follow_ups(&world, "tom")[0].contains("from harbour/amy")
            && follow_ups(&world, "tom")[0].contains("take the parser")
    );
    assert_eq!(
        (
            follow_ups(&world, "alice").len(),
            follow_ups(&world, "amy").len()
        ),
        (1, 1)
    );
    // The end of a turn does not end the member's session.
    report_event(&mut world, "tom", 4, AgentEvent::TurnStarted { n: 1 });
    end_turn(&mut world, "tom", 5);
    assert_eq!(member_state(&world, "tom"), MemberState::Alive);
    assert!(
        !world.board.attempts[&session_of(&world, "tom").0]
            .session
            .closing
    );
}

#[test]
fn a_member_takes_at_most_max_tasks_besides_its_session() {
    let mut world = running_mixed_team();
    let docs = |s: &str| regatta_core::task::AddTask {
        issue_type: IssueType::Docs,
        ..task_to_add(s, &[])
    };
    let first = world.add_for(docs("one"), Some("harbour/tom"), AssignMode::Direct);
    world.add_for(docs("two"), Some("harbour/tom"), AssignMode::Queue);
    let grant = world.take_supervised_task("harbour/tom");
    assert_eq!(grant.task, first);
    assert!(
        world.poll_supervised("harbour/tom").is_none(),
        "max_tasks is 1, not counting the session"
    );
    // A stop ends the task's attempt, too, and the task waits.
    stop_team(&mut world);
    assert!(world.board.attempts[&grant.attempt].stopping.is_some());
    end_session(&mut world, "tom", ProgramExit::Lost);
    assert!(!is_stopping(&world, "amy"), "tom still works");
    let (attempt, token) = (grant.attempt, grant.token);
    world.report(Report::Exited {
        attempt,
        token,
        exit: ProgramExit::Lost,
    });
    assert!(is_stopping(&world, "amy"));
    assert_eq!(
        world.task(first).status,
        regatta_core::task::TaskStatus::Pending
    );
}

#[test]
fn side_lanes_start_only_as_many_at_a_time_as_configured() {
    let mut world = World::with_agents(&[]);
    let mut project = world.project("shop", &["cargo test"]);
    project.settings.lanes = LaneSettings {
        concurrency: 2,
        ..LaneSettings::default()
    };
    world.ask("ann", Command::AddProject(project));
    let names = ["a", "b", "c", "d", "e"];
    create_team(
        &mut world,
        team_settings("codex", &names.map(|name| (name, "opencode"))),
    );
    launch_team(&mut world);
    report_resolutions(&mut world, &[]);
    bring_up(&mut world, "amy");
    let coming = |world: &World| {
        launch_record(world)
            .members
            .iter()
            .filter(|launch| launch.state == MemberState::Starting)
            .count()
    };
    assert_eq!(coming(&world), 2);
    bring_up(&mut world, "a");
    assert_eq!(
        (coming(&world), member_state(&world, "c")),
        (2, MemberState::Starting)
    );
    crash_session(&mut world, "b", FailureClass::Crashed);
    assert_eq!(
        (coming(&world), member_state(&world, "d")),
        (2, MemberState::Starting),
        "a failed lane did not make room for the next"
    );
}

#[test]
fn a_launch_can_leave_out_a_member_but_not_the_lead() {
    let mut world = World::with_agents(&[]);
    create_team(&mut world, team_settings("codex", &[("tom", "opencode")]));
    let launch_without = |name: &str| {
        team_command(TeamCommand::Launch {
            team: team_name(),
            left_out: vec![member_name(name)],
        })
    };
    assert!(matches!(
        world.ask_refused("ann", launch_without("amy")),
        Refusal::Invalid { .. }
    ));
    world.ask("ann", launch_without("tom"));
    report_resolutions(&mut world, &[]);
    bring_up(&mut world, "amy");
    assert_eq!(
        launch_record(&world).outcome(),
        launch::LaunchOutcome::PartialSkipped
    );
    assert_eq!(launch_record(&world).expected_members.len(), 2, "T1");
}

#[test]
fn undelete_restores_the_team_and_its_last_launch() {
    let mut world = running_mixed_team();
    let delete = team_command(TeamCommand::Delete { team: team_name() });
    assert!(matches!(
        world.ask_refused("ann", delete.clone()),
        Refusal::TeamRuns { .. }
    ));
    stop_team(&mut world);
    for name in ["tom", "amy", "alice"] {
        end_session(&mut world, name, ProgramExit::Lost);
    }
    let (before, launch) = (team(&world), launch_record(&world));
    world.ask("ann", delete);
    assert!(matches!(
        world.ask_refused(
            "ann",
            team_command(TeamCommand::Launch {
                team: team_name(),
                left_out: vec![]
            })
        ),
        Refusal::NoSuchTeam { .. }
    ));
    assert!(team_summary(&world).deleted);
    world.ask(
        "ann",
        team_command(TeamCommand::Undelete { team: team_name() }),
    );
    assert_eq!(
        Team {
            updated_unix_ms: before.updated_unix_ms,
            ..team(&world)
        },
        before
    );
    assert_eq!(launch_record(&world), launch);
}

#[test]
fn a_session_with_a_full_context_is_replaced_by_a_new_one() {
    let mut world = running_mixed_team();
    let first = session_of(&world, "tom").0;
    crash_session(&mut world, "tom", FailureClass::ContextFull);
    assert_ne!(session_of(&world, "tom").0, first);
    assert_eq!(member_state(&world, "tom"), MemberState::Starting);
    bring_up(&mut world, "tom");
    assert_eq!(
        launch_record(&world).outcome(),
        launch::LaunchOutcome::CleanSuccess
    );
}
