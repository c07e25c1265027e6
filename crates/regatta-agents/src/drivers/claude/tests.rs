//! Tests of conversations with Claude Code, as observed with version 2.1.197.

use regatta_core::agent::Runtime;
use regatta_core::agent_protocol::{
    AgentEvent, FailureClass, RequestAnswer, RequestContent, StopReason, Usage,
};
use regatta_engine::ports::agents::Exit;
use serde_json::{Value, json};

use crate::driver::InputAction;
use crate::drivers::test_harness::{DriverHarness, setup};

fn single_line(lines: Vec<Value>) -> Value {
    let [line] = lines.try_into().expect("one line");
    line
}

fn session_with_prompt() -> DriverHarness {
    let mut harness = DriverHarness::new(setup(Runtime::Claude {
        argv: vec!["claude".to_owned()],
    }));
    harness.update_input(|input| input.prompts = vec!["Do it, with the secret.".to_owned()]);
    let hello = single_line(harness.send_lines());
    assert_eq!(hello["request"]["subtype"], "initialize");
    let events = harness.output(json!({ "type": "control_response", "response": { "subtype": "success", "request_id": hello["request_id"], "response": {} } }));
    assert_eq!(
        events,
        vec![AgentEvent::Started {
            session: Some(harness.setup.session_id()),
            model: None
        }]
    );
    let prompt = single_line(harness.send_lines());
    assert_eq!(
        prompt["message"]["content"][0]["text"],
        "Do it, with the secret."
    );
    harness.output(json!({ "type": "system", "subtype": "init", "model": "opus" }));
    harness
}

