//! An index of patterns by owner number, for a fast search of overlapping patterns.

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
                Some(here) => {
                    let at = here.partition_point(|here| (here.0, &here.1) < (number, uri));
                    here.insert(at, (number, uri.clone()));
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
            let Some(here) = self.by_prefix.get_mut(prefix) else {
                continue;
            };
            if let Some(at) = here
                .iter()
                .position(|here| here.0 == number && here.1 == *uri)
            {
                here.remove(at);
            }
            if here.is_empty() {
                self.by_prefix.remove(prefix);
            }
        }
    }

    /// Returns the numbers of owners with this very pattern or with `**` of a directory at or above
    /// it. Everything that `uri` matches, their patterns match, too.
    pub(crate) fn covering<'a>(&'a self, uri: &'a Uri) -> impl Iterator<Item = u64> + 'a {
        let prefix = uri.literal_prefix();
        let folders = prefix
            .match_indices('/')
            .map(move |(at, _)| &prefix[..at])
            .chain([prefix]);
        folders
            .filter(|folder| !folder.ends_with('/'))
            .flat_map(move |folder| {
                let here = self.by_prefix.get(folder).into_iter().flatten();
                let all =
                    move |uri: &Uri| uri.0.len() == folder.len() + 3 && uri.0.ends_with("/**");
                here.filter(move |here| here.1 == *uri || all(&here.1))
                    .map(|here| here.0)
            })
    }

    /// Returns the numbers and patterns that overlap `uri`, each pair once.
    pub fn overlapping<'a>(&'a self, uri: &'a Uri) -> impl Iterator<Item = (u64, &'a Uri)> + 'a {
        let prefix = uri.literal_prefix();
        // Patterns with a shorter prefix may reach this URI. `://` has two slashes that give the
        // same trimmed prefix, which must count once.
        let ancestors = prefix
            .match_indices('/')
            .filter(move |(at, _)| !prefix[..*at].ends_with('/'))
            .map(move |(at, _)| &prefix[..at])
            .chain([prefix])
            .filter(|_| !self.by_prefix.is_empty());
        let here = ancestors.filter_map(|ancestor| self.by_prefix.get(ancestor));
        // Longer prefixes start with this prefix and a slash. Only a pattern with a wildcard
        // reaches below its prefix.
        let reaches = prefix.len() < uri.0.len() && !self.by_prefix.is_empty();
        let below = reaches.then(|| {
            let (from, to) = (format!("{prefix}/"), format!("{prefix}0"));
            self.by_prefix
                .range::<_, str>((Bound::Included(from.as_str()), Bound::Excluded(to.as_str())))
                .map(|by_prefix| by_prefix.1)
        });
        here.chain(below.into_iter().flatten())
            .flatten()
            .filter(move |here| here.1.overlaps(uri))
            .map(|here| (here.0, &here.1))
    }
}
