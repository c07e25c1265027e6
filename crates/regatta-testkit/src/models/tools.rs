//! Finds the tool that a program offers for an act.
//!
//! Every program has its own names for tools and their fields: `Write {file_path, content}`,
//! `write_file {file_path, content}`, `write {filePath, content}`, a freeform `apply_patch`, … The
//! tool is found by its name and the fields by the tool's schema. Other required fields get a
//! placeholder.

use serde_json::{Map, Value, json};

use super::asked::{Asked, Entry, Offer};
use super::script::Act;

/// A tool call with the program's own names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) input: Input,
}

/// The input of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    Fields(Value),
    Text(String),
}

impl Call {
    /// Returns the input as JSON.
    pub(super) fn fields(&self) -> Value {
        match &self.input {
            Input::Fields(fields) => fields.clone(),
            Input::Text(text) => json!({ "input": text }),
        }
    }
}

const WRITE: [&str; 5] = ["write", "write_file", "writefile", "create_file", "text_editor"];
const SHELL: [&str; 7] =
    ["bash", "shell_command", "exec_command", "run_shell_command", "shell", "local_shell", "execute"];
const READ: [&str; 4] = ["read", "read_file", "readfile", "text_editor"];
const PATH_FIELDS: [&str; 5] = ["file_path", "filepath", "path", "absolute_path", "filename"];
const CONTENT_FIELDS: [&str; 5] = ["content", "contents", "file_text", "text", "new_str"];
const COMMAND_FIELDS: [&str; 3] = ["command", "cmd", "script"];

/// Returns the call for an act, or an error if the program offers no tool for it.
pub(super) fn call(asked: &Asked, act: &Act, id: String) -> Result<Call, String> {
    let made = match act {
        Act::Write { path, content } => write(asked, path, content),
        Act::Shell { command } => shell(asked, command),
        Act::Read { path } => read(asked, path),
        Act::Find { tool } => {
            find(asked, &["tool_search"]).map(|it| (it, Input::Fields(json!({ "query": tool, "limit": 20 }))))
        }
        Act::Call { tool, input } => asked
            .tools
            .iter()
            .find(|it| it.name == *tool || it.name.ends_with(&format!("_{tool}")))
            .map(|it| (it, Input::Fields(input.clone()))),
    };
    let (offer, input) = made.ok_or_else(|| {
        let names: Vec<&str> = asked.tools.iter().map(|it| it.name.as_str()).collect();
        format!("no tool was offered for {act:?}; the offered tools are {names:?}")
    })?;
    Ok(Call { id, name: offer.name.clone(), namespace: offer.namespace.clone(), input })
}

/// Returns the first of these tools that is offered, with or without the prefix of an extension
/// (`developer__shell`).
fn find<'a>(asked: &'a Asked, names: &[&str]) -> Option<&'a Offer> {
    names.iter().find_map(|wanted| {
        asked.tools.iter().find(|it| {
            let bare = it.name.rsplit("__").next().unwrap_or(&it.name);
            bare.eq_ignore_ascii_case(wanted)
        })
    })
}

fn write<'a>(asked: &'a Asked, path: &str, content: &str) -> Option<(&'a Offer, Input)> {
    if let Some(offer) = find(asked, &WRITE) {
        let mut fields = Map::new();
        set(offer, &mut fields, &PATH_FIELDS, json!(placed(asked, offer, path)));
        set(offer, &mut fields, &CONTENT_FIELDS, json!(content));
        editor(offer, &mut fields, "write");
        return Some((offer, Input::Fields(filled(offer, fields))));
    }
    if let Some(offer) = find(asked, &["apply_patch"]) {
        let lines: String = content.lines().map(|it| format!("+{it}\n")).collect();
        let patch = format!("*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch");
        if offer.freeform {
            return Some((offer, Input::Text(patch)));
        }
        let mut fields = Map::new();
        set(offer, &mut fields, &["input", "patch"], json!(patch));
        return Some((offer, Input::Fields(filled(offer, fields))));
    }
    let (quoted_path, quoted) = (quote(path), quote(content));
    shell(asked, &format!("mkdir -p \"$(dirname {quoted_path})\" && printf %s {quoted} > {quoted_path}"))
}

