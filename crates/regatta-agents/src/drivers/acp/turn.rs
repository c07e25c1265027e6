//! Reads the updates that the program sends while it works on a prompt, and the answer that ends
//! the turn.

use std::collections::BTreeMap;

use regatta_core::agent_protocol::{
    AgentEvent, FailureClass, PlanEntry, StopReason, ToolCall, ToolKind, ToolStatus, Usage,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{AcpDriver, AcpSession, SentRequest, parse_stop_reason};
use crate::drivers::error_class::{ProgramFailure, class_from_text, shorten, to_count};
use crate::drivers::rpc::RpcError;
use crate::drivers::tool_call_object::{has_command, push_unique, read_input};
use crate::shim::tool_output::CONTINUES_FIELD;

/// The number of characters that are kept of a tool's output.
const MAX_TOOL_OUTPUT_CHARS: usize = 4000;

/// A tool call of the agent and the texts of its output blocks. The next update may send only the
/// continuation of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolCallState {
    pub(super) tool: ToolCall,
    texts: Vec<String>,
}

/// The state of the turn, which is the program's work on one prompt.
#[derive(Clone, Debug, Default)]
pub(super) struct AcpTurn {
    pub(super) is_cancelled: bool,
    pub(super) tool_calls: BTreeMap<String, ToolCallState>,
    /// The last error that Codex's adapter sent in a `session_info_update`. This error does not
    /// always end the turn, because the program may retry.
    codex_error: Value,
    has_codex_failed: bool,
}

