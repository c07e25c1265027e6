//! Imitates the OpenAI Responses API: `POST /v1/responses`, with and without streaming.

use serde_json::{Value, json};

use super::request::{
    ConversationEntry, ModelApi, ModelRequest, OfferedTool, SpeakerRole, content_text, unix_seconds,
};
use super::script::{ModelFailure, ModelUsage};
use super::server::ModelAnswer;
use super::tools::ToolInput;

pub(super) fn parse_request(body: &Value) -> ModelRequest {
    let mut entries = vec![];
    if let Some(text) = body["instructions"].as_str() {
        entries.push(ConversationEntry {
            role: SpeakerRole::System,
            text: text.into(),
        });
    }
    if let Some(text) = body["input"].as_str() {
        entries.push(ConversationEntry {
            role: SpeakerRole::User,
            text: text.into(),
        });
    }
    for item in body["input"].as_array().into_iter().flatten() {
        let role = match (item["type"].as_str(), item["role"].as_str()) {
            (
                Some(
                    "function_call_output" | "custom_tool_call_output" | "local_shell_call_output",
                ),
                _,
            ) => SpeakerRole::Tool,
            (Some("tool_search_output"), _) => SpeakerRole::Tool,
            (_, Some("user")) => SpeakerRole::User,
            (_, Some("system" | "developer")) => SpeakerRole::System,
            _ => SpeakerRole::Model,
        };
        let text = if role == SpeakerRole::Tool {
            content_text(&item["output"])
        } else {
            content_text(&item["content"])
        };
        entries.push(ConversationEntry { role, text });
    }
    let mut tools = vec![];
    // If the agent's program let the model search for tools, the tools that were found count as
    // offered from then on.
    let found = body["input"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|body| body["type"] == "tool_search_output");
    let lists = found.map(|found| &found["tools"]).chain([&body["tools"]]);
    for tool in lists.flat_map(|list| list.as_array().into_iter().flatten()) {
        let name = tool["name"].as_str().unwrap_or_default();
        match tool["type"].as_str() {
            Some("namespace") => {
                for inner in tool["tools"].as_array().into_iter().flatten() {
                    tools.push(OfferedTool {
                        namespace: Some(name.into()),
                        ..offered_tool(inner)
                    });
                }
            }
            Some("function" | "custom") => tools.push(offered_tool(tool)),
            Some("tool_search") => tools.push(OfferedTool {
                name: "tool_search".into(),
                ..offered_tool(tool)
            }),
            // Ignore tools that run at the model's provider, such as web search.
            _ => {}
        }
    }
    let format = &body["text"]["format"]["schema"];
    ModelRequest {
        api: ModelApi::Responses,
        model: body["model"].as_str().unwrap_or_default().into(),
        is_streamed: body["stream"] == true,
        tools,
        conversation: entries,
        schema: Some(format.clone()).filter(Value::is_object),
    }
}

fn offered_tool(tool: &Value) -> OfferedTool {
    OfferedTool {
        name: tool["name"].as_str().unwrap_or_default().into(),
        namespace: None,
        schema: tool["parameters"].clone(),
        is_freeform: tool["type"] == "custom",
    }
}

fn usage_json(usage: &ModelUsage) -> Value {
    json!({
        "input_tokens": usage.total_input(),
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total_input() + usage.output,
    })
}

fn output_items(answer: &ModelAnswer) -> Vec<Value> {
    let mut items = vec![];
    if !answer.reasoning.is_empty() {
        let summary = json!([{"type": "summary_text", "text": answer.reasoning}]);
        items.push(
            json!({"type": "reasoning", "id": format!("rs_{}", answer.id), "summary": summary,
            "encrypted_content": null}),
        );
    }
    if !answer.text.is_empty() {
        let content = json!([{"type": "output_text", "text": answer.text, "annotations": []}]);
        items.push(
            json!({"type": "message", "id": format!("msg_{}", answer.id), "role": "assistant",
            "status": "completed", "content": content}),
        );
    }
    for call in &answer.calls {
        let mut item = match &call.input {
            ToolInput::Fields(fields) if call.name == "tool_search" => {
                json!({"type": "tool_search_call", "execution": "client", "arguments": fields})
            }
            ToolInput::Fields(fields) => {
                json!({"type": "function_call", "arguments": fields.to_string()})
            }
            ToolInput::Text(text) => json!({"type": "custom_tool_call", "input": text}),
        };
        item["id"] = json!(format!("fc_{}", call.id));
        item["call_id"] = json!(call.id);
        item["name"] = json!(call.name);
        item["status"] = json!("completed");
        if let Some(namespace) = &call.namespace {
            item["namespace"] = json!(namespace);
        }
        items.push(item);
    }
    items
}

