//! The vocabulary in which Regatta describes the events of any agent's program: messages, tool
//! calls, permission requests, usage and failures.
//!
//! A driver for each program translates the program's own output into [`AgentEvent`]. Only some
//! events change the stored state of an attempt (see [`AgentEvent::changes_state`]). All other
//! events, such as parts of an answer, are kept only in the transcript. This module is plain data;
//! the drivers are in `regatta-agents`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a turn or an agent's program failed. Each class has exactly one
/// [consequence](FailureClass::consequence).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The program is not signed in at its provider, or its API key is wrong.
    Auth,
    /// The account's limit at the provider is used up, and the provider accepts work again later.
    RateLimit,
    /// The provider has too many requests and cannot answer now.
    Overloaded,
    /// The program cannot reach its provider over the network: a name cannot be resolved, or the
    /// connection fails.
    NoNetwork,
    /// The conversation no longer fits into the model's context.
    ContextFull,
    /// The model declined to do the work.
    Refused,
    /// The agent's program ended unexpectedly, or sent something that its protocol does not allow.
    Crashed,
    /// The turn or the program exceeded its time limit.
    Timeout,
    /// A person or Regatta cancelled the turn.
    Cancelled,
    /// The program cannot work with its settings, for example because of an unknown model, a wrong
    /// flag, or a missing executable.
    BadConfig,
}

/// The action that Regatta takes for a task after a failure of a [`FailureClass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureConsequence {
    /// Start another attempt after a delay. With `counts_as_failure`, the ended attempt counts
    /// towards the limit of failed attempts.
    Retry { counts_as_failure: bool },
    /// Give the provider no new work until its limit is reset. The ended attempt does not count as
    /// a failure.
    Park,
    /// Start another attempt in a new session, with a summary of the old session.
    NewSession,
    /// Wait until a person has solved the problem, for example signed in again.
    NeedsPerson,
    /// Do nothing, because the turn was cancelled on purpose.
    Nothing,
}

impl FailureClass {
    pub const ALL: [FailureClass; 10] = [
        FailureClass::Auth,
        FailureClass::RateLimit,
        FailureClass::Overloaded,
        FailureClass::NoNetwork,
        FailureClass::ContextFull,
        FailureClass::Refused,
        FailureClass::Crashed,
        FailureClass::Timeout,
        FailureClass::Cancelled,
        FailureClass::BadConfig,
    ];

    /// Returns what Regatta does after a failure of this class.
    pub fn consequence(self) -> FailureConsequence {
        match self {
            FailureClass::Auth | FailureClass::BadConfig | FailureClass::Refused => {
                FailureConsequence::NeedsPerson
            }
            FailureClass::RateLimit => FailureConsequence::Park,
            FailureClass::Overloaded | FailureClass::NoNetwork => FailureConsequence::Retry {
                counts_as_failure: false,
            },
            FailureClass::ContextFull => FailureConsequence::NewSession,
            FailureClass::Crashed | FailureClass::Timeout => FailureConsequence::Retry {
                counts_as_failure: true,
            },
            FailureClass::Cancelled => FailureConsequence::Nothing,
        }
    }

    /// Returns the name of the failure class, as the API uses it.
    pub fn name(self) -> &'static str {
        match self {
            FailureClass::Auth => "auth",
            FailureClass::RateLimit => "rate_limit",
            FailureClass::Overloaded => "overloaded",
            FailureClass::NoNetwork => "no_network",
            FailureClass::ContextFull => "context_full",
            FailureClass::Refused => "refused",
            FailureClass::Crashed => "crashed",
            FailureClass::Timeout => "timeout",
            FailureClass::Cancelled => "cancelled",
            FailureClass::BadConfig => "bad_config",
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kind of a tool call, with the names of the Agent Client Protocol. The rules of a permission
/// policy can match this kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    SwitchMode,
    #[default]
    Other,
}

/// The progress of a tool call of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    #[default]
    Pending,
    InProgress,
    Completed,
    Failed,
}

