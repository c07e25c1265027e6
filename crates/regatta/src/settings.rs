//! Reads the settings files and the environment, and merges them into settings.
//!
//! The order of precedence is: flag, environment, `regatta.toml`, `~/.config/regatta/config.toml`,
//! default. Flags are handled by the commands themselves.

use std::path::{Path, PathBuf};

use regatta_bridges::config;
use regatta_core::lane::LaneSettings;
use regatta_core::project;
use regatta_core::spelling;
use regatta_engine::prices::{self, ModelPrice};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::output::{CommandError, command_error};

/// The content of a settings file, `regatta.toml` or `config.toml`. An unknown field is an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SettingsFile {
    pub(crate) project: ProjectSection,
    pub(crate) validation: ValidationSection,
    pub(crate) run: project::RunSettings,
    pub(crate) landing: project::LandingSettings,
    pub(crate) workspace: project::WorkspaceSettings,
    pub(crate) knowledge: project::KnowledgeSettings,
    pub(crate) leads: project::LeadSettings,
    pub(crate) router: project::RouterSettings,
    pub(crate) lanes: LaneSettings,
    pub(crate) notify: project::NotifySettings,
    pub(crate) rule: Vec<project::StandingRule>,
    pub(crate) daemon: DaemonSection,
    /// The agents that bridges connect to services. Only the user's own file may have this section
    /// and `bridges`. Both sections are parsed later, by [`crate::bridges`], because a mistake in
    /// them must only switch off bridges and not keep the daemon from starting.
    pub(crate) agents: toml::Table,
    pub(crate) bridges: toml::Table,
    /// Prices of models, which take precedence over the built-in table. Only the user's own file
    /// may have them.
    pub(crate) price: Vec<ModelPrice>,
}

impl Default for SettingsFile {
    fn default() -> SettingsFile {
        let bridges = toml::Table::try_from(config::BridgesConfig::default());
        SettingsFile {
            project: Default::default(),
            validation: Default::default(),
            run: Default::default(),
            landing: Default::default(),
            workspace: Default::default(),
            knowledge: Default::default(),
            leads: Default::default(),
            router: Default::default(),
            lanes: Default::default(),
            notify: Default::default(),
            rule: vec![],
            daemon: Default::default(),
            agents: toml::Table::new(),
            bridges: bridges.expect("settings are tables of plain values"),
            price: vec![],
        }
    }
}

/// The two files that can contain settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// `regatta.toml`, which belongs to a repository.
    Repository,
    /// `config.toml`, the user's own file.
    User,
}

/// Tables that count only in the user's own file. They concern the machine and the accounts of a
/// person, so a repository that somebody clones must not be able to set them.
const USER_TABLES: [&str; 4] = ["agents", "bridges", "daemon", "price"];

/// Settings that count only in `regatta.toml`, because they are read from the tree that lands.
const REPOSITORY_SETTINGS: [&str; 1] = ["validation.commands"];

impl FileKind {
    /// Returns true if a setting such as `landing.review` counts in this kind of file.
    pub(crate) fn has_setting(self, name: &str) -> bool {
        let table = name.split(['.', '[']).next().unwrap_or(name);
        match self {
            FileKind::Repository => !USER_TABLES.contains(&table),
            FileKind::User => !REPOSITORY_SETTINGS.contains(&name),
        }
    }

    /// Refuses settings that do not count in this kind of file.
    fn check(self, path: &Path, table: &toml::Table) -> Result<(), CommandError> {
        let (names, other) = match self {
            FileKind::Repository => (
                &USER_TABLES[..],
                user_file().map_or_else(|| "config.toml".to_owned(), |path| display_path(&path)),
            ),
            FileKind::User => (
                &REPOSITORY_SETTINGS[..],
                "the regatta.toml of the repository".to_owned(),
            ),
        };
        let Some(name) = names.iter().find(|name| value_at(table, name).is_some()) else {
            return Ok(());
        };
        let message = match self {
            FileKind::Repository => format!(
                "invalid settings in {}: [{name}] counts only in your own file, config.toml",
                path.display()
            ),
            FileKind::User => format!(
                "invalid settings in {}: {name} counts only in the regatta.toml of a repository",
                path.display()
            ),
        };
        Err(command_error(
            "bad_config",
            message,
            format!("move {name} to {other}"),
        ))
    }
}

