//! Splits long answers into pages (`?limit=50&after=CURSOR`), for every API verb that returns a
//! list.
//!
//! The cursor is the key of the last entry on a page and not its position. So entries that are
//! added or removed meanwhile do not shift the next page. If there are more entries, the answer
//! contains the cursor of the next page in `next`.

use regatta_api::Problem;
use regatta_api::view::VerbAnswer;
use regatta_core::natural_sort::compare;
use serde::Deserialize;
use serde_json::Value;

/// The parameters `limit` and `after` of a request, which select a page of a list.
#[derive(Default, Deserialize)]
pub(crate) struct Paging {
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    after: Option<String>,
}

/// The API verbs that return lists. For each verb: the path of the list in the answer, the path of
/// the key in an entry, and the order of the list.
pub(crate) const LIST_VERBS: &[(&str, &str, &str, ListOrder)] = &[
    ("project.list", "", "/name", ListOrder::ByKey),
    ("agent.list", "", "/name", ListOrder::ByKey),
    ("task.list", "", "/id", ListOrder::ByKey),
    ("runner.list", "", "/name", ListOrder::ByKey),
    ("team.list", "", "/team", ListOrder::ByKey),
    ("mission.list", "", "/id", ListOrder::ByKey),
    ("inbox.list", "", "/id", ListOrder::Custom),
    ("scope.list", "", "/id", ListOrder::Custom),
    ("rule.list", "", "/name", ListOrder::Custom),
    ("policy.list", "", "/id", ListOrder::ByKey),
    ("queue", "", "/project", ListOrder::Custom),
    ("claim.list", "/held", "/claim", ListOrder::ByKey),
    ("msg.history", "", "/id", ListOrder::ByKey),
    ("msg.inbox", "", "/channel", ListOrder::Custom),
    ("bridge.list", "", "/name", ListOrder::Custom),
    ("conversation.list", "", "/id", ListOrder::Custom),
    ("hook.list", "", "/id", ListOrder::ByKey),
    ("hook.log", "", "/id", ListOrder::Custom),
    ("token.list", "", "/name", ListOrder::Custom),
    ("audit", "", "/n", ListOrder::ByKey),
    ("siblings", "", "/attempt", ListOrder::ByKey),
    ("attempt.checks", "", "/check", ListOrder::Custom),
];

/// The order of a list. It decides whether the next page can still be found after the entry of the
/// cursor was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListOrder {
    /// The list is sorted by key in natural order (`T10` comes after `T9`). So the next page can be
    /// found even if the entry of the cursor was removed.
    ByKey,
    /// The list is sorted in another way. If the entry of the cursor was removed, the request is
    /// refused.
    Custom,
}

