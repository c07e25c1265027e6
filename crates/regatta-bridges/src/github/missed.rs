//! Deliveries that did not arrive: GitHub sends none again by itself, but on request, and keeps a list.

use std::collections::{BTreeMap, HashSet, VecDeque};

use reqwest::Method;
use serde_json::Value;

use crate::http::Answer;
use crate::service::Trouble;

use super::api::{Api, escaped};

/// How much of the list is read, how many are asked for at once, and how often one is.
const MOST_PAGES: usize = 50;
const MOST_AT_ONCE: usize = 100;
const MOST_TRIES: u32 = 5;
/// How many that arrived or failed are remembered.
const MOST_KNOWN: usize = 10_000;

/// What is known of the list. All of it can be lost: what arrived before is not taken twice.
#[derive(Debug, Default)]
pub(super) struct Missed {
    known: HashSet<u64>,
    order: VecDeque<u64>,
    arrived: HashSet<String>,
    /// By their guid, which every sending of one has.
    failed: BTreeMap<String, Failed>,
}

/// A delivery that did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failed {
    /// The ids of its first and of its latest sending: they grow with time.
    first: u64,
    latest: u64,
    /// How often it was asked for.
    tries: u32,
}

impl Missed {
    /// Reads on in the list and asks for what failed. Says how many were asked for.
    pub(super) async fn ask_again(&mut self, api: &Api) -> Result<usize, Trouble> {
        self.read(api).await?;
        let mut asked = 0;
        for guid in self.due() {
            let Some(it) = self.failed.get_mut(&guid) else { continue };
            it.tries += 1;
            match api.app(Method::POST, &format!("/app/hook/deliveries/{}/attempts", it.latest)).await {
                Ok(_) => asked += 1,
                // It is too old: GitHub has forgotten it.
                Err(Trouble::Never(_)) => it.tries = MOST_TRIES,
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(asked)
    }

    /// Which are asked for now, the oldest first: a question comes before what was written after it, as far as GitHub
    /// keeps to that.
    fn due(&self) -> Vec<String> {
        let mut due: Vec<(u64, &String)> =
            self.failed.iter().filter(|it| it.1.tries < MOST_TRIES).map(|it| (it.1.first, it.0)).collect();
        due.sort_unstable();
        due.into_iter().take(MOST_AT_ONCE).map(|it| it.1.clone()).collect()
    }

    async fn read(&mut self, api: &Api) -> Result<(), Trouble> {
        let mut cursor = None::<String>;
        for _ in 0..MOST_PAGES {
            let more = cursor.as_ref().map_or(String::new(), |it| format!("&cursor={}", escaped(it)));
            let answer = api.app(Method::GET, &format!("/app/hook/deliveries?per_page=100{more}")).await?;
            let rows = answer.body.as_array().map(Vec::as_slice).unwrap_or_default();
            let fresh = rows.iter().filter(|it| self.note(it)).count();
            cursor = next_cursor(&answer);
            // One may be listed later than a newer one, so a whole page of old ones is the end.
            if cursor.is_none() || fresh == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Takes a line of the list; whether it is new.
    fn note(&mut self, line: &Value) -> bool {
        let (Some(id), Some(guid)) = (line["id"].as_u64(), line["guid"].as_str()) else { return false };
        if !self.known.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > MOST_KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        let good = line["status_code"].as_u64().is_some_and(|it| (200..300).contains(&it));
        if good {
            self.failed.remove(guid);
            if self.arrived.len() > MOST_KNOWN {
                self.arrived.clear();
            }
            self.arrived.insert(guid.to_owned());
        } else if !self.arrived.contains(guid) && matters(line) && self.failed.len() < MOST_KNOWN {
            let it = self.failed.entry(guid.to_owned()).or_insert(Failed { first: id, latest: id, tries: 0 });
            (it.first, it.latest) = (it.first.min(id), it.latest.max(id));
        }
        true
    }
}

/// Whether a delivery could say something to us.
fn matters(line: &Value) -> bool {
    let of = (line["event"].as_str().unwrap_or_default(), line["action"].as_str().unwrap_or_default());
    matches!(
        of,
        ("issue_comment" | "pull_request_review_comment", "created")
            | ("issues", "opened" | "assigned")
            | ("pull_request", "opened")
            | ("pull_request_review", "submitted")
            | ("check_run", "rerequested" | "requested_action")
    )
}

/// Where the next page begins. Only that is taken from the link, never an address.
fn next_cursor(answer: &Answer) -> Option<String> {
    let next = answer.header("link")?.split(',').find(|it| it.contains("rel=\"next\""))?;
    let query = next.split_once('<')?.1.split_once('>')?.0.split_once('?')?.1;
    let cursor = query.split('&').find_map(|it| it.strip_prefix("cursor="))?;
    Some(cursor.to_owned()).filter(|it| it.bytes().all(|it| it.is_ascii_graphic() && it != b'%'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_failed_is_wanted_until_it_arrived_whatever_is_listed_first() {
        let line = |id: u64, guid: &str, status: u64, event: &str| json!({"id": id, "guid": guid, "status_code": status, "event": event, "action": "created"});
        let mut missed = Missed::default();
        // The newest is listed first.
        for it in [
            line(9, "b", 200, "issue_comment"),
            line(8, "a", 502, "issue_comment"),
            line(7, "b", 0, "issue_comment"),
            line(6, "c", 500, "installation"),
            line(5, "d", 202, "issue_comment"),
        ] {
            assert!(missed.note(&it));
            assert!(!missed.note(&it), "it was listed before");
        }
        assert_eq!(missed.failed, BTreeMap::from([("a".to_owned(), Failed { first: 8, latest: 8, tries: 0 })]));
        missed.failed.get_mut("a").unwrap().tries = 3;
        missed.note(&line(10, "a", 503, "issue_comment"));
        assert_eq!(missed.failed["a"], Failed { first: 8, latest: 10, tries: 3 });
        missed.note(&line(11, "a", 200, "issue_comment"));
        assert!(missed.failed.is_empty());
    }

    #[test]
    fn what_was_missed_is_asked_for_oldest_first() {
        let line = |id: u64, guid: &str| json!({"id": id, "guid": guid, "status_code": 502, "event": "issue_comment", "action": "created"});
        let mut missed = Missed::default();
        // "c" was sent first, and once more after all the others.
        for it in [line(9, "c"), line(8, "a"), line(7, "d"), line(6, "b"), line(5, "c")] {
            missed.note(&it);
        }
        assert_eq!(missed.due(), ["c", "b", "d", "a"]);
        missed.failed.get_mut("b").unwrap().tries = MOST_TRIES;
        assert_eq!(missed.due(), ["c", "d", "a"]);
        for id in 100..300 {
            missed.note(&line(id, &format!("more {id}")));
        }
        assert_eq!((missed.due().len(), &*missed.due()[0]), (MOST_AT_ONCE, "c"));
    }
}
