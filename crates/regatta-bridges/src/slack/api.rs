//! A client for the part of Slack's Web API that the bridge uses.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::config::{Requester, Secret};
use crate::http::{HttpCall, HttpClient};
use crate::service::ServiceError;

/// The ids and the name that Slack gives the agent's app in a workspace. By these the bridge
/// recognises mentions of the app and the app's own messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlackIdentity {
    pub(crate) user: String,
    pub(crate) bot: String,
    pub(crate) team: String,
    pub(crate) name: String,
}

pub(crate) struct SlackApi {
    http: HttpClient,
    url: String,
    bot_token: Secret,
    app_token: Option<Secret>,
    identity: OnceCell<SlackIdentity>,
    people: Mutex<HashMap<String, Requester>>,
    channels: Mutex<HashMap<String, String>>,
    /// Locked during a lookup, so that a second lookup of the same person or channel waits and
    /// finds the cached result.
    lookup_lock: tokio::sync::Mutex<()>,
}

/// Maximum number of people about whom the answers of Slack are cached. The same maximum applies to
/// channels.
const MAX_CACHED: usize = 5_000;
/// Time limit for looking up a person or channel. The limit is short, because during the lookup
/// Slack waits for the answer to its event.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1_200);

impl SlackApi {
    pub(crate) fn new(
        http: HttpClient,
        url: String,
        bot_token: Secret,
        app_token: Option<Secret>,
    ) -> SlackApi {
        SlackApi {
            http,
            url,
            bot_token,
            app_token,
            identity: OnceCell::new(),
            people: Mutex::default(),
            channels: Mutex::default(),
            lookup_lock: tokio::sync::Mutex::default(),
        }
    }

    /// Calls a method that writes, with the bot's token. The arguments are sent as JSON, which
    /// Slack accepts for methods that write.
    pub(crate) async fn call_with_json(
        &self,
        method: &str,
        body: &Value,
    ) -> Result<Value, ServiceError> {
        let call = HttpCall::new(Method::POST, format!("{}/{method}", self.url)).json(body);
        self.send(method, call, &self.bot_token).await
    }

    /// Calls a method that only reads, with the bot's token. The arguments are sent as a web form,
    /// because Slack ignores JSON arguments of methods that only read.
    async fn call_with_form(
        &self,
        method: &str,
        arguments: &[(&str, &str)],
        timeout: Option<Duration>,
    ) -> Result<Value, ServiceError> {
        let mut call =
            HttpCall::new(Method::POST, format!("{}/{method}", self.url)).form(arguments);
        call.timeout = timeout;
        self.send(method, call, &self.bot_token).await
    }

    async fn send(
        &self,
        method: &str,
        call: HttpCall<'_>,
        token: &Secret,
    ) -> Result<Value, ServiceError> {
        let call = call.header("authorization", format!("Bearer {}", token.reveal()));
        let answer = self.http.call(call).await?;
        if answer.status == 429 {
            return Err(ServiceError::RetryAfter(
                answer.retry_after().unwrap_or(Duration::from_secs(1)),
            ));
        }
        if answer.status >= 500 {
            return Err(ServiceError::OutcomeUnknown(format!(
                "{method}: Slack answered {}",
                answer.status
            )));
        }
        if answer.body["ok"] == json!(true) {
            return Ok(answer.body);
        }
        let error = answer.body["error"].as_str().unwrap_or("no reason given");
        Err(match error {
            "ratelimited" | "rate_limited" => {
                ServiceError::RetryAfter(answer.retry_after().unwrap_or(Duration::from_secs(1)))
            }
            "not_authed"
            | "invalid_auth"
            | "account_inactive"
            | "user_removed_from_team"
            | "team_disabled"
            | "token_revoked"
            | "token_expired"
            | "missing_scope"
            | "not_allowed_token_type" => ServiceError::Unauthorized(format!(
                "{method}: Slack says {error}; check the app's tokens and scopes"
            )),
            "internal_error"
            | "fatal_error"
            | "service_unavailable"
            | "request_timeout"
            | "team_added_to_org" => {
                ServiceError::OutcomeUnknown(format!("{method}: Slack says {error}"))
            }
            _ => ServiceError::Rejected(format!("{method}: Slack says {error}")),
        })
    }

    /// Returns the ids and the name of the agent's app. Only the first call requests them from
    /// Slack.
    pub(crate) async fn identity(&self) -> Result<SlackIdentity, ServiceError> {
        let look_up = || async {
            let answer = self.call_with_form("auth.test", &[], None).await?;
            let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
            Ok(SlackIdentity {
                user: text("user_id"),
                bot: text("bot_id"),
                team: text("team_id"),
                name: text("user"),
            })
        };
        self.identity.get_or_try_init(look_up).await.cloned()
    }

