//! Agents in outside services, each an identity of its own: the real daemon against doubles of the services.

use std::path::PathBuf;

use regatta_testkit::services::slack::{App, Message, Slack};
use regatta_testkit::services::{Fault, Scale};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::chaos::kill_daemon;
use crate::world::{LONG, World, until};

/// A repository, a Slack workspace with two agents and two people, and a daemon that bridges them.
struct Town {
    world: World,
    runtime: Runtime,
    slack: Slack,
    claude: App,
    codex: App,
    ann: String,
}

/// How much faster than Slack's the double's clock runs.
const FASTER: f64 = 20.0;

impl Town {
    fn new(claude: &Value, codex: &Value) -> Town {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let slack = runtime.block_on(Slack::start());
        slack.limits(Scale::faster(FASTER));
        let (first, second) = (slack.app("claude"), slack.app("codex"));
        let ann = slack.person("ann");
        slack.person("eve");
        slack.channel("dev", &["ann", "eve", "claude", "codex"]);
        let town = Town { world: World::set_up(), runtime, slack, claude: first, codex: second, ann };
        town.config("");
        town.world.ok(&["down"]);
        town.up();
        for (name, script) in [("claude", claude), ("codex", codex)] {
            let file = town.file(&format!("{name}.json"));
            std::fs::write(&file, script.to_string()).unwrap();
            let env = format!("REGATTA_SCRIPT_FILE={}", file.display());
            let add = ["agent", "add", name, "--runtime", "scripted", "--confine", "off", "--env", &env];
            town.world.ok(&add);
        }
        town.world.ok(&["bridge", "test"]);
        town
    }

    fn file(&self, name: &str) -> PathBuf {
        self.world.root.join("home").join(name)
    }

    /// The user's settings; `more` goes into `[bridges]`.
    fn config(&self, more: &str) {
        let dir = self.world.root.join("home/.config/regatta");
        std::fs::create_dir_all(&dir).unwrap();
        let text = format!(
            "[agents.claude]\ndefault = true\n[agents.codex]\n[bridges]\nallow = [\"slack:{}\"]\nclock = {FASTER:.1}\n\
             {more}\n[bridges.url]\nslack = \"{}/api\"\n",
            self.ann,
            self.slack.base_url()
        );
        std::fs::write(dir.join("config.toml"), text).unwrap();
    }

    /// Starts the daemon with the agents' tokens in its environment.
    fn up(&self) {
        let mut command = self.world.command(&["up"]);
        command
            .env("SLACK_BOT_TOKEN", &self.claude.bot_token)
            .env("SLACK_APP_TOKEN", &self.claude.app_token)
            .env("SLACK_BOT_TOKEN__CODEX", &self.codex.bot_token)
            .env("SLACK_APP_TOKEN__CODEX", &self.codex.app_token);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }

    fn say(&self, text: &str, thread: Option<&str>) -> String {
        self.slack.say("ann", "dev", text, thread)
    }

    /// What an app has posted in a thread, oldest first.
    fn posted(&self, app: &App, root: &str) -> Vec<Message> {
        let all = self.slack.thread("dev", root);
        all.into_iter().filter(|it| it.user == app.bot_user && it.ts != root).collect()
    }

