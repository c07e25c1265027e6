//! Items of the inbox with the same cause, and the counts of agents that need a person.

use regatta_core::agent_protocol::FailureClass;
use regatta_core::attempt::ProgramExit;
use regatta_core::command::{Command, Report};
use regatta_core::display::{self, DisplayState};
use regatta_core::inbox::{self, CauseClass, InboxItem, InboxKind, OpenItem};

use crate::world::{World, agent, exit_report, registration};

const FLEET: usize = 30;

fn open_items(world: &World) -> Vec<OpenItem> {
    inbox::open_items(&world.board, world.now)
}

/// Registers an agent again with this model.
fn choose_model(world: &mut World, name: &str, model: &str) {
    let mut settings = registration(name, 1);
    settings.profile.model = Some(model.to_owned());
    world.ask("ann", Command::RegisterAgent(settings));
}

/// Lets an agent take a task, and lets its program fail because of the agent's settings.
fn fail_setup(world: &mut World, name: &str, reason: &str) {
    let grant = world.poll_supervised(name).unwrap();
    let how = ProgramExit::Failed {
        reason: reason.to_owned(),
        class: Some(FailureClass::BadConfig),
    };
    world.report(exit_report(&grant, how));
}

/// Thirty agents with one wrong model are thirty items with one cause, which names the model. New
/// settings of an agent remove its item, because the fault belongs to the earlier settings.
#[test]
fn agents_with_one_wrong_model_share_a_cause_until_their_model_changes() {
    let mut world = World::with_agents(&[]);
    let names: Vec<String> = (0..FLEET).map(|nth| format!("agent-{nth}")).collect();
    for (nth, name) in names.iter().enumerate() {
        choose_model(&mut world, name, "opus-5");
        world.add_task("work", &[&format!("src/{nth}.rs")]);
    }
    for name in &names {
        fail_setup(
            &mut world,
            name,
            "The program has no model \"opus-5\"; it offers small, big.",
        );
    }
    let items = open_items(&world);
    assert_eq!(items.len(), FLEET);
    let causes: Vec<_> = items
        .iter()
        .map(|item| item.cause.as_ref().unwrap())
        .collect();
    assert!(
        causes
            .iter()
            .all(|cause| cause.class == CauseClass::Model && *cause == causes[0]),
        "{causes:?}"
    );
    assert_eq!(
        causes[0].headline(FLEET),
        "30 agents: the provider does not know the model opus-5"
    );
    assert!(items.iter().all(|item| item.kind == InboxKind::Settings));
    let summary = display::fleet_summary(&world.board, None, &Default::default(), world.now);
    assert_eq!(
        (
            summary.blocked_on_person,
            summary.needs_you,
            summary.agents_needing_you
        ),
        (0, FLEET, FLEET)
    );
    assert_eq!(
        summary.needs_you_text(),
        "30 need you: 30 agents cannot work"
    );
    choose_model(&mut world, &names[0], "opus-5");
    assert_eq!(
        open_items(&world).len(),
        FLEET,
        "the same settings are not tried again"
    );
    choose_model(&mut world, &names[0], "big");
    let left = open_items(&world);
    assert_eq!(left.len(), FLEET - 1);
    assert!(
        left.iter()
            .all(|item| item.item != InboxItem::Agent(agent(&names[0])))
    );
}

/// An agent without output needs a person, so its task and the agent do not also count as working
/// (W2). A person who postpones the item lets the agent work on.
#[test]
fn w2_an_agent_without_output_is_not_also_counted_as_working() {
    let mut world = World::with_agents(&[("ada", 1), ("bob", 1)]);
    for (name, file) in [("ada", "src/a.rs"), ("bob", "src/b.rs")] {
        world.add_task("work", &[file]);
        world.poll_supervised(name).unwrap();
    }
    let attempt = world.board.attempts.values().next().unwrap().clone();
    let half = world.board.limits.silence_ms / 2;
    world.report(Report::Silent {
        attempt: attempt.id,
        token: attempt.token,
        since_ms: Some(half),
    });
    let states = |world: &World| {
        let summary = display::fleet_summary(&world.board, None, &Default::default(), world.now);
        let agents = display::agent_displays(&world.board, world.now);
        (
            (
                summary.working,
                summary.blocked_on_person,
                summary.needs_you,
            ),
            agents[&attempt.agent].state,
        )
    };
    assert_eq!(states(&world), ((1, 1, 1), DisplayState::Needs));
    assert_eq!(
        open_items(&world)[0].cause.as_ref().unwrap().class,
        CauseClass::Silence
    );
    world.ask(
        "ann",
        Command::Snooze {
            item: InboxItem::Attempt(attempt.id),
            ms: Some(60_000),
        },
    );
    assert_eq!(states(&world), ((2, 0, 0), DisplayState::Working));
}
