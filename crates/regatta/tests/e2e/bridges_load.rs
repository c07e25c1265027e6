//! Bridges under load: forged requests, and many conversations at once.
//!
//! `REGATTA_FORGED` and `REGATTA_CONVERSATIONS` ask for the full sizes. The default sizes are
//! smaller.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use regatta_testkit::services::slack::{self, Slack, SlackApp};
use regatta_testkit::services::{ServiceCall, github, linear};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::bridge_world::{
    BridgeWorld, BridgeWorldSettings, InboundRequest, OpenConnection, SlackTransport,
    github_variables, linear_variables, new_runtime, number_from_environment, slack_variables,
    unix_time,
};
use crate::http::ApiClient;
use crate::world::{TEST_TIMEOUT, wait_until};

/// A request that must not be accepted, with the expected status. The status is `None` if the
/// client hangs up before the end.
struct ForgedRequest {
    description: &'static str,
    bytes: Vec<u8>,
    expected_status: Option<u16>,
}

/// Three services with two agents each.
struct ServiceDoubles {
    _runtime: Runtime,
    slack: Slack,
    github: github::GitHub,
    linear: linear::Linear,
    slack_apps: [SlackApp; 2],
    github_apps: [github::GitHubApp; 2],
    linear_apps: [linear::LinearApp; 2],
    ann: String,
}

impl ServiceDoubles {
    fn start() -> ServiceDoubles {
        let runtime = new_runtime();
        let slack = runtime.block_on(Slack::start());
        let github = runtime.block_on(github::GitHub::start());
        let linear = runtime.block_on(linear::Linear::start());
        let ann = slack.add_person("ann");
        let slack_apps = [
            slack.add_socket_app("claude"),
            slack.add_socket_app("codex"),
        ];
        slack.add_channel("dev", &["ann", "claude", "codex"]);
        let github_apps = [github.add_app("claude-bot"), github.add_app("codex-bot")];
        github.add_repo("acme/shop", &["claude-bot", "codex-bot"]);
        github.add_person("ann", "acme/shop", "write");
        let linear_apps = [linear.add_app("claude"), linear.add_app("codex")];
        linear.add_person("ann");
        ServiceDoubles {
            _runtime: runtime,
            slack,
            github,
            linear,
            slack_apps,
            github_apps,
            linear_apps,
            ann,
        }
    }

    fn start_world(&self) -> BridgeWorld {
        let settings = BridgeWorldSettings {
            agents: &["claude", "codex"],
            allowed_people: vec![
                format!("slack:{}", self.ann),
                "github:ann".into(),
                "linear:team".into(),
            ],
            urls: vec![
                ("slack", format!("{}/api", self.slack.base_url())),
                ("github", self.github.base_url()),
                ("linear", format!("{}/graphql", self.linear.base_url())),
            ],
            clock_speed: 1.0,
            extra_lines: "",
        };
        let mut variables = Vec::new();
        for (nth, suffix) in ["", "__CODEX"].into_iter().enumerate() {
            variables.extend(slack_variables(
                &self.slack_apps[nth],
                suffix,
                SlackTransport::Http,
            ));
            variables.extend(github_variables(&self.github_apps[nth], suffix));
            variables.extend(linear_variables(&self.linear_apps[nth], suffix));
        }
        BridgeWorld::new(&settings, variables)
    }

    /// Returns the payload that Slack delivers for a mention.
    fn mention_payload(&self) -> String {
        self.slack
            .post_as_person("ann", "dev", "@claude delete everything", None);
        let envelopes = self.slack.envelopes("claude");
        envelopes
            .iter()
            .rev()
            .find(|slack_envelope| slack_envelope.payload["event"]["type"] == "app_mention")
            .unwrap()
            .payload
            .to_string()
    }

    /// Returns the payload that GitHub delivers for a comment.
    fn comment_payload(&self, n: usize) -> String {
        let ann = json!({ "login": "ann", "type": "User" });
        json!({
            "action": "created",
            "repository": { "full_name": "acme/shop" },
            "issue": { "number": n, "title": "Login", "user": ann, "html_url": "https://github.com/acme/shop/issues/1" },
            "comment": {
                "id": n, "user": ann, "body": "@claude-bot delete everything", "author_association": "MEMBER",
                "created_at": "2026-11-16T00:00:00Z", "updated_at": "2026-11-16T00:00:00Z",
            },
            "sender": ann,
        })
        .to_string()
    }