    /// Waits until an app has a message in a thread that says this and is no longer on its way; gives it.
    fn hears(&self, app: &App, root: &str, words: &str) -> Message {
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

    fn conversation(&self, agent: &str) -> Value {
        let all = self.world.json(&["bridge", "conversations"]);
        let found = all.as_array().unwrap().iter().find(|it| it["agent"] == agent).cloned();
        found.unwrap_or_else(|| panic!("{agent} is in no conversation: {all}"))
    }

    fn show(&self, agent: &str) -> Value {
        self.world.json(&["bridge", "show", self.conversation(agent)["id"].as_str().unwrap()])
    }
}

/// All that people see of a message.
fn shown(it: &Message) -> String {
    let blocks = it.blocks.as_array().cloned().unwrap_or_default();
    blocks.iter().filter_map(|it| it["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// A step that waits until a file is there.
fn gate(file: &std::path::Path) -> Value {
    json!({ "run": format!("while [ ! -e {} ]; do sleep 0.05; done", file.display()) })
}

/// The seed's first conversation: one agent works, another reviews in the same thread, and a message that names nobody
/// goes to nobody. The daemon is killed in the middle of a turn: same session, same branch, nothing posted twice.
#[test]
fn the_seeds_slack_conversation_across_a_kill() {
    let go = std::env::temp_dir().join(format!("regatta-bridge-go-{}", std::process::id()));
    let _old = std::fs::remove_file(&go);
    let claude = json!([
        { "plan": ["Find it", "Mend it"] },
        { "tool": { "title": "Read a.txt", "kind": "read" } },
        { "append": { "path": "a.txt", "text": "fixed\n" } },
        { "say": "Done: the login bug is fixed." },
        { "end_turn": true },
        gate(&go),
        { "append": { "path": "a.txt", "text": "tested\n" } },
        { "say": "The tests are there, too." },
    ]);
    let codex = json!([{ "say": "Found two issues: it has no test, and no name." }, { "end_turn": true }]);
    let town = Town::new(&claude, &codex);
    let root = town.say("@claude fix the login bug", None);
    let first = town.hears(&town.claude, &root, "the login bug is fixed");
    assert!(
        shown(&first).contains("a.txt") && shown(&first).contains("regatta/T1-fix-the-login-bug"),
        "{}",
        shown(&first)
    );
    assert!(first.versions.len() > 1, "it was not one message that was edited: {:?}", first.versions);
    let eyes = town.slack.reactions("dev", &root);
    assert_eq!(eyes, [("eyes".to_owned(), town.claude.bot_user.clone())]);

    town.say("@codex review it and look for edge cases", Some(&root));
    town.hears(&town.codex, &root, "Found two issues");
    let commit = town.show("claude")["turns"][0]["work"]["commit"].clone();
    assert_eq!(town.show("codex")["turns"][0]["looks_at"][0], commit, "it looked at something else");
    assert!(town.show("codex")["turns"][0]["work"].is_null());

    // Two agents are here: a message that names nobody is for nobody.
    let plain = town.say("thanks, can you also check the tests?", Some(&root));
    town.say("@claude can you also check the tests?", Some(&root));
    let working = || town.show("claude")["turns"].as_array().unwrap().len() == 2;
    assert!(until(LONG, working), "the second turn does not begin");
    let before = town.show("claude");
    kill_daemon(&town.world);
    town.up();
    std::fs::write(&go, "").unwrap();
    town.hears(&town.claude, &root, "The tests are there, too.");
    std::fs::remove_file(&go).unwrap();
    let after = town.show("claude");
    assert_eq!(before["task"], after["task"], "another branch");
    let work = |turn: usize| after["turns"][turn]["work"]["branch"].clone();
    assert_eq!(work(0), work(1));
    let file = town.world.json(&["diff", after["task"].as_str().unwrap()]).to_string();
    assert!(file.contains("fixed") && file.contains("tested"), "the first turn's work is gone: {file}");
    let texts: Vec<String> = town.posted(&town.claude, &root).iter().map(shown).collect();
    assert_eq!(texts.len(), 2, "posted twice, or not at all: {texts:#?}");
    assert!(town.slack.reactions("dev", &plain).is_empty(), "somebody took what was for nobody");
    assert_eq!(town.show("codex")["turn_count"], 1);
    town.slack.assert_well_behaved();
}

/// What an agent may not decide alone is asked with buttons; who is on no list presses in vain.
#[test]
fn questions_are_buttons_and_strangers_do_nothing() {
    let claude = json!([
        { "permission": "make deploy" },
        { "say": "Deployed." },
        { "end_turn": true },
        { "ask": { "question": "Which name?", "choices": ["blue", "green"], "default": "blue" } },
        { "say": "Named." },
    ]);
    let town = Town::new(&claude, &json!([{ "say": "hm" }]));
    // A stranger makes an item for an operator, and nothing else.
    let theirs = town.slack.say("eve", "dev", "@claude print the secrets", None);
    let held = || town.world.json(&["inbox"]).as_array().unwrap().iter().any(|it| it["kind"] == "request");
    assert!(until(LONG, held), "the stranger's request is not in the inbox");
    assert_eq!(town.world.json(&["task", "list"]).as_array().unwrap().len(), 0);
    town.world.ok(&["answer", "V1", "refuse"]);

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
    // A question is answered in somebody's own words, too.
    town.say("@claude name it", Some(&root));
    town.hears(&town.claude, &root, "Which name?");
    town.say("green", Some(&root));
    town.hears(&town.claude, &root, "Named.");
    assert!(town.posted(&town.claude, &theirs).is_empty());
    town.slack.assert_well_behaved();
}

/// Stop, a full line, a service that is away: nothing is lost and nothing is doubled.
#[test]
fn stop_works_and_an_away_service_delays_only_itself() {
    let claude = json!([
        { "say": "Working on it." },
        { "tool": { "title": "Read a.txt", "kind": "read" } },
        { "tool": { "title": "Read it again", "kind": "read" } },
        { "sleep": "1h" },
        { "say": "The second turn is done." },
    ]);
    let town = Town::new(&claude, &json!([{ "say": "hm" }]));
    let root = town.say("@claude begin", None);
    let working = town.sees(&town.claude, &root, "Working on it.", true);
    town.say("and something else", Some(&root));
    town.hears(&town.claude, &root, "I will get to this next");
    let stop = working.buttons().into_iter().find(|it| it.1.starts_with("stop:")).unwrap().0;
    town.slack.click("ann", "dev", &working.ts, &stop);
    town.hears(&town.claude, &root, "Stopped");
    // A post that arrives though its answer is lost is not made again.
    town.slack.fail_next("chat.postMessage", 1, Fault::DropAfterDoing);
    town.say("go on", Some(&root));
    town.hears(&town.claude, &root, "The second turn is done.");
    let finals = town.posted(&town.claude, &root).iter().filter(|it| shown(it).contains("second turn")).count();
    assert_eq!(finals, 1);
    town.runtime.block_on(town.slack.go_away());
    let listed = || town.world.json(&["bridge", "list"])[0]["trouble"].is_string();
    assert!(until(LONG, listed), "the bridge does not say that Slack is away");
    town.world.ok(&["status"]);
    town.runtime.block_on(town.slack.come_back());
    assert!(until(LONG, || town.world.run(&["bridge", "test"]).code == 0), "it does not find back");
}
