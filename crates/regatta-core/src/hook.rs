//! Hooks: rules that start something when a message, an event or a free claim matches.
//!
//! A hook is looked at in the same draft as what happened, so it fires once for each, whatever is delivered again or
//! restarted. What it starts is an effect: a command of the user's runs once under its own exit record. Nothing that
//! Regatta says fires a hook, nor what its own agent says; and a chain of hooks that lead to each other is cut.

mod judge; // whether a hook fires, and why not

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::Level;
use crate::board::{Board, Draft};
use crate::bus::{self, Message};
use crate::claim::{self, Acquire, Acquired, Mode, Owner};
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::ids::{AgentName, ChannelName, ClaimId, FiringId, HookId, Label, MessageId, Now, ProjectName};
use crate::pattern::Uri;
use crate::refusal::Refusal;

pub use judge::{Occasion, Verdict, judge};

/// The longest chain of hooks that lead to each other.
pub const DEEPEST: u32 = 5;
/// How often a hook may fire within [`SPAN_MS`].
pub const MOST_IN_SPAN: usize = 20;
pub const SPAN_MS: u64 = 60_000;
/// How many hooks there may be.
pub const MOST: usize = 1_000;
/// How many triggers wait for a hook's claim at most.
pub const MAX_WAITING: usize = 500;
/// How long a command may take if nothing is said, and at most.
pub const TIMEOUT_MS: u64 = 600_000;
pub const LONGEST_TIMEOUT_MS: u64 = 24 * 3_600_000;
/// How much of a command's output is kept with its firing.
pub const OUTPUT: usize = 8 * 1024;

/// What a hook waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "on")]
pub enum Trigger {
    /// A message that has all of what is given. Without a channel it is one of any channel but a mailbox.
    Message {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<ChannelName>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<Label>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mention: Option<AgentName>,
        /// How its text begins, whatever the case and the spaces before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prefix: Option<String>,
    },
    /// An event of this kind, such as `task.completed`.
    Event { kind: String },
    /// A claim ended and nobody holds what it held.
    Free { uri: Uri },
}

impl Trigger {
    /// Whether an event is of the kind that it waits for.
    fn waits_for(&self, event: &Event) -> bool {
        match self {
            Trigger::Message { .. } => matches!(event, Event::MessagePosted(_)),
            Trigger::Event { kind } => kind == event.kind(),
            Trigger::Free { .. } => matches!(
                event,
                Event::ClaimReleased(_) | Event::AttemptEnded(_) | Event::LandingLanded(_) | Event::LandingEnded(_)
            ),
        }
    }
}

/// What a hook starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum Action {
    /// A command of the user's, in this directory.
    Run { argv: Vec<String>, cwd: String },
    /// The built-in router, for messages of the project's channel.
    Route,
}

/// What must hold for a hook to fire when it is triggered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Conditions {
    /// It must be free, and is held until the command ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<Uri>,
    /// The longest it is held; without it, as long as the command may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// How long after it fired it does not fire again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooldown_ms: Option<u64>,
    /// A label that the message must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_label: Option<Label>,
}

/// A rule that starts something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hook {
    pub id: HookId,
    pub project: Option<ProjectName>,
    /// As whom it acts; as itself, `hook/H3`, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    pub trigger: Trigger,
    #[serde(default)]
    pub when: Conditions,
    pub action: Action,
    /// Which of several comes first: the lower number.
    pub priority: u8,
    /// How long its command may take.
    pub timeout_ms: u64,
    /// How far its command is shut in.
    pub sandbox: Level,
    /// Why it does not fire for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    pub made_by: Actor,
    pub made_wall: u64,
    /// How often it fired.
    #[serde(default)]
    pub fired: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired_wall: Option<u64>,
    /// When it fired within the last minute, on the fleet clock; the last one at least.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<u64>,
    /// How often it was triggered and a condition did not hold.
    #[serde(default)]
    pub skipped: u64,
    /// The last time that happened: by what, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_skip: Option<(Cause, String)>,
    /// What triggered it while its claim was held, oldest first: it fires for each when the claim is free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
}

/// A trigger that waits until the hook's claim is free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waiting {
    pub cause: Cause,
    /// How many hooks led to it.
    pub depth: u32,
}

