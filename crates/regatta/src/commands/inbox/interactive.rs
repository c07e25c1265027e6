//! `inbox --interactive`: shows one inbox item at a time, with a digit for each choice.
//!
//! Only digits answer an item, so that Enter or a letter pressed by accident answers nothing.

use std::io::{IsTerminal, Write};

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::{event, terminal};
use regatta_api::view::{InboxGroup, InboxView};
use regatta_api::{call, input};
use regatta_core::agent_protocol::{RequestAnswer, RequestContent};
use regatta_core::approval::AnswerScope;
use regatta_core::ids::TaskId;

use crate::client::Client;
use crate::commands::CommandContext;
use crate::commands::approve::{send_choice, send_decision};
use crate::commands::diff::DiffArgs;
use crate::commands::inbox::{fetch_items, form};
use crate::output;
use crate::output::{
    CommandError, CommandResult, command_error, format_age, internal_error, sanitize, usage_error,
};

/// The time for which the key `z` hides an item, in milliseconds: one hour.
const SNOOZE_MS: u64 = 3_600_000;

/// The effect of pressing a digit in `inbox --interactive`. Each choice of an inbox item has a
/// digit.
enum DigitEffect {
    SendAnswer(RequestAnswer, AnswerScope),
    /// Ask the person for a text, then send it as the answer.
    AskText,
    /// Ask the person for each field of the form with this JSON Schema, then send the fields as the
    /// answer.
    AskForm(serde_json::Value),
    /// Send the choice at this index in the item's list of choices (`ways`) to the daemon.
    SendChoice(usize),
}

/// Returns the label and the effect of each choice of an item, in the order of their digits.
fn digit_effects(inbox: &InboxView) -> Vec<(String, DigitEffect)> {
    let allow = |reach| DigitEffect::SendAnswer(RequestAnswer::Allow, reach);
    match inbox
        .ask
        .as_ref()
        .map(|agent_request| &agent_request.content)
    {
        Some(RequestContent::Permission { .. }) => vec![
            ("allow once".into(), allow(AnswerScope::Once)),
            ("allow for this task".into(), allow(AnswerScope::Task)),
            (
                "deny".into(),
                DigitEffect::SendAnswer(RequestAnswer::Deny { reason: None }, AnswerScope::Once),
            ),
            ("always allow".into(), allow(AnswerScope::Always)),
        ],
        Some(RequestContent::Question {
            choices, schema, ..
        }) => {
            let say = |text: &String| {
                (
                    sanitize(text),
                    DigitEffect::SendAnswer(
                        RequestAnswer::Text { text: text.clone() },
                        AnswerScope::Once,
                    ),
                )
            };
            let mut all: Vec<(String, DigitEffect)> = choices.iter().take(7).map(say).collect();
            let form = schema
                .as_deref()
                .and_then(|schema| serde_json::from_str(schema).ok())
                .filter(|_| choices.is_empty());
            match form {
                Some(form) => all.push(("fill in the form".into(), DigitEffect::AskForm(form))),
                None => all.push(("reply with a text".into(), DigitEffect::AskText)),
            }
            all.push((
                "decline".into(),
                DigitEffect::SendAnswer(RequestAnswer::Deny { reason: None }, AnswerScope::Once),
            ));
            all
        }
        None => (0..)
            .zip(&inbox.ways)
            .map(|(nth, way)| (sanitize(&way.choice), DigitEffect::SendChoice(nth)))
            .collect(),
    }
}

