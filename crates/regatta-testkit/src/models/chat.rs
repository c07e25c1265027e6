//! The OpenAI Chat Completions API: `POST /v1/chat/completions`, with and without streaming.

use serde_json::{Value, json};

use super::asked::{Api, Asked, Entry, Offer, Role, now, text_of};
use super::responses;
use super::script::{Failure, Usage};
use super::server::Answer;

pub(super) fn read(body: &Value) -> Asked {
    let said = body["messages"].as_array().into_iter().flatten().map(|it| {
        let role = match it["role"].as_str() {
            Some("system" | "developer") => Role::System,
            Some("assistant") => Role::Model,
            Some("tool" | "function") => Role::Tool,
            _ => Role::User,
        };
        Entry { role, text: text_of(&it["content"]) }
    });
    let tools = body["tools"].as_array().into_iter().flatten().map(|it| Offer {
        name: it["function"]["name"].as_str().unwrap_or_default().into(),
        schema: it["function"]["parameters"].clone(),
        ..Offer::default()
    });
    Asked {
        api: Api::Chat,
        model: body["model"].as_str().unwrap_or_default().into(),
        stream: body["stream"] == true,
        tools: tools.collect(),
        said: said.collect(),
        schema: Some(body["response_format"]["json_schema"]["schema"].clone()).filter(Value::is_object),
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.whole_input(),
        "completion_tokens": usage.output,
        "total_tokens": usage.whole_input() + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

fn finish(answer: &Answer) -> &'static str {
    if answer.calls.is_empty() { "stop" } else { "tool_calls" }
}

pub(super) fn whole(answer: &Answer) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text, "refusal": null});
    if !answer.calls.is_empty() {
        let calls = answer.calls.iter().map(|it| {
            json!({"id": it.id, "type": "function",
                "function": {"name": it.name, "arguments": it.fields().to_string()}})
        });
        message["tool_calls"] = calls.collect();
    }
    json!({
        "id": format!("chatcmpl-{}", answer.id),
        "object": "chat.completion",
        "created": now(),
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish(answer)}],
        "usage": usage(&answer.usage),
    })
}

pub(super) fn events(answer: &Answer) -> Vec<String> {
    let chunk = |choices: Value, usage: Value| {
        json!({
            "id": format!("chatcmpl-{}", answer.id),
            "object": "chat.completion.chunk",
            "created": now(),
            "model": answer.model,
            "choices": choices,
            "usage": usage,
        })
    };
    let delta = |delta: Value, finish: Value| {
        chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]), Value::Null)
    };
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}), Value::Null)];
    for piece in answer.pieces(&answer.text) {
        events.push(delta(json!({"content": piece}), Value::Null));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        let first = json!({"index": index, "id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": ""}});
        events.push(delta(json!({"tool_calls": [first]}), Value::Null));
        for piece in answer.pieces(&call.fields().to_string()) {
            let more = json!({"index": index, "function": {"arguments": piece}});
            events.push(delta(json!({"tool_calls": [more]}), Value::Null));
        }
    }
    events.push(delta(json!({}), json!(finish(answer))));
    // The last chunk has no choice, only the usage.
    events.push(chunk(json!([]), usage(&answer.usage)));
    let mut events: Vec<String> = events.iter().map(|it| format!("data: {it}\n\n")).collect();
    events.push("data: [DONE]\n\n".into());
    events
}

pub(super) fn failure(failure: &Failure) -> (Vec<(String, String)>, Value) {
    responses::failure(failure)
}
