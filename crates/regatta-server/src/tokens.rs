//! Access tokens and the callers that they identify. There are three kinds of tokens: the daemon's
//! own token, issued tokens (which a person created for people and runners), and the token of each
//! attempt.
//!
//! Issued tokens are stored as hashes in one file beside the daemon's own token. They are not in
//! the store, because restoring an old backup of the store must not bring back a removed token. The
//! file is always replaced as a whole, so that a crash leaves either the old or the new file.
//!
//! An attempt's token is computed from its id, its fencing token and the daemon's own token. So it
//! does not have to be stored, nobody can guess it, and it becomes invalid when the attempt ends.

pub(crate) mod browser_session; // sessions of browsers

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use regatta_api::Problem;
use regatta_api::verb::TokenScope;
use regatta_api::view::{NewTokenView, TokenView};
use regatta_core::attempt_scope::{AttemptPrincipal, is_token_valid};
use regatta_core::board::Board;
use regatta_core::ids::{AgentName, AttemptId, FiringId, TaskId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Name of the file with issued tokens (tokens that a person created) within the data directory.
const TOKENS_FILE: &str = "tokens.json";
/// Maximum number of issued tokens (tokens that a person created).
const MAX_TOKENS: usize = 1_000;
/// Maximum lifetime of an issued token: ten years, in milliseconds.
const MAX_LIFETIME_MS: u64 = 10 * 366 * 24 * 3_600_000;

/// A caller of the API, as identified by the access token of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    /// A caller with the daemon's own token, who can therefore read the data directory.
    Owner,
    /// The holder of an issued token (a token that a person created).
    Named { name: String, scope: TokenScope },
    /// The program of an attempt (one run of an agent on a task), which uses the attempt's own
    /// token.
    Attempt {
        id: AttemptId,
        task: TaskId,
        agent: AgentName,
        fencing_token: u64,
        is_lead: bool,
        leads_mission: bool,
    },
    /// A command that a hook started. The command has the rights of an operator, because an admin
    /// has written it.
    Firing { id: FiringId, agent: AgentName },
}

impl Principal {
    pub(crate) fn scope(&self) -> TokenScope {
        match self {
            Principal::Owner => TokenScope::Admin,
            Principal::Named { scope, .. } => *scope,
            Principal::Attempt { is_lead: true, .. } => TokenScope::Lead,
            Principal::Attempt { is_lead: false, .. } => TokenScope::Attempt,
            Principal::Firing { .. } => TokenScope::Operator,
        }
    }

    /// Returns a name for the caller, for rate limits and logs.
    pub(crate) fn label(&self) -> String {
        match self {
            Principal::Owner => "owner".into(),
            Principal::Named { name, .. } => name.clone(),
            Principal::Attempt { id, .. } => id.to_string(),
            Principal::Firing { id, .. } => id.to_string(),
        }
    }
}

/// An issued token (a token that a person created). Only the hash of its secret is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IssuedToken {
    name: String,
    scope: TokenScope,
    /// SHA-256 of the token, in hex. The hash needs no salt, because the token has 256 random bits.
    hash: String,
    #[serde(rename = "made_wall")]
    created_unix_ms: u64,
    #[serde(rename = "expires_wall")]
    expires_unix_ms: Option<u64>,
}

impl IssuedToken {
    fn is_expired(&self, wall: u64) -> bool {
        self.expires_unix_ms
            .is_some_and(|expires_unix_ms| expires_unix_ms <= wall)
    }

    fn view(&self, wall: u64) -> TokenView {
        TokenView {
            name: self.name.clone(),
            scope: self.scope,
            made_wall: self.created_unix_ms,
            expires_wall: self.expires_unix_ms,
            expired: self.is_expired(wall),
        }
    }
}

/// Computes and checks the access tokens of attempts and of commands that hooks started.
#[derive(Clone)]
pub struct TokenMinter {
    key: [u8; 32],
}

impl std::fmt::Debug for TokenMinter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenMinter")
    }
}

impl TokenMinter {
    /// Creates a minter, which computes all its tokens from the daemon's own token.
    pub fn from_daemon_token(daemon_token: &str) -> TokenMinter {
        TokenMinter {
            key: mac(daemon_token.as_bytes(), b"regatta attempts 1"),
        }
    }

    /// Returns the access token of an attempt. `fence` is the attempt's fencing token (the revision
    /// at which the attempt was created).
    pub fn attempt_token(&self, id: AttemptId, fence: u64) -> String {
        format!(
            "ra_{id}_{}",
            HEXLOWER.encode(&mac(&self.key, format!("{id} {fence}").as_bytes()))
        )
    }

