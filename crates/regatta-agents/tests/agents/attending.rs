//! Tests of session loops: reading events, sending input, and continuing after a restart.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use regatta_agents::driver::{Driver, Judgement, Record, Say};
use regatta_agents::{AgentsAdapter, Limits};
use regatta_core::agent::Runtime;
use regatta_core::session::{Class, Said};
use regatta_engine::ports::agents::{Agents, Desk, Exit, McpServer, Stream, Verdict, Wishes};
use serde_json::{Value, json};

use crate::support::{A1, LONG, World, adapter, eventually, signal};

/// A session sink that records the events and requests a few inputs.
#[derive(Default)]
struct Notes {
    heard: Mutex<Vec<(u64, String)>>,
    silences: Mutex<Vec<bool>>,
    wishes: Mutex<Wishes>,
    leave: AtomicBool,
    looks: AtomicU64,
}

impl Notes {
    fn heard(&self) -> Vec<(u64, String)> {
        self.heard.lock().unwrap().clone()
    }
}

impl Desk for Notes {
    fn heard(&self, n: u64, said: Said) {
        if let Said::Message { text } | Said::Notice { text } = said {
            self.heard.lock().unwrap().push((n, text.trim_end().to_owned()));
        }
    }
    fn silent(&self, since: Option<Duration>) {
        self.silences.lock().unwrap().push(since.is_some());
    }
    fn wishes(&self) -> Wishes {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.wishes.lock().unwrap().clone()
    }
    fn goes_on(&self) -> bool {
        !self.leave.load(Ordering::SeqCst)
    }
}

/// A driver that sends each prompt as a line after the previous one was answered, and closes the
/// input at the end.
#[derive(Default)]
struct LineDriver {
    said: usize,
    answered: usize,
    closed: bool,
}

impl Driver for LineDriver {
    fn saw(&mut self, record: &Record) -> Vec<Said> {
        match record.stream {
            Stream::In => self.said += 1,
            Stream::InEnd => self.closed = true,
            Stream::Out => {
                self.answered += 1;
                return vec![Said::Message { text: record.line.clone() }];
            }
            _ => {}
        }
        vec![]
    }
    fn next(&self, wishes: &Wishes) -> Option<Say> {
        if self.answered < self.said || self.closed {
            return None;
        }
        let next = wishes.prompts.get(self.said).cloned().map(Say::Line);
        next.or_else(|| wishes.end.then_some(Say::Close))
    }
    fn judge(&self, exit: &Exit) -> Judgement {
        let class = (*exit != Exit::Code(0)).then_some(Class::Crashed);
        Judgement { class, detail: format!("{} answers", self.answered), usage: vec![] }
    }
}

/// Starts a shell script that gets its input line by line.
fn start_talking(world: &World, script: &str) {
    let mut launch = world.launch(&[]);
    launch.runtime = Runtime::Acp { argv: ["sh", "-c", script].map(str::to_owned).to_vec() };
    world.adapter.start(&launch).unwrap();
}

const ECHO: &str = "while read -r line; do echo \"got $line\"; done; echo over; exit 4";

#[test]
fn program_output_and_exit_are_reported() {
    let world = World::new();
    world.start("echo one; echo two >&2; exit 3");
    let notes = Notes::default();
    let verdict = world.adapter.attend(A1, &notes).unwrap().unwrap();
    assert_eq!((verdict.exit, verdict.class), (Exit::Code(3), Some(Class::Crashed)));
    let mut words: Vec<String> = notes.heard().into_iter().map(|it| it.1).collect();
    words.sort();
    assert_eq!(words, ["one", "two"]);
    // After the program's end, a second loop reports the same events from the beginning.
    let again = Notes::default();
    world.adapter.attend(A1, &again).unwrap().unwrap();
    assert_eq!(again.heard(), notes.heard());
}

#[test]
fn attending_an_attempt_that_did_not_start_is_an_error_or_a_bad_config_verdict() {
    let world = World::new();
    let notes = Notes::default();
    assert!(world.adapter.attend(A1, &notes).unwrap_err().what.contains("A1"));
    world.adapter.start(&world.launch(&["no-such-agent"])).unwrap();
    let verdict = world.adapter.attend(A1, &notes).unwrap().unwrap();
    assert!(matches!(verdict.exit, Exit::NotStarted(_)));
    assert_eq!(verdict.class, Some(Class::BadConfig));
}

