//! Prepares a program's start: its home, its secrets, its sandbox, its command line and its
//! environment.
//!
//! Everything but the environment is written to `launch.json`. The environment can hold secrets, so
//! the shim receives it as its own environment and it is never on disk.

use std::io;
use std::path::{Path, PathBuf};

use regatta_core::agent::{Level, Runtime};
use regatta_core::ids::AgentName;
use regatta_engine::ports::agents::{AgentError, Launch, Started};

use crate::confine::{self, Confine, Network, Prepared};
use crate::drivers::{self, Setup};
use crate::environment::{self, Environment};
use crate::home::{self, Home};
use crate::process::MARK;
use crate::relay::RelayRecord;
use crate::rundir::{Attended, LaunchRecord, Mode, RunDir, fresh_mark, write_atomic, write_soon};
use crate::scripted::SESSIONS_HOME;
use crate::supervise::AgentsAdapter;
use crate::{keys, words};

/// Writes the prompt, the script and `launch.json` for the shim. Returns the shim's environment,
/// and the sandbox and warnings of the start.
pub(crate) fn write(
    adapter: &AgentsAdapter,
    dir: &RunDir,
    launch: &Launch,
    relay: Option<RelayRecord>,
) -> Result<(Environment, Started), AgentError> {
    let file = |what: &'static str, path: PathBuf| move |error: io::Error| words::file(what, &path, error);
    if launch.runtime == Runtime::Outside {
        return Err(words::not_ours(&launch.agent));
    }
    // An interrupted start may have left a shim that is still starting. It carries the old mark, so
    // the mark is kept.
    let mark = match dir.launch().ok().flatten() {
        Some(record) => record.mark,
        None => fresh_mark().map_err(file("make a mark for", dir.0.clone()))?,
    };
    write_soon(&dir.prompt_file(), launch.prompt.as_bytes()).map_err(file("write", dir.prompt_file()))?;
    if let Some(script) = &launch.script {
        write_soon(&dir.script_file(), script.as_bytes()).map_err(file("write", dir.script_file()))?;
    }
    for name in ["tmp", "outbox"] {
        RunDir::create(dir.path(name)).map_err(file("create", dir.path(name)))?;
    }
    let workspace = std::path::absolute(&launch.workspace).map_err(file("find", launch.workspace.clone()))?;
    let user_home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let home = home::furnish(&adapter.data_dir, &launch.agent, &launch.profile, &user_home)?;
    let mut setup = Setup {
        runtime: launch.runtime.clone(),
        profile: launch.profile.clone(),
        workspace: workspace.clone(),
        resume: launch.resume.clone(),
        used: launch.used,
        mcp_url: launch.mcp.as_ref().map(|it| it.url.clone()),
        regatta: launch.mcp.as_ref().map(|_| adapter.regatta_exe.clone()),
        seed: launch.attempt.to_string(),
        sandboxed_root: false,
    };
    let begins = begins(&setup, &launch.agent)?;
    furnish_files(&setup, &home.path)?;
    let prepared = shut_in((adapter, dir), launch, &setup, &home, &begins)?;
    setup.sandboxed_root = prepared.mechanism.is_some() && rustix::process::getuid().is_root();

    let keys = keys::resolve(&launch.profile.keys, |name| std::env::var(name).ok(), &user_home, keys::PATIENCE)?;
    let mut extra = launch.env.clone();
    extra.extend(prepared.env.iter().cloned());
    extra.extend(drivers::environment(&setup));
    extra.extend(keys.values.iter().cloned());
    let mut secrets: Vec<String> = keys.values.iter().map(|it| it.0.clone()).collect();
    if let Some(mcp) = &launch.mcp {
        extra.push((drivers::TOKEN_VARIABLE.to_owned(), mcp.token.clone()));
        secrets.push(drivers::TOKEN_VARIABLE.to_owned());
    }
    // Without a sandbox the program gets the user's own home with all its logins.
    let own_home = (level(launch) != Level::Off).then_some(home.path.as_path());
    if own_home.is_some() {
        extra.retain(|it| it.0 != "HOME");
    }
    let environment =
        environment::build(own_home, &dir.path("tmp"), &extra, &ours(dir, launch, (&workspace, &home.path), &mark));
    let prefix = prepared.argv_prefix.iter().map(|it| it.to_string_lossy().into_owned());
    let argv = prefix.chain(drivers::command_line(&setup, &launch.prompt, &adapter.regatta_exe)).collect();
    let record = LaunchRecord {
        v: 1,
        mode: Mode::Attempt,
        argv,
        dir: begins,
        mark,
        input: drivers::input(&launch.runtime),
        secrets,
        limits: adapter.limits.clone(),
        without_cgroup: adapter.without_cgroups,
        ways: prepared.ways.clone(),
        held: prepared.held,
        leash: adapter.leash.clone(),
        relay,
        attended: Some(Attended { attempt: launch.attempt, agent: launch.agent.clone(), setup }),
    };
    let json = serde_json::to_vec(&record).map_err(|error| words::file("write", &dir.launch_file(), error))?;
    write_soon(&dir.launch_file(), &json).map_err(file("write", dir.launch_file()))?;
    let warnings = prepared.warnings.into_iter().chain(keys.warnings).chain(home.warnings).collect();
    Ok((environment, Started { sandbox: prepared.mechanism.map(|_| prepared.description), warnings }))
}

