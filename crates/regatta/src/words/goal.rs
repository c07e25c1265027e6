//! `run "words"`: a planning agent makes tasks of a goal; the plan is checked as any other, shown, and started on yes.
//!
//! Planning is a task like any other, that reports and changes nothing: one agent looks around in the repository and
//! answers with a plan file. What is wrong with it goes back to it, twice at most.

use std::path::{Path, PathBuf};

use regatta_api::Call;
use regatta_api::input::{self, PlannedTask, TaskAddFlat};
use regatta_api::view::{MissionView, TaskView};
use regatta_core::ids::{AgentName, ProjectName};
use regatta_core::mission;
use regatta_core::task::{Expects, IssueType, Validation};

use crate::args::Run;
use crate::client::{Client, Got};
use crate::follow::{self, Ending};
use crate::out::{Failed, failed, line, span, usage};
use crate::plan::{self, Plan};

use super::App;

/// How often a plan that cannot be read goes back to whoever made it.
const ROUNDS: usize = 3;
/// The longest goal.
const LONGEST: usize = 8_000;

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
    if goal.len() > LONGEST {
        return Err(usage(
            format!("a goal has at most {LONGEST} bytes"),
            "write the rest into a file of the repository, and name it",
        ));
    }
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
    let subject: String = format!("Plan: {}", line(goal)).chars().take(200).collect();
    let task = TaskAddFlat {
        subject: subject.clone(),
        description: brief(goal, wrong),
        issue_type: IssueType::Chore,
        files: vec![],
        validation: Validation::default(),
        priority: regatta_core::task::default_priority(),
        expects: Expects::Report,
        effort: None,
        provider: None,
        script: script.cloned(),
        ratchet: None,
        alias: None,
        assign: Some(planner.clone()),
    };
    let start = input::MissionStart {
        project: Some(project.clone()),
        title: subject,
        agents: vec![planner.clone()],
        max_workers: 1,
        mode: mission::Mode::Flow,
        isolate: false,
        wave_commits: false,
        tasks: vec![PlannedTask { task, after: vec![] }],
        adopt: vec![],
    };
    let got: Got<MissionView> = client.call(&Call::MissionStart(start))?;
    let (id, after) = (got.data.mission.id, got.revision);
    let of = got.data.tasks.first().map(|it| it.task.id);
    match follow::follow(app, client, got, after, ask.events)? {
        Ending::Settled | Ending::Needed => {}
        Ending::TimedOut => return Err(Failed::Code(124)),
        Ending::Detached => {
            app.out.note(&format!("the planning goes on · watch it: regatta run --resume {id}"));
            return Err(Failed::Code(130));
        }
    }
    let task = of.ok_or_else(|| failed("bug", "a planning mission without a task", "please report this"))?;
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

/// What the planner is told.
fn brief(goal: &str, wrong: &str) -> String {
    let again =
        if wrong.is_empty() { String::new() } else { format!("\n# Your last plan could not be used\n{wrong}\n") };
    format!(
        "Make a plan for this goal. Look around in the repository first; change nothing yourself.\n\n# The goal\n{goal}\n\
         {again}\n\
         # What a good plan is\n\
         - Tasks that different agents can work on at the same time: each names the files it may touch (`files`, few and\n\
         exact; patterns such as src/api/** are possible), and tasks that want the same file wait for each other.\n\
         - Each task is small enough for one sitting, and says in its description all that its agent must know.\n\
         - Each task says how it is checked: `validation.tests` are shell commands that must pass, `files_exist` are\n\
         files that must be there, `content_check` what must be found in them.\n\
         - `blocked_by` names the tasks whose work it needs, by their ids. No circles.\n\n\
         # How to answer\n\
         With the plan alone, as the detail of your result, in one block:\n\n\
         ```toml\n\
         [[task]]\n\
         id = \"model\"\n\
         subject = \"One line that says what is to be done\"\n\
         description = \"What its agent must know\"\n\
         issue_type = \"feature\"   # or bug, task, docs, chore, ci\n\
         files = [\"src/model/user.rs\"]\n\
         validation = {{ tests = [\"cargo test user\"], files_exist = [\"src/model/user.rs\"] }}\n\n\
         [[task]]\n\
         id = \"form\"\n\
         subject = \"…\"\n\
         files = [\"web/login.html\"]\n\
         blocked_by = [\"model\"]\n\
         validation = {{ tests = [\"npm test\"], files_exist = [\"web/login.html\"] }}\n\
         ```\n"
    )
}

