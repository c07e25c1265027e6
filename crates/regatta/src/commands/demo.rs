//! The command `demo`: three scripted agents work on seven tasks in a small temporary repository,
//! and all of their work is checked and merged.
//!
//! One task asks a question, and the work of another task needs a review, so that the demo shows
//! decisions too. A person decides in the terminal or on the web page. Without a terminal the demo
//! takes the first choice itself. With `--serve` the demo leaves both decisions open for the web
//! page.

use std::path::Path;
use std::time::Instant;

use clap::Args;
use regatta_api::call;
use regatta_api::input::{self, RuntimeName};
use regatta_api::live_view::SignInView;
use regatta_api::view::{AgentView, InboxView, MissionView, ProjectView, TaskView};
use regatta_core::agent::Role;
use regatta_core::agent_protocol::RequestAnswer;
use regatta_core::approval::AnswerScope;
use regatta_core::display::DisplayState;
use regatta_core::ids::{AgentName, MissionId};
use regatta_core::inbox::InboxKind;
use regatta_core::mission;
use regatta_core::pattern::PathPattern;
use regatta_core::plural;
use regatta_core::shell_quote::quote;
use serde::Serialize;

use crate::client::{CallReply, Client};
use crate::composition;
use crate::interrupt::Interrupts;
use crate::output::{
    CommandError, CommandResult, command_error, format_table, internal_error, sanitize,
};
use crate::own_program::absolute_command;
use crate::plan;
use crate::run_progress::{self, FollowEnd, FollowUntil};

use crate::commands::demo_planner;
use crate::commands::down::stop_separate_daemon;
use crate::commands::up::start_separate_daemon;
use crate::commands::{CommandContext, CommandExamples};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("demo", &["regatta demo", "regatta demo --size 30 --serve"])];

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Number of scripted agents, which follow fixed steps instead of asking a model
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=300))]
    pub(crate) size: u32,
    /// Keep the demo's repository after the end of the demo
    #[arg(long)]
    pub(crate) keep: bool,
    /// Keep the demo's daemon running after the end of the demo, and print the address of its web
    /// page
    #[arg(long)]
    pub(crate) serve: bool,
}

/// The files of the demo's repository: a program that greets in several languages, with a test.
const DEMO_FILES: &[(&str, &str)] = &[
    (
        "README.md",
        "# Greet\n\nSays hello. `./greet.sh LANGUAGE`\n",
    ),
    ("greet.sh", GREET_SCRIPT),
    ("words/en.txt", "hello\n"),
    ("test.sh", TEST_SCRIPT),
];

const GREET_SCRIPT: &str = r#"#!/bin/sh
# Says hello in the language of the first argument.
language="${1:-en}"
cat "$(dirname "$0")/words/$language.txt"
"#;

const TEST_SCRIPT: &str = r#"#!/bin/sh
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

/// The plan of the demo: seven tasks in three layers of dependencies. Two of the tasks change
/// `greet.sh`.
const DEMO_PLAN: &str = r##"
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
struct DemoOutcome {
    repo: String,
    tasks: usize,
    landed: usize,
    agents: usize,
    seconds: f64,
    url: Option<String>,
    data_dir: String,
    /// The number of questions and reviews that still wait for a person.
    needs_you: usize,
}

/// The start of the name of each demo's directory.
const DEMO_PREFIX: &str = "regatta-demo-";

