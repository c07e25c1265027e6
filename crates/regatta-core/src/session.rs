//! What an agent's program says, in one vocabulary for every provider. Plain data.
//!
//! Drivers translate each program's own stream into [`Said`]. Deltas stay in the transcript; what changes state
//! (started, asked, plan, usage, limited, turn ended) is reported to the board.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a turn or a program went wrong. Each class has one consequence, and it is [`Class::consequence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Class {
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
    /// It took too long.
    Timeout,
    /// It was asked to stop.
    Cancelled,
    /// Its settings cannot work: an unknown model, a wrong flag, a missing program.
    BadConfig,
}

/// What follows from a [`Class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// Again, after a pause; `counts` says whether it used up one of the task's attempts.
    Retry { counts: bool },
    /// The provider takes no new work until the reset; costs no attempt.
    Park,
    /// Again in a fresh session, with a summary of the old one.
    NewSession,
    /// A person must act first.
    NeedsPerson,
    /// Nothing: somebody wanted it so.
    Nothing,
}

impl Class {
    pub const ALL: [Class; 9] = [
        Class::Auth,
        Class::RateLimit,
        Class::Overloaded,
        Class::ContextFull,
        Class::Refused,
        Class::Crashed,
        Class::Timeout,
        Class::Cancelled,
        Class::BadConfig,
    ];

    /// The one thing that follows from it.
    pub fn consequence(self) -> Consequence {
        match self {
            Class::Auth | Class::BadConfig | Class::Refused => Consequence::NeedsPerson,
            Class::RateLimit => Consequence::Park,
            Class::Overloaded => Consequence::Retry { counts: false },
            Class::ContextFull => Consequence::NewSession,
            Class::Crashed | Class::Timeout => Consequence::Retry { counts: true },
            Class::Cancelled => Consequence::Nothing,
        }
    }

    /// Its name, as the API says it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Auth => "auth",
            Class::RateLimit => "rate_limit",
            Class::Overloaded => "overloaded",
            Class::ContextFull => "context_full",
            Class::Refused => "refused",
            Class::Crashed => "crashed",
            Class::Timeout => "timeout",
            Class::Cancelled => "cancelled",
            Class::BadConfig => "bad_config",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a tool does, as ACP names it; policy asks for this.
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

/// How far a tool call is.
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

/// A tool call; a later one with the same id replaces what it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Tool {
    pub id: String,
    pub title: String,
    pub kind: ToolKind,
    pub status: ToolStatus,
    /// The command line, for `execute`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The files it touches, as the program named them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The addresses it fetches, as the program named them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// The rest of its input, as JSON or as the program worded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// Whether its command or input was longer than [`MAX_OBJECT_CHARS`], so that the end is missing here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// What it printed or changed, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// The longest command or input of a call that is kept and shown whole, in characters.
pub const MAX_OBJECT_CHARS: usize = 16 * 1024;

impl Tool {
    /// Returns what the call acts on: its command, addresses, files or input. `None` when the program does not name
    /// it, so that nobody could say what a permission would permit (S13).
    pub fn object(&self) -> Option<String> {
        let command = self.command.clone().filter(|line| !line.trim().is_empty());
        let urls = (!self.urls.is_empty()).then(|| self.urls.join(", "));
        let paths = (!self.paths.is_empty()).then(|| self.paths.join(", "));
        let input = self.arguments.clone().filter(|input| !input.trim().is_empty());
        let filled_input = input.clone().filter(|input| input != "{}");
        match self.kind {
            ToolKind::Execute => command.or(filled_input),
            ToolKind::Fetch => urls.or(command).or(filled_input),
            ToolKind::Read | ToolKind::Edit | ToolKind::Delete | ToolKind::Move => {
                command.or(paths).or(urls).or(filled_input)
            }
            // The tool's name says what a call without input does.
            ToolKind::Search | ToolKind::Think | ToolKind::SwitchMode | ToolKind::Other => {
                filled_input.or(command).or(urls).or(paths).or(input)
            }
        }
    }

    /// Returns why a person cannot be asked about this call, if its object is missing or cut (S13).
    pub fn hides_its_object(&self) -> Option<String> {
        let missing = match self.kind {
            ToolKind::Execute => "which command it would run",
            ToolKind::Fetch => "which address it would fetch",
            ToolKind::Read | ToolKind::Edit | ToolKind::Delete | ToolKind::Move => "which file it is about",
            _ => "what it would do",
        };
        match self.object() {
            None => Some(format!("the request does not show {missing}")),
            Some(_) if self.is_cut => Some(format!(
                "the request is longer than {MAX_OBJECT_CHARS} characters, so nobody can be shown all of it"
            )),
            Some(_) => None,
        }
    }

    /// Describes the call in the words on which a person decides: the command, or the tool with its object.
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
/// A program sends an update for every line that a command prints. Readers who print one line per call want only those
/// updates that change its status.
#[derive(Clone, Debug, Default)]
pub struct ShownCalls(BTreeMap<String, ToolStatus>);

impl ShownCalls {
    /// Returns whether `tool` is a call that was not shown yet, or one whose status has changed since.
    pub fn is_news(&mut self, tool: &Tool) -> bool {
        let is_started = |status| matches!(status, ToolStatus::Pending | ToolStatus::InProgress);
        match self.0.insert(tool.id.clone(), tool.status) {
            None => true,
            Some(before) => before != tool.status && !(is_started(before) && is_started(tool.status)),
        }
    }

