//! Finds the tool of a program that fits the purpose of a scripted tool call.
//!
//! Every program has its own names for tools and their fields: `Write {file_path, content}`,
//! `write_file {file_path, content}`, `write {filePath, content}`, an `apply_patch` that takes
//! plain text, and so on. The tool is found by a list of known names, and its fields are found in
//! the tool's schema. Other required fields get a placeholder.

use serde_json::{Map, Value, json};

use super::request::{ConversationEntry, ModelRequest, OfferedTool};
use super::script::ModelAction;

/// A tool call as the agent's program understands it, with the program's own names for the tool and
/// its fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelToolCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) input: ToolInput,
}

/// The input of a tool call: JSON or plain text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ToolInput {
    Fields(Value),
    Text(String),
}

impl ModelToolCall {
    /// Returns the input of the tool call as JSON.
    pub(super) fn input_json(&self) -> Value {
        match &self.input {
            ToolInput::Fields(fields) => fields.clone(),
            ToolInput::Text(text) => json!({ "input": text }),
        }
    }
}

const WRITE_TOOLS: [&str; 5] = [
    "write",
    "write_file",
    "writefile",
    "create_file",
    "text_editor",
];
const SHELL_TOOLS: [&str; 7] = [
    "bash",
    "shell_command",
    "exec_command",
    "run_shell_command",
    "shell",
    "local_shell",
    "execute",
];
const READ_TOOLS: [&str; 4] = ["read", "read_file", "readfile", "text_editor"];
const PATH_FIELDS: [&str; 5] = ["file_path", "filepath", "path", "absolute_path", "filename"];
const CONTENT_FIELDS: [&str; 5] = ["content", "contents", "file_text", "text", "new_str"];
const COMMAND_FIELDS: [&str; 3] = ["command", "cmd", "script"];

/// Returns the tool call for a scripted action, or an error if the agent's program offers no tool
/// for it.
pub(super) fn call_for_action(
    asked: &ModelRequest,
    act: &ModelAction,
    id: String,
) -> Result<ModelToolCall, String> {
    let made = match act {
        ModelAction::WriteFile { path, content } => write_call(asked, path, content),
        ModelAction::RunCommand { command } => shell_call(asked, command),
        ModelAction::ReadFile { path } => read_call(asked, path),
        ModelAction::FindTool { tool } => find_tool(asked, &["tool_search"]).map(|offered_tool| {
            (
                offered_tool,
                ToolInput::Fields(json!({ "query": tool, "limit": 20 })),
            )
        }),
        ModelAction::CallTool { tool, input } => asked
            .tools
            .iter()
            .find(|offered_tool| {
                offered_tool.name == *tool || offered_tool.name.ends_with(&format!("_{tool}"))
            })
            .map(|offered_tool| (offered_tool, ToolInput::Fields(input.clone()))),
    };
    let (offer, input) = made.ok_or_else(|| {
        let names: Vec<&str> = asked
            .tools
            .iter()
            .map(|offered_tool| offered_tool.name.as_str())
            .collect();
        format!("no tool was offered for {act:?}; the offered tools are {names:?}")
    })?;
    Ok(ModelToolCall {
        id,
        name: offer.name.clone(),
        namespace: offer.namespace.clone(),
        input,
    })
}

/// Returns the first of the tools `names` that the agent's program offers. The program's name for
/// the tool may have the prefix of an extension, as in `developer__shell`.
fn find_tool<'a>(asked: &'a ModelRequest, names: &[&str]) -> Option<&'a OfferedTool> {
    names.iter().find_map(|wanted| {
        asked.tools.iter().find(|offered_tool| {
            let bare = offered_tool
                .name
                .rsplit("__")
                .next()
                .unwrap_or(&offered_tool.name);
            bare.eq_ignore_ascii_case(wanted)
        })
    })
}

fn write_call<'a>(
    asked: &'a ModelRequest,
    path: &str,
    content: &str,
) -> Option<(&'a OfferedTool, ToolInput)> {
    if let Some(offer) = find_tool(asked, &WRITE_TOOLS) {
        let mut fields = Map::new();
        set_field(
            offer,
            &mut fields,
            &PATH_FIELDS,
            json!(path_for_tool(asked, offer, path)),
        );
        set_field(offer, &mut fields, &CONTENT_FIELDS, json!(content));
        set_editor_verb(offer, &mut fields, "write");
        return Some((offer, ToolInput::Fields(fill_required(offer, fields))));
    }
    if let Some(offer) = find_tool(asked, &["apply_patch"]) {
        let lines: String = content
            .lines()
            .map(|content| format!("+{content}\n"))
            .collect();
        let patch = format!("*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch");
        if offer.is_freeform {
            return Some((offer, ToolInput::Text(patch)));
        }
        let mut fields = Map::new();
        set_field(offer, &mut fields, &["input", "patch"], json!(patch));
        return Some((offer, ToolInput::Fields(fill_required(offer, fields))));
    }
    let (quoted_path, quoted) = (shell_quote(path), shell_quote(content));
    shell_call(
        asked,
        &format!("mkdir -p \"$(dirname {quoted_path})\" && printf %s {quoted} > {quoted_path}"),
    )
}

