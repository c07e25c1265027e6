//! Launches teams: decides step by step which member of a team is started next, and starts its
//! session.
//!
//! The launch's record is the only state. [`advance`] reads it and performs the next step, whatever
//! changed the record last. After a crash at any point, the daemon therefore continues from the
//! record.

use std::sync::Arc;

use crate::agent::{self, Profile, RegisterAgent, Role, Runtime, SecretVariable};
use crate::attempt;
use crate::board::{Board, Draft};
use crate::event::Event;
use crate::ids::{AttemptId, LaunchId, MemberName, Now, TaskId, TeamName};
use crate::intervention;
use crate::lane;
use crate::provider_outage;
use crate::refusal::Refusal;
use crate::task::{self, AddTask, Expects, IssueType, Purpose};
use crate::team::{self, Team, TeamMember};
use crate::unknown_fields::UnknownFields;

use super::plan::{PlannedRoster, new_entry};
use super::stop::wind_down;
use super::{
    EvidenceSource, LaunchBegun, LaunchChanged, LaunchEntry, LaunchMember, MAX_EVIDENCE,
    MAX_MODELS, MemberCauseKind, MemberChange, MemberEvidence, MemberResolution, MemberState,
    ProgramFacts, SessionOf, TeamLaunch, has_session, is_up, latest_launch, recovery,
};

/// Script for a scripted member (a member without a model) whose settings have no script. The
/// member only answers its first prompt.
const DEFAULT_SCRIPT: &str = r#"[{"say": "I am here."}]"#;

/// Begins a launch of a team: records each member's lane (start group) and settings. Next, the
/// engine checks the members' programs and reports to [`on_resolved`].
pub fn begin(
    draft: &mut Draft,
    name: &TeamName,
    left_out: &[MemberName],
    now: Now,
) -> Result<LaunchId, Refusal> {
    let team = team::find(draft.board(), name)?;
    if is_up(draft.board(), &team) {
        return Err(Refusal::TeamRuns {
            team: name.clone(),
            cannot: "launch it again while it runs".into(),
        });
    }
    if let Some(unknown) = left_out
        .iter()
        .find(|member| team.member(member).is_none() || **member == team.lead.name)
    {
        return Err(Refusal::invalid(
            format!(
                "{unknown} cannot be left out of the launch: it is the lead of team {name}, or not \
                one of its members"
            ),
            format!("name a member other than the lead; see all members: regatta team show {name}"),
        ));
    }
    let policy = team::lane_policy(draft.board(), &team);
    let roster = PlannedRoster::new(draft.board(), &team, &policy);
    let plan = lane::plan(&roster.lead, &roster.members, &policy)
        .map_err(|problems| team::roster_refusal(&problems))?;
    let id = LaunchId(draft.board().counters.launch + 1);
    let planned_members = std::iter::once(&roster.lead).chain(&roster.members);
    let entries = team.roster().zip(planned_members).map(|(member, planned)| {
        let entry = new_entry(&team, member, planned, &plan);
        let move_note = roster
            .moves
            .iter()
            .find(|(name, _)| *name == member.name)
            .map(|(_, note)| note.clone());
        let entry = LaunchEntry {
            notes: move_note.into_iter().chain(entry.notes.clone()).collect(),
            ..entry
        };
        if left_out.contains(&member.name) {
            entry
                .changed(MemberChange::Skip)
                .with_cause(MemberCauseKind::LeftOut, "it was left out of this launch")
        } else {
            entry
        }
    });
    let launch = TeamLaunch {
        id,
        team: name.clone(),
        project: team.project.clone(),
        expected_members: team.roster().map(|member| member.name.clone()).collect(),
        bootstrap_expected_members: plan.bootstrap_members().to_vec(),
        members: entries.collect(),
        lanes: plan.lanes,
        stopping: None,
        reconciled_unix_ms: None,
        announced: None,
        superseded: false,
        revision: draft.next_revision(),
        begun_unix_ms: now.unix_ms,
        updated_unix_ms: now.unix_ms,
        extra: UnknownFields::new(),
    };
    supersede(draft, &team);
    draft.record(Event::LaunchBegun(LaunchBegun {
        launch: launch.into(),
    }));
    team::set_launch(draft, name, id, false);
    Ok(id)
}

