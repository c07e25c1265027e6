//! Tests of conversations with programs that speak ACP, as they appear in the journal.

use regatta_core::agent::Runtime;
use regatta_core::agent_protocol::{
    AgentEvent, FailureClass, RequestAnswer, RequestContent, StopReason, Usage,
};
use regatta_engine::ports::agents::Exit;
use serde_json::{Value, json};

use crate::driver::InputAction;
use crate::drivers::DriverSetup;
use crate::drivers::harness::{DriverHarness, setup};

fn acp_setup(program: &str) -> DriverSetup {
    setup(Runtime::Acp {
        argv: vec![program.to_owned(), "acp".to_owned()],
    })
}

fn answer(stage: &mut DriverHarness, request: &Value, result: Value) -> Vec<AgentEvent> {
    stage.output(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
}

fn update(stage: &mut DriverHarness, update: Value) -> Vec<AgentEvent> {
    let params = json!({ "sessionId": "s1", "update": update });
    stage.output(json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))
}

fn single_line(lines: Vec<Value>) -> Value {
    let [line] = lines.try_into().expect("one line");
    line
}

/// Opens a session up to its first prompt. Returns the prompt's request too.
fn session_with_prompt(setup: DriverSetup, able: Value, opened: Value) -> (DriverHarness, Value) {
    let mut stage = DriverHarness::new(setup);
    stage.update_input(|session_input| {
        session_input.prompts = vec!["Do it, with the secret.".to_owned()]
    });
    let hello = single_line(stage.send_lines());
    assert_eq!(hello["method"], "initialize");
    assert_eq!(hello["params"]["protocolVersion"], 1);
    answer(
        &mut stage,
        &hello,
        json!({ "protocolVersion": 1, "agentCapabilities": able }),
    );
    let open = single_line(stage.send_lines());
    answer(&mut stage, &open, opened);
    let prompt = single_line(stage.send_lines());
    assert_eq!(prompt["method"], "session/prompt", "{prompt}");
    (stage, prompt)
}

fn plain_session_with_prompt() -> (DriverHarness, Value) {
    session_with_prompt(
        acp_setup("some-agent"),
        json!({}),
        json!({ "sessionId": "s1" }),
    )
}

fn permission_request(id: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": {
        "sessionId": "s1",
        "toolCall": { "toolCallId": "t1", "title": "rm -r build", "kind": "execute", "rawInput": { "command": "rm -r build" } },
        "options": [
            { "optionId": "no", "name": "Allow", "kind": "reject_once" },
            { "optionId": "ever", "name": "Yes", "kind": "allow_always" },
            { "optionId": "yes", "name": "Reject", "kind": "allow_once" },
        ],
    }})
}

/// A program that does not support tool servers over HTTP starts regatta itself, and the token is
/// not among the arguments (S4).
#[test]
fn tools_are_served_by_a_process_if_http_is_not_supported() {
    let mut setup = acp_setup("some-agent");
    setup.mcp_url = Some("http://127.0.0.1:7/mcp".to_owned());
    setup.regatta = Some("/opt/regatta".into());
    let able = json!({ "sessionCapabilities": { "close": {} } });
    let (stage, _) = session_with_prompt(setup, able, json!({ "sessionId": "s1" }));
    let open: Value = serde_json::from_str(&stage.journal[2].line).unwrap();
    let server = &open["params"]["mcpServers"][0];
    assert_eq!(
        (&server["command"], &server["args"]),
        (&json!("/opt/regatta"), &json!(["mcp"]))
    );
    assert_eq!(
        server["env"][0],
        json!({ "name": "REGATTA_TOKEN", "value": "${REGATTA_TOKEN}" })
    );
    assert_eq!(
        server["env"][1],
        json!({ "name": "REGATTA_SERVER", "value": "http://127.0.0.1:7" })
    );
}

