//! The command `policy`, which manages the rules that answer agents' permission requests without a
//! person.

use clap::{Subcommand, ValueEnum};
use regatta_api::{call, input};
use regatta_core::ids::{AgentName, RuleId};
use regatta_core::policy::{self, PolicyRule, RuleEffect, RuleSubject};

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult, format_table, sanitize, usage_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    ("policy list", &["regatta policy list"]),
    (
        "policy add",
        &["regatta policy add allow --tool execute --command 'cargo test*'"],
    ),
    ("policy rm", &["regatta policy rm R3"]),
];

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the policy rules
    List,
    /// Add a policy rule, which answers permission requests without a person
    Add {
        /// Answer to matching permission requests: allow or deny, or ask to let a person decide
        #[arg(value_enum)]
        effect: RuleEffectArg,
        /// Kind of tool to match: read, edit, delete, move, search, execute, think, fetch,
        /// switch_mode or other
        #[arg(long)]
        tool: Option<String>,
        /// Command line to match, such as 'npm test*'; * matches anything
        #[arg(long)]
        command: Option<String>,
        /// Path to match, such as 'src/*'; * matches anything
        #[arg(long)]
        path: Option<String>,
        /// Web address to match, such as `https://docs.rs/*`; * matches anything
        #[arg(long)]
        url: Option<String>,
        /// Sender of the requests to match: T7 (a task), M3 (a mission), agent:NAME, leads, workers
        /// or all
        #[arg(long = "for", default_value = "all")]
        scope: String,
    },
    /// Remove a policy rule
    Rm {
        /// Rule to remove, such as R3
        rule: RuleId,
    },
}

impl PolicyCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, PolicyCommand::List)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuleEffectArg {
    Allow,
    Deny,
    Ask,
}

/// Runs `regatta policy`.
pub(crate) fn policy(app: &CommandContext, command: PolicyCommand) -> CommandResult {
    match command {
        PolicyCommand::List => {
            let reply: CallReply<Vec<PolicyRule>> =
                app.call(call::PolicyList(input::EmptyInput {}))?;
            app.output.print_answer(
                "policy.list",
                &reply.data,
                &["regatta policy add --help".into()],
                |_| draw_rules(&reply.data),
            )
        }
        PolicyCommand::Add {
            effect,
            tool,
            command,
            path,
            url,
            scope,
        } => {
            let tool = tool
                .map(|tool| {
                    serde_json::from_value(serde_json::Value::String(tool.clone())).map_err(|_| {
                        usage_error(
                            format!("{tool:?} is not a kind of tool"),
                            "write read, edit, delete, move, search, execute, think, fetch, \
                            switch_mode or other",
                        )
                    })
                })
                .transpose()?;
            let effect = match effect {
                RuleEffectArg::Allow => RuleEffect::Allow,
                RuleEffectArg::Deny => RuleEffect::Deny,
                RuleEffectArg::Ask => RuleEffect::Ask,
            };
            let request = input::PolicyAdd {
                scope: parse_rule_scope(&scope)?,
                effect,
                matter: RuleSubject {
                    tool,
                    command,
                    path,
                    url,
                    exact: false,
                },
            };
            let reply: CallReply<PolicyRule> = app.call(call::PolicyAdd(request))?;
            app.output.print_answer(
                "policy.add",
                &reply.data,
                &[format!("regatta policy rm {}", reply.data.id)],
                |_| format!("{}: {}\n", reply.data.id, sanitize(&reply.data.describe())),
            )
        }
        PolicyCommand::Rm { rule } => {
            let _done = app.call(call::PolicyRm(input::RuleIdInput { rule }))?;
            app.output
                .print_answer("policy.rm", &rule, &["regatta policy list".into()], |_| {
                    format!("removed {rule}\n")
                })
        }
    }
}

/// Parses the value of `policy add --for`, the senders whose requests a rule matches.
fn parse_rule_scope(text: &str) -> Result<policy::RuleScope, CommandError> {
    use regatta_core::agent::Role;
    let bad = || {
        usage_error(
            format!("{text:?} is not a valid value of --for"),
            "write T7, M3, agent:NAME, leads, workers or all",
        )
    };
    Ok(match text {
        "all" => policy::RuleScope::All,
        "leads" => policy::RuleScope::Role(Role::Lead),
        "workers" => policy::RuleScope::Role(Role::Worker),
        _ => match (text.strip_prefix("agent:"), text.chars().next()) {
            (Some(name), _) => policy::RuleScope::Agent(AgentName::new(name).map_err(|_| bad())?),
            (None, Some('M' | 'm')) => policy::RuleScope::Mission(text.parse().map_err(|_| bad())?),
            _ => policy::RuleScope::Task(text.parse().map_err(|_| bad())?),
        },
    })
}

/// Returns a table with one line per policy rule.
pub(crate) fn draw_rules(all: &[PolicyRule]) -> String {
    if all.is_empty() {
        return "no rules: requests inside the sandbox are allowed, all others go to the inbox\n"
            .into();
    }
    format_table(
        &all.iter()
            .map(|policy_rule| {
                vec![
                    policy_rule.id.to_string(),
                    sanitize(&policy_rule.describe()),
                ]
            })
            .collect::<Vec<_>>(),
    )
}
