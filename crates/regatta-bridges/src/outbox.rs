//! Shows an agent's posts in a chat service: in order, no faster than the service allows, and never
//! twice.
//!
//! The posts that must be sent are read from the board (the daemon's state in memory). If a post
//! changes twice before it is sent, only the last version is sent. Before the outbox creates a post
//! in the service, it records on the board that the post has begun. After a crash the outbox
//! searches the service for each post that has begun. At most one call is made at a time for each
//! conversation, and a service that does not answer delays only its own posts.

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

/// Maximum number of simultaneous calls of one bridge.
const MAX_CALLS: usize = 16;
/// Delay before the outbox retries a failed call to the service. The delay grows with each failure
/// up to `MAX_RETRY_DELAY`.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Maximum number of transcript records that one read returns.
const RECORDS_PER_READ: usize = 500;

/// The facts that the outbox remembers about a conversation between two calls. A restart may lose
/// these facts without harm.
#[derive(Clone, Debug, Default)]
struct ConversationMemory {
    progress: Option<(AttemptId, TurnProgress)>,
    /// Hash of the content that the service shows, for each post and each of its pieces (a long
    /// post is split into pieces).
    shown_hashes: BTreeMap<(u64, usize), u64>,
    last_edit: Option<Instant>,
    /// Time of the last call for this conversation, or of the daemon's start.
    last_call: Option<Instant>,
    /// Numbers of the posts that this daemon began and for which every call had a clear result. For
    /// such a post, the outbox knows exactly which pieces the service has.
    certain_posts: HashSet<u64>,
    /// The post that is delayed by the rate limits, and the end of this delay. Other posts of the
    /// conversation may be sent earlier, so that the result of a turn does not wait for an edit of
    /// a progress message.
    delayed_work: Option<(WorkKey, Instant)>,
    /// Time before which no call is made for this conversation, because the last call failed.
    not_before: Option<Instant>,
    failures: u32,
    /// The error of the last call to the service for this conversation, or `None` if that call
    /// succeeded.
    last_error: Option<String>,
}

/// Identifies one version of a post that is to be shown: the number of the post and its stage (the
/// number of its version). The flag is true if only the progress has changed.
type WorkKey = (u64, u32, bool);

/// Shows the posts of one bridge in its service, in a loop that runs until the task is aborted.
pub(crate) async fn run(
    intake: Intake,
    service: Arc<dyn Outbound>,
    limiter: CallLimiter,
    has_github: bool,
) {
    let limiter = Arc::new(Mutex::new(limiter));
    let mut memories: HashMap<ConversationId, ConversationMemory> = HashMap::new();
    // The running job of each conversation, as the id of its tokio task. After a panic only this id
    // is known, and it shows which conversation may start a new job.
    let mut busy: HashMap<ConversationId, tokio::task::Id> = HashMap::new();
    let mut jobs: JoinSet<(ConversationId, ConversationMemory, WorkKey, JobOutcome)> =
        JoinSet::new();
    let mut changes = intake.engine.watch_board();
    let mut is_unauthorized = false;
    let started = Instant::now();
    loop {
        let board = changes.borrow_and_update().clone();
        let now = Instant::now();
        let mut wake = now + Duration::from_secs(30);
        memories.retain(|id, _| board.conversations.contains_key(id));
        if !intake.is_paused() {
            for (conversation, work) in due_work(&intake, &board, has_github) {
                if busy.contains_key(&conversation.id) || busy.len() >= MAX_CALLS {
                    continue;
                }
                let memory = memories.entry(conversation.id).or_default();
                let ready = ready_at(
                    memory,
                    &work,
                    service
                        .min_edit_interval()
                        .div_f64(intake.registry().config.clock.max(0.001)),
                    now,
                );
                if ready > now {
                    wake = wake.min(ready);
                    continue;
                }
                let (intake, service, limiter) = (intake.clone(), service.clone(), limiter.clone());
                let (id, board, memory) = (conversation.id, board.clone(), std::mem::take(memory));
                let key = work.key();
                let job = jobs.spawn(async move {
                    let mut job = PostJob {
                        intake,
                        service,
                        limiter,
                        board,
                        conversation,
                        memory,
                        started,
                    };
                    let outcome = job.run(work).await;
                    (id, job.memory, key, outcome)
                });
                busy.insert(id, job.id());
            }
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            Some(done) = jobs.join_next(), if !jobs.is_empty() => match done {
                Ok((id, mut memory, key, outcome)) => {
                    match &outcome {
                        JobOutcome::Unauthorized(why) => {
                            is_unauthorized = true;
                            intake.report_credential(BridgeSide::Posting, Some(why)).await;
                        }
                        JobOutcome::Done if std::mem::take(&mut is_unauthorized) => intake.report_credential(BridgeSide::Posting, None).await,
                        _ => {}
                    }
                    record_outcome(&intake, &mut memory, key, outcome);
                    memories.insert(id, memory);
                    busy.remove(&id);
                }
                // The job panicked, so nobody knows the result of its call. The next job for this
                // conversation searches the service for the post.
                Err(join_error) => {
                    intake.update_health(|health| health.trouble = Some(format!("a posting task stopped \
                        unexpectedly: {join_error}")));
                    busy.retain(|_, job| *job != join_error.id());
                }
            },
            () = tokio::time::sleep_until(wake.into()) => {}
        }
    }
}