impl Hook {
    /// Whether it gives a project's messages to the built-in router.
    pub(crate) fn is_router_of(&self, project: &ProjectName) -> bool {
        matches!(self.action, Action::Route) && self.project.as_ref() == Some(project)
    }

    /// The name that it acts under.
    pub fn identity(&self) -> AgentName {
        let own = || AgentName::new(&format!("hook/{}", self.id)).expect("a number makes a name");
        self.agent.clone().unwrap_or_else(own)
    }

    /// Takes the oldest trigger of this cause out of those that wait.
    pub(crate) fn forget_waiting(&mut self, cause: &Cause) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.cause == *cause) {
            self.waiting.remove(at);
        }
    }

    /// Whether what somebody says or does is the hook's own doing.
    fn is_own(&self, by: &Actor) -> bool {
        matches!(by, Actor::Agent(name) if bus::is_of(name, &self.identity()))
    }
}

/// What made a hook fire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum Cause {
    Message { message: MessageId, channel: ChannelName, sender: Actor },
    Event { kind: String, subject: String },
    Free { uri: Uri },
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cause::Message { message, channel, sender } => write!(f, "{message} in {channel} from {sender}"),
            Cause::Event { kind, subject } => write!(f, "{kind} {subject}"),
            Cause::Free { uri } => write!(f, "{uri} is free"),
        }
    }
}

/// How a hook's command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    Exited(i32),
    Signalled(i32),
    /// It took too long and was ended.
    TimedOut,
    /// It was not started.
    NotRun(String),
    /// Nobody knows: its supervisor was killed too.
    Lost,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Exited(code) => write!(f, "exit {code}"),
            Ended::Signalled(signal) => write!(f, "signal {signal}"),
            Ended::TimedOut => f.write_str("timed out"),
            Ended::NotRun(why) => write!(f, "not run: {why}"),
            Ended::Lost => f.write_str("lost"),
        }
    }
}

/// A claim that a hook's command holds, and the token for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hold {
    pub claim: ClaimId,
    pub token: u64,
}

/// One time that a hook fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Firing {
    pub id: FiringId,
    pub hook: HookId,
    pub project: Option<ProjectName>,
    /// As whom its command acts.
    pub agent: AgentName,
    /// What its command's token is made from.
    pub token: u64,
    pub cause: Cause,
    /// How many hooks, one after the other, led to this one, with it.
    pub depth: u32,
    /// As the hook said when it fired.
    pub argv: Vec<String>,
    pub cwd: String,
    pub timeout_ms: u64,
    pub sandbox: Level,
    /// What it holds while it runs, and the token for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Hold>,
    pub fired_wall: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_wall: Option<u64>,
    /// The last of what it printed, without secrets.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// How it was shut in, in a sentence; nothing when it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shut_in: Option<String>,
}

facts! {
    Added { hook: Arc<Hook> }
    Changed { hook: HookId, paused: Option<String> }
    Removed { hook: HookId }
    Fired { firing: Arc<Firing>, at: u64 }
    Skipped { hook: HookId, cause: Cause, why: String }
    Queued { hook: HookId, waiting: Waiting }
    FiringEnded { firing: FiringId, ended: Ended, output: String, shut_in: Option<String> }
}

/// What is asked of [`add`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Add {
    #[serde(default)]
    pub project: Option<ProjectName>,
    #[serde(default)]
    pub agent: Option<AgentName>,
    pub trigger: Trigger,
    #[serde(default)]
    pub when: Conditions,
    pub action: Action,
    #[serde(default = "middle")]
    pub priority: u8,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub sandbox: Option<Level>,
}

fn middle() -> u8 {
    2
}

