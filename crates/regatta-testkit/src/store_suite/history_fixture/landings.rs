//! The part of the test history about tasks whose work goes through the landing queue, and about
//! the trunk and its remote.

use super::*;

/// Adds to the test history a task that an outside agent (one that Regatta does not start) accepts
/// and works on. The work lands.
pub(super) fn add_outside_task(history: &mut HistoryBuilder) {
    history.run(
        &person("ann"),
        Some("add-1"),
        Command::AddTask {
            task: new_task("shop", "Trouble", "src/a.rs"),
            assign: None,
            how: AssignMode::Direct,
        },
    );
    history.run_as_ann(Command::AddTask {
        task: new_task("shop", "Ease", "src/b.rs"),
        assign: Some(agent_named("ann")),
        how: AssignMode::Offer,
    });
    history.run_as_ann(Command::AnswerOffer {
        task: TaskId(2),
        agent: agent_named("ann"),
        accept: true,
    });
    history.run_as_ann(Command::EditTask {
        task: TaskId(1),
        edit: EditTask {
            priority: Some(1),
            ..EditTask::default()
        },
    });
    let grant = history.poll("ann", false);
    assert_eq!(grant.task, TaskId(2));
    let (task, attempt, token) = (grant.task, grant.attempt, grant.token);
    history.run_as_ann(Command::Progress {
        task,
        attempt,
        token,
        text: "half way".into(),
    });
    let found = vec![collision_forecast::FoundCollision {
        one: attempt,
        other: None,
        paths: vec!["src/b.rs".into()],
    }];
    history.report(Report::Collisions {
        project: project_named("shop"),
        found,
    });
    history.run_as_ann(Command::Finish {
        task,
        attempt,
        token,
        output: None,
        not_needed: false,
        learnings: vec![],
    });
    let landing = history
        .report_verdict(&grant, passed_verdict(&["src/b.rs"]))
        .expect("the attempt changed something");
    history.report(Report::Trial {
        landing,
        outcome: TrialOutcome::Held {
            landing: None,
            reason: "no room on the disk".into(),
        },
    });
    history.advance(60_000);
    history.report(Report::Trial {
        landing,
        outcome: TrialOutcome::Passed {
            old: commit_id('1'),
            new: commit_id('2'),
            carries: vec![],
        },
    });
    history.report_move(landing, MoveOutcome::Moved);
}

/// Adds to the test history a task that is stopped, fails, has a conflict, needs a person, waits
/// for the trunk, and finally lands.
pub(super) fn add_troubled_task(history: &mut HistoryBuilder) {
    let grant = history.poll("bob", true);
    history.run_as_ann(Command::StopTask {
        task: TaskId(1),
        reason: "not now".into(),
        pause: false,
    });
    history.report(Report::Exited {
        attempt: grant.attempt,
        token: grant.token,
        exit: ProgramExit::Lost,
    });
    let grant = history.poll("bob", true);
    history.report(Report::Exited {
        attempt: grant.attempt,
        token: grant.token,
        exit: ProgramExit::Done { output: None },
    });
    history.report_verdict(
        &grant,
        WorkVerdict::Failed {
            reason: "make test: 2 failed".into(),
        },
    );
    let grant = history.poll("bob", true);
    let landing = history.submit(&grant, "src/a.rs");
    history.report(Report::Trial {
        landing,
        outcome: TrialOutcome::Conflict {
            landing,
            paths: vec!["src/a.rs".into()],
            kinds: vec![],
        },
    });
    // All fix-ups (attempts to repair the work) fail. Each trial merge fails twice, because a
    // failed check is repeated once in case the check is unreliable.
    while history.board.tasks[&TaskId(1)].status.is_waiting() {
        let grant = history.poll("bob", true);
        let landing = history.submit(&grant, "src/a.rs");
        for _ in 0..2 {
            history.report(Report::Trial {
                landing,
                outcome: TrialOutcome::Failed {
                    reason: "make test".into(),
                    output: None,
                    settled: vec![],
                },
            });
        }
    }
    history.run_as_ann(Command::Land {
        task: TaskId(1),
        first: true,
    });
    let landing = *history
        .board
        .landings
        .keys()
        .next()
        .expect("the landing is queued again");
    let trunk_claim = history.acquire("ann", "workspace://shop/default", 0);
    history.report(Report::Trial {
        landing,
        outcome: TrialOutcome::Passed {
            old: commit_id('2'),
            new: commit_id('3'),
            carries: vec![],
        },
    });
    history.release(&trunk_claim);
    history.report_move(landing, MoveOutcome::TrunkMoved);
    history.report(Report::Trial {
        landing,
        outcome: TrialOutcome::AlreadyOnTrunk {
            tip: commit_id('4'),
            landed_as: vec![],
        },
    });
}

