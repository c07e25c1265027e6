//! Browser sessions. With its session, a signed-in browser proves that it has the rights of the
//! access token with which a person signed in.
//!
//! A session has two halves: a cookie and a key, which are valid only together. Scripts cannot read
//! the cookie, but the browser sends it to every port of this machine, also to servers that an
//! agent started. The key stays within the page's origin, but a script could read it. The server
//! stores nothing about a session, because its two halves are signed. A session ends after its
//! lifetime, when its token is removed, or when the daemon's own token changes.

use data_encoding::HEXLOWER;
use regatta_api::Problem;
use subtle::ConstantTimeEq;

use super::{Principal, TokenStore, mac, no_token};

/// Lifetime of a browser session, in milliseconds.
pub(crate) const SESSION_LIFETIME_MS: u64 = 30 * 24 * 3_600_000;

/// Both halves of a browser session: the cookie and the key.
pub(crate) struct BrowserSession {
    pub(crate) cookie: String,
    pub(crate) key: String,
}

impl TokenStore {
    /// Creates a browser session with the rights of a caller. `person` is the name of the person at
    /// the browser; it is used only if the caller has the daemon's own token.
    pub(crate) fn create_session(
        &self,
        principal: &Principal,
        person: &str,
        wall: u64,
    ) -> Option<BrowserSession> {
        let holder = match principal {
            Principal::Owner => format!("o{person}"),
            Principal::Named { name, .. } => format!("n{name}"),
            Principal::Attempt { .. } | Principal::Firing { .. } => return None,
        };
        let expires_unix_ms = wall + SESSION_LIFETIME_MS;
        let cookie = format!(
            "rc_{expires_unix_ms}_{}_{holder}",
            HEXLOWER.encode(&self.sign_session(expires_unix_ms, &holder)?)
        );
        let key = self.key_for_cookie(&cookie);
        Some(BrowserSession { cookie, key })
    }

    /// Returns the caller to whom a browser session belongs. For a session with the rights of the
    /// daemon's own token, also returns the person's name.
    pub(crate) fn authenticate_session(
        &self,
        cookie: &str,
        key: &str,
        wall: u64,
    ) -> Result<(Principal, Option<String>), Problem> {
        let mut parts = cookie
            .strip_prefix("rc_")
            .unwrap_or_default()
            .splitn(3, '_');
        let (expires_unix_ms, signature, holder) = (parts.next(), parts.next(), parts.next());
        let (Some(expires_unix_ms), Some(signature), Some(holder)) = (
            expires_unix_ms.and_then(|expires_unix_ms| expires_unix_ms.parse().ok()),
            signature,
            holder,
        ) else {
            return Err(no_token());
        };
        let expected = self
            .sign_session(expires_unix_ms, holder)
            .map(|bytes| HEXLOWER.encode(&bytes))
            .ok_or_else(no_token)?;
        let is_valid = signature.as_bytes().ct_eq(expected.as_bytes())
            & key.as_bytes().ct_eq(self.key_for_cookie(cookie).as_bytes());
        if !bool::from(is_valid) {
            return Err(no_token());
        }
        if expires_unix_ms <= wall {
            return Err(session_over());
        }
        match holder.split_at(1) {
            ("o", person) => Ok((Principal::Owner, Some(person.to_owned()))),
            (_, name) => {
                let issued = self
                    .find_issued(name)
                    .filter(|issued_token| !issued_token.is_expired(wall))
                    .ok_or_else(session_over)?;
                Ok((
                    Principal::Named {
                        name: issued.name,
                        scope: issued.scope,
                    },
                    None,
                ))
            }
        }
    }

    /// Signs the end and the holder of a session together with the hash of the holder's token.
    /// Because of that hash, an old session does not become valid again if a new token gets the
    /// same name.
    fn sign_session(&self, expires_unix_ms: u64, holder: &str) -> Option<[u8; 32]> {
        let token_hash = match holder.get(..1)? {
            "o" => String::new(),
            "n" => self.find_issued(&holder[1..])?.hash,
            _ => return None,
        };
        Some(mac(
            &self.signing_key(),
            format!("pass {expires_unix_ms} {holder} {token_hash}").as_bytes(),
        ))
    }