/// Adds a hook.
pub fn add(draft: &mut Draft, ask: Add, by: &Actor, now: Now) -> Result<HookId, Refusal> {
    let board = draft.board();
    if board.hooks.len() >= MOST {
        return Err(Refusal::invalid(format!("there are {MOST} hooks already"), "remove some: regatta hook list"));
    }
    check(board, &ask)?;
    let hook = Hook {
        id: HookId(board.counters.hook + 1),
        project: ask.project,
        agent: ask.agent,
        trigger: ask.trigger,
        when: ask.when,
        action: ask.action,
        priority: ask.priority,
        timeout_ms: ask.timeout_ms.unwrap_or(TIMEOUT_MS),
        sandbox: ask.sandbox.unwrap_or(Level::Off),
        paused: None,
        made_by: by.clone(),
        made_wall: now.wall,
        fired: 0,
        fired_wall: None,
        recent: vec![],
        skipped: 0,
        last_skip: None,
        waiting: vec![],
    };
    let id = hook.id;
    draft.record(Event::HookAdded(Added { hook: hook.into() }));
    Ok(id)
}

fn check(board: &Board, ask: &Add) -> Result<(), Refusal> {
    if let Some(project) = &ask.project
        && !board.projects.contains_key(project)
    {
        return Err(Refusal::NoSuchProject { project: project.clone() });
    }
    if ask.priority > 9 {
        return Err(Refusal::invalid("a priority is 0 to 9, and the lower comes first", "give a number in that range"));
    }
    if ask.timeout_ms.is_some_and(|it| it == 0 || it > LONGEST_TIMEOUT_MS) {
        return Err(Refusal::invalid("a hook's command takes 1 ms to 24 hours", "give another --max-time"));
    }
    if ask.when.ttl_ms.is_some_and(|it| it == 0 || it > claim::LONGEST_TTL_MS) {
        return Err(Refusal::invalid("a claim lives for 1 ms to 7 days", "give another --ttl"));
    }
    if ask.when.ttl_ms.is_some() && ask.when.claim.is_none() {
        return Err(Refusal::invalid("a TTL is that of a claim, and none is named", "name it: --claim respond://…"));
    }
    if ask.project.is_none() && ask.sandbox.is_some_and(|it| it != Level::Off) {
        return Err(Refusal::invalid("what is shut in has the home of a project, and none is named", "name --project"));
    }
    match &ask.trigger {
        Trigger::Message { channel: None, label: None, mention: None, prefix: None } => {
            return Err(Refusal::invalid(
                "a hook on every message of every channel would never rest",
                "name a --channel, a --label, a --mention or a --prefix",
            ));
        }
        Trigger::Message { prefix: Some(prefix), .. } if prefix.trim().is_empty() || prefix.len() > 200 => {
            return Err(Refusal::invalid("a prefix has 1 to 200 bytes, not all of them blanks", "write --prefix '!x'"));
        }
        Trigger::Event { kind } if !Event::KINDS.contains(&kind.as_str()) => {
            return Err(Refusal::invalid(
                format!("there is no event {:?}", kind.chars().take(60).collect::<String>()),
                "see what happens: regatta events --json",
            ));
        }
        Trigger::Event { kind } if kind.starts_with("hook.") => {
            return Err(Refusal::invalid("what hooks do fires no hook", "wait for what their commands do instead"));
        }
        Trigger::Event { .. } | Trigger::Free { .. } if ask.when.require_label.is_some() => {
            return Err(Refusal::invalid("only a message has labels", "leave --require-label out"));
        }
        _ => {}
    }
    match &ask.action {
        Action::Run { argv, cwd } => {
            let odd = |it: &String| it.contains('\0') || it.len() > 16 * 1024;
            if argv.first().is_none_or(String::is_empty) || argv.len() > 256 || argv.iter().any(odd) {
                return Err(Refusal::invalid(
                    "a hook's command has 1 to 256 words of at most 16 KiB",
                    "write it behind --: regatta hook add --channel shop -- ./answer.sh",
                ));
            }
            if !cwd.starts_with('/') || odd(cwd) {
                return Err(Refusal::invalid(
                    "a hook's command runs in a directory with an absolute path",
                    "name it: --cwd /home/me/shop",
                ));
            }
        }
        Action::Route => {
            let channel = matches!(&ask.trigger, Trigger::Message { channel: Some(_), .. });
            if ask.project.is_none() || !channel {
                return Err(Refusal::invalid(
                    "the router works for one project, on the messages of one channel",
                    "name both: regatta hook add --project shop --channel shop --route",
                ));
            }
        }
    }
    Ok(())
}

