//! A history with every kind of event, made by real commands.

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
use regatta_core::command::{Actor, Command, CommandOutcome, PlannedTask, Request, decide};
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

/// One commit, and the state that must hold after it.
#[derive(Clone, Debug)]
pub struct CommitStep {
    pub batch: StoreBatch,
    pub board: Board,
    pub outbox: Vec<(EffectKey, Effect)>,
}

/// Builds the history, one command at a time.
#[derive(Debug, Default)]
pub struct HistoryBuilder {
    pub board: Board,
    pub now: Now,
    pub steps: Vec<CommitStep>,
    /// The granted request of each step, with the time of its decision.
    pub requests: Vec<(Request, Now)>,
    outbox: BTreeMap<EffectKey, Effect>,
}

impl HistoryBuilder {
    /// Executes a request, which must be granted, and keeps the commit.
    pub fn run(&mut self, by: &Actor, key: Option<&str>, command: Command) -> CommandOutcome {
        self.now = Now {
            fleet_ms: self.now.fleet_ms + 7,
            unix_ms: self.now.unix_ms + 7,
        };
        let request = Request {
            by: by.clone(),
            key: key.map(|key| RequestKey::new(key).unwrap()),
            command,
        };
        let done = decide(&self.board, &request, self.now)
            .unwrap_or_else(|why| panic!("{:?}: {}", request.command, why.message()));
        // Every third commit removes the oldest effects, as the reports of an engine would.
        let most = if self.steps.len() % 3 == 2 {
            self.outbox.len() / 2
        } else {
            0
        };
        let performed: Vec<EffectKey> = self.outbox.keys().take(most).copied().collect();
        for key in &performed {
            self.outbox.remove(key);
        }
        self.outbox.extend(done.effects.iter().cloned());
        let batch = StoreBatch {
            base_revision: self.board.revision,
            meta: done.board.meta(),
            events: done.events,
            rows: done.rows,
            effects: done.effects,
            completed_effects: performed,
        };
        self.board = done.board.clone();
        let outbox = self
            .outbox
            .iter()
            .map(|(key, effect)| (*key, effect.clone()))
            .collect();
        self.steps.push(CommitStep {
            batch,
            board: done.board,
            outbox,
        });
        self.requests.push((request, self.now));
        done.outcome
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
        self.run_as_daemon(Command::Tick);
    }

    fn poll(&mut self, who: &str, supervised: bool) -> PollGrant {
        let ask = PollRequest {
            by_hand: !supervised,
            ..PollRequest::new(agent_named(who))
        };
        let command = if supervised {
            Command::PollSupervised {
                poll: ask,
                facts: Box::default(),
            }
        } else {
            Command::Poll(ask)
        };
        match self.run(&Actor::Agent(agent_named(who)), None, command) {
            CommandOutcome::Polled(Some(grant)) => grant,
            other => panic!("{who} got {other:?}"),
        }
    }

