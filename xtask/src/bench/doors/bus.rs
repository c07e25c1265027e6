//! The bus under load: searches among a million messages, fifty agents that post at once, and the
//! delay until a waiting agent receives a message.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use regatta_core::board::Board;
use regatta_core::bus::{Extra, Post};
use regatta_core::command::{Actor, Command, Request, decide_owned};
use regatta_core::ids::{AgentName, ChannelName, Label, MessageId, Now};
use regatta_core::search::Query;
use regatta_engine::ports::store::{Batch, History, MessageFilter, Store};
use regatta_store::SqliteStore;
use serde_json::{Value, json};

use super::{Server, TOKEN, line::Line};
use crate::args::Args;
use crate::dice::Dice;
use crate::report::{Report, Times, ms, thousands};

/// The number of messages per transaction while the store is filled.
const AT_ONCE: usize = 2_000;
/// The number of words from which messages are built. The first words are frequent, the last ones
/// rare.
const WORDS: usize = 30_000;
const CHANNELS: usize = 200;
const SENDERS: usize = 50;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let messages: usize = args.number("ops", 1_000_000)?;
    let samples: usize = args.number("samples", 200)?;
    let (agents, each) = (args.number("agents", 50)?, args.number("steps", 200)?);
    let mut report = Report::new("bus", args);
    search(&mut report, args, messages, samples)?;
    talk(&mut report, args, agents, each)?;
    wake(&mut report, args, samples)?;
    report.end()
}

/// Returns a word by its number. The most frequent words are short.
fn word(nth: usize) -> String {
    let (mut nth, mut word) = (nth + 1, String::from("w"));
    while nth > 0 {
        word.push(char::from(b'a' + u8::try_from(nth % 26).unwrap_or(0)));
        nth /= 26;
    }
    word
}

/// Returns a number below `many`. Small numbers are much more frequent, as are the frequent words
/// of a language.
fn skewed(dice: &mut Dice, many: usize) -> usize {
    let unit = (dice.next() >> 11) as f64 / (1_u64 << 53) as f64;
    let found = (many as f64).powf(unit) - 1.0;
    (found as usize).min(many - 1)
}

/// Fills a store with valid messages in order, and writes only the rows of messages.
fn fill(store: &mut SqliteStore, messages: usize) -> anyhow::Result<()> {
    let (mut board, mut dice) = (Board::default(), Dice::new(7));
    let mut done = 0;
    while done < messages {
        let mut batch = Batch { after: board.revision, ..Batch::default() };
        for _ in 0..AT_ONCE.min(messages - done) {
            let text: Vec<String> = (0..12).map(|_| word(skewed(&mut dice, WORDS))).collect();
            let channel = ChannelName::new(&format!("channel-{}", skewed(&mut dice, CHANNELS)))?;
            let labels = if dice.percent(10) { vec![Label::new("coord:merge")?] } else { vec![] };
            let number = done as u64;
            let reply_to = (number > 100 && dice.percent(20)).then(|| MessageId(number - dice.below(90) as u64));
            let post = Post { channel, text: text.join(" "), labels, reply_to };
            let by = Actor::Agent(AgentName::new(&format!("agent-{}", dice.below(SENDERS)))?);
            let command = Command::PostWith { post, extra: Extra::default() };
            // One message per second.
            let now = Now { at: number * 1_000, wall: 1_700_000_000_000 + number * 1_000 };
            let commit = decide_owned(&board, Request { by, key: None, command }, now)
                .map_err(|it| anyhow::anyhow!(it.message()))?;
            board = commit.board;
            batch.events.extend(commit.events);
            batch.rows.extend(commit.rows);
            done += 1;
        }
        batch.meta = board.meta();
        store.commit(&batch)?;
    }
    Ok(())
}

