//! The commands `agent` and `provider`.

use regatta_agents::discover::{self, Found, Machine, SignIn};
use regatta_agents::presets::{self, Drive, Preset};
use regatta_agents::sign_in;
use regatta_api::Call;
use regatta_api::input::{self, RuntimeName};
use regatta_api::page::ProviderLine;
use regatta_api::view::{AgentProblem, AgentView};
use regatta_core::agent::{KeySource, Level, Profile, Role, Runtime};

use crate::args::{AgentAdd, AgentWord, LevelArg, RuntimeArg};
use crate::client::Got;
use crate::out::{Failed, Said, fit, plain, table, usage};

use super::App;
use super::setup::words_of;

/// Runs `regatta agent`.
pub(super) fn agent(app: &App, word: AgentWord) -> Said {
    match word {
        AgentWord::Add(ask) => {
            let add = added(*ask)?;
            let got: Got<AgentView> = app.call(&Call::AgentAdd(add))?;
            let name = got.data.agent.name.clone();
            app.out.answer(
                "agent.add",
                &got.data,
                &[format!("regatta agent test {name}"), "regatta run --help".into()],
                |out| draw(out, std::slice::from_ref(&got.data)) + &problems(&got.data) + &no_sign_in(&got.data),
            )
        }
        AgentWord::List => {
            let got: Got<Vec<AgentView>> = app.call(&Call::AgentList(input::Nothing {}))?;
            let next = if got.data.is_empty() {
                vec!["regatta provider".into(), "regatta agent add scripted --runtime scripted".into()]
            } else {
                vec![format!("regatta why {}", got.data[0].agent.name), "regatta status".into()]
            };
            app.out.answer("agent.list", &got.data, &next, |out| {
                if got.data.is_empty() { "no agents yet\n".into() } else { draw(out, &got.data) }
            })
        }
        AgentWord::Show { name } => {
            let got: Got<AgentView> = app.call(&Call::Show(input::Id { id: name.to_string() }))?;
            app.out.answer("agent.show", &got.data, &[], |out| {
                let (problems, no_sign_in) = (problems(&got.data), no_sign_in(&got.data));
                draw(out, std::slice::from_ref(&got.data)) + &details(&got.data) + &problems + &no_sign_in
            })
        }
        AgentWord::Test { name } => super::test_agent::test(app, &name),
        AgentWord::Close { name, because } => {
            let ask = input::AgentClose { name: name.clone(), reason: because };
            let got: Got<AgentView> = app.call(&Call::AgentClose(ask))?;
            let next = [format!("regatta agent add {name} …")];
            app.out.answer("agent.close", &got.data, &next, |_| {
                format!("closed {name}: it gets no work until it registers again\n")
            })
        }
        AgentWord::Rm { name } => {
            let _done: Got<String> = app.call(&Call::AgentRm(input::Name { name: name.clone() }))?;
            app.out.answer("agent.rm", &name, &[], |_| format!("removed {name}\n"))
        }
        AgentWord::Presets => provider(app),
    }
}

