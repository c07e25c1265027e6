//! The requests for work that the daemon makes in one round, and the machines that it tries for
//! them.

use std::sync::Arc;

use regatta_core::agent::{Profile, RegisterAgent, Runtime};
use regatta_core::board::{Row, RowKey};
use regatta_core::command::{Command, PlannedTask};
use regatta_core::ids::{ChannelName, ConversationId, MessageId, RunnerName, TaskId};
use regatta_core::limits::MachineLimits;
use regatta_core::mission::{StartMission, StartMode};
use regatta_core::runner::RegisterRunner;
use regatta_core::schedule::{PollPlan, plan_polls};
use regatta_core::start_gates::{StartFacts, TrunkState};
use regatta_core::task::{AssignMode, Purpose};

use crate::teams::running_mixed_team;
use crate::world::{World, agent, registration, shop, task_to_add};

/// Registers an agent whose program Regatta starts.
fn register_bot(world: &mut World, name: &str, max_tasks: u32, labels: &[&str]) {
    let profile = Profile {
        labels: labels.iter().map(ToString::to_string).collect(),
        ..Profile::default()
    };
    world.ask(
        "ann",
        Command::RegisterAgent(RegisterAgent {
            runtime: Runtime::Scripted,
            profile,
            ..registration(name, max_tasks)
        }),
    );
}

fn register_runner(world: &mut World, name: &str, max_tasks: u32, labels: &[&str]) {
    let request = RegisterRunner {
        name: RunnerName::new(name).unwrap(),
        identity: format!("{name}-1"),
        token: "t".into(),
        labels: labels.iter().map(ToString::to_string).collect(),
        agents: vec![],
        max_tasks,
        version: "1".into(),
    };
    world.ask("regatta", Command::RegisterRunner(request));
}

fn set_max_attempts(world: &mut World, max_attempts: u32) {
    let limits = MachineLimits {
        max_attempts,
        ..world.board.limits
    };
    world.ask("ann", Command::SetLimits { limits });
}

