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
use regatta_core::conversation::{
    Conversation, ConversationCommand, ConversationPull, PostContent, Service, ShowOutcome,
    ThreadPost, TurnState,
};
use regatta_core::ids::{AttemptId, ConversationId};
use tokio::task::JoinSet;

use crate::intake::{BridgeSide, Intake};
use crate::rate_limit::{CallLimiter, MAX_LATE_ARRIVAL, RateLimit, RateLimitKind};
use crate::render::{self, TurnProgress};
use crate::service::{CardTone, Outbound, PostCard, SendContent, SendRequest, ServiceError};

/// Maximum number of calls of one instance at the same time.
const MAX_CALLS: usize = 16;
/// Delay before a failed call is retried: the first one, and the longest.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Number of transcript records that are read at once.
const RECORDS_PER_READ: usize = 500;

/// The state of a conversation between two calls. None of it has to survive a restart.
#[derive(Clone, Debug, Default)]
struct ConversationMemory {
    progress: Option<(AttemptId, TurnProgress)>,
    /// Hash of the content that each piece of each post shows.
    shown_hashes: BTreeMap<(u64, usize), u64>,
    last_edit: Option<Instant>,
    /// Time of the last call, or of the start of this run.
    last_call: Option<Instant>,
    /// Posts that this run began and whose calls all had a clear result. An unsent piece of these
    /// does certainly not exist.
    certain_posts: HashSet<u64>,
    /// The work that the limits delayed, and until when. Other work may go earlier: the end of a
    /// turn does not wait behind an edit.
    delayed_work: Option<(WorkKey, Instant)>,
    /// The service failed: no call is made before this time.
    not_before: Option<Instant>,
    failures: u32,
    /// The last error, until a call succeeds.
    last_error: Option<String>,
}

/// Identifies a piece of work: the post, its stage, and whether the work only shows progress.
type WorkKey = (u64, u32, bool);

/// Shows the posts of one instance until the task is aborted.
pub(crate) async fn run(
    desk: Intake,
    service: Arc<dyn Outbound>,
    buckets: CallLimiter,
    has_github: bool,
) {
    let buckets = Arc::new(Mutex::new(buckets));
    let mut memories: HashMap<ConversationId, ConversationMemory> = HashMap::new();
    // The job of each conversation, so that a job that panics frees only its own conversation.
    let mut busy: HashMap<ConversationId, tokio::task::Id> = HashMap::new();
    let mut jobs: JoinSet<(ConversationId, ConversationMemory, WorkKey, JobOutcome)> =
        JoinSet::new();
    let mut changes = desk.engine.watch_board();
    let mut locked = false;
    let started = Instant::now();
    loop {
        let board = changes.borrow_and_update().clone();
        let now = Instant::now();
        let mut wake = now + Duration::from_secs(30);
        memories.retain(|id, _| board.conversations.contains_key(id));
        if !desk.is_paused() {
            for (conversation, work) in due_work(&desk, &board, has_github) {
                if busy.contains_key(&conversation.id) || busy.len() >= MAX_CALLS {
                    continue;
                }
                let memory = memories.entry(conversation.id).or_default();
                let ready = ready_at(
                    memory,
                    &work,
                    service
                        .min_edit_interval()
                        .div_f64(desk.registry().config.clock.max(0.001)),
                    now,
                );
                if ready > now {
                    wake = wake.min(ready);
                    continue;
                }
                let (desk, service, buckets) = (desk.clone(), service.clone(), buckets.clone());
                let (id, board, memory) = (conversation.id, board.clone(), std::mem::take(memory));
                let place = work.key();
                let job = jobs.spawn(async move {
                    let mut job = PostJob {
                        intake: desk,
                        service,
                        limiter: buckets,
                        board,
                        conversation: conversation,
                        memory,
                        started,
                    };
                    let came = job.run(work).await;
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
                        JobOutcome::Unauthorized(why) => {
                            locked = true;
                            desk.report_credential(BridgeSide::Posting, Some(why)).await;
                        }
                        JobOutcome::Done if std::mem::take(&mut locked) => desk.report_credential(BridgeSide::Posting, None).await,
                        _ => {}
                    }
                    record_outcome(&desk, &mut memory, place, came);
                    memories.insert(id, memory);
                    busy.remove(&id);
                }
                // The result of its call is found by the post's mark.
                Err(broken) => {
                    desk.update_health(|bridge_health| bridge_health.trouble = Some(format!("a posting task stopped \
                        unexpectedly: {broken}")));
                    busy.retain(|_, job| *job != broken.id());
                }
            },
            () = tokio::time::sleep_until(wake.into()) => {}
        }
    }
}

