//! Prepares the start of an agent's program: its home, its secrets, its sandbox, its command line
//! and its environment.
//!
//! Everything but the environment is written to `launch.json` for the shim, the program's
//! supervisor process. The environment can hold secrets. The shim therefore receives the
//! environment as its own environment, which is never on disk.

use std::io;
use std::path::{Path, PathBuf};

use regatta_core::agent::{Runtime, SandboxLevel};
use regatta_core::ids::AgentName;
use regatta_engine::ports::agents::{AgentError, ProgramLaunch, StartOutcome};

use crate::adapter::AgentsAdapter;
use crate::agent_home::{self, AgentHome};
use crate::drivers::{self, DriverSetup};
use crate::environment::{self, ChildEnvironment};
use crate::process::MARK_VARIABLE;
use crate::relay::RelayRecord;
use crate::run_dir::{
    LaunchKind, LaunchRecord, RunDir, SessionFacts, new_launch_mark, write_atomic, write_unsynced,
};
use crate::sandbox::{self, NetworkAccess, PreparedSandbox, SandboxSpec};
use crate::scripted::SESSIONS_HOME_VARIABLE;
use crate::{errors, secrets};

/// Writes the prompt, the script of a scripted agent, and `launch.json` for the supervisor process.
/// Returns the environment variables for the supervisor, and a summary of the start: the sandbox
/// used and warnings.
pub(crate) fn write_launch(
    adapter: &AgentsAdapter,
    dir: &RunDir,
    launch: &ProgramLaunch,
    relay: Option<RelayRecord>,
) -> Result<(ChildEnvironment, StartOutcome), AgentError> {
    let file = |what: &'static str, path: PathBuf| {
        move |error: io::Error| errors::file_error(what, &path, error)
    };
    if launch.runtime == Runtime::Outside {
        return Err(errors::agent_has_no_program(&launch.agent));
    }
    // Keep the mark (the text that identifies the launch's processes) of an interrupted start,
    // because that start's supervisor process may still be about to begin, with the old mark.
    let mark = match dir.read_launch().ok().flatten() {
        Some(record) => record.mark,
        None => new_launch_mark().map_err(file(
            "create the random text that identifies the program's processes in",
            dir.0.clone(),
        ))?,
    };
    write_unsynced(&dir.prompt_file(), launch.prompt.as_bytes())
        .map_err(file("write", dir.prompt_file()))?;
    if let Some(script) = &launch.script {
        write_unsynced(&dir.script_file(), script.as_bytes())
            .map_err(file("write", dir.script_file()))?;
    }
    for name in ["tmp", "outbox"] {
        RunDir::create(dir.path(name)).map_err(file("create", dir.path(name)))?;
    }
    let workspace =
        std::path::absolute(&launch.workspace).map_err(file("find", launch.workspace.clone()))?;
    let user_home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let home = agent_home::prepare_home(
        &adapter.data_dir,
        &launch.agent,
        &launch.profile,
        &user_home,
    )?;
    let mut setup = DriverSetup {
        runtime: launch.runtime.clone(),
        profile: launch.profile.clone(),
        workspace: workspace.clone(),
        resume: launch.resume.clone(),
        used: launch.recorded_usage,
        mcp_url: launch.mcp.as_ref().map(|mcp| mcp.url.clone()),
        regatta: launch.mcp.as_ref().map(|_| adapter.regatta_exe.clone()),
        seed: launch.attempt.to_string(),
        sandboxed_root: false,
    };
    let start_path = start_dir(&setup, &launch.agent)?;
    write_home_files(&setup, &home.path)?;
    let prepared = prepare_sandbox((adapter, dir), launch, &setup, &home, &start_path)?;
    setup.sandboxed_root = prepared.mechanism.is_some() && rustix::process::getuid().is_root();

    let resolved = secrets::fetch_secrets(
        &launch.profile.keys,
        |name| std::env::var(name).ok(),
        &user_home,
        secrets::COMMAND_TIMEOUT,
    )?;
    let mut variables = launch.env.clone();
    variables.extend(prepared.env.iter().cloned());
    variables.extend(drivers::environment(&setup));
    variables.extend(resolved.values.iter().cloned());
    let mut secrets: Vec<String> = resolved
        .values
        .iter()
        .map(|(name, _)| name.clone())
        .collect();
    if let Some(mcp) = &launch.mcp {
        variables.push((drivers::TOKEN_VARIABLE.to_owned(), mcp.token.clone()));
        secrets.push(drivers::TOKEN_VARIABLE.to_owned());
    }
    // Without a sandbox the program uses the user's own home with all its logins, so it gets no
    // home of its own.
    let agent_home_path =
        (sandbox_level(launch) != SandboxLevel::Off).then_some(home.path.as_path());
    if agent_home_path.is_some() {
        variables.retain(|(name, _)| name != "HOME");
    }
    let environment = environment::build(
        agent_home_path,
        &dir.path("tmp"),
        &variables,
        &launch_variables(dir, launch, (&workspace, &home.path), &mark),
    );
    let prefix = prepared
        .argv_prefix
        .iter()
        .map(|argument| argument.to_string_lossy().into_owned());
    let argv = prefix
        .chain(drivers::command_line(
            &setup,
            &launch.prompt,
            &adapter.regatta_exe,
        ))
        .collect();
    let record = LaunchRecord {
        v: 1,
        mode: LaunchKind::Attempt,
        argv,
        dir: start_path,
        mark,
        input: drivers::input_source(&launch.runtime),
        secrets,
        limits: adapter.limits.clone(),
        without_cgroup: adapter.without_cgroups,
        egress_routes: prepared.egress_routes.clone(),
        waits_for_shim: prepared.waits_for_shim,
        contact_deadline: adapter.contact_deadline.clone(),
        relay,
        session_facts: Some(SessionFacts {
            attempt: launch.attempt,
            agent: launch.agent.clone(),
            setup,
        }),
    };
    let json = serde_json::to_vec(&record).map_err(|error| {
        errors::file_error(
            "write the description of the program to start",
            &dir.launch_file(),
            error,
        )
    })?;
    write_unsynced(&dir.launch_file(), &json).map_err(file("write", dir.launch_file()))?;
    let warnings = prepared
        .warnings
        .into_iter()
        .chain(resolved.warnings)
        .chain(home.warnings)
        .collect();
    Ok((
        environment,
        StartOutcome {
            sandbox: prepared.mechanism.map(|_| prepared.description),
            warnings,
        },
    ))
}

