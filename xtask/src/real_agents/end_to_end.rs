//! The scenarios with the real binary: a repository, a daemon, an agent, a task, and the result on
//! the trunk.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, ensure};
use regatta_testkit::models::{
    AnswerEnd, ModelAction, ModelFailure, ModelScript, ModelTurn, TurnRepeat,
};
use serde_json::json;

use super::bench::{AgentBench, STORY_CONTENT, STORY_FILE, ScenarioRun};
use super::direct::{hanging_script, writing_script};
use super::fixture::{DaemonFixture, combine_results, parent_pid};
use super::programs::{PermissionMode, ProgramRow};
use super::sandbox_user::{kill_pid, process_name, processes_with_mark, wait_until};
use super::scenario::{Scenario, ScenarioResult};

/// The time from the plan to the trunk, with the slowest program on a busy machine.
const LANDING_TIMEOUT: Duration = Duration::from_secs(180);
/// The time for a program to start and call the model.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// The time for something that should take a second or two.
const SHORT_TIMEOUT: Duration = Duration::from_secs(45);

/// The only task of the plan.
const TASK_ID: &str = "T1";
const AGENT_NAME: &str = "real";

/// The text above the table.
pub(crate) const ABOUT: &str = "Each run has a repository, a real daemon, an agent added with its \
    preset, and a task, and checks what reaches the trunk. It also looks for leftover processes \
    (P3) and for the key in the data directory (S4). In \"call a Regatta tool\" the model calls \
    `progress` of the MCP server that the program was given with the attempt's token, and the \
    progress must be on the board. Codex does not list the tools of servers, so there the model \
    searches for the tool first. In \"daemon restart mid-turn\" the daemon is killed with `kill \
    -9`.";

/// Returns the binary to use: the given one, or the newest build.
pub(crate) fn find_binary(target: &Path, named: Option<&str>) -> anyhow::Result<PathBuf> {
    if let Some(named) = named {
        return std::fs::canonicalize(named).with_context(|| format!("there is no {named}"));
    }
    let built = ["release", "debug"].map(|profile| target.join(profile).join("regatta"));
    built
        .into_iter()
        .find(|path| path.exists())
        .context("no regatta binary was built; build it: cargo build -p regatta")
}

/// Runs one scenario. All its processes end with it.
pub(crate) fn run(bench: &AgentBench<'_>, row: &ProgramRow, scenario: Scenario) -> ScenarioResult {
    if scenario == Scenario::Permission
        && let Some(why) = row.never_asks()
    {
        return ScenarioResult::Unsupported(why.into());
    }
    let asks = if scenario == Scenario::Permission {
        PermissionMode::Always
    } else {
        PermissionMode::Never
    };
    let world = match EndToEndWorld::new(bench, row, scenario, asks) {
        Ok(world) => world,
        Err(error) => return ScenarioResult::failed(format!("{error:#}")),
    };
    let result = world.set_up(row).and_then(|()| match scenario {
        Scenario::Write => scenario_write(&world),
        Scenario::Tool => scenario_tool(&world, row),
        Scenario::Permission => scenario_permission(&world),
        Scenario::Cancel => scenario_cancel(&world),
        Scenario::Restart => scenario_restart(&world),
        Scenario::RateLimited | Scenario::Overloaded => {
            scenario_temporary_refusal(&world, scenario)
        }
        Scenario::QuotaExhausted => scenario_quota_exhausted(&world),
        Scenario::Kill => scenario_kill_agent(&world),
    });
    let ended = world.stop_everything();
    combine_results(result, ended, bench)
}

/// A managed repository with one agent.
struct EndToEndWorld<'a> {
    fixture: DaemonFixture<'a>,
    run: ScenarioRun,
}

impl<'a> Deref for EndToEndWorld<'a> {
    type Target = DaemonFixture<'a>;

    fn deref(&self) -> &DaemonFixture<'a> {
        &self.fixture
    }
}