/// The hook of that number.
pub fn find(board: &Board, id: HookId) -> Result<&Hook, Refusal> {
    board
        .hooks
        .get(&id)
        .map(|it| &**it)
        .ok_or_else(|| Refusal::missing(format!("there is no hook {id}"), "see them: regatta hook list"))
}

/// Lets a hook rest.
pub fn pause(draft: &mut Draft, id: HookId, reason: String) -> Result<(), Refusal> {
    if find(draft.board(), id)?.paused.is_none() {
        draft.record(Event::HookChanged(Changed { hook: id, paused: Some(reason) }));
    }
    Ok(())
}

/// Lets a hook fire again, with a clean slate. It fires for what waited before it was paused.
pub fn resume(draft: &mut Draft, id: HookId, now: Now) -> Result<(), Refusal> {
    if find(draft.board(), id)?.paused.is_some() {
        draft.record(Event::HookChanged(Changed { hook: id, paused: None }));
        fire_waiting(draft, id, now);
    }
    Ok(())
}

/// Takes a hook away; a command of it that runs goes on.
pub fn remove(draft: &mut Draft, id: HookId) -> Result<(), Refusal> {
    find(draft.board(), id)?;
    draft.record(Event::HookRemoved(Removed { hook: id }));
    Ok(())
}

/// A hook's command has ended: what it held is free again.
pub fn ended(
    draft: &mut Draft,
    id: FiringId,
    (ended, output): (Ended, String),
    shut_in: Option<String>,
) -> Result<(), Refusal> {
    let Some(firing) = draft.board().firings.get(&id).cloned() else { return Ok(()) };
    let mut start = output.len().saturating_sub(OUTPUT);
    while !output.is_char_boundary(start) {
        start += 1;
    }
    let output = output[start..].to_owned();
    draft.record(Event::FiringEnded(FiringEnded { firing: id, ended, output, shut_in }));
    if let Some(Hold { claim, token }) = firing.claim
        && draft.board().claims.get(&claim).is_some_and(|it| it.token == token)
    {
        claim::release(draft, claim, token)?;
    }
    Ok(())
}

/// How deep in a chain of hooks whatever `by` does is: as deep as the deepest of its commands that run.
pub fn depth_of(board: &Board, by: &Actor) -> u32 {
    let Actor::Agent(by) = by else { return 0 };
    board.firings.values().filter(|it| it.agent == *by).map(|it| it.depth).max().unwrap_or(0)
}

/// Looks whether something that happened fires a hook. What hooks themselves do, and what they hold, fires none.
pub(crate) fn look(draft: &mut Draft, before: &Board, event: &Event, now: Now) {
    fire_freed(draft, before, event, now);
    // Most events are nothing to any hook: that must cost next to nothing.
    let waits = draft.board().hooks.values().filter(|it| it.trigger.waits_for(event));
    let mut hooks: Vec<(u8, HookId)> = waits.map(|it| (it.priority, it.id)).collect();
    if hooks.is_empty() || is_hooks_own(draft.board(), before, event) {
        return;
    }
    let by = draft.by().clone();
    hooks.sort_unstable();
    for (_, id) in hooks {
        let board = draft.board();
        let Some(hook) = board.hooks.get(&id).cloned() else { continue };
        let Some(occasion) = occasion(board, before, &hook, event, &by, now) else { continue };
        match judge(board, &hook, &occasion, now) {
            Verdict::Unmoved { .. } => {}
            // That it rests is known; each message that it does not see need not be written down.
            Verdict::Held { .. } if hook.paused.is_some() => {}
            Verdict::Held { why } => skip(draft, id, occasion.cause(), why),
            Verdict::Queues { why } => queue(draft, &hook, &occasion, why, now),
            Verdict::Cut { why } => cut(draft, &hook, &occasion, &why, now),
            Verdict::Fires => fire(draft, &hook, &occasion, now),
        }
    }
}

/// Keeps a trigger until the hook's claim is free.
fn queue(draft: &mut Draft, hook: &Hook, occasion: &Occasion<'_>, why: String, now: Now) {
    let cause = occasion.cause();
    if hook.waiting.len() >= MAX_WAITING {
        return skip(draft, hook.id, cause, format!("{why}, and {MAX_WAITING} others already wait for it"));
    }
    let waiting = Waiting { cause, depth: occasion.depth() };
    draft.record(Event::HookQueued(Queued { hook: hook.id, waiting }));
    // Only earlier triggers may be in the way of a claim that is free.
    fire_waiting(draft, hook.id, now);
}

