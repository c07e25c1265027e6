//! Random sequences of commands, with every law checked after every command.
//!
//! A step names things by small numbers that are resolved against the world when the step is
//! taken, so that a failing sequence shrinks to a short one. Most steps aim at something live. The
//! others are late, wrong or repeated.

use proptest::prelude::*;
use proptest::sample::Index;
use regatta_core::agent::{RegisterAgent, Runtime};
use regatta_core::agent_protocol::{
    AgentEvent, AgentRequest, FailureClass, RequestAnswer, RequestContent, StopReason, ToolCall,
    ToolKind, Usage,
};
use regatta_core::approval::AnswerScope;
use regatta_core::attempt::{ProgramExit, SessionState, WorkFindings, WorkVerdict};
use regatta_core::budget;
use regatta_core::bus::PostMessage;
use regatta_core::claim::{Acquire, ClaimMode, ClaimOwner};
use regatta_core::command::{Actor, BoardInput, Command, PlannedTask, Report, Request};
use regatta_core::effect::Effect;
use regatta_core::event::Event;
use regatta_core::ids::{
    ApprovalId, AttemptId, ChannelName, ClaimId, LandingId, MessageId, MissionId, RequestKey,
    RunnerName, TaskId, WaitId,
};
use regatta_core::landing::remote_sync::DivergedRemote;
use regatta_core::landing::{LandingState, MoveOutcome, TrialOutcome};
use regatta_core::lead;
use regatta_core::limits::MachineLimits;
use regatta_core::mission::{self, StartMission};
use regatta_core::runner;
use regatta_core::schedule::{PollGrant, PollRequest};
use regatta_core::start_gates::{LostLanding, StartFacts, TrunkState};
use regatta_core::task::{AddTask, AssignMode, EditTask, Expects, IssueType};

use crate::world::{HeldClaim, World, agent, commit, files, registration, shop, task_to_add, uri};

mod leads;

const AGENTS: [&str; 3] = ["ada", "bob", "eve"];
const MANIFESTS: [&[&str]; 6] = [
    &["src/**"],
    &["src/a.rs"],
    &["src/b.rs", "docs/x.md"],
    &["docs/**"],
    &["web/*"],
    &[],
];
const URIS: [&str; 8] = [
    "file://shop/src/**",
    "file://shop/src/a.rs",
    "file://shop/docs/x.md",
    "workspace://shop/default",
    "workspace://shop/*",
    "port://1",
    "task://shop/T1",
    "agent://ada",
];
const TIMES: [u64; 8] = [1, 1_000, 5_000, 29_999, 30_000, 120_000, 600_000, 3_600_000];
const MAX_TASKS: u64 = 9;

/// One step of a random sequence.
#[derive(Clone, Debug)]
enum RandomStep {
    Runner {
        gpu: bool,
        wrong: u8,
        what: u8,
    },
    Wait {
        time: usize,
        tick: bool,
        jump: i64,
    },
    Add {
        manifest: usize,
        priority: u8,
        kind: u8,
        blocker: Option<Index>,
        to: Option<usize>,
        how: u8,
    },
    Edit {
        task: Index,
        what: u8,
        other: Index,
    },
    Assign {
        task: Index,
        to: Option<usize>,
        how: u8,
    },
    Answer {
        task: Index,
        agent: usize,
        accept: bool,
    },
    Cancel {
        task: Index,
    },
    Stop {
        task: Index,
    },
    Land {
        task: Index,
        first: bool,
    },
    /// Holds or releases the queue, sends work back, undoes landed work, or reports a diverged
    /// remote.
    Queue {
        task: Index,
        what: u8,
    },
    Poll {
        agent: usize,
        supervised: bool,
        short: bool,
        mission: bool,
    },
    AttemptCall {
        grant: Index,
        wrong: u8,
        what: u8,
    },
    Exit {
        grant: Index,
        wrong: u8,
        how: u8,
    },
    Judge {
        grant: Index,
        wrong: u8,
        how: u8,
    },
    Try {
        landing: Index,
        how: u8,
    },
    Move {
        landing: Index,
        wrong: u8,
        how: u8,
    },
    Perform {
        effect: Index,
        how: u8,
    },
    Mission {
        waves: bool,
        workers: u32,
        tasks: u8,
        adopt: Option<Index>,
    },
    ChangeMission {
        mission: Index,
        what: u8,
    },
    Acquire {
        owner: u8,
        grant: Index,
        uris: u8,
        shared: bool,
        ttl: usize,
        wait: usize,
    },
    Renew {
        lease: Index,
        wrong: u8,
    },
    Release {
        lease: Index,
        wrong: u8,
    },
    CancelWait {
        wait: Index,
    },
    Limit {
        max_attempts: u32,
    },
    Register {
        agent: usize,
        max_tasks: u32,
    },
    BusMessage {
        read: Option<u64>,
    },
    AgentEvent {
        grant: Index,
        wrong: u8,
        what: u8,
        usage: u16,
    },
    Intervene {
        task: Index,
        what: u8,
    },
    /// A mission with a lead, a question, or a later step of one of them.
    Lead {
        which: Index,
        what: u8,
    },
    RepeatRequest {
        request: Index,
    },
    Restart,
    Reload,
}

