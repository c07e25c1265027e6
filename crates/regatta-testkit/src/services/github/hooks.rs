//! Sends signed webhooks, and records the receiver's answers. Like GitHub, sends each webhook once,
//! unless a test asks for a redelivery.

use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::super::double::{CallRecords, ServiceDouble, ViolationKind};
use super::super::outgoing_request::{self, DeliveryError, OutgoingRequest};
use super::super::signature;
use super::payloads;
use super::state::{GitHubApp, GitHubDelivery, GitHubState};

/// The time that a receiver may take to answer a webhook.
pub const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

impl GitHubState {
    /// Queues a webhook for every app that is installed and subscribed to the event, or only for
    /// the app `only`.
    pub(crate) fn queue_webhooks(
        &mut self,
        ledger: &mut CallRecords,
        repo: &str,
        (event, action, sender): (&str, &str, &str),
        mut payload: Value,
        only: Option<&str>,
    ) {
        let Some(place) = self.repo(repo) else { return };
        let owner = place.owner.clone();
        payload["action"] = json!(action);
        payload["repository"] = payloads::repository(place);
        payload["organization"] = json!({"login": owner});
        payload["sender"] = payloads::user(sender);
        for app in &mut self.apps {
            let installed = app
                .installations
                .iter()
                .find(|installation| installation.1 == owner)
                .map(|installation| installation.0);
            let listens = app.events.iter().any(|name| name == event)
                && only.is_none_or(|only| only == app.app.slug);
            let Some(installation) = installed.filter(|_| listens) else {
                continue;
            };
            payload["installation"] =
                json!({"id": installation, "node_id": format!("I_{installation}")});
            let number = ledger.next();
            app.deliveries.push(GitHubDelivery {
                id: 9_000_000 + number,
                guid: signature::fake_uuid(&format!("delivery {number}")),
                event: event.to_owned(),
                action: action.to_owned(),
                payload: payload.clone(),
                is_redelivery: false,
                delivered_at: signature::unix_time(),
                status_code: None,
                status: "pending".into(),
                installation,
                is_sent: false,
            });
        }
    }
}

fn webhook_request(app: &GitHubApp, url: &str, delivery: &GitHubDelivery) -> OutgoingRequest {
    let body = delivery.payload.to_string();
    let signature = signature::hmac_hex(&app.webhook_secret, &[body.as_bytes()]);
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("user-agent", "GitHub-Hookshot/double".to_owned()),
        ("x-github-event", delivery.event.clone()),
        ("x-github-delivery", delivery.guid.clone()),
        ("x-github-hook-id", (app.id + 1000).to_string()),
        (
            "x-github-hook-installation-target-type",
            "integration".to_owned(),
        ),
        ("x-github-hook-installation-target-id", app.id.to_string()),
        ("x-hub-signature-256", format!("sha256={signature}")),
    ];
    let headers = headers
        .into_iter()
        .map(|header| (header.0.to_owned(), header.1))
        .collect();
    OutgoingRequest {
        url: url.to_owned(),
        headers,
        body: Bytes::from(body),
    }
}

/// Sends each queued webhook once. Runs until the double (the imitation of GitHub) ends.
pub(crate) async fn deliver_webhooks(double: Weak<ServiceDouble<GitHubState>>) {
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
        if strong.listener().is_open() {
            let due = strong.update_silently(|world, _| {
                let mut due = vec![];
                for (at, app) in world.apps.iter_mut().enumerate() {
                    if app.webhook.is_none() {
                        continue;
                    }
                    // New webhooks are added at the end of the list, so the webhooks that were not
                    // sent yet are at the end.
                    for github_delivery in app
                        .deliveries
                        .iter_mut()
                        .rev()
                        .take_while(|github_delivery| !github_delivery.is_sent)
                    {
                        github_delivery.is_sent = true;
                        due.push((at, github_delivery.id));
                    }
                }
                due
            });
            for (at, id) in due.into_iter().rev() {
                tokio::spawn(deliver_one(strong.clone(), at, id));
            }
        }
        drop(strong);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn deliver_one(double: Arc<ServiceDouble<GitHubState>>, app_index: usize, id: u64) {
    let (letter, timeout) = double.update_silently(|world, ledger| {
        let app = &mut world.apps[app_index];
        let mut signer = app.app.clone();
        if app.forged_signatures > 0 {
            app.forged_signatures -= 1;
            signer.webhook_secret = "somebody else's".into();
        }
        let delivery = app
            .deliveries
            .iter()
            .rev()
            .find(|github_delivery| github_delivery.id == id)
            .expect("the delivery is due");
        let url = app.webhook.as_deref().unwrap_or_default();
        (
            webhook_request(&signer, url, delivery),
            ledger.scale.scale_deadline(WEBHOOK_TIMEOUT),
        )
    });
    let result = outgoing_request::deliver_request(letter, timeout).await;
    double.update(|world, ledger| {
        let app = &mut world.apps[app_index];
        let delivery = app
            .deliveries
            .iter_mut()
            .rev()
            .find(|github_delivery| github_delivery.id == id)
            .expect("the delivery is due");
        delivery.delivered_at = signature::unix_time();
        (delivery.status_code, delivery.status) = match &result {
            Ok(receipt) if (200..300).contains(&receipt.status) => {
                (Some(receipt.status), "OK".into())
            }
            Ok(receipt) => (
                Some(receipt.status),
                format!("Invalid HTTP Response: {}", receipt.status),
            ),
            Err(DeliveryError::TimedOut) => {
                ledger.add_violation(
                    &app.app.slug,
                    ViolationKind::Late,
                    format!("{} was not answered in time", delivery.event),
                );
                (Some(0), "timed out".into())
            }
            Err(DeliveryError::Refused) => (Some(0), "failed to connect to host".into()),
        };
    });
}

/// Queues a webhook again, with the same GUID and a new id. Returns false if there is no such
/// webhook.
pub(crate) fn queue_redelivery(
    app: &mut super::state::GitHubAppState,
    ledger: &mut CallRecords,
    id: u64,
) -> bool {
    let Some(old) = app
        .deliveries
        .iter()
        .find(|github_delivery| github_delivery.id == id)
        .cloned()
    else {
        return false;
    };
    let id = 9_000_000 + ledger.next();
    let delivered_at = signature::unix_time();
    let status = "pending".into();
    app.deliveries.push(GitHubDelivery {
        id,
        is_redelivery: true,
        is_sent: false,
        status_code: None,
        status,
        delivered_at,
        ..old
    });
    true
}
