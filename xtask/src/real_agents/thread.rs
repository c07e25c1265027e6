//! A Slack thread with two real agents: one works, the other reviews the work, and Regatta is
//! killed during a turn. Slack is a double and the models are scripted. A row is one pair of
//! programs; a column is one step, in order.

use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use regatta_testkit::models::{ModelServer, Pace, Story, Turn};
use regatta_testkit::services::Scale;
use regatta_testkit::services::slack::{App, Message, Slack};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::account::{Account, kill, marked, until};
use super::bench::{Bench, Run};
use super::cell::Cell;
use super::desk::{self, Desk, tops};
use super::install::Installed;
use super::programs::{Asks, Program, Row, row};
use super::table::Table;

/// The time for an answer to appear in the thread, with the slowest program on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// How much faster than Slack's the double's clock runs.
const FASTER: f64 = 20.0;

/// The agent that works. [`LOOKS`] is the agent that reviews.
const WORKS: &str = "claude";
const LOOKS: &str = "codex";

/// The pairs, by preset: the working agent and the reviewing agent.
const PAIRS: [(&str, &str); 2] = [("claude-native", "codex-native"), ("opencode", "gemini")];

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

type Step = fn(&World<'_>) -> anyhow::Result<()>;

const STEPS: [(&str, Step); 5] = [
    ("fix", fix),
    ("review by the other agent", review),
    ("message without a mention", nobody),
    ("kill -9 of Regatta during a turn", killed),
    ("end", well_behaved),
];

/// Returns the required programs.
pub(crate) fn programs() -> Vec<&'static Program> {
    PAIRS.iter().flat_map(|it| [row(it.0).program, row(it.1).program]).collect()
}

/// Runs the conversation with each pair.
pub(crate) fn table(
    installed: &Installed,
    account: Account,
    (runs, regatta): (&Path, &Path),
    wanted: Option<&str>,
) -> anyhow::Result<Table> {
    let heads = ["worker", "reviewer"].into_iter().chain(STEPS.map(|it| it.0)).collect();
    let mut table = Table::with("A thread in Slack", ABOUT, heads);
    for (works, looks) in PAIRS.map(|it| (row(it.0), row(it.1))) {
        if !super::named(wanted, works.program.name) {
            continue;
        }
        let models = ModelServer::start([])?;
        let (runs, regatta) = (runs.to_owned(), Some(regatta.to_owned()));
        let bench = Bench { installed, account, models: &models, runs, regatta };
        let missing = [works.program, looks.program].iter().find_map(|it| installed.missing.get(it.name));
        let cells = match missing {
            Some(why) => vec![Cell::NotRun(why.clone()); STEPS.len()],
            None => life(&bench, works, looks),
        };
        let words =
            [works, looks].map(|it| format!("{} {} ({})", it.program.name, it.program.version, it.drive.name()));
        table.put(words.into(), cells);
    }
    Ok(table)
}

/// Runs one conversation. All its processes end with it.
fn life(bench: &Bench<'_>, works: Row, looks: Row) -> Vec<Cell> {
    let world = match World::new(bench, works, looks) {
        Ok(world) => world,
        Err(error) => return vec![Cell::failed(format!("{error:#}")); STEPS.len()],
    };
    let life = &world;
    let steps = STEPS.map(|(name, step)| -> desk::Step<'_> { (name, Box::new(move || step(life))) });
    let marks = [WORKS, LOOKS].map(|it| world.mark_of(it));
    let of = format!("thread of {} and {}", works.program.name, looks.program.name);
    desk::life(&steps, || world.end(&marks, Duration::ZERO), (bench, &of))
}

/// A Slack workspace, and a managed repository with two agents in it.
struct World<'a> {
    desk: Desk<'a>,
    run: Run,
    slack: Slack,
    /// The runtime of the double.
    _runtime: Runtime,
    works: App,
    looks: App,
    /// The first message of the thread.
    root: std::cell::RefCell<String>,
}

impl<'a> Deref for World<'a> {
    type Target = Desk<'a>;

    fn deref(&self) -> &Desk<'a> {
        &self.desk
    }
}

