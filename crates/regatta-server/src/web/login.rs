//! Signs a browser in: the browser exchanges a one-time code for a session.
//!
//! A person with an access token asks for a code (`regatta open`). The code is placed after the `#`
//! in the page's address, because browsers do not send that part to servers. The page posts the
//! code here, and gets the two halves of a session with the rights of that access token.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use serde::Deserialize;
use subtle::ConstantTimeEq;

use crate::listen::ConnectionOrigin;
use crate::tokens::browser_session::{BrowserSession, SESSION_LIFETIME_MS};
use crate::tokens::{self, Principal};
use crate::{ProblemResponse, ServerState};

/// Time after which a sign-in code is no longer valid.
pub(crate) const CODE_LIFETIME: Duration = Duration::from_secs(600);
/// Maximum number of unused sign-in codes.
const MAX_UNUSED_CODES: usize = 64;
/// The characters of sign-in codes, without those that look alike, such as `l` and `1`.
const CODE_ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

struct SignInCode {
    text: String,
    principal: Principal,
    person: String,
    expires_at: Instant,
}

/// The sign-in codes that nobody has used yet.
#[derive(Default)]
pub(crate) struct SignInCodes {
    unused: Mutex<Vec<SignInCode>>,
}

impl SignInCodes {
    /// Creates a sign-in code. The code is short enough to type, and nobody can guess its 80 random
    /// bits in the ten minutes for which it is valid.
    pub(crate) fn create(
        &self,
        principal: Principal,
        person: String,
        now: Instant,
    ) -> std::io::Result<String> {
        let text: String = tokens::random_bytes()?[..16]
            .iter()
            .map(|byte| char::from(CODE_ALPHABET[usize::from(*byte) % CODE_ALPHABET.len()]))
            .collect();
        let mut unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
        unused.retain(|sign_in_code| sign_in_code.expires_at > now);
        if unused.len() == MAX_UNUSED_CODES {
            unused.remove(0);
        }
        unused.push(SignInCode {
            text: text.clone(),
            principal,
            person,
            expires_at: now + CODE_LIFETIME,
        });
        Ok(text)
    }

    /// Returns the caller and the person for whom a sign-in code was created. Removes the code,
    /// because it can be used only once.
    fn redeem(&self, text: &str, now: Instant) -> Option<(Principal, String)> {
        let mut unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
        unused.retain(|sign_in_code| sign_in_code.expires_at > now);
        let position = unused.iter().position(|sign_in_code| {
            bool::from(sign_in_code.text.as_bytes().ct_eq(text.as_bytes()))
        })?;
        let code = unused.remove(position);
        Some((code.principal, code.person))
    }
}

#[derive(Deserialize)]
struct SignInInput {
    code: String,
}

