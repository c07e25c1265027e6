//! Finds the agents that `init` proposes: one for each agent program that is installed and signed
//! in.

use regatta_agents::program_discovery::{FoundProgram, SignIn};
use regatta_api::call;
use regatta_api::view::AgentView;
use regatta_core::agent::Runtime;

use crate::client::{CallReply, Client};
use crate::commands::CommandContext;
use crate::commands::agent::request_of_command;
use crate::commands::provider::find_presets;
use crate::commands::run::confirm::confirm;
use crate::output::CommandError;

/// An agent that `init` could add, and the preset (the settings of a known program) that the agent
/// would use.
#[derive(Debug, PartialEq, Eq)]
struct StarterAgent {
    name: String,
    preset: &'static str,
}

impl StarterAgent {
    fn command(&self) -> String {
        format!("regatta agent add {} --preset {}", self.name, self.preset)
    }
}

/// The outcome of proposing agents to a person with [`propose`].
#[derive(Default)]
pub(super) struct ProposalOutcome {
    /// The names of the agents that were added.
    pub(super) added: Vec<String>,
    /// The commands with which a person can add the proposed agents that were not added.
    pub(super) commands: Vec<String>,
}

/// Proposes agents if no agent exists besides scripted agents. Asks the person in a terminal, and
/// adds all proposed agents with `--yes`. Otherwise adds no agent, and returns the commands that
/// add the agents.
pub(super) fn propose(
    app: &CommandContext,
    client: &Client,
    agents: &[AgentView],
) -> Result<ProposalOutcome, CommandError> {
    let is_scripted = |view: &AgentView| matches!(view.agent.runtime, Runtime::Scripted);
    if !agents.iter().all(is_scripted) {
        return Ok(ProposalOutcome::default());
    }
    let starters = starter_agents(&find_presets());
    let mut outcome = ProposalOutcome::default();
    if starters.is_empty() {
        return Ok(outcome);
    }
    let names: Vec<&str> = starters
        .iter()
        .map(|starter| starter.name.as_str())
        .collect();
    let question = format!(
        "add the agents that are installed and signed in: {}?",
        names.join(", ")
    );
    let is_accepted = app.global.yes || (app.can_ask() && confirm(&question)?);
    for starter in starters {
        if is_accepted {
            add(client, &starter)?;
            outcome.added.push(starter.name);
        } else {
            outcome.commands.push(starter.command());
        }
    }
    Ok(outcome)
}

/// Returns the command that adds the first of the agents that `init` would propose.
pub(super) fn first_command(found: &[FoundProgram]) -> Option<String> {
    starter_agents(found).first().map(StarterAgent::command)
}

/// Adds an agent exactly as the printed command `regatta agent add` would.
fn add(client: &Client, starter: &StarterAgent) -> Result<(), CommandError> {
    let command = starter.command();
    let request = request_of_command(&command)?;
    let _added: CallReply<AgentView> = client.call(call::AgentAdd(request))?;
    Ok(())
}

/// Returns one agent for each provider whose program is installed and signed in, with the first
/// preset of that provider that can work.
fn starter_agents(found: &[FoundProgram]) -> Vec<StarterAgent> {
    let mut starters: Vec<(&str, StarterAgent)> = Vec::new();
    for program in found {
        let preset = program.preset;
        let is_ready = program.program.is_some()
            && program.fix.is_none()
            && !matches!(program.sign_in, SignIn::None | SignIn::NotNeeded);
        let is_known = starters
            .iter()
            .any(|(provider, _)| *provider == preset.provider);
        if !is_ready || is_known || preset.provider.is_empty() {
            continue;
        }
        let short = preset.name.split('-').next().unwrap_or(preset.name);
        let starter = StarterAgent {
            name: format!("{short}-1"),
            preset: preset.name,
        };
        starters.push((preset.provider, starter));
    }
    starters.into_iter().map(|(_, starter)| starter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_agents::presets::find_preset;

    fn found(preset: &str, is_installed: bool, sign_in: SignIn) -> FoundProgram {
        FoundProgram {
            preset: find_preset(preset).unwrap().0,
            program: is_installed.then(|| "/usr/bin/x".into()),
            version: None,
            sign_in,
            obsolete_program: None,
            fix: None,
        }
    }

    #[test]
    fn one_agent_is_proposed_for_each_provider_that_can_work() {
        let key = || SignIn::Key("KEY".into());
        let programs = [
            found("claude", false, key()),
            found("claude-native", true, key()),
            found("codex", true, key()),
            found("codex-native", true, key()),
            found("gemini", true, SignIn::None),
        ];
        let commands: Vec<String> = starter_agents(&programs)
            .iter()
            .map(StarterAgent::command)
            .collect();
        let expected = [
            "regatta agent add claude-1 --preset claude-native",
            "regatta agent add codex-1 --preset codex",
        ];
        assert_eq!(commands, expected);
        assert_eq!(first_command(&programs).as_deref(), Some(expected[0]));
        assert_eq!(first_command(&programs[..1]), None);
    }
}
