//! The steps of the scripted agent (the built-in agent that follows a list of steps), and the
//! parser of its scripts.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use regatta_core::agent_protocol::{FailureClass, ToolKind};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A step of a script, written as `{say = "hello"}` in a plan and as `{"say": "hello"}` in JSON.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ScriptStep {
    /// Prints a message, as the agent's answer.
    Say(String),
    /// Reports a thought of the agent. Does nothing in a protocol without thoughts.
    Think(String),
    /// Reports a plan of the agent, one line per entry.
    Plan(Vec<String>),
    /// Reports a tool call of the agent without making the call.
    Tool {
        /// The title of the reported tool call.
        title: String,
        /// The kind of the reported tool, such as `read` or `execute`.
        #[serde(default)]
        kind: ToolKind,
    },
    /// Calls one of the tools that Regatta offers to agents, and prints its answer.
    Call {
        /// The name of Regatta's tool, such as `my_task`.
        tool: String,
        /// The input for the tool, as a table.
        #[serde(default)]
        input: serde_json::Value,
        /// True if the tool call is expected to fail. The step then fails if the call succeeds.
        #[serde(default)]
        fails: bool,
    },
    /// Writes a file, and creates its parent directories if necessary.
    Write {
        /// The file to write, relative to the workspace.
        path: RelativePath,
        /// The new content of the whole file.
        text: String,
    },
    /// Appends a text to a file, which is created if necessary.
    Append {
        /// The file to which the text is appended, relative to the workspace.
        path: RelativePath,
        /// The text to append to the file.
        text: String,
    },
    /// Replaces the first occurrence of a text in a file. The step fails if the file does not
    /// contain the text.
    Replace {
        /// The file to change, relative to the workspace.
        path: RelativePath,
        /// The text to replace.
        from: String,
        /// The text that replaces the text `from`.
        to: String,
    },
    /// Removes a file, a link or a directory in the workspace.
    Remove(RemoveStep),
    /// Runs a shell command in the workspace. The step fails if the command fails.
    Run(String),
    /// Asks a person a question and waits for the answer.
    Ask {
        /// The question to the person.
        question: String,
        /// The answers from which the person chooses; empty if any text is allowed.
        #[serde(default)]
        choices: Vec<String>,
        /// The answer that is assumed if nobody can be asked. If there are choices, the default
        /// must be one of them.
        default: Option<String>,
    },
    /// Asks a person for a permission and waits for the decision.
    Permission(PermissionStep),
    /// Waits for the given time.
    Sleep(SleepDuration),
    /// Reports that tokens and money were used, as if the agent had called a model.
    Usage {
        /// The number of input tokens to report.
        #[serde(default)]
        input: u64,
        /// The number of output tokens to report.
        #[serde(default)]
        output: u64,
        /// The number of input tokens to report as read from a cache.
        #[serde(default)]
        cached: u64,
        /// The cost to report, in dollars; absent if the price is unknown.
        cost: Option<f64>,
        /// The number of tokens to report as used in the model's context window.
        used: Option<u64>,
        /// The size of the model's context window to report, in tokens.
        size: Option<u64>,
    },
    /// Prints a large amount of text, to test limits.
    Flood {
        /// The minimum number of bytes to print.
        bytes: u64,
    },
    /// If true, hangs forever and ignores cancellation, unlike `sleep`.
    Hang(bool),
    /// If true, ends the turn: the following steps are performed after the next prompt. Does
    /// nothing if the agent runs without turns.
    EndTurn(bool),
    /// Fails as if the usage limit of the agent's provider were used up.
    RateLimit {
        /// The time until the provider's usage limit is reset. If absent, the agent reports no such
        /// time.
        reset_in: Option<SleepDuration>,
    },
    /// Ends the script with a failure.
    Fail(FailStep),
    /// If true, the agent's program crashes at once, without a result.
    Crash(bool),
}

/// The names of all steps of a script for the scripted agent, as they are written in the script.
pub const STEP_NAMES: [&str; 20] = [
    "say",
    "write",
    "append",
    "replace",
    "remove",
    "run",
    "ask",
    "permission",
    "sleep",
    "usage",
    "flood",
    "hang",
    "fail",
    "think",
    "plan",
    "tool",
    "end_turn",
    "rate_limit",
    "crash",
    "call",
];

