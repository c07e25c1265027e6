//! Claims: conflicts, tokens, expiry, and the order of waits.

use regatta_core::attempt::ProgramExit;
use regatta_core::claim::{
    Acquire, ClaimMode, ClaimOwner, MAX_TRUNK_HOLD_MS, MAX_TTL_MS, MAX_URIS, MAX_WAIT_MS,
};
use regatta_core::command::{Command, CommandOutcome, Report};
use regatta_core::ids::{AttemptId, LandingId};
use regatta_core::refusal::Refusal;
use regatta_core::task::{AddTask, Expects};

use crate::world::{
    HOUR_MS, HeldClaim, MINUTE_MS, SECOND_MS, World, YEAR_MS, acquire, agent, attempt_owner,
    exit_report, passed_verdict, task_to_add, uri,
};

fn acquisition(name: &str, uris: &[&str]) -> Acquire {
    acquire(ClaimOwner::Agent(agent(name)), uris)
}

fn renew_command(claim: HeldClaim) -> Command {
    Command::Renew {
        claim: claim.claim,
        token: claim.token,
    }
}

fn release_command(claim: HeldClaim) -> Command {
    Command::Release {
        claim: claim.claim,
        token: claim.token,
    }
}

/// An attempt without files holds no claim. A claim on nothing would only clutter every list.
#[test]
fn an_attempt_without_files_holds_no_claim() {
    let mut world = World::with_agents(&[("ada", 2)]);
    world.add(AddTask {
        expects: Expects::Report,
        ..task_to_add("look around", &[])
    });
    let grant = world.take_task("ada");
    assert!(world.board.attempts.contains_key(&grant.attempt));
    let of_attempt = world
        .board
        .claims
        .values()
        .filter(|claim| claim.owner == attempt_owner(grant.attempt));
    assert_eq!(of_attempt.count(), 0);
    assert!(
        world
            .board
            .claims
            .values()
            .all(|claim| !claim.uris.is_empty()),
        "{:?}",
        world.board.claims
    );
    assert_eq!(world.count("claim.granted"), world.board.claims.len());
}

#[test]
fn l1_only_shared_claims_overlap() {
    use ClaimMode::{Exclusive, Shared};
    let check = |first: (&str, ClaimMode), second: (&str, ClaimMode), granted: bool| {
        let mut world = World::empty();
        world.hold_requested_claim(
            "ada",
            Acquire {
                mode: first.1,
                ..acquisition("ada", &[first.0])
            },
        );
        // Claims of the same owner conflict as well.
        for name in ["bob", "ada"] {
            let request = Acquire {
                mode: second.1,
                ..acquisition(name, &[second.0])
            };
            let mut world = world.clone();
            assert_eq!(
                world.try_ask(name, Command::Acquire(request)).is_ok(),
                granted,
                "{first:?} then {second:?}"
            );
        }
    };
    for (a, b, overlap) in [
        ("file://shop/src/**", "file://shop/src/a.rs", true),
        ("file://shop/src/a.rs", "file://shop/src/a.rs", true),
        ("file://shop/src/a.rs", "file://shop/src/b.rs", false),
        ("file://shop/src/**", "file://docs/src/a.rs", false),
        ("bead://shop/bd-1", "bead://shop/bd-12", false),
        ("bead://shop/*", "task://shop/bd-12", true),
        ("agent://a", "agent://a/w", false),
        ("workspace://shop/default", "workspace://shop/*", true),
    ] {
        check((a, Exclusive), (b, Exclusive), !overlap);
        check((a, Exclusive), (b, Shared), !overlap);
        check((a, Shared), (b, Exclusive), !overlap);
        check((a, Shared), (b, Shared), true);
    }
}

