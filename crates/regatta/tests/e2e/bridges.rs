//! Agents in outside services, each with its own identity: the real daemon against doubles of the
//! services.

use regatta_testkit::services::slack::{App, Message, Slack};
use regatta_testkit::services::{Fault, Scale};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::chaos::kill_daemon;
use crate::quay::{By, Quay, Told, gate, runtime, slack_variables};
use crate::world::{LONG, until};

/// A Slack workspace with the apps of two agents, one person who may ask, and one stranger.
pub(crate) struct Workspace {
    pub(crate) runtime: Runtime,
    pub(crate) slack: Slack,
    pub(crate) claude: App,
    pub(crate) codex: App,
    pub(crate) ann: String,
}

/// How many times faster than Slack's clock the double's clock runs.
pub(crate) const FASTER: f64 = 20.0;

impl Workspace {
    pub(crate) fn new() -> Workspace {
        let runtime = runtime();
        let slack = runtime.block_on(Slack::start());
        slack.limits(Scale::faster(FASTER));
        let (claude, codex) = (slack.app("claude"), slack.app("codex"));
        let ann = slack.person("ann");
        slack.person("eve");
        slack.channel("dev", &["ann", "eve", "claude", "codex"]);
        Workspace { runtime, slack, claude, codex, ann }
    }

    /// Starts a daemon that is configured for this workspace.
    pub(crate) fn quay(&self, variables: Vec<(String, String)>) -> Quay {
        let told = Told {
            agents: &["claude", "codex"],
            allow: vec![format!("slack:{}", self.ann)],
            urls: vec![("slack", format!("{}/api", self.slack.base_url()))],
            clock: FASTER,
            more: "",
        };
        Quay::new(&told, variables)
    }

    /// Returns the variables that connect both apps to their agents.
    pub(crate) fn both(&self, by: By) -> Vec<(String, String)> {
        [slack_variables(&self.claude, "", by), slack_variables(&self.codex, "__CODEX", by)].concat()
    }

    pub(crate) fn say(&self, text: &str, thread: Option<&str>) -> String {
        self.slack.say("ann", "dev", text, thread)
    }

    /// Returns the messages that an app has posted in a thread, oldest first.
    fn posted(&self, app: &App, root: &str) -> Vec<Message> {
        let all = self.slack.thread("dev", root);
        all.into_iter().filter(|it| it.user == app.bot_user && it.ts != root).collect()
    }

    /// Waits for a finished message of an app in a thread that contains `words`, and returns it.
    pub(crate) fn hears(&self, app: &App, root: &str, words: &str) -> Message {
        self.sees(app, root, words, false)
    }

    fn sees(&self, app: &App, root: &str, words: &str, on_its_way: bool) -> Message {
        let said = |it: &Message| {
            let text = shown(it);
            it.user == app.bot_user && text.contains(words) && text.starts_with('⏳') == on_its_way
        };
        let wait = self.slack.find(|view| view.thread("dev", root).find(|it| said(it)).cloned(), LONG);
        self.runtime.block_on(wait)
    }
}

/// The workspace, and a daemon with two scripted agents.
struct Town {
    space: Workspace,
    quay: Quay,
}

impl std::ops::Deref for Town {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        &self.space
    }
}

impl Town {
    /// `scripts` is given the file that opens the gate, and returns the script of each agent.
    fn new(scripts: impl Fn(&std::path::Path) -> [Value; 2]) -> Town {
        let space = Workspace::new();
        let quay = space.quay(space.both(By::Socket));
        for (name, script) in ["claude", "codex"].into_iter().zip(scripts(&quay.file("go"))) {
            quay.agent(name, 1, &script);
        }
        quay.world.ok(&["bridge", "test"]);
        Town { space, quay }
    }
}