#[test]
fn whole_conversation_is_translated_and_can_be_replayed_from_any_record() {
    let mut setup = acp_setup("some-agent");
    setup.mcp_url = Some("http://127.0.0.1:7/mcp".to_owned());
    setup.profile.system_prompt = Some("Be brief.".to_owned());
    let able =
        json!({ "mcpCapabilities": { "http": true }, "sessionCapabilities": { "close": {} } });
    let (mut stage, prompt) = session_with_prompt(setup, able, json!({ "sessionId": "s1" }));
    let open: Value = serde_json::from_str(&stage.journal[2].line).unwrap();
    assert_eq!(open["params"]["cwd"], "/workspace");
    assert_eq!(
        open["params"]["mcpServers"][0]["headers"][0]["value"],
        "Bearer ${REGATTA_TOKEN}"
    );
    assert_eq!(prompt["params"]["prompt"][0]["text"], "Be brief.");
    assert_eq!(
        prompt["params"]["prompt"][1]["text"],
        "Do it, with the secret."
    );

    update(
        &mut stage,
        json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": "hm" } }),
    );
    update(
        &mut stage,
        json!({ "sessionUpdate": "plan", "entries": [
            { "content": "look", "priority": "high", "status": "completed" }, { "content": "do", "status": "in_progress" },
        ]}),
    );
    update(
        &mut stage,
        json!({ "sessionUpdate": "tool_call", "toolCallId": "t1", "title": "Write a.txt", "kind": "edit",
        "status": "pending", "locations": [{ "path": "/workspace/a.txt" }] }),
    );
    let said = update(
        &mut stage,
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "completed",
        "content": [{ "type": "content", "content": { "type": "text", "text": "wrote 3 lines" } }] }),
    );
    let [AgentEvent::Tool(tool)] = said.as_slice() else {
        panic!("{said:?}")
    };
    assert_eq!(
        (tool.title.as_str(), tool.output.as_deref()),
        ("Write a.txt", Some("wrote 3 lines"))
    );
    assert_eq!(tool.paths, ["/workspace/a.txt"]);

    let said = stage.output(permission_request(json!(0)));
    let [AgentEvent::RequestMade(asked)] = said.as_slice() else {
        panic!("{said:?}")
    };
    assert!(
        matches!(&asked.content, RequestContent::Permission { tool, .. } if tool.command.as_deref() == Some("rm -r build"))
    );
    assert_eq!(
        stage.send_inputs(),
        vec![],
        "the request is not answered yet"
    );
    stage.update_input(|session_input| {
        session_input
            .answers
            .push(("0".to_owned(), RequestAnswer::Allow))
    });
    let allowed = single_line(stage.send_lines());
    assert_eq!(
        allowed["result"]["outcome"],
        json!({ "outcome": "selected", "optionId": "yes" })
    );

    update(
        &mut stage,
        json!({ "sessionUpdate": "usage_update", "used": 900, "size": 1000, "cost": { "amount": 0.25, "currency": "USD" } }),
    );
    update(
        &mut stage,
        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "Done." } }),
    );
    update(
        &mut stage,
        json!({ "sessionUpdate": "something_new", "x": 1 }),
    );
    stage.output("Debugger listening on ws://…");
    stage.error_output("warn: x");
    answer(
        &mut stage,
        &prompt,
        json!({ "stopReason": "end_turn",
        "usage": { "inputTokens": 10, "outputTokens": 5, "totalTokens": 115, "cachedReadTokens": 100 } }),
    );
    assert_eq!(
        stage.events.last(),
        Some(&AgentEvent::TurnEnded {
            stop: StopReason::EndTurn,
            class: None,
            detail: "Done.".to_owned()
        })
    );

    stage.update_input(|session_input| session_input.prompts.push("And now?".to_owned()));
    let second = single_line(stage.send_lines());
    assert_eq!(
        second["params"]["prompt"],
        json!([{ "type": "text", "text": "And now?" }])
    );
    answer(
        &mut stage,
        &second,
        json!({ "stopReason": "end_turn", "usage": { "inputTokens": 1, "outputTokens": 2 } }),
    );
    let total = Usage {
        input: 11,
        cached_input: 100,
        cache_write: 0,
        output: 7,
        micro_usd: Some(250_000),
    };
    assert!(
        stage.events.contains(&AgentEvent::Usage {
            session: Some("s1".to_owned()),
            usage: total
        }),
        "{:?}",
        stage.events
    );
    assert!(stage.events.contains(&AgentEvent::Context {
        used: 900,
        size: 1000
    }));

    stage.update_input(|session_input| session_input.should_close_input = true);
    assert!(
        matches!(stage.send_inputs().as_slice(), [InputAction::Line(s), InputAction::Close] if s.contains("session/close")),
        "the session is closed, then the input"
    );
    for exit in [Exit::Code(0), Exit::Code(1), Exit::Signal(15)] {
        let judged = stage.assess_exit(&exit);
        assert_eq!(
            (judged.class, &judged.usage),
            (None, &vec![(Some("s1".to_owned()), total)])
        );
    }
    stage.check_replay();
}