/// A tool call of the model. The program reports a call several times under the same `id`, and each
/// report updates the fields that it contains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ToolCall {
    pub id: String,
    pub title: String,
    pub kind: ToolKind,
    pub status: ToolStatus,
    /// The command line, if `kind` is `execute`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The files that the call touches, as the program named them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The addresses that the call fetches, as the program named them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// Further input of the tool, as JSON or in the program's own form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// True if the command or input was longer than [`MAX_OBJECT_CHARS`], so that its end is
    /// missing here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// The output of the tool, or the changes that it made, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// Maximum length of a tool call's command or input, in characters. Anything longer is cut.
pub const MAX_OBJECT_CHARS: usize = 16 * 1024;

impl ToolCall {
    /// Returns what the tool call acts on: its command, addresses, files or input. Returns `None`
    /// if the program states none of these, because permission for such a call would permit
    /// anything (S13).
    pub fn object(&self) -> Option<String> {
        let command = self.command.clone().filter(|line| !line.trim().is_empty());
        let urls = (!self.urls.is_empty()).then(|| self.urls.join(", "));
        let paths = (!self.paths.is_empty()).then(|| self.paths.join(", "));
        let input = self
            .arguments
            .clone()
            .filter(|input| !input.trim().is_empty());
        let filled_input = input.clone().filter(|input| input != "{}");
        match self.kind {
            ToolKind::Execute => command.or(filled_input),
            ToolKind::Fetch => urls.or(command).or(filled_input),
            ToolKind::Read | ToolKind::Edit | ToolKind::Delete | ToolKind::Move => {
                command.or(paths).or(urls).or(filled_input)
            }
            // The names of these tools already say what the tools do. So an empty input (`{}`) is
            // also accepted as the object of the call, if the call states nothing else.
            ToolKind::Search | ToolKind::Think | ToolKind::SwitchMode | ToolKind::Other => {
                filled_input.or(command).or(urls).or(paths).or(input)
            }
        }
    }

    /// Returns why a person cannot judge this tool call: the request does not state what the call
    /// acts on, or states only a part of it (S13). Returns `None` if a person can judge the call.
    pub fn undecidable_reason(&self) -> Option<String> {
        let missing = match self.kind {
            ToolKind::Execute => "which command it would run",
            ToolKind::Fetch => "which address it would fetch",
            ToolKind::Read | ToolKind::Edit | ToolKind::Delete | ToolKind::Move => {
                "which file it is about"
            }
            _ => "what it would do",
        };
        match self.object() {
            None => Some(format!("the request does not show {missing}")),
            Some(_) if self.is_cut => Some(format!(
                "the request is longer than {MAX_OBJECT_CHARS} characters, so nobody can be shown \
                all of it"
            )),
            Some(_) => None,
        }
    }

    /// Describes the tool call to the person who must allow or deny it: the command, or the tool's
    /// title with the files, addresses or input.
    pub fn describe(&self) -> String {
        let object = self.object().filter(|object| object != "{}");
        match object {
            None => self.title.clone(),
            Some(object) if self.command.as_ref() == Some(&object) => object,
            Some(object) if self.title.contains(&object) => self.title.clone(),
            Some(object) if self.title.is_empty() => object,
            Some(object) => format!("{}: {object}", self.title),
        }
    }
}

/// Remembers which tool calls of a transcript a reader has already seen, to suppress repeated
/// updates.
///
/// A program sends an update for each line that a command prints. A reader that prints one line per
/// call wants only the updates that change the call's status.
#[derive(Clone, Debug, Default)]
pub struct ShownCalls(BTreeMap<String, ToolStatus>);

impl ShownCalls {
    /// Returns whether to print this update: the call is new, or its status has changed since the
    /// last update.
    pub fn should_show(&mut self, tool: &ToolCall) -> bool {
        let is_started = |status| matches!(status, ToolStatus::Pending | ToolStatus::InProgress);
        match self.0.insert(tool.id.clone(), tool.status) {
            None => true,
            Some(previous) => {
                previous != tool.status && !(is_started(previous) && is_started(tool.status))
            }
        }
    }

