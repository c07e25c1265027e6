//! Prepares the launch of a team: asks the program of each member for its version, models and
//! sign-in before any member is started.
//!
//! `regatta_core::launch` decides from the answers which members are launched.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use regatta_core::agent::{SecretSource, SecretVariable};
use regatta_core::command::Report;
use regatta_core::effect::EffectKey;
use regatta_core::ids::LaunchId;
use regatta_core::launch::{
    LaunchEntry, MemberCause, MemberCauseKind, MemberResolution, MemberState, ProgramFacts,
};
use regatta_core::team::Team;

use crate::Engine;
use crate::ports::agents::{AgentSpec, Agents, LaunchProblem, ResolvedAgent};

use super::report_effect;

/// The largest number of programs that are asked at the same time. Each program may take seconds to
/// print its version.
const MAX_CONCURRENT_PROGRAMS: usize = 8;

/// Asks the programs of all members that are queued for launch, and reports their answers to the
/// board (the state of all unfinished work).
pub(super) fn resolve_members(engine: &Engine, key: EffectKey, id: LaunchId) {
    let board = engine.board();
    let Some(launch) = board.launches.get(&id) else {
        return report_effect(engine, key, Report::Performed);
    };
    let Some(team) = board.teams.get(&launch.team) else {
        return report_effect(engine, key, Report::Performed);
    };
    let queued: Vec<&LaunchEntry> = launch
        .members
        .iter()
        .filter(|launch| launch.state == MemberState::Queued && !launch.prepared)
        .collect();
    let agents = &*engine.shared.agents;
    let (next, answers) = (
        AtomicUsize::new(0),
        Mutex::new(Vec::with_capacity(queued.len())),
    );
    std::thread::scope(|scope| {
        for _ in 0..queued.len().min(MAX_CONCURRENT_PROGRAMS) {
            scope.spawn(|| {
                while let Some(entry) = queued.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = resolve_member(agents, team, entry);
                    answers
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(answer);
                }
            });
        }
    });
    let mut answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Sort the answers by the order of the team's members, so that the same answers always give the
    // same events.
    answers.sort_by_key(|resolution| {
        queued
            .iter()
            .position(|entry| entry.name == resolution.member)
    });
    report_effect(
        engine,
        key,
        Report::TeamResolved {
            launch: id,
            found: answers,
        },
    );
}

/// Asks one member's program whether it can run with the member's settings, such as its model.
fn resolve_member(agents: &dyn Agents, team: &Team, entry: &LaunchEntry) -> MemberResolution {
    let environment = team
        .member(&entry.name)
        .and_then(|member| team.environments.get(member.environment.as_ref()?));
    let spec = AgentSpec {
        provider: entry.effective.provider.clone(),
        backend: entry.effective.backend.clone(),
        is_fast_mode: entry.effective.fast_mode.unwrap_or_default(),
        model: entry.effective.model.clone(),
        env: environment
            .map(|environment| environment.env.clone().into_iter().collect())
            .unwrap_or_default(),
        keys: environment
            .map(|environment| {
                environment
                    .keys
                    .iter()
                    .map(|variable| variable.name.clone())
                    .collect()
            })
            .unwrap_or_default(),
    };
    let ResolvedAgent {
        runtime,
        backend,
        program,
        version,
        sign_in,
        keys,
        files,
        fast_mode,
        models,
        notes,
        problem,
    } = agents.resolve(&spec);
    let cause = |(kind, error): (LaunchProblem, crate::ports::agents::AgentError)| MemberCause {
        kind: match kind {
            LaunchProblem::ProgramMissing => MemberCauseKind::Program,
            LaunchProblem::NotSignedIn => MemberCauseKind::SignIn,
        },
        text: format!("{} {}", error.message, error.hint),
    };
    MemberResolution {
        member: entry.name.clone(),
        runtime,
        backend,
        program: ProgramFacts {
            path: program.map(|path| path.display().to_string()),
            version,
            sign_in,
            models,
        },
        fast_mode,
        keys: keys
            .into_iter()
            .map(|variable| SecretVariable {
                from: SecretSource::Env(variable.clone()),
                name: variable,
            })
            .collect(),
        files,
        notes,
        problem: problem.map(cause),
    }
}
