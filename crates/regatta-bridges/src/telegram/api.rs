//! A client for the part of Telegram's Bot API that the bridge uses.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::config::Secret;
use crate::http::{HttpAnswer, HttpCall, HttpClient};
use crate::service::ServiceError;

/// The id and user name of the agent's Telegram bot. By these the bridge recognises mentions of the
/// bot and answers to its messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TelegramIdentity {
    pub(crate) id: i64,
    pub(crate) username: String,
}

pub(crate) struct TelegramApi {
    http: HttpClient,
    url: String,
    token: Secret,
    identity: OnceCell<TelegramIdentity>,
}

/// Time for which Telegram keeps a poll request open while it has no new updates.
const POLL_DURATION_S: u64 = 25;
const POLL_TIMEOUT: Duration = Duration::from_secs(POLL_DURATION_S + 15);
/// Time limit for telling Telegram that a pressed button was handled.
const CLICK_ANSWER_TIMEOUT: Duration = Duration::from_millis(1_500);

impl TelegramApi {
    pub(crate) fn new(http: HttpClient, url: String, token: Secret) -> TelegramApi {
        TelegramApi {
            http,
            url,
            token,
            identity: OnceCell::new(),
        }
    }

    /// Calls a method of the API. Error texts never contain the address of the call, because the
    /// address contains the bot's token.
    pub(crate) async fn call(&self, method: &str, body: &Value) -> Result<Value, ServiceError> {
        self.call_with_timeout(method, body, None).await
    }

    async fn call_with_timeout(
        &self,
        method: &str,
        body: &Value,
        timeout: Option<Duration>,
    ) -> Result<Value, ServiceError> {
        let mut call = HttpCall::new(
            Method::POST,
            format!("{}/bot{}/{method}", self.url, self.token.reveal()),
        )
        .json(body);
        call.timeout = timeout;
        classify_answer(method, self.http.call(call).await?)
    }

    /// Returns the id and user name of the agent's bot. Only the first call requests them from
    /// Telegram.
    pub(crate) async fn identity(&self) -> Result<TelegramIdentity, ServiceError> {
        let look_up = || async {
            let answer = self.call("getMe", &json!({})).await?;
            let username = answer["username"].as_str().unwrap_or_default().to_owned();
            Ok(TelegramIdentity {
                id: answer["id"].as_i64().unwrap_or_default(),
                username,
            })
        };
        self.identity.get_or_try_init(look_up).await.cloned()
    }

    /// Returns the updates (messages and button presses) whose number is `offset` or higher. The
    /// request also tells Telegram that all earlier updates were handled.
    pub(crate) async fn updates(&self, offset: i64) -> Result<Vec<Value>, ServiceError> {
        let arguments = json!({
            "offset": offset, "timeout": POLL_DURATION_S, "limit": 100, "allowed_updates": ["message", "callback_query"],
        });
        match self
            .call_with_timeout("getUpdates", &arguments, Some(POLL_TIMEOUT))
            .await?
        {
            Value::Array(updates) => Ok(updates),
            _ => Err(ServiceError::OutcomeUnknown(
                "getUpdates: Telegram returned no list".into(),
            )),
        }
    }

    /// Tells Telegram that a pressed button was handled, so that the button's spinner stops. If
    /// this fails, only writes a log line, because the pressed button was already handled.
    pub(crate) async fn answer_click(&self, id: &str) {
        let answered = self
            .call_with_timeout(
                "answerCallbackQuery",
                &json!({"callback_query_id": id}),
                Some(CLICK_ANSWER_TIMEOUT),
            )
            .await;
        if let Err(error) = answered {
            tracing::debug!(
                "could not tell Telegram that a pressed button was handled, so Telegram shows the button's spinner for some more time: {error:?}"
            );
        }
    }
}

/// Returns the result in the answer if the call succeeded. Otherwise converts the answer to an
/// error.
fn classify_answer(method: &str, mut answer: HttpAnswer) -> Result<Value, ServiceError> {
    if answer.body["ok"] == json!(true) {
        return Ok(answer.body["result"].take());
    }
    let code = answer.body["error_code"]
        .as_u64()
        .unwrap_or(u64::from(answer.status));
    let description = answer.body["description"]
        .as_str()
        .unwrap_or("no reason given")
        .to_owned();
    Err(match code {
        429 => {
            let seconds = answer.body["parameters"]["retry_after"]
                .as_f64()
                .filter(|seconds| (0.0..86_400.0).contains(seconds));
            let pause = seconds
                .map(Duration::from_secs_f64)
                .or_else(|| answer.retry_after());
            ServiceError::RetryAfter(pause.unwrap_or(Duration::from_secs(1)))
        }
        // Telegram returns one of these two HTTP statuses if the bot's token is wrong.
        401 | 404 => ServiceError::Unauthorized(format!(
            "{method}: Telegram says {description}; check the bot's token"
        )),
        400 | 403 => ServiceError::Rejected(format!("{method}: Telegram says {description}")),
        _ => ServiceError::OutcomeUnknown(format!(
            "{method}: Telegram answered {code}: {description}"
        )),
    })
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    #[test]
    fn class_of_an_answer_follows_from_its_status_and_body() {
        let answer = |status: u16, body: Value| {
            classify_answer(
                "X",
                HttpAnswer {
                    status,
                    headers: HeaderMap::new(),
                    body,
                },
            )
        };
        let error =
            |code: u64, text: &str| json!({"ok": false, "error_code": code, "description": text});
        assert_eq!(
            answer(200, json!({"ok": true, "result": [1]})),
            Ok(json!([1]))
        );
        let mut late = error(429, "Too Many Requests: retry after 7");
        late["parameters"] = json!({"retry_after": 7});
        assert_eq!(
            answer(429, late),
            Err(ServiceError::RetryAfter(Duration::from_secs(7)))
        );
        assert!(matches!(
            answer(401, error(401, "Unauthorized")),
            Err(ServiceError::Unauthorized(_))
        ));
        assert!(matches!(
            answer(404, error(404, "Not Found")),
            Err(ServiceError::Unauthorized(_))
        ));
        assert!(matches!(
            answer(400, error(400, "Bad Request: chat not found")),
            Err(ServiceError::Rejected(_))
        ));
        assert!(matches!(
            answer(403, error(403, "Forbidden: bot was blocked")),
            Err(ServiceError::Rejected(_))
        ));
        assert!(matches!(
            answer(409, error(409, "Conflict: another poll")),
            Err(ServiceError::OutcomeUnknown(_))
        ));
        assert!(matches!(
            answer(502, Value::Null),
            Err(ServiceError::OutcomeUnknown(_))
        ));
    }
}
