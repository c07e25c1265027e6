//! Executes queries and mutations, by their root field.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::super::desk::{Answer, Desk, Ledger, Wrong, limited};
use super::super::door::{Asked, Reply};
use super::super::limit::Rule;
use super::super::sign;
use super::graphql::{self, Document, Selection};
use super::hooks::STALE;
use super::show;
use super::world::{Activity, Session, World};

/// Requests per hour for one app, refilled at a constant rate.
pub const REQUESTS_PER_HOUR: u32 = 5000;

/// The reason why an operation fails.
struct Slip {
    status: u16,
    code: &'static str,
    message: String,
    wrong: Option<Wrong>,
}

fn invalid(wrong: Wrong, message: impl Into<String>) -> Slip {
    Slip { status: 400, code: "INPUT_ERROR", message: message.into(), wrong: Some(wrong) }
}

fn missing(kind: &str) -> Slip {
    Slip { status: 400, code: "INPUT_ERROR", message: format!("Entity not found: {kind}"), wrong: None }
}

fn bad_document(message: String) -> Slip {
    Slip { status: 400, code: "GRAPHQL_VALIDATION_FAILED", message, wrong: Some(Wrong::Unknown) }
}

type Done = Result<Value, Slip>;

/// Returns the arguments of a root field with their types. A type that ends in `!` is required.
fn arguments(kind: &str, field: &str) -> Option<&'static [(&'static str, &'static str)]> {
    Some(match (kind, field) {
        ("query", "viewer" | "organization") => &[],
        ("query", "agentSession" | "agentActivity" | "issue" | "comment" | "user") => &[("id", "String!")],
        ("query", "agentSessions") => &[
            ("first", "Int"),
            ("after", "String"),
            ("last", "Int"),
            ("before", "String"),
            ("includeArchived", "Boolean"),
            ("orderBy", "PaginationOrderBy"),
        ],
        ("mutation", "agentActivityCreate") => &[("input", "AgentActivityCreateInput!")],
        ("mutation", "agentSessionUpdate") => &[("id", "String!"), ("input", "AgentSessionUpdateInput!")],
        ("mutation", "agentSessionCreateOnIssue") => &[("input", "AgentSessionCreateOnIssue!")],
        ("mutation", "agentSessionCreateOnComment") => &[("input", "AgentSessionCreateOnComment!")],
        _ => return None,
    })
}

/// Returns the fields of an input.
fn input_fields(field: &str) -> &'static [&'static str] {
    match field {
        "agentActivityCreate" => {
            &["agentSessionId", "content", "contextualMetadata", "ephemeral", "id", "signal", "signalMetadata"]
        }
        "agentSessionUpdate" => {
            &["addedExternalUrls", "externalLink", "externalUrls", "plan", "removedExternalUrls", "summary"]
        }
        "agentSessionCreateOnIssue" => &["externalLink", "externalUrls", "issueId"],
        _ => &["externalLink", "externalUrls", "commentId"],
    }
}

pub(crate) async fn handle(desk: Arc<Desk<World>>, asked: Asked) -> Reply {
    let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let text = body["query"].as_str().unwrap_or_default();
    let document = graphql::read(text, body["operationName"].as_str());
    let name = match document.as_ref().map(|it| it.fields.first()) {
        Ok(Some(Selection::Field { name, .. })) => name.clone(),
        _ => "unreadable".into(),
    };
    let header = asked.header("authorization").unwrap_or_default().to_owned();
    let found = desk.view(|view| {
        let of = |it: &&super::world::AppState| header.ends_with(&it.app.access_token);
        view.apps.iter().position(|it| of(&it)).map(|at| (at, view.apps[at].app.clone()))
    });
    let by = found.as_ref().map(|it| it.1.name.clone()).unwrap_or_default();
    let proper = found.as_ref().is_some_and(|it| header == format!("Bearer {}", it.1.access_token));
    let input = json!({"query": text, "variables": body["variables"]});
    desk.call(&name, &by, input, |world, ledger| {
        let refuse = |ledger: &mut Ledger, slip: Slip| refuse(ledger, &by, &name, slip);
        let at = match &found {
            _ if asked.path != "/graphql" || asked.method != "POST" => {
                let message = format!("Cannot {} {}", asked.method, asked.path);
                let slip = Slip { status: 404, code: "NOT_FOUND", message, wrong: Some(Wrong::Unknown) };
                return refuse(ledger, slip);
            }
            // Linear's server refuses requests that a browser could send from another site without
            // a preflight.
            _ if !asked.header("content-type").is_some_and(|kind| kind.starts_with("application/json")) => {
                let message = "This operation has been blocked as a potential Cross-Site Request Forgery (CSRF)".into();
                let slip = Slip { status: 400, code: "BAD_REQUEST", message, wrong: Some(Wrong::Field) };
                return refuse(ledger, slip);
            }
            Some((at, _)) if proper => *at,
            _ => {
                let message = "Authentication required, not authenticated".into();
                let slip = Slip { status: 401, code: "AUTHENTICATION_ERROR", message, wrong: Some(Wrong::Auth) };
                return refuse(ledger, slip);
            }
        };
        let most = world.requests_per_hour;
        let every = Duration::from_secs(3600) / most.max(1);
        if let Err(refused) = ledger.take(&by, &name, &[Rule::bucket(format!("requests of {by}"), every, most)]) {
            return limited::<World>(&name, refused.seconds).header("x-ratelimit-requests-limit", most.to_string());
        }
        let answered = document.map_err(bad_document).and_then(|document| {
            let mut turn = Turn { world, ledger, at };
            turn.execute(&document, &body["variables"])
        });
        let reset = (sign::now() + Duration::from_secs(3600)).as_millis();
        match answered {
            Ok(data) => Answer::ok(json!({"data": data}))
                .header("x-ratelimit-requests-limit", most.to_string())
                .header("x-ratelimit-requests-remaining", most.saturating_sub(1).to_string())
                .header("x-ratelimit-requests-reset", reset.to_string())
                .header("x-complexity", "1"),
            Err(slip) => refuse(ledger, slip),
        }
    })
    .await
}