impl<'a> World<'a> {
    fn new(bench: &'a Bench<'a>, works: Row, looks: Row) -> anyhow::Result<World<'a>> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let slack = runtime.block_on(Slack::start());
        slack.limits(Scale::faster(FASTER));
        let (first, second) = (slack.app(WORKS), slack.app(LOOKS));
        let ann = slack.person("ann");
        slack.channel("dev", &["ann", WORKS, LOOKS]);
        let run = bench.place(&works, "thread", Asks::Never)?;
        let mut desk = Desk::new(bench, &run)?;
        let suffixed = format!("__{}", LOOKS.to_uppercase());
        for (app, suffix) in [(&first, ""), (&second, suffixed.as_str())] {
            desk.env.push((format!("SLACK_BOT_TOKEN{suffix}"), app.bot_token.clone()));
            desk.env.push((format!("SLACK_APP_TOKEN{suffix}"), app.app_token.clone()));
        }
        let config = run.home.join(".config/regatta");
        std::fs::create_dir_all(&config)?;
        let text = format!(
            "[agents.{WORKS}]\ndefault = true\n[agents.{LOOKS}]\n[bridges]\nallow = [\"slack:{ann}\"]\n\
             clock = {FASTER:.1}\n[bridges.url]\nslack = \"{}/api\"\n",
            slack.base_url()
        );
        std::fs::write(config.join("config.toml"), text)?;
        let settings = run.dir.join("settings-looks");
        let outfit = bench.outfit(&looks, &settings, Asks::Never)?;
        bench.account.give(&run.dir)?;
        desk.set_up()?;
        let world =
            World { desk, run, slack, _runtime: runtime, works: first, looks: second, root: Default::default() };
        world.add_agent(WORKS, &works, &world.run.outfit, &world.mark_of(WORKS))?;
        world.add_agent(LOOKS, &looks, &outfit, &world.mark_of(LOOKS))?;
        world.ask(&["bridge", "test"])?;
        Ok(world)
    }

    fn mark_of(&self, name: &str) -> String {
        format!("{}-{name}", self.run.mark)
    }

    /// Returns the marker of a turn for the model server.
    fn marker(&self, what: &str) -> String {
        format!("{}-{what}", self.run.marker)
    }

    /// Posts Ann's message in the thread, with the marker. Returns its timestamp.
    fn say(&self, text: &str, what: &str) -> String {
        let root = self.root.borrow().clone();
        let text = format!("{text}. The word is {} and nothing else.", self.marker(what));
        self.slack.say("ann", "dev", &text, (!root.is_empty()).then_some(&root))
    }

    /// Returns the messages of an app in the thread, oldest first.
    fn posted(&self, app: &App) -> Vec<String> {
        let root = self.root.borrow();
        self.slack
            .thread("dev", &root)
            .iter()
            .filter(|it| it.user == app.bot_user && it.ts != *root)
            .map(shown)
            .collect()
    }

    /// Waits until an app has a finished message in the thread that contains `words`. Returns its
    /// visible text.
    fn hears(&self, app: &App, words: &str) -> anyhow::Result<String> {
        let said = || self.posted(app).into_iter().find(|it| it.contains(words) && !it.starts_with('⏳'));
        until(PATIENCE, || said().is_some());
        said().with_context(|| {
            let all = self.ask(&["bridge", "conversations"]).unwrap_or_default();
            format!("{words:?} is not in the thread, {:?} are; {all}", self.posted(app))
        })
    }

    /// Returns an agent's conversation with all details.
    fn conversation(&self, agent: &str) -> anyhow::Result<Value> {
        let all = self.ask(&["bridge", "conversations"])?;
        let found = all.as_array().and_then(|all| all.iter().find(|it| it["agent"] == agent));
        let id = found.and_then(|it| it["id"].as_str()).with_context(|| format!("{agent} has no conversation"))?;
        self.ask(&["bridge", "show", id])
    }
}

/// Returns the visible text of a message.
fn shown(it: &Message) -> String {
    let blocks = it.blocks.as_array().cloned().unwrap_or_default();
    blocks.iter().filter_map(|it| it["text"].as_str()).collect::<Vec<_>>().join("\n")
}

fn fix(world: &World<'_>) -> anyhow::Result<()> {
    let turns = [Turn::write("login.txt", "fixed\n"), Turn::say("Done: the login bug is fixed.")];
    world.bench.models.tell(Story::new(world.marker("fix"), turns));
    let root = world.say(&format!("@{WORKS} fix the login bug"), "fix");
    *world.root.borrow_mut() = root;
    let answer = world.hears(&world.works, "the login bug is fixed")?;
    ensure!(answer.contains("login.txt"), "the answer does not name what was changed: {answer}");
    let work = world.conversation(WORKS)?["turns"][0]["work"].clone();
    let branch = work["branch"].as_str().unwrap_or_default();
    ensure!(branch.starts_with("regatta/T1-fix-the-login-bug") && answer.contains(branch), "{work}: {answer}");
    let posts = world.posted(&world.works);
    ensure!(posts.len() == 1, "the answer is not one message: {posts:?}");
    Ok(())
}

