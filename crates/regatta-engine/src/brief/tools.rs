//! Writes the part of a prompt that lists Regatta's own tools, for programs that can call them.

use regatta_core::agent::Role;

/// The tools that a worker's prompt lists, in the order of use. A test of the server checks that
/// the server provides all of them.
pub const WORKER_TOOLS: [(&str, &str); 10] = [
    (
        "my_task",
        "show your task, its checks, who else works here on which files, and what landed last",
    ),
    ("progress", "report in a sentence what you are doing"),
    ("ask", "ask a person a question, and wait for the answer"),
    ("request_approval", "ask for permission to do something"),
    (
        "report_scope_escape",
        "report a change that is needed outside your file manifest, instead of making it",
    ),
    ("task_add", "propose a follow-up task"),
    ("msg_read", "read messages to you"),
    (
        "msg_send",
        "send a message to another agent, or to the project's channel",
    ),
    ("finish", "report that you are done"),
    ("give_up", "report that the task cannot be done, and why"),
];

/// The tools that a lead's prompt lists, each with its description. A lead splits a mission into
/// tasks.
pub const LEAD_TOOLS: [(&str, &str); 12] = [
    ("task_add", "give work to your workers: one call per task"),
    ("task_list", "list the open tasks of the project"),
    (
        "task_assign",
        "choose the worker of a task; otherwise the next free worker takes the task",
    ),
    (
        "task_action",
        "`adopt` a task that nobody has into your mission; `cancel`, `retry` or `land` a task of \
        your mission",
    ),
    ("tell", "send a message to the worker of a task"),
    (
        "inbox",
        "list the open questions; answer those of your workers with `answer`",
    ),
    ("ask", "ask a person what you cannot decide"),
    ("mission", "show the state of your mission"),
    ("leads", "list the other missions of the project"),
    ("queue", "show which work is about to land"),
    (
        "msg_send",
        "send a message to another lead, or to the project's channel; `msg_read` reads messages",
    ),
    ("mission_finish", "end your mission with a report"),
];

/// The tools that are left out of the prompt of a task that changes no files.
const FILE_CHANGE_TOOLS: [&str; 2] = ["request_approval", "report_scope_escape"];

/// Returns the list of tools for an agent of this role. Leaves out the tools for changing files
/// when `is_change` is false.
pub(super) fn section(role: Role, is_change: bool) -> String {
    let mut text = String::from(
        "## TOOLS\nThe MCP server `regatta` gives you these tools. They know your task and your \
        name.\n",
    );
    let tools: &[(&str, &str)] = match role {
        Role::Lead => &LEAD_TOOLS,
        Role::Worker => &WORKER_TOOLS,
    };
    for (name, purpose) in tools
        .iter()
        .filter(|(name, _)| is_change || !FILE_CHANGE_TOOLS.contains(name))
    {
        text += &format!("- `{name}`: {purpose}\n");
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_gets_the_tools_that_it_uses() {
        let (worker, lead) = (section(Role::Worker, true), section(Role::Lead, false));
        assert!(
            worker.contains("- `finish`: ") && !worker.contains("`task_assign`"),
            "{worker}"
        );
        assert!(!section(Role::Worker, false).contains("report_scope_escape"));
        assert!(
            lead.contains("- `task_add`: give work") && !lead.contains("`finish`:"),
            "{lead}"
        );
    }
}
