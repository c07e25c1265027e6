//! Makes the pages of `docs/reference` from the answers of a built program.
//!
//! The pages come from the program's help texts, from `docs/openapi.json`, and from a daemon that
//! this module starts in a temporary directory: its tools for agents and its metrics. The meanings
//! of events and wait reasons are in two text files, because the program does not print them.
//!
//! The end-to-end tests include this file by its path to compare the checked-in pages with the
//! program. It therefore uses nothing else of `xtask`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use regatta_core::event::Event;
use serde_json::{Value, json};

const EVENTS: &str = include_str!("events.txt");
const WAITS: &str = include_str!("waits.txt");

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
    pages.insert("http.md", http_page(&openapi));
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

/// A temporary home and repository with a running daemon.
struct Scratch {
    program: PathBuf,
    directory: tempfile::TempDir,
}

impl Scratch {
    fn start(program: &Path) -> io::Result<Scratch> {
        let directory = tempfile::Builder::new()
            .prefix("regatta-reference-")
            .tempdir()?;
        for name in ["home", "shop"] {
            std::fs::create_dir(directory.path().join(name))?;
        }
        let scratch = Scratch {
            program: program.canonicalize()?,
            directory,
        };
        let commit = ["commit", "-q", "--allow-empty", "-m", "Start"];
        let identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com"];
        for args in [
            &["init", "-q", "-b", "main"][..],
            &[&identity[..], &commit[..]].concat(),
        ] {
            scratch.output(Path::new("git"), args, "", None)?;
        }
        scratch.run(&["init", "--yes", "--no-router", "--validate", "true"])?;
        Ok(scratch)
    }

    /// Runs the program and returns its standard output.
    fn run(&self, args: &[&str]) -> io::Result<String> {
        self.output(&self.program, args, "", None)
    }

    fn output(
        &self,
        program: &Path,
        args: &[&str],
        input: &str,
        token: Option<&str>,
    ) -> io::Result<String> {
        let root = self.directory.path();
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(root.join("shop"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", root.join("home"))
            .env("TMPDIR", root)
            .env("LANG", "C.UTF-8")
            .env("USER", "ann")
            .env("REGATTA_DATA_DIR", root.join("data"))
            .env("REGATTA_LISTEN", "127.0.0.1:0")
            .envs(token.map(|token| ("REGATTA_TOKEN", token)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        child
            .stdin
            .take()
            .expect("it is piped")
            .write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        if output.status.success() {
            return String::from_utf8(output.stdout).map_err(io::Error::other);
        }
        let error = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!(
            "{} {args:?} failed: {error}",
            program.display()
        )))
    }

    /// Returns the tools that the MCP server shows to the owner of a token, or to a person.
    fn tools(&self, token: Option<&str>) -> io::Result<Vec<Value>> {
        let client = json!({ "name": "reference", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        let calls = [
            json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }),
            json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} }),
        ];
        let input: String = calls.iter().map(|call| format!("{call}\n")).collect();
        let output = self.output(&self.program, &["mcp"], &input, token)?;
        let answers: Vec<Value> = output
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?;
        let answer = answers.iter().find(|answer| answer["id"] == 2);
        let tools = answer.and_then(|answer| answer["result"]["tools"].as_array());
        tools
            .cloned()
            .ok_or_else(|| io::Error::other(format!("no tools: {output}")))
    }

    /// Registers an outside agent, gives it a task and returns the token of its attempt.
    fn attempt_token(&self, agent: &str, options: &[&str]) -> io::Result<String> {
        let add = [&["agent", "add", agent, "--runtime", "outside"], options].concat();
        self.run(&add)?;
        self.run(&["add", agent, "--files", agent, "--assign", agent])?;
        let answer = self.run(&["task", "poll", "--as", agent, "--json"])?;
        let answer: Value = serde_json::from_str(&answer)?;
        let token = answer["data"]["bearer"].as_str().map(str::to_owned);
        token.ok_or_else(|| io::Error::other(format!("no attempt for {agent}: {answer}")))
    }

    /// Returns the daemon's page of metrics.
    fn metrics(&self) -> io::Result<String> {
        let opened = self.run(&["open"])?;
        let host = opened
            .trim()
            .trim_start_matches("http://")
            .split('/')
            .next()
            .unwrap_or("");
        let token = std::fs::read_to_string(self.directory.path().join("data/token"))?;
        let mut connection = TcpStream::connect(host)?;
        write!(
            connection,
            "GET /metrics HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\r\n",
            token.trim()
        )?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _stops_a_daemon_that_a_failure_left = self.run(&["down"]);
    }
}

