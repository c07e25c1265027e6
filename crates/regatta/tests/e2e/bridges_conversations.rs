//! Conversations on GitHub and in Linear, with the whole daemon. The daemon is killed in mid-turn,
//! and people notice nothing. The conversation in Slack is in `bridges`.

use std::path::{Path, PathBuf};

use regatta_testkit::services::github::{self, GitHub, GitHubComment};
use regatta_testkit::services::linear::Linear;
use regatta_testkit::services::{DoubleView, TimeScale};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::bridge_world::{
    BridgeWorld, BridgeWorldSettings, gate_step, github_variables, linear_variables, new_runtime,
};
use crate::bridges::CLOCK_SPEED;
use crate::chaos::kill_daemon;
use crate::world::{TEST_TIMEOUT, wait_until};

const REPOSITORY: &str = "acme/shop";

/// Relaxes the services' deadlines, because the machine may be busy and deadlines are not tested
/// here.
fn service_scale() -> TimeScale {
    TimeScale::with_faster_limits(CLOCK_SPEED).with_faster_deadlines(0.1)
}

/// A forge: the double of GitHub's API, and a bare repository as the hosted one. Two agents have an
/// app there.
struct Forge {
    runtime: Runtime,
    github: GitHub,
    world: BridgeWorld,
    bare_repository: PathBuf,
}

impl Forge {
    fn new(scripts: impl Fn(&BridgeWorld) -> [Value; 2]) -> Forge {
        let runtime = new_runtime();
        let github = runtime.block_on(GitHub::start());
        github.set_time_scale(service_scale());
        let apps = [github.add_app("claude-bot"), github.add_app("codex-bot")];
        github.add_repo(REPOSITORY, &["claude-bot", "codex-bot"]);
        github.add_person("ann", REPOSITORY, "write");
        let settings = BridgeWorldSettings {
            agents: &["claude", "codex"],
            allowed_people: vec!["github:write".into()],
            urls: vec![("github", github.base_url())],
            clock_speed: CLOCK_SPEED,
            extra_lines: "deliver = \"pull\"",
        };
        let variables = [
            github_variables(&apps[0], ""),
            github_variables(&apps[1], "__CODEX"),
        ]
        .concat();
        let quay = BridgeWorld::new(&settings, variables);
        let (world, bare) = (&quay.world, quay.world.root.join("forge.git"));
        world.git_in(
            &world.root,
            &["clone", "-q", "--bare", "shop", bare.to_str().unwrap()],
        );
        world.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
        github.set_remote(REPOSITORY, &bare);
        for (name, script) in ["claude", "codex"].into_iter().zip(scripts(&quay)) {
            quay.add_agent(name, 1, &script);
        }
        let forge = Forge {
            runtime,
            github,
            world: quay,
            bare_repository: bare,
        };
        forge.register_webhook();
        forge.world.world.run_ok(&["bridge", "test"]);
        forge
    }

    /// Registers the daemon's present address with GitHub.
    fn register_webhook(&self) {
        self.github
            .set_webhook_url("claude-bot", &self.world.url("/webhooks/github"));
        self.github
            .set_webhook_url("codex-bot", &self.world.url("/webhooks/github/codex"));
    }

    /// Kills the daemon, runs `meanwhile`, and starts the daemon again.
    fn crash_daemon(&self, meanwhile: impl FnOnce()) {
        kill_daemon(&self.world.world);
        meanwhile();
        self.world.start_daemon_without(&[]);
        self.register_webhook();
    }

    /// Waits for a comment of an app that contains `words`.
    fn wait_for_comment(&self, app: &str, number: u64, text: &str) -> GitHubComment {
        let found = |view: &DoubleView<'_, github::GitHubState>| {
            let mut own = view
                .comments(REPOSITORY, number)
                .iter()
                .filter(|github_comment| github_comment.app.as_deref() == Some(app));
            own.find(|github_comment| github_comment.body.contains(text))
                .cloned()
        };
        self.runtime
            .block_on(self.github.wait_for_some(found, TEST_TIMEOUT))
    }

    /// Returns the comments of an app on an issue or pull request.
    fn comments_of(&self, app: &str, number: u64) -> Vec<GitHubComment> {
        let mut comments = self.github.comments(REPOSITORY, number);
        comments.retain(|github_comment| github_comment.app.as_deref() == Some(app));
        comments
    }

    /// Returns the branches of the forge except the trunk, with their commits.
    fn branches(&self) -> Vec<(String, String)> {
        let all = self.world.world.git_in(
            &self.bare_repository,
            &["for-each-ref", "--format=%(refname:short) %(objectname)"],
        );
        let all = all.lines().filter_map(|line| line.split_once(' '));
        all.filter(|(branch, _)| *branch != "main")
            .map(|(branch, commit)| (branch.to_owned(), commit.to_owned()))
            .collect()
    }

    fn file_of(&self, commit: &str, path: &str) -> String {
        self.world.world.git_in(
            &self.bare_repository,
            &["show", &format!("{commit}:{path}")],
        )
    }
}

