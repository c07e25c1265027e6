//! The commands `config` and `project`.

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::ProjectView;

use crate::args::{ConfigWord, ProjectWord};
use crate::client::Got;
use crate::out::{Failed, Said, table, usage};
use crate::settings;

use super::App;

/// Splits a command line into words like a shell. It knows quotes and backslashes, but no variables
/// or patterns.
pub(crate) fn words_of(line: &str) -> Result<Vec<String>, Failed> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(it) = characters.next() {
        match (quote, it) {
            (Some(open), it) if it == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(it);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, it) if it.is_whitespace() => words.extend(word.take()),
            (_, it) => word.get_or_insert_default().push(it),
        }
    }
    if quote.is_some() {
        return Err(usage(format!("{line:?} has an unclosed quote"), "add the closing quote"));
    }
    words.extend(word);
    Ok(words)
}

/// Runs `regatta config`.
pub(super) fn config(app: &App, word: ConfigWord) -> Said {
    match word {
        ConfigWord::Show { origin } => {
            let settings = settings::all(&app.here()?)?;
            app.out.answer("config.show", &settings, &[], |_| {
                let rows: Vec<Vec<String>> = settings
                    .iter()
                    .map(|it| {
                        let mut row = vec![it.name.to_owned(), it.value.clone()];
                        row.extend(origin.then(|| it.origin.clone()));
                        row
                    })
                    .collect();
                table(&rows)
            })
        }
        ConfigWord::Set { name, value } => {
            let plain = name.strip_prefix("daemon.").unwrap_or(&name).to_owned();
            let limits = limit(&plain, &value)?;
            let _done: Got<String> = app.call(&Call::LimitsSet(limits))?;
            let typed = value.parse::<u64>().map_or_else(|_| serde_json::json!(value), |it| serde_json::json!(it));
            app.out.answer("config.set", &serde_json::json!({ &plain: typed }), &[], |_| {
                format!("{plain} is now {value}\n")
            })
        }
    }
}

/// Parses one limit of the running daemon.
fn limit(name: &str, value: &str) -> Result<input::Limits, Failed> {
    let none = input::Limits::default();
    let bad = |_| usage(format!("{value:?} is not a number"), "write a number, such as 8");
    match name {
        "max_attempts" => return Ok(input::Limits { max_attempts: Some(value.parse().map_err(bad)?), ..none }),
        "attempt_memory" => return Ok(input::Limits { attempt_memory_mb: Some(value.parse().map_err(bad)?), ..none }),
        "attempt_disk" => return Ok(input::Limits { attempt_disk_mb: Some(value.parse().map_err(bad)?), ..none }),
        _ => {}
    }
    let time = || settings::duration_ms(value).map(Some).map_err(|it| usage(it, "write a time, such as 30s or 15m"));
    Ok(match name {
        "attempt_timeout" => input::Limits { attempt_timeout_ms: time()?, ..none },
        "lead_timeout" => input::Limits { lead_timeout_ms: time()?, ..none },
        "startup" => input::Limits { startup_ms: time()?, ..none },
        "silence" => input::Limits { silence_ms: time()?, ..none },
        "escalate" => input::Limits { escalate_ms: time()?, ..none },
        "retry" => input::Limits { retry_ms: time()?, ..none },
        "retry_most" => input::Limits { retry_most_ms: time()?, ..none },
        "shutdown_timeout" => input::Limits { shutdown_ms: time()?, ..none },
        _ if settings::is_of_files(name) => {
            let (table, key) = name.split_once('.').unwrap_or((name, "…"));
            return Err(usage(
                format!("{name} is set in a file, not in the running daemon"),
                format!("write {key} = … under [{table}] in regatta.toml; docs/settings.md has all values"),
            ));
        }
        _ => {
            return Err(usage(
                format!("{name} is not a setting of the running daemon"),
                "use max_attempts, attempt_memory or attempt_disk (in MiB), attempt_timeout, lead_timeout, startup, silence, escalate, retry, retry_most or shutdown_timeout; \
                 other settings are in regatta.toml and ~/.config/regatta/config.toml",
            ));
        }
    })
}

/// Runs `regatta project`.
pub(super) fn project(app: &App, word: &ProjectWord) -> Said {
    if let ProjectWord::Rm { name } = word {
        let _done: Got<String> = app.call(&Call::ProjectRm(input::ProjectRm { name: name.clone() }))?;
        let next = ["regatta init".to_owned()];
        return app
            .out
            .answer("project.rm", name, &next, |_| format!("removed {name}; its repository and history are kept\n"));
    }
    let got: Got<Vec<ProjectView>> = app.call(&Call::ProjectList(input::Nothing {}))?;
    let next = if got.data.is_empty() { vec!["regatta init".into()] } else { vec![] };
    app.out.answer("project.list", &got.data, &next, |_| {
        if got.data.is_empty() {
            return "no projects yet\n".into();
        }
        let mut rows = vec![["NAME", "TRUNK", "TIP", "OPEN", "QUEUE", "PATH"].map(String::from).to_vec()];
        for it in &got.data {
            let tip = it.tip.as_ref().map_or("-".into(), |it| it.as_str()[..10].to_owned());
            rows.push(vec![
                it.name.to_string(),
                it.trunk.clone(),
                tip,
                it.open_tasks.to_string(),
                it.queue.to_string(),
                it.path.clone(),
            ]);
        }
        table(&rows)
    })
}

#[cfg(test)]
mod tests {
    use super::words_of;

    #[test]
    fn command_lines_are_split_like_in_a_shell() {
        assert_eq!(words_of(r#"a 'b c' "d \"e" f\ g '' "#).unwrap(), ["a", "b c", "d \"e", "f g", ""]);
        assert!(words_of("a 'b").is_err());
    }
}
