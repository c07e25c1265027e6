//! The bus under load: searches among a million messages, fifty agents that post at once, and the
//! delay until a waiting agent receives a message.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use regatta_core::board::Board;
use regatta_core::bus::{PostContext, PostMessage};
use regatta_core::command::{Actor, Command, Request, decide};
use regatta_core::ids::{AgentName, ChannelName, Label, MessageId, Now};
use regatta_core::search::SearchQuery;
use regatta_engine::ports::store::{MessageFilter, Store, StoreBatch, StoreHistory};
use regatta_store::SqliteStore;
use serde_json::{Value, json};

use super::{BenchServer, TOKEN, connection::HttpConnection};
use crate::args::Args;
use crate::report::{Report, Times, format_ms, format_thousands};
use crate::rng::Rng;

/// The number of messages per transaction while the store is filled.
const MESSAGES_PER_BATCH: usize = 2_000;
/// The number of words from which messages are built. The first words are frequent, the last ones
/// rare.
const VOCABULARY_SIZE: usize = 30_000;
const CHANNEL_COUNT: usize = 200;
const SENDER_COUNT: usize = 50;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let messages: usize = args.number("ops", 1_000_000)?;
    let samples: usize = args.number("samples", 200)?;
    let (agents, each) = (args.number("agents", 50)?, args.number("steps", 200)?);
    let mut report = Report::new("bus", args);
    measure_search(&mut report, args, messages, samples)?;
    measure_posting(&mut report, args, agents, each)?;
    measure_wake_up(&mut report, args, samples)?;
    report.finish()
}

/// Returns a word by its number. The most frequent words are short.
fn nth_word(nth: usize) -> String {
    let (mut nth, mut word) = (nth + 1, String::from("w"));
    while nth > 0 {
        word.push(char::from(b'a' + u8::try_from(nth % 26).unwrap_or(0)));
        nth /= 26;
    }
    word
}

/// Returns a number below `many`. Small numbers are much more frequent, as are the frequent words
/// of a language.
fn skewed_index(dice: &mut Rng, many: usize) -> usize {
    let unit = (dice.next() >> 11) as f64 / (1_u64 << 53) as f64;
    let found = (many as f64).powf(unit) - 1.0;
    (found as usize).min(many - 1)
}