fn step() -> impl Strategy<Value = RandomStep> {
    let small = any::<u8>();
    let task = any::<Index>;
    let index = any::<Index>;
    let wrong = || prop_oneof![6 => Just(0u8), 1 => 1..4u8];
    prop_oneof![
        6 => (0..TIMES.len(), prop::bool::weighted(0.8), prop_oneof![8 => Just(0i64), 1 => -4_000_000_000..4_000_000_000i64])
            .prop_map(|(time, tick, jump)| RandomStep::Wait { time, tick, jump }),
        8 => (0..MANIFESTS.len(), 0..4u8, small, prop::option::weighted(0.3, index()), prop::option::weighted(0.3, 0..3usize), small)
            .prop_map(|(manifest, priority, kind, blocker, to, how)| RandomStep::Add { manifest, priority, kind, blocker, to, how }),
        4 => (task(), small, index()).prop_map(|(task, what, other)| RandomStep::Edit { task, what, other }),
        3 => (task(), prop::option::of(0..3usize), small).prop_map(|(task, to, how)| RandomStep::Assign { task, to, how }),
        1 => (task(), 0..3usize, any::<bool>()).prop_map(|(task, agent, accept)| RandomStep::Answer { task, agent, accept }),
        2 => task().prop_map(|task| RandomStep::Cancel { task }),
        2 => task().prop_map(|task| RandomStep::Stop { task }),
        2 => (task(), any::<bool>()).prop_map(|(task, first)| RandomStep::Land { task, first }),
        1 => (task(), small).prop_map(|(task, what)| RandomStep::Queue { task, what }),
        12 => (0..3usize, any::<bool>(), any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(agent, supervised, short, mission)| RandomStep::Poll { agent, supervised, short, mission }),
        6 => (index(), wrong(), small).prop_map(|(grant, wrong, what)| RandomStep::AttemptCall { grant, wrong, what }),
        3 => (index(), wrong(), small).prop_map(|(grant, wrong, how)| RandomStep::Exit { grant, wrong, how }),
        3 => (index(), wrong(), small).prop_map(|(grant, wrong, how)| RandomStep::Judge { grant, wrong, how }),
        2 => (index(), small).prop_map(|(landing, how)| RandomStep::Try { landing, how }),
        2 => (index(), wrong(), small).prop_map(|(landing, wrong, how)| RandomStep::Move { landing, wrong, how }),
        16 => (index(), small).prop_map(|(effect, how)| RandomStep::Perform { effect, how }),
        2 => (any::<bool>(), 1..3u32, small, prop::option::of(index()))
            .prop_map(|(waves, workers, tasks, adopt)| RandomStep::Mission { waves, workers, tasks, adopt }),
        2 => (index(), small).prop_map(|(mission, what)| RandomStep::ChangeMission { mission, what }),
        8 => (small, index(), 1..64u8, any::<bool>(), 0..TIMES.len(), 0..TIMES.len())
            .prop_map(|(owner, grant, uris, shared, ttl, wait)| RandomStep::Acquire { owner, grant, uris, shared, ttl, wait }),
        2 => (index(), wrong()).prop_map(|(lease, wrong)| RandomStep::Renew { lease, wrong }),
        4 => (index(), wrong()).prop_map(|(lease, wrong)| RandomStep::Release { lease, wrong }),
        1 => index().prop_map(|wait| RandomStep::CancelWait { wait }),
        1 => (1..5u32).prop_map(|max_attempts| RandomStep::Limit { max_attempts }),
        1 => (0..3usize, 0..4u32).prop_map(|(agent, max_tasks)| RandomStep::Register { agent, max_tasks }),
        1 => prop::option::of(0..4u64).prop_map(|read| RandomStep::BusMessage { read }),
        10 => (index(), wrong(), small, 0..50u16).prop_map(|(grant, wrong, what, usage)| RandomStep::AgentEvent { grant, wrong, what, usage }),
        5 => (task(), small).prop_map(|(task, what)| RandomStep::Intervene { task, what }),
        4 => index().prop_map(|request| RandomStep::RepeatRequest { request }),
        3 => (any::<bool>(), wrong(), small).prop_map(|(gpu, wrong, what)| RandomStep::Runner { gpu, wrong, what }),
        6 => (index(), small).prop_map(|(which, what)| RandomStep::Lead { which, what }),
        1 => Just(RandomStep::Restart),
        1 => Just(RandomStep::Reload),
    ]
}

