//! Bridges: named agents in Slack, GitHub, Linear and Telegram, each with its own identity there.
//!
//! [`registry`] reads which agents are at which services, with which credentials. Each instance is
//! one agent at one service. Its inbound side hands events to its [`desk`], which turns them into
//! commands. Its [`outbox`] posts what the board says is due. A service is one folder that
//! implements the two traits of [`service`].

pub mod config; // agents and credentials
pub mod intake; // turns events into commands
pub mod rate_limit; // rate limits
pub mod render; // the text of posts
pub mod service; // the port of a service
pub mod signature; // signatures of deliveries

mod github;
mod http; // calls to a service
mod linear;
mod outbox; // posts what is due, in order, once
mod outgoing_webhook;
mod slack;
mod telegram;
mod webhook_routes; // routes for deliveries // signed webhooks to receivers of events

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use regatta_api::view::BridgeView;
use regatta_core::conversation::Service;
use regatta_core::ids::AgentName;
use regatta_engine::Engine;
use tokio::task::JoinHandle;

use config::{BridgeInstance, BridgeRegistry, Credentials, DisabledBridge};
use http::HttpClient;
use intake::{BridgeDirectory, Health, Intake};
use rate_limit::CallLimiter;
use service::{Inbound, Outbound};
use webhook_routes::{DeliveryRoute, DeliveryRoutes};

/// All bridges while they run.
pub struct Bridges {
    registry: Arc<BridgeRegistry>,
    directory: Arc<BridgeDirectory>,
    tasks: Vec<JoinHandle<()>>,
    routes: DeliveryRoutes,
    engine: Engine,
}

impl Bridges {
    /// Starts every complete instance. Must be called within a runtime. Journals of the calls sent
    /// are kept in `data`, so that the services' limits hold across restarts.
    pub fn start(
        engine: Engine,
        registry: BridgeRegistry,
        data: Option<&Path>,
    ) -> Result<Bridges, String> {
        let (registry, people) = (Arc::new(registry), Arc::new(BridgeDirectory::default()));
        let (mut tasks, mut routes) = (Vec::new(), DeliveryRoutes::new());
        let http = HttpClient::new()?;
        for bridge_instance in &registry.instances {
            let desk = Intake {
                agent: bridge_instance.agent.clone(),
                service: bridge_instance.service,
                engine: engine.clone(),
                registry: registry.clone(),
                directory: people.clone(),
            };
            let (inbound, outbound) = create_sides(bridge_instance, &desk, &http)?;
            let github = |other: &&BridgeInstance| {
                other.agent == bridge_instance.agent && other.service == Service::Github
            };
            let has_github = registry
                .instances
                .iter()
                .any(|bridge_instance| github(&bridge_instance));
            if let Some(route) = &bridge_instance.route {
                routes.insert(
                    route.clone(),
                    DeliveryRoute {
                        intake: desk.clone(),
                        inbound: inbound.clone(),
                    },
                );
            }
            let buckets = data.map_or_else(CallLimiter::default, |data| {
                open_call_limiter(data, bridge_instance)
            });
            tasks.push(tokio::spawn(outbox::run(
                desk.clone(),
                outbound,
                buckets,
                has_github,
            )));
            tasks.push(tokio::spawn(async move { inbound.run(&desk).await }));
        }
        for off in &registry.disabled {
            tracing::warn!(
                "the bridge {}:{} is off: {}",
                off.service,
                off.agent,
                off.why
            );
        }
        Ok(Bridges {
            registry,
            directory: people,
            tasks,
            routes,
            engine,
        })
    }

    /// Starts sending events to every `[[bridges.webhook]]`, beginning after the last event sent.
    /// That position is kept in `data`.
    pub fn send_webhooks(&mut self, data: &Path) -> Result<(), String> {
        // Read the revision now and not when the task first runs, so that events in between are
        // sent too.
        let (http, from) = (HttpClient::new()?, self.engine.board().revision);
        for webhook_receiver in &self.registry.receivers {
            let task = outgoing_webhook::run(
                self.engine.clone(),
                http.clone(),
                webhook_receiver.clone(),
                data.to_owned(),
                from,
            );
            self.tasks.push(tokio::spawn(task));
        }
        Ok(())
    }

    /// Returns the router that receives deliveries.
    pub fn router(&self) -> Router {
        webhook_routes::router(self.routes.clone())
    }

