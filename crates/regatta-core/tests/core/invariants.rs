//! The invariants that a pure core can break, each under its id (see `docs/invariants.md`).
//!
//! They are written a second time here, without the board's indexes and functions, so that a
//! mistake in the core is not repeated in its check. [`Invariants`] remembers what the board alone
//! does not show, such as tokens, ends, and when an attempt last reported.

mod claim_invariants; // which claims exclude each other
mod display_invariants; // the states and counts that people see
mod queue_invariants; // the laws of the landing queue

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::attempt::{self, AttemptPhase};
use regatta_core::board::{Board, ReadyFor};
use regatta_core::claim::{
    Acquire, Acquired, ClaimEndCause, ClaimMode, ClaimOwner, ClaimWait, MAX_WAIT_MS,
};
use regatta_core::command::{BoardInput, Command, CommandOutcome, Commit, Report};
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::{AttemptId, ClaimId, LandingId, Now, TaskId};
use regatta_core::landing::LandingState;
use regatta_core::pattern::{PathPattern, Uri};
use regatta_core::project::RuleAction;
use regatta_core::refusal::Refusal;
use regatta_core::schedule::{self, PollRequest, wait_reasons};
use regatta_core::start_gates::{StartFacts, TrunkState};
use regatta_core::task::{Expects, IssueType, Task, TaskStatus};
use regatta_core::{graph, lane, launch, mission};

use claim_invariants::{ClaimParty, blockers, check_exclusion, do_conflict};
use queue_invariants::{check_landings, check_order};

/// The history that some of the laws need.
#[derive(Clone, Default)]
pub(crate) struct Invariants {
    last_token: u64,
    /// The earliest time at which each lease may expire, from its last grant or renewal.
    lease_floor: BTreeMap<ClaimId, u64>,
    /// The earliest time at which each outside attempt may be lost.
    silence_floor: BTreeMap<AttemptId, u64>,
    started_attempts: BTreeSet<AttemptId>,
    ended_attempts: BTreeSet<AttemptId>,
    ended_statuses: BTreeMap<TaskId, TaskStatus>,
}

impl Invariants {
    /// Checks an answer against the board on which it was decided.
    pub(crate) fn check_answer(
        &self,
        before: &Board,
        input: &BoardInput,
        decided: &Result<Commit, Refusal>,
        now: Now,
    ) {
        if let Some(known) = input.key().and_then(|key| before.answers.get(key)) {
            if let Err(Refusal::KeyReused { .. }) = decided {
                return; // another request under the same key: see `talk.rs`
            }
            let again = decided.as_ref().expect("J9: an earlier answer is repeated");
            assert_eq!(
                again.outcome, known.outcome,
                "J9: another answer under the same key"
            );
            assert!(
                again.events.is_empty() && again.rows.is_empty() && again.effects.is_empty(),
                "J9: the command was executed twice"
            );
            return;
        }
        let law = match input {
            BoardInput::Request(request) => refusal_reason(before, &request.command),
            BoardInput::Report(report) => report_refusal_reason(before, report),
        };
        if let Some(law) = law {
            assert!(decided.is_err(), "{law}: {input:?} was not refused");
        }
        let (request, report) = match input {
            BoardInput::Request(request) => (Some(&request.command), None),
            BoardInput::Report(report) => (None, Some(report)),
        };
        match (report, decided) {
            (Some(Report::Tick | Report::DaemonStarted { .. }), Err(refusal)) => {
                panic!("a tick or the start of the daemon was refused: {refusal:?}")
            }
            (Some(Report::PollSupervised { poll, facts }), Ok(done)) => {
                check_poll(before, poll, Some(facts), done, now)
            }
            _ => {}
        }
        match (request, decided) {
            // A person takes over the task that they name, even if another task is next.
            (Some(Command::Poll(ask)), Ok(done)) if ask.by_hand && ask.task.is_some() => {
                let CommandOutcome::Polled(Some(grant)) = &done.outcome else {
                    panic!("{:?}", done.outcome)
                };
                assert_eq!(Some(grant.task), ask.task);
            }
            (Some(Command::Poll(ask)), Ok(done)) => check_poll(before, ask, None, done, now),
            (Some(Command::Acquire(ask)), Ok(done)) => check_atomic_grant(before, ask, done, now),
            _ => {}
        }
    }

