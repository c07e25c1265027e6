//! How a command of the user's is shut in: a setup command, or a check of what an agent made.
//!
//! It runs what the agent wrote, so it reaches what the agent reached: the directory it judges, a home of its own, its
//! temporary files. Toolchains are the exception: their caches are the user's own, linked into that home, or every
//! check would fetch the world anew. At `strict` they can only be read.

use std::path::{Path, PathBuf};

use regatta_core::agent::Level;
use regatta_engine::ports::agents::{AgentError, Check, ShutIn};

use crate::confine::{self, Confine, Network, Prepared};
use crate::home;
use crate::rundir::RunDir;
use crate::supervise::AgentsAdapter;

/// Where toolchains keep what they fetched and built: no logins, no keys.
const CACHES: [&str; 38] = [
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

/// Where toolchains are when they are not in a home. A command is told of them as the daemon was.
const PLACES: [&str; 7] = ["CARGO_HOME", "RUSTUP_HOME", "GOROOT", "GOPATH", "JAVA_HOME", "PYENV_ROOT", "NVM_DIR"];

/// What says where they fetch from, and no more.
const SETTINGS: [&str; 4] = ["~/.cargo/config.toml", "~/.cargo/config", "~/.config/go/env", "~/.yarnrc.yml"];

/// How a command is started, and the home it has if that is not the user's.
#[derive(Default)]
pub(crate) struct Shut {
    pub(crate) prepared: Prepared,
    pub(crate) home: Option<PathBuf>,
}

impl Shut {
    /// What goes before the command itself.
    pub(crate) fn argv(&self, check: &Check) -> Vec<String> {
        let prefix = self.prepared.argv_prefix.iter().map(|it| it.to_string_lossy().into_owned());
        prefix.chain(["sh".to_owned(), "-c".to_owned(), check.command.clone()]).collect()
    }

    /// Its variables, on top of the allow-list.
    pub(crate) fn environment(&self, check: &Check) -> Vec<(String, String)> {
        let places = PLACES.iter().filter_map(|it| Some(((*it).to_owned(), std::env::var(it).ok()?)));
        // What is in the user's home is in this one by another name.
        let homes = if self.home.is_some() { confine::real_homes() } else { vec![] };
        let places = places.filter(|it| !homes.iter().any(|home| Path::new(&it.1).starts_with(home)));
        places.chain(check.env.iter().cloned()).chain(self.prepared.env.iter().cloned()).collect()
    }

    /// How it is shut in, in a sentence; nothing when it is not.
    pub(crate) fn description(&self) -> Option<String> {
        self.prepared.mechanism.map(|_| self.prepared.description.clone())
    }
}

/// Finds how a command is shut in that runs in `dir`, whose directory for temporary files is there.
pub(crate) fn prepare(adapter: &AgentsAdapter, dir: &RunDir, check: &Check) -> Result<Shut, AgentError> {
    let Some(asked) = check.shut_in.as_ref().filter(|it| it.level != Some(Level::Off)) else {
        return Ok(Shut::default());
    };
    let level = asked.level.unwrap_or_default();
    let user_home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let listed = |it: &[&str]| it.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let (read, write) = match level {
        Level::Strict => (listed(&[&SETTINGS[..], &CACHES[..]].concat()), vec![]),
        Level::Workspace | Level::Off => (listed(&SETTINGS), listed(&CACHES)),
    };
    let mut write: Vec<String> = write;
    if let (Level::Workspace, Some(cargo)) = (level, std::env::var_os("CARGO_HOME").map(PathBuf::from)) {
        write.extend(["registry", "git"].iter().map(|it| cargo.join(it).to_string_lossy().into_owned()));
    }
    let home = home::furnish_at(home_of(&adapter.data_dir, asked), (&read, &write), &user_home)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let workspace = std::path::absolute(&check.dir).unwrap_or_else(|_| check.dir.clone());
    if !workspace.is_dir() {
        return Ok(Shut::default()); // it will say so itself
    }
    let prepared = confine::prepare(&Confine {
        level,
        asked: asked.level.is_some(),
        mechanism: None,
        network: Network::of(level, None, &[]),
        tools: None,
        limits: confine::Limits::default(),
        program: "sh".to_owned(),
        path: std::env::split_paths(&path).collect(),
        held: false,
        exe: adapter.regatta_exe.clone(),
        data_dir: adapter.data_dir.clone(),
        run_dir: dir.0.clone(),
        workspace,
        begins: None,
        home: home.path.clone(),
        tmp: dir.path("tmp"),
        outbox: dir.path("tmp"),
        vault_objects: asked.objects.clone(),
        inputs: vec![],
        real_homes: confine::real_homes(),
        hidden: asked.hidden.clone(),
        read: home.read,
        write: home.write,
    })?;
    let home = prepared.mechanism.map(|_| home.path);
    Ok(Shut { prepared, home })
}

/// One home for all the commands of a project.
fn home_of(data_dir: &Path, asked: &ShutIn) -> PathBuf {
    data_dir.join("check-homes").join(asked.project.as_str())
}
