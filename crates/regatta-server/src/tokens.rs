//! Access tokens and the callers that they identify: the daemon's own token, tokens given to people
//! and runners, and a token per attempt.
//!
//! Given tokens are stored as hashes in one file beside the daemon's own token. They are not in the
//! store, because restoring an old store must not bring back a removed token. The file is replaced
//! as a whole, so that a kill at any moment leaves the old or the new file.
//!
//! An attempt's token is derived from its id, its fencing token and the daemon's own token. So
//! nothing has to be stored for it, nobody can guess it, and it is invalid once the attempt is
//! over.

pub(crate) mod pass; // sessions of browsers

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

use hmac::{Hmac, KeyInit, Mac};
use regatta_api::Problem;
use regatta_api::verb::Scope;
use regatta_api::view::{NewToken, TokenView};
use regatta_core::agent::Role;
use regatta_core::attempt::{Attempt, Phase};
use regatta_core::board::Board;
use regatta_core::ids::{AgentName, AttemptId, FiringId, TaskId};
use regatta_core::task::Duty;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The file of given tokens in a data directory.
const FILE: &str = "tokens.json";
/// Maximum number of given tokens.
const MOST: usize = 1_000;
/// Maximum lifetime of a token: ten years.
const LONGEST_MS: u64 = 10 * 366 * 24 * 3_600_000;

/// The caller that a token identifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Visitor {
    /// A caller that can read the data directory.
    Owner,
    /// The holder of a given token.
    Named { name: String, scope: Scope },
    /// The program of an attempt.
    Attempt { id: AttemptId, task: TaskId, agent: AgentName, fence: u64, lead: bool, leads_mission: bool },
    /// The command of a fired hook. An admin wrote the command, so it may do what an operator may.
    Firing { id: FiringId, agent: AgentName },
}

impl Visitor {
    pub(crate) fn scope(&self) -> Scope {
        match self {
            Visitor::Owner => Scope::Admin,
            Visitor::Named { scope, .. } => *scope,
            Visitor::Attempt { lead: true, .. } => Scope::Lead,
            Visitor::Attempt { lead: false, .. } => Scope::Attempt,
            Visitor::Firing { .. } => Scope::Operator,
        }
    }

    /// Returns a name of the caller for counters and logs.
    pub(crate) fn label(&self) -> String {
        match self {
            Visitor::Owner => "owner".into(),
            Visitor::Named { name, .. } => name.clone(),
            Visitor::Attempt { id, .. } => id.to_string(),
            Visitor::Firing { id, .. } => id.to_string(),
        }
    }
}

/// A given token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Given {
    name: String,
    scope: Scope,
    /// SHA-256 in hex. A random token of 256 bits needs no salt.
    hash: String,
    made_wall: u64,
    expires_wall: Option<u64>,
}

impl Given {
    fn expired(&self, wall: u64) -> bool {
        self.expires_wall.is_some_and(|it| it <= wall)
    }

    fn view(&self, wall: u64) -> TokenView {
        TokenView {
            name: self.name.clone(),
            scope: self.scope,
            made_wall: self.made_wall,
            expires_wall: self.expires_wall,
            expired: self.expired(wall),
        }
    }
}

/// Derives and verifies the tokens of attempts and of hooks' commands.
#[derive(Clone)]
pub struct Mint {
    key: [u8; 32],
}

impl std::fmt::Debug for Mint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mint")
    }
}

impl Mint {
    /// Returns the mint of the daemon with this token.
    pub fn of(own: &str) -> Mint {
        Mint { key: mac(own.as_bytes(), b"regatta attempts 1") }
    }

    /// Returns the token of an attempt.
    pub fn token(&self, id: AttemptId, fence: u64) -> String {
        format!("ra_{id}_{}", hex(&mac(&self.key, format!("{id} {fence}").as_bytes())))
    }

    /// Returns the token of a hook's command.
    pub fn token_of_firing(&self, id: FiringId, fence: u64) -> String {
        format!("rf_{id}_{}", hex(&mac(&self.key, format!("{id} {fence}").as_bytes())))
    }
}

