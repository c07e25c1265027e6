//! The command `token`, which manages access tokens for the API, the web page and runners.

use clap::{Subcommand, ValueEnum};
use regatta_api::verb::TokenScope;
use regatta_api::view::{NewTokenView, TokenView};
use regatta_api::{call, input};

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, format_age, format_table};
use crate::settings::duration_ms;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    (
        "token add",
        &["regatta token add ci --scope viewer --expires 30d"],
    ),
    ("token list", &["regatta token list"]),
    ("token rm", &["regatta token rm ci"]),
];

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create an access token, which is shown only once
    Add {
        /// Name of the token, such as ci; changes made with the token are recorded under this name
        name: String,
        /// Rights of the token: viewer reads, operator also changes tasks, admin may do everything,
        /// runner is for regatta runner
        #[arg(long, value_enum)]
        scope: TokenScopeArg,
        /// Lifetime, such as 30d (default: until the token is removed)
        #[arg(long, value_name = "TIME", value_parser = duration_ms)]
        expires: Option<u64>,
    },
    /// List access tokens
    List,
    /// Remove an access token, which stops working at once
    Rm {
        /// Name of the token to remove
        name: String,
    },
}

impl TokenCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, TokenCommand::List)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenScopeArg {
    Admin,
    Operator,
    Viewer,
    Runner,
}

/// Runs `regatta token`.
pub(crate) fn token(app: &CommandContext, command: TokenCommand) -> CommandResult {
    match command {
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
            let reply: CallReply<NewTokenView> = app.call(call::TokenAdd(input::TokenAdd {
                name,
                scope,
                expires_ms: expires,
            }))?;
            let next = ["REGATTA_SERVER=URL REGATTA_TOKEN=… regatta status".to_owned()];
            app.output
                .print_answer("token.add", &reply.data, &next, |_| {
                    format!("{}\n", reply.data.token)
                })
        }
        TokenCommand::List => {
            let reply: CallReply<Vec<TokenView>> =
                app.call(call::TokenList(input::EmptyInput {}))?;
            app.output.print_answer("token.list", &reply.data, &[], |_| {
                if reply.data.is_empty() {
                    return "no access tokens; this machine's own token is in the data directory\n"
                        .into();
                }
                let row = |token: &TokenView| {
                    let expiry = match (token.expired, token.expires_wall) {
                        (true, _) => "expired".to_owned(),
                        (false, Some(wall)) => format!("until {}", format_date(wall)),
                        (false, None) => String::new(),
                    };
                    vec![
                        token.name.clone(),
                        token.scope.to_string(),
                        format!("{} ago", format_age(token.made_wall)),
                        expiry,
                    ]
                };
                format_table(&reply.data.iter().map(row).collect::<Vec<_>>())
            })
        }
        TokenCommand::Rm { name } => {
            let _done = app.call(call::TokenRm(input::TokenNameInput { name: name.clone() }))?;
            app.output.print_answer("token.rm", &name, &[], |_| {
                format!("removed {name}: the token no longer works\n")
            })
        }
    }
}

fn format_date(wall_ms: u64) -> String {
    let moment = jiff::Timestamp::from_millisecond(i64::try_from(wall_ms).unwrap_or(i64::MAX));
    moment.map(|time| time.to_string()).unwrap_or_default()
}
