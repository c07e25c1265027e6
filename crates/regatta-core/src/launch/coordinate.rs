//! The coordinator: from a wish to lanes, from lanes to sessions, and back to nothing.
//!
//! It holds no state of its own. [`advance`] looks at the record and does what comes next, whoever changed the record;
//! so a daemon that was killed anywhere goes on from what is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::agent::{self, Key, Profile, Register, Role, Runtime};
use crate::attempt;
use crate::board::{Board, Draft};
use crate::event::Event;
use crate::extra::Extra;
use crate::ids::{AgentName, AttemptId, LaunchId, MemberName, Now, TaskId, TeamName};
use crate::lane::{self, Kind, Lanes, Plan, Seat};
use crate::provider;
use crate::reconcile;
use crate::refusal::Refusal;
use crate::steer;
use crate::task::{self, Add, Expects, IssueType};
use crate::team::{self, Member, Team};

use super::{
    Begun, Changed, Entry, Evidence, Identity, Launch, MOST_EVIDENCE, MOST_MODELS, Moved, Place, Program, Resolution,
    Sign, Standing, State, Why, has_session, is_up, lives, living, of,
};

/// What a scripted member does of which nothing is said: it answers that it is there.
const PRESENT: &str = r#"[{"say": "I am here."}]"#;

/// The backend that stands in for the program of any provider.
const STAND_IN: &str = "scripted";

/// Launches a team: the plan is settled and written down now, and its programs are asked next.
pub fn begin(draft: &mut Draft, name: &TeamName, left_out: &[MemberName], now: Now) -> Result<LaunchId, Refusal> {
    let team = team::find(draft.board(), name)?;
    if is_up(draft.board(), &team) {
        return Err(Refusal::TeamRuns { team: name.clone(), cannot: "launch it again while it runs".into() });
    }
    if let Some(odd) = left_out.iter().find(|it| team.member(it).is_none() || **it == team.lead.name) {
        return Err(Refusal::invalid(
            format!("{odd} is no member of {name} that could be left out"),
            "name a member; the lead always starts",
        ));
    }
    let policy = team::policy(draft.board(), &team);
    let (lead, members, moved) = seats(draft.board(), &team, &policy);
    let plan = lane::plan(&lead, &members, &policy).map_err(|it| team::refused(&it))?;
    let id = LaunchId(draft.board().counters.launch + 1);
    let seats = std::iter::once(&lead).chain(&members);
    let entries = team.roster().zip(seats).map(|(member, seat)| {
        let entry = entry(&team, member, seat, &plan);
        let moved = moved.iter().find(|it| it.0 == member.name).map(|it| it.1.clone());
        let entry = Entry { notes: moved.into_iter().chain(entry.notes.clone()).collect(), ..entry };
        match left_out.contains(&member.name) {
            true => Entry { state: State::Skipped, ..entry }.because(Why::LeftOut, "it was left out of this launch"),
            false => entry,
        }
    });
    let launch = Launch {
        id,
        team: name.clone(),
        project: team.project.clone(),
        expected_members: team.roster().map(|it| it.name.clone()).collect(),
        bootstrap_expected_members: plan.bootstrap().to_vec(),
        members: entries.collect(),
        lanes: plan.lanes,
        stopping: None,
        reconciled_wall: None,
        told: None,
        superseded: false,
        revision: draft.next_revision(),
        begun_wall: now.wall,
        updated_wall: now.wall,
        extra: Extra::new(),
    };
    supersede(draft, &team);
    draft.record(Event::LaunchBegun(Begun { launch: launch.into() }));
    team::point(draft, name, id, false);
    Ok(id)
}

