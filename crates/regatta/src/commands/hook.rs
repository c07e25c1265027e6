//! The command `hook`, with `add_hook`, `list`, `test`, `pause`, `resume`, `rm` and `output`.

use regatta_api::view::{HookTestView, HookView};
use regatta_api::{Call, input};
use regatta_core::agent::SandboxLevel;
use regatta_core::hook::{Firing, HookAction, HookConditions, HookTrigger};
use regatta_core::refusal::seconds;

use crate::args::{HookAddArgs, HookCommand};
use crate::client::CallReply;
use crate::output::{CommandResult, first_line, format_age, format_table, sanitize, usage_error};

use super::CommandContext;

/// Runs `regatta hook`.
pub(super) fn hook(app: &CommandContext, word: HookCommand) -> CommandResult {
    match word {
        HookCommand::Add(ask) => add_hook(app, *ask),
        HookCommand::List => {
            let got: CallReply<Vec<HookView>> = app.call(&Call::HookList(input::EmptyInput {}))?;
            let none = ["regatta hook add --channel shop -- ./answer.sh".to_owned()];
            let next: &[String] = if got.data.is_empty() { &none } else { &[] };
            app.output
                .print_answer("hook.list", &got.data, next, |_| draw_hooks(&got.data))
        }
        HookCommand::Test {
            id,
            message,
            text,
            channel,
            labels,
            from,
        } => {
            let ask = input::HookTest {
                hook: id,
                message,
                text,
                channel,
                labels,
                from,
            };
            let got: CallReply<HookTestView> = app.call(&Call::HookTest(ask))?;
            app.output.print_answer("hook.test", &got.data, &[], |_| {
                let says = if got.data.fires {
                    "fires"
                } else {
                    "does not fire"
                };
                format!("{id} {says}: {}\n", first_line(&got.data.why))
            })
        }
        HookCommand::Pause { id, because } => {
            let got: CallReply<HookView> = app.call(&Call::HookPause(input::HookPause {
                hook: id,
                reason: because,
            }))?;
            app.output.print_answer(
                "hook.pause",
                &got.data,
                &[format!("regatta hook resume {id}")],
                |_| format!("{id} is paused\n"),
            )
        }
        HookCommand::Resume { id } => {
            let got: CallReply<HookView> =
                app.call(&Call::HookResume(input::HookIdInput { hook: id }))?;
            app.output.print_answer("hook.resume", &got.data, &[], |_| {
                format!("{id} is resumed\n")
            })
        }
        HookCommand::Rm { id } => {
            let _done: CallReply<String> =
                app.call(&Call::HookRm(input::HookIdInput { hook: id }))?;
            app.output
                .print_answer("hook.rm", &serde_json::json!({ "hook": id }), &[], |_| {
                    format!("removed {id}\n")
                })
        }
        HookCommand::Log { id, before, limit } => {
            let got: CallReply<Vec<Firing>> = app.call(&Call::HookLog(input::HookLog {
                hook: id,
                before,
                limit,
            }))?;
            app.output.print_answer("hook.log", &got.data, &[], |_| {
                got.data.iter().map(firing_text).collect()
            })
        }
    }
}

/// Runs `regatta hook add`.
fn add_hook(app: &CommandContext, ask: HookAddArgs) -> CommandResult {
    let trigger = match (ask.event, ask.on_free) {
        (Some(kind), _) => HookTrigger::Event { kind },
        (None, Some(uri)) => HookTrigger::Free { uri },
        (None, None) => HookTrigger::Message {
            channel: ask.channel,
            label: ask.label,
            mention: ask.mention,
            prefix: ask.prefix,
        },
    };
    let action = if ask.route {
        HookAction::Route
    } else {
        let here = app.working_dir()?;
        let cwd = ask.cwd.map_or_else(|| here.clone(), |path| here.join(path));
        let whole = cwd.canonicalize().map_err(|error| {
            usage_error(
                format!("cannot open the directory {}: {error}", cwd.display()),
                "name an existing directory with --cwd",
            )
        })?;
        HookAction::Run {
            argv: ask.command,
            cwd: whole.to_string_lossy().into_owned(),
        }
    };
    let when = HookConditions {
        claim: ask.claim,
        ttl_ms: ask.ttl,
        cooldown_ms: ask.cooldown,
        require_label: ask.require_label,
    };
    let client = app.client()?;
    let got: CallReply<HookView> = client.call(&Call::HookAdd(input::HookAdd {
        project: app.project(&client)?,
        agent: ask.agent,
        trigger,
        when,
        action,
        priority: ask.priority,
        timeout_ms: Some(ask.max_time),
        sandbox: Some(ask.sandbox),
    }))?;
    let id = got.data.hook.id;
    let next = [
        format!("regatta hook test {id} --text '…'"),
        format!("regatta hook log {id}"),
    ];
    app.output.print_answer("hook.add", &got.data, &next, |_| {
        draw_hooks(std::slice::from_ref(&got.data))
    })
}