    fn acquire(&mut self, who: &str, uri: &str, wait_ms: u64) -> Acquired {
        let uris = vec![Uri::new(uri).unwrap()];
        let ask = Acquire {
            owner: ClaimOwner::Agent(agent_named(who)),
            uris,
            mode: ClaimMode::Exclusive,
            ttl_ms: 60_000,
            wait_ms,
            memo: "mine".into(),
        };
        match self.run(&Actor::Agent(agent_named(who)), None, Command::Acquire(ask)) {
            CommandOutcome::Claim(acquired) => acquired,
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, held: &Acquired) {
        let Acquired::Granted { claim, token, .. } = held else {
            panic!("{held:?} is not held")
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
        match self.run_as_daemon(Command::ReportWorkVerdict {
            attempt: grant.attempt,
            token: grant.token,
            verdict,
            findings: side_findings(),
        }) {
            CommandOutcome::Judged { landing } => landing,
            other => panic!("{other:?}"),
        }
    }

    /// Completes a supervised attempt and passes its work into the landing queue.
    fn submit(&mut self, grant: &PollGrant, changed: &str) -> LandingId {
        self.run_as_daemon(Command::ReportExited {
            attempt: grant.attempt,
            token: grant.token,
            exit: ProgramExit::Done {
                output: Some("done".into()),
            },
        });
        self.report_verdict(grant, passed_verdict(&[changed]))
            .expect("the attempt changed something")
    }

    fn report_move(&mut self, landing: LandingId, found: MoveOutcome) {
        let regatta_core::landing::LandingState::Moving { fence, .. } =
            self.board.landings[&landing].state
        else {
            panic!("the landing does not move the trunk")
        };
        self.run_as_daemon(Command::ReportTrunkMove {
            landing,
            fence,
            outcome: found,
        });
    }
}

/// Returns findings beside a verdict.
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

/// Returns a history with every kind of event. It ends with a live entity of every kind.
pub fn all_steps() -> Vec<CommitStep> {
    full_history().steps
}

/// Returns the requests that make [`all_steps`], with the time of each.
pub fn all_requests() -> Vec<(Request, Now)> {
    full_history().requests
}

fn full_history() -> HistoryBuilder {
    let mut history_builder = HistoryBuilder::default();
    add_people_and_projects(&mut history_builder);
    add_outside_task(&mut history_builder);
    add_troubled_task(&mut history_builder);
    add_missions(&mut history_builder);
    add_claims(&mut history_builder);
    add_messages(&mut history_builder);
    add_hooks(&mut history_builder);
    add_sessions(&mut history_builder);
    add_queue(&mut history_builder);
    // A day later all leases have expired and the first answers are forgotten.
    history_builder.advance(25 * 3_600_000);
    history_builder.run_as_daemon(Command::Resume { pid: 2 });
    add_leads(&mut history_builder);
    super::teams::add_teams(&mut history_builder);
    super::conversations::add_conversations(&mut history_builder);
    add_live_state(&mut history_builder);
    history_builder
}

fn add_people_and_projects(history_builder: &mut HistoryBuilder) {
    history_builder.now = Now {
        fleet_ms: 1_000,
        unix_ms: 1_700_000_000_000,
    };
    history_builder.run_as_daemon(Command::Resume { pid: 1 });
    history_builder.run_as_ann(Command::SetLimits {
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
        history_builder.run_as_ann(Command::AddProject(project::AddProject {
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
    history_builder.run_as_ann(Command::RemoveProject(project::RemoveProject {
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
        history_builder.run_as_ann(Command::RegisterAgent(agent::RegisterAgent {
            name: agent_named(name),
            runtime,
            role,
            provider: None,
            profile: regatta_core::agent::Profile::default(),
            description,
            max_tasks: 5,
        }));
    }
    history_builder.run_as_ann(Command::RemoveAgent {
        agent: agent_named("shop-dev/cy"),
    });
}

/// An outside agent accepts an offered task and works on it, and the work lands.
fn add_outside_task(history_builder: &mut HistoryBuilder) {
    history_builder.run(
        &person("ann"),
        Some("add-1"),
        Command::AddTask {
            task: new_task("shop", "Trouble", "src/a.rs"),
            assign: None,
            how: AssignMode::Direct,
        },
    );
    history_builder.run_as_ann(Command::AddTask {
        task: new_task("shop", "Ease", "src/b.rs"),
        assign: Some(agent_named("ann")),
        how: AssignMode::Offer,
    });
    history_builder.run_as_ann(Command::AnswerOffer {
        task: TaskId(2),
        agent: agent_named("ann"),
        accept: true,
    });
    history_builder.run_as_ann(Command::EditTask {
        task: TaskId(1),
        edit: EditTask {
            priority: Some(1),
            ..EditTask::default()
        },
    });
    let grant = history_builder.poll("ann", false);
    assert_eq!(grant.task, TaskId(2));
    let (task, attempt, token) = (grant.task, grant.attempt, grant.token);
    history_builder.run_as_ann(Command::Progress {
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
    history_builder.run_as_daemon(Command::ReportCollisions {
        project: project_named("shop"),
        found,
    });
    history_builder.run_as_ann(Command::Finish {
        task,
        attempt,
        token,
        output: None,
        not_needed: false,
        learnings: vec![],
    });
    let landing = history_builder
        .report_verdict(&grant, passed_verdict(&["src/b.rs"]))
        .expect("the attempt changed something");
    history_builder.run_as_daemon(Command::ReportTrial {
        landing,
        outcome: TrialOutcome::Held {
            landing: None,
            reason: "no room on the disk".into(),
        },
    });
    history_builder.advance(60_000);
    history_builder.run_as_daemon(Command::ReportTrial {
        landing,
        outcome: TrialOutcome::Passed {
            old: commit_id('1'),
            new: commit_id('2'),
            carries: vec![],
        },
    });
    history_builder.report_move(landing, MoveOutcome::Moved);
}

/// A task that is stopped, fails, conflicts, needs a person, waits for the trunk, and finally
/// lands.
fn add_troubled_task(history_builder: &mut HistoryBuilder) {
    let grant = history_builder.poll("bob", true);
    history_builder.run_as_ann(Command::StopTask {
        task: TaskId(1),
        reason: "not now".into(),
        pause: false,
    });
    history_builder.run_as_daemon(Command::ReportExited {
        attempt: grant.attempt,
        token: grant.token,
        exit: ProgramExit::Lost,
    });
    let grant = history_builder.poll("bob", true);
    history_builder.run_as_daemon(Command::ReportExited {
        attempt: grant.attempt,
        token: grant.token,
        exit: ProgramExit::Done { output: None },
    });
    history_builder.report_verdict(
        &grant,
        WorkVerdict::Failed {
            reason: "make test: 2 failed".into(),
        },
    );
    let grant = history_builder.poll("bob", true);
    let at = history_builder.submit(&grant, "src/a.rs");
    history_builder.run_as_daemon(Command::ReportTrial {
        landing: at,
        outcome: TrialOutcome::Conflict {
            landing: at,
            paths: vec!["src/a.rs".into()],
            kinds: vec![],
        },
    });
    // All fix-ups fail, with one more try for a flaky check.
    while history_builder.board.tasks[&TaskId(1)].status.is_waiting() {
        let grant = history_builder.poll("bob", true);
        let landing = history_builder.submit(&grant, "src/a.rs");
        for _ in 0..2 {
            history_builder.run_as_daemon(Command::ReportTrial {
                landing,
                outcome: TrialOutcome::Failed {
                    reason: "make test".into(),
                    output: None,
                    settled: vec![],
                },
            });
        }
    }
    history_builder.run_as_ann(Command::Land {
        task: TaskId(1),
        first: true,
    });
    let landing = *history_builder
        .board
        .landings
        .keys()
        .next()
        .expect("the landing is queued again");
    let trunk = history_builder.acquire("ann", "workspace://shop/default", 0);
    history_builder.run_as_daemon(Command::ReportTrial {
        landing,
        outcome: TrialOutcome::Passed {
            old: commit_id('2'),
            new: commit_id('3'),
            carries: vec![],
        },
    });
    history_builder.release(&trunk);
    history_builder.report_move(landing, MoveOutcome::TrunkMoved);
    history_builder.run_as_daemon(Command::ReportTrial {
        landing,
        outcome: TrialOutcome::AlreadyOnTrunk {
            tip: commit_id('4'),
            landed_as: vec![],
        },
    });
}

/// A queue is held. One of two landings conflicts with the other. A third landing is reviewed and
/// revised.
fn add_queue(history_builder: &mut HistoryBuilder) {
    history_builder.run_as_ann(Command::HoldQueue {
        project: project_named("shop"),
        reason: "a release".into(),
    });
    let mut landings = Vec::new();
    for (subject, file) in [
        ("Up", "queue/up"),
        ("Down", "queue/down"),
        ("Attributes", ".gitattributes"),
    ] {
        history_builder.run_as_ann(Command::AddTask {
            task: new_task("shop", subject, file),
            assign: Some(agent_named("ann")),
            how: AssignMode::Queue,
        });
        let grant = history_builder.poll("ann", false);
        let (task, attempt, token) = (grant.task, grant.attempt, grant.token);
        history_builder.run_as_ann(Command::Finish {
            task,
            attempt,
            token,
            output: None,
            not_needed: false,
            learnings: vec![],
        });
        match history_builder.report_verdict(&grant, passed_verdict(&[file])) {
            Some(landing) => landings.push(landing),
            None => {
                history_builder.run_as_ann(Command::Revise {
                    task,
                    text: "without the attributes".into(),
                });
                history_builder.run_as_ann(Command::CancelTask {
                    task,
                    reason: "not at all, then".into(),
                });
            }
        }
    }
    history_builder.run_as_ann(Command::ReleaseQueue {
        project: project_named("shop"),
    });
    let (first, last) = (landings[0], landings[1]);
    let conflict = TrialOutcome::Conflict {
        landing: last,
        paths: vec!["queue/down".into()],
        kinds: vec![],
    };
    history_builder.run_as_daemon(Command::ReportTrial {
        landing: last,
        outcome: conflict,
    });
    history_builder.run_as_daemon(Command::ReportTrial {
        landing: first,
        outcome: TrialOutcome::CommitFailed {
            reason: "make test".into(),
        },
    });
    for (landing, old, new) in [(first, '4', '5'), (last, '5', '6')] {
        let found = TrialOutcome::Passed {
            old: commit_id(old),
            new: commit_id(new),
            carries: vec![],
        };
        history_builder.run_as_daemon(Command::ReportTrial {
            landing,
            outcome: found,
        });
        history_builder.report_move(landing, MoveOutcome::Moved);
    }
    add_diverged_remote(history_builder);
}

/// A push fails, because the remote has other commits. Joining them conflicts at first, and finally
/// the trunk is pushed.
fn add_diverged_remote(history_builder: &mut HistoryBuilder) {
    let pushed = |trouble: Option<&str>| Command::ReportPushed {
        project: project_named("shop"),
        remote: "origin".into(),
        commit: commit_id('6'),
        failure: trouble.map(str::to_owned),
    };
    history_builder.run_as_daemon(pushed(Some("no route to host")));
    let found = DivergedRemote {
        remote: "origin".into(),
        tip: commit_id('7'),
        changed: vec!["queue/up".into()],
    };
    history_builder.run_as_daemon(Command::ReportDiverged {
        project: project_named("shop"),
        commit: commit_id('6'),
        found,
    });
    let joining = |history_builder: &HistoryBuilder| {
        history_builder
            .board
            .landings
            .values()
            .find(|landing| landing.submission.merges_remote.is_some())
            .cloned()
    };
    let landing = joining(history_builder).expect("the join is queued");
    history_builder.run_as_daemon(Command::ReportTrial {
        landing: landing.id,
        outcome: TrialOutcome::Conflict {
            landing: landing.id,
            paths: vec!["queue/up".into()],
            kinds: vec![],
        },
    });
    history_builder.run_as_ann(Command::Land {
        task: landing.task,
        first: false,
    });
    let landing = joining(history_builder)
        .expect("the join is queued again")
        .id;
    history_builder.run_as_daemon(Command::ReportTrial {
        landing,
        outcome: TrialOutcome::AlreadyOnTrunk {
            tip: commit_id('7'),
            landed_as: vec![],
        },
    });
    history_builder.run_as_daemon(pushed(None));
    add_reset_trunk(history_builder);
}

/// A person resets the trunk past a landing and accepts the result.
fn add_reset_trunk(teller: &mut HistoryBuilder) {
    let missing = TrunkCommit {
        commit: commit_id('6'),
        landing: Some(LandingId(1)),
        task: Some(TaskId(1)),
        subject: "Gone".into(),
    };
    let recorded = trunk_check::recorded(&teller.board.projects[&project_named("shop")]);
    let seen = TrunkSeen {
        recorded,
        missing: vec![missing],
        added: vec![],
    };
    teller.run_as_daemon(Command::ReportTrunk {
        project: project_named("shop"),
        seen,
    });
    teller.run_as_ann(Command::AcceptTrunk {
        project: project_named("shop"),
        tip: Some(commit_id('5')),
    });
}

/// One mission is drained, resumed, and ends with a failed task. The other mission stays.
fn add_missions(history_builder: &mut HistoryBuilder) {
    for (title, mode) in [
        ("First", mission::StartMode::Flow),
        ("Second", mission::StartMode::Waves),
    ] {
        let planned = |subject: &str, after: Vec<usize>| PlannedTask {
            task: new_task("shop", subject, &format!("{title}/{subject}")),
            after,
            assign: None,
        };
        let tasks = vec![planned("one", vec![]), planned("two", vec![0])];
        let mission = mission::StartMission {
            project: project_named("shop"),
            title: title.into(),
            agents: vec![agent_named("ann"), agent_named("bob")],
            team: None,
            max_workers: 4,
            mode,
            isolate: mode == mission::StartMode::Waves,
            wave_commits: false,
            serial: vec![PathPattern::new("tests/**").unwrap()],
            budget: Default::default(),
        };
        history_builder.run(
            &person("ann"),
            Some(title),
            Command::StartMission {
                mission,
                tasks,
                adopt: vec![],
            },
        );
    }
    let poll = PollRequest {
        agent: agent_named("ann"),
        project: None,
        mission: Some(MissionId(2)),
        task: None,
        lease_ms: None,
        no_workspace: false,
        by_hand: false,
    };
    let facts = Box::new(start_gates::StartFacts {
        disk_mb: Some(1),
        ..start_gates::StartFacts::default()
    });
    history_builder.run(
        &Actor::Regatta,
        None,
        Command::PollSupervised { poll, facts },
    );
    history_builder.run_as_ann(Command::DrainMission {
        mission: MissionId(1),
    });
    add_isolation_breach(history_builder);
    history_builder.run_as_ann(Command::ResumeMission {
        mission: MissionId(1),
    });
    let grant = history_builder.poll("ann", false);
    history_builder.run_as_ann(Command::GiveUp {
        task: grant.task,
        attempt: grant.attempt,
        token: grant.token,
        reason: Some("too hard".into()),
    });
    history_builder.run_as_ann(Command::Snooze {
        item: InboxItem::Task(grant.task),
        ms: Some(60_000),
    });
    history_builder.run_as_ann(Command::Dismiss { task: grant.task });
    history_builder.run_as_ann(Command::CancelTask {
        task: TaskId(4),
        reason: "its blocker failed".into(),
    });
    let report = AddTask {
        issue_type: IssueType::Docs,
        expects: Expects::Report,
        ..new_task("docs", "What is there?", "none")
    };
    history_builder.run_as_ann(Command::AddTask {
        task: report,
        assign: Some(agent_named("bob")),
        how: AssignMode::Queue,
    });
    let grant = history_builder.poll("bob", true);
    history_builder.run_as_daemon(Command::ReportExited {
        attempt: grant.attempt,
        token: grant.token,
        exit: ProgramExit::Done {
            output: Some("Nothing.\n".into()),
        },
    });
    history_builder.report_verdict(&grant, passed_verdict(&[]));
}

/// A question and a mission by message. At first another agent holds the claim for answering.
fn add_leads(history_builder: &mut HistoryBuilder) {
    let held = match history_builder.acquire("bob", "respond://docs-dev", 0) {
        Acquired::Granted { claim, token, .. } => (claim, token),
        other => panic!("{other:?}"),
    };
    for text in ["!q \"why\"?", "!mission Add ümlauts"] {
        let channel = ChannelName::new("docs").unwrap();
        let post = PostMessage {
            channel,
            text: text.into(),
            labels: vec![],
            reply_to: None,
        };
        history_builder.run_as_ann(Command::Post(post));
        let events = &history_builder.steps.last().unwrap().batch.events;
        let posted = events.iter().find_map(|event| match &event.event {
            Event::MessagePosted(message_posted) => Some(message_posted.message().clone()),
            _ => None,
        });
        history_builder.run_as_daemon(Command::Route {
            project: project_named("docs"),
            message: Box::new(posted.unwrap()),
        });
    }
    history_builder.run(
        &Actor::Agent(agent_named("bob")),
        None,
        Command::Release {
            claim: held.0,
            token: held.1,
        },
    );
    assert!(history_builder.board.missions.values().any(|mission| {
        mission
            .lead
            .as_ref()
            .is_some_and(|lead| lead.name.is_some())
    }));
}

/// A mission in which two tasks share a file. One agent worked outside its workspace.
fn add_isolation_breach(history_builder: &mut HistoryBuilder) {
    let planned = |subject: &str| PlannedTask {
        task: new_task("shop", subject, "shared"),
        after: vec![],
        assign: None,
    };
    let mission = mission::StartMission {
        project: project_named("shop"),
        title: "Third".into(),
        agents: vec![agent_named("ann")],
        team: None,
        max_workers: 4,
        mode: mission::StartMode::Flow,
        isolate: true,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let tasks = vec![planned("left"), planned("right")];
    history_builder.run(
        &person("ann"),
        Some("Third"),
        Command::StartMission {
            mission,
            tasks,
            adopt: vec![],
        },
    );
    let poll = PollRequest {
        agent: agent_named("ann"),
        project: None,
        mission: Some(MissionId(3)),
        task: None,
        lease_ms: None,
        no_workspace: false,
        by_hand: false,
    };
    let facts = Box::<start_gates::StartFacts>::default();
    let got = history_builder.run(
        &Actor::Regatta,
        None,
        Command::PollSupervised { poll, facts },
    );
    let CommandOutcome::Polled(Some(grant)) = got else {
        panic!("{got:?}")
    };
    let (attempt, token) = (grant.attempt, grant.token);
    history_builder.run_as_daemon(Command::ReportIsolationBreach {
        attempt,
        token,
        sign: IsolationBreach::NoWorkspace,
    });
    history_builder.run_as_ann(Command::CancelTask {
        task: grant.task,
        reason: "enough".into(),
    });
    history_builder.run_as_ann(Command::CancelTask {
        task: TaskId(grant.task.0 + 1),
        reason: "enough".into(),
    });
    history_builder.run_as_daemon(Command::ReportExited {
        attempt,
        token,
        exit: ProgramExit::Lost,
    });
}

fn add_claims(history_builder: &mut HistoryBuilder) {
    let held = history_builder.acquire("ann", "file://docs/**", 0);
    let Acquired::Granted { claim, token, .. } = held else {
        panic!()
    };
    history_builder.run_as_ann(Command::Renew { claim, token });
    history_builder.acquire("bob", "file://docs/a.md", 5_000);
    history_builder.run_as_daemon(Command::CancelWait { wait: WaitId(1) });
    history_builder.acquire("bob", "file://docs/b.md", 5_000);
    history_builder.release(&held);
    history_builder.acquire("ann", "port://8080", 0);
    history_builder.acquire("bob", "port://8080", 3_600_000);
}

fn add_messages(history_builder: &mut HistoryBuilder) {
    let bob = || Actor::Agent(agent_named("bob"));
    history_builder.post(person("ann"), "general", "Hello @bob, and you, @ann", &[]);
    history_builder.post(bob(), "general", "@ann yes", &["task", "coord:merge"]);
    history_builder.post(bob(), "@ann", "a word in private", &["task"]);
    history_builder.post(
        Actor::Regatta,
        "shop",
        "It is late, @bob.",
        &["task", "task"],
    );
    for nth in 0..5 {
        history_builder.post(
            person("ann"),
            "shop",
            &format!("number {nth}, ümlaut \u{1F6A3} \0 @bob"),
            &["count"],
        );
    }
    let (channel, read) = (
        ChannelName::new("general").unwrap(),
        regatta_core::ids::MessageId(2),
    );
    history_builder.run(
        &bob(),
        None,
        Command::MarkRead {
            agent: agent_named("bob"),
            channel,
            read,
        },
    );
    // A thread: two replies to the first message, and one with a file to the first reply.
    let first = MessageId(1);
    for (reply_to, text) in [
        (first, "hello yourself"),
        (first, "the NUMBER is yes"),
        (MessageId(10), "so be it"),
    ] {
        let channel = ChannelName::new("general").unwrap();
        let post = PostMessage {
            channel,
            text: text.into(),
            labels: vec![],
            reply_to: Some(reply_to),
        };
        let file = Attachment {
            name: "a.txt".into(),
            bytes: 3,
            sha256: "0".repeat(64),
        };
        let extra = PostContext {
            thread: Some(first),
            attachments: vec![file],
            firing: None,
        };
        history_builder.run(&bob(), None, Command::PostWith { post, extra });
    }
}

/// A hook that fires, waits for its claim, is paused and removed. Another hook stays, with a
/// running command.
fn add_hooks(history_builder: &mut HistoryBuilder) {
    let add = |prefix: &str, claim: Option<&str>| hook::AddHook {
        project: Some(project_named("shop")),
        agent: None,
        trigger: hook::HookTrigger::Message {
            channel: Some(ChannelName::new("shop").unwrap()),
            label: None,
            mention: None,
            prefix: Some(prefix.into()),
        },
        when: hook::HookConditions {
            claim: claim.map(|claim| Uri::new(claim).unwrap()),
            ..hook::HookConditions::default()
        },
        action: hook::HookAction::Run {
            argv: vec!["echo".into(), "hi".into()],
            cwd: "/".into(),
        },
        priority: 2,
        timeout_ms: None,
        sandbox: None,
    };
    history_builder.run_as_ann(Command::AddHook(Box::new(add(
        "!go",
        Some("respond://shop-dev"),
    ))));
    history_builder.post(person("ann"), "shop", "!go once", &[]);
    history_builder.post(person("ann"), "shop", "!go twice", &[]);
    let firing = *history_builder
        .board
        .firings
        .keys()
        .next()
        .expect("it fired");
    let (ended, output) = (hook::FiringEnd::Exited(0), "hi\n".to_owned());
    history_builder.run_as_daemon(Command::ReportHook {
        firing,
        ended: ended.clone(),
        output: output.clone(),
        sandbox_description: None,
    });
    let firing = *history_builder
        .board
        .firings
        .keys()
        .next()
        .expect("the hook fired for the waiting message");
    history_builder.run_as_daemon(Command::ReportHook {
        firing,
        ended,
        output,
        sandbox_description: None,
    });
    history_builder.run_as_ann(Command::PauseHook {
        hook: HookId(1),
        reason: "for now".into(),
    });
    history_builder.run_as_ann(Command::ResumeHook { hook: HookId(1) });
    let mut stays = add("!stay", None);
    stays.when.cooldown_ms = Some(60_000);
    history_builder.run_as_ann(Command::AddHook(Box::new(stays)));
    history_builder.post(person("ann"), "shop", "!stay", &[]);
    history_builder.post(person("ann"), "shop", "!stay again", &[]);
    history_builder.run_as_ann(Command::RemoveHook { hook: HookId(1) });
}

/// A program that reports everything that can be reported, has to wait, costs money and reaches a
/// limit.
fn add_sessions(history_builder: &mut HistoryBuilder) {
    let matter = policy::RuleSubject {
        command: Some("rm *".into()),
        ..policy::RuleSubject::default()
    };
    history_builder.run_as_ann(Command::AddRule {
        scope: policy::RuleScope::All,
        effect: policy::RuleEffect::Deny,
        subject: matter,
    });
    let ceiling = budget::Ceiling {
        tokens: Some(1_000),
        ..budget::Ceiling::default()
    };
    history_builder.run_as_ann(Command::SetBudget {
        scope: budget::BudgetScope::Attempt,
        ceiling,
    });
    history_builder.run_as_ann(Command::SetBudget {
        scope: budget::BudgetScope::Day,
        ceiling: budget::Ceiling {
            turns: Some(500),
            wall_ms: Some(u64::MAX / 2),
            ..ceiling
        },
    });
    history_builder.run_as_ann(Command::AddTask {
        task: new_task("shop", "Talk", "x/talk"),
        assign: Some(agent_named("bob")),
        how: AssignMode::Direct,
    });
    let task = TaskId(history_builder.board.counters.task);
    history_builder.run_as_ann(Command::Tell {
        task,
        text: "before it begins".into(),
    });
    let grant = history_builder.poll("bob", true);
    let mut n = 0;
    let mut says = |history_builder: &mut HistoryBuilder, grant: &PollGrant, said: AgentEvent| {
        n += 1;
        history_builder.run_as_daemon(Command::ReportAgentEvent {
            attempt: grant.attempt,
            token: grant.token,
            n,
            event: said,
        });
    };
    let (sandbox, warnings) = (Some("in a box".to_owned()), vec!["a small one".to_owned()]);
    history_builder.run_as_daemon(Command::ReportLaunched {
        attempt: grant.attempt,
        token: grant.token,
        sandbox,
        warnings,
    });
    let taken = history_builder.board.attempts[&grant.attempt].ports.clone();
    history_builder.run_as_daemon(Command::ReportPortsTaken {
        attempt: grant.attempt,
        token: grant.token,
        taken,
    });
    let noted = Some("what it did".to_owned());
    history_builder.run_as_ann(Command::Finish {
        task,
        attempt: grant.attempt,
        token: grant.token,
        output: noted,
        not_needed: false,
        learnings: vec![],
    });
    says(
        history_builder,
        &grant,
        AgentEvent::Started {
            session: Some("s-1".into()),
            model: None,
        },
    );
    says(history_builder, &grant, AgentEvent::TurnStarted { n: 0 });
    let used = Usage {
        input: 800,
        output: 50,
        micro_usd: Some(1_234),
        ..Usage::default()
    };
    says(
        history_builder,
        &grant,
        AgentEvent::Usage {
            session: None,
            usage: used,
        },
    );
    for (id, path) in [("1", "/etc/x"), ("2", "/etc/y"), ("3", "src/z")] {
        let tool = ToolCall {
            kind: ToolKind::Execute,
            command: Some("cp a b".into()),
            paths: vec![path.into()],
            ..ToolCall::default()
        };
        says(
            history_builder,
            &grant,
            AgentEvent::RequestMade(AgentRequest {
                id: id.into(),
                content: RequestContent::Permission {
                    tool,
                    options: vec![],
                },
            }),
        );
    }
    history_builder.advance(61 * 60_000); // the requests are escalated, and one is snoozed
    history_builder.run_as_daemon(Command::Tick);
    history_builder.run_as_ann(Command::Snooze {
        item: InboxItem::Approval(ApprovalId(1)),
        ms: Some(60_000),
    });
    history_builder.run_as_ann(Command::Decide {
        approval: ApprovalId(1),
        answer: RequestAnswer::Deny { reason: None },
        scope: AnswerScope::Once,
        also: vec![],
    });
    says(
        history_builder,
        &grant,
        AgentEvent::RequestWithdrawn {
            request: "2".into(),
        },
    );
    history_builder.run_as_ann(Command::Tell {
        task,
        text: "and then this".into(),
    });
    history_builder.run_as_ann(Command::PauseTask {
        task,
        reason: "a moment".into(),
    });
    history_builder.run_as_ann(Command::ResumeTask { task });
    let end = |class| AgentEvent::TurnEnded {
        stop: StopReason::Error,
        class,
        detail: "it broke".into(),
    };
    says(history_builder, &grant, end(Some(FailureClass::RateLimit)));
    let failed = |class| ProgramExit::Failed {
        reason: "a limit".into(),
        class: Some(class),
    };
    history_builder.run_as_daemon(Command::ReportExited {
        attempt: grant.attempt,
        token: grant.token,
        exit: failed(FailureClass::RateLimit),
    });
    history_builder.advance(61_000);
    history_builder.run_as_daemon(Command::Tick);
    // The session continues until its context is nearly full, writes a summary, and is replaced by
    // a new session.
    let grant = history_builder.poll("bob", true);
    says(
        history_builder,
        &grant,
        AgentEvent::Started {
            session: Some("s-2".into()),
            model: None,
        },
    );
    says(history_builder, &grant, AgentEvent::TurnStarted { n: 0 });
    history_builder.run_as_ann(Command::Tell {
        task,
        text: "one thing more".into(),
    });
    says(
        history_builder,
        &grant,
        AgentEvent::Context {
            used: 90,
            size: 100,
        },
    );
    says(
        history_builder,
        &grant,
        AgentEvent::TurnEnded {
            stop: StopReason::EndTurn,
            class: None,
            detail: String::new(),
        },
    );
    says(history_builder, &grant, AgentEvent::TurnStarted { n: 1 });
    says(
        history_builder,
        &grant,
        AgentEvent::TurnEnded {
            stop: StopReason::EndTurn,
            class: None,
            detail: "so far".into(),
        },
    );
    history_builder.run_as_daemon(Command::ReportExited {
        attempt: grant.attempt,
        token: grant.token,
        exit: ProgramExit::Lost,
    });
    // The new session breaks off, waits for its retry, and ends with a rule and a budget of its
    // own.
    let grant = history_builder.poll("bob", true);
    history_builder.run_as_daemon(Command::ReportExited {
        attempt: grant.attempt,
        token: grant.token,
        exit: failed(FailureClass::Overloaded),
    });
    history_builder.advance(2_001);
    history_builder.run_as_daemon(Command::Tick);
    let matter = policy::RuleSubject {
        path: Some("/tmp/*".into()),
        ..policy::RuleSubject::default()
    };
    history_builder.run_as_ann(Command::AddRule {
        scope: policy::RuleScope::Task(task),
        effect: policy::RuleEffect::Allow,
        subject: matter,
    });
    history_builder.run_as_ann(Command::SetBudget {
        scope: budget::BudgetScope::Task(task),
        ceiling,
    });
    history_builder.run_as_ann(Command::CancelTask {
        task,
        reason: "enough".into(),
    });
}

/// Runners register, work, leave and are forgotten; one runner stays.
fn add_runners(history_builder: &mut HistoryBuilder) {
    for name in ["box", "big"] {
        let runner = RunnerName::new(name).unwrap();
        let labels = vec!["gpu".into()];
        let ask = runner::RegisterRunner {
            name: runner.clone(),
            identity: format!("{name}-1"),
            token: "boxes".into(),
            labels,
            agents: vec![agent_named("ann")],
            max_tasks: 4,
            version: "0.1".into(),
        };
        let CommandOutcome::Runner { session } =
            history_builder.run_as_daemon(Command::RegisterRunner(ask))
        else {
            panic!("no session")
        };
        history_builder.advance(1_000);
        history_builder.run_as_daemon(Command::BeatRunner {
            runner: runner.clone(),
            session,
        });
        history_builder.run_as_ann(Command::DrainRunner {
            runner: runner.clone(),
            reason: "an update".into(),
        });
        history_builder.run_as_daemon(Command::LeaveRunner { runner, session });
    }
    history_builder.run_as_ann(Command::RemoveRunner {
        runner: RunnerName::new("box").unwrap(),
    });
}

/// An agent continues without an answer, states its assumption, and reads the answer later.
fn add_assumption(teller: &mut HistoryBuilder) {
    let task = new_task("shop", "Assumes", "x/assumes");
    teller.run_as_ann(Command::AddTask {
        task,
        assign: Some(agent_named("ann")),
        how: AssignMode::Direct,
    });
    let PollGrant {
        task,
        attempt,
        token,
        ..
    } = teller.poll("ann", true);
    let want = RequestContent::Question {
        text: "Tea?".into(),
        choices: vec![],
        schema: None,
    };
    let said = AgentEvent::RequestMade(AgentRequest {
        id: "tea".into(),
        content: want,
    });
    teller.run_as_daemon(Command::ReportAgentEvent {
        attempt,
        token,
        n: 1,
        event: said,
    });
    let approval = ApprovalId(teller.board.counters.approval);
    teller.run_as_ann(Command::ContinueWithoutAnswer {
        task,
        attempt,
        token,
        approval,
        assumed: "coffee".into(),
    });
    let answer = RequestAnswer::Text { text: "tea".into() };
    teller.run_as_ann(Command::Decide {
        approval,
        answer,
        scope: AnswerScope::Once,
        also: vec![],
    });
    teller.run_as_ann(Command::MarkAnswerRead { attempt, approval });
    teller.run_as_ann(Command::CancelTask {
        task,
        reason: "a story".into(),
    });
}

/// Leaves a live entity of every kind.
fn add_live_state(history_builder: &mut HistoryBuilder) {
    add_runners(history_builder);
    add_assumption(history_builder);
    history_builder.run_as_ann(Command::AddTask {
        task: new_task("shop", "Asks", "x/asks"),
        assign: Some(agent_named("bob")),
        how: AssignMode::Direct,
    });
    let asking = history_builder.poll("bob", true);
    let question = RequestContent::Question {
        text: "Which?".into(),
        choices: vec!["a".into()],
        schema: Some("{}".into()),
    };
    let said = AgentEvent::RequestMade(AgentRequest {
        id: "q".into(),
        content: question,
    });
    history_builder.run_as_daemon(Command::ReportAgentEvent {
        attempt: asking.attempt,
        token: asking.token,
        n: 1,
        event: said,
    });
    history_builder.run_as_ann(Command::AddTask {
        task: new_task("shop", "Broken", "x/broken"),
        assign: Some(agent_named("ann")),
        how: AssignMode::Direct,
    });
    let broken = history_builder.poll("ann", true);
    let (attempt, token, half) = (
        broken.attempt,
        broken.token,
        history_builder.board.limits.silence_ms / 2,
    );
    history_builder.run_as_daemon(Command::ReportSilent {
        attempt,
        token,
        since_ms: Some(half),
    });
    history_builder.run_as_ann(Command::Snooze {
        item: InboxItem::Attempt(attempt),
        ms: Some(60_000),
    });
    history_builder.run_as_daemon(Command::ReportSilent {
        attempt,
        token,
        since_ms: None,
    });
    let how = ProgramExit::Failed {
        reason: "not signed in".into(),
        class: Some(FailureClass::Auth),
    };
    history_builder.run_as_daemon(Command::ReportExited {
        attempt: broken.attempt,
        token: broken.token,
        exit: how,
    });
    history_builder.run_as_ann(Command::Snooze {
        item: InboxItem::Agent(agent_named("ann")),
        ms: Some(60_000),
    });
    history_builder.run_as_ann(Command::ResumeAgent {
        agent: agent_named("ann"),
    });
    history_builder.run_as_ann(Command::CancelTask {
        task: broken.task,
        reason: "enough".into(),
    });
    history_builder.run_as_ann(Command::AddTask {
        task: new_task("shop", "Offered", "x/offered"),
        assign: Some(agent_named("bob")),
        how: AssignMode::Offer,
    });
    history_builder.run_as_ann(Command::AddTask {
        task: AddTask {
            backlog: true,
            ..new_task("docs", "Someday", "x/someday")
        },
        assign: None,
        how: AssignMode::Direct,
    });
    // This failed task is undecided, and a person snoozed it.
    history_builder.run_as_ann(Command::AddTask {
        task: new_task("shop", "Fails", "x/f"),
        assign: Some(agent_named("ann")),
        how: AssignMode::Direct,
    });
    let PollGrant {
        task,
        attempt,
        token,
        ..
    } = history_builder.poll("ann", false);
    history_builder.run_as_ann(Command::GiveUp {
        task,
        attempt,
        token,
        reason: Some("too hard".into()),
    });
    history_builder.run_as_ann(Command::Snooze {
        item: InboxItem::Task(task),
        ms: Some(3_600_000),
    });
    history_builder.run_as_ann(Command::AddTask {
        task: new_task("shop", "Cancelled", "x/c"),
        assign: None,
        how: AssignMode::Direct,
    });
    history_builder.run_as_ann(Command::CancelTask {
        task: TaskId(history_builder.board.counters.task),
        reason: "never mind".into(),
    });
    history_builder.run(
        &person("ann"),
        Some("add-2"),
        Command::AddTask {
            task: new_task("shop", "Landing", "x/l"),
            assign: Some(agent_named("ann")),
            how: AssignMode::Direct,
        },
    );
    let grant = history_builder.poll("ann", true);
    history_builder.submit(&grant, "x/l");
    history_builder.poll("bob", false);
    history_builder.acquire("ann", "port://9090", 0);
    history_builder.acquire("bob", "port://9090", 3_600_000);
    history_builder.run_as_daemon(Command::Tick);
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
        changed: changed
            .iter()
            .map(|changed| (*changed).to_owned())
            .collect(),
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
