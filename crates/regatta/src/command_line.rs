//! Builds and parses the command line.
//!
//! `args` declares the commands and each command's file has its examples; this module combines both
//! for the parser clap. For an unknown command, the module suggests the one command that the person
//! probably meant. The module also splits a command line that is the value of a setting or an
//! option into words, like a shell.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, FromArgMatches};
use regatta_core::spelling::nearest;

use crate::args::Cli;
use crate::commands::EXAMPLES;
use crate::output::{CommandError, usage_error};

/// Commands that only Regatta itself runs, and that are left out of the help, the manual and the
/// completion.
pub(crate) const INTERNAL_COMMANDS: [&str; 6] = [
    "failpoints",
    "draw-frames",
    "scripted-agent",
    "gc-worker",
    "shim",
    "complete",
];

/// Returns clap's description of the whole command line, with the examples of each command.
pub(crate) fn clap_command() -> Command {
    with_examples(Cli::command(), "")
}

/// Names of other programs' commands that a person may type by mistake. Each group of names has a
/// suggestion, which is printed instead of the parser's own suggestion.
const COMMAND_SUGGESTIONS: [(&[&str], &str); 8] = [
    (
        &["cancel", "abort", "kill"],
        "to stop a task and keep its work: 'regatta stop T5'; to cancel it: 'regatta task cancel \
        T5'",
    ),
    (
        &["delete", "remove", "rm"],
        "'regatta task cancel T5', 'regatta agent rm NAME' or 'regatta project rm NAME'",
    ),
    (
        &["list", "ls", "ps", "tasks"],
        "'regatta status' shows open tasks, 'regatta task list --all' shows all",
    ),
    (&["agents"], "'regatta agent list'"),
    (&["projects"], "'regatta project list'"),
    (
        &["missions"],
        "'regatta status' shows running missions, 'regatta mission list' shows all",
    ),
    (
        &["log", "history"],
        "'regatta logs T5' prints the output of an agent, 'regatta events' prints all events",
    ),
    (
        &["start"],
        "'regatta up' starts the daemon, 'regatta run PLAN' starts a plan",
    ),
];

/// Parses the arguments of the process. The first argument is the program's name.
pub(crate) fn parse_args(typed: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = clap_command();
    let matches = command
        .try_get_matches_from_mut(typed)
        .map_err(|error| suggest_one(error, &command, typed))?;
    Cli::from_arg_matches(&matches)
}

/// Reduces the parser's suggestions for an unknown command to one, because the parser lists every
/// command with a similar name.
fn suggest_one(mut error: clap::Error, command: &Command, typed: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand).cloned()
    else {
        return error;
    };
    let mut before = typed
        .iter()
        .take_while(|arg| arg.as_os_str() != word.as_str());
    let is_command = !before.any(|arg| command.find_subcommand(arg).is_some());
    let Some((_, instead)) = COMMAND_SUGGESTIONS
        .iter()
        .find(|(words, _)| is_command && words.contains(&word.as_str()))
    else {
        let Some(ContextValue::Strings(similar)) =
            error.get(ContextKind::SuggestedSubcommand).cloned()
        else {
            return error;
        };
        let similar: Vec<&str> = similar.iter().map(String::as_str).collect();
        let best = nearest(&word, &similar).map(|best| vec![best.to_owned()]);
        error.insert(
            ContextKind::SuggestedSubcommand,
            ContextValue::Strings(best.unwrap_or_default()),
        );
        return error;
    };
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(
        ContextKind::Suggested,
        ContextValue::StyledStrs(vec![(*instead).into()]),
    );
    error
}

/// Returns clap's description of the command line without internal commands, for the manual and the
/// completion scripts.
pub(crate) fn public_clap_command() -> Command {
    let full_command = clap_command();
    let global_args = full_command
        .get_arguments()
        .cloned()
        .map(|arg| arg.hide(false));
    let commands = full_command
        .get_subcommands()
        .filter(|subcommand| !INTERNAL_COMMANDS.contains(&subcommand.get_name()))
        .cloned();
    let public = Command::default()
        .name("regatta")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true);
    public
        .about("Runs a team of coding agents on one git repository and lands their work")
        .args(global_args)
        .subcommands(commands)
}

/// Adds the examples to the help of a command and of its subcommands.
fn with_examples(command: Command, path: &str) -> Command {
    // Accept negative numbers as values. Otherwise the parser would report the `-1` in `--priority
    // -1` as an unknown option and not as a wrong number.
    let mut command = command.mut_args(|arg| {
        let takes_value = arg.get_action().takes_values() && !arg.is_positional();
        if takes_value {
            arg.allow_negative_numbers(true)
        } else {
            arg
        }
    });
    let names: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_owned())
        .collect();
    for name in names {
        let below = if path.is_empty() {
            name.clone()
        } else {
            format!("{path} {name}")
        };
        command = command.mut_subcommand(name, |inner| with_examples(inner, &below));
    }
    match EXAMPLES
        .iter()
        .copied()
        .flatten()
        .find(|(of, _)| *of == path)
    {
        Some((_, examples)) => {
            command.after_help(format!("Examples:\n  {}", examples.join("\n  ")))
        }
        None => command,
    }
}

