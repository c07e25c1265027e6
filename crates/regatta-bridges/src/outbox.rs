//! The outbox: shows the posts that are due, in order, at the pace that the service allows, and
//! never twice.
//!
//! The board says which posts are due. An edit that a later one replaced is never sent. A post is
//! marked as begun on the board before it is created, so that after a crash it is looked up by its
//! mark. Each conversation has at most one call under way, and a service that cannot be reached
//! delays only its own posts.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use regatta_core::board::Board;
use regatta_core::conversation::{Ask, Conversation, Post, Pull, Service, Shown, TurnState, What};
use regatta_core::ids::{AttemptId, ConversationId};
use tokio::task::JoinSet;

use crate::bucket::{Buckets, Kind, Limit, MAX_STRAY_DELAY};
use crate::desk::{Desk, Side};
use crate::render::{self, Live};
use crate::service::{Card, Outbound, Shot, Sight, Tone, Trouble};

/// Maximum number of calls of one instance at the same time.
const AT_ONCE: usize = 16;
/// Delay before a failed call is retried: the first one, and the longest.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_AT_MOST: Duration = Duration::from_secs(60);
/// Number of transcript records that are read at once.
const AT_A_TIME: usize = 500;

/// The state of a conversation between two calls. None of it has to survive a restart.
#[derive(Clone, Debug, Default)]
struct Memory {
    live: Option<(AttemptId, Live)>,
    /// Hash of the content that each piece of each post shows.
    sent: BTreeMap<(u64, usize), u64>,
    edited: Option<Instant>,
    /// Time of the last call, or of the start of this run.
    said: Option<Instant>,
    /// Posts that this run began and whose calls all had a clear result. An unsent piece of these
    /// does certainly not exist.
    sure: HashSet<u64>,
    /// The work that the limits delayed, and until when. Other work may go earlier: the end of a
    /// turn does not wait behind an edit.
    waits: Option<(Place, Instant)>,
    /// The service failed: no call is made before this time.
    not_before: Option<Instant>,
    failures: u32,
    /// The last error, until a call succeeds.
    trouble: Option<String>,
}

/// Identifies a piece of work: the post, its stage, and whether the work only shows progress.
type Place = (u64, u32, bool);

/// Shows the posts of one instance until the task is aborted.
pub(crate) async fn run(desk: Desk, service: Arc<dyn Outbound>, buckets: Buckets, has_github: bool) {
    let buckets = Arc::new(Mutex::new(buckets));
    let mut memories: HashMap<ConversationId, Memory> = HashMap::new();
    // The job of each conversation, so that a job that panics frees only its own conversation.
    let mut busy: HashMap<ConversationId, tokio::task::Id> = HashMap::new();
    let mut jobs: JoinSet<(ConversationId, Memory, Place, Came)> = JoinSet::new();
    let mut changes = desk.engine.watch();
    let mut locked = false;
    let started = Instant::now();
    loop {
        let board = changes.borrow_and_update().clone();
        let now = Instant::now();
        let mut wake = now + Duration::from_secs(30);
        memories.retain(|id, _| board.conversations.contains_key(id));
        if !desk.is_paused() {
            for (it, work) in due(&desk, &board, has_github) {
                if busy.contains_key(&it.id) || busy.len() >= AT_ONCE {
                    continue;
                }
                let memory = memories.entry(it.id).or_default();
                let ready =
                    ready_at(memory, &work, service.pace().div_f64(desk.registry().config.clock.max(0.001)), now);
                if ready > now {
                    wake = wake.min(ready);
                    continue;
                }
                let (desk, service, buckets) = (desk.clone(), service.clone(), buckets.clone());
                let (id, board, memory) = (it.id, board.clone(), std::mem::take(memory));
                let place = work.place();
                let job = jobs.spawn(async move {
                    let mut job = Job { desk, service, buckets, board, it, memory, started };
                    let came = job.perform(work).await;
                    (id, job.memory, place, came)
                });
                busy.insert(id, job.id());
            }
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            Some(done) = jobs.join_next(), if !jobs.is_empty() => match done {
                Ok((id, mut memory, place, came)) => {
                    match &came {
                        Came::Locked(why) => {
                            locked = true;
                            desk.let_in(Side::Out, Some(why)).await;
                        }
                        Came::Done if std::mem::take(&mut locked) => desk.let_in(Side::Out, None).await,
                        _ => {}
                    }
                    settle(&desk, &mut memory, place, came);
                    memories.insert(id, memory);
                    busy.remove(&id);
                }
                // The result of its call is found by the post's mark.
                Err(broken) => {
                    desk.note(|it| it.trouble = Some(format!("a posting task stopped unexpectedly: {broken}")));
                    busy.retain(|_, job| *job != broken.id());
                }
            },
            () = tokio::time::sleep_until(wake.into()) => {}
        }
    }
}

