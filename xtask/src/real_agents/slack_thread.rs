//! A Slack thread with two real agents: one works, the other reviews the work, and Regatta is
//! killed during a turn. Slack is a double and the models are scripted. A row is one pair of
//! programs; a column is one step, in order.

use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use regatta_testkit::models::{AnswerPace, ModelScript, ModelServer, ModelTurn};
use regatta_testkit::services::TimeScale;
use regatta_testkit::services::slack::{Slack, SlackApp, SlackMessage};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::bench::{AgentBench, ScenarioRun};
use super::fixture::{self, DaemonFixture, top_processes};
use super::install::InstalledPrograms;
use super::programs::{NpmProgram, PermissionMode, ProgramRow, row_of_preset};
use super::sandbox_user::{SandboxUser, kill_pid, processes_with_mark, wait_until};
use super::scenario::ScenarioResult;
use super::table::ReportTable;

/// The time for an answer to appear in the thread, with the slowest program on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(180);

/// The factor by which the clock of the double (the imitation of Slack) runs faster than the clock
/// of Slack.
const TIME_SCALE: f64 = 20.0;

/// The agent that works. [`REVIEWER_NAME`] is the agent that reviews.
const WORKER_NAME: &str = "claude";
const REVIEWER_NAME: &str = "codex";

/// The pairs, by preset: the working agent and the reviewing agent.
const PRESET_PAIRS: [(&str, &str); 2] = [("claude-native", "codex-native"), ("opencode", "gemini")];

/// The text above the table.
const ABOUT: &str = "Two agents are in a Slack workspace, each as an app of its own; the \
    workspace is a double that counts requests and records violations. Fix: a person asks the \
    first agent; its work is a commit on its own branch, and its answer is one message in the \
    thread. Review: the person asks the second agent in the same thread; it reviews that commit \
    in its own session and leaves no work. No mention: a message that mentions no agent starts \
    nothing, because two agents are in the thread. `kill -9`: the first agent is asked again, and \
    Regatta is killed while the model is in the middle of a sentence. The same process continues, \
    its model still has the session and is not asked twice, the work is on the same branch, and \
    nothing is posted twice. End: no process is left (P3), no key is in the data directory (S4), \
    and Slack recorded no violation.";

type ThreadStep = fn(&ThreadWorld<'_>) -> anyhow::Result<()>;

const THREAD_STEPS: [(&str, ThreadStep); 5] = [
    ("fix", step_fix),
    ("review by the other agent", step_review),
    ("message without a mention", step_without_mention),
    ("kill -9 of Regatta during a turn", step_kill_daemon),
    ("end", step_check_double),
];

/// Returns the required programs.
pub(crate) fn needed_programs() -> Vec<&'static NpmProgram> {
    PRESET_PAIRS
        .iter()
        .flat_map(|pair| [row_of_preset(pair.0).program, row_of_preset(pair.1).program])
        .collect()
}

/// Runs the conversation with each pair.
pub(crate) fn thread_table(
    installed: &InstalledPrograms,
    account: SandboxUser,
    (runs, regatta): (&Path, &Path),
    wanted: Option<&str>,
) -> anyhow::Result<ReportTable> {
    let heads = ["worker", "reviewer"]
        .into_iter()
        .chain(THREAD_STEPS.map(|row| row.0))
        .collect();
    let mut table = ReportTable::with_headings("A thread in Slack", ABOUT, heads);
    for (works, looks) in PRESET_PAIRS.map(|pair| (row_of_preset(pair.0), row_of_preset(pair.1))) {
        if !super::is_wanted(wanted, works.program.name) {
            continue;
        }
        let models = ModelServer::start([])?;
        let (runs, regatta) = (runs.to_owned(), Some(regatta.to_owned()));
        let bench = AgentBench {
            installed,
            user: account,
            models: &models,
            runs_dir: runs,
            regatta_binary: regatta,
        };
        let missing = [works.program, looks.program]
            .iter()
            .find_map(|npm_program| installed.missing.get(npm_program.name));
        let cells = match missing {
            Some(why) => vec![ScenarioResult::NotRun(why.clone()); THREAD_STEPS.len()],
            None => run_conversation(&bench, works, looks),
        };
        let words = [works, looks].map(|program| {
            format!(
                "{} {} ({})",
                program.program.name,
                program.program.version,
                program.driver.name()
            )
        });
        table.add_row(words.into(), cells);
    }
    Ok(table)
}