/// Runs `regatta demo`.
pub(crate) fn demo(app: &CommandContext, args: &DemoArgs) -> CommandResult {
    let start_time = Instant::now();
    composition::require_supported_git()?;
    let temp_dir = tempfile::Builder::new().prefix(DEMO_PREFIX).tempdir();
    let temp_dir = temp_dir.map_err(|error| {
        command_error(
            "io",
            format!("could not create a temporary directory: {error}"),
            "set TMPDIR to a directory with free space",
        )
    })?;
    let (repo, data_dir) = (temp_dir.path().join("greet"), temp_dir.path().join("data"));
    regatta_git::sample_repo::make_repo(&repo, DEMO_FILES)
        .map_err(|error| command_error(error.code, error.message, error.hint))?;
    app.output.print_note(&format!(
        "regatta {} · demo: {}, no API key, nothing leaves this machine",
        env!("CARGO_PKG_VERSION"),
        plural::count(args.size, "scripted agent")
    ));
    if !args.serve {
        app.output.print_note(if app.can_ask_now() {
            "it takes a few seconds, and twice it waits until you answer a question"
        } else {
            "it takes a few seconds; without a terminal it chooses 1 for each question"
        });
    }
    app.output.print_note(&format!(
        "repo  {}   (a small shell project with tests)",
        repo.display()
    ));
    let client = start_separate_daemon(&data_dir)?;
    if args.serve {
        let sign_in: CallReply<SignInView> = client.call(call::Open(input::EmptyInput {}))?;
        app.output
            .print_note(&format!("web   {}   (works once)", sign_in.data.url));
    }
    let outcome = run_mission(app, args, &client, &repo, start_time);
    let keeps_files = args.keep || args.serve;
    let stop_result = if args.serve {
        Ok(())
    } else {
        stop_separate_daemon(&client)
    };
    let kept_dir = keeps_files.then(|| temp_dir.keep());
    let (mut report, landed_all) = outcome?;
    stop_result?;
    if args.serve {
        let sign_in: CallReply<SignInView> = client.call(call::Open(input::EmptyInput {}))?;
        report.sign_in_url = Some(sign_in.data.url);
    }
    print_report(app, args, kept_dir.as_deref(), &report)?;
    if landed_all {
        Ok(())
    } else {
        Err(CommandError::Exit(8))
    }
}

/// Runs the demo's tasks until nothing more happens. The second result is true if all tasks have
/// landed, or if a decision waits for a person.
fn run_mission(
    app: &CommandContext,
    args: &DemoArgs,
    client: &Client,
    repo: &Path,
    start_time: Instant,
) -> Result<(DemoReport, bool), CommandError> {
    let add = input::ProjectAdd {
        path: repo.to_string_lossy().into_owned(),
        name: None,
        trunk: None,
        validation: vec!["sh ./test.sh".into()],
        validation_timeout_ms: Some(60_000),
        settings: demo_settings()?,
    };
    let project: CallReply<ProjectView> = client.call(call::ProjectAdd(add))?;
    let concurrent = concurrent_agents(args.size);
    let planner_script = demo_planner::write_script(repo.parent().unwrap_or(repo))?;
    let mut agents = Vec::new();
    for nth in 1..=args.size {
        let name = AgentName::new(&format!("scripted-{nth}")).map_err(|error| {
            internal_error(format!("the name scripted-{nth} is not valid: {error}"))
        })?;
        let add = input::AgentAdd {
            name: name.clone(),
            runtime: RuntimeName::Scripted,
            command: vec![],
            role: Role::Worker,
            provider: None,
            description: "follows each task's script".into(),
            max_tasks: 1,
            profile: demo_planner::profile(&planner_script),
            anyway: false,
        };
        let _added: CallReply<AgentView> = client.call(call::AgentAdd(add))?;
        agents.push(name);
    }
    let _limits = client.call(call::LimitsSet(input::LimitsSet {
        max_attempts: Some(concurrent),
        ..input::LimitsSet::default()
    }))?;
    let plan = plan::parse_plan(&demo_plan_for(args.size), false, "demo.toml")?;
    let start = input::MissionStart {
        project: Some(project.data.name),
        title: plan.title.clone(),
        agents,
        max_workers: concurrent,
        mode: mission::StartMode::Flow,
        isolate: false,
        wave_commits: false,
        team: None,
        budget: Default::default(),
        tasks: plan.tasks,
        adopt: vec![],
    };
    let reply: CallReply<MissionView> = client.call(call::MissionStart(start))?;
    let id = reply.data.mission.id;
    app.output.print_note(&format!(
        "{id} \"{}\"   {}",
        reply.data.mission.title,
        plural::count(reply.data.tasks.len(), "task")
    ));
    let (ending, pending) = follow_and_decide(app, args, client, reply)?;
    let mission_reply: CallReply<MissionView> =
        client.call(call::MissionShow(input::IdInput { id: id.to_string() }))?;
    let landed = mission_reply
        .data
        .tasks
        .iter()
        .filter(|task| task.task.landed.is_some())
        .count();
    let report = DemoReport {
        table: format_table(&crate::commands::run::summary::task_rows(
            &app.output,
            &mission_reply.data.tasks,
        )),
        graph: regatta_git::sample_repo::commit_graph(repo, mission_reply.data.tasks.len() + 1)
            .map_err(|error| command_error(error.code, error.message, error.hint))?,
        outcome: DemoOutcome {
            repo: repo.display().to_string(),
            tasks: mission_reply.data.tasks.len(),
            landed,
            agents: args.size as usize,
            seconds: (start_time.elapsed().as_millis() as f64) / 1_000.0,
            url: crate::daemon::read_daemon_info(client.data_dir())
                .map(|daemon_info| daemon_info.url)
                .filter(|_| args.serve),
            data_dir: client.data_dir().path.display().to_string(),
            needs_you: pending.len(),
        },
        pending,
        sign_in_url: None,
    };
    match ending {
        FollowEnd::TimedOut => Err(CommandError::Exit(124)),
        FollowEnd::Detached => Err(CommandError::Exit(130)),
        // Tasks that wait for a person do not count as failures.
        FollowEnd::Settled | FollowEnd::PersonNeeded => {
            let is_success = landed == mission_reply.data.tasks.len() || !report.pending.is_empty();
            Ok((report, is_success))
        }
    }
}

