//! Claims on the trunk that a person or an agent holds, and how the queue waits for them.

use super::*;

/// A claim on the trunk stops the queue, and its release or expiry lets the queue continue.
#[test]
fn a_held_trunk_stops_the_queue_and_its_release_continues_it() {
    let (mut world, landings) = queued_world(&[2, 2]);
    let claim = world.hold_claim("eve", &[TRUNK]);
    world.pass_trial(landings[0]);
    assert_eq!(landing_states(&world, &landings), ["validated", "queued"]);
    assert_eq!(world.wait_kinds(TaskId(1)), [WaitKind::Claim]);
    world.release("eve", claim);
    assert_eq!(landing_states(&world, &landings), ["moving", "queued"]);
    assert_eq!(
        world
            .ask_refused(
                "eve",
                Command::Acquire(acquire(ClaimOwner::Agent(agent("eve")), &[TRUNK]))
            )
            .code(),
        "claim_held"
    );
    world.report_move(landings[0], MoveOutcome::Moved);
    assert_eq!(landing_states(&world, &landings), ["gone", "trying"]);
    // The expiry of the claim has the same effect.
    world.hold_claim("eve", &["workspace://shop/defaul?"]);
    world.pass_trial(landings[1]);
    assert_eq!(world.landing_state(landings[1]), "validated");
    world.advance(30 * SECOND_MS);
    assert_eq!(world.landing_state(landings[1]), "moving");
}

/// L9: a wait for the trunk that came before the landing is served first.
#[test]
fn l9_the_queue_does_not_overtake_an_earlier_wait_for_the_trunk() {
    let (mut world, landings) = queued_world(&[2]);
    let claim = world.hold_claim("eve", &[TRUNK]);
    let wait = world.wait_for("zoe", &[TRUNK], MINUTE_MS);
    world.pass_trial(landings[0]);
    world.release("eve", claim);
    assert_eq!(world.landing_state(landings[0]), "validated");
    let zoe = world.claim_from_wait(wait).unwrap();
    world.release("zoe", zoe);
    assert_eq!(world.landing_state(landings[0]), "moving");
}

/// Q8: a landing behind an earlier wait continues when that wait ends by timeout, cancellation or
/// restart.
#[test]
fn q8_the_queue_continues_when_an_earlier_wait_ends() {
    type End = fn(&mut World, regatta_core::ids::WaitId);
    let ends: [End; 3] = [
        |world, _| world.advance(10 * SECOND_MS),
        |world, wait| _ = world.ask("regatta", Command::CancelWait { wait }),
        |world, _| world.restart(),
    ];
    for end in ends {
        let (mut world, landings) = queued_world(&[2]);
        world.hold_claim("eve", &["port://1"]);
        // Zoe wants the port and the trunk together. The trunk is free, but zoe's wait came first.
        let wait = world.wait_for("zoe", &["port://1", TRUNK], 10 * SECOND_MS);
        world.pass_trial(landings[0]);
        assert_eq!(world.landing_state(landings[0]), "validated");
        end(&mut world, wait);
        assert_eq!(world.landing_state(landings[0]), "moving");
    }
}

/// L8: the claim that fences a landing cannot be released by others.
#[test]
fn l8_the_fence_of_a_landing_cannot_be_released_by_hand() {
    let (mut world, landings) = queued_world(&[2]);
    world.pass_trial(landings[0]);
    let token = world.fence_of(landings[0]);
    let held = world
        .leases
        .iter()
        .find(|held_claim| held_claim.token == token)
        .copied()
        .unwrap();
    let HeldClaim { claim, token } = held;
    assert_eq!(
        world
            .ask_refused("eve", Command::Release { claim, token })
            .code(),
        "in_use"
    );
}

