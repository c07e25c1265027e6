//! Browser sessions: the proof with which a browser acts for the token it signed in with.
//!
//! A session has two halves. Scripts cannot read the cookie, but a browser sends it to every port
//! of this machine's address, including servers that an agent runs there. The key stays with the
//! page's own origin, and a script could read it. Neither half is valid without the other. Nothing
//! is stored for a session: it is signed, and it ends with its lifetime, with the token behind it,
//! or with the daemon's own token.

use regatta_api::Problem;
use subtle::ConstantTimeEq;

use super::{Principal, TokenStore, hex, mac, no_token};

/// Lifetime of a session.
pub(crate) const SESSION_LIFETIME_MS: u64 = 30 * 24 * 3_600_000;

/// Both halves of a session.
pub(crate) struct BrowserSession {
    pub(crate) cookie: String,
    pub(crate) key: String,
}

impl TokenStore {
    /// Creates a session for a caller. `person` names the person if the caller is the machine's
    /// owner.
    pub(crate) fn create_session(
        &self,
        principal: &Principal,
        person: &str,
        wall: u64,
    ) -> Option<BrowserSession> {
        let who = match principal {
            Principal::Owner => format!("o{person}"),
            Principal::Named { name, .. } => format!("n{name}"),
            Principal::Attempt { .. } | Principal::Firing { .. } => return None,
        };
        let until = wall + SESSION_LIFETIME_MS;
        let cookie = format!("rc_{until}_{}_{who}", hex(&self.sign_session(until, &who)?));
        let key = self.key_for_cookie(&cookie);
        Some(BrowserSession { cookie, key })
    }

    /// Returns the caller of a session, and the person's name for the owner.
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
        let (until, seal, who) = (parts.next(), parts.next(), parts.next());
        let (Some(until), Some(seal), Some(who)) =
            (until.and_then(|until| until.parse().ok()), seal, who)
        else {
            return Err(no_token());
        };
        let right = self
            .sign_session(until, who)
            .map(|bytes| hex(&bytes))
            .ok_or_else(no_token)?;
        let ours = seal.as_bytes().ct_eq(right.as_bytes())
            & key.as_bytes().ct_eq(self.key_for_cookie(cookie).as_bytes());
        if !bool::from(ours) {
            return Err(no_token());
        }
        if until <= wall {
            return Err(session_over());
        }
        match who.split_at(1) {
            ("o", person) => Ok((Principal::Owner, Some(person.to_owned()))),
            (_, name) => {
                let given = self
                    .find_issued(name)
                    .filter(|issued_token| !issued_token.is_expired(wall))
                    .ok_or_else(session_over)?;
                Ok((
                    Principal::Named {
                        name: given.name,
                        scope: given.scope,
                    },
                    None,
                ))
            }
        }
    }

    /// Signs the contents of a session and the hash of the token behind it, so that a new token
    /// with the same name does not revive it.
    fn sign_session(&self, until: u64, who: &str) -> Option<[u8; 32]> {
        let behind = match who.get(..1)? {
            "o" => String::new(),
            "n" => self.find_issued(&who[1..])?.hash,
            _ => return None,
        };
        Some(mac(
            &self.signing_key(),
            format!("pass {until} {who} {behind}").as_bytes(),
        ))
    }

    fn key_for_cookie(&self, cookie: &str) -> String {
        format!(
            "rk_{}",
            hex(&mac(
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
        "open the page again: regatta open",
    )
}

#[cfg(test)]
mod tests {
    use regatta_api::verb::TokenScope;

    use super::*;

    /// S1: a session allows what its token allows, for the session's lifetime, and neither half is
    /// valid alone.
    #[test]
    fn s1_a_browser_session_has_its_tokens_scope_and_needs_both_halves() {
        let dir = tempfile::tempdir().unwrap();
        let ring = TokenStore::open(dir.path(), "own".into()).unwrap();
        let pass = ring
            .create_session(&Principal::Owner, "ann_b", 1_000)
            .unwrap();
        let who = |cookie: &str, key: &str, wall| {
            ring.authenticate_session(cookie, key, wall)
                .map_err(|problem| problem.code)
        };
        assert_eq!(
            who(&pass.cookie, &pass.key, 2_000),
            Ok((Principal::Owner, Some("ann_b".into())))
        );
        assert_eq!(
            who(&pass.cookie, &pass.key, 1_000 + SESSION_LIFETIME_MS),
            Err("pass_over".into())
        );
        let other = ring
            .create_session(&Principal::Owner, "bob", 1_000)
            .unwrap();
        let forged = pass.cookie.replace("ann_b", "eve");
        let longer = pass.cookie.replacen(
            &(1_000 + SESSION_LIFETIME_MS).to_string(),
            &u64::MAX.to_string(),
            1,
        );
        for (cookie, key) in [
            (pass.cookie.as_str(), ""),
            (&pass.cookie, other.key.as_str()),
            ("", pass.key.as_str()),
            (&forged, &pass.key),
            (&longer, &pass.key),
            ("rc_9999999999999_00_o", &pass.key),
            ("rc_9999999999999_00_\u{e4}", &pass.key),
        ] {
            assert_eq!(
                who(cookie, key, 2_000),
                Err("no_token".into()),
                "{cookie} {key}"
            );
        }
        let elsewhere = TokenStore::open(dir.path(), "another".into()).unwrap();
        assert!(
            elsewhere
                .authenticate_session(&pass.cookie, &pass.key, 2_000)
                .is_err()
        );
    }

    /// S1: the session ends even if the name of its token is used again.
    #[test]
    fn s1_a_browser_session_ends_with_its_token() {
        let dir = tempfile::tempdir().unwrap();
        let ring = TokenStore::open(dir.path(), "own".into()).unwrap();
        ring.add("ann", TokenScope::Viewer, Some(5_000), 0).unwrap();
        let ann = Principal::Named {
            name: "ann".into(),
            scope: TokenScope::Viewer,
        };
        let pass = ring.create_session(&ann, "", 0).unwrap();
        let who = |wall| {
            ring.authenticate_session(&pass.cookie, &pass.key, wall)
                .map_err(|problem| problem.code)
        };
        assert_eq!(who(4_999), Ok((ann.clone(), None)));
        assert_eq!(who(5_000), Err("pass_over".into()));
        ring.remove("ann").unwrap();
        assert_eq!(who(1), Err("no_token".into()));
        ring.add("ann", TokenScope::Admin, None, 0).unwrap();
        assert_eq!(who(1), Err("no_token".into()));
    }
}
