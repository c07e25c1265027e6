//! Defines a request to a model in a form that is the same for all model APIs, and the record of a
//! request that tests can read.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The kind of model API through which a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelApi {
    Anthropic,
    Responses,
    Chat,
    Gemini,
}

/// A program's request for an answer of the model, in a form that is the same for all model APIs.
#[derive(Clone, Debug)]
pub(super) struct ModelRequest {
    pub(super) api: ModelApi,
    pub(super) model: String,
    pub(super) is_streamed: bool,
    pub(super) tools: Vec<OfferedTool>,
    pub(super) conversation: Vec<ConversationEntry>,
    /// The JSON Schema that the answer must satisfy, if the agent's program asks for JSON.
    pub(super) schema: Option<Value>,
}

/// A tool that the agent's program offers to the model.
#[derive(Clone, Debug, Default)]
pub(super) struct OfferedTool {
    pub(super) name: String,
    /// The namespace of the tool. A call of the tool must repeat the namespace (only in the API
    /// OpenAI Responses).
    pub(super) namespace: Option<String>,
    /// The JSON Schema of the tool's input.
    pub(super) schema: Value,
    /// True if the tool takes plain text instead of JSON (only in the API OpenAI Responses).
    pub(super) is_freeform: bool,
}

/// The author of an entry of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpeakerRole {
    System,
    User,
    Model,
    Tool,
}

/// One entry of the conversation that a program sends to the model.
#[derive(Clone, Debug)]
pub(super) struct ConversationEntry {
    pub(super) role: SpeakerRole,
    pub(super) text: String,
}

/// The record of one request to the model server, which a test can read.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// The number of the request since the start of the server, counting from 1.
    pub number: usize,
    pub method: String,
    /// The path of the URL. The part after `?` is left out, because some programs put their API key
    /// there.
    pub path: String,
    /// True if the request had an API key. The key itself is never kept.
    pub has_key: bool,
    /// The kind of model API through which the request came. `None` if the request does not ask the
    /// model for an answer, but for example for a list of models.
    pub api: Option<ModelApi>,
    pub model: String,
    /// True if the agent's program asked for a faster answer at a higher price.
    pub is_fast: bool,
    /// The names of the tools that the agent's program offered to the model.
    pub tools: Vec<String>,
    /// The number of entries in the conversation that the program sent with the request.
    pub entry_count: usize,
    /// The latest text of the user in the conversation.
    pub last_user_text: String,
    /// All texts of the user in the conversation, oldest first. After a session is resumed, they
    /// include its earlier texts.
    pub user_texts: Vec<String>,
    /// The results of the tools that the model called in its latest answer.
    pub tool_results: Vec<String>,
    /// True if this is a side request of the agent's program: for a title, a suggestion or a
    /// summary.
    pub is_side_request: bool,
    /// The marker (name) of the script that answered the request, and the position of the used turn
    /// in the script, counting from 0.
    pub story: Option<(String, usize)>,
    /// The names of the tools that the answer calls, as the agent's program names them.
    pub called_tools: Vec<String>,
    /// The HTTP status with which the server answered the request.
    pub status: u16,
    /// The way in which the answer ended. `None` while the answer is being sent.
    pub outcome: Option<AnswerEnd>,
}

/// The way in which the sending of an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    /// The answer was sent completely.
    Complete,
    /// The server closed the connection in the middle of the answer, as the script demands.
    CutOff,
    /// The agent's program closed the connection before the answer was complete.
    ClientHungUp,
}

impl ModelRequest {
    /// Returns the latest text of the user in the conversation.
    pub(super) fn last_user_text(&self) -> &str {
        self.conversation
            .iter()
            .rev()
            .find(|conversation| conversation.role == SpeakerRole::User)
            .map_or("", |conversation| conversation.text.as_str())
    }

    /// Returns all texts of the user in the conversation, oldest first.
    pub(super) fn user_texts(&self) -> Vec<String> {
        self.conversation
            .iter()
            .filter(|conversation| conversation.role == SpeakerRole::User)
            .map(|conversation| conversation.text.clone())
            .collect()
    }

    /// Returns the results of the tools that the model called in its latest answer.
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

    /// Returns whether this is a side request of the agent's program (for a title, a suggestion or
    /// a summary), which must not use up a turn of the script.
    ///
    /// A request that offers no tools is a side request. A special case is Claude's ACP adapter,
    /// which asks for a suggestion of the next prompt with the same tools and conversation as for
    /// normal requests.
    pub(super) fn is_side_request(&self) -> bool {
        self.tools.is_empty()
            || self
                .last_user_text()
                .trim_start()
                .starts_with("[SUGGESTION MODE")
    }

    /// Returns the answer to a side request (for a title, a suggestion or a summary): a text or, if
    /// the request has a schema, the smallest JSON value that satisfies the schema.
    pub(super) fn side_answer(&self) -> String {
        match &self.schema {
            Some(schema) => minimal_value(schema).to_string(),
            None => "A title".to_owned(),
        }
    }
}

/// Returns the smallest value that satisfies a JSON Schema. The names of types may be in capital
/// letters, as in Gemini's schemas.
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

/// Returns the text of a message. The content of a message is a string, or a list of parts with a
/// `text`.
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

/// Returns the time in seconds since 1970, which the answers of every API contain.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |duration| duration.as_secs())
}