fn ready_at(memory: &ConversationMemory, work: &PostWork, pace: Duration, now: Instant) -> Instant {
    let waits = memory
        .delayed_work
        .filter(|delayed_work| delayed_work.0 == work.key())
        .map_or(now, |delayed_work| delayed_work.1);
    let not_before = memory.not_before.unwrap_or(now).max(waits);
    match work {
        PostWork::DuePost(_) => not_before,
        PostWork::Progress(_) => {
            not_before.max(memory.last_edit.map_or(now, |instant| instant + pace))
        }
    }
}

/// The result of a job.
#[derive(Debug)]
enum JobOutcome {
    Done,
    /// Nothing was sent; the limits have room after this time.
    RateLimited(Duration),
    Failed(String),
    Unauthorized(String),
}

fn record_outcome(
    desk: &Intake,
    memory: &mut ConversationMemory,
    place: WorkKey,
    came: JobOutcome,
) {
    let now = Instant::now();
    match came {
        JobOutcome::Done => {
            (memory.delayed_work, memory.not_before, memory.failures) = (None, None, 0);
            if let Some(over) = memory.last_error.take() {
                // A later error of something else stays.
                desk.update_health(|health| {
                    health.trouble = health.trouble.take().filter(|trouble| *trouble != over)
                });
            }
        }
        JobOutcome::RateLimited(pause) => memory.delayed_work = Some((place, now + pause)),
        JobOutcome::Failed(why) => {
            memory.failures += 1;
            let pause = (RETRY_DELAY * 2_u32.saturating_pow(memory.failures.min(8) - 1))
                .min(MAX_RETRY_DELAY);
            memory.not_before = Some(now + pause);
            memory.last_error = Some(why.clone());
            desk.update_health(|bridge_health| {
                bridge_health.delayed += 1;
                bridge_health.trouble = Some(why);
            });
        }
        JobOutcome::Unauthorized(why) => {
            memory.not_before = Some(now + MAX_RETRY_DELAY);
            memory.last_error = Some(why.clone());
            desk.update_health(|bridge_health| bridge_health.trouble = Some(why));
        }
    }
}

/// The work on a conversation.
#[derive(Clone, Debug)]
enum PostWork {
    /// A post whose latest stage is not shown yet.
    DuePost(ThreadPost),
    /// A progress edit of a working turn.
    Progress(ThreadPost),
}

impl PostWork {
    fn key(&self) -> WorkKey {
        match self {
            PostWork::DuePost(post) => (post.number, post.stage, false),
            PostWork::Progress(post) => (post.number, post.stage, true),
        }
    }
}

/// Returns the work to do: first reactions, then due posts, then progress edits; the oldest first.
fn due_work(desk: &Intake, board: &Board, has_github: bool) -> Vec<(Arc<Conversation>, PostWork)> {
    let mut found = Vec::new();
    for conversation in board
        .conversations
        .values()
        .filter(|conversation| conversation.agent == desk.agent)
    {
        let own = conversation.service == desk.service;
        let ours = |post: &&ThreadPost| match post.content {
            // Only GitHub opens pull requests, whichever service the request came from.
            PostContent::Pull => desk.service == Service::Github || (own && !has_github),
            _ => own,
        };
        if let Some(post) = conversation.unshown_posts().find(ours) {
            let rank = u8::from(!matches!(post.content, PostContent::Seen { .. }));
            found.push((
                rank,
                post.number,
                conversation.clone(),
                PostWork::DuePost(post.clone()),
            ));
        } else if own && let Some(turn) = conversation.current_turn() {
            let post = conversation
                .posts
                .iter()
                .find(|post| post.content == PostContent::Turn { turn: turn.number });
            if let Some(post) = post.filter(|thread_post| thread_post.failure.is_none()) {
                found.push((
                    2,
                    post.number,
                    conversation.clone(),
                    PostWork::Progress(post.clone()),
                ));
            }
        }
    }
    found.sort_by_key(|found| (found.0, found.2.updated_unix_ms));
    found
        .into_iter()
        .map(|(_, _, conversation, work)| (conversation, work))
        .collect()
}

