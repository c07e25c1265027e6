//! A fleet in memory: the board, a virtual clock, the rows that a store would keep, and the outbox.

use std::collections::BTreeMap;

use regatta_core::agent::{RegisterAgent, Role, Runtime};
use regatta_core::attempt::{Attempt, WorkFindings, WorkVerdict};
use regatta_core::board::{Board, Row, RowKey};
use regatta_core::claim::{Acquire, Acquired, ClaimMode, ClaimOwner};
use regatta_core::command::{
    Actor, BoardInput, Command, CommandOutcome, Commit, Report, Request, decide,
};
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::event::Recorded;
use regatta_core::ids::{
    AgentName, AttemptId, BranchName, ClaimId, CommitId, LandingId, Now, ProjectName, RequestKey,
    TaskId, WaitId,
};
use regatta_core::landing::{MoveOutcome, TrialOutcome};
use regatta_core::pattern::{PathPattern, Uri};
use regatta_core::project;
use regatta_core::refusal::Refusal;
use regatta_core::schedule::{self, PollGrant, PollRequest, WaitKind};
use regatta_core::start_gates::StartFacts;
use regatta_core::task::{
    self, AddTask, AssignMode, Expects, IssueType, Task, TaskStatus, Validation,
};
use regatta_core::task_timeline::TaskTimeline;

use crate::invariants::Invariants;

pub(crate) const SECOND_MS: u64 = 1_000;
pub(crate) const MINUTE_MS: u64 = 60 * SECOND_MS;
pub(crate) const HOUR_MS: u64 = 60 * MINUTE_MS;
pub(crate) const YEAR_MS: i64 = 365 * 24 * HOUR_MS as i64;

pub(crate) fn agent(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

pub(crate) fn shop() -> ProjectName {
    ProjectName::new("shop").unwrap()
}

pub(crate) fn uri(text: &str) -> Uri {
    Uri::new(text).unwrap()
}

pub(crate) fn files(patterns: &[&str]) -> Vec<PathPattern> {
    patterns
        .iter()
        .map(|pattern| PathPattern::new(pattern).unwrap())
        .collect()
}

/// Returns a commit id that is easy to recognise in a failure's output.
pub(crate) fn commit(number: u64) -> CommitId {
    CommitId::new(&format!("{number:040x}")).unwrap()
}

pub(crate) fn poll_of(name: &str) -> PollRequest {
    PollRequest::new(agent(name))
}

/// Returns a task of project `shop` with everything that a start needs. Tests override the fields
/// that they are about.
pub(crate) fn task_to_add(subject: &str, manifest: &[&str]) -> AddTask {
    AddTask {
        project: shop(),
        subject: subject.into(),
        description: String::new(),
        issue_type: IssueType::Task,
        files: files(manifest),
        validation: Validation::default(),
        blocked_by: vec![],
        priority: 2,
        expects: Expects::Changes,
        effort: None,
        model: None,
        provider: None,
        script: None,
        ratchet: None,
        alias: None,
        backlog: false,
    }
}

pub(crate) fn acquire(owner: ClaimOwner, uris: &[&str]) -> Acquire {
    Acquire {
        owner,
        uris: uris.iter().map(|uris| uri(uris)).collect(),
        mode: ClaimMode::Exclusive,
        ttl_ms: 30 * SECOND_MS,
        wait_ms: 0,
        memo: String::new(),
    }
}

pub(crate) fn passed_verdict(changed: &[&str]) -> WorkVerdict {
    WorkVerdict::Passed {
        commit: commit(0xc0),
        base: commit(0xb0),
        changed: changed.iter().map(ToString::to_string).collect(),
    }
}

/// A granted claim, as its holder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldClaim {
    pub(crate) claim: ClaimId,
    pub(crate) token: u64,
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) board: Board,
    pub(crate) now: Now,
    pub(crate) log: Vec<Recorded>,
    /// The effects that are not completed yet, in order.
    pub(crate) outbox: BTreeMap<EffectKey, Effect>,
    /// All commands and their results as text, for the golden files.
    pub(crate) transcript: Vec<String>,
    /// Every grant of work so far.
    pub(crate) grants: Vec<PollGrant>,
    /// Every lease so far.
    pub(crate) leases: Vec<HeldClaim>,
    /// The board that results from applying all events to an empty board (D4).
    folded: Board,
    /// Rows as a store keeps them.
    store: BTreeMap<RowKey, Row>,
    invariants: Invariants,
    /// The history of each task, updated after every commit.
    pub(crate) timelines: BTreeMap<TaskId, TaskTimeline>,
    pub(crate) trunk: u64,
    /// Turns off the checks after every command. Very long scenarios set it and check their log at
    /// the end instead.
    pub(crate) skips_invariants: bool,
}