impl AcpDriver {
    /// Translates a `session/update` notification of the program into events.
    pub(super) fn on_session_update(&mut self, params: &Value) -> Vec<AgentEvent> {
        // While a session is being loaded, the program repeats its history. Ignore the history,
        // because it is neither new work nor new usage.
        if self.is_waiting_for(SentRequest::LoadSession) {
            return vec![];
        }
        if matches!((&self.session, params["sessionId"].as_str()), (AcpSession::Open(own), Some(theirs)) if own != theirs)
        {
            return vec![];
        }
        let update = &params["update"];
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => block_text(&update["content"])
                .map(|text| {
                    self.answer.add(&text);
                    AgentEvent::Message { text }
                })
                .into_iter()
                .collect(),
            "agent_thought_chunk" => block_text(&update["content"])
                .map(|text| AgentEvent::Thought { text })
                .into_iter()
                .collect(),
            "tool_call" | "tool_call_update" => self
                .update_tool_call(update)
                .map(AgentEvent::Tool)
                .into_iter()
                .collect(),
            "plan" => {
                let entries = update["entries"].as_array().into_iter().flatten();
                let entries = entries.map(|value| PlanEntry {
                    text: value["content"].as_str().unwrap_or_default().to_owned(),
                    status: parse_name(&value["status"]).unwrap_or_default(),
                });
                vec![AgentEvent::Plan {
                    entries: entries.collect(),
                }]
            }
            "usage_update" => self.on_usage_update(update),
            "config_option_update" | "current_mode_update" => self.on_config_update(update),
            "session_info_update" => {
                self.on_codex_status(&update["_meta"]["codex"]);
                vec![]
            }
            "notice" | "compaction_update" => {
                let message = ["message", "text", "title", "status"]
                    .iter()
                    .find_map(|key| update[*key].as_str());
                let text = message.map_or_else(|| shorten(&update.to_string(), 300), str::to_owned);
                vec![AgentEvent::Notice { text }]
            }
            // Ignore all other updates: repetitions of the user's prompts, lists of commands, and
            // kinds that later versions of the protocol add.
            _ => vec![],
        }
    }

    /// Merges an update into the tool call with the same id and returns the result. An update
    /// contains only the fields that changed, and may come for a call that was never announced.
    fn update_tool_call(&mut self, update: &Value) -> Option<ToolCall> {
        match &mut self.turn {
            Some(turn) => merge_tool_call(&mut turn.tool_calls, update),
            None => merge_tool_call(&mut BTreeMap::new(), update),
        }
    }

    fn on_usage_update(&mut self, update: &Value) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        if let (Some(used), Some(size)) = (update["used"].as_u64(), update["size"].as_u64())
            && size > 0
        {
            events.push(AgentEvent::Context { used, size });
        }
        let cost = &update["cost"];
        let is_usd = cost["currency"]
            .as_str()
            .is_none_or(|currency| currency.eq_ignore_ascii_case("usd"));
        if let Some(amount) = cost["amount"].as_f64().filter(|_| is_usd) {
            events.extend(self.usage_total.raise_to(Usage {
                micro_usd: Some(to_count(amount * 1e6)),
                ..Usage::default()
            }));
        }
        events
    }

    /// Remembers an error or failed status from the `_meta.codex` field, the only place where
    /// Codex's adapter reports it.
    fn on_codex_status(&mut self, codex: &Value) {
        let Some(turn) = &mut self.turn else { return };
        if codex["error"].is_object() {
            turn.codex_error = codex["error"].clone();
            turn.has_codex_failed |= turn.codex_error["willRetry"] != true;
        }
        match codex["threadStatus"]["type"].as_str() {
            Some("systemError") => turn.has_codex_failed = true,
            Some("active") => turn.has_codex_failed = false,
            _ => {}
        }
    }

    pub(super) fn on_prompt_response(
        &mut self,
        outcome: Result<Value, RpcError>,
        at_unix_ms: u64,
    ) -> Vec<AgentEvent> {
        let turn = self.turn.take().unwrap_or_default();
        let mut events = self.open_requests.cancel_all();
        let result = match outcome {
            Ok(result) => result,
            Err(_) if turn.is_cancelled => {
                return self.end_turn(
                    events,
                    Some(ProgramFailure::new(
                        FailureClass::Cancelled,
                        "The turn was cancelled.",
                    )),
                );
            }
            Err(fault) => {
                let failure = ProgramFailure::classify(
                    &fault.full_text(),
                    Some(fault.code),
                    &fault.data,
                    at_unix_ms,
                );
                return self.end_turn(events, Some(failure));
            }
        };
        let usage = read_usage(&result);
        if let Some(usage) = usage {
            events.extend(if self.quirks.has_cumulative_usage {
                self.usage_total.raise_to(usage)
            } else {
                self.usage_total.add(usage)
            });
        }
        let reason = result["stopReason"].as_str().unwrap_or_default();
        let Some(stop) = parse_stop_reason(reason) else {
            let reason = format!(
                "The program ended its turn with {reason:?}, which is not part of the protocol."
            );
            return self.end_turn(
                events,
                Some(ProgramFailure::new(FailureClass::Crashed, reason)),
            );
        };
        let failure = match stop {
            StopReason::Cancelled => Some(ProgramFailure::new(
                FailureClass::Cancelled,
                "The turn was cancelled.",
            )),
            StopReason::Refusal => Some(ProgramFailure::new(
                FailureClass::Refused,
                self.answer_or("The model declined the request."),
            )),
            StopReason::EndTurn => self.hidden_failure(&turn, usage.is_some(), at_unix_ms),
            _ => None,
        };
        if failure.is_some() {
            return self.end_turn(events, failure);
        }
        self.last_turn_failure = Some(None);
        events.push(AgentEvent::TurnEnded {
            stop,
            class: None,
            detail: self.answer.text().to_owned(),
        });
        events
    }

    /// Returns the failure of a turn that the program ended as if it had succeeded, or `None` if
    /// the turn did succeed.
    fn hidden_failure(
        &self,
        turn: &AcpTurn,
        has_usage: bool,
        at_unix_ms: u64,
    ) -> Option<ProgramFailure> {
        let answer = self.answer.text();
        if turn.has_codex_failed {
            let codex_message = ["additionalDetails", "message"]
                .iter()
                .find_map(|key| turn.codex_error[*key].as_str());
            let answer = if answer.is_empty() {
                codex_message.unwrap_or("The model's provider failed.")
            } else {
                answer
            };
            return Some(ProgramFailure::classify(
                answer,
                None,
                &turn.codex_error,
                at_unix_ms,
            ));
        }
        let has_worked = turn
            .tool_calls
            .values()
            .any(|call| call.tool.status == ToolStatus::Completed);
        let is_short = answer.len() < 2000;
        let has_failed = self.quirks.hides_failures
            && !has_usage
            && !has_worked
            && is_short
            && class_from_text(answer).is_some();
        has_failed.then(|| ProgramFailure::classify(answer, None, &Value::Null, at_unix_ms))
    }

    fn answer_or(&self, default: &str) -> String {
        let answer = self.answer.text();
        if answer.is_empty() {
            default.to_owned()
        } else {
            answer.to_owned()
        }
    }

    fn end_turn(
        &mut self,
        mut events: Vec<AgentEvent>,
        failure: Option<ProgramFailure>,
    ) -> Vec<AgentEvent> {
        events.extend(failure.iter().flat_map(ProgramFailure::turn_end_events));
        self.last_turn_failure = Some(failure);
        events
    }
}