/// The world, and all inputs so far so that they can be repeated.
struct RandomRun {
    world: World,
    inputs: Vec<BoardInput>,
}

impl RandomRun {
    fn new() -> RandomRun {
        let mut world = World::with_agents(&[("ada", 2), ("bob", 1), ("eve", 1)]);
        crate::hooks::add_various_hooks(&mut world);
        world.ask("ann", Command::AddProject(world.project("docs", &[])));
        world.speculate(2, Some(2));
        for manifest in &MANIFESTS[..3] {
            world.add_task("first", manifest);
        }
        // An agent whose program Regatta runs, with a provider that has rate limits.
        let eve = RegisterAgent {
            runtime: Runtime::Scripted,
            provider: Some("acme".into()),
            ..registration("eve", 1)
        };
        world.ask("ann", Command::RegisterAgent(eve));
        RandomRun {
            world,
            inputs: vec![],
        }
    }

    fn ask(&mut self, command: Command) {
        let nth = self.inputs.len();
        let key = nth
            .is_multiple_of(3)
            .then(|| RequestKey::new(&format!("key-{nth}")).unwrap());
        let request = Request {
            by: Actor::Person("ann".into()),
            key,
            command,
        };
        self.inputs.push(request.clone().into());
        self.decide(request.into());
    }

    fn report(&mut self, report: Report) {
        self.inputs.push(report.clone().into());
        self.decide(report.into());
    }

    fn decide(&mut self, input: BoardInput) {
        let before = self.world.board.clone();
        if self.world.decide(input).is_err() {
            // L6, L8: a refusal changes nothing.
            assert!(self.world.board == before);
        }
    }

    /// Returns an existing task id, or sometimes the next one.
    fn task(&self, index: Index) -> TaskId {
        TaskId(index.index(self.world.board.counters.task as usize + 1) as u64 + 1)
    }

    /// Returns a grant, more often a live one, and with a wrong token or task if `wrong` is 1 or 2.
    fn grant(&self, index: Index, wrong: u8) -> Option<PollGrant> {
        let all = &self.world.grants;
        let live: Vec<&PollGrant> = all
            .iter()
            .filter(|poll_grant| self.world.board.attempts.contains_key(&poll_grant.attempt))
            .collect();
        let mut grant = match wrong {
            0 if !live.is_empty() => PollGrant::clone(live[index.index(live.len())]),
            _ if all.is_empty() => return None,
            _ => index.get(all).clone(),
        };
        match wrong {
            1 => grant.token += 1,
            2 => grant.task = self.task(index),
            _ => {}
        }
        Some(grant)
    }

    fn lease(&self, index: Index, wrong: u8) -> Option<HeldClaim> {
        let leases: Vec<HeldClaim> = self
            .world
            .leases
            .iter()
            .copied()
            .filter(|held_claim| {
                wrong != 0 || self.world.board.claims.contains_key(&held_claim.claim)
            })
            .collect();
        let mut held = *leases.get(index.index(leases.len().max(1)))?;
        match wrong {
            1 => held.token += 1,
            2 => held.claim = ClaimId(held.claim.0 + 1),
            _ => {}
        }
        Some(held)
    }

    fn landing(&self, index: Index) -> LandingId {
        let live: Vec<LandingId> = self.world.board.landings.keys().copied().collect();
        if live.is_empty() {
            LandingId(index.index(4) as u64)
        } else {
            *index.get(&live)
        }
    }

    fn verdict(&self, task: TaskId, variant: u8) -> WorkVerdict {
        let inside = self
            .world
            .board
            .tasks
            .get(&task)
            .and_then(|task| task.files.first());
        let inside = inside.map_or("notes.txt".to_owned(), |path_pattern| {
            path_pattern.as_str().replace('*', "x")
        });
        match variant % 8 {
            0 => WorkVerdict::Failed {
                reason: "1 test failed".into(),
            },
            1 => WorkVerdict::Unknown {
                reason: "no disk".into(),
            },
            2 => WorkVerdict::Passed {
                commit: commit(5),
                base: commit(4),
                changed: vec![],
            },
            3 => WorkVerdict::Passed {
                commit: commit(5),
                base: commit(4),
                changed: vec!["elsewhere".into()],
            },
            _ => WorkVerdict::Passed {
                commit: commit(5),
                base: commit(4),
                changed: vec![inside],
            },
        }
    }