fn assistant_message(id: &str, content: Value) -> Value {
    let usage = json!({ "input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 1 });
    json!({ "type": "assistant", "message": { "id": id, "content": [content], "usage": usage }, "parent_tool_use_id": null })
}

fn tool_permission_request(id: &str) -> Value {
    json!({ "type": "control_request", "request_id": id, "request": { "subtype": "can_use_tool", "tool_name": "Bash",
        "input": { "command": "echo [redacted]" }, "tool_use_id": "toolu_1" } })
}

fn result_message(fields: Value) -> Value {
    let mut result = json!({ "type": "result", "subtype": "success", "is_error": false, "result": "Done.", "stop_reason": "end_turn",
        "total_cost_usd": 0.0008, "usage": { "input_tokens": 20 },
        "modelUsage": { "opus": { "inputTokens": 20, "outputTokens": 14, "cacheReadInputTokens": 200, "cacheCreationInputTokens": 40, "contextWindow": 1000 } } });
    for (name, value) in fields.as_object().expect("an object") {
        result[name] = value.clone();
    }
    result
}

#[test]
fn turn_is_translated_and_usage_is_counted_once() {
    let mut harness = session_with_prompt();
    harness.output(assistant_message(
        "m1",
        json!({ "type": "thinking", "thinking": "hm" }),
    ));
    harness.output(assistant_message(
        "m1",
        json!({ "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": { "command": "ls" } }),
    ));
    let events = harness.output(tool_permission_request("c-1"));
    let [AgentEvent::RequestMade(request_made)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert!(
        matches!(&request_made.content, RequestContent::Permission { tool, .. } if tool.command.as_deref() == Some("echo [redacted]"))
    );
    harness.update_input(|input| input.answers.push(("c-1".to_owned(), RequestAnswer::Allow)));
    let allowed = single_line(harness.send_lines());
    // The input from the journal must not be sent back, because it may be redacted.
    assert_eq!(
        allowed["response"]["response"],
        json!({ "behavior": "allow", "updatedInput": {} })
    );
    let events = harness.output(json!({ "type": "user", "message": { "content": [{ "type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt", "is_error": false }] } }));
    assert!(
        matches!(events.as_slice(), [AgentEvent::Tool(tool)] if tool.output.as_deref() == Some("a.txt"))
    );
    harness.output(assistant_message(
        "m2",
        json!({ "type": "text", "text": "Done." }),
    ));
    let estimate = Usage {
        input: 20,
        cached_input: 200,
        cache_write: 40,
        output: 2,
        micro_usd: None,
    };
    assert!(
        harness.events.contains(&AgentEvent::Usage {
            session: Some(harness.setup.session_id()),
            usage: estimate
        }),
        "{:?}",
        harness.events
    );
    harness.output(result_message(json!({})));
    let total = Usage {
        output: 14,
        micro_usd: Some(800),
        ..estimate
    };
    harness.update_input(|input| input.prompts.push("Again.".to_owned()));
    assert_eq!(single_line(harness.send_lines())["type"], "user");
    harness.output(assistant_message(
        "m3",
        json!({ "type": "text", "text": "Well." }),
    ));
    assert!(harness.events.contains(&AgentEvent::Context {
        used: 131,
        size: 1000
    }));
    harness.output(result_message(json!({ "result": "Well.", "total_cost_usd": 0.0012, "modelUsage": { "opus": { "inputTokens": 30, "outputTokens": 21, "cacheReadInputTokens": 300, "cacheCreationInputTokens": 60 } } })));
    harness.update_input(|input| input.should_close_input = true);
    assert_eq!(harness.send_inputs(), vec![InputAction::Close]);
    let assessment = harness.assess_exit(&Exit::Code(0));
    assert_eq!(
        (assessment.class, assessment.detail.as_str()),
        (None, "Well.")
    );
    assert_eq!(
        assessment.usage[0].1,
        Usage {
            input: 30,
            cached_input: 300,
            cache_write: 60,
            output: 21,
            micro_usd: Some(1200)
        }
    );
    assert_ne!(assessment.usage[0].1, total);
    harness.check_replay();
}

#[test]
fn interrupt_denies_open_requests() {
    let mut harness = session_with_prompt();
    harness.output(tool_permission_request("c-1"));
    harness.output(tool_permission_request("c-2"));
    harness.update_input(|input| input.cancels = 1);
    let lines = harness.send_lines();
    assert_eq!(lines[0]["request"]["subtype"], "interrupt");
    for (line, id) in lines[1..].iter().zip(["c-1", "c-2"]) {
        assert_eq!(
            (
                &line["response"]["request_id"],
                &line["response"]["response"]["behavior"]
            ),
            (&json!(id), &json!("deny"))
        );
    }
    assert_eq!(lines.len(), 3);
    // The program may withdraw the requests by itself at the same time.
    assert_eq!(
        harness.output(json!({ "type": "control_cancel_request", "request_id": "c-1" })),
        vec![]
    );
    harness.output(result_message(json!({ "subtype": "error_during_execution", "is_error": true, "terminal_reason": "aborted_streaming", "modelUsage": {} })));
    assert!(matches!(
        harness.events.last(),
        Some(AgentEvent::TurnEnded {
            stop: StopReason::Cancelled,
            ..
        })
    ));
    harness.update_input(|input| input.prompts.push("Again.".to_owned()));
    assert_eq!(single_line(harness.send_lines())["type"], "user");
    harness.check_replay();
}

#[test]
fn result_with_an_error_is_a_failure_despite_its_subtype_success() {
    for (fields, kind, class) in [
        (
            json!({ "is_error": true, "api_error_status": 529, "result": "API Error: 529" }),
            "server_error",
            FailureClass::Overloaded,
        ),
        (
            json!({ "is_error": true, "api_error_status": 429, "result": "API Error: Request \
                rejected (429) · nope" }),
            "rate_limit",
            FailureClass::RateLimit,
        ),
        (
            json!({ "is_error": true, "api_error_status": 401, "result": "Failed to authenticate. \
                API Error: 401 nope" }),
            "authentication_failed",
            FailureClass::Auth,
        ),
        (
            json!({ "is_error": true, "result": "Prompt is too long" }),
            "unknown",
            FailureClass::ContextFull,
        ),
        (
            json!({ "subtype": "error_during_execution", "is_error": true, "result": "", "errors": ["boom"] }),
            "unknown",
            FailureClass::Crashed,
        ),
        (
            json!({ "stop_reason": "refusal" }),
            "unknown",
            FailureClass::Refused,
        ),
    ] {
        let mut harness = session_with_prompt();
        let mut failed = assistant_message("m", json!({ "type": "text", "text": "x" }));
        failed["error"] = json!(kind);
        harness.output(failed);
        if class == FailureClass::RateLimit {
            let events = harness.output(json!({ "type": "rate_limit_event", "rate_limit_info": { "status": "rejected", "resetsAt": 1_763_240_400 } }));
            assert!(
                matches!(
                    events.as_slice(),
                    [AgentEvent::Limited {
                        deadline_unix_ms: Some(1_763_240_400_000),
                        ..
                    }]
                ),
                "{events:?}"
            );
        }
        let events = harness.output(result_message(fields));
        assert!(
            matches!(events.last(), Some(AgentEvent::TurnEnded { class: Some(actual), .. }) if *actual == class),
            "{class}: {events:?}"
        );
        if class == FailureClass::RateLimit {
            assert!(events.iter().any(|agent_event| matches!(
                agent_event,
                AgentEvent::Limited {
                    deadline_unix_ms: Some(1_763_240_400_000),
                    ..
                }
            )));
        }
        assert_eq!(harness.assess_exit(&Exit::Code(1)).class, Some(class));
        harness.check_replay();
    }
}

#[test]
fn questions_of_claude_become_questions_and_hook_callbacks_are_refused() {
    let mut harness = session_with_prompt();
    let questions = json!([{ "question": "Which colour?", "header": "C", "options": [{ "label": "Red" }, { "label": "Blue" }] }]);
    let events = harness.output(json!({ "type": "control_request", "request_id": "q", "request": { "subtype": "can_use_tool", "tool_name": "AskUserQuestion", "input": { "questions": questions } } }));
    let [AgentEvent::RequestMade(request_made)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert!(
        matches!(&request_made.content, RequestContent::Question { choices, .. } if choices == &["Red", "Blue"])
    );
    harness.update_input(|input| {
        input.answers.push((
            "q".to_owned(),
            RequestAnswer::Text {
                text: "Green".to_owned(),
            },
        ))
    });
    assert_eq!(
        single_line(harness.send_lines())["response"]["response"]["updatedInput"]["answers"],
        json!({ "Which colour?": "Green" })
    );
    harness.output(json!({ "type": "control_request", "request_id": "h", "request": { "subtype": "hook_callback" } }));
    assert_eq!(
        single_line(harness.send_lines())["response"]["subtype"],
        "error"
    );
    harness.check_replay();
}

#[test]
fn error_output_before_the_first_turn_is_the_reason() {
    let mut harness = DriverHarness::new(setup(Runtime::Claude {
        argv: vec!["claude".to_owned()],
    }));
    harness.send_inputs();
    harness.error_output("Error: Session ID 0 is already in use.");
    assert_eq!(
        harness.assess_exit(&Exit::Code(1)).class,
        Some(FailureClass::BadConfig)
    );
    let mut gone = DriverHarness::new(setup(Runtime::Claude {
        argv: vec!["claude".to_owned()],
    }));
    gone.send_inputs();
    gone.output(result_message(json!({ "subtype": "error_during_execution", "is_error": true, "result": "", "errors": ["No conversation \
        found with session ID: x"] })));
    assert_eq!(gone.send_inputs(), vec![InputAction::Close]);
    assert!(
        gone.assess_exit(&Exit::Code(1))
            .detail
            .contains("No conversation found")
    );
    gone.check_replay();
}

/// S13: every request of a tool shows its object.
#[test]
fn s13_a_permission_request_shows_the_object_of_the_tool() {
    for (name, input, shown) in [
        (
            "WebFetch",
            json!({ "url": "https://docs.rs/serde", "prompt": "look" }),
            "WebFetch: https://docs.rs/serde",
        ),
        (
            "WebSearch",
            json!({ "query": "rust" }),
            r#"WebSearch: {"query":"rust"}"#,
        ),
        (
            "Write",
            json!({ "file_path": "/w/a.rs", "content": "x" }),
            "Write: /w/a.rs",
        ),
        (
            "Bash",
            json!({ "command": "make", "description": "Builds" }),
            "make",
        ),
        (
            "KillShell",
            json!({ "shell_id": "7" }),
            r#"KillShell: {"shell_id":"7"}"#,
        ),
        (
            "mcp__github__merge",
            json!({ "pull": 3 }),
            r#"mcp__github__merge: {"pull":3}"#,
        ),
        (
            "mcp__docker__run",
            json!({ "command": "ls", "image": "x" }),
            r#"{"command":"ls","image":"x"}"#,
        ),
        (
            "mcp__linear__list_teams",
            json!({}),
            "mcp__linear__list_teams",
        ),
    ] {
        let mut harness = session_with_prompt();
        let events = harness.output(
            json!({ "type": "control_request", "request_id": "c-1", "request":
            { "subtype": "can_use_tool", "tool_name": name, "input": input, "tool_use_id": "t" } }),
        );
        let [AgentEvent::RequestMade(request_made)] = events.as_slice() else {
            panic!("{events:?}")
        };
        let RequestContent::Permission { tool, .. } = &request_made.content else {
            panic!("{request_made:?}")
        };
        assert!(tool.describe().contains(shown), "{}", tool.describe());
        assert_eq!(tool.undecidable_reason(), None, "{tool:?}");
    }
    let mut harness = session_with_prompt();
    let long = "a".repeat(20_000);
    let events = harness.output(json!({ "type": "control_request", "request_id": "c-1", "request":
        { "subtype": "can_use_tool", "tool_name": "Bash", "input": { "command": long }, "tool_use_id": "t" } }));
    let [AgentEvent::RequestMade(request_made)] = events.as_slice() else {
        panic!("{events:?}")
    };
    let RequestContent::Permission { tool, .. } = &request_made.content else {
        panic!("{request_made:?}")
    };
    assert!(
        tool.is_cut && tool.undecidable_reason().is_some(),
        "{tool:?}"
    );
}