    /// Returns the payload that Linear delivers for a new session, dated `age` ago.
    fn session_payload(&self, n: usize, age: Duration) -> String {
        json!({
            "type": "AgentSessionEvent", "action": "created", "appUserId": self.linear_apps[0].app_user_id,
            "organizationId": "O1", "webhookTimestamp": u64::try_from((unix_time() - age).as_millis()).unwrap(),
            "agentSession": {
                "id": format!("session-{n}"), "creator": { "id": "U1", "name": "ann" },
                "comment": { "body": "@claude delete everything" },
                "issue": { "id": "I1", "identifier": "ENG-1", "title": "Login", "team": { "key": "ENG" } },
            },
        })
        .to_string()
    }

    /// Returns the n-th forged request. The kinds and the services alternate.
    fn forged_request(&self, host: &str, mention: &str, n: usize) -> ForgedRequest {
        let service = n % 3;
        let path = ["/webhooks/slack", "/webhooks/github", "/webhooks/linear"][service];
        let (slack, github, linear) = (&self.slack_apps, &self.github_apps, &self.linear_apps);
        // As the service would send the request, but signed with the given secret.
        let letter = |secret: [&str; 3]| match service {
            0 => InboundRequest::slack(path, secret[0], mention, 0),
            1 => InboundRequest::github(path, secret[1], "issue_comment", &self.comment_payload(n)),
            _ => InboundRequest::linear(path, secret[2], &self.session_payload(n, Duration::ZERO)),
        };
        let secrets = |nth: usize| {
            [
                &*slack[nth].signing_secret,
                &*github[nth].webhook_secret,
                &*linear[nth].webhook_secret,
            ]
        };
        let good = letter(secrets(0));
        let whole = |what, letter: &InboundRequest, answer| ForgedRequest {
            description: what,
            bytes: letter.bytes(host),
            expected_status: Some(answer),
        };
        match (n / 3) % 9 {
            0 => whole("an unknown secret", &letter(["x"; 3]), 401),
            1 => whole("no signature", &good.without_signature(), 401),
            2 => whole("the other agent's secret", &letter(secrets(1)), 401),
            3 => match service {
                0 => whole(
                    "an old date",
                    &InboundRequest::slack(path, &slack[0].signing_secret, mention, 301),
                    401,
                ),
                2 => {
                    let body = self.session_payload(n, Duration::from_secs(61));
                    whole(
                        "an old date",
                        &InboundRequest::linear(path, &linear[0].webhook_secret, &body),
                        401,
                    )
                }
                _ => {
                    // GitHub's deliveries have no date, so the signature is cut in half instead.
                    let mut half = good.clone();
                    half.headers[0].1.truncate(40);
                    whole("half of a signature", &half, 401)
                }
            },
            4 => {
                let mut other = good.clone();
                other.body.push(b' ');
                whole("another body", &other, 401)
            }
            5 => {
                let bytes = good
                    .head_text(host, "content-length: 1000000000")
                    .into_bytes();
                ForgedRequest {
                    description: "declared as too large",
                    bytes,
                    expected_status: Some(413),
                }
            }
            6 => {
                let mut bytes = good
                    .head_text(host, "transfer-encoding: chunked")
                    .into_bytes();
                for _ in 0..16 {
                    bytes.extend_from_slice(b"4000\r\n");
                    bytes.extend(std::iter::repeat_n(b'x', 0x4000));
                    bytes.extend_from_slice(b"\r\n");
                }
                ForgedRequest {
                    description: "without an end, and cut off",
                    bytes,
                    expected_status: None,
                }
            }
            7 => {
                let path = [format!("{path}/nobody"), "/webhooks/x".to_owned()][n % 2].clone();
                whole("no such route", &InboundRequest { path, ..good }, 404)
            }
            _ => whole(
                "another method",
                &InboundRequest {
                    method: ["GET", "PUT", "DELETE"][n % 3],
                    ..good
                },
                405,
            ),
        }
    }
}