    fn trial_result(&self, landing: LandingId, variant: u8) -> TrialOutcome {
        // The landing at fault is usually one of the trial.
        let train = self
            .world
            .board
            .landings
            .get(&landing)
            .map_or_else(Vec::new, |landing| landing.trial_landings());
        let at = train
            .get(variant as usize / 8 % train.len().max(1))
            .copied()
            .unwrap_or(LandingId(99));
        match variant % 8 {
            0 => TrialOutcome::AlreadyOnTrunk {
                tip: commit(6),
                landed_as: vec![],
            },
            1 => TrialOutcome::Conflict {
                landing: at,
                paths: vec!["src/a.rs".into()],
                kinds: vec![],
            },
            2 | 3 => TrialOutcome::Failed {
                reason: "2 tests failed".into(),
                output: None,
                settled: vec![],
            },
            4 if variant > 128 => TrialOutcome::Held {
                landing: Some(at),
                reason: "no disk".into(),
            },
            4 if variant > 100 => TrialOutcome::TrunkMoved,
            _ => TrialOutcome::Passed {
                old: commit(6),
                new: commit(7),
                carries: vec![],
            },
        }
    }

    /// Returns an output of a program, mostly in an order that makes sense.
    fn agent_event(&self, talk: &SessionState, variant: u8, usage: u64) -> AgentEvent {
        let used = talk
            .usage_by_session
            .iter()
            .find(|usage_by_session| usage_by_session.0.is_none())
            .map(|usage_by_session| usage_by_session.1)
            .unwrap_or_default();
        match variant % 10 {
            0 => AgentEvent::Started {
                session: Some(format!("s{}", variant / 100)),
                model: None,
            },
            1 | 2 => AgentEvent::TurnStarted { n: talk.turns },
            3 | 4 => AgentEvent::Usage {
                session: None,
                usage: Usage {
                    output: used.output + usage,
                    ..used
                },
            },
            5 => AgentEvent::RequestMade(AgentRequest {
                id: format!("{}", variant / 50),
                content: RequestContent::Permission {
                    tool: ToolCall {
                        kind: ToolKind::Execute,
                        paths: vec!["/etc/passwd".into()],
                        ..ToolCall::default()
                    },
                    options: vec![],
                },
            }),
            6 => AgentEvent::RequestWithdrawn {
                request: format!("{}", variant / 50),
            },
            7 => AgentEvent::Limited {
                deadline_unix_ms: (variant > 100).then_some(self.world.now.unix_ms + 60_000),
                detail: "limit".into(),
            },
            _ => {
                let class = (variant > 150)
                    .then(|| FailureClass::ALL[variant as usize % FailureClass::ALL.len()]);
                let stop = if class.is_some() {
                    StopReason::Error
                } else {
                    StopReason::EndTurn
                };
                AgentEvent::TurnEnded {
                    stop,
                    class,
                    detail: String::new(),
                }
            }
        }
    }

    /// Returns facts of the shell. Sometimes memory or disk is short, or landed work is missing
    /// from the trunk.
    fn facts(&self, mission: Option<MissionId>) -> StartFacts {
        let last = mission
            .and_then(|id| self.world.board.missions.get(&id))
            .and_then(|mission| mission.landed.last.clone());
        let dice = self.inputs.len() as u64 * 7 % 23;
        let there = |lost| TrunkState::Present {
            tip: commit(9),
            upstream: None,
            behind: dice as u32 % 3,
            lost,
        };
        StartFacts {
            memory_mb: dice.is_multiple_of(5).then_some(dice * 30),
            disk_mb: dice.is_multiple_of(7).then_some(dice * 60),
            runner: ["box", "gpu"]
                .get(dice as usize % 5)
                .map(|name| RunnerName::new(name).unwrap()),
            base: match dice % 4 {
                0 => None,
                1 if dice.is_multiple_of(3) => Some(TrunkState::Broken {
                    reason: "there is no branch main".into(),
                }),
                2 => {
                    let lost = last.filter(|_| dice.is_multiple_of(3));
                    Some(there(
                        lost.map(|commit| LostLanding {
                            task: TaskId(dice % 3 + 1),
                            commit,
                        })
                        .into_iter()
                        .collect(),
                    ))
                }
                _ => Some(there(vec![])),
            },
        }
    }

    fn move_result(&self, variant: u8) -> MoveOutcome {
        match variant % 8 {
            0 => MoveOutcome::TrunkMoved,
            1 => MoveOutcome::Dirty {
                paths: vec!["src/a.rs".into()],
            },
            2 => MoveOutcome::Held {
                reason: "no disk".into(),
            },
            _ => MoveOutcome::Moved,
        }
    }

    fn program_exit(&self, variant: u8) -> ProgramExit {
        match variant % 6 {
            0 => ProgramExit::Failed {
                reason: "exit 1".into(),
                class: FailureClass::ALL.get(variant as usize % 12).copied(),
            },
            1 => ProgramExit::Lost,
            2 => ProgramExit::NotRun {
                reason: "no such program".into(),
                fault: None,
            },
            _ => ProgramExit::Done { output: None },
        }
    }