/// The plan in an answer: the block that is marked as one, else all of it; and whether it is JSON.
fn block(said: &str) -> (String, bool) {
    let fenced = |mark: &str| {
        let from = said.find(mark)? + mark.len();
        let rest = &said[from..];
        let begin = rest.find('\n')? + 1;
        let end = rest[begin..].find("\n```").map_or(rest.len(), |it| begin + it + 1);
        Some(rest[begin..end].to_owned())
    };
    if let Some(text) = fenced("```json") {
        return (text, true);
    }
    let text = fenced("```toml").or_else(|| fenced("```")).unwrap_or_else(|| said.to_owned());
    let json = text.trim_start().starts_with('{') || text.trim_start().starts_with("[{");
    (text, json)
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

/// What such work took here before: the middle half of what landed, for as many tasks. Nothing where nothing is known.
pub(super) fn estimate(client: &Client, project: &ProjectName, tasks: usize) -> Result<String, Failed> {
    let filter = input::TaskList {
        project: Some(project.clone()),
        mission: None,
        status: vec![regatta_core::task::Status::Completed],
        all: true,
        limit: 500,
    };
    let done: Got<Vec<TaskView>> = client.call(&Call::TaskList(filter))?;
    let landed = || done.data.iter().filter(|it| it.task.landed.is_some());
    let times: Vec<u64> = landed().map(|it| it.task.spent.wall_ms).filter(|it| *it > 0).collect();
    let costs: Vec<u64> = landed().filter_map(|it| it.task.spent.usage.micro_usd).collect();
    Ok(estimated(times, costs, tasks as u64))
}

fn estimated(mut times: Vec<u64>, mut costs: Vec<u64>, tasks: u64) -> String {
    let half = |all: &mut Vec<u64>| {
        all.sort_unstable();
        let at = |quarter: usize| all.get(all.len() * quarter / 4).or(all.last()).copied();
        Some((at(1)? * tasks, at(3)? * tasks))
    };
    let from = times.len().max(costs.len());
    let usd = |micro: u64| format!("${:.2}", micro as f64 / 1e6);
    let cost = half(&mut costs).map(|(low, high)| format!("{}-{}", usd(low), usd(high)));
    let time = half(&mut times).map(|(low, high)| format!("{} to {} of work", span(low), span(high)));
    match (cost, time) {
        (None, None) => "estimate  none: nothing landed here yet that says what it took".into(),
        (cost, time) => {
            let parts: Vec<String> = cost.into_iter().chain(time).collect();
            format!("estimate  {} · from {from} that landed here", parts.join(" · "))
        }
    }
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
    fn a_plan_is_found_in_what_is_said() {
        let toml = "[[task]]\nsubject = \"x\"\n";
        assert_eq!(block(toml), (toml.to_owned(), false));
        assert_eq!(block(&format!("Here it is:\n\n```toml\n{toml}```\nGood luck!")), (toml.to_owned(), false));
        assert_eq!(block(&format!("```\n{toml}```")), (toml.to_owned(), false));
        assert_eq!(block("```json\n{\"task\": []}\n```"), ("{\"task\": []}\n".to_owned(), true));
        assert!(block("{\"task\": []}").1);
        assert_eq!(block("```toml\nno end"), ("no end".to_owned(), false));
    }

    /// A price that nobody reported is not nothing.
    #[test]
    fn an_estimate_says_from_what_it_is() {
        assert!(estimated(vec![], vec![], 7).contains("none"));
        let text = estimated(vec![60_000; 8], vec![], 2);
        assert_eq!(text, "estimate  2m to 2m of work · from 8 that landed here");
        let text = estimated(vec![1_000, 60_000, 120_000, 600_000], vec![100_000, 200_000, 300_000, 400_000], 10);
        assert_eq!(text, "estimate  $2.00-$4.00 · 10m to 1h of work · from 4 that landed here");
    }

    #[test]
    fn what_is_wrong_goes_back_to_whoever_made_it() {
        assert!(!brief("a goal", "").contains("could not be used"));
        let text = brief("a goal", "line 3: no such field");
        assert!(text.contains("line 3: no such field") && text.contains("# The goal\na goal"), "{text}");
        // The format that is shown can be read.
        let (example, json) = block(&text);
        let plan = plan::parse(&example, json, "example").unwrap_or_else(|it| panic!("{}", it.words()));
        assert_eq!(plan.tasks.len(), 2);
        assert_eq!(plan.tasks[1].after, [0]);
    }
}
