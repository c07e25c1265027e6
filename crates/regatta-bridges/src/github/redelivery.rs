//! Requests missed webhook deliveries again. GitHub repeats a delivery only on request. It keeps a
//! list of all deliveries and their results, in which this module finds failed deliveries.

use std::collections::{BTreeMap, HashSet, VecDeque};

use reqwest::Method;
use serde_json::Value;

use crate::http::{HttpAnswer, percent_encoded};
use crate::service::ServiceError;

use super::api::GithubApi;

/// Maximum number of pages of GitHub's list of webhook deliveries that are read in one search.
const MAX_PAGES: usize = 50;
const MAX_REQUESTS_PER_SEARCH: usize = 100;
const MAX_TRIES: u32 = 5;
/// Maximum number of deliveries (successful and failed) whose ids are remembered.
const MAX_REMEMBERED: usize = 10_000;

/// The facts that were already read from GitHub's list of deliveries. It is harmless to lose these
/// facts at a restart, because a delivery that arrives twice is handled only once.
#[derive(Debug, Default)]
pub(super) struct MissedDeliveries {
    seen_ids: HashSet<u64>,
    seen_order: VecDeque<u64>,
    arrived: HashSet<String>,
    /// Failed deliveries by their GUID. GitHub uses the same GUID for all attempts of a delivery.
    failed: BTreeMap<String, FailedDelivery>,
}

/// A webhook delivery for which every attempt until now has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FailedDelivery {
    /// Id of the first attempt. Deliveries are ordered by this id, because ids grow with time.
    first: u64,
    latest: u64,
    /// Number of times that the delivery was requested again.
    tries: u32,
}

impl MissedDeliveries {
    /// Reads the new entries of GitHub's list of webhook deliveries, and asks GitHub to send the
    /// failed deliveries again. Returns the number of deliveries that it asked for.
    pub(super) async fn request_redelivery(
        &mut self,
        api: &GithubApi,
    ) -> Result<usize, ServiceError> {
        self.read_list(api).await?;
        let mut requested = 0;
        for guid in self.due_deliveries() {
            let Some(delivery) = self.failed.get_mut(&guid) else {
                continue;
            };
            delivery.tries += 1;
            match api
                .call_as_app(
                    Method::POST,
                    &format!("/app/hook/deliveries/{}/attempts", delivery.latest),
                )
                .await
            {
                Ok(_) => requested += 1,
                // GitHub has deleted this old delivery, so it is not requested again.
                Err(ServiceError::Rejected(_)) => delivery.tries = MAX_TRIES,
                Err(error) => return Err(error),
            }
        }
        Ok(requested)
    }

    /// Returns the GUIDs of the deliveries to request now. The oldest delivery comes first, so that
    /// messages arrive in order as far as possible.
    fn due_deliveries(&self) -> Vec<String> {
        let mut due: Vec<(u64, &String)> = self
            .failed
            .iter()
            .filter(|(_, delivery)| delivery.tries < MAX_TRIES)
            .map(|(guid, delivery)| (delivery.first, guid))
            .collect();
        due.sort_unstable();
        due.into_iter()
            .take(MAX_REQUESTS_PER_SEARCH)
            .map(|(_, guid)| guid.clone())
            .collect()
    }

