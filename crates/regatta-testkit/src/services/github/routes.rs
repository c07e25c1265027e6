//! Maps paths to operations, and checks credentials, rate limits and pages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::desk::{Answer, Desk, Ledger, Wrong, limited};
use super::super::door::{Asked, Reply};
use super::super::limit::Rule;
use super::super::sign;
use super::access::{self, Caller};
use super::world::{Repo, Token, World};
use super::{checks, hooks, issues, pulls, show};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Secondary limits for one app: requests that create content, points (a read counts 1, a write 5),
/// concurrent requests.
pub const CONTENT_PER_MINUTE: u32 = 80;
pub const CONTENT_PER_HOUR: u32 = 500;
pub const POINTS_PER_MINUTE: u32 = 900;
pub const AT_ONCE: usize = 100;
/// The primary limit of an installation.
pub const REQUESTS_PER_HOUR: u32 = 5000;
/// The lifetime of an installation's token.
pub const TOKEN: Duration = HOUR;

/// The reason why an operation fails.
pub(crate) struct Slip {
    pub(crate) status: u16,
    pub(crate) message: String,
    pub(crate) errors: Value,
    /// Set if the request breaks the contract, and does not only fail because of the current state.
    pub(crate) wrong: Option<Wrong>,
}

pub(crate) fn not_found() -> Slip {
    Slip { status: 404, message: "Not Found".into(), errors: Value::Null, wrong: None }
}

pub(crate) fn invalid(wrong: Wrong, field: &str, what: &str) -> Slip {
    let errors = json!([{"field": field, "code": "custom", "message": what}]);
    Slip { status: 422, message: "Validation Failed".into(), errors, wrong: Some(wrong) }
}

pub(crate) type Done = Result<Answer, Slip>;

/// A request during its execution.
pub(crate) struct Turn<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) caller: Caller,
    pub(crate) asked: &'a Asked,
    pub(crate) input: &'a Value,
}

impl Turn<'_> {
    pub(crate) fn slug(&self) -> String {
        self.world.apps[self.caller.app()].app.slug.clone()
    }

    pub(crate) fn login(&self) -> String {
        self.world.apps[self.caller.app()].app.login()
    }

    /// Returns the repository, if this token can access it.
    pub(crate) fn repo(&mut self, name: &str) -> Result<&mut Repo, Slip> {
        let Caller::Installation { app, installation } = self.caller else {
            return Err(Slip { wrong: Some(Wrong::Auth), ..unauthorized("An installation's token is needed") });
        };
        let owner = self.world.apps[app].installations.iter().find(|it| it.0 == installation).map(|it| it.1.clone());
        let token = self.asked.bearer().unwrap_or_default();
        let narrowed = self.world.tokens.iter().find(|it| it.token == token).map(|it| it.repositories.clone());
        let repo = self.world.repo_mut(name).ok_or_else(not_found)?;
        let reached = narrowed.is_none_or(|it| it.is_empty() || it.contains(&repo.name));
        if owner.as_deref() != Some(repo.owner.as_str()) || !reached {
            return Err(not_found());
        }
        Ok(repo)
    }

    /// Returns a field that must be text.
    pub(crate) fn text(&self, field: &str) -> Result<String, Slip> {
        match self.input[field].as_str().filter(|it| !it.trim().is_empty()) {
            Some(text) => Ok(text.to_owned()),
            None => Err(invalid(Wrong::Field, field, &format!("{field} can't be blank"))),
        }
    }

    /// Returns the body of a comment or an issue.
    pub(crate) fn body(&self, needed: bool) -> Result<String, Slip> {
        let body = if needed { self.text("body")? } else { self.input["body"].as_str().unwrap_or_default().to_owned() };
        if body.chars().count() > 65_536 {
            return Err(invalid(Wrong::TooLong, "body", "body is too long (maximum is 65536 characters)"));
        }
        Ok(body)
    }

    /// Returns a page of a list, with links to its neighbours.
    pub(crate) fn page(&self, all: Vec<Value>, wrap: Option<&str>) -> Answer {
        let number = |name: &str| self.asked.query(name).and_then(|it| it.parse::<usize>().ok());
        let size = number("per_page").unwrap_or(30).clamp(1, 100);
        let page = number("page").unwrap_or(1).max(1);
        let (total, last) = (all.len(), all.len().div_ceil(size).max(1));
        let shown: Vec<Value> = all.into_iter().skip((page - 1) * size).take(size).collect();
        let mut answer = Answer::ok(match wrap {
            Some(name) => json!({"total_count": total, name: shown}),
            None => json!(shown),
        });
        if page < last {
            let host = self.asked.header("host").unwrap_or_default();
            let others: Vec<String> = self
                .asked
                .query
                .iter()
                .filter(|it| it.0 != "page")
                .map(|it| format!("{}={}&", it.0, super::super::door::escape(&it.1)))
                .collect();
            let link = |page: usize, rel: &str| {
                format!("<http://{host}{}?{}page={page}>; rel=\"{rel}\"", self.asked.path, others.concat())
            };
            answer = answer.header("link", format!("{}, {}", link(page + 1, "next"), link(last, "last")));
        }
        answer
    }
}