struct PostJob {
    intake: Intake,
    service: Arc<dyn Outbound>,
    limiter: Arc<Mutex<CallLimiter>>,
    board: Arc<Board>,
    conversation: Arc<Conversation>,
    memory: ConversationMemory,
    /// Start of this run.
    started: Instant,
}

impl PostJob {
    async fn run(&mut self, work: PostWork) -> JobOutcome {
        match work {
            PostWork::DuePost(post) => match &post.content {
                PostContent::Seen { source } => self.show_reaction(&post, source.clone()).await,
                PostContent::Pull => self.show_pull_request(&post).await,
                _ => self.show_card(&post, false).await,
            },
            PostWork::Progress(post) => {
                let came = self.show_card(&post, true).await;
                self.memory.last_edit = Some(Instant::now());
                came
            }
        }
    }

    /// Returns the limits of the service for this post, on the service's clock.
    fn limits(&self, shot: &SendRequest) -> Vec<RateLimit> {
        let times = self.intake.registry().config.clock.max(0.001);
        self.service
            .rate_limits(shot)
            .into_iter()
            .map(|rate_limit| rate_limit.faster(times))
            .collect()
    }

    fn acquire_limits(&self, shot: &SendRequest) -> Result<(), Duration> {
        // Progress edits leave room for new posts and for the ends of turns.
        let moves = matches!(&shot.content, SendContent::Card(post_card) if post_card.tone == CardTone::Working)
            && shot.existing_name.is_some();
        let limits = self.limits(shot);
        let keep = if moves {
            share_for_turn_ends(&limits, self.working_turns())
        } else {
            0.0
        };
        self.limiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .try_acquire(&limits, keep, Instant::now())
    }

    /// Returns the number of working turns of this instance. Each will have an end to show.
    fn working_turns(&self) -> usize {
        let own = |conversation: &&Arc<Conversation>| {
            conversation.agent == self.intake.agent && conversation.service == self.intake.service
        };
        self.board
            .conversations
            .values()
            .filter(own)
            .filter(|conversation| conversation.current_turn().is_some())
            .count()
    }

    /// Makes one call. The outer `Err` ends the job; the inner one means that the service will
    /// never accept the post.
    async fn send(&self, shot: &SendRequest) -> Result<Result<String, String>, JobOutcome> {
        self.acquire_limits(shot).map_err(JobOutcome::RateLimited)?;
        let came = self.service.show(shot).await;
        let limits = self.limits(shot);
        let mut buckets = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        match came {
            Err(ServiceError::OutcomeUnknown(_)) => buckets.on_unanswered(&limits, Instant::now()),
            _ => buckets.on_answered(&limits, Instant::now()),
        }
        drop(buckets);
        match came {
            Ok(name) => {
                self.intake
                    .update_health(|bridge_health| bridge_health.sent += 1);
                Ok(Ok(name))
            }
            Err(ServiceError::Rejected(why)) => Ok(Err(why)),
            Err(ServiceError::RetryAfter(pause)) => {
                let mut buckets = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
                buckets.block_until(&limits, Instant::now() + pause);
                drop(buckets);
                self.intake
                    .update_health(|bridge_health| bridge_health.delayed += 1);
                Err(JobOutcome::RateLimited(pause))
            }
            Err(ServiceError::OutcomeUnknown(why)) => Err(JobOutcome::Failed(why)),
            Err(ServiceError::Unauthorized(why)) => Err(JobOutcome::Unauthorized(why)),
        }
    }

    async fn record_shown(&self, post: u64, shown: ShowOutcome) -> JobOutcome {
        match self
            .intake
            .submit_conversation_command(ConversationCommand::ReportShown {
                conversation: self.conversation.id,
                post,
                shown,
            })
            .await
        {
            Ok(_) => JobOutcome::Done,
            Err(why) => JobOutcome::Failed(why),
        }
    }

    fn send_request(&self, post: &ThreadPost, part: usize, sight: SendContent) -> SendRequest {
        let mut place = self.conversation.address.clone();
        // A turn is answered where it was asked for, even if somebody has written elsewhere since;
        // so are its questions.
        let turn = match post.content {
            PostContent::Turn { turn } | PostContent::Queued { turn, .. } => self
                .conversation
                .turns
                .iter()
                .find(|conversation_turn| conversation_turn.number == turn),
            PostContent::Ask { .. } => self.conversation.current_turn(),
            _ => None,
        };
        if let Some(turn) = turn {
            place.extend(turn.address.clone());
            place.insert("source".to_owned(), turn.source.clone());
        }
        SendRequest {
            address: place,
            post_mark: format!("regatta:{}:{}:{part}", self.conversation.id, post.number),
            may_exist: post.begun,
            existing_name: post.refs.get(part).cloned(),
            stage: post.stage,
            content: sight,
        }
    }