/// L6, L8: the holder of a trunk claim can lend it to one landing. The claim's token is then the
/// fence. A wrong token is refused, and the move is given up when the claim ends.
#[test]
fn l6_a_trunk_held_by_hand_is_lent_to_one_landing() {
    use regatta_core::landing::LentTrunkClaim;
    let (mut world, landings) = queued_world(&[2, 2]);
    let HeldClaim { claim, token } = world.hold_claim("eve", &[TRUNK]);
    let land = |token| Command::LandWithLentClaim {
        task: TaskId(1),
        lent_claim: LentTrunkClaim { claim, token },
    };
    world.pass_trial(landings[0]);
    assert_eq!(world.landing_state(landings[0]), "validated");
    assert_eq!(
        world.ask_refused("ann", land(token + 1)).code(),
        "stale_token"
    );
    let other = world.hold_claim("eve", &["port://1"]);
    let wrong = Command::LandWithLentClaim {
        task: TaskId(1),
        lent_claim: LentTrunkClaim {
            claim: other.claim,
            token: other.token,
        },
    };
    assert_eq!(
        world.ask_refused("ann", wrong).code(),
        "invalid",
        "a claim on something else is accepted as the fence"
    );
    assert_eq!(world.landing_state(landings[0]), "validated");
    world.ask("ann", land(token));
    assert_eq!(
        (
            world.landing_state(landings[0]),
            world.fence_of(landings[0])
        ),
        ("moving", token)
    );
    world.report_move(landings[0], MoveOutcome::Moved);
    assert_eq!(world.status(TaskId(1)), TaskStatus::Completed);
    assert!(
        world.board.claims.contains_key(&claim),
        "the lent claim ended with the landing"
    );
    world.pass_trial(landings[1]);
    assert_eq!(
        world.landing_state(landings[1]),
        "validated",
        "the claim was lent to the first landing only"
    );
    let lend = Command::LandWithLentClaim {
        task: TaskId(2),
        lent_claim: LentTrunkClaim { claim, token },
    };
    world.ask("ann", lend.clone());
    assert_eq!(world.landing_state(landings[1]), "moving");
    world.release("eve", HeldClaim { claim, token });
    assert_eq!(
        world.landing_state(landings[1]),
        "trying",
        "the move is not given up when its fence ends"
    );
    assert_eq!(world.ask_refused("ann", lend).code(), "claim_ended");
}

/// A project can limit how long its trunk is held by hand.
#[test]
fn max_hold_bounds_a_trunk_held_by_hand() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    let mut request = world.project("shop", &["cargo test"]);
    request.settings.landing.max_hold = regatta_core::project::Millis::seconds(45);
    world.ask("ann", Command::AddProject(request));
    let claim = world.hold_claim("eve", &[TRUNK]);
    for _ in 0..4 {
        world.advance(11 * SECOND_MS);
        world.ask(
            "eve",
            Command::Renew {
                claim: claim.claim,
                token: claim.token,
            },
        );
    }
    world.advance(SECOND_MS);
    assert!(
        !world.board.claims.contains_key(&claim.claim),
        "renewing extends the hold beyond the limit"
    );
}

/// A wait for the trunk ends at the project's `merge_timeout`, even if a longer wait was requested,
/// and a message is posted.
#[test]
fn merge_timeout_ends_a_wait_for_the_trunk_and_posts_a_message() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    let mut request = world.project("shop", &["cargo test"]);
    request.settings.landing.merge_timeout = regatta_core::project::Millis::seconds(30);
    world.ask("ann", Command::AddProject(request));
    world.hold_claim("eve", &[TRUNK]);
    let count = world.count("message.posted");
    let wait = world.wait_for("ada", &[TRUNK], 600 * SECOND_MS);
    world.advance(29 * SECOND_MS);
    assert!(world.board.waits.contains_key(&wait));
    world.advance(2 * SECOND_MS);
    assert!(
        !world.board.waits.contains_key(&wait),
        "the wait did not end"
    );
    assert_eq!(world.count("message.posted"), count + 1);
    let last = world.log.iter().rev().find_map(|event| match &event.event {
        Event::MessagePosted(message_posted) => {
            Some(message_posted.message().labels[0].to_string())
        }
        _ => None,
    });
    assert_eq!(
        last.as_deref(),
        Some("coord:wait"),
        "the message has the wrong label"
    );
}
