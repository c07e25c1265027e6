//! A history with every kind of event, made by real commands.

use std::collections::BTreeMap;

use regatta_core::approval::Reach;
use regatta_core::attempt::{Exited, Findings, Verdict, WorkResult};
use regatta_core::board::Board;
use regatta_core::bus::{Attachment, Extra, Post};
use regatta_core::claim::{Acquire, Acquired, Mode, Owner};
use regatta_core::command::{Actor, Command, Outcome, PlannedTask, Request, decide};
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::event::Event;
use regatta_core::fleet::Limits;
use regatta_core::ids::{
    AgentName, ApprovalId, BranchName, ChannelName, CommitId, HookId, LandingId, MessageId, MissionId, Now,
    ProjectName, RequestKey, RunnerName, TaskId, WaitId,
};
use regatta_core::inbox::Item;
use regatta_core::isolation::Sign;
use regatta_core::landing::guard::{FileKind, SpecialFile};
use regatta_core::landing::join::Diverged;
use regatta_core::landing::trunk_check::{self, TrunkCommit, TrunkSeen};
use regatta_core::landing::{Moved, Tried};
use regatta_core::pattern::{PathPattern, Uri};
use regatta_core::schedule::{Grant, Poll};
use regatta_core::scope::Finding;
use regatta_core::session::{Answer, Ask, Class, Said, Stop, Tool, ToolKind, Usage, Want};
use regatta_core::task::{Add, Edit, Expects, How, IssueType};
use regatta_core::{agent, budget, gates, hook, mission, policy, project, radar, runner, task};
use regatta_engine::ports::store::Batch;

/// One commit, and the state that must hold after it.
#[derive(Clone, Debug)]
pub struct Step {
    pub batch: Batch,
    pub board: Board,
    pub outbox: Vec<(EffectKey, Effect)>,
}

/// Builds the history, one command at a time.
#[derive(Debug, Default)]
pub struct Teller {
    pub board: Board,
    pub now: Now,
    pub steps: Vec<Step>,
    /// The granted request of each step, with the time of its decision.
    pub requests: Vec<(Request, Now)>,
    outbox: BTreeMap<EffectKey, Effect>,
}

impl Teller {
    /// Executes a request, which must be granted, and keeps the commit.
    pub fn tell(&mut self, by: &Actor, key: Option<&str>, command: Command) -> Outcome {
        self.now = Now { at: self.now.at + 7, wall: self.now.wall + 7 };
        let request = Request { by: by.clone(), key: key.map(|it| RequestKey::new(it).unwrap()), command };
        let done = decide(&self.board, &request, self.now)
            .unwrap_or_else(|why| panic!("{:?}: {}", request.command, why.message()));
        // Every third commit removes the oldest effects, as the reports of an engine would.
        let most = if self.steps.len() % 3 == 2 { self.outbox.len() / 2 } else { 0 };
        let performed: Vec<EffectKey> = self.outbox.keys().take(most).copied().collect();
        for key in &performed {
            self.outbox.remove(key);
        }
        self.outbox.extend(done.effects.iter().cloned());
        let batch = Batch {
            after: self.board.revision,
            meta: done.board.meta(),
            events: done.events,
            rows: done.rows,
            effects: done.effects,
            performed,
        };
        self.board = done.board.clone();
        let outbox = self.outbox.iter().map(|(key, effect)| (*key, effect.clone())).collect();
        self.steps.push(Step { batch, board: done.board, outbox });
        self.requests.push((request, self.now));
        done.outcome
    }

    pub(super) fn shell(&mut self, command: Command) -> Outcome {
        self.tell(&Actor::Regatta, None, command)
    }

    pub(super) fn ann(&mut self, command: Command) -> Outcome {
        self.tell(&person("ann"), None, command)
    }

    fn later(&mut self, ms: u64) {
        self.now = Now { at: self.now.at + ms, wall: self.now.wall + ms };
        self.shell(Command::Tick);
    }

    fn poll(&mut self, who: &str, supervised: bool) -> Grant {
        let ask = Poll { by_hand: !supervised, ..Poll::of(agent(who)) };
        let command =
            if supervised { Command::PollSupervised { poll: ask, facts: Box::default() } } else { Command::Poll(ask) };
        match self.tell(&Actor::Agent(agent(who)), None, command) {
            Outcome::Polled(Some(grant)) => grant,
            other => panic!("{who} got {other:?}"),
        }
    }

