//! Parses every line of conversations between the ACP driver and the scripted agent with the
//! protocol's own types. Parsing must lose no field, because a misspelt field would be lost.
//!
//! The behaviour of the driver is tested in the crate itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use agent_client_protocol::v1::schema as acp;
use regatta_agents::driver::{InputAction, JournalRecord, JournalStream};
use regatta_agents::drivers::{DriverSetup, new_driver};
use regatta_core::agent::{Profile, Runtime};
use regatta_core::agent_protocol::{AgentEvent, RequestAnswer, RequestContent, Usage};
use regatta_engine::ports::agents::SessionInput;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Parses `value` as `T` and checks that no field is lost when it is serialised again.
fn assert_parses_as<T: DeserializeOwned + Serialize>(value: &Value) {
    let typed: T = serde_json::from_value(value.clone())
        .unwrap_or_else(|error| panic!("{value} is not a {}: {error}", std::any::type_name::<T>()));
    let serialised = serde_json::to_value(typed).expect("the value can be serialised");
    assert_contained(value, &serialised, std::any::type_name::<T>());
}

/// Checks that every field of `sent` is also in `parsed`, with the same value. `place` names the
/// field in failures.
fn assert_contained(sent: &Value, parsed: &Value, place: &str) {
    match (sent, parsed) {
        (Value::Object(sent), Value::Object(parsed)) => {
            for (name, value) in sent {
                if let Some(parsed_value) = parsed.get(name) {
                    assert_contained(value, parsed_value, &format!("{place}.{name}"));
                    continue;
                }
                // A field that is null, false or empty may be missing.
                let is_empty = matches!(value, Value::Null | Value::Bool(false))
                    || *value == json!([])
                    || *value == json!({});
                assert!(
                    is_empty,
                    "{place}.{name} = {value} is lost: the protocol does not know it"
                );
            }
        }
        (Value::Array(sent), Value::Array(parsed)) => {
            assert_eq!(sent.len(), parsed.len(), "{place}");
            for (sent_value, parsed_value) in sent.iter().zip(parsed) {
                assert_contained(sent_value, parsed_value, place);
            }
        }
        (Value::Number(sent), Value::Number(parsed)) => {
            assert_eq!(sent.as_f64(), parsed.as_f64(), "{place}");
        }
        _ => assert_eq!(sent, parsed, "{place}"),
    }
}

/// Which side of the conversation sent a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sender {
    Driver,
    Agent,
}

impl Sender {
    fn other(self) -> Sender {
        match self {
            Sender::Driver => Sender::Agent,
            Sender::Agent => Sender::Driver,
        }
    }
}

/// Checks the lines of conversations.
#[derive(Default)]
struct Checker {
    /// The method of each request, by its sender and its id.
    methods: BTreeMap<(Sender, String), String>,
    /// The kinds of messages that occurred, such as `session/prompt result`.
    occurred: BTreeSet<String>,
}

impl Checker {
    fn check_line(&mut self, sender: Sender, line: &str) {
        let message: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(message["jsonrpc"], "2.0");
        let id = message["id"].to_string();
        let params = &message["params"];
        if let Some(method) = message["method"].as_str() {
            self.occurred.insert(method.to_owned());
            self.methods.insert((sender, id), method.to_owned());
            return match method {
                "initialize" => assert_parses_as::<acp::InitializeRequest>(params),
                "session/new" => assert_parses_as::<acp::NewSessionRequest>(params),
                "session/load" => assert_parses_as::<acp::LoadSessionRequest>(params),
                "session/prompt" => assert_parses_as::<acp::PromptRequest>(params),
                "session/cancel" => assert_parses_as::<acp::CancelNotification>(params),
                "session/close" => assert_parses_as::<acp::CloseSessionRequest>(params),
                "session/set_config_option" => {
                    assert_parses_as::<acp::SetSessionConfigOptionRequest>(params)
                }
                "session/update" => assert_parses_as::<acp::SessionNotification>(params),
                "session/request_permission" => {
                    assert_parses_as::<acp::RequestPermissionRequest>(params)
                }
                "elicitation/create" => assert_parses_as::<acp::CreateElicitationRequest>(params),
                other => panic!("{other} is not covered by this test"),
            };
        }
        let method = self
            .methods
            .get(&(sender.other(), id))
            .expect("the request is known")
            .clone();
        if message["error"].is_object() {
            self.occurred.insert(format!("{method} error"));
            return assert_parses_as::<acp::Error>(&message["error"]);
        }
        self.occurred.insert(format!("{method} result"));
        let result = &message["result"];
        match method.as_str() {
            "initialize" => assert_parses_as::<acp::InitializeResponse>(result),
            "session/new" => assert_parses_as::<acp::NewSessionResponse>(result),
            "session/load" => assert_parses_as::<acp::LoadSessionResponse>(result),
            "session/prompt" => assert_parses_as::<acp::PromptResponse>(result),
            "session/close" => assert_parses_as::<acp::CloseSessionResponse>(result),
            "session/set_config_option" => {
                assert_parses_as::<acp::SetSessionConfigOptionResponse>(result)
            }
            "session/request_permission" => {
                assert_parses_as::<acp::RequestPermissionResponse>(result)
            }
            "elicitation/create" => assert_parses_as::<acp::CreateElicitationResponse>(result),
            other => panic!("the answer to {other} is not covered by this test"),
        }
    }
}

