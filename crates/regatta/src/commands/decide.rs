//! The commands that decide and control work: `allow`, `deny`, `tell`, `pause`, `resume`, `retry`,
//! `takeover`, `policy` and `budget`.

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::{AgentView, BudgetsView, TaskView};
use regatta_core::agent_protocol::RequestAnswer;
use regatta_core::approval::AnswerScope;
use regatta_core::budget::{self, Ceiling, Spend};
use regatta_core::ids::{AgentName, ApprovalId, TaskId};
use regatta_core::policy::{self, PolicyRule, RuleEffect, RuleSubject};
use regatta_core::refusal::seconds;
use regatta_core::task::TaskStatus;

use crate::args::{
    AllowArgs, AnswerScopeArg, BudgetCommand, DenyArgs, PolicyCommand, RuleEffectArg,
};
use crate::client::CallReply;
use crate::output::{
    CommandError, CommandResult, command_error, first_line, format_table, sanitize, usage_error,
};

use super::CommandContext;

fn to_answer_scope(answer_scope_arg: AnswerScopeArg) -> AnswerScope {
    match answer_scope_arg {
        AnswerScopeArg::Once => AnswerScope::Once,
        AnswerScopeArg::Task => AnswerScope::Task,
        AnswerScopeArg::Mission => AnswerScope::Mission,
        AnswerScopeArg::Always => AnswerScope::Always,
    }
}

/// Runs `regatta allow`.
pub(super) fn allow(app: &CommandContext, ask: &AllowArgs) -> CommandResult {
    send_decision(
        app,
        "allow",
        (ask.id, ask.all),
        RequestAnswer::Allow,
        to_answer_scope(ask.reach),
    )
}

/// Runs `regatta deny`.
pub(super) fn deny(app: &CommandContext, ask: &DenyArgs) -> CommandResult {
    send_decision(
        app,
        "deny",
        (ask.id, ask.all),
        RequestAnswer::Deny {
            reason: ask.because.clone(),
        },
        to_answer_scope(ask.reach),
    )
}

