//! A client for the part of Linear's GraphQL API that the bridge uses. The client sends five fixed
//! queries and mutations.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::config::{Requester, Secret};
use crate::http::{HttpAnswer, HttpCall, HttpClient};
use crate::intake::unix_time_ms;
use crate::service::ServiceError;

const VIEWER_QUERY: &str = "query Viewer { viewer { id name displayName } organization { id } }";
const PERSON_QUERY: &str =
    "query Person($id: String!) { user(id: $id) { id name displayName active guest app } }";
const RECENT_SESSIONS_QUERY: &str = "query RecentAgentSessions { agentSessions(first: 50, orderBy: \
    updatedAt) { nodes { \
    id status url createdAt updatedAt appUser { id } creator { id name } comment { id body } \
    issue { id identifier title description url team { id key } } \
    activities(last: 20) { nodes { id createdAt signal user { id name } \
    content { __typename ... on AgentActivityPromptContent { body } } } } } } }";
const CREATE_ACTIVITY_MUTATION: &str = "mutation AgentActivityCreate($input: \
    AgentActivityCreateInput!) { \
    agentActivityCreate(input: $input) { success agentActivity { id } } }";
const UPDATE_SESSION_MUTATION: &str = "mutation AgentSessionUpdate($id: String!, $input: \
    AgentSessionUpdateInput!) { \
    agentSessionUpdate(id: $id, input: $input) { success } }";

/// The ids and names that Linear gives the agent's app in a workspace. By these the bridge
/// recognises mentions of the app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinearIdentity {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) display_name: String,
    pub(crate) organization: String,
}

/// The facts about a person that Linear returned.
#[derive(Clone, Debug, Default)]
struct LinearPerson {
    name: String,
    /// True for an active member of the Linear workspace who is not a guest.
    is_member: bool,
    is_app: bool,
}

pub(crate) struct LinearApi {
    http: HttpClient,
    url: String,
    token: Secret,
    identity: OnceCell<LinearIdentity>,
    people: Mutex<HashMap<String, LinearPerson>>,
}

/// Maximum number of people about whom the answers of Linear are cached.
const MAX_CACHED_PEOPLE: usize = 5_000;
/// Time limit for looking up a person. The limit is short, because during the lookup Linear waits
/// for the answer to its webhook delivery.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1_200);
/// Pause before the next call if Linear refused a call because of its rate limit and gave no
/// duration.
const DEFAULT_PAUSE: Duration = Duration::from_secs(10);
const MAX_PAUSE: Duration = Duration::from_secs(3_600);

impl LinearApi {
    pub(crate) fn new(http: HttpClient, url: String, token: Secret) -> LinearApi {
        LinearApi {
            http,
            url,
            token,
            identity: OnceCell::new(),
            people: Mutex::default(),
        }
    }

    async fn query(
        &self,
        document: &str,
        variables: Value,
        timeout: Option<Duration>,
    ) -> Result<Value, ServiceError> {
        let body = json!({"query": document, "variables": variables});
        let token = self.token.reveal();
        // Linear expects a personal API key without a prefix, and the token of an app with the
        // prefix `Bearer`.
        let value = if token.starts_with("lin_api_") {
            token.to_owned()
        } else {
            format!("Bearer {token}")
        };
        let mut call = HttpCall::new(Method::POST, &self.url)
            .json(&body)
            .header("authorization", value);
        call.timeout = timeout;
        let answer = self.http.call(call).await?;
        let name = document
            .split(['(', '{'])
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .nth(1)
            .unwrap_or("a call");
        classify_answer(name, answer)
    }

    /// Returns the ids and names of the agent's app. Only the first call requests them from Linear.
    pub(crate) async fn identity(&self) -> Result<LinearIdentity, ServiceError> {
        let look_up = || async {
            let answer = self.query(VIEWER_QUERY, json!({}), None).await?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let viewer = &answer["viewer"];
            Ok(LinearIdentity {
                id: text(&viewer["id"]),
                name: text(&viewer["name"]),
                display_name: text(&viewer["displayName"]),
                organization: text(&answer["organization"]["id"]),
            })
        };
        self.identity.get_or_try_init(look_up).await.cloned()
    }

    /// Returns the facts about a person who wrote in the Linear workspace `organization`. If the
    /// person is unknown in this workspace, only id and name are set.
    pub(crate) async fn requester(&self, user: &Value, organization: &str) -> Requester {
        let id = user["id"].as_str().unwrap_or_default();
        let name = user["name"].as_str().unwrap_or_default();
        let stranger = Requester {
            id: id.to_owned(),
            name: name.to_owned(),
            ..Requester::default()
        };
        if id.is_empty() {
            return stranger;
        }
        let looked_up = match self.identity().await {
            Ok(identity) => self
                .look_up_person(id)
                .await
                .map(|found| found.map(|person| (identity, person))),
            Err(error) => Err(error),
        };
        let (identity, person) = match looked_up {
            Ok(Some(found)) => found,
            Ok(None) => return stranger,
            Err(error) => {
                return Requester {
                    is_uncertain: error.is_temporary(),
                    ..stranger
                };
            }
        };
        Requester {
            name: if name.is_empty() {
                person.name
            } else {
                stranger.name
            },
            is_in_team: person.is_member
                && !organization.is_empty()
                && organization == identity.organization,
            is_bot: person.is_app,
            ..stranger
        }
    }

