//! A double (imitation for tests) of Slack: a workspace with several apps, which receive events
//! over Socket Mode or as signed requests.
//!
//! ```text
//! let slack = Slack::start().await;
//! let claude = slack.add_socket_app("claude"); // its ids, tokens and signing secret
//! let gemini = slack.add_http_app("gemini", "http://127.0.0.1:…/webhooks/slack/gemini");
//! slack.add_person("ann");
//! slack.add_channel("dev", &["ann", "claude"]);
//! slack.add_direct_conversation("ann", "claude");
//!
//! // A name after `@` becomes a mention. The result is the message's timestamp.
//! let root = slack.post_as_person("ann", "dev", "@claude fix the login bug", None);
//! slack.post_as_person("ann", "dev", "and the tests?", Some(&root));
//! slack.click("ann", "dev", &root, "action_id");
//!
//! slack.messages("dev"); // the messages that people see now
//! slack.thread("dev", &root);
//! slack.envelopes("claude"); // events that were sent, retried or acknowledged
//! slack.disconnect("claude", "refresh_requested");
//! slack.set_muted("claude", true);
//! slack.verify_url("gemini").await;
//! slack.wait_for(|view| view.thread("dev", &root).count() == 1, Duration::from_secs(5)).await;
//! ```
//!
//! The double also has everything in [`super`]. The name of an operation is the method's name, such
//! as `chat.postMessage`.
//!
//! Rules that the double checks:
//!
//! - a method that reads takes a form and ignores a JSON body; a method that writes takes either;
//! - cursors are sent back unchanged;
//! - the token has the right kind, and is in the header of a JSON request;
//! - the tiers ([`max_calls_per_minute`]), and one post per second in a channel with bursts of
//!   [`POST_BURST`], with `Retry-After`;
//! - every acknowledgement within 3 s ([`ACKNOWLEDGE_TIMEOUT`]), and at most ten sockets;
//! - 4,000 characters in `chat.update`, 12,000 in `markdown_text`; the rules of Block Kit and
//!   metadata;
//! - an app changes only its own messages.
//!
//! An unacknowledged event is sent again with the same `event_id` and a new `envelope_id`
//! (`retry_attempt`, `retry_reason`). If its websocket was closed, the event is sent at once on the
//! next websocket; otherwise it is sent at once, after one minute and after five minutes. While no
//! websocket is open, an event waits for the next websocket without a time limit; the real service
//! gives up after a while.

mod blocks;
mod events;
mod http;
mod methods;
mod socket;
mod state;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::{Value, json};

pub use methods::{MAX_POSTS_PER_MINUTE, POST_BURST, max_calls_per_minute};
pub use socket::{ACKNOWLEDGE_TIMEOUT, MAX_SOCKETS};
pub use state::{EventTransport, SlackApp, SlackEnvelope, SlackMessage, SlackState};

use super::double::{CallRecords, ServiceDouble};
use super::signature;
use state::{SlackAppState, SlackChannel};

/// The double of Slack. Dropping it closes all its connections.
pub struct Slack {
    double: Arc<ServiceDouble<SlackState>>,
}

impl Deref for Slack {
    type Target = ServiceDouble<SlackState>;

    fn deref(&self) -> &ServiceDouble<SlackState> {
        &self.double
    }
}

impl Drop for Slack {
    fn drop(&mut self) {
        self.double.shut_down();
    }
}

impl Slack {
    /// Starts the double on a free port of the loopback address. The API is below `base_url() +
    /// "/api/"`.
    pub async fn start() -> Slack {
        Slack {
            double: ServiceDouble::open(SlackState::new(), methods::handle_request).await,
        }
    }

    /// Installs an app that receives its events over a websocket (Socket Mode). The app is
    /// subscribed to mentions, all messages and reactions.
    pub fn add_socket_app(&self, name: &str) -> SlackApp {
        self.add_app(name, EventTransport::Socket)
    }

    /// Installs an app that receives its events as HTTP requests to a URL.
    pub fn add_http_app(&self, name: &str, url: &str) -> SlackApp {
        let app = self.add_app(name, EventTransport::Http(url.to_owned()));
        let app_index = self.app_index(name);
        tokio::spawn(http::deliver_events(
            Arc::downgrade(&self.double),
            app_index,
        ));
        app
    }

