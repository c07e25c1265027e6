//! The commands `token` and `audit`: access tokens, and the list of requested changes.

use regatta_api::Call;
use regatta_api::input;
use regatta_api::verb::Scope;
use regatta_api::view::{AuditView, NewToken, TokenView};

use super::App;
use crate::args::{Audit, ScopeArg, TokenWord};
use crate::client::Got;
use crate::out::{Said, ago, plain, table};

/// Runs `regatta token`.
pub(super) fn token(app: &App, word: TokenWord) -> Said {
    match word {
        TokenWord::Add { name, scope, expires } => {
            let scope = match scope {
                ScopeArg::Admin => Scope::Admin,
                ScopeArg::Operator => Scope::Operator,
                ScopeArg::Viewer => Scope::Viewer,
                ScopeArg::Runner => Scope::Runner,
            };
            let got: Got<NewToken> = app.call(&Call::TokenAdd(input::TokenAdd { name, scope, expires_ms: expires }))?;
            let next = ["REGATTA_SERVER=URL REGATTA_TOKEN=… regatta status".to_owned()];
            app.out.answer("token.add", &got.data, &next, |_| format!("{}\n", got.data.token))
        }
        TokenWord::List => {
            let got: Got<Vec<TokenView>> = app.call(&Call::TokenList(input::Nothing {}))?;
            app.out.answer("token.list", &got.data, &[], |_| {
                if got.data.is_empty() {
                    return "no access tokens; this machine's own token is in the data directory\n".into();
                }
                let row = |it: &TokenView| {
                    let ends = match (it.expired, it.expires_wall) {
                        (true, _) => "expired".to_owned(),
                        (false, Some(wall)) => format!("until {}", date(wall)),
                        (false, None) => String::new(),
                    };
                    vec![it.name.clone(), it.scope.to_string(), format!("{} ago", ago(it.made_wall)), ends]
                };
                table(&got.data.iter().map(row).collect::<Vec<_>>())
            })
        }
        TokenWord::Rm { name } => {
            let _done: Got<String> = app.call(&Call::TokenRm(input::TokenName { name: name.clone() }))?;
            app.out.answer("token.rm", &name, &[], |_| format!("removed {name}: the token no longer works\n"))
        }
    }
}

/// Runs `regatta audit`.
pub(super) fn audit(app: &App, ask: Audit) -> Said {
    let Audit { after, limit, by, verb, about } = ask;
    let got: Got<Vec<AuditView>> = app.call(&Call::Audit(input::Audit { after, limit, by, verb, about }))?;
    app.out.answer("audit", &got.data, &[], |_| {
        let row = |it: &AuditView| {
            let came = match (it.revision, &it.refused) {
                (Some(revision), _) => format!("done at {revision}"),
                (None, Some(code)) => format!("refused: {code}"),
                (None, None) => "client disconnected".into(),
            };
            let about = plain(it.about.as_deref().unwrap_or_default());
            let who =
                if it.token == "owner" { it.by.clone() } else { format!("{} ({} {})", it.by, it.scope, it.token) };
            let time = it.time.get(..19).unwrap_or(&it.time).to_owned();
            vec![it.n.to_string(), time, it.verb.clone(), about, who, it.from.clone(), came]
        };
        table(&got.data.iter().map(row).collect::<Vec<_>>())
    })
}

fn date(wall_ms: u64) -> String {
    let moment = jiff::Timestamp::from_millisecond(i64::try_from(wall_ms).unwrap_or(i64::MAX));
    moment.map(|it| it.to_string()).unwrap_or_default()
}
