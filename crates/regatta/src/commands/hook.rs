//! The command `hook`, which manages hooks: commands that run when a message or an event matches,
//! or when a claim ends.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use regatta_api::view::{HookTestView, HookView};
use regatta_api::{call, input};
use regatta_core::agent::SandboxLevel;
use regatta_core::hook::{Firing, HookAction, HookConditions, HookTrigger};
use regatta_core::ids::{AgentName, ChannelName, FiringId, HookId, Label, MessageId};
use regatta_core::pattern::Uri;
use regatta_core::plural;
use regatta_core::refusal::seconds;

use crate::client::CallReply;
use crate::commands::msg::parse_channel;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, first_line, format_age, format_table, sanitize, usage_error};
use crate::settings::duration_ms;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    (
        "hook add",
        &["regatta hook add --channel shop --prefix '!deploy' -- ./deploy.sh"],
    ),
    ("hook list", &["regatta hook list"]),
    (
        "hook test",
        &["regatta hook test H2 --text '!deploy now' --channel shop"],
    ),
    ("hook pause", &["regatta hook pause H2 --because 'freeze'"]),
    ("hook resume", &["regatta hook resume H2"]),
    ("hook rm", &["regatta hook rm H2"]),
    ("hook log", &["regatta hook log H2 --limit 5"]),
];

#[derive(Debug, Subcommand)]
pub(crate) enum HookCommand {
    /// Add a hook; options say when the hook fires, and the command to run follows after --
    Add(Box<HookAddArgs>),
    /// List hooks
    List,
    /// Check whether a message would fire a hook, and print the reason if it would not
    Test {
        /// Hook to test, such as H2
        id: HookId,
        /// Existing message to test with, such as B7
        #[arg(
            long,
            value_name = "MESSAGE",
            conflicts_with = "text",
            required_unless_present = "text"
        )]
        message: Option<MessageId>,
        /// Text to test with, which is not posted
        #[arg(long)]
        text: Option<String>,
        /// Channel in which the text would be posted
        #[arg(long, value_parser = parse_channel)]
        channel: Option<ChannelName>,
        /// Label that the text would have; may be repeated
        #[arg(short = 'L', long = "label", value_name = "LABEL")]
        labels: Vec<Label>,
        /// Agent that would post the text (default: you)
        #[arg(long, value_name = "NAME")]
        from: Option<AgentName>,
    },
    /// Pause a hook
    Pause {
        /// Hook to pause, such as H2
        id: HookId,
        /// Reason, shown to other people and agents
        #[arg(long, value_name = "REASON", default_value = "")]
        because: String,
    },
    /// Resume a paused hook
    Resume {
        /// Hook to resume, such as H2
        id: HookId,
    },
    /// Remove a hook
    Rm {
        /// Hook to remove, such as H2
        id: HookId,
    },
    /// List the runs of hooks: time, cause, outcome and output
    Log {
        /// Hook whose runs to list, such as H2 (default: all hooks)
        id: Option<HookId>,
        /// List only runs that are older than this run, such as F12
        #[arg(long, value_name = "FIRING")]
        before: Option<FiringId>,
        /// Maximum number of runs to list
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
}

impl HookCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, HookCommand::List | HookCommand::Log { .. })
    }
}

#[derive(Debug, Args)]
pub(crate) struct HookAddArgs {
    /// Fire on messages of this channel
    #[arg(long, value_parser = parse_channel)]
    pub(crate) channel: Option<ChannelName>,
    /// Fire on messages with this label
    #[arg(short = 'L', long)]
    pub(crate) label: Option<Label>,
    /// Fire on messages that mention this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) mention: Option<AgentName>,
    /// Fire on messages that start with this text
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// Fire on events of this kind, such as task.completed
    #[arg(long, value_name = "KIND", conflicts_with_all = ["channel", "label", "mention", "prefix", "on_free"])]
    pub(crate) event: Option<String>,
    /// Fire when the last claim on this URI ends
    #[arg(long, value_name = "URI", conflicts_with_all = ["channel", "label", "mention", "prefix"])]
    pub(crate) on_free: Option<Uri>,
    /// Claim (lock) this URI while the command runs; do not fire if somebody else has claimed the
    /// URI
    #[arg(long, value_name = "URI")]
    pub(crate) claim: Option<Uri>,
    /// Release the URI of --claim after this time at the latest, such as 5m
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, requires = "claim")]
    pub(crate) ttl: Option<u64>,
    /// Do not fire again within this time, such as 30s
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    pub(crate) cooldown: Option<u64>,
    /// Order among hooks that match the same message, 0 to 9: a lower number runs first
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<u8>,
    /// Fire only if the message also has this label
    #[arg(long, value_name = "LABEL")]
    pub(crate) require_label: Option<Label>,
    /// Agent in whose name the command runs; messages of this agent do not fire the hook
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) agent: Option<AgentName>,
    /// Directory in which the command runs (default: the current directory)
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Time after which a command that still runs is killed
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "10m")]
    pub(crate) max_time: u64,
    /// Restriction of the command's access to files and network: strict, workspace or off
    #[arg(long, value_name = "LEVEL", default_value = "off", value_parser = parse_sandbox_level)]
    pub(crate) sandbox: regatta_core::agent::SandboxLevel,
    /// Instead of running a command, pass each message to the router, which carries out requests
    /// such as !mission
    #[arg(long, conflicts_with = "command")]
    pub(crate) route: bool,
    /// Command to run, with its arguments
    #[arg(last = true, required_unless_present = "route")]
    pub(crate) command: Vec<String>,
}