    /// Checks one event against the board before and after it.
    pub(crate) fn check_event(&mut self, at_that_time: &Board, recorded: &Recorded, after: &Board) {
        let now = recorded.now;
        assert_eq!(
            recorded.revision,
            at_that_time.revision + 1,
            "a revision was skipped"
        );
        if let Some(id) = task_of(&recorded.event) {
            assert_eq!(
                self.ended_statuses.get(&id),
                None,
                "J7: {} after the end of {id}",
                recorded.event.kind()
            );
        }
        match &recorded.event {
            Event::ClaimGranted(claim_granted) => {
                let claim = claim_granted.claim();
                assert_eq!(
                    claim.token, recorded.revision,
                    "L2: a token is the revision of its grant"
                );
                assert!(claim.token > self.last_token, "L2: a token did not rise");
                self.last_token = claim.token;
                let earlier =
                    |other: &ClaimWait| claim_granted.wait().is_none_or(|mine| other.id < mine);
                for wait in at_that_time.waits.values().filter(|other| earlier(other)) {
                    let (side, other) = (
                        ClaimParty::from_claim(at_that_time, claim),
                        ClaimParty::from_wait(at_that_time, wait),
                    );
                    assert!(!do_conflict(&side, &other), "L9: {} was overtaken", wait.id);
                }
                check_exclusion(after);
                if let (Some(ttl), Some(at)) = (claim.ttl_ms, claim.expires_fleet_ms) {
                    assert_eq!(
                        at,
                        protected_until(now, ttl, claim.latest_end_fleet_ms),
                        "L5: the lease has another length"
                    );
                    self.lease_floor.insert(claim.id, at);
                }
            }
            Event::ClaimRenewed(claim_renewed) => {
                let claim = &at_that_time.claims[claim_renewed.claim()];
                let at = protected_until(
                    now,
                    claim.ttl_ms.expect("only leases are renewed"),
                    claim.latest_end_fleet_ms,
                );
                self.lease_floor.insert(claim.id, at);
            }
            Event::ClaimReleased(claim_released)
                if *claim_released.cause() == ClaimEndCause::Expired =>
            {
                assert!(
                    now.fleet_ms >= self.lease_floor[claim_released.claim()],
                    "L5: {} expired early",
                    claim_released.claim()
                );
            }
            Event::AttemptStarted(attempt_started) => {
                let attempt = attempt_started.attempt();
                assert!(
                    self.started_attempts.insert(attempt.id),
                    "J6: {} started twice",
                    attempt.id
                );
                let of_task = after
                    .attempts
                    .values()
                    .filter(|other| other.task == attempt.task)
                    .count();
                assert_eq!(
                    of_task, 1,
                    "J2: {} has {of_task} live attempts",
                    attempt.task
                );
                // A member's standing session does not count against its limit of tasks.
                let counts =
                    |attempt: &&std::sync::Arc<attempt::Attempt>| attempt.session_of.is_none();
                let running = after
                    .attempts
                    .values()
                    .filter(counts)
                    .filter(|other| other.agent == attempt.agent)
                    .count();
                let max = after.agents[&attempt.agent].max_tasks as usize;
                assert!(running <= max, "J4: {} runs {running}/{max}", attempt.agent);
                let there = after
                    .attempts
                    .values()
                    .filter(|other| other.runner == attempt.runner)
                    .count();
                match &attempt.runner {
                    // a light attempt does not count against the machine's limit
                    None if attempt.takes_no_slot => {}
                    None => {
                        let light = after
                            .attempts
                            .values()
                            .filter(|attempt| attempt.takes_no_slot && attempt.runner.is_none())
                            .count();
                        assert!(
                            there - light <= after.limits.max_attempts as usize,
                            "J4: the machine has too many attempts"
                        );
                    }
                    Some(name) => {
                        let runner = &after.runners[name];
                        assert!(
                            there <= runner.max_tasks as usize,
                            "J4: {name} runs {there}/{}",
                            runner.max_tasks
                        );
                        assert_eq!(
                            runner.state,
                            regatta_core::runner::RunnerState::Up,
                            "J10: {name} is not up and got an attempt"
                        );
                        let whose = &runner.agents;
                        assert!(
                            whose.is_empty() || whose.contains(&attempt.agent),
                            "{name} is not for {}",
                            attempt.agent
                        );
                    }
                }
                self.note_activity(attempt.id, attempt.expires_fleet_ms);
            }
            Event::AttemptRenewed(attempt_renewed) => self.note_activity(
                *attempt_renewed.attempt(),
                Some(*attempt_renewed.expires_at()),
            ),
            Event::AttemptEnded(attempt_ended) => {
                assert!(
                    self.ended_attempts.insert(*attempt_ended.attempt()),
                    "J6: {} ended twice",
                    attempt_ended.attempt()
                );
                let silent = !at_that_time.attempts[attempt_ended.attempt()].supervised
                    && *attempt_ended.cause() == attempt::AttemptCause::Lost;
                assert!(
                    !silent || now.fleet_ms >= self.silence_floor[attempt_ended.attempt()],
                    "L5: {} was lost early",
                    attempt_ended.attempt()
                );
            }
            Event::TaskStarted(task_started) => {
                let task = &at_that_time.tasks[task_started.task()];
                for blocker in &task.blocked_by {
                    assert_eq!(
                        self.ended_statuses.get(blocker),
                        Some(&TaskStatus::Completed),
                        "J5: {} before {blocker}",
                        task.id
                    );
                }
                let mission = task.mission.map(|id| &at_that_time.missions[&id]);
                assert!(
                    mission.is_none_or(|mission| mission.state == mission::MissionState::Active),
                    "J10: a draining mission started {}",
                    task.id
                );
                let busy = mission.map_or(0, |mission| tasks_at_work(after, mission.id));
                assert!(
                    mission.is_none_or(|mission| busy <= mission.max_workers as usize),
                    "J4: a mission has {busy} workers"
                );
            }
            Event::LandingBegun(landing_begun) => check_order(
                at_that_time,
                landing_begun.landing(),
                landing_begun.ahead().as_deref().unwrap_or(&[]),
            ),
            Event::TaskCompleted(task_completed) => {
                self.note_ended(*task_completed.task(), TaskStatus::Completed)
            }
            Event::TaskFailed(task_failed) => {
                self.note_ended(*task_failed.task(), TaskStatus::Failed)
            }
            Event::TaskCancelled(task_cancelled) => {
                self.note_ended(*task_cancelled.task(), TaskStatus::Cancelled)
            }
            _ => {}
        }
    }

