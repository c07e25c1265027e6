//! Finds the API operation for a request's path. Checks the credentials and the rate limits, and
//! splits lists into pages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::double::{
    CallRecords, ServiceAnswer, ServiceDouble, ViolationKind, rate_limited,
};
use super::super::listener::{DoubleReply, DoubleRequest};
use super::super::rate_limit::RateRule;
use super::super::signature;
use super::access::{self, GitHubCaller};
use super::state::{GitHubRepo, GitHubState, InstallationToken};
use super::{checks, hooks, issues, payloads, pulls};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// The number of requests per minute with which one app may create content. This and the following
/// three constants are GitHub's secondary rate limits.
pub const MAX_CONTENT_PER_MINUTE: u32 = 80;
/// The number of requests per hour with which one app may create content.
pub const MAX_CONTENT_PER_HOUR: u32 = 500;
/// The number of points that one app may use per minute. A read costs 1 point, and a write 5.
pub const MAX_POINTS_PER_MINUTE: u32 = 900;
/// The number of requests that one app may have open at the same time.
pub const MAX_CONCURRENT_REQUESTS: usize = 100;
/// GitHub's primary rate limit for one installation.
pub const MAX_REQUESTS_PER_HOUR: u32 = 5000;
/// The time for which the access token of an installation is valid.
pub const TOKEN_LIFETIME: Duration = HOUR;

/// The error with which an API operation fails.
pub(crate) struct GitHubError {
    pub(crate) status: u16,
    pub(crate) message: String,
    pub(crate) errors: Value,
    /// The rule of GitHub that the request breaks. `None` if the request breaks no rule and only
    /// fails because of the present state of the imitated GitHub.
    pub(crate) violation: Option<ViolationKind>,
}

pub(crate) fn not_found() -> GitHubError {
    GitHubError {
        status: 404,
        message: "Not Found".into(),
        errors: Value::Null,
        violation: None,
    }
}

pub(crate) fn invalid(kind: ViolationKind, field: &str, description: &str) -> GitHubError {
    let errors = json!([{"field": field, "code": "custom", "message": description}]);
    GitHubError {
        status: 422,
        message: "Validation Failed".into(),
        errors,
        violation: Some(kind),
    }
}

pub(crate) type GitHubResult = Result<ServiceAnswer, GitHubError>;

/// A request that the double is answering.
pub(crate) struct GitHubRequest<'a> {
    pub(crate) github: &'a mut GitHubState,
    pub(crate) records: &'a mut CallRecords,
    pub(crate) caller: GitHubCaller,
    pub(crate) request: &'a DoubleRequest,
    pub(crate) input: &'a Value,
}

