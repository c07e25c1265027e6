//! Generates readable names for new agents, such as `amber-reef` or `shop-dev/lead-cobalt-fjord`.
//!
//! A name is computed from the number of the last event and a given number (the salt) and not from
//! a random number, so a repeated decision gives the same name. A name that is registered, claimed
//! or used to read messages is never generated.

use crate::board::Board;
use crate::claim::ClaimOwner;
use crate::ids::AgentName;
use crate::pattern::Uri;
use crate::refusal::Refusal;

const FIRST_WORDS: [&str; 64] = [
    "amber", "ashen", "azure", "birch", "bold", "brass", "brave", "bright", "calm", "cedar",
    "clear", "cobalt", "copper", "coral", "crimson", "crisp", "dawn", "deep", "dusky", "early",
    "ebony", "even", "fair", "fleet", "fresh", "frosty", "gentle", "gilded", "golden", "grand",
    "green", "hazel", "hidden", "honest", "indigo", "ivory", "jade", "keen", "late", "lively",
    "lucid", "lunar", "maple", "mellow", "misty", "noble", "north", "ochre", "olive", "opal",
    "pale", "plain", "quiet", "rapid", "russet", "sable", "scarlet", "silver", "solar", "steady",
    "swift", "teal", "umber", "vivid",
];

const SECOND_WORDS: [&str; 64] = [
    "anchor", "bay", "beacon", "bluff", "bow", "breeze", "brook", "buoy", "cape", "cliff", "cloud",
    "cove", "creek", "crest", "current", "delta", "dune", "eddy", "ember", "fjord", "flint",
    "foam", "fog", "forge", "frost", "gale", "gull", "harbor", "haven", "heath", "helm", "heron",
    "inlet", "isle", "jetty", "keel", "lagoon", "lantern", "ledge", "marsh", "mast", "meadow",
    "mist", "moor", "oar", "otter", "pebble", "petrel", "pier", "pine", "quay", "rapids", "reef",
    "ridge", "rudder", "sail", "shoal", "skiff", "spray", "stone", "strait", "surf", "tide",
    "wave",
];

/// The number of words that a generated name has after its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameLength {
    /// One word, such as `worker-frost`. When all 64 words are used, numbers are added.
    One,
    /// Two words, such as `lead-amber-reef`. When all 4,096 pairs are used, numbers are added.
    Two,
}

/// Returns an unused name that begins with `prefix`. The same state and the same salt (a number)
/// give the same name, so a caller that needs several names at once passes different salts.
pub fn unused_name(
    board: &Board,
    prefix: &str,
    words: NameLength,
    salt: u64,
) -> Result<AgentName, Refusal> {
    unused_names(board, prefix, words, salt, 1)
        .map(|mut agents| agents.pop().expect("one was asked for"))
}