fn key_of(item: &Value, pointer: &str) -> String {
    match item.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

impl Paging {
    /// Cuts the list in the answer of an API verb down to the requested page, and adds the cursor
    /// with which the caller can request the next page.
    pub(crate) fn cut_to_page(&self, verb: &str, answer: Vec<u8>) -> Result<Vec<u8>, Problem> {
        if self.limit.is_none() && self.after.is_none() {
            return Ok(answer);
        }
        let Some((_, list_pointer, key_pointer, order)) =
            LIST_VERBS.iter().find(|(name, ..)| *name == verb)
        else {
            return Err(Problem::new(
                400,
                "no_list",
                format!("{verb} does not return a list, so its answer has no pages"),
                "omit the parameters limit and after",
            ));
        };
        let bug = |error: serde_json::Error| {
            let what = format!("could not cut the answer of {verb} to a page: {error}");
            let hint = "this is a bug in Regatta; report it with this message and logs/daemon.log";
            Problem::new(500, "bug", what, hint)
        };
        let mut answer_document: VerbAnswer<Value> =
            serde_json::from_slice(&answer).map_err(bug)?;
        let Some(Value::Array(items)) = answer_document.data.pointer_mut(list_pointer) else {
            return Ok(answer);
        };
        let start = match &self.after {
            None => 0,
            Some(after) => match items
                .iter()
                .position(|item| key_of(item, key_pointer) == *after)
            {
                Some(position) => position + 1,
                None if *order == ListOrder::ByKey => items
                    .iter()
                    .position(|item| compare(&key_of(item, key_pointer), after).is_gt())
                    .unwrap_or(items.len()),
                None => {
                    return Err(Problem::new(
                        410,
                        "cursor_gone",
                        "the list no longer has the entry that the parameter after names, so the next page is unknown",
                        "read the list from its start: omit the parameter after",
                    ));
                }
            },
        };
        let total = items.len();
        let page: Vec<Value> = items
            .drain(start..)
            .take(self.limit.unwrap_or(usize::MAX).clamp(1, 10_000))
            .collect();
        let next = if start + page.len() < total {
            page.last().map(|last| key_of(last, key_pointer))
        } else {
            None
        };
        *items = page;
        let mut answer_document = serde_json::to_value(&answer_document).map_err(bug)?;
        if let Some(next) = next {
            answer_document["next"] = Value::String(next);
        }
        serde_json::to_vec(&answer_document).map_err(bug)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn page(
        verb: &str,
        data: Value,
        limit: Option<usize>,
        after: Option<&str>,
    ) -> Result<Value, String> {
        let answer = serde_json::to_vec(&json!({ "revision": 7, "data": data })).unwrap();
        let paging = Paging {
            limit,
            after: after.map(str::to_owned),
        };
        paging
            .cut_to_page(verb, answer)
            .map(|page| serde_json::from_slice(&page).unwrap())
            .map_err(|problem| problem.code)
    }

    /// Entries may be added and removed between two pages.
    #[test]
    fn every_entry_is_on_exactly_one_page() {
        let tasks = |ids: &[u64]| {
            json!(
                ids.iter()
                    .map(|id| json!({ "id": format!("T{id}") }))
                    .collect::<Vec<_>>()
            )
        };
        let first = page("task.list", tasks(&[8, 9, 10, 11]), Some(2), None).unwrap();
        assert_eq!(
            (&first["data"], &first["next"], &first["revision"]),
            (&tasks(&[8, 9]), &json!("T9"), &json!(7))
        );
        // T9 was removed, and T12 was added.
        let second = page("task.list", tasks(&[8, 10, 11, 12]), Some(2), Some("T9")).unwrap();
        assert_eq!(
            (&second["data"], &second["next"]),
            (&tasks(&[10, 11]), &json!("T11"))
        );
        let last = page("task.list", tasks(&[12]), Some(2), Some("T11")).unwrap();
        assert_eq!(
            (&last["data"], &last["next"]),
            (&tasks(&[12]), &Value::Null)
        );
        assert_eq!(
            page("task.list", tasks(&[]), Some(2), Some("T12")).unwrap()["data"],
            json!([])
        );
        // Names are listed in natural order. The entry of the cursor was removed.
        let named = |all: &[&str]| {
            json!(
                all.iter()
                    .map(|name| json!({ "name": name }))
                    .collect::<Vec<_>>()
            )
        };
        for (verb, listed, removed, rest) in [
            (
                "agent.list",
                ["a-1", "a-2", "a-10"],
                "a-3",
                ["a-10"].as_slice(),
            ),
            ("agent.list", ["a-1", "a-3", "a-x"], "a-2", &["a-3", "a-x"]),
            ("project.list", ["a-1", "a-2", "a-10"], "a-9", &["a-10"]),
        ] {
            assert_eq!(
                page(verb, named(&listed), None, Some(removed)).unwrap()["data"],
                named(rest),
                "{verb} {removed}"
            );
        }
        let claims = json!({ "held": [{ "claim": "C1" }, { "claim": "C2" }], "waiting": [] });
        let cut = page("claim.list", claims, Some(1), None).unwrap();
        assert_eq!(
            (&cut["data"]["held"], &cut["next"]),
            (&json!([{ "claim": "C1" }]), &json!("C1"))
        );
        assert_eq!(
            page("queue", json!([{ "project": "a" }]), Some(1), Some("b")),
            Err("cursor_gone".into())
        );
        assert_eq!(
            page("status", json!({}), Some(1), None),
            Err("no_list".into())
        );
    }

    /// Every verb that returns a list has pages.
    #[test]
    fn every_verb_that_returns_a_list_has_pages() {
        for verb in regatta_api::VERBS {
            assert_eq!(
                LIST_VERBS.iter().any(|(name, ..)| *name == verb.name),
                verb.returns_list(),
                "{}",
                verb.name
            );
        }
    }
}