fn attend(adapter: &AgentsAdapter, notes: &Notes) -> Option<Verdict> {
    adapter.attend_with(A1, notes, Box::<LineDriver>::default()).unwrap()
}

#[test]
fn prompts_and_answers_alternate_until_the_input_is_closed() {
    let world = World::new();
    start_talking(&world, ECHO);
    let notes = Notes::default();
    *notes.wishes.lock().unwrap() =
        Wishes { prompts: (0..50).map(|it| format!("\"line\" {it}")).collect(), end: true, ..Wishes::default() };
    let verdict = attend(&world.adapter, &notes).unwrap();
    assert_eq!((verdict.exit, verdict.detail.as_str()), (Exit::Code(4), "51 answers"));
    let expected: Vec<String> = (0..50).map(|it| format!("got \"line\" {it}")).chain(["over".to_owned()]).collect();
    assert_eq!(world.lines(Stream::Out), expected);
    let streams: Vec<Stream> = world.records().iter().map(|it| it.stream).take(4).collect();
    assert_eq!(streams, [Stream::In, Stream::Out, Stream::In, Stream::Out], "each answer follows its question");
}

/// P1, P2: session loops are replaced in mid-turn, each with a new adapter as after a restart.
/// Every line is sent once, and every loop reports all events from the beginning.
#[test]
fn p1_p2_replacing_the_session_loop_in_mid_turn_loses_and_repeats_nothing() {
    let world = World::new();
    start_talking(&world, "while read -r line; do for i in 1 2 3 4 5; do echo \"$line.$i\"; done; done");
    /// A driver that expects five lines of output for each input.
    struct Five(LineDriver);
    impl Driver for Five {
        fn saw(&mut self, record: &Record) -> Vec<Said> {
            self.0.saw(record)
        }
        fn next(&self, wishes: &Wishes) -> Option<Say> {
            (self.0.answered == 5 * self.0.said).then_some(())?;
            wishes.prompts.get(self.0.said).cloned().map(Say::Line).or_else(|| wishes.end.then_some(Say::Close))
        }
        fn judge(&self, exit: &Exit) -> Judgement {
            self.0.judge(exit)
        }
    }
    let prompts: Vec<String> = (0..40).map(|it| format!("p{it}")).collect();
    let expected: Vec<String> = prompts.iter().flat_map(|it| (1..=5).map(move |i| format!("{it}.{i}"))).collect();
    let mut verdict = None;
    for life in 1_usize.. {
        let notes = Notes::default();
        // Each loop gets five more prompts than the one before and is ended in the middle of a
        // turn. Without the limit, a loop that runs long before it sees the request to leave would
        // finish the session.
        let given = &prompts[..prompts.len().min(life * 5)];
        let is_last = given.len() == prompts.len();
        *notes.wishes.lock().unwrap() = Wishes { prompts: given.to_vec(), end: is_last, ..Wishes::default() };
        let enough = life * 23;
        verdict = std::thread::scope(|scope| {
            let adapter = adapter(&world.data());
            let notes = &notes;
            let attendant =
                scope.spawn(move || adapter.attend_with(A1, notes, Box::new(Five(LineDriver::default()))).unwrap());
            eventually("the loop has reported enough events", || {
                notes.heard().len() >= enough || attendant.is_finished()
            });
            notes.leave.store(true, Ordering::SeqCst);
            attendant.join().unwrap()
        });
        let heard: Vec<String> = notes.heard().into_iter().map(|it| it.1).collect();
        assert_eq!(heard, expected[..heard.len()], "in life {life}");
        if verdict.is_some() {
            assert!(life >= 8, "the session ended with loop {life}, before it got all prompts");
            break;
        }
    }
    assert_eq!(verdict.unwrap().exit, Exit::Code(0));
    assert_eq!(world.lines(Stream::In), prompts, "each prompt was sent once");
    assert_eq!(world.lines(Stream::Out), expected);
}

