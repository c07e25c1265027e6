//! `regatta watch`, `regatta inbox -i` and the pager in a real terminal: the screen at 80×24,
//! answers by key, a lost daemon, and the terminal's state afterwards. The tests need tmux. Without
//! tmux they print a note and pass.
//!
//! Checked with planted faults: answers without effect, a terminal that is not restored, a lost
//! daemon that is not reported, a pipe without lines, an Enter key that decides, and no pager.

use std::process::{Command, Stdio};

use crate::world::{TEST_TIMEOUT, World, wait_until};

/// A terminal of a fixed size with a shell.
pub(crate) struct TmuxTerminal<'a> {
    world: &'a World,
    /// The socket of the test's own tmux server, so that no other session is affected.
    socket: String,
}

impl TmuxTerminal<'_> {
    /// Starts the terminal. Returns nothing if tmux is not installed.
    pub(crate) fn open(world: &World, width: u16, height: u16) -> Option<TmuxTerminal<'_>> {
        let found = Command::new("tmux")
            .arg("-V")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !found.is_ok_and(|status| status.success()) {
            #[allow(clippy::print_stderr, reason = "the reason why a test did nothing")]
            {
                eprintln!("not tried: there is no tmux here (apt install tmux)");
            }
            return None;
        }
        let socket = world.root.join("tmp/tmux").to_str().unwrap().to_owned();
        let tmux = TmuxTerminal { world, socket };
        let (width, height) = (width.to_string(), height.to_string());
        tmux.run_ok(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-s",
            "test",
            "-x",
            &width,
            "-y",
            &height,
            "PS1='$ ' exec sh",
        ]);
        Some(tmux)
    }

    fn run_ok(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        self.world.clean_environment(&mut command);
        command
            .env("TERM", "xterm-256color")
            .current_dir(&self.world.repo);
        let status = command
            .arg("-u")
            .arg("-S")
            .arg(&self.socket)
            .args(args)
            .output()
            .unwrap();
        assert!(
            status.status.success(),
            "tmux {args:?}: {}",
            String::from_utf8_lossy(&status.stderr)
        );
        String::from_utf8_lossy(&status.stdout).into_owned()
    }

    fn type_text(&self, text: &str) {
        self.run_ok(&["send-keys", "-t", "test", "-l", text]);
    }

    pub(crate) fn press_key(&self, key: &str) {
        self.run_ok(&["send-keys", "-t", "test", key]);
    }

    /// Types a command line into the shell.
    fn enter_line(&self, line: &str) {
        self.type_text(line);
        self.press_key("Enter");
    }

    fn screen_text(&self) -> String {
        self.run_ok(&["capture-pane", "-p", "-t", "test"])
    }

    #[track_caller]
    pub(crate) fn wait_for_text(&self, text: &str) -> String {
        let mut last = String::new();
        let came = wait_until(TEST_TIMEOUT, || {
            last = self.screen_text();
            last.contains(text)
        });
        assert!(came, "{text:?} never came:\n{last}");
        last
    }

    pub(crate) fn start_watch(&self) {
        self.enter_line(&format!("{} watch", env!("CARGO_BIN_EXE_regatta")));
    }

    /// Checks that the terminal is restored: the former screen, echo, line mode and the cursor.
    #[track_caller]
    fn assert_restored(&self) {
        self.wait_for_text("before the screen");
        // The typed line does not contain its own output.
        self.enter_line(
            "stty -a | grep -o -e '-*icanon' -e '-*echo ' | tr '\\n' ' '; echo end-of-$((1 + 1))",
        );
        let shown = self.wait_for_text("end-of-2");
        let modes = shown
            .lines()
            .find(|shown| shown.contains("end-of-2"))
            .unwrap_or_default();
        assert!(
            modes.contains("icanon") && modes.contains("echo"),
            "{shown}"
        );
        assert!(
            !modes.contains("-icanon") && !modes.contains("-echo"),
            "echo and line mode must be on: {shown}"
        );
        let flags = self.run_ok(&[
            "display-message",
            "-p",
            "-t",
            "test",
            "#{alternate_on} #{cursor_flag}",
        ]);
        assert_eq!(
            flags.trim(),
            "0 1",
            "the alternate screen must be off and the cursor on"
        );
    }
}

