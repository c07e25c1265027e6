//! Tests of the GitHub bridge, with a strict double of the service and an engine with fake ports.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod conversations;
mod deliveries;
mod keys;
mod pulls;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use regatta_api::view::BridgeHealthView as Health;
use regatta_bridges::config::{AgentEntry, BridgesConfig, Secret};
use regatta_bridges::{Bridges, config, signature};
use regatta_core::agent_protocol::{
    AgentEvent, PermissionOption, PermissionOptionKind, RequestContent, StopReason, ToolCall,
    ToolKind,
};
use regatta_core::board::Board;
use regatta_core::command::{Actor, Command, Request};
use regatta_core::conversation::Conversation;
use regatta_core::ids::{AgentName, BranchName, ProjectName};
use regatta_core::{agent, project};
use regatta_engine::ports::agents::Exit;
use regatta_engine::timer::MachineClock;
use regatta_engine::{Engine, EngineSettings, Ports, RedactFn, ReportSender, StartedEngine};
use regatta_testkit::crash_points::{EngineLife, StoreInLife};
use regatta_testkit::fake_agents::{FakeAgents, FakeProgram};
use regatta_testkit::fake_git::FakeGit;
use regatta_testkit::fake_store::FakeStore;
use regatta_testkit::services::github::{GitHub, GitHubApp, GitHubComment};
use regatta_testkit::services::{DoubleView, TimeScale, github};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

type GithubView<'a> = DoubleView<'a, github::GitHubState>;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const REPO: &str = "/nowhere/shop";
/// The only secret that the redactor of this test knows.
const SECRET: &str = "hunter2secret";
const SHOP: &str = "acme/shop";

/// The surroundings of Regatta, which outlive its restarts.
struct World {
    github: GitHub,
    github_apps: Vec<GitHubApp>,
    store: FakeStore,
    git: FakeGit,
    agents: FakeAgents,
    config: BridgesConfig,
    settings: project::ProjectSettings,
    key: Option<String>,
    webhook_secret: Option<Option<String>>,
}

/// A running Regatta.
struct RunningRegatta {
    engine: Engine,
    reports: ReportSender,
    bridges: Bridges,
    server: JoinHandle<()>,
    url: String,
    life: EngineLife,
}

impl Drop for RunningRegatta {
    fn drop(&mut self) {
        self.server.abort();
        self.life.end();
    }
}

/// Acts as the usual agent program, which reports progress, waits if the prompt asks for it, and
/// answers.
fn run_agent(program: &FakeProgram) -> Exit {
    let prompt = message_in_prompt(program);
    program.emit(AgentEvent::Started {
        session: Some(format!("s-{}", program.task())),
        model: Some("m".into()),
    });
    program.emit(AgentEvent::TurnStarted { n: 0 });
    program.emit(AgentEvent::Message {
        text: "Looking. Thanks @ann".into(),
    });
    if prompt.contains("and wait")
        && let Err(exit) = program.wait_for("go")
    {
        return exit;
    }
    if prompt.contains("ask first") {
        let (kind, paths) = (ToolKind::Execute, vec!["/etc/hosts".to_owned()]);
        let tool = ToolCall {
            kind,
            paths,
            command: Some("npm install zod".into()),
            ..ToolCall::default()
        };
        let options = vec![PermissionOption {
            id: "y".into(),
            name: "Yes".into(),
            kind: PermissionOptionKind::AllowOnce,
        }];
        program.emit(AgentEvent::RequestMade(
            regatta_core::agent_protocol::AgentRequest {
                id: "7".into(),
                content: RequestContent::Permission { tool, options },
            },
        ));
        let input = program.wait_for_input(|input| input.answers.iter().any(|(id, _)| id == "7"));
        let Ok(input) = input else {
            return Exit::Signal(15);
        };
        program.emit(AgentEvent::Message {
            text: format!("{:?}", input.answers),
        });
    }
    if prompt.contains("change") {
        program.append("README", &format!("by {}\n", program.task()));
    }
    if prompt.contains("leak") {
        let detail = format!("Done. The password is {SECRET}.");
        program.emit(AgentEvent::TurnEnded {
            stop: StopReason::EndTurn,
            class: None,
            detail,
        });
        return Exit::Code(0);
    }
    let detail =
        "Done, @ann.\n\n| a | b |\n|---|---|\n| 1 | `@x` |\n\n```rust\n// @ann\n```".to_owned();
    program.emit(AgentEvent::TurnEnded {
        stop: StopReason::EndTurn,
        class: None,
        detail,
    });
    Exit::Code(0)
}

