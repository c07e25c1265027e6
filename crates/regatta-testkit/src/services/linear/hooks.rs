//! Sends webhooks, repeats webhooks that fail, and watches the deadlines of agents' sessions.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::super::double::{CallRecords, ServiceDouble, ViolationKind};
use super::super::outgoing_request::{self, OutgoingRequest};
use super::super::signature;
use super::json;
use super::state::{LinearAppState, LinearDelivery, LinearState, SessionActivity};

/// The time that a receiver may take to answer a webhook.
pub const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that an agent may take for its first activity in a session.
pub const FIRST_ACTIVITY_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for which a session may have no activity before it counts as stale.
pub const STALE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The delays after which a webhook that failed is sent again.
pub const RETRY_DELAYS: [Duration; 3] = [
    Duration::from_secs(60),
    Duration::from_secs(3600),
    Duration::from_secs(6 * 3600),
];

impl LinearState {
    /// Queues a webhook about a session for its agent: `created`, or `prompted` with the person's
    /// activity.
    pub(crate) fn queue_webhook(
        &mut self,
        ledger: &mut CallRecords,
        session: &str,
        action: &str,
        prompted: Option<&SessionActivity>,
    ) {
        let Some(of) = self.session(session).cloned() else {
            return;
        };
        let organization = self.organization.clone();
        let shown = json::webhook_json(json::session(self, &of), &organization);
        let activity = prompted.map(|session_activity| {
            json::webhook_json(
                json::activity(self, session, session_activity),
                &organization,
            )
        });
        let context = (action == "created").then(|| self.prompt_context(&of));
        let Some(app) = self
            .apps
            .iter_mut()
            .find(|linear_app_state| linear_app_state.app.name == of.app)
        else {
            return;
        };
        let payload = json!({
            "type": "AgentSessionEvent", "action": action, "createdAt": json::now_text(), "agentSession": shown,
            "agentActivity": activity, "promptContext": context, "previousComments": null, "guidance": null,
            "appUserId": app.app.app_user_id, "oauthClientId": app.app.oauth_client_id,
            "organizationId": organization, "webhookId": signature::fake_uuid(&format!("webhook {}", app.app.name)),
            "webhookTimestamp": signature::unix_time().as_millis() as u64,
        });
        let id = signature::fake_uuid(&format!("delivery {}", ledger.next()));
        let session = session.to_owned();
        let delivery = LinearDelivery {
            id,
            payload,
            attempts: 0,
            status: None,
            session,
            not_before: None,
            is_in_flight: false,
        };
        app.deliveries.push(delivery);
    }

    fn prompt_context(&self, session: &super::state::LinearSession) -> String {
        let issue = session.issue.as_ref().and_then(|issue| self.issue(issue));
        let comment = session.comment.as_ref().and_then(|id| {
            self.comments
                .iter()
                .find(|linear_comment| linear_comment.id == *id)
        });
        let issue = issue.map(|linear_issue| {
            format!(
                "<issue identifier=\"{}\">\n<title>{}</title>\n<description>{}</description>\n</issue>",
                linear_issue.identifier, linear_issue.title, linear_issue.description
            )
        });
        let comment = comment.map(|linear_comment| {
            format!(
                "\n<primary-directive-thread \
                comment-id=\"{}\">\n<comment>{}</comment>\n</primary-directive-thread>",
                linear_comment.id, linear_comment.body
            )
        });
        issue.unwrap_or_default() + &comment.unwrap_or_default()
    }
}

fn webhook_request(
    app: &LinearAppState,
    delivery: &LinearDelivery,
    fresh: bool,
) -> OutgoingRequest {
    let mut payload = delivery.payload.clone();
    if fresh {
        payload["webhookTimestamp"] = json!(signature::unix_time().as_millis() as u64);
    }
    let body = payload.to_string();
    let headers = [
        ("content-type", "application/json; charset=utf-8".to_owned()),
        ("user-agent", "Linear-Webhook".to_owned()),
        ("linear-delivery", delivery.id.clone()),
        ("linear-event", "AgentSessionEvent".to_owned()),
        ("linear-timestamp", payload["webhookTimestamp"].to_string()),
        (
            "linear-signature",
            signature::hmac_hex(&app.app.webhook_secret, &[body.as_bytes()]),
        ),
    ];
    let headers = headers
        .into_iter()
        .map(|header| (header.0.to_owned(), header.1))
        .collect();
    OutgoingRequest {
        url: app.webhook.clone().unwrap_or_default(),
        headers,
        body: Bytes::from(body),
    }
}

