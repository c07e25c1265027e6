//! The command `hook`, with `add`, `list`, `test`, `pause`, `resume`, `rm` and `log`.

use regatta_api::view::{HookTestView, HookView};
use regatta_api::{Call, input};
use regatta_core::agent::Level;
use regatta_core::hook::{Action, Conditions, Firing, Trigger};
use regatta_core::refusal::seconds;

use crate::args::{HookAdd, HookWord};
use crate::client::Got;
use crate::out::{Said, ago, line, plain, table, usage};

use super::App;

/// Runs `regatta hook`.
pub(super) fn hook(app: &App, word: HookWord) -> Said {
    match word {
        HookWord::Add(ask) => add(app, *ask),
        HookWord::List => {
            let got: Got<Vec<HookView>> = app.call(&Call::HookList(input::Nothing {}))?;
            let none = ["regatta hook add --channel shop -- ./answer.sh".to_owned()];
            let next: &[String] = if got.data.is_empty() { &none } else { &[] };
            app.out.answer("hook.list", &got.data, next, |_| draw(&got.data))
        }
        HookWord::Test { id, message, text, channel, labels, from } => {
            let ask = input::HookTest { hook: id, message, text, channel, labels, from };
            let got: Got<HookTestView> = app.call(&Call::HookTest(ask))?;
            app.out.answer("hook.test", &got.data, &[], |_| {
                let says = if got.data.fires { "fires" } else { "does not fire" };
                format!("{id} {says}: {}\n", line(&got.data.why))
            })
        }
        HookWord::Pause { id, because } => {
            let got: Got<HookView> = app.call(&Call::HookPause(input::HookPause { hook: id, reason: because }))?;
            app.out.answer("hook.pause", &got.data, &[format!("regatta hook resume {id}")], |_| {
                format!("{id} is paused\n")
            })
        }
        HookWord::Resume { id } => {
            let got: Got<HookView> = app.call(&Call::HookResume(input::Hook { hook: id }))?;
            app.out.answer("hook.resume", &got.data, &[], |_| format!("{id} is resumed\n"))
        }
        HookWord::Rm { id } => {
            let _done: Got<String> = app.call(&Call::HookRm(input::Hook { hook: id }))?;
            app.out.answer("hook.rm", &serde_json::json!({ "hook": id }), &[], |_| format!("removed {id}\n"))
        }
        HookWord::Log { id, before, limit } => {
            let got: Got<Vec<Firing>> = app.call(&Call::HookLog(input::HookLog { hook: id, before, limit }))?;
            app.out.answer("hook.log", &got.data, &[], |_| got.data.iter().map(tell).collect())
        }
    }
}

/// Runs `regatta hook add`.
fn add(app: &App, ask: HookAdd) -> Said {
    let trigger = match (ask.event, ask.on_free) {
        (Some(kind), _) => Trigger::Event { kind },
        (None, Some(uri)) => Trigger::Free { uri },
        (None, None) => {
            Trigger::Message { channel: ask.channel, label: ask.label, mention: ask.mention, prefix: ask.prefix }
        }
    };
    let action = if ask.route {
        Action::Route
    } else {
        let here = app.here()?;
        let cwd = ask.cwd.map_or_else(|| here.clone(), |it| here.join(it));
        let whole = cwd.canonicalize().map_err(|it| {
            usage(format!("cannot open the directory {}: {it}", cwd.display()), "name an existing directory with --cwd")
        })?;
        Action::Run { argv: ask.command, cwd: whole.to_string_lossy().into_owned() }
    };
    let when =
        Conditions { claim: ask.claim, ttl_ms: ask.ttl, cooldown_ms: ask.cooldown, require_label: ask.require_label };
    let client = app.client()?;
    let got: Got<HookView> = client.call(&Call::HookAdd(input::HookAdd {
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
    let next = [format!("regatta hook test {id} --text '…'"), format!("regatta hook log {id}")];
    app.out.answer("hook.add", &got.data, &next, |_| draw(std::slice::from_ref(&got.data)))
}

/// Draws hooks as a table.
fn draw(hooks: &[HookView]) -> String {
    let row = |it: &HookView| {
        let hook = &it.hook;
        let state = match (&hook.paused, it.running) {
            (Some(why), _) => format!("paused: {}", line(why)),
            (None, 0) => "ready".into(),
            (None, many) => format!("{many} running"),
        };
        let fired = match hook.fired_wall {
            Some(wall) => format!("fired {} times, last {}", hook.fired, ago(wall)),
            None => "never fired".into(),
        };
        let fired = match hook.waiting.len() {
            0 => fired,
            waiting => format!("{fired}, {waiting} waiting for its claim"),
        };
        vec![hook.id.to_string(), when(&hook.trigger, &hook.when), what(it), fired, state]
    };
    table(&hooks.iter().map(row).collect::<Vec<_>>())
}

/// Describes when a hook fires.
fn when(trigger: &Trigger, conditions: &Conditions) -> String {
    let mut words: Vec<String> = match trigger {
        Trigger::Message { channel, label, mention, prefix } => [
            channel.as_ref().map(|it| format!("in {it}")),
            label.as_ref().map(|it| format!("with {it}")),
            mention.as_ref().map(|it| format!("mentioning @{it}")),
            prefix.as_ref().map(|it| format!("starting with {}", line(it))),
        ]
        .into_iter()
        .flatten()
        .collect(),
        Trigger::Event { kind } => vec![format!("on {kind}")],
        Trigger::Free { uri } => vec![format!("when {uri} is free")],
    };
    words.extend(conditions.claim.as_ref().map(|it| format!("if {it} is free")));
    words.extend(conditions.require_label.as_ref().map(|it| format!("if labelled {it}")));
    words.extend(conditions.cooldown_ms.map(|it| format!("at most every {}", seconds(it))));
    words.join(", ")
}

/// Describes the action of a hook.
fn what(it: &HookView) -> String {
    match &it.hook.action {
        Action::Run { argv, .. } => {
            let shut_in = match it.hook.sandbox {
                Level::Off => "no sandbox",
                Level::Workspace => "sandbox: workspace",
                Level::Strict => "sandbox: strict",
            };
            format!("{} ({shut_in}, {} at most)", line(&argv.join(" ")), seconds(it.hook.timeout_ms))
        }
        Action::Route => "the router".into(),
    }
}

/// Describes a firing, with the command's output.
fn tell(it: &Firing) -> String {
    let ended = it.ended.as_ref().map_or("running".to_owned(), ToString::to_string);
    let took = it.ended_wall.map(|at| format!(" after {}", seconds(at.saturating_sub(it.fired_wall))));
    let output: String = it.output.lines().map(|it| format!("    {}\n", plain(it))).collect();
    format!(
        "{} {} {} by {}: {}{}\n{output}",
        it.id,
        it.hook,
        ago(it.fired_wall),
        line(&it.cause.to_string()),
        line(&ended),
        took.unwrap_or_default()
    )
}
