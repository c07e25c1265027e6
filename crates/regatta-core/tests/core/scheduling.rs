//! Which task an agent gets next: capacity, queues, offers and order.

use regatta_core::agent;
use regatta_core::board::ReadyFor;
use regatta_core::command::Command;
use regatta_core::ids::{ProjectName, TaskId};
use regatta_core::limits::MachineLimits;
use regatta_core::refusal::Refusal;
use regatta_core::schedule::{PollRequest, WaitKind};
use regatta_core::task::{AddTask, AssignMode, EditTask, OFFER_TTL_MS, TaskStatus};

use crate::world::{
    MINUTE_MS, World, agent as name, grant_of_poll, poll_of, registration, shop, task_to_add,
};

fn nth_file(nth: usize) -> String {
    format!("src/file-{nth}.rs")
}

fn add_pending(world: &mut World, count: usize, to: &str) -> Vec<TaskId> {
    (0..count)
        .map(|nth| {
            world.add_for(
                task_to_add(&format!("part {nth}"), &[&nth_file(nth)]),
                Some(to),
                AssignMode::Queue,
            )
        })
        .collect()
}

fn capacity_of(world: &World, of: &str) -> (u32, u32, u32) {
    let item = agent::capacity(&world.board, &world.board.agents[&name(of)]);
    (item.current, item.max, item.available)
}

/// J4: an agent with three slots and eight pending tasks polls twelve times and gets three tasks,
/// which are in progress at once.
#[test]
fn j4_twelve_polls_take_three_tasks() {
    let mut world = World::with_agents(&[("ada", 3)]);
    let tasks = add_pending(&mut world, 8, "ada");
    let grants: Vec<_> = (0..12)
        .filter_map(|_| {
            let grant = world.poll("ada")?;
            assert_eq!(world.status(grant.task), TaskStatus::InProgress);
            Some(grant.task)
        })
        .collect();
    assert_eq!(grants, tasks[..3]);
    assert!(
        tasks[3..]
            .iter()
            .all(|id| world.status(*id) == TaskStatus::Pending)
    );
    assert_eq!(capacity_of(&world, "ada"), (3, 3, 0));
    assert!(world.wait_kinds(tasks[3]).contains(&WaitKind::Slot));
}

/// J4: a fourth task is refused when assigned directly, but can be queued or offered. A failure
/// frees a slot.
#[test]
fn j4_a_fourth_task_is_refused_queued_or_offered() {
    let mut world = World::with_agents(&[("ada", 3)]);
    add_pending(&mut world, 4, "ada");
    let running: Vec<_> = (0..3).map(|_| world.take_task("ada")).collect();
    let direct = |how| Command::AddTask {
        task: task_to_add("one more", &["more.rs"]),
        assign: Some(name("ada")),
        how,
    };
    let before = world.board.clone();
    let refusal = world.ask_refused("ann", direct(AssignMode::Direct));
    assert_eq!(
        refusal,
        Refusal::AtCapacity {
            agent: name("ada"),
            running: 3,
            max: 3
        }
    );
    assert_eq!(
        refusal.message(),
        "Agent \"ada\" is at capacity (3/3 tasks)"
    );
    assert!(refusal.hint().contains("--offer") && refusal.hint().contains("--queue"));
    assert!(world.board == before, "the refusal changed the board");
    let queued = world.add_for(
        task_to_add("queued", &["q.rs"]),
        Some("ada"),
        AssignMode::Queue,
    );
    let offered = world.add_for(
        task_to_add("offered", &["o.rs"]),
        Some("ada"),
        AssignMode::Offer,
    );
    assert_eq!(
        (world.status(queued), world.status(offered)),
        (TaskStatus::Pending, TaskStatus::Offered)
    );
    assert_eq!(world.poll("ada"), None);
    world.give_up(&running[1]);
    // An offer to the agent would come first. It declines, and gets the oldest task of its queue.
    world.ask(
        "ada",
        Command::AnswerOffer {
            task: offered,
            agent: name("ada"),
            accept: false,
        },
    );
    assert_eq!(world.take_task("ada").task, TaskId(4));
    assert_eq!(world.poll("ada"), None);
}

