//! Claims on TCP ports of the machine, which attempts reserve for their programs.

use crate::board::Draft;
use crate::ids::{AttemptId, Now};
use crate::pattern::Uri;
use crate::refusal::Refusal;

use super::grant::grant_owned;
use super::{ClaimMode, ClaimOwner, conflicting_holders};

/// Returns the lowest `count` free ports of a range: ports that nobody holds or waits for. Refuses
/// and names some holders if too few ports are free.
pub(crate) fn free_ports(
    draft: &Draft,
    count: usize,
    range: (u16, u16),
    now: Now,
) -> Result<Vec<u16>, Refusal> {
    let (mut ports, mut holders) = (Vec::new(), Vec::new());
    for port in range.0..=range.1 {
        if ports.len() == count {
            break;
        }
        let port_holders = conflicting_holders(
            draft,
            &[Uri::for_port(port)],
            ClaimMode::Exclusive,
            None,
            now,
        );
        if port_holders.is_empty() {
            ports.push(port);
        } else if holders.len() < 5 {
            holders.extend(port_holders);
        }
    }
    if ports.len() == count {
        return Ok(ports);
    }
    if holders.is_empty() {
        return Err(Refusal::invalid(
            format!(
                "workspace.ports is {count}, but workspace.port_range {}-{} has fewer ports",
                range.0, range.1
            ),
            "widen workspace.port_range in regatta.toml, or lower workspace.ports",
        ));
    }
    Err(Refusal::ClaimHeld { holders })
}

/// Reserves ports for an attempt for as long as it lives. The ports are not passed on to the
/// landing of its work ([`super::transfer_all`]), because a landing runs no server.
pub(crate) fn lease_ports(
    draft: &mut Draft,
    attempt: AttemptId,
    count: usize,
    range: (u16, u16),
    now: Now,
) -> Result<Vec<u16>, Refusal> {
    let ports = free_ports(draft, count, range, now)?;
    // Each port is a claim of its own, so that a port that another program already uses can be
    // replaced alone.
    for port in &ports {
        grant_owned(
            draft,
            ClaimOwner::Attempt(attempt),
            vec![Uri::for_port(*port)],
            ClaimMode::Exclusive,
            now,
        );
    }
    Ok(ports)
}