impl<'a> EndToEndWorld<'a> {
    /// Creates the directories. Nothing runs yet.
    fn new(
        bench: &'a AgentBench<'a>,
        row: &ProgramRow,
        scenario: Scenario,
        asks: PermissionMode,
    ) -> anyhow::Result<EndToEndWorld<'a>> {
        let run = bench.create_run(row, scenario.name(), asks)?;
        Ok(EndToEndWorld {
            fixture: DaemonFixture::new(bench, &run)?,
            run,
        })
    }

    fn set_up(&self, row: &ProgramRow) -> anyhow::Result<()> {
        self.fixture.set_up()?;
        self.add_agent(AGENT_NAME, row, &self.run.outfit, &self.run.mark)
    }

    /// Starts the plan in the background.
    fn start_plan(&self) -> anyhow::Result<RunningPlan> {
        let plan = self.run.dir.join("plan.toml");
        let text = format!(
            "[[task]]\nid = \"one\"\nsubject = \"Write {STORY_FILE}\"\ndescription = \"The word is \
             {} and nothing else.\"\n\
             files = [\"{STORY_FILE}\"]\nvalidation = {{ files_exist = [\"{STORY_FILE}\"] }}\n",
            self.run.marker
        );
        std::fs::write(&plan, text)?;
        let plan = plan.to_string_lossy().into_owned();
        let mut command = self.command(&[
            "run", &plan, "--agents", AGENT_NAME, "--yes", "--wait", "--json",
        ]);
        let out = self.run.dir.join("run.out");
        command
            .stdout(std::fs::File::create(&out)?)
            .stderr(std::fs::File::create(self.run.dir.join("run.err"))?);
        Ok(RunningPlan {
            child: command.spawn()?,
            output_path: out,
        })
    }

    /// Returns whether the file is on the trunk with the story's content.
    fn has_landed(&self) -> bool {
        let shown = self
            .bench
            .git(&self.run.work_dir, &["show", &format!("main:{STORY_FILE}")]);
        shown.is_ok_and(|shown| shown == STORY_CONTENT.trim_end())
    }

    /// Waits until the model server holds the answer.
    fn wait_until_hanging(&self) -> anyhow::Result<()> {
        let hanging = || {
            self.bench
                .models
                .requests_of(&self.run.marker)
                .iter()
                .any(|request| request.outcome.is_none())
        };
        ensure!(
            wait_until(START_TIMEOUT, hanging),
            "the model was not asked: {}",
            self.wait_reason()
        );
        Ok(())
    }

    /// Returns the reason why the task waits, for a report.
    fn wait_reason(&self) -> String {
        match self.run_command(&["why", TASK_ID]) {
            Ok(why) => why.to_string(),
            Err(error) => format!("{error:#}"),
        }
    }

    /// Returns the agent's main process: the marked process whose parent is not marked.
    fn agent_pid(&self) -> anyhow::Result<u32> {
        let all = processes_with_mark(&self.run.mark);
        let top = all
            .iter()
            .find(|n| parent_pid(**n).is_some_and(|n| !all.contains(&n)));
        top.copied().context("the agent has no process")
    }

    /// Stops everything.
    fn stop_everything(&self) -> anyhow::Result<()> {
        self.fixture.stop_everything(
            std::slice::from_ref(&self.run.mark),
            Duration::from_secs(10),
        )
    }
}

/// A running plan.
struct RunningPlan {
    child: Child,
    output_path: PathBuf,
}

