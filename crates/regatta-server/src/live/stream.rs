//! Streams live data to a browser: the changes of all topics that it watches, such as `inbox` or
//! `queue`.
//!
//! A topic is a set of entities. A changed entity is sent completely and replaces its earlier
//! version. A topic is built only while it has readers, once for all of them, and at most once per
//! frame interval. Each entity has the revision of its last change, so a browser that reconnects
//! with its last revision gets only later changes. If that revision is too old, the browser gets a
//! `reset` and all entities.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_core::ids::{MissionId, TaskId};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::authenticated::Authenticated;
use crate::{ProblemResponse, ServerState, request_limits};

use super::graph::GraphScope;
use super::topics;

/// Minimum time between two frames (sets of changes that are sent together). The pause after a
/// frame is four times the time that building the frame took, but at least this time and at most
/// `MAX_FRAME_INTERVAL`. So a browser usually costs at most a fifth of a processor core.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);
const MAX_FRAME_INTERVAL: Duration = Duration::from_millis(1_000);

fn frame_interval(build_time: Duration) -> Duration {
    (build_time * 4).clamp(FRAME_INTERVAL, MAX_FRAME_INTERVAL)
}

/// Interval of heartbeats, which show the browser that the connection is alive.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of removed entities that are remembered for each topic, so that a browser that
/// reconnects learns which entities were removed.
const MAX_REMOVED_ENTITIES: usize = 2_000;
/// Maximum number of topics that one browser can watch. `MAX_CACHED_TOPICS` limits the topics in
/// the cache.
const MAX_TOPICS_PER_READER: usize = 40;
const MAX_CACHED_TOPICS: usize = 200;

#[derive(Deserialize)]
pub(super) struct LiveParams {
    /// The topics to watch, separated by commas, such as `head,lanes@120,T9`. For a topic with `@`
    /// and a revision (number of an event), only changes after that revision are sent. For any
    /// other topic, all data is sent first.
    topics: String,
    /// Keep the stream open for changes. With `false`, the stream ends after the present state was
    /// sent.
    #[serde(default = "default_true")]
    follow: bool,
}

fn default_true() -> bool {
    true
}

/// A part of the live data that a browser can watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    Head,
    Inbox,
    Lanes,
    Bars,
    Shares,
    Queue,
    Spend,
    Cost,
    Tasks,
    Files,
    Runners,
    Teams,
    Conversations,
    Graph(GraphScope),
    Missions,
    Mission(MissionId),
    /// The rows of all tasks of a mission, including ended tasks.
    MissionTasks(MissionId),
    Task(TaskId),
}

impl Topic {
    fn parse(text: &str) -> Option<Topic> {
        Some(match text {
            "head" => Topic::Head,
            "inbox" => Topic::Inbox,
            "lanes" => Topic::Lanes,
            "bars" => Topic::Bars,
            "shares" => Topic::Shares,
            "queue" => Topic::Queue,
            "spend" => Topic::Spend,
            "cost" => Topic::Cost,
            "tasks" => Topic::Tasks,
            "files" => Topic::Files,
            "runners" => Topic::Runners,
            "teams" => Topic::Teams,
            "conversations" => Topic::Conversations,
            "graph" => Topic::Graph(GraphScope::All),
            other if other.starts_with("graph.") => {
                Topic::Graph(GraphScope::parse(&other["graph.".len()..])?)
            }
            "missions" => Topic::Missions,
            other => match other.split_once('.') {
                Some(("mission", id)) => Topic::Mission(parse_exact(id)?),
                Some(("tasks", id)) => Topic::MissionTasks(parse_exact(id)?),
                _ => Topic::Task(parse_exact(other)?),
            },
        })
    }

    /// Returns whether the topic's data changes as time passes, even without an event. An example
    /// is the rate of spending. Such topics are built again every minute. In all other topics, the
    /// browser computes everything that changes with time, such as ages.
    fn changes_with_time(self) -> bool {
        matches!(self, Topic::Spend | Topic::Cost)
    }

