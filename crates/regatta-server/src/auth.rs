//! Authenticates every request: it must have a valid token (S1), and its Host and Origin headers
//! must name this daemon (S2).
//!
//! No handler can be reached without this check. An authenticated request carries its caller as a
//! [`Principal`], and the table of verbs determines the calls that each caller may make.

use std::net::SocketAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use regatta_api::Problem;

use crate::listen::ConnectionOrigin;
use crate::tokens::{self, Principal};
use crate::{ServerState, health, web};

/// Returns the caller of a request, or the error with which the request is refused. Returns `None`
/// for an address that needs no caller, such as a health check.
pub(crate) fn authenticate(
    shared: &ServerState,
    origin: ConnectionOrigin,
    request: &mut Request,
) -> Result<Option<Principal>, Problem> {
    require_own_host(shared, origin, request.headers())?;
    // Health checks need no token, because they reveal nothing and are called by process
    // supervisors.
    let path = request.uri().path();
    // A webhook delivery of a chat service has a signature instead of an access token. The bridge
    // checks the signature later.
    let signed = path.starts_with("/webhooks/");
    if signed || health::PUBLIC_PATHS.contains(&path) || web::is_public(request.method(), path) {
        return Ok(None);
    }
    let (principal, person) = identify(shared, origin, request.headers())?;
    // Record changes that a browser requests in the name of the person who opened the page, even if
    // the page sends another name.
    if let Some(person) = person.and_then(|person| HeaderValue::from_str(&person).ok()) {
        request.headers_mut().insert("x-regatta-person", person);
    }
    Ok(Some(principal))
}

/// Refuses a request whose Host or Origin header names another site.
fn require_own_host(
    shared: &ServerState,
    origin: ConnectionOrigin,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let own_hosts = OwnHosts {
        hosts: &shared.hosts,
        loopback: shared.address,
        origin,
    };
    // Protects against DNS rebinding: a page of another site can point its own host name to this
    // address, but the browser still sends that name as Host.
    let host = headers
        .get(header::HOST)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if !own_hosts.has_host(host) && !is_relayed(origin, host, headers) {
        return Err(Problem::new(
            403,
            "foreign_host",
            "the request's Host header names an address that is not this daemon's",
            format!(
                "use http://{}/, or let the daemon answer to another name: regatta up --host NAME",
                shared.address
            ),
        ));
    }
    if let Some(origin) = headers.get(header::ORIGIN)
        && !origin
            .to_str()
            .is_ok_and(|origin| own_hosts.is_origin(origin))
    {
        return Err(Problem::new(
            403,
            "foreign_origin",
            "the request comes from a web page of another site, which may not call this daemon",
            "call the daemon from its own page (regatta open) or from a program",
        ));
    }
    Ok(())
}

/// Returns whether a request came through the relay of an agent's program. The relay is a part of
/// the shim, the process that supervises the program, and has a port of its own. A browser cannot
/// send such a request, because the request has an access token and no Origin header.
fn is_relayed(origin: ConnectionOrigin, host: &str, headers: &HeaderMap) -> bool {
    let port = host
        .strip_prefix("127.0.0.1:")
        .filter(|port| !port.starts_with(['+', '0']));
    matches!(origin, ConnectionOrigin::Socket { .. })
        && port.is_some_and(|port| port.parse::<u16>().is_ok())
        && headers.contains_key(header::AUTHORIZATION)
        && !headers.contains_key(header::ORIGIN)
}

/// The host names for which the daemon accepts a request.
struct OwnHosts<'a> {
    /// Additional host names that were given when the daemon started.
    hosts: &'a [String],
    loopback: SocketAddr,
    origin: ConnectionOrigin,
}

