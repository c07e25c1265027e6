//! The command `agent`, which registers, tests, lists and removes agents. An agent is a coding
//! program that works under a name.

mod test;

use clap::{Args, Subcommand, ValueEnum};
use regatta_agents::presets::{DriverKind, Preset};
use regatta_agents::program_discovery::{MachineFacts, SignIn};
use regatta_agents::{presets, profile_credentials};
use regatta_api::input::RuntimeName;
use regatta_api::view::{AgentProblem, AgentView};
use regatta_api::{call, input};
use regatta_core::agent::{Profile, Role, Runtime, SandboxLevel, SecretSource};
use regatta_core::ids::AgentName;

use crate::client::CallReply;
use crate::command_line::split_command_line;
use crate::commands::provider::provider;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult, format_table, sanitize, usage_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    (
        "agent add",
        &["regatta agent add claude-1 --preset claude --max-tasks 2"],
    ),
    ("agent list", &["regatta agent list"]),
    ("agent show", &["regatta agent show claude-1"]),
    ("agent test", &["regatta agent test claude-1"]),
    (
        "agent close",
        &["regatta agent close claude-1 --because 'machine is rebooted'"],
    ),
    ("agent rm", &["regatta agent rm claude-1"]),
    ("agent presets", &["regatta agent presets"]),
];

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Register an agent (a coding program under a name), or change its settings
    Add(Box<AgentAddArgs>),
    /// List agents
    List,
    /// Show an agent
    Show {
        /// Agent to show
        name: AgentName,
    },
    /// Check that an agent's program starts, answers a short prompt and can be stopped
    Test {
        /// Agent to test
        name: AgentName,
    },
    /// Give an agent no more work until somebody registers the agent again
    Close {
        /// Agent that gets no more work
        name: AgentName,
        /// Reason, shown to other people and agents
        #[arg(long, value_name = "REASON", default_value = "")]
        because: String,
    },
    /// Remove an agent that has no work
    #[command(alias = "remove")]
    Rm {
        /// Agent to remove
        name: AgentName,
    },
    /// List the agent programs that Regatta knows, and mark the programs that are installed
    Presets,
}

impl AgentCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(
            self,
            AgentCommand::List | AgentCommand::Show { .. } | AgentCommand::Presets
        )
    }
}

#[derive(Debug, Args)]
pub(crate) struct AgentAddArgs {
    /// Name of the agent, such as claude-1
    pub(crate) name: AgentName,
    /// Known program whose settings the agent gets, such as claude; to list the known programs:
    /// regatta agent presets
    #[arg(long, value_name = "NAME", required_unless_present = "runtime")]
    pub(crate) preset: Option<String>,
    /// Way in which Regatta runs the agent's program (default: the way that fits the preset)
    #[arg(long, value_enum)]
    pub(crate) runtime: Option<RuntimeArg>,
    /// Number of tasks the agent may work on at once, 1 to 20
    #[arg(
        long,
        default_value_t = 1,
        env = "MAX_CONCURRENT_TASKS",
        hide_env = true
    )]
    pub(crate) max_tasks: u32,
    /// Command line that starts the program; with --runtime command, {prompt} is replaced by the
    /// prompt
    #[arg(long, value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Company whose models the program uses, such as anthropic
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// Description of the agent, such as its purpose
    #[arg(long, default_value = "")]
    pub(crate) description: String,
    /// Let the agent lead missions: a lead breaks a goal into tasks
    #[arg(long)]
    pub(crate) lead: bool,
    /// Model that the program uses, by the name that the provider gives it
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Reasoning effort of the model, such as low or high
    #[arg(long)]
    pub(crate) effort: Option<String>,
    /// Permission mode of the program, in the words of the program itself
    #[arg(long)]
    pub(crate) mode: Option<String>,
    /// Extra argument for the program; may be repeated
    #[arg(long = "arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
    /// Text to add to the built-in instructions of the agent's program
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// Environment variable for the program; may be repeated; use --key for secrets
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) env: Vec<(String, String)>,
    /// Secret variable for the program, and where the daemon reads its value: NAME=env:VARIABLE,
    /// NAME=file:PATH or NAME=command:LINE; may be repeated
    #[arg(long = "key", value_name = "NAME=SOURCE", value_parser = parse_secret)]
    pub(crate) keys: Vec<regatta_core::agent::SecretVariable>,
    /// Restriction of the program's access to files and network
    #[arg(long, value_enum)]
    pub(crate) confine: Option<SandboxLevelArg>,
    /// Block the program's network access
    #[arg(long)]
    pub(crate) no_network: bool,
    /// Allow network access only to this host, such as example.com, *.example.com or
    /// example.com:443; may be repeated
    #[arg(long = "egress", value_name = "HOST")]
    pub(crate) egress: Vec<String>,
    /// Run the agent only on runners (other machines) that have this label; may be repeated
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Further path that the sandboxed program may read; may be repeated
    #[arg(long = "read", value_name = "PATH")]
    pub(crate) read: Vec<String>,
    /// Further path that the sandboxed program may write; may be repeated
    #[arg(long = "write", value_name = "PATH")]
    pub(crate) write: Vec<String>,
    /// Register the agent even if its program is not installed on this machine
    #[arg(long)]
    pub(crate) anyway: bool,
}

