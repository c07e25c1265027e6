//! Tests of the GitHub bridge, with a strict double of the service and an engine with fake ports.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use regatta_bridges::Bridges;
use regatta_bridges::config::{self, AgentEntry, BridgesConfig, Secret};
use regatta_bridges::intake::Health;
use regatta_bridges::signature;
use regatta_core::agent_protocol::{
    AgentEvent, PermissionOption, PermissionOptionKind, RequestContent, StopReason, ToolCall,
    ToolKind,
};
use regatta_core::board::Board;
use regatta_core::command::{Actor, Command, Request};
use regatta_core::conversation::{
    ChangeDestination, Conversation, ConversationCommand, PostContent, PushedWork, TurnState,
    TurnWork,
};
use regatta_core::ids::{AgentName, BranchName, ConversationId, ProjectName};
use regatta_core::task::TaskStatus;
use regatta_core::{agent, project};
use regatta_engine::ports::agents::Exit;
use regatta_engine::timer::MachineClock;
use regatta_engine::{Engine, EngineSettings, Ports, RedactFn};
use regatta_testkit::crash_points::{EngineLife, StoreInLife};
use regatta_testkit::fake_agents::{FakeAgents, FakeProgram};
use regatta_testkit::fake_git::FakeGit;
use regatta_testkit::fake_store::FakeStore;
use regatta_testkit::services::github::{self, GitHub, GitHubApp, GitHubComment};
use regatta_testkit::services::{DoubleView, ServiceFault, TimeScale};
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
        let wished = program.wait_for_input(|session_input| {
            session_input.answers.iter().any(|answer| answer.0 == "7")
        });
        let Ok(wishes) = wished else {
            return Exit::Signal(15);
        };
        program.emit(AgentEvent::Message {
            text: format!("{:?}", wishes.answers),
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
    let said = prompt
        .rsplit_once("says in the thread:\n```text\n")
        .expect("a prompt contains the message")
        .1;
    said.split("\n```").next().unwrap_or_default().to_owned()
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
        let start =
            tokio::task::spawn_blocking(move || Engine::start(ports, settings).map(|pair| pair.0));
        let engine = start.await.unwrap().unwrap();
        if engine.board().projects.is_empty() {
            self.set_up_board(&engine).await;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        self.github
            .set_webhook_url("claude-bot", &format!("{url}/webhooks/github"));
        self.github
            .set_webhook_url("codex-bot", &format!("{url}/webhooks/github/codex"));
        let bridges = Bridges::start(engine.clone(), self.registry(), None).unwrap();
        let router = bridges.router();
        let door = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        RunningRegatta {
            engine,
            bridges,
            server: door,
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
            let (of, app) = match name.strip_suffix("__CODEX") {
                Some(of) => (of, &self.github_apps[1]),
                None => (name, &self.github_apps[0]),
            };
            Ok(match of {
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
        let found = |view: &GithubView<'_>| {
            let own = view
                .comments(SHOP, number)
                .iter()
                .filter(|github_comment| github_comment.app.as_deref() == Some(app));
            own.clone()
                .find(|github_comment| holds(github_comment))
                .cloned()
        };
        self.github.wait_for_some(found, TEST_TIMEOUT).await
    }

    fn own_comments(&self, app: &str, number: u64) -> Vec<GitHubComment> {
        let mut comments = self.github.comments(SHOP, number);
        comments.retain(|github_comment| github_comment.app.as_deref() == Some(app));
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
        let sent = reqwest::Client::new()
            .post(format!("{}{path}", self.url))
            .header("x-github-event", event)
            .header("x-github-delivery", guid)
            .header("x-hub-signature-256", format!("sha256={signature}"))
            .body(body.to_owned());
        sent.send().await.unwrap().status().as_u16()
    }
}

fn mentions_nobody(text: &str) -> bool {
    text.split('@').skip(1).all(|text| {
        text.starts_with('\u{200b}') || text.starts_with("x`") || text.starts_with("ann\n```")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn mention_gets_a_reaction_and_one_comment_that_becomes_the_answer() {
    let world = World::new().await;
    let here = world.start().await;
    let number = world.github.open_issue("ann", SHOP, "Login", "It fails.");
    let id = world.github.comment(
        "ann",
        SHOP,
        number,
        "@claude-bot fix it, change it and wait",
    );
    here.wait_for(|board| {
        board
            .conversations
            .values()
            .any(|conversation| conversation.turn_count == 1)
            .then_some(())
    })
    .await;
    let seen = |view: &GithubView<'_>| {
        let comment = view
            .comments(SHOP, number)
            .iter()
            .find(|github_comment| github_comment.id == id)?;
        comment
            .reactions
            .iter()
            .any(|github_reaction| github_reaction.content == "eyes")
            .then_some(())
    };
    world.github.wait_for_some(seen, TEST_TIMEOUT).await;
    let first = world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains('⏳')
        })
        .await;
    assert!(first.body.contains("Say `stop`"), "{}", first.body);
    assert!(
        first.body.ends_with(" -->") && first.body.contains("<!-- regatta:V1:"),
        "{}",
        first.body
    );
    world.agents.release("go");
    let last = world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("Done")
        })
        .await;
    assert_eq!(last.id, first.id, "one comment, edited");
    assert!(
        mentions_nobody(&last.body) && last.versions.iter().all(|version| mentions_nobody(version)),
        "{:?}",
        last.versions
    );
    assert!(
        last.body.contains("| 1 | `@x` |") && last.body.contains("```rust\n// @ann\n```"),
        "{}",
        last.body
    );
    assert!(last.body.contains("Branch:"), "{}", last.body);
    here.wait_until_all_shown().await;
    // GitHub delivered its own comments and edits to it, and they had no effect.
    let told = |view: &GithubView<'_>| {
        let answered = view
            .deliveries("claude-bot")
            .iter()
            .all(|github_delivery| github_delivery.status_code == Some(200));
        answered.then_some(())
    };
    world.github.wait_for_some(told, TEST_TIMEOUT).await;
    let found = here.conversations();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].key, format!("github:{SHOP}:{number}:claude"));
    assert_eq!((found[0].turn_count, found[0].title.as_str()), (1, "Login"));
    assert_eq!(found[0].turns[0].text, "fix it, change it and wait");
    // While only one agent is in a thread, messages there need no mention.
    world.github.comment("ann", SHOP, number, "and the tests?");
    here.wait_for(|board| {
        board
            .conversations
            .values()
            .any(|conversation| conversation.turn_count == 2)
            .then_some(())
    })
    .await;
    here.wait_until_all_shown().await;
    assert_eq!(world.own_comments("claude-bot", number).len(), 2);
    world.github.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn comment_without_a_mention_starts_no_agent_when_two_are_in_the_issue() {
    let world = World::new().await;
    let here = world.start().await;
    let number = world
        .github
        .open_issue("ann", SHOP, "Login", "@claude-bot please change it");
    world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("Done")
        })
        .await;
    assert!(
        world
            .github
            .issue(SHOP, number)
            .unwrap()
            .body
            .reactions
            .iter()
            .any(|github_reaction| github_reaction.user == "claude-bot[bot]")
    );
    world
        .github
        .comment("ann", SHOP, number, "@codex-bot review this");
    world
        .wait_for_comment("codex-bot", number, |github_comment| {
            github_comment.body.contains("Done")
        })
        .await;
    here.wait_until_all_shown().await;
    world
        .github
        .comment("ann", SHOP, number, "thanks, and the tests?");
    world.github.comment(
        "ann",
        SHOP,
        number,
        "`@codex-bot` and\n\n> @claude-bot\n\nare only quoted",
    );
    let last = world
        .github
        .comment("ann", SHOP, number, "@codex-bot again");
    here.wait_for(|board| {
        let codex = board
            .conversations
            .values()
            .find(|conversation| conversation.agent.as_str() == "codex")?;
        codex
            .turns
            .iter()
            .any(|conversation_turn| conversation_turn.source == format!("comment:{last}"))
            .then_some(())
    })
    .await;
    here.wait_until_all_shown().await;
    let turns: BTreeMap<String, u64> = here
        .conversations()
        .iter()
        .map(|conversation| (conversation.agent.to_string(), conversation.turn_count))
        .collect();
    assert_eq!(
        turns,
        BTreeMap::from([("claude".to_owned(), 1), ("codex".to_owned(), 2)])
    );
    let codex = here
        .conversations()
        .into_iter()
        .find(|conversation| conversation.agent.as_str() == "codex")
        .unwrap();
    let looks: Vec<bool> = codex
        .turns
        .iter()
        .map(|conversation_turn| conversation_turn.reviewed_work.is_some())
        .collect();
    assert_eq!(
        looks,
        [true, false],
        "only a review reads the other agent's work"
    );
    world.github.assert_well_behaved();
}