    fn add_app(&self, name: &str, mode: EventTransport) -> SlackApp {
        let id = |kind: &str| {
            format!(
                "{kind}{}",
                signature::fake_capitals(&format!("{kind} {name}"), 10)
            )
        };
        let app = SlackApp {
            name: name.to_owned(),
            id: id("A"),
            bot_user: id("U"),
            bot_id: id("B"),
            bot_token: format!("xoxb-{}", signature::fake_token(&format!("bot {name}"), 24)),
            app_token: format!(
                "xapp-1-{}",
                signature::fake_token(&format!("app {name}"), 24)
            ),
            signing_secret: signature::fake_token(&format!("secret {name}"), 32),
        };
        let events = [
            "app_mention",
            "message.channels",
            "message.groups",
            "message.im",
            "reaction_added",
        ];
        let events: BTreeSet<String> = events.into_iter().map(str::to_owned).collect();
        let state = SlackAppState {
            app: app.clone(),
            mode,
            events,
            envelopes: vec![],
            settled_count: 0,
            connections: vec![],
            tickets: BTreeSet::new(),
            orders: Default::default(),
            is_muted: false,
        };
        self.update(|world, _| world.apps.push(state));
        app
    }

    /// Sets the events to which an app is subscribed: `app_mention`, `message.channels`, …
    pub fn subscribe(&self, app: &str, events: &[&str]) {
        let (app_index, events) = (
            self.app_index(app),
            events.iter().map(|event| (*event).to_owned()).collect(),
        );
        self.update(|world, _| world.apps[app_index].events = events);
    }

    /// Adds a person to the imitated service. Returns the person's id.
    pub fn add_person(&self, name: &str) -> String {
        let id = format!(
            "U{}",
            signature::fake_capitals(&format!("person {name}"), 10)
        );
        self.update(|world, _| world.people.push((id.clone(), name.to_owned())));
        id
    }

    /// Adds a channel with people and apps as members, by name. Returns the channel's id.
    pub fn add_channel(&self, name: &str, members: &[&str]) -> String {
        self.add_conversation("C", name, "channel", members)
    }

    /// Adds a private channel.
    pub fn add_private_channel(&self, name: &str, members: &[&str]) -> String {
        self.add_conversation("G", name, "group", members)
    }

    /// Opens a direct conversation between a person and an app. Returns the id of the conversation.
    pub fn add_direct_conversation(&self, person: &str, app: &str) -> String {
        self.add_conversation("D", &format!("{person} and {app}"), "im", &[person, app])
    }

    fn add_conversation(
        &self,
        delivery: &str,
        name: &str,
        kind: &'static str,
        members: &[&str],
    ) -> String {
        let id = format!(
            "{delivery}{}",
            signature::fake_capitals(&format!("channel {name}"), 10)
        );
        self.update(|world, _| {
            let member = |user: &&str| {
                world
                    .id(user)
                    .unwrap_or_else(|| panic!("the workspace has no member {user}"))
                    .to_owned()
            };
            let members = members.iter().map(member).collect();
            world.channels.push(SlackChannel {
                id: id.clone(),
                name: name.to_owned(),
                kind,
                members,
                messages: vec![],
            });
        });
        id
    }

    /// Returns the workspace's id.
    pub fn team_id(&self) -> String {
        self.view(|view| view.team.clone())
    }

    /// Posts a message in the name of a person. For a reply, `thread` is the first message of the
    /// thread. Returns the message's `ts`.
    pub fn post_as_person(
        &self,
        person: &str,
        channel: &str,
        text: &str,
        thread: Option<&str>,
    ) -> String {
        self.update(|world, ledger| {
            let (ts, text, now) = (
                world.next_timestamp(),
                world.escape_typed(text),
                ledger.elapsed(),
            );
            let user = world
                .id(person)
                .unwrap_or_else(|| panic!("the workspace has no member {person}"))
                .to_owned();
            let message = SlackMessage {
                ts: ts.clone(),
                thread_ts: thread.map(str::to_owned),
                user,
                app: None,
                text: text.clone(),
                blocks: Value::Null,
                metadata: Value::Null,
                ephemeral_for: None,
                reactions: vec![],
                is_streaming: None,
                posted: now,
                changed: now,
                versions: vec![text],
            };
            world.add_message(ledger, channel, message);
            ts
        })
    }