/// A settings file, and a table of only those fields that the file contains.
pub(crate) struct SettingsLayer {
    path: PathBuf,
    table: toml::Table,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProjectSection {
    pub(crate) name: Option<String>,
    pub(crate) trunk: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ValidationSection {
    pub(crate) commands: Option<Vec<String>>,
    pub(crate) timeout: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DaemonSection {
    pub(crate) listen: Option<String>,
    /// The file of the TLS certificate for connections from other machines. Its key is in
    /// `tls_key`.
    pub(crate) tls_cert: Option<String>,
    pub(crate) tls_key: Option<String>,
    /// The host names by which other machines reach the daemon.
    pub(crate) hosts: Option<Vec<String>>,
    pub(crate) insecure_listen: Option<bool>,
    pub(crate) max_attempts: Option<u32>,
}

/// Reads the check commands and their timeout from the text of a `regatta.toml`. Mistakes in other
/// sections are ignored here.
pub(crate) fn parse_checks(text: &str) -> Result<regatta_engine::CheckSettings, String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let Some(validation) = table.get("validation") else {
        return Ok(regatta_engine::CheckSettings::default());
    };
    let validation: ValidationSection = parse_value(validation)?;
    let timeout_ms = validation.timeout.as_deref().map(duration_ms).transpose()?;
    Ok(regatta_engine::CheckSettings {
        commands: validation.commands,
        timeout_ms,
    })
}

/// Parses settings that were already read as a table.
///
/// They are parsed from text again. The program would otherwise contain the code that reads the
/// settings from a table in addition to the code that reads them from text.
fn parse_value<T: DeserializeOwned>(value: &toml::Value) -> Result<T, String> {
    let Some(table) = value.as_table() else {
        return Err(format!("expected a table, found {}", value.type_str()));
    };
    let text = toml::to_string(table).map_err(|error| error.to_string())?;
    toml::from_str(&text).map_err(|error| error.message().to_owned())
}

/// Reads a settings file. Returns `None` if the file does not exist.
pub(crate) fn read_file(path: &Path, kind: FileKind) -> Result<Option<SettingsFile>, CommandError> {
    Ok(read_layer(path, kind)?.map(|(file, _)| file))
}

/// Reads a settings file. Returns the parsed settings, with defaults, and a table of only those
/// fields that the file contains. Returns `None` if the file does not exist.
fn read_layer(
    path: &Path,
    kind: FileKind,
) -> Result<Option<(SettingsFile, toml::Table)>, CommandError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(error) => {
            return Err(command_error(
                "bad_config",
                format!(
                    "could not read the settings file {}: {error}",
                    path.display()
                ),
                "check the permissions of the file",
            ));
        }
    };
    let bad = |error: toml::de::Error| {
        let hint = match spelling::meant_word(error.message()) {
            Some(meant) => format!("write `{meant}`"),
            None => "correct the file, or print a new one: regatta init --print".to_owned(),
        };
        let message = format!(
            "invalid settings in {}: {}",
            path.display(),
            error.to_string().trim_end()
        );
        command_error("bad_config", message, hint)
    };
    let file = toml::from_str(&text).map_err(bad)?;
    let table = toml::from_str(&text).map_err(bad)?;
    kind.check(path, &table)?;
    Ok(Some((file, table)))
}

/// Returns the path of the user's own settings file, `~/.config/regatta/config.toml` unless
/// `XDG_CONFIG_HOME` is set.
pub(crate) fn user_file() -> Option<PathBuf> {
    let config = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    config
        .or_else(|| std::env::var_os("HOME").map(|name| PathBuf::from(name).join(".config")))
        .map(|path| path.join("regatta/config.toml"))
}

/// Returns the prices of models: first the prices in the user's own settings file, then the
/// built-in prices. For each model the first match is used.
pub(crate) fn load_prices() -> Result<Vec<ModelPrice>, CommandError> {
    match user_file() {
        Some(path) => load_prices_from(&path),
        None => Ok(prices::default_prices()),
    }
}

/// Returns the prices in a file, followed by the built-in prices.
pub(crate) fn load_prices_from(path: &Path) -> Result<Vec<ModelPrice>, CommandError> {
    let user_prices = read_file(path, FileKind::User)?
        .map(|settings_file| settings_file.price)
        .unwrap_or_default();
    if let Some(invalid) = user_prices
        .iter()
        .find(|model_price| !model_price.is_valid())
    {
        return Err(command_error(
            "bad_config",
            format!(
                "the settings file {file} has an invalid price for the model {model:?}",
                file = path.display(),
                model = invalid.model
            ),
            "write the price in US dollars per million tokens, 0 or more",
        ));
    }
    Ok([user_prices, prices::default_prices()].concat())
}

