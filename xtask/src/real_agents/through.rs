//! The scenarios with the real binary: a repository, a daemon, an agent, a task, and the result on
//! the trunk.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, ensure};
use regatta_testkit::models::{Act, Ended, Failure, Hold, Story, Turn};
use serde_json::json;

use super::account::{called, kill, marked, until};
use super::bench::{Bench, CONTENT, FILE, Run};
use super::cell::{Cell, Scenario};
use super::desk::{Desk, parent, sum};
use super::programs::{Asks, Row};
use super::straight::{hangs, writes};

/// The time from the plan to the trunk, with the slowest program on a busy machine.
const LANDS: Duration = Duration::from_secs(180);
/// The time for a program to start and call the model.
const STARTS: Duration = Duration::from_secs(90);
/// The time for something that should take a second or two.
const SOON: Duration = Duration::from_secs(45);

/// The only task of the plan.
const TASK: &str = "T1";
const AGENT: &str = "real";

/// The text above the table.
pub(crate) const ABOUT: &str = "Each run has a repository, a real daemon, an agent added with its \
    preset, and a task, and checks what reaches the trunk. It also looks for leftover processes \
    (P3) and for the key in the data directory (S4). In \"call a Regatta tool\" the model calls \
    `progress` of the MCP server that the program was given with the attempt's token, and the \
    progress must be on the board. Codex does not list the tools of servers, so there the model \
    searches for the tool first. In \"daemon restart mid-turn\" the daemon is killed with `kill \
    -9`.";

/// Returns the binary to use: the given one, or the newest build.
pub(crate) fn binary(target: &Path, named: Option<&str>) -> anyhow::Result<PathBuf> {
    if let Some(named) = named {
        return std::fs::canonicalize(named).with_context(|| format!("there is no {named}"));
    }
    let built = ["release", "debug"].map(|it| target.join(it).join("regatta"));
    built.into_iter().find(|it| it.exists()).context("no regatta binary was built; build it: cargo build -p regatta")
}

/// Runs one scenario. All its processes end with it.
pub(crate) fn run(bench: &Bench<'_>, row: &Row, scenario: Scenario) -> Cell {
    if scenario == Scenario::Permission
        && let Some(why) = row.never_asks()
    {
        return Cell::NotPossible(why.into());
    }
    let asks = if scenario == Scenario::Permission { Asks::Always } else { Asks::Never };
    let world = match World::new(bench, row, scenario, asks) {
        Ok(world) => world,
        Err(error) => return Cell::failed(format!("{error:#}")),
    };
    let done = world.set_up(row).and_then(|()| match scenario {
        Scenario::Write => write(&world),
        Scenario::Tool => tool(&world, row),
        Scenario::Permission => permission(&world),
        Scenario::Cancel => cancel(&world),
        Scenario::Restart => restart(&world),
        Scenario::Limited | Scenario::Overloaded => refused_for_a_while(&world, scenario),
        Scenario::UsedUp => used_up(&world),
        Scenario::Kill => kill_agent(&world),
    });
    let ended = world.end();
    sum(done, ended, bench)
}

/// A managed repository with one agent.
struct World<'a> {
    desk: Desk<'a>,
    run: Run,
}

impl<'a> Deref for World<'a> {
    type Target = Desk<'a>;

    fn deref(&self) -> &Desk<'a> {
        &self.desk
    }
}

impl<'a> World<'a> {
    /// Creates the directories. Nothing runs yet.
    fn new(bench: &'a Bench<'a>, row: &Row, scenario: Scenario, asks: Asks) -> anyhow::Result<World<'a>> {
        let run = bench.place(row, scenario.word(), asks)?;
        Ok(World { desk: Desk::new(bench, &run)?, run })
    }

    fn set_up(&self, row: &Row) -> anyhow::Result<()> {
        self.desk.set_up()?;
        self.add_agent(AGENT, row, &self.run.outfit, &self.run.mark)
    }

    /// Starts the plan in the background.
    fn start(&self) -> anyhow::Result<Going> {
        let plan = self.run.dir.join("plan.toml");
        let text = format!(
            "[[task]]\nid = \"one\"\nsubject = \"Write {FILE}\"\ndescription = \"The word is {} and nothing else.\"\n\
             files = [\"{FILE}\"]\nvalidation = {{ files_exist = [\"{FILE}\"] }}\n",
            self.run.marker
        );
        std::fs::write(&plan, text)?;
        let plan = plan.to_string_lossy().into_owned();
        let mut command = self.words(&["run", &plan, "--agents", AGENT, "--yes", "--wait", "--json"]);
        let out = self.run.dir.join("run.out");
        command.stdout(std::fs::File::create(&out)?).stderr(std::fs::File::create(self.run.dir.join("run.err"))?);
        Ok(Going { child: command.spawn()?, out })
    }

    /// Returns whether the file is on the trunk with the story's content.
    fn landed(&self) -> bool {
        let shown = self.bench.git(&self.run.work, &["show", &format!("main:{FILE}")]);
        shown.is_ok_and(|it| it == CONTENT.trim_end())
    }

    /// Waits until the model server holds the answer.
    fn until_hanging(&self) -> anyhow::Result<()> {
        let hanging = || self.bench.models.seen_of(&self.run.marker).iter().any(|it| it.ended.is_none());
        ensure!(until(STARTS, hanging), "the model was not asked: {}", self.why());
        Ok(())
    }

    /// Returns the reason why the task waits, for a report.
    fn why(&self) -> String {
        match self.ask(&["why", TASK]) {
            Ok(why) => why.to_string(),
            Err(error) => format!("{error:#}"),
        }
    }

    /// Returns the agent's main process: the marked process whose parent is not marked.
    fn agent(&self) -> anyhow::Result<u32> {
        let all = marked(&self.run.mark);
        let top = all.iter().find(|it| parent(**it).is_some_and(|it| !all.contains(&it)));
        top.copied().context("the agent has no process")
    }

    /// Stops everything.
    fn end(&self) -> anyhow::Result<()> {
        self.desk.end(std::slice::from_ref(&self.run.mark), Duration::from_secs(10))
    }
}