/// Returns the resident memory of a process in KiB.
fn resident_kib(pid: u64) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|status| status.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// B1: forged, stale, oversized and endless requests do nothing and do not fill the memory. The
/// same routes accept valid deliveries afterwards.
#[test]
fn b1_forged_stale_or_oversized_requests_do_nothing_and_memory_stays_flat() {
    let count = number_from_environment("REGATTA_FORGED").unwrap_or(2_000);
    let services = ServiceDoubles::start();
    let quay = services.start_world();
    for name in ["claude", "codex"] {
        quay.add_agent(name, 1, &json!([{ "sleep": "1h" }]));
    }
    let pid = quay.world.daemon_info().unwrap()["pid"].as_u64().unwrap();
    let (host, mention) = (quay.address(), services.mention_payload());
    let before = quay.world.events().len();
    let next = AtomicUsize::new(0);
    let send =
        |end: usize| {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let mut line = OpenConnection::new(&host);
                        loop {
                            let n = next.fetch_add(1, Ordering::SeqCst);
                            if n >= end {
                                next.fetch_sub(1, Ordering::SeqCst);
                                return;
                            }
                            let forged_request = services.forged_request(&host, &mention, n);
                            let Some(answer) = forged_request.expected_status else {
                                // A client that hangs up in the middle.
                                let mut stream = TcpStream::connect(&host).unwrap();
                                let _cut = stream.write_all(&forged_request.bytes);
                                continue;
                            };
                            let got = line.request_status(&forged_request.bytes).unwrap_or_else(
                                |error| panic!("{n}: {}: {error}", forged_request.description),
                            );
                            assert_eq!(got, answer, "{n}: {}", forged_request.description);
                            if forged_request.description == "declared as too large" {
                                // the server expects a body that was never sent
                                line = OpenConnection::new(&host);
                            }
                        }
                    });
                }
            });
        };
    // The first tenth warms the daemon up.
    send(count / 10);
    let begun = resident_kib(pid);
    send(count / 2);
    let middle = resident_kib(pid);
    send(count);
    let end = resident_kib(pid);
    println!(
        "{count} forged requests: {begun} KiB after a tenth, {middle} KiB in the middle, {end} \
        KiB at the end"
    );
    assert!(
        end <= middle + middle / 10 + 4 * 1_024,
        "memory grows: {begun}, {middle}, {end} KiB"
    );

    assert!(quay.conversations().is_empty());
    assert_eq!(quay.event_count("delivery.taken"), 0);
    assert_eq!(quay.world.events().len(), before, "a request had an effect");
    quay.world.run_ok(&["status"]);
    let refused = |value: &Value| value["refused"].as_u64().unwrap_or(0);
    let list = quay.world.run_json(&["bridge", "list"]);
    assert!(
        list.as_array().unwrap().iter().map(refused).sum::<u64>() as usize >= count / 2,
        "{list}"
    );
    // The routes accept valid deliveries.
    let good = InboundRequest::slack(
        "/webhooks/slack",
        &services.slack_apps[0].signing_secret,
        &mention,
        0,
    );
    assert_eq!(quay.send_request(&good), Some(200));
    let good = InboundRequest::github(
        "/webhooks/github",
        &services.github_apps[0].webhook_secret,
        "ping",
        "{}",
    );
    assert_eq!(quay.send_request(&good), Some(200));
    let good = services
        .session_payload(count, Duration::ZERO)
        .replace("AgentSessionEvent", "AppUserNotification");
    let good = InboundRequest::linear(
        "/webhooks/linear",
        &services.linear_apps[0].webhook_secret,
        &good,
    );
    assert_eq!(quay.send_request(&good), Some(200));
    assert_eq!(quay.conversations().len(), 1);
}

/// How long a large run may take on a small machine.
const LOAD_TIMEOUT: Duration = Duration::from_secs(900);
/// The number of conversations per agent, and the number of channels.
const CONVERSATIONS_PER_AGENT: usize = 20;
const CHANNELS: usize = 4;

/// The times of one conversation, each since the start of the double.
#[derive(Debug)]
struct ConversationTimes {
    app: usize,
    channel: usize,
    asked_at: Duration,
    /// When the first sign of life was shown, when the turn ended, and when its end was shown.
    first_sign_at: Duration,
    ended_at: Duration,
    shown_at: Duration,
    /// The message that shows the end.
    answer: String,
}