fn shell_call<'a>(asked: &'a ModelRequest, command: &str) -> Option<(&'a OfferedTool, ToolInput)> {
    let offer = find_tool(asked, &SHELL_TOOLS)?;
    if offer.is_freeform {
        return Some((offer, ToolInput::Text(command.to_owned())));
    }
    let mut fields = Map::new();
    let (_, schema) = find_field(offer, &COMMAND_FIELDS)?;
    let value = if schema["type"] == "array" {
        json!(["bash", "-lc", command])
    } else {
        json!(command)
    };
    set_field(offer, &mut fields, &COMMAND_FIELDS, value);
    Some((offer, ToolInput::Fields(fill_required(offer, fields))))
}

fn read_call<'a>(asked: &'a ModelRequest, path: &str) -> Option<(&'a OfferedTool, ToolInput)> {
    let Some(offer) = find_tool(asked, &READ_TOOLS) else {
        return shell_call(asked, &format!("cat {}", shell_quote(path)));
    };
    let mut fields = Map::new();
    set_field(
        offer,
        &mut fields,
        &PATH_FIELDS,
        json!(path_for_tool(asked, offer, path)),
    );
    set_editor_verb(offer, &mut fields, "view");
    Some((offer, ToolInput::Fields(fill_required(offer, fields))))
}

/// Sets the field that says which edit to make, if the agent's program has one tool for all kinds
/// of edits.
fn set_editor_verb(offer: &OfferedTool, fields: &mut Map<String, Value>, verb: &str) {
    if offer.name.ends_with("text_editor") {
        fields.insert("command".into(), json!(verb));
    }
}

/// Returns the first of the fields `names` that the tool's input has, with the field's exact name
/// and schema.
fn find_field<'a>(offer: &'a OfferedTool, names: &[&str]) -> Option<(&'a str, &'a Value)> {
    let fields = offer.schema["properties"].as_object()?;
    names
        .iter()
        .find_map(|wanted| {
            fields
                .iter()
                .find(|field| field.0.eq_ignore_ascii_case(wanted))
        })
        .map(|name| (name.0.as_str(), name.1))
}

fn set_field(offer: &OfferedTool, fields: &mut Map<String, Value>, names: &[&str], value: Value) {
    let name = find_field(offer, names).map_or(names[0], |(name, _)| name);
    fields.insert(name.to_owned(), value);
}

/// Adds a placeholder for every required field of the tool's input that is still missing.
fn fill_required(offer: &OfferedTool, mut fields: Map<String, Value>) -> Value {
    for name in offer.schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !fields.contains_key(name) {
            let schema = &offer.schema["properties"][name];
            let value = match schema["type"]
                .as_str()
                .map(str::to_ascii_lowercase)
                .as_deref()
            {
                _ if schema["enum"].is_array() => schema["enum"][0].clone(),
                Some("boolean") => json!(false),
                Some("integer" | "number") => json!(1),
                Some("array") => json!([]),
                Some("object") => json!({}),
                _ => json!("as the script says"),
            };
            fields.insert(name.to_owned(), value);
        }
    }
    Value::Object(fields)
}

fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns a path in the form that the tool requires. Some tools demand absolute paths in their
/// schema. For such a tool, the working directory is read from the prompt of the agent's program,
/// which tells the model the directory.
fn path_for_tool(asked: &ModelRequest, offer: &OfferedTool, path: &str) -> String {
    let wants_absolute = find_field(offer, &PATH_FIELDS)
        .is_some_and(|(_, schema)| schema.to_string().contains("bsolute"));
    if !wants_absolute || path.starts_with('/') {
        return path.to_owned();
    }
    match working_directory(&asked.conversation) {
        Some(dir) => format!("{}/{path}", dir.trim_end_matches('/')),
        None => path.to_owned(),
    }
}

/// The phrases with which programs tell the model their working directory.
const WORKING_DIR_MARKERS: [&str; 6] = [
    "working directory: ",
    "working directory is ",
    "<cwd>",
    "<working-directory>",
    "working in the directory: ",
    "Workspace Directories:\n  - ",
];

fn working_directory(said: &[ConversationEntry]) -> Option<&str> {
    said.iter().find_map(|entry| {
        WORKING_DIR_MARKERS.iter().find_map(|place| {
            let start = find_ignoring_case(&entry.text, place)? + place.len();
            let rest = &entry.text[start..];
            let end = rest.find(['\n', '<', '`', '"']).unwrap_or(rest.len());
            Some(rest[..end].trim()).filter(|path| path.starts_with('/'))
        })
    })
}

fn find_ignoring_case(text: &str, wanted: &str) -> Option<usize> {
    text.as_bytes()
        .windows(wanted.len())
        .position(|text| text.eq_ignore_ascii_case(wanted.as_bytes()))
}