/// L1: names that only look alike are different URIs, and one of fifty racing claims is granted.
#[test]
fn l1_one_of_fifty_racing_claims_is_granted() {
    let mut world = World::empty();
    world.hold_claim("lead-1", &["bead://shop/bd-1"]);
    world.hold_claim("lead-2", &["bead://shop/bd-12"]);
    let refusal = world.ask_refused(
        "lead-3",
        Command::Acquire(acquisition("lead-3", &["bead://shop/*"])),
    );
    let Refusal::ClaimHeld { holders } = refusal else {
        panic!("{refusal:?}")
    };
    assert_eq!(holders.len(), 2, "both conflicting claims are named");
    world.hold_claim("a", &["agent://a"]);
    world.hold_claim("w", &["agent://a/w"]);
    let winners = (0..50)
        .filter(|nth| {
            let name = format!("racer-{nth}");
            world
                .try_ask(
                    &name,
                    Command::Acquire(acquisition(&name, &["bead://shop/bd-7"])),
                )
                .is_ok()
        })
        .count();
    assert_eq!(winners, 1);
}

/// L2: tokens only rise, for every owner, also across restarts.
#[test]
fn l2_tokens_rise_across_restarts() {
    let mut world = World::empty();
    let mut last = 0;
    for round in 0..5 {
        let claim = world.hold_claim("ada", &["port://1"]);
        let other = world.hold_claim("bob", &["port://2"]);
        assert!(claim.token > last && other.token > claim.token);
        last = other.token;
        world.release("ada", claim);
        world.release("bob", other);
        if round % 2 == 0 {
            world.restart();
        }
    }
}

/// L5: a lease ends exactly its TTL after the last renewal, and not a millisecond earlier.
#[test]
fn l5_a_lease_ends_exactly_at_its_ttl() {
    let mut world = World::empty();
    let claim = world.hold_claim("ada", &["port://1"]);
    world.advance(20 * SECOND_MS);
    assert_eq!(
        world.ask("ada", renew_command(claim)),
        CommandOutcome::Renewed {
            ttl_ms: 30 * SECOND_MS
        }
    );
    world.advance(30 * SECOND_MS - 1);
    world.report(Report::Tick);
    assert!(world.board.claims.contains_key(&claim.claim));
    world.advance(1);
    assert!(!world.board.claims.contains_key(&claim.claim));
}

/// L5: a lease ends when its expiry is committed. Until then the holder can renew it, however late
/// the tick is.
#[test]
fn l5_a_late_tick_lets_the_holder_renew() {
    let mut world = World::empty();
    let claim = world.hold_claim("ada", &["port://1"]);
    world.advance_without_tick(HOUR_MS);
    world.ask_refused("bob", Command::Acquire(acquisition("bob", &["port://1"])));
    world.ask("ada", renew_command(claim));
    world.report(Report::Tick);
    assert!(world.board.claims.contains_key(&claim.claim));
}

/// L12: a change of the machine's date neither ends nor extends a lease.
#[test]
fn l12_a_jump_of_the_date_neither_ends_nor_extends_a_lease() {
    for jump in [YEAR_MS, -YEAR_MS] {
        let mut world = World::with_agents(&[("ada", 1)]);
        world.add_task("words", &["src/**"]);
        world.take_task("ada");
        let claim = world.hold_claim("bob", &["port://1"]);
        let wait = world.wait_for("eve", &["port://1"], MINUTE_MS);
        world.jump_wall(jump);
        world.report(Report::Tick);
        assert!(
            world.board.claims.contains_key(&claim.claim) && world.board.waits.contains_key(&wait)
        );
        assert_eq!(world.board.attempts.len(), 1);
        world.advance(30 * SECOND_MS - 1);
        assert_eq!(world.claim_from_wait(wait), None);
        world.advance(1);
        assert!(world.claim_from_wait(wait).is_some());
    }
}

/// L6, L8: a caller without the current token cannot renew or release the claim.
#[test]
fn l6_l8_only_the_current_token_renews_or_releases() {
    let mut world = World::empty();
    let old = world.hold_claim("ada", &["port://1"]);
    world.advance(30 * SECOND_MS);
    let new = world.hold_claim("bob", &["port://1"]);
    let guess = |token| HeldClaim {
        claim: new.claim,
        token,
    };
    for (held, code) in [
        (old, "claim_ended"),
        (guess(old.token), "stale_token"),
        (guess(0), "stale_token"),
        (guess(u64::MAX), "stale_token"),
        (guess(new.token + 1), "stale_token"),
        (
            HeldClaim {
                claim: regatta_core::ids::ClaimId(99),
                token: new.token,
            },
            "not_found",
        ),
    ] {
        let before = world.board.clone();
        assert_eq!(
            world.ask_refused("ada", renew_command(held)).code(),
            code,
            "{held:?}"
        );
        assert_eq!(
            world.ask_refused("ada", release_command(held)).code(),
            code,
            "{held:?}"
        );
        assert!(world.board == before);
    }
    world.ask("bob", renew_command(new));
    world.ask("bob", release_command(new));
    assert_eq!(
        world.ask_refused("bob", release_command(new)).code(),
        "claim_ended",
        "the released claim was released again"
    );
}

