//! Authentication: every route and stream needs a token (S1), and refuses a foreign Host or Origin
//! (S2).
//!
//! No handler can be reached in another way. An authenticated request carries its caller as a
//! [`Principal`]; the table of verbs says what each caller may do.

use std::net::SocketAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use regatta_api::Problem;

use crate::listen::ConnectionOrigin;
use crate::tokens::{self, Principal};
use crate::{ServerState, health, web};

/// Returns the caller of a request, or the refusal. Returns no caller at an address that is open to
/// everybody.
pub(crate) fn authenticate(
    shared: &ServerState,
    origin: ConnectionOrigin,
    request: &mut Request,
) -> Result<Option<Principal>, Problem> {
    require_own_host(shared, origin, request.headers())?;
    // Health checks reveal nothing, and supervisors call them.
    let path = request.uri().path();
    // A delivery has a signature instead of a token.
    let signed = path.starts_with("/webhooks/");
    if signed || health::PUBLIC_PATHS.contains(&path) || web::is_public(request.method(), path) {
        return Ok(None);
    }
    let (principal, person) = identify(shared, origin, request.headers())?;
    // The person who opened the page is the actor, whatever the page says.
    if let Some(person) = person.and_then(|person| HeaderValue::from_str(&person).ok()) {
        request.headers_mut().insert("x-regatta-person", person);
    }
    Ok(Some(principal))
}

/// Refuses a foreign Host or Origin.
fn require_own_host(
    shared: &ServerState,
    origin: ConnectionOrigin,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let names = OwnHosts {
        hosts: &shared.hosts,
        loopback: shared.address,
        origin,
    };
    // A page that rebinds its own name to this address still sends its own name as Host.
    let host = headers
        .get(header::HOST)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if !names.has_host(host) && !is_relayed(origin, host, headers) {
        return Err(Problem::new(
            403,
            "foreign_host",
            "this daemon answers only to its own address",
            format!(
                "use http://{}/, or add a name for it: regatta up --host NAME",
                shared.address
            ),
        ));
    }
    if let Some(origin) = headers.get(header::ORIGIN)
        && !origin.to_str().is_ok_and(|origin| names.is_origin(origin))
    {
        return Err(Problem::new(
            403,
            "foreign_origin",
            "pages of other sites may not call this daemon",
            "call it from its own page, or from a program",
        ));
    }
    Ok(())
}

/// Returns whether a request came through the relay of an agent's shim, whose port is not ours. No
/// browser can send such a request: it has a token and no origin.
fn is_relayed(origin: ConnectionOrigin, host: &str, headers: &HeaderMap) -> bool {
    let port = host
        .strip_prefix("127.0.0.1:")
        .filter(|port| !port.starts_with(['+', '0']));
    matches!(origin, ConnectionOrigin::Socket { .. })
        && port.is_some_and(|port| port.parse::<u16>().is_ok())
        && headers.contains_key(header::AUTHORIZATION)
        && !headers.contains_key(header::ORIGIN)
}

/// The host names that are ours for a request.
struct OwnHosts<'a> {
    /// Names that were configured at the start.
    hosts: &'a [String],
    loopback: SocketAddr,
    origin: ConnectionOrigin,
}

impl OwnHosts<'_> {
    fn has_host(&self, host: &str) -> bool {
        let is =
            |given: &str, port: u16| given.parse() == Ok(port) && !given.starts_with(['+', '0']);
        let own = |name: &str, port: u16| {
            host.strip_prefix(name)
                .and_then(|host| host.strip_prefix(':'))
                .is_some_and(|host| is(host, port))
        };
        let local = |port: u16| {
            ["127.0.0.1", "localhost", "[::1]"]
                .iter()
                .any(|s| own(s, port))
        };
        match self.origin {
            // The unix socket has no port, so a caller there may write plain localhost.
            ConnectionOrigin::Socket { .. } => host == "localhost" || local(self.loopback.port()),
            ConnectionOrigin::Address { local: at, .. } if at.port() == self.loopback.port() => {
                host == "localhost" || local(at.port())
            }
            // A name can be rebound and an address cannot, so only configured names are accepted.
            ConnectionOrigin::Address { local: at, .. } => {
                host == at.to_string()
                    || local(at.port())
                    || self.hosts.iter().any(|s| host == *s || own(s, at.port()))
            }
        }
    }

    fn is_origin(&self, origin: &str) -> bool {
        let secure = matches!(
            self.origin,
            ConnectionOrigin::Address {
                is_secure: true,
                ..
            }
        );
        match origin.strip_prefix("https://") {
            // A proxy in front of us may terminate TLS, under a configured name.
            Some(host) => {
                self.has_host(host)
                    && (secure || self.hosts.iter().any(|s| host.starts_with(s.as_str())))
            }
            None => {
                !secure
                    && origin
                        .strip_prefix("http://")
                        .is_some_and(|origin| self.has_host(origin))
            }
        }
    }
}

