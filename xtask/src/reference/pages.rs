//! Makes the pages of `docs/reference` from the answers of a built program.
//!
//! The pages come from the program's help texts, from `docs/openapi.json`, and from a daemon that
//! this module starts in a temporary directory: its tools for agents and its metrics. The meanings
//! of events, wait reasons and addresses that are no verbs are in text files, because the program
//! does not print them.
//!
//! The end-to-end tests include this file by its path to compare the checked-in pages with the
//! program. It therefore uses nothing else of `xtask`.

// The end-to-end tests find these files in this directory, too.
#[path = "command_help.rs"]
mod command_help;
#[path = "scratch.rs"]
mod scratch;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

use regatta_core::event::Event;
use serde_json::Value;

use command_help::{CommandHelp, CommandTree, draw_helps};
use scratch::Scratch;

const EVENTS: &str = include_str!("events.txt");
const WAITS: &str = include_str!("waits.txt");
const ROUTES: &str = include_str!("routes.txt");

/// The sources of the server's route tables.
const ROUTER_SOURCES: [&str; 2] = [
    include_str!("../../../crates/regatta-server/src/lib.rs"),
    include_str!("../../../crates/regatta-server/src/live/mod.rs"),
];

/// Ends the first paragraph of every page.
const GENERATED: &str = "`cargo xtask reference --write` makes this page from the program, and a \
                         test compares it with the program.";

/// A page's file name in `docs/reference` and its text.
pub(crate) type Pages = BTreeMap<&'static str, String>;

/// Makes all pages.
///
/// # Errors
/// The program cannot be run, gives an unexpected answer, or has events or wait reasons that the
/// text files lack.
pub(crate) fn pages(program: &Path, openapi: &str) -> io::Result<Pages> {
    let openapi: Value = serde_json::from_str(openapi)?;
    let scratch = Scratch::start(program)?;
    let tree = CommandTree::read(&scratch)?;
    let mut pages = Pages::new();
    pages.insert("commands.md", commands_page(&tree.everyday));
    pages.insert("plumbing.md", plumbing_page(&tree.plumbing));
    pages.insert("http.md", http_page(&openapi)?);
    pages.insert("mcp.md", mcp_page(&scratch)?);
    pages.insert("events.md", events_page()?);
    pages.insert("metrics.md", metrics_page(&scratch.metrics()?));
    pages.insert(
        "exit-codes.md",
        exit_codes_page(&scratch.run(&["help", "exit-codes"])?),
    );
    pages.insert("wait-reasons.md", wait_reasons_page(&openapi)?);
    scratch.run(&["down"])?;
    Ok(pages)
}

fn commands_page(helps: &[CommandHelp]) -> String {
    let head = format!(
        "# Commands\n\nFor people who look up a command. After this page you know every command \
         of the short help with its arguments and options. [Plumbing](plumbing.md) has the others. \
         {GENERATED}\n\n\
         Every command also accepts `-C PATH`, `--project NAME`, `--json`, `-q`, `-v`, `--color`, \
         `--no-input`, `-y`, `--timeout`, `--server URL` and `--no-hint`; `regatta --help` \
         explains them.\n"
    );
    head + &draw_helps(helps)
}

fn plumbing_page(helps: &[CommandHelp]) -> String {
    let head = format!(
        "# Plumbing commands\n\nFor people who write scripts and for agents. After this page you \
         know the commands that the short help only names. [Commands](commands.md) has the others. \
         {GENERATED}\n"
    );
    head + &draw_helps(helps)
}

fn http_page(openapi: &Value) -> io::Result<String> {
    let mut page = format!(
        "# HTTP operations\n\nFor people who write programs that use Regatta. After this page you \
         know every verb with the rights that it needs, its input and its answer, and [every other \
         address](#other-addresses). [The API](../api.md) explains tokens, pages, conditions and events. {GENERATED}\n\n\
         ```\n$ curl -s -H \"Authorization: Bearer $TOKEN\" -d '{{}}' \
         http://127.0.0.1:7777/api/v1/status\n```\n\n\
         Call a verb with `POST /api/v1/VERB` and a JSON object. A type with a capital letter is \
         described by `regatta schema VERB` (input) and `regatta schema VERB:data` (answer). \
         *Also an attempt* means that the token of an attempt may call the verb, for its own work.\n"
    );
    let operations =
        openapi["paths"]
            .as_object()
            .into_iter()
            .flatten()
            .flat_map(|(path, methods)| {
                methods
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(move |(method, operation)| (path, method, operation))
            });
    let mut tag = String::new();
    for (path, method, operation) in operations {
        let operation_tag = operation["tags"][0].as_str().unwrap_or("other");
        if operation_tag != tag {
            operation_tag.clone_into(&mut tag);
            let _ = write!(page, "\n## {tag}\n");
        }
        draw_operation(&mut page, path, method, operation);
    }
    page.push_str(&other_addresses()?);
    Ok(page)
}