/// Marks a team's latest launch as replaced, because a new launch begins.
fn supersede(draft: &mut Draft, team: &Team) {
    if let Some(old) = latest_launch(draft.board(), team).cloned() {
        supersede_record(draft, &old);
    }
}

/// Records that a launch was replaced by a later launch, so that the replaced launch is not
/// continued.
pub(crate) fn supersede_record(draft: &mut Draft, old: &TeamLaunch) {
    draft.record(Event::LaunchChanged(LaunchChanged {
        launch: old.id,
        stopping: None,
        reconciled_wall: old.reconciled_unix_ms,
        superseded: true,
        told: None,
    }));
}

/// Handles the report about the members' installed programs: registers an agent for each member
/// whose program can be started, and records all other members as failed.
pub fn on_resolved(
    draft: &mut Draft,
    id: LaunchId,
    found: Vec<MemberResolution>,
    now: Now,
) -> Result<(), Refusal> {
    let launch = find(draft.board(), id)?;
    let Some(team) = draft.board().teams.get(&launch.team).cloned() else {
        return Ok(());
    };
    for resolution in found {
        let Some(entry) = current_entry(draft.board(), id, &resolution.member) else {
            continue;
        };
        if entry.state != MemberState::Queued || entry.prepared {
            // The member was already checked, or was left out in the meantime, so this report about
            // it is ignored.
            continue;
        }
        let MemberResolution {
            runtime,
            backend,
            mut program,
            keys,
            files,
            fast_mode,
            notes,
            problem,
            ..
        } = resolution;
        if let Some(models) = &mut program.models {
            models.truncate(MAX_MODELS);
        }
        let mut entry = add_evidence(
            entry,
            EvidenceSource::Process,
            describe_program(&program),
            now,
        );
        entry.program = Some(program);
        entry.notes.extend(notes);
        entry.effective.backend = backend.or(entry.effective.backend);
        // `Some(false)` records that fast mode was requested but is not available, and `None` that
        // it was not requested.
        entry.effective.fast_mode = fast_mode.or(entry.effective.fast_mode);
        let cannot = |kind, text: &str| {
            Some(super::MemberCause {
                kind,
                text: text.to_owned(),
            })
        };
        let problem = match (&runtime, problem) {
            (_, Some(problem)) => Some(problem),
            (None, None) => cannot(
                MemberCauseKind::Program,
                "it is unknown how to drive its program",
            ),
            (Some(runtime), None) if !runtime.accepts_follow_ups() => cannot(
                MemberCauseKind::Program,
                "its program takes one prompt and ends, so it cannot stay as a member; give it \
                tasks as an agent instead",
            ),
            (Some(_), None) => None,
        };
        if let (None, Some(runtime), Some(member)) = (&problem, runtime, team.member(&entry.name)) {
            provider_outage::clear_own_outage(draft, &entry.agent);
            let request = registration(&team, member, &entry, runtime, keys, files);
            match agent::register(draft, request, now) {
                Ok(_) => entry.prepared = true,
                Err(refusal) => {
                    entry = failed_entry(entry, MemberCauseKind::Program, &refusal.message(), now)
                }
            }
        }
        if let Some(super::MemberCause { kind, text }) = problem {
            entry = failed_entry(entry, kind, &text, now);
        }
        record_entry(draft, id, entry);
    }
    Ok(())
}

/// Describes for people the installed program that was found for a team member.
fn describe_program(program: &ProgramFacts) -> String {
    let version = program
        .version
        .as_deref()
        .map(|version| format!(" {version}"))
        .unwrap_or_default();
    let sign_in = program
        .sign_in
        .as_deref()
        .map(|sign_in| format!(", {sign_in}"))
        .unwrap_or_default();
    match &program.path {
        Some(path) => format!("found {path}{version}{sign_in}"),
        None => format!("no program was found{sign_in}"),
    }
}