#[test]
fn cancel_answers_open_requests_and_later_answers_are_ignored() {
    let (mut stage, prompt) = plain_session_with_prompt();
    stage.output(permission_request(json!("p-1")));
    stage.output(permission_request(json!(2)));
    stage.update_input(|session_input| session_input.cancels = 1);
    let lines = stage.send_lines();
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
    assert!(stage.events.contains(&AgentEvent::RequestWithdrawn {
        request: "p-1".to_owned()
    }));
    assert!(stage.events.contains(&AgentEvent::RequestWithdrawn {
        request: "2".to_owned()
    }));
    // A request that was sent before the cancellation is answered too, without asking a person.
    assert_eq!(stage.output(permission_request(json!(3))), vec![]);
    assert_eq!(
        single_line(stage.send_lines())["result"]["outcome"]["outcome"],
        "cancelled"
    );
    stage.update_input(|session_input| {
        session_input.answers = vec![
            ("p-1".to_owned(), RequestAnswer::Allow),
            ("2".to_owned(), RequestAnswer::Allow),
        ]
    });
    assert_eq!(stage.send_inputs(), vec![]);
    answer(&mut stage, &prompt, json!({ "stopReason": "cancelled" }));
    assert!(matches!(
        stage.events.last(),
        Some(AgentEvent::TurnEnded {
            stop: StopReason::Cancelled,
            class: Some(FailureClass::Cancelled),
            ..
        })
    ));
    // The cancellation was for that turn and does not affect the next one.
    stage.update_input(|session_input| session_input.prompts.push("Again.".to_owned()));
    let lines = stage.send_lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["method"], "session/prompt");
    assert_eq!(
        stage.assess_exit(&Exit::Signal(9)).class,
        Some(FailureClass::Crashed)
    );
    stage.check_replay();
}

#[test]
fn unsupported_requests_are_refused_and_unknown_notifications_are_ignored() {
    let (mut stage, _) = plain_session_with_prompt();
    for (id, method) in [
        (5, "fs/write_text_file"),
        (6, "terminal/create"),
        (7, "_vendor/thing"),
    ] {
        stage.output(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": {} }));
        let refused = single_line(stage.send_lines());
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&json!(id), &json!(-32601))
        );
    }
    assert_eq!(
        stage.output(json!({ "jsonrpc": "2.0", "method": "_auth/status_update", "params": {} })),
        vec![]
    );
    assert!(matches!(
        stage.output(json!({ "id": 99, "result": {} })).as_slice(),
        [AgentEvent::Notice { .. }]
    ));
    stage.check_replay();
}

