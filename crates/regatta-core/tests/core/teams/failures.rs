//! Lanes that fail to start, members that crash, and what replaces them.

use super::*;

/// A launch that was stopped before a lane was alive did not reach everything that was requested.
#[test]
fn t2_a_launch_with_a_lane_that_never_was_alive_is_not_a_clean_success() {
    let mut world = launched_world("codex", &[("tom", "opencode")]);
    report_resolutions(&mut world, &[]);
    bring_up(&mut world, "amy");
    stop_team(&mut world);
    for name in ["tom", "amy"] {
        end_session(&mut world, name, ProgramExit::Lost);
    }
    assert_eq!(
        member_states(&world)
            .iter()
            .map(|member_state| member_state.1)
            .collect::<Vec<_>>(),
        ["stopped", "stopped"]
    );
    assert_eq!(
        launch_record(&world).outcome(),
        launch::LaunchOutcome::PartialSkipped
    );
}

#[test]
fn a_retry_starts_only_the_failed_lane() {
    let mut world = launched_world("codex", &[("tom", "opencode"), ("bob", "opencode")]);
    report_resolutions(&mut world, &["tom"]);
    assert_eq!(member_state(&world, "tom"), MemberState::FailedToStart);
    bring_up(&mut world, "amy");
    bring_up(&mut world, "bob");
    assert_eq!(
        launch_record(&world).outcome(),
        launch::LaunchOutcome::PartialFailure
    );
    let retry = |member: &str| {
        team_command(TeamCommand::Retry {
            team: team_name(),
            member: member_name(member),
        })
    };
    assert!(matches!(
        world.ask_refused("ann", retry("bob")),
        Refusal::InUse { .. }
    ));
    world.ask("ann", retry("tom"));
    assert_eq!(
        (member_state(&world, "tom"), launch_record(&world).phase()),
        (MemberState::Queued, LaunchPhase::Active)
    );
    report_resolutions(&mut world, &[]);
    bring_up(&mut world, "tom");
    assert_eq!(
        launch_record(&world).outcome(),
        launch::LaunchOutcome::CleanSuccess
    );
    assert_eq!(
        (
            launch_entry(&world, "tom").retries,
            launch_entry(&world, "bob").retries
        ),
        (1, 0)
    );
}

#[test]
fn a_lead_that_fails_to_start_skips_the_side_lanes_only() {
    let mut world = launched_world("codex", &[("alice", "codex"), ("tom", "opencode")]);
    report_resolutions(&mut world, &["amy"]);
    assert_eq!(
        member_states(&world)
            .iter()
            .map(|member_state| member_state.1)
            .collect::<Vec<_>>(),
        ["failed_to_start", "starting", "skipped"],
        "a member of the primary lane starts without the lead"
    );
    assert_eq!(
        launch_entry(&world, "tom")
            .cause
            .map(|member_cause| member_cause.kind),
        Some(MemberCauseKind::NoLead)
    );
    let refusal = world.ask_refused(
        "ann",
        team_command(TeamCommand::Retry {
            team: team_name(),
            member: member_name("tom"),
        }),
    );
    assert!(
        refusal.hint().contains("regatta team retry harbour amy"),
        "{}",
        refusal.hint()
    );
}

#[test]
fn a_crash_degrades_one_member_and_records_the_cause() {
    let mut world = running_mixed_team();
    crash_session(&mut world, "tom", FailureClass::Crashed);
    assert_eq!(
        member_states(&world)
            .iter()
            .map(|member_state| member_state.1)
            .collect::<Vec<_>>(),
        ["alive", "alive", "degraded"]
    );
    let tom = launch_entry(&world, "tom");
    assert_eq!(
        tom.cause,
        Some(MemberCause {
            kind: MemberCauseKind::Crashed,
            text: "tom went wrong".into()
        })
    );
    assert_eq!(launch::activity(&world.board, &tom), MemberActivity::Absent);
    assert_eq!(
        launch_record(&world).outcome(),
        launch::LaunchOutcome::PartialFailure
    );
    assert_eq!(team_summary(&world).headline, "2 of 3 alive; tom is down");
}

#[test]
fn a_restart_keeps_live_members_and_degrades_lost_ones() {
    let mut world = running_mixed_team();
    world.restart();
    assert_eq!(
        member_states(&world)
            .iter()
            .map(|member_state| member_state.1)
            .collect::<Vec<_>>(),
        ["alive", "alive", "alive"]
    );
    end_session(&mut world, "tom", ProgramExit::Lost);
    assert_eq!(
        member_states(&world)
            .iter()
            .map(|member_state| member_state.1)
            .collect::<Vec<_>>(),
        ["alive", "alive", "degraded"]
    );
    assert_eq!(
        launch_entry(&world, "tom")
            .cause
            .map(|member_cause| member_cause.kind),
        Some(MemberCauseKind::Lost)
    );
    world.restart();
    assert_eq!(
        member_states(&world)
            .iter()
            .map(|member_state| member_state.1)
            .collect::<Vec<_>>(),
        ["alive", "alive", "degraded"]
    );
}

#[test]
fn a_rate_limited_provider_is_replaced_only_if_failover_is_configured() {
    let limited = |world: &mut World| {
        // A member of that provider hits the rate limit.
        crash_session(world, "alice", FailureClass::RateLimit);
        stop_team(world);
        for name in ["tom", "amy"] {
            end_session(world, name, ProgramExit::Lost);
        }
    };
    let mut world = running_mixed_team();
    limited(&mut world);
    launch_team(&mut world);
    assert_eq!(
        launch_entry(&world, "alice").effective.provider,
        "codex",
        "the member was moved without a failover rule"
    );
    report_resolutions(&mut world, &[]);
    assert_eq!(
        launch_entry(&world, "alice")
            .cause
            .map(|member_cause| member_cause.kind),
        Some(MemberCauseKind::Provider)
    );

    let mut world = running_mixed_team();
    let mut project = world.project("shop", &["cargo test"]);
    project
        .settings
        .lanes
        .failover
        .insert("codex".into(), vec!["anthropic".into()]);
    world.ask("ann", Command::AddProject(project));
    limited(&mut world);
    launch_team(&mut world);
    let alice = launch_entry(&world, "alice");
    assert_eq!(
        (
            alice.requested.provider.as_str(),
            alice.effective.provider.as_str()
        ),
        ("codex", "anthropic")
    );
    assert!(
        alice.notes[0].starts_with("moved from codex to anthropic"),
        "{:?}",
        alice.notes
    );
}
