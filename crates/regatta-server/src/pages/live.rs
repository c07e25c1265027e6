//! What changed, to browsers: one stream of frames for all the topics a browser looks at.
//!
//! A topic is a set of entities, each sent whole; the last one counts. It is drawn once for all who look, when somebody
//! looks, at most once in a frame's time. Each entity keeps the revision at which it last changed, so a reader that comes
//! back with the revision it saw gets what changed since; one that has seen more than is remembered gets a `reset` and
//! everything.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_core::ids::TaskId;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::entered::Entered;
use crate::{Refused, Shared, bounds};

use super::draw;
use super::graph::Of;

/// How often frames come at most. One that took long to make is followed by a pause of four times that, so that a
/// reader costs a fifth of a core at the very most, however large the fleet is and however busy the machine.
const FRAME: Duration = Duration::from_millis(100);
const FRAME_MOST: Duration = Duration::from_millis(1_000);

fn pace(took: Duration) -> Duration {
    (took * 4).clamp(FRAME, FRAME_MOST)
}

/// How often a reader is told that the daemon is there.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How many entities that are gone are remembered.
const MOST_GONE: usize = 2_000;
/// How many topics one reader may look at, and how many are kept.
const MOST_WANTED: usize = 40;
const MOST_KEPT: usize = 200;

#[derive(Deserialize)]
pub(super) struct Asked {
    /// `head,lanes@120,T9`: each from the revision that was seen, or whole.
    topics: String,
    /// `false` ends the stream with what there is.
    #[serde(default = "yes")]
    follow: bool,
}

fn yes() -> bool {
    true
}

