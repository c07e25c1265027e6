//! Mixed teams of real programs: one lead, and two members of OpenCode on lanes of their own. A row
//! is one lead; a column is one step of the team's life, in order. Steps after a failed one are not
//! run.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use regatta_testkit::models::{ModelApi, ModelScript, ModelServer, ModelTurn};
use serde_json::{Value, json};

use super::bench::AgentBench;
use super::fixture::{self, DaemonFixture, KEY_VARIABLE, top_processes};
use super::install::InstalledPrograms;
use super::programs::{PermissionMode, ProgramRow, ProgramSettings, ROWS, row_of_preset};
use super::sandbox_user::{
    MARK_VARIABLE, SandboxUser, kill_pid, process_name, processes_with_mark, wait_until,
};
use super::scenario::ScenarioResult;
use super::table::ReportTable;

/// The time for a team to come up or a task to land, with the slowest program on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(180);

/// The lead. [`SIDE_LANE_MEMBERS`] are the members on lanes of their own.
const LEAD_NAME: &str = "amy";
const SIDE_LANE_MEMBERS: [&str; 2] = ["tom", "bob"];

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

type TeamStep = fn(&TeamWorld<'_>) -> anyhow::Result<()>;

/// The steps of a team's life.
const TEAM_STEPS: [(&str, TeamStep); 7] = [
    ("launch", step_launch),
    ("a message each", step_message),
    ("a task each", step_tasks),
    ("kill -9 of Regatta", step_restart),
    ("interrupted side lane", step_kill_side_lane),
    ("relaunch", step_relaunch),
    ("stop", step_stop),
];

/// Returns the rows that can lead a team: programs of the primary lane with sessions in their own
/// protocol.
fn lead_programs() -> impl Iterator<Item = ProgramRow> {
    ROWS.into_iter()
        .filter(|program| ["claude-native", "codex-native", "gemini"].contains(&program.preset))
}

/// Returns the required programs.
pub(crate) fn needed_programs() -> Vec<&'static super::programs::NpmProgram> {
    lead_programs()
        .map(|program| program.program)
        .chain([opencode_row().program])
        .collect()
}

fn opencode_row() -> ProgramRow {
    row_of_preset("opencode")
}

/// Runs a team with each lead.
pub(crate) fn team_table(
    installed: &InstalledPrograms,
    account: SandboxUser,
    (runs, regatta): (&Path, &Path),
    wanted: Option<&str>,
) -> anyhow::Result<ReportTable> {
    let heads = ["lead", "side lanes"]
        .into_iter()
        .chain(TEAM_STEPS.map(|row| row.0))
        .collect();
    let mut table = ReportTable::with_headings("Mixed teams", ABOUT, heads);
    for row in lead_programs().filter(|program| super::is_wanted(wanted, program.program.name)) {
        let models = ModelServer::start([])?;
        let (runs, regatta) = (runs.to_owned(), Some(regatta.to_owned()));
        let bench = AgentBench {
            installed,
            user: account,
            models: &models,
            runs_dir: runs,
            regatta_binary: regatta,
        };
        let missing = [row.program, opencode_row().program]
            .iter()
            .find_map(|npm_program| bench.installed.missing.get(npm_program.name));
        let cells = match missing {
            Some(why) => vec![ScenarioResult::NotRun(why.clone()); TEAM_STEPS.len()],
            None => run_team(&bench, row),
        };
        let aside = opencode_row().program;
        let lead = format!(
            "{} {} ({})",
            row.program.name,
            row.program.version,
            row.driver.name()
        );
        table.add_row(
            vec![lead, format!("2 × {} {}", aside.name, aside.version)],
            cells,
        );
    }
    Ok(table)
}

/// Runs one team's life. All its processes end with it.
fn run_team(bench: &AgentBench<'_>, row: ProgramRow) -> Vec<ScenarioResult> {
    let world = match TeamWorld::new(bench, row) {
        Ok(world) => world,
        Err(error) => return vec![ScenarioResult::failed(format!("{error:#}")); TEAM_STEPS.len()],
    };
    let life = &world;
    let steps = TEAM_STEPS
        .map(|(name, step)| -> fixture::ScenarioStep<'_> { (name, Box::new(move || step(life))) });
    let marks: Vec<String> = world
        .members()
        .map(|member| world.mark_of(member.0))
        .collect();
    fixture::run_steps(
        &steps,
        || world.stop_everything(&marks, Duration::ZERO),
        (bench, &format!("team of {}", row.program.name)),
    )
}

/// A managed repository with one team that is not launched yet.
struct TeamWorld<'a> {
    fixture: DaemonFixture<'a>,
    lead: ProgramRow,
    mark: String,
}