/// Adds to the test history landings (finished work to merge) in a queue that a person has stopped.
/// Two landings conflict with each other, and a third is reviewed and sent back.
pub(super) fn add_queue(history: &mut HistoryBuilder) {
    history.run_as_ann(Command::HoldQueue {
        project: project_named("shop"),
        reason: "a release".into(),
    });
    let mut landings = Vec::new();
    for (subject, file) in [
        ("Up", "queue/up"),
        ("Down", "queue/down"),
        ("Attributes", ".gitattributes"),
    ] {
        history.run_as_ann(Command::AddTask {
            task: new_task("shop", subject, file),
            assign: Some(agent_named("ann")),
            how: AssignMode::Queue,
        });
        let grant = history.poll("ann", false);
        let (task, attempt, token) = (grant.task, grant.attempt, grant.token);
        history.run_as_ann(Command::Finish {
            task,
            attempt,
            token,
            output: None,
            not_needed: false,
            learnings: vec![],
        });
        match history.report_verdict(&grant, passed_verdict(&[file])) {
            Some(landing) => landings.push(landing),
            None => {
                history.run_as_ann(Command::Revise {
                    task,
                    text: "without the attributes".into(),
                });
                history.run_as_ann(Command::CancelTask {
                    task,
                    reason: "not at all, then".into(),
                });
            }
        }
    }
    history.run_as_ann(Command::ReleaseQueue {
        project: project_named("shop"),
    });
    let (first, last) = (landings[0], landings[1]);
    let conflict = TrialOutcome::Conflict {
        landing: last,
        paths: vec!["queue/down".into()],
        kinds: vec![],
    };
    history.report(Report::Trial {
        landing: last,
        outcome: conflict,
    });
    history.report(Report::Trial {
        landing: first,
        outcome: TrialOutcome::CommitFailed {
            reason: "make test".into(),
        },
    });
    for (landing, old, new) in [(first, '4', '5'), (last, '5', '6')] {
        let outcome = TrialOutcome::Passed {
            old: commit_id(old),
            new: commit_id(new),
            carries: vec![],
        };
        history.report(Report::Trial { landing, outcome });
        history.report_move(landing, MoveOutcome::Moved);
    }
    add_diverged_remote(history);
}

/// Adds to the test history a push that fails because the remote repository has other commits.
/// Merging these commits conflicts at first; in the end, the trunk is pushed.
fn add_diverged_remote(history: &mut HistoryBuilder) {
    let pushed = |failure: Option<&str>| Report::Pushed {
        project: project_named("shop"),
        remote: "origin".into(),
        commit: commit_id('6'),
        failure: failure.map(str::to_owned),
    };
    history.report(pushed(Some("no route to host")));
    let found = DivergedRemote {
        remote: "origin".into(),
        tip: commit_id('7'),
        changed: vec!["queue/up".into()],
    };
    history.report(Report::Diverged {
        project: project_named("shop"),
        commit: commit_id('6'),
        found,
    });
    let find_join = |history: &HistoryBuilder| {
        history
            .board
            .landings
            .values()
            .find(|landing| regatta_core::landing::merged_remote(&history.board, landing).is_some())
            .cloned()
    };
    let landing = find_join(history).expect("the join is queued");
    history.report(Report::Trial {
        landing: landing.id,
        outcome: TrialOutcome::Conflict {
            landing: landing.id,
            paths: vec!["queue/up".into()],
            kinds: vec![],
        },
    });
    history.run_as_ann(Command::Land {
        task: landing.task,
        first: false,
    });
    let landing = find_join(history).expect("the join is queued again").id;
    history.report(Report::Trial {
        landing,
        outcome: TrialOutcome::AlreadyOnTrunk {
            tip: commit_id('7'),
            landed_as: vec![],
        },
    });
    history.report(pushed(None));
    add_reset_trunk(history);
}

/// Adds to the test history that a person resets the trunk to a commit before a landing, and then
/// accepts that the landed work is missing.
fn add_reset_trunk(history: &mut HistoryBuilder) {
    let missing = TrunkCommit {
        commit: commit_id('6'),
        landing: Some(LandingId(1)),
        task: Some(TaskId(1)),
        subject: "Gone".into(),
    };
    let recorded = trunk_check::recorded(&history.board.projects[&project_named("shop")]);
    let seen = TrunkSeen {
        recorded,
        missing: vec![missing],
        added: vec![],
    };
    history.report(Report::TrunkCompared {
        project: project_named("shop"),
        seen,
    });
    history.run_as_ann(Command::AcceptTrunk {
        project: project_named("shop"),
        tip: Some(commit_id('5')),
    });
}