/// L7: a claim on several URIs is granted whole or not at all, also when it had to wait.
#[test]
fn l7_a_claim_on_several_uris_is_granted_whole() {
    let mut world = World::empty();
    let claim = world.hold_claim("ada", &["port://1"]);
    let refusal = world.ask_refused(
        "bob",
        Command::Acquire(acquisition("bob", &["port://2", "port://1", "port://3"])),
    );
    assert_eq!(refusal.code(), "claim_held");
    assert_eq!(world.board.claims.len(), 1);
    let wait = world.wait_for("bob", &["port://2", "port://1"], MINUTE_MS);
    assert_eq!(
        world.owner_of("port://2"),
        None,
        "a waiter holds no part of its set"
    );
    world.release("ada", claim);
    let granted = world.claim_from_wait(wait).unwrap();
    assert_eq!(
        world.board.claims[&granted.claim].uris,
        [uri("port://2"), uri("port://1")]
    );
}

/// L9: waits are served in order of arrival, and a new request queues behind every earlier wait
/// that it overlaps.
#[test]
fn l9_a_new_claim_does_not_overtake_an_overlapping_wait() {
    let mut world = World::empty();
    let claim = world.hold_claim("ada", &["file://shop/src/x.rs"]);
    // This is how starvation would happen: bob wants all of src while others want one file after
    // another.
    let all = world.wait_for("bob", &["file://shop/src/**"], MINUTE_MS);
    let refusal = world.ask_refused(
        "eve",
        Command::Acquire(acquisition("eve", &["file://shop/src/y.rs"])),
    );
    let Refusal::ClaimHeld { holders } = refusal else {
        panic!("{refusal:?}")
    };
    assert_eq!(
        (holders[0].claim, &holders[0].owner),
        (None, &ClaimOwner::Agent(agent("bob"))),
        "the refusal names the waiting owner"
    );
    let file = world.wait_for("eve", &["file://shop/src/y.rs"], MINUTE_MS);
    // A claim that overlaps no wait is granted.
    world.hold_claim("zoe", &["file://shop/docs/y.md"]);
    world.release("ada", claim);
    let bob = world
        .claim_from_wait(all)
        .expect("the first wait is granted in the commit of the release");
    assert_eq!(world.claim_from_wait(file), None);
    world.release("bob", bob);
    assert!(world.claim_from_wait(file).is_some());
}

/// L9: the start of a task does not overtake a wait for its files.
#[test]
fn l9_a_start_does_not_overtake_an_earlier_wait() {
    let mut world = World::with_agents(&[("ada", 2)]);
    let claim = world.hold_claim("eve", &["file://shop/src/x.rs"]);
    let wait = world.wait_for("bob", &["file://shop/src/**"], MINUTE_MS);
    world.add_task("words", &["src/y.rs"]);
    assert_eq!(world.poll("ada"), None);
    world.release("eve", claim);
    let bob = world.claim_from_wait(wait).unwrap();
    assert_eq!(world.poll("ada"), None);
    world.release("bob", bob);
    world.take_task("ada");
}

/// L9: shared waits are granted together, but not past an exclusive wait between them.
#[test]
fn l9_shared_waits_do_not_overtake_an_exclusive_wait() {
    let mut world = World::empty();
    let held_claim = world.hold_claim("ada", &["port://1"]);
    let shared = |name| Acquire {
        mode: ClaimMode::Shared,
        wait_ms: MINUTE_MS,
        ..acquisition(name, &["port://1"])
    };
    world.ask("r1", Command::Acquire(shared("r1")));
    world.ask("r2", Command::Acquire(shared("r2")));
    let writer = world.wait_for("w", &["port://1"], MINUTE_MS);
    world.ask("r3", Command::Acquire(shared("r3")));
    world.release("ada", held_claim);
    let holders: Vec<String> = world
        .board
        .claims
        .values()
        .map(|claim| claim.owner.to_string())
        .collect();
    assert_eq!(holders, ["r1", "r2"]);
    for claim in world
        .board
        .claims
        .values()
        .map(|claim| HeldClaim {
            claim: claim.id,
            token: claim.token,
        })
        .collect::<Vec<_>>()
    {
        world.release("r", claim);
    }
    assert!(world.claim_from_wait(writer).is_some());
    assert_eq!(world.board.waits.len(), 1);
}