/// Returns the number of agents, of `size` in total, that work at the same time. Each working agent
/// needs two processes and a checkout, so the number is lower on a machine with few cores.
fn concurrent_agents(size: u32) -> u32 {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    size.min(u32::try_from(cores.saturating_mul(12)).unwrap_or(24).max(8))
}

/// Returns the project settings of the demo: a change of the README needs a review.
fn demo_settings() -> Result<regatta_core::project::ProjectSettings, CommandError> {
    let mut settings = regatta_core::project::ProjectSettings::default();
    let readme = PathPattern::new("README.md").map_err(|error| {
        internal_error(format!("README.md is not a valid file pattern: {error}"))
    })?;
    settings.landing.protected = vec![readme];
    Ok(settings)
}

/// A question, a permission request or a review that waits for a person.
enum PendingDecision {
    Request(Box<InboxView>),
    Review(Box<TaskView>),
}

impl PendingDecision {
    /// Describes the decision and its choices in one line.
    fn description(&self) -> String {
        match self {
            PendingDecision::Request(inbox) => {
                let agent = inbox
                    .agent
                    .as_ref()
                    .map_or(String::new(), |agent| format!(" {agent}"));
                let choices = if inbox.kind == InboxKind::Permission {
                    permission_choices()
                } else {
                    numbered_choices(&inbox.choices)
                };
                format!(
                    "{} {}{agent} asks: {}   {choices}",
                    inbox.id,
                    inbox.task.map(|id| id.to_string()).unwrap_or_default(),
                    sanitize(&inbox.subject)
                )
            }
            PendingDecision::Review(task) => {
                let id = task.task.id;
                format!(
                    "{id} \"{}\" is done and waits for your review   1 land it",
                    sanitize(&task.task.subject)
                )
            }
        }
    }

    /// Returns the `regatta` command that makes this decision.
    fn command(&self) -> String {
        match self {
            PendingDecision::Request(inbox) if inbox.kind == InboxKind::Permission => {
                format!("regatta allow {}", inbox.id)
            }
            PendingDecision::Request(inbox) => {
                let first = inbox.choices.first().map_or("…", String::as_str);
                format!("regatta answer {} '{}'", inbox.id, sanitize(first))
            }
            PendingDecision::Review(task) => format!("regatta land {}", task.task.id),
        }
    }

