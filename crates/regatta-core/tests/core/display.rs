//! The states and counts that people see. Random boards are checked in [`invariants`](crate::invariants).

use regatta_core::agent_protocol::{AgentRequest, RequestContent};
use regatta_core::command::Command;
use regatta_core::display::{self, DisplayState, FleetSummary};
use regatta_core::ids::TaskId;
use regatta_core::schedule::PollGrant;
use regatta_core::task::AddTask;

use crate::world::{World, shop, task_to_add};

fn shown(world: &World, task: TaskId) -> (DisplayState, &'static str) {
    let task = world.stored_task(task);
    let shown = display::task_display(&world.board, &task, None);
    (shown.state, shown.label)
}

fn summary(world: &World) -> FleetSummary {
    display::fleet_summary(&world.board, None, world.now)
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
    let waiting_in = |name| display::fleet_summary(&world.board, Some(&name), world.now).waiting;
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