/// Fills a store with valid messages in order, and writes only the rows of messages.
fn fill_store(store: &mut SqliteStore, messages: usize) -> anyhow::Result<()> {
    let (mut board, mut dice) = (Board::default(), Rng::new(7));
    let mut done = 0;
    while done < messages {
        let mut batch = StoreBatch {
            base_revision: board.revision,
            ..StoreBatch::default()
        };
        for _ in 0..MESSAGES_PER_BATCH.min(messages - done) {
            let text: Vec<String> = (0..12)
                .map(|_| nth_word(skewed_index(&mut dice, VOCABULARY_SIZE)))
                .collect();
            let channel = ChannelName::new(&format!(
                "channel-{}",
                skewed_index(&mut dice, CHANNEL_COUNT)
            ))?;
            let labels = if dice.chance(10) {
                vec![Label::new("coord:merge")?]
            } else {
                vec![]
            };
            let number = done as u64;
            let reply_to = (number > 100 && dice.chance(20))
                .then(|| MessageId(number - dice.below(90) as u64));
            let post = PostMessage {
                channel,
                text: text.join(" "),
                labels,
                reply_to,
            };
            let by = Actor::Agent(AgentName::new(&format!(
                "agent-{}",
                dice.below(SENDER_COUNT)
            ))?);
            let command = Command::PostWith {
                post,
                extra: PostContext::default(),
            };
            // One message per second.
            let now = Now {
                fleet_ms: number * 1_000,
                unix_ms: 1_700_000_000_000 + number * 1_000,
            };
            let commit = decide(
                &board,
                Request {
                    by,
                    key: None,
                    command,
                },
                now,
            )
            .map_err(|refusal| anyhow::anyhow!(refusal.message()))?;
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

fn measure_search(
    report: &mut Report,
    args: &Args,
    messages: usize,
    samples: usize,
) -> anyhow::Result<()> {
    let scratch = args.scratch_dir()?;
    let path = scratch.path().join("regatta.db");
    let mut store = SqliteStore::open(&path)?;
    let began = Instant::now();
    fill_store(&mut store, messages)?;
    let took = began.elapsed();
    report.add_line(format!(
        "{} messages of 12 words stored in {:.0} s, {} MiB",
        format_thousands(messages as u64),
        took.as_secs_f64(),
        std::fs::metadata(&path)?.len() / (1024 * 1024)
    ));
    let history = store.history();
    let mut all = Times::default();
    for (name, of) in query_kinds(messages) {
        let (mut dice, mut times, mut found) = (Rng::new(11), Times::default(), 0);
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
        let (p50, p99) = (times.percentile(0.5), times.percentile(0.99));
        report.add_line(format!(
            "  {name:<44} p50 {:>10}  p99 {:>10}  {found} found",
            format_ms(p50),
            format_ms(p99)
        ));
        report.set_value(&format!("{name} p50 ms"), p50.as_secs_f64() * 1e3);
    }
    let p50 = all.percentile(0.5);
    report.set_value("search p50 ms", p50.as_secs_f64() * 1e3);
    report.check_target(
        p50 < Duration::from_millis(50),
        format!(
            "search over {} messages, median under 50 ms: {}",
            format_thousands(messages as u64),
            format_ms(p50)
        ),
    );
    check_index_against_scan(report, &history, messages.min(20_000))
}

type MakeFilter = Box<dyn Fn(&mut Rng) -> MessageFilter>;

/// Returns the searches that people and agents do.
fn query_kinds(messages: usize) -> Vec<(&'static str, MakeFilter)> {
    let text = |text: String| MessageFilter {
        text: SearchQuery::new(&text),
        limit: 50,
        ..MessageFilter::default()
    };
    let channel =
        |dice: &mut Rng| ChannelName::new(&format!("channel-{}", dice.below(CHANNEL_COUNT))).ok();
    let date = move |dice: &mut Rng| 1_700_000_000_000 + dice.below(messages) as u64 * 1_000;
    let make = |f: Box<dyn Fn(&mut Rng) -> MessageFilter>| f;
    vec![
        (
            "search: a frequent word",
            make(Box::new(move |dice| text(nth_word(dice.below(20))))),
        ),
        (
            "search: any word",
            make(Box::new(move |dice| {
                text(nth_word(skewed_index(dice, VOCABULARY_SIZE)))
            })),
        ),
        (
            "search: a rare word",
            make(Box::new(move |dice| {
                text(nth_word(
                    VOCABULARY_SIZE / 2 + dice.below(VOCABULARY_SIZE / 2),
                ))
            })),
        ),
        (
            "search: three words",
            make(Box::new(move |dice| {
                text(format!(
                    "{} {} {}",
                    nth_word(dice.below(50)),
                    nth_word(dice.below(500)),
                    nth_word(skewed_index(dice, VOCABULARY_SIZE))
                ))
            })),
        ),
        (
            "search: two words in a row",
            make(Box::new(move |dice| {
                text(format!(
                    "\"{} {}\"",
                    nth_word(dice.below(30)),
                    nth_word(dice.below(30))
                ))
            })),
        ),
        (
            "search: a word in a channel",
            make(Box::new(move |dice| MessageFilter {
                channel: channel(dice),
                ..text(nth_word(skewed_index(dice, VOCABULARY_SIZE)))
            })),
        ),
        (
            "search: a word of a sender since a date",
            make(Box::new(move |dice| MessageFilter {
                from: Some(format!("agent-{}", dice.below(SENDER_COUNT))),
                since_unix_ms: Some(date(dice)),
                ..text(nth_word(skewed_index(dice, VOCABULARY_SIZE)))
            })),
        ),
        (
            "history: the newest of a channel",
            make(Box::new(move |dice| MessageFilter {
                channel: channel(dice),
                limit: 50,
                ..MessageFilter::default()
            })),
        ),
        (
            "history: a channel until a date, by label",
            make(Box::new(move |dice| MessageFilter {
                channel: channel(dice),
                label: Label::new("coord:merge").ok(),
                until_unix_ms: Some(date(dice)),
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
fn check_index_against_scan(
    report: &mut Report,
    history: &Arc<dyn StoreHistory>,
    newest: usize,
) -> anyhow::Result<()> {
    let all = history.messages(&MessageFilter {
        limit: newest,
        ..MessageFilter::default()
    })?;
    let Some(first) = all.first().map(|message| message.id.0) else {
        return Ok(());
    };
    let mut wrong = 0;
    for nth in [0, 1, 5, 50, 500, 5_000] {
        let Some(query) = SearchQuery::new(&format!("{} {}", nth_word(nth), nth_word(nth / 2)))
        else {
            continue;
        };
        let by_hand: Vec<u64> = all
            .iter()
            .filter(|message| query.matches(&message.text))
            .map(|message| message.id.0)
            .collect();
        let (text, after) = (Some(query), Some(MessageId(first - 1)));
        let found = history.messages(&MessageFilter {
            text,
            after,
            limit: usize::MAX,
            ..MessageFilter::default()
        })?;
        wrong +=
            usize::from(found.iter().map(|message| message.id.0).collect::<Vec<_>>() != by_hand);
    }
    report.require(
        wrong == 0,
        format!(
            "searches find the same as a scan of the last {} messages",
            format_thousands(newest as u64)
        ),
    );
    Ok(())
}

fn measure_posting(
    report: &mut Report,
    args: &Args,
    agents: usize,
    each: usize,
) -> anyhow::Result<()> {
    let scratch = args.scratch_dir()?;
    let server = BenchServer::start(scratch.path())?;
    let address = server.address;
    let (expected, began) = (agents * each, Instant::now());
    let mut heard: Vec<Value> = Vec::new();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let talking: Vec<_> = (0..agents)
            .map(|who| {
                scope.spawn(move || -> anyhow::Result<()> {
                    let mut line = HttpConnection::open(address, TOKEN)?;
                    for nth in 0..each {
                        let said =
                            json!({ "channel": "lake", "agent": format!("agent-{who}"), "text": format!("{nth}") });
                        line.call_verb("msg.send", &said)?;
                    }
                    Ok(())
                })
            })
            .collect();
        // One agent reads with its cursor while the others post.
        let mut line = server.connect()?;
        let patience = Instant::now() + Duration::from_secs(600);
        while heard.len() < expected {
            ensure!(
                Instant::now() < patience,
                "only {} of {expected} came",
                heard.len()
            );
            let answer = line.call_verb(
                "msg.read",
                &json!({ "agent": "listener", "channel": "lake" }),
            )?;
            heard.extend(answer.as_array().cloned().unwrap_or_default());
        }
        talking.into_iter().try_for_each(|scoped_join_handle| {
            scoped_join_handle
                .join()
                .map_err(|_| anyhow::anyhow!("a caller panicked"))?
        })
    })?;
    let took = began.elapsed();
    let mut by_sender: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for value in &heard {
        let (who, nth) = (
            value["sender"].as_str().unwrap_or_default(),
            value["text"].as_str().unwrap_or_default(),
        );
        by_sender
            .entry(who.to_owned())
            .or_default()
            .push(nth.parse()?);
    }
    report.add_line(format!(
        "{agents} agents posted {each} messages each in {:.2} s: {} a second",
        took.as_secs_f64(),
        format_thousands((expected as f64 / took.as_secs_f64()) as u64)
    ));
    let in_order = by_sender
        .values()
        .all(|by_sender| by_sender.iter().copied().eq(0..each as u64));
    report.require(
        heard.len() == expected && by_sender.len() == agents,
        "no message is lost or duplicated",
    );
    report.require(in_order, "messages of each sender are in order");
    let inbox = server
        .connect()?
        .call_verb("msg.inbox", &json!({ "agent": "listener" }))?;
    let left: u64 = inbox
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|inbox| inbox["unread"].as_u64())
        .sum();
    report.require(left == 0, "the reader's cursor is at the end");
    Ok(())
}

fn measure_wake_up(report: &mut Report, args: &Args, samples: usize) -> anyhow::Result<()> {
    let mut times = wake_times(args.scratch_dir()?.path(), samples)?;
    let (p50, p99) = (times.percentile(0.5), times.percentile(0.99));
    report.add_line(format!(
        "msg.wait, from the call of msg.send to the waiter's answer, {samples} times: p50 {}, p99 \
        {}",
        format_ms(p50),
        format_ms(p99)
    ));
    report.set_value("wake p50 ms", p50.as_secs_f64() * 1e3);
    report.check_target(
        p50 < Duration::from_millis(20),
        format!("median under 20 ms: {}", format_ms(p50)),
    );
    Ok(())
}

/// One agent waits and another one posts; both times come from the same clock.
fn wake_times(dir: &Path, samples: usize) -> anyhow::Result<Times> {
    let server = BenchServer::start(dir)?;
    let (mut sender, mut waiter, mut times) =
        (server.connect()?, server.connect()?, Times::default());
    let mut last = json!("B0");
    for nth in 0..samples {
        let wait = json!({ "channel": "lake", "label": "go", "after": last, "timeout_ms": 60_000 });
        waiter.send("/api/v1/msg.wait", "", wait.to_string().as_bytes())?;
        // By now the agent should wait. If it does not, it finds the message at once, and the
        // sample is wrong.
        std::thread::sleep(Duration::from_millis(3));
        let asked = Instant::now();
        sender.call_verb(
            "msg.send",
            &json!({ "channel": "lake", "text": format!("{nth}"), "labels": ["go"] }),
        )?;
        let (status, body) = waiter.read_answer()?;
        times.add(asked.elapsed());
        ensure!(status == 200, "{status}");
        last = serde_json::from_slice::<Value>(&body)?["data"]["id"].clone();
    }
    Ok(times)
}
