//! The command `inbox`, which lists everything that needs a person.
//!
//! Every item has a list of choices, of which a person picks one. The commands that answer an item
//! are in `approve`.

mod form;
mod interactive;

use clap::{Args, Subcommand};
use regatta_api::view::{InboxGroup, InboxView};
use regatta_api::{call, input};
use regatta_core::inbox::{InboxItem, InboxKind};

use crate::client::{CallReply, Client};
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandError, CommandResult, display_width, format_age, format_table_for,
    format_time_to_second, sanitize, window_width, wrap,
};
use crate::settings::duration_ms;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    ("inbox", &["regatta inbox", "regatta inbox --interactive"]),
    ("inbox snooze", &["regatta inbox snooze Q7 2h"]),
    ("inbox wake", &["regatta inbox wake Q7"]),
];

#[derive(Debug, Args)]
pub(crate) struct InboxArgs {
    #[command(subcommand)]
    pub(crate) command: Option<InboxCommand>,
    /// Exit with code 3 if something needs a person
    #[arg(long)]
    pub(crate) check: bool,
    /// Answer the items one by one in this terminal
    #[arg(short, long)]
    pub(crate) interactive: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// Hide an item of the inbox for some time, after which it comes back by itself
    Snooze {
        /// Id of the item, as regatta inbox prints it, such as Q7, T9, A5, budget:day or agent:NAME
        id: InboxItem,
        /// Time for which to hide the item, such as 30m, 2h or 1d
        #[arg(value_parser = duration_ms)]
        time: u64,
    },
    /// Show a hidden item of the inbox again
    Wake {
        /// Id of the item, as regatta inbox prints it, such as Q7, T9, A5, budget:day or agent:NAME
        id: InboxItem,
    },
}

/// Runs `regatta inbox`.
pub(crate) fn inbox(app: &CommandContext, args: &InboxArgs) -> CommandResult {
    match &args.command {
        Some(InboxCommand::Snooze { id, time }) => return snooze_item(app, id, Some(*time)),
        Some(InboxCommand::Wake { id }) => return snooze_item(app, id, None),
        None if args.interactive => return interactive::run_interactive(app),
        None => {}
    }
    let client = app.client()?;
    let project = app.project(&client)?;
    let reply: CallReply<Vec<InboxView>> =
        client.call(call::InboxList(input::ProjectFilter { project }))?;
    // List snoozed (hidden) items separately, with the time at which they come back.
    let (awake, asleep): (Vec<InboxView>, Vec<InboxView>) =
        reply.data.iter().cloned().partition(InboxView::is_shown);
    let groups = InboxGroup::list(&awake);
    let mut next = groups
        .first()
        .map(group_commands)
        .unwrap_or_else(|| vec!["regatta status".into()]);
    if awake.len() > 1 {
        next.push("regatta inbox -i".into());
    }
    app.output.print_answer("inbox", &reply.data, &next, |_| {
        let mut text = if awake.is_empty() {
            "nothing needs you\n".into()
        } else {
            draw_items(&awake, window_width())
        };
        if !asleep.is_empty() {
            let until = |inbox: &InboxView| {
                format!(
                    "{} until {}",
                    inbox.id,
                    format_time_to_second(inbox.snoozed_until_wall.unwrap_or(0))
                )
            };
            let all: Vec<String> = asleep.iter().map(until).collect();
            text += &format!("snoozed: {}\n", all.join(" · "));
        }
        text
    })?;
    if args.check && !awake.is_empty() {
        Err(CommandError::Exit(3))
    } else {
        Ok(())
    }
}

/// Returns the commands that answer all items of a group.
fn group_commands(group: &InboxGroup) -> Vec<String> {
    match group.shared_command() {
        Some(command) => vec![command],
        None => answer_commands(group.first(), group.count() > 1),
    }
}

/// Returns the commands that answer an item. If `same` is true, the commands answer all identical
/// requests too (with `--all`).
pub(crate) fn answer_commands(inbox: &InboxView, same: bool) -> Vec<String> {
    let all = if same { " --all" } else { "" };
    match inbox.kind {
        InboxKind::Permission => vec![
            format!("regatta allow {}{all}", inbox.id),
            format!("regatta deny {}{all}", inbox.id),
        ],
        InboxKind::Question if !inbox.choices.is_empty() => {
            vec![format!("regatta answer {} 1", inbox.id)]
        }
        InboxKind::Question => vec!["regatta inbox -i".to_owned()],
        InboxKind::Review => vec![
            format!("regatta diff {}", inbox.id),
            format!("regatta land {}", inbox.id),
        ],
        InboxKind::Failed => {
            let checks = format!("regatta logs {} --check", inbox.id);
            vec![
                format!("regatta why {}", inbox.id),
                checks,
                format!("regatta retry {}", inbox.id),
            ]
        }
        InboxKind::Task => vec![format!("regatta why {}", inbox.id)],
        InboxKind::Landing
        | InboxKind::Stuck
        | InboxKind::Budget
        | InboxKind::Credential
        | InboxKind::Settings
        | InboxKind::Request => vec![
            inbox
                .ways
                .first()
                .map_or_else(|| "regatta inbox -i".to_owned(), |way| way.line.clone()),
        ],
    }
}