/// The team as it is planned now: a member whose provider takes no work is moved where the policy allows it, and it is
/// said who and why.
fn seats(board: &Board, team: &Team, policy: &Lanes) -> (Seat, Vec<Seat>, Vec<(MemberName, String)>) {
    let parked = |it: &str| board.parked.get(it).filter(|it| !it.over);
    let mut moved = Vec::new();
    let mut settle = |seat: Seat| {
        let Some(why) = parked(&seat.provider) else { return seat };
        let Some(other) = policy.failover_of(&seat.provider).find(|other| parked(other).is_none()) else { return seat };
        let said = format!("moved from {} to {other}: {}", seat.provider, why.reason);
        moved.push((seat.name.clone(), said));
        Seat { provider: other.to_owned(), ..seat }
    };
    let (lead, members) = team.seats();
    let lead = settle(lead);
    let members = members.into_iter().map(settle).collect();
    (lead, members, moved)
}

/// What is asked for a member, and what it may have on its lane.
fn entry(team: &Team, member: &Member, seat: &Seat, plan: &Plan) -> Entry {
    let lead = &team.lead;
    let is_lead = member.name == lead.name;
    let of_lead = team.provider(member) == team.provider(lead);
    let asked = Identity {
        provider: team.provider(member).to_owned(),
        backend: member.backend.clone(),
        model: member.model.clone().or_else(|| lead.model.clone().filter(|_| of_lead)),
        effort: member.effort.clone().or_else(|| lead.effort.clone().filter(|_| of_lead)),
        fast_mode: member.fast_mode,
        cwd: member.cwd.clone(),
    };
    let lane = plan.lane_of(&member.name);
    let mut got = Identity { provider: seat.provider.clone(), ..asked.clone() };
    let mut notes = Vec::new();
    if seat.provider != asked.provider {
        // What was asked of one provider means nothing to another.
        (got.backend, got.model, got.effort) = (None, None, None);
    }
    if lane.is_none_or(|it| it.kind == Kind::Primary) && !is_lead {
        // The primary lane has one owner, whose backend and fast mode hold for its members. A backend is a program of
        // one provider, so a member of another provider keeps its own; only the stand-in fits every provider.
        let is_shared = seat.provider == team.provider(lead) || lead.backend.as_deref() == Some(STAND_IN);
        if is_shared && got.backend != lead.backend {
            got.backend = lead.backend.clone();
            notes.push(inherited("backend", got.backend.as_deref().unwrap_or("its provider's usual one")));
        }
        if got.fast_mode != lead.fast_mode {
            got.fast_mode = lead.fast_mode;
            let mode = got.fast_mode.map_or("its program's own", |is_on| if is_on { "on" } else { "off" });
            notes.push(inherited("fast mode", mode));
        }
    }
    let lane = lane.map(|lane| Place { id: lane.id.clone(), kind: lane.kind, owner: lane.owner.clone() });
    Entry { lane, asked, got, notes, ..Entry::new(team, &member.name) }
}

/// Says which setting a member has from the lead.
fn inherited(setting: &str, value: &str) -> String {
    format!("{setting} is the lead's on the primary lane: {value}")
}

fn supersede(draft: &mut Draft, team: &Team) {
    if let Some(old) = of(draft.board(), team).cloned() {
        supersede_record(draft, &old);
    }
}

/// Puts a record away: another one is the team's.
pub(crate) fn supersede_record(draft: &mut Draft, old: &Launch) {
    draft.record(Event::LaunchChanged(Changed {
        launch: old.id,
        stopping: None,
        reconciled_wall: old.reconciled_wall,
        superseded: true,
        told: None,
    }));
}

