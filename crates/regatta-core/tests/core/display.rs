//! The states and counts that people see. Random boards are checked in [`invariants`](crate::invariants).

use regatta_core::agent_protocol::{AgentRequest, RequestContent};
use regatta_core::command::{Command, PlannedTask};
use regatta_core::display::{
    self, DisplayState, EndedCounts, FleetSummary, TaskAction, TaskCounts,
};
use regatta_core::ids::TaskId;
use regatta_core::mission::{StartMission, StartMode};
use regatta_core::schedule::PollGrant;
use regatta_core::task::{AddTask, TaskStatus};

use crate::world::{World, shop, task_to_add};

fn shown(world: &World, task: TaskId) -> (DisplayState, &'static str) {
    let task = world.stored_task(task);
    let shown = display::task_display(&world.board, &task);
    (shown.state, shown.label)
}

fn summary(world: &World) -> FleetSummary {
    display::fleet_summary(&world.board, None, &EndedCounts::default(), world.now)
}

fn ask_question(world: &mut World, grant: &PollGrant) {
    let content = RequestContent::Question {
        text: "Which?".into(),
        choices: vec![],
        schema: None,
    };
    let request = AgentRequest {
        id: "1".into(),
        content,
    };
    world.ask(
        "ada",
        Command::Ask {
            task: grant.task,
            attempt: grant.attempt,
            token: grant.token,
            request,
        },
    );
}

/// W2: a task in the backlog does not wait for anything, so it is not counted as waiting.
#[test]
fn w2_the_backlog_is_not_counted_as_waiting() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let pending = world.add_task("now", &["src/a.rs"]);
    let later = world.add(AddTask {
        backlog: true,
        ..task_to_add("later", &["src/b.rs"])
    });
    assert_eq!(shown(&world, pending), (DisplayState::Waiting, "waiting"));
    assert_eq!(shown(&world, later), (DisplayState::Backlog, "backlog"));
    let counts = summary(&world);
    assert_eq!((counts.waiting, counts.backlog), (1, 1));
}

/// W2: an agent that waits for an answer is not working, and the answer is what a person must give.
#[test]
fn w2_a_task_whose_agent_waits_for_an_answer_needs_a_person() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    let grant = world.take_task("ada");
    assert_eq!(shown(&world, task), (DisplayState::Working, "working"));
    ask_question(&mut world, &grant);
    assert_eq!(shown(&world, task), (DisplayState::Needs, "needs you"));
    let text = display::state_text(&world.board, &world.stored_task(task), world.now);
    assert_eq!(text, "needs you", "the brief of a lead");
    let counts = summary(&world);
    assert_eq!(
        (counts.working, counts.blocked_on_person, counts.needs_you),
        (0, 1, 1)
    );
}

#[test]
fn an_ended_task_shows_how_it_ended() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let landed = world.add_task("one", &["src/a.rs"]);
    let grant = world.take_task("ada");
    world.finish_and_land(&grant);
    let dropped = world.add_task("two", &["src/b.rs"]);
    world.cancel(dropped);
    assert_eq!(shown(&world, landed), (DisplayState::Landed, "landed"));
    assert_eq!(shown(&world, dropped), (DisplayState::Failed, "cancelled"));
}

#[test]
fn a_summary_of_one_project_counts_only_its_tasks() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.add_task("one", &["src/a.rs"]);
    let other = world.project("other", &[]);
    world.ask("ann", Command::AddProject(other));
    let mut add = task_to_add("two", &["src/a.rs"]);
    add.project = "other".parse().expect("a name");
    world.add(add);
    let waiting_in = |name| {
        let ended = EndedCounts::default();
        display::fleet_summary(&world.board, Some(&name), &ended, world.now).waiting
    };
    let other = "other".parse().expect("a name");
    assert_eq!(
        (
            waiting_in(shop()),
            waiting_in(other),
            summary(&world).waiting
        ),
        (1, 1, 2)
    );
}

/// The summary of a project counts the project's attempts. Agents, slots and costs are those of the
/// fleet.
#[test]
fn a_summary_names_its_scope_and_counts_the_attempts_of_its_project() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.add_task("one", &["src/a.rs"]);
    let other = world.project("other", &[]);
    world.ask("ann", Command::AddProject(other));
    world.take_task("ada");
    let of = |project: Option<&str>| {
        let project = project.map(|name| name.parse().expect("a name"));
        let ended = EndedCounts::default();
        display::fleet_summary(&world.board, project.as_ref(), &ended, world.now)
    };
    let (fleet, shop, other) = (of(None), of(Some("shop")), of(Some("other")));
    assert_eq!((fleet.running, shop.running, other.running), (1, 1, 0));
    assert_eq!((fleet.agents, other.agents), (1, 1));
    assert_eq!(other.slots, fleet.slots);
    assert_eq!(
        [fleet.project, shop.project, other.project],
        [
            None,
            Some("shop".parse().expect("a name")),
            Some("other".parse().expect("a name"))
        ]
    );
}

