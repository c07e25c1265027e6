//! Pagination with `?limit=50&after=CURSOR`, for every verb that returns a list.
//!
//! The cursor is the key of the last entry on a page, and not the entry's position. So the next
//! page does not shift if entries are added or removed before it is requested. If there are more
//! entries, the answer contains the cursor of the next page in `next`.
//!
//! The row of a list verb makes its handler take a [`PageRequest`] and return a [`Page`], which
//! only the functions of the request can make. So each handler builds the entries of one page.

use std::ops::Bound;
use std::str::FromStr;

use regatta_core::natural_sort::compare;
use serde::Deserialize;

use crate::input::DEFAULT_LIST_LIMIT;
use crate::problem::Problem;
use crate::verb::AnswerData;
use crate::view::{ClaimView, ClaimsView, VerbAnswer};

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

impl Paging {
    /// Returns whether the caller wants the whole list.
    pub fn is_whole(&self) -> bool {
        self.limit.is_none() && self.after.is_none()
    }
}

/// The order of a list, which decides whether a cursor is still usable after its entry was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOrder {
    /// Sorted by key in natural order (`T10` comes after `T9`). A page can continue after a removed
    /// entry.
    ByKey,
    /// Sorted by key, the highest key first. A page can continue after a removed entry.
    ByKeyDescending,
    /// Sorted in another way. If the cursor's entry was removed, the request is refused.
    Custom,
}

/// Data of an answer that contains a list.
pub(crate) trait ListData {
    type Entry;

    fn entries(&self) -> &[Self::Entry];
}

impl<T> ListData for Vec<T> {
    type Entry = T;

    fn entries(&self) -> &[T] {
        self
    }
}

impl ListData for ClaimsView {
    type Entry = ClaimView;

    fn entries(&self) -> &[ClaimView] {
        &self.held
    }
}

/// The page of a list that a caller wants. The handler of the list's verb builds only the entries
/// of this page.
#[derive(Clone, Debug)]
pub struct PageRequest {
    paging: Paging,
    order: ListOrder,
}

/// The answer of a list verb: the entries of one page.
#[derive(Debug)]
pub struct Page<L> {
    list: L,
    has_more: bool,
}

impl<L> Page<L> {
    /// Returns the entries of the page.
    pub fn list(&self) -> &L {
        &self.list
    }

    /// Converts the entries, for an answer that contains more than the list.
    pub fn map<M>(self, convert: impl FnOnce(L) -> M) -> Page<M> {
        Page {
            list: convert(self.list),
            has_more: self.has_more,
        }
    }

    /// Like [`Page::map`], for a conversion that can fail.
    pub fn try_map<M, E>(self, convert: impl FnOnce(L) -> Result<M, E>) -> Result<Page<M>, E> {
        Ok(Page {
            list: convert(self.list)?,
            has_more: self.has_more,
        })
    }
}

impl<L> VerbAnswer<Page<L>> {
    /// Converts the page to the data of an answer, with the cursor of the next page if there are
    /// more entries.
    pub fn into_answer(self, wrap: impl FnOnce(Box<L>) -> AnswerData) -> VerbAnswer<AnswerData> {
        let data = wrap(Box::new(self.data.list));
        VerbAnswer {
            revision: self.revision,
            next: data.last_key().filter(|_| self.data.has_more),
            data,
        }
    }
}

impl PageRequest {
    /// Returns the request for a page of a list that has the given order.
    pub fn new(paging: Paging, order: ListOrder) -> PageRequest {
        PageRequest { paging, order }
    }

    /// Returns whether the caller wants the whole list.
    pub fn is_whole(&self) -> bool {
        self.paging.is_whole()
    }

    /// Returns the largest number of entries on the page. A whole list has no such number.
    fn max_entries(&self) -> usize {
        if self.is_whole() {
            usize::MAX
        } else {
            self.paging.limit.unwrap_or(MAX_LIMIT).clamp(1, MAX_LIMIT)
        }
    }

