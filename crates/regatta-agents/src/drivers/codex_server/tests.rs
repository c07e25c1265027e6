//! Tests of conversations with Codex's app-server.

use regatta_core::agent::Runtime;
use regatta_core::agent_protocol::{
    AgentEvent, FailureClass, RequestAnswer, RequestContent, StopReason, Usage,
};
use regatta_engine::ports::agents::Exit;
use serde_json::{Value, json};

use crate::driver::InputAction;
use crate::drivers::DriverSetup;
use crate::drivers::test_harness::{DriverHarness, setup};

fn server_setup() -> DriverSetup {
    setup(Runtime::Codex {
        argv: vec!["codex".to_owned()],
        app_server: true,
    })
}

fn single_line(lines: Vec<Value>) -> Value {
    let [line] = lines.try_into().expect("one line");
    line
}

fn send_notification(
    harness: &mut DriverHarness,
    method: &str,
    mut params: Value,
) -> Vec<AgentEvent> {
    params["threadId"] = json!("t-1");
    harness.output(json!({ "method": method, "params": params }))
}

fn session_with_turn() -> DriverHarness {
    let mut harness = DriverHarness::new(server_setup());
    harness.update_input(|input| input.prompts = vec!["Do it, with the secret.".to_owned()]);
    let hello = single_line(harness.send_lines());
    assert_eq!(
        (&hello["method"], hello.get("jsonrpc")),
        (&json!("initialize"), None)
    );
    harness.output(json!({ "id": hello["id"], "result": { "userAgent": "codex" } }));
    let [ready, start] = harness.send_lines().try_into().expect("two lines");
    assert_eq!(ready["method"], "initialized");
    assert_eq!(
        start["params"],
        json!({ "cwd": "/workspace", "approvalPolicy": "on-request", "sandbox": "danger-full-access" })
    );
    harness.output(
        json!({ "id": start["id"], "result": { "thread": { "id": "t-1" }, "model": "gpt" } }),
    );
    let turn = single_line(harness.send_lines());
    assert_eq!(turn["method"], "turn/start");
    harness.output(json!({ "id": turn["id"], "result": { "turn": { "id": "u-1", "items": [], "status": "inProgress" } } }));
    harness
}

