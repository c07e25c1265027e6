//! Who gets in: a token always (S1), and no foreign Host or Origin (S2), on every route and stream.
//!
//! Whoever passes carries who it is along as a [`Visitor`]; what each visitor may do is in the table of verbs.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use regatta_api::Problem;

use crate::tokens::{self, Visitor};
use crate::{Shared, problem};

/// Lets a request through, or says why not.
pub(crate) async fn check(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    match enter(&shared, request.headers()) {
        Err(refused) => problem(&refused),
        Ok(visitor) => {
            request.extensions_mut().insert(visitor);
            next.run(request).await
        }
    }
}

fn enter(shared: &Shared, headers: &HeaderMap) -> Result<Visitor, Problem> {
    let port = shared.address.port();
    // A page that rebinds its own name to this address still sends its own name as Host.
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok()).unwrap_or_default();
    if !is_ours(host, port) {
        return Err(Problem::new(
            403,
            "foreign_host",
            "this daemon answers only to its own address",
            format!("use http://127.0.0.1:{port}/"),
        ));
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let ours = origin.to_str().ok().and_then(|it| it.strip_prefix("http://")).is_some_and(|it| is_ours(it, port));
        if !ours {
            return Err(Problem::new(
                403,
                "foreign_origin",
                "pages of other sites may not call this daemon",
                "call it from its own page, or from a program",
            ));
        }
    }
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|it| it.to_str().ok())
        .and_then(|it| it.strip_prefix("Bearer "))
        .unwrap_or_default();
    if given.is_empty() {
        return Err(tokens::no_token());
    }
    let visitor = shared.keyring.who(given, &shared.engine.board(), shared.engine.now().wall)?;
    shared.limiter.count(&visitor, std::time::Instant::now())?;
    Ok(visitor)
}

fn is_ours(host: &str, port: u16) -> bool {
    // The unix socket has no port; a caller there says plain localhost.
    host == "localhost" || ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| host == format!("{name}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::is_ours;

    #[test]
    fn only_our_own_names_pass_s2() {
        for good in ["localhost", "localhost:7777", "127.0.0.1:7777", "[::1]:7777"] {
            assert!(is_ours(good, 7777), "{good}");
        }
        for bad in [
            "",
            "127.0.0.1",
            "evil.example",
            "evil.example:7777",
            "127.0.0.1:80",
            "localhost:7777.evil.example",
            "0.0.0.0:7777",
            "null",
        ] {
            assert!(!is_ours(bad, 7777), "{bad}");
        }
    }
}
