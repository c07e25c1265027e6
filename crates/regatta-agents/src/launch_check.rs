//! Decides whether a requested agent can be started on this machine, from what
//! [`crate::program_discovery`] found.
//!
//! The check does not run the agent. A program may be signed in without a visible sign, so a
//! missing sign causes a note and not a problem.

use regatta_core::agent::{Profile, Runtime, SecretSource};
use regatta_engine::ports::agents::{AgentError, AgentSpec, LaunchProblem, ResolvedAgent};

use crate::errors;
use crate::model_list;
use crate::presets::{self, DriverKind, ModelSource, PRESETS, Preset};
use crate::profile_credentials;
use crate::program_discovery::{self, MachineFacts, SignIn};
use crate::secrets;

/// The provider's name for the scripted agent (the built-in agent that follows a list of steps).
/// The program of this agent is Regatta itself.
const SCRIPTED_PROVIDER: &str = "scripted";

/// Chooses the program for the requested agent, and lists the problems that prevent its start and
/// notes for the user.
pub fn resolve_agent(spec: &AgentSpec, machine: &MachineFacts) -> ResolvedAgent {
    // The scripted agent can replace the program of any provider, so that a team can be tried
    // before any program is installed.
    if spec.provider == SCRIPTED_PROVIDER || spec.backend.as_deref() == Some(SCRIPTED_PROVIDER) {
        let sign_in = Some("no sign-in is needed".to_owned());
        let program = std::env::current_exe().ok();
        let version = Some(env!("CARGO_PKG_VERSION").to_owned());
        let (runtime, backend) = (Some(Runtime::Scripted), Some(SCRIPTED_PROVIDER.to_owned()));
        let (fast_mode, notes) = resolve_fast_mode(spec, SCRIPTED_PROVIDER, false);
        return ResolvedAgent {
            runtime,
            backend,
            program,
            version,
            sign_in,
            fast_mode,
            notes,
            ..ResolvedAgent::default()
        };
    }
    let preset = match choose_preset(spec, machine) {
        Ok(preset) => preset,
        Err(error) => {
            return ResolvedAgent {
                problem: Some((LaunchProblem::ProgramMissing, error)),
                ..ResolvedAgent::default()
            };
        }
    };
    let found = program_discovery::discover(preset, machine);
    let own_key = preset
        .key_variables
        .iter()
        .find(|variable| spec.keys.iter().any(|key| key == *variable));
    let sign_in = match (own_key, &found.sign_in) {
        (Some(key), _) => Some(format!("its own key in {key}")),
        (None, SignIn::Key(key)) => Some(format!("a key in {key}")),
        (None, SignIn::File(path)) => Some(format!("signed in ({})", path.display())),
        (None, SignIn::NotNeeded) => Some("no sign-in is needed".to_owned()),
        (None, SignIn::None) => None,
    };
    let mut lendable = Profile::default();
    profile_credentials::add_sign_in(&mut lendable, preset, machine);
    let missing = preset
        .required_program
        .filter(|program| program_discovery::program_on_path(program, &machine.path).is_none());
    let problem = match (&found.program, missing, &sign_in) {
        (None, ..) => Some((
            LaunchProblem::ProgramMissing,
            errors::not_installed(preset.name, preset.programs[0], preset.install),
        )),
        (_, Some(needed), _) => Some((
            LaunchProblem::ProgramMissing,
            errors::not_installed(preset.name, needed, preset.install),
        )),
        // A missing sign-in is not a problem, because the program may be signed in without a
        // visible sign.
        _ => None,
    };
    let (fast_mode, mut notes) = resolve_fast_mode(spec, preset.name, preset.has_fast_mode);
    if sign_in.is_none() && problem.is_none() {
        notes.extend(
            found
                .fix
                .as_ref()
                .map(|fix| format!("no sign-in was found: {fix}")),
        );
    }
    notes.extend(
        found
            .obsolete_program
            .iter()
            .map(|program| format!("an old program is installed: {program}")),
    );
    let model_query = spec
        .model
        .as_ref()
        .zip(found.program.as_ref())
        .filter(|_| problem.is_none());
    let models = model_query
        .and_then(|(_, program)| model_list::list_models(preset, program, machine, &spec.env));
    notes.extend(model_query.and_then(|(model, _)| model_note(preset, model, models.as_deref())));
    let path = found
        .program
        .as_ref()
        .map(|path| path.display().to_string());
    ResolvedAgent {
        runtime: problem.is_none().then(|| preset.runtime(path.as_deref())),
        backend: Some(preset.name.to_owned()),
        program: found.program,
        version: found.version,
        sign_in,
        fast_mode,
        models,
        notes,
        keys: lendable.keys.into_iter().map(|key| key.name).collect(),
        files: lendable.write,
        problem,
    }
}

