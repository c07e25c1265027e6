//! Tests of conversations between the ACP driver and the scripted agent, without a session loop.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use regatta_agents::driver::{Driver, ExitAssessment, InputAction, JournalRecord, JournalStream};
use regatta_agents::drivers::{self, DriverSetup};
use regatta_core::agent::{Profile, Runtime};
use regatta_core::agent_protocol::{
    AgentEvent, FailureClass, RequestAnswer, RequestContent, StopReason, ToolStatus, Usage,
};
use regatta_engine::ports::agents::{Exit, SessionInput};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{TEST_TIMEOUT, fixture};

struct AcpConversation {
    program: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    setup: DriverSetup,
    driver: Box<dyn Driver>,
    session_input: SessionInput,
    journal: Vec<JournalRecord>,
    events: Vec<AgentEvent>,
}

impl AcpConversation {
    fn start(
        home: &TempDir,
        script: &Value,
        change: impl FnOnce(&mut DriverSetup),
    ) -> AcpConversation {
        let workspace = home.path().join("workspace");
        fs::create_dir_all(&workspace).unwrap();
        let file = home.path().join("script.json");
        fs::write(&file, script.to_string()).unwrap();
        let mut setup = DriverSetup {
            runtime: Runtime::Scripted,
            profile: Profile::default(),
            workspace,
            resume: None,
            used: Usage::default(),
            mcp_url: None,
            regatta: None,
            seed: "A1".to_owned(),
            sandboxed_root: false,
        };
        change(&mut setup);
        let argv = drivers::command_line(&setup, "", Path::new(fixture()));
        let mut program = Command::new(&argv[0])
            .args(&argv[1..])
            .env("HOME", home.path())
            .env("REGATTA_SCRIPT_FILE", file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, output) = channel();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let driver = drivers::new_driver(&setup);
        let (journal, events) = (vec![], vec![]);
        AcpConversation {
            input: program.stdin.take(),
            program,
            output,
            setup,
            driver,
            session_input: SessionInput::default(),
            journal,
            events,
        }
    }

    fn record(&mut self, stream: JournalStream, line: String) {
        let position = self.journal.len() as u64 + 1;
        let record = JournalRecord {
            position,
            written_unix_ms: 1_763_200_000_000 + position,
            stream,
            line,
        };
        // As after a crash of the daemon, a new driver replays the journal and continues, which
        // must make no difference.
        if position.is_multiple_of(3) {
            self.driver = drivers::new_driver(&self.setup);
            for recorded in &self.journal {
                self.driver.on_record(recorded);
            }
        }
        self.events.extend(self.driver.on_record(&record));
        self.journal.push(record);
    }

    fn send_inputs(&mut self) {
        while let Some(say) = self.driver.next_input(&self.session_input) {
            match say {
                InputAction::Line(line) => {
                    writeln!(self.input.as_mut().expect("the input is open"), "{line}").unwrap();
                    self.record(JournalStream::In, line);
                }
                InputAction::Close => {
                    self.input = None;
                    self.record(JournalStream::InEnd, String::new());
                }
            }
        }
    }

    /// Continues the conversation until an event satisfies `fits`.
    fn wait_for<T>(&mut self, fits: impl Fn(&AgentEvent) -> Option<T>) -> T {
        let mut seen_events = self.events.len();
        loop {
            self.send_inputs();
            if let Some(found) = self.events[seen_events..].iter().find_map(&fits) {
                return found;
            }
            seen_events = self.events.len();
            match self.output.recv_timeout(TEST_TIMEOUT) {
                Ok(line) => self.record(JournalStream::Out, line),
                Err(_) => panic!(
                    "the program was silent or ended after these events: {:#?}",
                    self.events
                ),
            }
        }
    }

    fn wait_for_turn_end(&mut self) -> (StopReason, Option<FailureClass>, String) {
        self.wait_for(|event| match event {
            AgentEvent::TurnEnded {
                stop,
                class,
                detail,
            } => Some((*stop, *class, detail.clone())),
            _ => None,
        })
    }

    fn wait_for_request(&mut self) -> (String, RequestContent) {
        self.wait_for(|event| match event {
            AgentEvent::RequestMade(ask) => Some((ask.id.clone(), ask.content.clone())),
            _ => None,
        })
    }

