//! Parses every line of conversations between the ACP driver and the scripted agent with the
//! protocol's own types. Parsing must lose no field, because a misspelt field would be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use agent_client_protocol::v1::schema as acp;
use regatta_agents::driver::{Record, Say, Stream};
use regatta_agents::drivers::{self, Setup};
use regatta_core::agent::{Profile, Runtime};
use regatta_core::session::{Answer, Said, Usage, Want};
use regatta_engine::ports::agents::Wishes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Parses `value` as `T` and checks that no field is lost when it is serialised again.
fn is<T: DeserializeOwned + Serialize>(value: &Value) {
    let typed: T = serde_json::from_value(value.clone())
        .unwrap_or_else(|error| panic!("{value} is not a {}: {error}", std::any::type_name::<T>()));
    let again = serde_json::to_value(typed).expect("the value can be serialised");
    within(value, &again, std::any::type_name::<T>());
}

fn within(ours: &Value, theirs: &Value, place: &str) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (name, value) in ours {
                // A field that is null, false or empty may be missing.
                let nothing =
                    matches!(value, Value::Null | Value::Bool(false)) || *value == json!([]) || *value == json!({});
                match theirs.get(name) {
                    Some(other) => within(value, other, &format!("{place}.{name}")),
                    None => assert!(nothing, "{place}.{name} = {value} is lost: the protocol does \
                        not know it"),
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            assert_eq!(ours.len(), theirs.len(), "{place}");
            ours.iter().zip(theirs).for_each(|(a, b)| within(a, b, place));
        }
        (Value::Number(a), Value::Number(b)) => assert_eq!(a.as_f64(), b.as_f64(), "{place}"),
        _ => assert_eq!(ours, theirs, "{place}"),
    }
}

#[derive(Default)]
struct Checker {
    asked: BTreeMap<(bool, String), String>,
    seen: BTreeSet<String>,
}

impl Checker {
    fn line(&mut self, ours: bool, line: &str) {
        let message: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(message["jsonrpc"], "2.0");
        let id = message["id"].to_string();
        let params = &message["params"];
        if let Some(method) = message["method"].as_str() {
            self.seen.insert(method.to_owned());
            self.asked.insert((ours, id), method.to_owned());
            return match method {
                "initialize" => is::<acp::InitializeRequest>(params),
                "session/new" => is::<acp::NewSessionRequest>(params),
                "session/load" => is::<acp::LoadSessionRequest>(params),
                "session/prompt" => is::<acp::PromptRequest>(params),
                "session/cancel" => is::<acp::CancelNotification>(params),
                "session/close" => is::<acp::CloseSessionRequest>(params),
                "session/set_config_option" => is::<acp::SetSessionConfigOptionRequest>(params),
                "session/update" => is::<acp::SessionNotification>(params),
                "session/request_permission" => is::<acp::RequestPermissionRequest>(params),
                "elicitation/create" => is::<acp::CreateElicitationRequest>(params),
                other => panic!("{other} is not covered by this test"),
            };
        }
        let method = self.asked.get(&(!ours, id)).expect("the request is known").clone();
        if message["error"].is_object() {
            self.seen.insert(format!("{method} error"));
            return is::<acp::Error>(&message["error"]);
        }
        self.seen.insert(format!("{method} result"));
        let result = &message["result"];
        match method.as_str() {
            "initialize" => is::<acp::InitializeResponse>(result),
            "session/new" => is::<acp::NewSessionResponse>(result),
            "session/load" => is::<acp::LoadSessionResponse>(result),
            "session/prompt" => is::<acp::PromptResponse>(result),
            "session/close" => is::<acp::CloseSessionResponse>(result),
            "session/set_config_option" => is::<acp::SetSessionConfigOptionResponse>(result),
            "session/request_permission" => is::<acp::RequestPermissionResponse>(result),
            "elicitation/create" => is::<acp::CreateElicitationResponse>(result),
            other => panic!("the answer to {other} is not covered by this test"),
        }
    }
}

/// Holds a conversation and returns its session.
fn converse(checker: &mut Checker, home: &std::path::Path, script: &Value, change: impl FnOnce(&mut Setup)) -> String {
    let file = home.join("script.json");
    std::fs::write(&file, script.to_string()).unwrap();
    let mut setup = Setup {
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
    let (mut input, mut output) = (program.stdin.take(), BufReader::new(program.stdout.take().unwrap()).lines());
    let mut driver = drivers::of(&setup);
    let mut wishes = Wishes { prompts: vec!["Go.".to_owned()], ..Wishes::default() };
    let mut session = String::new();
    let mut n = 0;
    let mut record = |stream, line: &str| {
        n += 1;
        Record { n, at: n, stream, line: line.to_owned() }
    };
    loop {
        while let Some(say) = driver.next(&wishes) {
            match say {
                Say::Line(line) => {
                    checker.line(true, &line);
                    writeln!(input.as_mut().unwrap(), "{line}").unwrap();
                    driver.saw(&record(Stream::In, &line));
                }
                Say::Close => {
                    input = None;
                    driver.saw(&record(Stream::InEnd, ""));
                }
            }
        }
        let Some(Ok(line)) = output.next() else { break };
        checker.line(false, &line);
        for said in driver.saw(&record(Stream::Out, &line)) {
            match said {
                Said::Started { session: Some(it), .. } => session = it,
                Said::Asked(ask) => match ask.want {
                    Want::Permission { .. } => wishes.answers.push((ask.id, Answer::Allow)),
                    Want::Question { ref text, .. } if text == "Cancel me" => wishes.cancels = 1,
                    Want::Question { .. } => wishes.answers.push((ask.id, Answer::Text { text: "blue".to_owned() })),
                },
                Said::TurnEnded { .. } => wishes.end = true,
                _ => {}
            }
        }
    }
    program.wait().unwrap();
    session
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
    let session = converse(&mut checker, home.path(), &script, |setup| {
        setup.profile.model = Some("scripted-big".to_owned());
        setup.profile.system_prompt = Some("Be brief.".to_owned());
    });
    converse(&mut checker, home.path(), &script, |setup| setup.resume = Some(session));
    converse(&mut checker, home.path(), &json!([{"rate_limit": {"reset_in": "5s"}}]), |_| {});
    for needed in [
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
        assert!(checker.seen.contains(needed), "{needed} did not occur: {:?}", checker.seen);
    }
}

#[test]
#[should_panic(expected = "is lost")]
fn misspelt_field_is_detected() {
    is::<acp::NewSessionRequest>(&json!({ "cwd": "/w", "mcpServers": [], "mcp_servers": [1] }));
}
