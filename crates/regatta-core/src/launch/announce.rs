//! Announces the result of a team's launch in the project's channel, with the same sentence as the
//! team's summary (T6).

use crate::board::Draft;
use crate::bus;
use crate::event::Event;
use crate::ids::{Label, LaunchId, Now};
use crate::refusal::Refusal;

use super::{LaunchChanged, LaunchPhase, summary};

/// Announces a launch's result in the project's channel, if it differs from the last announcement.
/// Announces nothing while members are still starting or stopping.
pub(crate) fn announce(draft: &mut Draft, id: LaunchId, now: Now) -> Result<(), Refusal> {
    let Some(launch) = draft.board().launches.get(&id).cloned() else {
        return Ok(());
    };
    let Some(team) = draft.board().teams.get(&launch.team).cloned() else {
        return Ok(());
    };
    let headline = summary(draft.board(), &team).headline;
    if launch.phase() == LaunchPhase::Active || launch.announced.as_ref() == Some(&headline) {
        return Ok(());
    }
    draft.record(Event::LaunchChanged(LaunchChanged {
        launch: id,
        stopping: launch.stopping.clone(),
        reconciled_wall: launch.reconciled_unix_ms,
        superseded: false,
        told: Some(headline.clone()),
    }));
    let labels = Label::new(&format!("team:{}", team.name))
        .into_iter()
        .collect();
    let text = format!("team {}: {headline}", team.name);
    bus::post_as_regatta(
        draft,
        bus::channel_of(&team.project),
        text,
        (labels, None),
        now,
    )
    .map(|_| ())
}
