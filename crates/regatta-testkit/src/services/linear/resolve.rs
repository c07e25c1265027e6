//! Answers the GraphQL queries and mutations of Linear's clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::super::double::{
    CallRecords, ServiceAnswer, ServiceDouble, ViolationKind, rate_limited,
};
use super::super::listener::{DoubleReply, DoubleRequest};
use super::super::rate_limit::RateRule;
use super::super::signature;
use super::graphql::{self, GraphqlDocument, GraphqlSelection};
use super::hooks::STALE_TIMEOUT;
use super::json;
use super::state::{LinearSession, LinearState, SessionActivity};

/// Maximum number of requests that an app may send per hour. Used-up requests become available
/// again at a constant rate.
pub const MAX_REQUESTS_PER_HOUR: u32 = 5000;

/// The error with which a GraphQL operation fails.
struct LinearError {
    status: u16,
    code: &'static str,
    message: String,
    violation: Option<ViolationKind>,
}

fn invalid_input(kind: ViolationKind, message: impl Into<String>) -> LinearError {
    LinearError {
        status: 400,
        code: "INPUT_ERROR",
        message: message.into(),
        violation: Some(kind),
    }
}

fn not_found(kind: &str) -> LinearError {
    LinearError {
        status: 400,
        code: "INPUT_ERROR",
        message: format!("Entity not found: {kind}"),
        violation: None,
    }
}

fn bad_document(message: String) -> LinearError {
    LinearError {
        status: 400,
        code: "GRAPHQL_VALIDATION_FAILED",
        message,
        violation: Some(ViolationKind::Unknown),
    }
}

type LinearResult = Result<Value, LinearError>;

/// Returns the arguments that a query or mutation can have, with their types. An argument whose
/// type ends in `!` is required.
fn arguments_of(kind: &str, field: &str) -> Option<&'static [(&'static str, &'static str)]> {
    Some(match (kind, field) {
        ("query", "viewer" | "organization") => &[],
        ("query", "agentSession" | "agentActivity" | "issue" | "comment" | "user") => {
            &[("id", "String!")]
        }
        ("query", "agentSessions") => &[
            ("first", "Int"),
            ("after", "String"),
            ("last", "Int"),
            ("before", "String"),
            ("includeArchived", "Boolean"),
            ("orderBy", "PaginationOrderBy"),
        ],
        ("mutation", "agentActivityCreate") => &[("input", "AgentActivityCreateInput!")],
        ("mutation", "agentSessionUpdate") => {
            &[("id", "String!"), ("input", "AgentSessionUpdateInput!")]
        }
        ("mutation", "agentSessionCreateOnIssue") => &[("input", "AgentSessionCreateOnIssue!")],
        ("mutation", "agentSessionCreateOnComment") => &[("input", "AgentSessionCreateOnComment!")],
        _ => return None,
    })
}

/// Returns the fields that the input object of a mutation may have.
fn input_fields_of(field: &str) -> &'static [&'static str] {
    match field {
        "agentActivityCreate" => &[
            "agentSessionId",
            "content",
            "contextualMetadata",
            "ephemeral",
            "id",
            "signal",
            "signalMetadata",
        ],
        "agentSessionUpdate" => &[
            "addedExternalUrls",
            "externalLink",
            "externalUrls",
            "plan",
            "removedExternalUrls",
            "summary",
        ],
        "agentSessionCreateOnIssue" => &["externalLink", "externalUrls", "issueId"],
        _ => &["externalLink", "externalUrls", "commentId"],
    }
}