    /// Returns all pairs of agent and service, on or off.
    pub fn list(&self) -> Vec<BridgeView> {
        let board = self.engine.board();
        let on = self.registry.instances.iter().map(|bridge_instance| {
            let own = || {
                board.conversations.values().filter(|other| {
                    other.agent == bridge_instance.agent && other.service == bridge_instance.service
                })
            };
            BridgeView {
                name: format!("{}:{}", bridge_instance.service, bridge_instance.agent),
                agent: bridge_instance.agent.clone(),
                service: bridge_instance.service,
                route: bridge_instance.route.clone(),
                off: None,
                warning: bridge_instance.warning.clone().or_else(|| {
                    let known = board.agents.contains_key(&bridge_instance.agent);
                    (!known).then(|| {
                        format!(
                            "there is no agent {0} yet: regatta agent add {0}",
                            bridge_instance.agent
                        )
                    })
                }),
                health: self
                    .directory
                    .health(bridge_instance.service, &bridge_instance.agent),
                dead: own()
                    .flat_map(|conversation| &conversation.posts)
                    .filter(|thread_post| thread_post.failure.is_some())
                    .count(),
                waiting: own()
                    .flat_map(|conversation| &conversation.posts)
                    .filter(|thread_post| thread_post.is_due())
                    .count(),
            }
        });
        let off = self.registry.disabled.iter().map(
            |DisabledBridge {
                 agent,
                 service,
                 why,
                 ..
             }| BridgeView {
                name: format!("{service}:{agent}"),
                agent: agent.clone(),
                service: *service,
                route: None,
                off: Some(why.clone()),
                warning: None,
                health: Health::default(),
                dead: 0,
                waiting: 0,
            },
        );
        on.chain(off).collect()
    }

    /// Pauses or resumes an agent's bridge to one service, or to all. Returns the number of
    /// bridges.
    pub fn set_paused(&self, agent: &AgentName, service: Option<Service>, paused: bool) -> usize {
        let found = self
            .registry
            .instances
            .iter()
            .filter(|bridge_instance| bridge_instance.agent == *agent);
        let found = found.filter(|bridge_instance| {
            service.is_none_or(|service| bridge_instance.service == service)
        });
        let desk = |bridge_instance: &BridgeInstance| Intake {
            agent: bridge_instance.agent.clone(),
            service: bridge_instance.service,
            engine: self.engine.clone(),
            registry: self.registry.clone(),
            directory: self.directory.clone(),
        };
        found
            .map(|bridge_instance| {
                desk(bridge_instance).update_health(|bridge_health| bridge_health.paused = paused)
            })
            .count()
    }
}

impl Drop for Bridges {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Returns the limits with the calls that an instance sent in an earlier run.
fn open_call_limiter(data: &Path, bridge_instance: &BridgeInstance) -> CallLimiter {
    let directory = data.join("bridges");
    let path = directory.join(format!(
        "{}-{}.sent",
        bridge_instance.service,
        bridge_instance.agent.as_str().replace('/', "+")
    ));
    let kept =
        std::fs::create_dir_all(&directory).and_then(|()| CallLimiter::open(&path, Instant::now()));
    kept.unwrap_or_else(|error| {
        tracing::warn!(
            "could not read the send journal of {}: {}: {error}",
            bridge_instance.agent,
            path.display()
        );
        CallLimiter::default()
    })
}

type InstanceSides = (Arc<dyn Inbound>, Arc<dyn Outbound>);

/// Creates the two sides of an instance.
fn create_sides(
    bridge_instance: &BridgeInstance,
    desk: &Intake,
    http: &HttpClient,
) -> Result<InstanceSides, String> {
    Ok(match &bridge_instance.credentials {
        Credentials::Slack {
            bot_token,
            app_token,
            signing_secret,
        } => {
            let api = Arc::new(slack::api::SlackApi::new(
                http.clone(),
                desk.url(),
                bot_token.clone(),
                app_token.clone(),
            ));
            let inbound = slack::inbound::SlackInbound::new(
                api.clone(),
                signing_secret.clone(),
                app_token.is_some(),
            );
            (
                Arc::new(inbound),
                Arc::new(slack::outbound::SlackOutbound::new(api)),
            )
        }
        Credentials::Linear {
            access_token,
            agent_id,
            webhook_secret,
        } => {
            let api = Arc::new(linear::api::LinearApi::new(
                http.clone(),
                desk.url(),
                access_token.clone(),
            ));
            let inbound = linear::inbound::LinearInbound::new(
                api.clone(),
                agent_id.clone(),
                webhook_secret.clone(),
            );
            (
                Arc::new(inbound),
                Arc::new(linear::outbound::LinearOutbound::new(api, desk.clone())),
            )
        }
        Credentials::Telegram { bot_token } => {
            let api = Arc::new(telegram::api::TelegramApi::new(
                http.clone(),
                desk.url(),
                bot_token.clone(),
            ));
            (
                Arc::new(telegram::inbound::TelegramInbound::new(api.clone())),
                Arc::new(telegram::outbound::TelegramOutbound::new(api)),
            )
        }
        Credentials::Github {
            app_id,
            private_key,
            webhook_secret,
        } => {
            let api = Arc::new(github::api::GithubApi::new(
                http.clone(),
                desk.url(),
                app_id.clone(),
                private_key,
            ));
            let inbound = github::inbound::GithubInbound::new(api.clone(), webhook_secret.clone());
            (
                Arc::new(inbound),
                Arc::new(github::outbound::GithubOutbound::new(api)),
            )
        }
    })
}
