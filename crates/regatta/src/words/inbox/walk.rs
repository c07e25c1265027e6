//! `inbox --interactive`: shows one item at a time, with a key for each choice.
//!
//! Only digits decide, so that Enter or a letter pressed by accident changes nothing.

use std::io::{IsTerminal, Write};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::InboxView;
use regatta_core::approval::Reach;
use regatta_core::ids::TaskId;
use regatta_core::session::{Answer, Want};

use crate::args;
use crate::client::{Client, Got};
use crate::out::{self, Failed, Said, ago, failed, plain, usage};

use super::super::App;
use super::super::decide::decide;
use super::{choose, form, items};

/// Time for which `z` snoozes an item.
const LATER_MS: u64 = 3_600_000;

/// The effect of a digit.
enum Pick {
    Say(Answer, Reach),
    /// Ask for a text, then send it.
    Reply,
    /// Ask for the fields of a form, then send them.
    Form(serde_json::Value),
    /// Make the call of the item's choice with this index.
    Way(usize),
}

/// Returns the choices of an item, in the order of their digits.
fn picks(it: &InboxView) -> Vec<(String, Pick)> {
    let allow = |reach| Pick::Say(Answer::Allow, reach);
    match it.ask.as_ref().map(|it| &it.want) {
        Some(Want::Permission { .. }) => vec![
            ("allow once".into(), allow(Reach::Once)),
            ("allow for this task".into(), allow(Reach::Task)),
            ("deny".into(), Pick::Say(Answer::Deny { words: None }, Reach::Once)),
            ("always allow".into(), allow(Reach::Always)),
        ],
        Some(Want::Question { choices, schema, .. }) => {
            let say = |text: &String| (plain(text), Pick::Say(Answer::Text { text: text.clone() }, Reach::Once));
            let mut all: Vec<(String, Pick)> = choices.iter().take(7).map(say).collect();
            let form = schema.as_deref().and_then(|it| serde_json::from_str(it).ok()).filter(|_| choices.is_empty());
            match form {
                Some(form) => all.push(("fill in the form".into(), Pick::Form(form))),
                None => all.push(("reply with a text".into(), Pick::Reply)),
            }
            all.push(("decline".into(), Pick::Say(Answer::Deny { words: None }, Reach::Once)));
            all
        }
        None => (0..).zip(&it.ways).map(|(nth, way)| (plain(&way.choice), Pick::Way(nth))).collect(),
    }
}

/// Shows the items that need a person, one after the other, until none is left or the person quits.
pub(super) fn walk(app: &App) -> Said {
    if app.out.json || !out::watched() || !std::io::stdin().is_terminal() {
        return Err(usage(
            "regatta inbox -i needs a terminal",
            "list the inbox: regatta inbox; answer: regatta answer ID CHOICE, regatta allow ID or regatta deny ID",
        ));
    }
    let client = app.client()?;
    let mut skipped: Vec<String> = Vec::new();
    loop {
        let all: Vec<InboxView> = items(app, &client)?.into_iter().filter(InboxView::is_awake).collect();
        let left: Vec<&InboxView> = all.iter().filter(|it| !skipped.contains(&it.group())).collect();
        let Some(it) = left.first() else {
            let rest = all.len();
            let text =
                if rest == 0 { "nothing needs you".to_owned() } else { format!("{rest} skipped: regatta inbox") };
            return app.out.print(&format!("{text}\n"));
        };
        let alike = left.iter().filter(|other| other.group() == it.group()).count();
        app.out.print(&card(it, alike, left.len()))?;
        match key()? {
            Key::Digit(nth) => {
                let answered = pick(app, &client, it, (nth, alike > 1));
                // Another person may have answered first. The error is printed, and the next item
                // follows.
                if let Err(Failed::Problem(problem)) = answered {
                    app.out.print(&format!("{}\n  {}\n", plain(&problem.message), plain(&problem.hint)))?;
                }
            }
            Key::Letter('s' | 'j' | 'n') => skipped.push(it.group()),
            Key::Letter('z') => {
                let Ok(id) = it.id.parse() else { continue };
                let ask = input::Snooze { id, ms: Some(LATER_MS) };
                let got: Result<Got<serde_json::Value>, Failed> = client.call(&Call::InboxSnooze(ask));
                let text = match got {
                    Ok(_) => format!("{} comes back in an hour\n", it.id),
                    Err(Failed::Problem(problem)) => format!("{}\n", plain(&problem.message)),
                    Err(other) => return Err(other),
                };
                app.out.print(&text)?;
            }
            Key::Letter(letter @ ('d' | 'D')) => match it.task {
                Some(id) => told(app, super::super::diff::diff(app, &whole(id, letter == 'd')))?,
                None => app.out.print("this item has no task\n")?,
            },
            Key::Letter('w') => match it.task {
                Some(task) => told(app, super::super::see::why(app, &task.to_string()))?,
                None => app.out.print(&format!("{}\n", plain(&it.why)))?,
            },
            Key::Letter('q') => return Ok(()),
            Key::Letter(_) => app.out.print("press a digit to answer, s to skip, q to quit\n")?,
            Key::Gone => return Err(Failed::Code(130)),
        }
    }
}