pub(crate) async fn handle_request(
    double: Arc<ServiceDouble<LinearState>>,
    request: DoubleRequest,
) -> DoubleReply {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let text = body["query"].as_str().unwrap_or_default();
    let document = graphql::parse_document(text, body["operationName"].as_str());
    let name = match document
        .as_ref()
        .map(|graphql_document| graphql_document.fields.first())
    {
        Ok(Some(GraphqlSelection::Field { name, .. })) => name.clone(),
        _ => "unreadable".into(),
    };
    let header = request
        .header("authorization")
        .unwrap_or_default()
        .to_owned();
    let found = double.view(|view| {
        let matches_token = |linear_app_state: &&super::state::LinearAppState| {
            header.ends_with(&linear_app_state.app.access_token)
        };
        view.apps
            .iter()
            .position(|linear_app_state| matches_token(&linear_app_state))
            .map(|app_index| (app_index, view.apps[app_index].app.clone()))
    });
    let caller = found
        .as_ref()
        .map(|found| found.1.name.clone())
        .unwrap_or_default();
    let proper = found
        .as_ref()
        .is_some_and(|found| header == format!("Bearer {}", found.1.access_token));
    let input = json!({"query": text, "variables": body["variables"]});
    double
        .perform_call(&name, &caller, input, |world, ledger| {
            let refuse = |ledger: &mut CallRecords, slip: LinearError| {
                error_answer(ledger, &caller, &name, slip)
            };
            let app_index = match &found {
                _ if request.path != "/graphql" || request.method != "POST" => {
                    let message = format!("Cannot {} {}", request.method, request.path);
                    let slip = LinearError {
                        status: 404,
                        code: "NOT_FOUND",
                        message,
                        violation: Some(ViolationKind::Unknown),
                    };
                    return refuse(ledger, slip);
                }
                // Like Linear's server, refuse requests that a browser could send from another site
                // without asking first (a CORS preflight).
                _ if !request
                    .header("content-type")
                    .is_some_and(|kind| kind.starts_with("application/json")) =>
                {
                    let message =
                        "This operation has been blocked as a potential Cross-Site Request \
                    Forgery (CSRF)"
                            .into();
                    let slip = LinearError {
                        status: 400,
                        code: "BAD_REQUEST",
                        message,
                        violation: Some(ViolationKind::BadField),
                    };
                    return refuse(ledger, slip);
                }
                Some((app_index, _)) if proper => *app_index,
                _ => {
                    let message = "Authentication required, not authenticated".into();
                    let slip = LinearError {
                        status: 401,
                        code: "AUTHENTICATION_ERROR",
                        message,
                        violation: Some(ViolationKind::Auth),
                    };
                    return refuse(ledger, slip);
                }
            };
            let most = world.max_requests_per_hour;
            let every = Duration::from_secs(3600) / most.max(1);
            if let Err(refused) = ledger.count_call(
                &caller,
                &name,
                &[RateRule::bucket(
                    format!("requests of {caller}"),
                    every,
                    most,
                )],
            ) {
                return rate_limited::<LinearState>(&name, refused.seconds)
                    .with_header("x-ratelimit-requests-limit", most.to_string());
            }
            let answered = document.map_err(bad_document).and_then(|document| {
                let mut turn = LinearRequest {
                    linear: world,
                    records: ledger,
                    app: app_index,
                };
                turn.execute(&document, &body["variables"])
            });
            let reset = (signature::unix_time() + Duration::from_secs(3600)).as_millis();
            match answered {
                Ok(data) => ServiceAnswer::ok(json!({"data": data}))
                    .with_header("x-ratelimit-requests-limit", most.to_string())
                    .with_header(
                        "x-ratelimit-requests-remaining",
                        most.saturating_sub(1).to_string(),
                    )
                    .with_header("x-ratelimit-requests-reset", reset.to_string())
                    .with_header("x-complexity", "1"),
                Err(slip) => refuse(ledger, slip),
            }
        })
        .await
}

fn error_answer(
    ledger: &mut CallRecords,
    caller: &str,
    name: &str,
    slip: LinearError,
) -> ServiceAnswer {
    if let Some(wrong) = slip.violation {
        ledger.add_violation(caller, wrong, format!("{name}: {}", slip.message));
    }
    let kind = match slip.code {
        "AUTHENTICATION_ERROR" => "authentication error",
        "GRAPHQL_VALIDATION_FAILED" => "graphql error",
        "FORBIDDEN" => "forbidden",
        _ => "invalid input",
    };
    let extensions = json!({
        "type": kind, "code": slip.code, "statusCode": slip.status, "userError": true,
        "userPresentableMessage": slip.message,
    });
    // The answer to an operation that fails has the HTTP status 200 and a list of errors. If a
    // document cannot be run at all, its answer has another status.
    let status = if slip.code == "INPUT_ERROR" || slip.code == "FORBIDDEN" {
        200
    } else {
        slip.status
    };
    let body = json!({"errors": [{"message": slip.message, "path": [name], "extensions": extensions}], "data": null});
    ServiceAnswer::error(status, slip.code, body)
}

struct LinearRequest<'a> {
    linear: &'a mut LinearState,
    records: &'a mut CallRecords,
    app: usize,
}

