//! The driver for Claude Code's own stream: JSON lines in both directions, with one long-lived
//! process.
//!
//! It was tested with 2.1.197 and 2.1.325. Requests in both directions are `control_request`s. The
//! answer that allows a tool must contain an `updatedInput`, and an empty one keeps the input. That
//! matters because the driver knows the input only from the journal, where secrets are redacted.

use std::collections::BTreeMap;

use regatta_core::session::{
    Answer, Ask, AskOption, Class, OptionKind, PlanEntry, Said, Stop, Tool, ToolKind, ToolStatus, Usage, Want,
};
use regatta_engine::ports::agents::{Exit, Wishes};
use serde_json::{Value, json};

use super::Setup;
use super::acp::filled;
use super::common::{Asks, Course, Ledger, Tail, unreadable};
use super::input::read_input;
use super::verdict::{Trouble, shorten, whole};
use crate::driver::{Driver, Judgement, Record, Say, Stream};

/// The maximum length of a tool's output that is kept, in characters.
const OUTPUT: usize = 4000;

/// The subject of an open request.
#[derive(Clone, Debug)]
enum What {
    Permission,
    /// The questions as they came, and the schema of their form.
    Questions(Value, Value),
}

#[derive(Clone, Debug, Default)]
struct Turn {
    cancelled: bool,
    /// The usage of each call of the model, by the id of its message.
    calls: BTreeMap<String, Usage>,
    before: Usage,
    /// The kind of error that the program named, and the limit with its end.
    kind: Option<String>,
    reset: Option<Value>,
}

pub(super) struct Claude {
    session: String,
    /// The number of control requests that were sent, which gives them their ids.
    controls: u64,
    greeted: bool,
    open: bool,
    failed: Option<Trouble>,
    prompts: u64,
    cancels: u32,
    turn: Option<Turn>,
    last: Option<Option<Trouble>>,
    tools: BTreeMap<String, Tool>,
    asks: Asks<What>,
    /// Requests of the program that have to be refused: subtype and id.
    refused: Vec<(String, Value)>,
    books: Ledger,
    /// The size of the model's context.
    size: Option<u64>,
    words: Tail,
    errors: Tail,
    closed: bool,
}

impl Claude {
    pub(super) fn new(setup: &Setup) -> Claude {
        let mut books = Ledger::from(setup.used);
        let session = setup.session_id();
        books.session = Some(session.clone());
        Claude {
            session,
            controls: 0,
            greeted: false,
            open: false,
            failed: None,
            prompts: 0,
            cancels: 0,
            turn: None,
            last: None,
            tools: BTreeMap::new(),
            asks: Asks::default(),
            refused: Vec::new(),
            books,
            size: None,
            words: Tail::of_answer(),
            errors: Tail::default(),
            closed: false,
        }
    }

    fn was_said(&mut self, line: &str) -> Vec<Said> {
        let Ok(message) = serde_json::from_str::<Value>(line) else { return vec![] };
        match message["type"].as_str().unwrap_or_default() {
            "user" => {
                let n = self.prompts;
                self.prompts += 1;
                self.turn = Some(Turn { before: self.books.total(), ..Turn::default() });
                self.words.clear();
                self.tools.clear();
                vec![Said::TurnStarted { n }]
            }
            "control_request" => {
                self.controls += 1;
                match message["request"]["subtype"].as_str() {
                    Some("interrupt") => {
                        self.cancels += 1;
                        if let Some(turn) = &mut self.turn {
                            turn.cancelled = true;
                        }
                        self.asks.cancel()
                    }
                    _ => {
                        self.greeted = true;
                        vec![]
                    }
                }
            }
            "control_response" => {
                let id = &message["response"]["request_id"];
                self.refused.retain(|(_, it)| it != id);
                self.asks.close(id);
                vec![]
            }
            _ => vec![],
        }
    }

