//! Events: which apps receive them, and in which frame.

use serde_json::{Value, json};

use super::super::desk::Ledger;
use super::super::sign;
use super::world::{AppState, Envelope, Message, State, Workspace};

impl Workspace {
    /// Sends a message event to every app that listens: `message`, and also `app_mention` if the
    /// app is mentioned.
    pub(crate) fn tell_message(&mut self, ledger: &mut Ledger, channel: &str, mut event: Value, message: &Message) {
        let Some(place) = self.channel(channel).cloned() else { return };
        event["channel"] = json!(place.id);
        event["channel_type"] = json!(place.kind);
        event["event_ts"] = json!(message.ts);
        let topic = topic(place.kind);
        for at in 0..self.apps.len() {
            let app = &self.apps[at];
            if !place.members.contains(&app.app.bot_user) {
                continue;
            }
            let named = message.text.contains(&format!("<@{}>", app.app.bot_user));
            let own = message.user == app.app.bot_user;
            // Both events have the same `ts`. An app that listens to both receives both, in no
            // guaranteed order.
            if named && !own && place.kind != "im" && app.events.contains("app_mention") {
                let mut mention = event.clone();
                mention["type"] = json!("app_mention");
                if let Some(it) = mention.as_object_mut() {
                    it.remove("channel_type");
                }
                self.tell(ledger, at, mention);
            }
            if self.apps[at].events.contains(topic) {
                self.tell(ledger, at, event.clone());
            }
        }
    }

    /// Sends an event about a change of a message: an edit or a deletion.
    pub(crate) fn tell_change(&mut self, ledger: &mut Ledger, channel: &str, mut event: Value) {
        let Some(place) = self.channel(channel).cloned() else { return };
        let stamp = self.stamp();
        event["type"] = json!("message");
        event["hidden"] = json!(true);
        event["channel"] = json!(place.id);
        event["channel_type"] = json!(place.kind);
        event["ts"] = json!(stamp);
        event["event_ts"] = json!(stamp);
        let topic = topic(place.kind);
        self.tell_all(ledger, &place.id, topic, &event);
    }

    /// Sends an event to every app in this channel that listens to `topic`.
    pub(crate) fn tell_all(&mut self, ledger: &mut Ledger, channel: &str, topic: &str, event: &Value) {
        let Some(place) = self.channel(channel).cloned() else { return };
        for at in 0..self.apps.len() {
            let app = &self.apps[at];
            if place.members.contains(&app.app.bot_user) && app.events.contains(topic) {
                self.tell(ledger, at, event.clone());
            }
        }
    }

    fn tell(&mut self, ledger: &mut Ledger, at: usize, event: Value) {
        let team = self.team.clone();
        let app = &mut self.apps[at];
        let id = format!("Ev{}", sign::capitals(&format!("event {}", ledger.next()), 10));
        let payload = json!({
            "token": "verification-token-that-nobody-should-use",
            "team_id": team,
            "api_app_id": app.app.id,
            "event": event,
            "type": "event_callback",
            "event_id": id,
            "event_time": sign::now().as_secs(),
            "authorizations": [{
                "enterprise_id": null, "team_id": team, "user_id": app.app.bot_user,
                "is_bot": true, "is_enterprise_install": false,
            }],
            "is_ext_shared_channel": false,
            "event_context": format!("4-{}", sign::token(&id, 24)),
        });
        app.enqueue(ledger, "events_api", Some(id), payload);
    }
}

impl AppState {
    /// Returns the envelopes that still have to be sent or acknowledged.
    pub(crate) fn unsettled(&mut self) -> &mut [Envelope] {
        let over = |it: &Envelope| matches!(it.state, State::Done | State::GivenUp);
        self.settled += self.envelopes[self.settled..].iter().take_while(|it| over(it)).count();
        &mut self.envelopes[self.settled..]
    }

    pub(crate) fn enqueue(
        &mut self,
        ledger: &mut Ledger,
        kind: &'static str,
        event_id: Option<String>,
        payload: Value,
    ) {
        let envelope_id = sign::uuid(&format!("envelope {}", ledger.next()));
        self.envelopes.push(Envelope {
            kind,
            event_id,
            envelope_id,
            older_ids: vec![],
            payload,
            retries: 0,
            reason: "",
            state: State::Waiting,
            not_before: None,
            made: ledger.elapsed(),
            acknowledged: None,
        });
    }
}

/// Returns the socket's frame around an envelope.
pub(crate) fn frame(envelope: &Envelope) -> Value {
    let mut frame = json!({
        "envelope_id": envelope.envelope_id,
        "type": envelope.kind,
        "payload": envelope.payload,
        // Only answers to a person's command may be part of the acknowledgement.
        "accepts_response_payload": envelope.kind == "slash_commands",
    });
    if envelope.kind == "events_api" {
        frame["retry_attempt"] = json!(envelope.retries);
        frame["retry_reason"] = json!(envelope.reason);
    }
    frame
}

fn topic(kind: &str) -> &'static str {
    match kind {
        "im" => "message.im",
        "group" => "message.groups",
        "mpim" => "message.mpim",
        _ => "message.channels",
    }
}
