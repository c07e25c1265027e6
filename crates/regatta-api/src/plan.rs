//! Plans: an agent breaks a goal into tasks. This module has the instructions for the planning
//! agent, and the view of its plan before anything starts.

use regatta_core::budget::format_dollars;
use regatta_core::ids::{AgentName, ProjectName, TaskId};
use regatta_core::plural;
use serde::{Deserialize, Serialize};

use crate::input::PlannedTask;
use crate::live_view::PageAction;
use crate::view::short_duration;

/// A plan before it is started, with its waves (groups of tasks that run at the same time), the
/// owners of files, conflicts, and an estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanView {
    pub project: ProjectName,
    pub title: String,
    /// The complete goal that was given to the planning agent; empty if a person wrote the plan.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub goal: String,
    /// The task in which an agent made the plan; empty if a person wrote the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    pub planner: Option<AgentName>,
    pub state: PlanState,
    /// The progress of the planning agent, or the reason why the plan cannot be used, in words.
    pub text: String,
    pub tasks: Vec<PlannedTask>,
    /// The wave of each task of the plan. A wave is a group of tasks that run at the same time. A
    /// task of the first wave has the value `1`, or `1.2` if it must also wait for another task of
    /// the wave that changes the same files.
    pub waves: Vec<String>,
    /// Each file that the plan's tasks name, with the task that owns the file. Files that several
    /// tasks want to change come first.
    pub owned: Vec<FileOwnerView>,
    pub conflicts: usize,
    /// Sentences about problems that would prevent a task of the plan from starting.
    pub warnings: Vec<String>,
    /// The agents that may work on the plan.
    pub agents: Vec<AgentName>,
    pub estimate: String,
    /// The actions that a person can take now: start the plan, or ask for another plan.
    pub actions: Vec<PageAction>,
}

/// The state of a plan: still being made, ready to start, or not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PlanState {
    /// An agent is still making the plan.
    Planning,
    /// The plan is complete and can be started.
    Ready,
    /// The planning agent answered, but its answer contains no plan that can be used.
    Unusable,
    /// The planning agent failed without an answer.
    Failed,
}

/// A file that tasks of a plan want to change. The tasks are given by their positions in the plan,
/// counting from 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileOwnerView {
    pub file: String,
    pub owner: usize,
    /// The other tasks in the owner's wave (a group of tasks that run at the same time) that also
    /// want to change the file.
    pub others: Vec<usize>,
    /// A sentence that says how the conflict with these other tasks is resolved.
    pub text: String,
}

/// Facts about a project that the planning agent needs to make a suitable plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanningFacts {
    /// The project's check commands, which must pass on all work that lands.
    pub checks: Vec<String>,
    /// The number of tasks on which the project's agents can work at the same time.
    pub workers: u32,
}

/// Returns the instructions for a planning agent. `wrong` is the reason why the agent's last plan
/// could not be used, or empty.
pub fn planner_brief(goal: &str, wrong: &str, facts: &PlanningFacts) -> String {
    let previous_failure = if wrong.is_empty() {
        String::new()
    } else {
        format!("\n# Your last plan could not be used\n{wrong}\n")
    };
    let checks: Vec<String> = facts
        .checks
        .iter()
        .map(|command| format!("`{command}`"))
        .collect();
    let checks = if checks.is_empty() {
        "The project has no checks of its own, so every task needs one.".to_owned()
    } else {
        format!(
            "Regatta runs {} on everything that lands. Do not repeat {} in a task; add only what \
            shows that this task is done.",
            checks.join(", "),
            if checks.len() == 1 { "it" } else { "them" },
        )
    };
    let workers = match facts.workers {
        0 | 1 => {
            "One agent works on the plan, so split the goal only where a part is useful by itself."
                .to_owned()
        }
        many => {
            format!(
                "Up to {many} tasks can be worked on at the same time; more parallel tasks than \
                that gain nothing."
            )
        }
    };
    format!(
        "Make a plan for this goal. Read the repository first; do not change it.\n\n# The \
         goal\n{goal}\n\
         {previous_failure}\n\
         # What a good plan is\n\
         - Different agents can work on its tasks at the same time. Each task names the files it \
         may change in `files`: few \
         and exact, or patterns such as src/api/**. Tasks that name the same file wait for each \
         other. {workers}\n\
         - A task is what one agent can finish in one sitting: about an hour of a person's work, \
         and a diff of at most a \
         few hundred lines. A small goal is one task.\n\
         - The description of a task says all that its agent must know. The agent sees neither \
         this goal nor the other \
         tasks.\n\
         - Each task says how it is checked: `validation.tests` are shell commands that must pass, \
         `files_exist` are files \
         that must exist, `content_check` is a text that a file must contain. {checks}\n\
         - `blocked_by` names the tasks whose work a task needs, by their ids, without circles.\n\n\
         # How to answer\n\
         The `detail` of your result is the plan alone, in one block:\n\n\
         ```toml\n\
         [[task]]\n\
         id = \"model\"\n\
         subject = \"One line that says what is to be done\"\n\
         description = \"What its agent must know\"\n\
         issue_type = \"feature\"   # or bug, task, docs, chore, ci\n\
         files = [\"src/model/user.rs\"]\n\
         validation = {{ tests = [\"cargo test user\"], files_exist = [\"src/model/user.rs\"] \
         }}\n\n\
         [[task]]\n\
         id = \"form\"\n\
         subject = \"…\"\n\
         files = [\"web/login.html\"]\n\
         blocked_by = [\"model\"]\n\
         validation = {{ tests = [\"npm test\"], files_exist = [\"web/login.html\"] }}\n\
         ```\n"
    )
}