/// Returns the tokens that a turn used, or `None` if the program's answer does not contain them.
fn read_usage(result: &Value) -> Option<Usage> {
    let count = |from: &Value, names: &[&str]| {
        names
            .iter()
            .find_map(|name| from[*name].as_u64())
            .unwrap_or(0)
    };
    let used = &result["usage"];
    if used.is_object() {
        return Some(Usage {
            input: count(used, &["inputTokens"]),
            cached_input: count(used, &["cachedReadTokens", "cachedInputTokens"]),
            cache_write: count(used, &["cachedWriteTokens"]),
            output: count(used, &["outputTokens"]),
            micro_usd: None,
        });
    }
    let quota = &result["_meta"]["quota"]["token_count"];
    quota.is_object().then(|| Usage {
        input: count(quota, &["input_tokens"]),
        output: count(quota, &["output_tokens"]),
        ..Usage::default()
    })
}

/// Returns the text of a protocol content block, or a link's address in brackets. Returns `None`
/// for other content.
fn block_text(block: &Value) -> Option<String> {
    match block["type"].as_str() {
        Some("text") => block["text"]
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned),
        Some("resource_link") => block["uri"].as_str().map(|uri| format!("[{uri}]")),
        _ => None,
    }
}

/// Parses an enum value for which the protocol and Regatta use the same name. Returns `None` for an
/// unknown name.
fn parse_name<T: DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

/// Merges a message about a tool call into `tools` and returns the complete call. The message is a
/// `tool_call`, a `tool_call_update` or the `toolCall` of a permission request.
pub(super) fn merge_tool_call(
    tools: &mut BTreeMap<String, ToolCallState>,
    update: &Value,
) -> Option<ToolCall> {
    let id = update["toolCallId"].as_str()?;
    let ToolCallState { tool, texts } = tools.entry(id.to_owned()).or_default();
    if tool.id.is_empty() {
        id.clone_into(&mut tool.id);
    }
    if let Some(title) = update["title"].as_str() {
        tool.title = shorten(title, 500);
    }
    // A kind of tool that Regatta does not know becomes `other`.
    if update["kind"].is_string() {
        tool.kind = parse_name::<ToolKind>(&update["kind"]).unwrap_or_default();
    }
    tool.status = parse_name(&update["status"]).unwrap_or(tool.status);
    let input = &update["rawInput"];
    if tool.kind == ToolKind::Other && !update["kind"].is_string() && has_command(input) {
        tool.kind = ToolKind::Execute;
    }
    read_input(tool, input);
    let mut add_path = |path: Option<&str>| push_unique(&mut tool.paths, path.unwrap_or_default());
    update["locations"]
        .as_array()
        .into_iter()
        .flatten()
        .for_each(|location| add_path(location["path"].as_str()));
    let blocks = update["content"].as_array().into_iter().flatten();
    let mut new_texts = Vec::new();
    for (index, block) in blocks.enumerate() {
        add_path(block["path"].as_str());
        let Some(mut text) = block_text(&block["content"]) else {
            continue;
        };
        if is_continuation(update, index)
            && let Some(before) = texts.get(new_texts.len())
        {
            text.insert_str(0, before);
        }
        new_texts.push(shorten(&text, MAX_TOOL_OUTPUT_CHARS));
    }
    if !new_texts.is_empty() {
        tool.output = Some(shorten(
            new_texts.join("\n").trim_end(),
            MAX_TOOL_OUTPUT_CHARS,
        ));
        *texts = new_texts;
    }
    Some(tool.clone())
}

/// Returns whether this output block of an update contains only new text, which follows the text
/// that is already in the journal (see `shim/tool_output.rs`).
fn is_continuation(update: &Value, block: usize) -> bool {
    let pointers = update["_meta"]["regatta"][CONTINUES_FIELD]
        .as_array()
        .into_iter()
        .flatten();
    pointers
        .filter_map(Value::as_str)
        .any(|pointer| pointer == format!("/content/{block}/content/text"))
}
