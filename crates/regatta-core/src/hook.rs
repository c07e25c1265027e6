//! Hooks: rules that start a command or the router when a message, an event or a free claim
//! matches.
//!
//! Hooks are checked in the same draft as the event, so a hook fires once for each event, even
//! after redeliveries and restarts. A command that a hook starts is an effect and runs once, under
//! its own exit record. Messages of Regatta and of the hook's own agent fire no hook, and a chain
//! of hooks that trigger each other is cut.
//!
//! Not here: running the command, which is the engine's work.

mod firing; // the start of its command
mod matching; // the decision if a hook fires

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

/// The maximum length of a chain of hooks that trigger each other.
pub const MAX_CHAIN_LENGTH: u32 = 5;
/// The maximum number of firings of one hook within [`FIRING_WINDOW_MS`].
pub const MAX_FIRINGS_PER_WINDOW: usize = 20;
/// The period in which a hook's firings are counted.
pub const FIRING_WINDOW_MS: u64 = 60_000;
/// The maximum number of hooks.
pub const MAX_HOOKS: usize = 1_000;
/// The maximum number of triggers that wait for a hook's claim.
pub const MAX_WAITING: usize = 500;
/// The default time limit of a hook's command.
pub const DEFAULT_TIMEOUT_MS: u64 = 600_000;
/// The largest time limit of a hook's command.
pub const MAX_TIMEOUT_MS: u64 = 24 * 3_600_000;
/// The number of bytes of a command's output that its firing keeps.
pub const MAX_OUTPUT_BYTES: usize = 8 * 1024;

/// The condition that triggers a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "on")]
pub enum HookTrigger {
    /// A message that matches all given fields. Without a channel, messages of all channels match,
    /// except mailboxes.
    Message {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<ChannelName>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<Label>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mention: Option<AgentName>,
        /// Beginning of the text, ignoring case and leading spaces.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prefix: Option<String>,
    },
    /// An event of this kind, such as `task.completed`.
    Event { kind: String },
    /// The end of a claim, after which nobody holds `uri`.
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

/// The action that a hook starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum HookAction {
    /// Runs a command of the user in this directory.
    Run { argv: Vec<String>, cwd: String },
    /// Gives messages of the project's channel to the built-in router.
    Route,
}

/// Conditions under which a triggered hook fires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HookConditions {
    /// The claim that must be free, and that the hook holds until its command ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<Uri>,
    /// The maximum lifetime of the claim; without it, the command's maximum time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The minimum time between two firings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooldown_ms: Option<u64>,
    /// A label that the message must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_label: Option<Label>,
}

/// A rule that starts an action when its trigger matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hook {
    pub id: HookId,
    pub project: Option<ProjectName>,
    /// Agent as which the hook acts; without it the hook's own identity, `hook/H3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    pub trigger: HookTrigger,
    #[serde(default)]
    pub when: HookConditions,
    pub action: HookAction,
    /// Order among hooks; lower fires first.
    pub priority: u8,
    /// Maximum time of its command.
    pub timeout_ms: u64,
    /// Sandbox level of its command.
    pub sandbox: SandboxLevel,
    /// Reason for which the hook is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    pub made_by: Actor,
    #[serde(rename = "made_wall")]
    pub made_unix_ms: u64,
    /// Number of firings.
    #[serde(default)]
    #[serde(rename = "fired")]
    pub fired_count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "fired_wall")]
    pub fired_unix_ms: Option<u64>,
    /// Times of the firings within the last minute on the fleet clock, but at least the last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "recent")]
    pub recent_firings: Vec<u64>,
    /// Number of triggers for which a condition did not hold.
    #[serde(default)]
    #[serde(rename = "skipped")]
    pub skipped_count: u64,
    /// The cause and the reason of the last such trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_skip: Option<(FiringCause, String)>,
    /// Triggers that matched while the hook's claim was held, oldest first. The hook fires for each
    /// of them when the claim is free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingTrigger>,
}

/// A trigger that waits until the hook's claim is free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitingTrigger {
    pub cause: FiringCause,
    /// Number of hooks in the chain that led to it.
    pub depth: u32,
}

impl Hook {
    /// Returns whether the hook gives this project's messages to the built-in router.
    pub(crate) fn is_router_of(&self, project: &ProjectName) -> bool {
        matches!(self.action, HookAction::Route) && self.project.as_ref() == Some(project)
    }

    /// Returns the agent name as which the hook acts.
    pub fn identity(&self) -> AgentName {
        let own =
            || AgentName::new(&format!("hook/{}", self.id)).expect("a hook id is a valid name");
        self.agent.clone().unwrap_or_else(own)
    }

    /// Removes the oldest waiting trigger with this cause.
    pub(crate) fn forget_waiting(&mut self, cause: &FiringCause) {
        if let Some(at) = self
            .waiting
            .iter()
            .position(|waiting| waiting.cause == *cause)
        {
            self.waiting.remove(at);
        }
    }

    /// Returns whether an actor is the hook's own identity.
    fn is_own(&self, by: &Actor) -> bool {
        matches!(by, Actor::Agent(name) if bus::is_same_or_below(name, &self.identity()))
    }
}

/// The cause of a firing.
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
    /// The command exceeded its maximum time and was killed.
    TimedOut,
    /// The command was not started, for this reason.
    NotRun(String),
    /// The end is unknown, because the supervisor was killed, too.
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

