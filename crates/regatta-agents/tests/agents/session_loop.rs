//! Tests of session loops: reading events, sending input, and continuing after a restart.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use regatta_agents::driver::{Driver, ExitAssessment, InputAction, JournalRecord};
use regatta_agents::{AgentsAdapter, ShimLimits};
use regatta_core::agent::Runtime;
use regatta_core::agent_protocol::{AgentEvent, FailureClass};
use regatta_engine::ports::agents::{
    Agents, DriverVerdict, Exit, JournalStream, McpServer, SessionInput, SessionSink,
};
use serde_json::{Value, json};

use crate::support::{A1, TEST_TIMEOUT, World, adapter, eventually, send_signal};

/// A session sink that records the events and requests a few inputs.
#[derive(Default)]
struct RecordingSink {
    messages: Mutex<Vec<(u64, String)>>,
    silences: Mutex<Vec<bool>>,
    input: Mutex<SessionInput>,
    should_stop: AtomicBool,
    input_reads: AtomicU64,
}

impl RecordingSink {
    fn messages(&self) -> Vec<(u64, String)> {
        self.messages.lock().unwrap().clone()
    }
}

impl SessionSink for RecordingSink {
    fn on_event(&self, position: u64, event: AgentEvent) {
        if let AgentEvent::Message { text } | AgentEvent::Notice { text } = event {
            self.messages
                .lock()
                .unwrap()
                .push((position, text.trim_end().to_owned()));
        }
    }
    fn on_silence(&self, since: Option<Duration>) {
        self.silences.lock().unwrap().push(since.is_some());
    }
    fn desired_input(&self) -> SessionInput {
        self.input_reads.fetch_add(1, Ordering::SeqCst);
        self.input.lock().unwrap().clone()
    }
    fn should_continue(&self) -> bool {
        !self.should_stop.load(Ordering::SeqCst)
    }
}

/// A driver that sends each prompt as a line after the previous one was answered, and closes the
/// input at the end.
#[derive(Default)]
struct LineDriver {
    sent: usize,
    answered: usize,
    is_closed: bool,
}

impl Driver for LineDriver {
    fn on_record(&mut self, record: &JournalRecord) -> Vec<AgentEvent> {
        match record.stream {
            JournalStream::In => self.sent += 1,
            JournalStream::InEnd => self.is_closed = true,
            JournalStream::Out => {
                self.answered += 1;
                return vec![AgentEvent::Message {
                    text: record.line.clone(),
                }];
            }
            _ => {}
        }
        vec![]
    }
    fn next_input(&self, input: &SessionInput) -> Option<InputAction> {
        if self.answered < self.sent || self.is_closed {
            return None;
        }
        let next = input.prompts.get(self.sent).cloned().map(InputAction::Line);
        next.or_else(|| input.should_close_input.then_some(InputAction::Close))
    }
    fn assess_exit(&self, exit: &Exit) -> ExitAssessment {
        let class = (*exit != Exit::Code(0)).then_some(FailureClass::Crashed);
        ExitAssessment {
            class,
            detail: format!("{} answers", self.answered),
            usage: vec![],
        }
    }
}

/// Starts a shell script that gets its input line by line.
fn start_session_script(world: &World, script: &str) {
    let mut launch = world.launch(&[]);
    launch.runtime = Runtime::Acp {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
    };
    world.adapter.start(&launch).unwrap();
}

const ECHO_SCRIPT: &str = "while read -r line; do echo \"got $line\"; done; echo over; exit 4";

#[test]
fn program_output_and_exit_are_reported() {
    let world = World::new();
    world.start("echo one; echo two >&2; exit 3");
    let notes = RecordingSink::default();
    let verdict = world.adapter.attend(A1, &notes).unwrap().unwrap();
    assert_eq!(
        (verdict.exit, verdict.class),
        (Exit::Code(3), Some(FailureClass::Crashed))
    );
    let mut words: Vec<String> = notes.messages().into_iter().map(|(_, text)| text).collect();
    words.sort();
    assert_eq!(words, ["one", "two"]);
    // After the program's end, a second loop reports the same events from the beginning.
    let again = RecordingSink::default();
    world.adapter.attend(A1, &again).unwrap().unwrap();
    assert_eq!(again.messages(), notes.messages());
}

#[test]
fn attending_an_attempt_that_did_not_start_is_an_error_or_a_bad_config_verdict() {
    let world = World::new();
    let notes = RecordingSink::default();
    assert!(
        world
            .adapter
            .attend(A1, &notes)
            .unwrap_err()
            .message
            .contains("A1")
    );
    world
        .adapter
        .start(&world.launch(&["no-such-agent"]))
        .unwrap();
    let verdict = world.adapter.attend(A1, &notes).unwrap().unwrap();
    assert!(matches!(verdict.exit, Exit::NotStarted(_)));
    assert_eq!(verdict.class, Some(FailureClass::BadConfig));
}