/// Takes what the programs said when they were asked. Each answer is its own member's.
pub fn resolved(draft: &mut Draft, id: LaunchId, found: Vec<Resolution>, now: Now) -> Result<(), Refusal> {
    let launch = find(draft.board(), id)?;
    let Some(team) = draft.board().teams.get(&launch.team).cloned() else { return Ok(()) };
    for resolution in found {
        let Some(entry) = current(draft.board(), id, &resolution.member) else { continue };
        if entry.state != State::Queued || entry.prepared {
            continue; // it was answered before, or left out meanwhile
        }
        let Resolution { runtime, backend, mut program, keys, files, fast_mode, notes, problem, .. } = resolution;
        program.models.iter_mut().for_each(|it| it.truncate(MOST_MODELS));
        let mut entry = note(entry, Sign::Process, told(&program), now);
        entry.program = Some(program);
        entry.notes.extend(notes);
        entry.got.backend = backend.or(entry.got.backend);
        // Asked for and not to be had is not the same as not asked for: both are in the record.
        entry.got.fast_mode = fast_mode.or(entry.got.fast_mode);
        let cannot = |kind, text: &str| Some(super::Cause { kind, text: text.to_owned() });
        let problem = match (&runtime, problem) {
            (_, Some(problem)) => Some(problem),
            (None, None) => cannot(Why::Program, "nothing is known of how its program is driven"),
            (Some(runtime), None) if !runtime.talks() => cannot(
                Why::Program,
                "its program takes one prompt and ends, so it cannot stay as a member; give it tasks as an agent instead",
            ),
            (Some(_), None) => None,
        };
        if let (None, Some(runtime), Some(member)) = (&problem, runtime, team.member(&entry.name)) {
            provider::forgive(draft, &entry.agent);
            let ask = register(&team, member, &entry, (runtime, keys, files));
            match agent::register(draft, ask, now) {
                Ok(_) => entry.prepared = true,
                Err(refusal) => entry = failed(entry, Why::Program, &refusal.message(), now),
            }
        }
        if let Some(super::Cause { kind, text }) = problem {
            entry = failed(entry, kind, &text, now);
        }
        put(draft, id, entry);
    }
    Ok(())
}

fn told(program: &Program) -> String {
    let version = program.version.as_deref().map(|it| format!(" {it}")).unwrap_or_default();
    let sign_in = program.sign_in.as_deref().map(|it| format!(", {it}")).unwrap_or_default();
    match &program.path {
        Some(path) => format!("found {path}{version}{sign_in}"),
        None => format!("no program was found{sign_in}"),
    }
}

/// The agent that a member is. On the primary lane a member of the lead's own provider shares the lead's environment,
/// if it names none; a side lane has its own or none at all (T5).
fn register(
    team: &Team,
    member: &Member,
    entry: &Entry,
    (runtime, keys, files): (Runtime, Vec<Key>, Vec<String>),
) -> Register {
    let shares = !entry.is_aside() && entry.got.provider == team.provider(&team.lead);
    let named = member.environment.as_ref().or(team.lead.environment.as_ref().filter(|_| shares));
    let environment = named.and_then(|it| team.environments.get(it)).cloned().unwrap_or_default();
    // Who has keys of its own is lent none of the user's.
    let (keys, mut write) = if environment.keys.is_empty() { (keys, files) } else { (environment.keys, vec![]) };
    write.extend(environment.write);
    Register {
        name: entry.agent.clone(),
        runtime,
        role: if entry.lead { Role::Lead } else { Role::Worker },
        provider: Some(entry.got.provider.clone()),
        profile: Profile {
            preset: entry.got.backend.clone(),
            model: entry.got.model.clone(),
            effort: entry.got.effort.clone(),
            fast_mode: entry.got.fast_mode,
            cwd: entry.got.cwd.clone(),
            mode: environment.mode,
            args: environment.args,
            env: environment.env.into_iter().collect(),
            keys,
            confine: environment.confine,
            egress: environment.egress,
            read: environment.read,
            write,
            title: member.role.clone().unwrap_or_default(),
            ..Profile::default()
        },
        description: format!("{} of team {}", if entry.lead { "lead" } else { "member" }, team.name),
        max_tasks: member.max_tasks.unwrap_or(1),
    }
}

