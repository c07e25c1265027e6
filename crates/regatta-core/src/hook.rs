//! Hooks: rules of the user that react when a certain message is posted, a certain event happens,
//! or a claim becomes free. A hook runs a command, or calls the router (which runs commands from
//! messages).
//!
//! Hooks are checked while an event is being recorded, so a hook runs ("fires") once for each
//! event, even if a message is delivered again or the daemon restarts. A hook's command runs once,
//! and its end is recorded on disk. Messages of Regatta itself fire no hook. A hook does not react
//! to the messages and actions of its own agent, and a chain of hooks that trigger each other is
//! stopped.
//!
//! Not here: running the command, which the engine does.

mod firing; // starts the command of a hook
mod matching; // decides whether a hook fires

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::SandboxLevel;
use crate::board::{Board, Draft};
use crate::bus;
use crate::claim;
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::ids::{
    AgentName, ChannelName, ClaimId, FiringId, HookId, Label, MessageId, Now, ProjectName,
};
use crate::pattern::Uri;
use crate::refusal::Refusal;

use firing::fire_waiting;
pub(crate) use firing::on_event;
pub use matching::{HookInput, HookMatch, evaluate};

/// Maximum number of hooks that may trigger each other in a chain.
pub const MAX_CHAIN_LENGTH: u32 = 5;
/// Maximum number of times that one hook may fire within [`FIRING_WINDOW_MS`].
pub const MAX_FIRINGS_PER_WINDOW: usize = 20;
/// Time window in which the firings of a hook are counted: one minute.
pub const FIRING_WINDOW_MS: u64 = 60_000;
/// Maximum number of hooks in one daemon.
const MAX_HOOKS: usize = 1_000;
/// Maximum number of triggers of one hook that wait until the URI that the hook claims is free.
pub const MAX_WAITING: usize = 500;
/// Time limit of a hook's command if the hook sets none: 10 minutes.
const DEFAULT_TIMEOUT_MS: u64 = 600_000;
/// Longest time limit that a hook can set for its command: 24 hours.
const MAX_TIMEOUT_MS: u64 = 24 * 3_600_000;
/// Maximum number of bytes that are kept of a command's output: the end of the output.
pub const MAX_OUTPUT_BYTES: usize = 8 * 1024;

/// The message, event or freed claim for which a hook waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "on")]
pub enum HookTrigger {
    /// A message that matches all given fields. Without `channel`, messages of all channels match,
    /// except those in agents' mailboxes.
    Message {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<ChannelName>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<Label>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mention: Option<AgentName>,
        /// The beginning that the text must have, ignoring case and leading spaces.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prefix: Option<String>,
    },
    /// An event of this kind, such as `task.completed`.
    Event { kind: String },
    /// A claim ended, and now nobody holds `uri`.
    Free { uri: Uri },
}

impl HookTrigger {
    /// Returns whether an event is of the kind that this trigger matches.
    fn matches_kind(&self, event: &Event) -> bool {
        match self {
            HookTrigger::Message { .. } => matches!(event, Event::MessagePosted(_)),
            HookTrigger::Event { kind } => kind == event.kind(),
            HookTrigger::Free { .. } => matches!(
                event,
                Event::ClaimReleased(_)
                    | Event::AttemptEnded(_)
                    | Event::LandingLanded(_)
                    | Event::LandingEnded(_)
            ),
        }
    }
}

/// The action of a hook when it fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum HookAction {
    /// Runs a command in the directory `cwd`.
    Run { argv: Vec<String>, cwd: String },
    /// Hands messages of the project's channel to the built-in router, which runs the commands in
    /// them.
    Route,
}

/// Further conditions for a hook that was triggered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookConditions {
    /// The URI that the hook claims until its command ends, so that nobody else can hold the URI.
    /// If somebody else holds the URI, the trigger waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<Uri>,
    /// Maximum lifetime of the hook's claim, in milliseconds. If absent, the claim lives a minute
    /// longer than the command's time limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Minimum time between two firings, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooldown_ms: Option<u64>,
    /// A label that the triggering message must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_label: Option<Label>,
}