impl World {
    /// Returns a world with the project `shop`, its checks, and these agents.
    pub(crate) fn with_agents(agents: &[(&str, u32)]) -> World {
        let mut world = World::empty();
        world.ask(
            "ann",
            Command::AddProject(world.project("shop", &["cargo test"])),
        );
        for (name, max_tasks) in agents {
            world.register(name, *max_tasks);
        }
        world
    }

    pub(crate) fn empty() -> World {
        World {
            board: Board::default(),
            now: Now {
                fleet_ms: 0,
                unix_ms: 1_700_000_000_000,
            },
            log: vec![],
            outbox: BTreeMap::new(),
            transcript: vec![],
            grants: vec![],
            leases: vec![],
            folded: Board::default(),
            store: BTreeMap::new(),
            invariants: Invariants::default(),
            timelines: BTreeMap::new(),
            trunk: 1,
            skips_invariants: false,
        }
    }

    pub(crate) fn project(&self, name: &str, validation: &[&str]) -> project::AddProject {
        project::AddProject {
            name: ProjectName::new(name).unwrap(),
            location: format!("/repositories/{name}"),
            trunk: BranchName::new("main").unwrap(),
            validation: validation.iter().map(ToString::to_string).collect(),
            validation_timeout_ms: 600_000,
            settings: project::ProjectSettings::default(),
        }
    }

    /// Makes the queue of `shop` validate batches from now on, and only the tip of each.
    pub(crate) fn speculate(&mut self, slots: u32, batch: Option<u32>) {
        let tip = project::VerifyMode::Tip;
        self.set_landing_settings(project::LandingSettings {
            slots: Some(slots),
            batch,
            verify: tip,
            ..project::LandingSettings::default()
        });
    }

    /// Makes the queue of `shop` validate every commit from now on, several at once.
    pub(crate) fn verify_every_commit(&mut self, slots: u32) {
        self.set_landing_settings(project::LandingSettings {
            slots: Some(slots),
            ..project::LandingSettings::default()
        });
    }

    fn set_landing_settings(&mut self, landing: project::LandingSettings) {
        let mut request = self.project("shop", &["cargo test"]);
        request.settings.landing = landing;
        self.ask("ann", Command::AddProject(request));
    }

    /// Returns a world in which the queue of `shop` tries one landing after the other.
    pub(crate) fn with_serial_queue(agents: &[(&str, u32)]) -> World {
        let mut world = World::with_agents(agents);
        let mut request = world.project("shop", &["cargo test"]);
        request.settings.landing.mode = project::QueueMode::Serial;
        world.ask("ann", Command::AddProject(request));
        world
    }

    // Requests.

    /// Sends a command and expects success.
    pub(crate) fn ask(&mut self, agent: &str, command: Command) -> CommandOutcome {
        let text = format!("{command:?}");
        self.try_ask(agent, command).unwrap_or_else(|refusal| {
            panic!("{agent} was refused: {} for {text}", refusal.message())
        })
    }

    /// Sends a command and expects a refusal.
    pub(crate) fn ask_refused(&mut self, agent: &str, command: Command) -> Refusal {
        let text = format!("{command:?}");
        match self.try_ask(agent, command) {
            Err(refusal) => refusal,
            Ok(outcome) => panic!("{agent} was not refused: {outcome:?} for {text}"),
        }
    }