/// J4: a lower limit ends no attempt, and starts none until there is a free slot.
#[test]
fn j4_lowering_max_tasks_ends_no_attempt() {
    let mut world = World::with_agents(&[("ada", 3)]);
    add_pending(&mut world, 5, "ada");
    let running: Vec<_> = (0..3).map(|_| world.take_task("ada")).collect();
    world.register("ada", 1);
    assert_eq!(
        (world.board.attempts.len(), capacity_of(&world, "ada")),
        (3, (3, 1, 0))
    );
    for grant in &running {
        assert_eq!(
            world.poll("ada"),
            None,
            "a task was granted above the limit"
        );
        world.finish_and_land(grant);
    }
    world.take_task("ada");
    assert_eq!(world.poll("ada"), None);
    for wrong in [0, 21] {
        assert_eq!(
            world
                .ask_refused("ann", Command::RegisterAgent(registration("ada", wrong)))
                .code(),
            "invalid"
        );
    }
    world.register("ada", 20);
    assert_eq!(world.board.agents[&name("ada")].max_tasks, 20);
}

/// J4: an attempt holds a slot while it is validated, but not while it lands.
#[test]
fn j4_a_slot_is_free_once_the_work_is_in_the_queue() {
    let mut world = World::with_agents(&[("ada", 1)]);
    add_pending(&mut world, 2, "ada");
    let grant = world.take_task("ada");
    world.finish(&grant);
    assert_eq!(world.poll("ada"), None);
    world.report_verdict(&grant, crate::world::passed_verdict(&["src/file-0.rs"]));
    world.take_task("ada");
}

/// J4: the machine has its own limit, independent of the limits of its agents.
#[test]
fn j4_the_machine_has_its_own_limit() {
    let mut world = World::with_agents(&[("ada", 20), ("bob", 20)]);
    let tasks: Vec<_> = (0..12)
        .map(|nth| world.add_task("part", &[&nth_file(nth)]))
        .collect();
    let grants = (0..20)
        .filter(|nth| world.poll(["ada", "bob"][nth % 2]).is_some())
        .count();
    assert_eq!(grants, 8, "the machine's default limit");
    assert!(world.wait_kinds(tasks[8]).contains(&WaitKind::Machine));
    world.ask(
        "ann",
        Command::SetLimits {
            limits: MachineLimits {
                max_attempts: 9,
                ..MachineLimits::default()
            },
        },
    );
    assert!(world.poll("ada").is_some() && world.poll("bob").is_none());
    for max_attempts in [0, 10_001] {
        let limits = MachineLimits {
            max_attempts,
            ..MachineLimits::default()
        };
        assert_eq!(
            world
                .ask_refused("ann", Command::SetLimits { limits })
                .code(),
            "invalid"
        );
    }
    // The shutdown timeout has a limit, too.
    let limits = MachineLimits {
        shutdown_ms: 600_001,
        ..MachineLimits::default()
    };
    assert_eq!(
        world
            .ask_refused("ann", Command::SetLimits { limits })
            .code(),
        "invalid"
    );
}

/// Lower priority number first, then age, then id. Offers and the agent's own queue come before the
/// pool.
#[test]
fn tasks_are_given_by_priority_then_age_then_id() {
    let mut world = World::with_agents(&[("ada", 20), ("bob", 1)]);
    world.ask(
        "ann",
        Command::SetLimits {
            limits: MachineLimits {
                max_attempts: 20,
                ..MachineLimits::default()
            },
        },
    );
    let mut add = |priority, to, how| {
        let nth = world.board.counters.task as usize;
        let add = AddTask {
            priority,
            ..task_to_add("part", &[&nth_file(nth)])
        };
        world.add_for(add, to, how).0
    };
    let usual = add(2, None, AssignMode::Direct);
    let late = add(9, None, AssignMode::Direct);
    let first = add(0, None, AssignMode::Direct);
    let same = add(2, None, AssignMode::Direct);
    let own_late = add(9, Some("ada"), AssignMode::Queue);
    let own_task = add(2, Some("ada"), AssignMode::Queue);
    let others = add(0, Some("bob"), AssignMode::Queue);
    let offer_late = add(9, Some("ada"), AssignMode::Offer);
    let offer = add(1, Some("ada"), AssignMode::Offer);
    let mut grants = Vec::new();
    while let Some(grant) = world.poll("ada") {
        grants.push(grant.task.0);
    }
    assert_eq!(
        grants,
        [
            offer, offer_late, own_task, own_late, first, usual, same, late
        ]
    );
    assert_eq!(world.take_task("bob").task.0, others);
}