/// Fires the hooks whose claim an event may have freed, each for the oldest trigger that waits.
fn fire_freed(draft: &mut Draft, before: &Board, event: &Event, now: Now) {
    let waits = draft.board().hooks.values().filter(|hook| !hook.waiting.is_empty());
    let mut waits: Vec<(u8, HookId)> = waits.map(|hook| (hook.priority, hook.id)).collect();
    if waits.is_empty() {
        return;
    }
    let Some(freed) = freed_by(before, event) else { return };
    waits.sort_unstable();
    for (_, id) in waits {
        let claim = draft.board().hooks.get(&id).and_then(|hook| hook.when.claim.clone());
        if claim.is_some_and(|claim| freed.iter().any(|uri| uri.overlaps(&claim))) {
            fire_waiting(draft, id, now);
        }
    }
}

/// Fires a hook for the oldest trigger that waits, if its claim is free. The next one follows when that command ends.
fn fire_waiting(draft: &mut Draft, id: HookId, now: Now) {
    let board = draft.board();
    let Some(hook) = board.hooks.get(&id).filter(|hook| hook.paused.is_none()).cloned() else { return };
    let Some(next) = hook.waiting.first().cloned() else { return };
    if judge::claim_holder(board, &hook, now).is_none() {
        start(draft, &hook, next.cause, next.depth, now);
    }
}

/// What an event is to a hook, if it is anything.
fn occasion<'a>(
    board: &Board,
    before: &Board,
    hook: &Hook,
    event: &'a Event,
    by: &'a Actor,
    now: Now,
) -> Option<Occasion<'a>> {
    match (&hook.trigger, event) {
        (Trigger::Message { .. }, Event::MessagePosted(it)) => Some(Occasion::Message(it.message())),
        (Trigger::Event { .. }, _) => Some(match event {
            Event::MessagePosted(it) => Occasion::Message(it.message()),
            _ => Occasion::Event { event, by, depth: depth_of(board, by) },
        }),
        (Trigger::Free { uri }, _) => {
            let touched = freed_by(before, event)?.iter().any(|it| it.overlaps(uri));
            let free = || claim::in_the_way_on(board, std::slice::from_ref(uri), Mode::Exclusive, None, now).is_empty();
            (touched && free()).then(|| Occasion::Free { uri: uri.clone(), by, depth: depth_of(board, by) })
        }
        _ => None,
    }
}

/// Returns what nobody holds any more because of an event: a claim's URIs, or what work held by running.
fn freed_by(before: &Board, event: &Event) -> Option<Vec<Uri>> {
    match event {
        Event::ClaimReleased(it) => before.claims.get(it.claim()).map(|claim| claim.uris.clone()),
        Event::AttemptEnded(it) => before.attempts.get(it.attempt()).map(|ended| claim::held_by_attempt(ended)),
        Event::LandingLanded(it) => before.landings.get(it.landing()).map(|ended| claim::held_by_landing(ended)),
        Event::LandingEnded(it) => before.landings.get(it.landing()).map(|ended| claim::held_by_landing(ended)),
        _ => None,
    }
}

/// Whether an event is about a claim that a hook holds or held.
fn is_hooks_own(board: &Board, before: &Board, event: &Event) -> bool {
    let id = match event {
        Event::ClaimGranted(it) => it.claim().id,
        Event::ClaimRenewed(it) => *it.claim(),
        Event::ClaimReleased(it) => *it.claim(),
        _ => return false,
    };
    let held = |it: &Board| it.firings.values().any(|it| it.claim.is_some_and(|it| it.claim == id));
    // While it is granted, the firing is not there yet: its memo says whose it is.
    let meant = matches!(event, Event::ClaimGranted(it) if it.claim().memo.starts_with(MEMO));
    meant || held(board) || held(before)
}

/// How the memo of a hook's claim begins.
const MEMO: &str = "held by the hook ";

