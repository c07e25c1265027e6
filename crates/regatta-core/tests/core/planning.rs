//! Planning: who can be asked, and what tells a planning task from one that is only called so.

use regatta_core::agent::{Register, Runtime};
use regatta_core::attempt::{Exited, Findings, WorkResult};
use regatta_core::command::{Command, Outcome};
use regatta_core::ids::TaskId;
use regatta_core::planning::{self, Ask};
use regatta_core::task::{Duty, Expects, IssueType, Status, Task};

use crate::world::{World, agent, passed, registers, shop, work};

fn asks(planner: &str, goal: &str) -> Command {
    let (project, planner) = (shop(), agent(planner));
    Command::AskPlan(Ask { project, goal: goal.into(), planner, brief: format!("plan this: {goal}"), script: None })
}

/// `ada`'s program is ours to start, `eve`'s is not.
fn world() -> World {
    let mut world = World::with(&[("eve", 1)]);
    world.ask("ann", Command::RegisterAgent(Register { runtime: Runtime::Scripted, ..registers("ada", 2) }));
    world
}

fn plan(world: &mut World, goal: &str) -> TaskId {
    match world.ask("ann", asks("ada", goal)) {
        Outcome::Mission { tasks, .. } => tasks[0],
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_can_be_asked_for_a_plan_and_of_what() {
    let long = "x".repeat(planning::LONGEST + 1);
    for (planner, goal, code) in [
        ("ada", "Add login", None),
        ("ada", " \n ", Some("invalid")),
        ("ada", long.as_str(), Some("invalid")),
        ("eve", "Add login", Some("invalid")),
        ("nobody", "Add login", Some("no_such_agent")),
    ] {
        let mut world = world();
        let before = world.board.clone();
        let found = world.try_ask("ann", asks(planner, goal)).err();
        assert_eq!(found.as_ref().map(|it| it.code()), code, "{planner} {goal:.20}: {found:?}");
        assert_eq!(world.board == before, code.is_some(), "a refusal leaves no trace");
    }
    assert_eq!(planning::planners(&world().board).collect::<Vec<_>>(), [&agent("ada")]);
}

/// The whole goal is kept; the subject is its first line; and the subject makes no planning task.
#[test]
fn a_planning_task_is_known_by_its_duty_not_by_its_subject() {
    let mut world = world();
    let goal = "Add login\n\nWith rate limits, and a page.";
    let asked = plan(&mut world, &format!("  {goal}\n"));
    let task = world.task(asked);
    assert_eq!((task.subject.as_str(), task.plans()), ("Plan: Add login", Some(goal)));
    assert_eq!((task.expects, task.assignee.clone()), (Expects::Report, Some(agent("ada"))));
    assert!(task.is_work() && !task.is_light(), "it takes a place as any work does");
    let own = regatta_core::task::Add {
        issue_type: IssueType::Chore,
        expects: Expects::Report,
        ..work("Plan: Add login", &[])
    };
    let own = world.add(own);
    assert_eq!(world.task(own).plans(), None);
    // What an older version wrote has no duty, whatever it is called.
    let mut row = serde_json::to_value(world.task(asked)).unwrap();
    row.as_object_mut().unwrap().remove("duty");
    assert_eq!(serde_json::from_value::<Task>(row).unwrap().plans(), None);
    let long = plan(&mut world, &"é".repeat(1_000));
    assert!(world.task(long).subject.chars().count() <= 200);
}

/// It runs as work of its mission does, its report completes it, and whatever it changed lands nowhere.
#[test]
fn a_plan_is_reported_and_nothing_else() {
    for (said, status) in [("[[task]]", Some(Status::Completed)), (" ", None)] {
        let mut world = world();
        let asked = plan(&mut world, "Add login");
        let grant = world.poll_supervised("ada").expect("its mission's agent takes it");
        assert_eq!(grant.task, asked);
        let (attempt, token) = (grant.attempt, grant.token);
        world.ask("regatta", Command::ReportExited { attempt, token, how: Exited::Done { output: None } });
        let result = Some(WorkResult { detail: said.into(), ..WorkResult::default() });
        let findings = Findings { result, ..Findings::default() };
        world.ask("regatta", Command::ReportJudged { attempt, token, verdict: passed(&[]), findings });
        match status {
            Some(status) => assert_eq!(world.stored(asked).status, status),
            None => assert!(world.status(asked).is_waiting(), "a plan that says nothing is asked for again"),
        }
        assert_eq!(world.stored(asked).duty, Some(Duty::Plan { goal: "Add login".into() }));
        assert!(world.board.landings.is_empty());
    }
}
