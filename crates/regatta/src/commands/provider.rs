//! The command `provider`, which finds the agent programs that are installed on this machine.

use regatta_agents::program_discovery::{FoundProgram, MachineFacts, SignIn};
use regatta_agents::{presets, program_discovery};
use regatta_api::input::AgentAdd;
use regatta_api::live_view::ProviderProgram;

use crate::commands::agent::request_of_command;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, format_table_for, sanitize};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("provider", &["regatta provider"])];

/// Returns the known agent programs and their state on this machine.
pub(crate) fn find_presets() -> Vec<FoundProgram> {
    program_discovery::discover_all(
        &presets::PRESETS.iter().collect::<Vec<_>>(),
        &MachineFacts::this_machine(),
    )
}

/// Describes a known agent program for the API.
pub(crate) fn provider_line(found_program: &FoundProgram) -> ProviderProgram {
    ProviderProgram {
        preset: found_program.preset.name.into(),
        provider: found_program.preset.provider.into(),
        program: found_program
            .program
            .as_ref()
            .map(|path| path.to_string_lossy().into_owned()),
        version: found_program.version.clone(),
        signed_in: sign_in_label(found_program).into(),
        fix: found_program.fix.clone(),
        add: found_program
            .program
            .as_ref()
            .and_then(|_| add_request(found_program.preset.name)),
    }
}

/// Returns the request that adds an agent with a preset. Returns `None` if the command needs
/// further options, as for a program that serves a pool of workers.
fn add_request(preset: &str) -> Option<AgentAdd> {
    let short = preset.split('-').next().unwrap_or(preset);
    request_of_command(&format!("regatta agent add {short}-1 --preset {preset}")).ok()
}

/// Runs `provider`: lists the known agent programs and whether they are installed.
pub(crate) fn provider(app: &CommandContext) -> CommandResult {
    let found = find_presets();
    let data: Vec<ProviderProgram> = found.iter().map(provider_line).collect();
    let ready = found
        .iter()
        .find(|found_program| found_program.program.is_some());
    let next: Vec<String> = ready
        .map(|found_program| {
            format!(
                "regatta agent add {0} --preset {0}",
                found_program.preset.name
            )
        })
        .into_iter()
        .collect();
    app.output.print_answer("provider", &data, &next, |_| {
        draw_providers(&data, crate::output::window_width())
    })
}

/// Draws the installed agent programs as a table, and below it the commands that install the other
/// known programs. Commands are never cut, because people copy them.
fn draw_providers(providers: &[ProviderProgram], window: Option<usize>) -> String {
    let (installed, missing): (Vec<&ProviderProgram>, Vec<&ProviderProgram>) =
        providers.iter().partition(|line| line.program.is_some());
    let mut text = String::new();
    if !installed.is_empty() {
        let mut rows = vec![
            ["PRESET", "PROVIDER", "VERSION", "SIGNED IN"]
                .map(String::from)
                .to_vec(),
        ];
        rows.extend(installed.iter().map(|line| {
            let version = line
                .version
                .as_deref()
                .map_or_else(|| "installed".to_owned(), sanitize);
            vec![
                line.preset.clone(),
                line.provider.clone(),
                version,
                line.signed_in.clone(),
            ]
        }));
        text += &format_table_for(&rows, window);
        for (at, line) in installed.iter().enumerate() {
            let Some(fix) = line.fix.as_deref() else {
                continue;
            };
            // Several presets (known ways to run a program) can need the same fix, so print the fix
            // only once.
            let same: Vec<&str> = installed[at..]
                .iter()
                .filter(|other| other.fix.as_deref() == Some(fix))
                .map(|other| other.preset.as_str())
                .collect();
            if !installed[..at]
                .iter()
                .any(|other| other.fix.as_deref() == Some(fix))
            {
                text += &format!("! {}: {}\n", same.join(", "), sanitize(fix));
            }
        }
    }
    if !missing.is_empty() {
        text += "not installed; each can be installed with:\n";
        let width = missing
            .iter()
            .map(|line| line.preset.len())
            .max()
            .unwrap_or(0);
        for line in missing {
            let fix = line.fix.as_deref().map(sanitize).unwrap_or_default();
            text += &format!("  {:<width$}  {fix}\n", line.preset);
        }
        if installed.is_empty() {
            text +=
                "install one of them and sign in, then: regatta agent add NAME --preset PRESET\n";
        }
    }
    text
}

/// Describes in a few words whether a program is signed in.
fn sign_in_label(found_program: &FoundProgram) -> &'static str {
    match &found_program.sign_in {
        SignIn::Key(_) => "by key",
        SignIn::File(_) => "yes",
        SignIn::NotNeeded => "not needed",
        SignIn::None => "not found",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a narrow window every install command and every fix is printed in full.
    #[test]
    fn commands_to_type_are_never_cut() {
        let machine = MachineFacts {
            path: "/nowhere".into(),
            home: "/nowhere".into(),
            variables: Vec::new(),
        };
        let mut lines: Vec<ProviderProgram> = presets::PRESETS
            .iter()
            .map(|preset| provider_line(&program_discovery::discover(preset, &machine)))
            .collect();
        let all = lines.clone();
        let text = draw_providers(&all, Some(80));
        assert!(
            text.starts_with("not installed; each can be installed with:\n  claude  "),
            "{text}"
        );
        assert!(
            all.iter()
                .all(|line| text.contains(line.fix.as_deref().unwrap())),
            "{text}"
        );
        assert!(!text.contains('…'), "{text}");

        let fix = "sign in with `claude /login`, or give the agent a key in ANTHROPIC_API_KEY or \
            ANTHROPIC_AUTH_TOKEN";
        for line in &mut lines[..2] {
            line.program = Some("/bin/claude".into());
            line.version = Some("2.1.325".into());
            line.signed_in = "not found".into();
            line.fix = Some(fix.into());
        }
        let text = draw_providers(&lines, Some(80));
        assert!(
            text.starts_with(
                "PRESET         PROVIDER   VERSION  SIGNED IN\nclaude         anthropic  2.1.325"
            ),
            "{text}"
        );
        assert_eq!(
            text.matches(fix).count(),
            1,
            "a fix of two presets is printed once: {text}"
        );
        assert!(
            text.contains(&format!("! claude, claude-native: {fix}\n")),
            "{text}"
        );
    }
}
