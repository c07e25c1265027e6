//! A client for the part of GitHub's REST API that the bridge uses. The client authenticates either
//! as the GitHub App itself, or as the app's installation in a repository.
//!
//! The client repeats only calls that failed with status 401, because such a call had no effect.
//! After any other failure, the outbox (`outbox.rs`) sends the post again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::config::Secret;
use crate::http::{HttpAnswer, HttpCall, HttpClient};
use crate::intake::unix_time_ms;
use crate::service::ServiceError;

use super::token::AppKey;

/// The ids and names that GitHub gives the agent's app. By these the bridge recognises mentions of
/// the app and the app's own events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GithubIdentity {
    pub(crate) id: u64,
    /// The app's name in mentions. People write this name after `@`.
    pub(crate) slug: String,
    /// The user name that GitHub shows as the author of the app's comments.
    pub(crate) login: String,
}

pub(crate) struct GithubApi {
    http: HttpClient,
    url: String,
    app_id: String,
    /// The app's private key, or the reason why the key cannot be used. An invalid key disables
    /// only the bridge of this agent.
    key: Result<AppKey, String>,
    state: Mutex<ApiState>,
    token_lock: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct ApiState {
    app_token: Option<(String, u64)>,
    identity: Option<GithubIdentity>,
    /// The installation token for each repository, with the time (in seconds since 1970) until
    /// which the token may be used.
    tokens: HashMap<String, (String, u64)>,
    /// Cached answers to "may this person write?", by repository and login, with the time of the
    /// lookup.
    write_permissions: HashMap<(String, String), (bool, Instant)>,
    /// Time before which no call is made, because GitHub refused a call because of its rate limit.
    blocked_until: Option<Instant>,
}

/// Minimum remaining lifetime of an installation token in seconds. A token with less remaining
/// lifetime is replaced, so that no token expires during a call.
const TOKEN_MARGIN_S: u64 = 5 * 60;
/// Time after which a cached write permission is looked up again.
const PERMISSION_CACHE_LIFETIME: Duration = Duration::from_secs(5 * 60);
const MAX_CACHED: usize = 5_000;
/// Time limit for looking up a permission. The limit is short, because during the lookup GitHub
/// waits for the answer to its webhook delivery.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Pause before the next call if GitHub refused a call because of its rate limit and gave no
/// duration.
const DEFAULT_PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of pages that are read of one list of a repository, such as the comments on an
/// issue.
const MAX_PAGES: usize = 30;

impl GithubApi {
    pub(crate) fn new(
        http: HttpClient,
        url: String,
        app_id: String,
        private_key: &Secret,
    ) -> GithubApi {
        GithubApi {
            http,
            url,
            app_id,
            key: AppKey::from_pem(private_key),
            state: Mutex::default(),
            token_lock: tokio::sync::Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ApiState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether `id` is the id of this agent's GitHub App: the configured id, or the id that
    /// GitHub returned.
    pub(crate) fn is_own_app(&self, id: &Value) -> bool {
        let known = self.state().identity.as_ref().map(|identity| identity.id);
        id.as_u64()
            .is_some_and(|id| Some(id) == known || id.to_string() == self.app_id)
    }

    /// Returns whether a webhook delivery is for another GitHub App, because `id` from its header
    /// is another app's id. If the settings contain a client id in place of an app id, the ids
    /// cannot be compared, so the result is `false`.
    pub(crate) fn is_for_other_app(&self, id: &str) -> bool {
        let all_digits = |s: &str| !s.is_empty() && s.bytes().all(|byte| byte.is_ascii_digit());
        all_digits(id) && all_digits(&self.app_id) && id != self.app_id
    }

    /// Calls GitHub with the credentials of the app itself.
    pub(crate) async fn call_as_app(
        &self,
        method: Method,
        path: &str,
    ) -> Result<HttpAnswer, ServiceError> {
        self.call_as_app_with_body(method, path, None).await
    }

    async fn call_as_app_with_body(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<HttpAnswer, ServiceError> {
        let mut answer = self
            .send_once(&self.app_token()?, method.clone(), path, body)
            .await?;
        if answer.status == 401 {
            self.state().app_token = None;
            answer = self
                .send_once(&self.app_token()?, method.clone(), path, body)
                .await?;
        }
        classify_answer(answer, &method, path)
    }

    /// Calls GitHub with the credentials of the app's installation in a repository. `path` is
    /// relative to the repository.
    pub(crate) async fn call_repo(
        &self,
        repo: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<HttpAnswer, ServiceError> {
        let path = format!("/repos/{}{path}", checked_repo_name(repo)?);
        let token = self.repo_token(repo).await?;
        let mut answer = self.send_once(&token, method.clone(), &path, body).await?;
        if answer.status == 401 {
            self.state().tokens.retain(|_, (known, _)| *known != token);
            let token = self.repo_token(repo).await?;
            answer = self.send_once(&token, method.clone(), &path, body).await?;
        }
        classify_answer(answer, &method, &path)
    }

    /// Returns the diff of a pull request.
    pub(crate) async fn pull_diff(&self, repo: &str, number: u64) -> Result<String, ServiceError> {
        let path = format!("/repos/{}/pulls/{number}", checked_repo_name(repo)?);
        let token = self.repo_token(repo).await?;
        let answer = self
            .send_once_accepting(
                &token,
                Method::GET,
                &path,
                None,
                "application/vnd.github.diff",
            )
            .await?;
        let answer = classify_answer(answer, &Method::GET, &path)?;
        Ok(answer.body.as_str().unwrap_or_default().to_owned())
    }

    async fn send_once(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<HttpAnswer, ServiceError> {
        self.send_once_accepting(token, method, path, body, "application/vnd.github+json")
            .await
    }

    /// Makes one call without repeating it, and asks GitHub for the content type `accept`.
    async fn send_once_accepting(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
        accept: &str,
    ) -> Result<HttpAnswer, ServiceError> {
        let blocked_for = self
            .state()
            .blocked_until
            .map(|instant| instant.saturating_duration_since(Instant::now()));
        if let Some(pause) = blocked_for.filter(|duration| !duration.is_zero()) {
            return Err(ServiceError::RetryAfter(pause));
        }
        let mut call = HttpCall::new(method, format!("{}{path}", self.url))
            .header("authorization", format!("Bearer {token}"))
            .header("accept", accept)
            .header("x-github-api-version", "2022-11-28");
        call.body = body;
        let answer = self.http.call(call).await?;
        let pause = requested_pause(&answer, unix_time_ms() / 1_000);
        if let Some(pause) = pause {
            // All calls must pause, because GitHub extends the pause for callers that continue to
            // send calls.
            let (until, mut state) = (Instant::now() + pause, self.state());
            state.blocked_until = Some(
                state
                    .blocked_until
                    .map_or(until, |instant| instant.max(until)),
            );
        }
        Ok(answer)
    }

    fn app_token(&self) -> Result<String, ServiceError> {
        let now = unix_time_ms() / 1_000;
        let mut state = self.state();
        if let Some((token, _)) = state
            .app_token
            .as_ref()
            .filter(|(_, valid_until_s)| *valid_until_s > now)
        {
            return Ok(token.clone());
        }
        let key = self
            .key
            .as_ref()
            .map_err(|why| ServiceError::Unauthorized(why.clone()))?;
        let (token, until) = key
            .sign_token(&self.app_id, now)
            .map_err(ServiceError::Unauthorized)?;
        state.app_token = Some((token.clone(), until));
        Ok(token)
    }

    /// Returns an installation token that is valid only for the repository `repo`. Tokens are
    /// cached.
    async fn repo_token(&self, repo: &str) -> Result<String, ServiceError> {
        let now = unix_time_ms() / 1_000;
        let known = || {
            self.state()
                .tokens
                .get(repo)
                .filter(|(_, valid_until_s)| *valid_until_s > now)
                .map(|(token, _)| token.clone())
        };
        if let Some(token) = known() {
            return Ok(token);
        }
        // If several callers need an installation token at the same time, only the first caller
        // requests it. The others wait here, and then find the token in the cache.
        let _asking = self.token_lock.lock().await;
        if let Some(token) = known() {
            return Ok(token);
        }
        let path = format!("/repos/{}/installation", checked_repo_name(repo)?);
        let installation = self.call_as_app(Method::GET, &path).await;
        let installation = installation.map_err(|error| match error {
            ServiceError::Rejected(_) => {
                ServiceError::Rejected(format!("the app is not installed at {repo}"))
            }
            other => other,
        })?;
        let id = installation.body["id"].as_u64().ok_or_else(|| {
            ServiceError::OutcomeUnknown("GitHub returned no installation".into())
        })?;
        let path = format!("/app/installations/{id}/access_tokens");
        let name = repo.rsplit('/').next().unwrap_or_default();
        let request_body = json!({"repositories": [name]});
        let created = self
            .call_as_app_with_body(Method::POST, &path, Some(&request_body))
            .await?;
        let token = created.body["token"]
            .as_str()
            .ok_or_else(|| ServiceError::OutcomeUnknown("GitHub returned no token".into()))?;
        let expires_at_s = created.body["expires_at"]
            .as_str()
            .and_then(|date| date.parse::<jiff::Timestamp>().ok())
            .and_then(|date| u64::try_from(date.as_second()).ok())
            .unwrap_or(now + 3_600);
        let mut state = self.state();
        if state.tokens.len() >= MAX_CACHED {
            state.tokens.clear();
        }
        state.tokens.insert(
            repo.to_owned(),
            (
                token.to_owned(),
                expires_at_s.saturating_sub(TOKEN_MARGIN_S),
            ),
        );
        Ok(token.to_owned())
    }

    /// Returns the ids and names of the agent's app. Only the first call requests them from GitHub.
    pub(crate) async fn identity(&self) -> Result<GithubIdentity, ServiceError> {
        let known = self.state().identity.clone();
        if let Some(identity) = known {
            return Ok(identity);
        }
        let app = self.call_as_app(Method::GET, "/app").await?.body;
        let slug = app["slug"].as_str().filter(|slug| !slug.is_empty());
        let slug = slug.ok_or_else(|| {
            ServiceError::OutcomeUnknown("GitHub returned no name of the app".into())
        })?;
        let identity = GithubIdentity {
            id: app["id"].as_u64().unwrap_or(0),
            slug: slug.to_owned(),
            login: format!("{slug}[bot]"),
        };
        self.state().identity = Some(identity.clone());
        Ok(identity)
    }

    /// Calls GitHub to check that GitHub still accepts the app. Returns the app's ids and names.
    pub(crate) async fn check_app(&self) -> Result<GithubIdentity, ServiceError> {
        self.call_as_app(Method::GET, "/app").await?;
        self.identity().await
    }

    /// Returns whether a person has write access to a repository. `Err` means that the lookup
    /// failed.
    pub(crate) async fn can_write(&self, repo: &str, login: &str) -> Result<bool, ServiceError> {
        let cache_key = (repo.to_owned(), login.to_owned());
        let known = self.state().write_permissions.get(&cache_key).copied();
        if let Some((may_write, looked_up_at)) = known
            && looked_up_at.elapsed() < PERMISSION_CACHE_LIFETIME
        {
            return Ok(may_write);
        }
        if login.is_empty()
            || !login
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        {
            return Ok(false);
        }
        let path = format!("/collaborators/{login}/permission");
        let answer = tokio::time::timeout(
            LOOKUP_TIMEOUT,
            self.call_repo(repo, Method::GET, &path, None),
        )
        .await;
        let answer = answer
            .unwrap_or_else(|_| Err(ServiceError::OutcomeUnknown("GitHub took too long".into())));
        let may_write = match answer {
            Ok(answer) => {
                let has_role = |field: &str, roles: &[&str]| {
                    answer.body[field]
                        .as_str()
                        .is_some_and(|role| roles.contains(&role))
                };
                has_role("permission", &["admin", "maintain", "write"])
                    || has_role("role_name", &["admin", "maintain", "write"])
            }
            // GitHub rejects the lookup for a person without access to the repository, so a
            // rejection means that the person has no write access.
            Err(ServiceError::Rejected(_)) => false,
            Err(error) => return Err(error),
        };
        let mut state = self.state();
        if state.write_permissions.len() >= MAX_CACHED {
            state.write_permissions.clear();
        }
        state
            .write_permissions
            .insert(cache_key, (may_write, Instant::now()));
        Ok(may_write)
    }

    /// Reads a list of a repository page by page, until `is_enough` accepts an entry or the list
    /// ends. Returns the entries read.
    pub(crate) async fn list_until(
        &self,
        repo: &str,
        path: &str,
        mut is_enough: impl FnMut(&Value) -> bool,
    ) -> Result<Vec<Value>, ServiceError> {
        let mut found = Vec::new();
        let separator = if path.contains('?') { '&' } else { '?' };
        for page in 1..=MAX_PAGES {
            let answer = self
                .call_repo(
                    repo,
                    Method::GET,
                    &format!("{path}{separator}per_page=100&page={page}"),
                    None,
                )
                .await?;
            let rows = answer.body.as_array().cloned().unwrap_or_default();
            let is_done = rows.iter().any(&mut is_enough);
            found.extend(rows);
            if is_done || !has_next(&answer) {
                break;
            }
        }
        Ok(found)
    }
}

/// Returns the answer if the call succeeded. Otherwise converts the answer to an error.
fn classify_answer(
    answer: HttpAnswer,
    method: &Method,
    path: &str,
) -> Result<HttpAnswer, ServiceError> {
    let path = path.split('?').next().unwrap_or_default();
    let message = || {
        format!(
            "{method} {path}: GitHub says {} {}",
            answer.status,
            error_text(&answer)
        )
    };
    match answer.status {
        200..=299 => Ok(answer),
        401 => Err(ServiceError::Unauthorized(format!(
            "{}; check the app's id and key",
            message()
        ))),
        403 | 429 if is_rate_limited(&answer) => Err(ServiceError::RetryAfter(
            requested_pause(&answer, unix_time_ms() / 1_000).unwrap_or(DEFAULT_PAUSE),
        )),
        403 if error_text(&answer).contains("not accessible by integration") => Err(
            ServiceError::Unauthorized(format!("{}; give the app that permission", message())),
        ),
        300..=399 => Err(ServiceError::Rejected(format!(
            "{}: the repository has moved",
            message()
        ))),
        408 | 409 | 500.. => Err(ServiceError::OutcomeUnknown(message())),
        _ => Err(ServiceError::Rejected(message())),
    }
}

/// Returns whether the header `Link` of an answer names a next page of the list.
pub(crate) fn has_next(answer: &HttpAnswer) -> bool {
    answer
        .header("link")
        .is_some_and(|links| links.contains("rel=\"next\""))
}

/// Returns the name `repo` if it has the form `owner/repository`, otherwise an error. Any other
/// text could change the address that is called.
fn checked_repo_name(repo: &str) -> Result<&str, ServiceError> {
    let is_name = |s: &str| {
        !s.is_empty()
            && !matches!(s, "." | "..")
            && s.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    match repo.split_once('/') {
        Some((owner, name)) if is_name(owner) && is_name(name) => Ok(repo),
        _ => Err(ServiceError::Rejected(format!(
            "{repo:?} is not the name of a repository; write it as owner/name"
        ))),
    }
}

/// Returns the reason from an answer in which GitHub refused a call.
fn error_text(answer: &HttpAnswer) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let first_error = answer.body["errors"]
        .as_array()
        .and_then(|errors| errors.first())
        .and_then(|error| text(&error["message"]).or(text(error)));
    let message = text(&answer.body["message"])
        .into_iter()
        .chain(first_error)
        .collect::<Vec<_>>()
        .join(": ");
    message.chars().take(300).collect()
}

/// Returns whether GitHub refused a call because of its rate limit. The HTTP status alone does not
/// show this, because GitHub also uses it for a missing permission.
fn is_rate_limited(answer: &HttpAnswer) -> bool {
    answer.status == 429
        || answer.retry_after().is_some()
        || answer.header("x-ratelimit-remaining") == Some("0")
        || error_text(answer).to_lowercase().contains("rate limit")
}

/// Returns how long to wait before the next call, as requested by GitHub in the headers of an
/// answer. Returns `None` if the headers request no waiting time.
fn requested_pause(answer: &HttpAnswer, now_s: u64) -> Option<Duration> {
    let refused = matches!(answer.status, 403 | 429) && is_rate_limited(answer);
    if let Some(pause) = answer.retry_after().filter(|_| refused) {
        return Some(pause.max(Duration::from_millis(1)));
    }
    if answer.header("x-ratelimit-remaining") == Some("0") {
        let reset: u64 = answer.header("x-ratelimit-reset")?.parse().ok()?;
        // Add one second, because GitHub rounds the time of the reset down.
        return Some(Duration::from_secs(
            reset.saturating_sub(now_s).clamp(1, 3_600) + 1,
        ));
    }
    refused.then_some(DEFAULT_PAUSE)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &str)], message: &str) -> HttpAnswer {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect();
        HttpAnswer {
            status,
            headers,
            body: json!({"message": message, "errors": [{"message": "why"}]}),
        }
    }

    /// The class of an answer decides whether a post is sent again: later, after a lookup, or
    /// never.
    #[test]
    fn class_of_an_answer_follows_from_its_status_headers_and_message() {
        let class_of = |http_answer: HttpAnswer| match classify_answer(
            http_answer,
            &Method::POST,
            "/repos/a/b/issues/1/comments?x=secret",
        ) {
            Ok(_) => "ok".to_owned(),
            Err(ServiceError::RetryAfter(pause)) => format!("later {}", pause.as_secs()),
            Err(ServiceError::OutcomeUnknown(why)) => format!("unknown {why}"),
            Err(ServiceError::Rejected(why)) => format!("never {why}"),
            Err(ServiceError::Unauthorized(why)) => format!("locked {why}"),
        };
        let (exhausted, reset) = (
            ("x-ratelimit-remaining", "0"),
            (unix_time_ms() / 1_000 + 100).to_string(),
        );
        for (http_answer, expected) in [
            (answer(200, &[], ""), "ok"),
            (answer(201, &[("retry-after", "9")], ""), "ok"),
            (
                answer(
                    403,
                    &[("retry-after", "7")],
                    "You have exceeded a secondary rate limit.",
                ),
                "later 7",
            ),
            (
                answer(403, &[], "You have exceeded a secondary rate limit."),
                "later 60",
            ),
            (answer(429, &[], ""), "later 60"),
            (
                answer(
                    403,
                    &[exhausted, ("x-ratelimit-reset", reset.as_str())],
                    "API rate limit exceeded",
                ),
                "later 10",
            ),
            (
                answer(
                    403,
                    &[exhausted, ("x-ratelimit-reset", "1")],
                    "API rate limit exceeded",
                ),
                "later 2",
            ),
            (
                answer(403, &[], "Resource not accessible by integration"),
                "locked",
            ),
            (answer(401, &[], "Bad credentials"), "locked"),
            (
                answer(
                    403,
                    &[],
                    "Unable to create comment because issue is locked.",
                ),
                "never",
            ),
            (answer(404, &[], "Not Found"), "never"),
            (answer(410, &[], "This issue was deleted"), "never"),
            (answer(422, &[], "Validation Failed"), "never"),
            (answer(301, &[], "Moved Permanently"), "never"),
            (answer(500, &[], ""), "unknown"),
            (
                answer(502, &[("retry-after", "9")], "Bad Gateway"),
                "unknown",
            ),
        ] {
            let answer_text = format!("{} {}", http_answer.status, error_text(&http_answer));
            let class = class_of(http_answer);
            assert!(class.starts_with(expected), "{answer_text}: {class}");
            assert!(!class.contains("secret"), "{class}");
        }
    }

    #[test]
    fn repository_name_with_path_characters_is_refused() {
        for good in ["acme/shop", "a-b/c.d_e"] {
            assert!(checked_repo_name(good).is_ok(), "{good}");
        }
        for bad in [
            "", "acme", "acme/", "/shop", "a/b/c", "a/..", "../x", "a/b?c", "a/b#c", "a b/c",
            "a/%2e%2e", "é/x",
        ] {
            assert!(
                matches!(checked_repo_name(bad), Err(ServiceError::Rejected(_))),
                "{bad}"
            );
        }
        assert_eq!(
            crate::http::percent_encoded("acme:regatta/T7-fix it"),
            "acme%3Aregatta%2FT7-fix%20it"
        );
    }
}