/// Does what comes next in a launch, if anything does.
pub(crate) fn advance(draft: &mut Draft, id: LaunchId, now: Now) {
    let Some(launch) = draft.board().launches.get(&id).cloned() else { return };
    if launch.superseded {
        return;
    }
    if launch.stopping.is_some() {
        return wind_down(draft, &launch, now);
    }
    let policy = draft.board().teams.get(&launch.team).map(|it| team::policy(draft.board(), it)).unwrap_or_default();
    let most = policy.concurrency.max(1) as usize;
    let coming = |it: &&Entry| it.state.is_pending() && it.state != State::Queued;
    let waits = |it: &&Entry| it.state == State::Queued && it.prepared;
    // The primary lane first, with exactly its own, the lead before all others.
    let (aside, own): (Vec<&Entry>, Vec<&Entry>) = launch.members.iter().partition(|it| it.is_aside());
    let room = most.saturating_sub(own.iter().filter(|it| coming(it)).count());
    for entry in own.iter().filter(|it| waits(it)).take(room) {
        start(draft, &launch, (*entry).clone(), vec![], now);
    }
    // Side lanes attach to a team that is there.
    let lead = launch.lead().map_or(State::Degraded, |it| it.state);
    match lead {
        State::Alive => {
            let room = most.saturating_sub(aside.iter().filter(|it| coming(it)).count());
            for entry in aside.iter().filter(|it| waits(it)).take(room) {
                start(draft, &launch, (*entry).clone(), vec![], now);
            }
        }
        State::FailedToStart | State::Skipped | State::Degraded | State::Stopped => {
            for entry in aside.into_iter().filter(|it| it.state == State::Queued) {
                let text = "the lead is not up, so there is no team to attach to";
                let skipped = Entry { state: State::Skipped, ended_wall: Some(now.wall), ..entry.clone() };
                put(draft, id, skipped.because(Why::NoLead, text));
            }
        }
        State::Queued | State::Starting | State::PendingBootstrap | State::PendingPermission => {}
    }
}

/// Begins another session of a member that was up, with these words of the one before.
pub(super) fn reopen(draft: &mut Draft, id: LaunchId, entry: Entry, words: Vec<String>, now: Now) {
    if let Some(launch) = draft.board().launches.get(&id).cloned() {
        start(draft, &launch, entry, words, now);
    }
}

/// Begins a member's session: a standing task with one attempt, in its own workspace.
fn start(draft: &mut Draft, launch: &Launch, entry: Entry, words: Vec<String>, now: Now) {
    match open(draft, launch, &entry, words, now) {
        Ok((task, attempt)) => {
            let entry = note(entry, Sign::Decision, format!("its session {attempt} is being made"), now);
            let started_wall = Some(now.wall);
            let entry =
                Entry { state: State::Starting, task: Some(task), attempt: Some(attempt), started_wall, ..entry };
            put(draft, launch.id, entry);
        }
        Err((kind, text)) => put(draft, launch.id, failed(entry, kind, &text, now)),
    }
}

fn open(
    draft: &mut Draft,
    launch: &Launch,
    entry: &Entry,
    words: Vec<String>,
    now: Now,
) -> Result<(TaskId, AttemptId), (Why, String)> {
    let member = draft.board().teams.get(&launch.team).and_then(|it| it.member(&entry.name));
    let scripted = draft.board().agents.get(&entry.agent).is_some_and(|it| it.runtime == Runtime::Scripted);
    let script = member.and_then(|it| it.script.clone()).or_else(|| scripted.then(|| PRESENT.to_owned()));
    if let Some(parked) = draft.board().agents.get(&entry.agent).and_then(|it| provider::parked(draft.board(), it)) {
        return Err((Why::Provider, provider::describe(parked, now)));
    }
    let rank = if entry.lead { "lead" } else { "member" };
    let add = Add {
        project: launch.project.clone(),
        subject: format!("{rank} {} of team {}", entry.name, launch.team),
        description: String::new(),
        issue_type: IssueType::Chore,
        files: vec![],
        validation: task::Validation::default(),
        blocked_by: vec![],
        priority: task::default_priority(),
        expects: Expects::Report,
        effort: None,
        provider: None,
        model: None,
        script,
        ratchet: None,
        alias: None,
        backlog: false,
    };
    let by = attempt::Begin {
        agent: entry.agent.clone(),
        supervised: true,
        runner: None,
        lease_ms: attempt::LEASE_MS,
        bare: false,
        by_hand: false,
        gates: vec![],
    };
    let standing = Standing { launch: launch.id, member: entry.name.clone() };
    let ours = |it: Refusal| (Why::Environment, it.message());
    let task = task::add(draft, add, None, now).map_err(ours)?;
    task::set_standing(draft, task, standing).map_err(ours)?;
    for word in words {
        steer::note(draft, task, word);
    }
    task::start(draft, task, &by, now).map(|it| (task, it)).map_err(|refusal| {
        let text = refusal.message();
        let cancelled = task::cancel(draft, task, &text);
        debug_assert!(cancelled.is_ok(), "a task that is just made can be cancelled");
        (Why::Environment, text)
    })
}

