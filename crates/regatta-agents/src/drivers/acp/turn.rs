//! The program's updates during a turn, and the end of a turn.

use std::collections::BTreeMap;

use regatta_core::session::{Class, PlanEntry, Said, Stop, Tool, ToolKind, ToolStatus, Usage};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Acp, Sent, Session, stop_of};
use crate::drivers::input::{add, names_command, read_input};
use crate::drivers::rpc::Fault;
use crate::drivers::verdict::{Trouble, of_text, shorten, whole};
use crate::shim::tool_output::CONTINUES;

/// The maximum length of a tool's output that is kept, in characters.
const OUTPUT: usize = 4000;

/// A tool call and the texts of its content, which an update may continue.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownCall {
    pub(super) tool: Tool,
    texts: Vec<String>,
}

/// The running turn.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    pub(super) cancelled: bool,
    pub(super) tools: BTreeMap<String, KnownCall>,
    /// The last error from a separate update. The turn may still end normally, and the program may
    /// retry.
    aside: Value,
    broken: bool,
}

impl Acp {
    /// Processes a `session/update`.
    pub(super) fn updated(&mut self, params: &Value) -> Vec<Said> {
        // A loaded session repeats its history, which is neither new work nor new usage.
        if self.awaits(Sent::Load) {
            return vec![];
        }
        if matches!((&self.session, params["sessionId"].as_str()), (Session::Open(ours), Some(its)) if ours != its) {
            return vec![];
        }
        let update = &params["update"];
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => content(&update["content"])
                .map(|text| {
                    self.words.add(&text);
                    Said::Message { text }
                })
                .into_iter()
                .collect(),
            "agent_thought_chunk" => {
                content(&update["content"]).map(|text| Said::Thought { text }).into_iter().collect()
            }
            "tool_call" | "tool_call_update" => self.tool(update).map(Said::Tool).into_iter().collect(),
            "plan" => {
                let entries = update["entries"].as_array().into_iter().flatten();
                let entries = entries.map(|it| PlanEntry {
                    text: it["content"].as_str().unwrap_or_default().to_owned(),
                    status: word(&it["status"]).unwrap_or_default(),
                });
                vec![Said::Plan { entries: entries.collect() }]
            }
            "usage_update" => self.filled(update),
            "config_option_update" | "current_mode_update" => self.reconfigured(update),
            "session_info_update" => {
                self.told_aside(&update["_meta"]["codex"]);
                vec![]
            }
            "notice" | "compaction_update" => {
                let words = ["message", "text", "title", "status"].iter().find_map(|it| update[*it].as_str());
                let text = words.map_or_else(|| shorten(&update.to_string(), 300), str::to_owned);
                vec![Said::Notice { text }]
            }
            // These are the user's own prompts, the available commands, and kinds that later
            // versions add.
            _ => vec![],
        }
    }

    /// Merges an update into the known tool call. Updates contain only changes and may come without
    /// an announcement.
    fn tool(&mut self, update: &Value) -> Option<Tool> {
        match &mut self.turn {
            Some(turn) => merge(&mut turn.tools, update),
            None => merge(&mut BTreeMap::new(), update),
        }
    }

    fn filled(&mut self, update: &Value) -> Vec<Said> {
        let mut said = Vec::new();
        if let (Some(used), Some(size)) = (update["used"].as_u64(), update["size"].as_u64())
            && size > 0
        {
            said.push(Said::Context { used, size });
        }
        let cost = &update["cost"];
        let dollars = cost["currency"].as_str().is_none_or(|it| it.eq_ignore_ascii_case("usd"));
        if let Some(amount) = cost["amount"].as_f64().filter(|_| dollars) {
            said.extend(self.books.reach(Usage { micro_usd: Some(whole(amount * 1e6)), ..Usage::default() }));
        }
        said
    }

    /// Processes an error or status that Codex's adapter reports only in a separate update.
    fn told_aside(&mut self, codex: &Value) {
        let Some(turn) = &mut self.turn else { return };
        if codex["error"].is_object() {
            turn.aside = codex["error"].clone();
            turn.broken |= turn.aside["willRetry"] != true;
        }
        match codex["threadStatus"]["type"].as_str() {
            Some("systemError") => turn.broken = true,
            Some("active") => turn.broken = false,
            _ => {}
        }
    }

    pub(super) fn turn_answered(&mut self, outcome: Result<Value, Fault>, at: u64) -> Vec<Said> {
        let turn = self.turn.take().unwrap_or_default();
        let mut said = self.asks.cancel();
        let result = match outcome {
            Ok(result) => result,
            Err(_) if turn.cancelled => {
                return self.over(said, Some(Trouble::new(Class::Cancelled, "The turn was cancelled.")));
            }
            Err(fault) => {
                let trouble = Trouble::read(&fault.words(), Some(fault.code), &fault.data, at);
                return self.over(said, Some(trouble));
            }
        };
        let used = usage(&result);
        if let Some(used) = used {
            said.extend(if self.quirks.cumulative { self.books.reach(used) } else { self.books.add(used) });
        }
        let reason = result["stopReason"].as_str().unwrap_or_default();
        let Some(stop) = stop_of(reason) else {
            let why = format!("The program ended its turn with {reason:?}, which is not part of the protocol.");
            return self.over(said, Some(Trouble::new(Class::Crashed, why)));
        };
        let trouble = match stop {
            Stop::Cancelled => Some(Trouble::new(Class::Cancelled, "The turn was cancelled.")),
            Stop::Refusal => Some(Trouble::new(Class::Refused, self.last_words("The model declined."))),
            Stop::EndTurn => self.behind_the_smile(&turn, used.is_some(), at),
            _ => None,
        };
        if trouble.is_some() {
            return self.over(said, trouble);
        }
        self.last = Some(None);
        said.push(Said::TurnEnded { stop, class: None, detail: self.words.text().to_owned() });
        said
    }

    /// Returns the failure behind a turn that the program ended normally, if there is one.
    fn behind_the_smile(&self, turn: &Turn, used: bool, at: u64) -> Option<Trouble> {
        let words = self.words.text();
        if turn.broken {
            let told = ["additionalDetails", "message"].iter().find_map(|it| turn.aside[*it].as_str());
            let words = if words.is_empty() { told.unwrap_or("The model's provider failed.") } else { words };
            return Some(Trouble::read(words, None, &turn.aside, at));
        }
        let worked = turn.tools.values().any(|call| call.tool.status == ToolStatus::Completed);
        let short = words.len() < 2000;
        let failed = self.quirks.smiles && !used && !worked && short && of_text(words).is_some();
        failed.then(|| Trouble::read(words, None, &Value::Null, at))
    }

    fn last_words(&self, otherwise: &str) -> String {
        let words = self.words.text();
        if words.is_empty() { otherwise.to_owned() } else { words.to_owned() }
    }

    fn over(&mut self, mut said: Vec<Said>, trouble: Option<Trouble>) -> Vec<Said> {
        said.extend(trouble.iter().flat_map(Trouble::ends_turn));
        self.last = Some(trouble);
        said
    }
}