fn response_json(answer: &ModelAnswer, status: &str, output: Vec<Value>, usage: Value) -> Value {
    json!({
        "id": format!("resp_{}", answer.id),
        "object": "response",
        "created_at": unix_seconds(),
        "model": answer.model,
        "status": status,
        "output": output,
        "usage": usage,
        "error": null,
    })
}

pub(super) fn complete_answer(answer: &ModelAnswer) -> Value {
    response_json(
        answer,
        "completed",
        output_items(answer),
        usage_json(&answer.usage),
    )
}

pub(super) fn stream_events(answer: &ModelAnswer) -> Vec<String> {
    let mut events = vec![
        json!({"type": "response.created", "response": response_json(answer, "in_progress", vec![], Value::Null)}),
        json!({"type": "response.in_progress", "response": response_json(answer, "in_progress", vec![], Value::Null)}),
    ];
    for (index, item) in output_items(answer).into_iter().enumerate() {
        let mut begun = item.clone();
        begun["status"] = json!("in_progress");
        let id = item["id"].clone();
        match item["type"].as_str() {
            Some("message") => {
                begun["content"] = json!([]);
                events.push(json!({"type": "response.output_item.added", "output_index": index, "item": begun}));
                let part =
                    |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
                events.push(json!({"type": "response.content_part.added", "item_id": id, "output_index": index,
                    "content_index": 0, "part": part("")}));
                for piece in answer.text_pieces(&answer.text) {
                    events.push(json!({"type": "response.output_text.delta", "item_id": id, "output_index": index,
                        "content_index": 0, "delta": piece}));
                }
                events.push(json!({"type": "response.output_text.done", "item_id": id, "output_index": index,
                    "content_index": 0, "text": answer.text}));
                events.push(json!({"type": "response.content_part.done", "item_id": id, "output_index": index,
                    "content_index": 0, "part": part(&answer.text)}));
            }
            Some("reasoning") => {
                begun["summary"] = json!([]);
                events.push(json!({"type": "response.output_item.added", "output_index": index, "item": begun}));
                for piece in answer.text_pieces(&answer.reasoning) {
                    events.push(
                        json!({"type": "response.reasoning_summary_text.delta", "item_id": id,
                        "output_index": index, "summary_index": 0, "delta": piece}),
                    );
                }
            }
            Some("tool_search_call") => {
                events.push(json!({"type": "response.output_item.added", "output_index": index, "item": begun}));
            }
            kind => {
                let (field, name) = if kind == Some("function_call") {
                    ("arguments", "response.function_call_arguments")
                } else {
                    ("input", "response.custom_tool_call_input")
                };
                let text = item[field].as_str().unwrap_or_default().to_owned();
                begun[field] = json!("");
                events.push(json!({"type": "response.output_item.added", "output_index": index, "item": begun}));
                for piece in answer.text_pieces(&text) {
                    events.push(json!({"type": format!("{name}.delta"), "item_id": id, "output_index": index,
                        "delta": piece}));
                }
                let mut done =
                    json!({"type": format!("{name}.done"), "item_id": id, "output_index": index});
                done[field] = json!(text);
                events.push(done);
            }
        }
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
        );
    }
    events.push(json!({"type": "response.completed", "response": complete_answer(answer)}));
    let numbered = events.iter_mut().enumerate().map(|(nth, event)| {
        event["sequence_number"] = json!(nth);
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap_or_default()
        )
    });
    numbered.collect()
}

pub(super) fn failure_answer(failure: &ModelFailure) -> (Vec<(String, String)>, Value) {
    let (kind, code) = match failure {
        ModelFailure::Auth => ("invalid_request_error", json!("invalid_api_key")),
        ModelFailure::RateLimited { .. } => ("requests", json!("rate_limit_exceeded")),
        ModelFailure::QuotaExhausted { .. } => ("usage_limit_reached", Value::Null),
        ModelFailure::ContextFull => ("invalid_request_error", json!("context_length_exceeded")),
        ModelFailure::ServerError => ("server_error", Value::Null),
        ModelFailure::Overloaded => ("server_error", json!("server_is_overloaded")),
    };
    let mut error =
        json!({"message": failure.message(), "type": kind, "param": null, "code": code});
    let mut headers = vec![];
    if let Some(reset) = failure.resets_after() {
        let seconds = reset.as_secs().max(1);
        for (name, value) in [
            ("retry-after", seconds.to_string()),
            ("x-ratelimit-limit-requests", "50".into()),
            ("x-ratelimit-remaining-requests", "0".into()),
            ("x-ratelimit-reset-requests", format!("{seconds}s")),
        ] {
            headers.push((name.to_owned(), value));
        }
        if matches!(failure, ModelFailure::QuotaExhausted { .. }) {
            error["plan_type"] = json!("plus");
            error["resets_at"] = json!(unix_seconds() + seconds);
            error["resets_in_seconds"] = json!(seconds);
        }
    }
    (headers, json!({ "error": error }))
}