/// Returns the arguments that show a task's changes, or only their numbers of lines.
fn whole(id: TaskId, stat: bool) -> args::Diff {
    args::Diff { id: id.to_string(), since_review: false, stat, tool: None, no_pager: false }
}

/// Prints an error of a command and continues.
fn told(app: &App, it: Said) -> Said {
    match it {
        Err(Failed::Problem(problem)) => app.out.print(&format!("{}\n", plain(&problem.message))),
        other => other,
    }
}

/// Draws an item: task, agent, subject, reason and keys.
fn card(it: &InboxView, alike: usize, left: usize) -> String {
    let task = it.task.map(|it| it.to_string()).filter(|task| *task != it.id);
    let who = [task, it.agent.as_ref().map(ToString::to_string)];
    let who: Vec<String> = who.into_iter().flatten().collect();
    let mut text = format!("\n{} {}  {}  {} ago  ({left} left)\n", it.id, it.kind, who.join(" "), ago(it.since_wall));
    let many = if alike > 1 { format!(" × {alike}, one answer for all") } else { String::new() };
    for line in it.subject.lines().take(12) {
        text += &format!("  {}\n", plain(line));
    }
    if !many.is_empty() {
        text += &format!(" {many}\n");
    }
    if !it.why.is_empty() {
        text += &format!("  why  {}\n", plain(it.why.lines().next().unwrap_or_default()));
    }
    let keys: Vec<String> = (1..).zip(picks(it)).map(|(nth, (word, _))| format!("{nth} {word}")).collect();
    text += &format!("  {}\n", keys.join("   "));
    let diff = if it.task.is_some() { "d diff   D whole diff   " } else { "" };
    text + &format!("  {diff}w why   z in an hour   s skip   q quit\n")
}

/// Makes the choice that belongs to a digit, after asking for a text or a form if it needs one.
fn pick(app: &App, client: &Client, it: &InboxView, (nth, alike): (usize, bool)) -> Said {
    let Some((_, pick)) = picks(it).into_iter().nth(nth) else {
        return app.out.print("there is no choice with this number\n");
    };
    let id = || it.id.parse().map_err(|_| failed("bug", "an agent's request has no id", "please report this"));
    match pick {
        Pick::Way(nth) => {
            let Some(way) = it.ways.get(nth) else { return Ok(()) };
            let said = match way.words {
                Some(_) => match line(&format!("{}: ", way.choice))? {
                    Some(words) => Some(words),
                    None => return Ok(()),
                },
                None => None,
            };
            let item = it.id.parse().map_err(|_| failed("bug", "an item has no id", "please report this"))?;
            choose(app, client, &item, (way, said))
        }
        Pick::Say(answer, reach) => decide(app, "answer", (id()?, alike), answer, reach),
        Pick::Reply => match line("reply: ")? {
            Some(text) => decide(app, "answer", (id()?, alike), Answer::Text { text }, Reach::Once),
            None => Ok(()),
        },
        Pick::Form(schema) => match form::fill(app, it, &schema, &mut |prompt| line(prompt))? {
            Some(text) => decide(app, "answer", (id()?, false), Answer::Text { text }, Reach::Once),
            None => Ok(()),
        },
    }
}

/// Asks for a line of text. Returns `None` for an empty line.
fn line(prompt: &str) -> Result<Option<String>, Failed> {
    let mut stdout = std::io::stdout();
    let asked = write!(stdout, "  {prompt}").and_then(|()| stdout.flush());
    asked.map_err(|it| failed("io", it.to_string(), "run the command in a terminal"))?;
    let mut text = String::new();
    std::io::stdin()
        .read_line(&mut text)
        .map_err(|it| failed("io", it.to_string(), "run the command in a terminal"))?;
    let text = text.trim().to_owned();
    Ok((!text.is_empty()).then_some(text))
}

enum Key {
    /// Counting from 0.
    Digit(usize),
    Letter(char),
    /// Ctrl-C or Ctrl-D.
    Gone,
}

/// Waits for a digit or a letter. The terminal is in raw mode only during the wait.
fn key() -> Result<Key, Failed> {
    let bad = |it: std::io::Error| {
        failed("io", format!("could not read the terminal: {it}"), "list the inbox instead: regatta inbox")
    };
    terminal::enable_raw_mode().map_err(bad)?;
    let read = loop {
        match event::read() {
            Ok(Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. })) => match code {
                KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => break Ok(Key::Gone),
                KeyCode::Char(it) => match it.to_digit(10) {
                    Some(0) => {}
                    Some(digit) => break Ok(Key::Digit(digit as usize - 1)),
                    None => break Ok(Key::Letter(it)),
                },
                // Enter, Escape and other keys do nothing.
                _ => {}
            },
            Ok(_) => {}
            Err(error) => break Err(bad(error)),
        }
    };
    terminal::disable_raw_mode().map_err(bad)?;
    read
}
