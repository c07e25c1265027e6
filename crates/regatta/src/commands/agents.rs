//! The commands `agent` and `provider`.

use regatta_agents::presets::{self, DriverKind, Preset};
use regatta_agents::program_discovery::{self, FoundProgram, MachineFacts, SignIn};
use regatta_agents::sign_in;
use regatta_api::Call;
use regatta_api::input::{self, RuntimeName};
use regatta_api::live_view::ProviderProgram;
use regatta_api::view::{AgentProblem, AgentView};
use regatta_core::agent::{Profile, Role, Runtime, SandboxLevel, SecretSource};

use crate::args::{AgentAddArgs, AgentCommand, RuntimeArg, SandboxLevelArg};
use crate::client::CallReply;
use crate::output::{
    CommandError, CommandResult, format_table, format_table_for, sanitize, usage_error,
};

use super::CommandContext;
use super::setup::split_command_line;

/// Runs `regatta agent`.
pub(super) fn agent(app: &CommandContext, word: AgentCommand) -> CommandResult {
    match word {
        AgentCommand::Add(ask) => {
            let add = agent_add_request(*ask)?;
            let got: CallReply<AgentView> = app.call(&Call::AgentAdd(add))?;
            let name = got.data.agent.name.clone();
            app.output.print_answer(
                "agent.add",
                &got.data,
                &[
                    format!("regatta agent test {name}"),
                    "regatta run --help".into(),
                ],
                |out| {
                    draw_agents(out, std::slice::from_ref(&got.data))
                        + &draw_problems(&got.data)
                        + &sign_in_warning(&got.data)
                },
            )
        }
        AgentCommand::List => {
            let got: CallReply<Vec<AgentView>> =
                app.call(&Call::AgentList(input::EmptyInput {}))?;
            let next = if got.data.is_empty() {
                vec![
                    "regatta provider".into(),
                    "regatta agent add scripted --runtime scripted".into(),
                ]
            } else {
                vec![
                    format!("regatta why {}", got.data[0].agent.name),
                    "regatta status".into(),
                ]
            };
            app.output
                .print_answer("agent.list", &got.data, &next, |out| {
                    if got.data.is_empty() {
                        "no agents yet\n".into()
                    } else {
                        draw_agents(out, &got.data)
                    }
                })
        }
        AgentCommand::Show { name } => {
            let got: CallReply<AgentView> = app.call(&Call::Show(input::IdInput {
                id: name.to_string(),
            }))?;
            app.output
                .print_answer("agent.show", &got.data, &[], |out| {
                    let (problems, no_sign_in) =
                        (draw_problems(&got.data), sign_in_warning(&got.data));
                    draw_agents(out, std::slice::from_ref(&got.data))
                        + &draw_details(&got.data)
                        + &problems
                        + &no_sign_in
                })
        }
        AgentCommand::Test { name } => super::test_agent::test_agent(app, &name),
        AgentCommand::Close { name, because } => {
            let ask = input::AgentClose {
                name: name.clone(),
                reason: because,
            };
            let got: CallReply<AgentView> = app.call(&Call::AgentClose(ask))?;
            let next = [format!("regatta agent add {name} …")];
            app.output
                .print_answer("agent.close", &got.data, &next, |_| {
                    format!("closed {name}: it gets no work until it registers again\n")
                })
        }
        AgentCommand::Rm { name } => {
            let _done: CallReply<String> =
                app.call(&Call::AgentRm(input::AgentNameInput { name: name.clone() }))?;
            app.output
                .print_answer("agent.rm", &name, &[], |_| format!("removed {name}\n"))
        }
        AgentCommand::Presets => provider(app),
    }
}