/// Reads the sections `agents` and `bridges` from the user's own settings file. Returns mistakes as
/// part of the result instead of failing, so that the daemon starts anyway.
pub(crate) fn load_bridges() -> config::BridgeSettings {
    let file = user_file().map(|path| read_file(&path, FileKind::User));
    let file = match file.transpose() {
        Ok(file) => file.flatten().unwrap_or_default(),
        Err(error) => {
            return config::BridgeSettings {
                agents: vec![],
                config: Err(error.message()),
            };
        }
    };
    bridge_settings(file)
}

/// Parses the sections `agents` and `bridges` of the user's own settings file. Returns mistakes as
/// part of the result.
pub(crate) fn bridge_settings(file: SettingsFile) -> config::BridgeSettings {
    let agents = file
        .agents
        .into_iter()
        .map(|(name, entry)| (name, parse_value::<config::AgentEntry>(&entry)));
    let config = parse_value::<config::BridgesConfig>(&file.bridges.into());
    config::BridgeSettings {
        agents: agents.collect(),
        config,
    }
}

/// Returns the data directory and the source of its path: `REGATTA_DATA_DIR`, the XDG data
/// directory, or the default.
pub(crate) fn data_dir() -> Result<(PathBuf, &'static str), CommandError> {
    if let Some(dir) = std::env::var_os("REGATTA_DATA_DIR").filter(|name| !name.is_empty()) {
        let dir = std::path::absolute(&dir).map_err(|error| {
            command_error(
                "bad_config",
                format!("REGATTA_DATA_DIR is not a valid path: {error}"),
                "set REGATTA_DATA_DIR to an absolute path, or unset it",
            )
        })?;
        return Ok((dir, "REGATTA_DATA_DIR"));
    }
    if let Some(dir) = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
    {
        return Ok((dir.join("regatta"), "XDG_DATA_HOME"));
    }
    match std::env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
    {
        Some(home) => Ok((home.join(".local/share/regatta"), "default")),
        None => Err(command_error(
            "bad_config",
            "HOME is not set, so there is no place for the data directory",
            "set REGATTA_DATA_DIR to a directory",
        )),
    }
}

/// A setting, its value, and the source of the value: a file, an environment variable or `default`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ResolvedSetting {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) origin: String,
}

/// The settings that `config show` lists first: the setting's name, the environment variable that
/// can set it (empty if none can), and the default if [`SettingsFile`] contains no default.
pub(crate) const ENVIRONMENT_SETTINGS: &[(&str, &str, &str)] = &[
    ("project.name", "REGATTA_PROJECT", ""),
    ("project.trunk", "REGATTA_TRUNK", ""),
    ("validation.timeout", "REGATTA_VALIDATION_TIMEOUT", "10m"),
    ("run.max_workers", "REGATTA_MAX_WORKERS", "5"),
    ("run.agents", "REGATTA_AGENTS", ""),
    ("landing.checkout", "REGATTA_CHECKOUT", ""),
    ("daemon.listen", "REGATTA_LISTEN", "127.0.0.1:7777"),
    ("daemon.tls_cert", "REGATTA_TLS_CERT", ""),
    ("daemon.tls_key", "REGATTA_TLS_KEY", ""),
    ("daemon.hosts", "REGATTA_HOSTS", ""),
    ("daemon.insecure_listen", "REGATTA_INSECURE_LISTEN", ""),
    ("daemon.max_attempts", "REGATTA_MAX_ATTEMPTS", "8"),
];

/// Returns every setting with its value and the source of the value, for the repository at `repo`.
pub(crate) fn resolve_all(repo: &Path) -> Result<Vec<ResolvedSetting>, CommandError> {
    resolve_layers(&read_layers(repo, user_file())?, &|name| {
        std::env::var(name).ok()
    })
}

