//! Mixed teams of real programs: one lead, and two members of OpenCode on lanes of their own. A row
//! is one lead; a column is one step of the team's life, in order. Steps after a failed one are not
//! run.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use regatta_testkit::models::{Api, ModelServer, Story, Turn};
use serde_json::{Value, json};

use super::account::{Account, MARK, called, kill, marked, until};
use super::bench::Bench;
use super::cell::Cell;
use super::desk::{self, Desk, KEY_VARIABLE, tops};
use super::install::Installed;
use super::programs::{Asks, Outfit, ROWS, Row, row};
use super::table::Table;

/// The time for a team to come up or a task to land, with the slowest program on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The lead. [`ASIDE`] are the members on lanes of their own.
const LEAD: &str = "amy";
const ASIDE: [&str; 2] = ["tom", "bob"];

/// The text above the table.
const ABOUT: &str = "A team has one lead and two members of OpenCode. Each is in the default \
    sandbox, with its own home, store, settings and key. Launch: all three answer their first \
    prompt, each on its own lane, with the program and version that were found. The lead asks for \
    fast mode, and only its model gets it; Gemini has none, and the record shows that. Message: a \
    message on the bus reaches each member's model. A task each: three tasks are assigned and \
    land. `kill -9`: the daemon is killed, and the same processes continue. Interrupted: the \
    program of one side lane is killed; only that member is down, and a retry of its lane brings \
    it back. Relaunch: the team is launched again from its stored definition. Stop: no process of \
    the team is left (P3, P10), and no key is in the data directory (S4).";

type Step = fn(&World<'_>) -> anyhow::Result<()>;

/// The steps of a team's life.
const STEPS: [(&str, Step); 7] = [
    ("launch", launch),
    ("a message each", word),
    ("a task each", tasks),
    ("kill -9 of Regatta", restart),
    ("interrupted side lane", interrupted),
    ("relaunch", relaunch),
    ("stop", stop),
];

/// Returns the rows that can lead a team: programs of the primary lane with sessions in their own
/// protocol.
fn leads() -> impl Iterator<Item = Row> {
    ROWS.into_iter().filter(|it| ["claude-native", "codex-native", "gemini"].contains(&it.preset))
}

/// Returns the required programs.
pub(crate) fn programs() -> Vec<&'static super::programs::Program> {
    leads().map(|it| it.program).chain([opencode().program]).collect()
}

fn opencode() -> Row {
    row("opencode")
}

/// Runs a team with each lead.
pub(crate) fn table(
    installed: &Installed,
    account: Account,
    (runs, regatta): (&Path, &Path),
    wanted: Option<&str>,
) -> anyhow::Result<Table> {
    let heads = ["lead", "side lanes"].into_iter().chain(STEPS.map(|it| it.0)).collect();
    let mut table = Table::with("Mixed teams", ABOUT, heads);
    for row in leads().filter(|it| super::named(wanted, it.program.name)) {
        let models = ModelServer::start([])?;
        let (runs, regatta) = (runs.to_owned(), Some(regatta.to_owned()));
        let bench = Bench { installed, account, models: &models, runs, regatta };
        let missing = [row.program, opencode().program].iter().find_map(|it| bench.installed.missing.get(it.name));
        let cells = match missing {
            Some(why) => vec![Cell::NotRun(why.clone()); STEPS.len()],
            None => life(&bench, row),
        };
        let aside = opencode().program;
        let lead = format!("{} {} ({})", row.program.name, row.program.version, row.drive.name());
        table.put(vec![lead, format!("2 × {} {}", aside.name, aside.version)], cells);
    }
    Ok(table)
}