    async fn look_up_person(&self, id: &str) -> Result<Option<LinearPerson>, ServiceError> {
        let known = self
            .people
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(id)
            .cloned();
        if known.is_some() {
            return Ok(known);
        }
        let answer = self
            .query(PERSON_QUERY, json!({"id": id}), Some(LOOKUP_TIMEOUT))
            .await?;
        let user = &answer["user"];
        let flag = |name: &str, default| user[name].as_bool().unwrap_or(default);
        let Some(name) = user["name"].as_str() else {
            return Ok(None);
        };
        let person = LinearPerson {
            name: name.to_owned(),
            is_member: flag("active", true) && !flag("guest", true),
            is_app: flag("app", false),
        };
        let mut people = self.people.lock().unwrap_or_else(PoisonError::into_inner);
        if people.len() >= MAX_CACHED_PEOPLE {
            people.clear();
        }
        people.insert(id.to_owned(), person.clone());
        Ok(Some(person))
    }

    /// Returns the agent sessions that changed last, with their activities (the entries of a
    /// session).
    pub(crate) async fn recent_sessions(&self) -> Result<Vec<Value>, ServiceError> {
        let mut answer = self.query(RECENT_SESSIONS_QUERY, json!({}), None).await?;
        match answer["agentSessions"]["nodes"].take() {
            Value::Array(nodes) => Ok(nodes),
            _ => Err(ServiceError::OutcomeUnknown(
                "RecentAgentSessions: Linear returned no sessions".into(),
            )),
        }
    }

    /// Creates an activity (an entry of a session). Returns success if an activity with the same id
    /// already exists, because an earlier call created it.
    pub(crate) async fn create_activity(&self, input: &Value) -> Result<(), ServiceError> {
        match self
            .query(CREATE_ACTIVITY_MUTATION, json!({"input": input}), None)
            .await
        {
            Err(ServiceError::Rejected(why)) if already_exists(&why) => Ok(()),
            Ok(answer) if answer["agentActivityCreate"]["success"] == json!(false) => {
                Err(ServiceError::OutcomeUnknown(
                    "AgentActivityCreate: Linear reports a failure".into(),
                ))
            }
            other => other.map(drop),
        }
    }

    /// Changes the plan and the links that Linear shows for a session.
    pub(crate) async fn update_session(
        &self,
        session: &str,
        input: &Value,
    ) -> Result<(), ServiceError> {
        self.query(
            UPDATE_SESSION_MUTATION,
            json!({"id": session, "input": input}),
            None,
        )
        .await
        .map(drop)
    }
}

/// Returns whether `why` says that Linear refused to create an object because its id already
/// exists.
fn already_exists(why: &str) -> bool {
    let why = why.to_ascii_lowercase();
    why.contains("already exist") || why.contains("conflict on insert") || why.contains("duplicate")
}

/// Returns the data of the answer if the call succeeded. Otherwise converts the answer to an error.
fn classify_answer(name: &str, mut answer: HttpAnswer) -> Result<Value, ServiceError> {
    let first = answer.body["errors"][0].clone();
    let code = first["extensions"]["code"]
        .as_str()
        .unwrap_or_default()
        .to_ascii_uppercase();
    let kind = first["extensions"]["type"]
        .as_str()
        .unwrap_or_default()
        .to_ascii_lowercase();
    if answer.status == 429 || code == "RATELIMITED" || kind == "ratelimited" {
        return Err(ServiceError::RetryAfter(requested_pause(&answer)));
    }
    let message = first["extensions"]["userPresentableMessage"]
        .as_str()
        .or(first["message"].as_str());
    let message = message.map_or_else(
        || format!("{} without a reason", answer.status),
        str::to_owned,
    );
    if answer.status == 401 || code == "AUTHENTICATION_ERROR" || kind == "authentication error" {
        let why = format!(
            "{name}: Linear says {message}; check the access token and the app's installation"
        );
        return Err(ServiceError::Unauthorized(why));
    }
    let is_server_error = matches!(
        code.as_str(),
        "INTERNAL_SERVER_ERROR" | "INTERNAL_ERROR" | "LOCK_TIMEOUT"
    ) || matches!(
        kind.as_str(),
        "internal error" | "network error" | "lock timeout" | "bootstrap error"
    );
    if answer.status >= 500 || is_server_error {
        return Err(ServiceError::OutcomeUnknown(format!(
            "{name}: Linear answered {}: {message}",
            answer.status
        )));
    }
    if !first.is_null() || answer.status >= 400 {
        return Err(ServiceError::Rejected(format!(
            "{name}: Linear says {message}"
        )));
    }
    match answer.body["data"].take() {
        Value::Null => Err(ServiceError::OutcomeUnknown(format!(
            "{name}: Linear's answer has no data"
        ))),
        data => Ok(data),
    }
}