/// Returns the environment variables that tell the program its attempt, workspace and other facts
/// about this launch.
fn launch_variables(
    dir: &RunDir,
    launch: &ProgramLaunch,
    (workspace, home): (&Path, &Path),
    mark: &str,
) -> Vec<(&'static str, std::ffi::OsString)> {
    let mut variables = vec![
        ("REGATTA_ATTEMPT", launch.attempt.to_string().into()),
        ("REGATTA_RESULT", dir.result_file().into()),
        ("REGATTA_PROMPT_FILE", dir.prompt_file().into()),
        ("REGATTA_WORKSPACE", workspace.into()),
        (MARK_VARIABLE, mark.into()),
    ];
    if launch.script.is_some() {
        variables.push((regatta_core::agent::SCRIPT_FILE, dir.script_file().into()));
    }
    if launch.script.is_some() || launch.runtime == Runtime::Scripted {
        variables.push((SESSIONS_HOME_VARIABLE, home.into()));
    }
    variables
}

/// Returns the directory in which the program starts. The directory must exist inside the workspace
/// after all symbolic links are resolved.
fn start_dir(setup: &DriverSetup, agent: &AgentName) -> Result<PathBuf, AgentError> {
    let Some(requested) = &setup.profile.cwd else {
        return Ok(setup.workspace.clone());
    };
    let is_inside = |path: PathBuf| {
        setup
            .workspace
            .canonicalize()
            .is_ok_and(|root| path.starts_with(root))
            && path.is_dir()
    };
    if !setup.start_dir().canonicalize().is_ok_and(is_inside) {
        return Err(errors::invalid_start_dir(agent, requested));
    }
    Ok(setup.start_dir())
}