/// Stops a team: side lanes first, then the primary one. It has stopped when nothing of it lives, and not before (P10).
pub fn stop(draft: &mut Draft, name: &TeamName, reason: &str) -> Result<(), Refusal> {
    let team = team::find(draft.board(), name)?;
    if team.again {
        team::point(draft, name, team.launch.unwrap_or_default(), false);
    }
    wish_stopped(draft, &team, reason);
    stop_unrecorded(draft, &team, reason);
    // Where nothing lived there is nothing to wait for.
    if let Some(launch) = team.launch.filter(|_| !is_up(draft.board(), &team)) {
        let now = draft.now();
        reconciled(draft, launch, now);
    }
    Ok(())
}

/// Stops what runs in the names of members that the team's record does not have, or of which there is no record.
fn stop_unrecorded(draft: &mut Draft, team: &Team, reason: &str) {
    let recorded: Vec<AgentName> = match of(draft.board(), team) {
        Some(launch) => launch.members.iter().map(|entry| entry.agent.clone()).collect(),
        None => vec![],
    };
    let agents: BTreeSet<AgentName> = living(draft.board(), team).map(|attempt| attempt.agent.clone()).collect();
    for agent in agents.into_iter().filter(|agent| !recorded.contains(agent)) {
        stop_all(draft, &agent, reason);
    }
}

fn wish_stopped(draft: &mut Draft, team: &Team, reason: &str) {
    let Some(launch) = of(draft.board(), team).cloned() else { return };
    if is_up(draft.board(), team) && launch.stopping.is_none() {
        draft.record(Event::LaunchChanged(Changed {
            launch: launch.id,
            stopping: Some(reason.to_owned()),
            reconciled_wall: None,
            superseded: false,
            told: None,
        }));
    }
}

fn wind_down(draft: &mut Draft, launch: &Launch, now: Now) {
    let reason = launch.stopping.clone().unwrap_or_default();
    for entry in &launch.members {
        // Nothing more is given to it, and what it never began it does not begin.
        if draft.board().agents.get(&entry.agent).is_some_and(|it| it.offline.is_none()) {
            let left = agent::leave(draft, &entry.agent, "its team is being stopped", now);
            debug_assert!(left.is_ok(), "an agent that is there can leave");
        }
        if entry.state.is_pending() && !has_session(draft.board(), entry) {
            let stopped = Entry { state: State::Stopped, ended_wall: Some(now.wall), ..entry.clone() };
            put(draft, launch.id, stopped.because(Why::Stopped, reason.clone()));
        }
    }
    let living: Vec<&Entry> = launch.members.iter().filter(|it| lives(draft.board(), it)).collect();
    // Whose lane is not known is no part of the primary one: nothing is inferred onto that (T4).
    let primary = |it: &&&Entry| it.lead || it.lane.as_ref().is_some_and(|it| it.kind == Kind::Primary);
    let aside: Vec<&Entry> = living.iter().filter(|it| !primary(it)).copied().collect();
    let turn = if aside.is_empty() { living } else { aside };
    if turn.is_empty() {
        draft.record(Event::LaunchChanged(Changed {
            launch: launch.id,
            stopping: None,
            reconciled_wall: Some(now.wall),
            superseded: false,
            told: None,
        }));
    }
    for entry in turn {
        stop_all(draft, &entry.agent, &reason);
    }
}