    fn heard(&mut self, line: &str, at: u64) -> Vec<Said> {
        let Ok(message @ Value::Object(_)) = serde_json::from_str::<Value>(line) else {
            if line.trim().is_empty() {
                return vec![];
            }
            self.errors.add_line(line);
            return vec![unreadable(line)];
        };
        match message["type"].as_str().unwrap_or_default() {
            "control_response" => self.control_answered(&message["response"], at),
            "control_request" => self.asked(&message),
            "control_cancel_request" => {
                let id = &message["request_id"];
                let said = self.asks.withdraw(id);
                self.asks.close(id);
                said.into_iter().collect()
            }
            "assistant" => self.spoke(&message),
            "user" => self.tool_results(&message["message"]["content"]),
            "result" => self.ended(&message, at),
            "rate_limit_event" => self.limited(&message["rate_limit_info"], at),
            "system" => system(&message),
            // There are about forty other kinds, and later versions add more.
            _ => vec![],
        }
    }

    fn control_answered(&mut self, response: &Value, at: u64) -> Vec<Said> {
        if self.open || !self.greeted || response["request_id"] != "regatta-0" {
            return vec![];
        }
        if response["subtype"] == "error" {
            let words = response["error"].as_str().unwrap_or("The program refused to start.");
            self.failed = Some(Trouble::read(words, None, &Value::Null, at));
            return vec![];
        }
        self.open = true;
        vec![Said::Started { session: Some(self.session.clone()), model: None }]
    }

    fn asked(&mut self, message: &Value) -> Vec<Said> {
        let (id, request) = (message["request_id"].clone(), &message["request"]);
        if request["subtype"] != "can_use_tool" {
            let what = request["subtype"].as_str().unwrap_or_default().to_owned();
            let text = format!("The program requested {what}, which Regatta does not offer.");
            self.refused.push((what, id));
            return vec![Said::Notice { text }];
        }
        let (name, input) = (request["tool_name"].as_str().unwrap_or_default(), &request["input"]);
        let (what, want) = if name == "AskUserQuestion" {
            questions(&input["questions"])
        } else {
            let id = request["tool_use_id"].as_str().unwrap_or_default();
            let option = |id: &str, kind| AskOption { id: id.to_owned(), name: id.to_owned(), kind };
            let options = vec![option("allow", OptionKind::AllowOnce), option("deny", OptionKind::RejectOnce)];
            (What::Permission, Want::Permission { tool: tool(id, name, input), options })
        };
        let cancelled = self.turn.as_ref().is_some_and(|it| it.cancelled);
        let key = self.asks.open(id, what, cancelled);
        if cancelled { vec![] } else { vec![Said::Asked(Ask { id: key, want })] }
    }

