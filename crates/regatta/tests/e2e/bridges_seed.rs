//! The seed's conversations on GitHub and in Linear, with the whole daemon: it is killed in the middle of turns, and
//! nobody can tell. Slack's is in `bridges`.

use std::path::{Path, PathBuf};

use regatta_testkit::services::github::{self, Comment, GitHub};
use regatta_testkit::services::linear::Linear;
use regatta_testkit::services::{Scale, View};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::bridges::FASTER;
use crate::chaos::kill_daemon;
use crate::quay::{Quay, Told, gate, github_variables, linear_variables, runtime};
use crate::world::{LONG, until};

const SHOP: &str = "acme/shop";

/// What a service asks of our promptness is not what is tested here, on a machine that may be busy.
fn scale() -> Scale {
    Scale::faster(FASTER).deadlines(0.1)
}

/// A forge: GitHub's API, and a bare repository that stands for what it hosts. Two agents have an app there.
struct Forge {
    runtime: Runtime,
    github: GitHub,
    quay: Quay,
    bare: PathBuf,
}

impl Forge {
    fn new(scripts: impl Fn(&Quay) -> [Value; 2]) -> Forge {
        let runtime = runtime();
        let github = runtime.block_on(GitHub::start());
        github.limits(scale());
        let apps = [github.app("claude-bot"), github.app("codex-bot")];
        github.repo(SHOP, &["claude-bot", "codex-bot"]);
        github.person("ann", SHOP, "write");
        let told = Told {
            agents: &["claude", "codex"],
            allow: vec!["github:write".into()],
            urls: vec![("github", github.base_url())],
            clock: FASTER,
            more: "deliver = \"pull\"",
        };
        let variables = [github_variables(&apps[0], ""), github_variables(&apps[1], "__CODEX")].concat();
        let quay = Quay::new(&told, variables);
        let (world, bare) = (&quay.world, quay.world.root.join("forge.git"));
        world.git_in(&world.root, &["clone", "-q", "--bare", "shop", bare.to_str().unwrap()]);
        world.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
        github.remote(SHOP, &bare);
        for (name, script) in ["claude", "codex"].into_iter().zip(scripts(&quay)) {
            quay.agent(name, 1, &script);
        }
        let forge = Forge { runtime, github, quay, bare };
        forge.hook();
        forge.quay.world.ok(&["bridge", "test"]);
        forge
    }

    /// Tells GitHub where the daemon is now.
    fn hook(&self) {
        self.github.webhook("claude-bot", &self.quay.url("/webhooks/github"));
        self.github.webhook("codex-bot", &self.quay.url("/webhooks/github/codex"));
    }

    /// Ends the daemon as a crash does, lets people go on meanwhile, and starts it again.
    fn crash(&self, meanwhile: impl FnOnce()) {
        kill_daemon(&self.quay.world);
        meanwhile();
        self.quay.up(&[]);
        self.hook();
    }

    /// Waits for a comment of an app's.
    fn hears(&self, app: &str, number: u64, words: &str) -> Comment {
        let found = |view: &View<'_, github::World>| {
            let mut own = view.comments(SHOP, number).iter().filter(|it| it.app.as_deref() == Some(app));
            own.find(|it| it.body.contains(words)).cloned()
        };
        self.runtime.block_on(self.github.find(found, LONG))
    }

    /// What an app has said on an issue or pull request.
    fn own(&self, app: &str, number: u64) -> Vec<Comment> {
        let mut comments = self.github.comments(SHOP, number);
        comments.retain(|it| it.app.as_deref() == Some(app));
        comments
    }

    /// The branches of the forge beside the trunk, with their commits.
    fn branches(&self) -> Vec<(String, String)> {
        let all = self.quay.world.git_in(&self.bare, &["for-each-ref", "--format=%(refname:short) %(objectname)"]);
        let all = all.lines().filter_map(|it| it.split_once(' '));
        all.filter(|it| it.0 != "main").map(|it| (it.0.to_owned(), it.1.to_owned())).collect()
    }

    fn file_of(&self, commit: &str, path: &str) -> String {
        self.quay.world.git_in(&self.bare, &["show", &format!("{commit}:{path}")])
    }
}