    async fn show_reaction(&mut self, post: &ThreadPost, source: String) -> JobOutcome {
        let shot = self.send_request(post, 0, SendContent::Reaction { source });
        match self.send(&shot).await {
            Ok(Ok(_)) => {
                self.record_shown(
                    post.number,
                    ShowOutcome::Visible {
                        stage: post.stage,
                        refs: vec![],
                    },
                )
                .await
            }
            Ok(Err(why)) => {
                self.record_shown(post.number, ShowOutcome::Never { why })
                    .await
            }
            Err(came) => came,
        }
    }

    async fn show_pull_request(&mut self, post: &ThreadPost) -> JobOutcome {
        if self.intake.service != Service::Github {
            let why = format!(
                "{} has no GitHub App of its own, so it cannot open the pull request",
                self.conversation.agent
            );
            return self
                .record_shown(post.number, ShowOutcome::Never { why })
                .await;
        }
        let work = self
            .conversation
            .turns
            .iter()
            .rev()
            .find_map(|conversation_turn| conversation_turn.work.clone());
        let project = self.board.projects.get(&self.conversation.project);
        let (Some(work), Some(project)) = (work, project) else {
            return self
                .record_shown(
                    post.number,
                    ShowOutcome::Never {
                        why: "there is no work for a pull request".into(),
                    },
                )
                .await;
        };
        let branch = work.branch.clone();
        let title = self
            .conversation
            .turns
            .first()
            .map_or_else(String::new, |turn| render::one_line(&turn.text, 72));
        let body = self
            .conversation
            .turns
            .iter()
            .rev()
            .find_map(|turn| turn.answer.clone())
            .unwrap_or_default();
        let mut shot = self.send_request(
            post,
            0,
            SendContent::PullRequest {
                title: self.intake.engine.redact(&title),
                body: self.intake.engine.redact(&body),
                head: work.branch,
                base: project.trunk.to_string(),
            },
        );
        if self.conversation.service != Service::Github {
            let maps = &self.intake.registry().config.map;
            let repo = maps
                .iter()
                .filter(|channel_mapping| channel_mapping.project.as_ref() == Some(&project.name))
                .find_map(|channel_mapping| channel_mapping.github.clone());
            let Some(repo) = repo else {
                let why = format!(
                    "no [[bridges.map]] names the GitHub repository of {}",
                    project.name
                );
                return self
                    .record_shown(post.number, ShowOutcome::Never { why })
                    .await;
            };
            shot.address = BTreeMap::from([("repo".to_owned(), repo)]);
        }
        match self.send(&shot).await {
            Ok(Ok(name)) => {
                let (number, url) = name.split_once(' ').unwrap_or((&name, ""));
                let (number, url) = (number.parse().unwrap_or(0), url.to_owned());
                let repo = shot.address.get("repo").map_or("", String::as_str);
                let thread = Some(format!("{}:{repo}:{number}", Service::Github));
                let pull = ConversationPull {
                    number,
                    url,
                    thread,
                    branch: Some(branch),
                };
                if let Err(why) = self
                    .intake
                    .submit_conversation_command(ConversationCommand::ReportPullRequest {
                        conversation: self.conversation.id,
                        pull,
                    })
                    .await
                {
                    return JobOutcome::Failed(why);
                }
                self.record_shown(
                    post.number,
                    ShowOutcome::Visible {
                        stage: post.stage,
                        refs: vec![name],
                    },
                )
                .await
            }
            Ok(Err(why)) => {
                self.record_shown(post.number, ShowOutcome::Never { why })
                    .await
            }
            Err(came) => came,
        }
    }