    /// Changes the text of a message, as the person who posted it would.
    pub fn edit_message(&self, channel: &str, ts: &str, text: &str) {
        self.update(|world, ledger| {
            let (text, now) = (world.escape_typed(text), ledger.elapsed());
            let before = world.message(channel, ts).expect("there is such a message").clone();
            let message = world.message_mut(channel, ts).expect("there is such a message");
            (message.text, message.changed) = (text.clone(), now);
            message.versions.push(text);
            let message = message.clone();
            let (shown, previous) = (world.message_json(&message, false), world.message_json(&before, false));
            let event = json!({"subtype": "message_changed", "message": shown, "previous_message": previous});
            world.queue_change_event(ledger, channel, event);
        });
    }

    /// Deletes a message in the name of a person.
    pub fn delete_message(&self, channel: &str, ts: &str) {
        self.update(|world, ledger| {
            let closing = world.message(channel, ts).expect("there is such a message").clone();
            world.channel_mut(channel).expect("there is such a channel").messages.retain(|slack_message| slack_message.ts != ts);
            let previous = world.message_json(&closing, false);
            let event = json!({"subtype": "message_deleted", "deleted_ts": ts, "previous_message": previous});
            world.queue_change_event(ledger, channel, event);
        });
    }

    /// Adds a person's reaction to a message.
    pub fn react(&self, person: &str, channel: &str, ts: &str, name: &str) {
        self.update(|world, ledger| {
            let user = world
                .id(person)
                .unwrap_or_else(|| panic!("the workspace has no member {person}"))
                .to_owned();
            world
                .change_reaction(ledger, channel, ts, (name, &user), true)
                .expect("the message exists and does not have this reaction yet");
        });
    }

    /// Clicks a button in the name of a person. `action` is the button's `action_id` or its value.
    pub fn click(&self, person: &str, channel: &str, ts: &str, action: &str) {
        self.update(|world, ledger| {
            let user = world.id(person).unwrap_or_else(|| panic!("the workspace has no member {person}")).to_owned();
            let channel_state = world.channel(channel).expect("there is such a channel").clone();
            let message = world.message(channel, ts).expect("there is such a message").clone();
            let element = message.elements().find(|element| element["action_id"] == action || element["value"] == action);
            let mut clicked = element.unwrap_or_else(|| panic!("no button {action} in {}", message.blocks)).clone();
            clicked["action_ts"] = json!(world.next_timestamp());
            let mut container = json!({
                "type": "message", "message_ts": ts, "channel_id": channel_state.id, "is_ephemeral": message.ephemeral_for.is_some(),
            });
            if let Some(thread) = &message.thread_ts {
                container["thread_ts"] = json!(thread);
            }
            let shown = world.message_json(&message, true);
            let owner = message.app.clone().expect("only apps post buttons");
            let team = world.team.clone();
            let app = world.apps.iter_mut().find(|slack_app_state| slack_app_state.app.name == owner).expect("the app posted the message");
            let payload = json!({
                "type": "block_actions",
                "user": {"id": user, "username": person, "name": person, "team_id": team},
                "api_app_id": app.app.id, "token": "verification-token", "container": container,
                "trigger_id": format!("{}.{}", ledger.next(), signature::fake_token(ts, 12)),
                "team": {"id": team, "domain": "regatta"}, "enterprise": null, "is_enterprise_install": false,
                "channel": {"id": channel_state.id, "name": channel_state.name}, "message": shown, "state": {"values": {}},
                "actions": [clicked],
            });
            app.enqueue(ledger, "interactive", None, payload);
        });
    }