#[test]
fn question_has_its_form_and_accepts_a_text_as_the_answer() {
    let (mut stage, _) = plain_session_with_prompt();
    let form = json!({ "type": "object", "properties": { "colour": { "type": "string", "enum": ["red", "blue"] } }, "required": ["colour"] });
    let said = stage.output(
        json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {
        "mode": "form", "sessionId": "s1", "message": "Which?", "requestedSchema": form } }),
    );
    let [AgentEvent::RequestMade(asked)] = said.as_slice() else {
        panic!("{said:?}")
    };
    let RequestContent::Question {
        text,
        choices,
        schema,
    } = &asked.content
    else {
        panic!("{asked:?}")
    };
    assert_eq!(
        (text.as_str(), choices.as_slice()),
        ("Which?", ["red".to_owned(), "blue".to_owned()].as_slice())
    );
    assert!(schema.is_some());
    stage.update_input(|session_input| {
        session_input.answers.push((
            "q".to_owned(),
            RequestAnswer::Text {
                text: "blue".to_owned(),
            },
        ))
    });
    assert_eq!(
        single_line(stage.send_lines())["result"],
        json!({ "action": "accept", "content": { "colour": "blue" } })
    );
    stage.check_replay();
}

#[test]
fn loading_a_session_reports_no_history_and_applies_the_settings_again() {
    let mut setup = acp_setup("some-agent");
    setup.resume = Some("s1".to_owned());
    setup.used = Usage {
        input: 100,
        output: 50,
        ..Usage::default()
    };
    setup.profile.mode = Some("agent".to_owned());
    setup.profile.model = Some("Big".to_owned());
    let mut stage = DriverHarness::new(setup);
    stage.update_input(|session_input| session_input.prompts = vec!["Go on.".to_owned()]);
    let hello = single_line(stage.send_lines());
    answer(
        &mut stage,
        &hello,
        json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": true } }),
    );
    let load = single_line(stage.send_lines());
    assert_eq!(
        (&load["method"], &load["params"]["sessionId"]),
        (&json!("session/load"), &json!("s1"))
    );
    let old = update(
        &mut stage,
        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "old" } }),
    );
    assert_eq!(old, vec![]);
    assert_eq!(
        update(
            &mut stage,
            json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": { "amount": 9 } })
        ),
        vec![]
    );
    answer(
        &mut stage,
        &load,
        json!({
            "modes": { "currentModeId": "read-only", "availableModes": [{ "id": "read-only", "name": "R" }, { "id": "agent", "name": "A" }] },
            "models": { "currentModelId": "small", "availableModels": [{ "modelId": "big-1", "name": "big" }] },
        }),
    );
    let model = single_line(stage.send_lines());
    assert_eq!(
        (&model["method"], &model["params"]["modelId"]),
        (&json!("session/set_model"), &json!("big-1"))
    );
    answer(&mut stage, &model, json!({}));
    let took = AgentEvent::Started {
        session: Some("s1".to_owned()),
        model: Some("big-1".to_owned()),
    };
    assert!(
        stage.events.contains(&took),
        "the model that was set is reported: {:?}",
        stage.events
    );
    let mode = single_line(stage.send_lines());
    assert_eq!(
        (&mode["method"], &mode["params"]["modeId"]),
        (&json!("session/set_mode"), &json!("agent"))
    );
    answer(&mut stage, &mode, json!({}));
    let prompt = single_line(stage.send_lines());
    answer(
        &mut stage,
        &prompt,
        json!({ "stopReason": "end_turn", "usage": { "inputTokens": 1, "outputTokens": 1 } }),
    );
    let usage = Usage {
        input: 101,
        output: 51,
        ..Usage::default()
    };
    assert!(stage.events.contains(&AgentEvent::Usage {
        session: Some("s1".to_owned()),
        usage
    }));
    stage.check_replay();
}