impl OwnHosts<'_> {
    fn has_host(&self, host: &str) -> bool {
        let is_port =
            |text: &str, port: u16| text.parse() == Ok(port) && !text.starts_with(['+', '0']);
        let is_name_with_port = |name: &str, port: u16| {
            host.strip_prefix(name)
                .and_then(|host| host.strip_prefix(':'))
                .is_some_and(|host| is_port(host, port))
        };
        let is_loopback = |port: u16| {
            ["127.0.0.1", "localhost", "[::1]"]
                .iter()
                .any(|name| is_name_with_port(name, port))
        };
        match self.origin {
            // A unix socket has no port, so its callers may send `localhost` without a port.
            ConnectionOrigin::Socket { .. } => {
                host == "localhost" || is_loopback(self.loopback.port())
            }
            ConnectionOrigin::Address { local: address, .. }
                if address.port() == self.loopback.port() =>
            {
                host == "localhost" || is_loopback(address.port())
            }
            // DNS rebinding can point any name to this address, but cannot forge an IP address. So
            // a request may name the daemon by any IP address, but only by configured host names.
            ConnectionOrigin::Address { local: address, .. } => {
                host == address.to_string()
                    || is_loopback(address.port())
                    || self
                        .hosts
                        .iter()
                        .any(|name| host == *name || is_name_with_port(name, address.port()))
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
            // A proxy in front of the daemon may handle TLS, so an https origin is accepted if its
            // name was configured.
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

/// Returns the caller to whom a request's token or browser session belongs. For a session with the
/// rights of the daemon's own token, also returns the person's name.
fn identify(
    shared: &ServerState,
    origin: ConnectionOrigin,
    headers: &HeaderMap,
) -> Result<(Principal, Option<String>), Problem> {
    let wall = shared.engine.now().unix_ms;
    if !headers.contains_key(header::AUTHORIZATION)
        && let Some((cookie, key)) = web::login::session_in_request(origin, headers)
    {
        let session = shared.tokens.authenticate_session(&cookie, &key, wall)?;
        shared
            .request_limiter
            .count_request(&session.0, std::time::Instant::now())?;
        return Ok(session);
    }
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|header| header.strip_prefix("Bearer "))
        .unwrap_or_default();
    if token.is_empty() {
        return Err(tokens::no_token());
    }
    let principal = shared
        .tokens
        .authenticate(token, &shared.engine.board(), wall)?;
    shared
        .request_limiter
        .count_request(&principal, std::time::Instant::now())?;
    Ok((principal, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: &str = "127.0.0.1:7777";

    fn with_own_hosts(
        hosts: &[String],
        listener: Option<(&str, bool)>,
        check: impl Fn(&OwnHosts<'_>),
    ) {
        let address = |(listener, secure): (&str, bool)| {
            let peer = "192.0.2.7:99".parse().unwrap();
            ConnectionOrigin::Address {
                peer,
                local: listener.parse().unwrap(),
                is_secure: secure,
            }
        };
        let listener = listener.map_or(ConnectionOrigin::Socket { uid: 7, pid: None }, address);
        check(&OwnHosts {
            hosts,
            loopback: LOOPBACK.parse().unwrap(),
            origin: listener,
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
        let headers_with = |names: &[header::HeaderName]| -> HeaderMap {
            names
                .iter()
                .map(|name| (name.clone(), HeaderValue::from_static("x")))
                .collect()
        };
        let token = headers_with(&[header::AUTHORIZATION]);
        assert!(is_relayed(socket, "127.0.0.1:40001", &token));
        assert!(
            !is_relayed(address, "127.0.0.1:40001", &token),
            "relays use only the socket"
        );
        assert!(
            !is_relayed(socket, "127.0.0.1:40001", &headers_with(&[])),
            "a cookie is not enough"
        );
        assert!(!is_relayed(
            socket,
            "127.0.0.1:40001",
            &headers_with(&[header::AUTHORIZATION, header::ORIGIN])
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
        for listener in [None, Some((LOOPBACK, false))] {
            with_own_hosts(&["regatta.example".into()], listener, |own_hosts| {
                for good in [
                    "localhost",
                    "localhost:7777",
                    "127.0.0.1:7777",
                    "[::1]:7777",
                ] {
                    assert!(own_hosts.has_host(good), "{good}");
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
                    assert!(!own_hosts.has_host(bad), "{bad}");
                }
                assert!(
                    own_hosts.is_origin("http://127.0.0.1:7777")
                        && !own_hosts.is_origin("https://127.0.0.1:7777")
                );
                assert!(
                    !own_hosts.is_origin("null") && !own_hosts.is_origin("http://evil.example")
                );
            });
        }
    }

    #[test]
    fn s2_an_outside_listener_accepts_its_address_and_the_configured_names() {
        with_own_hosts(
            &["regatta.example".into()],
            Some(("192.0.2.1:8443", true)),
            |own_hosts| {
                for good in [
                    "192.0.2.1:8443",
                    "regatta.example",
                    "regatta.example:8443",
                    "127.0.0.1:8443",
                ] {
                    assert!(own_hosts.has_host(good), "{good}");
                    assert!(own_hosts.is_origin(&format!("https://{good}")), "{good}");
                    assert!(!own_hosts.is_origin(&format!("http://{good}")), "{good}");
                }
                for bad in [
                    "localhost",
                    "regatta.example:7777",
                    "evil.example:8443",
                    "192.0.2.2:8443",
                    "regatta.example.evil",
                ] {
                    assert!(!own_hosts.has_host(bad), "{bad}");
                    assert!(!own_hosts.is_origin(&format!("https://{bad}")), "{bad}");
                }
            },
        );
        // A proxy in front of this listener terminates TLS.
        with_own_hosts(
            &["regatta.example".into()],
            Some(("10.0.0.1:8080", false)),
            |own_hosts| {
                assert!(
                    own_hosts.is_origin("https://regatta.example")
                        && own_hosts.is_origin("http://10.0.0.1:8080")
                );
                assert!(!own_hosts.is_origin("https://10.0.0.1:8080"));
            },
        );
    }
}
