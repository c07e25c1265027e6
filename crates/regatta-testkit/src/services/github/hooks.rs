//! Webhooks: their receivers, signatures and results. A webhook is sent once, unless a redelivery
//! is requested.

use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::super::desk::{Desk, Ledger, Wrong};
use super::super::letter::{self, Letter, Undelivered};
use super::super::sign;
use super::show;
use super::world::{App, Delivery, World};

/// The deadline for the answer to a webhook.
pub const ANSWER: Duration = Duration::from_secs(10);

impl World {
    /// Notifies every installed app that listens, or only the app `only`.
    pub(crate) fn tell(
        &mut self,
        ledger: &mut Ledger,
        repo: &str,
        (event, action, sender): (&str, &str, &str),
        mut payload: Value,
        only: Option<&str>,
    ) {
        let Some(place) = self.repo(repo) else { return };
        let owner = place.owner.clone();
        payload["action"] = json!(action);
        payload["repository"] = show::repository(place);
        payload["organization"] = json!({"login": owner});
        payload["sender"] = show::user(sender);
        for app in &mut self.apps {
            let installed = app.installations.iter().find(|it| it.1 == owner).map(|it| it.0);
            let listens = app.events.iter().any(|it| it == event) && only.is_none_or(|it| it == app.app.slug);
            let Some(installation) = installed.filter(|_| listens) else { continue };
            payload["installation"] = json!({"id": installation, "node_id": format!("I_{installation}")});
            let number = ledger.next();
            app.deliveries.push(Delivery {
                id: 9_000_000 + number,
                guid: sign::uuid(&format!("delivery {number}")),
                event: event.to_owned(),
                action: action.to_owned(),
                payload: payload.clone(),
                redelivery: false,
                delivered_at: sign::now(),
                status_code: None,
                status: "pending".into(),
                installation,
                sent: false,
            });
        }
    }
}

fn letter(app: &App, url: &str, delivery: &Delivery) -> Letter {
    let body = delivery.payload.to_string();
    let signature = sign::hmac_hex(&app.webhook_secret, &[body.as_bytes()]);
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("user-agent", "GitHub-Hookshot/double".to_owned()),
        ("x-github-event", delivery.event.clone()),
        ("x-github-delivery", delivery.guid.clone()),
        ("x-github-hook-id", (app.id + 1000).to_string()),
        ("x-github-hook-installation-target-type", "integration".to_owned()),
        ("x-github-hook-installation-target-id", app.id.to_string()),
        ("x-hub-signature-256", format!("sha256={signature}")),
    ];
    let headers = headers.into_iter().map(|it| (it.0.to_owned(), it.1)).collect();
    Letter { url: url.to_owned(), headers, body: Bytes::from(body) }
}

/// Sends each pending webhook once, until the double ends.
pub(crate) async fn deliver(desk: Weak<Desk<World>>) {
    let Some(mut changes) = desk.upgrade().map(|it| it.changes()) else { return };
    loop {
        changes.borrow_and_update();
        let Some(strong) = desk.upgrade() else { return };
        if strong.door().is_open() {
            let due = strong.change_quietly(|world, _| {
                let mut due = vec![];
                for (at, app) in world.apps.iter_mut().enumerate() {
                    if app.webhook.is_none() {
                        continue;
                    }
                    // Webhooks are sent in the order of their creation, so the unsent ones are the
                    // last.
                    for it in app.deliveries.iter_mut().rev().take_while(|it| !it.sent) {
                        it.sent = true;
                        due.push((at, it.id));
                    }
                }
                due
            });
            for (at, id) in due.into_iter().rev() {
                tokio::spawn(once(strong.clone(), at, id));
            }
        }
        drop(strong);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn once(desk: Arc<Desk<World>>, at: usize, id: u64) {
    let (letter, patience) = desk.change_quietly(|world, ledger| {
        let app = &mut world.apps[at];
        let mut signer = app.app.clone();
        if app.forged > 0 {
            app.forged -= 1;
            signer.webhook_secret = "somebody else's".into();
        }
        let delivery = app.deliveries.iter().rev().find(|it| it.id == id).expect("the delivery is due");
        let url = app.webhook.as_deref().unwrap_or_default();
        (letter(&signer, url, delivery), ledger.scale.deadline(ANSWER))
    });
    let result = letter::send(letter, patience).await;
    desk.change(|world, ledger| {
        let app = &mut world.apps[at];
        let delivery = app.deliveries.iter_mut().rev().find(|it| it.id == id).expect("the delivery is due");
        delivery.delivered_at = sign::now();
        (delivery.status_code, delivery.status) = match &result {
            Ok(receipt) if (200..300).contains(&receipt.status) => (Some(receipt.status), "OK".into()),
            Ok(receipt) => (Some(receipt.status), format!("Invalid HTTP Response: {}", receipt.status)),
            Err(Undelivered::Late) => {
                ledger.wrong(&app.app.slug, Wrong::Late, format!("{} was not answered in time", delivery.event));
                (Some(0), "timed out".into())
            }
            Err(Undelivered::Refused) => (Some(0), "failed to connect to host".into()),
        };
    });
}

/// Sends a webhook again with the same GUID and a new id.
pub(crate) fn redeliver(app: &mut super::world::AppState, ledger: &mut Ledger, id: u64) -> bool {
    let Some(old) = app.deliveries.iter().find(|it| it.id == id).cloned() else { return false };
    let id = 9_000_000 + ledger.next();
    let delivered_at = sign::now();
    let status = "pending".into();
    app.deliveries.push(Delivery { id, redelivery: true, sent: false, status_code: None, status, delivered_at, ..old });
    true
}
