//! Tests of conversations between the ACP driver and the scripted agent, without a session loop.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use regatta_agents::driver::{Driver, Judgement, Record, Say, Stream};
use regatta_agents::drivers::{self, Setup};
use regatta_core::agent::{Profile, Runtime};
use regatta_core::session::{Answer, Class, Said, Stop, ToolStatus, Usage, Want};
use regatta_engine::ports::agents::{Exit, Wishes};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{LONG, fixture};

struct Talk {
    program: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    setup: Setup,
    driver: Box<dyn Driver>,
    wishes: Wishes,
    journal: Vec<Record>,
    said: Vec<Said>,
}

impl Talk {
    fn start(home: &TempDir, script: &Value, change: impl FnOnce(&mut Setup)) -> Talk {
        let workspace = home.path().join("workspace");
        fs::create_dir_all(&workspace).unwrap();
        let file = home.path().join("script.json");
        fs::write(&file, script.to_string()).unwrap();
        let mut setup = Setup {
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
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|it| sender.send(it)));
        let driver = drivers::of(&setup);
        let (journal, said) = (vec![], vec![]);
        Talk { input: program.stdin.take(), program, output, setup, driver, wishes: Wishes::default(), journal, said }
    }

    fn record(&mut self, stream: Stream, line: String) {
        let n = self.journal.len() as u64 + 1;
        let record = Record { n, at: 1_763_200_000_000 + n, stream, line };
        // As after a crash of the daemon, a new driver replays the journal and continues, which
        // must make no difference.
        if n.is_multiple_of(3) {
            self.driver = drivers::of(&self.setup);
            self.journal.iter().for_each(|it| drop(self.driver.saw(it)));
        }
        self.said.extend(self.driver.saw(&record));
        self.journal.push(record);
    }

    fn say(&mut self) {
        while let Some(say) = self.driver.next(&self.wishes) {
            match say {
                Say::Line(line) => {
                    writeln!(self.input.as_mut().expect("the input is open"), "{line}").unwrap();
                    self.record(Stream::In, line);
                }
                Say::Close => {
                    self.input = None;
                    self.record(Stream::InEnd, String::new());
                }
            }
        }
    }

    /// Continues until an event fits.
    fn until<T>(&mut self, fits: impl Fn(&Said) -> Option<T>) -> T {
        let mut looked = self.said.len();
        loop {
            self.say();
            if let Some(found) = self.said[looked..].iter().find_map(&fits) {
                return found;
            }
            looked = self.said.len();
            match self.output.recv_timeout(LONG) {
                Ok(line) => self.record(Stream::Out, line),
                Err(_) => panic!("the program was silent or ended after these events: {:#?}", self.said),
            }
        }
    }

    fn turn_ends(&mut self) -> (Stop, Option<Class>, String) {
        self.until(|it| match it {
            Said::TurnEnded { stop, class, detail } => Some((*stop, *class, detail.clone())),
            _ => None,
        })
    }

    fn asked(&mut self) -> (String, Want) {
        self.until(|it| match it {
            Said::Asked(ask) => Some((ask.id.clone(), ask.want.clone())),
            _ => None,
        })
    }

    fn end(mut self) -> Judgement {
        self.wishes.end = true;
        self.say();
        while let Ok(line) = self.output.recv_timeout(LONG) {
            self.record(Stream::Out, line);
        }
        let status = self.program.wait().unwrap();
        self.driver.judge(&status.code().map_or(Exit::Lost, Exit::Code))
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        drop(self.program.kill());
        drop(self.program.wait());
    }
}

fn home() -> TempDir {
    tempfile::Builder::new().prefix("regatta-talk-").tempdir().unwrap()
}

#[test]
fn replaying_the_journal_after_every_third_record_changes_nothing() {
    let home = home();
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
    let mut talk = Talk::start(&home, &script, |setup| setup.mcp_url = Some("http://127.0.0.1:9/mcp".to_owned()));
    talk.wishes.prompts = vec!["Go.".to_owned()];
    let (id, want) = talk.asked();
    assert!(
        matches!(&want, Want::Permission { tool, .. } if tool.command.as_deref() == Some("rm -r build")),
        "{want:?}"
    );
    talk.wishes.answers.push((id, Answer::Allow));
    let (id, want) = talk.asked();
    assert!(matches!(&want, Want::Question { choices, .. } if choices == &["red", "blue"]), "{want:?}");
    talk.wishes.answers.push((id, Answer::Text { text: "blue".to_owned() }));
    assert_eq!(talk.turn_ends(), (Stop::EndTurn, None, "First.".to_owned()));
    talk.wishes.prompts.push("More.".to_owned());
    assert_eq!(talk.turn_ends(), (Stop::EndTurn, None, "Second.".to_owned()));
    assert!(talk.said.iter().any(|it| matches!(it, Said::Plan { entries } if entries.len() == 2)));
    assert!(talk.said.contains(&Said::Context { used: 900, size: 1000 }));
    let ran = |it: &Said| matches!(it, Said::Tool(tool) if tool.output.as_deref() == Some("one") && tool.status == ToolStatus::Completed);
    assert!(talk.said.iter().any(ran), "{:#?}", talk.said);
    assert_eq!(fs::read_to_string(talk.setup.workspace.join("a.txt")).unwrap(), "one\ntwo\n");
    let judged = talk.end();
    assert_eq!(judged.class, None);
    let usage = Usage { input: 11, cached_input: 100, cache_write: 0, output: 6, micro_usd: Some(750_000) };
    assert_eq!(judged.usage[0].1, usage);
}

