//! A test history that contains every kind of event, made by real commands.
//!
//! The store suite commits the history step by step and compares what the store loads with the
//! expected state. Each submodule adds the commands of one area. Teams and conversations are added
//! by other modules of the store suite.

mod bus;
mod landings;
mod live_state;
mod missions;
mod sessions;

use std::collections::BTreeMap;

use regatta_core::agent_protocol::{
    AgentEvent, AgentRequest, FailureClass, RequestAnswer, RequestContent, StopReason, ToolCall,
    ToolKind, Usage,
};
use regatta_core::approval::AnswerScope;
use regatta_core::attempt::{ProgramExit, WorkFindings, WorkResult, WorkVerdict};
use regatta_core::board::Board;
use regatta_core::bus::{Attachment, PostContext, PostMessage};
use regatta_core::claim::{Acquire, Acquired, ClaimMode, ClaimOwner};
use regatta_core::command::{
    Actor, BoardInput, Command, CommandOutcome, PlannedTask, Report, Request, decide,
};
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::event::Event;
use regatta_core::ids::{
    AgentName, ApprovalId, BranchName, ChannelName, CommitId, HookId, LandingId, MessageId,
    MissionId, Now, ProjectName, RequestKey, RunnerName, TaskId, WaitId,
};
use regatta_core::inbox::InboxItem;
use regatta_core::isolation_breach::IsolationBreach;
use regatta_core::landing::guard::{FileKind, SpecialFile};
use regatta_core::landing::remote_sync::DivergedRemote;
use regatta_core::landing::trunk_check::{self, TrunkCommit, TrunkSeen};
use regatta_core::landing::{MoveOutcome, TrialOutcome};
use regatta_core::limits::MachineLimits;
use regatta_core::pattern::{PathPattern, Uri};
use regatta_core::schedule::{PollGrant, PollRequest};
use regatta_core::scope_escape::ScopeFinding;
use regatta_core::task::{AddTask, AssignMode, EditTask, Expects, IssueType};
use regatta_core::{
    agent, budget, collision_forecast, hook, mission, policy, project, runner, start_gates, task,
};
use regatta_engine::ports::store::StoreBatch;

/// One batch of the test history, and the state that is expected after the batch was committed.
#[derive(Clone, Debug)]
pub struct CommitStep {
    pub batch: StoreBatch,
    pub board: Board,
    pub outbox: Vec<(EffectKey, Effect)>,
}

/// Builds the test history, one command at a time.
#[derive(Debug, Default)]
pub struct HistoryBuilder {
    pub board: Board,
    pub now: Now,
    pub steps: Vec<CommitStep>,
    /// The inputs of the history in order: each is a request or a report that the board accepted,
    /// with the time at which the board accepted it.
    pub inputs: Vec<(BoardInput, Now)>,
    outbox: BTreeMap<EffectKey, Effect>,
}

impl HistoryBuilder {
    /// Runs a request that must be accepted, and adds the resulting batch to the history.
    pub fn run(&mut self, by: &Actor, key: Option<&str>, command: Command) -> CommandOutcome {
        self.decide(Request {
            by: by.clone(),
            key: key.map(|key| RequestKey::new(key).unwrap()),
            command,
        })
    }

    /// Gives the board a report that must be accepted, and adds the resulting batch to the history.
    pub fn report(&mut self, report: Report) -> CommandOutcome {
        self.decide(report)
    }

    /// Decides an input that must be accepted, and adds the resulting batch to the history.
    pub fn decide(&mut self, input: impl Into<BoardInput>) -> CommandOutcome {
        let input = input.into();
        self.now = Now {
            fleet_ms: self.now.fleet_ms + 7,
            unix_ms: self.now.unix_ms + 7,
        };
        let decision = decide(&self.board, input.clone(), self.now)
            .unwrap_or_else(|refusal| panic!("{input:?}: {}", refusal.message()));
        // Every third batch reports the oldest effects (side actions such as starting a program) as
        // done, as the engine would. So the history contains completed effects too.
        let removed_count = if self.steps.len() % 3 == 2 {
            self.outbox.len() / 2
        } else {
            0
        };
        let performed: Vec<EffectKey> = self.outbox.keys().take(removed_count).copied().collect();
        for key in &performed {
            self.outbox.remove(key);
        }
        self.outbox.extend(decision.effects.iter().cloned());
        let batch = StoreBatch {
            base_revision: self.board.revision,
            meta: decision.board.meta(),
            events: decision.events,
            rows: decision.rows,
            effects: decision.effects,
            completed_effects: performed,
        };
        self.board = decision.board.clone();
        let outbox = self
            .outbox
            .iter()
            .map(|(key, effect)| (*key, effect.clone()))
            .collect();
        self.steps.push(CommitStep {
            batch,
            board: decision.board,
            outbox,
        });
        self.inputs.push((input, self.now));
        decision.outcome
    }