    /// Sends a person's slash command to an app.
    pub fn send_slash_command(
        &self,
        person: &str,
        channel: &str,
        app: &str,
        command: &str,
        text: &str,
    ) {
        let app_index = self.app_index(app);
        self.update(|world, ledger| {
            let user = world.id(person).unwrap_or_else(|| panic!("the workspace has no member {person}")).to_owned();
            let channel_state = world.channel(channel).expect("there is such a channel").clone();
            let payload = json!({
                "token": "verification-token", "team_id": world.team, "team_domain": "regatta", "channel_id": channel_state.id,
                "channel_name": channel_state.name, "user_id": user, "user_name": person, "command": command, "text": text,
                "api_app_id": world.apps[app_index].app.id, "is_enterprise_install": "false",
                "trigger_id": format!("{}.x", ledger.next()),
            });
            world.apps[app_index].enqueue(ledger, "slash_commands", None, payload);
        });
    }

    /// Returns the messages of a channel that people see now.
    pub fn messages(&self, channel: &str) -> Vec<SlackMessage> {
        self.view(|view| view.messages(channel).to_vec())
    }

    /// Returns the replies to the message `root`, which is the first of a thread.
    pub fn thread(&self, channel: &str, root: &str) -> Vec<SlackMessage> {
        self.view(|view| view.thread(channel, root).cloned().collect())
    }

    /// Returns the reactions to a message: emoji and user, in order.
    pub fn reactions(&self, channel: &str, ts: &str) -> Vec<(String, String)> {
        self.view(|view| {
            view.message(channel, ts)
                .map(|slack_message| slack_message.reactions.clone())
                .unwrap_or_default()
        })
    }

    /// Returns the envelopes (events packed for an app). Each envelope says how often it was sent.
    pub fn envelopes(&self, app: &str) -> Vec<SlackEnvelope> {
        self.view(|view| view.envelopes(app).to_vec())
    }

    /// Disconnects every websocket of an app. The app gets the reason `refresh_requested`,
    /// `link_disabled`, or `warning`; after a warning, the websocket stays open for ten more
    /// seconds.
    pub fn disconnect(&self, app: &str, reason: &'static str) {
        let app_index = self.app_index(app);
        self.update(|world, _| {
            world.apps[app_index]
                .orders
                .values_mut()
                .for_each(|order| order.push_back(reason))
        });
    }

    /// Makes an app's websockets send nothing (no events, no pings), although they stay open. With
    /// `false`, lets them send again.
    pub fn set_muted(&self, app: &str, mute: bool) {
        let app_index = self.app_index(app);
        self.update(|world, _| world.apps[app_index].is_muted = mute);
    }

    /// Sends Slack's challenge (`url_verification`) to an app's URL. Returns true if the app has
    /// sent the challenge back.
    pub async fn verify_url(&self, app: &str) -> bool {
        http::verify_url(
            self,
            self.app_index(app),
            &signature::fake_token(&format!("challenge {app}"), 40),
        )
        .await
    }

    fn app_index(&self, app: &str) -> usize {
        let found = self.view(|view| {
            view.apps
                .iter()
                .position(|slack_app_state| slack_app_state.app.name == app)
        });
        found.unwrap_or_else(|| panic!("no app is called {app}"))
    }
}

impl SlackState {
    /// Adds or removes a reaction, and queues the event about it.
    pub(crate) fn change_reaction(
        &mut self,
        ledger: &mut CallRecords,
        channel: &str,
        ts: &str,
        (name, user): (&str, &str),
        add: bool,
    ) -> Result<(), &'static str> {
        let message = self.message_mut(channel, ts).ok_or("message_not_found")?;
        let found = message
            .reactions
            .iter()
            .position(|reaction| reaction.0 == name && reaction.1 == user);
        match (add, found) {
            (true, Some(_)) => return Err("already_reacted"),
            (false, None) => return Err("no_reaction"),
            (true, None) => message.reactions.push((name.to_owned(), user.to_owned())),
            (false, Some(at)) => drop(message.reactions.remove(at)),
        }
        let (owner, id) = (
            message.user.clone(),
            self.channel(channel)
                .map(|slack_channel| slack_channel.id.clone())
                .unwrap_or_default(),
        );
        let topic = if add {
            "reaction_added"
        } else {
            "reaction_removed"
        };
        let event = json!({
            "type": topic, "user": user, "reaction": name, "item_user": owner,
            "item": {"type": "message", "channel": id, "ts": ts}, "event_ts": self.next_timestamp(),
        });
        self.queue_for_subscribers(ledger, &id, topic, &event);
        Ok(())
    }
}
