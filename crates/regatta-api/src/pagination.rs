//! Pagination with `?limit=50&after=CURSOR`, for every verb that returns a list.
//!
//! The cursor is the key of the last entry on a page, and not the entry's position. So the next
//! page does not shift if entries are added or removed before it is requested. If there are more
//! entries, the answer contains the cursor of the next page in `next`.

use regatta_core::natural_sort::compare;
use serde::Deserialize;

use crate::problem::Problem;
use crate::view::{ClaimView, ClaimsView};

/// Maximum number of entries on a page.
const MAX_LIMIT: usize = 10_000;

/// The parameters `limit` and `after` of a request, which select a page of a list.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Paging {
    #[serde(default)]
    pub limit: Option<usize>,
    #[serde(default)]
    pub after: Option<String>,
}

/// The order of a list, which decides whether a cursor is still usable after its entry was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOrder {
    /// Sorted by key in natural order (`T10` comes after `T9`). A page can continue after a removed
    /// entry.
    ByKey,
    /// Sorted in another way. If the cursor's entry was removed, the request is refused.
    Custom,
}

/// Data of an answer that contains a list.
pub(crate) trait ListData {
    type Entry;

    fn entries_mut(&mut self) -> &mut Vec<Self::Entry>;
}

impl<T> ListData for Vec<T> {
    type Entry = T;

    fn entries_mut(&mut self) -> &mut Vec<T> {
        self
    }
}

impl ListData for ClaimsView {
    type Entry = ClaimView;

    fn entries_mut(&mut self) -> &mut Vec<ClaimView> {
        &mut self.held
    }
}

impl Paging {
    /// Returns whether the caller wants the whole list.
    pub fn is_whole(&self) -> bool {
        self.limit.is_none() && self.after.is_none()
    }

    /// Returns the number of entries on the requested page.
    pub fn page_size(&self) -> usize {
        self.limit.unwrap_or(usize::MAX).clamp(1, MAX_LIMIT)
    }

    /// Removes the entries that are not on the requested page. Returns the cursor of the next page,
    /// if there are more entries.
    pub fn cut<T>(
        &self,
        entries: &mut Vec<T>,
        order: ListOrder,
        key: impl Fn(&T) -> String,
    ) -> Result<Option<String>, Problem> {
        if self.is_whole() {
            return Ok(None);
        }
        let start = match &self.after {
            None => 0,
            Some(after) => match entries.iter().position(|entry| key(entry) == *after) {
                Some(position) => position + 1,
                None if order == ListOrder::ByKey => entries
                    .iter()
                    .position(|entry| compare(&key(entry), after).is_gt())
                    .unwrap_or(entries.len()),
                None => {
                    return Err(Problem::new(
                        410,
                        "cursor_gone",
                        "the list no longer contains the entry that the parameter after names, so \
                         the next page has no start",
                        "read the list from its start: omit the parameter after",
                    ));
                }
            },
        };
        entries.drain(..start);
        let has_more = entries.len() > self.page_size();
        entries.truncate(self.page_size());
        Ok(entries.last().filter(|_| has_more).map(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(
        entries: &[&str],
        order: ListOrder,
        limit: Option<usize>,
        after: Option<&str>,
    ) -> Result<(Vec<String>, Option<String>), String> {
        let mut entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        let paging = Paging {
            limit,
            after: after.map(str::to_owned),
        };
        match paging.cut(&mut entries, order, String::clone) {
            Ok(next) => Ok((entries, next)),
            Err(problem) => Err(problem.code),
        }
    }

    fn listed(
        entries: &[&str],
        next: Option<&str>,
    ) -> Result<(Vec<String>, Option<String>), String> {
        let entries = entries.iter().map(|entry| (*entry).to_owned()).collect();
        Ok((entries, next.map(str::to_owned)))
    }

    /// Entries may be added and removed between two pages.
    #[test]
    fn every_entry_is_on_exactly_one_page() {
        use ListOrder::{ByKey, Custom};
        assert_eq!(
            page(&["T8", "T9", "T10", "T11"], ByKey, Some(2), None),
            listed(&["T8", "T9"], Some("T9"))
        );
        // T9 was removed, and T12 was added.
        assert_eq!(
            page(&["T8", "T10", "T11", "T12"], ByKey, Some(2), Some("T9")),
            listed(&["T10", "T11"], Some("T11"))
        );
        assert_eq!(
            page(&["T12"], ByKey, Some(2), Some("T11")),
            listed(&["T12"], None)
        );
        assert_eq!(page(&[], ByKey, Some(2), Some("T12")), listed(&[], None));
        // Names are listed in natural order. The entry of the cursor was removed.
        for (entries, removed, rest) in [
            (["a-1", "a-2", "a-10"], "a-3", ["a-10"].as_slice()),
            (["a-1", "a-3", "a-x"], "a-2", &["a-3", "a-x"]),
            (["a-1", "a-2", "a-10"], "a-9", &["a-10"]),
        ] {
            assert_eq!(
                page(&entries, ByKey, None, Some(removed)),
                listed(rest, None),
                "{removed}"
            );
        }
        assert_eq!(
            page(&["b", "a"], Custom, Some(1), Some("b")),
            listed(&["a"], None)
        );
        assert_eq!(
            page(&["a"], Custom, Some(1), Some("b")),
            Err("cursor_gone".into())
        );
        // A limit of 0 would be a page on which no caller gets further.
        assert_eq!(
            page(&["a", "b"], ByKey, Some(0), None),
            listed(&["a"], Some("a"))
        );
    }
}