    fn key_for_cookie(&self, cookie: &str) -> String {
        format!(
            "rk_{}",
            HEXLOWER.encode(&mac(
                &self.signing_key(),
                format!("key {cookie}").as_bytes()
            ))
        )
    }

    fn signing_key(&self) -> [u8; 32] {
        mac(self.daemon_token.as_bytes(), b"regatta pages 1")
    }
}

fn session_over() -> Problem {
    Problem::new(
        401,
        "pass_over",
        "this browser's session has ended",
        "sign in again: regatta open",
    )
}

#[cfg(test)]
mod tests {
    use regatta_api::verb::TokenScope;

    use super::*;

    /// S1: a session allows the same calls as its token, for the session's lifetime, and neither
    /// half is valid alone.
    #[test]
    fn s1_a_browser_session_has_its_tokens_scope_and_needs_both_halves() {
        let dir = tempfile::tempdir().unwrap();
        let store = TokenStore::open(dir.path(), "own".into()).unwrap();
        let session = store
            .create_session(&Principal::Owner, "ann_b", 1_000)
            .unwrap();
        let authenticate = |cookie: &str, key: &str, wall| {
            store
                .authenticate_session(cookie, key, wall)
                .map_err(|problem| problem.code)
        };
        assert_eq!(
            authenticate(&session.cookie, &session.key, 2_000),
            Ok((Principal::Owner, Some("ann_b".into())))
        );
        assert_eq!(
            authenticate(&session.cookie, &session.key, 1_000 + SESSION_LIFETIME_MS),
            Err("pass_over".into())
        );
        let other_session = store
            .create_session(&Principal::Owner, "bob", 1_000)
            .unwrap();
        let forged = session.cookie.replace("ann_b", "eve");
        let longer = session.cookie.replacen(
            &(1_000 + SESSION_LIFETIME_MS).to_string(),
            &u64::MAX.to_string(),
            1,
        );
        for (cookie, key) in [
            (session.cookie.as_str(), ""),
            (&session.cookie, other_session.key.as_str()),
            ("", session.key.as_str()),
            (&forged, &session.key),
            (&longer, &session.key),
            ("rc_9999999999999_00_o", &session.key),
            ("rc_9999999999999_00_\u{e4}", &session.key),
        ] {
            assert_eq!(
                authenticate(cookie, key, 2_000),
                Err("no_token".into()),
                "{cookie} {key}"
            );
        }
        let other_daemon = TokenStore::open(dir.path(), "another".into()).unwrap();
        assert!(
            other_daemon
                .authenticate_session(&session.cookie, &session.key, 2_000)
                .is_err()
        );
    }

    /// S1: the session ends even if the name of its token is used again.
    #[test]
    fn s1_a_browser_session_ends_with_its_token() {
        let dir = tempfile::tempdir().unwrap();
        let store = TokenStore::open(dir.path(), "own".into()).unwrap();
        store
            .add("ann", TokenScope::Viewer, Some(5_000), 0)
            .unwrap();
        let ann = Principal::Named {
            name: "ann".into(),
            scope: TokenScope::Viewer,
        };
        let session = store.create_session(&ann, "", 0).unwrap();
        let authenticate = |wall| {
            store
                .authenticate_session(&session.cookie, &session.key, wall)
                .map_err(|problem| problem.code)
        };
        assert_eq!(authenticate(4_999), Ok((ann.clone(), None)));
        assert_eq!(authenticate(5_000), Err("pass_over".into()));
        store.remove("ann").unwrap();
        assert_eq!(authenticate(1), Err("no_token".into()));
        store.add("ann", TokenScope::Admin, None, 0).unwrap();
        assert_eq!(authenticate(1), Err("no_token".into()));
    }
}