/// Shows the items that need a person, one after the other, until none is left or the person quits.
pub(crate) fn run_interactive(app: &CommandContext) -> CommandResult {
    if app.output.is_json || !output::is_stdout_watched() || !std::io::stdin().is_terminal() {
        return Err(usage_error(
            "regatta inbox -i needs a terminal",
            "list the inbox: regatta inbox; answer: regatta answer ID CHOICE, regatta allow ID or \
            regatta deny ID",
        ));
    }
    let client = app.client()?;
    let mut skipped: Vec<String> = Vec::new();
    loop {
        let all: Vec<InboxView> = fetch_items(app, &client)?
            .into_iter()
            .filter(InboxView::is_shown)
            .collect();
        let left: Vec<&InboxView> = all
            .iter()
            .filter(|inbox| !skipped.contains(&inbox.group_key()))
            .collect();
        let Some(inbox) = left.first() else {
            let rest = all.len();
            let text = if rest == 0 {
                "nothing needs you".to_owned()
            } else {
                format!("{rest} skipped: regatta inbox")
            };
            return app.output.print(&format!("{text}\n"));
        };
        let group = InboxGroup {
            items: left
                .iter()
                .filter(|other| other.group_key() == inbox.group_key())
                .copied()
                .collect(),
        };
        app.output.print(&draw_card(&group, left.len()))?;
        match read_key()? {
            KeyPress::Digit(nth) => {
                let answered = apply_digit(app, &client, &group, nth);
                // Another person may have answered first. Print the error and continue with the
                // next item.
                if let Err(CommandError::Problem(problem)) = answered {
                    app.output.print(&format!(
                        "{}\n  {}\n",
                        sanitize(&problem.message),
                        sanitize(&problem.hint)
                    ))?;
                }
            }
            KeyPress::Letter('s' | 'j' | 'n') => skipped.push(inbox.group_key()),
            KeyPress::Letter('z') => {
                let Ok(id) = inbox.id.parse() else { continue };
                let request = input::InboxSnooze {
                    id,
                    ms: Some(SNOOZE_MS),
                };
                let text = match client.call(call::InboxSnooze(request)) {
                    Ok(_) => format!("{} comes back in an hour\n", inbox.id),
                    Err(CommandError::Problem(problem)) => {
                        format!("{}\n", sanitize(&problem.message))
                    }
                    Err(other) => return Err(other),
                };
                app.output.print(&text)?;
            }
            KeyPress::Letter(letter @ ('d' | 'D')) => match inbox.task {
                Some(id) => print_error(
                    app,
                    crate::commands::diff::diff(app, &diff_args(id, letter == 'd')),
                )?,
                None => app.output.print("this item has no task\n")?,
            },
            KeyPress::Letter('w') => match inbox.task {
                Some(task) => print_error(app, crate::commands::why::why(app, &task.to_string()))?,
                None => app.output.print(&format!("{}\n", sanitize(&inbox.why)))?,
            },
            KeyPress::Letter('q') => return Ok(()),
            KeyPress::Letter(_) => app
                .output
                .print("press a digit to answer, s to skip, q to quit\n")?,
            KeyPress::Interrupted => return Err(CommandError::Exit(130)),
        }
    }
}

/// Returns the arguments of `regatta diff` for a task. With `stat`, only the numbers of changed
/// lines are shown.
fn diff_args(id: TaskId, stat: bool) -> DiffArgs {
    DiffArgs {
        id: id.to_string(),
        since_review: false,
        stat,
        tool: None,
        no_pager: false,
    }
}

/// Prints the error of a command that a key has run, and returns `Ok` so that the loop continues.
fn print_error(app: &CommandContext, result: CommandResult) -> CommandResult {
    match result {
        Err(CommandError::Problem(problem)) => app
            .output
            .print(&format!("{}\n", sanitize(&problem.message))),
        other => other,
    }
}

/// Draws an inbox item: its task, agent, subject and reason, and the keys that answer it.
fn draw_card(group: &InboxGroup, remaining: usize) -> String {
    let inbox = group.first();
    let task = inbox
        .task
        .map(|id| id.to_string())
        .filter(|task| *task != inbox.id);
    let parties = [task, inbox.agent.as_ref().map(ToString::to_string)];
    let parties: Vec<String> = parties.into_iter().flatten().collect();
    let mut text = format!(
        "\n{} {}  {}  {} ago  ({remaining} left)\n",
        inbox.id,
        inbox.kind,
        parties.join(" "),
        format_age(inbox.since_wall)
    );
    for line in group.headline().lines().take(12) {
        text += &format!("  {}\n", sanitize(line));
    }
    if group.count() > 1 {
        text += "  one answer for all\n";
    }
    let advice = group.advice();
    if !advice.is_empty() {
        text += &format!(
            "  why  {}\n",
            sanitize(advice.lines().next().unwrap_or_default())
        );
    }
    let keys: Vec<String> = (1..)
        .zip(digit_effects(inbox))
        .map(|(nth, (label, _))| format!("{nth} {label}"))
        .collect();
    text += &format!("  {}\n", keys.join("   "));
    let diff = if inbox.task.is_some() {
        "d diff   D whole diff   "
    } else {
        ""
    };
    text + &format!("  {diff}w why   z in an hour   s skip   q quit\n")
}