/// Returns the problems that prevent an agent's start on this machine: missing environment
/// variables that hold its keys, and a missing program. A program that is given by a path is not
/// checked, because the path may lie in the workspace, which does not exist yet.
pub fn launch_problems(
    runtime: &Runtime,
    profile: &Profile,
    machine: &MachineFacts,
) -> Vec<(LaunchProblem, AgentError)> {
    let missing = profile.keys.iter().filter_map(|key| match &key.from {
        SecretSource::Env(name) if !machine.variables.iter().any(|known| known == name) => Some((
            LaunchProblem::NotSignedIn,
            secrets::variable_not_set(key, name),
        )),
        _ => None,
    });
    let mut problems: Vec<(LaunchProblem, AgentError)> = missing.collect();
    let program = runtime
        .argv()
        .and_then(|argv| argv.first())
        .filter(|name| !name.contains(['/', '{']));
    let has_own_path = profile.env.iter().any(|(name, _)| name == "PATH");
    if let Some(program) = program.filter(|name| {
        !has_own_path && program_discovery::program_on_path(name, &machine.path).is_none()
    }) {
        let preset = profile
            .preset
            .as_deref()
            .and_then(presets::find_preset)
            .map(|problems| problems.0);
        let preset_of_program = || {
            PRESETS
                .iter()
                .find(|preset| preset.programs.contains(&program.as_str()))
        };
        let error = match preset.or_else(preset_of_program) {
            Some(preset) => with_alternatives(
                errors::not_installed(preset.name, program, preset.install),
                preset,
                machine,
            ),
            None => errors::program_not_found(program),
        };
        problems.push((LaunchProblem::ProgramMissing, error));
    }
    problems
}

/// Adds commands that work now to the error's hint, one per line. They start another installed
/// program, of the same provider if possible, or else a rehearsal with the scripted agent. `NAME`
/// in a command stands for the agent.
fn with_alternatives(error: AgentError, preset: &Preset, machine: &MachineFacts) -> AgentError {
    let is_installed = |other: &&Preset| {
        other
            .programs
            .iter()
            .any(|program| program_discovery::program_on_path(program, &machine.path).is_some())
    };
    let others = || {
        PRESETS
            .iter()
            .filter(|other| other.name != preset.name && is_installed(other))
    };
    let other = others()
        .find(|other| other.provider == preset.provider)
        .or_else(|| others().next());
    let alternative = match other {
        Some(other) => format!(
            "Or use what is installed: regatta agent add NAME --preset {}",
            other.name
        ),
        None => "Or watch a rehearsal that needs no program: regatta demo".to_owned(),
    };
    AgentError {
        hint: format!("{}\n{alternative}", error.hint),
        ..error
    }
}

/// Returns whether the agent will use the requested fast mode, and a note if its program has no
/// fast mode.
fn resolve_fast_mode(
    spec: &AgentSpec,
    name: &str,
    has_fast_mode: bool,
) -> (Option<bool>, Vec<String>) {
    match (spec.is_fast_mode, has_fast_mode) {
        (false, _) => (None, vec![]),
        (true, true) => (Some(true), vec![]),
        (true, false) => (
            Some(false),
            vec![format!("{name} has no fast mode, so fast mode is off")],
        ),
    }
}

/// Returns a note if the program does not list the requested model. A missing model is not a
/// problem, because the models may depend on keys that the program gets only when it runs.
fn model_note(preset: &Preset, model: &str, listed: Option<&[String]>) -> Option<String> {
    let name = preset.name;
    match (preset.models, listed) {
        (ModelSource::Unknown, _) => Some(format!(
            "{name} cannot list its models before it runs, so the model {model} was not checked"
        )),
        (_, None) => Some(format!(
            "{name} did not list its models when asked, so the model {model} was not checked"
        )),
        (_, Some(listed)) if listed.iter().any(|listed| listed == model) => None,
        (_, Some(listed)) => {
            let shown: Vec<&str> = listed.iter().take(5).map(String::as_str).collect();
            let more = if listed.len() > shown.len() {
                ", …"
            } else {
                ""
            };
            Some(format!(
                "{name} does not list the model {model} here; it lists {}{more}",
                shown.join(", ")
            ))
        }
    }
}

