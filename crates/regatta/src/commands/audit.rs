//! The command `audit`, which lists every change that somebody requested, with its author and
//! outcome.

use clap::Args;
use regatta_api::view::AuditLineView;
use regatta_api::{call, input};

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, format_table, sanitize};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "audit",
    &[
        "regatta audit --by ann --limit 20",
        "regatta audit --about T7",
    ],
)];

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Number of a line; list the lines that follow it (default: list the newest lines)
    #[arg(long, value_name = "N")]
    pub(crate) after: Option<u64>,
    /// Maximum number of lines to list
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub(crate) limit: usize,
    /// List only requests of this person, agent or access token
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// List only requests with this name in the API, such as task.add
    #[arg(long)]
    pub(crate) verb: Option<String>,
    /// List only requests about this task, attempt or agent, such as T7, A5 or claude-1
    #[arg(long, value_name = "ID")]
    pub(crate) about: Option<String>,
}

/// Runs `regatta audit`.
pub(crate) fn audit(app: &CommandContext, args: AuditArgs) -> CommandResult {
    let AuditArgs {
        after,
        limit,
        by,
        verb,
        about,
    } = args;
    let reply: CallReply<Vec<AuditLineView>> = app.call(call::Audit(input::AuditQuery {
        after,
        limit: Some(limit),
        by,
        verb,
        about,
    }))?;
    app.output.print_answer("audit", &reply.data, &[], |_| {
        let row = |audit_line: &AuditLineView| {
            let outcome = match (audit_line.revision, &audit_line.refused) {
                (Some(revision), _) => format!("done at {revision}"),
                (None, Some(code)) => format!("refused: {code}"),
                (None, None) => "client disconnected".into(),
            };
            let about = sanitize(audit_line.about.as_deref().unwrap_or_default());
            let author = if audit_line.token == "owner" {
                audit_line.by.clone()
            } else {
                format!(
                    "{} ({} {})",
                    audit_line.by, audit_line.scope, audit_line.token
                )
            };
            let time = audit_line
                .time
                .get(..19)
                .unwrap_or(&audit_line.time)
                .to_owned();
            vec![
                audit_line.n.to_string(),
                time,
                audit_line.verb.clone(),
                about,
                author,
                audit_line.from.clone(),
                outcome,
            ]
        };
        format_table(&reply.data.iter().map(row).collect::<Vec<_>>())
    })
}