#[test]
fn session_loop_reads_new_prompts_after_a_nudge_and_also_without_one() {
    let world = World::new();
    start_talking(&world, ECHO);
    let notes = Notes::default();
    std::thread::scope(|scope| {
        let attendant = scope.spawn(|| attend(&world.adapter, &notes));
        eventually("the loop reads its input", || notes.looks.load(Ordering::SeqCst) > 0);
        for nth in 0..3 {
            notes.wishes.lock().unwrap().prompts.push(format!("{nth}"));
            world.adapter.nudge(A1);
            eventually("the prompt was answered", || notes.heard().len() == nth + 1);
        }
        notes.wishes.lock().unwrap().end = true;
        assert_eq!(attendant.join().unwrap().unwrap().exit, Exit::Code(4));
    });
}

#[test]
fn silence_is_reported_repeatedly_and_its_end_once() {
    let mut world = World::new();
    world.adapter = world.adapter.clone().with_silence(Duration::from_millis(100));
    start_talking(&world, ECHO);
    let notes = Notes::default();
    std::thread::scope(|scope| {
        let attendant = scope.spawn(|| attend(&world.adapter, &notes));
        eventually("the program is silent", || notes.silences.lock().unwrap().starts_with(&[true, true]));
        notes.wishes.lock().unwrap().prompts.push("speak".to_owned());
        eventually("the program prints", || notes.silences.lock().unwrap().contains(&false));
        notes.wishes.lock().unwrap().end = true;
        attendant.join().unwrap();
        assert!(
            notes.silences.lock().unwrap().windows(2).all(|it| it != [false, false]),
            "the end of the silence is reported once"
        );
    });
}

/// L12: neither the date of a file nor the date of a record makes a program silent for a daemon
/// that restarts.
#[test]
fn l12_a_changed_date_makes_no_program_silent() {
    let mut world = World::new();
    world.adapter = world.adapter.clone().with_silence(Duration::from_secs(3600));
    start_talking(&world, ECHO);
    // This simulates a daemon whose clock is a day ahead of the shim's clock.
    let launch = std::fs::File::open(world.run_dir().join("launch.json")).unwrap();
    launch.set_modified(std::time::SystemTime::now() - Duration::from_secs(24 * 3600)).unwrap();
    let notes = Notes::default();
    std::thread::scope(|scope| {
        let attendant = scope.spawn(|| attend(&world.adapter, &notes));
        eventually("the loop reads its input", || notes.looks.load(Ordering::SeqCst) >= 3);
        notes.wishes.lock().unwrap().end = true;
        attendant.join().unwrap();
    });
    assert!(notes.silences.lock().unwrap().is_empty(), "the program was not silent for an hour");
}

#[test]
fn p3_a_killed_shim_ends_the_session_as_lost() {
    let world = World::new();
    start_talking(&world, &format!("touch up; {ECHO}"));
    world.wait_for("up");
    let notes = Notes::default();
    notes.wishes.lock().unwrap().prompts.push("hello".to_owned());
    let verdict = std::thread::scope(|scope| {
        let attendant = scope.spawn(|| attend(&world.adapter, &notes));
        eventually("the program answers", || notes.heard().len() == 1);
        signal(world.shim().pid, "KILL");
        attendant.join().unwrap().unwrap()
    });
    assert_eq!((verdict.exit, verdict.class), (Exit::Lost, Some(Class::Crashed)));
    world.assert_nothing_runs();
}

/// A connection to a shim, like the daemon's.
struct Wire(BufReader<UnixStream>);

impl Wire {
    fn open(world: &World) -> Wire {
        let stream = UnixStream::connect(world.run_dir().join("shim.sock")).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Wire(BufReader::new(stream))
    }
    fn send(&mut self, command: Value) {
        self.0.get_mut().write_all(format!("{command}\n").as_bytes()).unwrap();
    }
    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
    fn ask(&mut self, command: Value) -> Value {
        self.send(command);
        self.hear()
    }
}