fn unauthorized(message: &str) -> Slip {
    Slip { status: 401, message: message.into(), errors: Value::Null, wrong: Some(Wrong::Auth) }
}

/// Returns the operation's name in GitHub's API description, and whether it creates content.
fn operation(method: &str, path: &[&str]) -> Option<(&'static str, bool)> {
    Some(match (method, path) {
        ("GET", ["app"]) => ("apps/get-authenticated", false),
        ("GET", ["app", "installations"]) => ("apps/list-installations", false),
        ("GET", ["app", "installations", _]) => ("apps/get-installation", false),
        ("POST", ["app", "installations", _, "access_tokens"]) => ("apps/create-installation-access-token", false),
        ("GET", ["app", "hook", "deliveries"]) => ("apps/list-webhook-deliveries", false),
        ("GET", ["app", "hook", "deliveries", _]) => ("apps/get-webhook-delivery", false),
        ("POST", ["app", "hook", "deliveries", _, "attempts"]) => ("apps/redeliver-webhook-delivery", false),
        ("GET", ["rate_limit"]) => ("rate-limit/get", false),
        ("GET", ["installation", "repositories"]) => ("apps/list-repos-accessible-to-installation", false),
        (_, ["repos", _, _, rest @ ..]) => match (method, rest) {
            ("GET", []) => ("repos/get", false),
            ("GET", ["installation"]) => ("apps/get-repo-installation", false),
            ("GET", ["collaborators", _, "permission"]) => ("repos/get-collaborator-permission-level", false),
            ("GET", ["issues", "comments", _]) => ("issues/get-comment", false),
            ("PATCH", ["issues", "comments", _]) => ("issues/update-comment", true),
            ("DELETE", ["issues", "comments", _]) => ("issues/delete-comment", false),
            ("GET", ["issues", "comments", _, "reactions"]) => ("reactions/list-for-issue-comment", false),
            ("POST", ["issues", "comments", _, "reactions"]) => ("reactions/create-for-issue-comment", false),
            ("DELETE", ["issues", "comments", _, "reactions", _]) => ("reactions/delete-for-issue-comment", false),
            ("POST", ["issues"]) => ("issues/create", true),
            ("GET", ["issues", _]) => ("issues/get", false),
            ("PATCH", ["issues", _]) => ("issues/update", true),
            ("GET", ["issues", _, "comments"]) => ("issues/list-comments", false),
            ("POST", ["issues", _, "comments"]) => ("issues/create-comment", true),
            ("GET", ["issues", _, "reactions"]) => ("reactions/list-for-issue", false),
            ("POST", ["issues", _, "reactions"]) => ("reactions/create-for-issue", false),
            ("DELETE", ["issues", _, "reactions", _]) => ("reactions/delete-for-issue", false),
            ("GET", ["pulls"]) => ("pulls/list", false),
            ("POST", ["pulls"]) => ("pulls/create", true),
            ("PATCH", ["pulls", "comments", _]) => ("pulls/update-review-comment", true),
            ("GET", ["pulls", "comments", _, "reactions"]) => ("reactions/list-for-pull-request-review-comment", false),
            ("POST", ["pulls", "comments", _, "reactions"]) => {
                ("reactions/create-for-pull-request-review-comment", false)
            }
            ("GET", ["pulls", _]) => ("pulls/get", false),
            ("PATCH", ["pulls", _]) => ("pulls/update", true),
            ("GET", ["pulls", _, "comments"]) => ("pulls/list-review-comments", false),
            ("POST", ["pulls", _, "comments", _, "replies"]) => ("pulls/create-reply-for-review-comment", true),
            ("POST", ["check-runs"]) => ("checks/create", false),
            ("GET", ["check-runs", _]) => ("checks/get", false),
            ("PATCH", ["check-runs", _]) => ("checks/update", false),
            ("GET", ["commits", _, "check-runs"]) => ("checks/list-for-ref", false),
            _ => return None,
        },
        _ => return None,
    })
}

