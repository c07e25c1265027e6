//! Every address that is not a verb: which tokens may use it, and which may not (S1, S2, S10).

use regatta_api::verb::TokenScope;
use serde_json::json;

use crate::http::ApiClient;
use crate::world::{World, run_command};

/// The sources of the server's route tables.
const ROUTER_SOURCES: [&str; 2] = [
    include_str!("../../../regatta-server/src/lib.rs"),
    include_str!("../../../regatta-server/src/live/mod.rs"),
];

/// The tokens that may use an address.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AllowedTokens {
    /// Any valid token.
    All,
    /// Tokens that may read everything.
    Readers,
    /// Tokens that may read everything, and runners.
    ReadersAndRunners,
    /// Operators and admins. Attempts may use it only for their own work, and none of the cases
    /// here is.
    Operators,
    /// Operators and admins, and runners.
    OperatorsAndRunners,
    /// Operators and admins, and attempts.
    OperatorsAndAttempts,
    /// Runners only.
    Runners,
}

impl AllowedTokens {
    /// Returns the words of the reference for these tokens.
    fn label(self) -> &'static str {
        match self {
            AllowedTokens::All => "any token",
            AllowedTokens::Readers => "viewer",
            AllowedTokens::ReadersAndRunners => "viewer, also a runner",
            AllowedTokens::Operators => "operator",
            AllowedTokens::OperatorsAndRunners => "operator, also a runner",
            AllowedTokens::OperatorsAndAttempts => "operator, also an attempt",
            AllowedTokens::Runners => "only a runner",
        }
    }

    fn allows(self, scope: TokenScope) -> bool {
        let operates = matches!(scope, TokenScope::Admin | TokenScope::Operator);
        match self {
            AllowedTokens::All => true,
            AllowedTokens::Readers => scope.can_read_all(),
            AllowedTokens::ReadersAndRunners => scope.can_read_all() || scope == TokenScope::Runner,
            AllowedTokens::Operators => operates,
            AllowedTokens::OperatorsAndRunners => operates || scope == TokenScope::Runner,
            AllowedTokens::OperatorsAndAttempts => {
                operates || matches!(scope, TokenScope::Attempt | TokenScope::Lead)
            }
            AllowedTokens::Runners => scope == TokenScope::Runner,
        }
    }
}

/// The addresses in the reference, with the tokens that may use them.
const REFERENCE_ROUTES: &str = include_str!("../../../../xtask/src/reference/routes.txt");

/// Returns whether a path belongs to a route as the router writes it, such as
/// `/git/{project}/info/refs`.
fn fits(written: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let (left, right): (Vec<&str>, Vec<&str>) =
        (written.split('/').collect(), path.split('/').collect());
    left.len() == right.len()
        && left
            .iter()
            .zip(&right)
            .all(|(one, two)| one.starts_with('{') || one == two)
}

/// The address, the method, a body that changes nothing, and the tokens that may use the address.
const ADDRESSES: [(&str, &str, &str, AllowedTokens); 33] = [
    (
        "/api/v1/events?after=0&follow=false",
        "GET",
        "",
        AllowedTokens::Readers,
    ),
    ("/api/v1/openapi.json", "GET", "", AllowedTokens::All),
    ("/api/v1/", "GET", "", AllowedTokens::All),
    ("/metrics", "GET", "", AllowedTokens::Readers),
    (
        "/api/v1/live?topics=head&follow=false",
        "GET",
        "",
        AllowedTokens::Readers,
    ),
    ("/api/v1/page/tasks", "GET", "", AllowedTokens::Readers),
    ("/api/v1/page/agents", "GET", "", AllowedTokens::Readers),
    ("/api/v1/page/events", "GET", "", AllowedTokens::Readers),
    ("/api/v1/page/events/99", "GET", "", AllowedTokens::Readers),
    ("/api/v1/page/diff/T99", "GET", "", AllowedTokens::Readers),
    ("/api/v1/page/diff/T99/0", "GET", "", AllowedTokens::Readers),
    (
        "/api/v1/page/diff/T99/0/lines",
        "GET",
        "",
        AllowedTokens::Readers,
    ),
    (
        "/api/v1/page/task/T99/checks",
        "GET",
        "",
        AllowedTokens::Readers,
    ),
    (
        "/api/v1/page/attempt/A99/result",
        "GET",
        "",
        AllowedTokens::Readers,
    ),
    ("/api/v1/page/log/A99", "GET", "", AllowedTokens::Readers),
    ("/api/v1/page/log/A99/0", "GET", "", AllowedTokens::Readers),
    (
        "/api/v1/page/log-search/A99?q=x",
        "GET",
        "",
        AllowedTokens::Readers,
    ),
    (
        "/api/v1/page/log-raw/A99",
        "GET",
        "",
        AllowedTokens::Readers,
    ),
    ("/api/agents", "GET", "", AllowedTokens::ReadersAndRunners),
    (
        "/api/agents",
        "POST",
        "{\"name\":7}",
        AllowedTokens::OperatorsAndRunners,
    ),
    (
        "/api/agents",
        "POST",
        "{\"name\":\"new\",\"maxTasks\":0}",
        AllowedTokens::OperatorsAndRunners,
    ),
    ("/me", "GET", "", AllowedTokens::All),
    ("/api/poll", "GET", "", AllowedTokens::OperatorsAndRunners),
    ("/api/poll", "POST", "", AllowedTokens::OperatorsAndRunners),
    ("/close", "POST", "", AllowedTokens::OperatorsAndRunners),
    ("/ping", "POST", "", AllowedTokens::All),
    (
        "/api/tasks",
        "POST",
        "{\"task\":\"\"}",
        AllowedTokens::OperatorsAndAttempts,
    ),
    (
        "/api/tasks/T99/finish",
        "POST",
        "{\"status\":\"completed\"}",
        AllowedTokens::Operators,
    ),
    (
        "/api/tasks/T99/progress",
        "POST",
        "{\"progress\":\"x\"}",
        AllowedTokens::Operators,
    ),
    (
        "/mcp",
        "POST",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
        AllowedTokens::All,
    ),
    (
        "/git/shop/info/refs?service=git-upload-pack",
        "GET",
        "",
        AllowedTokens::ReadersAndRunners,
    ),
    (
        "/git/shop/git-upload-pack",
        "POST",
        "0000",
        AllowedTokens::ReadersAndRunners,
    ),
    (
        "/git/shop/git-receive-pack",
        "POST",
        "nonsense",
        AllowedTokens::Runners,
    ),
];