fn search(report: &mut Report, args: &Args, messages: usize, samples: usize) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let path = scratch.path().join("regatta.db");
    let mut store = SqliteStore::open(&path)?;
    let began = Instant::now();
    fill(&mut store, messages)?;
    let took = began.elapsed();
    report.say(format!(
        "{} messages of 12 words stored in {:.0} s, {} MiB",
        thousands(messages as u64),
        took.as_secs_f64(),
        std::fs::metadata(&path)?.len() / (1024 * 1024)
    ));
    let history = store.history();
    let mut all = Times::default();
    for (name, of) in kinds(messages) {
        let (mut dice, mut times, mut found) = (Dice::new(11), Times::default(), 0);
        for _ in 0..samples {
            let filter = of(&mut dice);
            let began = Instant::now();
            found += history.messages(&filter)?.len();
            let took = began.elapsed();
            times.add(took);
            if filter.text.is_some() {
                all.add(took);
            }
        }
        let (p50, p99) = (times.at(0.5), times.at(0.99));
        report.say(format!("  {name:<44} p50 {:>10}  p99 {:>10}  {found} found", ms(p50), ms(p99)));
        report.value(&format!("{name} p50 ms"), p50.as_secs_f64() * 1e3);
    }
    let p50 = all.at(0.5);
    report.value("search p50 ms", p50.as_secs_f64() * 1e3);
    report.target(
        p50 < Duration::from_millis(50),
        format!("search over {} messages, median under 50 ms: {}", thousands(messages as u64), ms(p50)),
    );
    the_same_as_by_hand(report, &history, messages.min(20_000))
}

type Make = Box<dyn Fn(&mut Dice) -> MessageFilter>;

/// Returns the searches that people and agents do.
fn kinds(messages: usize) -> Vec<(&'static str, Make)> {
    let text = |text: String| MessageFilter { text: Query::new(&text), limit: 50, ..MessageFilter::default() };
    let channel = |dice: &mut Dice| ChannelName::new(&format!("channel-{}", dice.below(CHANNELS))).ok();
    let date = move |dice: &mut Dice| 1_700_000_000_000 + dice.below(messages) as u64 * 1_000;
    let make = |it: Box<dyn Fn(&mut Dice) -> MessageFilter>| it;
    vec![
        ("search: a frequent word", make(Box::new(move |dice| text(word(dice.below(20)))))),
        ("search: any word", make(Box::new(move |dice| text(word(skewed(dice, WORDS)))))),
        ("search: a rare word", make(Box::new(move |dice| text(word(WORDS / 2 + dice.below(WORDS / 2)))))),
        (
            "search: three words",
            make(Box::new(move |dice| {
                text(format!("{} {} {}", word(dice.below(50)), word(dice.below(500)), word(skewed(dice, WORDS))))
            })),
        ),
        (
            "search: two words in a row",
            make(Box::new(move |dice| text(format!("\"{} {}\"", word(dice.below(30)), word(dice.below(30)))))),
        ),
        (
            "search: a word in a channel",
            make(Box::new(move |dice| MessageFilter { channel: channel(dice), ..text(word(skewed(dice, WORDS))) })),
        ),
        (
            "search: a word of a sender since a date",
            make(Box::new(move |dice| MessageFilter {
                from: Some(format!("agent-{}", dice.below(SENDERS))),
                since: Some(date(dice)),
                ..text(word(skewed(dice, WORDS)))
            })),
        ),
        (
            "history: the newest of a channel",
            make(Box::new(move |dice| MessageFilter { channel: channel(dice), limit: 50, ..MessageFilter::default() })),
        ),
        (
            "history: a channel until a date, by label",
            make(Box::new(move |dice| MessageFilter {
                channel: channel(dice),
                label: Label::new("coord:merge").ok(),
                until: Some(date(dice)),
                limit: 50,
                ..MessageFilter::default()
            })),
        ),
        (
            "history: a thread",
            make(Box::new(move |dice| MessageFilter {
                thread: Some(MessageId(1 + dice.below(messages) as u64)),
                limit: 50,
                ..MessageFilter::default()
            })),
        ),
    ]
}

/// Checks that the index finds the same messages as a scan of all texts.
fn the_same_as_by_hand(report: &mut Report, history: &Arc<dyn History>, newest: usize) -> anyhow::Result<()> {
    let all = history.messages(&MessageFilter { limit: newest, ..MessageFilter::default() })?;
    let Some(first) = all.first().map(|it| it.id.0) else { return Ok(()) };
    let mut wrong = 0;
    for nth in [0, 1, 5, 50, 500, 5_000] {
        let Some(query) = Query::new(&format!("{} {}", word(nth), word(nth / 2))) else { continue };
        let by_hand: Vec<u64> = all.iter().filter(|it| query.matches(&it.text)).map(|it| it.id.0).collect();
        let (text, after) = (Some(query), Some(MessageId(first - 1)));
        let found = history.messages(&MessageFilter { text, after, limit: usize::MAX, ..MessageFilter::default() })?;
        wrong += usize::from(found.iter().map(|it| it.id.0).collect::<Vec<_>>() != by_hand);
    }
    report.demand(wrong == 0, format!("searches find the same as a scan of the last {} messages", thousands(newest as u64)));
    Ok(())
}