    /// Forgets the calls of the previous turn, because a program may reuse the ids of calls in each
    /// turn.
    pub fn begin_turn(&mut self) {
        self.0.clear();
    }
}

/// One entry of the to-do list that an agent's program keeps for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanEntry {
    pub text: String,
    pub status: ToolStatus,
}

/// The meaning of one option of a permission request. Regatta chooses an option by this meaning,
/// never by its position or name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PermissionOptionKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
}

/// One of the answers that a program offers for its permission request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PermissionOption {
    pub id: String,
    pub name: String,
    pub kind: PermissionOptionKind,
}

/// The content of an agent's request to a person: a permission request or a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "want")]
pub enum RequestContent {
    /// The agent asks for permission to use a tool.
    Permission {
        tool: ToolCall,
        options: Vec<PermissionOption>,
    },
    /// The agent asks a question. `choices` lists suggested answers and may be empty. `schema` is
    /// the JSON Schema of a form that the answer must fill in, if the program sent one.
    Question {
        text: String,
        choices: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<String>,
    },
}

/// A request of an agent to a person. The program chose `id`, which is unique within the attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentRequest {
    pub id: String,
    #[serde(flatten)]
    pub content: RequestContent,
}

/// The answer to an [`AgentRequest`], which a person, a lead agent or the permission policy gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "say")]
pub enum RequestAnswer {
    Allow,
    /// Permission is denied. The agent gets the reason, if there is one.
    Deny {
        #[serde(rename = "words")]
        reason: Option<String>,
    },
    /// An answer to a question: plain text, or a JSON object if the question was a form.
    Text {
        text: String,
    },
    /// The turn was cancelled before anybody answered the request.
    Cancelled,
}

impl RequestAnswer {
    /// Returns the answer in a few words for people, such as `denied (too risky)`.
    pub fn phrase(&self) -> String {
        match self {
            RequestAnswer::Allow => "allowed".into(),
            RequestAnswer::Deny { reason: None } => "denied".into(),
            RequestAnswer::Deny {
                reason: Some(reason),
            } => format!("denied ({reason})"),
            RequestAnswer::Text { text } => format!("answered \"{text}\""),
            RequestAnswer::Cancelled => "cancelled".into(),
        }
    }
}

/// Tokens and cost of one session of an agent's program, summed since the session began. `input`
/// does not include cached input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Usage {
    pub input: u64,
    pub cached_input: u64,
    pub cache_write: u64,
    pub output: u64,
    /// Cost in millionths of a US dollar, if the program reports it or a price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
}

impl Usage {
    /// Returns whether all counts are zero and no cost is known.
    pub fn is_nothing(&self) -> bool {
        *self == Usage::default()
    }

    /// Returns the total of all tokens: input, cached input, cache writes and output.
    pub fn tokens(&self) -> u64 {
        self.input + self.cached_input + self.cache_write + self.output
    }

    /// Combines two reports of one session's usage: returns the larger value of each count. The
    /// counts of a session never fall, so a lower count comes from an older report.
    pub fn componentwise_max(&self, other: &Usage) -> Usage {
        Usage {
            input: self.input.max(other.input),
            cached_input: self.cached_input.max(other.cached_input),
            cache_write: self.cache_write.max(other.cache_write),
            output: self.output.max(other.output),
            micro_usd: self.micro_usd.max(other.micro_usd),
        }
    }

    /// Returns the usage since the earlier report `before` of the same session.
    pub fn since(&self, before: &Usage) -> Usage {
        let money_spent = |total: u64| total.saturating_sub(before.micro_usd.unwrap_or(0));
        Usage {
            input: self.input.saturating_sub(before.input),
            cached_input: self.cached_input.saturating_sub(before.cached_input),
            cache_write: self.cache_write.saturating_sub(before.cache_write),
            output: self.output.saturating_sub(before.output),
            micro_usd: self.micro_usd.map(money_spent),
        }
    }