    fn note_activity(&mut self, id: AttemptId, until: Option<u64>) {
        if let Some(at) = until {
            self.silence_floor.insert(id, at);
        }
    }

    fn note_ended(&mut self, id: TaskId, status: TaskStatus) {
        self.ended_statuses.insert(id, status);
    }

    /// Checks what must hold between any two commands.
    pub(crate) fn check_commit(
        &self,
        before: &Board,
        board: &Board,
        events: &[Recorded],
        effects: &[(EffectKey, Effect)],
        now: Now,
    ) {
        assert_eq!(
            board.revision,
            before.revision + events.len() as u64,
            "a revision was skipped"
        );
        for (key, _) in effects {
            assert!(
                key.revision > before.revision && key.revision <= board.revision,
                "an effect has no event"
            );
        }
        if events.is_empty() {
            assert!(before == board, "something changed without an event");
        }
        for (id, status) in &self.ended_statuses {
            assert_eq!(
                board.ended_status(*id),
                Some(*status),
                "J7: the end of {id} was forgotten"
            );
        }
        let live: BTreeSet<_> = board.attempts.keys().copied().collect();
        assert!(
            live.iter()
                .eq(self.started_attempts.difference(&self.ended_attempts)),
            "J6: an attempt disappeared without a cause"
        );
        check_exclusion(board);
        check_owners(board);
        check_waits(board, now);
        check_tasks(board, now);
        display_invariants::check_display(board, now);
        crate::inboxes::check_inbox(board, now);
        check_landings(board);
        check_ready(board);
        check_sessions(board);
        check_teams(board);
    }
}

/// T1, T2, T4: a launch has an entry for each expected member, its outcome follows from its
/// entries, and the primary lane starts no member that needs its own lane.
fn check_teams(board: &Board) {
    for launch in board.launches.values() {
        let id = launch.id;
        assert_eq!(
            board.teams[&launch.team].launch,
            Some(id),
            "{id} is on the board without a team"
        );
        let names: Vec<_> = launch
            .members
            .iter()
            .map(|launch| launch.name.clone())
            .collect();
        assert_eq!(
            names, launch.expected_members,
            "T1: {id} does not expect its whole roster"
        );
        let pending = launch.members.iter().any(|launch| {
            matches!(
                launch.state.name(),
                "queued" | "starting" | "pending_bootstrap" | "pending_permission"
            )
        });
        let active = pending || launch.stopping.is_some();
        assert_eq!(
            launch.phase() == launch::LaunchPhase::Active,
            active,
            "T2: {id} is {:?}",
            launch.phase()
        );
        let unknown = |launch: &launch::LaunchEntry| {
            launch.cause.as_ref().is_some_and(|member_cause| {
                member_cause.kind == launch::MemberCauseKind::LaneUnknown
            })
        };
        let failed = launch.members.iter().any(|launch| {
            launch.state == launch::MemberState::FailedToStart
                || (launch.state == launch::MemberState::Degraded && !unknown(launch))
        });
        let skipped = launch.members.iter().any(|launch| {
            launch.state == launch::MemberState::Skipped
                || (launch.state == launch::MemberState::Stopped
                    && launch.alive_since_unix_ms.is_none())
        });
        let expected = match (
            pending || launch.members.iter().any(unknown),
            failed,
            skipped,
        ) {
            (true, ..) => launch::LaunchOutcome::PartialPending,
            (_, true, _) => launch::LaunchOutcome::PartialFailure,
            (.., true) => launch::LaunchOutcome::PartialSkipped,
            _ => launch::LaunchOutcome::CleanSuccess,
        };
        assert_eq!(launch.outcome(), expected, "T2: {id}");
        for entry in &launch.members {
            let primary = launch.bootstrap_expected_members.contains(&entry.name);
            let kind = entry.lane.as_ref().map(|lane_ref| lane_ref.kind);
            assert!(
                !(primary && kind == Some(lane::LaneKind::Secondary)),
                "T4: {} starts with the primary lane",
                entry.name
            );
            assert!(
                !entry.lead || kind != Some(lane::LaneKind::Secondary),
                "T4: the lead of {id} is on a secondary lane"
            );
            if let Some(attempt) = entry.attempt {
                let live = board.attempts.get(&attempt);
                let session = live.and_then(|attempt| attempt.session_of.clone());
                let same = session.is_some_and(|session_of| {
                    session_of.launch == id && session_of.member == entry.name
                });
                assert!(
                    same,
                    "{} of {id} has {attempt}, which is another member's session",
                    entry.name
                );
            }
            let up = entry.state == launch::MemberState::Alive
                || (entry.state.is_pending() && entry.state != launch::MemberState::Queued);
            assert_eq!(
                up,
                entry.attempt.is_some(),
                "{} of {id} is {}, which does not match whether it has a session",
                entry.name,
                entry.state.name()
            );
        }
    }
    for attempt in board
        .attempts
        .values()
        .filter(|attempt| attempt.session_of.is_some())
    {
        let of = attempt.session_of.as_ref().and_then(|session_of| {
            board
                .launches
                .get(&session_of.launch)?
                .entry(&session_of.member)
                .cloned()
        });
        assert_eq!(
            of.and_then(|launch| launch.attempt),
            Some(attempt.id),
            "{} is not the session of a member",
            attempt.id
        );
    }
}