impl Drop for TmuxTerminal<'_> {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        self.world.clean_environment(&mut command);
        let _gone = command
            .arg("-S")
            .arg(&self.socket)
            .arg("kill-server")
            .stderr(Stdio::null())
            .status();
    }
}

const PLAN_WITH_REQUEST: &str = r#"
title = "Tidy the flags"

[[task]]
id = "flag"
subject = "Old flag"
files = ["b.txt"]
script = [
  { say = "\u001b[2J\u001b]0;owned\u0007looking at the flag" },
  { ask = { question = "Keep the old flag?", choices = ["keep", "remove"] } },
  { write = { path = "b.txt", text = "b\n" } },
]

[[task]]
id = "after"
subject = "What follows"
files = ["c.txt"]
blocked_by = ["flag"]
script = [{ write = { path = "c.txt", text = "c\n" } }]
"#;

/// At 80×24 the question is shown and answered by its number, the tasks land on the screen, escape
/// sequences in the log are inert, and the terminal is restored.
#[test]
fn a_question_can_be_answered_in_the_terminal_view() {
    let world = World::with_project();
    let plan = world.write_plan(PLAN_WITH_REQUEST);
    world.run_ok(&["up"]);
    let Some(tmux) = TmuxTerminal::open(&world, 80, 24) else {
        return;
    };
    tmux.enter_line("echo before the screen");
    tmux.wait_for_text("before the screen\n");
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes"]);
    tmux.start_watch();
    // An agent's lane may show the question a moment before the inbox does.
    tmux.wait_for_text("1 keep  2 remove");
    for text in [
        "● live",
        "Needs you (1)",
        "Keep the old flag?",
        "scripted",
        "T2",
        "needs T1",
        "Landing queue",
    ] {
        // The lists move when the question arrives, so a capture can have parts of both screens.
        tmux.wait_for_text(text);
    }
    // Enter decides nothing. The number does.
    tmux.press_key("Enter");
    tmux.wait_for_text("Log");
    let log = tmux.wait_for_text("looking at the flag");
    assert!(
        log.contains("[2J"),
        "escape sequences must be shown as characters:\n{log}"
    );
    tmux.press_key("Escape");
    tmux.wait_for_text("Needs you (1)");
    assert_eq!(
        world.run_json(&["inbox"]).as_array().unwrap().len(),
        1,
        "the question must still be open"
    );
    tmux.press_key("2");
    tmux.wait_for_text("Needs you (0)");
    tmux.wait_for_text("T1   ✓ landed");
    tmux.wait_for_text("T2   ✓ landed");
    assert_eq!(world.run_json(&["show", "T1"])["word"], "landed");
    tmux.press_key("q");
    tmux.assert_restored();
}

/// `inbox -i` shows one item with its keys. A letter or Enter decides nothing, a digit does, and a
/// skipped item stays.
#[test]
fn inbox_items_are_answered_by_digit_keys_only() {
    let world = World::with_project();
    let plan = world.write_plan(PLAN_WITH_REQUEST);
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes"]);
    assert!(wait_until(TEST_TIMEOUT, || world
        .run_json(&["inbox"])
        .as_array()
        .unwrap()
        .len()
        == 1));
    let Some(tmux) = TmuxTerminal::open(&world, 80, 24) else {
        return;
    };
    let walk = format!(
        "{} inbox -i; echo before the screen",
        env!("CARGO_BIN_EXE_regatta")
    );
    tmux.enter_line(&walk);
    let card = tmux.wait_for_text("s skip   q quit");
    for text in [
        "Q1 question  T1 scripted",
        "Keep the old flag?",
        "1 keep   2 remove   3 reply with a text   4 decline",
    ] {
        assert!(card.contains(text), "{text:?}:\n{card}");
    }
    tmux.press_key("Enter");
    tmux.type_text("x");
    tmux.wait_for_text("press a digit to answer");
    tmux.type_text("s");
    tmux.wait_for_text("1 skipped: regatta inbox");
    assert_eq!(
        world.run_json(&["inbox"]).as_array().unwrap().len(),
        1,
        "the question must still be open"
    );
    tmux.enter_line("clear");
    tmux.enter_line(&walk);
    tmux.wait_for_text("s skip   q quit");
    tmux.type_text("2");
    tmux.wait_for_text("answered Q1 for T1");
    tmux.wait_for_text("nothing needs you");
    assert!(wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])
        ["word"]
        == "landed"));
    tmux.assert_restored();
}