/// Runs one team's life. All its processes end with it.
fn life(bench: &Bench<'_>, row: Row) -> Vec<Cell> {
    let world = match World::new(bench, row) {
        Ok(world) => world,
        Err(error) => return vec![Cell::failed(format!("{error:#}")); STEPS.len()],
    };
    let life = &world;
    let steps = STEPS.map(|(name, step)| -> desk::Step<'_> { (name, Box::new(move || step(life))) });
    let marks: Vec<String> = world.members().map(|it| world.mark_of(it.0)).collect();
    desk::life(&steps, || world.end(&marks, Duration::ZERO), (bench, &format!("team of {}", row.program.name)))
}

/// A managed repository with one team that is not launched yet.
struct World<'a> {
    desk: Desk<'a>,
    lead: Row,
    mark: String,
}

impl<'a> Deref for World<'a> {
    type Target = Desk<'a>;

    fn deref(&self) -> &Desk<'a> {
        &self.desk
    }
}

impl<'a> World<'a> {
    fn new(bench: &'a Bench<'a>, lead: Row) -> anyhow::Result<World<'a>> {
        let run = bench.place(&lead, "team", Asks::Never)?;
        let world = World { desk: Desk::new(bench, &run)?, lead, mark: run.mark };
        bench.models.tell(Story::new("", []).then_always(Turn::say("I am here.")));
        std::fs::create_dir_all(&world.bin)?;
        let mut team = String::from("name = \"harbour\"\n");
        let mut environments = String::new();
        for (name, row) in world.members() {
            let outfit = world.outfit(name, row)?;
            let rank = if name == LEAD { "\n[lead]\nfast_mode = true\n" } else { "\n[[member]]\n" };
            team += &format!(
                "{rank}name = \"{name}\"\nprovider = \"{}\"\nbackend = \"{}\"\nenvironment = \"{name}\"\n",
                provider(row),
                row.preset
            );
            environments += &world.environment(name, row, &outfit);
        }
        std::fs::write(world.work.join("team.toml"), team + &environments)?;
        bench.account.give(&world.dir)?;
        world.set_up()?;
        world.ask(&["team", "create"])?;
        Ok(world)
    }

    fn members(&self) -> impl Iterator<Item = (&'static str, Row)> + use<> {
        [(LEAD, self.lead)].into_iter().chain(ASIDE.map(|it| (it, opencode())))
    }

    fn mark_of(&self, name: &str) -> String {
        format!("{}-{name}", self.mark)
    }

    /// Writes a member's settings, and installs its program under the name by which it is found.
    fn outfit(&self, name: &str, row: Row) -> anyhow::Result<Outfit> {
        let outfit = self.bench.outfit(&row, &self.settings(name), Asks::Never)?;
        // Like the link that npm would create.
        let link = self.bin.join(row.program.name);
        if !link.exists() {
            std::os::unix::fs::symlink(row.program.entry(&self.bench.installed.dir), link)?;
        }
        Ok(outfit)
    }

    fn settings(&self, name: &str) -> PathBuf {
        self.dir.join(format!("settings-{name}"))
    }

    /// Returns a member's environment for `team.toml`.
    fn environment(&self, name: &str, row: Row, outfit: &Outfit) -> String {
        let mark = (MARK.to_owned(), self.mark_of(name));
        let pairs: Vec<String> = outfit.env.iter().chain([&mark]).map(|(k, v)| format!("{k} = {}", json!(v))).collect();
        let args = row.more_args(outfit);
        let mode = outfit.mode.map(|it| format!("mode = \"{it}\"\n")).unwrap_or_default();
        format!(
            "\n[environments.{name}]\nenv = {{ {} }}\nkeys = [{{ name = \"{}\", from = {{ env = \"{KEY_VARIABLE}\" }} \
             }}]\nargs = {}\nread = [{}]\nwrite = [{}]\n{mode}",
            pairs.join(", "),
            outfit.key,
            json!(args),
            // The path may be hidden in a sandbox, so it is listed.
            json!(self.bench.installed.dir),
            json!(self.settings(name)),
        )
    }

    fn show(&self) -> anyhow::Result<Value> {
        self.ask(&["team", "show", "harbour"])
    }

    /// Returns a member's entry in the launch record.
    fn entry(&self, name: &str) -> anyhow::Result<Value> {
        let view = self.show()?;
        let members = view["resolved"]["members"].as_array().cloned().unwrap_or_default();
        members.into_iter().find(|it| it["name"] == name).with_context(|| format!("{name} is not in the record"))
    }

    /// Fails unless all members are alive.
    fn all_alive(&self) -> anyhow::Result<()> {
        for (name, _) in self.members() {
            let entry = self.entry(name)?;
            ensure!(
                entry["state"] == "alive",
                "{name} is {}: {} {}",
                entry["state"],
                entry["cause"],
                entry["evidence"]
            );
        }
        let view = self.show()?;
        ensure!(view["summary"]["outcome"] == "clean_success", "the outcome is {}", view["summary"]);
        Ok(())
    }

    /// Returns all processes of the team.
    fn processes(&self) -> Vec<u32> {
        self.members().flat_map(|it| marked(&self.mark_of(it.0))).collect()
    }

    /// Returns the main processes of a member's session, without the helpers that they start and
    /// stop.
    fn tops(&self, name: &str) -> anyhow::Result<Vec<u32>> {
        let session = format!("REGATTA_ATTEMPT={}", self.entry(name)?["attempt"].as_str().unwrap_or_default());
        let its = |pid: &u32| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|it| *it == 0).any(|it| it == session.as_bytes())
        };
        let all: Vec<u32> = marked(&self.mark_of(name)).into_iter().filter(its).collect();
        Ok(tops(&all))
    }
}

