//! Planning tasks: the agents that can be asked for a plan, and how a planning task is recognised.

use regatta_core::agent::{RegisterAgent, Runtime};
use regatta_core::attempt::{ProgramExit, WorkFindings, WorkResult};
use regatta_core::command::{Command, CommandOutcome, Report};
use regatta_core::ids::TaskId;
use regatta_core::plan_request::{self, PlanRequest};
use regatta_core::task::{Expects, IssueType, Purpose, TaskStatus};

use crate::world::{World, agent, passed_verdict, registration, shop, task_to_add};

fn plan_request(planner: &str, goal: &str) -> Command {
    let (project, planner) = (shop(), agent(planner));
    Command::AskPlan(PlanRequest {
        project,
        goal: goal.into(),
        planner,
        brief: format!("plan this: {goal}"),
        script: None,
    })
}

/// Returns a world in which Regatta runs the program of `ada`, but not that of `eve`.
fn world_with_planner() -> World {
    let mut world = World::with_agents(&[("eve", 1)]);
    world.ask(
        "ann",
        Command::RegisterAgent(RegisterAgent {
            runtime: Runtime::Scripted,
            ..registration("ada", 2)
        }),
    );
    world
}

fn request_plan(world: &mut World, goal: &str) -> TaskId {
    match world.ask("ann", plan_request("ada", goal)) {
        CommandOutcome::Mission { tasks, .. } => tasks[0],
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plan_needs_a_goal_and_an_agent_that_regatta_runs() {
    let long = "x".repeat(plan_request::MAX_GOAL_BYTES + 1);
    for (planner, goal, code) in [
        ("ada", "Add login", None),
        ("ada", " \n ", Some("invalid")),
        ("ada", long.as_str(), Some("invalid")),
        ("eve", "Add login", Some("invalid")),
        ("nobody", "Add login", Some("no_such_agent")),
    ] {
        let mut world = world_with_planner();
        let before = world.board.clone();
        let found = world.try_ask("ann", plan_request(planner, goal)).err();
        assert_eq!(
            found.as_ref().map(|refusal| refusal.code()),
            code,
            "{planner} {goal:.20}: {found:?}"
        );
        assert_eq!(
            world.board == before,
            code.is_some(),
            "the refusal changed the board"
        );
    }
    assert_eq!(
        plan_request::planners(&world_with_planner().board).collect::<Vec<_>>(),
        [&agent("ada")]
    );
}

/// The task keeps the whole goal, and its subject is the first line. A task with the same subject
/// is not a planning task.
#[test]
fn a_planning_task_is_recognised_by_its_purpose_not_by_its_subject() {
    let mut world = world_with_planner();
    let goal = "Add login\n\nWith rate limits, and a page.";
    let asked = request_plan(&mut world, &format!("  {goal}\n"));
    let task = world.task(asked);
    assert_eq!(
        (task.subject.as_str(), task.planning_goal()),
        ("Plan: Add login", Some(goal))
    );
    assert_eq!(
        (task.expects(), task.assignee.clone()),
        (Expects::Report, Some(agent("ada")))
    );
    assert!(
        task.is_polled() && !task.is_light(),
        "a planning task counts against the limits"
    );
    let own = regatta_core::task::AddTask {
        issue_type: IssueType::Chore,
        expects: Expects::Report,
        ..task_to_add("Plan: Add login", &[])
    };
    let own = world.add(own);
    assert_eq!(world.task(own).planning_goal(), None);
    let long = request_plan(&mut world, &"é".repeat(1_000));
    assert!(world.task(long).subject.chars().count() <= 200);
}

/// The mission's agent takes the planning task. Its report completes the task, and nothing lands.
#[test]
fn a_planning_task_needs_a_report_and_lands_nothing() {
    for (said, status) in [("[[task]]", Some(TaskStatus::Completed)), (" ", None)] {
        let mut world = world_with_planner();
        let asked = request_plan(&mut world, "Add login");
        let grant = world
            .poll_supervised("ada")
            .expect("the mission's agent gets the planning task");
        assert_eq!(grant.task, asked);
        let (attempt, token) = (grant.attempt, grant.token);
        world.report(Report::Exited {
            attempt,
            token,
            exit: ProgramExit::Done { output: None },
        });
        let result = Some(WorkResult {
            detail: said.into(),
            ..WorkResult::default()
        });
        let findings = WorkFindings {
            result,
            ..WorkFindings::default()
        };
        world.report(Report::WorkVerdict {
            attempt,
            token,
            verdict: passed_verdict(&[]),
            findings,
        });
        match status {
            Some(status) => assert_eq!(world.stored_task(asked).status, status),
            None => assert!(
                world.status(asked).is_waiting(),
                "an empty plan completed the task"
            ),
        }
        assert_eq!(
            world.stored_task(asked).purpose,
            Purpose::Plan {
                goal: "Add login".into()
            }
        );
        assert!(world.board.landings.is_empty());
    }
}
