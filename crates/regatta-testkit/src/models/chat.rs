//! Imitates the OpenAI Chat Completions API: `POST /v1/chat/completions`, with and without
//! streaming.

use serde_json::{Value, json};

use super::request::{
    ConversationEntry, ModelApi, ModelRequest, OfferedTool, SpeakerRole, content_text, unix_seconds,
};
use super::responses;
use super::script::{ModelFailure, ModelUsage};
use super::server::ModelAnswer;

pub(super) fn parse_request(body: &Value) -> ModelRequest {
    let entries = body["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|body| {
            let role = match body["role"].as_str() {
                Some("system" | "developer") => SpeakerRole::System,
                Some("assistant") => SpeakerRole::Model,
                Some("tool" | "function") => SpeakerRole::Tool,
                _ => SpeakerRole::User,
            };
            ConversationEntry {
                role,
                text: content_text(&body["content"]),
            }
        });
    let tools = body["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|body| OfferedTool {
            name: body["function"]["name"].as_str().unwrap_or_default().into(),
            schema: body["function"]["parameters"].clone(),
            ..OfferedTool::default()
        });
    ModelRequest {
        api: ModelApi::Chat,
        model: body["model"].as_str().unwrap_or_default().into(),
        is_streamed: body["stream"] == true,
        tools: tools.collect(),
        conversation: entries.collect(),
        schema: Some(body["response_format"]["json_schema"]["schema"].clone())
            .filter(Value::is_object),
    }
}

fn usage_json(usage: &ModelUsage) -> Value {
    json!({
        "prompt_tokens": usage.total_input(),
        "completion_tokens": usage.output,
        "total_tokens": usage.total_input() + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

fn finish_reason(answer: &ModelAnswer) -> &'static str {
    if answer.calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    }
}

pub(super) fn complete_answer(answer: &ModelAnswer) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text, "refusal": null});
    if !answer.calls.is_empty() {
        let calls = answer.calls.iter().map(|model_tool_call| {
            json!({"id": model_tool_call.id, "type": "function",
                "function": {"name": model_tool_call.name, "arguments": model_tool_call.input_json().to_string()}})
        });
        message["tool_calls"] = calls.collect();
    }
    json!({
        "id": format!("chatcmpl-{}", answer.id),
        "object": "chat.completion",
        "created": unix_seconds(),
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(answer)}],
        "usage": usage_json(&answer.usage),
    })
}

pub(super) fn stream_events(answer: &ModelAnswer) -> Vec<String> {
    let chunk = |choices: Value, usage: Value| {
        json!({
            "id": format!("chatcmpl-{}", answer.id),
            "object": "chat.completion.chunk",
            "created": unix_seconds(),
            "model": answer.model,
            "choices": choices,
            "usage": usage,
        })
    };
    let delta = |delta: Value, finish: Value| {
        chunk(
            json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]),
            Value::Null,
        )
    };
    let mut events = vec![delta(
        json!({"role": "assistant", "content": ""}),
        Value::Null,
    )];
    for piece in answer.text_pieces(&answer.text) {
        events.push(delta(json!({"content": piece}), Value::Null));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        let first = json!({"index": index, "id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": ""}});
        events.push(delta(json!({"tool_calls": [first]}), Value::Null));
        for piece in answer.text_pieces(&call.input_json().to_string()) {
            let more = json!({"index": index, "function": {"arguments": piece}});
            events.push(delta(json!({"tool_calls": [more]}), Value::Null));
        }
    }
    events.push(delta(json!({}), json!(finish_reason(answer))));
    // The API sends the usage (numbers of tokens) in an additional last chunk, which has no text.
    events.push(chunk(json!([]), usage_json(&answer.usage)));
    let mut events: Vec<String> = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    events.push("data: [DONE]\n\n".into());
    events
}

pub(super) fn failure_answer(failure: &ModelFailure) -> (Vec<(String, String)>, Value) {
    responses::failure_answer(failure)
}