fn ready_at(
    memory: &ConversationMemory,
    work: &PostWork,
    edit_interval: Duration,
    now: Instant,
) -> Instant {
    let delayed_until = memory
        .delayed_work
        .filter(|(key, _)| *key == work.key())
        .map_or(now, |(_, until)| until);
    let not_before = memory.not_before.unwrap_or(now).max(delayed_until);
    match work {
        PostWork::DuePost(_) => not_before,
        PostWork::Progress(_) => not_before.max(
            memory
                .last_edit
                .map_or(now, |instant| instant + edit_interval),
        ),
    }
}

/// The result of a job. A job shows one post of a conversation, or one edit of a post.
#[derive(Debug)]
enum JobOutcome {
    Done,
    /// Nothing was sent, because the rate limits allow no further call before the given time has
    /// passed.
    RateLimited(Duration),
    Failed(String),
    Unauthorized(String),
}

fn record_outcome(
    intake: &Intake,
    memory: &mut ConversationMemory,
    key: WorkKey,
    outcome: JobOutcome,
) {
    let now = Instant::now();
    match outcome {
        JobOutcome::Done => {
            (memory.delayed_work, memory.not_before, memory.failures) = (None, None, 0);
            if let Some(last_error) = memory.last_error.take() {
                // Clear only the error of this conversation, so that an error of another
                // conversation stays visible.
                intake.update_health(|health| {
                    health.trouble = health
                        .trouble
                        .take()
                        .filter(|trouble| *trouble != last_error)
                });
            }
        }
        JobOutcome::RateLimited(pause) => memory.delayed_work = Some((key, now + pause)),
        JobOutcome::Failed(why) => {
            memory.failures += 1;
            let pause = (RETRY_DELAY * 2_u32.saturating_pow(memory.failures.min(8) - 1))
                .min(MAX_RETRY_DELAY);
            memory.not_before = Some(now + pause);
            memory.last_error = Some(why.clone());
            intake.update_health(|health| {
                health.delayed += 1;
                health.trouble = Some(why);
            });
        }
        JobOutcome::Unauthorized(why) => {
            memory.not_before = Some(now + MAX_RETRY_DELAY);
            memory.last_error = Some(why.clone());
            intake.update_health(|health| health.trouble = Some(why));
        }
    }
}