/// Turns the arguments of `agent add` into a request. Settings of a preset fill the gaps.
fn agent_add_request(ask: AgentAddArgs) -> Result<input::AgentAdd, CommandError> {
    let command = ask.command.as_deref().map(split_command_line).transpose()?;
    let preset = match (&ask.preset, &command) {
        (Some(name), _) => {
            let found = presets::find_preset(name).ok_or_else(|| {
                let known: Vec<&str> = presets::PRESETS.iter().map(|preset| preset.name).collect();
                usage_error(
                    format!("there is no preset {name}"),
                    format!("use one of: {}", known.join(", ")),
                )
            })?;
            Some(found.0)
        }
        // A known program needs certain files of the user's home, even if the person gave only its
        // command.
        (None, Some(command)) => command
            .first()
            .and_then(|program| presets::preset_of_program(program)),
        (None, None) => None,
    };
    let chosen = ask.preset.is_some();
    if chosen && preset.is_some_and(|preset| preset.name == "gc") && ask.args.is_empty() {
        let hint = format!(
            "add the alias of a worker of the pool: regatta agent add {} --preset gc --arg=ALIAS",
            ask.name
        );
        return Err(usage_error(
            "the preset gc needs the alias of a worker",
            hint,
        ));
    }
    let runtime = match (ask.runtime, preset.filter(|_| chosen)) {
        (Some(runtime_arg), _) => runtime_arg,
        (None, Some(preset)) => preset_runtime(preset),
        (None, None) => {
            return Err(usage_error(
                "an agent needs a preset or a runtime",
                "list presets with regatta agent presets, or add --runtime",
            ));
        }
    };
    let command = match (command, preset.filter(|_| chosen), runtime) {
        (Some(_), _, RuntimeArg::Scripted | RuntimeArg::Outside) => {
            return Err(usage_error(
                "this runtime takes no command",
                "omit --command, or choose another --runtime",
            ));
        }
        (Some(command), _, _) => command,
        (None, Some(preset), _) => preset.runtime(None).argv().unwrap_or_default().to_vec(),
        (None, None, RuntimeArg::Scripted | RuntimeArg::Outside) => vec![],
        (None, None, RuntimeArg::Claude) => vec!["claude".into()],
        (None, None, RuntimeArg::Codex | RuntimeArg::CodexServer) => vec!["codex".into()],
        (None, None, RuntimeArg::Command | RuntimeArg::Acp) => {
            return Err(usage_error(
                "this runtime needs a command",
                "add one: --command 'my-agent --print {prompt}'",
            ));
        }
    };
    let mut profile = Profile {
        preset: preset
            .filter(|_| chosen)
            .map(|preset| preset.name.to_owned()),
        model: ask.model,
        effort: ask.effort,
        mode: ask.mode,
        args: ask.args,
        system_prompt: ask.system_prompt,
        env: ask.env,
        keys: ask.keys,
        sandbox: ask
            .confine
            .map(|sandbox_level_arg| match sandbox_level_arg {
                SandboxLevelArg::Strict => SandboxLevel::Strict,
                SandboxLevelArg::Workspace => SandboxLevel::Workspace,
                SandboxLevelArg::Off => SandboxLevel::Off,
            }),
        network: ask.no_network.then_some(false),
        egress: ask.egress,
        labels: ask.labels,
        read: ask.read,
        write: ask.write,
        ..Profile::default()
    };
    if let Some(preset) = preset {
        sign_in::add_sign_in(&mut profile, preset, &MachineFacts::this_machine());
    }
    let provider = ask.provider.or_else(|| {
        preset
            .map(|preset| preset.provider.to_owned())
            .filter(|preset| !preset.is_empty())
    });
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
fn preset_runtime(preset: &Preset) -> RuntimeArg {
    match preset.driver {
        DriverKind::Acp => RuntimeArg::Acp,
        DriverKind::Claude => RuntimeArg::Claude,
        DriverKind::CodexServer => RuntimeArg::CodexServer,
        DriverKind::CodexExec => RuntimeArg::Codex,
        DriverKind::Command => RuntimeArg::Command,
    }
}

/// Draws the problems that keep the daemon from starting an agent, and their fixes.
fn draw_problems(agent: &AgentView) -> String {
    let hint = |problem: &AgentProblem| sanitize(&problem.hint).replace('\n', "\n        ");
    let line = |problem: &AgentProblem| {
        format!("! {}\n  hint: {}\n", sanitize(&problem.what), hint(problem))
    };
    agent.problems.iter().map(line).collect()
}

/// Returns a warning if an agent's program seems to have no sign-in. It is only a warning, because
/// the program may have a sign-in that Regatta does not know.
fn sign_in_warning(item: &AgentView) -> String {
    let (agent, machine) = (&item.agent, MachineFacts::this_machine());
    let Some((preset, _)) = agent
        .profile
        .preset
        .as_deref()
        .and_then(presets::find_preset)
    else {
        return String::new();
    };
    let is_elsewhere = !agent.profile.labels.is_empty() || !item.problems.is_empty();
    // A key with another name may belong to a model that the preset does not know.
    if is_elsewhere
        || !agent.profile.keys.is_empty()
        || sign_in::visible_sign_in(&agent.profile, preset, &machine) != SignIn::None
    {
        return String::new();
    }
    let name = &agent.name;
    let mut hints = Vec::new();
    if !preset.sign_in.is_empty() {
        hints.push(format!("sign in with {}", preset.sign_in));
    }
    if let Some(key) = preset.key_variables.first() {
        let again = format!("regatta agent add {name} --preset {}", preset.name);
        hints.push(format!(
            "or add an API key: export {key}=…; {again}; regatta up --restart"
        ));
    }
    format!(
        "! {name} does not seem to be signed in\n  hint: {}\n",
        hints.join("\n        ")
    )
}

/// Draws agents as a table.
pub(super) fn draw_agents(out: &crate::output::Output, agents: &[AgentView]) -> String {
    let mut rows = vec![
        ["NAME", "RUNTIME", "SLOTS", "STATE", "TASKS"]
            .map(String::from)
            .to_vec(),
    ];
    for agent in agents {
        let runtime = match &agent.agent.runtime {
            Runtime::Codex {
                argv,
                app_server: true,
            } => format!("codex-server {}", sanitize(&argv.join(" "))),
            other => match other.argv() {
                Some(argv) => format!("{} {}", other.name(), sanitize(&argv.join(" "))),
                None => other.name().to_owned(),
            },
        };
        let tasks: Vec<String> = agent.tasks.iter().map(ToString::to_string).collect();
        let mut last = tasks.join(" ");
        if let Some(why) = &agent.parked {
            last = if last.is_empty() {
                sanitize(why)
            } else {
                format!("{last} {}", sanitize(why))
            };
        }
        let slots = format!("{}/{}", agent.capacity.current, agent.capacity.max);
        rows.push(vec![
            agent.agent.name.to_string(),
            runtime,
            slots,
            out.format_state(&agent.state),
            last,
        ]);
    }
    format_table(&rows)
}

/// Draws an agent's settings. The source of a key is shown, never the key.
fn draw_details(agent: &AgentView) -> String {
    let profile = &agent.agent.profile;
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            rows.push(vec![format!("  {name}"), sanitize(&value)]);
        }
    };
    row("provider", agent.agent.provider.clone().unwrap_or_default());
    row("preset", profile.preset.clone().unwrap_or_default());
    row("model", profile.model.clone().unwrap_or_default());
    row("effort", profile.effort.clone().unwrap_or_default());
    row("mode", profile.mode.clone().unwrap_or_default());
    row("arguments", profile.args.join(" "));
    row(
        "sandbox",
        match profile.sandbox {
            None => "workspace, if this machine supports it".into(),
            Some(SandboxLevel::Strict) => "strict".into(),
            Some(SandboxLevel::Workspace) => "workspace".into(),
            Some(SandboxLevel::Off) => "off: the program may do everything that you may do".into(),
        },
    );
    row(
        "network",
        profile.network.map_or(String::new(), |network| {
            if network { "yes" } else { "no" }.into()
        }),
    );
    row("hosts", profile.egress.join(" "));
    row("labels", profile.labels.join(" and "));
    row("reads", profile.read.join(" "));
    row("writes", profile.write.join(" "));
    let keys = profile
        .keys
        .iter()
        .map(|secret_variable| match &secret_variable.from {
            SecretSource::Env(name) => format!("{} from ${name}", secret_variable.name),
            SecretSource::File(path) => format!("{} from {path}", secret_variable.name),
            SecretSource::Command(_) => format!("{} from a command", secret_variable.name),
        });
    row("keys", keys.collect::<Vec<_>>().join(", "));
    format_table(&rows)
}