    /// Returns the sum of this usage and `more`.
    pub fn plus(&self, more: &Usage) -> Usage {
        let micro_usd = match (self.micro_usd, more.micro_usd) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
        };
        Usage {
            input: self.input + more.input,
            cached_input: self.cached_input + more.cached_input,
            cache_write: self.cache_write + more.cache_write,
            output: self.output + more.output,
            micro_usd,
        }
    }
}

/// The reason why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model finished its answer.
    EndTurn,
    MaxTokens,
    MaxTurns,
    Refusal,
    Cancelled,
    /// The turn failed. The event's [`FailureClass`] has the reason.
    Error,
}

/// An event that an agent's program reported, translated by its driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "said")]
pub enum AgentEvent {
    /// The program opened its session and accepts prompts. Regatta can resume the session later
    /// with the id `session`.
    Started {
        session: Option<String>,
        model: Option<String>,
    },
    /// Regatta sent a prompt, which begins a turn; `n` is the turn's number in the attempt, from 0.
    TurnStarted {
        n: u64,
    },
    /// Part of the model's answer.
    Message {
        text: String,
    },
    /// Part of the model's thoughts.
    Thought {
        text: String,
    },
    Tool(ToolCall),
    Plan {
        entries: Vec<PlanEntry>,
    },
    #[serde(rename = "asked")]
    RequestMade(AgentRequest),
    /// The program withdrew its request, so nobody needs to answer it.
    #[serde(rename = "withdrew")]
    RequestWithdrawn {
        #[serde(rename = "ask")]
        request: String,
    },
    /// The tokens and cost of a session, summed since the session began.
    Usage {
        session: Option<String>,
        usage: Usage,
    },
    /// The number of tokens in the model's context (`used`) and the context's size in tokens.
    Context {
        used: u64,
        size: u64,
    },
    /// The account's limit at the provider is used up. `deadline_unix_ms` is the time at which the
    /// provider accepts work again, if the provider named this time.
    Limited {
        #[serde(rename = "until_wall")]
        deadline_unix_ms: Option<u64>,
        detail: String,
    },
    /// The current turn ended, and the program waits for the next prompt or exits.
    TurnEnded {
        stop: StopReason,
        class: Option<FailureClass>,
        detail: String,
    },
    /// Any other event that a person may want to see in the transcript: a retry, a warning, other
    /// output.
    Notice {
        text: String,
    },
}

impl AgentEvent {
    /// Returns whether the event changes the state that Regatta stores about the attempt. All other
    /// events are kept only in the transcript.
    pub fn changes_state(&self) -> bool {
        match self {
            AgentEvent::Started { .. }
            | AgentEvent::TurnStarted { .. }
            | AgentEvent::Plan { .. }
            | AgentEvent::RequestMade(_)
            | AgentEvent::RequestWithdrawn { .. }
            | AgentEvent::Usage { .. }
            | AgentEvent::Context { .. }
            | AgentEvent::Limited { .. }
            | AgentEvent::TurnEnded { .. } => true,
            AgentEvent::Message { .. }
            | AgentEvent::Thought { .. }
            | AgentEvent::Tool(_)
            | AgentEvent::Notice { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_call_is_shown_when_it_begins_and_when_it_ends() {
        let mut shown = ShownCalls::default();
        let mut should_show = |id: &str, status: ToolStatus| {
            shown.should_show(&ToolCall {
                id: id.into(),
                status,
                ..ToolCall::default()
            })
        };
        use ToolStatus::{Completed, Failed, InProgress, Pending};
        for (id, status, expected) in [
            ("a", Pending, true),
            ("a", InProgress, false),
            ("a", InProgress, false),
            ("b", InProgress, true),
            ("a", Completed, true),
            ("a", Completed, false),
            ("b", Failed, true),
            ("a", InProgress, true),
        ] {
            assert_eq!(should_show(id, status), expected, "{id} {status:?}");
        }
        shown.begin_turn();
        assert!(shown.should_show(&ToolCall {
            id: "a".into(),
            status: InProgress,
            ..ToolCall::default()
        }));
    }
}
