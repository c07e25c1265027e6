//! Tests of conversations with Codex's app-server.

use regatta_core::agent::Runtime;
use regatta_core::session::{Answer, Class, Said, Stop, Usage, Want};
use regatta_engine::ports::agents::Exit;
use serde_json::{Value, json};

use crate::driver::Say;
use crate::drivers::Setup;
use crate::drivers::replay::{Stage, setup};

fn server() -> Setup {
    setup(Runtime::Codex { argv: vec!["codex".to_owned()], app_server: true })
}

fn only(lines: Vec<Value>) -> Value {
    let [line] = lines.try_into().expect("one line");
    line
}

fn note(stage: &mut Stage, method: &str, mut params: Value) -> Vec<Said> {
    params["threadId"] = json!("t-1");
    stage.out(json!({ "method": method, "params": params }))
}

fn working() -> Stage {
    let mut stage = Stage::new(server());
    stage.wish(|it| it.prompts = vec!["Do it, with the secret.".to_owned()]);
    let hello = only(stage.lines());
    assert_eq!((&hello["method"], hello.get("jsonrpc")), (&json!("initialize"), None));
    stage.out(json!({ "id": hello["id"], "result": { "userAgent": "codex" } }));
    let [ready, start] = stage.lines().try_into().expect("two lines");
    assert_eq!(ready["method"], "initialized");
    assert_eq!(
        start["params"],
        json!({ "cwd": "/workspace", "approvalPolicy": "on-request", "sandbox": "danger-full-access" })
    );
    stage.out(json!({ "id": start["id"], "result": { "thread": { "id": "t-1" }, "model": "gpt" } }));
    let turn = only(stage.lines());
    assert_eq!(turn["method"], "turn/start");
    stage.out(json!({ "id": turn["id"], "result": { "turn": { "id": "u-1", "items": [], "status": "inProgress" } } }));
    stage
}

#[test]
fn turn_is_translated_approved_and_counted() {
    let mut stage = working();
    note(
        &mut stage,
        "item/started",
        json!({ "item": { "type": "commandExecution", "id": "i1", "command": "ls", "status": "inProgress" } }),
    );
    let said = stage.out(json!({ "id": 0, "method": "item/commandExecution/requestApproval", "params":
        { "threadId": "t-1", "turnId": "u-1", "itemId": "i1", "startedAtMs": 1, "command": "rm -r build" } }));
    let [Said::Asked(asked)] = said.as_slice() else { panic!("{said:?}") };
    assert!(matches!(&asked.want, Want::Permission { tool, .. } if tool.command.as_deref() == Some("rm -r build")));
    stage.wish(|it| it.answers.push(("0".to_owned(), Answer::Deny { words: None })));
    assert_eq!(only(stage.lines()), json!({ "id": 0, "result": { "decision": "decline" } }));
    note(&mut stage, "turn/plan/updated", json!({ "plan": [{ "step": "look", "status": "inProgress" }] }));
    note(&mut stage, "item/agentMessage/delta", json!({ "itemId": "m", "delta": "Do" }));
    note(&mut stage, "item/agentMessage/delta", json!({ "itemId": "m", "delta": "ne." }));
    assert_eq!(
        note(&mut stage, "item/completed", json!({ "item": { "type": "agentMessage", "id": "m", "text": "Done." } })),
        vec![]
    );
    let counts = |input: u64| json!({ "inputTokens": input, "cachedInputTokens": 2000, "outputTokens": 30, "reasoningOutputTokens": 0, "totalTokens": input + 30 });
    note(
        &mut stage,
        "thread/tokenUsage/updated",
        json!({ "tokenUsage": { "total": counts(2400), "last": counts(2400), "modelContextWindow": 10_000 } }),
    );
    // The turn of a subagent's thread does not end this turn.
    stage.out(json!({ "method": "turn/completed", "params": { "threadId": "t-2", "turn": { "id": "x", "status": "failed" } } }));
    note(&mut stage, "turn/completed", json!({ "turn": { "id": "u-1", "items": [], "status": "completed" } }));
    assert_eq!(
        stage.said.last(),
        Some(&Said::TurnEnded { stop: Stop::EndTurn, class: None, detail: "Done.".to_owned() })
    );
    let usage = Usage { input: 400, cached_input: 2000, output: 30, ..Usage::default() };
    assert!(stage.said.contains(&Said::Usage { session: Some("t-1".to_owned()), usage }));
    assert!(stage.said.contains(&Said::Context { used: 2430, size: 10_000 }));
    stage.wish(|it| it.end = true);
    assert_eq!(stage.say(), vec![Say::Close]);
    assert_eq!(stage.judge(&Exit::Code(0)).class, None);
    stage.check_replay();
}

