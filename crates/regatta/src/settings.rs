//! Settings: flag > environment > `regatta.toml` > `~/.config/regatta/config.toml` > default.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::out::{Failed, failed};

/// What a settings file may say. Unknown fields are kept out with a clear error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) project: Project,
    pub(crate) validation: Validation,
    pub(crate) run: Run,
    pub(crate) landing: Landing,
    pub(crate) daemon: Daemon,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Project {
    pub(crate) name: Option<String>,
    pub(crate) trunk: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Validation {
    pub(crate) commands: Option<Vec<String>>,
    pub(crate) timeout: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Run {
    pub(crate) max_workers: Option<u32>,
    pub(crate) agents: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Landing {
    pub(crate) checkout: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Daemon {
    pub(crate) listen: Option<String>,
    pub(crate) max_attempts: Option<u32>,
}

/// Reads a settings file; a missing one says nothing.
pub(crate) fn read(path: &Path) -> Result<Option<File>, Failed> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => {
            return Err(failed(
                "bad_config",
                format!("{} cannot be read: {error}", path.display()),
                "look at its permissions",
            ));
        }
    };
    toml::from_str(&text).map(Some).map_err(|error| {
        failed(
            "bad_config",
            format!("{} cannot be understood: {}", path.display(), error.to_string().trim_end()),
            "mend it, or make a fresh one: regatta init --print",
        )
    })
}

/// The user's own settings file.
pub(crate) fn user_file() -> Option<PathBuf> {
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|it| it.is_absolute());
    config
        .or_else(|| std::env::var_os("HOME").map(|it| PathBuf::from(it).join(".config")))
        .map(|it| it.join("regatta/config.toml"))
}

/// Where everything Regatta keeps is: `REGATTA_DATA_DIR`, or the XDG data directory.
pub(crate) fn data_dir() -> Result<(PathBuf, &'static str), Failed> {
    if let Some(dir) = std::env::var_os("REGATTA_DATA_DIR").filter(|it| !it.is_empty()) {
        let dir = std::path::absolute(&dir).map_err(|it| {
            failed("bad_config", format!("REGATTA_DATA_DIR cannot be used: {it}"), "give an absolute path")
        })?;
        return Ok((dir, "REGATTA_DATA_DIR"));
    }
    if let Some(dir) = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|it| it.is_absolute()) {
        return Ok((dir.join("regatta"), "XDG_DATA_HOME"));
    }
    match std::env::var_os("HOME").map(PathBuf::from).filter(|it| it.is_absolute()) {
        Some(home) => Ok((home.join(".local/share/regatta"), "default")),
        None => Err(failed(
            "bad_config",
            "there is no HOME, so it is not clear where to keep things",
            "set REGATTA_DATA_DIR to a directory",
        )),
    }
}

/// One setting and where its value comes from.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) origin: String,
}

/// Every setting with its value and origin, for the repository at `repo`.
pub(crate) fn all(repo: &Path) -> Result<Vec<Setting>, Failed> {
    let files = files(repo)?;
    let (dir, origin) = data_dir()?;
    let mut found = vec![Setting { name: "data_dir", value: dir.display().to_string(), origin: origin.into() }];
    let mut add = |name: &'static str, env: &str, pick: &dyn Fn(&File) -> Option<String>, default: &str| {
        let from_env = std::env::var(env).ok().filter(|it| !it.is_empty()).map(|it| (it, env.to_owned()));
        let from_file = || files.iter().find_map(|(path, file)| pick(file).map(|it| (it, path.display().to_string())));
        let (value, origin) = from_env.or_else(from_file).unwrap_or_else(|| (default.to_owned(), "default".to_owned()));
        found.push(Setting { name, value, origin });
    };
    add("project.name", "REGATTA_PROJECT", &|it| it.project.name.clone(), "");
    add("project.trunk", "REGATTA_TRUNK", &|it| it.project.trunk.clone(), "");
    add(
        "validation.commands",
        "REGATTA_VALIDATION",
        &|it| it.validation.commands.as_ref().map(|it| it.join(" && ")),
        "",
    );
    add("validation.timeout", "REGATTA_VALIDATION_TIMEOUT", &|it| it.validation.timeout.clone(), "10m");
    add("run.max_workers", "REGATTA_MAX_WORKERS", &|it| it.run.max_workers.map(|it| it.to_string()), "5");
    add("run.agents", "REGATTA_AGENTS", &|it| it.run.agents.as_ref().map(|it| it.join(",")), "");
    add("landing.checkout", "REGATTA_CHECKOUT", &|it| it.landing.checkout.clone(), "update");
    add("daemon.listen", "REGATTA_LISTEN", &|it| it.daemon.listen.clone(), "127.0.0.1:7777");
    add("daemon.max_attempts", "REGATTA_MAX_ATTEMPTS", &|it| it.daemon.max_attempts.map(|it| it.to_string()), "8");
    Ok(found)
}

/// The value of one setting; empty when nothing sets it.
pub(crate) fn value(settings: &[Setting], name: &str) -> String {
    settings.iter().find(|it| it.name == name).map(|it| it.value.clone()).unwrap_or_default()
}

/// The settings files that count here, nearest first.
fn files(repo: &Path) -> Result<Vec<(PathBuf, File)>, Failed> {
    let mut found = Vec::new();
    let near = repo.ancestors().map(|it| it.join("regatta.toml")).find(|it| it.is_file());
    for path in near.into_iter().chain(user_file()) {
        if let Some(file) = read(&path)? {
            found.push((path, file));
        }
    }
    Ok(found)
}

/// Reads a duration: `500ms`, `30s`, `10m`, `2h`, `1d`, or plain seconds.
pub(crate) fn duration_ms(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "ms" => 1.0,
        "" | "s" => 1_000.0,
        "m" | "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return Err(format!("{text:?} is not a duration; write 500ms, 30s, 10m, 2h or 1d")),
    };
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() && number * factor < 1e15 => Ok((number * factor).round() as u64),
        _ => Err(format!("{text:?} is not a duration; write 500ms, 30s, 10m, 2h or 1d")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_people_write_them() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("1.5s", 1_500),
            ("7", 7_000),
            ("0", 0),
        ] {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
        }
        for bad in ["", "s", "-1s", "1x", "1e99", "NaN", "1.2.3s", "999999999999999d"] {
            assert!(duration_ms(bad).is_err(), "{bad}");
        }
    }
}
