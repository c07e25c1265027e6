//! Runs the commands of hooks (rules that react to a message or an event). Each time a hook fires,
//! its command runs once.
//!
//! `regatta_core::hook` decides which message or event fires which hook.

use std::path::PathBuf;
use std::time::Duration;

use regatta_core::agent::SandboxLevel;
use regatta_core::command::Report;
use regatta_core::effect::EffectKey;
use regatta_core::hook::{Firing, FiringCause, FiringEnd};
use regatta_core::ids::FiringId;

use crate::ports::agents::{AgentError, CheckCommand, CheckResult, CommandSandbox, Exit};
use crate::running_commands::CommandOwner;
use crate::{Engine, failpoint};

use super::report_effect;

/// Runs the command of a hook (a rule that reacts to events) that fired. If a stored record says
/// that the command was already started for this firing, waits for the running command or reads how
/// the command ended.
pub(super) fn run_hook(engine: &Engine, key: EffectKey, id: FiringId) {
    failpoint::hit("hook.begin");
    let Some(firing) = engine.board().firings.get(&id).cloned() else {
        return report_effect(engine, key, Report::Performed);
    };
    let check = CheckCommand {
        command: shell_line(&firing.argv),
        dir: PathBuf::from(&firing.cwd),
        env: hook_env(engine, &firing),
        timeout: Duration::from_millis(firing.timeout_ms),
        once_name: Some(format!("hook-{key}")),
        sandbox: match (firing.sandbox, &firing.project) {
            (SandboxLevel::Off, _) | (_, None) => None,
            (level, Some(project)) => Some(CommandSandbox {
                project: project.clone(),
                level: Some(level),
                objects: None,
                hidden: vec![],
            }),
        },
    };
    // The command is added to the list of running commands before the engine checks whether it may
    // start. A shutdown first forbids new commands and then counts the running ones, so the
    // shutdown misses no command.
    let description = format!(
        "command `{}` of the hook {}",
        firing.argv.join(" "),
        firing.hook
    );
    let entry = engine
        .shared
        .commands
        .register(CommandOwner::Firing(id), &description);
    let is_wanted = || engine.can_start() && entry.is_wanted();
    // Check here whether the directory exists, because the process that runs the command would
    // report a missing directory only as a failed system call.
    let result = if check.dir.is_dir() {
        engine
            .shared
            .agents
            .run_check_while(&check, &is_wanted)
            .transpose()
    } else {
        Some(Err(missing_dir_error(&check.dir)))
    };
    // The command did not start, because the daemon is stopping. The effect stays stored, and the
    // next start of the daemon runs the command.
    let Some(result) = result else { return };
    failpoint::hit("hook.ran");
    let (ended, output, sandbox_description) = firing_end(result);
    let output = (engine.shared.settings.redactor.0)(&output);
    report_effect(
        engine,
        key,
        Report::HookEnded {
            firing: id,
            ended,
            output,
            sandbox_description,
        },
    );
    failpoint::hit("hook.recorded");
}

fn missing_dir_error(dir: &std::path::Path) -> AgentError {
    AgentError {
        message: format!("{} is not a directory", dir.display()),
        hint: "create it, or add the hook again with another --cwd".into(),
    }
}

fn firing_end(result: Result<CheckResult, AgentError>) -> (FiringEnd, String, Option<String>) {
    match result {
        Ok(result) if result.has_timed_out => (FiringEnd::TimedOut, result.output, result.sandbox),
        Ok(result) => {
            let ended = match result.exit {
                Exit::Code(code) => FiringEnd::Exited(code),
                Exit::Signal(signal) => FiringEnd::Signalled(signal),
                Exit::NotStarted(why) => FiringEnd::NotRun(why),
                Exit::Lost => FiringEnd::Lost,
            };
            (ended, result.output, result.sandbox)
        }
        Err(error) => (
            FiringEnd::NotRun(format!("{}; {}", error.message, error.hint)),
            String::new(),
            None,
        ),
    }
}

/// Returns a shell command line with exactly these arguments, each in quotes.
fn shell_line(argv: &[String]) -> String {
    let quoted = argv
        .iter()
        .map(|argument| format!("'{}'", argument.replace('\'', r"'\''")));
    format!("exec {}", quoted.collect::<Vec<_>>().join(" "))
}

/// Returns the environment variables for the command of a hook (a rule that reacts to events),
/// under Regatta's own names and under the older names that begin with `BOTBUS_` or `BOTBOX_`.
/// `BOTBUS_AGENT` is the sender of the message, as older scripts expect, and `REGATTA_AGENT` is the
/// agent in whose name the command acts.
fn hook_env(engine: &Engine, firing: &Firing) -> Vec<(String, String)> {
    let mut env: Vec<(&str, String)> = vec![
        ("REGATTA_HOOK_ID", firing.hook.to_string()),
        ("REGATTA_FIRING", firing.id.to_string()),
        ("REGATTA_AGENT", firing.agent.to_string()),
    ];
    if let Some(project) = &firing.project {
        env.extend([
            ("REGATTA_PROJECT", project.to_string()),
            ("BOTBOX_PROJECT", project.to_string()),
        ]);
    }
    match &firing.cause {
        FiringCause::Message {
            message,
            channel,
            sender,
        } => env.extend([
            ("REGATTA_CHANNEL", channel.to_string()),
            ("REGATTA_MESSAGE_ID", message.to_string()),
            ("REGATTA_SENDER", sender.to_string()),
            ("BOTBUS_CHANNEL", channel.to_string()),
            ("BOTBUS_MESSAGE_ID", message.to_string()),
            ("BOTBUS_AGENT", sender.to_string()),
        ]),
        FiringCause::Event { kind, subject } => {
            env.extend([
                ("REGATTA_EVENT", kind.clone()),
                ("REGATTA_SUBJECT", subject.clone()),
            ]);
        }
        FiringCause::Free { uri } => env.push(("REGATTA_FREE", uri.to_string())),
    }
    if let Some(grant) = firing.claim {
        env.extend([
            ("REGATTA_CLAIM", grant.claim.to_string()),
            ("REGATTA_CLAIM_TOKEN", grant.token.to_string()),
        ]);
    }
    // The server recognises the command by this access token, and so can count how many hooks
    // (rules that react to events) have fired each other in a chain.
    if let Some(tools) = &engine.shared.settings.tool_server {
        env.extend([
            ("REGATTA_SERVER", tools.url.clone()),
            (
                "REGATTA_TOKEN",
                (tools.mint_firing_token)(firing.id, firing.token),
            ),
        ]);
    }
    env.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S7: no argument of a command is split in two or becomes a separate command.
    #[test]
    fn s7_each_argument_stays_one_quoted_argument() {
        let arguments = ["a b", "it's", "$HOME; `x`", "", "-n"].map(str::to_owned);
        assert_eq!(
            shell_line(&arguments),
            r"exec 'a b' 'it'\''s' '$HOME; `x`' '' '-n'"
        );
    }
}