    /// Returns the words that a person can type instead of their numbers. A question without choices
    /// accepts any text, and has none.
    fn choices(&self) -> Vec<String> {
        match self {
            PendingDecision::Request(item) if item.kind == InboxKind::Permission => {
                vec!["allow".into(), "deny".into()]
            }
            PendingDecision::Request(item) => item.choices.clone(),
            PendingDecision::Review(_) => vec!["land".into()],
        }
    }

    /// Describes what a person should type.
    fn expected_input(&self) -> String {
        match self.choices().len() {
            0 => "type an answer".to_owned(),
            1 => "type 1, or press Enter".to_owned(),
            count => format!("type a number from 1 to {count}, or press Enter for 1"),
        }
    }

    /// Returns an error message if `answer` is not one of the choices. An empty `answer` means the
    /// first choice.
    fn input_error(&self, answer: &str) -> Option<String> {
        let choices = self.choices();
        if choices.is_empty() {
            return None;
        }
        let is_choice = answer
            .parse::<usize>()
            .is_ok_and(|nth| (1..=choices.len()).contains(&nth))
            || choices.iter().any(|choice| choice == answer);
        (!answer.is_empty() && !is_choice).then(|| {
            format!(
                "{answer:?} is not one of the choices; {}",
                self.expected_input()
            )
        })
    }

    /// Sends the decision to the daemon: the choice with this number or text, or the first choice
    /// if `text` is empty.
    fn send_decision(&self, client: &Client, text: &str) -> Result<(), CommandError> {
        let result = match self {
            PendingDecision::Request(inbox) => {
                let id = inbox.id.parse().map_err(|_| {
                    internal_error(format!("the inbox item {} has no valid id", inbox.id))
                })?;
                let answer = match (inbox.kind, text) {
                    (InboxKind::Permission, "2" | "deny") => RequestAnswer::Deny { reason: None },
                    (InboxKind::Permission, _) => RequestAnswer::Allow,
                    _ => {
                        let choice = text
                            .parse::<usize>()
                            .ok()
                            .and_then(|choice| inbox.choices.get(choice.wrapping_sub(1)));
                        let default = if text.is_empty() {
                            inbox.choices.first().map_or("yes", String::as_str)
                        } else {
                            text
                        };
                        RequestAnswer::Text {
                            text: choice.map_or(default, String::as_str).to_owned(),
                        }
                    }
                };
                client
                    .call(call::InboxAnswer(input::InboxAnswer {
                        id,
                        answer,
                        reach: AnswerScope::Task,
                        alike: false,
                    }))
                    .map(|_| ())
            }
            PendingDecision::Review(task) => {
                let id = task.task.id.to_string();
                client
                    .call(call::Land(input::LandInput {
                        id,
                        first: false,
                        claim: None,
                        token: None,
                    }))
                    .map(|_| ())
            }
        };
        match result {
            // A person has meanwhile decided on the web page, so there is nothing left to do.
            Err(CommandError::Problem(problem))
                if matches!(
                    problem.code.as_str(),
                    "already_answered" | "nothing_to_land"
                ) =>
            {
                Ok(())
            }
            other => other,
        }
    }
}

/// Returns the numbered choices of a permission request.
fn permission_choices() -> String {
    numbered_choices(&["allow".to_owned(), "deny".to_owned()])
}

fn numbered_choices(choices: &[String]) -> String {
    (1..)
        .zip(choices)
        .map(|(nth, s)| format!("{nth} {}", sanitize(s)))
        .collect::<Vec<_>>()
        .join("   ")
}