/// Returns the message of this turn from the prompt.
fn message_in_prompt(program: &FakeProgram) -> String {
    let prompt = &program.launch().prompt;
    let message = prompt
        .rsplit_once("says in the thread:\n```text\n")
        .expect("a prompt contains the message")
        .1;
    message.split("\n```").next().unwrap_or_default().to_owned()
}

impl World {
    async fn new() -> World {
        let github = GitHub::start().await;
        let apps = vec![github.add_app("claude-bot"), github.add_app("codex-bot")];
        github.add_repo(SHOP, &["claude-bot", "codex-bot"]);
        github.add_person("ann", SHOP, "write");
        github.add_person("eve", SHOP, "read");
        let events = [
            "issues",
            "issue_comment",
            "pull_request",
            "pull_request_review",
            "pull_request_review_comment",
            "check_run",
        ];
        github.subscribe("claude-bot", &events);
        github.subscribe("codex-bot", &events);
        let git = FakeGit::new();
        git.create_repo(Path::new(REPO), &[("README", "shop\n")]);
        let agents = FakeAgents::new(&git, run_agent);
        let config = BridgesConfig {
            url: BTreeMap::from([("github".to_owned(), github.base_url())]),
            clock: 30.0,
            ..BridgesConfig::default()
        };
        github.set_time_scale(TimeScale::with_faster_limits(30.0));
        let (store, settings) = (FakeStore::new(), project::ProjectSettings::default());
        World {
            github,
            github_apps: apps,
            store,
            git,
            agents,
            config,
            settings,
            key: None,
            webhook_secret: None,
        }
    }

    /// Starts Regatta, and gives GitHub the address of its routes.
    async fn start(&self) -> RunningRegatta {
        let life = EngineLife::new();
        let ports = Ports {
            store: Box::new(StoreInLife::new(&life, self.store.clone())),
            git: Arc::new(self.git.with_life(&life)),
            agents: Arc::new(self.agents.with_life(&life)),
            clock: Arc::new(MachineClock),
        };
        let redact = RedactFn(Arc::new(|text| text.replace(SECRET, "[redacted]")));
        let settings = EngineSettings {
            stop_grace: Some(Duration::from_millis(300)),
            redactor: redact,
            ..EngineSettings::default()
        };
        let start = tokio::task::spawn_blocking(move || Engine::start(ports, settings));
        let StartedEngine {
            engine, reports, ..
        } = start.await.unwrap().unwrap();
        if engine.board().projects.is_empty() {
            self.set_up_board(&engine).await;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        self.github
            .set_webhook_url("claude-bot", &format!("{url}/webhooks/github"));
        self.github
            .set_webhook_url("codex-bot", &format!("{url}/webhooks/github/codex"));
        let bridges =
            Bridges::start(engine.clone(), reports.for_bridges(), self.registry(), None).unwrap();
        let router = bridges.router();
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        RunningRegatta {
            engine,
            reports,
            bridges,
            server,
            url,
            life,
        }
    }

    async fn set_up_board(&self, engine: &Engine) {
        let add = project::AddProject {
            name: ProjectName::new("shop").unwrap(),
            location: REPO.into(),
            trunk: BranchName::new("main").unwrap(),
            validation: vec![],
            validation_timeout_ms: 60_000,
            settings: self.settings.clone(),
        };
        submit(engine, Command::AddProject(add)).await;
        for name in ["claude", "codex"] {
            let register = agent::RegisterAgent {
                name: AgentName::new(name).unwrap(),
                runtime: agent::Runtime::Acp {
                    argv: vec!["talks".into()],
                },
                role: agent::Role::Worker,
                provider: Some("acme".into()),
                profile: agent::Profile::default(),
                description: String::new(),
                max_tasks: 5,
            };
            submit(engine, Command::RegisterAgent(register)).await;
        }
    }

    fn registry(&self) -> config::BridgeRegistry {
        let entry = |default| AgentEntry {
            command: Some("talks".into()),
            default,
            ..AgentEntry::default()
        };
        let agents = [
            ("claude".to_owned(), entry(true)),
            ("codex".to_owned(), entry(false)),
        ];
        let variable = |name: &str| {
            let (setting, app) = match name.strip_suffix("__CODEX") {
                Some(setting) => (setting, &self.github_apps[1]),
                None => (name, &self.github_apps[0]),
            };
            Ok(match setting {
                "GITHUB_APP_ID" => Some(app.id.to_string()),
                "GITHUB_PRIVATE_KEY" => {
                    Some(self.key.clone().unwrap_or_else(|| app.private_key.clone()))
                }
                "GITHUB_WEBHOOK_SECRET" => self
                    .webhook_secret
                    .clone()
                    .unwrap_or_else(|| Some(app.webhook_secret.clone())),
                _ => None,
            })
        };
        config::read_registry(
            config::BridgeSettings::new(&agents, self.config.clone()),
            &variable,
        )
    }

    /// Waits for a comment of an app for which `holds` is true.
    async fn wait_for_comment(
        &self,
        app: &str,
        number: u64,
        holds: impl Fn(&GitHubComment) -> bool,
    ) -> GitHubComment {
        let find_comment = |view: &GithubView<'_>| {
            let own_comments = view
                .comments(SHOP, number)
                .iter()
                .filter(|comment| comment.app.as_deref() == Some(app));
            own_comments.clone().find(|comment| holds(comment)).cloned()
        };
        self.github.wait_for_some(find_comment, TEST_TIMEOUT).await
    }

