//! The commands that decide and control work: `allow`, `deny`, `tell`, `pause`, `resume`, `retry`,
//! `takeover`, `policy` and `budget`.

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::{AgentView, BudgetsView, TaskView};
use regatta_core::approval::Reach;
use regatta_core::budget::{self, Ceiling, Spend};
use regatta_core::ids::{AgentName, ApprovalId, TaskId};
use regatta_core::policy::{self, Effect, Matter, Rule};
use regatta_core::refusal::seconds;
use regatta_core::session::Answer;
use regatta_core::task::Status;

use crate::args::{Allow, BudgetWord, Deny, EffectArg, PolicyWord, ReachArg};
use crate::client::Got;
use crate::out::{Failed, Said, failed, line, plain, table, usage};

use super::App;

fn reach(it: ReachArg) -> Reach {
    match it {
        ReachArg::Once => Reach::Once,
        ReachArg::Task => Reach::Task,
        ReachArg::Mission => Reach::Mission,
        ReachArg::Always => Reach::Always,
    }
}

/// Runs `regatta allow`.
pub(super) fn allow(app: &App, ask: &Allow) -> Said {
    decide(app, "allow", (ask.id, ask.all), Answer::Allow, reach(ask.reach))
}

/// Runs `regatta deny`.
pub(super) fn deny(app: &App, ask: &Deny) -> Said {
    decide(app, "deny", (ask.id, ask.all), Answer::Deny { words: ask.because.clone() }, reach(ask.reach))
}

/// Sends an answer to a request and prints the result.
pub(super) fn decide(app: &App, kind: &str, (id, alike): (ApprovalId, bool), answer: Answer, reach: Reach) -> Said {
    let verb = match &answer {
        Answer::Allow => "allowed",
        Answer::Deny { .. } => "denied",
        Answer::Text { .. } | Answer::Cancelled => "answered",
    };
    let said = match &answer {
        Answer::Text { text } => format!(" → {}", line(text)),
        _ => String::new(),
    };
    let client = app.client()?;
    let got: Got<serde_json::Value> = client.call(&Call::InboxAnswer(input::Decide { id, answer, reach, alike }))?;
    let it = &got.data;
    let text = |name: &str| it[name].as_str().map(plain).unwrap_or_default();
    // The daemon counts items of all projects, but `regatta inbox` lists those of this project.
    let left = super::inbox::items(app, &client)?.iter().filter(|item| item.is_awake()).count();
    let next = [if left > 0 { "regatta inbox" } else { "regatta status" }.to_owned()];
    app.out.answer(kind, it, &next, |_| {
        let more = it["answered"].as_u64().unwrap_or(1);
        let others = if more > 1 { format!(" and {} like it", more - 1) } else { String::new() };
        let rules = it["rules"].as_array().map(Vec::as_slice).unwrap_or_default().iter().filter_map(|it| it.as_str());
        let rules: String = rules.map(|it| format!(" · {}", plain(it))).collect();
        format!(
            "{verb} {id}{others} for {}: {}{said}{rules} · {left} left in the inbox\n",
            text("task"),
            text("subject")
        )
    })
}

/// Runs `regatta tell`.
pub(super) fn tell(app: &App, id: &str, words: &[String]) -> Said {
    let ask = input::Said { id: id.to_owned(), text: words.join(" ") };
    let got: Got<serde_json::Value> = app.call(&Call::Tell(ask))?;
    let (task, attempt) = (got.data["task"].as_str().unwrap_or_default(), got.data["attempt"].as_str());
    app.out.answer(
        "tell",
        &got.data,
        &attempt.map(|it| format!("regatta logs -f {it}")).into_iter().collect::<Vec<_>>(),
        |_| match attempt {
            Some(attempt) => format!("{attempt} receives the message when its turn has ended\n"),
            None => format!("no running attempt of {task} can receive a message; the next attempt will receive it\n"),
        },
    )
}

/// Runs `regatta pause`.
pub(super) fn pause(app: &App, id: &str, because: &str) -> Said {
    let got: Got<TaskView> = app.call(&Call::Pause(input::Said { id: id.to_owned(), text: because.to_owned() }))?;
    let task = got.data.task.id;
    let why = if because.is_empty() { String::new() } else { format!(": {}", line(because)) };
    app.out.answer("pause", &got.data, &[format!("regatta resume {task}")], |_| format!("{task} is paused{why}\n"))
}