/// A task whose files are claimed does not hold up the tasks behind it.
#[test]
fn a_claimed_file_holds_up_only_its_own_task() {
    let mut world = World::with_agents(&[("ada", 3)]);
    world.hold_claim("eve", &["file://shop/src/a.rs"]);
    let first = world.add(AddTask {
        priority: 0,
        ..task_to_add("a", &["src/*"])
    });
    let second = world.add_task("b", &["docs/b.md"]);
    assert_eq!(world.take_task("ada").task, second);
    assert!(world.wait_kinds(first).contains(&WaitKind::Claim));
}

/// A poll can be limited to a project. A task for a provider is given only to agents of that
/// provider.
#[test]
fn a_poll_respects_the_project_and_the_provider() {
    let mut world = World::with_agents(&[("ada", 5)]);
    world.ask("ann", Command::AddProject(world.project("docs", &["make"])));
    let docs = ProjectName::new("docs").unwrap();
    world.ask(
        "ann",
        Command::RegisterAgent(agent::RegisterAgent {
            provider: Some("codex".into()),
            ..registration("cody", 5)
        }),
    );
    let shops = world.add_task("a", &["a"]);
    let docss = world.add(AddTask {
        project: docs.clone(),
        ..task_to_add("b", &["a"])
    });
    let codex = world.add(AddTask {
        provider: Some("codex".into()),
        priority: 0,
        ..task_to_add("c", &["c"])
    });
    let other = world.add(AddTask {
        provider: Some("gemini".into()),
        priority: 0,
        ..task_to_add("d", &["d"])
    });
    let of_docs = PollRequest {
        project: Some(docs),
        ..poll_of("ada")
    };
    assert_eq!(
        grant_of_poll(world.ask("ada", Command::Poll(of_docs)))
            .unwrap()
            .task,
        docss
    );
    let of_shop = PollRequest {
        project: Some(shop()),
        ..poll_of("ada")
    };
    assert_eq!(
        grant_of_poll(world.ask("ada", Command::Poll(of_shop)))
            .unwrap()
            .task,
        shops
    );
    assert_eq!(world.poll("ada"), None);
    assert_eq!(world.take_task("cody").task, codex);
    assert_eq!(world.status(other), TaskStatus::Unassigned);
    assert_eq!(
        world
            .ask_refused("x", Command::Poll(poll_of("nobody")))
            .code(),
        "no_such_agent"
    );
}

/// An offer is accepted, declined, or lapses.
#[test]
fn an_offer_is_accepted_declined_or_lapses() {
    let mut world = World::with_agents(&[("ada", 1), ("bob", 1)]);
    let task = world.add_for(
        task_to_add("words", &["src/**"]),
        Some("ada"),
        AssignMode::Offer,
    );
    assert_eq!(
        world.poll("bob"),
        None,
        "the task is offered to another agent"
    );
    let answer = |who: &str, accept| Command::AnswerOffer {
        task,
        agent: name(who),
        accept,
    };
    assert_eq!(
        world.ask_refused("bob", answer("bob", true)).code(),
        "not_offered"
    );
    world.advance(OFFER_TTL_MS - 1);
    assert_eq!(
        (world.status(task), world.wait_kinds(task)[0]),
        (TaskStatus::Offered, WaitKind::Offer)
    );
    world.advance(1);
    assert_eq!(
        (world.status(task), world.task(task).assignee.clone()),
        (TaskStatus::Unassigned, None)
    );
    assert_eq!(
        world.ask_refused("ada", answer("ada", true)).code(),
        "not_offered"
    );
    world.assign(task, Some("ada"), AssignMode::Offer);
    world.ask("ada", answer("ada", false));
    assert_eq!(world.status(task), TaskStatus::Unassigned);
    world.assign(task, Some("ada"), AssignMode::Offer);
    world.ask("ada", answer("ada", true));
    assert_eq!(world.status(task), TaskStatus::Pending);
    world.advance(2 * OFFER_TTL_MS);
    assert_eq!(
        world.status(task),
        TaskStatus::Pending,
        "an accepted offer lapsed"
    );
    world.assign(task, None, AssignMode::Direct);
    world.assign(task, Some("ada"), AssignMode::Offer);
    world.take_task("ada");
    world.advance(2 * OFFER_TTL_MS);
    assert_eq!(
        world.status(task),
        TaskStatus::InProgress,
        "polling accepts the offer"
    );
}