#[test]
fn session_that_cannot_be_resumed_is_replaced_by_a_new_session() {
    let mut setup = acp_setup("some-agent");
    setup.resume = Some("gone".to_owned());
    setup.used = Usage {
        input: 100,
        ..Usage::default()
    };
    let mut stage = DriverHarness::new(setup);
    stage.update_input(|session_input| session_input.prompts = vec!["Go on.".to_owned()]);
    let hello = single_line(stage.send_lines());
    answer(
        &mut stage,
        &hello,
        json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": true, "sessionCapabilities": { "resume": {} } } }),
    );
    let resume = single_line(stage.send_lines());
    assert_eq!(resume["method"], "session/resume");
    stage
        .output(json!({ "id": resume["id"], "error": { "code": -32002, "message": "not found" } }));
    let new = single_line(stage.send_lines());
    assert_eq!(new["method"], "session/new");
    answer(&mut stage, &new, json!({ "sessionId": "s2" }));
    let prompt = single_line(stage.send_lines());
    answer(
        &mut stage,
        &prompt,
        json!({ "stopReason": "end_turn", "usage": { "inputTokens": 3, "outputTokens": 0 } }),
    );
    let usage = Usage {
        input: 3,
        ..Usage::default()
    };
    assert!(
        stage.events.contains(&AgentEvent::Usage {
            session: Some("s2".to_owned()),
            usage
        }),
        "{:?}",
        stage.events
    );
    stage.check_replay();
}

#[test]
fn model_and_effort_are_set_and_an_unknown_mode_stops_before_the_prompt() {
    let option = |id: &str, category: &str, current: &str, values: &[&str]| {
        let values: Vec<Value> = values
            .iter()
            .map(|s| json!({ "value": s, "name": s }))
            .collect();
        json!({ "id": id, "name": id, "category": category, "type": "select", "currentValue": current, "options": values })
    };
    let mut profile = acp_setup("some-agent");
    profile.profile.model = Some("opus".to_owned());
    profile.profile.effort = Some("high".to_owned());
    profile.profile.mode = Some("plan".to_owned());
    let before = json!([
        option("m", "mode", "default", &["default", "plan"]),
        option("x", "model", "haiku", &["haiku", "opus"])
    ]);
    let after = json!([
        option("m", "mode", "plan", &["default", "plan"]),
        option("x", "model", "opus", &["haiku", "opus"]),
        option("e", "thought_level", "low", &["low", "high"])
    ]);
    for (effort, mode, works) in [
        ("high", "plan", true),
        ("huge", "plan", true),
        ("huge", "yolo", false),
    ] {
        profile.profile.effort = Some(effort.to_owned());
        profile.profile.mode = Some(mode.to_owned());
        let mut stage = DriverHarness::new(profile.clone());
        stage.update_input(|session_input| session_input.prompts = vec!["Go.".to_owned()]);
        let hello = single_line(stage.send_lines());
        answer(&mut stage, &hello, json!({ "protocolVersion": 1 }));
        let open = single_line(stage.send_lines());
        answer(
            &mut stage,
            &open,
            json!({ "sessionId": "s1", "configOptions": before }),
        );
        let model = single_line(stage.send_lines());
        assert_eq!(
            model["params"],
            json!({ "sessionId": "s1", "configId": "x", "value": "opus" })
        );
        answer(&mut stage, &model, json!({ "configOptions": after }));
        let models = |agent_event: &AgentEvent| match agent_event {
            AgentEvent::Started { model, .. } => model.clone(),
            _ => None,
        };
        let models: Vec<String> = stage.events.iter().filter_map(models).collect();
        assert_eq!(
            models,
            ["haiku", "opus"],
            "the current model is reported after it was set"
        );
        if !works {
            assert_eq!(stage.send_inputs(), vec![InputAction::Close]);
            let judged = stage.assess_exit(&Exit::Code(0));
            assert_eq!(judged.class, Some(FailureClass::BadConfig));
            assert!(judged.detail.contains("default, plan"), "{}", judged.detail);
            stage.check_replay();
            continue;
        }
        // An effort is optional, so a model without efforts still works.
        if effort == "high" {
            let effort = single_line(stage.send_lines());
            assert_eq!(effort["params"]["configId"], "e");
            answer(&mut stage, &effort, json!({ "configOptions": after }));
        }
        assert_eq!(
            single_line(stage.send_lines())["method"],
            "session/prompt",
            "the mode is set already"
        );
        stage.check_replay();
    }
}