    async fn read_list(&mut self, api: &GithubApi) -> Result<(), ServiceError> {
        let mut cursor = None::<String>;
        for _ in 0..MAX_PAGES {
            let cursor_argument = cursor.as_ref().map_or(String::new(), |cursor| {
                format!("&cursor={}", percent_encoded(cursor))
            });
            let answer = api
                .call_as_app(
                    Method::GET,
                    &format!("/app/hook/deliveries?per_page=100{cursor_argument}"),
                )
                .await?;
            let entries = answer
                .body
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            let new_entries = entries.iter().filter(|row| self.record_entry(row)).count();
            cursor = next_cursor(&answer);
            // Stop only at a page without any new entry, because GitHub does not list the entries
            // strictly by age.
            if cursor.is_none() || new_entries == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Records an entry of GitHub's list of webhook deliveries. Returns whether the entry is new.
    fn record_entry(&mut self, entry: &Value) -> bool {
        let (Some(id), Some(guid)) = (entry["id"].as_u64(), entry["guid"].as_str()) else {
            return false;
        };
        if !self.seen_ids.insert(id) {
            return false;
        }
        self.seen_order.push_back(id);
        if self.seen_order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.seen_order.pop_front()
        {
            self.seen_ids.remove(&oldest);
        }
        let has_arrived = entry["status_code"]
            .as_u64()
            .is_some_and(|status| (200..300).contains(&status));
        if has_arrived {
            self.failed.remove(guid);
            if self.arrived.len() > MAX_REMEMBERED {
                self.arrived.clear();
            }
            self.arrived.insert(guid.to_owned());
        } else if !self.arrived.contains(guid)
            && is_relevant(entry)
            && self.failed.len() < MAX_REMEMBERED
        {
            let delivery = self
                .failed
                .entry(guid.to_owned())
                .or_insert(FailedDelivery {
                    first: id,
                    latest: id,
                    tries: 0,
                });
            delivery.first = delivery.first.min(id);
            delivery.latest = delivery.latest.max(id);
        }
        true
    }
}

/// Returns whether the delivery in `entry` contains a kind of event that the bridge handles.
fn is_relevant(entry: &Value) -> bool {
    let event = (
        entry["event"].as_str().unwrap_or_default(),
        entry["action"].as_str().unwrap_or_default(),
    );
    matches!(
        event,
        ("issue_comment" | "pull_request_review_comment", "created")
            | ("issues", "opened" | "assigned")
            | ("pull_request", "opened")
            | ("pull_request_review", "submitted")
            | ("check_run", "rerequested" | "requested_action")
    )
}

/// Returns the cursor of the next page of the list. Only the cursor is read from the link in the
/// answer, so that the answer cannot make Regatta call another address.
fn next_cursor(answer: &HttpAnswer) -> Option<String> {
    let next = answer
        .header("link")?
        .split(',')
        .find(|link| link.contains("rel=\"next\""))?;
    let (_, rest) = next.split_once('<')?;
    let (address, _) = rest.split_once('>')?;
    let (_, query) = address.split_once('?')?;
    let cursor = query
        .split('&')
        .find_map(|argument| argument.strip_prefix("cursor="))?;
    let is_plain = cursor
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'%');
    is_plain.then(|| cursor.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failed_delivery_is_due_until_it_succeeds() {
        let line = |id: u64, guid: &str, status: u64, event: &str| json!({"id": id, "guid": guid, "status_code": status, "event": event, "action": "created"});
        let mut missed = MissedDeliveries::default();
        // The newest is listed first.
        for value in [
            line(9, "b", 200, "issue_comment"),
            line(8, "a", 502, "issue_comment"),
            line(7, "b", 0, "issue_comment"),
            line(6, "c", 500, "installation"),
            line(5, "d", 202, "issue_comment"),
        ] {
            assert!(missed.record_entry(&value));
            assert!(!missed.record_entry(&value), "the entry was listed before");
        }
        assert_eq!(
            missed.failed,
            BTreeMap::from([(
                "a".to_owned(),
                FailedDelivery {
                    first: 8,
                    latest: 8,
                    tries: 0
                }
            )])
        );
        missed.failed.get_mut("a").unwrap().tries = 3;
        missed.record_entry(&line(10, "a", 503, "issue_comment"));
        assert_eq!(
            missed.failed["a"],
            FailedDelivery {
                first: 8,
                latest: 10,
                tries: 3
            }
        );
        missed.record_entry(&line(11, "a", 200, "issue_comment"));
        assert!(missed.failed.is_empty());
    }

    #[test]
    fn missed_deliveries_are_requested_oldest_first() {
        let line = |id: u64, guid: &str| json!({"id": id, "guid": guid, "status_code": 502, "event": "issue_comment", "action": "created"});
        let mut missed = MissedDeliveries::default();
        // "c" was sent first, and again after all others.
        for value in [
            line(9, "c"),
            line(8, "a"),
            line(7, "d"),
            line(6, "b"),
            line(5, "c"),
        ] {
            missed.record_entry(&value);
        }
        assert_eq!(missed.due_deliveries(), ["c", "b", "d", "a"]);
        missed.failed.get_mut("b").unwrap().tries = MAX_TRIES;
        assert_eq!(missed.due_deliveries(), ["c", "d", "a"]);
        for id in 100..300 {
            missed.record_entry(&line(id, &format!("more {id}")));
        }
        assert_eq!(
            (missed.due_deliveries().len(), &*missed.due_deliveries()[0]),
            (MAX_REQUESTS_PER_SEARCH, "c")
        );
    }
}
