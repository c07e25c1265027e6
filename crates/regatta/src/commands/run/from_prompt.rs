//! `run "a goal in words"`: an agent turns the goal into a plan, which a person confirms before it
//! starts.
//!
//! Planning is a task whose result is a report. The planning agent reads the repository and answers
//! with the text of a plan file. If the plan has errors, the agent receives the errors and tries
//! again, at most twice.

use std::path::{Path, PathBuf};

use regatta_api::input::PlannedTask;
use regatta_api::plan::{PlanView, extract_plan};
use regatta_api::view::MissionView;
use regatta_api::{call, input};
use regatta_core::display::DisplayState;
use regatta_core::ids::{AgentName, ProjectName};
use regatta_server::ParsedPlan;

use crate::client::{CallReply, Client};
use crate::commands::CommandContext;
use crate::commands::run::RunArgs;
use crate::output::{CommandError, command_error, first_line, internal_error, usage_error};
use crate::plan::Plan;
use crate::run_progress::FollowEnd;
use crate::{plan, run_progress};

/// The maximum number of times that the agent is asked for a valid plan.
const MAX_ROUNDS: usize = 3;

/// Returns the argument of `run` if it is a goal and not a file, because it has several words and
/// no file with this name exists.
pub(crate) fn goal_from_argument(typed: Option<&Path>) -> Option<String> {
    let text = typed?.to_str()?.trim();
    let is_goal = text.split_whitespace().count() > 1 && !typed?.exists();
    (is_goal && text != "-").then(|| text.to_owned())
}

/// A plan that an agent made for a goal, and the file in which it was saved.
pub(crate) struct GoalPlan {
    pub(crate) plan: Plan,
    pub(crate) file: PathBuf,
}

/// Lets an agent make a plan for a goal and saves the plan. An invalid plan is sent back with its
/// problem, until it is valid or [`MAX_ROUNDS`] is reached.
pub(crate) fn make_plan(
    app: &CommandContext,
    client: &Client,
    args: &RunArgs,
    goal: &str,
    project: &ProjectName,
    agents: &[AgentName],
) -> Result<GoalPlan, CommandError> {
    let planner = args.planner.clone().or_else(|| agents.first().cloned()).ok_or_else(|| {
        command_error(
            "no_provider",
            "there is no agent that could make a plan",
            "find an agent program: regatta provider; then add the agent: regatta agent add NAME \
            --preset PRESET",
        )
    })?;
    let script = args
        .planner_script
        .as_deref()
        .map(read_script)
        .transpose()?;
    let mut last_problem = String::new();
    for round in 1..=MAX_ROUNDS {
        let again = if round == 1 { "" } else { " again" };
        app.output
            .print_note(&format!("{planner} plans{again}: {}", first_line(goal)));
        let report = run_planning_round(
            app,
            client,
            args,
            PlanningRound {
                goal,
                project,
                planner: &planner,
                script: script.as_ref(),
                last_problem: &last_problem,
            },
        )?;
        let (text, json) = extract_plan(&report);
        match plan::parse_plan(&text, json, "the plan") {
            Ok(plan) if plan.tasks.is_empty() => last_problem = "it has no tasks".into(),
            Ok(plan) => {
                let plan = Plan {
                    title: first_line(goal).chars().take(200).collect(),
                    ..plan
                };
                let file = save_plan(app, &text, json)?;
                return Ok(GoalPlan { plan, file });
            }
            Err(error) => last_problem = error.message(),
        }
    }
    Err(command_error(
        "bad_plan",
        format!(
            "{planner} made no valid plan in {MAX_ROUNDS} rounds; the last problem: {last_problem}"
        ),
        "write the plan by hand: regatta run PLAN.toml; or choose another planner: --planner NAME",
    ))
}