/// One who mends it, and then sees to the tests; each time somebody else must let it go on. Only in the same session
/// does the second turn say something else than the first: a script goes on where its session left it.
fn careful(first: &Path, second: &Path) -> Value {
    json!([
        { "plan": ["Find it", "Mend it"] },
        { "append": { "path": "a.txt", "text": "fixed\n" } },
        gate(first),
        { "say": "Done: the login bug is fixed." },
        { "end_turn": true },
        gate(second),
        { "append": { "path": "a.txt", "text": "tested\n" } },
        { "say": "The tests are there, too." },
    ])
}

/// The seed's second conversation: one agent works on an issue and opens a pull request, another reviews that. The
/// daemon is killed in the middle of both turns of the first, and somebody writes while it is away: same session, same
/// branch, one pull request from what was really pushed, nothing said twice, nothing lost.
#[test]
fn the_seeds_github_conversation_across_kills() {
    let forge = Forge::new(|quay| {
        let review = format!("sh {}", quay.file("review.sh").display());
        let codex = json!([{ "run": review }, { "say": "Found two issues: it has no test, and no name." }]);
        [careful(&quay.file("first"), &quay.file("second")), codex]
    });
    let (github, quay) = (&forge.github, &forge.quay);
    let issue = github.open_issue("ann", SHOP, "Login", "@claude-bot fix the login bug");
    quay.until_at("first");
    let shown = forge.hears("claude-bot", issue, "⏳");
    forge.crash(|| ());
    quay.open("first");
    let done = forge.hears("claude-bot", issue, "PR #");
    assert_eq!(done.id, shown.id, "it was not one comment that was edited");
    assert!(done.body.contains("the login bug is fixed") && done.body.contains("a.txt"), "{}", done.body);
    // What was pushed is what the pull request is from.
    let work = quay.show("claude")["turns"][0]["work"].clone();
    let (branch, commit) = (work["branch"].as_str().unwrap(), work["commit"].as_str().unwrap());
    assert_eq!(forge.branches(), [(branch.to_owned(), commit.to_owned())]);
    let pulls = github.pulls(SHOP);
    let pull = pulls[0].pull.as_ref().unwrap();
    assert_eq!((pulls.len(), pull.head.as_str(), pull.head_sha.as_str()), (1, branch, commit));
    assert!(forge.file_of(commit, "a.txt").ends_with("fixed"));
    assert!(done.body.contains(&format!("PR #{}", pulls[0].number)), "{}", done.body);

    // The other one reviews it where it is: on the pull request.
    let number = pulls[0].number;
    let base = work["base"].as_str().unwrap();
    let look = format!(
        "set -e\ngit diff --name-only {base} {commit} | grep -qx a.txt\ngit checkout -q --detach {commit}\n\
         grep -qx fixed a.txt\necho scribbled >> a.txt\n"
    );
    std::fs::write(quay.file("review.sh"), look).unwrap();
    github.comment("ann", SHOP, number, "@codex-bot review this PR and check for security issues");
    forge.hears("codex-bot", number, "Found two issues");
    let review = quay.show("codex")["turns"][0].clone();
    assert_eq!(review["looks_at"][0], *commit, "it looked at something else: {review}");
    assert!(review["work"].is_null(), "what a reviewer scribbled is work: {review}");
    assert_eq!(forge.branches(), [(branch.to_owned(), commit.to_owned())], "a reviewer pushed");

    // On its own pull request the first one goes on with what it did, in the same session.
    github.comment("ann", SHOP, number, "@claude-bot can you also check the tests?");
    quay.until_at("second");
    let before = quay.show("claude");
    forge.crash(|| _ = github.comment("ann", SHOP, number, "@codex-bot review it again, then"));
    quay.open("second");
    forge.hears("claude-bot", number, "The tests are there, too.");
    let pushed = || forge.branches().first().is_some_and(|it| forge.file_of(&it.1, "a.txt").ends_with("tested"));
    assert!(until(LONG, pushed), "the second turn is not pushed: {:?}", forge.branches());
    let after = quay.show("claude");
    assert_eq!((&before["id"], &before["task"]), (&after["id"], &after["task"]), "another conversation, or branch");
    assert_eq!((after["turn_count"].clone(), after["turns"][1]["work"]["branch"].as_str()), (json!(2), Some(branch)));
    assert_eq!(forge.branches().len(), 1);
    // What was written while it was away is done, too, once.
    let reviewed = || quay.show("codex")["turn_count"] == 2;
    assert!(until(LONG, reviewed), "what was written while it was away is lost: {}", quay.show("codex"));
    let quiet = || {
        let shown = |agent: &str| {
            let it = quay.show(agent);
            let post = |it: &Value| it["shown"] == it["stage"];
            it["posts"].as_array().unwrap().iter().all(post)
                && it["turns"].as_array().unwrap().iter().all(|it| it["state"] == "done")
        };
        shown("claude") && shown("codex")
    };
    assert!(until(LONG, quiet), "{}\n{}", quay.show("claude"), quay.show("codex"));
    assert_eq!(github.pulls(SHOP).len(), 1, "another pull request");
    let counts = [("claude-bot", issue), ("claude-bot", number), ("codex-bot", number), ("codex-bot", issue)]
        .map(|(app, number)| forge.own(app, number).len());
    assert_eq!(counts, [1, 1, 2, 0], "said twice, or not at all: {:#?}", forge.own("codex-bot", number));
    github.assert_well_behaved();
}