/// Returns every setting with its value and the source of the value. `environment` returns the
/// value of an environment variable.
pub(crate) fn resolve_layers(
    layers: &[SettingsLayer],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<ResolvedSetting>, CommandError> {
    let (dir, origin) = data_dir()?;
    let mut resolved = vec![ResolvedSetting {
        name: "data_dir".into(),
        value: dir.display().to_string(),
        origin: origin.into(),
    }];
    for (name, env, default) in ENVIRONMENT_SETTINGS {
        let from_env = environment(env)
            .filter(|s| !s.is_empty())
            .map(|s| (s, (*env).to_owned()));
        let from_file = || {
            layers.iter().find_map(|layer| {
                Some((
                    format_value(name, value_at(&layer.table, name)?),
                    display_path(&layer.path),
                ))
            })
        };
        let default_value = || {
            value_at(&default_settings(), name)
                .map_or_else(|| (*default).to_owned(), |value| format_value(name, value))
        };
        let (value, origin) = from_env
            .or_else(from_file)
            .unwrap_or_else(|| (default_value(), "default".to_owned()));
        resolved.push(ResolvedSetting {
            name: (*name).to_owned(),
            value,
            origin,
        });
    }
    let mut names = Vec::new();
    collect_value_names(&default_settings(), "", &mut names);
    layers
        .iter()
        .for_each(|layer| collect_value_names(&layer.table, "", &mut names));
    names.sort();
    names.dedup();
    names.retain(|name| {
        resolved
            .iter()
            .all(|resolved_setting| resolved_setting.name != *name)
    });
    for name in names {
        let from_file = layers.iter().find_map(|layer| {
            Some((
                format_value(&name, value_at(&layer.table, &name)?),
                display_path(&layer.path),
            ))
        });
        let default_value = || {
            (
                value_at(&default_settings(), &name)
                    .map_or_else(String::new, |value| format_value(&name, value)),
                "default".to_owned(),
            )
        };
        let (value, origin) = from_file.unwrap_or_else(default_value);
        resolved.push(ResolvedSetting {
            name,
            value,
            origin,
        });
    }
    Ok(resolved)
}

/// Returns the settings that the daemon needs for the project at `repo`, from the settings files
/// and the environment.
pub(crate) fn project_settings(repo: &Path) -> Result<project::ProjectSettings, CommandError> {
    project_settings_of(&read_layers(repo, user_file())?)
}

/// Merges settings files into one. The first file that has a setting counts.
pub(crate) fn merge_layers(layers: &[SettingsLayer]) -> Result<SettingsFile, CommandError> {
    let mut merged = toml::Table::new();
    for layer in layers.iter().rev() {
        merge_tables(&mut merged, layer.table.clone());
    }
    parse_value(&merged.into()).map_err(|message| {
        command_error(
            "bad_config",
            message,
            "see where each setting comes from: regatta config show --origin",
        )
    })
}

/// Returns the settings that the daemon needs for a project with these settings files.
pub(crate) fn project_settings_of(
    layers: &[SettingsLayer],
) -> Result<project::ProjectSettings, CommandError> {
    let mut settings = project_settings_from(merge_layers(layers)?)?;
    if let Ok(checkout) = std::env::var("REGATTA_CHECKOUT") {
        settings.landing.checkout = match checkout.as_str() {
            "skip" => project::CheckoutPolicy::Skip,
            "update" | "" => project::CheckoutPolicy::Update,
            other => {
                return Err(command_error(
                    "bad_config",
                    format!("REGATTA_CHECKOUT is {other:?}, which is not a valid value"),
                    "set REGATTA_CHECKOUT to update or skip",
                ));
            }
        };
    }
    Ok(settings)
}

/// Returns the settings of a project that a settings file contains, or an error if their values
/// cannot be used.
pub(crate) fn project_settings_from(
    file: SettingsFile,
) -> Result<project::ProjectSettings, CommandError> {
    if let Some(quiet) = file
        .notify
        .quiet
        .as_ref()
        .filter(|quiet| crate::notifications::QuietHours::parse(quiet).is_none())
    {
        return Err(command_error(
            "bad_config",
            format!("quiet under [notify] is {quiet:?}, which is not a range of hours"),
            "set quiet to two times of the day, such as \"22:00-07:00\"",
        ));
    }
    Ok(project::ProjectSettings {
        landing: file.landing,
        workspace: file.workspace,
        run: file.run,
        knowledge: file.knowledge,
        leads: file.leads,
        router: file.router,
        lanes: file.lanes,
        notify: file.notify,
        rule: file.rule,
    })
}

/// Returns the value of the setting with this name, or an empty text if it is not set.
pub(crate) fn value_of(settings: &[ResolvedSetting], name: &str) -> String {
    settings
        .iter()
        .find(|resolved_setting| resolved_setting.name == name)
        .map(|resolved_setting| resolved_setting.value.clone())
        .unwrap_or_default()
}

/// Returns the `regatta.toml` in a directory or its nearest parent that has one.
pub(crate) fn nearest_file(dir: &Path) -> Option<PathBuf> {
    dir.ancestors()
        .map(|parent| parent.join("regatta.toml"))
        .find(|path| path.is_file())
}

/// Returns true if one of the settings files contains this setting.
pub(crate) fn is_set_in(layers: &[SettingsLayer], setting: &str) -> bool {
    layers
        .iter()
        .any(|layer| value_at(&layer.table, setting).is_some())
}

/// Reads the settings files that apply to a directory: its `regatta.toml`, then the user's own
/// file.
pub(crate) fn read_layers(
    repo: &Path,
    user_file: Option<PathBuf>,
) -> Result<Vec<SettingsLayer>, CommandError> {
    let repository = nearest_file(repo).map(|path| (path, FileKind::Repository));
    let user = user_file.map(|path| (path, FileKind::User));
    let mut layers = Vec::new();
    for (path, kind) in repository.into_iter().chain(user) {
        if let Some((_, table)) = read_layer(&path, kind)? {
            layers.push(SettingsLayer { path, table });
        }
    }
    Ok(layers)
}

/// Returns true if this can be the name of a setting in a settings file. Only its table is checked,
/// such as `landing` in `landing.review`, except that `[daemon]` shares its names with the limits of
/// the running daemon.
pub(crate) fn is_file_setting(name: &str) -> bool {
    let mut known = ENVIRONMENT_SETTINGS.iter();
    let table = name.split('.').next().unwrap_or(name);
    known.any(|(known, ..)| *known == name)
        || (table != "daemon" && default_settings().contains_key(table))
}

/// Returns all settings with a default, as the table that a settings file would contain.
fn default_settings() -> toml::Table {
    toml::Table::try_from(SettingsFile::default()).expect("settings are tables of plain values")
}

fn display_path(path: &Path) -> String {
    path.display().to_string()
}

fn value_at<'a>(table: &'a toml::Table, name: &str) -> Option<&'a toml::Value> {
    let (first, rest) = name
        .split_once('.')
        .map_or((name, None), |(table, key)| (table, Some(key)));
    let value = table.get(first)?;
    match rest {
        Some(rest) => value_at(value.as_table()?, rest),
        None => Some(value),
    }
}