fn run_session_loop(adapter: &AgentsAdapter, notes: &RecordingSink) -> Option<DriverVerdict> {
    adapter
        .run_session_loop(A1, notes, Box::<LineDriver>::default())
        .unwrap()
}

#[test]
fn prompts_and_answers_alternate_until_the_input_is_closed() {
    let world = World::new();
    start_session_script(&world, ECHO_SCRIPT);
    let notes = RecordingSink::default();
    *notes.input.lock().unwrap() = SessionInput {
        prompts: (0..50).map(|n| format!("\"line\" {n}")).collect(),
        should_close_input: true,
        ..SessionInput::default()
    };
    let verdict = run_session_loop(&world.adapter, &notes).unwrap();
    assert_eq!(
        (verdict.exit, verdict.detail.as_str()),
        (Exit::Code(4), "51 answers")
    );
    let expected: Vec<String> = (0..50)
        .map(|n| format!("got \"line\" {n}"))
        .chain(["over".to_owned()])
        .collect();
    assert_eq!(world.lines(JournalStream::Out), expected);
    let streams: Vec<JournalStream> = world
        .records()
        .iter()
        .map(|record| record.stream)
        .take(4)
        .collect();
    assert_eq!(
        streams,
        [
            JournalStream::In,
            JournalStream::Out,
            JournalStream::In,
            JournalStream::Out
        ],
        "each answer follows its question"
    );
}

/// P1, P2: session loops are replaced in mid-turn, each with a new adapter as after a restart.
/// Every line is sent once, and every loop reports all events from the beginning.
#[test]
fn p1_p2_replacing_the_session_loop_in_mid_turn_loses_and_repeats_nothing() {
    let world = World::new();
    start_session_script(
        &world,
        "while read -r line; do for i in 1 2 3 4 5; do echo \"$line.$i\"; done; done",
    );
    /// A driver that expects five lines of output for each input.
    struct FiveAnswersDriver(LineDriver);
    impl Driver for FiveAnswersDriver {
        fn on_record(&mut self, record: &JournalRecord) -> Vec<AgentEvent> {
            self.0.on_record(record)
        }
        fn next_input(&self, input: &SessionInput) -> Option<InputAction> {
            (self.0.answered == 5 * self.0.sent).then_some(())?;
            input
                .prompts
                .get(self.0.sent)
                .cloned()
                .map(InputAction::Line)
                .or_else(|| input.should_close_input.then_some(InputAction::Close))
        }
        fn assess_exit(&self, exit: &Exit) -> ExitAssessment {
            self.0.assess_exit(exit)
        }
    }
    let prompts: Vec<String> = (0..40).map(|n| format!("p{n}")).collect();
    let expected: Vec<String> = prompts
        .iter()
        .flat_map(|prompt| (1..=5).map(move |i| format!("{prompt}.{i}")))
        .collect();
    let mut verdict = None;
    for life in 1_usize.. {
        let notes = RecordingSink::default();
        // Each loop gets five more prompts than the one before and is ended in the middle of a
        // turn. Without the limit, a loop that runs long before it sees the request to leave would
        // finish the session.
        let given = &prompts[..prompts.len().min(life * 5)];
        let is_last = given.len() == prompts.len();
        *notes.input.lock().unwrap() = SessionInput {
            prompts: given.to_vec(),
            should_close_input: is_last,
            ..SessionInput::default()
        };
        let enough = life * 23;
        verdict = std::thread::scope(|scope| {
            let adapter = adapter(&world.data());
            let notes = &notes;
            let attendant = scope.spawn(move || {
                adapter
                    .run_session_loop(
                        A1,
                        notes,
                        Box::new(FiveAnswersDriver(LineDriver::default())),
                    )
                    .unwrap()
            });
            eventually("the loop has reported enough events", || {
                notes.messages().len() >= enough || attendant.is_finished()
            });
            notes.should_stop.store(true, Ordering::SeqCst);
            attendant.join().unwrap()
        });
        let messages: Vec<String> = notes.messages().into_iter().map(|(_, text)| text).collect();
        assert_eq!(messages, expected[..messages.len()], "in life {life}");
        if verdict.is_some() {
            assert!(
                life >= 8,
                "the session ended with loop {life}, before it got all prompts"
            );
            break;
        }
    }
    assert_eq!(verdict.unwrap().exit, Exit::Code(0));
    assert_eq!(
        world.lines(JournalStream::In),
        prompts,
        "each prompt was sent once"
    );
    assert_eq!(world.lines(JournalStream::Out), expected);
}