/// Returns `count` different unused names that begin with `prefix`; see [`unused_name`].
pub fn unused_names(
    board: &Board,
    prefix: &str,
    words: NameLength,
    salt: u64,
    count: usize,
) -> Result<Vec<AgentName>, Refusal> {
    let name_count = match words {
        NameLength::One => SECOND_WORDS.len(),
        NameLength::Two => FIRST_WORDS.len() * SECOND_WORDS.len(),
    };
    let start = usize::try_from(hash_pair(board.revision, salt) % name_count as u64).unwrap_or(0);
    // The number of possible names is a power of two, so walking in steps of an odd number reaches
    // each name once, not in alphabetical order.
    let step = 0x9e5;
    let mut found: Vec<AgentName> = Vec::new();
    for index in 0.. {
        if found.len() >= count {
            break;
        }
        let position = (start + index * step) % name_count;
        let word = match words {
            NameLength::One => SECOND_WORDS[position].to_owned(),
            NameLength::Two => format!(
                "{}-{}",
                FIRST_WORDS[position / SECOND_WORDS.len()],
                SECOND_WORDS[position % SECOND_WORDS.len()]
            ),
        };
        let round = index / name_count + 1;
        let name = if round == 1 {
            format!("{prefix}{word}")
        } else {
            format!("{prefix}{word}-{round}")
        };
        let name = AgentName::new(&name).map_err(|error| {
            Refusal::invalid(
                error.to_string(),
                "use a prefix of letters, digits, - _ . and / between parent and child",
            )
        })?;
        if !is_used(board, &name) && !found.contains(&name) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Returns whether an agent's name is in use: an agent with this name is registered, belongs to a
/// mission, holds or waits for a claim, works, or has read messages, or somebody claims the name.
pub fn is_used(board: &Board, name: &AgentName) -> bool {
    let owner = ClaimOwner::Agent(name.clone());
    let claimed = Uri::new(&format!("agent://{name}")).is_ok_and(|uri| {
        board.held_patterns.overlapping(&uri).next().is_some()
            || board.awaited_patterns.overlapping(&uri).next().is_some()
    });
    board.agents.contains_key(name)
        || claimed
        || board.running_by_agent.contains_key(name)
        || !board.claims_of(&owner).is_empty()
        || !board.waits_of(&owner).is_empty()
        || board
            .missions
            .values()
            .any(|mission| mission.agents.contains(name))
        || board.cursors.keys().any(|(reader, _)| reader == name)
}

/// Mixes two numbers into one that looks random, with the last steps of the SplitMix64 generator.
fn hash_pair(revision: u64, salt: u64) -> u64 {
    let mut hash =
        revision.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xd1b5_4a32_d192_ed03);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::agent::{RegisterAgent, Role, Runtime};
    use crate::board::Draft;
    use crate::claim::{self, Acquire, ClaimMode};
    use crate::ids::{ChannelName, MessageId, Now};

    fn at_revision(mut board: Board, revision: u64) -> Board {
        board.revision = revision;
        board
    }

    fn register(draft: &mut Draft, name: &AgentName) {
        let request = RegisterAgent {
            name: name.clone(),
            runtime: Runtime::Outside,
            role: Role::Worker,
            provider: None,
            profile: Default::default(),
            description: String::new(),
            max_tasks: 1,
        };
        crate::agent::register(draft, request, Now::default()).unwrap();
    }

    #[test]
    fn a_name_is_derived_from_the_revision_and_the_salt() {
        let board = at_revision(Board::default(), 7);
        let name = unused_name(&board, "shop-dev/lead-", NameLength::Two, 0).unwrap();
        assert_eq!(
            unused_name(&board, "shop-dev/lead-", NameLength::Two, 0).unwrap(),
            name
        );
        assert!(name.as_str().starts_with("shop-dev/lead-"));
        assert_eq!(name.as_str().matches('-').count(), 3, "{name}");
        let later = at_revision(Board::default(), 8);
        assert_ne!(
            unused_name(&later, "shop-dev/lead-", NameLength::Two, 0).unwrap(),
            name
        );
        assert_ne!(
            unused_name(&board, "shop-dev/lead-", NameLength::Two, 1).unwrap(),
            name
        );
        assert!(unused_name(&board, "-x", NameLength::One, 0).is_err());
        assert!(unused_name(&board, "a b/", NameLength::One, 0).is_err());
    }

    #[test]
    fn a_name_in_use_is_never_given_again() {
        let now = Now::default();
        let mut draft = Draft::new(&Board::default(), now);
        let mut given = BTreeSet::new();
        // After 64 names the words run out and are numbered.
        for _ in 0..150 {
            let name = unused_name(draft.board(), "a/worker-", NameLength::One, 1).unwrap();
            assert!(given.insert(name.clone()), "{name} was given twice");
            register(&mut draft, &name);
        }
        let uses: [fn(&mut Draft, AgentName); 3] = [
            |draft, name| {
                let uris = vec![Uri::new(&format!("agent://{name}")).unwrap()];
                let owner = ClaimOwner::Agent(AgentName::new("somebody").unwrap());
                let request = Acquire {
                    owner,
                    uris,
                    mode: ClaimMode::Exclusive,
                    ttl_ms: 1000,
                    wait_ms: 0,
                    memo: String::new(),
                };
                claim::acquire(draft, request, Now::default()).unwrap();
            },
            |draft, name| {
                let uris = vec![Uri::new(&format!("message://{name}")).unwrap()];
                let owner = ClaimOwner::Agent(name);
                let request = Acquire {
                    owner,
                    uris,
                    mode: ClaimMode::Exclusive,
                    ttl_ms: 1000,
                    wait_ms: 0,
                    memo: String::new(),
                };
                claim::acquire(draft, request, Now::default()).unwrap();
            },
            |draft, name| {
                let channel = ChannelName::new("shop").unwrap();
                let text = "hello".to_owned();
                let post = crate::bus::PostMessage {
                    channel: channel.clone(),
                    text,
                    labels: vec![],
                    reply_to: None,
                };
                crate::bus::post(draft, post, crate::command::Actor::Regatta, Now::default())
                    .unwrap();
                crate::bus::mark_read(draft, name, channel, MessageId(1)).unwrap();
            },
        ];
        for put_to_use in uses {
            let board = at_revision(Board::default(), 7);
            let name = unused_name(&board, "", NameLength::Two, 5).unwrap();
            let mut draft = Draft::new(&board, now);
            put_to_use(&mut draft, name.clone());
            let used = at_revision(draft.board().clone(), 7);
            assert!(is_used(&used, &name), "{name}");
            assert_ne!(unused_name(&used, "", NameLength::Two, 5).unwrap(), name);
        }
    }

    #[test]
    fn several_names_are_all_different_and_no_word_is_listed_twice() {
        let names = unused_names(&Board::default(), "", NameLength::Two, 3, 4_096 + 10).unwrap();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert_eq!(
            names
                .iter()
                .filter(|agent| agent.as_str().ends_with("-2"))
                .count(),
            10
        );
        let words: BTreeSet<&str> = FIRST_WORDS.iter().chain(&SECOND_WORDS).copied().collect();
        assert_eq!(words.len(), 128, "a word is listed twice");
        assert!(FIRST_WORDS.is_sorted() && SECOND_WORDS.is_sorted());
    }
}