/// L10: a wait that would close a cycle is refused, however long the cycle is.
#[test]
fn l10_a_wait_that_would_deadlock_is_refused() {
    for size in 1..=4 {
        let mut world = World::empty();
        let names: Vec<String> = (0..size).map(|n| format!("agent-{n}")).collect();
        let ports: Vec<String> = (0..size).map(|n| format!("port://{n}")).collect();
        for (name, port) in names.iter().zip(&ports) {
            world.hold_claim(name, &[port]);
        }
        for nth in 1..size {
            world.wait_for(&names[nth - 1], &[&ports[nth]], MINUTE_MS);
        }
        let last = &names[size - 1];
        let request = Acquire {
            wait_ms: MINUTE_MS,
            ..acquisition(last, &[&ports[0]])
        };
        let refusal = world.ask_refused(last, Command::Acquire(request));
        let Refusal::Deadlock { cycle } = refusal else {
            panic!("{size}: {refusal:?}")
        };
        assert_eq!(cycle.len(), size, "the refusal names the whole cycle");
        // Without a wait it is an ordinary refusal, and an agent outside the cycle may wait.
        assert_eq!(
            world
                .ask_refused(last, Command::Acquire(acquisition(last, &[&ports[0]])))
                .code(),
            "claim_held"
        );
        world.wait_for("outsider", &[&ports[0]], MINUTE_MS);
    }
}

/// L10: a cycle through a queued wait counts, too.
#[test]
fn l10_a_cycle_through_a_wait_is_a_deadlock() {
    let mut world = World::empty();
    world.hold_claim("ada", &["port://1"]);
    world.wait_for("bob", &["port://1", "port://2"], MINUTE_MS);
    // Bob waits for ada, and ada would wait behind bob for port 2.
    let request = Acquire {
        wait_ms: MINUTE_MS,
        ..acquisition("ada", &["port://2"])
    };
    assert_eq!(
        world.ask_refused("ada", Command::Acquire(request)).code(),
        "deadlock"
    );
}

/// L10: every wait ends by a grant, a timeout or a cancellation.
#[test]
fn l10_every_wait_ends() {
    let mut world = World::empty();
    let claim = world.hold_requested_claim(
        "ada",
        Acquire {
            ttl_ms: HOUR_MS,
            ..acquisition("ada", &["port://1"])
        },
    );
    let short = world.wait_for("bob", &["port://1"], 10 * SECOND_MS);
    let ended_wait = world.wait_for("eve", &["port://1"], MINUTE_MS);
    let long = world.wait_for("zoe", &["port://1"], MINUTE_MS);
    world.advance(10 * SECOND_MS - 1);
    assert!(world.board.waits.contains_key(&short));
    world.advance(1);
    assert!(!world.board.waits.contains_key(&short));
    world.ask("regatta", Command::CancelWait { wait: ended_wait });
    world.ask("regatta", Command::CancelWait { wait: ended_wait });
    assert_eq!(
        world.count("claim.wait_ended"),
        2,
        "the second cancellation ended another wait"
    );
    world.release("ada", claim);
    assert!(world.claim_from_wait(long).is_some());
}

/// L9, L10: when a wait ends, the wait behind it is granted.
#[test]
fn l10_the_end_of_a_wait_grants_the_next_wait() {
    let mut world = World::empty();
    world.hold_claim("ada", &["port://1"]);
    let both = world.wait_for("bob", &["port://1", "port://2"], 10 * SECOND_MS);
    let one = world.wait_for("eve", &["port://2"], MINUTE_MS);
    world.advance(10 * SECOND_MS);
    assert!(!world.board.waits.contains_key(&both));
    assert!(world.claim_from_wait(one).is_some());
}