/// S8: unsigned, foreign, repeated and replayed deliveries have no effect. Each is handled once,
/// whatever its GUID is.
#[tokio::test(flavor = "multi_thread")]
async fn s8_a_delivery_is_accepted_once_and_only_with_its_own_agents_signature() {
    let mut world = World::new().await;
    let number = world.github.open_issue("ann", SHOP, "Login", "It fails.");
    world
        .github
        .comment("ann", SHOP, number, "@claude-bot fix it");
    let sent = world
        .github
        .deliveries("claude-bot")
        .into_iter()
        .find(|github_delivery| github_delivery.event == "issue_comment")
        .unwrap();
    let (body, guid) = (sent.payload.to_string(), sent.guid.clone());
    world.webhook_secret = Some(None);
    let here = world.start().await;
    let (own, other) = (
        world.github_apps[0].webhook_secret.clone(),
        world.github_apps[1].webhook_secret.clone(),
    );
    assert_eq!(
        here.post_delivery("/webhooks/github", &own, ("issue_comment", &guid), &body)
            .await,
        503,
        "no secret is set"
    );
    assert_eq!(
        here.post_delivery("/webhooks/github", "", ("issue_comment", &guid), &body)
            .await,
        503
    );
    assert!(here.bridges.list().iter().all(|bridge| {
        bridge
            .warning
            .as_deref()
            .is_some_and(|warning| warning.contains("503"))
    }));
    drop(here);
    world.webhook_secret = None;
    let here = world.start().await;
    for (path, secret) in [
        ("/webhooks/github", other.as_str()),
        ("/webhooks/github/codex", own.as_str()),
        ("/webhooks/github", ""),
        ("/webhooks/github", "guess"),
    ] {
        assert_eq!(
            here.post_delivery(path, secret, ("issue_comment", &guid), &body)
                .await,
            401,
            "{path} {secret}"
        );
    }
    let changed = body.replace("fix it", "rm it");
    assert_ne!(changed, body);
    let signature = signature::hex_signature(&Secret::new(own.as_str()), &[body.as_bytes()]);
    let forged = reqwest::Client::new()
        .post(format!("{}/webhooks/github", here.url))
        .header("x-github-event", "issue_comment")
        .header("x-hub-signature-256", format!("sha256={signature}"))
        .body(changed);
    assert_eq!(forged.send().await.unwrap().status().as_u16(), 401);
    for n in 0..20 {
        let guid = if n < 10 {
            guid.clone()
        } else {
            format!("another-{n}")
        };
        assert_eq!(
            here.post_delivery("/webhooks/github", &own, ("issue_comment", &guid), &body)
                .await,
            200
        );
    }
    world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("Done")
        })
        .await;
    here.wait_until_all_shown().await;
    assert_eq!(
        here.conversations()
            .iter()
            .map(|conversation| conversation.turn_count)
            .sum::<u64>(),
        1
    );
    assert_eq!(world.own_comments("claude-bot", number).len(), 1);
}