/// Returns a script that fixes a bug and then adds tests. Each turn waits until its gate is opened.
/// The turns differ only if they share a session, because a session continues its script.
fn script_with_two_gates(first: &Path, second: &Path) -> Value {
    json!([
        { "plan": ["Find it", "Mend it"] },
        { "append": { "path": "a.txt", "text": "fixed\n" } },
        gate_step(first),
        { "say": "Done: the login bug is fixed." },
        { "end_turn": true },
        gate_step(second),
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
        let review = format!("sh {}", quay.file_path("review.sh").display());
        let codex =
            json!([{ "run": review }, { "say": "Found two issues: it has no test, and no name." }]);
        [
            script_with_two_gates(&quay.file_path("first"), &quay.file_path("second")),
            codex,
        ]
    });
    let (github, quay) = (&forge.github, &forge.world);
    let issue = github.open_issue("ann", REPOSITORY, "Login", "@claude-bot fix the login bug");
    quay.wait_until_at_gate("first");
    let shown = forge.wait_for_comment("claude-bot", issue, "⏳");
    forge.crash_daemon(|| ());
    quay.open_gate("first");
    let comment = forge.wait_for_comment("claude-bot", issue, "PR #");
    assert_eq!(
        comment.id, shown.id,
        "progress and answer must be edits of one comment"
    );
    assert!(
        comment.body.contains("the login bug is fixed") && comment.body.contains("a.txt"),
        "{}",
        comment.body
    );
    // The pull request is opened from the pushed commit.
    let work = quay.only_conversation("claude")["turns"][0]["work"].clone();
    let (branch, commit) = (
        work["branch"].as_str().unwrap(),
        work["commit"].as_str().unwrap(),
    );
    assert_eq!(forge.branches(), [(branch.to_owned(), commit.to_owned())]);
    let pulls = github.pulls(REPOSITORY);
    let pull = pulls[0].pull.as_ref().unwrap();
    assert_eq!(
        (pulls.len(), pull.head.as_str(), pull.head_sha.as_str()),
        (1, branch, commit)
    );
    assert!(forge.file_of(commit, "a.txt").ends_with("fixed"));
    assert!(
        comment.body.contains(&format!("PR #{}", pulls[0].number)),
        "{}",
        comment.body
    );

    // The second agent reviews it on the pull request.
    let number = pulls[0].number;
    let base = work["base"].as_str().unwrap();
    let look = format!(
        "set -e\ngit diff --name-only {base} {commit} | grep -qx a.txt\ngit checkout -q --detach \
         {commit}\n\
         grep -qx fixed a.txt\necho scribbled >> a.txt\n"
    );
    std::fs::write(quay.file_path("review.sh"), look).unwrap();
    github.comment(
        "ann",
        REPOSITORY,
        number,
        "@codex-bot review this PR and check for security issues",
    );
    forge.wait_for_comment("codex-bot", number, "Found two issues");
    let review = quay.only_conversation("codex")["turns"][0].clone();
    assert_eq!(
        review["looks_at"][0], *commit,
        "codex reviewed another commit: {review}"
    );
    assert!(
        review["work"].is_null(),
        "a reviewer's changes were kept as work: {review}"
    );
    assert_eq!(
        forge.branches(),
        [(branch.to_owned(), commit.to_owned())],
        "a reviewer pushed"
    );

    // On its pull request the first agent continues its work in the same session.
    github.comment(
        "ann",
        REPOSITORY,
        number,
        "@claude-bot can you also check the tests?",
    );
    quay.wait_until_at_gate("second");
    let before = quay.only_conversation("claude");
    forge.crash_daemon(|| {
        _ = github.comment(
            "ann",
            REPOSITORY,
            number,
            "@codex-bot review it again, then",
        )
    });
    quay.open_gate("second");
    forge.wait_for_comment("claude-bot", number, "The tests are there, too.");
    let pushed = || {
        forge
            .branches()
            .first()
            .is_some_and(|branch| forge.file_of(&branch.1, "a.txt").ends_with("tested"))
    };
    assert!(
        wait_until(TEST_TIMEOUT, pushed),
        "the second turn is not pushed: {:?}",
        forge.branches()
    );
    let after = quay.only_conversation("claude");
    assert_eq!(
        (&before["id"], &before["task"]),
        (&after["id"], &after["task"]),
        "another conversation or task"
    );
    assert_eq!(
        (
            after["turn_count"].clone(),
            after["turns"][1]["work"]["branch"].as_str()
        ),
        (json!(2), Some(branch))
    );
    assert_eq!(forge.branches().len(), 1);
    // The message that was written while no daemon ran is handled once.
    let reviewed = || quay.only_conversation("codex")["turn_count"] == 2;
    assert!(
        wait_until(TEST_TIMEOUT, reviewed),
        "the message written while no daemon ran is lost: {}",
        quay.only_conversation("codex")
    );
    let all_is_shown = || {
        let shown = |agent: &str| {
            let value = quay.only_conversation(agent);
            let post = |post: &Value| post["shown"] == post["stage"];
            value["posts"].as_array().unwrap().iter().all(post)
                && value["turns"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|turn| turn["state"] == "done")
        };
        shown("claude") && shown("codex")
    };
    assert!(
        wait_until(TEST_TIMEOUT, all_is_shown),
        "{}\n{}",
        quay.only_conversation("claude"),
        quay.only_conversation("codex")
    );
    assert_eq!(github.pulls(REPOSITORY).len(), 1, "another pull request");
    let counts = [
        ("claude-bot", issue),
        ("claude-bot", number),
        ("codex-bot", number),
        ("codex-bot", issue),
    ]
    .map(|(app, number)| forge.comments_of(app, number).len());
    assert_eq!(
        counts,
        [1, 1, 2, 0],
        "posted twice, or not at all: {:#?}",
        forge.comments_of("codex-bot", number)
    );
    github.assert_well_behaved();
}