/// Returns the plan in an agent's answer, and true if the plan is JSON. The plan is the first code
/// block that is marked as JSON, or else as TOML, or else not marked. If the answer has no code
/// block, the plan is the whole answer.
pub fn extract_plan(answer: &str) -> (String, bool) {
    let fenced = |mark: &str| {
        let start = answer.find(mark)? + mark.len();
        let rest = &answer[start..];
        let body_start = rest.find('\n')? + 1;
        let end = rest[body_start..]
            .find("\n```")
            .map_or(rest.len(), |rest| body_start + rest + 1);
        Some(rest[body_start..end].to_owned())
    };
    if let Some(text) = fenced("```json") {
        return (text, true);
    }
    let text = fenced("```toml")
        .or_else(|| fenced("```"))
        .unwrap_or_else(|| answer.to_owned());
    let is_json = text.trim_start().starts_with('{') || text.trim_start().starts_with("[{");
    (text, is_json)
}

/// Returns an estimate, in words, of the duration and cost of `tasks` tasks. The estimate is a
/// range: the middle half of the `times` and `costs` of tasks that landed before. Times are in
/// milliseconds, and costs are in millionths of a dollar.
pub fn estimate_text(mut times: Vec<u64>, mut costs: Vec<u64>, tasks: u64) -> String {
    let middle_half = |values: &mut Vec<u64>| {
        values.sort_unstable();
        let at = |quarter: usize| {
            values
                .get(values.len() * quarter / 4)
                .or(values.last())
                .copied()
        };
        Some((at(1)?.saturating_mul(tasks), at(3)?.saturating_mul(tasks)))
    };
    let from = times.len().max(costs.len());
    let cost = middle_half(&mut costs)
        .map(|(low, high)| format!("{}-{}", format_dollars(low), format_dollars(high)));
    let time = middle_half(&mut times).map(|(low, high)| {
        format!(
            "{} to {} of work",
            short_duration(low),
            short_duration(high)
        )
    });
    match (cost, time) {
        (None, None) => {
            "none, because no task with a known time or cost has landed here yet".into()
        }
        (cost, time) => {
            let parts: Vec<String> = cost.into_iter().chain(time).collect();
            format!(
                "{} · based on {}",
                parts.join(" · "),
                plural::count(from, "landed task")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_is_found_in_an_answer() {
        let toml = "[[task]]\nsubject = \"x\"\n";
        assert_eq!(extract_plan(toml), (toml.to_owned(), false));
        assert_eq!(
            extract_plan(&format!("Here it is:\n\n```toml\n{toml}```\nGood luck!")),
            (toml.to_owned(), false)
        );
        assert_eq!(
            extract_plan(&format!("```\n{toml}```")),
            (toml.to_owned(), false)
        );
        assert_eq!(
            extract_plan("```json\n{\"task\": []}\n```"),
            ("{\"task\": []}\n".to_owned(), true)
        );
        assert!(extract_plan("{\"task\": []}").1);
        assert_eq!(
            extract_plan("```toml\nno end"),
            ("no end".to_owned(), false)
        );
    }

    /// A missing price does not count as zero.
    #[test]
    fn estimate_names_the_number_of_tasks_it_is_based_on() {
        assert!(estimate_text(vec![], vec![], 7).contains("none"));
        let text = estimate_text(vec![60_000; 8], vec![], 2);
        assert_eq!(text, "2m to 2m of work · based on 8 landed tasks");
        let text = estimate_text(
            vec![1_000, 60_000, 120_000, 600_000],
            vec![100_000, 200_000, 300_000, 400_000],
            10,
        );
        assert_eq!(
            text,
            "$2.00-$4.00 · 10m to 1h of work · based on 4 landed tasks"
        );
    }
}
