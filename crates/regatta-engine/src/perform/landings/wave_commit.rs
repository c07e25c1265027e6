//! Makes one commit of all landings of a wave (tasks of a mission that ran at the same time):
//! merges the landings one after the other, then squashes their commits into one whose message
//! names all of them.

use regatta_core::board::Board;
use regatta_core::ids::CommitId;
use regatta_core::landing::{CarriedLanding, TrialOutcome, wave_commit};

use crate::Engine;
use crate::ports::git::{AuthoredChange, Authorship};

use super::{TrialBatch, TrialMember, landing_authorship};

/// The wave (tasks that ran at the same time) whose landings are currently being merged into one
/// commit.
#[derive(Default)]
pub(super) struct OpenWave {
    wave: Option<wave_commit::WaveId>,
    /// The commit onto which the first landing of the wave (tasks that ran at the same time) was
    /// merged. `None` before the first landing.
    base_tip: Option<CommitId>,
    /// The position of the wave's first landing among the landings of the trial. A wave consists of
    /// the tasks that ran at the same time.
    first_member: usize,
}

impl OpenWave {
    /// Returns whether the current landing belongs to a wave (tasks that ran at the same time),
    /// whose commits are squashed into one.
    pub(super) fn is_in_wave(&self) -> bool {
        self.wave.is_some()
    }

    /// Prepares for merging the next landing (finished work of one task) onto `tip`. If this
    /// landing does not belong to the open wave (tasks that ran at the same time), closes that wave
    /// first. Returns the commit onto which to merge the landing.
    pub(super) fn begin_member(
        &mut self,
        engine: &Engine,
        (batch, board): (&TrialBatch, &Board),
        carries: &mut [CarriedLanding],
        tip: CommitId,
    ) -> Result<CommitId, TrialOutcome> {
        let next = batch
            .members
            .get(carries.len())
            .and_then(|member| wave_commit::wave_of(board, &member.landing));
        if next.is_some() && next == self.wave {
            return Ok(tip);
        }
        let tip = self.close(engine, (batch, board), carries, tip)?;
        *self = OpenWave {
            wave: next,
            base_tip: Some(tip.clone()),
            first_member: carries.len(),
        };
        Ok(tip)
    }

    /// Squashes the landings of the open wave (tasks that ran at the same time) into one commit if
    /// there is more than one landing. Returns the commit that is the newest afterwards.
    pub(super) fn close(
        &self,
        engine: &Engine,
        (batch, board): (&TrialBatch, &Board),
        carries: &mut [CarriedLanding],
        tip: CommitId,
    ) -> Result<CommitId, TrialOutcome> {
        let (Some(wave), Some(onto)) = (self.wave, &self.base_tip) else {
            return Ok(tip);
        };
        let members = &batch.members[self.first_member..carries.len()];
        if members.len() < 2 || tip == *onto {
            return Ok(tip);
        }
        let change = AuthoredChange {
            commit: tip,
            authorship: wave_authorship(batch, board, wave, members),
        };
        let squashed = engine.shared.git.squash_range(&batch.repo, onto, &change);
        let squashed = squashed.map_err(|error| TrialOutcome::Held {
            landing: None,
            reason: error.to_string(),
        })?;
        // The squashed commit of the wave (tasks that ran at the same time) stands for all landings
        // of the wave, even for landings that changed nothing. So all of these landings count as
        // landed with that commit.
        carries[self.first_member..]
            .iter_mut()
            .for_each(|carried| carried.commit = squashed.clone());
        Ok(squashed)
    }
}

/// Returns the author and the message of the commit of a wave (tasks that ran at the same time).
/// The same landings always give the same text.
fn wave_authorship(
    batch: &TrialBatch,
    board: &Board,
    (mission, step): wave_commit::WaveId,
    members: &[TrialMember],
) -> Authorship {
    let mut members: Vec<&TrialMember> = members.iter().collect();
    members.sort_by_key(|member| member.task.id);
    let mut agents: Vec<&str> = members
        .iter()
        .map(|member| member.landing.agent.as_str())
        .collect();
    agents.sort_unstable();
    agents.dedup();
    let title = board
        .missions
        .get(&mission)
        .map_or("", |mission| mission.title.trim());
    let mut message = format!("{title}: wave {step} of {mission}\n\n");
    for member in &members {
        message += &format!("- {}: {}\n", member.task.id, member.task.subject);
    }
    let trailers = members
        .iter()
        .flat_map(|member| message_trailers(&landing_authorship(batch, member).message));
    message += &format!(
        "\nRegatta-Mission: {mission}\n{}",
        trailers.collect::<String>()
    );
    let seconds = members
        .iter()
        .map(|member| member.landing.queued_unix_ms / 1_000)
        .max()
        .unwrap_or(0);
    let name = if let [only] = agents.as_slice() {
        (*only).to_owned()
    } else {
        "regatta".to_owned()
    };
    Authorship {
        email: format!("{}@regatta.invalid", name.replace('/', ".")),
        name,
        message,
        unix_seconds: seconds,
    }
}

/// Returns the lines of the last paragraph of a commit message, which contains the trailers such as
/// `Regatta-Task: T3`.
fn message_trailers(message: &str) -> Vec<String> {
    let last = message.trim_end().rsplit("\n\n").next().unwrap_or_default();
    last.lines().map(|line| format!("{line}\n")).collect()
}