fn review(world: &World<'_>) -> anyhow::Result<()> {
    let turns = [Turn::say("Found two issues: it has no test, and no name.")];
    world.bench.models.tell(Story::new(world.marker("review"), turns));
    world.say(&format!("@{LOOKS} review it and look for edge cases"), "review");
    world.hears(&world.looks, "Found two issues")?;
    let (works, looks) = (world.conversation(WORKS)?, world.conversation(LOOKS)?);
    let (commit, turn) = (&works["turns"][0]["work"]["commit"], &looks["turns"][0]);
    ensure!(commit.is_string() && turn["looks_at"][0] == *commit, "the reviewer read {} and not {commit}", turn["looks_at"]);
    ensure!(turn["work"].is_null(), "the review changed files: {}", turn["work"]);
    ensure!(works["turn_count"] == 1, "the other agent was asked too: {works}");
    Ok(())
}

fn nobody(world: &World<'_>) -> anyhow::Result<()> {
    let before = (world.posted(&world.works), world.posted(&world.looks));
    let plain = world.say("thanks, can you also check the tests", "nobody");
    // A later message in the thread was handled, so this one was seen and ignored.
    let turns = [Turn::say("It is still the same.")];
    world.bench.models.tell(Story::new(world.marker("look"), turns));
    world.say(&format!("@{LOOKS} review it again"), "look");
    world.hears(&world.looks, "It is still the same.")?;
    ensure!(world.slack.reactions("dev", &plain).is_empty(), "an agent reacted to a message without a mention");
    let turns = [WORKS, LOOKS].map(|it| world.conversation(it).map(|it| it["turn_count"].clone()));
    let [works, looks] = turns;
    ensure!(works? == 1 && looks? == 2, "an agent was asked by a message without a mention");
    ensure!(world.posted(&world.works) == before.0, "an agent that was not asked has answered");
    ensure!(world.posted(&world.looks).len() == before.1.len() + 1, "{:?}", world.posted(&world.looks));
    Ok(())
}

fn killed(world: &World<'_>) -> anyhow::Result<()> {
    let (marker, models) = (world.marker("tests"), world.bench.models);
    let words = "The tests are there, too, and I have looked at each of them for a long time.";
    let last = Turn::say(words).paced(Pace::Hang { gate: marker.clone() });
    models.tell(Story::new(&marker, [Turn::write("tests.txt", "tested\n"), last]));
    world.say(&format!("@{WORKS} can you also check the tests"), "tests");
    let hanging = || {
        let seen = models.seen_of(&marker);
        seen.iter().any(|it| it.ended.is_none() && it.story.as_ref().is_some_and(|it| it.1 == 1))
    };
    ensure!(until(PATIENCE, hanging), "the model was not asked: {}", world.conversation(WORKS)?);
    let before = world.conversation(WORKS)?;
    let programs = tops(&marked(&world.mark_of(WORKS)));
    ensure!(!programs.is_empty(), "the agent has no process");
    kill(world.daemon()?);
    world.ask(&["up"])?;
    ensure!(tops(&marked(&world.mark_of(WORKS))) == programs, "P1: the agent did not outlive the daemon");
    models.release(&marker);
    let answer = world.hears(&world.works, "The tests are there, too")?;
    let after = world.conversation(WORKS)?;
    ensure!(before["task"] == after["task"], "another task: {after}");
    let branch = |turn: usize| after["turns"][turn]["work"]["branch"].clone();
    ensure!(branch(0).is_string() && branch(0) == branch(1), "another branch: {} and {}", branch(0), branch(1));
    let task = after["task"].as_str().unwrap_or_default();
    let diff = world.ask(&["diff", task])?.to_string();
    ensure!(diff.contains("fixed") && diff.contains("tested"), "the first turn's work is gone: {diff}");
    // Earlier messages are part of the session and are not sent again.
    let seen: Vec<_> = models.seen_of(&marker).into_iter().filter(|it| !it.side).collect();
    ensure!(seen.len() == 2, "the model was asked {} times, not twice", seen.len());
    let first = world.marker("fix");
    let whole = seen.iter().all(|it| it.users.iter().any(|it| it.contains(&first) && !it.contains(&marker)));
    ensure!(whole, "another session: {:?}", seen[0].users);
    let posts = world.posted(&world.works);
    ensure!(posts.len() == 2, "the answer was posted twice, or not at all: {posts:?}; the answer: {answer}");
    ensure!(world.conversation(LOOKS)?["turn_count"] == 2, "the other agent was asked too");
    Ok(())
}

fn well_behaved(world: &World<'_>) -> anyhow::Result<()> {
    let violations = world.slack.violations();
    ensure!(violations.is_empty(), "violations of Slack's rules: {violations:?}");
    Ok(())
}
