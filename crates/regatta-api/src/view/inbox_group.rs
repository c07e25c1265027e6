//! Groups of inbox items. The items of one group have the same kind and the same cause, so every
//! view shows them as one entry with one answer.

use regatta_core::inbox::{CauseClass, InboxKind};
use regatta_core::natural_sort;

use super::InboxView;

/// Inbox items with the same kind and cause, in the order of the inbox. Never empty.
pub struct InboxGroup<'a> {
    pub items: Vec<&'a InboxView>,
}

impl<'a> InboxGroup<'a> {
    /// Returns the groups of these items, in the order of each group's first item.
    pub fn list(items: impl IntoIterator<Item = &'a InboxView>) -> Vec<InboxGroup<'a>> {
        let mut keyed: Vec<(String, InboxGroup<'a>)> = Vec::new();
        for item in items {
            let key = item.group_key();
            match keyed.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.items.push(item),
                None => keyed.push((key, InboxGroup { items: vec![item] })),
            }
        }
        keyed.into_iter().map(|(_, group)| group).collect()
    }

    /// Returns the item that has waited longest.
    pub fn first(&self) -> &'a InboxView {
        self.items[0]
    }

    /// Returns the number of items that wait.
    pub fn count(&self) -> usize {
        self.items.len()
    }

    /// Returns the group in one line: the item's own text, "npm install × 3" for equal requests, or
    /// "30 agents: the provider does not know the model opus-5".
    pub fn headline(&self) -> String {
        let first = self.first();
        match (&first.cause, self.count()) {
            (_, 1) => first.subject.clone(),
            (Some(cause), count) if cause.class != CauseClass::Request => cause.headline(count),
            (_, count) => format!("{} × {count}", first.subject),
        }
    }

    /// Returns what a person does about the group: the common fix, or the reason of the only item.
    pub fn advice(&self) -> String {
        let first = self.first();
        match &first.cause {
            Some(cause) if self.count() > 1 && cause.class != CauseClass::Request => {
                if cause.fix.is_empty() {
                    self.ids_text()
                } else {
                    format!("fix: {}", cause.fix)
                }
            }
            _ => first.why.clone(),
        }
    }

    /// Returns the shell command that gives the first choice to all items, if one command can.
    /// Requests are answered together with `--all`.
    pub fn shared_command(&self) -> Option<String> {
        let first = self.first();
        let is_agent = matches!(first.kind, InboxKind::Settings | InboxKind::Credential);
        if self.count() < 2 || !is_agent {
            return None;
        }
        let names: Option<Vec<&str>> = self
            .items
            .iter()
            .map(|item| item.id.strip_prefix("agent:"))
            .collect();
        let mut names = names?;
        names.sort_by(|a, b| natural_sort::compare(a, b));
        Some(format!("regatta resume {}", names.join(" ")))
    }

    /// Returns the ids of the first items, such as `T3, T4 and 5 more`.
    fn ids_text(&self) -> String {
        const MAX_IDS: usize = 4;
        let mut ids: Vec<&str> = self.items.iter().map(|item| item.id.as_str()).collect();
        let more = ids.len().saturating_sub(MAX_IDS);
        ids.truncate(MAX_IDS);
        if more == 0 {
            ids.join(", ")
        } else {
            format!("{} and {more} more", ids.join(", "))
        }
    }
}
