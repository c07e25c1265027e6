//! Set up: `agent`, `config`, `project`.

use regatta_api::Call;
use regatta_api::input::{self, RuntimeName};
use regatta_api::view::{AgentView, ProjectView};
use regatta_core::agent::{Role, Runtime};

use crate::args::{AgentWord, ConfigWord, ProjectWord, RuntimeArg};
use crate::client::Got;
use crate::out::{Failed, Said, failed, plain, table, usage};
use crate::settings;

use super::App;

pub(super) fn agent(app: &App, word: AgentWord) -> Said {
    match word {
        AgentWord::Add { name, runtime, max_tasks, command, provider, description } => {
            let (runtime, command) = match (runtime, command) {
                (RuntimeArg::Scripted, None) => (RuntimeName::Scripted, vec![]),
                (RuntimeArg::Outside, None) => (RuntimeName::Outside, vec![]),
                (RuntimeArg::Command, Some(line)) => (RuntimeName::Command, words_of(&line)?),
                (RuntimeArg::Command, None) => {
                    return Err(usage(
                        "the command runtime needs a command",
                        "give one: --command 'my-agent --print {prompt}'",
                    ));
                }
                (RuntimeArg::Acp | RuntimeArg::Claude | RuntimeArg::Codex, _) => {
                    return Err(failed(
                        "not_yet",
                        "this version cannot drive that runtime yet",
                        "use --runtime command with the program's headless mode: --command 'claude -p {prompt}'",
                    ));
                }
                (_, Some(_)) => {
                    return Err(usage(
                        "--command goes with --runtime command",
                        "leave it out, or choose --runtime command",
                    ));
                }
            };
            let add = input::AgentAdd { name, runtime, command, role: Role::Worker, provider, description, max_tasks };
            let got: Got<AgentView> = app.call(&Call::AgentAdd(add))?;
            app.out.answer("agent.add", &got.data, &["regatta run PLAN.toml".into()], |out| {
                draw(out, std::slice::from_ref(&got.data))
            })
        }
        AgentWord::List => {
            let got: Got<Vec<AgentView>> = app.call(&Call::AgentList(input::Nothing {}))?;
            let next =
                if got.data.is_empty() { vec!["regatta agent add scripted --runtime scripted".into()] } else { vec![] };
            app.out.answer("agent.list", &got.data, &next, |out| {
                if got.data.is_empty() { "no agents yet\n".into() } else { draw(out, &got.data) }
            })
        }
        AgentWord::Show { name } => {
            let got: Got<AgentView> = app.call(&Call::Show(input::Id { id: name.to_string() }))?;
            app.out.answer("agent.show", &got.data, &[], |out| draw(out, std::slice::from_ref(&got.data)))
        }
        AgentWord::Rm { name } => {
            let _done: Got<String> = app.call(&Call::AgentRm(input::Name { name: name.clone() }))?;
            app.out.answer("agent.rm", &name, &[], |_| format!("removed {name}\n"))
        }
    }
}

/// Draws agents as a table.
pub(super) fn draw(out: &crate::out::Out, agents: &[AgentView]) -> String {
    let mut rows = vec![["NAME", "RUNTIME", "SLOTS", "STATE", "TASKS"].map(String::from).to_vec()];
    for it in agents {
        let runtime = match &it.agent.runtime {
            Runtime::Command { argv } => format!("command {}", plain(&argv.join(" "))),
            other => other.name().to_owned(),
        };
        let tasks: Vec<String> = it.tasks.iter().map(ToString::to_string).collect();
        rows.push(vec![
            it.agent.name.to_string(),
            runtime,
            format!("{}/{}", it.capacity.current, it.capacity.max),
            out.state(&it.state),
            tasks.join(" "),
        ]);
    }
    table(&rows)
}

/// Splits a command line into words, as a shell would: quotes and backslashes, nothing else.
fn words_of(line: &str) -> Result<Vec<String>, Failed> {
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
        return Err(usage(format!("{line:?} has a quote without its partner"), "close it"));
    }
    words.extend(word);
    Ok(words)
}

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
            if !matches!(name.as_str(), "max_attempts" | "daemon.max_attempts") {
                return Err(usage(
                    format!("{name} is not a setting of the running daemon"),
                    "max_attempts is; the others are in regatta.toml and ~/.config/regatta/config.toml",
                ));
            }
            let max_attempts =
                value.parse().map_err(|_| usage(format!("{value:?} is not a number"), "give one, such as 8"))?;
            let _done: Got<String> = app.call(&Call::LimitsSet(input::Limits {
                max_attempts: Some(max_attempts),
                ..input::Limits::default()
            }))?;
            app.out.answer("config.set", &serde_json::json!({ "max_attempts": max_attempts }), &[], |_| {
                format!("max_attempts is {max_attempts} now\n")
            })
        }
    }
}

pub(super) fn project(app: &App, word: &ProjectWord) -> Said {
    let ProjectWord::List = word;
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
    fn command_lines_are_split_as_a_shell_does() {
        assert_eq!(words_of(r#"a 'b c' "d \"e" f\ g '' "#).unwrap(), ["a", "b c", "d \"e", "f g", ""]);
        assert!(words_of("a 'b").is_err());
    }
}
