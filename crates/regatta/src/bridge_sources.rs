//! Remembers across starts of the daemon where the variables of bridges come from.
//!
//! Any command starts a daemon that is not running, in any shell. A daemon that replaces a crashed
//! one therefore often has an environment without the variables. `bridges/sources.json` in the data
//! directory lists the variables that were used at the last start and the source of each: a file, a
//! command, or the environment. The daemon reads files and runs commands again. A value that was
//! only in the environment is lost, and the bridge reports that. No secret is stored.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regatta_agents::keys;
use regatta_agents::redact::redact_text;
use regatta_bridges::registry::{self, Origin, Registry, SETTING_VARIABLES, Variables};
use regatta_core::agent::{Key, KeySource};
use serde::{Deserialize, Serialize};

/// Where a variable's value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    /// The environment variable of the daemon itself.
    Environment,
    File(String),
    Command(String),
    /// The value itself, for a variable that holds no secret.
    Value(String),
}

/// The variables of this daemon's environment, and the sources that an earlier daemon used.
pub(crate) struct Environment {
    path: PathBuf,
    remembered: BTreeMap<String, Source>,
    /// The sources of the variables that were found at this start.
    found: RefCell<BTreeMap<String, Source>>,
    /// Whether the environment has at least one variable about bridges.
    names_bridges: bool,
}

impl Environment {
    /// Reads the sources that were stored in the data directory.
    pub(crate) fn read(data_dir: &Path) -> Environment {
        let path = data_dir.join("bridges/sources.json");
        let remembered = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!("could not parse {}, so no source is remembered: {error}", path.display());
                BTreeMap::new()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                tracing::warn!("could not read {}, so no source is remembered: {error}", path.display());
                BTreeMap::new()
            }
        };
        let names_bridges = std::env::vars_os()
            .filter(|(_, value)| !value.is_empty())
            .any(|(name, _)| name.to_str().is_some_and(registry::is_bridge_variable));
        Environment { path, remembered, found: RefCell::default(), names_bridges }
    }

    /// Stores the sources of the variables that are used now.
    pub(crate) fn remember(self, registry: &Registry) -> std::io::Result<()> {
        let found = self.found.into_inner();
        // An invalid setting hides which variables are used, so remembered sources are then kept.
        let mut kept = self.remembered.clone();
        kept.retain(|name, _| !registry.faults.is_empty() && !SETTING_VARIABLES.contains(&name.as_str()));
        for (name, origin) in &registry.used {
            let source = match origin {
                Origin::Now => found.get(name),
                Origin::Remembered => self.remembered.get(name),
            };
            kept.extend(source.map(|source| (name.clone(), source.clone())));
        }
        if kept == self.remembered {
            return Ok(());
        }
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        crate::daemon::write_whole(&self.path, &serde_json::to_string_pretty(&kept)?)
    }
}

impl Variables for Environment {
    fn now(&self, name: &str) -> Result<Option<String>, String> {
        if let Some(value) = own(name) {
            let is_plain = SETTING_VARIABLES.contains(&name) && redact_text(&value) == value;
            let source = if is_plain { Source::Value(value.clone()) } else { Source::Environment };
            self.found.borrow_mut().insert(name.to_owned(), source);
            return Ok(Some(value));
        }
        // `VAR__AGENT_FILE` and `VAR_FILE__AGENT` mean the same.
        let spelt = |ending: &str| {
            let inner = name.split_once("__").map(|(variable, agent)| format!("{variable}{ending}__{agent}"));
            std::iter::once(format!("{name}{ending}")).chain(inner)
        };
        let file = spelt("_FILE").find_map(|name| own(&name)).map(|path| Source::File(absolute(path)));
        let Some(source) = file.or_else(|| spelt("_COMMAND").find_map(|name| own(&name)).map(Source::Command)) else {
            return Ok(None);
        };
        self.found.borrow_mut().insert(name.to_owned(), source.clone());
        fetch(name, &source)
    }

    fn remembered(&self, name: &str) -> Result<Option<String>, String> {
        let Some(source) = self.remembered.get(name) else { return Ok(None) };
        match source {
            // An environment that names bridges is complete with regard to settings.
            _ if self.names_bridges && SETTING_VARIABLES.contains(&name) => Ok(None),
            Source::Environment => Err(format!(
                "the previous daemon had {name} in its environment, and this one does not; start the daemon with the \
                 variable, or store the value in a file and set {name}_FILE to its path (to do without it, set {name}=)"
            )),
            source => fetch(name, source),
        }
    }

    fn is_emptied(&self, name: &str) -> bool {
        std::env::var_os(name).is_some_and(|value| value.is_empty())
    }
}

fn own(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Makes a path independent of the directory in which the next daemon starts.
fn absolute(path: String) -> String {
    if path.starts_with('~') {
        return path;
    }
    std::path::absolute(&path).map_or(path, |path| path.to_string_lossy().into_owned())
}

fn fetch(name: &str, source: &Source) -> Result<Option<String>, String> {
    let from = match source {
        Source::Value(value) => return Ok(Some(value.clone())),
        Source::Environment => return Ok(own(name)),
        Source::File(path) => KeySource::File(path.clone()),
        Source::Command(line) => KeySource::Command(line.clone()),
    };
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let key = Key { name: name.to_owned(), from };
    let found = keys::resolve(&[key], own, &home, keys::PATIENCE);
    let found = found.map_err(|error| format!("{error} {}", error.hint))?;
    found.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    Ok(found.values.into_iter().next().map(|(_, value)| value))
}