/// The next post or edit to show in a conversation.
#[derive(Clone, Debug)]
enum PostWork {
    /// A post whose latest version is not visible in the service yet.
    DuePost(ThreadPost),
    /// An edit that shows new progress in the post of a turn in which the agent still works.
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

/// Returns the next post or edit to show in each conversation. Reactions come first, then new
/// versions of posts, then edits that only show progress. Within each of these groups, the oldest
/// comes first.
fn due_work(
    intake: &Intake,
    board: &Board,
    has_github: bool,
) -> Vec<(Arc<Conversation>, PostWork)> {
    let mut found = Vec::new();
    for conversation in board
        .conversations
        .values()
        .filter(|conversation| conversation.agent == intake.agent)
    {
        let is_own = conversation.service == intake.service;
        let is_own_post = |post: &&ThreadPost| match post.content {
            // The GitHub bridge opens all pull requests, also for conversations in other services.
            // If the agent has no GitHub bridge, the bridge of the conversation's own service
            // records that the pull request cannot be opened.
            PostContent::Pull => intake.service == Service::Github || (is_own && !has_github),
            _ => is_own,
        };
        if let Some(post) = conversation.unshown_posts().find(is_own_post) {
            let rank = u8::from(!matches!(post.content, PostContent::Seen { .. }));
            found.push((
                rank,
                post.number,
                conversation.clone(),
                PostWork::DuePost(post.clone()),
            ));
        } else if is_own && let Some(turn) = conversation.current_turn() {
            let post = conversation
                .posts
                .iter()
                .find(|post| post.content == PostContent::Turn { turn: turn.number });
            if let Some(post) = post.filter(|post| post.failure.is_none()) {
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
    /// The time at which this bridge was started. Calls of an earlier daemon may arrive shortly
    /// after it.
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
                let outcome = self.show_card(&post, true).await;
                self.memory.last_edit = Some(Instant::now());
                outcome
            }
        }
    }

    /// Returns the rate limits of the service that apply to a call for this post. In tests, their
    /// intervals are shortened by the setting `clock`.
    fn limits(&self, request: &SendRequest) -> Vec<RateLimit> {
        let clock_speed = self.intake.registry().config.clock.max(0.001);
        self.service
            .rate_limits(request)
            .into_iter()
            .map(|limit| limit.faster(clock_speed))
            .collect()
    }

    fn acquire_limits(&self, request: &SendRequest) -> Result<(), Duration> {
        // An edit that only shows progress may use only a part of each rate limit. The rest stays
        // free for new posts and for the results of turns.
        let is_progress_edit = matches!(&request.content, SendContent::Card(card) if card.tone == CardTone::Working)
            && request.existing_name.is_some();
        let limits = self.limits(request);
        let reserved_share = if is_progress_edit {
            share_for_turn_ends(&limits, self.working_turns())
        } else {
            0.0
        };
        self.limiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .try_acquire(&limits, reserved_share, Instant::now())
    }

    /// Returns the number of turns in which the agent of this bridge works now. Each of these turns
    /// will need a post for its result.
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

    /// Makes one call to the service. The outer `Err` means that the job must stop, for example
    /// because of a rate limit. The inner `Err` means that the service will never accept the post.
    async fn send(&self, request: &SendRequest) -> Result<Result<String, String>, JobOutcome> {
        self.acquire_limits(request)
            .map_err(JobOutcome::RateLimited)?;
        let outcome = self.service.show(request).await;
        let limits = self.limits(request);
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Err(ServiceError::OutcomeUnknown(_)) => limiter.on_unanswered(&limits, Instant::now()),
            _ => limiter.on_answered(&limits, Instant::now()),
        }
        drop(limiter);
        match outcome {
            Ok(name) => {
                self.intake.update_health(|health| health.sent += 1);
                Ok(Ok(name))
            }
            Err(ServiceError::Rejected(why)) => Ok(Err(why)),
            Err(ServiceError::RetryAfter(pause)) => {
                let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
                limiter.block_until(&limits, Instant::now() + pause);
                drop(limiter);
                self.intake.update_health(|health| health.delayed += 1);
                Err(JobOutcome::RateLimited(pause))
            }
            Err(ServiceError::OutcomeUnknown(why)) => Err(JobOutcome::Failed(why)),
            Err(ServiceError::Unauthorized(why)) => Err(JobOutcome::Unauthorized(why)),
        }
    }

    async fn record_shown(&self, post: u64, shown: ShowOutcome) -> JobOutcome {
        match self
            .intake
            .report_shown(self.conversation.id, post, shown)
            .await
        {
            Ok(()) => JobOutcome::Done,
            Err(why) => JobOutcome::Failed(why),
        }
    }

    fn send_request(&self, post: &ThreadPost, part: usize, content: SendContent) -> SendRequest {
        let mut address = self.conversation.address.clone();
        // The posts of a turn are shown in the thread in which the turn was requested, even if
        // somebody has written in another thread since.
        let turn = match post.content {
            PostContent::Turn { turn } | PostContent::Queued { turn, .. } => self
                .conversation
                .turns
                .iter()
                .find(|known| known.number == turn),
            PostContent::Ask { .. } => self.conversation.current_turn(),
            _ => None,
        };
        if let Some(turn) = turn {
            address.extend(turn.address.clone());
            address.insert("source".to_owned(), turn.source.clone());
        }
        SendRequest {
            address,
            post_mark: format!("regatta:{}:{}:{part}", self.conversation.id, post.number),
            may_exist: post.begun,
            existing_name: post.refs.get(part).cloned(),
            content,
        }
    }

