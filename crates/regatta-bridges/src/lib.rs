//! Bridges connect agents to Slack, GitHub, Linear and Telegram. Each agent has its own identity in
//! each service.
//!
//! [`config`] reads the connections of agents to services, with their credentials. Each connection
//! of one agent to one service is a bridge. Its inbound part passes the service's events to the
//! module [`intake`], which turns the events into commands to the engine. The module [`outbox`]
//! shows the agent's posts in the service. Each service has a folder with the code that implements
//! the two traits of [`service`].
//!
//! This crate decides nothing about the work itself. It submits commands to the engine, and the
//! engine accepts or refuses each command. What the bridges did themselves, such as showing a post,
//! they report through a [`BridgeReportSender`], which takes no other reports.

pub mod config; // agents and credentials
mod intake; // turns events into commands
mod rate_limit; // rate limits
mod render; // the text of posts
mod service; // the port of a service
pub mod signature; // signatures of deliveries

mod github;
mod http; // calls to a service
mod linear;
mod markdown; // Markdown of agents and people
mod outbox; // shows the due posts, in order and once each
mod outgoing_webhook; // signed webhooks to receivers of events
mod slack;
mod telegram;
mod webhook_routes; // routes for deliveries

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use regatta_api::view::BridgeView;
use regatta_core::conversation::Service;
use regatta_core::ids::AgentName;
use regatta_engine::{BridgeReportSender, Engine};
use tokio::task::JoinHandle;

use config::{BridgeInstance, BridgeRegistry, Credentials, DisabledBridge};
use http::HttpClient;
use intake::{BridgeDirectory, Health, Intake};
use rate_limit::CallLimiter;
use service::{Inbound, Outbound};
use webhook_routes::{DeliveryRoute, DeliveryRoutes};

/// The running bridges of a daemon. Dropping this value stops the bridges.
pub struct Bridges {
    registry: Arc<BridgeRegistry>,
    directory: Arc<BridgeDirectory>,
    tasks: Vec<JoinHandle<()>>,
    routes: DeliveryRoutes,
    engine: Engine,
    reports: BridgeReportSender,
}

impl Bridges {
    /// Starts every bridge that has all its credentials. Must be called within an async runtime.
    /// The calls of each bridge are recorded in the directory `data`, so that calls from before a
    /// restart also count against the rate limits of the services.
    pub fn start(
        engine: Engine,
        reports: BridgeReportSender,
        registry: BridgeRegistry,
        data: Option<&Path>,
    ) -> Result<Bridges, String> {
        let (registry, directory) = (Arc::new(registry), Arc::new(BridgeDirectory::default()));
        let (mut tasks, mut routes) = (Vec::new(), DeliveryRoutes::new());
        let http = HttpClient::new()?;
        for instance in &registry.instances {
            let intake = Intake {
                agent: instance.agent.clone(),
                service: instance.service,
                engine: engine.clone(),
                reports: reports.clone(),
                registry: registry.clone(),
                directory: directory.clone(),
            };
            let (inbound, outbound) = create_sides(instance, &intake, &http)?;
            let is_github = |other: &&BridgeInstance| {
                other.agent == instance.agent && other.service == Service::Github
            };
            let has_github = registry
                .instances
                .iter()
                .any(|instance| is_github(&instance));
            if let Some(route) = &instance.route {
                routes.insert(
                    route.clone(),
                    DeliveryRoute {
                        intake: intake.clone(),
                        inbound: inbound.clone(),
                    },
                );
            }
            let limiter = data.map_or_else(CallLimiter::default, |data| {
                open_call_limiter(data, instance)
            });
            tasks.push(tokio::spawn(outbox::run(
                intake.clone(),
                outbound,
                limiter,
                has_github,
            )));
            tasks.push(tokio::spawn(async move { inbound.run(&intake).await }));
        }
        for disabled in &registry.disabled {
            tracing::warn!(
                "the bridge to {} for the agent {} was not started: {}",
                disabled.service,
                disabled.agent,
                disabled.why
            );
        }
        Ok(Bridges {
            registry,
            directory,
            tasks,
            routes,
            engine,
            reports,
        })
    }

