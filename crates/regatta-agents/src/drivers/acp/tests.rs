//! Tests of conversations with programs that speak ACP, as they appear in the journal.

mod failures;
mod requests;

use regatta_core::agent::Runtime;
use regatta_core::agent_protocol::{
    AgentEvent, FailureClass, RequestAnswer, RequestContent, StopReason, Usage,
};
use regatta_engine::ports::agents::Exit;
use serde_json::{Value, json};

use crate::driver::InputAction;
use crate::drivers::DriverSetup;
use crate::drivers::test_harness::{DriverHarness, setup};

fn acp_setup(program: &str) -> DriverSetup {
    setup(Runtime::Acp {
        argv: vec![program.to_owned(), "acp".to_owned()],
    })
}

fn answer(harness: &mut DriverHarness, request: &Value, result: Value) -> Vec<AgentEvent> {
    harness.output(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
}

fn update(harness: &mut DriverHarness, update: Value) -> Vec<AgentEvent> {
    let params = json!({ "sessionId": "s1", "update": update });
    harness.output(json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))
}

fn single_line(lines: Vec<Value>) -> Value {
    let [line] = lines.try_into().expect("one line");
    line
}

/// Opens a session up to its first prompt. Returns the prompt's request too.
fn session_with_prompt(
    setup: DriverSetup,
    capabilities: Value,
    opened: Value,
) -> (DriverHarness, Value) {
    let mut harness = DriverHarness::new(setup);
    harness.update_input(|input| input.prompts = vec!["Do it, with the secret.".to_owned()]);
    let hello = single_line(harness.send_lines());
    assert_eq!(hello["method"], "initialize");
    assert_eq!(hello["params"]["protocolVersion"], 1);
    answer(
        &mut harness,
        &hello,
        json!({ "protocolVersion": 1, "agentCapabilities": capabilities }),
    );
    let open = single_line(harness.send_lines());
    answer(&mut harness, &open, opened);
    let prompt = single_line(harness.send_lines());
    assert_eq!(prompt["method"], "session/prompt", "{prompt}");
    (harness, prompt)
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

/// A program that does not support tool servers over HTTP starts regatta itself, and the access
/// token is not among the arguments (S4).
#[test]
fn tools_are_served_by_a_process_if_http_is_not_supported() {
    let mut setup = acp_setup("some-agent");
    setup.mcp_url = Some("http://127.0.0.1:7/mcp".to_owned());
    setup.regatta = Some("/opt/regatta".into());
    let capabilities = json!({ "sessionCapabilities": { "close": {} } });
    let (harness, _) = session_with_prompt(setup, capabilities, json!({ "sessionId": "s1" }));
    let open: Value = serde_json::from_str(&harness.journal[2].line).unwrap();
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
    let capabilities =
        json!({ "mcpCapabilities": { "http": true }, "sessionCapabilities": { "close": {} } });
    let (mut harness, prompt) =
        session_with_prompt(setup, capabilities, json!({ "sessionId": "s1" }));
    let open: Value = serde_json::from_str(&harness.journal[2].line).unwrap();
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
        &mut harness,
        json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": "hm" } }),
    );
    update(
        &mut harness,
        json!({ "sessionUpdate": "plan", "entries": [
            { "content": "look", "priority": "high", "status": "completed" }, { "content": "do", "status": "in_progress" },
        ]}),
    );
    update(
        &mut harness,
        json!({ "sessionUpdate": "tool_call", "toolCallId": "t1", "title": "Write a.txt", "kind": "edit",
        "status": "pending", "locations": [{ "path": "/workspace/a.txt" }] }),
    );
    let events = update(
        &mut harness,
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "completed",
        "content": [{ "type": "content", "content": { "type": "text", "text": "wrote 3 lines" } }] }),
    );
    let [AgentEvent::Tool(tool)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(
        (tool.title.as_str(), tool.output.as_deref()),
        ("Write a.txt", Some("wrote 3 lines"))
    );
    assert_eq!(tool.paths, ["/workspace/a.txt"]);

    let events = harness.output(permission_request(json!(0)));
    let [AgentEvent::RequestMade(request_made)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert!(
        matches!(&request_made.content, RequestContent::Permission { tool, .. } if tool.command.as_deref() == Some("rm -r build"))
    );
    assert_eq!(
        harness.send_inputs(),
        vec![],
        "the request is not answered yet"
    );
    harness.update_input(|input| input.answers.push(("0".to_owned(), RequestAnswer::Allow)));
    let allowed = single_line(harness.send_lines());
    assert_eq!(
        allowed["result"]["outcome"],
        json!({ "outcome": "selected", "optionId": "yes" })
    );

    update(
        &mut harness,
        json!({ "sessionUpdate": "usage_update", "used": 900, "size": 1000, "cost": { "amount": 0.25, "currency": "USD" } }),
    );
    update(
        &mut harness,
        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "Done." } }),
    );
    update(
        &mut harness,
        json!({ "sessionUpdate": "something_new", "x": 1 }),
    );
    harness.output("Debugger listening on ws://…");
    harness.error_output("warn: x");
    answer(
        &mut harness,
        &prompt,
        json!({ "stopReason": "end_turn",
        "usage": { "inputTokens": 10, "outputTokens": 5, "totalTokens": 115, "cachedReadTokens": 100 } }),
    );
    assert_eq!(
        harness.events.last(),
        Some(&AgentEvent::TurnEnded {
            stop: StopReason::EndTurn,
            class: None,
            detail: "Done.".to_owned()
        })
    );

    harness.update_input(|input| input.prompts.push("And now?".to_owned()));
    let second = single_line(harness.send_lines());
    assert_eq!(
        second["params"]["prompt"],
        json!([{ "type": "text", "text": "And now?" }])
    );
    answer(
        &mut harness,
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
        harness.events.contains(&AgentEvent::Usage {
            session: Some("s1".to_owned()),
            usage: total
        }),
        "{:?}",
        harness.events
    );
    assert!(harness.events.contains(&AgentEvent::Context {
        used: 900,
        size: 1000
    }));

    harness.update_input(|input| input.should_close_input = true);
    assert!(
        matches!(harness.send_inputs().as_slice(), [InputAction::Line(s), InputAction::Close] if s.contains("session/close")),
        "the session is closed, then the input"
    );
    for exit in [Exit::Code(0), Exit::Code(1), Exit::Signal(15)] {
        let assessment = harness.assess_exit(&exit);
        assert_eq!(
            (assessment.class, &assessment.usage),
            (None, &vec![(Some("s1".to_owned()), total)])
        );
    }
    harness.check_replay();
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
    let mut harness = DriverHarness::new(setup);
    harness.update_input(|input| input.prompts = vec!["Go on.".to_owned()]);
    let hello = single_line(harness.send_lines());
    answer(
        &mut harness,
        &hello,
        json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": true } }),
    );
    let load = single_line(harness.send_lines());
    assert_eq!(
        (&load["method"], &load["params"]["sessionId"]),
        (&json!("session/load"), &json!("s1"))
    );
    let old = update(
        &mut harness,
        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "old" } }),
    );
    assert_eq!(old, vec![]);
    assert_eq!(
        update(
            &mut harness,
            json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": { "amount": 9 } })
        ),
        vec![]
    );
    answer(
        &mut harness,
        &load,
        json!({
            "modes": { "currentModeId": "read-only", "availableModes": [{ "id": "read-only", "name": "R" }, { "id": "agent", "name": "A" }] },
            "models": { "currentModelId": "small", "availableModels": [{ "modelId": "big-1", "name": "big" }] },
        }),
    );
    let model = single_line(harness.send_lines());
    assert_eq!(
        (&model["method"], &model["params"]["modelId"]),
        (&json!("session/set_model"), &json!("big-1"))
    );
    answer(&mut harness, &model, json!({}));
    let took = AgentEvent::Started {
        session: Some("s1".to_owned()),
        model: Some("big-1".to_owned()),
    };
    assert!(
        harness.events.contains(&took),
        "the model that was set is reported: {:?}",
        harness.events
    );
    let mode = single_line(harness.send_lines());
    assert_eq!(
        (&mode["method"], &mode["params"]["modeId"]),
        (&json!("session/set_mode"), &json!("agent"))
    );
    answer(&mut harness, &mode, json!({}));
    let prompt = single_line(harness.send_lines());
    answer(
        &mut harness,
        &prompt,
        json!({ "stopReason": "end_turn", "usage": { "inputTokens": 1, "outputTokens": 1 } }),
    );
    let usage = Usage {
        input: 101,
        output: 51,
        ..Usage::default()
    };
    assert!(harness.events.contains(&AgentEvent::Usage {
        session: Some("s1".to_owned()),
        usage
    }));
    harness.check_replay();
}