/// Adds to `into` the full names of all values in a table, such as `landing.review`. `below` is the
/// name of the table itself.
fn collect_value_names(table: &toml::Table, below: &str, into: &mut Vec<String>) {
    for (name, value) in table {
        let name = if below.is_empty() {
            name.clone()
        } else {
            format!("{below}.{name}")
        };
        match value {
            toml::Value::Table(object) => collect_value_names(object, &name, into),
            _ => into.push(name),
        }
    }
}

/// Formats a value as people type it: a text without quotes, and a list with commas, or with `&&`
/// for check commands.
fn format_value(name: &str, value: &toml::Value) -> String {
    let between = if name == "validation.commands" {
        " && "
    } else {
        ","
    };
    match value {
        toml::Value::String(s) => s.clone(),
        toml::Value::Array(items) if items.iter().all(|item| item.is_str()) => items
            .iter()
            .filter_map(|item| item.as_str())
            .collect::<Vec<_>>()
            .join(between),
        other => other.to_string(),
    }
}

/// Merges the table `over` into `under`. If both tables have a value, the value of `over` counts.
fn merge_tables(under: &mut toml::Table, over: toml::Table) {
    for (name, value) in over {
        match (under.get_mut(&name), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => {
                merge_tables(below, above)
            }
            (_, value) => _ = under.insert(name, value),
        }
    }
}

/// Parses a duration, such as `500ms`, `30s`, `10m`, `2h`, `1d`, or `90` for seconds. Returns
/// milliseconds.
pub(crate) fn duration_ms(text: &str) -> Result<u64, String> {
    project::Millis::parse(text).map(project::Millis::ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mistake in one agent or in the section of checks is reported with its key, and does not
    /// concern the other sections.
    #[test]
    fn mistakes_in_sections_that_are_parsed_later_are_named() {
        let text = "[agents]\nann = 3\n[agents.bob]\ncommand = \"goose acp\"\n[agents.eve]\nx = 1";
        let file: SettingsFile = toml::from_str(text).expect("the sections are parsed later");
        let settings = bridge_settings(file);
        let agents: Vec<_> = settings
            .agents
            .into_iter()
            .map(|(_, agent)| agent)
            .collect();
        assert_eq!(agents[0], Err("expected a table, found integer".into()));
        assert!(agents[1].is_ok());
        let error = agents[2].as_ref().expect_err("x is no key");
        assert!(error.starts_with("unknown field `x`, expected"), "{error}");

        let checks = parse_checks("[validation]\ncommands = 3").expect_err("a list is needed");
        assert!(checks.contains("invalid type: integer `3`"), "{checks}");
        let checks = parse_checks("validation = 3").expect_err("a table is needed");
        assert_eq!(checks, "expected a table, found integer");
    }
}
