//! The Gemini API: `POST /v1beta/models/NAME:generateContent`, `:streamGenerateContent` and
//! `:countTokens`.

use serde_json::{Value, json};

use super::asked::{Api, Asked, Entry, Offer, Role};
use super::script::{Failure, Usage};
use super::server::Answer;

pub(super) fn read(body: &Value, model: &str, stream: bool) -> Asked {
    let mut said = vec![];
    if !body["systemInstruction"].is_null() {
        said.push(Entry { role: Role::System, text: texts(&body["systemInstruction"]["parts"]) });
    }
    for content in body["contents"].as_array().into_iter().flatten() {
        let role = if content["role"] == "model" { Role::Model } else { Role::User };
        let answers: Vec<&Value> = content["parts"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|it| &it["functionResponse"]["response"])
            .filter(|it| !it.is_null())
            .collect();
        for answer in &answers {
            let text = answer["output"].as_str().or(answer["error"].as_str());
            said.push(Entry { role: Role::Tool, text: text.map_or_else(|| answer.to_string(), str::to_owned) });
        }
        let text = texts(&content["parts"]);
        if answers.is_empty() || !text.is_empty() {
            said.push(Entry { role, text });
        }
    }
    let declared = body["tools"].as_array().into_iter().flatten();
    let tools = declared.flat_map(|it| it["functionDeclarations"].as_array().into_iter().flatten()).map(|it| {
        let schema = [&it["parametersJsonSchema"], &it["parameters"]].into_iter().find(|it| it.is_object());
        Offer {
            name: it["name"].as_str().unwrap_or_default().into(),
            schema: schema.cloned().unwrap_or_default(),
            ..Offer::default()
        }
    });
    let asks = &body["generationConfig"];
    Asked {
        api: Api::Gemini,
        model: model.into(),
        stream,
        tools: tools.collect(),
        said,
        schema: [&asks["responseJsonSchema"], &asks["responseSchema"]].into_iter().find(|it| it.is_object()).cloned(),
    }
}

fn texts(parts: &Value) -> String {
    let texts: Vec<&str> = parts.as_array().into_iter().flatten().filter_map(|it| it["text"].as_str()).collect();
    texts.join("\n")
}

fn usage(usage: &Usage) -> Value {
    json!({
        "promptTokenCount": usage.whole_input(),
        "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": usage.output - usage.reasoning.min(usage.output),
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.whole_input() + usage.output,
    })
}

fn answer_with(answer: &Answer, parts: Vec<Value>, last: bool) -> Value {
    let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
    if last {
        candidate["finishReason"] = json!("STOP");
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": usage(&answer.usage),
        "modelVersion": answer.model,
        "responseId": answer.id,
    })
}

fn calls(answer: &Answer) -> Vec<Value> {
    answer.calls.iter().map(|it| json!({"functionCall": {"id": it.id, "name": it.name, "args": it.fields()}})).collect()
}

pub(super) fn whole(answer: &Answer) -> Value {
    let mut parts = vec![];
    if !answer.thought.is_empty() {
        parts.push(json!({"text": answer.thought, "thought": true}));
    }
    if !answer.text.is_empty() {
        parts.push(json!({"text": answer.text}));
    }
    parts.extend(calls(answer));
    answer_with(answer, parts, true)
}

pub(super) fn events(answer: &Answer) -> Vec<String> {
    let mut events = vec![];
    for piece in answer.pieces(&answer.thought) {
        events.push(answer_with(answer, vec![json!({"text": piece, "thought": true})], false));
    }
    for piece in answer.pieces(&answer.text) {
        events.push(answer_with(answer, vec![json!({"text": piece})], false));
    }
    // Function calls are not split. The last event needs a part, because the program treats an
    // event without one as a broken stream.
    let calls = calls(answer);
    if !calls.is_empty() {
        events.push(answer_with(answer, calls, false));
    }
    events.push(answer_with(answer, vec![json!({"text": ""})], true));
    events.iter().map(|it| format!("data: {it}\r\n\r\n")).collect()
}

pub(super) fn failure(failure: &Failure) -> (Vec<(String, String)>, Value) {
    let status = match failure {
        Failure::Auth => "UNAUTHENTICATED",
        Failure::RateLimited { .. } | Failure::UsedUp { .. } => "RESOURCE_EXHAUSTED",
        Failure::ContextFull => "INVALID_ARGUMENT",
        Failure::Broken => "INTERNAL",
        Failure::Overloaded => "UNAVAILABLE",
    };
    let mut details = vec![];
    let mut headers = vec![];
    if let Some(reset) = failure.reset() {
        let seconds = reset.as_secs().max(1);
        headers.push(("retry-after".to_owned(), seconds.to_string()));
        let period = if matches!(failure, Failure::UsedUp { .. }) { "PerDay" } else { "PerMinute" };
        details.push(json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_requests",
            "quotaId": format!("GenerateRequests{period}PerProjectPerModel"),
        }]}));
        details.push(json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s")}));
    }
    let error = json!({"code": failure.status(), "message": failure.message(), "status": status, "details": details});
    (headers, json!({ "error": error }))
}