fn mac(key: &[u8], words: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts keys of any length");
    mac.update(words);
    mac.finalize().into_bytes().into()
}

fn hex(bytes: &[u8]) -> String {
    let digit = |it: u8| char::from(b"0123456789abcdef"[usize::from(it & 15)]);
    bytes.iter().flat_map(|it| [digit(it >> 4), digit(*it)]).collect()
}

fn hash(token: &str) -> String {
    hex(&Sha256::digest(token.as_bytes()))
}

/// All valid tokens.
pub struct Keyring {
    own: String,
    mint: Mint,
    file: PathBuf,
    given: RwLock<Vec<Given>>,
    /// Held during a change of the list and its file.
    changing: Mutex<()>,
}

impl Keyring {
    /// Opens the tokens of a data directory; `own` is the daemon's own token.
    pub fn open(data_dir: &Path, own: String) -> std::io::Result<Keyring> {
        let file = data_dir.join(FILE);
        let given = match std::fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|it| std::io::Error::new(std::io::ErrorKind::InvalidData, format!("{FILE}: {it}")))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => vec![],
            Err(error) => return Err(error),
        };
        Ok(Keyring { mint: Mint::of(&own), own, file, given: RwLock::new(given), changing: Mutex::new(()) })
    }

    /// Returns the mint of the tokens of attempts.
    pub fn mint(&self) -> &Mint {
        &self.mint
    }

    /// Returns the caller that a token identifies, or why it is invalid.
    pub(crate) fn who(&self, shown: &str, board: &Board, wall: u64) -> Result<Visitor, Problem> {
        if bool::from(shown.as_bytes().ct_eq(self.own.as_bytes())) {
            return Ok(Visitor::Owner);
        }
        if let Some(rest) = shown.strip_prefix("ra_") {
            return self.attempt(shown, rest, board);
        }
        if let Some(rest) = shown.strip_prefix("rf_") {
            return self.firing(shown, rest, board);
        }
        let hash = hash(shown);
        let given = self.given.read().unwrap_or_else(PoisonError::into_inner);
        // The hashes need no constant-time comparison: to find one with a common prefix, a caller
        // needs a token for it.
        match given.iter().find(|it| it.hash == hash) {
            Some(it) if it.expired(wall) => Err(Problem::new(
                401,
                "expired_token",
                format!("the token {} has expired", it.name),
                "ask an admin for a new one: regatta token add",
            )),
            Some(it) => Ok(Visitor::Named { name: it.name.clone(), scope: it.scope }),
            None => Err(no_token()),
        }
    }

    fn attempt(&self, shown: &str, rest: &str, board: &Board) -> Result<Visitor, Problem> {
        let id: Option<AttemptId> = rest.split('_').next().and_then(|it| it.parse().ok());
        let Some(attempt) = id.and_then(|it| board.attempts.get(&it)) else { return Err(over()) };
        let right = self.mint.token(attempt.id, attempt.token);
        if !bool::from(shown.as_bytes().ct_eq(right.as_bytes())) {
            return Err(no_token());
        }
        if !speaks(attempt) {
            return Err(over());
        }
        let lead = board.agents.get(&attempt.agent).is_some_and(|it| it.role == Role::Lead);
        let (task, agent, fence) = (attempt.task, attempt.agent.clone(), attempt.token);
        let leads_mission = board.tasks.get(&task).is_some_and(|task| task.duty == Some(Duty::Lead));
        Ok(Visitor::Attempt { id: attempt.id, task, agent, fence, lead, leads_mission })
    }

    fn firing(&self, shown: &str, rest: &str, board: &Board) -> Result<Visitor, Problem> {
        let id: Option<FiringId> = rest.split('_').next().and_then(|it| it.parse().ok());
        let Some(firing) = id.and_then(|it| board.firings.get(&it)) else { return Err(firing_over()) };
        let right = self.mint.token_of_firing(firing.id, firing.token);
        if !bool::from(shown.as_bytes().ct_eq(right.as_bytes())) {
            return Err(no_token());
        }
        Ok(Visitor::Firing { id: firing.id, agent: firing.agent.clone() })
    }

    /// Creates a token. Only its hash is stored.
    pub(crate) fn add(&self, name: &str, scope: Scope, lasts_ms: Option<u64>, wall: u64) -> Result<NewToken, Problem> {
        check_name(name)?;
        if !Scope::GIVEN.contains(&scope) {
            return Err(Problem::new(
                400,
                "bad_scope",
                format!("a token with the scope {scope} cannot be created; the attempt has its own"),
                "use one of admin, operator, viewer, runner",
            ));
        }
        if lasts_ms.is_some_and(|it| it == 0 || it > LONGEST_MS) {
            return Err(Problem::new(
                400,
                "bad_expiry",
                "the lifetime of a token is 1 ms to 10 years",
                "give another lifetime, or none for a token that is valid until it is removed",
            ));
        }
        let dice = dice().map_err(|it| unkept(&it))?;
        let token = format!("rt_{}", hex(&dice));
        let given = Given {
            name: name.into(),
            scope,
            hash: hash(&token),
            made_wall: wall,
            expires_wall: lasts_ms.map(|it| wall.saturating_add(it)),
        };
        let view = given.view(wall);
        self.change(|all| {
            // The name of an expired token may be used again.
            all.retain(|it| it.name != name || !it.expired(wall));
            if all.iter().any(|it| it.name == name) {
                return Err(Problem::new(
                    409,
                    "already_exists",
                    format!("the token {name} already exists"),
                    format!("choose another name, or remove it first: regatta token rm {name}"),
                ));
            }
            if all.len() >= MOST {
                return Err(Problem::new(
                    409,
                    "too_many",
                    format!("there are {MOST} tokens already"),
                    "remove some: regatta token list, regatta token rm",
                ));
            }
            all.push(given);
            Ok(())
        })?;
        Ok(NewToken { view, token })
    }

    /// Returns a given token by its name.
    fn given(&self, name: &str) -> Option<Given> {
        self.given.read().unwrap_or_else(PoisonError::into_inner).iter().find(|it| it.name == name).cloned()
    }

    pub(crate) fn list(&self, wall: u64) -> Vec<TokenView> {
        self.given.read().unwrap_or_else(PoisonError::into_inner).iter().map(|it| it.view(wall)).collect()
    }

    /// Removes a token. It is invalid from now on.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Problem> {
        self.change(|all| {
            let before = all.len();
            all.retain(|it| it.name != name);
            if all.len() == before {
                return Err(Problem::new(
                    404,
                    "no_such_token",
                    format!("there is no token {}", name.chars().take(64).collect::<String>()),
                    "see them: regatta token list",
                ));
            }
            Ok(())
        })
    }

    /// Changes the file first and then the list in memory, so that a token that is valid now is
    /// still valid after a restart.
    fn change(&self, change: impl FnOnce(&mut Vec<Given>) -> Result<(), Problem>) -> Result<(), Problem> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.given.read().unwrap_or_else(PoisonError::into_inner).clone();
        change(&mut all)?;
        let text = serde_json::to_vec_pretty(&all).map_err(|it| unkept(&it.into()))?;
        write_whole(&self.file, &text).map_err(|it| unkept(&it))?;
        *self.given.write().unwrap_or_else(PoisonError::into_inner) = all;
        Ok(())
    }
}