    /// Performs an effect of the outbox and reports its result. The report may come late.
    fn perform(&mut self, index: Index, variant: u8) {
        let owed: Vec<_> = self
            .world
            .outbox
            .iter()
            .map(|(key, effect)| (*key, effect.clone()))
            .collect();
        if owed.is_empty() {
            return;
        }
        let (key, effect) = index.get(&owed).clone();
        // Effects are performed at least once, so sometimes the effect stays in the outbox and is
        // performed again.
        if variant < 200 {
            self.world.outbox.remove(&key);
        }
        let token = |id| {
            self.world
                .board
                .attempts
                .get(id)
                .map_or(0, |attempt| attempt.token)
        };
        let report = match &effect {
            Effect::RunAttempt { attempt } | Effect::StopAttempt { attempt } => Report::Exited {
                attempt: *attempt,
                token: token(attempt),
                exit: self.program_exit(variant),
            },
            Effect::Validate { attempt } => {
                let task = self
                    .world
                    .board
                    .attempts
                    .get(attempt)
                    .map_or(TaskId(1), |attempt| attempt.task);
                let verdict = self.verdict(task, variant);
                Report::WorkVerdict {
                    attempt: *attempt,
                    token: token(attempt),
                    verdict,
                    findings: WorkFindings::default(),
                }
            }
            Effect::TryLanding { landing } => Report::Trial {
                landing: *landing,
                outcome: self.trial_result(*landing, variant),
            },
            Effect::MoveTrunk { landing, fence } => Report::TrunkMove {
                landing: *landing,
                fence: *fence,
                outcome: self.move_result(variant),
            },
            Effect::PrepareWorkspace { .. }
            | Effect::RemoveWorkspace { .. }
            | Effect::AfterLanding { .. }
            | Effect::PushTrunk { .. }
            | Effect::Nudge { .. } => Report::Performed,
            Effect::RunHook { firing } => {
                let (ended, output) = (
                    regatta_core::hook::FiringEnd::Exited(i32::from(variant)),
                    "said".to_owned(),
                );
                Report::HookEnded {
                    firing: *firing,
                    ended,
                    output,
                    sandbox_description: None,
                }
            }
            Effect::ResolveTeam { .. } | Effect::PushBranch { .. } => Report::Performed,
        };
        self.report(report);
    }

    fn edit(&self, variant: u8, other: Index) -> EditTask {
        let none = EditTask::default();
        match variant % 10 {
            0 => EditTask {
                priority: Some(variant % 4),
                ..none
            },
            1 => EditTask {
                paused: Some(regatta_core::task::SetPause::Pause("wait".into())),
                ..none
            },
            2 | 3 => EditTask {
                paused: Some(regatta_core::task::SetPause::Resume),
                ..none
            },
            4 => EditTask {
                backlog: Some(true),
                ..none
            },
            5 => EditTask {
                backlog: Some(false),
                ..none
            },
            6 => EditTask {
                blocked_by: Some(vec![self.task(other)]),
                ..none
            },
            7 => EditTask {
                blocked_by: Some(vec![]),
                ..none
            },
            8 => EditTask {
                files: Some(files(MANIFESTS[variant as usize % 6])),
                ..none
            },
            _ => EditTask {
                subject: Some("other words".into()),
                ..none
            },
        }
    }

    fn add(&self, manifest: usize, priority: u8, kind: u8) -> AddTask {
        let issue_type = [IssueType::Task, IssueType::Bug, IssueType::Docs][kind as usize % 3];
        let expects = if kind >= 240 {
            Expects::Report
        } else {
            Expects::Changes
        };
        let project = if kind % 16 == 15 {
            regatta_core::ids::ProjectName::new("docs").unwrap()
        } else {
            shop()
        };
        AddTask {
            priority,
            issue_type,
            expects,
            project,
            ..task_to_add("part", MANIFESTS[manifest])
        }
    }

