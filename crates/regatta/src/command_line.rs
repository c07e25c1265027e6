//! The command line as a whole: what `args` declares, with an example for every command.

use std::ffi::OsString;

use clap::{Command, CommandFactory, FromArgMatches};

use crate::args::Cli;
use crate::examples::EXAMPLES;

/// Commands that Regatta runs itself. No help, manual or completion names them.
pub(crate) const INTERNAL: [&str; 5] = ["failpoints", "scripted-agent", "gc-worker", "shim", "complete"];

/// Returns the command line with its examples.
pub(crate) fn command() -> Command {
    with_examples(Cli::command(), "")
}

/// Parses what was typed.
pub(crate) fn parse(typed: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(typed)?)
}

/// Returns the command line without internal commands, for manuals and completion scripts.
pub(crate) fn public() -> Command {
    let whole = command();
    let global = whole.get_arguments().cloned().map(|arg| arg.hide(false));
    let commands = whole.get_subcommands().filter(|below| !INTERNAL.contains(&below.get_name())).cloned();
    let public = Command::default().name("regatta").version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    public
        .about("Runs a team of coding agents on one git repository and lands their work")
        .args(global)
        .subcommands(commands)
}

fn with_examples(mut command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    for name in names {
        let below = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
        command = command.mut_subcommand(name, |inner| with_examples(inner, &below));
    }
    match EXAMPLES.iter().find(|(of, _)| *of == path) {
        Some((_, examples)) => command.after_help(format!("Examples:\n  {}", examples.join("\n  "))),
        None => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::HELP;

    /// Returns the paths of all commands that do something, without internal ones.
    fn paths(command: &Command, path: &str, found: &mut Vec<String>) {
        for below in command.get_subcommands().filter(|below| !INTERNAL.contains(&below.get_name())) {
            let name = below.get_name();
            let inner = if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
            if !below.is_subcommand_required_set() {
                found.push(inner.clone());
            }
            paths(below, &inner, found);
        }
    }

    #[test]
    fn every_command_has_an_example_and_no_example_is_left_over() {
        let mut commands = Vec::new();
        paths(&Cli::command(), "", &mut commands);
        for path in &commands {
            assert!(EXAMPLES.iter().any(|(of, _)| of == path), "regatta {path} --help has no example");
        }
        for (path, _) in EXAMPLES {
            assert!(commands.iter().any(|known| known == path), "there is no command regatta {path}");
        }
    }

    /// Every example is one that this version can read, and one of the command that prints it.
    #[test]
    fn every_example_can_be_parsed() {
        for (path, examples) in EXAMPLES {
            assert!(!examples.is_empty(), "{path}");
            for example in *examples {
                let typed = example.split(" | ").next().and_then(|line| line.split(" > ").next()).unwrap();
                let words = crate::words::words_of(typed).unwrap();
                assert!(typed.starts_with(&format!("regatta {path}")), "{example} is no example of {path}");
                let parsed = parse(&words.into_iter().map(OsString::from).collect::<Vec<_>>());
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn help_prints_the_examples() {
        let mut command = command();
        let help = command.find_subcommand_mut("land").unwrap().render_help().to_string();
        assert!(help.contains("Examples:\n  regatta land T7 --wait\n"), "{help}");
    }

    /// `regatta --help` names every command that a person may type, and no internal one.
    #[test]
    fn the_help_names_every_command() {
        let words: Vec<&str> = HELP.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
        for below in Cli::command().get_subcommands() {
            let (name, internal) = (below.get_name(), INTERNAL.contains(&below.get_name()));
            assert_eq!(words.contains(&name), !internal, "{name}");
        }
        assert!(public().get_subcommands().all(|below| !INTERNAL.contains(&below.get_name())));
    }
}