/// Runs `regatta resume`.
pub(super) fn resume(app: &App, ids: &[String]) -> Said {
    let client = app.client()?;
    let mut resumed: Vec<serde_json::Value> = Vec::new();
    for id in ids {
        let got: Got<serde_json::Value> = client.call(&Call::Resume(input::Id { id: id.clone() }))?;
        resumed.push(got.data);
    }
    let text = |_: &crate::out::Out| ids.iter().map(|id| format!("{id} is resumed\n")).collect::<String>();
    match (ids, &resumed[..]) {
        ([id], [one]) => app.out.answer("resume", one, &[format!("regatta why {id}"), "regatta status".into()], text),
        _ => app.out.answer("resume", &resumed, &["regatta status".into()], text),
    }
}

/// Runs `regatta retry`.
pub(super) fn retry(app: &App, task: TaskId) -> Said {
    let got: Got<TaskView> = app.call(&Call::Retry(input::Id { id: task.to_string() }))?;
    let again = got.data.task.id;
    // A task without a mission does not start by itself.
    let next =
        if got.data.task.mission.is_some() { format!("regatta why {again}") } else { "regatta run --yes".into() };
    app.out.answer("retry", &got.data, &[next], |_| {
        if again == task {
            format!("{task} will be tried again\n")
        } else {
            let waits = got.data.task.mission.is_none() && got.data.task.assignee.is_none();
            let start = format!(", and starts after regatta run --yes or regatta assign {again} NAME");
            format!(
                "{task} stays as it is, because it has ended; the new task {again} asks for the same work{}\n",
                if waits { &start } else { "" }
            )
        }
    })
}

/// Opens a shell in the task's workspace, or the agent's own program in its session. The agent is
/// paused meanwhile.
pub(super) fn takeover(app: &App, task: TaskId, session: bool, command: &[std::ffi::OsString]) -> Said {
    let client = app.client()?;
    let mut got: Got<TaskView> = client.call(&Call::Show(input::Id { id: task.to_string() }))?;
    // A task that needs a person may have lost its workspace. The daemon then creates it again,
    // including the conflict.
    if got.data.task.status == Status::NeedsHuman {
        let _begun: Got<TaskView> = client.call(&Call::Takeover(input::Id { id: task.to_string() }))?;
        got = client.call(&Call::Show(input::Id { id: task.to_string() }))?;
    }
    let Some(workspace) = got.data.workspace.clone() else {
        let hint = format!("see the state of the task: regatta why {task}");
        return Err(failed("no_workspace", format!("{task} has no workspace at the moment"), hint));
    };
    let by_hand = super::see::by_hand(&got.data);
    let own = if session { Some(own_program(app, &client, &got.data)?) } else { None };
    let command = own.as_ref().map_or(command, |it| &it.line);
    let live = got.data.task.attempt.is_some() && !by_hand;
    if live {
        hold(&client, &got.data)?;
    }
    let fixup = got.data.task.fixup.as_ref().filter(|_| by_hand);
    let conflicts = fixup.map(|fixup| fixup.paths.join(" ")).filter(|paths| !paths.is_empty());
    let conflicts = conflicts.map_or(String::new(), |paths| format!("conflicts in: {}\n", line(&paths)));
    app.out.note(&format!("in {workspace}; exit the program to give the workspace back\n{conflicts}"));
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let (program, arguments) = command.split_first().map_or((&shell, &[][..]), |(program, rest)| (program, rest));
    let ended = std::process::Command::new(program)
        .args(arguments)
        .current_dir(&workspace)
        .env("REGATTA_TASK", task.to_string())
        .envs(own.iter().flat_map(|it| it.env.iter().cloned()))
        .status();
    if live {
        let _goes_on: Got<serde_json::Value> = client.call(&Call::Resume(input::Id { id: task.to_string() }))?;
    }
    let ended = ended.map_err(|it| {
        failed("io", format!("could not start {}: {it}", program.to_string_lossy()), "name another program after --")
    })?;
    let data = serde_json::json!({ "task": task, "workspace": workspace, "exit": ended.code() });
    let next = if by_hand {
        vec![format!("regatta land {task}"), format!("regatta takeover {task}"), format!("regatta retry {task}")]
    } else {
        vec![format!("regatta why {task}")]
    };
    app.out.answer("takeover", &data, &next, |_| {
        if live {
            format!("{task} is resumed\n")
        } else if by_hand {
            format!(
                "{task} is in your hands: regatta land {task} checks and lands it, regatta retry {task} gives it to an agent\n"
            )
        } else {
            String::new()
        }
    })
}