    /// Updates a post to its current content: sends each piece that is new or has changed.
    async fn show_card(&mut self, post: &ThreadPost, only_progress: bool) -> JobOutcome {
        let works = matches!(post.content, PostContent::Turn { turn } if self.is_working(turn));
        if works {
            self.read_transcript().await;
        }
        let live = self
            .memory
            .progress
            .as_ref()
            .map(|progress| &progress.1)
            .filter(|_| works);
        let dashboard = self.intake.registry().config.dashboard.as_deref();
        let Some(card) =
            render::render_post(&self.board, &self.conversation, post, live, dashboard)
        else {
            // The post was replaced by a later event, so it need not be shown any more.
            return self
                .record_shown(
                    post.number,
                    ShowOutcome::Visible {
                        stage: post.stage,
                        refs: post.refs.clone(),
                    },
                )
                .await;
        };
        let card = self.redact_card(card);
        // Only a call counts as a sign of life, not a check that finds no change.
        let silent = self
            .memory
            .last_call
            .get_or_insert_with(Instant::now)
            .elapsed();
        let beats = only_progress
            && self
                .service
                .heartbeat_interval()
                .is_some_and(|duration| silent >= duration);
        let mut refs = post.refs.clone();
        let mut begun = post.begun;
        for (part, piece) in self.service.split_card(&card).into_iter().enumerate() {
            let hash = content_hash(&piece);
            let same = self.memory.shown_hashes.get(&(post.number, part)) == Some(&hash);
            if same && part < refs.len() && !(beats && part == 0) {
                continue;
            }
            if part >= refs.len() && !begun {
                // Marked before it is created, so that a later run looks it up first.
                let begin = ConversationCommand::BeginPost {
                    conversation: self.conversation.id,
                    post: post.number,
                };
                if let Err(why) = self.intake.submit_conversation_command(begin).await {
                    return JobOutcome::Failed(why);
                }
                begun = true;
                self.memory.certain_posts.insert(post.number);
            }
            let mut shot = self.send_request(post, part, SendContent::Card(piece));
            shot.existing_name = refs.get(part).cloned();
            // A piece that this run began and has not sent certainly does not exist, however long
            // it had to wait.
            shot.may_exist = begun && !self.memory.certain_posts.contains(&post.number);
            if shot.may_exist && shot.existing_name.is_none() {
                // An earlier run may have sent it in its last moment. If the service is asked too
                // early, it does not have the piece yet, and the piece would then be shown twice.
                let early = MAX_LATE_ARRIVAL.saturating_sub(self.started.elapsed());
                if !early.is_zero() {
                    return self
                        .record_created_pieces(post, &refs, JobOutcome::RateLimited(early))
                        .await;
                }
            }
            let name = match self.send(&shot).await {
                Ok(Ok(name)) => name,
                Err(came @ JobOutcome::Failed(_)) => {
                    self.memory.certain_posts.remove(&post.number);
                    return self.record_created_pieces(post, &refs, came).await;
                }
                Ok(Err(why)) if only_progress => return self.on_progress_rejected(why),
                Ok(Err(why)) => {
                    return self
                        .record_shown(post.number, ShowOutcome::Never { why })
                        .await;
                }
                Err(came) => return self.record_created_pieces(post, &refs, came).await,
            };
            self.memory.shown_hashes.insert((post.number, part), hash);
            self.memory.last_call = Some(Instant::now());
            match refs.get_mut(part) {
                Some(known) => *known = name,
                None => refs.push(name),
            }
        }
        if only_progress && refs == post.refs {
            return JobOutcome::Done;
        }
        let stage = if only_progress {
            post.shown
        } else {
            post.stage
        };
        let came = self
            .record_shown(post.number, ShowOutcome::Visible { stage, refs })
            .await;
        if !matches!(came, JobOutcome::Done) {
            // the post exists, but the board does not know
            self.memory.certain_posts.remove(&post.number);
        }
        came
    }

    /// Removes secrets from a card, because the card leaves this machine (S4).
    fn redact_card(&self, mut card: PostCard) -> PostCard {
        let clean = |text: &mut String| *text = self.intake.engine.redact(text);
        clean(&mut card.text);
        card.activity.iter_mut().for_each(clean);
        card.plan.iter_mut().for_each(|(text, _)| clean(text));
        card
    }

    /// Notes that the service did not accept a progress edit. The end of the turn is shown anyway.
    fn on_progress_rejected(&self, why: String) -> JobOutcome {
        self.intake
            .update_health(|bridge_health| bridge_health.trouble = Some(why));
        JobOutcome::Done
    }