/// A claim that a hook's command holds, with its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FiringClaim {
    pub claim: ClaimId,
    pub token: u64,
}

/// One firing of a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Firing {
    pub id: FiringId,
    pub hook: HookId,
    pub project: Option<ProjectName>,
    /// Agent as which its command acts.
    pub agent: AgentName,
    /// Number from which its command's token is derived.
    pub token: u64,
    pub cause: FiringCause,
    /// Position in the chain of hooks that triggered each other, counting from 1.
    pub depth: u32,
    /// The hook's command when it fired.
    pub argv: Vec<String>,
    pub cwd: String,
    pub timeout_ms: u64,
    pub sandbox: SandboxLevel,
    /// Claim that it holds while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<FiringClaim>,
    #[serde(rename = "fired_wall")]
    pub fired_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<FiringEnd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ended_wall")]
    pub ended_unix_ms: Option<u64>,
    /// End of its output, without secrets.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// Description of its sandbox, if it had one.
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

/// A hook to add with [`add`].
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

/// Returns the default priority.
fn default_priority() -> u8 {
    2
}

/// Adds a hook.
pub fn add(draft: &mut Draft, settings: AddHook, by: &Actor, now: Now) -> Result<HookId, Refusal> {
    let board = draft.board();
    if board.hooks.len() >= MAX_HOOKS {
        return Err(Refusal::invalid(
            format!("there are already {MAX_HOOKS} hooks"),
            "remove some: regatta hook list",
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

/// Checks a new hook's limits, trigger and action.
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
            "a priority is 0 to 9; hooks with lower numbers fire first",
            "give a number in that range",
        ));
    }
    if settings
        .timeout_ms
        .is_some_and(|timeout_ms| timeout_ms == 0 || timeout_ms > MAX_TIMEOUT_MS)
    {
        return Err(Refusal::invalid(
            "a hook's command takes 1 ms to 24 hours",
            "give another --max-time",
        ));
    }
    if settings
        .when
        .ttl_ms
        .is_some_and(|ttl_ms| ttl_ms == 0 || ttl_ms > claim::MAX_TTL_MS)
    {
        return Err(Refusal::invalid(
            "a claim lives for 1 ms to 7 days",
            "give another --ttl",
        ));
    }
    if settings.when.ttl_ms.is_some() && settings.when.claim.is_none() {
        return Err(Refusal::invalid(
            "a TTL needs a claim, and no claim is given",
            "name it: --claim respond://…",
        ));
    }
    if settings.project.is_none()
        && settings
            .sandbox
            .is_some_and(|sandbox_level| sandbox_level != SandboxLevel::Off)
    {
        return Err(Refusal::invalid(
            "a sandboxed command needs a project, and no project is given",
            "name --project",
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
                "a prefix has 1 to 200 bytes, not all of them blanks",
                "write --prefix '!x'",
            ));
        }
        HookTrigger::Event { kind } if !Event::KINDS.contains(&kind.as_str()) => {
            return Err(Refusal::invalid(
                format!(
                    "there is no event {:?}",
                    kind.chars().take(60).collect::<String>()
                ),
                "see what happens: regatta events --json",
            ));
        }
        HookTrigger::Event { kind } if kind.starts_with("hook.") => {
            return Err(Refusal::invalid(
                "events about hooks fire no hook",
                "use an event that the command causes instead",
            ));
        }
        HookTrigger::Event { .. } | HookTrigger::Free { .. }
            if settings.when.require_label.is_some() =>
        {
            return Err(Refusal::invalid(
                "only a message has labels",
                "leave --require-label out",
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
                    "a hook's command has 1 to 256 words of at most 16 KiB",
                    "write it behind --: regatta hook add --channel shop -- ./answer.sh",
                ));
            }
            if !cwd.starts_with('/') || is_malformed(cwd) {
                return Err(Refusal::invalid(
                    "a hook's command runs in a directory with an absolute path",
                    "name it: --cwd /home/me/shop",
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
                    "the router works for one project, on the messages of one channel",
                    "name both: regatta hook add --project shop --channel shop --route",
                ));
            }
        }
    }
    Ok(())
}

/// Returns the hook with this id, or a refusal.
pub fn find(board: &Board, id: HookId) -> Result<&Hook, Refusal> {
    board.hooks.get(&id).map(|hook| &**hook).ok_or_else(|| {
        Refusal::missing(
            format!("there is no hook {id}"),
            "see them: regatta hook list",
        )
    })
}

/// Pauses a hook.
pub fn pause(draft: &mut Draft, id: HookId, reason: String) -> Result<(), Refusal> {
    if find(draft.board(), id)?.paused.is_none() {
        draft.record(Event::HookChanged(HookChanged {
            hook: id,
            paused: Some(reason),
        }));
    }
    Ok(())
}

/// Resumes a paused hook. It fires for triggers that waited when it was paused.
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

/// Removes a hook. A running command of the hook continues.
pub fn remove(draft: &mut Draft, id: HookId) -> Result<(), Refusal> {
    find(draft.board(), id)?;
    draft.record(Event::HookRemoved(HookRemoved { hook: id }));
    Ok(())
}

/// Applies the end of a hook's command, and releases its claim.
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

/// Returns the hook depth of anything that `by` does: the maximum depth of its running commands.
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