#[test]
fn errors_have_their_class_and_reset_time() {
    for (error, class, until) in [
        (
            json!({ "code": -32000, "message": "Authentication required" }),
            FailureClass::Auth,
            None,
        ),
        (
            json!({ "code": 429, "message": "quota; try again in 30s" }),
            FailureClass::RateLimit,
            Some(30_000),
        ),
        (
            json!({ "code": -32603, "message": "Internal error", "data": { "errorKind": "server_error" } }),
            FailureClass::Overloaded,
            None,
        ),
        (
            json!({ "code": 529, "message": "x" }),
            FailureClass::Overloaded,
            None,
        ),
        (
            json!({ "code": -32603, "message": "prompt is too long" }),
            FailureClass::ContextFull,
            None,
        ),
    ] {
        let (mut stage, prompt) = plain_session_with_prompt();
        let said = stage.output(json!({ "id": prompt["id"], "error": error }));
        assert!(
            matches!(said.last(), Some(AgentEvent::TurnEnded { stop: StopReason::Error, class: Some(failure_class), .. }) if *failure_class == class),
            "{said:?}"
        );
        let at = stage.journal.last().unwrap().written_unix_ms;
        if let Some(until) = until {
            assert!(
                matches!(&said[0], AgentEvent::Limited { deadline_unix_ms: Some(n), .. } if *n == at + until),
                "{said:?}"
            );
        }
        assert_eq!(stage.assess_exit(&Exit::Code(0)).class, Some(class));
        stage.check_replay();
    }
}

#[test]
fn error_text_after_a_normal_stop_is_a_failure_only_for_known_programs() {
    let error = "Ran into this error: Server error: 529 overloaded.\n\nPlease retry.";
    for (program, words, result, class) in [
        (
            "goose",
            error,
            json!({ "stopReason": "end_turn" }),
            Some(FailureClass::Overloaded),
        ),
        (
            "goose",
            error,
            json!({ "stopReason": "end_turn", "usage": { "inputTokens": 5, "outputTokens": 5 } }),
            None,
        ),
        (
            "goose",
            "All 12 tests pass.",
            json!({ "stopReason": "end_turn" }),
            None,
        ),
        (
            "pi-acp",
            "401 Unauthorized",
            json!({ "stopReason": "end_turn" }),
            Some(FailureClass::Auth),
        ),
        (
            "some-agent",
            error,
            json!({ "stopReason": "end_turn" }),
            None,
        ),
        (
            "some-agent",
            "No.",
            json!({ "stopReason": "refusal" }),
            Some(FailureClass::Refused),
        ),
        (
            "some-agent",
            "x",
            json!({ "stopReason": "bored" }),
            Some(FailureClass::Crashed),
        ),
        (
            "some-agent",
            "x",
            json!({ "stopReason": "max_turn_requests" }),
            None,
        ),
    ] {
        let (mut stage, prompt) =
            session_with_prompt(acp_setup(program), json!({}), json!({ "sessionId": "s1" }));
        update(
            &mut stage,
            json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": words } }),
        );
        answer(&mut stage, &prompt, result);
        assert_eq!(
            stage.assess_exit(&Exit::Code(0)).class,
            class,
            "{program}: {words}"
        );
    }
}