fn ready_at(memory: &Memory, work: &Work, pace: Duration, now: Instant) -> Instant {
    let waits = memory.waits.filter(|it| it.0 == work.place()).map_or(now, |it| it.1);
    let not_before = memory.not_before.unwrap_or(now).max(waits);
    match work {
        Work::Due(_) => not_before,
        Work::Progress(_) => not_before.max(memory.edited.map_or(now, |it| it + pace)),
    }
}

/// The result of a job.
#[derive(Debug)]
enum Came {
    Done,
    /// Nothing was sent; the limits have room after this time.
    Wait(Duration),
    Failed(String),
    Locked(String),
}

fn settle(desk: &Desk, memory: &mut Memory, place: Place, came: Came) {
    let now = Instant::now();
    match came {
        Came::Done => {
            (memory.waits, memory.not_before, memory.failures) = (None, None, 0);
            if let Some(over) = memory.trouble.take() {
                // A later error of something else stays.
                desk.note(|health| health.trouble = health.trouble.take().filter(|trouble| *trouble != over));
            }
        }
        Came::Wait(pause) => memory.waits = Some((place, now + pause)),
        Came::Failed(why) => {
            memory.failures += 1;
            let pause = (AGAIN * 2_u32.saturating_pow(memory.failures.min(8) - 1)).min(AGAIN_AT_MOST);
            memory.not_before = Some(now + pause);
            memory.trouble = Some(why.clone());
            desk.note(|it| {
                it.delayed += 1;
                it.trouble = Some(why);
            });
        }
        Came::Locked(why) => {
            memory.not_before = Some(now + AGAIN_AT_MOST);
            memory.trouble = Some(why.clone());
            desk.note(|it| it.trouble = Some(why));
        }
    }
}

/// The work on a conversation.
#[derive(Clone, Debug)]
enum Work {
    /// A post whose latest stage is not shown yet.
    Due(Post),
    /// A progress edit of a working turn.
    Progress(Post),
}

impl Work {
    fn place(&self) -> Place {
        match self {
            Work::Due(post) => (post.n, post.stage, false),
            Work::Progress(post) => (post.n, post.stage, true),
        }
    }
}

/// Returns the work to do: first reactions, then due posts, then progress edits; the oldest first.
fn due(desk: &Desk, board: &Board, has_github: bool) -> Vec<(Arc<Conversation>, Work)> {
    let mut found = Vec::new();
    for it in board.conversations.values().filter(|it| it.agent == desk.agent) {
        let own = it.service == desk.service;
        let ours = |post: &&Post| match post.what {
            // Only GitHub opens pull requests, whichever service the request came from.
            What::Pull => desk.service == Service::Github || (own && !has_github),
            _ => own,
        };
        if let Some(post) = it.unshown().find(ours) {
            let rank = u8::from(!matches!(post.what, What::Seen { .. }));
            found.push((rank, post.n, it.clone(), Work::Due(post.clone())));
        } else if own && let Some(turn) = it.working() {
            let post = it.posts.iter().find(|post| post.what == What::Turn { turn: turn.n });
            if let Some(post) = post.filter(|it| it.dead.is_none()) {
                found.push((2, post.n, it.clone(), Work::Progress(post.clone())));
            }
        }
    }
    found.sort_by_key(|it| (it.0, it.2.updated_wall));
    found.into_iter().map(|(_, _, it, work)| (it, work)).collect()
}

struct Job {
    desk: Desk,
    service: Arc<dyn Outbound>,
    buckets: Arc<Mutex<Buckets>>,
    board: Arc<Board>,
    it: Arc<Conversation>,
    memory: Memory,
    /// Start of this run.
    started: Instant,
}

impl Job {
    async fn perform(&mut self, work: Work) -> Came {
        match work {
            Work::Due(post) => match &post.what {
                What::Seen { source } => self.seen(&post, source.clone()).await,
                What::Pull => self.pull(&post).await,
                _ => self.card(&post, false).await,
            },
            Work::Progress(post) => {
                let came = self.card(&post, true).await;
                self.memory.edited = Some(Instant::now());
                came
            }
        }
    }

    /// Returns the limits of the service for this post, on the service's clock.
    fn limits(&self, shot: &Shot) -> Vec<Limit> {
        let times = self.desk.registry().config.clock.max(0.001);
        self.service.limits(shot).into_iter().map(|it| it.scaled(times)).collect()
    }

