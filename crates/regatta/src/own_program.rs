//! Printed commands that work in this shell.
//!
//! Messages name commands as `regatta status`. If the shell does not find this program under that
//! name, as after `cargo run`, the commands that are printed for a person start with the program's
//! path instead. Answers in JSON keep the short name, because programs read them.

use std::path::Path;
use std::sync::OnceLock;

use clap::CommandFactory;
use regatta_core::shell_quote::quote;

/// The name under which a shell usually finds this program.
const NAME: &str = "regatta";

/// Returns a `regatta` command as it works in any directory of this shell: with the absolute path of
/// this program if the shell does not find it.
pub(crate) fn absolute_command(command: &str) -> String {
    let own = std::env::current_exe().and_then(|path| path.canonicalize());
    match (own, command.strip_prefix("regatta ")) {
        (Ok(own), Some(rest)) if !is_found_by_shell(&own) => {
            format!("{} {rest}", quote(&own.to_string_lossy()))
        }
        _ => command.to_owned(),
    }
}

/// Returns the word that starts this program from the current directory, if that word is not
/// `regatta`: the program's path, relative to the current directory if the program is below it.
pub(crate) fn word_for_this_program() -> Option<&'static str> {
    static WORD: OnceLock<Option<String>> = OnceLock::new();
    WORD.get_or_init(|| {
        let own = std::env::current_exe().ok()?.canonicalize().ok()?;
        if is_found_by_shell(&own) {
            return None;
        }
        let here = std::env::current_dir().ok();
        Some(path_word(&own, here.as_deref()))
    })
    .as_deref()
}

fn is_found_by_shell(own: &Path) -> bool {
    crate::commands::upgrade::first_on_path().is_some_and(|first| first == own)
}

/// Returns the shell word for a program's path, as short as possible in the directory `here`.
fn path_word(own: &Path, here: Option<&Path>) -> String {
    let below = here.and_then(|here| own.strip_prefix(here).ok());
    match below {
        // Without a slash, the shell would search the PATH for the program.
        Some(below) if below.components().count() == 1 => quote(&format!("./{}", below.display())),
        Some(below) => quote(&below.to_string_lossy()),
        None => quote(&own.to_string_lossy()),
    }
}

/// Replaces `regatta` by `word` in the commands of a message. A command is the word `regatta` before
/// the name of a command, at the start of a word.
pub(crate) fn name_program(text: &str, word: &str) -> String {
    let mut named = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(NAME) {
        let (before, from) = rest.split_at(at);
        let after = &from[NAME.len()..];
        named += before;
        let starts_word = named
            .chars()
            .next_back()
            .is_none_or(|c| c.is_whitespace() || matches!(c, '(' | '`' | '\'' | '"'));
        let argument = after.strip_prefix(' ').unwrap_or_default();
        let argument = argument.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let is_command = starts_word && argument.take(1).any(is_command_or_option);
        named += if is_command { word } else { NAME };
        rest = after;
    }
    named + rest
}

/// Returns true if a word can follow `regatta`: the name of a command, or an option.
fn is_command_or_option(word: &str) -> bool {
    static COMMANDS: OnceLock<Vec<String>> = OnceLock::new();
    let commands = COMMANDS.get_or_init(|| {
        let command = crate::args::Cli::command();
        let names = command.get_subcommands().map(|below| below.get_name());
        names.map(str::to_owned).collect()
    });
    word.starts_with("--") || commands.iter().any(|known| known == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_messages_get_the_path_of_the_program_and_prose_stays() {
        let named = |text: &str| name_program(text, "target/debug/regatta");
        assert_eq!(named("regatta why T1"), "target/debug/regatta why T1");
        assert_eq!(
            named("see them: `regatta inbox` (regatta --help)"),
            "see them: `target/debug/regatta inbox` (target/debug/regatta --help)"
        );
        for prose in [
            "git add regatta.toml && git commit",
            "the command regatta starts another program",
            "/opt/bin/regatta up",
            "apt-get install regatta",
        ] {
            assert_eq!(named(prose), prose);
        }
    }

    #[test]
    fn the_path_is_as_short_as_the_directory_allows() {
        let own = Path::new("/home/ann/a b/target/debug/regatta");
        let word = |here: &str| path_word(own, Some(Path::new(here)));
        assert_eq!(word("/home/ann/a b"), "target/debug/regatta");
        assert_eq!(word("/home/ann/a b/target/debug"), "./regatta");
        assert_eq!(word("/tmp"), "'/home/ann/a b/target/debug/regatta'");
        assert_eq!(path_word(own, None), word("/tmp"));
    }
}
