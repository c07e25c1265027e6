//! The commands `token` and `audit`: access tokens, and the list of requested changes.

use regatta_api::Call;
use regatta_api::input;
use regatta_api::verb::TokenScope;
use regatta_api::view::{AuditLineView, NewTokenView, TokenView};

use super::CommandContext;
use crate::args::{AuditArgs, TokenCommand, TokenScopeArg};
use crate::client::CallReply;
use crate::output::{CommandResult, format_age, format_table, sanitize};

/// Runs `regatta token`.
pub(super) fn token(app: &CommandContext, word: TokenCommand) -> CommandResult {
    match word {
        TokenCommand::Add {
            name,
            scope,
            expires,
        } => {
            let scope = match scope {
                TokenScopeArg::Admin => TokenScope::Admin,
                TokenScopeArg::Operator => TokenScope::Operator,
                TokenScopeArg::Viewer => TokenScope::Viewer,
                TokenScopeArg::Runner => TokenScope::Runner,
            };
            let got: CallReply<NewTokenView> = app.call(&Call::TokenAdd(input::TokenAdd {
                name,
                scope,
                expires_ms: expires,
            }))?;
            let next = ["REGATTA_SERVER=URL REGATTA_TOKEN=… regatta status".to_owned()];
            app.output.print_answer("token.add", &got.data, &next, |_| {
                format!("{}\n", got.data.token)
            })
        }
        TokenCommand::List => {
            let got: CallReply<Vec<TokenView>> =
                app.call(&Call::TokenList(input::EmptyInput {}))?;
            app.output.print_answer("token.list", &got.data, &[], |_| {
                if got.data.is_empty() {
                    return "no access tokens; this machine's own token is in the data directory\n"
                        .into();
                }
                let row = |token: &TokenView| {
                    let ends = match (token.expired, token.expires_wall) {
                        (true, _) => "expired".to_owned(),
                        (false, Some(wall)) => format!("until {}", format_date(wall)),
                        (false, None) => String::new(),
                    };
                    vec![
                        token.name.clone(),
                        token.scope.to_string(),
                        format!("{} ago", format_age(token.made_wall)),
                        ends,
                    ]
                };
                format_table(&got.data.iter().map(row).collect::<Vec<_>>())
            })
        }
        TokenCommand::Rm { name } => {
            let _done: CallReply<String> =
                app.call(&Call::TokenRm(input::TokenNameInput { name: name.clone() }))?;
            app.output.print_answer("token.rm", &name, &[], |_| {
                format!("removed {name}: the token no longer works\n")
            })
        }
    }
}

/// Runs `regatta audit`.
pub(super) fn audit(app: &CommandContext, ask: AuditArgs) -> CommandResult {
    let AuditArgs {
        after,
        limit,
        by,
        verb,
        about,
    } = ask;
    let got: CallReply<Vec<AuditLineView>> = app.call(&Call::Audit(input::AuditQuery {
        after,
        limit,
        by,
        verb,
        about,
    }))?;
    app.output.print_answer("audit", &got.data, &[], |_| {
        let row = |audit_line: &AuditLineView| {
            let came = match (audit_line.revision, &audit_line.refused) {
                (Some(revision), _) => format!("done at {revision}"),
                (None, Some(code)) => format!("refused: {code}"),
                (None, None) => "client disconnected".into(),
            };
            let about = sanitize(audit_line.about.as_deref().unwrap_or_default());
            let who = if audit_line.token == "owner" {
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
                who,
                audit_line.from.clone(),
                came,
            ]
        };
        format_table(&got.data.iter().map(row).collect::<Vec<_>>())
    })
}

fn format_date(wall_ms: u64) -> String {
    let moment = jiff::Timestamp::from_millisecond(i64::try_from(wall_ms).unwrap_or(i64::MAX));
    moment.map(|time| time.to_string()).unwrap_or_default()
}