    pub(crate) fn try_ask(
        &mut self,
        sender: &str,
        command: Command,
    ) -> Result<CommandOutcome, Refusal> {
        let by = match sender {
            "regatta" => Actor::Regatta,
            "ann" => Actor::Person("ann".into()),
            name => Actor::Agent(agent(name)),
        };
        self.request(Request {
            by,
            key: None,
            command,
        })
    }

    /// Gives the board a report of Regatta itself and expects success.
    pub(crate) fn report(&mut self, report: Report) -> CommandOutcome {
        let text = format!("{report:?}");
        self.try_report(report).unwrap_or_else(|refusal| {
            panic!("a report was refused: {} for {text}", refusal.message())
        })
    }

    /// Gives the board a report of Regatta itself and expects a refusal.
    pub(crate) fn report_refused(&mut self, report: Report) -> Refusal {
        let text = format!("{report:?}");
        match self.try_report(report) {
            Err(refusal) => refusal,
            Ok(outcome) => panic!("a report was not refused: {outcome:?} for {text}"),
        }
    }

    pub(crate) fn try_report(&mut self, report: Report) -> Result<CommandOutcome, Refusal> {
        self.decide(report.into())
    }

    /// Sends a command under an idempotency key.
    pub(crate) fn ask_with_key(
        &mut self,
        key: &str,
        command: Command,
    ) -> Result<CommandOutcome, Refusal> {
        let key = Some(RequestKey::new(key).unwrap());
        self.request(Request {
            by: Actor::Person("ann".into()),
            key,
            command,
        })
    }

    pub(crate) fn request(&mut self, request: Request) -> Result<CommandOutcome, Refusal> {
        self.decide(request.into())
    }

    /// Decides an input, checks every law and commits. All other methods go through this one.
    pub(crate) fn decide(&mut self, input: BoardInput) -> Result<CommandOutcome, Refusal> {
        if self.skips_invariants {
            let decision = decide(&self.board, input, self.now)?;
            self.remember(&decision);
            self.outbox.extend(decision.effects);
            self.board = decision.board;
            return Ok(decision.outcome);
        }
        if let BoardInput::Request(request) = &input {
            // The fingerprint of a request is made from its JSON, so two commands with the same JSON
            // would be the same request.
            let text = serde_json::to_string(&request.command).unwrap();
            assert_eq!(
                serde_json::from_str::<Command>(&text).unwrap(),
                request.command,
                "the command changed when it was written and read back"
            );
        }
        self.transcript
            .push(crate::golden::input_line(&input, self.now));
        let before = self.board.clone();
        let decided = decide(&self.board, input.clone(), self.now);
        self.invariants
            .check_answer(&before, &input, &decided, self.now);
        let done = match decided {
            Ok(done) => done,
            Err(refusal) => {
                self.transcript.push(crate::golden::refusal_line(&refusal));
                return Err(refusal);
            }
        };
        self.commit(&before, done)
    }

    fn commit(&mut self, before: &Board, done: Commit) -> Result<CommandOutcome, Refusal> {
        for recorded in &done.events {
            // The log keeps events as text, so an event must survive the conversion.
            let text = serde_json::to_string(recorded).unwrap();
            assert_eq!(
                serde_json::from_str::<Recorded>(&text).unwrap(),
                *recorded,
                "the event changed when it was written and read back"
            );
            let at_that_time = self.folded.clone();
            self.folded.fold(recorded);
            self.invariants
                .check_event(&at_that_time, recorded, &self.folded);
        }
        for (key, row) in &done.rows {
            match row {
                Some(row) => self.store.insert(key.clone(), row.clone()),
                None => self.store.remove(key),
            };
        }
        self.store
            .insert(RowKey::Meta, Row::Meta(done.board.meta()));
        for (key, effect) in &done.effects {
            assert!(
                self.outbox.insert(*key, effect.clone()).is_none(),
                "two effects have the key {key}, so completing one would drop the other"
            );
        }
        self.transcript.extend(crate::golden::commit_lines(&done));
        self.remember(&done);
        for claim in done
            .board
            .claims
            .values()
            .filter(|claim| claim.ttl_ms.is_some())
        {
            let held_claim = HeldClaim {
                claim: claim.id,
                token: claim.token,
            };
            if !self.leases.contains(&held_claim) {
                self.leases.push(held_claim);
            }
        }
        self.board = done.board;
        // D4: the events give the board, and so do the rows, which a restart reads.
        assert!(
            self.folded == self.board,
            "D4: the events do not give the board"
        );
        assert!(
            self.reloaded() == self.board,
            "the rows do not give the board"
        );
        self.invariants
            .check_commit(before, &self.board, &done.events, &done.effects, self.now);
        if !done.events.is_empty() {
            for id in (1..=self.board.counters.task).map(TaskId) {
                self.timelines
                    .entry(id)
                    .or_default()
                    .update(&self.board, id, self.now);
            }
        }
        Ok(done.outcome)
    }

