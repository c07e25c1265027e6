//! The steps of the scripted agent, and how they are read.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use regatta_core::session::{Class, ToolKind};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A step of a script, written `{say = "hello"}` in a plan and `{"say": "hello"}` in JSON.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Says something.
    Say(String),
    /// Thinks something, aloud where its protocol knows thoughts.
    Think(String),
    /// Tells what it is going to do, line by line.
    Plan(Vec<String>),
    /// Tells of a tool that it used; nothing really happens.
    Tool {
        /// What it is called.
        title: String,
        /// What it does.
        #[serde(default)]
        kind: ToolKind,
    },
    /// Calls one of Regatta's own tools, and says what it answers.
    Call {
        /// Its name: `my_task`.
        tool: String,
        /// What it is given.
        #[serde(default)]
        input: serde_json::Value,
        /// It is expected to fail.
        #[serde(default)]
        fails: bool,
    },
    /// Writes a file, and the directories it is in.
    Write {
        /// The file, inside the workspace.
        path: RelativePath,
        /// Its new content.
        text: String,
    },
    /// Adds to the end of a file, which may be new.
    Append {
        /// The file, inside the workspace.
        path: RelativePath,
        /// What is added.
        text: String,
    },
    /// Replaces the first place in a file where a text stands; it must stand there.
    Replace {
        /// The file, inside the workspace.
        path: RelativePath,
        /// What is looked for.
        from: String,
        /// What stands there afterwards.
        to: String,
    },
    /// Removes a file, a link or a directory.
    Remove(Removal),
    /// Runs a shell command, which must succeed.
    Run(String),
    /// Asks a person.
    Ask {
        /// The question.
        question: String,
        /// What may be answered.
        #[serde(default)]
        choices: Vec<String>,
        /// What is answered where nobody can be asked; one of the choices if there are any.
        default: Option<String>,
    },
    /// Asks a person to allow something.
    Permission(Permission),
    /// Does nothing for a while.
    Sleep(Pause),
    /// Reports what a model would have used.
    Usage {
        /// Tokens read.
        #[serde(default)]
        input: u64,
        /// Tokens written.
        #[serde(default)]
        output: u64,
        /// Tokens read from a cache.
        #[serde(default)]
        cached: u64,
        /// Money spent, in dollars; absent where no price is known.
        cost: Option<f64>,
        /// Tokens in the model's context now.
        used: Option<u64>,
        /// Tokens that its context can hold.
        size: Option<u64>,
    },
    /// Prints this much.
    Flood {
        /// How many bytes at least.
        bytes: u64,
    },
    /// Never ends, if true, and does not listen either: a `sleep` can be cancelled, this cannot.
    Hang(bool),
    /// Ends the turn; the steps that follow are for the next prompt. Where there are no turns it does nothing.
    EndTurn(bool),
    /// The provider's limit is used up.
    RateLimit {
        /// When it is over, from now.
        reset_in: Option<Pause>,
    },
    /// Gives up.
    Fail(Failure),
    /// Dies at once, if true, and leaves no result.
    Crash(bool),
}