/// Sends webhooks when they are due, and watches the deadlines of agents' sessions. Runs until the
/// double (the imitation of Linear) ends.
pub(crate) async fn deliver_webhooks(double: Weak<ServiceDouble<LinearState>>) {
    let Some(mut changes) = double
        .upgrade()
        .map(|service_double| service_double.watch_changes())
    else {
        return;
    };
    loop {
        changes.borrow_and_update();
        let Some(strong) = double.upgrade() else {
            return;
        };
        let now = Instant::now();
        let open = strong.listener().is_open();
        if strong.view(|view| {
            view.sessions.iter().any(|linear_session| {
                linear_session.first_activity_due <= Some(now)
                    && linear_session.first_activity_due.is_some()
                    || linear_session.stale_at <= Some(now) && linear_session.stale_at.is_some()
            })
        }) {
            strong.update(|world, ledger| world.check_deadlines(ledger, now));
        }
        let (due, wake) = strong.update_silently(|world, _| {
            let mut due = vec![];
            let mut wake: Option<Instant> = world
                .sessions
                .iter()
                .flat_map(|linear_session| {
                    [linear_session.first_activity_due, linear_session.stale_at]
                })
                .flatten()
                .min();
            for (at, app) in world
                .apps
                .iter_mut()
                .enumerate()
                .filter(|app| open && app.1.webhook.is_some())
            {
                for linear_delivery in &mut app.deliveries {
                    let waits = !linear_delivery.is_in_flight
                        && !linear_delivery.is_accepted()
                        && linear_delivery.attempts <= RETRY_DELAYS.len() as u32;
                    if waits
                        && linear_delivery
                            .not_before
                            .is_none_or(|instant| instant <= now)
                    {
                        linear_delivery.is_in_flight = true;
                        due.push((at, linear_delivery.id.clone()));
                    } else if waits {
                        wake = wake.into_iter().chain(linear_delivery.not_before).min();
                    }
                }
            }
            (due, wake)
        });
        for (at, id) in due {
            tokio::spawn(deliver_one(strong.clone(), at, id));
        }
        drop(strong);
        let sleep = async {
            match wake {
                Some(wake) => tokio::time::sleep_until(wake.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            more = changes.changed() => if more.is_err() { return },
        }
    }
}

async fn deliver_one(double: Arc<ServiceDouble<LinearState>>, app_index: usize, id: String) {
    let (letter, timeout) = double.view(|view| {
        let app = &view.apps[app_index];
        let delivery = app
            .deliveries
            .iter()
            .find(|linear_delivery| linear_delivery.id == id)
            .expect("the delivery is due");
        let fresh = delivery.attempts == 0 || !view.keeps_retry_timestamps;
        (
            webhook_request(app, delivery, fresh),
            view.scale().scale_deadline(WEBHOOK_TIMEOUT),
        )
    });
    let result = outgoing_request::deliver_request(letter, timeout).await;
    double.update(|world, ledger| {
        let scale = ledger.scale;
        let app = &mut world.apps[app_index];
        let delivery = app
            .deliveries
            .iter_mut()
            .find(|linear_delivery| linear_delivery.id == id)
            .expect("the delivery is due");
        let wait = usize::try_from(delivery.attempts)
            .ok()
            .and_then(|index| RETRY_DELAYS.get(index))
            .copied();
        delivery.is_in_flight = false;
        delivery.attempts += 1;
        delivery.status = Some(
            result
                .as_ref()
                .map_or(0, |received_response| received_response.status),
        );
        delivery.not_before = wait.map(|duration| Instant::now() + scale.scale_limit(duration));
        let (taken, session) = (delivery.is_accepted(), delivery.session.clone());
        if result.as_ref().err() == Some(&outgoing_request::DeliveryError::TimedOut) {
            ledger.add_violation(
                &app.app.name,
                ViolationKind::Late,
                "a webhook was not answered in time",
            );
        }
        let created = delivery.payload["action"] == "created";
        let Some(session) = world.session_mut(&session).filter(|_| taken && created) else {
            return;
        };
        if session.agent_activities().next().is_none() && session.external_urls.is_empty() {
            session.first_activity_due =
                Some(Instant::now() + scale.scale_deadline(FIRST_ACTIVITY_TIMEOUT));
        }
    });
}

impl LinearState {
    /// If the agent of a session sends nothing, marks the session as unresponsive after ten seconds
    /// and as stale after half an hour.
    fn check_deadlines(&mut self, ledger: &mut CallRecords, now: Instant) {
        for linear_session in &mut self.sessions {
            if linear_session
                .first_activity_due
                .is_some_and(|instant| instant <= now)
            {
                linear_session.first_activity_due = None;
                linear_session.is_unresponsive = true;
                ledger.add_violation(
                    &linear_session.app,
                    ViolationKind::Late,
                    format!("no first activity in session {}", linear_session.id),
                );
            }
            if linear_session
                .stale_at
                .is_some_and(|instant| instant <= now)
            {
                linear_session.stale_at = None;
                linear_session.status = "stale".into();
                ledger.add_violation(
                    &linear_session.app,
                    ViolationKind::Late,
                    format!("session {} went stale", linear_session.id),
                );
            }
        }
    }

    /// Adds a person's prompt to a session, and queues the webhook about it.
    pub(crate) fn add_prompt(
        &mut self,
        ledger: &mut CallRecords,
        session: &str,
        person: &str,
        body: &str,
        signal: Option<&str>,
    ) {
        let user = self
            .people
            .iter()
            .find(|people| people.1 == person)
            .expect("there is such a person")
            .0
            .clone();
        let scale = ledger.scale;
        let activity = SessionActivity {
            id: signature::fake_uuid(&format!("activity {}", ledger.next())),
            kind: "prompt".into(),
            content: json!({"type": "prompt", "body": body}),
            is_ephemeral: false,
            signal: signal.map(str::to_owned),
            signal_metadata: Value::Null,
            user,
            created: ledger.elapsed(),
        };
        let session_state = self.session_mut(session).expect("there is such a session");
        session_state.status = if signal == Some("stop") {
            "stopping"
        } else {
            "active"
        }
        .into();
        session_state.stale_at = Some(Instant::now() + scale.scale_deadline(STALE_TIMEOUT));
        session_state.activities.push(activity.clone());
        self.queue_webhook(ledger, session, "prompted", Some(&activity));
    }
}