#[test]
fn p1_an_input_that_is_sent_twice_under_one_number_reaches_the_program_once() {
    let world = World::new();
    // The program continues after the end of its input, so that its shim still answers.
    start_talking(&world, &ECHO.replace("exit", "while [ ! -e go ]; do sleep 0.01; done; exit"));
    let (mut first, mut second) = (Wire::open(&world), Wire::open(&world));
    let ok = json!({"it": "ok"});
    assert_eq!(first.ask(json!({"do": "say", "k": 1, "line": "one"})), ok);
    assert_eq!(second.ask(json!({"do": "say", "k": 1, "line": "one"})), ok);
    assert_eq!(second.ask(json!({"do": "say", "k": 2, "line": "two"})), ok);
    assert_eq!(first.ask(json!({"do": "say", "k": 4, "line": "four"}))["it"], "refused");
    assert_eq!(first.ask(json!({"do": "dance"}))["it"], "refused");
    // A command of a daemon that dies in the middle of it is not executed.
    second.0.get_mut().write_all(b"{\"do\":\"say\",\"k\":3,\"line\":\"thr").unwrap();
    drop(second);
    assert_eq!(first.ask(json!({"do": "close", "k": 3})), ok);
    assert_eq!(first.ask(json!({"do": "close", "k": 3})), ok);
    assert_eq!(first.ask(json!({"do": "say", "k": 4, "line": "late"}))["it"], "closed");
    std::fs::write(world.workspace.join("go"), "").unwrap();
    assert_eq!(world.wait(), Exit::Code(4));
    assert_eq!(world.lines(Stream::Out), ["got one", "got two", "over"]);
    assert_eq!(world.lines(Stream::In), ["one", "two"]);
}

#[test]
fn shim_reports_new_records_only_on_request() {
    let world = World::new();
    start_talking(&world, ECHO);
    let mut wire = Wire::open(&world);
    wire.send(json!({"do": "attach", "seen": 0}));
    assert_eq!(wire.ask(json!({"do": "say", "k": 1, "line": "one"})), json!({"it": "ok"}));
    let grew = wire.hear();
    assert!(grew["it"] == "grew" && grew["n"].as_u64().unwrap() >= 1, "{grew}");
    eventually("the program has answered", || world.records().len() == 2);
    // A request about existing records is answered at once, and no reply came without a request.
    assert_eq!(wire.ask(json!({"do": "attach", "seen": 1})), json!({"it": "grew", "n": 2}));
}

#[test]
fn program_that_never_reads_its_input_can_be_read_and_stopped() {
    let mut world = World::new();
    world.adapter = world.adapter.clone().with_limits(Limits { input_bytes: 1 << 20, ..Limits::default() });
    start_talking(&world, "echo here; touch up; while :; do sleep 1000; done");
    world.wait_for("up");
    let mut wire = Wire::open(&world);
    let line = "x".repeat(100_000);
    let mut busy = 0;
    let mut k = 0;
    while busy == 0 {
        match wire.ask(json!({"do": "say", "k": k + 1, "line": line}))["it"].as_str().unwrap() {
            "ok" => k += 1,
            "busy" => busy += 1,
            other => panic!("{other}"),
        }
        assert!(k < 30, "the queue has no limit");
    }
    assert!(k >= 8, "only {k} lines were accepted");
    assert_eq!(world.lines(Stream::Out), ["here"]);
    let too_long = json!({"do": "say", "k": k + 1, "line": "y".repeat(2 << 20)});
    assert_eq!(wire.ask(too_long)["it"], "refused");
    let before = Instant::now();
    assert_eq!(wire.ask(json!({"do": "stop", "grace_ms": 200}))["it"], "ok");
    assert!(matches!(world.wait(), Exit::Signal(_)));
    assert!(before.elapsed() < Duration::from_secs(10));
    world.assert_nothing_runs();
}

#[test]
fn program_that_closes_its_input_gets_a_record_and_no_more_lines() {
    let world = World::new();
    start_talking(&world, "exec <&-; touch up; sleep 1000");
    world.wait_for("up");
    eventually("the end of the input is recorded", || {
        world.records().last().is_some_and(|it| it.stream == Stream::InEnd)
    });
    assert_eq!(Wire::open(&world).ask(json!({"do": "say", "k": 1, "line": "x"}))["it"], "closed");
}

