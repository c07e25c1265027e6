//! What a prompt says of Regatta's own tools, to programs that are given them.

use regatta_core::agent::{Role, Runtime};

/// The tools that a prompt names, and what for. The server has them all, and a test of its own that it does.
pub const WORKERS_TOOLS: [(&str, &str); 10] = [
    ("progress", "say in a sentence what you are doing, when that changes"),
    ("ask", "ask a person, and wait for the answer; with `assume` you go on without, and your work waits for it"),
    ("request_approval", "ask whether you may do something"),
    ("report_scope_escape", "say that you need a file outside your manifest, before you change it"),
    ("siblings", "see who else works here, on which files"),
    ("claim_acquire", "claim a port or a file for yourself"),
    ("msg_read", "read what others say to you; `msg_send` answers"),
    ("task_add", "propose a task for what you found and should not do yourself"),
    ("finish", "say that you are done, with a summary; then end your turn"),
    ("give_up", "say that it cannot be done, and why"),
];

/// The same for a lead, on top.
pub const LEADS_TOOLS: [(&str, &str); 6] = [
    ("mission", "see how your mission stands"),
    ("task_list", "list the open tasks"),
    ("task_assign", "give a task to an agent"),
    ("tell", "say something to whoever works on a task"),
    ("answer", "answer a question of a worker of yours; `inbox` lists them"),
    ("mission_finish", "say that your mission is done, with your report"),
];

/// The section; nothing for a program that is given none.
pub(super) fn section(runtime: &Runtime, role: Role) -> String {
    if !matches!(runtime, Runtime::Acp { .. } | Runtime::Claude { .. } | Runtime::Codex { .. }) {
        return String::new();
    }
    let mut text = String::from(
        "## TOOLS\nThe MCP server `regatta` is there for you. Its tools know your task by themselves; use them instead of \
         guessing:\n",
    );
    let more: &[(&str, &str)] = if role == Role::Lead { &LEADS_TOOLS } else { &[] };
    for (name, what) in WORKERS_TOOLS.iter().chain(more) {
        text += &format!("- `{name}`: {what}\n");
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_given_tools_is_told_their_names() {
        let acp = Runtime::Acp { argv: vec!["x".into()] };
        let worker = section(&acp, Role::Worker);
        assert!(worker.contains("- `progress`: say") && !worker.contains("`task_assign`"), "{worker}");
        assert!(section(&acp, Role::Lead).contains("- `task_assign`: give"));
        assert_eq!(section(&Runtime::Command { argv: vec!["x".into()] }, Role::Lead), "");
    }
}
