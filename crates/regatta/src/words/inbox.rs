//! The commands `inbox` and `answer`. Every item has a list of choices, and one of them is the
//! answer.

mod form; // questions with several fields
mod walk; // `inbox --interactive`

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::{InboxView, Way};
use regatta_core::approval::Reach;
use regatta_core::inbox::Item;
use regatta_core::session::Answer;

use crate::args::{Inbox, InboxWord};
use crate::client::{Client, Got};
use crate::out::{Failed, Said, ago, fit, plain, usage, width, window_width, wrapped};

use super::App;
use super::decide::decide;
use super::see::hour;

/// Runs `regatta inbox`.
pub(super) fn inbox(app: &App, ask: &Inbox) -> Said {
    match &ask.word {
        Some(InboxWord::Snooze { id, time }) => return snooze(app, id, Some(*time)),
        Some(InboxWord::Wake { id }) => return snooze(app, id, None),
        None if ask.interactive => return walk::walk(app),
        None => {}
    }
    let client = app.client()?;
    let project = app.project(&client)?;
    let got: Got<Vec<InboxView>> = client.call(&Call::InboxList(input::Scope { project }))?;
    // Snoozed items are listed separately, with the time at which they come back.
    let (awake, asleep): (Vec<InboxView>, Vec<InboxView>) = got.data.iter().cloned().partition(InboxView::is_awake);
    let mut next = awake.first().map(|it| group_steps(it, &awake)).unwrap_or_else(|| vec!["regatta status".into()]);
    if awake.len() > 1 {
        next.push("regatta inbox -i".into());
    }
    app.out.answer("inbox", &got.data, &next, |_| {
        let mut text = if awake.is_empty() { "nothing needs you\n".into() } else { draw(&awake, window_width()) };
        if !asleep.is_empty() {
            let until = |it: &InboxView| format!("{} until {}", it.id, hour(it.snoozed_until_wall.unwrap_or(0)));
            let all: Vec<String> = asleep.iter().map(until).collect();
            text += &format!("snoozed: {}\n", all.join(" · "));
        }
        text
    })?;
    if ask.check && !awake.is_empty() { Err(Failed::Code(3)) } else { Ok(()) }
}

/// Returns the commands that answer an item and all items of its group.
fn group_steps(first: &InboxView, all: &[InboxView]) -> Vec<String> {
    let group: Vec<&InboxView> = all.iter().filter(|other| other.group() == first.group()).collect();
    let agents: Vec<&str> = group.iter().filter_map(|item| item.id.strip_prefix("agent:")).collect();
    match agents.len() > 1 {
        true => vec![format!("regatta resume {}", agents.join(" "))],
        false => steps(first, group.len() > 1),
    }
}

/// Returns the commands that answer an item. With `same`, they answer all identical requests.
pub(super) fn steps(it: &InboxView, same: bool) -> Vec<String> {
    let all = if same { " --all" } else { "" };
    match it.kind.as_str() {
        "permission" => vec![format!("regatta allow {}{all}", it.id), format!("regatta deny {}{all}", it.id)],
        "question" if !it.choices.is_empty() => vec![format!("regatta answer {} 1", it.id)],
        "question" => vec!["regatta inbox -i".to_owned()],
        "review" => vec![format!("regatta diff {}", it.id), format!("regatta land {}", it.id)],
        "failed" => {
            let checks = format!("regatta logs {} --check", it.id);
            vec![format!("regatta why {}", it.id), checks, format!("regatta retry {}", it.id)]
        }
        "task" => vec![format!("regatta why {}", it.id)],
        _ => vec![it.ways.first().map_or_else(|| "regatta inbox -i".to_owned(), |way| way.line.clone())],
    }
}

/// Snoozes an item for `ms`, or wakes it without a time.
fn snooze(app: &App, id: &Item, ms: Option<u64>) -> Said {
    let got: Got<Option<InboxView>> = app.call(&Call::InboxSnooze(input::Snooze { id: id.clone(), ms }))?;
    let until = got.data.as_ref().and_then(|it| it.snoozed_until_wall);
    let (next, text) = match until {
        Some(wall) => (format!("regatta inbox wake {id}"), format!("{id} comes back at {}\n", hour(wall))),
        None => ("regatta inbox".to_owned(), format!("{id} is in the inbox\n")),
    };
    app.out.answer("inbox.snooze", &got.data, &[next], |_| text)
}