fn protected_until(now: Now, ttl_ms: u64, latest_at: Option<u64>) -> u64 {
    latest_at.unwrap_or(u64::MAX).min(now.fleet_ms + ttl_ms)
}

/// L6, L8, J3, J7: returns the law by which a command must be refused on this board.
fn refusal_reason(board: &Board, command: &Command) -> Option<&'static str> {
    let speaks = |task: &TaskId, id: &AttemptId, token: &u64| {
        board.tasks.contains_key(task)
            && board.attempts.get(id).is_some_and(|attempt| {
                attempt.task == *task && attempt.token == *token && attempt.stopping.is_none()
            })
    };
    let (law, allowed) = match command {
        Command::Renew { claim, token } | Command::Release { claim, token } => (
            "L6, L8",
            board
                .claims
                .get(claim)
                .is_some_and(|claim| claim.token == *token),
        ),
        Command::Finish {
            task,
            attempt,
            token,
            ..
        }
        | Command::GiveUp {
            task,
            attempt,
            token,
            ..
        } => ("J3", speaks(task, attempt, token)),
        Command::Progress { attempt, token, .. } => ("J3", is_live(board, attempt, token)),
        Command::EditTask { task, .. }
        | Command::AssignTask { task, .. }
        | Command::AnswerOffer { task, .. }
        | Command::CancelTask { task, .. }
        | Command::StopTask { task, .. }
        | Command::Land { task, .. }
        | Command::Revise { task, .. } => ("J7", board.tasks.contains_key(task)),
        _ => return None,
    };
    (!allowed).then_some(law)
}

/// Returns whether an attempt runs and has this token.
fn is_live(board: &Board, id: &AttemptId, token: &u64) -> bool {
    board
        .attempts
        .get(id)
        .is_some_and(|attempt| attempt.token == *token)
}

/// L6, J3: returns the law by which a report must be refused, if there is one.
fn report_refusal_reason(board: &Board, report: &Report) -> Option<&'static str> {
    let state = |id: &LandingId| board.landings.get(id).map(|landing| &landing.state);
    let (law, allowed) = match report {
        Report::Exited { attempt, token, .. } | Report::WorkVerdict { attempt, token, .. } => {
            ("J3", is_live(board, attempt, token))
        }
        Report::Trial { landing, .. } => (
            "L6",
            matches!(state(landing), Some(LandingState::Trying { .. })),
        ),
        Report::TrunkMove { landing, fence, .. } => (
            "L6",
            matches!(state(landing), Some(LandingState::Moving { fence: live, .. }) if live == fence),
        ),
        _ => return None,
    };
    (!allowed).then_some(law)
}

/// A poll grants the next task for the agent.
fn check_poll(
    before: &Board,
    ask: &PollRequest,
    facts: Option<&StartFacts>,
    done: &Commit,
    now: Now,
) {
    let CommandOutcome::Polled(grant) = &done.outcome else {
        panic!("{:?}", done.outcome)
    };
    assert_eq!(
        grant.as_ref().map(|poll_grant| poll_grant.task),
        next_task(before, ask, facts, now),
        "not the next task of {ask:?}"
    );
}

/// Returns whether these are the requested URIs. A task that was named by its alias is also named
/// by its id.
fn are_requested_uris(uris: &[Uri], ask: &Acquire) -> bool {
    let (asked, more) = uris.split_at(ask.uris.len().min(uris.len()));
    asked == ask.uris && more.iter().all(|uri| uri.as_str().starts_with("task://"))
}

/// L7: a set of URIs is granted whole or not at all.
fn check_atomic_grant(before: &Board, ask: &Acquire, done: &Commit, now: Now) {
    let CommandOutcome::Claim(acquired) = &done.outcome else {
        panic!("{:?}", done.outcome)
    };
    // A task that was named by its alias is also requested by its id.
    let uris = match acquired {
        Acquired::Granted { claim, .. } => &done.board.claims[claim].uris,
        Acquired::Waiting { wait, .. } => &done.board.waits[wait].uris,
    };
    let side = ClaimParty::by_hand(before, &ask.owner, uris, ask.mode);
    let blocked = !blockers(before, &side, None).is_empty();
    match acquired {
        Acquired::Granted {
            claim,
            token,
            ttl_ms,
        } => {
            let claim = &done.board.claims[claim];
            assert_eq!((&claim.owner, claim.token), (&ask.owner, *token), "L7");
            assert!(
                are_requested_uris(&claim.uris, ask),
                "L7: {:?} granted for {:?}",
                claim.uris,
                ask.uris
            );
            assert!(!blocked, "L1, L9: granted although another owner is first");
            assert_eq!(
                claim.expires_fleet_ms,
                Some(now.fleet_ms + ttl_ms),
                "L5: the lease has another length than was answered"
            );
        }
        Acquired::Waiting { wait, .. } => {
            assert!(
                are_requested_uris(&done.board.waits[wait].uris, ask),
                "L7: {:?}",
                ask.uris
            );
            assert_eq!(
                before.claims, done.board.claims,
                "L7: a part of the set was granted"
            );
            assert!(blocked, "a wait was created although nothing blocks it");
        }
    }
}