fn skip(draft: &mut Draft, hook: HookId, cause: Cause, why: String) {
    draft.record(Event::HookSkipped(Skipped { hook, cause, why }));
}

/// Pauses a hook that would go round in a circle, and says so where people see it.
fn cut(draft: &mut Draft, hook: &Hook, occasion: &Occasion<'_>, why: &str, now: Now) {
    let reason = format!("{why}, at {}", occasion.cause());
    draft.record(Event::HookChanged(Changed { hook: hook.id, paused: Some(reason.clone()) }));
    let public = |it: &&ChannelName| bus::addressee(it).is_none();
    let of_hook = match &hook.trigger {
        Trigger::Message { channel, .. } => channel.as_ref(),
        _ => None,
    };
    let of_message = match occasion {
        Occasion::Message(it) => Some(&it.channel),
        _ => None,
    };
    let of_project = hook.project.as_ref().and_then(|it| ChannelName::new(it.as_str()).ok());
    let channel = of_hook.filter(public).or(of_message.filter(public)).cloned().or(of_project);
    let channel = channel.unwrap_or_else(|| ChannelName::new("general").expect("a plain word is a channel"));
    let text =
        format!("{} is paused: {reason}. Look at it, then let it go on: regatta hook resume {}", hook.id, hook.id);
    let labels = vec![Label::new("coord:hook").expect("it has plain letters")];
    let post = bus::Post { channel, text, labels, reply_to: None };
    bus::post(draft, post, Actor::Regatta, now).expect("a short text with one label is a message");
}

fn fire(draft: &mut Draft, hook: &Hook, occasion: &Occasion<'_>, now: Now) {
    let cause = occasion.cause();
    match (&hook.action, occasion) {
        (Action::Run { .. }, _) => start(draft, hook, cause, occasion.depth(), now),
        (Action::Route, Occasion::Message(message)) => {
            if let Err(refusal) = route(draft, hook, message, now) {
                skip(draft, hook.id, cause, refusal.message());
            }
        }
        (Action::Route, _) => {}
    }
}

/// Starts a hook's command for something that `depth` hooks led to.
fn start(draft: &mut Draft, hook: &Hook, cause: Cause, depth: u32, now: Now) {
    let Action::Run { argv, cwd } = hook.action.clone() else { return };
    let id = FiringId(draft.board().counters.firing + 1);
    let claim = match take_claim(draft, hook, id, now) {
        Ok(claim) => claim,
        Err(refusal) => return skip(draft, hook.id, cause, refusal.message()),
    };
    let firing = Firing {
        id,
        hook: hook.id,
        project: hook.project.clone(),
        agent: hook.identity(),
        token: draft.next_revision(),
        cause,
        depth: depth + 1,
        argv,
        cwd,
        timeout_ms: hook.timeout_ms,
        sandbox: hook.sandbox,
        claim,
        fired_wall: now.wall,
        ended: None,
        ended_wall: None,
        output: String::new(),
        shut_in: None,
    };
    draft.record(Event::HookFired(Fired { firing: firing.into(), at: now.at }));
}

/// Takes what the hook wants to hold while its command runs.
fn take_claim(draft: &mut Draft, hook: &Hook, firing: FiringId, now: Now) -> Result<Option<Hold>, Refusal> {
    let Some(uri) = &hook.when.claim else { return Ok(None) };
    let ask = Acquire {
        owner: Owner::Agent(hook.identity()),
        uris: vec![uri.clone()],
        mode: Mode::Exclusive,
        // It ends with the command in any case: this is for when nobody is there to see that.
        ttl_ms: hook.when.ttl_ms.unwrap_or(hook.timeout_ms + 60_000),
        wait_ms: 0,
        memo: format!("{MEMO}{} while {firing} runs", hook.id),
    };
    match claim::acquire(draft, ask, now)? {
        Acquired::Granted { claim, token, .. } => Ok(Some(Hold { claim, token })),
        Acquired::Waiting { .. } => Ok(None), // it never waits
    }
}

/// Gives a message to the built-in router.
fn route(draft: &mut Draft, hook: &Hook, message: &Message, now: Now) -> Result<(), Refusal> {
    match &hook.project {
        Some(project) => crate::route::intake(draft, project, message, now),
        None => Ok(()),
    }
}