/// Runs one conversation. All its processes end with it.
fn run_conversation(
    bench: &AgentBench<'_>,
    works: ProgramRow,
    looks: ProgramRow,
) -> Vec<ScenarioResult> {
    let world = match ThreadWorld::new(bench, works, looks) {
        Ok(world) => world,
        Err(error) => {
            return vec![ScenarioResult::failed(format!("{error:#}")); THREAD_STEPS.len()];
        }
    };
    let life = &world;
    let steps = THREAD_STEPS
        .map(|(name, step)| -> fixture::ScenarioStep<'_> { (name, Box::new(move || step(life))) });
    let marks = [WORKER_NAME, REVIEWER_NAME].map(|agent| world.mark_of(agent));
    let of = format!(
        "thread of {} and {}",
        works.program.name, looks.program.name
    );
    fixture::run_steps(
        &steps,
        || world.stop_everything(&marks, Duration::ZERO),
        (bench, &of),
    )
}

/// A Slack workspace, and a managed repository with two agents in it.
struct ThreadWorld<'a> {
    fixture: DaemonFixture<'a>,
    run: ScenarioRun,
    slack: Slack,
    /// The runtime of the double.
    _runtime: Runtime,
    worker: SlackApp,
    reviewer: SlackApp,
    /// The first message of the thread.
    root: std::cell::RefCell<String>,
}

impl<'a> Deref for ThreadWorld<'a> {
    type Target = DaemonFixture<'a>;

    fn deref(&self) -> &DaemonFixture<'a> {
        &self.fixture
    }
}

impl<'a> ThreadWorld<'a> {
    fn new(
        bench: &'a AgentBench<'a>,
        works: ProgramRow,
        looks: ProgramRow,
    ) -> anyhow::Result<ThreadWorld<'a>> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let slack = runtime.block_on(Slack::start());
        slack.set_time_scale(TimeScale::with_faster_limits(TIME_SCALE));
        let (first, second) = (
            slack.add_socket_app(WORKER_NAME),
            slack.add_socket_app(REVIEWER_NAME),
        );
        let ann = slack.add_person("ann");
        slack.add_channel("dev", &["ann", WORKER_NAME, REVIEWER_NAME]);
        let run = bench.create_run(&works, "thread", PermissionMode::Never)?;
        let mut desk = DaemonFixture::new(bench, &run)?;
        let suffixed = format!("__{}", REVIEWER_NAME.to_uppercase());
        for (app, suffix) in [(&first, ""), (&second, suffixed.as_str())] {
            desk.env
                .push((format!("SLACK_BOT_TOKEN{suffix}"), app.bot_token.clone()));
            desk.env
                .push((format!("SLACK_APP_TOKEN{suffix}"), app.app_token.clone()));
        }
        let config = run.home.join(".config/regatta");
        std::fs::create_dir_all(&config)?;
        let text = format!(
            "[agents.{WORKER_NAME}]\ndefault = true\n[agents.{REVIEWER_NAME}]\n[bridges]\nallow = \
             [\"slack:{ann}\"]\n\
             clock = {TIME_SCALE:.1}\n[bridges.url]\nslack = \"{}/api\"\n",
            slack.base_url()
        );
        std::fs::write(config.join("config.toml"), text)?;
        let settings = run.dir.join("settings-looks");
        let outfit = bench.outfit(&looks, &settings, PermissionMode::Never)?;
        bench.user.give_ownership(&run.dir)?;
        desk.set_up()?;
        let world = ThreadWorld {
            fixture: desk,
            run,
            slack,
            _runtime: runtime,
            worker: first,
            reviewer: second,
            root: Default::default(),
        };
        world.add_agent(
            WORKER_NAME,
            &works,
            &world.run.outfit,
            &world.mark_of(WORKER_NAME),
        )?;
        world.add_agent(
            REVIEWER_NAME,
            &looks,
            &outfit,
            &world.mark_of(REVIEWER_NAME),
        )?;
        world.run_command(&["bridge", "test"])?;
        Ok(world)
    }

    fn mark_of(&self, name: &str) -> String {
        format!("{}-{name}", self.run.mark)
    }

    /// Returns the marker of a turn for the model server.
    fn marker(&self, label: &str) -> String {
        format!("{}-{label}", self.run.marker)
    }

    /// Posts Ann's message in the thread, with the marker. Returns its timestamp.
    fn post_as_ann(&self, text: &str, label: &str) -> String {
        let root = self.root.borrow().clone();
        let text = format!(
            "{text}. The word is {} and nothing else.",
            self.marker(label)
        );
        self.slack
            .post_as_person("ann", "dev", &text, (!root.is_empty()).then_some(&root))
    }

    /// Returns the messages of an app in the thread, oldest first.
    fn messages_of(&self, app: &SlackApp) -> Vec<String> {
        let root = self.root.borrow();
        self.slack
            .thread("dev", &root)
            .iter()
            .filter(|slack_message| slack_message.user == app.bot_user && slack_message.ts != *root)
            .map(visible_text)
            .collect()
    }

    /// Waits until an app has a finished message in the thread that contains `words`. Returns its
    /// visible text.
    fn wait_for_message(&self, app: &SlackApp, words: &str) -> anyhow::Result<String> {
        let find_message = || {
            self.messages_of(app)
                .into_iter()
                .find(|text| text.contains(words) && !text.starts_with('⏳'))
        };
        wait_until(ANSWER_TIMEOUT, || find_message().is_some());
        find_message().with_context(|| {
            let all = self
                .run_command(&["bridge", "conversations"])
                .unwrap_or_default();
            format!(
                "{words:?} is not in the thread, {:?} are; {all}",
                self.messages_of(app)
            )
        })
    }

    /// Returns an agent's conversation with all details.
    fn conversation(&self, agent: &str) -> anyhow::Result<Value> {
        let all = self.run_command(&["bridge", "conversations"])?;
        let found = all.as_array().and_then(|all| {
            all.iter()
                .find(|conversation| conversation["agent"] == agent)
        });
        let id = found
            .and_then(|found| found["id"].as_str())
            .with_context(|| format!("{agent} has no conversation"))?;
        self.run_command(&["bridge", "show", id])
    }
}

