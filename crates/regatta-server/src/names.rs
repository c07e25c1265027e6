//! Readable names: two words, chosen by a number so that the same number gives the same name.

use regatta_core::board::Board;
use regatta_core::ids::AgentName;

const FIRST: [&str; 32] = [
    "amber", "brisk", "calm", "coral", "crisp", "dawn", "deep", "dusk", "early", "fair", "fleet", "frost", "gentle",
    "golden", "green", "keen", "late", "light", "lucid", "mellow", "misty", "noble", "pale", "quiet", "rapid",
    "silver", "steady", "still", "swift", "tidal", "warm", "wild",
];
const SECOND: [&str; 32] = [
    "anchor", "bay", "beacon", "bow", "breeze", "buoy", "cape", "castle", "channel", "cove", "current", "delta",
    "drift", "ferry", "harbour", "island", "keel", "lagoon", "lantern", "mast", "oar", "pier", "port", "reef", "river",
    "rudder", "sail", "shore", "sound", "strait", "tide", "wave",
];

/// A name that no agent, claim or message on the board uses.
pub(crate) fn fresh(board: &Board, seed: u64) -> AgentName {
    for round in 0.. {
        // An odd factor walks through all pairs before it repeats.
        let pick = (seed.wrapping_add(round)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let (first, second) = (FIRST[pick as usize % 32], SECOND[(pick as usize / 32) % 32]);
        let text = if round < 2_000 { format!("{first}-{second}") } else { format!("{first}-{second}-{round}") };
        let name = AgentName::new(&text).expect("two plain words make a name");
        let taken = board.agents.keys().any(|it| it.as_str().ends_with(name.as_str()))
            || board.claims.values().any(|it| it.owner.to_string().ends_with(name.as_str()));
        if !taken {
            return name;
        }
    }
    unreachable!("numbers never run out")
}