impl<'a> Deref for TeamWorld<'a> {
    type Target = DaemonFixture<'a>;

    fn deref(&self) -> &DaemonFixture<'a> {
        &self.fixture
    }
}

impl<'a> TeamWorld<'a> {
    fn new(bench: &'a AgentBench<'a>, lead: ProgramRow) -> anyhow::Result<TeamWorld<'a>> {
        let run = bench.create_run(&lead, "team", PermissionMode::Never)?;
        let world = TeamWorld {
            fixture: DaemonFixture::new(bench, &run)?,
            lead,
            mark: run.mark,
        };
        bench
            .models
            .add_script(ModelScript::new("", []).repeat_after(ModelTurn::from_text("I am here.")));
        std::fs::create_dir_all(&world.bin_dir)?;
        let mut team = String::from("name = \"harbour\"\n");
        let mut environments = String::new();
        for (name, row) in world.members() {
            let outfit = world.write_settings(name, row)?;
            let rank = if name == LEAD_NAME {
                "\n[lead]\nfast_mode = true\n"
            } else {
                "\n[[member]]\n"
            };
            team += &format!(
                "{rank}name = \"{name}\"\nprovider = \"{}\"\nbackend = \"{}\"\nenvironment \
                = \"{name}\"\n",
                provider(row),
                row.preset
            );
            environments += &world.environment(name, row, &outfit);
        }
        std::fs::write(world.work_dir.join("team.toml"), team + &environments)?;
        bench.user.give_ownership(&world.dir)?;
        world.set_up()?;
        world.run_command(&["team", "create"])?;
        Ok(world)
    }

    fn members(&self) -> impl Iterator<Item = (&'static str, ProgramRow)> + use<> {
        [(LEAD_NAME, self.lead)]
            .into_iter()
            .chain(SIDE_LANE_MEMBERS.map(|member| (member, opencode_row())))
    }

    fn mark_of(&self, name: &str) -> String {
        format!("{}-{name}", self.mark)
    }

    /// Writes a member's settings, and installs its program under the name by which it is found.
    fn write_settings(&self, name: &str, row: ProgramRow) -> anyhow::Result<ProgramSettings> {
        let outfit = self
            .bench
            .outfit(&row, &self.settings_dir(name), PermissionMode::Never)?;
        // Like the link that npm would create.
        let link = self.bin_dir.join(row.program.name);
        if !link.exists() {
            std::os::unix::fs::symlink(row.program.entry(&self.bench.installed.dir), link)?;
        }
        Ok(outfit)
    }

    fn settings_dir(&self, name: &str) -> PathBuf {
        self.dir.join(format!("settings-{name}"))
    }

    /// Returns a member's environment for `team.toml`.
    fn environment(&self, name: &str, row: ProgramRow, outfit: &ProgramSettings) -> String {
        let mark = (MARK_VARIABLE.to_owned(), self.mark_of(name));
        let pairs: Vec<String> = outfit
            .env
            .iter()
            .chain([&mark])
            .map(|(k, v)| format!("{k} = {}", json!(v)))
            .collect();
        let args = row.more_args(outfit);
        let mode = outfit
            .mode
            .map(|mode| format!("mode = \"{mode}\"\n"))
            .unwrap_or_default();
        format!(
            "\n[environments.{name}]\nenv = {{ {} }}\nkeys = [{{ name = \"{}\", from = {{ env = \
             \"{KEY_VARIABLE}\" }} \
             }}]\nargs = {}\nread = [{}]\nwrite = [{}]\n{mode}",
            pairs.join(", "),
            outfit.key_variable,
            json!(args),
            // The path may be hidden in a sandbox, so it is listed.
            json!(self.bench.installed.dir),
            json!(self.settings_dir(name)),
        )
    }

    fn show(&self) -> anyhow::Result<Value> {
        self.run_command(&["team", "show", "harbour"])
    }

    /// Returns a member's entry in the launch record.
    fn launch_entry(&self, name: &str) -> anyhow::Result<Value> {
        let view = self.show()?;
        let members = view["resolved"]["members"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        members
            .into_iter()
            .find(|member| member["name"] == name)
            .with_context(|| format!("{name} is not in the record"))
    }

    /// Fails unless all members are alive.
    fn require_all_alive(&self) -> anyhow::Result<()> {
        for (name, _) in self.members() {
            let entry = self.launch_entry(name)?;
            ensure!(
                entry["state"] == "alive",
                "{name} is {}: {} {}",
                entry["state"],
                entry["cause"],
                entry["evidence"]
            );
        }
        let view = self.show()?;
        ensure!(
            view["summary"]["outcome"] == "clean_success",
            "the outcome is {}",
            view["summary"]
        );
        Ok(())
    }

    /// Returns all processes of the team.
    fn processes(&self) -> Vec<u32> {
        self.members()
            .flat_map(|member| processes_with_mark(&self.mark_of(member.0)))
            .collect()
    }

    /// Returns the main processes of a member's session, without the helpers that they start and
    /// stop.
    fn session_processes(&self, name: &str) -> anyhow::Result<Vec<u32>> {
        let session = format!(
            "REGATTA_ATTEMPT={}",
            self.launch_entry(name)?["attempt"]
                .as_str()
                .unwrap_or_default()
        );
        let its = |pid: &u32| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ
                .split(|byte| *byte == 0)
                .any(|environ| environ == session.as_bytes())
        };
        let all: Vec<u32> = processes_with_mark(&self.mark_of(name))
            .into_iter()
            .filter(its)
            .collect();
        Ok(top_processes(&all))
    }
}