    /// Records the grant and the events of a commit.
    fn remember(&mut self, done: &Commit) {
        match &done.outcome {
            CommandOutcome::Polled(Some(grant)) if !done.events.is_empty() => {
                self.grants.push(grant.clone())
            }
            _ => {}
        }
        self.log.extend(done.events.iter().cloned());
    }

    /// Returns the board that a restart would load.
    pub(crate) fn reloaded(&self) -> Board {
        Board::from_rows(self.store.values().filter(|row| row.is_live()).cloned())
    }

    /// Returns a completed, failed or cancelled task from the stored rows.
    pub(crate) fn stored_task(&self, id: TaskId) -> Task {
        match self.store.get(&RowKey::Task(id)) {
            Some(Row::Task(task)) => Task::clone(task),
            other => panic!("{id} is not stored: {other:?}"),
        }
    }

    pub(crate) fn stored_attempt(&self, id: AttemptId) -> Attempt {
        match self.store.get(&RowKey::Attempt(id)) {
            Some(Row::Attempt(attempt)) => Attempt::clone(attempt),
            other => panic!("{id} is not stored: {other:?}"),
        }
    }

    pub(crate) fn find_stored(&self, id: TaskId) -> Option<Task> {
        match self.store.get(&RowKey::Task(id)) {
            Some(Row::Task(task)) => Some(Task::clone(task)),
            _ => None,
        }
    }

    // Time.

    /// Lets time pass. Each deadline on the way gets a tick at its exact time.
    pub(crate) fn advance(&mut self, ms: u64) {
        let target = self.now.fleet_ms + ms;
        while let Some(at) = self
            .board
            .next_deadline(self.now)
            .filter(|board| *board <= target)
        {
            self.advance_without_tick(at - self.now.fleet_ms);
            self.report(Report::Tick);
        }
        self.advance_without_tick(target - self.now.fleet_ms);
    }

    /// Lets time pass without a tick, as when the daemon is slow.
    pub(crate) fn advance_without_tick(&mut self, ms: u64) {
        self.now.fleet_ms += ms;
        self.now.unix_ms = self.now.unix_ms.saturating_add(ms);
    }

    /// Changes the machine's date.
    pub(crate) fn jump_wall(&mut self, ms: i64) {
        self.now.unix_ms = self.now.unix_ms.saturating_add_signed(ms);
    }

    /// Puts a landing onto the board that no sequence of commands would produce, to test how a
    /// report handles it.
    pub(crate) fn insert_landing(&mut self, landing: regatta_core::landing::Landing) {
        let row = std::sync::Arc::new(landing);
        for board in [&mut self.board, &mut self.folded] {
            board.landings.insert(row.id, row.clone());
        }
        self.store
            .insert(RowKey::Landing(row.id), Row::Landing(row));
    }

    /// Restarts the daemon: the board is loaded from the rows.
    pub(crate) fn restart(&mut self) {
        self.board = self.reloaded();
        self.report(Report::DaemonStarted { pid: 42 });
    }

    /// Damages the stored rows and restarts the daemon from them.
    pub(crate) fn restart_damaged(&mut self, edit: impl FnOnce(&mut BTreeMap<RowKey, Row>)) {
        edit(&mut self.store);
        self.board = self.reloaded();
        self.folded = self.board.clone();
        self.report(Report::DaemonStarted { pid: 42 });
    }