/// Handles `POST /enter {"code": …}`: signs the browser in. The response sets the session's cookie
/// and contains its key.
pub(crate) async fn sign_in(
    State(shared): State<Arc<ServerState>>,
    request: Request,
) -> Result<Response, ProblemResponse> {
    let origin = request
        .extensions()
        .get::<ConnectionOrigin>()
        .copied()
        .ok_or_else(tokens::no_token)?;
    let uses_tls = is_secure(origin, request.headers());
    // A sign-in request is small, so a larger body is refused.
    let body = axum::body::to_bytes(request.into_body(), 4_096)
        .await
        .unwrap_or_default();
    let input: Option<SignInInput> = serde_json::from_slice(&body).ok();
    let holder = input.and_then(|input| {
        shared
            .sign_in_codes
            .redeem(input.code.trim(), Instant::now())
    });
    let Some((principal, person)) = holder else {
        shared.metrics.record_rejection("bad_code");
        return Err(Problem::new(
            401,
            "bad_code",
            "this sign-in link was already used, or is older than ten minutes",
            "get a new sign-in link: regatta open",
        )
        .into());
    };
    let session = shared
        .tokens
        .create_session(&principal, &person, shared.engine.now().unix_ms);
    let BrowserSession { cookie, key } = session.ok_or_else(tokens::no_token)?;
    crate::verbs::audit_other_write(&shared, &principal, origin, "enter", "a browser");
    let text = format!(
        "{}={cookie}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{}",
        cookie_name(origin),
        SESSION_LIFETIME_MS / 1000,
        if uses_tls { "; Secure" } else { "" }
    );
    let mut response =
        axum::Json(serde_json::json!({ "key": key, "scope": principal.scope() })).into_response();
    let cookie = HeaderValue::from_str(&text).map_err(|_| tokens::no_token())?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Returns whether the browser's connection uses TLS, either to the daemon itself or to a proxy in
/// front of the daemon.
fn is_secure(origin: ConnectionOrigin, headers: &HeaderMap) -> bool {
    let page_origin = headers
        .get(header::ORIGIN)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    matches!(
        origin,
        ConnectionOrigin::Address {
            is_secure: true,
            ..
        }
    ) || page_origin.starts_with("https://")
}

/// Returns the name of the session cookie. The name contains the port, because a browser sends a
/// cookie to all ports of a host, and each daemon on a machine needs a cookie of its own.
fn cookie_name(origin: ConnectionOrigin) -> String {
    match origin {
        ConnectionOrigin::Address { local: at, .. } => format!("regatta-{}", at.port()),
        ConnectionOrigin::Socket { .. } => "regatta".into(),
    }
}

/// Returns the two halves (cookie and key) of the browser session in a request, or `None` if a half
/// is missing.
pub(crate) fn session_in_request(
    origin: ConnectionOrigin,
    headers: &HeaderMap,
) -> Option<(String, String)> {
    let key = headers.get("x-regatta-page")?.to_str().ok()?;
    let name = cookie_name(origin);
    let cookies = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|header| header.split(';'));
    let mut own_cookies = cookies
        .filter_map(|s| s.trim().split_once('='))
        .filter(|(cookie, _)| *cookie == name);
    own_cookies
        .next()
        .map(|(_, value)| (value.to_owned(), key.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_a_code_works_once_and_until_it_expires() {
        let (codes, now) = (SignInCodes::default(), Instant::now());
        let first_code = codes.create(Principal::Owner, "ann".into(), now).unwrap();
        let second_code = codes.create(Principal::Owner, "bob".into(), now).unwrap();
        assert_ne!(first_code, second_code);
        assert_eq!(codes.redeem("", now), None);
        assert_eq!(codes.redeem(&first_code[..15], now), None);
        assert_eq!(
            codes.redeem(&first_code, now),
            Some((Principal::Owner, "ann".into()))
        );
        assert_eq!(codes.redeem(&first_code, now), None);
        assert_eq!(codes.redeem(&second_code, now + CODE_LIFETIME), None);
        let first = codes.create(Principal::Owner, "x".into(), now).unwrap();
        for _ in 0..MAX_UNUSED_CODES {
            codes.create(Principal::Owner, "x".into(), now).unwrap();
        }
        assert_eq!(
            codes.redeem(&first, now),
            None,
            "the oldest of too many codes is dropped"
        );
    }

    #[test]
    fn browser_session_is_read_from_the_cookie_of_its_port() {
        let at = |port: u16| ConnectionOrigin::Address {
            peer: "127.0.0.1:9".parse().unwrap(),
            local: format!("127.0.0.1:{port}").parse().unwrap(),
            is_secure: false,
        };
        let mut headers = HeaderMap::new();
        headers.insert(
            header::COOKIE,
            "a=b; regatta-77=one; regatta-78=two".parse().unwrap(),
        );
        assert_eq!(
            session_in_request(at(77), &headers),
            None,
            "the cookie alone is not enough"
        );
        headers.insert("x-regatta-page", "key".parse().unwrap());
        assert_eq!(
            session_in_request(at(78), &headers),
            Some(("two".into(), "key".into()))
        );
        assert_eq!(session_in_request(at(79), &headers), None);
    }
}