/// Builds the request that registers a member's agent. A member without an environment uses the
/// lead's environment, but only if the member is on the lead's lane (start group) and has the
/// lead's provider (T5).
fn registration(
    team: &Team,
    member: &TeamMember,
    entry: &LaunchEntry,
    runtime: Runtime,
    keys: Vec<SecretVariable>,
    files: Vec<String>,
) -> RegisterAgent {
    let shares_environment =
        !entry.is_on_secondary_lane() && entry.effective.provider == team.provider(&team.lead);
    let lead_environment = team
        .lead
        .environment
        .as_ref()
        .filter(|_| shares_environment);
    let environment = member
        .environment
        .as_ref()
        .or(lead_environment)
        .and_then(|name| team.environments.get(name))
        .cloned()
        .unwrap_or_default();
    // A member whose environment has keys does not get the user's own keys or sign-in files.
    let (keys, mut write) = if environment.keys.is_empty() {
        (keys, files)
    } else {
        (environment.keys, vec![])
    };
    write.extend(environment.write);
    RegisterAgent {
        name: entry.agent.clone(),
        runtime,
        role: if entry.lead { Role::Lead } else { Role::Worker },
        provider: Some(entry.effective.provider.clone()),
        profile: Profile {
            preset: entry.effective.backend.clone(),
            model: entry.effective.model.clone(),
            effort: entry.effective.effort.clone(),
            fast_mode: entry.effective.fast_mode,
            cwd: entry.effective.cwd.clone(),
            mode: environment.mode,
            args: environment.args,
            env: environment.env.into_iter().collect(),
            keys,
            sandbox: environment.sandbox,
            egress: environment.egress,
            read: environment.read,
            write,
            title: member.role.clone().unwrap_or_default(),
            ..Profile::default()
        },
        description: format!(
            "{} of team {}",
            if entry.lead { "lead" } else { "member" },
            team.name
        ),
        max_tasks: member.max_tasks.unwrap_or(1),
    }
}

/// Performs the next step of a launch: starts members that are ready, skips those that cannot
/// start, or continues a stop.
pub(crate) fn advance(draft: &mut Draft, id: LaunchId, now: Now) {
    let Some(launch) = draft.board().launches.get(&id).cloned() else {
        return;
    };
    if launch.superseded {
        return;
    }
    if launch.stopping.is_some() {
        return wind_down(draft, &launch, now);
    }
    let policy = draft
        .board()
        .teams
        .get(&launch.team)
        .map(|team| team::lane_policy(draft.board(), team))
        .unwrap_or_default();
    let max_starting = policy.concurrency.max(1) as usize;
    let is_starting =
        |entry: &&LaunchEntry| entry.state.is_pending() && entry.state != MemberState::Queued;
    let is_ready = |entry: &&LaunchEntry| entry.state == MemberState::Queued && entry.prepared;
    // The lead and the members on its lane (start group) start first, before the members on other
    // lanes.
    let (secondary, primary): (Vec<&LaunchEntry>, Vec<&LaunchEntry>) = launch
        .members
        .iter()
        .partition(|entry| entry.is_on_secondary_lane());
    let free_slots =
        max_starting.saturating_sub(primary.iter().filter(|entry| is_starting(entry)).count());
    for entry in primary
        .iter()
        .filter(|entry| is_ready(entry))
        .take(free_slots)
    {
        start_member(draft, &launch, (*entry).clone(), vec![], now);
    }
    // A member on a lane (start group) of its own starts only when the lead is alive, and is
    // skipped if the lead does not run.
    let lead_state = launch
        .lead()
        .map_or(MemberState::Degraded, |entry| entry.state);
    match lead_state {
        MemberState::Alive => {
            let free_slots = max_starting
                .saturating_sub(secondary.iter().filter(|entry| is_starting(entry)).count());
            for entry in secondary
                .iter()
                .filter(|entry| is_ready(entry))
                .take(free_slots)
            {
                start_member(draft, &launch, (*entry).clone(), vec![], now);
            }
        }
        MemberState::FailedToStart
        | MemberState::Skipped
        | MemberState::Degraded
        | MemberState::Stopped => {
            for entry in secondary
                .into_iter()
                .filter(|entry| entry.state == MemberState::Queued)
            {
                let text = "it was not started, because the team's lead does not run";
                let skipped = LaunchEntry {
                    ended_unix_ms: Some(now.unix_ms),
                    ..entry.clone().changed(MemberChange::Skip)
                };
                record_entry(draft, id, skipped.with_cause(MemberCauseKind::NoLead, text));
            }
        }
        MemberState::Queued
        | MemberState::Starting
        | MemberState::PendingBootstrap
        | MemberState::PendingPermission => {}
    }
}