/// Ends everything that runs in a member's name: its session, and what it works on. Unfinished work waits for another.
fn stop_all(draft: &mut Draft, agent: &AgentName, reason: &str) {
    let of = |attempt: &&Arc<attempt::Attempt>| attempt.agent == *agent && attempt.supervised;
    let running: Vec<_> = draft.board().attempts.values().filter(of).cloned().collect();
    for attempt in running {
        attempt::stop(draft, attempt.id, attempt::Cause::Stopped, reason.to_owned());
        if attempt.standing.is_none() && attempt.stopping.is_none() && draft.board().tasks.contains_key(&attempt.task) {
            let back = task::try_again(draft, attempt.task, reason);
            debug_assert!(back.is_ok(), "what runs can wait again");
        }
    }
}

/// Stops a team if it runs, and launches it again from what the store says is wanted.
pub fn relaunch(draft: &mut Draft, name: &TeamName, now: Now) -> Result<Option<LaunchId>, Refusal> {
    let team = team::find(draft.board(), name)?;
    if !is_up(draft.board(), &team) {
        return begin(draft, name, &[], now).map(Some);
    }
    // Refused now rather than when it has stopped.
    let policy = team::policy(draft.board(), &team);
    let (lead, members, _) = seats(draft.board(), &team, &policy);
    lane::plan(&lead, &members, &policy).map_err(|it| team::refused(&it))?;
    team::point(draft, name, team.launch.unwrap_or_default(), true);
    wish_stopped(draft, &team, "it is launched again");
    Ok(None)
}

/// Launches a team that has stopped and was to be launched again.
pub(crate) fn again_after(draft: &mut Draft, id: LaunchId, now: Now) -> Result<(), Refusal> {
    let Some(launch) = draft.board().launches.get(&id).cloned() else { return Ok(()) };
    let Some(team) = draft.board().teams.get(&launch.team).cloned() else { return Ok(()) };
    if team.again && team.launch == Some(id) && !is_up(draft.board(), &team) {
        begin(draft, &launch.team, &[], now)?;
    }
    Ok(())
}

/// Tries a member's lane again that did not come up or is down.
pub fn retry(draft: &mut Draft, name: &TeamName, member: &MemberName, now: Now) -> Result<(), Refusal> {
    let team = team::find(draft.board(), name)?;
    let Some(launch) = of(draft.board(), &team).cloned() else {
        return Err(Refusal::invalid(
            format!("team {name} was never launched"),
            format!("launch it: regatta team launch {name}"),
        ));
    };
    let Some(entry) = launch.entry(member).cloned() else {
        return Err(Refusal::invalid(
            format!("{member} is not of this launch of {name}"),
            format!("launch the team again: regatta team relaunch {name}"),
        ));
    };
    if entry.lane.is_none() || reconcile::truth(&team, &launch, &team::policy(draft.board(), &team)).is_lost() {
        return Err(Refusal::invalid(
            format!("which lane {member} was on is not known, and it is not guessed"),
            format!("launch the team again: regatta team relaunch {name}"),
        ));
    }
    if launch.stopping.is_some() || entry.state.is_pending() || has_session(draft.board(), &entry) {
        return Err(Refusal::InUse { what: format!("member {member} of {name}"), by: "its own session".into() });
    }
    if entry.is_aside() && launch.lead().is_none_or(|it| it.state != State::Alive) {
        return Err(Refusal::invalid(
            format!("the lead of {name} is not up, so {member} has no team to attach to"),
            format!("bring the lead up first: regatta team retry {name} {}", team.lead.name),
        ));
    }
    let again = Entry {
        state: State::Queued,
        cause: None,
        prepared: false,
        task: None,
        attempt: None,
        retries: entry.retries + 1,
        alive_wall: None,
        ended_wall: None,
        ..entry
    };
    put(draft, launch.id, note(again, Sign::Decision, "its lane is tried again".into(), now));
    Ok(())
}