/// Returns all questions, permission requests and reviews that wait for a person.
fn pending_decisions(
    client: &Client,
    mission: MissionId,
) -> Result<Vec<PendingDecision>, CommandError> {
    let inbox_items: CallReply<Vec<InboxView>> =
        client.call(call::InboxList(input::ProjectFilter { project: None }))?;
    let mission_view: CallReply<MissionView> = client.call(call::MissionShow(input::IdInput {
        id: mission.to_string(),
    }))?;
    let requests = inbox_items
        .data
        .into_iter()
        .filter(|inbox| inbox.ask.is_some())
        .map(|inbox| PendingDecision::Request(Box::new(inbox)));
    let reviews = mission_view
        .data
        .tasks
        .into_iter()
        .filter(|task| task.at == DisplayState::Review)
        .map(|task| PendingDecision::Review(Box::new(task)));
    Ok(requests.chain(reviews).collect())
}

/// Follows the mission and makes each decision that is needed: asks the person at the terminal, or
/// takes the first choice if there is no terminal. Returns the decisions that are left for the web
/// page.
fn follow_and_decide(
    app: &CommandContext,
    args: &DemoArgs,
    client: &Client,
    first: CallReply<MissionView>,
) -> Result<(FollowEnd, Vec<PendingDecision>), CommandError> {
    let (id, can_ask) = (first.data.mission.id, app.can_ask_now());
    let leaves_open = args.serve && !app.global.no_input;
    let until = if leaves_open {
        FollowUntil::OnlyPersonNeeded
    } else {
        FollowUntil::PersonNeeded
    };
    let mut reply = first;
    let mut after = reply.revision;
    loop {
        let ending;
        (ending, after) = run_progress::follow_until_needed(app, client, reply, after, until)?;
        if matches!(ending, FollowEnd::TimedOut | FollowEnd::Detached) {
            return Ok((ending, vec![]));
        }
        let pending = pending_decisions(client, id)?;
        if leaves_open || pending.is_empty() && ending == FollowEnd::Settled {
            return Ok((ending, pending));
        }
        for pending_decision in pending {
            app.output.print_note(&pending_decision.description());
            let prompt = format!(
                "the demo waits for you: {}:",
                pending_decision.expected_input()
            );
            let answer = loop {
                let answer = if can_ask {
                    Interrupts::install()?
                        .ask_person(&app.output.paint(&prompt, "1"))
                        .ok_or(CommandError::Exit(130))?
                } else {
                    String::new()
                };
                match pending_decision.input_error(answer.trim()) {
                    Some(why) => app.output.print_note(&sanitize(&why)),
                    None => break answer,
                }
            };
            pending_decision.send_decision(client, answer.trim())?;
        }
        // Read the mission again, so that changes that happened while the question was open are
        // printed too.
        reply = client.call(call::MissionShow(input::IdInput { id: id.to_string() }))?;
    }
}

struct DemoReport {
    table: String,
    graph: String,
    outcome: DemoOutcome,
    pending: Vec<PendingDecision>,
    /// An address that signs a browser in to the web page. The address works only once, so the demo
    /// requests it at the end.
    sign_in_url: Option<String>,
}