/// Returns when the last of these calls would be made if only the service's limits delayed them.
/// After a burst a channel takes one post a second, and each method has a limit of calls per minute
/// by its tier.
fn earliest_permitted(
    of: &[ConversationTimes],
    last: impl Fn(&ConversationTimes) -> Duration,
    posts: bool,
) -> Duration {
    let mut latest = Duration::ZERO;
    let tier = slack::max_calls_per_minute(if posts {
        "chat.update"
    } else {
        "reactions.add"
    })
    .unwrap() as usize;
    for app in 0..=of
        .iter()
        .map(|conversation_times| conversation_times.app)
        .max()
        .unwrap_or(0)
    {
        let mut demands: Vec<Duration> = of
            .iter()
            .filter(|conversation_times| conversation_times.app == app)
            .map(&last)
            .collect();
        demands.sort();
        let from = of
            .iter()
            .filter(|conversation_times| conversation_times.app == app)
            .map(|conversation_times| conversation_times.asked_at)
            .min()
            .unwrap_or_default();
        for (nth, demand) in demands.iter().enumerate() {
            let window = Duration::from_secs(60) * u32::try_from(nth / tier).unwrap();
            latest = latest.max((*demand).max(from + window));
        }
        for channel in (0..CHANNELS).filter(|_| posts) {
            let count = of
                .iter()
                .filter(|conversation_times| {
                    conversation_times.app == app && conversation_times.channel == channel
                })
                .count();
            let held = u32::try_from(count)
                .unwrap()
                .saturating_sub(slack::POST_BURST);
            latest = latest.max(from + Duration::from_secs(1) * held);
        }
    }
    latest
}