/// The names of all steps, as a script writes them.
pub const STEPS: [&str; 20] = [
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

/// Every step with an example of it, written as in a plan.
pub const EXAMPLES: [(&str, &str); STEPS.len()] = [
    ("say", r#"say = "hello""#),
    ("write", r#"write = { path = "src/a.rs", text = "…" }"#),
    ("append", r#"append = { path = "src/a.rs", text = "…" }"#),
    ("replace", r#"replace = { path = "src/a.rs", from = "old", to = "new" }"#),
    ("remove", r#"remove = "src/a.rs""#),
    ("run", r#"run = "cargo fmt""#),
    ("ask", r#"ask = { question = "Which?", choices = ["a", "b"], default = "a" }"#),
    ("permission", r#"permission = { what = "npm install", kind = "execute", default = "allow" }"#),
    ("sleep", r#"sleep = "500ms""#),
    ("usage", r#"usage = { input = 1000, output = 200, cost = 0.05 }"#),
    ("flood", r#"flood = { bytes = 100000 }"#),
    ("hang", "hang = true"),
    ("fail", r#"fail = { class = "overloaded", reason = "busy" }"#),
    ("think", r#"think = "first the tests""#),
    ("plan", r#"plan = ["write the test", "make it pass"]"#),
    ("tool", r#"tool = { title = "Read a.rs", kind = "read" }"#),
    ("end_turn", "end_turn = true"),
    ("rate_limit", r#"rate_limit = { reset_in = "2s" }"#),
    ("crash", "crash = true"),
    ("call", r#"call = { tool = "my_task", input = {} }"#),
];

/// The steps that are always a table.
const TABLE_STEPS: [&str; 9] = ["write", "append", "replace", "ask", "usage", "flood", "tool", "rate_limit", "call"];

/// A step that is written as a text, or as a table for more settings.
///
/// An untagged enum would not say which field of the table is wrong.
trait TextOrTable: Sized {
    /// The table.
    type Table: serde::de::DeserializeOwned + Into<Self>;
    /// What an error says was expected.
    const EXPECTED: &'static str;

    /// Reads the short form.
    fn from_text(text: &str) -> Result<Self, String>;
}

fn text_or_table<'de, T: TextOrTable, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Reader<T>(std::marker::PhantomData<T>);
    impl<'de, T: TextOrTable> Visitor<'de> for Reader<T> {
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
    deserializer.deserialize_any(Reader(std::marker::PhantomData))
}

/// What a `remove` step removes: `"path"` or `{path = "path"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The path alone.
    Short(RelativePath),
    /// The path by name, like the other steps.
    Long {
        /// The path, inside the workspace.
        path: RelativePath,
    },
}

impl Removal {
    /// What is removed.
    pub fn path(&self) -> &RelativePath {
        match self {
            Removal::Short(path) | Removal::Long { path } => path,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemovalTable {
    path: RelativePath,
}

impl From<RemovalTable> for Removal {
    fn from(table: RemovalTable) -> Removal {
        Removal::Long { path: table.path }
    }
}

impl TextOrTable for Removal {
    type Table = RemovalTable;
    const EXPECTED: &'static str = "a path, or a table with path";
    fn from_text(text: &str) -> Result<Removal, String> {
        RelativePath::new(text).map(Removal::Short)
    }
}

impl<'de> Deserialize<'de> for Removal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Removal, D::Error> {
        text_or_table(deserializer)
    }
}

/// What a `permission` step asks for: `"what"` or `{what = "what", default = "allow"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// A person must decide.
    Short(String),
    /// The script says what is decided where nobody can be asked.
    Long {
        /// What is to be allowed.
        what: String,
        /// What is decided.
        default: Option<Decision>,
        /// What the tool does; a command, if it is not said.
        kind: Option<ToolKind>,
        /// The file it is about.
        path: Option<String>,
    },
}

impl Permission {
    /// What is to be allowed.
    pub fn what(&self) -> &str {
        match self {
            Permission::Short(what) | Permission::Long { what, .. } => what,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PermissionTable {
    what: String,
    default: Option<Decision>,
    kind: Option<ToolKind>,
    path: Option<String>,
}

impl From<PermissionTable> for Permission {
    fn from(table: PermissionTable) -> Permission {
        let PermissionTable { what, default, kind, path } = table;
        Permission::Long { what, default, kind, path }
    }
}

impl TextOrTable for Permission {
    type Table = PermissionTable;
    const EXPECTED: &'static str = "a text, or a table with what, default, kind and path";
    fn from_text(text: &str) -> Result<Permission, String> {
        Ok(Permission::Short(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Permission {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Permission, D::Error> {
        text_or_table(deserializer)
    }
}

/// How a `fail` step gives up: `"reason"` or `{class = "overloaded", reason = "…"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The reason alone.
    Short(String),
    /// What a provider would have done.
    Long {
        /// Which class of error it is.
        class: Class,
        /// What is said about it.
        reason: String,
        /// When a limit is over, from now.
        reset_in: Option<Pause>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureTable {
    class: Class,
    reason: String,
    reset_in: Option<Pause>,
}

impl From<FailureTable> for Failure {
    fn from(table: FailureTable) -> Failure {
        let FailureTable { class, reason, reset_in } = table;
        Failure::Long { class, reason, reset_in }
    }
}

impl TextOrTable for Failure {
    type Table = FailureTable;
    const EXPECTED: &'static str = "a text, or a table with class, reason and reset_in";
    fn from_text(text: &str) -> Result<Failure, String> {
        Ok(Failure::Short(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Failure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Failure, D::Error> {
        text_or_table(deserializer)
    }
}

/// An answer to a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not: the agent gives up.
    Deny,
}

/// A path that cannot leave the directory it is taken from, as far as its words go; links are looked
/// at when it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelativePath(PathBuf);

impl RelativePath {
    /// The path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Reads a path; the error says why it cannot be used.
    fn new(text: &str) -> Result<RelativePath, String> {
        let inside = |it: Component<'_>| matches!(it, Component::Normal(_) | Component::CurDir);
        let path: PathBuf = Path::new(text).components().filter(|part| *part != Component::CurDir).collect();
        if path.as_os_str().is_empty() || text.contains('\0') || !Path::new(text).components().all(inside) {
            return Err(format!("the path {text:?} is not inside the workspace; write it relative and without `..`"));
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

/// How long a `sleep` step takes: seconds as a number, or `"500ms"`, `"2s"`, `"1m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause(pub Duration);

impl<'de> Deserialize<'de> for Pause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pause, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let seconds = match &value {
            serde_json::Value::Number(number) => number.as_f64(),
            serde_json::Value::String(text) => parse_pause(text),
            _ => None,
        };
        seconds.filter(|it| (0.0..=86_400.0).contains(it)).map(|it| Pause(Duration::from_secs_f64(it))).ok_or_else(
            || serde::de::Error::custom(format!("{value} is no time; write seconds or \"500ms\", up to a day")),
        )
    }
}

fn parse_pause(text: &str) -> Option<f64> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    Some(number.trim().parse::<f64>().ok()? * unit)
}

/// A script that cannot be followed, found before any step of it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// It is no list.
    #[error("The script is not a list of steps: {0}.")]
    NotAList(String),
    /// A step is no table of one entry.
    #[error("Step {step} of the script must have exactly one name, like {{say = \"hello\"}}.")]
    NotAStep {
        /// Which, from 1.
        step: usize,
    },
    /// A step's name means nothing.
    #[error("Step {step} of the script is `{name}`, which is no step; known are {}.", STEPS.join(", "))]
    Unknown {
        /// Which, from 1.
        step: usize,
        /// What it is called.
        name: String,
    },
    /// A step's content does not fit its name.
    #[error("Step {step} of the script, `{name}`, cannot be read: {why}; write it like {{ {example} }}.")]
    Malformed {
        /// Which, from 1.
        step: usize,
        /// What it is called.
        name: String,
        /// What is wrong.
        why: String,
        /// How such a step is written.
        example: &'static str,
    },
}

/// Reads a script: a JSON array of steps.
pub fn parse(script: &str) -> Result<Vec<Step>, ScriptError> {
    let list: Vec<serde_json::Value> =
        serde_json::from_str(script).map_err(|error| ScriptError::NotAList(error.to_string()))?;
    list.into_iter().enumerate().map(|(index, value)| parse_step(index + 1, value)).collect()
}

fn parse_step(step: usize, value: serde_json::Value) -> Result<Step, ScriptError> {
    let name = match value.as_object().map(|it| it.keys().collect::<Vec<_>>()).as_deref() {
        Some([name]) => (*name).clone(),
        _ => return Err(ScriptError::NotAStep { step }),
    };
    if !STEPS.contains(&name.as_str()) {
        // A hostile name must not flood an error message.
        return Err(ScriptError::Unknown { step, name: name.chars().take(40).collect() });
    }
    let example = EXAMPLES.iter().find(|(step, _)| *step == name).map_or("", |(_, example)| *example);
    let malformed = |why: String| ScriptError::Malformed { step, name: name.clone(), why, example };
    // Serde would name a Rust type here.
    if TABLE_STEPS.contains(&name.as_str()) && !value[&name].is_object() {
        return Err(malformed("it must be a table".into()));
    }
    let parsed = serde_json::from_value::<Step>(value).map_err(|error| malformed(error.to_string()))?;
    if let Step::Ask { choices, default: Some(default), .. } = &parsed
        && !choices.is_empty()
        && !choices.contains(default)
    {
        let why = format!("its default {default:?} is none of its choices");
        return Err(malformed(why));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_of_a_plan_is_read() {
        let script = r#"[{"say":"a"},{"write":{"path":"./a/b","text":"t"}},{"append":{"path":"a","text":"t"}},
            {"replace":{"path":"a","from":"f","to":"t"}},{"remove":"a"},{"remove":{"path":"a"}},{"run":"true"},
            {"ask":{"question":"q","choices":["x","y"],"default":"y"}},{"ask":{"question":"q"}},{"permission":"p"},
            {"permission":{"what":"p","default":"allow"}},{"sleep":0.5},{"sleep":"500ms"},{"sleep":2},
            {"usage":{"input":1,"output":2,"cost":0.5}},{"usage":{}},{"flood":{"bytes":9}},{"hang":true},{"fail":"r"},
            {"think":"hm"},{"plan":["a","b"]},{"tool":{"title":"t","kind":"search"}},{"call":{"tool":"ask","input":{"question":"q"}}},{"end_turn":true},
            {"rate_limit":{"reset_in":"2s"}},{"rate_limit":{}},{"crash":true},
            {"fail":{"class":"overloaded","reason":"r"}},{"permission":{"what":"p","kind":"edit","path":"a"}}]"#;
        let steps = parse(script).unwrap();
        assert_eq!(steps.len(), 29);
        for name in STEPS {
            assert!(script.contains(&format!("{{\"{name}\":")), "{name} is not in the script");
        }
        assert_eq!(steps[11], steps[12]);
        assert!(matches!(&steps[1], Step::Write { path, .. } if path.as_path() == Path::new("a/b")));
    }

    #[test]
    fn what_cannot_be_followed_is_refused_before_it_starts() {
        for (script, words) in [
            (r#"{"say":"a"}"#, "not a list"),
            (
                r#"[{"say":"a"},{"dance":true}]"#,
                "Step 2 of the script is `dance`, which is no step; known are say, write",
            ),
            (r#"[{"say":"a","run":"b"}]"#, "Step 1 of the script must have exactly one name"),
            (r#"["say"]"#, "exactly one name"),
            (r#"[{"write":{"path":"a"}}]"#, "missing field `text`"),
            (r#"[{"write":{"path":"a","text":"","mode":1}}]"#, "unknown field `mode`"),
            (r#"[{"write":{"path":"/etc/passwd","text":""}}]"#, "not inside the workspace"),
            (r#"[{"append":{"path":"a/../../b","text":""}}]"#, "not inside the workspace"),
            (r#"[{"remove":".."}]"#, "not inside the workspace"),
            (r#"[{"remove":{"path":"."}}]"#, "not inside the workspace"),
            (r#"[{"sleep":-1}]"#, "is no time"),
            (r#"[{"sleep":"soon"}]"#, "is no time"),
            (r#"[{"sleep":1e300}]"#, "is no time"),
            (r#"[{"ask":{"question":"q","choices":["a"],"default":"b"}}]"#, "none of its choices"),
            (r#"[{"permission":5}]"#, "integer `5`, expected a text, or a table with what, default"),
            (r#"[{"permission":{"default":"allow"}}]"#, "missing field `what`"),
            (r#"[{"permission":{"what":"p","deflt":"allow"}}]"#, "unknown field `deflt`"),
            (r#"[{"fail":{"reason":"r"}}]"#, "missing field `class`"),
            (r#"[{"remove":7}]"#, "expected a path, or a table with path"),
            (r#"[{"write":"a"}]"#, "it must be a table; write it like { write = { path ="),
            (r#"[{"ask":true}]"#, "it must be a table; write it like { ask = { question ="),
        ] {
            let error = parse(script).unwrap_err().to_string();
            assert!(error.contains(words), "{script}: {error}");
            for leak in ["untagged", "enum", "variant", "struct"] {
                assert!(!error.contains(leak), "{script}: {error}");
            }
        }
    }
}