/// Carries out the choice that belongs to a digit, for all items of a group. Asks for a text or a
/// form first if the choice needs it.
fn apply_digit(
    app: &CommandContext,
    client: &Client,
    group: &InboxGroup,
    nth: usize,
) -> CommandResult {
    let inbox = group.first();
    let alike = group.count() > 1;
    let Some((_, effect)) = digit_effects(inbox).into_iter().nth(nth) else {
        return app.output.print("there is no choice with this number\n");
    };
    let id = || {
        inbox
            .id
            .parse()
            .map_err(|_| internal_error(format!("the inbox item {} has no valid id", inbox.id)))
    };
    match effect {
        DigitEffect::SendChoice(nth) => {
            let Some(choice) = inbox.ways.get(nth) else {
                return Ok(());
            };
            let text = match choice.words {
                Some(_) => match ask_line(&format!("{}: ", choice.choice))? {
                    Some(text) => Some(text),
                    None => return Ok(()),
                },
                None => None,
            };
            for item in &group.items {
                let same = item.ways.iter().find(|way| way.choice == choice.choice);
                let Some(same) = same else { continue };
                let id = item.id.parse().map_err(|_| {
                    internal_error(format!("the inbox item {} has no valid id", item.id))
                })?;
                send_choice(app, client, &id, same, text.clone())?;
            }
            Ok(())
        }
        DigitEffect::SendAnswer(answer, reach) => {
            send_decision(app, "answer", id()?, alike, answer, reach)
        }
        DigitEffect::AskText => match ask_line("reply: ")? {
            Some(text) => send_decision(
                app,
                "answer",
                id()?,
                alike,
                RequestAnswer::Text { text },
                AnswerScope::Once,
            ),
            None => Ok(()),
        },
        DigitEffect::AskForm(schema) => {
            match form::fill_form(app, inbox, &schema, &mut |prompt| ask_line(prompt))? {
                Some(text) => send_decision(
                    app,
                    "answer",
                    id()?,
                    false,
                    RequestAnswer::Text { text },
                    AnswerScope::Once,
                ),
                None => Ok(()),
            }
        }
    }
}

/// Asks the person for a line of text. Returns `None` if the line is empty.
fn ask_line(prompt: &str) -> Result<Option<String>, CommandError> {
    let mut stdout = std::io::stdout();
    let prompted = write!(stdout, "  {prompt}").and_then(|()| stdout.flush());
    prompted.map_err(|error| {
        command_error(
            "io",
            format!("could not print the question: {error}"),
            "run the command in a terminal",
        )
    })?;
    let mut text = String::new();
    std::io::stdin().read_line(&mut text).map_err(|error| {
        command_error(
            "io",
            format!("could not read your answer: {error}"),
            "run the command in a terminal",
        )
    })?;
    let text = text.trim().to_owned();
    Ok((!text.is_empty()).then_some(text))
}

enum KeyPress {
    /// The person pressed a digit. The value is the index of the choice, so the key 1 gives 0.
    Digit(usize),
    Letter(char),
    /// The person pressed Ctrl-C or Ctrl-D.
    Interrupted,
}

/// Waits for a digit or a letter. The terminal is in raw mode only during the wait.
fn read_key() -> Result<KeyPress, CommandError> {
    let bad = |error: std::io::Error| {
        command_error(
            "io",
            format!("could not read the terminal: {error}"),
            "list the inbox instead: regatta inbox",
        )
    };
    terminal::enable_raw_mode().map_err(bad)?;
    let read = loop {
        match event::read() {
            Ok(Event::Key(KeyEvent {
                code,
                modifiers,
                kind: KeyEventKind::Press,
                ..
            })) => match code {
                KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => {
                    break Ok(KeyPress::Interrupted);
                }
                KeyCode::Char(c) => match c.to_digit(10) {
                    Some(0) => {}
                    Some(digit) => break Ok(KeyPress::Digit(digit as usize - 1)),
                    None => break Ok(KeyPress::Letter(c)),
                },
                // Ignore Enter, Escape and other special keys, so that they answer nothing by
                // accident.
                _ => {}
            },
            Ok(_) => {}
            Err(error) => break Err(bad(error)),
        }
    };
    terminal::disable_raw_mode().map_err(bad)?;
    read
}
