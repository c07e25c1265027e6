//! The bus: threads, search, private mail, attachments, read positions, and many agents that post
//! at once.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::http::{ApiClient, HttpReply};
use crate::world::{TEST_TIMEOUT, World, run_command, wait_for_child, wait_until};

fn message_ids(messages: &Value) -> Vec<&str> {
    messages
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["id"].as_str().unwrap())
        .collect()
}

/// Creates a world in which no router answers messages in the project's channel.
fn without_router() -> World {
    let world = World::with_project();
    world.run_ok(&["hook", "rm", "H1"]);
    world
}

/// Calls a verb with a token other than the daemon's own.
fn call_with_token(world: &World, token: &str, verb: &str, input: &Value) -> HttpReply {
    let api = ApiClient {
        token: token.to_owned(),
        ..ApiClient::for_data_dir(&world.data_dir)
    };
    api.call(verb, input, None).unwrap()
}

/// Adds an outside agent and a task, and returns the grant that its poll gives.
fn granted_attempt(world: &World, name: &str, role: &str) -> Value {
    let api = ApiClient::for_data_dir(&world.data_dir);
    api.call_ok(
        "agent.add",
        json!({ "name": name, "runtime": "outside", "role": role }),
    );
    let file = format!("{}.txt", name.replace('/', "-"));
    world.run_ok(&[
        "add",
        &format!("Work of {name}"),
        "--files",
        &file,
        "--validate",
        "true",
    ]);
    api.call_ok("task.poll", json!({ "agent": name }))
}

