//! Webhooks with their retries, and the deadlines of sessions.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::super::desk::{Desk, Ledger, Wrong};
use super::super::letter::{self, Letter};
use super::super::sign;
use super::show;
use super::world::{Activity, AppState, Delivery, World};

/// The deadline for the answer to a webhook.
pub const ANSWER: Duration = Duration::from_secs(5);
/// The deadline for an agent's first activity in a session.
pub const FIRST_SIGN: Duration = Duration::from_secs(10);
/// The time after which a session without activity is stale.
pub const STALE: Duration = Duration::from_secs(30 * 60);
/// The delays after which a failed webhook is sent again.
pub const RETRIES: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(3600), Duration::from_secs(6 * 3600)];

impl World {
    /// Notifies an agent of its session: `created`, or `prompted` with the person's activity.
    pub(crate) fn tell(&mut self, ledger: &mut Ledger, session: &str, action: &str, prompted: Option<&Activity>) {
        let Some(of) = self.session(session).cloned() else { return };
        let organization = self.organization.clone();
        let shown = show::for_webhook(show::session(self, &of), &organization);
        let activity = prompted.map(|it| show::for_webhook(show::activity(self, session, it), &organization));
        let context = (action == "created").then(|| self.context(&of));
        let Some(app) = self.apps.iter_mut().find(|it| it.app.name == of.app) else { return };
        let payload = json!({
            "type": "AgentSessionEvent", "action": action, "createdAt": show::stamp(), "agentSession": shown,
            "agentActivity": activity, "promptContext": context, "previousComments": null, "guidance": null,
            "appUserId": app.app.app_user_id, "oauthClientId": app.app.oauth_client_id,
            "organizationId": organization, "webhookId": sign::uuid(&format!("webhook {}", app.app.name)),
            "webhookTimestamp": sign::now().as_millis() as u64,
        });
        let id = sign::uuid(&format!("delivery {}", ledger.next()));
        let session = session.to_owned();
        let delivery = Delivery { id, payload, attempts: 0, status: None, session, not_before: None, under_way: false };
        app.deliveries.push(delivery);
    }

    fn context(&self, of: &super::world::Session) -> String {
        let issue = of.issue.as_ref().and_then(|it| self.issue(it));
        let comment = of.comment.as_ref().and_then(|id| self.comments.iter().find(|it| it.id == *id));
        let issue = issue.map(|it| {
            format!(
                "<issue identifier=\"{}\">\n<title>{}</title>\n<description>{}</description>\n</issue>",
                it.identifier, it.title, it.description
            )
        });
        let comment = comment.map(|it| {
            format!(
                "\n<primary-directive-thread comment-id=\"{}\">\n<comment>{}</comment>\n</primary-directive-thread>",
                it.id, it.body
            )
        });
        issue.unwrap_or_default() + &comment.unwrap_or_default()
    }
}

fn letter(app: &AppState, delivery: &Delivery, fresh: bool) -> Letter {
    let mut payload = delivery.payload.clone();
    if fresh {
        payload["webhookTimestamp"] = json!(sign::now().as_millis() as u64);
    }
    let body = payload.to_string();
    let headers = [
        ("content-type", "application/json; charset=utf-8".to_owned()),
        ("user-agent", "Linear-Webhook".to_owned()),
        ("linear-delivery", delivery.id.clone()),
        ("linear-event", "AgentSessionEvent".to_owned()),
        ("linear-timestamp", payload["webhookTimestamp"].to_string()),
        ("linear-signature", sign::hmac_hex(&app.app.webhook_secret, &[body.as_bytes()])),
    ];
    let headers = headers.into_iter().map(|it| (it.0.to_owned(), it.1)).collect();
    Letter { url: app.webhook.clone().unwrap_or_default(), headers, body: Bytes::from(body) }
}

