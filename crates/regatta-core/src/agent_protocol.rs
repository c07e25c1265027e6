//! The events of an agent's program, in one vocabulary for all providers.
//!
//! Drivers translate each program's own stream into [`AgentEvent`]. Only the events that change
//! state are reported to the board, see [`AgentEvent::changes_state`]. The others, such as parts of
//! an answer, stay in the transcript. This module is plain data; the drivers are in another crate.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The class of a failure of a turn or a program. Each class has one
/// [consequence](FailureClass::consequence).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Not signed in, or the key is wrong.
    Auth,
    /// The provider's limit is used up until a time.
    RateLimit,
    /// The provider cannot answer now.
    Overloaded,
    /// The model's context is full.
    ContextFull,
    /// The model declined.
    Refused,
    /// The program died, or broke its protocol.
    Crashed,
    /// The turn or the program took too long.
    Timeout,
    /// Somebody cancelled the turn.
    Cancelled,
    /// The program's settings cannot work: an unknown model, a wrong flag, a missing program.
    BadConfig,
}

/// The consequence of a [`FailureClass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureConsequence {
    /// Another attempt after a delay. With `counts_as_failure`, the attempt that ended counts as a
    /// failure.
    Retry { counts_as_failure: bool },
    /// The provider gets no new work until the reset. This does not count as a failure.
    Park,
    /// Another attempt in a fresh session, with a summary of the old one.
    NewSession,
    /// A person must act first.
    NeedsPerson,
    /// Nothing, because somebody cancelled it.
    Nothing,
}

impl FailureClass {
    pub const ALL: [FailureClass; 9] = [
        FailureClass::Auth,
        FailureClass::RateLimit,
        FailureClass::Overloaded,
        FailureClass::ContextFull,
        FailureClass::Refused,
        FailureClass::Crashed,
        FailureClass::Timeout,
        FailureClass::Cancelled,
        FailureClass::BadConfig,
    ];

    /// Returns the consequence of this class.
    pub fn consequence(self) -> FailureConsequence {
        match self {
            FailureClass::Auth | FailureClass::BadConfig | FailureClass::Refused => {
                FailureConsequence::NeedsPerson
            }
            FailureClass::RateLimit => FailureConsequence::Park,
            FailureClass::Overloaded => FailureConsequence::Retry {
                counts_as_failure: false,
            },
            FailureClass::ContextFull => FailureConsequence::NewSession,
            FailureClass::Crashed | FailureClass::Timeout => FailureConsequence::Retry {
                counts_as_failure: true,
            },
            FailureClass::Cancelled => FailureConsequence::Nothing,
        }
    }

    /// Returns the name of the class in the API.
    pub fn name(self) -> &'static str {
        match self {
            FailureClass::Auth => "auth",
            FailureClass::RateLimit => "rate_limit",
            FailureClass::Overloaded => "overloaded",
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

/// The kind of a tool call, in ACP's terms. Policy rules can depend on it.
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

/// The progress of a tool call.
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

/// A tool call. A later call with the same id updates the fields that it contains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ToolCall {
    pub id: String,
    pub title: String,
    pub kind: ToolKind,
    pub status: ToolStatus,
    /// The command line, for `execute`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The files that the call touches, as the program named them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The addresses that the call fetches, as the program named them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// The rest of the input, as JSON or in the program's own form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// The command or input was longer than [`MAX_OBJECT_CHARS`], so its end is missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// The output or the changes, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// The maximum length of a call's command or input that is kept and shown whole, in characters.
pub const MAX_OBJECT_CHARS: usize = 16 * 1024;

impl ToolCall {
    /// Returns the object of the call: its command, addresses, files or input. Returns `None` if
    /// the program does not name the object, because a permission would then permit anything (S13).
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
            // The tool's name describes a call without input.
            ToolKind::Search | ToolKind::Think | ToolKind::SwitchMode | ToolKind::Other => {
                filled_input.or(command).or(urls).or(paths).or(input)
            }
        }
    }

    /// Returns the reason why a person cannot decide about this call, if its object is missing or
    /// cut (S13).
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