    /// Records the pieces that were created before the job had to stop, so that they are not
    /// created again.
    async fn record_created_pieces(
        &mut self,
        post: &ThreadPost,
        refs: &[String],
        came: JobOutcome,
    ) -> JobOutcome {
        if refs.len() > post.refs.len() {
            let kept = self
                .record_shown(
                    post.number,
                    ShowOutcome::Visible {
                        stage: post.shown,
                        refs: refs.to_vec(),
                    },
                )
                .await;
            if !matches!(kept, JobOutcome::Done) {
                self.memory.certain_posts.remove(&post.number);
            }
        }
        came
    }

    fn is_working(&self, turn: u64) -> bool {
        self.conversation.turns.iter().any(|conversation_turn| {
            conversation_turn.number == turn && conversation_turn.state == TurnState::Working
        })
    }

    /// Reads the next records of the working attempt's transcript.
    async fn read_transcript(&mut self) {
        let task = self
            .conversation
            .task
            .and_then(|id| self.board.tasks.get(&id));
        let Some(attempt) = task.and_then(|task| task.attempt) else {
            return;
        };
        let mut live = match self.memory.progress.take() {
            Some((of, live)) if of == attempt => live,
            _ => TurnProgress::default(),
        };
        let (agents, from) = (self.intake.engine.agents().clone(), live.last_record + 1);
        let read =
            tokio::task::spawn_blocking(move || agents.transcript(attempt, from, RECORDS_PER_READ))
                .await;
        match read {
            Ok(Ok(lines)) => {
                for line in lines {
                    live.last_record = live.last_record.max(line.record.position);
                    line.events
                        .iter()
                        .for_each(|agent_event| live.on_event(agent_event));
                }
            }
            // Only the progress is missing; the end of the turn is shown anyway.
            Ok(Err(error)) => tracing::debug!(%attempt, "could not read the transcript: {error}"),
            Err(error) => tracing::debug!(%attempt, "could not read the transcript: {error}"),
        }
        self.memory.progress = Some((attempt, live));
    }
}

/// Returns the share of the limits that progress edits leave free: half, or what the ends of all
/// working turns need.
fn share_for_turn_ends(limits: &[RateLimit], working: usize) -> f64 {
    let share = |limit: &RateLimit| match limit.kind {
        RateLimitKind::Window {
            max_units: most, ..
        } => working as f64 * f64::from(limit.cost) / f64::from(most.max(1)),
        RateLimitKind::Bucket { .. } => 0.0,
    };
    limits.iter().map(share).fold(0.5, f64::max).min(1.0)
}

fn content_hash(card: &PostCard) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&card.text, &card.activity, card.tone as u8).hash(&mut hasher);
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

    fn post(n: u64, stage: u32) -> ThreadPost {
        ThreadPost {
            number: n,
            content: PostContent::Turn { turn: 1 },
            stage,
            shown: 0,
            begun: true,
            refs: vec![],
            answer: None,
            failure: None,
        }
    }

    /// An edit that the limits delay for most of a minute does not delay the end of the turn.
    #[test]
    fn end_of_a_turn_does_not_wait_behind_a_delayed_edit() {
        let (now, minute) = (Instant::now(), Duration::from_secs(60));
        let (edit, end) = (
            PostWork::Progress(post(2, 1)),
            PostWork::DuePost(post(2, 2)),
        );
        let mut memory = ConversationMemory {
            delayed_work: Some((edit.key(), now + minute)),
            ..ConversationMemory::default()
        };
        assert_eq!(ready_at(&memory, &edit, Duration::ZERO, now), now + minute);
        assert_eq!(ready_at(&memory, &end, Duration::ZERO, now), now);
        // A delay by the limits applies to the same work, and a failing service delays all work.
        memory.delayed_work = Some((end.key(), now + minute));
        assert_eq!(ready_at(&memory, &end, Duration::ZERO, now), now + minute);
        (memory.delayed_work, memory.not_before) = (None, Some(now + minute));
        assert_eq!(ready_at(&memory, &end, Duration::ZERO, now), now + minute);
    }

    #[test]
    fn edits_leave_room_for_the_ends_of_working_turns() {
        let limits = [
            RateLimit::window("chat.update", 50, Duration::from_secs(60)),
            RateLimit::bucket("x", 3.0, Duration::ZERO),
        ];
        for (working, keep) in [(0, 0.5), (20, 0.5), (40, 0.8), (50, 1.0), (200, 1.0)] {
            assert_eq!(share_for_turn_ends(&limits, working), keep, "{working}");
        }
    }
}