/// A trunk claim ends after ten minutes, whatever its renewals and however its URI is spelled.
#[test]
fn a_trunk_claim_ends_after_ten_minutes() {
    for spelling in [
        "workspace://shop/default",
        "workspace://shop/*",
        "workspace://shop/defaul?",
        "workspace://**",
    ] {
        let mut world = World::empty();
        let claim = world.hold_claim("ada", &[spelling, "port://1"]);
        let other = world.hold_claim("ada", &["port://2"]);
        for _ in 0..31 {
            world.advance(20 * SECOND_MS);
            let _ = world.try_ask("ada", renew_command(claim));
            world.ask("ada", renew_command(other));
        }
        assert!(
            !world.board.claims.contains_key(&claim.claim),
            "{spelling} is still held"
        );
        assert!(
            world.board.claims.contains_key(&other.claim),
            "only a trunk claim has a maximum duration"
        );
        assert_eq!(MAX_TRUNK_HOLD_MS, 10 * MINUTE_MS);
    }
}

/// The ten minutes count from the grant, also after a wait, and a restart does not extend them.
#[test]
fn a_trunk_hold_is_not_lengthened_by_restarts() {
    let mut world = World::empty();
    let first = world.hold_requested_claim(
        "ada",
        Acquire {
            ttl_ms: HOUR_MS,
            ..acquisition("ada", &["workspace://shop/default"])
        },
    );
    let wait = world.wait_for("bob", &["workspace://shop/default"], HOUR_MS);
    world.advance(10 * MINUTE_MS - 1);
    assert!(world.board.claims.contains_key(&first.claim));
    world.advance(1);
    let second = world.claim_from_wait(wait).unwrap();
    for _ in 0..40 {
        world.advance(15 * SECOND_MS);
        world.restart();
        let _ = world.try_ask("bob", renew_command(second));
    }
    assert!(!world.board.claims.contains_key(&second.claim));
}

/// L11: the end of an attempt releases all its claims and waits in the same commit.
#[test]
fn l11_the_end_of_an_attempt_releases_its_claims_and_waits() {
    type End = fn(&mut World, &regatta_core::schedule::PollGrant);
    let ends: [(&str, bool, End); 7] = [
        ("gave up", false, |world, poll_grant| {
            world.give_up(poll_grant)
        }),
        ("failed its checks", false, |world, poll_grant| {
            world.fail_once(poll_grant)
        }),
        ("stopped", false, |world, poll_grant| {
            world.stop(poll_grant.task)
        }),
        ("cancelled", false, |world, poll_grant| {
            world.cancel(poll_grant.task)
        }),
        ("silent", false, |world, _| world.advance(HOUR_MS)),
        ("crashed", true, |world, poll_grant| {
            world.report(exit_report(
                poll_grant,
                ProgramExit::Failed {
                    reason: "exit 1".into(),
                    class: None,
                },
            ));
        }),
        ("vanished", true, |world, poll_grant| {
            world.report(exit_report(poll_grant, ProgramExit::Lost));
        }),
    ];
    for (name, supervised, end) in ends {
        let mut world = World::with_agents(&[("ada", 1)]);
        world.add_task("words", &["src/**"]);
        let grant = if supervised {
            world.take_supervised_task("ada")
        } else {
            world.take_task("ada")
        };
        let request = Acquire {
            ttl_ms: 2 * HOUR_MS,
            ..acquire(attempt_owner(grant.attempt), &["port://1"])
        };
        world.hold_requested_claim("ada", request);
        world.hold_requested_claim(
            "bob",
            Acquire {
                ttl_ms: 2 * HOUR_MS,
                ..acquisition("bob", &["port://2"])
            },
        );
        let request = Acquire {
            wait_ms: 2 * HOUR_MS,
            ..acquire(attempt_owner(grant.attempt), &["port://2"])
        };
        world.ask("ada", Command::Acquire(request));
        let port = world.wait_for("eve", &["port://1"], 2 * HOUR_MS);
        let file = world.wait_for("zoe", &["file://shop/src/x.rs"], 2 * HOUR_MS);
        end(&mut world, &grant);
        assert!(
            world.claim_from_wait(port).is_some() && world.claim_from_wait(file).is_some(),
            "{name}"
        );
        assert!(world.board.waits.is_empty(), "{name}");
        assert!(world.board.attempts.is_empty(), "{name}");
    }
}