    /// Forgets the calls of the turn before: a program may count its calls anew in every turn.
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

/// What an option of a permission request means. Options are chosen by this, never by place or name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OptionKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
}

/// One way to answer a permission request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AskOption {
    pub id: String,
    pub name: String,
    pub kind: OptionKind,
}

/// What an agent wants from a person before it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "want")]
pub enum Want {
    /// May it use this tool?
    Permission { tool: Tool, options: Vec<AskOption> },
    /// A question; `choices` may be empty, `schema` is the JSON Schema of a form if it sent one.
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
pub struct Ask {
    pub id: String,
    #[serde(flatten)]
    pub want: Want,
}

/// What a person, a lead or a policy said to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "say")]
pub enum Answer {
    Allow,
    /// No, and why; the words go to the agent where its protocol can carry them.
    Deny {
        words: Option<String>,
    },
    /// The answer to a question: plain text, or the JSON object of a form.
    Text {
        text: String,
    },
    /// The turn was cancelled before anyone answered.
    Cancelled,
}

impl Answer {
    /// What was said, in a word or two.
    pub fn phrase(&self) -> String {
        match self {
            Answer::Allow => "allowed".into(),
            Answer::Deny { words: None } => "denied".into(),
            Answer::Deny { words: Some(words) } => format!("denied ({words})"),
            Answer::Text { text } => format!("answered \"{text}\""),
            Answer::Cancelled => "cancelled".into(),
        }
    }
}

/// Tokens and money, always cumulative over one native session. Cached input is not part of `input`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Usage {
    pub input: u64,
    pub cached_input: u64,
    pub cache_write: u64,
    pub output: u64,
    /// In millionths of a US dollar, where the program reports it or a price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
}

impl Usage {
    /// Whether nothing was used.
    pub fn is_nothing(&self) -> bool {
        *self == Usage::default()
    }

    /// All tokens together.
    pub fn tokens(&self) -> u64 {
        self.input + self.cached_input + self.cache_write + self.output
    }

    /// The larger of each count: a count of one session never falls, so a lower one is an old report.
    pub fn most(&self, other: &Usage) -> Usage {
        Usage {
            input: self.input.max(other.input),
            cached_input: self.cached_input.max(other.cached_input),
            cache_write: self.cache_write.max(other.cache_write),
            output: self.output.max(other.output),
            micro_usd: self.micro_usd.max(other.micro_usd),
        }
    }

    /// What `self` has more than `before`.
    pub fn since(&self, before: &Usage) -> Usage {
        let money = |now: u64| now.saturating_sub(before.micro_usd.unwrap_or(0));
        Usage {
            input: self.input.saturating_sub(before.input),
            cached_input: self.cached_input.saturating_sub(before.cached_input),
            cache_write: self.cache_write.saturating_sub(before.cache_write),
            output: self.output.saturating_sub(before.output),
            micro_usd: self.micro_usd.map(money),
        }
    }

    /// Both together.
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

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model was done.
    EndTurn,
    MaxTokens,
    MaxTurns,
    Refusal,
    Cancelled,
    /// It broke off; the class says why.
    Error,
}

/// Something an agent's program said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "said")]
pub enum Said {
    /// A native session is open: from here prompts are taken, and this id resumes it.
    Started {
        session: Option<String>,
        model: Option<String>,
    },
    /// A prompt went in; `n` counts from 0.
    TurnStarted {
        n: u64,
    },
    /// Part of what it says.
    Message {
        text: String,
    },
    /// Part of what it thinks.
    Thought {
        text: String,
    },
    Tool(Tool),
    Plan {
        entries: Vec<PlanEntry>,
    },
    Asked(Ask),
    /// It no longer wants an answer to this.
    Withdrew {
        ask: String,
    },
    /// Cumulative over the session it belongs to.
    Usage {
        session: Option<String>,
        usage: Usage,
    },
    /// How full the model's context is, in tokens.
    Context {
        used: u64,
        size: u64,
    },
    /// The provider's limit is used up; when it is over, as a date in milliseconds, if it said so.
    Limited {
        until_wall: Option<u64>,
        detail: String,
    },
    /// The turn that was running is over.
    TurnEnded {
        stop: Stop,
        class: Option<Class>,
        detail: String,
    },
    /// Anything else worth a line: a retry, a warning, what it printed aside.
    Notice {
        text: String,
    },
}

impl Said {
    /// Whether the board must know; the rest lives in the transcript alone.
    pub fn changes_state(&self) -> bool {
        match self {
            Said::Started { .. }
            | Said::TurnStarted { .. }
            | Said::Plan { .. }
            | Said::Asked(_)
            | Said::Withdrew { .. }
            | Said::Usage { .. }
            | Said::Context { .. }
            | Said::Limited { .. }
            | Said::TurnEnded { .. } => true,
            Said::Message { .. } | Said::Thought { .. } | Said::Tool(_) | Said::Notice { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_shown_when_it_begins_and_when_it_ends() {
        let mut shown = ShownCalls::default();
        let mut news = |id: &str, status: ToolStatus| shown.is_news(&Tool { id: id.into(), status, ..Tool::default() });
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
            assert_eq!(news(id, status), expected, "{id} {status:?}");
        }
        shown.begin_turn();
        assert!(shown.is_news(&Tool { id: "a".into(), status: InProgress, ..Tool::default() }));
    }
}