/// The command line and the environment with which an agent's program continues its session in a
/// terminal.
struct Own {
    line: Vec<std::ffi::OsString>,
    env: Vec<(String, std::ffi::OsString)>,
}

/// Returns how to start the program that last worked on a task, so that it continues its session.
fn own_program(app: &App, client: &crate::client::Client, view: &TaskView) -> Result<Own, Failed> {
    let task = view.task.id;
    let hint = format!("work in its workspace with a shell: regatta takeover {task}");
    let last = view.attempts.iter().rev().find_map(|it| Some((it, it.talk.session.clone()?)));
    let Some((attempt, session)) = last else {
        return Err(failed("no_session", format!("no program has reported a session for {task}"), hint));
    };
    let agents: Got<Vec<AgentView>> = client.call(&Call::AgentList(input::Nothing {}))?;
    let agent = agents.data.iter().map(|it| &it.agent).find(|it| it.name == attempt.agent);
    let line = agent.and_then(|it| crate::wire::takes_up(it, &session));
    let (Some(agent), Some(line)) = (agent, line) else {
        let what = format!("the program of {} cannot continue a session in a terminal", attempt.agent);
        return Err(failed("no_session", what, hint));
    };
    let mut env: Vec<(String, std::ffi::OsString)> =
        agent.profile.env.iter().map(|(name, value)| (name.clone(), value.into())).collect();
    // A sandboxed program keeps its sessions in a home directory of its own.
    if attempt.sandbox.is_some() {
        env.push(("HOME".into(), crate::wire::home_of(&app.data_dir()?, &agent.name).into()));
    }
    Ok(Own { line: line.into_iter().map(Into::into).collect(), env })
}

/// Pauses the agent that works on a task, and waits until it has stopped its turn.
fn hold(client: &crate::client::Client, view: &TaskView) -> Said {
    let task = view.task.id;
    let can_wait = view.attempts.iter().any(|it| Some(it.id) == view.task.attempt && it.takes_words());
    if !can_wait {
        return Err(failed(
            "cannot_wait",
            format!("the program that works on {task} cannot be paused"),
            format!("wait until it has ended, or stop it: regatta stop {task}"),
        ));
    }
    let ask = input::Said { id: task.to_string(), text: "a person works in its workspace".into() };
    let _held: Got<TaskView> = client.call(&Call::Pause(ask))?;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(15);
    loop {
        let now: Got<TaskView> = client.call(&Call::Show(input::Id { id: task.to_string() }))?;
        let at = now.data.attempts.iter().find(|it| Some(it.id) == now.data.task.attempt);
        match at {
            Some(it) if it.talk.held.is_some() && !it.talk.in_turn => return Ok(()),
            Some(_) if std::time::Instant::now() < deadline => {
                std::thread::sleep(std::time::Duration::from_millis(100))
            }
            _ => {
                let _goes_on: Got<serde_json::Value> =
                    client.call(&Call::Resume(input::Id { id: task.to_string() }))?;
                let hint = format!("stop it instead: regatta stop {task}");
                return Err(failed(
                    "cannot_wait",
                    format!("the agent that works on {task} did not stop its turn within 15 s"),
                    hint,
                ));
            }
        }
    }
}

/// Parses the value of `policy add --for`.
fn policy_scope(text: &str) -> Result<policy::Scope, Failed> {
    use regatta_core::agent::Role;
    let bad =
        || usage(format!("{text:?} is not a valid value of --for"), "write T7, M3, agent:NAME, leads, workers or all");
    Ok(match text {
        "all" => policy::Scope::All,
        "leads" => policy::Scope::Role(Role::Lead),
        "workers" => policy::Scope::Role(Role::Worker),
        _ => match (text.strip_prefix("agent:"), text.chars().next()) {
            (Some(name), _) => policy::Scope::Agent(AgentName::new(name).map_err(|_| bad())?),
            (None, Some('M' | 'm')) => policy::Scope::Mission(text.parse().map_err(|_| bad())?),
            _ => policy::Scope::Task(text.parse().map_err(|_| bad())?),
        },
    })
}

/// Returns a table with one line per policy rule.
pub(crate) fn rules(all: &[Rule]) -> String {
    if all.is_empty() {
        return "no rules: requests inside the sandbox are allowed, all others go to the inbox\n".into();
    }
    table(&all.iter().map(|it| vec![it.id.to_string(), plain(&it.describe())]).collect::<Vec<_>>())
}