impl GitHubRequest<'_> {
    pub(crate) fn app_slug(&self) -> String {
        self.github.apps[self.caller.app_index()].app.slug.clone()
    }

    pub(crate) fn app_login(&self) -> String {
        self.github.apps[self.caller.app_index()].app.login()
    }

    /// Returns the repository, or GitHub's error if the token does not give access to it.
    pub(crate) fn repo(&mut self, name: &str) -> Result<&mut GitHubRepo, GitHubError> {
        let GitHubCaller::Installation { app, installation } = self.caller else {
            return Err(GitHubError {
                violation: Some(ViolationKind::Auth),
                ..unauthorized("An installation's token is needed")
            });
        };
        let owner = self.github.apps[app]
            .installations
            .iter()
            .find(|pair| pair.0 == installation)
            .map(|installation| installation.1.clone());
        let token = self.request.bearer().unwrap_or_default();
        let narrowed = self
            .github
            .tokens
            .iter()
            .find(|installation_token| installation_token.token == token)
            .map(|installation_token| installation_token.repositories.clone());
        let repo = self.github.repo_mut(name).ok_or_else(not_found)?;
        let reached =
            narrowed.is_none_or(|narrowed| narrowed.is_empty() || narrowed.contains(&repo.name));
        if owner.as_deref() != Some(repo.owner.as_str()) || !reached {
            return Err(not_found());
        }
        Ok(repo)
    }

    /// Returns a field of the request that must be a text.
    pub(crate) fn required_text(&self, field: &str) -> Result<String, GitHubError> {
        match self.input[field]
            .as_str()
            .filter(|input| !input.trim().is_empty())
        {
            Some(text) => Ok(text.to_owned()),
            None => Err(invalid(
                ViolationKind::BadField,
                field,
                &format!("{field} can't be blank"),
            )),
        }
    }

    /// Returns the text of a comment or an issue, or an error if it is too long or missing.
    pub(crate) fn body_text(&self, needed: bool) -> Result<String, GitHubError> {
        let body = if needed {
            self.required_text("body")?
        } else {
            self.input["body"].as_str().unwrap_or_default().to_owned()
        };
        if body.chars().count() > 65_536 {
            return Err(invalid(
                ViolationKind::TooLong,
                "body",
                "body is too long (maximum is 65536 characters)",
            ));
        }
        Ok(body)
    }

    /// Returns one page of a list, with links to the pages before and after it.
    pub(crate) fn page(&self, all: Vec<Value>, wrap: Option<&str>) -> ServiceAnswer {
        let number = |name: &str| {
            self.request
                .query(name)
                .and_then(|request| request.parse::<usize>().ok())
        };
        let size = number("per_page").unwrap_or(30).clamp(1, 100);
        let page = number("page").unwrap_or(1).max(1);
        let (total, last) = (all.len(), all.len().div_ceil(size).max(1));
        let shown: Vec<Value> = all.into_iter().skip((page - 1) * size).take(size).collect();
        let mut answer = ServiceAnswer::ok(match wrap {
            Some(name) => json!({"total_count": total, name: shown}),
            None => json!(shown),
        });
        if page < last {
            let host = self.request.header("host").unwrap_or_default();
            let others: Vec<String> = self
                .request
                .query
                .iter()
                .filter(|query| query.0 != "page")
                .map(|query| {
                    format!(
                        "{}={}&",
                        query.0,
                        super::super::listener::escape_form(&query.1)
                    )
                })
                .collect();
            let link = |page: usize, rel: &str| {
                format!(
                    "<http://{host}{}?{}page={page}>; rel=\"{rel}\"",
                    self.request.path,
                    others.concat()
                )
            };
            answer = answer.with_header(
                "link",
                format!("{}, {}", link(page + 1, "next"), link(last, "last")),
            );
        }
        answer
    }
}

fn unauthorized(message: &str) -> GitHubError {
    GitHubError {
        status: 401,
        message: message.into(),
        errors: Value::Null,
        violation: Some(ViolationKind::Auth),
    }
}