    fn end(mut self) -> ExitAssessment {
        self.session_input.should_close_input = true;
        self.send_inputs();
        while let Ok(line) = self.output.recv_timeout(TEST_TIMEOUT) {
            self.record(JournalStream::Out, line);
        }
        let status = self.program.wait().unwrap();
        self.driver
            .assess_exit(&status.code().map_or(Exit::Lost, Exit::Code))
    }
}

impl Drop for AcpConversation {
    fn drop(&mut self) {
        drop(self.program.kill());
        drop(self.program.wait());
    }
}

fn temporary_home() -> TempDir {
    tempfile::Builder::new()
        .prefix("regatta-talk-")
        .tempdir()
        .unwrap()
}

#[test]
fn replaying_the_journal_after_every_third_record_changes_nothing() {
    let home = temporary_home();
    let script = json!([
        {"think": "Let me see."}, {"plan": ["write", "run"]},
        {"write": {"path": "a.txt", "text": "one\n"}},
        {"run": "cat a.txt; echo two >> a.txt"},
        {"permission": "rm -r build"},
        {"ask": {"question": "Which?", "choices": ["red", "blue"]}},
        {"usage": {"input": 10, "output": 5, "cached": 100, "cost": 0.5, "used": 900, "size": 1000}},
        {"say": "First."}, {"end_turn": true},
        {"usage": {"input": 1, "output": 1, "cost": 0.25}}, {"say": "Second."}
    ]);
    let mut conversation = AcpConversation::start(&home, &script, |setup| {
        setup.mcp_url = Some("http://127.0.0.1:9/mcp".to_owned())
    });
    conversation.session_input.prompts = vec!["Go.".to_owned()];
    let (id, want) = conversation.wait_for_request();
    assert!(
        matches!(&want, RequestContent::Permission { tool, .. } if tool.command.as_deref() == Some("rm -r build")),
        "{want:?}"
    );
    conversation
        .session_input
        .answers
        .push((id, RequestAnswer::Allow));
    let (id, want) = conversation.wait_for_request();
    assert!(
        matches!(&want, RequestContent::Question { choices, .. } if choices == &["red", "blue"]),
        "{want:?}"
    );
    conversation.session_input.answers.push((
        id,
        RequestAnswer::Text {
            text: "blue".to_owned(),
        },
    ));
    assert_eq!(
        conversation.wait_for_turn_end(),
        (StopReason::EndTurn, None, "First.".to_owned())
    );
    conversation.session_input.prompts.push("More.".to_owned());
    assert_eq!(
        conversation.wait_for_turn_end(),
        (StopReason::EndTurn, None, "Second.".to_owned())
    );
    assert!(
        conversation
            .events
            .iter()
            .any(|event| matches!(event, AgentEvent::Plan { entries } if entries.len() == 2))
    );
    assert!(conversation.events.contains(&AgentEvent::Context {
        used: 900,
        size: 1000
    }));
    let ran = |event: &AgentEvent| matches!(event, AgentEvent::Tool(tool) if tool.output.as_deref() == Some("one") && tool.status == ToolStatus::Completed);
    assert!(
        conversation.events.iter().any(ran),
        "{:#?}",
        conversation.events
    );
    assert_eq!(
        fs::read_to_string(conversation.setup.workspace.join("a.txt")).unwrap(),
        "one\ntwo\n"
    );
    let assessment = conversation.end();
    assert_eq!(assessment.class, None);
    let usage = Usage {
        input: 11,
        cached_input: 100,
        cache_write: 0,
        output: 6,
        micro_usd: Some(750_000),
    };
    assert_eq!(assessment.usage[0].1, usage);
}

#[test]
fn turn_is_cancelled_while_the_program_waits_sleeps_or_runs_a_command() {
    let home = temporary_home();
    let script = json!([{"permission": "x"}, {"say": "never"}]);
    let mut conversation = AcpConversation::start(&home, &script, |_| {});
    conversation.session_input.prompts = vec!["Go.".to_owned()];
    conversation.wait_for_request();
    conversation.session_input.cancels = 1;
    assert_eq!(conversation.wait_for_turn_end().0, StopReason::Cancelled);
    assert_eq!(conversation.end().class, Some(FailureClass::Cancelled));
    for step in [json!({"sleep": "1h"}), json!({"run": "exec sleep 3600"})] {
        let mut conversation = AcpConversation::start(
            &home,
            &json!([{"say": "begun"}, step, {"say": "never"}]),
            |_| {},
        );
        conversation.session_input.prompts = vec!["Go.".to_owned()];
        conversation.wait_for(|event| matches!(event, AgentEvent::Message { .. }).then_some(()));
        conversation.session_input.cancels = 1;
        assert_eq!(conversation.wait_for_turn_end().0, StopReason::Cancelled);
        assert!(!conversation.events.contains(&AgentEvent::Message {
            text: "never".to_owned()
        }));
    }
}