/// Returns the known agent programs and their state on this machine.
pub(super) fn provider_lines() -> Vec<ProviderProgram> {
    find_presets().iter().map(provider_line).collect()
}

fn find_presets() -> Vec<FoundProgram> {
    program_discovery::discover_all(
        &presets::PRESETS.iter().collect::<Vec<_>>(),
        &MachineFacts::this_machine(),
    )
}

fn provider_line(found_program: &FoundProgram) -> ProviderProgram {
    ProviderProgram {
        preset: found_program.preset.name.into(),
        provider: found_program.preset.provider.into(),
        program: found_program
            .program
            .as_ref()
            .map(|path| path.to_string_lossy().into_owned()),
        version: found_program.version.clone(),
        signed_in: sign_in_label(found_program).into(),
        fix: found_program.fix.clone(),
    }
}

/// Runs `provider`: lists the known agent programs and whether they are installed.
pub(super) fn provider(app: &CommandContext) -> CommandResult {
    let found = find_presets();
    let data: Vec<ProviderProgram> = found.iter().map(provider_line).collect();
    let ready = found
        .iter()
        .find(|found_program| found_program.program.is_some());
    let next = [ready.map_or_else(
        || "regatta demo".to_owned(),
        |found_program| {
            format!(
                "regatta agent add {0} --preset {0}",
                found_program.preset.name
            )
        },
    )];
    app.output.print_answer("provider", &data, &next, |_| {
        draw_providers(&data, crate::output::window_width())
    })
}