    fn apply_step(&mut self, step: &RandomStep) {
        let how_of = |byte: u8| {
            [AssignMode::Direct, AssignMode::Queue, AssignMode::Offer][byte as usize % 3]
        };
        match *step {
            RandomStep::Wait { time, tick, jump } => {
                self.world.jump_wall(jump);
                if tick {
                    self.world.advance(TIMES[time]);
                } else {
                    self.world.advance_without_tick(TIMES[time]);
                }
            }
            RandomStep::Add {
                manifest,
                priority,
                kind,
                blocker,
                to,
                how,
            } => {
                if self.world.board.counters.task < MAX_TASKS {
                    let blocked_by = blocker.map(|index| self.task(index)).into_iter().collect();
                    let task = AddTask {
                        blocked_by,
                        ..self.add(manifest, priority, kind)
                    };
                    self.ask(Command::AddTask {
                        task,
                        assign: to.map(|to| agent(AGENTS[to])),
                        how: how_of(how),
                    });
                }
            }
            RandomStep::Edit { task, what, other } => {
                self.ask(Command::EditTask {
                    task: self.task(task),
                    edit: self.edit(what, other),
                });
            }
            RandomStep::Assign { task, to, how } => {
                let to = to.map(|to| agent(AGENTS[to]));
                self.ask(Command::AssignTask {
                    task: self.task(task),
                    to,
                    how: how_of(how),
                });
            }
            RandomStep::Answer {
                task,
                agent: who,
                accept,
            } => {
                self.ask(Command::AnswerOffer {
                    task: self.task(task),
                    agent: agent(AGENTS[who]),
                    accept,
                });
            }
            RandomStep::Cancel { task } => self.ask(Command::CancelTask {
                task: self.task(task),
                reason: "no".into(),
            }),
            RandomStep::Stop { task } => self.ask(Command::StopTask {
                task: self.task(task),
                reason: "stop".into(),
                pause: false,
            }),
            RandomStep::Land { task, first } => self.ask(Command::Land {
                task: self.task(task),
                first,
            }),
            RandomStep::Queue { task, what } => {
                let task = self.task(task);
                match what % 5 {
                    4 => {
                        if self.world.board.counters.task < MAX_TASKS {
                            let found = DivergedRemote {
                                remote: "origin".into(),
                                tip: commit(800),
                                changed: vec![],
                            };
                            let ours = commit(self.world.trunk);
                            self.report(Report::Diverged {
                                project: shop(),
                                commit: ours,
                                found,
                            });
                        }
                    }
                    0 => self.ask(Command::HoldQueue {
                        project: shop(),
                        reason: "wait".into(),
                    }),
                    1 => self.ask(Command::ReleaseQueue { project: shop() }),
                    2 => self.ask(Command::Revise {
                        task,
                        text: "once more".into(),
                    }),
                    _ => {
                        if let Some(done) = self
                            .world
                            .find_stored(task)
                            .filter(|_| self.world.board.counters.task < MAX_TASKS)
                        {
                            self.ask(Command::Undo {
                                done: Box::new(done),
                            });
                        }
                    }
                }
            }
            RandomStep::Poll {
                agent: who,
                supervised,
                short,
                mission,
            } => {
                let mission = mission.then_some(MissionId(1));
                let poll = PollRequest {
                    agent: agent(AGENTS[who]),
                    project: None,
                    mission,
                    task: None,
                    lease_ms: short.then_some(5_000),
                    no_workspace: short,
                    by_hand: false,
                };
                let facts = Box::new(self.facts(mission));
                if supervised {
                    self.report(Report::PollSupervised { poll, facts });
                } else {
                    self.ask(Command::Poll(poll));
                }
            }
            RandomStep::AttemptCall { grant, wrong, what } => {
                if let Some(PollGrant {
                    task,
                    attempt,
                    token,
                    ..
                }) = self.grant(grant, wrong)
                {
                    self.ask(match what % 8 {
                        0 => Command::GiveUp {
                            task,
                            attempt,
                            token,
                            reason: None,
                        },
                        1 | 2 => Command::Progress {
                            task,
                            attempt,
                            token,
                            text: "reading".into(),
                        },
                        _ => Command::Finish {
                            task,
                            attempt,
                            token,
                            output: None,
                            not_needed: false,
                            learnings: vec![],
                        },
                    });
                }
            }
            RandomStep::Exit { grant, wrong, how } => {
                if let Some(poll_grant) = self.grant(grant, wrong) {
                    // Only a process that Regatta started can exit.
                    if self
                        .world
                        .board
                        .attempts
                        .get(&poll_grant.attempt)
                        .is_none_or(|attempt| attempt.supervised)
                    {
                        self.report(crate::world::exit_report(
                            &poll_grant,
                            self.program_exit(how),
                        ));
                    }
                }
            }
            RandomStep::Judge { grant, wrong, how } => {
                if let Some(poll_grant) = self.grant(grant, wrong) {
                    let verdict = self.verdict(poll_grant.task, how);
                    self.report(Report::WorkVerdict {
                        attempt: poll_grant.attempt,
                        token: poll_grant.token,
                        verdict,
                        findings: WorkFindings::default(),
                    });
                }
            }
            RandomStep::Try { landing, how } => {
                let landing = self.landing(landing);
                self.report(Report::Trial {
                    landing,
                    outcome: self.trial_result(landing, how),
                });
            }
            RandomStep::Move {
                landing,
                wrong,
                how,
            } => {
                let landing = self.landing(landing);
                let fence = match self
                    .world
                    .board
                    .landings
                    .get(&landing)
                    .map(|landing| &landing.state)
                {
                    Some(LandingState::Moving { fence, .. }) => *fence + u64::from(wrong),
                    _ => u64::from(wrong),
                };
                self.report(Report::TrunkMove {
                    landing,
                    fence,
                    outcome: self.move_result(how),
                });
            }
            RandomStep::Perform { effect, how } => self.perform(effect, how),
            RandomStep::Mission {
                waves,
                workers,
                tasks,
                adopt,
            } => {
                if self.world.board.counters.task + 3 > MAX_TASKS
                    || self.world.board.missions.len() > 1
                {
                    return;
                }
                let planned = |nth: usize| PlannedTask {
                    task: self.add((tasks as usize + nth) % 6, tasks % 3, 0),
                    after: if nth > 0 && tasks % 2 == 0 {
                        vec![nth - 1]
                    } else {
                        vec![]
                    },
                    assign: (tasks as usize % 7 == nth).then(|| agent("ada")),
                };
                let mode = if waves {
                    mission::StartMode::Waves
                } else {
                    mission::StartMode::Flow
                };
                let agents = vec![agent("ada"), agent("bob")];
                let mission = StartMission {
                    project: shop(),
                    title: "goal".into(),
                    agents,
                    team: None,
                    max_workers: workers,
                    mode,
                    isolate: tasks % 5 == 0,
                    wave_commits: waves && workers % 2 == 0,
                    serial: if tasks % 3 == 0 {
                        files(&["src/**"])
                    } else {
                        vec![]
                    },
                    budget: Default::default(),
                };
                let adopt = adopt.map(|index| self.task(index)).into_iter().collect();
                let tasks = (0..tasks as usize % 4).map(planned).collect();
                self.ask(Command::StartMission {
                    mission,
                    tasks,
                    adopt,
                });
            }
            RandomStep::ChangeMission { mission, what } => {
                let mission = MissionId(mission.index(2) as u64 + 1);
                self.ask(match what % 4 {
                    0 => Command::DrainMission { mission },
                    1 => Command::StopMission {
                        mission,
                        reason: "enough".into(),
                    },
                    _ => Command::ResumeMission { mission },
                });
            }
            RandomStep::Acquire {
                owner,
                grant,
                uris,
                shared,
                ttl,
                wait,
            } => {
                let owner = match (owner % 4, self.grant(grant, 3)) {
                    (3, Some(poll_grant)) => ClaimOwner::Attempt(poll_grant.attempt),
                    (nth, _) => ClaimOwner::Agent(agent(AGENTS[nth as usize % 3])),
                };
                let uris = (0..8)
                    .filter(|index| uris & (1 << index) != 0)
                    .map(|index| uri(URIS[index]))
                    .collect();
                let mode = if shared {
                    ClaimMode::Shared
                } else {
                    ClaimMode::Exclusive
                };
                let wait_ms = if wait < 2 { 0 } else { TIMES[wait] };
                let memo = String::new();
                self.ask(Command::Acquire(Acquire {
                    owner,
                    uris,
                    mode,
                    ttl_ms: TIMES[ttl],
                    wait_ms,
                    memo,
                }));
            }
            RandomStep::Renew { lease, wrong } => {
                if let Some(HeldClaim { claim, token }) = self.lease(lease, wrong) {
                    self.ask(Command::Renew { claim, token });
                }
            }
            RandomStep::Release { lease, wrong } => {
                if let Some(HeldClaim { claim, token }) = self.lease(lease, wrong) {
                    self.ask(Command::Release { claim, token });
                }
            }
            RandomStep::CancelWait { wait } => {
                let last = self.world.board.counters.wait as usize;
                self.ask(Command::CancelWait {
                    wait: WaitId(wait.index(last + 1) as u64),
                });
            }
            RandomStep::Limit { max_attempts } => self.ask(Command::SetLimits {
                limits: MachineLimits {
                    max_attempts,
                    ..MachineLimits::default()
                },
            }),
            RandomStep::Register {
                agent: who,
                max_tasks,
            } => {
                let register = RegisterAgent {
                    description: "again".into(),
                    ..registration(AGENTS[who], max_tasks)
                };
                self.ask(Command::RegisterAgent(register));
            }
            RandomStep::BusMessage { read } => {
                let channel = ChannelName::new("shop").unwrap();
                self.ask(match read {
                    None => Command::Post(PostMessage {
                        channel,
                        text: "@ada hello".into(),
                        labels: vec![],
                        reply_to: None,
                    }),
                    Some(number) => Command::MarkRead {
                        agent: agent("ada"),
                        channel,
                        read: MessageId(number),
                    },
                });
            }
            RandomStep::AgentEvent {
                grant,
                wrong,
                what,
                usage,
            } => {
                if let Some(poll_grant) = self.grant(grant, wrong) {
                    let talk = self
                        .world
                        .board
                        .attempts
                        .get(&poll_grant.attempt)
                        .map(|attempt| attempt.session.clone())
                        .unwrap_or_default();
                    let event = self.agent_event(&talk, what, u64::from(usage));
                    let n = talk.last_record + u64::from(wrong == 0);
                    self.report(Report::AgentEvent {
                        attempt: poll_grant.attempt,
                        token: poll_grant.token,
                        n,
                        event,
                    });
                }
            }
            RandomStep::Intervene { task, what } => {
                let task = self.task(task);
                let approval = self
                    .world
                    .board
                    .approvals
                    .keys()
                    .next_back()
                    .copied()
                    .unwrap_or(ApprovalId(1));
                let reach = [
                    AnswerScope::Once,
                    AnswerScope::Task,
                    AnswerScope::Mission,
                    AnswerScope::Always,
                ][what as usize / 16 % 4];
                let command = match what % 12 {
                    0 | 1 => Command::Tell {
                        task,
                        text: "mind the gap".into(),
                    },
                    2 => Command::PauseTask {
                        task,
                        reason: "wait".into(),
                    },
                    3 | 4 => Command::ResumeTask { task },
                    5 => Command::RetryTask { task, failed: None },
                    6 | 7 => Command::Decide {
                        approval,
                        answer: RequestAnswer::Allow,
                        scope: reach,
                        also: vec![],
                    },
                    8 => Command::Decide {
                        approval,
                        answer: RequestAnswer::Deny { reason: None },
                        scope: reach,
                        also: vec![],
                    },
                    9 => Command::ResumeAgent {
                        agent: agent("eve"),
                    },
                    10 => {
                        let scope = [
                            budget::BudgetScope::Attempt,
                            budget::BudgetScope::EachTask,
                            budget::BudgetScope::Task(task),
                            budget::BudgetScope::Day,
                        ][what as usize / 16 % 4]
                            .clone();
                        let tokens = (what < 200).then_some(u64::from(what) * 4);
                        Command::SetBudget {
                            scope,
                            ceiling: budget::Ceiling {
                                tokens,
                                ..Default::default()
                            },
                        }
                    }
                    _ => {
                        return self.report(Report::Silent {
                            attempt: AttemptId(u64::from(what)),
                            token: 0,
                            since_ms: Some(1_000_000),
                        });
                    }
                };
                self.ask(command);
            }
            RandomStep::RepeatRequest { request } => {
                // A late or repeated request is exactly as it was, with its key or without.
                let input = self.inputs.get(request.index(self.inputs.len().max(1)));
                if let Some(input) = input.cloned() {
                    self.decide(input);
                }
            }
            RandomStep::Runner { gpu, wrong, what } => {
                let runner = RunnerName::new(if gpu { "gpu" } else { "box" }).unwrap();
                let session = self
                    .world
                    .board
                    .runners
                    .get(&runner)
                    .map_or(0, |runner| runner.session)
                    + u64::from(wrong);
                self.ask(match what % 8 {
                    0..=2 => Command::RegisterRunner(runner::RegisterRunner {
                        name: runner,
                        identity: format!("i{}", what / 200),
                        token: String::new(),
                        labels: vec![],
                        agents: if gpu { vec![agent("ada")] } else { vec![] },
                        max_tasks: 1 + u32::from(what / 100),
                        version: String::new(),
                    }),
                    3 | 4 => Command::BeatRunner { runner, session },
                    5 => Command::LeaveRunner { runner, session },
                    6 => Command::DrainRunner {
                        runner,
                        reason: "update".into(),
                    },
                    _ => Command::RemoveRunner { runner },
                });
            }
            RandomStep::Lead { which, what } => self.lead_step(which, what),
            RandomStep::Restart => self.world.restart(),
            RandomStep::Reload => self.world.board = self.world.reloaded(),
        }
    }
}

/// Takes every step. A sequence that breaks a law fails with its last commands.
fn run_steps(steps: &[RandomStep]) -> Result<(), TestCaseError> {
    let mut story = RandomRun::new();
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for step in steps {
            story.apply_step(step);
        }
        crate::task_timeline::check_timelines(&story.world);
    }));
    told.map_err(|why| {
        let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
        let lines = &story.world.transcript;
        TestCaseError::fail(format!(
            "{why}\n{}",
            lines[lines.len().saturating_sub(40)..].join("\n")
        ))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 1_000, ..ProptestConfig::default() })]

    /// L1 L2 L5 L6 L7 L8 L9 L10 L11 L12 J2 J3 J4 J5 J6 J7 J9 J10 Q8 Q10 W1 D4 hold after every
    /// command. Also, the rows give the board, revisions have no gaps, the ready index equals a
    /// scan, and a poll gives the task that a scan gives. At the end, the log gives every task's
    /// history without a gap (W1).
    #[test]
    fn every_law_holds_after_every_command_of_a_random_sequence(steps in prop::collection::vec(step(), 1..60)) {
        run_steps(&steps)?;
    }
}
