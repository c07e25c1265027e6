//! The part of Telegram's Bot API that the bridge uses.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{Answer, Call, Http};
use crate::registry::Secret;
use crate::service::Trouble;

/// The identity of our bot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Me {
    pub(crate) id: i64,
    pub(crate) username: String,
}

pub(crate) struct Api {
    http: Http,
    url: String,
    token: Secret,
    me: Mutex<Option<Me>>,
}

/// Time for which Telegram keeps a poll without updates open, and our time limit for it.
const HELD_S: u64 = 25;
const PATIENCE: Duration = Duration::from_secs(HELD_S + 15);
/// Time limit for confirming a pressed button.
const BRIEFLY: Duration = Duration::from_millis(1_500);

impl Api {
    pub(crate) fn new(http: Http, url: String, token: Secret) -> Api {
        Api { http, url, token, me: Mutex::default() }
    }

    /// Calls a method. The token is part of the address, so no message contains the address.
    pub(crate) async fn call(&self, method: &str, body: &Value) -> Result<Value, Trouble> {
        self.call_within(method, body, None).await
    }

    async fn call_within(&self, method: &str, body: &Value, patience: Option<Duration>) -> Result<Value, Trouble> {
        let mut call = Call::new(Method::POST, format!("{}/bot{}/{method}", self.url, self.token.reveal())).json(body);
        call.patience = patience;
        judged(method, self.http.call(call).await?)
    }

    /// Returns the identity of our bot, which is asked for once.
    pub(crate) async fn me(&self) -> Result<Me, Trouble> {
        let known = self.me.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(me) = known {
            return Ok(me);
        }
        let said = self.call("getMe", &json!({})).await?;
        let username = said["username"].as_str().unwrap_or_default().to_owned();
        let me = Me { id: said["id"].as_i64().unwrap_or_default(), username };
        *self.me.lock().unwrap_or_else(PoisonError::into_inner) = Some(me.clone());
        Ok(me)
    }

    /// Returns the updates from `offset` on. The request confirms all updates before it.
    pub(crate) async fn updates(&self, offset: i64) -> Result<Vec<Value>, Trouble> {
        let ask = json!({
            "offset": offset, "timeout": HELD_S, "limit": 100, "allowed_updates": ["message", "callback_query"],
        });
        match self.call_within("getUpdates", &ask, Some(PATIENCE)).await? {
            Value::Array(updates) => Ok(updates),
            _ => Err(Trouble::Unknown("getUpdates: Telegram returned no list".into())),
        }
    }

    /// Confirms a pressed button, so that its spinner stops. Failures are only logged, because a
    /// late confirmation does no harm.
    pub(crate) async fn answer_click(&self, id: &str) {
        let answered = self.call_within("answerCallbackQuery", &json!({"callback_query_id": id}), Some(BRIEFLY)).await;
        if let Err(trouble) = answered {
            tracing::debug!("could not confirm a pressed button: {trouble:?}");
        }
    }
}

/// Classifies an answer.
fn judged(method: &str, mut answer: Answer) -> Result<Value, Trouble> {
    if answer.body["ok"] == json!(true) {
        return Ok(answer.body["result"].take());
    }
    let code = answer.body["error_code"].as_u64().unwrap_or(u64::from(answer.status));
    let said = answer.body["description"].as_str().unwrap_or("no reason given").to_owned();
    Err(match code {
        429 => {
            let seconds = answer.body["parameters"]["retry_after"].as_f64().filter(|it| (0.0..86_400.0).contains(it));
            let pause = seconds.map(Duration::from_secs_f64).or_else(|| answer.retry_after());
            Trouble::Later(pause.unwrap_or(Duration::from_secs(1)))
        }
        // Telegram answers a wrong token with either code.
        401 | 404 => Trouble::Locked(format!("{method}: Telegram says {said}; check the bot's token")),
        400 | 403 => Trouble::Never(format!("{method}: Telegram says {said}")),
        _ => Trouble::Unknown(format!("{method}: Telegram answered {code}: {said}")),
    })
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    #[test]
    fn class_of_an_answer_follows_from_its_status_and_body() {
        let answer = |status: u16, body: Value| judged("X", Answer { status, headers: HeaderMap::new(), body });
        let error = |code: u64, text: &str| json!({"ok": false, "error_code": code, "description": text});
        assert_eq!(answer(200, json!({"ok": true, "result": [1]})), Ok(json!([1])));
        let mut late = error(429, "Too Many Requests: retry after 7");
        late["parameters"] = json!({"retry_after": 7});
        assert_eq!(answer(429, late), Err(Trouble::Later(Duration::from_secs(7))));
        assert!(matches!(answer(401, error(401, "Unauthorized")), Err(Trouble::Locked(_))));
        assert!(matches!(answer(404, error(404, "Not Found")), Err(Trouble::Locked(_))));
        assert!(matches!(answer(400, error(400, "Bad Request: chat not found")), Err(Trouble::Never(_))));
        assert!(matches!(answer(403, error(403, "Forbidden: bot was blocked")), Err(Trouble::Never(_))));
        assert!(matches!(answer(409, error(409, "Conflict: another poll")), Err(Trouble::Unknown(_))));
        assert!(matches!(answer(502, Value::Null), Err(Trouble::Unknown(_))));
    }
}