/// A rule of the user that does something when its trigger matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hook {
    pub id: HookId,
    pub project: Option<ProjectName>,
    /// The agent in whose name the hook acts. If absent, the hook acts in its own name, such as
    /// `hook/H3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    pub trigger: HookTrigger,
    #[serde(default)]
    pub when: HookConditions,
    pub action: HookAction,
    /// Order among hooks with the same trigger, 0 to 9: the lowest number fires first.
    pub priority: u8,
    /// Time limit of the hook's command, in milliseconds.
    pub timeout_ms: u64,
    /// The strictness of the sandbox in which the hook's command runs.
    pub sandbox: SandboxLevel,
    /// The reason why the hook is paused. `None` while the hook is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    pub made_by: Actor,
    #[serde(rename = "made_wall")]
    pub made_unix_ms: u64,
    /// The number of times that the hook has fired.
    #[serde(default)]
    #[serde(rename = "fired")]
    pub fired_count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "fired_wall")]
    pub fired_unix_ms: Option<u64>,
    /// Times of the hook's firings within the last minute, in milliseconds of Regatta's own clock
    /// (the fleet clock). If there were none, only the time of the hook's last firing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "recent")]
    pub recent_firings: Vec<u64>,
    /// The number of times that the hook was triggered but did not fire, because a condition did
    /// not hold.
    #[serde(default)]
    #[serde(rename = "skipped")]
    pub skipped_count: u64,
    /// The last trigger after which the hook did not fire, and the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_skip: Option<(FiringCause, String)>,
    /// Triggers that arrived while somebody held the URI that the hook claims, oldest first. When
    /// the URI is free, the hook fires once for each trigger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingTrigger>,
}

/// A trigger that waits until the URI that the hook claims is free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitingTrigger {
    pub cause: FiringCause,
    /// The number of hooks in the chain that led to this trigger (each hook caused the next one); 0
    /// if no hook was involved.
    pub depth: u32,
}

impl Hook {
    /// Returns whether the hook hands this project's messages to the built-in router, which runs
    /// the commands in messages.
    pub(crate) fn is_router_of(&self, project: &ProjectName) -> bool {
        matches!(self.action, HookAction::Route) && self.project.as_ref() == Some(project)
    }

    /// Returns the agent name under which the hook acts.
    pub fn identity(&self) -> AgentName {
        let own =
            || AgentName::new(&format!("hook/{}", self.id)).expect("a hook id is a valid name");
        self.agent.clone().unwrap_or_else(own)
    }

    /// Removes the oldest waiting trigger with this cause, because the hook has now fired for the
    /// trigger or skipped it.
    pub(crate) fn forget_waiting(&mut self, cause: &FiringCause) {
        if let Some(at) = self
            .waiting
            .iter()
            .position(|waiting| waiting.cause == *cause)
        {
            self.waiting.remove(at);
        }
    }

    /// Returns whether an action was done in the hook's own name.
    fn is_own(&self, by: &Actor) -> bool {
        matches!(by, Actor::Agent(name) if bus::is_same_or_below(name, &self.identity()))
    }
}

/// The message, event or freed claim that triggered a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum FiringCause {
    Message {
        message: MessageId,
        channel: ChannelName,
        sender: Actor,
    },
    Event {
        kind: String,
        subject: String,
    },
    Free {
        uri: Uri,
    },
}

impl std::fmt::Display for FiringCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FiringCause::Message {
                message,
                channel,
                sender,
            } => write!(f, "{message} in {channel} from {sender}"),
            FiringCause::Event { kind, subject } => write!(f, "{kind} {subject}"),
            FiringCause::Free { uri } => write!(f, "{uri} is free"),
        }
    }
}

