//! How a queue stands: in the order of the trunk to be, who rides in which train.
//!
//! A trial's state is kept in the row of its last landing; those before it in the same train are queued there, and are
//! being tested or moved all the same. Here each says what it truly is.

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::ids::{LandingId, Now, ProjectName};

use super::{Landing, State, queue};

/// What a landing is at, in its own train or aboard another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Ride {
    // What is nearest to the trunk first.
    Moving,
    /// It passed and waits for the trunk.
    Passed,
    Testing,
    /// A train with it failed; which of them it is, is searched.
    Searching,
    Queued,
    /// It waits for those that it conflicts with.
    Behind,
    /// It is held until something changes, or its time has come.
    Held,
}

/// Landings that go together, in order: one trial's that no shorter one carries, or one that goes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub ride: Ride,
    pub cars: Vec<LandingId>,
    /// The last landing of the batch that it stands on; nothing where it stands on the trunk.
    pub on: Option<LandingId>,
    /// Why the train that ends in it failed.
    pub failed: Option<String>,
}

/// The whole queue of a project, from the trunk on: those that may be tried in their order, then who stands aside.
pub fn of(board: &Board, project: &ProjectName, now: Now) -> Vec<Batch> {
    let order = queue::order(board, project, now);
    let aside = board.queue_of(project).map(|it| it.id).filter(|it| !order.contains(it));
    let mut batches: Vec<(Option<LandingId>, Batch)> = Vec::new();
    for id in order.iter().copied().chain(aside) {
        let Some(landing) = board.landings.get(&id) else { continue };
        let (ride, last) = ride(board, landing);
        match batches.last_mut().filter(|it| last.is_some() && it.0 == last && it.1.ride == ride) {
            Some((_, batch)) => batch.cars.push(id),
            None => {
                let tried = matches!(ride, Ride::Moving | Ride::Passed | Ride::Testing);
                let on = batches.last().and_then(|it| it.1.cars.last()).copied().filter(|_| tried);
                batches.push((last, Batch { ride, cars: vec![id], on, failed: None }));
            }
        }
        if let (Ride::Searching, Some((_, batch))) = (ride, batches.last_mut()) {
            batch.failed = last.and_then(|it| board.landings.get(&it)?.red.as_ref()).map(|it| it.reason.clone());
        }
    }
    batches.into_iter().map(|it| it.1).collect()
}

/// What a landing is at, and in which landing the train ends that says so.
fn ride(board: &Board, landing: &Landing) -> (Ride, Option<LandingId>) {
    if landing.held.is_some() {
        return (Ride::Held, None);
    }
    let others = || board.queue_of(&landing.project);
    // The shortest train with it that failed.
    let red = others().filter_map(|it| {
        let red = it.red.as_ref().filter(|_| !queue::is_behind(board, it))?;
        (it.id == landing.id || red.ahead.contains(&landing.id)).then_some((red.ahead.len() + 1, it.id))
    });
    let red = red.min();
    let trains = others().filter_map(|it| {
        let ride = match &it.state {
            State::Moving { .. } => Ride::Moving,
            // It says nothing of those ahead of it whose own trial is still to pass (Q1).
            State::Validated { .. } if it.id != landing.id && !queue::is_verified(board, it) => return None,
            State::Validated { .. } => Ride::Passed,
            State::Trying { void: false, .. } => Ride::Testing,
            State::Trying { .. } | State::Queued => return None,
        };
        let train = it.train();
        // One that carries a train which failed says nothing new of it. One as long is that one, once more: all that
        // are tried begin with the same, in one order.
        let stale = |(length, _): (usize, LandingId)| ride == Ride::Testing && train.len() > length;
        (train.contains(&landing.id) && !red.is_some_and(stale)).then_some((ride, train.len(), it.id))
    });
    match (trains.min(), red) {
        (Some((ride, _, last)), _) => (ride, Some(last)),
        (None, Some((_, last))) => (Ride::Searching, Some(last)),
        (None, None) if queue::is_behind(board, landing) => (Ride::Behind, None),
        (None, None) => (Ride::Queued, None),
    }
}