/// The help of one command.
struct CommandHelp {
    name: String,
    text: String,
}

/// All commands: those of the short help and those for programs and rare use.
struct CommandTree {
    everyday: Vec<CommandHelp>,
    plumbing: Vec<CommandHelp>,
}

impl CommandTree {
    fn read(scratch: &Scratch) -> io::Result<CommandTree> {
        let help = scratch.run(&["--help"])?;
        let (top, rest) = help.split_once("\nPlumbing").unwrap_or((&help, ""));
        let top = top.lines().skip_while(|line| !line.starts_with("Start"));
        let mut everyday: Vec<String> = top.flat_map(names_in_help_line).collect();
        // The short help names some commands only in the description of another one.
        let manual = scratch.run(&["man"])?;
        for line in manual.lines() {
            let name = line
                .strip_prefix("regatta\\-")
                .and_then(|line| line.strip_suffix("(1)"));
            if let Some(name) = name.filter(|name| !everyday.iter().any(|known| known == name)) {
                everyday.push(name.to_owned());
            }
        }
        let plumbing = rest.lines().take_while(|line| !line.is_empty());
        let plumbing: Vec<String> = plumbing
            .flat_map(str::split_whitespace)
            .map(str::to_owned)
            .collect();
        if everyday.is_empty() || plumbing.is_empty() {
            return Err(io::Error::other("the help names no commands"));
        }
        let plumbing: Vec<String> = plumbing
            .into_iter()
            .filter(|name| !everyday.contains(name))
            .collect();
        Ok(CommandTree {
            everyday: read_helps(scratch, &everyday)?,
            plumbing: read_helps(scratch, &plumbing)?,
        })
    }
}

/// Returns the commands of a line such as `Start     up, down   start the daemon`.
fn names_in_help_line(line: &str) -> Vec<String> {
    const GROUP_COLUMNS: usize = 10;
    let names = line
        .get(GROUP_COLUMNS..)
        .and_then(|line| line.split("  ").next());
    let names = names.into_iter().flat_map(|names| names.split(", "));
    names.map(str::to_owned).collect()
}

fn read_helps(scratch: &Scratch, names: &[String]) -> io::Result<Vec<CommandHelp>> {
    let mut helps = Vec::new();
    for name in names.iter().filter(|name| *name != "help") {
        read_help(scratch, &[name], &mut helps)?;
    }
    Ok(helps)
}

/// Reads the help of a command and of its subcommands.
fn read_help(scratch: &Scratch, path: &[&str], helps: &mut Vec<CommandHelp>) -> io::Result<()> {
    let text = scratch.run(&[path, &["--help"]].concat())?;
    let subcommands: Vec<String> = text
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // Deeper lines continue a description.
        .filter_map(|line| {
            line.strip_prefix("  ")
                .filter(|line| !line.starts_with(' '))
        })
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|name| name != "help")
        .collect();
    helps.push(CommandHelp {
        name: path.join(" "),
        text,
    });
    for name in &subcommands {
        read_help(scratch, &[path, &[name.as_str()]].concat(), helps)?;
    }
    Ok(())
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

fn draw_helps(helps: &[CommandHelp]) -> String {
    let mut page = String::new();
    for CommandHelp { name, text } in helps {
        let (summary, details) = text.split_once("\n\n").unwrap_or((text, ""));
        let summary = summary.split_whitespace().collect::<Vec<_>>().join(" ");
        let level = if name.contains(' ') { "###" } else { "##" };
        let _ = write!(
            page,
            "\n{level} regatta {name}\n\n{}.\n\n```text\n{}\n```\n",
            escape(summary.trim_end_matches('.')),
            details.trim_end()
        );
    }
    page
}

fn http_page(openapi: &Value) -> String {
    let mut page = format!(
        "# HTTP operations\n\nFor people who write programs that use Regatta. After this page you \
         know every verb with the rights that it needs, its input and its answer. [The \
         API](../api.md) explains tokens, pages, conditions and events. {GENERATED}\n\n\
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
    page
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
            .map(|value| format!("`{value}`"))
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