#[test]
fn session_loop_reads_new_prompts_after_a_nudge_and_also_without_one() {
    let world = World::new();
    start_session_script(&world, ECHO_SCRIPT);
    let notes = RecordingSink::default();
    std::thread::scope(|scope| {
        let attendant = scope.spawn(|| run_session_loop(&world.adapter, &notes));
        eventually("the loop reads its input", || {
            notes.input_reads.load(Ordering::SeqCst) > 0
        });
        for nth in 0..3 {
            notes.input.lock().unwrap().prompts.push(format!("{nth}"));
            world.adapter.refresh_input(A1);
            eventually("the prompt was answered", || {
                notes.messages().len() == nth + 1
            });
        }
        notes.input.lock().unwrap().should_close_input = true;
        assert_eq!(attendant.join().unwrap().unwrap().exit, Exit::Code(4));
    });
}

#[test]
fn silence_is_reported_repeatedly_and_its_end_once() {
    let mut world = World::new();
    world.adapter = world
        .adapter
        .clone()
        .with_silence_timeout(Duration::from_millis(100));
    start_session_script(&world, ECHO_SCRIPT);
    let notes = RecordingSink::default();
    std::thread::scope(|scope| {
        let attendant = scope.spawn(|| run_session_loop(&world.adapter, &notes));
        eventually("the program is silent", || {
            notes.silences.lock().unwrap().starts_with(&[true, true])
        });
        notes.input.lock().unwrap().prompts.push("speak".to_owned());
        eventually("the program prints", || {
            notes.silences.lock().unwrap().contains(&false)
        });
        notes.input.lock().unwrap().should_close_input = true;
        attendant.join().unwrap();
        assert!(
            notes
                .silences
                .lock()
                .unwrap()
                .windows(2)
                .all(|silences| silences != [false, false]),
            "the end of the silence is reported once"
        );
    });
}

/// L12: neither the date of a file nor the date of a record makes a program silent for a daemon
/// that restarts.
#[test]
fn l12_a_changed_date_makes_no_program_silent() {
    let mut world = World::new();
    world.adapter = world
        .adapter
        .clone()
        .with_silence_timeout(Duration::from_secs(3600));
    start_session_script(&world, ECHO_SCRIPT);
    // This simulates a daemon whose clock is a day ahead of the shim's clock.
    let launch = std::fs::File::open(world.run_dir().join("launch.json")).unwrap();
    launch
        .set_modified(std::time::SystemTime::now() - Duration::from_secs(24 * 3600))
        .unwrap();
    let notes = RecordingSink::default();
    std::thread::scope(|scope| {
        let attendant = scope.spawn(|| run_session_loop(&world.adapter, &notes));
        eventually("the loop reads its input", || {
            notes.input_reads.load(Ordering::SeqCst) >= 3
        });
        notes.input.lock().unwrap().should_close_input = true;
        attendant.join().unwrap();
    });
    assert!(
        notes.silences.lock().unwrap().is_empty(),
        "the program was not silent for an hour"
    );
}

#[test]
fn p3_a_killed_shim_ends_the_session_as_lost() {
    let world = World::new();
    start_session_script(&world, &format!("touch up; {ECHO_SCRIPT}"));
    world.wait_for("up");
    let notes = RecordingSink::default();
    notes.input.lock().unwrap().prompts.push("hello".to_owned());
    let verdict = std::thread::scope(|scope| {
        let attendant = scope.spawn(|| run_session_loop(&world.adapter, &notes));
        eventually("the program answers", || notes.messages().len() == 1);
        send_signal(world.shim_identity().pid, "KILL");
        attendant.join().unwrap().unwrap()
    });
    assert_eq!(
        (verdict.exit, verdict.class),
        (Exit::Lost, Some(FailureClass::Crashed))
    );
    world.assert_nothing_runs();
}

/// A connection to a shim, like the daemon's.
struct TestShimConnection(BufReader<UnixStream>);