/// Returns the usage of a turn, if the answer contains it.
fn usage(result: &Value) -> Option<Usage> {
    let count = |from: &Value, names: &[&str]| names.iter().find_map(|it| from[*it].as_u64()).unwrap_or(0);
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

/// Returns the text of a content block.
fn content(block: &Value) -> Option<String> {
    match block["type"].as_str() {
        Some("text") => block["text"].as_str().filter(|it| !it.is_empty()).map(str::to_owned),
        Some("resource_link") => block["uri"].as_str().map(|it| format!("[{it}]")),
        _ => None,
    }
}

/// Reads a value whose protocol name is also its name in Regatta.
fn word<T: DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

/// Merges a `tool_call`, a `tool_call_update` or the tool call of a permission request.
pub(super) fn merge(tools: &mut BTreeMap<String, KnownCall>, update: &Value) -> Option<Tool> {
    let id = update["toolCallId"].as_str()?;
    let KnownCall { tool, texts } = tools.entry(id.to_owned()).or_default();
    if tool.id.is_empty() {
        id.clone_into(&mut tool.id);
    }
    if let Some(title) = update["title"].as_str() {
        tool.title = shorten(title, 500);
    }
    // An unknown kind becomes "other".
    if update["kind"].is_string() {
        tool.kind = word::<ToolKind>(&update["kind"]).unwrap_or_default();
    }
    tool.status = word(&update["status"]).unwrap_or(tool.status);
    let input = &update["rawInput"];
    if tool.kind == ToolKind::Other && !update["kind"].is_string() && names_command(input) {
        tool.kind = ToolKind::Execute;
    }
    read_input(tool, input);
    let mut add_path = |path: Option<&str>| add(&mut tool.paths, path.unwrap_or_default());
    update["locations"].as_array().into_iter().flatten().for_each(|it| add_path(it["path"].as_str()));
    let blocks = update["content"].as_array().into_iter().flatten();
    let mut found = Vec::new();
    for (nth, block) in blocks.enumerate() {
        add_path(block["path"].as_str());
        let Some(mut text) = content(&block["content"]) else { continue };
        if continues(update, nth)
            && let Some(before) = texts.get(found.len())
        {
            text.insert_str(0, before);
        }
        found.push(shorten(&text, OUTPUT));
    }
    if !found.is_empty() {
        tool.output = Some(shorten(found.join("\n").trim_end(), OUTPUT));
        *texts = found;
    }
    Some(tool.clone())
}

/// Returns whether the journal has only the continuation of this block of an update (see
/// `shim/tool_output.rs`).
fn continues(update: &Value, block: usize) -> bool {
    let pointers = update["_meta"]["regatta"][CONTINUES].as_array().into_iter().flatten();
    pointers.filter_map(Value::as_str).any(|pointer| pointer == format!("/content/{block}/content/text"))
}