/// L11: an owner that has ended holds nothing and waits for nothing.
fn check_owners(board: &Board) {
    let owners = board
        .claims
        .values()
        .map(|claim| &claim.owner)
        .chain(board.waits.values().map(|claim_wait| &claim_wait.owner));
    for owner in owners {
        match owner {
            ClaimOwner::Agent(_) => {}
            ClaimOwner::Attempt(id) => {
                assert!(
                    board.attempts.contains_key(id),
                    "L11: {id} has ended and still holds or waits"
                )
            }
            ClaimOwner::Landing(id) => {
                assert!(
                    board.landings.contains_key(id),
                    "L11: {id} has ended and still holds or waits"
                )
            }
        }
    }
}

/// L9, L10: every wait is blocked, every wait has an end, and waits form no cycle.
fn check_waits(board: &Board, now: Now) {
    let mut edges: BTreeMap<&ClaimOwner, BTreeSet<ClaimOwner>> = BTreeMap::new();
    for wait in board.waits.values() {
        assert!(
            wait.deadline_fleet_ms <= now.fleet_ms + MAX_WAIT_MS,
            "L10: {} has no end",
            wait.id
        );
        let side = ClaimParty::from_wait(board, wait);
        let ahead: BTreeSet<ClaimOwner> = blockers(board, &side, Some(wait)).into_iter().collect();
        assert!(
            !ahead.is_empty(),
            "L9: {} waits although nothing blocks it",
            wait.id
        );
        edges.entry(&wait.owner).or_default().extend(ahead);
    }
    for start in edges.keys() {
        let mut open: Vec<&ClaimOwner> = edges[start].iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(owner) = open.pop() {
            assert!(owner != *start, "L10: {start} waits for itself");
            if seen.insert(owner) {
                open.extend(edges.get(owner).into_iter().flatten());
            }
        }
    }
}

/// J2, J3, W1, and that a task and its attempt agree.
fn check_tasks(board: &Board, now: Now) {
    for task in board.tasks.values() {
        let (id, status) = (task.id, task.status);
        assert!(!status.is_terminal(), "J7: {id} is {status} and open");
        let reasons = wait_reasons(board, task, now);
        assert_eq!(
            reasons.is_empty(),
            status.is_running(),
            "W1: {id} is {status} and waits for {reasons:?}"
        );
        assert!(
            reasons
                .iter()
                .all(|wait_reason| !wait_reason.text.trim().is_empty()),
            "W1: an empty reason"
        );
        assert_eq!(
            task.offer_until_fleet_ms.is_some(),
            status == TaskStatus::Offered,
            "{id} is {status}, which does not match whether it has an offer"
        );
        assert!(
            status != TaskStatus::Offered || task.assignee.is_some(),
            "{id} is offered to no agent"
        );
        assert!(
            status != TaskStatus::Pending || task.assignee.is_some(),
            "{id} is pending without an assignee"
        );
        assert!(
            status != TaskStatus::Unassigned || task.assignee.is_none(),
            "{id} is unassigned and has an assignee"
        );
        assert_eq!(
            task.landing.is_some(),
            status == TaskStatus::Landing,
            "{id} is {status}, which does not match whether it has a landing"
        );
        let attempt = task.attempt.map(|id| {
            board
                .attempts
                .get(&id)
                .expect("J3: the attempt of a task is live")
        });
        assert!(
            attempt.is_none_or(|attempt| attempt.task == id),
            "J2: {id} has another task's attempt"
        );
        // A standing task lives exactly as long as its session, also while the session is being
        // stopped.
        let at_work = attempt
            .filter(|attempt| attempt.stopping.is_none() || attempt.session_of.is_some())
            .map(|attempt| attempt.phase);
        let expected = match status {
            TaskStatus::InProgress => Some(AttemptPhase::Working),
            TaskStatus::Validating => Some(AttemptPhase::Validating),
            _ => None,
        };
        assert_eq!(at_work, expected, "J3: {id} is {status}");
    }
    for attempt in board.attempts.values() {
        let of_task = board
            .tasks
            .get(&attempt.task)
            .filter(|task| task.attempt == Some(attempt.id));
        assert!(
            of_task.is_some() || attempt.stopping.is_some(),
            "J2: {} has no task",
            attempt.id
        );
        let runs_here = attempt.supervised || attempt.phase == AttemptPhase::Validating;
        assert!(
            runs_here || attempt.stopping.is_none(),
            "{} has no process to wait for",
            attempt.id
        );
        if attempt.stopping.is_none() {
            let needs = of_task
                .map(|task| needed_uris(board, task))
                .unwrap_or_default();
            check_files(board, &ClaimOwner::Attempt(attempt.id), &needs);
        }
    }
}

/// The files of work under way are always held by its attempt or its landing.
fn check_files(board: &Board, owner: &ClaimOwner, needs: &[Uri]) {
    let held: Vec<&Uri> = board
        .claims
        .values()
        .filter(|claim| claim.owner == *owner)
        .flat_map(|claim| &claim.uris)
        .collect();
    for uri in needs {
        assert!(held.contains(&uri), "{owner} does not hold {uri}");
    }
}

