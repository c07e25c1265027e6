//! Checks that agents can start the work of a new mission, before the mission is created.
//!
//! Without these checks, the mission would be created and its first attempt would fail, for example
//! because the agent's program is not installed.

use regatta_core::agent::{Agent, lacks_script};
use regatta_engine::ports::agents::AgentError;

use super::*;

/// The facts about a task that decide whether the task needs a script (a list of steps). A scripted
/// agent, which follows such a list instead of a model, cannot work without a script.
pub(super) struct ScriptNeed<'a> {
    pub(super) subject: &'a str,
    pub(super) assignee: Option<&'a AgentName>,
    pub(super) has_script: bool,
}

/// Returns the hint of an error about an agent, with the agent's name filled into the commands.
pub(super) fn hint_for(name: &AgentName, error: &AgentError) -> String {
    error.hint.replace(" NAME ", &format!(" {name} "))
}

impl VerbHandler<'_> {
    /// Returns an error if none of the agents can be started on this machine, because programs or
    /// keys are missing.
    ///
    /// One agent that can be started is enough, because that agent can do all the work.
    pub(super) async fn require_startable_agent(&self, names: &[AgentName]) -> Result<(), Problem> {
        let board = self.board();
        let agents: Vec<Arc<Agent>> = names
            .iter()
            .filter_map(|name| board.agents.get(name))
            .cloned()
            .collect();
        // An agent with labels runs on runners (other machines), where the daemon cannot check
        // whether the agent's program is installed. Skip the check for such an agent.
        if agents.is_empty()
            || agents.len() < names.len()
            || agents.iter().any(|agent| !agent.profile.labels.is_empty())
        {
            return Ok(());
        }
        let port = self.engine().agents().clone();
        let found = run_blocking(move || {
            let problems = agents.iter().map(|agent| {
                let first = port
                    .launch_problems(&agent.runtime, &agent.profile)
                    .into_iter()
                    .next();
                first.map(|(_, error)| (agent.name.clone(), error))
            });
            problems.collect::<Option<Vec<_>>>()
        });
        let Some(problems) = found.await? else {
            return Ok(());
        };
        let Some((name, first_problem)) = problems.first() else {
            return Ok(());
        };
        let what = match problems.len() {
            1 => format!("{name} cannot be started: {}", first_problem.message),
            count => format!(
                "none of the {count} agents can be started; {name}: {}",
                first_problem.message
            ),
        };
        Err(Problem::new(
            422,
            "no_provider",
            what,
            hint_for(name, first_problem),
        ))
    }

    /// Returns an error if a task has no script (a list of steps) and only scripted agents, which
    /// need a script, could work on the task.
    pub(super) fn require_scripts<'t>(
        &self,
        agents: &[AgentName],
        tasks: impl Iterator<Item = ScriptNeed<'t>>,
    ) -> Result<(), Problem> {
        let board = self.board();
        let lacking: Vec<&str> = tasks
            .filter(|task| lacks_script(&board, agents, task.assignee, task.has_script))
            .map(|task| task.subject)
            .collect();
        let Some(first) = lacking.first() else {
            return Ok(());
        };
        let what = match lacking.len() {
            1 => format!(
                "no agent can do this: \"{first}\" has no script, and its agents are \
                 scripted agents, which repeat a script"
            ),
            count => {
                format!(
                    "no agent can do this: {count} tasks have no script, and their agents are \
                     scripted agents, which repeat a script; the first task is \"{first}\""
                )
            }
        };
        let hint = "install an agent's program (regatta provider), then: regatta agent add NAME \
                    --preset PRESET; or give each task a script, as in script = [{ write = { \
                    path = \"notes.md\", text = \"Hello\\n\" } }]";
        Err(Problem::new(422, "no_provider", what, hint))
    }
}