    pub(super) fn run_as_daemon(&mut self, command: Command) -> CommandOutcome {
        self.run(&Actor::Regatta, None, command)
    }

    pub(super) fn run_as_ann(&mut self, command: Command) -> CommandOutcome {
        self.run(&person("ann"), None, command)
    }

    fn advance(&mut self, ms: u64) {
        self.now = Now {
            fleet_ms: self.now.fleet_ms + ms,
            unix_ms: self.now.unix_ms + ms,
        };
        self.report(Report::Tick);
    }

    fn poll(&mut self, agent: &str, supervised: bool) -> PollGrant {
        let poll = PollRequest {
            by_hand: !supervised,
            ..PollRequest::new(agent_named(agent))
        };
        let outcome = if supervised {
            self.report(Report::PollSupervised {
                poll,
                facts: Box::default(),
            })
        } else {
            let by = Actor::Agent(agent_named(agent));
            self.run(&by, None, Command::Poll(poll))
        };
        match outcome {
            CommandOutcome::Polled(Some(grant)) => grant,
            other => panic!("{agent} got {other:?}"),
        }
    }

    fn acquire(&mut self, agent: &str, uri: &str, wait_ms: u64) -> Acquired {
        let uris = vec![Uri::new(uri).unwrap()];
        let acquire = Acquire {
            owner: ClaimOwner::Agent(agent_named(agent)),
            uris,
            mode: ClaimMode::Exclusive,
            ttl_ms: 60_000,
            wait_ms,
            memo: "mine".into(),
        };
        match self.run(
            &Actor::Agent(agent_named(agent)),
            None,
            Command::Acquire(acquire),
        ) {
            CommandOutcome::Claim(acquired) => acquired,
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, acquired: &Acquired) {
        let Acquired::Granted { claim, token, .. } = acquired else {
            panic!("the claim was not granted: {acquired:?}")
        };
        self.run_as_ann(Command::Release {
            claim: *claim,
            token: *token,
        });
    }

    fn post(&mut self, by: Actor, channel: &str, text: &str, labels: &[&str]) {
        let labels = labels
            .iter()
            .map(|label| regatta_core::ids::Label::new(label).unwrap())
            .collect();
        self.run(
            &by,
            None,
            Command::Post(PostMessage {
                channel: ChannelName::new(channel).unwrap(),
                text: text.into(),
                labels,
                reply_to: None,
            }),
        );
    }

    fn report_verdict(&mut self, grant: &PollGrant, verdict: WorkVerdict) -> Option<LandingId> {
        match self.report(Report::WorkVerdict {
            attempt: grant.attempt,
            token: grant.token,
            verdict,
            findings: side_findings(),
        }) {
            CommandOutcome::Judged { landing } => landing,
            other => panic!("{other:?}"),
        }
    }

    /// Finishes an attempt whose program Regatta runs, and puts its work into the landing queue.
    fn submit(&mut self, grant: &PollGrant, changed: &str) -> LandingId {
        self.report(Report::Exited {
            attempt: grant.attempt,
            token: grant.token,
            exit: ProgramExit::Done {
                output: Some("done".into()),
            },
        });
        self.report_verdict(grant, passed_verdict(&[changed]))
            .expect("the attempt changed something")
    }

    fn report_move(&mut self, landing: LandingId, outcome: MoveOutcome) {
        let regatta_core::landing::LandingState::Moving { fence, .. } =
            self.board.landings[&landing].state
        else {
            panic!("the landing does not move the trunk")
        };
        self.report(Report::TrunkMove {
            landing,
            fence,
            outcome,
        });
    }
}

/// Returns findings about a finished piece of work: a result, changes outside the manifest (the
/// files that the task may change), and warnings.
fn side_findings() -> WorkFindings {
    let result = WorkResult {
        detail: "done".into(),
        learnings: vec!["read first".into()],
        ..WorkResult::default()
    };
    WorkFindings {
        result: Some(result),
        outside_manifest: vec!["README".into()],
        reported: vec![ScopeFinding {
            finding: "a bug next door".into(),
            suggested_files: vec!["b".into()],
        }],
        warnings: vec!["look at it".into()],
        checks: Some("its check passes".into()),
        special: vec![SpecialFile {
            path: "a".into(),
            before: Some(FileKind::Symlink),
            after: None,
            target: Some("b".into()),
            unpublished: true,
        }],
    }
}

/// Returns the test history, which contains every kind of event. At its end, an object of every
/// kind (such as a running attempt) still exists.
pub fn all_steps() -> Vec<CommitStep> {
    full_history().steps
}

/// Returns the inputs from which the batches of [`all_steps`] result, each with its time.
pub fn all_inputs() -> Vec<(BoardInput, Now)> {
    full_history().inputs
}

fn full_history() -> HistoryBuilder {
    let mut history = HistoryBuilder::default();
    add_people_and_projects(&mut history);
    landings::add_outside_task(&mut history);
    landings::add_troubled_task(&mut history);
    missions::add_missions(&mut history);
    bus::add_claims(&mut history);
    bus::add_messages(&mut history);
    bus::add_hooks(&mut history);
    sessions::add_sessions(&mut history);
    landings::add_queue(&mut history);
    // After another day, all leases have expired and the oldest stored answers are forgotten.
    history.advance(25 * 3_600_000);
    history.report(Report::DaemonStarted { pid: 2 });
    missions::add_leads(&mut history);
    super::teams::add_teams(&mut history);
    super::conversations::add_conversations(&mut history);
    live_state::add_live_state(&mut history);
    history
}

fn add_people_and_projects(history: &mut HistoryBuilder) {
    history.now = Now {
        fleet_ms: 1_000,
        unix_ms: 1_700_000_000_000,
    };
    history.report(Report::DaemonStarted { pid: 1 });
    history.run_as_ann(Command::SetLimits {
        limits: MachineLimits {
            max_attempts: 20,
            ..MachineLimits::default()
        },
    });
    for (name, validation) in [
        ("shop", vec![]),
        ("shop", vec!["make test".to_owned()]),
        ("docs", vec![]),
        ("gone", vec![]),
    ] {
        history.run_as_ann(Command::AddProject(project::AddProject {
            name: project_named(name),
            location: format!("/src/{name}"),
            trunk: BranchName::new("main").unwrap(),
            validation,
            validation_timeout_ms: 60_000,
            settings: project::ProjectSettings {
                workspace: project::WorkspaceSettings {
                    ports: 1,
                    ..project::WorkspaceSettings::default()
                },
                ..project::ProjectSettings::default()
            },
        }));
    }
    history.run_as_ann(Command::RemoveProject(project::RemoveProject {
        name: project_named("gone"),
    }));
    let command = agent::Runtime::Command {
        argv: vec!["claude".into(), "--print".into()],
    };
    for (name, runtime) in [
        ("ann", agent::Runtime::Outside),
        ("bob", agent::Runtime::Scripted),
        ("shop-dev/cy", command),
    ] {
        let role = if name == "ann" {
            agent::Role::Lead
        } else {
            agent::Role::Worker
        };
        let description = "“quotes”, \"quotes\" and ümlauts\n".to_owned();
        history.run_as_ann(Command::RegisterAgent(agent::RegisterAgent {
            name: agent_named(name),
            runtime,
            role,
            provider: None,
            profile: regatta_core::agent::Profile::default(),
            description,
            max_tasks: 5,
        }));
    }
    history.run_as_ann(Command::RemoveAgent {
        agent: agent_named("shop-dev/cy"),
    });
}

fn new_task(project_name: &str, subject: &str, file: &str) -> AddTask {
    AddTask {
        project: project_named(project_name),
        subject: subject.into(),
        description: "It says \"so\":\n\t{\"a\": [1, null]}".into(),
        issue_type: IssueType::Feature,
        files: vec![PathPattern::new(file).unwrap()],
        validation: task::Validation {
            tests: vec!["make test".into()],
            ..task::Validation::default()
        },
        blocked_by: vec![],
        priority: 2,
        expects: Expects::Changes,
        effort: Some("high".into()),
        model: None,
        provider: None,
        script: None,
        ratchet: None,
        alias: Some("bd-1".into()),
        backlog: false,
    }
}

pub(super) fn passed_verdict(changed: &[&str]) -> WorkVerdict {
    WorkVerdict::Passed {
        commit: commit_id('a'),
        base: commit_id('b'),
        changed: changed.iter().map(|path| (*path).to_owned()).collect(),
    }
}

fn commit_id(digit: char) -> CommitId {
    CommitId::new(&digit.to_string().repeat(40)).unwrap()
}

pub(crate) fn person(name: &str) -> Actor {
    Actor::Person(name.into())
}

pub(crate) fn agent_named(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

pub(crate) fn project_named(name: &str) -> ProjectName {
    ProjectName::new(name).unwrap()
}
