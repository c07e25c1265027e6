//! Tests of the program's requests and of cancellation.

use super::*;

#[test]
fn cancel_answers_open_requests_and_later_answers_are_ignored() {
    let (mut harness, prompt) = plain_session_with_prompt();
    harness.output(permission_request(json!("p-1")));
    harness.output(permission_request(json!(2)));
    harness.update_input(|input| input.cancels = 1);
    let lines = harness.send_lines();
    assert_eq!(lines[0]["method"], "session/cancel");
    let outcomes: Vec<_> = lines[1..]
        .iter()
        .map(|value| (&value["id"], &value["result"]["outcome"]["outcome"]))
        .collect();
    assert_eq!(
        outcomes,
        [
            (&json!("p-1"), &json!("cancelled")),
            (&json!(2), &json!("cancelled"))
        ]
    );
    assert!(harness.events.contains(&AgentEvent::RequestWithdrawn {
        request: "p-1".to_owned()
    }));
    assert!(harness.events.contains(&AgentEvent::RequestWithdrawn {
        request: "2".to_owned()
    }));
    // A request that was sent before the cancellation is answered too, without asking a person.
    assert_eq!(harness.output(permission_request(json!(3))), vec![]);
    assert_eq!(
        single_line(harness.send_lines())["result"]["outcome"]["outcome"],
        "cancelled"
    );
    harness.update_input(|input| {
        input.answers = vec![
            ("p-1".to_owned(), RequestAnswer::Allow),
            ("2".to_owned(), RequestAnswer::Allow),
        ]
    });
    assert_eq!(harness.send_inputs(), vec![]);
    answer(&mut harness, &prompt, json!({ "stopReason": "cancelled" }));
    assert!(matches!(
        harness.events.last(),
        Some(AgentEvent::TurnEnded {
            stop: StopReason::Cancelled,
            class: Some(FailureClass::Cancelled),
            ..
        })
    ));
    // The cancellation was for that turn and does not affect the next one.
    harness.update_input(|input| input.prompts.push("Again.".to_owned()));
    let lines = harness.send_lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["method"], "session/prompt");
    assert_eq!(
        harness.assess_exit(&Exit::Signal(9)).class,
        Some(FailureClass::Crashed)
    );
    harness.check_replay();
}

#[test]
fn unsupported_requests_are_refused_and_unknown_notifications_are_ignored() {
    let (mut harness, _) = plain_session_with_prompt();
    for (id, method) in [
        (5, "fs/write_text_file"),
        (6, "terminal/create"),
        (7, "_vendor/thing"),
    ] {
        harness.output(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": {} }));
        let refused = single_line(harness.send_lines());
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&json!(id), &json!(-32601))
        );
    }
    assert_eq!(
        harness.output(json!({ "jsonrpc": "2.0", "method": "_auth/status_update", "params": {} })),
        vec![]
    );
    assert!(matches!(
        harness.output(json!({ "id": 99, "result": {} })).as_slice(),
        [AgentEvent::Notice { .. }]
    ));
    harness.check_replay();
}

#[test]
fn question_has_its_form_and_accepts_a_text_as_the_answer() {
    let (mut harness, _) = plain_session_with_prompt();
    let form = json!({ "type": "object", "properties": { "colour": { "type": "string", "enum": ["red", "blue"] } }, "required": ["colour"] });
    let events = harness.output(
        json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {
        "mode": "form", "sessionId": "s1", "message": "Which?", "requestedSchema": form } }),
    );
    let [AgentEvent::RequestMade(request_made)] = events.as_slice() else {
        panic!("{events:?}")
    };
    let RequestContent::Question {
        text,
        choices,
        schema,
    } = &request_made.content
    else {
        panic!("{request_made:?}")
    };
    assert_eq!(
        (text.as_str(), choices.as_slice()),
        ("Which?", ["red".to_owned(), "blue".to_owned()].as_slice())
    );
    assert!(schema.is_some());
    harness.update_input(|input| {
        input.answers.push((
            "q".to_owned(),
            RequestAnswer::Text {
                text: "blue".to_owned(),
            },
        ))
    });
    assert_eq!(
        single_line(harness.send_lines())["result"],
        json!({ "action": "accept", "content": { "colour": "blue" } })
    );
    harness.check_replay();
}