/// On a terminal a diff is shown by the reader's pager. `--no-pager` and JSON use none, and a pager
/// that cannot start is ignored.
#[test]
fn a_diff_on_a_terminal_uses_the_pager() {
    let world = World::with_project();
    let text = (1..=100)
        .map(|n| format!("line {n}\\n"))
        .collect::<String>();
    let plan = world.write_plan(&format!(
        "[[task]]\nsubject = \"Long\"\nfiles = [\"b.txt\"]\nscript = [{{ write = {{ path \
        = \"b.txt\", text = \"{text}\" }} }}]\n"
    ));
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes", "--wait"]);
    let Some(tmux) = TmuxTerminal::open(&world, 80, 24) else {
        return;
    };
    let regatta = env!("CARGO_BIN_EXE_regatta");
    let paged = |name: &str| std::fs::read_to_string(world.repo.join(name)).unwrap_or_default();
    // The most specific variable applies, and the pager gets colours.
    tmux.enter_line(&format!(
        "PAGER='cat > p1' REGATTA_PAGER='cat > p2' {regatta} diff T1; echo end-of-$((0 + 1))"
    ));
    let screen = tmux.wait_for_text("end-of-1");
    assert!(
        screen.contains("regatta undo T1") && !screen.contains("+line 100"),
        "{screen}"
    );
    assert!(
        paged("p2").contains("\u{1b}[32m+line 100\u{1b}[0m") && paged("p1").is_empty(),
        "{}",
        paged("p2")
    );
    // No pager with `--no-pager` or `--json`.
    tmux.enter_line(&format!(
        "clear; PAGER='cat > p3' {regatta} diff T1 --no-pager | tail -1; echo end-of-$((1 + 1))"
    ));
    tmux.wait_for_text("end-of-2");
    tmux.enter_line(&format!(
        "clear; PAGER='cat > p3' {regatta} diff T1 --no-pager; echo end-of-$((1 + 2))"
    ));
    assert!(tmux.wait_for_text("end-of-3").contains("+line 100"));
    tmux.enter_line(&format!(
        "clear; PAGER='cat > p3' {regatta} diff T1 --json > j; echo end-of-$((2 + 2))"
    ));
    tmux.wait_for_text("end-of-4");
    assert!(!world.repo.join("p3").exists(), "{}", paged("p3"));
    tmux.enter_line(&format!(
        "clear; PAGER=no-such-pager {regatta} diff T1; echo end-of-$((2 + 3))"
    ));
    assert!(tmux.wait_for_text("end-of-5").contains("+line 100"));
    // Ctrl-C goes to the pager, which handles it, and the command then ends normally.
    tmux.enter_line(&format!(
        "clear; PAGER='trap : INT; cat > p4; echo page-$((0 + 1)); sleep 1000' {regatta} diff T1; \
        echo end-of-$((3 + 3))"
    ));
    tmux.wait_for_text("page-1");
    tmux.press_key("C-c");
    assert!(tmux.wait_for_text("end-of-6").contains("regatta undo T1"));
}