/// Returns the preset (the known program) that the agent requests by name, or else the provider's
/// first preset that is installed and can hold a session of several turns.
fn choose_preset(
    spec: &AgentSpec,
    machine: &MachineFacts,
) -> Result<&'static Preset, regatta_engine::ports::agents::AgentError> {
    if let Some(backend) = &spec.backend {
        let found = presets::find_preset(backend).map(|(preset, _)| preset);
        let found = found.filter(|preset| preset.provider == spec.provider);
        return found.ok_or_else(|| {
            errors::unknown_backend(&spec.provider, backend, &preset_names(&spec.provider))
        });
    }
    let of_provider = || {
        PRESETS
            .iter()
            .filter(|preset| preset.provider == spec.provider)
    };
    let holds_session =
        |preset: &&Preset| !matches!(preset.driver, DriverKind::Command | DriverKind::CodexExec);
    let is_installed = |preset: &&Preset| {
        preset
            .programs
            .iter()
            .any(|program| program_discovery::program_on_path(program, &machine.path).is_some())
    };
    let fallback = || {
        of_provider()
            .find(holds_session)
            .or_else(|| of_provider().next())
    };
    of_provider()
        .filter(holds_session)
        .find(is_installed)
        .or_else(fallback)
        .ok_or_else(|| errors::unknown_provider(&spec.provider))
}