/// Prints the result of the demo and the next steps.
fn print_report(
    app: &CommandContext,
    args: &DemoArgs,
    kept_dir: Option<&Path>,
    report: &DemoReport,
) -> CommandResult {
    let demo_outcome = &report.outcome;
    let shell = format!(
        "export REGATTA_DATA_DIR={} && cd {}",
        demo_outcome.data_dir, demo_outcome.repo
    );
    let next: Vec<String> = if args.serve {
        let decisions = report.pending.iter().map(PendingDecision::command);
        let commands = ["regatta open", "regatta status", "regatta down"].map(str::to_owned);
        let all = decisions.chain(commands);
        std::iter::once(shell.clone())
            .chain(all.map(|line| absolute_command(&line)))
            .collect()
    } else {
        Vec::new()
    };
    // The report for people has these commands in its lines, with an explanation of each.
    let next = if app.output.is_json { next } else { vec![] };
    app.output.print_answer("demo", demo_outcome, &next, |_| {
        let mut text = format!("{}\n{}\n", report.table.trim_end(), report.graph.trim_end());
        text += &format!(
            "done   {} of {} landed in {:.1} s by {} · $0.00 (scripted)\n",
            demo_outcome.landed,
            demo_outcome.tasks,
            demo_outcome.seconds,
            plural::count(demo_outcome.agents, "agent")
        );
        for pending_decision in &report.pending {
            text += &format!("needs  {}\n", pending_decision.description());
            if args.serve {
                text += &format!(
                    "       REGATTA_DATA_DIR={} {}\n",
                    quote(&demo_outcome.data_dir),
                    absolute_command(&pending_decision.command())
                );
            }
        }
        match kept_dir {
            Some(_) => text += &format!("look   git -C {} log --graph --stat\n", demo_outcome.repo),
            None => {
                text += &format!(
                    "look   {}   keeps the repository for a closer look\n",
                    absolute_command("regatta demo --keep")
                );
            }
        }
        if args.serve {
            text += &format!(
                "web    {}\n",
                report.sign_in_url.as_deref().unwrap_or("regatta open")
            );
            text += &format!(
                "shell  {shell}\n       {}   shows what waits for you next\n\
                 end    REGATTA_DATA_DIR={} {} && rm -r {}\n",
                absolute_command("regatta status"),
                quote(&demo_outcome.data_dir),
                absolute_command("regatta down"),
                quote(&demo_directory(&demo_outcome.data_dir))
            );
        }
        text + &format!(
            "yours  {}cd your-repo && {} && {}   shows the agents that you can add\n",
            if args.serve {
                "unset REGATTA_DATA_DIR; "
            } else {
                ""
            },
            absolute_command("regatta init"),
            absolute_command("regatta provider")
        )
    })
}

/// Returns the directory of a demo, which contains its data directory and its repository.
fn demo_directory(data_dir: &str) -> String {
    Path::new(data_dir)
        .parent()
        .map_or_else(|| data_dir.to_owned(), |top| top.display().to_string())
}

/// Returns whether a data directory is the one of a demo that was kept with `--serve` or `--keep`.
pub(super) fn is_data_of_a_demo(data_dir: &Path) -> bool {
    let top = data_dir.parent().and_then(Path::file_name);
    top.is_some_and(|name| name.to_string_lossy().starts_with(DEMO_PREFIX))
}

/// Returns the plan for `size` agents: seven tasks, and two more for each agent after the third.
fn demo_plan_for(size: u32) -> String {
    let mut text = DEMO_PLAN.to_owned();
    for nth in 3..size {
        let (word, pause) = (format!("x{nth}"), f64::from(nth % 5) / 10.0);
        // Let a few tasks ask for the same permission, to show that one answer can cover several
        // requests. If more tasks asked, the demo would stop, because an agent that waits for an
        // answer still counts as working.
        let ask = if nth % 10 == 5 && nth < 70 {
            "{ permission = \"npm install languages@4\" }, "
        } else {
            ""
        };
        text += &format!(
            "\n[[task]]\nid = \"{word}\"\nsubject = \"Greet in language {nth}\"\nfiles = \
             [\"words/{word}.txt\"]\n\
             script = [{ask}{{ write = {{ path = \"words/{word}.txt\", text = \"greeting \
             {nth}\\n\" }} }}, {{ sleep = {pause} }}]\n\
             \n[[task]]\nid = \"note-{word}\"\nsubject = \"Note language {nth}\"\nissue_type = \
             \"docs\"\nfiles = [\"notes/{word}.md\"]\n\
             blocked_by = [\"{word}\"]\nscript = [{{ write = {{ path = \"notes/{word}.md\", text = \
             \"Language {nth}.\\n\" }} }}]\n"
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
            let plan = plan::parse_plan(&demo_plan_for(size), false, "demo.toml").unwrap();
            assert_eq!(plan.tasks.len(), 7.max(2 * size as usize + 1), "{size}");
        }
    }
}