    /// Describes the call for the person who decides about it: the command, or the tool with its
    /// object.
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

/// The tool calls of a transcript that a reader was shown.
///
/// A program sends an update for each line that a command prints. Readers that print one line per
/// call want only the updates that change its status.
#[derive(Clone, Debug, Default)]
pub struct ShownCalls(BTreeMap<String, ToolStatus>);

impl ShownCalls {
    /// Returns whether `tool` is a call that was not shown yet or whose status has changed since.
    pub fn should_show(&mut self, tool: &ToolCall) -> bool {
        let is_started = |status| matches!(status, ToolStatus::Pending | ToolStatus::InProgress);
        match self.0.insert(tool.id.clone(), tool.status) {
            None => true,
            Some(previous) => {
                previous != tool.status && !(is_started(previous) && is_started(tool.status))
            }
        }
    }

    /// Forgets the calls of the previous turn, because a program may number its calls anew in each
    /// turn.
    pub fn begin_turn(&mut self) {
        self.0.clear();
    }
}

/// One line of an agent's own plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanEntry {
    pub text: String,
    pub status: ToolStatus,
}

/// The meaning of an option of a permission request. Options are chosen by their meaning, never by
/// position or name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PermissionOptionKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
}

/// One way to answer a permission request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PermissionOption {
    pub id: String,
    pub name: String,
    pub kind: PermissionOptionKind,
}

/// The content of an agent's request to a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "want")]
pub enum RequestContent {
    /// Permission to use a tool.
    Permission {
        tool: ToolCall,
        options: Vec<PermissionOption>,
    },
    /// A question. `choices` may be empty. `schema` is the JSON Schema of a form, if the program
    /// sent one.
    Question {
        text: String,
        choices: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<String>,
    },
}

/// A request to a person, under the program's own id for it (unique within the attempt).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentRequest {
    pub id: String,
    #[serde(flatten)]
    pub content: RequestContent,
}

/// The answer of a person, a lead or a policy to an [`AgentRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "say")]
pub enum RequestAnswer {
    Allow,
    /// A denial. The reason goes to the agent if its protocol has a place for it.
    Deny {
        #[serde(rename = "words")]
        reason: Option<String>,
    },
    /// The answer to a question: plain text, or the JSON object of a form.
    Text {
        text: String,
    },
    /// The turn was cancelled before anyone answered.
    Cancelled,
}

impl RequestAnswer {
    /// Returns the answer in a few words.
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

/// Tokens and cost, cumulative over one native session. Cached input is not part of `input`.
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
    /// Returns whether nothing was used.
    pub fn is_nothing(&self) -> bool {
        *self == Usage::default()
    }

    /// Returns the sum of all tokens.
    pub fn tokens(&self) -> u64 {
        self.input + self.cached_input + self.cache_write + self.output
    }

    /// Returns the larger value of each count. The counts of one session never fall, so a lower
    /// count comes from an old report.
    pub fn componentwise_max(&self, other: &Usage) -> Usage {
        Usage {
            input: self.input.max(other.input),
            cached_input: self.cached_input.max(other.cached_input),
            cache_write: self.cache_write.max(other.cache_write),
            output: self.output.max(other.output),
            micro_usd: self.micro_usd.max(other.micro_usd),
        }
    }

    /// Returns the difference to an earlier report.
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

    /// Returns the sum of both.
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

/// The reason for the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model has finished.
    EndTurn,
    MaxTokens,
    MaxTurns,
    Refusal,
    Cancelled,
    /// The turn was interrupted. Its [`FailureClass`] has the reason.
    Error,
}

/// An event of an agent's program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "said")]
pub enum AgentEvent {
    /// A native session is open. It accepts prompts, and this id resumes it.
    Started {
        session: Option<String>,
        model: Option<String>,
    },
    /// A prompt was sent; `n` counts from 0.
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
    /// The program no longer wants an answer to this request.
    #[serde(rename = "withdrew")]
    RequestWithdrawn {
        #[serde(rename = "ask")]
        request: String,
    },
    /// The usage, cumulative over its session.
    Usage {
        session: Option<String>,
        usage: Usage,
    },
    /// The fill level of the model's context, in tokens.
    Context {
        used: u64,
        size: u64,
    },
    /// The provider's limit is used up. `deadline_unix_ms` is the end of the limit, if the provider
    /// named it.
    Limited {
        #[serde(rename = "until_wall")]
        deadline_unix_ms: Option<u64>,
        detail: String,
    },
    /// The running turn has ended.
    TurnEnded {
        stop: StopReason,
        class: Option<FailureClass>,
        detail: String,
    },
    /// Any other event worth a line: a retry, a warning, other output.
    Notice {
        text: String,
    },
}

impl AgentEvent {
    /// Returns whether the event changes the board. All other events are only in the transcript.
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