fn provider(row: Row) -> &'static str {
    match row.preset {
        "claude-native" => "anthropic",
        "codex-native" => "codex",
        _ => row.preset,
    }
}

fn launch(world: &World<'_>) -> anyhow::Result<()> {
    world.ask(&["team", "launch", "harbour", "--wait", "180s"])?;
    world.all_alive()?;
    for (name, row) in world.members() {
        let entry = world.entry(name)?;
        let lane = if name == LEAD { "primary".to_owned() } else { format!("opencode:{name}") };
        ensure!(entry["lane"]["id"] == lane.as_str(), "{name} is on {}", entry["lane"]);
        let version = entry["program"]["version"].as_str().unwrap_or_default();
        ensure!(version == row.program.version, "{name} runs {version}, not {}", row.program.version);
        ensure!(!marked(&world.mark_of(name)).is_empty(), "{name} is reported as alive but has no process");
    }
    // Fast mode is requested, available for some programs, and then visible to the model server.
    let has = world.lead.program.name != "gemini";
    let got = world.entry(LEAD)?["got"]["fast_mode"].clone();
    ensure!(got == has, "fast mode was requested, but the record has {got}");
    let seen = world.bench.models.seen();
    let fast = |chat: bool| seen.iter().filter(|it| it.fast && (it.api == Some(Api::Chat)) == chat).count();
    ensure!((fast(false) > 0) == has, "the lead's model saw {} requests for fast answers", fast(false));
    ensure!(fast(true) == 0, "T5: a side lane's model got a request that was meant for the lead's");
    Ok(())
}

fn word(world: &World<'_>) -> anyhow::Result<()> {
    say(world, "word")
}

/// Sends a message to each member, and waits until each has called its model.
fn say(world: &World<'_>, what: &str) -> anyhow::Result<()> {
    for (name, _) in world.members() {
        let marker = format!("tale-{what}-{name}");
        world.bench.models.tell(Story::new(&marker, [Turn::say("I hear you.")]));
        world.ask(&["msg", "send", &format!("@harbour/{name}"), &format!("The word is {marker} and nothing else.")])?;
    }
    for (name, _) in world.members() {
        let heard = || !world.bench.models.seen_of(&format!("tale-{what}-{name}")).is_empty();
        ensure!(until(PATIENCE, heard), "{name} did not call its model after the message");
    }
    Ok(())
}