/// Creates the files that the program needs in the agent's home, unless they exist.
fn write_home_files(setup: &DriverSetup, home: &Path) -> Result<(), AgentError> {
    for (name, content) in drivers::home_files(setup) {
        let path = home.join(name);
        if !path.exists() {
            let created = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            created
                .and_then(|()| write_atomic(&path, content.as_bytes()))
                .map_err(|error| {
                    errors::file_error("write a file that the program needs,", &path, error)
                })?;
        }
    }
    Ok(())
}

/// Returns how strictly the program is sandboxed. The scripted agent is Regatta itself and the user
/// wrote its steps, so by default it runs without a sandbox.
fn sandbox_level(launch: &ProgramLaunch) -> SandboxLevel {
    match (launch.profile.sandbox, &launch.runtime) {
        (None, Runtime::Scripted) if launch.profile.egress.is_empty() => SandboxLevel::Off,
        (requested, _) => requested.unwrap_or_default(),
    }
}

/// Returns the existing files that the command line names by absolute paths, such as a script for
/// an interpreter. The sandbox must let the program read these files.
fn named_files(command: &[String]) -> impl Iterator<Item = PathBuf> {
    command
        .iter()
        .skip(1)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && path.is_file())
}

/// Chooses and prepares the program's sandbox.
fn prepare_sandbox(
    (adapter, dir): (&AgentsAdapter, &RunDir),
    launch: &ProgramLaunch,
    setup: &DriverSetup,
    home: &AgentHome,
    start_path: &Path,
) -> Result<PreparedSandbox, AgentError> {
    let level = sandbox_level(launch);
    let network =
        NetworkAccess::from_profile(level, launch.profile.network, &launch.profile.egress);
    if level == SandboxLevel::Off && launch.profile.sandbox.is_none() {
        return Ok(PreparedSandbox::default());
    }
    let command = drivers::command_line(setup, "", &adapter.regatta_exe);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut inputs = vec![dir.prompt_file()];
    inputs.extend(launch.script.as_ref().map(|_| dir.script_file()));
    sandbox::prepare(&SandboxSpec {
        level,
        is_requested: launch.profile.sandbox.is_some(),
        mechanism: None,
        network,
        tools_url: setup.mcp_url.clone(),
        limits: sandbox::ResourceLimits::default(),
        program: command.first().cloned().unwrap_or_default(),
        search_path: std::env::split_paths(&path).collect(),
        waits_for_shim: true,
        regatta_exe: adapter.regatta_exe.clone(),
        data_dir: adapter.data_dir.clone(),
        run_dir: dir.0.clone(),
        workspace: setup.workspace.clone(),
        start_dir: Some(start_path.to_owned()),
        home: home.path.clone(),
        tmp: dir.path("tmp"),
        outbox: dir.path("outbox"),
        vault_objects: launch.objects.clone(),
        input_files: inputs,
        user_homes: sandbox::user_homes(),
        hidden_paths: launch.hidden.clone(),
        read_paths: home
            .read_paths
            .iter()
            .cloned()
            .chain(named_files(&command))
            .collect(),
        write_paths: home.write_paths.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::agent::Profile;

    #[test]
    fn s6_a_working_directory_outside_the_workspace_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("work");
        std::fs::create_dir_all(workspace.join("web/src")).unwrap();
        std::fs::create_dir(dir.path().join("other")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("other"), workspace.join("out")).unwrap();
        std::fs::write(workspace.join("file"), "").unwrap();
        let agent = AgentName::new("harbour/tom").unwrap();
        let start_path = |cwd: Option<&str>| {
            let profile = Profile {
                cwd: cwd.map(str::to_owned),
                ..Profile::default()
            };
            let setup = DriverSetup {
                runtime: Runtime::Scripted,
                profile,
                workspace: workspace.clone(),
                resume: None,
                used: Default::default(),
                mcp_url: None,
                regatta: None,
                seed: String::new(),
                sandboxed_root: false,
            };
            start_dir(&setup, &agent)
        };
        assert_eq!(start_path(None).unwrap(), workspace);
        assert_eq!(
            start_path(Some("web/src")).unwrap(),
            workspace.join("web/src")
        );
        for bad in ["no-such", "file", "out", "..", "../other", "/tmp"] {
            let error = start_path(Some(bad)).unwrap_err();
            assert!(error.message.contains(&format!("`{bad}`")), "{error:?}");
        }
    }
}