/// Sends an answer to a request and prints the result.
pub(super) fn send_decision(
    app: &CommandContext,
    kind: &str,
    (id, alike): (ApprovalId, bool),
    answer: RequestAnswer,
    reach: AnswerScope,
) -> CommandResult {
    let verb = match &answer {
        RequestAnswer::Allow => "allowed",
        RequestAnswer::Deny { .. } => "denied",
        RequestAnswer::Text { .. } | RequestAnswer::Cancelled => "answered",
    };
    let said = match &answer {
        RequestAnswer::Text { text } => format!(" → {}", first_line(text)),
        _ => String::new(),
    };
    let client = app.client()?;
    let got: CallReply<serde_json::Value> =
        client.call(&Call::InboxAnswer(input::InboxAnswer {
            id,
            answer,
            reach,
            alike,
        }))?;
    let value = &got.data;
    let text = |name: &str| value[name].as_str().map(sanitize).unwrap_or_default();
    // The daemon counts items of all projects, but `regatta inbox` lists those of this project.
    let left = super::inbox::fetch_items(app, &client)?
        .iter()
        .filter(|item| item.is_shown())
        .count();
    let next = [if left > 0 {
        "regatta inbox"
    } else {
        "regatta status"
    }
    .to_owned()];
    app.output.print_answer(kind, value, &next, |_| {
        let more = value["answered"].as_u64().unwrap_or(1);
        let others = if more > 1 {
            format!(" and {} like it", more - 1)
        } else {
            String::new()
        };
        let rules = value["rules"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
            .iter()
            .filter_map(|value| value.as_str());
        let rules: String = rules.map(|rule| format!(" · {}", sanitize(rule))).collect();
        format!(
            "{verb} {id}{others} for {}: {}{said}{rules} · {left} left in the inbox\n",
            text("task"),
            text("subject")
        )
    })
}

/// Runs `regatta tell`.
pub(super) fn tell(app: &CommandContext, id: &str, words: &[String]) -> CommandResult {
    let ask = input::IdWithText {
        id: id.to_owned(),
        text: words.join(" "),
    };
    let got: CallReply<serde_json::Value> = app.call(&Call::Tell(ask))?;
    let (task, attempt) = (
        got.data["task"].as_str().unwrap_or_default(),
        got.data["attempt"].as_str(),
    );
    app.output.print_answer(
        "tell",
        &got.data,
        &attempt
            .map(|attempt| format!("regatta logs -f {attempt}"))
            .into_iter()
            .collect::<Vec<_>>(),
        |_| match attempt {
            Some(attempt) => format!("{attempt} receives the message when its turn has ended\n"),
            None => format!(
                "no running attempt of {task} can receive a message; the next attempt \
                will receive it\n"
            ),
        },
    )
}

/// Runs `regatta pause`.
pub(super) fn pause(app: &CommandContext, id: &str, because: &str) -> CommandResult {
    let got: CallReply<TaskView> = app.call(&Call::Pause(input::IdWithText {
        id: id.to_owned(),
        text: because.to_owned(),
    }))?;
    let task = got.data.task.id;
    let why = if because.is_empty() {
        String::new()
    } else {
        format!(": {}", first_line(because))
    };
    app.output.print_answer(
        "pause",
        &got.data,
        &[format!("regatta resume {task}")],
        |_| format!("{task} is paused{why}\n"),
    )
}

/// Runs `regatta resume`.
pub(super) fn resume(app: &CommandContext, ids: &[String]) -> CommandResult {
    let client = app.client()?;
    let mut resumed: Vec<serde_json::Value> = Vec::new();
    for id in ids {
        let got: CallReply<serde_json::Value> =
            client.call(&Call::Resume(input::IdInput { id: id.clone() }))?;
        resumed.push(got.data);
    }
    let text = |_: &crate::output::Output| {
        ids.iter()
            .map(|id| format!("{id} is resumed\n"))
            .collect::<String>()
    };
    match (ids, &resumed[..]) {
        ([id], [one]) => app.output.print_answer(
            "resume",
            one,
            &[format!("regatta why {id}"), "regatta status".into()],
            text,
        ),
        _ => app
            .output
            .print_answer("resume", &resumed, &["regatta status".into()], text),
    }
}

/// Runs `regatta retry`.
pub(super) fn retry(app: &CommandContext, task: TaskId) -> CommandResult {
    let got: CallReply<TaskView> = app.call(&Call::Retry(input::IdInput {
        id: task.to_string(),
    }))?;
    let again = got.data.task.id;
    // A task without a mission does not start by itself.
    let next = if got.data.task.mission.is_some() {
        format!("regatta why {again}")
    } else {
        "regatta run --yes".into()
    };
    app.output.print_answer("retry", &got.data, &[next], |_| {
        if again == task {
            format!("{task} will be tried again\n")
        } else {
            let waits = got.data.task.mission.is_none() && got.data.task.assignee.is_none();
            let start = format!(
                ", and starts after regatta run --yes or regatta assign {again} \
                NAME"
            );
            format!(
                "{task} stays as it is, because it has ended; the new task {again} asks for the \
                same work{}\n",
                if waits { &start } else { "" }
            )
        }
    })
}

/// Opens a shell in the task's workspace, or the agent's own program in its session. The agent is
/// paused meanwhile.
pub(super) fn takeover(
    app: &CommandContext,
    task: TaskId,
    session: bool,
    command: &[std::ffi::OsString],
) -> CommandResult {
    let client = app.client()?;
    let mut got: CallReply<TaskView> = client.call(&Call::Show(input::IdInput {
        id: task.to_string(),
    }))?;
    // A task that needs a person may have lost its workspace. The daemon then creates it again,
    // including the conflict.
    if got.data.task.status == TaskStatus::NeedsHuman {
        let _begun: CallReply<TaskView> = client.call(&Call::Takeover(input::IdInput {
            id: task.to_string(),
        }))?;
        got = client.call(&Call::Show(input::IdInput {
            id: task.to_string(),
        }))?;
    }
    let Some(workspace) = got.data.workspace.clone() else {
        let hint = format!("see the state of the task: regatta why {task}");
        return Err(command_error(
            "no_workspace",
            format!("{task} has no workspace at the moment"),
            hint,
        ));
    };
    let by_hand = super::see::is_taken_over(&got.data);
    let own = if session {
        Some(session_command(app, &client, &got.data)?)
    } else {
        None
    };
    let command = own
        .as_ref()
        .map_or(command, |session_command| &session_command.command);
    let live = got.data.task.attempt.is_some() && !by_hand;
    if live {
        pause_agent(&client, &got.data)?;
    }
    let fixup = got.data.task.fixup.as_ref().filter(|_| by_hand);
    let conflicts = fixup
        .map(|fixup| fixup.paths.join(" "))
        .filter(|paths| !paths.is_empty());
    let conflicts = conflicts.map_or(String::new(), |paths| {
        format!("conflicts in: {}\n", first_line(&paths))
    });
    app.output.print_note(&format!(
        "in {workspace}; exit the program to give the workspace back\n{conflicts}"
    ));
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let (program, arguments) = command
        .split_first()
        .map_or((&shell, &[][..]), |(program, rest)| (program, rest));
    let ended = std::process::Command::new(program)
        .args(arguments)
        .current_dir(&workspace)
        .env("REGATTA_TASK", task.to_string())
        .envs(
            own.iter()
                .flat_map(|session_command| session_command.env.iter().cloned()),
        )
        .status();
    if live {
        let _goes_on: CallReply<serde_json::Value> =
            client.call(&Call::Resume(input::IdInput {
                id: task.to_string(),
            }))?;
    }
    let ended = ended.map_err(|error| {
        command_error(
            "io",
            format!("could not start {}: {error}", program.to_string_lossy()),
            "name another program after --",
        )
    })?;
    let data = serde_json::json!({ "task": task, "workspace": workspace, "exit": ended.code() });
    let next = if by_hand {
        vec![
            format!("regatta land {task}"),
            format!("regatta takeover {task}"),
            format!("regatta retry {task}"),
        ]
    } else {
        vec![format!("regatta why {task}")]
    };
    app.output.print_answer("takeover", &data, &next, |_| {
        if live {
            format!("{task} is resumed\n")
        } else if by_hand {
            format!(
                "{task} is in your hands: regatta land {task} checks and lands it, regatta retry \
                {task} gives it to an agent\n"
            )
        } else {
            String::new()
        }
    })
}

/// The command line and the environment with which an agent's program continues its session in a
/// terminal.
struct SessionCommand {
    command: Vec<std::ffi::OsString>,
    env: Vec<(String, std::ffi::OsString)>,
}

/// Returns how to start the program that last worked on a task, so that it continues its session.
fn session_command(
    app: &CommandContext,
    client: &crate::client::Client,
    view: &TaskView,
) -> Result<SessionCommand, CommandError> {
    let task = view.task.id;
    let hint = format!("work in its workspace with a shell: regatta takeover {task}");
    let last = view
        .attempts
        .iter()
        .rev()
        .find_map(|attempt| Some((attempt, attempt.session.session_id.clone()?)));
    let Some((attempt, session)) = last else {
        return Err(command_error(
            "no_session",
            format!("no program has reported a session for {task}"),
            hint,
        ));
    };
    let agents: CallReply<Vec<AgentView>> = client.call(&Call::AgentList(input::EmptyInput {}))?;
    let agent = agents
        .data
        .iter()
        .map(|agent| &agent.agent)
        .find(|agent| agent.name == attempt.agent);
    let line = agent.and_then(|agent| crate::composition::resume_command(agent, &session));
    let (Some(agent), Some(line)) = (agent, line) else {
        let what = format!(
            "the program of {} cannot continue a session in a terminal",
            attempt.agent
        );
        return Err(command_error("no_session", what, hint));
    };
    let mut env: Vec<(String, std::ffi::OsString)> = agent
        .profile
        .env
        .iter()
        .map(|(name, value)| (name.clone(), value.into()))
        .collect();
    // A sandboxed program keeps its sessions in a home directory of its own.
    if attempt.sandbox.is_some() {
        env.push((
            "HOME".into(),
            crate::composition::agent_home(&app.data_dir()?, &agent.name).into(),
        ));
    }
    Ok(SessionCommand {
        command: line.into_iter().map(Into::into).collect(),
        env,
    })
}

/// Pauses the agent that works on a task, and waits until it has stopped its turn.
fn pause_agent(client: &crate::client::Client, view: &TaskView) -> CommandResult {
    let task = view.task.id;
    let can_wait = view
        .attempts
        .iter()
        .any(|attempt| Some(attempt.id) == view.task.attempt && attempt.accepts_prompts());
    if !can_wait {
        return Err(command_error(
            "cannot_wait",
            format!("the program that works on {task} cannot be paused"),
            format!("wait until it has ended, or stop it: regatta stop {task}"),
        ));
    }
    let ask = input::IdWithText {
        id: task.to_string(),
        text: "a person works in its workspace".into(),
    };
    let _held: CallReply<TaskView> = client.call(&Call::Pause(ask))?;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(15);
    loop {
        let now: CallReply<TaskView> = client.call(&Call::Show(input::IdInput {
            id: task.to_string(),
        }))?;
        let at = now
            .data
            .attempts
            .iter()
            .find(|attempt| Some(attempt.id) == now.data.task.attempt);
        match at {
            Some(attempt) if attempt.session.hold_reason.is_some() && !attempt.session.in_turn => {
                return Ok(());
            }
            Some(_) if std::time::Instant::now() < deadline => {
                std::thread::sleep(std::time::Duration::from_millis(100))
            }
            _ => {
                let _goes_on: CallReply<serde_json::Value> =
                    client.call(&Call::Resume(input::IdInput {
                        id: task.to_string(),
                    }))?;
                let hint = format!("stop it instead: regatta stop {task}");
                return Err(command_error(
                    "cannot_wait",
                    format!("the agent that works on {task} did not stop its turn within 15 s"),
                    hint,
                ));
            }
        }
    }
}

/// Parses the value of `policy add --for`.
fn parse_rule_scope(text: &str) -> Result<policy::RuleScope, CommandError> {
    use regatta_core::agent::Role;
    let bad = || {
        usage_error(
            format!("{text:?} is not a valid value of --for"),
            "write T7, M3, agent:NAME, leads, workers or all",
        )
    };
    Ok(match text {
        "all" => policy::RuleScope::All,
        "leads" => policy::RuleScope::Role(Role::Lead),
        "workers" => policy::RuleScope::Role(Role::Worker),
        _ => match (text.strip_prefix("agent:"), text.chars().next()) {
            (Some(name), _) => policy::RuleScope::Agent(AgentName::new(name).map_err(|_| bad())?),
            (None, Some('M' | 'm')) => policy::RuleScope::Mission(text.parse().map_err(|_| bad())?),
            _ => policy::RuleScope::Task(text.parse().map_err(|_| bad())?),
        },
    })
}

/// Returns a table with one line per policy rule.
pub(crate) fn draw_rules(all: &[PolicyRule]) -> String {
    if all.is_empty() {
        return "no rules: requests inside the sandbox are allowed, all others go to the inbox\n"
            .into();
    }
    format_table(
        &all.iter()
            .map(|policy_rule| {
                vec![
                    policy_rule.id.to_string(),
                    sanitize(&policy_rule.describe()),
                ]
            })
            .collect::<Vec<_>>(),
    )
}

/// Runs `regatta policy`.
pub(super) fn policy(app: &CommandContext, word: PolicyCommand) -> CommandResult {
    match word {
        PolicyCommand::List => {
            let got: CallReply<Vec<PolicyRule>> =
                app.call(&Call::PolicyList(input::EmptyInput {}))?;
            app.output.print_answer(
                "policy.list",
                &got.data,
                &["regatta policy add --help".into()],
                |_| draw_rules(&got.data),
            )
        }
        PolicyCommand::Add {
            effect,
            tool,
            command,
            path,
            url,
            scope,
        } => {
            let tool = tool
                .map(|tool| {
                    serde_json::from_value(serde_json::Value::String(tool.clone())).map_err(|_| {
                        usage_error(
                            format!("{tool:?} is not a kind of tool"),
                            "write read, edit, delete, move, search, execute, think, fetch, \
                            switch_mode or other",
                        )
                    })
                })
                .transpose()?;
            let effect = match effect {
                RuleEffectArg::Allow => RuleEffect::Allow,
                RuleEffectArg::Deny => RuleEffect::Deny,
                RuleEffectArg::Ask => RuleEffect::Ask,
            };
            let ask = input::PolicyAdd {
                scope: parse_rule_scope(&scope)?,
                effect,
                matter: RuleSubject {
                    tool,
                    command,
                    path,
                    url,
                    exact: false,
                },
            };
            let got: CallReply<PolicyRule> = app.call(&Call::PolicyAdd(ask))?;
            app.output.print_answer(
                "policy.add",
                &got.data,
                &[format!("regatta policy rm {}", got.data.id)],
                |_| format!("{}: {}\n", got.data.id, sanitize(&got.data.describe())),
            )
        }
        PolicyCommand::Rm { rule } => {
            let _done: CallReply<String> =
                app.call(&Call::PolicyRm(input::RuleIdInput { rule }))?;
            app.output
                .print_answer("policy.rm", &rule, &["regatta policy list".into()], |_| {
                    format!("removed {rule}\n")
                })
        }
    }
}

/// Runs `regatta budget`.
pub(super) fn budget(app: &CommandContext, word: BudgetCommand) -> CommandResult {
    let (kind, got): (&str, CallReply<BudgetsView>) = match word {
        BudgetCommand::List => (
            "budget.list",
            app.call(&Call::BudgetList(input::BudgetListInput { days: 0 }))?,
        ),
        BudgetCommand::Set {
            scope,
            tokens,
            usd,
            turns,
            attempts,
            time,
        } => {
            let ceiling = Ceiling {
                tokens,
                micro_usd: usd,
                turns,
                attempts,
                wall_ms: time,
            };
            if ceiling == Ceiling::default() {
                return Err(usage_error(
                    "a budget needs at least one limit",
                    "add a limit: --usd 5, --tokens 1000000 or --turns 20",
                ));
            }
            (
                "budget.set",
                app.call(&Call::BudgetSet(input::BudgetSet { scope, ceiling }))?,
            )
        }
        BudgetCommand::Rm { scope } => {
            let ceiling = Ceiling::default();
            (
                "budget.rm",
                app.call(&Call::BudgetSet(input::BudgetSet { scope, ceiling }))?,
            )
        }
    };
    let next = if kind == "budget.list" {
        "regatta cost"
    } else {
        "regatta budget list"
    };
    app.output
        .print_answer(kind, &got.data, &[next.into()], |_| draw_budgets(&got.data))
}

fn draw_budgets(budgets: &BudgetsView) -> String {
    let mut text = format!("today  {}\n", spend_text(&budgets.today));
    let mut rows: Vec<Vec<String>> = budgets
        .by_agent
        .iter()
        .map(|(agent, spend)| vec![format!("  {agent}"), spend_text(spend)])
        .collect();
    for budget in &budgets.budgets {
        let used = budget.spent.as_ref().map_or("each".to_owned(), spend_text);
        rows.push(vec![
            format!("budget {}", budget.scope),
            format!("{} of {}", used, limits_text(&budget.ceiling)),
        ]);
    }
    text += &format_table(&rows);
    text
}

/// Describes spending in one line. Unknown money is left out, because $0.00 would be wrong.
pub(super) fn spend_text(spend: &Spend) -> String {
    let money = spend.usage.micro_usd.map_or(String::new(), |micro_usd| {
        format!("{} · ", budget::format_dollars(micro_usd))
    });
    let tokens = match spend.usage.tokens() {
        0 => "tokens not reported".to_owned(),
        many => format!("{many} tokens"),
    };
    format!(
        "{money}{tokens} · {} turns · {} attempts · {}",
        spend.turns,
        spend.attempts,
        seconds(spend.wall_ms)
    )
}

/// Lists the limits of a budget in one line.
fn limits_text(ceiling: &Ceiling) -> String {
    let parts = [
        ceiling.micro_usd.map(budget::format_dollars),
        ceiling.tokens.map(|token| format!("{token} tokens")),
        ceiling.turns.map(|turn| format!("{turn} turns")),
        ceiling
            .attempts
            .map(|attempt| format!("{attempt} attempts")),
        ceiling.wall_ms.map(seconds),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}