/// A request of an agent is on the board while its attempt lives, or while it is a kept question of
/// an open task. Each request is there once. An attempt's usage is the sum of the cumulative counts
/// that its sessions reported.
fn check_sessions(board: &Board) {
    let mut asked = BTreeSet::new();
    for approval in board.approvals.values() {
        let is_kept = approval.is_kept_for_task && board.tasks.contains_key(&approval.task);
        let is_live = board.attempts.contains_key(&approval.attempt);
        assert!(
            is_live || is_kept,
            "{} is left after {} has ended",
            approval.id,
            approval.attempt
        );
        assert!(
            asked.insert((approval.attempt, &approval.request.id)),
            "{} is on the board twice",
            approval.id
        );
        assert!(!(approval.closed && approval.is_open()));
    }
    let mut workspaces = BTreeSet::new();
    for attempt in board.attempts.values() {
        let sessions: u64 = attempt
            .session
            .usage_by_session
            .iter()
            .map(|usage_by_session| usage_by_session.1.tokens())
            .sum();
        let before = match &attempt.resumes {
            Some(resume_point)
                if resume_point.agent == attempt.agent && resume_point.session.is_some() =>
            {
                resume_point.used.tokens()
            }
            _ => 0,
        };
        assert_eq!(
            attempt.used.tokens() + before,
            sessions,
            "{} was not charged what its sessions report",
            attempt.id
        );
        assert!(
            workspaces.insert(attempt.workspace()),
            "two attempts in the workspace of {}",
            attempt.workspace()
        );
    }
    for task in board.tasks.values() {
        let Some(resume) = &task.resume else { continue };
        let alone = board
            .attempts
            .values()
            .all(|attempt| attempt.workspace() != resume.workspace || attempt.task == task.id);
        assert!(
            alone
                && (task.status.is_waiting()
                    || matches!(task.status, TaskStatus::NeedsHuman | TaskStatus::Backlog)
                    || (task.is_conversation()
                        && matches!(task.status, TaskStatus::InReview | TaskStatus::Landing))),
            "{}",
            task.id
        );
    }
    for rule in board.rules.values() {
        match &rule.scope {
            regatta_core::policy::RuleScope::Task(id) => {
                assert!(
                    board.tasks.contains_key(id),
                    "{} is left after {id} has ended",
                    rule.id
                )
            }
            regatta_core::policy::RuleScope::Mission(id) => {
                assert!(
                    board.missions.contains_key(id),
                    "{} is left after {id} has ended",
                    rule.id
                )
            }
            _ => {}
        }
    }
}

fn tasks_at_work(board: &Board, id: regatta_core::ids::MissionId) -> usize {
    board
        .attempts
        .values()
        .filter(|attempt| attempt.mission == Some(id) && !attempt.takes_no_slot)
        .count()
}

/// Returns whether a task could start, apart from slots, claims and its mission's limits, computed
/// from the rows alone.
fn is_ready(board: &Board, task: &Task) -> bool {
    let contract = matches!(
        task.issue_type,
        IssueType::Feature | IssueType::Bug | IssueType::Task
    ) && task.expects() == Expects::Changes;
    let own = &task.validation;
    let structure = !own.files_exist.is_empty() || !own.content_check.is_empty();
    let checked = (!own.tests.is_empty() && structure)
        || !board.projects[&task.project].validation.is_empty();
    !task.resting
        && matches!(
            task.status,
            TaskStatus::Unassigned | TaskStatus::Offered | TaskStatus::Pending
        )
        && task.paused.is_none()
        && task.not_before_fleet_ms.is_none()
        && task.attempt.is_none()
        && task
            .blocked_by
            .iter()
            .all(|id| board.ended_status(*id) == Some(TaskStatus::Completed))
        && (!contract || (!task.files.is_empty() && checked))
        && !board.projects[&task.project]
            .settings
            .rule
            .iter()
            .any(|rule| {
                let meets = rule.files.iter().any(|theirs| {
                    task.files
                        .iter()
                        .any(|path_pattern| path_pattern.overlaps(theirs))
                });
                rule.action == RuleAction::Block
                    && rule.pattern.is_none()
                    && (rule.types.is_empty() || rule.types.contains(&task.issue_type))
                    && (rule.files.is_empty() || meets)
            })
}

/// Checks the ready index against a scan of all tasks.
fn check_ready(board: &Board) {
    let mut lines: BTreeMap<ReadyFor, Vec<(u8, TaskId)>> = BTreeMap::new();
    for agent in board.agents.keys() {
        lines.insert(ReadyFor::Agent(agent.clone()), vec![]);
        lines.insert(ReadyFor::Offered(agent.clone()), vec![]);
    }
    lines.extend(
        board
            .missions
            .keys()
            .map(|id| (ReadyFor::Mission(*id), vec![])),
    );
    lines.extend(
        board
            .projects
            .keys()
            .map(|project| (ReadyFor::Pool(project.clone()), vec![])),
    );
    for task in board.tasks.values().filter(|task| is_ready(board, task)) {
        let line = match (&task.assignee, task.mission) {
            (Some(to), _) if task.status == TaskStatus::Offered => ReadyFor::Offered(to.clone()),
            (Some(to), _) => ReadyFor::Agent(to.clone()),
            (None, Some(mission)) if board.missions[&mission].mode == mission::StartMode::Waves => {
                ReadyFor::Step(mission, task.step())
            }
            (None, Some(mission)) => ReadyFor::Mission(mission),
            (None, None) => ReadyFor::Pool(task.project.clone()),
        };
        lines
            .entry(line)
            .or_default()
            .push((task.priority, task.id));
    }
    for (line, mut tasks) in lines {
        tasks.sort();
        assert!(
            board
                .ready_for(&line)
                .eq(tasks.into_iter().map(|task| task.1)),
            "the ready index of {line:?} is wrong"
        );
    }
}

