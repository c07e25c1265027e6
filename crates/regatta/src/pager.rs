//! Shows long answers in a pager, a program such as `less`.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::interrupt::Interrupts;

/// The environment variables that select the pager, in order of precedence. An empty value disables
/// the pager.
const PAGER_VARIABLES: [&str; 3] = ["REGATTA_PAGER", "GIT_PAGER", "PAGER"];
/// The options of `less`: exit at once if everything fits on one screen, ignore case, keep colours,
/// do not clear the screen.
const LESS_OPTIONS: &str = "FIRX";

/// Returns the pager's command line, or `None` if no pager is wanted or available.
pub(crate) fn choose_pager(
    env: impl Fn(&str) -> Option<OsString>,
    is_installed: impl Fn(&str) -> bool,
) -> Option<String> {
    let configured = PAGER_VARIABLES
        .iter()
        .find_map(|command| env(command))
        .map(|name| name.to_string_lossy().trim().to_owned());
    match configured {
        Some(command) if command.is_empty() || command == "cat" => None,
        Some(command) => Some(command),
        None => is_installed("less").then(|| format!("less -{LESS_OPTIONS}")),
    }
}

/// Returns true if a program of that name can be started.
pub(crate) fn is_installed(program: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let can_run = |path: &Path| {
        path.metadata()
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    let places = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&places).any(|path| can_run(&path.join(program)))
}

/// Shows a text in a pager, started with the command line `line`. Returns false if the pager could
/// not be started.
pub(crate) fn show_in_pager(line: &str, text: &str) -> bool {
    // The pager handles Ctrl-C itself. Without a handler here, Ctrl-C would end this process while
    // the pager still uses the terminal.
    let Ok(_deaf) = Interrupts::install() else {
        return false;
    };
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::piped());
    for (name, value) in [("LESS", LESS_OPTIONS), ("LV", "-c")] {
        if std::env::var_os(name).is_none() {
            command.env(name, value); // so that a pager without options shows colours too
        }
    }
    let Ok(mut pager) = command.spawn() else {
        return false;
    };
    if let Some(mut into) = pager.stdin.take() {
        // Ignore the error: the person may close the pager before the end of the text.
        let _left = into.write_all(text.as_bytes());
    }
    // The shell exits with 126 or 127 if it cannot start the pager. In that case nobody has seen
    // the text.
    pager
        .wait()
        .is_ok_and(|status| !matches!(status.code(), Some(126 | 127)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_wins_and_an_empty_one_disables_the_pager() {
        let with = |set: &[(&str, &str)], less: bool| {
            let set: Vec<(String, String)> = set
                .iter()
                .map(|pair| (pair.0.to_owned(), pair.1.to_owned()))
                .collect();
            let env = move |name: &str| {
                set.iter()
                    .find(|set| set.0 == name)
                    .map(|set| OsString::from(&set.1))
            };
            choose_pager(env, |s| less && s == "less")
        };
        for (set, less, expected) in [
            (&[][..], true, Some("less -FIRX")),
            (&[], false, None),
            (&[("PAGER", "more")], true, Some("more")),
            (
                &[("PAGER", "more"), ("GIT_PAGER", "delta")],
                true,
                Some("delta"),
            ),
            (
                &[
                    ("PAGER", "more"),
                    ("GIT_PAGER", "delta"),
                    ("REGATTA_PAGER", "less -S"),
                ],
                true,
                Some("less -S"),
            ),
            (&[("PAGER", "more"), ("REGATTA_PAGER", "")], true, None),
            (&[("PAGER", "cat")], true, None),
            (&[("PAGER", "more")], false, Some("more")),
        ] {
            assert_eq!(with(set, less).as_deref(), expected, "{set:?} {less}");
        }
    }

    #[test]
    fn a_pager_that_does_not_start_shows_nothing() {
        assert!(!show_in_pager(
            "no-such-pager-anywhere 2> /dev/null",
            "text"
        ));
        assert!(
            show_in_pager("true", &"more than a pipe holds\n".repeat(100_000)),
            "a pager that is closed early is not an error"
        );
        assert!(is_installed("sh") && !is_installed("no-such-program-anywhere"));
    }
}