    /// Starts sending events to every receiver `[[bridges.webhook]]`. For each receiver, begins
    /// after the last event that was sent to this receiver. The position of this event is stored in
    /// the directory `data`.
    pub fn send_webhooks(&mut self, data: &Path) -> Result<(), String> {
        // Read the revision (the number of the newest event) now and not when the task first runs,
        // because events that happen in between must also be sent.
        let (http, revision) = (HttpClient::new()?, self.engine.board().revision);
        for receiver in &self.registry.receivers {
            let task = outgoing_webhook::run(
                self.engine.clone(),
                http.clone(),
                receiver.clone(),
                data.to_owned(),
                revision,
            );
            self.tasks.push(tokio::spawn(task));
        }
        Ok(())
    }

    /// Returns the HTTP router for webhook deliveries of the services.
    pub fn router(&self) -> Router {
        webhook_routes::router(self.routes.clone())
    }

    /// Returns all configured bridges. A bridge that does not run is listed with the reason.
    pub fn list(&self) -> Vec<BridgeView> {
        let board = self.engine.board();
        let on = self.registry.instances.iter().map(|instance| {
            let own_conversations = || {
                board.conversations.values().filter(|other| {
                    other.agent == instance.agent && other.service == instance.service
                })
            };
            BridgeView {
                name: format!("{}:{}", instance.service, instance.agent),
                agent: instance.agent.clone(),
                service: instance.service,
                route: instance.route.clone(),
                off: None,
                warning: instance.warning.clone().or_else(|| {
                    let is_known = board.agents.contains_key(&instance.agent);
                    (!is_known).then(|| {
                        format!(
                            "there is no agent {0} yet: regatta agent add {0}",
                            instance.agent
                        )
                    })
                }),
                health: self.directory.health(instance.service, &instance.agent),
                dead: own_conversations()
                    .flat_map(|conversation| &conversation.posts)
                    .filter(|post| post.failure.is_some())
                    .count(),
                waiting: own_conversations()
                    .flat_map(|conversation| &conversation.posts)
                    .filter(|post| post.is_due())
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

    /// Pauses or resumes an agent's bridge to one service, or to all services. Returns the number
    /// of bridges that were paused or resumed.
    pub fn set_paused(
        &self,
        agent: &AgentName,
        service: Option<Service>,
        is_paused: bool,
    ) -> usize {
        let instances = self
            .registry
            .instances
            .iter()
            .filter(|instance| instance.agent == *agent);
        let instances =
            instances.filter(|instance| service.is_none_or(|service| instance.service == service));
        let intake = |instance: &BridgeInstance| Intake {
            agent: instance.agent.clone(),
            service: instance.service,
            engine: self.engine.clone(),
            reports: self.reports.clone(),
            registry: self.registry.clone(),
            directory: self.directory.clone(),
        };
        instances
            .map(|instance| intake(instance).update_health(|health| health.paused = is_paused))
            .count()
    }
}

impl Drop for Bridges {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Returns the rate limiter of a bridge. The limiter also counts the calls that the bridge made
/// before a restart.
fn open_call_limiter(data: &Path, instance: &BridgeInstance) -> CallLimiter {
    let directory = data.join("bridges");
    let path = directory.join(format!(
        "{}-{}.sent",
        instance.service,
        instance.agent.as_str().replace('/', "+")
    ));
    let opened =
        std::fs::create_dir_all(&directory).and_then(|()| CallLimiter::open(&path, Instant::now()));
    opened.unwrap_or_else(|error| {
        tracing::warn!(
            "could not read the recent calls of the agent {} from {}, so these calls do not count \
             against the rate limits: {error}",
            instance.agent,
            path.display()
        );
        CallLimiter::default()
    })
}

type InstanceSides = (Arc<dyn Inbound>, Arc<dyn Outbound>);

/// Creates the two parts of a bridge: the part that receives events and the part that posts
/// messages.
fn create_sides(
    instance: &BridgeInstance,
    intake: &Intake,
    http: &HttpClient,
) -> Result<InstanceSides, String> {
    Ok(match &instance.credentials {
        Credentials::Slack {
            bot_token,
            app_token,
            signing_secret,
        } => {
            let api = Arc::new(slack::api::SlackApi::new(
                http.clone(),
                intake.url(),
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
                intake.url(),
                access_token.clone(),
            ));
            let inbound = linear::inbound::LinearInbound::new(
                api.clone(),
                agent_id.clone(),
                webhook_secret.clone(),
            );
            (
                Arc::new(inbound),
                Arc::new(linear::outbound::LinearOutbound::new(api, intake.clone())),
            )
        }
        Credentials::Telegram { bot_token } => {
            let api = Arc::new(telegram::api::TelegramApi::new(
                http.clone(),
                intake.url(),
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
                intake.url(),
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