    fn spoke(&mut self, message: &Value) -> Vec<Said> {
        let mut said = Vec::new();
        let of_helper = message["parent_tool_use_id"].is_string();
        if let (Some(turn), Some(kind)) = (&mut self.turn, message["error"].as_str()) {
            turn.kind = Some(kind.to_owned());
        }
        let message = &message["message"];
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str().unwrap_or_default() {
                "text" if !of_helper => {
                    let text = block["text"].as_str().unwrap_or_default().to_owned();
                    self.words.add_line(&text);
                    said.push(Said::Message { text });
                }
                "thinking" if !of_helper => {
                    said.push(Said::Thought { text: block["thinking"].as_str().unwrap_or_default().to_owned() });
                }
                "tool_use" => {
                    let (id, name) = (block["id"].as_str().unwrap_or_default(), block["name"].as_str());
                    let input = &block["input"];
                    if name == Some("TodoWrite") {
                        said.push(plan(&input["todos"]));
                    }
                    let tool = tool(id, name.unwrap_or_default(), input);
                    self.tools.insert(tool.id.clone(), tool.clone());
                    said.push(Said::Tool(tool));
                }
                _ => {}
            }
        }
        said.extend(self.called(message, of_helper));
        said
    }

    /// Counts a call of the model as an estimate. The result at the end of the turn has the exact
    /// numbers.
    fn called(&mut self, message: &Value, of_helper: bool) -> Vec<Said> {
        let (Some(turn), Some(id)) = (&mut self.turn, message["id"].as_str()) else { return vec![] };
        let used = usage(&message["usage"]);
        turn.calls.insert(id.to_owned(), used);
        let estimate = turn.calls.values().fold(turn.before, |sum, it| sum.plus(it));
        let mut said: Vec<Said> = self.books.reach(estimate).into_iter().collect();
        if let (Some(size), false) = (self.size, of_helper)
            && used.tokens() > 0
        {
            said.push(Said::Context { used: used.tokens(), size });
        }
        said
    }

    fn tool_results(&mut self, content: &Value) -> Vec<Said> {
        let results = content.as_array().into_iter().flatten().filter(|it| it["type"] == "tool_result");
        results
            .filter_map(|it| {
                let tool = self.tools.get_mut(it["tool_use_id"].as_str()?)?;
                tool.status = if it["is_error"] == true { ToolStatus::Failed } else { ToolStatus::Completed };
                let text = match &it["content"] {
                    Value::String(text) => text.clone(),
                    Value::Array(blocks) => blocks.iter().filter_map(|it| it["text"].as_str()).collect(),
                    _ => String::new(),
                };
                tool.output = Some(shorten(&text, OUTPUT)).filter(|it| !it.is_empty());
                Some(Said::Tool(tool.clone()))
            })
            .collect()
    }

    fn limited(&mut self, info: &Value, at: u64) -> Vec<Said> {
        if info["status"] != "rejected" {
            return vec![];
        }
        let until_wall = super::verdict::reset("", info, at);
        if let Some(turn) = &mut self.turn {
            turn.reset = Some(info.clone());
        }
        let kind = info["rateLimitType"].as_str().unwrap_or("usage");
        vec![Said::Limited { until_wall, detail: format!("The {kind} limit is used up.") }]
    }

    fn ended(&mut self, result: &Value, at: u64) -> Vec<Said> {
        let running = self.turn.is_some();
        let turn = self.turn.take().unwrap_or_default();
        let mut said = self.asks.cancel();
        said.extend(self.count(result));
        let errors: Vec<&str> = result["errors"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let words =
            result["result"].as_str().filter(|it| !it.is_empty()).map_or_else(|| errors.join("\n"), str::to_owned);
        let subtype = result["subtype"].as_str().unwrap_or_default();
        let aborted = result["terminal_reason"].as_str().is_some_and(|it| it.starts_with("aborted"));
        let stop = match subtype {
            _ if turn.cancelled && result["is_error"] == true => {
                Err(Trouble::new(Class::Cancelled, "The turn was cancelled."))
            }
            "error_during_execution" if aborted => Err(Trouble::new(Class::Cancelled, "The turn was cancelled.")),
            "error_max_turns" | "error_max_budget_usd" => Ok(Stop::MaxTurns),
            "success" if result["is_error"] != true => match result["stop_reason"].as_str() {
                Some("max_tokens") => Ok(Stop::MaxTokens),
                Some("refusal") => Err(Trouble::new(Class::Refused, words.clone())),
                _ => Ok(Stop::EndTurn),
            },
            _ => {
                let data = json!({ "errorKind": turn.kind, "limit": turn.reset });
                let status = result["api_error_status"].as_i64();
                Err(Trouble::read(if words.is_empty() { subtype } else { &words }, status, &data, at))
            }
        };
        if !running {
            // The program could not begin, because the session to resume does not exist.
            let why = shorten(&words, 500);
            self.failed = stop.err().or_else(|| Some(Trouble::new(Class::Crashed, why)));
            return said;
        }
        match stop {
            Ok(stop) => {
                said.push(Said::TurnEnded { stop, class: None, detail: words });
                self.last = Some(None);
            }
            Err(trouble) => {
                said.extend(trouble.ends_turn());
                self.last = Some(Some(trouble));
            }
        }
        said
    }

    /// Takes the usage from the result. `modelUsage` and the cost are cumulative over the session,
    /// also over a resumed one. The field `usage` covers only the turn and not the helpers, so it
    /// is ignored.
    fn count(&mut self, result: &Value) -> Vec<Said> {
        let mut total = Usage::default();
        for model in result["modelUsage"].as_object().into_iter().flat_map(|it| it.values()) {
            let count = |name: &str| model[name].as_u64().unwrap_or(0);
            total = total.plus(&Usage {
                input: count("inputTokens"),
                cached_input: count("cacheReadInputTokens"),
                cache_write: count("cacheCreationInputTokens"),
                output: count("outputTokens"),
                micro_usd: None,
            });
            self.size = model["contextWindow"].as_u64().filter(|it| *it > 0).or(self.size);
        }
        let cost = result["total_cost_usd"].as_f64().map(|it| whole(it * 1e6));
        total.micro_usd = cost.filter(|it| *it > 0);
        self.books.reach(total).into_iter().collect()
    }

    fn control(&self, request: Value) -> Say {
        let id = format!("regatta-{}", self.controls);
        Say::Line(json!({ "type": "control_request", "request_id": id, "request": request }).to_string())
    }
}