/// Returns the name of the operation in GitHub's API description, and true if the operation creates
/// content.
fn operation_of(method: &str, path: &[&str]) -> Option<(&'static str, bool)> {
    Some(match (method, path) {
        ("GET", ["app"]) => ("apps/get-authenticated", false),
        ("GET", ["app", "installations"]) => ("apps/list-installations", false),
        ("GET", ["app", "installations", _]) => ("apps/get-installation", false),
        ("POST", ["app", "installations", _, "access_tokens"]) => {
            ("apps/create-installation-access-token", false)
        }
        ("GET", ["app", "hook", "deliveries"]) => ("apps/list-webhook-deliveries", false),
        ("GET", ["app", "hook", "deliveries", _]) => ("apps/get-webhook-delivery", false),
        ("POST", ["app", "hook", "deliveries", _, "attempts"]) => {
            ("apps/redeliver-webhook-delivery", false)
        }
        ("GET", ["rate_limit"]) => ("rate-limit/get", false),
        ("GET", ["installation", "repositories"]) => {
            ("apps/list-repos-accessible-to-installation", false)
        }
        (_, ["repos", _, _, rest @ ..]) => match (method, rest) {
            ("GET", []) => ("repos/get", false),
            ("GET", ["installation"]) => ("apps/get-repo-installation", false),
            ("GET", ["collaborators", _, "permission"]) => {
                ("repos/get-collaborator-permission-level", false)
            }
            ("GET", ["issues", "comments", _]) => ("issues/get-comment", false),
            ("PATCH", ["issues", "comments", _]) => ("issues/update-comment", true),
            ("DELETE", ["issues", "comments", _]) => ("issues/delete-comment", false),
            ("GET", ["issues", "comments", _, "reactions"]) => {
                ("reactions/list-for-issue-comment", false)
            }
            ("POST", ["issues", "comments", _, "reactions"]) => {
                ("reactions/create-for-issue-comment", false)
            }
            ("DELETE", ["issues", "comments", _, "reactions", _]) => {
                ("reactions/delete-for-issue-comment", false)
            }
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
            ("GET", ["pulls", "comments", _, "reactions"]) => {
                ("reactions/list-for-pull-request-review-comment", false)
            }
            ("POST", ["pulls", "comments", _, "reactions"]) => {
                ("reactions/create-for-pull-request-review-comment", false)
            }
            ("GET", ["pulls", _]) => ("pulls/get", false),
            ("PATCH", ["pulls", _]) => ("pulls/update", true),
            ("GET", ["pulls", _, "comments"]) => ("pulls/list-review-comments", false),
            ("POST", ["pulls", _, "comments", _, "replies"]) => {
                ("pulls/create-reply-for-review-comment", true)
            }
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

/// Returns the error for a request that is malformed independently of its operation, or `None` if
/// the request is well formed.
fn request_problem(asked: &DoubleRequest) -> Option<String> {
    let version = asked
        .header("x-github-api-version")
        .unwrap_or(API_VERSIONS[0]);
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

pub(crate) async fn handle_request(
    double: Arc<ServiceDouble<GitHubState>>,
    asked: DoubleRequest,
) -> DoubleReply {
    let path = asked.path.clone();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let known = operation_of(&asked.method, &parts);
    let name = known.map_or_else(
        || format!("{} {}", asked.method, asked.path),
        |known| known.0.to_owned(),
    );
    let input: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let found = double.view(|view| access::authenticate(view, asked.bearer().unwrap_or_default()));
    let by = match &found {
        Ok(caller) => double.view(|view| view.apps[caller.app_index()].app.slug.clone()),
        Err(_) => String::new(),
    };
    let _together = found
        .as_ref()
        .ok()
        .map(|github_caller| ConcurrentRequest::enter(&double, github_caller.app_index()));
    double.perform_call(&name, &by, input.clone(), |world, ledger| {
        let caller = match found {
            Ok(caller) if asked.header("user-agent").is_some() => caller,
            Ok(_) => {
                let message =
                    "Request forbidden by administrative rules. Please make sure your request has \
                    a User-Agent header";
                let slip = GitHubError { status: 403, violation: Some(ViolationKind::BadField), ..unauthorized(message) };
                return error_answer(ledger, &by, &name, slip);
            }
            Err(message) => return error_answer(ledger, &by, &name, unauthorized(&message)),
        };
        if let Err(refused) = rate_limit_json(world, ledger, caller, &name, (&asked.method, known.is_some_and(|known| known.1))) {
            return refused;
        }
        if let Some(message) = request_problem(&asked) {
            let slip = GitHubError { status: 400, message, errors: Value::Null, violation: Some(ViolationKind::BadField) };
            return error_answer(ledger, &by, &name, slip);
        }
        let mut turn = GitHubRequest { github: world, records: ledger, caller, request: &asked, input: &input };
        let result = match (asked.method.as_str(), &parts[..]) {
            _ if known.is_none() => Err(GitHubError { violation: Some(ViolationKind::Unknown), ..not_found() }),
            (_, ["app" | "installation" | "rate_limit", ..]) | ("GET", ["repos", _, _, "installation"]) => {
                answer_apps(&mut turn, &parts)
            }
            (method, ["repos", owner, repo, rest @ ..]) => {
                let repo = format!("{owner}/{repo}");
                match rest {
                    [] | ["collaborators", ..] => answer_collaborators(&mut turn, &repo, rest),
                    ["issues", rest @ ..] => issues::answer_issue(&mut turn, &repo, method, rest),
                    ["pulls", rest @ ..] => pulls::answer_pulls(&mut turn, &repo, method, rest),
                    _ => checks::answer_check(&mut turn, &repo, method, rest),
                }
            }
            _ => Err(not_found()),
        };
        match result {
            Ok(answer) => {
                let remaining = MAX_REQUESTS_PER_HOUR.saturating_sub(requests_used(ledger, &by));
                answer
                    .with_header("x-ratelimit-limit", MAX_REQUESTS_PER_HOUR.to_string())
                    .with_header("x-ratelimit-remaining", remaining.to_string())
                    .with_header("x-ratelimit-reset", (signature::unix_time().as_secs() + 3600).to_string())
                    .with_header("x-ratelimit-resource", "core")
                    .with_header("x-github-request-id", format!("D0:{}", ledger.next()))
            }
            Err(slip) => error_answer(ledger, &by, &name, slip),
        }
    })
    .await
}

fn requests_used(ledger: &CallRecords, caller: &str) -> u32 {
    ledger.limiter.used(&format!("requests of {caller}"))
}

/// Counts a request as running until this value is dropped. The count limits an app's concurrent
/// requests.
struct ConcurrentRequest<'a>(&'a ServiceDouble<GitHubState>, usize);

impl ConcurrentRequest<'_> {
    fn enter(double: &ServiceDouble<GitHubState>, app: usize) -> ConcurrentRequest<'_> {
        double.update_silently(|world, _| world.apps[app].in_flight += 1);
        ConcurrentRequest(double, app)
    }
}

impl Drop for ConcurrentRequest<'_> {
    fn drop(&mut self) {
        self.0
            .update_silently(|world, _| world.apps[self.1].in_flight -= 1);
    }
}

fn rate_limit_json(
    world: &GitHubState,
    ledger: &mut CallRecords,
    caller: GitHubCaller,
    name: &str,
    (method, content): (&str, bool),
) -> Result<(), ServiceAnswer> {
    let app = &world.apps[caller.app_index()];
    let caller = app.app.slug.clone();
    if app.in_flight > MAX_CONCURRENT_REQUESTS {
        ledger.add_violation(
            &caller,
            ViolationKind::RateLimit,
            format!("{name}: more than {MAX_CONCURRENT_REQUESTS} requests at once"),
        );
        return Err(rate_limited::<GitHubState>(
            name,
            ledger
                .scale
                .retry_after_seconds(ledger.scale.scale_limit(MINUTE)),
        ));
    }
    let cost = if method == "GET" { 1 } else { 5 };
    let mut rules = vec![
        RateRule::window(format!("requests of {caller}"), MAX_REQUESTS_PER_HOUR, HOUR),
        RateRule::window(format!("points of {caller}"), MAX_POINTS_PER_MINUTE, MINUTE)
            .with_cost(cost),
    ];
    if content {
        rules.push(RateRule::window(
            format!("content of {caller} in a minute"),
            MAX_CONTENT_PER_MINUTE,
            MINUTE,
        ));
        rules.push(RateRule::window(
            format!("content of {caller} in an hour"),
            MAX_CONTENT_PER_HOUR,
            HOUR,
        ));
    }
    let refused = match ledger.count_call(&caller, name, &rules) {
        Ok(()) => return Ok(()),
        Err(refused) => refused,
    };
    let mut answer = rate_limited::<GitHubState>(name, refused.seconds);
    if refused.key.starts_with("requests") {
        answer.body =
            json!({"message": format!("API rate limit exceeded for installation of {caller}.")});
        let reset = signature::unix_time() + Duration::from_secs_f64(refused.seconds);
        answer.headers = vec![
            ("x-ratelimit-remaining", "0".into()),
            ("x-ratelimit-reset", reset.as_secs().to_string()),
        ];
    }
    Err(answer)
}

fn error_answer(
    ledger: &mut CallRecords,
    caller: &str,
    name: &str,
    slip: GitHubError,
) -> ServiceAnswer {
    if let Some(wrong) = slip.violation {
        ledger.add_violation(
            caller,
            wrong,
            format!("{name}: {} {} {}", slip.status, slip.message, slip.errors),
        );
    }
    let mut body = json!({
        "message": slip.message, "documentation_url": "https://docs.github.com/rest", "status": slip.status.to_string(),
    });
    if !slip.errors.is_null() {
        body["errors"] = slip.errors;
    }
    ServiceAnswer::error(slip.status, &slip.message, body)
}

fn answer_apps(turn: &mut GitHubRequest<'_>, parts: &[&str]) -> GitHubResult {
    let app_index = turn.caller.app_index();
    if let ["rate_limit"] = parts {
        let remaining =
            MAX_REQUESTS_PER_HOUR.saturating_sub(requests_used(turn.records, &turn.app_slug()));
        let core = json!({"limit": MAX_REQUESTS_PER_HOUR, "remaining": remaining, "used": MAX_REQUESTS_PER_HOUR - remaining});
        return Ok(ServiceAnswer::ok(
            json!({"resources": {"core": core}, "rate": core}),
        ));
    }
    if let ["installation", "repositories"] = parts {
        let names: Vec<String> = turn
            .github
            .repos
            .iter()
            .map(GitHubRepo::full_name)
            .collect();
        let reached: Vec<Value> = names
            .iter()
            .filter_map(|name| {
                turn.repo(name)
                    .ok()
                    .map(|github_repo| payloads::repository(github_repo))
            })
            .collect();
        return Ok(turn.page(reached, Some("repositories")));
    }
    if turn.caller != GitHubCaller::App(app_index) {
        return Err(unauthorized("A JSON web token could not be decoded"));
    }
    let number = |s: &str| s.parse::<u64>().map_err(|_| not_found());
    let app = &turn.github.apps[app_index];
    let installed = |id: u64| {
        app.installations
            .iter()
            .find(|installation| installation.0 == id)
            .ok_or_else(not_found)
    };
    match parts {
        ["app"] => Ok(ServiceAnswer::ok(payloads::app(app))),
        ["app", "installations"] => {
            let all = app
                .installations
                .iter()
                .map(|pair| payloads::installation(app, pair.0, &pair.1))
                .collect();
            Ok(turn.page(all, None))
        }
        ["app", "installations", id] => {
            let (id, owner) = installed(number(id)?)?;
            Ok(ServiceAnswer::ok(payloads::installation(app, *id, owner)))
        }
        ["repos", owner, repo, "installation"] => {
            turn.github
                .repo(&format!("{owner}/{repo}"))
                .ok_or_else(not_found)?;
            let (id, owner) = app
                .installations
                .iter()
                .find(|installation| installation.1 == *owner)
                .ok_or_else(not_found)?;
            Ok(ServiceAnswer::ok(payloads::installation(app, *id, owner)))
        }
        ["app", "installations", id, "access_tokens"] => {
            let (id, _) = *installed(number(id)?)?;
            let named = turn.input["repositories"].as_array().into_iter().flatten();
            let repositories: Vec<String> = named
                .filter_map(|named| named.as_str().map(str::to_owned))
                .collect();
            let life = turn.records.scale.scale_deadline(TOKEN_LIFETIME);
            let token = format!(
                "ghs_{}",
                signature::fake_token(&format!("token {}", turn.records.next()), 36)
            );
            let issued = InstallationToken {
                token: token.clone(),
                app: app_index,
                installation: id,
                repositories,
                expires: Instant::now() + life,
            };
            turn.github.tokens.push(issued);
            let expires = signature::iso_time(signature::unix_time() + life);
            let body = json!({"token": token, "expires_at": expires, "permissions": payloads::permissions(),
                "repository_selection": "selected"});
            Ok(ServiceAnswer::with_status(201, body))
        }
        ["app", "hook", "deliveries"] => {
            let all: Vec<&super::state::GitHubDelivery> = app
                .deliveries
                .iter()
                .rev()
                .filter(|github_delivery| github_delivery.status_code.is_some())
                .collect();
            let size = turn
                .request
                .query("per_page")
                .and_then(|request| request.parse::<usize>().ok())
                .unwrap_or(30)
                .clamp(1, 100);
            let cursor = turn
                .request
                .query("cursor")
                .and_then(|request| request.parse::<u64>().ok())
                .unwrap_or(u64::MAX);
            let shown: Vec<_> = all
                .iter()
                .filter(|github_delivery| github_delivery.id <= cursor)
                .collect();
            let page = shown
                .iter()
                .take(size)
                .map(|github_delivery| payloads::delivery(turn.github, github_delivery, None))
                .collect();
            let mut answer = ServiceAnswer::ok(Value::Array(page));
            if let Some(next) = shown.get(size) {
                let host = turn.request.header("host").unwrap_or_default();
                let url = format!(
                    "http://{host}/app/hook/deliveries?per_page={size}&cursor={}",
                    next.id
                );
                answer = answer.with_header("link", format!("<{url}>; rel=\"next\""));
            }
            Ok(answer)
        }
        ["app", "hook", "deliveries", id] => {
            let id = number(id)?;
            let found = app
                .deliveries
                .iter()
                .find(|github_delivery| github_delivery.id == id)
                .ok_or_else(not_found)?;
            Ok(ServiceAnswer::ok(payloads::delivery(
                turn.github,
                found,
                Some(&app.app),
            )))
        }
        ["app", "hook", "deliveries", id, "attempts"] => {
            let id = number(id)?;
            if !hooks::queue_redelivery(&mut turn.github.apps[app_index], turn.records, id) {
                return Err(not_found());
            }
            Ok(ServiceAnswer::with_status(202, json!({})))
        }
        _ => Err(not_found()),
    }
}

fn answer_collaborators(turn: &mut GitHubRequest<'_>, repo: &str, rest: &[&str]) -> GitHubResult {
    let repo = turn.repo(repo)?;
    let ["collaborators", login, "permission"] = rest else {
        return Ok(ServiceAnswer::ok(payloads::repository(repo)));
    };
    let role = repo
        .people
        .get(*login)
        .cloned()
        .unwrap_or_else(|| "none".into());
    // The old field `permission` has only four values; `role_name` has the exact role.
    let permission = match role.as_str() {
        "maintain" => "write",
        "triage" => "read",
        other => other,
    };
    Ok(ServiceAnswer::ok(
        json!({"permission": permission, "role_name": role, "user": payloads::user(login)}),
    ))
}
