//! Imitates the Anthropic Messages API: `POST /v1/messages`, with and without streaming, and
//! `/v1/messages/count_tokens`.

use std::time::Duration;

use serde_json::{Value, json};

use super::request::{
    ConversationEntry, ModelApi, ModelRequest, OfferedTool, SpeakerRole, content_text, unix_seconds,
};
use super::script::{ModelFailure, ModelUsage};
use super::server::ModelAnswer;

pub(super) fn parse_request(body: &Value) -> ModelRequest {
    let mut entries = vec![];
    if !body["system"].is_null() {
        entries.push(ConversationEntry {
            role: SpeakerRole::System,
            text: content_text(&body["system"]),
        });
    }
    for message in body["messages"].as_array().into_iter().flatten() {
        let role = match message["role"].as_str() {
            Some("assistant") => SpeakerRole::Model,
            Some("system") => SpeakerRole::System,
            _ => SpeakerRole::User,
        };
        let (results, rest): (Vec<&Value>, Vec<&Value>) = message["content"]
            .as_array()
            .into_iter()
            .flatten()
            .partition(|message| message["type"] == "tool_result");
        for result in &results {
            entries.push(ConversationEntry {
                role: SpeakerRole::Tool,
                text: content_text(&result["content"]),
            });
        }
        let text = match &message["content"] {
            Value::String(text) => text.clone(),
            _ => rest
                .iter()
                .map(|rest| content_text(rest))
                .collect::<Vec<_>>()
                .join("\n"),
        };
        if results.is_empty() || !text.is_empty() {
            entries.push(ConversationEntry { role, text });
        }
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    ModelRequest {
        api: ModelApi::Anthropic,
        model: body["model"].as_str().unwrap_or_default().into(),
        is_streamed: body["stream"] == true,
        tools: tools
            .map(|tool| OfferedTool {
                name: tool["name"].as_str().unwrap_or_default().into(),
                schema: tool["input_schema"].clone(),
                ..OfferedTool::default()
            })
            .collect(),
        conversation: entries,
        schema: [
            &body["output_config"]["format"]["schema"],
            &body["output_format"]["schema"],
        ]
        .into_iter()
        .find(|value| value.is_object())
        .cloned(),
    }
}

fn usage_json(usage: &ModelUsage, output: u64) -> Value {
    json!({
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": output,
        "service_tier": "standard",
    })
}

fn content_blocks(answer: &ModelAnswer) -> Vec<Value> {
    let mut blocks = vec![];
    if !answer.reasoning.is_empty() {
        blocks.push(
            json!({"type": "thinking", "thinking": answer.reasoning, "signature": "c2NyaXB0ZWQ="}),
        );
    }
    if !answer.text.is_empty() {
        blocks.push(json!({"type": "text", "text": answer.text}));
    }
    for call in &answer.calls {
        blocks.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.input_json()}));
    }
    blocks
}

fn message_json(answer: &ModelAnswer, content: Vec<Value>, stop: Value, output: u64) -> Value {
    json!({
        "id": format!("msg_{}", answer.id),
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": null,
        "usage": usage_json(&answer.usage, output),
    })
}

fn stop_reason(answer: &ModelAnswer) -> &'static str {
    if answer.calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    }
}

pub(super) fn complete_answer(answer: &ModelAnswer) -> Value {
    message_json(
        answer,
        content_blocks(answer),
        json!(stop_reason(answer)),
        answer.usage.output,
    )
}

pub(super) fn stream_events(answer: &ModelAnswer) -> Vec<String> {
    let mut events = vec![
        json!({"type": "message_start", "message": message_json(answer, vec![], Value::Null, 1)}),
    ];
    events.push(json!({"type": "ping"}));
    for (index, block) in content_blocks(answer).into_iter().enumerate() {
        let (empty, deltas): (Value, Vec<Value>) = match block["type"].as_str() {
            Some("thinking") => {
                let mut deltas: Vec<Value> = answer
                    .text_pieces(&answer.reasoning)
                    .map(|answer| json!({"type": "thinking_delta", "thinking": answer}))
                    .collect();
                deltas.push(json!({"type": "signature_delta", "signature": block["signature"]}));
                (
                    json!({"type": "thinking", "thinking": "", "signature": ""}),
                    deltas,
                )
            }
            Some("text") => (
                json!({"type": "text", "text": ""}),
                answer
                    .text_pieces(&answer.text)
                    .map(|answer| json!({"type": "text_delta", "text": answer}))
                    .collect(),
            ),
            _ => {
                let input = block["input"].to_string();
                let deltas = answer
                    .text_pieces(&input)
                    .map(|answer| json!({"type": "input_json_delta", "partial_json": answer}))
                    .collect();
                (
                    json!({"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}),
                    deltas,
                )
            }
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": empty}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(answer), "stop_sequence": null},
        "usage": usage_json(&answer.usage, answer.usage.output),
    }));
    events.push(json!({"type": "message_stop"}));
    events
        .iter()
        .map(|event| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap_or_default()
            )
        })
        .collect()
}

pub(super) fn failure_answer(failure: &ModelFailure) -> (Vec<(String, String)>, Value) {
    let kind = match failure {
        ModelFailure::Auth => "authentication_error",
        ModelFailure::RateLimited { .. } | ModelFailure::QuotaExhausted { .. } => {
            "rate_limit_error"
        }
        ModelFailure::ContextFull => "invalid_request_error",
        ModelFailure::ServerError => "api_error",
        ModelFailure::Overloaded => "overloaded_error",
    };
    let mut headers = vec![];
    if let Some(reset) = failure.resets_after() {
        let seconds = reset.as_secs().max(1);
        let mut add = |name: &str, value: String| headers.push((name.to_owned(), value));
        add("retry-after", seconds.to_string());
        add("anthropic-ratelimit-requests-limit", "50".into());
        add("anthropic-ratelimit-requests-remaining", "0".into());
        let reset_time =
            jiff::Timestamp::UNIX_EPOCH + Duration::from_secs(unix_seconds() + seconds);
        add("anthropic-ratelimit-requests-reset", reset_time.to_string());
        add("anthropic-ratelimit-tokens-remaining", "0".into());
        add("anthropic-ratelimit-tokens-reset", reset_time.to_string());
        if matches!(failure, ModelFailure::QuotaExhausted { .. }) {
            add("anthropic-ratelimit-unified-status", "rejected".into());
            add(
                "anthropic-ratelimit-unified-representative-claim",
                "five_hour".into(),
            );
            add(
                "anthropic-ratelimit-unified-reset",
                (unix_seconds() + seconds).to_string(),
            );
        }
    }
    let error = json!({"type": kind, "message": failure.message()});
    (
        headers,
        json!({"type": "error", "error": error, "request_id": "req_scripted"}),
    )
}
