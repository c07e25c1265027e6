//! Tests of the scripted model server with a plain HTTP client. They check the JSON shapes that
//! programs of each protocol read.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use regatta_testkit::models::{
    AnswerEnd, AnswerPace, ModelAction, ModelApi, ModelFailure, ModelScript, ModelServer,
    ModelTurn, ModelUsage, TurnRepeat,
};
use serde_json::{Value, json};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// An answer that the plain client received.
struct ClientAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    /// True if the body arrived completely.
    is_complete: bool,
}

impl ClientAnswer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|header| header.0 == name)
            .map(|header| header.1.as_str())
    }

    /// Returns the `data:` of every event.
    fn events(&self) -> Vec<Value> {
        let data = self
            .body
            .lines()
            .filter_map(|body| body.strip_prefix("data: "))
            .filter(|body| *body != "[DONE]");
        data.map(|data| {
            serde_json::from_str(data).unwrap_or_else(|error| panic!("{error} in {data}"))
        })
        .collect()
    }
}

fn send_request(server: &ModelServer, method: &str, path: &str, body: &Value) -> ClientAnswer {
    let mut connection = open_request(server, method, path, body);
    read_answer(&mut connection)
}

fn open_request(server: &ModelServer, method: &str, path: &str, body: &Value) -> TcpStream {
    let mut connection = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    connection.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let body = if method == "POST" {
        body.to_string()
    } else {
        String::new()
    };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nX-Api-Key: a-secret\r\nContent-Length: \
        {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(body.as_bytes()).unwrap();
    connection
}

fn read_answer(connection: &mut TcpStream) -> ClientAnswer {
    let mut reader = BufReader::new(connection);
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let status = first
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or_default();
    let mut headers = vec![];
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.push((name.to_owned(), value.to_owned()));
    }
    let mut answer = ClientAnswer {
        status,
        headers,
        body: String::new(),
        is_complete: false,
    };
    if answer.header("transfer-encoding").is_none() {
        reader.read_to_string(&mut answer.body).unwrap();
        answer.is_complete = answer
            .header("content-length")
            .and_then(|answer| answer.parse().ok())
            == Some(answer.body.len());
        return answer;
    }
    loop {
        let mut size = String::new();
        if reader.read_line(&mut size).unwrap_or(0) == 0 {
            return answer;
        }
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk).unwrap();
        answer
            .body
            .push_str(std::str::from_utf8(&chunk[..size]).unwrap());
        if size == 0 {
            answer.is_complete = true;
            return answer;
        }
    }
}

fn function_tool(name: &str, fields: &[&str], required: &[&str]) -> Value {
    let object: serde_json::Map<String, Value> = fields
        .iter()
        .map(|field| ((*field).to_owned(), json!({"type": "string"})))
        .collect();
    json!({"name": name, "schema": {"type": "object", "properties": object, "required": required}})
}

