//! The command `config`, which shows all settings, and changes the limits of the running daemon.

use clap::Subcommand;
use regatta_api::{call, input};
use regatta_core::limits::MachineLimits;
use regatta_core::project::Millis;

use crate::client::Client;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult, format_table, usage_error};
use crate::settings::{self, ResolvedSetting};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    ("config show", &["regatta config show --origin"]),
    ("config set", &["regatta config set max_attempts 8"]),
];

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every setting
    Show {
        /// Also print the source of each value: a file, the environment or the default
        #[arg(long)]
        origin: bool,
    },
    /// Change a setting of the running daemon
    Set {
        /// Name of the setting, such as max_attempts
        name: String,
        /// New value, such as 8 or 15m
        value: String,
    },
}

impl ConfigCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, ConfigCommand::Show { .. })
    }
}

/// Runs `regatta config`.
pub(crate) fn config(app: &CommandContext, command: ConfigCommand) -> CommandResult {
    match command {
        ConfigCommand::Show { origin } => {
            let mut settings = settings::resolve_all(&app.working_dir()?)?;
            if let Some(limits) = running_limits(app)? {
                replace_limits(&mut settings, &limits);
            }
            app.output.print_answer("config.show", &settings, &[], |_| {
                let rows: Vec<Vec<String>> = settings
                    .iter()
                    .map(|resolved_setting| {
                        let mut row = vec![
                            resolved_setting.name.to_owned(),
                            resolved_setting.value.clone(),
                        ];
                        row.extend(origin.then(|| resolved_setting.origin.clone()));
                        row
                    })
                    .collect();
                format_table(&rows)
            })
        }
        ConfigCommand::Set { name, value } => {
            let plain = name.strip_prefix(LIMIT_PREFIX).unwrap_or(&name).to_owned();
            let limits = parse_limit(&name, &value)?;
            let _done = app.call(call::LimitsSet(limits))?;
            let typed = value.parse::<u64>().map_or_else(
                |_| serde_json::json!(value),
                |parse| serde_json::json!(parse),
            );
            app.output.print_answer(
                "config.set",
                &serde_json::json!({ &plain: typed }),
                &[],
                |_| format!("{LIMIT_PREFIX}{plain} is now {value}\n"),
            )
        }
    }
}

/// The start of the names of limits in `config show`. `config set` accepts the names with and
/// without it.
const LIMIT_PREFIX: &str = "daemon.";

/// Returns the limits of the running daemon, or `None` if no daemon runs. Never starts a daemon.
fn running_limits(app: &CommandContext) -> Result<Option<MachineLimits>, CommandError> {
    let show = call::LimitsShow(input::EmptyInput {});
    if app.global.server.is_some() {
        return Ok(Some(app.call(show)?.data));
    }
    let Some(client) = Client::find(&app.data_dir()?, app.timeout())? else {
        return Ok(None);
    };
    Ok(client.call_while_up(show)?.map(|reply| reply.data))
}

/// Replaces the values that settings files give to limits by the values of the running daemon, and
/// adds the limits that only `config set` changes.
fn replace_limits(settings: &mut Vec<ResolvedSetting>, limits: &MachineLimits) {
    for (name, value) in limit_values(limits) {
        let name = format!("{LIMIT_PREFIX}{name}");
        let origin = "the running daemon".to_owned();
        let known = settings.iter_mut().find(|setting| setting.name == name);
        match known {
            Some(setting) if setting.value == value => {}
            Some(setting) => (setting.value, setting.origin) = (value, origin),
            None => settings.push(ResolvedSetting {
                name,
                value,
                origin,
            }),
        }
    }
}

/// Returns each limit that `config set` can change, with its value as `config set` accepts it.
pub(crate) fn limit_values(limits: &MachineLimits) -> [(&'static str, String); 11] {
    let time = |ms| Millis::new(ms).to_string();
    [
        ("max_attempts", limits.max_attempts.to_string()),
        ("attempt_timeout", time(limits.attempt_timeout_ms)),
        ("lead_timeout", time(limits.lead_timeout_ms)),
        ("startup", time(limits.startup_ms)),
        ("silence", time(limits.silence_ms)),
        ("escalate", time(limits.escalate_ms)),
        ("retry", time(limits.retry_delay_ms)),
        ("retry_most", time(limits.max_retry_delay_ms)),
        ("shutdown_timeout", time(limits.shutdown_ms)),
        ("attempt_memory", limits.attempt_memory_mb.to_string()),
        ("attempt_disk", limits.attempt_disk_mb.to_string()),
    ]
}

/// Parses the name and value of `config set` into a request that changes this limit of the running
/// daemon.
fn parse_limit(name: &str, value: &str) -> Result<input::LimitsSet, CommandError> {
    let none = input::LimitsSet::default();
    let bad = |_| {
        usage_error(
            format!("{value:?} is not a number"),
            "write a number, such as 8",
        )
    };
    let limit = name.strip_prefix(LIMIT_PREFIX).unwrap_or(name);
    match limit {
        "max_attempts" => {
            return Ok(input::LimitsSet {
                max_attempts: Some(value.parse().map_err(bad)?),
                ..none
            });
        }
        "attempt_memory" => {
            return Ok(input::LimitsSet {
                attempt_memory_mb: Some(value.parse().map_err(bad)?),
                ..none
            });
        }
        "attempt_disk" => {
            return Ok(input::LimitsSet {
                attempt_disk_mb: Some(value.parse().map_err(bad)?),
                ..none
            });
        }
        _ => {}
    }
    let time = || {
        settings::duration_ms(value).map(Some).map_err(|message| {
            usage_error(message, "write the value as a time, such as 30s or 15m")
        })
    };
    Ok(match limit {
        "attempt_timeout" => input::LimitsSet {
            attempt_timeout_ms: time()?,
            ..none
        },
        "lead_timeout" => input::LimitsSet {
            lead_timeout_ms: time()?,
            ..none
        },
        "startup" => input::LimitsSet {
            startup_ms: time()?,
            ..none
        },
        "silence" => input::LimitsSet {
            silence_ms: time()?,
            ..none
        },
        "escalate" => input::LimitsSet {
            escalate_ms: time()?,
            ..none
        },
        "retry" => input::LimitsSet {
            retry_ms: time()?,
            ..none
        },
        "retry_most" => input::LimitsSet {
            retry_most_ms: time()?,
            ..none
        },
        "shutdown_timeout" => input::LimitsSet {
            shutdown_ms: time()?,
            ..none
        },
        _ if settings::is_file_setting(name) => {
            let (table, key) = name.split_once('.').unwrap_or((name, "…"));
            let file = if settings::FileKind::Repository.has_setting(name) {
                "regatta.toml"
            } else {
                "~/.config/regatta/config.toml"
            };
            return Err(usage_error(
                format!("{name} can only be set in a file, not in the running daemon"),
                format!(
                    "write {key} = … under [{table}] in {file}; docs/settings.md has all values"
                ),
            ));
        }
        _ => {
            return Err(usage_error(
                format!("{name} is not a setting of the running daemon"),
                "use max_attempts, attempt_memory or attempt_disk (in MiB), attempt_timeout, \
                 lead_timeout, startup, silence, escalate, retry, retry_most or shutdown_timeout; \
                 other settings are in regatta.toml and ~/.config/regatta/config.toml",
            ));
        }
    })
}
