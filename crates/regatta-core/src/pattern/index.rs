//! An index of claimed URIs and patterns, to find quickly those that overlap a given one.
//!
//! Each pattern is stored under its prefix, the whole segments before its first wildcard. Two
//! patterns can overlap only if the prefix of one pattern is the beginning of the prefix of the
//! other, so a search looks at few entries. The exact test for an overlap is in `overlap.rs`.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use super::Uri;

/// Maps patterns to the number of their owner, such as the id of a claim, and finds the patterns
/// that overlap a given one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PatternIndex {
    /// Stored patterns with the numbers of their owners, by the part of the pattern before its
    /// first wildcard. Each list is sorted.
    by_prefix: OrdMap<Arc<str>, Vec<(u64, Uri)>>,
}

impl PatternIndex {
    /// Adds the patterns of the owner with this number to the index.
    pub fn insert(&mut self, number: u64, uris: &[Uri]) {
        for uri in uris {
            let prefix = uri.literal_prefix();
            match self.by_prefix.get_mut(prefix) {
                Some(entries) => {
                    let index = entries
                        .partition_point(|(owner, pattern)| (*owner, pattern) < (number, uri));
                    entries.insert(index, (number, uri.clone()));
                }
                // A URI without wildcards is equal to its prefix, so the key can share the URI's
                // memory.
                None if prefix.len() == uri.0.len() => {
                    _ = self
                        .by_prefix
                        .insert(uri.0.clone(), vec![(number, uri.clone())])
                }
                None => {
                    _ = self
                        .by_prefix
                        .insert(prefix.into(), vec![(number, uri.clone())])
                }
            }
        }
    }

    /// Removes the patterns of the owner with this number from the index.
    pub fn remove(&mut self, number: u64, uris: &[Uri]) {
        for uri in uris {
            let prefix = uri.literal_prefix();
            let Some(entries) = self.by_prefix.get_mut(prefix) else {
                continue;
            };
            let index = entries
                .iter()
                .position(|(owner, pattern)| *owner == number && pattern == uri);
            if let Some(index) = index {
                entries.remove(index);
            }
            if entries.is_empty() {
                self.by_prefix.remove(prefix);
            }
        }
    }

    /// Returns the numbers of the owners whose stored patterns certainly match everything that
    /// `uri` matches. Such a pattern is equal to `uri`, or is `DIRECTORY/**` for a directory that
    /// contains `uri`.
    pub(crate) fn covering<'a>(&'a self, uri: &'a Uri) -> impl Iterator<Item = u64> + 'a {
        let prefix = uri.literal_prefix();
        let folders = prefix
            .match_indices('/')
            .map(move |(slash, _)| &prefix[..slash])
            .chain([prefix]);
        folders
            .filter(|folder| !folder.ends_with('/'))
            .flat_map(move |folder| {
                let entries = self.by_prefix.get(folder).into_iter().flatten();
                let is_whole_folder = move |pattern: &Uri| {
                    pattern.0.len() == folder.len() + 3 && pattern.0.ends_with("/**")
                };
                entries
                    .filter(move |(_, pattern)| pattern == uri || is_whole_folder(pattern))
                    .map(|(owner, _)| *owner)
            })
    }

    /// Returns the stored patterns that overlap `uri`, each with the number of its owner. No pair
    /// is returned twice.
    pub fn overlapping<'a>(&'a self, uri: &'a Uri) -> impl Iterator<Item = (u64, &'a Uri)> + 'a {
        let prefix = uri.literal_prefix();
        // A stored pattern with a shorter prefix may match names below that prefix, and so overlap
        // this URI. Search all prefixes of this URI that end before a slash. Skip the second slash
        // of `://`, so that no prefix is searched twice.
        let ancestors = prefix
            .match_indices('/')
            .filter(move |(slash, _)| !prefix[..*slash].ends_with('/'))
            .map(move |(slash, _)| &prefix[..slash])
            .chain([prefix])
            .filter(|_| !self.by_prefix.is_empty());
        let at_or_above = ancestors.filter_map(|ancestor| self.by_prefix.get(ancestor));
        // If `uri` has wildcards, also search the patterns whose prefix is longer, because `uri`
        // may match below its own prefix. The prefixes of those patterns begin with this prefix and
        // a slash.
        let reaches_below = prefix.len() < uri.0.len() && !self.by_prefix.is_empty();
        let below = reaches_below.then(|| {
            // The character `0` directly follows `/` in ASCII, so this range has exactly the keys
            // that begin with the prefix and a slash.
            let (start, end) = (format!("{prefix}/"), format!("{prefix}0"));
            self.by_prefix
                .range::<_, str>((
                    Bound::Included(start.as_str()),
                    Bound::Excluded(end.as_str()),
                ))
                .map(|(_, entries)| entries)
        });
        at_or_above
            .chain(below.into_iter().flatten())
            .flatten()
            .filter(move |(_, pattern)| pattern.overlaps(uri))
            .map(|(owner, pattern)| (*owner, pattern))
    }
}
