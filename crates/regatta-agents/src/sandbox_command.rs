//! Prepares the sandbox of a user's command: a setup command, or a check of an agent's work.
//!
//! The command runs code that an agent wrote, so it gets the same access as the agent. It may use
//! the directory in which it works, a home of its own, and its temporary files. The caches of
//! toolchains are an exception. The caches belong to the user and are linked into the command's
//! home, because otherwise every check would download everything again. At level `strict` the
//! command can only read the caches.

use std::path::{Path, PathBuf};

use regatta_core::agent::SandboxLevel;
use regatta_engine::ports::agents::{AgentError, CheckCommand, CommandSandbox};

use crate::adapter::AgentsAdapter;
use crate::agent_home::{self, ListedPaths};
use crate::run_dir::RunDir;
use crate::sandbox::{self, NetworkAccess, PreparedSandbox, SandboxSpec};

/// The caches in which toolchains keep downloads and build results. These caches hold no logins and
/// no keys.
const CACHE_PATHS: [&str; 38] = [
    "~/.cargo/registry",
    "~/.cargo/git",
    "~/.npm",
    "~/.yarn",
    "~/.pnpm-store",
    "~/.local/share/pnpm/store",
    "~/.bun/install/cache",
    "~/.cache/Cypress",
    "~/.cache/bazel",
    "~/.cache/ccache",
    "~/.cache/coursier",
    "~/.cache/deno",
    "~/.cache/go-build",
    "~/.cache/golangci-lint",
    "~/.cache/ms-playwright",
    "~/.cache/node",
    "~/.cache/node-gyp",
    "~/.cache/pip",
    "~/.cache/pnpm",
    "~/.cache/pre-commit",
    "~/.cache/puppeteer",
    "~/.cache/pypoetry",
    "~/.cache/sccache",
    "~/.cache/uv",
    "~/.cache/yarn",
    "~/.cache/zig",
    "~/go/pkg",
    "~/.ccache",
    "~/.gradle/caches",
    "~/.gradle/wrapper",
    "~/.m2/repository",
    "~/.ivy2/cache",
    "~/.nuget/packages",
    "~/.bundle/cache",
    "~/.gem/ruby",
    "~/.mix",
    "~/.hex",
    "~/.stack",
];

/// The environment variables that tell where toolchains are installed outside a home directory. A
/// command gets the daemon's values.
const LOCATION_VARIABLES: [&str; 7] = [
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOROOT",
    "GOPATH",
    "JAVA_HOME",
    "PYENV_ROOT",
    "NVM_DIR",
];

/// Files that only configure the sources from which toolchains download packages, and that hold no
/// secrets.
const SETTINGS_FILES: [&str; 4] = [
    "~/.cargo/config.toml",
    "~/.cargo/config",
    "~/.config/go/env",
    "~/.yarnrc.yml",
];

/// The prepared sandbox of a command. `home` is the command's home, or `None` if the command uses
/// the user's home.
#[derive(Default)]
pub(crate) struct PreparedCommandSandbox {
    pub(crate) prepared: PreparedSandbox,
    pub(crate) home: Option<PathBuf>,
}

impl PreparedCommandSandbox {
    /// Returns the command line, beginning with the arguments that set up the sandbox.
    pub(crate) fn argv(&self, check: &CheckCommand) -> Vec<String> {
        let prefix = self
            .prepared
            .argv_prefix
            .iter()
            .map(|name| name.to_string_lossy().into_owned());
        prefix
            .chain(["sh".to_owned(), "-c".to_owned(), check.command.clone()])
            .collect()
    }

    /// Returns the command's environment variables in addition to the inherited ones.
    pub(crate) fn environment(&self, check: &CheckCommand) -> Vec<(String, String)> {
        let locations = LOCATION_VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        // Leave out variables that point into the user's home, because in the sandbox those files
        // are under the command's own home.
        let homes = if self.home.is_some() {
            sandbox::user_homes()
        } else {
            vec![]
        };
        let locations = locations
            .filter(|(_, path)| !homes.iter().any(|home| Path::new(path).starts_with(home)));
        locations
            .chain(check.env.iter().cloned())
            .chain(self.prepared.env.iter().cloned())
            .collect()
    }

    /// Returns a sentence that describes the sandbox, or `None` if the command has no sandbox.
    pub(crate) fn description(&self) -> Option<String> {
        self.prepared
            .mechanism
            .map(|_| self.prepared.description.clone())
    }
}

/// Prepares the sandbox of a user's command. `dir` is the command's run directory, in which its
/// directory `tmp` for temporary files already exists.
pub(crate) fn prepare_command_sandbox(
    adapter: &AgentsAdapter,
    dir: &RunDir,
    check: &CheckCommand,
) -> Result<PreparedCommandSandbox, AgentError> {
    let Some(requested) = check
        .sandbox
        .as_ref()
        .filter(|command_sandbox| command_sandbox.level != Some(SandboxLevel::Off))
    else {
        return Ok(PreparedCommandSandbox::default());
    };
    let level = requested.level.unwrap_or_default();
    let user_home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let listed = |items: &[&str]| items.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let mut read = listed(&SETTINGS_FILES);
    let mut write: Vec<String> = vec![];
    if level == SandboxLevel::Strict {
        read.extend(listed(&CACHE_PATHS));
    } else {
        write.extend(listed(&CACHE_PATHS));
    }
    if let (SandboxLevel::Workspace, Some(cargo)) =
        (level, std::env::var_os("CARGO_HOME").map(PathBuf::from))
    {
        write.extend(
            ["registry", "git"]
                .iter()
                .map(|name| cargo.join(name).to_string_lossy().into_owned()),
        );
    }
    let home = agent_home::prepare_home_at(
        shared_home(&adapter.data_dir, requested),
        &ListedPaths {
            read: &read,
            write: &write,
        },
        &user_home,
    )?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let workspace = std::path::absolute(&check.dir).unwrap_or_else(|_| check.dir.clone());
    if !workspace.is_dir() {
        // If the command's directory does not exist, there is nothing to sandbox. The command
        // itself then reports that its directory is missing.
        return Ok(PreparedCommandSandbox::default());
    }
    let prepared = sandbox::prepare(&SandboxSpec {
        level,
        is_requested: requested.level.is_some(),
        mechanism: None,
        network: NetworkAccess::from_profile(level, None, &[]),
        tools_url: None,
        limits: sandbox::ResourceLimits::default(),
        program: "sh".to_owned(),
        search_path: std::env::split_paths(&path).collect(),
        waits_for_shim: false,
        regatta_exe: adapter.regatta_exe.clone(),
        data_dir: adapter.data_dir.clone(),
        run_dir: dir.0.clone(),
        workspace,
        start_dir: None,
        home: home.path.clone(),
        tmp: dir.path("tmp"),
        outbox: dir.path("tmp"),
        vault_objects: requested.objects.clone(),
        input_files: vec![],
        user_homes: sandbox::user_homes(),
        hidden_paths: requested.hidden.clone(),
        read_paths: home.read_paths,
        write_paths: home.write_paths,
    })?;
    let home = prepared.mechanism.map(|_| home.path);
    Ok(PreparedCommandSandbox { prepared, home })
}

/// Returns the path of the home directory that all sandboxed commands of a project share.
fn shared_home(data_dir: &Path, requested: &CommandSandbox) -> PathBuf {
    data_dir
        .join("check-homes")
        .join(requested.project.as_str())
}