    /// Asks Slack for the address of a new WebSocket for Socket Mode.
    pub(crate) async fn open_socket(&self) -> Result<String, ServiceError> {
        let Some(token) = &self.app_token else {
            return Err(ServiceError::Unauthorized("there is no app token".into()));
        };
        let call =
            HttpCall::new(Method::POST, format!("{}/apps.connections.open", self.url)).form(&[]);
        let answer = self.send("apps.connections.open", call, token).await?;
        answer["url"]
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| ServiceError::OutcomeUnknown("Slack returned no address".into()))
    }

    /// Returns the facts about a person. If Slack does not know the person, only the id is set.
    pub(crate) async fn requester(&self, user: &str, team: Option<&str>) -> Requester {
        let known = || {
            self.people
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(user)
                .cloned()
        };
        if let Some(known) = known() {
            return known;
        }
        let _turn = self.lookup_lock.lock().await;
        if let Some(known) = known() {
            return known;
        }
        let stranger = Requester {
            id: user.to_owned(),
            ..Requester::default()
        };
        if user.is_empty() {
            return stranger;
        }
        let looked_up = match self.identity().await {
            Ok(identity) => {
                let looked_up = self
                    .call_with_form("users.info", &[("user", user)], Some(LOOKUP_TIMEOUT))
                    .await;
                looked_up.map(|answer| (identity, answer))
            }
            Err(error) => Err(error),
        };
        let (identity, answer) = match looked_up {
            Ok(requester) => requester,
            Err(error) => {
                return Requester {
                    is_uncertain: error.is_temporary(),
                    ..stranger
                };
            }
        };
        let person = &answer["user"];
        let flag = |name: &str| person[name].as_bool().unwrap_or(false);
        let is_guest = flag("is_restricted")
            || flag("is_ultra_restricted")
            || flag("is_stranger")
            || flag("deleted");
        let is_in_team = person["team_id"]
            .as_str()
            .or(team)
            .is_some_and(|team| team == identity.team);
        let profile = &person["profile"];
        let names = [
            profile["display_name"].as_str(),
            person["real_name"].as_str(),
            person["name"].as_str(),
        ];
        let requester = Requester {
            id: user.to_owned(),
            name: names
                .into_iter()
                .flatten()
                .find(|name| !name.is_empty())
                .unwrap_or(user)
                .to_owned(),
            is_in_team: is_in_team && !is_guest,
            can_write: false,
            is_bot: flag("is_bot"),
            is_uncertain: false,
        };
        let mut people = self.people.lock().unwrap_or_else(PoisonError::into_inner);
        if people.len() >= MAX_CACHED {
            people.clear();
        }
        people.insert(user.to_owned(), requester.clone());
        requester
    }

    /// Returns the name of a channel, or the channel's id if Slack does not return the name.
    pub(crate) async fn channel_name(&self, channel: &str) -> String {
        let known = || {
            self.channels
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(channel)
                .cloned()
        };
        if let Some(known) = known() {
            return known;
        }
        let _turn = self.lookup_lock.lock().await;
        if let Some(known) = known() {
            return known;
        }
        let looked_up = self
            .call_with_form(
                "conversations.info",
                &[("channel", channel)],
                Some(LOOKUP_TIMEOUT),
            )
            .await;
        let name = match looked_up {
            Ok(answer) => answer["channel"]["name"]
                .as_str()
                .map(|name| format!("#{name}")),
            Err(error) if error.is_temporary() => return channel.to_owned(),
            // The app may lack the permission to read this channel. Cache the failure, so that
            // Slack is not called again for this channel.
            Err(_) => None,
        };
        let name = name.unwrap_or_else(|| channel.to_owned());
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if channels.len() >= MAX_CACHED {
            channels.clear();
        }
        channels.insert(channel.to_owned(), name.clone());
        name
    }

    /// Returns the messages of a thread, oldest first.
    pub(crate) async fn thread_messages(
        &self,
        channel: &str,
        root: &str,
    ) -> Result<Vec<Value>, ServiceError> {
        let mut found = Vec::new();
        let mut cursor = String::new();
        for _ in 0..10 {
            let mut arguments = vec![
                ("channel", channel),
                ("ts", root),
                ("limit", "200"),
                ("include_all_metadata", "true"),
            ];
            if !cursor.is_empty() {
                arguments.push(("cursor", &cursor));
            }
            let answer = self
                .call_with_form("conversations.replies", &arguments, None)
                .await?;
            found.extend(answer["messages"].as_array().cloned().unwrap_or_default());
            cursor = answer["response_metadata"]["next_cursor"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            if cursor.is_empty() {
                break;
            }
        }
        Ok(found)
    }
}