/// Puts a record from a file beside what is there: the one that knows more of the lanes is the team's, and nothing of it
/// runs here.
pub(crate) fn restore(draft: &mut Draft, name: &TeamName, record: Launch, now: Now) -> Result<(), Refusal> {
    let team = team::find(draft.board(), name).or_else(|it| {
        // A team that was deleted when it was kept comes back deleted, with its record.
        draft.board().teams.get(name).cloned().ok_or(it)
    })?;
    if let Some(there) = of(draft.board(), &team)
        && reconcile::prefer(there, &record) == reconcile::Side::Left
    {
        return Ok(());
    }
    supersede(draft, &team);
    let id = LaunchId(draft.board().counters.launch + 1);
    let settle = |entry: Entry| {
        let entry = Entry { attempt: None, task: None, prepared: false, ..entry };
        match entry.state.is_pending() || entry.state == State::Alive {
            true => Entry { state: State::Degraded, ended_wall: Some(now.wall), ..entry }
                .because(Why::Lost, "it was put back from a file, and nothing of it runs here"),
            false => entry,
        }
    };
    let launch = Launch {
        id,
        team: name.clone(),
        project: team.project.clone(),
        members: record.members.into_iter().map(settle).collect(),
        stopping: None,
        superseded: false,
        reconciled_wall: Some(now.wall),
        revision: draft.next_revision(),
        updated_wall: now.wall,
        ..record
    };
    draft.record(Event::LaunchBegun(Begun { launch: launch.into() }));
    team::point(draft, name, id, false);
    reconcile::settle(draft, id, now);
    Ok(())
}

/// Writes one member's entry; what is as it was is not written again.
pub(crate) fn put(draft: &mut Draft, id: LaunchId, entry: Entry) {
    let Some(launch) = draft.board().launches.get(&id) else { return };
    if launch.entry(&entry.name).is_none_or(|known| *known != entry) {
        draft.record(Event::LaunchMoved(Moved { launch: id, entry: entry.into() }));
    }
}

/// Writes an entry for whoever compares records with what lives.
pub(crate) fn degrade(draft: &mut Draft, id: LaunchId, entry: Entry, (kind, text): (Why, &str), now: Now) {
    let ended_wall = entry.ended_wall.or(Some(now.wall));
    put(draft, id, Entry { state: State::Degraded, ended_wall, ..entry }.because(kind, text));
}

/// Says that a record was compared with what lives.
pub(crate) fn reconciled(draft: &mut Draft, id: LaunchId, now: Now) {
    if draft.board().launches.get(&id).is_some_and(|it| it.reconciled_wall.is_none() && it.stopping.is_none()) {
        draft.record(Event::LaunchChanged(Changed {
            launch: id,
            stopping: None,
            reconciled_wall: Some(now.wall),
            superseded: false,
            told: None,
        }));
    }
}

pub(super) fn current(board: &Board, id: LaunchId, name: &MemberName) -> Option<Entry> {
    board.launches.get(&id).and_then(|it| it.entry(name)).cloned()
}

pub(super) fn note(mut entry: Entry, sign: Sign, text: String, now: Now) -> Entry {
    entry.evidence.push(Evidence { wall: now.wall, sign, text });
    let more = entry.evidence.len().saturating_sub(MOST_EVIDENCE);
    entry.evidence.drain(..more);
    entry
}

pub(super) fn failed(entry: Entry, kind: Why, text: &str, now: Now) -> Entry {
    Entry { state: State::FailedToStart, ended_wall: Some(now.wall), ..entry }.because(kind, text)
}

fn find(board: &Board, id: LaunchId) -> Result<Arc<Launch>, Refusal> {
    board
        .launches
        .get(&id)
        .cloned()
        .ok_or_else(|| Refusal::missing(format!("there is no launch {id} of today"), "see regatta team list"))
}
