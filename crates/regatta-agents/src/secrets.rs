//! Fetches an agent's secrets, such as API keys, from their sources when the agent's program
//! starts.
//!
//! A secret's value goes into the program's environment and into the redactor, which removes it
//! from recorded output, and nowhere else: not into a file, the database or an error.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use regatta_core::agent::{SecretSource, SecretVariable};
use regatta_engine::ports::agents::AgentError;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::process::poll_until;

/// The time that a command which prints a secret may take. The time is long because a person may
/// have to unlock a password store.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum length of a secret in bytes. If a command prints more, its output is not a secret.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// The values of the fetched secrets, and warnings about the sources of the secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ResolvedSecrets {
    /// For each secret, the name of the program's environment variable and the value of the secret.
    pub values: Vec<(String, String)>,
    /// Sentences about problems that a person should fix, such as a key file that others can read.
    pub warnings: Vec<String>,
}

impl std::fmt::Debug for ResolvedSecrets {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.values.iter().map(|(name, _)| name).collect();
        out.debug_struct("ResolvedSecrets")
            .field("names", &names)
            .field("warnings", &self.warnings)
            .finish()
    }
}

/// Fetches the value of every secret in `keys` from its source. `variable` reads a variable of the
/// daemon's environment.
pub fn fetch_secrets(
    keys: &[SecretVariable],
    variable: impl Fn(&str) -> Option<String>,
    home: &Path,
    timeout: Duration,
) -> Result<ResolvedSecrets, AgentError> {
    let mut found = ResolvedSecrets::default();
    for key in keys {
        let value = match &key.from {
            SecretSource::Env(name) => variable(name).ok_or_else(|| variable_not_set(key, name))?,
            SecretSource::File(path) => {
                read_from_file(key, &expand_home(path, home), &mut found.warnings)?
            }
            SecretSource::Command(line) => read_from_command(key, line, timeout)?,
        };
        let value = value.trim_end_matches(['\r', '\n']);
        if value.is_empty() {
            return Err(secret_error(
                key,
                format!("{source} is empty", source = describe_source(key)),
                "Put the key into this source, then start the agent again.",
            ));
        }
        if value.contains('\0') {
            return Err(secret_error(
                key,
                format!(
                    "{source} contains a NUL byte, which an environment variable cannot contain",
                    source = describe_source(key)
                ),
                "Store the key as plain text, then start the agent again.",
            ));
        }
        found.values.push((key.name.clone(), value.to_owned()));
    }
    Ok(found)
}

/// Replaces a leading `~` of a path by `home`.
pub fn expand_home(path: &str, home: &Path) -> PathBuf {
    match path.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with('/') => home.join(&rest[1..]),
        _ => PathBuf::from(path),
    }
}

fn set_variable_hint(name: &str) -> String {
    format!("Start the daemon with the variable: {name}=… regatta up --restart.")
}

/// Returns the error for a secret that should come from a variable of the daemon's environment
/// which is not set.
pub(crate) fn variable_not_set(key: &SecretVariable, name: &str) -> AgentError {
    secret_error(
        key,
        format!("the variable {name} is not set in the daemon's environment"),
        set_variable_hint(name),
    )
}

fn describe_source(key: &SecretVariable) -> String {
    match &key.from {
        SecretSource::Env(name) => format!("the variable {name}"),
        SecretSource::File(path) => format!("the file {path}"),
        SecretSource::Command(line) => format!("the command `{line}`"),
    }
}

fn secret_error(
    key: &SecretVariable,
    why: impl std::fmt::Display,
    hint: impl Into<String>,
) -> AgentError {
    AgentError {
        message: format!("{} could not be set for the program: {why}.", key.name),
        hint: hint.into(),
    }
}

fn read_from_file(
    key: &SecretVariable,
    path: &Path,
    warnings: &mut Vec<String>,
) -> Result<String, AgentError> {
    let read = || -> io::Result<(String, u32)> {
        let file = File::open(path)?;
        let mode = file.metadata()?.mode();
        let mut text = String::new();
        file.take(MAX_SECRET_BYTES).read_to_string(&mut text)?;
        Ok((text, mode))
    };
    let displayed_path = path.display();
    let (text, mode) = read().map_err(|error| {
        let hint = format!("Put the key into {displayed_path} and run: chmod 600 {displayed_path}");
        secret_error(
            key,
            format!("the file {displayed_path} could not be read: {error}"),
            hint,
        )
    })?;
    if mode & 0o077 != 0 {
        warnings.push(format!(
            "Other users can read {displayed_path}, the source of {}; run: \
            chmod 600 {displayed_path}",
            key.name
        ));
    }
    Ok(text)
}

/// Runs the user's command that prints the secret. The command runs with the daemon's complete
/// environment, because it may need the user's key agent or an unlocked password store.
fn read_from_command(
    key: &SecretVariable,
    line: &str,
    timeout: Duration,
) -> Result<String, AgentError> {
    let hint = format!("Run the command by hand to see the reason: {line}");
    let command_error = |reason: String| secret_error(key, reason, hint.clone());
    let mut child = Command::new("sh")
        .args(["-c", line])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Do not read the command's standard error, because it may contain the secret.
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| {
            command_error(format!(
                "the command `{line}` could not be started: {error}"
            ))
        })?;
    let deadline = Instant::now() + timeout;
    let text = child
        .stdout
        .take()
        .ok_or(io::ErrorKind::BrokenPipe.into())
        .and_then(|stdout| read_until(stdout, deadline));
    if !matches!(text, Ok(Some(_)))
        && let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
    {
        // The child's exit status is not collected yet, so its process id cannot belong to another
        // process. An error means that the process group has already ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait().map_err(|error| {
        command_error(format!(
            "the command `{line}` was started, but waiting for its end failed: {error}"
        ))
    })?;
    match text {
        Err(error) => Err(command_error(format!(
            "the command `{line}` printed output, but reading the output failed: {error}"
        ))),
        Ok(None) => Err(command_error(format!(
            "the command `{line}` did not end within {seconds} s",
            seconds = timeout.as_secs()
        ))),
        Ok(Some(_)) if !status.success() => Err(command_error(format!(
            "the command `{line}` ended with a failure ({status})"
        ))),
        Ok(Some(bytes)) => String::from_utf8(bytes).map_err(|_| {
            secret_error(
                key,
                format!("the command `{line}` printed bytes that are not UTF-8 text"),
                hint.clone(),
            )
        }),
    }
}