#[test]
fn interrupt_cancels_open_requests_and_waits_for_the_id_of_the_turn() {
    let mut stage = working();
    stage.out(json!({ "id": "f", "method": "item/fileChange/requestApproval", "params": { "threadId": "t-1", "turnId": "u-1", "itemId": "i", "startedAtMs": 1 } }));
    stage.wish(|it| it.cancels = 1);
    let lines = stage.lines();
    assert_eq!(lines[0]["params"], json!({ "threadId": "t-1", "turnId": "u-1" }));
    assert_eq!(lines[1], json!({ "id": "f", "result": { "decision": "cancel" } }));
    note(&mut stage, "turn/completed", json!({ "turn": { "id": "u-1", "items": [], "status": "interrupted" } }));
    assert!(matches!(stage.said.last(), Some(Said::TurnEnded { stop: Stop::Cancelled, .. })));
    stage.wish(|it| it.prompts.push("Again.".to_owned()));
    let turn = only(stage.lines());
    stage.wish(|it| it.cancels = 2);
    assert_eq!(stage.say(), vec![], "the turn has no id yet");
    stage.out(json!({ "id": turn["id"], "result": { "turn": { "id": "u-2" } } }));
    assert_eq!(only(stage.lines())["params"]["turnId"], "u-2");
    stage.check_replay();
}

#[test]
fn failures_have_their_class_and_limits_their_reset_time() {
    for (info, class) in [
        (json!("contextWindowExceeded"), Class::ContextFull),
        (json!("unauthorized"), Class::Auth),
        (json!("serverOverloaded"), Class::Overloaded),
        (json!("modelNotFound"), Class::BadConfig),
        (json!({ "responseTooManyFailedAttempts": { "httpStatusCode": 529 } }), Class::Overloaded),
        (json!("usageLimitExceeded"), Class::RateLimit),
    ] {
        let mut stage = working();
        note(
            &mut stage,
            "account/rateLimits/updated",
            json!({ "rateLimits": {
            "primary": { "usedPercent": 100, "resetsAt": 1_763_240_400 }, "secondary": { "usedPercent": 20, "resetsAt": 1_763_940_400 } } }),
        );
        let error = json!({ "message": "It failed.", "codexErrorInfo": info });
        let said =
            note(&mut stage, "turn/completed", json!({ "turn": { "id": "u-1", "status": "failed", "error": error } }));
        assert_eq!(stage.judge(&Exit::Code(0)).class, Some(class), "{said:?}");
        if class == Class::RateLimit {
            assert!(matches!(&said[0], Said::Limited { until_wall: Some(1_763_240_400_000), .. }), "{said:?}");
        }
        stage.check_replay();
    }
}

#[test]
fn missing_thread_is_replaced_by_a_new_thread() {
    let mut setup = server();
    setup.resume = Some("t-0".to_owned());
    let mut stage = Stage::new(setup);
    stage.wish(|it| it.prompts = vec!["Go.".to_owned()]);
    let hello = only(stage.lines());
    stage.out(json!({ "id": hello["id"], "result": {} }));
    let resume = stage.lines().pop().unwrap();
    assert_eq!((&resume["method"], &resume["params"]["threadId"]), (&json!("thread/resume"), &json!("t-0")));
    stage.out(json!({ "id": resume["id"], "error": { "code": -32600, "message": "no rollout found" } }));
    assert_eq!(only(stage.lines())["method"], "thread/start");
    stage.check_replay();
}

