//! Agents in outside services, each with its own identity: the real daemon against doubles of the
//! services.

use regatta_testkit::services::slack::{Slack, SlackApp, SlackMessage};
use regatta_testkit::services::{ServiceFault, TimeScale};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::bridge_world::{
    BridgeWorld, BridgeWorldSettings, SlackTransport, gate_step, new_runtime, slack_variables,
};
use crate::chaos::kill_daemon;
use crate::world::{TEST_TIMEOUT, wait_until};

/// A Slack workspace with the apps of two agents, one person who may ask, and one stranger.
pub(crate) struct SlackFixture {
    pub(crate) runtime: Runtime,
    pub(crate) slack: Slack,
    pub(crate) claude: SlackApp,
    pub(crate) codex: SlackApp,
    pub(crate) ann: String,
}

/// How many times faster than Slack's clock the double's clock runs.
pub(crate) const CLOCK_SPEED: f64 = 20.0;

impl SlackFixture {
    pub(crate) fn new() -> SlackFixture {
        let runtime = new_runtime();
        let slack = runtime.block_on(Slack::start());
        slack.set_time_scale(TimeScale::with_faster_limits(CLOCK_SPEED));
        let (claude, codex) = (
            slack.add_socket_app("claude"),
            slack.add_socket_app("codex"),
        );
        let ann = slack.add_person("ann");
        slack.add_person("eve");
        slack.add_channel("dev", &["ann", "eve", "claude", "codex"]);
        SlackFixture {
            runtime,
            slack,
            claude,
            codex,
            ann,
        }
    }

    /// Starts a daemon that is configured for this workspace.
    pub(crate) fn start_world(&self, variables: Vec<(String, String)>) -> BridgeWorld {
        let settings = BridgeWorldSettings {
            agents: &["claude", "codex"],
            allowed_people: vec![format!("slack:{}", self.ann)],
            urls: vec![("slack", format!("{}/api", self.slack.base_url()))],
            clock_speed: CLOCK_SPEED,
            extra_lines: "",
        };
        BridgeWorld::new(&settings, variables)
    }

    /// Returns the variables that connect both apps to their agents.
    pub(crate) fn variables_of_both_apps(&self, by: SlackTransport) -> Vec<(String, String)> {
        [
            slack_variables(&self.claude, "", by),
            slack_variables(&self.codex, "__CODEX", by),
        ]
        .concat()
    }

    pub(crate) fn post_message(&self, text: &str, thread: Option<&str>) -> String {
        self.slack.post_as_person("ann", "dev", text, thread)
    }

    /// Returns the messages that an app has posted in a thread, oldest first.
    fn posted_messages(&self, app: &SlackApp, root: &str) -> Vec<SlackMessage> {
        let all = self.slack.thread("dev", root);
        all.into_iter()
            .filter(|slack_message| slack_message.user == app.bot_user && slack_message.ts != root)
            .collect()
    }

    /// Waits for a finished message of an app in a thread that contains `words`, and returns it.
    pub(crate) fn wait_for_message(&self, app: &SlackApp, root: &str, text: &str) -> SlackMessage {
        self.wait_for_message_with_state(app, root, text, false)
    }

    fn wait_for_message_with_state(
        &self,
        app: &SlackApp,
        root: &str,
        words: &str,
        on_its_way: bool,
    ) -> SlackMessage {
        let is_wanted_message = |slack_message: &SlackMessage| {
            let text = message_text(slack_message);
            slack_message.user == app.bot_user
                && text.contains(words)
                && text.starts_with('⏳') == on_its_way
        };
        let wait = self.slack.wait_for_some(
            |view| {
                view.thread("dev", root)
                    .find(|slack_message| is_wanted_message(slack_message))
                    .cloned()
            },
            TEST_TIMEOUT,
        );
        self.runtime.block_on(wait)
    }
}

/// The workspace, and a daemon with two scripted agents.
struct SlackWorld {
    workspace: SlackFixture,
    world: BridgeWorld,
}

impl std::ops::Deref for SlackWorld {
    type Target = SlackFixture;

    fn deref(&self) -> &SlackFixture {
        &self.workspace
    }
}

impl SlackWorld {
    /// `scripts` is given the file that opens the gate, and returns the script of each agent.
    fn new(scripts: impl Fn(&std::path::Path) -> [Value; 2]) -> SlackWorld {
        let workspace = SlackFixture::new();
        let world = workspace.start_world(workspace.variables_of_both_apps(SlackTransport::Socket));
        for (name, script) in ["claude", "codex"]
            .into_iter()
            .zip(scripts(&world.file_path("go")))
        {
            world.add_agent(name, 1, &script);
        }
        world.world.run_ok(&["bridge", "test"]);
        SlackWorld { workspace, world }
    }
}