/// Returns the caller of a token or of a browser session, and the person for a session of the
/// owner.
fn identify(
    shared: &ServerState,
    origin: ConnectionOrigin,
    headers: &HeaderMap,
) -> Result<(Principal, Option<String>), Problem> {
    let wall = shared.engine.now().unix_ms;
    if !headers.contains_key(header::AUTHORIZATION)
        && let Some((cookie, key)) = web::login::session_in_request(origin, headers)
    {
        let found = shared.tokens.authenticate_session(&cookie, &key, wall)?;
        shared
            .request_limiter
            .count_request(&found.0, std::time::Instant::now())?;
        return Ok(found);
    }
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|header| header.strip_prefix("Bearer "))
        .unwrap_or_default();
    if given.is_empty() {
        return Err(tokens::no_token());
    }
    let principal = shared
        .tokens
        .authenticate(given, &shared.engine.board(), wall)?;
    shared
        .request_limiter
        .count_request(&principal, std::time::Instant::now())?;
    Ok((principal, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: &str = "127.0.0.1:7777";

    fn with_own_hosts(hosts: &[String], at: Option<(&str, bool)>, check: impl Fn(&OwnHosts<'_>)) {
        let address = |(at, secure): (&str, bool)| {
            let peer = "192.0.2.7:99".parse().unwrap();
            ConnectionOrigin::Address {
                peer,
                local: at.parse().unwrap(),
                is_secure: secure,
            }
        };
        let at = at.map_or(ConnectionOrigin::Socket { uid: 7, pid: None }, address);
        check(&OwnHosts {
            hosts,
            loopback: LOOPBACK.parse().unwrap(),
            origin: at,
        });
    }

    /// S2: a request through an agent's relay may have the relay's own loopback port as Host. A
    /// browser's request is not accepted as such a request.
    #[test]
    fn s2_a_relayed_request_needs_a_token_and_no_origin() {
        let socket = ConnectionOrigin::Socket { uid: 7, pid: None };
        let address = ConnectionOrigin::Address {
            peer: "127.0.0.1:9".parse().unwrap(),
            local: LOOPBACK.parse().unwrap(),
            is_secure: false,
        };
        let with = |names: &[header::HeaderName]| -> HeaderMap {
            names
                .iter()
                .map(|name| (name.clone(), HeaderValue::from_static("x")))
                .collect()
        };
        let token = with(&[header::AUTHORIZATION]);
        assert!(is_relayed(socket, "127.0.0.1:40001", &token));
        assert!(
            !is_relayed(address, "127.0.0.1:40001", &token),
            "relays use only the socket"
        );
        assert!(
            !is_relayed(socket, "127.0.0.1:40001", &with(&[])),
            "a cookie is not enough"
        );
        assert!(!is_relayed(
            socket,
            "127.0.0.1:40001",
            &with(&[header::AUTHORIZATION, header::ORIGIN])
        ));
        for host in [
            "evil.example:40001",
            "127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:x",
            "127.0.0.1:+1",
            "localhost:1",
            "",
        ] {
            assert!(!is_relayed(socket, host, &token), "{host}");
        }
    }

    #[test]
    fn s2_only_the_daemons_own_names_are_accepted() {
        for at in [None, Some((LOOPBACK, false))] {
            with_own_hosts(&["regatta.example".into()], at, |ours| {
                for good in [
                    "localhost",
                    "localhost:7777",
                    "127.0.0.1:7777",
                    "[::1]:7777",
                ] {
                    assert!(ours.has_host(good), "{good}");
                }
                for bad in [
                    "",
                    "127.0.0.1",
                    "evil.example",
                    "evil.example:7777",
                    "regatta.example:7777",
                    "127.0.0.1:80",
                    "127.0.0.1:+7777",
                    "127.0.0.1:07777",
                    "127.0.0.1:7777:7777",
                    "localhost:7777.evil.example",
                    "0.0.0.0:7777",
                    "null",
                ] {
                    assert!(!ours.has_host(bad), "{bad}");
                }
                assert!(
                    ours.is_origin("http://127.0.0.1:7777")
                        && !ours.is_origin("https://127.0.0.1:7777")
                );
                assert!(!ours.is_origin("null") && !ours.is_origin("http://evil.example"));
            });
        }
    }

    #[test]
    fn s2_an_outside_listener_accepts_its_address_and_the_configured_names() {
        with_own_hosts(
            &["regatta.example".into()],
            Some(("192.0.2.1:8443", true)),
            |ours| {
                for good in [
                    "192.0.2.1:8443",
                    "regatta.example",
                    "regatta.example:8443",
                    "127.0.0.1:8443",
                ] {
                    assert!(ours.has_host(good), "{good}");
                    assert!(ours.is_origin(&format!("https://{good}")), "{good}");
                    assert!(!ours.is_origin(&format!("http://{good}")), "{good}");
                }
                for bad in [
                    "localhost",
                    "regatta.example:7777",
                    "evil.example:8443",
                    "192.0.2.2:8443",
                    "regatta.example.evil",
                ] {
                    assert!(!ours.has_host(bad), "{bad}");
                    assert!(!ours.is_origin(&format!("https://{bad}")), "{bad}");
                }
            },
        );
        // A proxy in front of this listener terminates TLS.
        with_own_hosts(
            &["regatta.example".into()],
            Some(("10.0.0.1:8080", false)),
            |ours| {
                assert!(
                    ours.is_origin("https://regatta.example")
                        && ours.is_origin("http://10.0.0.1:8080")
                );
                assert!(!ours.is_origin("https://10.0.0.1:8080"));
            },
        );
    }
}