/// The end of a hook's command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FiringEnd {
    Exited(i32),
    Signalled(i32),
    /// The command exceeded its time limit and was killed.
    TimedOut,
    /// The command was not started, for the given reason.
    NotRun(String),
    /// The result of the command is unknown, because the process that supervised the command was
    /// killed too.
    Lost,
}

impl std::fmt::Display for FiringEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FiringEnd::Exited(code) => write!(f, "exit {code}"),
            FiringEnd::Signalled(signal) => write!(f, "signal {signal}"),
            FiringEnd::TimedOut => f.write_str("timed out"),
            FiringEnd::NotRun(why) => write!(f, "not run: {why}"),
            FiringEnd::Lost => f.write_str("lost"),
        }
    }
}

/// The claim that a hook holds while its command runs, with the claim's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FiringClaim {
    pub claim: ClaimId,
    pub token: u64,
}

/// One run of a hook's command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Firing {
    pub id: FiringId,
    pub hook: HookId,
    pub project: Option<ProjectName>,
    /// The agent in whose name the command acts.
    pub agent: AgentName,
    /// The number from which the access token of the command is derived.
    pub token: u64,
    pub cause: FiringCause,
    /// The position of this run in a chain of hooks that caused each other, from 1.
    pub depth: u32,
    /// The command and its arguments, as they were when the hook fired.
    pub argv: Vec<String>,
    pub cwd: String,
    pub timeout_ms: u64,
    pub sandbox: SandboxLevel,
    /// The claim that the hook holds while the command runs, if it needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<FiringClaim>,
    #[serde(rename = "fired_wall")]
    pub fired_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<FiringEnd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ended_wall")]
    pub ended_unix_ms: Option<u64>,
    /// The end of the command's output, with secrets removed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// A description of the command's sandbox, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "shut_in")]
    pub sandbox_description: Option<String>,
}

facts! {
    HookAdded { hook: Arc<Hook> }
    HookChanged { hook: HookId, paused: Option<String> }
    HookRemoved { hook: HookId }
    HookFired { firing: Arc<Firing>, at: u64 }
    HookSkipped { hook: HookId, cause: FiringCause, why: String }
    HookQueued { hook: HookId, waiting: WaitingTrigger }
    HookEnded { firing: FiringId, ended: FiringEnd, output: String, shut_in: Option<String> }
}

/// The settings of a new hook: the arguments of [`add`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddHook {
    #[serde(default)]
    pub project: Option<ProjectName>,
    #[serde(default)]
    pub agent: Option<AgentName>,
    pub trigger: HookTrigger,
    #[serde(default)]
    pub when: HookConditions,
    pub action: HookAction,
    #[serde(default = "default_priority")]
    pub priority: u8,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub sandbox: Option<SandboxLevel>,
}

/// Returns the priority of a hook whose settings name no priority.
fn default_priority() -> u8 {
    2
}

/// Adds a hook, or refuses settings that cannot work.
pub fn add(draft: &mut Draft, settings: AddHook, by: &Actor, now: Now) -> Result<HookId, Refusal> {
    let board = draft.board();
    if board.hooks.len() >= MAX_HOOKS {
        return Err(Refusal::invalid(
            format!("there are already {MAX_HOOKS} hooks"),
            "remove a hook that nobody needs: find it with regatta hook list, then regatta hook \
            remove ID",
        ));
    }
    check(board, &settings)?;
    let hook = Hook {
        id: HookId(board.counters.hook + 1),
        project: settings.project,
        agent: settings.agent,
        trigger: settings.trigger,
        when: settings.when,
        action: settings.action,
        priority: settings.priority,
        timeout_ms: settings.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS),
        sandbox: settings.sandbox.unwrap_or(SandboxLevel::Off),
        paused: None,
        made_by: by.clone(),
        made_unix_ms: now.unix_ms,
        fired_count: 0,
        fired_unix_ms: None,
        recent_firings: vec![],
        skipped_count: 0,
        last_skip: None,
        waiting: vec![],
    };
    let id = hook.id;
    draft.record(Event::HookAdded(HookAdded { hook: hook.into() }));
    Ok(id)
}

