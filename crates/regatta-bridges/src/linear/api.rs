//! The part of Linear's GraphQL API that the bridge uses: five documents.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::desk::wall;
use crate::http::{Answer, Call, Http};
use crate::registry::{Secret, Standing};
use crate::service::Trouble;

const VIEWER: &str = "query Viewer { viewer { id name displayName } organization { id } }";
const PERSON: &str = "query Person($id: String!) { user(id: $id) { id name displayName active guest app } }";
const RECENT: &str = "query RecentAgentSessions { agentSessions(first: 50, orderBy: updatedAt) { nodes { \
    id status url createdAt updatedAt appUser { id } creator { id name } comment { id body } \
    issue { id identifier title description url team { id key } } \
    activities(last: 20) { nodes { id createdAt signal user { id name } \
    content { __typename ... on AgentActivityPromptContent { body } } } } } } }";
const ACTIVITY: &str = "mutation AgentActivityCreate($input: AgentActivityCreateInput!) { \
    agentActivityCreate(input: $input) { success agentActivity { id } } }";
const SESSION: &str = "mutation AgentSessionUpdate($id: String!, $input: AgentSessionUpdateInput!) { \
    agentSessionUpdate(id: $id, input: $input) { success } }";

/// Our identity in a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Me {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) display_name: String,
    pub(crate) organization: String,
}

/// The facts that Linear knows about a person.
#[derive(Clone, Debug, Default)]
struct Person {
    name: String,
    /// Set for an active member of the workspace who is no guest.
    member: bool,
    app: bool,
}

pub(crate) struct Api {
    http: Http,
    url: String,
    token: Secret,
    me: Mutex<Option<Me>>,
    people: Mutex<HashMap<String, Person>>,
}

/// Capacity of the cache of people.
const MOST_KNOWN: usize = 5_000;
/// Time limit of a lookup, because the answer to a delivery waits for it.
const LOOK_UP: Duration = Duration::from_millis(1_200);
/// Wait time when Linear limits the rate without saying for how long, and the longest wait that is
/// accepted.
const LEAVE_ALONE: Duration = Duration::from_secs(10);
const LEAVE_ALONE_AT_MOST: Duration = Duration::from_secs(3_600);

impl Api {
    pub(crate) fn new(http: Http, url: String, token: Secret) -> Api {
        Api { http, url, token, me: Mutex::default(), people: Mutex::default() }
    }

    async fn ask(&self, document: &str, variables: Value, patience: Option<Duration>) -> Result<Value, Trouble> {
        let body = json!({"query": document, "variables": variables});
        let token = self.token.reveal();
        // The key of a person is sent bare, the token of an app with a prefix.
        let value = if token.starts_with("lin_api_") { token.to_owned() } else { format!("Bearer {token}") };
        let mut call = Call::new(Method::POST, &self.url).json(&body).header("authorization", value);
        call.patience = patience;
        let answer = self.http.call(call).await?;
        let name = document.split(['(', '{']).next().unwrap_or_default().split_whitespace().nth(1).unwrap_or("a call");
        judged(name, answer)
    }

    /// Returns our identity, which is asked for once.
    pub(crate) async fn me(&self) -> Result<Me, Trouble> {
        let known = self.me.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(me) = known {
            return Ok(me);
        }
        let said = self.ask(VIEWER, json!({}), None).await?;
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let viewer = &said["viewer"];
        let me = Me {
            id: text(&viewer["id"]),
            name: text(&viewer["name"]),
            display_name: text(&viewer["displayName"]),
            organization: text(&said["organization"]["id"]),
        };
        *self.me.lock().unwrap_or_else(PoisonError::into_inner) = Some(me.clone());
        Ok(me)
    }