/// Returns the variables that identify the launch to the program.
fn ours(
    dir: &RunDir,
    launch: &Launch,
    (workspace, home): (&Path, &Path),
    mark: &str,
) -> Vec<(&'static str, std::ffi::OsString)> {
    let mut ours = vec![
        ("REGATTA_ATTEMPT", launch.attempt.to_string().into()),
        ("REGATTA_RESULT", dir.result_file().into()),
        ("REGATTA_PROMPT_FILE", dir.prompt_file().into()),
        ("REGATTA_WORKSPACE", workspace.into()),
        (MARK, mark.into()),
    ];
    if launch.script.is_some() {
        ours.push((regatta_core::agent::SCRIPT_FILE, dir.script_file().into()));
    }
    if launch.script.is_some() || launch.runtime == Runtime::Scripted {
        ours.push((SESSIONS_HOME, home.into()));
    }
    ours
}

/// Returns the directory in which the program starts. It must be an existing directory inside the
/// workspace after all symbolic links are resolved.
fn begins(setup: &Setup, agent: &AgentName) -> Result<PathBuf, AgentError> {
    let Some(asked) = &setup.profile.cwd else { return Ok(setup.workspace.clone()) };
    let inside = |it: PathBuf| setup.workspace.canonicalize().is_ok_and(|root| it.starts_with(root)) && it.is_dir();
    if !setup.begins().canonicalize().is_ok_and(inside) {
        return Err(words::no_cwd(agent, asked));
    }
    Ok(setup.begins())
}

/// Writes the files that the program needs into the agent's home, unless they exist there.
fn furnish_files(setup: &Setup, home: &Path) -> Result<(), AgentError> {
    for (name, content) in drivers::files(setup) {
        let path = home.join(name);
        if !path.exists() {
            let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            made.and_then(|()| write_atomic(&path, content.as_bytes()))
                .map_err(|error| words::file("write", &path, error))?;
        }
    }
    Ok(())
}

/// Returns how strictly the program is sandboxed. The scripted agent is Regatta itself and the user
/// wrote its steps, so by default it runs without a sandbox.
fn level(launch: &Launch) -> Level {
    match (launch.profile.confine, &launch.runtime) {
        (None, Runtime::Scripted) if launch.profile.egress.is_empty() => Level::Off,
        (asked, _) => asked.unwrap_or_default(),
    }
}

/// Returns the existing files that the command names with absolute paths. The sandbox must show
/// them, for example a script that is given to an interpreter.
fn named_files(command: &[String]) -> impl Iterator<Item = PathBuf> {
    command.iter().skip(1).map(PathBuf::from).filter(|it| it.is_absolute() && it.is_file())
}

/// Chooses and prepares the program's sandbox.
fn shut_in(
    (adapter, dir): (&AgentsAdapter, &RunDir),
    launch: &Launch,
    setup: &Setup,
    home: &Home,
    begins: &Path,
) -> Result<Prepared, AgentError> {
    let level = level(launch);
    let network = Network::of(level, launch.profile.network, &launch.profile.egress);
    if level == Level::Off && launch.profile.confine.is_none() {
        return Ok(Prepared::default());
    }
    let command = drivers::command_line(setup, "", &adapter.regatta_exe);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut inputs = vec![dir.prompt_file()];
    inputs.extend(launch.script.as_ref().map(|_| dir.script_file()));
    confine::prepare(&Confine {
        level,
        asked: launch.profile.confine.is_some(),
        mechanism: None,
        network,
        tools: setup.mcp_url.clone(),
        limits: confine::Limits::default(),
        program: command.first().cloned().unwrap_or_default(),
        path: std::env::split_paths(&path).collect(),
        held: true,
        exe: adapter.regatta_exe.clone(),
        data_dir: adapter.data_dir.clone(),
        run_dir: dir.0.clone(),
        workspace: setup.workspace.clone(),
        begins: Some(begins.to_owned()),
        home: home.path.clone(),
        tmp: dir.path("tmp"),
        outbox: dir.path("outbox"),
        vault_objects: launch.objects.clone(),
        inputs,
        real_homes: confine::real_homes(),
        hidden: launch.hidden.clone(),
        read: home.read.iter().cloned().chain(named_files(&command)).collect(),
        write: home.write.clone(),
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
        let begins = |cwd: Option<&str>| {
            let profile = Profile { cwd: cwd.map(str::to_owned), ..Profile::default() };
            let setup = Setup {
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
            begins(&setup, &agent)
        };
        assert_eq!(begins(None).unwrap(), workspace);
        assert_eq!(begins(Some("web/src")).unwrap(), workspace.join("web/src"));
        for bad in ["no-such", "file", "out", "..", "../other", "/tmp"] {
            let error = begins(Some(bad)).unwrap_err();
            assert!(error.what.contains(&format!("`{bad}`")), "{error:?}");
        }
    }
}
