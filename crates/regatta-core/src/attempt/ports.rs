//! TCP ports that are reserved for an attempt, so that programs of attempts on one machine do not
//! use the same ports.

use crate::board::Draft;
use crate::claim;
use crate::event::Event;
use crate::ids::{AttemptId, Now, ProjectName};
use crate::refusal::Refusal;

use super::{AttemptPorted, require_attempt};

/// Reserves ports for an attempt. If `taken` is `None`, reserves as many ports as the project's
/// settings say. Otherwise reserves `taken` further ports, to replace ports that other programs
/// already use.
pub(crate) fn lease_ports(
    draft: &mut Draft,
    id: AttemptId,
    project: &ProjectName,
    taken: Option<usize>,
    now: Now,
) -> Result<Vec<u16>, Refusal> {
    let Some(settings) = draft
        .board()
        .projects
        .get(project)
        .map(|project| project.settings.workspace.clone())
    else {
        return Ok(vec![]);
    };
    match taken.unwrap_or(settings.ports as usize) {
        0 => Ok(vec![]),
        count => claim::lease_ports(draft, id, count, settings.port_range, now),
    }
}

/// Records the ports that are reserved for an attempt. Does nothing if `ports` is empty.
pub(crate) fn assign_ports(draft: &mut Draft, id: AttemptId, ports: Vec<u16>) {
    if !ports.is_empty() {
        draft.record(Event::AttemptPorted(AttemptPorted { attempt: id, ports }));
    }
}

/// Handles the report that other programs already listen on some of an attempt's ports, and
/// reserves other ports. The attempt also keeps its claims on the unusable ports until it ends, so
/// that no other attempt gets these ports.
pub fn on_ports_taken(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    taken: &[u16],
    now: Now,
) -> Result<(), Refusal> {
    let attempt = require_attempt(draft.board(), id, token)?;
    let taken_count = attempt
        .ports
        .iter()
        .filter(|port| taken.contains(port))
        .count();
    let mut replacements =
        lease_ports(draft, id, &attempt.project, Some(taken_count), now)?.into_iter();
    let replace_if_taken = |port: &u16| {
        if taken.contains(port) {
            replacements.next().unwrap_or(*port)
        } else {
            *port
        }
    };
    let ports = attempt.ports.iter().map(replace_if_taken).collect();
    if taken_count > 0 {
        assign_ports(draft, id, ports);
    }
    Ok(())
}