impl RunningPlan {
    /// Waits for the end of the plan. Returns its exit code and output.
    fn wait_for_end(mut self, patience: Duration) -> anyhow::Result<(i32, String)> {
        let mut status = None;
        wait_until(patience, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        let log = std::fs::read_to_string(&self.output_path).unwrap_or_default();
        let status = status
            .with_context(|| format!("`regatta run` did not end within {patience:?}: {log}"))?;
        Ok((status.code().unwrap_or(-1), log))
    }
}

impl Drop for RunningPlan {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Waits until the plan ends well and the file is on the trunk.
fn require_landed(world: &EndToEndWorld<'_>, going: RunningPlan) -> anyhow::Result<ScenarioResult> {
    let (code, said) = going.wait_for_end(LANDING_TIMEOUT)?;
    Ok(match code {
        0 if world.has_landed() => ScenarioResult::passed(),
        0 => ScenarioResult::failed("the plan ended well, but the file is not on the trunk"),
        code => ScenarioResult::failed(format!(
            "`regatta run` ended with {code}: {said} {}",
            world.wait_reason()
        )),
    })
}

fn scenario_write(world: &EndToEndWorld<'_>) -> anyhow::Result<ScenarioResult> {
    world
        .bench
        .models
        .add_script(writing_script(&world.run.marker));
    require_landed(world, world.start_plan()?)
}

/// Checks that the program has Regatta's tools and the attempt's token: a text that the model sends
/// with a tool reaches the board.
fn scenario_tool(world: &EndToEndWorld<'_>, row: &ProgramRow) -> anyhow::Result<ScenarioResult> {
    let words = "Said with a tool of Regatta's.";
    let call = ModelAction::CallTool {
        tool: "progress".into(),
        input: json!({ "text": words }),
    };
    let mut turns = vec![
        ModelTurn::from_action(call),
        ModelTurn::from_file_write(STORY_FILE, STORY_CONTENT),
        ModelTurn::from_text("It is written."),
    ];
    // Codex does not list the tools of MCP servers; its model searches for a known tool.
    if row.program.name.starts_with("codex") {
        turns.insert(
            0,
            ModelTurn::from_action(ModelAction::FindTool {
                tool: "progress".into(),
            }),
        );
    }
    world
        .bench
        .models
        .add_script(ModelScript::new(&world.run.marker, turns));
    let cell = require_landed(world, world.start_plan()?)?;
    let events = world.command(&["events", "--json"]).output()?;
    let events = String::from_utf8_lossy(&events.stdout).into_owned();
    if !cell.is_acceptable()
        || events
            .lines()
            .any(|event| event.contains("task.progressed") && event.contains(words))
    {
        return Ok(cell);
    }
    let answers: Vec<String> = world
        .bench
        .models
        .requests_of(&world.run.marker)
        .into_iter()
        .flat_map(|request| request.tool_results)
        .collect();
    Ok(ScenarioResult::failed(format!(
        "the text is not on the board; the tool answered {answers:?}"
    )))
}

/// Checks that a permission request reaches the inbox, and that allowing it lets the program
/// continue.
fn scenario_permission(world: &EndToEndWorld<'_>) -> anyhow::Result<ScenarioResult> {
    world
        .bench
        .models
        .add_script(writing_script(&world.run.marker));
    world.run_command(&["policy", "add", "ask", "--for", "all"])?;
    let going = world.start_plan()?;
    let mut answered = 0;
    let open = || -> anyhow::Result<Option<String>> {
        let inbox = world.run_command(&["inbox"])?;
        let items = inbox
            .as_array()
            .or_else(|| inbox["items"].as_array())
            .cloned()
            .unwrap_or_default();
        // A task that needs a person is in the inbox too, under its own id.
        Ok(items
            .iter()
            .filter_map(|item| item["id"].as_str())
            .find(|id| id.starts_with('Q'))
            .map(str::to_owned))
    };
    let mut trouble = None;
    wait_until(LANDING_TIMEOUT, || {
        match open() {
            Ok(Some(id)) => match world.run_command(&["allow", &id]) {
                Ok(_) => answered += 1,
                Err(error) => trouble = Some(error),
            },
            Ok(None) => {}
            Err(error) => trouble = Some(error),
        }
        trouble.is_some() || world.has_landed()
    });
    if let Some(error) = trouble {
        return Err(error);
    }
    if answered == 0 {
        return Ok(ScenarioResult::failed(format!(
            "the program did not ask for permission: {}",
            world.wait_reason()
        )));
    }
    require_landed(world, going)
}

/// Checks that a stop during a turn ends the model call and all processes, and that nothing lands.
fn scenario_cancel(world: &EndToEndWorld<'_>) -> anyhow::Result<ScenarioResult> {
    world
        .bench
        .models
        .add_script(hanging_script(&world.run.marker));
    let going = world.start_plan()?;
    world.wait_until_hanging()?;
    world.run_command(&["stop", TASK_ID])?;
    let quiet = || {
        world
            .bench
            .models
            .requests_of(&world.run.marker)
            .iter()
            .all(|request| request.outcome == Some(AnswerEnd::ClientHungUp))
    };
    if !wait_until(SHORT_TIMEOUT, quiet) {
        return Ok(ScenarioResult::failed(
            "the call of the model was not ended",
        ));
    }
    if !wait_until(SHORT_TIMEOUT, || {
        processes_with_mark(&world.run.mark).is_empty()
    }) {
        let processes: Vec<String> = processes_with_mark(&world.run.mark)
            .into_iter()
            .map(process_name)
            .collect();
        return Ok(ScenarioResult::failed(format!(
            "P3: {} still runs after the stop",
            processes.join(", ")
        )));
    }
    let (code, said) = going.wait_for_end(SHORT_TIMEOUT)?;
    Ok(match code {
        _ if world.has_landed() => ScenarioResult::failed("the work landed nevertheless"),
        0 => ScenarioResult::failed(format!("the stopped plan ended with success: {said}")),
        _ => ScenarioResult::passed(),
    })
}

/// Checks that the program survives the death of the daemon during a turn, and that the turn is
/// requested only once.
fn scenario_restart(world: &EndToEndWorld<'_>) -> anyhow::Result<ScenarioResult> {
    world
        .bench
        .models
        .add_script(hanging_script(&world.run.marker));
    let going = world.start_plan()?;
    world.wait_until_hanging()?;
    let agent = world.agent_pid()?;
    kill_pid(world.daemon_pid()?);
    drop(going);
    world.run_command(&["up"])?;
    if world.agent_pid().ok() != Some(agent) {
        return Ok(ScenarioResult::failed(
            "P1: the agent did not outlive the daemon",
        ));
    }
    world.bench.models.release(&world.run.marker);
    if !wait_until(LANDING_TIMEOUT, || world.has_landed()) {
        return Ok(ScenarioResult::failed(format!(
            "the work did not land: {}",
            world.wait_reason()
        )));
    }
    let asked = world.bench.models.requests_of(&world.run.marker).len();
    Ok(if asked == 2 {
        ScenarioResult::passed()
    } else {
        ScenarioResult::failed(format!("the model was asked {asked} times, not twice"))
    })
}

/// Checks that work lands after the provider has refused for a while, whether the program or
/// Regatta waits.
fn scenario_temporary_refusal(
    world: &EndToEndWorld<'_>,
    scenario: Scenario,
) -> anyhow::Result<ScenarioResult> {
    let (failure, time) = match scenario {
        Scenario::RateLimited => {
            let reset = Duration::from_secs(3);
            (
                ModelFailure::RateLimited {
                    resets_after: reset,
                },
                reset,
            )
        }
        _ => (ModelFailure::Overloaded, Duration::from_secs(20)),
    };
    let turns = [
        ModelTurn::from_failure(failure).with_repeat(TurnRepeat::For(time)),
        ModelTurn::from_file_write(STORY_FILE, STORY_CONTENT),
        ModelTurn::from_text("It is written."),
    ];
    world
        .bench
        .models
        .add_script(ModelScript::new(&world.run.marker, turns));
    require_landed(world, world.start_plan()?)
}

/// Checks that a task waits for the reset, and shows that, when the allowance is used up for an
/// hour.
fn scenario_quota_exhausted(world: &EndToEndWorld<'_>) -> anyhow::Result<ScenarioResult> {
    let failure = ModelFailure::QuotaExhausted {
        resets_after: Duration::from_secs(3600),
    };
    world.bench.models.add_script(
        ModelScript::new(&world.run.marker, []).repeat_after(ModelTurn::from_failure(failure)),
    );
    // Some programs wait for the hour without output; then Regatta's limit of silence ends them.
    world.run_command(&["config", "set", "silence", "60s"])?;
    let going = world.start_plan()?;
    let mut why = String::new();
    let ended = wait_until(LANDING_TIMEOUT, || {
        why = world.wait_reason();
        why.contains("rate_limit") || why.contains("its program wrote nothing")
    });
    drop(going);
    Ok(match ended {
        true if why.contains("rate_limit") => ScenarioResult::passed(),
        true => ScenarioResult::Passed(
            "the program does not report the limit; Regatta's limit of silence ended it".into(),
        ),
        false => ScenarioResult::failed(format!("the task does not wait for the reset: {why}")),
    })
}

/// Checks that another attempt does the work after the program was killed, and that nothing of the
/// first one keeps running.
fn scenario_kill_agent(world: &EndToEndWorld<'_>) -> anyhow::Result<ScenarioResult> {
    let mut story = hanging_script(&world.run.marker);
    // The model does not hang when it is called again: the next attempt writes the file.
    story.turns.truncate(1);
    story.turns.extend(writing_script(&world.run.marker).turns);
    world.bench.models.add_script(story);
    let going = world.start_plan()?;
    world.wait_until_hanging()?;
    let first = processes_with_mark(&world.run.mark);
    kill_pid(world.agent_pid()?);
    let cell = require_landed(world, going)?;
    let alive: Vec<String> = processes_with_mark(&world.run.mark)
        .into_iter()
        .filter(|pid| first.contains(pid))
        .map(process_name)
        .collect();
    Ok(if alive.is_empty() {
        cell
    } else {
        ScenarioResult::failed(format!("{} outlived the killed program", alive.join(", ")))
    })
}