/// Starts a new session of a member whose previous session ended, and passes on the notes of that
/// session.
pub(super) fn restart_session(
    draft: &mut Draft,
    id: LaunchId,
    entry: LaunchEntry,
    notes: Vec<String>,
    now: Now,
) {
    if let Some(launch) = draft.board().launches.get(&id).cloned() {
        start_member(draft, &launch, entry, notes, now);
    }
}

/// Starts a member's session. Records in the member's entry that the member is starting, or the
/// reason why it could not be started.
fn start_member(
    draft: &mut Draft,
    launch: &TeamLaunch,
    entry: LaunchEntry,
    notes: Vec<String>,
    now: Now,
) {
    match open_session(draft, launch, &entry, notes, now) {
        Ok((task, attempt)) => {
            let entry = add_evidence(
                entry,
                EvidenceSource::Decision,
                format!("its session {attempt} is being created"),
                now,
            );
            let started_unix_ms = Some(now.unix_ms);
            let entry = LaunchEntry {
                task: Some(task),
                attempt: Some(attempt),
                started_unix_ms,
                ..entry.changed(MemberChange::Open)
            };
            record_entry(draft, launch.id, entry);
        }
        Err((kind, text)) => record_entry(draft, launch.id, failed_entry(entry, kind, &text, now)),
    }
}