    /// Returns the access token of a command that a hook started. `id` is the id of the firing (one
    /// run of a hook's command), and `fence` is the number in `Firing::token`.
    pub fn firing_token(&self, id: FiringId, fence: u64) -> String {
        format!(
            "rf_{id}_{}",
            HEXLOWER.encode(&mac(&self.key, format!("{id} {fence}").as_bytes()))
        )
    }
}

fn mac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

fn hash(token: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(token.as_bytes()))
}

/// Knows all valid tokens and checks the tokens of callers.
pub struct TokenStore {
    daemon_token: String,
    minter: TokenMinter,
    file: PathBuf,
    issued: RwLock<Vec<IssuedToken>>,
    /// Locked while issued tokens (tokens that a person created) are changed in the file and in
    /// memory, so that two changes cannot overlap.
    change_lock: Mutex<()>,
}

impl TokenStore {
    /// Reads the issued tokens (tokens that a person created) of a data directory. `daemon_token`
    /// is the daemon's own token.
    pub fn open(data_dir: &Path, daemon_token: String) -> std::io::Result<TokenStore> {
        let file = data_dir.join(TOKENS_FILE);
        let issued = match std::fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                std::io::Error::new(
                    std::io::ErrorKind::InvalidData,
                    format!("{TOKENS_FILE}: {error}"),
                )
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => vec![],
            Err(error) => return Err(error),
        };
        Ok(TokenStore {
            minter: TokenMinter::from_daemon_token(&daemon_token),
            daemon_token,
            file,
            issued: RwLock::new(issued),
            change_lock: Mutex::new(()),
        })
    }

    /// Returns the part of the token store that computes the tokens of attempts and of hooks'
    /// commands.
    pub fn minter(&self) -> &TokenMinter {
        &self.minter
    }

    /// Returns the caller that a token identifies, or an error that says why the token is invalid.
    pub(crate) fn authenticate(
        &self,
        token: &str,
        board: &Board,
        wall: u64,
    ) -> Result<Principal, Problem> {
        if bool::from(token.as_bytes().ct_eq(self.daemon_token.as_bytes())) {
            return Ok(Principal::Owner);
        }
        if let Some(suffix) = token.strip_prefix("ra_") {
            return self.authenticate_attempt(token, suffix, board);
        }
        if let Some(suffix) = token.strip_prefix("rf_") {
            return self.authenticate_firing(token, suffix, board);
        }
        let hash = hash(token);
        let issued = self.issued.read().unwrap_or_else(PoisonError::into_inner);
        // The hashes need not be compared in constant time. The duration could only reveal a hash,
        // and nobody can compute the token from its hash.
        match issued.iter().find(|issued_token| issued_token.hash == hash) {
            Some(issued_token) if issued_token.is_expired(wall) => Err(Problem::new(
                401,
                "expired_token",
                format!("the token {} has expired", issued_token.name),
                "ask an admin to create a new token: regatta token add",
            )),
            Some(issued_token) => Ok(Principal::Named {
                name: issued_token.name.clone(),
                scope: issued_token.scope,
            }),
            None => Err(no_token()),
        }
    }

    fn authenticate_attempt(
        &self,
        token: &str,
        suffix: &str,
        board: &Board,
    ) -> Result<Principal, Problem> {
        let id: Option<AttemptId> = suffix
            .split('_')
            .next()
            .and_then(|suffix| suffix.parse().ok());
        let Some(attempt) = id.and_then(|id| board.attempts.get(&id)) else {
            return Err(attempt_over());
        };
        let expected = self.minter.attempt_token(attempt.id, attempt.token);
        if !bool::from(token.as_bytes().ct_eq(expected.as_bytes())) {
            return Err(no_token());
        }
        if !is_token_valid(attempt) {
            return Err(attempt_over());
        }
        let caller = AttemptPrincipal::new(board, attempt);
        Ok(Principal::Attempt {
            id: caller.attempt,
            task: caller.task,
            is_lead: caller.is_lead(),
            agent: caller.agent,
            fencing_token: caller.fencing_token,
            leads_mission: caller.leads_mission,
        })
    }

    fn authenticate_firing(
        &self,
        token: &str,
        suffix: &str,
        board: &Board,
    ) -> Result<Principal, Problem> {
        let id: Option<FiringId> = suffix
            .split('_')
            .next()
            .and_then(|suffix| suffix.parse().ok());
        let Some(firing) = id.and_then(|id| board.firings.get(&id)) else {
            return Err(firing_over());
        };
        let expected = self.minter.firing_token(firing.id, firing.token);
        if !bool::from(token.as_bytes().ct_eq(expected.as_bytes())) {
            return Err(no_token());
        }
        Ok(Principal::Firing {
            id: firing.id,
            agent: firing.agent.clone(),
        })
    }

    /// Creates a token, stores only its hash, and returns the token.
    pub(crate) fn add(
        &self,
        name: &str,
        scope: TokenScope,
        lifetime_ms: Option<u64>,
        wall: u64,
    ) -> Result<NewTokenView, Problem> {
        check_name(name)?;
        if !TokenScope::ASSIGNABLE.contains(&scope) {
            return Err(Problem::new(
                400,
                "bad_scope",
                format!(
                    "a person cannot create a token with the scope {scope}, because Regatta gives each attempt its own"
                ),
                "choose the scope admin, operator, viewer or runner",
            ));
        }
        if lifetime_ms.is_some_and(|lifetime_ms| lifetime_ms == 0 || lifetime_ms > MAX_LIFETIME_MS)
        {
            return Err(Problem::new(
                400,
                "bad_expiry",
                "the lifetime of a new token must be between 1 ms and 10 years",
                "give another lifetime, or none for a token that is valid until it is removed",
            ));
        }
        let secret = random_bytes().map_err(|error| storage_problem(&error))?;
        let token = format!("rt_{}", HEXLOWER.encode(&secret));
        let new_token = IssuedToken {
            name: name.into(),
            scope,
            hash: hash(&token),
            created_unix_ms: wall,
            expires_unix_ms: lifetime_ms.map(|lifetime_ms| wall.saturating_add(lifetime_ms)),
        };
        let view = new_token.view(wall);
        self.change(|issued| {
            // Remove an expired token with the same name, so that the name can be used again.
            issued
                .retain(|issued_token| issued_token.name != name || !issued_token.is_expired(wall));
            if issued.iter().any(|issued_token| issued_token.name == name) {
                return Err(Problem::new(
                    409,
                    "already_exists",
                    format!("the token {name} already exists"),
                    format!("choose another name, or remove it first: regatta token rm {name}"),
                ));
            }
            if issued.len() >= MAX_TOKENS {
                return Err(Problem::new(
                    409,
                    "too_many",
                    format!("there are already {MAX_TOKENS} tokens, which is the limit"),
                    "list the tokens with `regatta token list`, and remove one: regatta token rm NAME",
                ));
            }
            issued.push(new_token);
            Ok(())
        })?;
        Ok(NewTokenView { view, token })
    }

    /// Returns the issued token (a token that a person created) with this name.
    fn find_issued(&self, name: &str) -> Option<IssuedToken> {
        self.issued
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .find(|issued_token| issued_token.name == name)
            .cloned()
    }

    pub(crate) fn list(&self, wall: u64) -> Vec<TokenView> {
        self.issued
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|issued_token| issued_token.view(wall))
            .collect()
    }

    /// Removes an issued token (a token that a person created). The token is invalid from then on.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Problem> {
        self.change(|issued| {
            let before = issued.len();
            issued.retain(|issued_token| issued_token.name != name);
            if issued.len() == before {
                return Err(Problem::new(
                    404,
                    "no_such_token",
                    format!(
                        "there is no token {}",
                        name.chars().take(64).collect::<String>()
                    ),
                    "see the tokens: regatta token list",
                ));
            }
            Ok(())
        })
    }

    /// Changes the issued tokens (tokens that a person created). The file is written before the
    /// list in memory is changed, so that every token that works now also works after a restart.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<IssuedToken>) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let _guard = self
            .change_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut issued = self
            .issued
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        change(&mut issued)?;
        let text =
            serde_json::to_vec_pretty(&issued).map_err(|error| storage_problem(&error.into()))?;
        write_atomically(&self.file, &text).map_err(|error| storage_problem(&error))?;
        *self.issued.write().unwrap_or_else(PoisonError::into_inner) = issued;
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), Problem> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty()
        || name.len() > 64
        || !name.bytes().all(is_allowed)
        || !name.as_bytes()[0].is_ascii_alphanumeric()
    {
        return Err(Problem::new(
            400,
            "bad_name",
            "a token's name must have 1 to 64 letters, digits and - _ ., and begin with a letter or a \
            digit",
            "name the token after its holder: regatta token add ann --scope operator",
        ));
    }
    Ok(())
}