#[test]
fn questions_are_answered_by_their_own_ids() {
    let mut stage = working();
    stage.out(json!({ "id": 4, "method": "item/tool/requestUserInput", "params": { "threadId": "t-1", "turnId": "u-1", "itemId": "i", "isBlocking": true,
        "questions": [{ "id": "colour", "header": "h", "question": "Which?", "options": [{ "label": "Red", "description": "" }] }] } }));
    stage.wish(|it| it.answers.push(("4".to_owned(), Answer::Text { text: "Red".to_owned() })));
    assert_eq!(only(stage.lines())["result"], json!({ "answers": { "colour": { "answers": ["Red"] } } }));
    stage.out(json!({ "id": 5, "method": "account/chatgptAuthTokens/refresh", "params": {} }));
    assert_eq!(only(stage.lines())["error"]["code"], -32601);
    stage.check_replay();
}

fn requested(stage: &mut Stage, method: &str, params: Value) -> regatta_core::session::Tool {
    let said = stage.out(json!({ "id": 0, "method": method, "params": params }));
    let [Said::Asked(asked)] = said.as_slice() else { panic!("{said:?}") };
    let Want::Permission { tool, .. } = &asked.want else { panic!("{asked:?}") };
    tool.clone()
}

/// S13: a request names its call only by id, so the object comes from the announced call.
#[test]
fn s13_a_permission_request_shows_files_host_and_permissions() {
    let mut stage = working();
    note(
        &mut stage,
        "item/started",
        json!({ "item": { "type": "fileChange", "id": "i1", "status": "inProgress",
            "changes": [{ "path": "/etc/hosts" }, { "path": "a.rs" }] } }),
    );
    let change = requested(&mut stage, "item/fileChange/requestApproval", json!({ "itemId": "i1" }));
    assert_eq!(
        (change.paths.as_slice(), change.describe().as_str()),
        (["/etc/hosts".to_owned(), "a.rs".to_owned()].as_slice(), "change files: /etc/hosts, a.rs",)
    );
    let unknown = requested(&mut stage, "item/fileChange/requestApproval", json!({ "itemId": "i9" }));
    assert!(unknown.hides_its_object().is_some(), "{unknown:?}");
    let network = json!({ "itemId": "i2", "networkApprovalContext": { "host": "docs.rs", "protocol": "https" } });
    let host = requested(&mut stage, "item/commandExecution/requestApproval", network);
    assert_eq!((host.urls.as_slice(), host.hides_its_object()), (["https://docs.rs".to_owned()].as_slice(), None));
    let wider = json!({ "itemId": "i3", "reason": "to build", "permissions": { "fileSystem": { "write": ["/opt"] } } });
    let wider = requested(&mut stage, "item/permissions/requestApproval", wider);
    assert!(wider.describe().contains("/opt") && wider.paths == ["/opt"], "{wider:?}");
    // A text that names no path is shown unchanged.
    let network = json!({ "itemId": "i4", "permissions": { "network": { "enabled": true } } });
    let network = requested(&mut stage, "item/permissions/requestApproval", network);
    assert!(network.arguments.as_ref().is_some_and(|asked| asked.contains("network")), "{network:?}");
    assert_eq!(network.hides_its_object(), None);
}

/// S13: an announced command is shown even if the request repeats only its id. A root that would
/// become writable for the whole session is shown as one of the files.
#[test]
fn s13_a_permission_request_shows_the_announced_command_and_the_granted_root() {
    let mut stage = working();
    note(
        &mut stage,
        "item/started",
        json!({ "item": { "type": "commandExecution", "id": "c1", "status": "inProgress", "command": "rm -r build" } }),
    );
    let command = requested(&mut stage, "item/commandExecution/requestApproval", json!({ "itemId": "c1" }));
    assert_eq!((command.command.as_deref(), command.hides_its_object()), (Some("rm -r build"), None));
    let root = json!({ "itemId": "i9", "grantRoot": "/opt/shared" });
    let root = requested(&mut stage, "item/fileChange/requestApproval", root);
    assert_eq!((root.paths.as_slice(), root.hides_its_object()), (["/opt/shared".to_owned()].as_slice(), None));
}