/// Draws items as a table. In a narrow window the request is printed below its row instead of being
/// cut, because a person must see the whole object of a request to decide (S13).
fn draw(items: &[InboxView], window: Option<usize>) -> String {
    let rows = grouped(items);
    let whole = fit(&rows, None);
    let Some(window) = window.filter(|window| whole.lines().any(|line| width(line) > *window)) else { return whole };
    let heads: Vec<Vec<String>> = rows.iter().map(|row| [&row[..5], &row[6..7]].concat()).collect();
    let heads = fit(&heads, Some(window));
    let mut text = String::new();
    for (head, row) in heads.lines().zip(&rows) {
        text += &format!("{head}\n");
        let said: Vec<&str> = [&row[5], &row[7]].into_iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
        // A person decides about a permission by this text, so it must be complete.
        let max_lines = if row[1] == "permission" { usize::MAX } else { MAX_LINES };
        for line in wrapped(&said.join(" · "), window.saturating_sub(4), max_lines) {
            text += &format!("    {line}\n");
        }
    }
    text
}

/// The maximum number of lines per item in a narrow window, except for permission requests.
const MAX_LINES: usize = 4;

/// Combines identical requests of several agents into one row, because `--all` answers them
/// together. Agents that cannot work for the same reason become one row too.
fn grouped(items: &[InboxView]) -> Vec<Vec<String>> {
    let mut rows: Vec<(String, usize, Vec<String>)> = Vec::new();
    for it in items {
        let key = it.group();
        if let Some(row) = rows.iter_mut().find(|row| row.0 == key && it.kind != "question") {
            row.1 += 1;
            continue;
        }
        let agent = it.agent.as_ref().map_or(String::new(), ToString::to_string);
        let numbered = (1..).zip(&it.choices).map(|(nth, it)| format!("{nth} {}", plain(it)));
        // Permissions have their own commands, allow and deny, so they show no numbered choices.
        let choices: Vec<String> = numbered.filter(|_| it.kind != "permission").collect();
        let (choices, why) = (choices.join("  "), plain(&it.why));
        let subject = plain(&it.subject);
        let task = it.task.map_or(String::new(), |it| it.to_string());
        rows.push((
            key,
            1,
            vec![it.id.clone(), it.kind.clone(), task, agent, ago(it.since_wall), subject, choices, why],
        ));
    }
    rows.into_iter()
        .map(|(_, count, mut row)| {
            if count > 1 {
                row[5] += &format!(" × {count}");
            }
            row
        })
        .collect()
}

/// Returns all inbox items of this project, including snoozed ones.
pub(super) fn items(app: &App, client: &Client) -> Result<Vec<InboxView>, Failed> {
    let project = app.project(client)?;
    let got: Got<Vec<InboxView>> = client.call(&Call::InboxList(input::Scope { project }))?;
    Ok(got.data)
}

/// Answers an item. A question takes a text or the number of a choice, any other item one of its
/// choices.
pub(super) fn answer(app: &App, id: &str, words: &[String], message: Option<&str>) -> Said {
    let item: Item = id.parse().map_err(|it: regatta_core::ids::BadName| {
        usage(it.to_string(), "write the item as regatta inbox names it: Q7, T9, A5, budget:day, agent:NAME")
    })?;
    let text = words.join(" ");
    let client = app.client()?;
    let project = None; // the item may belong to any project
    let all: Got<Vec<InboxView>> = client.call(&Call::InboxList(input::Scope { project }))?;
    // A number without a letter means a request, unless only another kind of item has this number.
    let item = if id.bytes().all(|byte| byte.is_ascii_digit()) { numbered_item(&all.data, id, item)? } else { item };
    let found = all.data.iter().find(|it| it.id == item.to_string());
    if let Item::Approval(id) = item {
        let text = found.map_or(text.clone(), |it| numbered(it, &text));
        let permission = found.is_some_and(|it| it.kind == "permission");
        let said = match text.as_str() {
            "allow" if permission => Answer::Allow,
            "deny" if permission => {
                let words = message.map(str::to_owned);
                return decide(app, "answer", (id, false), Answer::Deny { words }, Reach::Once);
            }
            _ => Answer::Text { text },
        };
        decide(app, "answer", (id, false), said, Reach::Once)?;
        return match (message, found.and_then(|it| it.task)) {
            (Some(message), Some(task)) => super::decide::tell(app, &task.to_string(), &[message.to_owned()]),
            _ => Ok(()),
        };
    }
    let Some(found) = found else {
        return Err(usage(format!("{item} is not in the inbox"), "list the inbox: regatta inbox"));
    };
    let (word, rest) = words.split_first().map_or(("", &[][..]), |(word, rest)| (word.as_str(), rest));
    let way = found.way(&text).or_else(|| found.way(word));
    let Some(way) = way else {
        let choices: Vec<String> = found.choices.iter().map(|it| plain(it)).collect();
        return Err(usage(
            format!("{item} can be answered with {}", choices.join(", ")),
            format!("write one of them: regatta answer {item} {}", first_word(found)),
        ));
    };
    let said = message.map(str::to_owned).or_else(|| (!rest.is_empty()).then(|| rest.join(" ")));
    choose(app, &client, &item, (way, said))
}