/// S13: the object of a request is found wherever the program puts it, and a bare name does not
/// count as an object.
#[test]
fn s13_a_permission_request_shows_the_object_of_the_tool() {
    let fetch =
        json!({ "title": "webfetch", "kind": "fetch", "rawInput": { "url": "https://docs.rs/" } });
    for (program, call, shown) in [
        ("opencode", fetch, Some("webfetch: https://docs.rs/")),
        (
            "gemini",
            json!({ "title": "npm i zod", "kind": "execute" }),
            Some("npm i zod"),
        ),
        (
            "gemini",
            json!({ "title": "Fetching content from: https://docs.rs/a", "kind": "fetch" }),
            Some("https://docs.rs/a"),
        ),
        (
            "gemini",
            json!({ "title": "Processing URLs from prompt: \"https://a.test and ...\"", "kind": "fetch" }),
            None,
        ),
        (
            "gemini",
            json!({ "title": "WriteFile", "kind": "edit", "content": [{ "type": "diff", "path": "/etc/hosts" }] }),
            Some("WriteFile: /etc/hosts"),
        ),
        (
            "goose",
            json!({ "title": "developer: shell", "kind": "other", "rawInput": { "command": "make" } }),
            Some("make"),
        ),
        (
            "goose",
            json!({ "title": "x: run", "kind": "other", "rawInput": { "command": "a", "host": "b" } }),
            Some(r#"x: run: {"command":"a","host":"b"}"#),
        ),
        (
            "codex-acp",
            json!({ "title": "Run", "kind": "execute", "rawInput": { "command": ["bash", "-lc", "make"] } }),
            Some("bash -lc make"),
        ),
        (
            "claude-agent-acp",
            json!({ "title": "Fetch", "rawInput": { "url": "https://docs.rs/", "prompt": "look" } }),
            Some("https://docs.rs/"),
        ),
        (
            "some-agent",
            json!({ "title": "WebFetch", "kind": "fetch" }),
            None,
        ),
        (
            "some-agent",
            json!({ "title": "Run a shell command", "kind": "execute" }),
            None,
        ),
        (
            "some-agent",
            json!({ "title": "github_merge", "kind": "other" }),
            None,
        ),
        (
            "some-agent",
            json!({ "title": "Edit", "kind": "edit", "rawInput": {} }),
            None,
        ),
    ] {
        let (mut harness, _) =
            session_with_prompt(acp_setup(program), json!({}), json!({ "sessionId": "s1" }));
        let mut request = permission_request(json!(0));
        request["params"]["toolCall"] = call.clone();
        request["params"]["toolCall"]["toolCallId"] = json!("t1");
        let events = harness.output(request);
        let [AgentEvent::RequestMade(request_made)] = events.as_slice() else {
            panic!("{events:?}")
        };
        let RequestContent::Permission { tool, .. } = &request_made.content else {
            panic!("{request_made:?}")
        };
        match shown {
            Some(shown) => assert!(
                tool.describe().contains(shown) && tool.undecidable_reason().is_none(),
                "{program} {call}: {tool:?}"
            ),
            None => assert!(
                tool.undecidable_reason().is_some(),
                "{program} {call}: {tool:?}"
            ),
        }
    }
    // OpenCode announces the call with its input and sends a request without it.
    let (mut harness, _) = session_with_prompt(
        acp_setup("opencode"),
        json!({}),
        json!({ "sessionId": "s1" }),
    );
    update(
        &mut harness,
        json!({ "sessionUpdate": "tool_call", "toolCallId": "t1", "title": "bash", "kind": "execute",
        "rawInput": { "command": "touch /tmp/x" } }),
    );
    let mut request = permission_request(json!(0));
    request["params"]["toolCall"] = json!({ "toolCallId": "t1", "title": "bash", "rawInput": {} });
    let events = harness.output(request);
    let [AgentEvent::RequestMade(request_made)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert!(
        matches!(&request_made.content, RequestContent::Permission { tool, .. } if tool.describe() == "touch /tmp/x"),
        "{request_made:?}"
    );
}