/// Reads the JSON file of `--planner-script`, the steps of a scripted planner.
fn read_script(file: &Path) -> Result<serde_json::Value, CommandError> {
    let unread = |s: String| {
        usage_error(
            format!(
                "could not read the steps of the scripted planner from the file {file}: {s}",
                file = file.display()
            ),
            "name a JSON file with the steps of a scripted agent",
        )
    };
    let text = std::fs::read_to_string(file).map_err(|error| unread(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| unread(error.to_string()))
}

/// The inputs of one round of planning. Each round asks the agent once for a plan.
struct PlanningRound<'a> {
    goal: &'a str,
    project: &'a ProjectName,
    planner: &'a AgentName,
    /// The steps for a scripted planner; `None` for an agent with a model.
    script: Option<&'a serde_json::Value>,
    /// The problem in the plan of the previous round; empty in the first round.
    last_problem: &'a str,
}

/// Runs one round of planning: starts a mission with one task that asks for a report, follows the
/// mission, and returns the report.
fn run_planning_round(
    app: &CommandContext,
    client: &Client,
    args: &RunArgs,
    round: PlanningRound<'_>,
) -> Result<String, CommandError> {
    let PlanningRound {
        goal,
        project,
        planner,
        script,
        last_problem,
    } = round;
    let call = input::PlanAsk {
        project: Some(project.clone()),
        goal: goal.to_owned(),
        planner: Some(planner.clone()),
        wrong: last_problem.to_owned(),
        script: script.cloned(),
    };
    let plan: CallReply<PlanView> = client.call(call::PlanAsk(call))?;
    let missing_task = || internal_error("the daemon started a planning mission without a task");
    let task = plan.data.task.ok_or_else(missing_task)?;
    let id = client
        .show_task(task)?
        .task
        .mission
        .ok_or_else(missing_task)?;
    let reply: CallReply<MissionView> =
        client.call(call::MissionShow(input::IdInput { id: id.to_string() }))?;
    let after = plan.revision;
    match run_progress::follow(app, client, reply, after, args.events)? {
        FollowEnd::Settled | FollowEnd::PersonNeeded => {}
        FollowEnd::TimedOut => return Err(CommandError::Exit(124)),
        FollowEnd::Detached => {
            app.output.print_note(&format!(
                "the planning continues · follow it: regatta run --resume {id}"
            ));
            return Err(CommandError::Exit(130));
        }
    }
    let view = client.show_task(task)?;
    let detail = view
        .attempts
        .iter()
        .rev()
        .find_map(|attempt| attempt.result.as_ref())
        .map(|work_result| work_result.detail.clone());
    let report = detail
        .filter(|detail| !detail.trim().is_empty())
        .or(view.task.output.clone())
        .unwrap_or_default();
    if view.at != DisplayState::Landed || report.trim().is_empty() {
        let why = view
            .task
            .reason
            .clone()
            .unwrap_or_else(|| "its report is empty".into());
        return Err(command_error(
            "no_plan",
            format!(
                "the agent {planner} made no plan: {reason}",
                reason = first_line(&why)
            ),
            format!("see the agent's output: regatta logs {task}"),
        ));
    }
    Ok(report)
}

/// Finds the plan in a planner's report and parses it. The error describes the problem in the plan.
pub(crate) fn parse_planner_report(report: &str) -> Result<ParsedPlan, String> {
    let (text, json) = extract_plan(report);
    let plan = plan::parse_plan(&text, json, "the plan").map_err(|error| error.message())?;
    let warnings = plan
        .warnings
        .iter()
        .map(|diagnostic| format!("{}; {}", diagnostic.what, diagnostic.fix))
        .collect();
    Ok(ParsedPlan {
        tasks: plan.tasks,
        warnings,
    })
}

/// Writes a plan's text to a file in the data directory, so that a person can edit it and run it
/// again.
fn save_plan(app: &CommandContext, text: &str, json: bool) -> Result<PathBuf, CommandError> {
    let dir = app.data_dir()?.join("plans");
    let broken = |error: std::io::Error| {
        command_error(
            "io",
            format!("could not save the plan: {error}"),
            "see what is wrong: regatta doctor",
        )
    };
    std::fs::create_dir_all(&dir).map_err(broken)?;
    let name = crate::daemon::random_hex(4).map_err(broken)?;
    let file = dir.join(format!(
        "plan-{name}.{}",
        if json { "json" } else { "toml" }
    ));
    crate::daemon::write_atomically(&file, text).map_err(broken)?;
    Ok(file)
}

