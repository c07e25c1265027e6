//! Reads the object of a tool call from the tool's input: the command, the files, the URLs and
//! other arguments (S13).
//!
//! Programs use different names for the same thing. The keys below are all the names seen in Claude
//! Code, Codex, Gemini, Qwen, OpenCode, Goose and their adapters.

use regatta_core::agent_protocol::{MAX_OBJECT_CHARS, ToolCall, ToolKind};
use serde_json::{Map, Value};

use super::error_class::shorten;

const COMMAND_KEYS: [&str; 2] = ["command", "cmd"];
const PATH_KEYS: [&str; 9] = [
    "file_path",
    "path",
    "filePath",
    "filepath",
    "abs_path",
    "absolute_path",
    "notebook_path",
    "old_path",
    "new_path",
];
const URL_KEYS: [&str; 3] = ["url", "uri", "urls"];
/// Input fields that do not change what a command does, so a person who decides on the command need
/// not see them.
const IGNORED_COMMAND_KEYS: [&str; 6] = [
    "description",
    "timeout",
    "timeout_ms",
    "run_in_background",
    "is_background",
    "dangerouslyDisableSandbox",
];

/// Copies the command, files, URLs and other arguments in `input` into `tool`. A value that an
/// earlier input has set stays unchanged if this input does not contain that value.
pub(super) fn read_input(tool: &mut ToolCall, input: &Value) {
    let Value::Object(fields) = input else {
        if let Some(text) = input.as_str().filter(|text| !text.trim().is_empty()) {
            (tool.arguments, tool.is_cut) = cut_to_limit(text);
        }
        return;
    };
    if let Some(command) = COMMAND_KEYS
        .iter()
        .find_map(|key| command_line(fields.get(*key)?))
    {
        (tool.command, tool.is_cut) = cut_to_limit(&command);
    }
    for path in PATH_KEYS
        .iter()
        .filter_map(|key| fields.get(*key)?.as_str())
    {
        push_unique(&mut tool.paths, path);
    }
    for key in URL_KEYS {
        match fields.get(key) {
            Some(Value::String(url)) => push_unique(&mut tool.urls, url),
            Some(Value::Array(urls)) => urls
                .iter()
                .filter_map(Value::as_str)
                .for_each(|url| push_unique(&mut tool.urls, url)),
            _ => {}
        }
    }
    read_other_fields(tool, fields);
}

/// Returns whether a tool's input contains a command line.
pub(super) fn has_command(input: &Value) -> bool {
    COMMAND_KEYS
        .iter()
        .any(|key| command_line(&input[*key]).is_some())
}

/// Stores the fields of the input other than command, files and URLs, so that a person sees these
/// fields too.
fn read_other_fields(tool: &mut ToolCall, fields: &Map<String, Value>) {
    let is_shown = |key: &str| match tool.kind {
        ToolKind::Execute => tool.command.is_some(),
        // A person decides on these kinds of tool calls by the paths of the files. The new content
        // is in the diff, so the other fields are not needed.
        ToolKind::Read | ToolKind::Edit | ToolKind::Delete | ToolKind::Move | ToolKind::Search => {
            !tool.paths.is_empty()
        }
        ToolKind::Fetch => URL_KEYS.contains(&key) && !tool.urls.is_empty(),
        _ => {
            let is_command = COMMAND_KEYS.contains(&key) || IGNORED_COMMAND_KEYS.contains(&key);
            is_command
                && fields.keys().all(|key| {
                    COMMAND_KEYS.contains(&key.as_str())
                        || IGNORED_COMMAND_KEYS.contains(&key.as_str())
                })
        }
    };
    let rest: Map<String, Value> = fields
        .iter()
        .filter(|(key, _)| !is_shown(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let is_known = tool.arguments.as_ref().is_some_and(|known| known != "{}");
    if rest.is_empty() && (is_known || !fields.is_empty()) {
        return;
    }
    let (arguments, is_cut) = cut_to_limit(&Value::Object(rest).to_string());
    // Mark the tool call as cut only if the cut text is the part by which a person decides about
    // the call.
    let is_object = tool.object().is_none_or(|object| object == "{}")
        || matches!(
            tool.kind,
            ToolKind::Think | ToolKind::SwitchMode | ToolKind::Other
        );
    tool.is_cut |= is_cut && is_object;
    tool.arguments = arguments;
}

fn command_line(value: &Value) -> Option<String> {
    let line = match value {
        Value::String(text) => text.clone(),
        Value::Array(words) => words
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" "),
        _ => return None,
    };
    (!line.trim().is_empty()).then_some(line)
}

/// Returns at most [`MAX_OBJECT_CHARS`] characters of the text, and whether the rest was cut off.
pub(super) fn cut_to_limit(text: &str) -> (Option<String>, bool) {
    (
        Some(shorten(text, MAX_OBJECT_CHARS)),
        text.chars().nth(MAX_OBJECT_CHARS).is_some(),
    )
}

pub(super) fn push_unique(list: &mut Vec<String>, item: &str) {
    if !item.is_empty() && !list.iter().any(|known| known == item) {
        list.push(item.to_owned());
    }
}

/// Returns the URLs in the title of a permission request, for programs that send no separate input.
/// Returns none if the title was shortened, because a shortened title may lack some of the URLs.
pub(super) fn urls_in(title: &str) -> Vec<String> {
    let is_wrapping = |c: char| "\"'`()<>[],".contains(c);
    let title = title.trim();
    if ["...", "…", "...\""].iter().any(|end| title.ends_with(end)) {
        return vec![];
    }
    let words = title
        .split_whitespace()
        .map(|word| word.trim_matches(is_wrapping).trim_end_matches('.'));
    words
        .filter(|word| word.contains("://"))
        .map(str::to_owned)
        .collect()
}
