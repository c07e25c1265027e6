//! Access: every request needs a token (S1), foreign Host and Origin headers are refused (S2), the
//! daemon listens on loopback only, and no secret is readable by others.

use std::os::unix::fs::PermissionsExt;

use regatta_api::VERBS;
use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::world::World;

/// Every verb and every other address refuses each kind of wrong header, and nothing changes.
#[test]
fn requests_without_a_token_or_with_a_foreign_host_or_origin_are_refused() {
    let world = World::new();
    world.run_ok(&["up"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let (address, token) = (api.address(), format!("Bearer {}", api.token));
    let port = address.rsplit(':').next().unwrap();
    let near = format!("{}0", &token[..token.len() - 1]);
    let near = if near == token {
        format!("{}1", &token[..token.len() - 1])
    } else {
        near
    };
    let (right, own) = (("authorization", token.clone()), ("host", address.clone()));
    type Case<'a> = (&'a str, u16, Vec<(&'a str, String)>);
    let cases: Vec<Case<'_>> = vec![
        ("no_token", 401, vec![own.clone()]),
        ("no_token", 401, vec![own.clone(), ("authorization", near)]),
        (
            "no_token",
            401,
            vec![
                own.clone(),
                ("authorization", format!("Basic {}", api.token)),
            ],
        ),
        (
            "no_token",
            401,
            vec![own.clone(), ("authorization", "Bearer ".into())],
        ),
        (
            "foreign_host",
            403,
            vec![("host", "evil.example".into()), right.clone()],
        ),
        (
            "foreign_host",
            403,
            vec![("host", format!("evil.example:{port}")), right.clone()],
        ),
        (
            "foreign_host",
            403,
            vec![
                ("host", format!("127.0.0.1.evil.example:{port}")),
                right.clone(),
            ],
        ),
        (
            "foreign_origin",
            403,
            vec![
                own.clone(),
                right.clone(),
                ("origin", "http://evil.example".into()),
            ],
        ),
        (
            "foreign_origin",
            403,
            vec![own.clone(), right.clone(), ("origin", "null".into())],
        ),
        (
            "foreign_origin",
            403,
            vec![
                own.clone(),
                right.clone(),
                ("origin", format!("https://{address}")),
            ],
        ),
    ];
    let before = world.events();
    let mut asked = 0;
    let verbs = VERBS
        .iter()
        .map(|verb| ("POST", format!("/api/v1/{}", verb.name)));
    let others = [
        "/api/v1/events?after=0",
        "/api/v1/live?topics=head",
        "/api/v1/page/tasks",
        "/api/v1/page/agents",
        "/api/v1/page/events",
        "/api/v1/page/events/1",
        "/api/v1/page/diff/T1",
        "/api/v1/page/diff/T1/0",
        "/api/v1/page/diff/T1/0/lines?from=1&to=9",
        "/api/v1/page/task/T1/checks",
        "/api/v1/page/attempt/A1/result",
        "/api/v1/page/log/A1",
        "/api/v1/page/log/A1/0",
        "/api/v1/page/log-search/A1?q=x",
        "/api/v1/page/log-raw/A1",
        "/metrics",
        "/enter",
        "/no/such/page",
        "/me",
        "/api/agents",
        "/api/poll",
        "/mcp",
        "/api/v1/",
        "/api/v1/openapi.json",
        "/api/v1/no.such.verb",
        "/git/shop/info/refs?service=git-upload-pack",
    ]
    .map(|path| ("GET", path.to_owned()));
    let posts = [
        "/mcp",
        "/api/agents",
        "/api/poll",
        "/api/tasks",
        "/api/tasks/T1/finish",
        "/close",
        "/ping",
        "/git/shop/git-receive-pack",
    ];
    let others = others
        .into_iter()
        .chain(posts.map(|post| ("POST", post.to_owned())));
    for (method, path) in verbs.chain(others) {
        for (code, status, headers) in &cases {
            let reply = api.request_over_tcp(method, &path, headers, b"{}");
            assert_eq!(
                reply.status, *status,
                "{method} {path} {headers:?}: {reply:?}"
            );
            let problem = reply.json();
            assert_eq!(problem["code"], *code, "{path}: {problem}");
            assert!(
                !problem["hint"].as_str().unwrap().is_empty(),
                "{path}: {problem}"
            );
            assert!(
                !String::from_utf8_lossy(&reply.body).contains(&api.token),
                "{path}: {problem}"
            );
            asked += 1;
        }
    }
    assert!(asked >= 10 * (VERBS.len() + 17));
    // The page's files need no token, because they say nothing of the fleet. Foreign hosts and
    // origins do not get them.
    for path in ["/", "/t/T1", "/agents/x"] {
        let reply = api.request_over_tcp("GET", path, std::slice::from_ref(&own), b"");
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        assert!(
            reply.body.starts_with(b"<!doctype html>"),
            "{path}: {reply:?}"
        );
        for (code, status, headers) in cases.iter().filter(|case| case.1 == 403) {
            let reply = api.request_over_tcp("GET", path, headers, b"");
            assert_eq!(
                (reply.status, &reply.json()["code"]),
                (*status, &json!(code)),
                "{path}"
            );
        }
    }
    let missing = api.request_over_tcp(
        "GET",
        "/assets/index-0000.js",
        std::slice::from_ref(&own),
        b"",
    );
    assert_eq!(
        (missing.status, &missing.json()["code"]),
        (404, &json!("no_such_page")),
        "a missing file must not give the index page"
    );
    // The health checks need no token either, and are refused to foreign hosts and origins.
    for path in ["/healthz", "/readyz"] {
        let reply = api.request_over_tcp("GET", path, std::slice::from_ref(&own), b"");
        assert_eq!(
            (reply.status, reply.body.len() < 16),
            (200, true),
            "{path}: {reply:?}"
        );
        for (code, status, headers) in cases.iter().filter(|case| case.1 == 403) {
            let reply = api.request_over_tcp("GET", path, headers, b"");
            assert_eq!(
                (reply.status, &reply.json()["code"]),
                (*status, &json!(code)),
                "{path}"
            );
        }
    }
    assert_eq!(world.events(), before, "nothing changed");
    // With correct headers the address answers.
    let reply = api.request_over_tcp(
        "POST",
        "/api/v1/status",
        &[own, right, ("origin", format!("http://{address}"))],
        b"{}",
    );
    assert_eq!(reply.status, 200, "{reply:?}");
    let output = crate::world::run_command(
        {
            let mut command =
                world.command(&["status", "--server", &format!("http://{address}"), "--json"]);
            command.env("REGATTA_TOKEN", "wrong");
            command
        },
        None,
    );
    assert_eq!(output.exit_code, 1, "{output:?}");
    assert!(output.stderr.contains("no_token"), "{output:?}");
}

/// A browser trades a one-time code for a cookie and a key with the scope of the token. Neither the
/// cookie nor the key opens anything alone, and a page of another origin cannot use them (S1, S2,
/// S10).
#[test]
fn a_one_time_code_gives_a_browser_access_once_s1() {
    let world = World::with_project();
    world.run_ok(&["up"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let address = api.address();
    let host_header = ("host", address.clone());
    let cookie_of = |code: &str| {
        let body = json!({ "code": code }).to_string();
        let reply = api.request_over_tcp(
            "POST",
            "/enter",
            std::slice::from_ref(&host_header),
            body.as_bytes(),
        );
        let cookie = reply
            .head_text
            .lines()
            .find_map(|head_text| head_text.strip_prefix("set-cookie: "))
            .map(str::to_owned);
        (reply, cookie)
    };
    let url = world.run_ok(&["open"]).trim().to_owned();
    let (base, code) = url.split_once('#').unwrap();
    assert_eq!(base, format!("http://{address}/"));
    let (reply, cookie) = cookie_of(code);
    assert_eq!(
        (reply.status, &reply.json()["scope"]),
        (200, &json!("admin")),
        "{reply:?}"
    );
    let cookie = cookie.unwrap();
    assert!(
        cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"),
        "{cookie}"
    );
    let (again, none) = cookie_of(code);
    assert_eq!(
        (again.status, &again.json()["code"], none),
        (401, &json!("bad_code"), None)
    );
    let pass = ("cookie", cookie.split(';').next().unwrap().to_owned());
    let key = (
        "x-regatta-page",
        reply.json()["key"].as_str().unwrap().to_owned(),
    );
    let status_with = |headers: &[(&str, String)]| {
        api.request_over_tcp("POST", "/api/v1/status", headers, b"{}")
            .status
    };
    assert_eq!(
        status_with(&[host_header.clone(), pass.clone(), key.clone()]),
        200
    );
    assert_eq!(
        status_with(&[host_header.clone(), pass.clone()]),
        401,
        "a browser sends the cookie to every port of this machine"
    );
    assert_eq!(status_with(&[host_header.clone(), key.clone()]), 401);
    assert_eq!(
        status_with(&[
            host_header.clone(),
            pass.clone(),
            key.clone(),
            ("origin", "http://127.0.0.1:1".into())
        ]),
        403
    );
    // A page has the scope of the token that opened it, so a viewer's page changes nothing.
    let viewer = world
        .run_ok(&["token", "add", "vic", "--scope", "viewer"])
        .trim()
        .to_owned();
    let opened = api.request_over_tcp(
        "POST",
        "/api/v1/open",
        &[
            host_header.clone(),
            ("authorization", format!("Bearer {viewer}")),
        ],
        b"{}",
    );
    let (reply, cookie) = cookie_of(opened.json()["data"]["code"].as_str().unwrap());
    assert_eq!(reply.json()["scope"], "viewer");
    let pass = (
        "cookie",
        cookie.unwrap().split(';').next().unwrap().to_owned(),
    );
    let key = (
        "x-regatta-page",
        reply.json()["key"].as_str().unwrap().to_owned(),
    );
    assert_eq!(
        status_with(&[host_header.clone(), pass.clone(), key.clone()]),
        200
    );
    let stop = api.request_over_tcp(
        "POST",
        "/api/v1/stop",
        &[host_header.clone(), pass.clone(), key.clone()],
        b"{}",
    );
    assert_eq!(
        (stop.status, &stop.json()["code"]),
        (403, &json!("wrong_scope"))
    );
    world.run_ok(&["token", "rm", "vic"]);
    assert_eq!(
        status_with(&[host_header, pass, key]),
        401,
        "access must end with its token"
    );
}

/// Only the owner can read the files of the data directory.
#[test]
fn only_the_owner_can_read_the_data_directory() {
    let world = World::with_project();
    world.run_ok(&["up"]);
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&world.data_dir), 0o700);
    for name in [
        "token",
        "regatta.db",
        "daemon.json",
        "daemon.sock",
        "daemon.lock",
    ] {
        assert_eq!(mode(&world.data_dir.join(name)), 0o600, "{name}");
    }
    for entry in std::fs::read_dir(&world.data_dir).unwrap() {
        let path = entry.unwrap().path();
        assert!(
            path.is_dir() || mode(&path) & 0o077 == 0,
            "{}",
            path.display()
        );
    }
    assert!(
        std::fs::read_to_string(world.data_dir.join("token"))
            .unwrap()
            .trim()
            .len()
            >= 64,
        "256 bits"
    );
}

/// Without TLS the daemon listens on loopback only.
#[test]
fn the_daemon_listens_on_loopback_only() {
    let world = World::new();
    for address in [
        "0.0.0.0:0",
        "[::]:0",
        "192.168.1.1:0",
        "example.com:80",
        "nonsense",
        "",
    ] {
        let error = world.run_refused(&["serve", "--listen", address], 2);
        assert!(
            !error["hint"].as_str().unwrap().is_empty(),
            "{address}: {error}"
        );
        assert!(world.daemon_info().is_none(), "{address}");
    }
    let mut command = world.command(&["up", "--json"]);
    command.env("REGATTA_LISTEN", "0.0.0.0:7777");
    let output = crate::world::run_command(command, None);
    assert!(
        output.exit_code != 0 && output.stderr.contains("reachable from other machines"),
        "{output:?}"
    );
    // A certificate without its key and an invalid certificate are refused before anything listens.
    let nonsense = world.root.join("nonsense.pem");
    std::fs::write(&nonsense, "nonsense").unwrap();
    let nonsense = nonsense.to_str().unwrap();
    world.run_refused(
        &["serve", "--listen", "0.0.0.0:0", "--tls-cert", nonsense],
        2,
    );
    let error = world.run_refused(
        &[
            "serve",
            "--listen",
            "0.0.0.0:0",
            "--tls-cert",
            nonsense,
            "--tls-key",
            nonsense,
        ],
        1,
    );
    assert_eq!(error["code"], "bad_config", "{error}");
    assert!(world.daemon_info().is_none());
}

/// With a certificate other machines connect by TLS. Programs on this machine keep using loopback.
#[test]
fn other_machines_connect_only_by_tls() {
    let world = World::new();
    let made =
        rcgen::generate_simple_self_signed(["regatta.example".to_owned(), "127.0.0.1".to_owned()])
            .unwrap();
    let (cert, key) = (world.root.join("cert.pem"), world.root.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let flags = [
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        cert,
        "--tls-key",
        key,
        "--host",
        "regatta.example",
    ];
    let card = world.run_json(&[&["up"][..], &flags].concat());
    let outside = card["outside"]
        .as_str()
        .unwrap()
        .replace("regatta.example", "127.0.0.1");
    assert!(outside.starts_with("https://127.0.0.1:"), "{card}");
    assert!(
        card["url"]
            .as_str()
            .unwrap()
            .starts_with("http://127.0.0.1:"),
        "{card}"
    );
    assert!(
        world.run_json(&["status"]).is_object(),
        "the socket still works"
    );
    let api = ApiClient::for_data_dir(&world.data_dir);
    let far = |ca: &str, token: &str| {
        let mut command = world.command(&["status", "--json", "--server", &outside]);
        command
            .env("REGATTA_TLS_CA", ca)
            .env("REGATTA_TOKEN", token);
        crate::world::run_command(command, None)
    };
    let ran = far(cert, &api.token);
    assert_eq!(ran.exit_code, 0, "{ran:?}");
    assert!(far(cert, "wrong").stderr.contains("no_token"), "S1");
    let unknown = far("/dev/null", &api.token);
    assert!(
        unknown.exit_code != 0 && unknown.stderr.contains("no_tls"),
        "an unknown certificate is not trusted: {unknown:?}"
    );
    // A plain connection to that port gets no answer.
    let address = outside.trim_start_matches("https://").trim_end_matches('/');
    let mut plain = std::net::TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut plain, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut heard = Vec::new();
    let _cut = std::io::Read::read_to_end(&mut plain, &mut heard);
    assert!(
        !String::from_utf8_lossy(&heard).contains("HTTP"),
        "{heard:?}"
    );
    let refused = world.run_refused(&["up", "--listen", "127.0.0.1:1"], 1);
    assert_eq!(refused["code"], "already_running", "{refused}");
}

/// The tokens of claims and attempts appear only in the answer to their holder.
#[test]
fn tokens_are_shown_to_their_holders_only() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world.run_ok(&["task", "add", "Hello", "--files", "h.txt"]);
    world.run_json(&["claim", "acquire", "file://shop/y", "--as", "zoe"]);
    world.run_json(&["task", "poll", "--as", "zoe"]);
    fn collect_tokens(value: &Value, found: &mut Vec<Value>) {
        match value {
            Value::Object(object) => object.iter().for_each(|(name, value)| {
                if name.contains("token") && *value != json!(0) {
                    found.push(value.clone());
                }
                collect_tokens(value, found);
            }),
            Value::Array(items) => items.iter().for_each(|value| collect_tokens(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    world
        .events()
        .iter()
        .for_each(|event| collect_tokens(event, &mut found));
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
        collect_tokens(&world.run_json_any_exit(args).0, &mut found);
    }
    assert_eq!(found, [] as [Value; 0]);
    let secret = ApiClient::for_data_dir(&world.data_dir).token;
    let log = std::fs::read_to_string(world.data_dir.join("logs/daemon.log")).unwrap_or_default();
    assert!(!log.contains(&secret), "S4");
}

/// A killed daemon leaves its card behind, and another program may use its port by then. The token
/// is not sent to that program.
#[test]
fn the_token_is_not_sent_to_another_program_on_the_old_port() {
    let world = World::new();
    let pid = world.run_json(&["up"])["pid"].as_u64().unwrap() as u32;
    let address = ApiClient::for_data_dir(&world.data_dir).address();
    assert!(world.processes().contains(&pid));
    crate::world::kill_process(pid);
    assert!(crate::world::wait_until(crate::world::TEST_TIMEOUT, || {
        !crate::world::is_alive(pid)
    }));
    assert!(
        world.daemon_info().is_some(),
        "the killed daemon's card is gone"
    );
    let stranger = std::net::TcpListener::bind(&address).unwrap();
    stranger.set_nonblocking(true).unwrap();
    assert_ne!(
        world.run_json(&["up"])["pid"],
        pid,
        "a new daemon was started"
    );
    world.run_json(&["status"]);
    let heard = stranger.accept().map(|_| ()).map_err(|error| error.kind());
    assert_eq!(
        heard,
        Err(std::io::ErrorKind::WouldBlock),
        "S1: a command called the other program"
    );
}