/// Returns the text of a message that people see.
fn shown(it: &Message) -> String {
    let blocks = it.blocks.as_array().cloned().unwrap_or_default();
    blocks.iter().filter_map(|it| it["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Returns a script that fixes a bug in the first turn and waits for the gate in the second.
pub(crate) fn claude_who_waits(go: &std::path::Path) -> Value {
    json!([
        { "plan": ["Find it", "Mend it"] },
        { "tool": { "title": "Read a.txt", "kind": "read" } },
        { "append": { "path": "a.txt", "text": "fixed\n" } },
        { "say": "Done: the login bug is fixed." },
        { "end_turn": true },
        gate(go),
        { "append": { "path": "a.txt", "text": "tested\n" } },
        { "say": "The tests are there, too." },
    ])
}

/// One agent works, another one reviews in the same thread, and a message that names no agent goes
/// to none. The daemon is killed in mid-turn. Session and branch stay the same, and nothing is
/// posted twice.
#[test]
fn two_agents_work_and_review_in_one_slack_thread_across_a_kill() {
    let codex = json!([{ "say": "Found two issues: it has no test, and no name." }, { "end_turn": true }]);
    let town = Town::new(|go| [claude_who_waits(go), codex.clone()]);
    let root = town.say("@claude fix the login bug", None);
    let first = town.hears(&town.claude, &root, "the login bug is fixed");
    assert!(
        shown(&first).contains("a.txt") && shown(&first).contains("regatta/T1-fix-the-login-bug"),
        "{}",
        shown(&first)
    );
    assert!(first.versions.len() > 1, "progress and answer must be edits of one message: {:?}", first.versions);
    let eyes = town.slack.reactions("dev", &root);
    assert_eq!(eyes, [("eyes".to_owned(), town.claude.bot_user.clone())]);

    town.say("@codex review it and look for edge cases", Some(&root));
    town.hears(&town.codex, &root, "Found two issues");
    let commit = town.quay.show("claude")["turns"][0]["work"]["commit"].clone();
    assert_eq!(town.quay.show("codex")["turns"][0]["looks_at"][0], commit, "codex reviewed another commit");
    assert!(town.quay.show("codex")["turns"][0]["work"].is_null());

    // With two agents in the thread, a message that names no agent goes to none.
    let plain = town.say("thanks, can you also check the tests?", Some(&root));
    town.say("@claude can you also check the tests?", Some(&root));
    town.quay.until_at("go");
    let before = town.quay.show("claude");
    kill_daemon(&town.quay.world);
    town.quay.up(&[]);
    town.quay.open("go");
    town.hears(&town.claude, &root, "The tests are there, too.");
    let after = town.quay.show("claude");
    assert_eq!(before["task"], after["task"], "the conversation has another task");
    let work = |turn: usize| after["turns"][turn]["work"]["branch"].clone();
    assert_eq!(work(0), work(1));
    let file = town.quay.world.json(&["diff", after["task"].as_str().unwrap()]).to_string();
    assert!(file.contains("fixed") && file.contains("tested"), "the first turn's work is gone: {file}");
    let texts: Vec<String> = town.posted(&town.claude, &root).iter().map(shown).collect();
    assert_eq!(texts.len(), 2, "posted twice, or not at all: {texts:#?}");
    assert!(town.slack.reactions("dev", &plain).is_empty(), "an agent took a message that names no agent");
    assert_eq!(town.quay.show("codex")["turn_count"], 1);
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
    let town = Town::new(|_| [claude.clone(), json!([{ "say": "hm" }])]);
    // A stranger's message creates an inbox item for an operator, and nothing else.
    let theirs = town.slack.say("eve", "dev", "@claude print the secrets", None);
    let held = || town.quay.world.json(&["inbox"]).as_array().unwrap().iter().any(|it| it["kind"] == "request");
    assert!(until(LONG, held), "the stranger's request is not in the inbox");
    assert_eq!(town.quay.world.json(&["task", "list"]).as_array().unwrap().len(), 0);
    town.quay.world.ok(&["answer", "V1", "refuse"]);

    let root = town.say("@claude deploy it", None);
    let asked = town.hears(&town.claude, &root, "make deploy");
    let button = |of: &Message, starts: &str| {
        let found = of.buttons().into_iter().find(|it| it.1.starts_with(starts));
        found.unwrap_or_else(|| panic!("no button {starts}: {:?}", of.buttons())).0
    };
    town.slack.click("eve", "dev", &asked.ts, &button(&asked, "allow:"));
    town.slack.click("ann", "dev", &asked.ts, &button(&asked, "allow:"));
    town.hears(&town.claude, &root, "Deployed.");
    let settled = town.hears(&town.claude, &root, "allowed by");
    assert!(shown(&settled).contains("ann"), "{}", shown(&settled));
    // A message in the thread answers a question, too.
    town.say("@claude name it", Some(&root));
    town.hears(&town.claude, &root, "Which name?");
    town.say("green", Some(&root));
    town.hears(&town.claude, &root, "Named.");
    assert!(town.posted(&town.claude, &theirs).is_empty());
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
    let town = Town::new(|_| [claude.clone(), json!([{ "say": "hm" }])]);
    let root = town.say("@claude begin", None);
    let working = town.sees(&town.claude, &root, "Working on it.", true);
    town.say("and something else", Some(&root));
    town.hears(&town.claude, &root, "I will get to this next");
    let stop = working.buttons().into_iter().find(|it| it.1.starts_with("stop:")).unwrap().0;
    town.slack.click("ann", "dev", &working.ts, &stop);
    town.hears(&town.claude, &root, "Stopped");
    // A post that arrives although its reply is lost is not repeated.
    town.slack.fail_next("chat.postMessage", 1, Fault::DropAfterDoing);
    town.say("go on", Some(&root));
    town.hears(&town.claude, &root, "The second turn is done.");
    let finals = town.posted(&town.claude, &root).iter().filter(|it| shown(it).contains("second turn")).count();
    assert_eq!(finals, 1);
    let well = || town.quay.world.json(&["bridge", "list"])[0]["trouble"].is_null();
    assert!(
        until(LONG, well),
        "the trouble must end when the post has arrived: {}",
        town.quay.world.ok(&["bridge", "list"])
    );
    town.runtime.block_on(town.slack.go_away());
    let listed = || town.quay.world.json(&["bridge", "list"])[0]["trouble"].is_string();
    assert!(until(LONG, listed), "the bridge does not report that Slack is unreachable");
    town.quay.world.ok(&["status"]);
    town.runtime.block_on(town.slack.come_back());
    assert!(until(LONG, || town.quay.world.run(&["bridge", "test"]).code == 0), "the bridge does not reconnect");
}