#[test]
fn messages_are_found_by_thread_words_time_and_page() {
    let world = without_router();
    let send = |args: &[&str]| {
        let sent = world.run_json(&[&["msg", "send"], args].concat());
        sent["id"].as_str().unwrap().to_owned()
    };
    let first = send(&["shop", "The parser is slow"]);
    let other = send(&["else", "something else about the Parser", "-L", "note"]);
    let answer = send(&["shop", "I look at it", "--reply-to", &first, "--as", "bob"]);
    let deeper = send(&[
        "shop",
        "found: the lexer, not the parser",
        "--reply-to",
        &answer,
        "--as",
        "eve",
    ]);
    let history = |args: &[&str]| world.run_json(&[&["msg", "history"], args].concat());
    // Any message of a thread gives the whole thread.
    for id in [&first, &answer, &deeper] {
        assert_eq!(
            message_ids(&history(&["--thread", id])),
            [&first, &answer, &deeper]
        );
    }
    assert_eq!(message_ids(&history(&["--reply-to", &answer])), [&deeper]);
    assert_eq!(history(&["--thread", &first])[2]["thread"], json!(first));
    assert_eq!(
        message_ids(&history(&["--search", "PARSER"])),
        [&first, &other, &deeper]
    );
    assert_eq!(
        message_ids(&history(&["shop", "--search", "\"the parser\""])),
        [&first, &deeper]
    );
    assert_eq!(
        message_ids(&history(&["--search", "parser", "-L", "note"])),
        [&other]
    );
    assert_eq!(
        message_ids(&history(&["--search", "parser", "--from", "eve"])),
        [&deeper]
    );
    assert_eq!(
        message_ids(&history(&[
            "--since", "1h", "--search", "parser", "--limit", "2"
        ])),
        [&other, &deeper]
    );
    assert_eq!(history(&["--until", "1h"]), json!([]));
    assert_eq!(
        message_ids(&history(&["shop", "--before", &answer])),
        [&first]
    );
    assert_eq!(
        message_ids(&history(&["shop", "--after", &first, "--limit", "1"])),
        [&answer]
    );
    assert_eq!(
        world.run_refused(&["msg", "history", "--search", "..."], 2)["code"],
        "bad_search"
    );
    assert_eq!(
        world.run_refused(&["msg", "history", "--thread", "B99"], 1)["code"],
        "no_such_message"
    );
    let elsewhere = world.run_refused(&["msg", "send", "else", "no", "--reply-to", &first], 1);
    assert_eq!(elsewhere["code"], "elsewhere");

    // A wait that gets an answer, and a wait that times out.
    let waiting = world.command(&[
        "msg",
        "wait",
        "--reply-to",
        &deeper,
        "--after",
        &deeper,
        "--json",
    ]);
    let mut waiting = waiting;
    let child = waiting
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    send(&["shop", "not to that", "--reply-to", &first]);
    let thanks = send(&["shop", "thanks", "--reply-to", &deeper]);
    let output = wait_for_child(child, TEST_TIMEOUT).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&output.stdout).unwrap()["data"]["id"],
        json!(thanks),
        "{output:?}"
    );
    let late = world.run(&["msg", "wait", "shop", "-L", "never", "--timeout", "50ms"]);
    assert_eq!(late.exit_code, 124, "{late:?}");

    // A watch prints each message once and in order, starting with the first new one.
    let mut watch = world.command(&["msg", "watch", "shop", "--after", &thanks, "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for nth in 0..3 {
        send(&["else", "unseen"]);
        send(&["shop", &format!("number {nth}")]);
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["text"], format!("number {nth}"));
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// An agent cannot read the mail of others, posts only as itself or as its children, and cannot set
/// reserved labels.
#[test]
fn an_agents_token_reads_only_its_own_mail_and_posts_only_as_itself() {
    let world = without_router();
    let (ann, bob) = (
        granted_attempt(&world, "dev/ann", "worker"),
        granted_attempt(&world, "bob", "worker"),
    );
    let (ann, bob) = (
        ann["bearer"].as_str().unwrap(),
        bob["bearer"].as_str().unwrap(),
    );
    let says = |token: &str, verb: &str, input: Value| call_with_token(&world, token, verb, &input);
    let call_ok = |token: &str, verb: &str, input: Value| {
        let reply = says(token, verb, input.clone());
        assert_eq!(
            reply.status,
            200,
            "{verb} {input}: {}",
            String::from_utf8_lossy(&reply.body)
        );
        reply.json()["data"].clone()
    };
    let refused = |token: &str, verb: &str, input: Value| {
        let reply = says(token, verb, input.clone());
        assert_eq!(
            reply.status,
            403,
            "{verb} {input}: {}",
            String::from_utf8_lossy(&reply.body)
        );
    };
    world.run_ok(&["msg", "send", "@bob", "from a person, for bob"]);
    let asked = call_ok(
        ann,
        "msg.send",
        json!({ "channel": "@bob", "text": "psst, bob" }),
    );
    assert_eq!(asked["sender"], "dev/ann");
    let back = call_ok(
        bob,
        "msg.send",
        json!({ "channel": "@dev/ann", "text": "psst back", "reply_to": asked["id"] }),
    );
    assert_eq!(back["thread"], asked["id"]);
    // Each agent sees its own mailbox completely, and in other mailboxes only the messages that it
    // sent.
    let texts = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["text"].as_str().unwrap().to_owned())
            .collect()
    };
    let read = |token: &str, input: Value| texts(&call_ok(token, "msg.history", input));
    assert_eq!(
        read(bob, json!({ "channel": "@bob" })),
        ["from a person, for bob", "psst, bob"]
    );
    assert_eq!(read(ann, json!({ "channel": "@bob" })), ["psst, bob"]);
    assert_eq!(
        read(ann, json!({ "channel": "@bob", "from": "person:ann" })),
        ["psst, bob"]
    );
    assert_eq!(
        read(ann, json!({ "channel": "@bob", "search": "person" })),
        Vec::<String>::new()
    );
    assert_eq!(
        read(ann, json!({ "thread": asked["id"] })),
        ["psst, bob", "psst back"]
    );
    assert_eq!(
        read(ann, json!({})),
        Vec::<String>::new(),
        "the default is the project's channel"
    );
    refused(ann, "msg.history", json!({ "thread": "B1" }));
    refused(
        ann,
        "msg.wait",
        json!({ "reply_to": "B1", "timeout_ms": 1 }),
    );
    refused(
        ann,
        "msg.read",
        json!({ "agent": "bob", "channel": "@bob" }),
    );
    refused(
        ann,
        "msg.send",
        json!({ "channel": "@bob", "text": "x", "reply_to": "B1" }),
    );
    refused(ann, "msg.attachment", json!({ "message": "B1" }));
    refused(ann, "msg.history", json!({ "channel": "elsewhere" }));
    // A person can read the whole mailbox.
    assert_eq!(
        message_ids(&world.run_json(&["msg", "history", "@bob"])).len(),
        2
    );
    // An agent posts as itself or as a child.
    assert_eq!(
        call_ok(
            ann,
            "msg.send",
            json!({ "channel": "shop", "text": "x", "agent": "dev/ann/kid" })
        )["sender"],
        "dev/ann/kid"
    );
    for other in ["bob", "dev", "dev/anna", "dev/an"] {
        refused(
            ann,
            "msg.send",
            json!({ "channel": "shop", "text": "x", "agent": other }),
        );
    }
    for label in ["coord:merge", "lead:bob"] {
        refused(
            ann,
            "msg.send",
            json!({ "channel": "shop", "text": "x", "labels": [label] }),
        );
    }
    // Messages of a lead and of the workers below it carry the lead's label.
    let lead = granted_attempt(&world, "dev", "lead");
    let said = call_ok(
        lead["bearer"].as_str().unwrap(),
        "msg.send",
        json!({ "channel": "shop", "text": "I lead" }),
    );
    assert_eq!(said["labels"], json!(["lead:dev"]));
    let said = call_ok(
        ann,
        "msg.send",
        json!({ "channel": "shop", "text": "I work", "labels": ["note"] }),
    );
    assert_eq!(said["labels"], json!(["note", "lead:dev"]));
    // The inbox counts unread messages exactly.
    let inbox = call_ok(ann, "msg.inbox", json!({ "agent": "bob" }));
    let channel_entry = |inbox: &Value, channel: &str| {
        let found = inbox
            .as_array()
            .unwrap()
            .iter()
            .find(|entry| entry["channel"] == channel)
            .cloned();
        found.map_or((0, 0), |found| {
            (
                found["unread"].as_u64().unwrap(),
                found["mentions"].as_u64().unwrap(),
            )
        })
    };
    assert_eq!(
        (
            channel_entry(&inbox, "@dev/ann"),
            channel_entry(&inbox, "@bob").0
        ),
        ((1, 0), 0),
        "an agent gets its own inbox, whichever it asks for: {inbox}"
    );
    world.run_ok(&["msg", "send", "shop", "look, @dev/ann"]);
    assert_eq!(
        channel_entry(&world.run_json(&["msg", "inbox", "dev/ann"]), "shop"),
        (4, 1)
    );
    call_ok(
        ann,
        "msg.read",
        json!({ "agent": "dev/ann", "channel": "shop" }),
    );
    assert_eq!(
        channel_entry(&world.run_json(&["msg", "inbox", "dev/ann"]), "shop"),
        (0, 0)
    );
    let names = call_ok(
        ann,
        "name",
        json!({ "count": 3, "prefix": "dev/ann/worker-" }),
    );
    assert!(
        names.as_array().is_some_and(|names| names.len() == 3),
        "{names}"
    );
}