/// Turns the arguments of `agent add` into a request. Settings of a preset fill the gaps.
fn added(ask: AgentAdd) -> Result<input::AgentAdd, Failed> {
    let command = ask.command.as_deref().map(words_of).transpose()?;
    let preset = match (&ask.preset, &command) {
        (Some(name), _) => {
            let found = presets::find(name).ok_or_else(|| {
                let known: Vec<&str> = presets::PRESETS.iter().map(|it| it.name).collect();
                usage(format!("there is no preset {name}"), format!("use one of: {}", known.join(", ")))
            })?;
            Some(found.0)
        }
        // A known program needs certain files of the user's home, even if the person gave only its
        // command.
        (None, Some(command)) => command.first().and_then(|program| presets::of_program(program)),
        (None, None) => None,
    };
    let chosen = ask.preset.is_some();
    if chosen && preset.is_some_and(|preset| preset.name == "gc") && ask.args.is_empty() {
        let hint =
            format!("add the alias of a worker of the pool: regatta agent add {} --preset gc --arg=ALIAS", ask.name);
        return Err(usage("the preset gc needs the alias of a worker", hint));
    }
    let runtime = match (ask.runtime, preset.filter(|_| chosen)) {
        (Some(it), _) => it,
        (None, Some(preset)) => drive(preset),
        (None, None) => {
            return Err(usage(
                "an agent needs a preset or a runtime",
                "list presets with regatta agent presets, or add --runtime",
            ));
        }
    };
    let command = match (command, preset.filter(|_| chosen), runtime) {
        (Some(_), _, RuntimeArg::Scripted | RuntimeArg::Outside) => {
            return Err(usage("this runtime takes no command", "omit --command, or choose another --runtime"));
        }
        (Some(command), _, _) => command,
        (None, Some(preset), _) => preset.runtime(None).argv().unwrap_or_default().to_vec(),
        (None, None, RuntimeArg::Scripted | RuntimeArg::Outside) => vec![],
        (None, None, RuntimeArg::Claude) => vec!["claude".into()],
        (None, None, RuntimeArg::Codex | RuntimeArg::CodexServer) => vec!["codex".into()],
        (None, None, RuntimeArg::Command | RuntimeArg::Acp) => {
            return Err(usage("this runtime needs a command", "add one: --command 'my-agent --print {prompt}'"));
        }
    };
    let mut profile = Profile {
        preset: preset.filter(|_| chosen).map(|it| it.name.to_owned()),
        model: ask.model,
        effort: ask.effort,
        mode: ask.mode,
        args: ask.args,
        system_prompt: ask.system_prompt,
        env: ask.env,
        keys: ask.keys,
        confine: ask.confine.map(|it| match it {
            LevelArg::Strict => Level::Strict,
            LevelArg::Workspace => Level::Workspace,
            LevelArg::Off => Level::Off,
        }),
        network: ask.no_network.then_some(false),
        egress: ask.egress,
        labels: ask.labels,
        read: ask.read,
        write: ask.write,
        ..Profile::default()
    };
    if let Some(preset) = preset {
        sign_in::lend(&mut profile, preset, &Machine::here());
    }
    let provider = ask.provider.or_else(|| preset.map(|it| it.provider.to_owned()).filter(|it| !it.is_empty()));
    Ok(input::AgentAdd {
        name: ask.name,
        runtime: match runtime {
            RuntimeArg::Scripted => RuntimeName::Scripted,
            RuntimeArg::Command => RuntimeName::Command,
            RuntimeArg::Acp => RuntimeName::Acp,
            RuntimeArg::Claude => RuntimeName::Claude,
            RuntimeArg::Codex => RuntimeName::Codex,
            RuntimeArg::CodexServer => RuntimeName::CodexServer,
            RuntimeArg::Outside => RuntimeName::Outside,
        },
        command,
        role: if ask.lead { Role::Lead } else { Role::Worker },
        provider,
        description: ask.description,
        max_tasks: ask.max_tasks,
        profile,
        anyway: ask.anyway,
    })
}

/// Returns the runtime that a preset uses.
fn drive(preset: &Preset) -> RuntimeArg {
    match preset.drive {
        Drive::Acp => RuntimeArg::Acp,
        Drive::Claude => RuntimeArg::Claude,
        Drive::CodexServer => RuntimeArg::CodexServer,
        Drive::CodexExec => RuntimeArg::Codex,
        Drive::Command => RuntimeArg::Command,
    }
}

/// Draws the problems that keep the daemon from starting an agent, and their fixes.
fn problems(it: &AgentView) -> String {
    let hint = |problem: &AgentProblem| plain(&problem.hint).replace('\n', "\n        ");
    let line = |problem: &AgentProblem| format!("! {}\n  hint: {}\n", plain(&problem.what), hint(problem));
    it.problems.iter().map(line).collect()
}