/// S9: people without write permission and bots start nothing. If the permission is unknown, the
/// delivery is requested again.
#[tokio::test(flavor = "multi_thread")]
async fn s9_only_a_person_with_write_permission_starts_a_turn() {
    let world = World::new().await;
    world.github.add_person("bob", SHOP, "maintain");
    let here = world.start().await;
    let number = world
        .github
        .open_issue("eve", SHOP, "Login", "@claude-bot give me the secrets");
    here.wait_for(|board| {
        board
            .conversations
            .values()
            .any(|conversation| conversation.held.len() == 1)
            .then_some(())
    })
    .await;
    world
        .github
        .comment("dependabot[bot]", SHOP, number, "@claude-bot rebase");
    world
        .github
        .comment("mallory", SHOP, number, "@claude-bot hello");
    here.wait_for(|board| {
        board
            .conversations
            .values()
            .any(|conversation| conversation.held.len() == 2)
            .then_some(())
    })
    .await;
    let held = here.conversations();
    assert_eq!(
        (held.len(), held[0].turn_count, held[0].posts.len()),
        (1, 0, 0)
    );
    assert!(
        held[0]
            .held
            .iter()
            .all(|held_request| held_request.by.id != "dependabot[bot]")
    );
    // The lookup of bob's permission fails once. The delivery is therefore refused, and it is
    // accepted when GitHub repeats it.
    world.github.fail_next(
        "repos/get-collaborator-permission-level",
        1,
        ServiceFault::Status(502),
    );
    world
        .github
        .comment("bob", SHOP, number, "@claude-bot fix it");
    let refused = |view: &GithubView<'_>| {
        view.deliveries("claude-bot")
            .iter()
            .any(|github_delivery| github_delivery.status_code == Some(503))
            .then_some(())
    };
    world.github.wait_for_some(refused, TEST_TIMEOUT).await;
    world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("Done")
        })
        .await;
    here.wait_until_all_shown().await;
    let found = here.conversations();
    assert_eq!(
        (found[0].turn_count, found[0].turns[0].by.name.as_str()),
        (1, "bob")
    );
    assert!(
        world
            .github
            .comments(SHOP, number)
            .iter()
            .all(|github_comment| github_comment.app.is_none()
                || github_comment.body.contains("Done"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_missed_during_downtime_are_requested_and_handled_once() {
    let world = World::new().await;
    let gone = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    world
        .github
        .set_webhook_url("claude-bot", &format!("http://{gone}/webhooks/github"));
    let number = world
        .github
        .open_issue("ann", SHOP, "Login", "@claude-bot fix it");
    // The order of the repeated deliveries does not matter: ann's comment is for the agent once the
    // agent works there.
    world
        .github
        .comment("dependabot[bot]", SHOP, number, "nothing for anybody");
    let failed = |view: &GithubView<'_>| {
        view.deliveries("claude-bot")
            .iter()
            .all(|github_delivery| github_delivery.status_code == Some(0))
            .then_some(())
    };
    world.github.wait_for_some(failed, TEST_TIMEOUT).await;
    let here = world.start().await;
    world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("Done")
        })
        .await;
    here.wait_until_all_shown().await;
    drop(here);
    // Another start reads the same list and repeats nothing.
    let here = world.start().await;
    here.wait_for_health("claude", |bridge_health| bridge_health.connected)
        .await;
    here.wait_until_all_shown().await;
    assert_eq!(
        here.conversations()
            .iter()
            .map(|conversation| conversation.turn_count)
            .sum::<u64>(),
        1
    );
    assert_eq!(world.own_comments("claude-bot", number).len(), 1);
    world.github.assert_well_behaved();
}