    fn acquire(&mut self, who: &str, uri: &str, wait_ms: u64) -> Acquired {
        let uris = vec![Uri::new(uri).unwrap()];
        let ask = Acquire {
            owner: Owner::Agent(agent(who)),
            uris,
            mode: Mode::Exclusive,
            ttl_ms: 60_000,
            wait_ms,
            memo: "mine".into(),
        };
        match self.tell(&Actor::Agent(agent(who)), None, Command::Acquire(ask)) {
            Outcome::Claim(it) => it,
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, held: &Acquired) {
        let Acquired::Granted { claim, token, .. } = held else { panic!("{held:?} is not held") };
        self.ann(Command::Release { claim: *claim, token: *token });
    }

    fn post(&mut self, by: Actor, channel: &str, text: &str, labels: &[&str]) {
        let labels = labels.iter().map(|it| regatta_core::ids::Label::new(it).unwrap()).collect();
        self.tell(
            &by,
            None,
            Command::Post(Post {
                channel: ChannelName::new(channel).unwrap(),
                text: text.into(),
                labels,
                reply_to: None,
            }),
        );
    }

    fn judge(&mut self, grant: &Grant, verdict: Verdict) -> Option<LandingId> {
        match self.shell(Command::ReportJudged {
            attempt: grant.attempt,
            token: grant.token,
            verdict,
            findings: found_by_the_way(),
        }) {
            Outcome::Judged { landing } => landing,
            other => panic!("{other:?}"),
        }
    }

    /// Completes a supervised attempt and passes its work into the landing queue.
    fn submit(&mut self, grant: &Grant, changed: &str) -> LandingId {
        self.shell(Command::ReportExited {
            attempt: grant.attempt,
            token: grant.token,
            how: Exited::Done { output: Some("done".into()) },
        });
        self.judge(grant, passed(&[changed])).expect("the attempt changed something")
    }

    fn moved(&mut self, landing: LandingId, found: Moved) {
        let regatta_core::landing::State::Moving { fence, .. } = self.board.landings[&landing].state else {
            panic!("the landing does not move the trunk")
        };
        self.shell(Command::ReportMoved { landing, fence, found });
    }
}

/// Returns findings beside a verdict.
fn found_by_the_way() -> Findings {
    let result = WorkResult { detail: "done".into(), learnings: vec!["read first".into()], ..WorkResult::default() };
    Findings {
        result: Some(result),
        outside: vec!["README".into()],
        said: vec![Finding { finding: "a bug next door".into(), suggested_files: vec!["b".into()] }],
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
pub fn everything() -> Vec<Step> {
    told().steps
}

/// Returns the requests that make [`everything`], with the time of each.
pub fn every_request() -> Vec<(Request, Now)> {
    told().requests
}

fn told() -> Teller {
    let mut it = Teller::default();
    people_and_projects(&mut it);
    a_task_from_outside(&mut it);
    a_task_with_troubles(&mut it);
    missions(&mut it);
    claims(&mut it);
    talk(&mut it);
    hooks(&mut it);
    agents_that_talk(&mut it);
    a_queue(&mut it);
    // A day later all leases have expired and the first answers are forgotten.
    it.later(25 * 3_600_000);
    it.shell(Command::Resume { pid: 2 });
    leads(&mut it);
    super::teams::teams(&mut it);
    super::conversations::conversations(&mut it);
    what_stays(&mut it);
    it
}

fn people_and_projects(it: &mut Teller) {
    it.now = Now { at: 1_000, wall: 1_700_000_000_000 };
    it.shell(Command::Resume { pid: 1 });
    it.ann(Command::SetLimits { limits: Limits { max_attempts: 20, ..Limits::default() } });
    for (name, validation) in
        [("shop", vec![]), ("shop", vec!["make test".to_owned()]), ("docs", vec![]), ("gone", vec![])]
    {
        it.ann(Command::AddProject(project::Add {
            name: project(name),
            location: format!("/src/{name}"),
            trunk: BranchName::new("main").unwrap(),
            validation,
            validation_timeout_ms: 60_000,
            settings: project::Settings {
                workspace: project::Workspace { ports: 1, ..project::Workspace::default() },
                ..project::Settings::default()
            },
        }));
    }
    it.ann(Command::RemoveProject(project::Remove { name: project("gone") }));
    let command = agent::Runtime::Command { argv: vec!["claude".into(), "--print".into()] };
    for (name, runtime) in
        [("ann", agent::Runtime::Outside), ("bob", agent::Runtime::Scripted), ("shop-dev/cy", command)]
    {
        let role = if name == "ann" { agent::Role::Lead } else { agent::Role::Worker };
        let description = "“quotes”, \"quotes\" and ümlauts\n".to_owned();
        it.ann(Command::RegisterAgent(agent::Register {
            name: agent(name),
            runtime,
            role,
            provider: None,
            profile: regatta_core::agent::Profile::default(),
            description,
            max_tasks: 5,
        }));
    }
    it.ann(Command::RemoveAgent { agent: agent("shop-dev/cy") });
}

/// An outside agent accepts an offered task and works on it, and the work lands.
fn a_task_from_outside(it: &mut Teller) {
    it.tell(
        &person("ann"),
        Some("add-1"),
        Command::AddTask { task: add("shop", "Trouble", "src/a.rs"), assign: None, how: How::Direct },
    );
    it.ann(Command::AddTask { task: add("shop", "Ease", "src/b.rs"), assign: Some(agent("ann")), how: How::Offer });
    it.ann(Command::AnswerOffer { task: TaskId(2), agent: agent("ann"), accept: true });
    it.ann(Command::EditTask { task: TaskId(1), edit: Edit { priority: Some(1), ..Edit::default() } });
    let grant = it.poll("ann", false);
    assert_eq!(grant.task, TaskId(2));
    let (task, attempt, token) = (grant.task, grant.attempt, grant.token);
    it.ann(Command::Progress { task, attempt, token, text: "half way".into() });
    let found = vec![radar::Found { one: attempt, other: None, paths: vec!["src/b.rs".into()] }];
    it.shell(Command::ReportCollisions { project: project("shop"), found });
    it.ann(Command::Finish { task, attempt, token, output: None, not_needed: false, learnings: vec![] });
    let landing = it.judge(&grant, passed(&["src/b.rs"])).expect("the attempt changed something");
    it.shell(Command::ReportTried { landing, found: Tried::Held { at: None, reason: "no room on the disk".into() } });
    it.later(60_000);
    it.shell(Command::ReportTried {
        landing,
        found: Tried::Passed { old: commit('1'), new: commit('2'), carries: vec![] },
    });
    it.moved(landing, Moved::Moved);
}

/// A task that is stopped, fails, conflicts, needs a person, waits for the trunk, and finally
/// lands.
fn a_task_with_troubles(it: &mut Teller) {
    let grant = it.poll("bob", true);
    it.ann(Command::StopTask { task: TaskId(1), reason: "not now".into(), pause: false });
    it.shell(Command::ReportExited { attempt: grant.attempt, token: grant.token, how: Exited::Lost });
    let grant = it.poll("bob", true);
    it.shell(Command::ReportExited { attempt: grant.attempt, token: grant.token, how: Exited::Done { output: None } });
    it.judge(&grant, Verdict::Failed { reason: "make test: 2 failed".into() });
    let grant = it.poll("bob", true);
    let at = it.submit(&grant, "src/a.rs");
    it.shell(Command::ReportTried {
        landing: at,
        found: Tried::Conflict { at, paths: vec!["src/a.rs".into()], kinds: vec![] },
    });
    // All fix-ups fail, with one more try for a flaky check.
    while it.board.tasks[&TaskId(1)].status.is_waiting() {
        let grant = it.poll("bob", true);
        let landing = it.submit(&grant, "src/a.rs");
        for _ in 0..2 {
            it.shell(Command::ReportTried {
                landing,
                found: Tried::Red { reason: "make test".into(), output: None, settled: vec![] },
            });
        }
    }
    it.ann(Command::Land { task: TaskId(1), first: true });
    let landing = *it.board.landings.keys().next().expect("the landing is queued again");
    let trunk = it.acquire("ann", "workspace://shop/default", 0);
    it.shell(Command::ReportTried {
        landing,
        found: Tried::Passed { old: commit('2'), new: commit('3'), carries: vec![] },
    });
    it.release(&trunk);
    it.moved(landing, Moved::Elsewhere);
    it.shell(Command::ReportTried { landing, found: Tried::AlreadyThere { tip: commit('4'), landed_as: vec![] } });
}

/// A queue is held. One of two landings conflicts with the other. A third landing is reviewed and
/// revised.
fn a_queue(it: &mut Teller) {
    it.ann(Command::HoldQueue { project: project("shop"), reason: "a release".into() });
    let mut landings = Vec::new();
    for (subject, file) in [("Up", "queue/up"), ("Down", "queue/down"), ("Attributes", ".gitattributes")] {
        it.ann(Command::AddTask { task: add("shop", subject, file), assign: Some(agent("ann")), how: How::Queue });
        let grant = it.poll("ann", false);
        let (task, attempt, token) = (grant.task, grant.attempt, grant.token);
        it.ann(Command::Finish { task, attempt, token, output: None, not_needed: false, learnings: vec![] });
        match it.judge(&grant, passed(&[file])) {
            Some(landing) => landings.push(landing),
            None => {
                it.ann(Command::Revise { task, text: "without the attributes".into() });
                it.ann(Command::CancelTask { task, reason: "not at all, then".into() });
            }
        }
    }
    it.ann(Command::ReleaseQueue { project: project("shop") });
    let (first, last) = (landings[0], landings[1]);
    let conflict = Tried::Conflict { at: last, paths: vec!["queue/down".into()], kinds: vec![] };
    it.shell(Command::ReportTried { landing: last, found: conflict });
    it.shell(Command::ReportTried { landing: first, found: Tried::RedStep { reason: "make test".into() } });
    for (landing, old, new) in [(first, '4', '5'), (last, '5', '6')] {
        let found = Tried::Passed { old: commit(old), new: commit(new), carries: vec![] };
        it.shell(Command::ReportTried { landing, found });
        it.moved(landing, Moved::Moved);
    }
    what_a_remote_has(it);
}

/// A push fails, because the remote has other commits. Joining them conflicts at first, and finally
/// the trunk is pushed.
fn what_a_remote_has(it: &mut Teller) {
    let pushed = |trouble: Option<&str>| Command::ReportPushed {
        project: project("shop"),
        remote: "origin".into(),
        commit: commit('6'),
        trouble: trouble.map(str::to_owned),
    };
    it.shell(pushed(Some("no route to host")));
    let found = Diverged { remote: "origin".into(), tip: commit('7'), changed: vec!["queue/up".into()] };
    it.shell(Command::ReportDiverged { project: project("shop"), commit: commit('6'), found });
    let joining = |it: &Teller| it.board.landings.values().find(|it| it.submission.joins.is_some()).cloned();
    let landing = joining(it).expect("the join is queued");
    it.shell(Command::ReportTried {
        landing: landing.id,
        found: Tried::Conflict { at: landing.id, paths: vec!["queue/up".into()], kinds: vec![] },
    });
    it.ann(Command::Land { task: landing.task, first: false });
    let landing = joining(it).expect("the join is queued again").id;
    it.shell(Command::ReportTried { landing, found: Tried::AlreadyThere { tip: commit('7'), landed_as: vec![] } });
    it.shell(pushed(None));
    a_reset_trunk(it);
}

/// A person resets the trunk past a landing and accepts the result.
fn a_reset_trunk(teller: &mut Teller) {
    let missing =
        TrunkCommit { commit: commit('6'), landing: Some(LandingId(1)), task: Some(TaskId(1)), subject: "Gone".into() };
    let recorded = trunk_check::recorded(&teller.board.projects[&project("shop")]);
    let seen = TrunkSeen { recorded, missing: vec![missing], added: vec![] };
    teller.shell(Command::ReportTrunk { project: project("shop"), seen });
    teller.ann(Command::AcceptTrunk { project: project("shop"), tip: Some(commit('5')) });
}

/// One mission is drained, resumed, and ends with a failed task. The other mission stays.
fn missions(it: &mut Teller) {
    for (title, mode) in [("First", mission::Mode::Flow), ("Second", mission::Mode::Waves)] {
        let planned = |subject: &str, after: Vec<usize>| PlannedTask {
            task: add("shop", subject, &format!("{title}/{subject}")),
            after,
            assign: None,
        };
        let tasks = vec![planned("one", vec![]), planned("two", vec![0])];
        let mission = mission::Start {
            project: project("shop"),
            title: title.into(),
            agents: vec![agent("ann"), agent("bob")],
            team: None,
            max_workers: 4,
            mode,
            isolate: mode == mission::Mode::Waves,
            wave_commits: false,
            serial: vec![PathPattern::new("tests/**").unwrap()],
            budget: Default::default(),
        };
        it.tell(&person("ann"), Some(title), Command::StartMission { mission, tasks, adopt: vec![] });
    }
    let poll = Poll {
        agent: agent("ann"),
        project: None,
        mission: Some(MissionId(2)),
        task: None,
        lease_ms: None,
        bare: false,
        by_hand: false,
    };
    let facts = Box::new(gates::Facts { disk_mb: Some(1), ..gates::Facts::default() });
    it.tell(&Actor::Regatta, None, Command::PollSupervised { poll, facts });
    it.ann(Command::DrainMission { mission: MissionId(1) });
    strays(it);
    it.ann(Command::ResumeMission { mission: MissionId(1) });
    let grant = it.poll("ann", false);
    it.ann(Command::GiveUp {
        task: grant.task,
        attempt: grant.attempt,
        token: grant.token,
        reason: Some("too hard".into()),
    });
    it.ann(Command::Snooze { item: Item::Task(grant.task), ms: Some(60_000) });
    it.ann(Command::Dismiss { task: grant.task });
    it.ann(Command::CancelTask { task: TaskId(4), reason: "its blocker failed".into() });
    let report = Add { issue_type: IssueType::Docs, expects: Expects::Report, ..add("docs", "What is there?", "none") };
    it.ann(Command::AddTask { task: report, assign: Some(agent("bob")), how: How::Queue });
    let grant = it.poll("bob", true);
    it.shell(Command::ReportExited {
        attempt: grant.attempt,
        token: grant.token,
        how: Exited::Done { output: Some("Nothing.\n".into()) },
    });
    it.judge(&grant, passed(&[]));
}

/// A question and a mission by message. At first another agent holds the claim for answering.
fn leads(it: &mut Teller) {
    let held = match it.acquire("bob", "respond://docs-dev", 0) {
        Acquired::Granted { claim, token, .. } => (claim, token),
        other => panic!("{other:?}"),
    };
    for text in ["!q \"why\"?", "!mission Add ümlauts"] {
        let channel = ChannelName::new("docs").unwrap();
        let post = Post { channel, text: text.into(), labels: vec![], reply_to: None };
        it.ann(Command::Post(post));
        let events = &it.steps.last().unwrap().batch.events;
        let posted = events.iter().find_map(|it| match &it.event {
            Event::MessagePosted(it) => Some(it.message().clone()),
            _ => None,
        });
        it.shell(Command::Route { project: project("docs"), message: Box::new(posted.unwrap()) });
    }
    it.tell(&Actor::Agent(agent("bob")), None, Command::Release { claim: held.0, token: held.1 });
    assert!(it.board.missions.values().any(|it| it.lead.as_ref().is_some_and(|it| it.name.is_some())));
}

/// A mission in which two tasks share a file. One agent worked outside its workspace.
fn strays(it: &mut Teller) {
    let planned = |subject: &str| PlannedTask { task: add("shop", subject, "shared"), after: vec![], assign: None };
    let mission = mission::Start {
        project: project("shop"),
        title: "Third".into(),
        agents: vec![agent("ann")],
        team: None,
        max_workers: 4,
        mode: mission::Mode::Flow,
        isolate: true,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let tasks = vec![planned("left"), planned("right")];
    it.tell(&person("ann"), Some("Third"), Command::StartMission { mission, tasks, adopt: vec![] });
    let poll = Poll {
        agent: agent("ann"),
        project: None,
        mission: Some(MissionId(3)),
        task: None,
        lease_ms: None,
        bare: false,
        by_hand: false,
    };
    let facts = Box::<gates::Facts>::default();
    let got = it.tell(&Actor::Regatta, None, Command::PollSupervised { poll, facts });
    let Outcome::Polled(Some(grant)) = got else { panic!("{got:?}") };
    let (attempt, token) = (grant.attempt, grant.token);
    it.shell(Command::ReportDoubted { attempt, token, sign: Sign::NoWorkspace });
    it.ann(Command::CancelTask { task: grant.task, reason: "enough".into() });
    it.ann(Command::CancelTask { task: TaskId(grant.task.0 + 1), reason: "enough".into() });
    it.shell(Command::ReportExited { attempt, token, how: Exited::Lost });
}

fn claims(it: &mut Teller) {
    let held = it.acquire("ann", "file://docs/**", 0);
    let Acquired::Granted { claim, token, .. } = held else { panic!() };
    it.ann(Command::Renew { claim, token });
    it.acquire("bob", "file://docs/a.md", 5_000);
    it.shell(Command::CancelWait { wait: WaitId(1) });
    it.acquire("bob", "file://docs/b.md", 5_000);
    it.release(&held);
    it.acquire("ann", "port://8080", 0);
    it.acquire("bob", "port://8080", 3_600_000);
}

fn talk(it: &mut Teller) {
    let bob = || Actor::Agent(agent("bob"));
    it.post(person("ann"), "general", "Hello @bob, and you, @ann", &[]);
    it.post(bob(), "general", "@ann yes", &["task", "coord:merge"]);
    it.post(bob(), "@ann", "a word in private", &["task"]);
    it.post(Actor::Regatta, "shop", "It is late, @bob.", &["task", "task"]);
    for nth in 0..5 {
        it.post(person("ann"), "shop", &format!("number {nth}, ümlaut \u{1F6A3} \0 @bob"), &["count"]);
    }
    let (channel, read) = (ChannelName::new("general").unwrap(), regatta_core::ids::MessageId(2));
    it.tell(&bob(), None, Command::MarkRead { agent: agent("bob"), channel, read });
    // A thread: two replies to the first message, and one with a file to the first reply.
    let first = MessageId(1);
    for (reply_to, text) in [(first, "hello yourself"), (first, "the NUMBER is yes"), (MessageId(10), "so be it")] {
        let channel = ChannelName::new("general").unwrap();
        let post = Post { channel, text: text.into(), labels: vec![], reply_to: Some(reply_to) };
        let file = Attachment { name: "a.txt".into(), bytes: 3, sha256: "0".repeat(64) };
        let extra = Extra { thread: Some(first), attachments: vec![file], firing: None };
        it.tell(&bob(), None, Command::PostWith { post, extra });
    }
}

/// A hook that fires, waits for its claim, is paused and removed. Another hook stays, with a
/// running command.
fn hooks(it: &mut Teller) {
    let add = |prefix: &str, claim: Option<&str>| hook::Add {
        project: Some(project("shop")),
        agent: None,
        trigger: hook::Trigger::Message {
            channel: Some(ChannelName::new("shop").unwrap()),
            label: None,
            mention: None,
            prefix: Some(prefix.into()),
        },
        when: hook::Conditions { claim: claim.map(|it| Uri::new(it).unwrap()), ..hook::Conditions::default() },
        action: hook::Action::Run { argv: vec!["echo".into(), "hi".into()], cwd: "/".into() },
        priority: 2,
        timeout_ms: None,
        sandbox: None,
    };
    it.ann(Command::AddHook(Box::new(add("!go", Some("respond://shop-dev")))));
    it.post(person("ann"), "shop", "!go once", &[]);
    it.post(person("ann"), "shop", "!go twice", &[]);
    let firing = *it.board.firings.keys().next().expect("it fired");
    let (ended, output) = (hook::Ended::Exited(0), "hi\n".to_owned());
    it.shell(Command::ReportHook { firing, ended: ended.clone(), output: output.clone(), shut_in: None });
    let firing = *it.board.firings.keys().next().expect("the hook fired for the waiting message");
    it.shell(Command::ReportHook { firing, ended, output, shut_in: None });
    it.ann(Command::PauseHook { hook: HookId(1), reason: "for now".into() });
    it.ann(Command::ResumeHook { hook: HookId(1) });
    let mut stays = add("!stay", None);
    stays.when.cooldown_ms = Some(60_000);
    it.ann(Command::AddHook(Box::new(stays)));
    it.post(person("ann"), "shop", "!stay", &[]);
    it.post(person("ann"), "shop", "!stay again", &[]);
    it.ann(Command::RemoveHook { hook: HookId(1) });
}

/// A program that reports everything that can be reported, has to wait, costs money and reaches a
/// limit.
fn agents_that_talk(it: &mut Teller) {
    let matter = policy::Matter { command: Some("rm *".into()), ..policy::Matter::default() };
    it.ann(Command::AddRule { scope: policy::Scope::All, effect: policy::Effect::Deny, matter });
    let ceiling = budget::Ceiling { tokens: Some(1_000), ..budget::Ceiling::default() };
    it.ann(Command::SetBudget { scope: budget::Scope::Attempt, ceiling });
    it.ann(Command::SetBudget {
        scope: budget::Scope::Day,
        ceiling: budget::Ceiling { turns: Some(500), wall_ms: Some(u64::MAX / 2), ..ceiling },
    });
    it.ann(Command::AddTask { task: add("shop", "Talk", "x/talk"), assign: Some(agent("bob")), how: How::Direct });
    let task = TaskId(it.board.counters.task);
    it.ann(Command::Tell { task, text: "before it begins".into() });
    let grant = it.poll("bob", true);
    let mut n = 0;
    let mut says = |it: &mut Teller, grant: &Grant, said: Said| {
        n += 1;
        it.shell(Command::ReportSaid { attempt: grant.attempt, token: grant.token, n, said });
    };
    let (sandbox, warnings) = (Some("in a box".to_owned()), vec!["a small one".to_owned()]);
    it.shell(Command::ReportLaunched { attempt: grant.attempt, token: grant.token, sandbox, warnings });
    let taken = it.board.attempts[&grant.attempt].ports.clone();
    it.shell(Command::ReportPortsTaken { attempt: grant.attempt, token: grant.token, taken });
    let noted = Some("what it did".to_owned());
    it.ann(Command::Finish {
        task,
        attempt: grant.attempt,
        token: grant.token,
        output: noted,
        not_needed: false,
        learnings: vec![],
    });
    says(it, &grant, Said::Started { session: Some("s-1".into()), model: None });
    says(it, &grant, Said::TurnStarted { n: 0 });
    let used = Usage { input: 800, output: 50, micro_usd: Some(1_234), ..Usage::default() };
    says(it, &grant, Said::Usage { session: None, usage: used });
    for (id, path) in [("1", "/etc/x"), ("2", "/etc/y"), ("3", "src/z")] {
        let tool = Tool {
            kind: ToolKind::Execute,
            command: Some("cp a b".into()),
            paths: vec![path.into()],
            ..Tool::default()
        };
        says(it, &grant, Said::Asked(Ask { id: id.into(), want: Want::Permission { tool, options: vec![] } }));
    }
    it.later(61 * 60_000); // the requests are escalated, and one is snoozed
    it.shell(Command::Tick);
    it.ann(Command::Snooze { item: Item::Approval(ApprovalId(1)), ms: Some(60_000) });
    it.ann(Command::Decide {
        approval: ApprovalId(1),
        answer: Answer::Deny { words: None },
        reach: Reach::Once,
        also: vec![],
    });
    says(it, &grant, Said::Withdrew { ask: "2".into() });
    it.ann(Command::Tell { task, text: "and then this".into() });
    it.ann(Command::PauseTask { task, reason: "a moment".into() });
    it.ann(Command::ResumeTask { task });
    let end = |class| Said::TurnEnded { stop: Stop::Error, class, detail: "it broke".into() };
    says(it, &grant, end(Some(Class::RateLimit)));
    let failed = |class| Exited::Failed { reason: "a limit".into(), class: Some(class) };
    it.shell(Command::ReportExited { attempt: grant.attempt, token: grant.token, how: failed(Class::RateLimit) });
    it.later(61_000);
    it.shell(Command::Tick);
    // The session continues until its context is nearly full, writes a summary, and is replaced by
    // a new session.
    let grant = it.poll("bob", true);
    says(it, &grant, Said::Started { session: Some("s-2".into()), model: None });
    says(it, &grant, Said::TurnStarted { n: 0 });
    it.ann(Command::Tell { task, text: "one thing more".into() });
    says(it, &grant, Said::Context { used: 90, size: 100 });
    says(it, &grant, Said::TurnEnded { stop: Stop::EndTurn, class: None, detail: String::new() });
    says(it, &grant, Said::TurnStarted { n: 1 });
    says(it, &grant, Said::TurnEnded { stop: Stop::EndTurn, class: None, detail: "so far".into() });
    it.shell(Command::ReportExited { attempt: grant.attempt, token: grant.token, how: Exited::Lost });
    // The new session breaks off, waits for its retry, and ends with a rule and a budget of its own.
    let grant = it.poll("bob", true);
    it.shell(Command::ReportExited { attempt: grant.attempt, token: grant.token, how: failed(Class::Overloaded) });
    it.later(2_001);
    it.shell(Command::Tick);
    let matter = policy::Matter { path: Some("/tmp/*".into()), ..policy::Matter::default() };
    it.ann(Command::AddRule { scope: policy::Scope::Task(task), effect: policy::Effect::Allow, matter });
    it.ann(Command::SetBudget { scope: budget::Scope::Task(task), ceiling });
    it.ann(Command::CancelTask { task, reason: "enough".into() });
}

/// Runners register, work, leave and are forgotten; one runner stays.
fn runners(it: &mut Teller) {
    for name in ["box", "big"] {
        let runner = RunnerName::new(name).unwrap();
        let labels = vec!["gpu".into()];
        let ask = runner::Register {
            name: runner.clone(),
            identity: format!("{name}-1"),
            token: "boxes".into(),
            labels,
            agents: vec![agent("ann")],
            max_tasks: 4,
            version: "0.1".into(),
        };
        let Outcome::Runner { session } = it.shell(Command::RegisterRunner(ask)) else { panic!("no session") };
        it.later(1_000);
        it.shell(Command::BeatRunner { runner: runner.clone(), session });
        it.ann(Command::DrainRunner { runner: runner.clone(), reason: "an update".into() });
        it.shell(Command::LeaveRunner { runner, session });
    }
    it.ann(Command::RemoveRunner { runner: RunnerName::new("box").unwrap() });
}

/// An agent continues without an answer, states its assumption, and reads the answer later.
fn an_assumption(teller: &mut Teller) {
    let task = add("shop", "Assumes", "x/assumes");
    teller.ann(Command::AddTask { task, assign: Some(agent("ann")), how: How::Direct });
    let Grant { task, attempt, token, .. } = teller.poll("ann", true);
    let want = Want::Question { text: "Tea?".into(), choices: vec![], schema: None };
    let said = Said::Asked(Ask { id: "tea".into(), want });
    teller.shell(Command::ReportSaid { attempt, token, n: 1, said });
    let approval = ApprovalId(teller.board.counters.approval);
    teller.ann(Command::GoOn { task, attempt, token, approval, assumed: "coffee".into() });
    let answer = Answer::Text { text: "tea".into() };
    teller.ann(Command::Decide { approval, answer, reach: Reach::Once, also: vec![] });
    teller.ann(Command::NoteHeard { attempt, approval });
    teller.ann(Command::CancelTask { task, reason: "a story".into() });
}

/// Leaves a live entity of every kind.
fn what_stays(it: &mut Teller) {
    runners(it);
    an_assumption(it);
    it.ann(Command::AddTask { task: add("shop", "Asks", "x/asks"), assign: Some(agent("bob")), how: How::Direct });
    let asking = it.poll("bob", true);
    let question = Want::Question { text: "Which?".into(), choices: vec!["a".into()], schema: Some("{}".into()) };
    let said = Said::Asked(Ask { id: "q".into(), want: question });
    it.shell(Command::ReportSaid { attempt: asking.attempt, token: asking.token, n: 1, said });
    it.ann(Command::AddTask { task: add("shop", "Broken", "x/broken"), assign: Some(agent("ann")), how: How::Direct });
    let broken = it.poll("ann", true);
    let (attempt, token, half) = (broken.attempt, broken.token, it.board.limits.silence_ms / 2);
    it.shell(Command::ReportSilent { attempt, token, since_ms: Some(half) });
    it.ann(Command::Snooze { item: Item::Attempt(attempt), ms: Some(60_000) });
    it.shell(Command::ReportSilent { attempt, token, since_ms: None });
    let how = Exited::Failed { reason: "not signed in".into(), class: Some(Class::Auth) };
    it.shell(Command::ReportExited { attempt: broken.attempt, token: broken.token, how });
    it.ann(Command::Snooze { item: Item::Agent(agent("ann")), ms: Some(60_000) });
    it.ann(Command::ResumeAgent { agent: agent("ann") });
    it.ann(Command::CancelTask { task: broken.task, reason: "enough".into() });
    it.ann(Command::AddTask { task: add("shop", "Offered", "x/offered"), assign: Some(agent("bob")), how: How::Offer });
    it.ann(Command::AddTask {
        task: Add { backlog: true, ..add("docs", "Someday", "x/someday") },
        assign: None,
        how: How::Direct,
    });
    // This failed task is undecided, and a person snoozed it.
    it.ann(Command::AddTask { task: add("shop", "Fails", "x/f"), assign: Some(agent("ann")), how: How::Direct });
    let Grant { task, attempt, token, .. } = it.poll("ann", false);
    it.ann(Command::GiveUp { task, attempt, token, reason: Some("too hard".into()) });
    it.ann(Command::Snooze { item: Item::Task(task), ms: Some(3_600_000) });
    it.ann(Command::AddTask { task: add("shop", "Cancelled", "x/c"), assign: None, how: How::Direct });
    it.ann(Command::CancelTask { task: TaskId(it.board.counters.task), reason: "never mind".into() });
    it.tell(
        &person("ann"),
        Some("add-2"),
        Command::AddTask { task: add("shop", "Landing", "x/l"), assign: Some(agent("ann")), how: How::Direct },
    );
    let grant = it.poll("ann", true);
    it.submit(&grant, "x/l");
    it.poll("bob", false);
    it.acquire("ann", "port://9090", 0);
    it.acquire("bob", "port://9090", 3_600_000);
    it.shell(Command::Tick);
}

fn add(project_name: &str, subject: &str, file: &str) -> Add {
    Add {
        project: project(project_name),
        subject: subject.into(),
        description: "It says \"so\":\n\t{\"a\": [1, null]}".into(),
        issue_type: IssueType::Feature,
        files: vec![PathPattern::new(file).unwrap()],
        validation: task::Validation { tests: vec!["make test".into()], ..task::Validation::default() },
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

pub(super) fn passed(changed: &[&str]) -> Verdict {
    Verdict::Passed {
        commit: commit('a'),
        base: commit('b'),
        changed: changed.iter().map(|it| (*it).to_owned()).collect(),
    }
}

fn commit(digit: char) -> CommitId {
    CommitId::new(&digit.to_string().repeat(40)).unwrap()
}

pub(crate) fn person(name: &str) -> Actor {
    Actor::Person(name.into())
}

pub(crate) fn agent(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

pub(crate) fn project(name: &str) -> ProjectName {
    ProjectName::new(name).unwrap()
}