/// What a browser can look at.
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
    Graph(Of),
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
            "graph" => Topic::Graph(Of::All),
            other if other.starts_with("graph.") => Topic::Graph(Of::parse(&other["graph.".len()..])?),
            other => Topic::Task(other.parse().ok().filter(|it: &TaskId| it.to_string() == other)?),
        })
    }

    /// Whether what it says changes with the clock alone: a rate, and when it reaches a cap. It is looked at again every
    /// minute; everything else that ages is drawn by whoever reads.
    fn ages(self) -> bool {
        matches!(self, Topic::Spend | Topic::Cost)
    }

    fn name(self) -> String {
        match self {
            Topic::Task(id) => id.to_string(),
            Topic::Graph(Of::All) => "graph".into(),
            Topic::Graph(of) => format!("graph.{of}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

/// An entity's name and how it is drawn.
pub(super) type Drawn = (String, Box<RawValue>);

#[derive(Default)]
struct Kept {
    /// Where the board was when it was last drawn.
    revision: u64,
    /// What is older cannot be resumed from.
    floor: u64,
    /// In which minute it was last drawn, and how often it was.
    minute: u64,
    turn: u64,
    entities: BTreeMap<String, Entity>,
    gone: VecDeque<(u64, String)>,
}

/// An entity as it was last drawn, and when that became something else.
struct Entity {
    value: Box<RawValue>,
    /// The board's revision by then.
    changed: u64,
    /// The turn of drawing; one that changed with the clock alone has the revision of before.
    turn: u64,
    aged: bool,
}

impl Kept {
    /// Whether it must be drawn again.
    fn is_old(&self, topic: Topic, revision: u64, minute: u64) -> bool {
        self.revision != revision || (topic.ages() && self.minute != minute)
    }

    /// Takes in how it is drawn now.
    fn take(&mut self, revision: u64, drawn: Vec<Drawn>) {
        if self.revision == 0 {
            self.floor = revision;
        }
        self.turn += 1;
        let (turn, aged) = (self.turn, self.revision == revision);
        let mut before = std::mem::take(&mut self.entities);
        for (key, value) in drawn {
            let same = before.remove(&key).filter(|it| it.value.get() == value.get());
            // What came back is not gone.
            self.gone.retain(|it| it.1 != key);
            self.entities.insert(key, same.unwrap_or(Entity { value, changed: revision, turn, aged }));
        }
        self.gone.extend(before.into_keys().map(|it| (revision, it)));
        while self.gone.len() > MOST_GONE {
            if let Some((revision, _)) = self.gone.pop_front() {
                self.floor = self.floor.max(revision);
            }
        }
        self.revision = revision;
    }

    /// What changed after a revision, and after the turn that was seen if it is known; whether that is everything, because
    /// the revision is too old or of another time.
    fn since(&self, after: Option<u64>, turn: Option<u64>) -> (Vec<(&str, Option<&RawValue>)>, bool) {
        let known = after.filter(|it| *it >= self.floor && *it <= self.revision);
        let Some(after) = known else {
            return (self.entities.iter().map(|(key, it)| (key.as_str(), Some(&*it.value))).collect(), true);
        };
        let aged = |it: &Entity| it.aged && it.changed >= after && turn.is_none_or(|seen| it.turn > seen);
        let new = |it: &Entity| it.changed > after || aged(it);
        let changed = self.entities.iter().filter(|it| new(it.1)).map(|(key, it)| (key.as_str(), Some(&*it.value)));
        let gone = self.gone.iter().filter(|it| it.0 > after).map(|it| (it.1.as_str(), None));
        (changed.chain(gone).collect(), false)
    }
}

/// Topics that somebody looks at, or looked at lately.
#[derive(Default)]
pub(super) struct Topics {
    kept: Mutex<BTreeMap<Topic, Arc<tokio::sync::Mutex<Kept>>>>,
}

impl Topics {
    fn of(&self, topic: Topic) -> Arc<tokio::sync::Mutex<Kept>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT {
            kept.retain(|_, it| Arc::strong_count(it) > 1);
        }
        kept.entry(topic).or_default().clone()
    }
}

pub(super) async fn live(
    State(shared): State<Arc<Shared>>,
    bounds::Asked(asked): bounds::Asked<Asked>,
    entered: Entered,
) -> Result<Response, Refused> {
    crate::calls::sees_all(&entered.visitor, "look at the pages", "use a token with the scope viewer or wider")?;
    let mut wanted = Vec::new();
    for text in asked.topics.split(',').filter(|it| !it.is_empty()) {
        let (name, after) = text.split_once('@').map_or((text, None), |it| (it.0, it.1.parse().ok()));
        let topic = Topic::parse(name).ok_or_else(|| {
            Problem::new(
                400,
                "no_such_topic",
                "there is no such topic",
                "topics are head, inbox, lanes, bars, shares, queue, spend, cost, tasks, files, runners, teams, conversations, graph, graph.M1, graph.T1 or a task",
            )
        })?;
        wanted.push(Wanted { topic, kept: shared.pages.topics.of(topic), after, turn: None });
    }
    // All readers lock in one order, and nothing twice.
    wanted.sort_by_key(|it| it.topic);
    wanted.dedup_by_key(|it| it.topic);
    if wanted.is_empty() || wanted.len() > MOST_WANTED {
        let what = format!("a reader looks at 1 to {MOST_WANTED} topics");
        return Err(Problem::new(400, "bad_input", what, "name fewer").into());
    }
    let body = Body::from_stream(frames(shared, wanted, asked.follow));
    let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((head, body).into_response())
}

struct Wanted {
    topic: Topic,
    kept: Arc<tokio::sync::Mutex<Kept>>,
    /// What the reader has seen of it.
    after: Option<u64>,
    turn: Option<u64>,
}

/// Somebody looks, until this is dropped.
struct Looking(Arc<Shared>);

impl Looking {
    fn begin(shared: Arc<Shared>) -> Looking {
        shared.pages.looking.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Looking(shared)
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.pages.looking.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

fn frames(
    shared: Arc<Shared>,
    mut wanted: Vec<Wanted>,
    follow: bool,
) -> impl tokio_stream::Stream<Item = Result<Bytes, Infallible>> {
    async_stream::stream! {
        let _looking = Looking::begin(shared.clone());
        let mut bell = shared.hub.bell();
        let mut down = shared.down.subscribe();
        loop {
            bell.mark_unchanged();
            let began = std::time::Instant::now();
            for frame in frame(&shared, &mut wanted).await {
                yield Ok::<Bytes, Infallible>(frame);
            }
            if !follow {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(pace(began.elapsed())) => {}
                _ = down.changed() => return,
            }
            loop {
                tokio::select! {
                    rung = bell.changed() => {
                        if rung.is_err() { return }
                        break;
                    }
                    () = tokio::time::sleep(HEARTBEAT) => {
                        yield Ok(": still here\n\n".into());
                        // A quiet fleet commits nothing; what the clock alone changes is looked at all the same.
                        if wanted.iter().any(|it| it.topic.ages()) { break }
                    }
                    _ = down.changed() => return,
                }
            }
        }
    }
}

/// What changed since the reader last looked: a reset for what it must forget, then one frame.
async fn frame(shared: &Arc<Shared>, wanted: &mut [Wanted]) -> Vec<Bytes> {
    let (mut parts, mut resets, mut revision) = (Vec::new(), Vec::new(), 0);
    let mut held = Vec::with_capacity(wanted.len());
    for it in wanted.iter() {
        held.push(it.kept.clone().lock_owned().await);
    }
    // What is old is drawn in one go, from one board: another thread is asked once for a frame, not once for a topic.
    let (now, minute) = (shared.engine.board().revision, shared.engine.now().wall / 60_000);
    let old = wanted.iter().zip(&held).filter(|(it, kept)| kept.is_old(it.topic, now, minute)).map(|it| it.0.topic);
    let mut drawn = draw::topics(shared, old.collect()).await;
    for (it, mut kept) in wanted.iter_mut().zip(held) {
        match drawn.remove(&it.topic) {
            Some(Ok((at, entities))) => {
                kept.take(at, entities);
                kept.minute = minute;
            }
            Some(Err(problem)) => {
                tracing::error!("the topic {} could not be drawn: {}", it.topic.name(), problem.message)
            }
            None => {}
        }
        revision = revision.max(kept.revision);
        let (changed, whole) = kept.since(it.after, it.turn);
        let name = it.topic.name();
        for (key, value) in changed {
            let value = value.map_or("null", RawValue::get);
            parts.push(format!("{{\"t\":\"{name}\",\"k\":{},\"v\":{value}}}", serde_json::Value::from(key)));
        }
        if whole {
            resets.push(name);
        }
        (it.after, it.turn) = (Some(kept.revision), Some(kept.turn));
    }
    let mut frames = Vec::new();
    if !resets.is_empty() {
        let topics = serde_json::to_string(&resets).unwrap_or_default();
        frames.push(format!("event: reset\ndata: {{\"topics\":{topics}}}\n\n").into());
    }
    if !parts.is_empty() || !resets.is_empty() {
        let (wall, parts) = (shared.engine.now().wall, parts.join(","));
        let text = format!("id: {revision}\ndata: {{\"seq\":{revision},\"at\":{wall},\"p\":[{parts}]}}\n\n");
        frames.push(text.into());
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(of: &[(&str, u64)]) -> Vec<Drawn> {
        of.iter().map(|(key, value)| ((*key).to_owned(), RawValue::from_string(value.to_string()).unwrap())).collect()
    }

    fn seen(kept: &Kept, after: Option<u64>) -> (Vec<(String, Option<String>)>, bool) {
        let (changed, whole) = kept.since(after, None);
        (changed.into_iter().map(|(key, it)| (key.to_owned(), it.map(|it| it.get().to_owned()))).collect(), whole)
    }

    /// A reader that comes back gets what changed since, whole, and hears of what is gone; one that was away for too
    /// long, or saw another daemon's future, gets everything.
    #[test]
    fn a_reader_goes_on_from_its_revision() {
        let mut kept = Kept::default();
        kept.take(10, drawn(&[("a", 1), ("b", 2)]));
        assert_eq!(seen(&kept, None).0.len(), 2);
        assert!(seen(&kept, None).1);
        assert_eq!(seen(&kept, Some(10)), (vec![], false));
        kept.take(12, drawn(&[("a", 1), ("c", 3)]));
        assert_eq!(seen(&kept, Some(10)), (vec![("c".into(), Some("3".into())), ("b".into(), None)], false));
        assert_eq!(seen(&kept, Some(12)), (vec![], false));
        kept.take(13, drawn(&[("a", 9), ("b", 2), ("c", 3)]));
        let (changed, whole) = seen(&kept, Some(12));
        assert_eq!(changed, [("a".into(), Some("9".into())), ("b".into(), Some("2".into()))]);
        assert!(!whole);
        assert!(seen(&kept, Some(9)).1, "before it was first drawn");
        assert!(seen(&kept, Some(14)).1, "a revision that has not happened");
    }

    /// What the clock alone changes is drawn again every minute and told once, though nothing was committed; whoever
    /// comes back from that revision hears of it, too.
    #[test]
    fn what_ages_is_told_without_a_commit() {
        let mut kept = Kept::default();
        kept.take(10, drawn(&[("spend", 1)]));
        let seen_at = |kept: &Kept, turn: u64| kept.since(Some(10), Some(turn)).0.len();
        assert_eq!((kept.turn, seen_at(&kept, 1)), (1, 0));
        assert!(
            kept.is_old(Topic::Spend, 10, 1) && !kept.is_old(Topic::Tasks, 10, 1) && kept.is_old(Topic::Tasks, 11, 0)
        );
        kept.minute = 1;
        assert!(!kept.is_old(Topic::Spend, 10, 1) && kept.is_old(Topic::Cost, 10, 2));
        kept.take(10, drawn(&[("spend", 1)]));
        assert_eq!(seen_at(&kept, 1), 0, "it is as it was");
        kept.take(10, drawn(&[("spend", 2)]));
        assert_eq!((seen_at(&kept, 2), seen_at(&kept, 3)), (1, 0), "and now it is not; once is enough");
        assert_eq!(seen(&kept, Some(10)), (vec![("spend".into(), Some("2".into()))], false));
        kept.take(11, drawn(&[("spend", 2)]));
        assert_eq!(seen(&kept, Some(11)), (vec![], false));
    }

    #[test]
    fn what_is_gone_is_forgotten_in_the_end_and_old_readers_start_anew() {
        let mut kept = Kept::default();
        let many: Vec<(String, u64)> = (0..MOST_GONE as u64 + 1).map(|it| (format!("k{it}"), it)).collect();
        let many: Vec<(&str, u64)> = many.iter().map(|it| (it.0.as_str(), it.1)).collect();
        kept.take(5, drawn(&many));
        kept.take(6, drawn(&[]));
        assert_eq!(kept.gone.len(), MOST_GONE);
        assert!(seen(&kept, Some(5)).1, "not all that is gone since is remembered");
        assert!(!seen(&kept, Some(6)).1);
    }

    /// Small fleets see nearly every event at once; a machine that is busy is not made busier.
    #[test]
    fn frames_come_as_often_as_they_can_be_made() {
        assert_eq!(pace(Duration::from_millis(1)), FRAME);
        assert_eq!(pace(Duration::from_millis(60)), Duration::from_millis(240));
        assert_eq!(pace(Duration::from_secs(60)), FRAME_MOST);
    }

    #[test]
    fn topics_are_known_by_their_names() {
        for name in "head inbox lanes bars shares queue spend tasks files runners teams conversations T9 graph graph.M3 graph.T9".split(' ') {
            assert_eq!(Topic::parse(name).map(Topic::name).as_deref(), Some(name));
        }
        for bad in ["", "Head", "t9", "T", "T9x", "T09", "lanes ", "../x", "graph.", "graph.m3", "graph.A1"] {
            assert_eq!(Topic::parse(bad), None, "{bad}");
        }
    }
}