/// A comment whose confirmation was lost, or that a restart interrupted, is found by its mark and
/// not created again.
#[tokio::test(flavor = "multi_thread")]
async fn lost_answer_and_a_restart_create_no_second_comment() {
    let world = World::new().await;
    let here = world.start().await;
    let number = world.github.open_issue("ann", SHOP, "Login", "It fails.");
    world
        .github
        .fail_next("issues/create-comment", 1, ServiceFault::DropAfterCall);
    world
        .github
        .fail_next("issues/update-comment", 1, ServiceFault::Status(500));
    world
        .github
        .comment("ann", SHOP, number, "@claude-bot fix it and wait");
    let first = world.wait_for_comment("claude-bot", number, |_| true).await;
    here.wait_for(|board| {
        let mut posts = board
            .conversations
            .values()
            .flat_map(|conversation| conversation.posts.clone());
        posts
            .any(|thread_post| {
                matches!(thread_post.content, PostContent::Turn { .. })
                    && !thread_post.refs.is_empty()
            })
            .then_some(())
    })
    .await;
    drop(here);
    let here = world.start().await;
    world.agents.release("go");
    let last = world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("Done")
        })
        .await;
    here.wait_until_all_shown().await;
    assert_eq!(
        (last.id, world.own_comments("claude-bot", number).len()),
        (first.id, 1)
    );
    world.github.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn review_comment_on_a_line_is_answered_in_its_own_thread() {
    let world = World::new().await;
    let here = world.start().await;
    let pull = world
        .github
        .open_pull("ann", SHOP, ("Mine", ""), ("ann/x", "main"), "diff");
    let root = world
        .github
        .review_comment("ann", SHOP, pull, (("src/a.rs", 3), "Why?"), None);
    let asked = world.github.review_comment(
        "ann",
        SHOP,
        pull,
        (("src/a.rs", 3), "@claude-bot why and wait"),
        Some(root),
    );
    here.wait_for(|board| {
        board
            .conversations
            .values()
            .next()
            .and_then(|conversation| conversation.current_turn().cloned())
    })
    .await;
    // A comment elsewhere before the turn ends does not change where the turn is answered.
    world
        .github
        .comment("ann", SHOP, pull, "@claude-bot and the rest?");
    here.wait_for(|board| {
        board
            .conversations
            .values()
            .any(|conversation| conversation.queued_count() == 1)
            .then_some(())
    })
    .await;
    world.agents.release("go");
    let answered = |view: &GithubView<'_>| {
        let own = view
            .review_comments(SHOP, pull)
            .iter()
            .find(|github_review_comment| github_review_comment.comment.app.is_some())?;
        own.comment.body.contains("Done").then(|| own.clone())
    };
    let reply = world.github.wait_for_some(answered, TEST_TIMEOUT).await;
    assert_eq!(reply.in_reply_to, Some(root));
    here.wait_until_all_shown().await;
    world
        .wait_for_comment("claude-bot", pull, |github_comment| {
            github_comment.body.contains("Done")
        })
        .await;
    let comments = world.github.review_comments(SHOP, pull);
    let reacted = comments
        .iter()
        .find(|github_review_comment| github_review_comment.comment.id == asked)
        .unwrap();
    assert_eq!(reacted.comment.reactions[0].content, "eyes");
    assert_eq!(
        comments
            .iter()
            .filter(|github_review_comment| github_review_comment.comment.app.is_some())
            .count(),
        1
    );
    let own = world.own_comments("claude-bot", pull);
    assert_eq!(
        own.iter()
            .filter(|github_comment| github_comment.body.contains("Done"))
            .count(),
        1,
        "{own:#?}"
    );
    world.github.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn comment_allow_answers_a_request_and_comment_stop_ends_the_turn() {
    let world = World::new().await;
    let here = world.start().await;
    let number = world
        .github
        .open_issue("ann", SHOP, "Login", "@claude-bot ask first");
    let question = world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("May I do this?")
        })
        .await;
    assert!(
        question.body.contains("npm install zod") && question.body.contains("`allow` or `deny`")
    );
    assert!(!question.body.contains("button"), "{}", question.body);
    // A person without write permission may not answer either.
    world.github.comment("eve", SHOP, number, "allow");
    here.wait_for(|board| {
        board
            .conversations
            .values()
            .any(|conversation| !conversation.held.is_empty())
            .then_some(())
    })
    .await;
    assert!(
        here.engine
            .board()
            .approvals
            .values()
            .any(|approval| approval.is_open())
    );
    world.github.comment("ann", SHOP, number, "allow");
    world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("Done")
        })
        .await;
    here.wait_until_all_shown().await;
    world
        .github
        .comment("ann", SHOP, number, "@claude-bot now and wait");
    here.wait_for(|board| {
        board
            .conversations
            .values()
            .any(|conversation| {
                conversation.turn_count == 2 && conversation.current_turn().is_some()
            })
            .then_some(())
    })
    .await;
    world.github.comment("ann", SHOP, number, "stop");
    world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("ann stopped it")
        })
        .await;
    here.wait_for(|board| {
        let conversation = board.conversations.values().next()?;
        (conversation.turns.last()?.state == TurnState::Stopped).then_some(())
    })
    .await;
    world.github.assert_well_behaved();
}