/// Draws the installed programs as a table, and below it the command that installs each of the
/// others. Commands are never shortened, because people copy them.
fn draw_providers(providers: &[ProviderProgram], window: Option<usize>) -> String {
    let (installed, missing): (Vec<&ProviderProgram>, Vec<&ProviderProgram>) =
        providers.iter().partition(|line| line.program.is_some());
    let mut text = String::new();
    if !installed.is_empty() {
        let mut rows = vec![
            ["PRESET", "PROVIDER", "VERSION", "SIGNED IN"]
                .map(String::from)
                .to_vec(),
        ];
        rows.extend(installed.iter().map(|line| {
            let version = line
                .version
                .as_deref()
                .map_or_else(|| "installed".to_owned(), sanitize);
            vec![
                line.preset.clone(),
                line.provider.clone(),
                version,
                line.signed_in.clone(),
            ]
        }));
        text += &format_table_for(&rows, window);
        for (at, line) in installed.iter().enumerate() {
            let Some(fix) = line.fix.as_deref() else {
                continue;
            };
            // Presets of one program have the same fix.
            let same: Vec<&str> = installed[at..]
                .iter()
                .filter(|other| other.fix.as_deref() == Some(fix))
                .map(|other| other.preset.as_str())
                .collect();
            if !installed[..at]
                .iter()
                .any(|other| other.fix.as_deref() == Some(fix))
            {
                text += &format!("! {}: {}\n", same.join(", "), sanitize(fix));
            }
        }
    }
    if !missing.is_empty() {
        text += "not installed; each can be installed with:\n";
        let width = missing
            .iter()
            .map(|line| line.preset.len())
            .max()
            .unwrap_or(0);
        for line in missing {
            let fix = line.fix.as_deref().map(sanitize).unwrap_or_default();
            text += &format!("  {:<width$}  {fix}\n", line.preset);
        }
    }
    text
}

/// Describes the sign-in of a program.
fn sign_in_label(found_program: &FoundProgram) -> &'static str {
    match &found_program.sign_in {
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
        let machine = MachineFacts {
            path: "/nowhere".into(),
            home: "/nowhere".into(),
            variables: Vec::new(),
        };
        let mut lines: Vec<ProviderProgram> = presets::PRESETS
            .iter()
            .map(|preset| provider_line(&program_discovery::discover(preset, &machine)))
            .collect();
        let all = lines.clone();
        let text = draw_providers(&all, Some(80));
        assert!(
            text.starts_with("not installed; each can be installed with:\n  claude  "),
            "{text}"
        );
        assert!(
            all.iter()
                .all(|line| text.contains(line.fix.as_deref().unwrap())),
            "{text}"
        );
        assert!(!text.contains('…'), "{text}");

        let fix = "sign in with `claude /login`, or give the agent a key in ANTHROPIC_API_KEY or \
            ANTHROPIC_AUTH_TOKEN";
        for line in &mut lines[..2] {
            line.program = Some("/bin/claude".into());
            line.version = Some("2.1.325".into());
            line.signed_in = "not found".into();
            line.fix = Some(fix.into());
        }
        let text = draw_providers(&lines, Some(80));
        assert!(
            text.starts_with(
                "PRESET         PROVIDER   VERSION  SIGNED IN\nclaude         anthropic  2.1.325"
            ),
            "{text}"
        );
        assert_eq!(
            text.matches(fix).count(),
            1,
            "a fix of two presets is printed once: {text}"
        );
        assert!(
            text.contains(&format!("! claude, claude-native: {fix}\n")),
            "{text}"
        );
    }
}