/// Returns the visible text of a message.
fn visible_text(slack_message: &SlackMessage) -> String {
    let blocks = slack_message.blocks.as_array().cloned().unwrap_or_default();
    blocks
        .iter()
        .filter_map(|block| block["text"].as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

fn step_fix(world: &ThreadWorld<'_>) -> anyhow::Result<()> {
    let turns = [
        ModelTurn::from_file_write("login.txt", "fixed\n"),
        ModelTurn::from_text("Done: the login bug is fixed."),
    ];
    world
        .bench
        .models
        .add_script(ModelScript::new(world.marker("fix"), turns));
    let root = world.post_as_ann(&format!("@{WORKER_NAME} fix the login bug"), "fix");
    *world.root.borrow_mut() = root;
    let answer = world.wait_for_message(&world.worker, "the login bug is fixed")?;
    ensure!(
        answer.contains("login.txt"),
        "the answer does not name what was changed: {answer}"
    );
    let work = world.conversation(WORKER_NAME)?["turns"][0]["work"].clone();
    let branch = work["branch"].as_str().unwrap_or_default();
    ensure!(
        branch.starts_with("regatta/T1-fix-the-login-bug") && answer.contains(branch),
        "{work}: {answer}"
    );
    let posts = world.messages_of(&world.worker);
    ensure!(posts.len() == 1, "the answer is not one message: {posts:?}");
    Ok(())
}

fn step_review(world: &ThreadWorld<'_>) -> anyhow::Result<()> {
    let turns = [ModelTurn::from_text(
        "Found two issues: it has no test, and no name.",
    )];
    world
        .bench
        .models
        .add_script(ModelScript::new(world.marker("review"), turns));
    world.post_as_ann(
        &format!("@{REVIEWER_NAME} review it and look for edge cases"),
        "review",
    );
    world.wait_for_message(&world.reviewer, "Found two issues")?;
    let (works, looks) = (
        world.conversation(WORKER_NAME)?,
        world.conversation(REVIEWER_NAME)?,
    );
    let (commit, turn) = (&works["turns"][0]["work"]["commit"], &looks["turns"][0]);
    ensure!(
        commit.is_string() && turn["looks_at"][0] == *commit,
        "the reviewer read {} and not {commit}",
        turn["looks_at"]
    );
    ensure!(
        turn["work"].is_null(),
        "the review changed files: {}",
        turn["work"]
    );
    ensure!(
        works["turn_count"] == 1,
        "the other agent was asked too: {works}"
    );
    Ok(())
}

fn step_without_mention(world: &ThreadWorld<'_>) -> anyhow::Result<()> {
    let before = (
        world.messages_of(&world.worker),
        world.messages_of(&world.reviewer),
    );
    let plain = world.post_as_ann("thanks, can you also check the tests", "nobody");
    // A later message in the thread was handled, so this one was seen and ignored.
    let turns = [ModelTurn::from_text("It is still the same.")];
    world
        .bench
        .models
        .add_script(ModelScript::new(world.marker("look"), turns));
    world.post_as_ann(&format!("@{REVIEWER_NAME} review it again"), "look");
    world.wait_for_message(&world.reviewer, "It is still the same.")?;
    ensure!(
        world.slack.reactions("dev", &plain).is_empty(),
        "an agent reacted to a message without a mention"
    );
    let turns = [WORKER_NAME, REVIEWER_NAME].map(|agent| {
        world
            .conversation(agent)
            .map(|world| world["turn_count"].clone())
    });
    let [works, looks] = turns;
    ensure!(
        works? == 1 && looks? == 2,
        "an agent was asked by a message without a mention"
    );
    ensure!(
        world.messages_of(&world.worker) == before.0,
        "an agent that was not asked has answered"
    );
    ensure!(
        world.messages_of(&world.reviewer).len() == before.1.len() + 1,
        "{:?}",
        world.messages_of(&world.reviewer)
    );
    Ok(())
}

fn step_kill_daemon(world: &ThreadWorld<'_>) -> anyhow::Result<()> {
    let (marker, models) = (world.marker("tests"), world.bench.models);
    let words = "The tests are there, too, and I have looked at each of them for a long time.";
    let last = ModelTurn::from_text(words).with_pace(AnswerPace::Hang {
        gate: marker.clone(),
    });
    models.add_script(ModelScript::new(
        &marker,
        [ModelTurn::from_file_write("tests.txt", "tested\n"), last],
    ));
    world.post_as_ann(
        &format!("@{WORKER_NAME} can you also check the tests"),
        "tests",
    );
    let hanging = || {
        let requests = models.requests_of(&marker);
        requests.iter().any(|request| {
            request.outcome.is_none() && request.story.as_ref().is_some_and(|story| story.1 == 1)
        })
    };
    ensure!(
        wait_until(ANSWER_TIMEOUT, hanging),
        "the model was not asked: {}",
        world.conversation(WORKER_NAME)?
    );
    let before = world.conversation(WORKER_NAME)?;
    let programs = top_processes(&processes_with_mark(&world.mark_of(WORKER_NAME)));
    ensure!(!programs.is_empty(), "the agent has no process");
    kill_pid(world.daemon_pid()?);
    world.run_command(&["up"])?;
    ensure!(
        top_processes(&processes_with_mark(&world.mark_of(WORKER_NAME))) == programs,
        "P1: the agent did not outlive the daemon"
    );
    models.release(&marker);
    let answer = world.wait_for_message(&world.worker, "The tests are there, too")?;
    let after = world.conversation(WORKER_NAME)?;
    ensure!(before["task"] == after["task"], "another task: {after}");
    let branch = |turn: usize| after["turns"][turn]["work"]["branch"].clone();
    ensure!(
        branch(0).is_string() && branch(0) == branch(1),
        "another branch: {} and {}",
        branch(0),
        branch(1)
    );
    let task = after["task"].as_str().unwrap_or_default();
    let diff = world.run_command(&["diff", task])?.to_string();
    ensure!(
        diff.contains("fixed") && diff.contains("tested"),
        "the first turn's work is gone: {diff}"
    );
    // Earlier messages are part of the session and are not sent again.
    let requests: Vec<_> = models
        .requests_of(&marker)
        .into_iter()
        .filter(|request| !request.is_side_request)
        .collect();
    ensure!(
        requests.len() == 2,
        "the model was asked {} times, not twice",
        requests.len()
    );
    let first = world.marker("fix");
    let whole = requests.iter().all(|request| {
        request
            .user_texts
            .iter()
            .any(|user_text| user_text.contains(&first) && !user_text.contains(&marker))
    });
    ensure!(whole, "another session: {:?}", requests[0].user_texts);
    let posts = world.messages_of(&world.worker);
    ensure!(
        posts.len() == 2,
        "the answer was posted twice, or not at all: {posts:?}; the answer: {answer}"
    );
    ensure!(
        world.conversation(REVIEWER_NAME)?["turn_count"] == 2,
        "the other agent was asked too"
    );
    Ok(())
}

fn step_check_double(world: &ThreadWorld<'_>) -> anyhow::Result<()> {
    let violations = world.slack.violations();
    ensure!(
        violations.is_empty(),
        "violations of Slack's rules: {violations:?}"
    );
    Ok(())
}
