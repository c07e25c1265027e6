//! Tests of conversations with Codex's app-server.

use regatta_core::agent::Runtime;
use regatta_core::agent_protocol::{
    AgentEvent, FailureClass, RequestAnswer, RequestContent, StopReason, Usage,
};
use regatta_engine::ports::agents::Exit;
use serde_json::{Value, json};

use crate::driver::InputAction;
use crate::drivers::DriverSetup;
use crate::drivers::harness::{DriverHarness, setup};

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
    stage: &mut DriverHarness,
    method: &str,
    mut params: Value,
) -> Vec<AgentEvent> {
    params["threadId"] = json!("t-1");
    stage.output(json!({ "method": method, "params": params }))
}

fn session_with_turn() -> DriverHarness {
    let mut stage = DriverHarness::new(server_setup());
    stage.update_input(|session_input| {
        session_input.prompts = vec!["Do it, with the secret.".to_owned()]
    });
    let hello = single_line(stage.send_lines());
    assert_eq!(
        (&hello["method"], hello.get("jsonrpc")),
        (&json!("initialize"), None)
    );
    stage.output(json!({ "id": hello["id"], "result": { "userAgent": "codex" } }));
    let [ready, start] = stage.send_lines().try_into().expect("two lines");
    assert_eq!(ready["method"], "initialized");
    assert_eq!(
        start["params"],
        json!({ "cwd": "/workspace", "approvalPolicy": "on-request", "sandbox": "danger-full-access" })
    );
    stage.output(
        json!({ "id": start["id"], "result": { "thread": { "id": "t-1" }, "model": "gpt" } }),
    );
    let turn = single_line(stage.send_lines());
    assert_eq!(turn["method"], "turn/start");
    stage.output(json!({ "id": turn["id"], "result": { "turn": { "id": "u-1", "items": [], "status": "inProgress" } } }));
    stage
}