fn tasks(world: &World<'_>) -> anyhow::Result<()> {
    for (name, _) in world.members() {
        let (marker, file) = (format!("tale-task-{name}"), format!("{name}.txt"));
        let turns = [Turn::write(&file, format!("{name} was here\n")), Turn::say("It is written.")];
        world.bench.models.tell(Story::new(&marker, turns));
        let (subject, agent) = (format!("Write {file}"), format!("harbour/{name}"));
        let details = format!("The word is {marker} and nothing else.");
        let given = ["add", &subject, "--type", "docs", "--files", &file, "--exists", &file, "--assign", &agent, "-d"];
        world.ask(&[&given[..], &[&details]].concat())?;
    }
    let landed = |name: &str| {
        let shown = world.bench.git(&world.work, &["show", &format!("main:{name}.txt")]);
        shown.is_ok_and(|it| it == format!("{name} was here"))
    };
    for (name, _) in world.members() {
        if !until(PATIENCE, || landed(name)) {
            bail!("the task of {name} did not land: {}", world.ask(&["status"])?);
        }
    }
    world.all_alive()
}

fn restart(world: &World<'_>) -> anyhow::Result<()> {
    let sessions = |world: &World<'_>| -> anyhow::Result<Vec<Value>> {
        world.members().map(|it| Ok(world.entry(it.0)?["attempt"].clone())).collect()
    };
    let programs =
        |world: &World<'_>| -> anyhow::Result<Vec<Vec<u32>>> { world.members().map(|it| world.tops(it.0)).collect() };
    let (before, sessions_before) = (programs(world)?, sessions(world)?);
    kill(world.daemon()?);
    world.ask(&["up"])?;
    world.all_alive()?;
    ensure!(sessions(world)? == sessions_before, "the sessions have changed");
    let after = programs(world)?;
    ensure!(before == after && before.iter().all(|it| !it.is_empty()), "P1: {before:?} became {after:?}");
    say(world, "again")
}

fn interrupted(world: &World<'_>) -> anyhow::Result<()> {
    let [tom, bob] = ASIDE;
    let (lead_before, bob_before) = (world.entry(LEAD)?, world.entry(bob)?);
    let programs: Vec<u32> =
        marked(&world.mark_of(tom)).into_iter().filter(|it| called(*it).contains("opencode")).collect();
    ensure!(!programs.is_empty(), "{tom} has no process");
    programs.into_iter().for_each(kill);
    let down = || world.entry(tom).is_ok_and(|it| it["state"] == "degraded");
    ensure!(until(PATIENCE, down), "{tom} was killed and is {}", world.entry(tom)?["state"]);
    let only = "T3: the end of one lane reached another";
    ensure!(world.entry(LEAD)? == lead_before && world.entry(bob)? == bob_before, only);
    let summary = world.show()?["summary"].clone();
    ensure!(summary["outcome"] == "partial_failure" && summary["alive"] == 2, "T2: the outcome is {summary}");
    world.ask(&["team", "retry", "harbour", tom, "--wait", "180s"])?;
    world.all_alive()?;
    ensure!(world.entry(LEAD)? == lead_before && world.entry(bob)? == bob_before, only);
    Ok(())
}

fn relaunch(world: &World<'_>) -> anyhow::Result<()> {
    let before = world.processes();
    world.ask(&["team", "relaunch", "harbour", "--wait", "180s"])?;
    world.all_alive()?;
    let history = world.show()?["history"].as_array().map_or(0, Vec::len);
    ensure!(history == 1, "{history} earlier launches are recorded, not one");
    let stayed = world.processes().into_iter().filter(|it| before.contains(it)).count();
    ensure!(stayed == 0, "{stayed} processes of the earlier launch still run");
    Ok(())
}

fn stop(world: &World<'_>) -> anyhow::Result<()> {
    world.ask(&["team", "stop", "harbour", "--wait", "60s"])?;
    // `team stop` reports the end of the team, so nothing may run now.
    let left: Vec<String> = world.processes().into_iter().map(called).collect();
    ensure!(left.is_empty(), "P10: the team is reported as stopped, but {} runs", left.join(", "));
    for (name, _) in world.members() {
        ensure!(world.entry(name)?["state"] == "stopped", "{name} is {}", world.entry(name)?["state"]);
    }
    Ok(())
}