    /// Returns the facts about a person who wrote in a workspace; only id and name if Linear does
    /// not know the person.
    pub(crate) async fn standing(&self, user: &Value, organization: &str) -> Standing {
        let id = user["id"].as_str().unwrap_or_default();
        let name = user["name"].as_str().unwrap_or_default();
        let stranger = Standing { id: id.to_owned(), name: name.to_owned(), ..Standing::default() };
        if id.is_empty() {
            return stranger;
        }
        let asked = match self.me().await {
            Ok(me) => self.person(id).await.map(|it| it.map(|person| (me, person))),
            Err(trouble) => Err(trouble),
        };
        let (me, person) = match asked {
            Ok(Some(found)) => found,
            Ok(None) => return stranger,
            Err(trouble) => return Standing { unsure: trouble.passes(), ..stranger },
        };
        Standing {
            name: if name.is_empty() { person.name } else { stranger.name },
            in_team: person.member && !organization.is_empty() && organization == me.organization,
            is_bot: person.app,
            ..stranger
        }
    }

    async fn person(&self, id: &str) -> Result<Option<Person>, Trouble> {
        let known = self.people.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let said = self.ask(PERSON, json!({"id": id}), Some(LOOK_UP)).await?;
        let user = &said["user"];
        let is = |name: &str, unsaid| user[name].as_bool().unwrap_or(unsaid);
        let Some(name) = user["name"].as_str() else { return Ok(None) };
        let found =
            Person { name: name.to_owned(), member: is("active", true) && !is("guest", true), app: is("app", false) };
        let mut people = self.people.lock().unwrap_or_else(PoisonError::into_inner);
        if people.len() >= MOST_KNOWN {
            people.clear();
        }
        people.insert(id.to_owned(), found.clone());
        Ok(Some(found))
    }

    /// Returns the sessions that changed last, with their activities.
    pub(crate) async fn recent(&self) -> Result<Vec<Value>, Trouble> {
        let mut said = self.ask(RECENT, json!({}), None).await?;
        match said["agentSessions"]["nodes"].take() {
            Value::Array(nodes) => Ok(nodes),
            _ => Err(Trouble::Unknown("RecentAgentSessions: Linear returned no sessions".into())),
        }
    }

    /// Creates an activity. An activity that already exists under its id counts as success.
    pub(crate) async fn activity(&self, input: &Value) -> Result<(), Trouble> {
        match self.ask(ACTIVITY, json!({"input": input}), None).await {
            Err(Trouble::Never(why)) if is_there(&why) => Ok(()),
            Ok(said) if said["agentActivityCreate"]["success"] == json!(false) => {
                Err(Trouble::Unknown("AgentActivityCreate: Linear reports a failure".into()))
            }
            other => other.map(drop),
        }
    }

    /// Changes the plan and the links that are shown for a whole session.
    pub(crate) async fn update(&self, session: &str, input: &Value) -> Result<(), Trouble> {
        self.ask(SESSION, json!({"id": session, "input": input}), None).await.map(drop)
    }
}

/// Returns whether a refusal means that an entity with that id exists.
fn is_there(why: &str) -> bool {
    let why = why.to_ascii_lowercase();
    why.contains("already exist") || why.contains("conflict on insert") || why.contains("duplicate")
}

/// Classifies an answer.
fn judged(name: &str, mut answer: Answer) -> Result<Value, Trouble> {
    let first = answer.body["errors"][0].clone();
    let code = first["extensions"]["code"].as_str().unwrap_or_default().to_ascii_uppercase();
    let kind = first["extensions"]["type"].as_str().unwrap_or_default().to_ascii_lowercase();
    if answer.status == 429 || code == "RATELIMITED" || kind == "ratelimited" {
        return Err(Trouble::Later(pause_of(&answer)));
    }
    let said = first["extensions"]["userPresentableMessage"].as_str().or(first["message"].as_str());
    let said = said.map_or_else(|| format!("{} without a reason", answer.status), str::to_owned);
    if answer.status == 401 || code == "AUTHENTICATION_ERROR" || kind == "authentication error" {
        let why = format!("{name}: Linear says {said}; check the access token and the app's installation");
        return Err(Trouble::Locked(why));
    }
    let broken = matches!(code.as_str(), "INTERNAL_SERVER_ERROR" | "INTERNAL_ERROR" | "LOCK_TIMEOUT")
        || matches!(kind.as_str(), "internal error" | "network error" | "lock timeout" | "bootstrap error");
    if answer.status >= 500 || broken {
        return Err(Trouble::Unknown(format!("{name}: Linear answered {}: {said}", answer.status)));
    }
    if !first.is_null() || answer.status >= 400 {
        return Err(Trouble::Never(format!("{name}: Linear says {said}")));
    }
    match answer.body["data"].take() {
        Value::Null => Err(Trouble::Unknown(format!("{name}: Linear's answer has no data"))),
        data => Ok(data),
    }
}