impl TestShimConnection {
    fn open(world: &World) -> TestShimConnection {
        let stream = UnixStream::connect(world.run_dir().join("shim.sock")).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        TestShimConnection(BufReader::new(stream))
    }
    fn send(&mut self, command: Value) {
        self.0
            .get_mut()
            .write_all(format!("{command}\n").as_bytes())
            .unwrap();
    }
    fn read_reply(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
    fn request(&mut self, command: Value) -> Value {
        self.send(command);
        self.read_reply()
    }
}

#[test]
fn p1_an_input_that_is_sent_twice_under_one_number_reaches_the_program_once() {
    let world = World::new();
    // The program continues after the end of its input, so that its shim still answers.
    start_session_script(
        &world,
        &ECHO_SCRIPT.replace("exit", "while [ ! -e go ]; do sleep 0.01; done; exit"),
    );
    let (mut first, mut second) = (
        TestShimConnection::open(&world),
        TestShimConnection::open(&world),
    );
    let ok = json!({"it": "ok"});
    assert_eq!(
        first.request(json!({"do": "say", "k": 1, "line": "one"})),
        ok
    );
    assert_eq!(
        second.request(json!({"do": "say", "k": 1, "line": "one"})),
        ok
    );
    assert_eq!(
        second.request(json!({"do": "say", "k": 2, "line": "two"})),
        ok
    );
    assert_eq!(
        first.request(json!({"do": "say", "k": 4, "line": "four"}))["it"],
        "refused"
    );
    assert_eq!(first.request(json!({"do": "dance"}))["it"], "refused");
    // A command of a daemon that dies in the middle of it is not executed.
    second
        .0
        .get_mut()
        .write_all(b"{\"do\":\"say\",\"k\":3,\"line\":\"thr")
        .unwrap();
    drop(second);
    assert_eq!(first.request(json!({"do": "close", "k": 3})), ok);
    assert_eq!(first.request(json!({"do": "close", "k": 3})), ok);
    assert_eq!(
        first.request(json!({"do": "say", "k": 4, "line": "late"}))["it"],
        "closed"
    );
    std::fs::write(world.workspace.join("go"), "").unwrap();
    assert_eq!(world.wait(), Exit::Code(4));
    assert_eq!(
        world.lines(JournalStream::Out),
        ["got one", "got two", "over"]
    );
    assert_eq!(world.lines(JournalStream::In), ["one", "two"]);
}

#[test]
fn shim_reports_new_records_only_on_request() {
    let world = World::new();
    start_session_script(&world, ECHO_SCRIPT);
    let mut wire = TestShimConnection::open(&world);
    wire.send(json!({"do": "attach", "seen": 0}));
    assert_eq!(
        wire.request(json!({"do": "say", "k": 1, "line": "one"})),
        json!({"it": "ok"})
    );
    let grew = wire.read_reply();
    assert!(
        grew["it"] == "grew" && grew["n"].as_u64().unwrap() >= 1,
        "{grew}"
    );
    eventually("the program has answered", || world.records().len() == 2);
    // A request about existing records is answered at once, and no reply came without a request.
    assert_eq!(
        wire.request(json!({"do": "attach", "seen": 1})),
        json!({"it": "grew", "n": 2})
    );
}

#[test]
fn program_that_never_reads_its_input_can_be_read_and_stopped() {
    let mut world = World::new();
    world.adapter = world.adapter.clone().with_limits(ShimLimits {
        input_bytes: 1 << 20,
        ..ShimLimits::default()
    });
    start_session_script(&world, "echo here; touch up; while :; do sleep 1000; done");
    world.wait_for("up");
    let mut wire = TestShimConnection::open(&world);
    let line = "x".repeat(100_000);
    let mut busy = 0;
    let mut k = 0;
    while busy == 0 {
        match wire.request(json!({"do": "say", "k": k + 1, "line": line}))["it"]
            .as_str()
            .unwrap()
        {
            "ok" => k += 1,
            "busy" => busy += 1,
            other => panic!("{other}"),
        }
        assert!(k < 30, "the queue has no limit");
    }
    assert!(k >= 8, "only {k} lines were accepted");
    assert_eq!(world.lines(JournalStream::Out), ["here"]);
    let too_long = json!({"do": "say", "k": k + 1, "line": "y".repeat(2 << 20)});
    assert_eq!(wire.request(too_long)["it"], "refused");
    let before = Instant::now();
    assert_eq!(
        wire.request(json!({"do": "stop", "grace_ms": 200}))["it"],
        "ok"
    );
    assert!(matches!(world.wait(), Exit::Signal(_)));
    assert!(before.elapsed() < Duration::from_secs(10));
    world.assert_nothing_runs();
}

#[test]
fn program_that_closes_its_input_gets_a_record_and_no_more_lines() {
    let world = World::new();
    start_session_script(&world, "exec <&-; touch up; sleep 1000");
    world.wait_for("up");
    eventually("the end of the input is recorded", || {
        world
            .records()
            .last()
            .is_some_and(|record| record.stream == JournalStream::InEnd)
    });
    assert_eq!(
        TestShimConnection::open(&world).request(json!({"do": "say", "k": 1, "line": "x"}))["it"],
        "closed"
    );
}

/// S4: the program gets the token, and the journal has the placeholder.
#[test]
fn s4_the_shim_inserts_the_token_after_writing_the_journal() {
    let world = World::new();
    let mut launch = world.launch(&[]);
    let script = "read -r line; printf '%s' \"$line\" | tr a-z A-Z > heard; echo done";
    launch.runtime = Runtime::Acp {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
    };
    launch.mcp = Some(McpServer {
        url: "http://127.0.0.1:1/mcp".into(),
        token: "a-secret-of-the-attempt".into(),
    });
    world.adapter.start(&launch).unwrap();
    let line =
        json!({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": "${REGATTA_TOKEN}"})
            .to_string();
    assert_eq!(
        TestShimConnection::open(&world).request(json!({"do": "say", "k": 1, "line": line}))["it"],
        "ok"
    );
    assert_eq!(world.wait(), Exit::Code(0));
    assert!(
        world.file("heard").contains("\"A-SECRET-OF-THE-ATTEMPT\""),
        "{}",
        world.file("heard")
    );
    assert_eq!(world.lines(JournalStream::In), [line]);
    let found = std::process::Command::new("grep")
        .arg("-r")
        .arg("a-secret-of")
        .arg(world.data())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

/// S4: the program gets the whole input, and the journal has it without the secret.
#[test]
fn s4_a_secret_in_a_programs_input_is_redacted_in_its_journal() {
    let world = World::new();
    start_session_script(
        &world,
        "read -r line; printf '%s' \"$line\" | tr a-z A-Z > heard; echo done",
    );
    assert_eq!(
        TestShimConnection::open(&world)
            .request(json!({"do": "say", "k": 1, "line": "password=hunter2secret"}))["it"],
        "ok"
    );
    assert_eq!(world.wait(), Exit::Code(0));
    assert_eq!(world.file("heard"), "PASSWORD=HUNTER2SECRET");
    assert_eq!(world.lines(JournalStream::In), ["password=[redacted]"]);
    let found = std::process::Command::new("grep")
        .arg("-r")
        .arg("hunter2secret")
        .arg(world.data())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn transcript_is_read_in_parts_while_it_grows() {
    let world = World::new();
    start_session_script(&world, ECHO_SCRIPT);
    let notes = RecordingSink::default();
    std::thread::scope(|scope| {
        let attendant = scope.spawn(|| run_session_loop(&world.adapter, &notes));
        let mut from = 1;
        for nth in 0..5 {
            notes.input.lock().unwrap().prompts.push(format!("{nth}"));
            eventually("the program has answered", || {
                notes.messages().len() == nth + 1
            });
            let lines = world.adapter.transcript(A1, from, 100).unwrap();
            let places: Vec<u64> = lines
                .iter()
                .map(|transcript_line| transcript_line.record.position)
                .collect();
            assert_eq!(places, [from, from + 1]);
            from += 2;
        }
        notes.input.lock().unwrap().should_close_input = true;
        attendant.join().unwrap();
    });
    let whole = world.adapter.transcript(A1, 1, usize::MAX).unwrap();
    assert_eq!(
        whole
            .iter()
            .map(|transcript_line| transcript_line.record.clone())
            .collect::<Vec<_>>(),
        world.records()
    );
    assert_eq!(world.adapter.transcript(A1, 3, 2).unwrap(), whole[2..4]);
    assert_eq!(
        world
            .adapter
            .transcript(regatta_core::ids::AttemptId(9), 1, 2)
            .unwrap(),
        []
    );
}

/// A prompt can have many lines. A program that takes one prompt gets it whole, followed by the end
/// of its input.
#[test]
fn prompt_of_many_lines_reaches_a_program_that_takes_one_prompt() {
    for runtime in [
        Runtime::Command {
            argv: vec!["sh".to_owned(), "-c".to_owned(), "cat > heard".to_owned()],
        },
        Runtime::Codex {
            argv: vec!["sh".to_owned(), "-c".to_owned(), "cat > heard".to_owned()],
            app_server: false,
        },
    ] {
        let world = World::new();
        let mut launch = world.launch(&[]);
        launch.runtime = runtime;
        launch.prompt = "Do this.\n\nAnd then that.\n".to_owned();
        world.adapter.start(&launch).unwrap();
        let notes = RecordingSink::default();
        notes
            .input
            .lock()
            .unwrap()
            .prompts
            .push(launch.prompt.clone());
        run_session_loop(&world.adapter, &notes);
        assert_eq!(world.file("heard"), launch.prompt);
    }
}