/// Returns how many calls were made for how many that were needed, as the double counted them.
/// Whatever the load of the machine, no slot that a first sign or an end needs may be used for
/// anything else. First signs and posts need one call each. Edits count if they were made while an
/// end was due and had to wait for the limit.
fn call_counts(
    calls: &[ServiceCall],
    courses: &[ConversationTimes],
) -> [(&'static str, usize, usize); 3] {
    let calls_by = |app: usize, operation: &str| {
        let caller = format!("agent{app}");
        calls
            .iter()
            .filter(move |service_call| {
                service_call.app == caller && service_call.operation == operation
            })
            .collect::<Vec<_>>()
    };
    let (mut signs, mut posts, mut edits) = (0, 0, (0, 0));
    for app in 0..=courses
        .iter()
        .map(|conversation_times| conversation_times.app)
        .max()
        .unwrap_or(0)
    {
        signs += calls_by(app, "reactions.add").len();
        posts += calls_by(app, "chat.postMessage").len();
        let own: Vec<&ConversationTimes> = courses
            .iter()
            .filter(|conversation_times| conversation_times.app == app)
            .collect();
        let updates = calls_by(app, "chat.update");
        let is_end = |service_call: &ServiceCall| {
            own.iter().any(|calls_by| {
                calls_by.answer == service_call.input["ts"]
                    && service_call.answered >= calls_by.shown_at
                    && service_call.arrived <= calls_by.shown_at
            })
        };
        for course in &own {
            let minute = course.shown_at.saturating_sub(Duration::from_secs(60));
            let before = updates
                .iter()
                .filter(|service_call| {
                    service_call.arrived > minute && service_call.arrived <= course.shown_at
                })
                .count();
            if before + 1 < slack::max_calls_per_minute("chat.update").unwrap() as usize {
                continue; // no limit delayed it
            }
            let meanwhile = updates.iter().filter(|service_call| {
                service_call.arrived > course.ended_at && service_call.arrived <= course.shown_at
            });
            edits.0 += meanwhile.clone().count();
            edits.1 += meanwhile
                .filter(|service_call| is_end(service_call))
                .count();
        }
    }
    let needed = courses.len() + 1; // and the single conversation before the others
    [
        ("first signs", signs, needed),
        ("posts", posts, needed),
        ("edits", edits.0, edits.1),
    ]
}

/// Many conversations stream at once against Slack's own limits and clock. No limit is exceeded,
/// and each thread has one message, which shows the end.
#[test]
fn many_conversations_at_once_stay_within_the_limits_of_slack() {
    let count = number_from_environment("REGATTA_CONVERSATIONS").unwrap_or(CONVERSATIONS_PER_AGENT);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    let load: f64 = load
        .split(' ')
        .next()
        .and_then(|load| load.parse().ok())
        .unwrap();
    let runtime = new_runtime();
    let slack = runtime.block_on(Slack::start());
    let names: Vec<String> = (0..count.div_ceil(CONVERSATIONS_PER_AGENT))
        .map(|nth| format!("agent{nth}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let apps: Vec<SlackApp> = names
        .iter()
        .map(|name| slack.add_socket_app(name))
        .collect();
    let ann = slack.add_person("ann");
    let channels: Vec<String> = (0..CHANNELS).map(|nth| format!("dev{nth}")).collect();
    for channel in &channels {
        slack.add_channel(channel, &[&["ann"], &names[..]].concat());
    }
    let settings = BridgeWorldSettings {
        agents: &names,
        allowed_people: vec![format!("slack:{ann}")],
        urls: vec![("slack", format!("{}/api", slack.base_url()))],
        clock_speed: 1.0,
        extra_lines: "",
    };
    let mut variables = vec![("REGATTA_MAX_ATTEMPTS".to_owned(), (count + 1).to_string())];
    for (nth, app) in apps.iter().enumerate() {
        let suffix = if nth == 0 {
            String::new()
        } else {
            format!("__{}", app.name.to_ascii_uppercase())
        };
        variables.extend(slack_variables(app, &suffix, SlackTransport::Socket));
    }
    let quay = BridgeWorld::new(&settings, variables);
    let script = json!([
        { "plan": ["Look", "Do"] },
        { "tool": { "title": "Read a.txt", "kind": "read" } },
        { "say": "I have looked." },
        { "sleep": "4s" },
        { "tool": { "title": "Read it again", "kind": "read" } },
        { "say": "That is all." },
        { "end_turn": true },
    ]);
    names
        .iter()
        .for_each(|name| quay.add_agent(name, CONVERSATIONS_PER_AGENT, &script));
    quay.world.run_ok(&["bridge", "test"]);

    // A single conversation.
    let over = |channel: &str, root: &str, app: &SlackApp| {
        let ends = |text: &str| text.contains("That is all.") && !text.starts_with('⏳');
        let thread = slack.thread(channel, root);
        let of = thread.iter().find(|slack_message| {
            slack_message.user == app.bot_user
                && ends(slack_message.blocks[0]["text"].as_str().unwrap_or(""))
        });
        of.map(|slack_message| (slack_message.changed, slack_message.ts.clone()))
    };
    let posted = |channel: &str, ts: &str| {
        slack
            .view(|view| {
                view.message(channel, ts)
                    .map(|slack_message| slack_message.posted)
            })
            .unwrap()
    };
    let sign = |ts: &str| {
        let calls = slack.calls_of("reactions.add");
        calls
            .iter()
            .find(|service_call| {
                service_call.input["timestamp"] == ts && service_call.error.is_none()
            })
            .map(|service_call| service_call.answered)
    };
    let alone = slack.post_as_person("ann", "dev0", "@agent0 begin", None);
    assert!(
        wait_until(TEST_TIMEOUT, || sign(&alone).is_some()),
        "no sign of life"
    );
    println!(
        "one conversation: the first sign after {:?}",
        sign(&alone).unwrap() - posted("dev0", &alone)
    );
    assert!(
        wait_until(TEST_TIMEOUT, || over("dev0", &alone, &apps[0]).is_some()),
        "the conversation does not end"
    );

    let wall_at_zero = unix_time() - slack.started().elapsed();
    let said: Vec<(usize, usize, String)> = (0..count)
        .map(|nth| {
            let (app, channel) = (nth / CONVERSATIONS_PER_AGENT, nth % CHANNELS);
            let ts = slack.post_as_person(
                "ann",
                &channels[channel],
                &format!("@{} do {nth}", names[app]),
                None,
            );
            (app, channel, ts)
        })
        .collect();
    let ended = |(app, channel, ts): &(usize, usize, String)| {
        over(&channels[*channel], ts, &apps[*app]).is_some()
    };
    let mut left: Vec<_> = said.iter().collect();
    let all = wait_until(LOAD_TIMEOUT, || {
        left.retain(|left| !ended(left));
        left.is_empty()
    });
    assert!(
        all,
        "{} of {count} conversations do not end: {left:?}",
        left.len()
    );

    let api = ApiClient::for_data_dir(&quay.world.data_dir);
    let ids = quay.conversations();
    let ids = ids
        .iter()
        .map(|ids| (ids["key"].as_str().unwrap().to_owned(), ids["id"].clone()));
    let ids: std::collections::HashMap<String, Value> = ids.collect();
    let course = |(app, channel, ts): &(usize, usize, String)| {
        let id = ids
            .iter()
            .find(|ids| ids.0.contains(ts.as_str()))
            .map(|ids| ids.1.clone())
            .unwrap();
        let whole = api.call_ok("conversation.show", json!({ "conversation": id }));
        let ended = Duration::from_millis(whole["turns"][0]["ended_wall"].as_u64().unwrap());
        let (shown, answer) = over(&channels[*channel], ts, &apps[*app]).unwrap();
        ConversationTimes {
            app: *app,
            channel: *channel,
            asked_at: posted(&channels[*channel], ts),
            first_sign_at: sign(ts).unwrap_or_else(|| panic!("{ts} has no first sign")),
            ended_at: ended.saturating_sub(wall_at_zero),
            shown_at: shown,
            answer,
        }
    };
    let courses: Vec<ConversationTimes> = said.iter().map(course).collect();
    for (app, channel, ts) in &said {
        let thread = slack.thread(&channels[*channel], ts);
        let own_messages = thread
            .iter()
            .filter(|slack_message| slack_message.user == apps[*app].bot_user)
            .count();
        assert_eq!(
            (own_messages, thread.len()),
            (1, 1),
            "one message in each thread: {thread:?}"
        );
        let eyes = [("eyes".to_owned(), apps[*app].bot_user.clone())];
        assert_eq!(slack.reactions(&channels[*channel], ts), eyes);
    }

    let zero = courses
        .iter()
        .map(|conversation_times| conversation_times.asked_at)
        .min()
        .unwrap();
    let worst = |of: &dyn Fn(&ConversationTimes) -> Duration| courses.iter().map(of).max().unwrap();
    // A single conversation may take one second.
    let ratio = |came: Duration, may: Duration| {
        (came - zero).as_secs_f64() / (may - zero).as_secs_f64().max(1.0)
    };
    let signs = ratio(
        worst(&|conversation_times| conversation_times.first_sign_at),
        earliest_permitted(
            &courses,
            |conversation_times| conversation_times.asked_at,
            false,
        ),
    );
    let finals = ratio(
        worst(&|conversation_times| conversation_times.shown_at),
        earliest_permitted(
            &courses,
            |conversation_times| conversation_times.ended_at,
            true,
        ),
    );
    println!(
        "{count} conversations of {} agents (load {load}): all first signs after {:?} ({signs:.2} \
         of the permitted time), \
         all ends shown after {:?} ({finals:.2}); the worst sign came {:?} after its message, the \
         worst end {:?} after \
         its turn",
        names.len(),
        worst(&|conversation_times| conversation_times.first_sign_at) - zero,
        worst(&|conversation_times| conversation_times.shown_at) - zero,
        worst(&|conversation_times| conversation_times.first_sign_at - conversation_times.asked_at),
        worst(&|conversation_times| conversation_times
            .shown_at
            .saturating_sub(conversation_times.ended_at)),
    );
    slack.assert_well_behaved();
    for (what, used, needed) in call_counts(&slack.calls(), &courses) {
        println!("{what}: {used} slots for {needed}");
        assert!(
            used as f64 <= 1.2 * needed as f64,
            "{what} waited for other calls: {used} slots for {needed}"
        );
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if load < cores as f64 / 2.0 {
        assert!(signs <= 1.2, "first signs are late: {signs:.2}");
        assert!(finals <= 1.2, "ends are shown late: {finals:.2}");
    }
}
