//! A request, whichever protocol it came in, and what is kept of it.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The protocol a request came in.
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
    /// The shape the answer must have, if it must be JSON.
    pub(super) schema: Option<Value>,
}

/// A tool as the program offers it.
#[derive(Clone, Debug, Default)]
pub(super) struct Offer {
    pub(super) name: String,
    /// The tool belongs to a group of this name, which a call must repeat (OpenAI Responses).
    pub(super) namespace: Option<String>,
    /// JSON Schema of its input.
    pub(super) schema: Value,
    /// It takes plain text instead of JSON (OpenAI Responses).
    pub(super) freeform: bool,
}

/// Who said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    System,
    User,
    Model,
    Tool,
}

/// One thing that was said.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) role: Role,
    pub(super) text: String,
}

/// What is kept of a request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its place, from 1.
    pub nth: usize,
    pub method: String,
    /// Without what follows `?`, where some programs put their key.
    pub path: String,
    /// A key came along. Its value is kept nowhere.
    pub key: bool,
    /// `None` for lists of models, counts of tokens and what the server does not know.
    pub api: Option<Api>,
    pub model: String,
    /// A faster answer is asked for, at a higher price.
    pub fast: bool,
    /// The names of the tools that were offered.
    pub tools: Vec<String>,
    /// How many entries the conversation had.
    pub messages: usize,
    /// What the user said last.
    pub user: String,
    /// All that the user said, oldest first: a session that goes on has what was said before.
    pub users: Vec<String>,
    /// What the tools gave back since the model spoke last.
    pub results: Vec<String>,
    /// A request aside from the work: a title, a suggestion, a summary.
    pub side: bool,
    /// The story that answered it, and which of its turns, from 0.
    pub story: Option<(String, usize)>,
    /// The tools that were called in the answer, by the program's own names.
    pub called: Vec<String>,
    /// The answer's status.
    pub status: u16,
    /// `None` while it is being answered.
    pub ended: Option<Ended>,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All of it was sent.
    Whole,
    /// The server closed the connection, as the turn says.
    Cut,
    /// Whoever asked hung up first.
    HungUp,
}

impl Asked {
    /// What the user said last.
    pub(super) fn user(&self) -> &str {
        self.said.iter().rev().find(|it| it.role == Role::User).map_or("", |it| it.text.as_str())
    }

    /// All that the user said.
    pub(super) fn users(&self) -> Vec<String> {
        self.said.iter().filter(|it| it.role == Role::User).map(|it| it.text.clone()).collect()
    }

    /// What the tools gave back since the model spoke last.
    pub(super) fn results(&self) -> Vec<String> {
        let since = self.said.iter().rposition(|it| it.role == Role::Model).map_or(0, |it| it + 1);
        self.said[since..].iter().filter(|it| it.role == Role::Tool).map(|it| it.text.clone()).collect()
    }

    /// Whether this is not the work itself. Nobody works without tools; Claude's adapter asks for a suggestion of
    /// the next prompt with the same tools and the same conversation as the work.
    pub(super) fn is_side(&self) -> bool {
        self.tools.is_empty() || self.user().trim_start().starts_with("[SUGGESTION MODE")
    }

    /// The answer to a request aside from the work: the least that has the shape it must have.
    pub(super) fn side_answer(&self) -> String {
        match &self.schema {
            Some(schema) => least(schema).to_string(),
            None => "A title".to_owned(),
        }
    }
}

/// The least value of a JSON Schema. Gemini writes the types in capitals.
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

/// The text in a message's content: a string, or a list of parts with a `text`, or parts of these.
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

/// The date in seconds, which every protocol puts into its answers.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs())
}
