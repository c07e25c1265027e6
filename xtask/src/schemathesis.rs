//! `cargo xtask schemathesis`: tests the served API against the served OpenAPI document with
//! Schemathesis.
//!
//! Schemathesis is installed from the Python package index into the build directory. The document
//! comes from a daemon started for the test and is reduced first: calls that end the daemon or
//! write to any path (`down`, `backup`) and the endless event stream are removed, and waits are
//! shortened.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::args::Args;
use crate::bench::start::{BenchDaemon, program_path};
use crate::report::reports_dir;

const VERSION: &str = "4.32.5";
/// Paths that are removed from the document; see the module's documentation.
const SKIPPED_PATHS: [&str; 3] = ["/api/v1/down", "/api/v1/backup", "/api/v1/events"];
/// Fields with the duration of a wait.
const WAIT_FIELDS: [&str; 2] = ["wait_ms", "timeout_ms"];
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let program = install()?;
    let scratch = args.scratch_dir()?;
    let root = scratch.path().canonicalize()?;
    let daemon = BenchDaemon::start(&program_path(args)?, &root)?;
    let card: Value = serde_json::from_slice(&std::fs::read(root.join("daemon.json"))?)?;
    let url = card["url"]
        .as_str()
        .context("no url")?
        .trim_end_matches('/')
        .to_owned();
    let token = std::fs::read_to_string(root.join("token"))?
        .trim()
        .to_owned();
    add_sample_data(&program_path(args)?, &root)?;
    let document = root.join("openapi.json");
    let fetched = fetch(&url, &token)?;
    std::fs::write(&document, serde_json::to_vec(&adapt_document(fetched))?)?;
    let examples = args.number("samples", 30u32)?.to_string();
    let seed = args.number("seed", 1u32)?.to_string();
    let status = Command::new(program)
        .args([
            "run",
            "--url",
            &url,
            "--checks",
            CHECKS,
            "--max-examples",
            &examples,
            "--seed",
            &seed,
        ])
        .args([
            "--phases",
            "examples,coverage,fuzzing",
            // Without a duration in the request, a call waits for half a minute.
            "--request-timeout",
            "60",
            "--no-color",
            "--continue-on-failure",
        ])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .arg(&document)
        .current_dir(&root)
        .status()
        .context("could not start schemathesis")?;
    // The daemon must still run and answer.
    fetch(&url, &token).context("the daemon did not survive the test")?;
    let log = std::fs::read_to_string(root.join("daemon.err")).unwrap_or_default();
    ensure!(!log.contains("panicked"), "the daemon panicked:\n{log}");
    daemon.kill()?;
    println!(
        "{}",
        if status.success() {
            "good: no 5xx and no violation of the document"
        } else {
            "see the findings above"
        }
    );
    Ok(status.success())
}

fn install() -> anyhow::Result<PathBuf> {
    let place = reports_dir().join(format!("schemathesis-{VERSION}"));
    let program = place.join("bin/schemathesis");
    if !program.exists() {
        let made = Command::new("python3")
            .args(["-m", "venv"])
            .arg(&place)
            .status()
            .context("python3 is needed")?;
        ensure!(made.success(), "python3 -m venv failed");
        let pip = Command::new(place.join("bin/pip"))
            .args(["install", "-q", &format!("schemathesis=={VERSION}")])
            .status()?;
        ensure!(pip.success(), "pip install schemathesis failed");
    }
    Ok(program)
}

/// Creates a repository, an agent and a task, so that requests have something to find.
fn add_sample_data(binary: &Path, root: &Path) -> anyhow::Result<()> {
    let repo = root.join("shop");
    std::fs::create_dir(&repo)?;
    std::fs::write(repo.join("a.txt"), "a\n")?;
    let run = |program: &Path, words: &[&str]| -> anyhow::Result<()> {
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(&repo)
            .env("HOME", root)
            .env("REGATTA_DATA_DIR", root);
        ensure!(
            command.output()?.status.success(),
            "{} {words:?} failed",
            program.display()
        );
        Ok(())
    };
    let git = Path::new("git");
    run(git, &["init", "-q", "-b", "main", "."])?;
    run(git, &["add", "-A"])?;
    run(
        git,
        &[
            "-c",
            "user.name=Ann",
            "-c",
            "user.email=ann@example.invalid",
            "commit",
            "-q",
            "-m",
            "Start",
        ],
    )?;
    run(binary, &["init", "--yes"])?;
    run(binary, &["agent", "add", "ann", "--runtime", "outside"])?;
    run(binary, &["add", "Look", "--report"])
}

fn fetch(url: &str, token: &str) -> anyhow::Result<Value> {
    let address = url.trim_start_matches("http://").parse()?;
    let mut line = crate::bench::http::connection::HttpConnection::open(address, token)?;
    Ok(serde_json::from_str(&line.get("/api/v1/openapi.json")?)?)
}

fn adapt_document(mut document: Value) -> Value {
    if let Some(paths) = document["paths"].as_object_mut() {
        paths.retain(|path, _| !SKIPPED_PATHS.contains(&path.as_str()));
    }
    limit_waits(&mut document);
    document
}

/// Returns whether a schema, by its name, is part of an answer. Durations there must not be
/// changed.
fn is_answer_schema(name: &str) -> bool {
    name.ends_with("View")
}

fn limit_waits(value: &mut Value) {
    match value {
        Value::Object(object) => {
            // The generator would treat the elements of the list as one schema.
            object.remove("prefixItems");
            for (name, schema) in object.iter_mut() {
                if is_answer_schema(name) {
                    continue;
                }
                if WAIT_FIELDS.contains(&name.as_str()) {
                    *schema = json!({ "type": "integer", "minimum": 0, "maximum": 20 });
                } else {
                    limit_waits(schema);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(limit_waits),
        _ => {}
    }
}