/// Reads a stream to its end, or returns `None` if the stream has not ended at the deadline.
fn read_until(
    mut source: impl Read + std::os::fd::AsFd,
    deadline: Instant,
) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![];
    let mut buffer = [0; 4096];
    loop {
        if !poll_until(&mut [PollFd::new(&source, PollFlags::IN)], Some(deadline))? {
            return Ok(None);
        }
        match source.read(&mut buffer)? {
            0 => return Ok(Some(bytes)),
            length => bytes.extend_from_slice(&buffer[..length]),
        }
        if bytes.len() as u64 > MAX_SECRET_BYTES {
            return Err(io::Error::other(format!(
                "it is longer than {MAX_SECRET_BYTES} bytes"
            )));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn secret_from(from: SecretSource) -> SecretVariable {
        SecretVariable {
            name: "API_KEY".to_owned(),
            from,
        }
    }

    fn fetch_one(from: SecretSource, timeout: Duration) -> Result<ResolvedSecrets, AgentError> {
        let variable =
            |name: &str| (name == "THEIR_KEY").then(|| "from-the-environment".to_owned());
        fetch_secrets(
            &[secret_from(from)],
            variable,
            Path::new("/home/me"),
            timeout,
        )
    }

    #[test]
    fn key_is_read_from_the_environment_a_file_or_a_command() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, "from-a-file\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let file = file.to_str().unwrap().to_owned();
        let value = |from| {
            fetch_one(from, COMMAND_TIMEOUT).unwrap().values[0]
                .1
                .clone()
        };
        assert_eq!(
            value(SecretSource::Env("THEIR_KEY".to_owned())),
            "from-the-environment"
        );
        assert_eq!(value(SecretSource::File(file.clone())), "from-a-file");
        assert_eq!(
            value(SecretSource::Command("echo from-a-command".to_owned())),
            "from-a-command"
        );

        assert_eq!(
            fetch_one(SecretSource::File(file.clone()), COMMAND_TIMEOUT)
                .unwrap()
                .warnings,
            Vec::<String>::new()
        );
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let warnings = fetch_one(SecretSource::File(file.clone()), COMMAND_TIMEOUT)
            .unwrap()
            .warnings;
        assert!(
            warnings[0].contains("API_KEY") && warnings[0].contains(&format!("chmod 600 {file}")),
            "{warnings:?}"
        );
        assert_eq!(
            expand_home("~/key", Path::new("/home/me")),
            Path::new("/home/me/key")
        );
        assert_eq!(
            expand_home("~other/key", Path::new("/home/me")),
            Path::new("~other/key")
        );
    }

    #[test]
    fn s4_an_error_names_the_variable_and_the_fix_and_never_the_value() {
        let missing =
            fetch_one(SecretSource::Env("NOT_THERE".to_owned()), COMMAND_TIMEOUT).unwrap_err();
        assert!(
            missing.message.contains("API_KEY") && missing.hint.contains("NOT_THERE=…"),
            "{missing:?}"
        );
        let missing = fetch_one(
            SecretSource::File("/nowhere/key".to_owned()),
            COMMAND_TIMEOUT,
        )
        .unwrap_err();
        assert!(
            missing.message.contains("API_KEY") && missing.hint.contains("chmod 600 /nowhere/key"),
            "{missing:?}"
        );
        let failed = fetch_one(
            SecretSource::Command("echo s3cret; echo s3cret >&2; exit 3".to_owned()),
            COMMAND_TIMEOUT,
        )
        .unwrap_err();
        let message = failed
            .message
            .replace("`echo s3cret; echo s3cret >&2; exit 3`", "");
        assert!(
            message.contains("API_KEY") && message.contains('3') && !message.contains("s3cret"),
            "{failed:?}"
        );
        let empty =
            fetch_one(SecretSource::Command("true".to_owned()), COMMAND_TIMEOUT).unwrap_err();
        assert!(empty.message.contains("is empty"), "{empty:?}");
        let keys = fetch_one(SecretSource::Env("THEIR_KEY".to_owned()), COMMAND_TIMEOUT).unwrap();
        assert!(!format!("{keys:?}").contains("from-the-environment"));
    }

    #[test]
    fn hanging_key_command_is_ended_with_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let line = format!(
            "sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600' & wait",
            file.display()
        );
        let before = Instant::now();
        let timeout = Duration::from_millis(300);
        let failed = fetch_one(SecretSource::Command(line), timeout).unwrap_err();
        assert!(failed.message.contains("did not end within"), "{failed:?}");
        assert!(before.elapsed() >= timeout);
        if let Ok(pid) = std::fs::read_to_string(&file) {
            let stat = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
            let deadline = Instant::now() + Duration::from_secs(10);
            let is_gone =
                || std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "));
            while !is_gone() && Instant::now() < deadline {
                std::thread::yield_now();
            }
            assert!(is_gone());
        }
    }
}