/// Splits a command line into words like a shell. Quotes and backslashes work; `$VARIABLES` and
/// patterns such as `*` are not expanded.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::HELP;

    /// Collects the paths of all commands that can run, without internal commands and mere groups
    /// of commands.
    fn collect_paths(command: &Command, path: &str, found: &mut Vec<String>) {
        for below in command
            .get_subcommands()
            .filter(|below| !INTERNAL_COMMANDS.contains(&below.get_name()))
        {
            let name = below.get_name();
            let inner = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path} {name}")
            };
            if !below.is_subcommand_required_set() {
                found.push(inner.clone());
            }
            collect_paths(below, &inner, found);
        }
    }

    #[test]
    fn every_command_has_an_example_and_every_example_has_a_command() {
        let mut commands = Vec::new();
        collect_paths(&Cli::command(), "", &mut commands);
        for path in &commands {
            assert!(
                EXAMPLES.iter().copied().flatten().any(|(of, _)| of == path),
                "regatta {path} --help has no example"
            );
        }
        for (path, _) in EXAMPLES.iter().copied().flatten() {
            assert!(
                commands.iter().any(|known| known == path),
                "there is no command regatta {path}"
            );
        }
    }

    /// Every example can be parsed, and is an example of the command that prints it.
    #[test]
    fn every_example_can_be_parsed() {
        for (path, examples) in EXAMPLES.iter().copied().flatten() {
            assert!(!examples.is_empty(), "{path}");
            for example in *examples {
                let typed = example
                    .split(" | ")
                    .next()
                    .and_then(|line| line.split(" > ").next())
                    .unwrap();
                let words = split_command_line(typed).unwrap();
                assert!(
                    typed.starts_with(&format!("regatta {path}")),
                    "{example} is not an example of {path}"
                );
                let parsed = parse_args(&words.into_iter().map(OsString::from).collect::<Vec<_>>());
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
        }
    }

    fn parse_error(line: &str) -> String {
        parse_args(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
            .expect_err(line)
            .to_string()
    }

    #[test]
    fn an_unknown_command_suggests_one_command() {
        let error = parse_error("regatta stauts");
        assert!(
            error.contains("a similar subcommand exists: 'status'"),
            "{error}"
        );
        let error = parse_error("regatta -C x cancel T5");
        assert!(
            error.contains("tip: to stop a task and keep its work: 'regatta stop T5'"),
            "{error}"
        );
        let error = parse_error("regatta project lst");
        assert!(
            error.contains("a similar subcommand exists: 'list'"),
            "{error}"
        );
        let error = parse_error("regatta xyzzy");
        assert!(!error.contains("tip"), "{error}");
    }

    /// Every command line in a suggestion for another program's name can be parsed.
    #[test]
    fn suggestions_for_names_of_other_programs_can_be_parsed() {
        for (words, instead) in COMMAND_SUGGESTIONS {
            for word in words {
                assert!(
                    Cli::command().find_subcommand(word).is_none(),
                    "{word} is a command"
                );
            }
            for line in instead.split('\'').skip(1).step_by(2) {
                let typed: Vec<OsString> = line.split(' ').map(OsString::from).collect();
                assert!(
                    parse_args(&typed).is_ok(),
                    "{line}: {}",
                    parse_args(&typed).expect_err(line)
                );
            }
        }
    }

    #[test]
    fn a_negative_number_is_reported_as_an_invalid_value() {
        for line in [
            "regatta add x --priority -1",
            "regatta budget set day --usd -5",
            "regatta run p --budget -1",
        ] {
            let error = parse_error(line);
            assert!(error.contains("invalid value '-"), "{error}");
        }
    }

    #[test]
    fn help_prints_the_examples() {
        let mut command = clap_command();
        let help = command
            .find_subcommand_mut("land")
            .unwrap()
            .render_help()
            .to_string();
        assert!(
            help.contains("Examples:\n  regatta land T7 --wait\n"),
            "{help}"
        );
    }

    /// `regatta --help` names every command that people can use, and no internal command.
    #[test]
    fn the_help_names_every_command() {
        let words: Vec<&str> = HELP
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .collect();
        for below in Cli::command().get_subcommands() {
            let (name, internal) = (
                below.get_name(),
                INTERNAL_COMMANDS.contains(&below.get_name()),
            );
            assert_eq!(words.contains(&name), !internal, "{name}");
        }
        assert!(
            public_clap_command()
                .get_subcommands()
                .all(|below| !INTERNAL_COMMANDS.contains(&below.get_name()))
        );
    }

    #[test]
    fn command_lines_are_split_like_in_a_shell() {
        assert_eq!(
            split_command_line(r#"a 'b c' "d \"e" f\ g '' "#).unwrap(),
            ["a", "b c", "d \"e", "f g", ""]
        );
        assert!(split_command_line("a 'b").is_err());
    }
}