/// Opens a member's session: adds a task that exists only to hold the session open, and starts an
/// attempt at this task. The attempt is the session.
fn open_session(
    draft: &mut Draft,
    launch: &TeamLaunch,
    entry: &LaunchEntry,
    notes: Vec<String>,
    now: Now,
) -> Result<(TaskId, AttemptId), (MemberCauseKind, String)> {
    let member = draft
        .board()
        .teams
        .get(&launch.team)
        .and_then(|team| team.member(&entry.name));
    let is_scripted = draft
        .board()
        .agents
        .get(&entry.agent)
        .is_some_and(|agent| agent.runtime == Runtime::Scripted);
    let script = member
        .and_then(|member| member.script.clone())
        .or_else(|| is_scripted.then(|| DEFAULT_SCRIPT.to_owned()));
    if let Some(parked) = draft
        .board()
        .agents
        .get(&entry.agent)
        .and_then(|agent| provider_outage::find_parked(draft.board(), agent))
    {
        return Err((
            MemberCauseKind::Provider,
            provider_outage::describe(parked, now),
        ));
    }
    let rank = if entry.lead { "lead" } else { "member" };
    let request = AddTask {
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
    let begin = attempt::BeginAttempt {
        agent: entry.agent.clone(),
        supervised: true,
        runner: None,
        lease_ms: attempt::DEFAULT_LEASE_MS,
        no_workspace: false,
        by_hand: false,
        gates: vec![],
    };
    let session = SessionOf {
        launch: launch.id,
        member: entry.name.clone(),
    };
    let environment_cause = |refusal: Refusal| (MemberCauseKind::Environment, refusal.message());
    let task = task::add(draft, request, None, now).map_err(environment_cause)?;
    task::set_purpose(draft, task, Purpose::Session(session), None).map_err(environment_cause)?;
    for note in notes {
        intervention::leave_note(draft, task, note);
    }
    task::start(draft, task, &begin, now)
        .map(|id| (task, id))
        .map_err(|refusal| {
            let text = refusal.message();
            let cancelled = task::cancel(draft, task, &text);
            debug_assert!(
                cancelled.is_ok(),
                "a task that was just added can be cancelled"
            );
            (MemberCauseKind::Environment, text)
        })
}

/// Queues a team member for another start after it failed to start, was skipped, or stopped
/// running.
pub fn retry(
    draft: &mut Draft,
    name: &TeamName,
    member: &MemberName,
    now: Now,
) -> Result<(), Refusal> {
    let team = team::find(draft.board(), name)?;
    let Some(launch) = latest_launch(draft.board(), &team).cloned() else {
        return Err(Refusal::invalid(
            format!("member {member} cannot be retried, because team {name} was never launched"),
            format!("launch the team: regatta team launch {name}"),
        ));
    };
    let Some(entry) = launch.entry(member).cloned() else {
        return Err(Refusal::invalid(
            format!(
                "member {member} cannot be retried, because it was not a member when team {name} \
                was launched"
            ),
            format!("launch the team again: regatta team relaunch {name}"),
        ));
    };
    if entry.lane.is_none()
        || recovery::lane_knowledge(&team, &launch, &team::lane_policy(draft.board(), &team))
            .has_missing_lanes()
    {
        return Err(Refusal::invalid(
            format!(
                "member {member} cannot be retried, because the record of the launch of team \
                {name} is incomplete"
            ),
            format!("launch the team again: regatta team relaunch {name}"),
        ));
    }
    if launch.stopping.is_some() || entry.state.is_pending() || has_session(draft.board(), &entry) {
        return Err(Refusal::InUse {
            what: format!("member {member} of {name}"),
            by: "its own session".into(),
        });
    }
    if entry.is_on_secondary_lane()
        && launch
            .lead()
            .is_none_or(|entry| entry.state != MemberState::Alive)
    {
        return Err(Refusal::invalid(
            format!(
                "member {member} cannot be started, because the lead of team {name} does not run"
            ),
            format!(
                "start the lead first: regatta team retry {name} {}",
                team.lead.name
            ),
        ));
    }
    let retried = LaunchEntry {
        cause: None,
        prepared: false,
        task: None,
        attempt: None,
        retries: entry.retries + 1,
        alive_since_unix_ms: None,
        ended_unix_ms: None,
        ..entry.changed(MemberChange::Retry)
    };
    record_entry(
        draft,
        launch.id,
        add_evidence(
            retried,
            EvidenceSource::Decision,
            "its lane is being retried".into(),
            now,
        ),
    );
    Ok(())
}

/// Restores the record of a team's launch from a backup file, unless the existing record is more
/// complete. Members that were running when the backup was made are recorded as down, because their
/// programs do not run here.
pub(crate) fn restore(
    draft: &mut Draft,
    name: &TeamName,
    record: TeamLaunch,
    now: Now,
) -> Result<(), Refusal> {
    let team = team::find(draft.board(), name).or_else(|refusal| {
        // `find` refuses deleted teams. A team that was deleted before the backup also gets its
        // record back, so it is looked up directly.
        draft.board().teams.get(name).cloned().ok_or(refusal)
    })?;
    if let Some(existing) = latest_launch(draft.board(), &team)
        && recovery::preferred_side(existing, &record) == recovery::RecordSide::Left
    {
        return Ok(());
    }
    supersede(draft, &team);
    let id = LaunchId(draft.board().counters.launch + 1);
    let settle = |entry: LaunchEntry| {
        let entry = LaunchEntry {
            attempt: None,
            task: None,
            prepared: false,
            ..entry
        };
        if !entry.state.is_pending() && entry.state != MemberState::Alive {
            return entry;
        }
        LaunchEntry {
            ended_unix_ms: Some(now.unix_ms),
            ..entry.changed(MemberChange::Degrade)
        }
        .with_cause(
            MemberCauseKind::Lost,
            "its record was restored from a file, and its process does not run here",
        )
    };
    let launch = TeamLaunch {
        id,
        team: name.clone(),
        project: team.project.clone(),
        members: record.members.into_iter().map(settle).collect(),
        stopping: None,
        superseded: false,
        reconciled_unix_ms: Some(now.unix_ms),
        revision: draft.next_revision(),
        updated_unix_ms: now.unix_ms,
        ..record
    };
    draft.record(Event::LaunchBegun(LaunchBegun {
        launch: launch.into(),
    }));
    team::set_launch(draft, name, id, false);
    recovery::reconcile(draft, id, now);
    Ok(())
}

/// Records a member's entry in the record of the launch, unless the record already has an equal
/// entry.
pub(crate) fn record_entry(draft: &mut Draft, id: LaunchId, entry: LaunchEntry) {
    let Some(launch) = draft.board().launches.get(&id) else {
        return;
    };
    if launch
        .entry(&entry.name)
        .is_none_or(|known| *known != entry)
    {
        draft.record(Event::LaunchMember(LaunchMember {
            launch: id,
            entry: entry.into(),
        }));
    }
}

/// Records that a member no longer runs, with the reason, after the record was compared with the
/// sessions that really run.
pub(crate) fn mark_down(
    draft: &mut Draft,
    id: LaunchId,
    entry: LaunchEntry,
    kind: MemberCauseKind,
    text: &str,
    now: Now,
) {
    let ended_unix_ms = entry.ended_unix_ms.or(Some(now.unix_ms));
    record_entry(
        draft,
        id,
        LaunchEntry {
            ended_unix_ms,
            ..entry.changed(MemberChange::Degrade)
        }
        .with_cause(kind, text),
    );
}

/// Records that a launch's record was compared with the sessions that really run.
pub(crate) fn record_reconciled(draft: &mut Draft, id: LaunchId, now: Now) {
    if draft
        .board()
        .launches
        .get(&id)
        .is_some_and(|launch| launch.reconciled_unix_ms.is_none() && launch.stopping.is_none())
    {
        draft.record(Event::LaunchChanged(LaunchChanged {
            launch: id,
            stopping: None,
            reconciled_wall: Some(now.unix_ms),
            superseded: false,
            told: None,
        }));
    }
}

/// Returns a copy of a member's current entry in the record of a launch.
pub(super) fn current_entry(board: &Board, id: LaunchId, name: &MemberName) -> Option<LaunchEntry> {
    board
        .launches
        .get(&id)
        .and_then(|launch| launch.entry(name))
        .cloned()
}

/// Adds an observation about the member to its entry, and removes the oldest observations if the
/// entry has more than [`MAX_EVIDENCE`].
pub(super) fn add_evidence(
    mut entry: LaunchEntry,
    source: EvidenceSource,
    text: String,
    now: Now,
) -> LaunchEntry {
    entry.evidence.push(MemberEvidence {
        unix_ms: now.unix_ms,
        source,
        text,
    });
    let more = entry.evidence.len().saturating_sub(MAX_EVIDENCE);
    entry.evidence.drain(..more);
    entry
}

/// Returns the member's entry changed to the state "failed to start", with the reason.
pub(super) fn failed_entry(
    entry: LaunchEntry,
    kind: MemberCauseKind,
    text: &str,
    now: Now,
) -> LaunchEntry {
    LaunchEntry {
        ended_unix_ms: Some(now.unix_ms),
        ..entry.changed(MemberChange::FailStart)
    }
    .with_cause(kind, text)
}

/// Returns the launch (one start of a team) with this id, or a refusal if there is none.
fn find(board: &Board, id: LaunchId) -> Result<Arc<TeamLaunch>, Refusal> {
    board.launches.get(&id).cloned().ok_or_else(|| {
        Refusal::missing(
            format!("launch {id} does not exist"),
            "see all teams: regatta team list",
        )
    })
}