/// Linear, from a session's beginning to its response. The daemon is killed in the middle of the turn, and somebody
/// writes while it is away.
#[test]
fn a_linear_session_from_created_to_response_across_a_kill() {
    let runtime = runtime();
    let linear = runtime.block_on(Linear::start());
    linear.limits(scale());
    let app = linear.app("claude");
    linear.person("ann");
    linear.issue("ENG-1", "Login fails", "Since Monday.");
    let told = Told {
        agents: &["claude"],
        allow: vec!["linear:team".into()],
        urls: vec![("linear", format!("{}/graphql", linear.base_url()))],
        clock: FASTER,
        more: "",
    };
    let quay = Quay::new(&told, linear_variables(&app, ""));
    let hook = || linear.webhook("claude", &quay.url("/webhooks/linear"));
    quay.agent("claude", 1, &careful(&quay.file("first"), &quay.file("second")));
    quay.open("second");
    hook();
    quay.world.ok(&["bridge", "test"]);

    let session = linear.mention("ann", "ENG-1", "claude", "fix the login bug");
    quay.until_at("first");
    runtime.block_on(linear.wait_for(|view| view.session(&session).is_some_and(|it| it.plan.is_array()), LONG));
    let before = quay.show("claude");
    kill_daemon(&quay.world);
    linear.prompt("ann", &session, "and see to the tests");
    quay.up(&[]);
    hook();
    quay.open("first");
    let responses = |view: &View<'_, regatta_testkit::services::linear::World>| {
        view.activities(&session).iter().filter(|it| it.kind == "response").count()
    };
    runtime.block_on(linear.wait_for(|view| responses(view) >= 2, LONG));
    runtime.block_on(linear.wait_for(|view| view.session(&session).is_some_and(|it| it.status == "complete"), LONG));
    // Whatever it was told of more than once, it took once.
    runtime.block_on(linear.wait_for(|view| view.deliveries("claude").iter().all(|it| it.taken()), LONG));
    let over = || {
        let it = quay.show("claude");
        it["posts"].as_array().unwrap().iter().all(|it| it["shown"] == it["stage"])
    };
    assert!(until(LONG, over), "{}", quay.show("claude"));
    let after = quay.show("claude");
    assert_eq!((&before["id"], &before["task"]), (&after["id"], &after["task"]), "another conversation, or branch");
    assert_eq!(after["turn_count"], 2);
    assert_eq!(after["turns"][0]["work"]["branch"], after["turns"][1]["work"]["branch"]);
    let diff = quay.world.json(&["diff", after["task"].as_str().unwrap()]).to_string();
    assert!(diff.contains("fixed") && diff.contains("tested"), "the first turn's work is gone: {diff}");
    let said = linear.session(&session);
    let said: Vec<(&str, &str)> =
        said.done().filter(|it| !it.ephemeral).map(|it| (it.kind.as_str(), it.body())).collect();
    let answers = ["the login bug is fixed", "The tests are there, too."];
    for answer in answers {
        let count = said.iter().filter(|it| it.0 == "response" && it.1.contains(answer)).count();
        assert_eq!(count, 1, "said twice, or not at all: {said:?}");
    }
    assert_eq!(quay.events("task.added"), 1);
    linear.assert_well_behaved();
}