/// Returns the work of the latest turn after its branch was pushed to GitHub. The fake repository
/// has no remote, so the test reports the push itself.
async fn pushed_work(world: &World, here: &RunningRegatta) -> TurnWork {
    let (id, work) = here
        .wait_for(|board| {
            let conversation = board.conversations.values().next()?;
            conversation.pushed.as_ref()?;
            Some((conversation.id, conversation.turns.last()?.work.clone()?))
        })
        .await;
    world
        .github
        .set_branch(SHOP, &work.branch, work.commit.as_str());
    report_push(here, id, &work).await;
    work
}

/// Waits until the only check run has this conclusion.
async fn wait_for_check(world: &World, conclusion: &str) -> github::CheckRun {
    let check = |view: &GithubView<'_>| {
        let check = view.checks(SHOP).first()?;
        (check.conclusion.as_deref() == Some(conclusion)).then(|| check.clone())
    };
    world.github.wait_for_some(check, TEST_TIMEOUT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pushed_work_gets_one_pull_request_and_one_check_run() {
    let mut world = World::new().await;
    world.config.deliver = ChangeDestination::Pull;
    let here = world.start().await;
    // GitHub creates the pull request and its answer is lost. The pull request is not created
    // again.
    world
        .github
        .fail_next("pulls/create", 1, ServiceFault::DropAfterCall);
    let number = world
        .github
        .open_issue("ann", SHOP, "Login", "@claude-bot change it");
    world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("Done")
        })
        .await;
    let work = pushed_work(&world, &here).await;
    let pull = here
        .wait_for(|board| board.conversations.values().next()?.pull.clone())
        .await;
    here.wait_until_all_shown().await;
    let pulls = world.github.pulls(SHOP);
    assert_eq!((pulls.len(), pulls[0].number), (1, pull.number));
    assert_eq!(pull.thread, Some(format!("github:{SHOP}:{}", pull.number)));
    let made = pulls[0].pull.as_ref().unwrap();
    assert_eq!(
        (made.head.as_str(), made.base.as_str()),
        (work.branch.as_str(), "main")
    );
    assert!(
        pulls[0].body.body.contains(&format!("#{number}"))
            && pulls[0].body.body.contains("<!-- regatta:")
    );
    world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment
                .body
                .contains(&format!("PR #{}", pull.number))
        })
        .await;
    // The landing shows on the commit.
    world.github.comment("ann", SHOP, number, "land");
    let check = wait_for_check(&world, "success").await;
    assert_eq!(
        (check.head_sha.as_str(), check.name.as_str()),
        (work.commit.as_str(), "Regatta")
    );
    assert_eq!(
        check.fields["external_id"],
        format!("github:{SHOP}:{number}:claude")
    );
    assert_eq!(world.github.checks(SHOP).len(), 1, "one check, changed");
    here.wait_until_all_shown().await;
    drop(here);
    let here = world.start().await;
    here.wait_for_health("claude", |bridge_health| bridge_health.connected)
        .await;
    assert_eq!(
        world.github.checks(SHOP).len(),
        1,
        "a restart creates no second check"
    );
    world.github.assert_well_behaved();
}

