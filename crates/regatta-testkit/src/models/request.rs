//! A request in a form that is independent of its protocol, and the record that tests can read.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelApi {
    Anthropic,
    Responses,
    Chat,
    Gemini,
}

/// A request for an answer of the model.
#[derive(Clone, Debug)]
pub(super) struct ModelRequest {
    pub(super) api: ModelApi,
    pub(super) model: String,
    pub(super) is_streamed: bool,
    pub(super) tools: Vec<OfferedTool>,
    pub(super) conversation: Vec<ConversationEntry>,
    /// The JSON schema of the answer, if the answer must be JSON.
    pub(super) schema: Option<Value>,
}

/// A tool that the program offers.
#[derive(Clone, Debug, Default)]
pub(super) struct OfferedTool {
    pub(super) name: String,
    /// The namespace of the tool, which a call must repeat (OpenAI Responses).
    pub(super) namespace: Option<String>,
    /// The JSON schema of the tool's input.
    pub(super) schema: Value,
    /// Whether the tool takes plain text instead of JSON (OpenAI Responses).
    pub(super) is_freeform: bool,
}

/// The author of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpeakerRole {
    System,
    User,
    Model,
    Tool,
}

/// One entry of the conversation.
#[derive(Clone, Debug)]
pub(super) struct ConversationEntry {
    pub(super) role: SpeakerRole,
    pub(super) text: String,
}

/// The record of a request.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// The number of the request, from 1.
    pub number: usize,
    pub method: String,
    /// The path without the query, where some programs put their key.
    pub path: String,
    /// Whether the request had a key. The key itself is never kept.
    pub has_key: bool,
    /// The protocol. `None` for lists of models, counts of tokens and unknown requests.
    pub api: Option<ModelApi>,
    pub model: String,
    /// Whether the request asks for a faster answer at a higher price.
    pub is_fast: bool,
    /// The names of the offered tools.
    pub tools: Vec<String>,
    /// The number of entries in the conversation.
    pub entry_count: usize,
    /// The last text of the user.
    pub last_user_text: String,
    /// All texts of the user, oldest first. A resumed session contains the earlier texts.
    pub user_texts: Vec<String>,
    /// The results of tools since the model's last entry.
    pub tool_results: Vec<String>,
    /// Whether this is a side request: a title, a suggestion or a summary.
    pub is_side_request: bool,
    /// The story that answered the request, and the index of its turn.
    pub story: Option<(String, usize)>,
    /// The tools that the answer calls, by the program's own names.
    pub called_tools: Vec<String>,
    /// The HTTP status of the answer.
    pub status: u16,
    /// How the answer ended; `None` while it is being sent.
    pub outcome: Option<AnswerEnd>,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    /// The answer was sent completely.
    Complete,
    /// The server closed the connection, as the turn requires.
    CutOff,
    /// The program closed the connection first.
    ClientHungUp,
}

impl ModelRequest {
    /// Returns the last text of the user.
    pub(super) fn last_user_text(&self) -> &str {
        self.conversation
            .iter()
            .rev()
            .find(|conversation| conversation.role == SpeakerRole::User)
            .map_or("", |conversation| conversation.text.as_str())
    }

    /// Returns all texts of the user.
    pub(super) fn user_texts(&self) -> Vec<String> {
        self.conversation
            .iter()
            .filter(|conversation| conversation.role == SpeakerRole::User)
            .map(|conversation| conversation.text.clone())
            .collect()
    }

    /// Returns the results of tools since the model's last entry.
    pub(super) fn tool_results(&self) -> Vec<String> {
        let since = self
            .conversation
            .iter()
            .rposition(|conversation| conversation.role == SpeakerRole::Model)
            .map_or(0, |conversation| conversation + 1);
        self.conversation[since..]
            .iter()
            .filter(|conversation| conversation.role == SpeakerRole::Tool)
            .map(|conversation| conversation.text.clone())
            .collect()
    }

    /// Returns whether this is a side request.
    ///
    /// A request without tools cannot be work. Claude's adapter also asks for a suggestion of the
    /// next prompt, with the same tools and conversation as the work.
    pub(super) fn is_side_request(&self) -> bool {
        self.tools.is_empty()
            || self
                .last_user_text()
                .trim_start()
                .starts_with("[SUGGESTION MODE")
    }

    /// Returns the answer to a side request: the smallest value that satisfies its schema.
    pub(super) fn side_answer(&self) -> String {
        match &self.schema {
            Some(schema) => minimal_value(schema).to_string(),
            None => "A title".to_owned(),
        }
    }
}

/// Returns the smallest value of a JSON schema. Gemini writes types in capital letters.
fn minimal_value(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"]
        .as_str()
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        Some("string") => json!("A title"),
        Some("boolean") => json!(false),
        Some("integer" | "number") => json!(0),
        Some("array") => json!([]),
        _ => {
            let fields = schema["properties"].as_object();
            fields
                .into_iter()
                .flatten()
                .map(|(name, of)| (name.clone(), minimal_value(of)))
                .collect()
        }
    }
}

/// Returns the text of a message's content: a string, or nested parts with a `text`.
pub(super) fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<String> = parts
                .iter()
                .map(content_text)
                .filter(|part| !part.is_empty())
                .collect();
            texts.join("\n")
        }
        Value::Object(part) => {
            let inner = part
                .get("text")
                .or_else(|| part.get("content"))
                .or_else(|| part.get("output"));
            inner.map(content_text).unwrap_or_default()
        }
        _ => String::new(),
    }
}

/// Returns the date in seconds, which every protocol has in its answers.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |duration| duration.as_secs())
}
