//! The command `claim`, with `acquire`, `renew`, `release`, `list` and `check`.

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::{CheckView, ClaimsView, GrantedClaim};
use regatta_core::claim::Mode;
use regatta_core::refusal::seconds;

use crate::args::ClaimWord;
use crate::client::Got;
use crate::out::{Failed, Said, ago, line, table};

use super::App;

/// Runs `regatta claim`.
pub(super) fn claim(app: &App, word: ClaimWord) -> Said {
    match word {
        ClaimWord::Acquire { uris, agent, ttl, shared, wait, memo } => {
            let mode = if shared { Mode::Shared } else { Mode::Exclusive };
            let got: Got<GrantedClaim> = app.call(&Call::ClaimAcquire(input::ClaimAcquire {
                uris,
                agent,
                mode,
                ttl_ms: ttl,
                wait_ms: wait,
                memo,
            }))?;
            let it = &got.data;
            let next = [
                format!("regatta claim renew {} --token {}", it.claim, it.token),
                format!("regatta claim release {} --token {}", it.claim, it.token),
            ];
            app.out.answer("claim.acquire", it, &next, |_| {
                format!("{} token {} for {}\n", it.claim, it.token, seconds(it.ttl_ms))
            })
        }
        ClaimWord::Renew { claim, token } => {
            let got: Got<GrantedClaim> = app.call(&Call::ClaimRenew(input::ClaimHeld { claim, token }))?;
            app.out.answer("claim.renew", &got.data, &[], |_| {
                format!("renewed {claim} for {}\n", seconds(got.data.ttl_ms))
            })
        }
        ClaimWord::Release { claim, token } => {
            let _done: Got<String> = app.call(&Call::ClaimRelease(input::ClaimHeld { claim, token }))?;
            app.out
                .answer("claim.release", &serde_json::json!({ "claim": claim }), &[], |_| format!("released {claim}\n"))
        }
        ClaimWord::List => {
            let got: Got<ClaimsView> = app.call(&Call::ClaimList(input::Nothing {}))?;
            app.out.answer("claim.list", &got.data, &[], |_| draw(&got.data))
        }
        ClaimWord::Check { uris } => {
            let got: Got<CheckView> = app.call(&Call::ClaimCheck(input::Uris { uris }))?;
            app.out.answer("claim.check", &got.data, &[], |_| match got.data.holders.first() {
                None => "free\n".into(),
                Some(_) => got
                    .data
                    .holders
                    .iter()
                    .map(|it| {
                        let memo = if it.memo.is_empty() { String::new() } else { format!(" ({})", line(&it.memo)) };
                        format!("{} is held by {}{memo}\n", it.uri, it.owner)
                    })
                    .collect(),
            })?;
            if got.data.free { Ok(()) } else { Err(Failed::Code(5)) }
        }
    }
}

/// Draws claims, the claims of running work, and waiting requests as a table.
fn draw(claims: &ClaimsView) -> String {
    if claims.held.is_empty() && claims.by_work.is_empty() && claims.waiting.is_empty() {
        return "no claims\n".into();
    }
    let uris = |uris: &[regatta_core::pattern::Uri]| uris.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let held = claims.held.iter().map(|it| {
        let mode = if it.mode == Mode::Shared { "shared" } else { "exclusive" };
        let ends = it.ends_in_ms.map_or_else(|| line(&it.until), |it| format!("{} left", seconds(it)));
        vec![
            it.claim.to_string(),
            it.owner.to_string(),
            mode.into(),
            ago(it.granted_wall),
            ends,
            uris(&it.uris),
            line(&it.memo),
        ]
    });
    let waiting = claims.waiting.iter().map(|it| {
        vec![
            it.wait.to_string(),
            it.owner.to_string(),
            "waits".into(),
            String::new(),
            format!("{} left", seconds(it.ends_in_ms)),
            uris(&it.uris),
            String::new(),
        ]
    });
    let by_work = claims.by_work.iter().map(|it| {
        let until = "while it runs".to_owned();
        vec!["-".into(), it.owner.to_string(), "exclusive".into(), String::new(), until, uris(&it.uris), String::new()]
    });
    table(&held.chain(by_work).chain(waiting).collect::<Vec<_>>())
}
