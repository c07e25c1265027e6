//! An index of claimed patterns, for a fast search of the patterns that overlap a URI.
//!
//! A pattern is filed under its literal prefix. Two patterns can overlap only if one prefix is a
//! prefix of the other, so a search looks at few entries. The test itself is in `overlap.rs`.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use super::Uri;

/// An index of patterns by owner number, for a fast search of overlapping patterns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PatternIndex {
    /// Numbers and patterns by literal prefix, in order.
    by_prefix: OrdMap<Arc<str>, Vec<(u64, Uri)>>,
}

impl PatternIndex {
    /// Adds all patterns of one number.
    pub fn insert(&mut self, number: u64, uris: &[Uri]) {
        for uri in uris {
            let prefix = uri.literal_prefix();
            match self.by_prefix.get_mut(prefix) {
                Some(entries) => {
                    let index = entries
                        .partition_point(|(owner, pattern)| (*owner, pattern) < (number, uri));
                    entries.insert(index, (number, uri.clone()));
                }
                // A URI without wildcards is its own prefix, so its text can be shared.
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

    /// Removes all patterns of one number.
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

    /// Returns the numbers of owners with the same pattern, or with `**` of a directory at or above
    /// it. Their patterns match everything that `uri` matches.
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

    /// Returns the numbers and patterns that overlap `uri`, each pair once.
    pub fn overlapping<'a>(&'a self, uri: &'a Uri) -> impl Iterator<Item = (u64, &'a Uri)> + 'a {
        let prefix = uri.literal_prefix();
        // Patterns with a shorter prefix may reach this URI. `://` has two slashes that give the
        // same trimmed prefix, which must count once.
        let ancestors = prefix
            .match_indices('/')
            .filter(move |(slash, _)| !prefix[..*slash].ends_with('/'))
            .map(move |(slash, _)| &prefix[..slash])
            .chain([prefix])
            .filter(|_| !self.by_prefix.is_empty());
        let at_or_above = ancestors.filter_map(|ancestor| self.by_prefix.get(ancestor));
        // Longer prefixes start with this prefix and a slash. Only a pattern with a wildcard
        // reaches below its prefix.
        let reaches_below = prefix.len() < uri.0.len() && !self.by_prefix.is_empty();
        let below = reaches_below.then(|| {
            // The character `0` follows `/`.
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