/// As seen with codex-acp 2.6.0: turns end normally, and failures are reported in a separate
/// update.
#[test]
fn codex_failure_in_a_separate_update_counts_unless_the_retry_succeeded() {
    let aside = |codex: Value| json!({ "sessionUpdate": "session_info_update", "_meta": { "codex": codex } });
    let retry = json!({ "error": { "message": "Reconnecting... 1/1", "willRetry": true,
        "codexErrorInfo": { "responseStreamDisconnected": { "httpStatusCode": 529 } } } });
    let result = json!({ "stopReason": "end_turn", "usage": null });
    let (mut stage, prompt) = session_with_prompt(
        acp_setup("codex-acp"),
        json!({}),
        json!({ "sessionId": "s1" }),
    );
    update(&mut stage, aside(retry.clone()));
    update(
        &mut stage,
        aside(json!({ "threadStatus": { "type": "systemError" } })),
    );
    answer(&mut stage, &prompt, result.clone());
    assert_eq!(
        stage.assess_exit(&Exit::Code(0)).class,
        Some(FailureClass::Overloaded)
    );
    stage.check_replay();

    let (mut stage, prompt) = session_with_prompt(
        acp_setup("codex-acp"),
        json!({}),
        json!({ "sessionId": "s1" }),
    );
    update(&mut stage, aside(retry));
    answer(&mut stage, &prompt, result);
    assert_eq!(
        stage.assess_exit(&Exit::Code(0)).class,
        None,
        "the retry succeeded"
    );

    let (mut stage, prompt) = session_with_prompt(
        acp_setup("codex-acp"),
        json!({}),
        json!({ "sessionId": "s1" }),
    );
    let data = json!({ "message": "You've hit your usage limit.", "codexErrorInfo": "usageLimitExceeded" });
    stage.output(json!({ "id": prompt["id"], "error": { "code": -32603, "message": "Internal error", "data": data } }));
    let judged = stage.assess_exit(&Exit::Code(0));
    assert_eq!(judged.class, Some(FailureClass::RateLimit));
    assert!(
        judged.detail.contains("hit your usage limit"),
        "{}",
        judged.detail
    );
    stage.check_replay();
}

/// As seen with codex-acp 2.6.0: each retry is reported in a separate update, and only the last
/// status of the session shows whether it failed.
#[test]
fn codex_retry_is_a_failure_only_if_the_session_ends_in_an_error() {
    let aside = |codex: Value| json!({ "sessionUpdate": "session_info_update", "_meta": { "codex": codex } });
    let retried = json!({ "error": { "message": "Reconnecting... 1/2", "willRetry": true,
        "codexErrorInfo": { "responseStreamDisconnected": { "httpStatusCode": 529 } } } });
    for (status, class) in [
        ("idle", None),
        ("systemError", Some(FailureClass::Overloaded)),
    ] {
        let (mut stage, prompt) = session_with_prompt(
            acp_setup("codex-acp"),
            json!({}),
            json!({ "sessionId": "s1" }),
        );
        update(&mut stage, aside(retried.clone()));
        update(
            &mut stage,
            aside(json!({ "threadStatus": { "type": status } })),
        );
        answer(
            &mut stage,
            &prompt,
            json!({ "stopReason": "end_turn", "usage": null }),
        );
        assert_eq!(stage.assess_exit(&Exit::Code(0)).class, class, "{status}");
        stage.check_replay();
    }
}

#[test]
fn gemini_usage_is_read_from_its_own_field() {
    let (mut stage, prompt) = plain_session_with_prompt();
    answer(
        &mut stage,
        &prompt,
        json!({ "stopReason": "end_turn", "_meta": { "quota": { "token_count": { "input_tokens": 7, "output_tokens": 2 } } } }),
    );
    assert_eq!(
        stage.assess_exit(&Exit::Code(0)).usage[0].1,
        Usage {
            input: 7,
            output: 2,
            ..Usage::default()
        }
    );
}

#[test]
fn program_that_ends_too_early_is_judged_by_its_stage() {
    let mut stage = DriverHarness::new(acp_setup("some-agent"));
    assert_eq!(
        stage
            .assess_exit(&Exit::NotStarted("no such program".to_owned()))
            .class,
        Some(FailureClass::BadConfig)
    );
    stage.send_inputs();
    stage.error_output("Error: Not logged in. Please run /login");
    assert_eq!(
        stage.assess_exit(&Exit::Code(1)).class,
        Some(FailureClass::Auth)
    );
    let (mut stage, _) = plain_session_with_prompt();
    assert_eq!(
        stage.assess_exit(&Exit::Code(0)).class,
        Some(FailureClass::Crashed),
        "an exit code alone is not a success"
    );
    stage.update_input(|session_input| session_input.cancels = 1);
    stage.send_inputs();
    assert_eq!(
        stage.assess_exit(&Exit::Signal(15)).class,
        Some(FailureClass::Cancelled)
    );
    stage.check_replay();
}