/// The API versions that a client may request.
const API_VERSIONS: [&str; 2] = ["2022-11-28", "2026-03-10"];

/// Returns the error for a request that cannot be parsed, whatever its operation.
fn malformed(asked: &Asked) -> Option<String> {
    let version = asked.header("x-github-api-version").unwrap_or(API_VERSIONS[0]);
    if !API_VERSIONS.contains(&version) {
        return Some(format!("The version {version:?} is not supported"));
    }
    if asked.body.is_empty() {
        return None;
    }
    match serde_json::from_slice::<Value>(&asked.body) {
        Ok(Value::Object(_)) => None,
        Ok(_) => Some("Body should be a JSON object".into()),
        Err(_) => Some("Problems parsing JSON".into()),
    }
}

pub(crate) async fn handle(desk: Arc<Desk<World>>, asked: Asked) -> Reply {
    let path = asked.path.clone();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let known = operation(&asked.method, &parts);
    let name = known.map_or_else(|| format!("{} {}", asked.method, asked.path), |it| it.0.to_owned());
    let input: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let found = desk.view(|view| access::caller(view, asked.bearer().unwrap_or_default()));
    let by = match &found {
        Ok(caller) => desk.view(|view| view.apps[caller.app()].app.slug.clone()),
        Err(_) => String::new(),
    };
    let _together = found.as_ref().ok().map(|it| Together::enter(&desk, it.app()));
    desk.call(&name, &by, input.clone(), |world, ledger| {
        let caller = match found {
            Ok(caller) if asked.header("user-agent").is_some() => caller,
            Ok(_) => {
                let message =
                    "Request forbidden by administrative rules. Please make sure your request has a User-Agent header";
                let slip = Slip { status: 403, wrong: Some(Wrong::Field), ..unauthorized(message) };
                return refuse(ledger, &by, &name, slip);
            }
            Err(message) => return refuse(ledger, &by, &name, unauthorized(&message)),
        };
        if let Err(refused) = rate(world, ledger, caller, &name, (&asked.method, known.is_some_and(|it| it.1))) {
            return refused;
        }
        if let Some(message) = malformed(&asked) {
            let slip = Slip { status: 400, message, errors: Value::Null, wrong: Some(Wrong::Field) };
            return refuse(ledger, &by, &name, slip);
        }
        let mut turn = Turn { world, ledger, caller, asked: &asked, input: &input };
        let done = match (asked.method.as_str(), &parts[..]) {
            _ if known.is_none() => Err(Slip { wrong: Some(Wrong::Unknown), ..not_found() }),
            (_, ["app" | "installation" | "rate_limit", ..]) | ("GET", ["repos", _, _, "installation"]) => {
                apps(&mut turn, &parts)
            }
            (method, ["repos", owner, repo, rest @ ..]) => {
                let repo = format!("{owner}/{repo}");
                match rest {
                    [] | ["collaborators", ..] => people(&mut turn, &repo, rest),
                    ["issues", rest @ ..] => issues::answer(&mut turn, &repo, method, rest),
                    ["pulls", rest @ ..] => pulls::answer(&mut turn, &repo, method, rest),
                    _ => checks::answer(&mut turn, &repo, method, rest),
                }
            }
            _ => Err(not_found()),
        };
        match done {
            Ok(answer) => {
                let left = REQUESTS_PER_HOUR.saturating_sub(used(ledger, &by));
                answer
                    .header("x-ratelimit-limit", REQUESTS_PER_HOUR.to_string())
                    .header("x-ratelimit-remaining", left.to_string())
                    .header("x-ratelimit-reset", (sign::now().as_secs() + 3600).to_string())
                    .header("x-ratelimit-resource", "core")
                    .header("x-github-request-id", format!("D0:{}", ledger.next()))
            }
            Err(slip) => refuse(ledger, &by, &name, slip),
        }
    })
    .await
}