    async fn show_reaction(&mut self, post: &ThreadPost, source: String) -> JobOutcome {
        let request = self.send_request(post, 0, SendContent::Reaction { source });
        match self.send(&request).await {
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
            Err(outcome) => outcome,
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
            .find_map(|turn| turn.work.clone());
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
        let mut request = self.send_request(
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
            let mappings = &self.intake.registry().config.map;
            let repo = mappings
                .iter()
                .filter(|mapping| mapping.project.as_ref() == Some(&project.name))
                .find_map(|mapping| mapping.github.clone());
            let Some(repo) = repo else {
                let why = format!(
                    "no [[bridges.map]] names the GitHub repository of {}",
                    project.name
                );
                return self
                    .record_shown(post.number, ShowOutcome::Never { why })
                    .await;
            };
            request.address = BTreeMap::from([("repo".to_owned(), repo)]);
        }
        match self.send(&request).await {
            Ok(Ok(name)) => {
                let (number, url) = name.split_once(' ').unwrap_or((&name, ""));
                let (number, url) = (number.parse().unwrap_or(0), url.to_owned());
                let repo = request.address.get("repo").map_or("", String::as_str);
                let thread = Some(format!("{}:{repo}:{number}", Service::Github));
                let pull = ConversationPull {
                    number,
                    url,
                    thread,
                    branch: Some(branch),
                };
                if let Err(why) = self
                    .intake
                    .report_pull_request(self.conversation.id, pull)
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
            Err(outcome) => outcome,
        }
    }

    /// Brings a post in the service up to date: sends each piece of the post that is new or has
    /// changed.
    async fn show_card(&mut self, post: &ThreadPost, only_progress: bool) -> JobOutcome {
        let is_working_turn =
            matches!(post.content, PostContent::Turn { turn } if self.is_working(turn));
        if is_working_turn {
            self.read_transcript().await;
        }
        let progress = self
            .memory
            .progress
            .as_ref()
            .map(|progress| &progress.1)
            .filter(|_| is_working_turn);
        let dashboard = self.intake.registry().config.dashboard.as_deref();
        let Some(card) =
            render::render_post(&self.board, &self.conversation, post, progress, dashboard)
        else {
            // The post is no longer needed because of a later event, so it is recorded as shown.
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
        // Measure the time since the last call, and not since the last job, because a job that
        // finds no change makes no call.
        let silence = self
            .memory
            .last_call
            .get_or_insert_with(Instant::now)
            .elapsed();
        let is_heartbeat_due = only_progress
            && self
                .service
                .heartbeat_interval()
                .is_some_and(|duration| silence >= duration);
        let mut refs = post.refs.clone();
        let mut begun = post.begun;
        for (part, piece) in self.service.split_card(&card).into_iter().enumerate() {
            let hash = content_hash(&piece);
            let is_unchanged = self.memory.shown_hashes.get(&(post.number, part)) == Some(&hash);
            if is_unchanged && part < refs.len() && !(is_heartbeat_due && part == 0) {
                continue;
            }
            if part >= refs.len() && !begun {
                // Record on the board that the post has begun before creating the post. After a
                // crash, the outbox then searches the service for the post before it creates the
                // post again.
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
            let mut request = self.send_request(post, part, SendContent::Card(piece));
            request.existing_name = refs.get(part).cloned();
            // The service may have this post without the daemon's knowledge only if an earlier
            // daemon began the post, or if a call for the post had no clear result.
            request.may_exist = begun && !self.memory.certain_posts.contains(&post.number);
            if request.may_exist && request.existing_name.is_none() {
                // The previous daemon may have sent this piece of the post just before it ended,
                // and the service may not have stored the piece yet. Wait before searching for the
                // piece, because otherwise it would be created twice.
                let wait = MAX_LATE_ARRIVAL.saturating_sub(self.started.elapsed());
                if !wait.is_zero() {
                    return self
                        .record_created_pieces(post, &refs, JobOutcome::RateLimited(wait))
                        .await;
                }
            }
            let name = match self.send(&request).await {
                Ok(Ok(name)) => name,
                Err(outcome @ JobOutcome::Failed(_)) => {
                    self.memory.certain_posts.remove(&post.number);
                    return self.record_created_pieces(post, &refs, outcome).await;
                }
                Ok(Err(why)) if only_progress => return self.on_progress_rejected(why),
                Ok(Err(why)) => {
                    return self
                        .record_shown(post.number, ShowOutcome::Never { why })
                        .await;
                }
                Err(outcome) => return self.record_created_pieces(post, &refs, outcome).await,
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
        let outcome = self
            .record_shown(post.number, ShowOutcome::Visible { stage, refs })
            .await;
        if !matches!(outcome, JobOutcome::Done) {
            // The post exists in the service, but this could not be recorded on the board.
            // Therefore the next job must search the service for the post.
            self.memory.certain_posts.remove(&post.number);
        }
        outcome
    }

    /// Removes secrets from a card (the content of a post), because the card is sent to another
    /// machine.
    fn redact_card(&self, mut card: PostCard) -> PostCard {
        let clean = |text: &mut String| *text = self.intake.engine.redact(text);
        clean(&mut card.text);
        card.activity.iter_mut().for_each(clean);
        card.plan.iter_mut().for_each(|(text, _)| clean(text));
        card
    }

    /// Records the reason why the service did not accept an edit that only shows progress. The job
    /// ends without an error, because the result of the turn is shown later anyway.
    fn on_progress_rejected(&self, why: String) -> JobOutcome {
        self.intake
            .update_health(|health| health.trouble = Some(why));
        JobOutcome::Done
    }

    /// Records on the board the pieces of a post that were created before the job had to stop, so
    /// that these pieces are not created again. Returns `outcome`.
    async fn record_created_pieces(
        &mut self,
        post: &ThreadPost,
        refs: &[String],
        outcome: JobOutcome,
    ) -> JobOutcome {
        if refs.len() > post.refs.len() {
            let recorded = self
                .record_shown(
                    post.number,
                    ShowOutcome::Visible {
                        stage: post.shown,
                        refs: refs.to_vec(),
                    },
                )
                .await;
            if !matches!(recorded, JobOutcome::Done) {
                self.memory.certain_posts.remove(&post.number);
            }
        }
        outcome
    }

    fn is_working(&self, number: u64) -> bool {
        self.conversation
            .turns
            .iter()
            .any(|turn| turn.number == number && turn.state == TurnState::Working)
    }

    /// Reads the next records from the transcript of the attempt that works now. The post shows
    /// progress from this transcript.
    async fn read_transcript(&mut self) {
        let task = self
            .conversation
            .task
            .and_then(|id| self.board.tasks.get(&id));
        let Some(attempt) = task.and_then(|task| task.attempt) else {
            return;
        };
        let mut progress = match self.memory.progress.take() {
            Some((known_attempt, progress)) if known_attempt == attempt => progress,
            _ => TurnProgress::default(),
        };
        let (agents, from) = (
            self.intake.engine.agents().clone(),
            progress.last_record + 1,
        );
        let lines =
            tokio::task::spawn_blocking(move || agents.transcript(attempt, from, RECORDS_PER_READ))
                .await;
        match lines {
            Ok(Ok(lines)) => {
                for line in lines {
                    progress.last_record = progress.last_record.max(line.record.position);
                    line.events
                        .iter()
                        .for_each(|event| progress.on_event(event));
                }
            }
            // If the transcript cannot be read, the post shows no progress. The result of the turn
            // is shown in any case.
            Ok(Err(error)) => {
                tracing::debug!(%attempt, "could not read the transcript of attempt {attempt}, so the attempt's post shows no newer progress: {error}")
            }
            Err(error) => {
                tracing::debug!(%attempt, "the background job that reads the transcript of attempt {attempt} panicked, so the message posted about this attempt is no longer updated: {error}")
            }
        }
        self.memory.progress = Some((attempt, progress));
    }
}

/// Returns the share of each rate limit that must stay free when an edit only shows progress. The
/// share is one half, or more if the results of the `working` turns in progress need more.
fn share_for_turn_ends(limits: &[RateLimit], working: usize) -> f64 {
    let share = |limit: &RateLimit| match limit.kind {
        RateLimitKind::Window { max_units, .. } => {
            working as f64 * f64::from(limit.cost) / f64::from(max_units.max(1))
        }
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
mod tests;