    // Agents and tasks.

    pub(crate) fn register(&mut self, name: &str, max_tasks: u32) {
        self.ask("ann", Command::RegisterAgent(registration(name, max_tasks)));
    }

    pub(crate) fn add(&mut self, add: AddTask) -> TaskId {
        self.add_for(add, None, AssignMode::Direct)
    }

    pub(crate) fn add_task(&mut self, subject: &str, manifest: &[&str]) -> TaskId {
        self.add(task_to_add(subject, manifest))
    }

    pub(crate) fn add_for(
        &mut self,
        add: AddTask,
        assign: Option<&str>,
        how: AssignMode,
    ) -> TaskId {
        match self.ask(
            "ann",
            Command::AddTask {
                task: add,
                assign: assign.map(agent),
                how,
            },
        ) {
            CommandOutcome::Task(id) => id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn edit(&mut self, task: TaskId, edit: task::EditTask) {
        self.ask("ann", Command::EditTask { task, edit });
    }

    pub(crate) fn assign(&mut self, task: TaskId, to: Option<&str>, how: AssignMode) {
        self.ask(
            "ann",
            Command::AssignTask {
                task,
                to: to.map(agent),
                how,
            },
        );
    }

    /// Lets agent `ada` work on the next task until its landing has conflicted too often and a
    /// person is needed.
    pub(crate) fn conflict_until_a_person_is_needed(&mut self) {
        for _ in 0..=task::MAX_FIXUPS {
            let grant = self.take_task("ada");
            let landing = self.submit(&grant);
            self.report_trial(
                landing,
                TrialOutcome::Conflict {
                    landing,
                    paths: vec!["src/words.rs".into()],
                    kinds: vec![],
                },
            );
        }
    }

    pub(crate) fn cancel(&mut self, task: TaskId) {
        self.ask(
            "ann",
            Command::CancelTask {
                task,
                reason: "no longer wanted".into(),
            },
        );
    }

    pub(crate) fn stop(&mut self, task: TaskId) {
        self.ask(
            "ann",
            Command::StopTask {
                task,
                reason: "stopped by hand".into(),
                pause: false,
            },
        );
    }

    pub(crate) fn poll(&mut self, name: &str) -> Option<PollGrant> {
        grant_of_poll(self.ask(name, Command::Poll(poll_of(name))))
    }

    pub(crate) fn poll_supervised(&mut self, name: &str) -> Option<PollGrant> {
        self.poll_with(name, StartFacts::default())
    }

    /// Polls as the daemon's shell does. With facts, the poll names the newest mission.
    pub(crate) fn poll_with(&mut self, name: &str, facts: StartFacts) -> Option<PollGrant> {
        let mission = self
            .board
            .missions
            .keys()
            .next_back()
            .copied()
            .filter(|_| facts != StartFacts::default());
        let poll = PollRequest {
            mission,
            ..poll_of(name)
        };
        grant_of_poll(self.report(Report::PollSupervised {
            poll,
            facts: Box::new(facts),
        }))
    }

    /// Polls and expects work.
    pub(crate) fn take_task(&mut self, name: &str) -> PollGrant {
        self.poll(name)
            .unwrap_or_else(|| panic!("{name} got nothing"))
    }

    pub(crate) fn take_supervised_task(&mut self, name: &str) -> PollGrant {
        self.poll_supervised(name)
            .unwrap_or_else(|| panic!("{name} got nothing"))
    }

    pub(crate) fn task(&self, id: TaskId) -> &Task {
        self.board
            .tasks
            .get(&id)
            .unwrap_or_else(|| panic!("{id} is not open"))
    }

    /// Returns the status of a task, open or not.
    pub(crate) fn status(&self, id: TaskId) -> TaskStatus {
        self.board
            .tasks
            .get(&id)
            .map(|task| task.status)
            .or_else(|| self.board.ended_status(id))
            .unwrap()
    }

    pub(crate) fn wait_kinds(&self, id: TaskId) -> Vec<WaitKind> {
        schedule::wait_reasons(&self.board, self.task(id), self.now)
            .into_iter()
            .map(|wait_reason| wait_reason.kind)
            .collect()
    }

    pub(crate) fn ready_task(&self, name: &str) -> Option<TaskId> {
        crate::invariants::next_task(&self.board, &poll_of(name), None, self.now)
    }

    // Attempts.

    pub(crate) fn finish(&mut self, grant: &PollGrant) {
        self.ask("ada", finish_command(grant));
    }

    pub(crate) fn give_up(&mut self, grant: &PollGrant) {
        let PollGrant {
            task,
            attempt,
            token,
            ..
        } = *grant;
        self.ask(
            "ada",
            Command::GiveUp {
                task,
                attempt,
                token,
                reason: Some("too hard".into()),
            },
        );
    }

    pub(crate) fn report_verdict(
        &mut self,
        grant: &PollGrant,
        verdict: WorkVerdict,
    ) -> Option<LandingId> {
        let PollGrant { attempt, token, .. } = *grant;
        match self.report(Report::WorkVerdict {
            attempt,
            token,
            verdict,
            findings: WorkFindings::default(),
        }) {
            CommandOutcome::Judged { landing } => landing,
            other => panic!("{other:?}"),
        }
    }

    /// Finishes the attempt; its checks fail.
    pub(crate) fn fail_once(&mut self, grant: &PollGrant) {
        self.finish(grant);
        self.report_verdict(
            grant,
            WorkVerdict::Failed {
                reason: "1 test failed".into(),
            },
        );
    }

    /// Finishes the attempt; its checks pass, and the work enters the landing queue.
    pub(crate) fn submit(&mut self, grant: &PollGrant) -> LandingId {
        self.finish(grant);
        let changed: Vec<String> = self
            .task(grant.task)
            .files
            .iter()
            .map(|path_pattern| path_pattern.as_str().replace('*', "x"))
            .collect();
        let changed = if changed.is_empty() {
            vec!["notes.txt".to_owned()]
        } else {
            changed
        };
        let verdict = WorkVerdict::Passed {
            commit: commit(0xc0 + grant.attempt.0),
            base: commit(self.trunk),
            changed,
        };
        self.report_verdict(grant, verdict)
            .expect("work that passed its checks is queued")
    }

    // Landings.

    pub(crate) fn report_trial(&mut self, landing: LandingId, found: TrialOutcome) {
        self.report(Report::Trial {
            landing,
            outcome: found,
        });
    }

    /// Reports that the merge onto the trunk passed its checks.
    pub(crate) fn pass_trial(&mut self, landing: LandingId) {
        let found = TrialOutcome::Passed {
            old: commit(self.trunk),
            new: commit(self.trunk + 1),
            carries: vec![],
        };
        self.report_trial(landing, found);
    }

    /// Reports a failed validation twice, because the first failure is tried again.
    pub(crate) fn fail_trials(&mut self, landing: LandingId, reason: &str) {
        for _ in 0..2 {
            self.report_trial(
                landing,
                TrialOutcome::Failed {
                    reason: reason.into(),
                    output: None,
                    settled: vec![],
                },
            );
        }
    }

    pub(crate) fn report_move(&mut self, landing: LandingId, found: MoveOutcome) {
        let fence = self.fence_of(landing);
        if found == MoveOutcome::Moved {
            self.trunk += 1;
        }
        self.report(Report::TrunkMove {
            landing,
            fence,
            outcome: found,
        });
    }

    pub(crate) fn fence_of(&self, landing: LandingId) -> u64 {
        match self
            .board
            .landings
            .get(&landing)
            .map(|landing| &landing.state)
        {
            Some(regatta_core::landing::LandingState::Moving { fence, .. }) => *fence,
            other => panic!("{landing} does not move the trunk: {other:?}"),
        }
    }

    pub(crate) fn move_and_land(&mut self, landing: LandingId) {
        self.pass_trial(landing);
        self.report_move(landing, MoveOutcome::Moved);
    }

    pub(crate) fn finish_and_land(&mut self, grant: &PollGrant) {
        let landing = self.submit(grant);
        self.move_and_land(landing);
        assert_eq!(self.status(grant.task), TaskStatus::Completed);
    }

    /// Returns the state of a landing as one word.
    pub(crate) fn landing_state(&self, id: LandingId) -> &'static str {
        use regatta_core::landing::LandingState;
        match self.board.landings.get(&id).map(|landing| &landing.state) {
            None => "gone",
            Some(LandingState::Queued) => "queued",
            Some(LandingState::Trying { .. }) => "trying",
            Some(LandingState::Validated { .. }) => "validated",
            Some(LandingState::Moving { .. }) => "moving",
        }
    }

    // Claims.

    pub(crate) fn hold_claim(&mut self, name: &str, uris: &[&str]) -> HeldClaim {
        self.hold_requested_claim(name, acquire(ClaimOwner::Agent(agent(name)), uris))
    }

    pub(crate) fn hold_requested_claim(&mut self, name: &str, request: Acquire) -> HeldClaim {
        match self.ask(name, Command::Acquire(request)) {
            CommandOutcome::Claim(Acquired::Granted { claim, token, .. }) => {
                HeldClaim { claim, token }
            }
            other => panic!("{other:?}"),
        }
    }

    /// Queues a wait for a claim.
    pub(crate) fn wait_for(&mut self, name: &str, uris: &[&str], wait_ms: u64) -> WaitId {
        let request = Acquire {
            wait_ms,
            ..acquire(ClaimOwner::Agent(agent(name)), uris)
        };
        match self.ask(name, Command::Acquire(request)) {
            CommandOutcome::Claim(Acquired::Waiting { wait, .. }) => wait,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the claim that a wait was granted, if any.
    pub(crate) fn claim_from_wait(&self, wait: WaitId) -> Option<HeldClaim> {
        self.board
            .claims
            .values()
            .find(|claim| claim.from_wait == Some(wait))
            .map(|claim| HeldClaim {
                claim: claim.id,
                token: claim.token,
            })
    }

    pub(crate) fn release(&mut self, name: &str, claim: HeldClaim) {
        self.ask(
            name,
            Command::Release {
                claim: claim.claim,
                token: claim.token,
            },
        );
    }

    pub(crate) fn owner_of(&self, text: &str) -> Option<ClaimOwner> {
        let asked = uri(text);
        self.board
            .claims
            .values()
            .find(|claim| claim.uris.iter().any(|uris| uris.overlaps(&asked)))
            .map(|claim| claim.owner.clone())
    }

    // The log.

    /// Returns the kinds of the events since a revision.
    pub(crate) fn kinds_since(&self, revision: u64) -> Vec<&'static str> {
        self.log
            .iter()
            .filter(|event| event.revision > revision)
            .map(|event| event.event.kind())
            .collect()
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.log
            .iter()
            .filter(|event| event.event.kind() == kind)
            .count()
    }
}

pub(crate) fn registration(name: &str, max_tasks: u32) -> RegisterAgent {
    RegisterAgent {
        name: agent(name),
        runtime: Runtime::Outside,
        role: Role::Worker,
        provider: None,
        profile: regatta_core::agent::Profile::default(),
        description: String::new(),
        max_tasks,
    }
}

pub(crate) fn grant_of_poll(outcome: CommandOutcome) -> Option<PollGrant> {
    match outcome {
        CommandOutcome::Polled(grant) => grant,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn finish_command(grant: &PollGrant) -> Command {
    Command::Finish {
        task: grant.task,
        attempt: grant.attempt,
        token: grant.token,
        output: None,
        not_needed: false,
        learnings: vec![],
    }
}

pub(crate) fn exit_report(grant: &PollGrant, exit: regatta_core::attempt::ProgramExit) -> Report {
    Report::Exited {
        attempt: grant.attempt,
        token: grant.token,
        exit,
    }
}

pub(crate) fn attempt_owner(id: AttemptId) -> ClaimOwner {
    ClaimOwner::Attempt(id)
}