fn respond(id: &Value, response: Value) -> Say {
    let response = json!({ "subtype": "success", "request_id": id, "response": response });
    Say::Line(json!({ "type": "control_response", "response": response }).to_string())
}

fn answer(what: &What, answer: &Answer) -> Value {
    match (what, answer) {
        (_, Answer::Cancelled) => {
            json!({ "behavior": "deny", "message": "The turn was cancelled.", "interrupt": true })
        }
        (_, Answer::Deny { words }) => {
            let words = words.as_deref().unwrap_or("Not allowed. Find another way, or say why there is none.");
            json!({ "behavior": "deny", "message": words })
        }
        (What::Questions(questions, form), Answer::Text { text }) => {
            let form = filled(form, text);
            let mut answers = serde_json::Map::new();
            for (nth, question) in questions.as_array().into_iter().flatten().enumerate() {
                let (name, question) = (format!("q{}", nth + 1), question["question"].as_str().unwrap_or_default());
                let given = form[&name].as_str().or_else(|| form[question].as_str()).unwrap_or(text);
                answers.insert(question.to_owned(), json!(given));
            }
            json!({ "behavior": "allow", "updatedInput": { "questions": questions, "answers": answers } })
        }
        (What::Permission | What::Questions(..), Answer::Allow | Answer::Text { .. }) => {
            json!({ "behavior": "allow", "updatedInput": {} })
        }
    }
}

/// Builds a form of the questions with one field each.
fn questions(list: &Value) -> (What, Want) {
    let all: Vec<&Value> = list.as_array().into_iter().flatten().collect();
    let words = |it: &Value| it["question"].as_str().unwrap_or_default().to_owned();
    let labels = |it: &Value| -> Vec<String> {
        let options = it["options"].as_array().into_iter().flatten();
        options.filter_map(|it| it["label"].as_str()).map(str::to_owned).collect()
    };
    let mut fields = serde_json::Map::new();
    for (nth, question) in all.iter().enumerate() {
        // Other answers than the labels are allowed, so the labels are examples and not an
        // enumeration.
        let field = json!({ "type": "string", "title": words(question), "examples": labels(question) });
        fields.insert(format!("q{}", nth + 1), field);
    }
    let required: Vec<String> = (1..=all.len()).map(|it| format!("q{it}")).collect();
    let form = json!({ "type": "object", "properties": fields, "required": required });
    let text = all.iter().map(|it| words(it)).collect::<Vec<_>>().join("\n");
    let (choices, schema) = match all.as_slice() {
        [one] => (labels(one), None),
        _ => (vec![], Some(form.to_string())),
    };
    (What::Questions(list.clone(), form), Want::Question { text, choices, schema })
}

fn tool(id: &str, name: &str, input: &Value) -> Tool {
    let kind = match name {
        "Read" | "NotebookRead" => ToolKind::Read,
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => ToolKind::Edit,
        "Bash" | "BashOutput" | "KillShell" => ToolKind::Execute,
        "Grep" | "Glob" | "LS" => ToolKind::Search,
        "WebFetch" | "WebSearch" => ToolKind::Fetch,
        "TodoWrite" | "Task" | "Agent" => ToolKind::Think,
        "EnterPlanMode" | "ExitPlanMode" => ToolKind::SwitchMode,
        _ => ToolKind::Other,
    };
    let mut tool = Tool { id: id.to_owned(), kind, status: ToolStatus::InProgress, ..Tool::default() };
    read_input(&mut tool, input);
    let about = tool.command.as_ref().or(tool.urls.first()).or(tool.paths.first());
    tool.title = shorten(&about.map_or_else(|| name.to_owned(), |object| format!("{name}: {object}")), 500);
    tool
}