/// Parses `NAME=VALUE`, the value of `--env`.
fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    check_variable_name(name)?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Checks that `name` can be the name of an environment variable.
fn check_variable_name(name: &str) -> Result<(), String> {
    let fine = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fine {
        Ok(())
    } else {
        Err(format!(
            "{name:?} is not a valid variable name: use letters, digits and _, and do not start \
            with a digit"
        ))
    }
}

/// Parses `NAME=SOURCE`, the value of `--key`. The secret itself is never part of the command line,
/// which other users of the machine can see.
fn parse_secret(text: &str) -> Result<regatta_core::agent::SecretVariable, String> {
    use regatta_core::agent::{SecretSource, SecretVariable};
    const SECRET_FORMAT: &str = "write it as NAME=env:VARIABLE, NAME=file:PATH or \
        NAME=command:LINE; the value itself is not stored";
    let (name, source) = text.split_once('=').ok_or(SECRET_FORMAT)?;
    check_variable_name(name)?;
    let from = match source.split_once(':') {
        Some(("env", s)) if check_variable_name(s).is_ok() => SecretSource::Env(s.to_owned()),
        Some(("file", s)) if !s.is_empty() => SecretSource::File(s.to_owned()),
        Some(("command", s)) if !s.is_empty() => SecretSource::Command(s.to_owned()),
        _ => return Err(SECRET_FORMAT.to_owned()),
    };
    Ok(SecretVariable {
        name: name.to_owned(),
        from,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuntimeArg {
    /// The built-in agent, which follows the script of a task instead of asking a model
    Scripted,
    /// Any program that is started once per prompt
    Command,
    /// A program that speaks the Agent Client Protocol
    Acp,
    /// The program Claude Code, through its JSON stream
    Claude,
    /// The program `codex exec`, one process per prompt
    Codex,
    /// The program `codex app-server`, one process per session
    CodexServer,
    /// A program that Regatta does not start, and that asks for tasks itself with regatta task poll
    Outside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxLevelArg {
    /// The program can use only system programs and its own directories, and no network
    Strict,
    /// The program can write only to its workspace, its own home and its temporary files
    Workspace,
    /// No sandbox: the program can do everything that you can do
    Off,
}

/// Runs `regatta agent`.
pub(crate) fn agent(app: &CommandContext, command: AgentCommand) -> CommandResult {
    match command {
        AgentCommand::Add(request) => {
            let add = agent_add_request(*request)?;
            let reply: CallReply<AgentView> = app.call(call::AgentAdd(add))?;
            let name = reply.data.agent.name.clone();
            app.output.print_answer(
                "agent.add",
                &reply.data,
                &[
                    format!("regatta agent test {name}"),
                    "regatta run --help".into(),
                ],
                |out| {
                    draw_agents(out, std::slice::from_ref(&reply.data))
                        + &draw_problems(&reply.data)
                        + &sign_in_warning(&reply.data)
                },
            )
        }
        AgentCommand::List => {
            let reply: CallReply<Vec<AgentView>> =
                app.call(call::AgentList(input::EmptyInput {}))?;
            let next = if reply.data.is_empty() {
                vec![
                    "regatta provider".into(),
                    "regatta agent add scripted --runtime scripted".into(),
                ]
            } else {
                vec![
                    format!("regatta why {}", reply.data[0].agent.name),
                    "regatta status".into(),
                ]
            };
            app.output
                .print_answer("agent.list", &reply.data, &next, |out| {
                    if reply.data.is_empty() {
                        "no agents yet\n".into()
                    } else {
                        draw_agents(out, &reply.data)
                    }
                })
        }
        AgentCommand::Show { name } => {
            let agent = app.client()?.show_agent(&name)?;
            app.output.print_answer("agent.show", &agent, &[], |out| {
                draw_agents(out, std::slice::from_ref(&agent))
                    + &draw_details(&agent)
                    + &draw_problems(&agent)
                    + &sign_in_warning(&agent)
            })
        }
        AgentCommand::Test { name } => crate::commands::agent::test::test_agent(app, &name),
        AgentCommand::Close { name, because } => {
            let request = input::AgentClose {
                name: name.clone(),
                reason: because,
            };
            let reply: CallReply<AgentView> = app.call(call::AgentClose(request))?;
            let next = [format!("regatta agent add {name} …")];
            app.output
                .print_answer("agent.close", &reply.data, &next, |_| {
                    format!("closed {name}: it gets no work until it registers again\n")
                })
        }
        AgentCommand::Rm { name } => {
            let _done = app.call(call::AgentRm(input::AgentNameInput { name: name.clone() }))?;
            app.output
                .print_answer("agent.rm", &name, &[], |_| format!("removed {name}\n"))
        }
        AgentCommand::Presets => provider(app),
    }
}

/// Parses a complete command line, such as `regatta agent add a --preset codex`, and returns the
/// API request that this command would send.
pub(crate) fn request_of_command(command: &str) -> Result<input::AgentAdd, CommandError> {
    let typed: Vec<std::ffi::OsString> = command.split(' ').map(Into::into).collect();
    let parsed = crate::command_line::parse_args(&typed).map_err(|error| {
        usage_error(
            error.to_string(),
            "add the agent by hand: regatta agent add --help",
        )
    })?;
    match parsed.command {
        Some(crate::args::CliCommand::Agent(AgentCommand::Add(args))) => agent_add_request(*args),
        _ => Err(usage_error(
            format!("`{command}` is not a `regatta agent add` command"),
            "add the agent by hand: regatta agent add --help",
        )),
    }
}

/// Turns the arguments of `agent add` into an API request. Values that the arguments do not set
/// come from the preset (the settings of a known program).
fn agent_add_request(args: AgentAddArgs) -> Result<input::AgentAdd, CommandError> {
    let command = args
        .command
        .as_deref()
        .map(split_command_line)
        .transpose()?;
    let preset = match (&args.preset, &command) {
        (Some(name), _) => {
            let (preset, _) = presets::find_preset(name).ok_or_else(|| {
                let known: Vec<&str> = presets::PRESETS.iter().map(|preset| preset.name).collect();
                usage_error(
                    format!("there is no preset {name}"),
                    format!("use one of these presets: {}", known.join(", ")),
                )
            })?;
            Some(preset)
        }
        // If the person gave only the command of a known program, look up the program's preset (its
        // known settings), because the preset says where the program stores its sign-in.
        (None, Some(command)) => command
            .first()
            .and_then(|program| presets::preset_of_program(program)),
        (None, None) => None,
    };
    let is_chosen = args.preset.is_some();
    if is_chosen && preset.is_some_and(|preset| preset.name == "gc") && args.args.is_empty() {
        let hint = format!(
            "add the alias of a worker of the pool: regatta agent add {} --preset gc --arg=ALIAS",
            args.name
        );
        return Err(usage_error(
            "the preset gc needs the alias of a worker in the pool of the program gc",
            hint,
        ));
    }
    let runtime = match (args.runtime, preset.filter(|_| is_chosen)) {
        (Some(runtime_arg), _) => runtime_arg,
        (None, Some(preset)) => preset_runtime(preset),
        (None, None) => {
            return Err(usage_error(
                "an agent needs a preset or a runtime",
                "list presets with regatta agent presets, or add --runtime",
            ));
        }
    };
    let command = match (command, preset.filter(|_| is_chosen), runtime) {
        (Some(_), _, RuntimeArg::Scripted | RuntimeArg::Outside) => {
            return Err(usage_error(
                "--command is not allowed, because an agent with this --runtime starts no command",
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
                "an agent with this --runtime needs the command that starts its program",
                "add the command: --command 'my-agent --print {prompt}'",
            ));
        }
    };
    let mut profile = Profile {
        preset: preset
            .filter(|_| is_chosen)
            .map(|preset| preset.name.to_owned()),
        model: args.model,
        effort: args.effort,
        mode: args.mode,
        args: args.args,
        system_prompt: args.system_prompt,
        env: args.env,
        keys: args.keys,
        sandbox: args
            .confine
            .map(|sandbox_level_arg| match sandbox_level_arg {
                SandboxLevelArg::Strict => SandboxLevel::Strict,
                SandboxLevelArg::Workspace => SandboxLevel::Workspace,
                SandboxLevelArg::Off => SandboxLevel::Off,
            }),
        network: args.no_network.then_some(false),
        egress: args.egress,
        labels: args.labels,
        read: args.read,
        write: args.write,
        ..Profile::default()
    };
    if let Some(preset) = preset {
        profile_credentials::add_sign_in(&mut profile, preset, &MachineFacts::this_machine());
    }
    let provider = args.provider.or_else(|| {
        preset
            .map(|preset| preset.provider.to_owned())
            .filter(|preset| !preset.is_empty())
    });
    Ok(input::AgentAdd {
        name: args.name,
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
        role: if args.lead { Role::Lead } else { Role::Worker },
        provider,
        description: args.description,
        max_tasks: args.max_tasks,
        profile,
        anyway: args.anyway,
    })
}

/// Returns the value of `--runtime` that fits a preset (the settings of a known program).
fn preset_runtime(preset: &Preset) -> RuntimeArg {
    match preset.driver {
        DriverKind::Acp => RuntimeArg::Acp,
        DriverKind::Claude => RuntimeArg::Claude,
        DriverKind::CodexServer => RuntimeArg::CodexServer,
        DriverKind::CodexExec => RuntimeArg::Codex,
        DriverKind::Command => RuntimeArg::Command,
    }
}

/// Returns a line for each problem that keeps the daemon from starting an agent, with the fix of
/// the problem.
fn draw_problems(agent: &AgentView) -> String {
    let hint = |problem: &AgentProblem| sanitize(&problem.hint).replace('\n', "\n        ");
    let line = |problem: &AgentProblem| {
        format!("! {}\n  hint: {}\n", sanitize(&problem.what), hint(problem))
    };
    agent.problems.iter().map(line).collect()
}

/// Returns a warning if an agent's program seems not to be signed in, or an empty text. The text is
/// a warning and not an error, because the program may be signed in by a method that Regatta cannot
/// detect.
fn sign_in_warning(view: &AgentView) -> String {
    let (agent, machine) = (&view.agent, MachineFacts::this_machine());
    let Some((preset, _)) = agent
        .profile
        .preset
        .as_deref()
        .and_then(presets::find_preset)
    else {
        return String::new();
    };
    let is_elsewhere = !agent.profile.labels.is_empty() || !view.problems.is_empty();
    // Do not warn about an agent with any secret variable, because the variable may contain the key
    // for a model that the preset does not know.
    if is_elsewhere
        || !agent.profile.keys.is_empty()
        || profile_credentials::visible_sign_in(&agent.profile, preset, &machine) != SignIn::None
    {
        return String::new();
    }
    let name = &agent.name;
    let mut hints = Vec::new();
    if !preset.sign_in.is_empty() {
        hints.push(format!("sign in with {}", preset.sign_in));
    }
    if let Some(key) = preset.key_variables.first() {
        let add_command = format!("regatta agent add {name} --preset {}", preset.name);
        hints.push(format!(
            "or add an API key: export {key}=…; {add_command}; regatta up --restart"
        ));
    }
    format!(
        "! {name} does not seem to be signed in\n  hint: {}\n",
        hints.join("\n        ")
    )
}

/// Draws agents as a table.
pub(crate) fn draw_agents(out: &crate::output::Output, agents: &[AgentView]) -> String {
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
            out.format_state(agent.at, &agent.word),
            last,
        ]);
    }
    format_table(&rows)
}

/// Draws an agent's settings. For a secret variable, the text contains the source of the value and
/// never the value itself.
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
