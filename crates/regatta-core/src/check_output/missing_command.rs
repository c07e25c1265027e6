//! Finds out from the end of a check whether the machine lacks a command that the check needs.

/// The exit code of a shell that found a command and could not execute it.
const NOT_EXECUTABLE: i32 = 126;

/// The exit code of a shell that did not find a command.
const NOT_FOUND: i32 = 127;

/// The ends of the lines with which shells and `env` report a command that they cannot run.
const SHELL_MESSAGES: [&str; 4] = [
    ": command not found",
    ": not found",
    ": No such file or directory",
    ": Permission denied",
];

/// Returns the command that the machine lacks, if a check of the command line `check` ended with
/// `exit_code` and `output` because of it.
///
/// A command that is named by a path in the checkout, such as `./test.sh`, belongs to the work, so
/// the agent can repair it. Then the result is `None`.
pub fn missing_command(check: &str, exit_code: i32, output: &str) -> Option<String> {
    if !matches!(exit_code, NOT_EXECUTABLE | NOT_FOUND) {
        return None;
    }
    let reported = output.lines().rev().find_map(reported_name);
    let name = reported.or_else(|| first_command(check))?;
    let is_in_checkout = name.contains('/') && !name.starts_with('/');
    (!is_in_checkout).then(|| name.to_owned())
}

/// Returns the name in a shell's message about a command, such as `sh: 1: pytest: not found`.
fn reported_name(line: &str) -> Option<&str> {
    let before = SHELL_MESSAGES
        .iter()
        .find_map(|message| line.trim_end().strip_suffix(message))?;
    let name = before.rsplit(": ").next()?;
    let name = name.trim_matches(|c| matches!(c, '\'' | '"' | '`' | '‘' | '’'));
    (!name.is_empty() && !name.contains(' ')).then_some(name)
}

/// Returns the command of a command line: the first word that is not an assignment of a variable,
/// such as `CI=1`.
fn first_command(check: &str) -> Option<&str> {
    check.split_whitespace().find(|word| !word.contains('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_the_machine_lacks_is_named() {
        let cases = [
            (
                "pytest -q",
                127,
                "sh: 1: pytest: not found\n",
                Some("pytest"),
            ),
            (
                "pytest -q",
                127,
                "bash: line 1: pytest: command not found",
                Some("pytest"),
            ),
            (
                "npm test",
                127,
                "> jest\n\nsh: 1: jest: not found\n",
                Some("jest"),
            ),
            (
                "env python -V",
                127,
                "env: ‘python’: No such file or directory",
                Some("python"),
            ),
            (
                "/opt/check",
                126,
                "sh: 1: /opt/check: Permission denied",
                Some("/opt/check"),
            ),
            ("CI=1 tox -e all", 127, "", Some("tox")),
            // The work contains these files, or lacks them by a fault of the agent.
            ("./test.sh", 127, "sh: 1: ./test.sh: not found", None),
            (
                "tests/run",
                126,
                "sh: 1: tests/run: Permission denied",
                None,
            ),
            ("./test.sh", 126, "", None),
            // Other exit codes report on the work.
            (
                "make test",
                2,
                "make: pytest: No such file or directory",
                None,
            ),
            ("pytest", 1, "sh: 1: pytest: not found", None),
        ];
        for (check, exit_code, output, expected) in cases {
            assert_eq!(
                missing_command(check, exit_code, output).as_deref(),
                expected,
                "{check} {exit_code} {output:?}"
            );
        }
    }
}