/// Returns the waiting time that Linear requests: the header `Retry-After`, otherwise the time
/// until the exhausted rate limit is reset.
fn requested_pause(answer: &HttpAnswer) -> Duration {
    if let Some(pause) = answer.retry_after() {
        return pause;
    }
    let header = |name: &str| {
        answer
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let number = |name: &str| header(name).and_then(|value| value.trim().parse::<f64>().ok());
    let limits = [
        "x-ratelimit-requests",
        "x-ratelimit-complexity",
        "x-ratelimit-endpoint-requests",
    ];
    let is_exhausted = |limit: &&str| {
        number(&format!("{limit}-remaining")).is_some_and(|remaining| remaining < 1.0)
    };
    let resets = limits
        .into_iter()
        .filter(is_exhausted)
        .filter_map(|limit| number(&format!("{limit}-reset")));
    let latest = resets.fold(0.0_f64, f64::max);
    let now = unix_time_ms() as f64;
    if latest <= now {
        return DEFAULT_PAUSE;
    }
    Duration::from_secs_f64((latest - now) / 1_000.0).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderValue};

    use super::*;

    fn answer(status: u16, body: Value) -> HttpAnswer {
        HttpAnswer {
            status,
            headers: HeaderMap::new(),
            body,
        }
    }

    fn error_body(code: &str, message: &str) -> Value {
        json!({"data": null, "errors": [{"message": message, "extensions": {"code": code}}]})
    }

    #[test]
    fn class_of_an_answer_follows_from_its_status_and_error_code() {
        assert_eq!(
            classify_answer("X", answer(200, json!({"data": {"a": 1}}))),
            Ok(json!({"a": 1}))
        );
        for (status, body) in [(400, error_body("RATELIMITED", "slow")), (429, Value::Null)] {
            assert!(
                matches!(classify_answer("X", answer(status, body)), Err(ServiceError::RetryAfter(duration)) if duration == DEFAULT_PAUSE)
            );
        }
        for (status, body) in [
            (401, Value::Null),
            (400, error_body("AUTHENTICATION_ERROR", "who?")),
        ] {
            assert!(matches!(
                classify_answer("X", answer(status, body)),
                Err(ServiceError::Unauthorized(_))
            ));
        }
        for (status, body) in [
            (502, Value::Null),
            (200, error_body("INTERNAL_SERVER_ERROR", "oh")),
            (200, json!({})),
            (200, Value::Null),
        ] {
            assert!(matches!(
                classify_answer("X", answer(status, body)),
                Err(ServiceError::OutcomeUnknown(_))
            ));
        }
        for (status, body) in [
            (400, error_body("INPUT_ERROR", "no such session")),
            (403, Value::Null),
        ] {
            assert!(matches!(
                classify_answer("X", answer(status, body)),
                Err(ServiceError::Rejected(_))
            ));
        }
        assert!(already_exists(
            "AgentActivityCreate: Linear says Entity already exists"
        ));
        assert!(!already_exists(
            "AgentActivityCreate: Linear says Entity not found: AgentSession"
        ));
    }

    /// Only the exhausted limit counts. The other limit has room and resets much later.
    #[test]
    fn pause_is_read_from_the_headers() {
        let mut http_answer = answer(400, error_body("RATELIMITED", "slow"));
        let mut set = |name: &'static str, value: u64| {
            http_answer
                .headers
                .insert(name, HeaderValue::from_str(&value.to_string()).unwrap());
        };
        set("x-ratelimit-requests-remaining", 0);
        set("x-ratelimit-requests-reset", unix_time_ms() + 30_000);
        set("x-ratelimit-complexity-remaining", 9_000);
        set("x-ratelimit-complexity-reset", unix_time_ms() + 900_000);
        let Err(ServiceError::RetryAfter(pause)) = classify_answer("X", http_answer.clone()) else {
            panic!("not rate limited")
        };
        assert!((25..=30).contains(&pause.as_secs()), "{pause:?}");
        http_answer
            .headers
            .insert("retry-after", HeaderValue::from_static("3"));
        assert_eq!(
            classify_answer("X", http_answer),
            Err(ServiceError::RetryAfter(Duration::from_secs(3)))
        );
    }
}