/// L11: an attempt that has ended or never existed gets no claim.
#[test]
fn l11_an_ended_attempt_acquires_nothing() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.add_task("words", &["src/**"]);
    let grant = world.take_task("ada");
    world.give_up(&grant);
    for owner in [
        attempt_owner(grant.attempt),
        attempt_owner(AttemptId(99)),
        ClaimOwner::Landing(LandingId(1)),
    ] {
        world.ask_refused("ada", Command::Acquire(acquire(owner, &["port://1"])));
    }
}

/// L1: the files pass from the attempt to its landing in one commit and are never free in between.
#[test]
fn l1_files_pass_to_the_landing_without_a_gap() {
    let mut world = World::with_agents(&[("ada", 1), ("bob", 1)]);
    world.add_task("words", &["src/**"]);
    world.add_task("more words", &["src/x.rs"]);
    let grant = world.take_task("ada");
    let wait = world.wait_for("eve", &["file://shop/src/x.rs"], HOUR_MS);
    let landing = world.submit(&grant);
    assert_eq!(
        world.owner_of("file://shop/src/x.rs"),
        Some(ClaimOwner::Landing(landing))
    );
    assert_eq!(
        (world.claim_from_wait(wait), world.poll("bob")),
        (None, None)
    );
    world.move_and_land(landing);
    assert!(
        world.claim_from_wait(wait).is_some(),
        "the claim did not end with the landing"
    );
    assert_eq!(world.count("claim.transferred"), 1);
}

/// L8: the file claims of a live attempt or landing cannot be released by hand.
#[test]
fn l8_file_claims_of_running_work_cannot_be_released_by_hand() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.add_task("words", &["src/**"]);
    world.take_task("ada");
    let claim = world
        .board
        .claims
        .values()
        .next()
        .map(|claim| HeldClaim {
            claim: claim.id,
            token: claim.token,
        })
        .unwrap();
    assert_eq!(
        world.ask_refused("ada", release_command(claim)).code(),
        "in_use"
    );
}

/// Requests outside the limits are refused.
#[test]
fn a_claim_outside_the_limits_is_refused() {
    let mut world = World::empty();
    let fine = acquisition("ada", &["port://1"]);
    for wrong in [
        Acquire {
            uris: vec![],
            ..fine.clone()
        },
        Acquire {
            uris: vec![uri("port://1"); MAX_URIS + 1],
            ..fine.clone()
        },
        Acquire {
            ttl_ms: 0,
            ..fine.clone()
        },
        Acquire {
            ttl_ms: MAX_TTL_MS + 1,
            ..fine.clone()
        },
        Acquire {
            wait_ms: MAX_WAIT_MS + 1,
            ..fine.clone()
        },
        Acquire {
            memo: "x".repeat(501),
            ..fine.clone()
        },
    ] {
        assert_eq!(
            world.ask_refused("ada", Command::Acquire(wrong)).code(),
            "invalid"
        );
    }
    let longest = Acquire {
        ttl_ms: MAX_TTL_MS,
        uris: vec![uri("port://1"); MAX_URIS],
        ..fine
    };
    world.hold_requested_claim("ada", longest);
}

/// L11: a supervised attempt that is being stopped keeps its files until its processes have ended.
#[test]
fn l11_a_stopping_attempt_keeps_its_claims() {
    let mut world = World::with_agents(&[("ada", 1), ("bob", 1)]);
    let task = world.add(task_to_add("words", &["src/**"]));
    let grant = world.take_supervised_task("ada");
    world.stop(task);
    assert_eq!(
        world.owner_of("file://shop/src/x.rs"),
        Some(attempt_owner(grant.attempt))
    );
    assert_eq!(world.poll("bob"), None);
    world.report(exit_report(
        &grant,
        ProgramExit::Failed {
            reason: "killed".into(),
            class: None,
        },
    ));
    assert_eq!(world.owner_of("file://shop/src/x.rs"), None);
    let again = world.take_task("bob");
    world.finish(&again);
    world.report_verdict(&again, passed_verdict(&["src/x.rs"]));
}