/// Returns how long Linear asks to wait: `Retry-After`, or the time until the exhausted limit
/// resets.
fn pause_of(answer: &Answer) -> Duration {
    if let Some(pause) = answer.retry_after() {
        return pause;
    }
    let header = |name: &str| answer.headers.get(name).and_then(|it| it.to_str().ok());
    let number = |name: &str| header(name).and_then(|it| it.trim().parse::<f64>().ok());
    let limits = ["x-ratelimit-requests", "x-ratelimit-complexity", "x-ratelimit-endpoint-requests"];
    let used_up = |limit: &&str| number(&format!("{limit}-remaining")).is_some_and(|it| it < 1.0);
    let resets = limits.into_iter().filter(used_up).filter_map(|it| number(&format!("{it}-reset")));
    let latest = resets.fold(0.0_f64, f64::max);
    let now = wall() as f64;
    if latest <= now {
        return LEAVE_ALONE;
    }
    Duration::from_secs_f64((latest - now) / 1_000.0).min(LEAVE_ALONE_AT_MOST)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderValue};

    use super::*;

    fn answer(status: u16, body: Value) -> Answer {
        Answer { status, headers: HeaderMap::new(), body }
    }

    fn error(code: &str, message: &str) -> Value {
        json!({"data": null, "errors": [{"message": message, "extensions": {"code": code}}]})
    }

    #[test]
    fn class_of_an_answer_follows_from_its_status_and_error_code() {
        assert_eq!(judged("X", answer(200, json!({"data": {"a": 1}}))), Ok(json!({"a": 1})));
        for (status, body) in [(400, error("RATELIMITED", "slow")), (429, Value::Null)] {
            assert!(matches!(judged("X", answer(status, body)), Err(Trouble::Later(it)) if it == LEAVE_ALONE));
        }
        for (status, body) in [(401, Value::Null), (400, error("AUTHENTICATION_ERROR", "who?"))] {
            assert!(matches!(judged("X", answer(status, body)), Err(Trouble::Locked(_))));
        }
        for (status, body) in
            [(502, Value::Null), (200, error("INTERNAL_SERVER_ERROR", "oh")), (200, json!({})), (200, Value::Null)]
        {
            assert!(matches!(judged("X", answer(status, body)), Err(Trouble::Unknown(_))));
        }
        for (status, body) in [(400, error("INPUT_ERROR", "no such session")), (403, Value::Null)] {
            assert!(matches!(judged("X", answer(status, body)), Err(Trouble::Never(_))));
        }
        assert!(is_there("AgentActivityCreate: Linear says Entity already exists"));
        assert!(!is_there("AgentActivityCreate: Linear says Entity not found: AgentSession"));
    }

    /// Only the exhausted limit counts. The other limit has room and resets much later.
    #[test]
    fn pause_is_read_from_the_headers() {
        let mut it = answer(400, error("RATELIMITED", "slow"));
        let mut set = |name: &'static str, value: u64| {
            it.headers.insert(name, HeaderValue::from_str(&value.to_string()).unwrap());
        };
        set("x-ratelimit-requests-remaining", 0);
        set("x-ratelimit-requests-reset", wall() + 30_000);
        set("x-ratelimit-complexity-remaining", 9_000);
        set("x-ratelimit-complexity-reset", wall() + 900_000);
        let Err(Trouble::Later(pause)) = judged("X", it.clone()) else { panic!("not rate limited") };
        assert!((25..=30).contains(&pause.as_secs()), "{pause:?}");
        it.headers.insert("retry-after", HeaderValue::from_static("3"));
        assert_eq!(judged("X", it), Err(Trouble::Later(Duration::from_secs(3))));
    }
}