    fn take(&self, shot: &Shot) -> Result<(), Duration> {
        // Progress edits leave room for new posts and for the ends of turns.
        let moves = matches!(&shot.sight, Sight::Card(it) if it.tone == Tone::Working) && shot.shown_as.is_some();
        let limits = self.limits(shot);
        let keep = if moves { kept_for_ends(&limits, self.working()) } else { 0.0 };
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).take(&limits, keep, Instant::now())
    }

    /// Returns the number of working turns of this instance. Each will have an end to show.
    fn working(&self) -> usize {
        let own = |it: &&Arc<Conversation>| it.agent == self.desk.agent && it.service == self.desk.service;
        self.board.conversations.values().filter(own).filter(|it| it.working().is_some()).count()
    }

    /// Makes one call. The outer `Err` ends the job; the inner one means that the service will
    /// never accept the post.
    async fn send(&self, shot: &Shot) -> Result<Result<String, String>, Came> {
        self.take(shot).map_err(Came::Wait)?;
        let came = self.service.show(shot).await;
        let limits = self.limits(shot);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        match came {
            Err(Trouble::Unknown(_)) => buckets.lost(&limits, Instant::now()),
            _ => buckets.arrived(&limits, Instant::now()),
        }
        drop(buckets);
        match came {
            Ok(name) => {
                self.desk.note(|it| it.sent += 1);
                Ok(Ok(name))
            }
            Err(Trouble::Never(why)) => Ok(Err(why)),
            Err(Trouble::Later(pause)) => {
                let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
                buckets.shut(&limits, Instant::now() + pause);
                drop(buckets);
                self.desk.note(|it| it.delayed += 1);
                Err(Came::Wait(pause))
            }
            Err(Trouble::Unknown(why)) => Err(Came::Failed(why)),
            Err(Trouble::Locked(why)) => Err(Came::Locked(why)),
        }
    }

    async fn shown(&self, post: u64, shown: Shown) -> Came {
        match self.desk.converse(Ask::Show { conversation: self.it.id, post, shown }).await {
            Ok(_) => Came::Done,
            Err(why) => Came::Failed(why),
        }
    }

    fn shot(&self, post: &Post, part: usize, sight: Sight) -> Shot {
        let mut place = self.it.place.clone();
        // A turn is answered where it was asked for, even if somebody has written elsewhere since;
        // so are its questions.
        let turn = match post.what {
            What::Turn { turn } | What::Queued { turn, .. } => self.it.turns.iter().find(|it| it.n == turn),
            What::Ask { .. } => self.it.working(),
            _ => None,
        };
        if let Some(turn) = turn {
            place.extend(turn.place.clone());
            place.insert("source".to_owned(), turn.source.clone());
        }
        Shot {
            place,
            mark: format!("regatta:{}:{}:{part}", self.it.id, post.n),
            begun: post.begun,
            shown_as: post.refs.get(part).cloned(),
            stage: post.stage,
            sight,
        }
    }

    async fn seen(&mut self, post: &Post, source: String) -> Came {
        let shot = self.shot(post, 0, Sight::Seen { source });
        match self.send(&shot).await {
            Ok(Ok(_)) => self.shown(post.n, Shown::As { stage: post.stage, refs: vec![] }).await,
            Ok(Err(why)) => self.shown(post.n, Shown::Never { why }).await,
            Err(came) => came,
        }
    }

    async fn pull(&mut self, post: &Post) -> Came {
        if self.desk.service != Service::Github {
            let why = format!("{} has no GitHub App of its own, so it cannot open the pull request", self.it.agent);
            return self.shown(post.n, Shown::Never { why }).await;
        }
        let work = self.it.turns.iter().rev().find_map(|it| it.work.clone());
        let project = self.board.projects.get(&self.it.project);
        let (Some(work), Some(project)) = (work, project) else {
            return self.shown(post.n, Shown::Never { why: "there is no work for a pull request".into() }).await;
        };
        let branch = work.branch.clone();
        let title = self.it.turns.first().map_or_else(String::new, |turn| render::one_line(&turn.text, 72));
        let body = self.it.turns.iter().rev().find_map(|turn| turn.answer.clone()).unwrap_or_default();
        let mut shot = self.shot(
            post,
            0,
            Sight::Pull {
                title: self.desk.engine.redact(&title),
                body: self.desk.engine.redact(&body),
                head: work.branch,
                base: project.trunk.to_string(),
            },
        );
        if self.it.service != Service::Github {
            let maps = &self.desk.registry().config.map;
            let repo =
                maps.iter().filter(|it| it.project.as_ref() == Some(&project.name)).find_map(|it| it.github.clone());
            let Some(repo) = repo else {
                let why = format!("no [[bridges.map]] names the GitHub repository of {}", project.name);
                return self.shown(post.n, Shown::Never { why }).await;
            };
            shot.place = BTreeMap::from([("repo".to_owned(), repo)]);
        }
        match self.send(&shot).await {
            Ok(Ok(name)) => {
                let (number, url) = name.split_once(' ').unwrap_or((&name, ""));
                let (number, url) = (number.parse().unwrap_or(0), url.to_owned());
                let repo = shot.place.get("repo").map_or("", String::as_str);
                let thread = Some(format!("{}:{repo}:{number}", Service::Github));
                let pull = Pull { number, url, thread, branch: Some(branch) };
                if let Err(why) = self.desk.converse(Ask::Open { conversation: self.it.id, pull }).await {
                    return Came::Failed(why);
                }
                self.shown(post.n, Shown::As { stage: post.stage, refs: vec![name] }).await
            }
            Ok(Err(why)) => self.shown(post.n, Shown::Never { why }).await,
            Err(came) => came,
        }
    }

    /// Updates a post to its current content: sends each piece that is new or has changed.
    async fn card(&mut self, post: &Post, only_progress: bool) -> Came {
        let works = matches!(post.what, What::Turn { turn } if self.is_working(turn));
        if works {
            self.listen().await;
        }
        let live = self.memory.live.as_ref().map(|it| &it.1).filter(|_| works);
        let dashboard = self.desk.registry().config.dashboard.as_deref();
        let Some(card) = render::card(&self.board, &self.it, post, live, dashboard) else {
            // The post was replaced by a later event, so it need not be shown any more.
            return self.shown(post.n, Shown::As { stage: post.stage, refs: post.refs.clone() }).await;
        };
        let card = self.redacted(card);
        // Only a call counts as a sign of life, not a check that finds no change.
        let silent = self.memory.said.get_or_insert_with(Instant::now).elapsed();
        let beats = only_progress && self.service.heartbeat().is_some_and(|it| silent >= it);
        let mut refs = post.refs.clone();
        let mut begun = post.begun;
        for (part, piece) in self.service.pieces(&card).into_iter().enumerate() {
            let hash = hash_of(&piece);
            let same = self.memory.sent.get(&(post.n, part)) == Some(&hash);
            if same && part < refs.len() && !(beats && part == 0) {
                continue;
            }
            if part >= refs.len() && !begun {
                // Marked before it is created, so that a later run looks it up first.
                let begin = Ask::Begin { conversation: self.it.id, post: post.n };
                if let Err(why) = self.desk.converse(begin).await {
                    return Came::Failed(why);
                }
                begun = true;
                self.memory.sure.insert(post.n);
            }
            let mut shot = self.shot(post, part, Sight::Card(piece));
            shot.shown_as = refs.get(part).cloned();
            // A piece that this run began and has not sent certainly does not exist, however long
            // it had to wait.
            shot.begun = begun && !self.memory.sure.contains(&post.n);
            if shot.begun && shot.shown_as.is_none() {
                // An earlier run may have sent it in its last moment. If the service is asked too
                // early, it does not have the piece yet, and the piece would then be shown twice.
                let early = MAX_STRAY_DELAY.saturating_sub(self.started.elapsed());
                if !early.is_zero() {
                    return self.keep(post, &refs, Came::Wait(early)).await;
                }
            }
            let name = match self.send(&shot).await {
                Ok(Ok(name)) => name,
                Err(came @ Came::Failed(_)) => {
                    self.memory.sure.remove(&post.n);
                    return self.keep(post, &refs, came).await;
                }
                Ok(Err(why)) if only_progress => return self.progress_lost(why),
                Ok(Err(why)) => return self.shown(post.n, Shown::Never { why }).await,
                Err(came) => return self.keep(post, &refs, came).await,
            };
            self.memory.sent.insert((post.n, part), hash);
            self.memory.said = Some(Instant::now());
            match refs.get_mut(part) {
                Some(known) => *known = name,
                None => refs.push(name),
            }
        }
        if only_progress && refs == post.refs {
            return Came::Done;
        }
        let stage = if only_progress { post.shown } else { post.stage };
        let came = self.shown(post.n, Shown::As { stage, refs }).await;
        if !matches!(came, Came::Done) {
            self.memory.sure.remove(&post.n); // the post exists, but the board does not know
        }
        came
    }

    /// Removes secrets from a card, because the card leaves this machine (S4).
    fn redacted(&self, mut card: Card) -> Card {
        let clean = |text: &mut String| *text = self.desk.engine.redact(text);
        clean(&mut card.text);
        card.doing.iter_mut().for_each(clean);
        card.plan.iter_mut().for_each(|(text, _)| clean(text));
        card
    }

    /// Notes that the service did not accept a progress edit. The end of the turn is shown anyway.
    fn progress_lost(&self, why: String) -> Came {
        self.desk.note(|it| it.trouble = Some(why));
        Came::Done
    }

    /// Records the pieces that were created before the job had to stop, so that they are not
    /// created again.
    async fn keep(&mut self, post: &Post, refs: &[String], came: Came) -> Came {
        if refs.len() > post.refs.len() {
            let kept = self.shown(post.n, Shown::As { stage: post.shown, refs: refs.to_vec() }).await;
            if !matches!(kept, Came::Done) {
                self.memory.sure.remove(&post.n);
            }
        }
        came
    }

    fn is_working(&self, turn: u64) -> bool {
        self.it.turns.iter().any(|it| it.n == turn && it.state == TurnState::Working)
    }

    /// Reads the next records of the working attempt's transcript.
    async fn listen(&mut self) {
        let task = self.it.task.and_then(|it| self.board.tasks.get(&it));
        let Some(attempt) = task.and_then(|it| it.attempt) else { return };
        let mut live = match self.memory.live.take() {
            Some((of, live)) if of == attempt => live,
            _ => Live::default(),
        };
        let (agents, from) = (self.desk.engine.agents().clone(), live.read + 1);
        let read = tokio::task::spawn_blocking(move || agents.transcript(attempt, from, AT_A_TIME)).await;
        match read {
            Ok(Ok(lines)) => {
                for line in lines {
                    live.read = live.read.max(line.record.n);
                    line.said.iter().for_each(|it| live.hear(it));
                }
            }
            // Only the progress is missing; the end of the turn is shown anyway.
            Ok(Err(error)) => tracing::debug!(%attempt, "could not read the transcript: {error}"),
            Err(error) => tracing::debug!(%attempt, "could not read the transcript: {error}"),
        }
        self.memory.live = Some((attempt, live));
    }
}