fn talk(report: &mut Report, args: &Args, agents: usize, each: usize) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let server = Server::start(scratch.path())?;
    let address = server.address;
    let (expected, began) = (agents * each, Instant::now());
    let mut heard: Vec<Value> = Vec::new();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let talking: Vec<_> = (0..agents)
            .map(|who| {
                scope.spawn(move || -> anyhow::Result<()> {
                    let mut line = Line::open(address, TOKEN)?;
                    for nth in 0..each {
                        let said =
                            json!({ "channel": "lake", "agent": format!("agent-{who}"), "text": format!("{nth}") });
                        line.ask("msg.send", &said)?;
                    }
                    Ok(())
                })
            })
            .collect();
        // One agent reads with its cursor while the others post.
        let mut line = server.line()?;
        let patience = Instant::now() + Duration::from_secs(600);
        while heard.len() < expected {
            ensure!(Instant::now() < patience, "only {} of {expected} came", heard.len());
            let got = line.ask("msg.read", &json!({ "agent": "listener", "channel": "lake" }))?;
            heard.extend(got.as_array().cloned().unwrap_or_default());
        }
        talking.into_iter().try_for_each(|it| it.join().map_err(|_| anyhow::anyhow!("a caller panicked"))?)
    })?;
    let took = began.elapsed();
    let mut by_sender: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for it in &heard {
        let (who, nth) = (it["sender"].as_str().unwrap_or_default(), it["text"].as_str().unwrap_or_default());
        by_sender.entry(who.to_owned()).or_default().push(nth.parse()?);
    }
    report.say(format!(
        "{agents} agents posted {each} messages each in {:.2} s: {} a second",
        took.as_secs_f64(),
        thousands((expected as f64 / took.as_secs_f64()) as u64)
    ));
    let in_order = by_sender.values().all(|it| it.iter().copied().eq(0..each as u64));
    report.demand(heard.len() == expected && by_sender.len() == agents, "no message is lost or duplicated");
    report.demand(in_order, "messages of each sender are in order");
    let inbox = server.line()?.ask("msg.inbox", &json!({ "agent": "listener" }))?;
    let left: u64 = inbox.as_array().into_iter().flatten().filter_map(|it| it["unread"].as_u64()).sum();
    report.demand(left == 0, "the reader's cursor is at the end");
    Ok(())
}

fn wake(report: &mut Report, args: &Args, samples: usize) -> anyhow::Result<()> {
    let mut times = woken(args.scratch()?.path(), samples)?;
    let (p50, p99) = (times.at(0.5), times.at(0.99));
    report.say(format!(
        "msg.wait, from the call of msg.send to the waiter's answer, {samples} times: p50 {}, p99 {}",
        ms(p50),
        ms(p99)
    ));
    report.value("wake p50 ms", p50.as_secs_f64() * 1e3);
    report.target(p50 < Duration::from_millis(20), format!("median under 20 ms: {}", ms(p50)));
    Ok(())
}

/// One agent waits and another one posts; both times come from the same clock.
fn woken(dir: &Path, samples: usize) -> anyhow::Result<Times> {
    let server = Server::start(dir)?;
    let (mut sender, mut waiter, mut times) = (server.line()?, server.line()?, Times::default());
    let mut last = json!("B0");
    for nth in 0..samples {
        let wait = json!({ "channel": "lake", "label": "go", "after": last, "timeout_ms": 60_000 });
        waiter.send("/api/v1/msg.wait", "", wait.to_string().as_bytes())?;
        // By now the agent should wait. If it does not, it finds the message at once, and the
        // sample is wrong.
        std::thread::sleep(Duration::from_millis(3));
        let asked = Instant::now();
        sender.ask("msg.send", &json!({ "channel": "lake", "text": format!("{nth}"), "labels": ["go"] }))?;
        let (status, body) = waiter.answer()?;
        times.add(asked.elapsed());
        ensure!(status == 200, "{status}");
        last = serde_json::from_slice::<Value>(&body)?["data"]["id"].clone();
    }
    Ok(times)
}
