//! The command `demo`: a small real repository, seven tasks and three scripted agents. Everything
//! is checked and lands.
//!
//! One task asks a question, and another one's work needs a review before it lands, so the demo
//! shows decisions too. A person decides in the terminal or on the page. Without a terminal the
//! demo takes the first choice by itself. With `--serve` it leaves both decisions open for the web
//! page.

use std::path::Path;
use std::time::Instant;

use regatta_api::Call;
use regatta_api::input::{self, RuntimeName};
use regatta_api::page::OpenView;
use regatta_api::view::{AgentView, InboxView, MissionView, ProjectView, TaskView};
use regatta_core::agent::Role;
use regatta_core::approval::Reach;
use regatta_core::ids::{AgentName, MissionId};
use regatta_core::mission;
use regatta_core::pattern::PathPattern;
use regatta_core::session::Answer;
use serde::Serialize;

use crate::args::Demo;
use crate::client::{Client, Got};
use crate::follow::{self, Ending, Until};
use crate::interrupt::Interrupts;
use crate::out::{Failed, Said, failed, plain, table};
use crate::plan;

use super::App;
use super::start::{start_for, stop_for};

/// The files of the demo's repository: a program that greets in several languages, with a test.
const FILES: &[(&str, &str)] = &[
    ("README.md", "# Greet\n\nSays hello. `./greet.sh LANGUAGE`\n"),
    ("greet.sh", GREET),
    ("words/en.txt", "hello\n"),
    ("test.sh", TEST),
];

const GREET: &str = r#"#!/bin/sh
# Says hello in the language of the first argument.
language="${1:-en}"
cat "$(dirname "$0")/words/$language.txt"
"#;