/// Draws the addresses that are no verbs as a table. Fails if the text file has other addresses than
/// the server.
fn other_addresses() -> io::Result<String> {
    let rows: BTreeMap<String, (&str, &str)> = ROUTES
        .lines()
        .filter_map(|line| {
            let mut cells = line.splitn(3, " | ");
            Some((cells.next()?.to_owned(), (cells.next()?, cells.next()?)))
        })
        .collect();
    let served: Vec<String> = ROUTER_SOURCES
        .iter()
        .flat_map(|source| routes_of(source))
        .filter(|route| route != "POST /api/v1/{verb}")
        .collect();
    let meanings = rows.iter().map(|(name, (_, text))| (name.as_str(), *text));
    let served_names: Vec<&str> = served.iter().map(String::as_str).collect();
    complete("routes.txt", &meanings.collect(), &served_names)?;
    let mut text =
        "\n## Other addresses\n\nThese addresses are no verbs. The column *token* names \
                    the lowest scope that may use the address.\n\n\
                    | method | address | token | meaning |\n|---|---|---|---|\n"
            .to_owned();
    for (route, (token, meaning)) in rows {
        let (method, path) = route.split_once(' ').unwrap_or(("", &route));
        let _ = writeln!(
            text,
            "| `{method}` | `{path}` | {token} | {} |",
            escape(meaning)
        );
    }
    Ok(text)
}

/// Returns the routes that a source file of the server declares, such as `GET /healthz`.
fn routes_of(source: &str) -> Vec<String> {
    let mut routes = Vec::new();
    let declarations = source.split(".route(").skip(1);
    for declaration in declarations {
        let end = [".merge(", ";", "\n}"]
            .iter()
            .filter_map(|end| declaration.find(end))
            .min();
        let declaration = &declaration[..end.unwrap_or(declaration.len())];
        let Some(path) = declaration.split('"').nth(1) else {
            continue;
        };
        for (call, method) in [("get(", "GET"), ("post(", "POST")] {
            if declaration.contains(call) {
                routes.push(format!("{method} {path}"));
            }
        }
    }
    for nested in source.split(".nest_service(\"").skip(1) {
        let path = nested.split('"').next().unwrap_or_default();
        routes.push(format!("ANY {path}/…"));
    }
    routes
}

fn draw_operation(page: &mut String, path: &str, method: &str, operation: &Value) {
    let name = path.trim_start_matches("/api/v1/");
    let summary = operation["summary"]
        .as_str()
        .unwrap_or_default()
        .trim_end_matches('.');
    let also = operation["x-regatta-also"]
        .as_array()
        .map_or("", |_| ", also an attempt");
    let needs = operation["x-regatta-needs"].as_str().unwrap_or("token");
    let _ = write!(
        page,
        "\n### {name}\n\n{}. `{}`, {needs}{also}",
        escape(summary),
        method.to_uppercase()
    );
    let content = |value: &Value| value["content"]["application/json"]["schema"].clone();
    let answer = content(&operation["responses"]["200"]);
    if answer["properties"]["data"].is_object() {
        let _ = write!(page, ". Answer: {}", type_of(&answer["properties"]["data"]));
    }
    page.push_str(".\n");
    page.push_str(&fields_table(&content(&operation["requestBody"])));
}