/// A running plan.
struct Going {
    child: Child,
    out: PathBuf,
}

impl Going {
    /// Waits for the end of the plan. Returns its exit code and output.
    fn end(mut self, patience: Duration) -> anyhow::Result<(i32, String)> {
        let mut status = None;
        until(patience, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        let said = std::fs::read_to_string(&self.out).unwrap_or_default();
        let status = status.with_context(|| format!("`regatta run` did not end within {patience:?}: {said}"))?;
        Ok((status.code().unwrap_or(-1), said))
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Waits until the plan ends well and the file is on the trunk.
fn lands(world: &World<'_>, going: Going) -> anyhow::Result<Cell> {
    let (code, said) = going.end(LANDS)?;
    Ok(match code {
        0 if world.landed() => Cell::passed(),
        0 => Cell::failed("the plan ended well, but the file is not on the trunk"),
        code => Cell::failed(format!("`regatta run` ended with {code}: {said} {}", world.why())),
    })
}

fn write(world: &World<'_>) -> anyhow::Result<Cell> {
    world.bench.models.tell(writes(&world.run.marker));
    lands(world, world.start()?)
}

/// Checks that the program has Regatta's tools and the attempt's token: a text that the model sends
/// with a tool reaches the board.
fn tool(world: &World<'_>, row: &Row) -> anyhow::Result<Cell> {
    let words = "Said with a tool of Regatta's.";
    let call = Act::Call { tool: "progress".into(), input: json!({ "text": words }) };
    let mut turns = vec![Turn::act(call), Turn::write(FILE, CONTENT), Turn::say("It is written.")];
    // Codex does not list the tools of MCP servers; its model searches for a known tool.
    if row.program.name.starts_with("codex") {
        turns.insert(0, Turn::act(Act::Find { tool: "progress".into() }));
    }
    world.bench.models.tell(Story::new(&world.run.marker, turns));
    let cell = lands(world, world.start()?)?;
    let events = world.words(&["events", "--json"]).output()?;
    let events = String::from_utf8_lossy(&events.stdout).into_owned();
    if !cell.is_good() || events.lines().any(|it| it.contains("task.progressed") && it.contains(words)) {
        return Ok(cell);
    }
    let answers: Vec<String> =
        world.bench.models.seen_of(&world.run.marker).into_iter().flat_map(|it| it.results).collect();
    Ok(Cell::failed(format!("the text is not on the board; the tool answered {answers:?}")))
}

/// Checks that a permission request reaches the inbox, and that allowing it lets the program
/// continue.
fn permission(world: &World<'_>) -> anyhow::Result<Cell> {
    world.bench.models.tell(writes(&world.run.marker));
    world.ask(&["policy", "add", "ask", "--for", "all"])?;
    let going = world.start()?;
    let mut answered = 0;
    let open = || -> anyhow::Result<Option<String>> {
        let inbox = world.ask(&["inbox"])?;
        let items = inbox.as_array().or_else(|| inbox["items"].as_array()).cloned().unwrap_or_default();
        // A task that needs a person is in the inbox too, under its own id.
        Ok(items.iter().filter_map(|it| it["id"].as_str()).find(|it| it.starts_with('Q')).map(str::to_owned))
    };
    let mut trouble = None;
    until(LANDS, || {
        match open() {
            Ok(Some(id)) => match world.ask(&["allow", &id]) {
                Ok(_) => answered += 1,
                Err(error) => trouble = Some(error),
            },
            Ok(None) => {}
            Err(error) => trouble = Some(error),
        }
        trouble.is_some() || world.landed()
    });
    if let Some(error) = trouble {
        return Err(error);
    }
    if answered == 0 {
        return Ok(Cell::failed(format!("the program did not ask for permission: {}", world.why())));
    }
    lands(world, going)
}

/// Checks that a stop during a turn ends the model call and all processes, and that nothing lands.
fn cancel(world: &World<'_>) -> anyhow::Result<Cell> {
    world.bench.models.tell(hangs(&world.run.marker));
    let going = world.start()?;
    world.until_hanging()?;
    world.ask(&["stop", TASK])?;
    let quiet = || world.bench.models.seen_of(&world.run.marker).iter().all(|it| it.ended == Some(Ended::HungUp));
    if !until(SOON, quiet) {
        return Ok(Cell::failed("the call of the model was not ended"));
    }
    if !until(SOON, || marked(&world.run.mark).is_empty()) {
        let left: Vec<String> = marked(&world.run.mark).into_iter().map(called).collect();
        return Ok(Cell::failed(format!("P3: {} still runs after the stop", left.join(", "))));
    }
    let (code, said) = going.end(SOON)?;
    Ok(match code {
        _ if world.landed() => Cell::failed("the work landed nevertheless"),
        0 => Cell::failed(format!("the stopped plan ended with success: {said}")),
        _ => Cell::passed(),
    })
}

/// Checks that the program survives the death of the daemon during a turn, and that the turn is
/// requested only once.
fn restart(world: &World<'_>) -> anyhow::Result<Cell> {
    world.bench.models.tell(hangs(&world.run.marker));
    let going = world.start()?;
    world.until_hanging()?;
    let agent = world.agent()?;
    kill(world.daemon()?);
    drop(going);
    world.ask(&["up"])?;
    if world.agent().ok() != Some(agent) {
        return Ok(Cell::failed("P1: the agent did not outlive the daemon"));
    }
    world.bench.models.release(&world.run.marker);
    if !until(LANDS, || world.landed()) {
        return Ok(Cell::failed(format!("the work did not land: {}", world.why())));
    }
    let asked = world.bench.models.seen_of(&world.run.marker).len();
    Ok(if asked == 2 { Cell::passed() } else { Cell::failed(format!("the model was asked {asked} times, not twice")) })
}

/// Checks that work lands after the provider has refused for a while, whether the program or
/// Regatta waits.
fn refused_for_a_while(world: &World<'_>, scenario: Scenario) -> anyhow::Result<Cell> {
    let (failure, time) = match scenario {
        Scenario::Limited => {
            let reset = Duration::from_secs(3);
            (Failure::RateLimited { reset }, reset)
        }
        _ => (Failure::Overloaded, Duration::from_secs(20)),
    };
    let turns = [Turn::fail(failure).held(Hold::For(time)), Turn::write(FILE, CONTENT), Turn::say("It is written.")];
    world.bench.models.tell(Story::new(&world.run.marker, turns));
    lands(world, world.start()?)
}

/// Checks that a task waits for the reset, and shows that, when the allowance is used up for an
/// hour.
fn used_up(world: &World<'_>) -> anyhow::Result<Cell> {
    let failure = Failure::UsedUp { reset: Duration::from_secs(3600) };
    world.bench.models.tell(Story::new(&world.run.marker, []).then_always(Turn::fail(failure)));
    // Some programs wait for the hour without output; then Regatta's limit of silence ends them.
    world.ask(&["config", "set", "silence", "60s"])?;
    let going = world.start()?;
    let mut why = String::new();
    let ended = until(LANDS, || {
        why = world.why();
        why.contains("rate_limit") || why.contains("nothing was heard of it")
    });
    drop(going);
    Ok(match ended {
        true if why.contains("rate_limit") => Cell::passed(),
        true => Cell::Passed("the program does not report the limit; Regatta's limit of silence ended it".into()),
        false => Cell::failed(format!("the task does not wait for the reset: {why}")),
    })
}

/// Checks that another attempt does the work after the program was killed, and that nothing of the
/// first one keeps running.
fn kill_agent(world: &World<'_>) -> anyhow::Result<Cell> {
    let mut story = hangs(&world.run.marker);
    // The model does not hang when it is called again: the next attempt writes the file.
    story.turns.truncate(1);
    story.turns.extend(writes(&world.run.marker).turns);
    world.bench.models.tell(story);
    let going = world.start()?;
    world.until_hanging()?;
    let first = marked(&world.run.mark);
    kill(world.agent()?);
    let cell = lands(world, going)?;
    let alive: Vec<String> = marked(&world.run.mark).into_iter().filter(|it| first.contains(it)).map(called).collect();
    Ok(if alive.is_empty() { cell } else { Cell::failed(format!("{} outlived the killed program", alive.join(", "))) })
}
