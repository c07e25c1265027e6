//! Asks an agent's program which models it offers.
//!
//! Only programs that can list their models without opening a session are asked. Each such program
//! may take a few seconds to answer, so its answer is cached.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::presets::{ModelSource, Preset};
use crate::program_discovery::{MachineFacts, ProgramQuery};

/// The time for which a program's list of models is cached. The time is short because a user may
/// meanwhile sign in or edit the program's settings.
const CACHE_LIFETIME: Duration = Duration::from_secs(300);

/// The maximum number of lists of models in the cache.
const MAX_CACHED_ANSWERS: usize = 64;

/// The key of a cached list of models: the program's path, the home directory it reads, and the
/// environment variables it gets.
type ModelCacheKey = (PathBuf, PathBuf, Vec<(String, String)>);
type ModelCache = BTreeMap<ModelCacheKey, (Instant, Option<Vec<String>>)>;

static MODEL_CACHE: Mutex<ModelCache> = Mutex::new(BTreeMap::new());

/// Returns the models that a program offers, or `None` if it cannot list them or did not answer.
pub fn list_models(
    preset: &Preset,
    program: &Path,
    machine: &MachineFacts,
    env: &[(String, String)],
) -> Option<Vec<String>> {
    if preset.models == ModelSource::Unknown {
        return None;
    }
    let key = (program.to_owned(), machine.home.clone(), env.to_vec());
    let cache = || MODEL_CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((cached_at, models)) = cache().get(&key)
        && cached_at.elapsed() < CACHE_LIFETIME
    {
        return models.clone();
    }
    let models = query_models(preset, program, machine, env);
    let mut cache = cache();
    cache.retain(|_, (cached_at, _)| cached_at.elapsed() < CACHE_LIFETIME);
    if cache.len() < MAX_CACHED_ANSWERS {
        cache.insert(key, (Instant::now(), models.clone()));
    }
    models
}

fn query_models(
    preset: &Preset,
    program: &Path,
    machine: &MachineFacts,
    env: &[(String, String)],
) -> Option<Vec<String>> {
    match preset.models {
        ModelSource::Unknown => None,
        ModelSource::Lines(args) => {
            let text = ProgramQuery {
                args,
                env,
                ..ProgramQuery::default()
            }
            .run(program, machine)?;
            // Keep only lines without spaces: a model's name contains none, so any other line is a
            // message.
            let names = text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.contains(char::is_whitespace));
            Some(names.map(str::to_owned).collect())
        }
        ModelSource::CodexServer => {
            let requests = "{\"id\":1,\"method\":\"initialize\",\"params\":{\"clientInfo\":{\"name\":\"regatta\",\"version\":\"1\"}}}\n\
                        {\"method\":\"initialized\"}\n{\"id\":2,\"method\":\"model/list\",\"params\":{}}\n";
            let args = &[
                "app-server",
                "-c",
                "features.plugins=false",
                "-c",
                "features.apps=false",
                "-c",
                "features.shell_snapshot=false",
            ];
            let query = ProgramQuery {
                args,
                input: requests,
                is_answer: Some(|line| line.starts_with("{\"id\":2,")),
                env,
            };
            let answer: Value = serde_json::from_str(&query.run(program, machine)?).ok()?;
            let listed = answer["result"]["data"].as_array()?;
            Some(
                listed
                    .iter()
                    .filter_map(|model| model["model"].as_str().map(str::to_owned))
                    .collect(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn program_with_text(dir: &Path, text: &str) -> (PathBuf, MachineFacts) {
        let path = dir.join("program");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        (
            path,
            MachineFacts {
                path: "/bin:/usr/bin".into(),
                home: dir.to_owned(),
                variables: vec![],
            },
        )
    }

    fn preset(name: &str) -> &'static Preset {
        presets::find_preset(name).unwrap().0
    }

    #[test]
    fn models_of_a_program_are_listed_once_per_environment() {
        let dir = tempfile::tempdir().unwrap();
        let (path, machine) = program_with_text(
            dir.path(),
            "echo asked >> $HOME/asked\necho a/one\necho A sentence.\necho $MINE",
        );
        let env = [("MINE".to_owned(), "b/two".to_owned())];
        for _ in 0..3 {
            let models = list_models(preset("opencode"), &path, &machine, &env).unwrap();
            assert_eq!(models, ["a/one", "b/two"]);
        }
        assert_eq!(
            fs::read_to_string(dir.path().join("asked")).unwrap(),
            "asked\n"
        );
        // A program with other variables is asked again.
        assert_eq!(
            list_models(preset("opencode"), &path, &machine, &[]).unwrap(),
            ["a/one"]
        );
    }

    #[test]
    fn models_are_read_from_a_server_that_keeps_waiting_for_input() {
        let dir = tempfile::tempdir().unwrap();
        let script = r#"read a; read b; read c; echo '{"id":1,"result":{}}'
echo '{"id":2,"result":{"data":[{"model":"gpt-a"},{"model":"gpt-b"}]}}'; cat > /dev/null"#;
        let (path, machine) = program_with_text(dir.path(), script);
        assert_eq!(
            list_models(preset("codex-native"), &path, &machine, &[]).unwrap(),
            ["gpt-a", "gpt-b"]
        );
    }

    #[test]
    fn program_without_a_model_list_is_not_started_and_a_failed_list_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let (path, machine) =
            program_with_text(dir.path(), "echo asked >> $HOME/asked; echo a/one; exit 1");
        assert_eq!(
            list_models(preset("claude-native"), &path, &machine, &[]),
            None
        );
        assert!(!dir.path().join("asked").exists());
        assert_eq!(list_models(preset("opencode"), &path, &machine, &[]), None);
    }
}