/// Returns a warning if an agent's program seems to have no sign-in. It is only a warning, because
/// the program may have a sign-in that Regatta does not know.
fn no_sign_in(it: &AgentView) -> String {
    let (agent, machine) = (&it.agent, Machine::here());
    let Some((preset, _)) = agent.profile.preset.as_deref().and_then(presets::find) else { return String::new() };
    let is_elsewhere = !agent.profile.labels.is_empty() || !it.problems.is_empty();
    // A key with another name may belong to a model that the preset does not know.
    if is_elsewhere
        || !agent.profile.keys.is_empty()
        || sign_in::available(&agent.profile, preset, &machine) != SignIn::None
    {
        return String::new();
    }
    let name = &agent.name;
    let mut hints = Vec::new();
    if !preset.sign_in.is_empty() {
        hints.push(format!("sign in with {}", preset.sign_in));
    }
    if let Some(key) = preset.keys.first() {
        let again = format!("regatta agent add {name} --preset {}", preset.name);
        hints.push(format!("or add an API key: export {key}=…; {again}; regatta up --restart"));
    }
    format!("! {name} does not seem to be signed in\n  hint: {}\n", hints.join("\n        "))
}

/// Draws agents as a table.
pub(super) fn draw(out: &crate::out::Out, agents: &[AgentView]) -> String {
    let mut rows = vec![["NAME", "RUNTIME", "SLOTS", "STATE", "TASKS"].map(String::from).to_vec()];
    for it in agents {
        let runtime = match &it.agent.runtime {
            Runtime::Codex { argv, app_server: true } => format!("codex-server {}", plain(&argv.join(" "))),
            other => match other.argv() {
                Some(argv) => format!("{} {}", other.name(), plain(&argv.join(" "))),
                None => other.name().to_owned(),
            },
        };
        let tasks: Vec<String> = it.tasks.iter().map(ToString::to_string).collect();
        let mut last = tasks.join(" ");
        if let Some(why) = &it.parked {
            last = if last.is_empty() { plain(why) } else { format!("{last} {}", plain(why)) };
        }
        let slots = format!("{}/{}", it.capacity.current, it.capacity.max);
        rows.push(vec![it.agent.name.to_string(), runtime, slots, out.state(&it.state), last]);
    }
    table(&rows)
}

/// Draws an agent's settings. The source of a key is shown, never the key.
fn details(it: &AgentView) -> String {
    let profile = &it.agent.profile;
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            rows.push(vec![format!("  {name}"), plain(&value)]);
        }
    };
    row("provider", it.agent.provider.clone().unwrap_or_default());
    row("preset", profile.preset.clone().unwrap_or_default());
    row("model", profile.model.clone().unwrap_or_default());
    row("effort", profile.effort.clone().unwrap_or_default());
    row("mode", profile.mode.clone().unwrap_or_default());
    row("arguments", profile.args.join(" "));
    row(
        "sandbox",
        match profile.confine {
            None => "workspace, if this machine supports it".into(),
            Some(Level::Strict) => "strict".into(),
            Some(Level::Workspace) => "workspace".into(),
            Some(Level::Off) => "off: the program may do everything that you may do".into(),
        },
    );
    row("network", profile.network.map_or(String::new(), |it| if it { "yes" } else { "no" }.into()));
    row("hosts", profile.egress.join(" "));
    row("labels", profile.labels.join(" and "));
    row("reads", profile.read.join(" "));
    row("writes", profile.write.join(" "));
    let keys = profile.keys.iter().map(|it| match &it.from {
        KeySource::Env(name) => format!("{} from ${name}", it.name),
        KeySource::File(path) => format!("{} from {path}", it.name),
        KeySource::Command(_) => format!("{} from a command", it.name),
    });
    row("keys", keys.collect::<Vec<_>>().join(", "));
    table(&rows)
}

/// Returns the known agent programs and their state on this machine.
pub(super) fn providers() -> Vec<ProviderLine> {
    found_presets().iter().map(line_of).collect()
}

fn found_presets() -> Vec<Found> {
    discover::find_all(&presets::PRESETS.iter().collect::<Vec<_>>(), &Machine::here())
}

fn line_of(it: &Found) -> ProviderLine {
    ProviderLine {
        preset: it.preset.name.into(),
        provider: it.preset.provider.into(),
        program: it.program.as_ref().map(|it| it.to_string_lossy().into_owned()),
        version: it.version.clone(),
        signed_in: signed_in(it).into(),
        fix: it.fix.clone(),
    }
}