/// W2: a failed task is urgent until a person has decided about it. Afterwards, it is over like a
/// landed task.
#[test]
fn w2_a_failed_task_is_urgent_until_a_person_has_decided() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let failed = world.add_task("broken", &["src/a.rs"]);
    fail(&mut world, failed);
    let waiting = world.add_task("later", &["src/b.rs"]);
    let rank = |world: &World, id| display::task_rank(&world.board, &world.stored_task(id));
    assert!(rank(&world, failed) < rank(&world, waiting));
    world.ask("ann", Command::Dismiss { task: failed });
    assert_eq!(shown(&world, failed).0, DisplayState::Failed);
    assert_eq!(rank(&world, failed), DisplayState::Landed.rank());
}

/// W2: all views show that an agent's last work failed, also after a restart of the daemon, until
/// the agent has started other work or the task was retried.
#[test]
fn w2_an_agent_whose_last_work_failed_is_shown_as_failed() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let broken = world.add_task("broken", &["src/a.rs"]);
    let ada = "ada".parse().expect("a name");
    let shown = |world: &World| {
        let shown = display::agent_display(&world.board, &ada, world.now).expect("ada exists");
        (shown.state, shown.task)
    };
    fail(&mut world, broken);
    assert_eq!(shown(&world), (DisplayState::Failed, Some(broken)));
    world.restart();
    assert_eq!(shown(&world), (DisplayState::Failed, Some(broken)));
    let other = world.add_task("other", &["src/b.rs"]);
    let grant = world.take_task("ada");
    assert_eq!(shown(&world), (DisplayState::Working, Some(other)));
    world.finish_and_land(&grant);
    assert_eq!(shown(&world), (DisplayState::Idle, None));
}

/// W2: an agent with free slots does not wait for work that is not its own. It waits only for a task
/// that is assigned to it.
#[test]
fn w2_an_idle_agent_waits_only_for_its_own_tasks() {
    let mut world = World::with_agents(&[("ada", 1), ("bob", 1), ("eve", 1)]);
    let planned = |subject: &str, file: &str, after: &[usize], assign: Option<&str>| PlannedTask {
        task: task_to_add(subject, &[file]),
        after: after.to_vec(),
        assign: assign.map(|name| name.parse().expect("a name")),
    };
    let mission = StartMission {
        project: shop(),
        title: "goal".into(),
        agents: world.board.agents.keys().cloned().collect(),
        team: None,
        max_workers: 3,
        mode: StartMode::default(),
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let tasks = vec![
        planned("one", "src/a.rs", &[], Some("ada")),
        planned("two", "src/b.rs", &[0], None),
        planned("three", "src/c.rs", &[0], Some("eve")),
    ];
    world.ask(
        "ann",
        Command::StartMission {
            mission,
            tasks,
            adopt: vec![],
        },
    );
    let grant = world.take_task("ada");
    let shown = |name: &str| {
        let name = name.parse().expect("a name");
        let shown = display::agent_display(&world.board, &name, world.now).expect("it exists");
        (shown.state, shown.task)
    };
    assert_eq!(shown("ada"), (DisplayState::Working, Some(grant.task)));
    assert_eq!(shown("bob"), (DisplayState::Idle, None));
    let of_eve = Some(TaskId(grant.task.0 + 2));
    assert_eq!(shown("eve"), (DisplayState::Waiting, of_eve));
}

/// Lets the next attempts at a task fail until the task has failed.
fn fail(world: &mut World, task: TaskId) {
    for _ in 0..3 {
        let grant = world.take_task("ada");
        world.fail_once(&grant);
        world.advance(3_600_000);
    }
    assert_eq!(world.stored_task(task).status, TaskStatus::Failed);
}

/// W2: the counts of ended tasks come from the store, and every view counts them alike.
#[test]
fn w2_a_summary_has_the_counts_of_ended_tasks() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let landed = world.add_task("one", &["src/a.rs"]);
    let grant = world.take_task("ada");
    world.finish_and_land(&grant);
    let dropped = world.add_task("two", &["src/b.rs"]);
    world.cancel(dropped);
    let open = world.add_task("three", &["src/c.rs"]);
    let tasks = [landed, dropped, open].map(|id| world.stored_task(id));
    let counts = TaskCounts::from_tasks(&tasks);
    assert_eq!(
        counts,
        TaskCounts {
            tasks: 3,
            completed: 1,
            failed: 0,
            cancelled: 1
        }
    );
    let ended = EndedCounts {
        completed: counts.completed,
        failed: 7,
        ..EndedCounts::default()
    };
    let summary = display::fleet_summary(&world.board, None, &ended, world.now);
    assert_eq!((summary.completed, summary.failed), (1, 7));
}

/// The actions on a task follow from its status alone, so all views offer the same ones.
#[test]
fn a_task_has_the_actions_of_its_state() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let id = world.add_task("one", &["src/a.rs"]);
    let actions = |world: &World| display::possible_actions(&world.stored_task(id), None);
    assert_eq!(actions(&world), [TaskAction::Pause, TaskAction::Cancel]);
    let grant = world.take_task("ada");
    assert_eq!(
        actions(&world),
        [TaskAction::Tell, TaskAction::Pause, TaskAction::Cancel]
    );
    world.finish_and_land(&grant);
    assert_eq!(actions(&world), [TaskAction::Undo]);
}