#[test]
fn turn_is_translated_approved_and_counted() {
    let mut harness = session_with_turn();
    send_notification(
        &mut harness,
        "item/started",
        json!({ "item": { "type": "commandExecution", "id": "i1", "command": "ls", "status": "inProgress" } }),
    );
    let events = harness.output(json!({ "id": 0, "method": "item/commandExecution/requestApproval", "params":
        { "threadId": "t-1", "turnId": "u-1", "itemId": "i1", "startedAtMs": 1, "command": "rm -r build" } }));
    let [AgentEvent::RequestMade(request_made)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert!(
        matches!(&request_made.content, RequestContent::Permission { tool, .. } if tool.command.as_deref() == Some("rm -r build"))
    );
    harness.update_input(|input| {
        input
            .answers
            .push(("0".to_owned(), RequestAnswer::Deny { reason: None }))
    });
    assert_eq!(
        single_line(harness.send_lines()),
        json!({ "id": 0, "result": { "decision": "decline" } })
    );
    send_notification(
        &mut harness,
        "turn/plan/updated",
        json!({ "plan": [{ "step": "look", "status": "inProgress" }] }),
    );
    send_notification(
        &mut harness,
        "item/agentMessage/delta",
        json!({ "itemId": "m", "delta": "Do" }),
    );
    send_notification(
        &mut harness,
        "item/agentMessage/delta",
        json!({ "itemId": "m", "delta": "ne." }),
    );
    assert_eq!(
        send_notification(
            &mut harness,
            "item/completed",
            json!({ "item": { "type": "agentMessage", "id": "m", "text": "Done." } })
        ),
        vec![]
    );
    let counts = |input: u64| json!({ "inputTokens": input, "cachedInputTokens": 2000, "outputTokens": 30, "reasoningOutputTokens": 0, "totalTokens": input + 30 });
    send_notification(
        &mut harness,
        "thread/tokenUsage/updated",
        json!({ "tokenUsage": { "total": counts(2400), "last": counts(2400), "modelContextWindow": 10_000 } }),
    );
    // The turn of a subagent's thread does not end this turn.
    harness.output(json!({ "method": "turn/completed", "params": { "threadId": "t-2", "turn": { "id": "x", "status": "failed" } } }));
    send_notification(
        &mut harness,
        "turn/completed",
        json!({ "turn": { "id": "u-1", "items": [], "status": "completed" } }),
    );
    assert_eq!(
        harness.events.last(),
        Some(&AgentEvent::TurnEnded {
            stop: StopReason::EndTurn,
            class: None,
            detail: "Done.".to_owned()
        })
    );
    let usage = Usage {
        input: 400,
        cached_input: 2000,
        output: 30,
        ..Usage::default()
    };
    assert!(harness.events.contains(&AgentEvent::Usage {
        session: Some("t-1".to_owned()),
        usage
    }));
    assert!(harness.events.contains(&AgentEvent::Context {
        used: 2430,
        size: 10_000
    }));
    harness.update_input(|input| input.should_close_input = true);
    assert_eq!(harness.send_inputs(), vec![InputAction::Close]);
    assert_eq!(harness.assess_exit(&Exit::Code(0)).class, None);
    harness.check_replay();
}

#[test]
fn interrupt_cancels_open_requests_and_waits_for_the_id_of_the_turn() {
    let mut harness = session_with_turn();
    harness.output(json!({ "id": "f", "method": "item/fileChange/requestApproval", "params": { "threadId": "t-1", "turnId": "u-1", "itemId": "i", "startedAtMs": 1 } }));
    harness.update_input(|input| input.cancels = 1);
    let lines = harness.send_lines();
    assert_eq!(
        lines[0]["params"],
        json!({ "threadId": "t-1", "turnId": "u-1" })
    );
    assert_eq!(
        lines[1],
        json!({ "id": "f", "result": { "decision": "cancel" } })
    );
    send_notification(
        &mut harness,
        "turn/completed",
        json!({ "turn": { "id": "u-1", "items": [], "status": "interrupted" } }),
    );
    assert!(matches!(
        harness.events.last(),
        Some(AgentEvent::TurnEnded {
            stop: StopReason::Cancelled,
            ..
        })
    ));
    harness.update_input(|input| input.prompts.push("Again.".to_owned()));
    let turn = single_line(harness.send_lines());
    harness.update_input(|input| input.cancels = 2);
    assert_eq!(harness.send_inputs(), vec![], "the turn has no id yet");
    harness.output(json!({ "id": turn["id"], "result": { "turn": { "id": "u-2" } } }));
    assert_eq!(single_line(harness.send_lines())["params"]["turnId"], "u-2");
    harness.check_replay();
}

#[test]
fn failures_have_their_class_and_limits_their_reset_time() {
    for (info, class) in [
        (json!("contextWindowExceeded"), FailureClass::ContextFull),
        (json!("unauthorized"), FailureClass::Auth),
        (json!("serverOverloaded"), FailureClass::Overloaded),
        (json!("modelNotFound"), FailureClass::BadConfig),
        (
            json!({ "responseTooManyFailedAttempts": { "httpStatusCode": 529 } }),
            FailureClass::Overloaded,
        ),
        (json!("usageLimitExceeded"), FailureClass::RateLimit),
    ] {
        let mut harness = session_with_turn();
        send_notification(
            &mut harness,
            "account/rateLimits/updated",
            json!({ "rateLimits": {
            "primary": { "usedPercent": 100, "resetsAt": 1_763_240_400 }, "secondary": { "usedPercent": 20, "resetsAt": 1_763_940_400 } } }),
        );
        let error = json!({ "message": "It failed.", "codexErrorInfo": info });
        let events = send_notification(
            &mut harness,
            "turn/completed",
            json!({ "turn": { "id": "u-1", "status": "failed", "error": error } }),
        );
        assert_eq!(
            harness.assess_exit(&Exit::Code(0)).class,
            Some(class),
            "{events:?}"
        );
        if class == FailureClass::RateLimit {
            assert!(
                matches!(
                    &events[0],
                    AgentEvent::Limited {
                        deadline_unix_ms: Some(1_763_240_400_000),
                        ..
                    }
                ),
                "{events:?}"
            );
        }
        harness.check_replay();
    }
}

#[test]
fn missing_thread_is_replaced_by_a_new_thread() {
    let mut setup = server_setup();
    setup.resume = Some("t-0".to_owned());
    let mut harness = DriverHarness::new(setup);
    harness.update_input(|input| input.prompts = vec!["Go.".to_owned()]);
    let hello = single_line(harness.send_lines());
    harness.output(json!({ "id": hello["id"], "result": {} }));
    let resume = harness.send_lines().pop().unwrap();
    assert_eq!(
        (&resume["method"], &resume["params"]["threadId"]),
        (&json!("thread/resume"), &json!("t-0"))
    );
    harness.output(
        json!({ "id": resume["id"], "error": { "code": -32600, "message": "no rollout found" } }),
    );
    assert_eq!(single_line(harness.send_lines())["method"], "thread/start");
    harness.check_replay();
}

#[test]
fn questions_are_answered_by_their_own_ids() {
    let mut harness = session_with_turn();
    harness.output(json!({ "id": 4, "method": "item/tool/requestUserInput", "params": { "threadId": "t-1", "turnId": "u-1", "itemId": "i", "isBlocking": true,
        "questions": [{ "id": "colour", "header": "h", "question": "Which?", "options": [{ "label": "Red", "description": "" }] }] } }));
    harness.update_input(|input| {
        input.answers.push((
            "4".to_owned(),
            RequestAnswer::Text {
                text: "Red".to_owned(),
            },
        ))
    });
    assert_eq!(
        single_line(harness.send_lines())["result"],
        json!({ "answers": { "colour": { "answers": ["Red"] } } })
    );
    harness.output(json!({ "id": 5, "method": "account/chatgptAuthTokens/refresh", "params": {} }));
    assert_eq!(single_line(harness.send_lines())["error"]["code"], -32601);
    harness.check_replay();
}

fn permission_tool_call(
    harness: &mut DriverHarness,
    method: &str,
    params: Value,
) -> regatta_core::agent_protocol::ToolCall {
    let events = harness.output(json!({ "id": 0, "method": method, "params": params }));
    let [AgentEvent::RequestMade(request_made)] = events.as_slice() else {
        panic!("{events:?}")
    };
    let RequestContent::Permission { tool, .. } = &request_made.content else {
        panic!("{request_made:?}")
    };
    tool.clone()
}

/// S13: a request names its call only by id, so the object comes from the announced call.
#[test]
fn s13_a_permission_request_shows_files_host_and_permissions() {
    let mut harness = session_with_turn();
    send_notification(
        &mut harness,
        "item/started",
        json!({ "item": { "type": "fileChange", "id": "i1", "status": "inProgress",
            "changes": [{ "path": "/etc/hosts" }, { "path": "a.rs" }] } }),
    );
    let change = permission_tool_call(
        &mut harness,
        "item/fileChange/requestApproval",
        json!({ "itemId": "i1" }),
    );
    assert_eq!(
        (change.paths.as_slice(), change.describe().as_str()),
        (
            ["/etc/hosts".to_owned(), "a.rs".to_owned()].as_slice(),
            "change files: /etc/hosts, a.rs",
        )
    );
    let unknown = permission_tool_call(
        &mut harness,
        "item/fileChange/requestApproval",
        json!({ "itemId": "i9" }),
    );
    assert!(unknown.undecidable_reason().is_some(), "{unknown:?}");
    let network = json!({ "itemId": "i2", "networkApprovalContext": { "host": "docs.rs", "protocol": "https" } });
    let host = permission_tool_call(
        &mut harness,
        "item/commandExecution/requestApproval",
        network,
    );
    assert_eq!(
        (host.urls.as_slice(), host.undecidable_reason()),
        (["https://docs.rs".to_owned()].as_slice(), None)
    );
    let wider = json!({ "itemId": "i3", "reason": "to build", "permissions": { "fileSystem": { "write": ["/opt"] } } });
    let wider = permission_tool_call(&mut harness, "item/permissions/requestApproval", wider);
    assert!(
        wider.describe().contains("/opt") && wider.paths == ["/opt"],
        "{wider:?}"
    );
    // A text that names no path is shown unchanged.
    let network = json!({ "itemId": "i4", "permissions": { "network": { "enabled": true } } });
    let network = permission_tool_call(&mut harness, "item/permissions/requestApproval", network);
    assert!(
        network
            .arguments
            .as_ref()
            .is_some_and(|arguments| arguments.contains("network")),
        "{network:?}"
    );
    assert_eq!(network.undecidable_reason(), None);
}

/// S13: an announced command is shown even if the request repeats only its id. A root that would
/// become writable for the whole session is shown as one of the files.
#[test]
fn s13_a_permission_request_shows_the_announced_command_and_the_granted_root() {
    let mut harness = session_with_turn();
    send_notification(
        &mut harness,
        "item/started",
        json!({ "item": { "type": "commandExecution", "id": "c1", "status": "inProgress", "command": "rm -r build" } }),
    );
    let command = permission_tool_call(
        &mut harness,
        "item/commandExecution/requestApproval",
        json!({ "itemId": "c1" }),
    );
    assert_eq!(
        (command.command.as_deref(), command.undecidable_reason()),
        (Some("rm -r build"), None)
    );
    let root = json!({ "itemId": "i9", "grantRoot": "/opt/shared" });
    let root = permission_tool_call(&mut harness, "item/fileChange/requestApproval", root);
    assert_eq!(
        (root.paths.as_slice(), root.undecidable_reason()),
        (["/opt/shared".to_owned()].as_slice(), None)
    );
}
