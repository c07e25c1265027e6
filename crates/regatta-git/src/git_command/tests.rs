use super::*;

fn launcher() -> GitLauncher {
    GitLauncher::new("/nonexistent/gitconfig".into())
}

#[test]
fn missing_program_and_missing_directory_have_different_errors() {
    let mut missing = launcher();
    missing.program = "/nonexistent/git".into();
    assert_eq!(
        missing
            .in_dir(Path::new("/"), "x")
            .arg("version")
            .run()
            .unwrap_err()
            .code,
        "git_missing"
    );
    assert_eq!(
        launcher()
            .in_dir(Path::new("/nonexistent"), "x")
            .arg("version")
            .run()
            .unwrap_err()
            .code,
        "io"
    );
}

/// A hanging process is ended with its children, after a chance to clean up.
#[test]
fn hanging_git_process_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (program, cleanup_marker) = (dir.path().join("git"), dir.path().join("tidied"));
    let script = format!(
        "#!/bin/sh\ntrap 'touch {}; exit 1' TERM\nsleep 600 & wait\n",
        cleanup_marker.display()
    );
    executable(&program, &script);
    let hanging = GitLauncher {
        program: program.into(),
        timeout: Duration::from_millis(300),
        ..launcher()
    };
    let error = hanging
        .in_dir(Path::new("/"), "wait")
        .arg("version")
        .run()
        .unwrap_err();
    assert_eq!(error.code, "git_slow", "{error}");
    assert!(cleanup_marker.exists());
    let quick = GitLauncher {
        timeout: Duration::from_secs(60),
        ..launcher()
    };
    assert!(
        quick
            .in_dir(Path::new("/"), "x")
            .arg("version")
            .run_for_line()
            .unwrap()
            .starts_with("git version")
    );
}

/// A process that answers several queries may hang too.
#[test]
fn git_process_that_does_not_answer_a_query_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("git");
    executable(&program, "#!/bin/sh\necho here\nexec sleep 600\n");
    let hanging = GitLauncher {
        program: program.into(),
        timeout: Duration::from_millis(300),
        ..launcher()
    };
    let mut process = hanging
        .in_dir(Path::new("/"), "ask")
        .start_process()
        .unwrap();
    process.send(b"anybody?\n").unwrap();
    assert_eq!(process.read_line().unwrap(), "here");
    let error = process.read_line().unwrap_err();
    assert_eq!(error.code, "git_slow", "{error}");
    let pid = process.child.id();
    drop(process);
    assert!(!Path::new("/proc").join(pid.to_string()).exists());
}

fn executable(program: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(program, script).unwrap();
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn s3_the_environment_is_built_from_nothing() {
    let call = launcher().in_vault(Path::new("/"), "x");
    let names: Vec<_> = call
        .command
        .get_envs()
        .filter_map(|(name, _)| name.to_str())
        .collect();
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("GIT_") || ["PATH", "HOME", "LC_ALL"].contains(name)),
        "{names:?}"
    );
    let value = call
        .args(["config", "--get", "core.hooksPath"])
        .run_for_line()
        .unwrap();
    assert_eq!(value, "/dev/null");
}

/// S4: no token is in the list of processes. Only the protocol of the server's URL is allowed,
/// and only the given certificate authority is trusted.
#[test]
fn s4_a_request_has_no_token_on_the_command_line_and_allows_one_protocol() {
    let (url, token) = ("https://host/git/shop".to_owned(), "rt_secret".to_owned());
    let secure = GitRemote {
        url,
        token,
        ca: Some("/etc/my ca.pem".into()),
    };
    let call = launcher().in_vault_online(Path::new("/"), &secure, "x");
    let args: Vec<_> = call.command.get_args().filter_map(OsStr::to_str).collect();
    assert!(
        args.contains(&"http.sslCAInfo=/etc/my ca.pem")
            && args.contains(&"protocol.https.allow=always")
    );
    assert!(
        !args
            .iter()
            .any(|arg| arg.contains("secret") || *arg == "protocol.http.allow=always"),
        "{args:?}"
    );
    let config_value = |key: &'static str| {
        launcher()
            .in_vault_online(Path::new("/"), &secure, "x")
            .args(["config", "--get", key])
    };
    assert_eq!(
        config_value("http.extraHeader").run_for_line().unwrap(),
        "Authorization: Bearer rt_secret"
    );
    assert_eq!(
        config_value("credential.helper").run_for_line().unwrap(),
        ""
    );
    assert_eq!(
        config_value("http.followRedirects").run_for_line().unwrap(),
        "false"
    );
    assert_eq!(
        config_value("protocol.allow").run_for_line().unwrap(),
        "never"
    );
    let plain = GitRemote {
        url: "http://host/git/shop".into(),
        ca: None,
        ..secure
    };
    let call = launcher().in_vault_online(Path::new("/"), &plain, "x");
    let names: Vec<_> = call
        .command
        .get_envs()
        .filter_map(|(name, _)| name.to_str())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_lowercase().contains("proxy")),
        "{names:?}"
    );
}

#[test]
fn nul_separated_lists_are_joined_and_split() {
    assert_eq!(
        split_nul(&join_nul([b"a b".as_slice(), b"-c"])),
        [b"a b".to_vec(), b"-c".to_vec()]
    );
    assert!(split_nul(b"").is_empty());
}