/// S1, S2, S10: every address that is not a verb refuses a missing token, a wrong token, a scope
/// that may not use it, a foreign Host and a foreign Origin. Nothing changes, and the test fails if
/// a route is missing in its table.
#[test]
fn s10_every_address_refuses_tokens_outside_its_scope() {
    let world = World::with_project();
    let api_client = ApiClient::for_data_dir(&world.data_dir);
    api_client.call_ok(
        "agent.add",
        json!({ "name": "ann", "runtime": "outside", "max_tasks": 1 }),
    );
    api_client.call_ok(
        "agent.add",
        json!({ "name": "eve", "runtime": "outside", "role": "lead", "max_tasks": 1 }),
    );
    let mut tokens: Vec<(TokenScope, String)> = [
        TokenScope::Admin,
        TokenScope::Operator,
        TokenScope::Viewer,
        TokenScope::Runner,
    ]
    .map(|scope| {
        let made = world.run_json(&[
            "token",
            "add",
            &format!("the-{scope}"),
            "--scope",
            &scope.to_string(),
        ]);
        (scope, made["token"].as_str().unwrap().to_owned())
    })
    .into();
    for (name, scope) in [("ann", TokenScope::Attempt), ("eve", TokenScope::Lead)] {
        world.run_ok(&[
            "add",
            &format!("Work of {name}"),
            "--files",
            &format!("{name}.txt"),
            "--validate",
            "true",
        ]);
        let granted = api_client.call_ok("task.poll", json!({ "agent": name }));
        tokens.push((scope, granted["bearer"].as_str().unwrap().to_owned()));
    }
    let (own, evil) = (
        ("host", api_client.address()),
        "http://evil.example".to_owned(),
    );
    let shows = |token: &str| ("authorization", format!("Bearer {token}"));
    let before = world.events();
    let mut wrong = Vec::new();
    for (path, method, body, whom) in ADDRESSES {
        let send = |headers: &[(&str, String)]| {
            let headers = [headers, &[("x-agent-id", "nobody".to_owned())]].concat();
            api_client.request_over_tcp(method, path, &headers, body.as_bytes())
        };
        let refused = |code: &str, status: u16, headers: &[(&str, String)]| {
            let reply = send(headers);
            let (said, problem) = (reply.status, reply.json());
            assert_eq!(
                (said, problem["code"].as_str()),
                (status, Some(code)),
                "{method} {path} {headers:?}: {problem}"
            );
        };
        refused("no_token", 401, std::slice::from_ref(&own));
        refused("no_token", 401, &[own.clone(), shows("nonsense")]);
        for (scope, token) in &tokens {
            refused(
                "foreign_host",
                403,
                &[("host", "evil.example".into()), shows(token)],
            );
            refused(
                "foreign_origin",
                403,
                &[own.clone(), shows(token), ("origin", evil.clone())],
            );
            let reply = send(&[own.clone(), shows(token)]);
            let code = reply.json()["code"].as_str().unwrap_or_default().to_owned();
            let kept_out =
                reply.status == 403 && ["wrong_scope", "not_yours"].contains(&code.as_str());
            if kept_out == whom.allows(*scope) {
                wrong.push(format!(
                    "{method} {path} as {scope}: {} {code}",
                    reply.status
                ));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(world.events(), before, "nothing changed");
    // The reference names the same scopes.
    for (path, method, _, whom) in ADDRESSES {
        let path = path.split('?').next().unwrap_or_default();
        let row = REFERENCE_ROUTES.lines().find(|row| {
            let address = row.split(" | ").next().unwrap_or_default();
            address
                .split_once(' ')
                .is_some_and(|(its_method, written)| its_method == method && fits(written, path))
        });
        let token = row.and_then(|row| row.split(" | ").nth(1));
        assert!(
            token.is_some_and(|token| token.contains(whom.label())),
            "routes.txt does not name `{}` for {method} {path}: {row:?}",
            whom.label()
        );
    }
    // A new route must have an entry in the table of this test. Exceptions are the two health
    // checks, which reveal nothing, and the address where a browser trades its code, because it has
    // no token yet.
    let open = ["/healthz", "/readyz", "/enter"];
    let routes = ROUTER_SOURCES
        .iter()
        .flat_map(|source| source.split(".route(\"").skip(1))
        .filter_map(|rest| rest.split('"').next());
    for written in routes {
        let tried = open.contains(&written)
            || written == "/api/v1/{verb}"
            || ADDRESSES.iter().any(|address| fits(written, address.0));
        assert!(tried, "{written} is missing in this test");
    }
    for (path, method) in [("/healthz", "GET"), ("/readyz", "GET"), ("/enter", "POST")] {
        let foreign =
            api_client.request_over_tcp(method, path, &[("host", "evil.example".into())], b"{}");
        assert_eq!(
            (foreign.status, &foreign.json()["code"]),
            (403, &json!("foreign_host")),
            "{path}"
        );
        let foreign = api_client.request_over_tcp(
            method,
            path,
            &[own.clone(), ("origin", evil.clone())],
            b"{}",
        );
        assert_eq!(
            (foreign.status, &foreign.json()["code"]),
            (403, &json!("foreign_origin")),
            "{path}"
        );
    }
    let guess = api_client.request_over_tcp(
        "POST",
        "/enter",
        std::slice::from_ref(&own),
        br#"{"code":"aaaaaaaaaaaaaaaa"}"#,
    );
    assert_eq!(
        (guess.status, &guess.json()["code"]),
        (401, &json!("bad_code"))
    );
}

/// An invalid git request gets a complete answer with status 400 instead of a stream that breaks
/// off.
#[test]
fn an_invalid_git_request_gets_a_complete_answer_with_400() {
    let world = World::with_project();
    world.run_ok(&["up"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let runner = world.run_json(&["token", "add", "box", "--scope", "runner"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let headers = |more: &[(&'static str, &str)]| {
        let mut all = vec![
            ("host", api.address()),
            ("authorization", format!("Bearer {runner}")),
        ];
        all.extend(
            more.iter()
                .map(|(name, value)| (*name, (*value).to_owned())),
        );
        all
    };
    let odd = [("git-protocol", "version=2;x y")];
    type Case<'a> = (&'a str, &'a str, &'a [u8], &'a [(&'static str, &'a str)]);
    let cases: [Case; 4] = [
        (
            "GET",
            "/git/shop/info/refs?service=git-upload-pack",
            b"",
            &odd,
        ),
        ("POST", "/git/shop/git-upload-pack", b"0000", &odd),
        ("POST", "/git/shop/git-receive-pack", b"nonsense", &[]),
        (
            "POST",
            "/git/shop/git-receive-pack",
            b"not gzip",
            &[("content-encoding", "gzip")],
        ),
    ];
    for (method, path, body, more) in cases {
        let reply = api.request_over_tcp(method, path, &headers(more), body);
        let problem = reply.json();
        assert_eq!(
            (reply.status, problem["code"].as_str()),
            (400, Some("bad_request")),
            "{method} {path}: {reply:?}"
        );
        assert!(
            !problem["hint"].as_str().unwrap_or_default().is_empty(),
            "{problem}"
        );
        // RFC 9457.
        assert_eq!(problem["type"], "urn:regatta:problem:bad_request");
        assert_eq!(
            (&problem["title"], &problem["detail"]),
            (&json!("bad request"), &problem["message"])
        );
    }
    assert_eq!(
        api.request_over_tcp("POST", "/git/shop/git-upload-pack", &headers(&[]), b"0000")
            .status,
        200
    );
}

/// More clones at once than git programs may run at once: all succeed.
#[test]
fn twenty_clones_at_once_all_succeed() {
    let world = World::with_project();
    world.run_ok(&["up"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let url = format!("http://{}/git/shop", api.address());
    std::thread::scope(|scope| {
        let cloning: Vec<_> = (0..20)
            .map(|nth| {
                let (world, url, token) = (&world, &url, &api.token);
                scope.spawn(move || {
                    let mut git = std::process::Command::new("git");
                    let header = format!("http.extraHeader=Authorization: Bearer {token}");
                    git.args(["-c", &header, "clone", "-q", url, &format!("clone-{nth}")])
                        .current_dir(&world.root);
                    world.clean_environment(&mut git);
                    run_command(git, None)
                })
            })
            .collect();
        for scoped_join_handle in cloning {
            let ran = scoped_join_handle.join().unwrap();
            assert_eq!(ran.exit_code, 0, "{ran:?}");
        }
    });
    let at_once = world.root.join("clone-19/a.txt");
    assert!(at_once.is_file());
}