fn shell<'a>(asked: &'a Asked, command: &str) -> Option<(&'a Offer, Input)> {
    let offer = find(asked, &SHELL)?;
    if offer.freeform {
        return Some((offer, Input::Text(command.to_owned())));
    }
    let mut fields = Map::new();
    let (_, schema) = field(offer, &COMMAND_FIELDS)?;
    let value = if schema["type"] == "array" { json!(["bash", "-lc", command]) } else { json!(command) };
    set(offer, &mut fields, &COMMAND_FIELDS, value);
    Some((offer, Input::Fields(filled(offer, fields))))
}

fn read<'a>(asked: &'a Asked, path: &str) -> Option<(&'a Offer, Input)> {
    let Some(offer) = find(asked, &READ) else {
        return shell(asked, &format!("cat {}", quote(path)));
    };
    let mut fields = Map::new();
    set(offer, &mut fields, &PATH_FIELDS, json!(placed(asked, offer, path)));
    editor(offer, &mut fields, "view");
    Some((offer, Input::Fields(filled(offer, fields))))
}

/// Sets the verb, for programs with a single tool for all editing.
fn editor(offer: &Offer, fields: &mut Map<String, Value>, verb: &str) {
    if offer.name.ends_with("text_editor") {
        fields.insert("command".into(), json!(verb));
    }
}

/// Returns the first of these fields that the tool has, with its exact name and its schema.
fn field<'a>(offer: &'a Offer, names: &[&str]) -> Option<(&'a str, &'a Value)> {
    let fields = offer.schema["properties"].as_object()?;
    names
        .iter()
        .find_map(|wanted| fields.iter().find(|it| it.0.eq_ignore_ascii_case(wanted)))
        .map(|it| (it.0.as_str(), it.1))
}

fn set(offer: &Offer, fields: &mut Map<String, Value>, names: &[&str], value: Value) {
    let name = field(offer, names).map_or(names[0], |it| it.0);
    fields.insert(name.to_owned(), value);
}

/// Fills every required field that is still missing with a placeholder.
fn filled(offer: &Offer, mut fields: Map<String, Value>) -> Value {
    for name in offer.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            let of = &offer.schema["properties"][name];
            let value = match of["type"].as_str().map(str::to_ascii_lowercase).as_deref() {
                _ if of["enum"].is_array() => of["enum"][0].clone(),
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

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the path in the form that the tool requires. Some tools require absolute paths and state
/// that in their schema. The working directory then comes from the program's description of its
/// surroundings in the prompt.
fn placed(asked: &Asked, offer: &Offer, path: &str) -> String {
    let wants_absolute = field(offer, &PATH_FIELDS).is_some_and(|it| it.1.to_string().contains("bsolute"));
    if !wants_absolute || path.starts_with('/') {
        return path.to_owned();
    }
    match working_directory(&asked.said) {
        Some(dir) => format!("{}/{path}", dir.trim_end_matches('/')),
        None => path.to_owned(),
    }
}

/// The phrases with which programs tell the model their working directory.
const PLACES: [&str; 6] = [
    "working directory: ",
    "working directory is ",
    "<cwd>",
    "<working-directory>",
    "working in the directory: ",
    "Workspace Directories:\n  - ",
];

fn working_directory(said: &[Entry]) -> Option<&str> {
    said.iter().find_map(|entry| {
        PLACES.iter().find_map(|place| {
            let at = find_ignoring_case(&entry.text, place)? + place.len();
            let rest = &entry.text[at..];
            let end = rest.find(['\n', '<', '`', '"']).unwrap_or(rest.len());
            Some(rest[..end].trim()).filter(|it| it.starts_with('/'))
        })
    })
}

fn find_ignoring_case(text: &str, wanted: &str) -> Option<usize> {
    text.as_bytes().windows(wanted.len()).position(|it| it.eq_ignore_ascii_case(wanted.as_bytes()))
}
