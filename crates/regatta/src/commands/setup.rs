//! The commands `config` and `project`.

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::ProjectView;

use crate::args::{ConfigCommand, ProjectCommand};
use crate::client::CallReply;
use crate::output::{CommandError, CommandResult, format_table, usage_error};
use crate::settings;

use super::CommandContext;

/// Splits a command line into words like a shell. It knows quotes and backslashes, but no variables
/// or patterns.
pub(crate) fn split_command_line(line: &str) -> Result<Vec<String>, CommandError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(usage_error(
            format!("{line:?} has an unclosed quote"),
            "add the closing quote",
        ));
    }
    words.extend(word);
    Ok(words)
}

/// Runs `regatta config`.
pub(super) fn config(app: &CommandContext, word: ConfigCommand) -> CommandResult {
    match word {
        ConfigCommand::Show { origin } => {
            let settings = settings::resolve_all(&app.working_dir()?)?;
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
            let plain = name.strip_prefix("daemon.").unwrap_or(&name).to_owned();
            let limits = parse_limit(&plain, &value)?;
            let _done: CallReply<String> = app.call(&Call::LimitsSet(limits))?;
            let typed = value.parse::<u64>().map_or_else(
                |_| serde_json::json!(value),
                |parse| serde_json::json!(parse),
            );
            app.output.print_answer(
                "config.set",
                &serde_json::json!({ &plain: typed }),
                &[],
                |_| format!("{plain} is now {value}\n"),
            )
        }
    }
}

/// Parses one limit of the running daemon.
fn parse_limit(name: &str, value: &str) -> Result<input::LimitsSet, CommandError> {
    let none = input::LimitsSet::default();
    let bad = |_| {
        usage_error(
            format!("{value:?} is not a number"),
            "write a number, such as 8",
        )
    };
    match name {
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
        settings::duration_ms(value)
            .map(Some)
            .map_err(|duration_m| usage_error(duration_m, "write a time, such as 30s or 15m"))
    };
    Ok(match name {
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
            return Err(usage_error(
                format!("{name} is set in a file, not in the running daemon"),
                format!(
                    "write {key} = … under [{table}] in regatta.toml; docs/settings.md has all \
                    values"
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

/// Runs `regatta project`.
pub(super) fn project(app: &CommandContext, word: &ProjectCommand) -> CommandResult {
    if let ProjectCommand::Rm { name } = word {
        let _done: CallReply<String> = app.call(&Call::ProjectRm(input::ProjectNameInput {
            name: name.clone(),
        }))?;
        let next = ["regatta init".to_owned()];
        return app.output.print_answer("project.rm", name, &next, |_| {
            format!("removed {name}; its repository and history are kept\n")
        });
    }
    let got: CallReply<Vec<ProjectView>> = app.call(&Call::ProjectList(input::EmptyInput {}))?;
    let next = if got.data.is_empty() {
        vec!["regatta init".into()]
    } else {
        vec![]
    };
    app.output
        .print_answer("project.list", &got.data, &next, |_| {
            if got.data.is_empty() {
                return "no projects yet\n".into();
            }
            let mut rows = vec![
                ["NAME", "TRUNK", "TIP", "OPEN", "QUEUE", "PATH"]
                    .map(String::from)
                    .to_vec(),
            ];
            for project in &got.data {
                let tip = project
                    .tip
                    .as_ref()
                    .map_or("-".into(), |id| id.as_str()[..10].to_owned());
                rows.push(vec![
                    project.name.to_string(),
                    project.trunk.clone(),
                    tip,
                    project.open_tasks.to_string(),
                    project.queue.to_string(),
                    project.path.clone(),
                ]);
            }
            format_table(&rows)
        })
}

#[cfg(test)]
mod tests {
    use super::split_command_line;

    #[test]
    fn command_lines_are_split_like_in_a_shell() {
        assert_eq!(
            split_command_line(r#"a 'b c' "d \"e" f\ g '' "#).unwrap(),
            ["a", "b c", "d \"e", "f g", ""]
        );
        assert!(split_command_line("a 'b").is_err());
    }
}
