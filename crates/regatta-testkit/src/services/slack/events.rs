//! Decides which apps receive an event, and in which format they receive it.

use serde_json::{Value, json};

use super::super::double::CallRecords;
use super::super::signature;
use super::state::{EnvelopeState, SlackAppState, SlackEnvelope, SlackMessage, SlackState};

impl SlackState {
    /// Queues the event `message` for every subscribed app. Also queues the event `app_mention` for
    /// an app that the message mentions.
    pub(crate) fn queue_message_event(
        &mut self,
        ledger: &mut CallRecords,
        channel: &str,
        mut event: Value,
        message: &SlackMessage,
    ) {
        let Some(place) = self.channel(channel).cloned() else {
            return;
        };
        event["channel"] = json!(place.id);
        event["channel_type"] = json!(place.kind);
        event["event_ts"] = json!(message.ts);
        let topic = subscription_for(place.kind);
        for app_index in 0..self.apps.len() {
            let app = &self.apps[app_index];
            if !place.members.contains(&app.app.bot_user) {
                continue;
            }
            let named = message.text.contains(&format!("<@{}>", app.app.bot_user));
            let is_own = message.user == app.app.bot_user;
            // The events `message` and `app_mention` have the same `ts`. An app that is subscribed
            // to both events receives both, in no guaranteed order.
            if named && !is_own && place.kind != "im" && app.events.contains("app_mention") {
                let mut mention = event.clone();
                mention["type"] = json!("app_mention");
                if let Some(object) = mention.as_object_mut() {
                    object.remove("channel_type");
                }
                self.queue_event(ledger, app_index, mention);
            }
            if self.apps[app_index].events.contains(topic) {
                self.queue_event(ledger, app_index, event.clone());
            }
        }
    }

    /// Queues an event about an edited or deleted message.
    pub(crate) fn queue_change_event(
        &mut self,
        ledger: &mut CallRecords,
        channel: &str,
        mut event: Value,
    ) {
        let Some(place) = self.channel(channel).cloned() else {
            return;
        };
        let stamp = self.next_timestamp();
        event["type"] = json!("message");
        event["hidden"] = json!(true);
        event["channel"] = json!(place.id);
        event["channel_type"] = json!(place.kind);
        event["ts"] = json!(stamp);
        event["event_ts"] = json!(stamp);
        let topic = subscription_for(place.kind);
        self.queue_for_subscribers(ledger, &place.id, topic, &event);
    }

    /// Queues an event for every app that is in this channel and subscribed to `topic`.
    pub(crate) fn queue_for_subscribers(
        &mut self,
        ledger: &mut CallRecords,
        channel: &str,
        topic: &str,
        event: &Value,
    ) {
        let Some(place) = self.channel(channel).cloned() else {
            return;
        };
        for app_index in 0..self.apps.len() {
            let app = &self.apps[app_index];
            if place.members.contains(&app.app.bot_user) && app.events.contains(topic) {
                self.queue_event(ledger, app_index, event.clone());
            }
        }
    }

    fn queue_event(&mut self, ledger: &mut CallRecords, app_index: usize, event: Value) {
        let team = self.team.clone();
        let app = &mut self.apps[app_index];
        let id = format!(
            "Ev{}",
            signature::fake_capitals(&format!("event {}", ledger.next()), 10)
        );
        let payload = json!({
            "token": "verification-token-that-nobody-should-use",
            "team_id": team,
            "api_app_id": app.app.id,
            "event": event,
            "type": "event_callback",
            "event_id": id,
            "event_time": signature::unix_time().as_secs(),
            "authorizations": [{
                "enterprise_id": null, "team_id": team, "user_id": app.app.bot_user,
                "is_bot": true, "is_enterprise_install": false,
            }],
            "is_ext_shared_channel": false,
            "event_context": format!("4-{}", signature::fake_token(&id, 24)),
        });
        app.enqueue(ledger, "events_api", Some(id), payload);
    }
}

impl SlackAppState {
    /// Returns the envelopes (events packed for an app) that still have to be sent or acknowledged.
    pub(crate) fn open_envelopes(&mut self) -> &mut [SlackEnvelope] {
        let over = |slack_envelope: &SlackEnvelope| {
            matches!(
                slack_envelope.state,
                EnvelopeState::Acknowledged | EnvelopeState::GivenUp
            )
        };
        self.settled_count += self.envelopes[self.settled_count..]
            .iter()
            .take_while(|slack_envelope| over(slack_envelope))
            .count();
        &mut self.envelopes[self.settled_count..]
    }

    pub(crate) fn enqueue(
        &mut self,
        ledger: &mut CallRecords,
        kind: &'static str,
        event_id: Option<String>,
        payload: Value,
    ) {
        let envelope_id = signature::fake_uuid(&format!("envelope {}", ledger.next()));
        self.envelopes.push(SlackEnvelope {
            kind,
            event_id,
            envelope_id,
            older_ids: vec![],
            payload,
            retries: 0,
            reason: "",
            state: EnvelopeState::Waiting,
            not_before: None,
            created: ledger.elapsed(),
            acknowledged: None,
        });
    }
}

/// Returns the JSON message in which Socket Mode sends an envelope (an event packed for an app).
pub(crate) fn socket_frame(envelope: &SlackEnvelope) -> Value {
    let mut frame = json!({
        "envelope_id": envelope.envelope_id,
        "type": envelope.kind,
        "payload": envelope.payload,
        // An app may put an answer into its acknowledgement only if the envelope is a slash
        // command.
        "accepts_response_payload": envelope.kind == "slash_commands",
    });
    if envelope.kind == "events_api" {
        frame["retry_attempt"] = json!(envelope.retries);
        frame["retry_reason"] = json!(envelope.reason);
    }
    frame
}

fn subscription_for(kind: &str) -> &'static str {
    match kind {
        "im" => "message.im",
        "group" => "message.groups",
        "mpim" => "message.mpim",
        _ => "message.channels",
    }
}