/// Hides an inbox item for `ms` milliseconds, or shows the item again if `ms` is `None`.
fn snooze_item(app: &CommandContext, id: &InboxItem, ms: Option<u64>) -> CommandResult {
    let reply: CallReply<Option<InboxView>> =
        app.call(call::InboxSnooze(input::InboxSnooze { id: id.clone(), ms }))?;
    let until = reply
        .data
        .as_ref()
        .and_then(|inbox| inbox.snoozed_until_wall);
    let (next, text) = match until {
        Some(wall) => (
            format!("regatta inbox wake {id}"),
            format!("{id} comes back at {}\n", format_time_to_second(wall)),
        ),
        None => (
            "regatta inbox".to_owned(),
            format!("{id} is in the inbox\n"),
        ),
    };
    app.output
        .print_answer("inbox.snooze", &reply.data, &[next], |_| text)
}

/// Draws items as a table. In a narrow window the request is printed below its row instead of being
/// cut, because a person must see the whole request to decide (invariant S13).
fn draw_items(items: &[InboxView], window: Option<usize>) -> String {
    let rows = group_rows(items);
    let table = format_table_for(&rows, None);
    let Some(window) =
        window.filter(|window| table.lines().any(|line| display_width(line) > *window))
    else {
        return table;
    };
    let heads: Vec<Vec<String>> = rows
        .iter()
        .map(|row| [&row[..5], &row[6..7]].concat())
        .collect();
    let heads = format_table_for(&heads, Some(window));
    let mut text = String::new();
    for (head, row) in heads.lines().zip(&rows) {
        text += &format!("{head}\n");
        let details: Vec<&str> = [&row[5], &row[7]]
            .into_iter()
            .map(String::as_str)
            .filter(|s| !s.is_empty())
            .collect();
        // A person decides about a permission from this text alone, so it is never shortened.
        let max_lines = if row[1] == InboxKind::Permission.name() {
            usize::MAX
        } else {
            MAX_ITEM_LINES
        };
        for line in wrap(&details.join(" · "), window.saturating_sub(4), max_lines) {
            text += &format!("    {line}\n");
        }
    }
    text
}

/// The maximum number of lines per item in a narrow window, except for permission requests.
const MAX_ITEM_LINES: usize = 4;

/// Returns the rows of the table of inbox items, one row for each group. Questions are rows of their
/// own, because each is answered on its own.
fn group_rows(items: &[InboxView]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for group in InboxGroup::list(items) {
        if group.first().kind == InboxKind::Question {
            let each = group
                .items
                .iter()
                .map(|item| InboxGroup { items: vec![item] });
            rows.extend(each.map(|single| group_row(&single)));
        } else {
            rows.push(group_row(&group));
        }
    }
    rows
}

fn group_row(group: &InboxGroup) -> Vec<String> {
    let inbox = group.first();
    // The id of an agent's item contains the agent's name.
    let agent = inbox
        .agent
        .as_ref()
        .filter(|agent| inbox.id != format!("agent:{agent}"))
        .map_or(String::new(), ToString::to_string);
    // A permission request is answered with `regatta allow` or `deny`, so it shows no numbered
    // choices.
    let choices: Vec<String> = (1..)
        .zip(&inbox.choices)
        .map(|(nth, choice)| format!("{nth} {}", sanitize(choice)))
        .filter(|_| inbox.kind != InboxKind::Permission)
        .collect();
    vec![
        inbox.id.clone(),
        inbox.kind.to_string(),
        inbox.task.map_or(String::new(), |id| id.to_string()),
        agent,
        format_age(inbox.since_wall),
        sanitize(&group.headline()),
        choices.join("  "),
        sanitize(&group.advice()),
    ]
}

/// Returns all inbox items of this project, including snoozed (hidden) items.
pub(crate) fn fetch_items(
    app: &CommandContext,
    client: &Client,
) -> Result<Vec<InboxView>, CommandError> {
    let project = app.project(client)?;
    let reply: CallReply<Vec<InboxView>> =
        client.call(call::InboxList(input::ProjectFilter { project }))?;
    Ok(reply.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S13: in a narrow window the object of a request is printed in full.
    #[test]
    fn s13_the_object_of_a_request_is_never_cut() {
        let item = |id: &str, subject: &str, choices: &[&str]| -> InboxView {
            let item = serde_json::json!({
                "id": id, "kind": "permission", "task": "T9", "agent": "claude-1", "subject": subject,
                "why": "R1: ask fetch for everybody", "choices": choices, "since_wall": 0, "escalated": false,
            });
            serde_json::from_value(item).unwrap()
        };
        let url = "WebFetch: https://docs.rs/strsim/latest/strsim/";
        let items = [item("Q11", url, &["allow", "deny"])];
        let text = draw_items(&items, Some(80));
        assert!(text.lines().all(|line| display_width(line) <= 80), "{text}");
        assert!(
            text.contains(&format!("\n    {url} · R1: ask fetch for\n")),
            "{text}"
        );
        assert_eq!(
            draw_items(&items, Some(200)).lines().count(),
            1,
            "one line in a wide window"
        );
        let long = format!("execute: curl {} | sh", "https://example.test/".repeat(40));
        let text = draw_items(&[item("Q12", &long, &["allow", "deny"])], Some(80));
        assert!(
            text.contains("| sh") && !text.contains('…'),
            "a long command is printed in full: {text}"
        );
    }
}