fn refuse(ledger: &mut Ledger, by: &str, name: &str, slip: Slip) -> Answer {
    if let Some(wrong) = slip.wrong {
        ledger.wrong(by, wrong, format!("{name}: {}", slip.message));
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
    // An operation that fails is answered with 200 and errors. A document that cannot run is not.
    let status = if slip.code == "INPUT_ERROR" || slip.code == "FORBIDDEN" { 200 } else { slip.status };
    let body = json!({"errors": [{"message": slip.message, "path": [name], "extensions": extensions}], "data": null});
    Answer::error(status, slip.code, body)
}

struct Turn<'a> {
    world: &'a mut World,
    ledger: &'a mut Ledger,
    at: usize,
}

impl Turn<'_> {
    fn execute(&mut self, document: &Document, variables: &Value) -> Done {
        let variables = document.variables(variables).map_err(bad_document)?;
        let mut data = Map::new();
        for field in &document.fields {
            let Selection::Field { alias, name, arguments: given, inner } = field else {
                return Err(bad_document("Fragments on the root are not supported.".into()));
            };
            let of = if document.kind == "query" { "Query" } else { "Mutation" };
            let known = arguments(&document.kind, name)
                .ok_or_else(|| bad_document(format!("Cannot query field \"{name}\" on type \"{of}\".")))?;
            let mut values = Map::new();
            for (argument, value) in given {
                let (_, kind) = known.iter().find(|it| it.0 == argument).ok_or_else(|| {
                    bad_document(format!("Unknown argument \"{argument}\" on field \"{of}.{name}\"."))
                })?;
                if let Some(declared) = document.declared(value)
                    && declared.trim_end_matches('!') != kind.trim_end_matches('!')
                {
                    return Err(bad_document(format!(
                        "A variable of type \"{declared}\" is used where \"{kind}\" is."
                    )));
                }
                values.insert(argument.clone(), document.plain(value, &variables));
            }
            for (argument, kind) in known {
                if kind.ends_with('!') && values.get(*argument).is_none_or(Value::is_null) {
                    return Err(bad_document(format!("Argument \"{argument}\" of type \"{kind}\" is required.")));
                }
            }
            let result = self.root(name, &values)?;
            let result = graphql::page(&result, &values);
            data.insert(alias.clone(), document.cut(&result, inner, &variables).map_err(bad_document)?);
        }
        Ok(Value::Object(data))
    }

    fn root(&mut self, name: &str, values: &Map<String, Value>) -> Done {
        let id = values.get("id").and_then(Value::as_str).unwrap_or_default();
        let input = values.get("input").cloned().unwrap_or_default();
        for field in input.as_object().into_iter().flatten().map(|it| it.0) {
            if !input_fields(name).contains(&field.as_str()) {
                return Err(bad_document(format!("Field \"{field}\" is not defined by the input of {name}.")));
            }
        }
        match name {
            "viewer" => {
                let me = self.world.apps[self.at].app.app_user_id.clone();
                Ok(show::user(self.world, &me))
            }
            "organization" => Ok(show::organization(self.world)),
            "user" => Some(show::user(self.world, id)).filter(|it| !it.is_null()).ok_or_else(|| missing("User")),
            "issue" => self.world.issue(id).map(|it| show::issue(self.world, it)).ok_or_else(|| missing("Issue")),
            "comment" => {
                let found = self.world.comments.iter().find(|it| it.id == id);
                found.map(|it| show::comment(self.world, it)).ok_or_else(|| missing("Comment"))
            }
            "agentSession" => self.own(id).map(|it| show::session(self.world, &it)),
            "agentSessions" => {
                let mine = &self.world.apps[self.at].app.name;
                let mine = self.world.sessions.iter().filter(|it| it.app == *mine);
                let nodes: Vec<Value> = mine.map(|it| show::session(self.world, it)).collect();
                Ok(json!({"__typename": "AgentSessionConnection", "nodes": nodes}))
            }
            "agentActivity" => {
                let found = self.world.sessions.iter().find_map(|it| {
                    it.activities.iter().find(|it| it.id == id).map(|activity| (it.id.clone(), activity))
                });
                let (session, activity) = found.ok_or_else(|| missing("AgentActivity"))?;
                Ok(show::activity(self.world, &session, activity))
            }
            "agentActivityCreate" => self.act(&input),
            "agentSessionUpdate" => self.update(id, &input),
            _ => self.begin(name, &input),
        }
    }

    /// Returns a session of this app.
    fn own(&self, id: &str) -> Result<Session, Slip> {
        let found = self.world.session(id).ok_or_else(|| missing("AgentSession"))?;
        if found.app != self.world.apps[self.at].app.name {
            let message = format!("session {id} belongs to {}", found.app);
            return Err(Slip { status: 403, code: "FORBIDDEN", message, wrong: Some(Wrong::Foreign) });
        }
        Ok(found.clone())
    }

    fn act(&mut self, input: &Value) -> Done {
        let session = input["agentSessionId"].as_str().unwrap_or_default().to_owned();
        self.own(&session)?;
        let content = &input["content"];
        let kind = content["type"].as_str().unwrap_or_default().to_owned();
        examine(content, &kind)?;
        let ephemeral = input["ephemeral"].as_bool().unwrap_or(false);
        if ephemeral && kind != "thought" && kind != "action" {
            return Err(invalid(Wrong::Field, format!("a {kind} cannot be ephemeral")));
        }
        let signal = input["signal"].as_str().map(str::to_owned);
        match signal.as_deref() {
            None => {}
            Some("auth" | "select") if kind == "elicitation" => {}
            Some(other) => return Err(invalid(Wrong::Field, format!("signal {other} does not go with a {kind}"))),
        }
        if signal.as_deref() == Some("select") && !input["signalMetadata"]["options"].is_array() {
            return Err(invalid(Wrong::Field, "signalMetadata.options is missing"));
        }
        if signal.as_deref() == Some("auth") && !input["signalMetadata"]["url"].is_string() {
            return Err(invalid(Wrong::Field, "signalMetadata.url is missing"));
        }
        let id = match input["id"].as_str() {
            Some(id) if !sign::is_uuid(id) => return Err(invalid(Wrong::Field, "id must be a UUID")),
            Some(id) => id.to_owned(),
            None => sign::uuid(&format!("activity {}", self.ledger.next())),
        };
        let (now, stale) = (self.ledger.elapsed(), self.ledger.scale.deadline(STALE));
        let user = self.world.apps[self.at].app.app_user_id.clone();
        let owner = self.world.sessions.iter().find(|it| it.activities.iter().any(|it| it.id == id));
        let known = owner.map(|it| it.id.clone());
        if known.as_ref().is_some_and(|it| *it != session) {
            return Err(invalid(Wrong::State, "this id belongs to another session's activity"));
        }
        let of = self.world.session_mut(&session).ok_or_else(|| missing("AgentSession"))?;
        if known.is_none() {
            let signal_metadata = input["signalMetadata"].clone();
            of.activities.push(Activity {
                id: id.clone(),
                kind: kind.clone(),
                content: content.clone(),
                ephemeral,
                signal,
                signal_metadata,
                user,
                at: now,
            });
            let working = matches!(kind.as_str(), "thought" | "action");
            of.status = match kind.as_str() {
                "elicitation" => "awaitingInput",
                "response" => "complete",
                "error" => "error",
                _ => "active",
            }
            .into();
            (of.due, of.stale) = (None, working.then(|| Instant::now() + stale));
        }
        let of = of.clone();
        let activity = of.activities.iter().find(|it| it.id == id).ok_or_else(|| missing("AgentActivity"))?;
        let shown = show::activity(self.world, &session, activity);
        let sync = self.ledger.next();
        Ok(json!({"__typename": "AgentActivityPayload", "agentActivity": shown, "lastSyncId": sync, "success": true}))
    }

    fn update(&mut self, id: &str, input: &Value) -> Done {
        let mut of = self.own(id)?;
        if let Some(plan) = input.get("plan").filter(|it| !it.is_null()) {
            let statuses = ["pending", "inProgress", "completed", "canceled"];
            let good = |it: &Value| it["content"].is_string() && statuses.iter().any(|status| it["status"] == *status);
            if !plan.as_array().is_some_and(|it| it.iter().all(good)) {
                return Err(invalid(Wrong::Field, format!("plan: {plan}")));
            }
            of.plan = plan.clone();
        }
        let urls = |field: &str| -> Result<Option<Vec<(String, String)>>, Slip> {
            let Some(list) = input.get(field).filter(|it| !it.is_null()) else { return Ok(None) };
            let one = |it: &Value| Some((it["label"].as_str()?.to_owned(), it["url"].as_str()?.to_owned()));
            let read: Option<Vec<_>> = list.as_array().and_then(|it| it.iter().map(one).collect());
            read.map(Some).ok_or_else(|| invalid(Wrong::Field, format!("{field}: {list}")))
        };
        if let Some(all) = urls("externalUrls")? {
            of.external_urls = all;
        } else {
            for added in urls("addedExternalUrls")?.unwrap_or_default() {
                of.external_urls.retain(|it| it.1 != added.1);
                of.external_urls.push(added);
            }
            let removed = input["removedExternalUrls"].as_array().cloned().unwrap_or_default();
            of.external_urls.retain(|it| !removed.iter().any(|url| *url == it.1));
        }
        if let Some(summary) = input["summary"].as_str() {
            let length = summary.chars().count();
            if summary.trim().is_empty() || length > 255 || summary.contains(['\n', '\r', '\0']) {
                return Err(invalid(Wrong::TooLong, "summary has 1 to 255 characters on one line"));
            }
            of.summary = Some(summary.to_owned());
        }
        if !of.external_urls.is_empty() {
            of.due = None;
        }
        if let Some(place) = self.world.session_mut(id) {
            *place = of.clone();
        }
        let sync = self.ledger.next();
        let shown = show::session(self.world, &of);
        Ok(json!({"__typename": "AgentSessionPayload", "agentSession": shown, "lastSyncId": sync, "success": true}))
    }

    fn begin(&mut self, name: &str, input: &Value) -> Done {
        let (issue, comment) = if name == "agentSessionCreateOnIssue" {
            let issue = input["issueId"].as_str().unwrap_or_default();
            (self.world.issue(issue).ok_or_else(|| missing("Issue"))?.id.clone(), None)
        } else {
            let id = input["commentId"].as_str().unwrap_or_default();
            let found = self.world.comments.iter().find(|it| it.id == id).ok_or_else(|| missing("Comment"))?;
            (found.issue.clone(), Some(found.id.clone()))
        };
        let app = self.world.apps[self.at].app.name.clone();
        let id = self.world.start(self.ledger, &app, Some(issue), comment, None);
        let of = self.own(&id)?;
        let sync = self.ledger.next();
        let shown = show::session(self.world, &of);
        Ok(json!({"__typename": "AgentSessionPayload", "agentSession": shown, "lastSyncId": sync, "success": true}))
    }
}

