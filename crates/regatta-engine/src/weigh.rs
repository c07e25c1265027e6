//! What the world has to say before a start: how the trunk stands, and what room the machine has.
//!
//! Looking takes some milliseconds, and a start must not wait for them each time. So a round of polls uses what was seen
//! a moment ago and looks again afterwards; only what is old is looked at before.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use regatta_core::board::Board;
use regatta_core::gates::{Base, Facts};
use regatta_core::ids::MissionId;

use crate::Engine;
use crate::perform::workspaces;
use crate::ports::git::{GitError, Repo};

/// How old what was seen may be before it is looked at again, after a round of polls.
pub(crate) const FRESH: Duration = Duration::from_secs(2);
/// How old it may be to be used at all.
const STALE: Duration = Duration::from_secs(30);

/// What was seen for each mission, and when.
#[derive(Default)]
pub(crate) struct Scales {
    seen: BTreeMap<MissionId, (Instant, Facts)>,
}

impl Scales {
    /// What is known for a mission; looked at now if nothing is.
    pub(crate) fn facts(&mut self, engine: &Engine, board: &Board, mission: MissionId) -> Facts {
        match self.seen.get(&mission) {
            Some((at, facts)) if at.elapsed() < STALE => facts.clone(),
            _ => self.look(engine, board, mission),
        }
    }

    /// Looks again at what is no longer fresh. Returns whether something looks different.
    pub(crate) fn refresh(&mut self, engine: &Engine, board: &Board) -> bool {
        self.seen.retain(|id, _| board.missions.contains_key(id));
        let old: Vec<(MissionId, Facts)> = self
            .seen
            .iter()
            .filter(|(_, (at, _))| at.elapsed() >= FRESH)
            .map(|(id, (_, facts))| (*id, facts.clone()))
            .collect();
        let mut changed = false;
        for (id, before) in old {
            let now = self.look(engine, board, id);
            // How much is free changes all the time; where something is held up, it is asked again anyway.
            changed |= now.base != before.base;
        }
        changed
    }

    fn look(&mut self, engine: &Engine, board: &Board, id: MissionId) -> Facts {
        let facts = Facts {
            runner: None,
            memory_mb: engine.shared.agents.free_memory_mb(),
            disk_mb: room(engine, board, id),
            base: base(engine, board, id),
        };
        self.seen.insert(id, (Instant::now(), facts.clone()));
        facts
    }
}

/// What the disk has free, or what the project's own bound leaves if that is less.
fn room(engine: &Engine, board: &Board, id: MissionId) -> Option<u64> {
    let free = engine.shared.git.free_disk_mb();
    let project = board.missions.get(&id).and_then(|it| board.projects.get(&it.project));
    let bound = project.and_then(|it| {
        workspaces::room_left_mb(engine, it).unwrap_or_else(|error| {
            tracing::warn!(project = %it.name, "what its workspaces take cannot be found out: {error}");
            None
        })
    });
    free.into_iter().chain(bound).min()
}

fn base(engine: &Engine, board: &Board, id: MissionId) -> Option<Base> {
    let mission = board.missions.get(&id)?;
    let repo = Repo::of(board.projects.get(&mission.project)?);
    let git = &engine.shared.git;
    let look = || -> Result<Base, GitError> {
        let trunk = git.trunk(&repo)?;
        let holds = match &mission.landed.last {
            Some(last) if *last == trunk.tip => Some((last.clone(), true)),
            Some(last) => Some((last.clone(), git.contains(&repo, &trunk.tip, last)?)),
            None => None,
        };
        Ok(Base::There { tip: trunk.tip, upstream: trunk.upstream, behind: trunk.behind, holds })
    };
    Some(look().unwrap_or_else(|error| Base::Broken { reason: format!("{}: {}", error.what, error.hint) }))
}