#[test]
fn turn_is_translated_approved_and_counted() {
    let mut stage = session_with_turn();
    send_notification(
        &mut stage,
        "item/started",
        json!({ "item": { "type": "commandExecution", "id": "i1", "command": "ls", "status": "inProgress" } }),
    );
    let said = stage.output(json!({ "id": 0, "method": "item/commandExecution/requestApproval", "params":
        { "threadId": "t-1", "turnId": "u-1", "itemId": "i1", "startedAtMs": 1, "command": "rm -r build" } }));
    let [AgentEvent::RequestMade(asked)] = said.as_slice() else {
        panic!("{said:?}")
    };
    assert!(
        matches!(&asked.content, RequestContent::Permission { tool, .. } if tool.command.as_deref() == Some("rm -r build"))
    );
    stage.update_input(|session_input| {
        session_input
            .answers
            .push(("0".to_owned(), RequestAnswer::Deny { reason: None }))
    });
    assert_eq!(
        single_line(stage.send_lines()),
        json!({ "id": 0, "result": { "decision": "decline" } })
    );
    send_notification(
        &mut stage,
        "turn/plan/updated",
        json!({ "plan": [{ "step": "look", "status": "inProgress" }] }),
    );
    send_notification(
        &mut stage,
        "item/agentMessage/delta",
        json!({ "itemId": "m", "delta": "Do" }),
    );
    send_notification(
        &mut stage,
        "item/agentMessage/delta",
        json!({ "itemId": "m", "delta": "ne." }),
    );
    assert_eq!(
        send_notification(
            &mut stage,
            "item/completed",
            json!({ "item": { "type": "agentMessage", "id": "m", "text": "Done." } })
        ),
        vec![]
    );
    let counts = |input: u64| json!({ "inputTokens": input, "cachedInputTokens": 2000, "outputTokens": 30, "reasoningOutputTokens": 0, "totalTokens": input + 30 });
    send_notification(
        &mut stage,
        "thread/tokenUsage/updated",
        json!({ "tokenUsage": { "total": counts(2400), "last": counts(2400), "modelContextWindow": 10_000 } }),
    );
    // The turn of a subagent's thread does not end this turn.
    stage.output(json!({ "method": "turn/completed", "params": { "threadId": "t-2", "turn": { "id": "x", "status": "failed" } } }));
    send_notification(
        &mut stage,
        "turn/completed",
        json!({ "turn": { "id": "u-1", "items": [], "status": "completed" } }),
    );
    assert_eq!(
        stage.events.last(),
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
    assert!(stage.events.contains(&AgentEvent::Usage {
        session: Some("t-1".to_owned()),
        usage
    }));
    assert!(stage.events.contains(&AgentEvent::Context {
        used: 2430,
        size: 10_000
    }));
    stage.update_input(|session_input| session_input.should_close_input = true);
    assert_eq!(stage.send_inputs(), vec![InputAction::Close]);
    assert_eq!(stage.assess_exit(&Exit::Code(0)).class, None);
    stage.check_replay();
}

#[test]
fn interrupt_cancels_open_requests_and_waits_for_the_id_of_the_turn() {
    let mut stage = session_with_turn();
    stage.output(json!({ "id": "f", "method": "item/fileChange/requestApproval", "params": { "threadId": "t-1", "turnId": "u-1", "itemId": "i", "startedAtMs": 1 } }));
    stage.update_input(|session_input| session_input.cancels = 1);
    let lines = stage.send_lines();
    assert_eq!(
        lines[0]["params"],
        json!({ "threadId": "t-1", "turnId": "u-1" })
    );
    assert_eq!(
        lines[1],
        json!({ "id": "f", "result": { "decision": "cancel" } })
    );
    send_notification(
        &mut stage,
        "turn/completed",
        json!({ "turn": { "id": "u-1", "items": [], "status": "interrupted" } }),
    );
    assert!(matches!(
        stage.events.last(),
        Some(AgentEvent::TurnEnded {
            stop: StopReason::Cancelled,
            ..
        })
    ));
    stage.update_input(|session_input| session_input.prompts.push("Again.".to_owned()));
    let turn = single_line(stage.send_lines());
    stage.update_input(|session_input| session_input.cancels = 2);
    assert_eq!(stage.send_inputs(), vec![], "the turn has no id yet");
    stage.output(json!({ "id": turn["id"], "result": { "turn": { "id": "u-2" } } }));
    assert_eq!(single_line(stage.send_lines())["params"]["turnId"], "u-2");
    stage.check_replay();
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
        let mut stage = session_with_turn();
        send_notification(
            &mut stage,
            "account/rateLimits/updated",
            json!({ "rateLimits": {
            "primary": { "usedPercent": 100, "resetsAt": 1_763_240_400 }, "secondary": { "usedPercent": 20, "resetsAt": 1_763_940_400 } } }),
        );
        let error = json!({ "message": "It failed.", "codexErrorInfo": info });
        let said = send_notification(
            &mut stage,
            "turn/completed",
            json!({ "turn": { "id": "u-1", "status": "failed", "error": error } }),
        );
        assert_eq!(
            stage.assess_exit(&Exit::Code(0)).class,
            Some(class),
            "{said:?}"
        );
        if class == FailureClass::RateLimit {
            assert!(
                matches!(
                    &said[0],
                    AgentEvent::Limited {
                        deadline_unix_ms: Some(1_763_240_400_000),
                        ..
                    }
                ),
                "{said:?}"
            );
        }
        stage.check_replay();
    }
}

#[test]
fn missing_thread_is_replaced_by_a_new_thread() {
    let mut setup = server_setup();
    setup.resume = Some("t-0".to_owned());
    let mut stage = DriverHarness::new(setup);
    stage.update_input(|session_input| session_input.prompts = vec!["Go.".to_owned()]);
    let hello = single_line(stage.send_lines());
    stage.output(json!({ "id": hello["id"], "result": {} }));
    let resume = stage.send_lines().pop().unwrap();
    assert_eq!(
        (&resume["method"], &resume["params"]["threadId"]),
        (&json!("thread/resume"), &json!("t-0"))
    );
    stage.output(
        json!({ "id": resume["id"], "error": { "code": -32600, "message": "no rollout found" } }),
    );
    assert_eq!(single_line(stage.send_lines())["method"], "thread/start");
    stage.check_replay();
}