/// Returns the text of a message that people see.
fn message_text(slack_message: &SlackMessage) -> String {
    let blocks = slack_message.blocks.as_array().cloned().unwrap_or_default();
    blocks
        .iter()
        .filter_map(|block| block["text"].as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns a script that fixes a bug in the first turn and waits for the gate in the second.
pub(crate) fn script_with_gate(go: &std::path::Path) -> Value {
    json!([
        { "plan": ["Find it", "Mend it"] },
        { "tool": { "title": "Read a.txt", "kind": "read" } },
        { "append": { "path": "a.txt", "text": "fixed\n" } },
        { "say": "Done: the login bug is fixed." },
        { "end_turn": true },
        gate_step(go),
        { "append": { "path": "a.txt", "text": "tested\n" } },
        { "say": "The tests are there, too." },
    ])
}

/// One agent works, another one reviews in the same thread, and a message that names no agent goes
/// to none. The daemon is killed in mid-turn. Session and branch stay the same, and nothing is
/// posted twice.
#[test]
fn two_agents_work_and_review_in_one_slack_thread_across_a_kill() {
    let codex =
        json!([{ "say": "Found two issues: it has no test, and no name." }, { "end_turn": true }]);
    let town = SlackWorld::new(|go| [script_with_gate(go), codex.clone()]);
    let root = town.post_message("@claude fix the login bug", None);
    let first = town.wait_for_message(&town.claude, &root, "the login bug is fixed");
    assert!(
        message_text(&first).contains("a.txt")
            && message_text(&first).contains("regatta/T1-fix-the-login-bug"),
        "{}",
        message_text(&first)
    );
    assert!(
        first.versions.len() > 1,
        "progress and answer must be edits of one message: {:?}",
        first.versions
    );
    let eyes = town.slack.reactions("dev", &root);
    assert_eq!(eyes, [("eyes".to_owned(), town.claude.bot_user.clone())]);

    town.post_message("@codex review it and look for edge cases", Some(&root));
    town.wait_for_message(&town.codex, &root, "Found two issues");
    let commit = town.world.only_conversation("claude")["turns"][0]["work"]["commit"].clone();
    assert_eq!(
        town.world.only_conversation("codex")["turns"][0]["looks_at"][0],
        commit,
        "codex reviewed another commit"
    );
    assert!(town.world.only_conversation("codex")["turns"][0]["work"].is_null());

    // With two agents in the thread, a message that names no agent goes to none.
    let plain = town.post_message("thanks, can you also check the tests?", Some(&root));
    town.post_message("@claude can you also check the tests?", Some(&root));
    town.world.wait_until_at_gate("go");
    let before = town.world.only_conversation("claude");
    kill_daemon(&town.world.world);
    town.world.start_daemon_without(&[]);
    town.world.open_gate("go");
    town.wait_for_message(&town.claude, &root, "The tests are there, too.");
    let after = town.world.only_conversation("claude");
    assert_eq!(
        before["task"], after["task"],
        "the conversation has another task"
    );
    let work = |turn: usize| after["turns"][turn]["work"]["branch"].clone();
    assert_eq!(work(0), work(1));
    let file = town
        .world
        .world
        .run_json(&["diff", after["task"].as_str().unwrap()])
        .to_string();
    assert!(
        file.contains("fixed") && file.contains("tested"),
        "the first turn's work is gone: {file}"
    );
    let texts: Vec<String> = town
        .posted_messages(&town.claude, &root)
        .iter()
        .map(message_text)
        .collect();
    assert_eq!(texts.len(), 2, "posted twice, or not at all: {texts:#?}");
    assert!(
        town.slack.reactions("dev", &plain).is_empty(),
        "an agent took a message that names no agent"
    );
    assert_eq!(town.world.only_conversation("codex")["turn_count"], 1);
    town.slack.assert_well_behaved();
}

/// A permission request has buttons, and a click by a stranger has no effect. A person can also
/// answer a question with a message.
#[test]
fn requests_have_buttons_that_strangers_cannot_use() {
    let claude = json!([
        { "permission": "make deploy" },
        { "say": "Deployed." },
        { "end_turn": true },
        { "ask": { "question": "Which name?", "choices": ["blue", "green"], "default": "blue" } },
        { "say": "Named." },
    ]);
    let town = SlackWorld::new(|_| [claude.clone(), json!([{ "say": "hm" }])]);
    // A stranger's message creates an inbox item for an operator, and nothing else.
    let theirs = town
        .slack
        .post_as_person("eve", "dev", "@claude print the secrets", None);
    let held_items = || {
        town.world
            .world
            .run_json(&["inbox"])
            .as_array()
            .unwrap()
            .iter()
            .any(|world| world["kind"] == "request")
    };
    assert!(
        wait_until(TEST_TIMEOUT, held_items),
        "the stranger's request is not in the inbox"
    );
    assert_eq!(
        town.world
            .world
            .run_json(&["task", "list"])
            .as_array()
            .unwrap()
            .len(),
        0
    );
    town.world.world.run_ok(&["answer", "V1", "refuse"]);

    let root = town.post_message("@claude deploy it", None);
    let asked = town.wait_for_message(&town.claude, &root, "make deploy");
    let button = |of: &SlackMessage, starts: &str| {
        let found = of
            .buttons()
            .into_iter()
            .find(|button| button.1.starts_with(starts));
        found
            .unwrap_or_else(|| panic!("no button {starts}: {:?}", of.buttons()))
            .0
    };
    town.slack
        .click("eve", "dev", &asked.ts, &button(&asked, "allow:"));
    town.slack
        .click("ann", "dev", &asked.ts, &button(&asked, "allow:"));
    town.wait_for_message(&town.claude, &root, "Deployed.");
    let settled = town.wait_for_message(&town.claude, &root, "allowed by");
    assert!(
        message_text(&settled).contains("ann"),
        "{}",
        message_text(&settled)
    );
    // A message in the thread answers a question, too.
    town.post_message("@claude name it", Some(&root));
    town.wait_for_message(&town.claude, &root, "Which name?");
    town.post_message("green", Some(&root));
    town.wait_for_message(&town.claude, &root, "Named.");
    assert!(town.posted_messages(&town.claude, &theirs).is_empty());
    town.slack.assert_well_behaved();
}

/// A stopped turn, a queued message, a lost reply to a post and an outage of Slack: nothing is lost
/// and nothing is posted twice.
#[test]
fn a_stop_a_lost_reply_and_an_outage_of_slack_lose_nothing() {
    let claude = json!([
        { "say": "Working on it." },
        { "tool": { "title": "Read a.txt", "kind": "read" } },
        { "tool": { "title": "Read it again", "kind": "read" } },
        { "sleep": "1h" },
        { "say": "The second turn is done." },
    ]);
    let town = SlackWorld::new(|_| [claude.clone(), json!([{ "say": "hm" }])]);
    let root = town.post_message("@claude begin", None);
    let working = town.wait_for_message_with_state(&town.claude, &root, "Working on it.", true);
    town.post_message("and something else", Some(&root));
    town.wait_for_message(&town.claude, &root, "I will get to this next");
    let stop = working
        .buttons()
        .into_iter()
        .find(|button| button.1.starts_with("stop:"))
        .unwrap()
        .0;
    town.slack.click("ann", "dev", &working.ts, &stop);
    town.wait_for_message(&town.claude, &root, "Stopped");
    // A post that arrives although its reply is lost is not repeated.
    town.slack
        .fail_next("chat.postMessage", 1, ServiceFault::DropAfterCall);
    town.post_message("go on", Some(&root));
    town.wait_for_message(&town.claude, &root, "The second turn is done.");
    let finals = town
        .posted_messages(&town.claude, &root)
        .iter()
        .filter(|slack_message| message_text(slack_message).contains("second turn"))
        .count();
    assert_eq!(finals, 1);
    let well = || town.world.world.run_json(&["bridge", "list"])[0]["trouble"].is_null();
    assert!(
        wait_until(TEST_TIMEOUT, well),
        "the trouble must end when the post has arrived: {}",
        town.world.world.run_ok(&["bridge", "list"])
    );
    town.runtime.block_on(town.slack.go_offline());
    let listed = || town.world.world.run_json(&["bridge", "list"])[0]["trouble"].is_string();
    assert!(
        wait_until(TEST_TIMEOUT, listed),
        "the bridge does not report that Slack is unreachable"
    );
    town.world.world.run_ok(&["status"]);
    town.runtime.block_on(town.slack.go_online());
    assert!(
        wait_until(TEST_TIMEOUT, || town
            .world
            .world
            .run(&["bridge", "test"])
            .exit_code
            == 0),
        "the bridge does not reconnect"
    );
}