pub(crate) fn random_bytes() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes)
}

fn write_atomically(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    std::fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Returns the error for a missing or unknown token. The error is the same in both cases, so that
/// it reveals nothing.
pub(crate) fn no_token() -> Problem {
    Problem::new(
        401,
        "no_token",
        "the request has no access token, or an unknown one",
        "send the header `Authorization: Bearer TOKEN`; the daemon's own token is in the file `token` of the data directory",
    )
}

fn attempt_over() -> Problem {
    Problem::new(
        401,
        "attempt_over",
        "the attempt of this token has ended, so the token is no longer valid",
        "stop working; the remaining work belongs to another attempt",
    )
}

fn firing_over() -> Problem {
    Problem::new(
        401,
        "firing_over",
        "the hook command of this token has ended, so the token is no longer valid",
        "create a token for work that continues after the command: regatta token add",
    )
}

fn storage_problem(error: &std::io::Error) -> Problem {
    Problem::new(
        507,
        "io",
        format!("could not write the file with the access tokens: {error}"),
        "check the data directory: regatta doctor",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_store(dir: &Path) -> TokenStore {
        TokenStore::open(dir, "own-token-of-the-daemon".into()).unwrap()
    }

    /// S1: an issued token is recognised by its hash, also after a restart, until it expires or is
    /// removed.
    #[test]
    fn s1_a_token_is_valid_until_it_expires_or_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = token_store(dir.path());
        let board = Board::default();
        let created = store
            .add("ann", TokenScope::Operator, Some(1_000), 5_000)
            .unwrap();
        let ann = Principal::Named {
            name: "ann".into(),
            scope: TokenScope::Operator,
        };
        assert_eq!(
            store.authenticate(&created.token, &board, 5_999).unwrap(),
            ann
        );
        let file = std::fs::read_to_string(dir.path().join(TOKENS_FILE)).unwrap();
        assert!(!file.contains(&created.token[3..]), "only the hash is kept");
        let reopened = token_store(dir.path());
        assert_eq!(
            reopened
                .authenticate(&created.token, &board, 5_999)
                .unwrap(),
            ann
        );
        assert_eq!(
            reopened
                .authenticate(&created.token, &board, 6_000)
                .unwrap_err()
                .code,
            "expired_token"
        );
        assert!(reopened.list(6_000)[0].expired);
        assert_eq!(
            reopened
                .add("ann", TokenScope::Viewer, None, 5_000)
                .unwrap_err()
                .code,
            "already_exists"
        );
        // An expired token does not block its name.
        let new = reopened
            .add("ann", TokenScope::Viewer, None, 6_000)
            .unwrap();
        assert_eq!(
            reopened
                .authenticate(&created.token, &board, 5_000)
                .unwrap_err()
                .code,
            "no_token"
        );
        reopened.remove("ann").unwrap();
        assert_eq!(
            reopened
                .authenticate(&new.token, &board, 6_000)
                .unwrap_err()
                .code,
            "no_token"
        );
        assert_eq!(token_store(dir.path()).list(0), vec![]);
        assert_eq!(reopened.remove("ann").unwrap_err().code, "no_such_token");
        for bad in ["", "-x", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert_eq!(
                reopened
                    .add(bad, TokenScope::Viewer, None, 0)
                    .unwrap_err()
                    .code,
                "bad_name",
                "{bad}"
            );
        }
        for scope in [TokenScope::Attempt, TokenScope::Lead] {
            assert_eq!(
                reopened.add("x", scope, None, 0).unwrap_err().code,
                "bad_scope"
            );
        }
    }

    /// The daemon does not start with an unreadable file, because with an empty list it would
    /// forget every token.
    #[test]
    fn d8_a_truncated_list_of_tokens_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(TOKENS_FILE), "[{\"name\":").unwrap();
        assert!(TokenStore::open(dir.path(), "x".into()).is_err());
    }

    #[test]
    fn token_of_an_attempt_depends_on_daemon_attempt_and_fence() {
        let (minter, other_minter) = (
            TokenMinter::from_daemon_token("one"),
            TokenMinter::from_daemon_token("two"),
        );
        let token = minter.attempt_token(AttemptId(7), 42);
        assert!(
            token.starts_with("ra_A7_") && token.len() == "ra_A7_".len() + 64,
            "{token}"
        );
        assert_eq!(
            token,
            TokenMinter::from_daemon_token("one").attempt_token(AttemptId(7), 42)
        );
        assert_ne!(token, minter.attempt_token(AttemptId(7), 43));
        assert_ne!(token[6..], minter.attempt_token(AttemptId(8), 42)[6..]);
        assert_ne!(token, other_minter.attempt_token(AttemptId(7), 42));
    }
}