    /// Returns the number of entries that a handler must read to answer the request. This is one
    /// more than fits on the page, and the additional entry shows whether there is another page.
    pub fn read_limit(&self) -> usize {
        self.max_entries().saturating_add(1)
    }

    /// Returns the number of entries to which the caller limits the list, at most `max`. Returns
    /// `None` if the caller reads pages and does not limit the list, because the pages together
    /// have every entry. `asked` is the limit in the input of the verb.
    pub fn list_limit(&self, asked: Option<usize>, max: usize) -> Option<usize> {
        let default = self.is_whole().then_some(DEFAULT_LIST_LIMIT);
        asked.or(default).map(|limit| limit.clamp(1, max))
    }

    /// Returns the id after which the page begins, or `None` if the page begins with the list. For
    /// lists that are sorted by ids.
    pub fn after_id<K: FromStr>(&self) -> Result<Option<K>, Problem> {
        let parse = |cursor: &String| {
            cursor.parse().map_err(|_| {
                Problem::new(
                    400,
                    "bad_input",
                    "the parameter after is not the cursor of a page of this list",
                    "use the value of next in the answer with the previous page, or omit after",
                )
            })
        };
        self.paging.after.as_ref().map(parse).transpose()
    }

    /// Returns the range of ids in which the page begins. For lists that are sorted by ids.
    pub fn id_range<K: FromStr>(&self) -> Result<(Bound<K>, Bound<K>), Problem> {
        let start = self.after_id()?.map_or(Bound::Unbounded, Bound::Excluded);
        Ok((start, Bound::Unbounded))
    }

    /// Builds the page from entries that begin after the cursor. Calls `view` only for the entries
    /// of the page.
    pub fn first_of<T, V>(
        &self,
        entries: impl IntoIterator<Item = T>,
        view: impl FnMut(T) -> V,
    ) -> Page<Vec<V>> {
        let mut entries = entries.into_iter();
        let list = entries
            .by_ref()
            .take(self.max_entries())
            .map(view)
            .collect();
        Page {
            list,
            has_more: entries.next().is_some(),
        }
    }

    /// Builds the page from all entries of the list. `key` returns the key of an entry, as in the
    /// verb's row. Calls `view` only for the entries of the page.
    pub fn select<T, V>(
        &self,
        entries: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> String,
        view: impl FnMut(T) -> V,
    ) -> Result<Page<Vec<V>>, Problem> {
        let Some(after) = &self.paging.after else {
            return Ok(self.first_of(entries, view));
        };
        let entries: Vec<T> = entries.into_iter().collect();
        let is_later = |entry: &T| match self.order {
            ListOrder::ByKey => compare(&key(entry), after).is_gt(),
            ListOrder::ByKeyDescending => compare(&key(entry), after).is_lt(),
            ListOrder::Custom => false,
        };
        let start = match entries.iter().position(|entry| key(entry) == *after) {
            Some(position) => position + 1,
            None if self.order == ListOrder::Custom => {
                return Err(Problem::new(
                    410,
                    "cursor_gone",
                    "the list no longer contains the entry that the parameter after names, so the \
                     next page has no start",
                    "read the list from its start: omit the parameter after",
                ));
            }
            None => entries.iter().position(is_later).unwrap_or(entries.len()),
        };
        Ok(self.first_of(entries.into_iter().skip(start), view))
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
        let paging = Paging {
            limit,
            after: after.map(str::to_owned),
        };
        let mut viewed = 0;
        let view = |entry: &&str| {
            viewed += 1;
            (*entry).to_owned()
        };
        let page = PageRequest::new(paging, order)
            .select(entries, |entry| (**entry).to_owned(), view)
            .map_err(|problem| problem.code)?;
        assert_eq!(
            viewed,
            page.list.len(),
            "an entry of another page was built"
        );
        let next = page.list.last().cloned().filter(|_| page.has_more);
        Ok((page.list, next))
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
        use ListOrder::{ByKey, ByKeyDescending, Custom};
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
            page(&["F10", "F8", "F7"], ByKeyDescending, Some(1), Some("F9")),
            listed(&["F8"], Some("F8"))
        );
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