fn preset_names(provider: &str) -> Vec<&'static str> {
    PRESETS
        .iter()
        .filter(|preset| preset.provider == provider)
        .map(|preset| preset.name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::agent::SecretVariable;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn machine(programs: &[&str], variables: &[&str]) -> (tempfile::TempDir, MachineFacts) {
        let dir = tempfile::tempdir().unwrap();
        for program in programs {
            let path = dir.path().join(program);
            fs::write(&path, "#!/bin/sh\necho 1.2.3\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = std::env::join_paths([dir.path(), "/bin".as_ref()]).unwrap();
        let variables = variables
            .iter()
            .map(|variable| (*variable).to_owned())
            .collect();
        let machine = MachineFacts {
            path,
            home: dir.path().join("home"),
            variables,
        };
        (dir, machine)
    }

    fn wanted(provider: &str, backend: Option<&str>) -> AgentSpec {
        AgentSpec {
            provider: provider.into(),
            backend: backend.map(str::to_owned),
            ..AgentSpec::default()
        }
    }

    #[test]
    fn missing_program_is_reported_with_its_install_command() {
        let (_dir, machine) = machine(&[], &[]);
        let found = resolve_agent(&wanted("opencode", None), &machine);
        let (kind, error) = found.problem.unwrap();
        assert_eq!((kind, found.runtime), (LaunchProblem::ProgramMissing, None));
        assert!(
            error.hint.contains("npm install -g opencode-ai"),
            "{error:?}"
        );
    }

    /// The problem of a missing program names its install line and a preset whose program is
    /// installed. The problem of a missing key names the command that sets it.
    #[test]
    fn problems_of_an_agent_have_a_hint_with_the_fix() {
        let agent = |preset: &str, argv: &[&str]| {
            let argv = argv.iter().map(|word| (*word).to_owned()).collect();
            (
                Runtime::Acp { argv },
                Profile {
                    preset: Some(preset.into()),
                    ..Profile::default()
                },
            )
        };
        let (_dir, with_claude) = machine(&["claude"], &["A"]);
        let (runtime, profile) = agent("claude", &["claude-agent-acp"]);
        let found = launch_problems(&runtime, &profile, &with_claude);
        let [missing] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert!(
            missing.1.message.contains("claude-agent-acp")
                && missing.1.message.contains("not installed"),
            "{missing:?}"
        );
        assert!(
            missing.1.hint.contains("npm install -g") && missing.1.hint.contains("claude-native"),
            "{missing:?}"
        );
        let (_dir, bare) = machine(&[], &[]);
        let alone = launch_problems(&runtime, &profile, &bare);
        assert!(!alone[0].1.hint.contains("claude-native"), "{alone:?}");

        let key = |from: &str| SecretVariable {
            name: "K".into(),
            from: SecretSource::Env(from.into()),
        };
        let keyed = Profile {
            keys: vec![key("A"), key("B")],
            ..Profile::default()
        };
        let found = launch_problems(
            &Runtime::Command {
                argv: vec!["sh".into()],
            },
            &keyed,
            &with_claude,
        );
        let [lacking] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert!(
            lacking.1.hint.contains("B=… regatta up --restart"),
            "{lacking:?}"
        );
        for argv in ["./agent.sh", "/opt/agent", "{regatta}", "sh"] {
            let found = launch_problems(
                &Runtime::Command {
                    argv: vec![argv.into()],
                },
                &Profile::default(),
                &bare,
            );
            assert_eq!(found, [], "{argv}");
        }
    }

    #[test]
    fn installed_program_is_the_one_that_is_started() {
        let (dir, machine) = machine(&["opencode"], &["OPENAI_API_KEY"]);
        let found = resolve_agent(&wanted("opencode", None), &machine);
        assert_eq!(found.problem, None);
        assert_eq!(found.version.as_deref(), Some("1.2.3"));
        let program = dir.path().join("opencode").display().to_string();
        assert_eq!(
            found.runtime.unwrap().argv().unwrap(),
            [program, "acp".to_owned()]
        );
    }

    #[test]
    fn backend_must_belong_to_the_provider() {
        let (_dir, machine) = machine(&["codex"], &[]);
        let native = resolve_agent(&wanted("codex", Some("codex-native")), &machine);
        assert!(matches!(
            native.runtime,
            Some(Runtime::Codex {
                app_server: true,
                ..
            })
        ));
        let wrong = resolve_agent(&wanted("codex", Some("claude")), &machine);
        assert!(wrong.problem.unwrap().1.hint.contains("codex-native"));
        assert!(
            resolve_agent(&wanted("nobody", None), &machine)
                .problem
                .is_some()
        );
    }

    #[test]
    fn own_key_counts_as_a_sign_in_and_a_missing_sign_in_is_noted() {
        let (_dir, machine) = machine(&["gemini"], &[]);
        let none = resolve_agent(&wanted("gemini", None), &machine);
        assert!(
            none.sign_in.is_none() && none.notes[0].contains("no sign-in was found"),
            "{:?}",
            none.notes
        );
        let own = AgentSpec {
            keys: vec!["GEMINI_API_KEY".into()],
            ..wanted("gemini", None)
        };
        assert_eq!(
            resolve_agent(&own, &machine).sign_in.as_deref(),
            Some("its own key in GEMINI_API_KEY")
        );
    }

    #[test]
    fn fast_mode_is_available_only_if_the_program_has_a_switch_for_it() {
        let (_dir, machine) = machine(&["codex", "gemini"], &[]);
        let fast = |provider: &str| AgentSpec {
            is_fast_mode: true,
            ..wanted(provider, None)
        };
        assert_eq!(
            resolve_agent(&fast("codex"), &machine).fast_mode,
            Some(true)
        );
        let gemini = resolve_agent(&fast("gemini"), &machine);
        assert_eq!(gemini.fast_mode, Some(false));
        assert!(
            gemini
                .notes
                .iter()
                .any(|note| note.contains("no fast mode")),
            "{:?}",
            gemini.notes
        );
        assert_eq!(
            resolve_agent(&wanted("codex", None), &machine).fast_mode,
            None,
            "no fast mode was requested"
        );
    }

    #[test]
    fn model_that_the_program_does_not_list_is_noted_and_still_used() {
        let (_dir, machine) = machine(&["opencode", "gemini"], &[]);
        let model = |provider: &str, model: &str| AgentSpec {
            model: Some(model.into()),
            ..wanted(provider, None)
        };
        let known = resolve_agent(&model("opencode", "1.2.3"), &machine);
        assert_eq!(known.models.as_deref(), Some(&["1.2.3".to_owned()][..]));
        assert!(
            !known.notes.iter().any(|note| note.contains("model")),
            "{:?}",
            known.notes
        );
        let other = resolve_agent(&model("opencode", "a/b"), &machine);
        assert!(
            other.problem.is_none()
                && other
                    .notes
                    .iter()
                    .any(|note| note.contains("does not list the model a/b"))
        );
        let cannot = resolve_agent(&model("gemini", "g"), &machine);
        assert!(
            cannot
                .notes
                .iter()
                .any(|note| note.contains("cannot list its models")),
            "{:?}",
            cannot.notes
        );
    }

    #[test]
    fn scripted_agent_needs_no_program_and_has_no_fast_mode() {
        let (_dir, machine) = machine(&[], &[]);
        let found = resolve_agent(
            &AgentSpec {
                is_fast_mode: true,
                ..wanted("scripted", None)
            },
            &machine,
        );
        assert_eq!(
            (found.runtime, found.problem),
            (Some(Runtime::Scripted), None)
        );
        assert_eq!(found.fast_mode, Some(false));
        assert!(found.notes[0].contains("fast mode"));
        assert_eq!(
            resolve_agent(&wanted("opencode", Some("scripted")), &machine).runtime,
            Some(Runtime::Scripted)
        );
    }
}