/// S6: attachments come only from files that the sender may read, are stored by their content, and
/// can be read by everyone who may read the message.
#[test]
fn s6_attachments_come_only_from_files_that_the_sender_may_read() {
    let world = without_router();
    world.write_file("notes.txt", "so it is\n");
    std::fs::write(world.repo.join("blob.bin"), [0_u8, 255, 7]).unwrap();
    let sent = world.run_json(&[
        "msg",
        "send",
        "shop",
        "see",
        "-a",
        "notes.txt",
        "--attach",
        "blob.bin",
    ]);
    let id = sent["id"].as_str().unwrap();
    assert_eq!(sent["attachments"][0]["name"], "notes.txt");
    world.write_file("notes.txt", "changed\n");
    assert_eq!(
        world.run_ok(&["msg", "attachment", id]),
        "so it is\n",
        "the content at the time of sending"
    );
    let to = world.root.join("got.bin");
    world.run_ok(&["msg", "attachment", id, "1", "-o", to.to_str().unwrap()]);
    assert_eq!(std::fs::read(&to).unwrap(), [0, 255, 7]);
    assert_eq!(
        world.run_refused(&["msg", "attachment", id, "2"], 1)["code"],
        "no_such_attachment"
    );
    assert!(
        world
            .run_ok(&["msg", "history", "shop"])
            .contains("0 notes.txt (9 bytes)")
    );
    let huge = world.root.join("huge");
    std::fs::File::create(&huge)
        .unwrap()
        .set_len(5 * 1024 * 1024)
        .unwrap();
    let refused = world.run_refused(
        &["msg", "send", "shop", "x", "-a", huge.to_str().unwrap()],
        1,
    );
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("larger than 4 MiB"),
        "{refused}"
    );
    let kept = std::fs::read_dir(world.data_dir.join("attachments"))
        .unwrap()
        .count();
    assert_eq!(kept, 2, "a refused attachment is not stored");

    // An operator can attach files of projects, an attempt files of its workspace, and neither can
    // attach the daemon's secrets.
    let operator = world.run_json(&["token", "add", "op", "--scope", "operator"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let grant = granted_attempt(&world, "ann", "worker");
    let attempt = grant["bearer"].as_str().unwrap();
    let workspace = std::path::PathBuf::from(grant["workspace"].as_str().unwrap());
    std::fs::write(workspace.join("mine.txt"), "mine\n").unwrap();
    std::os::unix::fs::symlink(world.data_dir.join("token"), workspace.join("sneaky")).unwrap();
    let send = |token: &str, path: &std::path::Path| {
        let input = json!({ "channel": "shop", "text": "see", "attach": [path] });
        call_with_token(&world, token, "msg.send", &input).status
    };
    assert_eq!(send(&operator, &world.repo.join("notes.txt")), 200);
    assert_eq!(send(attempt, std::path::Path::new("mine.txt")), 200);
    assert_eq!(send(attempt, &workspace.join("mine.txt")), 200);
    for path in [
        world.data_dir.join("token"),
        "/etc/passwd".into(),
        "../token".into(),
    ] {
        assert_eq!(
            (send(&operator, &path), send(attempt, &path)),
            (422, 422),
            "{path:?}"
        );
    }
    assert_eq!(
        send(attempt, std::path::Path::new("sneaky")),
        422,
        "a link out of the workspace was followed"
    );
    assert_eq!(
        send(attempt, &world.repo.join("notes.txt")),
        422,
        "the user's checkout is outside the workspace"
    );
    let read = call_with_token(&world, attempt, "msg.attachment", &json!({ "message": id }));
    assert_eq!(read.json()["data"]["text"], "so it is\n");
    // A stored file that was modified is not served (D8).
    let hash = sent["attachments"][0]["sha256"].as_str().unwrap();
    std::fs::write(
        world
            .data_dir
            .join("attachments")
            .join(&hash[..2])
            .join(&hash[2..]),
        "forged\n",
    )
    .unwrap();
    assert_eq!(
        world.run_refused(&["msg", "attachment", id], 1)["code"],
        "attachment_lost"
    );
}

/// Twelve agents post forty messages each at once. None is lost, each agent's order is kept, and
/// read positions are exact.
#[test]
fn twelve_agents_that_post_at_once_lose_nothing_and_keep_their_order() {
    const AGENTS: usize = 12;
    const MESSAGES_PER_AGENT: usize = 40;
    let world = without_router();
    world.run_ok(&["msg", "send", "shop", "begin"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let read_on = |agent: &str| -> Vec<Value> {
        let answer = api.call_ok("msg.read", json!({ "agent": agent, "channel": "shop" }));
        answer.as_array().unwrap().clone()
    };
    let mut heard = Vec::new();
    std::thread::scope(|scope| {
        for who in 0..AGENTS {
            let api = &api;
            scope.spawn(move || {
                for nth in 0..MESSAGES_PER_AGENT {
                    let text = format!("{who} says {nth}");
                    api.call_ok(
                        "msg.send",
                        json!({ "channel": "shop", "text": text, "agent": format!("agent-{who}") }),
                    );
                }
            });
        }
        // A listener reads while they post.
        assert!(wait_until(TEST_TIMEOUT, || {
            heard.extend(read_on("listener"));
            heard.len() > AGENTS * MESSAGES_PER_AGENT
        }));
    });
    assert_eq!(
        heard.len(),
        AGENTS * MESSAGES_PER_AGENT + 1,
        "each message once"
    );
    assert!(read_on("listener").is_empty());
    for who in 0..AGENTS {
        let sender = format!("agent-{who}");
        let said: Vec<&str> = heard
            .iter()
            .filter(|heard| heard["sender"] == sender.as_str())
            .map(|heard| heard["text"].as_str().unwrap())
            .collect();
        assert_eq!(
            said,
            (0..MESSAGES_PER_AGENT)
                .map(|nth| format!("{who} says {nth}"))
                .collect::<Vec<_>>()
        );
    }
    let inbox = api.call_ok("msg.inbox", json!({ "agent": "newcomer" }));
    assert_eq!(
        inbox,
        json!([{ "channel": "@newcomer", "read": "B0", "unread": 0, "mentions": 0 }])
    );
    api.call_ok(
        "msg.read",
        json!({ "agent": "newcomer", "channel": "shop", "keep_unread": true }),
    );
    assert_eq!(
        read_on("newcomer").len(),
        AGENTS * MESSAGES_PER_AGENT + 1,
        "`keep_unread` must leave all messages unread"
    );
}

#[test]
fn suggested_names_are_distinct_and_carry_the_prefix() {
    let world = without_router();
    let one = world.run_json(&["name"]);
    let one = one.as_str().unwrap();
    assert!(one.contains('-'), "{one}");
    let many = world.run_json(&["name", "200", "--prefix", "shop-dev/"]);
    let mut many: Vec<&str> = many
        .as_array()
        .unwrap()
        .iter()
        .map(|many| many.as_str().unwrap())
        .collect();
    assert!(
        many.len() == 200 && many.iter().all(|many| many.starts_with("shop-dev/")),
        "{many:?}"
    );
    many.sort_unstable();
    many.dedup();
    assert_eq!(many.len(), 200);
    assert_eq!(world.run_ok(&["name", "2"]).lines().count(), 2);
    let output = run_command(world.command(&["name", "--prefix", "a b"]), None);
    assert_eq!(output.exit_code, 2, "{output:?}");
}
