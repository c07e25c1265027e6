//! A request in a form that is independent of its protocol, and the record that tests can read.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Api {
    Anthropic,
    Responses,
    Chat,
    Gemini,
}

/// A request for an answer of the model.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) api: Api,
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) tools: Vec<Offer>,
    pub(super) said: Vec<Entry>,
    /// The JSON schema of the answer, if the answer must be JSON.
    pub(super) schema: Option<Value>,
}

/// A tool that the program offers.
#[derive(Clone, Debug, Default)]
pub(super) struct Offer {
    pub(super) name: String,
    /// The namespace of the tool, which a call must repeat (OpenAI Responses).
    pub(super) namespace: Option<String>,
    /// The JSON schema of the tool's input.
    pub(super) schema: Value,
    /// Whether the tool takes plain text instead of JSON (OpenAI Responses).
    pub(super) freeform: bool,
}

/// The author of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    System,
    User,
    Model,
    Tool,
}

/// One entry of the conversation.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) role: Role,
    pub(super) text: String,
}

/// The record of a request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The number of the request, from 1.
    pub nth: usize,
    pub method: String,
    /// The path without the query, where some programs put their key.
    pub path: String,
    /// Whether the request had a key. The key itself is never kept.
    pub key: bool,
    /// The protocol. `None` for lists of models, counts of tokens and unknown requests.
    pub api: Option<Api>,
    pub model: String,
    /// Whether the request asks for a faster answer at a higher price.
    pub fast: bool,
    /// The names of the offered tools.
    pub tools: Vec<String>,
    /// The number of entries in the conversation.
    pub messages: usize,
    /// The last text of the user.
    pub user: String,
    /// All texts of the user, oldest first. A resumed session contains the earlier texts.
    pub users: Vec<String>,
    /// The results of tools since the model's last entry.
    pub results: Vec<String>,
    /// Whether this is a side request: a title, a suggestion or a summary.
    pub side: bool,
    /// The story that answered the request, and the index of its turn.
    pub story: Option<(String, usize)>,
    /// The tools that the answer calls, by the program's own names.
    pub called: Vec<String>,
    /// The HTTP status of the answer.
    pub status: u16,
    /// How the answer ended; `None` while it is being sent.
    pub ended: Option<Ended>,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The answer was sent completely.
    Whole,
    /// The server closed the connection, as the turn requires.
    Cut,
    /// The program closed the connection first.
    HungUp,
}

impl Asked {
    /// Returns the last text of the user.
    pub(super) fn user(&self) -> &str {
        self.said.iter().rev().find(|it| it.role == Role::User).map_or("", |it| it.text.as_str())
    }

    /// Returns all texts of the user.
    pub(super) fn users(&self) -> Vec<String> {
        self.said.iter().filter(|it| it.role == Role::User).map(|it| it.text.clone()).collect()
    }

    /// Returns the results of tools since the model's last entry.
    pub(super) fn results(&self) -> Vec<String> {
        let since = self.said.iter().rposition(|it| it.role == Role::Model).map_or(0, |it| it + 1);
        self.said[since..].iter().filter(|it| it.role == Role::Tool).map(|it| it.text.clone()).collect()
    }

    /// Returns whether this is a side request.
    ///
    /// A request without tools cannot be work. Claude's adapter also asks for a suggestion of the
    /// next prompt, with the same tools and conversation as the work.
    pub(super) fn is_side(&self) -> bool {
        self.tools.is_empty() || self.user().trim_start().starts_with("[SUGGESTION MODE")
    }

    /// Returns the answer to a side request: the smallest value that satisfies its schema.
    pub(super) fn side_answer(&self) -> String {
        match &self.schema {
            Some(schema) => least(schema).to_string(),
            None => "A title".to_owned(),
        }
    }
}

/// Returns the smallest value of a JSON schema. Gemini writes types in capital letters.
fn least(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str().map(str::to_ascii_lowercase).as_deref() {
        Some("string") => json!("A title"),
        Some("boolean") => json!(false),
        Some("integer" | "number") => json!(0),
        Some("array") => json!([]),
        _ => {
            let fields = schema["properties"].as_object();
            fields.into_iter().flatten().map(|(name, of)| (name.clone(), least(of))).collect()
        }
    }
}

/// Returns the text of a message's content: a string, or nested parts with a `text`.
pub(super) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<String> = parts.iter().map(text_of).filter(|it| !it.is_empty()).collect();
            texts.join("\n")
        }
        Value::Object(part) => {
            let inner = part.get("text").or_else(|| part.get("content")).or_else(|| part.get("output"));
            inner.map(text_of).unwrap_or_default()
        }
        _ => String::new(),
    }
}

/// Returns the date in seconds, which every protocol has in its answers.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs())
}