/// Runs a conversation and returns the id of its session.
fn converse(
    checker: &mut Checker,
    home: &Path,
    script: &Value,
    change: impl FnOnce(&mut DriverSetup),
) -> String {
    let file = home.join("script.json");
    std::fs::write(&file, script.to_string()).unwrap();
    let mut setup = DriverSetup {
        runtime: Runtime::Scripted,
        profile: Profile::default(),
        workspace: home.to_owned(),
        resume: None,
        used: Usage::default(),
        mcp_url: Some("http://127.0.0.1:9/mcp".to_owned()),
        regatta: None,
        seed: "A1".to_owned(),
        sandboxed_root: false,
    };
    change(&mut setup);
    let mut program = Command::new(env!("CARGO_BIN_EXE_scripted"))
        .env("HOME", home)
        .env("REGATTA_SCRIPT_FILE", file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take();
    let mut output = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut driver = new_driver(&setup);
    let mut desired = SessionInput {
        prompts: vec!["Go.".to_owned()],
        ..SessionInput::default()
    };
    let mut session_id = String::new();
    let mut position = 0;
    let mut new_record = |stream, line: &str| {
        position += 1;
        JournalRecord {
            position,
            written_unix_ms: position,
            stream,
            line: line.to_owned(),
        }
    };
    loop {
        while let Some(action) = driver.next_input(&desired) {
            match action {
                InputAction::Line(line) => {
                    checker.check_line(Sender::Driver, &line);
                    writeln!(input.as_mut().unwrap(), "{line}").unwrap();
                    driver.on_record(&new_record(JournalStream::In, &line));
                }
                InputAction::Close => {
                    input = None;
                    driver.on_record(&new_record(JournalStream::InEnd, ""));
                }
            }
        }
        let Some(Ok(line)) = output.next() else { break };
        checker.check_line(Sender::Agent, &line);
        for event in driver.on_record(&new_record(JournalStream::Out, &line)) {
            match event {
                AgentEvent::Started {
                    session: Some(id), ..
                } => session_id = id,
                AgentEvent::RequestMade(request) => match request.content {
                    RequestContent::Permission { .. } => {
                        desired.answers.push((request.id, RequestAnswer::Allow));
                    }
                    RequestContent::Question { ref text, .. } if text == "Cancel me" => {
                        desired.cancels = 1;
                    }
                    RequestContent::Question { .. } => {
                        let text = "blue".to_owned();
                        desired
                            .answers
                            .push((request.id, RequestAnswer::Text { text }));
                    }
                },
                AgentEvent::TurnEnded { .. } => desired.should_close_input = true,
                _ => {}
            }
        }
    }
    program.wait().unwrap();
    session_id
}

#[test]
fn every_line_of_the_driver_and_the_scripted_agent_follows_the_protocol() {
    let home = tempfile::tempdir().unwrap();
    let mut checker = Checker::default();
    let script = json!([
        {"think": "hm"}, {"plan": ["a"]}, {"say": "x"}, {"tool": {"title": "t", "kind": "search"}},
        {"write": {"path": "a.txt", "text": "a"}}, {"remove": "a.txt"}, {"run": "echo hello"},
        {"permission": {"what": "edit it", "kind": "edit", "path": "a.txt"}}, {"permission": "ls"},
        {"ask": {"question": "Which?", "choices": ["red", "blue"]}},
        {"usage": {"input": 1, "output": 2, "cached": 3, "cost": 0.5, "used": 5, "size": 10}}, {"end_turn": true},
        {"ask": {"question": "Cancel me"}}
    ]);
    let session_id = converse(&mut checker, home.path(), &script, |setup| {
        setup.profile.model = Some("scripted-big".to_owned());
        setup.profile.system_prompt = Some("Be brief.".to_owned());
    });
    converse(&mut checker, home.path(), &script, |setup| {
        setup.resume = Some(session_id)
    });
    converse(
        &mut checker,
        home.path(),
        &json!([{"rate_limit": {"reset_in": "5s"}}]),
        |_| {},
    );
    for expected in [
        "initialize result",
        "session/new result",
        "session/load result",
        "session/prompt result",
        "session/prompt error",
        "session/cancel",
        "session/close",
        "session/set_config_option result",
        "session/update",
        "session/request_permission result",
        "elicitation/create result",
    ] {
        assert!(
            checker.occurred.contains(expected),
            "{expected} did not occur: {:?}",
            checker.occurred
        );
    }
}

#[test]
#[should_panic(expected = "is lost")]
fn misspelt_field_is_detected() {
    assert_parses_as::<acp::NewSessionRequest>(
        &json!({ "cwd": "/w", "mcpServers": [], "mcp_servers": [1] }),
    );
}