#[test]
fn questions_are_answered_by_their_own_ids() {
    let mut stage = session_with_turn();
    stage.output(json!({ "id": 4, "method": "item/tool/requestUserInput", "params": { "threadId": "t-1", "turnId": "u-1", "itemId": "i", "isBlocking": true,
        "questions": [{ "id": "colour", "header": "h", "question": "Which?", "options": [{ "label": "Red", "description": "" }] }] } }));
    stage.update_input(|session_input| {
        session_input.answers.push((
            "4".to_owned(),
            RequestAnswer::Text {
                text: "Red".to_owned(),
            },
        ))
    });
    assert_eq!(
        single_line(stage.send_lines())["result"],
        json!({ "answers": { "colour": { "answers": ["Red"] } } })
    );
    stage.output(json!({ "id": 5, "method": "account/chatgptAuthTokens/refresh", "params": {} }));
    assert_eq!(single_line(stage.send_lines())["error"]["code"], -32601);
    stage.check_replay();
}

fn permission_tool_call(
    stage: &mut DriverHarness,
    method: &str,
    params: Value,
) -> regatta_core::agent_protocol::ToolCall {
    let said = stage.output(json!({ "id": 0, "method": method, "params": params }));
    let [AgentEvent::RequestMade(asked)] = said.as_slice() else {
        panic!("{said:?}")
    };
    let RequestContent::Permission { tool, .. } = &asked.content else {
        panic!("{asked:?}")
    };
    tool.clone()
}

/// S13: a request names its call only by id, so the object comes from the announced call.
#[test]
fn s13_a_permission_request_shows_files_host_and_permissions() {
    let mut stage = session_with_turn();
    send_notification(
        &mut stage,
        "item/started",
        json!({ "item": { "type": "fileChange", "id": "i1", "status": "inProgress",
            "changes": [{ "path": "/etc/hosts" }, { "path": "a.rs" }] } }),
    );
    let change = permission_tool_call(
        &mut stage,
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
        &mut stage,
        "item/fileChange/requestApproval",
        json!({ "itemId": "i9" }),
    );
    assert!(unknown.undecidable_reason().is_some(), "{unknown:?}");
    let network = json!({ "itemId": "i2", "networkApprovalContext": { "host": "docs.rs", "protocol": "https" } });
    let host = permission_tool_call(&mut stage, "item/commandExecution/requestApproval", network);
    assert_eq!(
        (host.urls.as_slice(), host.undecidable_reason()),
        (["https://docs.rs".to_owned()].as_slice(), None)
    );
    let wider = json!({ "itemId": "i3", "reason": "to build", "permissions": { "fileSystem": { "write": ["/opt"] } } });
    let wider = permission_tool_call(&mut stage, "item/permissions/requestApproval", wider);
    assert!(
        wider.describe().contains("/opt") && wider.paths == ["/opt"],
        "{wider:?}"
    );
    // A text that names no path is shown unchanged.
    let network = json!({ "itemId": "i4", "permissions": { "network": { "enabled": true } } });
    let network = permission_tool_call(&mut stage, "item/permissions/requestApproval", network);
    assert!(
        network
            .arguments
            .as_ref()
            .is_some_and(|asked| asked.contains("network")),
        "{network:?}"
    );
    assert_eq!(network.undecidable_reason(), None);
}

/// S13: an announced command is shown even if the request repeats only its id. A root that would
/// become writable for the whole session is shown as one of the files.
#[test]
fn s13_a_permission_request_shows_the_announced_command_and_the_granted_root() {
    let mut stage = session_with_turn();
    send_notification(
        &mut stage,
        "item/started",
        json!({ "item": { "type": "commandExecution", "id": "c1", "status": "inProgress", "command": "rm -r build" } }),
    );
    let command = permission_tool_call(
        &mut stage,
        "item/commandExecution/requestApproval",
        json!({ "itemId": "c1" }),
    );
    assert_eq!(
        (command.command.as_deref(), command.undecidable_reason()),
        (Some("rm -r build"), None)
    );
    let root = json!({ "itemId": "i9", "grantRoot": "/opt/shared" });
    let root = permission_tool_call(&mut stage, "item/fileChange/requestApproval", root);
    assert_eq!(
        (root.paths.as_slice(), root.undecidable_reason()),
        (["/opt/shared".to_owned()].as_slice(), None)
    );
}