/// Returns the share of the limits that progress edits leave free: half, or what the ends of all
/// working turns need.
fn kept_for_ends(limits: &[Limit], working: usize) -> f64 {
    let share = |limit: &Limit| match limit.kind {
        Kind::Window { most, .. } => working as f64 * f64::from(limit.cost) / f64::from(most.max(1)),
        Kind::Bucket { .. } => 0.0,
    };
    limits.iter().map(share).fold(0.5, f64::max).min(1.0)
}

fn hash_of(card: &Card) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&card.text, &card.doing, card.tone as u8).hash(&mut hasher);
    for (text, status) in &card.plan {
        (text, *status as u8).hash(&mut hasher);
    }
    for button in &card.buttons {
        button.value.hash(&mut hasher);
    }
    card.links.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(n: u64, stage: u32) -> Post {
        Post { n, what: What::Turn { turn: 1 }, stage, shown: 0, begun: true, refs: vec![], answer: None, dead: None }
    }

    /// An edit that the limits delay for most of a minute does not delay the end of the turn.
    #[test]
    fn end_of_a_turn_does_not_wait_behind_a_delayed_edit() {
        let (now, minute) = (Instant::now(), Duration::from_secs(60));
        let (edit, end) = (Work::Progress(post(2, 1)), Work::Due(post(2, 2)));
        let mut memory = Memory { waits: Some((edit.place(), now + minute)), ..Memory::default() };
        assert_eq!(ready_at(&memory, &edit, Duration::ZERO, now), now + minute);
        assert_eq!(ready_at(&memory, &end, Duration::ZERO, now), now);
        // A delay by the limits applies to the same work, and a failing service delays all work.
        memory.waits = Some((end.place(), now + minute));
        assert_eq!(ready_at(&memory, &end, Duration::ZERO, now), now + minute);
        (memory.waits, memory.not_before) = (None, Some(now + minute));
        assert_eq!(ready_at(&memory, &end, Duration::ZERO, now), now + minute);
    }

    #[test]
    fn edits_leave_room_for_the_ends_of_working_turns() {
        let limits =
            [Limit::window("chat.update", 50, Duration::from_secs(60)), Limit::bucket("x", 3.0, Duration::ZERO)];
        for (working, keep) in [(0, 0.5), (20, 0.5), (40, 0.8), (50, 1.0), (200, 1.0)] {
            assert_eq!(kept_for_ends(&limits, working), keep, "{working}");
        }
    }
}