/// Returns whether an attempt's program may still act: the attempt is working and not being
/// stopped.
pub(crate) fn speaks(attempt: &Attempt) -> bool {
    attempt.phase == Phase::Working && attempt.stopping.is_none()
}

fn check_name(name: &str) -> Result<(), Problem> {
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) || !name.as_bytes()[0].is_ascii_alphanumeric() {
        return Err(Problem::new(
            400,
            "bad_name",
            "a token's name has 1 to 64 letters, digits and - _ ., and begins with a letter or a digit",
            "name it after its holder: regatta token add ann --scope operator",
        ));
    }
    Ok(())
}

pub(crate) fn dice() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes)
}

fn write_whole(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    std::fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Returns the answer to an unknown token, which reveals nothing more.
pub(crate) fn no_token() -> Problem {
    Problem::new(
        401,
        "no_token",
        "the token is missing or wrong",
        "send Authorization: Bearer with the content of the file token in the data directory",
    )
}

fn over() -> Problem {
    Problem::new(
        401,
        "attempt_over",
        "this attempt is over, and its token with it",
        "stop working; the remaining work belongs to another attempt",
    )
}

fn firing_over() -> Problem {
    Problem::new(
        401,
        "firing_over",
        "this hook's command is over, and its token with it",
        "create a token for work that continues after the command: regatta token add",
    )
}

fn unkept(error: &std::io::Error) -> Problem {
    Problem::new(507, "io", format!("the tokens could not be stored: {error}"), "see what is wrong: regatta doctor")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyring(dir: &Path) -> Keyring {
        Keyring::open(dir, "own-token-of-the-daemon".into()).unwrap()
    }

    /// S1: an issued token is recognised by its hash, also after a restart, until it expires or is
    /// removed.
    #[test]
    fn s1_a_token_is_valid_until_it_expires_or_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let ring = keyring(dir.path());
        let board = Board::default();
        let made = ring.add("ann", Scope::Operator, Some(1_000), 5_000).unwrap();
        let ann = Visitor::Named { name: "ann".into(), scope: Scope::Operator };
        assert_eq!(ring.who(&made.token, &board, 5_999).unwrap(), ann);
        let file = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(!file.contains(&made.token[3..]), "only the hash is kept");
        let again = keyring(dir.path());
        assert_eq!(again.who(&made.token, &board, 5_999).unwrap(), ann);
        assert_eq!(again.who(&made.token, &board, 6_000).unwrap_err().code, "expired_token");
        assert!(again.list(6_000)[0].expired);
        assert_eq!(again.add("ann", Scope::Viewer, None, 5_000).unwrap_err().code, "already_exists");
        // An expired token does not block its name.
        let new = again.add("ann", Scope::Viewer, None, 6_000).unwrap();
        assert_eq!(again.who(&made.token, &board, 5_000).unwrap_err().code, "no_token");
        again.remove("ann").unwrap();
        assert_eq!(again.who(&new.token, &board, 6_000).unwrap_err().code, "no_token");
        assert_eq!(keyring(dir.path()).list(0), vec![]);
        assert_eq!(again.remove("ann").unwrap_err().code, "no_such_token");
        for bad in ["", "-x", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert_eq!(again.add(bad, Scope::Viewer, None, 0).unwrap_err().code, "bad_name", "{bad}");
        }
        for scope in [Scope::Attempt, Scope::Lead] {
            assert_eq!(again.add("x", scope, None, 0).unwrap_err().code, "bad_scope");
        }
    }

    /// The daemon does not start with an unreadable file, because an empty list would forget every
    /// token.
    #[test]
    fn d8_a_truncated_list_of_tokens_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "[{\"name\":").unwrap();
        assert!(Keyring::open(dir.path(), "x".into()).is_err());
    }

    #[test]
    fn token_of_an_attempt_depends_on_daemon_attempt_and_fence() {
        let (mint, other) = (Mint::of("one"), Mint::of("two"));
        let token = mint.token(AttemptId(7), 42);
        assert!(token.starts_with("ra_A7_") && token.len() == "ra_A7_".len() + 64, "{token}");
        assert_eq!(token, Mint::of("one").token(AttemptId(7), 42));
        assert_ne!(token, mint.token(AttemptId(7), 43));
        assert_ne!(token[6..], mint.token(AttemptId(8), 42)[6..]);
        assert_ne!(token, other.token(AttemptId(7), 42));
    }
}