/// Returns whether the facts forbid a start for the mission that the poll names.
fn is_blocked_by_facts(board: &Board, ask: &PollRequest, facts: &StartFacts, now: Now) -> bool {
    let Some(mission) = ask.mission.and_then(|id| board.missions.get(&id)) else {
        return false;
    };
    let young = board
        .attempts
        .values()
        .filter(|attempt| attempt.runner == facts.runner)
        .filter(|attempt| now.fleet_ms - attempt.started_fleet_ms < 30_000)
        .count() as u64;
    let short = |free: Option<u64>, need: u64| free.is_some_and(|free| free < need * (young + 1));
    let lost = match &facts.base {
        Some(TrunkState::Broken { .. }) => true,
        Some(TrunkState::Present { lost, .. }) => {
            mission.mode == mission::StartMode::Waves && !lost.is_empty()
        }
        _ => false,
    };
    lost || short(facts.memory_mb, board.limits.attempt_memory_mb)
        || short(facts.disk_mb, board.limits.attempt_disk_mb)
}

/// Returns whether a task in flow depends on landed work that is missing from the trunk, as the
/// shell sees it now or saw it last.
fn lacks_blocker(
    board: &Board,
    task: &Task,
    ask: &PollRequest,
    facts: Option<&StartFacts>,
) -> bool {
    let Some(mission) = task.mission.map(|id| &board.missions[&id]) else {
        return false;
    };
    match facts.filter(|_| ask.mission == task.mission) {
        Some(facts) => match &facts.base {
            Some(TrunkState::Present { lost, .. }) => {
                lost.iter().any(|lost| task.blocked_by.contains(&lost.task))
            }
            _ => false,
        },
        None => mission
            .blocking_gates
            .iter()
            .any(|passage| passage.tasks.contains(&task.id)),
    }
}

/// Returns the task that a poll must give, by applying every scheduling rule to every task.
pub(crate) fn next_task(
    board: &Board,
    ask: &PollRequest,
    facts: Option<&StartFacts>,
    now: Now,
) -> Option<TaskId> {
    let agent = board.agents.get(&ask.agent)?;
    let lanes = [
        Some(format!("agent:{}", agent.name)),
        agent.provider.clone(),
    ];
    if facts.is_some_and(|start_facts| is_blocked_by_facts(board, ask, start_facts, now)) {
        return None;
    }
    if facts.is_some()
        && lanes.iter().flatten().any(|lane| {
            board
                .parked
                .get(lane)
                .is_some_and(|provider_outage| !provider_outage.has_resumed)
        })
    {
        return None;
    }
    let running = board
        .attempts
        .values()
        .filter(|attempt| attempt.agent == ask.agent && attempt.session_of.is_none())
        .count();
    let place = facts.and_then(|start_facts| start_facts.runner.as_ref());
    let light = ask
        .task
        .and_then(|id| board.tasks.get(&id))
        .is_some_and(|task| !task.purpose.has_contract());
    let heavy = |attempt: &attempt::Attempt| place.is_some() || !attempt.takes_no_slot;
    let there = board
        .attempts
        .values()
        .filter(|attempt| attempt.runner.as_ref() == place && heavy(attempt))
        .count();
    let most = match place {
        None if facts.is_some() && !agent.profile.labels.is_empty() => return None,
        None => board.limits.max_attempts,
        Some(name) => {
            let runner = board
                .runners
                .get(name)
                .filter(|runner| runner.state == regatta_core::runner::RunnerState::Up)?;
            let labelled = agent
                .profile
                .labels
                .iter()
                .all(|label| runner.labels.contains(label));
            if (!runner.agents.is_empty() && !runner.agents.contains(&ask.agent)) || !labelled {
                return None;
            }
            runner.max_tasks
        }
    };
    let full = there >= most as usize && (place.is_some() || !light);
    if running >= agent.max_tasks as usize || full {
        return None;
    }
    // Unfinished work continues on the machine of its workspace as long as that machine exists.
    let lies = |task: &Task| {
        let at = task
            .resume
            .as_ref()
            .and_then(|resume_point| resume_point.runner.as_ref());
        let gone = at.is_some_and(|runner| {
            board
                .runners
                .get(runner)
                .is_none_or(|runner| runner.expires_fleet_ms.is_none())
        });
        facts.is_none() || task.resume.is_none() || at == place || gone
    };
    let rank = |task: &Task| match (&task.assignee, task.mission) {
        (Some(to), _) if *to != ask.agent => None,
        (Some(_), _) if task.status == TaskStatus::Offered => Some(0),
        (Some(_), _) => Some(1),
        (None, Some(mission)) => board.missions[&mission]
            .agents
            .contains(&ask.agent)
            .then_some(2),
        (None, None) => Some(2),
    };
    let allowed = |task: &Task| {
        let Some(mission) = task.mission.map(|id| &board.missions[&id]) else {
            return true;
        };
        if !task.purpose.has_contract() {
            return mission.state == mission::MissionState::Active;
        }
        mission.state == mission::MissionState::Active
            && tasks_at_work(board, mission.id) < mission.max_workers as usize
            && (mission.mode == mission::StartMode::Flow
                || task.step() == current_step(board, mission.id))
    };
    board
        .tasks
        .values()
        .filter(|task| is_ready(board, task) && allowed(task))
        .filter(|task| {
            ask.project
                .as_ref()
                .is_none_or(|asked| task.project == *asked)
        })
        .filter(|task| ask.mission.is_none_or(|asked| task.mission == Some(asked)))
        .filter(|task| ask.task.is_none_or(|asked| task.id == asked))
        .filter(|task| task.provider.is_none() || task.provider == agent.provider)
        .filter(|task| claim_invariants::can_start(board, task, &ask.agent))
        .filter(|task| !lacks_blocker(board, task, ask, facts))
        .filter(|task| has_ports(board, task) && lies(task))
        .filter(|task| {
            regatta_core::budget::blocking_budget(board, task, &ask.agent, now).is_none()
        })
        .filter(|task| regatta_core::collision_forecast::reason_to_wait(board, task).is_none())
        .filter_map(|task| rank(task).map(|rank| (rank, task.priority, task.id)))
        .min()
        .map(|task| task.2)
}