/// Starts a mission of these agents with one task in each of these files.
fn start_mission(world: &mut World, agents: &[&str], files: &[&str]) {
    let mission = StartMission {
        project: shop(),
        title: "goal".into(),
        agents: agents.iter().map(|name| agent(name)).collect(),
        team: None,
        max_workers: 9,
        mode: StartMode::Flow,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let planned = |file: &&str| PlannedTask {
        task: task_to_add(file, &[file]),
        after: vec![],
        assign: None,
    };
    world.ask(
        "ann",
        Command::StartMission {
            mission,
            tasks: files.iter().map(planned).collect(),
            adopt: vec![],
        },
    );
}

/// Adds a task that is assigned to an agent.
fn assign(world: &mut World, to: &str, file: &str) -> TaskId {
    world.add_for(task_to_add(file, &[file]), Some(to), AssignMode::Queue)
}

/// Gives an assigned task another purpose, as the board does for leads, answers and conversations.
fn set_purpose(world: &mut World, id: TaskId, purpose: Purpose) {
    world.restart_damaged(|rows| match rows.get_mut(&RowKey::Task(id)) {
        Some(Row::Task(task)) => Arc::make_mut(task).purpose = purpose,
        other => panic!("{id} is not stored: {other:?}"),
    });
}

/// Marks an agent as derived from another agent, as agents of leads and answers are.
fn derive_from(world: &mut World, name: &str, base: &str) {
    world.restart_damaged(|rows| match rows.get_mut(&RowKey::Agent(agent(name))) {
        Some(Row::Agent(row)) => Arc::make_mut(row).derived_from = Some(agent(base)),
        other => panic!("{name} is not stored: {other:?}"),
    });
}

/// Returns the requests of a round, such as `bot T1` for a task and `bot M1` for a mission.
fn polls(world: &World) -> Vec<String> {
    let plan = plan_polls(&world.board);
    let describe = |poll: &regatta_core::schedule::PollRequest| match (poll.task, poll.mission) {
        (Some(task), None) => format!("{} {task}", poll.agent),
        (None, Some(mission)) => format!("{} {mission}", poll.agent),
        other => panic!("{} asks for {other:?}", poll.agent),
    };
    plan.polls.iter().map(describe).collect()
}

/// Returns the machines that are tried for an agent, in order.
fn places(world: &World, name: &str) -> Vec<String> {
    let plan: PollPlan = plan_polls(&world.board);
    plan.places(&world.board.agents[&agent(name)])
        .map(|runner| runner.map_or("here".to_owned(), ToString::to_string))
        .collect()
}

fn answer() -> Purpose {
    Purpose::Answer {
        channel: ChannelName::new("shop").unwrap(),
        root: MessageId(1),
    }
}

fn converse() -> Purpose {
    Purpose::Converse {
        conversation: ConversationId(1),
    }
}

/// Leads and answers come before the workers of missions, then assigned tasks, then teams.
#[test]
fn the_groups_of_agents_are_asked_in_order() {
    let mut world = running_mixed_team();
    for name in ["bot", "cat", "lea"] {
        register_bot(&mut world, name, 2, &[]);
    }
    let pooled = world.add_task("for any member", &["pool.rs"]);
    let given = assign(&mut world, "bot", "given.rs");
    start_mission(&mut world, &["cat"], &["mission.rs"]);
    let lead_turn = assign(&mut world, "lea", "lead.rs");
    set_purpose(&mut world, lead_turn, Purpose::Lead);
    derive_from(&mut world, "lea", "bot");
    let member_polls: Vec<String> = world.board.launches[&regatta_core::ids::LaunchId(1)]
        .members
        .iter()
        .filter(|member| !member.lead)
        .map(|member| format!("{} {pooled}", member.agent))
        .collect();
    let mut expected = vec![
        format!("lea {lead_turn}"),
        "cat M1".to_owned(),
        format!("bot {given}"),
    ];
    let mut sorted = member_polls.clone();
    sorted.sort();
    expected.extend(sorted);
    assert_eq!(member_polls.len(), 2, "the team has two members and a lead");
    assert_eq!(polls(&world), expected);
}

/// Only derived agents lead and answer questions; in a conversation the original agent answers. An
/// agent gets no more turns than it has free capacity.
#[test]
fn a_turn_goes_to_a_derived_agent_and_a_conversation_to_its_own() {
    type Case = (&'static str, bool, fn() -> Purpose, &'static [&'static str]);
    let cases: [Case; 6] = [
        ("a lead", true, || Purpose::Lead, &["lea T1", "lea T2"]),
        (
            "an original agent never leads",
            false,
            || Purpose::Lead,
            &[],
        ),
        ("an answer", true, answer, &["lea T1", "lea T2"]),
        ("an original agent answers no questions", false, answer, &[]),
        ("a conversation", false, converse, &["lea T1", "lea T2"]),
        (
            "a derived agent in a conversation",
            true,
            converse,
            &["lea T1", "lea T2"],
        ),
    ];
    for (name, is_derived, purpose, expected) in cases {
        let mut world = World::with_agents(&[]);
        register_bot(&mut world, "bot", 2, &[]);
        register_bot(&mut world, "lea", 2, &[]);
        for nth in 0..3 {
            let id = assign(&mut world, "lea", &format!("{nth}.rs"));
            set_purpose(&mut world, id, purpose());
        }
        if is_derived {
            derive_from(&mut world, "lea", "bot");
        }
        assert_eq!(polls(&world), expected, "{name}");
    }
}

/// Only agents whose programs Regatta starts and that have free capacity ask for the tasks of an
/// active mission that wait. The least busy agent asks first.
#[test]
fn the_least_busy_worker_of_a_mission_asks_first() {
    let mut world = World::with_agents(&[("ada", 9)]);
    register_bot(&mut world, "bot", 2, &[]);
    register_bot(&mut world, "cat", 2, &[]);
    assert_eq!(polls(&world), [""; 0], "there is no mission");
    start_mission(&mut world, &["ada", "bot", "cat"], &["1", "2", "3", "4"]);
    assert_eq!(polls(&world), ["bot M1", "cat M1"]);
    world.take_supervised_task("bot");
    assert_eq!(polls(&world), ["cat M1", "bot M1"]);
    world.take_supervised_task("bot");
    assert_eq!(polls(&world), ["cat M1"], "bot is full");
    start_mission(&mut world, &["cat"], &["5"]);
    assert_eq!(polls(&world), ["cat M1", "cat M2"]);
    world.take_supervised_task("cat");
    world.take_supervised_task("cat");
    assert_eq!(polls(&world), [""; 0], "every agent is full");
}

/// At most eight tasks are tried for an agent, because the first tasks may wait for a claim. An
/// agent without free capacity, or whose program somebody else runs, asks for nothing.
#[test]
fn an_agent_asks_for_its_first_eight_assigned_tasks() {
    let mut world = World::with_agents(&[("ada", 9)]);
    register_bot(&mut world, "bot", 1, &[]);
    assign(&mut world, "ada", "ada.rs");
    let tasks: Vec<TaskId> = (0..9)
        .map(|nth| assign(&mut world, "bot", &format!("{nth}.rs")))
        .collect();
    let offered = world.add_for(
        task_to_add("offered", &["offered.rs"]),
        Some("bot"),
        AssignMode::Offer,
    );
    let first = [offered].into_iter().chain(tasks).take(8);
    let expected: Vec<String> = first.map(|id| format!("bot {id}")).collect();
    assert_eq!(polls(&world), expected, "offered tasks come first");
    world.take_supervised_task("bot");
    assert_eq!(polls(&world), [""; 0], "bot is full");
}

#[test]
fn members_of_a_team_ask_for_their_own_and_shared_tasks_while_the_team_runs() {
    let mut world = running_mixed_team();
    let members = world.board.launches[&regatta_core::ids::LaunchId(1)]
        .members
        .clone();
    let name_of = |is_lead: bool| {
        let member = members.iter().find(|member| member.lead == is_lead);
        member.expect("the team has such a member").agent.clone()
    };
    let (lead, first) = (name_of(true), name_of(false));
    let shared = world.add_task("for any member", &["pool.rs"]);
    let for_lead = assign(&mut world, lead.as_str(), "lead.rs");
    let own = assign(&mut world, first.as_str(), "own.rs");
    let asked = polls(&world);
    let of = |name: &regatta_core::ids::AgentName| -> Vec<String> {
        let prefix = format!("{name} ");
        let own = asked.iter().filter(|poll| poll.starts_with(&prefix));
        own.cloned().collect()
    };
    assert_eq!(of(&lead), [format!("{lead} {for_lead}")]);
    assert_eq!(
        of(&first),
        [format!("{first} {own}"), format!("{first} {shared}")]
    );
    crate::teams::stop_team(&mut world);
    assert_eq!(polls(&world), [""; 0], "a stopping team asks for work");
}

/// The machine with most free capacity is tried first. The daemon's machine is tried even when it
/// is full, because turns of leads do not count there.
#[test]
fn the_machine_with_most_free_capacity_is_tried_first() {
    let mut world = World::with_agents(&[]);
    register_bot(&mut world, "bot", 9, &[]);
    register_bot(&mut world, "gpu-bot", 9, &["gpu"]);
    set_max_attempts(&mut world, 2);
    assert_eq!(places(&world, "bot"), ["here"]);
    assert_eq!(
        places(&world, "gpu-bot"),
        [""; 0],
        "no runner has the label"
    );
    register_runner(&mut world, "big", 3, &["gpu"]);
    register_runner(&mut world, "equal", 2, &[]);
    register_runner(&mut world, "small", 1, &[]);
    assert_eq!(places(&world, "bot"), ["big", "here", "equal", "small"]);
    assert_eq!(places(&world, "gpu-bot"), ["big"]);
    for nth in 0..4 {
        world.add_task("work", &[&format!("{nth}.rs")]);
    }
    world.take_supervised_task("bot");
    world.take_supervised_task("bot");
    let at_small = StartFacts::default().at_place(Some(&RunnerName::new("small").unwrap()));
    world.poll_with("bot", at_small).expect("small has room");
    assert_eq!(
        places(&world, "bot"),
        ["big", "equal", "here"],
        "a full machine is tried, or a full runner"
    );
    world.ask(
        "ann",
        Command::DrainRunner {
            runner: RunnerName::new("big").unwrap(),
            reason: "maintenance".into(),
        },
    );
    assert_eq!(places(&world, "bot"), ["equal", "here"]);
}

/// Memory and disk space are facts about the daemon's machine only.
#[test]
fn a_runners_start_facts_have_no_memory_and_disk_of_the_daemon() {
    let facts = StartFacts {
        memory_mb: Some(1),
        disk_mb: Some(2),
        base: Some(TrunkState::Broken {
            reason: "gone".into(),
        }),
        runner: None,
    };
    let runner = RunnerName::new("big").unwrap();
    assert_eq!(facts.clone().at_place(None), facts);
    let expected = StartFacts {
        memory_mb: None,
        disk_mb: None,
        runner: Some(runner.clone()),
        ..facts.clone()
    };
    assert_eq!(facts.at_place(Some(&runner)), expected);
}
