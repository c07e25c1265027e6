//! `run "words"`: a planning agent makes tasks of a goal; the plan is checked as any other, shown, and started on yes.
//!
//! Planning is a task like any other, that reports and changes nothing: one agent looks around in the repository and
//! answers with a plan file. What is wrong with it goes back to it, twice at most.

use std::path::{Path, PathBuf};

use regatta_api::Call;
use regatta_api::input::{self, PlannedTask};
use regatta_api::plan::{PlanView, block};
use regatta_api::view::{MissionView, TaskView};
use regatta_core::ids::{AgentName, ProjectName};
use regatta_server::PlanRead;

use crate::args::Run;
use crate::client::{Client, Got};
use crate::follow::{self, Ending};
use crate::out::{Failed, failed, line, usage};
use crate::plan::{self, Plan};

use super::App;

/// How often a plan that cannot be read goes back to whoever made it.
const ROUNDS: usize = 3;

/// The words of a goal, if that is what was typed where a plan file may stand: several words, and no such file.
pub(super) fn of(typed: Option<&Path>) -> Option<String> {
    let text = typed?.to_str()?.trim();
    let words = text.split_whitespace().count() > 1 && !typed?.exists();
    (words && text != "-").then(|| text.to_owned())
}

/// A plan that was made of words, and the file it is in.
pub(super) struct Made {
    pub(super) plan: Plan,
    pub(super) file: PathBuf,
}

/// Has a plan made.
pub(super) fn plan(
    app: &App,
    client: &Client,
    ask: &Run,
    (goal, project): (&str, &ProjectName),
    agents: &[AgentName],
) -> Result<Made, Failed> {
    let planner = ask.planner.clone().or_else(|| agents.first().cloned()).ok_or_else(|| {
        failed("no_provider", "there is no agent to make a plan", "add one: regatta provider; or regatta agent add")
    })?;
    let script = ask.planner_script.as_deref().map(script_of).transpose()?;
    let mut wrong = String::new();
    for round in 1..=ROUNDS {
        let again = if round == 1 { "" } else { " again" };
        app.out.note(&format!("{planner} plans{again}: {}", line(goal)));
        let said = think(app, client, ask, (goal, project), (&planner, script.as_ref(), &wrong))?;
        let (text, json) = block(&said);
        match plan::parse(&text, json, "the plan") {
            Ok(plan) if plan.tasks.is_empty() => wrong = "it has no tasks".into(),
            Ok(plan) => {
                let plan = Plan { title: line(goal).chars().take(200).collect(), ..plan };
                let file = keep(app, &text, json)?;
                return Ok(Made { plan, file });
            }
            Err(failed) => wrong = failed.words(),
        }
    }
    Err(failed(
        "bad_plan",
        format!("{planner} made no plan that can be read in {ROUNDS} rounds; the last one: {wrong}"),
        "write it yourself: regatta run PLAN.toml; or name another planner: --planner NAME",
    ))
}

/// The steps of a scripted planner, as the daemon takes them.
fn script_of(file: &Path) -> Result<serde_json::Value, Failed> {
    let unread =
        |it: String| usage(format!("{} cannot be read: {it}", file.display()), "name a file of steps, as JSON");
    let text = std::fs::read_to_string(file).map_err(|it| unread(it.to_string()))?;
    serde_json::from_str(&text).map_err(|it| unread(it.to_string()))
}

/// One round: a mission of one report, watched to its end. Gives what was reported.
fn think(
    app: &App,
    client: &Client,
    ask: &Run,
    (goal, project): (&str, &ProjectName),
    (planner, script, wrong): (&AgentName, Option<&serde_json::Value>, &str),
) -> Result<String, Failed> {
    let call = input::PlanAsk {
        project: Some(project.clone()),
        goal: goal.to_owned(),
        planner: Some(planner.clone()),
        wrong: wrong.to_owned(),
        script: script.cloned(),
    };
    let asked: Got<PlanView> = client.call(&Call::PlanAsk(call))?;
    let lost = || failed("bug", "a planning mission without a task", "please report this");
    let task = asked.data.task.ok_or_else(lost)?;
    let shown: Got<TaskView> = client.call(&Call::Show(input::Id { id: task.to_string() }))?;
    let id = shown.data.task.mission.ok_or_else(lost)?;
    let got: Got<MissionView> = client.call(&Call::MissionShow(input::Id { id: id.to_string() }))?;
    let after = asked.revision;
    match follow::follow(app, client, got, after, ask.events)? {
        Ending::Settled | Ending::Needed => {}
        Ending::TimedOut => return Err(Failed::Code(124)),
        Ending::Detached => {
            app.out.note(&format!("the planning goes on · watch it: regatta run --resume {id}"));
            return Err(Failed::Code(130));
        }
    }
    let got: Got<TaskView> = client.call(&Call::Show(input::Id { id: task.to_string() }))?;
    let detail = got.data.attempts.iter().rev().find_map(|it| it.result.as_ref()).map(|it| it.detail.clone());
    let said = detail.filter(|it| !it.trim().is_empty()).or(got.data.task.output.clone()).unwrap_or_default();
    if got.data.word != "done" || said.trim().is_empty() {
        let why = got.data.task.reason.clone().unwrap_or_else(|| "it said nothing".into());
        return Err(failed(
            "no_plan",
            format!("{planner} made no plan: {}", line(&why)),
            format!("see what it said: regatta logs {task}"),
        ));
    }
    Ok(said)
}