/// S4: the program gets the token, and the journal has the placeholder.
#[test]
fn s4_the_shim_inserts_the_token_after_writing_the_journal() {
    let world = World::new();
    let mut launch = world.launch(&[]);
    let script = "read -r line; printf '%s' \"$line\" | tr a-z A-Z > heard; echo done";
    launch.runtime = Runtime::Acp { argv: ["sh", "-c", script].map(str::to_owned).to_vec() };
    launch.mcp = Some(McpServer { url: "http://127.0.0.1:1/mcp".into(), token: "a-secret-of-the-attempt".into() });
    world.adapter.start(&launch).unwrap();
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": "${REGATTA_TOKEN}"}).to_string();
    assert_eq!(Wire::open(&world).ask(json!({"do": "say", "k": 1, "line": line}))["it"], "ok");
    assert_eq!(world.wait(), Exit::Code(0));
    assert!(world.file("heard").contains("\"A-SECRET-OF-THE-ATTEMPT\""), "{}", world.file("heard"));
    assert_eq!(world.lines(Stream::In), [line]);
    let found = std::process::Command::new("grep").arg("-r").arg("a-secret-of").arg(world.data()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

/// S4: the program gets the whole input, and the journal has it without the secret.
#[test]
fn s4_a_secret_in_a_programs_input_is_redacted_in_its_journal() {
    let world = World::new();
    start_talking(&world, "read -r line; printf '%s' \"$line\" | tr a-z A-Z > heard; echo done");
    assert_eq!(Wire::open(&world).ask(json!({"do": "say", "k": 1, "line": "password=hunter2secret"}))["it"], "ok");
    assert_eq!(world.wait(), Exit::Code(0));
    assert_eq!(world.file("heard"), "PASSWORD=HUNTER2SECRET");
    assert_eq!(world.lines(Stream::In), ["password=[redacted]"]);
    let found = std::process::Command::new("grep").arg("-r").arg("hunter2secret").arg(world.data()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn transcript_is_read_in_parts_while_it_grows() {
    let world = World::new();
    start_talking(&world, ECHO);
    let notes = Notes::default();
    std::thread::scope(|scope| {
        let attendant = scope.spawn(|| attend(&world.adapter, &notes));
        let mut from = 1;
        for nth in 0..5 {
            notes.wishes.lock().unwrap().prompts.push(format!("{nth}"));
            eventually("the program has answered", || notes.heard().len() == nth + 1);
            let lines = world.adapter.transcript(A1, from, 100).unwrap();
            let places: Vec<u64> = lines.iter().map(|it| it.record.n).collect();
            assert_eq!(places, [from, from + 1]);
            from += 2;
        }
        notes.wishes.lock().unwrap().end = true;
        attendant.join().unwrap();
    });
    let whole = world.adapter.transcript(A1, 1, usize::MAX).unwrap();
    assert_eq!(whole.iter().map(|it| it.record.clone()).collect::<Vec<_>>(), world.records());
    assert_eq!(world.adapter.transcript(A1, 3, 2).unwrap(), whole[2..4]);
    assert_eq!(world.adapter.transcript(regatta_core::ids::AttemptId(9), 1, 2).unwrap(), []);
}

/// A prompt can have many lines. A program that takes one prompt gets it whole, followed by the end
/// of its input.
#[test]
fn prompt_of_many_lines_reaches_a_program_that_takes_one_prompt() {
    for runtime in [
        Runtime::Command { argv: vec!["sh".to_owned(), "-c".to_owned(), "cat > heard".to_owned()] },
        Runtime::Codex { argv: vec!["sh".to_owned(), "-c".to_owned(), "cat > heard".to_owned()], app_server: false },
    ] {
        let world = World::new();
        let mut launch = world.launch(&[]);
        launch.runtime = runtime;
        launch.prompt = "Do this.\n\nAnd then that.\n".to_owned();
        world.adapter.start(&launch).unwrap();
        let notes = Notes::default();
        notes.wishes.lock().unwrap().prompts.push(launch.prompt.clone());
        attend(&world.adapter, &notes);
        assert_eq!(world.file("heard"), launch.prompt);
    }
}
