//! Who gets in: a token everywhere (S1), no foreign Host or Origin (S2), nobody beyond this machine, and no
//! secret where others read.

use std::os::unix::fs::PermissionsExt;

use regatta_api::VERBS;
use serde_json::{Value, json};

use crate::http::Door;
use crate::world::World;

/// Every verb, the stream and every other address, with each thing wrong: refused, and nothing changes.
#[test]
fn nobody_gets_in_without_the_token_or_from_elsewhere() {
    let world = World::new();
    world.ok(&["up"]);
    let door = Door::of(&world.data);
    let (address, token) = (door.address(), format!("Bearer {}", door.token));
    let port = address.rsplit(':').next().unwrap();
    let near = format!("{}0", &token[..token.len() - 1]);
    let near = if near == token { format!("{}1", &token[..token.len() - 1]) } else { near };
    let (right, own) = (("authorization", token.clone()), ("host", address.clone()));
    type Case<'a> = (&'a str, u16, Vec<(&'a str, String)>);
    let cases: Vec<Case<'_>> = vec![
        ("no_token", 401, vec![own.clone()]),
        ("no_token", 401, vec![own.clone(), ("authorization", near)]),
        ("no_token", 401, vec![own.clone(), ("authorization", format!("Basic {}", door.token))]),
        ("no_token", 401, vec![own.clone(), ("authorization", "Bearer ".into())]),
        ("foreign_host", 403, vec![("host", "evil.example".into()), right.clone()]),
        ("foreign_host", 403, vec![("host", format!("evil.example:{port}")), right.clone()]),
        ("foreign_host", 403, vec![("host", format!("127.0.0.1.evil.example:{port}")), right.clone()]),
        ("foreign_origin", 403, vec![own.clone(), right.clone(), ("origin", "http://evil.example".into())]),
        ("foreign_origin", 403, vec![own.clone(), right.clone(), ("origin", "null".into())]),
        ("foreign_origin", 403, vec![own.clone(), right.clone(), ("origin", format!("https://{address}"))]),
    ];
    let before = world.events();
    let mut asked = 0;
    let verbs = VERBS.iter().map(|it| ("POST", format!("/api/v1/{}", it.name)));
    let others = ["/api/v1/events?after=0", "/healthz", "/", "/api/v1/no.such.verb"].map(|it| ("GET", it.to_owned()));
    for (method, path) in verbs.chain(others) {
        for (code, status, headers) in &cases {
            let reply = door.over_tcp(method, &path, headers, b"{}");
            assert_eq!(reply.status, *status, "{method} {path} {headers:?}: {reply:?}");
            let problem = reply.json();
            assert_eq!(problem["code"], *code, "{path}: {problem}");
            assert!(!problem["hint"].as_str().unwrap().is_empty(), "{path}: {problem}");
            assert!(!String::from_utf8_lossy(&reply.body).contains(&door.token), "{path}: {problem}");
            asked += 1;
        }
    }
    assert!(asked >= 10 * (VERBS.len() + 4));
    assert_eq!(world.events(), before, "nothing changed");
    // With everything right, the same addresses answer.
    let reply = door.over_tcp("POST", "/api/v1/status", &[own, right, ("origin", format!("http://{address}"))], b"{}");
    assert_eq!(reply.status, 200, "{reply:?}");
    let ran = crate::world::run(
        {
            let mut command = world.command(&["status", "--server", &format!("http://{address}"), "--json"]);
            command.env("REGATTA_TOKEN", "wrong");
            command
        },
        None,
    );
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("no_token"), "{ran:?}");
}

/// What is kept is its owner's alone.
#[test]
fn the_data_directory_is_its_owners_alone() {
    let world = World::set_up();
    world.ok(&["up"]);
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&world.data), 0o700);
    for name in ["token", "regatta.db", "daemon.json", "daemon.sock", "daemon.lock"] {
        assert_eq!(mode(&world.data.join(name)), 0o600, "{name}");
    }
    for entry in std::fs::read_dir(&world.data).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.is_dir() || mode(&path) & 0o077 == 0, "{}", path.display());
    }
    assert!(std::fs::read_to_string(world.data.join("token")).unwrap().trim().len() >= 64, "256 bits");
}

/// The daemon speaks to this machine only.
#[test]
fn the_daemon_listens_on_loopback_only() {
    let world = World::new();
    for address in ["0.0.0.0:0", "[::]:0", "192.168.1.1:0", "example.com:80", "nonsense", ""] {
        let error = world.refused(&["serve", "--listen", address], 2);
        assert!(!error["hint"].as_str().unwrap().is_empty(), "{address}: {error}");
        assert!(world.card().is_none(), "{address}");
    }
    let mut command = world.command(&["up", "--json"]);
    command.env("REGATTA_LISTEN", "0.0.0.0:7777");
    let ran = crate::world::run(command, None);
    assert!(ran.code != 0 && ran.err.contains("beyond this machine"), "{ran:?}");
}

/// Tokens of claims and attempts are nowhere but in the answer to who got them.
#[test]
fn tokens_are_shown_to_their_holders_only() {
    let world = World::set_up();
    world.ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world.ok(&["task", "add", "Hello", "--files", "h.txt"]);
    world.json(&["claim", "acquire", "file://x/y", "--as", "zoe"]);
    world.json(&["task", "poll", "--as", "zoe"]);
    fn tokens(value: &Value, found: &mut Vec<Value>) {
        match value {
            Value::Object(it) => it.iter().for_each(|(name, value)| {
                if name.contains("token") && *value != json!(0) {
                    found.push(value.clone());
                }
                tokens(value, found);
            }),
            Value::Array(it) => it.iter().for_each(|it| tokens(it, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    world.events().iter().for_each(|it| tokens(it, &mut found));
    for args in [
        &["claim", "list"][..],
        &["claim", "check", "file://x/y"],
        &["task", "list"],
        &["show", "T1"],
        &["show", "A1"],
        &["show", "zoe"],
        &["why", "T1"],
        &["status"],
        &["queue"],
        &["agent", "list"],
    ] {
        tokens(&world.answer(args).0, &mut found);
    }
    assert_eq!(found, [] as [Value; 0]);
    let secret = Door::of(&world.data).token;
    let log = std::fs::read_to_string(world.data.join("logs/daemon.log")).unwrap_or_default();
    assert!(!log.contains(&secret), "S4");
}

/// A killed daemon leaves its card behind, and its port may be anybody's by then: nobody is shown the token.
#[test]
fn the_token_is_not_shown_to_whoever_has_the_port_now() {
    let world = World::new();
    let pid = world.json(&["up"])["pid"].as_u64().unwrap() as u32;
    let address = Door::of(&world.data).address();
    assert!(world.processes().contains(&pid));
    crate::world::kill(pid);
    assert!(crate::world::until(crate::world::LONG, || !crate::world::alive(pid)));
    assert!(world.card().is_some(), "nobody took it away");
    let stranger = std::net::TcpListener::bind(&address).unwrap();
    stranger.set_nonblocking(true).unwrap();
    assert_ne!(world.json(&["up"])["pid"], pid, "a new daemon was started");
    world.json(&["status"]);
    let heard = stranger.accept().map(|_| ()).map_err(|it| it.kind());
    assert_eq!(heard, Err(std::io::ErrorKind::WouldBlock), "S1: somebody else was called");
}