#[test]
fn turn_is_cancelled_while_the_program_waits_sleeps_or_runs_a_command() {
    let home = home();
    let script = json!([{"permission": "x"}, {"say": "never"}]);
    let mut talk = Talk::start(&home, &script, |_| {});
    talk.wishes.prompts = vec!["Go.".to_owned()];
    talk.asked();
    talk.wishes.cancels = 1;
    assert_eq!(talk.turn_ends().0, Stop::Cancelled);
    assert_eq!(talk.end().class, Some(Class::Cancelled));
    for step in [json!({"sleep": "1h"}), json!({"run": "exec sleep 3600"})] {
        let mut talk = Talk::start(&home, &json!([{"say": "begun"}, step, {"say": "never"}]), |_| {});
        talk.wishes.prompts = vec!["Go.".to_owned()];
        talk.until(|it| matches!(it, Said::Message { .. }).then_some(()));
        talk.wishes.cancels = 1;
        assert_eq!(talk.turn_ends().0, Stop::Cancelled);
        assert!(!talk.said.contains(&Said::Message { text: "never".to_owned() }));
    }
}

#[test]
fn later_process_loads_a_session_and_continues_it() {
    let home = home();
    let script = json!([{"say": "One."}, {"end_turn": true}, {"say": "Two."}]);
    let mut talk = Talk::start(&home, &script, |_| {});
    talk.wishes.prompts = vec!["Go.".to_owned()];
    let session = talk.until(|it| match it {
        Said::Started { session, .. } => session.clone(),
        _ => None,
    });
    talk.turn_ends();
    talk.program.kill().unwrap();
    drop(talk);
    let mut talk = Talk::start(&home, &script, |setup| {
        setup.resume = Some(session.clone());
        setup.profile.model = Some("scripted-big".to_owned());
        setup.profile.mode = Some("auto".to_owned());
    });
    talk.wishes.prompts = vec!["Go on.".to_owned()];
    assert_eq!(talk.turn_ends().2, "Two.");
    let messages: Vec<&Said> = talk.said.iter().filter(|it| matches!(it, Said::Message { .. })).collect();
    assert_eq!(messages, [&Said::Message { text: "Two.".to_owned() }], "the history is not reported again");
    let mut talk = Talk::start(&home, &script, |setup| setup.resume = Some("nobody".to_owned()));
    talk.wishes.prompts = vec!["Go.".to_owned()];
    assert_eq!(talk.turn_ends().2, "One.", "a new session");
}

#[test]
fn every_class_of_failure_is_reported_as_that_class() {
    let home = home();
    for class in Class::ALL {
        let script = json!([{"fail": {"class": class, "reason": "So it goes."}}]);
        let mut talk = Talk::start(&home, &script, |_| {});
        talk.wishes.prompts = vec!["Go.".to_owned()];
        assert_eq!(talk.turn_ends().1, Some(class));
        assert_eq!(talk.end().class, Some(class));
    }
    let mut talk = Talk::start(&home, &json!([{"rate_limit": {"reset_in": "90s"}}]), |_| {});
    talk.wishes.prompts = vec!["Go.".to_owned()];
    let until = talk.until(|it| match it {
        Said::Limited { until_wall, .. } => *until_wall,
        _ => None,
    });
    assert_eq!(until, talk.journal.last().unwrap().at + 90_000);

    let mut talk = Talk::start(&home, &json!([{"say": "x"}, {"crash": true}]), |_| {});
    talk.wishes.prompts = vec!["Go.".to_owned()];
    talk.until(|it| matches!(it, Said::Message { .. }).then_some(()));
    assert_eq!(talk.end().class, Some(Class::Crashed));
    // A denied permission makes the agent fail with a message.
    let mut talk = Talk::start(&home, &json!([{"permission": "rm -rf /"}]), |_| {});
    talk.wishes.prompts = vec!["Go.".to_owned()];
    let (id, _) = talk.asked();
    talk.wishes.answers.push((id, Answer::Deny { words: None }));
    assert!(talk.turn_ends().2.contains("Not allowed"));
}

#[test]
fn output_of_300_kb_arrives_whole() {
    let home = home();
    let mut talk = Talk::start(&home, &json!([{"flood": {"bytes": 300_000}}, {"say": "end"}]), |_| {});
    talk.wishes.prompts = vec!["Go.".to_owned()];
    assert_eq!(talk.turn_ends().0, Stop::EndTurn);
    let bytes: usize = talk.journal.iter().filter(|it| it.stream == Stream::Out).map(|it| it.line.len() + 1).sum();
    assert!(bytes >= 300_000, "{bytes}");
}