/// Opens a plan file in the person's editor, again and again until the plan is valid or the person
/// gives up.
pub(crate) fn edit_plan(app: &CommandContext, file: &Path) -> Result<Plan, CommandError> {
    let editor = ["VISUAL", "EDITOR"].iter().find_map(|variable| {
        std::env::var(variable)
            .ok()
            .filter(|variable| !variable.trim().is_empty())
    });
    let editor = editor.unwrap_or_else(|| "vi".into());
    loop {
        // The command of the editor may contain arguments, so a shell starts the editor. The file
        // is passed as `$1`, because its name may contain characters that the shell would
        // interpret.
        let status = std::process::Command::new("sh")
            .args(["-c", &format!("{editor} \"$1\""), "sh"])
            .arg(file)
            .status()
            .map_err(|error| {
                command_error(
                    "io",
                    format!("could not start the editor {editor}: {error}"),
                    "set EDITOR to the command of your editor, such as vi",
                )
            })?;
        if !status.success() {
            return Err(command_error(
                "editor",
                format!("the editor {editor} failed ({status}), so nothing was started"),
                format!(
                    "set EDITOR to an editor that works, or start the plan: regatta run {}",
                    file.display()
                ),
            ));
        }
        match plan::read_plan(file) {
            Ok(plan) => return Ok(plan),
            Err(problem) => {
                app.output.print_note(&problem.message());
                if !crate::commands::run::confirm::confirm("fix it?")? {
                    return Err(problem);
                }
            }
        }
    }
}

/// Asks the daemon for the expected duration and cost of a plan, and returns the answer as a line
/// of text. The daemon estimates from similar work in this project.
pub(crate) fn estimate_plan(
    client: &Client,
    project: &ProjectName,
    tasks: &[PlannedTask],
) -> Result<String, CommandError> {
    let request = input::PlanDraw {
        project: Some(project.clone()),
        title: String::new(),
        tasks: tasks.to_vec(),
        agents: vec![],
    };
    let reply: CallReply<PlanView> = client.call(call::PlanDraw(request))?;
    Ok(format!("estimate  {}", reply.data.estimate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_words_are_a_goal_and_file_names_are_plans() {
        let typed = |text: &str| goal_from_argument(Some(Path::new(text)));
        assert_eq!(
            typed("Add login with rate limits").as_deref(),
            Some("Add login with rate limits")
        );
        for file in ["plan.toml", "-", "no-such-file", "Cargo.toml", ""] {
            assert_eq!(typed(file), None, "{file}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("my plan.toml");
        std::fs::write(&file, "").unwrap();
        assert_eq!(
            goal_from_argument(Some(&file)),
            None,
            "the name of an existing file is never a goal"
        );
    }

    #[test]
    fn the_planner_gets_the_problems_of_its_last_plan() {
        let facts = regatta_api::plan::PlanningFacts {
            checks: vec!["make test".into()],
            workers: 3,
        };
        let brief = |goal: &str, wrong: &str| regatta_api::plan::planner_brief(goal, wrong, &facts);
        assert!(!brief("a goal", "").contains("could not be used"));
        let text = brief("a goal", "line 3: no such field");
        assert!(
            text.contains("line 3: no such field") && text.contains("# The goal\na goal"),
            "{text}"
        );
        assert!(
            text.contains("runs `make test` on everything") && text.contains("Up to 3 tasks"),
            "{text}"
        );
        // The example plan in the brief is valid.
        let plan = parse_planner_report(&text).unwrap_or_else(|s| panic!("{s}"));
        assert_eq!(plan.tasks.len(), 2);
        assert_eq!(plan.tasks[1].after, [0]);
    }
}