/// Returns an error for content that does not have the format of its kind.
fn examine(content: &Value, kind: &str) -> Result<(), Slip> {
    let (needed, allowed): (&[&str], &[&str]) = match kind {
        "thought" | "elicitation" | "response" | "error" => (&["body"], &["type", "body"]),
        "action" => (&["action", "parameter"], &["type", "action", "parameter", "result"]),
        "" => return Err(invalid(Wrong::Field, "content.type is missing")),
        other => return Err(invalid(Wrong::Field, format!("an agent cannot create a {other}"))),
    };
    for field in needed {
        if !content[*field].as_str().is_some_and(|it| !it.is_empty() || *field == "parameter") {
            return Err(invalid(Wrong::Field, format!("content.{field} is missing in a {kind}")));
        }
    }
    for field in content.as_object().into_iter().flatten().map(|it| it.0.as_str()) {
        if !allowed.contains(&field) {
            return Err(invalid(Wrong::Field, format!("content.{field} is not a field of a {kind}")));
        }
    }
    Ok(())
}

impl World {
    /// Creates a session. The caller notifies the agent.
    pub(crate) fn start(
        &mut self,
        ledger: &mut Ledger,
        app: &str,
        issue: Option<String>,
        comment: Option<String>,
        creator: Option<String>,
    ) -> String {
        let id = sign::uuid(&format!("session {}", ledger.next()));
        self.sessions.push(Session {
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
            unresponsive: false,
            made: ledger.elapsed(),
            due: None,
            stale: None,
        });
        id
    }
}