/// A Linear session from its creation to its responses. The daemon is killed in mid-turn, and a
/// person writes while no daemon runs.
#[test]
fn a_linear_session_has_one_response_per_turn_across_a_kill() {
    let runtime = new_runtime();
    let linear = runtime.block_on(Linear::start());
    linear.set_time_scale(service_scale());
    let app = linear.add_app("claude");
    linear.add_person("ann");
    linear.add_issue("ENG-1", "Login fails", "Since Monday.");
    let settings = BridgeWorldSettings {
        agents: &["claude"],
        allowed_people: vec!["linear:team".into()],
        urls: vec![("linear", format!("{}/graphql", linear.base_url()))],
        clock_speed: CLOCK_SPEED,
        extra_lines: "",
    };
    let quay = BridgeWorld::new(&settings, linear_variables(&app, ""));
    let hook = || linear.set_webhook_url("claude", &quay.url("/webhooks/linear"));
    quay.add_agent(
        "claude",
        1,
        &script_with_two_gates(&quay.file_path("first"), &quay.file_path("second")),
    );
    quay.open_gate("second");
    hook();
    quay.world.run_ok(&["bridge", "test"]);

    let session = linear.mention("ann", "ENG-1", "claude", "fix the login bug");
    quay.wait_until_at_gate("first");
    runtime.block_on(linear.wait_for(
        |view| {
            view.session(&session)
                .is_some_and(|linear_session| linear_session.plan.is_array())
        },
        TEST_TIMEOUT,
    ));
    let before = quay.only_conversation("claude");
    kill_daemon(&quay.world);
    linear.send_prompt("ann", &session, "and see to the tests");
    quay.start_daemon_without(&[]);
    hook();
    quay.open_gate("first");
    let responses = |view: &DoubleView<'_, regatta_testkit::services::linear::LinearState>| {
        view.activities(&session)
            .iter()
            .filter(|session_activity| session_activity.kind == "response")
            .count()
    };
    runtime.block_on(linear.wait_for(|view| responses(view) >= 2, TEST_TIMEOUT));
    runtime.block_on(linear.wait_for(
        |view| {
            view.session(&session)
                .is_some_and(|linear_session| linear_session.status == "complete")
        },
        TEST_TIMEOUT,
    ));
    // Repeated deliveries are accepted and handled once.
    runtime.block_on(linear.wait_for(
        |view| {
            view.deliveries("claude")
                .iter()
                .all(|linear_delivery| linear_delivery.is_accepted())
        },
        TEST_TIMEOUT,
    ));
    let over = || {
        let value = quay.only_conversation("claude");
        value["posts"]
            .as_array()
            .unwrap()
            .iter()
            .all(|post| post["shown"] == post["stage"])
    };
    assert!(
        wait_until(TEST_TIMEOUT, over),
        "{}",
        quay.only_conversation("claude")
    );
    let after = quay.only_conversation("claude");
    assert_eq!(
        (&before["id"], &before["task"]),
        (&after["id"], &after["task"]),
        "another conversation or task"
    );
    assert_eq!(after["turn_count"], 2);
    assert_eq!(
        after["turns"][0]["work"]["branch"],
        after["turns"][1]["work"]["branch"]
    );
    let diff = quay
        .world
        .run_json(&["diff", after["task"].as_str().unwrap()])
        .to_string();
    assert!(
        diff.contains("fixed") && diff.contains("tested"),
        "the first turn's work is gone: {diff}"
    );
    let said = linear.session(&session);
    let said: Vec<(&str, &str)> = said
        .agent_activities()
        .filter(|session_activity| !session_activity.is_ephemeral)
        .map(|session_activity| (session_activity.kind.as_str(), session_activity.body()))
        .collect();
    let answers = ["the login bug is fixed", "The tests are there, too."];
    for answer in answers {
        let count = said
            .iter()
            .filter(|said| said.0 == "response" && said.1.contains(answer))
            .count();
        assert_eq!(count, 1, "posted twice, or not at all: {said:?}");
    }
    assert_eq!(quay.event_count("task.added"), 1);
    linear.assert_well_behaved();
}