fn parse_sandbox_level(text: &str) -> Result<regatta_core::agent::SandboxLevel, String> {
    use regatta_core::agent::SandboxLevel;
    match text {
        "strict" => Ok(SandboxLevel::Strict),
        "workspace" => Ok(SandboxLevel::Workspace),
        "off" => Ok(SandboxLevel::Off),
        _ => Err("write strict, workspace or off".into()),
    }
}

/// Runs `regatta hook`.
pub(crate) fn hook(app: &CommandContext, command: HookCommand) -> CommandResult {
    match command {
        HookCommand::Add(request) => add_hook(app, *request),
        HookCommand::List => {
            let reply: CallReply<Vec<HookView>> = app.call(call::HookList(input::EmptyInput {}))?;
            let none = ["regatta hook add --channel shop -- ./answer.sh".to_owned()];
            let next: &[String] = if reply.data.is_empty() { &none } else { &[] };
            app.output
                .print_answer("hook.list", &reply.data, next, |_| draw_hooks(&reply.data))
        }
        HookCommand::Test {
            id,
            message,
            text,
            channel,
            labels,
            from,
        } => {
            let request = input::HookTest {
                hook: id,
                message,
                text,
                channel,
                labels,
                from,
            };
            let reply: CallReply<HookTestView> = app.call(call::HookTest(request))?;
            app.output.print_answer("hook.test", &reply.data, &[], |_| {
                let says = if reply.data.fires {
                    "fires"
                } else {
                    "does not fire"
                };
                format!("{id} {says}: {}\n", first_line(&reply.data.why))
            })
        }
        HookCommand::Pause { id, because } => {
            let reply: CallReply<HookView> = app.call(call::HookPause(input::HookPause {
                hook: id,
                reason: because,
            }))?;
            app.output.print_answer(
                "hook.pause",
                &reply.data,
                &[format!("regatta hook resume {id}")],
                |_| format!("{id} is paused\n"),
            )
        }
        HookCommand::Resume { id } => {
            let reply: CallReply<HookView> =
                app.call(call::HookResume(input::HookIdInput { hook: id }))?;
            app.output
                .print_answer("hook.resume", &reply.data, &[], |_| {
                    format!("{id} is resumed\n")
                })
        }
        HookCommand::Rm { id } => {
            let _done = app.call(call::HookRm(input::HookIdInput { hook: id }))?;
            app.output
                .print_answer("hook.rm", &serde_json::json!({ "hook": id }), &[], |_| {
                    format!("removed {id}\n")
                })
        }
        HookCommand::Log { id, before, limit } => {
            let reply: CallReply<Vec<Firing>> = app.call(call::HookLog(input::HookLog {
                hook: id,
                before,
                limit: Some(limit),
            }))?;
            app.output.print_answer("hook.log", &reply.data, &[], |_| {
                reply.data.iter().map(firing_text).collect()
            })
        }
    }
}

/// Runs `regatta hook add`.
fn add_hook(app: &CommandContext, args: HookAddArgs) -> CommandResult {
    let trigger = match (args.event, args.on_free) {
        (Some(kind), _) => HookTrigger::Event { kind },
        (None, Some(uri)) => HookTrigger::Free { uri },
        (None, None) => HookTrigger::Message {
            channel: args.channel,
            label: args.label,
            mention: args.mention,
            prefix: args.prefix,
        },
    };
    let action = if args.route {
        HookAction::Route
    } else {
        let here = app.working_dir()?;
        let cwd = args
            .cwd
            .map_or_else(|| here.clone(), |path| here.join(path));
        let absolute = cwd.canonicalize().map_err(|error| {
            usage_error(
                format!("cannot open the directory {}: {error}", cwd.display()),
                "name an existing directory with --cwd",
            )
        })?;
        HookAction::Run {
            argv: args.command,
            cwd: absolute.to_string_lossy().into_owned(),
        }
    };
    let when = HookConditions {
        claim: args.claim,
        ttl_ms: args.ttl,
        cooldown_ms: args.cooldown,
        require_label: args.require_label,
    };
    let client = app.client()?;
    let reply: CallReply<HookView> = client.call(call::HookAdd(input::HookAdd {
        project: app.project(&client)?,
        agent: args.agent,
        trigger,
        when,
        action,
        priority: args.priority,
        timeout_ms: Some(args.max_time),
        sandbox: Some(args.sandbox),
    }))?;
    let id = reply.data.hook.id;
    let next = [
        format!("regatta hook test {id} --text '…'"),
        format!("regatta hook log {id}"),
    ];
    app.output
        .print_answer("hook.add", &reply.data, &next, |_| {
            draw_hooks(std::slice::from_ref(&reply.data))
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
                "fired {}, last {}",
                plural::count(hook.fired_count, "time"),
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

/// Describes in words when a hook fires.
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

/// Describes in words what a hook does: runs a command, or passes messages to the router (which
/// carries out requests such as `!help`).
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

/// Describes one run of a hook, with the command's output.
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