impl LinearRequest<'_> {
    fn execute(&mut self, document: &GraphqlDocument, variables: &Value) -> LinearResult {
        let variables = document.variables(variables).map_err(bad_document)?;
        let mut data = Map::new();
        for field in &document.fields {
            let GraphqlSelection::Field {
                alias,
                name,
                arguments: given,
                inner,
            } = field
            else {
                return Err(bad_document(
                    "Fragments on the root are not supported.".into(),
                ));
            };
            let of = if document.kind == "query" {
                "Query"
            } else {
                "Mutation"
            };
            let known = arguments_of(&document.kind, name).ok_or_else(|| {
                bad_document(format!("Cannot query field \"{name}\" on type \"{of}\"."))
            })?;
            let mut values = Map::new();
            for (argument, value) in given {
                let (_, kind) =
                    known
                        .iter()
                        .find(|known| known.0 == argument)
                        .ok_or_else(|| {
                            bad_document(format!(
                                "Unknown argument \"{argument}\" on field \"{of}.{name}\"."
                            ))
                        })?;
                if let Some(declared) = document.declared_type(value)
                    && declared.trim_end_matches('!') != kind.trim_end_matches('!')
                {
                    return Err(bad_document(format!(
                        "A variable of type \"{declared}\" is used where \"{kind}\" is."
                    )));
                }
                values.insert(argument.clone(), document.resolve_value(value, &variables));
            }
            for (argument, kind) in known {
                if kind.ends_with('!') && values.get(*argument).is_none_or(Value::is_null) {
                    return Err(bad_document(format!(
                        "Argument \"{argument}\" of type \"{kind}\" is required."
                    )));
                }
            }
            let result = self.resolve_root_field(name, &values)?;
            let result = graphql::connection_page(&result, &values);
            data.insert(
                alias.clone(),
                document
                    .select(&result, inner, &variables)
                    .map_err(bad_document)?,
            );
        }
        Ok(Value::Object(data))
    }

    fn resolve_root_field(&mut self, name: &str, values: &Map<String, Value>) -> LinearResult {
        let id = values.get("id").and_then(Value::as_str).unwrap_or_default();
        let input = values.get("input").cloned().unwrap_or_default();
        for field in input.as_object().into_iter().flatten().map(|input| input.0) {
            if !input_fields_of(name).contains(&field.as_str()) {
                return Err(bad_document(format!(
                    "Field \"{field}\" is not defined by the input of {name}."
                )));
            }
        }
        match name {
            "viewer" => {
                let me = self.linear.apps[self.app].app.app_user_id.clone();
                Ok(json::user(self.linear, &me))
            }
            "organization" => Ok(json::organization(self.linear)),
            "user" => Some(json::user(self.linear, id))
                .filter(|value| !value.is_null())
                .ok_or_else(|| not_found("User")),
            "issue" => self
                .linear
                .issue(id)
                .map(|linear_issue| json::issue(self.linear, linear_issue))
                .ok_or_else(|| not_found("Issue")),
            "comment" => {
                let found = self
                    .linear
                    .comments
                    .iter()
                    .find(|linear_comment| linear_comment.id == id);
                found
                    .map(|linear_comment| json::comment(self.linear, linear_comment))
                    .ok_or_else(|| not_found("Comment"))
            }
            "agentSession" => self
                .own_session(id)
                .map(|linear_session| json::session(self.linear, &linear_session)),
            "agentSessions" => {
                let mine = &self.linear.apps[self.app].app.name;
                let mine = self
                    .linear
                    .sessions
                    .iter()
                    .filter(|linear_session| linear_session.app == *mine);
                let nodes: Vec<Value> = mine
                    .map(|linear_session| json::session(self.linear, linear_session))
                    .collect();
                Ok(json!({"__typename": "AgentSessionConnection", "nodes": nodes}))
            }
            "agentActivity" => {
                let found = self.linear.sessions.iter().find_map(|linear_session| {
                    linear_session
                        .activities
                        .iter()
                        .find(|session_activity| session_activity.id == id)
                        .map(|activity| (linear_session.id.clone(), activity))
                });
                let (session, activity) = found.ok_or_else(|| not_found("AgentActivity"))?;
                Ok(json::activity(self.linear, &session, activity))
            }
            "agentActivityCreate" => self.create_activity(&input),
            "agentSessionUpdate" => self.update_session(id, &input),
            _ => self.create_session(name, &input),
        }
    }

    /// Returns a session, or an error if the session belongs to another app.
    fn own_session(&self, id: &str) -> Result<LinearSession, LinearError> {
        let found = self
            .linear
            .session(id)
            .ok_or_else(|| not_found("AgentSession"))?;
        if found.app != self.linear.apps[self.app].app.name {
            let message = format!("session {id} belongs to {}", found.app);
            return Err(LinearError {
                status: 403,
                code: "FORBIDDEN",
                message,
                violation: Some(ViolationKind::NotOwned),
            });
        }
        Ok(found.clone())
    }

    fn create_activity(&mut self, input: &Value) -> LinearResult {
        let session = input["agentSessionId"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.own_session(&session)?;
        let content = &input["content"];
        let kind = content["type"].as_str().unwrap_or_default().to_owned();
        validate_content(content, &kind)?;
        let ephemeral = input["ephemeral"].as_bool().unwrap_or(false);
        if ephemeral && kind != "thought" && kind != "action" {
            return Err(invalid_input(
                ViolationKind::BadField,
                format!("a {kind} cannot be ephemeral"),
            ));
        }
        let signal = input["signal"].as_str().map(str::to_owned);
        match signal.as_deref() {
            None => {}
            Some("auth" | "select") if kind == "elicitation" => {}
            Some(other) => {
                return Err(invalid_input(
                    ViolationKind::BadField,
                    format!("signal {other} does not go with a {kind}"),
                ));
            }
        }
        if signal.as_deref() == Some("select") && !input["signalMetadata"]["options"].is_array() {
            return Err(invalid_input(
                ViolationKind::BadField,
                "signalMetadata.options is missing",
            ));
        }
        if signal.as_deref() == Some("auth") && !input["signalMetadata"]["url"].is_string() {
            return Err(invalid_input(
                ViolationKind::BadField,
                "signalMetadata.url is missing",
            ));
        }
        let id = match input["id"].as_str() {
            Some(id) if !signature::is_uuid(id) => {
                return Err(invalid_input(ViolationKind::BadField, "id must be a UUID"));
            }
            Some(id) => id.to_owned(),
            None => signature::fake_uuid(&format!("activity {}", self.records.next())),
        };
        let (now, stale) = (
            self.records.elapsed(),
            self.records.scale.scale_deadline(STALE_TIMEOUT),
        );
        let user = self.linear.apps[self.app].app.app_user_id.clone();
        let owner = self.linear.sessions.iter().find(|linear_session| {
            linear_session
                .activities
                .iter()
                .any(|session_activity| session_activity.id == id)
        });
        let known = owner.map(|linear_session| linear_session.id.clone());
        if known.as_ref().is_some_and(|known| *known != session) {
            return Err(invalid_input(
                ViolationKind::WrongState,
                "this id belongs to another session's activity",
            ));
        }
        let session_state = self
            .linear
            .session_mut(&session)
            .ok_or_else(|| not_found("AgentSession"))?;
        if known.is_none() {
            let signal_metadata = input["signalMetadata"].clone();
            session_state.activities.push(SessionActivity {
                id: id.clone(),
                kind: kind.clone(),
                content: content.clone(),
                is_ephemeral: ephemeral,
                signal,
                signal_metadata,
                user,
                created: now,
            });
            let working = matches!(kind.as_str(), "thought" | "action");
            session_state.status = match kind.as_str() {
                "elicitation" => "awaitingInput",
                "response" => "complete",
                "error" => "error",
                _ => "active",
            }
            .into();
            (session_state.first_activity_due, session_state.stale_at) =
                (None, working.then(|| Instant::now() + stale));
        }
        let current_session = session_state.clone();
        let activity = current_session
            .activities
            .iter()
            .find(|session_activity| session_activity.id == id)
            .ok_or_else(|| not_found("AgentActivity"))?;
        let shown = json::activity(self.linear, &session, activity);
        let sync = self.records.next();
        Ok(
            json!({"__typename": "AgentActivityPayload", "agentActivity": shown, "lastSyncId": sync, "success": true}),
        )
    }

    fn update_session(&mut self, id: &str, input: &Value) -> LinearResult {
        let mut session_state = self.own_session(id)?;
        if let Some(plan) = input.get("plan").filter(|input| !input.is_null()) {
            let statuses = ["pending", "inProgress", "completed", "canceled"];
            let good = |value: &Value| {
                value["content"].is_string()
                    && statuses.iter().any(|status| value["status"] == *status)
            };
            if !plan.as_array().is_some_and(|plan| plan.iter().all(good)) {
                return Err(invalid_input(
                    ViolationKind::BadField,
                    format!("plan: {plan}"),
                ));
            }
            session_state.plan = plan.clone();
        }
        let urls = |field: &str| -> Result<Option<Vec<(String, String)>>, LinearError> {
            let Some(list) = input.get(field).filter(|input| !input.is_null()) else {
                return Ok(None);
            };
            let parse_url = |value: &Value| {
                Some((
                    value["label"].as_str()?.to_owned(),
                    value["url"].as_str()?.to_owned(),
                ))
            };
            let read: Option<Vec<_>> = list
                .as_array()
                .and_then(|list| list.iter().map(parse_url).collect());
            read.map(Some)
                .ok_or_else(|| invalid_input(ViolationKind::BadField, format!("{field}: {list}")))
        };
        if let Some(all) = urls("externalUrls")? {
            session_state.external_urls = all;
        } else {
            for added in urls("addedExternalUrls")?.unwrap_or_default() {
                session_state
                    .external_urls
                    .retain(|external_url| external_url.1 != added.1);
                session_state.external_urls.push(added);
            }
            let removed = input["removedExternalUrls"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            session_state
                .external_urls
                .retain(|external_url| !removed.iter().any(|url| *url == external_url.1));
        }
        if let Some(summary) = input["summary"].as_str() {
            let length = summary.chars().count();
            if summary.trim().is_empty() || length > 255 || summary.contains(['\n', '\r', '\0']) {
                return Err(invalid_input(
                    ViolationKind::TooLong,
                    "summary has 1 to 255 characters on one line",
                ));
            }
            session_state.summary = Some(summary.to_owned());
        }
        if !session_state.external_urls.is_empty() {
            session_state.first_activity_due = None;
        }
        if let Some(place) = self.linear.session_mut(id) {
            *place = session_state.clone();
        }
        let sync = self.records.next();
        let shown = json::session(self.linear, &session_state);
        Ok(
            json!({"__typename": "AgentSessionPayload", "agentSession": shown, "lastSyncId": sync, "success": true}),
        )
    }

    fn create_session(&mut self, name: &str, input: &Value) -> LinearResult {
        let (issue, comment) = if name == "agentSessionCreateOnIssue" {
            let issue = input["issueId"].as_str().unwrap_or_default();
            (
                self.linear
                    .issue(issue)
                    .ok_or_else(|| not_found("Issue"))?
                    .id
                    .clone(),
                None,
            )
        } else {
            let id = input["commentId"].as_str().unwrap_or_default();
            let found = self
                .linear
                .comments
                .iter()
                .find(|linear_comment| linear_comment.id == id)
                .ok_or_else(|| not_found("Comment"))?;
            (found.issue.clone(), Some(found.id.clone()))
        };
        let app = self.linear.apps[self.app].app.name.clone();
        let id = self
            .linear
            .start_session(self.records, &app, Some(issue), comment, None);
        let session_state = self.own_session(&id)?;
        let sync = self.records.next();
        let shown = json::session(self.linear, &session_state);
        Ok(
            json!({"__typename": "AgentSessionPayload", "agentSession": shown, "lastSyncId": sync, "success": true}),
        )
    }
}

/// Returns an error if the content of an activity does not have the format that its kind requires.
fn validate_content(content: &Value, kind: &str) -> Result<(), LinearError> {
    let (needed, allowed): (&[&str], &[&str]) = match kind {
        "thought" | "elicitation" | "response" | "error" => (&["body"], &["type", "body"]),
        "action" => (
            &["action", "parameter"],
            &["type", "action", "parameter", "result"],
        ),
        "" => {
            return Err(invalid_input(
                ViolationKind::BadField,
                "content.type is missing",
            ));
        }
        other => {
            return Err(invalid_input(
                ViolationKind::BadField,
                format!("an agent cannot create a {other}"),
            ));
        }
    };
    for field in needed {
        if !content[*field]
            .as_str()
            .is_some_and(|content| !content.is_empty() || *field == "parameter")
        {
            return Err(invalid_input(
                ViolationKind::BadField,
                format!("content.{field} is missing in a {kind}"),
            ));
        }
    }
    for field in content
        .as_object()
        .into_iter()
        .flatten()
        .map(|content| content.0.as_str())
    {
        if !allowed.contains(&field) {
            return Err(invalid_input(
                ViolationKind::BadField,
                format!("content.{field} is not a field of a {kind}"),
            ));
        }
    }
    Ok(())
}

impl LinearState {
    /// Creates a session of an agent. Queues no webhook, so a caller that must notify the agent
    /// queues one itself.
    pub(crate) fn start_session(
        &mut self,
        ledger: &mut CallRecords,
        app: &str,
        issue: Option<String>,
        comment: Option<String>,
        creator: Option<String>,
    ) -> String {
        let id = signature::fake_uuid(&format!("session {}", ledger.next()));
        self.sessions.push(LinearSession {
            id: id.clone(),
            app: app.to_owned(),
            issue,
            comment,
            creator,
            activities: vec![],
            plan: Value::Null,
            external_urls: vec![],
            summary: None,
            status: "pending".into(),
            is_unresponsive: false,
            created: ledger.elapsed(),
            first_activity_due: None,
            stale_at: None,
        });
        id
    }
}