/// Draws the fields of an object as a table, or nothing if there are none.
fn fields_table(schema: &Value) -> String {
    let Some(properties) = schema["properties"]
        .as_object()
        .filter(|all| !all.is_empty())
    else {
        return String::new();
    };
    let required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|all| all.iter().any(|field| field == name))
    };
    let mut table = "\n| field | type | default | meaning |\n|---|---|---|---|\n".to_owned();
    for (name, field) in properties {
        let default = match &field["default"] {
            _ if required(name) => "required".to_owned(),
            Value::Null => String::new(),
            value => format!("`{value}`"),
        };
        let meaning = field["description"].as_str().unwrap_or_default();
        let meaning = meaning.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            table,
            "| `{name}` | {} | {default} | {} |",
            type_of(field),
            escape(&meaning)
        );
    }
    table
}

/// Names the type of a schema in a few words.
fn type_of(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap_or(reference).to_owned();
    }
    if let Some(values) = schema["enum"].as_array() {
        return values
            .iter()
            .map(|choice| format!("`{choice}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    if let Some(value) = schema.get("const") {
        return format!("`{value}`");
    }
    if let Some(any) = schema["anyOf"]
        .as_array()
        .or_else(|| schema["oneOf"].as_array())
    {
        let mut names: Vec<String> = any
            .iter()
            .filter(|part| part["type"] != "null")
            .map(type_of)
            .collect();
        names.dedup();
        return names.join(" or ");
    }
    if let Some(types) = schema["type"].as_array() {
        let names: Vec<String> = types
            .iter()
            .filter(|name| *name != "null")
            .map(|name| {
                let mut one = schema.clone();
                one["type"] = name.clone();
                type_of(&one)
            })
            .collect();
        return names.join(" or ");
    }
    match schema["type"].as_str() {
        Some("array") if schema["items"].is_object() => {
            format!("list of {}", type_of(&schema["items"]))
        }
        Some("string") => "text".to_owned(),
        Some("integer" | "number") => "number".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some(other) => schema["title"].as_str().unwrap_or(other).to_owned(),
        None => "any".to_owned(),
    }
}

fn mcp_page(scratch: &Scratch) -> io::Result<String> {
    let worker = scratch.attempt_token("worker", &[])?;
    let lead = scratch.attempt_token("lead", &["--lead"])?;
    let worker_tools = scratch.tools(Some(&worker))?;
    let lead_tools = scratch.tools(Some(&lead))?;
    let person_tools = scratch.tools(None)?;
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    let worker_names: Vec<String> = worker_tools.iter().map(name).collect();
    let mut page = format!(
        "# MCP tools\n\nFor people who connect a program over the Model Context Protocol. After \
         this page you know the tools of each kind of token. [The \
         API](../api.md#tools-over-mcp) explains how to connect. {GENERATED}\n\n\
         ```\n$ claude mcp add regatta -- regatta mcp\n```\n\n\
         ## Tools of a worker\n"
    );
    for tool in &worker_tools {
        draw_tool(&mut page, tool);
    }
    page.push_str("\n## Further tools of a lead\n\nA lead also has the tools of a worker.\n");
    for tool in lead_tools
        .iter()
        .filter(|tool| !worker_names.contains(&name(tool)))
    {
        draw_tool(&mut page, tool);
    }
    page.push_str(
        "\n## Tools that are not listed\n\nEvery attempt can also call these tools. `tools/list` \
         does not show them to a worker, so that the list stays short.\n",
    );
    for tool in &regatta_server::unlisted_tools() {
        draw_tool(&mut page, tool);
    }
    page.push_str(
        "\n## Tools of a person's program\n\nWith the token of a person the tools are the [HTTP \
         operations](http.md), with `_` for `.`, except those that only people may call. Their \
         inputs are the same.\n\n",
    );
    let mut names: Vec<String> = person_tools
        .iter()
        .map(|tool| format!("`{}`", name(tool)))
        .collect();
    names.sort();
    let _ = writeln!(page, "{}", names.join(", "));
    Ok(page)
}

fn draw_tool(page: &mut String, tool: &Value) {
    let description = tool["description"]
        .as_str()
        .unwrap_or_default()
        .trim_end_matches('.');
    let name = tool["name"].as_str().unwrap_or_default();
    let _ = write!(page, "\n### {name}\n\n{}.\n", escape(description));
    page.push_str(&fields_table(&tool["inputSchema"]));
}

fn events_page() -> io::Result<String> {
    let meanings = meanings(EVENTS);
    let kinds: Vec<&str> = Event::KINDS.to_vec();
    complete("events.txt", &meanings, &kinds)?;
    let mut page = format!(
        "# Events\n\nFor people who follow the event stream or write hooks. After this page you \
         know every kind of event. {GENERATED}\n\n\
         ```\n$ regatta events\n$ regatta hook add --event task.completed -- sh \
         examples/on-landed.sh\n$ curl -N -H \"Authorization: Bearer $TOKEN\" \
         'http://127.0.0.1:7777/api/v1/events?kind=task.*'\n```\n\n\
         | kind | meaning |\n|---|---|\n"
    );
    for kind in kinds {
        let _ = writeln!(page, "| `{kind}` | {} |", escape(meanings[kind]));
    }
    Ok(page)
}

fn wait_reasons_page(openapi: &Value) -> io::Result<String> {
    let meanings = meanings(WAITS);
    let kinds = openapi["components"]["schemas"]["WaitKind"]["enum"].as_array();
    let kinds: Vec<&str> = kinds
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    complete("waits.txt", &meanings, &kinds)?;
    let mut page = format!(
        "# Wait reasons\n\nFor people who want to know why a task waits. After this page you know \
         every wait reason. [Troubleshooting](../troubleshooting.md#wait-reasons) has the fix for \
         each. {GENERATED}\n\n\
         ```\n$ regatta why T6\n```\n\n\
         Every task that neither runs nor has ended has at least one wait reason \
         ([W1](../invariants.md#work)).\n\n\
         | reason | meaning |\n|---|---|\n"
    );
    for kind in kinds {
        let _ = writeln!(page, "| `{kind}` | {} |", escape(meanings[kind]));
    }
    Ok(page)
}

fn metrics_page(text: &str) -> String {
    let mut page = format!(
        "# Metrics\n\nFor people who monitor a daemon with Prometheus. After this page you know \
         every metric of `GET /metrics`, which needs a token with the scope `viewer`. {GENERATED}\n\n\
         ```\n$ regatta token add prometheus --scope viewer\n$ curl -s -H \"Authorization: Bearer \
         $TOKEN\" http://127.0.0.1:7777/metrics\n```\n\n\
         | metric | type | meaning |\n|---|---|---|\n"
    );
    let types: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    for line in text.lines() {
        let Some((name, help)) = line
            .strip_prefix("# HELP ")
            .and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        let kind = types.get(name).copied().unwrap_or_default();
        let _ = writeln!(page, "| `{name}` | {kind} | {} |", escape(help.trim()));
    }
    page
}

fn exit_codes_page(text: &str) -> String {
    let mut page = format!(
        "# Exit codes\n\nFor people who call Regatta from scripts. After this page you know what \
         each exit code means. {GENERATED}\n\n\
         ```\n$ regatta help exit-codes\n```\n\n\
         | code | meaning |\n|---|---|\n"
    );
    for (code, meaning) in text.lines().filter_map(|line| line.trim().split_once("  ")) {
        let _ = writeln!(page, "| {code} | {} |", escape(meaning.trim()));
    }
    page
}

/// Reads lines of a name and a sentence.
fn meanings(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .collect()
}

/// Checks that a text file has exactly the names that the program has.
fn complete(file: &str, meanings: &BTreeMap<&str, &str>, names: &[&str]) -> io::Result<()> {
    let missing: Vec<&&str> = names
        .iter()
        .filter(|name| !meanings.contains_key(*name))
        .collect();
    let gone: Vec<&&str> = meanings
        .keys()
        .filter(|name| !names.contains(name))
        .collect();
    if missing.is_empty() && gone.is_empty() && !names.is_empty() {
        return Ok(());
    }
    let text = format!("xtask/src/reference/{file} lacks {missing:?} and has too much {gone:?}");
    Err(io::Error::other(text))
}

/// Escapes the characters of a text that Markdown would interpret in a table or as HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for (index, part) in text.split('`').enumerate() {
        // Between backticks only the bar has a meaning.
        let is_code = index % 2 == 1;
        let part = part.replace('|', "\\|");
        let part = if is_code {
            part
        } else {
            part.replace('<', "&lt;").replace('*', "\\*")
        };
        if index > 0 {
            escaped.push('`');
        }
        escaped.push_str(&part);
    }
    escaped
}
