//! Tests of failed turns and failed programs.

use super::*;

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
        let (mut harness, prompt) = plain_session_with_prompt();
        let events = harness.output(json!({ "id": prompt["id"], "error": error }));
        assert!(
            matches!(events.last(), Some(AgentEvent::TurnEnded { stop: StopReason::Error, class: Some(actual), .. }) if *actual == class),
            "{events:?}"
        );
        let at = harness.journal.last().unwrap().written_unix_ms;
        if let Some(until) = until {
            assert!(
                matches!(&events[0], AgentEvent::Limited { deadline_unix_ms: Some(n), .. } if *n == at + until),
                "{events:?}"
            );
        }
        assert_eq!(harness.assess_exit(&Exit::Code(0)).class, Some(class));
        harness.check_replay();
    }
}

#[test]
fn error_text_after_a_normal_stop_is_a_failure_only_for_known_programs() {
    let error = "Ran into this error: Server error: 529 overloaded.\n\nPlease retry.";
    for (program, answer_text, result, class) in [
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
        let (mut harness, prompt) =
            session_with_prompt(acp_setup(program), json!({}), json!({ "sessionId": "s1" }));
        update(
            &mut harness,
            json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": answer_text } }),
        );
        answer(&mut harness, &prompt, result);
        assert_eq!(
            harness.assess_exit(&Exit::Code(0)).class,
            class,
            "{program}: {answer_text}"
        );
    }
}

/// As seen with codex-acp 2.6.0: turns end normally, and failures are reported in a separate
/// update.
#[test]
fn codex_failure_in_a_separate_update_counts_unless_the_retry_succeeded() {
    let codex_update = |codex: Value| json!({ "sessionUpdate": "session_info_update", "_meta": { "codex": codex } });
    let retry = json!({ "error": { "message": "Reconnecting... 1/1", "willRetry": true,
        "codexErrorInfo": { "responseStreamDisconnected": { "httpStatusCode": 529 } } } });
    let result = json!({ "stopReason": "end_turn", "usage": null });
    let (mut harness, prompt) = session_with_prompt(
        acp_setup("codex-acp"),
        json!({}),
        json!({ "sessionId": "s1" }),
    );
    update(&mut harness, codex_update(retry.clone()));
    update(
        &mut harness,
        codex_update(json!({ "threadStatus": { "type": "systemError" } })),
    );
    answer(&mut harness, &prompt, result.clone());
    assert_eq!(
        harness.assess_exit(&Exit::Code(0)).class,
        Some(FailureClass::Overloaded)
    );
    harness.check_replay();

    let (mut harness, prompt) = session_with_prompt(
        acp_setup("codex-acp"),
        json!({}),
        json!({ "sessionId": "s1" }),
    );
    update(&mut harness, codex_update(retry));
    answer(&mut harness, &prompt, result);
    assert_eq!(
        harness.assess_exit(&Exit::Code(0)).class,
        None,
        "the retry succeeded"
    );

    let (mut harness, prompt) = session_with_prompt(
        acp_setup("codex-acp"),
        json!({}),
        json!({ "sessionId": "s1" }),
    );
    let data = json!({ "message": "You've hit your usage limit.", "codexErrorInfo": "usageLimitExceeded" });
    harness.output(json!({ "id": prompt["id"], "error": { "code": -32603, "message": "Internal error", "data": data } }));
    let assessment = harness.assess_exit(&Exit::Code(0));
    assert_eq!(assessment.class, Some(FailureClass::RateLimit));
    assert!(
        assessment.detail.contains("hit your usage limit"),
        "{}",
        assessment.detail
    );
    harness.check_replay();
}

/// As seen with codex-acp 2.6.0: each retry is reported in a separate update, and only the last
/// status of the session shows whether it failed.
#[test]
fn codex_retry_is_a_failure_only_if_the_session_ends_in_an_error() {
    let codex_update = |codex: Value| json!({ "sessionUpdate": "session_info_update", "_meta": { "codex": codex } });
    let retried = json!({ "error": { "message": "Reconnecting... 1/2", "willRetry": true,
        "codexErrorInfo": { "responseStreamDisconnected": { "httpStatusCode": 529 } } } });
    for (status, class) in [
        ("idle", None),
        ("systemError", Some(FailureClass::Overloaded)),
    ] {
        let (mut harness, prompt) = session_with_prompt(
            acp_setup("codex-acp"),
            json!({}),
            json!({ "sessionId": "s1" }),
        );
        update(&mut harness, codex_update(retried.clone()));
        update(
            &mut harness,
            codex_update(json!({ "threadStatus": { "type": status } })),
        );
        answer(
            &mut harness,
            &prompt,
            json!({ "stopReason": "end_turn", "usage": null }),
        );
        assert_eq!(harness.assess_exit(&Exit::Code(0)).class, class, "{status}");
        harness.check_replay();
    }
}

#[test]
fn program_that_ends_too_early_is_judged_by_its_stage() {
    let mut harness = DriverHarness::new(acp_setup("some-agent"));
    assert_eq!(
        harness
            .assess_exit(&Exit::NotStarted("no such program".to_owned()))
            .class,
        Some(FailureClass::BadConfig)
    );
    harness.send_inputs();
    harness.error_output("Error: Not logged in. Please run /login");
    assert_eq!(
        harness.assess_exit(&Exit::Code(1)).class,
        Some(FailureClass::Auth)
    );
    let (mut harness, _) = plain_session_with_prompt();
    assert_eq!(
        harness.assess_exit(&Exit::Code(0)).class,
        Some(FailureClass::Crashed),
        "an exit code alone is not a success"
    );
    harness.update_input(|input| input.cancels = 1);
    harness.send_inputs();
    assert_eq!(
        harness.assess_exit(&Exit::Signal(15)).class,
        Some(FailureClass::Cancelled)
    );
    harness.check_replay();
}

#[test]
fn unknown_protocol_version_is_refused_with_the_reason() {
    let mut harness = DriverHarness::new(acp_setup("some-agent"));
    let hello = single_line(harness.send_lines());
    answer(&mut harness, &hello, json!({ "protocolVersion": 2 }));
    assert_eq!(harness.send_inputs(), vec![InputAction::Close]);
    let assessment = harness.assess_exit(&Exit::Code(0));
    assert_eq!(assessment.class, Some(FailureClass::BadConfig));
    assert!(
        assessment.detail.contains("version 2"),
        "{}",
        assessment.detail
    );
}