fn plan(todos: &Value) -> Said {
    let entries = todos.as_array().into_iter().flatten().map(|it| PlanEntry {
        text: it["content"].as_str().unwrap_or_default().to_owned(),
        status: serde_json::from_value(it["status"].clone()).unwrap_or_default(),
    });
    Said::Plan { entries: entries.collect() }
}

fn usage(of: &Value) -> Usage {
    let count = |name: &str| of[name].as_u64().unwrap_or(0);
    Usage {
        input: count("input_tokens"),
        cached_input: count("cache_read_input_tokens"),
        cache_write: count("cache_creation_input_tokens"),
        output: count("output_tokens"),
        micro_usd: None,
    }
}

fn system(message: &Value) -> Vec<Said> {
    let text = match message["subtype"].as_str().unwrap_or_default() {
        "api_retry" => format!(
            "The model did not answer ({}); retry {} of {} in {:.0} s.",
            message["error_status"].as_i64().map_or_else(|| "no connection".to_owned(), |it| it.to_string()),
            message["attempt"].as_u64().unwrap_or(0),
            message["max_retries"].as_u64().unwrap_or(0),
            message["retry_delay_ms"].as_f64().unwrap_or(0.0) / 1000.0,
        ),
        "compact_boundary" => "The program compacted its context.".to_owned(),
        _ => return vec![],
    };
    vec![Said::Notice { text }]
}

impl Driver for Claude {
    fn saw(&mut self, record: &Record) -> Vec<Said> {
        match record.stream {
            Stream::In => self.was_said(&record.line),
            Stream::InEnd => {
                self.closed = true;
                vec![]
            }
            Stream::Out => self.heard(&record.line, record.at),
            Stream::Err | Stream::Mark => self.errors.aside(record),
        }
    }

    fn next(&self, wishes: &Wishes) -> Option<Say> {
        if self.closed {
            return None;
        }
        if self.failed.is_some() {
            return Some(Say::Close);
        }
        if let Some((what, id)) = self.refused.first() {
            let error = format!("Regatta does not offer {what}.");
            let response = json!({ "subtype": "error", "request_id": id, "error": error });
            return Some(Say::Line(json!({ "type": "control_response", "response": response }).to_string()));
        }
        if self.open && wishes.cancels > self.cancels {
            return Some(self.control(json!({ "subtype": "interrupt" })));
        }
        if let Some((open, wished)) = self.asks.answerable(wishes) {
            return Some(respond(&open.id, answer(&open.what, &wished)));
        }
        if self.turn.is_some() {
            return None;
        }
        let prompt = usize::try_from(self.prompts).ok().and_then(|it| wishes.prompts.get(it)).filter(|_| !wishes.hold);
        match prompt {
            None if wishes.end => Some(Say::Close),
            _ if !self.greeted => Some(self.control(json!({ "subtype": "initialize" }))),
            Some(prompt) if self.open => {
                let message = json!({ "role": "user", "content": [{ "type": "text", "text": prompt }] });
                let line = json!({ "type": "user", "message": message, "parent_tool_use_id": null, "session_id": "" });
                Some(Say::Line(line.to_string()))
            }
            _ => None,
        }
    }

    fn judge(&self, exit: &Exit) -> Judgement {
        let course = Course {
            failed: self.failed.as_ref(),
            open: self.open,
            turn: self.turn.as_ref().map(|it| it.cancelled),
            last: self.last.as_ref().map(Option::as_ref),
            closed: self.closed,
            words: &self.words,
            errors: &self.errors,
            books: &self.books,
        };
        course.judge(exit)
    }
}

#[cfg(test)]
#[path = "claude_tests.rs"]
mod tests;