const TEST: &str = r#"#!/bin/sh
# Every language has one word, and the program says it.
set -e
cd "$(dirname "$0")"
for file in words/*.txt; do
  language="$(basename "$file" .txt)"
  [ "$(wc -l < "$file")" -eq 1 ] || { echo "$file must have one line"; exit 1; }
  [ "$(sh ./greet.sh "$language")" = "$(cat "$file")" ] || { echo "greet.sh $language is wrong"; exit 1; }
done
echo "all languages pass"
"#;

/// Seven tasks in three layers of dependencies. Two of them change `greet.sh`.
const PLAN: &str = r##"
title = "Greet in three languages"

[[task]]
id = "french"
subject = "Greet in French"
files = ["words/fr.txt"]
script = [{ say = "writing the word list" }, { write = { path = "words/fr.txt", text = "bonjour\n" } }, { run = "sh ./test.sh" }]

[[task]]
id = "german"
subject = "Greet in German"
files = ["words/de.txt"]
script = [{ write = { path = "words/de.txt", text = "hallo\n" } }, { sleep = 0.3 }, { run = "sh ./test.sh" }]

[[task]]
id = "fallback"
subject = "Fall back to English"
issue_type = "bug"
files = ["greet.sh"]
script = [
  { say = "an unknown language must not fail" },
  { replace = { path = "greet.sh", from = "cat \"$(dirname \"$0\")/words/$language.txt\"", to = "words=\"$(dirname \"$0\")/words\"\n[ -f \"$words/$language.txt\" ] || language=en\ncat \"$words/$language.txt\"" } },
  { run = "test \"$(sh ./greet.sh xx)\" = hello" },
]
validation = { tests = "test \"$(sh ./greet.sh xx)\" = hello" }

[[task]]
id = "usage"
subject = "Explain the usage"
files = ["greet.sh"]
script = [
  { ask = { question = "Say the usage in one line, or with an example?", choices = ["one line", "with an example"] } },
  { replace = { path = "greet.sh", from = "language=\"${1:-en}\"", to = "if [ \"$1\" = --help ]; then echo \"usage: greet.sh [LANGUAGE]\"; exit 0; fi\nlanguage=\"${1:-en}\"" } },
]
validation = { tests = "sh ./greet.sh --help | grep -q usage" }

[[task]]
id = "list"
subject = "List the languages"
files = ["languages.txt"]
blocked_by = ["french", "german"]
script = [{ run = "ls words | sed 's/.txt//' > languages.txt" }]
validation = { content_check = [{ file = "languages.txt", pattern = "fr" }, { file = "languages.txt", pattern = "de" }] }

[[task]]
id = "readme"
subject = "Describe the languages"
issue_type = "docs"
files = ["README.md"]
blocked_by = ["list", "usage"]
script = [{ append = { path = "README.md", text = "\nLanguages: see languages.txt. An unknown one is greeted in English.\n" } }]

[[task]]
id = "changelog"
subject = "Start the changelog"
issue_type = "docs"
files = ["CHANGELOG.md"]
blocked_by = ["fallback"]
script = [{ write = { path = "CHANGELOG.md", text = "# Changes\n\n- French and German\n- English as the fallback\n" } }]
"##;

/// The result of the demo, for `--json`.
#[derive(Serialize)]
struct Outcome {
    repo: String,
    tasks: usize,
    landed: usize,
    agents: usize,
    seconds: f64,
    url: Option<String>,
    data_dir: String,
    /// The number of decisions that wait for a person.
    needs_you: usize,
}

/// Runs `regatta demo`.
pub(super) fn demo(app: &App, ask: &Demo) -> Said {
    let began = Instant::now();
    let place = tempfile::Builder::new().prefix("regatta-demo-").tempdir();
    let place = place.map_err(|it| {
        failed("io", format!("no temporary directory can be had: {it}"), "set TMPDIR to a directory with room")
    })?;
    let (repo, data_dir) = (place.path().join("greet"), place.path().join("data"));
    regatta_git::sample::make(&repo, FILES).map_err(|it| failed(it.code, it.what, it.hint))?;
    app.out.note(&format!(
        "regatta {} · demo: {} scripted agents, no API key, nothing leaves this machine",
        env!("CARGO_PKG_VERSION"),
        ask.size
    ));
    app.out.note(&format!("repo  {}   (a small shell project with tests)", repo.display()));
    let client = start_for(&data_dir)?;
    let page: Got<OpenView> = client.call(&Call::Open(input::Nothing {}))?;
    app.out.note(&format!("web   {}   (works once)", page.data.url));
    let played = play(app, ask, &client, &repo, began);
    let keep = ask.keep || ask.serve;
    let stopped = if ask.serve { Ok(()) } else { stop_for(&client) };
    let kept = keep.then(|| place.keep());
    let (mut said, landed_all) = played?;
    stopped?;
    if ask.serve {
        let page: Got<OpenView> = client.call(&Call::Open(input::Nothing {}))?;
        said.web = Some(page.data.url);
    }
    said_goodbye(app, ask, kept.as_deref(), &said)?;
    if landed_all { Ok(()) } else { Err(Failed::Code(8)) }
}

/// Runs the demo's mission until it ends. Also returns whether everything landed or waits for a
/// person.
fn play(app: &App, ask: &Demo, client: &Client, repo: &Path, began: Instant) -> Result<(Told, bool), Failed> {
    let add = input::ProjectAdd {
        path: repo.to_string_lossy().into_owned(),
        name: None,
        trunk: None,
        validation: vec!["sh ./test.sh".into()],
        validation_timeout_ms: Some(60_000),
        settings: settings()?,
    };
    let project: Got<ProjectView> = client.call(&Call::ProjectAdd(add))?;
    let live = live(ask.size);
    let mut agents = Vec::new();
    for nth in 1..=ask.size {
        let name = AgentName::new(&format!("scripted-{nth}"))
            .map_err(|it| failed("bug", it.to_string(), "please report this"))?;
        let add = input::AgentAdd {
            name: name.clone(),
            runtime: RuntimeName::Scripted,
            command: vec![],
            role: Role::Worker,
            provider: None,
            description: "follows each task's script".into(),
            max_tasks: 1,
            profile: Default::default(),
            anyway: false,
        };
        let _added: Got<AgentView> = client.call(&Call::AgentAdd(add))?;
        agents.push(name);
    }
    let _limits: Got<String> =
        client.call(&Call::LimitsSet(input::Limits { max_attempts: Some(live), ..input::Limits::default() }))?;
    let plan = plan::parse(&plan_for(ask.size), false, "demo.toml")?;
    let start = input::MissionStart {
        project: Some(project.data.name),
        title: plan.title.clone(),
        agents,
        max_workers: live,
        mode: mission::Mode::Flow,
        isolate: false,
        wave_commits: false,
        team: None,
        budget: Default::default(),
        tasks: plan.tasks,
        adopt: vec![],
    };
    let got: Got<MissionView> = client.call(&Call::MissionStart(start))?;
    let id = got.data.mission.id;
    app.out.note(&format!("{id} \"{}\"   {} tasks", got.data.mission.title, got.data.tasks.len()));
    let (ending, open) = attend(app, ask, client, got)?;
    let last: Got<MissionView> = client.call(&Call::MissionShow(input::Id { id: id.to_string() }))?;
    let landed = last.data.tasks.iter().filter(|it| it.word == "landed").count();
    let told = Told {
        table: table(&super::summary::rows(&app.out, &last.data.tasks)),
        graph: regatta_git::sample::graph(repo, last.data.tasks.len() + 1)
            .map_err(|it| failed(it.code, it.what, it.hint))?,
        outcome: Outcome {
            repo: repo.display().to_string(),
            tasks: last.data.tasks.len(),
            landed,
            agents: ask.size as usize,
            seconds: (began.elapsed().as_millis() as f64) / 1_000.0,
            url: crate::daemon::read_card(client.place()).map(|it| it.url).filter(|_| ask.serve),
            data_dir: client.place().dir.display().to_string(),
            needs_you: open.len(),
        },
        open,
        web: None,
    };
    match ending {
        Ending::TimedOut => Err(Failed::Code(124)),
        Ending::Detached => Err(Failed::Code(130)),
        // Tasks that wait for a person do not count as failures.
        Ending::Settled | Ending::Needed => {
            let good = landed == last.data.tasks.len() || !told.open.is_empty();
            Ok((told, good))
        }
    }
}

/// Returns how many of `size` agents work at once. Each needs two processes and a checkout, so a
/// laptop gets fewer.
fn live(size: u32) -> u32 {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    size.min(u32::try_from(cores.saturating_mul(12)).unwrap_or(24).max(8))
}

/// Returns the project settings of the demo: a change of the README needs a review.
fn settings() -> Result<regatta_core::project::Settings, Failed> {
    let mut settings = regatta_core::project::Settings::default();
    let readme = PathPattern::new("README.md").map_err(|it| failed("bug", it.to_string(), "please report this"))?;
    settings.landing.protected = vec![readme];
    Ok(settings)
}

/// Something that waits for a decision of a person.
enum Open {
    Asked(Box<InboxView>),
    Review(Box<TaskView>),
}

impl Open {
    /// Describes the item and its choices in one line.
    fn words(&self) -> String {
        match self {
            Open::Asked(it) => {
                let who = it.agent.as_ref().map_or(String::new(), |it| format!(" {it}"));
                let choices = if it.kind == "permission" { ask_permission() } else { numbered(&it.choices) };
                format!(
                    "{} {}{who} asks: {}   {choices}",
                    it.id,
                    it.task.map(|it| it.to_string()).unwrap_or_default(),
                    plain(&it.subject)
                )
            }
            Open::Review(it) => {
                let id = it.task.id;
                format!("{id} \"{}\" is done and waits for your review   1 land it", plain(&it.task.subject))
            }
        }
    }

    /// Returns the shell command that decides the item.
    fn line(&self) -> String {
        match self {
            Open::Asked(it) if it.kind == "permission" => format!("regatta allow {}", it.id),
            Open::Asked(it) => {
                let first = it.choices.first().map_or("…", String::as_str);
                format!("regatta answer {} '{}'", it.id, plain(first))
            }
            Open::Review(it) => format!("regatta land {}", it.task.id),
        }
    }

    /// Returns an error message if `said` is not one of the choices. An empty line is the first
    /// choice.
    fn misread(&self, said: &str) -> Option<String> {
        let choices: Vec<String> = match self {
            Open::Asked(item) if item.kind == "permission" => vec!["allow".into(), "deny".into()],
            // A question without choices accepts any text.
            Open::Asked(item) if item.choices.is_empty() => return None,
            Open::Asked(item) => item.choices.clone(),
            Open::Review(_) => vec!["land".into()],
        };
        let is_choice = said.parse::<usize>().is_ok_and(|nth| (1..=choices.len()).contains(&nth))
            || choices.iter().any(|choice| choice == said);
        let wanted = if choices.len() == 1 { "1".to_owned() } else { format!("a number from 1 to {}", choices.len()) };
        (!said.is_empty() && !is_choice).then(|| format!("{said:?} is not one of the choices; type {wanted}"))
    }

    /// Sends the decision: the choice with this number or text, or the first choice for an empty
    /// line.
    fn decide(&self, client: &Client, said: &str) -> Result<(), Failed> {
        let call = match self {
            Open::Asked(it) => {
                let id =
                    it.id.parse().map_err(|_| failed("bug", "an inbox item has no number", "please report this"))?;
                let answer = match (it.kind.as_str(), said) {
                    ("permission", "2" | "deny") => Answer::Deny { words: None },
                    ("permission", _) => Answer::Allow,
                    _ => {
                        let nth = said.parse::<usize>().ok().and_then(|nth| it.choices.get(nth.wrapping_sub(1)));
                        let other =
                            if said.is_empty() { it.choices.first().map_or("yes", String::as_str) } else { said };
                        Answer::Text { text: nth.map_or(other, String::as_str).to_owned() }
                    }
                };
                Call::InboxAnswer(input::Decide { id, answer, reach: Reach::Task, alike: false })
            }
            Open::Review(it) => {
                let id = it.task.id.to_string();
                Call::Land(input::Land { id, first: false, claim: None, token: None })
            }
        };
        match client.call::<serde_json::Value>(&call) {
            Ok(_) => Ok(()),
            // A person has already decided on the page.
            Err(Failed::Problem(it)) if matches!(it.code.as_str(), "already_answered" | "nothing_to_land") => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the choices of a permission request.
fn ask_permission() -> String {
    numbered(&["allow".to_owned(), "deny".to_owned()])
}

fn numbered(choices: &[String]) -> String {
    (1..).zip(choices).map(|(nth, it)| format!("{nth} {}", plain(it))).collect::<Vec<_>>().join("   ")
}

/// Returns everything that waits for a decision of a person.
fn open(client: &Client, mission: MissionId) -> Result<Vec<Open>, Failed> {
    let asks: Got<Vec<InboxView>> = client.call(&Call::InboxList(input::Scope { project: None }))?;
    let all: Got<MissionView> = client.call(&Call::MissionShow(input::Id { id: mission.to_string() }))?;
    let asked = asks.data.into_iter().filter(|it| it.ask.is_some()).map(|it| Open::Asked(Box::new(it)));
    let review = all.data.tasks.into_iter().filter(|it| it.word == "review").map(|it| Open::Review(Box::new(it)));
    Ok(asked.chain(review).collect())
}

/// Follows the mission and decides each item that comes up: it asks the person at the terminal, or
/// takes the first choice without one. Returns the items that stay open for people who come later.
fn attend(app: &App, ask: &Demo, client: &Client, first: Got<MissionView>) -> Result<(Ending, Vec<Open>), Failed> {
    let (id, asks) = (first.data.mission.id, app.may_ask_now());
    let left = ask.serve && !app.global.no_input;
    let until = if left { Until::OnlyNeeded } else { Until::Needed };
    let mut got = first;
    let mut after = got.revision;
    loop {
        let ending;
        (ending, after) = follow::until_needed(app, client, got, after, until)?;
        if matches!(ending, Ending::TimedOut | Ending::Detached) {
            return Ok((ending, vec![]));
        }
        let open = open(client, id)?;
        if left || open.is_empty() && ending == Ending::Settled {
            return Ok((ending, open));
        }
        for it in open {
            app.out.note(&it.words());
            let said = loop {
                let said = if asks { Interrupts::listen()?.ask(">").ok_or(Failed::Code(130))? } else { String::new() };
                match it.misread(said.trim()) {
                    Some(why) => app.out.note(&plain(&why)),
                    None => break said,
                }
            };
            it.decide(client, said.trim())?;
        }
        // Start from the present state, so that changes during the question are printed too.
        got = client.call(&Call::MissionShow(input::Id { id: id.to_string() }))?;
    }
}

struct Told {
    table: String,
    graph: String,
    outcome: Outcome,
    open: Vec<Open>,
    /// A fresh sign-in address for a browser, because each address works once.
    web: Option<String>,
}

/// Prints the result of the demo and the next steps.
fn said_goodbye(app: &App, ask: &Demo, kept: Option<&Path>, told: &Told) -> Said {
    let it = &told.outcome;
    let shell = format!("export REGATTA_DATA_DIR={} && cd {}", it.data_dir, it.repo);
    let mut next = Vec::new();
    if ask.serve {
        next.push(shell.clone());
        next.extend(told.open.iter().map(Open::line));
        next.push("regatta open".into());
        next.push("regatta status".into());
        next.push("regatta down".into());
    }
    app.out.answer("demo", it, &next, |_| {
        let mut text = format!("{}\n{}\n", told.table.trim_end(), told.graph.trim_end());
        text += &format!(
            "done   {} of {} landed in {:.1} s by {} agents · $0.00 (scripted)\n",
            it.landed, it.tasks, it.seconds, it.agents
        );
        for it in &told.open {
            text += &format!("needs  {}\n", it.words());
        }
        match kept {
            Some(_) => text += &format!("look   git -C {} log --graph --stat\n", it.repo),
            None => text += "look   regatta demo --keep   keeps the repository for a closer look\n",
        }
        if ask.serve {
            text += &format!("web    {}\n", told.web.as_deref().unwrap_or("regatta open"));
            text += &format!("shell  {shell}\n       regatta status · regatta down\n");
        }
        text += "yours  cd your-repo && regatta init && regatta provider   shows the agents that you can add\n";
        text
    })
}

/// Returns the plan for `size` agents: seven tasks, and two more for each agent after the third.
fn plan_for(size: u32) -> String {
    let mut text = PLAN.to_owned();
    for nth in 3..size {
        let (word, pause) = (format!("x{nth}"), f64::from(nth % 5) / 10.0);
        // A few tasks make the same request, to show that one answer can cover several. They are
        // fewer than the attempts that run at once, because each waiting attempt occupies a slot.
        let ask = if nth % 10 == 5 && nth < 70 { "{ permission = \"npm install languages@4\" }, " } else { "" };
        text += &format!(
            "\n[[task]]\nid = \"{word}\"\nsubject = \"Greet in language {nth}\"\nfiles = [\"words/{word}.txt\"]\n\
             script = [{ask}{{ write = {{ path = \"words/{word}.txt\", text = \"greeting {nth}\\n\" }} }}, {{ sleep = {pause} }}]\n\
             \n[[task]]\nid = \"note-{word}\"\nsubject = \"Note language {nth}\"\nissue_type = \"docs\"\nfiles = [\"notes/{word}.md\"]\n\
             blocked_by = [\"{word}\"]\nscript = [{{ write = {{ path = \"notes/{word}.md\", text = \"Language {nth}.\\n\" }} }}]\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_plan_grows_by_two_tasks_per_agent() {
        for size in [1, 3, 4, 300] {
            let plan = plan::parse(&plan_for(size), false, "demo.toml").unwrap();
            assert_eq!(plan.tasks.len(), 7.max(2 * size as usize + 1), "{size}");
        }
    }
}