/// A lost daemon is shown with the age of the data. The view does not start a daemon, and is live
/// again when one is back. SIGTERM restores the terminal.
#[test]
fn watch_shows_a_lost_daemon_and_a_signal_restores_the_terminal() {
    let world = World::with_project();
    world.run_ok(&["up"]);
    world.run_ok(&["add", "Something to see", "--files", "b.txt"]);
    let Some(tmux) = TmuxTerminal::open(&world, 120, 40) else {
        return;
    };
    tmux.enter_line("echo before the screen");
    tmux.wait_for_text("before the screen\n");
    tmux.start_watch();
    tmux.wait_for_text("Something to see");
    tmux.wait_for_text("● live");
    world.run_ok(&["down"]);
    let screen = tmux.wait_for_text("reconnecting, data from");
    assert!(
        screen.contains("Something to see") && !screen.contains("● live"),
        "{screen}"
    );
    tmux.press_key("g");
    tmux.press_key("t");
    tmux.wait_for_text("1 task ");
    assert!(
        world.daemon_info().is_none(),
        "watch must not start a daemon"
    );
    world.run_ok(&["up"]);
    tmux.wait_for_text("● live");
    world.run_ok(&["add", "Another one", "--files", "c.txt"]);
    tmux.wait_for_text("Another one");
    let pid = tmux.run_ok(&["display-message", "-p", "-t", "test", "#{pane_pid}"]);
    let watch =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", pid.trim())).unwrap();
    let killed = Command::new("kill")
        .args(["-TERM", watch.trim()])
        .status()
        .unwrap();
    assert!(killed.success());
    tmux.assert_restored();
    tmux.enter_line("echo it was $?");
}

/// In a pipe `watch` prints one line per event, without escape sequences.
#[test]
fn watch_in_a_pipe_prints_one_line_per_event() {
    let world = World::with_project();
    world.run_ok(&["up"]);
    let mut child = world
        .command(&["watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        let mut line = String::new();
        while std::io::BufRead::read_line(&mut out, &mut line).is_ok_and(|n| n > 0) {
            if told.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    let plan = world.write_plan(
        "[[task]]\nsubject = \"Quick\"\nfiles = [\"b.txt\"]\nscript = [{ \
        write = { path = \"b.txt\", text = \"b\\n\" } }]\n",
    );
    // `watch` shows only new events, so the test runs plans until it gets one.
    let mut text = String::new();
    assert!(
        wait_until(TEST_TIMEOUT, || {
            if text.is_empty() {
                world.run(&["run", &plan, "--agents", "scripted", "--yes", "--wait"]);
            }
            text.extend(heard.try_iter());
            text.contains("landed")
        }),
        "{text}"
    );
    let line = text.lines().find(|text| text.contains("landed")).unwrap();
    assert!(line.contains(" T") && !text.contains('\u{1b}'), "{text:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// In a terminal `init` asks before it writes completions and the manual. A no writes nothing, and
/// the next `init` asks again.
#[test]
fn init_asks_before_it_writes_completions() {
    let world = World::with_repo();
    let echo = ["--runtime", "command", "--command", "echo"];
    world.run_ok(&[&["agent", "add", "echo-1"], &echo[..]].concat());
    let Some(terminal) = TmuxTerminal::open(&world, 250, 30) else {
        return;
    };
    let file = world
        .root
        .join("home/.local/share/bash-completion/completions/regatta");
    let init = format!(
        "SHELL=/bin/bash XDG_DATA_DIRS=/nowhere {} init; echo exit-$((40 + $?))",
        env!("CARGO_BIN_EXE_regatta")
    );
    terminal.enter_line(&init);
    terminal.wait_for_text("install completions for bash and the manual");
    terminal.wait_for_text("[Y/n]");
    terminal.enter_line("n");
    let refused = terminal.wait_for_text("exit-40");
    assert!(!file.exists() && !refused.contains("offer   "), "{refused}");
    terminal.enter_line("clear");
    terminal.enter_line(&init);
    terminal.wait_for_text("[Y/n]");
    terminal.press_key("Enter");
    terminal.wait_for_text("wrote   completions for bash to ");
    assert!(wait_until(TEST_TIMEOUT, || file.is_file()));
}
