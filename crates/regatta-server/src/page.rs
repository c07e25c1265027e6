//! Lists in pages: `?limit=50&after=CURSOR` on any verb that lists something.
//!
//! The cursor is the key of the last thing on the page, not a number of things to pass over: what is added or goes away
//! meanwhile moves nothing out of the next page or onto it twice. An answer with more behind it says so in `next`.

use regatta_api::Problem;
use regatta_api::view::Answer;
use regatta_core::order::natural;
use serde::Deserialize;
use serde_json::Value;

/// What is asked besides the verb's own input.
#[derive(Default, Deserialize)]
pub(crate) struct Paging {
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    after: Option<String>,
}

/// The verbs that list, where in their data the list is, and what each thing on it is known by, and whether
/// that is its order.
pub(crate) const LISTS: &[(&str, &str, &str, Order)] = &[
    ("project.list", "", "/name", Order::ByKey),
    ("agent.list", "", "/name", Order::ByKey),
    ("task.list", "", "/id", Order::ByKey),
    ("runner.list", "", "/name", Order::ByKey),
    ("team.list", "", "/team", Order::ByKey),
    ("mission.list", "", "/id", Order::ByKey),
    ("inbox.list", "", "/id", Order::Own),
    ("scope.list", "", "/id", Order::Own),
    ("rule.list", "", "/name", Order::Own),
    ("policy.list", "", "/id", Order::ByKey),
    ("queue", "", "/project", Order::Own),
    ("claim.list", "/held", "/claim", Order::ByKey),
    ("msg.history", "", "/id", Order::ByKey),
    ("msg.inbox", "", "/channel", Order::Own),
    ("bridge.list", "", "/name", Order::Own),
    ("conversation.list", "", "/id", Order::Own),
    ("hook.list", "", "/id", Order::ByKey),
    ("hook.log", "", "/id", Order::Own),
    ("token.list", "", "/name", Order::Own),
    ("audit", "", "/n", Order::ByKey),
    ("siblings", "", "/attempt", Order::ByKey),
    ("attempt.checks", "", "/check", Order::Own),
];

/// How a list is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By its keys, as people count (`T10` comes after `T9`): a cursor whose thing is gone still says where to go on.
    ByKey,
    /// Otherwise: such a cursor is refused.
    Own,
}

fn key_of(item: &Value, at: &str) -> String {
    match item.pointer(at) {
        Some(Value::String(it)) => it.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

impl Paging {
    /// Cuts an answer down to the page that was asked for.
    pub(crate) fn cut(&self, verb: &str, answer: Vec<u8>) -> Result<Vec<u8>, Problem> {
        if self.limit.is_none() && self.after.is_none() {
            return Ok(answer);
        }
        let Some((_, place, key, order)) = LISTS.iter().find(|it| it.0 == verb) else {
            return Err(Problem::new(400, "no_list", format!("{verb} lists nothing"), "leave limit and after out"));
        };
        let bug = |it: serde_json::Error| Problem::new(500, "bug", it.to_string(), "please report this");
        let mut whole: Answer<Value> = serde_json::from_slice(&answer).map_err(bug)?;
        let Some(Value::Array(items)) = whole.data.pointer_mut(place) else { return Ok(answer) };
        let from = match &self.after {
            None => 0,
            Some(after) => match items.iter().position(|it| key_of(it, key) == *after) {
                Some(at) => at + 1,
                None if *order == Order::ByKey => {
                    items.iter().position(|it| natural(&key_of(it, key), after).is_gt()).unwrap_or(items.len())
                }
                None => {
                    return Err(Problem::new(
                        410,
                        "cursor_gone",
                        "what the last page ended with is gone",
                        "begin again without after",
                    ));
                }
            },
        };
        let all = items.len();
        let page: Vec<Value> = items.drain(from..).take(self.limit.unwrap_or(usize::MAX).clamp(1, 10_000)).collect();
        let next = (from + page.len() < all).then(|| page.last().map(|it| key_of(it, key))).flatten();
        *items = page;
        let mut whole = serde_json::to_value(&whole).map_err(bug)?;
        if let Some(next) = next {
            whole["next"] = Value::String(next);
        }
        serde_json::to_vec(&whole).map_err(bug)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn page(verb: &str, data: Value, limit: Option<usize>, after: Option<&str>) -> Result<Value, String> {
        let answer = serde_json::to_vec(&json!({ "revision": 7, "data": data })).unwrap();
        let paging = Paging { limit, after: after.map(str::to_owned) };
        paging.cut(verb, answer).map(|it| serde_json::from_slice(&it).unwrap()).map_err(|it| it.code)
    }

    /// Every thing is on one page and one only, also when some come and go between two pages.
    #[test]
    fn pages_have_everything_once_whatever_changes_meanwhile() {
        let tasks = |ids: &[u64]| json!(ids.iter().map(|it| json!({ "id": format!("T{it}") })).collect::<Vec<_>>());
        let first = page("task.list", tasks(&[8, 9, 10, 11]), Some(2), None).unwrap();
        assert_eq!((&first["data"], &first["next"], &first["revision"]), (&tasks(&[8, 9]), &json!("T9"), &json!(7)));
        // T9 has gone, T12 has come.
        let second = page("task.list", tasks(&[8, 10, 11, 12]), Some(2), Some("T9")).unwrap();
        assert_eq!((&second["data"], &second["next"]), (&tasks(&[10, 11]), &json!("T11")));
        let last = page("task.list", tasks(&[12]), Some(2), Some("T11")).unwrap();
        assert_eq!((&last["data"], &last["next"]), (&tasks(&[12]), &Value::Null));
        assert_eq!(page("task.list", tasks(&[]), Some(2), Some("T12")).unwrap()["data"], json!([]));
        // Names, as people count, as they are listed. The one in the middle has gone.
        let named = |all: &[&str]| json!(all.iter().map(|it| json!({ "name": it })).collect::<Vec<_>>());
        for (verb, listed, gone, left) in [
            ("agent.list", ["a-1", "a-2", "a-10"], "a-3", ["a-10"].as_slice()),
            ("agent.list", ["a-1", "a-3", "a-x"], "a-2", &["a-3", "a-x"]),
            ("project.list", ["a-1", "a-2", "a-10"], "a-9", &["a-10"]),
        ] {
            assert_eq!(page(verb, named(&listed), None, Some(gone)).unwrap()["data"], named(left), "{verb} {gone}");
        }
        let held = json!({ "held": [{ "claim": "C1" }, { "claim": "C2" }], "waiting": [] });
        let cut = page("claim.list", held, Some(1), None).unwrap();
        assert_eq!((&cut["data"]["held"], &cut["next"]), (&json!([{ "claim": "C1" }]), &json!("C1")));
        assert_eq!(page("queue", json!([{ "project": "a" }]), Some(1), Some("b")), Err("cursor_gone".into()));
        assert_eq!(page("status", json!({}), Some(1), None), Err("no_list".into()));
    }

    /// Whatever is called a list has pages.
    #[test]
    fn every_list_has_pages() {
        for verb in regatta_api::VERBS {
            assert_eq!(LISTS.iter().any(|it| it.0 == verb.name), verb.lists(), "{}", verb.name);
        }
    }
}