/// Returns a working request in each protocol, with the tools that a program of that protocol
/// offers.
fn work_request(api: ModelApi, text: &str, stream: bool) -> (String, Value) {
    let named = |value: &Value, field: &str| {
        let mut tool = json!({"name": value["name"]});
        tool[field] = value["schema"].clone();
        tool
    };
    match api {
        ModelApi::Anthropic => {
            let tools = [
                function_tool("Bash", &["command", "description"], &["command"]),
                function_tool("Read", &["file_path"], &["file_path"]),
                function_tool(
                    "Write",
                    &["file_path", "content"],
                    &["file_path", "content"],
                ),
            ];
            let tools: Vec<Value> = tools
                .iter()
                .map(|tool| named(tool, "input_schema"))
                .collect();
            let body = json!({"model": "claude-x", "max_tokens": 10, "stream": stream, "tools": tools,
                "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]});
            ("/v1/messages?beta=true".into(), body)
        }
        ModelApi::Responses => {
            let mut exec = named(
                &function_tool("exec_command", &["cmd"], &["cmd"]),
                "parameters",
            );
            exec["type"] = json!("function");
            let patch =
                json!({"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}});
            let mut inner = named(&function_tool("board", &["task"], &["task"]), "parameters");
            inner["type"] = json!("function");
            let group = json!({"type": "namespace", "name": "mcp__regatta", "tools": [inner]});
            let body = json!({"model": "gpt-5.5", "stream": stream, "instructions": "Be good.",
                "tools": [exec, patch, group, {"type": "web_search"}],
                "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]});
            ("/v1/responses".into(), body)
        }
        ModelApi::Chat => {
            let tools = [
                function_tool(
                    "bash",
                    &["command", "description"],
                    &["command", "description"],
                ),
                function_tool("write", &["filePath", "content"], &["filePath", "content"]),
            ];
            let tools: Vec<Value> = tools
                .iter()
                .map(|tool| json!({"type": "function", "function": named(tool, "parameters")}))
                .collect();
            let body = json!({"model": "stub-model", "stream": stream, "tools": tools,
                "messages": [{"role": "system", "content": "Be good."}, {"role": "user", "content": text}]});
            ("/v1/chat/completions".into(), body)
        }
        ModelApi::Gemini => {
            let tools = [
                function_tool("run_shell_command", &["command"], &["command"]),
                function_tool(
                    "write_file",
                    &["file_path", "content"],
                    &["file_path", "content"],
                ),
            ];
            let tools: Vec<Value> = tools
                .iter()
                .map(|tool| named(tool, "parametersJsonSchema"))
                .collect();
            let body = json!({"contents": [{"role": "user", "parts": [{"text": text}]}],
                "tools": [{"functionDeclarations": tools}]});
            let verb = if stream {
                "streamGenerateContent?alt=sse&key=a-secret"
            } else {
                "generateContent"
            };
            (format!("/v1beta/models/gemini-x:{verb}"), body)
        }
    }
}

const ALL_APIS: [ModelApi; 4] = [
    ModelApi::Anthropic,
    ModelApi::Responses,
    ModelApi::Chat,
    ModelApi::Gemini,
];

/// The content of an answer, streamed or not. `usage` has the tokens of input, of cached input and
/// of output.
#[derive(Debug, Default, PartialEq)]
struct ParsedAnswer {
    text: String,
    calls: Vec<(String, String)>,
    usage: (u64, u64, u64),
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is not a number"))
}

fn parse_answer(api: ModelApi, stream: bool, got: &ClientAnswer) -> ParsedAnswer {
    assert_eq!(
        (got.status, got.is_complete),
        (200, true),
        "{api:?}: {}",
        got.body
    );
    match (api, stream) {
        (ModelApi::Anthropic, false) => {
            let value = got.json();
            let mut found = ParsedAnswer::default();
            for block in value["content"].as_array().unwrap() {
                match block["type"].as_str().unwrap() {
                    "text" => found.text.push_str(block["text"].as_str().unwrap()),
                    "tool_use" => found.calls.push((
                        block["name"].as_str().unwrap().to_owned(),
                        block["input"].to_string(),
                    )),
                    other => panic!("{other}"),
                }
            }
            let usage = &value["usage"];
            found.usage = (
                number(&usage["input_tokens"]),
                number(&usage["cache_read_input_tokens"]),
                number(&usage["output_tokens"]),
            );
            assert_eq!(
                value["stop_reason"],
                if found.calls.is_empty() {
                    "end_turn"
                } else {
                    "tool_use"
                }
            );
            found
        }
        (ModelApi::Anthropic, true) => parse_messages_stream(got),
        (ModelApi::Responses, _) => {
            let events = got.events();
            let done = if stream {
                events.last().unwrap()["response"].clone()
            } else {
                got.json()
            };
            let mut found = ParsedAnswer::default();
            for item in done["output"].as_array().unwrap() {
                match item["type"].as_str().unwrap() {
                    "message" => found
                        .text
                        .push_str(item["content"][0]["text"].as_str().unwrap()),
                    "function_call" => {
                        let call = (
                            item["name"].as_str().unwrap(),
                            item["arguments"].as_str().unwrap(),
                        );
                        found.calls.push((call.0.into(), call.1.into()));
                    }
                    "custom_tool_call" => {
                        let call = (
                            item["name"].as_str().unwrap(),
                            item["input"].as_str().unwrap(),
                        );
                        found.calls.push((call.0.into(), call.1.into()));
                    }
                    other => panic!("{other}"),
                }
            }
            if stream {
                assert_eq!(events[0]["type"], "response.created");
                let text: String = events
                    .iter()
                    .filter(|event| event["type"] == "response.output_text.delta")
                    .map(|event| event["delta"].as_str().unwrap())
                    .collect();
                assert_eq!(text, found.text, "the deltas differ from the text");
                let items = events
                    .iter()
                    .filter(|event| event["type"] == "response.output_item.done")
                    .count();
                assert_eq!(items, done["output"].as_array().unwrap().len());
            }
            let usage = &done["usage"];
            let cached = number(&usage["input_tokens_details"]["cached_tokens"]);
            found.usage = (
                number(&usage["input_tokens"]),
                cached,
                number(&usage["output_tokens"]),
            );
            found
        }
        (ModelApi::Chat, false) => {
            let value = got.json();
            let message = &value["choices"][0]["message"];
            let calls = message["tool_calls"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|message| {
                    let call = &message["function"];
                    (
                        call["name"].as_str().unwrap().to_owned(),
                        call["arguments"].as_str().unwrap().to_owned(),
                    )
                });
            let usage = &value["usage"];
            ParsedAnswer {
                text: message["content"].as_str().unwrap().into(),
                calls: calls.collect(),
                usage: (
                    number(&usage["prompt_tokens"]),
                    number(&usage["prompt_tokens_details"]["cached_tokens"]),
                    number(&usage["completion_tokens"]),
                ),
            }
        }
        (ModelApi::Chat, true) => parse_chat_stream(got),
        (ModelApi::Gemini, _) => {
            let events = if stream {
                got.events()
            } else {
                vec![got.json()]
            };
            let mut found = ParsedAnswer::default();
            for event in &events {
                for part in event["candidates"][0]["content"]["parts"]
                    .as_array()
                    .unwrap()
                {
                    found
                        .text
                        .push_str(part["text"].as_str().unwrap_or_default());
                    if let Some(call) = part.get("functionCall") {
                        found.calls.push((
                            call["name"].as_str().unwrap().into(),
                            call["args"].to_string(),
                        ));
                    }
                }
            }
            let last = events.last().unwrap();
            assert_eq!(last["candidates"][0]["finishReason"], "STOP");
            let usage = &last["usageMetadata"];
            found.usage = (
                number(&usage["promptTokenCount"]),
                number(&usage["cachedContentTokenCount"]),
                number(&usage["candidatesTokenCount"]),
            );
            found
        }
    }
}

fn parse_messages_stream(got: &ClientAnswer) -> ParsedAnswer {
    let mut found = ParsedAnswer::default();
    let events = got.events();
    assert_eq!(events[0]["type"], "message_start");
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    for event in &events {
        match event["type"].as_str().unwrap() {
            "message_start" => {
                let usage = &event["message"]["usage"];
                found.usage.0 = number(&usage["input_tokens"]);
                found.usage.1 = number(&usage["cache_read_input_tokens"]);
            }
            "content_block_start" if event["content_block"]["type"] == "tool_use" => {
                found.calls.push((
                    event["content_block"]["name"].as_str().unwrap().into(),
                    String::new(),
                ));
            }
            "content_block_delta" => match event["delta"]["type"].as_str().unwrap() {
                "text_delta" => found
                    .text
                    .push_str(event["delta"]["text"].as_str().unwrap()),
                "input_json_delta" => {
                    let call = found.calls.last_mut().unwrap();
                    call.1
                        .push_str(event["delta"]["partial_json"].as_str().unwrap());
                }
                other => panic!("{other}"),
            },
            "message_delta" => found.usage.2 = number(&event["usage"]["output_tokens"]),
            _ => {}
        }
    }
    found
}

fn parse_chat_stream(got: &ClientAnswer) -> ParsedAnswer {
    let mut found = ParsedAnswer::default();
    assert!(got.body.ends_with("data: [DONE]\n\n"), "{}", got.body);
    let events = got.events();
    for event in &events {
        let delta = &event["choices"][0]["delta"];
        found
            .text
            .push_str(delta["content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            if let Some(name) = call["function"]["name"].as_str() {
                found.calls.push((name.into(), String::new()));
            }
            let call_of = &mut found.calls[usize::try_from(number(&call["index"])).unwrap()];
            call_of
                .1
                .push_str(call["function"]["arguments"].as_str().unwrap_or_default());
        }
    }
    let usage = &events.last().unwrap()["usage"];
    found.usage = (
        number(&usage["prompt_tokens"]),
        number(&usage["prompt_tokens_details"]["cached_tokens"]),
        number(&usage["completion_tokens"]),
    );
    found
}

#[test]
fn story_is_played_in_every_protocol_streamed_or_not() {
    let usage = ModelUsage {
        input: 7,
        cache_read: 11,
        cache_write: 13,
        output: 17,
        reasoning: 0,
    };
    for api in ALL_APIS {
        for stream in [false, true] {
            let turns = [
                ModelTurn::from_file_write("a/hello.txt", "Grüße, Welt\n")
                    .with_text("I write a file, in more than one piece.")
                    .with_usage(usage),
                ModelTurn::from_command("echo it's"),
                ModelTurn::from_text("Done."),
            ];
            let server = ModelServer::start([ModelScript::new("one-word", turns)]).unwrap();
            let (path, body) = work_request(api, "please do one-word, now", stream);
            let first = parse_answer(api, stream, &send_request(&server, "POST", &path, &body));
            assert_eq!(first.text, "I write a file, in more than one piece.");
            let input = if api == ModelApi::Anthropic { 7 } else { 31 };
            assert_eq!(first.usage, (input, 11, 17), "{api:?}");
            let [(name, fields)] = &first.calls[..] else {
                panic!("{first:?}")
            };
            let fields: Value = serde_json::from_str(fields).unwrap_or_else(|_| json!(fields));
            let want = match api {
                ModelApi::Anthropic => (
                    "Write",
                    json!({"file_path": "a/hello.txt", "content": "Grüße, Welt\n"}),
                ),
                ModelApi::Responses => (
                    "apply_patch",
                    json!(
                        "*** Begin Patch\n*** Add File: a/hello.txt\n+Grüße, Welt\n*** End Patch"
                    ),
                ),
                ModelApi::Chat => (
                    "write",
                    json!({"filePath": "a/hello.txt", "content": "Grüße, Welt\n"}),
                ),
                ModelApi::Gemini => (
                    "write_file",
                    json!({"file_path": "a/hello.txt", "content": "Grüße, Welt\n"}),
                ),
            };
            assert_eq!((name.as_str(), fields), want);

            let second = parse_answer(api, stream, &send_request(&server, "POST", &path, &body));
            let [(name, fields)] = &second.calls[..] else {
                panic!("{second:?}")
            };
            let fields: Value = serde_json::from_str(fields).unwrap();
            let want = match api {
                ModelApi::Anthropic => ("Bash", json!({"command": "echo it's"})),
                ModelApi::Responses => ("exec_command", json!({"cmd": "echo it's"})),
                ModelApi::Chat => (
                    "bash",
                    json!({"command": "echo it's", "description": "as the script says"}),
                ),
                ModelApi::Gemini => ("run_shell_command", json!({"command": "echo it's"})),
            };
            assert_eq!((name.as_str(), fields), want);
            assert_eq!(
                parse_answer(api, stream, &send_request(&server, "POST", &path, &body)).text,
                "Done."
            );
            assert_eq!(
                parse_answer(api, stream, &send_request(&server, "POST", &path, &body)).text,
                "The work is done."
            );
            assert_eq!(server.errors(), [""; 0]);
            let seen = server.requests_of("one-word");
            assert_eq!(
                seen.iter()
                    .map(|request| request.story.as_ref().unwrap().1)
                    .collect::<Vec<_>>(),
                [0, 1, 2, 3]
            );
            assert!(
                seen.iter()
                    .all(|request| request.has_key && !request.path.contains("secret"))
            );
            // A client can read the end of an answer before the server records that it sent the
            // end.
            assert!(server.wait_until(TEST_TIMEOUT, |requests| {
                requests
                    .iter()
                    .all(|request| request.outcome == Some(AnswerEnd::Complete))
            }));
            assert_eq!(seen[0].last_user_text, "please do one-word, now");
        }
    }
}

#[test]
fn side_request_uses_no_turn_and_gets_the_requested_schema() {
    for api in ALL_APIS {
        let server = ModelServer::start([ModelScript::new(
            "one-word",
            [ModelTurn::from_text("The first turn.")],
        )])
        .unwrap();
        let (path, mut body) = work_request(api, "one-word", true);
        body.as_object_mut().unwrap().remove("tools");
        assert_eq!(
            parse_answer(api, true, &send_request(&server, "POST", &path, &body)).text,
            "A title"
        );
        let shape = json!({"type": "object", "properties": {"title": {"type": "string"}, "ok": {"type": "boolean"},
            "next": {"type": "string", "enum": ["user", "model"]}}});
        match api {
            ModelApi::Anthropic => {
                body["output_config"] = json!({"format": {"type": "json_schema", "schema": shape}})
            }
            ModelApi::Responses => {
                body["text"] = json!({"format": {"type": "json_schema", "schema": shape}})
            }
            ModelApi::Chat => {
                body["response_format"] =
                    json!({"type": "json_schema", "json_schema": {"schema": shape}});
            }
            ModelApi::Gemini => body["generationConfig"] = json!({"responseJsonSchema": shape}),
        }
        let shaped = parse_answer(api, true, &send_request(&server, "POST", &path, &body)).text;
        let shaped: Value = serde_json::from_str(&shaped).unwrap();
        assert_eq!(
            shaped,
            json!({"title": "A title", "ok": false, "next": "user"})
        );
        assert!(
            server
                .requests()
                .iter()
                .all(|request| request.is_side_request && request.story.is_none())
        );
        let (path, body) = work_request(api, "one-word", true);
        assert_eq!(
            parse_answer(api, true, &send_request(&server, "POST", &path, &body)).text,
            "The first turn."
        );
    }
}

#[test]
fn last_marker_that_is_a_whole_word_selects_the_story() {
    let script_for = |marker: &str| {
        ModelScript::new(marker, [])
            .repeat_after(ModelTurn::from_text(format!("This is <{marker}>.")))
    };
    let server = ModelServer::start([
        script_for("tale-1"),
        script_for("tale-12"),
        script_for("claude-x"),
        script_for(""),
    ])
    .unwrap();
    let answer_to = |text: &str, model: &str| {
        let (path, mut body) = work_request(ModelApi::Anthropic, text, false);
        body["model"] = json!(model);
        parse_answer(
            ModelApi::Anthropic,
            false,
            &send_request(&server, "POST", &path, &body),
        )
        .text
    };
    assert_eq!(answer_to("do tale-12", "m"), "This is <tale-12>.");
    assert_eq!(
        answer_to("do tale-12, then \"tale-1\".", "m"),
        "This is <tale-1>."
    );
    assert_eq!(answer_to("do tale-123", "claude-x"), "This is <claude-x>.");
    assert_eq!(answer_to("do tale-123", "m"), "This is <>.");
    let (path, mut body) = work_request(ModelApi::Anthropic, "tale-1", false);
    let more = [
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "no tale-12"}]}),
    ];
    body["messages"].as_array_mut().unwrap().extend(more);
    let answer = send_request(&server, "POST", &path, &body);
    assert_eq!(
        parse_answer(ModelApi::Anthropic, false, &answer).text,
        "This is <tale-1>.",
        "a tool's output selects no story"
    );
    let last = server.requests().pop().unwrap();
    assert_eq!(
        (last.tool_results, last.user_texts),
        (vec!["no tale-12".to_owned()], vec!["tale-1".to_owned()])
    );
}

#[test]
fn failures_have_the_status_body_and_reset_time_of_each_provider() {
    for api in ALL_APIS {
        let limited = ModelFailure::RateLimited {
            resets_after: Duration::from_secs(30),
        };
        let used_up = ModelFailure::QuotaExhausted {
            resets_after: Duration::from_secs(3600),
        };
        let turns = [
            ModelTurn::from_failure(ModelFailure::Auth),
            ModelTurn::from_failure(limited),
            ModelTurn::from_failure(used_up),
            ModelTurn::from_failure(ModelFailure::ServerError),
            ModelTurn::from_failure(ModelFailure::Overloaded).with_repeat(TurnRepeat::Times(2)),
            ModelTurn::from_failure(ModelFailure::ContextFull),
        ];
        let server = ModelServer::start([ModelScript::new("", turns)]).unwrap();
        let (path, body) = work_request(api, "x", true);
        let answer: Vec<ClientAnswer> = (0..8)
            .map(|_| send_request(&server, "POST", &path, &body))
            .collect();
        assert_eq!(
            answer
                .iter()
                .map(|client_answer| client_answer.status)
                .collect::<Vec<_>>(),
            [401, 429, 429, 500, 529, 529, 400, 200]
        );
        assert_eq!(answer[1].header("retry-after"), Some("30"), "{api:?}");
        let errors: Vec<Value> = answer[..7]
            .iter()
            .map(|client_answer| client_answer.json()["error"].clone())
            .collect();
        assert!(errors.iter().all(|error| error["message"].is_string()));
        match api {
            ModelApi::Anthropic => {
                assert_eq!(errors[0]["type"], "authentication_error");
                assert_eq!(errors[1]["type"], "rate_limit_error");
                assert!(
                    answer[1]
                        .header("anthropic-ratelimit-requests-reset")
                        .is_some()
                );
                assert_eq!(
                    answer[2].header("anthropic-ratelimit-unified-status"),
                    Some("rejected")
                );
                assert_eq!(errors[4]["type"], "overloaded_error");
            }
            ModelApi::Responses | ModelApi::Chat => {
                assert_eq!(errors[1]["code"], "rate_limit_exceeded");
                assert_eq!(answer[1].header("x-ratelimit-reset-requests"), Some("30s"));
                assert_eq!(errors[2]["type"], "usage_limit_reached");
                assert!(errors[2]["resets_at"].is_u64());
                assert_eq!(errors[6]["code"], "context_length_exceeded");
            }
            ModelApi::Gemini => {
                assert_eq!(errors[1]["status"], "RESOURCE_EXHAUSTED");
                assert_eq!(errors[1]["details"][1]["retryDelay"], "30s");
                assert_eq!(errors[4]["code"], 529);
            }
        }
    }
}

#[test]
fn stream_is_cut_or_hangs_until_it_is_released_or_the_client_leaves() {
    for api in ALL_APIS {
        let text = "A text that is long enough to be cut in the middle of it, and then some.";
        let hangs = |gate: &str| {
            ModelTurn::from_text(text).with_pace(AnswerPace::Hang { gate: gate.into() })
        };
        let slow = ModelTurn::from_text(text).with_pace(AnswerPace::Slow {
            delay: Duration::from_millis(1),
        });
        let turns = [
            ModelTurn::from_text(text).with_pace(AnswerPace::CutOff),
            hangs("one"),
            hangs("two"),
            slow,
        ];
        let server = ModelServer::start([ModelScript::new("", turns)]).unwrap();
        let (path, body) = work_request(api, "x", true);

        let cut = send_request(&server, "POST", &path, &body);
        assert!(
            cut.status == 200 && !cut.is_complete && !cut.events().is_empty(),
            "{api:?}: {}",
            cut.body
        );
        assert!(
            server.wait_until(TEST_TIMEOUT, |requests| requests[0].outcome
                == Some(AnswerEnd::CutOff))
        );

        let mut first = open_request(&server, "POST", &path, &body);
        let mut begun = [0; 15];
        first.read_exact(&mut begun).unwrap();
        assert_eq!(
            &begun, b"HTTP/1.1 200 OK",
            "the answer begins before it hangs"
        );
        let second = open_request(&server, "POST", &path, &body);
        assert!(
            server.wait_until(TEST_TIMEOUT, |requests| requests.len() == 3
                && requests[2].story.is_some())
        );
        // A client can close its half of the connection or disappear. The server detects both.
        if api == ModelApi::Chat {
            drop(second);
        } else {
            second.shutdown(std::net::Shutdown::Write).unwrap();
        }
        assert!(
            server.wait_until(TEST_TIMEOUT, |requests| requests[2].outcome
                == Some(AnswerEnd::ClientHungUp)),
            "{api:?}"
        );
        assert_eq!(
            server.requests()[1].outcome,
            None,
            "only the stream whose client left has ended"
        );
        server.release("one");
        let mut rest = String::new();
        first.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
        assert!(
            server.wait_until(TEST_TIMEOUT, |requests| requests[1].outcome
                == Some(AnswerEnd::Complete))
        );
        assert_eq!(
            parse_answer(api, true, &send_request(&server, "POST", &path, &body)).text,
            text
        );
    }
}

#[test]
fn turn_with_a_time_limit_is_skipped_afterwards() {
    let limited = ModelFailure::RateLimited {
        resets_after: Duration::from_secs(1),
    };
    let over = ModelTurn::from_failure(ModelFailure::ServerError)
        .with_repeat(TurnRepeat::For(Duration::ZERO));
    let turns = [
        ModelTurn::from_failure(limited).with_repeat(TurnRepeat::For(Duration::from_millis(300))),
        over,
        ModelTurn::from_text("It goes on."),
    ];
    let server = ModelServer::start([ModelScript::new("", turns)]).unwrap();
    let (path, body) = work_request(ModelApi::Chat, "x", false);
    assert_eq!(send_request(&server, "POST", &path, &body).status, 429);
    let deadline = std::time::Instant::now() + TEST_TIMEOUT;
    let mut answer = send_request(&server, "POST", &path, &body);
    while answer.status == 429 && std::time::Instant::now() < deadline {
        answer = send_request(&server, "POST", &path, &body);
    }
    assert_eq!(
        parse_answer(ModelApi::Chat, false, &answer).text,
        "It goes on."
    );
}

#[test]
fn tools_are_found_by_their_purpose_and_a_missing_tool_is_a_fault() {
    let call = ModelAction::CallTool {
        tool: "board".into(),
        input: json!({"task": "T1"}),
    };
    let turns = [
        ModelTurn::from_action(call.clone()),
        ModelTurn::from_action(ModelAction::ReadFile {
            path: "it's".into(),
        }),
    ];
    let server = ModelServer::start([ModelScript::new("", turns)]).unwrap();
    let (path, body) = work_request(ModelApi::Responses, "x", true);
    let answer = send_request(&server, "POST", &path, &body);
    let item = answer.events().pop().unwrap()["response"]["output"][0].clone();
    assert_eq!(
        (&item["name"], &item["namespace"]),
        (&json!("board"), &json!("mcp__regatta"))
    );
    let read = parse_answer(
        ModelApi::Responses,
        true,
        &send_request(&server, "POST", &path, &body),
    );
    assert_eq!(
        read.calls,
        [(
            "exec_command".to_owned(),
            json!({"cmd": r"cat 'it'\''s'"}).to_string()
        )]
    );

    let server =
        ModelServer::start([ModelScript::new("", [ModelTurn::from_action(call)])]).unwrap();
    let (path, body) = work_request(ModelApi::Chat, "x", true);
    let answer = send_request(&server, "POST", &path, &body);
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert!(
        server.errors()[0].contains("no tool was offered"),
        "{:?}",
        server.errors()
    );
}

#[test]
fn tool_that_is_not_listed_is_searched_for_and_then_called() {
    let find = ModelTurn::from_action(ModelAction::FindTool {
        tool: "board".into(),
    });
    let call = ModelAction::CallTool {
        tool: "board".into(),
        input: json!({}),
    };
    let server =
        ModelServer::start([ModelScript::new("", [find, ModelTurn::from_action(call)])]).unwrap();
    let (path, mut body) = work_request(ModelApi::Responses, "x", true);
    body["tools"] = json!([{"type": "tool_search", "execution": "client", "parameters": {}}]);
    let item = send_request(&server, "POST", &path, &body)
        .events()
        .pop()
        .unwrap()["response"]["output"][0]
        .clone();
    assert_eq!(
        (&item["type"], &item["arguments"]["query"]),
        (&json!("tool_search_call"), &json!("board"))
    );
    let found = json!([{"type": "namespace", "name": "mcp__regatta", "tools": [function_tool("board", &[], &[])]}]);
    let output = json!({"type": "tool_search_output", "call_id": item["call_id"], "tools": found});
    body["input"].as_array_mut().unwrap().push(output);
    let item = send_request(&server, "POST", &path, &body)
        .events()
        .pop()
        .unwrap()["response"]["output"][0]
        .clone();
    assert_eq!(
        (&item["name"], &item["namespace"]),
        (&json!("board"), &json!("mcp__regatta"))
    );
    assert_eq!(server.errors(), Vec::<String>::new());
}

#[test]
fn absolute_path_is_built_from_the_working_directory_in_the_prompt() {
    let server = ModelServer::start([ModelScript::new(
        "",
        [ModelTurn::from_file_write("b.txt", "x")],
    )])
    .unwrap();
    let (path, mut body) = work_request(ModelApi::Anthropic, "x", false);
    body["system"] = json!([{"type": "text", "text": "# Environment\nPrimary working directory: \
        /some/where\nPlatform: y"}]);
    body["tools"][2]["input_schema"]["properties"]["file_path"]["description"] =
        json!("The absolute path to the file");
    let answer = parse_answer(
        ModelApi::Anthropic,
        false,
        &send_request(&server, "POST", &path, &body),
    );
    let fields: Value = serde_json::from_str(&answer.calls[0].1).unwrap();
    assert_eq!(fields["file_path"], "/some/where/b.txt");
}

#[test]
fn models_are_listed_tokens_are_counted_and_unknown_paths_are_404() {
    let server = ModelServer::start([]).unwrap();
    let none = Value::Null;
    assert_eq!(
        send_request(&server, "GET", "/v1/models", &none).json()["data"][0]["id"],
        "stub-model"
    );
    assert_eq!(
        send_request(&server, "GET", "/v1beta/models", &none).json()["models"][0]["name"],
        "models/stub-model"
    );
    assert_eq!(
        send_request(&server, "GET", "/v1/models/x", &none).json()["id"],
        "x"
    );
    let (_, body) = work_request(ModelApi::Anthropic, "x", false);
    assert!(
        send_request(&server, "POST", "/v1/messages/count_tokens", &body).json()["input_tokens"]
            .as_u64()
            .unwrap()
            > 10
    );
    let count = "/v1beta/models/g:countTokens";
    assert!(
        send_request(&server, "POST", count, &body).json()["totalTokens"]
            .as_u64()
            .unwrap()
            > 10
    );
    assert_eq!(send_request(&server, "HEAD", "/", &none).status, 200);
    let stranger = send_request(&server, "POST", "/v1/nothing", &json!({}));
    assert_eq!(stranger.status, 404);
    assert!(
        stranger.body.contains("has no POST /v1/nothing"),
        "{}",
        stranger.body
    );
    assert_eq!(server.requests().last().unwrap().status, 404);
    let (path, body) = work_request(ModelApi::Gemini, "x", false);
    assert_eq!(
        parse_answer(
            ModelApi::Gemini,
            false,
            &send_request(&server, "POST", &path, &body)
        )
        .text,
        "There is nothing to do."
    );
}

/// Real clients reuse a connection, and some send their body in chunks.
#[test]
fn one_connection_carries_two_requests_and_a_chunked_body() {
    let server = ModelServer::start([ModelScript::new(
        "",
        [ModelTurn::from_text("One."), ModelTurn::from_text("Two.")],
    )])
    .unwrap();
    let (path, body) = work_request(ModelApi::Chat, "x", false);
    let body = body.to_string();
    let mut connection = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    connection.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let (begin, end) = body.split_at(10);
    let chunked = format!(
        "POST {path} HTTP/1.1\r\nAuthorization: Bearer a-secret\r\nTransfer-Encoding: \
        chunked\r\n\r\n{:x}\r\n{begin}\r\n{:x}\r\n{end}\r\n0\r\n\r\n",
        begin.len(),
        end.len()
    );
    let plain = format!(
        "POST {path} HTTP/1.1\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    connection.write_all((chunked + &plain).as_bytes()).unwrap();
    let mut all = String::new();
    connection.read_to_string(&mut all).unwrap();
    assert!(
        all.find("One.").unwrap() < all.find("Two.").unwrap(),
        "{all}"
    );
    assert_eq!(
        server
            .requests()
            .iter()
            .map(|request| request.has_key)
            .collect::<Vec<_>>(),
        [true, false]
    );
}