#[test]
fn session_that_cannot_be_resumed_is_replaced_by_a_new_session() {
    let mut setup = acp_setup("some-agent");
    setup.resume = Some("gone".to_owned());
    setup.used = Usage {
        input: 100,
        ..Usage::default()
    };
    let mut harness = DriverHarness::new(setup);
    harness.update_input(|input| input.prompts = vec!["Go on.".to_owned()]);
    let hello = single_line(harness.send_lines());
    answer(
        &mut harness,
        &hello,
        json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": true, "sessionCapabilities": { "resume": {} } } }),
    );
    let resume = single_line(harness.send_lines());
    assert_eq!(resume["method"], "session/resume");
    harness
        .output(json!({ "id": resume["id"], "error": { "code": -32002, "message": "not found" } }));
    let new = single_line(harness.send_lines());
    assert_eq!(new["method"], "session/new");
    answer(&mut harness, &new, json!({ "sessionId": "s2" }));
    let prompt = single_line(harness.send_lines());
    answer(
        &mut harness,
        &prompt,
        json!({ "stopReason": "end_turn", "usage": { "inputTokens": 3, "outputTokens": 0 } }),
    );
    let usage = Usage {
        input: 3,
        ..Usage::default()
    };
    assert!(
        harness.events.contains(&AgentEvent::Usage {
            session: Some("s2".to_owned()),
            usage
        }),
        "{:?}",
        harness.events
    );
    harness.check_replay();
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
        let mut harness = DriverHarness::new(profile.clone());
        harness.update_input(|input| input.prompts = vec!["Go.".to_owned()]);
        let hello = single_line(harness.send_lines());
        answer(&mut harness, &hello, json!({ "protocolVersion": 1 }));
        let open = single_line(harness.send_lines());
        answer(
            &mut harness,
            &open,
            json!({ "sessionId": "s1", "configOptions": before }),
        );
        let model = single_line(harness.send_lines());
        assert_eq!(
            model["params"],
            json!({ "sessionId": "s1", "configId": "x", "value": "opus" })
        );
        answer(&mut harness, &model, json!({ "configOptions": after }));
        let models = |agent_event: &AgentEvent| match agent_event {
            AgentEvent::Started { model, .. } => model.clone(),
            _ => None,
        };
        let models: Vec<String> = harness.events.iter().filter_map(models).collect();
        assert_eq!(
            models,
            ["haiku", "opus"],
            "the current model is reported after it was set"
        );
        if !works {
            assert_eq!(harness.send_inputs(), vec![InputAction::Close]);
            let assessment = harness.assess_exit(&Exit::Code(0));
            assert_eq!(assessment.class, Some(FailureClass::BadConfig));
            assert!(
                assessment.detail.contains("default, plan"),
                "{}",
                assessment.detail
            );
            harness.check_replay();
            continue;
        }
        // An effort is optional, so a model without efforts still works.
        if effort == "high" {
            let effort = single_line(harness.send_lines());
            assert_eq!(effort["params"]["configId"], "e");
            answer(&mut harness, &effort, json!({ "configOptions": after }));
        }
        assert_eq!(
            single_line(harness.send_lines())["method"],
            "session/prompt",
            "the mode is set already"
        );
        harness.check_replay();
    }
}