fn used(ledger: &Ledger, by: &str) -> u32 {
    ledger.limiter.used(&format!("requests of {by}"))
}

/// Counts the concurrent requests of an app.
struct Together<'a>(&'a Desk<World>, usize);

impl Together<'_> {
    fn enter(desk: &Desk<World>, app: usize) -> Together<'_> {
        desk.change_quietly(|world, _| world.apps[app].in_flight += 1);
        Together(desk, app)
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        self.0.change_quietly(|world, _| world.apps[self.1].in_flight -= 1);
    }
}

fn rate(
    world: &World,
    ledger: &mut Ledger,
    caller: Caller,
    name: &str,
    (method, content): (&str, bool),
) -> Result<(), Answer> {
    let app = &world.apps[caller.app()];
    let by = app.app.slug.clone();
    if app.in_flight > AT_ONCE {
        ledger.wrong(&by, Wrong::Limit, format!("{name}: more than {AT_ONCE} requests at once"));
        return Err(limited::<World>(name, ledger.scale.seconds(ledger.scale.limit(MINUTE))));
    }
    let cost = if method == "GET" { 1 } else { 5 };
    let mut rules = vec![
        Rule::window(format!("requests of {by}"), REQUESTS_PER_HOUR, HOUR),
        Rule::window(format!("points of {by}"), POINTS_PER_MINUTE, MINUTE).costing(cost),
    ];
    if content {
        rules.push(Rule::window(format!("content of {by} in a minute"), CONTENT_PER_MINUTE, MINUTE));
        rules.push(Rule::window(format!("content of {by} in an hour"), CONTENT_PER_HOUR, HOUR));
    }
    let refused = match ledger.take(&by, name, &rules) {
        Ok(()) => return Ok(()),
        Err(refused) => refused,
    };
    let mut answer = limited::<World>(name, refused.seconds);
    if refused.key.starts_with("requests") {
        answer.body = json!({"message": format!("API rate limit exceeded for installation of {by}.")});
        let reset = sign::now() + Duration::from_secs_f64(refused.seconds);
        answer.headers =
            vec![("x-ratelimit-remaining", "0".into()), ("x-ratelimit-reset", reset.as_secs().to_string())];
    }
    Err(answer)
}

fn refuse(ledger: &mut Ledger, by: &str, name: &str, slip: Slip) -> Answer {
    if let Some(wrong) = slip.wrong {
        ledger.wrong(by, wrong, format!("{name}: {} {} {}", slip.status, slip.message, slip.errors));
    }
    let mut body = json!({
        "message": slip.message, "documentation_url": "https://docs.github.com/rest", "status": slip.status.to_string(),
    });
    if !slip.errors.is_null() {
        body["errors"] = slip.errors;
    }
    Answer::error(slip.status, &slip.message, body)
}