/// Reads the plan in what a planner said.
pub(crate) fn read(said: &str) -> Result<PlanRead, String> {
    let (text, json) = block(said);
    let plan = plan::parse(&text, json, "the plan").map_err(|it| it.words())?;
    let warnings = plan.warnings.iter().map(|it| format!("{}; {}", it.what, it.fix)).collect();
    Ok(PlanRead { tasks: plan.tasks, warnings })
}

/// Keeps a plan in a file, to be edited and run again.
fn keep(app: &App, text: &str, json: bool) -> Result<PathBuf, Failed> {
    let dir = app.data_dir()?.join("plans");
    let broken = |it: std::io::Error| failed("io", format!("the plan cannot be kept: {it}"), "see regatta doctor");
    std::fs::create_dir_all(&dir).map_err(broken)?;
    let name = crate::daemon::random_hex(4).map_err(broken)?;
    let file = dir.join(format!("plan-{name}.{}", if json { "json" } else { "toml" }));
    crate::daemon::write_whole(&file, text).map_err(broken)?;
    Ok(file)
}

/// Opens a plan in the person's editor, until it can be read or they leave it.
pub(super) fn edit(app: &App, file: &Path) -> Result<Plan, Failed> {
    let editor = ["VISUAL", "EDITOR"].iter().find_map(|it| std::env::var(it).ok().filter(|it| !it.trim().is_empty()));
    let editor = editor.unwrap_or_else(|| "vi".into());
    loop {
        // An editor may come with arguments of its own, so the shell starts it; the file is an argument, not a part of
        // the line.
        let ended = std::process::Command::new("sh")
            .args(["-c", &format!("{editor} \"$1\""), "sh"])
            .arg(file)
            .status()
            .map_err(|it| failed("io", format!("{editor} cannot be started: {it}"), "set EDITOR to your editor"))?;
        if !ended.success() {
            return Err(failed("editor", format!("{editor} ended with {ended}"), "nothing was started"));
        }
        match plan::read(file) {
            Ok(plan) => return Ok(plan),
            Err(problem) => {
                app.out.note(&problem.words());
                if !super::run::confirmed("mend it?")? {
                    return Err(problem);
                }
            }
        }
    }
}

/// What such work took here before, in words.
pub(super) fn estimate(client: &Client, project: &ProjectName, tasks: &[PlannedTask]) -> Result<String, Failed> {
    let ask =
        input::PlanDraw { project: Some(project.clone()), title: String::new(), tasks: tasks.to_vec(), agents: vec![] };
    let got: Got<PlanView> = client.call(&Call::PlanDraw(ask))?;
    Ok(format!("estimate  {}", got.data.estimate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_goal_and_files_are_plans() {
        let typed = |text: &str| of(Some(Path::new(text)));
        assert_eq!(typed("Add login with rate limits").as_deref(), Some("Add login with rate limits"));
        for file in ["plan.toml", "-", "no-such-file", "Cargo.toml", ""] {
            assert_eq!(typed(file), None, "{file}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("my plan.toml");
        std::fs::write(&file, "").unwrap();
        assert_eq!(of(Some(&file)), None, "a file that is there is a file, whatever its name");
    }

    #[test]
    fn what_is_wrong_goes_back_to_whoever_made_it() {
        let facts = regatta_api::plan::PlanningFacts { checks: vec!["make test".into()], workers: 3 };
        let brief = |goal: &str, wrong: &str| regatta_api::plan::brief(goal, wrong, &facts);
        assert!(!brief("a goal", "").contains("could not be used"));
        let text = brief("a goal", "line 3: no such field");
        assert!(text.contains("line 3: no such field") && text.contains("# The goal\na goal"), "{text}");
        assert!(text.contains("runs `make test` on everything") && text.contains("Up to 3 tasks"), "{text}");
        // The format that is shown can be read.
        let plan = read(&text).unwrap_or_else(|it| panic!("{it}"));
        assert_eq!(plan.tasks.len(), 2);
        assert_eq!(plan.tasks[1].after, [0]);
    }
}
