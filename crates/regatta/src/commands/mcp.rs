//! The command `mcp`: offers Regatta's tools over standard input and output (Model Context
//! Protocol), for programs that start their tool servers themselves.
//!
//! The command knows nothing about the tools: it passes each line (one call) to the daemon
//! unchanged, and prints the answer as a line. A call can take a long time, so each call has its
//! own thread. The number of calls at once is limited.

use std::io::{BufRead, Read, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::CommandContext;
use crate::client::Client;
use crate::output::{CommandError, CommandResult, command_error, internal_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: crate::commands::CommandExamples = &[("mcp", &["regatta mcp"])];

/// The maximum number of MCP messages that are forwarded to the daemon at the same time. At this
/// number, the command reads no further line until the daemon has answered one.
const MAX_CONCURRENT_CALLS: usize = 32;
/// The maximum length of a line on standard input (one MCP message) in bytes.
const MAX_LINE_BYTES: u64 = 8 * 1024 * 1024;

/// Runs `regatta mcp` until standard input ends.
pub(super) fn mcp(app: &CommandContext) -> CommandResult {
    let client = app.client()?;
    let client = Arc::new(match std::env::var("REGATTA_TOKEN") {
        // A token in the environment, such as that of an attempt, takes precedence over the token
        // of the data directory.
        Ok(token) if !token.is_empty() => client.with_other_token(token),
        _ => client,
    });
    let (places, free) = sync_channel::<()>(MAX_CONCURRENT_CALLS);
    let free = Arc::new(Mutex::new(free));
    let mut calls = Vec::new();
    let mut input = std::io::BufReader::new(std::io::stdin());
    loop {
        let mut line = Vec::new();
        let read = input
            .by_ref()
            .take(MAX_LINE_BYTES + 1)
            .read_until(b'\n', &mut line);
        match read {
            Ok(0) => break,
            Ok(_) if line.len() as u64 > MAX_LINE_BYTES => {
                return Err(command_error(
                    "too_long",
                    "a line on standard input is longer than 8 MiB, the maximum of one message",
                    "send shorter messages",
                ));
            }
            Ok(_) if line.trim_ascii().is_empty() => continue,
            Ok(_) => {}
            Err(error) => {
                return Err(command_error(
                    "io",
                    format!("could not read standard input: {error}"),
                    "start the program again",
                ));
            }
        }
        let client = client.clone();
        let done = SlotGuard {
            free_slots: free.clone(),
        };
        acquire_slot(&places)?;
        calls.retain(|handle: &std::thread::JoinHandle<()>| !handle.is_finished());
        calls.push(std::thread::spawn(move || {
            let _done = done;
            if let Some(answer) = forward_message(&client, &line) {
                print_line(&answer);
            }
        }));
    }
    for call in calls {
        // Ignore the result: a thread that panicked has already printed its error.
        let _ended = call.join();
    }
    Ok(())
}

/// Waits until fewer than [`MAX_CONCURRENT_CALLS`] messages are being forwarded, and takes one of
/// the free places.
fn acquire_slot(places: &SyncSender<()>) -> CommandResult {
    places.send(()).map_err(|_| {
        internal_error("regatta mcp cannot accept further calls because of an internal error")
    })
}

/// One of the [`MAX_CONCURRENT_CALLS`] places for messages that are being forwarded. Dropping this
/// value frees the place, even if the forwarding thread panics.
struct SlotGuard {
    free_slots: Arc<Mutex<std::sync::mpsc::Receiver<()>>>,
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let _counted = self
            .free_slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .try_recv();
    }
}

/// Prints one MCP message as a line on standard output.
fn print_line(line: &[u8]) {
    let mut out = std::io::stdout().lock();
    // If the reader has closed the pipe, the error cannot be reported anywhere.
    let _gone = out
        .write_all(line.trim_ascii())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
}

/// Sends one message to the daemon and returns the answer line. Returns `None` for a notification,
/// which has no answer.
fn forward_message(client: &Client, line: &[u8]) -> Option<Vec<u8>> {
    let message: Value = serde_json::from_slice(line).unwrap_or_default();
    let params = &message["params"];
    let mut headers = vec![("accept", "application/json, text/event-stream".to_owned())];
    // MCP over HTTP requires that some fields of the message are repeated in the HTTP headers.
    if let Some(version) = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str() {
        headers.push(("mcp-protocol-version", version.to_owned()));
        headers.extend(
            message["method"]
                .as_str()
                .map(|message| ("mcp-method", message.to_owned())),
        );
        headers.extend(
            params["name"]
                .as_str()
                .or(params["uri"].as_str())
                .map(|param| ("mcp-name", param.to_owned())),
        );
    }
    let broken = |problem: Value| {
        let id = message.get("id")?;
        let text = format!(
            "{}: {}",
            problem["message"].as_str().unwrap_or_default(),
            problem["hint"].as_str().unwrap_or_default()
        );
        let error = json!({ "code": -32001, "message": text, "data": problem });
        Some(
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
                .to_string()
                .into_bytes(),
        )
    };
    match client.post_raw("/mcp", &headers, line.to_vec()) {
        Ok((202, _)) => None,
        Ok((_, body)) => {
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            if answer["jsonrpc"] == "2.0" {
                Some(answer.to_string().into_bytes())
            } else {
                broken(answer)
            }
        }
        Err(CommandError::Problem(problem)) => broken(json!(problem)),
        Err(CommandError::Exit(_)) => broken(Value::Null),
    }
}