#[test]
fn unknown_protocol_version_is_refused_with_the_reason() {
    let mut stage = DriverHarness::new(acp_setup("some-agent"));
    let hello = single_line(stage.send_lines());
    answer(&mut stage, &hello, json!({ "protocolVersion": 2 }));
    assert_eq!(stage.send_inputs(), vec![InputAction::Close]);
    let judged = stage.assess_exit(&Exit::Code(0));
    assert_eq!(judged.class, Some(FailureClass::BadConfig));
    assert!(judged.detail.contains("version 2"), "{}", judged.detail);
}

#[test]
fn prompts_wait_for_the_turn_and_the_hold_and_are_sent_once() {
    let (mut stage, prompt) = plain_session_with_prompt();
    stage.update_input(|session_input| {
        session_input
            .prompts
            .extend(["two".to_owned(), "three".to_owned()])
    });
    assert_eq!(stage.send_inputs(), vec![], "one turn at a time");
    answer(&mut stage, &prompt, json!({ "stopReason": "end_turn" }));
    stage.update_input(|session_input| session_input.should_hold_prompts = true);
    assert_eq!(stage.send_inputs(), vec![]);
    stage.update_input(|session_input| session_input.should_hold_prompts = false);
    let second = single_line(stage.send_lines());
    assert_eq!(second["params"]["prompt"][0]["text"], "two");
    stage.update_input(|session_input| session_input.should_close_input = true);
    assert_eq!(stage.send_inputs(), vec![], "the turn ends first");
    answer(&mut stage, &second, json!({ "stopReason": "end_turn" }));
    let third = single_line(stage.send_lines());
    assert_eq!(
        third["params"]["prompt"][0]["text"], "three",
        "the remaining prompt is sent before the end"
    );
    answer(&mut stage, &third, json!({ "stopReason": "end_turn" }));
    assert_eq!(stage.send_inputs(), vec![InputAction::Close]);
    let prompts = stage
        .journal
        .iter()
        .filter(|journal| journal.line.contains("session/prompt"))
        .count();
    assert_eq!(prompts, 3);
    stage.check_replay();
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
        let (mut stage, _) =
            session_with_prompt(acp_setup(program), json!({}), json!({ "sessionId": "s1" }));
        let mut request = permission_request(json!(0));
        request["params"]["toolCall"] = call.clone();
        request["params"]["toolCall"]["toolCallId"] = json!("t1");
        let said = stage.output(request);
        let [AgentEvent::RequestMade(asked)] = said.as_slice() else {
            panic!("{said:?}")
        };
        let RequestContent::Permission { tool, .. } = &asked.content else {
            panic!("{asked:?}")
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
    let (mut stage, _) = session_with_prompt(
        acp_setup("opencode"),
        json!({}),
        json!({ "sessionId": "s1" }),
    );
    update(
        &mut stage,
        json!({ "sessionUpdate": "tool_call", "toolCallId": "t1", "title": "bash", "kind": "execute",
        "rawInput": { "command": "touch /tmp/x" } }),
    );
    let mut request = permission_request(json!(0));
    request["params"]["toolCall"] = json!({ "toolCallId": "t1", "title": "bash", "rawInput": {} });
    let said = stage.output(request);
    let [AgentEvent::RequestMade(asked)] = said.as_slice() else {
        panic!("{said:?}")
    };
    assert!(
        matches!(&asked.content, RequestContent::Permission { tool, .. } if tool.describe() == "touch /tmp/x"),
        "{asked:?}"
    );
}