/// Returns whether enough ports of the project's range are free.
fn has_ports(board: &Board, task: &Task) -> bool {
    let settings = &board.projects[&task.project].settings.workspace;
    let free = |port: u16| {
        let uris = [Uri::for_port(port)];
        blockers(
            board,
            &ClaimParty::anonymous(&uris, ClaimMode::Exclusive),
            None,
        )
        .is_empty()
    };
    (settings.port_range.0..=settings.port_range.1)
        .filter(|n| free(*n))
        .take(settings.ports as usize)
        .count()
        == settings.ports as usize
}

/// Returns what an attempt at a task must hold: its manifest, derived files, and the serial
/// packages it touches.
fn needed_uris(board: &Board, task: &Task) -> Vec<Uri> {
    let run = &board.projects[&task.project].settings.run;
    let touches =
        |a: &[PathPattern], b: &[PathPattern]| a.iter().any(|x| b.iter().any(|y| x.overlaps(y)));
    let mut all = task.files.clone();
    loop {
        let more = run.derived.iter().find(|derived_file| {
            touches(&derived_file.from, &all) && !all.contains(&derived_file.file)
        });
        match more {
            Some(more) => all.push(more.file.clone()),
            None => break,
        }
    }
    let serial = task
        .mission
        .map_or(vec![], |id| board.missions[&id].serial.clone());
    all.extend(
        serial
            .into_iter()
            .filter(|path_pattern| touches(std::slice::from_ref(path_pattern), &task.files)),
    );
    all.iter()
        .map(|path_pattern| Uri::for_file(&task.project, path_pattern))
        .collect()
}

fn mode_of(board: &Board, task: &Task) -> ClaimMode {
    let isolate = task.mission.is_some_and(|id| board.missions[&id].isolate);
    if isolate {
        ClaimMode::Shared
    } else {
        ClaimMode::Exclusive
    }
}

/// Returns the lowest step that has a task that can go on without a person.
fn current_step(board: &Board, id: regatta_core::ids::MissionId) -> graph::PlanStep {
    let by_hand = |task: &Task| {
        matches!(
            task.status,
            TaskStatus::NeedsHuman | TaskStatus::InReview | TaskStatus::Backlog
        ) || (task.status.is_waiting()
            && (task.paused.is_some()
                || schedule::missing_contract_part(board, task).is_some()
                || regatta_core::project_rules::blocking_rule(board, task).is_some()))
    };
    let mut out: BTreeSet<TaskId> = board
        .tasks
        .values()
        .filter(|task| by_hand(task))
        .map(|task| task.id)
        .collect();
    loop {
        let dead = |id: &TaskId| {
            out.contains(id)
                || matches!(
                    board.ended_status(*id),
                    Some(TaskStatus::Failed | TaskStatus::Cancelled)
                )
        };
        let more: Vec<TaskId> = board
            .tasks
            .values()
            .filter(|task| !out.contains(&task.id) && task.blocked_by.iter().any(dead))
            .map(|task| task.id)
            .collect();
        if more.is_empty() {
            break;
        }
        out.extend(more);
    }
    let at_work = board
        .tasks
        .values()
        .filter(|task| task.mission == Some(id) && !out.contains(&task.id));
    at_work.map(|task| task.step()).min().unwrap_or_default()
}

fn task_of(event: &Event) -> Option<TaskId> {
    Some(match event {
        Event::TaskAdded(task_added) => task_added.task().id,
        Event::TaskEdited(task_edited) => task_edited.task().id,
        Event::TaskAssigned(task_assigned) => *task_assigned.task(),
        Event::TaskOffered(task_offered) => *task_offered.task(),
        Event::TaskStarted(task_started) => *task_started.task(),
        Event::TaskProgressed(task_progressed) => *task_progressed.task(),
        Event::TaskValidating(task_validating) => *task_validating.task(),
        Event::TaskSubmitted(task_submitted) => *task_submitted.task(),
        Event::TaskReturned(task_returned) => *task_returned.task(),
        Event::TaskNeedsHuman(task_needs_human) => *task_needs_human.task(),
        Event::TaskCompleted(task_completed) => *task_completed.task(),
        Event::TaskFailed(task_failed) => *task_failed.task(),
        Event::TaskCancelled(task_cancelled) => *task_cancelled.task(),
        _ => return None,
    })
}