#[test]
fn later_process_loads_a_session_and_continues_it() {
    let home = temporary_home();
    let script = json!([{"say": "One."}, {"end_turn": true}, {"say": "Two."}]);
    let mut conversation = AcpConversation::start(&home, &script, |_| {});
    conversation.session_input.prompts = vec!["Go.".to_owned()];
    let session = conversation.wait_for(|event| match event {
        AgentEvent::Started { session, .. } => session.clone(),
        _ => None,
    });
    conversation.wait_for_turn_end();
    conversation.program.kill().unwrap();
    drop(conversation);
    let mut conversation = AcpConversation::start(&home, &script, |setup| {
        setup.resume = Some(session.clone());
        setup.profile.model = Some("scripted-big".to_owned());
        setup.profile.mode = Some("auto".to_owned());
    });
    conversation.session_input.prompts = vec!["Go on.".to_owned()];
    assert_eq!(conversation.wait_for_turn_end().2, "Two.");
    let messages: Vec<&AgentEvent> = conversation
        .events
        .iter()
        .filter(|event| matches!(event, AgentEvent::Message { .. }))
        .collect();
    assert_eq!(
        messages,
        [&AgentEvent::Message {
            text: "Two.".to_owned()
        }],
        "the history is not reported again"
    );
    let mut conversation = AcpConversation::start(&home, &script, |setup| {
        setup.resume = Some("nobody".to_owned())
    });
    conversation.session_input.prompts = vec!["Go.".to_owned()];
    assert_eq!(conversation.wait_for_turn_end().2, "One.", "a new session");
}

#[test]
fn every_class_of_failure_is_reported_as_that_class() {
    let home = temporary_home();
    for class in FailureClass::ALL {
        let script = json!([{"fail": {"class": class, "reason": "So it goes."}}]);
        let mut conversation = AcpConversation::start(&home, &script, |_| {});
        conversation.session_input.prompts = vec!["Go.".to_owned()];
        assert_eq!(conversation.wait_for_turn_end().1, Some(class));
        assert_eq!(conversation.end().class, Some(class));
    }
    let mut conversation =
        AcpConversation::start(&home, &json!([{"rate_limit": {"reset_in": "90s"}}]), |_| {});
    conversation.session_input.prompts = vec!["Go.".to_owned()];
    let until = conversation.wait_for(|event| match event {
        AgentEvent::Limited {
            deadline_unix_ms: until_wall,
            ..
        } => *until_wall,
        _ => None,
    });
    assert_eq!(
        until,
        conversation.journal.last().unwrap().written_unix_ms + 90_000
    );

    let mut conversation =
        AcpConversation::start(&home, &json!([{"say": "x"}, {"crash": true}]), |_| {});
    conversation.session_input.prompts = vec!["Go.".to_owned()];
    conversation.wait_for(|event| matches!(event, AgentEvent::Message { .. }).then_some(()));
    assert_eq!(conversation.end().class, Some(FailureClass::Crashed));
    // A denied permission makes the agent fail with a message.
    let mut conversation =
        AcpConversation::start(&home, &json!([{"permission": "rm -rf /"}]), |_| {});
    conversation.session_input.prompts = vec!["Go.".to_owned()];
    let (id, _) = conversation.wait_for_request();
    conversation
        .session_input
        .answers
        .push((id, RequestAnswer::Deny { reason: None }));
    assert!(conversation.wait_for_turn_end().2.contains("Not allowed"));
}

#[test]
fn output_of_300_kb_arrives_whole() {
    let home = temporary_home();
    let mut conversation = AcpConversation::start(
        &home,
        &json!([{"flood": {"bytes": 300_000}}, {"say": "end"}]),
        |_| {},
    );
    conversation.session_input.prompts = vec!["Go.".to_owned()];
    assert_eq!(conversation.wait_for_turn_end().0, StopReason::EndTurn);
    let bytes: usize = conversation
        .journal
        .iter()
        .filter(|record| record.stream == JournalStream::Out)
        .map(|record| record.line.len() + 1)
        .sum();
    assert!(bytes >= 300_000, "{bytes}");
}
