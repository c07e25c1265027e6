//! Long answers, page by page: whose program shows them, and when none does.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::interrupt::Interrupts;

/// What says which program it is, most particular first. One that is set to nothing says: none.
const NAMES: [&str; 3] = ["REGATTA_PAGER", "GIT_PAGER", "PAGER"];
/// Leaves at once where all fits on one screen, ignores case, passes colours on and leaves the screen as it is.
const LESS: &str = "FIRX";

/// The command line that shows pages, or nothing where nobody wants pages or nothing can show them.
pub(crate) fn chosen(env: impl Fn(&str) -> Option<OsString>, is_here: impl Fn(&str) -> bool) -> Option<String> {
    let said = NAMES.iter().find_map(|it| env(it)).map(|it| it.to_string_lossy().trim().to_owned());
    match said {
        Some(it) if it.is_empty() || it == "cat" => None,
        Some(it) => Some(it),
        None => is_here("less").then(|| format!("less -{LESS}")),
    }
}

/// Whether a program of that name can be started.
pub(crate) fn is_here(program: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let can_run = |it: &Path| it.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
    let places = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&places).any(|it| can_run(&it.join(program)))
}

/// Shows a text; whether it was shown. What cannot be started has shown nothing.
pub(crate) fn show(line: &str, text: &str) -> bool {
    // A pager takes Ctrl-C as a wish of its reader's; it is not for us to end under its feet.
    let Ok(_deaf) = Interrupts::listen() else { return false };
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::piped());
    for (name, value) in [("LESS", LESS), ("LV", "-c")] {
        if std::env::var_os(name).is_none() {
            command.env(name, value); // a pager that is named without options still shows colours
        }
    }
    let Ok(mut pager) = command.spawn() else { return false };
    if let Some(mut into) = pager.stdin.take() {
        // Who has read enough leaves before the end.
        let _left = into.write_all(text.as_bytes());
    }
    // 126 and 127 are the shell's: it found nothing that it could start.
    pager.wait().is_ok_and(|it| !matches!(it.code(), Some(126 | 127)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_particular_name_counts_and_nothing_is_a_choice_too() {
        let with = |set: &[(&str, &str)], less: bool| {
            let set: Vec<(String, String)> = set.iter().map(|it| (it.0.to_owned(), it.1.to_owned())).collect();
            let env = move |name: &str| set.iter().find(|it| it.0 == name).map(|it| OsString::from(&it.1));
            chosen(env, |it| less && it == "less")
        };
        for (set, less, wanted) in [
            (&[][..], true, Some("less -FIRX")),
            (&[], false, None),
            (&[("PAGER", "more")], true, Some("more")),
            (&[("PAGER", "more"), ("GIT_PAGER", "delta")], true, Some("delta")),
            (&[("PAGER", "more"), ("GIT_PAGER", "delta"), ("REGATTA_PAGER", "less -S")], true, Some("less -S")),
            (&[("PAGER", "more"), ("REGATTA_PAGER", "")], true, None),
            (&[("PAGER", "cat")], true, None),
            (&[("PAGER", "more")], false, Some("more")),
        ] {
            assert_eq!(with(set, less).as_deref(), wanted, "{set:?} {less}");
        }
    }

    #[test]
    fn what_cannot_be_started_has_shown_nothing() {
        assert!(!show("no-such-pager-anywhere 2> /dev/null", "text"));
        assert!(show("true", &"more than a pipe holds\n".repeat(100_000)), "who leaves early is no fault");
        assert!(is_here("sh") && !is_here("no-such-program-anywhere"));
    }
}