/// S4: neither the title nor the text of a pull request contains a secret.
#[tokio::test(flavor = "multi_thread")]
async fn s4_secrets_are_redacted_in_a_pull_request() {
    let mut world = World::new().await;
    world.config.deliver = ChangeDestination::Pull;
    let here = world.start().await;
    let number = world.github.open_issue(
        "ann",
        SHOP,
        &format!("Log in with {SECRET}"),
        "@claude-bot change it, then leak it",
    );
    world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("The password is [redacted].")
        })
        .await;
    pushed_work(&world, &here).await;
    here.wait_for(|board| board.conversations.values().next()?.pull.clone())
        .await;
    here.wait_until_all_shown().await;
    let pull = world.github.pulls(SHOP).remove(0);
    assert_eq!(pull.title, "Log in with [redacted]");
    assert!(
        pull.body
            .body
            .starts_with("Done. The password is [redacted]."),
        "{}",
        pull.body.body
    );
}

/// Lets a landing fail, which shows as a failed check run, and retries it through `press` as a
/// permitted person.
async fn retry_a_failed_check(press: impl Fn(&GitHub, &str, u64)) {
    let mut world = World::new().await;
    world.config.deliver = ChangeDestination::Pull;
    world.settings.landing.on_conflict = project::ConflictPolicy::Fail;
    let here = world.start().await;
    let number = world
        .github
        .open_issue("ann", SHOP, "Login", "@claude-bot change it");
    let work = pushed_work(&world, &here).await;
    here.wait_until_all_shown().await;
    world
        .git
        .commit_as_person(Path::new(REPO), "README", "somebody else's\n");
    world.github.comment("ann", SHOP, number, "land");
    let check = wait_for_check(&world, "failure").await;
    assert_eq!(
        (check.head_sha.as_str(), check.status.as_str()),
        (work.commit.as_str(), "completed")
    );
    assert!(
        check.fields["output"]["summary"]
            .as_str()
            .unwrap()
            .contains("README"),
        "{}",
        check.fields
    );
    assert_eq!(check.fields["actions"][0]["identifier"], "again");
    world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("did not land")
        })
        .await;
    here.wait_until_all_shown().await;
    // After the cause is fixed, a person without permission presses the button, and then a
    // permitted person.
    world
        .git
        .commit_as_person(Path::new(REPO), "README", "shop\n");
    let task = here.conversations()[0].task.unwrap();
    press(&world.github, "eve", check.id);
    let told = |view: &GithubView<'_>| {
        let told = view
            .deliveries("claude-bot")
            .iter()
            .rfind(|github_delivery| github_delivery.event == "check_run")?;
        (told.status_code == Some(200)).then_some(())
    };
    world.github.wait_for_some(told, TEST_TIMEOUT).await;
    assert_eq!(
        here.engine.board().tasks[&task].status,
        TaskStatus::NeedsHuman
    );
    press(&world.github, "ann", check.id);
    wait_for_check(&world, "success").await;
    here.wait_until_all_shown().await;
    assert_eq!(world.github.checks(SHOP).len(), 1, "one check, changed");
    assert!(!here.engine.board().tasks.contains_key(&task));
    world.github.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn button_of_a_failed_check_retries_the_landing() {
    retry_a_failed_check(|github, who, check| github.request_action(who, SHOP, check, "again"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_of_a_failed_check_on_github_retries_the_landing() {
    retry_a_failed_check(|github, who, check| github.rerequest(who, SHOP, check)).await;
}

/// A comment that exceeds the maximum length is answered with an explanation in the thread.
#[tokio::test(flavor = "multi_thread")]
async fn comment_that_is_too_long_is_answered_with_an_explanation() {
    let world = World::new().await;
    let here = world.start().await;
    // 80,000 bytes, which GitHub still accepts
    let long = format!("@claude-bot {}", "é".repeat(40_000));
    let number = world.github.open_issue("ann", SHOP, "Login", "It fails.");
    world.github.comment("ann", SHOP, number, &long);
    world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("64 KiB")
        })
        .await;
    here.wait_until_all_shown().await;
    assert_eq!(here.conversations()[0].turn_count, 0);
}

async fn report_push(here: &RunningRegatta, conversation: ConversationId, work: &TurnWork) {
    let pushed = PushedWork {
        commit: work.commit.clone(),
        failure: None,
    };
    submit(
        &here.engine,
        Command::Converse(Box::new(ConversationCommand::ReportPush {
            conversation,
            pushed,
        })),
    )
    .await;
}

/// A key is accepted in the form in which GitHub issues it, in PKCS#8, and with `
/// ` in place of line breaks. A bad key disables only its own bridge.
#[tokio::test(flavor = "multi_thread")]
async fn private_key_is_read_in_three_forms_and_a_refused_token_is_renewed() {
    let mut world = World::new().await;
    let usual = world.github_apps[0].private_key.clone();
    for key in [usual.clone(), usual.replace('\n', "\\n"), to_pkcs8(&usual)] {
        world.key = Some(key);
        let here = world.start().await;
        let known = here
            .wait_for_health("claude", |bridge_health| {
                bridge_health.connected.and(bridge_health.known_as.clone())
            })
            .await;
        assert_eq!(known, "claude-bot[bot]");
        // The other agent's key is invalid, which disables only that agent's bridge, with a reason.
        here.wait_for_health("codex", |bridge_health| {
            bridge_health
                .trouble
                .as_ref()
                .filter(|trouble| trouble.contains("check the app's id and key"))
                .map(|_| ())
        })
        .await;
    }
    world.key = None;
    let here = world.start().await;
    world
        .github
        .fail_next("issues/create-comment", 1, ServiceFault::Status(401));
    let number = world
        .github
        .open_issue("ann", SHOP, "Login", "@claude-bot fix it");
    world
        .wait_for_comment("claude-bot", number, |github_comment| {
            github_comment.body.contains("Done")
        })
        .await;
    here.wait_until_all_shown().await;
    let tokens = world
        .github
        .calls_of("apps/create-installation-access-token");
    assert_eq!(
        tokens
            .iter()
            .filter(|service_call| service_call.app == "claude-bot")
            .count(),
        2,
        "the first token, and one after the refusal"
    );
    assert_eq!(world.own_comments("claude-bot", number).len(), 1);
}

/// Converts the key to PKCS#8, which wraps the same bytes with the name of the algorithm.
fn to_pkcs8(pem: &str) -> String {
    let text: String = pem
        .lines()
        .filter(|pem| !pem.starts_with("-----"))
        .collect();
    let inner = decode(&text);
    let long = |tag: u8, bytes: &[u8]| {
        let mut made = vec![tag, 0x82, (bytes.len() >> 8) as u8, bytes.len() as u8];
        made.extend_from_slice(bytes);
        made
    };
    let mut body = vec![
        2, 1, 0, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0,
    ];
    body.extend(long(4, &inner));
    let text = encode(&long(0x30, &body));
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|text| std::str::from_utf8(text).unwrap())
        .collect();
    format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        lines.join("\n")
    )
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn decode(text: &str) -> Vec<u8> {
    let (mut bytes, mut held, mut bits) = (vec![], 0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        held = held << 6 | ALPHABET.iter().position(|of| *of == byte).unwrap() as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits & 0xff) as u8);
        }
    }
    bytes
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let held = chunk
            .iter()
            .fold(0_u32, |held, byte| held << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let value = ALPHABET[(held >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() {
                char::from(value)
            } else {
                '='
            });
        }
    }
    text
}