fn apps(turn: &mut Turn<'_>, parts: &[&str]) -> Done {
    let at = turn.caller.app();
    if let ["rate_limit"] = parts {
        let left = REQUESTS_PER_HOUR.saturating_sub(used(turn.ledger, &turn.slug()));
        let core = json!({"limit": REQUESTS_PER_HOUR, "remaining": left, "used": REQUESTS_PER_HOUR - left});
        return Ok(Answer::ok(json!({"resources": {"core": core}, "rate": core})));
    }
    if let ["installation", "repositories"] = parts {
        let names: Vec<String> = turn.world.repos.iter().map(Repo::full_name).collect();
        let reached: Vec<Value> =
            names.iter().filter_map(|it| turn.repo(it).ok().map(|it| show::repository(it))).collect();
        return Ok(turn.page(reached, Some("repositories")));
    }
    if turn.caller != Caller::App(at) {
        return Err(unauthorized("A JSON web token could not be decoded"));
    }
    let number = |it: &str| it.parse::<u64>().map_err(|_| not_found());
    let app = &turn.world.apps[at];
    let installed = |id: u64| app.installations.iter().find(|it| it.0 == id).ok_or_else(not_found);
    match parts {
        ["app"] => Ok(Answer::ok(show::app(app))),
        ["app", "installations"] => {
            let all = app.installations.iter().map(|it| show::installation(app, it.0, &it.1)).collect();
            Ok(turn.page(all, None))
        }
        ["app", "installations", id] => {
            let (id, owner) = installed(number(id)?)?;
            Ok(Answer::ok(show::installation(app, *id, owner)))
        }
        ["repos", owner, repo, "installation"] => {
            turn.world.repo(&format!("{owner}/{repo}")).ok_or_else(not_found)?;
            let (id, owner) = app.installations.iter().find(|it| it.1 == *owner).ok_or_else(not_found)?;
            Ok(Answer::ok(show::installation(app, *id, owner)))
        }
        ["app", "installations", id, "access_tokens"] => {
            let (id, _) = *installed(number(id)?)?;
            let named = turn.input["repositories"].as_array().into_iter().flatten();
            let repositories: Vec<String> = named.filter_map(|it| it.as_str().map(str::to_owned)).collect();
            let life = turn.ledger.scale.deadline(TOKEN);
            let token = format!("ghs_{}", sign::token(&format!("token {}", turn.ledger.next()), 36));
            let issued =
                Token { token: token.clone(), app: at, installation: id, repositories, expires: Instant::now() + life };
            turn.world.tokens.push(issued);
            let expires = sign::iso(sign::now() + life);
            let body = json!({"token": token, "expires_at": expires, "permissions": show::permissions(),
                "repository_selection": "selected"});
            Ok(Answer::with(201, body))
        }
        ["app", "hook", "deliveries"] => {
            let all: Vec<&super::world::Delivery> =
                app.deliveries.iter().rev().filter(|it| it.status_code.is_some()).collect();
            let size = turn.asked.query("per_page").and_then(|it| it.parse::<usize>().ok()).unwrap_or(30).clamp(1, 100);
            let cursor = turn.asked.query("cursor").and_then(|it| it.parse::<u64>().ok()).unwrap_or(u64::MAX);
            let shown: Vec<_> = all.iter().filter(|it| it.id <= cursor).collect();
            let page = shown.iter().take(size).map(|it| show::delivery(turn.world, it, None)).collect();
            let mut answer = Answer::ok(Value::Array(page));
            if let Some(next) = shown.get(size) {
                let host = turn.asked.header("host").unwrap_or_default();
                let url = format!("http://{host}/app/hook/deliveries?per_page={size}&cursor={}", next.id);
                answer = answer.header("link", format!("<{url}>; rel=\"next\""));
            }
            Ok(answer)
        }
        ["app", "hook", "deliveries", id] => {
            let id = number(id)?;
            let found = app.deliveries.iter().find(|it| it.id == id).ok_or_else(not_found)?;
            Ok(Answer::ok(show::delivery(turn.world, found, Some(&app.app))))
        }
        ["app", "hook", "deliveries", id, "attempts"] => {
            let id = number(id)?;
            if !hooks::redeliver(&mut turn.world.apps[at], turn.ledger, id) {
                return Err(not_found());
            }
            Ok(Answer::with(202, json!({})))
        }
        _ => Err(not_found()),
    }
}

fn people(turn: &mut Turn<'_>, repo: &str, rest: &[&str]) -> Done {
    let repo = turn.repo(repo)?;
    let ["collaborators", login, "permission"] = rest else { return Ok(Answer::ok(show::repository(repo))) };
    let role = repo.people.get(*login).cloned().unwrap_or_else(|| "none".into());
    // The old field has only four values; the role's name is exact.
    let permission = match role.as_str() {
        "maintain" => "write",
        "triage" => "read",
        other => other,
    };
    Ok(Answer::ok(json!({"permission": permission, "role_name": role, "user": show::user(login)})))
}