/// Moving an offered task to the backlog ends the offer. Other edits do not accept it.
#[test]
fn an_offer_ends_in_the_backlog_and_no_edit_accepts_it() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_for(
        task_to_add("words", &["src/**"]),
        Some("ada"),
        AssignMode::Offer,
    );
    world.edit(
        task,
        EditTask {
            backlog: Some(false),
            ..EditTask::default()
        },
    );
    assert_eq!(
        world.status(task),
        TaskStatus::Offered,
        "the edit accepted the offer"
    );
    world.edit(
        task,
        EditTask {
            backlog: Some(true),
            ..EditTask::default()
        },
    );
    world.advance(2 * OFFER_TTL_MS);
    assert_eq!(
        world.status(task),
        TaskStatus::Backlog,
        "a lapsed offer moved the task out of the backlog"
    );
    world.edit(
        task,
        EditTask {
            backlog: Some(false),
            ..EditTask::default()
        },
    );
    assert_eq!(
        world.status(task),
        TaskStatus::Unassigned,
        "the task kept the assignee that had not accepted"
    );
}

/// W1: a task in the backlog waits for a person, and is ready again when the person moves it out.
#[test]
fn w1_the_backlog_waits_for_a_person() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add(AddTask {
        backlog: true,
        ..task_to_add("words", &["src/**"])
    });
    assert_eq!(
        (world.poll("ada"), world.wait_kinds(task)),
        (None, vec![WaitKind::Policy])
    );
    world.edit(
        task,
        EditTask {
            backlog: Some(false),
            ..EditTask::default()
        },
    );
    assert_eq!(world.take_task("ada").task, task);
}

/// The ready index lists each agent's next tasks without a poll.
#[test]
fn the_ready_index_lists_pool_queue_and_offers() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let pool = world.add_task("a", &["a"]);
    let own_task = world.add_for(task_to_add("b", &["b"]), Some("ada"), AssignMode::Queue);
    let offer = world.add_for(task_to_add("c", &["c"]), Some("ada"), AssignMode::Offer);
    let line = |ready_for: &ReadyFor| world.board.ready_for(ready_for).collect::<Vec<_>>();
    assert_eq!(line(&ReadyFor::Pool(shop())), [pool]);
    assert_eq!(line(&ReadyFor::Agent(name("ada"))), [own_task]);
    assert_eq!(line(&ReadyFor::Offered(name("ada"))), [offer]);
}

/// An agent with tasks or attempts cannot be removed.
#[test]
fn an_agent_in_use_cannot_be_removed() {
    let mut world = World::with_agents(&[("ada", 1), ("bob", 1)]);
    let task = world.add_for(
        task_to_add("words", &["src/**"]),
        Some("ada"),
        AssignMode::Queue,
    );
    let remove = || Command::RemoveAgent { agent: name("ada") };
    assert_eq!(world.ask_refused("ann", remove()).code(), "in_use");
    let grant = world.take_task("ada");
    assert_eq!(world.ask_refused("ann", remove()).code(), "in_use");
    world.give_up(&grant);
    world.ask("ann", remove());
    assert_eq!(world.ask_refused("ann", remove()).code(), "no_such_agent");
    assert_eq!(world.status(task), TaskStatus::Failed);
    world.advance(MINUTE_MS);
    // Registering an agent again without a change is not an event.
    let revision = world.board.revision;
    world.register("bob", 1);
    assert_eq!(world.board.revision, revision);
}