/// Runs `provider`: lists the known agent programs and whether they are installed.
pub(super) fn provider(app: &App) -> Said {
    let found = found_presets();
    let data: Vec<ProviderLine> = found.iter().map(line_of).collect();
    let ready = found.iter().find(|it| it.program.is_some());
    let next = [ready
        .map_or_else(|| "regatta demo".to_owned(), |it| format!("regatta agent add {0} --preset {0}", it.preset.name))];
    app.out.answer("provider", &data, &next, |_| draw_providers(&data, crate::out::window_width()))
}

/// Draws the installed programs as a table, and below it the command that installs each of the
/// others. Commands are never shortened, because people copy them.
fn draw_providers(providers: &[ProviderLine], window: Option<usize>) -> String {
    let (installed, missing): (Vec<&ProviderLine>, Vec<&ProviderLine>) =
        providers.iter().partition(|line| line.program.is_some());
    let mut text = String::new();
    if !installed.is_empty() {
        let mut rows = vec![["PRESET", "PROVIDER", "VERSION", "SIGNED IN"].map(String::from).to_vec()];
        rows.extend(installed.iter().map(|line| {
            let version = line.version.as_deref().map_or_else(|| "installed".to_owned(), plain);
            vec![line.preset.clone(), line.provider.clone(), version, line.signed_in.clone()]
        }));
        text += &fit(&rows, window);
        for (at, line) in installed.iter().enumerate() {
            let Some(fix) = line.fix.as_deref() else { continue };
            // Presets of one program have the same fix.
            let same: Vec<&str> = installed[at..]
                .iter()
                .filter(|other| other.fix.as_deref() == Some(fix))
                .map(|other| other.preset.as_str())
                .collect();
            if !installed[..at].iter().any(|other| other.fix.as_deref() == Some(fix)) {
                text += &format!("! {}: {}\n", same.join(", "), plain(fix));
            }
        }
    }
    if !missing.is_empty() {
        text += "not installed; each can be installed with:\n";
        let width = missing.iter().map(|line| line.preset.len()).max().unwrap_or(0);
        for line in missing {
            let fix = line.fix.as_deref().map(plain).unwrap_or_default();
            text += &format!("  {:<width$}  {fix}\n", line.preset);
        }
    }
    text
}

/// Describes the sign-in of a program.
fn signed_in(it: &Found) -> &'static str {
    match &it.sign_in {
        SignIn::Key(_) => "by key",
        SignIn::File(_) => "yes",
        SignIn::NotNeeded => "not needed",
        SignIn::None => "not found",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a narrow window every install command and every fix is printed in full.
    #[test]
    fn commands_to_type_are_never_cut() {
        let machine = Machine { path: "/nowhere".into(), home: "/nowhere".into(), variables: Vec::new() };
        let mut lines: Vec<ProviderLine> =
            presets::PRESETS.iter().map(|preset| line_of(&discover::find(preset, &machine))).collect();
        let all = lines.clone();
        let text = draw_providers(&all, Some(80));
        assert!(text.starts_with("not installed; each can be installed with:\n  claude  "), "{text}");
        assert!(all.iter().all(|line| text.contains(line.fix.as_deref().unwrap())), "{text}");
        assert!(!text.contains('…'), "{text}");

        let fix = "sign in with `claude /login`, or give the agent a key in ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN";
        for line in &mut lines[..2] {
            line.program = Some("/bin/claude".into());
            line.version = Some("2.1.325".into());
            line.signed_in = "not found".into();
            line.fix = Some(fix.into());
        }
        let text = draw_providers(&lines, Some(80));
        assert!(
            text.starts_with("PRESET         PROVIDER   VERSION  SIGNED IN\nclaude         anthropic  2.1.325"),
            "{text}"
        );
        assert_eq!(text.matches(fix).count(), 1, "a fix of two presets is printed once: {text}");
        assert!(text.contains(&format!("! claude, claude-native: {fix}\n")), "{text}");
    }
}