fn provider(row: ProgramRow) -> &'static str {
    match row.preset {
        "claude-native" => "anthropic",
        "codex-native" => "codex",
        _ => row.preset,
    }
}

fn step_launch(world: &TeamWorld<'_>) -> anyhow::Result<()> {
    world.run_command(&["team", "launch", "harbour", "--wait", "180s"])?;
    world.require_all_alive()?;
    for (name, row) in world.members() {
        let entry = world.launch_entry(name)?;
        let lane = if name == LEAD_NAME {
            "primary".to_owned()
        } else {
            format!("opencode:{name}")
        };
        ensure!(
            entry["lane"]["id"] == lane.as_str(),
            "{name} is on {}",
            entry["lane"]
        );
        let version = entry["program"]["version"].as_str().unwrap_or_default();
        ensure!(
            version == row.program.version,
            "{name} runs {version}, not {}",
            row.program.version
        );
        ensure!(
            !processes_with_mark(&world.mark_of(name)).is_empty(),
            "{name} is reported as alive but has no process"
        );
    }
    // Fast mode is requested, available for some programs, and then visible to the model server.
    let has = world.lead.program.name != "gemini";
    let got = world.launch_entry(LEAD_NAME)?["got"]["fast_mode"].clone();
    ensure!(
        got == has,
        "fast mode was requested, but the record has {got}"
    );
    let requests = world.bench.models.requests();
    let fast = |chat: bool| {
        requests
            .iter()
            .filter(|request| request.is_fast && (request.api == Some(ModelApi::Chat)) == chat)
            .count()
    };
    ensure!(
        (fast(false) > 0) == has,
        "the lead's model saw {} requests for fast answers",
        fast(false)
    );
    ensure!(
        fast(true) == 0,
        "T5: a side lane's model got a request that was meant for the lead's"
    );
    Ok(())
}

fn step_message(world: &TeamWorld<'_>) -> anyhow::Result<()> {
    send_to_all(world, "word")
}

/// Sends a message to each member, and waits until each has called its model.
fn send_to_all(world: &TeamWorld<'_>, label: &str) -> anyhow::Result<()> {
    for (name, _) in world.members() {
        let marker = format!("tale-{label}-{name}");
        world.bench.models.add_script(ModelScript::new(
            &marker,
            [ModelTurn::from_text("I hear you.")],
        ));
        world.run_command(&[
            "msg",
            "send",
            &format!("@harbour/{name}"),
            &format!("The word is {marker} and nothing else."),
        ])?;
    }
    for (name, _) in world.members() {
        let has_called_model = || {
            !world
                .bench
                .models
                .requests_of(&format!("tale-{label}-{name}"))
                .is_empty()
        };
        ensure!(
            wait_until(STEP_TIMEOUT, has_called_model),
            "{name} did not call its model after the message"
        );
    }
    Ok(())
}