/// Sends due webhooks and watches the deadlines of sessions, until the double ends.
pub(crate) async fn deliver(desk: Weak<Desk<World>>) {
    let Some(mut changes) = desk.upgrade().map(|it| it.changes()) else { return };
    loop {
        changes.borrow_and_update();
        let Some(strong) = desk.upgrade() else { return };
        let now = Instant::now();
        let open = strong.door().is_open();
        if strong.view(|view| {
            view.sessions
                .iter()
                .any(|it| it.due <= Some(now) && it.due.is_some() || it.stale <= Some(now) && it.stale.is_some())
        }) {
            strong.change(|world, ledger| world.clocks(ledger, now));
        }
        let (due, wake) = strong.change_quietly(|world, _| {
            let mut due = vec![];
            let mut wake: Option<Instant> = world.sessions.iter().flat_map(|it| [it.due, it.stale]).flatten().min();
            for (at, app) in world.apps.iter_mut().enumerate().filter(|it| open && it.1.webhook.is_some()) {
                for it in &mut app.deliveries {
                    let waits = !it.under_way && !it.taken() && it.attempts <= RETRIES.len() as u32;
                    if waits && it.not_before.is_none_or(|it| it <= now) {
                        it.under_way = true;
                        due.push((at, it.id.clone()));
                    } else if waits {
                        wake = wake.into_iter().chain(it.not_before).min();
                    }
                }
            }
            (due, wake)
        });
        for (at, id) in due {
            tokio::spawn(once(strong.clone(), at, id));
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

async fn once(desk: Arc<Desk<World>>, at: usize, id: String) {
    let (letter, patience) = desk.view(|view| {
        let app = &view.apps[at];
        let delivery = app.deliveries.iter().find(|it| it.id == id).expect("the delivery is due");
        let fresh = delivery.attempts == 0 || !view.old_timestamps;
        (letter(app, delivery, fresh), view.scale().deadline(ANSWER))
    });
    let result = letter::send(letter, patience).await;
    desk.change(|world, ledger| {
        let scale = ledger.scale;
        let app = &mut world.apps[at];
        let delivery = app.deliveries.iter_mut().find(|it| it.id == id).expect("the delivery is due");
        let wait = usize::try_from(delivery.attempts).ok().and_then(|it| RETRIES.get(it)).copied();
        delivery.under_way = false;
        delivery.attempts += 1;
        delivery.status = Some(result.as_ref().map_or(0, |it| it.status));
        delivery.not_before = wait.map(|it| Instant::now() + scale.limit(it));
        let (taken, session) = (delivery.taken(), delivery.session.clone());
        if result.as_ref().err() == Some(&letter::Undelivered::Late) {
            ledger.wrong(&app.app.name, Wrong::Late, "a webhook was not answered in time");
        }
        let created = delivery.payload["action"] == "created";
        let Some(session) = world.session_mut(&session).filter(|_| taken && created) else { return };
        if session.done().next().is_none() && session.external_urls.is_empty() {
            session.due = Some(Instant::now() + scale.deadline(FIRST_SIGN));
        }
    });
}

impl World {
    /// Marks sessions without activity as unresponsive after ten seconds, and as stale after half
    /// an hour.
    fn clocks(&mut self, ledger: &mut Ledger, now: Instant) {
        for it in &mut self.sessions {
            if it.due.is_some_and(|it| it <= now) {
                it.due = None;
                it.unresponsive = true;
                ledger.wrong(&it.app, Wrong::Late, format!("no first activity in session {}", it.id));
            }
            if it.stale.is_some_and(|it| it <= now) {
                it.stale = None;
                it.status = "stale".into();
                ledger.wrong(&it.app, Wrong::Late, format!("session {} went stale", it.id));
            }
        }
    }

    /// Adds a person's prompt to a session, and notifies the agent.
    pub(crate) fn prompt(
        &mut self,
        ledger: &mut Ledger,
        session: &str,
        person: &str,
        body: &str,
        signal: Option<&str>,
    ) {
        let user = self.people.iter().find(|it| it.1 == person).expect("there is such a person").0.clone();
        let scale = ledger.scale;
        let activity = Activity {
            id: sign::uuid(&format!("activity {}", ledger.next())),
            kind: "prompt".into(),
            content: json!({"type": "prompt", "body": body}),
            ephemeral: false,
            signal: signal.map(str::to_owned),
            signal_metadata: Value::Null,
            user,
            at: ledger.elapsed(),
        };
        let of = self.session_mut(session).expect("there is such a session");
        of.status = if signal == Some("stop") { "stopping" } else { "active" }.into();
        of.stale = Some(Instant::now() + scale.deadline(STALE));
        of.activities.push(activity.clone());
        self.tell(ledger, session, "prompted", Some(&activity));
    }
}