/// Runs `regatta policy`.
pub(super) fn policy(app: &App, word: PolicyWord) -> Said {
    match word {
        PolicyWord::List => {
            let got: Got<Vec<Rule>> = app.call(&Call::PolicyList(input::Nothing {}))?;
            app.out.answer("policy.list", &got.data, &["regatta policy add --help".into()], |_| rules(&got.data))
        }
        PolicyWord::Add { effect, tool, command, path, url, scope } => {
            let tool = tool
                .map(|it| {
                    serde_json::from_value(serde_json::Value::String(it.clone())).map_err(|_| {
                        usage(
                            format!("{it:?} is not a kind of tool"),
                            "write read, edit, delete, move, search, execute, think, fetch, switch_mode or other",
                        )
                    })
                })
                .transpose()?;
            let effect = match effect {
                EffectArg::Allow => Effect::Allow,
                EffectArg::Deny => Effect::Deny,
                EffectArg::Ask => Effect::Ask,
            };
            let ask = input::PolicyAdd {
                scope: policy_scope(&scope)?,
                effect,
                matter: Matter { tool, command, path, url, exact: false },
            };
            let got: Got<Rule> = app.call(&Call::PolicyAdd(ask))?;
            app.out.answer("policy.add", &got.data, &[format!("regatta policy rm {}", got.data.id)], |_| {
                format!("{}: {}\n", got.data.id, plain(&got.data.describe()))
            })
        }
        PolicyWord::Rm { rule } => {
            let _done: Got<String> = app.call(&Call::PolicyRm(input::Rule { rule }))?;
            app.out.answer("policy.rm", &rule, &["regatta policy list".into()], |_| format!("removed {rule}\n"))
        }
    }
}

/// Runs `regatta budget`.
pub(super) fn budget(app: &App, word: BudgetWord) -> Said {
    let (kind, got): (&str, Got<BudgetsView>) = match word {
        BudgetWord::List => ("budget.list", app.call(&Call::BudgetList(input::Spent { days: 0 }))?),
        BudgetWord::Set { scope, tokens, usd, turns, attempts, time } => {
            let ceiling = Ceiling { tokens, micro_usd: usd, turns, attempts, wall_ms: time };
            if ceiling == Ceiling::default() {
                return Err(usage(
                    "a budget needs at least one limit",
                    "add a limit: --usd 5, --tokens 1000000 or --turns 20",
                ));
            }
            ("budget.set", app.call(&Call::BudgetSet(input::BudgetSet { scope, ceiling }))?)
        }
        BudgetWord::Rm { scope } => {
            let ceiling = Ceiling::default();
            ("budget.rm", app.call(&Call::BudgetSet(input::BudgetSet { scope, ceiling }))?)
        }
    };
    let next = if kind == "budget.list" { "regatta cost" } else { "regatta budget list" };
    app.out.answer(kind, &got.data, &[next.into()], |_| draw_budgets(&got.data))
}

fn draw_budgets(it: &BudgetsView) -> String {
    let mut text = format!("today  {}\n", spent(&it.today));
    let mut rows: Vec<Vec<String>> =
        it.by_agent.iter().map(|(agent, spend)| vec![format!("  {agent}"), spent(spend)]).collect();
    for it in &it.budgets {
        let used = it.spent.as_ref().map_or("each".to_owned(), spent);
        rows.push(vec![format!("budget {}", it.scope), format!("{} of {}", used, ceiling(&it.ceiling))]);
    }
    text += &table(&rows);
    text
}

/// Describes spending in one line. Unknown money is left out, because $0.00 would be wrong.
pub(super) fn spent(it: &Spend) -> String {
    let money = it.usage.micro_usd.map_or(String::new(), |it| format!("{} · ", budget::dollars(it)));
    let tokens = match it.usage.tokens() {
        0 => "tokens not reported".to_owned(),
        many => format!("{many} tokens"),
    };
    format!("{money}{tokens} · {} turns · {} attempts · {}", it.turns, it.attempts, seconds(it.wall_ms))
}

/// Lists the limits of a budget in one line.
fn ceiling(it: &Ceiling) -> String {
    let parts = [
        it.micro_usd.map(budget::dollars),
        it.tokens.map(|it| format!("{it} tokens")),
        it.turns.map(|it| format!("{it} turns")),
        it.attempts.map(|it| format!("{it} attempts")),
        it.wall_ms.map(seconds),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}