    fn own_comments(&self, app: &str, number: u64) -> Vec<GitHubComment> {
        let mut comments = self.github.comments(SHOP, number);
        comments.retain(|comment| comment.app.as_deref() == Some(app));
        comments
    }
}

async fn submit(engine: &Engine, command: Command) {
    engine
        .submit_async(Request {
            by: Actor::Regatta,
            key: None,
            command,
        })
        .await
        .unwrap();
}

impl RunningRegatta {
    /// Waits until `look` finds something on the board.
    async fn wait_for<T>(&self, look: impl Fn(&Board) -> Option<T>) -> T {
        let mut changes = self.engine.watch_board();
        let wait = async {
            loop {
                let board = changes.borrow_and_update().clone();
                if let Some(found) = look(&board) {
                    return found;
                }
                changes.changed().await.expect("the engine runs");
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, wait)
            .await
            .unwrap_or_else(|_| {
                panic!(
                    "timed out waiting for the board: {:#?}\n{:?}",
                    self.engine.board().conversations,
                    self.bridges.list()
                )
            })
    }

    fn conversations(&self) -> Vec<Arc<Conversation>> {
        self.engine
            .board()
            .conversations
            .values()
            .cloned()
            .collect()
    }

    /// Waits until `look` accepts the health of an agent's bridge. Polls, because changes of the
    /// health are not announced.
    async fn wait_for_health<T>(&self, agent: &str, look: impl Fn(&Health) -> Option<T>) -> T {
        let wait = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(10));
            loop {
                let found = self
                    .bridges
                    .list()
                    .into_iter()
                    .find(|bridge| bridge.agent.as_str() == agent);
                if let Some(found) = found.and_then(|bridge| look(&bridge.health)) {
                    return found;
                }
                ticks.tick().await;
            }
        };
        let found = tokio::time::timeout(TEST_TIMEOUT, wait).await;
        found.unwrap_or_else(|_| {
            panic!(
                "timed out waiting for the health of {agent}: {:#?}",
                self.bridges.list()
            )
        })
    }

    /// Waits until every due post is shown.
    async fn wait_until_all_shown(&self) {
        self.wait_for(|board| {
            let open = board.conversations.values().any(|conversation| {
                conversation.current_turn().is_some()
                    || conversation.unshown_posts().next().is_some()
            });
            (!open).then_some(())
        })
        .await;
    }

    /// Posts a delivery that the test has signed itself. Returns the status of the answer.
    async fn post_delivery(
        &self,
        path: &str,
        secret: &str,
        (event, guid): (&str, &str),
        body: &str,
    ) -> u16 {
        let signature = signature::hex_signature(&Secret::new(secret), &[body.as_bytes()]);
        let request = reqwest::Client::new()
            .post(format!("{}{path}", self.url))
            .header("x-github-event", event)
            .header("x-github-delivery", guid)
            .header("x-hub-signature-256", format!("sha256={signature}"))
            .body(body.to_owned());
        request.send().await.unwrap().status().as_u16()
    }
}