fn step_tasks(world: &TeamWorld<'_>) -> anyhow::Result<()> {
    for (name, _) in world.members() {
        let (marker, file) = (format!("tale-task-{name}"), format!("{name}.txt"));
        let turns = [
            ModelTurn::from_file_write(&file, format!("{name} was here\n")),
            ModelTurn::from_text("It is written."),
        ];
        world
            .bench
            .models
            .add_script(ModelScript::new(&marker, turns));
        let (subject, agent) = (format!("Write {file}"), format!("harbour/{name}"));
        let details = format!("The word is {marker} and nothing else.");
        let given = [
            "add", &subject, "--type", "docs", "--files", &file, "--exists", &file, "--assign",
            &agent, "-d",
        ];
        world.run_command(&[&given[..], &[&details]].concat())?;
    }
    let landed = |name: &str| {
        let shown = world
            .bench
            .git(&world.work_dir, &["show", &format!("main:{name}.txt")]);
        shown.is_ok_and(|shown| shown == format!("{name} was here"))
    };
    for (name, _) in world.members() {
        if !wait_until(STEP_TIMEOUT, || landed(name)) {
            bail!(
                "the task of {name} did not land: {}",
                world.run_command(&["status"])?
            );
        }
    }
    world.require_all_alive()
}

fn step_restart(world: &TeamWorld<'_>) -> anyhow::Result<()> {
    let sessions = |world: &TeamWorld<'_>| -> anyhow::Result<Vec<Value>> {
        world
            .members()
            .map(|member| Ok(world.launch_entry(member.0)?["attempt"].clone()))
            .collect()
    };
    let programs = |world: &TeamWorld<'_>| -> anyhow::Result<Vec<Vec<u32>>> {
        world
            .members()
            .map(|member| world.session_processes(member.0))
            .collect()
    };
    let (before, sessions_before) = (programs(world)?, sessions(world)?);
    kill_pid(world.daemon_pid()?);
    world.run_command(&["up"])?;
    world.require_all_alive()?;
    ensure!(
        sessions(world)? == sessions_before,
        "the sessions have changed"
    );
    let after = programs(world)?;
    ensure!(
        before == after && before.iter().all(|before| !before.is_empty()),
        "P1: {before:?} became {after:?}"
    );
    send_to_all(world, "again")
}

fn step_kill_side_lane(world: &TeamWorld<'_>) -> anyhow::Result<()> {
    let [tom, bob] = SIDE_LANE_MEMBERS;
    let (lead_before, bob_before) = (world.launch_entry(LEAD_NAME)?, world.launch_entry(bob)?);
    let programs: Vec<u32> = processes_with_mark(&world.mark_of(tom))
        .into_iter()
        .filter(|pid| process_name(*pid).contains("opencode"))
        .collect();
    ensure!(!programs.is_empty(), "{tom} has no process");
    programs.into_iter().for_each(kill_pid);
    let down = || {
        world
            .launch_entry(tom)
            .is_ok_and(|world| world["state"] == "degraded")
    };
    ensure!(
        wait_until(STEP_TIMEOUT, down),
        "{tom} was killed and is {}",
        world.launch_entry(tom)?["state"]
    );
    let only = "T3: the end of one lane reached another";
    ensure!(
        world.launch_entry(LEAD_NAME)? == lead_before && world.launch_entry(bob)? == bob_before,
        only
    );
    let summary = world.show()?["summary"].clone();
    ensure!(
        summary["outcome"] == "partial_failure" && summary["alive"] == 2,
        "T2: the outcome is {summary}"
    );
    world.run_command(&["team", "retry", "harbour", tom, "--wait", "180s"])?;
    world.require_all_alive()?;
    ensure!(
        world.launch_entry(LEAD_NAME)? == lead_before && world.launch_entry(bob)? == bob_before,
        only
    );
    Ok(())
}

fn step_relaunch(world: &TeamWorld<'_>) -> anyhow::Result<()> {
    let before = world.processes();
    world.run_command(&["team", "relaunch", "harbour", "--wait", "180s"])?;
    world.require_all_alive()?;
    let history = world.show()?["history"].as_array().map_or(0, Vec::len);
    ensure!(
        history == 1,
        "{history} earlier launches are recorded, not one"
    );
    let stayed = world
        .processes()
        .into_iter()
        .filter(|process| before.contains(process))
        .count();
    ensure!(
        stayed == 0,
        "{stayed} processes of the earlier launch still run"
    );
    Ok(())
}

fn step_stop(world: &TeamWorld<'_>) -> anyhow::Result<()> {
    world.run_command(&["team", "stop", "harbour", "--wait", "60s"])?;
    // `team stop` reports the end of the team, so nothing may run now.
    let processes: Vec<String> = world.processes().into_iter().map(process_name).collect();
    ensure!(
        processes.is_empty(),
        "P10: the team is reported as stopped, but {} runs",
        processes.join(", ")
    );
    for (name, _) in world.members() {
        ensure!(
            world.launch_entry(name)?["state"] == "stopped",
            "{name} is {}",
            world.launch_entry(name)?["state"]
        );
    }
    Ok(())
}