#[test]
fn gemini_usage_is_read_from_its_own_field() {
    let (mut harness, prompt) = plain_session_with_prompt();
    answer(
        &mut harness,
        &prompt,
        json!({ "stopReason": "end_turn", "_meta": { "quota": { "token_count": { "input_tokens": 7, "output_tokens": 2 } } } }),
    );
    assert_eq!(
        harness.assess_exit(&Exit::Code(0)).usage[0].1,
        Usage {
            input: 7,
            output: 2,
            ..Usage::default()
        }
    );
}

#[test]
fn prompts_wait_for_the_turn_and_the_hold_and_are_sent_once() {
    let (mut harness, prompt) = plain_session_with_prompt();
    harness.update_input(|input| input.prompts.extend(["two".to_owned(), "three".to_owned()]));
    assert_eq!(harness.send_inputs(), vec![], "one turn at a time");
    answer(&mut harness, &prompt, json!({ "stopReason": "end_turn" }));
    harness.update_input(|input| input.should_hold_prompts = true);
    assert_eq!(harness.send_inputs(), vec![]);
    harness.update_input(|input| input.should_hold_prompts = false);
    let second = single_line(harness.send_lines());
    assert_eq!(second["params"]["prompt"][0]["text"], "two");
    harness.update_input(|input| input.should_close_input = true);
    assert_eq!(harness.send_inputs(), vec![], "the turn ends first");
    answer(&mut harness, &second, json!({ "stopReason": "end_turn" }));
    let third = single_line(harness.send_lines());
    assert_eq!(
        third["params"]["prompt"][0]["text"], "three",
        "the remaining prompt is sent before the end"
    );
    answer(&mut harness, &third, json!({ "stopReason": "end_turn" }));
    assert_eq!(harness.send_inputs(), vec![InputAction::Close]);
    let prompts = harness
        .journal
        .iter()
        .filter(|record| record.line.contains("session/prompt"))
        .count();
    assert_eq!(prompts, 3);
    harness.check_replay();
}
