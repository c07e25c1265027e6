//! Adds the API keys and sign-in files of a known program to an agent's profile (its settings).
//!
//! An agent's program starts with an environment that contains only listed variables, so the
//! program gets an API key or a sign-in file only if the profile names it. Every caller that
//! creates an agent from a preset (the command line, the bridges, a team's launch) therefore uses
//! [`add_sign_in`].

use regatta_core::agent::{Profile, SandboxLevel, SecretSource, SecretVariable};

use crate::presets::Preset;
use crate::program_discovery::{MachineFacts, SignIn};

/// Adds the preset's sign-in files to the agent's profile (its settings), and those key variables
/// of the preset that are set on this machine.
///
/// Existing entries of the profile are not changed or removed.
pub fn add_sign_in(profile: &mut Profile, preset: &Preset, machine: &MachineFacts) {
    for file in preset.credential_files {
        let path = format!("~/{file}");
        if !profile.read.contains(&path) && !profile.write.contains(&path) {
            // Make the file writable, because programs renew their sign-in themselves.
            profile.write.push(path);
        }
    }
    for name in preset.key_variables {
        let is_listed = has_key(profile, name);
        if !is_listed && machine.variables.iter().any(|variable| variable == name) {
            profile.keys.push(SecretVariable {
                name: (*name).to_owned(),
                from: SecretSource::Env((*name).to_owned()),
            });
        }
    }
}

/// Returns the sign-in that a program with this profile can use. The user may have other sign-ins,
/// but the program sees only the keys and files that the profile (the agent's settings) names.
pub fn visible_sign_in(profile: &Profile, preset: &Preset, machine: &MachineFacts) -> SignIn {
    if preset.key_variables.is_empty() && preset.credential_files.is_empty() {
        return SignIn::NotNeeded;
    }
    if let Some(name) = preset
        .key_variables
        .iter()
        .find(|name| has_key(profile, name))
    {
        return SignIn::Key((*name).to_owned());
    }
    let is_listed = |file: &&&str| {
        let path = format!("~/{file}");
        profile.sandbox == Some(SandboxLevel::Off)
            || profile.read.contains(&path)
            || profile.write.contains(&path)
    };
    let files = preset
        .credential_files
        .iter()
        .filter(is_listed)
        .map(|file| machine.home.join(file));
    files
        .into_iter()
        .find(|file| file.is_file())
        .map_or(SignIn::None, SignIn::File)
}

fn has_key(profile: &Profile, name: &str) -> bool {
    profile.keys.iter().any(|key| key.name == name)
        || profile.env.iter().any(|(variable, _)| variable == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn machine(variables: &[&str]) -> MachineFacts {
        let variables = variables.iter().map(|name| (*name).to_owned()).collect();
        MachineFacts {
            path: "/bin".into(),
            home: "/nowhere".into(),
            variables,
        }
    }

    #[test]
    fn lending_adds_files_and_set_keys_and_keeps_the_profiles_own() {
        let preset = presets::find_preset("claude").unwrap().0;
        let mut profile = Profile::default();
        add_sign_in(
            &mut profile,
            preset,
            &machine(&["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]),
        );
        let key = |from: SecretSource| SecretVariable {
            name: "ANTHROPIC_API_KEY".into(),
            from,
        };
        assert_eq!(
            profile.keys,
            [key(SecretSource::Env("ANTHROPIC_API_KEY".into()))]
        );
        assert!(
            profile
                .write
                .contains(&"~/.claude/.credentials.json".to_owned()),
            "{:?}",
            profile.write
        );
        let before = profile.clone();
        add_sign_in(&mut profile, preset, &machine(&[]));
        assert_eq!(profile, before, "a key that is not set now stays");
        let own = key(SecretSource::File("/run/key".into()));
        let mut profile = Profile {
            keys: vec![own.clone()],
            ..Profile::default()
        };
        add_sign_in(&mut profile, preset, &machine(&["ANTHROPIC_API_KEY"]));
        assert_eq!(profile.keys, [own]);
    }

    #[test]
    fn key_in_the_environment_counts_only_if_the_profile_names_it() {
        let preset = presets::find_preset("claude").unwrap().0;
        let machine = machine(&["ANTHROPIC_API_KEY"]);
        let mut profile = Profile::default();
        assert_eq!(visible_sign_in(&profile, preset, &machine), SignIn::None);
        add_sign_in(&mut profile, preset, &machine);
        assert_eq!(
            visible_sign_in(&profile, preset, &machine),
            SignIn::Key("ANTHROPIC_API_KEY".into())
        );
    }
}