/// Refuses a new hook whose limits, trigger or action cannot work.
fn check(board: &Board, settings: &AddHook) -> Result<(), Refusal> {
    if let Some(project) = &settings.project
        && !board.projects.contains_key(project)
    {
        return Err(Refusal::NoSuchProject {
            project: project.clone(),
        });
    }
    if settings.priority > 9 {
        return Err(Refusal::invalid(
            format!(
                "a hook's priority must be 0 to 9, not {}",
                settings.priority
            ),
            "give --priority 0 to 9; hooks with lower numbers fire first",
        ));
    }
    if settings
        .timeout_ms
        .is_some_and(|timeout_ms| timeout_ms == 0 || timeout_ms > MAX_TIMEOUT_MS)
    {
        return Err(Refusal::invalid(
            "the time limit of a hook's command must be between 1 ms and 24 hours",
            "give a --max-time in that range, such as 10m",
        ));
    }
    if settings
        .when
        .ttl_ms
        .is_some_and(|ttl_ms| ttl_ms == 0 || ttl_ms > claim::MAX_TTL_MS)
    {
        return Err(Refusal::invalid(
            "the lifetime of a hook's claim must be between 1 ms and 7 days",
            "give a --ttl in that range, such as 10m",
        ));
    }
    if settings.when.ttl_ms.is_some() && settings.when.claim.is_none() {
        return Err(Refusal::invalid(
            "--ttl is the lifetime of the hook's claim, but the hook has no claim",
            "name the claim, such as --claim respond://shop, or leave --ttl out",
        ));
    }
    if settings.project.is_none()
        && settings
            .sandbox
            .is_some_and(|sandbox_level| sandbox_level != SandboxLevel::Off)
    {
        return Err(Refusal::invalid(
            "a hook whose command runs in a sandbox needs a project",
            "name the project: --project NAME",
        ));
    }
    match &settings.trigger {
        HookTrigger::Message {
            channel: None,
            label: None,
            mention: None,
            prefix: None,
        } => {
            return Err(Refusal::invalid(
                "a hook on every message of every channel would fire all the time",
                "name a --channel, a --label, a --mention or a --prefix",
            ));
        }
        HookTrigger::Message {
            prefix: Some(prefix),
            ..
        } if prefix.trim().is_empty() || prefix.len() > 200 => {
            return Err(Refusal::invalid(
                "a prefix must have 1 to 200 bytes and must not be blank",
                "give the beginning of the messages, such as --prefix '!deploy'",
            ));
        }
        HookTrigger::Event { kind } if !Event::KINDS.contains(&kind.as_str()) => {
            return Err(Refusal::invalid(
                format!(
                    "there is no kind of event called {:?}",
                    kind.chars().take(60).collect::<String>()
                ),
                "see events with their kinds: regatta events --json",
            ));
        }
        HookTrigger::Event { kind } if kind.starts_with("hook.") => {
            return Err(Refusal::invalid(
                "events about hooks cannot trigger a hook, because hooks could then trigger \
                themselves",
                "use an event that the other hook's command causes",
            ));
        }
        HookTrigger::Event { .. } | HookTrigger::Free { .. }
            if settings.when.require_label.is_some() =>
        {
            return Err(Refusal::invalid(
                "--require-label works only for hooks on messages, because only messages have \
                labels",
                "leave --require-label out, or trigger the hook by messages",
            ));
        }
        _ => {}
    }
    match &settings.action {
        HookAction::Run { argv, cwd } => {
            let is_malformed = |text: &String| text.contains('\0') || text.len() > 16 * 1024;
            if argv.first().is_none_or(String::is_empty)
                || argv.len() > 256
                || argv.iter().any(is_malformed)
            {
                return Err(Refusal::invalid(
                    "a hook's command must have 1 to 256 words of at most 16 KiB each",
                    "write the command behind --: regatta hook add --channel shop -- ./answer.sh",
                ));
            }
            if !cwd.starts_with('/') || is_malformed(cwd) {
                return Err(Refusal::invalid(
                    "the directory of a hook's command must be an absolute path",
                    "name the directory: --cwd /home/me/shop",
                ));
            }
        }
        HookAction::Route => {
            let names_channel = matches!(
                &settings.trigger,
                HookTrigger::Message {
                    channel: Some(_),
                    ..
                }
            );
            if settings.project.is_none() || !names_channel {
                return Err(Refusal::invalid(
                    "a hook that calls the router needs a project and a channel",
                    "name both: regatta hook add --project shop --channel shop --route",
                ));
            }
        }
    }
    Ok(())
}

