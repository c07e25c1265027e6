//! Remembers the sources of bridges' environment variables across restarts of the daemon. Bridges
//! connect agents to Slack, GitHub, Linear and Telegram; the variables contain the bridges' tokens
//! and settings.
//!
//! If the daemon is not running, any command in any shell starts it. A daemon that replaces a
//! crashed daemon therefore often has an environment without the variables. `bridges/sources.json`
//! in the data directory lists the variables that were used at the last start and the source of
//! each: a file, a command, or the environment. The daemon reads files and runs commands again. A
//! value that was only in the environment is lost, and the bridge reports the missing value. No
//! secret is stored.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regatta_agents::redact::redact_text;
use regatta_agents::secrets;
use regatta_bridges::config::{
    self, BridgeRegistry, BridgeVariables, SETTING_VARIABLES, VariableOrigin,
};
use regatta_core::agent::{SecretSource, SecretVariable};
use serde::{Deserialize, Serialize};

/// The source of the value of a bridge's environment variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum VariableSource {
    /// The daemon's own environment contained the variable. Its value is not stored, because it may
    /// be a secret.
    Environment,
    File(String),
    Command(String),
    /// The daemon's own environment contained the variable. This value is stored, because it
    /// contains no secret.
    Value(String),
}

/// Looks up the environment variables of bridges, which connect agents to services such as Slack.
/// Searches this daemon's environment first, and then the sources in which an earlier daemon found
/// the variables.
pub(crate) struct BridgeEnvironment {
    path: PathBuf,
    stored: BTreeMap<String, VariableSource>,
    /// The source in which each variable was found at this start of the daemon, by the variable's
    /// name.
    used: RefCell<BTreeMap<String, VariableSource>>,
    /// True if the daemon's environment contains at least one variable of a bridge.
    has_bridge_variables: bool,
}

impl BridgeEnvironment {
    /// Reads the sources of the variables that an earlier daemon stored in the data directory.
    pub(crate) fn read(data_dir: &Path) -> BridgeEnvironment {
        let path = data_dir.join("bridges/sources.json");
        let stored = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(
                    "could not parse the file {}; bridges whose variables are missing in this \
                     daemon's environment stay off: {error}",
                    path.display()
                );
                BTreeMap::new()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                tracing::warn!(
                    "could not read the file {}; bridges whose variables are missing in this \
                     daemon's environment stay off: {error}",
                    path.display()
                );
                BTreeMap::new()
            }
        };
        let has_bridge_variables = std::env::vars_os()
            .filter(|(_, value)| !value.is_empty())
            .any(|(name, _)| name.to_str().is_some_and(config::is_bridge_variable));
        BridgeEnvironment {
            path,
            stored,
            used: RefCell::default(),
            has_bridge_variables,
        }
    }

    /// Stores the sources of the environment variables that bridges use now, so that the next
    /// daemon finds the values again.
    pub(crate) fn store_used_sources(self, registry: &BridgeRegistry) -> std::io::Result<()> {
        let used = self.used.into_inner();
        // If a bridge setting is invalid, nobody knows which variables the bridges use, so keep the
        // stored sources of all secrets.
        let mut sources = self.stored.clone();
        sources.retain(|name, _| {
            !registry.faults.is_empty() && !SETTING_VARIABLES.contains(&name.as_str())
        });
        for (name, origin) in &registry.used_variables {
            let source = match origin {
                VariableOrigin::Environment => used.get(name),
                VariableOrigin::Remembered => self.stored.get(name),
            };
            sources.extend(source.map(|source| (name.clone(), source.clone())));
        }
        if sources == self.stored {
            return Ok(());
        }
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        crate::daemon::write_atomically(&self.path, &serde_json::to_string_pretty(&sources)?)
    }
}

impl BridgeVariables for BridgeEnvironment {
    fn current(&self, name: &str) -> Result<Option<String>, String> {
        if let Some(value) = daemon_variable(name) {
            let is_plain = SETTING_VARIABLES.contains(&name) && redact_text(&value) == value;
            let source = if is_plain {
                VariableSource::Value(value.clone())
            } else {
                VariableSource::Environment
            };
            self.used.borrow_mut().insert(name.to_owned(), source);
            return Ok(Some(value));
        }
        // Accept both spellings of a variable that belongs to one agent: `VAR__AGENT_FILE` and
        // `VAR_FILE__AGENT`.
        let spelt = |ending: &str| {
            let inner = name
                .split_once("__")
                .map(|(variable, agent)| format!("{variable}{ending}__{agent}"));
            std::iter::once(format!("{name}{ending}")).chain(inner)
        };
        let file = spelt("_FILE")
            .find_map(|name| daemon_variable(&name))
            .map(|path| VariableSource::File(absolute_path(path)));
        let Some(source) = file.or_else(|| {
            spelt("_COMMAND")
                .find_map(|name| daemon_variable(&name))
                .map(VariableSource::Command)
        }) else {
            return Ok(None);
        };
        self.used
            .borrow_mut()
            .insert(name.to_owned(), source.clone());
        read_source(name, &source)
    }

    fn stored_value(&self, name: &str) -> Result<Option<String>, String> {
        let Some(source) = self.stored.get(name) else {
            return Ok(None);
        };
        match source {
            // If the environment contains any variable of bridges, treat the environment as
            // complete: a setting that is missing there was removed on purpose, so ignore its
            // stored value.
            _ if self.has_bridge_variables && SETTING_VARIABLES.contains(&name) => Ok(None),
            VariableSource::Environment => Err(format!(
                "the previous daemon had {name} in its environment, and this one does not; start \
                 the daemon with the \
                 variable, or store the value in a file and set {name}_FILE to its path (to do \
                 without it, set {name}=)"
            )),
            source => read_source(name, source),
        }
    }

    fn is_set_to_empty(&self, name: &str) -> bool {
        std::env::var_os(name).is_some_and(|value| value.is_empty())
    }
}

fn daemon_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Makes a path absolute, because the next daemon may start in another directory.
fn absolute_path(path: String) -> String {
    if path.starts_with('~') {
        return path;
    }
    std::path::absolute(&path).map_or(path, |path| path.to_string_lossy().into_owned())
}

fn read_source(name: &str, source: &VariableSource) -> Result<Option<String>, String> {
    let from = match source {
        VariableSource::Value(value) => return Ok(Some(value.clone())),
        VariableSource::Environment => return Ok(daemon_variable(name)),
        VariableSource::File(path) => SecretSource::File(path.clone()),
        VariableSource::Command(line) => SecretSource::Command(line.clone()),
    };
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let key = SecretVariable {
        name: name.to_owned(),
        from,
    };
    let found = secrets::fetch_secrets(&[key], daemon_variable, &home, secrets::COMMAND_TIMEOUT);
    let found = found.map_err(|error| format!("{error} {}", error.hint))?;
    found
        .warnings
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    Ok(found.values.into_iter().next().map(|(_, value)| value))
}
