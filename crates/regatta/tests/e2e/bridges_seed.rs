//! Conversations on GitHub and in Linear, with the whole daemon. The daemon is killed in mid-turn,
//! and people notice nothing. The conversation in Slack is in `bridges`.

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

/// Relaxes the services' deadlines, because the machine may be busy and deadlines are not tested
/// here.
fn scale() -> Scale {
    Scale::faster(FASTER).deadlines(0.1)
}

/// A forge: the double of GitHub's API, and a bare repository as the hosted one. Two agents have an
/// app there.
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

    /// Registers the daemon's present address with GitHub.
    fn hook(&self) {
        self.github.webhook("claude-bot", &self.quay.url("/webhooks/github"));
        self.github.webhook("codex-bot", &self.quay.url("/webhooks/github/codex"));
    }

    /// Kills the daemon, runs `meanwhile`, and starts the daemon again.
    fn crash(&self, meanwhile: impl FnOnce()) {
        kill_daemon(&self.quay.world);
        meanwhile();
        self.quay.up(&[]);
        self.hook();
    }

    /// Waits for a comment of an app that contains `words`.
    fn hears(&self, app: &str, number: u64, words: &str) -> Comment {
        let found = |view: &View<'_, github::World>| {
            let mut own = view.comments(SHOP, number).iter().filter(|it| it.app.as_deref() == Some(app));
            own.find(|it| it.body.contains(words)).cloned()
        };
        self.runtime.block_on(self.github.find(found, LONG))
    }

    /// Returns the comments of an app on an issue or pull request.
    fn own(&self, app: &str, number: u64) -> Vec<Comment> {
        let mut comments = self.github.comments(SHOP, number);
        comments.retain(|it| it.app.as_deref() == Some(app));
        comments
    }

    /// Returns the branches of the forge except the trunk, with their commits.
    fn branches(&self) -> Vec<(String, String)> {
        let all = self.quay.world.git_in(&self.bare, &["for-each-ref", "--format=%(refname:short) %(objectname)"]);
        let all = all.lines().filter_map(|it| it.split_once(' '));
        all.filter(|it| it.0 != "main").map(|it| (it.0.to_owned(), it.1.to_owned())).collect()
    }

    fn file_of(&self, commit: &str, path: &str) -> String {
        self.quay.world.git_in(&self.bare, &["show", &format!("{commit}:{path}")])
    }
}

/// Returns a script that fixes a bug and then adds tests. Each turn waits until its gate is opened.
/// The turns differ only if they share a session, because a session continues its script.
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

/// One agent works on an issue and opens a pull request, and another agent reviews it. The daemon
/// is killed in the middle of both turns of the first agent, and a person writes while no daemon
/// runs. Session and branch stay the same, there is one pull request from the pushed commit, and
/// nothing is posted twice or lost.
#[test]
fn two_agents_work_and_review_on_github_across_kills() {
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
    assert_eq!(done.id, shown.id, "progress and answer must be edits of one comment");
    assert!(done.body.contains("the login bug is fixed") && done.body.contains("a.txt"), "{}", done.body);
    // The pull request is opened from the pushed commit.
    let work = quay.show("claude")["turns"][0]["work"].clone();
    let (branch, commit) = (work["branch"].as_str().unwrap(), work["commit"].as_str().unwrap());
    assert_eq!(forge.branches(), [(branch.to_owned(), commit.to_owned())]);
    let pulls = github.pulls(SHOP);
    let pull = pulls[0].pull.as_ref().unwrap();
    assert_eq!((pulls.len(), pull.head.as_str(), pull.head_sha.as_str()), (1, branch, commit));
    assert!(forge.file_of(commit, "a.txt").ends_with("fixed"));
    assert!(done.body.contains(&format!("PR #{}", pulls[0].number)), "{}", done.body);

    // The second agent reviews it on the pull request.
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
    assert_eq!(review["looks_at"][0], *commit, "codex reviewed another commit: {review}");
    assert!(review["work"].is_null(), "a reviewer's changes were kept as work: {review}");
    assert_eq!(forge.branches(), [(branch.to_owned(), commit.to_owned())], "a reviewer pushed");

    // On its pull request the first agent continues its work in the same session.
    github.comment("ann", SHOP, number, "@claude-bot can you also check the tests?");
    quay.until_at("second");
    let before = quay.show("claude");
    forge.crash(|| _ = github.comment("ann", SHOP, number, "@codex-bot review it again, then"));
    quay.open("second");
    forge.hears("claude-bot", number, "The tests are there, too.");
    let pushed = || forge.branches().first().is_some_and(|it| forge.file_of(&it.1, "a.txt").ends_with("tested"));
    assert!(until(LONG, pushed), "the second turn is not pushed: {:?}", forge.branches());
    let after = quay.show("claude");
    assert_eq!((&before["id"], &before["task"]), (&after["id"], &after["task"]), "another conversation or task");
    assert_eq!((after["turn_count"].clone(), after["turns"][1]["work"]["branch"].as_str()), (json!(2), Some(branch)));
    assert_eq!(forge.branches().len(), 1);
    // The message that was written while no daemon ran is handled once.
    let reviewed = || quay.show("codex")["turn_count"] == 2;
    assert!(until(LONG, reviewed), "the message written while no daemon ran is lost: {}", quay.show("codex"));
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
    assert_eq!(counts, [1, 1, 2, 0], "posted twice, or not at all: {:#?}", forge.own("codex-bot", number));
    github.assert_well_behaved();
}

/// A Linear session from its creation to its responses. The daemon is killed in mid-turn, and a
/// person writes while no daemon runs.
#[test]
fn a_linear_session_has_one_response_per_turn_across_a_kill() {
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
    // Repeated deliveries are accepted and handled once.
    runtime.block_on(linear.wait_for(|view| view.deliveries("claude").iter().all(|it| it.taken()), LONG));
    let over = || {
        let it = quay.show("claude");
        it["posts"].as_array().unwrap().iter().all(|it| it["shown"] == it["stage"])
    };
    assert!(until(LONG, over), "{}", quay.show("claude"));
    let after = quay.show("claude");
    assert_eq!((&before["id"], &before["task"]), (&after["id"], &after["task"]), "another conversation or task");
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
        assert_eq!(count, 1, "posted twice, or not at all: {said:?}");
    }
    assert_eq!(quay.events("task.added"), 1);
    linear.assert_well_behaved();
}