/// Returns the hook with this id, or a refusal if there is no such hook.
pub fn find(board: &Board, id: HookId) -> Result<&Hook, Refusal> {
    board.hooks.get(&id).map(|hook| &**hook).ok_or_else(|| {
        Refusal::missing(
            format!("there is no hook {id}"),
            "see the hooks: regatta hook list",
        )
    })
}

/// Pauses a hook. A paused hook does not fire until somebody resumes it.
pub fn pause(draft: &mut Draft, id: HookId, reason: String) -> Result<(), Refusal> {
    if find(draft.board(), id)?.paused.is_none() {
        draft.record(Event::HookChanged(HookChanged {
            hook: id,
            paused: Some(reason),
        }));
    }
    Ok(())
}

/// Resumes a paused hook. If triggers were already waiting, the hook fires for them.
pub fn resume(draft: &mut Draft, id: HookId, now: Now) -> Result<(), Refusal> {
    if find(draft.board(), id)?.paused.is_some() {
        draft.record(Event::HookChanged(HookChanged {
            hook: id,
            paused: None,
        }));
        fire_waiting(draft, id, now);
    }
    Ok(())
}

/// Removes a hook. If the hook's command is running, the command continues.
pub fn remove(draft: &mut Draft, id: HookId) -> Result<(), Refusal> {
    find(draft.board(), id)?;
    draft.record(Event::HookRemoved(HookRemoved { hook: id }));
    Ok(())
}

/// Records how a hook's command ended, and releases the claim that the hook held for it.
pub fn on_command_ended(
    draft: &mut Draft,
    id: FiringId,
    ended: FiringEnd,
    output: String,
    sandbox_description: Option<String>,
) -> Result<(), Refusal> {
    let Some(firing) = draft.board().firings.get(&id).cloned() else {
        return Ok(());
    };
    let mut start = output.len().saturating_sub(MAX_OUTPUT_BYTES);
    while !output.is_char_boundary(start) {
        start += 1;
    }
    let output = output[start..].to_owned();
    draft.record(Event::HookEnded(HookEnded {
        firing: id,
        ended,
        output,
        shut_in: sandbox_description,
    }));
    if let Some(FiringClaim { claim, token }) = firing.claim
        && draft
            .board()
            .claims
            .get(&claim)
            .is_some_and(|claim| claim.token == token)
    {
        claim::release(draft, claim, token)?;
    }
    Ok(())
}

/// Returns the number of hooks in the chain that led to an action of `by` (each hook caused the
/// next one). This is the longest chain among the hook commands that run in the name of `by`, or 0
/// if no such command runs.
pub fn depth_of(board: &Board, by: &Actor) -> u32 {
    let Actor::Agent(by) = by else { return 0 };
    board
        .firings
        .values()
        .filter(|firing| firing.agent == *by)
        .map(|firing| firing.depth)
        .max()
        .unwrap_or(0)
}