/// The name and an example of each step of a script, as they are written in a plan.
pub const STEP_EXAMPLES: [(&str, &str); STEP_NAMES.len()] = [
    ("say", r#"say = "hello""#),
    ("write", r#"write = { path = "src/a.rs", text = "…" }"#),
    ("append", r#"append = { path = "src/a.rs", text = "…" }"#),
    (
        "replace",
        r#"replace = { path = "src/a.rs", from = "old", to = "new" }"#,
    ),
    ("remove", r#"remove = "src/a.rs""#),
    ("run", r#"run = "cargo fmt""#),
    (
        "ask",
        r#"ask = { question = "Which?", choices = ["a", "b"], default = "a" }"#,
    ),
    (
        "permission",
        r#"permission = { what = "npm install", kind = "execute", default = "allow" }"#,
    ),
    ("sleep", r#"sleep = "500ms""#),
    (
        "usage",
        r#"usage = { input = 1000, output = 200, cost = 0.05 }"#,
    ),
    ("flood", r#"flood = { bytes = 100000 }"#),
    ("hang", "hang = true"),
    (
        "fail",
        r#"fail = { class = "overloaded", reason = "busy" }"#,
    ),
    ("think", r#"think = "first the tests""#),
    ("plan", r#"plan = ["write the test", "make it pass"]"#),
    ("tool", r#"tool = { title = "Read a.rs", kind = "read" }"#),
    ("end_turn", "end_turn = true"),
    ("rate_limit", r#"rate_limit = { reset_in = "2s" }"#),
    ("crash", "crash = true"),
    ("call", r#"call = { tool = "my_task", input = {} }"#),
];

/// The names of the script steps whose argument must be a table.
const TABLE_STEPS: [&str; 9] = [
    "write",
    "append",
    "replace",
    "ask",
    "usage",
    "flood",
    "tool",
    "rate_limit",
    "call",
];

/// A step's argument that can be written as a text, or as a table with more settings.
///
/// An untagged enum is not used here because its error messages would not tell which field of the
/// table is wrong.
trait TextOrTable: Sized {
    /// The type into which the table form of the argument is parsed.
    type Table: serde::de::DeserializeOwned + Into<Self>;
    /// A description of the argument's two forms (text and table), for error messages.
    const EXPECTED: &'static str;

    /// Parses an argument that is written as a text.
    fn from_text(text: &str) -> Result<Self, String>;
}

fn text_or_table<'de, T: TextOrTable, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct TextOrTableVisitor<T>(std::marker::PhantomData<T>);
    impl<'de, T: TextOrTable> Visitor<'de> for TextOrTableVisitor<T> {
        type Value = T;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(T::EXPECTED)
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            T::from_text(text).map_err(E::custom)
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::Table::deserialize(MapAccessDeserializer::new(map)).map(Into::into)
        }
    }
    deserializer.deserialize_any(TextOrTableVisitor(std::marker::PhantomData))
}

/// The argument of a `remove` step: `"path"` or `{path = "path"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoveStep {
    /// The path to remove, written as a text.
    Short(RelativePath),
    /// The path to remove, written as a table like the arguments of the other steps.
    Long {
        /// The path to remove, relative to the workspace.
        path: RelativePath,
    },
}

impl RemoveStep {
    /// Returns the path to remove.
    pub fn path(&self) -> &RelativePath {
        match self {
            RemoveStep::Short(path) | RemoveStep::Long { path } => path,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoveTable {
    path: RelativePath,
}

impl From<RemoveTable> for RemoveStep {
    fn from(table: RemoveTable) -> RemoveStep {
        RemoveStep::Long { path: table.path }
    }
}

impl TextOrTable for RemoveStep {
    type Table = RemoveTable;
    const EXPECTED: &'static str = "a path, or a table with path";
    fn from_text(text: &str) -> Result<RemoveStep, String> {
        RelativePath::new(text).map(RemoveStep::Short)
    }
}

impl<'de> Deserialize<'de> for RemoveStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RemoveStep, D::Error> {
        text_or_table(deserializer)
    }
}

/// The argument of a `permission` step: `"what"` or `{what = "what", default = "allow"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionStep {
    /// The action that a person must allow, written as a text.
    Short(String),
    /// The action with further settings, written as a table.
    Long {
        /// The action for which a permission is requested, such as `npm install`.
        what: String,
        /// The decision if nobody can be asked. Without a default the step then fails.
        default: Option<PermissionDefault>,
        /// The kind of the tool that performs the action; `execute` if absent.
        kind: Option<ToolKind>,
        /// The path of the file that the action changes, if any.
        path: Option<String>,
    },
}

impl PermissionStep {
    /// Returns the action for which a permission is requested.
    pub fn what(&self) -> &str {
        match self {
            PermissionStep::Short(what) | PermissionStep::Long { what, .. } => what,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PermissionTable {
    what: String,
    default: Option<PermissionDefault>,
    kind: Option<ToolKind>,
    path: Option<String>,
}

impl From<PermissionTable> for PermissionStep {
    fn from(table: PermissionTable) -> PermissionStep {
        let PermissionTable {
            what,
            default,
            kind,
            path,
        } = table;
        PermissionStep::Long {
            what,
            default,
            kind,
            path,
        }
    }
}

impl TextOrTable for PermissionStep {
    type Table = PermissionTable;
    const EXPECTED: &'static str = "a text, or a table with what, default, kind and path";
    fn from_text(text: &str) -> Result<PermissionStep, String> {
        Ok(PermissionStep::Short(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for PermissionStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PermissionStep, D::Error> {
        text_or_table(deserializer)
    }
}

/// The argument of a `fail` step: `"reason"` or `{class = "overloaded", reason = "…"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailStep {
    /// The short form, which is only the error message.
    Short(String),
    /// A failure as an agent's provider would report it, written as a table.
    Long {
        /// The kind of the failure, such as `overloaded`.
        class: FailureClass,
        /// The error message of the failure.
        reason: String,
        /// The time until the provider's usage limit is reset, if the failure is a used-up limit.
        reset_in: Option<SleepDuration>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailTable {
    class: FailureClass,
    reason: String,
    reset_in: Option<SleepDuration>,
}

impl From<FailTable> for FailStep {
    fn from(table: FailTable) -> FailStep {
        let FailTable {
            class,
            reason,
            reset_in,
        } = table;
        FailStep::Long {
            class,
            reason,
            reset_in,
        }
    }
}

impl TextOrTable for FailStep {
    type Table = FailTable;
    const EXPECTED: &'static str = "a text, or a table with class, reason and reset_in";
    fn from_text(text: &str) -> Result<FailStep, String> {
        Ok(FailStep::Short(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for FailStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FailStep, D::Error> {
        text_or_table(deserializer)
    }
}

/// The decision about a permission when nobody can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionDefault {
    /// The action is allowed.
    Allow,
    /// The action is denied, and the scripted agent fails.
    Deny,
}

/// A relative path without components such as `..` that would leave its base directory. Symbolic
/// links are checked when the path is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelativePath(PathBuf);

impl RelativePath {
    /// Returns the relative path as a plain path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Parses a relative path. The error is a sentence that tells why the path is not allowed.
    fn new(text: &str) -> Result<RelativePath, String> {
        let is_inside = |component: Component<'_>| {
            matches!(component, Component::Normal(_) | Component::CurDir)
        };
        let path: PathBuf = Path::new(text)
            .components()
            .filter(|part| *part != Component::CurDir)
            .collect();
        if path.as_os_str().is_empty()
            || text.contains('\0')
            || !Path::new(text).components().all(is_inside)
        {
            return Err(format!(
                "the path {text:?} is not inside the workspace; write it relative and without `..`"
            ));
        }
        Ok(RelativePath(path))
    }
}

impl<'de> Deserialize<'de> for RelativePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RelativePath, D::Error> {
        let text = String::deserialize(deserializer)?;
        RelativePath::new(&text).map_err(serde::de::Error::custom)
    }
}

/// A duration in a script: seconds as a number, or a text such as `"500ms"`, `"2s"` or `"1m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepDuration(pub Duration);

impl<'de> Deserialize<'de> for SleepDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SleepDuration, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let seconds = match &value {
            serde_json::Value::Number(number) => number.as_f64(),
            serde_json::Value::String(text) => parse_seconds(text),
            _ => None,
        };
        seconds
            .filter(|seconds| (0.0..=86_400.0).contains(seconds))
            .map(|seconds| SleepDuration(Duration::from_secs_f64(seconds)))
            .ok_or_else(|| {
                serde::de::Error::custom(format!(
                    "{value} is not a duration; write seconds or \"500ms\", up to a day"
                ))
            })
    }
}

fn parse_seconds(text: &str) -> Option<f64> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    Some(number.trim().parse::<f64>().ok()? * unit)
}

/// An error in a script. Scripts are checked completely before their first step is performed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The script is not a list of steps. Holds the parser's error.
    #[error("The script is not a list of steps: {0}.")]
    NotAList(String),
    /// A step is not a table with exactly one entry.
    #[error("Step {step} of the script must be a table with one entry, like {{say = \"hello\"}}.")]
    NotAStep {
        /// The number of the wrong step; the first step is 1.
        step: usize,
    },
    /// The script names a step that does not exist.
    #[error("Step {step} of the script is `{name}`, which is not a step; the steps are {}.", STEP_NAMES.join(", "))]
    Unknown {
        /// The number of the wrong step; the first step is 1.
        step: usize,
        /// The name of the unknown step, shortened to 40 characters.
        name: String,
    },
    /// The step's content has the wrong type or wrong fields.
    #[error(
        "Step {step} of the script, `{name}`, cannot be read: {why}; write it like {{ {example} }}."
    )]
    Malformed {
        /// The number of the wrong step; the first step is 1.
        step: usize,
        /// The name of the step whose content is wrong.
        name: String,
        /// The reason why the step's content could not be parsed.
        why: String,
        /// An example of a correct step with this name.
        example: &'static str,
    },
}

/// Parses a script, which is a JSON array of steps.
pub fn parse_script(script: &str) -> Result<Vec<ScriptStep>, ScriptError> {
    let list: Vec<serde_json::Value> =
        serde_json::from_str(script).map_err(|error| ScriptError::NotAList(error.to_string()))?;
    list.into_iter()
        .enumerate()
        .map(|(index, value)| parse_step(index + 1, value))
        .collect()
}

fn parse_step(step: usize, value: serde_json::Value) -> Result<ScriptStep, ScriptError> {
    let name = match value
        .as_object()
        .map(|object| object.keys().collect::<Vec<_>>())
        .as_deref()
    {
        Some([name]) => (*name).clone(),
        _ => return Err(ScriptError::NotAStep { step }),
    };
    if !STEP_NAMES.contains(&name.as_str()) {
        // Shorten the name, so that a long name does not make the error message unreadable.
        return Err(ScriptError::Unknown {
            step,
            name: name.chars().take(40).collect(),
        });
    }
    let example = STEP_EXAMPLES
        .iter()
        .find(|(step, _)| *step == name)
        .map_or("", |(_, example)| *example);
    let malformed = |why: String| ScriptError::Malformed {
        step,
        name: name.clone(),
        why,
        example,
    };
    // Report this error here, because serde's own message would name a Rust type.
    if TABLE_STEPS.contains(&name.as_str()) && !value[&name].is_object() {
        return Err(malformed("its argument must be a table".into()));
    }
    let parsed = serde_json::from_value::<ScriptStep>(value)
        .map_err(|error| malformed(error.to_string()))?;
    if let ScriptStep::Ask {
        choices,
        default: Some(default),
        ..
    } = &parsed
        && !choices.is_empty()
        && !choices.contains(default)
    {
        let why = format!("its default {default:?} is not one of its choices");
        return Err(malformed(why));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_of_a_script_is_parsed() {
        let script = r#"[{"say":"a"},{"write":{"path":"./a/b","text":"t"}},{"append":{"path":"a","text":"t"}},
            {"replace":{"path":"a","from":"f","to":"t"}},{"remove":"a"},{"remove":{"path":"a"}},{"run":"true"},
            {"ask":{"question":"q","choices":["x","y"],"default":"y"}},{"ask":{"question":"q"}},{"permission":"p"},
            {"permission":{"what":"p","default":"allow"}},{"sleep":0.5},{"sleep":"500ms"},{"sleep":2},
            {"usage":{"input":1,"output":2,"cost":0.5}},{"usage":{}},{"flood":{"bytes":9}},{"hang":true},{"fail":"r"},
            {"think":"hm"},{"plan":["a","b"]},{"tool":{"title":"t","kind":"search"}},{"call":{"tool":"ask","input":{"question":"q"}}},{"end_turn":true},
            {"rate_limit":{"reset_in":"2s"}},{"rate_limit":{}},{"crash":true},
            {"fail":{"class":"overloaded","reason":"r"}},{"permission":{"what":"p","kind":"edit","path":"a"}}]"#;
        let steps = parse_script(script).unwrap();
        assert_eq!(steps.len(), 29);
        for name in STEP_NAMES {
            assert!(
                script.contains(&format!("{{\"{name}\":")),
                "{name} is not in the script"
            );
        }
        assert_eq!(steps[11], steps[12]);
        assert!(
            matches!(&steps[1], ScriptStep::Write { path, .. } if path.as_path() == Path::new("a/b"))
        );
    }

    #[test]
    fn invalid_script_is_refused_with_the_reason() {
        for (script, expected) in [
            (r#"{"say":"a"}"#, "not a list"),
            (
                r#"[{"say":"a"},{"dance":true}]"#,
                "Step 2 of the script is `dance`, which is not a step; the steps are say, write",
            ),
            (
                r#"[{"say":"a","run":"b"}]"#,
                "Step 1 of the script must be a table with one entry",
            ),
            (r#"["say"]"#, "a table with one entry"),
            (r#"[{"write":{"path":"a"}}]"#, "missing field `text`"),
            (
                r#"[{"write":{"path":"a","text":"","mode":1}}]"#,
                "unknown field `mode`",
            ),
            (
                r#"[{"write":{"path":"/etc/passwd","text":""}}]"#,
                "not inside the workspace",
            ),
            (
                r#"[{"append":{"path":"a/../../b","text":""}}]"#,
                "not inside the workspace",
            ),
            (r#"[{"remove":".."}]"#, "not inside the workspace"),
            (r#"[{"remove":{"path":"."}}]"#, "not inside the workspace"),
            (r#"[{"sleep":-1}]"#, "is not a duration"),
            (r#"[{"sleep":"soon"}]"#, "is not a duration"),
            (r#"[{"sleep":1e300}]"#, "is not a duration"),
            (
                r#"[{"ask":{"question":"q","choices":["a"],"default":"b"}}]"#,
                "not one of its choices",
            ),
            (
                r#"[{"permission":5}]"#,
                "integer `5`, expected a text, or a table with what, default",
            ),
            (
                r#"[{"permission":{"default":"allow"}}]"#,
                "missing field `what`",
            ),
            (
                r#"[{"permission":{"what":"p","deflt":"allow"}}]"#,
                "unknown field `deflt`",
            ),
            (r#"[{"fail":{"reason":"r"}}]"#, "missing field `class`"),
            (r#"[{"remove":7}]"#, "expected a path, or a table with path"),
            (
                r#"[{"write":"a"}]"#,
                "its argument must be a table; write it like { write = { path =",
            ),
            (
                r#"[{"ask":true}]"#,
                "its argument must be a table; write it like { ask = { question =",
            ),
        ] {
            let error = parse_script(script).unwrap_err().to_string();
            assert!(error.contains(expected), "{script}: {error}");
            for leak in ["untagged", "enum", "variant", "struct"] {
                assert!(!error.contains(leak), "{script}: {error}");
            }
        }
    }
}
