//! The sign-in that a known program needs, as part of an agent's profile.
//!
//! An agent's program starts with an environment built from nothing, so a key or a sign-in file
//! reaches it only if the profile names it. Every caller that makes an agent from a preset (the
//! command line, the bridges, a team's launch) therefore uses [`lend`].

use regatta_core::agent::{Key, KeySource, Level, Profile};

use crate::discover::{Machine, SignIn};
use crate::presets::Preset;

/// Adds the preset's sign-in files and those of its keys that are set on this machine.
///
/// Entries that the profile already has stay as they are, and nothing is removed.
pub fn lend(profile: &mut Profile, preset: &Preset, machine: &Machine) {
    for file in preset.credentials {
        let path = format!("~/{file}");
        if !profile.read.contains(&path) && !profile.write.contains(&path) {
            // Programs renew their sign-in themselves, so the file is writable.
            profile.write.push(path);
        }
    }
    for name in preset.keys {
        let is_known = has_key(profile, name);
        if !is_known && machine.variables.iter().any(|variable| variable == name) {
            profile.keys.push(Key { name: (*name).to_owned(), from: KeySource::Env((*name).to_owned()) });
        }
    }
}

/// Returns the sign-in that a program of this profile would find, which can be less than the user has.
pub fn available(profile: &Profile, preset: &Preset, machine: &Machine) -> SignIn {
    if preset.keys.is_empty() && preset.credentials.is_empty() {
        return SignIn::NotNeeded;
    }
    if let Some(name) = preset.keys.iter().find(|name| has_key(profile, name)) {
        return SignIn::Key((*name).to_owned());
    }
    let is_lent = |file: &&&str| {
        let path = format!("~/{file}");
        profile.confine == Some(Level::Off) || profile.read.contains(&path) || profile.write.contains(&path)
    };
    let files = preset.credentials.iter().filter(is_lent).map(|file| machine.home.join(file));
    files.into_iter().find(|file| file.is_file()).map_or(SignIn::None, SignIn::File)
}

fn has_key(profile: &Profile, name: &str) -> bool {
    profile.keys.iter().any(|key| key.name == name) || profile.env.iter().any(|(variable, _)| variable == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn machine(variables: &[&str]) -> Machine {
        let variables = variables.iter().map(|name| (*name).to_owned()).collect();
        Machine { path: "/bin".into(), home: "/nowhere".into(), variables }
    }

    #[test]
    fn lending_adds_files_and_set_keys_and_keeps_the_profiles_own() {
        let preset = presets::find("claude").unwrap().0;
        let mut profile = Profile::default();
        lend(&mut profile, preset, &machine(&["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]));
        let key = |from: KeySource| Key { name: "ANTHROPIC_API_KEY".into(), from };
        assert_eq!(profile.keys, [key(KeySource::Env("ANTHROPIC_API_KEY".into()))]);
        assert!(profile.write.contains(&"~/.claude/.credentials.json".to_owned()), "{:?}", profile.write);
        let once = profile.clone();
        lend(&mut profile, preset, &machine(&[]));
        assert_eq!(profile, once, "a key that is not set now stays");
        let own = key(KeySource::File("/run/key".into()));
        let mut profile = Profile { keys: vec![own.clone()], ..Profile::default() };
        lend(&mut profile, preset, &machine(&["ANTHROPIC_API_KEY"]));
        assert_eq!(profile.keys, [own]);
    }

    #[test]
    fn key_in_the_environment_counts_only_if_the_profile_names_it() {
        let preset = presets::find("claude").unwrap().0;
        let machine = machine(&["ANTHROPIC_API_KEY"]);
        let mut profile = Profile::default();
        assert_eq!(available(&profile, preset, &machine), SignIn::None);
        lend(&mut profile, preset, &machine);
        assert_eq!(available(&profile, preset, &machine), SignIn::Key("ANTHROPIC_API_KEY".into()));
    }
}