/// Returns the inbox item with the number `digits`, or `request` if no item has it.
fn numbered_item(all: &[InboxView], digits: &str, request: Item) -> Result<Item, Failed> {
    let candidates = ["Q", "T", "A", "V"].map(|letter| format!("{letter}{digits}").parse::<Item>());
    let open = |item: &Item| all.iter().any(|view| view.id == item.to_string());
    let mut found: Vec<Item> = candidates.into_iter().flatten().filter(open).collect();
    match found.len() {
        0 => Ok(request),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<String> = found.iter().map(ToString::to_string).collect();
            let hint = format!("add the letter: regatta answer {}", names[0]);
            Err(usage(format!("{digits} is ambiguous: it can mean {}", names.join(" or ")), hint))
        }
    }
}

/// Returns the choice with this number, or the text itself if it is not the number of a choice.
fn numbered(it: &InboxView, text: &str) -> String {
    let literal = it.choices.iter().any(|it| it == text);
    let nth = text.trim().parse::<usize>().ok().filter(|_| !literal).and_then(|it| it.checked_sub(1));
    nth.and_then(|nth| it.choices.get(nth)).cloned().unwrap_or_else(|| text.to_owned())
}

/// Returns the first word of an item's first choice, for an example.
fn first_word(it: &InboxView) -> String {
    it.ways.first().map_or(String::new(), |it| it.choice.split(' ').next().unwrap_or_default().to_owned())
}

/// Sends the call that belongs to a choice.
fn choose(app: &App, client: &Client, item: &Item, (way, said): (&Way, Option<String>)) -> Said {
    let mut ask = way.input.clone();
    if let Some(place) = way.words.as_ref().and_then(|it| ask.pointer_mut(it)) {
        let Some(words) = said else {
            return Err(usage(
                format!("{} needs a text", way.choice),
                format!("add it: regatta answer {item} {} 'what to change'", way.choice),
            ));
        };
        *place = words.into();
    }
    let body = serde_json::to_vec(&ask).unwrap_or_default();
    let call = Call::parse(&way.verb, &body).map_err(Failed::from)?;
    let got: Got<serde_json::Value> = client.call(&call)?;
    let left = items(app, client)?.iter().filter(|it| it.is_awake()).count();
    let next = [if left > 0 { "regatta inbox" } else { "regatta status" }.to_owned()];
    // A failed task is tried again as a new task.
    let other = got.data["id"].as_str().filter(|it| *it != item.to_string()).filter(|_| way.verb == "retry");
    let other = other.map_or(String::new(), |it| format!(" as {it}"));
    let line = way.line.replace(" '…'", "");
    app.out.answer(&way.verb, &got.data, &next, |_| {
        format!("{item}: {}{other} ({line}) · {left} left in the inbox\n", plain(&way.choice))
    })
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
        let text = draw(&items, Some(80));
        assert!(text.lines().all(|line| width(line) <= 80), "{text}");
        assert!(text.contains(&format!("\n    {url} · R1: ask fetch for\n")), "{text}");
        assert_eq!(draw(&items, Some(200)).lines().count(), 1, "one line in a wide window");
        let long = format!("execute: curl {} | sh", "https://example.test/".repeat(40));
        let text = draw(&[item("Q12", &long, &["allow", "deny"])], Some(80));
        assert!(text.contains("| sh") && !text.contains('…'), "a long command is printed in full: {text}");
    }
}