/// Draws hooks as a table.
fn draw_hooks(hooks: &[HookView]) -> String {
    let row = |item: &HookView| {
        let hook = &item.hook;
        let state = match (&hook.paused, item.running) {
            (Some(why), _) => format!("paused: {}", first_line(why)),
            (None, 0) => "ready".into(),
            (None, many) => format!("{many} running"),
        };
        let fired = match hook.fired_unix_ms {
            Some(wall) => format!(
                "fired {} times, last {}",
                hook.fired_count,
                format_age(wall)
            ),
            None => "never fired".into(),
        };
        let fired = match hook.waiting.len() {
            0 => fired,
            waiting => format!("{fired}, {waiting} waiting for its claim"),
        };
        vec![
            hook.id.to_string(),
            trigger_text(&hook.trigger, &hook.when),
            action_text(item),
            fired,
            state,
        ]
    };
    format_table(&hooks.iter().map(row).collect::<Vec<_>>())
}

/// Describes when a hook fires.
fn trigger_text(trigger: &HookTrigger, conditions: &HookConditions) -> String {
    let mut words: Vec<String> = match trigger {
        HookTrigger::Message {
            channel,
            label,
            mention,
            prefix,
        } => [
            channel.as_ref().map(|channel| format!("in {channel}")),
            label.as_ref().map(|label| format!("with {label}")),
            mention.as_ref().map(|agent| format!("mentioning @{agent}")),
            prefix
                .as_ref()
                .map(|prefix| format!("starting with {}", first_line(prefix))),
        ]
        .into_iter()
        .flatten()
        .collect(),
        HookTrigger::Event { kind } => vec![format!("on {kind}")],
        HookTrigger::Free { uri } => vec![format!("when {uri} is free")],
    };
    words.extend(
        conditions
            .claim
            .as_ref()
            .map(|claim| format!("if {claim} is free")),
    );
    words.extend(
        conditions
            .require_label
            .as_ref()
            .map(|label| format!("if labelled {label}")),
    );
    words.extend(
        conditions
            .cooldown_ms
            .map(|cooldown_m| format!("at most every {}", seconds(cooldown_m))),
    );
    words.join(", ")
}

/// Describes the action of a hook.
fn action_text(hook: &HookView) -> String {
    match &hook.hook.action {
        HookAction::Run { argv, .. } => {
            let shut_in = match hook.hook.sandbox {
                SandboxLevel::Off => "no sandbox",
                SandboxLevel::Workspace => "sandbox: workspace",
                SandboxLevel::Strict => "sandbox: strict",
            };
            format!(
                "{} ({shut_in}, {} at most)",
                first_line(&argv.join(" ")),
                seconds(hook.hook.timeout_ms)
            )
        }
        HookAction::Route => "the router".into(),
    }
}

/// Describes a firing, with the command's output.
fn firing_text(firing: &Firing) -> String {
    let ended = firing
        .ended
        .as_ref()
        .map_or("running".to_owned(), ToString::to_string);
    let took = firing.ended_unix_ms.map(|at| {
        format!(
            " after {}",
            seconds(at.saturating_sub(firing.fired_unix_ms))
        )
    });
    let output: String = firing
        .output
        .lines()
        .map(|output| format!("    {}\n", sanitize(output)))
        .collect();
    format!(
        "{} {} {} by {}: {}{}\n{output}",
        firing.id,
        firing.hook,
        format_age(firing.fired_unix_ms),
        first_line(&firing.cause.to_string()),
        first_line(&ended),
        took.unwrap_or_default()
    )
}
