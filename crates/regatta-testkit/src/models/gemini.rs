//! Imitates the Gemini API: `POST /v1beta/models/NAME:generateContent`, `:streamGenerateContent`
//! and `:countTokens`.

use serde_json::{Value, json};

use super::request::{ConversationEntry, ModelApi, ModelRequest, OfferedTool, SpeakerRole};
use super::script::{ModelFailure, ModelUsage};
use super::server::ModelAnswer;

pub(super) fn parse_request(body: &Value, model: &str, stream: bool) -> ModelRequest {
    let mut entries = vec![];
    if !body["systemInstruction"].is_null() {
        entries.push(ConversationEntry {
            role: SpeakerRole::System,
            text: joined_texts(&body["systemInstruction"]["parts"]),
        });
    }
    for content in body["contents"].as_array().into_iter().flatten() {
        let role = if content["role"] == "model" {
            SpeakerRole::Model
        } else {
            SpeakerRole::User
        };
        let answers: Vec<&Value> = content["parts"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|content| &content["functionResponse"]["response"])
            .filter(|content| !content.is_null())
            .collect();
        for answer in &answers {
            let text = answer["output"].as_str().or(answer["error"].as_str());
            entries.push(ConversationEntry {
                role: SpeakerRole::Tool,
                text: text.map_or_else(|| answer.to_string(), str::to_owned),
            });
        }
        let text = joined_texts(&content["parts"]);
        if answers.is_empty() || !text.is_empty() {
            entries.push(ConversationEntry { role, text });
        }
    }
    let declared = body["tools"].as_array().into_iter().flatten();
    let tools = declared
        .flat_map(|declared| {
            declared["functionDeclarations"]
                .as_array()
                .into_iter()
                .flatten()
        })
        .map(|declared| {
            let schema = [&declared["parametersJsonSchema"], &declared["parameters"]]
                .into_iter()
                .find(|value| value.is_object());
            OfferedTool {
                name: declared["name"].as_str().unwrap_or_default().into(),
                schema: schema.cloned().unwrap_or_default(),
                ..OfferedTool::default()
            }
        });
    let asks = &body["generationConfig"];
    ModelRequest {
        api: ModelApi::Gemini,
        model: model.into(),
        is_streamed: stream,
        tools: tools.collect(),
        conversation: entries,
        schema: [&asks["responseJsonSchema"], &asks["responseSchema"]]
            .into_iter()
            .find(|value| value.is_object())
            .cloned(),
    }
}

fn joined_texts(parts: &Value) -> String {
    let texts: Vec<&str> = parts
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|part| part["text"].as_str())
        .collect();
    texts.join("\n")
}

fn usage_json(usage: &ModelUsage) -> Value {
    json!({
        "promptTokenCount": usage.total_input(),
        "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": usage.output - usage.reasoning.min(usage.output),
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.total_input() + usage.output,
    })
}

fn answer_json(answer: &ModelAnswer, parts: Vec<Value>, last: bool) -> Value {
    let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
    if last {
        candidate["finishReason"] = json!("STOP");
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": usage_json(&answer.usage),
        "modelVersion": answer.model,
        "responseId": answer.id,
    })
}

fn call_parts(answer: &ModelAnswer) -> Vec<Value> {
    answer
        .calls
        .iter()
        .map(|model_tool_call| json!({"functionCall": {"id": model_tool_call.id, "name": model_tool_call.name, "args": model_tool_call.input_json()}}))
        .collect()
}

pub(super) fn complete_answer(answer: &ModelAnswer) -> Value {
    let mut parts = vec![];
    if !answer.reasoning.is_empty() {
        parts.push(json!({"text": answer.reasoning, "thought": true}));
    }
    if !answer.text.is_empty() {
        parts.push(json!({"text": answer.text}));
    }
    parts.extend(call_parts(answer));
    answer_json(answer, parts, true)
}

pub(super) fn stream_events(answer: &ModelAnswer) -> Vec<String> {
    let mut events = vec![];
    for piece in answer.text_pieces(&answer.reasoning) {
        events.push(answer_json(
            answer,
            vec![json!({"text": piece, "thought": true})],
            false,
        ));
    }
    for piece in answer.text_pieces(&answer.text) {
        events.push(answer_json(answer, vec![json!({"text": piece})], false));
    }
    // Tool calls are sent whole, as parts of the last event. Without tool calls, the last event
    // still needs a part, because the agent's program treats an event without parts as a broken
    // stream.
    let calls = call_parts(answer);
    if !calls.is_empty() {
        events.push(answer_json(answer, calls, false));
    }
    events.push(answer_json(answer, vec![json!({"text": ""})], true));
    events
        .iter()
        .map(|event| format!("data: {event}\r\n\r\n"))
        .collect()
}

pub(super) fn failure_answer(failure: &ModelFailure) -> (Vec<(String, String)>, Value) {
    let status = match failure {
        ModelFailure::Auth => "UNAUTHENTICATED",
        ModelFailure::RateLimited { .. } | ModelFailure::QuotaExhausted { .. } => {
            "RESOURCE_EXHAUSTED"
        }
        ModelFailure::ContextFull => "INVALID_ARGUMENT",
        ModelFailure::ServerError => "INTERNAL",
        ModelFailure::Overloaded => "UNAVAILABLE",
    };
    let mut details = vec![];
    let mut headers = vec![];
    if let Some(reset) = failure.resets_after() {
        let seconds = reset.as_secs().max(1);
        headers.push(("retry-after".to_owned(), seconds.to_string()));
        let period = if matches!(failure, ModelFailure::QuotaExhausted { .. }) {
            "PerDay"
        } else {
            "PerMinute"
        };
        details.push(
            json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{
                "quotaMetric": "generativelanguage.googleapis.com/generate_content_requests",
                "quotaId": format!("GenerateRequests{period}PerProjectPerModel"),
            }]}),
        );
        details.push(json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s")}));
    }
    let error = json!({"code": failure.status(), "message": failure.message(), "status": status, "details": details});
    (headers, json!({ "error": error }))
}