    fn name(self) -> String {
        match self {
            Topic::Task(id) => id.to_string(),
            Topic::Graph(GraphScope::All) => "graph".into(),
            Topic::Graph(of) => format!("graph.{of}"),
            Topic::Mission(id) => format!("mission.{id}"),
            Topic::MissionTasks(id) => format!("tasks.{id}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

/// Parses an id that is written as the server writes it: `T9`, not `t9` or `9`.
fn parse_exact<T: std::str::FromStr + ToString>(text: &str) -> Option<T> {
    text.parse().ok().filter(|id: &T| id.to_string() == text)
}

/// An entity (one unit of a topic's data, which is sent as a whole): its key and its JSON.
pub(super) type BuiltEntity = (String, Box<RawValue>);

#[derive(Default)]
struct CachedTopic {
    /// The revision (number of the last event) of the state from which the topic was last built.
    revision: u64,
    /// The oldest revision (number of an event) from which a reader can continue. A reader with an
    /// older revision gets all entities.
    oldest_revision: u64,
    /// The minute (counted from 1970) in which the topic was last built.
    minute: u64,
    build: u64,
    entities: BTreeMap<String, CachedEntity>,
    removed: VecDeque<(u64, String)>,
}

/// An entity (one unit of a topic's data) as it was last built. Each entity has the revision of its
/// last change, which is the number of an event.
struct CachedEntity {
    value: Box<RawValue>,
    /// The revision (number of the last event) at which the entity last changed.
    changed_revision: u64,
    /// The number that the topic's `build` had when the entity last changed. The revision alone is
    /// not enough, because an entity can also change as time passes, without a new revision.
    build: u64,
    is_age_only: bool,
}

impl CachedTopic {
    /// Returns whether the topic must be built again, because its data is older than this revision
    /// (number of the last event) or minute.
    fn needs_rebuild(&self, topic: Topic, revision: u64, minute: u64) -> bool {
        self.revision != revision || (topic.changes_with_time() && self.minute != minute)
    }

    /// Stores newly built entities, and records which of them changed and which entities were
    /// removed.
    fn store_entities(&mut self, revision: u64, built: Vec<BuiltEntity>) {
        if self.revision == 0 {
            self.oldest_revision = revision;
        }
        self.build += 1;
        let (build, is_age_only) = (self.build, self.revision == revision);
        let mut previous = std::mem::take(&mut self.entities);
        for (key, value) in built {
            let unchanged = previous
                .remove(&key)
                .filter(|entity| entity.value.get() == value.get());
            // The entity was removed earlier and exists again, so it is no longer listed as
            // removed.
            self.removed.retain(|(_, removed_key)| *removed_key != key);
            self.entities.insert(
                key,
                unchanged.unwrap_or(CachedEntity {
                    value,
                    changed_revision: revision,
                    build,
                    is_age_only,
                }),
            );
        }
        self.removed
            .extend(previous.into_keys().map(|key| (revision, key)));
        while self.removed.len() > MAX_REMOVED_ENTITIES {
            if let Some((revision, _)) = self.removed.pop_front() {
                self.oldest_revision = self.oldest_revision.max(revision);
            }
        }
        self.revision = revision;
    }

    /// Returns the entities that changed after the revision (number of an event) `after` and, if
    /// given, after the build `build`. A removed entity has no JSON. The returned flag is true if
    /// all entities are returned, because `after` is too old or not given.
    fn changes_since(
        &self,
        after: Option<u64>,
        build: Option<u64>,
    ) -> (Vec<(&str, Option<&RawValue>)>, bool) {
        let known = after.filter(|after| *after >= self.oldest_revision && *after <= self.revision);
        let Some(after) = known else {
            return (
                self.entities
                    .iter()
                    .map(|(key, entity)| (key.as_str(), Some(&*entity.value)))
                    .collect(),
                true,
            );
        };
        let has_aged = |entity: &CachedEntity| {
            entity.is_age_only
                && entity.changed_revision >= after
                && build.is_none_or(|seen| entity.build > seen)
        };
        let is_new = |entity: &CachedEntity| entity.changed_revision > after || has_aged(entity);
        let changed = self
            .entities
            .iter()
            .filter(|(_, entity)| is_new(entity))
            .map(|(key, entity)| (key.as_str(), Some(&*entity.value)));
        let removed = self
            .removed
            .iter()
            .filter(|(revision, _)| *revision > after)
            .map(|(_, key)| (key.as_str(), None));
        (changed.chain(removed).collect(), false)
    }
}

/// The cache of topics (parts of the page's data) that have readers now or had readers recently.
#[derive(Default)]
pub(super) struct TopicCache {
    topics: Mutex<BTreeMap<Topic, Arc<tokio::sync::Mutex<CachedTopic>>>>,
}

impl TopicCache {
    fn get_or_insert(&self, topic: Topic) -> Arc<tokio::sync::Mutex<CachedTopic>> {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if topics.len() >= MAX_CACHED_TOPICS {
            topics.retain(|_, topic| Arc::strong_count(topic) > 1);
        }
        topics.entry(topic).or_default().clone()
    }
}

pub(super) async fn live_stream(
    State(shared): State<Arc<ServerState>>,
    request_limits::QueryParams(params): request_limits::QueryParams<LiveParams>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    crate::verbs::require_read_pages(&authenticated.principal)?;
    let mut subscriptions = Vec::new();
    for text in params.topics.split(',').filter(|topic| !topic.is_empty()) {
        let (name, after) = text
            .split_once('@')
            .map_or((text, None), |(name, revision)| {
                (name, revision.parse().ok())
            });
        let topic = Topic::parse(name).ok_or_else(|| {
            Problem::new(
                400,
                "no_such_topic",
                format!("the live data has no topic {name:?}"),
                "topics are head, inbox, lanes, bars, shares, queue, spend, cost, tasks, tasks.M1, \
                files, runners, teams, conversations, missions, mission.M1, graph, graph.M1, \
                graph.T1 or a task",
            )
        })?;
        subscriptions.push(TopicSubscription {
            topic,
            cached: shared.live_caches.topics.get_or_insert(topic),
            after,
            build: None,
        });
    }
    // Sort the topics and remove duplicates, because all readers must lock topics in the same order
    // to avoid a deadlock.
    subscriptions.sort_by_key(|subscription| subscription.topic);
    subscriptions.dedup_by_key(|subscription| subscription.topic);
    if subscriptions.is_empty() || subscriptions.len() > MAX_TOPICS_PER_READER {
        let what = format!(
            "the query has {} topics, but a browser can watch 1 to {MAX_TOPICS_PER_READER}",
            subscriptions.len()
        );
        return Err(Problem::new(
            400,
            "bad_input",
            what,
            "list the topics in the query, such as topics=head,inbox",
        )
        .into());
    }
    let body = Body::from_stream(frames(shared, subscriptions, params.follow));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, body).into_response())
}

struct TopicSubscription {
    topic: Topic,
    cached: Arc<tokio::sync::Mutex<CachedTopic>>,
    /// The revision (number of an event) up to which the reader has seen the topic. `build` is the
    /// number of the topic's last build that the reader has seen.
    after: Option<u64>,
    build: Option<u64>,
}

/// Counts a browser as connected until this value is dropped.
struct ConnectedBrowser(Arc<ServerState>);

impl ConnectedBrowser {
    fn begin(shared: Arc<ServerState>) -> ConnectedBrowser {
        shared
            .live_caches
            .connected_browsers
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        ConnectedBrowser(shared)
    }
}

impl Drop for ConnectedBrowser {
    fn drop(&mut self) {
        self.0
            .live_caches
            .connected_browsers
            .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

fn frames(
    shared: Arc<ServerState>,
    mut subscriptions: Vec<TopicSubscription>,
    follow: bool,
) -> impl tokio_stream::Stream<Item = Result<Bytes, Infallible>> {
    async_stream::stream! {
        let _connected = ConnectedBrowser::begin(shared.clone());
        let mut board_changes = shared.event_fanout.watch_board();
        let mut down = shared.shutdown.subscribe();
        loop {
            board_changes.mark_unchanged();
            let started_at = std::time::Instant::now();
            for frame in next_frame(&shared, &mut subscriptions).await {
                yield Ok::<Bytes, Infallible>(frame);
            }
            if !follow {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(frame_interval(started_at.elapsed())) => {}
                _ = down.changed() => return,
            }
            loop {
                tokio::select! {
                    changed = board_changes.changed() => {
                        if changed.is_err() { return }
                        break;
                    }
                    () = tokio::time::sleep(HEARTBEAT_INTERVAL) => {
                        yield Ok(": still here\n\n".into());
                        // Without new events no signal arrives. But some topics change as time
                        // passes, so check them too.
                        if subscriptions.iter().any(|subscription| subscription.topic.changes_with_time()) { break }
                    }
                    _ = down.changed() => return,
                }
            }
        }
    }
}

/// Returns the changes since the last frame (set of changes) that the reader got. If the reader
/// must forget all entities of a topic, a frame with `reset` comes first.
async fn next_frame(
    shared: &Arc<ServerState>,
    subscriptions: &mut [TopicSubscription],
) -> Vec<Bytes> {
    let (mut parts, mut resets, mut revision) = (Vec::new(), Vec::new(), 0);
    let mut cached_topics = Vec::with_capacity(subscriptions.len());
    for subscription in subscriptions.iter() {
        cached_topics.push(subscription.cached.clone().lock_owned().await);
    }
    // Build all outdated topics in a single job on another thread, so that only one change of
    // threads is needed. All of them are built from the same board (the daemon's state in memory).
    let (board_revision, minute) = (
        shared.engine.board().revision,
        shared.engine.now().unix_ms / 60_000,
    );
    let outdated = subscriptions
        .iter()
        .zip(&cached_topics)
        .filter(|(subscription, cached)| {
            cached.needs_rebuild(subscription.topic, board_revision, minute)
        })
        .map(|(subscription, _)| subscription.topic);
    let mut built = topics::build_topics(shared, outdated.collect()).await;
    for (subscription, mut cached) in subscriptions.iter_mut().zip(cached_topics) {
        match built.remove(&subscription.topic) {
            Some(Ok((built_revision, entities))) => {
                cached.store_entities(built_revision, entities);
                cached.minute = minute;
            }
            Some(Err(problem)) => {
                tracing::error!(
                    "could not update the part {} of the web page; connected pages keep its old content: {}",
                    subscription.topic.name(),
                    problem.message
                )
            }
            None => {}
        }
        revision = revision.max(cached.revision);
        let (changes, is_whole) = cached.changes_since(subscription.after, subscription.build);
        let name = subscription.topic.name();
        for (key, value) in changes {
            let value = value.map_or("null", RawValue::get);
            parts.push(format!(
                "{{\"t\":\"{name}\",\"k\":{},\"v\":{value}}}",
                serde_json::Value::from(key)
            ));
        }
        if is_whole {
            resets.push(name);
        }
        (subscription.after, subscription.build) = (Some(cached.revision), Some(cached.build));
    }
    let mut frames = Vec::new();
    if !resets.is_empty() {
        let topics = serde_json::to_string(&resets).unwrap_or_default();
        frames.push(format!("event: reset\ndata: {{\"topics\":{topics}}}\n\n").into());
    }
    if !parts.is_empty() || !resets.is_empty() {
        let (wall, parts) = (shared.engine.now().unix_ms, parts.join(","));
        let text = format!(
            "id: {revision}\ndata: {{\"seq\":{revision},\"at\":{wall},\"p\":[{parts}]}}\n\n"
        );
        frames.push(text.into());
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built_entities(values: &[(&str, u64)]) -> Vec<BuiltEntity> {
        values
            .iter()
            .map(|(key, value)| {
                (
                    (*key).to_owned(),
                    RawValue::from_string(value.to_string()).unwrap(),
                )
            })
            .collect()
    }

    fn changes_as_text(
        cached: &CachedTopic,
        after: Option<u64>,
    ) -> (Vec<(String, Option<String>)>, bool) {
        let (changed, whole) = cached.changes_since(after, None);
        (
            changed
                .into_iter()
                .map(|(key, raw_value)| {
                    (
                        key.to_owned(),
                        raw_value.map(|raw_value| raw_value.get().to_owned()),
                    )
                })
                .collect(),
            whole,
        )
    }

    /// A reader that reconnects gets each entity that changed in the meantime as a whole, and the
    /// keys of removed entities. The reader gets all entities if it was away too long, or if its
    /// revision is from another daemon and does not exist here.
    #[test]
    fn reader_continues_from_its_revision() {
        let mut cached = CachedTopic::default();
        cached.store_entities(10, built_entities(&[("a", 1), ("b", 2)]));
        assert_eq!(changes_as_text(&cached, None).0.len(), 2);
        assert!(changes_as_text(&cached, None).1);
        assert_eq!(changes_as_text(&cached, Some(10)), (vec![], false));
        cached.store_entities(12, built_entities(&[("a", 1), ("c", 3)]));
        assert_eq!(
            changes_as_text(&cached, Some(10)),
            (
                vec![("c".into(), Some("3".into())), ("b".into(), None)],
                false
            )
        );
        assert_eq!(changes_as_text(&cached, Some(12)), (vec![], false));
        cached.store_entities(13, built_entities(&[("a", 9), ("b", 2), ("c", 3)]));
        let (changed, whole) = changes_as_text(&cached, Some(12));
        assert_eq!(
            changed,
            [
                ("a".into(), Some("9".into())),
                ("b".into(), Some("2".into()))
            ]
        );
        assert!(!whole);
        assert!(
            changes_as_text(&cached, Some(9)).1,
            "the revision is older than the first build"
        );
        assert!(
            changes_as_text(&cached, Some(14)).1,
            "the revision has not happened here"
        );
    }

    /// An entity that changes only with time is rebuilt every minute and sent once, without a new
    /// event. A reader that reconnects from that revision gets it too.
    #[test]
    fn entity_that_changes_with_time_is_sent_without_a_commit() {
        let mut cached = CachedTopic::default();
        cached.store_entities(10, built_entities(&[("spend", 1)]));
        let seen_at =
            |cached: &CachedTopic, build: u64| cached.changes_since(Some(10), Some(build)).0.len();
        assert_eq!((cached.build, seen_at(&cached, 1)), (1, 0));
        assert!(
            cached.needs_rebuild(Topic::Spend, 10, 1)
                && !cached.needs_rebuild(Topic::Tasks, 10, 1)
                && cached.needs_rebuild(Topic::Tasks, 11, 0)
        );
        cached.minute = 1;
        assert!(
            !cached.needs_rebuild(Topic::Spend, 10, 1) && cached.needs_rebuild(Topic::Cost, 10, 2)
        );
        cached.store_entities(10, built_entities(&[("spend", 1)]));
        assert_eq!(seen_at(&cached, 1), 0, "an unchanged entity is not sent");
        cached.store_entities(10, built_entities(&[("spend", 2)]));
        assert_eq!(
            (seen_at(&cached, 2), seen_at(&cached, 3)),
            (1, 0),
            "a changed entity is sent once"
        );
        assert_eq!(
            changes_as_text(&cached, Some(10)),
            (vec![("spend".into(), Some("2".into()))], false)
        );
        cached.store_entities(11, built_entities(&[("spend", 2)]));
        assert_eq!(changes_as_text(&cached, Some(11)), (vec![], false));
    }

    #[test]
    fn removals_are_forgotten_in_the_end_and_old_readers_get_everything() {
        let mut cached = CachedTopic::default();
        let entities: Vec<(String, u64)> = (0..MAX_REMOVED_ENTITIES as u64 + 1)
            .map(|n| (format!("k{n}"), n))
            .collect();
        let entities: Vec<(&str, u64)> = entities
            .iter()
            .map(|(key, value)| (key.as_str(), *value))
            .collect();
        cached.store_entities(5, built_entities(&entities));
        cached.store_entities(6, built_entities(&[]));
        assert_eq!(cached.removed.len(), MAX_REMOVED_ENTITIES);
        assert!(
            changes_as_text(&cached, Some(5)).1,
            "some removals since then are forgotten"
        );
        assert!(!changes_as_text(&cached, Some(6)).1);
    }

    /// Readers of a small fleet get nearly every event at once, and a busy machine
    /// builds frames less often.
    #[test]
    fn interval_of_frames_follows_from_the_time_to_build_one() {
        assert_eq!(frame_interval(Duration::from_millis(1)), FRAME_INTERVAL);
        assert_eq!(
            frame_interval(Duration::from_millis(60)),
            Duration::from_millis(240)
        );
        assert_eq!(frame_interval(Duration::from_secs(60)), MAX_FRAME_INTERVAL);
    }

    #[test]
    fn topics_are_parsed_by_their_names() {
        for name in "head inbox lanes bars shares queue spend tasks files runners teams \
            conversations T9 graph graph.M3 graph.T9 missions mission.M3 tasks.M3"
            .split(' ')
        {
            assert_eq!(Topic::parse(name).map(Topic::name).as_deref(), Some(name));
        }
        for bad in [
            "",
            "Head",
            "t9",
            "T",
            "T9x",
            "T09",
            "lanes ",
            "../x",
            "graph.",
            "graph.m3",
            "graph.A1",
            "mission.T3",
            "mission.m3",
            "tasks.",
            "tasks.T1",
        ] {
            assert_eq!(Topic::parse(bad), None, "{bad}");
        }
    }
}
