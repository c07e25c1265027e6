//! Resolves a team launch: asks each member's program for its version, models and sign-in before
//! any of them is started.
//!
//! Which member is launched from which answer is decided in `regatta_core::launch`.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use regatta_core::agent::{Key, KeySource};
use regatta_core::command::Command;
use regatta_core::effect::EffectKey;
use regatta_core::ids::LaunchId;
use regatta_core::launch::{Cause, Entry, Program, Resolution, State, Why};
use regatta_core::team::Team;

use crate::Engine;
use crate::ports::agents::{Agents, Problem, Resolved, Wanted};

use super::report;

/// The largest number of programs that are asked at the same time. Each may take seconds to print
/// its version.
const AT_ONCE: usize = 8;

/// Asks the programs of all queued members, and reports their answers.
pub(super) fn resolve(engine: &Engine, key: EffectKey, id: LaunchId) {
    let board = engine.board();
    let Some(launch) = board.launches.get(&id) else { return report(engine, key, Command::ReportPerformed) };
    let Some(team) = board.teams.get(&launch.team) else { return report(engine, key, Command::ReportPerformed) };
    let waits: Vec<&Entry> = launch.members.iter().filter(|it| it.state == State::Queued && !it.prepared).collect();
    let agents = &*engine.shared.agents;
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(waits.len())));
    std::thread::scope(|scope| {
        for _ in 0..waits.len().min(AT_ONCE) {
            scope.spawn(|| {
                while let Some(entry) = waits.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = ask(agents, team, entry);
                    found.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Sorted by the roster, so that the same answers always give the same events.
    found.sort_by_key(|it| waits.iter().position(|entry| entry.name == it.member));
    report(engine, key, Command::ReportResolved { launch: id, found });
}

/// Asks one member's program what it can do with the member's settings.
fn ask(agents: &dyn Agents, team: &Team, entry: &Entry) -> Resolution {
    let environment = team.member(&entry.name).and_then(|it| team.environments.get(it.environment.as_ref()?));
    let wanted = Wanted {
        provider: entry.got.provider.clone(),
        backend: entry.got.backend.clone(),
        fast_mode: entry.got.fast_mode.unwrap_or_default(),
        model: entry.got.model.clone(),
        env: environment.map(|it| it.env.clone().into_iter().collect()).unwrap_or_default(),
        keys: environment.map(|it| it.keys.iter().map(|it| it.name.clone()).collect()).unwrap_or_default(),
    };
    let found = agents.resolve(&wanted);
    let Resolved { runtime, backend, program, version, sign_in, keys, files, fast_mode, models, notes, problem } =
        found;
    let cause = |(kind, error): (Problem, crate::ports::agents::AgentError)| Cause {
        kind: match kind {
            Problem::Missing => Why::Program,
            Problem::SignIn => Why::SignIn,
        },
        text: format!("{} {}", error.what, error.hint),
    };
    Resolution {
        member: entry.name.clone(),
        runtime,
        backend,
        program: Program { path: program.map(|it| it.display().to_string()), version, sign_in, models },
        fast_mode,
        keys: keys.into_iter().map(|it| Key { from: KeySource::Env(it.clone()), name: it }).collect(),
        files,
        notes,
        problem: problem.map(cause),
    }
}
